//! **The arbiter.** Several sources report about one link, at different times and not always consistently; the
//! mechanisms get one sequence of events.
//!
//! A link is up while no source objects: a carrier is useless without an address, and an address without a route. So up
//! is reported once, when the last source agrees, and down at the first objection. Repetitions, and reports that change
//! nothing, are not passed on.
//!
//! A *command* is trusted: `up` overrules all sources that object, each until it reports up itself; `down` lasts until
//! `up`, or until the link restarts (its carrier, association, address or route returns after an absence).
//!
//! Packets that arrive over a link that is down also overrule the sources that object: these reported too early, or not
//! about everything behind the link. When such a source reports up, that is passed on again: the link may have been
//! down after all.
//!
//! A *warning* is passed on if it is the first, or predicts an earlier cut than the one before; it ends when every
//! source has withdrawn its own, or when the predicted time is long past.
//!
//! A replaced address is a move, whether the link was down in between or not.
//!
//! All of this applies to each IP version separately: a source may report about one only (its address is gone, its
//! router does not answer), and then the connections of the other get no event.

use std::collections::{BTreeMap, BTreeSet};

use holdover_base::{Duration, Instant};
use holdover_mobility::LinkEvent;
use serde::{Deserialize, Serialize};

use super::{Families, Family, LinkChange, Signal, Source};

/// The condition of a link, as last reported to the mechanisms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkCondition {
    /// Up.
    Up,
    /// Up, and a cut is predicted.
    Fading,
    /// Down.
    Down,
}

/// The arbiter of one interface. [`Self::handle_signal`] and [`Self::handle_timeout`] return the events for the
/// mechanisms, in order.
#[derive(Debug, Default)]
pub struct Arbiter([FamilyArbiter; 2]);

/// The arbiter of one IP version of an interface.
#[derive(Debug, Default)]
struct FamilyArbiter {
    /// Sources that report the link down.
    against: BTreeSet<Source>,
    /// Objecting sources that a command, or packets, have overruled.
    overruled: BTreeSet<Source>,
    /// Objecting sources that packets have overruled.
    contradicted: BTreeSet<Source>,
    /// Sources that predict a cut, and its time.
    warnings: BTreeMap<Source, Instant>,
    /// The predicted cut last reported to the mechanisms.
    reported_cut: Option<Instant>,
    is_down: bool,
    has_moved: bool,
}

/// A warning expires this long after the cut that it predicted.
const OVERDUE: Duration = Duration::from_secs(2);

/// A later warning is passed on if its cut is at least this much sooner.
const SOONER: Duration = Duration::from_millis(10);

/// The assumed time of a cut without one; for the warning's expiry only.
const SOON: Duration = Duration::from_secs(1);

impl Arbiter {
    /// The arbiter of a link without reports: it is up.
    pub fn new() -> Self {
        Self::default()
    }

    /// The state of the link: down if it is down for both IP versions.
    pub fn state(&self) -> LinkCondition {
        let states = self.0.each_ref().map(FamilyArbiter::state);
        if self.down().are_both() {
            LinkCondition::Down
        } else if states.contains(&LinkCondition::Fading) {
            LinkCondition::Fading
        } else {
            LinkCondition::Up
        }
    }

    /// The earliest predicted cut reported to the mechanisms.
    pub fn foreseen_cut(&self) -> Option<Instant> {
        self.0.iter().filter(|arbiter| !arbiter.is_down).filter_map(|arbiter| arbiter.reported_cut).min()
    }

    /// The IP versions for which the link is down.
    pub fn down(&self) -> Families {
        Family::BOTH.into_iter().filter(|&family| self.of(family).is_down).collect()
    }

    /// Sources that object to up for an IP version, and have not been overruled.
    pub fn objections(&self) -> impl Iterator<Item = Source> {
        let all: BTreeSet<Source> = self.0.iter().flat_map(FamilyArbiter::objections).collect();
        all.into_iter()
    }

    /// Packets of these IP versions arrive over a link that is down: sources that object are overruled, each until it
    /// reports up itself. Returns the versions for which it was down.
    pub fn handle_packets(&mut self, families: Families) -> Families {
        families.iter().filter(|&family| self.0[family.index()].handle_packets()).collect()
    }

