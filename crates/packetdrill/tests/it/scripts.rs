//! Every script passes unchanged, and fails at the right line with the right message after a change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdover_packetdrill::{IpVersion, Report, RunOptions, Script, Verdict, default_defines, run};
use holdover_tcp::Profile;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

pub(crate) fn text(name: &str) -> String {
    std::fs::read_to_string(directory().join(name)).unwrap()
}

pub(crate) fn run_text(text: &str, options: &RunOptions) -> Report {
    let script = Script::parse(text, &default_defines(options.ip_version)).unwrap_or_else(|error| panic!("{error}"));
    run(&script, options, &mut |name| std::fs::read_to_string(directory().join(name)).ok())
}

const SCRIPTS: [&str; 4] = ["server.pkt", "client.pkt", "errors.pkt", "accurate_ecn.pkt"];

// Claim: A server, a client that loses segments, and errors: the scripts pass with all kinds of addresses.
#[test]
fn scripts_pass_with_addresses_of_every_kind() {
    for name in SCRIPTS {
        for ip_version in IpVersion::ALL {
            let report = run_text(&text(name), &RunOptions { ip_version, ..RunOptions::default() });
            // frag_needed exists only in ICMPv4, and the IPv6 header is longer.
            if name == "errors.pkt" && ip_version == IpVersion::V6 {
                continue;
            }
            assert_eq!(report.differences, [], "{name} {ip_version}");
            assert_eq!((report.verdict, report.reason, report.notes.len()), (Verdict::Passed, None, 0), "{name}");
        }
    }
}

/// Asserts the difference after a change: its line, the expectation, and Holdover's result.
#[track_caller]
fn differs(name: &str, change: (&str, &str), expected: &str, actual: &str) {
    let original = text(name);
    assert_eq!(original.matches(change.0).count(), 1, "{} in {name}", change.0);
    let line =
        original[..original.find(change.0).unwrap()].lines().count() as u32 + u32::from(change.0.starts_with('\n'));
    let report = run_text(&original.replace(change.0, change.1), &RunOptions::default());
    assert_eq!(report.verdict, Verdict::Differs, "{change:?}");
    let first = &report.differences[0];
    assert!(first.expected.contains(expected) && first.actual.contains(actual), "{first}");
    assert!(first.line.abs_diff(line) <= 1, "{first}, not at {line}");
}

// Claim: With one error (flags, numbers, length, window, options, ECN, TTL), a script fails at that line and names the field.
#[test]
fn a_wrong_packet_is_reported_with_the_field() {
    let syn_ack = "win 65535 <mss 1460,sackOK,TS val 100 ecr 700,nop,wscale 8>";
    differs("server.pkt", (syn_ack, &syn_ack.replace("1460", "1400")), "mss 1400", "mss 1460");
    differs("server.pkt", (syn_ack, &syn_ack.replace("sackOK,", "nop,nop,")), "TS val", "(options)");
    differs("server.pkt", (syn_ack, &syn_ack.replace("65535", "5000")), "win 5000", "(window)");
    differs("server.pkt", ("> P. 1:3001(3000) ack 1001", "> P. 1:3001(3000) ack 1002"), "ack 1002", "(ack)");
    differs("client.pkt", ("> . 1:1001(1000) ack 1\n", "> F. 1:1001(1000) ack 1\n"), "> F.", "(flags)");
    differs("client.pkt", ("> . 1:1001(1000) ack 1\n", "> . 1:501(500) ack 1\n"), "1:501(500)", "(length)");
    differs("client.pkt", ("> . 1:1(0) ack 1 win 256\n", "> . 2:2(0) ack 1\n"), "2:2(0)", "(sequence number)");
    differs("client.pkt", ("> . 1:1(0) ack 1 win 256\n", "> . 1:1(0) ack 1 urg 5\n"), "1:1(0)", "(urgent pointer)");
    differs("errors.pkt", ("[tos 0x10] P.", "[tos 0x20] P."), "[tos 0x20]", "(ECN)");
    differs("errors.pkt", ("[tos 0x10] P.", "[ect01] P."), "[ect01]", "(ECN)");
    differs("errors.pkt", ("[tos 0x10] P.", "[ttl 63] P."), "> P. 1:1401(1400)", "(TTL)");
}

