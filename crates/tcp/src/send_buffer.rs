//! Data written by the application and not sent yet.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::on_demand::{Absent, OnDemand};
use crate::receive_buffer::push_coalescing;

/// Chunks in the order in which they were written.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct SendBuffer {
    stored: OnDemand<Stored>,
    len: usize,
}

#[derive(Clone, PartialEq, Debug)]
struct Stored {
    chunks: VecDeque<Bytes>,
    /// Where records end (Linux `MSG_EOR`), in bytes since the first of these was written.
    record_ends: VecDeque<u64>,
    /// Bytes taken since then.
    taken: u64,
}

impl Absent for Stored {
    const ABSENT: &'static Self = &Self { chunks: VecDeque::new(), record_ends: VecDeque::new(), taken: 0 };
}

impl SendBuffer {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes up to the end of the first record, or all of them: no segment has data from both sides of that end.
    #[inline(always)]
    pub(crate) fn front_len(&self) -> usize {
        self.first_record().unwrap_or(self.len)
    }

    /// The length of the first record, if its end is marked.
    #[inline(always)]
    pub(crate) fn first_record(&self) -> Option<usize> {
        let stored = self.stored.get()?;
        stored.record_ends.front().map(|end| (end - stored.taken) as usize)
    }

    /// A record ends with the last data pushed.
    pub(crate) fn end_record(&mut self) {
        if self.len == 0 {
            return;
        }
        let stored = self.stored.to_mut();
        if stored.record_ends.is_empty() {
            stored.taken = 0;
        }
        let end = stored.taken + self.len as u64;
        if stored.record_ends.back() != Some(&end) {
            stored.record_ends.push_back(end);
        }
    }

    pub(crate) fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.len += chunk.len();
            push_coalescing(&mut self.stored.to_mut().chunks, chunk);
        }
    }

    /// Takes the first `len` bytes: without copying where they lie in one chunk.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Bytes {
        if let Some(Stored { chunks, record_ends, .. }) = self.stored.if_present()
            && let Some(first) = chunks.front_mut().filter(|first| first.len() > len)
            && record_ends.is_empty()
        {
            self.len -= len;
            return first.split_to(len);
        }
        self.take_whole_chunks(len)
    }

    fn take_whole_chunks(&mut self, len: usize) -> Bytes {
        let len = len.min(self.len);
        self.len -= len;
        let Some(stored) = self.stored.if_present() else { return Bytes::new() };
        let taken = match stored.chunks.front_mut() {
            None => Bytes::new(),
            Some(first) if first.len() > len => first.split_to(len),
            Some(_) => take_chunks(&mut stored.chunks, len),
        };
        if !stored.record_ends.is_empty() {
            stored.pass_records(len);
        }
        if self.len == 0 {
            self.stored.clear();
        }
        taken
    }

    /// The first byte, left where it is: for a window probe.
    pub(crate) fn peek_byte(&self) -> Option<Bytes> {
        self.stored.chunks.front().map(|chunk| chunk.slice(..1))
    }

    /// The data, in chunks.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &Bytes> {
        self.stored.chunks.iter()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Stored {
    /// Forgets the ends of records that were taken.
    #[cold]
    fn pass_records(&mut self, len: usize) {
        self.taken += len as u64;
        while self.record_ends.front().is_some_and(|&end| end <= self.taken) {
            self.record_ends.pop_front();
        }
    }
}

/// Takes the first chunk, and fills up to `len` from the following ones.
fn take_chunks(chunks: &mut VecDeque<Bytes>, len: usize) -> Bytes {
    let taken = chunks.pop_front().unwrap_or_default();
    if taken.len() >= len {
        return taken;
    }
    let mut joined = BytesMut::with_capacity(len);
    joined.extend_from_slice(&taken);
    while joined.len() < len {
        let Some(mut chunk) = chunks.pop_front() else { break };
        let wanted = len - joined.len();
        if chunk.len() > wanted {
            joined.extend_from_slice(&chunk.split_to(wanted));
            chunks.push_front(chunk);
        } else {
            joined.extend_from_slice(&chunk);
        }
    }
    joined.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_bytes_do_not_multiply_the_bookkeeping() {
        let mut buffer = SendBuffer::default();
        (0..10_000_u32).for_each(|n| buffer.push(Bytes::copy_from_slice(&[n as u8])));
        assert!(buffer.len() == 10_000 && buffer.stored.chunks.len() <= 10);
        assert!(buffer.take(10_000).iter().zip(0_u32..).all(|(&byte, n)| byte == n as u8));
    }

    #[test]
    fn records_end_where_they_were_ended() {
        let mut buffer = SendBuffer::default();
        buffer.end_record();
        assert_eq!((buffer.front_len(), buffer.first_record()), (0, None));
        buffer.push(Bytes::from_static(b"abcd"));
        assert_eq!((buffer.front_len(), buffer.first_record()), (4, None));
        buffer.end_record();
        buffer.end_record();
        buffer.push(Bytes::from_static(b"ef"));
        buffer.end_record();
        buffer.push(Bytes::from_static(b"g"));
        assert_eq!(&buffer.take(3)[..], b"abc");
        assert_eq!(buffer.first_record(), Some(1));
        assert_eq!(&buffer.take(1)[..], b"d");
        assert_eq!(buffer.first_record(), Some(2));
        assert_eq!(&buffer.take(2)[..], b"ef");
        assert_eq!((buffer.front_len(), buffer.first_record()), (1, None));
        assert!(buffer.stored.record_ends.is_empty());
    }

    #[test]
    fn taking_joins_chunks_in_order() {
        let mut buffer = SendBuffer::default();
        for chunk in [&b"abc"[..], b"", b"de", b"fgh"] {
            buffer.push(Bytes::copy_from_slice(chunk));
        }
        assert_eq!(buffer.len(), 8);
        assert_eq!(&buffer.take(2)[..], b"ab");
        assert_eq!(&buffer.take(4)[..], b"cdef");
        assert_eq!(buffer.peek_byte().as_deref(), Some(&b"g"[..]));
        assert_eq!(&buffer.take(99)[..], b"gh");
        assert!(buffer.is_empty() && buffer.take(1).is_empty() && buffer.peek_byte().is_none());
        assert!(buffer.stored.is_absent());
    }
}
