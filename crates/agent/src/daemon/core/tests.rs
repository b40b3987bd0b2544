use std::cell::RefCell;
use std::path::Path as FilePath;
use std::rc::Rc;

use holdover_mobility::wake::WakeConfig;
use holdover_mobility::{Action, Connection, Resumed, WakeOutcome};

use super::*;
use crate::control::EventKind;
use crate::link_watch::schedule::Schedule;
use crate::link_watch::{Families, LinkChange, LinkCondition};
use crate::path_engine::PathConnection;
use crate::path_engine::PathEngine;

const NOON: Utc = Utc(Instant::from_secs(1_795_348_800));

/// The calls of engines, with their interface; dropped engines note that too.
type Diary = Rc<RefCell<Vec<String>>>;

struct Fakes {
    diary: Diary,
    /// The number of attempts that fail.
    failures: u32,
}

struct Fake {
    name: String,
    diary: Diary,
    actions: VecDeque<Action>,
    outcomes: VecDeque<WakeOutcome>,
    up_at: Option<Instant>,
}

#[derive(Debug, thiserror::Error)]
#[error("no luck")]
struct NoLuck;

fn connection() -> Connection {
    Connection { local: "192.0.2.7:1024".parse().unwrap(), remote: "198.51.100.1:443".parse().unwrap() }
}

impl Attach for Fakes {
    type Engine = Fake;
    type Error = NoLuck;

    fn attach(&mut self, interface: &str, config: &WakeConfig) -> Result<Fake, NoLuck> {
        if self.failures > 0 {
            self.failures -= 1;
            return Err(NoLuck);
        }
        let how = if config.hold_back.is_some() { "" } else { " without holding back" };
        self.diary.borrow_mut().push(format!("{interface} attached{how}"));
        Ok(Fake {
            name: interface.to_owned(),
            diary: Rc::clone(&self.diary),
            actions: VecDeque::new(),
            outcomes: VecDeque::new(),
            up_at: None,
        })
    }

    fn attach_again(&mut self, engine: &mut Fake) -> Result<(), NoLuck> {
        if self.failures > 0 {
            self.failures -= 1;
            return Err(NoLuck);
        }
        self.diary.borrow_mut().push(format!("{} attached again", engine.name));
        Ok(())
    }
}

impl PathEngine for Fake {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn handle_link(&mut self, now: Instant, change: LinkChange) {
        self.diary.borrow_mut().push(format!("{} {change}", self.name));
        if matches!(change.event, LinkEvent::Up { .. }) {
            // One in each direction.
            let action = Action { at: now, connection: connection(), mechanism: "hold_back", what: "released" };
            self.actions.extend([action; 2]);
            self.up_at = Some(now);
            let outcome = WakeOutcome {
                connection: connection(),
                cut_at: now,
                up_at: now,
                woken_at: Some(now),
                resumed_at: Some(now + Duration::from_millis(60)),
                tries: 1,
                kind: Resumed::AtOnce,
            };
            let idle = WakeOutcome { resumed_at: None, kind: Resumed::NothingOutstanding, ..outcome };
            self.outcomes.extend([outcome, idle]);
        }
    }

    fn handle_absent(&mut self, _: Instant, absent: &BTreeSet<IpAddr>) {
        if !absent.is_empty() {
            self.diary.borrow_mut().push(format!("{} lacks {absent:?}", self.name));
        }
    }

    fn handle_ready(&mut self, _: Instant) {
        self.diary.borrow_mut().push(format!("{} ready", self.name));
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        self.outcomes.pop_front()
    }

    fn alternative_at(&self, _: Connection) -> Option<Instant> {
        self.up_at.map(|at| at + Duration::from_millis(810))
    }

    /// A ready engine has received packets.
    fn contradicts_down(&self) -> Families {
        let is_ready = self.diary.borrow().last().is_some_and(|line| line.ends_with("ready"));
        if is_ready { Families::BOTH } else { Families::NONE }
    }

