//! Invalid worlds, and their errors.

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_link::{ConfigError, Length};
use holdover_sim::{
    Amount, Attachment, Bulk, CellId, FlowConfig, Movement, NodeId, OnOff, Opener, Path, Prediction, Registration,
    Repeat, RequestResponse, Stop, Traffic, Visit, Visits, World, WorldConfig, WorldError,
};

use crate::support::*;

fn error(config: WorldConfig) -> WorldError {
    let checked = World::check(&config);
    let error = World::new(config).expect_err("this world cannot be");
    // As text: numbers that are not a number are not equal.
    assert_eq!(format!("{checked:?}"), format!("Err({error:?})"), "the check finds the same error");
    error
}

fn wired(change: impl FnOnce(&mut WorldConfig)) -> WorldError {
    let mut config = pair(wire(1_000, ms(1), 10), vec![flow("bulk", 0, 1, bulk_bytes(1_000))], secs(10));
    change(&mut config);
    error(config)
}

fn mobile(change: impl FnOnce(&mut WorldConfig)) -> WorldError {
    let registration = Attachment::Registration(Registration::through(GATEWAY));
    let mut config = cellular(Movement::Path(line(&[30.0, 50.0], 5.0, 0)), registration);
    config.flows = vec![flow("bulk", FIXED, MOBILE, bulk_bytes(1_000))];
    assert!(World::new(config.clone()).is_ok());
    change(&mut config);
    error(config)
}

fn with_traffic(traffic: Traffic) -> WorldError {
    wired(|config| config.flows[0].traffic = traffic)
}

// Claim: A check of a description, which makes no keys and no hosts, finds the error that building its world has.
// Tests: `errors::cells_and_base_stations`, `errors::mobile_hosts`, `identity::invalid_identities_are_refused`
#[test]
fn nodes_links_and_flows() {
    let text = |error: WorldError| error.to_string();
    assert_eq!(text(wired(|c| c.links[0].b = NodeId(7))), "link names node 7, and there are 2");
    assert_eq!(text(wired(|c| c.flows[0].to = NodeId(2))), "bulk names node 2, and there are 2");
    assert_eq!(text(wired(|c| c.links[0].b = NodeId(0))), "link link leads from client to itself");
    assert_eq!(text(wired(|c| c.flows[0].to = NodeId(0))), "flow bulk goes from client to itself");
    assert_eq!(text(wired(|c| c.nodes[1] = router("server"))), "flow bulk begins or ends at server, which is a router");
    assert_eq!(text(wired(|c| c.links.clear())), "flow bulk: no path leads from client to server");
    assert_eq!(text(wired(|c| c.nodes[1] = host("client"))), "two nodes are called client");
    let twice = |c: &mut WorldConfig| c.links.push(c.links[0].clone());
    assert_eq!(text(wired(twice)), "two links are called link");
    let twice = |c: &mut WorldConfig| c.flows.push(c.flows[0].clone());
    assert_eq!(text(wired(twice)), "two flows are called bulk");
    let late = |c: &mut WorldConfig| c.flows[0].start = Instant::from_secs(10);
    assert_eq!(
        text(wired(late)),
        "flow bulk starts at 10.000000000 s, expected a time before the end of the run at 10.000000000 s"
    );
    assert_eq!(wired(|c| c.sample_every = Some(Duration::ZERO)), WorldError::SampleInterval);
    let lossy = |c: &mut WorldConfig| c.links[0].forward.loss = holdover_link::Loss::Independent(1.5);
    assert!(matches!(wired(lossy), WorldError::Link { error: ConfigError::Probability { .. }, .. }));
}

#[test]
fn a_way_through_a_host_is_none() {
    let config = WorldConfig {
        nodes: vec![host("a"), host("between"), host("b")],
        links: vec![link("one", 0, 1, wire(1_000, ms(1), 9)), link("two", 1, 2, wire(1_000, ms(1), 9))],
        flows: vec![flow("bulk", 0, 2, bulk_bytes(1))],
        ..WorldConfig::default()
    };
    assert_eq!(error(config).to_string(), "flow bulk: no path leads from a to b");
}

#[test]
fn runs_without_an_end() {
    let endless = |c: &mut WorldConfig| {
        c.time_limit = Instant::FAR_FUTURE;
        c.flows[0].traffic = bursts();
    };
    assert_eq!(wired(endless), WorldError::NoEnd);
}

