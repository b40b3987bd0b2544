//! TCP options: parsing and emitting.

use bytes::Bytes;

use crate::{
    AccurateEcn, AccurateEcnOrder, Experimental, ExperimentalId, FastOpen, OptionKind, RareOptions, SackBlocks,
    Segment, Seq, SeqRange, TcpOptions, Timestamps, UserTimeout,
};

pub(crate) const END: u8 = OptionKind::End as u8;
pub(crate) const NO_OPERATION: u8 = OptionKind::NoOperation as u8;
const MAXIMUM_SEGMENT_SIZE: u8 = OptionKind::MaximumSegmentSize as u8;
const WINDOW_SCALE: u8 = OptionKind::WindowScale as u8;
const SACK_PERMITTED: u8 = OptionKind::SackPermitted as u8;
const SACK: u8 = OptionKind::Sack as u8;
const TIMESTAMPS: u8 = OptionKind::Timestamps as u8;
const MD5_SIGNATURE: u8 = OptionKind::Md5Signature as u8;
const MULTIPATH: u8 = OptionKind::Multipath as u8;
const AUTHENTICATION: u8 = OptionKind::Authentication as u8;
const USER_TIMEOUT: u8 = OptionKind::UserTimeout as u8;
const FAST_OPEN: u8 = OptionKind::FastOpen as u8;
const ACCURATE_ECN_0: u8 = OptionKind::AccurateEcn0 as u8;
const ACCURATE_ECN_1: u8 = OptionKind::AccurateEcn1 as u8;
const EXPERIMENTAL_1: u8 = OptionKind::Experimental1 as u8;
const EXPERIMENTAL_2: u8 = OptionKind::Experimental2 as u8;

impl TcpOptions {
    /// Bytes that the options occupy in the header, padding included.
    ///
    /// The words of the timestamps and SACK options are aligned to 4 bytes (RFC 7323 appendix A; kernels send and
    /// expect it on their fast path), unless the options fit into the header only without that padding.
    #[inline]
    pub fn wire_len(&self) -> usize {
        if self.rare.is_absent() && self.sack.is_empty() && self.accurate_ecn.is_none() {
            // Timestamps and two bytes of padding, as in nearly all segments.
            return if self.timestamps.is_some() { 12 } else { 0 };
        }
        self.laid_out_len()
    }

    fn laid_out_len(&self) -> usize {
        match self.layout_len(true) {
            aligned if aligned <= Segment::MAX_OPTIONS_LEN => aligned,
            _ => self.layout_len(false),
        }
    }

    /// Bytes that the options need with all padding for alignment, which may exceed [`Segment::MAX_OPTIONS_LEN`].
    pub fn aligned_len(&self) -> usize {
        self.layout_len(true)
    }

    #[inline]
    fn layout_len(&self, aligned: bool) -> usize {
        let align = |len| if aligned { len + words_padding(len) } else { len };
        let mut len = if self.rare.is_absent() { 0 } else { self.rare.len_before_timestamps() };
        len = if self.timestamps.is_some() { align(len) + 10 } else { len };
        len += self.accurate_ecn.map_or(0, |option| option.wire_len());
        len = if self.sack.is_empty() { len } else { align(len) + 2 + 8 * self.sack.len() };
        len += if self.rare.is_absent() { 0 } else { self.rare.len_at_end() };
        len.next_multiple_of(4)
    }

    /// Reads the options of a header: `bytes[start..end]`.
    ///
    /// Options come in any order; of two of the same kind the later one counts, and experimental ones are all kept. As
    /// Linux does, an option whose length is wrong for its kind is skipped, and one whose length is below 2 or beyond the
    /// header ends the list: the options read before it stay (RFC 9293 section 3.2, MUST-7, asks only that an illegal length does no harm).
    /// Each one skipped is counted in [`TcpOptions::unknown`].
    pub(crate) fn parse(bytes: &Bytes, start: usize, end: usize) -> Self {
        let mut options = Self::default();
        let mut experimental = Vec::new();
        for option in OptionList::new(&bytes[start..end]) {
            let known = match option {
                RawOption::NoOperation => true,
                RawOption::Option(raw) => {
                    options.read(raw[0], &raw[2..])
                        || read_experimental(&bytes.slice_ref(raw)).map(|option| experimental.push(option)).is_some()
                }
                RawOption::Malformed(_) => false,
            };
            options.unknown += u8::from(!known);
        }
        if !experimental.is_empty() {
            options.experimental = Some(experimental.into());
        }
        options
    }

