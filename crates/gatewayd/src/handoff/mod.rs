//! Handoff between gateways: buffered packets of a mobile host are sent to the gateway that it has moved to. The
//! gateway that hears a new mobile host *claims* it ([`protocol`]); datagrams are encrypted and authenticated with a key
//! shared by the gateways ([`sealed`]). Records of its connections are sent as well ([`records`]).

pub(crate) mod message;
pub(crate) mod protocol;
pub(crate) mod records;
mod sealed;
mod transfer;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use holdover_base::Instant;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::cluster::{Admission, Epoch};
use crate::config::HandoffTable;
use crate::presence::SecretError;
use message::{Body, Message};
pub(crate) use protocol::Event;
use protocol::{Protocol, Transfer};
use records::Part;
use sealed::{OVERHEAD, Opened, SESSION, Seal};

/// Handoff counters since the start of the process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct HandoffCounters {
    /// Answered claims of other gateways, including those without packets.
    pub left: u64,
    /// Completed handoffs from other gateways; each peer counts, even without packets.
    pub came: u64,
    /// Packets sent to other gateways.
    pub packets_left: u64,
    /// Packets that waited for mobile hosts of other gateways, and were dropped by `[handoff] waiting = "drop"`.
    #[serde(default)]
    pub packets_dropped: u64,
    /// Packets received from other gateways.
    pub packets_came: u64,
    /// Gateways that did not answer, or stopped answering.
    pub lost: u64,
    /// Packets sent to gateways that have not confirmed them, and do not answer any more.
    #[serde(default)]
    pub packets_lost: u64,
    /// Connections whose records were sent to other gateways.
    #[serde(default)]
    pub connections_left: u64,
    /// Connections known by records of other gateways.
    #[serde(default)]
    pub connections_came: u64,
    /// Connections whose records were never confirmed, for which there was no room, or that came too late to follow their mobile host.
    #[serde(default)]
    pub connections_lost: u64,
    /// Datagrams that are not authentic.
    pub forged: u64,
    /// Duplicate datagrams.
    pub replayed: u64,
    /// Datagrams for another process than this one.
    pub stale: u64,
}

/// The socket, and the state machines.
pub(crate) struct Handoff {
    socket: UdpSocket,
    seal: Seal,
    protocol: Protocol,
    peers: Vec<SocketAddr>,
    /// The known sessions of peers.
    sessions: BTreeMap<SocketAddr, [u8; SESSION]>,
    counters: HandoffCounters,
}

/// Transfers between gateways.
pub(crate) trait Transfers {
    /// Whether the packets of a mobile host go to another gateway.
    fn is_leaving(&self, mobile: IpAddr) -> bool;
    /// Whether packets of a mobile host may still arrive from another gateway.
    fn is_arriving(&self, mobile: IpAddr) -> bool;
    /// All packets of a mobile host that has moved were sent.
    fn end(&mut self, now: Instant, mobile: IpAddr);
    /// Packets wait here for a mobile host of a peer.
    fn offer(&mut self, mobile: IpAddr, epoch: Epoch, peer: SocketAddr);
    /// A broadcast of a peer's mobile host was heard here: is the mobile host still there?
    fn inquire(&mut self, mobile: IpAddr, peer: SocketAddr);
}

/// Datagrams handled before other work gets its turn.
const BATCH: usize = 64;

/// The longest UDP datagram over IPv4.
const LONGEST: usize = 65_507;

/// The longest packet that can be sent, with its offload header.
pub(crate) const LONGEST_PACKET: usize = LONGEST - OVERHEAD - 64;

/// The socket's buffer, in bytes.
const ROOM: usize = 4 << 20;

impl Handoff {
    /// `None` if it is not configured. With `wants_records` it asks other gateways for records of connections.
    pub(crate) fn open(config: &HandoffTable, wants_records: bool) -> Result<Option<Self>, SecretError> {
        let (Some(address), Some(file)) = (config.listen, &config.key_file) else { return Ok(None) };
        let key = read_key(file)?;
        let listen = |source| SecretError::Listen { section: "[handoff]", address, source };
        let bind = || {
            let socket = UdpSocket::bind(address)?;
            socket.set_nonblocking(true)?;
            // Without CAP_NET_ADMIN the buffer is smaller, and more is retransmitted.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, ROOM);
            Ok(socket)
        };
        let socket = bind().map_err(listen)?;
        let mut session = [0; SESSION];
        let filled = getrandom(&mut session[..], GetRandomFlags::empty()).map_err(|errno| listen(errno.into()))?;
        let seal = Seal::new(&key, session).filter(|_| filled == SESSION);
        let seal = seal.ok_or_else(|| listen(io::ErrorKind::InvalidInput.into()))?;
        let peers = config.peers.clone();
        let mut protocol = Protocol::new(peers.clone());
        if wants_records {
            protocol.want_records();
        }
        let counters = HandoffCounters::default();
        let mut handoff = Self { socket, seal, protocol, peers, sessions: BTreeMap::new(), counters };
        for peer in handoff.peers.clone() {
            handoff.greet(peer);
        }
        Ok(Some(handoff))
    }

