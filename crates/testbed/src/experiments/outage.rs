//! A bulk transfer across a cut, and the receiver's first packets after the link's return.

use holdover_base::{Duration, Instant};
use holdover_wire::{Seq, Unreachable};

use super::Tolerance;
use super::action::LocalAction;
use super::experiment::{Measure, Value};
use super::peer::{Happening, Script, Seen, Wire};
use super::subject::{Observation, Setup, Subject, TrialError, run};

pub(super) const MS: Duration = Duration::from_millis(1);
/// The round trip of every script here.
pub(super) const RTT: Duration = Duration::from_millis(50);
/// Data in a full segment: 1500 bytes less 20 of IP, 20 of TCP and 12 of options.
pub(super) const FULL: u32 = 1448;
/// The receiver's window in segments: it limits the transfer, so that no queue overflows.
pub(super) const WINDOW: u32 = 64;
/// Segments received before the cut. By then the sender has filled the window for some ten round trips.
const BEFORE_THE_CUT: u32 = 600;

/// The data segment whose loss ends slow start, in experiments with such a loss: the window is full by then.
const EARLY_LOSS: usize = 250;

/// How a transfer is cut and resumed.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) outage: Duration,
    pub(super) hold: Hold,
    /// The number of last ACKs that the receiver sent and that were lost.
    pub(super) lost_acks: u32,
    /// A lost segment, this many before the last one that arrives.
    pub(super) hole: Option<u32>,
    pub(super) stimulus: Stimulus,
    /// The congestion window limits the transfer, not the receiver's: an earlier loss has ended slow start, and the receiver's window is
    /// large.
    pub(super) by_congestion: bool,
    /// Packets sent during the outage arrive after it, instead of being lost.
    pub(super) network_holds: bool,
    pub(super) sack: bool,
    pub(super) timestamps: bool,
}

/// The data received but not acknowledged when the link breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    Nothing,
    OneByte,
    Segments(u32),
}

/// The timestamp echoed by a late ACK: the one of its data, or the current value of the sender's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Echo {
    Stale,
    Fresh,
}

/// The packets that reach the sender after link-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stimulus {
    Nothing,
    DuplicateAcks(u32),
    /// One ACK of all that was received.
    FullAck(Echo),
    /// An ACK of one byte more than the last, and then the full one.
    TwoSteps(Echo),
    /// An ACK for each segment whose ACK was held back.
    ManySteps(Echo),
    /// For each ACK that the receiver has sent and that may be lost, one of one byte more; then the full one.
    Ladder(Echo),
    /// A duplicate ACK with the SACK blocks beyond a hole.
    Sack,
    /// ICMP errors, 1 ms apart, that quote the first outstanding byte.
    Unreachables(u32, Unreachable),
    /// The same, quoting a byte ten segments later.
    UnreachablesOfLater(u32),
    /// A data segment that acknowledges nothing new.
    Data,
    /// An action of the sender's own host on the socket.
    Local(LocalAction),
}

impl Plan {
    pub(super) fn new(outage: Duration, hold: Hold, stimulus: Stimulus) -> Self {
        Self {
            outage,
            hold,
            lost_acks: 0,
            hole: None,
            stimulus,
            by_congestion: false,
            network_holds: false,
            sack: true,
            timestamps: true,
        }
    }

    /// Runs it and measures [`MEASURES`].
    pub(super) fn measure(&self, subject: Subject<'_>) -> Result<Vec<Value>, TrialError> {
        let observation = self.observe(subject)?;
        let up = observation.marked(UP)?;
        let after = |seen: &&Seen| seen.at >= up && seen.new_bytes > 0;
        let wire = &observation.wire;
        let first = wire.seen.iter().find(after).map(|seen| seen.at);
        let in_order = wire.seen.iter().find(|seen| after(seen) && seen.in_order).map(|seen| seen.at);
        let sample = wire.samples.last();
        Ok(vec![
            Value::between(up, first),
            Value::between(up, in_order),
            segments_in_1_s(wire, up),
            Value::count(sample.map(|sample| sample.cwnd)),
            Value::count(sample.and_then(|sample| sample.ssthresh)),
            wire.samples.first().map_or(Value::Nothing, |sample| Value::millis(sample.rto)),
            Value::Count(observation.timeouts),
            Value::Flag(observation.undos > 0),
        ])
    }

