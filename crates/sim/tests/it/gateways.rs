//! Mechanisms of routers with registered mobile hosts: at base stations, after the tunnel, and at the gateway before it.

use std::sync::Arc;

use holdover_filter::Stored;
use holdover_gateway::blocking_buffer::BlockingBufferConfig;
use holdover_gateway::buffer_freeze::BufferFreezeConfig;
use holdover_gateway::copy_and_forward::CopyAndForwardConfig;
use holdover_gateway::daemon::{DaemonConfig, Mode, ThesisConfig};
use holdover_gateway::ebsn::EbsnConfig;
use holdover_gateway::handoff::HandoffConfig;
use holdover_gateway::m_tcp::MTcpConfig;
use holdover_gateway::snoop::SnoopConfig;
use holdover_gateway::split::SplitConfig;
use holdover_gateway::supervisor::SupervisorConfig;
use holdover_gateway::{Mechanisms, WarningSign};
use holdover_mobility::freeze::{FreezeConfig, WarningPeriod};
use holdover_mobility::reconnect_acks::ReconnectAcksConfig;
use holdover_sim::{
    Attachment, Dropped, FlowStatus, GatewayMechanisms, HostMechanisms, Movement, NodeId, Prediction, Registration,
    World, WorldConfig, WorldEvent,
};
use holdover_tcp::Profile;

use crate::support::*;

const BASES: [NodeId; 2] = [NodeId(2), NodeId(3)];

/// A download of 1 MB to a host that moves from one cell to the other and back.
fn moving(nodes: &[NodeId], mechanisms: &Mechanisms) -> WorldConfig {
    let path = line(&[30.0, 50.0, 30.0, 50.0, 30.0], 10.0, 1_000);
    let mut config = cellular(Movement::Path(path), Attachment::Registration(Registration::through(GATEWAY)));
    config.flows = vec![flow("download", FIXED, MOBILE, bulk_bytes(1_000_000))];
    let gateway = |&node: &NodeId| GatewayMechanisms {
        node,
        mechanisms: mechanisms.clone(),
        mobiles: vec![NodeId(MOBILE)],
        hears_links: true,
    };
    config.gateways = nodes.iter().map(gateway).collect();
    config
}

// Claim: Mechanisms of base stations behind a tunnel, and of the gateway before it, handle each packet once: transfers over
// handoffs complete, and no packet loops.
#[test]
fn mechanisms_see_packets_outside_their_tunnel() {
    let none = Mechanisms::default;
    let buffer_freeze = Mechanisms { buffer_freeze: Some(BufferFreezeConfig::default()), ..none() };
    let supervisor = Mechanisms { supervisor: Some(SupervisorConfig::default()), ..none() };
    let blocking = Mechanisms { blocking_buffer: Some(BlockingBufferConfig::default()), ..none() };
    for (nodes, mechanisms, acts) in [
        (&BASES[..], buffer_freeze, true),
        (&BASES[..], supervisor.clone(), true),
        (&[GATEWAY][..], supervisor, false),
        // No host announces its departure with a window of zero.
        (&[GATEWAY][..], blocking, false),
    ] {
        let mut log = Log::default();
        let mut world = World::new(moving(nodes, &mechanisms)).expect("a valid world");
        world.run(&mut log);
        let report = world.report().remove(0);
        assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 1_000_000), "{mechanisms:?}");
        assert!(!log.drops.iter().any(|(_, why)| matches!(why, Dropped::HopLimit(_))), "nothing goes round in circles");
        let actions = log
            .events
            .iter()
            .filter(|(_, event)| matches!(event, WorldEvent::Mechanism(node, _) if nodes.contains(node)));
        assert_eq!(actions.count() > 0, acts, "{mechanisms:?}");
    }
}

// Claim: The most that a router's mechanisms have stored at once is measured: copies within their bound, the buffers of both halves of a split
// connection, and the number of connections.
#[test]
fn storage_of_mechanisms_is_measured() {
    let none = Mechanisms::default;
    let small = SupervisorConfig { buffer_bytes: 20_000, ..SupervisorConfig::default() };
    let split = SplitConfig::with(Profile::Linux6Cubic.config());
    for (mechanisms, least, most) in [
        (Mechanisms { supervisor: Some(small), ..none() }, 18_000, 20_000),
        (Mechanisms { supervisor: Some(SupervisorConfig::default()), ..none() }, 20_001, 256_000),
        (Mechanisms { split: Some(split), ..none() }, 20_001, 1_000_000),
        (Mechanisms { ebsn: Some(EbsnConfig::default()), ..none() }, 0, 0),
    ] {
        let mut world = World::new(moving(&[GATEWAY], &mechanisms)).expect("a valid world");
        assert_eq!(world.most_stored(GATEWAY), Some(Stored::default()));
        assert_eq!(world.most_stored(BASES[0]), None, "no mechanisms");
        world.run(&mut Log::default());
        let stored = world.most_stored(GATEWAY).expect("a router with mechanisms");
        assert!((least..=most).contains(&stored.bytes), "{mechanisms:?}: {stored:?}");
        assert_eq!(stored.connections, 1, "{mechanisms:?}");
    }
}

