//! The TCP sockets of this host, and their owners.
//!
//! [`SocketDiag`] asks the kernel (`sock_diag(7)`) for all connections of a network namespace, or for one: addresses,
//! negotiated window scales, RTO and backoff, the owner's user and cgroup. [`owner`] finds the processes that hold a
//! socket, [`Cgroups`] the name of a cgroup.
//!
//! Every query is answered at once; nothing here waits. Sockets of any process can be listed without privileges; their
//! processes only by root, or with access to `/proc/PID/fd`.

mod cgroup;
mod conntrack;
mod diag;
pub mod owner;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use holdover_base::Duration;
use holdover_host::inet_diag::InetDiag;
use holdover_host::netlink_socket::NetlinkSocketError;
use holdover_mobility::Connection;
use holdover_wire::TcpInfo;

pub(crate) use conntrack::Conntrack;

pub use cgroup::{CgroupError, Cgroups, find_cgroup2_mount};

/// A TCP connection, from its socket in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpSocket {
    /// Its addresses and ports. An IPv6 socket with IPv4-mapped addresses (`::ffff:192.0.2.1`) has the IPv4 addresses
    /// of the wire.
    pub connection: Connection,
    /// Identifies the socket, also among successive ones with the same addresses and ports (`SO_COOKIE`).
    pub cookie: u64,
    /// The inode in `socket:[4711]`; 0 if no process has it open any more.
    pub inode: u32,
    /// The user who created it.
    pub uid: u32,
    /// Its cgroup (v2) as in [`Cgroups`]; `None` before Linux 5.8.
    pub cgroup: Option<u64>,
    /// The interface it is bound to, by index.
    pub bound_to: Option<u32>,
    /// The timer that is armed.
    pub timer: Option<ArmedTimer>,
    /// Bytes received that the application has not read.
    pub recv_queue: u32,
    /// Bytes that the application has written and the peer has not acknowledged.
    pub send_queue: u32,
    /// The congestion control, by the kernel's name.
    pub congestion: String,
    /// State, RTO, backoff, window scales, RTT, byte counts and more.
    pub info: TcpInfo,
}

/// The one timer of a socket that `ss -o` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArmedTimer {
    /// Its kind.
    pub kind: TimerKind,
    /// When it fires, from now; the kernel counts it in jiffies.
    pub expires_in: Duration,
    /// How many times in a row it has fired.
    pub tries: u8,
}

/// The kind of a socket's timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerKind {
    /// Retransmission, or a loss probe.
    Retransmission,
    /// Keep-alive.
    KeepAlive,
    /// TIME-WAIT.
    TimeWait,
    /// Probing a zero window.
    ZeroWindowProbe,
    /// An unknown number.
    Other(u8),
}

/// Queries the TCP sockets of one network namespace: that of the thread which opens it.
#[derive(Debug)]
pub struct SocketDiag {
    diag: InetDiag,
    /// [`Self::find`] finds the sockets that are bound to the interface of this index, beside those that are bound to none; 0 for these alone.
    interface: u32,
}

