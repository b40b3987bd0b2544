//! Rates in segments per 2^24 us, the unit of Linux `tcp_bbr.c`.

use holdover_base::Duration;

/// A rate is segments per us, shifted left by this.
pub(crate) const BW_SHIFT: u32 = 24;

/// The rate of `delivered` segments in `took`.
pub(crate) fn bandwidth(delivered: u64, took: Duration) -> u64 {
    let rate = (u128::from(delivered) << BW_SHIFT) * 1_000 / u128::from(took.as_nanos().max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Segments that `bw` amounts to in `span`.
pub(crate) fn segments_in(bw: u64, span: Duration) -> u64 {
    let segments = (u128::from(bw) * u128::from(span.as_nanos() / 1_000)) >> BW_SHIFT;
    u64::try_from(segments).unwrap_or(u64::MAX)
}

/// The rate `bw` of segments of `mss` bytes.
pub(crate) fn bytes_per_second(bw: u64, mss: u32) -> u64 {
    let rate = (u128::from(bw) * u128::from(mss) * 1_000_000) >> BW_SHIFT;
    u64::try_from(rate).unwrap_or(u64::MAX)
}