/// Freeze-TCP with the gateways of its thesis: with a warning 100 ms ahead, more than a round trip, the sender loses nothing in handoffs;
/// without the gateways it does. The gateway's packets follow the reply to the registration, so the host is attached when they arrive.
#[test]
fn a_gateway_that_sees_the_warning_loses_nothing_in_handoffs() {
    let sign = WarningSign::IpFlag;
    let blocking = BlockingBufferConfig { sign, ..BlockingBufferConfig::default() };
    let copying = CopyAndForwardConfig { sign, ..CopyAndForwardConfig::default() };
    let thesis = ThesisConfig { sign, ..ThesisConfig::default() };
    let daemon = DaemonConfig { mode: Mode::Thesis, thesis, ..DaemonConfig::default() };
    for (mechanisms, acts) in [
        (Mechanisms::default(), false),
        (Mechanisms { blocking_buffer: Some(blocking), ..Mechanisms::default() }, true),
        (Mechanisms { copy_and_forward: Some(copying), ..Mechanisms::default() }, true),
        (Mechanisms { daemon: Some(daemon), ..Mechanisms::default() }, true),
    ] {
        let mut config = moving(if acts { &[GATEWAY] } else { &[] }, &mechanisms);
        config.links[0].backward.delay = ms(100);
        config.links[0].forward.delay = ms(100);
        config.mobiles[0].prediction = Some(Prediction::Lead(ms(100)));
        config.flows[0].sender = Arc::new(Profile::Sack1Ns2.config());
        let freeze = FreezeConfig { warning: WarningPeriod::WholeLead, ip_flag: acts, ..FreezeConfig::default() };
        let host = holdover_mobility::Mechanisms {
            freeze: Some(freeze),
            reconnect_acks: Some(ReconnectAcksConfig::default()),
            ..holdover_mobility::Mechanisms::default()
        };
        config.mechanisms = vec![HostMechanisms { node: NodeId(MOBILE), mechanisms: host, foresight: None }];
        let mut log = Log::default();
        let mut world = World::new(config).expect("a valid world");
        world.run(&mut log);
        let report = world.report().remove(0);
        assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 1_000_000), "{mechanisms:?}");
        let again = report.sender.expect("a sender").bytes_retransmitted.0;
        assert_eq!(again == 0, acts, "{again} bytes again with {mechanisms:?}");
    }
}

/// A supervisor host at each base station: the connection moves with the mobile host, as records over the wires between them.
// Claim: A connection moves between supervisor hosts at base stations with its mobile host.
#[test]
fn a_connection_moves_between_supervisor_hosts_with_its_host() {
    let m_tcp = |peer: NodeId, pulls_back| {
        let handoff = Some(HandoffConfig::among(vec![peer.address(false)]));
        let split = SplitConfig::with(Profile::Linux6Reno.config());
        Mechanisms {
            m_tcp: Some(MTcpConfig { pulls_back, ..MTcpConfig::with(SplitConfig { handoff, ..split }) }),
            ..Mechanisms::default()
        }
    };
    for (profile, is_upload, most_idle_ms) in [
        // When its window opens, it retransmits the data that the old supervisor host had buffered.
        (Profile::RenoBsd, false, 100),
        // It waits for its timer, because it receives no report that the link is up.
        (Profile::RenoBsd, true, 400),
        // Linux does not, and waits for its timer if all outstanding data was left behind.
        (Profile::Linux6Cubic, false, 5_000),
        (Profile::Linux6Cubic, true, 200),
    ] {
        let is_bsd = profile == Profile::RenoBsd;
        let mut config = moving(&[], &Mechanisms::default());
        for mobile in &mut config.mobiles {
            mobile.attachment = Attachment::HandoffTime(ms(200));
        }
        let (from, to) = if is_upload { (MOBILE, FIXED) } else { (FIXED, MOBILE) };
        config.flows = vec![with_stack(flow("transfer", from, to, bulk_bytes(1_000_000)), profile.config())];
        let gateway = |(node, peer)| GatewayMechanisms {
            node,
            mechanisms: m_tcp(peer, is_bsd),
            mobiles: vec![NodeId(MOBILE)],
            hears_links: true,
        };
        config.gateways = [(BASES[0], BASES[1]), (BASES[1], BASES[0])].into_iter().map(gateway).collect();
        let mut log = Log::default();
        let mut world = World::new(config).expect("a valid world");
        world.run(&mut log);
        let report = world.report().remove(0);
        assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 1_000_000), "{profile}");
        let actions = |name: &str| {
            log.when(|event| matches!(event, WorldEvent::Mechanism(_, action) if action.what == name)).len()
        };
        let moves = log.when(|event| matches!(event, WorldEvent::Attached(NodeId(MOBILE), _))).len();
        assert!(
            moves >= 1 && actions("handed on") == moves && actions("took over") == moves,
            "{profile}: {moves} moves"
        );
        for reconnection in &report.reconnections {
            let idle = reconnection.idle.expect("new data came");
            assert!(idle <= ms(most_idle_ms), "{profile}, upload {is_upload}: {idle}");
        }
    }
}

