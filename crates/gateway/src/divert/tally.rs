//! Counters of diverted packets.

/// Why a packet was discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The queue of its mobile host is full.
    MobileFull,
    /// All queues together are full, and no other host uses more.
    TotalFull,
    /// It was evicted for a packet of a host that uses less.
    Evicted,
    /// It was buffered for too long.
    Aged,
    /// It could not be stored.
    Storage,
    /// Its mobile host was removed, or the gateway is stopping.
    Forgotten,
    /// Its mobile host has moved to another gateway, which does not get it.
    Moved,
}

/// The counters of one mobile host or of all.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Tally {
    /// Absences.
    pub absences: u64,
    /// Absences that mobile hosts predicted by a sign in their packets.
    #[cfg_attr(feature = "serde", serde(default))]
    pub warnings: u64,
    /// Packets that were queued.
    pub queued: u64,
    /// Bytes of these.
    pub queued_bytes: u64,
    /// Packets that were released.
    pub released: u64,
    /// Packets dropped because the queue of the host was full.
    pub mobile_full: u64,
    /// Packets dropped because all queues were full.
    pub total_full: u64,
    /// Packets evicted for others.
    pub evicted: u64,
    /// Packets buffered for too long.
    pub aged: u64,
    /// Packets that could not be stored.
    pub storage: u64,
    /// Packets discarded with their mobile host.
    pub forgotten: u64,
    /// Packets dropped because their mobile host has moved to another gateway.
    #[cfg_attr(feature = "serde", serde(default))]
    pub moved: u64,
}

impl Tally {
    pub(super) fn note_loss(&mut self, loss: Loss) {
        *match loss {
            Loss::MobileFull => &mut self.mobile_full,
            Loss::TotalFull => &mut self.total_full,
            Loss::Evicted => &mut self.evicted,
            Loss::Aged => &mut self.aged,
            Loss::Storage => &mut self.storage,
            Loss::Forgotten => &mut self.forgotten,
            Loss::Moved => &mut self.moved,
        } += 1;
    }

    /// Packets discarded for any reason.
    pub const fn lost(&self) -> u64 {
        self.mobile_full + self.total_full + self.evicted + self.aged + self.storage + self.forgotten + self.moved
    }
}
