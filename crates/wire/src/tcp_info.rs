//! The kernel's report about one of its TCP connections: `struct tcp_info` of `linux/tcp.h`.

use std::fmt;

use holdover_base::Duration;

/// The socket option `TCP_INFO`. Field names and order are the kernel's; times are [`Duration`]s, sequence space and
/// rates are bytes and bytes per second, congestion windows (`tcpi_snd_cwnd`, `tcpi_snd_ssthresh`) and the counts of
/// the scoreboard are segments. A field that an older kernel lacks is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the kernel's, whose documentation is linux/tcp.h")]
pub struct TcpInfo {
    pub tcpi_state: TcpState,
    pub tcpi_ca_state: CaState,
    /// Consecutive timeouts for the segment at `snd_una`.
    pub tcpi_retransmits: u8,
    /// Unanswered probes of a zero window or of keep-alive.
    pub tcpi_probes: u8,
    /// By how many bits the RTO is shifted left.
    pub tcpi_backoff: u8,
    /// Bits: 1 timestamps, 2 SACK, 4 window scale, 8 ECN, 16 ECN seen, 32 data in the SYN, 64 user timeout.
    pub tcpi_options: u8,
    pub tcpi_snd_wscale: u8,
    pub tcpi_rcv_wscale: u8,
    pub tcpi_delivery_rate_app_limited: bool,
    /// Why TCP Fast Open failed.
    pub tcpi_fastopen_client_fail: u8,
    pub tcpi_rto: Duration,
    pub tcpi_ato: Duration,
    pub tcpi_snd_mss: u32,
    pub tcpi_rcv_mss: u32,
    pub tcpi_unacked: u32,
    pub tcpi_sacked: u32,
    pub tcpi_lost: u32,
    pub tcpi_retrans: u32,
    pub tcpi_fackets: u32,
    pub tcpi_last_data_sent: Duration,
    pub tcpi_last_ack_sent: Duration,
    pub tcpi_last_data_recv: Duration,
    pub tcpi_last_ack_recv: Duration,
    pub tcpi_pmtu: u32,
    pub tcpi_rcv_ssthresh: u32,
    pub tcpi_rtt: Duration,
    pub tcpi_rttvar: Duration,
    pub tcpi_snd_ssthresh: u32,
    pub tcpi_snd_cwnd: u32,
    pub tcpi_advmss: u32,
    pub tcpi_reordering: u32,
    pub tcpi_rcv_rtt: Duration,
    pub tcpi_rcv_space: u32,
    /// Segments retransmitted since the connection's start.
    pub tcpi_total_retrans: u32,
    pub tcpi_pacing_rate: u64,
    pub tcpi_max_pacing_rate: u64,
    pub tcpi_bytes_acked: u64,
    pub tcpi_bytes_received: u64,
    pub tcpi_segs_out: u32,
    pub tcpi_segs_in: u32,
    pub tcpi_notsent_bytes: u32,
    pub tcpi_min_rtt: Duration,
    pub tcpi_data_segs_in: u32,
    pub tcpi_data_segs_out: u32,
    pub tcpi_delivery_rate: u64,
    pub tcpi_busy_time: Duration,
    pub tcpi_rwnd_limited: Duration,
    pub tcpi_sndbuf_limited: Duration,
    pub tcpi_delivered: u32,
    pub tcpi_delivered_ce: u32,
    pub tcpi_bytes_sent: u64,
    pub tcpi_bytes_retrans: u64,
    pub tcpi_dsack_dups: u32,
    pub tcpi_reord_seen: u32,
    pub tcpi_rcv_ooopack: u32,
    /// The window that the peer advertised last, scaled, in bytes.
    pub tcpi_snd_wnd: u32,
    /// The window that this side advertised last, scaled, in bytes (Linux 6.2).
    pub tcpi_rcv_wnd: u32,
    pub tcpi_rehash: u32,
    /// Timeouts since the connection's start (Linux 6.7, as the two that follow).
    pub tcpi_total_rto: u16,
    /// Recoveries from timeouts since the connection's start.
    pub tcpi_total_rto_recoveries: u16,
    /// Time spent in those recoveries.
    pub tcpi_total_rto_time: Duration,
}

