//! A split connection: two sockets, and the bytes that go from one to the other by `splice(2)`.
//!
//! In each direction, the receive buffer of one socket, a pipe, and the send buffer of the other socket bound the bytes in flight. A pipe
//! is taken from the [`Pipes`] when there is something to move, and returned when it is empty.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdover_wire::{TcpInfo, TcpState};
use socket2::Socket;

use super::sockets::{is_at_urgent, splice, tcp_info};

/// Empty pipes. All have the default size of the kernel, 64 kB.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    spare: Vec<Pipe>,
}

type Pipe = (PipeReader, PipeWriter);

/// Spare pipes that are kept open.
const MOST_SPARE: usize = 64;

impl Pipes {
    fn take(&mut self) -> io::Result<Pipe> {
        self.spare.pop().map_or_else(io::pipe, Ok)
    }

    fn put_back(&mut self, pipe: Pipe) {
        if self.spare.len() < MOST_SPARE {
            self.spare.push(pipe);
        }
    }
}

/// A split connection.
#[derive(Debug)]
pub(super) struct Splice {
    /// The socket of the end that has opened the connection.
    pub(super) client: Socket,
    /// The other end's.
    pub(super) server: Socket,
    to_server: Way,
    to_client: Way,
}

/// A direction.
#[derive(Debug, Default)]
struct Way {
    pipe: Option<Pipe>,
    /// Bytes in the pipe.
    held: usize,
    /// An urgent byte, to be sent after those in the pipe.
    urgent: Option<u8>,
    /// Whether urgent data was announced.
    expects_urgent: bool,
    can_read: bool,
    can_write: bool,
    /// The sender has closed its half.
    has_ended: bool,
    /// The receiver's socket is closed for sending.
    is_over: bool,
    /// When the receiver was first seen with something to acknowledge.
    outstanding_since: Option<Instant>,
}

/// Which socket of a [`Splice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SpliceEnd {
    Client,
    Server,
}

/// Events of `epoll(7)` on a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ready {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) urgent: bool,
}

/// The state of a connection after its splice has run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// It waits for events.
    Waits,
    /// There is more to move: others come first.
    HasMore,
    /// Both halves are closed.
    Over,
}

/// Bytes moved for one connection before others have their turn.
const TURN: usize = 1 << 20;

/// The most bytes of one `splice`: as much as a pipe holds.
const PIPE_LEN: usize = 1 << 16;

impl Splice {
    /// Two sockets that are connected.
    pub(super) fn new(client: Socket, server: Socket) -> Self {
        let way = || Way { can_read: true, can_write: true, ..Way::default() };
        Self { client, server, to_server: way(), to_client: way() }
    }

    /// Notes events of a socket.
    pub(super) fn note(&mut self, end: SpliceEnd, ready: Ready) {
        let (from, to) = match end {
            SpliceEnd::Client => (&mut self.to_server, &mut self.to_client),
            SpliceEnd::Server => (&mut self.to_client, &mut self.to_server),
        };
        from.can_read |= ready.read || ready.urgent;
        from.expects_urgent |= ready.urgent;
        to.can_write |= ready.write;
    }

    /// Moves bytes in both directions, and counts them: to the server, and to the client.
    ///
    /// # Errors
    /// An end has reset the connection, or is gone.
    pub(super) fn advance(&mut self, pipes: &mut Pipes, counted: [&AtomicU64; 2]) -> io::Result<Progress> {
        let Self { client, server, to_server, to_client } = self;
        let [up, down] = counted;
        let mut has_more = false;
        for (way, from, to, counter) in [(to_server, &*client, &*server, up), (to_client, server, client, down)] {
            has_more |= way.advance(from, to, pipes, counter)?;
        }
        Ok(match (self.to_server.is_over && self.to_client.is_over, has_more) {
            (true, _) => Progress::Over,
            (_, true) => Progress::HasMore,
            _ => Progress::Waits,
        })
    }

    /// Whether both ends have acknowledged everything, or have reset the connection.
    pub(super) fn is_delivered(&self) -> bool {
        [&self.client, &self.server].into_iter().all(|socket| match tcp_info(socket) {
            Ok(info) => info.tcpi_state == TcpState::Closed || !has_outstanding(&info),
            Err(_) => true,
        })
    }

