//! System calls to open, close and query sockets. Data transfer is in `send` and `receive`, options in `options`.

use std::collections::VecDeque;
use std::sync::Arc;

use holdover_tcp::{Config, ConnectionId, State};

use super::attempt::{Attempt, Progress, Returned};
use super::socket::{Role, Socket, is_at_end};
use super::{Kernel, LOCAL_PORT};
use crate::ast::{Call, Expr, Field};
use crate::constants::integer;

const O_RDWR: i64 = 2;
const NONBLOCK: i64 = 0o4000;

impl Kernel {
    /// Makes a call, or as much of it as is possible now.
    pub(crate) fn call(&mut self, call: &Call, progress: &mut Progress) -> Attempt {
        let args = call.args.as_slice();
        let is_of_data = matches!(call.name.as_str(), "read" | "recv" | "recvfrom" | "write" | "send" | "sendto");
        if is_of_data && matches!(args, [_, Expr::Word(buffer), len, ..] if buffer == "NULL" && integer(len) != Some(0))
        {
            return Attempt::failed("EFAULT");
        }
        let attempt = match call.name.as_str() {
            "socket" => self.socket(args, &call.result),
            "bind" => self.bind(args),
            "listen" => self.listen(args),
            "accept" | "accept4" => self.accept(args, &call.result),
            "connect" => self.connect(args, progress),
            "read" | "recv" | "recvfrom" | "readv" | "recvmsg" => self.receive_call(&call.name, args, progress),
            "write" | "send" | "sendto" | "writev" | "sendmsg" => self.send_call(&call.name, args, progress),
            "close" => self.close(args),
            "shutdown" => self.shutdown(args),
            "fcntl" => self.fcntl(args),
            "ioctl" => self.ioctl(args),
            "poll" => self.poll(args, progress),
            "setsockopt" => self.setsockopt(args),
            "getsockopt" => self.getsockopt(args),
            name => Attempt::unsupported(format!("the system call {name}")),
        };
        self.settle();
        attempt
    }

    fn socket(&mut self, args: &[Expr], result: &Expr) -> Attempt {
        let [_, kind, ..] = args else { return Attempt::malformed() };
        let kind = integer(kind).unwrap_or(1);
        if kind & 0xf != 1 {
            return Attempt::unsupported("a socket that is not TCP's");
        }
        let Some(fd) = integer(result).filter(|&fd| fd >= 0) else {
            return Attempt::unsupported("a socket that cannot be made");
        };
        self.sockets.insert(fd, Socket::new(kind & NONBLOCK != 0));
        Attempt::done(fd)
    }

    fn bind(&mut self, args: &[Expr]) -> Attempt {
        let Some(socket) = args.first().and_then(integer).and_then(|fd| self.sockets.get_mut(&fd)) else {
            return Attempt::failed("EBADF");
        };
        match &mut socket.role {
            Role::Fresh { port } if port.is_none() => {
                *port = Some(LOCAL_PORT);
                Attempt::done(0)
            }
            _ => Attempt::failed("EINVAL"),
        }
    }

    fn listen(&mut self, args: &[Expr]) -> Attempt {
        let Some(fd) = args.first().and_then(integer) else { return Attempt::malformed() };
        let Some(socket) = self.sockets.get(&fd) else { return Attempt::failed("EBADF") };
        let port = match socket.role {
            Role::Fresh { port } => port.unwrap_or(LOCAL_PORT),
            Role::Listener { .. } => return Attempt::done(0),
            Role::Connection(_) => return Attempt::failed("EINVAL"),
        };
        let config = match self.config_for(socket) {
            Ok(config) => config,
            Err(reason) => return Attempt::Unsupported(reason),
        };
        if !self.relisten(port, config) {
            return Attempt::failed("EADDRINUSE");
        }
        if let Some(socket) = self.sockets.get_mut(&fd) {
            socket.role = Role::Listener { port, queue: VecDeque::new() };
        }
        Attempt::done(0)
    }

    pub(super) fn relisten(&mut self, port: u16, config: Arc<Config>) -> bool {
        // Scripts do not fill the accept queue.
        self.endpoint.listen(port, config, 128).is_ok()
    }

