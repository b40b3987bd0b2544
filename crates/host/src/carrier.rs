//! Whether an interface has a carrier now, as its driver reports it.
//!
//! After a change of carrier of any interface, the kernel delays the notification of the next one by up to a second
//! (`linkwatch`), and drops packets sent meanwhile. This query brings an interface's state up to date
//! (`linkwatch_sync_dev`) and triggers the notification.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl};

use crate::interface_name::{IFNAMSIZ, device_name};

/// Queries the carrier (`ETHTOOL_GLINK`). Any socket of the interface's namespace will do.
///
/// # Errors
/// The interface does not exist, or does not support the query.
pub fn has_carrier(socket: impl AsFd, interface: &str) -> Result<bool, Errno> {
    let mut asked = EthtoolValue { command: ETHTOOL_GLINK, data: 0 };
    let request = IfReqData { name: device_name(interface), data: &raw mut asked, unused: [0; 16] };
    // SAFETY: SIOCETHTOOL reads one `struct ifreq`, with the layout of `IfReqData`, and reads and writes the `struct
    // ethtool_value` that it points to, which outlives the call.
    unsafe { ioctl(socket, Setter::<SIOCETHTOOL, IfReqData>::new(request)) }?;
    Ok(asked.data != 0)
}

/// `linux/sockios.h`.
const SIOCETHTOOL: rustix::ioctl::Opcode = 0x8946;
/// `linux/ethtool.h`.
const ETHTOOL_GLINK: u32 = 0x0000_000a;

/// `struct ethtool_value` of `linux/ethtool.h`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// `struct ifreq` of `linux/if.h` with the member `ifru_data` of its union.
#[repr(C)]
struct IfReqData {
    name: [u8; IFNAMSIZ],
    data: *mut EthtoolValue,
    unused: [u8; 16],
}

const _: () = assert!(size_of::<IfReqData>() == 40, "struct ifreq is of 40 bytes where pointers are of 8");
