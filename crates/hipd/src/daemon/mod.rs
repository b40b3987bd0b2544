//! The daemon: one poll loop around [`Identities`], and threads that encrypt and decrypt for it.
//!
//! It ends on SIGTERM, SIGINT and `holdover hip down`, and reloads its files on SIGHUP. However it ends, its
//! TUN devices end with it; with a proxy, a rule and a route stay, which refuse its hosts' packets to peers. Connections of programs stay: their addresses are HITs, which exist again with the next
//! daemon.

mod addresses;
mod ancillary;
mod device;
mod error;
mod event_log;
mod forwarded;
mod fragment_ids;
mod kernel_sockets;
mod key_file;
mod links;
mod path_mtu;
mod proxy;
mod proxy_routing;
mod requests;
mod sending;
mod sockets;
mod workers;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use holdover_base::{Duration, Instant};
use holdover_hip::host::{Event, HostConfig, RekeyLimits, ServerConfig};
use holdover_host::control_socket::{Ownership, Requesters, listen, requesters};
use holdover_host::offload::{Segments, segments, segments_from_network};
use holdover_host::poll_loop::{self, Interests, PollLoop, SignalInput};
use holdover_host::privileges::{CapabilitySet, drop_all_but};
use holdover_host::scrape::{self, Scrapes};
use holdover_host::{TunError, clock};

use holdover_wire::Packet;

use self::addresses::Addresses;
use self::device::Device;
pub use self::error::DaemonError;
use self::event_log::write_down;
use self::forwarded::ForwardedRules;
pub(crate) use self::kernel_sockets::SocketDiag;
use self::key_file::KeyFile;
use self::links::Links;
pub(crate) use self::links::{ELSEWHERE, has_strict_filter, source_for, standbys};
use self::path_mtu::IcmpSockets;
pub(crate) use self::proxy::missing_forwarding;
use self::proxy::{Proxy, ReadHosts};
use self::sockets::Sockets;
use self::workers::Workers;
use crate::core::{Core, CoreConfig, Identities, LsiPrefix, PlainHost, Side};
use crate::files::{Peers, Proxy as ProxyFile, R1CounterFile, Serves, Settings, read_identity};
use crate::metrics;
use crate::random::SystemRandom;
use crate::status::{LinkStatus, PeerStatus, ProxyStatus, Status};

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

/// Reads of the TUN device, and of each socket, in one round.
const BATCH: usize = 16;
/// Packets of a socket in one round, unless the last read returns more: timers are not to wait for long.
const MOST_PACKETS: usize = 1024;
/// Bits of the prefix of HITs: 2001:20::/28 (RFC 7343 section 2) is reached by the TUN device.
const HIT_PREFIX_LEN: u8 = 28;
/// How long to wait for peers to confirm the end of associations.
const CLOSING: Duration = Duration::from_secs(1);
/// The capabilities kept: for the TUN device and raw sockets.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// The daemon.
pub struct Daemon {
    identities: Identities,
    setup: Setup,
    device: Device,
    _forwarded_rules: ForwardedRules,
    proxy: Option<Proxy>,
    /// Hosts of the proxy without effect, with the reasons.
    left_out: BTreeMap<String, String>,
    sockets: Sockets,
    icmp: IcmpSockets,
    workers: Workers,
    addresses: Addresses,
    links: Links,
    control: Requesters,
    metrics: Option<Scrapes>,
    /// Dropped after the TUN device, so that the next daemon finds the device's name free.
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
    /// Packets of the network that are being read.
    received: Vec<Packet>,
    /// A peer was found at another address.
    is_elsewhere: bool,
    r1_counter_file: Option<R1CounterFile>,
    settings: Settings,
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
    /// Programs send packets, or hosts that speak no HIP.
    Tun(Side),
    /// The network sends packets to the socket of this number.
    Socket(usize),
    /// Routers report packets that they could not forward.
    Icmp,
}

