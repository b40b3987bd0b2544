//! Data written by the application and not sent yet.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::on_demand::OnDemand;
use crate::receive_buffer::push_coalescing;

/// Chunks in the order in which they were written.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct SendBuffer {
    chunks: OnDemand<VecDeque<Bytes>>,
    len: usize,
}

impl SendBuffer {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.len += chunk.len();
            push_coalescing(self.chunks.to_mut(), chunk);
        }
    }

    /// Takes the first `len` bytes: without copying where they lie in one chunk.
    pub(crate) fn take(&mut self, len: usize) -> Bytes {
        let len = len.min(self.len);
        self.len -= len;
        match self.chunks.if_present().and_then(VecDeque::front_mut) {
            None => Bytes::new(),
            Some(first) if first.len() > len => first.split_to(len),
            Some(_) => self.take_chunks(len),
        }
    }

    /// Takes the first chunk, and fills up to `len` from the following ones.
    fn take_chunks(&mut self, len: usize) -> Bytes {
        let chunks = self.chunks.to_mut();
        let mut taken = chunks.pop_front().unwrap_or_default();
        if taken.len() < len {
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
            taken = joined.freeze();
        }
        if chunks.is_empty() {
            self.chunks.clear();
        }
        taken
    }

    /// The first byte, left where it is: for a window probe.
    pub(crate) fn peek_byte(&self) -> Option<Bytes> {
        self.chunks.front().map(|chunk| chunk.slice(..1))
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_bytes_do_not_multiply_the_bookkeeping() {
        let mut buffer = SendBuffer::default();
        (0..10_000_u32).for_each(|n| buffer.push(Bytes::copy_from_slice(&[n as u8])));
        assert!(buffer.len() == 10_000 && buffer.chunks.len() <= 10);
        assert!(buffer.take(10_000).iter().zip(0_u32..).all(|(&byte, n)| byte == n as u8));
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
        assert!(buffer.chunks.is_absent());
    }
}
