//! The numbers of UPDATEs (RFC 7401 sections 5.2.16 and 6.12.1). They wrap around.

use std::borrow::Cow;

use super::checklist::is_candidates;
use crate::codec::{HipPacket, Parameter};

/// How many IDs before the newest one a late UPDATE may have.
const WINDOW: u32 = 64;

/// From this difference on, an ID is ahead of the newest one.
const HALF: u32 = 1 << 31;

/// The IDs of this host's UPDATEs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnIds {
    /// The first one is 0.
    next: u32,
}

impl OwnIds {
    pub(super) fn next(&mut self) -> u32 {
        let id = self.next;
        self.next = id.wrapping_add(1);
        id
    }

    pub(super) const fn is_newest(self, id: u32) -> bool {
        id.wrapping_add(1) == self.next
    }
}

/// The relation of an ID of the peer to those received before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrived {
    /// It is newer than all others.
    New,
    /// It is older than the newest, and was not processed.
    Late,
    /// The newest one was processed.
    AsNewest,
    /// It was processed, and is not the newest.
    Again,
    /// It is below the window.
    TooOld,
}

/// The IDs of the peer's UPDATEs that were processed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeerIds {
    newest: Option<u32>,
    /// Bit n is the ID n + 1 before the newest.
    processed: u64,
    /// The newest ones with addresses and with candidates in LOCATOR_SET, and the newest one with ESP_INFO of new keys.
    locators: Option<u32>,
    candidates: Option<u32>,
    keys: Option<u32>,
}

impl PeerIds {
    pub(super) fn classify(&self, id: u32) -> Arrived {
        let Some(newest) = self.newest else { return Arrived::New };
        match newest.wrapping_sub(id) {
            0 => Arrived::AsNewest,
            age @ 1..=WINDOW if self.processed >> (age - 1) & 1 == 1 => Arrived::Again,
            1..=WINDOW => Arrived::Late,
            age if age < HALF => Arrived::TooOld,
            _ => Arrived::New,
        }
    }

    /// Removes LOCATOR_SET and new-key ESP_INFO superseded by a later UPDATE. A receiver does not reorder UPDATEs.
    pub(super) fn without_overtaken<'a>(&self, packet: &'a HipPacket, id: u32) -> Cow<'a, HipPacket> {
        let (no_locators, no_keys) = (self.has_newer_locators(id), is_overtaken(id, self.keys));
        let no_candidates = is_overtaken(id, self.candidates);
        let is_left_out = |parameter: &Parameter| match parameter {
            Parameter::LocatorSet(locators) if is_candidates(locators) => no_candidates,
            Parameter::LocatorSet(_) => no_locators,
            Parameter::EspInfo(_) | Parameter::DiffieHellman { .. } => no_keys,
            _ => false,
        };
        if !packet.parameters.iter().any(is_left_out) {
            return Cow::Borrowed(packet);
        }
        let parameters = packet.parameters.iter().filter(|it| !is_left_out(it)).cloned().collect();
        Cow::Owned(HipPacket { parameters, ..packet.clone() })
    }

    /// Whether addresses were announced after the UPDATE with this ID.
    pub(super) fn has_newer_locators(&self, id: u32) -> bool {
        is_overtaken(id, self.locators)
    }

    /// An UPDATE was processed.
    pub(super) fn note(&mut self, id: u32, packet: &HipPacket) {
        match self.newest.map(|newest| newest.wrapping_sub(id)) {
            None => self.newest = Some(id),
            Some(age @ 1..=WINDOW) => self.processed |= 1 << (age - 1),
            Some(age) if age < HALF => {}
            Some(age) => {
                let ahead = age.wrapping_neg();
                let shifted = self.processed.checked_shl(ahead).unwrap_or(0);
                // The former newest one.
                self.processed = shifted | 1_u64.checked_shl(ahead - 1).unwrap_or(0);
                self.newest = Some(id);
            }
        }
        for parameter in &packet.parameters {
            match parameter {
                Parameter::LocatorSet(locators) if is_candidates(locators) => self.candidates = Some(id),
                Parameter::LocatorSet(_) => self.locators = Some(id),
                Parameter::EspInfo(info) if info.old_spi != info.new_spi => self.keys = Some(id),
                _ => {}
            }
        }
    }
}

