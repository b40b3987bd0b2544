//! Forwarded packets, unchanged and edited.

use std::net::IpAddr;

use crate::support::unhex;
use bytes::{Bytes, BytesMut};
use holdover_wire::{Checksums, Flags, Packet, Payload, SackBlocks, Segment, Seq, SeqRange, TcpOptions, Timestamps};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

/// Header contents that a value does not hold.
#[derive(Clone, Debug)]
struct Extras {
    identification: u16,
    dont_fragment: bool,
    flow_label: u32,
    /// IPv4 options or the content of an IPv6 destination options header, in words of 4 and units of 8 bytes.
    ip_options: Vec<u8>,
    reserved: u8,
    /// TCP options that replace those of the value.
    tcp_options: Option<Vec<u8>>,
}

fn extras() -> impl Strategy<Value = Extras> {
    let ip_options = (0..4_usize).prop_flat_map(|words| vec(any::<u8>(), 4 * words));
    (any::<u16>(), any::<bool>(), 0..1_u32 << 20, ip_options, 0..8_u8, of(tcp_options())).prop_map(
        |(identification, dont_fragment, flow_label, ip_options, reserved, tcp_options)| Extras {
            identification,
            dont_fragment,
            flow_label,
            ip_options,
            reserved,
            tcp_options,
        },
    )
}

/// Lists of options as hosts send them, with unknown kinds, or arbitrary bytes.
fn tcp_options() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        Just(vec![1]),
        vec(any::<u8>(), 2).prop_map(|mss| [&[2, 4][..], &mss].concat()),
        any::<u8>().prop_map(|shift| vec![3, 3, shift]),
        Just(vec![4, 2]),
        vec(any::<u8>(), 8).prop_map(|stamps| [&[8, 10][..], &stamps].concat()),
        (1..=3_usize)
            .prop_flat_map(|n| vec(any::<u8>(), 8 * n))
            .prop_map(|b| [&[5, 2 + b.len() as u8][..], &b].concat()),
        vec(any::<u8>(), 2).prop_map(|timeout| [&[28, 4][..], &timeout].concat()),
        // MPTCP, Fast Open, TCP-AO, and an experiment.
        (prop_oneof![Just(30_u8), Just(34), Just(29), Just(253), Just(254)], vec(any::<u8>(), 0..14))
            .prop_map(|(kind, value)| [&[kind, 2 + value.len() as u8][..], &value].concat()),
    ];
    prop_oneof![
        8 => vec(one, 0..6).prop_map(|options| {
            let mut list = Vec::new();
            for option in options {
                if list.len() + option.len() <= Segment::MAX_OPTIONS_LEN {
                    list.extend(option);
                }
            }
            list.resize(list.len().next_multiple_of(4), 0);
            list
        }),
        1 => (0..=10_usize).prop_flat_map(|words| vec(any::<u8>(), 4 * words)),
    ]
}

