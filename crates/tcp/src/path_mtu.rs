//! The search for a path's MTU by probes (RFC 4821), without the connection around it.
//!
//! Routers report a packet that is too large by an ICMP error, and firewalls drop such errors: the handshake gets through, and every
//! full segment is lost. The search learns the path MTU from data alone. It knows a size that gets through (`low`) and one that may
//! (`high`), and sends a single segment of the size between. Its ACK raises `low`; its loss, if nothing else was lost, lowers `high`.
//! Segments are as large as `low` permits. The names in Linux are `search_low` and `search_high` of `icsk_mtup`, whose rules these are.
//!
//! Sizes of packets include the IP header, those of segments are their data.

use holdover_base::Instant;
use holdover_wire::{Seq, SeqRange};

use crate::config::{MtuProbing, PathMtuConfig};

/// The range of a search for the path MTU, as sizes of packets with their IP headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MtuRange {
    /// The largest that is known or assumed to get through.
    pub low: u32,
    /// The largest that may get through.
    pub high: u32,
}

/// Sizes of packets and of the data in them, on one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentSizes {
    /// Bytes of the IP header and of the TCP header without options.
    pub(crate) headers: u32,
    /// Bytes of the options that every segment carries.
    pub(crate) options: u32,
    /// The peer's MSS option.
    pub(crate) peer_mss: u32,
    /// [`PathMtuConfig::min_mss`].
    pub(crate) min_mss: u32,
}

impl SegmentSizes {
    /// The data of the largest segment in a packet of `mtu` bytes (Linux `tcp_mtu_to_mss`).
    pub(crate) fn mss(self, mtu: u32) -> u32 {
        let with_options = mtu.saturating_sub(self.headers).min(self.peer_mss).max(self.min_mss);
        with_options.saturating_sub(self.options).max(1)
    }

    /// The size of a packet with a segment of `mss` bytes (Linux `tcp_mss_to_mtu`).
    pub(crate) fn mtu(self, mss: u32) -> u32 {
        mss.saturating_add(self.options + self.headers)
    }

    fn largest_packet(self) -> u32 {
        self.peer_mss + self.headers
    }
}

/// A probe that is under way.
#[derive(Clone, Copy, PartialEq, Debug)]
struct MtuProbe {
    /// The size of its packet.
    size: u32,
    data: SeqRange,
}

/// The state of a search.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct MtuSearch {
    /// Whether probes are sent, and `range.low` limits segments.
    is_on: bool,
    range: MtuRange,
    /// No packet is larger than the interface's MTU.
    link_mtu: u32,
    /// The path MTU according to the interface, the owner and ICMP errors (Linux `icsk_pmtu_cookie`).
    pmtu: u32,
    sizes: SegmentSizes,
    probe: Option<MtuProbe>,
    /// When it began, or began anew.
    began_at: Instant,
}

impl MtuSearch {
    /// The search of a connection whose handshake has agreed on `sizes`, over a path that is assumed to carry `pmtu` bytes (Linux
    /// `tcp_mtup_init`).
    pub(crate) fn new(now: Instant, config: &PathMtuConfig, sizes: SegmentSizes, pmtu: u32) -> Self {
        let link_mtu = config.link_mtu.unwrap_or(pmtu);
        let range = MtuRange { low: sizes.mtu(config.base_mss.into()), high: sizes.largest_packet().min(link_mtu) };
        Self { is_on: config.probing == MtuProbing::Always, range, link_mtu, pmtu, sizes, probe: None, began_at: now }
    }

    /// The range, once probes are sent.
    pub(crate) fn range(&self) -> Option<MtuRange> {
        self.is_on.then_some(self.range)
    }

    /// The size of segments (Linux `tcp_sync_mss`).
    pub(crate) fn mss(&self) -> u32 {
        let known = self.sizes.mss(self.pmtu);
        if self.is_on { known.min(self.sizes.mss(self.range.low)) } else { known }
    }

    pub(crate) fn sizes(&self) -> SegmentSizes {
        self.sizes
    }

