//! A modem by a fake ModemManager on a private bus.

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_lite::{StreamExt as _, future};
use holdover_agent::link_watch::{LinkCondition, Source};
use holdover_testbed::Namespace;
use zbus::connection::Builder;
use zbus::message::Type;
use zbus::{Connection, MessageStream, ObjectPath, Variant};

use crate::Test;
use crate::bus::{Bus, LIMIT};
use crate::lan::{Agent, INTERFACE, Lan};

pub(crate) const TESTS: &[Test] = &[
    ("a_modem_that_loses_its_network_is_an_outage", a_modem_that_loses_its_network_is_an_outage),
    ("a_modem_manager_that_starts_again_is_followed", a_modem_manager_that_starts_again_is_followed),
    ("a_weak_signal_of_a_modem_is_a_warning", a_weak_signal_of_a_modem_is_a_warning),
    ("a_modem_that_refuses_to_measure_is_asked_again", a_modem_that_refuses_to_measure_is_asked_again),
    ("a_reload_ends_the_connection_to_the_bus", a_reload_ends_the_connection_to_the_bus),
    ("only_modem_manager_is_believed", only_modem_manager_is_believed),
];

const SERVICE: &str = "org.freedesktop.ModemManager1";
const MODEM: &str = "org.freedesktop.ModemManager1.Modem";
const SIGNAL: &str = "org.freedesktop.ModemManager1.Modem.Signal";
const BUS: &str = "org.freedesktop.DBus";
const PATH: &str = "/org/freedesktop/ModemManager1/Modem/0";

/// `MMModemState`.
const REGISTERED: i32 = 8;
const CONNECTED: i32 = 11;

/// A withdrawn report is passed on at once. One that is not is overruled after 3 s, by packets that arrive.
const WITHDRAWN: Duration = Duration::from_millis(2500);

/// The one modem's state when the agent asks, which is that of the last signal in these tests.
struct ModemManager {
    daemon: Bus,
    bus: Connection,
    /// The rates with which the agent has asked for measurements.
    rates: mpsc::Receiver<u32>,
}

impl ModemManager {
    fn start(namespace: &Namespace, state: i32) -> Self {
        Self::start_with(namespace, state, false)
    }

    /// It refuses the first request to measure, as for a modem that is not initialized yet.
    fn refusing_once(namespace: &Namespace, state: i32) -> Self {
        Self::start_with(namespace, state, true)
    }

    fn start_with(namespace: &Namespace, state: i32, refuses_once: bool) -> Self {
        let (daemon, bus) = Bus::start(namespace);
        let (asked, rates) = mpsc::channel();
        let calls = MessageStream::from(&bus);
        std::thread::spawn({
            let bus = bus.clone();
            move || future::block_on(serve(&bus, calls, state, refuses_once, &asked))
        });
        future::block_on(bus.request_name(SERVICE)).unwrap();
        Self { daemon, bus, rates }
    }

    /// The number of connections to the bus.
    fn connections(&self) -> usize {
        let call = self.bus.call_method(Some(BUS), "/org/freedesktop/DBus", Some(BUS), "ListNames", &());
        let names: Vec<String> = future::block_on(call).unwrap().body().deserialize().unwrap();
        names.iter().filter(|name| name.starts_with(':')).count()
    }

    fn changes_state(&self, from: i32, to: i32) {
        change_state(&self.bus, from, to);
    }

    fn measures(&self, rsrp: f64) {
        let lte = HashMap::from([("rsrp", Variant::from(rsrp)), ("snr", Variant::from(3.5))]);
        self.has_changed(SIGNAL, "Lte", Variant::from(lte));
    }

    fn has_quality(&self, percent: u32) {
        self.has_changed(MODEM, "SignalQuality", Variant::from((percent, true)));
    }

    fn has_changed(&self, of: &str, name: &str, value: Variant<'_>) {
        let changed = (of, HashMap::from([(name, value)]), Vec::<String>::new());
        let properties = "org.freedesktop.DBus.Properties";
        let signal = self.bus.emit_signal(None::<&str>, PATH, properties, "PropertiesChanged", &changed);
        future::block_on(signal).unwrap();
    }
}

fn change_state(bus: &Connection, from: i32, to: i32) {
    future::block_on(bus.emit_signal(None::<&str>, PATH, MODEM, "StateChanged", &(from, to, 0_u32))).unwrap();
}

