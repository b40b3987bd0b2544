//! The buffered packets of mobile hosts: room within the limits, eviction, and ages.

use core::net::IpAddr;

use holdover_base::Instant;

use super::{Diverter, Loss, Mobile};

impl<T> Diverter<T> {
    /// Evicts packets until `len` bytes more fit.
    pub(super) fn make_room(&mut self, now: Instant, address: IpAddr, len: u64) -> Result<(), Loss> {
        let limits = self.config;
        let own = self.mobile(address).ok_or(Loss::TotalFull)?.fifo.bytes();
        if own + len > limits.mobile_bytes {
            return Err(Loss::MobileFull);
        }
        while self.bytes + len > limits.total_bytes {
            let largest = self.by_size.last().copied().filter(|&(bytes, other)| other != address && bytes > own + len);
            let (_, largest) = largest.ok_or(Loss::TotalFull)?;
            let Some((item, _)) = self.take(largest, true) else { return Err(Loss::TotalFull) };
            self.lose(largest, item, Loss::Evicted);
            self.update(now, largest);
        }
        Ok(())
    }

    pub(super) fn enqueue(&mut self, came_at: Instant, address: IpAddr, len: u32, item: T) {
        let mobile = self.mobiles.entry(address).or_insert_with(Mobile::new);
        let before = mobile.fifo.bytes();
        mobile.fifo.push(came_at, len, item);
        mobile.queued_at = mobile.queued_at.max(Some(came_at));
        mobile.tally.queued += 1;
        mobile.tally.queued_bytes += u64::from(len);
        self.tally.queued += 1;
        self.tally.queued_bytes += u64::from(len);
        self.resize(address, before);
    }

    /// Removes the oldest or the newest packet of a mobile host; returns it with its length.
    pub(super) fn take(&mut self, address: IpAddr, newest: bool) -> Option<(T, u32)> {
        let mobile = self.mobiles.get_mut(&address)?;
        let before = mobile.fifo.bytes();
        let entry = if newest { mobile.fifo.pop_newest() } else { mobile.fifo.pop() }?;
        self.resize(address, before);
        Some((entry.item, entry.len))
    }

    /// The buffered bytes of a mobile host have changed.
    fn resize(&mut self, address: IpAddr, before: u64) {
        let Some(mobile) = self.mobiles.get(&address) else { return };
        let after = mobile.fifo.bytes();
        let is_empty = mobile.fifo.is_empty();
        self.by_size.remove(&(before, address));
        self.bytes = self.bytes + after - before;
        if is_empty {
            self.give_up_turn(address);
        } else {
            self.by_size.insert((after, address));
        }
    }

    pub(super) fn lose(&mut self, address: IpAddr, item: T, loss: Loss) {
        self.tally.note_loss(loss);
        if let Some(mobile) = self.mobiles.get_mut(&address) {
            mobile.tally.note_loss(loss);
        }
        self.discarded.push_back((address, item, loss));
    }

    pub(super) fn discard_aged(&mut self, now: Instant) {
        let longest = self.config.longest;
        let waiting: Vec<IpAddr> = self.by_size.iter().map(|&(_, address)| address).collect();
        for address in waiting {
            let is_aged = |mobile: &Mobile<T>| {
                mobile.fifo.front().is_some_and(|head| now.saturating_since(head.came_at) >= longest)
            };
            while self.mobiles.get(&address).is_some_and(is_aged) {
                let Some((item, _)) = self.take(address, false) else { break };
                self.lose(address, item, Loss::Aged);
            }
            self.update(now, address);
        }
    }
}
