//! A wire with a delay between two namespaces, without Ethernet: a TUN device at each end, and a thread that carries packets.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use bytes::{Bytes, BytesMut};
use holdover_base::{Duration, Instant};
use holdover_host::{Namespace, Offload, Tun, TunConfig, TunError, clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::WorldError;

/// Carries packets until dropped.
#[derive(Debug)]
pub struct Wire {
    is_over: Arc<AtomicBool>,
    is_cut: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Packets on their way to one end.
#[derive(Debug, Default)]
struct Way {
    packets: VecDeque<(Instant, Offload, Bytes)>,
}

/// The longest sleep of the thread.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

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
        let (is_over, is_cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::Builder::new().name("wire".to_owned()).spawn({
            let (is_over, is_cut) = (Arc::clone(&is_over), Arc::clone(&is_cut));
            move || {
                if let Err(error) = carry(&ends, delay, &is_over, &is_cut) {
                    tracing::warn!(%error, "an interface of the demo failed");
                }
            }
        })?;
        Ok(Self { is_over, is_cut, thread: Some(thread) })
    }

    /// Drops all packets, or carries them again. The devices keep their carriers.
    pub fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // The panic message was printed already.
            let _ = thread.join();
        }
    }
}

fn carry(ends: &[Tun; 2], delay: Duration, is_over: &AtomicBool, is_cut: &AtomicBool) -> Result<(), TunError> {
    let mut ways = [Way::default(), Way::default()];
    let mut buffer = BytesMut::new();
    while !is_over.load(Ordering::SeqCst) {
        let now = clock::now();
        for (from, to) in [(0, 1), (1, 0)] {
            while let Some((offload, packet)) = ends[from].recv_offloaded(&mut buffer)? {
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
        let due = ways.iter().filter_map(|way| Some(way.packets.front()?.0)).min();
        let wait = due.map_or(LONGEST_SLEEP, |at| at.saturating_since(clock::now())).min(LONGEST_SLEEP);
        let patience = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as _ };
        let mut readable = [PollFd::new(&ends[0], PollFlags::IN), PollFd::new(&ends[1], PollFlags::IN)];
        // After an interruption the next round checks again.
        let _ = poll(&mut readable, Some(&patience));
    }
    Ok(())
}
