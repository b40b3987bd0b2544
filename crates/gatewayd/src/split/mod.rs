//! Mode `split`, a transparent proxy (split proxy, PEP; TPROXY): TCP connections of mobile hosts end at the gateway, in kernel sockets with
//! the addresses of the other side, and `splice(2)` moves their bytes.
//!
//! | module | purpose |
//! | --- | --- |
//! | `syn` | the packets that begin connections |
//! | `worker` | the thread that connects, accepts and splices |
//! | `splice` | one connection: two sockets, and what is between them |
//! | `sockets` | sockets with foreign addresses |
//! | `table`, `routes` | packets for these sockets go to this host |
//!
//! Each SYN is diverted to the thread by the programs (`bpf/gateway/split.h`), which first connects to the far end. Packets between these
//! sockets and mobile hosts pass the programs like those of any fixed host: they are buffered while the mobile host is away, and senders
//! are woken when it returns.
//!
//! If the process is killed, the kernel sends a reset to both ends of each connection, and removes table and device; without these, SYNs pass.

mod counters;
mod routes;
mod sockets;
mod splice;
mod syn;
mod table;
mod worker;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use holdover_base::{Duration, Instant};
use holdover_host::open_files;
use holdover_host::sysctl::{self, SysctlError};
use holdover_host::{Namespace, Requests, Tun, TunConfig, TunError};
use socket2::Socket;

pub use self::counters::{SplitStatus, Unsplit};
use self::routes::Routes;
use self::sockets::{Diag, Raw, Settings};
use self::table::{Rules, Table};
use self::worker::{Shared, Worker};
use crate::config::{Config, Mode, ModeNetworks, SplitTable};
use crate::icmp_errors::IcmpErrors;
use crate::interface::{Interface, InterfaceError};
use crate::network::Network;

/// Connections cannot be split.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// No device.
    #[error("mode \"split\" needs a TUN device")]
    Device(#[from] TunError),
    /// The device is not found, or netlink does not answer.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A kernel parameter was refused.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// No table of nf_tables.
    #[error("mode \"split\" needs nf_tables with \"socket\" (CONFIG_NFT_SOCKET), Linux 5.15 and CAP_NET_ADMIN")]
    Table(#[source] io::Error),
    /// No policy routes.
    #[error("mode \"split\" needs policy routes (CONFIG_IP_MULTIPLE_TABLES) and CAP_NET_ADMIN")]
    Routes(#[source] io::Error),
    /// No sockets with foreign addresses.
    #[error(
        "mode \"split\" needs sockets with foreign addresses (IP_TRANSPARENT, CAP_NET_ADMIN) and raw ones (CAP_NET_RAW)"
    )]
    Sockets(#[source] io::Error),
    /// The kernel would drop SYNs.
    #[error("net.ipv4.conf.all.rp_filter = 1 drops SYNs that the gateway hands to the kernel: set 0 or 2")]
    StrictReversePath,
    /// No thread.
    #[error("mode \"split\" needs a thread")]
    Thread(#[source] io::Error),
}

/// The most handshakes at a time, as far as `net.core.somaxconn` allows: with more than its queue holds, a listening socket
/// would send cookies, whose answers find no socket.
const MOST_HANDSHAKES: usize = 4096;

/// Descriptors that are left for the rest of the daemon.
const RESERVED: u64 = 512;

/// Descriptors of a connection: two sockets, and a pipe in each direction.
const FOR_EACH: u64 = 6;

/// Without a sign of the thread for this long, new connections pass unsplit.
const SILENT_FOR: Duration = Duration::from_millis(1500);

/// The marks of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marks {
    /// To this host, for any destination: "HS" and the index of the interface.
    pub(crate) local: u32,
    /// The mark of the daemon's sockets towards mobile hosts: "HN".
    near: u32,
    /// The mark of its other sockets: "HF".
    far: u32,
}

impl Marks {
    /// The marks of the gateway on an interface.
    fn of(interface: u32) -> Self {
        let index = interface & 0xffff;
        Self { local: 0x4853_0000 | index, near: 0x484e_0000 | index, far: 0x4846_0000 | index }
    }
}

/// The settings of the programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SplitPlace {
    /// The name of the device for SYNs.
    pub(crate) device: String,
    /// Its index.
    pub(crate) index: u32,
    pub(crate) mark: u32,
    /// The ports of the listening sockets for mobile hosts, by family.
    pub(crate) from_mobiles: [u16; 2],
    /// Those for others.
    pub(crate) from_others: [u16; 2],
    /// Networks of mobile hosts, and of others.
    pub(crate) networks: Vec<(Network, Splits)>,
}

