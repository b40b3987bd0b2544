//! Ownership of the files in a results directory: only files written by a run are removed.
//!
//! A run's manifest lists its top-level files with digests. A file that was changed since, or never written by a run, belongs to the user.
//! An incomplete run leaves no top-level files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The top-level files of a run.
const FILES: [&str; 7] =
    ["report.html", "summary.json", "flows.csv", "differences.csv", "scenario.toml", "progress.svg", "progress.png"];
const VARIANTS: &str = "variants";
pub(crate) const MANIFEST: &str = "manifest.json";

/// The digests of a run's top-level files in `dir`, by name.
pub(crate) fn digests(dir: &Path) -> io::Result<BTreeMap<&'static str, String>> {
    let mut digests = BTreeMap::new();
    for name in FILES {
        match fs::File::open(dir.join(name)) {
            Ok(file) => {
                digests.insert(name, digest(file)?);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(digests)
}

/// The first file of `dir` with the name of a run's file that was not written by a run, or was changed since.
pub(crate) fn foreign(dir: &Path) -> io::Result<Option<PathBuf>> {
    #[derive(Default, Deserialize)]
    struct Known {
        #[serde(default)]
        files: BTreeMap<String, String>,
    }
    let manifest = dir.join(MANIFEST);
    let known = match fs::read(&manifest) {
        Ok(content) => match serde_json::from_slice::<Known>(&content) {
            Ok(known) => known,
            Err(_) => return Ok(Some(manifest)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Known::default(),
        Err(error) => return Err(error),
    };
    for (name, digest) in digests(dir)? {
        if known.files.get(name) != Some(&digest) {
            return Ok(Some(dir.join(name)));
        }
    }
    Ok(None)
}

/// Removes a run's files from `dir`. Directories of variants with other content stay.
pub(crate) fn remove_results(dir: &Path) -> io::Result<()> {
    for name in FILES.into_iter().chain([MANIFEST]) {
        remove_file(&dir.join(name))?;
        remove_file(&dir.join(format!("{name}.part")))?;
    }
    let variants = dir.join(VARIANTS);
    if variants.is_dir() {
        remove_written(&variants)?;
    }
    Ok(())
}

/// Removes a run's files in `dir` and below, and directories left empty. Links are not followed.
fn remove_written(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            remove_written(&entry.path())?;
        } else if kind.is_file() && is_written(&entry.path()) {
            fs::remove_file(entry.path())?;
        }
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        other => other,
    }
}

/// Whether a run writes files of this name below `variants`.
fn is_written(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.strip_suffix(".part").unwrap_or(name);
    let below = path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match below {
        "captures" => matches!(ending, "pcapng" | "pcap"),
        "plots" => matches!(ending, "svg" | "png"),
        "qlog" => ending == "sqlog",
        "xplot" => ending == "xpl",
        "flowmon" => name == "flowmon.xml",
        _ => matches!(name, "events.jsonl" | "samples.csv" | "time-sequence.csv"),
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// 64-bit FNV-1a of content of any size, as 16 hexadecimal digits: detects changes, not forgeries.
fn digest(mut content: impl io::Read) -> io::Result<String> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut block = vec![0; 1 << 16];
    loop {
        let read = match content.read(&mut block) {
            Ok(0) => return Ok(format!("{hash:016x}")),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let next = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        hash = block[..read].iter().fold(hash, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_fnv_1a() {
        assert_eq!(digest(&b""[..]).unwrap(), "cbf29ce484222325");
        assert_eq!(digest(&b"a"[..]).unwrap(), "af63dc4c8601ec8c");
    }
}