impl Daemon {
    /// Opens everything.
    ///
    /// # Errors
    /// Something essential is missing.
    pub fn open(setup: Setup) -> Result<Self, DaemonError> {
        let keys = read_identity(&setup.directory)?;
        // Before anything that would have to be cleaned up.
        let stop = SignalInput::stop().map_err(DaemonError::Signals)?;
        let reload = SignalInput::reload().map_err(DaemonError::Signals)?;
        let (listener, ownership) = listen(&setup.socket)?;
        let sockets = Sockets::open()?;
        let key_file = setup.esp_keys.as_deref().map(KeyFile::open).transpose()?;
        let own = setup.lsis.map(|prefix| (prefix.own().into(), prefix.prefix_len()));
        let own: Vec<(IpAddr, u8)> = [(keys.hit().0.into(), HIT_PREFIX_LEN)].into_iter().chain(own).collect();
        let forwarded_rules = ForwardedRules::install(setup.lsis);
        let device = Device::open(&setup.interface, &setup, &own)?;
        drop_all_but(KEPT).map_err(|errno| DaemonError::Privileges(errno.into()))?;
        let addresses = Addresses::open().map_err(DaemonError::Addresses)?;
        let (mut r1_counter_file, r1_counter) = open_r1_counter(&setup.directory);
        reserve(&mut r1_counter_file, r1_counter);
        let defaults = CoreConfig::default();
        let host = HostConfig {
            accept_unknown_peers: setup.accept_unknown,
            rekey: Some(setup.rekey),
            server: setup.serves.map(|serves| ServerConfig::new(serves.services())),
            r1_counter,
            ..defaults.host
        };
        let config = CoreConfig { host, wake: defaults.wake.filter(|_| setup.wake), ..defaults };
        let mut identities = Identities::new(keys, config, setup.lsis, Box::new(SystemRandom));
        if let Some(prefix) = setup.lsis {
            let sockets = socket_diag(device.tun.name()).map_err(DaemonError::SocketDiag)?;
            identities.own_mut().use_lsis(prefix, Box::new(sockets));
        }
        let workers = Workers::start(sockets.senders()).map_err(DaemonError::Threads)?;
        let now = clock::now();
        let mut daemon = Self {
            identities,
            device,
            _forwarded_rules: forwarded_rules,
            proxy: None,
            left_out: BTreeMap::new(),
            sockets,
            icmp: IcmpSockets::open(),
            addresses,
            links: Links::default(),
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
            workers,
            received: Vec::new(),
            is_elsewhere: false,
            r1_counter_file,
            settings: Settings::default(),
            setup,
        };
        daemon.read_files(now, true)?;
        Ok(daemon)
    }

    /// Runs until it is stopped.
    ///
    /// # Errors
    /// Something essential has failed.
    pub fn run(mut self) -> Result<(), DaemonError> {
        let own = self.identities.own();
        tracing::info!(hit = %own.hit(), interface = self.device.tun.name(), addresses = ?own.locators(), "up");
        if own.locators().is_empty() {
            tracing::warn!("no default route, or no address for it: peers cannot be called until there is one");
        }
        self.flush();
        let result = poll_loop::run(&mut self);
        tracing::info!("down");
        result
    }

    fn begin_to_end(&mut self, now: Instant) {
        if self.ends_at.is_none() {
            self.ends_at = Some(now + CLOSING);
            self.identities.close_all(now);
        }
    }

    /// Reads the settings, the peers and the hosts that speak no HIP. Nothing changes if a file is invalid. At the start, hosts that cannot be used are
    /// left out; later on the files are refused, unless these hosts are left out already.
    fn read_files(&mut self, now: Instant, is_start: bool) -> Result<(), DaemonError> {
        let settings = Settings::read(&self.setup.directory)?;
        let peers = Peers::read(&self.setup.directory)?;
        let file = ProxyFile::read(&self.setup.directory)?.filter(|file| file.iter().next().is_some());
        let own = self.identities.own().hit();
        let hosts = file.as_ref().map(|file| proxy::read_hosts(&self.setup.directory, file, own, self.setup.lsis));
        let ReadHosts { usable, unusable } = hosts.transpose()?.unwrap_or_default();
        let mut left_out = BTreeMap::new();
        for (name, error) in unusable {
            if !is_start && !self.left_out.contains_key(&name) {
                return Err(error);
            }
            let reason = holdover_host::log::with_causes(&error);
            tracing::error!(host = name, reason, "the proxy leaves this host out");
            left_out.insert(name, reason);
        }
        self.set_hosts(now, file.as_ref(), usable)?;
        self.left_out = left_out;
        self.identities.set_hold(settings.hold);
        self.identities.own_mut().set_opportunistic(now, settings.is_opportunistic);
        self.settings = settings;
        self.identities.set_peers(now, &peers);
        tracing::info!(peers = peers.iter().count(), "peers read");
        self.look_at_addresses(now)
    }

