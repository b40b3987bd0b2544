//! The subject of an experiment: the kernel over a TUN device, in wall-clock time, or the project's TCP in virtual time, with the same
//! set-up and the same scripted peer.

use core::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_tcp::{
    Config, Connection, ConnectionError, ConnectionId, Endpoint, EndpointConfig, Event, Profile, RetryLimit,
};

use super::action::LocalAction;
use super::peer::{PEER, PORT, Peer, SUBJECT, Sample, Script, Wire};
use crate::{
    Congestion, Counters, CountersError, KernelStream, Namespace, NamespaceError, PacketEndpoint, Shell, ShellError,
    SocketError, SocketOptions, Stopped, SysctlError, TcpInfo, Tun, TunConfig, TunError, WallClock, sysctl,
};

/// The subject of a run.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// The kernel, inside this namespace, with this congestion control.
    Kernel(&'a Namespace, Congestion),
    /// The project's TCP.
    Ours(Profile),
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(_, Congestion::Cubic) => f.write_str("kernel"),
            Self::Kernel(_, congestion) => write!(f, "kernel, {}", congestion.name()),
            Self::Ours(profile) => profile.fmt(f),
        }
    }
}

/// The set-up of the subject, and the actions of its application: it connects, writes data at the given times after that, and reads. `None`
/// stands for the kernel's default in a new namespace, and the profile's.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Setup {
    /// The times of writes, relative to the connection, and their lengths. Data beyond the send buffer waits.
    pub writes: Vec<(Duration, usize)>,
    /// Whether each write is sent separately, without Nagle.
    pub nodelay: bool,
    /// `tcp_retries2`.
    pub retries2: Option<u32>,
    /// `TCP_USER_TIMEOUT`.
    pub user_timeout: Option<Duration>,
    /// The ceiling of the retransmission timeout, for the host or for the socket.
    pub rto_max: Option<RtoMax>,
    /// `tcp_slow_start_after_idle`.
    pub slow_start_after_idle: Option<bool>,
}

/// The scope of a ceiling of the retransmission timeout (Linux 6.15 and later).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RtoMax {
    /// `net.ipv4.tcp_rto_max_ms`.
    Host(Duration),
    /// `TCP_RTO_MAX_MS`.
    Socket(Duration),
}

/// The result of a run.
#[derive(Debug)]
pub struct Observation {
    /// The wire, with all its packets.
    pub wire: Wire,
    /// The time and cause of the connection's failure, if it failed.
    pub ended: Option<Ended>,
    /// Retransmission timeouts.
    pub timeouts: i64,
    /// Undone reductions of the window.
    pub undos: i64,
    /// The kernel's counters; `None` in virtual time.
    pub counters: Option<Counters>,
}

/// The end of a connection that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// When the application was notified.
    pub at: Instant,
    /// Whether the cause was a timeout of TCP, rather than the peer.
    pub timed_out: bool,
}

