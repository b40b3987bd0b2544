//! Outages in which the carrier stays, with the default configuration and without any signal: behind a bridge, and behind a router.

// Claim: The agent notices a silent link with TCP at work, its end, and that a slow server, a peer that is gone and one-way
// traffic are none.
// Tests: `crates/mobility/src/silence.rs`

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_agent::link_watch::LinkCondition;
use holdover_host::neighbours::Neighbours;
use holdover_testbed::{Namespace, Netlink, sysctl};

use crate::Test;
use crate::lan::{Agent, Beyond, INTERFACE, Lan, NO_BUS, Stream, all_resume, resumes};

pub(crate) const TESTS: &[Test] = &[
    ("an_upload_over_a_silent_outage_continues_at_once", an_upload_over_a_silent_outage_continues_at_once),
    ("so_it_does_over_ipv6", so_it_does_over_ipv6),
    ("a_download_over_a_silent_outage_continues_at_once", a_download_over_a_silent_outage_continues_at_once),
    (
        "the_router_need_not_resolve_this_host_after_a_silent_outage",
        the_router_need_not_resolve_this_host_after_a_silent_outage,
    ),
    ("a_cut_behind_a_router_that_answers_is_noticed", a_cut_behind_a_router_that_answers_is_noticed),
    ("the_first_packet_wakes_the_others", the_first_packet_wakes_the_others),
    ("a_server_that_takes_its_time_is_no_silence", a_server_that_takes_its_time_is_no_silence),
    ("unanswered_datagrams_are_no_silence", unanswered_datagrams_are_no_silence),
    ("a_peer_that_is_gone_is_no_silence", a_peer_that_is_gone_is_no_silence),
    ("a_router_that_answers_no_questions_does_no_harm", a_router_that_answers_no_questions_does_no_harm),
    ("questions_leave_the_kernels_table_as_it_is", questions_leave_the_kernels_table_as_it_is),
];

/// Detection takes some 2 s, and longer on a slow machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(8);

/// A silent next hop is probed every 25 ms, or every 50 ms after 20 s. The rest is for a slow machine: TCP by itself
/// resumes seconds later.
const RESUMES_WITHIN: Duration = Duration::from_millis(500);

/// TCP's timers expire this long after a cut for the fourth time, or later: after 0.2, 0.4, 0.8 and 1.6 s.
const OWN_TIMERS: Duration = Duration::from_secs(3);

/// The most tries of a measurement that TCP's timers may spoil.
const TRIES: u32 = 5;

/// Asserts that the link is never reported down for so long.
#[track_caller]
fn stays_up(agent: &Agent, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        assert_eq!(agent.state(), (LinkCondition::Up, vec![]), "after {:?}", began.elapsed());
        sleep(Duration::from_millis(50));
    }
}

fn an_upload_over_a_silent_outage_continues_at_once(near: &Namespace) {
    is_bridged(near, &Lan::new(near, "192.0.2.", 24), true);
}

fn so_it_does_over_ipv6(near: &Namespace) {
    is_bridged(near, &Lan::new(near, "2001:db8::", 64), true);
}

fn a_download_over_a_silent_outage_continues_at_once(near: &Namespace) {
    is_bridged(near, &Lan::new(near, "192.0.2.", 24), false);
}

fn is_bridged(near: &Namespace, lan: &Lan, is_upload: bool) {
    let agent = Agent::start(near);
    let stream = Stream::start(lan, is_upload);
    stream.await_more(2_000_000);
    assert_eq!(agent.state().0, LinkCondition::Up);
    for outage in [Duration::from_secs(4), Duration::from_secs(20)] {
        let cut_at = Instant::now();
        lan.join(false);
        let noticed = agent.says(LinkCondition::Down, NOTICED_WITHIN);
        sleep(outage.saturating_sub(cut_at.elapsed()));
        let took = resumes(&stream, || lan.join(true));
        eprintln!("outage {outage:?}: down after {noticed:?}, data {took:?} after its end");
        assert!(took < RESUMES_WITHIN, "{took:?}");
        agent.says(LinkCondition::Up, RESUMES_WITHIN);
        stream.await_more(1_000_000);
    }
    stream.end();
    // The stream's end is probed, and answered.
    stays_up(&agent, Duration::from_secs(5));
}

