//! Processes and users of sockets, from `/proc` and the user database.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A process that has a socket open.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// Its name: the program's, cut off after 15 bytes, unless the process has changed it (`/proc/PID/comm`).
    pub comm: String,
    /// Its program; `None` without permission to read it.
    pub path: Option<PathBuf>,
}

/// A user could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// There is no such user.
    #[error("there is no user \"{name}\"")]
    Unknown {
        /// The name.
        name: Box<str>,
    },
    /// The database could not be read.
    #[error("looking up user \"{name}\"")]
    Database {
        /// The name.
        name: Box<str>,
        /// The system's reason.
        source: io::Error,
    },
}

/// The processes that have the sockets of these inodes open ([`TcpSocket::inode`](super::TcpSocket::inode)), by pid. A
/// socket can be shared: a server's workers, a shell's child.
///
/// Reads every descriptor of every process, which takes some milliseconds on a desktop. Processes that may not be read,
/// or end meanwhile, are left out.
pub fn processes_of(inodes: &BTreeSet<u32>) -> BTreeMap<u32, Vec<Process>> {
    let mut found: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    if inodes.is_empty() {
        return found;
    }
    for (pid, directory) in process_directories() {
        let Ok(descriptors) = fs::read_dir(directory.join("fd")) else { continue };
        let held: BTreeSet<u32> = descriptors
            .filter_map(|entry| socket_inode(&fs::read_link(entry.ok()?.path()).ok()?))
            .filter(|inode| inodes.contains(inode))
            .collect();
        if held.is_empty() {
            continue;
        }
        let Ok(comm) = fs::read_to_string(directory.join("comm")) else { continue };
        let process = Process {
            pid,
            comm: comm.trim_end_matches('\n').to_owned(),
            path: fs::read_link(directory.join("exe")).ok().map(without_deleted),
        };
        for inode in held {
            found.entry(inode).or_default().push(process.clone());
        }
    }
    found
}

/// The uid of a user, from the system's user database (`getpwnam_r(3)`), which need not be a file.
///
/// # Errors
///
/// See [`UserError`].
pub fn uid_of(name: &str) -> Result<u32, UserError> {
    let unknown = || UserError::Unknown { name: name.into() };
    let c_name = CString::new(name).map_err(|_| unknown())?;
    let mut buffer = vec![0 as libc::c_char; 1024];
    loop {
        // SAFETY: all bytes zero is a valid `passwd`: null pointers and numbers.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut result = std::ptr::null_mut();
        // SAFETY: the name ends with a zero, the buffer has the given length, and both outlive the call; only a number is read
        // from the entry, which may point into the buffer.
        let error = unsafe {
            libc::getpwnam_r(c_name.as_ptr(), &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut result)
        };
        match error {
            0 if result.is_null() => return Err(unknown()),
            0 => return Ok(entry.pw_uid),
            libc::ERANGE if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 4, 0),
            // The error of other systems for an unknown user.
            libc::ENOENT | libc::ESRCH => return Err(unknown()),
            errno => {
                return Err(UserError::Database { name: name.into(), source: io::Error::from_raw_os_error(errno) });
            }
        }
    }
}

fn process_directories() -> Vec<(u32, PathBuf)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbered = |entry: fs::DirEntry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()));
    let mut all: Vec<_> = entries.filter_map(|entry| numbered(entry.ok()?)).collect();
    all.sort();
    all
}

/// `socket:[4711]`.
fn socket_inode(link: &Path) -> Option<u32> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// A program that was replaced while it runs is still that program.
fn without_deleted(path: PathBuf) -> PathBuf {
    path.to_str().and_then(|text| text.strip_suffix(" (deleted)")).map(PathBuf::from).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;
    use std::os::linux::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_socket_of_this_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let inode = fs::metadata(format!("/proc/self/fd/{}", stream.as_raw_fd())).unwrap().st_ino() as u32;
        let found = processes_of(&BTreeSet::from([inode, u32::MAX]));
        assert_eq!(found.keys().collect::<Vec<_>>(), [&inode]);
        let process = found[&inode].iter().find(|process| process.pid == std::process::id()).unwrap();
        assert_eq!(process.path, std::env::current_exe().ok());
        assert!(!process.comm.is_empty() && process.comm.len() <= 15);
        assert!(processes_of(&BTreeSet::new()).is_empty());
    }

    #[test]
    fn users_have_numbers() {
        assert_eq!(uid_of("root").unwrap(), 0);
        assert!(matches!(uid_of("no such user here"), Err(UserError::Unknown { .. })));
        assert!(matches!(uid_of("a\0b"), Err(UserError::Unknown { .. })));
    }

    #[test]
    fn a_replaced_program_keeps_its_name() {
        assert_eq!(without_deleted("/usr/bin/ssh (deleted)".into()), Path::new("/usr/bin/ssh"));
        assert_eq!(without_deleted("/usr/bin/ssh".into()), Path::new("/usr/bin/ssh"));
        assert_eq!(socket_inode(Path::new("socket:[4711]")), Some(4711));
        assert_eq!(socket_inode(Path::new("pipe:[4711]")), None);
    }
}