/// A run failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the variants are the parts of the test bed")]
pub enum TrialError {
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    #[error(transparent)]
    Tun(#[from] TunError),
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    #[error(transparent)]
    Counters(#[from] CountersError),
    #[error(transparent)]
    Shell(#[from] ShellError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("reading or writing failed: {0}")]
    Io(#[from] io::Error),
    /// The endpoint in virtual time did not come to rest.
    #[error("livelock at {now}")]
    Livelock {
        /// The time at which it stopped advancing.
        now: Instant,
    },
    /// The measured event did not happen.
    #[error("the run did not show what was to be measured: {what}")]
    NotShown {
        /// The missing event.
        what: &'static str,
    },
}

/// Runs `script` against the subject, for `span` at most. `prepare` sets the wire up before.
pub fn run(
    subject: Subject<'_>,
    setup: &Setup,
    span: Duration,
    prepare: impl FnOnce(&mut Wire),
    script: impl Script,
) -> Result<Observation, TrialError> {
    let mut peer = Peer::new(script);
    prepare(&mut peer.wire);
    match subject {
        Subject::Kernel(namespace, congestion) => run_with_kernel(namespace, congestion, setup, span, peer),
        Subject::Ours(profile) => run_with_ours(profile, setup, span, peer),
    }
}

fn run_with_kernel<S: Script>(
    namespace: &Namespace,
    congestion: Congestion,
    setup: &Setup,
    span: Duration,
    mut peer: Peer<S>,
) -> Result<Observation, TrialError> {
    set_up_host(namespace, setup)?;
    let tun = Tun::open(namespace, &TunConfig::new("tun0", 1500).address(SUBJECT, 24))?;
    let before = Counters::read(namespace)?;
    let mut shell = Shell::new(&tun)?;
    let end = Instant::ZERO + span;
    let side = KernelSide {
        namespace,
        setup,
        clock: shell.clock(),
        end,
        options: SocketOptions {
            nodelay: setup.nodelay,
            user_timeout: setup.user_timeout,
            io_timeout: POLL,
            ..SocketOptions::new(congestion)
        },
        stream: OnceLock::new(),
        ended: Mutex::new(None),
        is_over: AtomicBool::new(false),
    };
    let mut failed_action = None;
    let turn = |now: Instant, peer: &mut Peer<S>| {
        while peer.wire.take_due_sample() {
            let info = side.stream.get().and_then(|stream| stream.tcp_info().ok());
            peer.wire.samples.extend(info.map(|info| sample(now, &info)));
        }
        for action in peer.wire.actions.drain(..) {
            let result = side.stream.get().map_or(Ok(()), |stream| act(stream, action));
            failed_action = failed_action.take().or(result.err());
        }
        if peer.wire.finish_at.is_some_and(|at| at <= now) {
            side.is_over.store(true, Ordering::Relaxed);
        }
    };
    match shell.run_beside(&mut peer, span + Duration::from_secs(10), turn, || side.run())? {
        Stopped::ByApplication(result) => result?,
        Stopped::AtDeadline => return Err(TrialError::NotShown { what: "the end of the kernel's application" }),
    }
    if let Some(error) = failed_action {
        return Err(error.into());
    }
    let counters = Counters::read(namespace)?.since(&before);
    let count = |names: &[&str]| names.iter().filter_map(|name| counters.get(&format!("TcpExt{name}"))).sum();
    Ok(Observation {
        ended: side.ended.into_inner().unwrap_or_else(PoisonError::into_inner),
        timeouts: count(&["TCPTimeouts"]),
        undos: count(&["TCPFullUndo", "TCPPartialUndo", "TCPDSACKUndo", "TCPLossUndo"]),
        counters: Some(counters),
        wire: peer.wire,
    })
}

fn set_up_host(namespace: &Namespace, setup: &Setup) -> Result<(), TrialError> {
    if let Some(retries) = setup.retries2 {
        sysctl::set(namespace, "net.ipv4.tcp_retries2", &retries.to_string())?;
    }
    if let Some(RtoMax::Host(max)) = setup.rto_max {
        sysctl::set(namespace, "net.ipv4.tcp_rto_max_ms", &max.as_millis().to_string())?;
    }
    if let Some(is_on) = setup.slow_start_after_idle {
        sysctl::set(namespace, "net.ipv4.tcp_slow_start_after_idle", if is_on { "1" } else { "0" })?;
    }
    Ok(())
}

fn sample(at: Instant, info: &TcpInfo) -> Sample {
    let ssthresh = Some(info.tcpi_snd_ssthresh).filter(|ssthresh| *ssthresh < TCP_INFINITE_SSTHRESH);
    Sample { at, cwnd: info.tcpi_snd_cwnd, ssthresh, rto: info.tcpi_rto }
}

/// `net/tcp.h`.
const TCP_INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

fn act(stream: &KernelStream, action: LocalAction) -> Result<(), SocketError> {
    match action {
        LocalAction::Repair => stream.set_repair(true).and_then(|()| stream.set_repair(false)),
        LocalAction::UserTimeout(timeout) => stream.set_user_timeout(timeout),
        LocalAction::RtoMax(max) => stream.set_rto_max(max),
        LocalAction::NoDelay => stream.set_nodelay(false).and_then(|()| stream.set_nodelay(true)),
        LocalAction::Congestion(congestion) => stream.set_congestion(congestion),
    }
}

/// How long a call on the socket waits before it checks for the end of the run.
const POLL: Duration = Duration::from_millis(50);

/// The application on the kernel's side.
struct KernelSide<'a> {
    namespace: &'a Namespace,
    setup: &'a Setup,
    clock: WallClock,
    end: Instant,
    options: SocketOptions,
    /// For readers of the socket's state while the application uses it.
    stream: OnceLock<KernelStream>,
    ended: Mutex<Option<Ended>>,
    is_over: AtomicBool,
}

impl KernelSide<'_> {
    fn run(&self) -> Result<(), SocketError> {
        let span = self.end.saturating_since(self.clock.now());
        let stream = match KernelStream::connect(self.namespace, SocketAddr::new(PEER, PORT), &self.options, span) {
            Ok(stream) => stream,
            // The peer may not answer deliberately.
            Err(SocketError::TimedOut { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        if let Some(RtoMax::Socket(max)) = self.setup.rto_max {
            stream.set_rto_max(max)?;
        }
        let connected_at = self.clock.now();
        let (mut reader, mut writer) = (stream.try_clone()?, stream.try_clone()?);
        // Only this thread sets it.
        let _ = self.stream.set(stream.try_clone()?);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut buffer = vec![0; 65_536];
                while self.is_running() {
                    match reader.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(_) => {}
                        Err(error) => self.note_end(&error),
                    }
                }
            });
            for &(after, len) in &self.setup.writes {
                self.wait_until(connected_at + after);
                self.write(&mut writer, len);
            }
        });
        self.wait_until(self.end);
        stream.abort()
    }

