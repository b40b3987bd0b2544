//! **Diverting**: buffers packets for absent mobile hosts at a gateway, of any protocol and without parsing them. While a mobile host is
//! absent, packets for it are diverted into a queue instead of being lost behind the gateway; when it is back, they are released in order,
//! paced, and packets that arrive meanwhile queue behind them. It is the buffer of M-TCP's supervisor host (section 4) and of BUFFER-FREEZE
//! without their TCP: for gateways that neither terminate nor rewrite connections.
//!
//! A [`Diverter`] decides; its owner (the gateway's daemon) diverts, stores and sends. `T` identifies a packet in the owner's store.
//!
//! # Presence
//!
//! Several sources report about a host ([`Source`]). It is absent while at least one of them reports so. A packet from the host overrules
//! them all, except within [`STRAGGLERS`](crate::STRAGGLERS) of a report other than one of silence.
//!
//! A host may also predict its absence by a sign in its packets ([`Diverter::handle_warning`], [`Diverter::handle_working`]).
//!
//! # Bounds
//!
//! A queue has a limit, and so have all together; a packet has an age limit, which is applied once a second. Beyond the limit of a host,
//! its new packets are dropped. Beyond the limit of all, the host that occupies most loses its newest packets: the front of a TCP flight is
//! more useful than its end, as the receiver can acknowledge it.
//!
//! # The order of calls
//!
//! [`Diverter::handle_report`], [`Diverter::handle_heard`], [`Diverter::handle_warning`], [`Diverter::handle_working`],
//! [`Diverter::handle_packet`], [`Diverter::handle_timeout`]; then
//! [`Diverter::poll_change`], [`Diverter::poll_course`] (answered by [`Diverter::handle_settled`] for [`Course::Pass`]),
//! [`Diverter::poll_discarded`] until `None`; [`Diverter::due`] with [`Diverter::handle_sent`], [`Diverter::handle_busy`] or
//! [`Diverter::handle_blocked`] as long as there is something due; then [`Diverter::poll_timeout`].

mod buffer;
mod diversion;
mod presence;
mod silence;
mod tally;
#[cfg(test)]
mod tests;
mod warnings;

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_filter::Presence;
pub use holdover_flow::Course;

use crate::fifo::Fifo;
pub use diversion::Diversion;
use diversion::Diversions;
use presence::Reports;
pub use presence::{Source, Standing};
pub use silence::{Inquiry, Prober, SilenceConfig};
pub use tally::{Loss, Tally};

/// Limits and pacing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiverterConfig {
    /// Whether packets are diverted at all. If not, only presence is tracked.
    pub diverts: bool,
    /// The most bytes buffered for one mobile host.
    pub mobile_bytes: u64,
    /// The most bytes buffered in all.
    pub total_bytes: u64,
    /// The longest time that a packet is buffered.
    pub longest: Duration,
    /// The release rate of one mobile host; `None` for the interface's own rate.
    pub rate: Option<BitRate>,
    /// The bytes of one mobile host released at once before [`Self::rate`] applies.
    pub burst_bytes: u64,
    /// The most mobile hosts tracked.
    pub most_mobiles: usize,
    /// How long a host may predict its absence before it leaves.
    pub longest_warning: Duration,
}

impl Default for DiverterConfig {
    /// 4 MB for a mobile host, 256 MB in all, 120 s (the longest interval between TCP's retransmissions), 100 Mbit/s
    /// after 30 kB (twice the initial window of RFC 6928), 65,536 mobile hosts; a warning holds for 10 s.
    fn default() -> Self {
        Self {
            diverts: true,
            mobile_bytes: 4_000_000,
            total_bytes: 256_000_000,
            longest: Duration::from_secs(120),
            rate: Some(BitRate::from_mbps(100)),
            burst_bytes: 30_000,
            most_mobiles: 65_536,
            longest_warning: Duration::from_secs(10),
        }
    }
}

/// One mobile host, for status output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MobileStatus {
    /// The result of the reports.
    pub standing: Standing,
    /// Since when it is absent, if it is.
    pub away_since: Option<Instant>,
    /// From when on a packet from it means that it is back, if it is absent.
    pub counts_from: Option<Instant>,
    /// The sources that report it absent.
    pub objections: Vec<Source>,
    /// When the last packet for it was buffered.
    pub queued_at: Option<Instant>,
    /// The last order to the path.
    pub course: Course,
    /// Buffered packets.
    pub waiting: usize,
    /// Bytes of these.
    pub waiting_bytes: u64,
    /// Its counters.
    pub tally: Tally,
}

