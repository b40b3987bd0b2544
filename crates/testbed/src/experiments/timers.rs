//! The retransmission timer: its backoff, its ceiling, and when TCP gives up.

use holdover_base::{Duration, Instant};

use super::Tolerance;
use super::experiment::{Case, Experiment, Length, Measure, Value};
use super::outage::{MS, RTT};
use super::peer::{Happening, Wire};
use super::subject::{Observation, RtoMax, Setup, Subject, TrialError, run};
use crate::Congestion;

pub(super) fn experiments() -> Vec<Experiment> {
    vec![backoff(), give_up()]
}

/// Five segments that are acknowledged and a sixth that is not, 100 ms apart.
fn single_writes() -> Vec<(Duration, usize)> {
    (0..ACKED + 1).map(|n| (MS * 10 + RTT * 2 * n, 1_000)).collect()
}

const ACKED: u64 = 5;

/// Runs with the segment that is never acknowledged.
fn unacknowledged(subject: Subject<'_>, setup: &Setup, span: Duration) -> Result<Observation, TrialError> {
    let setup = Setup { writes: single_writes(), nodelay: true, ..setup.clone() };
    let mut left = ACKED;
    let script = move |wire: &mut Wire, happening: Happening<'_>| {
        if let Happening::Segment(segment) = happening
            && !segment.payload.is_empty()
        {
            if left > 0 {
                wire.acknowledge();
            }
            left = left.saturating_sub(1);
        }
    };
    run(subject, &setup, span, |wire| wire.rtt = RTT, script)
}

/// The times at which the unacknowledged segment and its copies were sent.
fn copies(observation: &Observation) -> Vec<Instant> {
    observation.wire.data().iter().skip(ACKED as usize).map(|seen| seen.at).collect()
}

fn backoff() -> Experiment {
    let case = |label: &str, sender, length, setup: Setup, span: Duration| {
        Case::new(label, sender, length, move |subject| {
            Ok(vec![Value::gaps(&copies(&unacknowledged(subject, &setup, span)?))])
        })
    };
    let plain = Setup::default;
    let with_max = |rto_max| Setup { rto_max: Some(rto_max), ..Setup::default() };
    let mut cases: Vec<Case> =
        Congestion::ALL.map(|sender| case("", sender, Length::Medium, plain(), MS * 17_500)).into();
    for (label, max, span) in [
        ("tcp_rto_max_ms = 1000", RtoMax::Host(MS * 1_000), MS * 4_900),
        ("TCP_RTO_MAX_MS = 1000", RtoMax::Socket(MS * 1_000), MS * 4_900),
        ("TCP_RTO_MAX_MS = 3000", RtoMax::Socket(MS * 3_000), MS * 14_500),
    ] {
        let length = if span < MS * 10_000 { Length::Short } else { Length::Medium };
        cases.push(case(label, Congestion::Cubic, length, with_max(max), span));
    }
    cases.push(case("up to the default ceiling", Congestion::Cubic, Length::Long, plain(), MS * 640_000));
    Experiment {
        name: "rto_backoff",
        question: "When is a segment sent again that nobody acknowledges, and how long do the waits become?",
        set_up: "Five segments that are acknowledged after 50 ms, 100 ms apart; a sixth that is not. The first copy is a tail \
                 loss probe.",
        measures: &[Measure { name: "waits (ms)", tolerance: Tolerance::Timer }],
        cases,
        known: &[],
    }
}

fn give_up() -> Experiment {
    let case = |label: &str, sender, span: Duration, setup: Setup| {
        let length = if span <= MS * 5_000 { Length::Short } else { Length::Medium };
        Case::new(label, sender, length, move |subject| {
            let observation = unacknowledged(subject, &setup, span)?;
            let copies = copies(&observation);
            let first = *copies.first().ok_or(TrialError::NotShown { what: "data that is not acknowledged" })?;
            let ended = observation.ended.as_ref();
            Ok(vec![
                Value::Count(copies.len() as i64 - 1),
                Value::between(first, ended.map(|ended| ended.at)),
                Value::Flag(ended.is_some_and(|ended| ended.timed_out)),
            ])
        })
    };
    let retries = |retries| Setup { retries2: Some(retries), ..Setup::default() };
    let patience = |millis| Setup { user_timeout: Some(MS * millis), ..Setup::default() };
    let max = Some(RtoMax::Socket(MS * 1_000));
    let cubic = Congestion::Cubic;
    let cases = vec![
        case("tcp_retries2 = 3", cubic, MS * 5_000, retries(3)),
        case("tcp_retries2 = 5", cubic, MS * 21_000, retries(5)),
        case("tcp_retries2 = 5", Congestion::Reno, MS * 21_000, retries(5)),
        case("tcp_retries2 = 5", Congestion::Bbr, MS * 21_000, retries(5)),
        case("user timeout 1.5 s", cubic, MS * 5_000, patience(1_500)),
        case("user timeout 6 s", cubic, MS * 9_000, patience(6_000)),
        case("user timeout 6 s, tcp_retries2 = 3", cubic, MS * 9_000, Setup { retries2: Some(3), ..patience(6_000) }),
        case("TCP_RTO_MAX_MS = 1000", cubic, MS * 19_000, Setup { rto_max: max, ..Setup::default() }),
        case("TCP_RTO_MAX_MS = 1000, tcp_retries2 = 5", cubic, MS * 9_000, Setup { rto_max: max, ..retries(5) }),
        case(
            "TCP_RTO_MAX_MS = 1000, user timeout 20 s",
            cubic,
            MS * 23_000,
            Setup { rto_max: max, ..patience(20_000) },
        ),
    ];
    Experiment {
        name: "give_up",
        question: "When does a sender give up that hears nothing?",
        set_up: "As `rto_backoff`, with other limits. Times count from when the segment was first sent. The default, \
                 `tcp_retries2` = 15 under a ceiling of 120 s, takes too long to be tried: by the rule that these rows show (as \
                 long as so many retransmissions would take from an RTO of 200 ms on, noticed when the timer runs out next) it \
                 is 924.6 s at least.",
        measures: &[
            Measure { name: "copies", tolerance: Tolerance::Exact },
            Measure { name: "given up after (ms)", tolerance: Tolerance::Timer },
            Measure { name: "timed out", tolerance: Tolerance::Exact },
        ],
        cases,
        known: &[],
    }
}