// Claim: A packetdrill script fails with a wrong time, including that of a blocking call.
#[test]
fn a_wrong_time_is_reported_with_the_time() {
    differs("server.pkt", ("+0~+.05 > . 3001", "+.06~+.08 > . 3001"), "3001:3001(0) ack 1002", "(time)");
    differs("client.pkt", ("  +.2~+.4 > P. 5001", "  +.01 > P. 5001"), "5001:6001", "(time)");
    differs("server.pkt", ("+0...0.200 accept", "+0...0.100 accept"), "returns at 0.100000 s", "0.200000 s");
    differs("errors.pkt", ("0.600~0.610 > . 701", "0.630~0.640 > . 701"), "701:1261(560)", "(time)");
}

// Claim: A packetdrill script fails with a packet that is missing, or unexpected.
#[test]
fn missing_and_unexpected_packets_are_reported() {
    let extra = ("    * > F. 3001", "   +0 > . 3001:3001(0) ack 1002 <...>\n    * > F. 3001");
    differs("server.pkt", extra, "> . 3001:3001(0)", "> F. 3001");
    differs("client.pkt", ("   +0 connect(3, ..., ...) = 0\n", "   +0 > . 1:1(0) ack 1\n"), "1:1(0)", "nothing sent");
    differs("client.pkt", ("> P. 1:5001(5000)", "> P. 1:5501(5500)"), "1:5501(5500)", "(length)");
}

// Claim: A packetdrill script fails with a wrong result of a call.
#[test]
fn a_wrong_result_of_a_call_is_reported() {
    differs("server.pkt", ("read(4, ..., 400) = 400", "read(4, ..., 400) = 300"), "read() = 300", "400");
    differs("server.pkt", ("EAGAIN", "EINVAL"), "read() = -1 EINVAL", "-1 EAGAIN");
    differs("server.pkt", ("SIOCINQ, [1000]", "SIOCINQ, [999]"), "ioctl() = 0", "the value 1000");
    differs("server.pkt", ("revents=POLLOUT}", "revents=POLLIN}"), "poll() = 1", "revents 0x4");
    differs("client.pkt", ("SO_ERROR, [0]", "SO_ERROR, [111]"), "getsockopt() = 0", "the value 0");
    differs("errors.pkt", ("-1 ECONNRESET", "-1 EPIPE"), "read() = -1 EPIPE", "-1 ECONNRESET");
    differs("errors.pkt", ("write(5, ..., 1400) = 1400", "read(5, ..., 1400) = 1400"), "read() returns", "it blocks");
}

// Claim: A packetdrill script fails with a wrong assertion.
#[test]
fn a_failed_assertion_is_reported_with_the_values() {
    differs(
        "server.pkt",
        ("tcpi_snd_cwnd == 10, tcpi_snd_cwnd", "tcpi_snd_cwnd == 13"),
        "tcpi_snd_cwnd == 13",
        "tcpi_snd_cwnd = 10",
    );
    differs("client.pkt", ("tcpi_sacked == 4", "tcpi_sacked == 3"), "tcpi_sacked == 3", "tcpi_sacked = 4");
}

#[test]
fn another_stack_is_another_answer() {
    let options = RunOptions { profile: Some(Profile::TahoeBsd), ..RunOptions::default() };
    let report = run_text(&text("client.pkt"), &options);
    assert_eq!(report.verdict, Verdict::Differs);
    assert!(report.differences[0].actual.contains("(window, options)"), "{}", report.differences[0]);
}

// Claim: Sysctls and routes of a script's commands reach the connection; another profile gives other answers.
// Tests: `scripts::another_stack_is_another_answer`
#[test]
fn settings_of_commands_reach_the_connection() {
    let script = "`sysctl -q net.ipv4.tcp_sack=0 net.ipv4.tcp_timestamps=0 net.ipv4.tcp_window_scaling=0\n\
                  ip route change 192.0.2.1 dev tun0 mtu lock 1000 initcwnd 2`\n\
                  0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n\
                  +0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
                  +0 < S 0:0(0) win 65535 <mss 1460>\n+0 > S. 0:0(0) ack 1 <mss 960>\n\
                  +.01 < . 1:1(0) ack 1 win 65535\n+0 accept(3, ..., ...) = 4\n\
                  +0 write(4, ..., 5000) = 5000\n+0 > P. 1:1921(1920) ack 1\n+.1 %{ assert tcpi_snd_cwnd == 2 }%\n";
    let report = run_text(script, &RunOptions::default());
    assert_eq!(report.differences, []);
}