    fn accept(&mut self, args: &[Expr], result: &Expr) -> Attempt {
        let Some(socket) = args.first().and_then(integer).and_then(|fd| self.sockets.get_mut(&fd)) else {
            return Attempt::failed("EBADF");
        };
        let nonblocking = socket.nonblocking;
        let options = socket.options.clone();
        let Role::Listener { queue, .. } = &mut socket.role else { return Attempt::failed("EINVAL") };
        let Some(id) = queue.pop_front() else {
            return if nonblocking { Attempt::failed("EAGAIN") } else { Attempt::Blocks };
        };
        let Some(fd) = integer(result).filter(|&fd| fd >= 0) else {
            return Attempt::Done(Returned { mismatch: Some("a connection".to_owned()), ..Returned::value(3) });
        };
        self.endpoint.connection_mut(id).into_iter().for_each(|connection| connection.set_queued(false));
        let flags = args.get(3).and_then(integer).unwrap_or(0);
        let mut accepted = Socket::accepted(id, options, flags & NONBLOCK != 0);
        accepted.peer_closed = self
            .endpoint
            .connection(id)
            .is_some_and(|connection| is_at_end(connection) && connection.state() != State::Closed);
        self.sockets.insert(fd, accepted);
        Attempt::done(fd)
    }

    fn connect(&mut self, args: &[Expr], progress: &mut Progress) -> Attempt {
        let Some(fd) = args.first().and_then(integer) else { return Attempt::malformed() };
        let Some(socket) = self.sockets.get(&fd) else { return Attempt::failed("EBADF") };
        match socket.role {
            Role::Listener { .. } => Attempt::failed("EISCONN"),
            Role::Connection(id) if is_unspecified(args) => self.disconnect(fd, id),
            Role::Connection(id) => self.connect_again(fd, id, progress),
            Role::Fresh { .. } if socket.put_off => Attempt::failed("EISCONN"),
            Role::Fresh { .. } => {
                let config = match self.config_for(socket) {
                    Ok(config) => config,
                    Err(reason) => return Attempt::Unsupported(reason),
                };
                let (nonblocking, asks) = (socket.nonblocking, socket.options.fast_open_connect);
                if let Some(attempt) = self.put_off_connecting(fd, &config) {
                    return attempt;
                }
                if let Err(errno) = self.open(fd, config, asks.then(bytes::Bytes::new)) {
                    return Attempt::failed(errno);
                }
                progress.started = true;
                if nonblocking { Attempt::failed("EINPROGRESS") } else { Attempt::Blocks }
            }
        }
    }

    /// `connect` to an address of the family AF_UNSPEC aborts a connection; the socket can connect again.
    fn disconnect(&mut self, fd: i64, id: ConnectionId) -> Attempt {
        self.endpoint.connection_mut(id).into_iter().for_each(holdover_tcp::Connection::abort);
        self.settle();
        if let Some(socket) = self.sockets.get_mut(&fd) {
            socket.role = Role::Fresh { port: None };
            socket.error_told = false;
            socket.connecting = false;
        }
        Attempt::done(0)
    }

    fn connect_again(&mut self, fd: i64, id: ConnectionId, progress: &Progress) -> Attempt {
        let state = self.endpoint.connection(id).map(holdover_tcp::Connection::state);
        let Some(socket) = self.sockets.get_mut(&fd) else { return Attempt::failed("EBADF") };
        let (nonblocking, connecting) = (socket.nonblocking, socket.connecting);
        match state {
            Some(State::SynSent | State::SynReceived) if progress.started || !nonblocking => Attempt::Blocks,
            Some(State::SynSent | State::SynReceived) => Attempt::failed("EALREADY"),
            Some(State::Closed) | None => {
                let errno = self.take_error(fd).unwrap_or("ECONNABORTED");
                // The socket can connect again.
                if let Some(socket) = self.sockets.get_mut(&fd) {
                    socket.role = Role::Fresh { port: None };
                    socket.error_told = false;
                    socket.connecting = false;
                }
                Attempt::failed(errno)
            }
            Some(_) if connecting => {
                socket.connecting = false;
                Attempt::done(0)
            }
            Some(_) => Attempt::failed("EISCONN"),
        }
    }

