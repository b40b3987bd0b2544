//! More connections than usual, and more than there is room for.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::Duration as StdDuration;

use holdover_agent::engine::{Engine, EngineOptions};
use holdover_base::Duration;
use holdover_host::clock;
use holdover_mobility::{Connection, LinkEvent};
use holdover_testbed::{FrameSocket, ImpairmentConfig, Namespace, Netlink};
use rustix::time::{ClockId, clock_gettime};

use super::process::{EngineThread, UP};
use super::raw::segment;
use super::traffic::{Kind, Traffic};
use crate::wire::{INTERFACE, LIMIT, Wire};

const MANY: u32 = 50_000;

/// Of processor time. On the reference machine it is a tenth of this.
const LONGEST_TURN: Duration = Duration::from_millis(800);

/// The processor time of the calling thread: other programs on the machine do not count.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::from_nanos(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// The memory of a connection in the map: its entry, and the kernel's overhead.
const BYTES_EACH: u64 = 1_500;

// Claim: 50,000 connections take less than 1.5 kB each in the kernel and 4 kB each in the process, all of them are woken, and no
// turn of the loop is long.
pub(crate) fn fifty_thousand_connections_take_bounded_memory_and_time(near: &Namespace) {
    let far = Namespace::new("far").unwrap();
    let mut netlink = Netlink::open(near).unwrap();
    netlink.add_veth("up0", "down0", &far).unwrap();
    netlink.set_up("up0").unwrap();
    far.enter(|| Netlink::open(&far).unwrap().set_up("down0").unwrap()).unwrap();
    let senders = [(near, "up0"), (&far, "down0")];
    let senders = senders.map(|(namespace, interface)| FrameSocket::sender(namespace, interface).unwrap());
    let engine = EngineThread::attach(near, "up0", EngineOptions::default());
    let (map_before, process_before) = (connection_map_bytes(), resident_bytes());
    (0..MANY).for_each(|number| exchange(&senders, number));
    assert_eq!(engine.with(|engine| engine.connections().len()), MANY as usize);
    assert_eq!(engine.with(|engine| engine.counters().alone_full), 0);
    let map = connection_map_bytes() - map_before;

    let timed = |what: fn(&mut Engine)| {
        engine.with(move |engine| {
            let began = processor_time();
            what(engine);
            processor_time().saturating_sub(began)
        })
    };
    let down = timed(|engine| engine.handle_link(clock::now(), LinkEvent::Down));
    let up = timed(|engine| engine.handle_link(clock::now(), UP));
    // Their peers never answer: a few are tried, and the others wait for the first answer.
    let (longest, woken) = engine.with(|engine| {
        let (until, mut longest) = (clock::now() + Duration::from_secs(12), Duration::ZERO);
        let mut woken = BTreeSet::new();
        while let Some(at) = engine.poll_timeout().filter(|&at| at < until) {
            sleep(at.saturating_since(clock::now()).into());
            let began = processor_time();
            engine.handle_timeout(clock::now());
            longest = longest.max(processor_time().saturating_sub(began));
            woken.extend(std::iter::from_fn(|| engine.poll_action()).map(|action| action.connection));
        }
        (longest, woken.len())
    });
    let list = timed(|engine| drop(engine.connections()));
    let process = resident_bytes().saturating_sub(process_before);
    let (injected, unsent) = engine.with(|engine| (engine.counters().injected, engine.failures()));
    eprintln!(
        "{MANY} connections: {map} bytes in the map, {process} in the process; down {down}, up {up}, longest turn {longest}, \
         list {list}; {injected} packets made \
         for {woken} connections"
    );
    assert!(woken <= 64, "{woken} were woken without an answer");
    assert!(injected <= 5_000, "a path that may not be there is not flooded: {injected}");
    assert_eq!(unsent, 0, "everything was sent");
    assert!(map <= u64::from(MANY) * BYTES_EACH, "{map}");
    assert!(process <= u64::from(MANY) * 4_000, "{process}");
    assert!([down, up, longest, list].into_iter().all(|turn| turn < LONGEST_TURN));
}

