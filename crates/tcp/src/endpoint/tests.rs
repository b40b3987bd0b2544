//! Tests of the endpoint as a whole: memory, and the order of events.

use std::sync::Arc;

use super::*;
use crate::profile::Profile;

/// The memory of a host with very many connections: at most 1 KiB for each idle one, when the endpoint's tables are
/// largest. (`holdover bench tcp-idle` measures it.)
#[test]
fn an_idle_connection_costs_at_most_a_kibibyte() {
    // Vectors have just doubled; nodes of a B-tree are at least 5/11 full, and a tenth more for what joins them.
    let vector = |element: usize| 2 * element;
    let tree = |element: usize| element * 11 / 5 * 11 / 10;
    let deadlines = Endpoint::most_deadlines(1000) / 1000 * vector(size_of::<Reverse<(Instant, u32)>>());
    let tables = vector(size_of::<Entry>()) + vector(size_of::<u32>()) + tree(size_of::<(u64, u32)>());
    let total = size_of::<Connection>() + tables + deadlines;
    assert!(total <= 1024, "{total}");
}

/// A listener's application hears of a connection before anything is sent, and may speak first.
#[test]
fn events_do_not_wait_for_transmission() {
    let host = |last: u8| IpAddr::from([10, 0, 0, last]);
    let endpoint = |last| Endpoint::new(EndpointConfig { addresses: vec![host(last)], secret: [last; 16] });
    let (mut client, mut server) = (endpoint(1), endpoint(2));
    let config = Arc::new(Profile::Linux6Reno.config());
    server.listen(80, Arc::clone(&config), 1).unwrap();
    client.connect(Instant::ZERO, config, None, SocketAddr::new(host(2), 80)).unwrap();
    let syn = client.poll_transmit(Instant::ZERO).unwrap();
    server.handle_packet(Instant::ZERO, &syn.packet);
    assert_eq!(server.poll_event(), None, "half open");
    let syn_ack = server.poll_transmit(Instant::ZERO).unwrap();
    client.handle_packet(Instant::ZERO, &syn_ack.packet);
    let ack = client.poll_transmit(Instant::ZERO).unwrap();
    server.handle_packet(Instant::ZERO, &ack.packet);
    let (id, event) = server.poll_event().unwrap();
    assert_eq!(event, Event::Connected);
    assert_eq!(server.connection(id).map(Connection::state), Some(State::Established));
    assert_eq!(server.poll_event(), None, "once");
}

/// Moves packets both ways until there are none.
fn exchange(now: Instant, ends: &mut [Endpoint; 2]) {
    while ends.iter().any(Endpoint::is_transmission_due) {
        for from in 0..2 {
            while let Some(outgoing) = ends[from].poll_transmit(now) {
                ends[1 - from].handle_packet(now, &outgoing.packet);
            }
        }
    }
}

/// A receiver between its ACKs has nothing to send, and is not polled; of several connections, events come in the order of arrival.
#[test]
fn a_receiver_between_its_acks_is_settled_at_once() {
    let host = |last: u8| IpAddr::from([10, 0, 0, last]);
    let mut ends = [1, 2].map(|last| Endpoint::new(EndpointConfig { addresses: vec![host(last)], secret: [last; 16] }));
    let now = Instant::ZERO;
    let config = Arc::new(Profile::RenoBsd.config());
    ends[1].listen(80, Arc::clone(&config), 3).unwrap();
    let ids = [(); 3].map(|()| {
        let remote = SocketAddr::new(host(2), 80);
        let client = ends[0].connect(now, Arc::clone(&config), None, remote).unwrap();
        exchange(now, &mut ends);
        let (server, event) = ends[1].poll_event().unwrap();
        assert_eq!(event, Event::Connected);
        (client, server)
    });
    let send = |ends: &mut [Endpoint; 2], client| {
        ends[0].connection_mut(client).unwrap().write(now, Bytes::from_static(b"data"));
        let outgoing = ends[0].poll_transmit(now).unwrap();
        ends[1].handle_packet(now, &outgoing.packet);
    };
    send(&mut ends, ids[0].0);
    assert!(!ends[1].is_transmission_due());
    assert_eq!(ends[1].poll_event(), Some((ids[0].1, Event::Readable)));
    ends[1].assert_invariants();
    // The second connection waits to be polled when data arrives for the third.
    assert!(ends[1].connection_mut(ids[1].1).is_some());
    send(&mut ends, ids[1].0);
    send(&mut ends, ids[2].0);
    assert_eq!(ends[1].poll_event(), Some((ids[1].1, Event::Readable)));
    assert_eq!(ends[1].poll_event(), Some((ids[2].1, Event::Readable)));
}
