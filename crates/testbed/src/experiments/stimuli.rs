//! Packets that may wake a sender that has backed off.

use holdover_base::Duration;
use holdover_wire::Unreachable;

use super::action::LocalAction;
use super::experiment::{Case, Experiment, Known, Length};
use super::outage::{Echo, Hold, MEASURES, MS, Plan, Stimulus};
use crate::Congestion;

/// A number of ICMP errors that is enough for a sender that has backed off over tens of seconds.
const MANY: u32 = 12;
/// The default of `hold_back`.
pub(super) const HELD: Hold = Hold::Segments(4);

pub(super) fn experiments() -> Vec<Experiment> {
    vec![wake(), early_cut(), without_options(), lost_acks(), sack_hole(), unreachable_kinds(), local_actions()]
}

/// The name of an outage's length in the cases' labels.
fn outage_label(outage: Duration) -> String {
    let millis = outage.as_millis();
    if millis.is_multiple_of(1_000) {
        format!("{} s", millis / 1_000)
    } else {
        format!("{}.{} s", millis / 1_000, millis / 100 % 10)
    }
}

/// One case.
fn case(outage: Duration, sender: Congestion, plan: Plan, label: &str) -> Case {
    let length = if outage <= MS * 1_000 && sender == Congestion::Cubic { Length::Short } else { Length::Medium };
    let label = format!("{}: {label}", outage_label(outage));
    Case::new(label, sender, length, move |subject| plan.measure(subject)).with_timers_running(outage)
}

/// The stimuli for every sender and length: the data held back, and the packets after link-up.
fn greetings() -> Vec<(&'static str, Hold, Stimulus)> {
    vec![
        ("nothing", Hold::Nothing, Stimulus::Nothing),
        ("3 duplicate ACKs", Hold::Nothing, Stimulus::DuplicateAcks(3)),
        ("data", Hold::Nothing, Stimulus::Data),
        ("ICMP host unreachable x12", Hold::Nothing, Stimulus::Unreachables(MANY, Unreachable::Host)),
        ("1 byte held, stale ACK", Hold::OneByte, Stimulus::FullAck(Echo::Stale)),
        ("4 segments held, stale ACK", HELD, Stimulus::FullAck(Echo::Stale)),
        ("4 segments held, fresh ACK", HELD, Stimulus::FullAck(Echo::Fresh)),
        ("4 segments held, two steps, stale", HELD, Stimulus::TwoSteps(Echo::Stale)),
        ("4 segments held, two steps, fresh", HELD, Stimulus::TwoSteps(Echo::Fresh)),
        ("4 segments held, four steps, fresh", HELD, Stimulus::ManySteps(Echo::Fresh)),
        ("64 segments held, two steps, fresh", Hold::Segments(64), Stimulus::TwoSteps(Echo::Fresh)),
    ]
}

fn wake() -> Experiment {
    let mut cases = Vec::new();
    for (outage, senders) in
        [(MS * 1_000, &Congestion::ALL[..1]), (MS * 3_000, &Congestion::ALL), (MS * 7_000, &Congestion::ALL)]
    {
        for (label, hold, stimulus) in greetings() {
            cases.extend(senders.iter().map(|&sender| case(outage, sender, Plan::new(outage, hold, stimulus), label)));
        }
    }
    Experiment {
        name: "wake",
        question: "What does each kind of packet do to a sender that has backed off over an outage?",
        set_up: "A bulk transfer with a round trip of 50 ms, limited by a window of 64 segments. After 600 segments everything \
                 from the sender is lost for the length of the outage. ACKs are held back as the case says; all others arrive. At link-up the receiver sends what the case says, \
                 and from then on acknowledges everything. Times count from the arrival of that greeting at the sender: a \
                 sender that is awake at once has 0. Segments count for 1 s from the first new data on. The RTO is that of two round trips after the first new data in order, cwnd and ssthresh are \
                 those of one second after.",
        measures: MEASURES,
        cases,
        known: &[Known {
            case: "1 byte held",
            measure: "",
            why: "Linux sends again a full segment from the first unacknowledged byte on, and the release then lies inside it; the \
                  profiles send again what is left of the segment, one byte, which the release covers.",
        }],
    }
}

