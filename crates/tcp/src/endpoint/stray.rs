//! Segments that belong to no connection, or to one in TIME-WAIT that a new one may replace: LISTEN and CLOSED (RFC 9293 sections
//! 3.10.7.1 and 3.10.7.2).

use core::net::SocketAddr;
use std::sync::Arc;

use holdover_base::Instant;
use holdover_wire::{Flags, Packet, Segment, Seq};

use super::connect::is_unicast;
use super::{Endpoint, MAX_REPLIES, hash};
use crate::connection::Connection;
use crate::counters::Disposition;
use crate::ecn::EcnField;
use crate::state::State;

impl Endpoint {
    /// A segment without a connection: LISTEN (section 3.10.7.2) or CLOSED (section 3.10.7.1). A new connection numbers its
    /// bytes on from `replaced`, where the one in TIME-WAIT ended that gives way to it.
    pub(super) fn handle_stray(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        (segment, ecn): (&Segment, EcnField),
        replaced: Option<Seq>,
    ) -> Disposition {
        // Section 3.9.2.3: ignore broadcast, multicast and unspecified addresses.
        if !is_unicast(remote.ip()) || segment.src_port == 0 {
            return Disposition::NoConnection;
        }
        let Some(listener) = self.listeners.get(&local.port()) else {
            self.reset(local, remote, segment);
            return Disposition::NoConnection;
        };
        if segment.flags.contains(Flags::RST) {
            return Disposition::NotForListener;
        }
        if segment.flags.contains(Flags::ACK) || !segment.flags.contains(Flags::SYN) {
            if segment.flags.contains(Flags::ACK) {
                self.reset(local, remote, segment);
            }
            return Disposition::NotForListener;
        }
        if listener.half_open >= listener.backlog {
            return Disposition::BacklogFull;
        }
        let config = Arc::clone(&listener.config);
        let mut opening = self.opening(now, local, remote);
        // RFC 9293 section 3.6.1, MAY-2: beyond every sequence number that the old connection used.
        if let Some(end) = replaced.filter(|end| opening.iss.le(*end)) {
            opening.iss = end + 1;
        }
        let verdict = self.fast_open_verdict(local, remote, segment);
        self.insert_accepted(now, Connection::accept_with_ecn(now, config, opening, segment, ecn), segment, verdict);
        Disposition::Accepted
    }

    /// RFC 9293 section 3.6.1, RFC 6191: a SYN may replace a connection in TIME-WAIT if it is evidently new.
    pub(super) fn may_replace(&self, index: u32, segment: &Segment) -> bool {
        let Some(connection) = self.entries[index as usize].connection.as_deref() else { return true };
        let is_syn = || segment.flags & (Flags::SYN | Flags::ACK | Flags::RST) == Flags::SYN;
        connection.state() == State::TimeWait
            && is_syn()
            && self.listeners.get(&connection.local().port()).is_some_and(|l| l.half_open < l.backlog)
            && (segment.seq.gt(connection.rcv_nxt()) || connection.is_newer_by_timestamp(segment))
    }

    /// Ends a connection in TIME-WAIT early, and returns its SND.NXT. Its owner finds it closed, with any unread data.
    pub(super) fn replace(&mut self, index: u32) -> Option<Seq> {
        let connection = self.entries[index as usize].connection.as_deref_mut()?;
        connection.end_time_wait();
        let snd_nxt = connection.snd_nxt();
        self.by_addresses.remove(&(hash(&self.secret, connection.local(), connection.remote()), index));
        self.mark_ready(index);
        Some(snd_nxt)
    }

    /// RFC 9293 section 3.10.7.1.
    fn reset(&mut self, local: SocketAddr, remote: SocketAddr, segment: &Segment) {
        if self.replies.len() < MAX_REPLIES
            && let Some(reset) = reset_for(segment)
        {
            self.replies.push_back(Packet::new(local.ip(), remote.ip(), reset));
        }
    }
}

/// The RST that answers a segment of no connection (RFC 9293 section 3.10.7.1); `None` for an RST, which is not answered.
pub fn reset_for(segment: &Segment) -> Option<Segment> {
    if segment.flags.contains(Flags::RST) {
        return None;
    }
    let (seq, ack, flags) = if segment.flags.contains(Flags::ACK) {
        (segment.ack, Seq::default(), Flags::RST)
    } else {
        (Seq::default(), segment.seq + segment.seq_len(), Flags::RST | Flags::ACK)
    };
    Some(Segment { src_port: segment.dst_port, dst_port: segment.src_port, seq, ack, flags, ..Segment::default() })
}