// Claim: With room for 1,000 connections and 5,000 that come, those that have been idle for longest go, those at work stay, and
// their streams are exact over outages.
pub(crate) fn when_there_is_no_room_the_longest_idle_go(near: &Namespace) {
    let wire =
        Wire::impaired(near, &ImpairmentConfig { delay: Duration::from_millis(5), ..ImpairmentConfig::default() });
    let options = EngineOptions { most_connections: 1_000, ..EngineOptions::default() };
    let engine = EngineThread::attach(near, INTERFACE, options);
    let traffic = Traffic::start(near, &wire.far, &Kind::various());
    let sender = FrameSocket::sender(near, INTERFACE).unwrap();
    let say = |number: u32| {
        let (local, remote) = ends(number);
        let packet = segment(local, remote, 1, 1, 100).emit().unwrap();
        sender.send(libc::ETH_P_IP, &packet).unwrap();
    };
    // They arrive faster than entries are evicted, and retry.
    let deadline = clock::now() + LIMIT;
    for first in (0..5_000).step_by(50) {
        (first..first + 50).for_each(say);
        let last = ends(first + 49);
        while !knows(&engine, last) {
            assert!(clock::now() < deadline, "no room for {last:?}");
            sleep(StdDuration::from_millis(5));
            (first..first + 50).for_each(say);
        }
        wire.cut(first % 500 == 0);
        if first % 500 == 0 {
            engine.link(LinkEvent::Down);
            sleep(StdDuration::from_millis(30));
            wire.cut(false);
            engine.link(UP);
        }
    }
    let (known, turned_away) = engine.with(|engine| (engine.connections(), engine.counters().alone_full));
    assert!(known.len() <= 1_000, "{}", known.len());
    assert!(turned_away > 0, "there was no room");
    let is_known = |ends: (SocketAddr, SocketAddr)| known.iter().any(|status| pair(status.connection) == ends);
    assert!((0..100).all(|number| !is_known(ends(number))), "the connections idle for longest were evicted");
    let at_work = known.iter().filter(|status| status.connection.remote.port() >= 2_000);
    assert_eq!(at_work.count(), Kind::various().len(), "active connections stay");
    traffic.finish();
}

/// Data each way, and an ACK.
fn exchange(senders: &[FrameSocket; 2], number: u32) {
    let (local, remote) = ends(number);
    let segments = [
        (0, segment(local, remote, 1, 1, 100)),
        (1, segment(remote, local, 1, 101, 100)),
        (0, segment(local, remote, 101, 101, 0)),
    ];
    for (from, packet) in segments {
        // To a station that does not exist: only the programs on the interface see it.
        let mut frame = vec![2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend_from_slice(&packet.emit().unwrap());
        senders[from].send(libc::ETH_P_IP, &frame).unwrap();
    }
}

fn ends(number: u32) -> (SocketAddr, SocketAddr) {
    let local = Ipv4Addr::new(10, 9, 0, 1);
    let remote = Ipv4Addr::from(0xc612_0001 + number / 40_000);
    ((IpAddr::V4(local), (20_000 + number % 40_000) as u16).into(), (IpAddr::V4(remote), 443).into())
}

fn pair(connection: Connection) -> (SocketAddr, SocketAddr) {
    (connection.local, connection.remote)
}

fn knows(engine: &EngineThread, ends: (SocketAddr, SocketAddr)) -> bool {
    engine.with(move |engine| engine.connections().iter().any(|status| pair(status.connection) == ends))
}

/// The kernel's size of the largest map of this process.
fn connection_map_bytes() -> u64 {
    let descriptors = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    let texts = descriptors.filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok());
    // BPF_MAP_TYPE_HASH; the programs' own map of many entries is the only one.
    let hashes = texts.filter(|text| text.lines().any(|line| line == "map_type:\t1"));
    hashes.filter_map(|text| number_after(&text, "memlock:")).max().expect("the map is there")
}

fn resident_bytes() -> u64 {
    number_after(&std::fs::read_to_string("/proc/self/status").unwrap(), "VmRSS:").unwrap() * 1_024
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}
