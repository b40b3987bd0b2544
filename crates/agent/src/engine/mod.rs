//! The engine: [`wake`](holdover_mobility::wake) for all TCP connections over one interface of this host.
//!
//! The eBPF programs (`bpf/path.bpf.c`) handle every packet; [`WakeControl`](holdover_mobility::wake::WakeControl) of
//! `mobility` makes the rare and slow decisions. An [`Engine`] connects the two: it reads the programs' notices, runs
//! the timers, and sends the resulting packets. No configuration is needed: connections are learnt from their packets,
//! including those older than the engine.
//!
//! It fails open. With tcx (Linux 6.6), programs and maps end with the process, however that ends; without, they stay
//! after SIGKILL until the next agent removes them ([`AttachMode::Clsact`]). 1.5 s after the process hangs or is
//! killed, the programs pass packets unchanged.
//!
//! The order of calls: [`Engine::handle_ready`] when its descriptor is readable, [`Engine::handle_absent`],
//! [`Engine::handle_link`], [`Engine::handle_timeout`]; then [`Engine::poll_action`] and [`Engine::poll_outcome`] until `None`, then
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
mod tending;
#[cfg(test)]
mod tests;
mod unheard;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use holdover_base::{Duration, Instant};
use holdover_flow::{FRAME_LEN, Report};
use holdover_mobility::wake::{PeerProbes, WakeConfig};
use holdover_mobility::{Action, Connection, Direction, Injected, LinkEvent, WakeOutcome};
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::link_watch::{Family, LinkChange};
use crate::sockets::SocketDiag;
use holdover_host::clock;
use inject::Injector;
use interface::Interface;
use lock::InterfaceLock;
use outbox::Waiting;
use path::{KernelPath, SentSegment};
use stack::Stack;
use unheard::is_unheard;

pub use attach::Attachable;
pub use connection_status::ConnectionStatus;
pub use error::{EngineError, Holder, MissingCapabilities};
pub use holdover_host::ebpf::{AttachError, AttachMode, AttachedBy};
pub use path::{Cost, Counters};
pub use served::KernelAttach;

/// Options of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineOptions {
    /// The mechanisms.
    pub wake: WakeConfig,
    /// The size of the connection table: less than 1.5 kB each. When it is full, connections that are over are evicted, and those idle
    /// for longest.
    pub most_connections: u32,
    /// How the programs are attached.
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
    /// Readable after a notice of the programs, or an answer of a neighbour.
    ready: OwnedFd,
    actions: VecDeque<Action>,
    renew_at: Instant,
    tend_at: Instant,
    /// When to read the kernel's retransmission timers, if that is pending.
    look_at_sockets_at: Option<Instant>,
    looked_at_sockets_at: Instant,
    tended_full: u64,
    peer_probes: PeerProbes,
    failures: u64,
    evicted: u64,
    /// Dropped after the programs, which precede it.
    lock: Option<InterfaceLock>,
}

/// The mark of the agent's own packets: "HO" and the direction.
const MARK_OUT: u32 = 0x484f_0001;
/// See [`MARK_OUT`].
const MARK_BACK: u32 = 0x484f_0002;

/// The interval at which the agent renews the expiry times of the links in the map.
const RENEW_EVERY: Duration = Duration::from_millis(400);

/// Reading all sockets of the kernel takes 2 us each: connections known to wait are woken first.
const LOOK_AT_SOCKETS_AFTER: Duration = Duration::from_millis(10);
/// The shortest interval between two readings.
const LOOK_AT_SOCKETS_EVERY: Duration = Duration::from_secs(1);

/// How often closed connections are removed, and window shifts of new ones looked up.
const TEND_EVERY: Duration = Duration::from_secs(5);