    /// Takes one option; returns whether kind and length are known.
    fn read(&mut self, kind: u8, value: &[u8]) -> bool {
        match (kind, value) {
            (MAXIMUM_SEGMENT_SIZE, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                let (val, ecr) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
                self.timestamps = Some(Timestamps { val, ecr });
            }
            (SACK, blocks) if !blocks.is_empty() && blocks.len().is_multiple_of(8) => {
                self.sack = blocks.chunks_exact(8).map(read_block).collect();
            }
            (USER_TIMEOUT, &[a, b]) => self.user_timeout = Some(UserTimeout::from_wire(u16::from_be_bytes([a, b]))),
            (ACCURATE_ECN_0 | ACCURATE_ECN_1, value) => {
                self.accurate_ecn = AccurateEcnOrder::of_kind(kind).map(|order| AccurateEcn::read(order, value));
            }
            (FAST_OPEN | EXPERIMENTAL_2, value) => {
                let Some(option) = FastOpen::read(kind, value) else { return false };
                self.fast_open = Some(Box::new(option));
            }
            (MD5_SIGNATURE | AUTHENTICATION, _) => {
                self.is_signed = true;
                return false;
            }
            (MULTIPATH, _) => {
                self.is_multipath = true;
                return false;
            }
            _ => return false,
        }
        true
    }

    /// Writes the options in [`TcpOptions::wire_len`] bytes at the beginning of `out`; the caller has checked that they
    /// fit.
    pub(crate) fn write(&self, out: &mut [u8; Segment::MAX_OPTIONS_LEN]) -> usize {
        let aligned = self.layout_len(true) <= Segment::MAX_OPTIONS_LEN;
        let mut out = Cursor { out: &mut out[..], at: 0 };
        if let Some(mss) = self.mss {
            out.put(&[MAXIMUM_SEGMENT_SIZE, 4]);
            out.put(&mss.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            out.put(&[WINDOW_SCALE, 3, shift]);
        }
        if self.sack_permitted {
            out.put(&[SACK_PERMITTED, 2]);
        }
        if let Some(timestamps) = self.timestamps {
            out.align_words(aligned);
            out.put(&[TIMESTAMPS, 10]);
            out.put(&timestamps.val.to_be_bytes());
            out.put(&timestamps.ecr.to_be_bytes());
        }
        if let Some(option) = &self.accurate_ecn {
            out.put_accurate_ecn(option);
        }
        if !self.sack.is_empty() {
            out.align_words(aligned);
            out.put(&[SACK, 2 + 8 * self.sack.len() as u8]);
            for block in self.sack.iter() {
                out.put(&block.start.value().to_be_bytes());
                out.put(&block.end.value().to_be_bytes());
            }
        }
        if let Some(timeout) = self.user_timeout {
            out.put(&[USER_TIMEOUT, 4]);
            out.put(&timeout.wire().to_be_bytes());
        }
        if let Some(option) = self.fast_open.as_deref() {
            out.put_fast_open(option);
        }
        for option in self.experimental.iter().flatten() {
            out.put_experimental(option);
        }
        let len = out.at.next_multiple_of(4);
        out.out[out.at..len].fill(END);
        len
    }
}

impl RareOptions {
    fn len_before_timestamps(&self) -> usize {
        let mut len = 0;
        len += if self.mss.is_some() { 4 } else { 0 };
        len += if self.window_scale.is_some() { 3 } else { 0 };
        len += if self.sack_permitted { 2 } else { 0 };
        len
    }