    fn poll_trouble(&mut self) -> Option<String> {
        self.diary.borrow().iter().any(|line| line.ends_with("down")).then(|| "no room".to_owned())
    }

    fn connections(&mut self, _: Instant) -> Vec<PathConnection> {
        vec![PathConnection {
            connection: connection(),
            bytes_sent: 1,
            bytes_received: 2,
            idle: None,
            round_trip: Some(Duration::from_millis(50)),
            held_bytes: 0,
            is_exempt: false,
        }]
    }

    fn counters(&self) -> Counters {
        Counters { packets: 10, ..Counters::default() }
    }

    fn leave_alone(&mut self, _: Connection, _: bool) {}
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.diary.borrow_mut().push(format!("{} detached", self.name));
    }
}

fn core(config: &str, failures: u32) -> (Core<Fakes>, Diary) {
    let diary = Diary::default();
    let fakes = Fakes { diary: Rc::clone(&diary), failures };
    (Core::new(Instant::ZERO, fakes, parse(config), Vec::new(), false), diary)
}

fn parse(text: &str) -> Config {
    Config::parse(FilePath::new("agent.toml"), text).unwrap()
}

fn appear(core: &mut Core<Fakes>, interface: &str, is_eligible: bool) {
    core.handle_change(Instant::ZERO, Change::Appeared { interface: interface.into(), is_eligible });
}

fn hear(core: &mut Core<Fakes>, seconds: u64, interface: &str, source: Source, event: LinkEvent) {
    let at = Instant::from_secs(seconds);
    core.handle_change(at, Change::Signal(Signal::new(at, interface, event, source)));
}

fn reported(diary: &Diary) -> Vec<String> {
    std::mem::take(&mut *diary.borrow_mut())
}

fn command(core: &mut Core<Fakes>, event: EventKind, interface: Option<&str>) -> Result<Vec<String>, Refusal> {
    let request = SignalRequest { event, interface: interface.map(str::to_owned), lead: None };
    core.handle_command(Instant::from_secs(9), &request)
}

// Claim: The daemon attaches to uplinks as they appear, retries failures, and reloads its configuration; an invalid one changes
// nothing.
// Tests: `tests::attaching_an_engine_is_retried`, `tests::a_configuration_is_read_again_and_a_bad_one_changes_nothing`
#[test]
fn an_uplink_is_attached_when_it_is_one_and_detached_when_it_goes() {
    let (mut core, diary) = core("", 0);
    appear(&mut core, "lo", false);
    appear(&mut core, "wlan0", false);
    assert_eq!(reported(&diary), [] as [&str; 0]);
    // It had no carrier before it was an uplink; its engine is notified.
    hear(&mut core, 1, "wlan0", Source::Carrier, LinkEvent::Down);
    appear(&mut core, "wlan0", true);
    assert_eq!(reported(&diary), ["wlan0 attached", "wlan0 down"]);
    hear(&mut core, 2, "wlan0", Source::Carrier, UP);
    core.handle_change(Instant::ZERO, Change::Disappeared { interface: "wlan0".into() });
    assert_eq!(reported(&diary), ["wlan0 up", "wlan0 down"]);
    // Deadlines end: the interface is detached.
    while let Some(at) = core.poll_timeout() {
        core.handle_timeout(at);
    }
    assert_eq!(reported(&diary), ["wlan0 detached"]);
    assert!(!core.links.contains_key("wlan0"));
}

// Claim: An engine that is attached later, on another interface or after a failure, gets the addresses that this host has lost.
#[test]
fn later_engines_get_the_lost_addresses() {
    let (mut core, diary) = core("", 0);
    let (now, lost) = (Instant::from_secs(1), BTreeSet::from(["192.0.2.7".parse().unwrap()]));
    appear(&mut core, "wlan0", true);
    core.handle_absent(now, &lost);
    assert_eq!(reported(&diary), ["wlan0 attached", "wlan0 lacks {192.0.2.7}"]);
    core.attach.failures = 1;
    appear(&mut core, "eth0", true);
    assert_eq!(reported(&diary), [] as [&str; 0]);
    core.handle_timeout(now + Duration::from_secs(20));
    assert_eq!(reported(&diary), ["eth0 attached", "eth0 lacks {192.0.2.7}"]);
    core.handle_absent(now, &BTreeSet::new());
    core.configure(now, NOON, parse("[wake]\nhold_back = 0\n"), None);
    assert!(!reported(&diary).iter().any(|line| line.contains("lacks")), "it is back");
}

