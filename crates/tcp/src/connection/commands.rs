//! Commands of the application: write, read, close, abort.

use bytes::Bytes;
use holdover_base::Instant;

use super::Connection;
use super::fields::Pending;
use crate::counters::Reason;
use crate::state::{ConnectionError, State};
use crate::timers::Timer;

impl Connection {
    /// Queues data to be sent (SEND, RFC 9293 section 3.10.2) and returns how many bytes were taken: none once the send
    /// buffer is full, or when the connection cannot send any more.
    pub fn write(&mut self, now: Instant, data: Bytes) -> usize {
        let room = self.write_room();
        let len = self.enqueue(now, data, room);
        self.snd.more_follows = false;
        self.snd.pushed = true;
        len
    }

    /// As [`Self::write`], but more data is about to follow (`MSG_MORE`): less than a full segment waits for it, until an ACK
    /// arrives or, with nothing outstanding, for one retransmission timeout.
    pub fn write_more(&mut self, now: Instant, data: Bytes) -> usize {
        let room = self.write_room();
        let len = self.enqueue(now, data, room);
        self.snd.more_follows = true;
        self.snd.pushed = false;
        len
    }

    /// Ends a record after the last write (Linux `MSG_EOR`): no segment has data from both sides of its end, and the last one of the record
    /// has PSH.
    pub fn end_record(&mut self) {
        self.unsent.end_record();
    }

    /// As [`Self::write`], also beyond the buffer's size: Linux fills the packet that it has begun. Returns 0 if the connection cannot
    /// send any more, else the length of `data`.
    pub fn write_beyond_buffer(&mut self, now: Instant, data: Bytes) -> usize {
        let len = self.enqueue(now, data, usize::MAX);
        self.snd.more_follows = false;
        self.snd.pushed = true;
        len
    }

    /// The application waits for room in the buffer (Linux `SOCK_NOSPACE`).
    pub fn note_full_buffer(&mut self) {
        self.snd.buffer_was_full = true;
    }

    /// The last write is to be followed by more (`MSG_MORE`), as with [`Self::write_more`].
    pub fn expect_more(&mut self) {
        self.snd.more_follows = true;
        self.snd.pushed = false;
    }

    fn enqueue(&mut self, now: Instant, mut data: Bytes, room: usize) -> usize {
        let may_write =
            matches!(self.state, State::SynSent | State::SynReceived | State::Established | State::CloseWait);
        if !may_write || self.snd.closing {
            return 0;
        }
        data.truncate(room);
        let len = data.len();
        self.snd.buffer_was_full |= len == room;
        if len > 0 {
            self.before_sending_after_idle(now);
            self.note_application_limit();
            self.unsent.push(data);
            self.push_pending = true;
        }
        len
    }

    /// Declares everything written so far urgent (RFC 9293 section 3.8.5; RFC 6093 asks new applications not to).
    pub fn mark_urgent(&mut self) {
        let end = self.snd.nxt + self.unsent.len() as u32;
        if end != self.snd.una {
            self.snd.urgent = Some(end);
        }
    }

    /// Takes the next chunk of data in order (RECEIVE, RFC 9293 section 3.10.3).
    #[inline]
    pub fn read(&mut self, now: Instant) -> Option<Bytes> {
        let chunk = self.received.read()?;
        self.after_read(now, chunk.len() as u32);
        Some(chunk)
    }

    /// Takes data in order as [`Self::read`] does, but at most `len` bytes of it: for readers with a buffer of their own.
    pub fn read_at_most(&mut self, now: Instant, len: usize) -> Option<Bytes> {
        if len == 0 {
            return None;
        }
        let chunk = self.received.read_at_most(len)?;
        self.after_read(now, chunk.len() as u32);
        Some(chunk)
    }

    /// Holds back data that does not fill a segment (`TCP_CORK`), or releases it. Held data is sent when the stream is closed, or after one
    /// retransmission timeout with nothing outstanding.
    pub fn set_cork(&mut self, corked: bool) {
        self.snd.corked = corked;
        self.snd.more_follows &= corked;
    }

    /// Ends the delay of ACKs that begins when the application answers, and sends a pending ACK if all data was read; or begins the delay
    /// (Linux `TCP_QUICKACK`).
    pub fn set_quick_ack(&mut self, on: bool) {
        self.ack.interactive = !on;
        let is_delayed = self.timers.is_armed(Timer::DelayedAck);
        let unacked = self.rcv.nxt.saturating_since(self.rcv.last_ack_sent);
        let is_ready = unacked > self.rcv.mss || self.received.readable_len() == 0;
        if on && is_delayed && is_ready && matches!(self.state, State::Established | State::CloseWait) {
            self.ack_now(Reason::Ack);
        }
    }

    /// Closes the sending side: a FIN follows the written data (CLOSE, RFC 9293 section 3.10.4). Reading remains possible.
    pub fn shutdown_write(&mut self) {
        match self.state {
            State::Closed => {}
            State::SynSent if self.unsent.is_empty() => self.end(None),
            _ => self.snd.closing = true,
        }
    }

    /// Closes both sides: as [`Self::shutdown_write`], and the application reads no more. Data that was not read, or that
    /// arrives from now on, is answered by a reset (RFC 9293 section 3.6.1).
    pub fn close(&mut self, now: Instant) {
        self.rcv.reader_gone = true;
        if self.received.readable_len() > 0 && self.state != State::Closed {
            self.received.discard_all();
            self.abort();
            return;
        }
        self.shutdown_write();
        if self.state == State::FinWait2 {
            self.timers.arm(now, Timer::FinWait2, self.config.limits.fin_wait_2);
        }
    }

    /// Resets the connection at once (ABORT, RFC 9293 section 3.10.5).
    pub fn abort(&mut self) {
        let reset = matches!(
            self.state,
            State::SynReceived | State::Established | State::FinWait1 | State::FinWait2 | State::CloseWait
        );
        if self.state != State::Closed {
            self.end(Some(ConnectionError::Aborted));
            self.pending.set(Pending::RESET, reset);
        }
    }
}