/// Outages shorter than the RTO, and outages of one RTO.
///
/// Those of some 250 to 450 ms are excluded. They end with a race of two timers, whose outcome sometimes differs with the kernel's coarser
/// timers: RACK's reordering timer, an eighth of the outage's addition to the round trip, against the first ACK after the greeting; and the
/// first RTO against the greeting.
fn early_cut() -> Experiment {
    let mut cases = Vec::new();
    for held in [1, 4] {
        let label = format!("{held} held, two steps, fresh");
        let plan = |outage| Plan::new(outage, Hold::Segments(held), Stimulus::TwoSteps(Echo::Fresh));
        for outage in [MS * 200, MS * 600] {
            cases.extend(Congestion::ALL.map(|sender| case(outage, sender, plan(outage), &label)));
        }
        let outage = MS * 200;
        let plan = Plan { by_congestion: true, ..plan(outage) };
        let label = format!("{label}, by cwnd");
        cases.extend(Congestion::ALL.map(|sender| case(outage, sender, plan.clone(), &label)));
    }
    Experiment {
        name: "short_cut",
        question: "Does a release in two steps wake the sender when it has only sent a tail loss probe, or one timeout, so far?",
        set_up: "As `wake`, with one or four segments held back. By cwnd: the receiver's window is not the limit, after a loss that has \
                 ended slow start, so that the probe can be new data.",
        measures: MEASURES,
        cases,
        known: &[
            Known { case: CUBIC_BY_CWND, measure: "first new data (ms)", why: ROOM_FOR_THE_PROBE },
            Known { case: CUBIC_BY_CWND, measure: "in order (ms)", why: ROOM_FOR_THE_PROBE },
            Known { case: CUBIC_BY_CWND, measure: "cwnd", why: ROOM_FOR_THE_PROBE },
        ],
    }
}

const CUBIC_BY_CWND: &str = "1 held, two steps, fresh, by cwnd, cubic";
const ROOM_FOR_THE_PROBE: &str = "Whether CUBIC's window has room for new data as the loss probe differs from run to run in Linux: without, the \
                                  sender goes on at once (cwnd 76 to 81), and with it, as the profile, at its timer (cwnd 122).";

fn without_options() -> Experiment {
    let outage = MS * 3_000;
    let mut cases = Vec::new();
    for (option, sack, timestamps) in [("no timestamps", true, false), ("no SACK", false, true)] {
        for (label, hold, stimulus) in [
            ("nothing", Hold::Nothing, Stimulus::Nothing),
            ("3 duplicate ACKs", Hold::Nothing, Stimulus::DuplicateAcks(3)),
            ("4 segments held, two steps", HELD, Stimulus::TwoSteps(Echo::Fresh)),
        ] {
            let plan = Plan { sack, timestamps, ..Plan::new(outage, hold, stimulus) };
            let label = format!("{option}, {label}");
            cases.extend(Congestion::ALL.map(|sender| case(outage, sender, plan.clone(), &label)));
        }
    }
    Experiment {
        name: "wake_without_options",
        question: "And where the peer offers no timestamps, or no SACK?",
        set_up: "As `wake`.",
        measures: MEASURES,
        cases,
        known: &[],
    }
}

fn lost_acks() -> Experiment {
    let outage = MS * 3_000;
    let mut cases = Vec::new();
    for (label, stimulus) in [
        ("two steps, fresh", Stimulus::TwoSteps(Echo::Fresh)),
        ("one fresh ACK", Stimulus::FullAck(Echo::Fresh)),
        ("ladder, fresh", Stimulus::Ladder(Echo::Fresh)),
    ] {
        let plan = Plan { lost_acks: 3, ..Plan::new(outage, HELD, stimulus) };
        let label = format!("4 held, 3 ACKs lost, {label}");
        cases.extend(Congestion::ALL.map(|sender| case(outage, sender, plan.clone(), &label)));
    }
    let pending = Plan::new(outage, Hold::Segments(1), Stimulus::Unreachables(MANY, Unreachable::Host));
    cases.extend(
        Congestion::ALL.map(|sender| case(outage, sender, pending.clone(), "1 held, ICMP host unreachable x12")),
    );
    let pending = Plan { by_congestion: true, ..pending };
    cases.extend(
        Congestion::ALL
            .map(|sender| case(outage, sender, pending.clone(), "1 held, ICMP host unreachable x12, by cwnd")),
    );
    let copies =
        Plan { lost_acks: 1, by_congestion: true, ..Plan::new(outage, Hold::Nothing, Stimulus::DuplicateAcks(3)) };
    cases.extend(
        Congestion::ALL.map(|sender| case(outage, sender, copies.clone(), "1 ACK lost, three copies of it, by cwnd")),
    );
    Experiment {
        name: "wake_after_lost_acks",
        question: "What if the receiver's last ACKs had died with the link, so that one byte more is not in the sender's first \
                   outstanding segment?",
        set_up: "As `wake`. The receiver's last three ACKs are lost. The ladder has one ACK for each of them, of one byte more. With ICMP errors, \
                 the receiver still owes the ACK of the segment that is sent again. By cwnd: as in `short_cut`.",
        measures: MEASURES,
        cases,
        known: &[Known {
            case: "ladder, fresh, bbr",
            measure: "RTO (ms)",
            why: "The ladder's ACKs give round-trip samples as long as the outage. With BBR, Linux's RTO was 3.1 s in each of three runs by \
                  themselves, as the profile's, and 5.0 s beside fifteen other cases.",
        }],
    }
}

