//! One agent per interface: a lock between all agents that can reach it.
//!
//! Two agents on one interface would each hold back ACKs that the other has passed, and wake each connection twice.
//! They may share nothing but the interface: not the control socket, not the user, not even the file system, in
//! different containers with a common network. So the lock is tied to the interface: the name of an abstract Unix
//! socket (`unix(7)`), derived from the interface index. Each network namespace has its own abstract names and its own
//! indices; a name belongs to one socket, needs no privilege and no writable directory; and the kernel frees it when
//! the process ends, however that happens.
//!
//! Any process can take a name, though. An agent needs `CAP_NET_ADMIN`; a process that has the name without that capability is not
//! an agent, and is reported and ignored.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::error::{EngineError, Holder};

/// The lock of an interface. Released on drop.
#[derive(Debug)]
pub(super) struct InterfaceLock {
    /// `None` if a process that is not an agent has taken the name.
    name: Option<UnixListener>,
    /// Its name contains the path of the control socket.
    _note: Option<UnixDatagram>,
}

impl InterfaceLock {
    /// Takes the lock of the interface with this index in the calling thread's network namespace.
    pub(super) fn take(interface: &str, index: u32, control_socket: &Path) -> Result<Self, EngineError> {
        let failed = |source| EngineError::Lock { interface: interface.into(), source };
        let address = SocketAddr::from_abstract_name(name_of(index)).map_err(failed)?;
        let name = match UnixListener::bind_addr(&address) {
            Ok(name) => Some(name),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => match holder(index, &address) {
                Some(holder) => return Err(EngineError::Held { interface: interface.into(), holder }),
                None => None,
            },
            Err(error) => return Err(failed(error)),
        };
        match &name {
            Some(name) => name.set_nonblocking(true).map_err(failed)?,
            None => tracing::warn!(interface, "a process that is no agent has taken the agent's lock; it is ignored"),
        }
        Ok(Self { name, _note: note(index, control_socket) })
    }

    /// Closes connections of other agents, which the kernel has answered already (`SO_PEERCRED`), so that the backlog never fills. Call it
    /// periodically.
    pub(super) fn hang_up(&self) {
        while self.name.as_ref().is_some_and(|name| name.accept().is_ok()) {}
    }
}

fn name_of(index: u32) -> String {
    format!("holdover/interface/{index}")
}

/// The beginning of the name that contains the control socket.
fn note_prefix(index: u32) -> String {
    format!("{}/control/", name_of(index))
}

/// A socket whose name contains the control socket. A path that is too long is left out.
fn note(index: u32, control_socket: &Path) -> Option<UnixDatagram> {
    let control_socket = std::path::absolute(control_socket).ok()?;
    let name = note_prefix(index) + control_socket.to_str()?;
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()
}

/// The process that has taken the name; `None` if it is not an agent. A process that cannot be inspected counts as an
/// agent.
fn holder(index: u32, address: &SocketAddr) -> Option<Holder> {
    let pid = UnixStream::connect_addr(address).ok().and_then(|stream| listener_of(&stream));
    if let Some(pid) = pid
        && fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| !may_administer(&status))
    {
        return None;
    }
    let names = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    Some(Holder { pid, control_socket: noted(index, &names) })
}

/// The process at the other end of the socket (`SO_PEERCRED`); `None` if it is in another PID namespace.
fn listener_of(stream: &UnixStream) -> Option<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `len` bytes, which is the size of the structure; both outlive the call.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut len,
        )
    };
    u32::try_from(credentials.pid).ok().filter(|&pid| got == 0 && pid > 0)
}

/// Whether a process has `CAP_NET_ADMIN`, by its `/proc/PID/status`.
fn may_administer(status: &str) -> bool {
    const CAP_NET_ADMIN: u32 = 12;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    effective.is_none_or(|set| set & 1 << CAP_NET_ADMIN != 0)
}

/// The control socket, by `/proc/net/unix`, which writes the zero byte of an abstract name as `@`.
fn noted(index: u32, names: &str) -> Option<PathBuf> {
    let prefix = format!("@{}", note_prefix(index));
    names.lines().find_map(|line| line.split_once(&prefix)).map(|(_, path)| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index without an interface.
    const INDEX: u32 = 0x7fff_0000;

    #[test]
    fn an_interface_has_one_agent_at_a_time() {
        let index = INDEX + std::process::id();
        let socket = Path::new("/run/holdover/a b.sock");
        let first = InterfaceLock::take("wlan0", index, socket).unwrap();
        // More than the backlog of a socket.
        for _ in 0..300 {
            first.hang_up();
            // Without CAP_NET_ADMIN this process is not an agent, and is ignored.
            match InterfaceLock::take("wlan0", index, Path::new("other")) {
                Err(EngineError::Held { holder, .. }) => {
                    assert_eq!(holder.pid, Some(std::process::id()));
                    assert_eq!(holder.control_socket.as_deref(), Some(socket));
                }
                Err(error) => panic!("{error}"),
                Ok(second) => assert!(second.name.is_none() && !may_administer(&own_status())),
            }
        }
        assert!(InterfaceLock::take("wlan1", index + 1, socket).unwrap().name.is_some(), "another interface");
        drop(first);
        assert!(InterfaceLock::take("wlan0", index, socket).unwrap().name.is_some(), "it is free again");
    }

    fn own_status() -> String {
        fs::read_to_string("/proc/self/status").unwrap()
    }

    #[test]
    fn an_agent_has_the_capability_for_it() {
        assert!(may_administer("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(may_administer("CapEff:\t0000000000001000\n"));
        assert!(!may_administer("CapEff:\t0000000000000000\n"));
        assert!(may_administer(""), "an unreadable process counts as an agent");
    }

    #[test]
    fn the_control_socket_is_read_from_the_names() {
        let names = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     0000: 00000002 00000000 00010000 0001 01 1 @holdover/interface/3\n\
                     0000: 00000002 00000000 00000000 0002 01 2 @holdover/interface/33/control/x\n\
                     0000: 00000002 00000000 00000000 0002 01 3 @holdover/interface/3/control//run/holdover/agent.sock\n";
        assert_eq!(noted(3, names), Some("/run/holdover/agent.sock".into()));
        assert_eq!(noted(4, names), None);
    }
}
