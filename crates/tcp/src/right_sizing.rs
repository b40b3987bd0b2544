//! Receive buffer autotuning (dynamic right-sizing): the buffer follows the amount read per round trip (Linux `tcp_rcv_space_adjust`, after
//! Fisk and Feng, "Dynamic Right-Sizing in TCP", 2001).

use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

use crate::config::BufferGrowth;

/// The reader's rate against the round trip measured by the receiver.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RightSizing {
    /// When the present round began, in microseconds of a clock that wraps: a round that seems short ends a round trip later.
    since_us: u32,
    /// Bytes read since then.
    read: u32,
    /// The most that was read in a round trip so far, in bytes.
    most: u32,
    /// The round trip in microseconds; 0 before the first sample.
    rtt_us: u32,
    /// The last timestamp that was echoed.
    echoed: u32,
    /// The end of the window whose arrival is timed, and from when on, in microseconds of a clock that wraps.
    edge: Option<Seq>,
    timed_us: u32,
}

/// Nothing is measured against less.
const MIN_RTT: Duration = Duration::from_millis(1);

impl RightSizing {
    /// Data may arrive from `now` on. `first` is the number of bytes that the peer may send in the first round trip.
    pub(crate) fn new(now: Instant, growth: BufferGrowth, first: u32) -> Self {
        let most = match growth {
            BufferGrowth::Linux2_6 => 0,
            BufferGrowth::Linux6_18 => first,
        };
        Self { since_us: in_micros(now), read: 0, most, rtt_us: 0, echoed: 0, edge: None, timed_us: 0 }
    }

    /// The round trip as the receiver measures it; 0 before.
    pub(crate) fn rtt(&self) -> Duration {
        Duration::from_micros(self.rtt_us.into())
    }

    /// Whether the age of the timestamp `echoed` is a sample: Linux 6.18 times the first segment that echoes it.
    #[inline]
    pub(crate) fn takes_echo(&mut self, growth: BufferGrowth, echoed: u32) -> bool {
        let is_known = core::mem::replace(&mut self.echoed, echoed) == echoed;
        growth != BufferGrowth::Linux6_18 || !is_known
    }

    /// A full-sized segment echoes a timestamp that is `rtt` old (Linux `tcp_rcv_rtt_measure_ts`). `is_drained`: the reader has read all
    /// earlier data.
    pub(crate) fn time_echo(&mut self, growth: BufferGrowth, rtt: Duration, is_drained: bool) {
        if growth == BufferGrowth::Linux6_18 && rtt < MIN_RTT {
            return;
        }
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

    /// A window's worth of data takes a round trip at least (Linux `tcp_rcv_rtt_measure`). `edge` is the end of the window.
    pub(crate) fn time_window(&mut self, now: Instant, rcv_nxt: Seq, edge: Seq) {
        if let Some(until) = self.edge {
            if rcv_nxt.lt(until) {
                return;
            }
            let sample = in_micros(now).wrapping_sub(self.timed_us).max(1);
            self.rtt_us = if self.rtt_us == 0 { sample } else { self.rtt_us.min(sample) };
        }
        (self.edge, self.timed_us) = (Some(edge), in_micros(now));
    }

    /// The buffer cannot hold more than `window` bytes of data.
    pub(crate) fn bound_by(&mut self, window: u32) {
        self.most = self.most.min(window);
    }

    /// The reader took `len` bytes and left `left`. Returns the useful window in bytes, if that is a new maximum.
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
                base + (base.saturating_mul(read - before) / before).saturating_mul(2).min(base)
            }
            BufferGrowth::Linux6_18 => {
                let growth = (2 * read).saturating_mul(read - before) / before;
                (2 * read).saturating_add(growth.saturating_mul(2))
            }
        };
        Some(u32::try_from(wanted).unwrap_or(u32::MAX))
    }

    /// The useful window while `beyond` bytes lie beyond a hole, in bytes (Linux `tcp_data_queue_ofo`).
    pub(crate) fn with_hole(&self, beyond: u32) -> u32 {
        self.most.saturating_mul(2).saturating_add(beyond)
    }
}

/// Before the first segment, half of the memory is taken for data, in 256ths (Linux `TCP_DEFAULT_SCALING_RATIO`).
pub(crate) const ASSUMED_SHARE: u8 = 128;

