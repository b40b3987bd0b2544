//! A netlink socket for requests that the kernel answers at once (`rtnetlink(7)`): about routes and neighbours, see
//! `route`.

use std::io;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::netlink::messages;

/// A socket for requests that the kernel answers at once.
pub struct Neighbours {
    socket: Socket,
    sequence: u32,
}

impl Neighbours {
    /// In the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no such socket for this process.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The answer is there when the request has been sent.
        socket.set_non_blocking(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends one request and reads its answer.
    pub(super) fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut answers = messages(&datagram);
            // What is left of a request that failed half-way is passed over.
            let Some(answer) = answers.find(|answer| answer.header.sequence_number == self.sequence) else { continue };
            return match answer.payload {
                NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
                NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
                _ => Ok(None),
            };
        }
    }
}