    /// Handles a signal of a source.
    pub fn handle_signal(&mut self, now: Instant, signal: &Signal) -> Vec<LinkChange> {
        let reported = Family::BOTH.map(|family| {
            let is_meant = signal.families.contains(family);
            if is_meant { self.0[family.index()].handle_signal(now, signal) } else { Vec::new() }
        });
        LinkChange::join(reported)
    }

    /// Drops expired warnings.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<LinkChange> {
        LinkChange::join(self.0.each_mut().map(|arbiter| arbiter.handle_timeout(now)))
    }

    /// When the next warning expires.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().filter_map(FamilyArbiter::poll_timeout).min()
    }

    fn of(&self, family: Family) -> &FamilyArbiter {
        &self.0[family.index()]
    }
}

impl FamilyArbiter {
    fn state(&self) -> LinkCondition {
        match (self.is_down, self.warnings.is_empty()) {
            (true, _) => LinkCondition::Down,
            (false, false) => LinkCondition::Fading,
            (false, true) => LinkCondition::Up,
        }
    }

    /// Sources that object to up and have not been overruled.
    fn objections(&self) -> impl Iterator<Item = Source> {
        self.against.difference(&self.overruled).copied()
    }

    /// Packets arrive over a link that is down: sources that object are overruled, each until it reports up itself.
    /// Returns whether it was down.
    fn handle_packets(&mut self) -> bool {
        if self.is_down {
            self.overrule();
            self.contradicted.clone_from(&self.overruled);
        }
        std::mem::take(&mut self.is_down)
    }

    /// Handles a signal of a source.
    fn handle_signal(&mut self, now: Instant, signal: &Signal) -> Vec<LinkEvent> {
        let source = signal.source;
        match signal.event {
            LinkEvent::Fading { lead } => return self.warn(now, source, lead),
            LinkEvent::Recovered => {
                let recovered = self.withdraw(source);
                // A source that reports that a cut did not happen withdraws its warning.
                if source == Source::Command {
                    self.overrule();
                }
                return recovered.into_iter().chain(self.settle()).collect();
            }
            LinkEvent::Down => {
                self.overruled.remove(&source);
                self.contradicted.remove(&source);
                self.against.insert(source);
            }
            LinkEvent::Up { moved, .. } => {
                let was_against = self.against.remove(&source);
                // Packets contradicted the objection, or its time: now the link is up for certain.
                let is_sure = self.contradicted.remove(&source);
                self.overruled.remove(&source);
                self.has_moved |= moved;
                if source == Source::Command {
                    self.overrule();
                } else if was_against && is_of_the_link(source) {
                    self.against.remove(&Source::Command);
                }
                if is_sure && !self.is_down && self.objections().next().is_none() {
                    return vec![LinkEvent::Up { symmetric: false, moved: std::mem::take(&mut self.has_moved) }];
                }
            }
        }
        self.settle().into_iter().collect()
    }

    /// Drops expired warnings.
    fn handle_timeout(&mut self, now: Instant) -> Vec<LinkEvent> {
        let over: Vec<Source> =
            self.warnings.iter().filter(|&(_, &cut_at)| cut_at + OVERDUE <= now).map(|(&source, _)| source).collect();
        over.into_iter().filter_map(|source| self.withdraw(source)).collect()
    }

    /// When the next warning expires.
    fn poll_timeout(&self) -> Option<Instant> {
        self.warnings.values().min().map(|&cut_at| cut_at + OVERDUE)
    }

    fn warn(&mut self, now: Instant, source: Source, lead: Option<Duration>) -> Vec<LinkEvent> {
        // A link that is down needs no warning.
        if self.is_down {
            return Vec::new();
        }
        self.warnings.insert(source, now + lead.unwrap_or(SOON));
        let cut_at = now + lead.unwrap_or_default();
        if self.reported_cut.is_some_and(|reported| reported <= cut_at + SOONER) {
            return Vec::new();
        }
        self.reported_cut = Some(cut_at);
        vec![LinkEvent::Fading { lead }]
    }

    /// Withdraws the warning of a source.
    fn withdraw(&mut self, source: Source) -> Option<LinkEvent> {
        self.warnings.remove(&source)?;
        if !self.warnings.is_empty() || self.is_down {
            return None;
        }
        self.reported_cut = None;
        Some(LinkEvent::Recovered)
    }