async fn serve(bus: &Connection, mut calls: MessageStream, state: i32, mut refuses: bool, asked: &mpsc::Sender<u32>) {
    while let Some(Ok(message)) = calls.next().await {
        let header = message.header();
        if header.message_type() != Type::MethodCall {
            continue;
        }
        let answered = match header.member().map(|member| member.as_str()) {
            Some("GetManagedObjects") => {
                // The control port comes first, as with real modems; MM_MODEM_PORT_TYPE_QMI and _NET.
                let ports = vec![("cdc-wdm0", 6_u32), (INTERFACE, 2_u32)];
                let modem = HashMap::from([("State", Variant::from(state)), ("Ports", Variant::from(ports))]);
                let signal = HashMap::from([("Rate", Variant::from(0_u32))]);
                let interfaces = HashMap::from([(MODEM, modem), (SIGNAL, signal)]);
                bus.reply(&header, &HashMap::from([(ObjectPath::try_from(PATH).unwrap(), interfaces)])).await
            }
            Some("Setup") => {
                let _ = asked.send(message.body().deserialize().unwrap());
                match std::mem::take(&mut refuses) {
                    true => bus.reply_error(&header, "org.freedesktop.ModemManager1.Error.Core.WrongState", &()).await,
                    false => bus.reply(&header, &()).await,
                }
            }
            _ => continue,
        };
        if answered.is_err() {
            return;
        }
    }
}

fn start(near: &Namespace, manager: &ModemManager, more: &str) -> Agent {
    Agent::start_with(near, "modem", &manager.daemon.address(), &[INTERFACE], more)
}

// Claim: On a D-Bus of the test with a ModemManager of the test: a modem that is not connected to its network is an outage, also
// if it was so before the agent started; weak signals warn, by RSRP or, while none is known, by quality, and are withdrawn; a
// modem that refuses to measure is asked again when its state changes; a reload ends the connection to the bus; a ModemManager
// that starts again is followed at once; the end of the bus or of ModemManager withdraws both; other senders are ignored. Needs
// `dbus-daemon`.
// Tests: `modem::a_modem_manager_that_starts_again_is_followed`, `modem::a_weak_signal_of_a_modem_is_a_warning`,
// `modem::a_modem_that_refuses_to_measure_is_asked_again`, `modem::a_reload_ends_the_connection_to_the_bus`,
// `modem::only_modem_manager_is_believed`
fn a_modem_that_loses_its_network_is_an_outage(near: &Namespace) {
    let _lan = Lan::new(near, "192.0.2.", 24);
    // States from before the agent's start count.
    let mut manager = ModemManager::start(near, REGISTERED);
    let agent = start(near, &manager, "");
    agent.is_down_by(Source::Modem, LIMIT);
    manager.changes_state(REGISTERED, CONNECTED);
    is_up(&agent);
    manager.changes_state(CONNECTED, REGISTERED);
    agent.is_down_by(Source::Modem, LIMIT);
    // A bus that ends takes the report with it.
    manager.daemon.kill();
    is_up(&agent);
}

fn a_modem_manager_that_starts_again_is_followed(near: &Namespace) {
    let _lan = Lan::new(near, "192.0.2.", 24);
    let manager = ModemManager::start(near, REGISTERED);
    let agent = start(near, &manager, "");
    agent.is_down_by(Source::Modem, LIMIT);
    for _ in 0..2 {
        future::block_on(manager.bus.release_name(SERVICE)).unwrap();
        is_up(&agent);
        // Sooner than the agent would connect to the bus again.
        future::block_on(manager.bus.request_name(SERVICE)).unwrap();
        agent.is_down_by(Source::Modem, LIMIT);
    }
}

