//! Findings of the properties and the fuzzer, one named test each. None depends on random numbers.

use core::time::Duration as StdDuration;
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_tcp::{
    Config, Connection, ConnectionId, Disposition, Endpoint, EndpointConfig, Event, KeepAlive, Opening, Profile,
    Reason, State, Timer, ZeroWindow,
};
use holdover_wire::{Flags, Segment, Seq};

use crate::script::*;

/// The growing limit of the window is below a segment, and the buffer has grown: when the reader resumes, the window opens.
#[test]
fn a_window_limit_below_a_segment_does_not_close_the_window() {
    let mut config = plain();
    (config.receive.buffer_bytes, config.receive.max_buffer_bytes) = (200, 600);
    let mut t = Script::connect(config);
    t.expect(our_syn());
    t.inject(syn_ack());
    t.expect(ack(1).win(200));
    t.inject(seg().data(193));
    t.at(200).expect(ack(194).win(7));
    t.read(193);
    t.expect(ack(194).win(200).reason(Reason::WindowUpdate));
    t.inject(seg().data(200));
    t.at(400).expect(ack(394).win(400).reason(Reason::DelayedAck));
    t.read(200);
    t.expect_nothing();
}

/// The limit is below the unit of the window scale.
#[test]
fn a_window_limit_below_the_unit_of_the_scale_does_not_close_the_window() {
    let mut config = Profile::Linux6Reno.config();
    config.receive.initial_window_bytes = 500;
    let mut t = Script::connect(config);
    t.expect(our_syn().win(500));
    t.inject(syn_ack().wscale(0).sack_ok().ts(PEER_CLOCK, OUR_CLOCK));
    t.expect(ack(1).win(1));
    t.inject(seg().data(400));
    t.expect(ack(401).win(2));
}

/// 4.3BSD has made outstanding data unsent; the window opens on an ACK without new data.
#[test]
fn data_pulled_back_are_sent_again_when_the_window_opens() {
    let mut t = Script::established(Config { mss: 1000, ..Profile::TahoeBsd.config() });
    t.write(3);
    t.expect(data(1, 4));
    t.at(100).inject(seg().ack(1).win(0));
    t.expect_nothing();
    assert_eq!((t.connection.in_flight(), t.connection.unacked()), (0, 1));
    t.expect_timer(Timer::Persist, 5_100);
    t.expect_no_timer(Timer::Retransmit);
    t.at(400).inject(seg().ack(1).win(1000));
    t.expect(data(1, 4).reason(Reason::LossRecovery));
    t.expect_no_timer(Timer::Persist);
    t.expect_timer(Timer::Retransmit, 1_500);
    t.at(1_500).expect(data(1, 4).reason(Reason::Timeout));
    t.inject(seg().ack(4));
    assert_eq!((t.connection.unacked(), t.connection.counters().timeouts), (0, 1));
}

/// ... and the congestion window is no larger than the outstanding data was: a window's worth was lost before the peer closed
/// the window.
#[test]
fn data_pulled_back_do_not_fill_the_congestion_window() {
    let mut t = Script::established(Config { mss: 1000, ..Profile::RenoBsd.config() });
    t.steer(|connection, _| connection.set_cwnd(3));
    t.write(5_000);
    t.expect_segments(1, 3001, Reason::NewData);
    t.at(100).inject(seg().ack(1).win(0));
    t.expect_nothing();
    t.at(400).inject(seg().ack(1).win(20_000));
    t.expect_segments(1, 3001, Reason::LossRecovery);
    t.expect_nothing();
    t.expect_cwnd(3, None);
    t.inject(seg().ack(3001));
    t.expect_segments(3001, 5001, Reason::NewData);
    assert_eq!((t.connection.counters().timeouts, t.connection.counters().recoveries), (0, 0));
}