    fn set_hosts(&mut self, now: Instant, file: Option<&ProxyFile>, hosts: Vec<PlainHost>) -> Result<(), DaemonError> {
        let interface = file.map(|file| file.interface.as_str());
        match (self.proxy.take(), interface) {
            (None, None) => {
                if let Err(error) = Proxy::close_earlier() {
                    let error = holdover_host::log::with_causes(&error);
                    tracing::warn!(%error, "rules of an earlier proxy, if any, stay (ip rule)");
                }
            }
            (Some(proxy), None) => proxy.close()?,
            (None, Some(interface)) => self.proxy = Some(Proxy::open(&self.setup, interface)?),
            (Some(proxy), Some(interface)) => {
                let proxy = self.proxy.insert(proxy);
                if proxy.interface() != interface {
                    proxy.set_interface(&self.setup, interface)?;
                }
            }
        }
        for parameter in file.map(missing_forwarding).unwrap_or_default() {
            tracing::warn!("{parameter} is 0: packets do not reach the proxy's hosts (sysctl -w {parameter}=1)");
        }
        self.identities.set_hosts(now, hosts, || Box::new(SystemRandom));
        Ok(())
    }

    fn look_at_addresses(&mut self, now: Instant) -> Result<(), DaemonError> {
        let peers = self.identities.peer_addresses();
        let own = self.identities.own();
        let has_standbys = self.settings.has_standbys;
        let (locators, links) = self.addresses.look(&peers, own.lsi(), has_standbys).map_err(DaemonError::Addresses)?;
        if links != self.links {
            note_standbys(&self.links, &links);
            self.sockets.senders().set_links(links.clone());
            self.links = links;
        }
        if locators != own.locators() {
            tracing::info!(addresses = ?locators, "addresses of this host");
            self.identities.set_locators(now, &locators);
        }
        Ok(())
    }

    fn device(&mut self, side: Side) -> Option<&mut Device> {
        match side {
            Side::Programs => Some(&mut self.device),
            Side::Hosts => self.proxy.as_mut().map(|proxy| &mut proxy.device),
        }
    }