/// A modem that is reset: same name, same addresses, same connections.
// Claim: An interface that is removed and made anew under its name goes on where it was.
#[test]
fn a_returning_interface_keeps_its_state() {
    for failures in 0..2 {
        let (mut core, diary) = core("", 0);
        appear(&mut core, "ppp0", true);
        core.handle_change(Instant::from_secs(10), Change::Disappeared { interface: "ppp0".into() });
        assert_eq!(reported(&diary), ["ppp0 attached", "ppp0 down"]);
        let status = core.status(Instant::from_secs(11), NOON);
        assert_eq!(status.links[0].problem.as_deref(), Some("the interface is gone"));
        // Without a route it is not eligible yet; reloading the configuration does not change that.
        core.configure(Instant::from_secs(12), NOON, Config::default(), None);
        appear(&mut core, "ppp0", false);
        // The former interface's engine cannot use the new one.
        hear(&mut core, 13, "ppp0", Source::Carrier, LinkEvent::Down);
        hear(&mut core, 14, "ppp0", Source::Carrier, UP);
        assert_eq!(reported(&diary), Vec::<String>::new());
        core.attach.failures = failures;
        appear(&mut core, "ppp0", true);
        let expected: &[&str] = match failures {
            0 => &["ppp0 attached again", "ppp0 up"],
            _ => &["ppp0 detached", "ppp0 attached"],
        };
        assert_eq!(reported(&diary), expected);
        let status = core.status(Instant::from_secs(20), NOON);
        assert_eq!((status.links[0].record.outages, status.links[0].problem.as_deref()), (1, None));
    }
}

/// Named interfaces are managed before they have a route.
// Claim: An interface named in the configuration that is removed and made anew is up when its sources agree, not as soon as it exists.
#[test]
fn a_returning_interface_that_is_named_waits_for_its_signals() {
    for initial in [&[Source::Carrier, Source::Address, Source::Route][..], &[]] {
        let (mut core, diary) = core("[links]\ninclude = [\"ppp0\"]\n", 0);
        appear(&mut core, "ppp0", true);
        core.handle_change(Instant::from_secs(10), Change::Disappeared { interface: "ppp0".into() });
        assert_eq!(reported(&diary), ["ppp0 attached", "ppp0 down"]);
        appear(&mut core, "ppp0", false);
        initial.iter().for_each(|&source| hear(&mut core, 12, "ppp0", source, LinkEvent::Down));
        assert_eq!(reported(&diary), Vec::<String>::new());
        core.handle_returned(Instant::from_secs(12));
        if initial.is_empty() {
            assert_eq!(reported(&diary), ["ppp0 attached again", "ppp0 up"]);
            continue;
        }
        assert_eq!(reported(&diary), ["ppp0 attached again"]);
        hear(&mut core, 13, "ppp0", Source::Carrier, UP);
        hear(&mut core, 14, "ppp0", Source::Address, UP);
        appear(&mut core, "ppp0", true);
        core.handle_returned(Instant::from_secs(15));
        assert_eq!(reported(&diary), Vec::<String>::new());
        hear(&mut core, 15, "ppp0", Source::Route, UP);
        assert_eq!(reported(&diary), ["ppp0 up"]);
        let record = &core.status(Instant::from_secs(20), NOON).links[0].record;
        assert_eq!((record.outages, record.down_s), (1, 5.0));
    }
}

