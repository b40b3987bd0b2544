//! Decoding the feedback of Accurate ECN (RFC 9768): how many packets with CE an ACK reports.
//!
//! The ACE field has three bits, so that an ACK of eight packets and more is ambiguous: it may report a whole turn of the counter more.
//! The sender takes the safest value that is likely (section 3.2.2.5, appendix A.2): all turns that the acknowledged packets allow, unless
//! the byte counter of the option, or the size of the usual ACK, indicates otherwise.

use holdover_wire::{AccurateEcn, EcnCounter, Flags};

use crate::config::AccurateEcnRules;
use crate::ecn::EcnField;

/// Initial value of the counter of packets with CE in the ACE field (RFC 9768 section 3.2.1). It is not 0, so that a path that zeroes the
/// field is detected.
pub(crate) const INITIAL: u32 = 5;
/// Values of the ACE field.
const TURN: u32 = 8;
const MASK: u32 = TURN - 1;
/// From this mean of packets for each ACK on, the path is presumed to thin out ACKs (Linux `ACK_COMP_THRESH`).
const THINNED_MEAN: u32 = 4;
/// The mean is kept in 64ths, and a new value counts for a 64th (Linux `PKTS_ACKED_PREC`, `PKTS_ACKED_WEIGHT`).
const MEAN_SHIFT: u32 = 6;

/// The ACE field: AE, CWR and ECE as a number (RFC 9768 section 3.2.2).
pub(crate) fn field(flags: Flags) -> u8 {
    u8::from(flags.contains(Flags::AE)) << 2
        | u8::from(flags.contains(Flags::CWR)) << 1
        | u8::from(flags.contains(Flags::ECE))
}

/// The flags of a segment whose sender has received `packets` with CE.
pub(crate) fn flags(packets: u32) -> Flags {
    of_field((packets.wrapping_add(INITIAL) & MASK) as u8)
}

fn of_field(field: u8) -> Flags {
    let mut flags = Flags::empty();
    flags.set(Flags::AE, field & 4 != 0);
    flags.set(Flags::CWR, field & 2 != 0);
    flags.set(Flags::ECE, field & 1 != 0);
    flags
}

/// The flags of a SYN-ACK, or of the ACK that ends the handshake: the ECN field of the packet it answers (table 3).
pub(crate) fn reflection(ecn: EcnField) -> Flags {
    of_field(match ecn {
        EcnField::NotEct => 0b010,
        EcnField::Ect1 => 0b011,
        EcnField::Ect0 => 0b100,
        EcnField::Ce => 0b110,
    })
}

/// The ECN field that the flags of the handshake reflect; `None` for values that are not in use (tables 3 and 4).
pub(crate) fn reflected(field: u8) -> Option<EcnField> {
    match field {
        0b010 => Some(EcnField::NotEct),
        0b011 => Some(EcnField::Ect1),
        0b100 => Some(EcnField::Ect0),
        0b110 => Some(EcnField::Ce),
        _ => None,
    }
}

/// Whether the network may turn `sent` into `arrived` (section 3.2.2.3): ECT may become CE, and (RFC 8311) the other ECT.
pub(crate) fn is_valid_transition(sent: EcnField, arrived: EcnField) -> bool {
    sent == arrived || !(sent == EcnField::NotEct || arrived == EcnField::NotEct || sent == EcnField::Ce)
}

/// Bytes of payload counted for each codepoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EcnBytes {
    /// ECT(0).
    pub ect0: u32,
    /// ECT(1).
    pub ect1: u32,
    /// CE.
    pub ce: u32,
}

impl EcnBytes {
    pub(crate) fn of(&self, counter: EcnCounter) -> u32 {
        match counter {
            EcnCounter::Ect0 => self.ect0,
            EcnCounter::Ect1 => self.ect1,
            EcnCounter::Ce => self.ce,
        }
    }

    pub(crate) fn of_mut(&mut self, counter: EcnCounter) -> &mut u32 {
        match counter {
            EcnCounter::Ect0 => &mut self.ect0,
            EcnCounter::Ect1 => &mut self.ect1,
            EcnCounter::Ce => &mut self.ce,
        }
    }
}

/// The counter of an ECN field; bytes without ECT are not counted.
pub(crate) fn counter_of(ecn: EcnField) -> Option<EcnCounter> {
    match ecn {
        EcnField::NotEct => None,
        EcnField::Ect0 => Some(EcnCounter::Ect0),
        EcnField::Ect1 => Some(EcnCounter::Ect1),
        EcnField::Ce => Some(EcnCounter::Ce),
    }
}

