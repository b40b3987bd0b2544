//! Writes captures in the pcapng format (draft-ietf-opsawg-pcapng), which Wireshark opens: several interfaces with names, times in
//! nanoseconds, the direction of each packet, and comments.
//!
//! ```
//! use holdover_base::Instant;
//! use holdover_wire::pcapng::{Interface, Record, Writer};
//! use holdover_wire::{Packet, Udp};
//!
//! let mut capture = Writer::new(Vec::new(), "an example")?;
//! let radio = capture.add_interface(&Interface::new("wlan0"))?;
//! let packet = Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Udp::default());
//! capture.write(&Record { comment: "dropped: link is down", ..Record::new(Instant::from_millis(5), radio) }, &packet)?;
//! # Ok::<(), holdover_wire::CaptureError>(())
//! ```

use std::io;

use bytes::{BufMut, BytesMut};
use holdover_base::{BitRate, Duration, Instant};

use crate::{CaptureError, Packet};

/// Raw IP packets, whose first four bits distinguish IPv4 from IPv6.
pub(crate) const LINKTYPE_RAW: u16 = 101;

/// Writes a capture, one block for each call. Nothing is buffered: give it a `BufWriter` where writing is expensive.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// The snap length of each interface.
    interfaces: Vec<u32>,
    start: Duration,
    block: BytesMut,
}

/// An interface of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Interface<'a> {
    /// Its name; empty if it has none.
    pub name: &'a str,
    /// A description for readers; empty for none.
    pub description: &'a str,
    /// Its rate, if fixed.
    pub speed: Option<BitRate>,
    /// Bytes kept of each packet; `None` for all.
    pub snap_len: Option<u32>,
}

impl<'a> Interface<'a> {
    /// An interface with a name only, whose packets are kept whole.
    pub fn new(name: &'a str) -> Self {
        Self { name, description: "", speed: None, snap_len: None }
    }
}

/// An interface of one writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceId(u32);

/// Whether the interface received or sent the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureDirection {
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// The time, interface and direction of a captured packet.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The time.
    pub at: Instant,
    /// The interface.
    pub interface: InterfaceId,
    /// The direction, if known.
    pub direction: Option<CaptureDirection>,
    /// A comment that is shown with the packet; empty for none.
    pub comment: &'a str,
}

impl Record<'_> {
    /// A record without direction and comment.
    pub fn new(at: Instant, interface: InterfaceId) -> Self {
        Self { at, interface, direction: None, comment: "" }
    }
}

impl<W: io::Write> Writer<W> {
    /// Begins a capture by the program called `application` (as `holdover 0.1.0`). Time zero of a run is shown as
    /// 1970-01-01: see [`Writer::with_start`].
    pub fn new(out: W, application: &str) -> Result<Self, CaptureError> {
        let mut writer = Self { out, interfaces: Vec::new(), start: Duration::ZERO, block: BytesMut::new() };
        writer.begin(SECTION_HEADER);
        writer.block.put_u32_le(BYTE_ORDER_MAGIC);
        writer.block.put_u16_le(1);
        writer.block.put_u16_le(0);
        // The length of the section is not known in advance.
        writer.block.put_i64_le(-1);
        put_text(&mut writer.block, SHB_USERAPPL, application)?;
        writer.block.put_u32_le(END_OF_OPTIONS);
        writer.finish()?;
        Ok(writer)
    }

    /// Shows time zero of a run as `since_1970` after 1970-01-01 00:00 UTC.
    pub fn with_start(self, since_1970: Duration) -> Self {
        Self { start: since_1970, ..self }
    }

    /// Adds an interface, at any time before its first packet.
    pub fn add_interface(&mut self, interface: &Interface<'_>) -> Result<InterfaceId, CaptureError> {
        self.begin(INTERFACE_DESCRIPTION);
        self.block.put_u16_le(LINKTYPE_RAW);
        self.block.put_u16_le(0);
        // Zero means no limit, so the minimum is 1.
        self.block.put_u32_le(interface.snap_len.map_or(0, |len| len.max(1)));
        put_text(&mut self.block, IF_NAME, interface.name)?;
        put_text(&mut self.block, IF_DESCRIPTION, interface.description)?;
        if let Some(speed) = interface.speed {
            put_option(&mut self.block, IF_SPEED, &speed.0.to_le_bytes());
        }
        put_option(&mut self.block, IF_TSRESOL, &[NANOSECONDS]);
        self.block.put_u32_le(END_OF_OPTIONS);
        let id = InterfaceId(self.interfaces.len() as u32);
        self.finish()?;
        self.interfaces.push(interface.snap_len.map_or(u32::MAX, |len| len.max(1)));
        Ok(id)
    }

