//! Whether TCP between this host and a peer makes progress: the evidence that a move has lost nothing.
//!
//! In a make before break both paths carry packets for a while. Neither an address nor a carrier shows that the former path does;
//! acknowledgements do. If something was acknowledged just before the move, and no connection has been waiting for longer, nothing was lost
//! so far. In all other cases a sender may be waiting for its retransmission timer, and the mechanisms have to wake it.
//!
//! Each host judges by the packets that pass it. A sender sees its data acknowledged. A receiver sees new data, which it acknowledges; a
//! sender without these acknowledgements soon has no window left for new data.

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Packet, Segment, Seq};

/// An older acknowledgement is no evidence. Most round trips are shorter, and a sender's timer has expired once by then, or is about to
/// (`TCP_RTO_MIN` of Linux is 200 ms).
const RECENT: Duration = Duration::from_millis(300);
/// A retransmission this long after the last segment of the peer was not caused by an ACK: the timer, or a loss probe.
const TRIGGERED: Duration = Duration::from_millis(100);
/// The shortest retransmission timeout (`TCP_RTO_MIN` of Linux): a retransmission without progress for so long may be the timer's although
/// the peer is heard.
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);
/// The most connections with a peer that are tracked.
const MOST: usize = 64;
/// A connection without any packet for this long has ended: twice the longest retransmission timeout of Linux.
const ENDED: Duration = Duration::from_secs(240);

/// A connection: this host's port, the peer's, and whether it is IPv6.
type Key = (u16, u16, bool);

/// See the module's documentation.
#[derive(Clone, Default, Debug)]
pub(super) struct Progress {
    connections: BTreeMap<Key, Tracked>,
    /// When data of either host was last acknowledged.
    acknowledged_at: Option<Instant>,
    /// Until then there may be connections with data in flight that are not tracked.
    incomplete_until: Option<Instant>,
}

/// A connection.
#[derive(Clone, Debug)]
struct Tracked {
    outstanding: Option<Outstanding>,
    /// The end of the peer's data.
    rcv_nxt: Option<Seq>,
    /// When the last segment of the peer arrived.
    heard_at: Option<Instant>,
    last_at: Instant,
}

/// This host's data that the peer has not acknowledged.
#[derive(Clone, Debug)]
struct Outstanding {
    snd_una: Seq,
    snd_nxt: Seq,
    /// When it was sent, or an acknowledgement of a part of it arrived.
    since: Instant,
    /// Some of it was retransmitted since then without an ACK that caused it: the timer may be backed off. On paths of different length
    /// segments overtake each other at a move, and ACKs cause retransmissions of what was not lost.
    has_timed_out: bool,
}

impl Progress {
    /// A packet of this host's programs to the peer.
    pub(super) fn note_outgoing(&mut self, now: Instant, packet: &Packet) {
        let Some(segment) = packet.tcp() else { return };
        let key = (segment.src_port, segment.dst_port, packet.src.is_ipv6());
        if segment.flags.contains(Flags::RST) {
            self.connections.remove(&key);
            return;
        }
        if segment.seq_len() == 0 {
            return;
        }
        match self.entry(now, key) {
            Some(tracked) => tracked.send(now, segment),
            None => self.incomplete_until = Some(now + ENDED),
        }
    }

    /// A packet of the peer to this host's programs.
    pub(super) fn note_incoming(&mut self, now: Instant, packet: &Packet) {
        let Some(segment) = packet.tcp() else { return };
        let key = (segment.dst_port, segment.src_port, packet.src.is_ipv6());
        if segment.flags.contains(Flags::RST) {
            self.connections.remove(&key);
            return;
        }
        let tracked = if segment.seq_len() > 0 { self.entry(now, key) } else { self.connections.get_mut(&key) };
        let Some(tracked) = tracked else { return };
        (tracked.heard_at, tracked.last_at) = (Some(now), now);
        let is_acknowledged = tracked.take_ack(now, segment);
        let is_new = tracked.take_data(segment);
        if is_acknowledged || is_new {
            self.acknowledged_at = Some(now);
        }
    }

    /// Whether data was acknowledged a moment ago, and all data in flight may still be: nothing was lost so far.
    pub(super) fn is_flowing(&self, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_since(at) <= RECENT;
        self.acknowledged_at.is_some_and(is_recent)
            && self.is_complete(now)
            && self.outstanding(now).all(|it| !it.has_timed_out && is_recent(it.since))
    }

    /// Whether the retransmission timer of a connection may be backed off.
    pub(super) fn may_be_backed_off(&self, now: Instant) -> bool {
        !self.is_complete(now) || self.outstanding(now).any(|it| it.has_timed_out)
    }

    fn is_complete(&self, now: Instant) -> bool {
        self.incomplete_until.is_none_or(|until| until <= now)
    }

    fn outstanding(&self, now: Instant) -> impl Iterator<Item = &Outstanding> {
        self.connections.values().filter(move |it| !it.has_ended(now)).filter_map(|it| it.outstanding.as_ref())
    }

