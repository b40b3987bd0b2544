//! Selectors: the connections that a rule applies to, by the addresses and ports of both ends (`c/selector.h`).

use holdover_filter::Connection;

use crate::layout::{Ends, Selector};
use crate::{ffi, key};

/// The addresses and ports of one end that a [`Selector`] selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SelectorEnd {
    /// The prefix of the addresses, with IPv4 as `::ffff:0:0/96`. Its bits outside of the mask are 0.
    pub prefix: u128,
    /// The bits of an address that are compared with it.
    pub mask: u128,
    /// The first port.
    pub first_port: u16,
    /// The last port.
    pub last_port: u16,
}

impl Selector {
    /// Selects connections between these ends. Those within this host are selected only if `within_host`: from or to a
    /// loopback address, or with the same address at both ends.
    pub fn new(local: SelectorEnd, remote: SelectorEnd, within_host: bool) -> Self {
        Self {
            local: words(local.prefix.to_be_bytes()),
            local_mask: words(local.mask.to_be_bytes()),
            remote: words(remote.prefix.to_be_bytes()),
            remote_mask: words(remote.mask.to_be_bytes()),
            local_ports: [local.first_port, local.last_port],
            remote_ports: [remote.first_port, remote.last_port],
            within_host: within_host.into(),
            ..Self::default()
        }
    }

    /// Whether it selects a connection with these ends.
    pub fn selects(&self, ends: &Ends) -> bool {
        ffi::selects(self, ends)
    }
}

impl Ends {
    /// The ends of a connection.
    pub fn new(connection: Connection) -> Self {
        let Connection { local, remote } = connection;
        Self {
            local: words(key::octets(local.ip())),
            remote: words(key::octets(remote.ip())),
            local_port: local.port(),
            remote_port: remote.port(),
        }
    }

    /// The ends as bytes for a kernel program.
    pub fn to_bytes(self) -> impl AsRef<[u8]> {
        ffi::ends_to_bytes(&self)
    }
}

/// An address, or a mask, in words of the network's byte order.
fn words(octets: [u8; 16]) -> [u32; 4] {
    let (words, _) = octets.as_chunks::<4>();
    std::array::from_fn(|at| u32::from_ne_bytes(words[at]))
}

#[cfg(test)]
mod tests {
    use core::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::prefix::prefix_mask;

    const ALL: SelectorEnd = SelectorEnd { prefix: 0, mask: 0, first_port: 0, last_port: u16::MAX };

    fn ends(local: &str, remote: &str) -> Ends {
        Ends::new(Connection { local: local.parse().unwrap(), remote: remote.parse().unwrap() })
    }

    #[test]
    fn a_range_has_its_first_and_its_last_port() {
        let range = SelectorEnd { first_port: 0x0102, last_port: 0x0304, ..ALL };
        let (local, remote) = (Selector::new(range, ALL, false), Selector::new(ALL, range, false));
        for (port, is_in) in [(0x0101, false), (0x0102, true), (0x02ff, true), (0x0304, true), (0x0305, false)] {
            let end = format!("192.0.2.1:{port}");
            let (outgoing, incoming) = (ends(&end, "192.0.2.2:1"), ends("192.0.2.2:1", &end));
            assert_eq!((local.selects(&outgoing), remote.selects(&incoming)), (is_in, is_in), "{port}");
            assert!(!local.selects(&incoming) && !remote.selects(&outgoing));
        }
    }

    #[test]
    fn connections_within_the_host_are_selected_on_request() {
        let (others, all) = (Selector::new(ALL, ALL, false), Selector::new(ALL, ALL, true));
        for (local, remote, is_within_host) in [
            ("127.0.0.1:1", "192.0.2.1:2", true),
            ("192.0.2.1:1", "127.255.0.1:2", true),
            ("[::ffff:127.0.0.1]:1", "192.0.2.1:2", true),
            ("[::1]:1", "[2001:db8::1]:2", true),
            ("[2001:db8::1]:1", "[::1]:2", true),
            ("192.0.2.1:1", "192.0.2.1:2", true),
            ("192.0.2.1:1", "[::ffff:192.0.2.1]:2", true),
            ("[2001:db8::1]:1", "[2001:db8::1]:2", true),
            ("126.0.0.1:1", "128.0.0.1:2", false),
            ("192.0.2.1:1", "192.0.2.127:2", false),
            ("[::2]:1", "[::127.0.0.1]:2", false),
            ("[2001:db8::1]:1", "[2001:db8:0:1::1]:2", false),
        ] {
            let ends = ends(local, remote);
            assert_eq!((others.selects(&ends), all.selects(&ends)), (!is_within_host, true), "{local} {remote}");
        }
    }

    #[test]
    fn ends_are_in_the_form_of_the_kernels_programs() {
        let ends = ends("192.0.2.1:258", "[2001:db8::1]:772");
        let bytes = ends.to_bytes();
        let (addresses, ports) = bytes.as_ref().split_at(32);
        assert_eq!(addresses[..16], "::ffff:192.0.2.1".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(addresses[16..], "2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(ports, [258_u16.to_ne_bytes(), 772_u16.to_ne_bytes()].concat());
    }

    proptest! {
        #[test]
        fn addresses_of_a_prefix_differ_after_it_only(address in any::<u128>(), len in 0_u8..=128, bit in 0_u8..128) {
            let mask = prefix_mask(len);
            let prefix = SelectorEnd { prefix: address & mask, mask, ..ALL };
            let other = Ipv6Addr::from_bits(address ^ (1 << (127 - bit)));
            let from = Ends::new(Connection { local: (other, 1).into(), remote: (Ipv6Addr::LOCALHOST, 2).into() });
            let to = Ends::new(Connection { local: (Ipv6Addr::LOCALHOST, 1).into(), remote: (other, 2).into() });
            prop_assert_eq!(Selector::new(prefix, ALL, true).selects(&from), bit >= len);
            prop_assert_eq!(Selector::new(ALL, prefix, true).selects(&to), bit >= len);
        }
    }
}
