//! Counters of split connections, shared by the thread that splits and the daemon.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Split connections, and those that were not split.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SplitStatus {
    /// The daemon's device.
    pub device: String,
    /// The most connections at a time.
    pub most: u64,
    /// Connections that are split now, with those that both ends have closed and that still have bytes to deliver.
    pub open: u64,
    /// SYNs held while the far end is connected, and those whose near end has yet to complete its handshake.
    pub pending: u64,
    /// Connections split so far.
    pub total: u64,
    /// Bytes to mobile hosts.
    pub to_mobile_bytes: u64,
    /// Bytes from mobile hosts.
    pub from_mobile_bytes: u64,
    /// Connections that ended with a reset, or timed out.
    pub reset: u64,
    /// Connections that the far end refused.
    pub refused: u64,
    /// Connections whose far end was unreachable.
    pub unreachable: u64,
    /// Connections whose far end did not answer, or whose near end did not complete its handshake afterwards.
    pub unanswered: u64,
    /// Connections that were not split.
    pub unsplit: Unsplit,
    /// Whether the thread that splits has stopped, or hangs: new connections pass unsplit.
    pub stopped: bool,
}

/// Connections, or packets, that passed unsplit, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Unsplit {
    /// SYNs with TCP-MD5 or TCP-AO.
    pub authenticated: u64,
    /// SYNs of multipath TCP.
    pub multipath: u64,
    /// SYNs with wrong options or checksums.
    pub malformed: u64,
    /// SYNs above the limit of connections, or of handshakes of one client, or without descriptors or memory.
    pub full: u64,
    /// SYNs whose addresses and ports another socket of this host uses.
    pub address_in_use: u64,
    /// SYNs while the daemon hung, was stopping, or was gone.
    pub daemon_away: u64,
    /// Fragments of TCP segments.
    pub fragments: u64,
}

/// The same, while counting.
#[derive(Default, Debug)]
pub(super) struct Counters {
    pub(super) open: AtomicU64,
    pub(super) pending: AtomicU64,
    pub(super) total: AtomicU64,
    pub(super) to_mobile: AtomicU64,
    pub(super) from_mobile: AtomicU64,
    pub(super) reset: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) unreachable: AtomicU64,
    pub(super) unanswered: AtomicU64,
    pub(super) authenticated: AtomicU64,
    pub(super) multipath: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) full: AtomicU64,
    pub(super) address_in_use: AtomicU64,
    /// SYNs that the thread had taken at the request to stop.
    pub(super) stopping: AtomicU64,
}

/// Adds one.
pub(super) fn note(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// All counters except those of the programs.
    pub(super) fn status(&self) -> SplitStatus {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SplitStatus {
            open: get(&self.open),
            pending: get(&self.pending),
            total: get(&self.total),
            to_mobile_bytes: get(&self.to_mobile),
            from_mobile_bytes: get(&self.from_mobile),
            reset: get(&self.reset),
            refused: get(&self.refused),
            unreachable: get(&self.unreachable),
            unanswered: get(&self.unanswered),
            unsplit: Unsplit {
                authenticated: get(&self.authenticated),
                multipath: get(&self.multipath),
                malformed: get(&self.malformed),
                full: get(&self.full),
                address_in_use: get(&self.address_in_use),
                daemon_away: get(&self.stopping),
                ..Unsplit::default()
            },
            ..SplitStatus::default()
        }
    }
}
