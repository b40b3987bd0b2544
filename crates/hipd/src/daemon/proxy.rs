//! The proxy for hosts that speak no HIP: their identities, the TUN device of their packets, and its routing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use holdover_hip::identity::Hit;
use holdover_host::{Namespace, Netlink, sysctl};

use super::device::Device;
use super::proxy_routing::Routing;
use super::{DaemonError, Setup};
use crate::core::{LsiPrefix, PlainHost};
use crate::files::{Proxy as ProxyFile, host_directory, read_identity};

/// The end of the device's name: `hip0-lan`.
const SUFFIX: &str = "-lan";
/// The kernel parameters that let packets pass from one interface to another.
const FORWARDING: [&str; 2] = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];

/// See the module's documentation.
pub(super) struct Proxy {
    /// Dropped before the device, whose routes end with it.
    _routing: Routing,
    pub(super) device: Device,
    interface: String,
}

impl Proxy {
    pub(super) fn open(setup: &Setup, interface: &str) -> Result<Self, DaemonError> {
        let device = Device::open(&format!("{}{SUFFIX}", setup.interface), setup, &[])?;
        let name = device.tun.name();
        let mut netlink = Netlink::open(&Namespace::current()?).map_err(DaemonError::ProxyNetlink)?;
        let index = netlink.link(name).map_err(DaemonError::ProxyNetlink)?.index;
        if netlink.link(interface).is_err() {
            tracing::warn!(interface, "the interface of the proxy's hosts does not exist (yet)");
        }
        let routing = Routing::install(interface, name, index, setup.lsis).map_err(DaemonError::ProxyRouting)?;
        tracing::info!(interface, device = name, "proxy for hosts that speak no HIP");
        Ok(Self { _routing: routing, device, interface: interface.to_owned() })
    }

    pub(super) fn interface(&self) -> &str {
        &self.interface
    }
}

/// The hosts in the file, with their identities.
pub(super) fn read_hosts(
    directory: &Path,
    proxy: &ProxyFile,
    own: Hit,
    lsis: Option<LsiPrefix>,
) -> Result<Vec<PlainHost>, DaemonError> {
    let mut names: BTreeMap<Hit, String> = BTreeMap::from([(own, "this host".to_owned())]);
    let mut hosts = Vec::new();
    for host in proxy.iter() {
        let name = host.name.clone();
        let directory = host_directory(directory, &name).map_err(|_| DaemonError::ProxyName { name: name.clone() })?;
        let keys =
            read_identity(&directory).map_err(|source| DaemonError::ProxyIdentity { name: name.clone(), source })?;
        if let Some(other) = names.insert(keys.hit(), name.clone()) {
            return Err(DaemonError::ProxySameIdentity { name, other });
        }
        for &address in &host.addresses {
            if let IpAddr::V4(v4) = address
                && lsis.is_some_and(|prefix| prefix.contains(v4))
            {
                return Err(DaemonError::ProxyLsi { name, address });
            }
        }
        if lsis.is_none() && host.addresses.iter().all(IpAddr::is_ipv4) {
            tracing::warn!(host = name, "without LSIs (--no-lsi) this host has no addresses of peers in IPv4");
        }
        hosts.push(PlainHost { name, addresses: host.addresses.clone(), keys });
    }
    Ok(hosts)
}

/// The kernel parameters of forwarding that are off although these hosts need them.
pub(crate) fn missing_forwarding(hosts: &ProxyFile) -> Vec<&'static str> {
    let Ok(namespace) = Namespace::current() else { return Vec::new() };
    let is_off = |parameter: &str| sysctl::get(&namespace, parameter).is_ok_and(|value| value == "0");
    let is_used = |is_v6: bool| hosts.iter().flat_map(|host| &host.addresses).any(|it| it.is_ipv6() == is_v6);
    let parameters = FORWARDING.into_iter().zip([false, true]);
    parameters.filter(|&(parameter, is_v6)| is_used(is_v6) && is_off(parameter)).map(|(name, _)| name).collect()
}
