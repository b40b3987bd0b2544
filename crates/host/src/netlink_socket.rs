//! Requests over netlink (`netlink(7)`) and their answers, for any of its protocols.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, Parseable as _,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

pub use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_SOCK_DIAG};

/// Bytes of `struct nlmsghdr`.
pub const NLMSG_HEADER_LEN: usize = 16;

/// A socket for requests. It may be used from any thread: it stays in the network namespace in which it was opened.
pub struct NetlinkSocket {
    socket: Socket,
    sequence: u32,
}

/// A request as a message without its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its type.
    pub kind: u16,
    /// Its flags; `NLM_F_REQUEST` is added.
    pub flags: u16,
    /// Its content.
    pub payload: Vec<u8>,
}

/// A request failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkSocketError {
    /// The socket failed, or the kernel did not answer.
    #[error("netlink socket")]
    Socket(#[source] io::Error),
    /// The kernel refused the request.
    #[error("the kernel refuses a netlink request")]
    Refused(#[source] io::Error),
    /// The answer is not a sequence of netlink messages.
    #[error("invalid netlink answer")]
    Invalid,
}

impl From<NetlinkSocketError> for io::Error {
    fn from(error: NetlinkSocketError) -> Self {
        match error {
            NetlinkSocketError::Socket(error) | NetlinkSocketError::Refused(error) => error,
            NetlinkSocketError::Invalid => Self::new(io::ErrorKind::InvalidData, error),
        }
    }
}

impl NetlinkSocketError {
    /// The number of the kernel's refusal.
    pub fn refusal(&self) -> Option<i32> {
        match self {
            Self::Refused(error) => error.raw_os_error(),
            _ => None,
        }
    }
}

/// The kernel makes no datagram of a dump longer than half of this.
const LARGE: usize = 1 << 16;

/// The kernel answers at once. Without an answer after this time, it was lost.
const TIMEOUT: Duration = Duration::from_secs(10);

impl std::fmt::Debug for NetlinkSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetlinkSocket").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl NetlinkSocket {
    /// Opens a socket for a protocol, such as [`NETLINK_SOCK_DIAG`], in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let netlink = Self { socket, sequence: 0 };
        netlink.set_timeout(TIMEOUT)?;
        Ok(netlink)
    }

    /// Sets how long to wait for each datagram of an answer; 10 s without this.
    ///
    /// # Errors
    /// The timeout is zero.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.socket, Timeout::Recv, Some(timeout))?)
    }

    /// Sends one request and calls `answer` with the header and the content of each message of its answer, up to its end:
    /// of a dump the last message, else the acknowledgement, which is always requested.
    ///
    /// # Errors
    /// See [`NetlinkSocketError`].
    pub fn request(
        &mut self,
        request: &Request,
        answer: &mut dyn FnMut(&NetlinkHeader, &[u8]),
    ) -> Result<(), NetlinkSocketError> {
        let is_dump = request.flags & NLM_F_DUMP == NLM_F_DUMP;
        let flags = request.flags | if is_dump { 0 } else { NLM_F_ACK };
        self.exchange(|sequence| request.to_bytes(flags, sequence), answer)
    }

    /// Sends requests in one datagram, and waits for the acknowledgements of those that ask for one.
    ///
    /// # Errors
    /// See [`NetlinkSocketError`]; the first refusal.
    pub fn transact(&mut self, requests: &[Request]) -> Result<(), NetlinkSocketError> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for request in requests {
            self.sequence = self.sequence.wrapping_add(1);
            bytes.extend(request.to_bytes(request.flags, self.sequence));
        }
        self.socket.send(&bytes, 0).map_err(NetlinkSocketError::Socket)?;
        let mut expected = requests.iter().filter(|request| request.flags & NLM_F_ACK != 0).count();
        while expected > 0 {
            for message in messages(&self.receive()?) {
                let message = message?;
                let is_ours = (message.sequence_number().wrapping_sub(first) as usize) < requests.len();
                if is_ours && message.message_type() == NLMSG_ERROR {
                    verdict(&message)?;
                    expected = expected.saturating_sub(1);
                }
            }
        }
        Ok(())
    }

    /// As [`Self::request`], of a message with its header, which is made for its sequence number.
    pub(crate) fn exchange(
        &mut self,
        to_bytes: impl FnOnce(u32) -> Vec<u8>,
        answer: &mut dyn FnMut(&NetlinkHeader, &[u8]),
    ) -> Result<(), NetlinkSocketError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&to_bytes(self.sequence), 0).map_err(NetlinkSocketError::Socket)?;
        loop {
            for message in messages(&self.receive()?) {
                let message = message?;
                // Skips the remains of a request that failed half-way.
                if message.sequence_number() != self.sequence {
                    continue;
                }
                match message.message_type() {
                    NLMSG_DONE | NLMSG_ERROR => return verdict(&message),
                    _ => {
                        if let Ok(header) = NetlinkHeader::parse(&message) {
                            answer(&header, message.payload());
                        }
                    }
                }
            }
        }
    }

    /// The next datagram, of any length. The kernel fills datagrams of a dump up to the largest buffer that it has seen.
    fn receive(&self) -> Result<Vec<u8>, NetlinkSocketError> {
        let mut datagram = Vec::with_capacity(LARGE);
        let length = self.socket.recv(&mut datagram, libc::MSG_PEEK | libc::MSG_TRUNC).map_err(|error| {
            let is_timeout = error.kind() == io::ErrorKind::WouldBlock;
            NetlinkSocketError::Socket(if is_timeout { io::ErrorKind::TimedOut.into() } else { error })
        })?;
        if length > datagram.len() {
            return self.socket.recv_from_full().map(|(datagram, _)| datagram).map_err(NetlinkSocketError::Socket);
        }
        self.socket.recv(&mut Vec::new(), libc::MSG_TRUNC).map_err(NetlinkSocketError::Socket)?;
        Ok(datagram)
    }
}