/// A connection keeps its route until it has sent a packet: the first burst after the change has segments of the old size. The last of
/// several full segments that leave as one packet has PSH.
// Claim: With `tcp_mtu_probing=2` a script sees a probe of the path MTU, and segments of its size once the route permits them.
#[test]
fn a_probe_raises_the_segment_size_as_far_as_the_route_permits() {
    let script = "--strict_segments\n\
                  `sysctl -q net.ipv4.tcp_sack=0 net.ipv4.tcp_timestamps=0 net.ipv4.tcp_mtu_probing=2 net.ipv4.tcp_base_mss=1000 net.ipv4.tcp_min_tso_segs=6\n\
                  ip route change 192.0.2.1 dev tun0 mtu lock 1240 initcwnd 12`\n\
                  0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n\
                  +0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
                  +0 < S 0:0(0) win 65535 <mss 1460>\n+0 > S. 0:0(0) ack 1 <mss 1200>\n\
                  +.01 < . 1:1(0) ack 1 win 65535\n+0 accept(3, ..., ...) = 4\n\
                  +0 write(4, ..., 9400) = 9400\n\
                  +0 > . 1:1231(1230) ack 1\n+0 > . 1231:2431(1200) ack 1\n+0 > . 2431:3631(1200) ack 1\n\
                  +0 > . 3631:4831(1200) ack 1\n+0 > . 4831:6031(1200) ack 1\n+0 > P. 6031:7231(1200) ack 1\n\
                  +0 > . 7231:8431(1200) ack 1\n+0 > P. 8431:9401(970) ack 1\n\
                  +.01 < . 1:1(0) ack 9401 win 65535\n\
                  +0 `ip route change 192.0.2.1 dev tun0 mtu lock 1500 initcwnd 12`\n\
                  +0 write(4, ..., 1400) = 1400\n+0 > . 9401:10601(1200) ack 1\n+0 > P. 10601:10801(200) ack 1\n\
                  +.01 < . 1:1(0) ack 10801 win 65535\n\
                  +0 write(4, ..., 1400) = 1400\n+0 > . 10801:12031(1230) ack 1\n+0 > P. 12031:12201(170) ack 1\n\
                  +0 %{ assert tcpi_snd_mss == 1230 }%\n";
    let report = run_text(script, &RunOptions::default());
    assert_eq!((report.differences, report.verdict), (vec![], Verdict::Passed));
    let off = script.replace("tcp_mtu_probing=2", "tcp_mtu_probing=0");
    let report = run_text(&off, &RunOptions::default());
    assert!(report.differences[0].actual.contains("1:1201(1200)"), "{}", report.differences[0]);
}

/// `connect` to AF_UNSPEC ends a connection by a reset; the next `connect` opens another one, whose segments the script then expects.
// Claim: A socket can connect again after `connect` to AF_UNSPEC.
#[test]
fn a_socket_can_connect_again() {
    let syn = "S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 8>";
    let script = format!(
        "`./defaults.sh\n sysctl -q net.ipv4.tcp_timestamps=0`\n\
         0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n\
         +0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0\n\
         +0 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)\n\
         +0 > {syn}\n+.1 < S. 0:0(0) ack 1 win 65535 <mss 1000>\n+0 > . 1:1(0) ack 1\n\
         +.1 connect(3, AF_UNSPEC, ...) = 0\n+0 > R. 1:1(0) ack 1\n\
         +0 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)\n\
         +0 > {syn}\n+0 %{{ assert tcpi_state == TCP_SYN_SENT }}%\n\
         +1 > {syn}\n+.1 < S. 0:0(0) ack 1 win 65535 <mss 1000>\n+0 > . 1:1(0) ack 1\n"
    );
    let report = run_text(&script, &RunOptions::default());
    assert_eq!((report.differences, report.verdict), (vec![], Verdict::Passed));
}

