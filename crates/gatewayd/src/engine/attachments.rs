//! Which mobile hosts are attached to this gateway, which have moved to another one, and which it has adopted from a
//! gateway without a lease: the rules, without I/O. The engine and the model in the tests of the cluster use them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::{Course, Diverter, MobileStatus, Source, Standing};

use crate::cluster::{Evidence, Ownership};
use crate::handoff::Transfers;

/// How long packets that a mobile host sent before it moved to another gateway may still arrive.
const MOVING: Duration = Duration::from_secs(1);

/// How often packets that wait for mobile hosts of other gateways are offered to those.
const OFFER_EVERY: Duration = Duration::from_secs(1);

/// How often mobile hosts of other gateways are checked.
pub(crate) const TEND_EVERY: Duration = Duration::from_millis(250);

/// The pause for a host that another gateway owns: packets wait for that gateway's claim.
pub(crate) const ELSEWHERE: Duration = Duration::from_millis(10);

/// With several gateways, packets are released only to a mobile host that was heard within this time. Any other one is probed first: it may
/// have left while nothing was sent to it.
const RECENTLY: Duration = Duration::from_millis(250);

/// The most mobile hosts that are probed each time before they can be claimed: as many as a batch of claims has.
const MOST_CONFIRMED: usize = 64;

/// The pause after the first probe or inquiry about a mobile host; it doubles with each, up to the second one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long a broadcast of a mobile host is followed up.
const OVERHEARD: Duration = Duration::from_secs(10);

/// A packet of a mobile host to this gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hearing {
    /// It may have been sent before the mobile host moved.
    Straggler,
    /// The first one.
    First,
    /// Another one.
    Again,
}

/// The treatment of a due packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clearance {
    /// The packet goes to the gateway to which the mobile host has moved.
    HandOn,
    /// The packet waits for the claim of another gateway.
    Elsewhere,
    /// The packet may be sent to the mobile host.
    Send,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Attachments {
    /// Mobile hosts that were heard here, and have not moved to another gateway.
    met: BTreeSet<IpAddr>,
    /// When mobile hosts have moved to another gateway.
    moved_at: BTreeMap<IpAddr, Instant>,
    /// Moved mobile hosts that still have state here.
    departing: BTreeSet<IpAddr>,
    /// Mobile hosts of gateways that have lost their leases, with their Ethernet addresses. Packets for them that
    /// arrive here are diverted; the first one makes this gateway claim the mobile host.
    adopted: BTreeMap<IpAddr, Option<[u8; 6]>>,
    offer_at: Instant,
    /// Probes of mobile hosts that must be heard before they can be claimed.
    confirmations: BTreeMap<IpAddr, Pause>,
    /// Mobile hosts whose broadcasts were heard here.
    overheard: BTreeMap<IpAddr, Overheard>,
    /// Mobile hosts that another gateway has overheard: since when they are to show that they are here.
    inquired: BTreeMap<IpAddr, Instant>,
}

/// A mobile host that has sent only broadcasts.
#[derive(Clone, Copy, Debug)]
struct Overheard {
    since: Instant,
    /// The last one.
    at: Instant,
    /// When it is followed up.
    pause: Pause,
}

/// The end of the pause before an action is repeated, and the number of repetitions.
#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    times: u32,
}

impl Pause {
    fn none(now: Instant) -> Self {
        Self { until: now, times: 0 }
    }

    fn again(&mut self, now: Instant) {
        let pause = Duration::from_nanos(FIRST_PAUSE.as_nanos() << self.times.min(16));
        *self = Self { until: now + pause.min(LONGEST_PAUSE), times: self.times.saturating_add(1) };
    }
}

