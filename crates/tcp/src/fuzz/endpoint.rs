//! Hostile packets against a whole endpoint: listeners, connections, and unused addresses.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, IcmpError, Packet, Payload, Segment, Seq};

use super::hostile::{syn_options, unreachable};
use super::input::Input;
use super::{MOST_SEGMENTS, check, stream};
use crate::config::Config;
use crate::connection::Event;
use crate::counters::Reason;
use crate::endpoint::{ConnectionId, Endpoint, EndpointConfig};

const HERE: [u8; 4] = [10, 0, 0, 1];
/// Packets of the endpoint's that are remembered, to be answered and quoted.
const MOST_REMEMBERED: usize = 32;

/// Runs the program in `data` against one endpoint. For any packets nothing panics, the bookkeeping is consistent, one packet is answered
/// by at most two without data, and no deadline stays in the past; when all connections have ended, no state is left.
pub fn hostile_packets(data: &[u8]) {
    let mut input = Input::new(data);
    let mut host = Host::new(&mut input);
    while !input.is_empty() {
        host.operate(&mut input);
        host.endpoint.assert_invariants();
        host.endpoint.connections().for_each(|(_, connection)| check(connection));
    }
    host.leave();
}

struct Host {
    now: Instant,
    endpoint: Endpoint,
    config: Arc<Config>,
    /// Connections that the owner knows of.
    ids: Vec<ConnectionId>,
    sent: VecDeque<Packet>,
}

impl Host {
    fn new(input: &mut Input<'_>) -> Self {
        let patient = input.flag();
        let config = Arc::new(input.config(patient));
        let mut endpoint = Endpoint::new(EndpointConfig { addresses: vec![HERE.into()], secret: [7; 16] });
        endpoint.listen(80, Arc::clone(&config), 3).expect("the port is free");
        Self { now: Instant::from_secs(1), endpoint, config, ids: Vec::new(), sent: VecDeque::new() }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        match input.byte() {
            0..10 => {
                let config = Arc::clone(&self.config);
                let local = input.flag().then(|| (HERE, u16::from(input.byte() % 4)).into());
                self.ids.extend(self.endpoint.connect(self.now, config, local, peer(input)));
            }
            10..14 => {
                self.endpoint.unlisten(80);
                if input.flag() {
                    let backlog = usize::from(input.byte() % 4);
                    self.endpoint.listen(80, Arc::clone(&self.config), backlog).expect("the listener was removed");
                }
            }
            14..60 => self.use_one(input),
            60..80 => {
                let span = self.endpoint.poll_timeout().map_or(Duration::ZERO, |at| at.saturating_since(self.now));
                self.advance(span);
            }
            80..86 => self.advance(input.span()),
            86..100 => {
                if let Some(quoted) = self.remembered(input)
                    && let Ok(error) = IcmpError::quoting_packet(unreachable(input), &quoted)
                {
                    self.take(&Packet::new([10, 0, 0, 9].into(), HERE.into(), error));
                }
            }
            100..140 => {
                let segment = stray(input);
                let peer = peer(input);
                self.take(&Packet::new(peer.ip(), HERE.into(), Segment { src_port: peer.port(), ..segment }));
            }
            _ => {
                if let Some(packet) = self.answer(input) {
                    self.take(&packet);
                }
            }
        }
        self.drain();
    }

    /// The application, or the owner, of one connection.
    fn use_one(&mut self, input: &mut Input<'_>) {
        let Some(&id) = self.ids.get(usize::from(input.byte()) % self.ids.len().max(1)) else { return };
        let now = self.now;
        let Some(connection) = self.endpoint.connection_mut(id) else { return };
        match input.byte() % 16 {
            0..4 => {
                connection.write(now, stream(0, input.len()));
            }
            4..7 => while connection.read(now).is_some() {},
            7 => connection.shutdown_write(),
            8 => connection.close(now),
            9 => connection.abort(),
            10..13 => input.verb(now, connection),
            _ => {
                if let Some(closed) = self.endpoint.release(id) {
                    assert!(closed.is_closed());
                    self.ids.retain(|&other| other != id);
                }
            }
        }
    }