/// A tunnel without a default route: its new address arrives with it.
#[test]
fn a_returning_interface_with_another_address_has_moved_once() {
    let (mut core, diary) = core("[links]\ninclude = [\"tun0\"]\n", 0);
    appear(&mut core, "tun0", false);
    core.handle_change(Instant::from_secs(10), Change::Disappeared { interface: "tun0".into() });
    reported(&diary);
    appear(&mut core, "tun0", false);
    hear(&mut core, 12, "tun0", Source::Address, LinkEvent::Down);
    hear(&mut core, 12, "tun0", Source::Address, LinkEvent::Up { symmetric: false, moved: true });
    core.handle_returned(Instant::from_secs(12));
    assert_eq!(reported(&diary), ["tun0 attached again", "tun0 up, moved"]);
    let record = &core.status(Instant::from_secs(20), NOON).links[0].record;
    assert_eq!((record.outages, record.moves), (1, 1));
}

/// A timetable that is early: packets arrive, and overrule it until they stop.
#[test]
fn packets_overrule_a_source_that_reports_down() {
    let (mut core, diary) = core("", 0);
    appear(&mut core, "wwan0", true);
    let now = Instant::from_secs(100);
    core.handle_signal(now, &Signal::new(now, "wwan0", LinkEvent::Down, Source::Schedule));
    core.handle_ready(now, "wwan0");
    assert_eq!(core.status(now, NOON).links[0].state, LinkCondition::Up);
    hear(&mut core, 102, "wwan0", Source::Carrier, LinkEvent::Down);
    hear(&mut core, 160, "wwan0", Source::Carrier, UP);
    core.handle_ready(now, "wwan0");
    assert_eq!(
        reported(&diary),
        ["wwan0 attached", "wwan0 down", "wwan0 ready", "wwan0 down", "wwan0 up", "wwan0 ready"]
    );
    // No other source may have noticed: the overruled source reports up, and that is passed on.
    core.handle_signal(now, &Signal::new(now, "wwan0", UP, Source::Schedule));
    assert_eq!(reported(&diary), ["wwan0 up"]);
    core.handle_signal(now, &Signal::new(now, "wwan0", UP, Source::Schedule));
    assert_eq!(reported(&diary), Vec::<String>::new());
}

#[test]
fn interfaces_named_on_the_command_line_are_managed() {
    let (mut core, diary) = core("[links]\ninclude = [\"tun*\"]", 0);
    appear(&mut core, "wlan0", true);
    appear(&mut core, "tun0", false);
    assert_eq!(reported(&diary), ["tun0 attached"]);
    let (mut core, diary) = super::tests::core("", 0);
    core.named = vec!["lo".to_owned()];
    appear(&mut core, "wlan0", true);
    appear(&mut core, "lo", false);
    assert_eq!(reported(&diary), ["lo attached"]);
}

#[test]
fn attaching_an_engine_is_retried() {
    let (mut core, diary) = core("[signals]\nsilence = false", 2);
    appear(&mut core, "wlan0", true);
    let status = core.status(Instant::ZERO, NOON);
    assert_eq!(status.links[0].problem.as_deref(), Some("no luck"));
    let mut tries = 0;
    while let Some(at) = core.poll_timeout() {
        core.handle_timeout(at);
        tries += 1;
    }
    assert_eq!((tries, reported(&diary)), (2, vec!["wlan0 attached".to_owned()]));
    assert_eq!(core.status(Instant::ZERO, NOON).links[0].problem, None);
}

#[test]
fn sources_that_are_off_are_not_believed() {
    let (mut core, diary) = core("[signals]\ncarrier = false", 0);
    appear(&mut core, "wlan0", true);
    hear(&mut core, 1, "wlan0", Source::Carrier, LinkEvent::Down);
    hear(&mut core, 1, "wlan0", Source::Route, LinkEvent::Down);
    hear(&mut core, 2, "wlan0", Source::Route, UP);
    assert_eq!(reported(&diary), ["wlan0 attached", "wlan0 down", "wlan0 up"]);
}

