//! Two agents on one interface, and an agent on a link that loses its carrier while data flow.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_agent::engine::{Engine, EngineOptions};
use holdover_agent::path_engine::PathEngine as _;
use holdover_agent::sockets::SocketDiag;
use holdover_host::clock;
use holdover_mobility::LinkEvent;
use holdover_testbed::{FrameDirection, FrameSocket, Namespace, Netlink};

use crate::Test;
use crate::lan::{Agent, INTERFACE, Lan, NO_BUS, Stream};

pub(crate) const TESTS: &[Test] = &[
    ("an_interface_is_one_agents", an_interface_is_one_agents),
    ("an_uploads_own_timer_is_known_at_link_up", an_uploads_own_timer_is_known_at_link_up),
    ("of_a_downloads_timer_nothing_is_claimed", of_a_downloads_timer_nothing_is_claimed),
    ("little_is_sent_into_a_link_without_carrier", little_is_sent_into_a_link_without_carrier),
];

/// The check for the other agent's end happens once a second.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(5);

// Claim: If two agents are given one interface, the second names the first, serves its other interface, and takes over within 5 s
// of the first's end.
fn an_interface_is_one_agents(near: &Namespace) {
    let _lan = Lan::new(near, "10.8.0.", 24);
    let other = Namespace::new("other").unwrap();
    Netlink::open(near).unwrap().add_veth("up1", "there0", &other).unwrap();
    let first = Agent::start_with(near, "first", NO_BUS, &[INTERFACE], "");
    let second = Agent::start_with(near, "second", NO_BUS, &[INTERFACE, "up1"], "");
    let problems = |agent: &Agent| agent.status().links.into_iter().map(|link| link.problem).collect::<Vec<_>>();
    assert_eq!(problems(&first), [None]);
    let found = problems(&second);
    let [Some(held), None] = &found[..] else { panic!("{found:?}") };
    let holder = format!("pid {}, control socket {}", std::process::id(), first.socket().display());
    assert!(held.contains("another agent manages interface up0") && held.contains(&holder), "{held}");
    // In another namespace the same index is another interface.
    let elsewhere = other.enter(|| Agent::start_with(&other, "elsewhere", NO_BUS, &["there0"], "")).unwrap();
    assert_eq!(problems(&elsewhere), [None]);
    drop(first);
    let ended = Instant::now();
    while problems(&second) != [None, None] {
        assert!(ended.elapsed() < TAKEN_OVER_WITHIN, "{:?}", problems(&second));
        sleep(Duration::from_millis(50));
    }
    eprintln!("taken over after {:?}", ended.elapsed());
}

// Claim: When the link comes up, the time until an upload would have gone on by this host's own timer is known; of a download
// nothing is claimed.
// Tests: `agents::of_a_downloads_timer_nothing_is_claimed`
fn an_uploads_own_timer_is_known_at_link_up(near: &Namespace) {
    let wait = own_timer(near, true).expect("data were outstanding");
    eprintln!("by itself it would go on after {wait} s");
    assert!(0.0 < wait && wait < 3.0, "{wait}");
}

fn of_a_downloads_timer_nothing_is_claimed(near: &Namespace) {
    assert_eq!(own_timer(near, false), None);
}

/// When a transfer would resume by this host's own timer, in seconds after link-up.
fn own_timer(near: &Namespace, is_upload: bool) -> Option<f64> {
    let lan = Lan::new(near, "10.8.0.", 24);
    let stream = Stream::start(&lan, is_upload);
    let mut engine = Engine::attach(INTERFACE, &EngineOptions::default()).unwrap();
    engine.handle_timeout(clock::now());
    let mut sockets = SocketDiag::open().unwrap();
    for _ in 0..CUTS {
        stream.await_more(300_000);
        lan.plug(false);
        engine.handle_link(clock::now(), LinkEvent::Down);
        // Two timeouts: 0.2 s or a little more, and twice that.
        sleep(Duration::from_millis(900));
        let socket = sockets.find(stream.connection()).unwrap().expect("it is open");
        lan.plug(true);
        let up_at = clock::now();
        engine.handle_link(up_at, LinkEvent::Up { symmetric: false, moved: false });
        let alternative = engine.alternative_at(stream.connection());
        if !is_upload || alternative.is_some() {
            return alternative.map(|at| at.saturating_since(up_at).as_secs_f64());
        }
        // With a receiver slower than this machine, the window is often shut: then nothing is outstanding.
        eprintln!("no timer, {} segments outstanding: cut again", socket.info.tcpi_unacked);
    }
    panic!("no timer in any of {CUTS} cuts");
}

/// The most cuts until a retransmission timer is running.
const CUTS: u32 = 8;

/// Without a limit there were hundreds, 1 ms apart.
const MOST_COPIES: usize = 12;

// Claim: When the carrier goes under a download, no packet is sent more than 12 times in 1.5 s.
fn little_is_sent_into_a_link_without_carrier(near: &Namespace) {
    let lan = Lan::new(near, "10.8.0.", 24);
    let agent = Agent::start_with(near, "carrier", NO_BUS, &[INTERFACE], "");
    let stream = Stream::start(&lan, false);
    for _ in 0..3 {
        stream.await_more(2_000_000);
        let capture = FrameSocket::listener(near, INTERFACE).unwrap();
        lan.plug(false);
        let sent = sent_within(&capture, Duration::from_millis(1500));
        let copies = sent.values().copied().max().unwrap_or(0);
        let all: usize = sent.values().sum();
        eprintln!("{all} frames went out in 1.5 s without carrier, {copies} copies of one at the most");
        assert!(copies <= MOST_COPIES, "{copies} copies of one packet");
        lan.plug(true);
    }
    stream.await_more(1_000_000);
    drop(agent);
}

/// The number of times that each TCP header was sent from 5 ms from now on: packets in flight before do not count.
fn sent_within(capture: &FrameSocket, span: Duration) -> BTreeMap<Vec<u8>, usize> {
    let mut buffer = [0; 2048];
    sleep(Duration::from_millis(5));
    while capture.receive(&mut buffer).unwrap().is_some() {}
    let until = Instant::now() + span;
    let mut sent = BTreeMap::new();
    while Instant::now() < until {
        match capture.receive(&mut buffer).unwrap() {
            Some((FrameDirection::Out, frame)) => {
                // IPv4 without options, TCP: ports, sequence numbers, window, without the timestamps, which may differ.
                if frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&6) && frame.len() >= 50 {
                    *sent.entry(frame[34..50].to_vec()).or_default() += 1;
                }
            }
            Some((FrameDirection::In, _)) => {}
            None => sleep(Duration::from_millis(1)),
        }
    }
    assert_eq!(capture.dropped().unwrap(), 0);
    sent
}
