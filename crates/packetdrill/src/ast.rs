//! A script as a value.

use core::net::IpAddr;

use holdover_wire::Flags;

/// A script: options, a command to begin with, events in time, a command to end with.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Script {
    pub(crate) options: Vec<ScriptOption>,
    pub(crate) init: Option<Command>,
    pub(crate) events: Vec<Event>,
    pub(crate) cleanup: Option<Command>,
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

/// A packet that arrives, or that is expected to leave.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PacketSpec {
    pub(crate) inbound: bool,
    pub(crate) ip: IpInfo,
    /// What the packet is wrapped in, if Holdover has nothing of the kind.
    pub(crate) wrapped: Option<&'static str>,
    pub(crate) body: Body,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Body {
    Tcp(TcpSpec),
    Udp,
    Icmp(IcmpSpec),
}

/// What a script says of the IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IpInfo {
    pub(crate) tos: Option<Tos>,
    pub(crate) ttl: Option<u8>,
    pub(crate) flow_label: bool,
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
    /// The flags' AE, CWR and ECE are a number (RFC 9768): compared as one.
    pub(crate) ace: bool,
    pub(crate) seq: u32,
    pub(crate) len: u16,
    pub(crate) ack: u32,
    pub(crate) window: Option<u16>,
    pub(crate) urgent: u16,
    /// `None` for `<...>`: not compared.
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
    AccurateEcn(Vec<(&'static str, u32)>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct IcmpSpec {
    pub(crate) kind: String,
    pub(crate) code: Option<String>,
    pub(crate) mtu: Option<u32>,
    /// Sequence number and length of the quoted segment; `None` if it is not of TCP.
    pub(crate) quoted: Option<(u32, u16)>,
}

/// A system call, and what it is expected to return.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Call {
    /// When a blocking call returns.
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
    /// A field of a structure by its name.
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
