//! A window that closes: probes, giving up, and freezes with and without data in flight.

use holdover_base::{Duration, Instant};

use super::Tolerance;
use super::experiment::{Case, Experiment, Known, Length, Measure, Value};
use super::outage::{FULL, MS, RTT, UP, WINDOW, first_data, segments_in_1_s};
use super::peer::{Happening, Script, Wire};
use super::subject::{Observation, Setup, Subject, TrialError, run};
use crate::Congestion;

pub(super) fn experiments() -> Vec<Experiment> {
    vec![probes(), give_up(), clean_freeze(), dirty_freeze()]
}

/// A bulk transfer whose receiver closes the window, and opens it after `frozen`, if at all.
#[derive(Clone)]
struct Freeze {
    frozen: Option<Duration>,
    closing: Closing,
    /// Whether segments sent while the window is closed are answered.
    answered: bool,
    setup: Setup,
    span: Duration,
}

/// The fate of the data in flight when the window closes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    /// It arrives and is acknowledged, with the closed window.
    Drained,
    /// It is lost. The window is closed by an ACK of new data.
    Lossy,
    /// It is lost. The window is closed by a duplicate of the last ACK.
    LossyByDuplicate,
}

/// The time at which the closed window has reached the sender, and no data in flight can be acknowledged any more.
const CLOSED: &str = "window closed";
const BEFORE: u32 = 600;
const CLOSE: u32 = 1;
const THAW: u32 = 2;

impl Freeze {
    fn observe(&self, subject: Subject<'_>) -> Result<Observation, TrialError> {
        let setup = Setup { writes: vec![(MS * 10, 4_000 * FULL as usize)], ..self.setup.clone() };
        let prepare = |wire: &mut Wire| {
            wire.rtt = RTT;
            wire.window = WINDOW * FULL;
        };
        run(
            subject,
            &setup,
            self.span,
            prepare,
            Freezing { plan: self.clone(), received: 0, is_closed: false, is_open_again: false, woke: false },
        )
    }
}

struct Freezing {
    plan: Freeze,
    received: u32,
    is_closed: bool,
    is_open_again: bool,
    /// Data has arrived since the window was opened.
    woke: bool,
}

impl Script for Freezing {
    fn hear(&mut self, wire: &mut Wire, happening: Happening<'_>) {
        match happening {
            // Probes are empty.
            Happening::Segment(_) if wire.is_cut => {
                if self.is_closed && self.plan.answered {
                    wire.ack_after(RTT, wire.rcv_nxt, &[]);
                }
            }
            Happening::Segment(segment) if segment.payload.is_empty() => {}
            Happening::Segment(_) => self.take(wire),
            Happening::Alarm(CLOSE) => {
                self.is_closed = true;
                wire.is_cut = true;
                wire.marks.insert(CLOSED, wire.now);
                wire.sample_after(Duration::ZERO);
                if let Some(frozen) = self.plan.frozen {
                    wire.alarm_after(frozen, THAW);
                }
            }
            Happening::Alarm(_) => self.thaw(wire),
        }
    }
}

impl Freezing {
    fn take(&mut self, wire: &mut Wire) {
        self.received += 1;
        if self.is_open_again && !self.woke {
            self.woke = true;
            wire.sample_after(Duration::from_secs(1));
            wire.finish_after(MS * 1_010);
        }
        if self.received < BEFORE || self.is_open_again {
            return wire.acknowledge();
        }
        match self.plan.closing {
            Closing::Drained => {
                wire.window = 0;
                wire.acknowledge();
                if self.received == BEFORE {
                    // The sender stops a round trip from now; the data sent by then is acknowledged one round trip later.
                    wire.alarm_after(RTT * 2 + MS * 10, CLOSE);
                }
            }
            Closing::Lossy => {
                wire.window = 0;
                wire.acknowledge();
                wire.is_cut = true;
                wire.alarm_after(RTT, CLOSE);
            }
            Closing::LossyByDuplicate => {
                wire.acknowledge();
                wire.window = 0;
                wire.ack_after(RTT + MS * 10, wire.rcv_nxt, &[]);
                wire.is_cut = true;
                wire.alarm_after(RTT + MS * 10, CLOSE);
            }
        }
    }

    fn thaw(&mut self, wire: &mut Wire) {
        self.is_open_again = true;
        wire.is_cut = false;
        wire.window = WINDOW * FULL;
        wire.marks.insert(UP, wire.now);
        // As in Freeze-TCP, the window update is sent three times.
        (0..3).for_each(|_| wire.ack_after(Duration::ZERO, wire.rcv_nxt, &[]));
        wire.sample_after(MS * 5);
    }
}