    /// The path MTU is `mtu` according to the owner. A search exceeds its former range only when it begins anew.
    pub(crate) fn set_pmtu(&mut self, mtu: u32) {
        self.pmtu = mtu;
        self.range.high = self.range.high.min(mtu);
    }

    /// An ICMP error reports a path MTU of `mtu`. Returns whether it is smaller than the known one; only then it counts.
    pub(crate) fn set_smaller_pmtu(&mut self, mtu: u32) -> bool {
        let is_smaller = mtu < self.pmtu;
        if is_smaller {
            self.set_pmtu(mtu);
        }
        is_smaller
    }

    /// Whether a probe could be sent: the search is on, and none is under way.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.is_on && self.probe.is_none()
    }

    /// The data of the next probe; `None` if the search is finished. `mss` is the size of segments now.
    pub(crate) fn next_probe(&mut self, now: Instant, config: &PathMtuConfig, mss: u32) -> Option<u32> {
        let MtuRange { low, high } = self.range;
        let size = self.sizes.mss(u32::midpoint(low, high));
        let is_wide = high.checked_sub(low).is_some_and(|range| range >= u32::from(config.threshold));
        if is_wide && size <= self.sizes.mss(high) {
            return Some(size);
        }
        if now.saturating_since(self.began_at) >= config.interval {
            self.range = MtuRange { low: self.sizes.mtu(mss), high: self.sizes.largest_packet().min(self.link_mtu) };
            self.began_at = now;
        }
        None
    }

    /// A probe with `data` leaves.
    pub(crate) fn note_probe(&mut self, data: SeqRange) {
        self.probe = Some(MtuProbe { size: self.sizes.mtu(data.len()), data });
    }

    /// Everything before `una` is acknowledged. Returns the size of the probe's packet if the probe is part of it.
    pub(crate) fn confirm(&mut self, una: Seq) -> Option<u32> {
        let probe = self.probe.take_if(|probe| probe.data.end.le(una))?;
        self.range = MtuRange { low: probe.size, high: self.range.high.min(self.pmtu) };
        Some(probe.size)
    }

    /// Whether the probe is under way and begins at `una`.
    pub(crate) fn has_probe_at(&self, una: Seq) -> bool {
        self.probe.is_some_and(|probe| probe.data.start == una)
    }

    /// The probe was lost, and nothing before it.
    pub(crate) fn reject(&mut self) {
        if let Some(probe) = self.probe.take() {
            self.range.high = probe.size - 1;
        }
    }

    /// Something is sent again: the fate of the probe proves nothing any more.
    pub(crate) fn forget_probe(&mut self) {
        self.probe = None;
    }

    /// Retransmissions have not got through for long: the search begins, or continues from below (Linux `tcp_mtu_probing`).
    pub(crate) fn suspect_black_hole(&mut self, now: Instant, config: &PathMtuConfig) {
        if !self.is_on {
            self.is_on = true;
            self.began_at = now;
            return;
        }
        let half = self.sizes.mss(self.range.low) / 2;
        let mss = half.min(config.base_mss.into()).max(config.floor_mss.into()).max(config.min_mss.into());
        self.range.low = self.sizes.mtu(mss);
    }
}

#[cfg(test)]
mod tests {
    use holdover_base::Duration;

    use super::*;

    const CONFIG: PathMtuConfig = PathMtuConfig { probing: MtuProbing::Always, ..PathMtuConfig::LINUX };
    /// IPv4 with timestamps.
    const SIZES: SegmentSizes = SegmentSizes { headers: 40, options: 12, peer_mss: 1460, min_mss: 48 };

    fn search() -> MtuSearch {
        MtuSearch::new(Instant::ZERO, &CONFIG, SIZES, 1500)
    }

    fn probe(search: &mut MtuSearch) -> Option<u32> {
        let mss = search.mss();
        let len = search.next_probe(Instant::ZERO, &CONFIG, mss)?;
        search.note_probe(SeqRange::new(Seq::new(100), Seq::new(100 + len)));
        Some(SIZES.mtu(len))
    }