/// The packet with these extras, as bytes with correct checksums.
fn with_extras(packet: &Packet, extras: &Extras) -> Bytes {
    let plain = packet.emit().unwrap();
    let ip_len = packet.ip_header_len();
    let mut upper = plain[ip_len..].to_vec();
    let mut protocol = if packet.dst.is_ipv4() { plain[9] } else { plain[6] };
    if let Payload::Tcp(segment) = &packet.payload {
        let options =
            extras.tcp_options.clone().unwrap_or_else(|| upper[20..upper.len() - segment.payload.len()].to_vec());
        let data = segment.payload.to_vec();
        upper.truncate(20);
        upper[12] = (((20 + options.len()) / 4) << 4) as u8 | extras.reserved << 1 | upper[12] & 1;
        upper[16..18].fill(0);
        upper.extend(options);
        upper.extend(data);
        let sum = holdover_wire::transport_checksum(packet.src, packet.dst, 6, &upper);
        upper[16..18].copy_from_slice(&sum.to_be_bytes());
    }
    let mut bytes = plain[..ip_len].to_vec();
    if packet.dst.is_ipv4() {
        let is_fragment = matches!(packet.payload, Payload::Fragment(_));
        bytes.extend_from_slice(&extras.ip_options);
        bytes[0] = 0x40 | (bytes.len() / 4) as u8;
        if !is_fragment {
            bytes[4..6].copy_from_slice(&extras.identification.to_be_bytes());
            bytes[6] = bytes[6] & 0x80 | if extras.dont_fragment { 0x40 } else { 0 };
        }
        let len = (bytes.len() + upper.len()) as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        bytes[10..12].fill(0);
        let sum = !ones_complement(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        bytes[1] = bytes[1] & 0xf0 | (extras.flow_label >> 16) as u8;
        bytes[2..4].copy_from_slice(&(extras.flow_label as u16).to_be_bytes());
        if !extras.ip_options.is_empty() && !matches!(packet.payload, Payload::Fragment(_)) {
            // A destination options header with one padding option of the right length.
            let mut header = vec![protocol, 0, 1, 4, 0, 0, 0, 0];
            protocol = 60;
            header.append(&mut upper);
            upper = header;
        }
        bytes[6] = protocol;
        bytes[4..6].copy_from_slice(&(upper.len() as u16).to_be_bytes());
    }
    bytes.extend(upper);
    bytes.into()
}

fn ones_complement(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// An edit of a segment by a mechanism.
#[derive(Clone, Debug)]
struct Edit {
    window: Option<u16>,
    ack: Option<u32>,
    flags: Option<u16>,
    timestamps: Option<Option<(u32, u32)>>,
    sack: Option<Vec<(u32, u32)>>,
    ttl: u8,
    traffic_class: u8,
}

fn edit() -> impl Strategy<Value = Edit> {
    let sack = vec((any::<u32>(), any::<u32>()), 0..=4);
    let stamps = of((any::<u32>(), any::<u32>()));
    (of(any::<u16>()), of(any::<u32>()), of(0..0x200_u16), of(stamps), of(sack), any::<u8>(), any::<u8>()).prop_map(
        |(window, ack, flags, timestamps, sack, ttl, traffic_class)| Edit {
            window,
            ack,
            flags,
            timestamps,
            sack,
            ttl,
            traffic_class,
        },
    )
}

impl Edit {
    fn apply(&self, packet: &mut Packet) {
        (packet.ttl, packet.traffic_class) = (self.ttl, self.traffic_class);
        packet.reserved_flag ^= self.ttl & 1 != 0 && packet.dst.is_ipv4();
        let Payload::Tcp(segment) = &mut packet.payload else { return };
        segment.window = self.window.unwrap_or(segment.window);
        segment.ack = self.ack.map_or(segment.ack, Seq::new);
        segment.flags = self.flags.map_or(segment.flags, Flags::from_bits_truncate);
        if let Some(stamps) = self.timestamps {
            segment.options.timestamps = stamps.map(|(val, ecr)| Timestamps { val, ecr });
        }
        if let Some(sack) = &self.sack {
            segment.options.sack =
                sack.iter().map(|&(start, end)| SeqRange::new(Seq::new(start), Seq::new(end))).collect::<SackBlocks>();
        }
    }
}

fn other_addresses(is_v4: bool) -> (IpAddr, IpAddr) {
    match is_v4 {
        true => (IpAddr::from([198, 18, 0, 1]), IpAddr::from([198, 18, 255, 254])),
        false => ("2001:20::1".parse().unwrap(), "2001:20:ffff::fffe".parse().unwrap()),
    }
}

/// A packet without the checksums of IPv4 and of its payload: zero has two forms.
fn without_checksum(bytes: &Bytes, packet: &Packet) -> Vec<u8> {
    let start = Packet::parse_to_forward(bytes.clone(), Checksums::Ignore).unwrap().ip_header_len();
    let mut bytes = bytes.to_vec();
    if packet.dst.is_ipv4() {
        bytes[10..12].fill(0);
    }
    let at = match packet.payload {
        Payload::Tcp(_) => 16,
        Payload::Udp(_) => 6,
        Payload::IcmpError(_) | Payload::IcmpEcho(_) => 2,
        _ => return bytes,
    };
    bytes[start + at..start + at + 2].fill(0);
    bytes
}

proptest! {
    // Claim: A forwarded packet is unchanged: identification, "don't fragment", flow label, IP options and extension headers,
    // reserved bits, unknown TCP options and their order, a missing UDP checksum.
    // Tests: `packets_of_the_kernel_are_forwarded_unchanged`
    #[test]
    fn a_packet_is_forwarded_as_it_came(packet in crate::support::packet(), extras in extras(), padding in vec(any::<u8>(), 0..9)) {
        let bytes = with_extras(&packet, &extras);
        let mut padded = BytesMut::from(&bytes[..]);
        padded.extend_from_slice(&padding);
        let came = Packet::parse_to_forward(padded.freeze(), Checksums::Verify).unwrap();
        prop_assert_eq!(came.wire_len(), bytes.len());
        prop_assert_eq!(came.emit().unwrap(), bytes);
    }

    // Claim: An edit of window, ACK number, flags, timestamps, SACK blocks, hop limit or traffic class changes only that field
    // and the checksums.
    // Tests: `an_unknown_option_survives_an_edit`, `options_that_are_taken_away_become_padding_and_new_ones_follow`
    #[test]
    fn an_edit_changes_only_its_fields(packet in crate::support::packet(), extras in extras(), edit in edit()) {
        let bytes = with_extras(&packet, &extras);
        let mut came = Packet::parse_to_forward(bytes.clone(), Checksums::Verify).unwrap();
        edit.apply(&mut came);
        let Ok(edited) = came.emit() else {
            // More options than fit.
            prop_assert!(edit.sack.is_some() || edit.timestamps.is_some());
            return Ok(());
        };
        prop_assert_eq!(edited.len(), came.wire_len());
        let mut read = Packet::parse_to_forward(edited.clone(), Checksums::Verify).unwrap();
        prop_assert_eq!(read.identification(), came.identification());
        if packet.dst.is_ipv6() {
            prop_assert_eq!(&edited[2..4], &bytes[2..4]);
        } else {
            prop_assert_eq!(edited[6] & 0x40, bytes[6] & 0x40);
        }
        if let (Payload::Tcp(edited), Payload::Tcp(came)) = (&mut read.payload, &came.payload) {
            // Added options replace the malformed end of the list.
            prop_assert!(edited.options.unknown + 1 >= came.options.unknown);
            edited.options.unknown = came.options.unknown;
        }
        read.received = None;
        came.received = None;
        prop_assert_eq!(read, came);
    }

    /// An unchanged packet shares its bytes with the received one, and so does the payload of an edited segment.
    // Claim: Unchanged bytes are not copied: a whole packet, or the payload of an edited segment.
    #[test]
    fn bytes_that_are_unchanged_are_not_copied(packet in crate::support::packet(), extras in extras(), edit in edit()) {
        let bytes = with_extras(&packet, &extras);
        let mut came = Packet::parse_to_forward(bytes.clone(), Checksums::Verify).unwrap();
        prop_assert_eq!(came.emit().unwrap().as_ptr(), bytes.as_ptr());
        let mut head = BytesMut::new();
        prop_assert_eq!(came.emit_pieces(&mut head).unwrap().as_ptr(), bytes.as_ptr());
        prop_assert!(head.is_empty());

        edit.apply(&mut came);
        let Ok(edited) = came.emit() else { return Ok(()) };
        let rest = came.emit_pieces(&mut head).unwrap();
        prop_assert_eq!([&head[..], &rest[..]].concat(), edited);
        let came_from = bytes.as_ptr() as usize;
        prop_assert!(rest.is_empty() || (came_from..came_from + bytes.len()).contains(&(rest.as_ptr() as usize)));
    }

    /// RFC 1624: edits of window, ACK, flags, timestamps and SACK blocks.
    // Claim: The TCP checksum of an edited segment, computed by difference (RFC 1624), is that of the whole segment.
    // Tests: `the_example_of_rfc_1624_section_4_gives_zero`
    #[test]
    fn a_checksum_by_difference_is_the_checksum_of_the_whole(
        packet in crate::support::packet(), extras in extras(), edit in edit(), other_zero: bool,
    ) {
        let mut bytes = BytesMut::from(&with_extras(&packet, &extras)[..]);
        let Payload::Tcp(_) = packet.payload else { return Ok(()) };
        let start = Packet::parse_to_forward(bytes.clone().freeze(), Checksums::Verify).unwrap().ip_header_len();
        let field = start + 16..start + 18;
        // Senders may write zero in either form.
        if other_zero && bytes[field.clone()] == [0, 0] {
            bytes[field.clone()].fill(0xff);
        }
        let bytes = bytes.freeze();
        let emit = |checksums| {
            let mut came = Packet::parse_to_forward(bytes.clone(), checksums).unwrap();
            edit.apply(&mut came);
            came.emit()
        };
        let (by_difference, of_the_whole) = (emit(Checksums::Verify), emit(Checksums::Ignore));
        let (Ok(by_difference), Ok(of_the_whole)) = (by_difference, of_the_whole) else { return Ok(()) };
        let canonical = |bytes: &Bytes| {
            let mut bytes = bytes.to_vec();
            if bytes[field.clone()] == [0xff, 0xff] {
                bytes[field.clone()].fill(0);
            }
            bytes
        };
        prop_assert_eq!(canonical(&by_difference), canonical(&of_the_whole));
        prop_assert!(Packet::parse(by_difference).is_ok());
    }

    /// Other addresses of the same IP version change nothing else, and back again nothing at all.
    // Claim: With other addresses of the same IP version everything else stays, and with the former addresses again the packet is
    // the same; in the other IP version a TCP segment stays. Checksums are right.
    // Tests: `a_segment_keeps_its_header_in_the_other_ip_version`
    #[test]
    fn a_readdressed_packet_is_the_same_between_other_addresses(packet in crate::support::packet(), extras in extras(), edit in edit()) {
        if matches!(packet.payload, Payload::Fragment(_)) {
            return Ok(());
        }
        let bytes = with_extras(&packet, &extras);
        let came = Packet::parse_to_forward(bytes.clone(), Checksums::Verify).unwrap();
        let (src, dst) = other_addresses(packet.dst.is_ipv4());
        let mut sent = came.clone().readdress(src, dst);
        let addresses = if packet.dst.is_ipv4() { 12..20 } else { 8..40 };
        let first = sent.emit().unwrap();
        prop_assert_eq!(first.len(), sent.wire_len());
        prop_assert_eq!(&first[addresses.end..sent.ip_header_len()], &bytes[addresses.end..came.ip_header_len()]);
        prop_assert_eq!(&first[..4], &bytes[..4]);
        prop_assert_eq!(sent.identification(), came.identification());
        let mut head = BytesMut::new();
        let rest = sent.emit_pieces(&mut head).unwrap();
        prop_assert_eq!(&[&head[..], &rest[..]].concat()[..], &first[..]);
        // Others may have a checksum that covers addresses, at a place that is not known.
        let checksums = if matches!(packet.payload, Payload::Other { .. }) { Checksums::Ignore } else { Checksums::Verify };
        let read = Packet::parse_to_forward(first, checksums).unwrap();
        prop_assert_eq!((read.src, read.dst, &read.payload), (src, dst, &came.payload));
        let back = read.readdress(came.src, came.dst).emit().unwrap();
        prop_assert_eq!(without_checksum(&back, &packet), without_checksum(&bytes, &packet));
        prop_assert!(Packet::parse_with(back, checksums).is_ok());

        edit.apply(&mut sent);
        let Ok(edited) = sent.emit() else { return Ok(()) };
        prop_assert_eq!(edited.len(), sent.wire_len());
        prop_assert!(Packet::parse_with(edited, checksums).is_ok());
    }

    /// In the other IP version the TCP header stays: reserved bits, unknown options and the order of options.
    #[test]
    fn a_segment_keeps_its_header_in_the_other_ip_version(packet in crate::support::packet(), extras in extras(), edit in edit()) {
        let Payload::Tcp(_) = packet.payload else { return Ok(()) };
        let bytes = with_extras(&packet, &extras);
        let came = Packet::parse_to_forward(bytes.clone(), Checksums::Verify).unwrap();
        let (src, dst) = other_addresses(packet.dst.is_ipv6());
        let mut sent = came.clone().readdress(src, dst);
        let emitted = sent.emit().unwrap();
        prop_assert_eq!(emitted.len(), sent.wire_len());
        let read = Packet::parse(emitted.clone()).unwrap();
        prop_assert_eq!((read.src, read.dst, &read.payload), (src, dst, &came.payload));
        let [was, is] = [(&bytes, &came), (&emitted, &sent)].map(|(bytes, packet)| &bytes[packet.ip_header_len()..]);
        prop_assert_eq!((&was[..16], &was[18..]), (&is[..16], &is[18..]));

        edit.apply(&mut sent);
        sent.reserved_flag = false;
        let Ok(edited) = sent.emit() else { return Ok(()) };
        prop_assert_eq!(edited.len(), sent.wire_len());
        prop_assert!(Packet::parse(edited).is_ok());
    }

    /// An offloading device leaves checksums open: they are computed.
    #[test]
    fn an_open_checksum_is_filled_in(packet in crate::support::packet(), extras in extras()) {
        let at = match &packet.payload {
            Payload::Tcp(_) => 16,
            Payload::Udp(_) => 6,
            _ => return Ok(()),
        };
        let whole = with_extras(&packet, &extras);
        let mut came = Packet::parse_to_forward(whole.clone(), Checksums::Verify).unwrap();
        let mut open = BytesMut::from(&whole[..]);
        let start = came.ip_header_len() + at;
        open[start..start + 2].copy_from_slice(&[0x5a, 0x01]);
        let open = Packet::parse_to_forward(open.freeze(), Checksums::Ignore).unwrap();
        let filled = open.emit().unwrap();
        prop_assert_eq!(filled.len(), open.wire_len());
        let mut read = Packet::parse(filled).unwrap();
        (read.received, came.received) = (None, None);
        prop_assert_eq!(read, came);
    }
}

const SYN_WITH_MPTCP: &str = "450000481234 0000 4006 0000 0a0900010a090002 9c4100506d392bb700000000d002faf00000 0000
    020405b4 0402 080a277ffce200000000 01 03030a 1e0c 0081 0102030405060708";

/// A SYN of a multipath connection, with "don't fragment" clear.
fn multipath_syn() -> Bytes {
    let mut bytes = unhex(SYN_WITH_MPTCP);
    let sum = !ones_complement(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    let (src, dst) = ([10, 9, 0, 1].into(), [10, 9, 0, 2].into());
    let sum = holdover_wire::transport_checksum(src, dst, 6, &bytes[20..]);
    bytes[36..38].copy_from_slice(&sum.to_be_bytes());
    bytes.into()
}

#[test]
fn an_unknown_option_survives_an_edit() {
    let bytes = multipath_syn();
    let mut came = Packet::parse_to_forward(bytes.clone(), Checksums::Verify).unwrap();
    assert_eq!((came.emit().unwrap(), came.identification()), (bytes.clone(), Some(0x1234)));
    let Payload::Tcp(segment) = &mut came.payload else { panic!("not TCP") };
    (segment.window, segment.options.mss) = (7, Some(1200));
    let edited = came.emit().unwrap();
    let changed: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != edited[at]).collect();
    // The window, the checksum and the MSS.
    assert_eq!(changed, [34, 35, 36, 37, 42, 43]);
    assert!(Packet::parse(edited).is_ok());
}

#[test]
fn options_that_are_taken_away_become_padding_and_new_ones_follow() {
    let mut came = Packet::parse_to_forward(multipath_syn(), Checksums::Verify).unwrap();
    let Payload::Tcp(segment) = &mut came.payload else { panic!("not TCP") };
    segment.options.sack_permitted = false;
    segment.options.timestamps = None;
    segment.options.user_timeout = Some(holdover_wire::UserTimeout::from_wire(30));
    let edited = came.emit().unwrap();
    assert_eq!(edited[40..44], unhex("020405b4"));
    assert_eq!(edited[44..56], [1; 12]);
    assert_eq!(edited[56..60], unhex("0103030a"));
    assert_eq!(edited[60..72], unhex("1e0c00810102030405060708"));
    assert_eq!(edited[72..], unhex("1c04001e"));
}

#[test]
fn a_packet_with_other_addresses_is_emitted_from_its_value() {
    let came = Packet::parse_to_forward(multipath_syn(), Checksums::Verify).unwrap();
    let mut reply = Packet { src: came.dst, dst: came.src, ..came.clone() };
    let own = Packet { received: None, ..reply.clone() };
    assert_eq!(reply.emit(), own.emit());
    reply.payload = Payload::Tcp(Segment { options: TcpOptions::default(), ..Segment::default() });
    assert_eq!(reply.wire_len(), 40);
    let turned = Packet { payload: Payload::Udp(holdover_wire::Udp::default()), ..came };
    assert_eq!(turned.emit().unwrap().len(), 28);
}
