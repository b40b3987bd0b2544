//! A node's MAC and the buffer behind it.

use holdover_base::Instant;

use super::buffer::Buffer;
use super::hop::Hop;
use crate::queue::QueueLimit;

#[derive(Clone, Debug)]
pub(super) struct Sender<F> {
    pub(super) head: Option<Head<F>>,
    pub(super) buffer: Buffer<Hop<F>>,
}

#[derive(Clone, Debug)]
pub(super) struct Head<F> {
    pub(super) hop: Hop<F>,
    pub(super) len: u32,
    pub(super) failures: u32,
    pub(super) backoff_slots: Option<u32>,
    /// It was recalled while on the air: it is an orphan unless this attempt succeeds.
    pub(super) recalled: bool,
}

impl<F> Head<F> {
    pub(super) fn new(len: u32, hop: Hop<F>) -> Self {
        Self { hop, len, failures: 0, backoff_slots: None, recalled: false }
    }
}

impl<F> Sender<F> {
    pub(super) fn new(limit: QueueLimit) -> Self {
        Self { head: None, buffer: Buffer::new(limit) }
    }

    pub(super) fn push(&mut self, now: Instant, len: u32, hop: Hop<F>) -> Result<(), Hop<F>> {
        if self.load(now).is_some() {
            return self.buffer.push(now, len, hop);
        }
        self.head = Some(Head::new(len, hop));
        Ok(())
    }

    /// The frame in the MAC, taken from the buffer if the MAC has none.
    pub(super) fn load(&mut self, now: Instant) -> Option<&Head<F>> {
        if self.head.is_none() {
            let (len, hop) = self.buffer.pop(now)?;
            self.head = Some(Head::new(len, hop));
        }
        self.head.as_ref()
    }

    pub(super) fn under_way(&self) -> u64 {
        u64::from(self.head.is_some()) + self.buffer.len() as u64
    }
}