    /// Records a packet; copies no more than the interface's snap length.
    pub fn write(&mut self, record: &Record<'_>, packet: &Packet) -> Result<(), CaptureError> {
        let snap_len = self.begin_packet(record)?;
        let original = packet.emit_prefix_into(&mut self.block, snap_len)?;
        self.finish_packet(record, original)
    }

    /// Records the bytes of a packet of `original_len` bytes; `captured` is its beginning or the whole. It need not be
    /// a valid packet.
    pub fn write_bytes(
        &mut self,
        record: &Record<'_>,
        captured: &[u8],
        original_len: usize,
    ) -> Result<(), CaptureError> {
        if captured.len() > original_len || u32::try_from(original_len).is_err() {
            return Err(CaptureError::PacketLength { captured: captured.len(), original: original_len });
        }
        let snap_len = self.begin_packet(record)?;
        self.block.put_slice(&captured[..captured.len().min(snap_len)]);
        self.finish_packet(record, original_len)
    }

    /// Flushes the output.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        Ok(self.out.flush()?)
    }

    /// The output; a capture has no trailer.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Begins a packet's block; returns the limit of bytes to keep.
    fn begin_packet(&mut self, record: &Record<'_>) -> Result<usize, CaptureError> {
        let index = record.interface.0;
        let &snap_len = self.interfaces.get(index as usize).ok_or(CaptureError::NoSuchInterface { index })?;
        let nanos = self.start.as_nanos().saturating_add(record.at.as_nanos());
        self.begin(ENHANCED_PACKET);
        self.block.put_u32_le(index);
        self.block.put_u32_le((nanos >> 32) as u32);
        self.block.put_u32_le(nanos as u32);
        // Captured and original length are known once the packet's bytes are appended.
        self.block.put_u64_le(0);
        Ok(snap_len as usize)
    }

    fn finish_packet(&mut self, record: &Record<'_>, original_len: usize) -> Result<(), CaptureError> {
        let captured_len = self.block.len() - PACKET_DATA_AT;
        set_u32(&mut self.block, PACKET_DATA_AT - 8, captured_len);
        set_u32(&mut self.block, PACKET_DATA_AT - 4, original_len);
        pad(&mut self.block);
        if record.direction.is_some() || !record.comment.is_empty() {
            put_text(&mut self.block, OPT_COMMENT, record.comment)?;
            if let Some(direction) = record.direction {
                let flags: u32 = match direction {
                    CaptureDirection::Inbound => 1,
                    CaptureDirection::Outbound => 2,
                };
                put_option(&mut self.block, EPB_FLAGS, &flags.to_le_bytes());
            }
            self.block.put_u32_le(END_OF_OPTIONS);
        }
        self.finish()
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.block.put_u32_le(kind);
        self.block.put_u32_le(0);
    }

    fn finish(&mut self) -> Result<(), CaptureError> {
        let len = self.block.len() + 4;
        set_u32(&mut self.block, 4, len);
        self.block.put_u32_le(len as u32);
        Ok(self.out.write_all(&self.block)?)
    }
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Type, length, interface, two halves of the time, two lengths.
const PACKET_DATA_AT: usize = 28;

/// An option of code 0 and length 0.
const END_OF_OPTIONS: u32 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_SPEED: u16 = 8;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
/// The time stamps count units of 10^-9 s.
const NANOSECONDS: u8 = 9;

fn put_text(block: &mut BytesMut, code: u16, text: &str) -> Result<(), CaptureError> {
    if text.len() > usize::from(u16::MAX) {
        return Err(CaptureError::TextTooLong { len: text.len() });
    }
    if !text.is_empty() {
        put_option(block, code, text.as_bytes());
    }
    Ok(())
}

fn put_option(block: &mut BytesMut, code: u16, value: &[u8]) {
    block.put_u16_le(code);
    block.put_u16_le(value.len() as u16);
    block.put_slice(value);
    pad(block);
}

/// Everything in a block begins at a multiple of 4 bytes.
fn pad(block: &mut BytesMut) {
    let padding = block.len().next_multiple_of(4) - block.len();
    block.put_bytes(0, padding);
}

fn set_u32(block: &mut BytesMut, at: usize, value: usize) {
    block[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
}
