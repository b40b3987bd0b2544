//! Hosts whose TCP and applications are elsewhere: in a real kernel, on the wall clock.
//!
//! An *external* host ([`World::set_external`]) keeps its place in the network, its links, its mechanisms and its identity; only its TCP
//! and the sockets of its applications are not simulated. The actions of the applications are decided here, as for any other host, and
//! executed elsewhere. The loop of a shell:
//!
//! 1. [`World::run_to`] the current time;
//! 2. [`World::handle_interface`] for each packet that a host's kernel has sent ([`World::handle_raw`] for other frames of an interface
//!    attached to a link), [`World::handle_socket_event`] for events of its applications, [`World::handle_sample`] for the state of a
//!    sampled socket;
//! 3. [`World::poll_shell_command`] until `None`, and executes each command;
//! 4. waits for packets, for events, or until [`World::next_deadline`].
//!
//! A router can be external as well ([`World::set_external_router`]): its kernel forwards. The ends of a link can be interfaces of kernels
//! ([`World::attach_link`]), which exchange Ethernet frames of any kind over it and lose carrier with it; an external router has such
//! interfaces in addition to one for the rest of its links.
//!
//! [`World`]: crate::World
//! [`World::set_external`]: crate::World::set_external
//! [`World::run_to`]: crate::World::run_to
//! [`World::set_external_router`]: crate::World::set_external_router
//! [`World::attach_link`]: crate::World::attach_link
//! [`World::handle_interface`]: crate::World::handle_interface
//! [`World::handle_raw`]: crate::World::handle_raw
//! [`World::handle_socket_event`]: crate::World::handle_socket_event
//! [`World::handle_sample`]: crate::World::handle_sample
//! [`World::poll_shell_command`]: crate::World::poll_shell_command
//! [`World::next_deadline`]: crate::World::next_deadline

use core::net::{IpAddr, SocketAddr};

use holdover_base::Instant;
use holdover_tcp::ConnectionError;
use holdover_wire::{Packet, Payload};

use crate::flow::End;
use crate::frame::Frame;
use crate::ids::{FlowId, LinkId, NodeId};

/// A command for the shell of external hosts.
#[derive(Clone, PartialEq, Debug)]
pub enum ShellCommand {
    /// A packet has arrived at a host, past its mechanisms, or at an external router: pass it to the kernel, through the interface that is
    /// attached to the frame's link if there is one.
    Deliver {
        /// The host or router.
        node: NodeId,
        /// The time of its arrival.
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
        /// The destination.
        remote: SocketAddr,
    },
    /// An application writes this amount as fast as TCP accepts it.
    Write {
        /// The flow.
        flow: FlowId,
        /// The end that writes.
        end: End,
        /// The number of bytes.
        bytes: u64,
        /// When it stops writing even if data remain.
        until: Option<Instant>,
    },
    /// An application writes no data beyond earlier commands.
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
        /// The source.
        local: SocketAddr,
        /// The destination.
        remote: SocketAddr,
        /// Bytes of payload.
        len: usize,
    },
    /// A link with attached interfaces of kernels went down or came back.
    Link {
        /// The link.
        link: LinkId,
        /// Whether it is up.
        up: bool,
    },
    /// The host of a link with attached interfaces of kernels loses its addresses and routes there
    /// ([`crate::AddressLoss`]), or gets them back.
    Addresses {
        /// The link.
        link: LinkId,
        /// Whether it has them.
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
    /// The peer has closed.
    PeerClosed,
    /// The connection has ended prematurely.
    Failed(ConnectionError),
}

impl ShellCommand {
    /// The command to send this datagram.
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
