//! The engine: connects the state machines ([`Diverter`], [`Prober`], [`Waker`]) with the path, the packet files and the
//! sender.
//!
//! The order of calls: [`Engine::handle_diverted`], [`Engine::handle_heard`] and [`Engine::handle_watch`] when their
//! descriptors are readable (notices about connections are read with every [`Engine::advance`]), [`Engine::report`] at
//! any time; then [`Engine::advance`], and [`Engine::poll_timeout`] for its next call.

mod attachments;
mod behind;
mod by_mac;
mod cluster;
mod connections;
mod echo;
mod error;
mod follow;
mod handoff;
mod open;
mod presence;
mod refresh;
mod release;
mod removal;
mod setup;
mod solicit;
mod split;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd};

use bytes::BytesMut;
use holdover_base::{Duration, Instant};
use holdover_filter::{Injected, Presence};
use holdover_gateway::divert::{Course, Diverter, Loss, MobileStatus, Prober, Source, Standing};
use holdover_host::neighbours::Neighbours;
use holdover_host::{Requests, Tun};

use crate::cluster::Cluster;
use crate::config::Config;
use crate::handoff::Handoff;
use crate::icmp_errors::IcmpErrors;
use crate::interface::Interface;
use crate::network::{Network, destination};
use crate::packet_files::{PacketFiles, Stored};
use crate::path::{AttachedBy, KernelPath, PathCounters, PathError, Seen, Sign};
use crate::presence::SourceReport;
use crate::sender::Sender;
use crate::split::Splitter;
use crate::waker::{Waker, Woken};
use crate::watch::{LinkNotification, Watch};
pub(crate) use attachments::{Attachments, Hearing};
#[cfg(test)]
pub(crate) use attachments::{Clearance, ELSEWHERE, TEND_EVERY};
use behind::Behind;
pub(crate) use by_mac::ByMac;
use cluster::Adoptions;
use connections::Moves;
use echo::Echo;
pub use error::EngineError;
use refresh::Refresh;
use solicit::Solicitations;

/// Serves the mobile hosts behind one interface.
#[derive(Debug)]
pub(crate) struct Engine {
    interface: Interface,
    /// The interface was removed, and is waited for.
    is_gone: bool,
    networks: Vec<(Network, bool)>,
    config: Config,
    requests: Requests,
    neighbours: Neighbours,
    watch: Watch,
    tun: Tun,
    path: KernelPath,
    packet_files: PacketFiles,
    sender: Sender,
    icmp_errors: IcmpErrors,
    diverter: Diverter<Stored>,
    prober: Prober,
    /// `None` with Ethernet, or without probes.
    echo: Option<Echo>,
    /// `None` if nothing is held back.
    waker: Option<Waker>,
    /// `None` if no connections are split.
    splitter: Option<Splitter>,
    /// `None` without other gateways.
    handoff: Option<Handoff>,
    /// `None` without a store.
    cluster: Option<Cluster>,
    /// Which mobile hosts are here, and which have moved to other gateways.
    attachments: Attachments,
    /// The room for mobile hosts of gateways that have lost their leases.
    adoptions: Adoptions,
    /// The mobile hosts whose connections move from or to other gateways.
    moves: Moves,
    opened_at: Instant,
    /// Since when packets wait for a sign of mobile hosts that are present and were not heard recently.
    unconfirmed: BTreeMap<IpAddr, Instant>,
    behind: Behind,
    /// A packet of the waker that the interface did not accept.
    refused: Option<(IpAddr, Injected, u32)>,
    buffer: BytesMut,
    packet: Vec<u8>,
    advanced_at: Instant,
    ask_carrier_at: Instant,
    look_at: Instant,
    renew_at: Instant,
    neighbours_kept: Refresh,
    solicitations: Solicitations,
    unsendable: Unsendable,
}

