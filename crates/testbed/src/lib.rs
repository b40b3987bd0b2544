//! The test bed: real Linux kernels in network namespaces, and the wall-clock loop that joins one of them over a TUN
//! device to an endpoint without I/O.
//!
//! Everything happens in namespaces that this crate makes itself, with system calls only (no `ip`, no `tc`), and dies
//! with them: no interface, address, route or sysctl of the host is touched, and nothing is left behind after a panic or
//! a kill. The parts, in the order in which a test meets them:
//!
//! 1. [`Privilege`] finds out whether this process may make namespaces, enters a user namespace where that is what it
//!    takes, and otherwise says what an administrator would have to change.
//! 2. [`Namespace`] is a network namespace; closures run on threads inside it.
//! 3. [`Tun`] is a configured TUN device in a namespace, [`Netlink`] the rest of `ip link`, `ip address` and `ip route`,
//!    [`sysctl`] the namespace's own kernel parameters.
//! 4. [`KernelListener`] and [`KernelStream`] are kernel sockets with a pinned congestion control and timeouts on everything,
//!    [`TcpInfo`] and [`Counters`] what the kernel says about them.
//! 5. [`Shell`] drives a [`PacketEndpoint`] over the TUN device in wall-clock time, with an [`Impairment`] in each
//!    direction where the test wants one.

// This crate is the I/O floor: clocks, sockets, threads and files are what it is for. The bans protect the state
// machines below it, and nothing here is compiled into them.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod counters;
mod impair;
mod namespace;
mod netlink;
mod privilege;
mod shell;
mod socket;
pub mod sysctl;
mod tcp_info;
mod tun;

pub use counters::{Counters, CountersError};
pub use impair::{Impairment, ImpairmentConfig, ImpairmentCounters, ImpairmentError, Outage};
pub use namespace::{Namespace, NamespaceError, NamespaceId, NamespaceThread};
pub use netlink::{Link, Netlink, NetlinkError, Route};
pub use privilege::{Privilege, PrivilegeError, enter_user_namespace, run_in_user_namespace};
pub use shell::{Direction, PacketEndpoint, Shell, ShellCounters, ShellError, Stopped, Waker, WallClock};
pub use socket::{Congestion, KernelListener, KernelStream, SocketError, SocketOptions};
pub use sysctl::SysctlError;
pub use tcp_info::{CaState, TcpInfo, TcpState};
pub use tun::{Tun, TunConfig, TunError};
