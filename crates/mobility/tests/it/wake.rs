//! The wake policy and its parts, with the Linux senders of the notes on real kernels: cuts of 0.3 to 40 s, both
//! directions.

use holdover_base::{Duration, Instant};
use holdover_link::{InFlightFate, Outage, OutagePolicy, Outages, QueuedFate};
use holdover_mobility::hold_back::HoldBackConfig;
use holdover_mobility::unreachable_poke::UnreachablePokeConfig;
use holdover_mobility::{Chain, Direction, Injected, LinkEvent, Mechanisms, SegmentFilter, Verdict};
use holdover_sim::{FlowReport, NoObserver, World, WorldConfig};
use holdover_tcp::Profile;
use holdover_wire::Packet;

use crate::support::*;

const LINUX: [Profile; 2] = [Profile::Linux6Cubic, Profile::Linux6Reno];

/// Cuts too short for any retransmission timer to expire, and longer ones.
const SHORT_MS: [u64; 2] = [300, 350];
const LONG_MS: [u64; 7] = [500, 700, 1_000, 3_000, 7_000, 20_000, 40_000];

fn wake() -> Mechanisms {
    Mechanisms { wake: true, ..Mechanisms::default() }
}

/// A transfer of 20 s.
fn cut(way: Way, profile: Profile, from_ms: u64, for_ms: u64) -> WorldConfig {
    world(way, profile, 25_000_000, &[(from_ms, from_ms + for_ms)])
}

/// All cuts at several moments of a transfer: calls `look` with each report, and a description of the cut.
fn each(
    way: Way,
    lengths_ms: &[u64],
    foresight: Option<Duration>,
    change: impl Fn(&mut WorldConfig, u64),
    look: impl Fn(&FlowReport, &str),
) {
    for profile in LINUX {
        for &for_ms in lengths_ms {
            for from_ms in [4_000, 6_071] {
                let mut config = with(cut(way, profile, from_ms, for_ms), wake(), foresight);
                change(&mut config, from_ms);
                let what = format!("{way:?} from {profile}, {for_ms} ms from {from_ms} ms");
                look(&run(config), &what);
            }
        }
    }
}

fn share(report: &FlowReport) -> f64 {
    report.ideal_share().expect("it was completed")
}

#[test]
fn a_download_is_resumed_within_a_round_trip() {
    each(
        Way::Download,
        &LONG_MS,
        None,
        |_, _| {},
        |report, what| {
            let idle = idle_ms(report);
            assert!(idle <= 55 || what.contains(" 500 ms") && idle <= 106, "{idle} ms: {what}");
            assert!(share(report) >= 0.97, "{}: {what}", share(report));
        },
    );
}

/// If the timer has not expired yet, the first sign of loss is the SACK of new data, a round trip later.
#[test]
fn a_download_after_a_short_cut_is_resumed_within_two_round_trips() {
    each(
        Way::Download,
        &SHORT_MS,
        None,
        |_, _| {},
        |report, what| {
            assert!(idle_ms(report) <= 106, "{} ms: {what}", idle_ms(report));
            assert!(share(report) >= 0.98, "{}: {what}", share(report));
        },
    );
}

/// The cost of opening, slow start and one cut for a transfer of 10 s. With more segments held, the start after a cut is faster.
#[test]
fn shorter_transfers_suffer_little() {
    for profile in LINUX {
        for for_ms in [300, 500, 1_000, 3_000] {
            let plain = world(Way::Download, profile, 12_500_000, &[(4_000, 4_000 + for_ms)]);
            let hold_back = HoldBackConfig { segments: 8, ..HoldBackConfig::default() };
            let more = Mechanisms { hold_back: Some(hold_back), ..wake() };
            let [four, eight] = [wake(), more].map(|mechanisms| share(&run(with(plain.clone(), mechanisms, None))));
            assert!(four >= 0.96 && eight >= 0.97 && eight > four, "{profile}, {for_ms} ms: {four} {eight}");
        }
    }
}

/// Without a cut it costs nothing. A false warning costs a round trip and the wait for the cut (100 ms): then the ACKs continue as they
/// arrived, with the former window.
#[test]
fn holding_back_is_free() {
    for way in [Way::Download, Way::Upload] {
        for profile in LINUX {
            let plain = world(way, profile, 12_500_000, &[]);
            let share_of = |config| share(&run(config));
            let (without, held) = (share_of(plain.clone()), share_of(with(plain.clone(), wake(), None)));
            assert!(held >= without - 0.000_5, "{way:?} {profile}: {held} {without}");
            let mut world = World::new(with(plain, wake(), None)).expect("a world");
            let mut chain = Chain::new();
            chain.push(Box::new(FalseAlarms { wake: wake().chain(), next_at: at_ms(2_000) }));
            assert!(world.edit_chain(MOBILE, |own| *own = chain));
            world.run(&mut NoObserver);
            let warned = world.report()[0].duration().as_secs_f64();
            // The ideal duration is 10.4 s.
            let (cost, alarms) = (warned - 10.4 / without, (warned - 1.0).floor());
            assert!(cost <= 0.15 * alarms, "{way:?} {profile}: {alarms} false alarms cost {cost} s");
        }
    }
}

