//! Conservation of packets: every packet that enters a medium is delivered, is dropped with a cause, or is still in flight.

use holdover_link::{Loss, Statistics};
use holdover_sim::{Attachment, Dropped, LinkId, Medium, Movement, Registration, Repeat, Transit, World, WorldConfig};

use crate::support::*;

fn out_and_in(log: &Log, medium: Medium) -> (u64, u64) {
    let count = |direction| {
        log.packets
            .iter()
            .filter(|(place, _)| place.medium == medium && place.transit == direction)
            .map(|(_, count)| count)
            .sum::<u64>()
    };
    (count(Transit::Out), count(Transit::In))
}

fn dropped_on(log: &Log, medium: Medium) -> u64 {
    log.drops.iter().filter(|(_, why)| matches!(why, Dropped::Lost(on, _) if *on == medium)).count() as u64
}

fn balance(statistics: &Statistics) {
    assert_eq!(
        statistics.offered.packets + statistics.duplicated.packets,
        statistics.delivered.packets + statistics.dropped.total().packets + statistics.under_way,
        "{statistics:?}"
    );
}

fn check(config: WorldConfig) -> World {
    let mut log = Log::default();
    let mut world = World::new(config.clone()).expect("a valid world");
    world.run(&mut log);
    for index in 0..config.links.len() as u32 {
        let directions = world.link_statistics(LinkId(index)).unwrap();
        directions.iter().for_each(balance);
        let sum = |of: fn(&Statistics) -> u64| directions.iter().map(of).sum::<u64>();
        let medium = Medium::Link(LinkId(index));
        let offered = sum(|s| s.offered.packets);
        assert_eq!(out_and_in(&log, medium), (offered, sum(|s| s.delivered.packets)));
        assert_eq!(dropped_on(&log, medium), sum(|s| s.dropped.total().packets));
    }
    for index in 0..config.cells.len() as u32 {
        let cell = holdover_sim::CellId(index);
        let statistics = world.cell_statistics(cell).unwrap();
        for direction in [statistics.down, statistics.up] {
            // Frames handed back have left the cell, too.
            let rest = direction.offered.packets + direction.duplicated.packets
                - direction.delivered.packets
                - direction.dropped.total().packets
                - direction.under_way;
            assert!(rest <= statistics.handed_back, "{statistics:?}");
        }
        let medium = Medium::Cell(cell);
        let (entered, came_out) = out_and_in(&log, medium);
        assert_eq!(entered, statistics.down.offered.packets + statistics.up.offered.packets);
        assert_eq!(came_out, statistics.down.delivered.packets + statistics.up.delivered.packets);
        let dropped = statistics.down.dropped.total().packets + statistics.up.dropped.total().packets;
        assert_eq!(dropped_on(&log, medium), dropped);
    }
    world
}

// Claim: Every packet that enters a link or a cell leaves it, is dropped with a cause, is handed back, or is still in flight.
// Tests: `conservation::in_cells_with_handoffs`
#[test]
fn on_links_with_losses_duplicates_and_reordering() {
    let mut wire = wire(2_000, ms(20), 15);
    wire.loss = Loss::Independent(0.03);
    wire.duplicate = 0.02;
    wire.corrupt = 0.01;
    let flows =
        vec![flow("a", 0, 1, bulk_bytes(500_000)), flow("b", 1, 0, bulk_bytes(500_000)), flow("n", 0, 1, bursts())];
    // The run ends in the middle, so that packets are in flight.
    let world = check(pair(wire, flows, ms(3_210)));
    assert!(world.holdings().packets > 0);
}

#[test]
fn in_cells_with_handoffs() {
    for attachment in [Attachment::HandoffTime(ms(200)), Attachment::Registration(Registration::through(GATEWAY))] {
        let path = holdover_sim::Path { repeat: Repeat::BackAndForth, ..line(&[30.0, 50.0], 5.0, 0) };
        let mut config = cellular(Movement::Path(path), attachment);
        config.cells[0].cell.leave_policy = holdover_link::cell::LeavePolicy::HandBack;
        config.flows = vec![
            flow("down", FIXED, MOBILE, bulk_for(secs(20))),
            flow("up", MOBILE, FIXED, bulk_for(secs(20))),
            flow("noise", FIXED, NEIGHBOUR, bursts()),
        ];
        config.time_limit = at_ms(15_432);
        check(config);
    }
}

#[test]
fn streams_arrive_exact_over_any_path() {
    let path = holdover_sim::Path { repeat: Repeat::BackAndForth, ..line(&[30.0, 50.0], 5.0, 0) };
    let mut config = cellular(Movement::Path(path), Attachment::Registration(Registration::through(GATEWAY)));
    config.links[0].forward.loss = Loss::Independent(0.02);
    config.flows =
        vec![flow("down", FIXED, MOBILE, bulk_bytes(777_777)), flow("web", MOBILE, FIXED, exchanges(30, ms(50)))];
    config.time_limit = holdover_base::Instant::from_secs(300);
    let world = check(config);
    let report = world.report();
    assert_eq!(report[0].bytes_received, 777_777);
    assert_eq!(report[1].bytes_received, 30 * 5_300);
    assert_eq!(report[1].exchanges.len(), 30);
}
