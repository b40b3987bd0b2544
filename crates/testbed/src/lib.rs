//! The test bed: real Linux kernels in network namespaces, and the wall-clock loop that connects one of them over a TUN device with an
//! endpoint without I/O.
//!
//! Everything takes place in namespaces that this crate creates itself, with system calls only (no `ip`, no `tc`), and ends with them: no
//! interface, address, route or sysctl of the host is changed, and nothing is left behind after a panic or a kill. The parts, in the order
//! in which a test uses them:
//!
//! 1. [`Privilege`] determines whether this process may create namespaces, enters a user namespace if needed, and otherwise reports what an
//!    administrator would have to change.
//! 2. [`Namespace`] is a network namespace; closures run on threads inside it, and so do programs ([`Namespace::confine`]).
//! 3. [`Tun`] is a configured TUN or TAP device in a namespace, [`Netlink`] the rest of `ip link`, `ip address` and `ip route`,
//!    [`sysctl`] the namespace's own kernel parameters.
//! 4. [`KernelListener`] and [`KernelStream`] are kernel sockets with a pinned congestion control and timeouts on everything, [`TcpInfo`]
//!    and [`Counters`] are the kernel's reports about them.
//! 5. [`Shell`] drives a [`PacketEndpoint`] over the TUN device in wall-clock time, with an optional [`Impairment`] in each direction, and
//!    writes a capture of the packets that cross the device. The project's own TCP ([`holdover_tcp::Endpoint`]) is such an endpoint.
//! 6. [`world`] runs a world of the simulator with real kernels in place of hosts.
//! 7. [`experiments`] runs the same experiments about outages on the kernel and on the profiles that model it.
//! 8. [`doctor`] checks which of these the machine supports.
//! 9. [`access`] is a network of hosts whose addresses change, [`multipath`] and [`wireguard`] what kernels have for such hosts;
//!    [`advertiser`] is a router whose hosts configure themselves.
//! 10. [`gateway`] is a gateway's daemon on a router between hosts.
//! 11. [`Forwarder`] moves packets between the TUN devices of such networks, [`FrameSocket`] sends and receives single frames.
//! 12. [`matrix`] transfers data between the project's TCP and the kernel's under every combination of settings.
//!
//! With the feature `harness`, tests of this and other crates get their `main` from `harness`.
//!
//! A kernel's socket sends a datagram to an endpoint of ours:
//!
//! ```no_run
//! use std::net::{Ipv4Addr, UdpSocket};
//!
//! use holdover_base::Duration;
//! use holdover_testbed::{Namespace, PacketEndpoint, Privilege, Shell, Tun, TunConfig};
//!
//! fn send_to(endpoint: &mut (impl PacketEndpoint + Send)) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!     Privilege::acquire()?;
//!     Namespace::run("example", |namespace| {
//!         let (kernel, endpoints) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
//!         let tun = Tun::open(namespace, &TunConfig::new("tun0", 1500).address(kernel, 24))?;
//!         let mut shell = Shell::new(&tun)?;
//!         shell.run_beside(endpoint, Duration::from_secs(10), |_now, _endpoint| {}, || {
//!             UdpSocket::bind((kernel, 0))?.send_to(b"hello", (endpoints, 7))
//!         })?;
//!         Ok(())
//!     })?
//! }
//! ```

// This crate is the I/O floor: its purpose is clocks, sockets, threads and files. The bans protect the state
// machines below it, and nothing here is compiled into them.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod access;
pub mod advertiser;
mod capture;
mod counters;
pub mod doctor;
mod endpoint;
pub mod experiments;
mod forwarder;
mod frame_socket;
pub mod gateway;
#[cfg(feature = "harness")]
pub mod harness;
mod impair;
mod lateness;
pub mod matrix;
pub mod multipath;
mod privilege;
mod shell;
mod socket;
mod wall_clock;
pub mod wireguard;
pub mod world;

pub use holdover_host::{
    Link, Namespace, NamespaceError, NamespaceId, NamespaceThread, Neighbour, Netlink, NetlinkError, Offload, Route,
    SysctlError, Tun, TunConfig, TunError, sysctl,
};
pub use holdover_wire::{CaState, TcpInfo, TcpState};

pub use capture::TunDirection;
pub use counters::{Counters, CountersError};
pub use forwarder::{Forwarder, ForwarderError};
pub use frame_socket::{FrameDirection, FrameSocket};
pub use impair::{Impairment, ImpairmentConfig, ImpairmentCounters, ImpairmentError, Outage};
pub use lateness::{Lateness, Repeated};
pub use privilege::{Privilege, PrivilegeError, enter_user_namespace, run_in_user_namespace};
pub use shell::{PacketEndpoint, Shell, ShellCounters, ShellError, Stopped, Waker};
pub use socket::{Congestion, KernelListener, KernelStream, SocketError, SocketOptions, set_md5_key};
pub use wall_clock::WallClock;

/// The release of the running kernel, as `uname -r` prints it.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}
