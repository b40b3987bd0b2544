//! RFC 7413: data in SYNs, and the cookies that permit it. Two endpoints, whose packets the tests carry.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_tcp::{Config, Connection, ConnectionError, ConnectionId, Endpoint, EndpointConfig, Event, Reason, State};
use holdover_wire::{FastOpen, Flags, IcmpError, Packet, Segment, Unreachable};

use crate::script::plain;
use crate::world::stream;

const PORT: u16 = 80;
/// The room in a segment that data in a SYN must leave.
const HEADROOM: usize = 40;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

struct Pair {
    now: Instant,
    client: Endpoint,
    server: Endpoint,
    config: Arc<Config>,
}

impl Pair {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let endpoint = |last| Endpoint::new(EndpointConfig { addresses: vec![address(last)], secret: [last; 16] });
        let mut config = plain();
        config.fast_open.max_pending = 2;
        change(&mut config);
        let config = Arc::new(config);
        let mut server = endpoint(2);
        server.listen(PORT, Arc::clone(&config), 8).unwrap();
        Self { now: Instant::from_secs(100), client: endpoint(1), server, config }
    }

    fn open(&mut self, data: Bytes) -> (ConnectionId, usize) {
        let to = SocketAddr::new(address(2), PORT);
        self.client.connect_fast_open(self.now, Arc::clone(&self.config), None, to, data).unwrap()
    }

    /// Packets that the client sends now.
    fn client_sends(&mut self) -> Vec<Packet> {
        let now = self.now;
        core::iter::from_fn(|| self.client.poll_transmit(now)).map(|outgoing| outgoing.packet).collect()
    }

    fn server_sends(&mut self) -> Vec<Packet> {
        let now = self.now;
        core::iter::from_fn(|| self.server.poll_transmit(now)).map(|outgoing| outgoing.packet).collect()
    }

    fn server_hears(&mut self, packet: &Packet) {
        self.server.handle_packet(self.now, packet);
        self.server.assert_invariants();
    }

    fn client_hears(&mut self, packet: &Packet) {
        self.client.handle_packet(self.now, packet);
        self.client.assert_invariants();
    }

    /// Packets are exchanged until there are none.
    fn exchange(&mut self) {
        loop {
            let (up, down) = (self.client_sends(), self.server_sends());
            if up.is_empty() && down.is_empty() {
                return;
            }
            up.iter().for_each(|packet| self.server_hears(packet));
            down.iter().for_each(|packet| self.client_hears(packet));
        }
    }

    /// Afterwards the client has a cookie, and both ends' applications have released the connection.
    fn get_cookie(&mut self) {
        let (id, taken) = self.open(stream(0, 10));
        assert_eq!(taken, 0, "there is no cookie yet");
        self.exchange();
        let (accepted, _) = self.server.poll_event().unwrap();
        while self.server.poll_event().is_some() {}
        self.client.withdraw(id);
        self.server.withdraw(accepted);
    }

    /// The only segment that the client sends now.
    fn client_segment(&mut self) -> (Packet, Segment) {
        let mut sent = self.client_sends();
        assert_eq!(sent.len(), 1, "{sent:?}");
        let packet = sent.remove(0);
        let segment = packet.tcp().unwrap().clone();
        (packet, segment)
    }

    fn server_segment(&mut self) -> (Packet, Segment) {
        let mut sent = self.server_sends();
        assert_eq!(sent.len(), 1, "{sent:?}");
        let packet = sent.remove(0);
        let segment = packet.tcp().unwrap().clone();
        (packet, segment)
    }

    /// A connection that the server's application has before its handshake is complete: its SYN, and its id at the server.
    fn open_early(&mut self, data: Bytes) -> (Segment, ConnectionId) {
        self.get_cookie();
        self.open(data);
        let (packet, syn) = self.client_segment();
        self.server_hears(&packet);
        let (accepted, event) = self.server.poll_event().unwrap();
        assert_eq!(event, Event::Connected);
        (syn, accepted)
    }

    fn of_server(&mut self, id: ConnectionId) -> &mut Connection {
        self.server.connection_mut(id).unwrap()
    }

    fn of_client(&mut self, id: ConnectionId) -> &mut Connection {
        self.client.connection_mut(id).unwrap()
    }
}

