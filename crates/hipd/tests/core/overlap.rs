//! A host that has its former address for a while beside the new one (make before break), and TCP between its programs and the peer's.

use holdover_base::Duration;
use holdover_hipd::files::Via;
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::talking;
use crate::world::World;

const FORMER: &str = "192.0.2.1";
const NEW: &str = "203.0.113.1";

/// A program's segment of a connection that host 0 sends on.
fn send(world: &mut World, from: usize, seq: u32, len: usize, ack: u32) {
    let ports = [40_000, 5001];
    let segment = Segment {
        src_port: ports[from],
        dst_port: ports[1 - from],
        seq: Seq::new(seq),
        ack: Seq::new(ack),
        flags: Flags::ACK,
        window: 1000,
        payload: vec![7; len].into(),
        ..Segment::default()
    };
    let (src, dst) = (world.hit(from).0, world.hit(1 - from).0);
    world.send_packet(from, &Packet::new(src.into(), dst.into(), segment));
}

/// Packets that the mechanisms of each host have made.
fn woken(world: &World) -> [u64; 2] {
    [0, 1].map(|index| world.hosts[index].counters().woken)
}

/// Host 0 moves to these addresses while its data is on its way, so long after its data was last acknowledged; what the mechanisms made.
fn woken_by_move(places: &[&str], silence: Duration) -> [u64; 2] {
    let mut world = talking(Via::Ip);
    let one_way = world.delay + Duration::from_millis(1);
    for end in [1001, 2001, 3001] {
        send(&mut world, 0, end - 1000, 1000, 1);
        world.run_for(one_way);
        send(&mut world, 1, 1, 0, end);
        world.run_for(one_way);
    }
    world.run_for(silence);
    let before = woken(&world);
    send(&mut world, 0, 3001, 1000, 1);
    world.move_to(0, places);
    world.run_for(one_way);
    send(&mut world, 1, 1, 0, 4001);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.hosts[0].peer_status()[0].counters.readdressed, 1);
    let after = woken(&world);
    [0, 1].map(|index| after[index] - before[index])
}

// Claim: The daemon repeats nothing after a move to a new address while the former one stays, if data was acknowledged just before; it
// does if the former one is gone, or nothing was acknowledged for more than 300 ms.
#[test]
fn nothing_is_repeated_while_the_former_address_stays() {
    assert_eq!(woken_by_move(&[NEW, FORMER], Duration::ZERO), [0, 0]);
    let [of_mobile, of_peer] = woken_by_move(&[NEW], Duration::ZERO);
    assert!(of_mobile > 0, "{of_mobile} and {of_peer}");
    let [of_mobile, of_peer] = woken_by_move(&[NEW, FORMER], Duration::from_millis(400));
    assert!(of_mobile > 0, "{of_mobile} and {of_peer}");
}