#[test]
fn too_many_flows() {
    let many = |c: &mut WorldConfig| {
        let flow = c.flows[0].clone();
        c.flows = (0..48_129).map(|n| FlowConfig { name: format!("{n}"), ..flow.clone() }).collect();
    };
    assert_eq!(wired(many), WorldError::TooManyFlows { flows: 48_129, most: 48_128 });
}

#[test]
fn traffic_without_substance() {
    let bulk = |amount| Traffic::Bulk(Bulk { amount, opener: Opener::Sender });
    let exchange = RequestResponse { request: ByteCount(1), response: ByteCount(1), think: ms(1), count: None };
    let bursts = OnOff { datagram: ByteCount(1), rate: BitRate(1), mean_on: ms(1), mean_off: ms(1), shape: 1.5 };
    for (traffic, field) in [
        (bulk(Amount::Bytes(ByteCount(0))), "the amount"),
        (bulk(Amount::For(Duration::ZERO)), "the duration"),
        (Traffic::RequestResponse(RequestResponse { request: ByteCount(0), ..exchange }), "the request"),
        (Traffic::RequestResponse(RequestResponse { response: ByteCount(0), ..exchange }), "the response"),
        (Traffic::RequestResponse(RequestResponse { count: Some(0), ..exchange }), "the count"),
        (Traffic::OnOff(OnOff { datagram: ByteCount(0), ..bursts }), "the datagram"),
        (Traffic::OnOff(OnOff { rate: BitRate(0), ..bursts }), "the rate"),
        (Traffic::OnOff(OnOff { mean_on: Duration::ZERO, ..bursts }), "mean_on"),
    ] {
        assert_eq!(with_traffic(traffic), WorldError::Zero { flow: "bulk".into(), field });
    }
    for shape in [1.0, 0.5, f64::NAN] {
        assert!(matches!(with_traffic(Traffic::OnOff(OnOff { shape, ..bursts })), WorldError::Shape { .. }));
    }
}

#[test]
fn cells_and_base_stations() {
    let text = |error: WorldError| error.to_string();
    assert_eq!(
        text(mobile(|c| c.cells[1].base = NodeId(9))),
        "the base station of cell-2 names node 9, and there are 6"
    );
    assert_eq!(
        text(mobile(|c| c.cells[1].base = NodeId(FIXED))),
        "base station of cell-2 is fixed, which is a host, expected a router"
    );
    assert_eq!(
        text(mobile(|c| c.cells[1].base = NodeId(2))),
        "cells cell-1 and cell-2 have the same base station base-1"
    );
    assert_eq!(text(mobile(|c| c.cells[1].name = "cell-1".into())), "two cells are called cell-1");
    let silent = |c: &mut WorldConfig| c.cells[0].cell.radio.frequency_hz = 0.0;
    assert!(matches!(mobile(silent), WorldError::Cell { error: ConfigError::NotPositive { .. }, .. }));
    let hasty = |c: &mut WorldConfig| {
        c.cells[0].beacons.as_mut().unwrap().interval = Length::Constant(Duration::ZERO);
    };
    assert!(matches!(mobile(hasty), WorldError::Cell { error: ConfigError::NoLength { .. }, .. }));
}