/// I-TCP at each base station, with buffers of 16 kB: the data in them crosses the wires between the base stations, and takes the time of its
/// bytes.
// Claim: A split connection (I-TCP) moves between base stations with its mobile host and the data in its buffers, in the time that the wires
// need for these bytes.
#[test]
fn a_split_connection_moves_with_its_buffers_in_the_time_of_their_bytes() {
    for (profile, is_upload, kbps) in [
        (Profile::RenoBsd, false, 500),
        (Profile::RenoBsd, false, 2_000),
        (Profile::RenoBsd, true, 2_000),
        (Profile::Linux6Cubic, false, 10_000),
        (Profile::Linux6Cubic, true, 10_000),
    ] {
        let mut config = moving(&[], &Mechanisms::default());
        for mobile in &mut config.mobiles {
            mobile.attachment = Attachment::HandoffTime(ms(1_000));
        }
        for lan in &mut config.links[1..] {
            (lan.forward, lan.backward) = (wire(kbps, ms(2), 50), wire(kbps, ms(2), 50));
        }
        let (from, to) = if is_upload { (MOBILE, FIXED) } else { (FIXED, MOBILE) };
        config.flows = vec![with_stack(flow("transfer", from, to, bulk_bytes(1_000_000)), profile.config())];
        let gateway = |(node, peer): (NodeId, NodeId)| {
            let handoff = Some(HandoffConfig::among(vec![peer.address(false)]));
            let split = SplitConfig { handoff, ..SplitConfig::with(profile.config()) };
            GatewayMechanisms {
                node,
                mechanisms: Mechanisms { split: Some(split), ..Mechanisms::default() },
                mobiles: vec![NodeId(MOBILE)],
                hears_links: true,
            }
        };
        config.gateways = [(BASES[0], BASES[1]), (BASES[1], BASES[0])].into_iter().map(gateway).collect();
        let mut log = Log::default();
        let mut world = World::new(config).expect("a valid world");
        world.run(&mut log);
        let report = world.report().remove(0);
        let what = format!("{profile}, upload {is_upload}, {kbps} kbit/s");
        assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 1_000_000), "{what}");
        let actions =
            |name: &str| log.when(|event| matches!(event, WorldEvent::Mechanism(_, action) if action.what == name));
        let (left, taken) = (actions("handed on"), actions("took over"));
        assert!(!left.is_empty() && left.len() == taken.len() && actions("refused").is_empty(), "{what}");
        if (profile, is_upload) == (Profile::RenoBsd, false) {
            // Both buffers are full after a gap of a second: 32 kB, with headers and a round trip of some 10 ms.
            let took_ms = taken[0] - left[0];
            let of_bytes = |bytes: f64| bytes * 8.0 / kbps as f64;
            assert!(took_ms > of_bytes(30_000.0) && took_ms < of_bytes(38_000.0) + 40.0, "{what}: {took_ms} ms");
        }
    }
}

