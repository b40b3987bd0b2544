//! Snapshots of a connection with the data in its buffers, from which another endpoint continues it (I-TCP's handoff).

use std::sync::Arc;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_wire::{Flags, Seq};

use super::{Connection, Event, Resumption};
use crate::config::Config;
use crate::counters::Reason;
use crate::recovery::sent::Sent;
use crate::state::State;

/// A connection in a synchronized state with the data in its buffers. Congestion control and the estimated round trip's variation are not
/// part of it, nor are urgent pointers and ends of records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Sequence numbers, windows and options.
    pub resumption: Resumption,
    /// Data from SND.UNA on, sent or not.
    pub to_send: Vec<Bytes>,
    /// The end of the data that was sent, without a FIN.
    pub sent_until: Seq,
    /// The FIN, unless it is acknowledged.
    pub fin: Fin,
    /// Data in order that was not read.
    pub unread: Vec<Bytes>,
    /// Data beyond a gap, from the lowest on: pieces with their sequence numbers.
    pub out_of_order: Vec<(Seq, Bytes)>,
    /// A FIN beyond a gap.
    pub fin_out_of_order: Option<Seq>,
    /// Data or a FIN has arrived that no ACK has covered.
    pub is_ack_due: bool,
    /// The right edge of the advertised window.
    pub window_edge: Seq,
    /// The sizes of the buffers in bytes of data, and the most that is advertised.
    pub send_buffer: u32,
    /// See [`Self::send_buffer`].
    pub receive_buffer: u32,
    /// See [`Self::send_buffer`].
    pub receive_limit: u32,
}

/// An end's own FIN in a [`Snapshot`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fin {
    /// The owner has not closed, or the FIN is acknowledged ([`Resumption::is_sent_all`]).
    None,
    /// It follows the data, and was not sent.
    Due,
    /// It was sent behind the data.
    Sent {
        /// It was sent before the peer's FIN arrived, and crossed it (CLOSING).
        is_crossed: bool,
    },
}

impl Connection {
    /// A snapshot; `None` in a handshake and after a failure.
    pub fn snapshot(&self, now: Instant) -> Option<Snapshot> {
        let resumption = self.resumption(now, self.rcv.nxt)?;
        let sent = self.queue.iter().map(|sent| sent.payload.clone()).filter(|data| !data.is_empty());
        Some(Snapshot {
            resumption,
            to_send: sent.chain(self.unsent.chunks().cloned()).collect(),
            sent_until: self.snd.fin.map_or(self.snd_max(), |fin| fin.max(self.snd.una)),
            fin: self.fin_of_snapshot(),
            unread: self.received.unread().cloned().collect(),
            out_of_order: self.received.out_of_order().collect(),
            fin_out_of_order: self.received.fin_out_of_order(),
            is_ack_due: self.rcv.last_ack_sent != self.rcv.nxt || self.received.has_gap(),
            window_edge: self.advertised_edge().max(self.rcv.nxt),
            send_buffer: self.send_buffer_bytes(),
            receive_buffer: self.rcv.capacity,
            receive_limit: self.rcv.limit,
        })
    }

    fn fin_of_snapshot(&self) -> Fin {
        match self.snd.fin {
            Some(fin) if self.snd.una.gt(fin) => Fin::None,
            Some(_) => Fin::Sent { is_crossed: self.state == State::Closing },
            None if self.snd.closing => Fin::Due,
            None => Fin::None,
        }
    }

    /// Continues the connection of a snapshot. Data and a FIN that were sent count as in flight, as copies (their ACKs measure no round trip),
    /// and the retransmission timer starts again; new data is sent in slow start. The window that the peer knows remains open.
    pub fn restore(now: Instant, config: Arc<Config>, snapshot: &Snapshot) -> Self {
        let mut connection = Self::resume(now, config, &snapshot.resumption);
        connection.restore_received(snapshot);
        connection.restore_sent(now, snapshot);
        connection
    }

    fn restore_received(&mut self, snapshot: &Snapshot) {
        let rcv = &mut self.rcv;
        rcv.capacity = rcv.capacity.max(snapshot.receive_buffer);
        rcv.limit = rcv.limit.max(snapshot.receive_limit);
        rcv.wnd = snapshot.window_edge.saturating_since(rcv.nxt);
        for data in &snapshot.unread {
            self.received.push_in_order(data.clone());
        }
        for (seq, data) in &snapshot.out_of_order {
            self.received.insert(*seq, data.clone());
        }
        if let Some(fin) = snapshot.fin_out_of_order {
            self.received.insert_fin(fin);
        }
        if !snapshot.unread.is_empty() {
            self.events.insert(Event::Readable);
        }
        if snapshot.is_ack_due {
            self.ack_now(Reason::Ack);
        }
    }

