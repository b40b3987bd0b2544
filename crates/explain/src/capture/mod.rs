//! Reads pcapng and pcap files packet by packet, from any program, optionally compressed.
//!
//! At most one block of the file is in memory, and only the headers of a packet are kept, unless whole ones are wanted.

mod compression;
mod link_layer;

use std::io::Read;

use holdover_base::Instant;
use holdover_wire::TcpHeaders;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

use compression::decompressed;
pub(crate) use link_layer::ip_packet;

/// A packet of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Captured<'a> {
    /// The capture time since the capture's epoch: 1970 for most, the start of the run for a simulator's.
    pub at: Instant,
    /// The first bytes of the IP packet.
    pub ip: &'a [u8],
    /// The length of the whole IP packet on the wire, including link padding.
    pub original_len: usize,
}

/// Errors of reading a capture.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CaptureReadError {
    /// The file is neither pcapng nor pcap.
    #[error("this is neither a pcapng nor a pcap file")]
    NotACapture,
    /// The capture is damaged.
    #[error("the capture is damaged {position} bytes into the file{}: {reason}", if *compressed { " (uncompressed)" } else { "" })]
    Damaged {
        /// The offset of the damaged block, in bytes of the uncompressed file.
        position: u64,
        /// Whether the file is compressed.
        compressed: bool,
        /// The defect.
        reason: String,
    },
    /// The file ends within a packet.
    #[error("the capture ends in the middle of a packet, {position} bytes into the file{}", if *compressed { " (uncompressed)" } else { "" })]
    CutShort {
        /// The offset of that packet, in bytes of the uncompressed file.
        position: u64,
        /// Whether the file is compressed.
        compressed: bool,
    },
    /// The file could not be read or decompressed.
    #[error("cannot be read: {reason}")]
    Io {
        /// The error of the system or the decompressor.
        reason: String,
    },
}

/// A capture, read sequentially.
pub struct Capture<'a> {
    reader: Box<dyn PcapReaderIterator + Send + 'a>,
    compressed: bool,
    /// The read error that ended the input early, if any: the parser does not pass it on.
    failure: compression::Failure,
    sources: Vec<Source>,
    /// The packet returned last.
    packet: Vec<u8>,
    /// The bytes kept of an IP packet.
    kept: usize,
    unsupported: Vec<i32>,
    over: bool,
}

impl core::fmt::Debug for Capture<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Capture").field("position", &self.position()).finish_non_exhaustive()
    }
}

/// An interface of a capture, with its link type and clock.
#[derive(Clone, Copy)]
struct Source {
    link: i32,
    ticks_per_second: u64,
    offset_seconds: i64,
}

/// The time and interface of a packet.
struct Found {
    at: Instant,
    original_len: usize,
}

impl<'a> Capture<'a> {
    /// The largest plausible block. Programs write blocks of at most one packet of 256 kB.
    const LARGEST_BLOCK: usize = 16 << 20;

    /// Begins to read a capture, optionally compressed with gzip or zstd.
    ///
    /// # Errors
    ///
    /// [`CaptureReadError::NotACapture`], or [`CaptureReadError::Io`] if the beginning cannot be read.
    pub fn new(input: impl Read + Send + 'a) -> Result<Self, CaptureReadError> {
        let (input, compressed, failure) = decompressed(input)?;
        let reader = create_reader(65_536, input).map_err(|_| match failure.reason() {
            Some(reason) => CaptureReadError::Io { reason },
            None => CaptureReadError::NotACapture,
        })?;
        Ok(Self {
            reader,
            compressed,
            failure,
            sources: Vec::new(),
            packet: Vec::new(),
            kept: TcpHeaders::ENOUGH,
            unsupported: Vec::new(),
            over: false,
        })
    }

    /// Keeps packets as far as the capture has them, and not their headers alone.
    #[must_use]
    pub fn with_payloads(self) -> Self {
        Self { kept: usize::MAX, ..self }
    }

