//! Moves of hosts with an identity that have both addresses for a while (make before break): what mechanisms hear, what TCP repeats, and how
//! soon new data arrives.

use holdover_base::Duration;
use holdover_link::{Outage, Outages};
use holdover_mobility::retransmission_trigger::RetransmissionTriggerConfig;
use holdover_mobility::{LinkEvent, Mechanisms};
use holdover_sim::{
    Addresses, FlowConfig, FlowReport, FlowStatus, HostMechanisms, LinkBetween, NoObserver, World, WorldConfig,
};
use holdover_tcp::{Profile, Reason};

use crate::identity::{MOBILE, SERVER, moving, with_identities};
use crate::support::*;

/// When the new link comes up. The round trip takes 100 ms over either link.
const MOVE_MS: u64 = 5_000;
const NEVER: u64 = 2_000_000;
const MOVED: LinkEvent = LinkEvent::Up { symmetric: true, moved: true };
/// The most bytes in flight of [`limited`]: less than the path takes, so that nothing is lost or overtaken but by the move.
const WINDOW: u32 = 60_000;
/// In full segments.
const SEGMENTS: u32 = WINDOW / 1_400;

/// Of a world in which the old link goes down at a time in ms.
type Build = fn(u64, FlowConfig) -> WorldConfig;

fn down(down_ms: u64, up_ms: u64) -> Outages {
    Outages::List(vec![Outage { down: at_ms(down_ms), up: at_ms(up_ms) }])
}

/// The mobile host's preferred link comes up at [`MOVE_MS`], and the other one goes down at `goes_ms`.
fn world(goes_ms: u64, flow: FlowConfig) -> WorldConfig {
    let mut config = with_identities(moving(100, 3_000, vec![flow]));
    config.links[0].forward.outages = down(0, MOVE_MS);
    config.links[1].forward.outages = down(goes_ms, NEVER);
    config
}

/// The same, and the server does what the mobile host does.
fn world_of_two(goes_ms: u64, flow: FlowConfig) -> WorldConfig {
    let mut config = world(goes_ms, flow);
    config.links.truncate(2);
    for index in 0..2 {
        let twin = config.links[index].clone();
        config.links.push(LinkBetween { name: format!("{} of the server", twin.name), a: SERVER, ..twin });
    }
    config.addressing[1].addresses = Addresses::PerLink;
    config
}

/// Requests of the mobile host and their answers, or of the server.
fn interactive() -> [FlowConfig; 2] {
    [flow("up", 0, 2, exchanges(60, ms(20))), flow("down", 2, 0, exchanges(60, ms(20)))]
}

/// Bulk transfers that no queue limits.
fn limited() -> [FlowConfig; 2] {
    let mut config = Profile::Linux6Cubic.config();
    config.send.buffer_bytes = WINDOW;
    [("up", 0, 2), ("down", 2, 0)]
        .map(|(name, from, to)| with_stack(flow(name, from, to, bulk_for(secs(9))), config.clone()))
}

/// What the mechanisms of the mobile host and of the server hear of the move: without the beginning of the association.
fn heard(config: &WorldConfig) -> [Vec<(u64, LinkEvent)>; 2] {
    let mut world = World::new(config.clone()).unwrap();
    let notes = [Notes::default(), Notes::default()];
    for (node, notes) in [MOBILE, SERVER].into_iter().zip(&notes) {
        assert!(world.edit_chain(node, |chain| *chain = notes.chain()));
    }
    world.run(&mut NoObserver);
    notes.map(|notes| notes.heard().into_iter().filter(|(at, _)| *at > 1_000).collect())
}

fn run(config: WorldConfig) -> FlowReport {
    let mut world = World::new(config).unwrap();
    world.run(&mut NoObserver);
    let report = world.report().remove(0);
    assert_eq!(report.status, FlowStatus::Completed);
    report
}

/// With the retransmission trigger at both hosts.
fn run_triggered(mut config: WorldConfig) -> FlowReport {
    let retransmission_trigger = Some(RetransmissionTriggerConfig::default());
    let of = |node| {
        let mechanisms = Mechanisms { retransmission_trigger, ..Mechanisms::default() };
        HostMechanisms { node, mechanisms, foresight: None }
    };
    config.mechanisms = vec![of(MOBILE), of(SERVER)];
    run(config)
}