/// The state machine. See the [module](self).
#[derive(Debug)]
pub struct Diverter<T> {
    config: DiverterConfig,
    mobiles: BTreeMap<IpAddr, Mobile<T>>,
    bytes: u64,
    /// Mobile hosts with buffered packets, by their bytes.
    by_size: BTreeSet<(u64, IpAddr)>,
    /// The time of each host's next release, a number for fairness between equal times, and the host.
    turns: BTreeSet<(Instant, u64, IpAddr)>,
    turn: u64,
    /// The interface has no room before this time.
    blocked_until: Instant,
    /// When warnings lapse. May contain hosts that have returned since.
    lapses: BTreeSet<(Instant, IpAddr)>,
    /// When hosts whose path still diverts are retried. May contain hosts that have settled since.
    refused: BTreeSet<(Instant, IpAddr)>,
    courses: VecDeque<(IpAddr, Course)>,
    changes: VecDeque<(IpAddr, Standing)>,
    discarded: VecDeque<(IpAddr, T, Loss)>,
    is_draining: bool,
    diversions: Diversions,
    look_at_ages_at: Instant,
    tally: Tally,
}

#[derive(Debug)]
struct Mobile<T> {
    reports: Reports,
    /// The standing last reported.
    standing: Standing,
    fifo: Fifo<T>,
    phase: Phase,
    /// When the released packets are through at the configured rate.
    released_until: Instant,
    /// Its entry in [`Diverter::turns`].
    turn: Option<(Instant, u64)>,
    /// How many packets may be released, if they are released in bursts.
    credit: u32,
    /// Its entry in [`Diverter::lapses`].
    lapses_at: Option<Instant>,
    tally: Tally,
    /// The last report of each source, and since when the source reports so.
    last_reports: BTreeMap<Source, (Presence, Instant)>,
    queued_at: Option<Instant>,
}

/// The state of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Passing,
    Diverting,
    /// The path was ordered to let packets pass, and has not confirmed it.
    Settling,
    /// The path still diverts: it is ordered again at this time.
    Refused(Instant),
}

/// The interval between attempts after a refusal of the path or the interface.
const RETRY: Duration = Duration::from_millis(1);

/// The interval between checks of ages.
const AGES_EVERY: Duration = Duration::from_secs(1);

impl<T> Mobile<T> {
    fn new() -> Self {
        Self {
            reports: Reports::default(),
            standing: Standing::Present,
            fifo: Fifo::default(),
            phase: Phase::Passing,
            released_until: Instant::ZERO,
            turn: None,
            credit: 0,
            lapses_at: None,
            tally: Tally::default(),
            last_reports: BTreeMap::new(),
            queued_at: None,
        }
    }

    fn course(&self, diversion: Diversion) -> Course {
        if self.phase == Phase::Passing { Course::Pass } else { diversion.course() }
    }
}

impl<T> Diverter<T> {
    /// A diverter without mobile hosts.
    pub fn new(config: DiverterConfig) -> Self {
        Self {
            config,
            mobiles: BTreeMap::new(),
            bytes: 0,
            by_size: BTreeSet::new(),
            turns: BTreeSet::new(),
            turn: 0,
            blocked_until: Instant::ZERO,
            lapses: BTreeSet::new(),
            refused: BTreeSet::new(),
            courses: VecDeque::new(),
            changes: VecDeque::new(),
            discarded: VecDeque::new(),
            is_draining: false,
            diversions: Diversions::default(),
            look_at_ages_at: Instant::ZERO,
            tally: Tally::default(),
        }
    }

    /// Sets the packets that are diverted for mobile hosts of a network, if [`DiverterConfig::diverts`] permits it. The longest matching
    /// prefix applies.
    pub fn set_network(&mut self, address: IpAddr, bits: u8, diversion: Diversion) {
        self.diversions.set_network(address, bits, diversion);
    }

    /// The same for mobile hosts outside of these networks.
    pub fn set_others(&mut self, diversion: Diversion) {
        self.diversions.set_others(diversion);
    }

    /// Buffered bytes of all hosts.
    pub fn waiting_bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of mobile hosts.
    pub fn len(&self) -> usize {
        self.mobiles.len()
    }