fn option(segment: &Segment) -> Option<FastOpen> {
    segment.options.fast_open.as_deref().copied()
}

/// Section 4.1.1: a SYN asks for a cookie, the SYN-ACK has it.
#[test]
fn a_first_connection_asks_for_a_cookie() {
    let mut pair = Pair::new();
    let (_, taken) = pair.open(stream(0, 100));
    assert_eq!(taken, 0);
    let (packet, syn) = pair.client_segment();
    assert_eq!((option(&syn), syn.payload.len()), (Some(FastOpen::REQUEST), 0));
    pair.server_hears(&packet);
    let (_, syn_ack) = pair.server_segment();
    assert_eq!(option(&syn_ack).map(|option| option.cookie().len()), Some(8));
    assert_eq!(pair.server.poll_event(), None, "the handshake has not ended");
}

/// Section 4.2: request and answer take one round trip.
#[test]
fn the_answer_comes_with_the_syn_ack() {
    let mut pair = Pair::new();
    pair.get_cookie();
    let (id, taken) = pair.open(stream(0, 300));
    assert_eq!(taken, 300);
    let (packet, syn) = pair.client_segment();
    assert_eq!((syn.flags, syn.payload.len()), (Flags::SYN, 300));
    pair.server_hears(&packet);
    let (accepted, event) = pair.server.poll_event().unwrap();
    assert_eq!(event, Event::Connected);
    let now = pair.now;
    assert_eq!(pair.of_server(accepted).read(now), Some(stream(0, 300)));
    assert_eq!(pair.of_server(accepted).write(now, stream(0, 2_000)), 2_000);
    let answers: Vec<Packet> = pair.server_sends();
    let lens: Vec<usize> = answers.iter().map(|packet| packet.tcp().unwrap().payload.len()).collect();
    assert_eq!(lens, [0, 1000, 1000]);
    let syn_ack = answers[0].tcp().unwrap();
    assert_eq!((syn_ack.flags, syn_ack.ack - syn.seq), (Flags::SYN | Flags::ACK, 301));
    answers.iter().for_each(|packet| pair.client_hears(packet));
    assert_eq!(pair.of_client(id).readable_len(), 2_000);
    assert!(pair.of_client(id).syn_data_taken() && pair.of_server(accepted).syn_data_taken());
    pair.exchange();
    assert_eq!(pair.of_server(accepted).state(), State::Established);
    assert_eq!((pair.of_server(accepted).unacked(), pair.of_client(id).unacked()), (0, 0));
}

/// Section 4.1.2: data in the SYN is limited by the server's earlier MSS, minus options.
#[test]
fn a_syn_takes_one_segment_at_most() {
    let mut pair = Pair::new();
    pair.get_cookie();
    let (_, taken) = pair.open(stream(0, 5_000));
    assert_eq!(taken, 1000 - HEADROOM);
}

/// Section 4.2.2: an invalid cookie is replaced, and the data waits for the handshake.
#[test]
fn a_stale_cookie_is_replaced_and_the_data_sent_again_at_once() {
    let mut pair = Pair::new();
    pair.get_cookie();
    pair.server.set_fast_open_key([9; 16]);
    let (id, taken) = pair.open(stream(0, 300));
    assert_eq!(taken, 300);
    let (packet, syn) = pair.client_segment();
    pair.server_hears(&packet);
    assert_eq!(pair.server.poll_event(), None);
    let (packet, syn_ack) = pair.server_segment();
    assert_eq!(syn_ack.ack - syn.seq, 1);
    assert!(option(&syn_ack).is_some() && option(&syn_ack) != option(&syn));
    pair.client_hears(&packet);
    assert!(!pair.of_client(id).syn_data_taken());
    let (packet, again) = pair.client_segment();
    assert_eq!((again.seq - syn.seq, again.payload.len()), (1, 300), "with the handshake's ACK");
    pair.server_hears(&packet);
    let (accepted, _) = pair.server.poll_event().unwrap();
    let now = pair.now;
    assert_eq!(pair.of_server(accepted).read(now), Some(stream(0, 300)));
    // The new cookie is valid.
    pair.open(stream(0, 300));
    let packets = pair.client_sends();
    packets.iter().for_each(|packet| pair.server_hears(packet));
    assert!(
        core::iter::from_fn(|| pair.server.poll_event()).any(|(id, event)| event == Event::Connected && id != accepted)
    );
}

