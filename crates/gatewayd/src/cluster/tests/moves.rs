//! Mobile hosts that move between gateways whose store, networks and processes fail.

use proptest::prelude::*;

use super::world::{self, Fault, World};

#[test]
fn a_move_is_one_write_and_a_ping_pong_one_for_each_move() {
    let mut world = World::new(1, 2, 0);
    world.run_for(5_000);
    world.place(0, Some(0));
    world.run_for(5_000);
    let writes = world.store.writes_of_mobiles;
    assert_eq!(writes, 1);
    for turn in 1..=6u64 {
        world.place(0, Some((turn % 2) as usize));
        world.run_for(4_000);
        assert_eq!(world.store.writes_of_mobiles, 1 + turn);
    }
    assert_eq!(world.undelivered(), 0);
    world.check();
}

#[test]
fn without_its_store_every_gateway_continues_and_packets_elsewhere_arrive_later() {
    let mut world = World::new(1, 2, 0);
    world.run_for(3_000);
    world.place(0, Some(0));
    world.run_for(3_000);
    world.apply(Fault::Store { ms: 20_000 });
    world.run_for(1_000);
    world.place(0, None);
    world.run_for(1_000);
    let waiting = world.waiting(0);
    assert!(waiting > 0);
    world.place(0, Some(1));
    world.run_for(10_000);
    assert_eq!(world.waiting(0), waiting, "the former owner keeps what it has");
    assert!(world.delivered_at(1) > 50, "the new one goes on");
    world.run_for(20_000);
    assert_eq!((world.undelivered(), world.store.writes_of_mobiles), (0, 2));
    world.check();
}

/// The mobile host is away for longer than mobile hosts are remembered, and then comes to the other gateway.
// Claim: A mobile host that stays away is forgotten, once what waits has aged, and its key removed: in the model, and with a real
// etcd. Of a hundred that do not answer each is probed less and less often, and none is left out.
// Tests: `cluster::stays_away`,
// `cluster::tests::mobile_hosts_that_do_not_answer_are_probed_less_often_and_the_others_get_their_turn`,
// `cluster::tests::keys_of_mobile_hosts_that_are_long_gone_are_removed`
#[test]
fn a_mobile_host_that_stays_away_is_forgotten_and_its_key_is_released() {
    let mut world = world_without_its_mobile_host();
    world.run_for(30_000);
    assert_eq!(world.known(0), 1, "packets wait for it");
    world.place(0, Some(0));
    world.run_for(3_000);
    assert_eq!(world.waiting(0), 0);
    world.route_away(0);
    world.place(0, None);
    world.find_absent(0, 0);
    world.run_for(100_000);
    assert_eq!((world.known(0), world.owner(0)), (0, None));
    world.place(0, Some(1));
    world.run_for(3_000);
    assert_eq!(world.owner(0).as_deref(), Some("gateway1"));
    world.check();
}

/// The mobile host has left a gateway where packets wait for it, and sends only broadcasts to the other one.
// Claim: A mobile host that arrives with broadcasts only gets what waits: in the model, and on real kernels. Broadcasts that its
// owner hears, too, change nothing.
// Tests: `cluster::arrives_with_broadcasts`, `cluster::overhears`,
// `cluster::tests::a_new_mobile_host_that_was_overheard_is_left_for_a_second_to_the_gateway_that_it_sends_to`
#[test]
fn a_mobile_host_that_arrives_with_broadcasts_only_gets_what_waits() {
    let mut world = world_without_its_mobile_host();
    world.apply(Fault::Quiet { mobile: 0, ms: 60_000 });
    world.place(0, Some(1));
    world.run_for(3_000);
    assert_eq!((world.undelivered(), world.owner(0).as_deref()), (0, Some("gateway1")));
    // Its owner still hears it: broadcasts that the other one hears, too, change nothing.
    let writes = world.store.writes_of_mobiles;
    world.run_overheard(0, 0, 10_000);
    assert_eq!(world.store.writes_of_mobiles, writes);
    world.check();
}

/// A world of two gateways. The mobile host has left the first one, where packets wait for it.
fn world_without_its_mobile_host() -> World {
    let mut world = World::new(1, 2, 0);
    world.run_for(3_000);
    world.place(0, Some(0));
    world.run_for(3_000);
    world.place(0, None);
    world.run_for(3_000);
    assert!(world.waiting(0) > 0);
    world
}

/// Runs a world through faults, each after a pause in ms, until all is calm again, and checks it.
fn play(world: &mut World, faults: Vec<(u64, Fault)>) {
    world.run_for(1_000);
    for (pause, fault) in faults {
        world.run_for(pause);
        world.apply(fault);
    }
    world.run_for(world::LONGEST_FAULT_MS);
    world.place(0, Some(0));
    world.place(1, Some(2));
    world.calm();
    world.run_for(45_000);
    world.check();
    world.check_agreement();
}

proptest! {
    /// With random faults and moves, no packet is delivered twice, and no gateway releases packets of a mobile host that it
    /// knows another gateway to own. When the faults have ended, all gateways agree on the owner.
    // Claim: Who owns a mobile host, over random schedules of moves, partitions, outages, compactions and replacements of the
    // store, late and lost answers, expired leases, lost datagrams and `kill -9`, with three gateways and two mobile hosts: no
    // packet is delivered twice, no more are lost than were in flight to gateways that were killed or given up, no gateway
    // releases packets of a mobile host that it knows to be another's, none claims a mobile host that it has not heard for a
    // second, no epoch has two owners, and in the end all agree. 256 cases of each. Mobile hosts that send nothing but broadcasts
    // for a while, orderly stops, and mobile hosts that are forgotten after 20 s are among them. The rules of arrival, departure,
    // adoption and release are those of the engine (`engine/attachments.rs`). Without `kill -9`, stops and interruptions between
    // gateways none is lost.
    // Tests: `cluster::tests::nothing_is_lost_while_gateways_run_and_reach_each_other`
    #[test]
    fn nothing_is_delivered_twice_and_all_agree_in_the_end(
        seed in any::<u64>(),
        loss in 0u64..15,
        faults in proptest::collection::vec((0u64..8_000, world::faults(3, 2)), 0..25),
    ) {
        let mut world = World::new(seed, 3, loss);
        play(&mut world, faults);
    }
}

proptest! {
    /// Without crashes and with networks that work, no packet is lost, whatever mobile hosts and the store do.
    #[test]
    fn nothing_is_lost_while_gateways_run_and_reach_each_other(
        seed in any::<u64>(),
        faults in proptest::collection::vec((0u64..3_000, world::faults_of_store(3, 2)), 0..40),
    ) {
        let mut world = World::new(seed, 3, 0);
        play(&mut world, faults);
        prop_assert_eq!(world.lost(), 0);
    }
}
