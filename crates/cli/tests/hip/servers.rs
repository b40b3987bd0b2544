//! Rendezvous servers and relays between real kernels.

use std::time::{Duration, Instant};

use crate::Test;
use crate::daemon::{Host, PATIENCE, Place, pair};
use crate::internet::{Internet, Masquerade, SERVER};
use crate::transfer::{Transfer, Way};

pub(crate) const TESTS: &[Test] = &[
    ("two_hosts_behind_translators_talk_directly", two_hosts_behind_translators_talk_directly),
    ("data_goes_by_way_of_a_relay_where_ports_are_random", data_goes_by_way_of_a_relay_where_ports_are_random),
    ("a_relay_reaches_a_client_over_a_narrow_link", a_relay_reaches_a_client_over_a_narrow_link),
    ("a_direct_path_that_dies_is_replaced_by_the_relay", a_direct_path_that_dies_is_replaced_by_the_relay),
    ("both_hosts_move_at_once_and_find_each_other", both_hosts_move_at_once_and_find_each_other),
    ("a_preferred_address_that_is_dead_takes_no_data", a_preferred_address_that_is_dead_takes_no_data),
];

/// Two hosts that have joined a server, and each other; all daemons run.
fn three(place: &Place, namespaces: [&holdover_testbed::Namespace; 3], kind: &str) -> [Host; 3] {
    let [a, b, s] = namespaces;
    let (mut alice, mut bob) = (Host::new(place, "alice", a), Host::new(place, "bob", b));
    let mut server = Host::new(place, "server", s);
    let invitation = server.ok(&format!("invite --without-secret --name server --address {SERVER} --serves {kind}"));
    for (host, name) in [(&alice, "alice"), (&bob, "bob")] {
        host.ok(&format!("join {}", invitation.trim()));
        let own = host.ok(&format!("invite --without-secret --name {name}"));
        server.ok(&format!("join {}", own.trim()));
    }
    let [of_alice, of_bob] = [(&alice, "alice"), (&bob, "bob")]
        .map(|(host, name)| host.ok(&format!("invite --without-secret --name {name}")));
    alice.ok(&format!("join {}", of_bob.trim()));
    bob.ok(&format!("join {}", of_alice.trim()));
    server.start(kind, "");
    alice.up("");
    bob.up("");
    for host in [&alice, &bob] {
        host.wait_for_peer("server", "registered", |peer| peer["services"].as_array().is_some_and(|it| !it.is_empty()));
    }
    [alice, bob, server]
}

fn behind_translators(name: &str, masquerade: Masquerade) {
    let (place, mut internet) = (Place::new(name), Internet::new());
    let a = internet.host_behind("alice", 1, "198.51.100.1", masquerade);
    let b = internet.host_behind("bob", 2, "198.51.100.2", masquerade);
    let s = internet.host("server", SERVER);
    let [alice, bob, server] = three(&place, [&a, &b, &s], "relay");
    alice.ok("ping bob --count 3");
    bob.ok("ping alice --count 3");
    let is_direct = masquerade == Masquerade::Preserving;
    if is_direct {
        let outside = |peer: &serde_json::Value, address: &str| {
            peer["addresses"].as_array().is_some_and(|it| it.iter().any(|it| it == address))
        };
        alice.wait_for_peer("bob", "found directly", |peer| outside(peer, "198.51.100.2"));
        bob.wait_for_peer("alice", "found directly", |peer| outside(peer, "198.51.100.1"));
    }
    let relayed = || server.status()["counters"]["relayed_esp"].as_u64().unwrap();
    let before = relayed();
    let transfer = Transfer::start(Way::FromMobile, &a, &b, bob.hit());
    transfer.wait_for_more(1_000_000);
    transfer.end();
    let packets = relayed() - before;
    assert!(if is_direct { packets < 20 } else { packets > 700 }, "{packets} were relayed");
    assert_eq!(server.status()["clients"], 2);
}

// Claim: Two hosts behind Linux routers with nftables communicate directly or through the relay, whose ports are kept or random;
// two hosts that move at once find each other through a rendezvous server, and their TCP continues.
// Tests: `servers::data_goes_by_way_of_a_relay_where_ports_are_random`, `servers::both_hosts_move_at_once_and_find_each_other`
fn two_hosts_behind_translators_talk_directly() {
    behind_translators("nat-direct", Masquerade::Preserving);
}

fn data_goes_by_way_of_a_relay_where_ports_are_random() {
    behind_translators("nat-relay", Masquerade::Random);
}

/// The relay learns of the client's link from the client's router: the sender's packets fit its own path. The client's own segments are cut.
// Claim: Data reaches a relay's client over a link of 1,280 bytes behind a Linux router that translates addresses: the relay sends fragments.
// It believes ICMP errors that quote an SPI of what it forwards. The client's own segments leave whole.
// Tests: `nat::what_is_relayed_leaves_in_fragments_on_a_narrow_path`
fn a_relay_reaches_a_client_over_a_narrow_link() {
    let (place, mut internet) = (Place::new("nat-narrow"), Internet::new());
    let a = internet.host_behind("alice", 1, "198.51.100.1", Masquerade::Random);
    let b = internet.host_behind("bob", 2, "198.51.100.2", Masquerade::Random);
    let s = internet.host("server", SERVER);
    internet.narrow(&b, 1, 1280);
    let [alice, bob, server] = three(&place, [&a, &b, &s], "relay");
    alice.ok("ping bob --count 3");
    for (way, sender, expected) in [(Way::FromMobile, &server, 700..u64::MAX), (Way::ToMobile, &bob, 0..200)] {
        let fragments = || sender.status()["counters"]["fragments"].as_u64().unwrap();
        let (start, before) = (Instant::now(), fragments());
        let transfer = Transfer::start(way, &a, &b, bob.hit());
        transfer.wait_for_more(2_000_000);
        let (took, count) = (start.elapsed(), fragments() - before);
        eprintln!("{way:?}: {took:.1?}, {count} fragments");
        transfer.end();
        assert!(took < Duration::from_secs(15) && expected.contains(&count), "{way:?}: {took:?}, {count} fragments");
    }
}

