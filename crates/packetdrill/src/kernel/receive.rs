//! Calls that receive.

use holdover_tcp::State;

use super::Kernel;
use super::attempt::{Attempt, Progress, Returned};
use super::call::iovec_bytes;
use super::socket::{Role, is_at_end};
use crate::ast::Expr;
use crate::constants::integer;

const MSG_PEEK: i64 = 2;
const MSG_DONTWAIT: i64 = 0x40;
const MSG_WAITALL: i64 = 0x100;

impl Kernel {
    pub(super) fn receive_call(&mut self, name: &str, args: &[Expr], progress: &mut Progress) -> Attempt {
        let Some((fd, len, flags)) = received(name, args) else { return Attempt::malformed() };
        let Some(socket) = self.sockets.get(&fd) else { return Attempt::failed("EBADF") };
        let waits = !socket.nonblocking && flags & MSG_DONTWAIT == 0;
        let read_shut = socket.read_shut;
        let low_water = socket.options.receive_low_water.max(1);
        let Role::Connection(id) = socket.role else {
            return Attempt::failed(if socket.put_off { "EAGAIN" } else { "ENOTCONN" });
        };
        let now = self.now;
        let Some(connection) = self.endpoint.connection_mut(id) else { return Attempt::done(0) };
        let is_open = !matches!(connection.state(), State::SynSent | State::SynReceived) || connection.was_early();
        if !is_open && waits {
            return Attempt::Blocks;
        }
        let wanted = len - progress.bytes.min(len);
        if flags & MSG_PEEK != 0 {
            progress.bytes = connection.readable_len().min(len);
        } else {
            let mut left = wanted;
            while let Some(chunk) = connection.read_at_most(now, left).filter(|chunk| !chunk.is_empty()) {
                left -= chunk.len();
                progress.bytes += chunk.len();
            }
        }
        let at_end = is_at_end(connection) || read_shut;
        let wanted = if flags & MSG_WAITALL != 0 { len } else { low_water.min(len) };
        if progress.bytes >= wanted || ((at_end || !waits) && progress.bytes > 0) {
            return self.bytes_read(fd, args, progress.bytes);
        }
        if let Some(errno) = self.take_error(fd) {
            return Attempt::failed(errno);
        }
        match (at_end && is_open, waits) {
            (true, _) => self.bytes_read(fd, args, 0),
            (false, true) => Attempt::Blocks,
            (false, false) => Attempt::failed("EAGAIN"),
        }
    }

    /// The bytes read and, with `TCP_INQ`, the bytes still unread (`TCP_CM_INQ`).
    fn bytes_read(&self, fd: i64, args: &[Expr], bytes: usize) -> Attempt {
        let mut returned = Returned::value(bytes as i64);
        let control = args.get(1).and_then(|message| message.field("msg_control")).and_then(Expr::list).unwrap_or(&[]);
        let socket = self.sockets.get(&fd);
        let connection = socket.and_then(|socket| socket.connection()).and_then(|id| self.endpoint.connection(id));
        if let (Some(socket), Some(connection)) = (socket, connection)
            && socket.options.tell_queue
        {
            // Linux `tcp_inq`: an unread end of the stream counts as a byte.
            let left = connection.readable_len();
            let hint = if left == 0 && is_at_end(connection) { 1 } else { left } as i64;
            let expected = control.iter().find_map(|message| message.field("cmsg_data")).and_then(integer);
            if let Some(expected) = expected.filter(|&expected| expected != hint) {
                returned.mismatch = Some(format!("TCP_CM_INQ {hint}, not {expected}"));
            }
        } else if !control.is_empty() {
            returned.mismatch = Some("no control message".to_owned());
        }
        Attempt::Done(returned)
    }
}

/// Descriptor, bytes and flags of a call.
fn received(name: &str, args: &[Expr]) -> Option<(i64, usize, i64)> {
    let fd = args.first().and_then(integer)?;
    let number = |index: usize| args.get(index).and_then(integer);
    let len = |index: usize| number(index).and_then(|len| usize::try_from(len).ok());
    Some(match name {
        "read" => (fd, len(2)?, 0),
        "recv" | "recvfrom" => (fd, len(2)?, number(3)?),
        "readv" => (fd, iovec_bytes(args.get(1)?.list()?)?, 0),
        "recvmsg" => (fd, iovec_bytes(args.get(1)?.field("msg_iov")?.list()?)?, number(2)?),
        _ => return None,
    })
}
