//! The daemon's table of nf_tables: packets of split connections go to their sockets, wherever they arrive.
//!
//! `socket transparent` finds the socket of a packet, or of the packet that an ICMP error quotes, and the mark routes the
//! packet to this host. (The packet must be routed before Linux looks for its socket by itself: it drops packets to be
//! forwarded that have a socket.) Both halves of a connection have the same addresses, so conntrack follows the fixed
//! host's half only.
//!
//! Marks distinguish the sockets of other processes. Request sockets and those in TIME_WAIT show no marks: these
//! match for any process.
//!
//! The table belongs to this value's socket (`NFT_TABLE_F_OWNER`, Linux 5.12): the kernel removes it with the socket,
//! also after SIGKILL.

use std::io;

use holdover_host::generic_netlink::attribute;
use holdover_host::netlink_socket::{NETLINK_NETFILTER, NetlinkSocket, Request};
use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE};

/// The table, while this value lives.
#[derive(Debug)]
pub(super) struct Table {
    _owner: NetlinkSocket,
}

/// The interfaces and marks in the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rules {
    /// The index of the mobile-facing interface.
    pub(super) mobile_facing: u32,
    /// The index of the daemon's device.
    pub(super) device: u32,
    /// The mark of packets to this host.
    pub(super) local: u32,
    /// The mark of the daemon's sockets towards mobile hosts.
    pub(super) near: u32,
    /// The mark of the daemon's other sockets.
    pub(super) far: u32,
}

impl Table {
    /// Creates the table of a mobile-facing interface, in the network namespace of the calling thread. Without conntrack in
    /// the kernel, it has no rules about conntrack.
    pub(super) fn create(rules: Rules) -> io::Result<Self> {
        let name = format!("holdover-split-{}", rules.mobile_facing);
        match Self::transact(&batch(&name, rules, true)) {
            // The kernel has no expression `notrack`.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                tracing::info!(%error, "rules about conntrack are refused: the table has none");
                Self::transact(&batch(&name, rules, false))
            }
            result => result,
        }
    }

    fn transact(requests: &[Request]) -> io::Result<Self> {
        let mut owner = NetlinkSocket::open(NETLINK_NETFILTER)?;
        owner.transact(requests)?;
        Ok(Self { _owner: owner })
    }
}

// `linux/netfilter/nfnetlink.h`
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const UNSPECIFIED: u8 = 0;
const INET: u8 = 1;

// `linux/netfilter/nf_tables.h`
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
const OWNER: u32 = 2;
const KEY_MARK: u32 = 3;
const KEY_INPUT: u32 = 4;
const KEY_PROTOCOL: u32 = 16;
const EQUAL: u32 = 0;
const DIFFERENT: u32 = 1;
const VERDICT: u32 = 0;
const REGISTER: u32 = 1;
const TRANSPARENT: u32 = 0;
const SOCKET_MARK: u32 = 1;

// `linux/netfilter.h`
const PREROUTING: u32 = 0;
const OUTPUT: u32 = 3;
/// Before conntrack.
const RAW: i32 = -300;
/// After destinations are translated (-100), and before routing.
const AFTER_NAT: i32 = -90;
const ACCEPT: u32 = 1;

const NESTED: u16 = 0x8000;

/// The first and the last message of a transaction.
fn border(kind: u16) -> Request {
    message(kind, 0, UNSPECIFIED, SUBSYSTEM, &[])
}

fn creation(kind: u16, attributes: &[u8]) -> Request {
    let flags = NLM_F_ACK | NLM_F_CREATE | if kind == NEW_RULE { NLM_F_APPEND } else { 0 };
    message(kind, flags, INET, 0, attributes)
}

/// A message of nfnetlink: `struct nfgenmsg`, and attributes.
fn message(kind: u16, flags: u16, family: u8, resource: u16, attributes: &[u8]) -> Request {
    Request { kind, flags, payload: [&[family, 0], &resource.to_be_bytes()[..], attributes].concat() }
}

/// The messages that create the table.
fn batch(table: &str, rules: Rules, untracks: bool) -> Vec<Request> {
    let Rules { mobile_facing, device, local, near, far } = rules;
    let chain = |name, hook, priority: i32| {
        let hook = [number(1, hook), number(2, priority as u32)].concat();
        let attributes = [text(1, table), text(3, name), nested(4, &hook), number(5, ACCEPT), text(7, "filter")];
        creation(NEW_CHAIN, &attributes.concat())
    };
    let rule = |chain, expressions: &[Vec<u8>]| {
        creation(NEW_RULE, &[text(1, table), text(2, chain), nested(4, &expressions.concat())].concat())
    };
    let not_udp = || [meta(KEY_PROTOCOL), compare(DIFFERENT, &[libc::IPPROTO_UDP as u8])].concat();
    let comes_from = |index: u32| [meta(KEY_INPUT), compare(EQUAL, &index.to_ne_bytes())].concat();
    let socket = |key| expression("socket", &[number(1, key), number(2, REGISTER)].concat());
    let has_socket = || [socket(TRANSPARENT), compare(EQUAL, &[1])].concat();
    let is_of_others = || {
        let marks = [compare(DIFFERENT, &near.to_ne_bytes()), compare(DIFFERENT, &far.to_ne_bytes())];
        [socket(SOCKET_MARK), marks.concat(), accept()].concat()
    };
    let untrack = || expression("notrack", &[]);

    let mut messages = vec![
        border(BATCH_BEGIN),
        creation(NEW_TABLE, &[text(1, table), number(2, OWNER)].concat()),
        chain("to-sockets", PREROUTING, AFTER_NAT),
        rule("to-sockets", &[not_udp(), is_of_others()]),
        rule("to-sockets", &[not_udp(), has_socket(), load(&local.to_ne_bytes()), set_mark()]),
    ];
    if untracks {
        messages.extend([
            chain("untrack-in", PREROUTING, RAW),
            rule("untrack-in", &[comes_from(device), untrack()]),
            rule("untrack-in", &[comes_from(mobile_facing), not_udp(), is_of_others()]),
            rule("untrack-in", &[comes_from(mobile_facing), not_udp(), has_socket(), untrack()]),
            chain("untrack-out", OUTPUT, RAW),
            rule("untrack-out", &[meta(KEY_MARK), compare(EQUAL, &near.to_ne_bytes()), untrack()]),
        ]);
    }
    messages.push(border(BATCH_END));
    messages
}

/// Loads a property of the packet.
fn meta(key: u32) -> Vec<u8> {
    expression("meta", &[number(1, REGISTER), number(2, key)].concat())
}

/// Ends the rule unless the loaded value compares so with another one.
fn compare(operation: u32, value: &[u8]) -> Vec<u8> {
    let data = nested(3, &attribute(1, value));
    expression("cmp", &[number(1, REGISTER), number(2, operation), data].concat())
}

/// Loads a constant.
fn load(value: &[u8]) -> Vec<u8> {
    expression("immediate", &[number(1, REGISTER), nested(2, &attribute(1, value))].concat())
}

/// Ends the chain: the packet is accepted.
fn accept() -> Vec<u8> {
    let verdict = nested(2, &number(1, ACCEPT));
    expression("immediate", &[number(1, VERDICT), nested(2, &verdict)].concat())
}

/// Makes the loaded value the packet's mark.
fn set_mark() -> Vec<u8> {
    expression("meta", &[number(2, KEY_MARK), number(3, REGISTER)].concat())
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    let data = if data.is_empty() { Vec::new() } else { nested(2, data) };
    nested(1, &[text(1, name), data].concat())
}

fn nested(kind: u16, attributes: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, attributes)
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}