#[test]
fn mobile_hosts() {
    let text = |error: WorldError| error.to_string();
    assert_eq!(text(mobile(|c| c.mobiles[0].node = NodeId(77))), "a mobile host names node 77, and there are 6");
    assert_eq!(text(mobile(|c| c.mobiles[0].node = GATEWAY)), "gateway is a router, and only hosts move");
    assert_eq!(text(mobile(|c| c.mobiles[1].node = NodeId(MOBILE))), "mobile is described as mobile twice");
    let wired = |c: &mut WorldConfig| c.links.push(link("cable", GATEWAY.0, MOBILE, wire(1, ms(1), 1)));
    assert_eq!(text(mobile(wired)), "mobile is mobile and cannot be at the end of link cable");
    let gateway = |gateway| {
        move |c: &mut WorldConfig| c.mobiles[0].attachment = Attachment::Registration(Registration::through(gateway))
    };
    assert_eq!(text(mobile(gateway(NodeId(FIXED)))), "gateway of mobile is fixed, which is a host, expected a router");
    assert_eq!(text(mobile(gateway(NodeId(66)))), "the gateway of mobile names node 66, and there are 6");
    let severed = |c: &mut WorldConfig| {
        c.links.remove(2);
    };
    assert_eq!(text(mobile(severed)), "mobile registers with gateway, and no path leads from there to base-2 and back");
    let isolated = |c: &mut WorldConfig| {
        c.links.remove(0);
    };
    assert_eq!(text(mobile(isolated)), "flow bulk: no path leads from fixed to mobile");
    let mute = |c: &mut WorldConfig| c.cells[1].beacons = None;
    assert_eq!(text(mobile(mute)), "mobile registers with base stations, and that of cell cell-2 sends no beacons");
    let hasty = |c: &mut WorldConfig| {
        let registration = Registration { retransmit_after: Duration::ZERO, ..Registration::through(GATEWAY) };
        c.mobiles[0].attachment = Attachment::Registration(registration);
    };
    assert_eq!(mobile(hasty), WorldError::RetransmitAfter { node: "mobile".into() });
    for percent in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let change = |c: &mut WorldConfig| c.mobiles[0].prediction = Some(Prediction::Threshold { percent });
        assert!(matches!(mobile(change), WorldError::Threshold { .. }));
    }
    let blind = |c: &mut WorldConfig| {
        c.mobiles[0].movement = Movement::Script(vec![Visit { at: Instant::ZERO, cell: Some(CELL_1) }]);
        c.mobiles[0].prediction = Some(Prediction::Threshold { percent: 2.0 });
    };
    assert_eq!(mobile(blind), WorldError::NoGeometry { node: "mobile".into() });
}

#[test]
fn movements() {
    let moving = |movement: Movement| mobile(|c| c.mobiles[0].movement = movement);
    let visits = |cells: Vec<CellId>, residence, gap| {
        Movement::Visits(Visits { cells, first_residence: None, residence, gap, moves: None })
    };
    let second = Length::Constant(secs(1));
    let nowhere = |expected| WorldError::NowhereToGo { node: "mobile".into(), expected };
    assert_eq!(moving(visits(vec![], second, None)), nowhere("cell"));
    assert_eq!(moving(Movement::Script(vec![])), nowhere("visit"));
    assert_eq!(moving(Movement::Path(Path { stops: vec![], ..line(&[0.0], 1.0, 0) })), nowhere("stop"));
    let unknown = WorldError::NoSuchCell { node: "mobile".into(), cell: 5, cells: 2 };
    assert_eq!(moving(visits(vec![CELL_1, CellId(5)], second, None)), unknown);
    let visit = |at, cell| Visit { at: Instant::from_secs(at), cell };
    assert_eq!(moving(Movement::Script(vec![visit(0, Some(CellId(5)))])), unknown);
    let zero = Length::Constant(Duration::ZERO);
    for movement in [visits(vec![CELL_1], zero, None), visits(vec![CELL_1], second, Some(zero))] {
        assert!(matches!(moving(movement), WorldError::Movement { error: ConfigError::NoLength { .. }, .. }));
    }
    let script = vec![visit(1, Some(CELL_1)), visit(1, None)];
    assert_eq!(
        moving(Movement::Script(script)).to_string(),
        "mobile: visit 1 at 1.000000000 s must come after the one before it"
    );
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(moving(Movement::Path(line(&[0.0, 9.0], speed, 0))), WorldError::Speed { .. }));
    }
    for repeat in [Repeat::BackAndForth, Repeat::Around] {
        let restless = Path { repeat, ..line(&[1.0, 1.0, 1.0], 1.0, 0) };
        let error = WorldError::RestlessPath { node: "mobile".into(), round: Duration::ZERO };
        assert_eq!(moving(Movement::Path(restless)), error);
    }
    let mut nan = line(&[0.0, 9.0], 1.0, 0);
    nan.stops.push(Stop { position: holdover_link::cell::Position { x_m: f64::NAN, y_m: 0.0 }, pause: ms(0) });
    assert!(matches!(moving(Movement::Path(nan)), WorldError::Speed { .. }));
    let never = WorldError::NeverCovered { node: "mobile".into() };
    assert_eq!(moving(Movement::Path(line(&[200.0, 300.0], 1.0, 0))), never);
    assert_eq!(moving(Movement::Path(line(&[-50.0, -41.0], 1.0, 0))), never, "it stops before the edge");
    assert_eq!(moving(Movement::Script(vec![visit(0, None)])), never);
}
