//! Dynamic right-sizing: the receive buffer follows what its reader takes in a round trip (Linux `tcp_rcv_space_adjust`, after Fisk and
//! Feng, "Dynamic Right-Sizing in TCP", 2001).

use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

use crate::config::BufferGrowth;

/// What a reader takes, against the round trip as the receiver sees it.
#[derive(Clone, Debug)]
pub(crate) struct RightSizing {
    /// When the present round began, in microseconds of a clock that wraps: a round that seems short ends a round trip later.
    since_us: u32,
    /// What was read since then, in bytes.
    read: u32,
    /// The most that was read in a round trip so far, in bytes.
    most: u32,
    /// The round trip in microseconds; 0 before the first sample.
    rtt_us: u32,
    /// With timestamps the last value echoed, without them the end of the window whose arrival is timed.
    mark: u32,
    /// From when on, in milliseconds of a clock that wraps.
    timed_ms: u32,
}

/// Nothing is measured against less.
const MIN_RTT: Duration = Duration::from_millis(1);

impl RightSizing {
    /// Data may come from `now` on. `first` is what the peer may send in the first round trip, in bytes.
    pub(crate) fn new(now: Instant, growth: BufferGrowth, first: u32) -> Self {
        let most = match growth {
            BufferGrowth::Linux2_6 => 0,
            BufferGrowth::Linux6_18 => first,
        };
        Self { since_us: in_micros(now), read: 0, most, rtt_us: 0, mark: 0, timed_ms: in_millis(now) }
    }

    /// A full segment echoes the timestamp `echoed`, which is `rtt` old (Linux `tcp_rcv_rtt_measure_ts`). `is_drained` says that the
    /// reader has read all that came before.
    pub(crate) fn time_echo(&mut self, growth: BufferGrowth, echoed: u32, rtt: Option<Duration>, is_drained: bool) {
        if growth == BufferGrowth::Linux6_18 && core::mem::replace(&mut self.mark, echoed) == echoed {
            return;
        }
        let Some(rtt) = rtt else { return };
        let sample = u32::try_from(rtt.max(MIN_RTT).as_micros()).unwrap_or(u32::MAX);
        let smoothed = self.rtt_us - self.rtt_us / 8 + sample / 8;
        self.rtt_us = match growth {
            _ if self.rtt_us == 0 => sample,
            BufferGrowth::Linux2_6 => smoothed,
            BufferGrowth::Linux6_18 if sample < self.rtt_us => sample,
            BufferGrowth::Linux6_18 if is_drained => smoothed,
            BufferGrowth::Linux6_18 => self.rtt_us,
        };
    }

    /// Without timestamps: a window's worth of data takes a round trip at least (Linux `tcp_rcv_rtt_measure`). `edge` is the end of
    /// the window.
    pub(crate) fn time_window(&mut self, now: Instant, rcv_nxt: Seq, edge: Seq) {
        if self.mark != 0 {
            if rcv_nxt.lt(Seq::new(self.mark)) {
                return;
            }
            let sample = in_millis(now).wrapping_sub(self.timed_ms).max(1).saturating_mul(1000);
            self.rtt_us = if self.rtt_us == 0 { sample } else { self.rtt_us.min(sample) };
        }
        self.mark = edge.value();
        self.timed_ms = in_millis(now);
    }

    /// The reader took `len` bytes and left `left`. Returns what it could use, in bytes of window, if that is more than before.
    pub(crate) fn on_read(
        &mut self,
        now: Instant,
        growth: BufferGrowth,
        len: u32,
        left: u32,
        rtt: Option<Duration>,
        mss: u32,
    ) -> Option<u32> {
        self.read = self.read.saturating_add(len);
        let round = match (self.rtt_us, growth) {
            (0, BufferGrowth::Linux2_6) => rtt.unwrap_or(MIN_RTT).as_micros(),
            (0, BufferGrowth::Linux6_18) => return None,
            (rtt, _) => u64::from(rtt),
        };
        if u64::from(in_micros(now).wrapping_sub(self.since_us)) < round {
            return None;
        }
        self.since_us = in_micros(now);
        let read = core::mem::take(&mut self.read);
        let read = if growth == BufferGrowth::Linux6_18 { read.saturating_sub(left) } else { read };
        if read <= self.most {
            return None;
        }
        let before = core::mem::replace(&mut self.most, read).max(1);
        let (read, before) = (u64::from(read), u64::from(before));
        // Room for the window to double during the next round, and the growth seen in this one once more.
        let wanted = match growth {
            BufferGrowth::Linux2_6 => {
                let base = 2 * read + 16 * u64::from(mss);
                base + (base * (read - before.min(read)) / before * 2).min(base)
            }
            BufferGrowth::Linux6_18 => 2 * read + (2 * read * (read - before) / before) * 2,
        };
        Some(u32::try_from(wanted).unwrap_or(u32::MAX))
    }

