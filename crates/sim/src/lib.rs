//! A deterministic simulator of hosts, routers, links, radio cells and applications in virtual time.
//!
//! A [`World`] is built from a [`WorldConfig`] and run; it is a pure function of that description and its seed. Everything in
//! it is one of Holdover's state machines, the same that meet real kernels elsewhere: TCP endpoints
//! ([`holdover_tcp::Endpoint`]), links ([`holdover_link::PointToPoint`]) and cells ([`holdover_link::cell::Cell`]). What
//! happens is told to an [`Observer`], which records as much of it as somebody wants; a run without one costs nothing extra.
//! A host's [mechanisms](holdover_mobility) stand between its TCP and its links, and hear what the host itself can know of its
//! connectivity. Those of a [router](holdover_gateway) see what it forwards to mobile hosts and from them.
//!
//! # The order of simultaneous events
//!
//! Each machine is a *source* of events with one next deadline. Of several at the same instant, the source with the lowest
//! number goes first, and all that follows from its event at that instant goes on before the next source has its turn.
//! Sources are numbered so:
//!
//! 1. links, in the order of their description, the direction from the first named node before the other;
//! 2. routing (routers heed that a link has gone down or come back);
//! 3. mobile hosts, in the order of their description: a new piece of their movement, then an attachment that is complete,
//!    then a registration request to be sent again, then a look ahead;
//! 4. gateways that mobile hosts register with, in the order of their description (bindings that expire);
//! 5. cells, in the order of their description;
//! 6. base stations, in the order of their cells (beacons);
//! 7. hosts, in the order of their description (the timers of their connections);
//! 8. routers with mechanisms, in the order of the description of those;
//! 9. routers whose processors take time, in the order of the description of those;
//! 10. flows, in the order of their description (applications);
//! 11. the sampler.
//!
//! # Mobile hosts
//!
//! A mobile host has no links. It sends in one cell and packets to it are sent to one cell; it is *connected* while that is
//! the same and covers it. At the start of a run it is attached to the first cell that covers it. How that changes is told
//! at [`Attachment`]. Bindings hold for both of a host's addresses, IPv4 and IPv6, until the lifetime of the registration has passed.

#![forbid(unsafe_code)]

mod air;
mod app;
mod black_hole;
mod check;
mod config;
mod control;
mod cpu;
mod error;
mod external;
mod flow;
mod following;
mod forewarning;
mod frame;
mod gateway;
mod host;
mod icmp;
mod layer2;
mod mobility;
mod neighbour;
mod network;
mod observer;
mod routing;
mod schedule;
mod segment;
mod world;

pub use black_hole::{BlackHole, black_holes};
pub use config::{
    Addresses, Amount, Bulk, FlowConfig, GatewayMechanisms, HostAddressing, HostIdentity, HostMechanisms, LinkBetween,
    LinkDetection, NodeConfig, NodeId, OnOff, Opener, RequestResponse, Role, Route, RouterCpu, Routing, Traffic,
    WorldConfig,
};
pub use cpu::CpuStatistics;
pub use error::WorldError;
pub use external::{Order, SocketEvent};
pub use flow::{ConnectionReport, End, FlowId, FlowReport, FlowStatus, Reconnection};
pub use frame::Frame;
pub use layer2::{AddressLoss, EthernetHeader, Families, Layer2, LinkKind, OutageKind};
pub use mobility::{
    Attachment, Beacons, CellId, MobileHost, Movement, Path, Prediction, RadioCell, RegisterOn, Registration, Repeat,
    Selection, Stop, Visit, Visits,
};
pub use observer::{Dropped, LinkId, Medium, NoObserver, Observer, Place, Sample, Transit, WorldEvent};
pub use world::{Ending, Holdings, World};