    fn advance(&mut self, span: Duration) {
        self.now += span;
        // Each connection takes a round for each of its timers at most.
        for _ in 0..16 {
            self.endpoint.handle_timeout(self.now);
            self.drain();
            if self.endpoint.poll_timeout().is_none_or(|at| at > self.now) {
                return;
            }
        }
        panic!("a deadline stays in the past: {:?} at {}", self.endpoint.poll_timeout(), self.now);
    }

    fn take(&mut self, packet: &Packet) {
        self.drain();
        self.endpoint.handle_packet(self.now, packet);
        let answers = self.drain();
        assert!(answers <= 2, "{answers} answers without data to {packet}");
    }

    /// Sends everything; returns how many of them carry nothing.
    fn drain(&mut self) -> usize {
        let (mut all, mut bare) = (0, 0);
        while let Some(outgoing) = self.endpoint.poll_transmit(self.now) {
            all += 1;
            assert!(all < MOST_SEGMENTS, "sending never ends");
            if let Payload::Tcp(segment) = &outgoing.packet.payload {
                bare += usize::from(segment.seq_len() == 0 && outgoing.reason != Reason::RequestedAck);
            }
            self.sent.push_back(outgoing.packet);
            if self.sent.len() > MOST_REMEMBERED {
                self.sent.pop_front();
            }
        }
        while let Some((id, event)) = self.endpoint.poll_event() {
            if event == Event::Connected && !self.ids.contains(&id) {
                self.ids.push(id);
            }
        }
        bare
    }

    fn remembered(&self, input: &mut Input<'_>) -> Option<Packet> {
        let back = usize::from(input.byte()) % self.sent.len().max(1);
        self.sent.iter().rev().nth(back).cloned()
    }

    /// An answer to something that the endpoint has sent, right or wrong.
    fn answer(&self, input: &mut Input<'_>) -> Option<Packet> {
        let to = self.remembered(input)?;
        let Payload::Tcp(sent) = &to.payload else { return None };
        let template = stray(input);
        let seq = if sent.flags.contains(Flags::ACK) { sent.ack } else { template.seq };
        let off = |input: &mut Input<'_>| input.pick(&[0, 0, 0, 0, 0, 0, 1, 1000, 0xffff]);
        let segment = Segment {
            src_port: sent.dst_port,
            dst_port: sent.src_port,
            seq: seq + off(input) - off(input),
            ack: sent.seq + sent.seq_len() + off(input) - off(input),
            ..template
        };
        Some(Packet::new(to.dst, to.src, segment))
    }

    /// Everything ends: every connection is reset and released, known to the owner or not.
    fn leave(&mut self) {
        self.endpoint.unlisten(80);
        let all: Vec<ConnectionId> = self.endpoint.connections().map(|(id, _)| id).collect();
        for &id in &all {
            if let Some(connection) = self.endpoint.connection_mut(id) {
                connection.abort();
            }
        }
        self.drain();
        for id in all {
            self.endpoint.release(id);
        }
        self.endpoint.assert_invariants();
        assert_eq!(self.endpoint.connections().count(), 0, "a connection stays behind");
        // Remaining deadlines belong to no connection, and expire.
        self.advance(Duration::from_secs(1_000_000));
        assert_eq!(self.endpoint.poll_timeout(), None);
    }
}

/// One of a few peers.
fn peer(input: &mut Input<'_>) -> SocketAddr {
    ([10, 0, 0, 2 + input.byte() % 2], u16::from(input.byte() % 4) * 1000).into()
}

/// A segment that need not belong to any connection.
fn stray(input: &mut Input<'_>) -> Segment {
    let flags = input.pick(&[
        Flags::SYN,
        Flags::SYN,
        Flags::ACK,
        Flags::ACK,
        Flags::SYN | Flags::ACK,
        Flags::ACK | Flags::FIN,
        Flags::RST,
        Flags::RST | Flags::ACK,
        Flags::empty(),
        Flags::all(),
    ]);
    Segment {
        src_port: 0,
        dst_port: input.pick(&[80, 80, 80, 81, 0]),
        seq: Seq::new(input.long()),
        ack: Seq::new(input.long()),
        flags,
        window: input.pick(&[0, 100, 0xffff]),
        urgent: 0,
        options: if input.flag() { syn_options(input) } else { Default::default() },
        payload: if input.flag() { stream(0, input.len().min(1400)) } else { stream(0, 0) },
    }
}
