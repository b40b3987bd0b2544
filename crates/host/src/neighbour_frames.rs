//! Address resolution packets as bytes: ARP (RFC 826) and neighbour solicitations (RFC 4861 sections 4.3 and 4.4).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdover_wire::transport_checksum;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// To all stations of the link.
pub const BROADCAST: Mac = [0xff; 6];

/// An ARP request or neighbour solicitation for `hop`. The recipient learns that `mac` is the link-layer address of `local`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// The sender's Ethernet address.
    pub mac: Mac,
    /// The sender's IP address.
    pub local: IpAddr,
    /// The neighbour to resolve.
    pub hop: IpAddr,
}

const ETHERTYPE_ARP: u16 = 0x0806;
/// The EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// The EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// The shortest frame without its checksum.
const LEAST_FRAME: usize = 60;
const ARP_LEN: usize = 28;
const ARP_REQUEST: u16 = 1;
pub(crate) const ARP_REPLY: u16 = 2;

const IPV6_HEADER: usize = 40;
const ICMPV6: u8 = 58;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// RFC 4861 section 7.1: a packet that has crossed a router is not an answer of a neighbour.
const HOP_LIMIT: u8 = 255;
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;

impl Question {
    /// The request frame, to `known` if the neighbour's address was known before, else to all; `None` if the two IP
    /// addresses are of different families.
    pub fn frame(&self, known: Option<Mac>) -> Option<Vec<u8>> {
        match (self.local, self.hop) {
            (IpAddr::V4(local), IpAddr::V4(hop)) => Some(self.arp(local, hop, known)),
            (IpAddr::V6(local), IpAddr::V6(hop)) => Some(self.solicitation(local, hop, known)),
            _ => None,
        }
    }

    fn header(&self, to: Mac, ethertype: u16) -> Vec<u8> {
        let mut frame = Vec::with_capacity(LEAST_FRAME + 30);
        frame.extend(to);
        frame.extend(self.mac);
        frame.extend(ethertype.to_be_bytes());
        frame
    }

    fn arp(&self, local: Ipv4Addr, hop: Ipv4Addr, known: Option<Mac>) -> Vec<u8> {
        let mut frame = self.header(known.unwrap_or(BROADCAST), ETHERTYPE_ARP);
        frame.extend(1u16.to_be_bytes());
        frame.extend(ETHERTYPE_IPV4.to_be_bytes());
        frame.extend([6, 4]);
        frame.extend(ARP_REQUEST.to_be_bytes());
        frame.extend(self.mac);
        frame.extend(local.octets());
        frame.extend([0; 6]);
        frame.extend(hop.octets());
        frame.resize(LEAST_FRAME, 0);
        frame
    }

    fn solicitation(&self, local: Ipv6Addr, hop: Ipv6Addr, known: Option<Mac>) -> Vec<u8> {
        let [.., x, y, z] = hop.octets();
        // RFC 4291 section 2.7.1 and RFC 2464 section 7.
        let group = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, x, y, z]);
        // The target is always the group, also in a unicast frame (RFC 6085): the answer to a solicitation for a
        // unicast address may omit the link-layer address (RFC 4861 section 7.2.4), and a kernel that waits for it
        // ignores such an answer (section 7.2.5).
        let (to, destination) = (known.unwrap_or([0x33, 0x33, 0xff, x, y, z]), group);
        let mut message = vec![NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
        message.extend(hop.octets());
        message.extend([SOURCE_LINK_LAYER_ADDRESS, 1]);
        message.extend(self.mac);
        let sum = transport_checksum(local.into(), destination.into(), ICMPV6, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut frame = self.header(to, ETHERTYPE_IPV6);
        frame.extend([0x60, 0, 0, 0]);
        frame.extend((message.len() as u16).to_be_bytes());
        frame.extend([ICMPV6, HOP_LIMIT]);
        frame.extend(local.octets());
        frame.extend(destination.octets());
        frame.extend(message);
        frame
    }
}

/// The EtherType of a frame.
pub fn ethertype(frame: &[u8]) -> Option<u16> {
    frame.get(12..14).map(|field| u16::from_be_bytes([field[0], field[1]]))
}

/// The neighbour whose address a frame reports, and its Ethernet address. `None` for any other frame.
pub fn neighbour(frame: &[u8]) -> Option<(IpAddr, Mac)> {
    let (header, body) = frame.split_at_checked(14)?;
    match u16::from_be_bytes([header[12], header[13]]) {
        ETHERTYPE_ARP => of_arp(body),
        ETHERTYPE_IPV6 => of_advertisement(header, body),
        _ => None,
    }
}

fn of_arp(body: &[u8]) -> Option<(IpAddr, Mac)> {
    let body = body.get(..ARP_LEN)?;
    let is_ethernet = body[..6] == [0, 1, 8, 0, 6, 4];
    let mac: Mac = body[8..14].try_into().ok()?;
    let address: [u8; 4] = body[14..18].try_into().ok()?;
    // A request reports its sender's address as a reply does; an address probe (RFC 5227) has none.
    (is_ethernet && address != [0; 4]).then(|| (IpAddr::from(address), mac))
}

