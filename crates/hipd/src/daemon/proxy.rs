//! The proxy for hosts without HIP: their identities, the TUN device of their packets, and its routing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use holdover_hip::identity::Hit;
use holdover_host::{Namespace, Netlink, NetlinkError, sysctl};

use super::device::Device;
use super::proxy_routing::Routing;
use super::{DaemonError, Setup};
use crate::core::{LsiPrefix, PlainHost};
use crate::files::{ProxiedHost, Proxy as ProxyFile, read_identity};

/// The end of the device's name: `hip0-lan`.
const SUFFIX: &str = "-lan";
/// The kernel parameters that let packets pass from one interface to another.
const FORWARDING: [&str; 2] = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];

/// See the module's documentation.
pub(super) struct Proxy {
    routing: Routing,
    pub(super) device: Device,
    /// The device's.
    index: u32,
    interface: String,
}

impl Proxy {
    pub(super) fn open(setup: &Setup, interface: &str) -> Result<Self, DaemonError> {
        check_interface(setup, interface)?;
        let device = Device::open(&format!("{}{SUFFIX}", setup.interface), setup, &[])?;
        let name = device.tun.name();
        let mut netlink = Netlink::open(&Namespace::current()?).map_err(DaemonError::ProxyNetlink)?;
        let index = netlink.link(name).map_err(DaemonError::ProxyNetlink)?.index;
        let mut routing = Routing::without_hosts().map_err(DaemonError::ProxyRouting)?;
        if let Err(error) = routing.install(interface, name, index, setup.lsis) {
            let _ = routing.clear();
            return Err(DaemonError::ProxyRouting(error));
        }
        log_interface(&mut netlink, interface, name);
        Ok(Self { routing, device, index, interface: interface.to_owned() })
    }

    /// Changes the interface of the hosts. Nothing changes if the kernel refuses.
    pub(super) fn set_interface(&mut self, setup: &Setup, interface: &str) -> Result<(), DaemonError> {
        check_interface(setup, interface)?;
        let name = self.device.tun.name();
        if let Err(error) = self.routing.install(interface, name, self.index, setup.lsis) {
            if let Err(error) = self.routing.install(&self.interface, name, self.index, setup.lsis) {
                tracing::error!(%error, "the proxy's rules and routes are incomplete: restart the daemon");
            }
            return Err(DaemonError::ProxyRouting(error));
        }
        let mut netlink = Netlink::open(&Namespace::current()?).map_err(DaemonError::ProxyNetlink)?;
        log_interface(&mut netlink, interface, name);
        interface.clone_into(&mut self.interface);
        Ok(())
    }

    /// Removes all rules and routes, as there are no hosts any more.
    pub(super) fn close(mut self) -> Result<(), DaemonError> {
        self.routing.clear().map_err(DaemonError::ProxyRouting)
    }

    /// Removes the rules and routes of an earlier daemon.
    pub(super) fn close_earlier() -> Result<(), DaemonError> {
        Routing::without_hosts().map(drop).map_err(DaemonError::ProxyRouting)
    }

    pub(super) fn interface(&self) -> &str {
        &self.interface
    }
}

/// The TUN devices are no interfaces of hosts.
fn check_interface(setup: &Setup, interface: &str) -> Result<(), DaemonError> {
    let own = setup.interface.as_str();
    if interface == own || interface.strip_suffix(SUFFIX) == Some(own) {
        return Err(DaemonError::ProxyInterface { name: interface.to_owned() });
    }
    Ok(())
}

fn log_interface(netlink: &mut Netlink, interface: &str, device: &str) {
    if netlink.link(interface).is_err() {
        tracing::warn!(interface, "the interface of the proxy's hosts does not exist (yet)");
    }
    tracing::info!(interface, device, "proxy for hosts without HIP");
}

/// The hosts in the file.
#[derive(Default)]
pub(super) struct ReadHosts {
    pub(super) usable: Vec<PlainHost>,
    /// By name.
    pub(super) unusable: BTreeMap<String, DaemonError>,
}

/// The hosts in the file, with their identities.
pub(super) fn read_hosts(
    directory: &Path,
    proxy: &ProxyFile,
    own: Hit,
    lsis: Option<LsiPrefix>,
) -> Result<ReadHosts, DaemonError> {
    let own_addresses = own_addresses().map_err(DaemonError::ProxyNetlink)?;
    let mut names: BTreeMap<Hit, String> = BTreeMap::from([(own, "this host".to_owned())]);
    let mut hosts = ReadHosts::default();
    for host in proxy.iter() {
        match read_host(directory, host, &mut names, &own_addresses, lsis) {
            Ok(usable) => hosts.usable.push(usable),
            Err(error) => drop(hosts.unusable.insert(host.name.clone(), error)),
        }
    }
    Ok(hosts)
}

fn read_host(
    directory: &Path,
    host: &ProxiedHost,
    names: &mut BTreeMap<Hit, String>,
    own_addresses: &[IpAddr],
    lsis: Option<LsiPrefix>,
) -> Result<PlainHost, DaemonError> {
    let name = host.name.clone();
    for &address in &host.addresses {
        if own_addresses.contains(&address) {
            return Err(DaemonError::ProxyOwnAddress { name, address });
        }
        if let IpAddr::V4(v4) = address
            && lsis.is_some_and(|prefix| prefix.contains(v4))
        {
            return Err(DaemonError::ProxyLsi { name, address });
        }
    }
    let identity = |source| DaemonError::ProxyIdentity { name: name.clone(), source };
    let keys = read_identity(&host.identity_directory(directory)).map_err(identity)?;
    if let Some(other) = names.get(&keys.hit()) {
        return Err(DaemonError::ProxySameIdentity { name, other: other.clone() });
    }
    names.insert(keys.hit(), name.clone());
    if lsis.is_none() && host.addresses.iter().all(IpAddr::is_ipv4) {
        tracing::warn!(host = name, "without LSIs (--no-lsi) this host has no addresses of peers in IPv4");
    }
    Ok(PlainHost { name, addresses: host.addresses.clone(), keys })
}

/// The addresses of all interfaces.
fn own_addresses() -> Result<Vec<IpAddr>, NetlinkError> {
    let mut netlink = Netlink::open(&Namespace::current()?)?;
    let mut addresses = Vec::new();
    for link in netlink.links()? {
        match netlink.addresses(&link.name) {
            // It has gone meanwhile.
            Err(NetlinkError::NoSuchLink { .. }) => {}
            of_link => addresses.extend(of_link?),
        }
    }
    Ok(addresses)
}

/// The kernel parameters of forwarding that are off although these hosts need them.
pub(crate) fn missing_forwarding(hosts: &ProxyFile) -> Vec<&'static str> {
    let Ok(namespace) = Namespace::current() else { return Vec::new() };
    let is_off = |parameter: &str| sysctl::get(&namespace, parameter).is_ok_and(|value| value == "0");
    let is_used = |is_v6: bool| hosts.iter().flat_map(|host| &host.addresses).any(|it| it.is_ipv6() == is_v6);
    let parameters = FORWARDING.into_iter().zip([false, true]);
    parameters.filter(|&(parameter, is_v6)| is_used(is_v6) && is_off(parameter)).map(|(name, _)| name).collect()
}
