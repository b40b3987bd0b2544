//! The daemon: one poll loop around [`Core`], and threads that encrypt and decrypt for it.
//!
//! It ends on SIGTERM, SIGINT and `holdover hip down`, and reloads the file of peers on SIGHUP. However it ends, its
//! TUN device ends with it. Connections of programs stay: their addresses are HITs, which exist again with the next
//! daemon.

mod addresses;
mod ancillary;
mod kernel_sockets;
mod key_file;
mod sending;
mod sockets;
mod workers;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use bytes::BytesMut;
use holdover_base::{Duration, Instant};
use holdover_hip::host::{Event, HostConfig, RekeyLimits, ServerConfig};
use holdover_host::control_line;
use holdover_host::control_socket::{ControlSocketError, Ownership, Requesters, listen, requesters};
use holdover_host::offload::{Joiner, segments};
use holdover_host::poll_loop::{self, Interests, PollLoop, SignalInput, WaitError};
use holdover_host::privileges::{CapabilitySet, drop_all_but};
use holdover_host::scrape::{self, Scrapes};
use holdover_host::{Namespace, NamespaceError, Tun, TunConfig, TunError, clock};

use holdover_wire::Packet;

use self::addresses::Addresses;
pub(crate) use self::addresses::{ELSEWHERE, source_for};
pub(crate) use self::kernel_sockets::SocketDiag;
use self::key_file::KeyFile;
use self::sockets::Sockets;
use self::workers::Workers;
use crate::control::{Request, Response};
use crate::core::{Core, CoreConfig, LsiPrefix, Note};
use crate::files::{IdentityFileError, Peers, PeersFileError, Serves, read_identity};
use crate::metrics;
use crate::random::SystemRandom;
use crate::status::Status;

/// The daemon's parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The directory of identity and peers.
    pub directory: PathBuf,
    /// The control socket.
    pub socket: PathBuf,
    /// The name of the TUN device.
    pub interface: String,
    /// Its MTU, in bytes.
    pub mtu: u32,
    /// The prefix of peers' addresses for programs with IPv4 only; `None` for none.
    pub lsis: Option<LsiPrefix>,
    /// Whether TCP is woken after a move.
    pub wake: bool,
    /// Whether unknown hosts may open associations.
    pub accept_unknown: bool,
    /// This host's services for its peers.
    pub serves: Option<Serves>,
    /// How long keys are used.
    pub rekey: RekeyLimits,
    /// A file for the keys of ESP, for Wireshark.
    pub esp_keys: Option<PathBuf>,
    /// The address of the endpoint for Prometheus.
    pub metrics: Option<SocketAddr>,
}