/// `fq` sends the first ten segments at once and spaces the others: two segments take 7.1 ms at twice the window in a round trip, half of
/// which are credited after a pause.
// Claim: Under `fq` segments leave at the pacing rate. Code sees how long a sender was busy, and how long the peer's window held
// it back.
// Tests: `scripts::code_sees_how_long_a_sender_was_busy_and_how_long_limited`
#[test]
fn a_queueing_discipline_that_paces_spaces_segments() {
    let script = |queue: &str, times: [&str; 2]| {
        format!(
            "--tolerance_usecs=500\n\
             `./defaults.sh\n sysctl -q net.ipv4.tcp_timestamps=0\n tc qdisc replace dev tun0 root {queue}`\n\
             0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
             +0 < S 0:0(0) win 65535 <mss 1000>\n+0 > S. 0:0(0) ack 1 <mss 1460>\n\
             +.1 < . 1:1(0) ack 1 win 65535\n+0 accept(3, ..., ...) = 4\n\
             +0 write(4, ..., 14000) = 14000\n+0 > P. 1:10001(10000) ack 1\n\
             +.1 < . 1:1(0) ack 4001 win 65535\n\
             +{} > . 10001:12001(2000) ack 1\n+{} > P. 12001:14001(2000) ack 1\n",
            times[0], times[1]
        )
    };
    for (queue, times) in [("fq", ["0", ".0036"]), ("pfifo", ["0", "0"])] {
        let report = run_text(&script(queue, times), &RunOptions::default());
        assert_eq!(report.differences, [], "{queue}");
    }
    assert_eq!(run_text(&script("fq", ["0", "0"]), &RunOptions::default()).verdict, Verdict::Differs);
}

#[test]
fn code_sees_how_long_a_sender_was_busy_and_how_long_limited() {
    let script = "`./defaults.sh\n sysctl -q net.ipv4.tcp_timestamps=0`\n\
                  0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
                  +0 < S 0:0(0) win 0 <mss 1000>\n+0 > S. 0:0(0) ack 1 <mss 1460>\n\
                  +.1 < . 1:1(0) ack 1 win 0\n+0 accept(3, ..., ...) = 4\n\
                  +.1 %{ assert tcpi_busy_time == 0 and tcpi_rwnd_limited == 0 }%\n\
                  +0 write(4, ..., 1000) = 1000\n\
                  +.05 %{ assert tcpi_busy_time == 50000 and tcpi_rwnd_limited == 50000 }%\n\
                  +.05 < . 1:1(0) ack 1 win 2000\n+0 > P. 1:1001(1000) ack 1\n\
                  +.02 %{ assert tcpi_busy_time == 120000 and tcpi_rwnd_limited == 100000 }%\n\
                  +.02 < . 1:1(0) ack 1001 win 2000\n\
                  +.5 %{ assert tcpi_busy_time == 140000 and tcpi_rwnd_limited == 100000 }%\n";
    let report = run_text(script, &RunOptions::default());
    assert_eq!((report.differences, report.verdict), (vec![], Verdict::Passed));
}

/// By Fast Open a server answers before the handshake ends, and a client's SYN carries data: both are busy with it.
// Claim: A sender is busy with what it has sent in the handshake.
#[test]
fn data_of_the_handshake_keeps_a_sender_busy() {
    let server = "`./defaults.sh\n sysctl -q net.ipv4.tcp_timestamps=0 net.ipv4.tcp_fastopen=0x703`\n\
                  0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 setsockopt(3, SOL_TCP, TCP_FASTOPEN, [1], 4) = 0\n\
                  +0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
                  +0 < S 0:10(10) win 65535 <mss 1460,sackOK,FO TFO_COOKIE_ZERO>\n\
                  +0 > S. 0:0(0) ack 11 <mss 1460,nop,nop,sackOK>\n+0 accept(3, ..., ...) = 4\n\
                  +.02 %{ assert tcpi_busy_time == 0 }%\n\
                  +0 write(4, ..., 100) = 100\n+0 > P. 1:101(100) ack 11\n\
                  +.05 %{ assert tcpi_busy_time == 50000 }%\n\
                  +0 < . 11:11(0) ack 101 win 65535\n+.1 %{ assert tcpi_busy_time == 50000 }%\n";
    let client = "`./defaults.sh\n sysctl -q net.ipv4.tcp_timestamps=0 net.ipv4.tcp_fastopen=0x5`\n\
                  0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n\
                  +0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0\n\
                  +0 sendto(3, ..., 100, MSG_FASTOPEN, ..., ...) = 100\n\
                  +0 > S 0:100(100) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 8>\n\
                  +.05 < S. 0:0(0) ack 101 win 65535 <mss 1000>\n+0 > . 101:101(0) ack 1\n\
                  +.1 %{ assert tcpi_busy_time == 50000 }%\n";
    for script in [server, client] {
        let report = run_text(script, &RunOptions::default());
        assert_eq!((report.differences, report.verdict), (vec![], Verdict::Passed), "{script}");
    }
}

