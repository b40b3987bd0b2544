//! Moves of hosts with an identity: links that come back early, hosts without an association, several peers and both IP versions.

use holdover_base::{Duration, Instant};
use holdover_hip::codec::PacketType;
use holdover_link::{InFlightFate, Length, Outage, OutagePolicy, Outages, QueuedFate};
use holdover_mobility::LinkEvent;
use holdover_sim::{
    Addresses, Associate, EspSuite, FlowConfig, FlowStatus, Frame, HostAddressing, HostIdentity, LinkId, NoObserver,
    NodeId, Observer, Place, World, WorldConfig, WorldEvent,
};

use crate::identity::{MOBILE, SERVER, moving, run_on_wire, upload, with_identities, with_identity};
use crate::support::*;

const OTHER: NodeId = NodeId(3);
const DOWN: LinkEvent = LinkEvent::Down;
const MOVED: LinkEvent = LinkEvent::Up { symmetric: true, moved: true };

fn outages(times_ms: &[(u64, u64)]) -> Outages {
    Outages::List(times_ms.iter().map(|&(down, up)| Outage { down: at_ms(down), up: at_ms(up) }).collect())
}

/// Both links of the mobile host with these outages.
fn with_outages(mut config: WorldConfig, first: &[(u64, u64)], second: &[(u64, u64)]) -> WorldConfig {
    config.links[0].forward.outages = outages(first);
    config.links[1].forward.outages = outages(second);
    config
}

fn first_packet() -> HostIdentity {
    HostIdentity { associate: Associate::FirstPacket, ..HostIdentity::default() }
}

fn slow(delay: Duration) -> Option<HostIdentity> {
    Some(HostIdentity { delay: Some(Length::Constant(delay)), ..HostIdentity::default() })
}

fn starting(flow: FlowConfig, at_s: u64) -> FlowConfig {
    FlowConfig { start: Instant::from_secs(at_s), ..flow }
}

const NEVER: u64 = 2_000_000;

// Claim: A link that goes away before the host has noticed its address has no effect; mechanisms hear of an address when the host
// notices it, whether there is an association or not.
// Tests: `identity_moves::mechanisms_hear_of_an_address_when_the_host_notices_it`,
// `identity_moves::a_host_without_an_association_notices_its_address_late_too`
#[test]
fn a_link_that_the_host_has_not_noticed_has_no_effect() {
    let config = with_identities(moving(2, 5, vec![upload()]));
    let mut config = with_outages(config, &[(2_000, 4_000)], &[(0, 3_000), (3_500, NEVER)]);
    config.addressing[0].identity = slow(secs(2));
    let mut world = World::new(config).unwrap();
    let (mobile, mut log) = (Notes::default(), Log::default());
    assert!(world.edit_chain(MOBILE, |chain| *chain = mobile.chain()));
    world.run(&mut log);
    // The second link was the last one used, so that the first one is another.
    assert_eq!(mobile.heard(), [(2_000, DOWN), (4_000, LinkEvent::Up { symmetric: false, moved: true })]);
    assert!(!log.events.iter().any(|(_, it)| matches!(it, WorldEvent::ReaddressingStarted(_))));
    assert_eq!(world.report()[0].status, FlowStatus::Completed);
}

#[test]
fn mechanisms_hear_of_an_address_when_the_host_notices_it() {
    let mut config = with_identities(moving(2, 5, vec![upload()]));
    config.addressing[0].identity = slow(secs(2));
    let mut world = World::new(config).unwrap();
    let mobile = Notes::default();
    assert!(world.edit_chain(MOBILE, |chain| *chain = mobile.chain()));
    let mut log = Log::default();
    world.run(&mut log);
    assert_eq!(mobile.heard(), [(2_000, DOWN), (7_100, MOVED)]);
    let started = log.events.iter().find(|(_, it)| matches!(it, WorldEvent::ReaddressingStarted(_)));
    assert_eq!(started.map(|(at, _)| at.as_millis()), Some(7_000));
    // From the attachment, at 5 s.
    let took = world.report()[0].readdressings[0].as_millis();
    assert!((2_150..2_160).contains(&took), "{took}");
}

