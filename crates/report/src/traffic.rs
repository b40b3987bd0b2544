//! Maps packets to flows.

use core::net::IpAddr;
use std::collections::BTreeMap;

use holdover_sim::{FlowConfig, FlowId, Frame, LinkId, NodeId, Opener, Place, Traffic, Transit, WorldConfig};
use holdover_wire::{Flags, Packet, Payload, Seq};

/// Source and destination, addresses and ports.
type Tuple = (IpAddr, u16, IpAddr, u16);

/// The flow of a packet, and whether the packet goes from the flow's `from` to its `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) flow: FlowId,
    pub(crate) forward: bool,
}

/// Assigns packets to flows. A started flow owns the next new connection (or datagram stream) from its opener to the other end.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    begun: Vec<FlowId>,
    by_tuple: BTreeMap<Tuple, Owner>,
}

impl Owners {
    /// Handles the start of a flow.
    pub(crate) fn begin(&mut self, flow: FlowId) {
        self.begun.push(flow);
    }

    /// The owner of `packet`, which may be the first of its connection.
    pub(crate) fn of(&mut self, packet: &Packet, flows: &[FlowConfig]) -> Option<Owner> {
        let tuple = tuple(packet)?;
        if let Some(&owner) = self.by_tuple.get(&tuple) {
            return Some(owner);
        }
        let at = self.begun.iter().position(|id| opens(&flows[id.0 as usize], packet))?;
        let flow = self.begun.remove(at);
        let forward = NodeId::of(packet.src) == Some(flows[flow.0 as usize].from);
        let (src, src_port, dst, dst_port) = tuple;
        self.by_tuple.insert(tuple, Owner { flow, forward });
        self.by_tuple.insert((dst, dst_port, src, src_port), Owner { flow, forward: !forward });
        Some(Owner { flow, forward })
    }
}

fn tuple(packet: &Packet) -> Option<Tuple> {
    match &packet.payload {
        Payload::Tcp(segment) => Some((packet.src, segment.src_port, packet.dst, segment.dst_port)),
        Payload::Udp(udp) => Some((packet.src, udp.src_port, packet.dst, udp.dst_port)),
        _ => None,
    }
}

/// Whether `packet` can be the first of `flow`.
fn opens(flow: &FlowConfig, packet: &Packet) -> bool {
    let by_receiver = matches!(flow.traffic, Traffic::Bulk(bulk) if bulk.opener == Opener::Receiver);
    let (opener, other) = if by_receiver { (flow.to, flow.from) } else { (flow.from, flow.to) };
    let fits = match (&packet.payload, flow.traffic) {
        (Payload::Udp(_), Traffic::OnOff(_)) => true,
        (Payload::Tcp(segment), Traffic::Bulk(_) | Traffic::RequestResponse(_)) => {
            segment.flags & (Flags::SYN | Flags::ACK) == Flags::SYN
        }
        _ => false,
    };
    fits && NodeId::of(packet.src) == Some(opener) && NodeId::of(packet.dst) == Some(other)
}

/// The latest direction of each source's packets on a link; drops are reported without one.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    forward: BTreeMap<(LinkId, IpAddr), bool>,
}

impl Ways {
    /// Whether a packet at `place`, one end of `link`, goes from the link's `a` to its `b`.
    pub(crate) fn note(&mut self, place: Place, link: LinkId, frame: &Frame, config: &WorldConfig) -> bool {
        let at_a = config.links[link.0 as usize].a == place.node;
        let forward = at_a == (place.transit == Transit::Out);
        self.forward.insert((link, frame.packet().src), forward);
        forward
    }

    /// Whether a dropped packet was going from the link's `a` to its `b`.
    pub(crate) fn of(&self, link: LinkId, frame: &Frame) -> Option<bool> {
        self.forward.get(&(link, frame.packet().src)).copied()
    }
}

/// Unwraps sequence numbers of one direction into bytes since the first data byte.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Unwrap {
    last: Option<(Seq, u64)>,
}

impl Unwrap {
    /// Handles the SYN: the byte after it is number 0.
    pub(crate) fn begin(&mut self, syn: Seq) {
        if self.last.is_none() {
            self.last = Some((syn + 1, 0));
        }
    }

    /// The number of the byte at `seq`; `None` before the SYN.
    pub(crate) fn position(&mut self, seq: Seq) -> Option<u64> {
        let (last, position) = self.last?;
        if seq.ge(last) {
            let position = position + u64::from(seq - last);
            self.last = Some((seq, position));
            Some(position)
        } else {
            Some(position.saturating_sub(u64::from(last - seq)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_on_when_sequence_numbers_wrap() {
        let mut unwrap = Unwrap::default();
        assert_eq!(unwrap.position(Seq::new(5)), None);
        unwrap.begin(Seq::new(u32::MAX - 10));
        assert_eq!(unwrap.position(Seq::new(u32::MAX - 9)), Some(0));
        assert_eq!(unwrap.position(Seq::new(90)), Some(100));
        assert_eq!(unwrap.position(Seq::new(u32::MAX)), Some(9), "a retransmission");
        let mut seq = Seq::new(90);
        for n in 1..10_u64 {
            seq += 1 << 30;
            assert_eq!(unwrap.position(seq), Some(100 + (n << 30)));
        }
    }
}