    /// Runs it.
    pub(super) fn observe(&self, subject: Subject<'_>) -> Result<Observation, TrialError> {
        // Enough data until the cut, and for a second at the end.
        let setup = Setup { writes: vec![(MS * 10, 4_000 * FULL as usize)], ..Setup::default() };
        let span = self.outage * 4 + Duration::from_secs(8);
        let prepare = |wire: &mut Wire| {
            wire.rtt = RTT;
            wire.window = WINDOW * FULL;
            wire.sack = self.sack;
            wire.timestamps = self.timestamps;
            if self.by_congestion {
                wire.losses.insert(EARLY_LOSS);
            }
            if let Some(before) = self.hole {
                wire.losses.insert((BEFORE_THE_CUT - before) as usize);
            }
        };
        run(
            subject,
            &setup,
            span,
            prepare,
            Cut { plan: self.clone(), received: 0, emitted: Vec::new(), is_up: false, woke: false },
        )
    }
}

/// The time of link-up.
pub(super) const UP: &str = "link up";

/// The measures after each outage.
pub(super) const MEASURES: &[Measure] = &[
    Measure { name: "first new data (ms)", tolerance: Tolerance::Timer },
    Measure { name: "in order (ms)", tolerance: Tolerance::Timer },
    Measure { name: "segments in 1 s", tolerance: Tolerance::Share { percent: 25.0, least: 8.0 } },
    Measure { name: "cwnd", tolerance: Tolerance::Share { percent: 25.0, least: 4.0 } },
    Measure { name: "ssthresh", tolerance: Tolerance::Share { percent: 15.0, least: 2.0 } },
    Measure { name: "RTO (ms)", tolerance: Tolerance::Share { percent: 20.0, least: 40.0 } },
    Measure { name: "timeouts", tolerance: Tolerance::Share { percent: 0.0, least: 1.0 } },
    Measure { name: "undone", tolerance: Tolerance::Exact },
];

const LINK_UP: u32 = 1;

/// The receiver of a transfer that is cut.
struct Cut {
    plan: Plan,
    /// Data segments that arrived before the cut.
    received: u32,
    /// The ACK numbers that the receiver has sent into the broken link.
    emitted: Vec<Seq>,
    is_up: bool,
    /// Data has arrived in order since link-up.
    woke: bool,
}

impl Script for Cut {
    fn hear(&mut self, wire: &mut Wire, happening: Happening<'_>) {
        match happening {
            Happening::Segment(segment) if segment.payload.is_empty() => {
                // RFC 9293 section 3.10.7.4, first: a segment before the window is answered.
                if self.is_up && segment.seq.lt(wire.rcv_nxt) {
                    wire.acknowledge();
                }
            }
            Happening::Segment(_) if self.is_up => {
                wire.acknowledge();
                if !self.woke && wire.seen.last().is_some_and(|seen| seen.in_order) {
                    self.woke = true;
                    wire.sample_after(RTT * 2);
                    wire.sample_after(Duration::from_secs(1));
                    wire.finish_after(MS * 1_010);
                }
            }
            Happening::Segment(_) if !wire.is_cut => self.before_the_cut(wire),
            Happening::Segment(_) => {}
            Happening::Alarm(LINK_UP) => {
                self.is_up = true;
                wire.is_cut = false;
                wire.marks.insert(UP, wire.now);
                if self.plan.network_holds {
                    arrive_late(wire);
                }
                self.greet(wire);
            }
            Happening::Alarm(_) => {}
        }
    }
}