/// Section 4.1.3: what a middlebox may have dropped is not retransmitted.
#[test]
fn a_syn_that_was_lost_goes_again_without_data_and_option() {
    let mut pair = Pair::new();
    pair.get_cookie();
    let (id, _) = pair.open(stream(0, 300));
    pair.client_segment();
    pair.now += Duration::from_secs(1);
    pair.client.handle_timeout(pair.now);
    let (packet, syn) = pair.client_segment();
    assert_eq!((syn.flags, syn.payload.len(), option(&syn)), (Flags::SYN, 0, None));
    pair.server_hears(&packet);
    pair.exchange();
    let (accepted, _) = pair.server.poll_event().unwrap();
    let now = pair.now;
    assert_eq!(pair.of_server(accepted).read(now), Some(stream(0, 300)));
    assert_eq!(pair.of_client(id).counters().timeouts, 1);
}

/// Section 5.1: PendingFastOpenRequests. Above the limit, connections are opened as usual.
#[test]
fn so_many_connections_are_early_and_no_more() {
    let mut pair = Pair::new();
    pair.get_cookie();
    (0..3).for_each(|_| {
        pair.open(stream(0, 10));
    });
    let syns = pair.client_sends();
    syns.iter().for_each(|packet| pair.server_hears(packet));
    let connected = core::iter::from_fn(|| pair.server.poll_event()).filter(|(_, event)| *event == Event::Connected);
    assert_eq!(connected.count(), 2);
    pair.exchange();
    let connected = core::iter::from_fn(|| pair.server.poll_event()).filter(|(_, event)| *event == Event::Connected);
    assert_eq!(connected.count(), 1, "the third");
    // Their handshakes are complete: there is room again.
    pair.open(stream(0, 10));
    let (packet, _) = pair.client_segment();
    pair.server_hears(&packet);
    assert!(pair.server.poll_event().is_some_and(|(_, event)| event == Event::Connected));
}

/// An application with an early connection is notified of its end, and can read the data that arrived before.
#[test]
fn an_early_connection_that_is_reset_tells_its_application() {
    let mut pair = Pair::new();
    let (syn, accepted) = pair.open_early(stream(0, 10));
    pair.server_sends();
    let reset =
        Segment { src_port: syn.src_port, dst_port: PORT, seq: syn.seq + 11, flags: Flags::RST, ..Segment::default() };
    pair.server_hears(&Packet::new(address(1), address(2), reset));
    pair.server_sends();
    let events: Vec<Event> = core::iter::from_fn(|| pair.server.poll_event()).map(|(_, event)| event).collect();
    assert!(events.contains(&Event::Closed), "{events:?}");
    let now = pair.now;
    assert_eq!(pair.of_server(accepted).error(), Some(ConnectionError::Reset));
    assert_eq!(pair.of_server(accepted).read(now), Some(stream(0, 10)));
}

/// A client that is not at the address of its SYN gets at most a window of data, and the connection ends.
#[test]
fn without_the_handshakes_end_an_early_connection_times_out() {
    let mut pair = Pair::new();
    let (_, accepted) = pair.open_early(stream(0, 10));
    let now = pair.now;
    pair.of_server(accepted).write(now, stream(0, 100_000));
    let first: usize = pair.server_sends().iter().map(|packet| packet.tcp().unwrap().payload.len()).sum();
    assert_eq!(first, 10_000, "the initial window");
    let mut reasons = Vec::new();
    while let Some(at) = pair.server.poll_timeout() {
        pair.now = at;
        pair.server.handle_timeout(at);
        reasons.extend(core::iter::from_fn(|| pair.server.poll_transmit(at)).map(|outgoing| outgoing.reason));
        while pair.server.poll_event().is_some() {}
    }
    assert!(!reasons.is_empty() && reasons.iter().all(|reason| *reason == Reason::SynAck), "{reasons:?}");
    assert_eq!(pair.of_server(accepted).error(), Some(ConnectionError::TimedOut));
}

