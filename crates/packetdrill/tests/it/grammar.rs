//! Invalid scripts: each error has its position and the expected text.

use std::collections::BTreeMap;

use holdover_packetdrill::{IpVersion, RunOptions, Script, ScriptError, Verdict, run};

#[track_caller]
fn error(text: &str) -> ScriptError {
    Script::parse(text, &BTreeMap::new()).map(|_| ()).unwrap_err()
}

#[test]
fn errors_have_line_column_and_what_was_expected() {
    for (text, line, column, expected, found) in [
        ("", 1, 1, "a time in seconds", "the end of the script"),
        ("0 bind(3) = 0\n+0 nothing\n", 3, 1, "'('", "the end of the script"),
        ("1 bind(3) = 0", 1, 1, "a first event at time 0", "a later time"),
        ("0 > Q. 1:1(0)", 1, 5, "flags of FSRPEWAU.", "'Q.'"),
        ("0 > . 1:5(3)", 1, 7, "sequence numbers 3 apart", "1:5(3)"),
        ("0 < . 1:1(0) ack 1", 1, 19, "'win' in an inbound packet", "the end of the script"),
        ("0 > S 0:0(0) <mss 70000>", 1, 19, "the MSS from 0 to 65535", "a number out of range"),
        ("0 > S 0:0(0) <mss 1460,nop>", 1, 15, "padded to a multiple of 4", "5 bytes"),
        ("0 > S 0:0(0) <what 1>", 1, 15, "a TCP option", "'what'"),
        ("0 < S 0:0(0) win 5 <...>", 1, 21, "options in an inbound packet", "'...'"),
        ("0 < [ect01] S 0:0(0) win 5", 1, 3, "[ect01] with outbound packets only", "an inbound packet"),
        ("0 > [tos 0x100] S 0:0(0)", 1, 10, "the TOS byte from 0 to 255", "a number out of range"),
        ("0 > S 0:0(0) <FO abc,nop,nop>", 1, 18, "an even number of hexadecimal digits", "abc"),
        ("0 > . 1:1(0) <ECN ceb 1,nop,nop,nop>", 1, 24, "e0b or e1b", "','"),
        ("* bind(3) = 0", 1, 1, "an outbound packet after a range or '*'", "another event"),
        ("0~1 < . 1:1(0) ack 1 win 5", 1, 1, "an outbound packet", "another event"),
        ("0~+1 > . 1:1(0)", 1, 3, "a time in seconds", "'+'"),
        ("+.2~+.1 > . 1:1(0)", 1, 1, "a time range that goes forward", "backward"),
        ("-1 bind(3) = 0", 1, 1, "a time in seconds, not below 0", "-1"),
        ("0 bind(3, inet_addr(\"1.2.3\")) = 0", 1, 11, "an IP address", "1.2.3"),
        ("0 bind(3, {a=1, b=}) = 0", 1, 19, "an expression", "'}'"),
        ("0 bind(3) = 0 `a` `b`", 1, 19, "the end of the script", "a command"),
        ("0 bind(3) = 0\n/* open", 2, 1, "a time in seconds", "'/'"),
        ("0 `unclosed", 1, 3, "a token", "unclosed"),
        ("--ip_version=\n0 bind(3) = 0\n=", 2, 3, "an outbound", ""),
    ] {
        let error = error(text);
        if text.starts_with("--ip_version") {
            // The next token becomes the value: an odd but valid script.
            continue;
        }
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        assert!(error.expected.contains(expected) && error.found.contains(found), "{text}: {error}");
        assert_eq!(error.to_string(), format!("{line}:{column}: expected {}, found {}", error.expected, error.found));
    }
}

/// Another protocol's packets, and options and annotations of forks, are no errors: the script is not run, and the reason is named, even if
/// characters follow that are no token.
// Claim: Scripts for SCTP, UDP-Lite, MPTCP, TCP in UDP and absolute sequence numbers are not run, with that reason.
#[test]
fn scripts_of_other_dialects_are_not_run() {
    for (packet, reason) in [
        ("> sctp: INIT[flgs=0, tag=1]; $", "SCTP"),
        ("< udplite 5 > 6 (100)", "UDP-Lite"),
        ("< addr[a] > addr[b] S 0:0(0) win 5", "MPTCP"),
        ("< S 0:0(0) win 5 <mss 1460,nop,nop,mpcapable v1 flags[f] nokey>", "MPTCP"),
        ("< . 1:1(0) ack 1 win 5 <dss dack4=1>", "MPTCP"),
        ("> S 0:0(0) <mss 1460>/udp(9811 > 1)", "TCP in UDP"),
        ("> R. 0:0(0)! ack 2", "absolute sequence numbers"),
    ] {
        let script = Script::parse(&format!("0 {packet}"), &BTreeMap::new()).unwrap();
        let report = run(&script, &RunOptions::default(), &mut |_| None);
        assert_eq!((report.verdict, report.reason.as_deref()), (Verdict::NotRun, Some(reason)), "{packet}");
    }
}