    fn restore_sent(&mut self, now: Instant, snapshot: &Snapshot) {
        self.snd.grown_buffer = snapshot.send_buffer;
        for data in &snapshot.to_send {
            self.unsent.push(data.clone());
        }
        let mut in_flight = self.unsent.len().min(snapshot.sent_until.saturating_since(self.snd.una) as usize);
        while in_flight > 0 {
            let payload = self.unsent.take(in_flight.min(self.snd.mss as usize));
            in_flight -= payload.len();
            self.restore_segment(now, payload, Flags::empty());
        }
        match snapshot.fin {
            Fin::None => {}
            Fin::Due => self.snd.closing = true,
            Fin::Sent { is_crossed } => {
                (self.snd.closing, self.snd.fin) = (true, Some(self.snd.nxt));
                self.restore_segment(now, Bytes::new(), Flags::FIN);
                self.state = match (snapshot.resumption.is_received_all, is_crossed) {
                    (false, _) => State::FinWait1,
                    (true, true) => State::Closing,
                    (true, false) => State::LastAck,
                };
            }
        }
        (self.snd.sml, self.recovery.high_seq) = (self.snd.nxt, self.snd.nxt);
        self.push_pending = !self.unsent.is_empty();
        if !self.queue.is_empty() {
            self.arm_retransmit(now, self.rtt.rto());
        }
    }