impl Cut {
    fn before_the_cut(&mut self, wire: &mut Wire) {
        self.received += 1;
        if self.plan.by_congestion && self.received as usize == EARLY_LOSS + 2 * WINDOW as usize {
            wire.window = 8 * WINDOW * FULL;
        }
        let left = BEFORE_THE_CUT - self.plan.hole.map_or(0, |_| 1) - self.received;
        let held = match self.plan.hold {
            Hold::Nothing | Hold::OneByte => 0,
            Hold::Segments(held) => held,
        };
        if left >= held + self.plan.lost_acks {
            if left == 0 && self.plan.hold == Hold::OneByte {
                wire.ack_after(RTT, wire.rcv_nxt - 1, &[]);
            } else {
                wire.acknowledge();
            }
        } else if left >= held {
            self.emitted.push(wire.rcv_nxt);
        }
        if left == 0 {
            wire.is_cut = true;
            wire.alarm_after(self.plan.outage, LINK_UP);
        }
    }

    fn greet(&self, wire: &mut Wire) {
        let full = wire.rcv_nxt;
        let held = match self.plan.hold {
            Hold::Nothing => 0,
            Hold::OneByte => 1,
            Hold::Segments(held) => held * FULL,
        };
        // The receiver's last ACK, and the last ACK that the sender received.
        let emitted = full - held;
        let heard = emitted - self.plan.lost_acks * FULL;
        let echo = |wire: &Wire, echo| match echo {
            Echo::Stale => wire.echo,
            Echo::Fresh => wire.refreshed_echo(),
        };
        let now = Duration::ZERO;
        match self.plan.stimulus {
            Stimulus::Nothing => {}
            Stimulus::DuplicateAcks(count) => (0..count).for_each(|_| wire.ack_after(now, emitted, &[])),
            Stimulus::FullAck(which) => wire.ack_echoing(now, full, echo(wire, which)),
            Stimulus::TwoSteps(which) => {
                let echo = echo(wire, which);
                wire.ack_echoing(now, emitted + 1, echo);
                wire.ack_echoing(now, full, echo);
            }
            Stimulus::ManySteps(which) => {
                let echo = echo(wire, which);
                (1..=held / FULL).for_each(|step| wire.ack_echoing(now, emitted + step * FULL, echo));
            }
            Stimulus::Ladder(which) => {
                let echo = echo(wire, which);
                wire.ack_echoing(now, heard + 1, echo);
                self.emitted.iter().for_each(|rung| wire.ack_echoing(now, *rung + 1, echo));
                wire.ack_echoing(now, full, echo);
            }
            Stimulus::Sack => {
                let blocks = wire.sack_blocks();
                wire.ack_after(now, emitted, &blocks);
            }
            Stimulus::Unreachables(count, kind) => {
                let quoted = wire.quotable(emitted);
                (0..u64::from(count)).for_each(|n| wire.unreachable_after(MS * n, kind, &quoted));
            }
            Stimulus::UnreachablesOfLater(count) => {
                let quoted = wire.quotable(emitted + 10 * FULL);
                (0..u64::from(count)).for_each(|n| wire.unreachable_after(MS * n, Unreachable::Host, &quoted));
            }
            Stimulus::Data => wire.write_acking(now, 500, emitted),
            Stimulus::Local(action) => wire.act(action),
        }
    }
}

/// All data lost so far arrives now, in the order of its transmission, and is acknowledged.
fn arrive_late(wire: &mut Wire) {
    let late: Vec<_> = wire.seen.iter().filter(|seen| seen.lost).map(|seen| seen.segment.clone()).collect();
    for segment in late {
        wire.receive(&segment);
        wire.acknowledge();
    }
}

/// The new data, in segments, within one second from the first new data at or after `from`. Its delay is a separate measure, since the
/// kernel's timers are late.
pub(super) fn segments_in_1_s(wire: &Wire, from: Instant) -> Value {
    let mut arrivals = wire.seen.iter().filter(|seen| seen.at >= from && seen.new_bytes > 0).peekable();
    let end = arrivals.peek().map_or(from, |first| first.at + Duration::from_secs(1));
    let bytes: u32 = arrivals.take_while(|seen| seen.at < end).map(|seen| seen.new_bytes).sum();
    Value::Count((bytes / FULL).into())
}

/// The time of the first data segment at or after `from`.
pub(super) fn first_data(wire: &Wire, from: Instant) -> Option<Instant> {
    wire.seen.iter().find(|seen| seen.at >= from && !seen.segment.payload.is_empty()).map(|seen| seen.at)
}
