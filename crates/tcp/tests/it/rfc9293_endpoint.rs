//! RFC 9293 sections 3.10.7.1 (CLOSED) and 3.10.7.2 (LISTEN), which the endpoint implements, and TIME-WAIT that is replaced by a
//! new connection.

use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_tcp::{
    ConnectError, ConnectionError, ConnectionId, Disposition, Endpoint, EndpointConfig, Event, ListenError, Reason,
    State, Timer,
};
use holdover_wire::{Flags, Packet, Payload, Segment, Seq, Timestamps};

use crate::script::plain;
use crate::world::stream;

const US: &str = "10.0.0.1";
const THEM: &str = "10.0.0.2";

/// An endpoint that listens at port 80 with a backlog of 2, and the peer as a script with absolute numbers.
struct Host {
    endpoint: Endpoint,
    now: Instant,
    sent: Vec<(Segment, Reason)>,
}

impl Host {
    fn new() -> Self {
        let config = EndpointConfig { addresses: vec![US.parse().unwrap()], secret: [7; 16] };
        let mut endpoint = Endpoint::new(config);
        endpoint.listen(80, Arc::new(plain()), 2).unwrap();
        Self { endpoint, now: Instant::from_secs(100), sent: Vec::new() }
    }

    /// Injects a segment and returns the answers.
    fn inject(&mut self, segment: Segment) -> Vec<(Segment, Reason)> {
        let packet = Packet::new(THEM.parse().unwrap(), US.parse().unwrap(), segment);
        self.endpoint.handle_packet(self.now, &packet);
        self.flush()
    }

    fn flush(&mut self) -> Vec<(Segment, Reason)> {
        let mut sent = Vec::new();
        while let Some(outgoing) = self.endpoint.poll_transmit(self.now) {
            assert_eq!((outgoing.packet.src, outgoing.packet.dst), (US.parse().unwrap(), THEM.parse().unwrap()));
            let Payload::Tcp(segment) = outgoing.packet.payload else { panic!("not TCP") };
            sent.push((segment, outgoing.reason));
        }
        self.sent.extend(sent.iter().cloned());
        sent
    }

    /// Injects a segment that must be answered by exactly one segment.
    fn answer(&mut self, segment: Segment) -> Segment {
        let shown = segment.to_string();
        let mut sent = self.inject(segment);
        assert_eq!(sent.len(), 1, "answers to {shown}: {sent:?}");
        sent.remove(0).0
    }

    fn silence(&mut self, segment: Segment) {
        let shown = segment.to_string();
        let sent = self.inject(segment);
        assert!(sent.is_empty(), "{shown} was answered by {sent:?}");
    }

    /// Completes a handshake from `port` with initial sequence number `irs`, and returns the connection and our ISS.
    fn open(&mut self, port: u16, irs: u32) -> (ConnectionId, u32) {
        let syn_ack = self.answer(from(port, Flags::SYN, irs, 0));
        assert_eq!(syn_ack.flags, Flags::SYN | Flags::ACK);
        self.silence(from(port, Flags::ACK, irs + 1, syn_ack.seq.value() + 1));
        let (id, event) = self.endpoint.poll_event().expect("the handshake is complete");
        assert_eq!(event, Event::Connected);
        (id, syn_ack.seq.value())
    }

    /// Brings a connection from `port` to TIME-WAIT: RCV.NXT is `irs` + 2.
    fn open_and_wait(&mut self, port: u16, irs: u32) -> (ConnectionId, u32) {
        let (id, iss) = self.open(port, irs);
        self.endpoint.connection_mut(id).unwrap().shutdown_write();
        assert_eq!(self.flush().len(), 1);
        self.silence(from(port, Flags::ACK, irs + 1, iss + 2));
        let last = self.answer(from(port, Flags::FIN | Flags::ACK, irs + 1, iss + 2));
        assert_eq!(last.ack, Seq::new(irs + 2));
        assert_eq!(self.endpoint.connection(id).unwrap().state(), State::TimeWait);
        while self.endpoint.poll_event().is_some() {}
        (id, iss)
    }

    fn states(&self) -> Vec<State> {
        self.endpoint.connections().map(|(_, connection)| connection.state()).collect()
    }
}

fn from(src_port: u16, flags: Flags, seq: u32, ack: u32) -> Segment {
    Segment {
        src_port,
        dst_port: 80,
        seq: Seq::new(seq),
        ack: Seq::new(ack),
        flags,
        window: 8000,
        ..Segment::default()
    }
}

