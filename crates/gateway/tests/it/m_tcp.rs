//! Split connections and M-TCP, beyond scripts of single packets.

use std::sync::Arc;

use holdover_base::{BitRate, ByteCount};
use holdover_gateway::Mechanisms;
use holdover_gateway::m_tcp::MTcpConfig;
use holdover_gateway::split::SplitConfig;
use holdover_link::{Loss, Rate};
use holdover_sim::{FlowReport, FlowStatus, RequestResponse, Traffic};
use holdover_tcp::{ConnectionError, Profile};
use holdover_wire::{Compression, Flags, Seq};

use crate::script::*;
use crate::support::*;

fn split() -> SplitConfig {
    SplitConfig::with(Profile::Linux6Reno.config())
}

fn i_tcp() -> Mechanisms {
    Mechanisms { split: Some(split()), ..Mechanisms::default() }
}

fn m_tcp() -> Mechanisms {
    Mechanisms { m_tcp: Some(MTcpConfig::with(split())), ..Mechanisms::default() }
}

/// The far end has to answer first.
// Claim: A split connection is accepted after the far end has answered; one that began before the mechanism passes.
// Tests: `m_tcp::connections_older_than_the_mechanism_pass`
#[test]
fn no_connection_is_accepted_before_the_far_end_has_answered() {
    for mechanisms in [i_tcp(), m_tcp()] {
        let mut script = Script::new(&mechanisms);
        let syn = change(data(7, 0), |segment| (segment.flags, segment.ack) = (Flags::SYN, Seq::new(0)));
        let asked = script.pass(syn);
        assert_eq!(asked.len(), 1);
        assert!(asked[0].starts_with("to phone"), "{asked:?}");
        // The far end has not answered, so the SYN's retransmission has no ACK.
        assert_eq!(
            script.pass(change(data(7, 0), |segment| (segment.flags, segment.ack) = (Flags::SYN, Seq::new(0)))),
            [] as [&str; 0]
        );
    }
}

#[test]
fn connections_older_than_the_mechanism_pass() {
    let mut script = Script::new(&m_tcp());
    assert_eq!(script.pass(data(100, 100)), ["to phone 100:200"]);
    assert_eq!(script.pass(ack(200, 500)), ["to fixed ack 200 win 500"]);
}

/// I-TCP acknowledges data that it has received, M-TCP does not: these are bytes that a sender takes for delivered when
/// the mobile host never returns.
// Claim: If the mobile host never returns, M-TCP has acknowledged only received data; I-TCP has acknowledged more.
#[test]
fn m_tcp_acknowledges_end_to_end_and_i_tcp_does_not() {
    let believed = |mechanisms: Mechanisms| {
        let mut world = world(Profile::Linux6Reno, 3_000_000, &[(4_000, 800_000)]);
        world.time_limit = at_ms(60_000);
        let report = run(with(world, mechanisms));
        let acked = report.sender.expect("a sender").bytes_acked.0;
        // The sender's count includes the SYN.
        (acked.saturating_sub(1), report.bytes_received)
    };
    let (acked, received) = believed(i_tcp());
    assert!(acked > received + 50_000, "{acked} acknowledged, {received} received");
    let (acked, received) = believed(m_tcp());
    assert!(acked <= received, "{acked} acknowledged, {received} received");
}

/// The fixed host's connection survives an outage in which its own TCP would give up (`R2`, here 15 retransmissions).
// Claim: With M-TCP a transfer of `reno-bsd` survives an outage of 1,596 s, in which it fails without.
#[test]
fn a_choked_sender_outlives_what_kills_a_plain_one() {
    let outage = [(4_000, 1_600_000)];
    let lasting = |mechanisms: Option<Mechanisms>| {
        let mut world = world(Profile::RenoBsd, 1_500_000, &outage);
        world.time_limit = at_ms(1_700_000);
        run(match mechanisms {
            Some(mechanisms) => with(world, mechanisms),
            None => world,
        })
    };
    assert_eq!(lasting(None).status, FlowStatus::Failed(ConnectionError::TimedOut));
    assert_eq!(lasting(Some(m_tcp())).status, FlowStatus::Completed);
}

