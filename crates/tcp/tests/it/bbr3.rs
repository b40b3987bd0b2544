//! BBR version 3 over whole paths: the behaviour described in draft-ietf-ccwg-bbr-06.

use holdover_base::{Duration, Instant};
use holdover_tcp::{Config, Profile, RecoveryState};
use proptest::prelude::*;

use crate::bbr_support::{at, cut, faults, is_done, path};
use crate::properties::cases;
use crate::world::{Path, World};

fn v3() -> Config {
    Profile::BbrV3.config()
}

fn transfer(config: Config, path: Path, bytes: usize, seed: u64) -> World {
    let mut world = World::new(config.clone(), config, path, seed);
    world.backward = Path::clean(Duration::from_millis(25));
    world.client.to_write = bytes;
    world.client.keep = false;
    world
}

/// Duration of a transfer in seconds, and its retransmissions in segments.
fn took(config: Config, path: Path, bytes: usize) -> (f64, u64) {
    let mut world = transfer(config, path, bytes, 7);
    assert!(world.run_until(at(1_000_000), is_done));
    let again = world.client.connection().counters().bytes_retransmitted.0 / 1_448;
    (world.now.saturating_since(Instant::ZERO).as_secs_f64(), again)
}

/// Section 3.1: full use of the bottleneck, and a queue only where it probes, bounded by the gain of 2.25 of the window.
#[test]
fn it_fills_the_path_and_not_the_queue() {
    let mut world = transfer(v3(), path(200), 10_000_000, 1);
    world.run_until(at(2_000), |_| false);
    let after_start = world.server.read_len;
    let mut longest = Duration::ZERO;
    world.run_until(at(7_000), |world| {
        longest = longest.max(world.client.connection().srtt().unwrap());
        false
    });
    let rate = (world.server.read_len - after_start) as f64 / 5.0;
    assert!(rate > 0.93 * 1_206_000.0, "{rate} bytes a second");
    assert!(longest < Duration::from_millis(115), "{longest}");
    assert_eq!(world.client.connection().counters().bytes_retransmitted.0, 0);
}

/// Section 3.1: a shallow queue costs little, in throughput and in retransmissions; version 1 overflows it again and again.
#[test]
fn a_shallow_queue_loses_little() {
    for queue in [5, 10, 20] {
        let (seconds, again) = took(v3(), path(queue), 20_000_000);
        let (_, again_v1) = took(Profile::Linux6Bbr.config(), path(queue), 20_000_000);
        println!("queue of {queue}: {seconds:.2} s, {again} again, {again_v1} by version 1");
        assert!(seconds < 20_000_000.0 / 1_206_000.0 * 1.15, "{queue} packets: {seconds} s");
        assert!(again < 13_812 * 3 / 100, "{queue} packets: {again} of 13,812 segments again");
        assert!(again * 2 < again_v1.max(100), "{queue} packets: {again} segments again, {again_v1} by version 1");
    }
}

/// Section 3.1 and 5.3.3.8: losses of 1 % are tolerated.
#[test]
fn random_losses_of_one_percent_do_not_slow_it_down() {
    let lossy = || Path { loss: 0.01, ..path(200) };
    let (v3, _) = took(v3(), lossy(), 10_000_000);
    let (cubic, _) = took(Profile::Linux6Cubic.config(), lossy(), 10_000_000);
    println!("{v3:.2} s, CUBIC {cubic:.2} s");
    assert!(v3 < 11.0 && cubic > 1.5 * v3, "{v3} s against {cubic}");
}

/// Appendix: the bandwidth increases and decreases tenfold.
#[test]
fn the_rate_follows_the_path() {
    let mut world = transfer(v3(), path(300), 400_000_000, 5);
    world.run_until(at(5_000), |_| false);
    world.forward.per_segment = Duration::from_micros(120);
    world.forward.queue_limit = 3_000;
    world.run_until(at(15_000), |_| false);
    let rate = world.client.connection().pacing_rate().unwrap();
    assert!(rate > 10_000_000, "{rate}");
    world.forward.per_segment = Duration::from_micros(1_200);
    world.forward.queue_limit = 300;
    world.run_until(at(30_000), |_| false);
    let before = world.server.read_len;
    world.run_until(at(35_000), |_| false);
    assert!((world.server.read_len - before) as f64 > 0.85 * 5.0 * 1_206_000.0);
    let rate = world.client.connection().pacing_rate().unwrap();
    assert!(rate < 2_000_000, "{rate}");
}

/// The model of the path survives an outage, including PROBE_RTT, in which half of the product stays in flight: after the link's
/// return the only pause is that of the timer.
#[test]
fn an_outage_leaves_the_model_as_it_was() {
    for outage_ms in [300, 3_000, 20_000] {
        let mut world = transfer(v3(), path(75), 10_000_000, 11);
        cut(&mut world, outage_ms);
        world.run_until(at(2_990), |_| false);
        let before = world.server.read_len;
        assert!(world.run_until(at(3_000 + outage_ms + 40_000), |world| world.server.read_len > before + 200_000));
        let resumed = world.now;
        assert_ne!(world.client.connection().recovery_state(), RecoveryState::Loss, "{outage_ms} ms");
        assert!(world.run_until(at(1_000_000), is_done));
        let rest = (world.client.to_write - before - 200_000) as f64 / 1_206_000.0;
        let took = world.now.saturating_since(resumed).as_secs_f64();
        println!("{outage_ms} ms: went on at {resumed}, {took:.2} s for what takes {rest:.2} s at the path's rate");
        assert!(took < rest * 1.15 + 0.5, "{outage_ms} ms: {took} s, {rest} s at the path's rate");
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// With any losses, delays or reordering of the path, everything arrives, within the bounds given by the faults and the
    /// path's rate.
    #[test]
    fn faults_do_not_stop_it(faults in faults()) {
        let mut world = faults.transfer(v3());
        world.ledger = Some(crate::ledger::Ledger::default());
        prop_assert!(world.run_until(Instant::from_secs(400), is_done), "not done");
        world.ledger.as_ref().expect("one is kept").assert_balanced(1_448, 5);
        // When the path recovers, the running timer may be backed off to 30 s; a queue of four packets continues to drop.
        prop_assert!(world.now < Instant::from_secs(180), "{}", world.now);
    }
}