impl Request {
    fn to_bytes(&self, flags: u16, sequence: u32) -> Vec<u8> {
        let len = NLMSG_HEADER_LEN + self.payload.len();
        let mut bytes = Vec::with_capacity(len.next_multiple_of(4));
        bytes.extend((len as u32).to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(&self.payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }
}

/// The result in the last message of an answer: without an error number it is an acknowledgement.
fn verdict(message: &NetlinkBuffer<&[u8]>) -> Result<(), NetlinkSocketError> {
    match message.payload().first_chunk().map_or(0, |code| i32::from_ne_bytes(*code)) {
        0 => Ok(()),
        code => Err(NetlinkSocketError::Refused(io::Error::from_raw_os_error(code.wrapping_neg()))),
    }
}

/// The messages of one datagram. An invalid one is the last, as the next one cannot be found.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Result<NetlinkBuffer<&[u8]>, NetlinkSocketError>> {
    std::iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let message = split(datagram);
        datagram = message.as_ref().map_or(&[], |(_, rest)| rest);
        Some(message.map(|(message, _)| message).ok_or(NetlinkSocketError::Invalid))
    })
}

/// The first message of a datagram, and the rest. Each message begins with its length and is padded to a multiple of 4.
pub(crate) fn split(datagram: &[u8]) -> Option<(NetlinkBuffer<&[u8]>, &[u8])> {
    let message = NetlinkBuffer::new_checked(datagram).ok()?;
    let length = (message.length() as usize).next_multiple_of(4);
    Some((message, datagram.get(length..).unwrap_or(&[])))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn acknowledgements_and_refusals_are_told_apart() {
        let of = |kind: u16, code: i32| {
            let message = Request { kind, flags: 0, payload: code.to_ne_bytes().to_vec() }.to_bytes(0, 7);
            let mut found = messages(&message);
            let first = found.next().unwrap().unwrap();
            assert_eq!(first.sequence_number(), 7);
            let verdict = verdict(&first);
            assert!(found.next().is_none());
            verdict.map_err(|error| error.refusal())
        };
        assert_eq!((of(NLMSG_DONE, 0), of(NLMSG_ERROR, 0)), (Ok(()), Ok(())));
        assert_eq!(of(NLMSG_ERROR, -libc::ENOENT), Err(Some(libc::ENOENT)));
        assert_eq!(of(NLMSG_DONE, -libc::EINTR), Err(Some(libc::EINTR)));
    }

    // Claim: Queries of generic netlink, its families and multicast groups; answers and refusals in any datagram.
    // Tests: `netlink_socket::acknowledgements_and_refusals_are_told_apart`, `netlink_socket::any_datagram_ends`,
    // `generic_netlink::a_multicast_group_is_found_by_its_name`, `generic_netlink::the_kernel_describes_its_controller`
    #[test]
    fn a_datagram_has_several_messages_padded_to_words() {
        let [one, two] = [5, 8].map(|len| Request { kind: 99, flags: 0, payload: vec![1; len] }.to_bytes(0, 1));
        let datagram = [one, two].concat();
        let lens: Vec<usize> = messages(&datagram).map(|message| message.unwrap().payload().len()).collect();
        assert_eq!(lens, [5, 8]);
        assert!(matches!(messages(&datagram[..datagram.len() - 1]).last(), Some(Err(NetlinkSocketError::Invalid))));
    }

    proptest! {
        #[test]
        fn any_datagram_ends(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(messages(&bytes).count() <= bytes.len());
        }
    }
}
