//! A packet in transit, with its length.

use std::borrow::Cow;

use bytes::Bytes;
#[cfg(feature = "identity")]
use holdover_hip::host::Assigned;
use holdover_tcp::Reason;
#[cfg(feature = "identity")]
use holdover_wire::Encrypted;
use holdover_wire::{Compression, EncryptionKey, Inner, Packet, Payload, Segment};

use crate::ids::{LinkId, NodeId};
use crate::layer2::EthernetHeader;

/// A source of data that is cloned without cost.
pub(crate) static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Names the key of hosts with identities and of observers. It is private to this module, so that no filter can decrypt.
struct Secret;

const KEY: EncryptionKey = EncryptionKey::of::<Secret>();

/// A packet in transit. Its length is computed once, not at every hop.
///
/// Only a world makes frames: a filter that holds an encrypted packet cannot make a frame of it to look into it as an observer does.
///
/// ```
/// fn read(frame: &holdover_sim::Frame) -> &holdover_wire::Packet {
///     frame.packet()
/// }
/// ```
/// ```compile_fail,E0616
/// fn replace(frame: &mut holdover_sim::Frame, packet: holdover_wire::Packet) {
///     frame.packet = packet;
/// }
/// ```
/// ```compile_fail,E0624
/// fn peek(packet: holdover_wire::Packet) -> bool {
///     holdover_sim::Frame::new(packet, None).observed_tcp().is_some()
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The packet.
    pub(crate) packet: Packet,
    /// Why it was sent, for TCP.
    pub reason: Option<Reason>,
    /// The base station at the end of its tunnel, if it is in one. The packet is the inner one.
    pub tunnel: Option<NodeId>,
    /// The link to which a kernel's interface has sent it, or on which it has arrived at one.
    pub link: Option<LinkId>,
    /// Its Ethernet header, if a kernel's interface has added one.
    pub ethernet: Option<EthernetHeader>,
    /// Whether it is not one of the world's packets: [`Self::packet()`] then has no addresses, and its payload is the
    /// frame's.
    pub raw: bool,
    /// The bytes saved by a router's compression.
    saved: u32,
    len: u32,
}

impl Frame {
    /// A packet about to be sent.
    pub(crate) fn new(packet: Packet, reason: Option<Reason>) -> Self {
        let len = u32::try_from(packet.wire_len()).unwrap_or(u32::MAX);
        Self { packet, reason, tunnel: None, link: None, ethernet: None, raw: false, saved: 0, len }
    }

    /// As [`Self::new`], but reuses the memory of a frame that has arrived: the packet is moved only once.
    #[inline]
    fn refill(&mut self, packet: Packet, reason: Option<Reason>) {
        self.packet = packet;
        self.renew(reason);
    }

    /// The packet was replaced by one about to be sent.
    #[inline]
    pub(crate) fn renew(&mut self, reason: Option<Reason>) {
        // All fields are named, so that a new field cannot be forgotten.
        let Self { packet, reason: why, tunnel, link, ethernet, raw, saved, len } = self;
        *len = u32::try_from(packet.wire_len()).unwrap_or(u32::MAX);
        *why = reason;
        (*tunnel, *link, *ethernet, *raw, *saved) = (None, None, None, false, 0);
    }

    /// An Ethernet frame other than a packet between nodes of the world, such as ARP.
    pub(crate) fn raw(header: EthernetHeader, payload: Bytes) -> Self {
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let nowhere = core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED);
        let packet = Packet::new(nowhere, nowhere, Payload::Other { protocol: 0, payload });
        Self { ethernet: Some(header), raw: true, len, ..Self::new(packet, None) }
    }

    /// Whether it is IPv6, or IPv6 neighbour discovery.
    pub(crate) fn is_ipv6(&self) -> bool {
        match self.ethernet {
            Some(header) if self.raw => header.ether_type == EthernetHeader::IPV6,
            _ => self.packet.dst.is_ipv6(),
        }
    }

    /// Puts the frame into a tunnel, which adds `overhead` bytes.
    pub(crate) fn enter_tunnel(&mut self, to: NodeId, overhead: u32) {
        self.tunnel = Some(to);
        self.len = self.len.saturating_add(overhead);
    }

    /// Takes the frame out of its tunnel.
    pub(crate) fn leave_tunnel(&mut self) {
        self.tunnel = None;
        self.measure();
    }

    /// The packet as nodes and their mechanisms see it.
    pub fn packet(&self) -> &Packet {
        &self.packet
    }

    /// Takes the packet of a frame that has arrived outside the world; an empty one remains.
    pub fn take_packet(&mut self) -> Packet {
        let empty =
            Packet::new(self.packet.src, self.packet.dst, Payload::Other { protocol: 0, payload: Bytes::new() });
        core::mem::replace(&mut self.packet, empty)
    }

    /// Whether it is data between identities that travels between locators.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.packet.payload, Payload::Encrypted(_))
    }

    /// The packet for an observer of the simulation, with encrypted payload decrypted. Nodes and their mechanisms see [`Self::packet()`].
    pub fn observed(&self) -> Cow<'_, Packet> {
        match self.inner() {
            Some(inner) => Cow::Owned(Packet { payload: inner.payload.clone(), received: None, ..self.packet }),
            None => Cow::Borrowed(&self.packet),
        }
    }

    /// The TCP segment for an observer of the simulation, even if it is encrypted.
    pub fn observed_tcp(&self) -> Option<&Segment> {
        match self.inner().map_or(&self.packet.payload, |inner| &inner.payload) {
            Payload::Tcp(segment) => Some(segment),
            _ => None,
        }
    }

    /// The packet between identities in an encrypted one, for an observer of the simulation.
    pub fn between_identities(&self) -> Option<Packet> {
        let inner = self.inner()?;
        let Inner { src, dst, payload } = inner.clone();
        Some(Packet { src, dst, payload, received: None, ..self.packet })
    }

    fn inner(&self) -> Option<&Inner> {
        match &self.packet.payload {
            Payload::Encrypted(encrypted) => encrypted.plaintext(KEY),
            _ => None,
        }
    }

    /// Compresses the packet's payload at a router, for all links up to its destination. It stays readable here.
    pub(crate) fn compress(&mut self, compression: &Compression) {
        self.saved = u32::try_from(compression.saved(&self.packet)).unwrap_or(0);
        self.measure();
    }

    /// Bytes of payload compressed by a router.
    pub(crate) fn compressed_bytes(&self) -> u64 {
        self.packet.tcp().filter(|_| self.saved > 0).map_or(0, |segment| segment.payload.len() as u64)
    }

    /// Recomputes the packet's length.
    pub(crate) fn measure(&mut self) {
        self.len = u32::try_from(self.packet.wire_len()).unwrap_or(u32::MAX).saturating_sub(self.saved);
    }

    fn saved_by(&self, compression: &Compression) -> u32 {
        // Compressed data cannot be compressed again.
        if self.raw || self.saved > 0 { 0 } else { u32::try_from(compression.saved(&self.packet)).unwrap_or(0) }
    }
}

