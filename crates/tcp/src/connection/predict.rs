//! Header prediction: the two segments that a transfer consists of nearly throughout, the next data at the receiver and the ACK of new data
//! at the sender, without the steps of `input` and `ack` that have nothing to do for them.
//!
//! The idea is Van Jacobson's ("4BSD TCP header prediction", ACM SIGCOMM Computer Communication Review 20(2), 1990; Linux
//! `tcp_rcv_established`): in an established connection the flags, the sequence number, the window and the layout of the options of
//! the next segment are known in advance. A prediction saves time and nothing else. Where it holds, the connection ends up exactly as the
//! steps of RFC 9293 section 3.10.7.4 would leave it; where any part of it fails, nothing has happened yet, and the steps follow.

use holdover_base::Instant;
use holdover_wire::{Flags, Segment};

use super::ecn::Feedback;
use super::receive::Arrival;
use super::{Connection, Event};
use crate::recovery::RecoveryState;
use crate::state::State;

impl Connection {
    /// Processes a segment as [`Self::handle_in_steps`] does, if it was predicted. Returns whether it was.
    #[inline]
    pub(super) fn handle_predicted(&mut self, now: Instant, segment: &Segment) -> bool {
        if !self.has_predicted_header(segment) {
            return false;
        }
        if segment.payload.is_empty() {
            let is_predicted = self.predicts_ack(segment);
            if is_predicted {
                self.take_predicted_ack(now, segment);
            }
            return is_predicted;
        }
        let is_predicted = self.predicts_data(segment);
        if is_predicted {
            self.take_predicted_data(now, segment);
        }
        is_predicted
    }

    /// Whether a segment is the next one in order, into an open window and with no option but timestamps, and this side has no state that
    /// concerns other segments.
    #[inline]
    fn has_predicted_header(&self, segment: &Segment) -> bool {
        let options = &segment.options;
        let timestamps = match (&self.timestamps, options.timestamps) {
            (Some(state), Some(ts)) => ts.val.wrapping_sub(state.recent) as i32 >= 0,
            (state, ts) => state.is_none() && ts.is_none(),
        };
        let header = timestamps
            && segment.flags.difference(Flags::PSH) == Flags::ACK
            && segment.seq == self.rcv.nxt
            && segment.window > 0
            && options.sack.is_empty()
            && options.user_timeout.is_none();
        header
            && self.state == State::Established
            && self.probing.is_none()
            && !self.snd.probed_byte
            && self.rcv.fin.is_none()
            && self.model.is_none()
            && self.accurate_ecn.is_none()
            && self.ecn.feedback == Feedback::None
            && self.snd.keep_alives_unanswered == 0
            && self.config.limits.keep_alive.is_none()
    }

    /// What the steps do for each segment with a predicted header. Returns whether the peer's window changed.
    #[inline]
    fn take_predicted_header(&mut self, now: Instant, segment: &Segment) -> bool {
        self.note_timestamp(now, segment);
        self.heard_at = now;
        self.snd.more_follows = false;
        self.push_pending = true;
        self.update_send_window(segment)
    }

    /// Whether a segment without data acknowledges new data, none of which was marked in any way.
    #[inline]
    fn predicts_ack(&self, segment: &Segment) -> bool {
        let rto = &self.config.rto;
        segment.ack.gt(self.snd.una)
            && segment.ack.le(self.snd.nxt)
            && self.recovery.state == RecoveryState::Open
            && self.recovery.loss_probe.is_none()
            && self.queue.is_unmarked()
            && self.queue.highest_sacked().is_none_or(|highest| highest.le(self.snd.una))
            && self.snd.urgent.is_none()
            && self.steering.mtu_search.is_none()
            && !rto.one_sample_per_window
            && !rto.samples_echo
    }