/// Text that only resembles a dialect is a syntax error.
#[test]
fn errors_that_resemble_other_dialects_are_errors() {
    for (packet, column, found) in [
        ("> . 1:1(0) ack 1 / x", 20, "'/'"),
        ("> . 1:1(0) ack 1 / udp", 20, "'/'"),
        ("< S 0:0(0) win 5 <mp_what 1>", 21, "'mp_what'"),
        ("< S 0:0(0) win 5 <dssx>", 21, "'dssx'"),
        ("< S 0:0(0) win 5 <mptcp>", 21, "'mptcp'"),
    ] {
        let error = error(&format!("0 {packet}\n"));
        assert_eq!((error.line, error.column, error.found.as_str()), (1, column, found), "{packet}");
    }
}

/// `class` and `hlim` are nplab's names of fields of IPv6.
#[test]
fn names_of_ipv6_fields_are_for_ipv6() {
    let script = Script::parse("0 < (class 0x10, hlim 64) S 0:0(0) win 5", &BTreeMap::new()).unwrap();
    for ip_version in [IpVersion::V4, IpVersion::V4Mapped, IpVersion::V6] {
        let report = run(&script, &RunOptions { ip_version, ..RunOptions::default() }, &mut |_| None);
        let expected = (ip_version != IpVersion::V6).then_some("IPv6's class and hop limit in packets of IPv4");
        assert_eq!(report.reason.as_deref(), expected, "{ip_version}");
    }
    assert!(error("0 > [what] S 0:0(0)").expected.contains("ttl, class, hlim or flowlabel"));
}

fn parse_with(text: &str, defines: &[&str]) -> Result<Script, ScriptError> {
    Script::parse(text, &defines.iter().map(|name| ((*name).to_owned(), String::new())).collect())
}

/// `#ifdef` and `#endif` of nplab's packetdrill: what is not defined is left out, and errors keep their lines.
#[test]
fn undefined_parts_are_left_out() {
    let text = "0 bind(3) = 0\n#ifdef STANDARD\n+0 é?\n#endif\n+0 nothing\n";
    assert_eq!(parse_with(text, &[]).unwrap_err().line, 6);
    assert_eq!(parse_with(text, &["STANDARD"]).unwrap_err().line, 3);
    let whole = "0 bind(3) = 0 #ifdef A\n+0 listen(3, 1) = 0 #endif";
    assert_eq!(parse_with(whole, &[]), parse_with("0 bind(3) = 0", &[]));
    assert_eq!(parse_with(whole, &["A"]), parse_with("0 bind(3) = 0\n+0 listen(3, 1) = 0", &[]));
    for (text, line, expected) in [
        ("0 bind(3) = 0\n#ifdef A\n", 2, "'#endif' after '#ifdef'"),
        ("0 bind(3) = 0\n#ifdef Linux\n", 2, "'#endif' after '#ifdef'"),
        ("0 bind(3) = 0\n#ifdef Linux\n#ifdef B\n#endif", 3, "'#endif' before another '#ifdef'"),
        ("0 bind(3) = 0\n#ifdef\n#endif", 2, "a name after '#ifdef'"),
        ("0 bind(3) = 0\n#endif", 2, "'#ifdef' before '#endif'"),
    ] {
        let error = error(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.expected.contains(expected), "{text}: {error}");
    }
}

/// nplab's packetdrill defines `Linux` on Linux.
#[test]
fn the_platform_of_conditional_parts_is_linux() {
    let of = |name: &str| parse_with(&format!("0 bind(3) = 0\n#ifdef {name}\n+0 listen(3, 1) = 0\n#endif"), &[]);
    assert_eq!(of("FreeBSD"), parse_with("0 bind(3) = 0", &[]));
    assert_ne!(of("Linux"), of("FreeBSD"));
    // It has no value, and replaces no word.
    assert_eq!(parse_with("0 f(Linux) = 0", &[]), parse_with("0 f(Linux) = 0", &["FreeBSD"]));
}