fn of_advertisement(header: &[u8], body: &[u8]) -> Option<(IpAddr, Mac)> {
    let (ip, message) = body.split_at_checked(IPV6_HEADER)?;
    let len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let message = message.get(..len)?;
    if ip[0] >> 4 != 6 || ip[6] != ICMPV6 || ip[7] != HOP_LIMIT || message.len() < 24 {
        return None;
    }
    if message[0] != NEIGHBOUR_ADVERTISEMENT || message[1] != 0 {
        return None;
    }
    let source: [u8; 16] = ip[8..24].try_into().ok()?;
    let destination: [u8; 16] = ip[24..40].try_into().ok()?;
    // The sum over a message with its own checksum is all ones, whose complement is zero.
    if transport_checksum(source.into(), destination.into(), ICMPV6, message) != 0 {
        return None;
    }
    let target: [u8; 16] = message[8..24].try_into().ok()?;
    let mac = target_option(&message[24..]).or_else(|| header[6..12].try_into().ok())?;
    Some((IpAddr::from(target), mac))
}

/// The target link-layer address among options (RFC 4861 section 4.6.1).
fn target_option(mut options: &[u8]) -> Option<Mac> {
    loop {
        let &[kind, units, ..] = options else { return None };
        let len = usize::from(units) * 8;
        if len == 0 || len > options.len() {
            return None;
        }
        if kind == TARGET_LINK_LAYER_ADDRESS {
            return options[2..8].try_into().ok();
        }
        options = &options[len..];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: Mac = [2, 0, 0, 0, 0, 1];
    const THEIRS: Mac = [2, 0, 0, 0, 0, 2];

    fn question(local: &str, hop: &str) -> Question {
        Question { mac: OURS, local: local.parse().unwrap(), hop: hop.parse().unwrap() }
    }

    #[test]
    fn an_arp_request_is_a_frame_of_60_bytes_with_our_address() {
        let frame = question("10.0.0.2", "10.0.0.1").frame(None).unwrap();
        assert_eq!((frame.len(), &frame[..6], &frame[12..14]), (60, &BROADCAST[..], &[8, 6][..]));
        assert_eq!(neighbour(&frame), Some(("10.0.0.2".parse().unwrap(), OURS)));
        let unicast = question("10.0.0.2", "10.0.0.1").frame(Some(THEIRS)).unwrap();
        assert_eq!(unicast[..6], THEIRS);
    }

    #[test]
    fn a_solicitation_goes_to_the_group_of_the_neighbour() {
        let frame = question("fd00::2", "fe80::1:2:3").frame(None).unwrap();
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 2, 0, 3]);
        let (source, destination) =
            (Ipv6Addr::from_bits(0xfd00 << 112 | 2), "ff02::1:ff02:3".parse::<Ipv6Addr>().unwrap());
        assert_eq!(frame[22..38], source.octets());
        assert_eq!(frame[38..54], destination.octets());
        assert_eq!(transport_checksum(source.into(), destination.into(), ICMPV6, &frame[54..]), 0);
        assert_eq!(neighbour(&frame), None, "a solicitation is no answer");
        assert_eq!(question("fd00::2", "10.0.0.1").frame(None), None);
        let unicast = question("fd00::2", "fe80::1:2:3").frame(Some(THEIRS)).unwrap();
        assert_eq!(
            (&unicast[..6], &unicast[6..]),
            (&THEIRS[..], &frame[6..]),
            "the answer must include the link-layer address"
        );
    }

    /// An answer of the neighbour to a solicitation.
    fn advertisement(target: Ipv6Addr, options: &[u8]) -> Vec<u8> {
        let to: Ipv6Addr = "fd00::2".parse().unwrap();
        let mut message = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, 0x60, 0, 0, 0];
        message.extend(target.octets());
        message.extend(options);
        let sum = transport_checksum(target.into(), to.into(), ICMPV6, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut frame = [&OURS[..], &THEIRS[..], &[0x86, 0xdd, 0x60, 0, 0, 0][..]].concat();
        frame.extend((message.len() as u16).to_be_bytes());
        frame.extend([ICMPV6, HOP_LIMIT]);
        frame.extend(target.octets());
        frame.extend(to.octets());
        frame.extend(message);
        frame
    }

    #[test]
    fn an_advertisement_reports_its_target() {
        let target: Ipv6Addr = "fe80::1".parse().unwrap();
        let option = [2, 1, 2, 0, 0, 0, 0, 9];
        assert_eq!(neighbour(&advertisement(target, &option)), Some((target.into(), [2, 0, 0, 0, 0, 9])));
        assert_eq!(neighbour(&advertisement(target, &[])), Some((target.into(), THEIRS)));
        let mut damaged = advertisement(target, &option);
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(neighbour(&damaged), None);
        let mut from_afar = advertisement(target, &option);
        from_afar[21] = 254;
        assert_eq!(neighbour(&from_afar), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0..3usize) {
            let mut frame = bytes;
            if let Some(place) = frame.get_mut(12..14) {
                place.copy_from_slice(&[[8, 6], [0x86, 0xdd], [8, 0]][kind]);
            }
            let _ = neighbour(&frame);
        }
    }
}
