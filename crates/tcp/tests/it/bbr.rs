//! BBR over whole paths: its model of the path, and its behaviour in outages.

use holdover_base::{Duration, Instant};
use holdover_tcp::{Config, Profile, Reason, RecoveryState};
use proptest::prelude::*;

use crate::bbr_support::{at, cut, faults, is_done, path};
use crate::properties::cases;
use crate::world::{Path, Side, World};

fn stack() -> Config {
    Profile::Linux6Bbr.config()
}

/// A transfer of `bytes`; the return path is as fast, and its queue is unlimited.
fn transfer(path: Path, bytes: usize, seed: u64) -> World {
    let mut world = World::new(stack(), stack(), path, seed);
    world.backward.queue_limit = usize::MAX;
    world.client.to_write = bytes;
    world.client.keep = false;
    world
}

/// The rate is found within a second, and the queue stays short: round trips are near the least one.
#[test]
fn it_fills_the_path_and_not_the_queue() {
    let mut world = transfer(path(200), 10_000_000, 1);
    world.run_until(at(2_000), |_| false);
    let after_start = world.server.read_len;
    let mut longest = Duration::ZERO;
    world.run_until(at(7_000), |world| {
        longest = longest.max(world.client.connection().srtt().unwrap());
        false
    });
    let rate = (world.server.read_len - after_start) as f64 / 5.0;
    // The rate is 1448 bytes in each 1.2 ms.
    assert!(rate > 0.95 * 1_206_000.0, "{rate} bytes a second");
    assert!(longest < Duration::from_millis(100), "{longest}");
    let connection = world.client.connection();
    assert_eq!(connection.counters().bytes_retransmitted.0, 0);
    assert_eq!(connection.min_rtt().unwrap().as_millis(), 50);
}

/// They slow CUBIC down.
#[test]
fn random_losses_do_not_slow_it_down() {
    let took = |config: Config| {
        let mut path = path(200);
        path.loss = 0.03;
        let mut world = World::new(config.clone(), config, path, 7);
        world.backward = Path::clean(Duration::from_millis(25));
        world.client.to_write = 10_000_000;
        world.client.keep = false;
        assert!(world.run_until(at(1_000_000), is_done));
        world.now.saturating_since(Instant::ZERO).as_secs_f64()
    };
    let (bbr, cubic) = (took(stack()), took(Profile::Linux6Cubic.config()));
    assert!(bbr < 11.0, "{bbr} s");
    assert!(cubic > 3.0 * bbr, "{cubic} s against {bbr}");
}

/// Every ten seconds the flight shrinks to four segments.
#[test]
fn the_delay_is_measured_with_an_empty_queue() {
    let mut world = transfer(path(1_000), 40_000_000, 3);
    let mut drained_at = Vec::new();
    world.run_until(at(30_000), |world| {
        let now = world.now;
        let connection = world.client.connection();
        if connection.cwnd() <= 4 && connection.in_flight() <= 4 && connection.unacked() > 0 {
            drained_at.push(now);
        }
        false
    });
    drained_at.dedup_by_key(|at| at.as_millis() / 1_000);
    let gaps: Vec<u64> = drained_at
        .windows(2)
        .map(|pair| pair[1].saturating_since(pair[0]).as_millis())
        .filter(|&gap| gap > 2_000)
        .collect();
    assert!(!gaps.is_empty() && gaps.iter().all(|gap| (9_500..=10_700).contains(gap)), "{gaps:?}: {drained_at:?}");
}

/// A path that becomes four times as fast is found within ten seconds' probing; one that becomes slower within ten rounds.
#[test]
fn the_rate_follows_the_path() {
    let mut world = transfer(path(300), 400_000_000, 5);
    world.run_until(at(5_000), |_| false);
    world.forward.per_segment = Duration::from_micros(300);
    let before = world.server.read_len;
    world.run_until(at(15_000), |_| false);
    world.run_until(at(16_000), |_| false);
    assert!(world.client.connection().pacing_rate().unwrap() > 3_000_000);
    assert!(world.server.read_len - before > 25_000_000);
    world.forward.per_segment = Duration::from_micros(2_400);
    world.run_until(at(26_000), |_| false);
    let before = world.server.read_len;
    world.run_until(at(31_000), |_| false);
    assert!((world.server.read_len - before) as f64 > 0.9 * 5.0 * 603_000.0);
    assert!(world.client.connection().pacing_rate().unwrap() < 900_000);
}

/// An application that sends a little at a time gives no information about the path: the rate is unchanged.
#[test]
fn an_application_with_little_to_send_does_not_lower_the_rate() {
    let mut world = transfer(path(200), 3_000_000, 9);
    world.run_until(at(3_000), is_done);
    let rate = world.client.connection().pacing_rate().unwrap();
    for n in 0..40_u64 {
        world.client.to_write += 2_000;
        world.run_until(at(3_200 + n * 100), |_| false);
    }
    let after = world.client.connection().pacing_rate().unwrap();
    assert!(after as f64 > 0.7 * rate as f64, "{after} after {rate}");
}