/// The sender retransmits some 6 s after the cut, and the router asks for this host's address after 6, 9 and 12 s. When the link is back after
/// 10 s, the router learns the address of the connection from the probe that finds it, although that is a probe of a link-local address.
// Claim: After a silence a router that has given up resolving the host, and has only a link-local address, forwards to it at
// once: it learns the connection's address from the agent's probe.
fn the_router_need_not_resolve_this_host_after_a_silent_outage(near: &Namespace) {
    let lan = Lan::behind_a_router(near);
    let agent = Agent::start(near);
    let stream = Stream::start(&lan, false);
    stream.await_more(2_000_000);
    let own = stream.connection().local.ip();
    let is_resolved = || {
        let inside = || {
            let index = Netlink::open(&lan.gateway).unwrap().link("gw0").unwrap().index;
            Neighbours::open().unwrap().is_resolved(index, own).unwrap()
        };
        lan.gateway.enter(inside).unwrap()
    };
    assert!(is_resolved());
    for _ in 0..2 {
        lan.join(false);
        sleep(Duration::from_secs(10));
        assert!(!is_resolved(), "the router still has this host's address");
        let took = resumes(&stream, || lan.join(true));
        eprintln!("data {took:?} after the outage");
        assert!(took < RESUMES_WITHIN, "{took:?}");
        stream.await_more(1_000_000);
    }
    stream.end();
    drop(agent);
}

fn a_cut_behind_a_router_that_answers_is_noticed(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let beyond = Beyond::new(near, &lan, 0);
    let agent = Agent::start(near);
    let stream = Stream::start_to(&beyond.server, beyond.address, true);
    stream.await_more(1_000_000);
    for outage in [Duration::from_secs(5), Duration::from_secs(20)] {
        let cut_at = Instant::now();
        lan.forward(false);
        let noticed = agent.says(LinkCondition::Down, NOTICED_WITHIN);
        sleep(outage.saturating_sub(cut_at.elapsed()));
        let took = resumes(&stream, || lan.forward(true));
        eprintln!("outage {outage:?} behind the router: down after {noticed:?}, data {took:?} after its end");
        // A peer is probed after a fortieth of the silence at the latest.
        assert!(took < outage / 40 + RESUMES_WITHIN, "{took:?}");
        agent.says(LinkCondition::Up, RESUMES_WITHIN);
        stream.await_more(500_000);
    }
    stream.end();
}

/// The first three of TCP's own timers have expired 1.4 to 1.9 s after the cut, and the fourth expires after [`OWN_TIMERS`] at the
/// earliest. A try in which data came before the key, or in which the machine was late, is repeated.
// Claim: Without any signal and without any probe, the first packet that comes in after a silence of 2 s wakes all others: of three
// uploads and three downloads none goes on when the path is back, and each within 500 ms of a key's echo on a seventh connection.
fn the_first_packet_wakes_the_others(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let beyond = Beyond::new(near, &lan, 0);
    let agent = Agent::start_with(near, "first_packet", NO_BUS, &[INTERFACE], "[signals.next_hop]\nask = false\n");
    let address = SocketAddr::new(beyond.address, 0);
    let listener = beyond.server.enter(|| TcpListener::bind(address).unwrap()).unwrap();
    let mut typing = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut echoing, _) = listener.accept().unwrap();
    let mut strike = || {
        let mut key = [b'k'];
        typing.write_all(&key).unwrap();
        echoing.read_exact(&mut key).unwrap();
        echoing.write_all(&key).unwrap();
        typing.read_exact(&mut key).unwrap();
    };
    let streams: Vec<Stream> =
        (0..6).map(|number| Stream::start_to(&beyond.server, beyond.address, number % 2 == 0)).collect();
    let received = || streams.iter().map(Stream::received).sum::<u64>();
    for _ in 0..TRIES {
        strike();
        streams.iter().for_each(|stream| stream.await_more(500_000));
        let cut_at = Instant::now();
        lan.forward(false);
        sleep(Duration::from_secs(2));
        let before = received();
        lan.forward(true);
        sleep(Duration::from_millis(200));
        if received() > before || cut_at.elapsed() + RESUMES_WITHIN >= OWN_TIMERS {
            eprintln!("{} bytes {:?} after the cut: once more", received() - before, cut_at.elapsed());
            continue;
        }
        assert_eq!(agent.state(), (LinkCondition::Up, vec![]));
        let took = all_resume(&streams, &mut strike);
        eprintln!("data {took:?} after the key's echo");
        assert!(took.iter().all(|&took| took < RESUMES_WITHIN), "{took:?}");
        return streams.iter().for_each(Stream::end);
    }
    panic!("in none of {TRIES} tries was it only the key that could wake them");
}

