//! One direction of a connection, packet by packet: the sender's actions and state.

use holdover_base::{Duration, Instant};
use holdover_wire::Flags;

use crate::evidence::{Bin, EndedBy, Evidence, Halves, Silence, Unanswered, Wait};
use crate::segment::{Positions, Seen};

/// A direction that may carry data.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    positions: Positions,
    /// The start of the connection.
    begin: Instant,
    /// The first position from the sender.
    lowest: Option<u64>,
    /// The end of all data seen.
    highest: Option<u64>,
    /// The end of all data captured from the sender.
    data_end: u64,
    acked: Option<u64>,
    /// The receive window in bytes, and whether its shift is known.
    window: Option<(u32, bool)>,
    pub(crate) first_data: Option<Instant>,
    pub(crate) first_heard: Option<Instant>,
    last_data: Option<LastData>,
    /// The start time of a hole, and the position below which data is missing.
    hole: Option<(Instant, u64)>,
    waits: Vec<(Instant, Wait)>,
    asked: Option<Instant>,
    /// The burst after the last silence is in progress.
    in_burst: bool,
    heard: Option<Instant>,
    run: Option<Unanswered>,
    pub(crate) segments: u64,
    /// Retransmitted segments, including segments that fill a hole.
    pub(crate) again: u64,
    pub(crate) again_bytes: u64,
    largest: u32,
    pub(crate) evidence: Evidence,
}

/// The latest data.
#[derive(Clone, Copy, Debug)]
struct LastData {
    at: Instant,
    full: bool,
    push: bool,
}

/// The classification of a segment from the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    /// The end of its data, if it has new data.
    pub(crate) new_end: Option<u64>,
    /// It retransmits data, or fills a hole.
    pub(crate) again: bool,
}

impl Stream {
    pub(crate) fn new(begin: Instant) -> Self {
        Self {
            positions: Positions::default(),
            begin,
            lowest: None,
            highest: None,
            data_end: 0,
            acked: None,
            window: None,
            first_data: None,
            first_heard: None,
            last_data: None,
            hole: None,
            waits: Vec::new(),
            asked: None,
            in_burst: false,
            heard: None,
            run: None,
            segments: 0,
            again: 0,
            again_bytes: 0,
            largest: 0,
            evidence: Evidence::new(),
        }
    }

    /// Data bytes, without retransmissions.
    pub(crate) fn bytes(&self) -> u64 {
        self.lowest.map_or(0, |lowest| self.data_end.saturating_sub(lowest))
    }

    /// The position acknowledged by a segment of the receiver.
    pub(crate) fn position_of_ack(&mut self, seen: &Seen) -> Option<u64> {
        seen.acknowledges().map(|ack| self.positions.of(ack))
    }

    /// Handles a segment from the sender. `rtt` is the path's round trip as far as known; `stale_echo` marks an echo of an old timestamp.
    pub(crate) fn sent(&mut self, seen: &Seen, rtt: Option<Duration>, stale_echo: bool) -> Sent {
        if seen.flags.contains(Flags::RST) {
            return Sent { new_end: None, again: false };
        }
        let offset = self.positions.of(seen.seq + u32::from(seen.is_syn()));
        let repeated_syn = seen.is_syn() && self.lowest.is_some();
        self.lowest.get_or_insert(offset);
        let highest = *self.highest.get_or_insert(offset);
        if seen.len == 0 {
            if seen.seq_len() > 0 {
                self.transmitted(seen.at, repeated_syn, rtt);
            }
            return Sent { new_end: None, again: repeated_syn };
        }
        let is_keep_alive = seen.len == 1 && offset + 1 == highest && self.acked == Some(highest);
        if is_keep_alive {
            return Sent { new_end: None, again: true };
        }
        let end = offset + u64::from(seen.len);
        let again = offset < highest && !self.is_reordered(seen.at, end, rtt);
        let jumps = offset > highest;
        let ended_by = match (again, jumps) {
            (true, _) => EndedBy::Again,
            (_, true) => EndedBy::Hole,
            _ => EndedBy::New,
        };
        self.end_silence(seen.at, ended_by, stale_echo);
        if jumps && self.hole.is_none() {
            self.hole = Some((seen.at, offset));
        }
        self.highest = Some(highest.max(end));
        self.data_end = self.data_end.max(end);
        self.segments += 1;
        if again {
            self.again += 1;
            self.again_bytes += u64::from(seen.len);
        }
        self.note_data(seen, rtt, again);
        self.transmitted(seen.at, again, rtt);
        Sent { new_end: (offset >= highest).then_some(end), again }
    }

    /// Whether data below the highest position is missing.
    pub(crate) fn has_hole(&self) -> bool {
        self.hole.is_some()
    }

    /// Handles a segment from the receiver that acknowledges up to `acked`. `shift` is the receiver's window shift, if known.
    pub(crate) fn heard(&mut self, seen: &Seen, acked: Option<u64>, shift: Option<u8>) {
        self.first_heard.get_or_insert(seen.at);
        self.heard = Some(seen.at);
        if let Some(mut run) = self.run.take() {
            run.answered = Some(seen.at);
            self.evidence.unanswered(run);
        }
        if seen.len > 0 {
            self.asked = Some(seen.at);
        }
        let Some(acked) = acked else { return };
        let before = self.acked.unwrap_or(acked);
        if acked < before {
            return;
        }
        self.acked = Some(acked);
        self.highest = Some(self.highest.map_or(acked, |highest| highest.max(acked)));
        if self.hole.is_some_and(|(_, end)| acked >= end) {
            self.hole = None;
        }
        let scaled = u32::from(seen.window) << if seen.is_syn() { 0 } else { shift.unwrap_or(0) };
        self.window = Some((scaled, shift.is_some()));
        if self.bytes() == 0 {
            return;
        }
        if acked > before {
            let window = self.window.and_then(|(window, known)| (known && window > 0).then_some(window));
            let bin = self.bin(seen.at);
            bin.acked += acked - before;
            bin.window = window.or(bin.window);
        }
        let wait = self.wait();
        let changes = self.waits.last().is_some_and(|(_, last)| *last != wait);
        if changes && self.waits.len() < Silence::MAX_WAITS {
            self.waits.push((seen.at, wait));
        }
    }

