//! One end of the wireless hop: its TCP on the near side, and a session for each connection.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use holdover_base::{Duration, Instant};
use holdover_filter::{Action, Agenda, Connection, Direction, Injected, LinkEvent, SegmentFilter, Stored, Verdict};
use holdover_tcp::{ConnectionId, Endpoint, Event, reset_for};
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::SrpConfig;
use crate::message::{Flag, Message};
use crate::receiver::Receiver;
use crate::sender::Sender;

/// The session layer at one end of a wireless hop. See the [crate].
///
/// `local` in a [`Connection`] is the near end, at either end of the hop.
#[derive(Debug)]
pub struct Srp {
    config: SrpConfig,
    near: Endpoint,
    owners: BTreeMap<ConnectionId, Connection>,
    sessions: BTreeMap<Connection, Session>,
    agenda: Agenda,
    /// Sessions with pending work.
    touched: BTreeSet<Connection>,
    ended: Ended,
    ready: VecDeque<Injected>,
    actions: VecDeque<Action>,
}

#[derive(Debug)]
struct Session {
    /// The near half, once there is one.
    near: Option<ConnectionId>,
    /// The near host's SYN, until the far end has accepted the connection.
    syn: Option<Packet>,
    /// The far end has requested the connection, and waits for the near host's SYN-ACK.
    owes_accept: bool,
    sender: Sender,
    receiver: Receiver,
    /// Whether the near half was closed after the end of the far direction.
    is_shut: bool,
    /// Its deadline in the agenda.
    due: Option<Instant>,
}

impl Session {
    fn new(config: &SrpConfig) -> Self {
        Self {
            near: None,
            syn: None,
            owes_accept: false,
            sender: Sender::new(config),
            receiver: Receiver::new(config),
            is_shut: false,
            due: None,
        }
    }

    /// Whether both directions have ended, and all their data has arrived.
    fn is_done(&self) -> bool {
        self.sender.is_done() && self.receiver.is_done()
    }
}

impl Srp {
    /// The name in scenario files.
    pub const NAME: &'static str = "srp";

