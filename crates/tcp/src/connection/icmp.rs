//! ICMP errors: what each does to a connection, from a smaller segment size to giving up. Soft errors (RFC 5461) end no connection.

use core::cmp::Ordering;

use holdover_base::Instant;
use holdover_wire::{Seq, Unreachable};

use super::{Connection, Event};
use crate::config::RetryLimit;
use crate::recovery::RecoveryState;
use crate::state::{ConnectionError, State};

/// The effect of an ICMP error on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpEffect {
    /// It quotes nothing outstanding, or is irrelevant here.
    Ignored,
    /// It was noted as a condition that may pass (RFC 9293 section 3.9.2.2).
    SoftError,
    /// One doubling of the retransmission timeout was taken back (RFC 6069).
    BackoffReverted,
    /// Segments are sent smaller from now on (RFC 1191, RFC 8201).
    SmallerSegments,
    /// The attempt to connect was given up.
    Aborted,
}

impl Connection {
    /// Takes an ICMP error that quotes a segment of this connection with sequence number `quoted`, in a packet as long as the largest now.
    pub fn handle_icmp(&mut self, now: Instant, kind: Unreachable, quoted: Seq) -> IcmpEffect {
        self.handle_icmp_about(now, kind, quoted, self.largest_packet())
    }

    /// As [`Self::handle_icmp`], of a packet whose IP header states a length of `packet_len` bytes.
    pub fn handle_icmp_about(&mut self, now: Instant, kind: Unreachable, quoted: Seq, packet_len: u32) -> IcmpEffect {
        if !self.may_be_quoted(quoted) {
            return IcmpEffect::Ignored;
        }
        match kind {
            // For mechanisms; TCP by itself knows no such message.
            Unreachable::BadState => IcmpEffect::Ignored,
            Unreachable::PacketTooBig { mtu } => self.shrink_to_mtu(mtu, packet_len),
            Unreachable::Network | Unreachable::Host
                if self.config.limits.unreachable_ends_connecting && self.is_connecting() =>
            {
                self.end(Some(ConnectionError::Unreachable));
                IcmpEffect::Aborted
            }
            Unreachable::Network | Unreachable::Host | Unreachable::TimeExceeded { .. } => {
                if kind != (Unreachable::TimeExceeded { code: 0 }) && self.revert_backoff(now, quoted) {
                    return IcmpEffect::BackoffReverted;
                }
                self.events.insert(Event::SoftError);
                IcmpEffect::SoftError
            }
            // RFC 1122 section 4.2.3.9: hard errors, but RFC 5461 shows why only a connection attempt should believe them.
            Unreachable::Protocol | Unreachable::Port | Unreachable::AdministrativelyProhibited => {
                if self.is_connecting() {
                    self.end(Some(ConnectionError::Unreachable));
                    return IcmpEffect::Aborted;
                }
                self.events.insert(Event::SoftError);
                IcmpEffect::SoftError
            }
            Unreachable::Other { .. } | Unreachable::ParameterProblem { .. } => {
                self.events.insert(Event::SoftError);
                IcmpEffect::SoftError
            }
        }
    }

    /// Whether an ICMP error that quotes sequence number `quoted` can be about this connection: only outstanding data can have caused it
    /// (RFC 5927 section 4.1), and with [`crate::LimitConfig::icmp_may_quote_next`] also an ACK without data.
    pub fn may_be_quoted(&self, quoted: Seq) -> bool {
        let is_next = quoted == self.snd.nxt && self.config.limits.icmp_may_quote_next;
        self.state != State::Closed && quoted.ge(self.snd.una) && (quoted.lt(self.snd.nxt) || is_next)
    }

    /// Whether the application waits for the connection.
    fn is_connecting(&self) -> bool {
        matches!(self.state, State::SynSent | State::SynReceived) && !self.is_in_use()
    }

    /// RFC 6069 section 3: an unreachable that quotes SND.UNA while the timer is backed off shows that it was the path, not
    /// congestion, that lost the retransmission.
    fn revert_backoff(&mut self, now: Instant, quoted: Seq) -> bool {
        let retried = self.recovery.retransmits > 0 && self.rtt.backoff() > 0;
        let Some(front) = self.queue.front() else { return false };
        if quoted != self.snd.una || !retried || !self.state.is_synchronized() {
            return false;
        }
        let since_sent = now.saturating_since(front.sent_at);
        let rto = self.rtt.revert_one_backoff(&self.config.rto);
        // Where retransmissions are counted until R2, that one was not an attempt over an existing path.
        if let RetryLimit::Retries(_) = self.config.limits.r2 {
            self.recovery.retransmits = self.recovery.retransmits.saturating_sub(1).max(1);
        }
        match rto.cmp(&since_sent) {
            // Step 5: the timer runs for the rest of the reverted timeout; without a rest it has expired.
            Ordering::Greater => self.arm_retransmit(now, rto - since_sent),
            _ => self.on_retransmit_timeout(now),
        }
        true
    }

    /// The segments were lost by their size, not by congestion: they are retransmitted without a reduction, and their duplicate
    /// ACKs cause none either (Linux `tcp_simple_retransmit`).
    pub(super) fn repair_without_congestion(&mut self) {
        if self.recovery.state == RecoveryState::Loss {
            return;
        }
        self.recovery.state = RecoveryState::Loss;
        self.recovery.high_seq = self.snd.nxt;
        if let Some(episode) = self.recovery.episode.if_present() {
            episode.frto = false;
            episode.forget_undo();
        }
    }
}