    fn take_predicted_ack(&mut self, now: Instant, segment: &Segment) {
        let window_changed = self.take_predicted_header(now, segment);
        let ack = segment.ack;
        let echoed = segment.options.timestamps.map(|ts| ts.ecr).filter(|&ecr| ecr != 0);
        self.recovery.retransmits = 0;
        if let Some(episode) = self.recovery.episode.if_present() {
            episode.dup_acks = 0;
        }
        let mut acked = 0;
        let mut is_of_copy = false;
        let (mut first_sent_at, mut last_sent_at) = (now, now);
        while let Some(sent) = self.queue.pop_acked(ack) {
            if acked == 0 {
                first_sent_at = sent.sent_at;
            }
            acked += 1;
            last_sent_at = sent.sent_at;
            is_of_copy |= sent.was_retransmitted();
            self.note_delivered(now, &sent, echoed);
        }
        self.queue.trim_front(ack);
        self.counters.bytes_acked.0 += u64::from(ack - self.snd.una);
        self.counters.delivered = self.counters.delivered.saturating_add(acked);
        self.snd.una = ack;
        // Karn's rule: nothing is measured by when a segment was sent that was sent twice.
        let since = |sent_at| (acked > 0 && !is_of_copy).then(|| now.saturating_since(sent_at));
        let by_echo = || echoed.filter(|_| acked > 0).and_then(|echoed| self.rtt_by_echo(now, echoed));
        if let Some(rtt) = since(first_sent_at).or_else(by_echo) {
            self.rtt.sample(&self.config.rto, rtt, self.snd.una, self.snd.nxt);
        }
        self.recovery.rack.adapt(self.snd.una, self.snd.nxt);
        if self.queue.is_empty() {
            self.all_acknowledged();
        } else {
            // RFC 6298 section 5.3.
            self.restart_retransmit(now);
        }
        if acked > 0 {
            self.open_window_by(now, acked, since(last_sent_at));
        }
        self.pending.new_data_first = false;
        self.note_progress(now);
        if window_changed {
            self.after_window_change(now);
        }
    }

    /// Whether a segment has data that lies in the window, at a side that sends none and misses none. Its own window is that of the
    /// segment before it.
    #[inline]
    fn predicts_data(&self, segment: &Segment) -> bool {
        segment.ack == self.snd.una
            && u32::from(segment.window) << self.snd.scale == self.snd.wnd
            && self.queue.is_empty()
            && segment.payload.len() <= self.receive_window() as usize
            && !self.received.has_gap()
            && self.rcv.urgent.is_none()
            && !self.rcv.reader_gone
    }

