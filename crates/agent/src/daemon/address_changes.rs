//! The addresses that this host has lost: connections on them are not woken, and ended if they are gone for good
//! (`[connections] address_gone = "end"`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use holdover_base::Instant;
use holdover_mobility::Connection;

use crate::config::{AddressGone, Config, Time};
use crate::link_watch::kernel::Interfaces;
use crate::link_watch::lost_addresses::LostAddresses;
use crate::sockets::{SocketDiag, SocketDiagError, TcpSocket};
use crate::status::ActionLine;
use holdover_host::clock::Utc;
use holdover_host::log::with_causes;

/// The lost addresses of this host.
#[derive(Default)]
pub(super) struct AddressChanges {
    lost: LostAddresses,
    /// Those last reported to the engines.
    absent: BTreeSet<IpAddr>,
    has_complained: bool,
}

/// The mechanism's name in reports.
const MECHANISM: &str = "address_gone";

impl AddressChanges {
    /// Handles a change of addresses. Returns the lost ones if these have changed.
    pub(super) fn handle_interfaces(&mut self, now: Instant, interfaces: &Interfaces) -> Option<&BTreeSet<IpAddr>> {
        self.lost.handle_addresses(now, interfaces.all_addresses());
        let absent: BTreeSet<IpAddr> = self.lost.absent().collect();
        let has_changed = absent != self.absent;
        self.absent = absent;
        has_changed.then_some(&self.absent)
    }

    /// When [`Self::handle_timeout`] is due.
    pub(super) fn poll_timeout(&self, config: &Config) -> Option<Instant> {
        let Time(grace) = config.connections.address_grace;
        self.lost.poll_timeout(grace).filter(|_| config.connections.address_gone == AddressGone::End)
    }

    /// Ends connections whose time has come, except exempt ones; returns the actions.
    pub(super) fn handle_timeout(
        &mut self,
        (now, utc): (Instant, Utc),
        config: &Config,
        left_alone: &BTreeSet<Connection>,
        dry_run: bool,
    ) -> Vec<ActionLine> {
        if self.poll_timeout(config).is_none_or(|at| at > now) {
            return Vec::new();
        }
        let Time(grace) = config.connections.address_grace;
        let gone = self.lost.take_given_up(now, grace);
        let ended = end(&gone, left_alone, dry_run).unwrap_or_else(|error| {
            if !std::mem::replace(&mut self.has_complained, true) {
                tracing::error!(error = with_causes(&error), "cannot end connections whose address is gone");
            }
            Vec::new()
        });
        let gone = gone.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        tracing::info!(addresses = gone, connections = ended.len(), dry_run, "ended connections whose address is gone");
        let line = |connection: Connection| ActionLine {
            time: utc.0.as_secs_f64(),
            interface: String::new(),
            local: connection.local,
            remote: connection.remote,
            mechanism: MECHANISM.to_owned(),
            what: if dry_run { "would end it" } else { "ended: its address is gone" }.to_owned(),
            outcome: None,
            saved_s: None,
        };
        ended.into_iter().map(line).collect()
    }
}

/// Ends the connections on these addresses; returns them.
fn end(
    addresses: &[IpAddr],
    left_alone: &BTreeSet<Connection>,
    dry_run: bool,
) -> Result<Vec<Connection>, SocketDiagError> {
    let mut sockets = SocketDiag::open()?;
    let is_meant = |socket: &TcpSocket| {
        addresses.contains(&socket.connection.local.ip()) && !left_alone.contains(&socket.connection)
    };
    let mut ended = Vec::new();
    for socket in sockets.connections()?.into_iter().filter(is_meant) {
        if dry_run || sockets.destroy(&socket)? {
            ended.push(socket.connection);
        }
    }
    Ok(ended)
}