    fn len_at_end(&self) -> usize {
        let mut len = if self.user_timeout.is_some() { 4 } else { 0 };
        len += self.fast_open.as_deref().map_or(0, |option| option.wire_len());
        len += self.experimental.iter().flatten().map(Experimental::wire_len).sum::<usize>();
        len
    }
}

impl TcpOptions {
    /// Whether a whole option is of a kind that a value holds, with a valid length.
    pub(crate) fn knows(raw: &[u8]) -> bool {
        Self::default().read(raw[0], &raw[2..]) || (matches!(raw[0], EXPERIMENTAL_1 | EXPERIMENTAL_2) && raw.len() >= 4)
    }

    /// Moves the value of the option at `place` from here to there. Returns whether there is one that fits: a shorter
    /// list of SACK blocks is padded, a longer one does not fit.
    pub(crate) fn take_into(&mut self, place: &mut [u8]) -> bool {
        let kind = place[0];
        let value = &mut place[2..];
        match kind {
            MAXIMUM_SEGMENT_SIZE => {
                let mss = self.rare.if_present().and_then(|rare| rare.mss.take());
                mss.map(|mss| value.copy_from_slice(&mss.to_be_bytes())).is_some()
            }
            WINDOW_SCALE => {
                let shift = self.rare.if_present().and_then(|rare| rare.window_scale.take());
                shift.map(|shift| value[0] = shift).is_some()
            }
            SACK_PERMITTED => self.rare.if_present().is_some_and(|rare| core::mem::take(&mut rare.sack_permitted)),
            TIMESTAMPS => self.timestamps.take().map(|stamps| stamps.write(value)).is_some(),
            SACK => self.take_sack_into(place),
            USER_TIMEOUT => {
                let timeout = self.rare.if_present().and_then(|rare| rare.user_timeout.take());
                timeout.map(|timeout| value.copy_from_slice(&timeout.wire().to_be_bytes())).is_some()
            }
            ACCURATE_ECN_0 | ACCURATE_ECN_1 => self.take_accurate_ecn(place),
            FAST_OPEN | EXPERIMENTAL_2 if self.take_fast_open(place) => true,
            _ => self.take_experimental(place),
        }
    }

    /// Takes the Accurate ECN option if it has the order and the counters of the one at `place`; the bytes after them stay.
    fn take_accurate_ecn(&mut self, place: &mut [u8]) -> bool {
        let Some(order) = AccurateEcnOrder::of_kind(place[0]) else { return false };
        let in_place = AccurateEcn::read(order, &place[2..]);
        let fits = |option: &mut AccurateEcn| (option.order(), option.len()) == (order, in_place.len());
        let Some(option) = self.accurate_ecn.take_if(fits) else { return false };
        option.write(&mut place[2..]);
        true
    }

    /// Takes the Fast Open option if it has the kind and length of the one at `place`.
    fn take_fast_open(&mut self, place: &mut [u8]) -> bool {
        let in_place = FastOpen::read(place[0], &place[2..]);
        let Some(in_place) = in_place else { return false };
        let fits = |option: &mut Box<FastOpen>| {
            (option.is_experiment(), option.wire_len()) == (in_place.is_experiment(), place.len())
        };
        let option = self.rare.if_present().and_then(|rare| rare.fast_open.take_if(fits));
        let Some(option) = option else { return false };
        Cursor { out: place, at: 0 }.put_fast_open(&option);
        true
    }

    fn take_sack_into(&mut self, place: &mut [u8]) -> bool {
        let len = 2 + 8 * self.sack.len();
        if self.sack.is_empty() || len > place.len() {
            return false;
        }
        let (list, padding) = place.split_at_mut(len);
        list[1] = len as u8;
        for (block, place) in self.sack.iter().zip(list[2..].chunks_exact_mut(8)) {
            place[..4].copy_from_slice(&block.start.value().to_be_bytes());
            place[4..].copy_from_slice(&block.end.value().to_be_bytes());
        }
        padding.fill(NO_OPERATION);
        self.sack = SackBlocks::EMPTY;
        true
    }

