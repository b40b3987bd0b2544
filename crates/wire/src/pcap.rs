//! Captures in the classic pcap format with times in nanoseconds, for programs that do not read [`crate::pcapng`]: one
//! interface without a name, and no comments.

use std::io;

use bytes::{BufMut, BytesMut};
use holdover_base::{Duration, Instant};

use crate::pcapng::LINKTYPE_RAW;
use crate::{CaptureError, Packet};

/// The magic number: times in nanoseconds; it also shows the byte order.
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const RECORD_HEADER_LEN: usize = 16;

/// Writes a capture, one record for each call. Nothing is buffered.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    snap_len: u32,
    start: Duration,
    record: BytesMut,
}

impl<W: io::Write> Writer<W> {
    /// Begins a capture that keeps the first `snap_len` bytes of each packet. Time zero of a run is shown as
    /// 1970-01-01: see [`Writer::with_start`].
    pub fn new(mut out: W, snap_len: u32) -> Result<Self, CaptureError> {
        let mut header = BytesMut::with_capacity(24);
        header.put_u32_le(MAGIC_NANOSECONDS);
        header.put_u16_le(2);
        header.put_u16_le(4);
        // Time zone and accuracy are zero by convention.
        header.put_u64_le(0);
        header.put_u32_le(snap_len);
        header.put_u32_le(u32::from(LINKTYPE_RAW));
        out.write_all(&header)?;
        Ok(Self { out, snap_len, start: Duration::ZERO, record: BytesMut::new() })
    }

    /// Shows time zero of a run as `since_1970` after 1970-01-01 00:00 UTC.
    pub fn with_start(self, since_1970: Duration) -> Self {
        Self { start: since_1970, ..self }
    }

    /// Records a packet.
    pub fn write(&mut self, at: Instant, packet: &Packet) -> Result<(), CaptureError> {
        let nanos = self.start.as_nanos().saturating_add(at.as_nanos());
        let (secs, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        self.record.clear();
        self.record.put_u32_le(u32::try_from(secs).map_err(|_| CaptureError::TimeOutOfRange { secs })?);
        self.record.put_u32_le(nanos as u32);
        self.record.put_u64_le(0);
        let original = packet.emit_prefix_into(&mut self.record, self.snap_len as usize)?;
        let captured = self.record.len() - RECORD_HEADER_LEN;
        self.record[8..12].copy_from_slice(&(captured as u32).to_le_bytes());
        self.record[12..16].copy_from_slice(&(original as u32).to_le_bytes());
        Ok(self.out.write_all(&self.record)?)
    }

    /// The output; a capture has no trailer.
    pub fn into_inner(self) -> W {
        self.out
    }
}