fn to_closed_port(flags: Flags, seq: u32, ack: u32, len: usize) -> Segment {
    Segment { dst_port: 81, payload: stream(0, len), ..from(4000, flags, seq, ack) }
}

/// All combinations of FIN, SYN, RST, PSH, ACK and URG.
fn all_flags() -> impl Iterator<Item = Flags> {
    (0..0x40).map(Flags::from_bits_truncate)
}

#[test]
fn rfc9293_3_10_7_1_closed_a_reset_is_dropped() {
    let mut host = Host::new();
    for flags in all_flags().filter(|flags| flags.contains(Flags::RST)) {
        host.silence(to_closed_port(flags, 5000, 6000, 10));
    }
    assert_eq!(host.endpoint.strays(Disposition::NoConnection), 32);
    assert!(host.states().is_empty());
}

#[test]
fn rfc9293_3_10_7_1_closed_without_ack_the_reset_acknowledges_what_came() {
    let mut host = Host::new();
    for flags in all_flags().filter(|flags| !flags.intersects(Flags::RST | Flags::ACK)) {
        for (len, seq) in [(0, 5000), (10, 5000), (10, u32::MAX - 3)] {
            let reset = host.answer(to_closed_port(flags, seq, 0, len));
            let occupied = len as u32 + u32::from(flags.contains(Flags::SYN)) + u32::from(flags.contains(Flags::FIN));
            assert_eq!(reset.flags, Flags::RST | Flags::ACK);
            assert_eq!((reset.seq, reset.ack), (Seq::new(0), Seq::new(seq) + occupied), "{flags}");
            assert_eq!((reset.src_port, reset.dst_port), (81, 4000));
            assert!(reset.payload.is_empty());
        }
    }
}

#[test]
fn rfc9293_3_10_7_1_closed_with_ack_the_reset_takes_its_number() {
    let mut host = Host::new();
    let with_ack = |flags: &Flags| flags.contains(Flags::ACK) && !flags.contains(Flags::RST);
    for flags in all_flags().filter(with_ack) {
        let reset = host.answer(to_closed_port(flags, 5000, 6000, 10));
        assert_eq!((reset.flags, reset.seq), (Flags::RST, Seq::new(6000)), "{flags}");
    }
    assert!(host.sent.iter().all(|(_, reason)| *reason == Reason::Reset));
    assert!(host.states().is_empty());
}

#[test]
fn rfc9293_3_10_7_1_closed_a_connection_that_has_ended_answers_as_if_it_had_never_been() {
    let mut host = Host::new();
    let (id, iss) = host.open(4000, 5000);
    host.silence(from(4000, Flags::RST, 5001, 0));
    assert_eq!(host.endpoint.connection(id).unwrap().error(), Some(ConnectionError::Reset));
    let reset = host.answer(from(4000, Flags::ACK, 5001, iss + 1));
    assert_eq!((reset.flags, reset.seq), (Flags::RST, Seq::new(iss + 1)));
    assert!(host.endpoint.release(id).is_some());
    assert!(host.endpoint.release(id).is_none());
    assert!(host.endpoint.connection(id).is_none());
}

#[test]
fn rfc9293_3_10_7_2_listen_first_a_reset_is_ignored() {
    let mut host = Host::new();
    for flags in all_flags().filter(|flags| flags.contains(Flags::RST)) {
        host.silence(from(4000, flags, 5000, 6000));
    }
    assert_eq!(host.endpoint.strays(Disposition::NotForListener), 32);
    assert!(host.states().is_empty());
}

#[test]
fn rfc9293_3_10_7_2_listen_second_any_ack_is_answered_by_a_reset() {
    let mut host = Host::new();
    let with_ack = |flags: &Flags| flags.contains(Flags::ACK) && !flags.contains(Flags::RST);
    for flags in all_flags().filter(with_ack) {
        let reset = host.answer(Segment { payload: stream(0, 5), ..from(4000, flags, 5000, 6000) });
        assert_eq!((reset.flags, reset.seq), (Flags::RST, Seq::new(6000)), "{flags}");
    }
    assert!(host.states().is_empty());
}

