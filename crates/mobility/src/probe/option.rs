//! The option in bytes.

use bytes::Bytes;
use holdover_wire::{Experimental, ExperimentalId, Segment, Seq, SeqRange};

/// PROBE's options are shared experimental options (RFC 6994) of kind 253 with this identifier, "HOPB", which is not
/// registered. See the [module](super) for the rest.
pub const OPTION_ID: u32 = 0x484f_5042;

/// Space in a data segment for the option of a probe: ten bytes, padded.
pub(super) const PROBE_ROOM: u32 = 12;

const NACK: u8 = 0;
const PROBE: u8 = 1;
const BITMASK: u8 = 2;

/// The content of an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// The handoff of this number is complete.
    Nack { number: u8 },
    /// Probe `index` of `count`, which requests the bitmask.
    Probe { number: u8, index: u8, count: u8 },
    /// The answer to the probes.
    Bitmask(Bitmask),
}

/// The receiver's data, and the spacing of the probes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bitmask {
    /// The handoff's number.
    pub(super) number: u8,
    /// Bytes of data per second; `None` if no two consecutive probes arrived.
    pub(super) bandwidth: Option<u32>,
    /// How long the receiver waited for further probes after the last one, in milliseconds.
    pub(super) waited_ms: u32,
    /// From the ACK number to the end of the highest data received, in bytes.
    pub(super) highest: u32,
    /// From the ACK number on: bytes missing, then bytes held, and so on, as far as they fit into the option.
    pub(super) runs: Vec<(u32, u32)>,
}

impl Bitmask {
    /// The ranges that the receiver holds above `ack`, as far as they are listed.
    pub(super) fn held(&self, ack: Seq) -> Vec<SeqRange> {
        let mut start = ack;
        let mut held = Vec::new();
        for (missing, len) in &self.runs {
            let range = SeqRange::new(start + *missing, start + *missing + *len);
            held.push(range);
            start = range.end;
        }
        held
    }

    /// The bitmask of a receiver that has `held` out of order.
    pub(super) fn set_held(&mut self, ack: Seq, held: &[SeqRange]) {
        let mut from = ack;
        self.runs.clear();
        self.highest = 0;
        for range in held.iter().filter(|range| range.start.gt(ack)) {
            self.runs.push((range.start - from, range.len()));
            from = range.end;
            self.highest = from - ack;
        }
    }

    fn has_room_for_all(&self) -> bool {
        let total =
            self.runs.iter().try_fold(0_u32, |sum, (missing, held)| sum.checked_add(*missing)?.checked_add(*held));
        total.is_some_and(|total| total <= self.highest) && self.highest < 1 << 31
    }
}

impl Message {
    /// The message of a segment, if there is a valid one.
    pub(super) fn read(segment: &Segment) -> Option<Self> {
        segment.options.experimental.iter().flatten().find_map(|option| {
            let option = option.with_long_id().filter(|option| !option.second_kind)?;
            if option.id == ExperimentalId::Long(OPTION_ID) { Self::parse(&option.data) } else { None }
        })
    }

    fn parse(data: &[u8]) -> Option<Self> {
        match *data {
            [NACK, number] => Some(Self::Nack { number }),
            [PROBE, number, index, count] if index < count => Some(Self::Probe { number, index, count }),
            [BITMASK, number, b0, b1, b2, b3, ref rest @ ..] => {
                let bandwidth = u32::from_be_bytes([b0, b1, b2, b3]);
                let mut rest = rest;
                let (waited_ms, highest) = (take_number(&mut rest)?, take_number(&mut rest)?);
                let mut runs = Vec::new();
                while !rest.is_empty() {
                    let run = (take_number(&mut rest)?, take_number(&mut rest)?);
                    if run.0 == 0 || run.1 == 0 {
                        return None;
                    }
                    runs.push(run);
                }
                let bandwidth = (bandwidth > 0).then_some(bandwidth);
                let bitmask = Bitmask { number, bandwidth, waited_ms, highest, runs };
                bitmask.has_room_for_all().then_some(Self::Bitmask(bitmask))
            }
            _ => None,
        }
    }

    /// Adds the message to a segment. SACK blocks are dropped for it, and the last ranges of a bitmask if 40 bytes do
    /// not suffice. Returns whether there was room.
    pub(super) fn put(&self, segment: &mut Segment) -> bool {
        let options = &mut segment.options;
        if let Self::Bitmask(_) = self {
            // The bitmask includes the same information.
            options.sack.truncate(0);
        }
        let others = options.experimental.take().unwrap_or_default().into_vec();
        let mut runs = self.runs();
        loop {
            options.experimental = Some(others.iter().cloned().chain([self.option(runs)]).collect());
            if options.wire_len() <= Segment::MAX_OPTIONS_LEN {
                return true;
            }
            if runs > 0 {
                runs -= 1;
            } else if !options.sack.is_empty() {
                options.sack.truncate(options.sack.len() - 1);
            } else {
                options.experimental = (!others.is_empty()).then(|| others.into());
                return false;
            }
        }
    }