/// The owner of one side holds the ACK of the peer's FIN while its own is acknowledged.
#[test]
fn a_held_ack_of_a_fin_keeps_the_connection_in_reach() {
    let mut t = Script::established(plain());
    t.steer(|connection, _| connection.hold_ack_point(Some(connection.rcv_nxt())));
    t.inject(fin());
    t.expect(ack(1).reason(Reason::FinAck));
    t.expect_state(State::CloseWait);
    t.at(1500).close();
    t.expect(our_fin(1).ack(1));
    t.expect_state(State::Closing);
    t.inject(seg().ack(2));
    t.expect_state(State::TimeWait);
    t.steer(|connection, _| {
        connection.hold_ack_point(None);
        connection.send_acks(1);
    });
    t.expect(ack(2).seq(2).reason(Reason::RequestedAck));
    t.expect_timer(Timer::TimeWait, 241_500);
    // The ACK is lost, and the FIN comes again.
    t.inject_as(Disposition::DuplicateData, fin().seq(1));
    t.expect(ack(2).seq(2).reason(Reason::DuplicateData));
}

/// The owner of one side holds back the ACK of the peer's FIN until its own FIN is acknowledged; then the ACK is sent, and lost.
/// The connection still exists to acknowledge the retransmitted FIN.
#[test]
fn a_held_ack_of_a_fin_that_is_then_lost_is_sent_again() {
    for written in [0, 2961] {
        let mut now = Instant::from_secs(1);
        let (mut holder, mut peer) = established(now, Config::rfc());
        holder.hold_ack_point(Some(holder.rcv_nxt()));
        if written > 0 {
            peer.write(now, Bytes::from(vec![0; written]));
        }
        peer.shutdown_write();
        pass(now, &mut peer, &mut holder);
        while holder.read(now).is_some() {}
        pass(now, &mut holder, &mut peer);
        assert_eq!((holder.state(), peer.state()), (State::CloseWait, State::FinWait1));
        holder.shutdown_write();
        pass(now, &mut holder, &mut peer);
        pass(now, &mut peer, &mut holder);
        assert!(!holder.is_closed(), "it owes the peer an ACK");
        holder.hold_ack_point(None);
        holder.send_acks(1);
        let lost = drain(&mut holder, now);
        assert_eq!(lost.last().map(|segment| segment.ack), Some(peer.snd_nxt()));

        for _ in 0..20 {
            if peer.state() == State::TimeWait {
                break;
            }
            now = peer.poll_timeout().expect("its FIN is not acknowledged").0;
            peer.handle_timeout(now);
            pass(now, &mut peer, &mut holder);
            pass(now, &mut holder, &mut peer);
        }
        assert_eq!(peer.state(), State::TimeWait, "with {written} bytes before the FIN");
        assert_eq!((holder.error(), peer.error()), (None, None));
    }
}

/// Timestamps and three SACK blocks leave no room for a User Timeout option in a very small segment: the option waits, and
/// causes no segment.
#[test]
fn a_user_timeout_option_without_room_waits() {
    let now = Instant::from_secs(1);
    let (mut client, mut server) = established(now, Config { mss: 36, ..Config::rfc() });
    // Every second segment is lost, until there are three blocks.
    client.write(now, Bytes::from(vec![0; 7 * 24]));
    let sent: Vec<Segment> = drain(&mut client, now);
    for segment in sent.iter().skip(1).step_by(2) {
        server.handle_segment(now, segment);
    }
    server.advertise_user_timeout(Some(Duration::from(StdDuration::from_secs(600))));
    let acks = drain(&mut server, now);
    assert_eq!(acks.len(), 1);
    assert_eq!((acks[0].options.sack.len(), acks[0].options.user_timeout), (3, None));
    // Once the gaps are closed, there is room.
    for segment in &sent {
        server.handle_segment(now, segment);
    }
    assert!(drain(&mut server, now).iter().any(|ack| ack.options.user_timeout.is_some()));
}