/// The last byte of each answer is held back without delaying either end: neither retransmits.
// Claim: M-TCP delays no request by a tenth, and its held byte causes no retransmission; transfers of more than 2 GiB complete,
// and so do transfers with losses of 5 % in the fixed network with the paper's link and outages.
// Tests: `m_tcp::more_than_two_gibibytes_go_through`, `m_tcp::losses_in_the_fixed_network_do_not_stop_it`
#[test]
fn requests_and_answers_are_not_slowed_down() {
    let exchanges = |mechanisms: Option<Mechanisms>| {
        let mut world = world(Profile::Linux6Cubic, 1, &[]);
        world.flows[0].traffic = Traffic::RequestResponse(RequestResponse {
            request: ByteCount(300),
            response: ByteCount(40_000),
            think: ms(500),
            count: Some(20),
        });
        (world.flows[0].from, world.flows[0].to) = (MOBILE, SERVER);
        run(match mechanisms {
            Some(mechanisms) => with(world, mechanisms),
            None => world,
        })
    };
    let mean = |report: &FlowReport| report.exchanges.iter().map(|took| took.as_micros()).sum::<u64>() / 20;
    let (plain, m_tcp) = (exchanges(None), exchanges(Some(m_tcp())));
    assert!(mean(&m_tcp) < mean(&plain) * 11 / 10, "{} us, plain {} us", mean(&m_tcp), mean(&plain));
    for counters in [m_tcp.sender, m_tcp.receiver].into_iter().flatten() {
        assert_eq!((counters.timeouts, counters.bytes_retransmitted.0), (0, 0));
    }
}

/// More than half of the sequence space: numbers wrap, and the ACK point advances.
#[test]
fn more_than_two_gibibytes_go_through() {
    let mut profile = Profile::Linux6Reno.config();
    profile.mss = 60_000;
    let mut config = world(Profile::Linux6Reno, 2_500_000_000, &[]);
    for link in &mut config.links {
        for direction in [&mut link.forward, &mut link.backward] {
            direction.rate = Rate::Fixed(BitRate::from_kbps(20_000_000));
            direction.delay = ms(1);
            direction.queue_limit = holdover_link::QueueLimit::Unlimited;
        }
    }
    let stack = Arc::new(profile.clone());
    (config.flows[0].sender, config.flows[0].receiver) = (stack.clone(), stack);
    let m_tcp = Mechanisms { m_tcp: Some(MTcpConfig::with(SplitConfig::with(profile))), ..Mechanisms::default() };
    let report = run(with(config, m_tcp));
    assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 2_500_000_000));
}

/// Losses between the fixed host and the supervisor host, of data and of ACKs, while the mobile host on its slow link leaves and returns:
/// every transfer ends.
#[test]
fn losses_in_the_fixed_network_do_not_stop_it() {
    for (profile, pulls_back) in [(Profile::RenoBsd, true), (Profile::RenoBsd, false), (Profile::Linux6Cubic, false)] {
        for seed in 0..20 {
            let outages: Vec<(u64, u64)> = (0..60).map(|at| (5_000 + at * 7_500, 7_500 + at * 7_500)).collect();
            let mut stack = profile.config();
            stack.mss = 512;
            let m_tcp = MTcpConfig { pulls_back, ..MTcpConfig::with(SplitConfig::with(stack.clone())) };
            let mut config =
                with(world(profile, 400_000, &outages), Mechanisms { m_tcp: Some(m_tcp), ..Mechanisms::default() });
            config.seed = seed;
            config.gateways[0].hears_links = false;
            let stack = Arc::new(stack);
            (config.flows[0].sender, config.flows[0].receiver) = (Arc::clone(&stack), stack);
            let [radio, wire] = &mut config.links[..] else { panic!("two links") };
            (wire.forward.loss, wire.backward.loss) = (Loss::Independent(0.05), Loss::Independent(0.05));
            (wire.forward.delay, wire.backward.delay) = (ms(40), ms(40));
            (radio.forward.rate, radio.backward.rate) =
                (Rate::Fixed(BitRate::from_kbps(32)), Rate::Fixed(BitRate::from_kbps(8)));
            let report = run(config);
            assert_eq!(report.status, FlowStatus::Completed, "{profile}, {pulls_back}, seed {seed}");
        }
    }
}