    /// The next IP packet; `None` at the end.
    ///
    /// # Errors
    ///
    /// The capture is damaged or ends early. Earlier packets are valid; no packets follow.
    pub fn next_packet(&mut self) -> Result<Option<Captured<'_>>, CaptureReadError> {
        let found = if self.over { None } else { self.find()? };
        self.over = found.is_none();
        Ok(found.map(|found| Captured { at: found.at, ip: &self.packet, original_len: found.original_len }))
    }

    /// The bytes of the uncompressed file read so far.
    pub fn position(&self) -> u64 {
        self.reader.consumed() as u64
    }

    /// The unsupported link types so far (numbered as in <https://www.tcpdump.org/linktypes.html>).
    pub fn unsupported_links(&self) -> &[i32] {
        &self.unsupported
    }

    fn find(&mut self) -> Result<Option<Found>, CaptureReadError> {
        loop {
            match self.reader.next() {
                Ok((consumed, block)) => {
                    let found = match block_packet(&block, &mut self.sources) {
                        Piece::Packet(at, source, captured, original_len) => {
                            let take = take_packet(source, captured, original_len, (&mut self.packet, self.kept));
                            match take {
                                Ok(len) => Some(Found { at, original_len: len }),
                                Err(NoIp::Unsupported) => {
                                    if !self.unsupported.contains(&source.link) {
                                        self.unsupported.push(source.link);
                                    }
                                    None
                                }
                                Err(NoIp::Other) => None,
                            }
                        }
                        Piece::Nothing => None,
                    };
                    self.reader.consume(consumed);
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                Err(PcapError::Eof) => return self.end(false),
                Err(PcapError::UnexpectedEof) => return self.end(true),
                Err(PcapError::Incomplete(_) | PcapError::BufferTooSmall) => {
                    if self.reader.reader_exhausted() {
                        return self.end(!self.reader.data().is_empty());
                    }
                    let have = self.reader.data().len();
                    if have >= Self::LARGEST_BLOCK {
                        return Err(self.damaged(format!("a block of more than {} bytes", Self::LARGEST_BLOCK)));
                    }
                    let _ = self.reader.grow((2 * have).max(131_072));
                    if self.reader.refill().is_err() {
                        return self.end(true);
                    }
                }
                Err(error) => {
                    let reason = reason(&error);
                    return Err(self.damaged(reason));
                }
            }
        }
    }

    fn end(&self, within_packet: bool) -> Result<Option<Found>, CaptureReadError> {
        match (self.failure.reason(), within_packet) {
            (Some(reason), _) => Err(self.damaged(reason)),
            (None, true) => Err(CaptureReadError::CutShort { position: self.position(), compressed: self.compressed }),
            (None, false) => Ok(None),
        }
    }

    fn damaged(&self, reason: String) -> CaptureReadError {
        CaptureReadError::Damaged { position: self.position(), compressed: self.compressed, reason }
    }
}

/// Describes a parser error.
fn reason(error: &PcapError<&[u8]>) -> String {
    match error {
        PcapError::NomError(..) | PcapError::OwnedNomError(..) => {
            "this is not the header of a block or packet".to_owned()
        }
        PcapError::HeaderNotRecognized => "the file header is not recognised".to_owned(),
        PcapError::ReadError => "the file cannot be read".to_owned(),
        PcapError::Eof | PcapError::UnexpectedEof | PcapError::Incomplete(_) | PcapError::BufferTooSmall => {
            "the file ends early".to_owned()
        }
    }
}

/// A block of a file.
enum Piece<'b> {
    /// Capture time, interface, bytes, and original length.
    Packet(Instant, Source, &'b [u8], usize),
    /// No packet, or one without a time or an interface.
    Nothing,
}

fn block_packet<'b>(block: &'b PcapBlockOwned<'_>, sources: &mut Vec<Source>) -> Piece<'b> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let ticks_per_second = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            // The upper bits describe the frame check sequence.
            sources.push(Source { link: header.network.0 & 0xffff, ticks_per_second, offset_seconds: 0 });
        }
        PcapBlockOwned::Legacy(packet) => {
            let Some(&source) = sources.first() else { return Piece::Nothing };
            let nanos = u64::from(packet.ts_sec) * 1_000_000_000
                + u64::from(packet.ts_usec) * (1_000_000_000 / source.ticks_per_second);
            return Piece::Packet(Instant::from_nanos(nanos), source, packet.data, packet.origlen as usize);
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => sources.clear(),
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => sources.push(Source {
            link: interface.linktype.0,
            ticks_per_second: interface.ts_resolution().unwrap_or(1_000_000),
            offset_seconds: interface.if_tsoffset,
        }),
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let Some(&source) = sources.get(packet.if_id as usize) else { return Piece::Nothing };
            let ticks = u128::from(packet.ts_high) << 32 | u128::from(packet.ts_low);
            let nanos = ticks * 1_000_000_000 / u128::from(source.ticks_per_second.max(1));
            let nanos = i128::try_from(nanos).unwrap_or(i128::MAX) + i128::from(source.offset_seconds) * 1_000_000_000;
            let at = Instant::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX));
            let captured = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
            return Piece::Packet(at, source, captured, packet.origlen as usize);
        }
        PcapBlockOwned::NG(Block::SimplePacket(_)) => return Piece::Nothing,
        PcapBlockOwned::NG(_) => {}
    }
    Piece::Nothing
}

/// The reason that a frame has no IP packet.
enum NoIp {
    /// The link type is not supported.
    Unsupported,
    Other,
}

/// Copies so many of the first bytes of a frame's IP packet into `kept`; returns the packet's length.
fn take_packet(
    source: Source,
    captured: &[u8],
    original_len: usize,
    (kept, most): (&mut Vec<u8>, usize),
) -> Result<usize, NoIp> {
    let header_len = match ip_packet(source.link, captured) {
        link_layer::Payload::Ip(header_len) => header_len,
        link_layer::Payload::Other => return Err(NoIp::Other),
        link_layer::Payload::Unsupported => return Err(NoIp::Unsupported),
    };
    let ip = captured.get(header_len..).ok_or(NoIp::Other)?;
    kept.clear();
    kept.extend_from_slice(&ip[..ip.len().min(most)]);
    Ok(original_len.max(captured.len()) - header_len)
}

#[cfg(test)]
mod tests;