/// Segments that both hosts have sent again.
fn repeated(report: &FlowReport) -> u32 {
    const REASONS: [Reason; 5] =
        [Reason::Timeout, Reason::FastRetransmit, Reason::LossRecovery, Reason::LossProbe, Reason::Requested];
    let ends = [&report.sender, &report.receiver].into_iter().flatten();
    ends.map(|counters| REASONS.iter().map(|&reason| counters.sent(reason)).sum::<u32>()).sum()
}

fn assert_moved(heard: &[(u64, LinkEvent)], first_ms: u64) {
    assert!(heard.first().is_some_and(|(at, _)| (first_ms..first_ms + 5).contains(at)), "{heard:?}");
    assert!(heard.len() <= 2 && heard.iter().all(|(_, event)| *event == MOVED), "{heard:?}");
}

/// The old path goes a second later, or never; the mobile host moves alone, or both hosts do.
// Claim: In a make before break, also of both hosts at once, mechanisms hear nothing, nothing is repeated, and no answer takes longer;
// nor when the old path goes a second later.
#[test]
fn nothing_is_repeated_while_both_paths_work() {
    let builds: [(Build, usize); 2] = [(world, 1), (world_of_two, 2)];
    for goes_ms in [MOVE_MS + 1_000, NEVER - 1] {
        for (build, moves) in builds {
            for flow in interactive() {
                let name = format!("{}, {moves} hosts, old path until {goes_ms} ms", flow.name);
                let config = build(goes_ms, flow);
                assert_eq!(heard(&config), [Vec::new(), Vec::new()], "{name}");
                for report in [run(config.clone()), run_triggered(config)] {
                    assert_eq!(repeated(&report), 0, "{name}");
                    let longest = report.exchanges.iter().max().expect("exchanges").as_millis();
                    assert!(longest < 150, "{name}: {longest} ms");
                    let times = &report.readdressings;
                    assert!(times.len() == moves && times.iter().all(|it| *it < ms(160)), "{name}: {times:?}");
                }
            }
        }
    }
}

/// The old path goes at once: what was on its way there is lost. Both hosts hear it, and new data arrives before a retransmission timer
/// expires.
// Claim: If the old path goes with the arrival of the new one, or 100 ms later, both hosts' mechanisms hear of a move; new data arrives
// within 250 ms with the trigger, and at most three windows are sent again.
// Tests: `identity_overlap::an_old_path_that_goes_during_the_readdressing_is_a_loss`,
// `identity_overlap::a_break_before_make_is_a_loss`
#[test]
fn an_old_path_that_goes_at_once_is_a_loss() {
    for flow in limited() {
        let config = world(MOVE_MS, flow);
        let [mobile, server] = heard(&config);
        assert_moved(&mobile, 5_100);
        assert_moved(&server, 5_050);
        assert_soon(&run_triggered(config), Duration::ZERO);
    }
}

#[test]
fn an_old_path_that_goes_during_the_readdressing_is_a_loss() {
    for flow in limited() {
        let config = world(MOVE_MS + 100, flow.clone());
        let [mobile, server] = heard(&config);
        assert_moved(&mobile, 5_100);
        assert_moved(&server, 5_150);
        assert_soon(&run_triggered(config), Duration::ZERO);
        // Both hosts: each has the other's announcement before the old paths go.
        let config = world_of_two(MOVE_MS + 100, flow);
        heard(&config).iter().for_each(|heard| assert_moved(heard, 5_100));
        assert_soon(&run_triggered(config), Duration::ZERO);
    }
}

#[test]
fn a_break_before_make_is_a_loss() {
    for flow in limited() {
        let config = world(MOVE_MS - 100, flow);
        let [mobile, server] = heard(&config);
        assert_eq!(mobile.first(), Some(&(4_900, LinkEvent::Down)));
        assert_moved(&mobile[1..], 5_100);
        assert_moved(&server, 5_050);
        assert_soon(&run_triggered(config), ms(100));
    }
}

/// The longest pause of a bulk transfer, besides the time without a link, and what was sent again.
fn assert_soon(report: &FlowReport, gap: Duration) {
    let pause = report.longest_pause.expect("data");
    assert!(pause < ms(250) + gap, "{pause}");
    assert!(repeated(report) <= 3 * SEGMENTS, "{} segments", repeated(report));
}
