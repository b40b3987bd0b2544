//! Generic netlink (`linux/genetlink.h`): queries of one family, and its multicast groups.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_sys::Socket;

use crate::netlink_socket::{NETLINK_GENERIC, NLMSG_HEADER_LEN, NetlinkSocket, Request};

/// A socket for queries of one family.
pub struct Generic {
    socket: NetlinkSocket,
    family: u16,
    /// The kernel's description of the family.
    description: Vec<Vec<u8>>,
}

/// A socket for notifications of one multicast group.
pub struct GenericEvents {
    socket: Socket,
    family: u16,
}

/// The content of one datagram of a multicast group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GenericNotification {
    /// Messages of the family, in order: command and attributes.
    Messages(Vec<(u8, Vec<u8>)>),
    /// The socket's buffer overflowed and notifications were lost: the caller has to query the state.
    Overrun,
}

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME`.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `CTRL_ATTR_MCAST_GROUPS`, `CTRL_ATTR_MCAST_GRP_NAME` and `CTRL_ATTR_MCAST_GRP_ID`.
const GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;

/// Bytes of `struct genlmsghdr`.
const GENERIC_HEADER_LEN: usize = 4;

/// Bytes of `nlmsghdr` and `genlmsghdr`.
const HEADERS_LEN: usize = NLMSG_HEADER_LEN + GENERIC_HEADER_LEN;

/// The kernel answers during the request, unless a driver is busy. Daemons query from their poll loops, which must not
/// wait for a driver.
const TIMEOUT: Duration = Duration::from_millis(50);

impl Generic {
    /// Looks for a family by its name, which ends with a zero byte, in the network namespace of the calling thread. The
    /// kernel may load a module for it.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has none; or it refuses the socket.
    pub fn open(name: &[u8]) -> io::Result<Self> {
        let socket = NetlinkSocket::open(NETLINK_GENERIC)?;
        socket.set_timeout(TIMEOUT)?;
        let mut generic = Self { socket, family: CONTROLLER, description: Vec::new() };
        generic.description = generic.ask(GET_FAMILY, 0, &attribute(FAMILY_NAME, name))?;
        let family = generic.description.iter().find_map(|answer| family_of(answer));
        generic.family = family.ok_or(io::Error::from(rustix::io::Errno::NOENT))?;
        Ok(generic)
    }

    /// Sends a query with these attributes ([`attribute`]); returns the attributes of each message of the answer.
    ///
    /// # Errors
    /// The kernel refuses, does not answer within 50 ms, or the socket fails.
    pub fn ask(&mut self, command: u8, flags: u16, attributes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let request = request(self.family, command, flags, attributes);
        let mut answers = Vec::new();
        self.socket.request(&request, &mut |_, payload| {
            answers.extend(payload.get(GENERIC_HEADER_LEN..).map(<[u8]>::to_vec));
        })?;
        Ok(answers)
    }
}

impl AsFd for Generic {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl GenericEvents {
    /// Subscribes to a group of a family by its name, which ends with a zero byte, in the network namespace of the
    /// calling thread.
    ///
    /// # Errors
    /// `ENOENT` if the family has no such group; or the kernel refuses the socket.
    pub fn open(family: &Generic, group: &[u8]) -> io::Result<Self> {
        let group = family.description.iter().find_map(|answer| group_of(answer, group));
        let group = group.ok_or(io::Error::from(rustix::io::Errno::NOENT))?;
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        socket.add_membership(group)?;
        Ok(Self { socket, family: family.family })
    }

    /// Receives one datagram; `None` if none is queued.
    ///
    /// # Errors
    /// The socket fails.
    pub fn receive(&self) -> io::Result<Option<GenericNotification>> {
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, from)) if from.port_number() == 0 => {
                    let messages = messages(&datagram, self.family);
                    let messages = messages.map(|(command, attributes)| (command, attributes.to_vec()));
                    return Ok(Some(GenericNotification::Messages(messages.collect())));
                }
                // Not from the kernel.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                    return Ok(Some(GenericNotification::Overrun));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for GenericEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Debug for Generic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generic").field("family", &self.family).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for GenericEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GenericEvents").field("family", &self.family).finish_non_exhaustive()
    }
}

/// The messages of a family in a datagram: command and attributes. A truncated message ends it.
pub fn messages(mut datagram: &[u8], family: u16) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let header = datagram.get(..HEADERS_LEN)?;
            let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let message = datagram.get(HEADERS_LEN..length)?;
            let (found, command) = (u16::from_ne_bytes([header[4], header[5]]), header[16]);
            datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
            if found == family {
                return Some((command, message));
            }
        }
    })
}

/// The value of the first attribute of a type.
pub fn value(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|&(found, _)| found == kind).map(|(_, value)| value)
}

/// The same as a number in the machine's byte order; `None` if it has another length.
pub fn u32_value(bytes: &[u8], kind: u16) -> Option<u32> {
    value(bytes, kind)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Attributes as type and value. A truncated one ends them. Two bits of the type are flags (`NLA_TYPE_MASK`).
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (header, _) = bytes.split_at_checked(4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([header[2], header[3]]) & 0x3fff, value))
    })
}

/// The bytes of an attribute.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn request(family: u16, command: u8, flags: u16, attributes: &[u8]) -> Request {
    // `struct genlmsghdr`: command, version and two reserved bytes.
    Request { kind: family, flags, payload: [&[command, 1, 0, 0], attributes].concat() }
}

fn family_of(attributes: &[u8]) -> Option<u16> {
    value(attributes, FAMILY_ID)?.try_into().ok().map(u16::from_ne_bytes)
}

/// The id of a multicast group in the description of a family.
fn group_of(family: &[u8], name: &[u8]) -> Option<u32> {
    let (_, group) = attributes(value(family, GROUPS)?).find(|&(_, group)| value(group, GROUP_NAME) == Some(name))?;
    u32_value(group, GROUP_ID)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NLM_F_DUMP;

    use super::*;

    fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(body);
        bytes
    }

    fn of_family(command: u8, value: u8) -> Vec<u8> {
        // Nested attributes have a flag (`NLA_F_NESTED`).
        [&[command, 1, 0, 0], &attribute(5 | 0x8000, &attribute(3, &[value; 5]))[..]].concat()
    }

    #[test]
    fn a_truncated_notification_ends_the_datagram() {
        let whole = message(28, 7, &of_family(1, 2));
        for cut in 0..whole.len() {
            assert_eq!(messages(&whole[..cut], 28).count(), 0, "{cut}");
        }
        assert_eq!(messages(&whole, 28).map(|(command, _)| command).collect::<Vec<_>>(), [1]);
        assert_eq!(messages(&whole, 29).count(), 0, "another family");
    }

    #[test]
    fn a_query_has_the_generic_header_and_the_attributes() {
        let query = request(CONTROLLER, GET_FAMILY, 0, &attribute(FAMILY_NAME, b"nl80211\0"));
        assert_eq!((query.kind, &query.payload[..GENERIC_HEADER_LEN]), (CONTROLLER, &[GET_FAMILY, 1, 0, 0][..]));
        assert_eq!(value(&query.payload[GENERIC_HEADER_LEN..], FAMILY_NAME), Some(&b"nl80211\0"[..]));
    }

    #[test]
    fn a_multicast_group_is_found_by_its_name() {
        let group = |name: &[u8], number: u32| {
            [attribute(GROUP_NAME, name), attribute(GROUP_ID, &number.to_ne_bytes())].concat()
        };
        let groups = [attribute(1, &group(b"scan\0", 20)), attribute(2, &group(b"mlme\0", 22))].concat();
        let family = attribute(GROUPS | 0x8000, &groups);
        assert_eq!(group_of(&family, b"mlme\0"), Some(22));
        assert_eq!(group_of(&family, b"nan\0"), None);
    }

    /// Every kernel with generic netlink has its controller, and that one the group `notify`.
    #[test]
    fn the_kernel_describes_its_controller() {
        let mut generic = Generic::open(b"nlctrl\0").unwrap();
        assert_eq!(generic.family, CONTROLLER);
        let families = generic.ask(GET_FAMILY, NLM_F_DUMP, &[]).unwrap();
        assert!(families.iter().any(|family| family_of(family) == Some(CONTROLLER)));
        let events = GenericEvents::open(&generic, b"notify\0").unwrap();
        assert_eq!(events.receive().unwrap(), None);
        let missing = Generic::open(b"no such one\0").unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
    }
}