    /// What the reader could use while `beyond` bytes lie beyond a hole, in bytes of window (Linux `tcp_data_queue_ofo`).
    pub(crate) fn with_hole(&self, beyond: u32) -> u32 {
        self.most.saturating_mul(2).saturating_add(beyond)
    }
}

/// How much of the memory that a segment with `len` bytes of data occupies is data, in 256ths (Linux `scaling_ratio`): the data, its
/// headers and what Linux keeps of a packet lie in a block whose size is a power of two, and their descriptor takes 256 bytes more. With
/// 1448 bytes these are 2304, as `tcp:tcp_rcvbuf_grow` shows them for a TUN device.
pub(crate) fn share_of_data(len: u32) -> u32 {
    const HEADERS_AND_MARGINS: u32 = 480;
    const DESCRIPTOR: u32 = 256;
    let occupied = len.saturating_add(HEADERS_AND_MARGINS).next_power_of_two() + DESCRIPTOR;
    (len * 256 / occupied).max(1)
}

fn in_micros(now: Instant) -> u32 {
    (now.as_nanos() / 1_000) as u32
}

fn in_millis(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    /// The figures of a kernel's `tcp:tcp_rcvbuf_grow` for a download at 10 Mbit/s and 50 ms: segments of 1448 bytes, 10 in the first round
    /// trip.
    #[test]
    fn linux_6_18_grows_as_the_kernel_was_seen_to() {
        let mut sizing = RightSizing::new(at(0), BufferGrowth::Linux6_18, 10 * 1448);
        let mut read = |at, segments: u32| {
            sizing.time_echo(BufferGrowth::Linux6_18, segments, Some(Duration::from_millis(51)), true);
            sizing.on_read(at, BufferGrowth::Linux6_18, segments * 1448, 0, None, 1448)
        };
        assert_eq!(read(at(40_000), 10), None);
        assert_eq!(read(at(52_727), 1), Some(38_226), "15928 bytes after 14480");
        assert_eq!(read(at(104_177), 20), Some(152_698), "28960 bytes after 15928: window_clamp=152697");
    }

    #[test]
    fn what_waits_to_be_read_was_not_read() {
        let mut sizing = RightSizing::new(at(0), BufferGrowth::Linux6_18, 1000);
        sizing.time_echo(BufferGrowth::Linux6_18, 1, Some(Duration::from_millis(10)), true);
        assert_eq!(sizing.on_read(at(10_000), BufferGrowth::Linux6_18, 3000, 2000, None, 1448), None);
    }

    #[test]
    fn a_shorter_round_trip_counts_at_once_and_a_longer_one_slowly() {
        let mut sizing = RightSizing::new(at(0), BufferGrowth::Linux6_18, 1000);
        let mut time = |echoed, ms, is_drained| {
            sizing.time_echo(BufferGrowth::Linux6_18, echoed, Some(Duration::from_millis(ms)), is_drained);
            sizing.rtt_us
        };
        assert_eq!(time(1, 80, true), 80_000);
        assert_eq!(time(2, 40, true), 40_000);
        assert_eq!(time(2, 20, true), 40_000, "an echo is timed once");
        assert_eq!(time(3, 80, true), 45_000);
        assert_eq!(time(4, 80, false), 45_000, "what waits for the reader is not the path's");
    }

    #[test]
    fn without_timestamps_a_window_is_timed() {
        let mut sizing = RightSizing::new(at(0), BufferGrowth::Linux6_18, 1000);
        for (us, nxt, rtt) in [(0, 1, 0), (9_000, 5_000, 0), (20_000, 10_001, 20_000), (50_000, 20_001, 20_000)] {
            sizing.time_window(at(us), Seq::new(nxt), Seq::new(nxt + 10_000));
            assert_eq!(sizing.rtt_us, rtt, "at {us}");
        }
    }

    #[test]
    fn full_segments_of_1448_bytes_have_the_kernels_scaling_ratio() {
        assert_eq!(share_of_data(1448), 160);
    }
}
