//! Compares actual results with expected ones.

use core::fmt::Write;

use holdover_wire::{Flags, Segment, Timestamps};

use super::flow::Flow;
use super::sent::Sent;
use crate::ast::{Call, Expr, PacketSpec, TcpOption, TcpSpec, Tos};
use crate::constants::integer;
use crate::kernel::Returned;

/// The fields of a segment that differ from the script.
pub(super) fn compare(
    flow: &mut Flow,
    spec: &PacketSpec,
    tcp: &TcpSpec,
    sent: &Sent,
    tick: i64,
    tolerance: i64,
) -> Vec<&'static str> {
    let segment = &sent.segment;
    let (seq, ack) = flow.numbers(segment);
    let mut wrong = Vec::new();
    let mut check = |name, right: bool| {
        if !right {
            wrong.push(name)
        }
    };
    // Linux sets PSH on every packet that its device segments.
    let compared = if sent.gathered { Flags::all() - Flags::PSH } else { Flags::all() };
    check("flags", segment.flags & compared == tcp.flags & compared);
    check("sequence number", seq == tcp.seq);
    check("length", sent.len == usize::from(tcp.len));
    check("ack", ack == tcp.ack);
    check("window", tcp.window.is_none_or(|window| window == segment.window));
    check("urgent pointer", segment.urgent == tcp.urgent);
    check("TTL", spec.ip.ttl.is_none_or(|ttl| ttl == 0 || ttl == sent.ttl));
    let ecn = sent.traffic_class & 3;
    check(
        "ECN",
        match spec.ip.tos {
            None => true,
            Some(Tos::Ecn(bits)) => bits == ecn,
            Some(Tos::EctAny) => ecn == 1 || ecn == 2,
            Some(Tos::Byte(byte)) => byte == sent.traffic_class,
        },
    );
    if let Some(options) = &tcp.options {
        check("options", by_meaning(options.clone()) == by_meaning(live_options(flow, segment)));
    }
    if let (Some(Timestamps { val: live, .. }), Some(script)) = (segment.options.timestamps, script_timestamp(tcp)) {
        let mapped = flow.note_timestamp(script, live);
        let off = i64::from((mapped.wrapping_sub(script) as i32).unsigned_abs()) * tick;
        check("timestamp", tick == 0 || off <= tolerance);
    }
    wrong
}

/// The script's timestamp for this segment.
fn script_timestamp(tcp: &TcpSpec) -> Option<u32> {
    tcp.options.iter().flatten().find_map(|option| match option {
        TcpOption::Timestamps { val, .. } => Some(*val),
        _ => None,
    })
}

/// Options without padding, in a fixed order, and without timestamp values.
fn by_meaning(mut options: Vec<TcpOption>) -> Vec<TcpOption> {
    options.retain(|option| !matches!(option, TcpOption::Nop | TcpOption::End));
    for option in &mut options {
        if let TcpOption::Timestamps { val, ecr } = option {
            (*val, *ecr) = (0, 0);
        }
    }
    options.sort();
    options
}

/// A segment's options in script numbers.
fn live_options(flow: &Flow, segment: &Segment) -> Vec<TcpOption> {
    let options = &segment.options;
    let mut list = Vec::new();
    list.extend(options.mss.map(TcpOption::Mss));
    if options.sack_permitted {
        list.push(TcpOption::SackPermitted);
    }
    list.extend(options.timestamps.map(|ts| TcpOption::Timestamps { val: flow.script_timestamp(ts.val), ecr: ts.ecr }));
    list.extend(options.window_scale.map(TcpOption::WindowScale));
    if !options.sack.is_empty() {
        let offset = flow.remote_offset(segment.flags.contains(Flags::SYN));
        let number = |seq: holdover_wire::Seq| seq.value().wrapping_sub(offset);
        list.push(TcpOption::Sack(options.sack.iter().map(|block| (number(block.start), number(block.end))).collect()));
    }
    list.extend(options.accurate_ecn.map(TcpOption::AccurateEcn));
    list.extend(options.fast_open.as_deref().map(|option| match option.is_experiment() {
        false => TcpOption::FastOpen(option.cookie().to_vec()),
        true => TcpOption::FastOpenExperimental(option.cookie().to_vec()),
    }));
    list
}