    /// The sizes of the packets that probe a path which carries `path_mtu` bytes, and where the search ends.
    fn sizes_probed(path_mtu: u32) -> (Vec<u32>, u32) {
        let mut search = search();
        let mut sizes = Vec::new();
        while let Some(size) = probe(&mut search) {
            sizes.push(size);
            if size <= path_mtu {
                assert_eq!(search.confirm(Seq::new(100 + SIZES.mss(size))), Some(size));
            } else {
                assert!(search.has_probe_at(Seq::new(100)));
                search.reject();
            }
        }
        (sizes, SIZES.mtu(search.mss()))
    }

    #[test]
    fn sizes_of_packets_and_segments_belong_together() {
        assert_eq!((SIZES.mss(1500), SIZES.mtu(1448)), (1448, 1500));
        assert_eq!(SIZES.mss(9000), 1448, "the peer's MSS");
        assert_eq!(SIZES.mss(60), 36, "the least MSS, less the options");
        assert_eq!(SegmentSizes { min_mss: 0, ..SIZES }.mss(0), 1);
    }

    #[test]
    fn the_search_halves_its_range() {
        assert_eq!(sizes_probed(1500), (vec![1288, 1394, 1447, 1473, 1486, 1493], 1493));
        assert_eq!(sizes_probed(1400), (vec![1288, 1394, 1447, 1420, 1406, 1399], 1399));
        assert_eq!(sizes_probed(1000).1, 1076, "probes do not find less than the base");
    }

    #[test]
    fn a_finished_search_begins_anew_after_its_interval() {
        let mut search = search();
        while let Some(size) = probe(&mut search) {
            search.confirm(Seq::new(100 + SIZES.mss(size)));
        }
        let mss = search.mss();
        let at = Instant::ZERO + CONFIG.interval;
        assert_eq!(search.next_probe(at - Duration::from_nanos(1), &CONFIG, 500), None);
        assert_eq!(search.range(), Some(MtuRange { low: SIZES.mtu(mss), high: 1500 }));
        assert_eq!(search.next_probe(at, &CONFIG, 500), None);
        assert_eq!(search.range(), Some(MtuRange { low: 552, high: 1500 }));
        assert_eq!(search.next_probe(at, &CONFIG, 500), Some(SIZES.mss(1026)));
    }

    #[test]
    fn black_holes_halve_the_segments_down_to_the_floor() {
        let config = PathMtuConfig { probing: MtuProbing::AfterBlackHole, floor_mss: 100, ..CONFIG };
        let mut search = MtuSearch::new(Instant::ZERO, &config, SIZES, 1500);
        assert_eq!((search.mss(), search.range(), search.is_ready()), (1448, None, false));
        let mut sizes = Vec::new();
        for second in 1..=6 {
            search.suspect_black_hole(Instant::from_secs(second), &config);
            sizes.push(search.mss());
        }
        assert_eq!(sizes, [1024, 512, 256, 128, 100, 100]);
        assert_eq!(search.began_at, Instant::from_secs(1));
    }

    #[test]
    fn a_reported_mtu_bounds_the_search() {
        let mut search = search();
        assert!(search.set_smaller_pmtu(1200) && !search.set_smaller_pmtu(1400));
        assert_eq!(search.range(), Some(MtuRange { low: 1076, high: 1200 }));
        search.set_pmtu(1400);
        assert_eq!(search.range().unwrap().high, 1200, "until the search begins anew");
        assert!(search.set_smaller_pmtu(600));
        assert_eq!((search.mss(), probe(&mut search)), (548, None), "less than what got through");
    }

    #[test]
    fn a_probe_that_was_sent_again_proves_nothing() {
        let mut search = search();
        let range = search.range();
        assert_eq!(probe(&mut search), Some(1288));
        assert!(!search.is_ready() && search.confirm(Seq::new(100)).is_none());
        search.forget_probe();
        assert!(search.is_ready() && search.confirm(Seq::new(9_999)).is_none());
        search.reject();
        assert_eq!(search.range(), range);
    }
}
