//! Mechanisms of routers where mobile hosts register: at base stations, behind the tunnel, and at the gateway before it.

use holdover_gateway::Mechanisms;
use holdover_gateway::blocking_buffer::BlockingBufferConfig;
use holdover_gateway::buffer_freeze::BufferFreezeConfig;
use holdover_gateway::supervisor::SupervisorConfig;
use holdover_sim::{
    Attachment, Dropped, FlowStatus, GatewayMechanisms, Movement, NodeId, Registration, World, WorldConfig, WorldEvent,
};

use crate::support::*;

const BASES: [NodeId; 2] = [NodeId(2), NodeId(3)];

/// A download of 1 MB to a host that goes from one cell to the other and back.
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

#[test]
fn they_see_what_comes_out_of_the_tunnel_and_what_goes_into_it() {
    let none = Mechanisms::default;
    let buffer_freeze = Mechanisms { buffer_freeze: Some(BufferFreezeConfig::default()), ..none() };
    let supervisor = Mechanisms { supervisor: Some(SupervisorConfig::default()), ..none() };
    let blocking = Mechanisms { blocking_buffer: Some(BlockingBufferConfig::default()), ..none() };
    for (nodes, mechanisms, acts) in [
        (&BASES[..], buffer_freeze, true),
        (&BASES[..], supervisor.clone(), true),
        (&[GATEWAY][..], supervisor, false),
        // Nobody says with a window of zero that it goes.
        (&[GATEWAY][..], blocking, false),
    ] {
        let mut log = Log::default();
        let mut world = World::new(moving(nodes, &mechanisms)).expect("a valid world");
        world.run(&mut log);
        let report = world.report().remove(0);
        assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 1_000_000), "{mechanisms:?}");
        assert!(!log.drops.iter().any(|(_, why)| matches!(why, Dropped::HopLimit(_))), "nothing goes round in circles");
        let deeds = log
            .events
            .iter()
            .filter(|(_, event)| matches!(event, WorldEvent::Mechanism(node, _) if nodes.contains(node)));
        assert_eq!(deeds.count() > 0, acts, "{mechanisms:?}");
    }
}