/// Snoop at each base station, alone and with copies at the other one. The window of Linux exceeds the queue of the new cell, 20 packets, which
/// drops copies; Snoop repairs one of them in a round trip.
// Claim: With Snoop's copies at the next base station senders retransmit less over handoffs; `reno-bsd` retransmits less than a tenth, and new
// data arrives within 100 ms.
#[test]
fn copies_of_snoop_wait_at_the_next_base_station() {
    for profile in [Profile::RenoBsd, Profile::Linux6Cubic] {
        let run = |has_peers: bool| {
            let mut config = moving(&[], &Mechanisms::default());
            for mobile in &mut config.mobiles {
                mobile.attachment = Attachment::HandoffTime(ms(200));
            }
            config.flows = vec![with_stack(flow("download", FIXED, MOBILE, bulk_bytes(1_000_000)), profile.config())];
            let gateway = |(node, peer): (NodeId, NodeId)| {
                let peers = if has_peers { vec![peer.address(false)] } else { Vec::new() };
                let snoop = Some(SnoopConfig { peers, ..SnoopConfig::default() });
                GatewayMechanisms {
                    node,
                    mechanisms: Mechanisms { snoop, ..Mechanisms::default() },
                    mobiles: vec![NodeId(MOBILE)],
                    hears_links: true,
                }
            };
            config.gateways = [(BASES[0], BASES[1]), (BASES[1], BASES[0])].into_iter().map(gateway).collect();
            let mut log = Log::default();
            let mut world = World::new(config).expect("a valid world");
            world.run(&mut log);
            let report = world.report().remove(0);
            assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 1_000_000), "{profile}");
            let sent =
                |event: &WorldEvent| matches!(event, WorldEvent::Mechanism(_, action) if action.what == "sent copies");
            assert_eq!(!log.when(sent).is_empty(), has_peers, "{profile}");
            let idle = report.reconnections.iter().map(|reconnection| reconnection.idle.expect("new data came"));
            (report.sender.expect("a sender").bytes_retransmitted.0, idle.max().expect("a handoff"))
        };
        let (alone, with_peers) = (run(false), run(true));
        println!("{profile}: {alone:?} alone, {with_peers:?} with peers");
        assert!(with_peers.0 < alone.0, "{profile}: {alone:?}, {with_peers:?}");
        if profile == Profile::RenoBsd {
            assert!(with_peers.0 < alone.0 / 10 && with_peers.1 < ms(100), "{alone:?}, {with_peers:?}");
        }
    }
}

/// A base station with BUFFER-FREEZE, BUFFER or FREEZE in each cell: state and copies move with the mobile host, as messages over the wires
/// between them.
// Claim: State and copies of BUFFER-FREEZE, BUFFER and FREEZE move between base stations with their mobile host.
#[test]
fn buffered_packets_move_between_base_stations_with_their_host() {
    for (buffers, freezes) in [(true, true), (true, false), (false, true)] {
        for profile in [Profile::RenoBsd, Profile::Linux6Cubic] {
            let mut config = moving(&[], &Mechanisms::default());
            for mobile in &mut config.mobiles {
                mobile.attachment = Attachment::HandoffTime(ms(500));
            }
            config.flows = vec![with_stack(flow("download", FIXED, MOBILE, bulk_bytes(1_000_000)), profile.config())];
            let gateway = |(node, peer): (NodeId, NodeId)| {
                let handoff = Some(HandoffConfig::among(vec![peer.address(false)]));
                let buffer_freeze = BufferFreezeConfig { buffers, freezes, handoff, ..BufferFreezeConfig::default() };
                GatewayMechanisms {
                    node,
                    mechanisms: Mechanisms { buffer_freeze: Some(buffer_freeze), ..Mechanisms::default() },
                    mobiles: vec![NodeId(MOBILE)],
                    hears_links: true,
                }
            };
            config.gateways = [(BASES[0], BASES[1]), (BASES[1], BASES[0])].into_iter().map(gateway).collect();
            let mut log = Log::default();
            let mut world = World::new(config).expect("a valid world");
            world.run(&mut log);
            let report = world.report().remove(0);
            let what = format!("{profile}, buffers {buffers}, freezes {freezes}");
            assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 1_000_000), "{what}");
            let count = |name: &str| {
                log.when(|event| matches!(event, WorldEvent::Mechanism(_, action) if action.what == name)).len()
            };
            assert!(count("took over") >= 1 && count("handed on") >= count("took over"), "{what}");
            assert_eq!(count("released") >= 1, buffers, "{what}");
            let is_answered = log.drops.iter().all(|(_, why)| !matches!(why, Dropped::NoListener(_)));
            assert!(is_answered, "{what}: each message is for a base station");
        }
    }
}