    /// A node without sessions. Initial sequence numbers are derived from `secret`.
    pub fn new(config: SrpConfig, secret: [u8; 16]) -> Self {
        Self {
            config,
            near: Endpoint::for_others(secret),
            owners: BTreeMap::new(),
            sessions: BTreeMap::new(),
            agenda: Agenda::default(),
            touched: BTreeSet::new(),
            ended: Ended::default(),
            ready: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// The number of connections that are split now.
    pub fn connections(&self) -> usize {
        self.sessions.len()
    }

    /// Packets of a connection in flight over the hop; `None` if it is not split.
    pub fn outstanding(&self, connection: Connection) -> Option<usize> {
        self.sessions.get(&connection).map(|session| session.sender.outstanding())
    }

    fn enter(&mut self, id: ConnectionId, connection: Connection) {
        self.owners.insert(id, connection);
        if let Some(session) = self.sessions.get_mut(&connection) {
            session.near = Some(id);
        }
    }

    /// Handles a segment of the near host's TCP.
    fn take_segment(&mut self, now: Instant, connection: Connection, packet: &Packet, segment: &Segment) -> Verdict {
        let is_first = segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK);
        let is_over = self.is_over(connection);
        let Some(session) = self.sessions.get_mut(&connection) else {
            if is_first && self.sessions.len() < self.config.most {
                return self.open(now, connection, packet);
            }
            let is_late = !is_first && self.ended.has(now, connection);
            return if is_late { Verdict::Drop } else { Verdict::Pass };
        };
        match &mut session.syn {
            Some(syn) if is_first => *syn = packet.clone(),
            Some(_) if segment.flags.contains(Flags::RST) => self.reset(now, connection),
            Some(_) => {}
            None if is_first && is_over => {
                self.forget(now, connection);
                return self.open(now, connection, packet);
            }
            None => self.near.handle_packet(now, packet),
        }
        Verdict::Keep
    }

    /// Whether the near half of a connection is closed, so that its ports may be reused.
    fn is_over(&self, connection: Connection) -> bool {
        let id = self.sessions.get(&connection).and_then(|session| session.near);
        let half = id.and_then(|id| self.near.connection(id));
        half.is_none_or(|half| half.is_closed() || half.state() == holdover_tcp::State::TimeWait)
    }

    /// The near host opens a connection: requests it over the hop.
    fn open(&mut self, now: Instant, connection: Connection, packet: &Packet) -> Verdict {
        let mut session = Session::new(&self.config);
        session.syn = Some(packet.clone());
        session.sender.send(now, Flag::Open, Bytes::new());
        self.sessions.insert(connection, session);
        Verdict::Keep
    }

    /// Handles a message from the far end of the hop.
    fn take_message(&mut self, now: Instant, connection: Connection, message: Message) {
        let opens = matches!(message, Message::Data { number, flag: Flag::Open, .. } if number == Seq::new(0));
        if opens && self.sessions.get(&connection).is_some_and(Session::is_done) {
            // The ports are reused.
            self.forget(now, connection);
        }
        if !self.sessions.contains_key(&connection) {
            match message {
                Message::Data { .. } if opens => {
                    if !self.open_near(now, connection) {
                        return self.say(connection, &Message::Reset);
                    }
                }
                Message::Reset | Message::Ack { .. } => return,
                Message::Data { .. } | Message::Probe => return self.say(connection, &Message::Reset),
            }
        }
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        match message {
            Message::Data { number, flag, data } => {
                let ack = session.receiver.handle_data(number, flag, data);
                self.say(connection, &ack);
            }
            Message::Ack { expected, limit, mask } => session.sender.handle_ack(now, expected, limit, mask),
            Message::Probe => {
                let ack = session.receiver.ack();
                self.say(connection, &ack);
            }
            // The far end has dropped a session that ended in good order; its last acknowledgement was lost.
            Message::Reset if session.sender.has_ended() && session.receiver.has_ended() => session.sender.finish(),
            Message::Reset => self.abort(now, connection),
        }
    }

    /// The far end requests a connection: opens it to the near host in the client's name.
    fn open_near(&mut self, now: Instant, connection: Connection) -> bool {
        if self.sessions.len() >= self.config.most {
            return false;
        }
        let Connection { local, remote } = connection;
        let near = self.config.near.clone();
        let Ok(id) = self.near.connect(now, near, Some(remote), local) else { return false };
        let session = Session { owes_accept: true, ..Session::new(&self.config) };
        self.sessions.insert(connection, session);
        self.enter(id, connection);
        true
    }

    fn say(&mut self, connection: Connection, message: &Message) {
        let packet = message.packet(connection);
        self.ready.push_back(Injected { direction: Direction::Outgoing, packet });
    }

    /// Moves data between the near halves and the hop, and sends pending packets.
    fn advance(&mut self, now: Instant) {
        loop {
            while let Some(connection) = self.touched.pop_first() {
                self.move_to_host(now, connection);
                self.move_to_hop(now, connection);
                self.flush(connection);
                self.end_if_done(now, connection);
            }
            while let Some(out) = self.near.poll_transmit(now) {
                self.ready.push_back(Injected { direction: Direction::Incoming, packet: out.packet });
            }
            while let Some((id, event)) = self.near.poll_event() {
                if let Some(connection) = self.owners.get(&id).copied() {
                    self.touched.insert(connection);
                    self.handle_event(now, connection, event);
                }
            }
            if self.touched.is_empty() {
                return;
            }
        }
    }

    fn handle_event(&mut self, now: Instant, connection: Connection, event: Event) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        match event {
            Event::Connected if core::mem::take(&mut session.owes_accept) => {
                session.sender.send(now, Flag::Open, Bytes::new());
            }
            Event::Closed => {
                let half = session.near.and_then(|id| self.near.connection(id));
                if half.is_some_and(|half| half.error().is_some()) {
                    self.reset(now, connection);
                }
            }
            _ => {}
        }
    }