/// Which connections of a host are split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Splits {
    /// None.
    None,
    /// All, unless a rule for single connections says otherwise.
    All,
    /// Those that such a rule chooses.
    Chosen,
}

/// Which connections of hosts of each network are split, of those that the daemon serves.
fn networks(config: &Config, served: &[(Network, bool)]) -> Vec<(Network, Splits)> {
    let own = ModeNetworks::new(config, served, |mode| mode == Mode::Split);
    let all = ModeNetworks::new(config, served, |_| true);
    let splits = |is_own: bool, is_served: bool| match (is_own, is_served && config.splits_chosen()) {
        (true, _) => Splits::All,
        (false, true) => Splits::Chosen,
        (false, false) => Splits::None,
    };
    let both = own.as_slice().iter().zip(all.as_slice());
    both.map(|(&(network, is_own), &(_, is_served))| (network, splits(is_own, is_served))).collect()
}

/// Opens the TUN device for the SYNs of split connections.
fn open_device(namespace: &Namespace, name: &str) -> Result<Tun, SplitError> {
    let device = Tun::open(namespace, &TunConfig { tx_queue_len: 4096, ..TunConfig::new(name, 65_535) })?;
    // Packets on it have sources that are reached by other interfaces; ICMP errors have addresses of this host.
    for (parameter, value) in [("rp_filter", "0"), ("accept_local", "1")] {
        sysctl::set(namespace, &format!("net.ipv4.conf.{name}.{parameter}"), value)?;
    }
    Ok(device)
}

/// Opens the listening sockets with this mark, for IPv4 and, where there is one, for IPv6. Returns their ports, 0 without a socket.
fn listen(settings: &Settings, mark: u32, listeners: &mut Vec<Socket>) -> io::Result<[u16; 2]> {
    let mut ports = [0; 2];
    for (family, port) in ports.iter_mut().enumerate() {
        let socket = match settings.listen(family == 1, mark) {
            Ok(socket) => socket,
            Err(error) if family == 1 => {
                tracing::debug!(%error, "connections over IPv6 are not split");
                continue;
            }
            Err(error) => return Err(error),
        };
        *port = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
        listeners.push(socket);
    }
    Ok(ports)
}

/// Everything that is there before the programs are attached.
#[derive(Debug)]
pub(crate) struct Prepared {
    worker: Worker,
    place: SplitPlace,
    marks: Marks,
    mobile_facing: u32,
}

/// The thread that splits. It ends with this value, and resets open connections.
#[derive(Debug)]
pub(crate) struct Splitter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    place: SplitPlace,
    most: u64,
    rounds: u64,
    alive_at: Instant,
    rules: Rules,
    /// Dropped after the thread has ended.
    table: Table,
    _routes: Routes,
}