    fn take_predicted_data(&mut self, now: Instant, segment: &Segment) {
        self.take_predicted_header(now, segment);
        let len = segment.payload.len() as u32;
        self.measure_receive_rtt(now, segment);
        self.received.push_in_order(segment.payload.clone());
        self.rcv.nxt += len;
        self.ack.duplicates = 0;
        self.counters.bytes_received.0 += u64::from(len);
        self.events.insert(Event::Readable);
        self.note_segment_len(len);
        let window_grew = self.open_limit(len);
        self.schedule_ack(now, Arrival::InOrder, len, segment.flags.contains(Flags::PSH), window_grew);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use holdover_base::{Duration, Rng};
    use holdover_wire::Seq;

    use super::super::Opening;
    use super::*;
    use crate::config::{Config, MtuProbing, PathMtuConfig};
    use crate::ecn::EcnField;
    use crate::profile::Profile;

    static DATA: [u8; 4_000] = [b'x'; 4_000];

    /// Two connections over a path that loses, delays and reorders. Each arrival and each transmission happens twice, on two copies: with
    /// shortcuts, and step by step.
    struct Pair {
        now: Instant,
        rng: Rng,
        faults: f64,
        /// Whether both ends send, and close.
        is_dialogue: bool,
        ends: [Connection; 2],
        /// When each segment arrives, and at which end.
        wire: Vec<(Instant, usize, Segment)>,
        arrived: u32,
        predicted: u32,
    }

    impl Pair {
        fn new(config: &Arc<Config>, seed: u64, faults: f64) -> Self {
            let opening = |local: &str, remote: &str| Opening {
                local: local.parse().unwrap(),
                remote: remote.parse().unwrap(),
                iss: Seq::new(u32::MAX - 20_000),
                timestamp_offset: 0,
            };
            let now = Instant::from_secs(1);
            let mut client = Connection::connect(now, Arc::clone(config), opening("10.0.0.1:1000", "10.0.0.2:80"));
            let syn = client.poll_transmit(now).unwrap().segment;
            let opening = opening("10.0.0.2:80", "10.0.0.1:1000");
            let server = Connection::accept(now, Arc::clone(config), opening, &syn);
            let rng = Rng::new(seed);
            let ends = [client, server];
            Self { now, rng, faults, is_dialogue: true, ends, wire: Vec::new(), arrived: 0, predicted: 0 }
        }

        /// An application writes or closes, sometimes.
        fn write(&mut self) {
            let end = usize::from(self.is_dialogue && self.rng.chance(0.1));
            let len = match self.rng.below(4) {
                0 => self.rng.below(200),
                _ => self.rng.below(DATA.len() as u64),
            };
            self.ends[end].write(self.now, Bytes::from_static(&DATA[..len as usize]));
            if self.is_dialogue && self.rng.chance(0.01) {
                self.ends[end].shutdown_write();
            }
            self.transmit(end);
        }

        fn transmit(&mut self, end: usize) {
            let mut place = Segment::default();
            loop {
                let mut in_steps = self.ends[end].clone();
                let mut place_in_steps = place.clone();
                let sent = self.ends[end].poll_transmit_into(self.now, &mut place);
                let sent_in_steps = in_steps.transmit_chosen(self.now, &mut place_in_steps);
                assert_eq!((sent, &place), (sent_in_steps, &place_in_steps));
                assert_eq!(format!("{:?}", self.ends[end]), format!("{in_steps:?}"));
                if sent.is_none() {
                    return;
                }
                let [mut settled, mut polled] = [0; 2].map(|_| self.ends[end].clone());
                if settled.settle_in_transfer(self.now) {
                    assert_eq!(polled.transmit_chosen(self.now, &mut place_in_steps), None);
                    assert_eq!(format!("{settled:?}"), format!("{polled:?}"));
                }
                let delay = 10_000 + if self.rng.chance(self.faults) { self.rng.below(30_000) } else { 0 };
                if !self.rng.chance(self.faults) {
                    self.wire.push((self.now + Duration::from_micros(delay), 1 - end, place.clone()));
                }
            }
        }

        fn arrive(&mut self, end: usize, segment: &Segment) {
            let connection = &mut self.ends[end];
            self.arrived += 1;
            self.predicted += u32::from(connection.clone().handle_predicted(self.now, segment));
            let mut in_steps = connection.clone();
            in_steps.note_ecn_field(EcnField::NotEct);
            let disposition = connection.handle_segment(self.now, segment);
            assert_eq!(disposition, in_steps.handle_in_steps(self.now, segment));
            assert_eq!(format!("{connection:?}"), format!("{in_steps:?}"));
            // Some readers are late.
            if !self.rng.chance(self.faults) {
                while connection.read(self.now).is_some() {}
            }
        }

        /// The next arrival or deadline. Returns whether there is one.
        fn step(&mut self) -> bool {
            let deadlines = self.ends.iter().filter_map(|end| end.poll_timeout().map(|(at, _)| at));
            let arrivals = self.wire.iter().map(|&(at, _, _)| at);
            let Some(next) = deadlines.chain(arrivals).min() else { return false };
            self.now = next.max(self.now);
            let due = self.wire.iter().position(|&(at, _, _)| at <= self.now);
            if let Some((_, end, segment)) = due.map(|index| self.wire.remove(index)) {
                self.arrive(end, &segment);
            }
            for end in 0..2 {
                self.ends[end].handle_timeout(self.now);
                self.transmit(end);
                while self.ends[end].poll_event().is_some() {}
            }
            true
        }
    }

    impl Pair {
        /// Segments and buffers are small, as the states are compared as text.
        fn small(mut config: Config, seed: u64, faults: f64) -> Self {
            config.mss = 160;
            config.send.buffer_bytes = 8_000;
            let mut pair = Self::new(&Arc::new(config), seed, faults);
            pair.transmit(1);
            pair
        }

        fn run(&mut self) {
            for _ in 0..250 {
                if self.rng.chance(0.1) || !self.step() {
                    self.write();
                }
            }
        }
    }

    /// Every profile, over paths without faults and with many.
    #[test]
    fn shortcuts_leave_what_the_steps_leave() {
        for (seed, profile) in (1..).zip(Profile::ALL) {
            for faults in [0.0, 0.05] {
                Pair::small(profile.config(), seed, faults).run();
            }
        }
    }

    #[test]
    fn options_make_no_difference_to_that() {
        let linux = Profile::Linux6Cubic.config();
        for (seed, (sack, timestamps)) in (50..).zip([(false, true), (true, false), (false, false)]) {
            let config = Config { sack, timestamps: linux.timestamps.filter(|_| timestamps), ..linux.clone() };
            Pair::small(config, seed, 0.02).run();
        }
    }

    #[test]
    fn probes_of_the_path_mtu_make_no_difference_either() {
        let path_mtu = PathMtuConfig { probing: MtuProbing::Always, base_mss: 60, min_mss: 48, ..PathMtuConfig::LINUX };
        let config = Config { path_mtu, ..Profile::Linux6Cubic.config() };
        for (seed, faults) in [(60, 0.0), (61, 0.02)] {
            Pair::small(config.clone(), seed, faults).run();
        }
    }

    /// Without faults nearly all segments of a transfer are predicted, or the shortcuts are of no use.
    #[test]
    fn a_transfer_is_predicted() {
        let mut pair = Pair::small(Profile::Linux6Cubic.config(), 1, 0.0);
        pair.is_dialogue = false;
        pair.run();
        assert!(pair.predicted * 10 > pair.arrived * 8, "{} of {}", pair.predicted, pair.arrived);
    }
}
