//! Interfaces and their frame formats.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use holdover_flow::FRAME_LEN;
use holdover_host::Requests;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkInfo, LinkMessage};

use super::EngineError;

/// An interface of a network namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Interface {
    pub(super) name: Box<str>,
    pub(super) index: u32,
    /// Bytes before the IP header of each packet.
    pub(super) frame_len: u32,
}

impl Interface {
    /// The loopback interface, on which the agent knows no connections: for probes.
    pub(super) fn loopback() -> Self {
        Self { name: "lo".into(), index: 1, frame_len: FRAME_LEN as u32 }
    }

    /// Looks it up in the calling thread's network namespace.
    pub(super) fn find(name: &str) -> Result<Self, EngineError> {
        let failed = |source| EngineError::Interface { interface: name.into(), source };
        let mut request = request(name).ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        // SAFETY: no memory of ours is touched.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        // SAFETY: a new descriptor without another owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut ask = |what| {
            // SAFETY: both requests read the name of one `struct ifreq` and write into its union.
            let answer = unsafe { libc::ioctl(socket.as_raw_fd(), what, std::ptr::from_mut(&mut request)) };
            if answer < 0 { Err(failed(io::Error::last_os_error())) } else { Ok(request.ifr_ifru) }
        };
        // SAFETY: this request fills in the hardware address; its family is the type of the device.
        let kind = unsafe { ask(libc::SIOCGIFHWADDR)?.ifru_hwaddr.sa_family };
        // SAFETY: this request fills in the index.
        let index = unsafe { ask(libc::SIOCGIFINDEX)?.ifru_ifindex };
        let frame_len = match kind {
            libc::ARPHRD_ETHER => FRAME_LEN as u32,
            libc::ARPHRD_NONE | libc::ARPHRD_PPP | ARPHRD_RAWIP => 0,
            libc::ARPHRD_SIT => 0,
            libc::ARPHRD_IPGRE | ARPHRD_IP6GRE if has_one_remote(index as u32).map_err(failed)? => 0,
            libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 if is_ip_tunnel(index as u32).map_err(failed)? => 0,
            kind => return Err(EngineError::Kind { interface: name.into(), kind }),
        };
        Ok(Self { name: name.into(), index: index as u32, frame_len })
    }
}

/// `linux/if_arp.h`: modems without Ethernet frames (`qmi_wwan` and others).
const ARPHRD_RAWIP: u16 = 519;

/// The same: GRE over IPv6. Packets of SIT, GRE, IPIP and IPv6 tunnels are at both hooks without the outer headers since Linux 5.14.
const ARPHRD_IP6GRE: u16 = 823;

/// Whether a GRE tunnel has one end on the other side. Without a remote address, or with that of a group, the outer headers precede its packets
/// at both hooks (`ipgre_header_ops`).
fn has_one_remote(index: u32) -> io::Result<bool> {
    let is_one = |attribute: &LinkAttribute| match attribute {
        LinkAttribute::Broadcast(remote) => is_unicast(remote),
        _ => false,
    };
    Ok(attributes(index)?.iter().any(is_one))
}

/// Whether the bytes of an address of IPv4 or IPv6 are those of one host.
fn is_unicast(bytes: &[u8]) -> bool {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
    address.is_ok_and(|address| !address.is_unspecified() && !address.is_multicast())
}

/// Whether an interface of the types of IP tunnels is one, and not VTI, whose incoming packets follow the lower interface's frame header.
fn is_ip_tunnel(index: u32) -> io::Result<bool> {
    let is_kind = |info: &LinkInfo| match info {
        LinkInfo::Kind(kind) => ["ipip", "ip6tnl"].contains(&kind.to_string().as_str()),
        _ => false,
    };
    let is_one = |attribute: &LinkAttribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.iter().any(is_kind),
        _ => false,
    };
    Ok(attributes(index)?.iter().any(is_one))
}

/// The kernel's description of an interface.
fn attributes(index: u32) -> io::Result<Vec<LinkAttribute>> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    let answers = Requests::open()?.request(RouteNetlinkMessage::GetLink(message), 0)?;
    let links = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    });
    Ok(links.flat_map(|link| link.attributes).collect())
}

/// A `struct ifreq` for this interface; `None` if the name is not valid.
fn request(name: &str) -> Option<libc::ifreq> {
    // SAFETY: all zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let is_fine = !name.is_empty() && name.len() < request.ifr_name.len() && !name.contains('\0');
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    is_fine.then_some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_without_a_remote_address_or_with_a_group_has_not_one_remote() {
        let v6 = |first: [u8; 2], last: u8| {
            let mut bytes = [0; 16];
            (bytes[0], bytes[1], bytes[15]) = (first[0], first[1], last);
            bytes
        };
        assert!(is_unicast(&[192, 0, 2, 1]));
        assert!(is_unicast(&v6([0x20, 0x01], 1)));
        let others: [&[u8]; 6] = [&[0; 4], &[239, 1, 1, 1], &[0; 16], &v6([0xff, 0x05], 1), &[], &[0xff; 6]];
        for bytes in others {
            assert!(!is_unicast(bytes), "{bytes:?}");
        }
    }
}