fn sack_hole() -> Experiment {
    let outage = MS * 3_000;
    let mut cases = Vec::new();
    for (label, stimulus) in [
        ("nothing", Stimulus::Nothing),
        ("ACK with SACK", Stimulus::Sack),
        ("ICMP host unreachable x12", Stimulus::Unreachables(MANY, Unreachable::Host)),
    ] {
        // All ACKs after the hole are lost, so that the sender does not learn of it.
        let plan = Plan { hole: Some(6), lost_acks: 6, ..Plan::new(outage, Hold::Nothing, stimulus) };
        cases.extend(Congestion::ALL.map(|sender| case(outage, sender, plan.clone(), &format!("a hole, {label}"))));
    }
    Experiment {
        name: "wake_with_a_hole",
        question: "What if a segment was lost just before the cut, so that nothing can be acknowledged but by SACK?",
        set_up: "As `wake`. The seventh segment from the end is lost, and so are the duplicate ACKs for those behind it.",
        measures: MEASURES,
        cases,
        known: &[Known {
            case: "ACK with SACK",
            measure: "",
            why: "After the spurious undo and the timeout that repairs it, Linux does not send the segment of the loss probe again \
                  before another timeout of 3 s; the profiles send it with the others.",
        }],
    }
}

fn unreachable_kinds() -> Experiment {
    let outage = MS * 3_000;
    let mut cases = Vec::new();
    for (label, stimulus) in [
        ("host unreachable x1", Stimulus::Unreachables(1, Unreachable::Host)),
        ("host unreachable x3", Stimulus::Unreachables(3, Unreachable::Host)),
        ("network unreachable x12", Stimulus::Unreachables(MANY, Unreachable::Network)),
        ("port unreachable x12", Stimulus::Unreachables(MANY, Unreachable::Port)),
        ("administratively prohibited x12", Stimulus::Unreachables(MANY, Unreachable::AdministrativelyProhibited)),
        ("host unreachable x12, quoting later data", Stimulus::UnreachablesOfLater(MANY)),
    ] {
        let plan = Plan::new(outage, Hold::Nothing, stimulus);
        cases.push(case(outage, Congestion::Cubic, plan, label));
    }
    Experiment {
        name: "unreachable",
        question: "Which ICMP errors take back doublings of the timeout (RFC 6069), and how many does each take?",
        set_up: "As `wake`; errors 1 ms apart.",
        measures: MEASURES,
        cases,
        known: &[],
    }
}

fn local_actions() -> Experiment {
    let outage = MS * 3_000;
    let actions = [
        LocalAction::Repair,
        LocalAction::RtoMax(MS * 1_000),
        LocalAction::UserTimeout(MS * 30_000),
        LocalAction::UserTimeout(MS * 2_000),
        LocalAction::NoDelay,
        LocalAction::Congestion(Congestion::Reno),
    ];
    let mut cases = Vec::new();
    for action in actions {
        for sender in [Congestion::Cubic, Congestion::Bbr] {
            let plan = Plan::new(outage, Hold::Nothing, Stimulus::Local(action));
            if action == LocalAction::Repair {
                let plan = Plan { lost_acks: 3, ..plan.clone() };
                cases.push(case(outage, sender, plan, &format!("{action}, 3 ACKs lost")).of_kernel_only());
            }
            cases.push(case(outage, sender, plan, &action.to_string()).of_kernel_only());
        }
    }
    Experiment {
        name: "local_actions",
        question: "What can the sender's own host do to the socket at link-up?",
        set_up: "As `wake`, with a socket option in place of a packet. Only a kernel has these.",
        measures: MEASURES,
        cases,
        known: &[],
    }
}