fn a_server_that_takes_its_time_is_no_silence(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let agent = Agent::start(near);
    let listener = lan.gateway.enter(|| TcpListener::bind(SocketAddr::new(lan.address, 0)).unwrap()).unwrap();
    let mut near_end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far_end, _) = listener.accept().unwrap();
    for wait in [3, 10] {
        near_end.write_all(b"what is it?").unwrap();
        far_end.read_exact(&mut [0; 11]).unwrap();
        stays_up(&agent, Duration::from_secs(wait));
        far_end.write_all(b"this is it.").unwrap();
        near_end.read_exact(&mut [0; 11]).unwrap();
    }
}

fn unanswered_datagrams_are_no_silence(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let agent = Agent::start(near);
    let stream = Stream::start(&lan, true);
    stream.await_more(500_000);
    stream.end();
    let _server = lan.gateway.enter(|| UdpSocket::bind(SocketAddr::new(lan.address, 9)).unwrap()).unwrap();
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        socket.send_to(&[0; 1000], SocketAddr::new(lan.address, 9)).unwrap();
        if began.elapsed().as_millis().is_multiple_of(10) {
            assert_eq!(agent.state().0, LinkCondition::Up);
        }
        sleep(Duration::from_millis(1));
    }
}

fn a_peer_that_is_gone_is_no_silence(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let [gone, there] = [0, 1].map(|number| Beyond::new(near, &lan, number));
    let agent = Agent::start(near);
    let streams = [&gone, &there].map(|beyond| Stream::start_to(&beyond.server, beyond.address, true));
    streams.iter().for_each(|stream| stream.await_more(500_000));
    lan.gateway.enter(|| Netlink::open(&lan.gateway).unwrap().set_down("out0").unwrap()).unwrap();
    stays_up(&agent, Duration::from_secs(8));
    streams[1].await_more(500_000);
    streams.iter().for_each(Stream::end);
}

fn a_router_that_answers_no_questions_does_no_harm(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    // The kernel must trust its entry: otherwise it would probe itself, and have no destination.
    sysctl::set(near, &format!("net.ipv4.neigh.{INTERFACE}.base_reachable_time_ms"), "3600000").unwrap();
    let beyond = Beyond::new(near, &lan, 0);
    let stream = Stream::start_to(&beyond.server, beyond.address, true);
    stream.await_more(100_000);
    // The router and this host know each other; from now on it does not answer this host's requests. It answers the
    // server's, whose entry of the router expires.
    lan.gateway.enter(|| sysctl::set(&lan.gateway, "net.ipv4.conf.gw0.arp_ignore", "8").unwrap()).unwrap();
    let agent = Agent::start(near);
    stream.await_more(1_000_000);
    stream.end();
    stays_up(&agent, Duration::from_secs(6));
}

/// The state of the gateway's entry, as in `ip neighbour`: 2 is reachable, 4 stale (`linux/neighbour.h`).
fn questions_leave_the_kernels_table_as_it_is(near: &Namespace) {
    let lan = Lan::new(near, "192.0.2.", 24);
    let agent = Agent::start(near);
    let stream = Stream::start(&lan, true);
    stream.await_more(1_000_000);
    let flags = || {
        let table = std::fs::read_to_string("/proc/thread-self/net/arp").unwrap();
        let row = table.lines().find(|line| line.contains(INTERFACE)).map(str::to_owned);
        row.map(|row| row.split_whitespace().nth(2).unwrap().to_owned())
    };
    // Complete, and unchanged while the agent probes: the kernel by itself gives up after 5 s and three probes of its
    // own.
    assert_eq!(flags().as_deref(), Some("0x2"));
    lan.join(false);
    let began = Instant::now();
    agent.says(LinkCondition::Down, NOTICED_WITHIN);
    while began.elapsed() < Duration::from_secs(4) {
        assert_eq!(flags().as_deref(), Some("0x2"));
        sleep(Duration::from_millis(50));
    }
    lan.join(true);
    agent.says(LinkCondition::Up, RESUMES_WITHIN);
    stream.await_more(100_000);
    stream.end();
}