#[test]
fn rfc9293_3_10_7_2_listen_third_a_syn_opens_a_connection() {
    let mut host = Host::new();
    let syn_ack = host.answer(from(4000, Flags::SYN, u32::MAX, 0));
    assert_eq!(syn_ack.flags, Flags::SYN | Flags::ACK);
    assert_eq!(syn_ack.ack, Seq::new(0));
    assert_eq!(syn_ack.window, 10_000);
    assert_eq!(syn_ack.options.mss, Some(1000));
    assert_eq!(host.states(), [State::SynReceived]);
    let connection = host.endpoint.connections().next().unwrap().1;
    assert_eq!((connection.snd_una(), connection.snd_nxt()), (syn_ack.seq, syn_ack.seq + 1));
    assert_eq!((connection.rcv_nxt(), connection.snd_wnd()), (Seq::new(0), 8000));
    // The application is not notified before the handshake is complete.
    assert_eq!(host.endpoint.poll_event(), None);
    let iss = syn_ack.seq.value();
    host.silence(from(4000, Flags::ACK, 0, iss + 1));
    assert_eq!(host.states(), [State::Established]);
    assert_eq!(host.endpoint.poll_event().map(|(_, event)| event), Some(Event::Connected));
}

#[test]
fn rfc9293_3_10_7_2_listen_third_text_of_a_syn_is_left_to_be_sent_again() {
    let mut host = Host::new();
    let with_text = |flags| Segment { payload: stream(0, 100), ..from(4000, flags, 5000, 0) };
    let syn_ack = host.answer(with_text(Flags::SYN | Flags::PSH | Flags::URG));
    assert_eq!(syn_ack.ack, Seq::new(5001), "the SYN is acknowledged, its text is not");
    let iss = syn_ack.seq.value();
    host.silence(from(4000, Flags::ACK, 5001, iss + 1));
    let (id, _) = host.endpoint.poll_event().unwrap();
    host.silence(Segment { payload: stream(0, 100), ..from(4000, Flags::ACK, 5001, iss + 1) });
    let connection = host.endpoint.connection_mut(id).unwrap();
    assert_eq!(connection.read(host.now), Some(stream(0, 100)));
}

#[test]
fn rfc9293_3_10_7_2_listen_third_the_fin_of_a_syn_is_left_to_be_sent_again() {
    let mut host = Host::new();
    let syn_ack = host.answer(from(4000, Flags::SYN | Flags::FIN, 5000, 0));
    assert_eq!((syn_ack.flags, syn_ack.ack), (Flags::SYN | Flags::ACK, Seq::new(5001)));
    assert_eq!(host.states(), [State::SynReceived]);
}

#[test]
fn rfc9293_3_10_7_2_listen_fourth_anything_else_is_dropped() {
    let mut host = Host::new();
    let other = |flags: &Flags| !flags.intersects(Flags::RST | Flags::ACK | Flags::SYN);
    for flags in all_flags().filter(other) {
        host.silence(Segment { payload: stream(0, 5), ..from(4000, flags, 5000, 6000) });
    }
    assert_eq!(host.endpoint.strays(Disposition::NotForListener), 8);
    assert!(host.states().is_empty());
}

#[test]
fn rfc9293_3_10_7_4_second_a_reset_in_syn_received_returns_to_listen() {
    let mut host = Host::new();
    let first = host.answer(from(4000, Flags::SYN, 5000, 0));
    host.silence(from(4000, Flags::RST, 5001, 0));
    assert!(host.states().is_empty());
    assert_eq!(host.endpoint.poll_event(), None, "the application never knew of it");
    host.now += Duration::from_millis(1);
    let second = host.answer(from(4000, Flags::SYN, 5000, 0));
    assert_eq!(second.flags, Flags::SYN | Flags::ACK);
    assert_ne!(first.seq, second.seq, "a new connection has a new initial sequence number");
}

#[test]
fn rfc9293_3_10_7_4_fourth_a_syn_in_the_window_returns_syn_received_to_listen() {
    let mut host = Host::new();
    host.answer(from(4000, Flags::SYN, 5000, 0));
    host.silence(from(4000, Flags::SYN, 5001, 0));
    assert!(host.states().is_empty());
    assert_eq!(host.endpoint.poll_event(), None, "the application never knew of it");
    assert_eq!(host.answer(from(4000, Flags::SYN, 5001, 0)).ack, Seq::new(5002));
}

#[test]
fn rfc9293_3_10_7_4_fifth_a_wrong_ack_in_syn_received_is_answered_by_a_reset() {
    let mut host = Host::new();
    let syn_ack = host.answer(from(4000, Flags::SYN, 5000, 0));
    let reset = host.answer(from(4000, Flags::ACK, 5001, syn_ack.seq.value()));
    assert_eq!((reset.flags, reset.seq), (Flags::RST, syn_ack.seq));
    assert_eq!(host.states(), [State::SynReceived]);
}

