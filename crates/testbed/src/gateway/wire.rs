//! A wire with a delay between two namespaces, without Ethernet: a TUN device at each end, and a thread that carries packets.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use holdover_base::{Duration, Instant};
use holdover_host::{Namespace, Offload, Tun, TunConfig, TunError, clock};

use super::WorldError;
use crate::Forwarder;

/// Carries packets until dropped.
#[derive(Debug)]
pub struct Wire {
    is_cut: Arc<AtomicBool>,
    _forwarder: Forwarder,
}

/// Packets on their way to one end.
#[derive(Debug, Default)]
struct Way {
    packets: VecDeque<(Instant, Offload, Bytes)>,
}

impl Wire {
    /// Between two interfaces, each with its namespace, name and address.
    ///
    /// # Errors
    /// The kernel refuses a device or a thread.
    pub fn between(ends: [(&Namespace, &str, IpAddr); 2], bits: u8, delay: Duration) -> Result<Self, WorldError> {
        let open = |(namespace, name, address): (&Namespace, &str, IpAddr)| {
            let config = TunConfig { offload: true, ..TunConfig::new(name, 1500).address(address, bits) };
            namespace.enter(|| Tun::open(namespace, &config))
        };
        let [host, router] = ends;
        let ends = [open(host)??, open(router)??];
        let is_cut = Arc::new(AtomicBool::new(false));
        let (mut ways, mut buffer) = ([Way::default(), Way::default()], BytesMut::new());
        let forwarder = Forwarder::start("wire", ends, {
            let is_cut = Arc::clone(&is_cut);
            move |ends| carry(ends, &mut ways, &mut buffer, delay, &is_cut)
        })?;
        Ok(Self { is_cut, _forwarder: forwarder })
    }

    /// Drops all packets, or carries them again. The devices keep their carriers.
    pub fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }
}

/// Returns when the next packet arrives.
fn carry(
    ends: &[Tun],
    ways: &mut [Way; 2],
    buffer: &mut BytesMut,
    delay: Duration,
    is_cut: &AtomicBool,
) -> Result<Option<Instant>, TunError> {
    let now = clock::now();
    for (from, to) in [(0, 1), (1, 0)] {
        while let Some((offload, packet)) = ends[from].recv_offloaded(buffer)? {
            if !is_cut.load(Ordering::SeqCst) {
                ways[to].packets.push_back((now + delay, offload, packet));
            }
        }
        while let Some((_, offload, packet)) = ways[to].packets.pop_front_if(|(at, ..)| *at <= clock::now()) {
            match ends[to].send_offloaded(offload, &[&packet]) {
                // IPv6 on an interface without it.
                Ok(()) | Err(TunError::NotIp) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(ways.iter().filter_map(|way| Some(way.packets.front()?.0)).min())
}
