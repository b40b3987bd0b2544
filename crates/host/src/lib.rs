//! What every shell on a Linux host needs once: the daemons, and the test bed.
//!
//! | module | what for |
//! | --- | --- |
//! | [`Namespace`] | network namespaces, and threads that live in them |
//! | [`Requests`] | requests to the kernel by rtnetlink, and their answers, as messages |
//! | [`Monitor`] | the kernel's notifications by rtnetlink: interfaces, neighbours, addresses, routes and rules that change |
//! | [`Netlink`] | the same in the verbs of `ip link`, `ip address`, `ip route` and `ip neighbour` |
//! | [`neighbours`] | the next hop to a peer, and whether the kernel knows its link-layer address |
//! | [`neighbour_frames`] | address resolution as bytes: questions and answers |
//! | [`resolution_socket`] | sending these on an interface, and hearing the answers |
//! | [`Tun`] | TUN and TAP devices; what the kernel leaves to them is [`offload`]'s |
//! | [`interface_name`] | names of interfaces in the kernel's requests |
//! | [`carrier`] | whether an interface has a carrier now |
//! | [`sysctl`] | the kernel parameters of a namespace |
//! | [`clsact`] | programs as filters of an interface, where the kernel has no tcx |
//! | [`packet_socket`] | packets past the host's filters and routes |
//! | [`poll_loop`] | the loop of a daemon: descriptors, deadlines, signals, the watchdog |
//! | [`control_socket`] | a daemon's control socket: who has it, and who asks by it |
//! | [`control_line`] | the lines on it: requests and answers as JSON, and why a line is refused |
//! | [`session`] | conversations over stream sockets in a poll loop, with bounds |
//! | [`scrape`] | the endpoint for Prometheus, its answers, and the values in them |
//! | [`lock_file`] | what one process of several has |
//! | [`config_error`], [`time_text`] | what is wrong with a configuration, and where; times in it |
//! | [`clock`], [`log`] | this machine's clocks as points in time; what a daemon writes down |
//! | [`map_batch`] | all entries of an eBPF map |
//! | [`notify`] | what the service manager is told |
//! | [`open_files`] | how many files this process may have open |
//! | [`privileges`] | giving up all capabilities but a few |
//!
//! Everything works on the network namespace of the calling thread when it is opened, and stays in it from then on.

// This crate is I/O; the bans protect the state machines below it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod carrier;
pub mod clock;
pub mod clsact;
pub mod config_error;
mod confine;
pub mod control_line;
pub mod control_socket;
pub mod feature;
pub mod inet_diag;
pub mod interface_name;
pub mod lock_file;
pub mod log;
pub mod map_batch;
mod monitor;
mod namespace;
pub mod neighbour_frames;
pub mod neighbours;
mod netlink;
pub mod notify;
pub mod offload;
pub mod open_files;
pub mod packet_socket;
pub mod poll_loop;
pub mod privileges;
mod requests;
pub mod resolution_socket;
pub mod scrape;
pub mod session;
pub mod sysctl;
pub mod time_text;
pub mod tun;

pub use monitor::{Group, Monitor, Notification};
pub use namespace::{Namespace, NamespaceError, NamespaceId, NamespaceThread};
pub use netlink::{Link, Neighbour, Netlink, NetlinkError, Route};
pub use offload::Offload;
pub use requests::{Requests, messages};
pub use sysctl::SysctlError;
pub use tun::{Tun, TunConfig, TunError};
