//! TUN and TAP devices: an interface whose packets or Ethernet frames are read and written by this process.
//!
//! The device belongs to the namespace of the thread that opens it and goes when its [`Tun`] is dropped; the handle itself
//! may be used from any thread, so that one loop can serve devices of several namespaces.

use std::ffi::CStr;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::{Bytes, BytesMut};
use holdover_wire::MacAddress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Setter, ioctl, opcode};
use socket2::{Domain, Socket, Type};

use crate::carrier;
use crate::interface_name::{IFNAMSIZ, device_name};
use crate::offload::Offload;
use crate::sysctl::{self, SysctlError};
use crate::{Namespace, NamespaceError, Netlink, NetlinkError};

/// The device that makes TUN interfaces.
pub const DEVICE_NAME: &str = "/dev/net/tun";

/// The configuration of a TUN interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunConfig {
    /// The interface's name: 1 to 15 letters, digits, `-` and `_`.
    pub name: String,
    /// The MTU in bytes, IP header included. IPv4 needs 68, IPv6 1280: below that the kernel removes IPv6 from the
    /// interface.
    pub mtu: u32,
    /// The kernel's own addresses, with their prefix lengths. The rest of each prefix is reached over this interface.
    pub addresses: Vec<(IpAddr, u8)>,
    /// How many packets the kernel queues for this process (`txqueuelen`). Large by default, so that the test alone
    /// decides about losses.
    pub tx_queue_len: u32,
    /// Whether the kernel leaves checksums and segmentation to this process ([`Tun::recv_offloaded`],
    /// [`Tun::send_offloaded`]). Otherwise the kernel completes them ([`Tun::recv`], [`Tun::send`]).
    pub offload: bool,
    /// The Ethernet address of a TAP interface, whose packets are Ethernet frames; `None` for a TUN interface. A TAP interface has
    /// a link-local address, and neither duplicate address detection nor router solicitations.
    pub mac: Option<MacAddress>,
}

/// An open TUN interface: up, non-blocking, one IP packet a call and nothing before it.
#[derive(Debug)]
pub struct Tun {
    device: OwnedFd,
    /// A socket of its namespace, for ioctls on the interface.
    control: OwnedFd,
    name: String,
    mtu: u32,
}

