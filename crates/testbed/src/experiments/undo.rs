//! Spurious timeouts.

use super::experiment::{Case, Experiment, Known, Length};
use super::outage::{Hold, MEASURES, MS, Plan, Stimulus};
use crate::Congestion;

pub(super) fn experiments() -> Vec<Experiment> {
    let mut cases = Vec::new();
    for (outage, label) in [(MS * 600, "0.6 s"), (MS * 3_000, "3 s")] {
        for (options, sack, timestamps) in [
            ("", true, true),
            (", no timestamps", true, false),
            (", no SACK", false, true),
            (", neither", false, false),
        ] {
            let plan =
                Plan { network_holds: true, sack, timestamps, ..Plan::new(outage, Hold::Nothing, Stimulus::Nothing) };
            for sender in Congestion::ALL {
                let is_short = outage < MS * 1_000 && sender == Congestion::Cubic;
                let length = if is_short { Length::Short } else { Length::Medium };
                let plan = plan.clone();
                cases
                    .push(Case::new(format!("{label}{options}"), sender, length, move |subject| plan.measure(subject)));
            }
        }
    }
    vec![Experiment {
        name: "late_window",
        question: "What if nothing was lost: the network has held everything, and delivers it when the link is back (Eifel, F-RTO)?",
        set_up: "As `wake`, but all that was sent during the outage, retransmissions included, arrives at link-up and is \
                 acknowledged 50 ms later, segment by segment.",
        measures: MEASURES,
        cases,
        known: &[
            Known { case: "3 s, no SACK, cubic", measure: "cwnd", why: UNDONE_AGAIN },
            Known { case: "3 s, no SACK, cubic", measure: "ssthresh", why: UNDONE_AGAIN },
            Known { case: "3 s, no SACK, reno", measure: "cwnd", why: UNDONE_AGAIN },
            Known { case: "3 s, no SACK, reno", measure: "ssthresh", why: UNDONE_AGAIN },
        ],
    }]
}

const UNDONE_AGAIN: &str = "Four duplicate ACKs lead to a fast retransmit 51 ms after the return. In three of six runs Linux undid it with every ACK that \
                            followed (66 undos in all) and kept its window; in the others, as in the profiles, there were two undos, and the \
                            window stayed reduced.";
