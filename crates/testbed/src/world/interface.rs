//! An interface of a kernel of the world.

use bytes::{Bytes, BytesMut};
use holdover_base::{Duration, Instant};
use holdover_host::offload::{Joiner, Offload, Segments, segments};
use holdover_sim::{EthernetHeader, Frame, LinkId, LinkKind, NodeId};
use holdover_wire::{EmitError, MacAddress, Packet, Payload};

use crate::{Tun, TunError, WallClock};

/// One side of a link with a second layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Port {
    /// The link that it is attached to.
    pub(super) link: LinkId,
    /// The Ethernet addresses of both sides; `None` if there is no link-layer header.
    pub(super) macs: Option<Macs>,
}

/// The Ethernet addresses of both sides of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Macs {
    pub(super) own: MacAddress,
    pub(super) peer: MacAddress,
}

/// An open interface.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) node: NodeId,
    pub(super) tun: Tun,
    /// The link that it is attached to; `None` if the world routes its packets.
    pub(super) port: Option<Port>,
    has_carrier: bool,
    joiner: Joiner,
    /// The header of the packets being merged.
    header: Option<EthernetHeader>,
    /// When the first of the merged packets was due.
    due: Instant,
}

/// The output of a kernel on an interface.
pub(super) enum Received {
    /// Packets of the world, with their common Ethernet header.
    Packets(Option<EthernetHeader>, Segments),
    /// Any other frame on an Ethernet.
    Raw(EthernetHeader, Bytes),
    /// A packet without meaning for the world.
    Stray,
}

/// Why a kernel did not accept a packet.
pub(super) enum Refused {
    Tun(TunError),
    Emit(EmitError),
}

impl Port {
    /// The side of `link`, which is of this kind, at `node`, with `peer` on the other side.
    pub(super) fn new(kind: LinkKind, link: LinkId, node: NodeId, peer: NodeId) -> Self {
        let macs = (kind == LinkKind::Ethernet).then(|| Macs { own: mac(link, node), peer: mac(link, peer) });
        Self { link, macs }
    }
}

impl Macs {
    /// The header of a packet from the other side.
    pub(super) fn incoming(self, ipv6: bool) -> EthernetHeader {
        let ether_type = if ipv6 { EthernetHeader::IPV6 } else { EthernetHeader::IPV4 };
        EthernetHeader { destination: self.own, source: self.peer, ether_type }
    }
}

/// A locally administered address, one for each end of each link.
fn mac(link: LinkId, node: NodeId) -> MacAddress {
    let ([.., l1, l0], [.., n2, n1, n0]) = (link.0.to_be_bytes(), node.0.to_be_bytes());
    MacAddress([0x02, l1, l0, n2, n1, n0])
}

impl Interface {
    pub(super) fn new(node: NodeId, tun: Tun, port: Option<Port>) -> Self {
        let joiner = Joiner::default();
        Self { node, tun, port, has_carrier: true, joiner, header: None, due: Instant::ZERO }
    }

    /// The next output of its kernel; `None` if there is none now.
    pub(super) fn receive(&self, buffer: &mut BytesMut) -> Result<Option<Received>, TunError> {
        let received = match self.tun.recv_offloaded(buffer) {
            // The world sets a port without carrier down, and a user may do so in a shell on the host.
            Err(TunError::Down { .. }) => return Ok(None),
            received => received?,
        };
        let Some((offload, bytes)) = received else { return Ok(None) };
        if self.port.is_none_or(|port| port.macs.is_none()) {
            return Ok(Some(match segments(offload, bytes) {
                Ok(packets) if packets.whole().is_some_and(is_of_the_world) => Received::Packets(None, packets),
                _ => Received::Stray,
            }));
        }
        Ok(Some(frame(offload, bytes)))
    }