#[test]
fn refusals_of_the_kernel_are_reported() {
    let (mut core, _) = core("", 0);
    appear(&mut core, "wlan0", true);
    core.take_actions(Instant::ZERO, NOON);
    assert_eq!(core.status(Instant::ZERO, NOON).links[0].trouble, None);
    hear(&mut core, 1, "wlan0", Source::Carrier, LinkEvent::Down);
    core.take_actions(Instant::ZERO, NOON);
    assert_eq!(core.status(Instant::ZERO, NOON).links[0].trouble.as_deref(), Some("no room"));
}

#[test]
fn a_command_reaches_the_links_that_it_names() {
    let (mut core, diary) = core("", 0);
    assert_eq!(command(&mut core, EventKind::Down, None), Err(Refusal::NoLinks));
    appear(&mut core, "wlan0", true);
    appear(&mut core, "wwan0", true);
    appear(&mut core, "lo", false);
    reported(&diary);
    assert_eq!(command(&mut core, EventKind::Down, None), Ok(vec!["wlan0".to_owned(), "wwan0".to_owned()]));
    assert_eq!(command(&mut core, EventKind::Up, Some("wwan0")), Ok(vec!["wwan0".to_owned()]));
    assert_eq!(reported(&diary), ["wlan0 down", "wwan0 down", "wwan0 up"]);
    for unknown in ["lo", "eth9"] {
        let refused = command(&mut core, EventKind::Up, Some(unknown)).unwrap_err();
        assert!(refused.to_string().ends_with("it manages: wlan0, wwan0"), "{refused}");
    }
}

#[test]
fn actions_are_reported_and_outcomes_counted() {
    let (mut core, _) = core("", 0);
    appear(&mut core, "wlan0", true);
    hear(&mut core, 10, "wlan0", Source::Carrier, LinkEvent::Down);
    hear(&mut core, 17, "wlan0", Source::Carrier, UP);
    let fresh = core.take_actions(Instant::from_secs(17), NOON);
    assert_eq!((fresh.len(), fresh[0].what.as_str(), fresh[0].saved_s), (3, "released", None));
    let outcome = fresh[2].outcome.clone().unwrap();
    assert_eq!((outcome.kind.as_str(), outcome.resumed_s, outcome.tries), ("at_once", Some(0.06), 1));
    assert_eq!((fresh[2].what.as_str(), fresh[2].saved_s), ("resumed after 0.06 s, 1 try", Some(0.75)));
    assert_eq!(core.take_actions(Instant::from_secs(17), NOON), []);
    assert_eq!(core.actions().count(), 3);
    let status = core.status(Instant::from_secs(20), NOON);
    let link = &status.links[0];
    let outcomes = &link.record.outcomes;
    assert_eq!((link.state, link.state_s, link.record.outages), (LinkCondition::Up, 3.0, 1));
    assert_eq!((outcomes.at_once.count, outcomes.later.count, outcomes.never), (1, 0, 0));
    assert_eq!((link.record.down_s, outcomes.saved_s), (7.0, Some(0.75)));
    let connection = &status.connections[0];
    assert_eq!((connection.actions, connection.last_action.as_deref()), (2, Some("resumed after 0.06 s, 1 try")));
    assert_eq!(connection.saved_s, Some(0.75));
    assert_eq!((status.connections_in_all, status.counters.packets), (1, 10));
    // A current outage counts already.
    hear(&mut core, 30, "wlan0", Source::Carrier, LinkEvent::Down);
    let link = core.status(Instant::from_secs(33), NOON).links.remove(0);
    assert_eq!((link.record.down_s, link.objections), (10.0, vec![Source::Carrier]));
}

#[test]
fn sleep_is_an_outage_of_every_link() {
    let (mut core, diary) = core("", 0);
    appear(&mut core, "wlan0", true);
    appear(&mut core, "eth0", true);
    hear(&mut core, 1, "eth0", Source::Carrier, LinkEvent::Down);
    reported(&diary);
    core.handle_sleep(Instant::from_secs(5), Duration::from_secs(3600));
    assert_eq!(reported(&diary), ["wlan0 down", "wlan0 up"], "eth0 has no carrier before and after");
}

