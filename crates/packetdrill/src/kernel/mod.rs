//! The machine under test: Holdover's endpoint in virtual time, within a kernel's socket layer.
//!
//! Only [`Kernel::advance`] advances time. Outgoing packets are queued with the time at which they were sent.

mod attempt;
mod call;
mod chronograph;
mod fast_open;
mod offload;
mod options;
mod receive;
mod route;
mod send;
mod send_buffers;
mod socket;
mod socket_options;

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_tcp::{Config, Connection, ConnectionId, EcnFeedback, Endpoint, EndpointConfig, Event, Profile, State};
use holdover_wire::{Flags, IcmpError, Packet, Payload, Unreachable};

use crate::report::IpVersion;
use crate::settings::Settings;
pub(crate) use attempt::{Attempt, Progress, Returned};
pub(crate) use chronograph::BusyTimes;
use chronograph::Chronograph;
use offload::mark_bursts;
use route::Routes;
pub(crate) use send::is_fast_open;
use send_buffers::SendBuffers;
use socket::{Role, Socket};

/// The step limit, beyond which a script is stopped.
const MAX_STEPS: u64 = 2_000_000;

/// The port of the socket under test, as in packetdrill.
const LOCAL_PORT: u16 = 8080;

pub(crate) struct Kernel {
    now: Instant,
    endpoint: Endpoint,
    settings: Settings,
    profile: Option<Profile>,
    addresses: Addresses,
    sockets: BTreeMap<i64, Socket>,
    outbox: VecDeque<(Instant, Packet)>,
    /// A connection's pending ICMP error, until it is read.
    soft_errors: BTreeMap<ConnectionId, &'static str>,
    chronographs: BTreeMap<ConnectionId, Chronograph>,
    send_buffers: BTreeMap<ConnectionId, SendBuffers>,
    routes: Routes,
    /// Whether the script sees single segments of bursts.
    shows_bursts: bool,
    steps: u64,
}

/// The addresses of both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) version: IpVersion,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl Addresses {
    /// packetdrill's defaults, unless the script sets others.
    pub(crate) fn new(version: IpVersion, local: Option<IpAddr>, remote: Option<IpAddr>) -> Self {
        let (default_local, default_remote) = match version {
            IpVersion::V6 => {
                let local = core::net::Ipv6Addr::new(0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1);
                let remote = core::net::Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 1);
                (IpAddr::V6(local), IpAddr::V6(remote))
            }
            IpVersion::V4 | IpVersion::V4Mapped => (IpAddr::from([192, 168, 0, 1]), IpAddr::from([192, 0, 2, 1])),
        };
        let same_family = |address: &IpAddr| address.is_ipv6() == default_local.is_ipv6();
        let local = local.filter(same_family).unwrap_or(default_local);
        let remote = remote.filter(same_family).unwrap_or(default_remote);
        Self { version, local: SocketAddr::new(local, LOCAL_PORT), remote: SocketAddr::new(remote, LOCAL_PORT) }
    }
}

impl Kernel {
    pub(crate) fn new(now: Instant, addresses: Addresses, settings: Settings, profile: Option<Profile>) -> Self {
        let config = EndpointConfig { addresses: vec![addresses.local.ip()], secret: *b"packet scripts.." };
        let routes = Routes::new(settings.mtu());
        let mut kernel = Self {
            now,
            endpoint: Endpoint::new(config),
            settings,
            profile,
            addresses,
            sockets: BTreeMap::new(),
            outbox: VecDeque::new(),
            soft_errors: BTreeMap::new(),
            chronographs: BTreeMap::new(),
            send_buffers: BTreeMap::new(),
            routes,
            shows_bursts: false,
            steps: 0,
        };
        kernel.apply_settings();
        kernel
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses
    }

    pub(crate) fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// The script sees single segments as the device sends them (`--strict_segments`).
    pub(crate) fn show_bursts(&mut self) {
        self.shows_bursts = true;
    }

    /// Whether a script sees the segments of a burst: the device does not cut it up, or cannot.
    fn shows_bursts_of(&self, connection: &Connection) -> bool {
        self.shows_bursts || self.settings.no_offload || connection.ecn_feedback() == EcnFeedback::Accurate
    }

