//! Calls that send.

use bytes::Bytes;
use holdover_tcp::{Connection, ConnectionId, State};

use super::Kernel;
use super::attempt::{Attempt, Progress};
use super::call::iovec_bytes;
use super::send_buffers::Filled;
use super::socket::{Role, Socket};
use crate::ast::{Call, Expr};
use crate::constants::integer;

/// The data sent by scripts.
static ZEROS: [u8; 65_536] = [0; 65_536];

const MSG_DONTWAIT: i64 = 0x40;
const MSG_EOR: i64 = 0x80;
const MSG_MORE: i64 = 0x8000;
const MSG_FASTOPEN: i64 = 0x2000_0000;
/// The limit of a single write, beyond that of any real script.
const MAX_WRITE: usize = 1 << 30;

impl Kernel {
    pub(super) fn send_call(&mut self, name: &str, args: &[Expr], progress: &mut Progress) -> Attempt {
        let Some((fd, len, flags)) = sent(name, args) else { return Attempt::malformed() };
        if len > MAX_WRITE {
            return Attempt::unsupported("a write of more than a gigabyte");
        }
        let Some(socket) = self.sockets.get(&fd) else { return Attempt::failed("EBADF") };
        let waits = !socket.nonblocking && flags & MSG_DONTWAIT == 0;
        let with_syn = flags & MSG_FASTOPEN != 0;
        if with_syn && matches!(args.get(4), Some(Expr::Word(family)) if family == "AF_UNSPEC") {
            return Attempt::failed("EOPNOTSUPP");
        }
        let id = match socket.role {
            Role::Connection(id) => id,
            Role::Fresh { .. } if with_syn || socket.put_off => {
                return self.send_with_syn(fd, len, waits, progress);
            }
            _ => return Attempt::failed("EPIPE"),
        };
        let write_shut = socket.write_shut;
        let more = flags & MSG_MORE != 0;
        let cork = socket.options.cork;
        let unsent_limit = self.unsent_limit(socket);
        let Some(connection) = self.endpoint.connection_mut(id) else { return Attempt::failed("EPIPE") };
        match connection.state() {
            State::SynSent if with_syn && !progress.started => return Attempt::failed("EALREADY"),
            State::SynReceived if connection.was_early() && !write_shut => {}
            State::SynSent | State::SynReceived => {
                return if waits { Attempt::Blocks } else { Attempt::failed("EAGAIN") };
            }
            State::Established | State::CloseWait if !write_shut => {}
            // Returns a partial count, except for a connecting send, whose SYN data is lost.
            _ if progress.bytes > 0 && !progress.started => return Attempt::done(progress.bytes as i64),
            _ => return Attempt::failed(self.take_error(fd).unwrap_or("EPIPE")),
        }
        if cork {
            connection.set_cork(true);
        }
        if progress.bytes == 0
            && let (Some(buffers), Some(connection)) = (self.send_buffers.get_mut(&id), self.endpoint.connection(id))
        {
            buffers.resume(connection);
        }
        let may_go_on = progress.bytes == 0 || self.is_room_worth_waking_for(id);
        while may_go_on && progress.bytes < len {
            let taken = self.write_some(id, len - progress.bytes, unsent_limit, more);
            if taken == 0 {
                break;
            }
            progress.bytes += taken;
        }
        if progress.bytes > 0
            && !more
            && let Some(buffers) = self.send_buffers.get_mut(&id)
        {
            buffers.note_push();
        }
        if flags & MSG_EOR != 0
            && progress.bytes == len
            && let Some(connection) = self.endpoint.connection_mut(id)
        {
            connection.end_record();
        }
        if progress.bytes < len
            && let Some(connection) = self.endpoint.connection_mut(id)
        {
            connection.note_full_buffer();
        }
        match progress.bytes {
            bytes if bytes == len => Attempt::done(len as i64),
            _ if waits => Attempt::Blocks,
            0 => Attempt::failed("EAGAIN"),
            bytes => Attempt::done(bytes as i64),
        }
    }

    /// Writes at most one packet's worth as Linux fills it.
    pub(super) fn write_some(&mut self, id: ConnectionId, len: usize, unsent_limit: usize, more: bool) -> usize {
        self.steps += 1;
        if self.is_exhausted() {
            return 0;
        }
        let now = self.now;
        let Some(connection) = self.endpoint.connection_mut(id) else { return 0 };
        let buffers = self.send_buffers.entry(id).or_default();
        let room = match buffers.room(connection) {
            Some(room) => room,
            None if connection.unsent_len() >= unsent_limit || connection.write_room() == 0 => return 0,
            None => buffers.begin(connection),
        };
        let wanted = len.min(room);
        let taken = connection.write_beyond_buffer(now, zeros(wanted));
        if more {
            connection.expect_more();
        }
        let filled = buffers.add(connection, taken);
        let burst = (connection.cwnd() / 2).max(1).min(connection.burst_segments(self.settings.least_burst));
        match filled {
            Filled::Pushed if taken < len => self.settle(),
            Filled::Head if taken < len => {
                self.transmit(burst as usize);
            }
            _ => {}
        }
        taken
    }

    /// The limit of unsent bytes above which a socket is not writable.
    fn unsent_limit(&self, socket: &Socket) -> usize {
        socket.options.notsent_lowat.filter(|&bytes| bytes > 0).unwrap_or(self.settings.notsent_lowat) as usize
    }

    /// A waiting writer is woken once a third of the buffer is free (Linux `sk_stream_is_writeable`).
    fn is_room_worth_waking_for(&self, id: ConnectionId) -> bool {
        self.endpoint.connection(id).is_some_and(has_room)
    }

    /// Whether `poll` reports a connection as writable: a third of the buffer is free, and few bytes are unsent.
    pub(super) fn is_writable(&self, socket: &Socket, connection: &Connection) -> bool {
        let may_write = matches!(connection.state(), State::Established | State::CloseWait);
        // Linux `__tcp_stream_memory_free` wakes writers only below half the limit.
        let limit = self.unsent_limit(socket);
        let is_little = limit >= u32::MAX as usize || connection.unsent_len() < limit.div_ceil(2).max(1);
        may_write && has_room(connection) && connection.write_room() > 0 && is_little
    }
}

fn has_room(connection: &Connection) -> bool {
    connection.write_room() >= connection.send_queue_len() / 2
}

/// `len` zero bytes, or as many as fit into one write.
pub(super) fn zeros(len: usize) -> Bytes {
    Bytes::from_static(&ZEROS[..len.min(ZEROS.len())])
}

/// Whether a call also connects.
pub(crate) fn is_fast_open(call: &Call) -> bool {
    sent(&call.name, &call.args).is_some_and(|(_, _, flags)| flags & MSG_FASTOPEN != 0)
}

/// Descriptor, bytes and flags of a call.
fn sent(name: &str, args: &[Expr]) -> Option<(i64, usize, i64)> {
    let fd = args.first().and_then(integer)?;
    let number = |index: usize| args.get(index).and_then(integer);
    let len = |index: usize| number(index).and_then(|len| usize::try_from(len).ok());
    Some(match name {
        "write" => (fd, len(2)?, 0),
        "send" | "sendto" => (fd, len(2)?, number(3)?),
        "writev" => (fd, iovec_bytes(args.get(1)?.list()?)?, 0),
        "sendmsg" => (fd, iovec_bytes(args.get(1)?.field("msg_iov")?.list()?)?, number(2)?),
        _ => return None,
    })
}