#[test]
fn an_incomplete_handshake_is_forgotten() {
    let mut host = Host::new();
    let mut sent = vec![host.answer(from(4000, Flags::SYN, 5000, 0))];
    while let Some(at) = host.endpoint.poll_timeout() {
        host.now = at;
        host.endpoint.handle_timeout(at);
        sent.extend(host.flush().into_iter().map(|(segment, _)| segment));
    }
    assert_eq!(sent.len(), 8, "seven retransmissions");
    assert!(sent.iter().all(|segment| segment.flags == Flags::SYN | Flags::ACK && segment.seq == sent[0].seq));
    assert!(host.states().is_empty());
    assert_eq!(host.endpoint.poll_event(), None);
}

#[test]
fn the_backlog_bounds_half_open_connections_only() {
    let mut host = Host::new();
    let first = host.answer(from(4000, Flags::SYN, 5000, 0));
    host.answer(from(4001, Flags::SYN, 5000, 0));
    host.silence(from(4002, Flags::SYN, 5000, 0));
    assert_eq!(host.endpoint.strays(Disposition::BacklogFull), 1);
    host.silence(from(4000, Flags::ACK, 5001, first.seq.value() + 1));
    let third = host.answer(from(4002, Flags::SYN, 5000, 0));
    assert_eq!(third.flags, Flags::SYN | Flags::ACK);
    host.silence(from(4002, Flags::RST, 5001, 0));
    host.answer(from(4003, Flags::SYN, 5000, 0));
}

#[test]
fn rfc9293_3_6_1_a_syn_beyond_the_old_connection_ends_time_wait() {
    let mut host = Host::new();
    let (old, old_iss) = host.open_and_wait(4000, 5000);
    let old_nxt = host.endpoint.connection(old).unwrap().snd_nxt();
    let syn_ack = host.answer(from(4000, Flags::SYN, 5003, 0));
    assert_eq!((syn_ack.flags, syn_ack.ack), (Flags::SYN | Flags::ACK, Seq::new(5004)));
    assert_eq!(host.endpoint.connection(old).unwrap().state(), State::Closed);
    assert_eq!(host.endpoint.poll_event(), Some((old, Event::Closed)));
    assert!(syn_ack.seq.gt(old_nxt), "the new connection numbers on from {old_nxt}, ISS was {old_iss}");
}

#[test]
fn rfc9293_3_6_1_a_syn_not_beyond_the_old_connection_is_challenged_in_time_wait() {
    let mut host = Host::new();
    let (old, old_iss) = host.open_and_wait(4000, 5000);
    for seq in [4000, 5000, 5001, 5002] {
        let challenge = host.answer(from(4000, Flags::SYN, seq, 0));
        assert_eq!(challenge.flags, Flags::ACK);
        assert_eq!((challenge.seq, challenge.ack), (Seq::new(old_iss + 2), Seq::new(5002)));
    }
    // A SYN with an ACK does not open a new connection.
    assert_eq!(host.answer(from(4000, Flags::SYN | Flags::ACK, 6000, 1)).flags, Flags::ACK);
    assert_eq!(host.endpoint.connection(old).unwrap().state(), State::TimeWait);
}

/// The old connection sent more than the clock of the initial sequence number counted: the new one still begins beyond it.
#[test]
fn rfc9293_3_6_1_the_new_iss_is_beyond_what_the_old_connection_sent() {
    let mut host = Host::new();
    let (id, iss) = host.open(4000, 5000);
    let mut acked = iss + 1;
    for round in 0..40 {
        let connection = host.endpoint.connection_mut(id).unwrap();
        connection.write(host.now, stream(round * 5000, 5000));
        for (segment, _) in host.flush() {
            acked = acked.max((segment.seq + segment.seq_len()).value());
        }
        host.inject(from(4000, Flags::ACK, 5001, acked));
    }
    host.endpoint.connection_mut(id).unwrap().shutdown_write();
    host.flush();
    let end = iss + 1 + 200_000;
    host.silence(from(4000, Flags::ACK, 5001, end + 1));
    host.answer(from(4000, Flags::FIN | Flags::ACK, 5001, end + 1));
    assert_eq!(host.endpoint.connection(id).unwrap().state(), State::TimeWait);
    let syn_ack = host.answer(from(4000, Flags::SYN, 9000, 0));
    assert!(syn_ack.seq.gt(Seq::new(end + 1)), "{} is not beyond {}", syn_ack.seq, end + 1);
}

