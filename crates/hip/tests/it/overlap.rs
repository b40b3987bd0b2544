//! A host that has its former address for a while beside the new one (make before break).

use holdover_base::{Duration, Instant};
use holdover_hip::codec::{HipPacket, Parameter, kind};
use holdover_hip::host::{Event, ServerConfig, Service};

use crate::support::address;
use crate::world::{World, quick};

const FORMER: &str = "192.0.2.1";
const NEW: &str = "203.0.113.7";
const DELAY: Duration = Duration::from_millis(50);

/// When host 1 has verified an address of host 0.
fn verified(world: &World) -> Vec<Instant> {
    let events = world.events.iter().filter(|(_, host, _)| *host == 1);
    events.filter(|(.., event)| matches!(event, Event::PeerReaddressed { .. })).map(|(at, ..)| *at).collect()
}

/// The former address goes 75 ms after the new one has come: the second announcement arrives while the check that the first one caused is
/// on its way.
// Claim: A second announcement in the middle of a readdressing does not delay it: the answer to the first check of an address
// counts.
#[test]
fn a_check_goes_on_when_the_peer_announces_again() {
    let mut world = World::established(40, &quick());
    let start = world.now;
    world.move_to(0, &[NEW, FORMER]);
    world.run_for(Duration::from_millis(75));
    world.move_to(0, &[NEW]);
    world.run_for(Duration::from_secs(5));
    assert_eq!(verified(&world), [start + DELAY * 3]);
    assert_eq!(world.hosts[1].verified_addresses(world.hit(0)), [address(NEW)]);
    for from in [0, 1] {
        assert_eq!(world.data(from), Ok(()));
    }
}

// Claim: The peer hears of an address that a host leaves without moving, and checks nothing.
#[test]
fn the_peer_hears_of_an_address_that_is_left() {
    let mut world = World::established(41, &quick());
    let hit = world.hit(0);
    world.move_to(0, &[NEW, FORMER]);
    world.run_for(Duration::from_secs(5));
    let has = |world: &World| [NEW, FORMER].map(|it| world.hosts[1].has_locator(hit, address(it)));
    assert_eq!(has(&world), [true, true]);
    world.forget_history();
    world.move_to(0, &[NEW]);
    world.run_for(Duration::from_secs(5));
    assert_eq!(has(&world), [true, false]);
    assert!(world.has_event(1, |event| matches!(event, Event::PeerLeft { .. })));
    assert!(!world.has_event(1, |event| matches!(event, Event::PeerMoved { .. })));
    let packets = world.packets.iter().filter_map(|(_, packet)| HipPacket::parse(packet).ok());
    let is_check = |it: &HipPacket| it.parameters.iter().any(|it: &Parameter| it.kind() == kind::ECHO_REQUEST_SIGNED);
    assert_eq!(packets.filter(|it| is_check(&it.packet)).count(), 0);
}

#[test]
fn the_address_of_a_server_is_no_locator_of_its_client() {
    let services = &[Service::Rendezvous];
    let world = World::with_server(42, &quick(), &ServerConfig::new(services), services);
    let client = world.hosts[1].hit();
    assert!(!world.hosts[0].has_locator(client, world.places[2][0]));
    assert!(!world.hosts[0].has_locator(world.hosts[2].hit(), address(FORMER)), "unknown");
}
