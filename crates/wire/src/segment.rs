//! A TCP segment as a value (RFC 9293 section 3.1 and the options in use).

use core::fmt;
use core::ops::{Deref, DerefMut};

use bytes::Bytes;
use holdover_base::Duration;

use crate::{AccurateEcn, Experimental, FastOpen, Seq, SeqRange};

bitflags::bitflags! {
    /// The control bits of a segment (RFC 9293 section 3.1; ECE and CWR from RFC 3168, AE from RFC 9768).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct Flags: u16 {
        /// No more data from the sender.
        const FIN = 0x001;
        /// Synchronize sequence numbers.
        const SYN = 0x002;
        /// Reset the connection.
        const RST = 0x004;
        /// Push.
        const PSH = 0x008;
        /// The acknowledgment field is significant.
        const ACK = 0x010;
        /// The urgent pointer is significant.
        const URG = 0x020;
        /// ECN-Echo.
        const ECE = 0x040;
        /// Congestion Window Reduced.
        const CWR = 0x080;
        /// Accurate ECN (formerly the nonce sum).
        const AE = 0x100;
    }
}

/// Prints the bits as tcpdump does: `S`, `F.`, `P.`.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, letter) in [
            (Self::SYN, "S"),
            (Self::FIN, "F"),
            (Self::RST, "R"),
            (Self::PSH, "P"),
            (Self::URG, "U"),
            (Self::ECE, "E"),
            (Self::CWR, "W"),
            (Self::AE, "e"),
            (Self::ACK, "."),
        ] {
            if self.contains(bit) {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

/// One TCP segment: header, options and payload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// SEG.SEQ: the number of the first byte of the payload, or of the SYN.
    pub seq: Seq,
    /// SEG.ACK: the next number the sender of this segment expects; meaningful when [`Flags::ACK`] is set.
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// The window field as on the wire: not yet scaled (RFC 7323 section 2.2).
    pub window: u16,
    /// Urgent pointer; meaningful when [`Flags::URG`] is set.
    pub urgent: u16,
    /// Options.
    pub options: TcpOptions,
    /// Data.
    pub payload: Bytes,
}

impl Segment {
    /// SEG.LEN: the sequence numbers the segment occupies, counting SYN and FIN (RFC 9293 section 3.4).
    pub fn seq_len(&self) -> u32 {
        self.payload.len() as u32
            + u32::from(self.flags.contains(Flags::SYN))
            + u32::from(self.flags.contains(Flags::FIN))
    }

    /// Whether the segment occupies no sequence space and acknowledges: a pure ACK.
    pub fn is_pure_ack(&self) -> bool {
        self.payload.is_empty()
            && self.flags.contains(Flags::ACK)
            && !self.flags.intersects(Flags::SYN | Flags::FIN | Flags::RST)
    }

    /// Bytes of TCP header, options and payload on the wire.
    #[inline]
    pub fn wire_len(&self) -> usize {
        Self::HEADER_LEN + self.options.wire_len() + self.payload.len()
    }

    /// Bytes of a TCP header without options.
    pub const HEADER_LEN: usize = 20;
    /// The most option bytes that fit into a TCP header.
    pub const MAX_OPTIONS_LEN: usize = 40;
}

/// Prints the segment as tcpdump does: `1000 > 80: P. 1:101 ack 5 win 512 <ts 1 0>`, with absolute numbers.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}: {} {}", self.src_port, self.dst_port, self.flags, self.seq)?;
        if self.seq_len() > 0 {
            write!(f, ":{}", self.seq + self.seq_len())?;
        }
        if self.flags.contains(Flags::ACK) {
            write!(f, " ack {}", self.ack)?;
        }
        write!(f, " win {}", self.window)?;
        if self.flags.contains(Flags::URG) {
            write!(f, " urg {}", self.urgent)?;
        }
        if !self.options.is_empty() {
            write!(f, " <{}>", self.options)?;
        }
        Ok(())
    }
}

/// The options of one segment.
///
/// They are kept by meaning, not by position: a segment that is read and written again carries the same options in the
/// order of timestamps, Accurate ECN and SACK among those of [`RareOptions`], which are read and written as fields of this type.
/// [`TcpOptions::unknown`] counts those that were skipped when reading (RFC 9293 section 3.2, MUST-6: an unknown option is ignored).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TcpOptions {
    /// Timestamps, kind 8 (RFC 7323 section 3).
    pub timestamps: Option<Timestamps>,
    /// SACK blocks, kind 5 (RFC 2018 section 3), the most recently received first; a duplicate is reported in the first
    /// (RFC 2883).
    pub sack: SackBlocks,
    /// Accurate ECN, kind 172 or 174 (RFC 9768 section 3.2.3).
    pub accurate_ecn: Option<AccurateEcn>,
    /// The other options, which hardly any segment but a SYN carries: `options.mss` is `options.rare.mss`.
    pub rare: Rare,
    /// The number of options skipped on parsing, for an unknown kind or an invalid length; not emitted.
    pub unknown: u8,
    /// One of the skipped options is a signature (TCP-MD5, TCP-AO), which covers at least ACK and window: the receiver drops a segment
    /// that was changed on its way. Not emitted.
    pub is_signed: bool,
    /// One of the skipped options is of Multipath TCP, whose window counts from the DATA_ACK in it and not from the ACK in the
    /// header (RFC 8684 section 3.3.1). Not emitted.
    pub is_multipath: bool,
}