    /// Whether the script exceeded the step limit.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps >= MAX_STEPS
    }

    /// Handles an incoming packet. No socket has a key, and so a signed segment is dropped (Linux `tcp_inbound_hash`).
    pub(crate) fn receive(&mut self, packet: &Packet) {
        if !packet.tcp().is_some_and(|segment| segment.options.is_signed) {
            self.endpoint.handle_packet(self.now, packet);
        }
        self.settle();
    }

    /// Handles an incoming ICMP error about a segment of the connection between these two.
    pub(crate) fn receive_icmp(&mut self, packet: &Packet, error: &IcmpError, local: SocketAddr, remote: SocketAddr) {
        let quoted = self.find(local, remote).filter(|&id| self.may_be_quoted(id, error));
        if let Some((id, errno)) = quoted.zip(errno_of(error.kind)) {
            self.soft_errors.insert(id, errno);
        }
        self.receive(packet);
        if let Some(id) = quoted {
            self.note_reported_mtu(id, error);
        }
    }

    /// Whether an ICMP error quotes a segment that a connection can have sent; Linux ignores all others.
    fn may_be_quoted(&self, id: ConnectionId, error: &IcmpError) -> bool {
        let Some(connection) = self.endpoint.connection(id) else { return false };
        error.quoted_tcp().is_ok_and(|quoted| connection.may_be_quoted(quoted.seq))
    }

    /// Takes the next outgoing packet, with the time at which it was sent.
    pub(crate) fn take_sent(&mut self) -> Option<(Instant, Packet)> {
        self.outbox.pop_front()
    }

    /// Returns a packet to the front of the outgoing queue.
    pub(crate) fn put_back(&mut self, at: Instant, packet: Packet) {
        self.outbox.push_front((at, packet));
    }

    /// The addresses of both ends of a socket's connection.
    pub(crate) fn addresses_of(&self, fd: i64) -> Option<(SocketAddr, SocketAddr)> {
        let connection = self.endpoint.connection(self.sockets.get(&fd)?.connection()?)?;
        Some((connection.local(), connection.remote()))
    }

    /// Whether a socket has no connection and does not listen.
    pub(crate) fn is_unconnected(&self, fd: i64) -> bool {
        self.sockets.get(&fd).is_some_and(|socket| matches!(socket.role, Role::Fresh { .. }))
    }

    /// Advances time to the next deadline, at most to `until`. Returns whether there was one.
    pub(crate) fn step(&mut self, until: Instant) -> bool {
        match self.endpoint.poll_timeout().filter(|&at| at <= until && !self.is_exhausted()) {
            Some(at) => {
                self.steps += 1;
                self.now = self.now.max(at);
                self.endpoint.handle_timeout(self.now);
                self.settle();
                true
            }
            None => {
                self.now = self.now.max(until);
                false
            }
        }
    }

    /// Sends segments and handles events until nothing more happens at the current time.
    fn settle(&mut self) {
        self.follow_routes();
        while !self.is_exhausted() {
            let mut quiet = true;
            while let Some((id, event)) = self.endpoint.poll_event() {
                self.steps += 1;
                quiet = false;
                match event {
                    Event::Connected => {
                        self.take_reported_mtu(id);
                        self.enqueue(id);
                    }
                    Event::PeerClosed => {
                        let of = self.sockets.values_mut().find(|socket| socket.connection() == Some(id));
                        of.into_iter().for_each(|socket| socket.peer_closed = true);
                    }
                    _ => {}
                }
            }
            quiet &= !self.transmit(usize::MAX);
            if quiet {
                break;
            }
        }
        for (id, connection) in self.endpoint.connections() {
            let chronograph = self.chronographs.entry(id).or_insert_with(|| Chronograph::new(self.now));
            chronograph.note(self.now, connection);
        }
    }

    /// Sends pending packets, at most `most`. Returns whether there were any.
    fn transmit(&mut self, most: usize) -> bool {
        let mut burst = None;
        let mut sent = 0;
        while sent < most && !self.is_exhausted() {
            let Some(outgoing) = self.endpoint.poll_transmit(self.now) else { break };
            self.steps += 1;
            sent += 1;
            let mut packet = outgoing.packet;
            if let Some(id) = outgoing.connection {
                self.routes.note_sent(id);
                self.mark_pushed(id, &mut packet);
                if let Some(connection) = self.endpoint.connection(id).filter(|c| self.shows_bursts_of(c)) {
                    let len = packet.tcp().map_or(0, |segment| segment.payload.len());
                    let sent = Some((id, connection, outgoing.reason, len));
                    mark_bursts(&mut burst, sent, self.settings.least_burst, &mut self.outbox);
                }
            }
            if let Some(socket) = outgoing.connection.and_then(|id| self.socket_of(id)) {
                // The two lowest bits belong to ECN, for any IP_TOS.
                packet.traffic_class = socket.options.tos & !3 | packet.traffic_class & 3;
                packet.ttl = socket.options.ttl.unwrap_or(packet.ttl);
            }
            self.outbox.push_back((self.now, packet));
        }
        mark_bursts(&mut burst, None, self.settings.least_burst, &mut self.outbox);
        sent > 0
    }

    /// Sets PSH where Linux has pushed queued data. A burst of several segments grows beyond that (`tcp_grow_skb`) and has its own.
    fn mark_pushed(&self, id: ConnectionId, packet: &mut Packet) {
        let is_single = |connection: &Connection| connection.cwnd() <= 3 || connection.in_flight() >= connection.cwnd();
        if let Some(buffers) = self.send_buffers.get(&id)
            && self.endpoint.connection(id).is_some_and(is_single)
            && let Payload::Tcp(segment) = &mut packet.payload
            && !segment.payload.is_empty()
            && buffers.is_pushed_at(segment.seq + segment.payload.len() as u32)
        {
            segment.flags |= Flags::PSH;
        }
    }

    /// How long a connection had something to send or outstanding, and what held it back.
    pub(crate) fn busy_times(&self, id: ConnectionId) -> BusyTimes {
        self.chronographs.get(&id).map_or_else(BusyTimes::default, |chronograph| chronograph.times(self.now))
    }

    /// Queues an incoming connection for `accept`.
    fn enqueue(&mut self, id: ConnectionId) {
        let Some(connection) = self.endpoint.connection_mut(id).filter(|connection| connection.is_passive()) else {
            return;
        };
        let port = connection.local().port();
        for socket in self.sockets.values_mut() {
            if let Role::Listener { port: listened, queue } = &mut socket.role
                && *listened == port
            {
                connection.set_queued(true);
                queue.push_back(id);
                return;
            }
        }
    }

    /// The connection between two addresses, including closed ones.
    pub(crate) fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<ConnectionId> {
        let mut all = self.endpoint.connections();
        let found = all.find(|(_, connection)| connection.local() == local && connection.remote() == remote);
        found.map(|(id, _)| id)
    }

    pub(crate) fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.endpoint.connection(id)
    }

    fn socket_of(&self, id: ConnectionId) -> Option<&Socket> {
        self.sockets.values().find(|socket| socket.connection() == Some(id))
    }

    /// The configuration of this socket's connections.
    fn config_for(&self, socket: &Socket) -> Result<Arc<Config>, String> {
        let mut settings = self.settings.clone();
        if let Some(name) = &socket.options.congestion_control {
            settings.congestion_control.clone_from(name);
        }
        let is_ipv6 = self.addresses.version == IpVersion::V6;
        let mut config = settings.config(self.profile, is_ipv6)?;
        socket.options.apply(&mut config, &settings);
        Ok(Arc::new(config))
    }

    /// The connection's state as in `TCP_INFO`.
    pub(crate) fn tcp_state(connection: &Connection) -> i64 {
        match connection.state() {
            State::Established => 1,
            State::SynSent => 2,
            State::SynReceived => 3,
            State::FinWait1 => 4,
            State::FinWait2 => 5,
            State::TimeWait => 6,
            State::Closed => 7,
            State::CloseWait => 8,
            State::LastAck => 9,
            State::Closing => 11,
        }
    }

    /// The longest time that a call may block before the script fails.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
}

/// The errno of an ICMP error (Linux `icmp_err_convert`).
fn errno_of(kind: Unreachable) -> Option<&'static str> {
    Some(match kind {
        Unreachable::Network => "ENETUNREACH",
        Unreachable::Host | Unreachable::TimeExceeded { .. } | Unreachable::AdministrativelyProhibited => {
            "EHOSTUNREACH"
        }
        Unreachable::Protocol => "ENOPROTOOPT",
        Unreachable::Port => "ECONNREFUSED",
        Unreachable::ParameterProblem { .. } => "EPROTO",
        Unreachable::Other { code: 6 | 9 } => "ENETUNREACH",
        Unreachable::Other { code: 5 } => "EOPNOTSUPP",
        Unreachable::Other { .. } => "EHOSTUNREACH",
        Unreachable::PacketTooBig { .. } | Unreachable::BadState => return None,
    })
}