    fn close(&mut self, args: &[Expr]) -> Attempt {
        let Some(socket) = args.first().and_then(integer).and_then(|fd| self.sockets.remove(&fd)) else {
            return Attempt::failed("EBADF");
        };
        let now = self.now;
        match socket.role {
            Role::Fresh { .. } => {}
            Role::Listener { port, queue } => {
                self.endpoint.unlisten(port);
                // Handshakes end with their listener; a peer gets a reset when it sends something.
                for id in self.half_open(port) {
                    self.endpoint.withdraw(id);
                }
                for id in queue {
                    self.endpoint.connection_mut(id).into_iter().for_each(holdover_tcp::Connection::abort);
                }
            }
            Role::Connection(id) => {
                if let Some(connection) = self.endpoint.connection_mut(id) {
                    connection.set_cork(false);
                    if socket.options.linger == Some(0) { connection.abort() } else { connection.close(now) }
                }
            }
        }
        Attempt::done(0)
    }

    /// Connections in the handshake, which the listener's application does not see yet.
    fn half_open(&self, port: u16) -> Vec<ConnectionId> {
        let all = self.endpoint.connections().filter(|(_, connection)| {
            let is_at_port = connection.is_passive() && connection.local().port() == port;
            is_at_port && connection.state() == State::SynReceived && !connection.was_early()
        });
        all.map(|(id, _)| id).collect()
    }

    fn shutdown(&mut self, args: &[Expr]) -> Attempt {
        let [fd, how, ..] = args else { return Attempt::malformed() };
        let (Some(fd), Some(how)) = (integer(fd), integer(how)) else { return Attempt::malformed() };
        let Some(socket) = self.sockets.get_mut(&fd) else { return Attempt::failed("EBADF") };
        if !(0..=2).contains(&how) {
            return Attempt::failed("EINVAL");
        }
        let Role::Connection(id) = socket.role else { return Attempt::failed("ENOTCONN") };
        let Some(connection) = self.endpoint.connection_mut(id).filter(|connection| !connection.is_closed()) else {
            return Attempt::failed("ENOTCONN");
        };
        socket.read_shut |= how != 1;
        if how != 0 {
            socket.write_shut = true;
            connection.set_cork(false);
            connection.shutdown_write();
        }
        Attempt::done(0)
    }

    fn fcntl(&mut self, args: &[Expr]) -> Attempt {
        let [fd, command, rest @ ..] = args else { return Attempt::malformed() };
        let Some(socket) = integer(fd).and_then(|fd| self.sockets.get_mut(&fd)) else {
            return Attempt::failed("EBADF");
        };
        match (integer(command), rest) {
            (Some(3), _) => Attempt::done(O_RDWR | if socket.nonblocking { NONBLOCK } else { 0 }),
            (Some(4), [flags, ..]) => {
                socket.nonblocking = integer(flags).unwrap_or(0) & NONBLOCK != 0;
                Attempt::done(0)
            }
            _ => Attempt::malformed(),
        }
    }

    fn ioctl(&mut self, args: &[Expr]) -> Attempt {
        let [fd, request, value, ..] = args else { return Attempt::malformed() };
        let Some(socket) = integer(fd).and_then(|fd| self.sockets.get(&fd)) else { return Attempt::failed("EBADF") };
        let connection = socket.connection().and_then(|id| self.endpoint.connection(id));
        let actual = match (integer(request), connection) {
            (Some(0x541b), Some(connection)) => connection.readable_len(),
            (Some(0x5411), Some(connection)) => connection.send_queue_len(),
            (Some(0x894b), Some(connection)) => connection.unsent_len(),
            (Some(0x541b), None) => return Attempt::failed("EINVAL"),
            (_, None) => 0,
            _ => return Attempt::unsupported("this ioctl"),
        };
        let actual = actual as i64;
        let mismatch = integer(value).filter(|&wanted| wanted != actual).map(|_| format!("the value {actual}"));
        Attempt::Done(Returned { mismatch, ..Returned::value(0) })
    }