/// The receiver's window no longer grows, and its quick ACKs are used up: the fourth segment out of order waits
/// for the slack of the timer, 0.1 ms, as no round trip was measured.
// Claim: A packetdrill script sees compressed SACKs, and none with `tcp_comp_sack_nr=0`.
#[test]
fn sacks_are_compressed_unless_a_script_forbids_it() {
    let script = |sysctl: &str, waits: &str| {
        let mut script = format!(
            "--tolerance_usecs=10\n`./defaults.sh\n sysctl -q net.ipv4.tcp_timestamps=0 {sysctl} net.ipv4.tcp_rmem=\"4096 20000 20000\"`\n\
             0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
             +0 < S 0:0(0) win 65535 <mss 1000,nop,nop,sackOK>\n+0 > S. 0:0(0) ack 1 <mss 1460,nop,nop,sackOK>\n\
             +.1 < . 1:1(0) ack 1 win 65535\n+0 accept(3, ..., ...) = 4\n"
        );
        for n in 0..16 {
            let (start, end) = (1 + 100 * n, 101 + 100 * n);
            script += &format!(
                "+0 < . {start}:{end}(100) ack 1 win 65535\n+0 > . 1:1(0) ack {end}\n+0 read(4, ..., 100) = 100\n"
            );
        }
        for end in [1801, 1901, 2001] {
            script += &format!("+0 < . {}:{end}(100) ack 1 win 65535\n", end - 100);
            script += &format!("+0 > . 1:1(0) ack 1601 <nop,nop,sack 1701:{end}>\n");
        }
        script
            + &format!("+0 < . 2001:2101(100) ack 1 win 65535\n+{waits} > . 1:1(0) ack 1601 <nop,nop,sack 1701:2101>\n")
    };
    for (sysctl, waits) in [("", ".0001"), ("net.ipv4.tcp_comp_sack_nr=0", "0")] {
        let report = run_text(&script(sysctl, waits), &RunOptions::default());
        assert_eq!(report.differences, [], "{sysctl}");
    }
}

/// An error about an ACK without data quotes the number of the next data.
// Claim: An ICMP error that quotes SND.NXT is the error of a connection that then times out.
#[test]
fn an_icmp_error_may_quote_what_is_sent_next() {
    let script = |quoted: &str, error: &str| {
        format!(
            "`./defaults.sh\n sysctl -q net.ipv4.tcp_timestamps=0`\n\
             0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
             +0 < S 0:0(0) win 65535 <mss 1000>\n+0 > S. 0:0(0) ack 1 <mss 1460>\n\
             +.1 < . 1:1(0) ack 1 win 65535\n+0 accept(3, ..., ...) = 4\n\
             +.1 < icmp unreachable host_unreachable [{quoted}]\n\
             +0 setsockopt(4, SOL_TCP, TCP_USER_TIMEOUT, [200], 4) = 0\n\
             +0 write(4, ..., 100) = 100\n+0 > P. 1:101(100) ack 1\n+2 read(4, ..., 100) = -1 {error}\n"
        )
    };
    for (quoted, error) in [("1:1(0)", "EHOSTUNREACH (x)"), ("2:2(0)", "ETIMEDOUT (x)"), ("0:0(0)", "ETIMEDOUT (x)")] {
        let report = run_text(&script(quoted, error), &RunOptions::default());
        assert_eq!(report.differences, [], "{quoted}");
    }
}

