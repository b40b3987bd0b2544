//! The engine: [`wake`](holdover_mobility::wake) for all TCP connections that cross one interface of this host.
//!
//! The eBPF programs (`bpf/path.bpf.c`) see every packet; [`WakeControl`](holdover_mobility::wake::WakeControl) of `mobility` makes the
//! decisions that are rare and slow. An [`Engine`] joins the two: it reads the programs' notices, runs the timers, and sends the packets
//! that result. Nothing has to be configured: connections are learnt from their packets, also those that are older than the engine.
//!
//! It fails open. With tcx (Linux 6.6), programs and maps go with the process, however that ends; without, they stay after SIGKILL
//! until the next agent removes them ([`AttachMode::Clsact`]). If the process hangs or was killed, the programs let packets pass as
//! they are 1.5 s later.
//!
//! The order of calls: [`Engine::handle_ready`] when its descriptor is readable, [`Engine::handle_link`],
//! [`Engine::handle_timeout`]; then [`Engine::poll_action`] and [`Engine::poll_outcome`] until `None`, then
//! [`Engine::poll_timeout`].

mod attach;
mod connection_status;
mod error;
mod inject;
mod interface;
mod lock;
mod outbox;
mod own_timers;
mod path;
mod requirements;
mod served;
mod silence;
mod stack;
#[cfg(test)]
mod tests;
mod unheard;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use holdover_base::{Duration, Instant};
use holdover_flow::{FRAME_LEN, Order, Report};
use holdover_mobility::wake::WakeConfig;
use holdover_mobility::{Action, Connection, Direction, Injected, LinkEvent, WakeOutcome};
use holdover_wire::TcpState;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::link_watch::{Family, LinkChange};
use crate::sockets::SocketDiag;
use holdover_host::clock;
use inject::Injector;
use interface::Interface;
use lock::InterfaceLock;
use outbox::Waiting;
use path::KernelPath;
use stack::Stack;
use unheard::is_unheard;

pub use attach::{AttachError, AttachMode, Attachable, AttachedBy};
pub use connection_status::ConnectionStatus;
pub use error::EngineError;
pub use lock::Holder;
pub use path::{Cost, Counters};
pub use requirements::MissingCapabilities;
pub use served::KernelAttach;

/// What an engine does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineOptions {
    /// Which mechanisms are on.
    pub wake: WakeConfig,
    /// So many connections are remembered at once: less than 1.5 kB each. When there are more, those that have been idle for longest
    /// are forgotten.
    pub most_connections: u32,
    /// How the programs are put in the path of packets.
    pub attach: AttachMode,
}