#[test]
fn an_ack_point_that_was_held_too_early_holds_nothing() {
    let now = Instant::from_secs(1);
    let opening = Opening {
        local: "10.0.0.1:1000".parse().unwrap(),
        remote: "10.0.0.2:80".parse().unwrap(),
        iss: Seq::new(7),
        timestamp_offset: 3,
    };
    let mut client = Connection::connect(now, Arc::new(Config::rfc()), opening);
    drain(&mut client, now);
    client.hold_ack_point(Some(Seq::new(5)));
    let flags = Flags::SYN | Flags::ACK;
    let syn_ack = Segment { seq: Seq::new(1 << 31), ack: Seq::new(8), flags, window: 1000, ..Segment::default() };
    client.handle_segment(now, &syn_ack);
    assert_eq!(drain(&mut client, now)[0].ack, Seq::new((1 << 31) + 1));
}

/// A window closes over outstanding data, and then all of it is acknowledged.
#[test]
fn nothing_is_probed_for_when_nothing_is_left() {
    let mut now = Instant::from_secs(1);
    let mut config = Config::rfc();
    config.recovery.zero_window = ZeroWindow::Freeze;
    let (mut client, mut server) = established(now, config);
    client.write(now, Bytes::from(vec![0; 2 * 1448]));
    let sent = drain(&mut client, now);
    server.clamp_window(Some(0));
    for segment in &sent {
        server.handle_segment(now, segment);
        server.send_acks(1);
        drain(&mut server, now).iter().for_each(|ack| _ = client.handle_segment(now, ack));
        drain(&mut client, now);
    }
    assert_eq!((client.snd_wnd(), client.unacked(), client.unsent_len()), (0, 0, 0));
    while let Some((at, _)) = client.poll_timeout() {
        now = at;
        client.handle_timeout(now);
        assert_eq!(drain(&mut client, now), [], "at {now}");
    }
}

/// When a peer retransmits, it may join received but unacknowledged data with the FIN that follows.
#[test]
fn a_fin_that_brings_old_data_along_does_not_reset_a_reader_that_has_left() {
    let now = Instant::from_secs(1);
    let (mut client, mut server) = established(now, Config::rfc());
    server.write(now, Bytes::from_static(b"last words"));
    let data = drain(&mut server, now).remove(0);
    client.handle_segment(now, &data);
    assert!(client.read(now).is_some());
    client.close(now);
    drain(&mut client, now);
    client.handle_segment(now, &Segment { flags: data.flags | Flags::FIN, ..data });
    assert_eq!((client.state(), client.error()), (State::Closing, None));
    assert!(drain(&mut client, now).iter().all(|segment| !segment.flags.contains(Flags::RST)));
}

/// All segments that `connection` wants to send.
fn drain(connection: &mut Connection, now: Instant) -> Vec<Segment> {
    let sent: Vec<Segment> =
        core::iter::from_fn(|| connection.poll_transmit(now)).map(|transmit| transmit.segment).take(1000).collect();
    assert!(sent.len() < 1000, "it never stops");
    sent
}

/// Two connections after their handshake.
fn established(now: Instant, config: Config) -> (Connection, Connection) {
    let config = Arc::new(config);
    let [a, b] = ["10.0.0.1:1000".parse().unwrap(), "10.0.0.2:80".parse().unwrap()];
    let opening = |local, remote| Opening { local, remote, iss: Seq::new(7), timestamp_offset: 3 };
    let mut client = Connection::connect(now, Arc::clone(&config), opening(a, b));
    let syn = drain(&mut client, now);
    let mut server = Connection::accept(now, config, opening(b, a), &syn[0]);
    for segment in drain(&mut server, now) {
        client.handle_segment(now, &segment);
    }
    for segment in drain(&mut client, now) {
        assert!(segment.flags.contains(Flags::ACK));
        server.handle_segment(now, &segment);
    }
    drain(&mut server, now);
    (client, server)
}