/// The FIN of an early connection waits for the end of the handshake.
#[test]
fn a_fin_waits_for_the_end_of_the_handshake() {
    let mut pair = Pair::new();
    let (_, accepted) = pair.open_early(stream(0, 10));
    let now = pair.now;
    pair.of_server(accepted).write(now, stream(0, 500));
    pair.of_server(accepted).shutdown_write();
    let sent = pair.server_sends();
    assert!(sent.iter().all(|packet| !packet.tcp().unwrap().flags.contains(Flags::FIN)), "{sent:?}");
    sent.iter().for_each(|packet| pair.client_hears(packet));
    pair.exchange();
    assert_eq!(pair.of_server(accepted).state(), State::FinWait2);
}

/// Both sides may be configured without cookies.
#[test]
fn both_sides_may_do_without_cookies() {
    let mut pair = Pair::with(|config| {
        config.fast_open.takes_without_cookie = true;
        config.fast_open.sends_without_cookie = true;
    });
    let (_, taken) = pair.open(stream(0, 300));
    assert_eq!(taken, 300);
    let (packet, syn) = pair.client_segment();
    assert_eq!(option(&syn), None);
    pair.server_hears(&packet);
    assert!(pair.server.poll_event().is_some());
    assert_eq!(option(&pair.server_segment().1), None);
}

/// A listener without Fast Open ignores it.
#[test]
fn a_listener_without_fast_open_ignores_option_and_data() {
    let mut pair = Pair::with(|config| {
        config.fast_open.max_pending = 0;
        config.fast_open.sends_without_cookie = true;
    });
    pair.open(stream(0, 300));
    let (packet, syn) = pair.client_segment();
    pair.server_hears(&packet);
    let (_, syn_ack) = pair.server_segment();
    assert_eq!((syn_ack.ack - syn.seq, option(&syn_ack)), (1, None));
}

/// Without Fast Open, too: a duplicated SYN with data is answered twice, and does no harm.
#[test]
fn a_syn_with_data_that_comes_twice_is_answered_twice() {
    let mut pair = Pair::with(|config| {
        config.fast_open.max_pending = 0;
        config.fast_open.sends_without_cookie = true;
    });
    pair.open(stream(0, 300));
    let (packet, _) = pair.client_segment();
    pair.server_hears(&packet);
    let (_, first) = pair.server_segment();
    pair.server_hears(&packet);
    let (answer, second) = pair.server_segment();
    assert_eq!((first.seq, first.ack), (second.seq, second.ack));
    pair.client_hears(&answer);
    pair.exchange();
    let (accepted, _) = pair.server.poll_event().unwrap();
    let now = pair.now;
    assert_eq!(pair.of_server(accepted).read(now), Some(stream(0, 300)));
}

/// A SYN that was too long for the path is retransmitted at once, without data.
#[test]
fn a_syn_with_data_that_is_too_long_for_the_path_goes_without() {
    let mut pair = Pair::new();
    pair.get_cookie();
    pair.open(stream(0, 900));
    let (packet, syn) = pair.client_segment();
    let error = IcmpError::quoting_packet(Unreachable::PacketTooBig { mtu: 600 }, &packet).unwrap();
    pair.client_hears(&Packet::new(address(9), address(1), error));
    let (packet, again) = pair.client_segment();
    assert_eq!((again.flags, again.seq, again.payload.len()), (Flags::SYN, syn.seq, 0));
    assert_eq!((again.options.mss, option(&again)), (Some(560), None));
    pair.server_hears(&packet);
    pair.exchange();
    let (accepted, _) = pair.server.poll_event().unwrap();
    let now = pair.now;
    let read: Vec<u8> = core::iter::from_fn(|| pair.of_server(accepted).read(now)).flatten().collect();
    assert_eq!(read, stream(0, 900));
}
