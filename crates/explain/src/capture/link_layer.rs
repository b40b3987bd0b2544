//! Finds the IP packet in a frame, for each link type of captures (<https://www.tcpdump.org/linktypes.html>).

/// The content of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payload {
    /// An IP packet that begins here.
    Ip(usize),
    /// Other content, or unreadable content (an encrypted Wi-Fi frame).
    Other,
    /// An unsupported link type.
    Unsupported,
}

/// Finds the IP packet in `frame` of link type `link`.
pub(crate) fn ip_packet(link: i32, frame: &[u8]) -> Payload {
    let at = match link {
        // LINKTYPE_RAW, LINKTYPE_IPV4, LINKTYPE_IPV6, and DLT_RAW as BSDs write it.
        101 | 228 | 229 | 12 | 14 => Some(0),
        // LINKTYPE_NULL: the writer's byte order; LINKTYPE_LOOP: the network's.
        0 | 108 => loopback(frame),
        // LINKTYPE_ETHERNET.
        1 => by_ethertype(frame, 12),
        // LINKTYPE_PPP, LINKTYPE_PPP_HDLC, LINKTYPE_PPP_WITH_DIR.
        9 | 50 => ppp(frame, 0),
        204 => ppp(frame, 1),
        // LINKTYPE_PPP_ETHER: a PPPoE header.
        51 => ppp(frame, 6),
        // LINKTYPE_IEEE802_11, LINKTYPE_IEEE802_11_RADIOTAP.
        105 => wifi(frame, 0),
        127 => le16(frame, 2).and_then(|header_len| wifi(frame, usize::from(header_len))),
        // LINKTYPE_LINUX_SLL, LINKTYPE_LINUX_SLL2.
        113 => by_ethertype(frame, 14),
        276 => be16(frame, 0).filter(|kind| is_ip(*kind)).map(|_| 20),
        _ => return Payload::Unsupported,
    };
    // The IP version must match: other content is not IP.
    match at {
        Some(at) if frame.get(at).is_some_and(|first| matches!(first >> 4, 4 | 6)) => Payload::Ip(at),
        _ => Payload::Other,
    }
}

fn is_ip(ethertype: u16) -> bool {
    matches!(ethertype, 0x0800 | 0x86dd)
}

/// The packet after the EtherType at `at`, past VLAN tags (IEEE 802.1Q) and a PPPoE session header (RFC 2516).
fn by_ethertype(frame: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match be16(frame, at)? {
            0x8100 | 0x88a8 => at += 4,
            0x8864 => return ppp(frame, at + 8),
            kind => return is_ip(kind).then_some(at + 2),
        }
    }
}

/// The packet in the PPP frame at `at` (RFC 1661, RFC 1662): address and control may be absent, as may the first byte of the protocol.
fn ppp(frame: &[u8], mut at: usize) -> Option<usize> {
    if frame.get(at..at + 2)? == [0xff, 0x03] {
        at += 2;
    }
    match *frame.get(at..at + 2)? {
        [0x00, 0x21 | 0x57] => Some(at + 2),
        [0x21 | 0x57, _] => Some(at + 1),
        _ => None,
    }
}

/// The packet after a four-byte address family of a BSD, macOS or Linux, in either byte order.
fn loopback(frame: &[u8]) -> Option<usize> {
    let family = match *frame.get(..4)? {
        [a, b, 0, 0] => u16::from_le_bytes([a, b]),
        [0, 0, a, b] => u16::from_be_bytes([a, b]),
        _ => return None,
    };
    matches!(family, 2 | 10 | 24 | 28 | 30).then_some(4)
}