/// The sender's view of the peer's counters.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Decoder {
    /// Packets with CE that the peer has reported (s.cep without its initial value).
    pub(crate) packets: u32,
    /// Bytes that the peer has reported by its options, or that were ascribed between them.
    pub(crate) bytes: EcnBytes,
    /// The counter that alone has changed lately: an ACK without option is taken to have changed it as well (Linux `est_ecnfield`).
    growing: Option<EcnCounter>,
    /// The mean number of packets that an ACK acknowledges, in 64ths.
    mean_acked: u16,
    /// The report of the last option with a counter of bytes with CE.
    ce_option: CeReport,
    /// A counter of bytes with CE has grown while that of packets, which cannot have wrapped, has not (section 3.2.3.2.5).
    is_inconsistent: bool,
}

/// The peer's counters at an option, and packets that ACKs have acknowledged since.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct CeReport {
    bytes: u32,
    packets: u32,
    acked: u32,
}

/// The decoder's input from an ACK, beside its ACE field.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Acked {
    /// Packets and bytes that it reports as delivered for the first time.
    pub(crate) packets: u32,
    pub(crate) bytes: u32,
    /// The largest segment in bytes.
    pub(crate) mss: u32,
    /// No loss is being repaired without SACK, so that the packets are counted exactly.
    pub(crate) is_exact: bool,
}

impl Decoder {
    /// Takes the option of an ACK, or with none ascribes the bytes. Returns whether the byte counters are known.
    pub(crate) fn take_option(&mut self, option: Option<&AccurateEcn>, bytes: u32) -> bool {
        let Some(option) = option else {
            let Some(counter) = self.growing else { return false };
            let count = self.bytes.of_mut(counter);
            *count = count.wrapping_add(bytes);
            return true;
        };
        let grew = self.growing;
        let mut is_known = grew.is_some();
        let mut changed = None;
        let mut is_ambiguous = false;
        for (counter, value) in option.fields() {
            let count = self.bytes.of_mut(counter);
            // The difference of two 24-bit numbers, with its sign.
            let ahead = value.wrapping_sub(counter.initial()).wrapping_sub(*count);
            let delta = (ahead << 8) as i32 >> 8;
            *count = count.wrapping_add_signed(delta);
            // An estimate was too high, or this ACK was overtaken.
            is_ambiguous |= delta < 0;
            if delta != 0 && Some(counter) != grew {
                is_ambiguous |= changed.is_some();
                changed.get_or_insert(counter);
            }
        }
        if is_ambiguous {
            self.growing = None;
            is_known = false;
        } else if changed.is_some() {
            self.growing = changed;
        }
        is_known
    }

    /// How many packets with CE an ACK reports, and counts them.
    pub(crate) fn take_ack(
        &mut self,
        rules: AccurateEcnRules,
        field: u8,
        option: Option<&AccurateEcn>,
        acked: &Acked,
    ) -> u32 {
        let ce_before = self.bytes.ce;
        let is_known = self.take_option(option, acked.bytes);
        let ce_bytes = is_known.then(|| self.bytes.ce.wrapping_sub(ce_before));
        let counts = self.count(rules, field, ce_bytes, acked);
        self.compare(option, acked);
        counts
    }

    /// Compares the counters of bytes and packets with CE (section 3.2.3.2.5), from one option to the next: an ACK without one may have
    /// reported the packet whose bytes follow.
    fn compare(&mut self, option: Option<&AccurateEcn>, acked: &Acked) {
        let last = &mut self.ce_option;
        last.acked = last.acked.saturating_add(if acked.is_exact { acked.packets } else { TURN });
        let ce = |(counter, value): (EcnCounter, u32)| (counter == EcnCounter::Ce).then_some(value);
        let Some(bytes) = option.and_then(|option| option.fields().find_map(ce)) else { return };
        // The difference of two 24-bit numbers, with its sign.
        let grew = (bytes.wrapping_sub(last.bytes) << 8) as i32 > 0;
        self.is_inconsistent |= grew && self.packets == last.packets && last.acked <= MASK;
        *last = CeReport { bytes, packets: self.packets, acked: 0 };
    }

    /// Whether the peer's counters of bytes and packets contradict each other.
    pub(crate) fn is_inconsistent(&self) -> bool {
        self.is_inconsistent
    }

    /// As [`Self::take_ack`], where options are not believed.
    pub(crate) fn take_ack_without_bytes(&mut self, rules: AccurateEcnRules, field: u8, acked: &Acked) -> u32 {
        self.count(rules, field, None, acked)
    }

