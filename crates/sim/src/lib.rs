//! A deterministic simulator of hosts, routers, links and applications in virtual time.
//!
//! A [`World`] is built from a [`WorldConfig`] and run; it is a pure function of that description and its seed. Everything in
//! it is one of Holdover's state machines, the same that meet real kernels elsewhere: TCP endpoints
//! ([`holdover_tcp::Endpoint`]) and links ([`holdover_link::PointToPoint`]). What happens is told to an [`Observer`], which
//! records as much of it as somebody wants; a run without one costs nothing extra.
//!
//! # The order of simultaneous events
//!
//! Each machine is a *source* of events with one next deadline. Of several at the same instant, the source with the lowest
//! number goes first, and all that follows from its event at that instant goes on before the next source has its turn.
//! Sources are numbered so:
//!
//! 1. links, in the order of their description, the direction from the first named node before the other;
//! 2. hosts, in the order of their description (the timers of their connections);
//! 3. flows, in the order of their description (applications);
//! 4. the sampler.

#![forbid(unsafe_code)]

mod app;
mod config;
mod flow;
mod frame;
mod host;
mod observer;
mod routing;
mod schedule;
mod world;

pub use config::{
    Amount, Bulk, FlowConfig, LinkBetween, NodeConfig, NodeId, OnOff, Opener, RequestResponse, Role, Traffic,
    WorldConfig, WorldError,
};
pub use flow::{FlowId, FlowReport, FlowStatus, Reconnection};
pub use frame::Frame;
pub use observer::{Direction, LinkId, NoObserver, Observer, Place, Sample, WorldEvent};
pub use world::{Ending, World};