    fn take_inner(&mut self, now: Instant, side: Side) -> Result<(), DaemonError> {
        for _ in 0..BATCH {
            let device = match side {
                Side::Programs => &self.device,
                Side::Hosts => match &self.proxy {
                    Some(proxy) => &proxy.device,
                    None => return Ok(()),
                },
            };
            match device.tun.recv_offloaded(&mut self.inner_buffer) {
                Ok(Some((offload, bytes))) => {
                    let bytes = offload.complete_unless_tcp(bytes);
                    let packets = match side {
                        Side::Programs => segments(offload, bytes),
                        // Translation gives them a new checksum.
                        Side::Hosts => segments_from_network(offload, bytes),
                    };
                    match packets {
                        Ok(packets) => {
                            let packets = fitting(&mut self.identities, now, side, packets);
                            packets.for_each(|packet| self.identities.handle_inner(now, side, packet));
                        }
                        Err(_) => self.not_read += 1,
                    }
                }
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
            let identities = &mut self.identities;
            let data = core::iter::from_fn(|| packets.next_if(|packet| !Core::is_control(packet)));
            self.workers.open(data.filter_map(|packet| identities.begin_network(now, packet)));
            if let Some(control) = packets.next() {
                self.finish_all_opened(now);
                self.identities.handle_network(now, control);
            }
        }
    }

    /// Handles the packets of the oldest job.
    fn finish_opened(&mut self, now: Instant) {
        for decrypted in self.workers.take_opened().unwrap_or_default() {
            self.identities.finish_network(now, decrypted);
        }
    }

    fn finish_all_opened(&mut self, now: Instant) {
        while self.workers.opening() > 0 {
            self.finish_opened(now);
        }
    }

    /// Sends the core's packets to the network.
    fn send(&mut self) {
        let identities = &mut self.identities;
        self.workers.seal(core::iter::from_fn(|| identities.poll_outgoing()));
    }

    /// Sends the core's packets to the network and to programs.
    fn flush(&mut self) {
        self.send();
        while let Some((side, packet)) = self.identities.poll_inner() {
            let refused = self.device(side).map(|device| device.push(packet));
            self.not_sent += refused.unwrap_or(1);
        }
        for side in [Side::Programs, Side::Hosts] {
            self.not_sent += self.device(side).map_or(0, Device::flush);
        }
        while let Some((identity, note)) = self.identities.poll_note() {
            self.is_elsewhere |= matches!(note.event, Event::PeerReaddressed { .. } | Event::Established { .. });
            write_down(self.identities.name(identity), &note);
            if let Event::Established { peer, .. } | Event::Rekeyed { peer } = &note.event
                && let (Some(file), Some(keys)) = (&mut self.key_file, self.identities.esp_keys(identity, *peer))
            {
                file.add(&keys);
            }
        }
    }

    fn serve_metrics(&mut self, now: Instant) {
        let Some(mut metrics) = self.metrics.take() else { return };
        metrics.handle_ready(now, || metrics::encode_status(&self.status(now)));
        self.metrics = Some(metrics);
    }

    fn status(&self, now: Instant) -> Status {
        let mut counters = self.identities.counters();
        let own = self.identities.own();
        (counters.not_sent, counters.not_read) = (self.not_sent + self.workers.not_sent(), self.not_read);
        counters.not_sealed += self.workers.not_sealed();
        counters.fragments = self.workers.fragments();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            running_s: now.saturating_since(self.started).as_secs_f64(),
            hit: own.hit().to_string(),
            lsi: own.lsi(),
            interface: self.device.tun.name().to_owned(),
            addresses: own.locators().to_vec(),
            links: self.link_status(),
            udp: self.sockets.has_udp(),
            wake: self.setup.wake,
            hold_s: self.settings.hold.map(|hold| hold.timeout.as_secs_f64()),
            serves: self.setup.serves,
            clients: own.clients().0 as u64,
            peers: self.with_links(own.peer_status()),
            proxy: self.proxy.as_ref().map(|proxy| ProxyStatus {
                interface: proxy.interface().to_owned(),
                device: proxy.device.tun.name().to_owned(),
                unknown_hosts: self.identities.unknown_hosts(),
                hosts: self.identities.host_status(),
                left_out: self.left_out.clone(),
            }),
            counters,
        }
    }

    fn link_status(&self) -> Vec<LinkStatus> {
        let locators = self.identities.own().locators().iter();
        let status = |&address: &IpAddr| {
            let link = self.links.of(address)?;
            Some(LinkStatus { address, link: link.name.clone(), standby: link.is_standby })
        };
        locators.filter_map(status).collect()
    }

    /// The core does not know the names of links.
    fn with_links(&self, mut peers: Vec<PeerStatus>) -> Vec<PeerStatus> {
        for path in peers.iter_mut().flat_map(|peer| &mut peer.paths) {
            path.link = self.links.of(path.from).map(|link| link.name.clone());
        }
        peers
    }