/// Both sides probe the other's closed window with a byte at the same time, and both bytes are accepted: each then expects a
/// higher sequence number than the other sends next. Both streams continue when the windows open.
#[test]
fn two_probes_that_cross_do_not_silence_both_sides() {
    let mut now = Instant::from_secs(1);
    let mut sides: [Connection; 2] = established(now, Config::rfc()).into();
    for side in &mut sides {
        side.clamp_window(Some(0));
        side.send_acks(1);
    }
    exchange(now, &mut sides);
    for side in &mut sides {
        side.write(now, Bytes::from_static(b"hello"));
    }
    exchange(now, &mut sides);
    // Probes of one byte leave on both sides before either arrives.
    let probes = loop {
        now = sides.iter().filter_map(|side| side.poll_timeout()).map(|(at, _)| at).max().expect("they probe");
        let probes = sides.each_mut().map(|side| {
            side.handle_timeout(now);
            drain(side, now)
        });
        if probes.iter().all(|probes| probes.iter().any(|probe| probe.payload.len() == 1)) {
            break probes;
        }
        exchange(now, &mut sides);
    };
    for (side, probe) in [(1, &probes[0]), (0, &probes[1])] {
        probe.iter().for_each(|segment| _ = sides[side].handle_segment(now, segment));
    }
    exchange(now, &mut sides);
    for side in &mut sides {
        side.clamp_window(None);
        side.send_acks(1);
    }
    exchange(now, &mut sides);
    for _ in 0..20 {
        let Some(at) = sides.iter().filter_map(|side| side.poll_timeout()).map(|(at, _)| at).min() else { break };
        now = at;
        sides.iter_mut().for_each(|side| side.handle_timeout(now));
        exchange(now, &mut sides);
    }
    for side in &mut sides {
        let mut read = Vec::new();
        while let Some(data) = side.read(now) {
            read.extend_from_slice(&data);
        }
        assert_eq!((read.as_slice(), side.unacked(), side.unsent_len()), (&b"hello"[..], 0, 0));
    }
}

/// All segments of `from` arrive at `to`.
fn pass(now: Instant, from: &mut Connection, to: &mut Connection) {
    drain(from, now).iter().for_each(|segment| _ = to.handle_segment(now, segment));
}

/// Both sides send all their segments.
fn exchange(now: Instant, sides: &mut [Connection; 2]) {
    for _ in 0..100 {
        let [one, other] = sides;
        let sent = [drain(one, now), drain(other, now)];
        if sent.iter().all(Vec::is_empty) {
            return;
        }
        sent[0].iter().for_each(|segment| _ = other.handle_segment(now, segment));
        sent[1].iter().for_each(|segment| _ = one.handle_segment(now, segment));
    }
    panic!("they never stop");
}

/// Two hosts whose packets arrive at once.
struct Hosts {
    now: Instant,
    hosts: [Endpoint; 2],
}

const HOSTS: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

impl Hosts {
    /// The second listens at port 80.
    fn new(config: Config) -> Self {
        let hosts =
            HOSTS.map(|address| Endpoint::new(EndpointConfig { addresses: vec![address.into()], secret: [1; 16] }));
        let mut hosts = Self { now: Instant::from_secs(1), hosts };
        hosts.hosts[1].listen(80, Arc::new(config), 9).unwrap();
        hosts
    }

    /// The first connects, always from port 1000.
    fn connect(&mut self) -> ConnectionId {
        let local = Some((HOSTS[0], 1000).into());
        let id = self.hosts[0].connect(self.now, Arc::new(Config::rfc()), local, (HOSTS[1], 80).into()).unwrap();
        self.settle();
        id
    }

    /// The connection that the second host has accepted last.
    fn accepted(&self) -> ConnectionId {
        self.hosts[1].connections().filter(|(_, connection)| !connection.is_closed()).last().unwrap().0
    }

    fn with<T>(&mut self, host: usize, id: ConnectionId, act: impl FnOnce(Instant, &mut Connection) -> T) -> T {
        let done = act(self.now, self.hosts[host].connection_mut(id).unwrap());
        self.settle();
        done
    }

    /// Both sides send all their segments.
    fn settle(&mut self) {
        loop {
            let mut quiet = true;
            for from in [0, 1] {
                while let Some(outgoing) = self.hosts[from].poll_transmit(self.now) {
                    quiet = false;
                    self.hosts[1 - from].handle_packet(self.now, &outgoing.packet);
                }
                self.hosts[from].assert_invariants();
            }
            if quiet {
                return;
            }
        }
    }