impl Prepared {
    /// Opens the device and the sockets, in the namespace of the calling thread. `None` if no mobile host has the mode;
    /// then the remains of an earlier process are removed.
    pub(crate) fn open(
        config: &Config,
        interface: &Interface,
        served: &[(Network, bool)],
        namespace: &Namespace,
    ) -> Result<Option<Self>, SplitError> {
        let marks = Marks::of(interface.index);
        if !config.splits() {
            if let Err(error) = Routes::remove_former(marks.local) {
                tracing::debug!(%error, "cannot look for policy routes of an earlier process");
            }
            return Ok(None);
        }
        if is_strict() {
            return Err(SplitError::StrictReversePath);
        }
        let name = format!("hgs{}", interface.index);
        let device = open_device(namespace, &name)?;
        let index = Interface::find(&mut Requests::open().map_err(InterfaceError::from)?, &name)?.index;
        let settings = Settings::of(&config.split);
        let mut listeners = Vec::new();
        let from_mobiles = listen(&settings, marks.near, &mut listeners).map_err(SplitError::Sockets)?;
        let from_others = listen(&settings, marks.far, &mut listeners).map_err(SplitError::Sockets)?;
        let raw = Raw::open(None).and_then(|out| Ok([out, Raw::open(Some(marks.near))?]));
        let hosts = ModeNetworks::new(config, served, |mode| mode == Mode::Split || config.splits_chosen());
        let limit = open_files::raise_limit();
        let room = limit.saturating_sub(open_files::most_kept(limit).max(RESERVED)) / FOR_EACH;
        let most = u64::from(config.split.most_connections).min(room.max(1));
        if most < u64::from(config.split.most_connections) {
            tracing::warn!(most, "fewer connections are split than most_connections: the limit of open files is low");
        }
        let networks = networks(config, served);
        let place = SplitPlace { device: name, index, mark: marks.local, from_mobiles, from_others, networks };
        let worker = Worker {
            device,
            listeners,
            settings,
            marks,
            hosts,
            raw: raw.map_err(SplitError::Sockets)?,
            errors: IcmpErrors::open(),
            diag: Diag::open().map_err(SplitError::Sockets)?,
            most: most as usize,
            most_handshakes: MOST_HANDSHAKES.min(longest_queue()),
            shared: Arc::default(),
        };
        Ok(Some(Self { worker, place, marks, mobile_facing: interface.index }))
    }

    pub(crate) fn place(&self) -> &SplitPlace {
        &self.place
    }

    /// Starts the thread. The programs are attached.
    pub(crate) fn start(self, now: Instant) -> Result<Splitter, SplitError> {
        let Self { worker, place, marks, mobile_facing } = self;
        let routes = Routes::add(marks.local, place.index, place.from_mobiles[1] != 0).map_err(SplitError::Routes)?;
        let rules = Rules { mobile_facing, device: place.index, local: marks.local, near: marks.near, far: marks.far };
        let table = Table::create(rules).map_err(SplitError::Table)?;
        let (shared, most) = (Arc::clone(&worker.shared), worker.most as u64);
        let run = move || {
            if let Err(error) = worker.run() {
                tracing::error!(%error, "connections are not split any more");
            }
        };
        let thread = std::thread::Builder::new().name("split".to_owned()).spawn(run).map_err(SplitError::Thread)?;
        Ok(Splitter {
            shared,
            thread: Some(thread),
            place,
            most,
            rounds: 0,
            alive_at: now,
            rules,
            table,
            _routes: routes,
        })
    }
}

impl Splitter {
    /// Whether the thread accepts connections: it runs, and has no request to stop.
    pub(crate) fn is_splitting(&mut self, now: Instant) -> bool {
        let rounds = self.shared.rounds.load(Ordering::Relaxed);
        if rounds != self.rounds {
            (self.rounds, self.alive_at) = (rounds, now);
        }
        self.is_alive(now) && !self.shared.stops.load(Ordering::Relaxed)
    }

    fn is_alive(&self, now: Instant) -> bool {
        let is_running = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        is_running && now.saturating_since(self.alive_at) < SILENT_FOR
    }