impl Attachments {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            met: BTreeSet::new(),
            moved_at: BTreeMap::new(),
            departing: BTreeSet::new(),
            adopted: BTreeMap::new(),
            offer_at: now,
            confirmations: BTreeMap::new(),
            overheard: BTreeMap::new(),
            inquired: BTreeMap::new(),
        }
    }

    /// Mobile hosts of an earlier process, which are here.
    pub(crate) fn take_over(&mut self, mobiles: impl Iterator<Item = IpAddr>) {
        self.met.extend(mobiles);
    }

    /// A mobile host has sent a packet to this gateway.
    pub(crate) fn note_heard(&mut self, mobile: IpAddr, heard_at: Instant) -> Hearing {
        if self.moved_at.get(&mobile).is_some_and(|at| heard_at < *at + MOVING) {
            return Hearing::Straggler;
        }
        if self.note_here(mobile) { Hearing::First } else { Hearing::Again }
    }

    /// A mobile host is here, by a packet or a command. Returns whether that is new.
    pub(crate) fn note_here(&mut self, mobile: IpAddr) -> bool {
        let is_new = self.met.insert(mobile);
        if is_new {
            self.moved_at.remove(&mobile);
        }
        is_new
    }

    /// Whether a mobile host is here: it was heard, and has not moved to another gateway.
    pub(crate) fn is_here(&self, mobile: IpAddr) -> bool {
        self.met.contains(&mobile)
    }

    /// A mobile host has moved to another gateway.
    pub(crate) fn note_moved<T>(&mut self, now: Instant, mobile: IpAddr, diverter: &mut Diverter<T>) {
        self.met.remove(&mobile);
        self.moved_at.insert(mobile, now);
        self.departing.insert(mobile);
        diverter.handle_report(now, mobile, Source::Command, Presence::Moved);
    }

    /// This gateway owns a mobile host.
    pub(crate) fn note_won(&mut self, mobile: IpAddr) {
        self.adopted.remove(&mobile);
    }

    /// Whether an orphan can be adopted: it is neither here nor adopted.
    pub(crate) fn may_adopt(&self, mobile: IpAddr) -> bool {
        !self.met.contains(&mobile) && !self.adopted.contains_key(&mobile)
    }

    /// The owner of a mobile host has lost its lease: packets for it are kept.
    pub(crate) fn adopt<T>(&mut self, now: Instant, mobile: IpAddr, mac: Option<[u8; 6]>, diverter: &mut Diverter<T>) {
        diverter.handle_report(now, mobile, Source::Command, Presence::Away);
        self.adopted.insert(mobile, mac);
    }

    /// Adopted mobile hosts, with their Ethernet addresses.
    pub(crate) fn adopted(&self) -> &BTreeMap<IpAddr, Option<[u8; 6]>> {
        &self.adopted
    }

    /// Whether a mobile host was adopted, and no packet for it has come: it is not probed.
    pub(crate) fn is_idle(&self, mobile: IpAddr) -> bool {
        self.adopted.contains_key(&mobile) && !self.met.contains(&mobile)
    }

    /// Returns adopted mobile hosts whose owners are back, and claims those for which packets have come, as the network
    /// routes them to this gateway. Returns the latter.
    pub(crate) fn tend_adopted<T>(
        &mut self,
        now: Instant,
        diverter: &mut Diverter<T>,
        ownership: &mut Ownership,
        mac_of: impl Fn(IpAddr) -> Option<[u8; 6]>,
    ) -> Vec<IpAddr> {
        for mobile in self.adopted.keys().copied().filter(|&mobile| !ownership.is_orphan(mobile)).collect::<Vec<_>>() {
            self.adopted.remove(&mobile);
            if !self.met.contains(&mobile) {
                diverter.handle_report(now, mobile, Source::Command, Presence::Present);
                self.departing.insert(mobile);
            }
        }
        let has_packets = |mobile: &IpAddr| diverter.status(*mobile).is_some_and(|status| status.waiting > 0);
        let wanted: Vec<IpAddr> = self.adopted.keys().copied().filter(has_packets).collect();
        let claimed: Vec<IpAddr> = wanted.into_iter().filter(|mobile| self.met.insert(*mobile)).collect();
        for &mobile in &claimed {
            ownership.handle_heard(now, mobile, Evidence::Adopted, mac_of(mobile));
        }
        claimed
    }

    /// Packets that an earlier process, or an absence of the store, has left for mobile hosts of other gateways. Returns
    /// those mobile hosts.
    pub(crate) fn find_elsewhere<T>(
        &mut self,
        now: Instant,
        diverter: &mut Diverter<T>,
        ownership: &Ownership,
    ) -> Vec<IpAddr> {
        let waiting = diverter.statuses().filter(|(_, status)| status.waiting > 0).map(|(mobile, _)| mobile);
        let elsewhere: Vec<IpAddr> = waiting
            .filter(|mobile| !self.departing.contains(mobile) && !self.adopted.contains_key(mobile))
            .filter(|&mobile| ownership.owned_elsewhere(mobile).is_some())
            .collect();
        elsewhere.iter().for_each(|&mobile| self.note_moved(now, mobile, diverter));
        elsewhere
    }

    /// Drops the state of mobile hosts that have moved once their packets are sent; until then, offers these. Returns
    /// the mobile hosts whose state in the path is to be dropped.
    pub(crate) fn see_off<T>(
        &mut self,
        now: Instant,
        diverter: &mut Diverter<T>,
        ownership: Option<&Ownership>,
        transfers: &mut impl Transfers,
    ) -> Vec<IpAddr> {
        let mut forgotten = Vec::new();
        let is_offer_due = now >= self.offer_at;
        for mobile in self.departing.clone() {
            let is_leaving = transfers.is_leaving(mobile);
            let elsewhere = ownership.and_then(|ownership| Some((ownership, ownership.owned_elsewhere(mobile)?)));
            // Adopted from a dead gateway, has sent nothing since, and has no owner any more.
            let has_no_owner = ownership.is_some() && !self.met.contains(&mobile);
            if !is_leaving && elsewhere.is_none() && !has_no_owner {
                // It has come back.
                self.departing.remove(&mobile);
                continue;
            }
            let status = diverter.status(mobile);
            // It has moved, and was found silent here: its packets are handed on all the same.
            let is_away =
                |status: &MobileStatus| status.standing == Standing::Away && (is_leaving || status.waiting == 0);
            if status.as_ref().is_some_and(is_away) {
                diverter.handle_report(now, mobile, Source::Command, Presence::Moved);
            }
            let is_done = status.is_none_or(|status| status.waiting == 0 && status.course == Course::Pass);
            if is_done && !transfers.is_arriving(mobile) {
                transfers.end(now, mobile);
                self.departing.remove(&mobile);
                // It may have come back while its last packets left: the path has heard it since.
                if diverter.forget(mobile) && !self.met.contains(&mobile) {
                    forgotten.push(mobile);
                }
            } else if let Some((ownership, (owner, epoch))) = elsewhere.filter(|_| !is_leaving && is_offer_due)
                && let Some(peer) = ownership.address_of(owner)
            {
                transfers.offer(mobile, ownership.epoch(epoch), peer);
            }
        }
        if is_offer_due {
            self.offer_at = now + OFFER_EVERY;
        }
        forgotten
    }

    /// The treatment of a due packet for a mobile host whose last packet to this gateway arrived at `addressed_at`.
    pub(crate) fn clearance(
        mobile: IpAddr,
        ownership: Option<&Ownership>,
        transfers: Option<&impl Transfers>,
        addressed_at: Option<Instant>,
    ) -> Clearance {
        if transfers.is_some_and(|transfers| transfers.is_leaving(mobile)) {
            Clearance::HandOn
        } else if ownership.is_some_and(|ownership| !ownership.may_release(mobile, addressed_at)) {
            Clearance::Elsewhere
        } else {
            Clearance::Send
        }
    }

    /// Whether a mobile host was heard recently enough to be sent its waiting packets; otherwise it is probed first.
    pub(crate) fn is_confirmed(now: Instant, heard_at: Option<Instant>) -> bool {
        heard_at.is_some_and(|at| now.saturating_since(at) <= RECENTLY)
    }

    /// Wanted mobile hosts to be probed now, as they were not heard in time to be claimed: those that have waited longest come first.
    /// `can_probe` returns whether a mobile host can be probed.
    pub(crate) fn due_probes(
        &mut self,
        now: Instant,
        ownership: &Ownership,
        can_probe: impl Fn(IpAddr) -> bool,
    ) -> Vec<IpAddr> {
        let wanted: BTreeSet<IpAddr> = ownership.to_confirm(now).filter(|&mobile| can_probe(mobile)).collect();
        self.confirmations.retain(|mobile, _| wanted.contains(mobile));
        for mobile in wanted {
            self.confirmations.entry(mobile).or_insert(Pause::none(now));
        }
        let due = self.confirmations.iter().filter(|(_, pause)| pause.until <= now);
        let mut due: Vec<(Instant, IpAddr)> = due.map(|(&mobile, pause)| (pause.until, mobile)).collect();
        due.sort_unstable();
        due.truncate(MOST_CONFIRMED);
        for (_, mobile) in &due {
            if let Some(pause) = self.confirmations.get_mut(mobile) {
                pause.again(now);
            }
        }
        due.into_iter().map(|(_, mobile)| mobile).collect()
    }

    /// A mobile host was last heard at `heard_at`, by a frame that was not to this router alone: a broadcast is heard by
    /// every gateway of a segment, and by the first one that a mobile host comes to.
    pub(crate) fn note_overheard(&mut self, now: Instant, mobile: IpAddr, heard_at: Instant) {
        let is_straggler = self.moved_at.get(&mobile).is_some_and(|at| heard_at < *at + MOVING);
        if is_straggler || self.met.contains(&mobile) || now.saturating_since(heard_at) >= OVERHEARD {
            return;
        }
        let anew = Overheard { since: now, at: heard_at, pause: Pause::none(now) };
        self.overheard.entry(mobile).or_insert(anew).at = heard_at;
    }

    /// Follows up broadcasts of mobile hosts that are not here: asks their owners whether they have lost them. Returns
    /// those without an owner that could answer, which are to be probed.
    pub(crate) fn follow_overheard(
        &mut self,
        now: Instant,
        ownership: &Ownership,
        transfers: &mut impl Transfers,
    ) -> Vec<IpAddr> {
        let met = &self.met;
        self.overheard.retain(|mobile, heard| !met.contains(mobile) && now.saturating_since(heard.at) < OVERHEARD);
        let mut probed = Vec::new();
        let due = self.overheard.iter_mut().filter(|(_, heard)| heard.pause.until <= now);
        for (&mobile, Overheard { since, pause, .. }) in due.take(MOST_CONFIRMED) {
            let owner = ownership.owned_elsewhere(mobile).filter(|_| !ownership.is_orphan(mobile));
            match owner.and_then(|(owner, _)| ownership.address_of(owner)) {
                Some(peer) => transfers.inquire(mobile, peer),
                // The first packet of most hosts is a broadcast: the gateway that gets the next one claims it.
                None if now.saturating_since(*since) < MOVING => continue,
                None => probed.push(mobile),
            }
            pause.again(now);
        }
        probed
    }

    /// Whether a broadcast of a mobile host is being followed up. Its owner does not hear it any more: it is probed.
    pub(crate) fn has_overheard(&self, mobile: IpAddr) -> bool {
        self.overheard.contains_key(&mobile)
    }

    /// Another gateway has overheard a mobile host. Returns whether to answer that it is not here; if that is not known,
    /// it is probed ([`Self::inquired_since`]), and the other gateway asks again.
    pub(crate) fn handle_inquiry<T>(&mut self, now: Instant, mobile: IpAddr, diverter: &Diverter<T>) -> bool {
        let standing = diverter.status(mobile).map(|status| status.standing);
        if !self.met.contains(&mobile) || standing == Some(Standing::Away) {
            self.inquired.remove(&mobile);
            return true;
        }
        self.inquired.entry(mobile).or_insert(now);
        false
    }

    /// Since when a mobile host, last heard at `heard_at`, is to answer because another gateway has overheard it.
    pub(crate) fn inquired_since(&self, mobile: IpAddr, heard_at: Option<Instant>) -> Option<Instant> {
        self.inquired.get(&mobile).copied().filter(|since| heard_at.is_none_or(|at| at < *since))
    }

    /// Drops expired state. Moves are remembered for `forget_after`, as mobile hosts in the path are.
    pub(crate) fn expire(&mut self, now: Instant, forget_after: Duration) {
        let Self { moved_at, departing, .. } = self;
        moved_at.retain(|mobile, at| departing.contains(mobile) || now.saturating_since(*at) < forget_after);
        self.inquired.retain(|_, at| now.saturating_since(*at) < OVERHEARD);
    }

    /// Whether a mobile host that is away is to be forgotten: nothing waits for it, it was not heard, and no packet for
    /// it came, for `forget_after`.
    pub(crate) fn is_long_away(
        &self,
        now: Instant,
        forget_after: Duration,
        (mobile, status): (IpAddr, &MobileStatus),
        heard_at: Option<Instant>,
        transfers: Option<&impl Transfers>,
    ) -> bool {
        let last = heard_at.max(status.away_since).max(status.queued_at);
        let is_long = last.is_none_or(|at| now.saturating_since(at) >= forget_after);
        let is_handed =
            transfers.is_some_and(|transfers| transfers.is_leaving(mobile) || transfers.is_arriving(mobile));
        is_long
            && status.standing == Standing::Away
            && status.waiting == 0
            && !self.is_idle(mobile)
            && !self.departing.contains(&mobile)
            && !is_handed
    }

    /// A mobile host is forgotten here.
    pub(crate) fn forget(&mut self, mobile: IpAddr) {
        self.met.remove(&mobile);
        self.inquired.remove(&mobile);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use holdover_gateway::divert::DiverterConfig;

    use super::*;
    use crate::cluster::Epoch;

    const MOBILE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 7));

    /// The last packets of a mobile host go to another gateway.
    #[derive(Default)]
    struct Leaving {
        has_ended: bool,
    }

    impl Transfers for Leaving {
        fn is_leaving(&self, _mobile: IpAddr) -> bool {
            !self.has_ended
        }

        fn is_arriving(&self, _mobile: IpAddr) -> bool {
            false
        }

        fn end(&mut self, _now: Instant, _mobile: IpAddr) {
            self.has_ended = true;
        }

        fn offer(&mut self, _mobile: IpAddr, _epoch: Epoch, _peer: SocketAddr) {}

        fn inquire(&mut self, _mobile: IpAddr, _peer: SocketAddr) {}
    }

    /// The mobile host is heard, moves to another gateway, is heard again `after` that, and its last packets go to that gateway. Returns
    /// the mobile hosts to be forgotten in the path.
    fn forgotten_when_heard_again(after: Duration) -> Vec<IpAddr> {
        let moved_at = Instant::ZERO + Duration::from_secs(10);
        let mut attachments = Attachments::new(moved_at);
        let mut diverter = Diverter::<()>::new(DiverterConfig::default());
        assert_eq!(attachments.note_heard(MOBILE, moved_at), Hearing::First);
        attachments.note_moved(moved_at, MOBILE, &mut diverter);
        let now = moved_at + after;
        attachments.note_heard(MOBILE, now);
        let mut transfers = Leaving::default();
        let forgotten = attachments.see_off(now, &mut diverter, None, &mut transfers);
        assert!(transfers.has_ended);
        forgotten
    }

    #[test]
    fn a_mobile_host_that_is_back_before_its_last_packets_have_left_stays_in_the_path() {
        assert_eq!(forgotten_when_heard_again(MOVING), Vec::<IpAddr>::new());
    }

    #[test]
    fn a_mobile_host_of_which_only_stragglers_came_is_forgotten_in_the_path() {
        assert_eq!(forgotten_when_heard_again(Duration::from_millis(999)), [MOBILE]);
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        let mut pause = Pause::none(Instant::ZERO);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let now = pause.until;
            pause.again(now);
            pauses.push(pause.until.saturating_since(now).as_millis());
        }
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000, 60_000]);
        pause.times = u32::MAX;
        pause.again(Instant::ZERO);
        assert_eq!(pause.until, Instant::ZERO + LONGEST_PAUSE);
    }
}
