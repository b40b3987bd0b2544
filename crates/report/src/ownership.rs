//! Ownership of the files in a results directory: only files written by a run are removed or replaced.
//!
//! A run records each file as it writes it, and its manifest lists them with digests. A file with the name of a run's file that is not
//! listed, or was changed since, belongs to the user: a new run in the same directory is refused, and nothing is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::digest::Digest;

/// The top-level files of a run, apart from copies of the files that its scenario names.
const FILES: [&str; 7] =
    ["report.html", "summary.json", "flows.csv", "differences.csv", "scenario.toml", "progress.svg", "progress.png"];
const VARIANTS: &str = "variants";
pub(crate) const MANIFEST: &str = "manifest.json";

/// Why a file is not known to be a run's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotOfARun {
    /// A `manifest.json` that is not the manifest of a run.
    #[error("is not the manifest of a run")]
    NoManifest,
    /// It has the name of a run's file, and is a directory, link or device.
    #[error("is not a regular file")]
    NoRegularFile,
    /// A run would write below it, and it is a file or link.
    #[error("is not a directory")]
    NoDirectory,
    /// It has the name of a run's file, and no manifest lists it.
    #[error("was not written by a completed run")]
    NotListed,
    /// A manifest lists it with another content.
    #[error("was changed since the run that wrote it")]
    Changed,
}

/// A file with the name of a run's file that is not known to be a run's.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// The file.
    pub path: PathBuf,
    /// Why it is not known to be a run's.
    pub reason: NotOfARun,
}

/// Whether a results directory can have a file of this relative name: below the directory, and not by way of `..`.
pub(crate) fn is_inside(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a run writes results of this name at the top level, or below `variants`: no copy of a file that its scenario names may have it.
pub(crate) fn is_reserved(name: &str) -> bool {
    let results = || FILES.iter().copied().chain([MANIFEST]);
    Path::new(name).starts_with(VARIANTS)
        || results().any(|result| Path::new(name).starts_with(result) || Path::new(name) == Path::new(&part_of(result)))
}

/// The name of an incomplete file.
fn part_of(name: &str) -> String {
    format!("{name}.part")
}

/// The first file of `dir` with the name of a run's file that was not written by a run, or was changed since. `copies` are the names of
/// further files of the new run.
pub(crate) fn foreign(dir: &Path, copies: &BTreeSet<String>) -> io::Result<Option<Foreign>> {
    let manifest = dir.join(MANIFEST);
    let foreign = |path, reason| Ok(Some(Foreign { path, reason }));
    match fs::symlink_metadata(&manifest) {
        Ok(found) if !found.is_file() => return foreign(manifest, NotOfARun::NoRegularFile),
        Ok(_) => {}
        Err(error) if is_absent(&error) => {}
        Err(error) => return Err(error),
    }
    let Ok(known) = read_manifest(dir)? else { return foreign(manifest, NotOfARun::NoManifest) };
    if let Some(parent) = no_directory_on_the_way(dir, known.keys().chain(copies))? {
        return foreign(parent, NotOfARun::NoDirectory);
    }
    let names: BTreeSet<PathBuf> = present(dir, copies)?.into_iter().chain(known.keys().map(PathBuf::from)).collect();
    for name in names {
        let path = dir.join(&name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => {}
            // A pipe is not opened: it may have no writer.
            Ok(_) => return foreign(path, NotOfARun::NoRegularFile),
            // Removed by the user.
            Err(error) if is_absent(&error) => continue,
            Err(error) => return Err(error),
        }
        match name.to_str().and_then(|name| known.get(name)) {
            None => return foreign(path, NotOfARun::NotListed),
            Some(expected) if Digest::of(fs::File::open(&path)?)?.to_string() == *expected => {}
            Some(_) => return foreign(path, NotOfARun::Changed),
        }
    }
    Ok(None)
}

/// Removes the files that the manifest in `dir` lists, and directories left empty. Called after [`foreign`] has found none.
pub(crate) fn remove_listed(dir: &Path) -> io::Result<()> {
    let known = read_manifest(dir)?.unwrap_or_default();
    for name in known.keys() {
        remove_file(&dir.join(name))?;
    }
    remove_file(&dir.join(MANIFEST))?;
    remove_empty_directories(dir, known.keys())
}

/// Removes these files of a run that has just written them, and directories left empty.
pub(crate) fn remove_written<'a>(dir: &Path, names: impl Iterator<Item = &'a String> + Clone) -> io::Result<()> {
    for name in names.clone() {
        remove_file(&dir.join(name))?;
    }
    remove_empty_directories(dir, names)
}

