//! Copies of worlds that continue with other outages: a run from a copy is the run from the start.

use holdover_base::{Duration, Instant, Rng};
use holdover_link::{
    Alternating, Arq, CoDel, InFlightFate, Jitter, JitterDistribution, Length, LinkConfig, Loss, Outage, OutagePolicy,
    Outages, QueuedFate,
};
use holdover_mobility::Mechanisms;
use holdover_mobility::silence::SilenceOptions;
use holdover_sim::{Ending, Families, HostIdentity, HostMechanisms, NodeId, World, WorldConfig, WorldEvent};
use holdover_tcp::Profile;

use crate::identity::{moving, with_identity};
use crate::support::*;

/// One outage in both directions, as a scenario sets it.
fn once(mut config: WorldConfig, connected: Duration, disconnected: Duration) -> WorldConfig {
    let outages = Outages::Alternating(Alternating {
        initial_connected: None,
        connected: Length::Constant(connected),
        disconnected: Length::Constant(disconnected),
        count: Some(1),
    });
    config.links[0].forward.outages = outages.clone();
    config.links[0].backward.outages = outages;
    config
}

fn upload() -> WorldConfig {
    pair(wire(2_000, ms(30), 20), vec![flow("up", 0, 1, bulk_bytes(1_000_000))], secs(60))
}

fn run_from(mut world: World, mut log: Log) -> (World, Log, Ending) {
    let ending = world.run(&mut log);
    (world, log, ending)
}

/// Everything that is reported of two runs is the same.
fn assert_same(what: &str, one: &(World, Log, Ending), other: &(World, Log, Ending)) {
    assert_eq!((one.2, one.0.now(), one.0.events()), (other.2, other.0.now(), other.0.events()), "{what}");
    assert_eq!(one.1.events, other.1.events, "{what}");
    assert_eq!(one.0.report(), other.0.report(), "{what}");
    assert!(one.1 == other.1, "{what}: other packets, with the same events");
}

#[test]
fn worlds_that_differ_in_later_outages_are_copied() {
    let (one, other) = (once(upload(), secs(2), secs(1)), once(upload(), secs(2), secs(3)));
    assert_eq!(one.shared_until(&other), Some(Instant::from_secs(3)));
    assert_eq!(one.shared_until(&one), Some(Instant::FAR_FUTURE));
    let mut slower = other.clone();
    slower.links[0].forward.delay = ms(31);
    assert_eq!(one.shared_until(&slower), None);
    // Outages of one family are not those of the link itself.
    let of_ipv4 = |mut world: WorldConfig| {
        world.links[0].layer2.families = Families::Ipv4;
        world
    };
    assert_eq!(of_ipv4(one.clone()).shared_until(&of_ipv4(other.clone())), None);

    let (mut world, mut log) = (World::new(one).unwrap(), Log::default());
    // The queue holds 120 ms, and so no frame waits for the link yet.
    assert_eq!(world.run_to(at_ms(1_500), &mut log), None);
    let copy = world.fork(&other).expect("nothing depends on the outage yet");
    let alone = run_from(World::new(other.clone()).unwrap(), Log::default());
    assert_same("copied before the cut", &run_from(copy, log.clone()), &alone);

    // Frames wait for the end of the outage, which is not the other one's.
    assert_eq!(world.run_to(at_ms(2_500), &mut log), None);
    assert!(world.depends_on_outages_to() >= Instant::from_secs(3));
    assert!(world.fork(&other).is_none());
}

/// Copies are taken during an outage, too, where frames are lost in it.
#[test]
fn lost_frames_do_not_depend_on_the_end_of_an_outage() {
    let policy = OutagePolicy { queued: QueuedFate::Lost, in_flight: InFlightFate::Dropped };
    let during = |disconnected| {
        let mut config = once(upload(), secs(2), disconnected);
        config.links[0].forward.outage_policy = policy;
        config.links[0].backward.outage_policy = policy;
        config
    };
    let (mut world, mut log) = (World::new(during(secs(5))).unwrap(), Log::default());
    assert_eq!(world.run_to(at_ms(6_000), &mut log), None);
    let longer = during(secs(9));
    let copy = world.fork(&longer).expect("the link is back in a second");
    let alone = run_from(World::new(longer).unwrap(), Log::default());
    assert_same("copied during the outage", &run_from(copy, log), &alone);
}