/// The daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// No usable key.
    #[error(transparent)]
    Identity(#[from] IdentityFileError),
    /// No usable file of peers.
    #[error(transparent)]
    Peers(#[from] PeersFileError),
    /// A privilege is missing.
    #[error("{what} need {capability}: sudo, or the service of dist/holdover-hip.service")]
    NotPermitted {
        /// The operation.
        what: &'static str,
        /// The capability.
        capability: &'static str,
    },
    /// There is no device for TUN interfaces.
    #[error(
        "{} is missing: modprobe tun; in a container, pass it in (--device /dev/net/tun)",
        holdover_host::tun::DEVICE_NAME
    )]
    NoTun,
    /// The TUN device cannot be created.
    #[error("cannot create the TUN device")]
    Tun(#[from] TunError),
    /// The namespace is unknown.
    #[error("cannot determine the network namespace")]
    Namespace(#[from] NamespaceError),
    /// The control socket is not available.
    #[error(transparent)]
    Control(#[from] ControlSocketError),
    /// The file for keys cannot be written.
    #[error("{}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Metrics cannot be served there.
    #[error("cannot serve metrics at {address}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// A socket towards the network failed.
    #[error("cannot open sockets for HIP and ESP")]
    Sockets(#[source] io::Error),
    /// Kernel notifications about addresses are not available.
    #[error("cannot follow addresses and routes")]
    Addresses(#[source] io::Error),
    /// The kernel cannot be asked about sockets, which LSIs need.
    #[error("cannot query sockets (sock_diag), which addresses for IPv4 programs need (--no-lsi)")]
    SocketDiag(#[source] io::Error),
    /// The threads that encrypt cannot be started.
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
    /// Signal handlers cannot be installed.
    #[error("cannot handle signals")]
    Signals(#[source] io::Error),
    /// `poll(2)` failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// Unneeded privileges could not be dropped.
    #[error("cannot drop privileges")]
    Privileges(#[source] io::Error),
}

/// Reads of the TUN device, and of each socket, in one round.
const BATCH: usize = 16;
/// Packets of a socket in one round, unless the last read returns more: timers are not to wait for long.
const MOST_PACKETS: usize = 1024;
/// How many packets of programs the kernel queues before it drops more.
const TX_QUEUE_LEN: u32 = 1000;
/// Bits of the prefix of HITs: 2001:20::/28 (RFC 7343 section 2) is reached by the TUN device.
const HIT_PREFIX_LEN: u8 = 28;
/// How long to wait for peers to confirm the end of associations.
const CLOSING: Duration = Duration::from_secs(1);
/// The capabilities kept: for the TUN device and raw sockets.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// The daemon.
pub struct Daemon {
    core: Core,
    setup: Setup,
    tun: Tun,
    sockets: Sockets,
    workers: Workers,
    addresses: Addresses,
    control: Requesters,
    metrics: Option<Scrapes>,
    /// Dropped after the TUN device: the next daemon finds its name free.
    _ownership: Ownership,
    stop: SignalInput,
    reload: SignalInput,
    /// It is stopping, and ends by then at the latest.
    ends_at: Option<Instant>,
    started: Instant,
    /// Packets that were not delivered to programs, and invalid ones.
    not_sent: u64,
    not_read: u64,
    key_file: Option<KeyFile>,
    inner_buffer: BytesMut,
    /// Segments for programs that are passed to the kernel as one packet.
    joiner: Joiner,
    /// Packets of the network that are being read.
    received: Vec<Packet>,
    /// A peer was found elsewhere.
    is_elsewhere: bool,
}

/// The purpose of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token {
    /// Stop.
    Stop,
    /// Reload the file of peers.
    Reload,
    /// The kernel reports about addresses and routes.
    Addresses,
    /// The control socket and its sessions.
    Control,
    /// The endpoint for Prometheus and its sessions.
    Metrics,
    /// Programs send packets.
    Tun,
    /// The network sends packets to the socket of this number.
    Socket(usize),
}

impl Daemon {
    /// Opens everything.
    ///
    /// # Errors
    /// Something essential is missing.
    pub fn open(setup: Setup) -> Result<Self, DaemonError> {
        let keys = read_identity(&setup.directory)?;
        let peers = Peers::read(&setup.directory)?;
        // Before anything that would have to be cleaned up.
        let stop = SignalInput::stop().map_err(DaemonError::Signals)?;
        let reload = SignalInput::reload().map_err(DaemonError::Signals)?;
        let (listener, ownership) = listen(&setup.socket)?;
        let sockets = Sockets::open()?;
        let key_file = setup.esp_keys.as_deref().map(KeyFile::open).transpose()?;
        let tun = open_tun(&setup, keys.hit().0.into())?;
        drop_all_but(KEPT).map_err(|errno| DaemonError::Privileges(errno.into()))?;
        let addresses = Addresses::open().map_err(DaemonError::Addresses)?;
        let defaults = CoreConfig::default();
        let host = HostConfig {
            accept_unknown_peers: setup.accept_unknown,
            rekey: Some(setup.rekey),
            server: setup.serves.map(|serves| ServerConfig::new(serves.services())),
            // Greater than in every earlier run, as long as calendar time does not go back.
            r1_counter: clock::utc().0.as_nanos() / 1_000_000_000,
            ..defaults.host
        };
        let config = CoreConfig { host, wake: defaults.wake.filter(|_| setup.wake), ..defaults };
        let mut core = Core::new(keys, config, Box::new(SystemRandom));
        if let Some(prefix) = setup.lsis {
            core.use_lsis(prefix, Box::new(socket_diag(tun.name()).map_err(DaemonError::SocketDiag)?));
        }
        let workers = Workers::start(sockets.senders()).map_err(DaemonError::Threads)?;
        let now = clock::now();
        let mut daemon = Self {
            core,
            tun,
            sockets,
            addresses,
            control: requesters(listener),
            metrics: setup.metrics.map(listen_for_scrapes).transpose()?,
            _ownership: ownership,
            stop,
            reload,
            ends_at: None,
            started: now,
            not_sent: 0,
            not_read: 0,
            key_file,
            inner_buffer: BytesMut::new(),
            joiner: Joiner::default(),
            workers,
            received: Vec::new(),
            is_elsewhere: false,
            setup,
        };
        daemon.core.set_peers(now, &peers);
        daemon.look_at_addresses(now)?;
        Ok(daemon)
    }

    /// Runs until it is stopped.
    ///
    /// # Errors
    /// Something essential has failed.
    pub fn run(mut self) -> Result<(), DaemonError> {
        tracing::info!(hit = %self.core.hit(), interface = self.tun.name(), addresses = ?self.core.locators(), "up");
        if self.core.locators().is_empty() {
            tracing::warn!("no address, as there is no default route: peers cannot be called until there is one");
        }
        self.flush();
        let result = poll_loop::run(&mut self);
        tracing::info!("down");
        result
    }

    fn begin_to_end(&mut self, now: Instant) {
        if self.ends_at.is_none() {
            self.ends_at = Some(now + CLOSING);
            self.core.close_all(now);
        }
    }

    fn read_peers(&mut self, now: Instant) -> Result<(), DaemonError> {
        let peers = Peers::read(&self.setup.directory)?;
        self.core.set_peers(now, &peers);
        tracing::info!(peers = peers.iter().count(), "peers read");
        self.look_at_addresses(now)
    }

    fn look_at_addresses(&mut self, now: Instant) -> Result<(), DaemonError> {
        let peers = self.core.peer_addresses();
        let locators = self.addresses.look(&peers, self.core.lsi()).map_err(DaemonError::Addresses)?;
        if locators != self.core.locators() {
            tracing::info!(addresses = ?locators, "addresses of this host");
            self.core.set_locators(now, &locators);
        }
        Ok(())
    }

    fn take_inner(&mut self, now: Instant) -> Result<(), DaemonError> {
        for _ in 0..BATCH {
            match self.tun.recv_offloaded(&mut self.inner_buffer) {
                Ok(Some((offload, bytes))) => match segments(offload, offload.complete_unless_tcp(bytes)) {
                    Ok(packets) => packets.for_each(|packet| self.core.handle_inner(now, packet)),
                    Err(_) => self.not_read += 1,
                },
                Ok(None) | Err(TunError::Down { .. }) => break,
                Err(error) => return Err(error.into()),
            }
            self.send();
        }
        self.flush();
        Ok(())
    }

    /// Reads packets of a socket. While those of one system call are decrypted, those of the last one go to programs.
    fn take_outer(&mut self, now: Instant, index: usize) {
        let mut received = core::mem::take(&mut self.received);
        let mut count = 0;
        for _ in 0..BATCH {
            let (is_more, invalid) = self.sockets.receive(index, &mut received);
            self.not_read += invalid;
            count += received.len();
            let before = self.workers.opening();
            self.begin(now, &mut received);
            for _ in 0..before {
                self.finish_opened(now);
            }
            self.flush();
            if !is_more || count >= MOST_PACKETS {
                break;
            }
        }
        self.finish_all_opened(now);
        self.flush();
        self.received = received;
    }

    /// Begins to decrypt packets, and handles those of HIP.
    fn begin(&mut self, now: Instant, received: &mut Vec<Packet>) {
        let mut packets = received.drain(..).peekable();
        while packets.peek().is_some() {
            let core = &mut self.core;
            let data = core::iter::from_fn(|| packets.next_if(|packet| !Core::is_control(packet)));
            self.workers.open(data.filter_map(|packet| core.begin_network(now, packet)));
            if let Some(control) = packets.next() {
                self.finish_all_opened(now);
                self.core.handle_network(now, control);
            }
        }
    }

    /// Handles the packets of the oldest job.
    fn finish_opened(&mut self, now: Instant) {
        for decrypted in self.workers.take_opened().unwrap_or_default() {
            self.core.finish_network(now, decrypted);
        }
    }

    fn finish_all_opened(&mut self, now: Instant) {
        while self.workers.opening() > 0 {
            self.finish_opened(now);
        }
    }

    /// Sends the core's packets to the network.
    fn send(&mut self) {
        let core = &mut self.core;
        self.workers.seal(core::iter::from_fn(|| core.poll_outgoing()));
    }

    /// Sends the core's packets to the network and to programs.
    fn flush(&mut self) {
        self.send();
        while let Some(packet) = self.core.poll_inner() {
            if let Some(packet) = self.joiner.push(packet) {
                self.deliver_joined();
                // It is the first packet of a new batch, and accepted.
                let _ = self.joiner.push(packet);
            }
        }
        self.deliver_joined();
        while let Some(note) = self.core.poll_note() {
            self.is_elsewhere |= matches!(note.event, Event::PeerReaddressed { .. } | Event::Established { .. });
            write_down(&note);
            if let Event::Established { peer, .. } | Event::Rekeyed { peer } = &note.event
                && let (Some(file), Some(keys)) = (&mut self.key_file, self.core.esp_keys(*peer))
            {
                file.add(&keys);
            }
        }
    }

    /// Passes the joined packet to the kernel, which may drop it.
    fn deliver_joined(&mut self) {
        let delivered = match self.joiner.joined() {
            Ok(None) => return,
            Ok(Some(joined)) => self.tun.send_offloaded(joined.offload, &joined.pieces).is_ok(),
            Err(_) => false,
        };
        self.not_sent += u64::from(!delivered);
        self.joiner.clear();
    }

    fn serve_control(&mut self, now: Instant) {
        for (caller, question) in self.control.handle_ready(now) {
            let answer = match control_line::parse(&question) {
                Ok(Request::Status) => Response::Status(Box::new(self.status(now))),
                Ok(Request::Reload) => match self.read_peers(now) {
                    Ok(()) => Response::Done,
                    Err(error) => Response::Refused { message: error.to_string() },
                },
                Ok(Request::Down) => {
                    self.begin_to_end(now);
                    Response::Done
                }
                Err(error) => Response::from(error),
            };
            self.control.answer(now, caller, &control_line::write(&answer), false);
        }
    }

    fn serve_metrics(&mut self, now: Instant) {
        let Some(mut metrics) = self.metrics.take() else { return };
        metrics.handle_ready(now, || metrics::encode_status(&self.status(now)));
        self.metrics = Some(metrics);
    }

    fn status(&self, now: Instant) -> Status {
        let mut counters = *self.core.counters();
        (counters.not_sent, counters.not_read) = (self.not_sent + self.workers.not_sent(), self.not_read);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            running_s: now.saturating_since(self.started).as_secs_f64(),
            hit: self.core.hit().to_string(),
            lsi: self.core.lsi(),
            interface: self.tun.name().to_owned(),
            addresses: self.core.locators().to_vec(),
            udp: self.sockets.has_udp(),
            wake: self.setup.wake,
            serves: self.setup.serves,
            clients: self.core.clients().0 as u64,
            peers: self.core.peer_status(),
            counters,
        }
    }
}

impl PollLoop for Daemon {
    type Token = Token;
    type Error = DaemonError;

    fn interests(&self) -> Interests<'_, Token> {
        let mut interests = Interests::new();
        interests.add_readable(Token::Stop, [self.stop.descriptor()]);
        interests.add_readable(Token::Reload, [self.reload.descriptor()]);
        interests.add_readable(Token::Addresses, [self.addresses.as_fd()]);
        interests.add_sessions(Token::Control, &self.control);
        if let Some(metrics) = &self.metrics {
            interests.add_sessions(Token::Metrics, metrics.sessions());
        }
        for (index, socket) in self.sockets.descriptors().enumerate() {
            interests.add_readable(Token::Socket(index), [socket]);
        }
        interests.add_readable(Token::Tun, [self.tun.as_fd()]);
        interests.add_deadlines(self.core.poll_timeout().into_iter().chain(self.ends_at));
        interests
    }

    fn handle_ready(&mut self, now: Instant, ready: Vec<Token>) -> Result<ControlFlow<()>, DaemonError> {
        for token in ready {
            match token {
                Token::Stop => {
                    self.stop.clear();
                    self.begin_to_end(now);
                }
                Token::Reload => {
                    self.reload.clear();
                    if let Err(error) = self.read_peers(now) {
                        tracing::error!(%error, "invalid file of peers; keeping the current peers");
                    }
                }
                Token::Addresses => {
                    self.addresses.take_news();
                    self.look_at_addresses(now)?;
                }
                Token::Control => self.serve_control(now),
                Token::Metrics => self.serve_metrics(now),
                Token::Tun => self.take_inner(now)?,
                Token::Socket(index) => self.take_outer(now, index),
            }
        }
        self.core.handle_timeout(now);
        self.flush();
        if core::mem::take(&mut self.is_elsewhere) {
            // A peer has moved: the route to it may have another source address.
            self.look_at_addresses(now)?;
            self.flush();
        }
        self.control.hang_up(now);
        if let Some(metrics) = &mut self.metrics {
            metrics.handle_timeout(now);
        }
        let goes_on = self.ends_at.is_none_or(|at| now < at && self.core.is_closing());
        Ok(if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }
}

fn listen_for_scrapes(address: SocketAddr) -> Result<Scrapes, DaemonError> {
    scrape::listen(address).map_err(|source| DaemonError::Metrics { address, source })
}

/// The socket queries for an interface.
fn socket_diag(interface: &str) -> io::Result<SocketDiag> {
    let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let diag = SocketDiag::open(rustix::net::netdevice::name_to_index(&any, interface)?)?;
    for protocol in diag.silent() {
        tracing::warn!(
            protocol,
            "the kernel does not report sockets of this protocol (modprobe tcp_diag udp_diag): connections from peers do not reach IPv4 programs"
        );
    }
    Ok(diag)
}

/// Whether this process may open the network sockets; closes them again.
pub(crate) fn probe_sockets() -> Result<(), String> {
    Sockets::open().map(|_| ()).map_err(|error| holdover_host::log::with_causes(&error))
}

fn open_tun(setup: &Setup, hit: IpAddr) -> Result<Tun, DaemonError> {
    let config = TunConfig { tx_queue_len: TX_QUEUE_LEN, offload: true, ..TunConfig::new(&setup.interface, setup.mtu) };
    let config = config.address(hit, HIT_PREFIX_LEN);
    let config = match setup.lsis {
        Some(prefix) => config.address(prefix.own(), prefix.prefix_len()),
        None => config,
    };
    Tun::open(&Namespace::current()?, &config).map_err(|error| match &error {
        TunError::Refused { source, .. } if source.kind() == io::ErrorKind::NotFound => DaemonError::NoTun,
        TunError::Refused { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            DaemonError::NotPermitted { what: "TUN devices", capability: "CAP_NET_ADMIN" }
        }
        _ => error.into(),
    })
}

fn write_down(note: &Note) {
    match &note.event {
        Event::Established { peer, initiator } => tracing::info!(%peer, initiator, "association established"),
        Event::Failed { peer, reason } => tracing::warn!(%peer, %reason, "no association"),
        Event::Closed { peer } => tracing::info!(%peer, "association closed"),
        Event::Readdressed { peer, address } => match note.after {
            Some(after) => {
                tracing::info!(%peer, %address, after_ms = after.as_secs_f64() * 1e3, "the peer has verified this address")
            }
            None => tracing::debug!(%peer, %address, "the peer has verified this address"),
        },
        Event::PeerMoved { peer, address } => tracing::debug!(%peer, %address, "the peer has announced its address"),
        Event::PeerReaddressed { peer, address } => tracing::info!(%peer, %address, "the peer's address is verified"),
        Event::Rekeyed { peer } => tracing::info!(%peer, "keys changed"),
        Event::GaveUp { peer } => tracing::warn!(%peer, "no answer to UPDATE; retrying later"),
        Event::Registered { peer, services, lifetime, seen_at } => {
            tracing::info!(%peer, ?services, lifetime_s = lifetime.as_secs_f64(), ?seen_at, "registered");
        }
        Event::RegistrationFailed { peer, failure } => {
            tracing::warn!(%peer, failure, "the server has refused a service (RFC 8003 section 4.5)");
        }
        Event::PeerCandidate { peer, address, port } => {
            tracing::debug!(%peer, %address, port, "the relay has reported the peer's address");
        }
        Event::Notified { peer, notification } => tracing::info!(%peer, ?notification, "NOTIFY"),
    }
}
