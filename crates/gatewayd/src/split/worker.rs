//! The thread that splits: one loop over `epoll(7)`.
//!
//! A connection has up to four stages. *Connecting*: its SYN is held, and a socket with the client's address connects to the
//! server. *Answering*: the server has answered, the SYN was given to a listening socket, and the client has yet to
//! acknowledge the SYN-ACK. *Open*: bytes are relayed, and both ends are watched. *Closing*: both ends have closed, and the
//! last bytes are not acknowledged. A refused SYN is refused to the client in
//! the same way.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdover_host::Tun;
use holdover_wire::Unreachable;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use socket2::Socket;

use super::Marks;
use super::counters::{Counters, note};
use super::sockets::{Diag, Raw, Settings};
use super::splice::{Pipes, Progress, Ready, Splice, SpliceEnd};
use super::syn::{Ends, Syn, Unfit};
use crate::config::ModeNetworks;
use crate::icmp_errors::IcmpErrors;
use crate::network::destination;

/// The daemon's requests to the thread, and its reports.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) counters: Counters,
    /// Counts rounds of the loop.
    pub(super) rounds: AtomicU64,
    /// New connections pass unsplit.
    pub(super) stops: AtomicBool,
    /// The thread ends, and resets open connections.
    pub(super) ends: AtomicBool,
}

/// Everything that the thread has.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) device: Tun,
    pub(super) listeners: Vec<Socket>,
    pub(super) settings: Settings,
    pub(super) marks: Marks,
    pub(super) hosts: ModeNetworks,
    /// For packets to fixed hosts, and to mobile hosts.
    pub(super) raw: [Raw; 2],
    pub(super) errors: IcmpErrors,
    pub(super) diag: Diag,
    pub(super) most: usize,
    pub(super) most_handshakes: usize,
    pub(super) shared: Arc<Shared>,
}

/// The longest wait, within which the daemon knows that the thread is alive.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// How often handshakes and open connections are checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The longest time for the client's ACK: Linux repeats a SYN-ACK for 63 s.
const ANSWER_WITHIN: Duration = Duration::from_secs(64);

/// How long a connection that passes unsplit stays so if its SYN is repeated.
const REMEMBER: Duration = Duration::from_secs(120);

/// The most connections remembered as unsplit.
const MOST_REMEMBERED: usize = 16_384;

/// After a pause of the thread this long, clients may have repeated the SYNs in the device, and the repeated ones have passed unsplit.
const STALE_AFTER: Duration = Duration::from_millis(900);

/// The part of the handshakes that one client may have, so that others have room.
const MOST_OF_A_CLIENT: usize = 4;

/// Events and packets handled before the next wait.
const BATCH: usize = 256;

#[derive(Debug)]
enum Stage {
    Connecting { server: Socket, syn: Syn, is_second: bool },
    Answering { server: Socket, since: Instant },
    Open(Box<Splice>),
    Closing(Box<Splice>),
}

#[derive(Debug)]
struct Slot {
    /// Distinguishes successive connections in one place.
    generation: u32,
    connection: Option<(Ends, Stage)>,
}

/// The purpose of a descriptor in the epoll set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    Device,
    Listener(usize),
    Connection { place: usize, generation: u32, end: SpliceEnd },
}

impl Token {
    const SPECIAL: u32 = u32::MAX;

    fn to_data(self) -> EventData {
        let join = |high: u32, low: u32| EventData::new_u64(u64::from(high) << 32 | u64::from(low));
        match self {
            Self::Device => join(Self::SPECIAL, 0),
            Self::Listener(number) => join(Self::SPECIAL, number as u32 + 1),
            Self::Connection { place, generation, end } => {
                join(generation, (place as u32) << 1 | u32::from(end == SpliceEnd::Server))
            }
        }
    }

    fn of_data(data: EventData) -> Self {
        let (high, low) = ((data.u64() >> 32) as u32, data.u64() as u32);
        match (high, low) {
            (Self::SPECIAL, 0) => Self::Device,
            (Self::SPECIAL, number) => Self::Listener(number as usize - 1),
            (generation, low) => {
                let end = if low & 1 == 1 { SpliceEnd::Server } else { SpliceEnd::Client };
                Self::Connection { place: (low >> 1) as usize, generation, end }
            }
        }
    }
}

