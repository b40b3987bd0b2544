//! Checks of a completed run: equal streams, the negotiated options, plausible `TCP_INFO`, and kernel counters without
//! errors.

use holdover_base::{Duration, Instant};
use holdover_tcp::{Connection, Disposition, Endpoint};

use super::{Application, Combination, Digest, Family, Flow, Opening, Path};
use crate::{Counters, ImpairmentCounters, Shell, TcpInfo, TunDirection};

/// The data available after a run.
pub(super) struct Evidence<'a> {
    pub(super) combination: &'a Combination,
    pub(super) bytes: u64,
    pub(super) application: &'a Application,
    pub(super) connection: Option<&'a Connection>,
    pub(super) endpoint: &'a Endpoint,
    pub(super) lost_in_outage: u64,
    pub(super) kernel: &'a KernelEnd,
    pub(super) counters: &'a Counters,
    pub(super) shell: &'a Shell<'a>,
}

/// The final state of the kernel's side.
pub(super) struct KernelEnd {
    pub(super) sent: Digest,
    pub(super) received: Digest,
    pub(super) first_difference: Option<u64>,
    pub(super) congestion: String,
    /// At the end of our side's stream.
    pub(super) info_at_end: TcpInfo,
    /// At the end of the connection.
    pub(super) info: TcpInfo,
    pub(super) done_at: Instant,
}

/// Bits of `tcpi_options`.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WINDOW_SCALE: u8 = 4;
const ECN: u8 = 8;
const ECN_SEEN: u8 = 16;

/// Counters that must be zero on every path: each indicates a violation by the peer, or a shortage in the kernel.
/// `nstat` prints their names.
const NEVER: &[&str] = &[
    "TcpAttemptFails",
    "TcpEstabResets",
    "TcpExtListenDrops",
    "TcpExtListenOverflows",
    "TcpExtRcvPruned",
    "TcpExtOfoPruned",
    "TcpExtTCPRcvQDrop",
    "TcpExtTCPBacklogDrop",
    "TcpExtTCPOFODrop",
    "TcpExtTCPZeroWindowDrop",
    "TcpExtBeyondWindow",
    "TcpExtTCPAbortOnData",
    "TcpExtTCPAbortOnClose",
    "TcpExtTCPAbortOnMemory",
    "TcpExtTCPAbortOnTimeout",
    "TcpExtTCPAbortOnLinger",
    "TcpExtTCPAbortFailed",
    "TcpExtTCPSACKReneging",
    "TcpExtTCPMD5Unexpected",
    "TcpExtPFMemallocDrop",
    "TcpExtTCPMinTTLDrop",
    "TcpExtTCPReqQFullDrop",
    "TcpExtTCPWinProbeNoReset",
];
/// Counters of damaged packets: zero where none were damaged.
const DAMAGE: &[&str] = &[
    "TcpInErrs",
    "TcpExtTCPInCsumErrors",
    "IpInHdrErrors",
    "IpInAddrErrors",
    "IpInUnknownProtos",
    "Ip6InHdrErrors",
    "Ip6InAddrErrors",
    "Ip6InUnknownProtos",
    "Ip6InTruncatedPkts",
];
/// One or two challenge ACKs may answer a handshake or a FIN impaired by the path; more show a fault.
const MOST_CHALLENGES: u32 = 4;

/// The violated expectations.
pub(super) fn findings(evidence: &Evidence<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    check_streams(evidence, &mut findings);
    check_info(evidence, &mut findings);
    check_counters(evidence, &mut findings);
    check_our_side(evidence, &mut findings);
    check_path(evidence, &mut findings);
    findings
}

fn check_streams(evidence: &Evidence<'_>, findings: &mut Vec<String>) {
    let Evidence { combination: Combination { flow, .. }, bytes, application, kernel, .. } = evidence;
    let (we_send, kernel_sends) = (flow.we_send(), flow.kernel_sends());
    let sent = application.source().digest();
    let received = application.sink().digest();
    for (sender, sends, sent, received, difference) in [
        ("our", we_send, sent, kernel.received, kernel.first_difference),
        ("the kernel's", kernel_sends, kernel.sent, received, application.sink().first_difference()),
    ] {
        if sent.len != if sends { *bytes } else { 0 } {
            findings.push(format!("{sender} side sent {sent} of {bytes}"));
        }
        if sent != received {
            findings
                .push(format!("{sender} stream: {sent} sent, {received} received, differing from byte {difference:?}"));
        }
    }
}

