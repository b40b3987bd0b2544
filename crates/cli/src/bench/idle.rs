//! `tcp-idle`: the memory of an established connection that is idle.

use holdover_base::Instant;
use holdover_tcp::{Endpoint, EndpointConfig, Profile};

use super::heap;

/// Establishes 100,000 connections between two endpoints, lets each carry a request and an answer, and returns the bytes of
/// memory that one side of one connection holds: the connection and the endpoint's tables.
pub(super) fn bytes_per_connection() -> u64 {
    const CONNECTIONS: usize = 100_000;
    const PORTS: usize = 10;
    let before = heap::in_use();
    let config = std::sync::Arc::new(Profile::Linux6Cubic.config());
    let address = |text: &str| text.parse().expect("a literal address");
    let endpoint = |ip: &str| Endpoint::new(EndpointConfig { addresses: vec![address(ip)], secret: [7; 16] });
    let (mut client, mut server) = (endpoint("10.0.0.1"), endpoint("10.0.0.2"));
    let now = Instant::from_millis(1);
    for port in 0..PORTS {
        server.listen(80 + port as u16, config.clone(), CONNECTIONS).expect("a free port");
    }
    for n in 0..CONNECTIONS {
        let remote = core::net::SocketAddr::new(address("10.0.0.2"), 80 + (n % PORTS) as u16);
        let id = client.connect(now, config.clone(), None, remote).expect("a free port");
        exchange(now, &mut client, &mut server);
        for (side, other) in [(true, false), (false, true)] {
            let _ = other;
            let endpoint = if side { &mut client } else { &mut server };
            if let Some(connection) = endpoint.connection_mut(id) {
                connection.write(now, bytes::Bytes::from_static(&[0; 100]));
            }
            exchange(now, &mut client, &mut server);
        }
    }
    let held = heap::in_use().saturating_sub(before);
    assert_eq!(client.connections().count(), CONNECTIONS, "every connection stands");
    held / (2 * CONNECTIONS as u64)
}

fn exchange(now: Instant, client: &mut Endpoint, server: &mut Endpoint) {
    loop {
        let mut quiet = true;
        while let Some(out) = client.poll_transmit(now) {
            server.handle_packet(now, &out.packet);
            quiet = false;
        }
        while let Some(out) = server.poll_transmit(now) {
            client.handle_packet(now, &out.packet);
            quiet = false;
        }
        for endpoint in [&mut *client, &mut *server] {
            while let Some((id, _)) = endpoint.poll_event() {
                if let Some(connection) = endpoint.connection_mut(id) {
                    while connection.read(now).is_some() {}
                }
            }
        }
        if quiet {
            return;
        }
    }
}