    /// Takes the first experimental option if it is the one at `place`.
    fn take_experimental(&mut self, place: &[u8]) -> bool {
        let Some((first, rest)) = self.experimental.as_deref().and_then(<[_]>::split_first) else { return false };
        if first.wire_len() != place.len() {
            return false;
        }
        let mut bytes = [0; Segment::MAX_OPTIONS_LEN];
        Cursor { out: &mut bytes, at: 0 }.put_experimental(first);
        let is_same = bytes[..place.len()] == *place;
        if is_same {
            self.experimental = (!rest.is_empty()).then(|| rest.into());
        }
        is_same
    }
}

impl Timestamps {
    fn write(self, place: &mut [u8]) {
        place[..4].copy_from_slice(&self.val.to_be_bytes());
        place[4..].copy_from_slice(&self.ecr.to_be_bytes());
    }
}

/// Padding before an option at offset `len` whose words begin after its kind and length.
fn words_padding(len: usize) -> usize {
    2_usize.wrapping_sub(len) & 3
}

fn read_block(block: &[u8]) -> SeqRange {
    let word = |at| Seq::new(u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]));
    SeqRange::new(word(0), word(4))
}

/// Parses a whole option as a shared experimental one; `None` if it is another kind or too short for an identifier.
fn read_experimental(raw: &Bytes) -> Option<Experimental> {
    let &[kind @ (EXPERIMENTAL_1 | EXPERIMENTAL_2), _, a, b, ..] = &raw[..] else { return None };
    let id = ExperimentalId::Short(u16::from_be_bytes([a, b]));
    Some(Experimental { second_kind: kind == EXPERIMENTAL_2, id, data: raw.slice(4..) })
}

/// One element of a list of options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RawOption<'a> {
    /// A byte of padding.
    NoOperation,
    /// Kind, length and value.
    Option(&'a [u8]),
    /// The rest of the list, from an option whose length is below 2 or beyond the header.
    Malformed(&'a [u8]),
}

impl<'a> RawOption<'a> {
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Self::NoOperation => &[NO_OPERATION],
            Self::Option(bytes) | Self::Malformed(bytes) => bytes,
        }
    }
}

/// The options of a header in order, up to the end of the list.
#[derive(Clone, Debug)]
pub(crate) struct OptionList<'a>(&'a [u8]);

impl<'a> OptionList<'a> {
    pub(crate) fn new(options: &'a [u8]) -> Self {
        Self(options)
    }
}

impl<'a> Iterator for OptionList<'a> {
    type Item = RawOption<'a>;

    fn next(&mut self) -> Option<RawOption<'a>> {
        let len = match *self.0 {
            [] | [END, ..] => return None,
            [NO_OPERATION, ..] => {
                self.0 = &self.0[1..];
                return Some(RawOption::NoOperation);
            }
            [_, len, ..] => usize::from(len),
            [_] => 0,
        };
        match self.0.split_at_checked(len).filter(|_| len >= 2) {
            Some((option, rest)) => {
                self.0 = rest;
                Some(RawOption::Option(option))
            }
            None => Some(RawOption::Malformed(core::mem::take(&mut self.0))),
        }
    }
}