    fn count(&mut self, rules: AccurateEcnRules, field: u8, ce_bytes: Option<u32>, acked: &Acked) -> u32 {
        self.average(acked.packets);
        let delta = self.decode(rules, field, ce_bytes, acked);
        self.packets = self.packets.wrapping_add(delta);
        delta
    }

    /// A SYN-ACK, whose ACE field is not a counter.
    pub(crate) fn take_syn_ack(&mut self, option: Option<&AccurateEcn>) {
        self.take_option(option, 0);
        self.average(1);
    }

    fn average(&mut self, packets: u32) {
        if packets == 0 {
            return;
        }
        let mean = u32::from(self.mean_acked);
        let new = packets.saturating_mul(1 << MEAN_SHIFT);
        let mean = if mean == 0 { new } else { ((mean << MEAN_SHIFT) - mean).saturating_add(new) >> MEAN_SHIFT };
        self.mean_acked = mean.min(u32::from(u16::MAX)) as u16;
    }

    fn decode(&self, rules: AccurateEcnRules, field: u8, ce_bytes: Option<u32>, acked: &Acked) -> u32 {
        let delta = u32::from(field).wrapping_sub(INITIAL).wrapping_sub(self.packets) & MASK;
        if acked.packets <= MASK {
            return delta;
        }
        // All turns of the counter for which packets were acknowledged (appendix A.2.1).
        let safest = acked.packets - (acked.packets.wrapping_sub(delta) & MASK);
        let is_linux = rules == AccurateEcnRules::Linux;
        let Some(ce_bytes) = ce_bytes else {
            let is_thinned = is_linux && u32::from(self.mean_acked) > THINNED_MEAN << MEAN_SHIFT;
            return if is_thinned { delta } else { safest };
        };
        if ce_bytes == 0 {
            return delta;
        }
        // Linux: the share of the bytes shows the number of turns.
        if is_linux && acked.packets >= 2 * TURN && acked.is_exact {
            if acked.bytes <= ce_bytes {
                return safest;
            }
            let packets = (u64::from(ce_bytes) * u64::from(acked.packets)).div_ceil(u64::from(acked.bytes)) as u32;
            return safest.min(delta + (packets & !MASK));
        }
        // Appendix A.2.2: more bytes than that number of packets can carry, or so few that the packets would be less than half full.
        let bytes_of = |packets: u32| u64::from(packets) * u64::from(acked.mss);
        if u64::from(ce_bytes) > bytes_of(delta) {
            safest
        } else if u64::from(ce_bytes) < bytes_of(safest) / 2 {
            delta
        } else {
            safest
        }
    }
}

#[cfg(test)]
mod tests {
    use holdover_wire::AccurateEcnOrder;

    use super::*;

    fn acked(packets: u32) -> Acked {
        Acked { packets, bytes: packets * 1000, mss: 1000, is_exact: true }
    }

    fn option(ect0: u32, ce: u32) -> AccurateEcn {
        AccurateEcn::new(AccurateEcnOrder::Zero, &[ect0, ce, 1]).unwrap()
    }

    #[test]
    fn the_field_counts_from_five_and_wraps() {
        let fields: Vec<u8> = (0..9).map(|packets| field(flags(packets))).collect();
        assert_eq!(fields, [5, 6, 7, 0, 1, 2, 3, 4, 5]);
        for bits in 0..8 {
            assert_eq!(field(of_field(bits)), bits);
        }
    }

    #[test]
    fn an_ack_of_few_packets_is_unambiguous() {
        for rules in [AccurateEcnRules::Rfc9768, AccurateEcnRules::Linux] {
            let mut decoder = Decoder::default();
            let mut sent = 0_u32;
            for packets in [0, 1, 7, 3, 7, 7, 2] {
                sent += packets;
                assert_eq!(decoder.take_ack(rules, field(flags(sent)), None, &acked(7)), packets);
            }
            assert_eq!(decoder.packets, sent);
        }
    }

    /// Appendix A.2.1.
    #[test]
    fn without_option_the_safest_count_is_taken() {
        for (packets, delta, counted) in [(8, 0, 8), (8, 1, 1), (9, 1, 9), (15, 7, 15), (20, 3, 19), (20, 5, 13)] {
            let mut decoder = Decoder::default();
            let counts = decoder.take_ack(AccurateEcnRules::Rfc9768, field(flags(delta)), None, &acked(packets));
            assert_eq!(counts, counted, "{delta} of {packets}");
        }
    }

