//! Ways in which real kernels' Linux senders stay asleep, or are woken with bad consequences: the simulated Linux behaves alike. (The tests
//! of reconnection ACKs show that a pure duplicate of the last ACK has no effect.)

use holdover_base::Instant;
use holdover_mobility::hold_back::HoldBackConfig;
use holdover_mobility::release::ReleaseConfig;
use holdover_mobility::{Chain, Direction, Injected, LinkEvent, Mechanisms, SegmentFilter, Verdict};
use holdover_sim::{FlowId, FlowReport, Observer, Sample, World, WorldConfig};
use holdover_tcp::Profile;
use holdover_wire::{Packet, Payload, SackBlocks};

use crate::support::*;

const LINUX: [Profile; 2] = [Profile::Linux6Cubic, Profile::Linux6Reno];

fn download(profile: Profile) -> WorldConfig {
    world(Way::Download, profile, 25_000_000, &[(4_000, 11_000)])
}

/// A download that is cut for 7 s, with this many segments held, and released as in `release`.
fn released(profile: Profile, segments: u8, release: ReleaseConfig) -> FlowReport {
    let hold_back = Some(HoldBackConfig { segments, ..HoldBackConfig::default() });
    run(with(download(profile), Mechanisms { hold_back, release, ..Mechanisms::default() }, None))
}

fn undos(report: &FlowReport) -> u64 {
    u64::from(report.sender.as_ref().expect("a sender").undos)
}

fn well_released(profile: Profile) -> FlowReport {
    released(profile, 4, ReleaseConfig::default())
}

/// RFC 3522: the echo of a timestamp from before the retransmission proves that the original arrived.
#[test]
fn a_stale_timestamp_is_taken_for_a_spurious_timeout() {
    for profile in LINUX {
        let stale = ReleaseConfig { refresh_timestamps: false, ..ReleaseConfig::default() };
        let (stale, fresh) = (released(profile, 4, stale), well_released(profile));
        assert_eq!((undos(&stale), undos(&fresh)), (1, 0), "{profile}");
        assert!(idle_ms(&fresh) <= 55 && idle_ms(&stale) >= 100, "{profile}: {} {}", idle_ms(&fresh), idle_ms(&stale));
    }
}

/// RFC 5682: so does an ACK of data that was sent only once.
#[test]
fn an_ack_of_originals_is_taken_for_a_spurious_timeout() {
    for profile in LINUX {
        let one_step = ReleaseConfig { two_steps: false, ..ReleaseConfig::default() };
        let (one, two) = (released(profile, 4, one_step), well_released(profile));
        assert_eq!((undos(&one), undos(&two)), (1, 0), "{profile}");
        assert!(idle_ms(&two) <= 55 && idle_ms(&one) >= 100, "{profile}: {} {}", idle_ms(&two), idle_ms(&one));
    }
}

/// A zero window in the last moment, while much data is in flight: each retransmission cuts ssthresh again.
#[test]
fn a_dirty_freeze_destroys_ssthresh() {
    for profile in LINUX {
        let thresholds = [false, true].map(|freezes| {
            let config = with(download(profile), Mechanisms::default(), Some(ms(25)));
            let config = WorldConfig { sample_every: Some(ms(100)), ..config };
            let mut world = World::new(config).expect("a world");
            let mut chain = Chain::new();
            chain.push(Box::new(Freeze { freezes, ..Freeze::default() }));
            assert!(world.edit_chain(MOBILE, |own| *own = chain));
            let mut least = Least { until: at_ms(10_990), ssthresh: u32::MAX };
            world.run(&mut least);
            least.ssthresh
        });
        let [plain, frozen] = thresholds;
        assert!(plain >= 40 && frozen <= 2, "{profile}: {plain} {frozen}");
    }
}

/// The least ssthresh until a time.
#[derive(Debug)]
struct Least {
    until: Instant,
    ssthresh: u32,
}

impl Observer for Least {
    fn sample(&mut self, now: Instant, _flow: FlowId, sample: &Sample) {
        if now <= self.until {
            self.ssthresh = self.ssthresh.min(sample.snd_ssthresh.unwrap_or(u32::MAX));
        }
    }
}

/// Freezing in its simplest form: the window is zero from the warning to link-up.
#[derive(Debug, Default)]
struct Freeze {
    freezes: bool,
    is_frozen: bool,
    last: Option<Packet>,
    ready: Option<Injected>,
}

fn close_window(packet: &mut Packet) {
    if let Payload::Tcp(segment) = &mut packet.payload {
        segment.window = 0;
    }
}

impl SegmentFilter for Freeze {
    fn handle_packet(&mut self, _now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        if direction == Direction::Outgoing {
            self.last = Some(packet.clone());
            if self.is_frozen {
                close_window(packet);
            }
        }
        Verdict::Pass
    }

    fn handle_link(&mut self, _now: Instant, event: LinkEvent) {
        self.is_frozen = self.freezes && !matches!(event, LinkEvent::Up { .. });
        let Some(mut packet) = self.last.clone().filter(|_| event != LinkEvent::Down) else { return };
        if let Payload::Tcp(segment) = &mut packet.payload {
            segment.options.sack = SackBlocks::EMPTY;
        }
        if self.is_frozen {
            close_window(&mut packet);
        }
        self.ready = Some(Injected { direction: Direction::Outgoing, packet });
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.take()
    }
}
