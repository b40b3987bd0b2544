//! Packets of kernels cross a world unchanged, with options that the simulator does not know.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{LinkConfig, QueueLimit, Rate};
use holdover_sim::{
    Amount, Bulk, FlowConfig, LinkBetween, NoObserver, NodeConfig, NodeId, Opener, Role, Traffic, WorldConfig,
};
use holdover_tcp::Profile;
use holdover_testbed::Namespace;
use holdover_testbed::harness::skip;
use holdover_testbed::world::{RealOptions, RealWorld};
use socket2::{Domain, Protocol, Socket, Type};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[("a_multipath_connection_crosses", a_multipath_connection_crosses)];

const PORT: u16 = 7_000;
const BYTES: usize = 300_000;

/// MPTCP (RFC 8684) falls back to plain TCP if its option is removed on the path. The option is on data of both ends, in packets that the
/// sender's kernel leaves to be segmented, and that the receiver's accepts merged.
// Claim: Packets of kernels cross a world unchanged: MPTCP connections over IPv4 and IPv6 keep their options and do not fall back
// to TCP.
fn a_multipath_connection_crosses(_: &Namespace) {
    if !std::fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|enabled| enabled.trim() == "1") {
        return skip("this kernel has no MPTCP");
    }
    for ipv6 in [false, true] {
        let (client, server) = exchange(ipv6);
        let of = |counters: &str, name: &str| counter(counters, name).expect("the kernel counts it");
        assert_eq!(of(&client, "MPCapableSYNACKRX"), 1, "IPv6: {ipv6}");
        assert_eq!(of(&server, "MPCapableSYNRX"), 1, "IPv6: {ipv6}");
        assert_eq!(of(&server, "MPCapableACKRX"), 1, "IPv6: {ipv6}");
        for fallback in ["MPCapableFallbackACK", "MPCapableFallbackSYNACK", "DSSNotMatching", "DataCsumErr"] {
            let counted = [&client, &server].map(|counters| counter(counters, fallback).unwrap_or(0));
            assert_eq!(counted, [0, 0], "{fallback}, IPv6: {ipv6}");
        }
    }
}

/// The MPTCP counters of both kernels.
fn exchange(ipv6: bool) -> (String, String) {
    let mut world = RealWorld::new(pair(), &RealOptions::default()).expect("a world that can be real");
    let at = SocketAddr::new(NodeId(1).address(ipv6), PORT);
    let done = Arc::new(AtomicU32::new(0));
    let mut start = |node, body: fn(SocketAddr) -> String| {
        let done = Arc::clone(&done);
        let agent = world.start_agent(node, move |_| {
            let counters = body(at);
            done.fetch_add(1, Ordering::SeqCst);
            counters
        });
        agent.expect("there is such a host").expect("it starts")
    };
    let (server, client) = (start(NodeId(1), serve), start(NodeId(0), upload));
    world.run(&mut NoObserver, |_| done.load(Ordering::SeqCst) < 2).expect("it runs");
    drop(world);
    (client.join().expect("the client is done"), server.join().expect("the server is done"))
}

fn socket(at: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::MPTCP)).expect("a socket of MPTCP");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(15))).expect("a time-out");
    socket
}

fn serve(at: SocketAddr) -> String {
    let listener = socket(at);
    listener.bind(&at.into()).and_then(|()| listener.listen(1)).expect("it listens");
    let (mut stream, _) = listener.accept().expect("the client connects");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("it reads all");
    assert!(received.len() == BYTES && received.iter().enumerate().all(|(at, &byte)| byte == at as u8));
    counters()
}

fn upload(at: SocketAddr) -> String {
    let mut stream = loop {
        let stream = socket(at);
        match stream.connect(&at.into()) {
            Ok(()) => break stream,
            // The server does not listen yet.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => sleep(std::time::Duration::from_millis(20)),
            Err(error) => panic!("{error}"),
        }
    };
    let data: Vec<u8> = (0..BYTES).map(|at| at as u8).collect();
    stream.write_all(&data).expect("it writes all");
    stream.shutdown(std::net::Shutdown::Write).expect("it ends");
    assert_eq!(stream.read(&mut [0]).expect("the server ends, too"), 0);
    counters()
}

fn counters() -> String {
    std::fs::read_to_string("/proc/thread-self/net/netstat").expect("the counters of this namespace")
}

/// A counter of `/proc/net/netstat`: names are in the first line `MPTcpExt:`, values in the second.
fn counter(netstat: &str, name: &str) -> Option<u64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("MPTcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    both.find(|(one, _)| *one == name)?.1.parse().ok()
}

/// Two hosts with kernels, and a flow that keeps the world running.
fn pair() -> WorldConfig {
    let host = |name: &str| NodeConfig { name: name.into(), role: Role::Host };
    let link = LinkConfig {
        rate: Rate::Fixed(BitRate::from_mbps(20)),
        delay: Duration::from_millis(5),
        queue_limit: QueueLimit::Packets(100),
        ..LinkConfig::default()
    };
    let stack = Arc::new(Profile::Linux6Cubic.config());
    let flow = FlowConfig {
        name: "beside".into(),
        from: NodeId(0),
        to: NodeId(1),
        start: Instant::ZERO,
        sender: Arc::clone(&stack),
        receiver: stack,
        traffic: Traffic::Bulk(Bulk { amount: Amount::Bytes(ByteCount(20_000_000)), opener: Opener::Sender }),
        ipv6: false,
    };
    WorldConfig {
        seed: 1,
        nodes: vec![host("client"), host("server")],
        links: vec![LinkBetween::wire("link", NodeId(0), NodeId(1), link)],
        flows: vec![flow],
        time_limit: Instant::from_secs(20),
        ..WorldConfig::default()
    }
}