/// The digests of the manifest in `dir`; empty without a manifest, an inner error if it is not a run's.
fn read_manifest(dir: &Path) -> io::Result<Result<BTreeMap<String, String>, serde_json::Error>> {
    #[derive(Default, Deserialize)]
    struct Known {
        #[serde(default)]
        files: BTreeMap<String, String>,
    }
    let known = match fs::read(dir.join(MANIFEST)) {
        Ok(content) => serde_json::from_slice::<Known>(&content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Known::default()),
        Err(error) => return Err(error),
    };
    Ok(known.map(|known| known.files.into_iter().filter(|(name, _)| is_inside(name)).collect()))
}

/// The names in `dir` that are those of a run's files, complete or in part, of files, links and directories alike.
fn present(dir: &Path, copies: &BTreeSet<String>) -> io::Result<BTreeSet<PathBuf>> {
    let mut names = BTreeSet::new();
    let single = FILES.iter().copied().chain([MANIFEST]).chain(copies.iter().map(String::as_str));
    for name in single.flat_map(|name| [name.to_owned(), part_of(name)]) {
        match fs::symlink_metadata(dir.join(&name)) {
            Ok(_) if name != MANIFEST => {
                names.insert(PathBuf::from(name));
            }
            Ok(_) => {}
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let mut below = vec![PathBuf::from(VARIANTS)];
    while let Some(name) = below.pop() {
        let kind = match fs::symlink_metadata(dir.join(&name)) {
            Ok(found) => found.file_type(),
            Err(error) if is_absent(&error) => continue,
            Err(error) => return Err(error),
        };
        if kind.is_dir() {
            for entry in fs::read_dir(dir.join(&name))? {
                below.push(name.join(entry?.file_name()));
            }
        } else if kind.is_symlink() || name == Path::new(VARIANTS) || is_written(&name) {
            // A run would write through a link.
            names.insert(name);
        }
    }
    Ok(names)
}

/// The first parent of these files of `dir` that is a symbolic link or a file.
fn no_directory_on_the_way<'a>(dir: &Path, names: impl Iterator<Item = &'a String>) -> io::Result<Option<PathBuf>> {
    for name in names {
        for parent in Path::new(name).ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            match fs::symlink_metadata(dir.join(parent)) {
                Ok(found) if !found.is_dir() => return Ok(Some(dir.join(parent))),
                Ok(_) => {}
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(None)
}

/// Removes the empty directories that these files of `dir` were in, and empty ones below `variants`.
fn remove_empty_directories<'a>(dir: &Path, names: impl Iterator<Item = &'a String>) -> io::Result<()> {
    let parents = names.flat_map(|name| Path::new(name).ancestors().skip(1));
    let mut parents: BTreeSet<&Path> = parents.filter(|parent| !parent.as_os_str().is_empty()).collect();
    parents.insert(Path::new(VARIANTS));
    // The deepest first.
    for parent in parents.into_iter().rev() {
        remove_if_empty(&dir.join(parent), parent.starts_with(VARIANTS))?;
    }
    Ok(())
}

/// Removes the directory if it is empty; with `deep`, empty directories in it first. Links are not followed.
fn remove_if_empty(dir: &Path, deep: bool) -> io::Result<()> {
    match fs::symlink_metadata(dir) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Ok(()),
        Err(error) if is_absent(&error) => return Ok(()),
        Err(error) => return Err(error),
    }
    if deep {
        for entry in fs::read_dir(dir)? {
            remove_if_empty(&entry?.path(), true)?;
        }
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        other => other,
    }
}

/// Whether a run writes files of this name, which is below `variants`: in the directory of a variant or of its repetition
/// (`variants/NAME/repetition-2`), and in directories for captures, plots and exports there.
fn is_written(path: &Path) -> bool {
    fn part(path: Option<&Path>) -> &str {
        path.and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default()
    }
    let name = part(Some(path));
    let name = name.strip_suffix(".part").unwrap_or(name);
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    // Variants may be called as these directories are.
    let below = if path.components().count() > 3 { part(path.parent()) } else { "" };
    match below {
        "captures" => matches!(ending, "pcapng" | "pcap"),
        "plots" => matches!(ending, "svg" | "png"),
        "qlog" => ending == "sqlog",
        "xplot" => ending == "xpl",
        "flowmon" => name == "flowmon.xml",
        _ => matches!(name, "events.jsonl" | "samples.csv" | "time-sequence.csv"),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