    /// A segment that another endpoint has sent.
    fn restore_segment(&mut self, now: Instant, payload: Bytes, flags: Flags) {
        let sent = Sent::restored(now, self.snd.nxt, payload).with_flags(flags);
        self.snd.nxt = sent.end();
        self.queue.push(sent);
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use holdover_base::{Duration, Rng};
    use proptest::prelude::*;

    use super::*;
    use crate::endpoint::{ConnectionId, Endpoint, EndpointConfig};
    use crate::profile::Profile;
    use crate::state::State;

    const PROFILES: [Profile; 4] = [Profile::RenoBsd, Profile::TahoeBsd, Profile::Linux6Reno, Profile::Linux6Cubic];

    /// Two ends, of which the second moves to other endpoints.
    struct Ends {
        now: Instant,
        rng: Rng,
        profile: Profile,
        loss: f64,
        ends: [Endpoint; 2],
        ids: [ConnectionId; 2],
    }

    fn endpoint(last: u8, secret: u8) -> Endpoint {
        Endpoint::new(EndpointConfig { addresses: vec![[10, 0, 0, last].into()], secret: [secret; 16] })
    }

    impl Ends {
        fn open(profile: Profile, seed: u64) -> Self {
            let config = Arc::new(profile.config());
            let (mut client, mut server) = (endpoint(1, 1), endpoint(2, 2));
            server.listen(80, Arc::clone(&config), 1).unwrap();
            let at = SocketAddr::new([10, 0, 0, 2].into(), 80);
            let of_client = client.connect(Instant::ZERO, config, None, at).unwrap();
            let mut ends = Self {
                now: Instant::ZERO,
                rng: Rng::new(seed),
                profile,
                loss: 0.0,
                ends: [client, server],
                ids: [of_client; 2],
            };
            for _ in 0..4 {
                ends.exchange(usize::MAX);
            }
            let of_server =
                core::iter::from_fn(|| ends.ends[1].poll_event()).find(|(_, event)| *event == Event::Connected);
            ends.ids[1] = of_server.expect("a connection").0;
            ends
        }

        /// Each end sends up to `most` packets.
        fn exchange(&mut self, most: usize) {
            for from in [0, 1] {
                for _ in 0..most {
                    let Some(out) = self.ends[from].poll_transmit(self.now) else { break };
                    if !self.rng.chance(self.loss) {
                        self.ends[1 - from].handle_packet(self.now, &out.packet);
                    }
                }
            }
        }

        fn pass(&mut self, time: Duration) {
            self.now += time;
            for end in &mut self.ends {
                end.handle_timeout(self.now);
            }
        }

        fn end(&mut self, end: usize) -> &mut Connection {
            self.ends[end].connection_mut(self.ids[end]).expect("a connection")
        }

        fn move_second(&mut self) -> Snapshot {
            let old = self.ends[1].withdraw(self.ids[1]).expect("it was there");
            let snapshot = old.snapshot(self.now).expect("it is open");
            self.ends[1] = endpoint(2, self.rng.below(250) as u8);
            let config = Arc::new(self.profile.config());
            self.ids[1] = self.ends[1].restore(self.now, config, &snapshot).expect("no such connection there");
            self.end(1).assert_invariants();
            snapshot
        }
    }

    /// Data that was sent, data that waits to be sent, data that was not read and data beyond a gap move. No byte is sent again while
    /// nothing is lost.
    #[test]
    fn data_in_the_buffers_moves() {
        for profile in PROFILES {
            let mut ends = Ends::open(profile, 1);
            let text: Vec<u8> = (0..30_000_u32).map(|at| (at * 7 + at / 256) as u8).collect();
            for end in [0, 1] {
                let now = ends.now;
                assert!(ends.end(end).write(now, Bytes::copy_from_slice(&text)) > 10_000, "{profile}");
            }
            // Some segments cross; the mobile end's ACKs stay behind.
            let now = ends.now;
            let lost = ends.ends[0].poll_transmit(now).expect("data");
            while let Some(out) = ends.ends[0].poll_transmit(now) {
                ends.ends[1].handle_packet(now, &out.packet);
            }
            let before = ends.end(1).snapshot(now).expect("it is open");
            let is_window_wider = !before.out_of_order.is_empty();
            let sent = core::iter::from_fn(|| ends.ends[1].poll_transmit(now)).count();
            assert!(sent > 0);
            let snapshot = ends.move_second();
            assert!(snapshot.sent_until.gt(snapshot.resumption.snd_una), "{profile}: nothing was in flight");
            let again = ends.end(1).snapshot(now).unwrap();
            let flat = |chunks: &[Bytes]| chunks.concat();
            assert_eq!(flat(&again.to_send), flat(&snapshot.to_send), "{profile}");
            let blocks =
                |snapshot: &Snapshot| -> usize { snapshot.out_of_order.iter().map(|block| block.1.len()).sum() };
            assert_eq!((again.sent_until, blocks(&again)), (snapshot.sent_until, blocks(&snapshot)), "{profile}");
            assert_eq!(
                (again.window_edge, again.receive_buffer),
                (snapshot.window_edge, snapshot.receive_buffer),
                "{profile}"
            );
            // The gap closes: everything beyond it is there.
            ends.ends[1].handle_packet(now, &lost.packet);
            let readable = ends.end(1).readable_len();
            assert!(!is_window_wider || readable > lost.packet.tcp().unwrap().payload.len(), "{profile}: {readable}");
            let snapshot = ends.move_second();
            assert_eq!(snapshot.unread.iter().map(Bytes::len).sum::<usize>(), readable, "{profile}");
            assert_eq!(ends.end(1).readable_len(), readable, "{profile}");
        }
    }

    /// The peer has received the FIN, and all data before it, which is more than a first window. Its ACK arrives after the move.
    #[test]
    fn a_fin_that_was_sent_moves_as_sent() {
        for profile in PROFILES {
            for is_second_to_close in [false, true] {
                let mut ends = Ends::open(profile, 1);
                let now = ends.now;
                while ends.end(0).read(now).is_some() {}
                if is_second_to_close {
                    ends.end(0).shutdown_write();
                    ends.exchange(usize::MAX);
                }
                let (mss, window) = (ends.end(1).snd_mss(), ends.end(1).snd_wnd());
                ends.end(1).set_cwnd(40);
                ends.end(1).write_beyond_buffer(now, vec![7; (mss * (window / mss).min(20) - 1) as usize].into());
                ends.end(1).shutdown_write();
                while let Some(out) = ends.ends[1].poll_transmit(now) {
                    ends.ends[0].handle_packet(now, &out.packet);
                    while ends.end(0).read(now).is_some() {}
                }
                let (state, unacked) = (ends.end(1).state(), ends.end(1).snd_nxt());
                assert!(matches!(state, State::FinWait1 | State::LastAck), "{profile}: {state}");
                ends.move_second();
                assert_eq!((ends.end(1).state(), ends.end(1).snd_nxt()), (state, unacked), "{profile}");
                assert!(ends.end(1).unacked() > ends.end(1).cwnd(), "{profile}");
                while let Some(out) = ends.ends[0].poll_transmit(now) {
                    ends.ends[1].handle_packet(now, &out.packet);
                }
                let state = ends.end(1).state();
                let expected = if is_second_to_close { State::Closed } else { State::FinWait2 };
                assert_eq!((state, ends.end(1).error()), (expected, None), "{profile}");
            }
        }
    }

    /// Both FINs have crossed: the end goes through CLOSING to TIME-WAIT also after a move.
    #[test]
    fn fins_that_cross_move_as_such() {
        let mut ends = Ends::open(Profile::Linux6Reno, 1);
        let now = ends.now;
        for end in [0, 1] {
            ends.end(end).shutdown_write();
        }
        let [first, second] = [0, 1].map(|end| ends.ends[end].poll_transmit(now).expect("a FIN").packet);
        ends.ends[1].handle_packet(now, &first);
        ends.ends[0].handle_packet(now, &second);
        assert_eq!(ends.end(1).state(), State::Closing);
        ends.move_second();
        assert_eq!(ends.end(1).state(), State::Closing);
        ends.exchange(usize::MAX);
        assert_eq!(ends.end(1).state(), State::TimeWait);
        ends.move_second();
        assert_eq!(ends.end(1).state(), State::TimeWait);
    }

    /// The ACK of a segment that was sent before the move arrives at once after it, and measures no short round trip.
    #[test]
    fn an_ack_of_what_moved_measures_no_short_round_trip() {
        let mut ends = Ends::open(Profile::Linux6Reno, 1);
        for _ in 0..2 {
            let now = ends.now;
            ends.end(1).write(now, Bytes::from_static(&[7; 500]));
            let out = ends.ends[1].poll_transmit(now).expect("data");
            ends.pass(Duration::from_millis(400));
            let now = ends.now;
            ends.ends[0].handle_packet(now, &out.packet);
            while ends.end(0).read(now).is_some() {}
            ends.pass(Duration::from_millis(200));
            ends.exchange(usize::MAX);
        }
        let now = ends.now;
        ends.end(1).write(now, Bytes::from_static(&[7; 500]));
        let out = ends.ends[1].poll_transmit(now).expect("data");
        ends.ends[0].handle_packet(now, &out.packet);
        while ends.end(0).read(now).is_some() {}
        ends.pass(Duration::from_millis(600));
        ends.move_second();
        let srtt = ends.end(1).srtt().expect("measured before");
        ends.exchange(usize::MAX);
        assert_eq!(ends.end(1).snd_una(), ends.end(1).snd_nxt());
        let after = ends.end(1).srtt();
        assert!(after >= Some(srtt), "{after:?} after {srtt}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        // Claim: An end of a connection that moves to other endpoints at random times, with the data in its buffers, with losses, closes and
        // slow readers: every byte arrives, in both directions.
        // Tests: `connection::snapshot::tests::data_in_the_buffers_moves`,
        // `connection::snapshot::tests::only_open_connections_have_a_snapshot`
        /// An end that moves at random times, with losses, closes and slow readers: every byte arrives, in both directions. It stays longer than
        /// its retransmission timer runs, most of the time: a move restarts that.
        #[test]
        fn an_end_that_moves_loses_no_byte(
            profile in prop::sample::select(PROFILES.to_vec()), seed: u64, loss in 0.0..0.1, moves in 0.0..0.02, bytes in 1_usize..40_000,
        ) {
            let mut ends = Ends::open(profile, seed);
            ends.loss = loss;
            let sent: Vec<u8> = (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let (mut written, mut read) = ([0; 2], [Vec::new(), Vec::new()]);
            for _ in 0..50_000 {
                for end in [0, 1] {
                    let now = ends.now;
                    written[end] += ends.end(end).write(now, Bytes::copy_from_slice(&sent[written[end]..]));
                    if written[end] == sent.len() {
                        ends.end(end).shutdown_write();
                    }
                    if ends.rng.chance(0.3) && let Some(data) = ends.end(end).read(now) {
                        read[end].extend_from_slice(&data);
                    }
                }
                let most = 1 + ends.rng.below(20) as usize;
                ends.exchange(most);
                if ends.rng.chance(moves) && ends.end(1).snapshot(Instant::ZERO).is_some() {
                    ends.move_second();
                }
                let step = ends.rng.below(100);
                ends.pass(Duration::from_millis(step));
                let states = [ends.end(0).state(), ends.end(1).state()];
                let is_over = |state: &State| matches!(state, State::Closed | State::TimeWait);
                if read.iter().all(|read| read.len() == sent.len()) && states.iter().any(is_over) {
                    break;
                }
                prop_assert!(read.iter().all(|read| sent.starts_with(read)));
                prop_assert_eq!([ends.end(0).error(), ends.end(1).error()], [None, None]);
            }
            prop_assert!(read[0] == sent && read[1] == sent, "{} and {} of {}", read[0].len(), read[1].len(), sent.len());
        }
    }

    /// Nothing is handed over of a connection in its handshake, or one that has ended.
    #[test]
    fn only_open_connections_have_a_snapshot() {
        let mut client = endpoint(1, 1);
        let at = SocketAddr::new([10, 0, 0, 2].into(), 80);
        let id = client.connect(Instant::ZERO, Arc::new(Profile::Linux6Reno.config()), None, at).unwrap();
        assert_eq!(client.connection(id).unwrap().snapshot(Instant::ZERO), None);
        let mut ends = Ends::open(Profile::Linux6Reno, 1);
        assert!(ends.end(1).snapshot(Instant::ZERO).is_some());
        ends.end(1).abort();
        assert_eq!(ends.end(1).snapshot(Instant::ZERO), None);
    }
}
