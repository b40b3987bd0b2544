//! Options of TCP that this kernel does not have: connections of segments that the test makes by hand, at both ends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use holdover_host::packet_listener::PacketListener;
use holdover_testbed::Namespace;
use holdover_testbed::gateway::{Cut, World};
use holdover_wire::transport_checksum;
use socket2::Socket;

use crate::Test;
use crate::handoff::wait_for;
use crate::hosts::raw;
use crate::nft;
use crate::process::Gateway;

pub(crate) const TESTS: &[Test] = &[
    ("segments_with_tcp_ao_are_neither_changed_nor_made", |_| authenticated()),
    ("unknown_and_malformed_options_are_passed_on", |_| unknown()),
];

const FIXED_PORT: u16 = 7000;
const MOBILE_PORT: u16 = 7001;

/// The kernels of both ends do not answer these segments.
const QUIET: &str = "
    chain arriving {
        type filter hook input priority filter
        tcp dport { 7000, 7001 } drop
    }";

/// TCP-AO (RFC 5925 section 2.2): kind, length, two key identifiers, and a code of 12 bytes.
const AO: [u8; 16] = [29, 16, 1, 1, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac];

/// Of a kind for experiments (RFC 6994), and of one that nobody has registered; and with lengths of 0, and beyond the header.
const UNKNOWN: [&[u8]; 4] = [&[253, 4, 0x12, 0x34], &[77, 6, 1, 2, 3, 4, 1, 1], &[77, 0, 0, 0], &[77, 200, 1, 1]];

/// A window scale of 0, which makes lowered ACKs possible.
const WINDOW_SCALE: [u8; 4] = [3, 3, 0, 1];

const FIN_SYN_RST: u8 = 0x07;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

const WINDOW: u16 = 60_000;

/// Bytes of data in a segment, and the segments of a conversation: nothing is held of the first 150,000 bytes.
const SIZE: usize = 1000;
const SEGMENTS: u32 = 220;

/// An end of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Fixed,
    Mobile,
}

/// Both ends of a conversation.
struct Ends {
    fixed: End,
    mobile: End,
    options: Vec<u8>,
    sent: u64,
    /// Whether the gateway may make segments, which have no options.
    may_be_made: bool,
}

struct End {
    address: Ipv4Addr,
    port: u16,
    socket: Socket,
    heard: PacketListener,
}

impl End {
    fn open(host: &Namespace, address: IpAddr, port: u16) -> Self {
        let IpAddr::V4(address) = address else { panic!("IPv4") };
        nft::load(host, QUIET);
        let heard = host.enter(|| PacketListener::open("eth0").unwrap()).unwrap();
        Self { address, port, socket: raw(host, libc::IPPROTO_RAW), heard }
    }

    /// The next TCP packet from the other end, behind its IP header.
    fn hear(&self, other: &Self, patience_ms: u64) -> Option<Vec<u8>> {
        let mut buffer = [0; 2000];
        loop {
            let patience = holdover_base::Duration::from_millis(patience_ms);
            let heard = self.heard.receive(&mut buffer, patience).unwrap()?;
            let packet = &buffer[..heard.len];
            let is_tcp = packet.len() >= 40 && packet[0] == 0x45 && packet[9] == 6;
            if is_tcp && packet[12..16] == other.address.octets() {
                return Some(packet[20..].to_vec());
            }
        }
    }
}

impl Ends {
    fn open(world: &World, options: &[u8], may_be_made: bool) -> Self {
        let fixed = End::open(world.fixed(), world.fixed_address(), FIXED_PORT);
        let mobile = End::open(world.mobile(0), world.mobile_address(0), MOBILE_PORT);
        Self { fixed, mobile, options: options.to_vec(), sent: 0, may_be_made }
    }

    fn of(&self, from: Side) -> (&End, &End) {
        match from {
            Side::Fixed => (&self.fixed, &self.mobile),
            Side::Mobile => (&self.mobile, &self.fixed),
        }
    }

    /// Sends a segment; returns it.
    fn send(&mut self, from: Side, flags: u8, seq: u32, ack: u32, data: usize) -> Vec<u8> {
        let (near, far) = self.of(from);
        let scale: &[u8] = if flags & SYN != 0 { &WINDOW_SCALE } else { &[] };
        let header = 20 + scale.len() + self.options.len();
        let mut tcp: Vec<u8> = Vec::new();
        tcp.extend(near.port.to_be_bytes());
        tcp.extend(far.port.to_be_bytes());
        tcp.extend(seq.to_be_bytes());
        tcp.extend(ack.to_be_bytes());
        tcp.extend([((header / 4) << 4) as u8, flags]);
        tcp.extend(WINDOW.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(scale);
        tcp.extend(&self.options);
        tcp.extend(vec![seq as u8; data]);
        let sum = transport_checksum(near.address.into(), far.address.into(), 6, &tcp);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        // The kernel fills in the length and the header checksum.
        let mut packet: Vec<u8> = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0];
        packet.extend(near.address.octets());
        packet.extend(far.address.octets());
        packet.extend(&tcp);
        near.socket.send_to(&packet, &SocketAddr::new(far.address.into(), 0).into()).unwrap();
        self.sent += 1;
        tcp
    }