/// A TUN interface could not be created or used.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The name is not a valid interface name.
    #[error("invalid interface name \"{name}\": expected 1 to 15 letters, digits, '-' and '_'")]
    Name {
        /// The name.
        name: Box<str>,
    },
    /// The device could not be opened or attached.
    #[error("{call} failed for TUN interface \"{name}\"")]
    Refused {
        /// The system call.
        call: &'static str,
        /// The interface.
        name: Box<str>,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel refuses packets because the interface is down.
    #[error("TUN interface \"{name}\" is down")]
    Down {
        /// The interface.
        name: Box<str>,
    },
    /// The kernel refuses the packet: its IP version is neither 4 nor 6, or it is empty.
    #[error("not an IP packet")]
    NotIp,
    /// The kernel did not make an own address reachable.
    #[error("{address} of TUN interface \"{name}\" did not become usable")]
    AddressNotReady {
        /// The interface.
        name: Box<str>,
        /// The address.
        address: IpAddr,
    },
    /// The interface could not be configured.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A parameter of the interface could not be set.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// The calling thread is not in the namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

impl TunConfig {
    /// An interface without addresses that queues 10,000 packets.
    pub fn new(name: &str, mtu: u32) -> Self {
        Self { name: name.to_owned(), mtu, addresses: Vec::new(), tx_queue_len: 10_000, offload: false, mac: None }
    }

    /// Adds an address with its prefix length.
    #[must_use]
    pub fn address(mut self, address: impl Into<IpAddr>, prefix_len: u8) -> Self {
        self.addresses.push((address.into(), prefix_len));
        self
    }
}

impl Tun {
    /// Creates and configures the interface in `namespace`, in which the calling thread must be, and sets it up.
    ///
    /// # Errors
    /// The name is invalid, `/dev/net/tun` or the interface is refused (`EPERM` without `CAP_NET_ADMIN`, `EBUSY` for one in use), it cannot
    /// be configured, or an IPv6 address of the kernel is not usable within 10 s.
    pub fn open(namespace: &Namespace, config: &TunConfig) -> Result<Self, TunError> {
        namespace.require_current()?;
        let name = config.name.as_str();
        let is_fine = (1..=15).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if !is_fine {
            return Err(TunError::Name { name: name.into() });
        }
        let refused = |call| move |errno: Errno| TunError::Refused { call, name: name.into(), source: errno.into() };
        let device = open_device().map_err(refused("open(\"/dev/net/tun\")"))?;
        attach(&device, &device_name(name), config.offload, config.mac.is_some())
            .map_err(refused("ioctl(TUNSETIFF)"))?;
        if config.offload {
            offload(&device).map_err(refused("ioctl(TUNSETOFFLOAD)"))?;
        }

        let control = Socket::new(Domain::IPV4, Type::DGRAM, None);
        let control = control.map_err(|source| TunError::Refused { call: "socket", name: name.into(), source })?.into();

        let mut netlink = Netlink::open(namespace)?;
        if let Some(mac) = config.mac {
            netlink.set_mac(name, mac)?;
        }
        netlink.set_mtu(name, config.mtu)?;
        netlink.set_tx_queue_len(name, config.tx_queue_len)?;
        // No link-local address, hence no router solicitations: the kernel must send nothing that the test did not ask
        // for. (IN6_ADDR_GEN_MODE_NONE; an interface with an MTU too small for IPv6 has no such parameter.)
        let quiet: &[_] =
            if config.mac.is_some() { &[("accept_dad", "0"), ("accept_ra", "0")] } else { &[("addr_gen_mode", "1")] };
        for (parameter, value) in quiet {
            match sysctl::set(namespace, &format!("net.ipv6.conf.{name}.{parameter}"), value) {
                Ok(()) | Err(SysctlError::Unknown { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for (address, prefix_len) in &config.addresses {
            netlink.add_address(name, *address, *prefix_len)?;
        }
        netlink.set_up(name)?;
        for (address, _) in &config.addresses {
            if let IpAddr::V6(address) = address {
                wait_for_local_route(*address, name)?;
            }
        }
        Ok(Self { device, control, name: config.name.clone(), mtu: config.mtu })
    }

    /// The next packet that the kernel sent on the interface; `None` if there is none now. `scratch` must be as large
    /// as the MTU: longer packets are cut off.
    ///
    /// # Errors
    /// [`TunError::Down`], or another failure of `read(2)`.
    pub fn recv(&self, scratch: &mut [u8]) -> Result<Option<Bytes>, TunError> {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.device, &mut *scratch)) {
            Ok(len) => Ok(Some(Bytes::copy_from_slice(&scratch[..len]))),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(self.failed("read", errno)),
        }
    }

    /// Passes one packet to the kernel as if it had arrived at the interface. Never waits: the kernel accepts or drops
    /// it, and counts it.
    ///
    /// # Errors
    /// [`TunError::NotIp`], [`TunError::Down`], or another failure of `write(2)`.
    pub fn send(&self, packet: &[u8]) -> Result<(), TunError> {
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.device, packet)) {
            Ok(_) => Ok(()),
            Err(Errno::INVAL) => Err(TunError::NotIp),
            Err(errno) => Err(self.failed("write", errno)),
        }
    }

    /// [`Self::recv`] for an interface with offload: returns the packet, of up to 64 kB, with its offloaded work. Packets are
    /// slices of `buffer`, which is replaced when used up; it may be empty at first.
    ///
    /// # Errors
    /// As for [`Self::recv`].
    pub fn recv_offloaded(&self, buffer: &mut BytesMut) -> Result<Option<(Offload, Bytes)>, TunError> {
        const MOST: usize = Offload::LEN + (1 << 16);
        const CHUNK: usize = 1 << 20;
        if buffer.len() < MOST {
            *buffer = BytesMut::zeroed(CHUNK);
        }
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.device, &mut buffer[..MOST])) {
            Ok(len) => {
                let mut packet = buffer.split_to(len).freeze();
                let header = packet.split_to(Offload::LEN.min(len));
                Ok(Some((Offload::from_bytes(&header), packet)))
            }
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(self.failed("read", errno)),
        }
    }

    /// Passes one packet, in pieces, with its offloaded work to the kernel: [`Tun::send`] for an interface with
    /// offload.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn send_offloaded(&self, offload: Offload, pieces: &[&[u8]]) -> Result<(), TunError> {
        let header = offload.to_bytes();
        let mut slices = Vec::with_capacity(pieces.len() + 1);
        slices.push(IoSlice::new(&header));
        slices.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
        match rustix::io::retry_on_intr(|| rustix::io::writev(&self.device, &slices)) {
            Ok(_) => Ok(()),
            Err(Errno::INVAL) => Err(TunError::NotIp),
            Err(errno) => Err(self.failed("writev", errno)),
        }
    }

    /// Sets the interface's carrier on or off, as a cable does. Watchers are notified before this returns
    /// ([`carrier`]).
    ///
    /// # Errors
    /// A failure of `ioctl(2)`.
    pub fn set_carrier(&self, is_on: bool) -> Result<(), TunError> {
        let value = libc::c_int::from(is_on);
        // SAFETY: TUNSETCARRIER reads one int.
        unsafe { ioctl(&self.device, Setter::<TUNSETCARRIER, libc::c_int>::new(value)) }
            .map_err(|errno| self.failed("ioctl(TUNSETCARRIER)", errno))?;
        carrier::has_carrier(&self.control, &self.name)
            .map(drop)
            .map_err(|errno| self.failed("ioctl(SIOCETHTOOL)", errno))
    }

    /// Whether [`Tun::recv`] would return a packet now.
    pub fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Only a signal can make this fail.
        rustix::io::retry_on_intr(|| poll(&mut fds, Some(&now))).is_ok_and(|ready| ready > 0)
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The configured MTU, in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    fn failed(&self, call: &'static str, errno: Errno) -> TunError {
        match errno {
            Errno::IO => TunError::Down { name: self.name.as_str().into() },
            errno => TunError::Refused { call, name: self.name.as_str().into(), source: errno.into() },
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Waits until the kernel accepts packets to its own `address`: it adds that route later, in a work queue, although
/// duplicate address detection is off, and drops packets before.
fn wait_for_local_route(address: Ipv6Addr, name: &str) -> Result<(), TunError> {
    const TABLE: &str = "/proc/thread-self/net/ipv6_route";
    const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
    let refused =
        |source| TunError::Refused { call: "reading /proc/thread-self/net/ipv6_route", name: name.into(), source };
    let destination = format!("{:032x} 80 ", u128::from(address));
    // The flags are the last but one column.
    let is_local = |line: &str| {
        let flags = line.split_whitespace().rev().nth(1).and_then(|flags| u32::from_str_radix(flags, 16).ok());
        line.starts_with(&destination) && flags.is_some_and(|flags| flags & RTF_LOCAL != 0)
    };
    let start = std::time::Instant::now();
    while !std::fs::read_to_string(TABLE).map_err(refused)?.lines().any(is_local) {
        if start.elapsed() > TIMEOUT {
            return Err(TunError::AddressNotReady { name: name.into(), address: address.into() });
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// `linux/ipv6_route.h`: the destination is the host itself.
const RTF_LOCAL: u32 = 0x8000_0000;

/// Opens the device in the calling thread's namespace. Only a system call: the privilege probe calls it in a forked
/// child.
///
/// # Errors
/// A failure of `open(2)`: `ENOENT` without the device, `EACCES` or `EPERM` without the permission.
pub fn open_device() -> Result<OwnedFd, Errno> {
    const DEVICE: &CStr = c"/dev/net/tun";
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

/// Creates the interface `name` from an open device. Only a system call, as [`open_device`].
///
/// # Errors
/// A failure of `ioctl(TUNSETIFF)`: `EPERM` without `CAP_NET_ADMIN`, `EBUSY` for a TUN interface in use.
pub fn attach(device: &OwnedFd, name: &[u8; IFNAMSIZ], offload: bool, ethernet: bool) -> Result<(), Errno> {
    // The interface is not persistent unless TUNSETPERSIST is set: it ends with the descriptor.
    let flags = if ethernet { IFF_TAP } else { IFF_TUN } | IFF_NO_PI | if offload { IFF_VNET_HDR } else { 0 };
    let request = IfReq { name: *name, flags, unused: [0; 22] };
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `IfReq` is laid out as.
    unsafe { ioctl(device, Setter::<TUNSETIFF, IfReq>::new(request)) }
}

/// Allows the kernel to leave checksums, and TCP segmentation, to this process.
fn offload(device: &OwnedFd) -> Result<(), Errno> {
    let flags = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
    // SAFETY: TUNSETOFFLOAD takes its flags by value and touches no memory of ours.
    unsafe { ioctl(device, IntegerSetter::<TUNSETOFFLOAD>::new_usize(flags)) }
}

/// `linux/if_tun.h`: packets of IP rather than frames of Ethernet.
const IFF_TUN: u16 = 0x0001;
/// `linux/if_tun.h`: frames of Ethernet.
const IFF_TAP: u16 = 0x0002;
/// `linux/if_tun.h`: no protocol information before each packet.
const IFF_NO_PI: u16 = 0x1000;
/// `linux/if_tun.h`: a `struct virtio_net_hdr` before each packet.
const IFF_VNET_HDR: u16 = 0x4000;
/// `linux/if_tun.h`: this process completes checksums.
const TUN_F_CSUM: usize = 0x01;
/// `linux/if_tun.h`: this process segments TCP over IPv4.
const TUN_F_TSO4: usize = 0x02;
/// `linux/if_tun.h`: this process segments TCP over IPv6.
const TUN_F_TSO6: usize = 0x04;
/// `linux/if_tun.h`: `_IOW('T', 208, unsigned int)`.
const TUNSETOFFLOAD: rustix::ioctl::Opcode = opcode::write::<libc::c_uint>(b'T', 208);
/// `linux/if_tun.h`: `_IOW('T', 202, int)`; the type in the number is an int, the argument is a `struct ifreq`.
const TUNSETIFF: rustix::ioctl::Opcode = opcode::write::<libc::c_int>(b'T', 202);
/// `linux/if_tun.h`: `_IOW('T', 226, int)`.
const TUNSETCARRIER: rustix::ioctl::Opcode = opcode::write::<libc::c_int>(b'T', 226);
/// `struct ifreq` of `linux/if.h` with the member `ifru_flags` of its union, which is 24 bytes long.
#[repr(C, align(8))]
struct IfReq {
    name: [u8; IFNAMSIZ],
    flags: u16,
    unused: [u8; 22],
}

const _: () = assert!(size_of::<IfReq>() == 40, "struct ifreq is of 40 bytes where pointers are of 8");
