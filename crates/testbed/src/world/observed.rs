//! The kernel's reports about its connections, under the simulator's names.

use holdover_base::{ByteCount, Duration};
use holdover_sim::{ConnectionReport, Sample};
use holdover_tcp::{Reason, RecoveryState, State};

use crate::{CaState, Counters, TcpInfo, TcpState};

/// `TCP_INFO` as a sample, without the bytes read by the peer's application.
pub(crate) fn sample(info: &TcpInfo) -> Sample {
    Sample {
        state: state(info.tcpi_state),
        ca_state: match info.tcpi_ca_state {
            CaState::Disorder => RecoveryState::Disorder,
            CaState::Cwr => RecoveryState::Cwr,
            CaState::Recovery => RecoveryState::Recovery,
            CaState::Loss => RecoveryState::Loss,
            CaState::Open | CaState::Other(_) => RecoveryState::Open,
        },
        snd_cwnd: info.tcpi_snd_cwnd,
        snd_ssthresh: (info.tcpi_snd_ssthresh < UNLIMITED).then_some(info.tcpi_snd_ssthresh),
        unacked: info.tcpi_unacked,
        sacked: info.tcpi_sacked,
        lost: info.tcpi_lost,
        rto: info.tcpi_rto,
        rtt: info.tcpi_rtt,
        rttvar: if info.tcpi_rtt.is_zero() { Duration::ZERO } else { info.tcpi_rttvar },
        backoff: info.tcpi_backoff.into(),
        retransmits: info.tcpi_retransmits.into(),
        snd_wnd: info.tcpi_snd_wnd,
        bytes_acked: acked(info),
        bytes_retrans: info.tcpi_bytes_retrans,
        bytes_received: 0,
    }
}

/// The counters of a connection. Counters that the kernel keeps for a whole namespace only are taken from `host`, if the connection is the
/// only one there, and are 0 otherwise.
pub(crate) fn report(info: &TcpInfo, host: Option<&Counters>) -> ConnectionReport {
    let mut counters = holdover_tcp::Counters::default();
    counters.bytes_sent = ByteCount(info.tcpi_bytes_sent.saturating_sub(info.tcpi_bytes_retrans));
    counters.bytes_retransmitted = ByteCount(info.tcpi_bytes_retrans);
    counters.bytes_acked = ByteCount(acked(info));
    // The kernel counts the peer's FIN as a byte.
    let fin = u64::from(!matches!(state(info.tcpi_state), State::Established | State::FinWait1 | State::FinWait2));
    counters.bytes_received = ByteCount(info.tcpi_bytes_received.saturating_sub(fin));
    counters.segments_sent = info.tcpi_segs_out.into();
    counters.segments_received = info.tcpi_segs_in.into();
    counters.timeouts = info.tcpi_total_rto.into();
    if let Some(host) = host {
        let of = |names: &[&str]| -> u32 {
            names.iter().map(|name| host.get(name).map_or(0, |count| u32::try_from(count).unwrap_or(0))).sum()
        };
        counters.recoveries = of(&["TcpExtTCPSackRecovery", "TcpExtTCPRenoRecovery"]);
        counters.undos = of(&["TcpExtTCPFullUndo", "TcpExtTCPPartialUndo", "TcpExtTCPDSACKUndo", "TcpExtTCPLossUndo"]);
        // The kernel counts every segment of a recovery as a fast retransmit; each recovery begins with one.
        let in_recovery = of(&["TcpExtTCPFastRetrans"]);
        let first = counters.recoveries.min(in_recovery);
        counters.add_sent(Reason::FastRetransmit, first);
        counters.add_sent(Reason::LossRecovery, in_recovery - first + of(&["TcpExtTCPSlowStartRetrans"]));
        counters.add_sent(Reason::LossProbe, of(&["TcpExtTCPLossProbes"]));
        counters.add_sent(Reason::Timeout, counters.timeouts);
    }
    ConnectionReport { counters, snd_mss: info.tcpi_snd_mss }
}

/// `TCP_INFINITE_SSTHRESH` of `net/tcp.h`.
const UNLIMITED: u32 = 0x7fff_ffff;

/// Acknowledged data. The kernel counts the SYN of the end that opened the connection as well.
fn acked(info: &TcpInfo) -> u64 {
    info.tcpi_bytes_acked.min(info.tcpi_bytes_sent.saturating_sub(info.tcpi_bytes_retrans))
}

fn state(state: TcpState) -> State {
    match state {
        TcpState::Established => State::Established,
        TcpState::SynSent => State::SynSent,
        TcpState::SynReceived => State::SynReceived,
        TcpState::FinWait1 => State::FinWait1,
        TcpState::FinWait2 => State::FinWait2,
        TcpState::TimeWait => State::TimeWait,
        TcpState::CloseWait => State::CloseWait,
        TcpState::LastAck => State::LastAck,
        TcpState::Closing => State::Closing,
        TcpState::Closed | TcpState::Listen | TcpState::Other(_) => State::Closed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_syn_is_no_data() {
        let info = TcpInfo {
            tcpi_bytes_sent: 1500,
            tcpi_bytes_retrans: 500,
            tcpi_bytes_acked: 1001,
            tcpi_snd_ssthresh: UNLIMITED,
            tcpi_total_rto: 3,
            ..TcpInfo::from_bytes(&[])
        };
        let ConnectionReport { counters, .. } = report(&info, None);
        assert_eq!((counters.bytes_sent.0, counters.bytes_acked.0, counters.timeouts), (1000, 1000, 3));
        assert_eq!((sample(&info).snd_ssthresh, sample(&info).bytes_acked), (None, 1000));
    }
}