/// For hosts with an identity.
#[cfg(feature = "identity")]
impl Frame {
    /// Bytes behind the IP header.
    pub(crate) fn payload_len(&self) -> usize {
        (self.len + self.saved) as usize - self.packet.ip_header_len()
    }

    /// Bytes of the encrypted packet behind its IP header; 0 if there is none.
    pub(crate) fn inner_len(&self) -> usize {
        self.inner().map_or(0, Inner::payload_len)
    }

    /// A packet between identities, with `len` bytes behind its IP header, becomes one in ESP between addresses.
    pub(crate) fn encapsulate(&mut self, assigned: &Assigned, len: usize) {
        let sealed = assigned.suite.sealed_len(len) - Encrypted::HEADER_LEN;
        let ciphertext = Bytes::from_static(&ZEROS[..sealed.min(ZEROS.len())]);
        let nothing = Payload::Other { protocol: 0, payload: Bytes::new() };
        let payload = core::mem::replace(&mut self.packet.payload, nothing);
        let inner = Inner { src: self.packet.src, dst: self.packet.dst, payload };
        // The lower half of the sequence number is sent (RFC 4303 section 2.2.1).
        let encrypted = Encrypted::new(assigned.spi, assigned.number as u32, inner, ciphertext, KEY);
        (self.packet.src, self.packet.dst) = (assigned.src, assigned.dst);
        self.packet.payload = Payload::Encrypted(encrypted);
        self.measure();
    }

    /// The packet between identities again, with `len` bytes behind its IP header.
    pub(crate) fn decapsulate(&mut self, len: usize) {
        if let Some(inner) = self.inner().cloned() {
            (self.packet.src, self.packet.dst) = (inner.src, inner.dst);
            self.packet.payload = inner.payload;
            self.len = u32::try_from(self.packet.ip_header_len() + len).unwrap_or(u32::MAX);
        }
    }
}

impl holdover_link::Frame for Frame {
    fn wire_len(&self) -> u32 {
        self.len
    }

    /// A tunnel or an identity copies the mark to the inner packet (RFC 6040): the inner packet is marked itself.
    fn mark_congestion(&mut self) -> bool {
        !self.raw && holdover_link::Frame::mark_congestion(&mut self.packet)
    }

    fn saved_by(&self, compression: &Compression) -> u32 {
        self.saved_by(compression)
    }
}

impl holdover_link::Frame for Box<Frame> {
    #[inline]
    fn wire_len(&self) -> u32 {
        self.len
    }

    fn mark_congestion(&mut self) -> bool {
        (**self).mark_congestion()
    }

    fn saved_by(&self, compression: &Compression) -> u32 {
        Frame::saved_by(self, compression)
    }
}

/// Boxes for reuse. A packet has some 200 bytes and moves from queue to queue; in a box the bytes stay in place.
#[derive(Default, Debug)]
pub(crate) struct FramePool(
    // The boxes are kept for reuse.
    #[allow(clippy::vec_box)] Vec<Box<Frame>>,
);

/// A copy has no boxes.
impl Clone for FramePool {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl FramePool {
    /// The most frames kept, with their contents.
    const LIMIT: usize = 1024;

    /// A packet about to be sent.
    #[inline]
    pub(crate) fn frame(&mut self, packet: Packet, reason: Option<Reason>) -> Box<Frame> {
        match self.0.pop() {
            Some(mut frame) => {
                frame.refill(packet, reason);
                frame
            }
            None => Box::new(Frame::new(packet, reason)),
        }
    }

    /// A frame whose packet is to be replaced; [`Frame::renew`] is due then.
    #[inline]
    pub(crate) fn spare(&mut self) -> Box<Frame> {
        self.0.pop().unwrap_or_else(Self::make)
    }

    #[cold]
    fn make() -> Box<Frame> {
        let nowhere = core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED);
        Box::new(Frame::new(Packet::new(nowhere, nowhere, Segment::default()), None))
    }

    /// Takes back a frame after its arrival, or one that was not needed.
    #[inline]
    pub(crate) fn take_back(&mut self, frame: Box<Frame>) {
        if self.0.len() < Self::LIMIT {
            self.0.push(frame);
        }
    }
}