    /// Passes a frame to its kernel, merged with earlier ones if it continues them.
    pub(super) fn deliver(&mut self, at: Instant, frame: &mut Frame) -> Result<(), Refused> {
        if !self.has_carrier {
            return Ok(());
        }
        if frame.raw {
            self.flush(None)?;
            return self.deliver_raw(frame);
        }
        let packet = frame.take_packet();
        let macs = self.port.and_then(|port| port.macs);
        let header = macs.map(|macs| frame.ethernet.unwrap_or_else(|| macs.incoming(packet.dst.is_ipv6())));
        if header != self.header {
            self.flush(None)?;
        }
        self.header = header;
        let Some(packet) = self.join(at, packet) else { return Ok(()) };
        self.flush(None)?;
        self.join(at, packet);
        Ok(())
    }

    fn join(&mut self, at: Instant, packet: Packet) -> Option<Packet> {
        if self.joiner.is_empty() {
            self.due = at;
        }
        self.joiner.push(packet)
    }

    fn deliver_raw(&self, frame: &Frame) -> Result<(), Refused> {
        let (Some(header), Payload::Other { payload, .. }) = (frame.ethernet, &frame.packet().payload) else {
            return Ok(());
        };
        match self.tun.send_offloaded(Offload::default(), &[&header.to_bytes(), payload]) {
            Ok(()) | Err(TunError::Down { .. } | TunError::NotIp) => Ok(()),
            Err(error) => Err(Refused::Tun(error)),
        }
    }

    /// Passes merged packets to its kernel. Returns how late they were by `clock`, if there were any.
    pub(super) fn flush(&mut self, clock: Option<&WallClock>) -> Result<Option<Duration>, Refused> {
        let Some(mut joined) = self.joiner.joined().map_err(Refused::Emit)? else { return Ok(None) };
        let header = self.header.map(EthernetHeader::to_bytes);
        if let Some(header) = &header {
            joined.offload = joined.offload.behind(EthernetHeader::LEN as u16);
            joined.pieces.insert(0, header);
        }
        let sent = self.tun.send_offloaded(joined.offload, &joined.pieces);
        self.joiner.clear();
        match sent {
            Ok(()) | Err(TunError::Down { .. }) => Ok(clock.map(|clock| clock.now().saturating_since(self.due))),
            Err(error) => Err(Refused::Tun(error)),
        }
    }

    /// Sets whether it is up: otherwise it accepts nothing.
    pub(super) fn set_present(&mut self, is_present: bool) {
        self.has_carrier = is_present;
    }

    /// Sets its carrier: without it, it accepts nothing.
    pub(super) fn set_carrier(&mut self, carrier: bool) -> Result<(), TunError> {
        self.has_carrier = carrier;
        self.tun.set_carrier(carrier)
    }
}

/// Parses an Ethernet frame: packets of the world, or another frame.
fn frame(offload: Offload, mut bytes: Bytes) -> Received {
    let Some(header) = EthernetHeader::from_bytes(&bytes) else { return Received::Stray };
    let payload = bytes.split_off(EthernetHeader::LEN);
    let offload = offload.without(EthernetHeader::LEN as u16);
    let is_multicast = header.destination.0[0] & 1 == 1;
    if matches!(header.ether_type, EthernetHeader::IPV4 | EthernetHeader::IPV6) && !is_multicast {
        let packets = segments(offload, payload.clone());
        // Frames that the world cannot encode unchanged, such as neighbour discovery, are passed as bytes.
        let is_known = |packet: &Packet| !matches!(packet.payload, Payload::Other { .. });
        if let Ok(packets) = packets
            && packets.whole().is_some_and(is_known)
        {
            return Received::Packets(Some(header), packets);
        }
    }
    Received::Raw(header, offload.complete(payload))
}

/// Whether a packet is between nodes of the world: kernels also send packets to neighbours and routers.
fn is_of_the_world(packet: &Packet) -> bool {
    NodeId::of(packet.src).is_some() && NodeId::of(packet.dst).is_some()
}