/// The window and the rate survive an outage: the data in flight is lost, the model is not.
#[test]
fn an_outage_leaves_the_model_as_it_was() {
    for outage_ms in [300, 3_000, 20_000] {
        let mut world = transfer(path(75), 10_000_000, 11);
        cut(&mut world, outage_ms);
        world.run_until(at(2_990), |_| false);
        let rate = world.client.connection().pacing_rate().unwrap();
        let before = world.server.read_len;
        assert!(world.run_until(at(3_000 + outage_ms + 40_000), |world| world.server.read_len > before + 500_000));
        let resumed = world.now;
        let connection = world.client.connection();
        assert_ne!(connection.recovery_state(), RecoveryState::Loss, "{outage_ms} ms");
        let after = connection.pacing_rate().unwrap();
        assert!(after as f64 > 0.6 * rate as f64, "{outage_ms} ms: {after} after {rate}");
        // The rest is sent at the path's rate, except in PROBE_RTT.
        assert!(world.run_until(at(1_000_000), is_done));
        let rest = (world.client.to_write - before - 500_000) as f64 / 1_206_000.0;
        let took = world.now.saturating_since(resumed).as_secs_f64();
        assert!(took < rest * 1.15 + 0.5, "{outage_ms} ms: {took} s, {rest} s at the path's rate");
    }
}

/// The receiver holds back the ACKs of the last data, and sends them when the link is up: the sender continues with that ACK, at
/// its former rate, whatever the remaining time of its timer. (The kernel's BBR sends new data within a millisecond of such an
/// ACK, and fills the second that follows: `docs/conformance/linux-6.18.md`, `wake`, fresh.) After more than ten seconds the
/// least round trip is too old, and the same ACK begins PROBE_RTT: no new data is sent while more than four segments count as in
/// flight.
#[test]
fn an_ack_that_was_held_back_resumes_it_at_once() {
    for outage_ms in [300, 3_000, 6_500] {
        let up = 3_000 + outage_ms;
        let mut world = transfer(path(75), 10_000_000, 11);
        cut(&mut world, outage_ms);
        world.run_until(at(2_980), |_| false);
        let point = world.server.connection().rcv_nxt();
        world.server.connection().hold_ack_point(Some(point));
        world.run_until(at(up), |_| false);
        world.server.connection().hold_ack_point(None);
        world.server.connection().send_acks(1);
        world.work(Side::Server);
        let sent = world.client.connection().snd_nxt();
        let resumes = |world: &mut World| world.client.connection().snd_nxt() != sent;
        assert!(world.run_until(at(up + 10_000), resumes), "{outage_ms} ms: nothing new");
        let idle = world.now.saturating_since(at(up)).as_millis();
        assert!(idle <= 30, "{outage_ms} ms: new data {idle} ms after the link's return");
        let before = world.server.read_len;
        world.run_until(at(up + 2_100), |_| false);
        let rate = (world.server.read_len - before) as f64 / 2.0;
        assert!(rate > 0.8 * 1_206_000.0, "{outage_ms} ms: {rate} bytes a second");
    }
}

/// `docs/conformance/outage-grid.toml` with Linux 6.18's BBR: uploads over outages of 0.3, 3 and 7 s. With 1 s the kernel's
/// second timer expired 0.1 ms after the outage, and without its timer wheel, which is up to an eighth late, would have expired
/// before its end.
#[test]
fn the_outage_grid_takes_as_long_as_on_the_kernel() {
    for (outage_ms, kernel) in [(300, 9.04), (3_000, 13.1), (7_000, 19.84)] {
        let mut world = transfer(path(75), 10_000_000, 11);
        cut(&mut world, outage_ms);
        assert!(world.run_until(at(100_000), is_done));
        let took = world.now.saturating_since(Instant::ZERO).as_secs_f64();
        let again = world.client.connection().counters().bytes_retransmitted.0;
        println!("{outage_ms} ms: {took:.2} s, {kernel} s on the kernel, {again} bytes again");
        assert!((took / kernel - 1.0).abs() < 0.1, "{outage_ms} ms: {took} s, {kernel} s on the kernel");
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// With any losses, delays or reordering of the path, everything arrives. Retransmissions exceed the data that was lost, was
    /// outstanding at a timeout, or may have been considered lost by at most a fifth; and only timers send more than a burst at
    /// once.
    #[test]
    fn faults_do_not_stop_it(faults in faults()) {
        let mut world = faults.transfer(stack());
        world.log = Some(Vec::new());
        prop_assert!(world.run_until(Instant::from_secs(400), is_done), "not done");
        let log = world.log.take().unwrap_or_default();
        let mut burst = (Instant::ZERO, 0_u32);
        for sent in log.iter().filter(|sent| sent.from == Side::Client).skip(12) {
            let is_paced = matches!(sent.transmit.reason, Reason::NewData | Reason::LimitedTransmit | Reason::LossRecovery);
            if is_paced && sent.transmit.segment.payload.len() > 1_000 {
                burst = if sent.at == burst.0 { (sent.at, burst.1 + 1) } else { (sent.at, 1) };
                prop_assert!(burst.1 <= 45, "{} segments at once at {:?}", burst.1, sent.at);
            }
        }
    }
}
