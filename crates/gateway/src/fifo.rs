//! A first-in, first-out queue that knows its size in bytes and the age of its head.

use std::collections::VecDeque;

use holdover_base::Instant;

/// Items of known length in the order of their arrival: packets, or their locations in a store.
#[derive(Clone, Debug)]
pub(crate) struct Fifo<T> {
    entries: VecDeque<Entry<T>>,
    bytes: u64,
}

/// An item with its length and arrival.
#[derive(Clone, Debug)]
pub(crate) struct Entry<T> {
    pub(crate) came_at: Instant,
    /// In bytes.
    pub(crate) len: u32,
    pub(crate) item: T,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Fifo<T> {
    /// Appends an item of `len` bytes.
    pub(crate) fn push(&mut self, came_at: Instant, len: u32, item: T) {
        self.bytes += u64::from(len);
        self.entries.push_back(Entry { came_at, len, item });
    }

    /// The oldest item.
    pub(crate) fn front(&self) -> Option<&Entry<T>> {
        self.entries.front()
    }

    /// The items, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.item)
    }

    /// Removes the oldest item.
    pub(crate) fn pop(&mut self) -> Option<Entry<T>> {
        let entry = self.entries.pop_front()?;
        self.bytes -= u64::from(entry.len);
        Some(entry)
    }

    /// Removes the newest item.
    pub(crate) fn pop_newest(&mut self) -> Option<Entry<T>> {
        let entry = self.entries.pop_back()?;
        self.bytes -= u64::from(entry.len);
        Some(entry)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The lengths of all items.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}
