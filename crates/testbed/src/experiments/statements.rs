//! Assumptions of the mechanisms: statements about real kernels, judged only by the kernel's values.

use super::compare::CaseResult;
use super::experiment::{Case, Experiment, Value};
use crate::Congestion;

/// A statement about the behaviour of a kernel's TCP.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// The statement.
    pub says: &'static str,
    judge: fn(&Evidence<'_>) -> Option<Judgement>,
}

/// The judgement of a statement by the experiments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judgement {
    /// Whether it held in every relevant case.
    pub confirmed: bool,
    /// The relevant values.
    pub shown: String,
}

/// The results of a run, for look-ups.
#[derive(Debug, Default)]
pub struct Evidence<'a>(Vec<(&'a Experiment, &'a Case, &'a CaseResult)>);

impl<'a> Evidence<'a> {
    /// Adds the result of a case.
    pub fn add(&mut self, experiment: &'a Experiment, case: &'a Case, result: &'a CaseResult) {
        self.0.push((experiment, case, result));
    }

    /// A measured value of the kernel.
    fn value(&self, experiment: &str, label: &str, sender: Congestion, measure: &str) -> Option<&'a Value> {
        let is_meant = |(of, case, _): &&(&Experiment, &Case, &CaseResult)| {
            of.name == experiment && case.label == label && case.sender == sender
        };
        let (of, _, result) = self.0.iter().find(is_meant)?;
        let index = of.measures.iter().position(|one| one.name == measure)?;
        result.kernel.get(index)
    }
}

impl Statement {
    /// Judges the statement; `None` if the relevant experiments were not run.
    pub fn judge(&self, evidence: &Evidence<'_>) -> Option<Judgement> {
        (self.judge)(evidence)
    }
}

const IN_ORDER: &str = "in order (ms)";
const UNDONE: &str = "undone";
const RTO: &str = "RTO (ms)";
const LOSSY: &[Congestion] = &[Congestion::Cubic, Congestion::Reno];

/// Looks up one measure in several cases, for several senders, and judges each value.
fn all(
    evidence: &Evidence<'_>,
    experiment: &str,
    labels: &[&str],
    senders: &[Congestion],
    measure: &str,
    holds: impl Fn(&Value) -> bool,
) -> Option<Judgement> {
    let mut judgement = Judgement { confirmed: true, shown: String::new() };
    for label in labels {
        let mut shown = Vec::new();
        for &sender in senders {
            // A kernel without this congestion control gives no evidence.
            let Some(value) = evidence.value(experiment, label, sender, measure) else { continue };
            judgement.confirmed &= holds(value);
            shown.push(format!("{} {value}", sender.name()));
        }
        if shown.is_empty() {
            return None;
        }
        if !judgement.shown.is_empty() {
            judgement.shown += "; ";
        }
        judgement.shown += &format!("{label}: {measure} {}", shown.join(", "));
    }
    Some(judgement)
}

/// Combines two judgements.
fn both(first: Option<Judgement>, second: Option<Judgement>) -> Option<Judgement> {
    let (first, second) = (first?, second?);
    Some(Judgement {
        confirmed: first.confirmed && second.confirmed,
        shown: format!("{}; {}", first.shown, second.shown),
    })
}

fn at_once(value: &Value) -> bool {
    matches!(value, Value::Millis(millis) if *millis < 45.0)
}

/// Data waits for a timer that has backed off.
fn late(value: &Value) -> bool {
    matches!(value, Value::Millis(millis) if *millis > 500.0)
}

fn is(expected: bool) -> impl Fn(&Value) -> bool {
    move |value| *value == Value::Flag(expected)
}

fn between(least: f64, most: f64) -> impl Fn(&Value) -> bool {
    move |value| value.number().is_some_and(|number| (least..=most).contains(&number))
}