    /// The readiness of a socket, as `poll` reports it.
    pub(super) fn readiness(&self, socket: &Socket) -> i64 {
        const IN: i64 = 0x41;
        const OUT: i64 = 0x104;
        let id = match &socket.role {
            Role::Fresh { .. } if socket.put_off => return OUT,
            Role::Fresh { .. } => return OUT | 0x10,
            Role::Listener { queue, .. } => return if queue.is_empty() { 0 } else { IN },
            Role::Connection(id) => *id,
        };
        let Some(connection) = self.endpoint.connection(id) else { return 0x10 };
        let at_end = is_at_end(connection) || socket.read_shut;
        let mut ready = 0;
        if matches!(connection.state(), State::SynSent) {
            return 0;
        }
        if connection.readable_len() >= socket.options.receive_low_water.max(1) || at_end {
            ready |= IN;
        }
        if at_end {
            ready |= 0x2000;
        }
        if (at_end && socket.write_shut) || connection.is_closed() {
            ready |= 0x10;
        }
        if self.is_writable(socket, connection) || socket.write_shut || connection.is_closed() {
            ready |= OUT;
        }
        if socket.pending_error(connection).is_some() || self.soft_errors.contains_key(&id) {
            ready |= 8;
        }
        ready
    }

    fn poll(&mut self, args: &[Expr], progress: &mut Progress) -> Attempt {
        let [Expr::List(entries), _, timeout, ..] = args else { return Attempt::malformed() };
        let mut ready = 0;
        let mut mismatch = None;
        for entry in entries {
            let number = |name| entry.field(name).and_then(integer);
            let (Some(fd), Some(events)) = (number("fd"), number("events")) else { return Attempt::malformed() };
            let state = self.sockets.get(&fd).map_or(0x20, |socket| self.readiness(socket) & (events | 0x18));
            ready += i64::from(state != 0);
            if state != number("revents").unwrap_or(0) {
                mismatch = Some(format!("revents {state:#x} of {fd}"));
            }
        }
        let waits = integer(timeout).unwrap_or(0);
        if ready == 0 && waits != 0 {
            let until = *progress.until.get_or_insert(self.now + wait_of(waits));
            if self.now < until {
                return Attempt::Blocks;
            }
        }
        Attempt::Done(Returned { mismatch, ..Returned::value(ready) })
    }

    /// Takes the error returned by the next call of any kind.
    pub(super) fn take_error(&mut self, fd: i64) -> Option<&'static str> {
        let socket = self.sockets.get_mut(&fd)?;
        let id = socket.connection()?;
        let connection = self.endpoint.connection(id)?;
        let soft = self.soft_errors.get(&id).copied();
        let error = match socket.pending_error(connection)? {
            // A timed-out connection reports the soft error of its path (`sk_err_soft`).
            "ETIMEDOUT" => soft.unwrap_or("ETIMEDOUT"),
            "ECONNREFUSED" => soft.unwrap_or("ECONNREFUSED"),
            error => error,
        };
        socket.error_told = true;
        Some(error)
    }
}

fn wait_of(millis: i64) -> holdover_base::Duration {
    if millis < 0 {
        Kernel::PATIENCE
    } else {
        holdover_base::Duration::from_millis(millis as u64).min(Kernel::PATIENCE)
    }
}

/// The total bytes of the buffers of `iovec`s.
pub(super) fn iovec_bytes(buffers: &[Expr]) -> Option<usize> {
    let length = |buffer: &Expr| match buffer {
        Expr::Struct(fields) => fields.last().and_then(|Field { value, .. }| integer(value)),
        _ => None,
    };
    let mut sum = 0_usize;
    for buffer in buffers {
        sum = sum.checked_add(usize::try_from(length(buffer)?).ok()?)?;
    }
    Some(sum)
}

/// Whether a call of `connect` names no address.
fn is_unspecified(args: &[Expr]) -> bool {
    matches!(args.get(1), Some(Expr::Word(family)) if family == "AF_UNSPEC")
}