/// The connections and the epoll set.
struct Splitting {
    worker: Worker,
    set: std::os::fd::OwnedFd,
    slots: Vec<Slot>,
    free: Vec<usize>,
    places: HashMap<Ends, usize>,
    /// Connections being connected or answered.
    pending: usize,
    /// The same, by client.
    pending_of: HashMap<IpAddr, usize>,
    unsplit: HashMap<Ends, Instant>,
    /// These, the oldest first.
    unsplit_order: VecDeque<Ends>,
    /// Connections with more to move.
    unfinished: Vec<(usize, u32)>,
    pipes: Pipes,
    scratch: Vec<u8>,
    check_at: Instant,
    /// Counts checks.
    checks: usize,
}

impl Worker {
    /// Runs until a request to end.
    ///
    /// # Errors
    /// The epoll set or the device has failed.
    pub(super) fn run(self) -> io::Result<()> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&set, self.device.as_fd(), Token::Device.to_data(), EventFlags::IN)?;
        for (number, listener) in self.listeners.iter().enumerate() {
            epoll::add(&set, listener, Token::Listener(number).to_data(), EventFlags::IN | EventFlags::ET)?;
        }
        let mut splitting = Splitting {
            worker: self,
            set,
            slots: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            pending: 0,
            pending_of: HashMap::new(),
            unsplit: HashMap::new(),
            unsplit_order: VecDeque::new(),
            unfinished: Vec::new(),
            pipes: Pipes::default(),
            scratch: vec![0; 1 << 16],
            check_at: Instant::now() + CHECK_EVERY,
            checks: 0,
        };
        splitting.run()
    }
}

impl Splitting {
    fn run(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.worker.shared);
        let mut events = Vec::with_capacity(BATCH);
        let mut before = Instant::now();
        while !shared.ends.load(Ordering::Relaxed) {
            let wait = if self.unfinished.is_empty() { WAIT } else { Timespec { tv_sec: 0, tv_nsec: 0 } };
            events.clear();
            match epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if before.elapsed() > STALE_AFTER {
                // Connecting for these SYNs would reset the connections that have passed unsplit.
                while self.worker.device.recv(&mut self.scratch).map_err(io::Error::other)?.is_some() {}
            }
            before = Instant::now();
            for event in &events {
                let flags = event.flags;
                match Token::of_data(event.data) {
                    Token::Device => self.read_syns()?,
                    Token::Listener(number) => self.accept(number),
                    Token::Connection { place, generation, end } => self.handle_ready(place, generation, end, flags),
                }
            }
            for (place, generation) in std::mem::take(&mut self.unfinished) {
                self.handle_ready(place, generation, SpliceEnd::Client, EventFlags::empty());
            }
            let now = Instant::now();
            if now >= self.check_at {
                self.check_at = now + CHECK_EVERY;
                self.check(now);
            }
            self.publish();
            shared.rounds.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn publish(&self) {
        let counters = &self.worker.shared.counters;
        counters.open.store((self.places.len() - self.pending) as u64, Ordering::Relaxed);
        counters.pending.store(self.pending as u64, Ordering::Relaxed);
    }

    fn counters(&self) -> &Counters {
        &self.worker.shared.counters
    }

    fn read_syns(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            let packet = self.worker.device.recv(&mut self.scratch).map_err(io::Error::other)?;
            let Some(packet) = packet else { return Ok(()) };
            self.handle_syn(packet);
        }
        Ok(())
    }

