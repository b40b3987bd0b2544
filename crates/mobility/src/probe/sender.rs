//! The sender's half: the handoff recovery phase.

use holdover_base::{Duration, Instant};
use holdover_tcp::{AfterRetransmit, Connection, ConnectionId};
use holdover_wire::{Flags, Segment, Seq, SeqRange};

use super::option::{Bitmask, Message, PROBE_ROOM};
use super::{ProbeConfig, RoundTrip};

/// Duplicate ACKs that show the loss of a retransmission (RFC 5681 section 3.2).
const DUPLICATES: u32 = 3;

/// A sender in the handoff recovery phase.
#[derive(Clone, Debug)]
pub(super) struct Recovering {
    pub(super) id: ConnectionId,
    pub(super) number: u8,
    /// Timeouts before the phase: with one more, the timer has taken over.
    timeouts: u32,
    mss: u32,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Until the bitmask comes.
    Probing(Probing),
    /// Until all up to recovery_end is acknowledged.
    Repairing { recovery_end: Seq, ack: Seq, duplicates: u32, repeated_at: Option<Seq> },
}

#[derive(Clone, Debug)]
struct Probing {
    count: u8,
    sent: u8,
    sent_at: Option<Instant>,
    /// Bytes of the probes except the first.
    bytes_behind: u32,
    /// The end of the last probe; before the first one SND.UNA.
    end: Seq,
    /// SND.UNA when all probes were acknowledged. The bitmask, which answers the last of them, may follow.
    acknowledged_at: Option<Seq>,
}

/// The progress of a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// It continues.
    Lasts,
    /// A retransmission was lost, and is repeated.
    Repeated,
    /// All up to recovery_end is acknowledged.
    Recovered,
    /// All probes and more are acknowledged, without a bitmask.
    Unanswered,
    /// The retransmission timer ran out.
    TimedOut,
}

impl Recovering {
    /// Begins the phase; `None` if nothing is outstanding, or the peer's window is closed.
    pub(super) fn begin(
        now: Instant,
        id: ConnectionId,
        tcp: &mut Connection,
        number: u8,
        config: &ProbeConfig,
    ) -> Option<Self> {
        let outstanding = SeqRange::new(tcp.snd_una(), tcp.snd_nxt());
        if !tcp.presume_lost(now, outstanding, AfterRetransmit::Reset) {
            return None;
        }
        let count = config.probes.max(1);
        tcp.bar_fast_retransmit_below(Some(outstanding.end));
        tcp.reserve_option_room(PROBE_ROOM);
        tcp.set_cwnd(u32::from(count));
        let probing =
            Probing { count, sent: 0, sent_at: None, bytes_behind: 0, end: outstanding.start, acknowledged_at: None };
        let (timeouts, mss) = (tcp.counters().timeouts, tcp.snd_mss());
        Some(Self { id, number, timeouts, mss, phase: Phase::Probing(probing) })
    }

    /// Notes an outgoing segment. The first ones with data are the probes.
    pub(super) fn note_sent(&mut self, now: Instant, segment: &mut Segment) {
        let Phase::Probing(probing) = &mut self.phase else { return };
        if probing.sent == probing.count || segment.payload.is_empty() || segment.flags.contains(Flags::RST) {
            return;
        }
        // The timestamps are not part of the MSS.
        let space = self.mss as usize + if segment.options.timestamps.is_some() { 12 } else { 0 };
        let mut probe = segment.clone();
        let message = Message::Probe { number: self.number, index: probing.sent, count: probing.count };
        if !message.put(&mut probe) || probe.payload.len() + probe.options.wire_len() > space {
            return;
        }
        *segment = probe;
        if probing.sent_at.is_some() {
            probing.bytes_behind += segment.payload.len() as u32;
        }
        probing.sent_at.get_or_insert(now);
        probing.sent += 1;
        probing.end = probing.end.max(segment.seq + segment.seq_len());
    }

    /// Notes an incoming pure ACK.
    pub(super) fn note_ack(&mut self, segment: &Segment) {
        if let Phase::Repairing { ack, duplicates, .. } = &mut self.phase {
            *duplicates = if segment.ack == *ack { *duplicates + 1 } else { 0 };
            *ack = segment.ack;
        }
    }

