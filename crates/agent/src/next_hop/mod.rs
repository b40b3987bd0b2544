//! **Resolving the next hop.** When a link loses its carrier, the kernel removes its neighbour entries, and the neighbours
//! remove ours. TCP's packets make the kernel send requests once a second (RFC 4861 section 10, `RETRANS_TIMER`; for ARP as
//! well), so that up to a second passes after link-up before anything is sent; and the first requests may be lost, as a
//! switch port or an access point does not forward at first.
//!
//! So the agent sends requests at link-up: it makes the kernel resolve the next hops of the waiting connections, and sends
//! the same requests itself, every 10 ms at first and for a minute at most. The kernel handles the answers, too, and sends
//! its queued packets. Where it ignores them (a failed IPv6 entry ignores advertisements), the agent updates its entry. The
//! request contains our address, so that the neighbour need not resolve it before it forwards to us. Packets held for the
//! host's own TCP wait for the answer: see [`holdover_mobility::wake`].
//!
//! A next hop that the kernel knows is asked, too, for that reason, but nothing waits for its answer. After duplicate
//! address detection the kernel knows the router from its advertisement, and the router, whose solicitations were not
//! answered meanwhile, asks for us once a second.
//!
//! No requests are sent if no connection waits, or on links without neighbours' addresses (PPP, raw IP).

mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use holdover_base::{Duration, Instant};
use holdover_mobility::Connection;

use self::search::{Search, Target};
use holdover_host::neighbour_frames::{Mac, Question};
use holdover_host::neighbours::Neighbours;
use holdover_host::resolution_socket::{ArpFilter, ResolutionSocket};

/// The next hops of the connections of one interface.
#[derive(Default)]
pub(crate) struct NextHops {
    active: Option<Active>,
    /// The next hop of each peer that was looked up.
    hops: BTreeMap<IpAddr, IpAddr>,
    /// The answers of next hops since the last link-up, and their times.
    macs: BTreeMap<IpAddr, (Mac, Instant)>,
    /// The interface's own address then.
    own: Option<Mac>,
}

/// A resolution under way.
struct Active {
    socket: ResolutionSocket,
    neighbours: Neighbours,
    index: u32,
    search: Search,
    /// Their addresses before the link went down.
    former: BTreeMap<IpAddr, Mac>,
}

/// How long an address from an answer is used for packets. Later the kernel's own packets show the current one: a
/// router may have been replaced since.
const FRESH: Duration = Duration::from_secs(60);

/// The most connections looked up: each takes a request to the kernel.
pub(crate) const MOST_LOOKED_UP: usize = 64;

impl NextHops {
    /// Begins at link-up. `waiting` are connections, and the Ethernet addresses of their last packets. Returns whether
    /// there is a next hop that the kernel does not know.
    ///
    /// # Errors
    /// The kernel cannot be queried, or there is no packet socket: nothing is resolved then.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        index: u32,
        waiting: impl Iterator<Item = (Connection, Mac)>,
    ) -> io::Result<bool> {
        self.stop();
        (self.hops, self.macs, self.own) = Default::default();
        let mut neighbours = Neighbours::open()?;
        let mut former = BTreeMap::new();
        let (mut asked, mut known) = (BTreeSet::new(), BTreeSet::new());
        for (connection, mac) in waiting.take(MOST_LOOKED_UP) {
            let (local, remote) = (connection.local.ip(), connection.remote.ip());
            // A peer without a route at present has no next hop.
            let Ok(Some(route)) = neighbours.route(index, local, remote) else { continue };
            self.hops.insert(remote, route.hop);
            let is_new = former.insert(route.hop, mac).is_none();
            if is_new && (neighbours.is_resolved(index, route.hop)? || neighbours.needs_no_address(index, route.hop)?) {
                known.insert(route.hop);
            }
            if !(known.contains(&route.hop) && neighbours.is_without_resolution(index, route.hop)?) {
                asked.insert(Target { local: route.local, hop: route.hop });
            }
        }
        let Some(search) = Search::new(now, asked, known) else { return Ok(false) };
        let is_unresolved = !search.is_settled(now);
        let socket = ResolutionSocket::open(index, ArpFilter::All)?;
        self.own = Some(socket.mac()?);
        self.active = Some(Active { socket, neighbours, index, search, former });
        Ok(is_unresolved)
    }

    /// Stops.
    pub(crate) fn stop(&mut self) {
        self.active = None;
    }

    /// Readable when a neighbour has answered.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.active.iter().flat_map(|active| active.socket.descriptors())
    }

    /// Handles answers, and sends requests if due. Returns, once, whether packets that wait for the next hop may be
    /// sent.
    pub(crate) fn handle_ready(&mut self, now: Instant) -> bool {
        let Some(active) = &mut self.active else { return false };
        while let Some((hop, mac)) = active.socket.receive() {
            if active.search.handle_answer(now, hop, mac) {
                let is_router = self.hops.iter().any(|(peer, next_hop)| *next_hop == hop && *peer != hop);
                active.settle(hop, mac, is_router);
                self.macs.insert(hop, (mac, now));
            }
        }
        if let Some(round) = active.search.poll_round(now) {
            for asked in round.asked {
                active.ask(asked, round.to_all, round.by_the_kernel);
            }
        }
        let is_settled = active.search.take_settled(now);
        if active.search.is_over(now) {
            self.active = None;
        }
        is_settled
    }

    /// Whether a next hop is being resolved, and none has answered.
    pub(crate) fn is_unresolved(&self, now: Instant) -> bool {
        self.active.as_ref().is_some_and(|active| !active.search.is_settled(now))
    }

    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.active.as_ref().map(|active| active.search.poll_timeout())
    }

    /// The Ethernet addresses of packets to a peer, destination and source, if learnt less than [`FRESH`] ago.
    pub(crate) fn addresses(&self, now: Instant, peer: IpAddr) -> Option<(Mac, Mac)> {
        let &(mac, learnt_at) = self.macs.get(self.hops.get(&peer)?)?;
        (now.saturating_since(learnt_at) < FRESH).then_some((mac, self.own?))
    }
}

impl Active {
    /// A next hop has answered. The kernel has processed the answer before; if it ignored it, its table is updated.
    fn settle(&mut self, hop: IpAddr, mac: Mac, is_router: bool) {
        // If the kernel refuses the entry, it resolves the neighbour itself.
        if matches!(self.neighbours.is_resolved(self.index, hop), Ok(false)) {
            let _ = self.neighbours.learn(self.index, hop, mac, is_router);
        }
    }

    /// A request that cannot be sent now is sent next time.
    fn ask(&mut self, Target { local, hop }: Target, to_all: bool, by_the_kernel: bool) {
        if by_the_kernel && !matches!(self.neighbours.is_resolved(self.index, hop), Ok(true)) {
            let _ = self.neighbours.resolve(self.index, hop);
        }
        let Ok(mac) = self.socket.mac() else { return };
        let question = Question { mac, local, hop };
        let known = self.former.get(&hop).copied().filter(|_| !to_all);
        if let Some(frame) = question.frame(known) {
            let _ = self.socket.send(&frame);
        }
    }
}

impl std::fmt::Debug for NextHops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let search = self.active.as_ref().map(|active| &active.search);
        f.debug_struct("NextHops").field("search", &search).field("macs", &self.macs).finish_non_exhaustive()
    }
}