impl Default for EngineOptions {
    /// All of [`WakeConfig::all`], for 65,536 connections.
    fn default() -> Self {
        Self { wake: WakeConfig::all(), most_connections: 65_536, attach: AttachMode::default() }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Engine {
    interface: Interface,
    options: EngineOptions,
    /// For each IP version, in the order of [`Family::BOTH`].
    stacks: [Stack; 2],
    path: KernelPath,
    injector: Injector,
    sockets: SocketDiag,
    /// Readable when the programs have noticed something, or a neighbour has answered.
    ready: OwnedFd,
    actions: VecDeque<Action>,
    renew_at: Instant,
    tend_at: Instant,
    /// When the kernel is asked which connections wait for its timers, if it is to be.
    look_at_sockets_at: Option<Instant>,
    looked_at_sockets_at: Instant,
    tended_full: u64,
    failures: u64,
    evicted: u64,
    /// Given back after the programs are out of the path, which is dropped before it.
    lock: Option<InterfaceLock>,
}

/// How packets of the agent are known to its programs: "HO" and the way that they go.
const MARK_OUT: u32 = 0x484f_0001;
/// See [`MARK_OUT`].
const MARK_BACK: u32 = 0x484f_0002;

/// The programs hear so often that somebody is there.
const RENEW_EVERY: Duration = Duration::from_millis(400);

/// What the kernel knows of all sockets takes 2 us for each: what is known without it is woken first.
const LOOK_AT_SOCKETS_AFTER: Duration = Duration::from_millis(10);
/// And it is asked no more often than this.
const LOOK_AT_SOCKETS_EVERY: Duration = Duration::from_secs(1);

/// So often it is looked what is over, and what is not known of those that are new.
const TEND_EVERY: Duration = Duration::from_secs(5);

/// What is over is remembered for so long, for what is retransmitted.
const LINGER: Duration = Duration::from_secs(60);

/// So many connections at once: that takes a few milliseconds.
const MOST_LEARNT: usize = 2_048;

/// The halves of a connection, by the way of their ACKs.
const BOTH: [Direction; 2] = [Direction::Outgoing, Direction::Incoming];

/// When there is no room, one in so many goes: those that have been idle for longest.
const EVICTED_PART: usize = 16;

impl Engine {
    /// Puts the programs on an interface of the calling thread's network namespace. The engine may be used from any thread.
    ///
    /// # Errors
    ///
    /// See [`EngineError`].
    pub fn attach(interface: &str, options: &EngineOptions) -> Result<Self, EngineError> {
        let interface = Interface::find(interface)?;
        let rules = options.wake.rules().on_interface(interface.frame_len, MARK_OUT, MARK_BACK);
        let mut path = KernelPath::load(rules, options.most_connections)?;
        let injector = Injector::open(&interface)?;
        let mut sockets = SocketDiag::open()?;
        // A link that is back waits for no module. Who may not ask is told when it matters.
        let _ = sockets.prepare();
        path.attach(&interface, options.attach)?;
        let ready =
            wait_for(&path).map_err(|source| EngineError::Socket { interface: interface.name.clone(), source })?;
        Ok(Self {
            interface,
            options: *options,
            stacks: Family::BOTH.map(|family| Stack::new(family, options.wake)),
            path,
            injector,
            sockets,
            ready,
            actions: VecDeque::new(),
            renew_at: Instant::ZERO,
            tend_at: Instant::ZERO,
            look_at_sockets_at: None,
            looked_at_sockets_at: Instant::ZERO,
            tended_full: 0,
            failures: 0,
            evicted: 0,
            lock: None,
        })
    }

    /// Puts the programs on the interface that has the same name now: the one before is gone. What is known of connections is kept.
    ///
    /// # Errors
    ///
    /// See [`EngineError`].
    pub fn attach_again(&mut self) -> Result<(), EngineError> {
        let interface = Interface::find(&self.interface.name)?;
        if interface.frame_len != self.interface.frame_len {
            return Err(EngineError::OtherFrames { interface: interface.name });
        }
        self.injector = Injector::open(&interface)?;
        self.path.attach(&interface, self.options.attach)?;
        self.interface = interface;
        Ok(())
    }

    /// How the programs are attached.
    pub fn attached_by(&self) -> Option<AttachedBy> {
        self.path.attached_by()
    }

    /// The name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface.name
    }

    /// The link of the interface has changed, or will.
    pub fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        self.handle_change(now, LinkChange::of_both(event));
    }

    /// The same, for the connections of some IP versions.
    pub fn handle_change(&mut self, now: Instant, LinkChange { families, event }: LinkChange) {
        self.path.set_now(now);
        self.hear(now);
        for family in families.iter() {
            self.stacks[family.index()].prepare(now, event, &mut self.sockets);
            let is_up = matches!(event, LinkEvent::Up { .. });
            if is_up {
                self.look_at_sockets_soon(now);
            }
            let is_unresolved = is_up && self.begin_resolution(now, family);
            self.stacks[family.index()].handle_link(now, event, is_unresolved, &mut self.path);
        }
        self.resolve(now);
        self.send(now);
    }

    /// The descriptor is readable.
    pub fn handle_ready(&mut self, now: Instant) {
        self.path.set_now(now);
        self.hear(now);
        self.resolve(now);
        self.send(now);
    }