/// In the middle of a transfer a middlebox begins to drop packets on the direct path.
// Claim: Where a direct path between two hosts behind translators dies and neither moves, their TCP connection continues through the
// relay within ten seconds, and directly again some time after the path is back.
fn a_direct_path_that_dies_is_replaced_by_the_relay() {
    let (place, mut internet) = (Place::new("direct-dies"), Internet::new());
    let outside = ["198.51.100.1", "198.51.100.2"];
    let a = internet.host_behind("alice", 1, outside[0], Masquerade::Preserving);
    let b = internet.host_behind("bob", 2, outside[1], Masquerade::Preserving);
    let s = internet.host("server", SERVER);
    let [alice, bob, server] = three(&place, [&a, &b, &s], "relay");
    alice.ok("ping bob --count 3");
    let is_at = |peer: &serde_json::Value, address: &str| {
        peer["addresses"].as_array().is_some_and(|it| it.iter().any(|it| it == address))
    };
    alice.wait_for_peer("bob", "found directly", |peer| is_at(peer, outside[1]));
    bob.wait_for_peer("alice", "found directly", |peer| is_at(peer, outside[0]));
    let relayed = || server.status()["counters"]["relayed_esp"].as_u64().unwrap();
    let transfer = Transfer::start(Way::FromMobile, &a, &b, bob.hit());
    transfer.wait_for_more(1_000_000);
    let before = relayed();
    let cut_at = Instant::now();
    internet.cut_between(outside, true);
    // Packets in flight arrive.
    std::thread::sleep(Duration::from_millis(200));
    transfer.wait_for_more(500_000);
    eprintln!("half a megabyte {:?} after the cut", cut_at.elapsed());
    assert!(cut_at.elapsed() < Duration::from_secs(12), "{:?}", cut_at.elapsed());
    assert!(relayed() > before + 300, "{} were relayed", relayed() - before);
    for (host, peer) in [(&alice, "bob"), (&bob, "alice")] {
        let peer = host.peer_of(peer);
        assert_eq!((&peer["silent_paths"], &peer["is_silent"]), (&1.into(), &false.into()), "{peer}");
    }
    internet.cut_between(outside, false);
    let patience = Instant::now() + PATIENCE * 2;
    loop {
        let before = relayed();
        transfer.wait_for_more(500_000);
        if relayed() < before + 10 {
            break;
        }
        assert!(Instant::now() < patience, "still through the relay: {}", alice.log());
    }
    transfer.end();
}

fn both_hosts_move_at_once_and_find_each_other() {
    let (place, mut internet) = (Place::new("rendezvous"), Internet::new());
    let a = internet.host("alice", "198.51.100.11");
    let b = internet.host("bob", "198.51.100.12");
    let s = internet.host("server", SERVER);
    let [_alice, bob, server] = three(&place, [&a, &b, &s], "rendezvous");
    let transfer = Transfer::start(Way::FromMobile, &a, &b, bob.hit());
    transfer.wait_for_more(500_000);
    for (from, to) in [(1, 2), (2, 3), (3, 1)] {
        Internet::renumber(&a, &format!("198.51.100.{from}1"), &format!("198.51.100.{to}1"));
        Internet::renumber(&b, &format!("198.51.100.{from}2"), &format!("198.51.100.{to}2"));
        transfer.wait_for_more(500_000);
        std::thread::sleep(Duration::from_millis(1500));
    }
    transfer.end();
    assert!(server.status()["counters"]["relayed_hip"].as_u64() > Some(2));
    assert_eq!(server.status()["counters"]["relayed_esp"], 0);
}

/// The former address stays; no host is notified that the new one is dead.
// Claim: If a host prefers a new address on which nothing passes in either direction, and keeps the former one of the same IP version, a
// TCP connection between kernels continues within four seconds, upwards and downwards, in UDP and in IP.
fn a_preferred_address_that_is_dead_takes_no_data() {
    for (index, (way, via)) in [(Way::FromMobile, "udp"), (Way::ToMobile, "ip")].into_iter().enumerate() {
        let (place, mut internet) = (Place::new(&format!("dead-address-{index}")), Internet::new());
        let [former, dead] = ["198.51.100.21", "198.51.100.22"];
        let (mobile, fixed) = (internet.host("mobile", former), internet.host("server", SERVER));
        let mut hosts = pair(&place, [&mobile, &fixed], [&[former], &[SERVER]], via);
        hosts.iter_mut().for_each(|host| host.up(""));
        hosts[0].ok("ping server --count 3");
        Internet::drop_arriving(&fixed, &format!("ip saddr {dead}"));
        Internet::drop_arriving(&mobile, &format!("ip daddr {dead}"));
        let transfer = Transfer::start(way, &mobile, &fixed, hosts[1].hit());
        transfer.wait_for_more(1_000_000);
        let begin = Instant::now();
        Internet::prefer(&mobile, dead, SERVER);
        while hosts[0].status()["addresses"][0] != dead {
            assert!(begin.elapsed() < PATIENCE, "{}", hosts[0].log());
            std::thread::sleep(Duration::from_millis(10));
        }
        // Packets in flight arrive.
        std::thread::sleep(Duration::from_millis(200));
        transfer.wait_for_more(1_000_000);
        eprintln!("{via}: a megabyte {:?} after the move", begin.elapsed());
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}: {}", begin.elapsed(), hosts[0].log());
        transfer.end();
    }
}
