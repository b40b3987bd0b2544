//! A mobile host and its peer; the test delivers the packets between them.

use core::net::{Ipv4Addr, Ipv6Addr};

use holdover_base::{Duration, Instant};
use holdover_hip::{Attachment, Event, Identity, LocatorSet, Shim, ShimConfig, Update};
use holdover_wire::{Packet, Udp};

pub(crate) fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

pub(crate) fn identity(n: u8) -> Identity {
    Identity { hit: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()), lsi: Ipv4Addr::new(10, 0, 0, n) }
}

/// The locators of host `n` at network `network`.
pub(crate) fn at(network: u8, n: u8) -> LocatorSet {
    LocatorSet {
        v4: Ipv4Addr::new(172, 16, network, n),
        v6: Ipv6Addr::new(0xfd00, 0, 0, network.into(), 0, 0, 0, n.into()),
    }
}

pub(crate) struct Pair {
    pub(crate) mobile: Shim,
    pub(crate) peer: Shim,
}

/// Host 1, which is at network 1 and will move, and host 2, which stays at network 9.
pub(crate) fn pair() -> Pair {
    let mut mobile = Shim::new(ShimConfig::default(), identity(1), at(1, 1), 1);
    let mut peer = Shim::new(ShimConfig::default(), identity(2), at(9, 2), 2);
    mobile.add_peer(identity(2), at(9, 2));
    peer.add_peer(identity(1), at(1, 1));
    Pair { mobile, peer }
}

impl Pair {
    /// The mobile host moves to `network` at `now`, and announces that at once.
    pub(crate) fn moves(&mut self, now: Instant, network: u8) -> Packet {
        self.mobile.handle_attachment(now, None, Duration::ZERO);
        let what = self.mobile.handle_attachment(now, Some(at(network, 1)), Duration::ZERO);
        assert_eq!(what, Attachment::Readdressing);
        sent(&mut self.mobile)
    }
}

/// The single packet that a host sends.
pub(crate) fn sent(shim: &mut Shim) -> Packet {
    let packet = shim.poll_transmit().expect("a packet");
    assert_eq!(shim.poll_transmit(), None);
    packet
}

pub(crate) fn quiet(shim: &mut Shim) {
    assert_eq!((shim.poll_transmit(), shim.poll_event()), (None, None));
}

pub(crate) fn events(shim: &mut Shim) -> Vec<Event> {
    core::iter::from_fn(|| shim.poll_event()).collect()
}

/// Delivers a packet.
pub(crate) fn give(shim: &mut Shim, now: Instant, packet: &Packet) {
    // Emitted and parsed, as on a wire.
    let packet = Packet::parse(packet.emit().unwrap()).unwrap();
    shim.handle_update(now, &packet).expect("an UPDATE");
}

pub(crate) fn update(packet: &Packet) -> Update {
    Update::parse(packet).unwrap()
}

/// Data from one identity to another.
pub(crate) fn data(from: u8, to: u8) -> Packet {
    let udp = Udp { src_port: 1, dst_port: 2, payload: vec![7; 10].into() };
    Packet::new(identity(from).address(false), identity(to).address(false), udp)
}

/// The destination of data from `shim` to `to`.
pub(crate) fn sends_data_to(shim: &Shim, from: u8, to: u8) -> core::net::IpAddr {
    let mut packet = data(from, to);
    assert!(shim.seal(&mut packet));
    packet.dst
}
