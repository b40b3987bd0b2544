//! Records that arrive from one peer in pieces.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};

use super::record::RecordError;
use super::record_kinds::{Record, RecordKind};
use super::split_record::Piece;

/// The answer of one peer to a request.
#[derive(Clone, Debug)]
pub(super) struct Arriving {
    kind: RecordKind,
    /// The number of pieces.
    count: u16,
    /// The pieces that have arrived.
    got: BTreeSet<u16>,
    /// Records that have not arrived completely, by their numbers.
    partial: BTreeMap<u16, Partial>,
}

#[derive(Clone, Debug)]
struct Partial {
    total: usize,
    len: usize,
    pieces: BTreeMap<u32, Bytes>,
}

/// A complete record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Arrived {
    pub(super) record: Record,
    pub(super) bytes: Bytes,
    pub(super) is_doubtful: bool,
}

impl Arriving {
    pub(super) fn new(kind: RecordKind, count: u16) -> Self {
        Self { kind, count, got: BTreeSet::new(), partial: BTreeMap::new() }
    }

    /// Whether a piece has arrived before.
    pub(super) fn has(&self, index: u16, count: u16) -> bool {
        self.count == count && self.got.contains(&index)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.got.len() == usize::from(self.count)
    }

    /// Bytes of incomplete records.
    pub(super) fn stored_bytes(&self) -> usize {
        self.partial.values().map(|partial| partial.len).sum()
    }

    /// Takes a piece that has not arrived before. Returns its record if that is complete.
    ///
    /// # Errors
    /// If the piece or its record is invalid. It does not count as arrived then: its sender keeps the record.
    pub(super) fn take(&mut self, index: u16, count: u16, bytes: &Bytes) -> Result<Option<Arrived>, RecordError> {
        if count != self.count {
            return Err(RecordError::Field { field: "number of pieces" });
        }
        let Piece { is_doubtful, number, total, offset, bytes } = Piece::parse(bytes)?;
        let new = || Partial { total: total as usize, len: 0, pieces: BTreeMap::new() };
        let partial = self.partial.entry(number).or_insert_with(new);
        if partial.total != total as usize || partial.overlaps(offset, bytes.len()) {
            return Err(RecordError::Field { field: "offset" });
        }
        partial.len += bytes.len();
        partial.pieces.insert(offset, bytes.clone());
        let arrived = match partial.whole() {
            None => None,
            Some(whole) => match Record::parse(&whole, self.kind) {
                Ok(record) => Some(Arrived { record, bytes: whole, is_doubtful }),
                Err(error) => {
                    partial.len -= bytes.len();
                    partial.pieces.remove(&offset);
                    return Err(error);
                }
            },
        };
        if arrived.is_some() {
            self.partial.remove(&number);
        }
        self.got.insert(index);
        Ok(arrived)
    }
}

impl Partial {
    fn overlaps(&self, offset: u32, len: usize) -> bool {
        let before = self.pieces.range(..=offset).next_back();
        let overlaps_before = before.is_some_and(|(at, bytes)| *at as usize + bytes.len() > offset as usize);
        let after = self.pieces.range(offset..).next();
        overlaps_before || after.is_some_and(|(at, _)| offset as usize + len > *at as usize)
    }

    /// The record, if every piece has arrived.
    fn whole(&self) -> Option<Bytes> {
        if self.len < self.total {
            return None;
        }
        let mut whole = BytesMut::with_capacity(self.total);
        self.pieces.values().for_each(|bytes| whole.extend_from_slice(bytes));
        Some(whole.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u32, len: usize, total: u32) -> Bytes {
        Piece { is_doubtful: false, number: 0, total, offset, bytes: vec![0; len].into() }.emit()
    }

    /// Invalid bytes, pieces that overlap, and the last piece of a record that cannot be parsed do not count as arrived.
    #[test]
    fn invalid_pieces_have_not_arrived() {
        let mut arriving = Arriving::new(RecordKind::Whole, 4);
        assert!(arriving.take(0, 4, &Bytes::new()).is_err());
        assert!(arriving.take(0, 5, &piece(0, 100, 300)).is_err());
        assert_eq!(arriving.take(0, 4, &piece(100, 100, 300)), Ok(None));
        for (offset, len, total) in [(100, 100, 300), (50, 51, 300), (199, 10, 300), (0, 100, 200)] {
            assert!(arriving.take(1, 4, &piece(offset, len, total)).is_err(), "{offset} {len} {total}");
        }
        assert_eq!(arriving.take(1, 4, &piece(0, 100, 300)), Ok(None));
        for _ in 0..2 {
            assert!(arriving.take(2, 4, &piece(200, 100, 300)).is_err(), "the record is not one");
            assert!(!arriving.has(2, 4) && !arriving.is_complete());
        }
        assert_eq!(arriving.stored_bytes(), 200);
    }
}