    fn advance(&mut self, span: Duration) {
        self.now += span;
        for host in 0..2 {
            self.hosts[host].handle_timeout(self.now);
        }
        self.settle();
    }
}

#[test]
fn a_closed_connection_leaves_its_successor_in_reach() {
    let mut hosts = Hosts::new(Config::rfc());
    let old = hosts.connect();
    let peer = hosts.accepted();
    // The peer closes first, so that the addresses are free at once on this host.
    hosts.with(1, peer, |_, connection| connection.shutdown_write());
    hosts.with(0, old, |_, connection| connection.shutdown_write());
    assert!(hosts.hosts[0].connection(old).unwrap().is_closed());
    hosts.advance(Duration::from_secs(2));
    let new = hosts.connect();
    // A late read of the old connection ...
    hosts.with(0, old, |now, connection| connection.read(now));
    // ... does not close the new one.
    hosts.with(0, new, |now, connection| connection.write(now, Bytes::from_static(b"hello")));
    hosts.advance(Duration::from_secs(1));
    assert_eq!(hosts.hosts[0].connection(new).unwrap().unacked(), 0, "the ACK has arrived");
}

#[test]
fn a_connection_that_is_replaced_in_time_wait_keeps_what_was_not_read() {
    let mut hosts = Hosts::new(Config::rfc());
    let old = hosts.connect();
    let peer = hosts.accepted();
    hosts.with(0, old, |now, connection| connection.write(now, Bytes::from_static(b"unread")));
    hosts.with(1, peer, |_, connection| connection.shutdown_write());
    hosts.with(0, old, |_, connection| connection.shutdown_write());
    assert_eq!(hosts.hosts[1].connection(peer).unwrap().state(), State::TimeWait);
    while hosts.hosts[1].poll_event().is_some() {}
    hosts.advance(Duration::from_secs(2));
    hosts.connect();
    assert_eq!(hosts.hosts[1].poll_event(), Some((peer, Event::Closed)));
    assert_eq!(hosts.with(1, peer, |now, connection| connection.read(now)).as_deref(), Some(&b"unread"[..]));
    assert!(hosts.hosts[1].release(peer).is_some());
}

#[test]
fn a_syn_without_room_in_the_backlog_does_not_end_a_time_wait() {
    let mut hosts = Hosts::new(Config::rfc());
    let old = hosts.connect();
    let peer = hosts.accepted();
    hosts.with(1, peer, |_, connection| connection.shutdown_write());
    hosts.with(0, old, |_, connection| connection.shutdown_write());
    hosts.hosts[1].unlisten(80);
    hosts.hosts[1].listen(80, Arc::new(Config::rfc()), 0).unwrap();
    hosts.advance(Duration::from_secs(2));
    let local = Some((HOSTS[0], 1000).into());
    hosts.hosts[0].connect(hosts.now, Arc::new(Config::rfc()), local, (HOSTS[1], 80).into()).unwrap();
    let syn = hosts.hosts[0].poll_transmit(hosts.now).unwrap();
    hosts.hosts[1].handle_packet(hosts.now, &syn.packet);
    assert_eq!(hosts.hosts[1].connection(peer).unwrap().state(), State::TimeWait);
}

/// A connection with a distant deadline, and one that is set and cancelled before it many times.
#[test]
fn deadlines_that_come_and_go_do_not_pile_up() {
    let mut config = Config::rfc();
    let hours = Duration::from_secs(7200);
    config.limits.keep_alive = Some(KeepAlive { idle: hours, interval: hours, probes: 9 });
    let mut hosts = Hosts::new(config);
    let id = hosts.connect();
    for _ in 0..1000 {
        hosts.with(0, id, |now, connection| connection.write(now, Bytes::from_static(b"x")));
        // The ACK is delayed: its deadline passes, and that of the keep-alive remains. `settle` asserts the bound.
        hosts.advance(Duration::from_millis(300));
    }
}
