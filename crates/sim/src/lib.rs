//! A deterministic simulator of hosts, routers, links, radio cells and applications in virtual time.
//!
//! A [`World`] is built from a [`WorldConfig`] and run; it is a pure function of that description and its seed. It consists of Holdover's
//! state machines, which elsewhere run with real kernels: TCP endpoints ([`holdover_tcp::Endpoint`]), links
//! ([`holdover_link::PointToPoint`]) and cells ([`holdover_link::cell::Cell`]). Events are reported to an [`Observer`], which records them;
//! a run without one costs nothing extra. A host's [mechanisms](holdover_mobility) are between its TCP and its links, and get the link
//! events that the host itself can detect. Those of a [router](holdover_gateway) see the packets that it forwards to and from mobile hosts.
//!
//! # The order of simultaneous events
//!
//! Each machine is a *source* of events with one next deadline. At the same instant, the source with the lowest number is first, and all
//! consequences of its event at that instant are handled before the next source. Sources are numbered in this order:
//!
//! 1. links, in the order of their description, the direction from the first named node before the other;
//! 2. routing (routers notice that a link has gone down or come back);
//! 3. mobile hosts, in the order of their description: a new segment of their movement, then a completed attachment, then a retransmitted
//!    registration request, then a prediction;
//! 4. home agents, in the order of their description (expiring bindings);
//! 5. cells, in the order of their description;
//! 6. base stations, in the order of their cells (beacons);
//! 7. hosts, in the order of their description (the timers of their connections, mechanisms and identities);
//! 8. routers with mechanisms, in the order of the description of the mechanisms;
//! 9. routers whose processors take time, in the order of the description of the processors;
//! 10. hosts that take time to receive packets, in the order of the description of their latencies;
//! 11. flows, in the order of their description (applications);
//! 12. the sampler.
//!
//! # Mobile hosts
//!
//! A mobile host has no links. It sends in one cell and packets to it are sent to one cell; it is *connected* while both are the same cell
//! and that covers it. At the start of a run it is attached to the first cell that covers it. [`Attachment`] describes changes. Bindings
//! are valid for both of a host's addresses, IPv4 and IPv6, until the lifetime of the registration has passed.

#![forbid(unsafe_code)]

mod app;
mod behind;
mod black_hole;
mod cell_beacons;
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
#[cfg(feature = "identity")]
mod identity;
#[cfg(not(feature = "identity"))]
#[path = "no_identity.rs"]
mod identity;
mod ids;
mod latency;
mod layer2;
mod link_mtu;
mod mobility;
mod mtu;
mod neighbour;
mod network;
mod observer;
mod routing;
mod schedule;
mod segment;
mod world;

pub use behind::neighbour_towards;
pub use black_hole::{BlackHole, black_holes};
pub use config::{
    Addresses, Amount, Associate, Bulk, FlowConfig, GatewayMechanisms, HostAddressing, HostIdentity, HostLatency,
    HostMechanisms, LinkBetween, LinkDetection, NodeConfig, OnOff, Opener, RequestResponse, Role, Route, RouterCpu,
    Routing, Traffic, WorldConfig,
};
pub use cpu::CpuStatistics;
pub use error::WorldError;
pub use external::{ShellCommand, SocketEvent};
pub use flow::{ConnectionReport, End, FlowReport, FlowStatus, Reconnection, SenderState};
pub use frame::Frame;
#[cfg(feature = "identity")]
pub use holdover_hip::esp::EspSuite;
pub use ids::{FlowId, LinkId, NodeId};
pub use layer2::{AddressLoss, EthernetHeader, Families, Layer2, LinkKind, OutageKind};
pub use mobility::{
    Attachment, Beacons, CellId, MobileHost, Movement, Path, Prediction, RadioCell, RegisterOn, Registration, Repeat,
    Selection, Stop, Visit, Visits,
};
pub use mtu::LinkMtu;
pub use observer::{Dropped, DroppedBy, Medium, NoObserver, Observer, Place, Sample, Transit, WorldEvent};
pub use world::{Ending, Holdings, World};