    /// Moves data from the hop to the near host.
    fn move_to_host(&mut self, now: Instant, connection: Connection) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        while let Some((flag, data)) = session.receiver.peek() {
            let (flag, len) = (*flag, data.len());
            if flag == Flag::Open
                && let Some(syn) = session.syn.take()
            {
                let Some(id) = self.near.accept(now, self.config.near.clone(), &syn) else { break };
                session.near = Some(id);
                self.owners.insert(id, connection);
            }
            let half = session.near.and_then(|id| self.near.connection_mut(id));
            let Some(half) = half.filter(|half| len == 0 || half.write_room() > 0) else { break };
            let Some(taken) = session.receiver.take(half.write_room().max(usize::from(len == 0))) else { break };
            half.write(now, taken);
            if flag == Flag::End && session.receiver.is_done() && !core::mem::replace(&mut session.is_shut, true) {
                half.shutdown_write();
            }
        }
        if let Some(update) = session.receiver.poll_update() {
            self.say(connection, &update);
        }
    }

    /// Moves data from the near host to the hop.
    fn move_to_hop(&mut self, now: Instant, connection: Connection) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        if session.syn.is_some() || session.owes_accept {
            return;
        }
        let Some(half) = session.near.and_then(|id| self.near.connection_mut(id)) else { return };
        while session.sender.has_room() {
            if let Some(data) = read_packet(now, half, self.config.packet_bytes) {
                session.sender.send(now, Flag::None, data);
            } else if half.is_read_out() {
                session.sender.send(now, Flag::End, Bytes::new());
            } else {
                break;
            }
        }
        if half.readable_len() > 0 || half.is_read_out() && !session.sender.has_ended() {
            session.sender.wait_for_room(now);
        }
    }

    fn flush(&mut self, connection: Connection) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        while let Some(message) = session.sender.poll_transmit() {
            let packet = message.packet(connection);
            self.ready.push_back(Injected { direction: Direction::Outgoing, packet });
        }
        self.agenda.set(connection, &mut session.due, session.sender.poll_timeout());
    }

    /// Drops a session whose directions have both ended and arrived, once the near half is closed.
    fn end_if_done(&mut self, now: Instant, connection: Connection) {
        let Some(session) = self.sessions.get(&connection) else { return };
        let is_done = session.is_done();
        let half = session.near.and_then(|id| self.near.connection(id));
        if is_done && half.is_none_or(holdover_tcp::Connection::is_closed) {
            self.forget(now, connection);
        }
    }

    /// The near side has failed: resets the far end.
    fn reset(&mut self, now: Instant, connection: Connection) {
        self.say(connection, &Message::Reset);
        let what = "reset";
        self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what });
        self.forget(now, connection);
    }

    /// The far end has failed: aborts the near half.
    fn abort(&mut self, now: Instant, connection: Connection) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        if let Some(syn) = session.syn.take()
            && let Some(reset) = syn.tcp().and_then(reset_for)
        {
            let packet = Packet::new(syn.dst, syn.src, reset);
            self.ready.push_back(Injected { direction: Direction::Incoming, packet });
        }
        if let Some(half) = session.near.and_then(|id| self.near.connection_mut(id)).filter(|half| !half.is_closed()) {
            half.abort();
        }
        while let Some(out) = self.near.poll_transmit(now) {
            self.ready.push_back(Injected { direction: Direction::Incoming, packet: out.packet });
        }
        self.actions.push_back(Action { at: now, connection, mechanism: Self::NAME, what: "aborted" });
        self.forget(now, connection);
    }

    fn forget(&mut self, now: Instant, connection: Connection) {
        let Some(mut session) = self.sessions.remove(&connection) else { return };
        self.agenda.set(connection, &mut session.due, None);
        self.ended.insert(now, connection);
        let Some(id) = session.near else { return };
        self.owners.remove(&id);
        self.near.release(id);
    }
}