/// The bandwidth module: packets for a mobile host leave at its rate, its connections share that rate, and the queue of a slightly faster
/// link stays empty; without the module it overflows.
// Claim: M-TCP's bandwidth module keeps to its rate, shares it equally, and keeps the queue of the link empty.
#[test]
fn the_bandwidth_module_shares_a_rate_and_leaves_queues_empty() {
    let transfers = |bandwidth| {
        let m_tcp = Some(MTcpConfig { bandwidth, ..MTcpConfig::with(split()) });
        let mut config =
            with(world(Profile::Linux6Reno, 2_000_000, &[]), Mechanisms { m_tcp, ..Mechanisms::default() });
        config.links[0].forward.queue_limit = holdover_link::QueueLimit::Packets(8);
        let other = holdover_sim::FlowConfig { name: "other".into(), ..config.flows[0].clone() };
        config.flows.push(other);
        let mut world = holdover_sim::World::new(config).expect("a world");
        world.run(&mut holdover_sim::NoObserver);
        let reports = world.report();
        assert!(reports.iter().all(|report| report.status == FlowStatus::Completed));
        let [down, _] = world.link_statistics(holdover_sim::LinkId(0)).expect("the radio");
        (reports.iter().map(FlowReport::goodput_bps).collect::<Vec<_>>(), down.dropped.total().packets)
    };
    let (_, dropped) = transfers(None);
    assert!(dropped > 0, "without it the queue overflows");
    let (goodput_bps, dropped) = transfers(Some(BitRate::from_kbps(1_800)));
    assert_eq!(dropped, 0);
    let (least, most) = (goodput_bps[0].min(goodput_bps[1]), goodput_bps[0].max(goodput_bps[1]));
    assert!(most / least < 1.02, "{goodput_bps:?}");
    // Headers take their share of the rate.
    assert!((0.9..=1.0).contains(&((least + most) / 1.8e6)), "{goodput_bps:?}");
}

/// Section 6.3: a link of 2 Mbit/s carries 40 % of the data, and the headers. The bandwidth module counts compressed bytes.
#[test]
fn compressed_data_takes_less_of_the_wireless_link() {
    let goodput_bps = |compression, bandwidth| {
        let m_tcp = Some(MTcpConfig { compression, bandwidth, ..MTcpConfig::with(split()) });
        run(with(world(Profile::Linux6Reno, 2_000_000, &[]), Mechanisms { m_tcp, ..Mechanisms::default() }))
            .goodput_bps()
    };
    let compression = Some(Compression { tcp: 0.4, ..Compression::default() });
    // Of 1,500 bytes 52 are headers, which are not compressed: 1,500 / (52 + 0.4 * 1,448) is 2.38.
    for bandwidth in [1_000, 1_800].map(|kbps| Some(BitRate::from_kbps(kbps))) {
        let gain = goodput_bps(compression, bandwidth) / goodput_bps(None, bandwidth);
        assert!((1.7..2.45).contains(&gain), "{gain} times with {bandwidth:?}");
    }
    // Without the module the queue overflows less.
    let (compressed, plain) = (goodput_bps(compression, None), goodput_bps(None, None));
    assert!(compressed > 1.4 * plain, "{compressed} and {plain} bit/s");
}