    fn handle_syn(&mut self, packet: Bytes) {
        let counters = self.counters();
        let syn = match Syn::parse(packet.clone()) {
            Ok(syn) => syn,
            Err(Unfit::NoSyn) => return,
            Err(unfit) => {
                note(match unfit {
                    Unfit::Authenticated => &counters.authenticated,
                    Unfit::Multipath => &counters.multipath,
                    _ => &counters.malformed,
                });
                return self.forward(&packet);
            }
        };
        let ends = syn.ends;
        let now = Instant::now();
        if let Some(at) = self.unsplit.get_mut(&ends).filter(|at| now.duration_since(**at) < REMEMBER) {
            *at = now;
            return self.forward(&packet);
        }
        if let Some(&place) = self.places.get(&ends) {
            // A repetition, as long as the connection is not open; and the client repeats a SYN that comes before the last bytes
            // of a former connection are delivered. The programs give the SYNs of an open connection to its socket: if one
            // comes here, that socket is gone, and its event has not been handled yet.
            if !matches!(self.slots[place].connection, Some((_, Stage::Open(_)))) {
                return;
            }
            self.abort(place);
        }
        if self.worker.shared.stops.load(Ordering::Relaxed) {
            note(&self.counters().stopping);
            return self.pass(&syn);
        }
        let most = self.worker.most_handshakes;
        let of_client = self.pending_of.get(&ends.client.ip()).copied().unwrap_or(0);
        let has_too_many = of_client >= (most / MOST_OF_A_CLIENT).max(1);
        if self.places.len() >= self.worker.most || self.pending >= most || has_too_many {
            note(&self.counters().full);
            return self.pass(&syn);
        }
        self.connect(syn, false);
    }

    fn is_mobile(&self, end: SocketAddr) -> bool {
        self.worker.hosts.contains(end.ip())
    }

