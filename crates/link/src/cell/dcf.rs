//! Timing of the IEEE 802.11 distributed coordination function.

use holdover_base::{BitRate, ByteCount, Duration};

/// The parameters of the medium access. The default is the direct-sequence PHY of IEEE 802.11-1997 at 2 Mb/s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dcf {
    /// aSlotTime.
    pub slot: Duration,
    /// aSIFSTime: between the frames of one exchange.
    pub sifs: Duration,
    /// aCWmin: the first backoff is 0 to this many slots.
    pub cw_min: u32,
    /// aCWmax.
    pub cw_max: u32,
    /// Preamble and PLCP header, in front of every frame.
    pub plcp: Duration,
    /// Rate of data frames to one station.
    pub data_rate: BitRate,
    /// Rate of control frames and of broadcasts, supported by every station.
    pub basic_rate: BitRate,
    /// Overhead of a data frame around the packet.
    pub header_bytes: u32,
    /// dot11RTSThreshold: data frames longer than this, headers included, are announced with RTS.
    pub rts_threshold_bytes: u32,
    /// dot11ShortRetryLimit: a frame is dropped after this many unanswered attempts.
    pub retry_limit: u32,
    /// The choice of the backoff.
    pub contention: Contention,
}

/// The choice of the backoff, and of the next sender.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Contention {
    /// Every backoff has its mean length and the nodes with a frame take turns: no randomness and no collisions. One node
    /// gets its true mean rate; several get a little less than their true sum, since they would count down together.
    #[default]
    Mean,
    /// Each node draws its slots and counts them down while the medium is idle; those that reach zero together collide.
    Drawn,
}

impl Default for Dcf {
    fn default() -> Self {
        Self::DSSS_2_MBPS
    }
}

impl Dcf {
    /// RTS (IEEE 802.11-1997 section 7.2.1.1): frame control, duration, two addresses, FCS.
    pub const RTS_BYTES: u32 = 20;
    /// CTS (section 7.2.1.2): frame control, duration, one address, FCS.
    pub const CTS_BYTES: u32 = 14;
    /// Acknowledgment (section 7.2.1.3), as long as a CTS.
    pub const ACK_BYTES: u32 = 14;

    /// The direct-sequence PHY of IEEE 802.11-1997 (section 15.3.3: slot 20 us, SIFS 10 us, aCWmin 31, aCWmax 1023, preamble
    /// 144 us, PLCP header 48 us, both at 1 Mb/s) at its 2 Mb/s; control frames at 1 Mb/s and every data frame announced with
    /// RTS, as in ns-2. A data frame has 24 bytes of MAC header, 4 of FCS (section 7.2.2) and 8 of LLC/SNAP (RFC 1042).
    /// The retry limit is the default of section 11.4.4.2.6.
    pub const DSSS_2_MBPS: Self = Self {
        slot: Duration::from_micros(20),
        sifs: Duration::from_micros(10),
        cw_min: 31,
        cw_max: 1023,
        plcp: Duration::from_micros(144 + 48),
        data_rate: BitRate::from_mbps(2),
        basic_rate: BitRate::from_mbps(1),
        header_bytes: 24 + 4 + 8,
        rts_threshold_bytes: 0,
        retry_limit: 7,
        contention: Contention::Mean,
    };

    /// DIFS: SIFS and two slots (section 9.2.10), 50 us here.
    pub fn difs(&self) -> Duration {
        self.sifs + self.slot * 2
    }

    /// Airtime of an RTS.
    pub fn rts(&self) -> Duration {
        self.control(Self::RTS_BYTES)
    }

    /// Airtime of a CTS.
    pub fn cts(&self) -> Duration {
        self.control(Self::CTS_BYTES)
    }

    /// Airtime of an acknowledgment.
    pub fn ack(&self) -> Duration {
        self.control(Self::ACK_BYTES)
    }