    /// A deadline has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.path.set_now(now);
        self.hear(now);
        self.resolve(now);
        for stack in &mut self.stacks {
            stack.control.handle_timeout(now, &mut self.path.of(stack.family));
        }
        if self.look_at_sockets_at.is_some_and(|at| at <= now) {
            self.send(now);
            self.look_at_sockets();
        }
        self.send(now);
        if self.renew_at <= now {
            self.renew_at = now + RENEW_EVERY;
            self.path.renew();
            self.lock.iter().for_each(InterfaceLock::hang_up);
            // Who is turned away must not wait until somebody happens to look.
            if self.path.alone_full() != self.tended_full {
                self.tend_at = now;
            }
        }
        if self.tend_at <= now {
            self.tend_at = now + TEND_EVERY;
            self.path.free_idle_predictions();
            self.tend(now);
        }
    }

    /// The next deadline: there always is one.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = [self.renew_at, self.tend_at].into_iter().chain(self.look_at_sockets_at);
        self.stacks.iter().filter_map(Stack::poll_timeout).chain(own).min()
    }

    /// The next thing that was done.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next outcome of waking a connection.
    pub fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        self.stacks.iter_mut().find_map(|stack| stack.control.poll_outcome())
    }

    /// What the kernel has refused since the last call, after the engine was made: packets then pass as they are.
    pub fn poll_error(&mut self) -> Option<EngineError> {
        self.path.take_refused()
    }

    /// Packets of the agent's that could not be sent.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// The connections that cross the interface, those that are over excepted.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        let mut live = Vec::new();
        self.path.for_each(|connection, flow| {
            live.extend((!flow.is_over()).then(|| ConnectionStatus::of(connection, flow)))
        });
        live
    }

    /// What the programs have counted.
    pub fn counters(&self) -> Counters {
        self.path.counters()
    }

    /// What the programs have cost, while the kernel was told to count that ([`count_cost`]).
    pub fn cost(&mut self) -> Cost {
        self.path.cost()
    }

    /// Leaves a connection alone from now on, or not any more. It must have been seen.
    pub fn leave_alone(&mut self, connection: Connection, is_exempt: bool) {
        self.path.leave_alone(connection, is_exempt);
    }

    /// What is done for the connections of this one's IP version.
    fn stack(&self, connection: Connection) -> &Stack {
        &self.stacks[Family::of_connection(connection).index()]
    }

    /// The link is up. Returns whether connections wait whose next hop is not known.
    fn begin_resolution(&mut self, now: Instant, family: Family) -> bool {
        if self.interface.frame_len as usize != FRAME_LEN {
            return false;
        }
        let (path, stack) = (&self.path, &mut self.stacks[family.index()]);
        let waiting = stack.control.waiting().filter_map(|connection| {
            let frame = path.flow(connection)?.frame(Direction::Outgoing);
            let [destination @ .., _, _, _, _, _, _, _, _] = frame;
            Some((connection, destination))
        });
        match stack.next_hops.begin(now, self.interface.index, waiting) {
            Ok(is_unresolved) => {
                for socket in stack.next_hops.descriptors() {
                    // One that cannot be waited for is read all the same, with the next question.
                    let _ = epoll::add(&self.ready, socket, EventData::new_u64(0), EventFlags::IN);
                }
                is_unresolved
            }
            Err(error) => {
                tracing::debug!(interface = &*self.interface.name, %error, "next hops cannot be asked for");
                false
            }
        }
    }

    /// Asks next hops for their addresses, and lets go what waits for them.
    fn resolve(&mut self, now: Instant) {
        let mut has_answered = false;
        for stack in &mut self.stacks {
            has_answered |= stack.resolve(now, &mut self.path);
        }
        if has_answered {
            self.look_at_sockets_soon(now);
        }
    }

    fn look_at_sockets_soon(&mut self, now: Instant) {
        let not_before = self.looked_at_sockets_at + LOOK_AT_SOCKETS_EVERY;
        self.look_at_sockets_at = Some(not_before.max(now + LOOK_AT_SOCKETS_AFTER));
    }

    /// Wakes what the packets have not told to be waiting.
    fn look_at_sockets(&mut self) {
        self.look_at_sockets_at = None;
        // What cannot be found out is done without.
        let Ok(sockets) = self.sockets.connections() else { return };
        // Where there are many, that took a while.
        let now = clock::now();
        self.looked_at_sockets_at = now;
        self.path.set_now(now);
        self.stacks.iter_mut().for_each(|stack| stack.wake_outstanding(now, &sockets, &mut self.path));
    }

    /// Reads what the programs have noticed.
    fn hear(&mut self, now: Instant) {
        let Self { path, stacks, sockets, .. } = self;
        while let Some(notice) = path.next_notice() {
            match notice.report() {
                // Never later than now: the two clocks are one, but this is a promise of ours to what follows.
                Some(Report::Notice(connection, direction, told)) => {
                    let (at, family) = (notice.at().min(now), Family::of_connection(connection));
                    let control = &mut stacks[family.index()].control;
                    control.handle_notice(at, connection, direction, told, &mut path.of(family));
                }
                Some(Report::Incoming(connection)) => {
                    let family = Family::of_connection(connection);
                    let family = Some(family).filter(|_| !is_unheard(sockets, connection));
                    stacks.iter_mut().for_each(|stack| stack.note_incoming(now, family, path));
                }
                Some(Report::Arrived(connection)) => {
                    let family = Family::of_connection(connection);
                    stacks[family.index()].control.note_arrival(now, &mut path.of(family));
                }
                None => {}
            }
        }
        self.take_actions();
    }

    fn take_actions(&mut self) {
        for stack in &mut self.stacks {
            self.actions.extend(std::iter::from_fn(|| stack.control.poll_action()));
        }
    }

    /// Sends what is ready, as far as the link takes it: the last ACK of many is the one that counts, and nobody makes it anew.
    fn send(&mut self, now: Instant) {
        Family::BOTH.into_iter().for_each(|family| self.send_of(now, family));
        self.take_actions();
    }

    fn send_of(&mut self, now: Instant, family: Family) {
        let place = family.index();
        if self.stacks[place].outbox.is_blocked(now) {
            return;
        }
        // Packets come in over a link that was said to be down: it is up.
        if self.stacks[place].control.contradicts_down() {
            self.stacks[place].outbox.set_down(false);
        }
        let mut tries = 0;
        if let Some(Waiting { connection, injected, tries: so_far, .. }) = self.stacks[place].outbox.take() {
            tries = so_far;
            self.send_one(now, tries, connection, injected);
        }
        while !self.stacks[place].outbox.is_waiting()
            && let Some((connection, injected)) = self.stacks[place].control.poll_transmit()
        {
            self.send_one(now, tries, connection, injected);
        }
    }

    fn send_one(&mut self, now: Instant, tries: u32, connection: Connection, injected: Injected) {
        let refuses = self.stack(connection).outbox.refuses(injected.direction);
        let frame = self.frame(now, connection, injected.direction).filter(|_| !refuses);
        let Some(frame) = frame else {
            self.failures += 1;
            return;
        };
        let is_put_off = match self.injector.send(&injected, &frame[..self.interface.frame_len as usize]) {
            Ok(()) => return,
            Err(error) => {
                // The kernel tells of a carrier that is gone up to a second later.
                let may_pass = is_full(&error) && self.injector.has_carrier(&self.interface.name) != Some(false);
                let outbox = &mut self.stacks[Family::of_connection(connection).index()].outbox;
                may_pass && outbox.put_off(now, connection, injected, tries)
            }
        };
        self.failures += u64::from(!is_put_off);
    }

    /// The Ethernet header of the last packet of the connection that went the same way, with the addresses of now where they were
    /// learnt; `None` if the connection is gone.
    fn frame(&self, now: Instant, connection: Connection, direction: Direction) -> Option<[u8; FRAME_LEN]> {
        let flow = self.path.flow(connection)?;
        Some(match direction {
            Direction::Outgoing => {
                let mut frame = flow.frame(direction);
                // The router may be another one than before, and so may the host's own address.
                let next_hops = &self.stack(connection).next_hops;
                if let Some((destination, source)) = next_hops.addresses(now, connection.remote.ip()) {
                    frame[..6].copy_from_slice(&destination);
                    frame[6..12].copy_from_slice(&source);
                }
                frame
            }
            Direction::Incoming => flow.frame(direction),
        })
    }

    /// Forgets what is over, makes room, and finds out what the packets have not told.
    fn tend(&mut self, now: Instant) {
        let mut all: Vec<(Instant, Connection)> = Vec::new();
        let mut over = Vec::new();
        let mut unknown = BTreeMap::new();
        self.path.for_each(|connection, flow| {
            let seen_at = flow.seen_at();
            if (flow.is_over() || flow.is_unanswered()) && now.saturating_since(seen_at) >= LINGER {
                over.push(connection);
                return;
            }
            let lacks = BOTH.map(|direction| flow.half(direction).lacks_window_shift());
            if lacks.contains(&true) && unknown.len() < MOST_LEARNT {
                unknown.insert(connection, lacks);
            }
            // Evict closed and unanswered connections first.
            let is_idle_since = if flow.is_over() || flow.is_unanswered() { Instant::ZERO } else { seen_at };
            all.push((is_idle_since, connection));
        });
        let full = self.path.alone_full();
        if full != self.tended_full || all.len() >= self.options.most_connections as usize {
            self.tended_full = full;
            let evicted = all.len().div_ceil(EVICTED_PART);
            if evicted < all.len() {
                all.select_nth_unstable(evicted);
            }
            self.evicted += evicted as u64;
            over.extend(all.iter().take(evicted).map(|&(_, connection)| connection));
        }
        for connection in over {
            unknown.remove(&connection);
            self.path.forget(connection);
        }
        if !unknown.is_empty() {
            self.learn_window_shifts(now, &unknown);
        }
    }

    /// Connections that are older than the agent, and those that a peer has opened: the kernel knows what their SYNs said.
    fn learn_window_shifts(&mut self, now: Instant, unknown: &BTreeMap<Connection, [bool; 2]>) {
        // What cannot be found out is done without.
        let Ok(sockets) = self.sockets.connections() else { return };
        for socket in sockets {
            // What its peer will say is not known yet.
            if socket.info.tcpi_state == TcpState::SynSent {
                continue;
            }
            let Some(lacks) = unknown.get(&socket.connection) else { continue };
            let shifts = [socket.info.tcpi_rcv_wscale, socket.info.tcpi_snd_wscale];
            for ((direction, is_lacking), shift) in BOTH.into_iter().zip(lacks).zip(shifts) {
                if *is_lacking {
                    self.path.order(now, socket.connection, direction, Order::WindowShift(shift));
                }
            }
        }
    }
}

/// What is full now may have room later: the socket, or the interface's queue.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS))
}

/// Has the kernel count what eBPF programs cost, until the descriptor is closed.
///
/// # Errors
///
/// It needs CAP_SYS_ADMIN.
pub fn count_cost() -> io::Result<OwnedFd> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime).map_err(|error| error.io_error)
}

/// Releases held ACKs on drop, so that no sender is left waiting.
impl Drop for Engine {
    fn drop(&mut self) {
        let now = clock::now();
        self.path.set_now(now);
        self.hear(now);
        for stack in &mut self.stacks {
            stack.control.handle_end(now, &mut self.path.of(stack.family));
            // It may have been said to be down without being so, and nobody will be there to say this later.
            stack.outbox.set_down(false);
        }
        self.send(now);
    }
}

/// Readable when there is something to handle.
impl AsFd for Engine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

/// A descriptor that is readable when the programs have noticed something.
fn wait_for(path: &KernelPath) -> io::Result<OwnedFd> {
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&ready, path, EventData::new_u64(0), EventFlags::IN)?;
    Ok(ready)
}