fn is_overtaken(id: u32, by: Option<u32>) -> bool {
    by.is_some_and(|by| (1..HALF).contains(&by.wrapping_sub(id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{EspInfo, PacketType};
    use crate::identity::Hit;

    fn update(parameters: &[Parameter]) -> HipPacket {
        let packet = HipPacket::new(PacketType::Update, Hit::UNSPECIFIED, Hit::UNSPECIFIED);
        HipPacket { parameters: parameters.to_vec(), ..packet }
    }

    /// RFC 7401 section 5.2.16: the first UPDATE has ID 0.
    #[test]
    fn own_ids_begin_with_0() {
        let mut own = OwnIds::default();
        assert_eq!((own.next(), own.next()), (0, 1));
        assert!(own.is_newest(1) && !own.is_newest(0) && !own.is_newest(2));
    }

    #[test]
    fn each_id_is_processed_once_around_the_wrap() {
        for first in [0, 5, u32::MAX - 2] {
            let id = |offset: u32| first.wrapping_add(offset);
            let (mut ids, empty) = (PeerIds::default(), update(&[]));
            assert_eq!(ids.classify(id(0)), Arrived::New);
            ids.note(id(0), &empty);
            ids.note(id(3), &empty);
            let seen: Vec<Arrived> = (0..=4).map(|offset| ids.classify(id(offset))).collect();
            assert_eq!(seen, [Arrived::Again, Arrived::Late, Arrived::Late, Arrived::AsNewest, Arrived::New]);
            ids.note(id(2), &empty);
            assert_eq!((ids.classify(id(1)), ids.classify(id(2))), (Arrived::Late, Arrived::Again));
            assert_eq!(ids.classify(id(3)), Arrived::AsNewest);
            ids.note(id(64), &empty);
            let seen = [0, 1, 2, 3, 63].map(|offset| ids.classify(id(offset)));
            assert_eq!(seen, [Arrived::Again, Arrived::Late, Arrived::Again, Arrived::Again, Arrived::Late]);
            ids.note(id(65), &empty);
            assert_eq!((ids.classify(id(0)), ids.classify(id(1))), (Arrived::TooOld, Arrived::Late));
            ids.note(id(1000), &empty);
            assert_eq!((ids.classify(id(936)), ids.classify(id(935))), (Arrived::Late, Arrived::TooOld));
        }
    }

    #[test]
    fn a_late_update_does_not_undo_a_newer_one() {
        let info = |old_spi, new_spi| Parameter::EspInfo(EspInfo { keymat_index: 0, old_spi, new_spi });
        let moved = update(&[info(7, 7), Parameter::LocatorSet(Vec::new()), Parameter::Seq(0)]);
        let rekeyed = update(&[info(7, 8), Parameter::Seq(0)]);
        let mut ids = PeerIds::default();
        ids.note(5, &moved);
        let kinds = |packet: &HipPacket| packet.parameters.iter().map(Parameter::kind).collect::<Vec<u16>>();
        assert_eq!(kinds(&ids.without_overtaken(&moved, 4)), kinds(&update(&[info(7, 7), Parameter::Seq(0)])));
        assert_eq!(kinds(&ids.without_overtaken(&rekeyed, 4)), kinds(&rekeyed));
        ids.note(6, &rekeyed);
        assert_eq!(kinds(&ids.without_overtaken(&rekeyed, 4)), kinds(&update(&[Parameter::Seq(0)])));
        assert_eq!(kinds(&ids.without_overtaken(&moved, 7)), kinds(&moved));
    }
}