    /// Airtime of a data frame to one station around a packet of `len` bytes.
    pub fn data(&self, len: u32) -> Duration {
        self.plcp + self.data_rate.transmission_time(self.framed(len))
    }

    /// Airtime of a broadcast around a packet of `len` bytes.
    pub fn broadcast(&self, len: u32) -> Duration {
        self.plcp + self.basic_rate.transmission_time(self.framed(len))
    }

    /// Whether a packet of `len` bytes is announced with RTS.
    pub fn uses_rts(&self, len: u32) -> bool {
        self.framed(len).0 > u64::from(self.rts_threshold_bytes)
    }

    /// From the first bit of the exchange to the last bit of the data frame.
    pub fn until_data_received(&self, len: u32) -> Duration {
        if self.uses_rts(len) {
            self.rts() + self.sifs + self.cts() + self.sifs + self.data(len)
        } else {
            self.data(len)
        }
    }

    /// From the first bit of the exchange to the last bit of the acknowledgment.
    pub fn exchange(&self, len: u32) -> Duration {
        self.until_data_received(len) + self.sifs + self.ack()
    }

    /// The cost of an unanswered attempt: the first frame, and the answer timeout (SIFS, a slot and the PHY's delay,
    /// which here is preamble and PLCP header).
    pub fn unanswered(&self, len: u32) -> Duration {
        let first = if self.uses_rts(len) { self.rts() } else { self.data(len) };
        first + self.answer_timeout()
    }

    /// How long a sender waits for the first bit of an answer (section 9.2.8).
    pub fn answer_timeout(&self) -> Duration {
        self.sifs + self.slot + self.plcp
    }

    /// The contention window after this many consecutive failures, in slots.
    pub fn contention_window(&self, failures: u32) -> u32 {
        let doubled = (u64::from(self.cw_min) + 1).checked_shl(failures).unwrap_or(u64::MAX);
        u32::try_from(doubled.saturating_sub(1)).unwrap_or(u32::MAX).min(self.cw_max)
    }

    /// The mean backoff after this many consecutive failures.
    pub fn mean_backoff(&self, failures: u32) -> Duration {
        self.slot * u64::from(self.contention_window(failures)) / 2
    }

    /// How long a node without answers retries before it drops a packet of `len` bytes.
    pub fn gives_up_after(&self, len: u32) -> Duration {
        (0..self.retry_limit).fold(Duration::ZERO, |sum, failures| {
            sum + self.difs() + self.mean_backoff(failures) + self.unanswered(len)
        })
    }

    fn framed(&self, len: u32) -> ByteCount {
        ByteCount(u64::from(len) + u64::from(self.header_bytes))
    }

    fn control(&self, bytes: u32) -> Duration {
        self.plcp + self.basic_rate.transmission_time(ByteCount(u64::from(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frames_of_an_exchange_add_up() {
        let dcf = Dcf::default();
        let us = Duration::from_micros;
        assert_eq!(dcf.difs(), us(50));
        assert_eq!(dcf.rts(), us(192 + 160));
        assert_eq!(dcf.cts(), us(192 + 112));
        assert_eq!(dcf.ack(), us(192 + 112));
        assert_eq!(dcf.data(1000), us(192 + 1036 * 4));
        assert_eq!(dcf.broadcast(50), us(192 + 86 * 8));
        assert_eq!(dcf.exchange(1000), us(352 + 10 + 304 + 10 + 4336 + 10 + 304));
        assert_eq!(dcf.mean_backoff(0), us(310));
        let basic = Dcf { rts_threshold_bytes: 2347, ..dcf };
        assert_eq!(basic.exchange(1000), us(4336 + 10 + 304));
    }

    #[test]
    fn the_window_doubles_up_to_its_maximum() {
        let dcf = Dcf::default();
        let windows: Vec<u32> = (0..8).map(|failures| dcf.contention_window(failures)).collect();
        assert_eq!(windows, [31, 63, 127, 255, 511, 1023, 1023, 1023]);
        assert_eq!(dcf.contention_window(200), 1023);
    }
}