#[test]
fn another_configuration_restarts_only_affected_engines() {
    let (mut core, diary) = core("", 0);
    appear(&mut core, "wlan0", true);
    appear(&mut core, "eth0", true);
    reported(&diary);
    core.configure(Instant::ZERO, NOON, parse("[log]\nlevel = \"debug\""), None);
    assert_eq!(reported(&diary), [] as [&str; 0]);
    core.configure(Instant::ZERO, NOON, parse("[links]\nexclude = [\"eth0\"]"), None);
    assert_eq!(reported(&diary), ["eth0 detached"]);
    let mut names = {
        core.configure(Instant::ZERO, NOON, parse("[wake]\nhold_back = 0"), None);
        reported(&diary)
    };
    names.sort();
    assert_eq!(names, ["eth0 attached without holding back", "wlan0 attached without holding back", "wlan0 detached"]);
}

#[test]
fn disabling_a_source_withdraws_its_objection() {
    let (mut core, diary) = core("", 0);
    appear(&mut core, "wlan0", true);
    hear(&mut core, 1, "wlan0", Source::Neighbour, LinkEvent::Down);
    reported(&diary);
    core.configure(Instant::ZERO, NOON, parse("[signals]\nneighbour = false"), None);
    assert_eq!(reported(&diary), ["wlan0 up"]);
}

#[test]
fn a_timetable_applies_to_its_link() {
    let (mut core, diary) = core("", 0);
    appear(&mut core, "wlan0", true);
    appear(&mut core, "wwan0", true);
    reported(&diary);
    let text = "interface = \"wwan0\"\n[[down]]\nat = 2026-11-22T12:00:10Z\nfor = \"5 s\"";
    let schedule = || ScheduleWatch::new(Schedule::parse(FilePath::new("s.toml"), text).unwrap());
    core.configure(Instant::ZERO, NOON, Config::default(), Some(schedule()));
    let status = core.status(Instant::ZERO, NOON);
    assert_eq!(status.links.iter().map(|link| link.next_cut_s).collect::<Vec<_>>(), [None, Some(10.0)]);
    let mut utc = NOON;
    while let Some(next) = core.poll_time(utc) {
        utc = next;
        core.handle_time(Instant::ZERO, utc);
    }
    assert_eq!(reported(&diary), ["wwan0 fading in 300ms", "wwan0 down", "wwan0 up"]);
    // Removing a timetable during its cut leaves no link down.
    core.configure(Instant::ZERO, Utc(NOON.0 + Duration::from_secs(12)), Config::default(), Some(schedule()));
    core.configure(Instant::ZERO, Utc(NOON.0 + Duration::from_secs(12)), Config::default(), None);
    assert_eq!(reported(&diary), ["wwan0 down", "wwan0 up"]);
}

#[test]
fn wifi_levels_are_asked_for_while_they_are_wanted() {
    let (mut core, diary) = core("[signals.wifi]\nwarn = \"fixed\"\nfloor = \"-80 dBm\"", 0);
    assert_eq!(core.poll_timeout(), None);
    appear(&mut core, "wlan0", true);
    let now = core.poll_timeout().unwrap();
    assert_eq!(core.take_wifi_due(now), ["wlan0".into()]);
    assert_eq!(core.take_wifi_due(now), []);
    core.handle_level(now, "wlan0", Some(Dbm(-90)));
    assert_eq!(reported(&diary), ["wlan0 attached", "wlan0 fading"]);
    appear(&mut core, "eth0", true);
    core.forget_wifi("eth0");
    assert_eq!(core.take_wifi_due(Instant::from_secs(50)), ["wlan0".into()]);
    core.configure(now, NOON, Config::default(), None);
    core.handle_change(now, Change::Disappeared { interface: "wlan0".into() });
    assert_eq!(core.take_wifi_due(Instant::from_secs(100)), []);
}
