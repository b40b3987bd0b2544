//! The gateway without hardware: hosts in network namespaces, for `holdover gateway demo` and for the tests against real kernels.

mod baseline;
mod between;
mod etcd;
mod line;
mod process;
mod show;
mod site;
mod transfer;
mod wire;
mod world;

pub use baseline::Baseline;
pub use etcd::{Store, find_etcd};
pub use line::Line;
pub use process::{MakeCommand, Process};
pub use show::{CASES, CLUSTER_CASES, Case, DemoError, Incident, Outcome, ROUND_TRIP, Way, run};
pub use site::Site;
pub use transfer::{LIMIT, Transfer, TransferError};
pub use world::{Cut, MOBILE_FACING, World, WorldError};