impl Engine {
    /// Attaches to an interface of the calling thread's network namespace. The engine may be used from any thread.
    ///
    /// # Errors
    ///
    /// See [`EngineError`].
    pub fn attach(interface: &str, options: &EngineOptions) -> Result<Self, EngineError> {
        let interface = Interface::find(interface)?;
        let rules = options.wake.rules().on_interface(interface.frame_len, MARK_OUT, MARK_BACK);
        let mut path = KernelPath::load(rules, options.most_connections)?;
        let injector = Injector::open(&interface)?;
        let mut sockets = SocketDiag::open_over(interface.index)?;
        // Loads the kernel module now, so that link-up does not wait for it. A lack of privileges is reported on use.
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
            peer_probes: PeerProbes::default(),
            failures: 0,
            evicted: 0,
            lock: None,
        })
    }

    /// Attaches to the new interface of the same name. The state of connections is kept.
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
        self.sockets = SocketDiag::open_over(interface.index)?;
        self.stacks.iter_mut().for_each(|stack| stack.own_segments.clear());
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

    /// Handles a change, or a predicted change, of the interface's link.
    pub fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        self.handle_change(now, LinkChange::of_both(event));
    }

    /// The same, for the connections of some IP versions.
    pub fn handle_change(&mut self, now: Instant, LinkChange { families, event }: LinkChange) {
        self.path.set_now(now);
        self.read_notices(now);
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

    /// Sets the host's own addresses that it has lost. Connections on one that is back while the link is up are woken.
    pub fn handle_absent(&mut self, now: Instant, absent: &BTreeSet<IpAddr>) {
        self.path.set_now(now);
        self.read_notices(now);
        for family in Family::BOTH {
            let absent = absent.iter().copied().filter(|&address| Family::of(address) == family).collect();
            let returned = self.stacks[family.index()].control.set_absent(now, &absent);
            if returned.is_empty() {
                continue;
            }
            self.look_at_sockets_soon(now);
            // The next hop may be known; it learns the address that is back before packets from there arrive.
            let is_unresolved = self.begin_resolution(now, family);
            self.resolve(now);
            let stack = &mut self.stacks[family.index()];
            if !is_unresolved {
                // This resolution, which has replaced that of the link's return, reports nothing.
                stack.control.handle_next_hop(now, &mut self.path.of(family));
            }
            stack.wake_returned(now, &returned, &mut self.sockets, &mut self.path);
        }
        self.send(now);
    }

    /// Handles its descriptor being readable.
    pub fn handle_ready(&mut self, now: Instant) {
        self.path.set_now(now);
        self.read_notices(now);
        self.resolve(now);
        self.send(now);
    }

    /// Handles deadlines that have passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.path.set_now(now);
        self.read_notices(now);
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
            for stack in &mut self.stacks {
                if self.path.is_calm(stack.family) {
                    stack.own_segments.forget_acknowledged(|connection| self.path.flow(connection));
                }
            }
            self.lock.iter().for_each(InterfaceLock::hang_up);
            // With a full table, new connections must not wait for the next interval.
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

    /// The next deadline; there always is one.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = [self.renew_at, self.tend_at].into_iter().chain(self.look_at_sockets_at);
        self.stacks.iter().filter_map(Stack::poll_timeout).chain(own).min()
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next outcome of waking a connection.
    pub fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        self.stacks.iter_mut().find_map(|stack| stack.control.poll_outcome())
    }

    /// The last refusal of the kernel since the last call, after creation: packets then pass unchanged.
    pub fn poll_error(&mut self) -> Option<EngineError> {
        self.path.take_refused()
    }

    /// The agent's packets that could not be sent.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// The connections over the interface, without closed ones.
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        let mut live = Vec::new();
        self.path.for_each(|connection, flow| {
            live.extend((!flow.is_over()).then(|| ConnectionStatus::of(connection, flow)))
        });
        live
    }

    /// The counters of the programs.
    pub fn counters(&self) -> Counters {
        self.path.counters()
    }

    /// The run time of the programs, while the kernel counts it ([`count_cost`]).
    pub fn cost(&mut self) -> Cost {
        self.path.cost()
    }

    /// Exempts a connection that has been seen, or ends the exemption.
    pub fn leave_alone(&mut self, connection: Connection, is_exempt: bool) {
        self.path.leave_alone(connection, is_exempt);
    }

    /// The stack of the connection's IP version.
    fn stack(&self, connection: Connection) -> &Stack {
        &self.stacks[Family::of_connection(connection).index()]
    }

    /// Handles link-up: begins to resolve next hops. Returns whether connections wait for that.
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
                    // Without a descriptor it is still read, with the next request.
                    let _ = epoll::add(&self.ready, socket, EventData::new_u64(0), EventFlags::IN);
                }
                is_unresolved
            }
            Err(error) => {
                tracing::debug!(interface = &*self.interface.name, %error, "cannot resolve next hops");
                false
            }
        }
    }

    /// Resolves next hops, and releases packets that wait for them.
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

    /// Wakes connections whose state only the kernel's sockets show.
    fn look_at_sockets(&mut self) {
        self.look_at_sockets_at = None;
        // Optional: ignore failures.
        let Ok(sockets) = self.sockets.connections() else { return };
        // With many connections that took a while.
        let now = clock::now();
        self.looked_at_sockets_at = now;
        self.path.set_now(now);
        self.stacks.iter_mut().for_each(|stack| stack.wake_outstanding(now, &sockets, &mut self.path));
    }

    /// Handles the notices of the programs.
    fn read_notices(&mut self, now: Instant) {
        let Self { path, stacks, sockets, .. } = self;
        while let Some(notice) = path.next_notice() {
            match notice.report() {
                // Never later than now: the two clocks are the same, but callees rely on it.
                Some(Report::Notice(connection, direction, event)) => {
                    let (at, family) = (notice.at().min(now), Family::of_connection(connection));
                    let control = &mut stacks[family.index()].control;
                    control.handle_notice(at, connection, direction, event, &mut path.of(family));
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
        self.read_copies();
        self.take_actions();
    }

    /// Keeps the host's segments that the programs have copied.
    fn read_copies(&mut self) {
        while let Some(SentSegment { packet, is_retransmission }) = self.path.next_copy() {
            self.stacks[Family::of(packet.src).index()].own_segments.note(&packet, is_retransmission);
        }
    }

    fn take_actions(&mut self) {
        for stack in &mut self.stacks {
            self.actions.extend(std::iter::from_fn(|| stack.control.poll_action()));
        }
    }

    /// Sends pending packets while the link accepts them. The last of several ACKs matters, and it is not repeated.
    fn send(&mut self, now: Instant) {
        Family::BOTH.into_iter().for_each(|family| self.send_of(now, family));
        self.take_actions();
    }

    fn send_of(&mut self, now: Instant, family: Family) {
        let place = family.index();
        if self.stacks[place].outbox.is_blocked(now) {
            return;
        }
        // Packets arrive over a link that was regarded as down: it is up.
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
            if let Some(injected) = self.with_own_data(now, connection, injected) {
                self.send_one(now, tries, connection, injected);
            }
        }
    }

    fn send_one(&mut self, now: Instant, tries: u32, connection: Connection, mut injected: Injected) {
        self.stack(connection).own_segments.raise_timestamp(connection, &mut injected);
        let refuses = self.stack(connection).outbox.refuses(injected.direction);
        let frame = self.frame(now, connection, injected.direction).filter(|_| !refuses);
        let Some(frame) = frame else {
            self.failures += 1;
            return;
        };
        let is_put_off = match self.injector.send(&injected, &frame[..self.interface.frame_len as usize]) {
            Ok(()) => return,
            Err(error) => {
                // The kernel reports a lost carrier up to a second late.
                let may_pass = is_full(&error) && self.injector.has_carrier(&self.interface.name) != Some(false);
                let outbox = &mut self.stacks[Family::of_connection(connection).index()].outbox;
                may_pass && outbox.put_off(now, connection, injected, tries)
            }
        };
        self.failures += u64::from(!is_put_off);
    }

    /// The Ethernet header of the connection's last packet in the same direction, with newly resolved addresses; `None`
    /// if the connection is gone.
    fn frame(&self, now: Instant, connection: Connection, direction: Direction) -> Option<[u8; FRAME_LEN]> {
        let flow = self.path.flow(connection)?;
        Some(match direction {
            Direction::Outgoing => {
                let mut frame = flow.frame(direction);
                // The router may have changed, and so may the host's own address.
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
}

/// The socket's or the interface's queue may have room later.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS))
}

/// Makes the kernel count the run time of eBPF programs, until the descriptor is closed.
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
        self.read_notices(now);
        for stack in &mut self.stacks {
            stack.control.handle_end(now, &mut self.path.of(stack.family));
            // The link may be up although it was reported down; no later code will release these.
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

/// A descriptor that is readable after notices of the programs.
fn wait_for(path: &KernelPath) -> io::Result<OwnedFd> {
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&ready, path, EventData::new_u64(0), EventFlags::IN)?;
    Ok(ready)
}