#[test]
fn own_definitions_count_in_conditional_parts() {
    for (option, is_defined) in
        [("--define=A=1", true), ("--define=\"A=1\"", true), ("--define=B=A", false), ("--tolerance_usecs=4000", false)]
    {
        let script = |part: &str| parse_with(&format!("{option}\n0 bind(3) = 0\n{part}"), &[]).unwrap();
        let conditional = script("#ifdef A\n+0 listen(3, 1) = 0\n#endif");
        let expected = if is_defined { script("+0 listen(3, 1) = 0") } else { script("") };
        let without_lines = |script: &Script| format!("{script:?}").replace("line: 4", "line: 3");
        assert_eq!(without_lines(&conditional), without_lines(&expected), "{option}");
    }
}

#[test]
fn directives_in_comments_commands_and_code_are_text() {
    for part in [
        "/*\n#ifdef A\n*/ +0 listen(3, 1) = 0 /*\n#endif\n*/",
        "// #ifdef A\n+0 listen(3, 1) = 0\n// #endif",
        "+0 `\n#ifdef A\nx\n#endif\n`",
        "+0 %{\n#ifdef A\nx = 1\n#endif\n}%",
        "+0 listen(\"#ifdef A x #endif\", 1) = 0",
    ] {
        let script = format!("0 bind(3) = 0\n{part}");
        assert_eq!(parse_with(&script, &[]), parse_with(&script, &["A"]), "{part}");
        let without = parse_with("0 bind(3) = 0", &[]);
        assert_ne!(parse_with(&script, &[]), without, "{part}");
        assert!(format!("{:?}", parse_with(&script, &[])).contains("x") || part.contains("listen"), "{part}");
    }
}

// Claim: The whole grammar is parsed; an invalid script is an error with line, column and the expected syntax.
// Tests: `grammar::errors_have_line_column_and_what_was_expected`
#[test]
fn the_whole_grammar_is_read() {
    for text in [
        "--a\n--b=1\n--c=0x10\n--d=1.5\n--e=\"x\"\n--f=192.0.2.1\n--g=fd::1\n--h=ipv6\n--define=A=`b`\n`init`\n0 bind() = 0\n`cleanup`",
        "0 > SEWA 0:0(0) win 5 urg 6 <mss 1,nop,nop,sackOK,TS val 1 ecr 2,wscale 3,nop,nop,nop>",
        "0 < (hlim 3) S 0:0(0) win 5\n+0 > (class 0x10, hlim 4) . 1:1(0)",
        "0 > - 1:1(0)\n* > P.7 1:2(1) ack 3 <ECN e1b 1 ceb 2 e0b 3,nop>\n0.5~0.6 > R 1:1(0)\n+0~+1 > 5 > 6 F. 1:1(0) ack 5",
        "0 > . 1:1(0) ack 1 <sack 1:2 3:4,nop,nop>\n+0 > . 1:1(0) <eol,nop,nop,nop>\n+0 > . 1:1(0) <FOEXP 0011,nop,nop>\n+0 > . 1:1(0) <md5 00112233445566778899aabbccddeeff,nop,nop>",
        "0 < (ce, flowlabel 0x1) . 1:1(0) win 1\n+0 < [ttl 5] icmp unreachable frag_needed mtu 5 [1:2(1)]\n+0 < icmp echo_request id 5\n+0 > icmp unreachable [udp (5)]\n+0 > icmp unreachable [raw (5)]",
        "0 > gre flags [checksum present], sum 0: . 1:1(0)\n+0 > mpls (label 0, tc 0, [S], ttl 0): . 1:1(0)\n+0 > encap psp spi 0x5 . 1:1(0)\n+0 > udp 5 > 6 (7)",
        "0...5 f(1, -2, 0x3, A|B|C, \"a\" \"b\", \"c\"..., [], [1], {}, {1, {2}}, g(1), inet6_addr(\"::1\"), {a=1, b(2)=[{..., 3}]}) = ... EX (no such thing)",
        "0 f() = 0 (a note)\n+0 %{ a }%\n+0 `b`",
    ] {
        assert!(Script::parse(text, &BTreeMap::new()).is_ok(), "{text}: {}", error(text));
    }
}

#[test]
fn a_deep_expression_is_an_error_and_no_crash() {
    let text = format!("0 f({}", "[".repeat(100_000));
    assert!(error(&text).expected.contains("fewer nested"));
}