    /// Whether an end has not answered for some time, although it had something to acknowledge.
    pub(super) fn is_unanswered(&mut self, now: Instant, user_timeout: Duration) -> bool {
        let sides = [(&self.client, &mut self.to_client), (&self.server, &mut self.to_server)];
        sides.into_iter().any(|(socket, way)| {
            // Bytes that a shut window keeps here do not count: the kernel probes it, sometimes at intervals longer than the user timeout.
            let info = tcp_info(socket).ok().filter(|info| info.tcpi_unacked > 0 || info.tcpi_probes > 0);
            let Some(info) = info else {
                way.outstanding_since = None;
                return false;
            };
            let since = *way.outstanding_since.get_or_insert(now);
            let silent = info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv).as_nanos();
            now.duration_since(since).min(Duration::from_nanos(silent)) >= user_timeout
        })
    }

    /// Closes both sockets, which are delivered.
    pub(super) fn finish(self) {
        for socket in [&self.client, &self.server] {
            // It fails for a closed socket only.
            let _ = socket.set_linger(None::<Duration>);
        }
    }
}

/// Whether an end has yet to acknowledge something, a FIN included.
fn has_outstanding(info: &TcpInfo) -> bool {
    info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0
}

impl Way {
    /// Returns whether there is more to do now.
    fn advance(&mut self, from: &Socket, to: &Socket, pipes: &mut Pipes, counter: &AtomicU64) -> io::Result<bool> {
        let mut moved = 0;
        while !self.is_over {
            if moved >= TURN {
                return Ok(true);
            }
            let is_clear = self.write(to, counter)?;
            if !is_clear || self.is_over {
                break;
            }
            moved += self.read(from, pipes)?;
            if self.held == 0 && !self.can_read && !self.has_ended {
                break;
            }
        }
        if self.held == 0
            && let Some(pipe) = self.pipe.take()
        {
            pipes.put_back(pipe);
        }
        Ok(false)
    }

    /// Sends the bytes in the pipe. Returns whether none are left.
    fn write(&mut self, to: &Socket, counter: &AtomicU64) -> io::Result<bool> {
        while let Some((reader, _)) = self.pipe.as_ref().filter(|_| self.held > 0) {
            let Some(sent) = unless_blocked(splice(reader, to, self.held))? else {
                self.can_write = false;
                return Ok(false);
            };
            self.held -= sent;
            counter.fetch_add(sent as u64, Ordering::Relaxed);
        }
        if let Some(urgent) = self.urgent {
            if unless_blocked(to.send_with_flags(&[urgent], libc::MSG_OOB | libc::MSG_NOSIGNAL))?.is_none() {
                self.can_write = false;
                return Ok(false);
            }
            self.urgent = None;
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if self.has_ended {
            match to.shutdown(std::net::Shutdown::Write) {
                Err(error) if error.kind() != io::ErrorKind::NotConnected => return Err(error),
                _ => self.is_over = true,
            }
        }
        Ok(true)
    }

    /// Reads into the pipe, which is empty.
    fn read(&mut self, from: &Socket, pipes: &mut Pipes) -> io::Result<usize> {
        if self.has_ended || !self.can_read {
            return Ok(0);
        }
        let pipe = match self.pipe.take() {
            Some(pipe) => pipe,
            None => pipes.take()?,
        };
        let (_, writer) = self.pipe.insert(pipe);
        if !self.expects_urgent {
            match unless_blocked(splice(from, writer, PIPE_LEN))? {
                Some(0) if !is_at_urgent(from.as_fd()) => self.has_ended = true,
                Some(0) => self.expects_urgent = true,
                Some(read) => self.held = read,
                None => self.can_read = false,
            }
            return Ok(self.held);
        }
        self.read_urgent(from)
    }

    /// `splice` does not pass the urgent byte: it is read by itself, and sent on as urgent data.
    fn read_urgent(&mut self, from: &Socket) -> io::Result<usize> {
        let mut buffer = [0; 4096];
        let is_next = is_at_urgent(from.as_fd());
        let most = if is_next { 1 } else { buffer.len() };
        match unless_blocked((&*from).read(&mut buffer[..most]))? {
            None => self.can_read = false,
            Some(0) => self.has_ended = true,
            Some(_) if is_next => {
                self.urgent = Some(buffer[0]);
                self.expects_urgent = false;
            }
            Some(read) => {
                let Some((_, writer)) = &mut self.pipe else { return Ok(0) };
                // The pipe is empty, and holds more.
                writer.write_all(&buffer[..read])?;
                self.held = read;
            }
        }
        Ok(self.held)
    }
}

/// `None` if the call would have to wait.
fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(moved) => Ok(Some(moved)),
        Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