    /// The mobile-facing interface has come back with another index: device, marks, routes and sockets stay, and with them the open
    /// connections.
    pub(crate) fn follow(&mut self, mobile_facing: u32) -> Result<(), SplitError> {
        if self.rules.mobile_facing == mobile_facing {
            return Ok(());
        }
        self.rules.mobile_facing = mobile_facing;
        // The assignment removes the former table after the new one exists; meanwhile both set the same mark.
        self.table = Table::create(self.rules).map_err(SplitError::Table)?;
        Ok(())
    }

    /// Lets new connections pass.
    pub(crate) fn stop(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
    }

    /// Connections that are open, or being opened.
    pub(crate) fn open(&self) -> u64 {
        let counters = &self.shared.counters;
        counters.open.load(Ordering::Relaxed) + counters.pending.load(Ordering::Relaxed)
    }

    /// The counters, with those of the programs: SYNs and fragments that they let pass.
    pub(crate) fn status(&self, now: Instant, expired: u64, fragments: u64) -> SplitStatus {
        let mut status = self.shared.counters.status();
        status.unsplit.daemon_away += expired;
        status.unsplit.fragments = fragments;
        let has_run = self.shared.rounds.load(Ordering::Relaxed) != self.rounds;
        let stopped = !has_run && !self.is_alive(now);
        SplitStatus { device: self.place.device.clone(), most: self.most, stopped, ..status }
    }
}

impl Drop for Splitter {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // It has logged its error; or it has panicked, which the standard library has written, and which has ended the process in the profile
        // `operator` (`panic = "abort"`).
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The longest queue of a listening socket.
fn longest_queue() -> usize {
    let text = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    text.trim().parse().unwrap_or(128)
}

/// Whether the kernel drops packets that arrive on another interface than the route to their source (reverse path filter).
fn is_strict() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv4/conf/all/rp_filter").is_ok_and(|value| value.trim() == "1")
}

/// Tries the kernel features that the mode needs, if possible in a network namespace of its own.
pub(crate) fn probe() -> Result<String, SplitError> {
    if is_strict() {
        return Err(SplitError::StrictReversePath);
    }
    // Without the privilege for a namespace, the errors in this one name the missing feature.
    let can_destroy = Namespace::run("probe", |_| try_all()).unwrap_or_else(|_| try_all())?;
    let found = "sockets with foreign addresses, nf_tables and policy routes";
    Ok(match can_destroy {
        true => found.to_owned(),
        false => {
            format!("{found}; without CONFIG_INET_DIAG_DESTROY, connections pass unsplit whose ports are in TIME_WAIT")
        }
    })
}

/// Returns whether the kernel can destroy sockets.
fn try_all() -> Result<bool, SplitError> {
    // No interface has the index 0, and no packet the mark.
    let marks = Marks::of(0);
    Settings::of(&SplitTable::default()).listen(false, marks.near).map_err(SplitError::Sockets)?;
    Raw::open(None).map_err(SplitError::Sockets)?;
    let rules = Rules { mobile_facing: 0, device: 0, local: marks.local, near: marks.near, far: marks.far };
    Table::create(rules).map_err(SplitError::Table)?;
    Routes::probe().map_err(SplitError::Routes)?;
    Ok(Diag::open().map_err(SplitError::Sockets)?.can_destroy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_split_connections_of_hosts_in_other_modes() {
        let text = "[mobiles.modes]\n\"10.2.1.0/24\" = \"split\"\n";
        let rule = "[[flow]]\nfixed_port = 443\nmode = \"split\"\n";
        let network = |text: &str| -> Network { text.parse().unwrap() };
        let served = [(network("10.2.0.0/16"), true), (network("10.2.9.1"), false)];
        for (text, others) in [(text.to_owned(), Splits::None), (format!("{text}{rule}"), Splits::Chosen)] {
            let config: Config = toml::from_str(&text).unwrap();
            let splits: Vec<Splits> = networks(&config, &served).into_iter().map(|(_, splits)| splits).collect();
            assert_eq!(splits, [others, Splits::None, Splits::All], "{text}");
        }
    }
}