/// The delay is the host's, whether it has an association or not.
#[test]
fn a_host_without_an_association_notices_its_address_late_too() {
    let mut config = with_identity(moving(2, 5, vec![starting(upload(), 6)]), first_packet());
    config.addressing[0].identity = Some(HostIdentity { delay: Some(Length::Constant(secs(2))), ..first_packet() });
    let (wire, world) = run_on_wire(config);
    assert_eq!(wire.hip.first().map(|(at, _, packet)| (*at, packet.kind)), Some((7_000, PacketType::I1)));
    assert_eq!(world.report()[0].status, FlowStatus::Completed);
}

/// The announcement is lost with the link, and repeated as soon as the link is back: not given up meanwhile, for want of an address.
// Claim: An announcement is not given up while there is no address; the time of a readdressing is that of its own address.
// Tests: `identity_moves::the_time_of_a_readdressing_belongs_to_its_address`
#[test]
fn an_announcement_waits_while_there_is_no_address() {
    let config = with_identities(moving(2, 5, vec![upload()]));
    let (wire, world) = run_on_wire(with_outages(config, &[(2_000, NEVER)], &[(0, 5_000), (5_020, 300_000)]));
    assert_eq!(wire.when(&WorldEvent::ReaddressingFailed(MOBILE, SERVER)), Vec::<u64>::new());
    let sent: Vec<u64> = wire.hip.iter().filter(|(_, node, _)| *node == MOBILE).map(|(at, ..)| *at).collect();
    assert_eq!(sent[..2], [5_000, 300_000]);
    assert_eq!(wire.when(&WorldEvent::Readdressed(MOBILE, SERVER)), [300_100]);
    assert_eq!(world.report()[0].status, FlowStatus::Completed);
}

/// The third message of a readdressing is lost with the link. The host is back at the same address after the server has given up its check,
/// and announces nothing, as the server has answered there: the server checks again when it has data, or hears the host.
#[test]
fn a_check_that_was_given_up_begins_again() {
    let down = flow("down", 2, 0, bulk_bytes(20_000_000));
    let config = with_identities(moving(2, 5, vec![down]));
    let (wire, world) = run_on_wire(with_outages(config, &[(2_000, NEVER)], &[(0, 5_000), (5_110, 200_110)]));
    assert_eq!(wire.when(&WorldEvent::Readdressed(MOBILE, SERVER)), [5_100], "the host has the server's check");
    let verified = wire.when(&WorldEvent::Readdressed(SERVER, MOBILE));
    assert!(verified.len() == 1 && (200_110..330_000).contains(&verified[0]), "{:?}", wire.events);
    assert_eq!(world.report()[0].status, FlowStatus::Completed);
}

/// The server verifies the second link's address when the mobile host is back on the first one: only the return is a readdressing.
#[test]
fn the_time_of_a_readdressing_belongs_to_its_address() {
    let config = with_identities(moving(2, 5, vec![upload()]));
    let (wire, world) = run_on_wire(with_outages(config, &[(2_000, 5_120)], &[(0, 5_000)]));
    assert_eq!(wire.when(&WorldEvent::Readdressed(SERVER, MOBILE)).len(), 2, "{:?}", wire.events);
    let times: Vec<u64> = world.report()[0].readdressings.iter().map(|time| time.as_millis()).collect();
    assert!(times.len() == 1 && (150..160).contains(&times[0]), "{times:?}");
}

/// Without an association the server does not learn of the move: the mobile host opens one.
// Claim: A host that moves without an association opens one with its peers, also while the last one is ending, or in the middle
// of an exchange.
// Tests: `identity_moves::a_host_that_moves_after_the_end_of_an_association_calls_its_peers`,
// `identity_moves::a_host_that_moves_during_an_exchange_begins_another_one`
#[test]
fn a_host_that_has_moved_calls_its_peers() {
    let down = starting(flow("down", 2, 0, bulk_bytes(100_000)), 10);
    let (wire, world) = run_on_wire(with_identity(moving(2, 3, vec![down]), first_packet()));
    let made = wire.when(&WorldEvent::Associated(MOBILE, SERVER));
    assert!(made.len() == 1 && (3_200..3_203).contains(&made[0]), "{:?}", wire.events);
    assert_eq!(world.report()[0].status, FlowStatus::Completed);
}

