//! The **bandwidth module**, which the paper leaves open ("a fixed amount for each connection, recomputed periodically"): packets to one
//! mobile host leave at a given rate, and its connections take turns, one packet each. So each connection with packets gets the same number
//! of packets, and those that others leave unused; shares are updated with every packet instead of periodically.
//!
//! The half that made a packet regards it as sent while it waits here. Packets are discarded when the connection freezes, as they would be
//! lost.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use holdover_base::{BitRate, ByteCount, Instant};
use holdover_filter::Connection;
use holdover_wire::{Compression, Packet};

/// Packets waiting for each mobile host.
#[derive(Debug)]
pub(super) struct Bandwidth {
    rate: BitRate,
    compression: Option<Compression>,
    hosts: BTreeMap<IpAddr, Host>,
}

#[derive(Debug)]
struct Host {
    /// When the next packet may be sent.
    free_at: Instant,
    /// None of the queues is empty.
    queues: BTreeMap<Connection, VecDeque<Packet>>,
    /// The connection of the last packet.
    last: Option<Connection>,
}

/// With this many mobile hosts, those without packets are removed.
const MOST_IDLE: usize = 1_000;

impl Bandwidth {
    pub(super) fn new(rate: BitRate, compression: Option<Compression>) -> Self {
        Self { rate, compression, hosts: BTreeMap::new() }
    }

    /// Queues a packet for a mobile host.
    pub(super) fn push(&mut self, now: Instant, connection: Connection, packet: Packet) {
        if self.hosts.len() >= MOST_IDLE {
            self.hosts.retain(|_, host| !host.queues.is_empty() || host.free_at > now);
        }
        let fresh = || Host { free_at: Instant::ZERO, queues: BTreeMap::new(), last: None };
        let host = self.hosts.entry(connection.mobile().ip()).or_insert_with(fresh);
        host.queues.entry(connection).or_default().push_back(packet);
    }

    /// The next packet whose turn has come.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Packet> {
        let is_due = |host: &&mut Host| host.free_at <= now && !host.queues.is_empty();
        let host = self.hosts.values_mut().find(is_due)?;
        let after =
            host.last.and_then(|last| host.queues.range(last..).map(|(next, _)| *next).find(|next| *next > last));
        let turn = after.or_else(|| host.queues.keys().next().copied())?;
        let queue = host.queues.get_mut(&turn)?;
        let packet = queue.pop_front()?;
        if queue.is_empty() {
            host.queues.remove(&turn);
        }
        host.last = Some(turn);
        let saved = self.compression.map_or(0, |compression| compression.saved(&packet));
        host.free_at = now + self.rate.transmission_time(ByteCount((packet.wire_len() - saved) as u64));
        Some(packet)
    }

    /// Discards the packets of a connection.
    pub(super) fn discard(&mut self, connection: Connection) {
        if let Some(host) = self.hosts.get_mut(&connection.mobile().ip()) {
            host.queues.remove(&connection);
        }
    }

    /// When the next packet may be sent.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.hosts.values().filter(|host| !host.queues.is_empty()).map(|host| host.free_at).min()
    }
}