/// A connection's state. `Display` prints RFC 9293's spelling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the states are RFC 9293's")]
pub enum TcpState {
    Established,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    TimeWait,
    Closed,
    CloseWait,
    LastAck,
    Listen,
    Closing,
    /// An unknown state.
    Other(u8),
}

/// The state of the kernel's loss recovery (`enum tcp_ca_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaState {
    /// Nothing is suspicious.
    Open,
    /// Duplicate ACKs or SACK blocks have come.
    Disorder,
    /// The window is being reduced for ECN or a local drop.
    Cwr,
    /// Fast retransmission is under way.
    Recovery,
    /// After a timeout.
    Loss,
    /// An unknown state.
    Other(u8),
}

impl TcpInfo {
    /// The largest `struct tcp_info` to request; the kernel fills in the fields that it has.
    pub const MAX_LEN: usize = 512;

    /// Parses the kernel's structure, which is longer in newer kernels.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut fields = Fields(bytes);
        let [state, ca_state, retransmits, probes, backoff, options, wscale, flags] = fields.take::<8>();
        // The compiler allocates bit fields from the low end on little-endian machines, from the high end on others.
        let (snd_wscale, rcv_wscale, app_limited, fastopen_fail) = if cfg!(target_endian = "little") {
            (wscale & 15, wscale >> 4, flags & 1, flags >> 1 & 3)
        } else {
            (wscale >> 4, wscale & 15, flags >> 7, flags >> 5 & 3)
        };
        Self {
            tcpi_state: TcpState::from_kernel(state),
            tcpi_ca_state: CaState::from_kernel(ca_state),
            tcpi_retransmits: retransmits,
            tcpi_probes: probes,
            tcpi_backoff: backoff,
            tcpi_options: options,
            tcpi_snd_wscale: snd_wscale,
            tcpi_rcv_wscale: rcv_wscale,
            tcpi_delivery_rate_app_limited: app_limited == 1,
            tcpi_fastopen_client_fail: fastopen_fail,
            // A struct expression evaluates its fields in the order in which they are written: the kernel's.
            tcpi_rto: fields.micros(),
            tcpi_ato: fields.micros(),
            tcpi_snd_mss: fields.u32(),
            tcpi_rcv_mss: fields.u32(),
            tcpi_unacked: fields.u32(),
            tcpi_sacked: fields.u32(),
            tcpi_lost: fields.u32(),
            tcpi_retrans: fields.u32(),
            tcpi_fackets: fields.u32(),
            tcpi_last_data_sent: fields.millis(),
            tcpi_last_ack_sent: fields.millis(),
            tcpi_last_data_recv: fields.millis(),
            tcpi_last_ack_recv: fields.millis(),
            tcpi_pmtu: fields.u32(),
            tcpi_rcv_ssthresh: fields.u32(),
            tcpi_rtt: fields.micros(),
            tcpi_rttvar: fields.micros(),
            tcpi_snd_ssthresh: fields.u32(),
            tcpi_snd_cwnd: fields.u32(),
            tcpi_advmss: fields.u32(),
            tcpi_reordering: fields.u32(),
            tcpi_rcv_rtt: fields.micros(),
            tcpi_rcv_space: fields.u32(),
            tcpi_total_retrans: fields.u32(),
            tcpi_pacing_rate: fields.u64(),
            tcpi_max_pacing_rate: fields.u64(),
            tcpi_bytes_acked: fields.u64(),
            tcpi_bytes_received: fields.u64(),
            tcpi_segs_out: fields.u32(),
            tcpi_segs_in: fields.u32(),
            tcpi_notsent_bytes: fields.u32(),
            tcpi_min_rtt: fields.micros(),
            tcpi_data_segs_in: fields.u32(),
            tcpi_data_segs_out: fields.u32(),
            tcpi_delivery_rate: fields.u64(),
            tcpi_busy_time: fields.micros64(),
            tcpi_rwnd_limited: fields.micros64(),
            tcpi_sndbuf_limited: fields.micros64(),
            tcpi_delivered: fields.u32(),
            tcpi_delivered_ce: fields.u32(),
            tcpi_bytes_sent: fields.u64(),
            tcpi_bytes_retrans: fields.u64(),
            tcpi_dsack_dups: fields.u32(),
            tcpi_reord_seen: fields.u32(),
            tcpi_rcv_ooopack: fields.u32(),
            tcpi_snd_wnd: fields.u32(),
            tcpi_rcv_wnd: fields.u32(),
            tcpi_rehash: fields.u32(),
            tcpi_total_rto: fields.u16(),
            tcpi_total_rto_recoveries: fields.u16(),
            tcpi_total_rto_time: fields.millis(),
        }
    }
}