    fn is_running(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed) && self.clock.now() < self.end
    }

    fn wait_until(&self, at: Instant) {
        while self.is_running() && self.clock.now() < at {
            std::thread::sleep(at.saturating_since(self.clock.now()).min(POLL).into());
        }
    }

    /// Writes `len` bytes, or as many as fit during the run.
    fn write(&self, stream: &mut KernelStream, len: usize) {
        let bytes = vec![b'x'; len.min(1 << 20)];
        let mut left = len;
        while left > 0 && self.is_running() {
            match stream.write(&bytes[..left.min(bytes.len())]) {
                Ok(written) => left -= written,
                Err(error) => self.note_end(&error),
            }
        }
    }

    /// An error of the connection, other than a timeout of a call on the socket, ends the run.
    fn note_end(&self, error: &io::Error) {
        // The timeout of a call has no error number: `KernelStream` has replaced the kernel's.
        if error.raw_os_error().is_none() && error.kind() == io::ErrorKind::TimedOut {
            return;
        }
        let ended = Ended { at: self.clock.now(), timed_out: error.kind() == io::ErrorKind::TimedOut };
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(ended);
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The most steps that an experiment in virtual time may take.
const STEP_CAP: u32 = 4_000_000;

fn run_with_ours<S: Script>(
    profile: Profile,
    setup: &Setup,
    span: Duration,
    mut peer: Peer<S>,
) -> Result<Observation, TrialError> {
    let mut now = Instant::ZERO;
    let mut ours = OurSide::connect(now, profile, setup);
    let end = now + span;
    let mut steps = 0;
    loop {
        steps += 1;
        if steps == STEP_CAP {
            return Err(TrialError::Livelock { now });
        }
        ours.handle_events(now);
        let writes_at = ours.turn(now, &mut peer.wire);
        if exchange(now, &mut ours.endpoint, &mut peer).is_continue() {
            continue;
        }
        let next = [ours.endpoint.poll_timeout(), peer.poll_timeout(), writes_at].into_iter().flatten().min();
        let end = peer.wire.finish_at.map_or(end, |at| at.min(end));
        match next.filter(|next| *next <= end && ours.ended.is_none()) {
            Some(next) => now = now.max(next),
            None => break,
        }
        if Endpoint::poll_timeout(&ours.endpoint).is_some_and(|at| at <= now) {
            ours.endpoint.handle_timeout(now);
        }
        if peer.poll_timeout().is_some_and(|at| at <= now) {
            peer.handle_timeout(now);
        }
    }
    let connection = ours.endpoint.connection(ours.id);
    let counters = connection.map(|connection| connection.counters().clone()).unwrap_or_default();
    Ok(Observation {
        ended: ours.ended,
        timeouts: counters.timeouts.into(),
        undos: counters.undos.into(),
        counters: None,
        wire: peer.wire,
    })
}

/// The project's TCP, and the application of its connection.
struct OurSide {
    endpoint: Endpoint,
    id: ConnectionId,
    /// Writes to come, the last one first.
    writes: Vec<(Duration, usize)>,
    connected_at: Option<Instant>,
    ended: Option<Ended>,
}

impl OurSide {
    fn connect(now: Instant, profile: Profile, setup: &Setup) -> Self {
        let mut endpoint = Endpoint::new(EndpointConfig { addresses: vec![SUBJECT], secret: [1; 16] });
        let id = endpoint
            .connect(now, Arc::new(configured(profile, setup)), None, SocketAddr::new(PEER, PORT))
            .expect("the first connection of an endpoint with an address");
        let writes = setup.writes.iter().rev().copied().collect();
        Self { endpoint, id, writes, connected_at: None, ended: None }
    }

    fn handle_events(&mut self, now: Instant) {
        while let Some((_, event)) = self.endpoint.poll_event() {
            match event {
                Event::Connected => self.connected_at = Some(now),
                Event::Closed => {
                    let error = self.endpoint.connection(self.id).and_then(Connection::error);
                    self.ended = Some(Ended { at: now, timed_out: error.is_some_and(is_timeout) });
                }
                _ => {}
            }
        }
    }

    /// Reads everything, writes due data and takes due samples. Returns when the next write is due, unless it is due now.
    fn turn(&mut self, now: Instant, wire: &mut Wire) -> Option<Instant> {
        let connection = self.endpoint.connection_mut(self.id)?;
        let connected_at = self.connected_at?;
        while connection.read(now).is_some() {}
        let writes_at = write_due(now, connection, connected_at, &mut self.writes);
        while wire.take_due_sample() {
            wire.samples.push(Sample {
                at: now,
                cwnd: connection.cwnd(),
                ssthresh: connection.ssthresh(),
                rto: connection.rto(),
            });
        }
        writes_at
    }
}

/// Writes due data, as far as it fits. Returns when the next write is due, unless it is due now.
fn write_due(
    now: Instant,
    connection: &mut Connection,
    connected_at: Instant,
    writes: &mut Vec<(Duration, usize)>,
) -> Option<Instant> {
    while let Some((after, len)) = writes.last_mut() {
        if connected_at + *after > now {
            return Some(connected_at + *after);
        }
        // An ACK makes room in the buffer, and then this function is called again.
        *len -= connection.write(now, Bytes::from(vec![b'x'; (*len).min(connection.write_room())]));
        if *len > 0 {
            return None;
        }
        writes.pop();
    }
    None
}

/// The profile with the changes of the set-up.
fn configured(profile: Profile, setup: &Setup) -> Config {
    let mut config = profile.config();
    config.send.nagle = !setup.nodelay;
    if let Some(retries) = setup.retries2 {
        config.limits.r2 = RetryLimit::LinuxTime(retries);
        config.persist.give_up_after = Some(retries);
    }
    if setup.user_timeout.is_some() {
        config.user_timeout.timeout = setup.user_timeout;
    }
    if let Some(RtoMax::Host(max) | RtoMax::Socket(max)) = setup.rto_max {
        config.rto.max = max;
        config.persist.max = max;
    }
    if let Some(is_on) = setup.slow_start_after_idle {
        config.congestion.validate_after_idle = is_on;
    }
    config
}

fn is_timeout(error: ConnectionError) -> bool {
    matches!(error, ConnectionError::TimedOut | ConnectionError::UserTimeout | ConnectionError::ProbesUnanswered)
}

/// Exchanges packets in both directions, one at a time, like a kernel that answers each before it accepts the next; continues until none is
/// left.
fn exchange(now: Instant, ours: &mut Endpoint, peer: &mut impl PacketEndpoint) -> ControlFlow<()> {
    let mut moved = ControlFlow::Break(());
    loop {
        while let Some(outgoing) = ours.poll_transmit(now) {
            peer.handle_packet(now, outgoing.packet);
            moved = ControlFlow::Continue(());
        }
        let Some(packet) = peer.poll_transmit(now) else { return moved };
        Endpoint::handle_packet(ours, now, &packet);
        moved = ControlFlow::Continue(());
    }
}
