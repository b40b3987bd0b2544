//! The applications of one external host: kernel sockets in its namespace, all served by one thread.
//!
//! The thread executes the world's commands and reports the events of its sockets. It blocks only in `poll`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Instant;

use holdover_sim::{End, FlowId, NodeId, SocketEvent};
use holdover_tcp::ConnectionError;
use rustix::event::{PollFd, PollFlags, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::host_error::HostError;
use crate::shell::timespec;
use crate::socket::tcp_info;
use crate::{Namespace, SocketOptions, TcpInfo, Waker};

/// A command for the thread.
#[derive(Debug)]
pub(super) enum Command {
    Connect {
        flow: FlowId,
        end: End,
        local: IpAddr,
        remote: SocketAddr,
    },
    Write {
        flow: FlowId,
        end: End,
        bytes: u64,
        until: Option<Instant>,
    },
    Shutdown {
        flow: FlowId,
        end: End,
    },
    Datagram {
        flow: FlowId,
        local: SocketAddr,
        remote: SocketAddr,
        len: usize,
    },
    Sample {
        flow: FlowId,
    },
    /// Report the state of all connections, and end.
    Finish,
}

/// A report of the thread.
#[derive(Debug)]
pub(super) enum Report {
    SocketEvent(FlowId, End, SocketEvent),
    Sample(FlowId, Box<TcpInfo>),
    /// The last report: the state of each connection.
    Finished(Vec<(FlowId, End, Box<TcpInfo>)>),
    /// A socket could not be created or used.
    Failed(HostError),
}

/// A listening end of a flow, and the options of its sockets.
#[derive(Clone, Debug)]
pub(super) struct Listening {
    pub(super) flow: FlowId,
    pub(super) end: End,
    pub(super) port: u16,
    pub(super) ipv6: bool,
    /// `None` for UDP.
    pub(super) options: Option<SocketOptions>,
}

/// All sockets of a host.
pub(super) struct Applications {
    namespace: Namespace,
    /// The socket options of each flow's opening end.
    opening: BTreeMap<FlowId, SocketOptions>,
    listeners: Vec<(Listening, Socket)>,
    connections: Vec<Connection>,
    datagrams: BTreeMap<FlowId, Socket>,
    out: Outbox,
    scratch: Vec<u8>,
}

/// The destination of a host's reports.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    pub(super) node: NodeId,
    pub(super) sender: Sender<(NodeId, Report)>,
    /// Wakes the receiver.
    pub(super) waker: Waker,
}

struct Connection {
    flow: FlowId,
    end: End,
    socket: Socket,
    user_timeout: bool,
    connecting: bool,
    to_write: u64,
    until: Option<Instant>,
    shuts_down: bool,
    /// Whether the peer may still send.
    is_open: bool,
}

/// Bytes in one read or write.
const PIECE: usize = 256 << 10;
/// The data that applications send. Allocated at run time, as a constant of this size would be a part of the program's file.
static ZEROS: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; PIECE]);
/// The most consecutive reads or writes of a socket, so that others are not starved.
const BATCH: usize = 8;

impl Applications {
    /// Opens the listening sockets. The calling thread must be in `namespace`.
    pub(super) fn open(
        namespace: &Namespace,
        listening: Vec<Listening>,
        opening: BTreeMap<FlowId, SocketOptions>,
        out: Outbox,
    ) -> Result<Self, HostError> {
        let mut listeners = Vec::new();
        for entry in listening {
            let any: IpAddr = if entry.ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            let address = SocketAddr::new(any, entry.port);
            let socket = match &entry.options {
                Some(options) => options.socket(namespace, Domain::for_address(address))?,
                None => datagram_socket(address)?,
            };
            socket.set_reuse_address(true).map_err(failed("setsockopt(SO_REUSEADDR)"))?;
            socket.bind(&address.into()).map_err(failed("bind"))?;
            if entry.options.is_some() {
                socket.listen(128).map_err(failed("listen"))?;
            }
            socket.set_nonblocking(true).map_err(failed("fcntl(O_NONBLOCK)"))?;
            listeners.push((entry, socket));
        }
        Ok(Self {
            namespace: namespace.clone(),
            opening,
            listeners,
            connections: Vec::new(),
            datagrams: BTreeMap::new(),
            out,
            scratch: vec![0; PIECE],
        })
    }

