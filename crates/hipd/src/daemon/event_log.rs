//! The log of events of associations.

use holdover_base::Duration;
use holdover_hip::host::Event;

use crate::core::Note;

/// Logs an event of this host's identity, or of that of the host with this name.
pub(super) fn write_down(host: Option<&str>, note: &Note) {
    let _span = host.map(|name| tracing::info_span!("host", name).entered());
    match &note.event {
        Event::Established { peer, initiator } => tracing::info!(%peer, initiator, "association established"),
        Event::Failed { peer, reason } => tracing::warn!(%peer, %reason, "no association"),
        Event::Closed { peer } => tracing::info!(%peer, "association closed"),
        Event::Readdressed { peer, address } => match note.after {
            Some(after) => {
                tracing::info!(%peer, %address, after_ms = after.as_secs_f64() * 1e3, "the peer has verified this address")
            }
            None => tracing::debug!(%peer, %address, "the peer has verified this address"),
        },
        Event::PeerMoved { peer, address } => tracing::debug!(%peer, %address, "the peer has announced its address"),
        Event::PeerReaddressed { peer, address } => tracing::info!(%peer, %address, "the peer's address is verified"),
        Event::PathSilent { peer, between: (own, address), instead: Some((from, to)), is_presumed: true } => {
            tracing::info!(%peer, %own, %address, %from, %to, "another path has answered first");
        }
        Event::PathSilent { peer, between: (own, address), instead: Some((from, to)), .. } => {
            tracing::warn!(%peer, %own, %address, %from, %to, "nothing comes back on this path; another one answers");
        }
        Event::PathSilent { peer, between: (own, address), instead: None, .. } => {
            tracing::warn!(%peer, %own, %address, "nothing comes back on this path, and no other one answers");
        }
        Event::PathAnswers { peer, between: (own, address), after } => {
            tracing::info!(%peer, %own, %address, silent_s = after.map(Duration::as_secs_f64), "this path answers again");
        }
        Event::Rekeyed { peer } => tracing::info!(%peer, "keys changed"),
        Event::GaveUp { peer } => tracing::warn!(%peer, "no answer to UPDATE; retrying later"),
        Event::Registered { peer, services, lifetime, seen_at } => {
            tracing::info!(%peer, ?services, lifetime_s = lifetime.as_secs_f64(), ?seen_at, "registered");
        }
        Event::RegistrationFailed { peer, failure } => {
            tracing::warn!(%peer, failure, "the server has refused a service (RFC 8003 section 4.5)");
        }
        Event::PeerCandidate { peer, address, port } => {
            tracing::debug!(%peer, %address, port, "the relay has reported the peer's address");
        }
        Event::Nominated { peer, between: (own, address), port, is_relayed } => {
            tracing::info!(%peer, %own, %address, port, is_relayed, "connectivity checks have selected this path");
        }
        Event::ChecksFailed { peer } => {
            tracing::warn!(%peer, "no connectivity check was answered; data goes through a relay, if one forwards it");
        }
        Event::Answered { peer, call, .. } => tracing::info!(%peer, call, "this host has answered"),
        Event::Joined { peer, invitation, .. } => {
            tracing::info!(%peer, invitation, "the peer has accepted the invitation")
        }
        Event::Notified { peer, notification } => tracing::info!(%peer, ?notification, "NOTIFY"),
    }
}