impl SegmentFilter for Srp {
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let verdict = match (direction, Connection::of(direction, packet)) {
            (Direction::Outgoing, Some(connection)) => {
                let Some(segment) = packet.tcp() else { return Verdict::Pass };
                self.touched.insert(connection);
                self.take_segment(now, connection, packet, segment)
            }
            // A split connection sends no segments over the hop.
            (Direction::Incoming, Some(connection)) if self.sessions.contains_key(&connection) => Verdict::Drop,
            (Direction::Incoming, Some(_)) | (Direction::Outgoing, None) => Verdict::Pass,
            (Direction::Incoming, None) => match Message::datagram(packet).map(|udp| Message::parse(&udp.payload)) {
                Some(Ok((message, src_port, dst_port))) => {
                    let local = SocketAddr::new(packet.dst, dst_port);
                    let remote = SocketAddr::new(packet.src, src_port);
                    let connection = Connection { local, remote };
                    self.touched.insert(connection);
                    self.take_message(now, connection, message);
                    Verdict::Keep
                }
                Some(Err(_)) | None => Verdict::Pass,
            },
        };
        if verdict == Verdict::Keep {
            self.advance(now);
        } else {
            self.touched.clear();
        }
        verdict
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_timeout(&mut self, now: Instant) {
        self.near.handle_timeout(now);
        while let Some(connection) = self.agenda.take_due(now) {
            if let Some(session) = self.sessions.get_mut(&connection) {
                session.due = None;
                session.sender.handle_timeout(now);
                self.touched.insert(connection);
            }
        }
        self.advance(now);
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        self.ready.pop_front()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn stored(&self) -> Stored {
        let of_session = |session: &Session| {
            let near = session.near.and_then(|id| self.near.connection(id));
            let near = near.map_or(0, |near| near.send_queue_len() + near.receive_buffer_len());
            near + session.sender.bytes() + session.receiver.bytes()
        };
        Stored::of_connections(self.sessions.values().map(of_session))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.agenda.next().into_iter().chain(self.near.poll_timeout()).min()
    }
}

/// Connections that ended recently: their late segments must not leave the node, which has answered in the name of
/// their peers.
#[derive(Debug, Default)]
struct Ended {
    since: BTreeMap<Connection, Instant>,
    order: VecDeque<(Instant, Connection)>,
}

impl Ended {
    /// As long as a host may be in TIME-WAIT (RFC 9293 section 3.4.2: twice the MSL; Linux takes 60 s).
    const LINGER: Duration = Duration::from_secs(60);
    /// The most that are remembered.
    const MOST: usize = 4_096;

    fn insert(&mut self, now: Instant, connection: Connection) {
        self.expire(now, Self::MOST - 1);
        self.since.insert(connection, now);
        self.order.push_back((now, connection));
    }

    fn has(&mut self, now: Instant, connection: Connection) -> bool {
        self.expire(now, Self::MOST);
        self.since.contains_key(&connection)
    }

    fn expire(&mut self, now: Instant, most: usize) {
        while let Some(&(at, connection)) = self.order.front()
            && (self.order.len() > most || now.saturating_since(at) >= Self::LINGER)
        {
            self.order.pop_front();
            if self.since.get(&connection) == Some(&at) {
                self.since.remove(&connection);
            }
        }
    }
}

/// Available data, as much as fits into a packet; `None` if there is none.
fn read_packet(now: Instant, half: &mut holdover_tcp::Connection, len: usize) -> Option<Bytes> {
    let first = half.read_at_most(now, len).filter(|data| !data.is_empty())?;
    if first.len() == len || half.readable_len() == 0 {
        return Some(first);
    }
    let mut packet = BytesMut::from(first.as_ref());
    while packet.len() < len
        && let Some(more) = half.read_at_most(now, len - packet.len()).filter(|data| !data.is_empty())
    {
        packet.extend_from_slice(&more);
    }
    Some(packet.freeze())
}