/// The log also checks that no report comes after a later one.
#[test]
fn a_warning_longer_than_the_connected_time_comes_when_the_link_is_up() {
    let mut config = upload();
    config.links[0].forward.outages = Outages::periodic(ms(400), ms(300));
    config.mechanisms =
        vec![HostMechanisms { node: NodeId(0), mechanisms: Mechanisms::default(), foresight: Some(secs(1)) }];
    config.time_limit = at_ms(2_000);
    let (_, log, _) = run_from(World::new(config).unwrap(), Log::default());
    let warned = |event: &WorldEvent| matches!(event, WorldEvent::LinkFading(NodeId(0), lead) if *lead == ms(400));
    assert_eq!(log.when(warned), [0.0, 700.0, 1_400.0]);
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

fn between(rng: &mut Rng, least: u64, most: u64) -> u64 {
    least + rng.below(most - least + 1)
}

fn any_link(rng: &mut Rng) -> LinkConfig {
    let mut link = wire(between(rng, 500, 8_000), ms(between(rng, 0, 80)), between(rng, 3, 60) as u32);
    link.outage_policy = OutagePolicy {
        queued: pick(rng, &[QueuedFate::Held, QueuedFate::Dropped, QueuedFate::Lost, QueuedFate::Corrupted]),
        in_flight: pick(rng, &[InFlightFate::Delivered, InFlightFate::Dropped, InFlightFate::Corrupted]),
    };
    if rng.chance(0.5) {
        link.loss = Loss::Independent(rng.next_f64() * 0.03);
    }
    if rng.chance(0.2) {
        (link.duplicate, link.corrupt) = (0.01, 0.01);
    }
    if rng.chance(0.3) {
        let distribution = pick(rng, &[JitterDistribution::Uniform, JitterDistribution::Normal]);
        link.jitter = Some(Jitter { amplitude: link.delay / 8, distribution, reorder: rng.chance(0.3) });
    }
    if rng.chance(0.2) {
        link.codel = Some(CoDel::default());
    }
    if rng.chance(0.2) {
        link.arq = Some(Arq::default());
    }
    if rng.chance(0.2) {
        link.forwards_after = ms(between(rng, 1, 900));
    }
    link
}

fn any_alternating(rng: &mut Rng) -> Alternating {
    let length = |rng: &mut Rng| match rng.below(3) {
        0 => Length::Exponential { mean: ms(between(rng, 100, 4_000)) },
        1 => Length::Uniform { min: ms(50), max: ms(between(rng, 51, 4_000)) },
        _ => Length::Constant(ms(between(rng, 0, 4_000))),
    };
    Alternating {
        initial_connected: rng.chance(0.3).then(|| ms(between(rng, 0, 3_000))),
        connected: length(rng),
        disconnected: length(rng),
        count: rng.chance(0.5).then(|| between(rng, 1, 5)),
    }
}

/// Outages and other ones that are the same at first.
fn any_two_outages(rng: &mut Rng) -> (Outages, Outages) {
    if rng.chance(0.4) {
        let one = any_alternating(rng);
        let mut other = one.clone();
        match rng.below(3) {
            0 => other.count = Some(between(rng, 1, 6)),
            1 => other.disconnected = any_alternating(rng).disconnected,
            _ => other.connected = any_alternating(rng).connected,
        }
        return (Outages::Alternating(one), Outages::Alternating(other));
    }
    let list = |rng: &mut Rng, mut at: u64| {
        let outages = (0..between(rng, 1, 4)).map(|_| {
            let down = at + between(rng, 1, 3_000);
            at = down + between(rng, 1, 5_000);
            Outage { down: at_ms(down), up: at_ms(at) }
        });
        outages.collect::<Vec<_>>()
    };
    let from = between(rng, 0, 2_000);
    let shared = if rng.chance(0.7) { list(rng, from) } else { Vec::new() };
    let end = shared.last().map_or(0, |outage| outage.up.as_millis());
    let [mut one, mut other] = [(); 2].map(|()| [shared.clone(), list(rng, end)].concat());
    if rng.chance(0.5)
        && let (Some(last), Some(longer)) = (one.get(shared.len()), other.first_mut())
    {
        // The same outage, of another length, ends the second schedule.
        *longer = Outage { down: last.down, up: last.up + ms(between(rng, 1, 9_000)) };
        (one, other) = (one.clone(), [shared, vec![*longer]].concat());
    }
    (Outages::List(one), Outages::List(other))
}

fn any_mechanisms(rng: &mut Rng, node: NodeId) -> HostMechanisms {
    let mut mechanisms = Mechanisms::default();
    match rng.below(8) {
        0 => mechanisms.wake = true,
        1 => mechanisms.freeze = Some(Default::default()),
        2 => mechanisms.reconnect_acks = Some(Default::default()),
        3 => mechanisms.retransmission_trigger = Some(Default::default()),
        4 => mechanisms.fast_retransmit = Some(Default::default()),
        5 => mechanisms.timestamp_echo = Some(Default::default()),
        6 => mechanisms.user_timeout = Some(Default::default()),
        _ => mechanisms.new_cell_window = Some(Default::default()),
    }
    HostMechanisms { node, mechanisms, foresight: rng.chance(0.5).then(|| ms(between(rng, 1, 700))) }
}

/// Two worlds that differ in outages only.
fn any_two_worlds(rng: &mut Rng) -> (WorldConfig, WorldConfig) {
    let profile = pick(rng, &[Profile::Linux6Cubic, Profile::Linux2_4, Profile::RenoBsd, Profile::Sack1Ns2]);
    let stacked = |flow| with_stack(flow, profile.config());
    let amount = between(rng, 10_000, 3_000_000);
    let has_identities = rng.chance(0.4);
    let last = if has_identities { 2 } else { 1 };
    let flows = vec![
        stacked(flow("up", 0, last, bulk_bytes(amount))),
        stacked(flow("down", last, 0, bulk_bytes(amount / 2))),
        stacked(flow("web", 0, last, exchanges(5, ms(400)))),
    ];
    let mut one = if has_identities {
        let delay = rng.chance(0.5).then(|| Length::Uniform { min: ms(100), max: ms(900) });
        with_identity(moving(2, 4, flows), HostIdentity { delay, ..HostIdentity::default() })
    } else {
        pair(any_link(rng), [flows, vec![flow("noise", 0, 1, bursts())]].concat(), secs(90))
    };
    (one.seed, one.time_limit) = (rng.next_u64(), at_ms(between(rng, 5_000, 90_000)));
    one.sample_every = rng.chance(0.3).then(|| ms(300));
    if rng.chance(0.6) {
        one.mechanisms = vec![any_mechanisms(rng, NodeId(0)), any_mechanisms(rng, NodeId(last))];
    }
    // Drawn apart, so that the rest of each case stays as it was.
    let mut options = Rng::split(one.seed, "options of wake");
    for host in one.mechanisms.iter_mut().filter(|host| host.mechanisms.wake) {
        host.mechanisms.silence = options.chance(0.7).then(|| SilenceOptions {
            after: ms(between(&mut options, 100, 2_000)),
            asks: options.chance(0.8),
            ..SilenceOptions::default()
        });
        host.mechanisms.own_data = options.chance(0.7);
    }
    let mut other = one.clone();
    for index in 0..if has_identities { 2 } else { 1 } {
        if index == 0 || rng.chance(0.5) {
            (one.links[index].forward.outages, other.links[index].forward.outages) = any_two_outages(rng);
            other.links[index].backward.outages = other.links[index].forward.outages.clone();
        }
    }
    (one, other)
}

/// Random worlds, links, mechanisms and outages; the copy is taken at a random time, mostly shortly before the first difference.
// Claim: A copy of a world that continues with other outages reports the same packets, drops, events, samples, figures and end as
// a world with those outages from the start, and the original is not changed by it: random links (all outage policies, jitter,
// losses, CoDel, late forwarding), schedules of outages, mechanisms, stacks and identities.
// Tests: `fork::worlds_that_differ_in_later_outages_are_copied`, `fork::lost_frames_do_not_depend_on_the_end_of_an_outage`,
// `fork::a_warning_longer_than_the_connected_time_comes_when_the_link_is_up`,
// `timeline::tests::schedules_differ_from_the_first_change_on_that_they_do_not_share`,
// `timeline::tests::it_notes_until_when_connectivity_was_asked_for`
#[test]
fn a_run_from_a_copy_is_the_run_from_the_start() {
    let (mut copied, mut refused) = (0, 0);
    for case in 0..250 {
        let mut rng = Rng::split(case, "copies of worlds");
        let (one, other) = any_two_worlds(&mut rng);
        let Ok(mut world) = World::new(one.clone()) else { continue };
        let alone = World::new(other.clone()).expect("but for the outages, the same");
        let until = one.shared_until(&other).expect("they differ in outages only").min(one.time_limit);
        let ahead = ms(if rng.chance(0.8) { between(&mut rng, 1, 300) } else { between(&mut rng, 1, 5_000) });
        let mut log = Log::default();
        if world.run_to(Instant::from_nanos(until.as_nanos().saturating_sub(ahead.as_nanos())), &mut log).is_some() {
            continue;
        }
        let Some(copy) = world.fork(&other) else {
            refused += 1;
            continue;
        };
        copied += 1;
        let what = format!("case {case}, copied at {}", world.now());
        assert_same(&what, &run_from(copy, log.clone()), &run_from(alone, Log::default()));
        // The copy shares nothing with what it was taken from.
        let again = run_from(World::new(one).unwrap(), Log::default());
        assert_same(&format!("{what}: the original"), &run_from(world, log), &again);
    }
    assert!(copied >= 80 && refused >= 10, "{copied} copied, {refused} refused");
}
