//! The features of this kernel and the privileges of this user, each probed separately.

use std::path::Path;

use holdover_host::Requests;
use holdover_host::ebpf::pins::is_bpf_fs;
use holdover_host::feature::Feature;
use holdover_host::log::with_causes;
use holdover_host::packet_socket::PacketSocket;
use rustix::fs::statfs;

use crate::cluster;
use crate::config::Config;
use crate::interface::{Interface, InterfaceError};
use crate::path::KernelPath;
use crate::split;

/// `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS: i64 = 0x0102_1994;

/// Probes everything, without side effects. With a cluster it waits for the store, for some seconds at most.
pub fn examine(config: &Config) -> Vec<Feature> {
    let mut features = Vec::from(diversion());
    features.extend(host(config));
    features.push(Feature::tried(
        "gateway's split",
        config.splits(),
        "mode \"split\" is not available",
        "run as root, on Linux 5.15 or later with CONFIG_NFT_SOCKET; see the reason",
        split::probe().map_err(|error| with_causes(&error)),
    ));
    if config.cluster.is_enabled() {
        let clear = config.cluster.password_in_clear();
        let clear = clear.map_or_else(String::new, |endpoint| format!("; its password goes to {endpoint} in clear"));
        let found = cluster::probe(&config.cluster).map(|keys| format!("etcd answers, with {keys} keys{clear}"));
        features.push(Feature::tried(
            "gateway's cluster",
            false,
            "mobile hosts change their gateways once etcd is back",
            "start etcd, or name its members: [cluster] endpoints",
            found,
        ));
    }
    features
}

/// The requirements of the diversion and the release of packets.
fn diversion() -> [Feature; 3] {
    let programs = KernelPath::probe().map(|()| "the kernel accepts the programs".to_owned());
    let socket = PacketSocket::open(0).and_then(PacketSocket::with_offload);
    [
        Feature::tried(
            "gateway's eBPF",
            true,
            "nothing is diverted and nothing held back",
            "run as root, on Linux 5.15 or later",
            programs.map_err(|error| with_causes(&error)),
        ),
        Feature::tun("gateway's TUN", "nothing can be diverted"),
        Feature::tried(
            "gateway's sockets",
            true,
            "nothing can be released",
            "run as root (CAP_NET_RAW)",
            socket.map(|_| "packet sockets, with offloads".to_owned()).map_err(|error| error.to_string()),
        ),
    ]
}

/// Properties of the host beside the daemon.
fn host(config: &Config) -> [Feature; 4] {
    [
        Feature::tried(
            "gateway's buffer",
            false,
            "buffered packets are written to a disk",
            "name a directory on tmpfs: [buffer] directory",
            is_tmpfs(&config.buffer.directory),
        ),
        Feature::tried(
            "gateway's pins",
            false,
            "the state of connections is lost with a killed process",
            "mount -t bpf bpf /sys/fs/bpf, which systemd does; Linux 6.6 or later",
            can_pin(config),
        ),
        Feature::tried(
            "gateway's routes",
            false,
            "no packets pass from one interface to another",
            "sysctl net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
            forwards(),
        ),
        Feature::tried(
            "gateway's neighbours",
            false,
            "the kernel drops packets to mobile hosts beyond its table of neighbours",
            "sysctl net.ipv4.neigh.default.gc_thresh3=N net.ipv6.neigh.default.gc_thresh3=N, above the number of mobile hosts",
            room_for_neighbours(),
        ),
    ]
}

/// Whether the mobile-facing interface exists now. It may be created after the configuration is checked: so [`examine`]
/// does not ask.
pub fn examine_interface(name: &str) -> Feature {
    let found =
        Requests::open().map_err(InterfaceError::from).and_then(|mut requests| Interface::find(&mut requests, name));
    Feature::tried(
        "gateway's interface",
        true,
        "there are no mobile hosts to serve",
        "name another one: [mobiles] interface, or --interface",
        found.map(|_| format!("{name} exists")).map_err(|error| with_causes(&error)),
    )
}

/// Whether programs can outlive the process.
fn can_pin(config: &Config) -> Result<String, String> {
    let directory = &config.programs.directory;
    match (config.programs.pinned, is_bpf_fs(directory)) {
        (false, _) => Err("[programs] pinned = false".to_owned()),
        (true, true) => Ok(format!("{} is a BPF file system", directory.display())),
        (true, false) => Err(format!(
            "{} is no BPF file system; as root, the gateway mounts one there at its start",
            directory.display()
        )),
    }
}

/// Whether this machine is a router.
fn forwards() -> Result<String, String> {
    let is_on = |path: &str| std::fs::read_to_string(path).is_ok_and(|value| value.trim() == "1");
    let families = [("IPv4", "/proc/sys/net/ipv4/ip_forward"), ("IPv6", "/proc/sys/net/ipv6/conf/all/forwarding")];
    let on: Vec<&str> = families.into_iter().filter(|(_, path)| is_on(path)).map(|(family, _)| family).collect();
    if on.is_empty() {
        Err("this machine forwards no packets".to_owned())
    } else {
        Ok(format!("forwards {}", on.join(" and ")))
    }
}

/// How many neighbours the kernel's tables have room for. There is one table of each family for all namespaces; the
/// limits are not visible in namespaces of containers.
fn room_for_neighbours() -> Result<String, String> {
    let room = |family: &str| std::fs::read_to_string(format!("/proc/sys/net/{family}/neigh/default/gc_thresh3"));
    match (room("ipv4"), room("ipv6")) {
        (Ok(v4), Ok(v6)) => Ok(format!("room for {} of IPv4 and {} of IPv6", v4.trim(), v6.trim())),
        (Ok(v4), Err(_)) => Ok(format!("room for {} of IPv4", v4.trim())),
        (Err(_), _) => Err("this namespace does not show the room of the kernel's table".to_owned()),
    }
}

/// Whether buffered packets stay in memory. The directory need not exist yet.
fn is_tmpfs(directory: &Path) -> Result<String, String> {
    let existing = directory.ancestors().find(|place| place.exists()).unwrap_or(Path::new("/"));
    match statfs(existing) {
        #[allow(clippy::unnecessary_cast, reason = "the type depends on the machine")]
        Ok(found) if found.f_type as i64 == TMPFS => Ok(format!("{} is on tmpfs", existing.display())),
        Ok(_) => Err(format!("{} is not on tmpfs: buffered packets are written to a disk", existing.display())),
        Err(errno) => Err(format!("{}: {errno}", existing.display())),
    }
}