/// Buffered packets that could not be sent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Unsendable {
    /// Longer than the interface's MTU, which has changed meanwhile. Their senders were notified.
    pub too_big: u64,
    /// Refused by the kernel, or unreadable.
    pub refused: u64,
    /// Not sent: retransmissions that the mobile host has acknowledged already.
    pub redundant: u64,
}

/// The interval at which the daemon renews the expiry time in the programs' map.
const RENEW_EVERY: Duration = Duration::from_millis(400);

/// The interval between checks of all hosts, or longer with many hosts.
const LOOK_EVERY: Duration = Duration::from_millis(40);
/// While a host is being probed.
const LOOK_SOON: Duration = Duration::from_millis(10);
/// Per known host: some ten times as long as the check of a host takes.
const LOOK_FOR_EACH: Duration = Duration::from_micros(10);

/// How often an interface without carrier is queried: the kernel by itself may report a second late.
const ASK_CARRIER_EVERY: Duration = Duration::from_millis(10);

/// How often the kernel's entries of absent hosts are refreshed: it drops an entry that is used and not confirmed after
/// 5 s, and packets to an unresolved neighbour never reach the programs.
const KEEP_NEIGHBOURS_EVERY: Duration = Duration::from_secs(2);

/// Packets handled before other work gets its turn.
const BATCH: usize = 256;

/// The most attempts for a packet of a connection, with pauses of [`BUSY`].
const MOST_TRIES: u32 = 200;

/// The pauses after a full queue, an interface that is down, and one without a carrier.
const BUSY: Duration = Duration::from_millis(1);
const DOWN: Duration = Duration::from_millis(100);
const NO_CARRIER: Duration = Duration::from_millis(10);
/// The pause for a host whose Ethernet address is being resolved.
const UNRESOLVED: Duration = Duration::from_millis(50);
/// The pause for a host that is probed for its Ethernet address.
const UNCONFIRMED: Duration = Duration::from_millis(5);

impl Engine {
    /// Whether an earlier process has left its programs behind, and whether this one would.
    pub(crate) fn pinning(&self) -> (bool, bool) {
        (self.path.is_taken_over(), self.path.is_pinned())
    }

    /// The daemon ends: the programs end with it.
    pub(crate) fn unpin(&mut self) {
        self.path.unpin();
    }