    /// Whether there are no mobile hosts.
    pub fn is_empty(&self) -> bool {
        self.mobiles.is_empty()
    }

    /// Absent mobile hosts.
    pub fn away(&self) -> impl Iterator<Item = IpAddr> {
        let away = self.mobiles.iter().filter(|(_, mobile)| mobile.standing == Standing::Away);
        away.map(|(&address, _)| address)
    }

    /// Whether a mobile host is absent.
    pub fn is_away(&self, address: IpAddr) -> bool {
        self.mobiles.get(&address).is_some_and(|mobile| mobile.standing == Standing::Away)
    }

    /// Whether a mobile host is absent by more than a warning, after which it may still be there for a while.
    pub fn has_left(&self, address: IpAddr) -> bool {
        let has_left = |mobile: &Mobile<T>| mobile.standing == Standing::Away && !mobile.reports.is_only_warned();
        self.mobiles.get(&address).is_some_and(has_left)
    }

    /// The sum of all counters.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// One mobile host; `None` if unknown.
    pub fn status(&self, address: IpAddr) -> Option<MobileStatus> {
        self.mobiles.get(&address).map(|mobile| self.describe(address, mobile))
    }

    /// The last report of each source about a mobile host, and since when the source reports so.
    pub fn reports(&self, address: IpAddr) -> impl Iterator<Item = (Source, Presence, Instant)> {
        let reports = self.mobiles.get(&address).into_iter().flat_map(|mobile| &mobile.last_reports);
        reports.map(|(&source, &(presence, at))| (source, presence, at))
    }

    /// All mobile hosts, in the order of their addresses.
    pub fn statuses(&self) -> impl Iterator<Item = (IpAddr, MobileStatus)> {
        self.mobiles.iter().map(move |(&address, mobile)| (address, self.describe(address, mobile)))
    }

    fn describe(&self, address: IpAddr, mobile: &Mobile<T>) -> MobileStatus {
        MobileStatus {
            standing: mobile.standing,
            away_since: mobile.reports.away_since(),
            counts_from: mobile.reports.counts_from(),
            objections: mobile.reports.objections().collect(),
            queued_at: mobile.queued_at,
            course: mobile.course(self.diversions.of(address)),
            waiting: mobile.fifo.len(),
            waiting_bytes: mobile.fifo.bytes(),
            tally: mobile.tally,
        }
    }

    /// Handles a report of a source about a mobile host. Returns whether there was room for it.
    pub fn handle_report(&mut self, now: Instant, address: IpAddr, source: Source, presence: Presence) -> bool {
        let Some(mobile) = self.mobile(address) else { return false };
        // A repeated report keeps its time, unless the host was heard since it was reported absent.
        let holds = match presence {
            Presence::Away => mobile.reports.objections().any(|objection| objection == source),
            presence => presence == Presence::Present,
        };
        mobile.reports.handle_report(now, source, presence);
        let last = mobile.last_reports.entry(source).or_insert((presence, now));
        if !holds || last.0 != presence {
            *last = (presence, now);
        }
        self.update(now, address);
        true
    }

    /// Handles a packet from a mobile host.
    pub fn handle_heard(&mut self, now: Instant, address: IpAddr) {
        let Some(mobile) = self.mobiles.get_mut(&address) else { return };
        mobile.reports.handle_heard(now);
        self.update(now, address);
    }

