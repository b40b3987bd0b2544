//! Presence: evidence that a mobile host is present or absent, and probes by address resolution or ICMP echo.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::BorrowedFd;

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::{Course, Inquiry, MobileStatus, Source, Standing};
use holdover_host::clock;
use holdover_host::neighbour_frames::Mac;
use holdover_host::neighbours::NextHop;

use super::echo::Echo;
use super::{Engine, EngineError, KEEP_NEIGHBOURS_EVERY, LOOK_EVERY, LOOK_FOR_EACH, LOOK_SOON};
use crate::config::Config;
use crate::interface::Interface;
use crate::path::Seen;
use crate::sender::Sent;

/// All nodes of a link (RFC 4291 section 2.7.1), which the kernel sends to from the link-local address.
const ALL_NODES: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));

/// Beyond so many absent hosts, each is checked when its turn to be probed comes.
const MANY: usize = 100;

/// The router in front of a host is resolved by broadcast once the host has not answered this many unicasts, at the latest with
/// the last probe before the host is silent.
const MOST_UNICASTS: u32 = 2;

impl Engine {
    /// Readable: answers to echo requests.
    pub(crate) fn echo_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.echo.iter().flat_map(Echo::descriptors)
    }

    /// The usual time of a mobile host's answers to echo requests; `None` if it has never answered.
    pub(crate) fn answers_within(&self, mobile: IpAddr) -> Option<Duration> {
        self.echo.as_ref()?.answers_within(mobile)
    }

    /// Handles answers to echo requests.
    pub(crate) fn handle_echo(&mut self, now: Instant) {
        if let Some(echo) = &mut self.echo {
            echo.handle_ready(now);
        }
    }

    /// Handles a change of the carrier.
    pub(super) fn handle_link(&mut self, now: Instant) {
        // The kernel's neighbours are lost with the carrier.
        self.neighbours_kept.restart(now);
        self.behind.forget_ways();
        if self.interface.has_carrier {
            self.solicitations.note_carrier(now);
        }
        if self.config.presence.carrier {
            self.note_carrier(now, self.interface.has_carrier);
        }
    }

    /// All mobile hosts are away without a carrier, and with one possibly back.
    pub(super) fn note_carrier(&mut self, now: Instant, has_carrier: bool) {
        self.neighbours_kept.restart(now);
        self.behind.forget_ways();
        if has_carrier {
            self.solicitations.note_carrier(now);
            self.prober.note_link_return(now);
        }
        tracing::info!(interface = self.interface.name, has_carrier, "carrier");
        for (mobile, seen) in self.path.all() {
            if !has_carrier {
                self.diverter.handle_report(now, mobile, Source::Carrier, Presence::Away);
                continue;
            }
            // With Ethernet the host itself is probed, and its answer counts.
            if !is_asked(&self.config, &self.interface, self.echo.as_ref(), (mobile, seen)) {
                self.diverter.handle_report(now, mobile, Source::Carrier, Presence::Present);
            }
            self.prober.ask_now(mobile);
        }
        self.look_at = now;
    }

    /// Whether the interface's carrier is queried.
    pub(super) fn asks_carrier(&self) -> bool {
        self.config.presence.carrier && !self.interface.has_carrier && !self.is_gone
    }

    /// Whether a host is probed: by address resolution, or by ICMP echo.
    pub(super) fn is_asked(&self, mobile: IpAddr) -> bool {
        let Some(seen) = self.path.seen(mobile) else { return false };
        is_asked(&self.config, &self.interface, self.echo.as_ref(), (mobile, seen))
    }

    fn can_probe(&self, mobile: IpAddr) -> bool {
        can_probe(&self.config, &self.interface, self.echo.as_ref(), mobile)
    }

    /// Checks all hosts for silence, due probes, and expiry.
    pub(super) fn review(&mut self, now: Instant) -> Result<(), EngineError> {
        self.behind.begin_look(now);
        let all = self.path.all();
        let diverter = &self.diverter;
        self.unconfirmed.retain(|&mobile, _| diverter.status(mobile).is_some_and(|status| status.waiting > 0));
        let absent = self.diverter.away().filter(|&mobile| !self.attachments.is_idle(mobile)).count();
        self.behind.note_absent(absent);
        self.prober.note_absent(absent);
        for &(mobile, seen) in &all {
            if absent > MANY && self.is_left_alone(now, mobile, seen) {
                continue;
            }
            if let Some(waker) = &mut self.waker {
                waker.apply_mode(mobile, &mut self.path);
            }
            self.note_met(now, mobile, seen);
            let status = self.diverter.status(mobile);
            match status.filter(|status| status.standing == Standing::Away) {
                Some(status) if status.objections == [Source::Warning] => {
                    self.review_warned(now, (mobile, seen), &status)
                }
                Some(status) => self.review_away(now, (mobile, seen), &status)?,
                None => self.review_present(now, mobile, seen),
            }
        }
        let every = if self.prober.is_asking() { LOOK_SOON } else { LOOK_EVERY };
        let for_all = Duration::from_nanos(LOOK_FOR_EACH.as_nanos().saturating_mul(all.len() as u64));
        let every = every.max(for_all);
        self.behind.note_look(now, every);
        self.look_at = now + every;
        Ok(())
    }

    /// Whether a check would find nothing: the host has left, was probed lately, and has not been heard since. A host that has only warned
    /// of its absence is checked like a present one.
    fn is_left_alone(&self, now: Instant, mobile: IpAddr, seen: Seen) -> bool {
        let probed_at = self.prober.probed_lately(now, mobile).filter(|_| self.diverter.has_left(mobile));
        let is_unheard = probed_at.is_some_and(|probed_at| seen.heard_at.is_none_or(|at| at < probed_at));
        is_unheard && !self.behind.has_router(mobile)
    }

    /// Checks a host that is away.
    fn review_away(
        &mut self,
        now: Instant,
        (mobile, seen): (IpAddr, Seen),
        status: &MobileStatus,
    ) -> Result<(), EngineError> {
        let Some(since) = status.away_since else { return Ok(()) };
        // Without diversion there are no notices, and one may be lost.
        if seen.heard_at.is_some_and(|at| at >= status.counts_from.unwrap_or(since)) {
            self.diverter.handle_heard(now, mobile);
            return Ok(());
        }
        let forget_after = self.config.presence.forget_after.0;
        let about = (mobile, status);
        if self.attachments.is_long_away(now, forget_after, about, seen.heard_at, self.handoff.as_ref()) {
            return self.forget_absent(now, mobile);
        }
        // A mobile host of another gateway is probed once it has packets here.
        let is_probed = self.interface.has_carrier && !self.attachments.is_idle(mobile) && self.can_probe(mobile);
        if is_probed && self.prober.look_away(now, mobile, since) {
            if !self.probe(mobile, seen) {
                self.prober.note_unsent(mobile);
                return Ok(());
            }
            if let Some(waker) = &mut self.waker {
                waker.ask_receiver(now, mobile, &mut self.path);
            }
            self.router_before(mobile);
        }
        if is_probed {
            self.follow_router(now, mobile, status);
        }
        Ok(())
    }

    /// Checks a host that predicts its absence: packets for it are kept already, but it has not left before it is silent.
    fn review_warned(&mut self, now: Instant, (mobile, seen): (IpAddr, Seen), status: &MobileStatus) {
        let last = seen.heard_at.max(status.away_since);
        if !self.can_probe(mobile) {
            return;
        }
        match self.prober.look_present(now, mobile, last) {
            Inquiry::None => {}
            Inquiry::Ask => {
                if !self.probe(mobile, seen) {
                    self.prober.note_unsent(mobile);
                }
            }
            Inquiry::Silent if self.echo.as_ref().is_some_and(|echo| !echo.is_overdue(now, mobile)) => {}
            Inquiry::Silent => {
                self.diverter.handle_report(now, mobile, Source::Silence, Presence::Away);
            }
        }
    }

    /// Checks a host that is present, or was never absent.
    fn review_present(&mut self, now: Instant, mobile: IpAddr, seen: Seen) {
        // The name of a prefix is no host's address.
        if self.config.presence.silence
            && self.path.prefix_of(mobile).is_none()
            && let Some(echo) = &mut self.echo
        {
            echo.try_out(now, mobile, seen.heard_at);
        }
        if self.can_probe(mobile) {
            match self.prober.look_present(now, mobile, self.waiting_since(mobile, seen)) {
                // A host with an unanswered probe has none due yet.
                Inquiry::None if self.prober.unanswered(mobile) > 0 => {}
                Inquiry::None => self.note_heard(now, mobile, seen),
                Inquiry::Ask => {
                    if !self.probe(mobile, seen) {
                        self.prober.note_unsent(mobile);
                    } else if !self.is_router_there(mobile) {
                        self.note_silence(mobile, seen);
                    }
                }
                Inquiry::Silent if self.echo.as_ref().is_some_and(|echo| !echo.is_overdue(now, mobile)) => {}
                Inquiry::Silent if self.is_router_there(mobile) => {}
                Inquiry::Silent => {
                    self.unconfirmed.remove(&mobile);
                    self.diverter.handle_report(now, mobile, Source::Silence, Presence::Away);
                }
            }
        }
        // A host that was only reported has sent nothing.
        let reported_at = || self.diverter.reports(mobile).map(|(.., at)| at).max();
        let last = seen.heard_at.max(seen.waiting_since).or_else(reported_at);
        // A host without any of these times has just come, or was claimed and not heard yet.
        let is_old = last.is_some_and(|at| now.saturating_since(at) >= self.config.presence.forget_after.0);
        if is_old && (self.diverter.status(mobile).is_none() || self.diverter.forget(mobile)) {
            self.forget_here(now, mobile);
        }
    }

    /// Forgets a host that has been away for long, and lets its packets pass, unless one was just diverted.
    fn forget_absent(&mut self, now: Instant, mobile: IpAddr) -> Result<(), EngineError> {
        if self.settle(now, mobile)? && self.diverter.forget_absent(mobile) {
            tracing::info!(%mobile, "forgotten: away for long, and nothing waits for it");
            self.forget_here(now, mobile);
        }
        Ok(())
    }

    fn forget_here(&mut self, now: Instant, mobile: IpAddr) {
        self.forget_path(mobile);
        self.attachments.forget(mobile);
        self.leave_in_cluster(now, mobile);
    }

    /// Since when a packet to a host is unanswered: one that has passed, or one that waits here for a sign of the host.
    fn waiting_since(&self, mobile: IpAddr, seen: Seen) -> Option<Instant> {
        let unconfirmed = self.unconfirmed.get(&mobile).copied();
        let unconfirmed = unconfirmed.filter(|since| seen.heard_at.is_none_or(|at| at < *since));
        seen.waiting_since.or(unconfirmed).or(self.attachments.inquired_since(mobile, seen.heard_at))
    }

    /// A host that has not answered a first probe is not away yet, but packets sent to it meanwhile may be lost.
    pub(super) fn note_silence(&mut self, mobile: IpAddr, seen: Seen) {
        if let Some(waker) = &mut self.waker
            && self.prober.unanswered(mobile) > 0
            && let Some(since) = seen.waiting_since
        {
            waker.handle_silence(mobile, since, &mut self.path);
        }
    }

    /// A host was heard: it is not waited for any more.
    pub(super) fn note_heard(&mut self, now: Instant, mobile: IpAddr, seen: Seen) {
        if let Some(waker) = &mut self.waker
            && seen.heard_at.is_some()
        {
            waker.handle_heard(now, mobile, &mut self.path);
        }
    }

    /// Probes a host, by address resolution or by ICMP echo. The programs see its answer. Returns whether the interface had room.
    pub(super) fn probe(&mut self, mobile: IpAddr, seen: Seen) -> bool {
        if let Some(echo) = &mut self.echo {
            echo.ask(clock::now(), mobile, seen.heard_at);
            return true;
        }
        self.resolve(mobile, seen.mac)
    }

    /// Resolves a host's Ethernet address, or that of the router in front of it, by unicast to the one `known`, else by broadcast. In IPv6
    /// also from this router's link-local address:
    /// the host's default route leads to that (RFC 4861 section 6.3.4), and a host that has given up resolving it asks once a second only, unless
    /// it learns it from a solicitation (section 7.2.3). Returns false if the interface had no room.
    pub(super) fn resolve(&mut self, mobile: IpAddr, known: Option<Mac>) -> bool {
        let Some(NextHop { hop, local }) = self.way(mobile) else { return true };
        // Packets of a host behind a router come from that router, unless it was replaced, or another router forwards the host's packets:
        // unicasts to `known` then remain unanswered.
        let is_in_doubt = self.prober.unanswered(mobile) + 1 >= self.config.presence.probes.min(MOST_UNICASTS + 1);
        let known = known.filter(|_| hop == mobile || !is_in_doubt);
        let link_local = if local.is_ipv6() { self.way(ALL_NODES).map(|way| way.local) } else { None };
        let mut has_room = true;
        for local in [Some(local), link_local.filter(|address| *address != local)].into_iter().flatten() {
            has_room &= self.sender.probe(&self.interface, local, hop, known) != Sent::Busy;
        }
        has_room
    }

    /// The way to a mobile host, by a look-up that may have been made a while ago.
    pub(super) fn way(&mut self, mobile: IpAddr) -> Option<NextHop> {
        self.behind.known_way(self.advanced_at, mobile).or_else(|| self.current_way(mobile))
    }

    /// The same as of now.
    fn current_way(&mut self, mobile: IpAddr) -> Option<NextHop> {
        let found = self.find_way(mobile).ok().flatten()?;
        self.behind.note_way(self.advanced_at, mobile, found);
        Some(found)
    }

    /// The same, or why the query has failed.
    pub(super) fn find_way(&mut self, mobile: IpAddr) -> io::Result<Option<NextHop>> {
        let found = self.neighbours.own_way(self.interface.index, mobile);
        found.inspect_err(|error| tracing::debug!(%error, %mobile, "no route"))
    }

    /// Whether the kernel uses the neighbour entry of an absent host: it drops an entry that is not used after a minute, and one that is used
    /// and not confirmed after 5 s.
    pub(super) fn uses_neighbour(&self, now: Instant, mobile: IpAddr) -> bool {
        let Some(status) = self.diverter.status(mobile) else { return true };
        let is_sent_to = status.queued_at.is_some_and(|at| now.saturating_since(at) < KEEP_NEIGHBOURS_EVERY * 2);
        // Packets that are not queued are not visible here.
        is_sent_to || status.course != Course::Divert || status.tally.lost() > 0
    }

    /// Keeps the kernel's neighbour entry, so that it passes packets to the interface instead of resolving the address. The route is looked up
    /// anew: the address of a host that has come from behind a router would become that router's.
    pub(super) fn keep_neighbour(&mut self, mobile: IpAddr) {
        let Some(mac) = self.path.seen(mobile).and_then(|seen| seen.mac) else { return };
        let Some(NextHop { hop, .. }) = self.current_way(mobile) else { return };
        if let Err(error) = self.neighbours.learn(self.interface.index, hop, mac, false) {
            tracing::debug!(%error, %mobile, "cannot update a neighbour entry");
        }
    }
}

/// Whether a host can be probed: by address resolution, else by ICMP echo if it has answered that before.
fn can_probe(config: &Config, interface: &Interface, echo: Option<&Echo>, mobile: IpAddr) -> bool {
    let answers = || echo.is_some_and(|echo| echo.answers_within(mobile).is_some());
    config.presence.silence && (interface.has_ethernet() || answers())
}

/// The same, if its Ethernet address is known: then it has been behind this interface.
pub(super) fn is_asked(
    config: &Config,
    interface: &Interface,
    echo: Option<&Echo>,
    (mobile, seen): (IpAddr, Seen),
) -> bool {
    can_probe(config, interface, echo, mobile) && (seen.mac.is_some() || !interface.has_ethernet())
}