    fn connect(&mut self, syn: Syn, is_second: bool) {
        let Ends { client, server } = syn.ends;
        let Marks { near, far, .. } = self.worker.marks;
        let mark = if self.is_mobile(server) { near } else { far };
        let socket = match self.worker.settings.connect(client, server, mark) {
            Ok(socket) => socket,
            Err(error) => return self.handle_failed(syn, &error, is_second),
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, connection: None });
            self.slots.len() - 1
        });
        if let Err(error) = self.watch(place, SpliceEnd::Server, socket.as_fd()) {
            self.free.push(place);
            return self.handle_failed(syn, &error, is_second);
        }
        self.places.insert(syn.ends, place);
        self.pending += 1;
        *self.pending_of.entry(client.ip()).or_default() += 1;
        self.slots[place].connection = Some((syn.ends, Stage::Connecting { server: socket, syn, is_second }));
    }

    fn watch(&self, place: usize, end: SpliceEnd, socket: BorrowedFd<'_>) -> io::Result<()> {
        let token = Token::Connection { place, generation: self.slots[place].generation, end };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::PRI | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.set, socket, token.to_data(), flags)?)
    }

    fn remove(&mut self, place: usize) -> Option<(Ends, Stage)> {
        let slot = &mut self.slots[place];
        let (ends, stage) = slot.connection.take()?;
        // Events of its sockets may be among those just read; the last generation is that of other tokens.
        slot.generation = (slot.generation + 1) % Token::SPECIAL;
        self.free.push(place);
        self.places.remove(&ends);
        if matches!(stage, Stage::Connecting { .. } | Stage::Answering { .. }) {
            self.end_handshake(ends);
        }
        Some((ends, stage))
    }

    /// A connection is no longer pending.
    fn end_handshake(&mut self, ends: Ends) {
        self.pending -= 1;
        let client = ends.client.ip();
        let left = self.pending_of.get_mut(&client).map_or(0, |count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == 0 {
            self.pending_of.remove(&client);
        }
    }

    /// Resets both ends, by closing the sockets.
    fn abort(&mut self, place: usize) {
        if let Some((_, Stage::Open(_) | Stage::Closing(_))) = self.remove(place) {
            note(&self.counters().reset);
        }
    }

    fn handle_ready(&mut self, place: usize, generation: u32, end: SpliceEnd, flags: EventFlags) {
        let Some(slot) = self.slots.get_mut(place).filter(|slot| slot.generation == generation) else { return };
        match &mut slot.connection {
            Some((_, Stage::Connecting { .. })) => self.handle_connected(place),
            // The server has sent something, or has reset the connection: that is read from the open connection.
            Some((_, Stage::Answering { server, .. }))
                if flags.contains(EventFlags::ERR) && server.take_error().ok().flatten().is_some() =>
            {
                self.remove(place);
            }
            Some((_, Stage::Answering { .. })) => {}
            Some((ends, Stage::Open(splice))) => {
                let socket = if end == SpliceEnd::Client { &splice.client } else { &splice.server };
                if flags.contains(EventFlags::ERR) && socket.take_error().ok().flatten().is_some() {
                    return self.abort(place);
                }
                let ends_now = flags.intersects(EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR);
                splice.note(
                    end,
                    Ready {
                        read: ends_now || flags.contains(EventFlags::IN),
                        write: flags.contains(EventFlags::OUT),
                        urgent: flags.contains(EventFlags::PRI),
                    },
                );
                let counters = &self.worker.shared.counters;
                let (to_mobile, from_mobile) = (&counters.to_mobile, &counters.from_mobile);
                let counted = match self.worker.hosts.contains(ends.client.ip()) {
                    true => [from_mobile, to_mobile],
                    false => [to_mobile, from_mobile],
                };
                match splice.advance(&mut self.pipes, counted) {
                    Ok(Progress::Waits) => {}
                    Ok(Progress::HasMore) => self.unfinished.push((place, generation)),
                    Ok(Progress::Over) => {
                        if let Some((ends, Stage::Open(splice))) = slot.connection.take() {
                            slot.connection = Some((ends, Stage::Closing(splice)));
                        }
                        self.close(place);
                    }
                    Err(error) => {
                        tracing::trace!(%error, "a split connection ends");
                        self.abort(place);
                    }
                }
            }
            Some((_, Stage::Closing(_))) => self.close(place),
            None => {}
        }
    }

    /// Closes a connection that both ends have closed, once its last bytes are delivered. A socket without a process would be
    /// out of reach of the daemon, which may stop meanwhile and removes what leads packets to it.
    fn close(&mut self, place: usize) {
        let Some((_, Stage::Closing(splice))) = &self.slots[place].connection else { return };
        if splice.is_delivered()
            && let Some((_, Stage::Closing(splice))) = self.remove(place)
        {
            splice.finish();
        }
    }

    /// The attempt to connect to the server may have an outcome.
    fn handle_connected(&mut self, place: usize) {
        let Some((_, Stage::Connecting { server, .. })) = &self.slots[place].connection else { return };
        let error = match server.take_error() {
            Ok(None) if server.peer_addr().is_err() => return,
            Ok(None) => None,
            Ok(Some(error)) | Err(error) => Some(error),
        };
        if let Some(error) = error {
            if let Some((_, Stage::Connecting { server, syn, is_second })) = self.remove(place) {
                drop(server);
                self.handle_failed(syn, &error, is_second);
            }
            return;
        }
        let Some((ends, Stage::Connecting { server, syn, .. })) = self.slots[place].connection.take() else { return };
        self.slots[place].connection = Some((ends, Stage::Answering { server, since: Instant::now() }));
        // A socket of a former connection with these addresses would answer for the listening one. Usually there is none.
        let _ = self.worker.diag.destroy(ends.server, ends.client);
        if let Err(error) = self.worker.device.send(&syn.packet) {
            tracing::debug!(%error, "cannot give a SYN to the kernel");
            self.remove(place);
        }
    }

    /// The server cannot be connected: the client gets the same answer.
    fn handle_failed(&mut self, syn: Syn, error: &io::Error, is_second: bool) {
        let counters = self.counters();
        let unreachable = match error.raw_os_error() {
            Some(libc::EADDRNOTAVAIL | libc::EADDRINUSE) => {
                let Ends { client, server } = syn.ends;
                // The client uses a port again whose former connection is in TIME_WAIT here.
                if !is_second && self.worker.diag.destroy_closed(client, server).is_ok() {
                    return self.connect(syn, true);
                }
                note(&self.counters().address_in_use);
                return self.pass(&syn);
            }
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::EACCES) => {
                note(&counters.full);
                return self.pass(&syn);
            }
            Some(libc::ECONNREFUSED) => {
                note(&counters.refused);
                if let Some(refusal) = syn.refusal() {
                    self.send(&refusal, syn.ends.client);
                }
                return;
            }
            Some(libc::EHOSTUNREACH) => Unreachable::Host,
            Some(libc::ENETUNREACH) => Unreachable::Network,
            Some(libc::ENOPROTOOPT) => Unreachable::Protocol,
            // Such as ETIMEDOUT.
            _ => {
                note(&counters.unanswered);
                return;
            }
        };
        note(&counters.unreachable);
        self.worker.errors.send(unreachable, &syn.packet);
    }

    /// A client has completed its handshake.
    fn accept(&mut self, number: usize) {
        loop {
            let (client, ends) = match self.worker.listeners[number].accept() {
                Ok((client, from)) => {
                    let local = client.local_addr().ok().and_then(|address| address.as_socket());
                    let (Some(from), Some(server)) = (from.as_socket(), local) else { continue };
                    (client, Ends { client: plain(from), server: plain(server) })
                }
                // No connection is left to accept; or there are no descriptors, and the next event, or the check in a second, tries again.
                Err(_) => return,
            };
            let place = self.places.get(&ends).copied();
            let is_expected =
                place.is_some_and(|place| matches!(self.slots[place].connection, Some((_, Stage::Answering { .. }))));
            // Others, such as of processes of this host, are reset.
            let Some(place) = place.filter(|_| is_expected) else { continue };
            if client.set_nonblocking(true).is_err() || self.watch(place, SpliceEnd::Client, client.as_fd()).is_err() {
                self.remove(place);
                continue;
            }
            let slot = &mut self.slots[place];
            let Some((_, Stage::Answering { server, .. })) = slot.connection.take() else { continue };
            let generation = slot.generation;
            slot.connection = Some((ends, Stage::Open(Box::new(Splice::new(client, server)))));
            self.end_handshake(ends);
            note(&self.counters().total);
            self.handle_ready(place, generation, SpliceEnd::Client, EventFlags::empty());
        }
    }

    /// Ends handshakes whose client is gone and connections whose end does not answer, and forgets connections that passed.
    fn check(&mut self, now: Instant) {
        (0..self.worker.listeners.len()).for_each(|number| self.accept(number));
        self.unsplit.retain(|_, at| now.duration_since(*at) < REMEMBER);
        self.unsplit_order.retain(|ends| self.unsplit.contains_key(ends));
        let answering = self.places.iter().filter_map(|(&ends, &place)| match self.slots[place].connection {
            Some((_, Stage::Answering { since, .. })) => Some((ends, place, now.duration_since(since))),
            _ => None,
        });
        let slow: Vec<_> = answering.filter(|(_, _, waited)| *waited >= CHECK_EVERY).collect();
        for (ends, place, waited) in slow {
            // The client has reset the connection, or never answers.
            if waited >= ANSWER_WITHIN || !self.worker.diag.exists(ends.server, ends.client) {
                note(&self.counters().unanswered);
                self.remove(place);
            }
        }
        self.check_splices(now);
    }

    /// Checks a part of the connections, so that each has several turns within the user timeout.
    fn check_splices(&mut self, now: Instant) {
        let user_timeout = self.worker.settings.user_timeout;
        let parts = (user_timeout.as_secs() as usize / 8).clamp(1, 60);
        self.checks += 1;
        for place in (self.checks % parts..self.slots.len()).step_by(parts) {
            let Some((_, Stage::Open(splice) | Stage::Closing(splice))) = &mut self.slots[place].connection else {
                continue;
            };
            if splice.is_unanswered(now, user_timeout) {
                self.abort(place);
            }
            // While a connection closes, there may be no event when its data is delivered.
            self.close(place);
        }
    }

    /// Lets a connection pass unsplit.
    fn pass(&mut self, syn: &Syn) {
        if self.unsplit.len() >= MOST_REMEMBERED
            && let Some(oldest) = self.unsplit_order.pop_front()
        {
            self.unsplit.remove(&oldest);
        }
        if self.unsplit.insert(syn.ends, Instant::now()).is_none() {
            self.unsplit_order.push_back(syn.ends);
        }
        self.forward(&syn.packet);
    }

    /// Forwards a packet.
    fn forward(&self, packet: &Bytes) {
        let Some(to) = destination(packet) else { return };
        if let Err(error) = self.worker.raw[0].send(packet, to) {
            tracing::debug!(%error, "cannot forward a SYN");
        }
    }

    fn send(&self, packet: &Bytes, to: SocketAddr) {
        let raw = &self.worker.raw[usize::from(self.is_mobile(to))];
        if let Err(error) = raw.send(packet, to.ip()) {
            tracing::debug!(%error, "cannot refuse a connection");
        }
    }
}

/// The address without flow information and scope ID: the addresses of packets have neither.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}
