//! Looks up the links below tunnels: the routes to their endpoints ([`super::kernel::Way`]).
//!
//! The kernel reports changes of routes and of most tunnels' endpoints. It does not report the endpoints of WireGuard peers, which are set
//! late and roam: they are queried at intervals.

use std::collections::BTreeSet;
use std::io;

use holdover_base::{Duration, Instant};

use super::Family;
use super::kernel::{Interfaces, KernelEvent, Tunnel, Way};
use super::wireguard::{self, WireGuard};
use holdover_host::neighbours::Neighbours;

/// Sockets for queries, opened for the first tunnel.
#[derive(Default)]
pub struct Endpoints {
    routes: Option<Neighbours>,
    wireguard: Option<WireGuard>,
    /// When WireGuard's peers are queried again, if there is such an interface.
    query_at: Option<Instant>,
    has_complained: bool,
}

/// The interval between queries of WireGuard's peers. A query is one dump, and a route for each peer.
const QUERY_EVERY: Duration = Duration::from_secs(5);

impl Endpoints {
    /// Looks up all tunnels again if routes may have changed, or WireGuard's if due, and passes the result on.
    pub fn refresh(&mut self, now: Instant, interfaces: &mut Interfaces) {
        let is_due = self.query_at.is_some_and(|at| at <= now);
        let tunnels = interfaces.take_tunnels(is_due);
        if is_due || !tunnels.is_empty() {
            let has_peers = tunnels.iter().any(|tunnel| tunnel.remote.is_none());
            self.query_at = has_peers.then(|| now + QUERY_EVERY);
        }
        for tunnel in tunnels {
            match self.look_up(&tunnel) {
                Ok(ways) => interfaces.handle(now, KernelEvent::Endpoints { index: tunnel.index, ways }),
                Err(error) if !std::mem::replace(&mut self.has_complained, true) => {
                    let interface = interfaces.name(tunnel.index).unwrap_or_default();
                    tracing::warn!(interface, %error, "cannot look up the link below the tunnel");
                }
                Err(_) => {}
            }
        }
    }

    /// When [`refresh`](Self::refresh) is due without a change of routes.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.query_at
    }

    /// `None` if no endpoint is known.
    fn look_up(&mut self, tunnel: &Tunnel) -> io::Result<Option<BTreeSet<Way>>> {
        let endpoints = match tunnel.remote {
            Some(remote) => wireguard::Endpoints { addresses: vec![remote], mark: 0 },
            None => self.wireguard()?.endpoints(tunnel.index)?,
        };
        if endpoints.addresses.is_empty() {
            return Ok(None);
        }
        let routes = self.routes()?;
        let mut ways = BTreeSet::new();
        for remote in endpoints.addresses {
            if let Some((index, next_hop)) = routes.way_to(remote, endpoints.mark)? {
                ways.insert(Way { index, family: Some(Family::of(remote)), hop: Some(next_hop.unwrap_or(remote)) });
            }
        }
        Ok(Some(ways))
    }

    fn routes(&mut self) -> io::Result<&mut Neighbours> {
        if self.routes.is_none() {
            self.routes = Some(Neighbours::open()?);
        }
        self.routes.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn wireguard(&mut self) -> io::Result<&mut WireGuard> {
        if self.wireguard.is_none() {
            self.wireguard = Some(WireGuard::open()?);
        }
        self.wireguard.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}