fn check_info(evidence: &Evidence<'_>, findings: &mut Vec<String>) {
    let Evidence { combination, bytes, kernel, connection, .. } = evidence;
    let info = &kernel.info;
    let mut require = |is_so: bool, what: &str| {
        if !is_so {
            findings.push(format!("TCP_INFO: {what}: {info:?}"));
        }
    };
    let option = |is_on, bit| if is_on { bit } else { 0 };
    let expected = option(combination.sack_agreed(), SACK)
        | option(combination.timestamps_agreed(), TIMESTAMPS)
        | option(combination.window_scaling_agreed(), WINDOW_SCALE);
    require(info.tcpi_options & (SACK | TIMESTAMPS | WINDOW_SCALE) == expected, "other options than were agreed");
    require(info.tcpi_options & ECN == 0, "ECN was agreed");
    // IPv6 has no header checksum: a flipped bit in the traffic class looks like ECN.
    let may_look_so = combination.path == Path::Corruption && combination.family == Family::V6;
    require(may_look_so || info.tcpi_options & ECN_SEEN == 0, "ECN was seen");
    require(kernel.congestion == combination.congestion.name(), "another congestion control");
    let headers = if combination.family == Family::V4 { 40 } else { 60 };
    let least_mss = u32::from(combination.config().mss).min(u32::from(combination.mtu_bytes()) - headers);
    let header_room = if combination.timestamps_agreed() { 12 } else { 0 };
    require(info.tcpi_snd_mss == least_mss - header_room, "another segment size");
    require(info.tcpi_unacked == 0 && info.tcpi_notsent_bytes == 0, "something is left over");
    require(info.tcpi_probes == 0, "a probe was not answered");
    // The SYN and the FIN count.
    let around = |counted: u64, expected: u64| (expected..=expected + 2).contains(&counted);
    let expected_in = if combination.flow.we_send() { *bytes } else { 0 };
    let expected_out = if combination.flow.kernel_sends() { *bytes } else { 0 };
    require(around(info.tcpi_bytes_received, expected_in), "bytes received");
    require(around(info.tcpi_bytes_acked, expected_out), "bytes acknowledged");
    require(info.tcpi_bytes_sent - info.tcpi_bytes_retrans <= expected_out + 2, "bytes sent");
    let at_end = &kernel.info_at_end;
    let least_rtt = Duration::from_millis(4);
    let may_be_short = !combination.timestamps_agreed() && combination.flow == Flow::Send;
    require(may_be_short || at_end.tcpi_rtt >= least_rtt, "a round trip shorter than the path");
    require(at_end.tcpi_rto >= Duration::from_millis(200), "a timeout below Linux's floor");
    if let Some(connection) = connection {
        require(connection.sack_agreed() == (expected & SACK != 0), "our side sees SACK otherwise");
        require(connection.timestamps_agreed() == (expected & TIMESTAMPS != 0), "our side sees timestamps otherwise");
    }
}