/// The times of segments sent after the window was closed and before it opened again. Segments released by the last ACKs before may still
/// have been in flight for a few milliseconds.
fn sent_while_closed(observation: &Observation) -> Result<(Instant, Vec<Instant>), TrialError> {
    let closed = observation.marked(CLOSED)?;
    let opened = observation.wire.mark(UP).unwrap_or(Instant::FAR_FUTURE);
    let times =
        observation.wire.seen.iter().map(|seen| seen.at).filter(|at| *at > closed + MS * 5 && *at < opened).collect();
    Ok((closed, times))
}

/// When the last ACK before `closed` reached the sender.
fn all_acknowledged(wire: &Wire, closed: Instant) -> Instant {
    wire.sent.iter().map(|sent| sent.at).filter(|at| *at <= closed).last().unwrap_or(closed)
}

fn probes() -> Experiment {
    let case = |label: &str, sender, length, answered, span| {
        let freeze = Freeze { frozen: None, closing: Closing::Drained, answered, setup: Setup::default(), span };
        Case::new(label, sender, length, move |subject| {
            let observation = freeze.observe(subject)?;
            let (closed, times) = sent_while_closed(&observation)?;
            let is_empty = observation
                .wire
                .seen
                .iter()
                .filter(|seen| seen.at > closed)
                .all(|seen| seen.segment.payload.is_empty());
            Ok(vec![
                Value::between(all_acknowledged(&observation.wire, closed), times.first().copied()),
                Value::gaps(&times),
                Value::Flag(is_empty),
            ])
        })
    };
    let mut cases = vec![case("unanswered", Congestion::Cubic, Length::Short, false, MS * 5_000)];
    cases.extend(
        [Congestion::Reno, Congestion::Bbr]
            .map(|sender| case("unanswered", sender, Length::Medium, false, MS * 10_000)),
    );
    cases.extend(Congestion::ALL.map(|sender| case("answered", sender, Length::Medium, true, MS * 10_000)));
    Experiment {
        name: "zero_window_probes",
        question: "When is a closed window probed, and with what?",
        set_up: "A bulk transfer with a round trip of 50 ms and a window of 64 segments. After 600 segments each ACK closes the \
                 window; all that is in flight arrives and is acknowledged. Answers come 50 ms after the probe.",
        measures: &[
            Measure { name: "first probe after (ms)", tolerance: Tolerance::Timer },
            Measure { name: "waits (ms)", tolerance: Tolerance::Timer },
            Measure { name: "without data", tolerance: Tolerance::Exact },
        ],
        cases,
        known: &[],
    }
}

fn give_up() -> Experiment {
    let case = |label: &str, length, answered, setup: Setup, span| {
        let freeze = Freeze { frozen: None, closing: Closing::Drained, answered, setup, span };
        Case::new(label, Congestion::Cubic, length, move |subject| {
            let observation = freeze.observe(subject)?;
            let (closed, times) = sent_while_closed(&observation)?;
            let ended = observation.ended.as_ref();
            Ok(vec![Value::Count(times.len() as i64), Value::between(closed - MS * 10, ended.map(|ended| ended.at))])
        })
    };
    let retries = |retries| Setup { retries2: Some(retries), ..Setup::default() };
    let patience = |millis| Setup { user_timeout: Some(MS * millis), ..Setup::default() };
    let cases = vec![
        case("tcp_retries2 = 3, unanswered", Length::Medium, false, retries(3), MS * 9_000),
        case("tcp_retries2 = 5, unanswered", Length::Medium, false, retries(5), MS * 26_000),
        case("tcp_retries2 = 3, answered", Length::Medium, true, retries(3), MS * 12_000),
        case("user timeout 2 s, unanswered", Length::Short, false, patience(2_000), MS * 6_000),
        case("user timeout 2 s, answered", Length::Short, true, patience(2_000), MS * 6_000),
    ];
    Experiment {
        name: "zero_window_give_up",
        question: "When is a connection given up whose window stays closed?",
        set_up: "As `zero_window_probes`. With the default, `tcp_retries2` = 15, the doublings up to 120 s add up to some 1016 s \
                 without an answer.",
        measures: &[
            Measure { name: "probes", tolerance: Tolerance::Exact },
            Measure { name: "given up after (ms)", tolerance: Tolerance::Timer },
        ],
        cases,
        known: &[
            Known { case: "user timeout 2 s, answered", measure: "given up after (ms)", why: LATE_PROBE },
            Known { case: "user timeout 2 s, unanswered", measure: "given up after (ms)", why: LATE_PROBE },
        ],
    }
}