/// The same after the end of an association without data, at 900 s, and if it is still ending when the host has its new address.
#[test]
fn a_host_that_moves_after_the_end_of_an_association_calls_its_peers() {
    for (cut_s, back_s, expected_ms) in [(1_000, 1_001, 1_001_200), (899, 905, 905_200)] {
        let down = starting(flow("down", 2, 0, bulk_bytes(100_000)), 1_100);
        let (wire, world) = run_on_wire(with_identities(moving(cut_s, back_s, vec![down])));
        let made = wire.when(&WorldEvent::Associated(MOBILE, SERVER));
        assert!(made.len() == 1 && (expected_ms..expected_ms + 5).contains(&made[0]), "{:?}", wire.events);
        assert_eq!(world.report()[0].status, FlowStatus::Completed);
    }
}

// Claim: Either host's first packet opens the association; a lost I1 is sent again after a second.
// Tests: `identity_moves::a_lost_i1_is_sent_again_after_a_second`
#[test]
fn the_first_packet_of_the_server_opens_the_association() {
    let down = flow("down", 2, 0, bulk_bytes(100_000));
    let (wire, world) = run_on_wire(with_identity(moving(100, 3_000, vec![down]), first_packet()));
    use PacketType::{I1, I2, R1, R2};
    assert_eq!(wire.kinds(), [(SERVER, I1), (MOBILE, R1), (SERVER, I2), (MOBILE, R2)]);
    assert_eq!(world.report()[0].status, FlowStatus::Completed);
}

/// R2 is lost with the first link, and the exchange begins again from the new address.
#[test]
fn a_host_that_moves_during_an_exchange_begins_another_one() {
    let config = with_identity(moving(2, 3, vec![upload()]), first_packet());
    let (wire, world) = run_on_wire(with_outages(config, &[(120, NEVER)], &[(0, 500)]));
    assert_eq!(wire.hip.iter().find(|(at, ..)| *at >= 500).map(|(at, node, _)| (*at, *node)), Some((500, MOBILE)));
    let made = wire.when(&WorldEvent::Associated(MOBILE, SERVER));
    assert!(made.len() == 1 && (700..705).contains(&made[0]), "{:?}", wire.events);
    assert_eq!(world.report()[0].status, FlowStatus::Completed);
}

#[test]
fn a_lost_i1_is_sent_again_after_a_second() {
    let mut config = with_identity(moving(100, 3_000, vec![upload()]), first_packet());
    // Behind another router, so that neither host sees the outage.
    config.nodes.push(router("y"));
    config.links[2].b = NodeId(3);
    config.links.push(link("last", 3, 2, wire(100_000, ms(1), 500)));
    let lost = OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped };
    config.links[2].forward.outages = outages(&[(0, 900)]);
    (config.links[2].forward.outage_policy, config.links[2].backward.outage_policy) = (lost, lost);
    let (wire, world) = run_on_wire(config);
    let first: Vec<_> = wire.hip.iter().take(3).map(|(at, node, packet)| (*at / 100, *node, packet.kind)).collect();
    use PacketType::{I1, R1};
    assert_eq!(first, [(0, MOBILE, I1), (10, MOBILE, I1), (10, SERVER, R1)]);
    assert_eq!(world.report()[0].status, FlowStatus::Completed);
}

/// The longest packet in ESP.
#[derive(Default)]
struct Longest(usize);

impl Observer for Longest {
    fn packet(&mut self, _at: Instant, _place: Place, frame: &Frame) {
        if frame.is_encrypted() {
            self.0 = self.0.max(frame.packet().wire_len());
        }
    }
}

