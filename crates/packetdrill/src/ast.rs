//! The syntax tree of a script.

use core::net::IpAddr;

use holdover_wire::{AccurateEcn, Flags};

/// A script: options, an initial command, timed events, a final command.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Script {
    pub(crate) options: Vec<ScriptOption>,
    pub(crate) init: Option<Command>,
    pub(crate) events: Vec<Event>,
    pub(crate) cleanup: Option<Command>,
    /// The protocol or dialect of a script that needs another than packetdrill's TCP, and was not parsed beyond that.
    pub(crate) dialect: Option<&'static str>,
}

/// `--name=value`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ScriptOption {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A shell command between back quotes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Command {
    pub(crate) line: u32,
    pub(crate) text: String,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Event {
    pub(crate) line: u32,
    pub(crate) time: EventTime,
    pub(crate) action: Action,
}

/// When an event happens, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventTime {
    Absolute(i64),
    Relative(i64),
    Any,
    AbsoluteRange(i64, i64),
    RelativeRange(i64, i64),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Action {
    Packet(Box<PacketSpec>),
    Call(Box<Call>),
    Command(String),
    Code(String),
}

/// An incoming packet, or an expected outgoing one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PacketSpec {
    pub(crate) inbound: bool,
    pub(crate) ip: IpInfo,
    /// The encapsulation of the packet, if Holdover does not support it.
    pub(crate) wrapped: Option<&'static str>,
    pub(crate) body: Body,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Body {
    Tcp(TcpSpec),
    Udp,
    Icmp(IcmpSpec),
}

/// The IP header fields given by a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IpInfo {
    pub(crate) tos: Option<Tos>,
    pub(crate) ttl: Option<u8>,
    pub(crate) flow_label: bool,
    /// Named as in IPv6: `class` or `hlim`.
    pub(crate) is_ipv6: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tos {
    /// The two ECN bits.
    Ecn(u8),
    /// ECT(0) or ECT(1).
    EctAny,
    /// The whole byte.
    Byte(u8),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TcpSpec {
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) flags: Flags,
    /// The AE, CWR and ECE flags form a number (RFC 9768), compared as a whole.
    pub(crate) ace: bool,
    pub(crate) seq: u32,
    pub(crate) len: u16,
    pub(crate) ack: u32,
    pub(crate) window: Option<u16>,
    pub(crate) urgent: u16,
    /// `None` for `<...>`, which is not compared.
    pub(crate) options: Option<Vec<TcpOption>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum TcpOption {
    Nop,
    End,
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    Sack(Vec<(u32, u32)>),
    Timestamps { val: u32, ecr: u32 },
    FastOpen(Vec<u8>),
    FastOpenExperimental(Vec<u8>),
    Md5(Vec<u8>),
    AccurateEcn(AccurateEcn),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct IcmpSpec {
    pub(crate) kind: String,
    pub(crate) code: Option<String>,
    pub(crate) mtu: Option<u32>,
    /// Sequence number and length of the quoted segment; `None` if it is not TCP.
    pub(crate) quoted: Option<(u32, u16)>,
}

/// A system call with its expected result.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Call {
    /// The time at which a blocking call returns.
    pub(crate) end: Option<i64>,
    pub(crate) name: String,
    pub(crate) args: Vec<Expr>,
    pub(crate) result: Expr,
    pub(crate) errno: Option<String>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Expr {
    Ellipsis,
    Int(i64),
    Word(String),
    Text(String),
    Address(IpAddr),
    /// `htons(8080)`.
    Apply(String, Vec<Expr>),
    Or(Box<Expr>, Box<Expr>),
    List(Vec<Expr>),
    Struct(Vec<Field>),
}

/// A field of a structure: `fd=4`, `msg_iov(1)=[...]`, or a value alone.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Field {
    pub(crate) name: Option<String>,
    pub(crate) value: Expr,
}

impl Expr {
    /// The field of a structure called `name`.
    pub(crate) fn field(&self, name: &str) -> Option<&Expr> {
        let Self::Struct(fields) = self else { return None };
        fields.iter().find(|field| field.name.as_deref() == Some(name)).map(|field| &field.value)
    }

    pub(crate) fn list(&self) -> Option<&[Expr]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }
}