    /// The entry of a connection; `None` if there is no room for another one.
    fn entry(&mut self, now: Instant, key: Key) -> Option<&mut Tracked> {
        let is_full = self.connections.len() >= MOST && !self.connections.contains_key(&key);
        if is_full && !self.make_room(now) {
            return None;
        }
        let new = Tracked { outstanding: None, rcv_nxt: None, heard_at: None, last_at: now };
        let tracked = self.connections.entry(key).or_insert(new);
        tracked.last_at = now;
        Some(tracked)
    }

    /// Forgets the connection without data in flight that has been idle for longest; `false` if there is none.
    fn make_room(&mut self, now: Instant) -> bool {
        let idle = self.connections.iter().filter(|(_, it)| it.outstanding.is_none() || it.has_ended(now));
        let idle = idle.min_by_key(|(_, it)| it.last_at).map(|(&key, _)| key);
        idle.is_some_and(|key| self.connections.remove(&key).is_some())
    }
}

impl Tracked {
    fn has_ended(&self, now: Instant) -> bool {
        now.saturating_since(self.last_at) > ENDED
    }

    fn send(&mut self, now: Instant, segment: &Segment) {
        let (start, end) = (segment.seq, segment.seq + segment.seq_len());
        match &mut self.outstanding {
            Some(it) => {
                let is_triggered = self.heard_at.is_some_and(|at| now.saturating_since(at) < TRIGGERED);
                let is_timer = !is_triggered || now.saturating_since(it.since) >= LEAST_TIMEOUT;
                it.has_timed_out |= start.lt(it.snd_nxt) && is_timer;
                it.snd_nxt = it.snd_nxt.max(end);
            }
            None => {
                let new = Outstanding { snd_una: start, snd_nxt: end, since: now, has_timed_out: false };
                self.outstanding = Some(new);
            }
        }
    }

    /// Whether the segment acknowledges data of this host.
    fn take_ack(&mut self, now: Instant, segment: &Segment) -> bool {
        let Some(it) = &mut self.outstanding else { return false };
        if !segment.flags.contains(Flags::ACK) || segment.ack.le(it.snd_una) {
            return false;
        }
        if segment.ack.ge(it.snd_nxt) {
            self.outstanding = None;
        } else {
            (it.snd_una, it.since, it.has_timed_out) = (segment.ack, now, false);
        }
        true
    }