    /// Serves until asked to finish, or until its channel closes.
    pub(super) fn serve(mut self, commands: &Receiver<Command>, wake: &Waker) {
        loop {
            loop {
                match commands.try_recv() {
                    Ok(Command::Finish) => return self.finish(),
                    Ok(command) => {
                        if let Err(error) = self.apply(command) {
                            self.tell(Report::Failed(error));
                        }
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let now = Instant::now();
            for connection in &mut self.connections {
                connection.write(now);
            }
            if let Err(error) = self.wait(wake) {
                self.tell(Report::Failed(error));
                return;
            }
        }
    }

    fn apply(&mut self, command: Command) -> Result<(), HostError> {
        match command {
            Command::Connect { flow, end, local, remote } => self.connect(flow, end, local, remote)?,
            Command::Write { flow, end, bytes, until } => {
                if let Some(connection) = self.connection(flow, end) {
                    connection.to_write = connection.to_write.saturating_add(bytes);
                    connection.until = until;
                }
            }
            Command::Shutdown { flow, end } => {
                if let Some(connection) = self.connection(flow, end) {
                    connection.shuts_down = true;
                }
            }
            Command::Datagram { flow, local, remote, len } => {
                let socket = match self.datagrams.entry(flow) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => {
                        let socket = datagram_socket(local)?;
                        socket.set_nonblocking(true).map_err(failed("fcntl(O_NONBLOCK)"))?;
                        socket.bind(&local.into()).map_err(failed("bind"))?;
                        entry.insert(socket)
                    }
                };
                // Datagrams that do not fit into the kernel's buffer are lost, as on a real host.
                let _ = socket.send_to(&ZEROS[..len.min(PIECE)], &remote.into());
            }
            Command::Sample { flow } => {
                if let Some(connection) = self.connection(flow, End::From).filter(|connection| !connection.connecting) {
                    let info = tcp_info(&connection.socket)?;
                    self.tell(Report::Sample(flow, Box::new(info)));
                }
            }
            Command::Finish => {}
        }
        Ok(())
    }

    fn connect(&mut self, flow: FlowId, end: End, local: IpAddr, remote: SocketAddr) -> Result<(), HostError> {
        let Some(options) = self.opening.get(&flow) else { return Ok(()) };
        let socket = options.socket(&self.namespace, Domain::for_address(remote))?;
        socket.bind(&SocketAddr::new(local, 0).into()).map_err(failed("bind"))?;
        socket.set_nonblocking(true).map_err(failed("fcntl(O_NONBLOCK)"))?;
        let user_timeout = options.user_timeout.is_some();
        match socket.connect(&remote.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => {
                self.tell(Report::SocketEvent(flow, end, SocketEvent::Failed(ending(&error, true, user_timeout))));
                return Ok(());
            }
        }
        self.connections.push(Connection { connecting: true, ..Connection::new(flow, end, socket, user_timeout) });
        Ok(())
    }

    /// Waits for work, and reads.
    fn wait(&mut self, wake: &Waker) -> Result<(), HostError> {
        let now = Instant::now();
        let until = self.connections.iter().filter(|one| one.to_write > 0).filter_map(|one| one.until).min();
        let timeout = until.map(|until| timespec(until.saturating_duration_since(now).into()));
        let mut fds = vec![PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)];
        for (_, socket) in &self.listeners {
            fds.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        }
        // A closed connection would be reported again and again, for any requested events.
        let asked: Vec<usize> =
            (0..self.connections.len()).filter(|&index| !self.connections[index].interest().is_empty()).collect();
        for &index in &asked {
            let connection = &self.connections[index];
            fds.push(PollFd::from_borrowed_fd(connection.socket.as_fd(), connection.interest()));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(failed("poll")(errno.into())),
        }
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        if ready[0].contains(PollFlags::IN) {
            wake.rest();
        }
        let count = self.listeners.len();
        for (index, _) in ready[1..=count].iter().enumerate().filter(|(_, flags)| !flags.is_empty()) {
            self.attend_listener(index)?;
        }
        for (_, &index) in ready[count + 1..].iter().zip(&asked).filter(|(flags, _)| !flags.is_empty()) {
            self.attend_connection(index);
        }
        Ok(())
    }

    /// Accepts a connection, or receives a datagram.
    fn attend_listener(&mut self, index: usize) -> Result<(), HostError> {
        let (entry, socket) = &mut self.listeners[index];
        let (flow, end) = (entry.flow, entry.end);
        let Some(options) = &entry.options else {
            let mut read = 0;
            for _ in 0..BATCH {
                match socket.read(&mut self.scratch) {
                    Ok(len) => read += len as u64,
                    Err(_) => break,
                }
            }
            if read > 0 {
                self.tell(Report::SocketEvent(flow, end, SocketEvent::Read(read)));
            }
            return Ok(());
        };
        match socket.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(true).map_err(failed("fcntl(O_NONBLOCK)"))?;
                self.connections.push(Connection::new(flow, end, socket, options.user_timeout.is_some()));
                self.tell(Report::SocketEvent(flow, end, SocketEvent::Connected));
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {}
            Err(error) => return Err(failed("accept")(error)),
        }
        Ok(())
    }