    fn runs(&self) -> usize {
        match self {
            Self::Bitmask(bitmask) => bitmask.runs.len(),
            _ => 0,
        }
    }

    fn option(&self, runs: usize) -> Experimental {
        let mut data = Vec::new();
        match self {
            Self::Nack { number } => data.extend([NACK, *number]),
            Self::Probe { number, index, count } => data.extend([PROBE, *number, *index, *count]),
            Self::Bitmask(bitmask) => {
                data.extend([BITMASK, bitmask.number]);
                data.extend(bitmask.bandwidth.unwrap_or(0).to_be_bytes());
                put_number(&mut data, bitmask.waited_ms);
                put_number(&mut data, bitmask.highest);
                for (missing, held) in &bitmask.runs[..runs] {
                    put_number(&mut data, *missing);
                    put_number(&mut data, *held);
                }
            }
        }
        Experimental { second_kind: false, id: ExperimentalId::Long(OPTION_ID), data: Bytes::from(data) }
    }
}

/// Seven bits a byte, lowest first; the high bit means that more follow (LEB128).
fn put_number(data: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        data.push(number as u8 | 0x80);
        number >>= 7;
    }
    data.push(number as u8);
}

fn take_number(data: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u32;
    for shift in [0, 7, 14, 21, 28] {
        let (&first, rest) = data.split_first()?;
        *data = rest;
        let bits = u32::from(first & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use holdover_wire::{SackBlocks, Timestamps};

    use super::*;

    fn bitmask(runs: usize) -> Bitmask {
        let held: Vec<SeqRange> =
            (1..=runs as u32).map(|n| SeqRange::new(Seq::new(n * 3000), Seq::new(n * 3000 + 1460))).collect();
        let mut bitmask = Bitmask { number: 7, bandwidth: Some(1_250_000), waited_ms: 0, highest: 0, runs: Vec::new() };
        bitmask.set_held(Seq::new(1000), &held);
        bitmask
    }

    fn through(message: &Message, segment: &mut Segment) -> Option<Message> {
        assert!(message.put(segment));
        assert!(segment.options.wire_len() <= Segment::MAX_OPTIONS_LEN);
        Message::read(segment)
    }

    #[test]
    fn options_survive_a_round_trip() {
        for message in [
            Message::Nack { number: 255 },
            Message::Probe { number: 3, index: 2, count: 3 },
            Message::Bitmask(bitmask(0)),
            Message::Bitmask(bitmask(3)),
            Message::Bitmask(Bitmask { bandwidth: None, waited_ms: 200, ..bitmask(1) }),
        ] {
            assert_eq!(through(&message, &mut Segment::default()).as_ref(), Some(&message));
        }
    }

    #[test]
    fn a_bitmask_lists_what_forty_bytes_have_room_for() {
        let listed = |timestamps| {
            let mut segment = Segment::default();
            segment.options.timestamps = timestamps;
            segment.options.sack = SackBlocks::from_iter([SeqRange::new(Seq::new(3000), Seq::new(4460))]);
            let Some(Message::Bitmask(read)) = through(&Message::Bitmask(bitmask(50)), &mut segment) else {
                panic!("a bitmask");
            };
            assert_eq!(read.highest, 150_460);
            assert_eq!(read.runs[..], bitmask(50).runs[..read.runs.len()]);
            read.runs.len()
        };
        assert_eq!((listed(None), listed(Some(Timestamps { val: 1, ecr: 2 }))), (6, 3));
    }

    #[test]
    fn ranges_count_from_the_ack_number() {
        let bitmask = bitmask(2);
        assert_eq!((bitmask.highest, &bitmask.runs[..]), (6460, &[(2000, 1460), (1540, 1460)][..]));
        let held = bitmask.held(Seq::new(1000));
        assert_eq!(held[1], SeqRange::new(Seq::new(6000), Seq::new(7460)));
    }

    #[test]
    fn sack_blocks_give_way() {
        let mut segment = Segment::default();
        segment.options.timestamps = Some(Timestamps { val: 1, ecr: 2 });
        let block = |n: u32| SeqRange::new(Seq::new(n * 10), Seq::new(n * 10 + 5));
        segment.options.sack = (0..3).map(block).collect();
        assert!(through(&Message::Nack { number: 1 }, &mut segment).is_some());
        assert_eq!(segment.options.sack.len(), 2);
    }

    #[test]
    fn invalid_options_are_ignored() {
        for data in [&[][..], &[NACK], &[PROBE, 1, 3, 3], &[9, 1], &[BITMASK, 1, 0, 0, 0, 0, 0]] {
            assert_eq!(Message::parse(data), None, "{data:?}");
        }
        // More bytes than up to the highest; a run of none; a number without end; one of more than 32 bits.
        for rest in [&[0, 5, 3, 3][..], &[0, 5, 0, 3], &[0, 0x80], &[0xff, 0xff, 0xff, 0xff, 0x7f, 0]] {
            let data = [&[BITMASK, 1, 0, 0, 0, 9], rest].concat();
            assert_eq!(Message::parse(&data), None, "{data:?}");
        }
    }
}