/// All statements, in the order of the page.
pub const STATEMENTS: &[Statement] = &[
    Statement {
        says: "Nothing and pure duplicate ACKs leave a sender that has backed off, with SACK, waiting for its timer; so does data with nothing \
               new to acknowledge.",
        judge: |evidence| {
            let labels = ["3 s: nothing", "3 s: 3 duplicate ACKs", "3 s: data", "7 s: 3 duplicate ACKs"];
            all(evidence, "wake", &labels, &Congestion::ALL, IN_ORDER, late)
        },
    },
    Statement {
        says: "A new ACK with a stale timestamp is taken for the proof of a spurious timeout (Eifel), and the sender counts lost \
               data as in flight again.",
        judge: |evidence| {
            let labels = ["3 s: 1 byte held, stale ACK", "3 s: 4 segments held, stale ACK"];
            all(evidence, "wake", &labels, &Congestion::ALL, UNDONE, is(true))
        },
    },
    Statement {
        says: "If that ACK is of one byte, it makes no room for new data, and CUBIC and Reno wait for their timer again.",
        judge: |evidence| {
            let labels = ["3 s: 1 byte held, stale ACK", "7 s: 1 byte held, stale ACK"];
            all(evidence, "wake", &labels, LOSSY, IN_ORDER, late)
        },
    },
    Statement {
        says: "A fresh timestamp alone does not help: an ACK of whole segments that were never sent again is F-RTO's proof.",
        judge: |evidence| {
            let labels = ["3 s: 4 segments held, fresh ACK", "7 s: 4 segments held, fresh ACK"];
            all(evidence, "wake", &labels, &Congestion::ALL, UNDONE, is(true))
        },
    },
    Statement {
        says: "An ACK of one byte and then the full one, with a fresh timestamp, wake the sender at once, and nothing is undone.",
        judge: |evidence| {
            let labels = ["3 s: 4 segments held, two steps, fresh", "7 s: 4 segments held, two steps, fresh"];
            let of = |measure, holds: &dyn Fn(&Value) -> bool| {
                all(evidence, "wake", &labels, &Congestion::ALL, measure, holds)
            };
            both(of(IN_ORDER, &at_once), of(UNDONE, &is(false)))
        },
    },
    Statement {
        says: "After a cut that is shorter than the timeout, the same release need not do with one segment held: the tail loss \
               probe, if it was new data, has used its place (Reno).",
        judge: |evidence| {
            let label = ["0.2 s: 1 held, two steps, fresh, by cwnd"];
            all(evidence, "short_cut", &label, &[Congestion::Reno], IN_ORDER, between(100.0, 1e6))
        },
    },
    Statement {
        says: "It does with four.",
        judge: |evidence| {
            let labels = ["0.2 s: 4 held, two steps, fresh", "0.2 s: 4 held, two steps, fresh, by cwnd"];
            all(evidence, "short_cut", &labels, &Congestion::ALL, IN_ORDER, between(0.0, 60.0))
        },
    },
    Statement {
        says: "A release in more than two steps gives round-trip samples as long as the outage.",
        judge: |evidence| {
            let of =
                |label, holds: &dyn Fn(&Value) -> bool| all(evidence, "wake", &[label], &Congestion::ALL, RTO, holds);
            both(
                of("7 s: 4 segments held, four steps, fresh", &between(1_000.0, 1e6)),
                of("7 s: 4 segments held, two steps, fresh", &between(200.0, 400.0)),
            )
        },
    },
    Statement {
        says: "Holding back all ACKs for a window, and the same release, wake the sender with the rate that it had.",
        judge: |evidence| {
            let labels = ["3 s: 64 segments held, two steps, fresh", "7 s: 64 segments held, two steps, fresh"];
            let of = |measure, holds: &dyn Fn(&Value) -> bool| {
                all(evidence, "wake", &labels, &Congestion::ALL, measure, holds)
            };
            both(of(IN_ORDER, &at_once), of("segments in 1 s", &between(1_200.0, 1_300.0)))
        },
    },
    Statement {
        says: "If the receiver's last ACKs were lost, one byte more is not inside the sender's first segment any more, and the \
               timeout is undone; a ladder over the ACKs that may be lost helps.",
        judge: |evidence| {
            let name = "wake_after_lost_acks";
            let of = |label, measure, holds: &dyn Fn(&Value) -> bool| {
                all(evidence, name, &[label], &Congestion::ALL, measure, holds)
            };
            let ladder = "3 s: 4 held, 3 ACKs lost, ladder, fresh";
            both(
                of("3 s: 4 held, 3 ACKs lost, two steps, fresh", UNDONE, &is(true)),
                both(of(ladder, UNDONE, &is(false)), of(ladder, IN_ORDER, &at_once)),
            )
        },
    },
    Statement {
        says: "Copies of a last ACK that was lost are news with a stale timestamp, and do not wake CUBIC and Reno, limited by cwnd, either.",
        judge: |evidence| {
            let label = ["3 s: 1 ACK lost, three copies of it, by cwnd"];
            all(evidence, "wake_after_lost_acks", &label, LOSSY, IN_ORDER, late)
        },
    },
    Statement {
        says: "After a hole at the cut, an ACK with SACK blocks does harm: a spurious undo, and a wait longer than without it.",
        judge: |evidence| {
            let name = "wake_with_a_hole";
            let of = |label, holds: &dyn Fn(&Value) -> bool| {
                all(evidence, name, &[label], &Congestion::ALL, IN_ORDER, holds)
            };
            both(
                of("3 s: a hole, ACK with SACK", &between(2_000.0, 1e6)),
                of("3 s: a hole, nothing", &between(0.0, 1_500.0)),
            )
        },
    },
    Statement {
        says: "ICMP host unreachable, twelve times, quoting the first outstanding byte, undoes the backoff and wakes the sender (RFC \
               6069), also over a hole.",
        judge: |evidence| {
            let of = |name, labels: &[&str]| all(evidence, name, labels, &Congestion::ALL, IN_ORDER, at_once);
            both(
                of("wake", &["3 s: ICMP host unreachable x12", "7 s: ICMP host unreachable x12"]),
                of("wake_with_a_hole", &["3 s: a hole, ICMP host unreachable x12"]),
            )
        },
    },
    Statement {
        says: "But not CUBIC and Reno, limited by cwnd, if the receiver still owed the ACK of the segment that is sent again: the ACK that \
               answers it looks like the proof of a spurious timeout, and the window is full of lost data.",
        judge: |evidence| {
            let label = ["3 s: 1 held, ICMP host unreachable x12, by cwnd"];
            all(evidence, "wake_after_lost_acks", &label, LOSSY, IN_ORDER, late)
        },
    },
    Statement {
        says: "If the network has held everything, data flows by itself and the timeout is undone.",
        judge: |evidence| {
            let of = |measure, holds: &dyn Fn(&Value) -> bool| {
                all(evidence, "late_window", &["3 s"], &Congestion::ALL, measure, holds)
            };
            both(of(IN_ORDER, &between(0.0, 80.0)), of(UNDONE, &is(true)))
        },
    },
    Statement {
        says: "Without timestamps the release in two steps works, too; without SACK as well.",
        judge: |evidence| {
            let labels = ["3 s: no timestamps, 4 segments held, two steps", "3 s: no SACK, 4 segments held, two steps"];
            all(evidence, "wake_without_options", &labels, &Congestion::ALL, IN_ORDER, at_once)
        },
    },
    Statement {
        says: "But without timestamps the timeout stays backed off.",
        judge: |evidence| {
            let labels = ["3 s: no timestamps, 4 segments held, two steps"];
            all(evidence, "wake_without_options", &labels, &Congestion::ALL, RTO, between(400.0, 1e6))
        },
    },
    Statement {
        says: "After a clean freeze data flows at once. cwnd decays with slow start after idle, and is kept without; ssthresh is kept.",
        judge: |evidence| {
            let (on, off) = ("10 s", "10 s, slow start after idle off");
            let of = |label, senders: &[Congestion], measure, holds: &dyn Fn(&Value) -> bool| {
                all(evidence, "clean_freeze", &[label], senders, measure, holds)
            };
            both(
                of(on, &Congestion::ALL, "first data (ms)", &at_once),
                both(
                    of(on, LOSSY, "cwnd at thaw", &between(1.0, 40.0)),
                    both(
                        of(off, LOSSY, "cwnd at thaw", &between(100.0, 1e6)),
                        of(on, LOSSY, "ssthresh at thaw", &|value| *value == Value::Nothing),
                    ),
                ),
            )
        },
    },
    Statement {
        says: "BBR keeps its estimate over a clean freeze.",
        judge: |evidence| {
            let bbr = &[Congestion::Bbr];
            all(evidence, "clean_freeze", &["1 s", "10 s"], bbr, "segments in 1 s", between(1_000.0, 1e6))
        },
    },
    Statement {
        says: "A zero window over data that is lost cuts ssthresh with every timeout, whether an ACK of something new closes it or a \
               duplicate.",
        judge: |evidence| {
            let labels = ["3 s", "3 s, closed by a duplicate ACK"];
            all(evidence, "dirty_freeze", &labels, LOSSY, "ssthresh at thaw", between(2.0, 2.0))
        },
    },
    Statement {
        says: "A closed window whose probes nobody answers is the end after as many probes as `tcp_retries2`; answers keep the \
               connection alive, but not beyond a user timeout.",
        judge: |evidence| {
            let of = |label, holds: &dyn Fn(&Value) -> bool| {
                all(evidence, "zero_window_give_up", &[label], &LOSSY[..1], "given up after (ms)", holds)
            };
            both(
                of("tcp_retries2 = 5, unanswered", &between(15_000.0, 21_000.0)),
                both(
                    of("tcp_retries2 = 3, answered", &|value| *value == Value::Nothing),
                    of("user timeout 2 s, answered", &between(1_900.0, 2_800.0)),
                ),
            )
        },
    },
    Statement {
        says: "A smaller ceiling of the timeout shortens the time after which the connection is given up: 15 s with 1 s.",
        judge: |evidence| {
            let label = ["TCP_RTO_MAX_MS = 1000"];
            all(evidence, "give_up", &label, &LOSSY[..1], "given up after (ms)", between(14_000.0, 17_000.0))
        },
    },
    Statement {
        says: "At link-up, a smaller ceiling, a longer user timeout, `TCP_NODELAY` or another congestion control do not shorten a \
               timer that runs.",
        judge: |evidence| {
            let labels = [
                "3 s: TCP_RTO_MAX_MS = 1000",
                "3 s: TCP_USER_TIMEOUT = 30000 ms",
                "3 s: TCP_NODELAY off and on",
                "3 s: TCP_CONGESTION = reno",
            ];
            all(evidence, "local_actions", &labels, &[Congestion::Cubic, Congestion::Bbr], IN_ORDER, late)
        },
    },
    Statement {
        says: "A user timeout that has passed already ends the connection when it is set.",
        judge: |evidence| {
            let label = ["3 s: TCP_USER_TIMEOUT = 2000 ms"];
            let senders = [Congestion::Cubic, Congestion::Bbr];
            all(evidence, "local_actions", &label, &senders, IN_ORDER, |value| *value == Value::Nothing)
        },
    },
    Statement {
        says: "`TCP_REPAIR` on and off wakes a sender whose peer's last ACKs were lost: it sends an empty segment, and the answer is new.",
        judge: |evidence| {
            let label = ["3 s: TCP_REPAIR on and off, 3 ACKs lost"];
            let senders = [Congestion::Cubic, Congestion::Bbr];
            all(evidence, "local_actions", &label, &senders, IN_ORDER, between(0.0, 120.0))
        },
    },
];
