//! What the maps of a gateway's process hold and what its programs cost, as the kernel shows it to other processes.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use aya::maps::{MapData, MapError, MapInfo};
use holdover_flow::{Entry, Key};
use holdover_host::ebpf::LOCK;
use holdover_host::map_batch;

use super::BenchError;
use crate::path::PathError;

/// The maps and programs of a gateway's process.
#[derive(Debug)]
pub struct Tables {
    process: u32,
    entries: MapData,
}

/// What they take.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// The memory of all maps, in bytes.
    pub map_bytes: u64,
    /// Runs of all programs, while the kernel counts them.
    pub runs: u64,
    /// Their run time.
    pub run_time: Duration,
}

impl Tables {
    /// Those of the process of this id.
    ///
    /// # Errors
    /// It has none, or the kernel refuses: this needs `CAP_BPF` and `CAP_SYS_ADMIN`.
    pub fn of(process: u32) -> Result<Self, BenchError> {
        for text in descriptors(process)? {
            let Some(id) = field(&text, "map_id:").and_then(|id| u32::try_from(id).ok()) else { continue };
            if MapInfo::from_id(id).map_err(refused)?.name_as_str() == Some("entries") {
                return Ok(Self { process, entries: MapData::from_id(id).map_err(refused)? });
            }
        }
        Err(BenchError::NoTable)
    }

    /// What maps and programs take now.
    ///
    /// # Errors
    /// The process has ended.
    pub fn usage(&self) -> io::Result<Usage> {
        let mut usage = Usage::default();
        for text in descriptors(self.process)? {
            if field(&text, "map_id:").is_some() {
                usage.map_bytes += field(&text, "memlock:").unwrap_or(0);
            }
            usage.runs += field(&text, "run_cnt:").unwrap_or(0);
            usage.run_time += Duration::from_nanos(field(&text, "run_time_ns:").unwrap_or(0));
        }
        Ok(usage)
    }

    /// The connections of the flow table: the fixed host's end, then the mobile host's.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn connections(&self) -> io::Result<HashSet<(SocketAddr, SocketAddr)>> {
        let mut connections = HashSet::new();
        let map = self.entries.fd().as_fd();
        let mut note = |key: &Key, _: &Entry| {
            let connection = key.connection();
            connections.insert((connection.fixed(), connection.mobile()));
        };
        // SAFETY: these are the map's key and value, integers without padding.
        unsafe { map_batch::for_each(map, LOCK, &mut note) }?;
        Ok(connections)
    }
}

/// Lets the kernel count runs of programs and their time until the value is dropped. Counting takes time, too.
///
/// # Errors
/// The kernel refuses.
pub fn count_runs() -> io::Result<OwnedFd> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime).map_err(|error| error.io_error)
}

fn refused(error: MapError) -> BenchError {
    PathError::from(error).into()
}

/// What the kernel shows of each descriptor of a process.
fn descriptors(process: u32) -> io::Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{process}/fdinfo"))? {
        // It may have been closed meanwhile.
        texts.extend(std::fs::read_to_string(entry?.path()).ok());
    }
    Ok(texts)
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_numbers_after_their_names() {
        let text = "pos:\t0\nmap_type:\t1\nmemlock:\t4096\nmap_id:\t17\n";
        assert_eq!(
            [field(text, "map_id:"), field(text, "memlock:"), field(text, "run_cnt:")],
            [Some(17), Some(4096), None]
        );
    }
}