/// The packet in the IEEE 802.11 frame at `at`: unencrypted data with an LLC/SNAP header (RFC 1042).
fn wifi(frame: &[u8], at: usize) -> Option<usize> {
    const DATA: u8 = 2;
    const PROTECTED: u8 = 0x40;
    const ORDER: u8 = 0x80;
    let (control, flags) = (*frame.get(at)?, *frame.get(at + 1)?);
    let (kind, subtype) = (control >> 2 & 3, control >> 4);
    let (is_qos, has_data) = (subtype & 8 != 0, subtype & 4 == 0);
    if kind != DATA || !has_data || flags & PROTECTED != 0 {
        return None;
    }
    let mut llc = at + 24;
    // A fourth address is present if both distribution system flags are set.
    llc += if flags & 3 == 3 { 6 } else { 0 };
    if is_qos {
        let is_aggregate = frame.get(llc)? & 0x80 != 0;
        if is_aggregate {
            return None;
        }
        llc += if flags & ORDER != 0 { 6 } else { 2 };
    }
    match *frame.get(llc..llc + 8)? {
        [0xaa, 0xaa, 0x03, 0, 0, 0, a, b] if is_ip(u16::from_be_bytes([a, b])) => Some(llc + 8),
        _ => None,
    }
}

fn be16(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn le16(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(header: &[u8]) -> Vec<u8> {
        [header, &[0x45, 0, 0, 20]].concat()
    }

    #[test]
    fn ip_is_found_behind_every_header() {
        let ethernet = [&[0; 12][..], &[0x08, 0x00]].concat();
        let vlan = [&[0; 12][..], &[0x81, 0x00, 0, 5, 0x08, 0x00]].concat();
        let pppoe = [&[0; 12][..], &[0x88, 0x64, 0x11, 0, 0, 1, 0, 22, 0x00, 0x21]].concat();
        let snap = [0xaa, 0xaa, 0x03, 0, 0, 0, 0x08, 0x00];
        let radiotap = [0, 0, 10, 0, 0, 0, 0, 0, 9, 9];
        let data = [&radiotap[..], &[0x08, 0x01], &[0; 22], &snap].concat();
        let qos = [&radiotap[..], &[0x88, 0x02], &[0; 22], &[0, 0], &snap].concat();
        let four_addresses = [&[0x88, 0x03][..], &[0; 28], &[0, 0], &snap].concat();
        let cooked = [&[0; 14][..], &[0x86, 0xdd]].concat();
        let cooked_2 = [&[0x08, 0x00][..], &[0; 18]].concat();
        let cases: [(i32, &[u8]); 18] = [
            (101, &[]),
            (1, &ethernet),
            (1, &vlan),
            (1, &pppoe),
            (0, &[2, 0, 0, 0]),
            (0, &[0, 0, 0, 30]),
            (108, &[0, 0, 0, 2]),
            (9, &[0xff, 0x03, 0x00, 0x21]),
            (9, &[0x00, 0x57]),
            (50, &[0x21]),
            (204, &[1, 0xff, 0x03, 0x00, 0x21]),
            (51, &[0x11, 0, 0, 1, 0, 22, 0x00, 0x21]),
            (127, &data),
            (127, &qos),
            (105, &four_addresses),
            (113, &cooked),
            (276, &cooked_2),
            (229, &[]),
        ];
        for (link, header) in cases {
            assert_eq!(ip_packet(link, &frame(header)), Payload::Ip(header.len()), "{link}: {header:?}");
        }
    }

    #[test]
    fn non_ip_and_encrypted_frames_differ_from_unknown_link_types() {
        let arp = [&[0; 12][..], &[0x08, 0x06]].concat();
        assert_eq!(ip_packet(1, &frame(&arp)), Payload::Other);
        let mut protected = [&[0x08, 0x41][..], &[0; 22], &[0xaa, 0xaa, 0x03, 0, 0, 0, 0x08, 0x00]].concat();
        assert_eq!(ip_packet(105, &frame(&protected)), Payload::Other);
        protected[1] = 0x01;
        assert_eq!(ip_packet(105, &frame(&protected)), Payload::Ip(32));
        protected[0] = 0x80;
        assert_eq!(ip_packet(105, &frame(&protected)), Payload::Other, "a beacon");
        assert_eq!(ip_packet(147, &frame(&[])), Payload::Unsupported);
    }

    proptest! {
        #[test]
        fn any_frame_is_read_without_panic(
            link in proptest::sample::select(vec![0, 1, 9, 50, 51, 101, 105, 108, 113, 127, 204, 276]),
            frame in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            if let Payload::Ip(at) = ip_packet(link, &frame) {
                prop_assert!(at < frame.len());
            }
        }
    }
}
