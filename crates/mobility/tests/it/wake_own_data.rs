//! Copies of the host's own data, by its timestamp clock, between cells, and after a long silence.

use holdover_base::{ByteCount, Duration, Instant};
use holdover_link::Length;
use holdover_mobility::Mechanisms;
use holdover_mobility::silence::SilenceOptions;
use holdover_sim::{FlowStatus, Frame, Observer, Place, RequestResponse, Traffic, Transit, World, WorldConfig};
use holdover_tcp::Profile;

use crate::probe_worlds::cells;
use crate::support::*;
use crate::wake_silence::beyond;

fn copying() -> Mechanisms {
    Mechanisms { wake: true, own_data: true, ..Mechanisms::default() }
}

fn detecting() -> Mechanisms {
    Mechanisms { silence: Some(SilenceOptions::default()), ..copying() }
}

fn keys(size: u64, think: Duration, count: u64) -> Traffic {
    let size = ByteCount(size);
    Traffic::RequestResponse(RequestResponse { request: size, response: size, think, count: Some(count) })
}

/// Whether the mechanisms of the mobile host send packets with a TSval that its own TCP has not reached, and how many with data.
#[derive(Default, Debug)]
struct Stamps {
    newest_made: Option<u32>,
    copies: u32,
    discarded: u32,
}

impl Observer for Stamps {
    fn packet(&mut self, _at: Instant, place: Place, frame: &Frame) {
        let Some(segment) = frame.packet().tcp() else { return };
        let Some(val) = segment.options.timestamps.map(|timestamps| timestamps.val) else { return };
        if (place.node, place.transit) != (MOBILE, Transit::Out) {
            return;
        }
        let is_behind = self.newest_made.is_some_and(|made| (val.wrapping_sub(made) as i32) < 0);
        if frame.reason.is_some() {
            self.discarded += u32::from(is_behind);
        } else {
            self.copies += u32::from(!segment.payload.is_empty());
            self.newest_made = self.newest_made.filter(|_| is_behind).or(Some(val));
        }
    }
}

/// Keys over 50 ms, with a silence from 520 ms on; the SYN is sent at `start_ms`.
fn with_clock(profile: Profile, tick: Duration, start_ms: u64) -> WorldConfig {
    let mut config = beyond(world(Way::Upload, profile, 1, &[]), &[(520, 3_600)], &[]);
    config.flows[0].traffic = keys(36, ms(230), 40);
    config.flows[0].start = at_ms(start_ms);
    let config = tcp(config, |tcp| tcp.timestamps = Some(tick));
    with(config, detecting(), None)
}

/// A clock of 2 Hz that has ticked once in 0.4 s is not one of 10 Hz.
// Claim: In the simulator, copies of the host's data are never ahead of its timestamp clock, whatever its rate: its peer discards (PAWS) no
// segment of the host's for them.
#[test]
fn no_segment_of_the_host_is_discarded_for_a_copy_before_it() {
    for tick_ms in [1, 2, 4, 10, 20, 100, 250, 500, 1_000] {
        let mut copies = 0;
        for profile in Profile::ALL {
            for start_ms in [1, 120, 200] {
                let mut world = World::new(with_clock(profile, ms(tick_ms), start_ms)).expect("a world");
                let mut stamps = Stamps::default();
                world.run(&mut stamps);
                let what = format!("{profile}, {tick_ms} ms from {start_ms} ms: {stamps:?}");
                assert_eq!(world.report()[0].status, FlowStatus::Completed, "{what}");
                assert_eq!(stamps.discarded, 0, "{what}");
                copies += stamps.copies;
            }
        }
        assert!(copies > 100, "{tick_ms} ms: {copies}");
    }
}

/// The host stays in each cell for 5 s; its second key is struck soon after it has left the first one.
// Claim: In the simulator, a key that is struck between two cells follows the handoff at once with `own_data`, wherever the host's timer
// stands.
#[test]
fn a_key_struck_between_two_cells_follows_the_handoff() {
    let slowest_ms = |mechanisms: &Mechanisms| {
        let echoed_ms = |handoff_ms: u64| {
            let residence = Length::Constant(Duration::from_secs(5));
            let mut config = cells(Profile::Linux6Cubic, Way::Upload, 1, residence, ms(handoff_ms));
            config.flows[0].traffic = keys(36, ms(5_100), 2);
            let node = config.mobiles[0].node;
            config.mechanisms =
                vec![holdover_sim::HostMechanisms { node, mechanisms: mechanisms.clone(), foresight: None }];
            let report = run(config);
            assert_eq!(report.status, FlowStatus::Completed);
            report.completed_at.expect("it is completed").saturating_since(at_ms(5_000 + handoff_ms)).as_millis()
        };
        (1_000..3_000).step_by(50).map(echoed_ms).max().expect("a handoff")
    };
    let [copied, uncopied] = [true, false].map(|own_data| slowest_ms(&Mechanisms { own_data, ..copying() }));
    assert!(copied <= 130, "{copied} ms");
    assert!(uncopied >= 200, "{uncopied} ms without copies");
}

/// Probes with 200 bytes of data take up what may be sent of copies in some 13 s; later probes are empty.
#[test]
fn a_key_follows_the_end_of_a_silence_in_which_copies_were_used_up() {
    let echoed_ms = |silent_ms: u64| {
        let mut config = beyond(world(Way::Upload, Profile::Linux6Cubic, 1, &[]), &[(4_500, 4_500 + silent_ms)], &[]);
        config.flows[0].traffic = keys(200, ms(5_000), 2);
        let report = run(with(config, detecting(), None));
        assert_eq!(report.status, FlowStatus::Completed);
        report.completed_at.expect("it is completed").saturating_since(at_ms(4_500 + silent_ms)).as_millis()
    };
    let slowest = (20_000..30_000).step_by(1_000).map(echoed_ms).max().expect("a silence");
    assert!(slowest <= 200, "{slowest} ms");
}