    fn overrule(&mut self) {
        self.against.remove(&Source::Command);
        self.overruled.clone_from(&self.against);
    }

    /// The change since the last report to the mechanisms.
    fn settle(&mut self) -> Option<LinkEvent> {
        let is_down = self.objections().next().is_some();
        if is_down {
            if self.is_down {
                return None;
            }
            self.is_down = true;
            self.warnings.clear();
            self.reported_cut = None;
            return Some(LinkEvent::Down);
        }
        if !self.is_down && !self.has_moved {
            return None;
        }
        if self.has_moved {
            self.warnings.clear();
            self.reported_cut = None;
        }
        self.is_down = false;
        Some(LinkEvent::Up { symmetric: false, moved: std::mem::take(&mut self.has_moved) })
    }
}

/// Whether a source is about the link itself, so that its return restarts the link.
fn is_of_the_link(source: Source) -> bool {
    matches!(source, Source::Carrier | Source::Association | Source::Address | Source::Route | Source::Lower)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };
    const MOVED: LinkEvent = LinkEvent::Up { symmetric: false, moved: true };

    fn fading(millis: u64) -> LinkEvent {
        LinkEvent::Fading { lead: Some(Duration::from_millis(millis)) }
    }

    /// The arbiter's output for signals, with times in milliseconds.
    fn story(words: &[(u64, Source, LinkEvent)]) -> Vec<Vec<LinkEvent>> {
        let mut arbiter = Arbiter::new();
        let reports = words.iter().map(|&(millis, source, event)| {
            let at = Instant::from_millis(millis);
            let reported = arbiter.handle_signal(at, &Signal::new(at, "wlan0", event, source));
            assert!(reported.iter().all(|change| change.families.are_both()), "{reported:?}");
            reported.into_iter().map(|change| change.event).collect()
        });
        reports.collect()
    }

    // Claim: A link is up when its last source agrees; a command holds until the next report; a move is reported at once or with
    // the next up.
    // Tests: `arbiter::a_command_holds_until_the_next_report`, `arbiter::a_move_is_reported_at_once_or_with_the_next_up`
    #[test]
    fn up_is_reported_when_the_last_source_agrees() {
        use Source::{Address, Carrier, Route};
        let reported = story(&[
            (0, Carrier, LinkEvent::Down),
            (1, Route, LinkEvent::Down),
            (2, Address, LinkEvent::Down),
            (3, Carrier, UP),
            (4, Address, UP),
            (5, Route, UP),
            (6, Route, UP),
        ]);
        assert_eq!(reported, [vec![LinkEvent::Down], vec![], vec![], vec![], vec![], vec![UP], vec![]]);
    }

    #[test]
    fn a_carrier_that_is_down_beats_a_timetable() {
        use Source::{Carrier, Schedule};
        let reported = story(&[(0, Carrier, LinkEvent::Down), (1, Schedule, UP), (2, Carrier, UP)]);
        assert_eq!(reported, [vec![LinkEvent::Down], vec![], vec![UP]]);
        let reported = story(&[(0, Schedule, LinkEvent::Down), (1, Carrier, UP), (2, Schedule, UP)]);
        assert_eq!(reported, [vec![LinkEvent::Down], vec![], vec![UP]]);
    }

    #[test]
    fn a_command_holds_until_the_next_report() {
        use Source::{Carrier, Command, Neighbour};
        let reported = story(&[
            (0, Neighbour, LinkEvent::Down),
            (1, Command, UP),
            // A repeated report counts: the router was probed again.
            (2, Neighbour, LinkEvent::Down),
            (3, Neighbour, UP),
            (4, Command, LinkEvent::Down),
            (5, Neighbour, UP),
            (6, Carrier, UP),
            (7, Carrier, LinkEvent::Down),
            (8, Carrier, UP),
        ]);
        let down = || vec![LinkEvent::Down];
        assert_eq!(reported, [down(), vec![UP], down(), vec![UP], down(), vec![], vec![], vec![], vec![UP]]);
    }

    #[test]
    fn a_move_is_reported_at_once_or_with_the_next_up() {
        use Source::{Address, Carrier};
        assert_eq!(story(&[(0, Address, MOVED)]), [vec![MOVED]]);
        let reported = story(&[(0, Carrier, LinkEvent::Down), (1, Address, MOVED), (2, Carrier, UP), (3, Address, UP)]);
        assert_eq!(reported, [vec![LinkEvent::Down], vec![], vec![MOVED], vec![]]);
    }

    #[test]
    fn a_warning_is_reported_once_and_an_earlier_one_again() {
        use Source::{Schedule, Wifi};
        let reported = story(&[
            (0, Schedule, fading(500)),
            (100, Schedule, fading(400)),
            (100, Wifi, fading(200)),
            (150, Schedule, LinkEvent::Recovered),
            (160, Wifi, LinkEvent::Recovered),
            (170, Wifi, LinkEvent::Recovered),
            (180, Wifi, fading(100)),
            (280, Schedule, LinkEvent::Down),
            (290, Wifi, fading(100)),
            (300, Wifi, LinkEvent::Recovered),
        ]);
        let expected = [
            vec![fading(500)],
            vec![],
            vec![fading(200)],
            vec![],
            vec![LinkEvent::Recovered],
            vec![],
            vec![fading(100)],
            vec![LinkEvent::Down],
            vec![],
            vec![],
        ];
        assert_eq!(reported, expected);
    }

    #[test]
    fn a_false_warning_expires() {
        let mut arbiter = Arbiter::new();
        let signal = Signal::new(Instant::ZERO, "x", fading(100), Source::Command);
        arbiter.handle_signal(Instant::ZERO, &signal);
        assert_eq!(arbiter.state(), LinkCondition::Fading);
        let deadline = arbiter.poll_timeout().unwrap();
        assert_eq!(deadline, Instant::from_millis(2100));
        assert_eq!(arbiter.handle_timeout(Instant::from_millis(2000)), []);
        assert_eq!(arbiter.handle_timeout(deadline), [LinkChange::of_both(LinkEvent::Recovered)]);
        assert_eq!((arbiter.poll_timeout(), arbiter.state()), (None, LinkCondition::Up));
    }

    // Claim: IPv4 and IPv6 outages are separate; each version gets the same events as without the other, and packets of one are
    // no evidence about the other.
    // Tests: `arbiter::the_versions_are_independent`, `arbiter::packets_of_one_version_do_not_affect_the_other`,
    // `tests::one_version_of_ip_fails_and_the_other_stays`, `tests::an_unused_version_follows_the_other`
    #[test]
    fn one_ip_version_fails_and_the_other_stays_up() {
        use Source::{Address, Carrier};
        let mut arbiter = Arbiter::new();
        let mut tell = |event, families, source| {
            let signal = Signal { families, ..Signal::new(Instant::ZERO, "wlan0", event, source) };
            let reported = arbiter.handle_signal(Instant::ZERO, &signal);
            (reported.iter().map(ToString::to_string).collect::<Vec<_>>(), arbiter.state(), arbiter.down())
        };
        let [ipv4, ipv6] = Family::BOTH.map(Families::only);
        let reports = |text: &str| if text.is_empty() { vec![] } else { vec![text.to_owned()] };
        assert_eq!(tell(LinkEvent::Down, ipv4, Address), (reports("down (IPv4)"), LinkCondition::Up, ipv4));
        assert_eq!(
            tell(LinkEvent::Down, Families::BOTH, Carrier),
            (reports("down (IPv6)"), LinkCondition::Down, Families::BOTH)
        );
        assert_eq!(tell(UP, Families::BOTH, Carrier), (reports("up (IPv6)"), LinkCondition::Up, ipv4));
        assert_eq!(tell(UP, ipv4, Address), (reports("up (IPv4)"), LinkCondition::Up, Families::NONE));
        assert_eq!(
            tell(LinkEvent::Down, Families::BOTH, Carrier),
            (reports("down"), LinkCondition::Down, Families::BOTH)
        );
        assert_eq!(tell(MOVED, ipv6, Address), (reports(""), LinkCondition::Down, Families::BOTH));
        let (reported, ..) = tell(UP, Families::BOTH, Carrier);
        assert_eq!(reported, ["up (IPv4)", "up, moved (IPv6)"]);
    }

    #[test]
    fn packets_of_one_version_do_not_affect_the_other() {
        let mut arbiter = Arbiter::new();
        arbiter.handle_signal(Instant::ZERO, &Signal::new(Instant::ZERO, "x", LinkEvent::Down, Source::Neighbour));
        let [ipv4, ipv6] = Family::BOTH.map(Families::only);
        assert_eq!(arbiter.handle_packets(ipv6), ipv6);
        assert_eq!((arbiter.handle_packets(ipv6), arbiter.down()), (Families::NONE, ipv4));
        assert_eq!(arbiter.objections().collect::<Vec<_>>(), [Source::Neighbour]);
    }

    fn any_word() -> impl Strategy<Value = (u64, Source, LinkEvent, Families)> {
        use Source::{Address, Carrier, Command, Lower, Neighbour, Route, Schedule, Suspend, Wifi};
        let source =
            prop::sample::select(vec![Carrier, Address, Route, Lower, Neighbour, Suspend, Schedule, Wifi, Command]);
        let event =
            prop::sample::select(vec![UP, MOVED, LinkEvent::Down, LinkEvent::Recovered, fading(50), fading(5000)]);
        let [ipv4, ipv6] = Family::BOTH.map(Families::only);
        (0..3000u64, source, event, prop::sample::select(vec![Families::BOTH, ipv4, ipv6]))
    }

    proptest! {
        /// Any signals in any order, for each version: never down twice in a row, never up without down or a move,
        /// never recovered without a warning, and a command `up` always ends with the link up.
        // Claim: For any reports of the sources in any order, the mechanisms get consistent events: never down twice, never up
        // without down or a move, never recovered without a warning.
        #[test]
        fn the_story_makes_sense(words in prop::collection::vec(any_word(), 0..60)) {
            let mut arbiter = Arbiter::new();
            let (mut now, mut down, mut warned) = (Instant::ZERO, [false; 2], [false; 2]);
            for (wait, source, event, families) in words {
                now += Duration::from_millis(wait);
                let timely = arbiter.handle_timeout(now);
                let reported = arbiter.handle_signal(now, &Signal { families, ..Signal::new(now, "x", event, source) });
                for change in timely.into_iter().chain(reported) {
                    for family in change.families.iter() {
                        let (down, warned) = (&mut down[family.index()], &mut warned[family.index()]);
                        match change.event {
                            LinkEvent::Down => {
                                prop_assert!(!*down);
                                (*down, *warned) = (true, false);
                            }
                            LinkEvent::Up { moved, .. } => {
                                prop_assert!(*down || moved);
                                *down = false;
                                *warned &= !moved;
                            }
                            LinkEvent::Fading { .. } => {
                                prop_assert!(!*down);
                                *warned = true;
                            }
                            LinkEvent::Recovered => {
                                prop_assert!(*warned && !*down);
                                *warned = false;
                            }
                        }
                    }
                }
                let is_down = |family: &Family| down[family.index()];
                prop_assert_eq!(arbiter.down(), Family::BOTH.into_iter().filter(is_down).collect());
                prop_assert_eq!(arbiter.state() == LinkCondition::Down, down == [true; 2]);
                let is_warned = Family::BOTH.into_iter().any(|family| warned[family.index()] && !is_down(&family));
                prop_assert_eq!(arbiter.state() == LinkCondition::Fading, is_warned && down != [true; 2]);
                if source == Source::Command && matches!(event, LinkEvent::Up { .. }) {
                    prop_assert!(families.iter().all(|family| !is_down(&family)));
                }
            }
        }

        /// Each version gets the same events as if the other did not exist.
        #[test]
        fn the_versions_are_independent(words in prop::collection::vec(any_word(), 0..60)) {
            let mut both = Arbiter::new();
            let mut alone = [Arbiter::new(), Arbiter::new()];
            let mut now = Instant::ZERO;
            for (wait, source, event, families) in words {
                now += Duration::from_millis(wait);
                let mut signal = Signal { families, ..Signal::new(now, "x", event, source) };
                let reported = [both.handle_timeout(now), both.handle_signal(now, &signal)].concat();
                for family in Family::BOTH {
                    signal.families = families.and(Families::only(family));
                    let alone = &mut alone[family.index()];
                    let expected = [alone.handle_timeout(now), alone.handle_signal(now, &signal)].concat();
                    let heard = reported.iter().filter(|change| change.families.contains(family)).map(|change| change.event);
                    prop_assert_eq!(heard.collect::<Vec<_>>(), expected.iter().map(|change| change.event).collect::<Vec<_>>());
                }
            }
        }
    }
}
