//! A bridge between this host and the gateway that listens and learns before it forwards: the spanning tree protocol (IEEE 802.1D).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_agent::link_watch::LinkCondition;
use holdover_testbed::Namespace;

use crate::Test;
use crate::iproute::{ip, ip_says};
use crate::lan::{Agent, INTERFACE, Lan, NO_BUS, Stream, all_resume};

pub(crate) const TESTS: &[Test] = &[
    ("a_port_that_forwards_after_15_s_is_waited_for", a_port_that_forwards_after_15_s_is_waited_for),
    ("a_port_that_forwards_after_30_s_is_waited_for", a_port_that_forwards_after_30_s_is_waited_for),
];

const CUT: Duration = Duration::from_secs(3);

/// The next hop is asked for every 25 ms; the rest is for a slow machine. A server's retransmission timer would expire 25.4 or 51 s after the
/// cut, which is 7 and 18 s after the port forwards.
const RESUMES_WITHIN: Duration = Duration::from_millis(500);

/// The port is observed from this long before it can forward.
const OBSERVED_FOR: Duration = Duration::from_secs(2);

// Claim: After a cut of 3 s the port of a bridge has carrier, and listens and learns for 15 s, or for 30 s, as with the spanning tree
// protocol: nothing passes meanwhile, and then a download, an upload and a key that was typed during the cut resume within 500 ms.
// Tests: `late::a_port_that_forwards_after_30_s_is_waited_for`
fn a_port_that_forwards_after_15_s_is_waited_for(near: &Namespace) {
    is_waited_for(near, Duration::from_secs(15));
}

fn a_port_that_forwards_after_30_s_is_waited_for(near: &Namespace) {
    is_waited_for(near, Duration::from_secs(30));
}

fn is_waited_for(near: &Namespace, late: Duration) {
    let lan = Lan::new(near, "192.0.2.", 24);
    // In hundredths of a second, for listening and for learning. Ports that forward already continue to do so.
    let delay = late.as_millis() / 2 / 10;
    lan.bridge.enter(|| ip(&format!("link set br0 type bridge stp_state 1 forward_delay {delay}"))).unwrap();
    let agent = Agent::start_with(near, "late", NO_BUS, &[INTERFACE], "");
    let address = SocketAddr::new(lan.address, 0);
    let listener = lan.gateway.enter(|| TcpListener::bind(address).unwrap()).unwrap();
    let mut typing = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut key = [0];
    typing.write_all(b"a").unwrap();
    server.read_exact(&mut key).unwrap();
    let streams = [false, true].map(|is_upload| Stream::start(&lan, is_upload));
    streams.iter().for_each(|stream| stream.await_more(1_000_000));

    let cut_at = Instant::now();
    lan.plug(false);
    sleep(CUT / 6);
    typing.write_all(b"b").unwrap();
    let key_arrives = std::thread::spawn(move || {
        server.read_exact(&mut key).unwrap();
        Instant::now()
    });
    sleep(CUT.saturating_sub(cut_at.elapsed()));
    let before = streams.each_ref().map(Stream::received);
    let plugged_at = Instant::now();
    lan.plug(true);
    sleep(late - OBSERVED_FOR);
    assert!(!forwards(&lan), "the port does not wait");
    assert_eq!(streams.each_ref().map(Stream::received), before, "something passes a port that does not forward");
    let mut seen = (plugged_at, plugged_at);
    let took = all_resume(&streams, || seen = last_closed(&lan));
    let (closed_at, open_at) = seen;
    // It is measured from when the port was seen to forward on.
    let took: Vec<Duration> = took.into_iter().map(|took| took + (open_at - closed_at)).collect();
    let key_took = key_arrives.join().unwrap().saturating_duration_since(closed_at);
    let waited = closed_at - plugged_at;
    eprintln!("the port forwards {waited:?} after the carrier: data after {took:?}, a key after {key_took:?}");
    assert!(took.iter().chain([&key_took]).all(|&took| took < RESUMES_WITHIN), "{took:?}, {key_took:?}");
    agent.says(LinkCondition::Up, RESUMES_WITHIN);
    streams.iter().for_each(Stream::end);
}

/// Waits until the bridge's port to this host forwards. Returns the last time at which it was seen not to, and the one at which it was.
fn last_closed(lan: &Lan) -> (Instant, Instant) {
    let began = Instant::now();
    let mut closed_at = began;
    loop {
        let now = Instant::now();
        if forwards(lan) {
            return (closed_at, Instant::now());
        }
        closed_at = now;
        assert!(began.elapsed() < Duration::from_secs(30), "the port never forwards");
        sleep(Duration::from_millis(5));
    }
}

fn forwards(lan: &Lan) -> bool {
    lan.bridge.enter(|| ip_says("-details link show dev near0")).unwrap().contains("state forwarding")
}