    fn attend_connection(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let (flow, end) = (connection.flow, connection.end);
        if connection.connecting {
            connection.connecting = false;
            let event = match connection.socket.take_error() {
                Ok(None) => SocketEvent::Connected,
                Ok(Some(error)) | Err(error) => {
                    connection.is_open = false;
                    SocketEvent::Failed(ending(&error, true, connection.user_timeout))
                }
            };
            return self.tell(Report::SocketEvent(flow, end, event));
        }
        let (read, ended) = connection.read(&mut self.scratch);
        if read > 0 {
            self.tell(Report::SocketEvent(flow, end, SocketEvent::Read(read)));
        }
        if let Some(event) = ended {
            self.tell(Report::SocketEvent(flow, end, event));
        }
    }

    fn finish(self) {
        let infos = self.connections.iter().filter_map(|connection| {
            let info = tcp_info(&connection.socket).ok()?;
            Some((connection.flow, connection.end, Box::new(info)))
        });
        self.tell(Report::Finished(infos.collect()));
    }

    fn connection(&mut self, flow: FlowId, end: End) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| (connection.flow, connection.end) == (flow, end))
    }

    fn tell(&self, report: Report) {
        // The receiver is gone if the run has ended with an error.
        let _ = self.out.sender.send((self.out.node, report));
        self.out.waker.wake();
    }
}

impl Connection {
    fn new(flow: FlowId, end: End, socket: Socket, user_timeout: bool) -> Self {
        Self {
            flow,
            end,
            socket,
            user_timeout,
            connecting: false,
            to_write: 0,
            until: None,
            shuts_down: false,
            is_open: true,
        }
    }

    fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.is_open && !self.connecting);
        flags.set(PollFlags::OUT, self.connecting || self.is_open && self.to_write > 0);
        flags
    }

    /// Writes pending data, as far as it fits. An error shows in the next read.
    fn write(&mut self, now: Instant) {
        if self.connecting {
            return;
        }
        if self.until.is_some_and(|until| now >= until) {
            self.to_write = 0;
        }
        for _ in 0..BATCH {
            if self.to_write == 0 {
                break;
            }
            let len = self.to_write.min(PIECE as u64) as usize;
            match self.socket.write(&ZEROS[..len]) {
                Ok(written) => self.to_write -= written as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.to_write = 0,
            }
        }
        if self.to_write == 0 && std::mem::take(&mut self.shuts_down) {
            // The call fails only if the connection has failed, which the next read reports.
            let _ = self.socket.shutdown(std::net::Shutdown::Write);
        }
    }

    /// Reads pending data. Returns its length, and the end of the stream if it has ended.
    fn read(&mut self, scratch: &mut [u8]) -> (u64, Option<SocketEvent>) {
        let mut read = 0;
        for _ in 0..BATCH {
            if !self.is_open {
                break;
            }
            match self.socket.read(scratch) {
                Ok(0) => {
                    self.is_open = false;
                    return (read, Some(SocketEvent::PeerClosed));
                }
                Ok(len) => read += len as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_open = false;
                    self.to_write = 0;
                    return (read, Some(SocketEvent::Failed(ending(&error, false, self.user_timeout))));
                }
            }
        }
        (read, None)
    }
}

/// A kernel's error in terms of the simulator's TCP.
fn ending(error: &io::Error, connecting: bool, user_timeout: bool) -> ConnectionError {
    match error.raw_os_error() {
        Some(libc::ETIMEDOUT) if user_timeout => ConnectionError::UserTimeout,
        Some(libc::ETIMEDOUT) => ConnectionError::TimedOut,
        Some(libc::ECONNREFUSED) if connecting => ConnectionError::Refused,
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH) => ConnectionError::Unreachable,
        Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNREFUSED) => ConnectionError::Reset,
        _ => ConnectionError::Aborted,
    }
}

fn datagram_socket(address: SocketAddr) -> Result<Socket, HostError> {
    Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP)).map_err(failed("socket"))
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> HostError {
    move |source| HostError::Call { call, source }
}
