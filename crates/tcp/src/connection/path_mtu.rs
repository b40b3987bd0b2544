//! Path MTU discovery: ICMP errors that report it (PMTUD, RFC 1191, RFC 8201), and probes that search for it (PLPMTUD, RFC 4821).
//!
//! `path_mtu.rs` beside this directory decides on sizes. This file applies them to the connection: when a probe can be sent, how its ACK or
//! loss changes the congestion window, and when timeouts indicate a black hole. The conditions are Linux's (`tcp_mtu_probe`).

use holdover_base::Instant;
use holdover_wire::{Seq, SeqRange};

use super::Connection;
use super::choice::{Blocked, Choice};
use super::fields::TIMESTAMPS_LEN;
use super::icmp::IcmpEffect;
use crate::config::{MtuProbing, UnreportedMtu};
use crate::counters::Reason;
use crate::path_mtu::{MtuRange, MtuSearch, SegmentSizes};
use crate::recovery::RecoveryState;

/// A smaller path MTU of IPv4 is more likely an attack than a path, and counts as this one (Linux `min_pmtu`).
const LEAST_IPV4: u32 = 552;
/// No path of IPv6 has a smaller MTU (RFC 8200 section 5).
const LEAST_IPV6: u32 = 1280;
/// The plateaus of RFC 1191 section 7.1, in bytes, each a little below the MTUs of several kinds of networks; those below [`LEAST_IPV4`] are
/// not believed.
const PLATEAUS: [u32; 8] = [65_535, 32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006];
/// A probe takes part of a window of at least this many segments (Linux `tcp_mtu_probe`).
const LEAST_WINDOW: u32 = 11;

impl Connection {
    /// The range in which the path MTU is searched; `None` while it is not (see [`crate::PathMtuConfig::probing`]).
    pub fn path_mtu_range(&self) -> Option<MtuRange> {
        self.steering.mtu_search.as_ref().and_then(|search| search.range())
    }

    /// The MTU of the path according to the owner has changed: that of a route or an interface. Without a search only a smaller one counts.
    /// Outstanding segments stay as they are.
    pub fn set_path_mtu(&mut self, mtu: u32) {
        let sizes = self.sizes_by_header();
        match self.steering.mtu_search_mut() {
            Some(search) => {
                search.set_pmtu(mtu);
                self.snd.mss = search.mss();
            }
            None => self.snd.mss = self.snd.mss.min(sizes.mss(mtu)),
        }
    }

    /// The handshake has agreed on options, and on segments of at most `peer_mss` bytes with theirs.
    pub(super) fn start_mtu_search(&mut self, now: Instant, peer_mss: u16) {
        let config = &self.config.path_mtu;
        if config.probing == MtuProbing::Off {
            return;
        }
        let sizes = SegmentSizes { peer_mss: peer_mss.into(), ..self.sizes_by_header() };
        let pmtu = sizes.headers + u32::from(self.config.mss);
        let search = MtuSearch::new(now, config, sizes, pmtu);
        // In Linux the passively opened end begins with the interface's MTU.
        if !self.passive {
            self.snd.mss = search.mss();
        }
        self.steering.to_mut().mtu_search = Some(Box::new(search));
    }

    /// Sizes of segments by their headers alone.
    fn sizes_by_header(&self) -> SegmentSizes {
        SegmentSizes {
            headers: 20 + if self.remote.ip.is_ipv6() { 40 } else { 20 },
            options: if self.timestamps.is_some() { TIMESTAMPS_LEN.into() } else { 0 },
            peer_mss: u16::MAX.into(),
            min_mss: self.config.path_mtu.min_mss.into(),
        }
    }

    /// The length of a packet with a segment of the largest size.
    pub(super) fn largest_packet(&self) -> u32 {
        let SegmentSizes { headers, options, .. } = self.sizes_by_header();
        self.snd.mss + options + headers
    }

    /// A router has reported the MTU of its next hop, for a packet of `packet_len` bytes: larger segments are split and sent again.
    pub(super) fn shrink_to_mtu(&mut self, mtu: u32, packet_len: u32) -> IcmpEffect {
        let SegmentSizes { headers, options, .. } = self.sizes_by_header();
        let mtu = match mtu {
            // It is not believed (RFC 8201 section 4).
            ..LEAST_IPV6 if self.remote.ip.is_ipv6() => return IcmpEffect::Ignored,
            // By the packet that was dropped: each one of a flight is reported, and the later reports must not lower the MTU further (RFC 1191
            // section 5).
            0 => self.guess_mtu(packet_len),
            _ => mtu,
        }
        .max(LEAST_IPV4);
        let mss = mtu.saturating_sub(headers + options).max(1);
        if self.shrink_syn(mss + options) {
            return IcmpEffect::SmallerSegments;
        }
        let mss = match self.steering.mtu_search_mut() {
            // The packet may have been a probe.
            Some(search) => {
                if !search.set_smaller_pmtu(mss + options + headers) {
                    return IcmpEffect::Ignored;
                }
                search.mss()
            }
            None if mss >= self.snd.mss => return IcmpEffect::Ignored,
            None => mss,
        };
        self.snd.mss = mss;
        if self.retransmit_too_large() {
            self.retransmit_head = self.queue.front().filter(|front| front.lost).map(|_| Reason::LossRecovery);
        }
        IcmpEffect::SmallerSegments
    }

