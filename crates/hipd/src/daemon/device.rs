//! A TUN device, and the segments that it passes to the kernel as one packet.

use std::io;
use std::net::IpAddr;

use holdover_host::offload::Joiner;
use holdover_host::{Namespace, Tun, TunConfig, TunError};
use holdover_wire::Packet;

use super::{DaemonError, Setup};

/// How many packets of programs the kernel queues before it drops more.
const TX_QUEUE_LEN: u32 = 1000;

/// See the module's documentation.
pub(super) struct Device {
    pub(super) tun: Tun,
    joiner: Joiner,
}

impl Device {
    /// A device with these addresses and the lengths of their prefixes.
    pub(super) fn open(name: &str, setup: &Setup, addresses: &[(IpAddr, u8)]) -> Result<Self, DaemonError> {
        let config = TunConfig { tx_queue_len: TX_QUEUE_LEN, offload: true, ..TunConfig::new(name, setup.mtu) };
        let config = addresses.iter().fold(config, |config, &(address, len)| config.address(address, len));
        let tun = Tun::open(&Namespace::current()?, &config).map_err(|error| match &error {
            TunError::Refused { source, .. } if source.kind() == io::ErrorKind::NotFound => DaemonError::NoTun,
            TunError::Refused { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                DaemonError::NotPermitted { what: "TUN devices", capability: "CAP_NET_ADMIN" }
            }
            _ => error.into(),
        })?;
        Ok(Self { tun, joiner: Joiner::default() })
    }

    /// Joins a packet with those before it, or passes these to the kernel first. Returns how many the kernel refused.
    pub(super) fn push(&mut self, packet: Packet) -> u64 {
        let Some(packet) = self.joiner.push(packet) else { return 0 };
        let refused = self.flush();
        // It is the first packet of a new batch, and accepted.
        let _ = self.joiner.push(packet);
        refused
    }

    /// Passes the joined packet to the kernel, which may drop it. Returns how many it refused.
    pub(super) fn flush(&mut self) -> u64 {
        let delivered = match self.joiner.joined() {
            Ok(None) => return 0,
            Ok(Some(joined)) => self.tun.send_offloaded(joined.offload, &joined.pieces).is_ok(),
            Err(_) => false,
        };
        self.joiner.clear();
        u64::from(!delivered)
    }
}