/// RFC 6191 section 2: a later timestamp proves that a SYN is new, whatever its sequence number.
#[test]
fn rfc6191_2_a_later_timestamp_ends_time_wait() {
    let mut host = Host::new();
    let mut config = plain();
    config.timestamps = Some(Duration::from_millis(1));
    host.endpoint.listen(79, Arc::new(config), 2).unwrap();
    let stamped = |flags, seq, ack: u32, val| {
        let mut segment = Segment { dst_port: 79, ..from(4000, flags, seq, ack) };
        segment.options.timestamps = Some(Timestamps { val, ecr: 0 });
        segment
    };
    let iss = host.answer(stamped(Flags::SYN, 5000, 0, 100)).seq.value();
    host.silence(stamped(Flags::ACK, 5001, iss + 1, 100));
    let (id, _) = host.endpoint.poll_event().unwrap();
    host.endpoint.connection_mut(id).unwrap().shutdown_write();
    host.flush();
    host.silence(stamped(Flags::ACK, 5001, iss + 2, 100));
    host.answer(stamped(Flags::FIN | Flags::ACK, 5001, iss + 2, 100));
    assert_eq!(host.states(), [State::TimeWait]);
    assert_eq!(host.answer(stamped(Flags::SYN, 4000, 0, 100)).flags, Flags::ACK);
    assert_eq!(host.answer(stamped(Flags::SYN, 4000, 0, 101)).flags, Flags::SYN | Flags::ACK);
    assert_eq!(host.states(), [State::Closed, State::SynReceived]);
}

#[test]
fn rfc9293_3_6_1_time_wait_ends_after_two_msl() {
    let mut host = Host::new();
    let (id, _) = host.open_and_wait(4000, 5000);
    let end = host.now + Duration::from_secs(240);
    assert_eq!(host.endpoint.connection(id).unwrap().deadline(Timer::TimeWait), Some(end));
    host.now = end;
    host.endpoint.handle_timeout(end);
    assert!(host.flush().is_empty());
    assert_eq!(host.endpoint.poll_event(), Some((id, Event::Closed)));
    assert_eq!(host.endpoint.release(id).unwrap().error(), None);
}

/// RFC 9293 section 3.9.2.3: packets to or from an address that is not one host's are ignored.
#[test]
fn rfc9293_3_9_2_3_addresses_that_are_no_hosts_are_ignored() {
    let mut host = Host::new();
    for src in ["224.0.0.1", "255.255.255.255", "0.0.0.0"] {
        let packet = Packet::new(src.parse().unwrap(), US.parse().unwrap(), from(4000, Flags::SYN, 5000, 0));
        host.endpoint.handle_packet(host.now, &packet);
        assert!(host.flush().is_empty(), "{src}");
    }
    let packet = Packet::new(THEM.parse().unwrap(), THEM.parse().unwrap(), from(4000, Flags::SYN, 5000, 0));
    host.endpoint.handle_packet(host.now, &packet);
    assert!(host.flush().is_empty(), "not our address");
    assert!(host.states().is_empty());
}

/// RFC 9293 section 3.10.1: OPEN.
#[test]
fn rfc9293_3_10_1_open_errors() {
    let mut host = Host::new();
    let config = Arc::new(plain());
    let mut connect = |local: Option<&str>, remote: &str| {
        let local = local.map(|local| local.parse().unwrap());
        host.endpoint.connect(host.now, Arc::clone(&config), local, remote.parse().unwrap())
    };
    let id = connect(Some("10.0.0.1:999"), "10.0.0.2:7").unwrap();
    assert!(matches!(connect(Some("10.0.0.1:999"), "10.0.0.2:7"), Err(ConnectError::InUse { .. })));
    assert!(matches!(connect(Some("10.0.0.9:999"), "10.0.0.2:7"), Err(ConnectError::NoLocalAddress { .. })));
    assert!(matches!(connect(None, "[2001:db8::1]:7"), Err(ConnectError::NoLocalAddress { .. })));
    assert!(matches!(connect(None, "10.0.0.2:0"), Err(ConnectError::BadRemote { .. })));
    assert!(matches!(connect(None, "224.0.0.1:7"), Err(ConnectError::BadRemote { .. })));
    assert_eq!(host.endpoint.listen(80, config, 1), Err(ListenError::InUse { port: 80 }));
    let sent = host.flush();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].0.flags, sent[0].0.src_port, sent[0].1), (Flags::SYN, 999, Reason::Syn));
    assert_eq!(host.endpoint.connection(id).unwrap().state(), State::SynSent);
    // The application may queue data before the handshake is complete (section 3.10.2).
    let connection = host.endpoint.connection_mut(id).unwrap();
    assert_eq!(connection.write(host.now, Bytes::from_static(b"early")), 5);
    assert!(host.flush().is_empty());
}