    /// The path MTU behind an IPv4 router that does not report its own, if packets of `size` bytes do not pass it.
    fn guess_mtu(&self, size: u32) -> u32 {
        match self.config.path_mtu.unreported {
            UnreportedMtu::Least => LEAST_IPV4,
            UnreportedMtu::Plateau => PLATEAUS.into_iter().find(|&plateau| plateau < size).unwrap_or(LEAST_IPV4),
        }
    }

    /// Segments larger than the present size were lost by their size (Linux `tcp_simple_retransmit`). Returns whether anything was lost.
    fn retransmit_too_large(&mut self) -> bool {
        let mss = self.snd.mss;
        self.queue.mark_all_lost(|_, sent| sent.payload.len() as u32 <= mss);
        let is_any_lost = self.queue.lost() > 0;
        if is_any_lost {
            self.repair_without_congestion();
        }
        is_any_lost
    }

    /// A probe that can be sent instead of new data, or why new data waits for one; `None` if neither.
    #[inline(never)]
    pub(super) fn choose_mtu_probe(&mut self, now: Instant) -> Option<Result<Choice, Blocked>> {
        let in_flight = self.queue.in_flight();
        let (mss, cwnd) = (self.snd.mss, self.congestion.cwnd());
        // Other options than timestamps would make it longer than intended.
        let has_plain_header = self.data_room() == mss;
        let search = self.steering.mtu_search_mut()?;
        if !search.is_ready()
            || self.recovery.state != RecoveryState::Open
            || cwnd < LEAST_WINDOW
            || !has_plain_header
            || !self.state.may_send()
        {
            return None;
        }
        let len = search.next_probe(now, &self.config.path_mtu, mss)?;
        // Enough segments behind it show by duplicate ACKs that it was lost.
        let behind = self.recovery.reordering.saturating_add(1).saturating_mul(mss);
        let needed = len.saturating_add(behind);
        if (self.unsent.front_len() as u64) < u64::from(needed) || self.snd.wnd < needed {
            return None;
        }
        if (self.snd.nxt + needed).gt(self.window_edge()) {
            return Some(Err(Blocked::MtuProbe));
        }
        // It counts as two segments in the window.
        if in_flight + 2 > cwnd {
            return (in_flight > 0).then_some(Err(Blocked::MtuProbe));
        }
        self.pacer_is_open(now).then_some(Ok(Choice::New(len, false, Reason::MtuProbe)))
    }

    /// A probe with data from `seq` on leaves.
    #[cold]
    pub(super) fn note_mtu_probe(&mut self, seq: Seq) {
        if let Some(search) = self.steering.mtu_search_mut() {
            search.note_probe(SeqRange::new(seq, self.snd.nxt));
            self.congestion.set_cwnd(&self.config.congestion, self.congestion.cwnd() - 1);
        }
    }

    /// SND.UNA has advanced: if it covers the probe, segments are larger from now on, and fewer of them fill the window (Linux
    /// `tcp_mtup_probe_success`).
    #[inline(never)]
    pub(super) fn confirm_mtu_probe(&mut self, now: Instant) {
        let Some(search) = self.steering.mtu_search_mut() else { return };
        let Some(size) = search.confirm(self.snd.una) else { return };
        let mtu_before = search.sizes().mtu(self.snd.mss);
        self.snd.mss = search.mss();
        let is_reducing = matches!(self.recovery.state, RecoveryState::Cwr | RecoveryState::Recovery);
        if let Some(episode) = self.recovery.episode.if_present() {
            episode.prior_ssthresh = self.congestion.ssthresh_for_current(is_reducing);
        }
        let cwnd = u64::from(self.congestion.cwnd()) * u64::from(mtu_before) / u64::from(size.max(1));
        self.congestion.set_cwnd(&self.config.congestion, u32::try_from(cwnd).unwrap_or(u32::MAX));
        self.congestion.clear_credit();
        self.congestion.set_by_recovery(now);
        let ssthresh = self.congestion.ssthresh_for_current(is_reducing);
        self.congestion.set_ssthresh(ssthresh);
    }

    /// Recovery is about to begin. Returns whether the probe is the first segment that was lost: it was too large, which is not a sign of
    /// congestion (RFC 4821 section 7.6.1), and its data is sent again in smaller segments.
    #[inline(never)]
    pub(super) fn reject_mtu_probe(&mut self) -> bool {
        let una = self.snd.una;
        let is_open = self.recovery.state < RecoveryState::Cwr;
        let Some(search) = self.steering.mtu_search_mut().filter(|search| is_open && search.has_probe_at(una)) else {
            return false;
        };
        search.reject();
        // The window gets back the segment of the probe.
        self.congestion.set_cwnd(&self.config.congestion, self.congestion.cwnd() + 1);
        self.retransmit_too_large();
        true
    }

    /// The retransmission timer has run out although segments were retransmitted for as long as R1 allows.
    #[cold]
    pub(super) fn suspect_black_hole(&mut self, now: Instant) {
        if let Some(search) = self.steering.mtu_search_mut() {
            search.suspect_black_hole(now, &self.config.path_mtu);
            self.snd.mss = search.mss();
        }
    }
}