/// How much of the memory that a segment with `len` bytes of data occupies is data, in 256ths (Linux `scaling_ratio`): the data, its
/// headers and what Linux keeps of a packet lie in a block whose size is a power of two, and their descriptor takes 256 bytes more. With
/// 1448 bytes that makes 2304 and a share of 160, the `scaling_ratio` that `tcp:tcp_rcvbuf_grow` showed for a TUN device. Other lengths and
/// devices were not compared.
pub(crate) fn share_of_data(len: u32) -> u8 {
    const HEADERS_AND_MARGINS: u32 = 480;
    const DESCRIPTOR: u64 = 256;
    let block = u64::from(len.saturating_add(HEADERS_AND_MARGINS)).next_power_of_two();
    let occupied = block + DESCRIPTOR;
    u8::try_from(u64::from(len) * 256 / occupied).unwrap_or(u8::MAX).max(1)
}

impl BufferGrowth {
    /// How large a receive buffer has to be in memory, as Linux counts it (`tcp_rmem`), to offer a window of `window_bytes` after segments
    /// with `len` bytes of data.
    #[must_use]
    pub fn memory_bytes(self, window_bytes: u32, len: u16) -> u64 {
        let share = match self {
            Self::Linux2_6 => ASSUMED_SHARE,
            Self::Linux6_18 => share_of_data(len.into()),
        };
        u64::from(window_bytes) * 256 / u64::from(share)
    }
}

fn in_micros(now: Instant) -> u32 {
    (now.as_nanos() / 1_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    /// The figures of a kernel's `tcp:tcp_rcvbuf_grow` for a download at 10 Mbit/s and 50 ms: segments of 1448 bytes, 10 in the first round
    /// trip.
    // Claim: The receive buffer grows by the values that a kernel's `tcp:tcp_rcvbuf_grow` showed; the largest segment determines
    // how much data it holds, data beyond a hole lets it grow, small segments do not.
    // Tests: `linux_receive_window::linux_6_the_largest_segment_shows_how_much_data_the_buffer_holds`,
    // `linux_receive_window::linux_6_data_beyond_a_hole_lets_the_buffer_grow`,
    // `linux_receive_window::linux_small_segments_do_not_open_the_window`
    #[test]
    fn linux_6_18_grows_as_the_kernel_was_seen_to() {
        let mut sizing = RightSizing::new(at(0), BufferGrowth::Linux6_18, 10 * 1448);
        let mut read = |at, segments: u32| {
            if sizing.takes_echo(BufferGrowth::Linux6_18, segments) {
                sizing.time_echo(BufferGrowth::Linux6_18, Duration::from_millis(51), true);
            }
            sizing.on_read(at, BufferGrowth::Linux6_18, segments * 1448, 0, None, 1448)
        };
        assert_eq!(read(at(40_000), 10), None);
        assert_eq!(read(at(52_727), 1), Some(38_226), "15928 bytes after 14480");
        assert_eq!(read(at(104_177), 20), Some(152_698), "28960 bytes after 15928: window_clamp=152697");
    }

    #[test]
    fn unread_data_do_not_count_as_read() {
        let mut sizing = RightSizing::new(at(0), BufferGrowth::Linux6_18, 1000);
        sizing.time_echo(BufferGrowth::Linux6_18, Duration::from_millis(10), true);
        assert_eq!(sizing.on_read(at(10_000), BufferGrowth::Linux6_18, 3000, 2000, None, 1448), None);
    }

    #[test]
    fn a_shorter_round_trip_counts_at_once_and_a_longer_one_slowly() {
        let mut sizing = RightSizing::new(at(0), BufferGrowth::Linux6_18, 1000);
        let mut time = |echoed, ms, is_drained| {
            if sizing.takes_echo(BufferGrowth::Linux6_18, echoed) {
                sizing.time_echo(BufferGrowth::Linux6_18, Duration::from_millis(ms), is_drained);
            }
            sizing.rtt_us
        };
        assert_eq!(time(1, 80, true), 80_000);
        assert_eq!(time(2, 40, true), 40_000);
        assert_eq!(time(2, 20, true), 40_000, "an echo is timed once");
        assert_eq!(time(3, 80, true), 45_000);
        assert_eq!(time(4, 80, false), 45_000, "what waits for the reader is not the path's");
        assert_eq!(time(5, 0, true), 45_000, "less than the clock's tick is no sample");
    }

    #[test]
    fn any_amount_can_be_read_before_the_round_trip_is_known() {
        let mut sizing = RightSizing::new(at(0), BufferGrowth::Linux6_18, 1);
        for _ in 0..3 {
            assert_eq!(sizing.on_read(at(1_000), BufferGrowth::Linux6_18, u32::MAX, 0, None, 1448), None);
        }
        sizing.time_echo(BufferGrowth::Linux6_18, Duration::from_millis(10), true);
        assert_eq!(sizing.on_read(at(20_000), BufferGrowth::Linux6_18, 1, 0, None, 1448), Some(u32::MAX));
    }

    #[test]
    fn the_arrival_of_a_window_is_timed() {
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
