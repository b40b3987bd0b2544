//! Hosts whose TCP and applications are elsewhere: in a real kernel, on the wall clock.
//!
//! An *external* host ([`World::set_external`]) keeps its place in the network, its links, its mechanisms and its identity;
//! only its TCP and the sockets of its applications are not simulated. What the applications do is decided here, as for any
//! other host, and carried out elsewhere. A shell goes round as follows:
//!
//! 1. [`World::run_to`] the present;
//! 2. [`World::handle_external`] (or, for interfaces attached to one link, [`World::handle_interface`] and
//!    [`World::handle_raw`]) for each packet that a host's kernel has sent, [`World::handle_socket_event`] for what its
//!    applications have seen, [`World::handle_sample`] for what a sampled socket has said;
//! 3. [`World::poll_order`] until `None`, and executes each order;
//! 4. waits for packets, for event, or until [`World::next_deadline`].
//!
//! A router can be external as well ([`World::set_external_router`]): it forwards nothing by itself. The ends of a link can be
//! interfaces of kernels ([`World::attach_link`]), which exchange Ethernet frames of any kind over it and lose carrier with it; an
//! external router has such interfaces beside one to the rest of its links.
//!
//! [`World`]: crate::World
//! [`World::set_external`]: crate::World::set_external
//! [`World::run_to`]: crate::World::run_to
//! [`World::handle_external`]: crate::World::handle_external
//! [`World::set_external_router`]: crate::World::set_external_router
//! [`World::attach_link`]: crate::World::attach_link
//! [`World::handle_interface`]: crate::World::handle_interface
//! [`World::handle_raw`]: crate::World::handle_raw
//! [`World::handle_socket_event`]: crate::World::handle_socket_event
//! [`World::handle_sample`]: crate::World::handle_sample
//! [`World::poll_order`]: crate::World::poll_order
//! [`World::next_deadline`]: crate::World::next_deadline

use core::net::{IpAddr, SocketAddr};

use holdover_base::Instant;
use holdover_tcp::ConnectionError;
use holdover_wire::{Packet, Payload};

use crate::config::NodeId;
use crate::flow::{End, FlowId};
use crate::frame::Frame;
use crate::observer::LinkId;

/// An order to the shell of external hosts.
#[derive(Clone, PartialEq, Debug)]
pub enum Order {
    /// A packet has come to a host, past its mechanisms, or to an external router: its kernel gets it, from the interface that
    /// is attached to the frame's link if there is one.
    Deliver {
        /// The host or router.
        node: NodeId,
        /// When it came.
        at: Instant,
        /// The packet.
        frame: Box<Frame>,
    },
    /// An application opens the connection of its flow. (The other end has been listening from the start.)
    Connect {
        /// The flow.
        flow: FlowId,
        /// The end that opens it.
        end: End,
        /// The address to connect from.
        local: IpAddr,
        /// Where to.
        remote: SocketAddr,
    },
    /// An application writes this amount as fast as TCP accepts it.
    Write {
        /// The flow.
        flow: FlowId,
        /// The end that writes.
        end: End,
        /// How much.
        bytes: u64,
        /// When it stops writing even if data remain.
        until: Option<Instant>,
    },
    /// An application writes no data beyond earlier orders.
    Shutdown {
        /// The flow.
        flow: FlowId,
        /// The end.
        end: End,
    },
    /// An application sends a UDP datagram.
    Datagram {
        /// The flow; its `from` sends.
        flow: FlowId,
        /// From where.
        local: SocketAddr,
        /// Where to.
        remote: SocketAddr,
        /// Bytes of payload.
        len: usize,
    },
    /// A link to which the interfaces of kernels are attached went down or came back.
    Link {
        /// The link.
        link: LinkId,
        /// Whether it is back.
        up: bool,
    },
    /// The host of a link to which the interfaces of kernels are attached loses its addresses and routes there
    /// ([`crate::AddressLoss`]), or has them back.
    Addresses {
        /// The link.
        link: LinkId,
        /// Whether it has them back.
        present: bool,
    },
    /// The state of a flow's sender is to be sampled.
    Sample {
        /// The flow.
        flow: FlowId,
    },
}

/// An event of the application at one end of a flow on an external host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketEvent {
    /// The connection is established.
    Connected,
    /// The number of bytes read.
    Read(u64),
    /// The peer has nothing more to say.
    PeerClosed,
    /// The connection has ended before its time.
    Failed(ConnectionError),
}

impl Order {
    /// The order to send a datagram as this one.
    pub(crate) fn datagram(flow: FlowId, packet: &Packet) -> Option<Self> {
        let Payload::Udp(udp) = &packet.payload else { return None };
        Some(Self::Datagram {
            flow,
            local: SocketAddr::new(packet.src, udp.src_port),
            remote: SocketAddr::new(packet.dst, udp.dst_port),
            len: udp.payload.len(),
        })
    }
}