    /// Adds a sample of the round trip to one of the ends.
    pub(crate) fn sample(&mut self, at: Instant, rtt: Halves) {
        if self.bytes() > 0 {
            self.bin(at).rtt.note(rtt);
        }
    }

    /// Handles the end of the connection or capture.
    pub(crate) fn finish(&mut self, end: Instant) {
        self.end_silence(end, EndedBy::End, false);
        if let Some(run) = self.run.take() {
            self.evidence.unanswered(run);
        }
    }

    fn bin(&mut self, at: Instant) -> &mut Bin {
        self.evidence.bin(at.saturating_since(self.begin))
    }

    /// Whether data below the highest position was merely reordered: it arrives sooner after the hole was detected than a retransmission
    /// could.
    fn is_reordered(&self, at: Instant, end: u64, rtt: Option<Duration>) -> bool {
        let patience = rtt.map_or(Duration::from_millis(3), |rtt| rtt * 7 / 10);
        self.hole.is_some_and(|(since, hole_end)| end <= hole_end && at.saturating_since(since) < patience)
    }

    fn end_silence(&mut self, at: Instant, ended_by: EndedBy, stale_echo: bool) {
        let Some(last) = self.last_data else { return };
        let waits = core::mem::take(&mut self.waits);
        let asked = self.asked.take();
        if at.saturating_since(last.at) < self.evidence.min_silence {
            return;
        }
        let silence = Silence {
            from: last.at,
            to: at,
            waits,
            ended_by,
            after_full: last.full,
            after_push: last.push,
            asked: asked.filter(|asked| *asked > last.at),
            stale_echo,
            burst: 0,
        };
        self.in_burst = self.evidence.silence(silence) && ended_by != EndedBy::End;
    }

    fn note_data(&mut self, seen: &Seen, rtt: Option<Duration>, again: bool) {
        self.largest = self.largest.max(seen.len);
        let full = seen.len >= self.largest.min(FULL);
        self.follow_burst(seen, rtt, full);
        self.first_data.get_or_insert(seen.at);
        let push = seen.flags.contains(Flags::PSH);
        self.last_data = Some(LastData { at: seen.at, full, push });
        self.waits.clear();
        self.waits.push((seen.at, self.wait()));
        let outstanding = self.highest.unwrap_or(0).saturating_sub(self.acked.unwrap_or(0));
        let is_known = self.acked.is_some();
        let bin = self.bin(seen.at);
        bin.again += u32::from(again);
        if is_known {
            bin.outstanding = bin.outstanding.max(outstanding);
        }
    }

    /// Counts full segments up to the first pause after a silence.
    fn follow_burst(&mut self, seen: &Seen, rtt: Option<Duration>, full: bool) {
        if !self.in_burst {
            return;
        }
        let Some(silence) = self.evidence.silences.last_mut() else { return };
        let pause = rtt.map_or(Duration::from_millis(5), |rtt| (rtt / 2).max(Duration::from_millis(5)));
        let since = self.last_data.map_or(silence.to, |last| last.at.max(silence.to));
        if seen.at.saturating_since(since) > pause {
            self.in_burst = false;
        } else if full {
            silence.burst += (seen.len / 1400).max(1);
        } else {
            silence.burst = if silence.burst > 2 { silence.burst } else { 0 };
            self.in_burst = false;
        }
    }

    /// The event that the sender waits for.
    fn wait(&self) -> Wait {
        match (self.window, self.highest, self.acked) {
            (Some((0, _)), ..) => Wait::Window,
            (_, Some(highest), Some(acked)) if highest > acked => Wait::Acknowledgment,
            (_, Some(_), None) => Wait::Acknowledgment,
            _ => Wait::Nothing,
        }
    }

    /// Handles a transmission that requires an ACK.
    fn transmitted(&mut self, at: Instant, again: bool, rtt: Option<Duration>) {
        let apart = rtt.unwrap_or(Duration::ZERO).max(Duration::from_millis(10));
        let outstanding = self.waits.first().is_some_and(|(_, wait)| *wait == Wait::Acknowledgment);
        let Some(run) = &mut self.run else {
            let heard = self.heard.unwrap_or(at);
            let repeats = u32::from(again);
            let last = [None, None, Some(at)];
            self.run =
                Some(Unanswered { heard, outstanding, first: at, last, transmissions: 1, repeats, answered: None });
            return;
        };
        let is_separate = run.last[2].is_none_or(|last| at.saturating_since(last) >= apart);
        if is_separate {
            run.last = [run.last[1], run.last[2], Some(at)];
            run.transmissions += 1;
            run.repeats += u32::from(again);
        }
    }
}

/// The minimum payload of a full segment; a segment as long as the longest seen is full as well.
const FULL: u32 = 1200;