/// A connection whose SYN had data is the application's only once it is accepted: before, an ICMP error ends it, and after, it does not.
// Claim: An ICMP error ends a connection whose SYN had data before it is accepted, and not after.
#[test]
fn an_icmp_error_ends_an_early_connection_before_it_is_accepted() {
    let script = |before: &str, after: &str, rest: &str| {
        format!(
            "`./defaults.sh\n sysctl -q net.ipv4.tcp_timestamps=0 net.ipv4.tcp_fastopen=0x703`\n\
             0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 setsockopt(3, SOL_TCP, TCP_FASTOPEN, [1], 4) = 0\n\
             +0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
             +0 < S 0:10(10) win 65535 <mss 1460,sackOK,FO TFO_COOKIE_ZERO>\n\
             +0 > S. 0:0(0) ack 11 <mss 1460,nop,nop,sackOK>\n\
             {before}+0 accept(3, ..., ...) = 4\n{after}+0 read(4, ..., 512) = 10\n{rest}"
        )
    };
    let error = "+.1 < icmp unreachable host_unreachable [0:10(10)]\n";
    let stale = "+.1 < icmp unreachable host_unreachable [5000:6000(1000)]\n";
    let ended = "+0 %{ assert tcpi_state == TCP_CLOSE }%\n\
                 +0 read(4, ..., 512) = -1 EHOSTUNREACH (No route to host)\n\
                 +0 write(4, ..., 100) = -1 EPIPE (Broken pipe)\n\
                 +.1 < . 1:1(0) ack 1 win 65535\n+0 > R 1:1(0)\n";
    let lives = "+0 %{ assert tcpi_state == TCP_SYN_RECV }%\n+.1 < . 1:1(0) ack 1 win 65535\n\
                 +0 write(4, ..., 100) = 100\n+0 > P. 1:101(100) ack 11\n";
    for text in [script(error, "", ended), script("", error, lives), script(stale, "", lives)] {
        let report = run_text(&text, &RunOptions::default());
        assert_eq!((report.differences, report.verdict), (vec![], Verdict::Passed), "{text}");
    }
}

/// A SACK may arrive at the instant at which its segments were sent again: their copies are not lost.
// Claim: A SACK at the instant of a retransmission does not mark the copies lost.
#[test]
fn copies_sent_at_the_same_instant_are_not_lost() {
    let script = "`./defaults.sh\n sysctl -q net.ipv4.tcp_timestamps=0 net.ipv4.tcp_congestion_control=cubic`\n\
                  0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
                  +0 < S 0:0(0) win 65535 <mss 1000,nop,nop,sackOK>\n+0 > S. 0:0(0) ack 1 <mss 1460,nop,nop,sackOK>\n\
                  +.1 < . 1:1(0) ack 1 win 65535\n+0 accept(3, ..., ...) = 4\n\
                  +0 write(4, ..., 10000) = 10000\n+0 > P. 1:10001(10000) ack 1\n\
                  +0 < . 1:1(0) ack 1 win 65535 <nop,nop,sack 2001:5001>\n+0 > . 1:2001(2000) ack 1\n\
                  +0 %{ assert tcpi_snd_cwnd == 7 }%\n\
                  +0 < . 1:1(0) ack 1 win 65535 <nop,nop,sack 2001:6001>\n\
                  +0 %{ assert tcpi_snd_cwnd == 7 and tcpi_retrans == 2 and tcpi_lost == 2 }%\n\
                  +.01 < . 1:1(0) ack 10001 win 65535\n+0 write(4, ..., 10) = 10\n+0 > P. 10001:10011(10) ack 1\n";
    let report = run_text(script, &RunOptions::default());
    assert_eq!((report.differences, report.verdict), (vec![], Verdict::Passed));
}

#[test]
fn a_wrong_count_of_marks_is_reported() {
    let marked = "> [ect0] .6 1:1(0) ack 2001 <ECN e1b 1 ceb 1000 e0b 1001,nop>";
    let changed = |from: &str, to: &str| marked.replace(from, to);
    differs("accurate_ecn.pkt", (marked, &changed(".6", ".5")), "EA.", "(flags)");
    differs("accurate_ecn.pkt", (marked, &changed("ceb 1000", "ceb 0")), "ceb 0", "(options)");
    differs("accurate_ecn.pkt", (marked, &changed("[ect0]", "[noecn]")), "[noecn]", "(ECN)");
    differs("accurate_ecn.pkt", ("assert tcpi_delivered_ce == 1", "assert tcpi_delivered_ce == 2"), "== 2", "= 1");
}