    /// Section 3.2.3.2.5: bytes with CE without a packet with CE, unless the counter of packets may have wrapped.
    #[test]
    fn bytes_without_a_packet_contradict_each_other() {
        let found = |acks: &[(u8, Option<u32>, u32)]| {
            let mut decoder = Decoder::default();
            for &(field, ce, packets) in acks {
                let option = ce.map(|ce| option(1, ce));
                decoder.take_ack(AccurateEcnRules::Rfc9768, field, option.as_ref(), &acked(packets));
            }
            decoder.is_inconsistent()
        };
        assert!(found(&[(5, Some(0), 2), (5, Some(1_000), 2)]));
        assert!(!found(&[(5, Some(0), 2), (6, Some(1_000), 2)]));
        // An ACK without option has reported the packet.
        assert!(!found(&[(5, Some(0), 2), (6, None, 2), (6, Some(1_000), 2)]));
        // Eight packets with CE look like none, in one ACK or in several.
        assert!(!found(&[(5, Some(0), 2), (5, Some(8_000), 8)]));
        assert!(!found(&[(5, Some(0), 2), (5, None, 4), (5, Some(8_000), 4)]));
        // An option that was overtaken.
        assert!(!found(&[(6, Some(2_000), 2), (6, Some(1_000), 1)]));
    }

    /// Linux takes large ACKs for the path's if they are the rule.
    #[test]
    fn thinned_acks_are_not_taken_for_a_turn_of_the_counter() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.take_ack(AccurateEcnRules::Linux, 5, None, &acked(8)), 0);
        let mut decoder = Decoder::default();
        decoder.take_ack(AccurateEcnRules::Linux, 5, None, &acked(2));
        assert_eq!(decoder.take_ack(AccurateEcnRules::Linux, 5, None, &acked(8)), 8);
    }

    /// Appendix A.2.2.
    #[test]
    fn the_byte_counter_rules_a_turn_out() {
        for rules in [AccurateEcnRules::Rfc9768, AccurateEcnRules::Linux] {
            let mut decoder = Decoder::default();
            decoder.take_ack(rules, 5, Some(&option(1001, 0)), &acked(1));
            assert_eq!(decoder.take_ack(rules, 5, Some(&option(11_001, 0)), &acked(10)), 0, "no byte with CE");
            assert_eq!(decoder.take_ack(rules, 7, Some(&option(11_001, 2_000)), &acked(10)), 2, "two packets");
            let mut decoder = Decoder::default();
            decoder.take_ack(rules, 6, Some(&option(1, 1_000)), &acked(1));
            assert_eq!(decoder.take_ack(rules, 0, Some(&option(1, 3_000)), &acked(12)), 2, "few bytes with CE");
            assert_eq!(decoder.take_ack(rules, 2, Some(&option(1, 13_000)), &acked(12)), 10, "many bytes with CE");
        }
    }

    #[test]
    fn counters_of_24_bits_wrap_and_are_corrected() {
        let mut decoder = Decoder::default();
        let mut sent = 0_u32;
        for bytes in [0x40_0000; 12] {
            sent += bytes;
            decoder.take_option(Some(&option(sent.wrapping_add(1) & AccurateEcn::COUNTER_MASK, 0)), bytes);
        }
        assert_eq!(decoder.bytes, EcnBytes { ect0: sent, ..EcnBytes::default() });
        assert!(decoder.take_option(None, 500));
        assert_eq!(decoder.bytes.ect0, sent + 500);
        // The estimate was too high: a lower count corrects it.
        assert!(!decoder.take_option(Some(&option((sent + 301) & AccurateEcn::COUNTER_MASK, 0)), 0));
        assert_eq!(decoder.bytes.ect0, sent + 300);
        assert!(!decoder.take_option(None, 700), "nothing is ascribed after that");
    }

    #[test]
    fn reflections_and_transitions() {
        let all = [EcnField::NotEct, EcnField::Ect0, EcnField::Ect1, EcnField::Ce];
        for ecn in all {
            assert_eq!(reflected(field(reflection(ecn))), Some(ecn));
            assert_eq!(is_valid_transition(EcnField::NotEct, ecn), ecn == EcnField::NotEct);
            assert_eq!(is_valid_transition(EcnField::Ect0, ecn), ecn != EcnField::NotEct);
            assert_eq!(is_valid_transition(EcnField::Ce, ecn), ecn == EcnField::Ce);
        }
        for unused in [0, 1, 5, 7] {
            assert_eq!(reflected(unused), None);
        }
    }
}