/// A query of sockets failed.
#[derive(Debug, thiserror::Error)]
pub enum SocketDiagError {
    /// The netlink socket failed.
    #[error("netlink socket for sock_diag")]
    Socket(#[source] io::Error),
    /// The request was refused: a kernel without `CONFIG_INET_DIAG`, or a module that it may not load.
    #[error("the kernel does not list its TCP sockets: is the module tcp_diag there (CONFIG_INET_TCP_DIAG)?")]
    Refused(#[source] io::Error),
    /// A socket was not destroyed: a kernel without `CONFIG_INET_DIAG_DESTROY`, or a process without `CAP_NET_ADMIN`.
    #[error("cannot end connections: needs CONFIG_INET_DIAG_DESTROY and CAP_NET_ADMIN")]
    NotEnded(#[source] io::Error),
    /// An invalid answer.
    #[error("invalid sock_diag answer: {0}")]
    Answer(&'static str),
}

impl From<NetlinkSocketError> for SocketDiagError {
    fn from(error: NetlinkSocketError) -> Self {
        match error {
            NetlinkSocketError::Socket(error) => Self::Socket(error),
            NetlinkSocketError::Refused(error) => Self::Refused(error),
            NetlinkSocketError::Invalid => Self::Answer("the length of a message"),
        }
    }
}

impl SocketDiag {
    /// Opens it in the calling thread's network namespace; it may be used from any thread.
    ///
    /// # Errors
    ///
    /// [`SocketDiagError::Socket`].
    pub fn open() -> Result<Self, SocketDiagError> {
        Self::open_over(0)
    }

    /// Opens it for an engine: [`Self::find`] also finds the sockets that are bound (`SO_BINDTODEVICE`) to the interface of this index.
    ///
    /// # Errors
    ///
    /// [`SocketDiagError::Socket`].
    pub fn open_over(interface: u32) -> Result<Self, SocketDiagError> {
        let diag = InetDiag::open().map_err(SocketDiagError::Socket)?;
        Ok(Self { diag, interface })
    }

    /// Makes the kernel load the modules that answer (`inet_diag` and `tcp_diag`, on most distributions). Otherwise the
    /// first query waits for modprobe.
    ///
    /// # Errors
    ///
    /// See [`SocketDiagError`].
    pub fn prepare(&mut self) -> Result<(), SocketDiagError> {
        let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        self.find(Connection { local: nowhere, remote: nowhere }).map(drop)
    }

    /// All connections with a full socket: no listeners, no TIME-WAIT, no incomplete handshakes of a listener.
    ///
    /// # Errors
    ///
    /// See [`SocketDiagError`].
    pub fn connections(&mut self) -> Result<Vec<TcpSocket>, SocketDiagError> {
        let mut all = Vec::new();
        for family in [diag::AF_INET, diag::AF_INET6] {
            self.diag.dump(&diag::request_for_all(family), &mut |answer| all.push(diag::socket_of(answer)))?;
        }
        all.into_iter().filter_map(Result::transpose).collect()
    }

    /// The socket of one connection; `None` if there is none, or if it is bound to an interface other than that of [`Self::open_over`].
    ///
    /// # Errors
    ///
    /// See [`SocketDiagError`].
    pub fn find(&mut self, connection: Connection) -> Result<Option<TcpSocket>, SocketDiagError> {
        let answer = self.diag.query(&diag::request_for(connection, self.interface))?;
        answer.map_or(Ok(None), |answer| diag::socket_of(&answer))
    }

    /// Destroys a connection of this host: its program gets `ECONNABORTED`, and its peer a reset if reachable. Returns
    /// whether it existed.
    ///
    /// # Errors
    ///
    /// [`SocketDiagError::NotEnded`], or others.
    pub fn destroy(&mut self, socket: &TcpSocket) -> Result<bool, SocketDiagError> {
        self.diag.end(&diag::request_for_socket(socket), |_| true).map_err(not_ended)
    }

    /// Whether the kernel destroys connections for this process. Tries it with an impossible one.
    ///
    /// # Errors
    ///
    /// [`SocketDiagError::NotEnded`], or others.
    pub fn probe_destroy(&mut self) -> Result<(), SocketDiagError> {
        self.diag.probe_end().map_err(not_ended)
    }
}

fn not_ended(error: NetlinkSocketError) -> SocketDiagError {
    match error {
        NetlinkSocketError::Refused(error) => SocketDiagError::NotEnded(error),
        error => error.into(),
    }
}

impl TimerKind {
    /// The numbers of `idiag_timer`; 0 is none.
    pub(crate) const fn from_kernel(number: u8) -> Option<Self> {
        Some(match number {
            0 => return None,
            1 => Self::Retransmission,
            2 => Self::KeepAlive,
            3 => Self::TimeWait,
            4 => Self::ZeroWindowProbe,
            other => Self::Other(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use holdover_wire::TcpState;

    use super::*;

    fn pair(listen_on: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(listen_on).unwrap();
        let near = TcpStream::connect((Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port())).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn connection(stream: &TcpStream) -> Connection {
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        Connection { local: canonical(stream.local_addr().unwrap()), remote: canonical(stream.peer_addr().unwrap()) }
    }

    #[test]
    fn both_ends_of_a_connection_are_listed_and_found() {
        let (mut near, far) = pair("127.0.0.1:0");
        near.write_all(b"unread").unwrap();
        let mut diag = SocketDiag::open().unwrap();
        let all = diag.connections().unwrap();
        let in_list = |stream: &TcpStream| all.iter().find(|socket| socket.connection == connection(stream)).unwrap();
        let found = diag.find(connection(&near)).unwrap().unwrap();
        assert_eq!((found.cookie, found.inode), (in_list(&near).cookie, in_list(&near).inode));
        assert_ne!(found.cookie, in_list(&far).cookie);
        assert_eq!(found.info.tcpi_state, TcpState::Established);
        assert_eq!(found.uid, rustix::process::geteuid().as_raw());
        assert_eq!(diag.find(connection(&far)).unwrap().unwrap().recv_queue, 6);
        assert_eq!(found.info.tcpi_rcv_wscale, in_list(&far).info.tcpi_snd_wscale);
        assert!(
            owner::processes_of(&BTreeSet::from([found.inode]))[&found.inode]
                .iter()
                .any(|p| p.pid == std::process::id())
        );
    }

    #[test]
    fn a_kernel_that_lists_sockets_can_be_prepared() {
        let mut diag = SocketDiag::open().unwrap();
        diag.prepare().unwrap();
        assert!(diag.connections().is_ok());
    }

    #[test]
    fn a_socket_that_is_bound_to_an_interface_is_found_over_it_and_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind_device(Some(b"lo")).unwrap();
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        let near = TcpStream::from(socket);
        let loopback = rustix::net::netdevice::name_to_index(&near, "lo").unwrap();
        let connection = connection(&near);
        let find = |interface: u32| SocketDiag::open_over(interface).unwrap().find(connection).unwrap();
        assert_eq!([find(0), find(loopback + 1)], [None, None]);
        let found = find(loopback).unwrap();
        assert_eq!((found.connection, found.bound_to), (connection, Some(loopback)));
        let mut all = SocketDiag::open().unwrap();
        if all.probe_destroy().is_ok() {
            assert!(all.destroy(&found).unwrap());
            assert_eq!(find(loopback), None);
        }
    }

    #[test]
    fn an_ipv6_socket_that_talks_ipv4_has_the_addresses_on_the_wire() {
        // Without IPv6 there is no such socket.
        if TcpListener::bind("[::]:0").is_err() {
            return;
        }
        let (_near, far) = pair("[::]:0");
        assert!(connection(&far).local.is_ipv4());
        let mut diag = SocketDiag::open().unwrap();
        let found = diag.find(connection(&far)).unwrap().unwrap();
        assert!(diag.connections().unwrap().iter().any(|socket| socket.cookie == found.cookie));
    }

    #[test]
    fn a_connection_that_is_ended_tells_its_program_at_once() {
        let (mut near, far) = pair("127.0.0.1:0");
        let mut diag = SocketDiag::open().unwrap();
        let mut socket = diag.find(connection(&near)).unwrap().unwrap();
        if let Err(error) = diag.probe_destroy() {
            assert!(matches!(error, SocketDiagError::NotEnded(_)), "{error}");
            eprintln!("skipped: {error}");
            return;
        }
        socket.cookie ^= 1;
        assert!(!diag.destroy(&socket).unwrap(), "another one's");
        near.write_all(b"still there").unwrap();
        socket.cookie ^= 1;
        assert!(diag.destroy(&socket).unwrap());
        let error = near.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNABORTED), "{error}");
        assert!(!diag.destroy(&socket).unwrap(), "it is gone");
        drop(far);
    }

    #[test]
    fn a_listener_is_no_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let mut diag = SocketDiag::open().unwrap();
        assert!(diag.connections().unwrap().iter().all(|socket| socket.connection.local != local));
        let nobody = Connection { local, remote: "127.0.0.1:1".parse().unwrap() };
        assert_eq!(diag.find(nobody).unwrap(), None);
        // The socket still works after an empty answer.
        assert_eq!(diag.find(nobody).unwrap(), None);
    }
}