struct Cursor<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn put_fast_open(&mut self, option: &FastOpen) {
        let (head, len) = option.head();
        self.put(&head[..len]);
        self.put(option.cookie());
    }

    fn put_accurate_ecn(&mut self, option: &AccurateEcn) {
        let len = option.wire_len();
        self.put(&[option.order().kind(), len as u8]);
        option.write(&mut self.out[self.at..self.at + len - 2]);
        self.at += len - 2;
    }

    fn put_experimental(&mut self, option: &Experimental) {
        self.put(&[if option.second_kind { EXPERIMENTAL_2 } else { EXPERIMENTAL_1 }, option.wire_len() as u8]);
        match option.id {
            ExperimentalId::Short(id) => self.put(&id.to_be_bytes()),
            ExperimentalId::Long(id) => self.put(&id.to_be_bytes()),
        }
        self.put(&option.data);
    }

    fn align_words(&mut self, aligned: bool) {
        if aligned {
            let padding = words_padding(self.at);
            self.out[self.at..self.at + padding].fill(NO_OPERATION);
            self.at += padding;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mss(mss: u16) -> TcpOptions {
        RareOptions { mss: Some(mss), ..RareOptions::default() }.into()
    }

    fn window_scale(shift: u8) -> TcpOptions {
        RareOptions { window_scale: Some(shift), ..RareOptions::default() }.into()
    }

    fn parse(bytes: &'static [u8]) -> TcpOptions {
        TcpOptions::parse(&Bytes::from_static(bytes), 0, bytes.len())
    }

    fn write(options: &TcpOptions) -> Vec<u8> {
        let mut out = [0xaa; Segment::MAX_OPTIONS_LEN];
        let len = options.write(&mut out);
        assert_eq!(len, options.wire_len());
        out[..len].to_vec()
    }

    fn blocks(n: u32) -> SackBlocks {
        (0..n).map(|i| SeqRange::new(Seq::new(10 * i), Seq::new(10 * i + 5))).collect()
    }

    #[test]
    fn options_are_read_in_any_order() {
        let forth = parse(&[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7]);
        let back = parse(&[3, 3, 7, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 4, 2, 2, 4, 5, 0xb4]);
        assert_eq!(forth, back);
        assert_eq!(forth.to_string(), "mss 1460,wscale 7,sackOK,TS val 1 ecr 2");
    }

    #[test]
    fn the_last_duplicate_counts() {
        assert_eq!(parse(&[2, 4, 0, 1, 2, 4, 0, 2]).mss, Some(2));
        assert_eq!(parse(&[253, 4, 0, 1, 253, 4, 0, 1]).experimental.as_ref().unwrap().len(), 2);
    }

    #[test]
    fn an_illegal_length_ends_the_list_and_keeps_what_came_before() {
        for rest in [&[8, 0, 1, 3][..], &[8, 1, 3, 3], &[8, 10, 0, 0], &[1, 1, 1, 8], &[5, 255, 3, 3]] {
            let mut bytes = vec![3, 3, 9, 1];
            bytes.extend_from_slice(rest);
            let len = bytes.len();
            let options = TcpOptions::parse(&bytes.into(), 0, len);
            assert_eq!(options, TcpOptions { unknown: 1, ..window_scale(9) }, "{rest:?}");
        }
    }

    #[test]
    fn a_length_that_is_wrong_for_the_kind_skips_the_option_only() {
        for option in [
            &[2, 3, 0][..],
            &[3, 2],
            &[4, 3, 0],
            &[5, 2],
            &[5, 9, 0, 0, 0, 0, 0, 0, 0],
            &[8, 6, 0, 0, 0, 0],
            &[28, 3, 0],
            &[253, 3, 0],
            &[254, 2],
            &[99, 4, 1, 2],
        ] {
            let mut bytes = option.to_vec();
            bytes.extend_from_slice(&[2, 4, 5, 0]);
            let len = bytes.len();
            let options = TcpOptions::parse(&bytes.into(), 0, len);
            assert_eq!(options, TcpOptions { unknown: 1, ..mss(0x500) }, "{option:?}");
        }
    }

    #[test]
    fn signatures_are_noted_and_skipped() {
        let md5 = parse(&[1, 1, 19, 18, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 2, 4, 5, 0]);
        assert_eq!(md5, TcpOptions { unknown: 1, is_signed: true, ..mss(0x500) });
        assert_eq!(md5.wire_len(), 4);
        assert!(parse(&[29, 4, 1, 1]).is_signed);
        assert!(!parse(&[1, 0, 19, 2]).is_signed, "it is behind the end");
    }

    #[test]
    fn multipath_options_are_noted_and_skipped() {
        // DSS with a DATA_ACK of 4 bytes (RFC 8684 section 3.3), and MP_PRIO behind timestamps.
        let dss = parse(&[30, 8, 0x20, 1, 0, 0, 0, 9, 2, 4, 5, 0]);
        assert_eq!(dss, TcpOptions { unknown: 1, is_multipath: true, ..mss(0x500) });
        assert_eq!(dss.wire_len(), 4);
        assert!(parse(&[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 30, 3, 0x50]).is_multipath);
        assert!(!parse(&[1, 0, 30, 3, 0x50]).is_multipath, "it is behind the end");
    }

    #[test]
    fn options_after_the_end_of_the_list_are_ignored() {
        assert_eq!(parse(&[1, 0, 2, 4, 5, 0xb4, 0, 0]), TcpOptions::default());
    }

    #[test]
    fn a_window_scale_beyond_14_stays_as_sent() {
        assert_eq!(parse(&[3, 3, 255, 0]).window_scale, Some(255));
    }

    #[test]
    fn timestamps_and_sack_have_the_layout_of_kernels() {
        let timestamps = Some(Timestamps { val: 1, ecr: 2 });
        let alone = TcpOptions { timestamps, ..TcpOptions::default() };
        assert_eq!(write(&alone), [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        let rare =
            RareOptions { mss: Some(1460), window_scale: Some(7), sack_permitted: true, ..RareOptions::default() };
        let syn = TcpOptions { timestamps, ..rare.into() };
        assert_eq!(write(&syn), [2, 4, 5, 0xb4, 3, 3, 7, 4, 2, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        for (n, len) in [(1, 24), (2, 32), (3, 40)] {
            assert_eq!(TcpOptions { sack: blocks(n), ..alone.clone() }.wire_len(), len);
        }
        assert_eq!(
            write(&TcpOptions { sack: blocks(1), ..TcpOptions::default() }),
            [1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 5]
        );
        assert_eq!(
            write(&RareOptions { mss: Some(5), window_scale: Some(1), ..RareOptions::default() }.into()),
            [2, 4, 0, 5, 3, 3, 1, 0]
        );
    }

    #[test]
    fn accurate_ecn_shares_the_padding_of_sack() {
        let timestamps = Some(Timestamps { val: 1, ecr: 2 });
        for (counters, sack, len) in [(3, 0, 24), (3, 1, 36), (2, 2, 40), (1, 2, 36), (0, 3, 40), (1, 3, 44)] {
            let accurate_ecn = Some(AccurateEcn::new(AccurateEcnOrder::One, &[1, 0, 1][..counters]).unwrap());
            let options = TcpOptions { timestamps, accurate_ecn, sack: blocks(sack), ..TcpOptions::default() };
            assert_eq!(options.layout_len(true), len, "{counters} counters and {sack} blocks");
            if len <= Segment::MAX_OPTIONS_LEN {
                let bytes = write(&options);
                assert_eq!(TcpOptions::parse(&bytes.clone().into(), 0, bytes.len()), options);
            }
        }
        let options = parse(&[172, 8, 0, 0, 2, 0, 0, 1, 0, 0]);
        assert_eq!(options.to_string(), "ECN e0b 2 ceb 1");
    }

    #[test]
    fn padding_gives_way_when_room_is_short() {
        let tight = TcpOptions {
            timestamps: Some(Timestamps { val: 1, ecr: 2 }),
            sack: blocks(3),
            ..RareOptions { user_timeout: Some(UserTimeout::from_wire(9)), ..RareOptions::default() }.into()
        };
        assert_eq!(tight.layout_len(true), 44);
        let bytes = write(&tight);
        assert_eq!((bytes.len(), bytes[0]), (40, 8));
        assert_eq!(TcpOptions::parse(&bytes.into(), 0, 40), tight);
    }

    #[test]
    fn a_long_experiment_identifier_is_read_as_a_short_one_and_data() {
        let long =
            Experimental { second_kind: true, id: ExperimentalId::Long(0x0102_0304), data: Bytes::from_static(b"x") };
        let rare = RareOptions { experimental: Some([long.clone()].into()), ..RareOptions::default() };
        let options = TcpOptions::from(rare);
        let bytes = write(&options);
        assert_eq!(bytes, [254, 7, 1, 2, 3, 4, b'x', 0]);
        let read = TcpOptions::parse(&bytes.into(), 0, 8).experimental.take().unwrap();
        assert_eq!(read[0].id, ExperimentalId::Short(0x0102));
        assert_eq!(read[0].with_long_id(), Some(long));
    }
}