// Claim: An MTU that an ICMP error has reported counts for later connections to the same peer, for ten minutes as in Linux; the MSS of a
// SYN is the interface's.
#[test]
fn later_connections_know_the_mtu_that_was_reported() {
    let begin = "socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
            +0 bind(3, ..., ...) = 0
            +0 listen(3, 1) = 0
            +0 < S 0:0(0) win 65535 <mss 1460>
            +0 > S. 0:0(0) ack 1 <mss 1460>
            +.1 < . 1:1(0) ack 1 win 65535
            +0 accept(3, ..., ...) = 4
            +0 write(4, ..., 1000) = 1000";
    let script = |wait: u32, sizes: &str| {
        format!(
            "0 {begin}
            +0 > P. 1:1001(1000) ack 1
            +0 < icmp unreachable frag_needed mtu 840 [1:1001(1000)]
            +0 > . 1:801(800) ack 1
            +0 > P. 801:1001(200) ack 1
            +0 < R. 1:1(0) ack 1001 win 0
            +0 close(4) = 0
            +0 close(3) = 0
            +{wait} {begin}
            {sizes}"
        )
    };
    let small = "+0 > . 1:801(800) ack 1\n+0 > P. 801:1001(200) ack 1";
    let whole = "+0 > P. 1:1001(1000) ack 1";
    for (wait, sizes) in [(1, small), (599, small), (600, whole)] {
        let report = run_text(&script(wait, sizes), &RunOptions::default());
        assert_eq!((report.verdict, report.differences), (Verdict::Passed, vec![]), "after {wait} s");
    }
}

// Claim: A segment with a TCP MD5 signature is dropped, as Linux drops it without a key.
#[test]
fn signed_segments_are_dropped() {
    let script = |signature: &str| {
        format!(
            "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
            +0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0
            +0 bind(3, ..., ...) = 0
            +0 listen(3, 1) = 0
            +0 < S 0:0(0) win 1000 <mss 1000>
            +0 > S. 0:0(0) ack 1 <mss 1460>
            +.1 < . 1:1(0) ack 1 win 1000 {signature}
            +0 accept(3, ..., ...) = -1 EAGAIN (Resource temporarily unavailable)
            +.1 < . 1:1(0) ack 1 win 1000
            +0 accept(3, ..., ...) = 4"
        )
    };
    let signed = script("<nop,nop,md5 00112233445566778899aabbccddeeff>");
    let report = run_text(&signed, &RunOptions::default());
    assert_eq!((report.verdict, report.differences), (Verdict::Passed, vec![]));
    assert_eq!(run_text(&script(""), &RunOptions::default()).verdict, Verdict::Differs);
}

// Claim: Unsupported features are named, and scripts that use them are skipped.
#[test]
fn unsupported_features_are_named_and_not_run() {
    let socket = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n";
    for (text, reason) in [
        (format!("{socket}+0 epoll_create(1) = 5"), "the kernel's epoll"),
        (format!("{socket}+0 < udp (100)"), "UDP"),
        (format!("{socket}+0 > ipv4 1.1.1.1 > 2.2.2.2: . 1:1(0) ack 1"), "IP in IP"),
        (format!("{socket}+0 > . 1:1(0) ack 1 <nop,nop,md5 00112233445566778899aabbccddeeff>"), "TCP MD5 signatures"),
        (format!("{socket}+0 setsockopt(3, SOL_TCP, TCP_NOBODY, [1], 4) = 0"), "TCP_NOBODY in setsockopt()"),
        (format!("`./nowhere.sh`\n{socket}"), "the script ./nowhere.sh is not there"),
        (
            format!("`tc qdisc add dev tun0 root pfifo limit 0`\n{socket}"),
            "a queueing discipline that drops everything",
        ),
        (format!("{socket}+0 setsockopt(3, SOL_TCP, TCP_CONGESTION, \"vegas\", 5) = 0"), "congestion control vegas"),
        (format!("--so_filename=a\n{socket}"), "packetdrill's --so_filename"),
        ("0 socket(..., SOCK_DGRAM, IPPROTO_UDP) = 3".to_owned(), "a socket that is not TCP's"),
    ] {
        let report = run_text(&text, &RunOptions::default());
        assert_eq!((report.verdict, report.reason.as_deref()), (Verdict::NotRun, Some(reason)), "{text}");
    }
}

#[test]
fn definitions_come_from_outside_and_from_the_script() {
    let text =
        "--define=LEN=100\n0 socket(..., SOCK_STREAM, IPPROTO_TCP) = FD\n+0 close(FD) = 0\n+0 close(FD) = -1 EBADF (x)";
    let defines = BTreeMap::from([("FD".to_owned(), "7".to_owned())]);
    let script = Script::parse(text, &defines).unwrap();
    assert_eq!(script.option("define"), Some("LEN=100"));
    assert_eq!(run(&script, &RunOptions::default(), &mut |_| None).verdict, Verdict::Passed);
}
