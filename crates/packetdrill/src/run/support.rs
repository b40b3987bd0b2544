//! Detects features not supported by Holdover; scripts that need them are not run.

use crate::ast::{Action, Body, Call, PacketSpec, Script, TcpOption};
use crate::constants;
use crate::report::IpVersion;

/// Supported calls.
const CALLS: &[&str] = &[
    "socket",
    "bind",
    "listen",
    "accept",
    "accept4",
    "connect",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmsg",
    "write",
    "writev",
    "send",
    "sendto",
    "sendmsg",
    "close",
    "shutdown",
    "fcntl",
    "ioctl",
    "poll",
    "setsockopt",
    "getsockopt",
];

/// Names in calls that stand for unsupported features, with reasons.
const MISSING: &[(&str, &str)] = &[
    ("MSG_ZEROCOPY", "the kernel's zero-copy sending"),
    ("SO_ZEROCOPY", "the kernel's zero-copy sending"),
    ("TCP_ZEROCOPY_RECEIVE", "the kernel's zero-copy receiving"),
    ("MSG_ERRQUEUE", "the kernel's queue of errors and time stamps"),
    ("SO_TIMESTAMPING", "the kernel's time stamps"),
    ("SO_TIMESTAMPNS", "the kernel's time stamps"),
    ("MSG_OOB", "urgent data of sockets"),
    ("TCP_MD5SIG", "TCP MD5 signatures"),
    ("TCP_MD5SIG_EXT", "TCP MD5 signatures"),
    ("TCP_REPAIR", "the kernel's repair mode"),
    ("TCP_ULP", "the kernel's upper layers"),
    ("SO_MAX_PACING_RATE", "pacing"),
    ("SO_RCVTIMEO", "time limits of sockets"),
    ("SO_SNDTIMEO", "time limits of sockets"),
    ("TCP_TIMESTAMP", "the kernel's repair mode"),
    ("TCP_SAVE_SYN", "reading the kernel's copy of a SYN"),
];

/// The first unsupported feature needed by a script, or one that the IP version does not have.
pub(super) fn missing(script: &Script, ip_version: IpVersion) -> Option<String> {
    const OPTIONS: &[&str] = &["wire_client", "wire_server", "so_filename", "is_anyip", "psp_udp_port"];
    if let Some(dialect) = script.dialect {
        return Some(dialect.to_owned());
    }
    if let Some(name) = OPTIONS.iter().find(|name| script.option(name).is_some()) {
        return Some(format!("packetdrill's --{name}"));
    }
    script.events.iter().find_map(|event| match &event.action {
        Action::Packet(packet) => of_packet(packet, ip_version),
        Action::Call(call) => of_call(call),
        Action::Command(_) | Action::Code(_) => None,
    })
}

fn of_packet(packet: &PacketSpec, ip_version: IpVersion) -> Option<String> {
    if packet.ip.is_ipv6 && ip_version != IpVersion::V6 {
        return Some("IPv6's class and hop limit in packets of IPv4".to_owned());
    }
    if let Some(wrapped) = packet.wrapped {
        return Some(wrapped.to_owned());
    }
    let tcp = match &packet.body {
        Body::Udp => return Some("UDP".to_owned()),
        Body::Icmp(icmp) if icmp.quoted.is_none() => return Some("an ICMP error about another protocol".to_owned()),
        Body::Icmp(_) => return None,
        Body::Tcp(tcp) => tcp,
    };
    if packet.ip.flow_label {
        return Some("IPv6 flow labels".to_owned());
    }
    // A signed segment that arrives is dropped for want of a key; none can leave.
    let signs = !packet.inbound && tcp.options.iter().flatten().any(|option| matches!(option, TcpOption::Md5(_)));
    signs.then(|| "TCP MD5 signatures".to_owned())
}

fn of_call(call: &Call) -> Option<String> {
    if !CALLS.contains(&call.name.as_str()) {
        let what = match call.name.as_str() {
            "epoll_create" | "epoll_create1" | "epoll_ctl" | "epoll_wait" => "the kernel's epoll".to_owned(),
            "sendfile" | "splice" | "open" | "pipe" => "files and pipes (sendfile, splice)".to_owned(),
            name => format!("the system call {name}"),
        };
        return Some(what);
    }
    let mut found: Option<String> = None;
    let mut look = |name: &str| {
        let missing = MISSING.iter().find(|(missing, _)| *missing == name).map(|(_, why)| (*why).to_owned());
        let unknown = || constants::value(name).is_none().then(|| format!("{name} in {}()", call.name));
        if found.is_none() {
            found = missing.or_else(unknown);
        }
    };
    call.args.iter().for_each(|arg| constants::names(arg, &mut look));
    found
}
