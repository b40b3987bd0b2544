//! Requests to the kernel by `rtnetlink(7)`, and their answers.

use std::io;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkDeserializable as _,
    NetlinkHeader, NetlinkMessage, Parseable as _,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// A socket for requests. It may be used from any thread: it stays in the namespace in which it was opened.
pub struct Requests {
    socket: Socket,
    sequence: u32,
}

/// The kernel answers at once. Without an answer after this time, it was lost.
const TIMEOUT: Duration = Duration::from_secs(10);

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl Requests {
    /// In the network namespace of the calling thread.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends one request and collects the answer. Messages of unknown types are left out.
    ///
    /// # Errors
    /// The kernel refuses, does not answer, or the socket fails.
    pub fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut answers = Vec::new();
        self.exchange(message, flags, |header, payload| {
            answers.extend(RouteNetlinkMessage::deserialize(header, payload).ok());
        })?;
        Ok(answers)
    }

    /// Sends one request and calls `handle` with the header and the payload of each message of its answer, up to its
    /// end: of a dump the last message, else the acknowledgement, which is always requested.
    ///
    /// # Errors
    /// As of [`request`](Self::request).
    pub fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        mut answer: impl FnMut(&NetlinkHeader, &[u8]),
    ) -> io::Result<()> {
        self.send(message, if flags & NLM_F_DUMP == NLM_F_DUMP { flags } else { flags | NLM_F_ACK })?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while let Some((message, next)) = split(rest) {
                rest = next;
                // Skips the remains of a request that failed half-way.
                if message.sequence_number() != self.sequence {
                    continue;
                }
                match message.message_type() {
                    NLMSG_DONE | NLMSG_ERROR => {
                        let code = message.payload().first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                        return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
                    }
                    _ => {
                        if let Ok(header) = NetlinkHeader::parse(&message) {
                            answer(&header, message.payload());
                        }
                    }
                }
            }
        }
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&serialize(message, NLM_F_REQUEST | flags, self.sequence), 0).map(drop)
    }
}

/// The bytes of one message.
pub(crate) fn serialize(message: RouteNetlinkMessage, flags: u16, sequence: u32) -> Vec<u8> {
    let mut message = NetlinkMessage::from(message);
    message.header.flags = flags;
    message.header.sequence_number = sequence;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// The first message of a datagram, and the rest. Each message begins with its length and is padded to a multiple of 4;
/// an invalid one ends the datagram, as the next one cannot be found.
fn split(datagram: &[u8]) -> Option<(NetlinkBuffer<&[u8]>, &[u8])> {
    let message = NetlinkBuffer::new_checked(datagram).ok()?;
    let length = (message.length() as usize).next_multiple_of(4);
    Some((message, datagram.get(length..).unwrap_or(&[])))
}

/// The known messages of one datagram.
pub fn messages(mut datagram: &[u8]) -> impl Iterator<Item = NetlinkMessage<RouteNetlinkMessage>> {
    std::iter::from_fn(move || {
        loop {
            let (message, rest) = split(datagram)?;
            datagram = rest;
            // Ignore messages of unknown types.
            if let Ok(message) = NetlinkMessage::deserialize(message.into_inner()) {
                return Some(message);
            }
        }
    })
}