/// Linux's timer wheel rounds a wait up by as much as an eighth.
const LATE_PROBE: &str = "Linux gives up when a probe is due; that one comes early, for the user timeout, or up to an eighth of each wait late.";

/// The measures around a freeze.
const FREEZE_MEASURES: &[Measure] = &[
    Measure { name: "first data (ms)", tolerance: Tolerance::Timer },
    Measure { name: "segments in 1 s", tolerance: Tolerance::Share { percent: 25.0, least: 8.0 } },
    Measure { name: "cwnd before", tolerance: Tolerance::Share { percent: 20.0, least: 4.0 } },
    Measure { name: "cwnd at thaw", tolerance: Tolerance::Share { percent: 20.0, least: 4.0 } },
    Measure { name: "ssthresh before", tolerance: Tolerance::Share { percent: 15.0, least: 2.0 } },
    Measure { name: "ssthresh at thaw", tolerance: Tolerance::Share { percent: 15.0, least: 2.0 } },
    Measure { name: "sent while closed", tolerance: Tolerance::Share { percent: 0.0, least: 1.0 } },
];

fn freeze_case(label: &str, sender: Congestion, freeze: Freeze) -> Case {
    let frozen = freeze.frozen.unwrap_or_default();
    let length = match frozen.as_secs() {
        0..=1 if sender == Congestion::Cubic => Length::Short,
        0..=10 => Length::Medium,
        _ => Length::Long,
    };
    Case::new(format!("{} s{label}", frozen.as_secs()), sender, length, move |subject| {
        let observation = freeze.observe(subject)?;
        let (_, times) = sent_while_closed(&observation)?;
        let up = observation.marked(UP)?;
        let wire = &observation.wire;
        let [before, at_thaw, ..] = wire.samples[..] else {
            return Err(TrialError::NotShown { what: "the state of the sender before and after the freeze" });
        };
        Ok(vec![
            Value::between(up, first_data(wire, up)),
            segments_in_1_s(wire, up),
            Value::Count(before.cwnd.into()),
            Value::Count(at_thaw.cwnd.into()),
            Value::count(before.ssthresh),
            Value::count(at_thaw.ssthresh),
            Value::Count(times.len() as i64),
        ])
    })
    .with_timers_running(frozen)
}

fn frozen_for(seconds: u64, closing: Closing, setup: Setup) -> Freeze {
    let frozen = Duration::from_secs(seconds);
    Freeze { frozen: Some(frozen), closing, answered: false, setup, span: frozen * 3 + Duration::from_secs(5) }
}

fn clean_freeze() -> Experiment {
    let mut cases = Vec::new();
    for seconds in [1, 10, 60] {
        for (label, is_on) in [("", true), (", slow start after idle off", false)] {
            let setup = Setup { slow_start_after_idle: Some(is_on), ..Setup::default() };
            let freeze = frozen_for(seconds, Closing::Drained, setup);
            cases.extend(Congestion::ALL.map(|sender| freeze_case(label, sender, freeze.clone())));
        }
    }
    Experiment {
        name: "clean_freeze",
        question: "What does a zero window leave behind when all data in flight is acknowledged before?",
        set_up: "As `zero_window_probes`; probes are lost. After the time that the case names the receiver opens the window by \
                 three ACKs. Segments count for 1 s from the first new data on. cwnd and ssthresh before are those of the stopped sender, those at the thaw are read 5 ms after it.",
        measures: FREEZE_MEASURES,
        cases,
        known: &[],
    }
}

fn dirty_freeze() -> Experiment {
    let mut cases = Vec::new();
    for seconds in [1, 3, 10, 60] {
        let freeze = frozen_for(seconds, Closing::Lossy, Setup::default());
        cases.extend(Congestion::ALL.map(|sender| freeze_case("", sender, freeze.clone())));
    }
    let freeze = frozen_for(3, Closing::LossyByDuplicate, Setup::default());
    cases.extend(Congestion::ALL.map(|sender| freeze_case(", closed by a duplicate ACK", sender, freeze.clone())));
    Experiment {
        name: "dirty_freeze",
        question: "What does a zero window do while data is in flight that is lost?",
        set_up: "As `clean_freeze`, but nothing arrives after the ACK that closes the window: it acknowledges something new, or it \
                 repeats the last one.",
        measures: FREEZE_MEASURES,
        cases,
        known: &[],
    }
}