    /// Replaces the peers by the gateways of the cluster.
    pub(crate) fn set_peers(&mut self, others: impl Iterator<Item = SocketAddr>) {
        let mut peers: Vec<SocketAddr> = others.collect();
        peers.sort_unstable();
        peers.dedup();
        let former = std::mem::replace(&mut self.peers, peers.clone());
        self.sessions.retain(|peer, _| peers.contains(peer));
        self.protocol.set_peers(peers.clone());
        peers.into_iter().filter(|peer| !former.contains(peer)).for_each(|peer| self.greet(peer));
    }

    /// The answer contains the peer's session, before it is needed.
    fn greet(&mut self, peer: SocketAddr) {
        self.send(peer, b"");
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn counters(&self) -> HandoffCounters {
        self.counters
    }

    /// A mobile host has appeared here, and may have been at any other gateway.
    pub(crate) fn claim_from_all(&mut self, now: Instant, mobile: IpAddr) {
        self.protocol.claim(now, mobile, Epoch::default(), &self.peers.clone());
        self.flush();
    }

    /// This gateway owns a mobile host, and packets wait at a peer.
    pub(crate) fn claim(&mut self, now: Instant, mobile: IpAddr, epoch: Epoch, peer: SocketAddr) {
        self.protocol.claim(now, mobile, epoch, &[peer]);
        self.flush();
    }

    /// The mobile host of a peer's inquiry is not here.
    pub(crate) fn answer_inquiry(&mut self, mobile: IpAddr, peer: SocketAddr) {
        self.protocol.answer_inquiry(mobile, peer);
        self.flush();
    }

    /// Gives up all transfers to other gateways. Returns the packets of each mobile host that were not confirmed.
    pub(crate) fn take_unconfirmed(&mut self) -> BTreeMap<IpAddr, Vec<Vec<u8>>> {
        self.protocol.take_unconfirmed()
    }

    /// Sends a packet, preceded by its offload header. Returns whether there was room.
    pub(crate) fn hand_on(&mut self, now: Instant, mobile: IpAddr, bytes: Vec<u8>) -> bool {
        let has_room = self.protocol.hand_on(now, mobile, bytes);
        self.counters.packets_left += u64::from(has_room);
        self.flush();
        has_room
    }

    /// So many packets for a mobile host that another gateway has claimed were dropped by policy.
    pub(crate) fn note_dropped(&mut self, packets: u64) {
        self.counters.packets_dropped += packets;
    }

    /// Sends records of the connections of a mobile host that another gateway has claimed, `count` of them.
    pub(crate) fn send_records(&mut self, now: Instant, transfer: Transfer, parts: Vec<Part>, count: usize) {
        self.counters.connections_left += count as u64;
        self.protocol.send_records(now, transfer, parts);
        self.flush();
    }

    /// Records have come late for a mobile host that another gateway has claimed since.
    pub(crate) fn pass_records_on(&mut self, now: Instant, mobile: IpAddr, bytes: Vec<u8>) {
        self.protocol.pass_records_on(now, mobile, bytes);
        self.flush();
    }

    /// Connections are known by their records.
    pub(crate) fn note_taken_in(&mut self, connections: u64) {
        self.counters.connections_came += connections;
    }

    /// Whether other gateways have confirmed everything that was sent to them.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.protocol.unconfirmed() == 0 && !self.protocol.are_records_under_way()
    }

    /// Reads pending datagrams. `admit` decides about claims.
    pub(crate) fn handle_ready(&mut self, now: Instant, admit: &mut dyn FnMut(IpAddr, Epoch, SocketAddr) -> Admission) {
        let mut buffer = vec![0; LONGEST];
        for _ in 0..BATCH {
            match self.socket.recv_from(&mut buffer) {
                Ok((len, from)) => self.handle_datagram(now, from, &buffer[..len], admit),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // ICMP errors about an absent peer are reported here, too.
                Err(_) => {}
            }
        }
        self.flush();
    }

    fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        admit: &mut dyn FnMut(IpAddr, Epoch, SocketAddr) -> Admission,
    ) {
        if !self.peers.contains(&from) {
            self.counters.forged += 1;
            return;
        }
        match self.seal.open(datagram) {
            Opened::Message { session, message } => {
                let former = self.sessions.insert(from, session);
                if former != Some(session) {
                    self.protocol.handle_new_session(now, from);
                    if message.is_empty() {
                        // The sender learns this process's session, if it does not know it.
                        self.send(from, b"");
                    }
                }
                match Message::from_bytes(&message) {
                    Some(message) => {
                        let admission = match message.body {
                            Body::Claim { epoch, .. } => admit(message.mobile, epoch, from),
                            _ => Admission::Admitted,
                        };
                        match admission {
                            Admission::Admitted => self.protocol.handle_message(now, from, message),
                            Admission::Stale { known } => self.protocol.refuse(from, message.id, message.mobile, known),
                            Admission::Undecided => {}
                        }
                    }
                    None if message.is_empty() => {}
                    None => self.counters.forged += 1,
                }
            }
            Opened::Stale { session } => {
                self.counters.stale += 1;
                let datagram = self.seal.seal(&session, b"");
                let _ = self.socket.send_to(&datagram, from);
            }
            Opened::Replayed => self.counters.replayed += 1,
            Opened::Forged => self.counters.forged += 1,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.protocol.handle_timeout(now);
        self.flush();
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.protocol.poll_timeout()
    }

    /// The next event for the engine.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        let event = self.protocol.poll_event()?;
        match &event {
            Event::Claimed { .. } => self.counters.left += 1,
            Event::Packet { .. } => self.counters.packets_came += 1,
            Event::Done { .. } => self.counters.came += 1,
            Event::Lost { packets, .. } => {
                self.counters.lost += 1;
                self.counters.packets_lost += u64::from(*packets);
            }
            Event::RecordsLost { records, .. } => self.counters.connections_lost += u64::from(*records),
            Event::RecordsWanted { .. }
            | Event::Records { .. }
            | Event::Offered { .. }
            | Event::Refused { .. }
            | Event::Inquired { .. }
            | Event::NotThere { .. } => {}
        }
        Some(event)
    }

    fn flush(&mut self) {
        while let Some((peer, message)) = self.protocol.poll_transmit() {
            self.send(peer, &message.to_bytes());
        }
    }

    /// Unsent messages are repeated.
    fn send(&mut self, peer: SocketAddr, message: &[u8]) {
        let session = self.sessions.get(&peer).copied().unwrap_or([0; SESSION]);
        let datagram = self.seal.seal(&session, message);
        let _ = self.socket.send_to(&datagram, peer);
    }
}

impl Transfers for Handoff {
    fn is_leaving(&self, mobile: IpAddr) -> bool {
        self.protocol.is_leaving(mobile)
    }

    fn is_arriving(&self, mobile: IpAddr) -> bool {
        self.protocol.is_arriving(mobile)
    }

    fn end(&mut self, now: Instant, mobile: IpAddr) {
        self.protocol.end(now, mobile);
        self.flush();
    }

    fn offer(&mut self, mobile: IpAddr, epoch: Epoch, peer: SocketAddr) {
        self.protocol.offer(mobile, epoch, peer);
        self.flush();
    }

    fn inquire(&mut self, mobile: IpAddr, peer: SocketAddr) {
        self.protocol.inquire(mobile, peer);
        self.flush();
    }
}

impl std::fmt::Debug for Handoff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handoff").field("peers", &self.peers).field("counters", &self.counters).finish_non_exhaustive()
    }
}

/// Reads a key: a line of hexadecimal digits.
fn read_key(file: &Path) -> Result<Vec<u8>, SecretError> {
    let text =
        std::fs::read_to_string(file).map_err(|source| SecretError::Unreadable { file: file.to_owned(), source })?;
    let digit = |byte: u8| (byte as char).to_digit(16);
    let pair = |pair: &[u8]| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    };
    let key: Option<Vec<u8>> = text.trim().as_bytes().chunks(2).map(pair).collect();
    key.filter(|key| (32..=64).contains(&key.len())).ok_or_else(|| SecretError::SharedKey { file: file.to_owned() })
}

#[cfg(test)]
mod tests;