    /// Readable: diverted packets, notices of the programs about mobile hosts and about connections, kernel
    /// notifications.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 4] {
        [self.tun.as_fd(), self.path.as_fd(), self.path.flow_notices(), self.watch.as_fd()]
    }

    /// Reads diverted packets. Returns whether there may be more.
    pub(crate) fn handle_diverted(&mut self, now: Instant) -> Result<bool, EngineError> {
        let Self { tun, path, packet_files, diverter, buffer, .. } = self;
        for _ in 0..BATCH {
            let Some((offload, packet)) = tun.recv_offloaded(buffer)? else { return Ok(false) };
            // The device has no address of its own; multicast is the kernel's own.
            let Some(address) = destination(&packet).filter(|address| !address.is_multicast()) else { continue };
            let mobile = path.host_of(address);
            let stored = diverter.handle_packet(now, mobile, packet.len() as u32, || {
                let appended = packet_files.append(mobile, now, offload, &packet);
                appended.inspect_err(|error| tracing::warn!(%error, %mobile, "cannot store a packet")).ok()
            });
            if let Err(loss) = stored {
                tracing::trace!(?loss, %mobile, "dropped a packet");
            }
        }
        Ok(true)
    }

    /// Handles mobile hosts that were heard, and their signs.
    pub(crate) fn handle_heard(&mut self, now: Instant) {
        while let Some((mobile, sign)) = self.path.next_notice() {
            match sign {
                None => self.diverter.handle_heard(now, mobile),
                Some(Sign::Warning) => self.diverter.handle_warning(now, mobile),
                Some(Sign::Working) => self.diverter.handle_working(now, mobile),
            }
        }
    }

    /// Handles kernel notifications. Returns whether the interface has come back with another index.
    pub(crate) fn handle_watch(&mut self, now: Instant) -> Result<bool, EngineError> {
        let mut has_returned = false;
        for notification in self.watch.handle_ready() {
            match notification {
                LinkNotification::Link(interface) => {
                    let before = std::mem::replace(&mut self.interface, interface);
                    if before.has_carrier != self.interface.has_carrier {
                        self.handle_link(now);
                    }
                }
                LinkNotification::Gone => has_returned |= self.handle_gone(now)?,
                LinkNotification::Unresolved(hop) if self.config.presence.neighbours => {
                    if self.path.seen(hop).is_some() {
                        self.diverter.handle_report(now, hop, Source::Neighbour, Presence::Away);
                    }
                }
                LinkNotification::Unresolved(_) => {}
                LinkNotification::Addressed { is_verified } => {
                    self.follow_addresses();
                    if is_verified {
                        self.handle_verified(now);
                    }
                }
                LinkNotification::Returned | LinkNotification::Lost => has_returned |= self.look_up(now)?,
            }
        }
        Ok(has_returned)
    }

    /// Handles a report of an outside source. Returns whether there was room for it.
    pub(crate) fn report(
        &mut self,
        now: Instant,
        address: IpAddr,
        source: Source,
        presence: Presence,
    ) -> Result<bool, PathError> {
        let mobile = self.path.host_of(address);
        self.path.know(mobile)?;
        Ok(self.diverter.handle_report(now, mobile, source, presence))
    }

    /// Handles information of an outside source. Ignores addresses that are no mobile hosts'. Returns whether it was
    /// used.
    pub(crate) fn handle_source_report(
        &mut self,
        now: Instant,
        report: &SourceReport,
        by_mac: &mut ByMac,
    ) -> Result<bool, PathError> {
        match *report {
            // A lease is that of one address.
            SourceReport::Mobile { mobile, source: Source::Lease, .. } | SourceReport::OtherHost { mobile }
                if self.prefix_of(mobile).is_some() =>
            {
                Ok(false)
            }
            SourceReport::Mobile { mobile, source, presence } if self.serves(mobile) => {
                self.report(now, mobile, source, presence)
            }
            SourceReport::Frame { mac, source, presence } => {
                for &mobile in by_mac.of(mac, || self.path.all()) {
                    self.diverter.handle_report(now, mobile, source, presence);
                }
                Ok(true)
            }
            SourceReport::Network { network, ref except, source, presence } => {
                let is_excepted = |mobile| except.iter().any(|except| except.contains(mobile));
                let all = self.path.all().into_iter().map(|(mobile, _)| mobile);
                for mobile in all.filter(|&mobile| network.contains(mobile) && !is_excepted(mobile)) {
                    self.diverter.handle_report(now, mobile, source, presence);
                }
                Ok(true)
            }
            SourceReport::OtherHost { mobile } if self.serves(mobile) => {
                tracing::info!(%mobile, "the address belongs to another host: dropped its buffered packets");
                self.diverter.discard(now, mobile, Loss::Forgotten);
                Ok(true)
            }
            SourceReport::Mobile { .. } | SourceReport::OtherHost { .. } => Ok(false),
        }
    }

    /// The mobile-facing interface in its current state.
    pub(crate) fn mobile_facing(&self) -> &Interface {
        &self.interface
    }

    /// Whether an address is a mobile host's, by the configuration.
    pub(crate) fn serves(&self, address: IpAddr) -> bool {
        let fitting = self.networks.iter().filter(|(network, _)| network.contains(address));
        fitting.max_by_key(|(network, _)| network.mapped().1).is_some_and(|&(_, is_mobile)| is_mobile)
    }

    /// The length of a mobile host's prefix, if it is not a single address.
    pub(crate) fn prefix_of(&self, mobile: IpAddr) -> Option<u8> {
        self.path.prefix_of(mobile)
    }

    /// Stops diverting.
    pub(crate) fn drain(&mut self, now: Instant) {
        self.diverter.drain(now);
    }

    /// Claims a mobile host that was heard here for the first time, or not in time before.
    fn note_met(&mut self, now: Instant, mobile: IpAddr, seen: Seen) {
        if self.handoff.is_none() {
            return;
        }
        let is_old = |at: Instant| self.cluster.is_some() && at < self.opened_at;
        // Other frames are heard by other routers of its segment as well.
        if let Some(heard_at) = seen.heard_at.filter(|at| !is_old(*at) && Some(*at) > seen.addressed_at)
            && self.cluster.is_some()
        {
            self.attachments.note_overheard(now, mobile, heard_at);
        }
        let Some(heard_at) = seen.addressed_at.filter(|at| !is_old(*at)) else { return };
        match self.attachments.note_heard(mobile, heard_at) {
            Hearing::Straggler => {}
            // It fails for addresses that this gateway does not serve only.
            Hearing::First => drop(self.claim(now, mobile, heard_at)),
            Hearing::Again => {
                if let Some(cluster) = &mut self.cluster {
                    cluster.ownership.handle_seen(now, mobile, heard_at);
                }
            }
        }
    }

    /// Handles deadlines, and the consequences of everything handled before.
    pub(crate) fn advance(&mut self, now: Instant) -> Result<(), EngineError> {
        self.advanced_at = now;
        self.path.begin_turn(now);
        if self.asks_carrier() && now >= self.ask_carrier_at {
            self.ask_carrier_at = now + ASK_CARRIER_EVERY;
            self.sender.ask_carrier(&self.interface);
        }
        if now >= self.renew_at {
            self.renew_at = now + RENEW_EVERY;
            self.path.renew(now)?;
            self.renew_split(now)?;
        }
        if now >= self.look_at {
            self.review(now)?;
        }
        self.serve_cluster(now);
        self.serve_handoffs(now);
        self.diverter.handle_timeout(now);
        if let Some(waker) = &mut self.waker {
            waker.handle_notices(now, &mut self.path);
        }
        // Hosts that have left come first: packets that arrive for them now are lost.
        self.set_courses(now)?;
        self.report_changes(now);
        self.wake_arrived(now);
        self.set_courses(now)?;
        self.release(now);
        // The released packet may have been the last.
        self.set_courses(now)?;
        if let Some(waker) = &mut self.waker {
            waker.handle_timeout(now, &mut self.path);
        }
        self.inject(now);
        self.discard();
        self.solicit(now);
        for mobile in self.neighbours_kept.due(now, || self.diverter.away().collect()) {
            if self.neighbours_kept.is_for_all() || self.uses_neighbour(now, mobile) {
                self.keep_neighbour(mobile);
            }
        }
        Ok(())
    }

    /// When to call [`Self::advance`].
    pub(crate) fn poll_timeout(&self) -> Instant {
        let deadlines = [self.look_at, self.renew_at, self.neighbours_kept.poll_timeout()].into_iter();
        let unfinished = self.diverter.has_changes().then_some(self.advanced_at);
        let waker = self.waker.as_ref().map(Waker::poll_timeout);
        let again = self.refused.as_ref().map(|_| self.advanced_at + BUSY);
        let carrier = self.asks_carrier().then_some(self.ask_carrier_at);
        let handoff = self.handoff.as_ref().and_then(Handoff::poll_timeout);
        let cluster = self.cluster_timeout();
        let moves = self.moves.poll_timeout(|mobile| self.is_away(mobile));
        deadlines
            .chain(self.diverter.poll_timeout())
            .chain(waker)
            .chain(unfinished)
            .chain(again)
            .chain(carrier)
            .chain(handoff)
            .chain(cluster)
            .chain(moves)
            .chain(self.solicitations.poll_timeout())
            .min()
            .unwrap_or(self.renew_at)
    }

    /// Sends the packets of present hosts without pacing, and shows every sender its held ACKs: the daemon stops.
    pub(crate) fn flush(&mut self, now: Instant) {
        self.path.begin_turn(now);
        // Packets that wait for a sign of their mobile host are sent now.
        self.diverter.drain(now);
        if let Some(waker) = &mut self.waker {
            waker.handle_end(now, &mut self.path);
        }
        // The queue of the interface may be full: the rest is left for the next process.
        let later = now + Duration::from_secs(3600);
        for _ in 0..64 {
            self.release(later);
            self.inject(now);
        }
    }

    pub(crate) fn interface(&self) -> &str {
        &self.interface.name
    }

    pub(crate) fn attached_by(&self) -> AttachedBy {
        self.path.attached_by()
    }

    pub(crate) fn counters(&self) -> PathCounters {
        self.path.counters()
    }

    pub(crate) fn unsendable(&self) -> Unsendable {
        self.unsendable
    }

    /// Actions on TCP connections.
    pub(crate) fn woken(&self) -> Woken {
        self.waker.as_ref().map(Waker::woken).unwrap_or_default()
    }

    pub(crate) fn diverter(&self) -> &Diverter<Stored> {
        &self.diverter
    }

    /// All mobile hosts known to the programs or the diverter.
    pub(crate) fn mobiles(&self) -> BTreeMap<IpAddr, (Option<Seen>, Option<MobileStatus>)> {
        let mut mobiles: BTreeMap<IpAddr, (Option<Seen>, Option<MobileStatus>)> =
            self.path.all().into_iter().map(|(mobile, seen)| (mobile, (Some(seen), None))).collect();
        for (mobile, status) in self.diverter.statuses() {
            mobiles.entry(mobile).or_default().1 = Some(status);
        }
        mobiles
    }

    /// Handles changes of presence, a batch at a time: if thousands leave at once, their packets are diverted meanwhile.
    fn report_changes(&mut self, now: Instant) {
        for _ in 0..BATCH {
            let Some((mobile, standing)) = self.diverter.poll_change() else { return };
            let Some(status) = self.diverter.status(mobile) else { continue };
            match standing {
                Standing::Away => {
                    let sources: Vec<String> = status.objections.iter().map(Source::to_string).collect();
                    tracing::info!(%mobile, sources = sources.join(", "), "away");
                    self.prober.ask_now(mobile);
                    self.look_at = self.look_at.min(now + LOOK_SOON);
                }
                _ => {
                    tracing::info!(%mobile, waiting = status.waiting, bytes = status.waiting_bytes, "{standing}");
                    // A mobile host that has moved gives no information about the link here.
                    if standing == Standing::Present {
                        self.prober.note_return(now);
                    }
                }
            }
            if let Some(waker) = &mut self.waker {
                waker.handle_standing(now, mobile, standing, &mut self.path);
            }
            self.keep_neighbour(mobile);
        }
    }

    fn set_courses(&mut self, now: Instant) -> Result<(), EngineError> {
        while let Some((mobile, course)) = self.diverter.poll_course() {
            match course {
                Course::Divert | Course::DivertTcp | Course::DivertChosen => {
                    if let Err(error) = self.path.divert(mobile, course) {
                        tracing::warn!(%error, %mobile, "cannot divert packets");
                    }
                }
                Course::Pass => {
                    let is_passing = self.settle(now, mobile)?;
                    self.diverter.handle_settled(now, mobile, is_passing);
                }
            }
        }
        Ok(())
    }

    /// Lets packets for a host pass once no diverted one is left: otherwise they would overtake those.
    fn settle(&mut self, now: Instant, mobile: IpAddr) -> Result<bool, EngineError> {
        let Some(seen) = self.path.seen(mobile) else { return Ok(true) };
        if self.handle_diverted(now)? {
            return Ok(false);
        }
        let is_empty = self.diverter.status(mobile).is_none_or(|status| status.waiting == 0);
        Ok(is_empty && self.path.pass(mobile, seen.diverted)?)
    }
}