/// With "before" the host that a flow is from calls, whichever host opens the connection.
// Claim: The transform is that of the called host, "null" included.
#[test]
fn the_suite_is_that_of_the_called_host() {
    let (gcm, null) = (EspSuite::Aes128Gcm16, EspSuite::NullHmacSha256);
    // 8 bytes of initialization vector more with GCM.
    for (of_mobile, of_server, len) in [(gcm, null, 1528), (null, gcm, 1536), (null, null, 1528)] {
        for associate in [Associate::Before, Associate::FirstPacket] {
            let mut config = with_identities(moving(100, 3_000, vec![upload()]));
            let identity = |esp| Some(HostIdentity { esp, associate, ..HostIdentity::default() });
            config.addressing[0].identity = identity(of_mobile);
            config.addressing[1].identity = identity(of_server);
            let mut longest = Longest::default();
            World::new(config).unwrap().run(&mut longest);
            assert_eq!(longest.0, len, "{of_mobile:?} calls {of_server:?}, {associate:?}");
        }
    }
}

/// The mobile host has both IP versions, because of two peers with one each: each verifies the address of its own version.
// Claim: A host with both IP versions moves among peers with one version and with both.
// Tests: `identity_moves::both_versions_use_the_new_link`
#[test]
fn a_host_with_both_ip_versions_moves_among_peers_with_one() {
    let other = FlowConfig { ipv6: true, ..flow("other", 0, 3, bulk_for(secs(40))) };
    let flows = vec![flow("up", 0, 2, bulk_for(secs(40))), other];
    let config = with_identities(moving(2, 5, flows));
    // It moves, and comes back to the same link after another outage.
    let mut config = with_outages(config, &[(2_000, NEVER)], &[(0, 5_000), (20_000, 25_000)]);
    config.nodes.push(host("other"));
    config.links.push(link("side", 1, 3, wire(100_000, ms(25), 500)));
    let identity = Some(HostIdentity::default());
    config.addressing.push(HostAddressing { node: OTHER, addresses: Addresses::One, identity });
    config.time_limit = Instant::from_secs(100);
    let mut world = World::new(config).unwrap();
    let [mobile, server, of_other] = [Notes::default(), Notes::default(), Notes::default()];
    for (node, notes) in [(MOBILE, &mobile), (SERVER, &server), (OTHER, &of_other)] {
        assert!(world.edit_chain(node, |chain| *chain = notes.chain()));
    }
    let mut log = Log::default();
    world.run(&mut log);
    // Only the move is one, not the return to the same link.
    let started = log.events.iter().filter(|(_, it)| matches!(it, WorldEvent::ReaddressingStarted(_)));
    assert_eq!(started.map(|(at, _)| at.as_millis()).collect::<Vec<_>>(), [5_000]);
    // One after the other, over the same link.
    let heard = mobile.heard();
    let moves = heard.iter().filter(|(at, event)| (5_100..5_110).contains(at) && *event == MOVED).count();
    assert_eq!((heard.len(), heard[0], moves), (5, (2_000, DOWN), 2), "{heard:?}");
    let back = LinkEvent::Up { symmetric: false, moved: false };
    assert_eq!(heard[3..], [(20_000, DOWN), (25_000, back)]);
    for notes in [&server, &of_other] {
        let heard = notes.heard();
        assert!(heard.len() == 1 && (5_050..5_060).contains(&heard[0].0) && heard[0].1 == MOVED, "{heard:?}");
    }
    for report in world.report() {
        assert_eq!((report.status, report.readdressings.len()), (FlowStatus::Completed, 1));
    }
}

/// The links carry packets of both versions after the move, from the addresses of the second link only.
#[test]
fn both_versions_use_the_new_link() {
    let both = [("v4", false), ("v6", true)];
    let both = both.map(|(name, ipv6)| FlowConfig { ipv6, ..flow(name, 0, 2, bulk_bytes(3_000_000)) });
    let mut world = World::new(with_identities(moving(1, 2, both.to_vec()))).unwrap();
    world.run(&mut NoObserver);
    assert!(world.report().iter().all(|report| report.status == FlowStatus::Completed));
    let [away, back] = world.link_statistics(LinkId(1)).unwrap();
    assert!(away.delivered.packets > 2_000 && back.delivered.packets > 100);
}