/// The expected and the actual result of a call, if they differ.
pub(super) fn returned(call: &Call, returned: &Returned) -> Option<(String, String)> {
    let value_is_right = match &call.result {
        Expr::Ellipsis => true,
        result => integer(result) == Some(returned.value),
    };
    let same = |wanted: &str, got: &str| wanted == got || (wanted == "EWOULDBLOCK" && got == "EAGAIN");
    let errno_is_right = match (&call.errno, returned.errno) {
        (None, None) => true,
        // packetdrill compares the error only if the script names one.
        (None, Some(_)) => value_is_right,
        (Some(wanted), Some(got)) => same(wanted, got),
        (Some(_), None) => false,
    };
    let right = value_is_right && errno_is_right && returned.mismatch.is_none();
    if right {
        return None;
    }
    let name = &call.name;
    let wanted = integer(&call.result).map_or_else(|| "a value".to_owned(), |value| value.to_string());
    let expected = format!("{name}() = {wanted} {}", call.errno.as_deref().unwrap_or_default());
    let mut actual = format!("{} {}", returned.value, returned.errno.unwrap_or_default());
    if let Some(mismatch) = &returned.mismatch {
        let _ = write!(actual, "with {mismatch}");
    }
    Some((expected.trim_end().to_owned(), actual.trim_end().to_owned()))
}

/// Formats an expected packet.
pub(super) fn show_expected(spec: &PacketSpec, tcp: &TcpSpec) -> String {
    let mut text = format!("> {}{}", annotation(spec), flags(tcp.flags));
    show_rest(&mut text, (tcp.seq, tcp.len.into(), tcp.flags, tcp.ack), tcp.window);
    match tcp.options.as_deref() {
        None => text.push_str(" <...>"),
        Some(options) => show_options(&mut text, options),
    }
    text
}

/// Formats an actual packet in script syntax; the window only if the script has one.
pub(super) fn show_actual(flow: &Flow, tcp: &TcpSpec, sent: &Sent) -> String {
    let (seq, ack) = flow.numbers(&sent.segment);
    let mut text = format!("> {}", flags(sent.segment.flags));
    show_rest(&mut text, (seq, sent.len, sent.segment.flags, ack), tcp.window.map(|_| sent.segment.window));
    show_options(&mut text, &live_options(flow, &sent.segment));
    text
}

fn annotation(spec: &PacketSpec) -> String {
    match spec.ip.tos {
        None => String::new(),
        Some(Tos::Ecn(bits)) => format!("[{}] ", ["noecn", "ect1", "ect0", "ce"][usize::from(bits & 3)]),
        Some(Tos::EctAny) => "[ect01] ".to_owned(),
        Some(Tos::Byte(byte)) => format!("[tos {byte:#x}] "),
    }
}

fn flags(flags: Flags) -> String {
    let letters = [
        (Flags::FIN, 'F'),
        (Flags::SYN, 'S'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::URG, 'U'),
        (Flags::ECE, 'E'),
        (Flags::CWR, 'W'),
        (Flags::AE, 'A'),
        (Flags::ACK, '.'),
    ];
    let text: String = letters.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, letter)| letter).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

fn show_rest(text: &mut String, (seq, len, flags, ack): (u32, usize, Flags, u32), window: Option<u16>) {
    let _ = write!(text, " {seq}:{}({len})", seq.wrapping_add(len as u32));
    if flags.contains(Flags::ACK) {
        let _ = write!(text, " ack {ack}");
    }
    if let Some(window) = window {
        let _ = write!(text, " win {window}");
    }
}

fn show_options(text: &mut String, options: &[TcpOption]) {
    let mut separator = " <";
    for option in options {
        text.push_str(separator);
        separator = ",";
        let _ = match option {
            TcpOption::Nop => write!(text, "nop"),
            TcpOption::End => write!(text, "eol"),
            TcpOption::Mss(mss) => write!(text, "mss {mss}"),
            TcpOption::WindowScale(shift) => write!(text, "wscale {shift}"),
            TcpOption::SackPermitted => write!(text, "sackOK"),
            TcpOption::Sack(blocks) => {
                let blocks: Vec<String> = blocks.iter().map(|(left, right)| format!("{left}:{right}")).collect();
                write!(text, "sack {}", blocks.join(" "))
            }
            TcpOption::Timestamps { val, ecr } => write!(text, "TS val {val} ecr {ecr}"),
            TcpOption::FastOpen(cookie) => write!(text, "FO {}", hex(cookie)),
            TcpOption::FastOpenExperimental(cookie) => write!(text, "FOEXP {}", hex(cookie)),
            TcpOption::Md5(digest) => write!(text, "md5 {}", hex(digest)),
            TcpOption::AccurateEcn(option) => write!(text, "{option}"),
        };
    }
    if separator == "," {
        text.push('>');
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