fn check_counters(evidence: &Evidence<'_>, findings: &mut Vec<String>) {
    let Evidence { combination, counters, .. } = evidence;
    let count = |name: &str| counters.get(name).unwrap_or(0);
    let mut at_most = |name: &str, most: i64| {
        if count(name) > most {
            findings.push(format!("{name} = {}", count(name)));
        }
    };
    NEVER.iter().for_each(|name| at_most(name, 0));
    // A SYN-ACK that arrives twice, because the ACK of the first was lost, is challenged and counted as an
    // error.
    let challenged_syns = count("TcpExtTCPSYNChallenge");
    if combination.path != Path::Corruption {
        DAMAGE.iter().for_each(|name| at_most(name, if *name == "TcpInErrs" { challenged_syns } else { 0 }));
    }
    at_most("TcpExtTCPSYNChallenge", if combination.path == Path::Clean { 0 } else { MOST_CHALLENGES.into() });
    at_most("TcpExtTCPChallengeACK", MOST_CHALLENGES.into());
    at_most("TcpOutRsts", i64::try_from(came_late(evidence)).unwrap_or(i64::MAX));
    // Duplicates from the path are reported by DSACK. The kernel discards the report if it has not retransmitted as much.
    at_most("TcpExtTCPSACKDiscard", count("TcpExtTCPDSACKIgnoredDubious"));
    if combination.path == Path::Clean {
        at_most("TcpExtTCPChallengeACK", 0);
        at_most("TcpExtPAWSEstab", 0);
        at_most("TcpExtTCPACKSkippedPAWS", 0);
        at_most("TcpExtTCPACKSkippedSeq", 0);
    }
    let (active, passive) = if combination.opening == Opening::Connect { (0, 1) } else { (1, 0) };
    if (count("TcpActiveOpens"), count("TcpPassiveOpens")) != (active, passive) {
        findings.push("the number of connections opened".to_owned());
    }
}

/// The number of packets that the path has delayed or duplicated. Some of the last ones reach a side after the end of its connection, which
/// answers each of them with a reset (RFC 9293 section 3.10.7.1).
fn came_late(evidence: &Evidence<'_>) -> u64 {
    path_counters(evidence).iter().map(|done| done.reordered + done.duplicated).sum()
}

fn path_counters(evidence: &Evidence<'_>) -> [ImpairmentCounters; 2] {
    [TunDirection::ToKernel, TunDirection::FromKernel].map(|way| evidence.shell.impairment(way).counters())
}

/// Checks our own records of arrivals.
fn check_our_side(evidence: &Evidence<'_>, findings: &mut Vec<String>) {
    let Some(connection) = evidence.connection else {
        return findings.push("our connection is gone".to_owned());
    };
    connection.assert_invariants();
    let counters = connection.counters();
    for disposition in [
        Disposition::AckOfUnsentData,
        Disposition::AckTooOld,
        Disposition::ResetChallenged,
        Disposition::ResetAccepted,
        Disposition::SynChallenged,
        Disposition::NoAck,
        Disposition::AfterFin,
        Disposition::ReceiverGone,
        Disposition::ReassemblyFull,
    ] {
        let received = counters.received(disposition);
        let path = evidence.combination.path;
        let may_happen = match disposition {
            // A SYN-ACK that was delayed or sent twice is challenged.
            Disposition::SynChallenged => path != Path::Clean,
            // In TIME-WAIT, a reset may be the answer to a late ACK.
            Disposition::ResetAccepted | Disposition::ResetChallenged => came_late(evidence) > 0,
            _ => false,
        };
        if received > if may_happen { MOST_CHALLENGES } else { 0 } {
            findings.push(format!("our side found {received} segments {disposition}"));
        }
    }
    let strays: u64 = Disposition::ALL.iter().map(|&disposition| evidence.endpoint.strays(disposition)).sum();
    if strays > came_late(evidence) {
        findings.push(format!("{strays} segments belonged to no connection of ours"));
    }
    if evidence.shell.counters().not_ip > 0 && evidence.combination.path != Path::Corruption {
        findings.push("our side sent what is not IP".to_owned());
    }
    if evidence.shell.counters().unparsable > 0 && evidence.combination.path != Path::Corruption {
        findings.push("our side could not read a packet of the kernel".to_owned());
    }
}

/// Checks that the path has caused its impairment: otherwise the run proves nothing.
fn check_path(evidence: &Evidence<'_>, findings: &mut Vec<String>) {
    let done = path_counters(evidence);
    let sum = |count: fn(&ImpairmentCounters) -> u64| done.iter().map(count).sum::<u64>();
    let effects = [
        (Path::Loss, sum(|done| done.lost)),
        (Path::Reordering, sum(|done| done.reordered)),
        (Path::Duplication, sum(|done| done.duplicated)),
        (Path::Corruption, sum(|done| done.corrupted)),
        (Path::Outage, evidence.lost_in_outage),
    ];
    for (path, effect) in effects {
        if (effect > 0) != (path == evidence.combination.path) {
            findings.push(format!("the path's {path} has touched {effect} packets"));
        }
    }
}
