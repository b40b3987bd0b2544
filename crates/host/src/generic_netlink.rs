//! Generic netlink (`linux/genetlink.h`): queries of one family, and its multicast groups.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A socket for queries of one family.
pub struct Generic {
    socket: Socket,
    family: u16,
    /// The kernel's description of the family.
    description: Vec<Vec<u8>>,
    sequence: u32,
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

/// `nlmsghdr` and `genlmsghdr`.
const HEADERS: usize = 16 + 4;

/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// The timeout for the kernel. It answers during the request, unless a driver is busy.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

impl Generic {
    /// Looks for a family by its name, which ends with a zero byte, in the network namespace of the calling thread. The
    /// kernel may load a module for it.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has none; or it refuses the socket.
    pub fn open(name: &[u8]) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        let mut generic = Self { socket, family: CONTROLLER, description: Vec::new(), sequence: 0 };
        generic.description = generic.ask(GET_FAMILY, 0, &attribute(FAMILY_NAME, name))?;
        let family = generic.description.iter().find_map(|answer| family_of(answer));
        generic.family = family.ok_or(io::Error::from(rustix::io::Errno::NOENT))?;
        Ok(generic)
    }

    /// Sends a query with these attributes ([`attribute`]); returns the attributes of each message of the answer.
    ///
    /// # Errors
    /// The kernel refuses, does not answer, or the socket fails.
    pub fn ask(&mut self, command: u8, flags: u16, attributes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(self.family, command, flags, self.sequence, attributes);
        self.socket.send_to(&request, &SocketAddr::new(0, 0), 0)?;
        let mut answers = Vec::new();
        loop {
            let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
            if poll(&mut ready, Some(&PATIENCE))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let (datagram, _) = self.socket.recv_from_full()?;
            if take_answers(&datagram, self.sequence, flags & NLM_F_DUMP == 0, &mut answers)? {
                return Ok(answers);
            }
        }
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
            let header = datagram.get(..HEADERS)?;
            let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let message = datagram.get(HEADERS..length)?;
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

fn request(family: u16, command: u8, flags: u16, sequence: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADERS + content.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&family.to_ne_bytes());
    bytes.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    bytes.extend_from_slice(&[command, 1, 0, 0]);
    bytes.extend_from_slice(content);
    bytes
}

/// Parses the messages of a datagram; returns whether the answer ends with it.
fn take_answers(mut datagram: &[u8], sequence: u32, is_single: bool, answers: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    while let Some((header, _)) = datagram.split_at_checked(16) {
        let u32_at = |at: usize| header[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let length = u32_at(0) as usize;
        let Some(message) = datagram.get(..length).filter(|_| length >= 16) else { return Ok(true) };
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        if u32_at(8) != sequence {
            continue;
        }
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let code = message.get(16..20).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
                return if code == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(code.saturating_neg())) };
            }
            _ => answers.extend(message.get(HEADERS..).map(<[u8]>::to_vec)),
        }
        if is_single {
            return Ok(true);
        }
    }
    Ok(false)
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
    fn an_answer_has_the_messages_of_its_number_up_to_its_end() {
        let datagram = [
            message(28, 6, &of_family(1, 1)),
            message(28, 7, &of_family(1, 2)),
            message(28, 7, &of_family(1, 3)),
            message(DONE, 7, &[0; 4]),
        ]
        .concat();
        let mut answers = Vec::new();
        assert!(take_answers(&datagram, 7, false, &mut answers).unwrap());
        let values: Vec<_> = answers.iter().map(|answer| value(value(answer, 5).unwrap(), 3).unwrap()[0]).collect();
        assert_eq!(values, [2, 3]);
    }

    #[test]
    fn an_error_is_one_and_half_a_message_is_the_end() {
        let refused = message(ERROR, 7, &(-95i32).to_ne_bytes());
        let error = take_answers(&refused, 7, false, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(95));
        let whole = message(28, 7, &of_family(1, 2));
        for cut in 0..whole.len() {
            let mut answers = Vec::new();
            let _ = take_answers(&whole[..cut], 7, false, &mut answers);
            assert!(answers.is_empty(), "{cut}");
            assert_eq!(messages(&whole[..cut], 28).count(), 0, "{cut}");
        }
        assert_eq!(messages(&whole, 28).map(|(command, _)| command).collect::<Vec<_>>(), [1]);
        assert_eq!(messages(&whole, 29).count(), 0, "another family");
    }

    #[test]
    fn what_is_asked_is_as_long_as_it_says() {
        let bytes = request(CONTROLLER, GET_FAMILY, 0, 9, &attribute(FAMILY_NAME, b"nl80211\0"));
        assert_eq!(bytes.len(), 32);
        assert_eq!(&bytes[..4], 32u32.to_ne_bytes());
        assert_eq!(value(&bytes[HEADERS..], FAMILY_NAME), Some(&b"nl80211\0"[..]));
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
        let generic = Generic::open(b"nlctrl\0").unwrap();
        assert_eq!(generic.family, CONTROLLER);
        let events = GenericEvents::open(&generic, b"notify\0").unwrap();
        assert_eq!(events.receive().unwrap(), None);
        let missing = Generic::open(b"no such one\0").unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
    }
}