    /// Handles a diverted packet of `len` bytes for a mobile host. `store` is called if it is to be queued, and returns
    /// where the packet is, or `None` if it could not be stored.
    ///
    /// # Errors
    /// Why the packet is not queued.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        address: IpAddr,
        len: u32,
        store: impl FnOnce() -> Option<T>,
    ) -> Result<(), Loss> {
        let room = self.make_room(now, address, u64::from(len));
        let stored = room.and_then(|()| store().ok_or(Loss::Storage));
        match stored {
            Ok(item) => {
                self.enqueue(now, address, len, item);
                if let Some(mobile) = self.mobiles.get_mut(&address) {
                    mobile.note_arrival();
                }
                self.update(now, address);
                Ok(())
            }
            Err(loss) => {
                self.tally.note_loss(loss);
                if let Some(mobile) = self.mobiles.get_mut(&address) {
                    mobile.tally.note_loss(loss);
                }
                Err(loss)
            }
        }
    }

    /// Adds a packet stored by an earlier process, after those of its host restored before. Limits do not apply. The
    /// host is absent until it is heard, or until the owner reports the opposite of [`Source::Buffer`].
    pub fn restore(&mut self, now: Instant, address: IpAddr, came_at: Instant, len: u32, item: T) {
        self.enqueue(came_at.min(now), address, len, item);
        self.handle_report(now, address, Source::Buffer, Presence::Away);
    }

    /// Stops diverting. Buffered packets are released as hosts return.
    pub fn drain(&mut self, now: Instant) {
        self.is_draining = true;
        let addresses: Vec<IpAddr> = self.mobiles.keys().copied().collect();
        for address in addresses {
            self.update(now, address);
        }
    }

    /// Removes a mobile host that is present and has no packets. Returns whether it did.
    pub fn forget(&mut self, address: IpAddr) -> bool {
        let is_idle = |mobile: &Mobile<T>| mobile.phase == Phase::Passing && mobile.fifo.is_empty();
        let goes =
            self.mobiles.get(&address).is_some_and(|mobile| is_idle(mobile) && mobile.standing != Standing::Away);
        if goes {
            self.mobiles.remove(&address);
        }
        goes
    }

    /// Removes an absent mobile host that has no packets. Returns whether it did. The caller has made the path let its
    /// packets pass.
    pub fn forget_absent(&mut self, address: IpAddr) -> bool {
        let is_absent = |mobile: &Mobile<T>| mobile.standing == Standing::Away && mobile.fifo.is_empty();
        let goes = self.mobiles.get(&address).is_some_and(is_absent);
        if goes {
            self.mobiles.remove(&address);
        }
        goes
    }

    /// Discards the packets of a mobile host, for this reason.
    pub fn discard(&mut self, now: Instant, address: IpAddr, loss: Loss) {
        while let Some((item, _)) = self.take(address, true) {
            self.lose(address, item, loss);
        }
        self.update(now, address);
    }

    /// The path lets packets of a mobile host pass (`is_passing`), or had diverted packets left.
    pub fn handle_settled(&mut self, now: Instant, address: IpAddr, is_passing: bool) {
        let Some(mobile) = self.mobiles.get_mut(&address) else { return };
        if mobile.phase == Phase::Settling {
            let again_at = now + RETRY;
            mobile.phase = if is_passing { Phase::Passing } else { Phase::Refused(again_at) };
            if !is_passing {
                self.refused.insert((again_at, address));
            }
        }
        self.update(now, address);
    }

    /// The host of the next packet to release, and where that is stored. The owner sends it and calls
    /// [`Self::handle_sent`], or cannot and calls [`Self::handle_busy`], or [`Self::handle_blocked`] if no packet can be sent.
    pub fn due(&self, now: Instant) -> Option<(IpAddr, &T)> {
        let &(_, _, address) = self.turns.first().filter(|(at, ..)| (*at).max(self.blocked_until) <= now)?;
        let head = self.mobiles.get(&address)?.fifo.front()?;
        Some((address, &head.item))
    }

    /// The due packet was sent.
    pub fn handle_sent(&mut self, now: Instant, address: IpAddr) {
        let Some((_, len)) = self.take(address, false) else { return };
        let config = self.config;
        self.tally.released += 1;
        if let Some(mobile) = self.mobiles.get_mut(&address) {
            mobile.tally.released += 1;
            mobile.note_release();
            if let Some(rate) = config.rate {
                mobile.released_until =
                    mobile.released_until.max(now) + rate.transmission_time(ByteCount(u64::from(len)));
            }
        }
        self.take_turn(now, address, None);
        self.update(now, address);
    }

    /// The interface had no room for the due packet, and has none for those of other hosts before `until`.
    pub fn handle_blocked(&mut self, until: Instant) {
        self.blocked_until = until;
    }

    /// The due packet could not be sent now; it is due again at `again_at`.
    pub fn handle_busy(&mut self, again_at: Instant, address: IpAddr) {
        if self.mobiles.get(&address).is_some_and(|mobile| mobile.turn.is_some()) {
            self.take_turn(again_at, address, Some(again_at));
        }
    }

    /// Handles a deadline that has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.end_warnings(now);
        while let Some((_, address)) = self.refused.first().copied().filter(|&(at, _)| at <= now) {
            self.refused.pop_first();
            self.update(now, address);
        }
        if self.bytes > 0 && now >= self.look_at_ages_at {
            self.look_at_ages_at = now + AGES_EVERY;
            self.discard_aged(now);
        }
    }

    /// The next order to the path. [`Course::Pass`] has to be answered.
    pub fn poll_course(&mut self) -> Option<(IpAddr, Course)> {
        self.courses.pop_front()
    }

    /// The next mobile host whose standing has changed.
    pub fn poll_change(&mut self) -> Option<(IpAddr, Standing)> {
        self.changes.pop_front()
    }

    /// Whether [`Self::poll_change`] has one.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The next stored packet that was discarded.
    pub fn poll_discarded(&mut self) -> Option<(IpAddr, T, Loss)> {
        self.discarded.pop_front()
    }

    /// When [`Self::due`] has a packet, or [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let release = self.turns.first().map(|&(at, ..)| at.max(self.blocked_until));
        let ages = (self.bytes > 0).then_some(self.look_at_ages_at);
        let refused = self.refused.first().map(|&(at, _)| at);
        let lapse = self.lapses.first().map(|&(at, _)| at);
        release.into_iter().chain(ages).chain(refused).chain(lapse).min()
    }

    /// The mobile host, added if need be; `None` without room for another one.
    fn mobile(&mut self, address: IpAddr) -> Option<&mut Mobile<T>> {
        if self.mobiles.len() >= self.config.most_mobiles && !self.mobiles.contains_key(&address) {
            return None;
        }
        Some(self.mobiles.entry(address).or_insert_with(Mobile::new))
    }

    /// Updates everything that depends on the changed state of a mobile host.
    fn update(&mut self, now: Instant, address: IpAddr) {
        let diversion = self.diversions.of(address);
        let Self { mobiles, courses, changes, config, is_draining, tally, .. } = self;
        let Some(mobile) = mobiles.get_mut(&address) else { return };
        let standing = mobile.reports.standing(now);
        if standing != mobile.standing {
            if standing == Standing::Away {
                tally.absences += 1;
                mobile.tally.absences += 1;
            } else if mobile.standing == Standing::Away {
                mobile.credit = diversion.burst().unwrap_or(0);
            }
            mobile.standing = standing;
            changes.push_back((address, standing));
        }
        let diverts = standing == Standing::Away
            && config.diverts
            && diversion != Diversion::Nothing
            && !(*is_draining && mobile.fifo.is_empty());
        match mobile.phase {
            Phase::Passing | Phase::Settling if diverts => {
                mobile.phase = Phase::Diverting;
                courses.push_back((address, diversion.course()));
            }
            Phase::Refused(_) if diverts => mobile.phase = Phase::Diverting,
            Phase::Diverting if !diverts && mobile.fifo.is_empty() => {
                mobile.phase = Phase::Settling;
                courses.push_back((address, Course::Pass));
            }
            Phase::Refused(at) if !diverts && mobile.fifo.is_empty() && at <= now => {
                mobile.phase = Phase::Settling;
                courses.push_back((address, Course::Pass));
            }
            _ => {}
        }
        if !mobile.may_release(diversion.burst(), *is_draining) {
            self.give_up_turn(address);
        } else if mobile.turn.is_none() {
            self.take_turn(now, address, None);
        }
    }

    /// Schedules a mobile host's next release by its pace, not before `at_least`; not at all without packets.
    fn take_turn(&mut self, now: Instant, address: IpAddr, at_least: Option<Instant>) {
        self.give_up_turn(address);
        let Some(mobile) = self.mobiles.get_mut(&address).filter(|mobile| !mobile.fifo.is_empty()) else { return };
        let burst =
            self.config.rate.map_or(Duration::ZERO, |rate| rate.transmission_time(ByteCount(self.config.burst_bytes)));
        let ahead = mobile.released_until.saturating_since(now).saturating_sub(burst);
        let at = (now + ahead).max(at_least.unwrap_or(Instant::ZERO));
        self.turn += 1;
        mobile.turn = Some((at, self.turn));
        self.turns.insert((at, self.turn, address));
    }

    fn give_up_turn(&mut self, address: IpAddr) {
        if let Some((at, turn)) = self.mobiles.get_mut(&address).and_then(|mobile| mobile.turn.take()) {
            self.turns.remove(&(at, turn, address));
        }
    }
}