/// The rest of the structure; beyond its end everything is 0.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((field, rest)) => {
                self.0 = rest;
                *field
            }
            None => {
                self.0 = &[];
                [0; N]
            }
        }
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    fn micros(&mut self) -> Duration {
        Duration::from_micros(self.u32().into())
    }

    fn micros64(&mut self) -> Duration {
        Duration::from_micros(self.u64())
    }

    fn millis(&mut self) -> Duration {
        Duration::from_millis(self.u32().into())
    }
}

impl TcpState {
    /// The numbers of `linux/tcp_states.h`; 12 is a SYN-RECEIVED that has no socket yet.
    fn from_kernel(number: u8) -> Self {
        match number {
            1 => Self::Established,
            2 => Self::SynSent,
            3 | 12 => Self::SynReceived,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            7 => Self::Closed,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for TcpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Established => "ESTABLISHED",
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
            Self::CloseWait => "CLOSE-WAIT",
            Self::LastAck => "LAST-ACK",
            Self::Listen => "LISTEN",
            Self::Closing => "CLOSING",
            Self::Other(number) => return write!(f, "state {number}"),
        })
    }
}

impl CaState {
    fn from_kernel(number: u8) -> Self {
        match number {
            0 => Self::Open,
            1 => Self::Disorder,
            2 => Self::Cwr,
            3 => Self::Recovery,
            4 => Self::Loss,
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets are those of `struct tcp_info` compiled for x86-64.
    #[test]
    fn fields_are_read_where_the_kernel_puts_them() {
        let mut bytes = [0; 256];
        let mut put = |offset: usize, value: u32| bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        put(8, 204_000);
        put(44, 9);
        put(68, 25_000);
        put(80, 10);
        put(100, 3);
        put(120, 1_000_000);
        put(136, 77);
        put(160, 5);
        put(192, 12);
        put(200, 13);
        put(228, 65_535);
        put(240, 2 | 1 << 16);
        put(244, 7);
        bytes[0] = 4;
        bytes[1] = 3;
        let info = TcpInfo::from_bytes(&bytes);
        assert_eq!(info.tcpi_state.to_string(), "FIN-WAIT-1");
        assert_eq!(info.tcpi_ca_state, CaState::Recovery);
        assert_eq!(info.tcpi_rto, Duration::from_millis(204));
        assert_eq!(info.tcpi_last_data_sent, Duration::from_millis(9));
        assert_eq!(info.tcpi_rtt, Duration::from_millis(25));
        assert_eq!(info.tcpi_snd_cwnd, 10);
        assert_eq!(info.tcpi_total_retrans, 3);
        assert_eq!(info.tcpi_bytes_acked, 1_000_000);
        assert_eq!(info.tcpi_segs_out, 77);
        assert_eq!(info.tcpi_delivery_rate, 5);
        assert_eq!(info.tcpi_delivered, 12);
        assert_eq!(info.tcpi_bytes_sent, 13);
        assert_eq!(info.tcpi_snd_wnd, 65_535);
        assert_eq!(info.tcpi_total_rto_time, Duration::from_millis(7));
        if cfg!(target_endian = "little") {
            assert_eq!((info.tcpi_total_rto, info.tcpi_total_rto_recoveries), (2, 1));
        }
    }

    #[test]
    fn a_short_structure_leaves_zeros() {
        let info = TcpInfo::from_bytes(&[1; 104]);
        assert_eq!(info.tcpi_state, TcpState::Established);
        assert_eq!(info.tcpi_total_retrans, 0x0101_0101);
        assert_eq!((info.tcpi_pacing_rate, info.tcpi_total_rto_time), (0, Duration::ZERO));
        assert_eq!(TcpInfo::from_bytes(&[]).tcpi_state, TcpState::Other(0));
    }
}
