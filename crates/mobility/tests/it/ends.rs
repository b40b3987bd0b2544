//! Two TCP endpoints with mechanisms; the test delivers the packets between them.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_mobility::{Chain, Direction, LinkEvent, Mechanisms, Verdict};
use holdover_tcp::{Config, Connection, ConnectionId, Endpoint, EndpointConfig, State};
use holdover_wire::{Packet, Segment};

/// One end.
pub(crate) struct End {
    pub(crate) address: IpAddr,
    pub(crate) endpoint: Endpoint,
    pub(crate) chain: Chain,
}

/// A client that has connected to a server.
pub(crate) struct Ends {
    pub(crate) now: Instant,
    pub(crate) client: End,
    pub(crate) server: End,
}

const PORT: u16 = 80;

impl End {
    fn new(last: u8, mechanisms: &Mechanisms) -> Self {
        let address = IpAddr::from([10, 0, 0, last]);
        let endpoint = Endpoint::new(EndpointConfig { addresses: vec![address], secret: [last; 16] });
        Self { address, endpoint, chain: mechanisms.chain() }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.endpoint.connections().next().expect("a connection").0
    }

    pub(crate) fn tcp(&mut self) -> &mut Connection {
        let id = self.id();
        self.endpoint.connection_mut(id).expect("a connection")
    }

    /// The packets that it sends now.
    pub(crate) fn sends(&mut self, now: Instant) -> Vec<Packet> {
        let mut sent = Vec::new();
        while let Some(out) = self.endpoint.poll_transmit(now) {
            let mut packet = out.packet;
            assert_eq!(self.chain.handle_packet(now, Direction::Outgoing, &mut packet), Verdict::Pass);
            // Emitted and parsed, as on a wire.
            sent.push(Packet::parse(packet.emit().expect("it can be sent")).expect("it can be read"));
            while let Some(injected) = self.chain.poll_transmit() {
                sent.push(Packet::parse(injected.packet.emit().expect("it can be sent")).expect("it can be read"));
            }
        }
        sent
    }

    pub(crate) fn takes(&mut self, now: Instant, packets: Vec<Packet>) {
        for mut packet in packets {
            if self.chain.handle_packet(now, Direction::Incoming, &mut packet) == Verdict::Pass {
                self.endpoint.handle_packet(now, &packet);
                self.chain.steer(now, &mut self.endpoint);
            }
        }
    }

    pub(crate) fn hears(&mut self, now: Instant, event: LinkEvent) {
        self.chain.handle_link(now, event);
        self.chain.steer(now, &mut self.endpoint);
    }

    /// The actions of the mechanisms.
    pub(crate) fn actions(&mut self) -> Vec<&'static str> {
        core::iter::from_fn(|| self.chain.poll_action()).map(|action| action.what).collect()
    }

    pub(crate) fn writes(&mut self, now: Instant, segments: usize) {
        let bytes = Bytes::from(vec![1; segments * self.tcp().snd_mss() as usize]);
        assert_eq!(self.tcp().write(now, bytes.clone()), bytes.len());
    }
}

impl Ends {
    /// Both with `config`. The round trip is 100 ms, which both TCPs have measured on some segments in each direction.
    pub(crate) fn new(config: Config, client: &Mechanisms, server: &Mechanisms) -> Self {
        let config = Arc::new(config);
        let mut ends = Self { now: Instant::from_secs(10), client: End::new(1, client), server: End::new(2, server) };
        ends.server.endpoint.listen(PORT, Arc::clone(&config), 10).expect("a listener");
        let remote = SocketAddr::new(ends.server.address, PORT);
        ends.client.endpoint.connect(ends.now, config, None, remote).expect("a connection");
        ends.exchange();
        for _ in 0..4 {
            ends.client.writes(ends.now, 10);
            ends.server.writes(ends.now, 10);
            ends.exchange();
        }
        for end in [&mut ends.client, &mut ends.server] {
            end.tcp().set_cwnd(10);
        }
        assert_eq!((ends.client.tcp().state(), ends.client.tcp().unacked()), (State::Established, 0));
        ends
    }

    /// Delivers packets until neither end has any to send.
    pub(crate) fn exchange(&mut self) {
        // Longer than the delay of any ACK, and shorter than the time after which a window decays.
        let mut quiet = 0;
        while quiet < 4 {
            let out = self.client.sends(self.now);
            let back = self.server.sends(self.now);
            quiet = if out.is_empty() && back.is_empty() { quiet + 1 } else { 0 };
            self.pass(Duration::from_millis(50));
            self.server.takes(self.now, out);
            self.client.takes(self.now, back);
        }
    }

    /// Advances the time, with all timers.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        for end in [&mut self.client, &mut self.server] {
            while let Some(at) = end.endpoint.poll_timeout().filter(|at| *at <= until) {
                end.endpoint.handle_timeout(at);
                if end.endpoint.poll_timeout() == Some(at) {
                    break;
                }
            }
            if end.chain.poll_timeout().is_some_and(|at| at <= until) {
                end.chain.handle_timeout(until);
                end.chain.steer(until, &mut end.endpoint);
            }
            let id = end.endpoint.connections().next().map(|(id, _)| id);
            if let Some(tcp) = id.and_then(|id| end.endpoint.connection_mut(id)) {
                while tcp.read(until).is_some() {}
            }
        }
        self.now = until;
    }

    /// Cuts the path for `time`: packets sent then are lost.
    pub(crate) fn cut(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.client.sends(self.now);
            self.server.sends(self.now);
            self.pass(Duration::from_millis(10));
        }
        self.client.sends(self.now);
        self.server.sends(self.now);
    }
}

pub(crate) fn segments(packets: &[Packet]) -> Vec<Segment> {
    packets.iter().map(|packet| packet.tcp().expect("a segment").clone()).collect()
}
