//! Requests to the kernel by `rtnetlink(7)`, and their answers.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable as _, NetlinkHeader, NetlinkMessage,
};
use netlink_packet_route::RouteNetlinkMessage;

use crate::netlink_socket::{NETLINK_ROUTE, NetlinkSocket, split};

/// A socket for requests. It may be used from any thread: it stays in the namespace in which it was opened.
#[derive(Debug)]
pub struct Requests(NetlinkSocket);

impl Requests {
    /// In the network namespace of the calling thread.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open() -> io::Result<Self> {
        NetlinkSocket::open(NETLINK_ROUTE).map(Self)
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

    /// Sends one request and calls `answer` with the header and the payload of each message of its answer, up to its
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
        let flags = NLM_F_REQUEST | if flags & NLM_F_DUMP == NLM_F_DUMP { flags } else { flags | NLM_F_ACK };
        Ok(self.0.exchange(|sequence| serialize(message, flags, sequence), &mut answer)?)
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

/// The known messages of one datagram. An invalid one ends it.
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
