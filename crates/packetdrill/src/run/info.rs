//! `tcp_info` for the code of scripts.

use holdover_base::{Duration, Instant};
use holdover_tcp::{Connection, RecoveryState};

use crate::code::Variables;
use crate::constants::STATES;
use crate::kernel::{BusyTimes, Kernel};

/// Linux's initial ssthresh.
const INFINITE_SSTHRESH: i64 = 0x7fff_ffff;

/// The kernel's constants for values of `tcp_info`.
pub(super) fn named_values() -> Variables {
    let mut variables = Variables::default();
    let others = [
        ("TCP_CA_Open", 0),
        ("TCP_CA_Disorder", 1),
        ("TCP_CA_CWR", 2),
        ("TCP_CA_Recovery", 3),
        ("TCP_CA_Loss", 4),
        ("TCPI_OPT_TIMESTAMPS", 1),
        ("TCPI_OPT_SACK", 2),
        ("TCPI_OPT_WSCALE", 4),
        ("TCPI_OPT_ECN", 8),
        ("TCPI_OPT_ECN_SEEN", 16),
        ("TCPI_OPT_SYN_DATA", 32),
        ("TCPI_OPT_USEC_TS", 64),
        ("TCPI_OPT_TFO_CHILD", 128),
    ];
    for &(name, value) in STATES.iter().chain(&others) {
        variables.set(name, value);
    }
    variables
}

/// Sets the fields of `tcp_info` that Holdover has. Others stay undefined.
pub(super) fn set_variables(connection: &Connection, now: Instant, times: BusyTimes, variables: &mut Variables) {
    let counters = connection.counters();
    let micros = |duration: Duration| duration.as_micros() as i64;
    let scales = connection.window_scales();
    let options = i64::from(connection.timestamps_agreed())
        + 2 * i64::from(connection.sack_agreed())
        + 4 * i64::from(scales.is_some())
        + 8 * i64::from(connection.ecn_agreed())
        + 16 * i64::from(connection.ecn_seen())
        + 32 * i64::from(connection.syn_data_taken())
        + 128 * i64::from(connection.was_early());
    let (delivered, received) = (connection.delivered_ecn_bytes(), connection.received_ecn_bytes());
    let fields: &[(&str, i64)] = &[
        ("tcpi_state", Kernel::tcp_state(connection)),
        ("tcpi_ca_state", ca_state(connection.recovery_state())),
        ("tcpi_retransmits", connection.retransmits().into()),
        ("tcpi_probes", connection.unanswered_probes().into()),
        ("tcpi_backoff", connection.backoff().into()),
        ("tcpi_options", options),
        ("tcpi_snd_wscale", scales.map_or(0, |(snd, _)| snd.into())),
        ("tcpi_rcv_wscale", scales.map_or(0, |(_, rcv)| rcv.into())),
        ("tcpi_rto", micros(connection.rto())),
        ("tcpi_snd_mss", connection.snd_mss().into()),
        ("tcpi_rcv_mss", connection.rcv_mss().into()),
        ("tcpi_unacked", connection.unacked().into()),
        ("tcpi_sacked", connection.sacked().into()),
        ("tcpi_lost", connection.lost().into()),
        ("tcpi_retrans", connection.retransmitted().into()),
        ("tcpi_fackets", 0),
        ("tcpi_last_data_sent", now.saturating_since(connection.last_data_sent_at()).as_millis() as i64),
        ("tcpi_last_data_recv", now.saturating_since(connection.last_data_received_at()).as_millis() as i64),
        ("tcpi_rtt", connection.srtt().map_or(0, micros)),
        ("tcpi_rttvar", micros(connection.rttvar())),
        ("tcpi_min_rtt", connection.min_rtt().map_or(i64::from(u32::MAX), micros)),
        ("tcpi_snd_ssthresh", connection.ssthresh().map_or(INFINITE_SSTHRESH, i64::from)),
        ("tcpi_snd_cwnd", connection.cwnd().into()),
        ("tcpi_advmss", connection.config().mss.into()),
        ("tcpi_reordering", connection.reordering().into()),
        ("tcpi_reord_seen", connection.reordering_seen().into()),
        ("tcpi_bytes_acked", counters.bytes_acked.0 as i64),
        ("tcpi_bytes_received", counters.bytes_received.0 as i64),
        ("tcpi_bytes_sent", (counters.bytes_sent.0 + counters.bytes_retransmitted.0) as i64),
        ("tcpi_bytes_retrans", counters.bytes_retransmitted.0 as i64),
        ("tcpi_segs_out", counters.segments_sent as i64),
        ("tcpi_segs_in", counters.segments_received as i64),
        ("tcpi_notsent_bytes", connection.unsent_len() as i64),
        ("tcpi_snd_wnd", connection.snd_wnd().into()),
        ("tcpi_delivered", counters.delivered.into()),
        ("tcpi_delivered_ce", connection.delivered_ce().into()),
        ("tcpi_delivered_e0_bytes", delivered.ect0.into()),
        ("tcpi_delivered_e1_bytes", delivered.ect1.into()),
        ("tcpi_delivered_ce_bytes", delivered.ce.into()),
        ("tcpi_received_ce", connection.received_ce().into()),
        ("tcpi_received_e0_bytes", received.ect0.into()),
        ("tcpi_received_e1_bytes", received.ect1.into()),
        ("tcpi_received_ce_bytes", received.ce.into()),
        ("tcpi_total_rto", counters.timeouts.into()),
        ("tcpi_busy_time", micros(times.busy)),
        ("tcpi_rwnd_limited", micros(times.limited_by_peer)),
        ("tcpi_sndbuf_limited", micros(times.limited_by_buffer)),
    ];
    for &(name, value) in fields {
        variables.set(name, value);
    }
}

fn ca_state(state: RecoveryState) -> i64 {
    match state {
        RecoveryState::Open => 0,
        RecoveryState::Disorder => 1,
        RecoveryState::Cwr => 2,
        RecoveryState::Recovery => 3,
        RecoveryState::Loss => 4,
    }
}

/// The values of the variables mentioned in a text.
pub(super) fn mentioned(text: &str, variables: &Variables) -> String {
    let mut found: Vec<String> = Vec::new();
    for name in text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')) {
        if let Some(value) = variables.value(name).filter(|_| name.chars().any(char::is_lowercase)) {
            let shown = format!("{name} = {value}");
            if !found.contains(&shown) {
                found.push(shown);
            }
        }
    }
    found.join(", ")
}