    /// Whether the segment has data that the peer had not sent before. The first one that is seen may be a repetition.
    fn take_data(&mut self, segment: &Segment) -> bool {
        if segment.seq_len() == 0 {
            return false;
        }
        let end = segment.seq + segment.seq_len();
        if segment.flags.contains(Flags::SYN) {
            self.rcv_nxt = Some(end);
            return false;
        }
        let is_new = self.rcv_nxt.is_some_and(|rcv_nxt| end.gt(rcv_nxt));
        if is_new || self.rcv_nxt.is_none() {
            self.rcv_nxt = Some(end);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;

    /// A segment of one of two hosts; `port` is that of this host.
    fn packet(port: u16, is_own: bool, seq: u32, len: usize, ack: u32) -> Packet {
        let mut ends: [(IpAddr, u16); 2] =
            [("2001:25::1".parse().unwrap(), port), ("2001:25::2".parse().unwrap(), 5001)];
        if !is_own {
            ends.reverse();
        }
        let segment = Segment {
            src_port: ends[0].1,
            dst_port: ends[1].1,
            seq: Seq::new(seq),
            ack: Seq::new(ack),
            flags: Flags::ACK,
            payload: vec![7; len].into(),
            ..Segment::default()
        };
        Packet::new(ends[0].0, ends[1].0, segment)
    }

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    const PORT: u16 = 40_000;

    /// Data of 1,000 bytes from this sequence number on.
    fn send(progress: &mut Progress, ms: u64, seq: u32) {
        progress.note_outgoing(at(ms), &packet(PORT, true, seq, 1000, 1));
    }

    fn ack(progress: &mut Progress, ms: u64, ack: u32) {
        progress.note_incoming(at(ms), &packet(PORT, false, 1, 0, ack));
    }

    #[test]
    fn an_acknowledgement_is_evidence_for_300_ms() {
        let mut progress = Progress::default();
        assert!(!progress.is_flowing(at(0)), "nothing is known");
        send(&mut progress, 0, u32::MAX - 500);
        assert!(!progress.is_flowing(at(1)), "nothing is acknowledged");
        ack(&mut progress, 50, 499);
        assert!(progress.is_flowing(at(50)) && progress.is_flowing(at(350)));
        assert!(!progress.is_flowing(at(351)), "too old");
        // Neither an ACK that was there before nor a segment without data is one.
        ack(&mut progress, 400, 499);
        progress.note_outgoing(at(400), &packet(PORT, true, 499, 0, 1));
        assert!(!progress.is_flowing(at(400)));
    }

    #[test]
    fn a_receiver_judges_by_new_data() {
        let mut progress = Progress::default();
        let mut data = |ms, seq| {
            progress.note_incoming(at(ms), &packet(PORT, false, seq, 1000, 1));
            progress.is_flowing(at(ms))
        };
        assert!(!data(0, 1), "perhaps a repetition");
        assert!(data(10, 1001));
        // The sender repeats it: the ACKs of this host do not arrive.
        assert!(!data(400, 1001));
        assert!(!data(1000, 1));
        assert!(data(1100, 2001));
    }

    #[test]
    fn one_connection_that_waits_is_enough_for_doubt() {
        let mut progress = Progress::default();
        progress.note_outgoing(at(0), &packet(50_000, true, 1, 1000, 1));
        for ms in (0..600).step_by(50) {
            send(&mut progress, ms, 1 + 20 * ms as u32);
            ack(&mut progress, ms + 49, 1001 + 20 * ms as u32);
            assert_eq!(progress.is_flowing(at(ms + 49)), ms + 49 <= 300, "{ms}");
        }
        progress.note_incoming(at(649), &packet(50_000, false, 1, 0, 1001));
        assert!(progress.is_flowing(at(649)));
        // A SYN without an answer as well.
        let mut syn = packet(50_001, true, 1, 0, 0);
        if let holdover_wire::Payload::Tcp(segment) = &mut syn.payload {
            segment.flags = Flags::SYN;
        }
        progress.note_outgoing(at(650), &syn);
        assert!(progress.is_flowing(at(650)));
        progress.note_outgoing(at(660), &syn);
        assert!(!progress.is_flowing(at(660)) && progress.may_be_backed_off(at(660)));
    }

    #[test]
    fn a_timeout_is_a_sign_of_loss_until_it_is_acknowledged() {
        let mut progress = Progress::default();
        send(&mut progress, 0, 1);
        send(&mut progress, 0, 1001);
        ack(&mut progress, 50, 1001);
        assert!(progress.is_flowing(at(60)) && !progress.may_be_backed_off(at(60)));
        send(&mut progress, 150, 1001);
        assert!(!progress.is_flowing(at(150)) && progress.may_be_backed_off(at(150)));
        send(&mut progress, 160, 2001);
        assert!(!progress.is_flowing(at(160)), "new data does not show that the old has arrived");
        ack(&mut progress, 170, 2001);
        assert!(progress.is_flowing(at(170)) && !progress.may_be_backed_off(at(170)));
    }

    /// Segments on the new path overtake those on the former one: duplicate ACKs cause retransmissions.
    #[test]
    fn a_retransmission_that_acks_cause_is_none() {
        let mut progress = Progress::default();
        send(&mut progress, 0, 1);
        send(&mut progress, 0, 1001);
        ack(&mut progress, 50, 1001);
        for ms in [60, 150, 240] {
            ack(&mut progress, ms, 1001);
            send(&mut progress, ms + 9, 1001);
            assert!(progress.is_flowing(at(ms + 9)), "{ms}");
        }
        // The timer, while the peer is heard.
        ack(&mut progress, 250, 1001);
        send(&mut progress, 250, 1001);
        assert!(!progress.is_flowing(at(250)) && progress.may_be_backed_off(at(250)));
    }

    #[test]
    fn connections_that_end_leave_no_doubt_behind() {
        let mut progress = Progress::default();
        for is_own in [true, false] {
            progress.note_outgoing(at(0), &packet(50_000, true, 1, 1000, 1));
            progress.note_outgoing(at(1), &packet(50_000, true, 1, 1000, 1));
            assert!(progress.may_be_backed_off(at(1)));
            let mut reset = packet(50_000, is_own, 1, 0, 1);
            if let holdover_wire::Payload::Tcp(segment) = &mut reset.payload {
                segment.flags = Flags::RST;
            }
            if is_own {
                progress.note_outgoing(at(2), &reset);
            } else {
                progress.note_incoming(at(2), &reset);
            }
            assert!(!progress.may_be_backed_off(at(2)));
        }
        // Its end was not seen.
        progress.note_outgoing(at(0), &packet(50_000, true, 1, 1000, 1));
        progress.note_outgoing(at(1), &packet(50_000, true, 1, 1000, 1));
        assert!(progress.may_be_backed_off(at(240_001)) && !progress.may_be_backed_off(at(240_002)));
    }

    #[test]
    fn connections_without_room_are_a_doubt() {
        let mut progress = Progress::default();
        // Idle ones give way.
        for port in 0..200 {
            progress.note_outgoing(at(0), &packet(port, true, 1, 1000, 1));
            progress.note_incoming(at(10), &packet(port, false, 1, 0, 1001));
        }
        assert!(progress.is_flowing(at(10)));
        assert_eq!(progress.connections.len(), MOST);
        for port in 200..264 {
            progress.note_outgoing(at(20), &packet(port, true, 1, 1000, 1));
        }
        assert!(progress.is_flowing(at(20)));
        progress.note_outgoing(at(30), &packet(264, true, 1, 1000, 1));
        assert!(!progress.is_flowing(at(30)) && progress.may_be_backed_off(at(30)));
        assert_eq!(progress.connections.len(), MOST);
    }
}