/// A move of up to 128 bytes is a few vector instructions, one of more a call of memcpy(3).
const _: () = assert!(size_of::<Segment>() <= 128);

/// The options of SYNs, and others that few segments carry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RareOptions {
    /// Maximum Segment Size, kind 2 (RFC 9293 section 3.7.1), in bytes of payload.
    pub mss: Option<u16>,
    /// Window Scale, kind 3 (RFC 7323 section 2), as a shift count.
    pub window_scale: Option<u8>,
    /// SACK-Permitted, kind 4 (RFC 2018 section 2).
    pub sack_permitted: bool,
    /// User Timeout, kind 28 (RFC 5482).
    pub user_timeout: Option<UserTimeout>,
    /// Fast Open, kind 34 or as an experiment (RFC 7413 section 4.1.1).
    pub fast_open: Option<Box<FastOpen>>,
    /// Shared experimental options, kinds 253 and 254 with an experiment identifier (RFC 6994).
    pub experimental: Option<Box<[Experimental]>>,
}

impl RareOptions {
    const NONE: &'static Self = &Self {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        user_timeout: None,
        fast_open: None,
        experimental: None,
    };
}

/// [`RareOptions`] in one word: on the heap if there are any. Reads need no distinction; a write allocates them.
#[derive(Clone, Default)]
pub struct Rare(Option<Box<RareOptions>>);

impl Rare {
    /// The options to change if any was ever set.
    #[inline]
    pub(crate) fn if_present(&mut self) -> Option<&mut RareOptions> {
        self.0.as_deref_mut()
    }

    /// Whether none was ever set.
    #[inline]
    pub(crate) const fn is_absent(&self) -> bool {
        self.0.is_none()
    }
}

impl Deref for Rare {
    type Target = RareOptions;

    #[inline]
    fn deref(&self) -> &RareOptions {
        self.0.as_deref().unwrap_or(RareOptions::NONE)
    }
}

impl DerefMut for Rare {
    #[inline]
    fn deref_mut(&mut self) -> &mut RareOptions {
        self.0.get_or_insert_default()
    }
}

impl PartialEq for Rare {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        (self.0.is_none() && other.0.is_none()) || **self == **other
    }
}

impl Eq for Rare {}

impl fmt::Debug for Rare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl From<RareOptions> for Rare {
    fn from(options: RareOptions) -> Self {
        Self(Some(Box::new(options)))
    }
}

impl From<RareOptions> for TcpOptions {
    fn from(options: RareOptions) -> Self {
        Self { rare: options.into(), ..Self::default() }
    }
}

impl Deref for TcpOptions {
    type Target = RareOptions;

    #[inline]
    fn deref(&self) -> &RareOptions {
        &self.rare
    }
}

impl DerefMut for TcpOptions {
    #[inline]
    fn deref_mut(&mut self) -> &mut RareOptions {
        &mut self.rare
    }
}

impl TcpOptions {
    /// Replaces all options by timestamps, or by none: few segments carry others.
    #[inline]
    pub fn set_timestamps_only(&mut self, timestamps: Option<Timestamps>) {
        // All fields are named, for none to be left as it was.
        let Self { timestamps: own, sack, accurate_ecn, rare, unknown, is_signed, is_multipath } = self;
        (*own, *sack, *accurate_ecn) = (timestamps, SackBlocks::default(), None);
        if !rare.is_absent() {
            *rare = Rare::default();
        }
        (*unknown, *is_signed, *is_multipath) = (0, false, false);
    }

    /// Whether there is no option to write.
    pub fn is_empty(&self) -> bool {
        self.wire_len() == 0
    }
}

/// Prints the options as tcpdump does.
impl fmt::Display for TcpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut item = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let result = write!(f, "{separator}{text}");
            separator = ",";
            result
        };
        if let Some(mss) = self.mss {
            item(f, format_args!("mss {mss}"))?;
        }
        if let Some(shift) = self.window_scale {
            item(f, format_args!("wscale {shift}"))?;
        }
        if self.sack_permitted {
            item(f, format_args!("sackOK"))?;
        }
        if let Some(ts) = self.timestamps {
            item(f, format_args!("TS val {} ecr {}", ts.val, ts.ecr))?;
        }
        if !self.sack.is_empty() {
            item(f, format_args!("sack {}", self.sack.len()))?;
            for block in self.sack.iter() {
                write!(f, " {{{}:{}}}", block.start, block.end)?;
            }
        }
        if let Some(option) = &self.accurate_ecn {
            item(f, format_args!("{option}"))?;
        }
        if let Some(uto) = self.user_timeout {
            item(f, format_args!("uto {uto}"))?;
        }
        if let Some(option) = &self.fast_open {
            item(f, format_args!("{option}"))?;
        }
        for option in self.experimental.iter().flatten() {
            item(f, format_args!("exp {:?} {} bytes", option.id, option.data.len()))?;
        }
        Ok(())
    }
}