/// Data that the server has received without the mobile host's knowledge is retransmitted first: a round trip more.
#[test]
fn an_upload_is_resumed_at_once() {
    let lengths: Vec<u64> = SHORT_MS.into_iter().chain(LONG_MS).collect();
    each(
        Way::Upload,
        &lengths,
        None,
        |_, _| {},
        |report, what| {
            assert!(idle_ms(report) <= 80, "{} ms: {what}", idle_ms(report));
            assert!(share(report) >= 0.97, "{}: {what}", share(report));
        },
    );
}

/// The only cost of a cut is a round trip and the margin of the stall: the window is kept, even Reno's.
#[test]
fn with_a_prediction_nearly_nothing_is_lost() {
    for way in [Way::Download, Way::Upload] {
        let uncut = LINUX.map(|profile| share(&run(world(way, profile, 25_000_000, &[]))));
        let least = 0.994 * uncut[0].min(uncut[1]);
        let lengths: Vec<u64> = SHORT_MS.into_iter().chain(LONG_MS).collect();
        each(
            way,
            &lengths,
            Some(ms(300)),
            |_, _| {},
            |report, what| {
                assert!(share(report) >= least, "{}, expected {least}: {what}", share(report));
                assert!(idle_ms(report) <= 55, "{} ms: {what}", idle_ms(report));
            },
        );
    }
}

/// The ladder finds the sender's first segment wherever it is.
#[test]
fn the_last_acks_may_have_died_with_the_link() {
    let lose = |config: &mut WorldConfig, _| {
        config.links[0].forward.outage_policy.in_flight = InFlightFate::Dropped;
    };
    each(Way::Download, &LONG_MS, None, lose, |report, what| {
        assert!(idle_ms(report) <= 110, "{} ms: {what}", idle_ms(report));
        assert!(share(report) >= 0.97, "{}: {what}", share(report));
    });
}

/// A segment is lost shortly before the cut, so that the cut falls into a hole (or into the recovery from it). Nothing is held then. The
/// poke reduces a sender's timeout to its value without backoff, so a retransmission shortly before link-up costs one such timeout.
#[test]
fn a_cut_may_fall_into_a_sack_hole() {
    for way in [Way::Download, Way::Upload] {
        for before_ms in [30, 100, 140, 200] {
            let lose = |config: &mut WorldConfig, from_ms: u64| {
                let down = at_ms(from_ms - before_ms);
                let hole = Outage { down, up: down + Duration::from_micros(1_300) };
                let link = &mut config.links[1];
                for internet in [&mut link.forward, &mut link.backward] {
                    internet.outages = Outages::List(vec![hole]);
                    internet.outage_policy =
                        OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped };
                }
            };
            each(way, &[1_000, 7_000, 20_000], None, lose, |report, what| {
                assert!(idle_ms(report) <= 500, "{} ms: {what}, hole {before_ms} ms before", idle_ms(report));
                assert!(share(report) >= 0.955, "{}: {what}, hole {before_ms} ms before", share(report));
            });
        }
    }
}

/// The poke alone wakes backed-off senders in either direction, except one whose last ACKs were lost or not sent yet: then its
/// retransmission has arrived before, and the ACK looks like the proof of a spurious timeout, as it does to Linux. Which case applies
/// changes with each segment.
#[test]
fn a_poke_alone_takes_back_the_backoff() {
    let poke = Mechanisms { unreachable_poke: Some(UnreachablePokeConfig::default()), ..Mechanisms::default() };
    for way in [Way::Download, Way::Upload] {
        for profile in LINUX {
            for for_ms in [3_000, 7_000, 40_000] {
                let idle = |from_ms| idle_ms(&run(with(cut(way, profile, from_ms, for_ms), poke.clone(), None)));
                let least = [4_000, 4_003, 4_006].map(idle).into_iter().min().unwrap();
                assert!(least <= 140, "{least} ms: {way:?} from {profile}, {for_ms} ms");
            }
        }
    }
}

/// A chain that is warned of a cut every second, without any cut.
#[derive(Debug)]
struct FalseAlarms {
    wake: Chain,
    next_at: Instant,
}

impl SegmentFilter for FalseAlarms {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        self.wake.handle_packet(now, direction, packet)
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_timeout(&mut self, now: Instant) {
        if self.next_at <= now {
            self.next_at = now + Duration::from_secs(1);
            self.wake.handle_link(now, LinkEvent::Fading { lead: Some(ms(200)) });
        }
        self.wake.handle_timeout(now);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.wake.poll_transmit()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wake.poll_timeout().map_or(Some(self.next_at), |at| Some(at.min(self.next_at)))
    }
}
