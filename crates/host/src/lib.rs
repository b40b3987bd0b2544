//! Linux host services for the daemons and the test bed.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`Namespace`] | network namespaces, and threads that live in them |
//! | [`netlink_socket`] | netlink requests of any protocol and their answers |
//! | [`Requests`] | rtnetlink requests and their answers, as messages |
//! | [`Monitor`] | rtnetlink notifications: changes of interfaces, neighbours, addresses, routes and rules |
//! | [`Netlink`] | rtnetlink requests as in `ip link`, `ip address`, `ip route` and `ip neighbour` |
//! | [`generic_netlink`] | queries of a family of generic netlink, and its notifications |
//! | [`nl80211`] | Wi-Fi by generic netlink: numbers and names |
//! | [`icmp_socket`] | raw sockets for ICMP and ICMPv6 |
//! | [`inet_diag`] | queries of sockets, and the end of connections |
//! | [`neighbours`] | the next hop to a peer, and its link-layer address in the kernel |
//! | [`neighbour_frames`] | address resolution packets as bytes |
//! | [`resolution_socket`] | sockets for address resolution on one interface |
//! | [`Tun`] | TUN and TAP devices; [`offload`] has their checksum and segmentation offload |
//! | [`interface_name`] | interface names in requests to the kernel |
//! | [`carrier`] | whether an interface has a carrier now |
//! | [`sysctl`] | the kernel parameters of a namespace |
//! | [`ebpf`] | eBPF objects: programs, maps, attachment to an interface, pins |
//! | [`clsact`] | programs as filters of an interface, for kernels without tcx |
//! | [`map_batch`] | all entries of an eBPF map |
//! | [`token_bucket`] | the rate of an interface |
//! | [`packet_listener`] | the packets that an interface sends and receives |
//! | [`packet_socket`] | packets that bypass the host's filters and routes |
//! | [`poll_loop`] | the loop of a daemon: descriptors, deadlines, signals, the watchdog |
//! | [`control_socket`], [`control_client`] | a daemon's control socket: its owner, and its callers |
//! | [`control_line`] | its lines: requests and answers as JSON, and refusals |
//! | [`session`] | sessions over stream sockets in a poll loop, with bounds |
//! | [`scrape`] | the endpoint for Prometheus, and metric values |
//! | [`lock_file`] | a lock that one process holds |
//! | [`feature`] | what the kernel and this process lack for a feature |
//! | [`config_error`] | errors in configuration files, with their position |
//! | [`time_text`], [`words`], [`ports`] | times, lists of words, and ports in configuration files |
//! | [`clock`], [`log`] | this machine's clocks as points in time; a daemon's log |
//! | [`notify`] | notifications to the service manager |
//! | [`open_files`] | the limit of open files |
//! | [`privileges`] | dropping capabilities |
//! | [`process`] | programs that run beside this one, until a value is dropped |
//! | [`dependents`] | programs in namespaces that end with this process |
//! | `confine` | programs of the test bed with process and mount namespaces of their own |
//!
//! Objects belong to the network namespace of the thread that opens them.

// This crate is I/O; the bans protect the state machines below it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod carrier;
pub mod clock;
pub mod clsact;
pub mod config_error;
mod confine;
pub mod control_client;
pub mod control_line;
pub mod control_socket;
pub mod dependents;
pub mod ebpf;
pub mod feature;
pub mod generic_netlink;
pub mod icmp_socket;
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
pub mod netlink_socket;
pub mod nl80211;
pub mod notify;
pub mod offload;
pub mod open_files;
pub mod packet_listener;
pub mod packet_socket;
pub mod poll_loop;
pub mod ports;
pub mod privileges;
pub mod process;
mod requests;
pub mod resolution_socket;
pub mod scrape;
pub mod session;
pub mod sysctl;
pub mod time_text;
pub mod token_bucket;
pub mod tun;
pub mod words;

pub use monitor::{Group, Monitor, Notification};
pub use namespace::{Namespace, NamespaceError, NamespaceId, NamespaceThread};
pub use netlink::{Link, Neighbour, Netlink, NetlinkError, Route};
pub use offload::Offload;
pub use process::Process;
pub use requests::{Requests, messages};
pub use sysctl::SysctlError;
pub use tun::{Tun, TunConfig, TunError};