    /// What arrives at the other end within 20 s.
    #[track_caller]
    fn arrives(&self, from: Side) -> Vec<u8> {
        let (near, far) = self.of(from);
        loop {
            let tcp = far.hear(near, 20_000).unwrap_or_else(|| panic!("a segment from {from:?} does not arrive"));
            if !self.may_be_made || tcp[12] >> 4 > 5 {
                return tcp;
            }
        }
    }

    /// Opens the connection, and sends data to the mobile host, which acknowledges each segment. `compare` gets each segment as
    /// it was sent and as it has arrived.
    fn converse(&mut self, mut compare: impl FnMut(&Self, Side, &[u8], &[u8])) {
        let mut pass = |this: &mut Self, from, flags, seq, ack, data| {
            let sent = this.send(from, flags, seq, ack, data);
            let arrived = this.arrives(from);
            compare(this, from, &sent, &arrived);
        };
        pass(self, Side::Mobile, SYN, 99, 0, 0);
        pass(self, Side::Fixed, SYN | ACK, 999, 100, 0);
        pass(self, Side::Mobile, ACK, 100, 1000, 0);
        for number in 0..SEGMENTS {
            let seq = 1000 + number * SIZE as u32;
            pass(self, Side::Fixed, ACK, seq, 100, SIZE);
            pass(self, Side::Mobile, ACK, 100, seq + SIZE as u32, 0);
        }
    }
}

/// The options of a segment, and its payload.
fn behind_the_header(tcp: &[u8]) -> &[u8] {
    &tcp[20..]
}

fn ack_of(tcp: &[u8]) -> u32 {
    u32::from_be_bytes(tcp[8..12].try_into().unwrap())
}

// Claim: Segments with TCP-AO, made by hand, arrive as they were sent in `buffer` and `m-tcp`, bit by bit; those for an absent
// mobile host are kept and arrive in order; and none is made for either end. With options that are unknown or malformed, ACKs are
// lowered by `m-tcp`, and the options arrive as they were sent, with a right checksum. Needs `nft`.
// Tests: `options::unknown`
fn authenticated() {
    for mode in ["buffer", "m-tcp"] {
        let world = World::new(1).unwrap();
        let gateway = Gateway::start(world.router(), &format!("[mobiles]\nmode = \"{mode}\"\n"));
        let mut ends = Ends::open(&world, &AO, false);
        ends.converse(|_, from, sent, arrived| assert_eq!(sent, arrived, "{mode}: from {from:?}"));
        let mobile = world.mobile_address(0);
        world.set_cut(Cut::Carrier, true).unwrap();
        gateway.says(mobile, "away");
        let next = 1000 + SEGMENTS * SIZE as u32;
        let kept: Vec<Vec<u8>> =
            (0..20).map(|number| ends.send(Side::Fixed, ACK, next + number * SIZE as u32, 100, SIZE)).collect();
        wait_for("segments that wait", || (gateway.status().waiting >= 20).then_some(()));
        world.set_cut(Cut::Carrier, false).unwrap();
        for sent in kept {
            assert_eq!(ends.arrives(Side::Fixed), sent, "{mode}");
        }
        gateway.says(mobile, "present");
        let sent = ends.send(Side::Mobile, ACK, 100, next, 0);
        assert_eq!(ends.arrives(Side::Mobile), sent, "{mode}");
        // Nothing else comes to either end, such as an ACK that was held back or a window of zero.
        for from in [Side::Fixed, Side::Mobile] {
            let (near, far) = ends.of(from);
            assert_eq!(far.hear(near, 300), None, "{mode}: from {from:?}");
        }
        let path = gateway.status().path;
        assert_eq!((path.signed, path.tcp, path.injected), (ends.sent, 0, 0), "{mode}: {path:?}");
    }
}

fn unknown() {
    for options in UNKNOWN {
        let world = World::new(1).unwrap();
        let gateway = Gateway::start(world.router(), "[mobiles]\nmode = \"m-tcp\"\n");
        let mut ends = Ends::open(&world, options, true);
        ends.converse(|ends, from, sent, arrived| {
            let (near, far) = ends.of(from);
            let sum = transport_checksum(near.address.into(), far.address.into(), 6, arrived);
            assert_eq!(sum, 0, "{options:?}: the checksum is wrong");
            // The ACK number, the window and the checksum may differ.
            assert_eq!(sent[..8], arrived[..8], "{options:?}: from {from:?}");
            assert_eq!(sent[12..14], arrived[12..14], "{options:?}: from {from:?}");
            assert_eq!(behind_the_header(sent), behind_the_header(arrived), "{options:?}: from {from:?}");
            let may_differ = from == Side::Mobile && sent[13] & FIN_SYN_RST == 0;
            let lowered = ack_of(sent).wrapping_sub(ack_of(arrived));
            assert!(lowered == 0 || may_differ && lowered == 1, "{options:?}: from {from:?}, lowered by {lowered}");
        });
        let status = gateway.status();
        assert!(status.path.lowered > 20 && status.path.tcp >= ends.sent, "{options:?}: {status:?}");
    }
}
