//! A complete TCP endpoint without I/O (RFC 9293 and its companions).
//!
//! A [`Connection`] is a state machine over values: segments and times go in, segments, events and deadlines come out.
//! An [`Endpoint`] owns many connections, and handles listeners, ports and segments without a connection. A [`Config`]
//! holds all differences between stacks; named stacks are [`Profile`]s.
//!
//! This crate contains no mechanism for intermittent links. Such a mechanism either rewrites packets outside, or steers
//! a connection through the general verbs of [`Connection`].

#![forbid(unsafe_code)]

mod ace;
mod bandwidth;
mod config;
mod congestion;
mod connection;
mod counters;
mod delivery_rate;
mod departure;
mod ecn;
mod endpoint;
pub mod fuzz;
mod on_demand;
mod pacing;
mod path_mtu;
mod profile;
mod receive_buffer;
mod recovery;
mod right_sizing;
mod rtt;
mod send_buffer;
mod state;
mod timers;

pub use ace::EcnBytes;
pub use config::{
    AccurateEcnConfig, AccurateEcnOption, AccurateEcnRules, AckCounting, AckPolicy, Algorithm, BeyondWindow,
    BufferGrowth, Config, CongestionConfig, CwndIncrease, Ecn, Estimator, FastOpenConfig, HyStartVariant,
    InitialWindow, KeepAlive, LimitConfig, LossDetection, MtuProbing, PacingConfig, PathMtuConfig, Paws, PersistConfig,
    ProbePayload, ReceiveConfig, RecoveryConfig, Reduction, RetryLimit, RtoConfig, SendConfig, SsthreshBasis,
    UnreportedMtu, UserTimeoutConfig, WindowUpdate, ZeroWindow,
};
pub use connection::{
    AccurateEcnSeen, AfterRetransmit, Connection, EcnFeedback, Event, Fin, IcmpEffect, Opening, Resumption, Snapshot,
    Transmit,
};
pub use counters::{Counters, Disposition, Reason};
pub use ecn::EcnField;
pub use endpoint::{ConnectError, ConnectionId, Endpoint, EndpointConfig, ListenError, Outgoing, reset_for};
pub use path_mtu::MtuRange;
pub use profile::{Profile, UnknownProfile};
pub use recovery::RecoveryState;
pub use state::{ConnectionError, State};
pub use timers::Timer;
