//! The survey of a table of flows.

use std::net::IpAddr;

use holdover_base::Instant;
use holdover_filter::Connection;
use holdover_flow::Flow;

use super::observed::{Survey, Unanswered};

/// The most own addresses of connections with unacknowledged data in a survey: probes are sent from each of them.
const MOST_OWN_ADDRESSES: usize = 4;

/// A survey under way: [`Self::note`] for each flow, then [`Self::finish`].
#[derive(Clone, Default, Debug)]
pub struct Surveyor {
    survey: Survey,
    /// The connection heard last in each IP version.
    latest: [Option<(Instant, IpAddr)>; 2],
}

impl Surveyor {
    /// Notes a flow. `is_sent_again`: the host has sent its first unacknowledged data again, and they are short; asked only if there are
    /// unacknowledged data.
    pub fn note(&mut self, connection: Connection, flow: &Flow, is_sent_again: impl FnOnce() -> bool) {
        let Self { survey, latest } = self;
        survey.connections += 1;
        let is_of_no_use = flow.is_over() || flow.is_unanswered() || flow.is_exempt();
        if is_of_no_use {
            return;
        }
        let own = connection.local.ip();
        let latest = &mut latest[usize::from(own.is_ipv6())];
        *latest = (*latest).max(flow.heard_at().map(|at| (at, own)));
        if flow.heard_at() > survey.heard_at {
            (survey.heard_at, survey.recent) = (flow.heard_at(), Some(connection));
            survey.round_trip = flow.smoothed_round_trip().unwrap_or_default();
        }
        if flow.awaits_ack() {
            let (heard_at, round_trip) = (flow.heard_at(), flow.smoothed_round_trip());
            survey.unanswered.push(Unanswered { connection, heard_at, round_trip, is_sent_again: is_sent_again() });
            if survey.own_addresses.len() < MOST_OWN_ADDRESSES {
                survey.own_addresses.insert(own);
            }
        }
    }

    /// The survey of the flows noted.
    pub fn finish(self) -> Survey {
        let Self { mut survey, latest } = self;
        survey.own_addresses.extend(latest.into_iter().flatten().map(|(_, own)| own));
        survey
    }
}