    /// Handles the bitmask, in a segment with this ACK number. Returns whether it was expected.
    pub(super) fn take_bitmask(
        &mut self,
        now: Instant,
        tcp: &mut Connection,
        ack: Seq,
        bitmask: &Bitmask,
        config: &ProbeConfig,
    ) -> bool {
        let Phase::Probing(probing) = &self.phase else { return false };
        let Some(sent_at) = probing.sent_at.filter(|_| bitmask.number == self.number) else { return false };
        let recovery_end = ack + bitmask.highest;
        if recovery_end.gt(tcp.snd_nxt()) {
            return false;
        }
        bitmask.held(ack).into_iter().for_each(|range| tcp.note_held_by_peer(range));
        // The receiver answers the last probe, or has waited for it: a missing one was lost.
        if tcp.snd_una().lt(probing.end) {
            tcp.presume_lost(now, SeqRange::new(tcp.snd_una(), probing.end), AfterRetransmit::Keep);
        }
        tcp.reserve_option_room(0);
        match bitmask.bandwidth {
            Some(bandwidth) => {
                let rtt = match config.round_trip {
                    RoundTrip::Smoothed => tcp.srtt(),
                    RoundTrip::Exchange => None,
                };
                let rtt = rtt.unwrap_or_else(|| probing.round_trip(now.saturating_since(sent_at), bandwidth, bitmask));
                set_windows(tcp, bandwidth, rtt);
            }
            None => tcp.set_cwnd(1),
        }
        self.phase = Phase::Repairing { recovery_end, ack, duplicates: 0, repeated_at: None };
        true
    }

    /// TCP has processed input, or its timer has expired.
    pub(super) fn step(&mut self, now: Instant, tcp: &mut Connection) -> Progress {
        if tcp.counters().timeouts != self.timeouts {
            return Progress::TimedOut;
        }
        match &mut self.phase {
            // No segment had room for the option: a lone FIN, or a tiny MSS.
            Phase::Probing(probing) if probing.sent == 0 && tcp.snd_una().gt(probing.end) => Progress::Unanswered,
            Phase::Probing(probing) if probing.sent == 0 => Progress::Lasts,
            Phase::Probing(probing) if tcp.snd_una().ge(probing.end) => match probing.acknowledged_at {
                Some(before) if tcp.snd_una().gt(before) => Progress::Unanswered,
                Some(_) => Progress::Lasts,
                None => {
                    probing.acknowledged_at = Some(tcp.snd_una());
                    tcp.reserve_option_room(0);
                    tcp.set_cwnd(u32::from(probing.sent));
                    Progress::Lasts
                }
            },
            Phase::Probing(_) => {
                // Missing data is sent after the bitmask.
                tcp.set_cwnd(tcp.in_flight());
                Progress::Lasts
            }
            Phase::Repairing { recovery_end, .. } if tcp.snd_una().ge(*recovery_end) => Progress::Recovered,
            Phase::Repairing { duplicates, repeated_at, .. } => {
                let una = tcp.snd_una();
                // With SACK, TCP itself detects lost retransmissions.
                let is_lost = *duplicates >= DUPLICATES && *repeated_at != Some(una) && !tcp.sack_agreed();
                if !is_lost {
                    return Progress::Lasts;
                }
                *repeated_at = Some(una);
                tcp.presume_lost(now, SeqRange::new(una, una + 1), AfterRetransmit::Keep);
                Progress::Repeated
            }
        }
    }

    /// Ends the phase.
    pub(super) fn end(tcp: &mut Connection) {
        tcp.bar_fast_retransmit_below(None);
        tcp.reserve_option_room(0);
    }
}

impl Probing {
    /// From the first probe to the bitmask, less the time of the later probes behind it and the receiver's wait.
    fn round_trip(&self, elapsed: Duration, bandwidth: u32, bitmask: &Bitmask) -> Duration {
        let behind = u64::from(self.bytes_behind) * 1_000_000_000 / u64::from(bandwidth);
        let waited = Duration::from_millis(u64::from(bitmask.waited_ms));
        elapsed.saturating_sub(Duration::from_nanos(behind)).saturating_sub(waited).max(Duration::from_millis(1))
    }
}

/// Sets ssthresh to the capacity of the path, and cwnd to half of it.
fn set_windows(tcp: &mut Connection, bandwidth: u32, rtt: Duration) {
    let bytes = u128::from(bandwidth) * u128::from(rtt.as_nanos()) / 1_000_000_000;
    let mss = tcp.snd_mss().max(1);
    let segments = u32::try_from(bytes / u128::from(mss)).unwrap_or(u32::MAX);
    let ssthresh = segments.min(tcp.snd_wnd() / mss).max(2);
    tcp.set_ssthresh(ssthresh);
    tcp.set_cwnd(ssthresh / 2);
}