    /// Asks the kernel for the MTU of paths on which it has refused packets (`EMSGSIZE`).
    fn learn_path_mtus(&mut self, now: Instant) {
        for (address, source) in self.sockets.senders().take_too_big() {
            match self.sockets.senders().path_mtu(address, source) {
                Ok(mtu) => self.identities.set_path_mtu(now, address, mtu),
                Err(error) => tracing::debug!(%error, %address, "no path MTU"),
            }
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
        interests.add_readable(Token::Icmp, self.icmp.descriptors());
        interests.add_readable(Token::Tun(Side::Programs), [self.device.tun.as_fd()]);
        interests.add_readable(Token::Tun(Side::Hosts), self.proxy.iter().map(|proxy| proxy.device.tun.as_fd()));
        interests.add_deadlines(self.identities.poll_timeout().into_iter().chain(self.ends_at));
        interests
    }

    fn handle_ready(&mut self, now: Instant, ready: Vec<Token>) -> Result<ControlFlow<()>, DaemonError> {
        // Refused packets of the workers, since the last turn.
        self.learn_path_mtus(now);
        for token in ready {
            match token {
                Token::Stop => {
                    self.stop.clear();
                    self.begin_to_end(now);
                }
                Token::Reload => {
                    self.reload.clear();
                    if let Err(error) = self.read_files(now, false) {
                        let error = holdover_host::log::with_causes(&error);
                        tracing::error!(%error, "invalid files; keeping the current peers and hosts");
                    }
                }
                Token::Addresses => {
                    self.addresses.drain_notifications();
                    self.look_at_addresses(now)?;
                }
                Token::Control => self.serve_control(now),
                Token::Metrics => self.serve_metrics(now),
                Token::Tun(side) => self.take_inner(now, side)?,
                Token::Socket(index) => self.take_outer(now, index),
                Token::Icmp => {
                    for (quoted, mtu) in self.icmp.receive() {
                        self.identities.handle_too_big(now, &quoted, mtu);
                    }
                }
            }
        }
        self.identities.handle_timeout(now);
        reserve(&mut self.r1_counter_file, self.identities.next_r1_counter());
        self.flush();
        self.learn_path_mtus(now);
        if core::mem::take(&mut self.is_elsewhere) {
            // A peer has moved: the route to it may have another source address.
            self.look_at_addresses(now)?;
            self.flush();
        }
        self.control.hang_up(now);
        if let Some(metrics) = &mut self.metrics {
            metrics.handle_timeout(now);
        }
        let continues = self.ends_at.is_none_or(|at| now < at && self.identities.is_closing());
        Ok(if continues { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }
}

/// Logs which links are standbys, if others were before. A link whose kernel drops what arrives from elsewhere than its routes lead to is of
/// no use as one.
fn note_standbys(before: &Links, links: &Links) {
    for (address, link) in links.standbys().filter(|(address, _)| !before.standbys().any(|(it, _)| it == *address)) {
        tracing::info!(%address, link = link.name, "a standby link");
        if has_strict_filter(address, &link.name) {
            tracing::warn!(
                link = link.name,
                "rp_filter is 1: packets of peers to the address of this standby are dropped (sysctl -w net.ipv4.conf.all.rp_filter=2)"
            );
        }
    }
}

/// Cuts TCP segments that would leave in fragments so that they fit the path.
fn fitting(identities: &mut Identities, now: Instant, side: Side, packets: Segments) -> Segments {
    let most = packets.divisible_len().zip(packets.whole());
    let most = most.and_then(|(len, whole)| identities.cut_to(now, side, (whole.src, whole.dst), len));
    match most {
        Some(len) => packets.cut_to(len),
        None => packets,
    }
}

/// The file of counters, unless it is unusable, and the first counter of this run: greater than in every earlier one.
fn open_r1_counter(directory: &Path) -> (Option<R1CounterFile>, u64) {
    let utc_s = clock::utc().0.as_nanos() / 1_000_000_000;
    match R1CounterFile::open(directory, utc_s) {
        Ok((file, first)) => (Some(file), first),
        Err(error) => {
            let error = holdover_host::log::with_causes(&error);
            tracing::warn!(%error, "if the clock was set back since the last run, peers refuse this host's R1s at first");
            (None, utc_s)
        }
    }
}

/// Writes before a counter beyond those reserved is used.
fn reserve(file: &mut Option<R1CounterFile>, next: u64) {
    if let Some(Err(error)) = file.as_mut().map(|file| file.reserve(next)) {
        let error = holdover_host::log::with_causes(&error);
        tracing::warn!(%error, "if the clock is set back before the next run, peers will refuse this host's R1s at first");
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