/// The timestamps option (RFC 7323 section 3.2). Both values count ticks of their sender's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock when it sent this segment.
    pub val: u32,
    /// TSecr: the echoed TSval of the other side; meaningful when ACK is set.
    pub ecr: u32,
}

/// Up to four SACK blocks, inline.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    blocks: [SeqRange; Self::MAX],
    len: u8,
}

impl SackBlocks {
    /// The most blocks that fit into a header without other options (RFC 2018 section 3).
    pub const MAX: usize = 4;
    /// No block.
    pub const EMPTY: Self = Self { blocks: [SeqRange::new(Seq::new(0), Seq::new(0)); Self::MAX], len: 0 };

    /// Appends a block; returns whether there was room.
    pub fn push(&mut self, block: SeqRange) -> bool {
        let Some(slot) = self.blocks.get_mut(usize::from(self.len)) else { return false };
        *slot = block;
        self.len += 1;
        true
    }

    /// The blocks in the order of the option.
    pub fn as_slice(&self) -> &[SeqRange] {
        &self.blocks[..usize::from(self.len)]
    }

    /// The blocks in the order of the option.
    pub fn iter(&self) -> impl Iterator<Item = SeqRange> + '_ {
        self.as_slice().iter().copied()
    }

    /// How many blocks there are.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is no block.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops all blocks after the first `len`.
    pub fn truncate(&mut self, len: usize) {
        while self.len() > len {
            self.len -= 1;
            self.blocks[usize::from(self.len)] = SeqRange::default();
        }
    }
}

impl FromIterator<SeqRange> for SackBlocks {
    /// Takes the first four.
    fn from_iter<I: IntoIterator<Item = SeqRange>>(iter: I) -> Self {
        let mut blocks = Self::EMPTY;
        for block in iter.into_iter().take(Self::MAX) {
            blocks.push(block);
        }
        blocks
    }
}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The value of a User Timeout option (RFC 5482 section 2): 15 bits of seconds or of minutes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserTimeout(u16);

impl UserTimeout {
    const MINUTES: u16 = 0x8000;

    /// The option that carries `timeout`: in seconds up to 32,767 s, else in minutes rounded up, at most 32,767 min.
    /// `None` for less than a second, because the value 0 is reserved (RFC 5482 section 2).
    pub fn from_duration(timeout: Duration) -> Option<Self> {
        let secs = timeout.as_secs();
        match secs {
            0 => None,
            1..=0x7fff => Some(Self(secs as u16)),
            _ => Some(Self(Self::MINUTES | secs.div_ceil(60).min(0x7fff) as u16)),
        }
    }

    /// The option with this value on the wire: granularity bit and 15 bits of timeout.
    pub const fn from_wire(value: u16) -> Self {
        Self(value)
    }

    /// The value on the wire.
    pub const fn wire(self) -> u16 {
        self.0
    }

    /// The timeout; zero is reserved and must be ignored by the receiver.
    pub const fn duration(self) -> Duration {
        let value = (self.0 & !Self::MINUTES) as u64;
        Duration::from_secs(if self.0 & Self::MINUTES != 0 { value * 60 } else { value })
    }
}

impl fmt::Display for UserTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.0 & Self::MINUTES != 0 { "min" } else { "s" };
        write!(f, "{}{unit}", self.0 & !Self::MINUTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syn_and_fin_occupy_sequence_space() {
        let mut segment = Segment { flags: Flags::SYN | Flags::FIN, ..Segment::default() };
        segment.payload = Bytes::from_static(b"abc");
        assert_eq!(segment.seq_len(), 5);
        assert!(!segment.is_pure_ack());
    }

    #[test]
    fn a_user_timeout_goes_to_minutes_when_seconds_do_not_fit() {
        let option = |secs| UserTimeout::from_duration(Duration::from_secs(secs));
        assert_eq!(option(0), None);
        assert_eq!(option(0x7fff).unwrap().wire(), 0x7fff);
        assert_eq!(option(0x8000).unwrap().wire(), 0x8000 | 547);
        assert_eq!(option(0x8000).unwrap().duration(), Duration::from_secs(547 * 60));
        assert_eq!(option(u64::MAX / 2_000_000_000).unwrap().to_string(), "32767min");
    }

    #[test]
    fn sack_blocks_are_bounded() {
        let block = SeqRange::new(Seq::new(1), Seq::new(2));
        let mut blocks: SackBlocks = core::iter::repeat_n(block, 9).collect();
        assert_eq!(blocks.len(), 4);
        assert!(!blocks.push(block));
        blocks.truncate(1);
        assert_eq!(blocks, [block].into_iter().collect());
    }
}