fn a_weak_signal_of_a_modem_is_a_warning(near: &Namespace) {
    let _lan = Lan::new(near, "192.0.2.", 24);
    let manager = ModemManager::start(near, CONNECTED);
    let agent = start(near, &manager, "[signals.modem]\nwarn = true\nevery = \"2 s\"\nfloor = \"-110 dBm\"\n");
    assert_eq!(manager.rates.recv_timeout(LIMIT), Ok(2), "it asks for measurements");
    manager.has_quality(8);
    is(&agent, LinkCondition::Fading);
    manager.has_quality(40);
    is(&agent, LinkCondition::Up);
    manager.measures(-118.0);
    is(&agent, LinkCondition::Fading);
    for _ in 0..20 {
        manager.measures(-90.0);
    }
    is(&agent, LinkCondition::Up);
    // The quality counts for less than the level.
    manager.has_quality(1);
    manager.has_quality(40);
    // An unknown level is none, as after a fall to 3G.
    manager.measures(-32768.0);
    manager.has_quality(1);
    is(&agent, LinkCondition::Fading);
    manager.changes_state(CONNECTED, REGISTERED);
    agent.is_down_by(Source::Modem, LIMIT);
    assert_eq!(agent.status().links[0].record.warnings, 3);
    future::block_on(manager.bus.release_name(SERVICE)).unwrap();
    is_up(&agent);
}

fn a_modem_that_refuses_to_measure_is_asked_again(near: &Namespace) {
    let _lan = Lan::new(near, "192.0.2.", 24);
    let manager = ModemManager::refusing_once(near, REGISTERED);
    let agent = start(near, &manager, "[signals.modem]\nwarn = true\n");
    assert_eq!(manager.rates.recv_timeout(LIMIT), Ok(1), "it asks for measurements");
    manager.changes_state(REGISTERED, CONNECTED);
    assert_eq!(manager.rates.recv_timeout(LIMIT), Ok(1), "it asks again");
    manager.changes_state(CONNECTED, REGISTERED);
    manager.changes_state(REGISTERED, CONNECTED);
    is_up(&agent);
    assert_eq!(manager.rates.try_recv(), Err(mpsc::TryRecvError::Empty), "the modem measures");
}

fn a_reload_ends_the_connection_to_the_bus(near: &Namespace) {
    let _lan = Lan::new(near, "192.0.2.", 24);
    let manager = ModemManager::start(near, CONNECTED);
    let before = manager.connections();
    let agent = start(near, &manager, "");
    let has = |expected| {
        let began = Instant::now();
        while manager.connections() != expected {
            assert!(began.elapsed() < LIMIT, "{} and not {expected}", manager.connections());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    // ModemManager's and logind's.
    has(before + 2);
    agent.reload("[user_timeouts]\nenabled = false\n[signals.modem]\nstate = false\n");
    has(before + 1);
}

fn only_modem_manager_is_believed(near: &Namespace) {
    let _lan = Lan::new(near, "192.0.2.", 24);
    let manager = ModemManager::start(near, CONNECTED);
    let agent = start(near, &manager, "");
    let somebody = future::block_on(Builder::address(manager.daemon.address().as_str()).build()).unwrap();
    // Until the agent listens, which a signal of the right sender shows.
    while agent.state().0 != LinkCondition::Down {
        change_state(&somebody, CONNECTED, REGISTERED);
        manager.changes_state(CONNECTED, REGISTERED);
    }
    manager.changes_state(REGISTERED, CONNECTED);
    is_up(&agent);
    change_state(&somebody, CONNECTED, REGISTERED);
    // The bus handles one message of a sender after the other: this is answered when the signal has been passed on.
    future::block_on(somebody.call_method(Some(BUS), "/org/freedesktop/DBus", Some(BUS), "GetId", &())).unwrap();
    // Ends an outage by the other sender's signal, so that the next one would be the third.
    manager.changes_state(REGISTERED, CONNECTED);
    manager.changes_state(CONNECTED, REGISTERED);
    agent.is_down_by(Source::Modem, LIMIT);
    assert_eq!(agent.status().links[0].record.outages, 2);
}

#[track_caller]
fn is_up(agent: &Agent) {
    is_within(agent, LinkCondition::Up, WITHDRAWN);
    assert_eq!(agent.state().1, []);
}

#[track_caller]
fn is(agent: &Agent, expected: LinkCondition) {
    is_within(agent, expected, LIMIT);
}

#[track_caller]
fn is_within(agent: &Agent, expected: LinkCondition, limit: Duration) {
    let began = Instant::now();
    while agent.state().0 != expected {
        assert!(began.elapsed() < limit, "not {expected:?} but {:?}", agent.state());
        std::thread::sleep(Duration::from_millis(10));
    }
}
