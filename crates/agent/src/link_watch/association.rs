//! A station's association with its access point.
//!
//! The carrier is less informative than nl80211. The kernel may delay a loss of carrier by up to a second
//! (`net/core/link_watch.c`: only a returning carrier is urgent), and if the station is associated again within that
//! time it is never reported. Drivers that roam by themselves keep the carrier while the path changes below it. So the
//! end of an association is link-down, and an association with another access point is a new path: down and up, after
//! which neighbours are resolved and senders are woken.
//!
//! An association does not make a link usable; [`Source::Carrier`](super::Source::Carrier) waits for the
//! authentication, after which the interface's operational state is up.

use std::collections::BTreeMap;

use crate::link_watch::Dbm;

/// The address of an access point's radio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bssid(pub [u8; 6]);

/// An event of nl80211 about an interface, identified by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WifiEvent {
    /// The interface is associated.
    Connected {
        /// The interface.
        index: u32,
        /// The access point.
        bssid: Option<Bssid>,
    },
    /// The driver has switched to another access point.
    Roamed {
        /// The interface.
        index: u32,
        /// The new access point.
        bssid: Option<Bssid>,
    },
    /// The interface is not associated any more.
    Disconnected {
        /// The interface.
        index: u32,
    },
    /// A frame ended the association with an access point, not necessarily the current one.
    Left {
        /// The interface.
        index: u32,
        /// The access point.
        bssid: Bssid,
    },
    /// The level crossed a threshold set by some process.
    Level {
        /// The interface.
        index: u32,
        /// The level of the access point.
        level: Dbm,
    },
    /// No beacons for some time; the driver probes the access point.
    BeaconsLost {
        /// The interface.
        index: u32,
    },
    /// The access point has not acknowledged many consecutive packets.
    PacketsLost {
        /// The interface.
        index: u32,
    },
}

/// A change of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AssociationChange {
    /// It has ended.
    Lost,
    /// It has begun.
    Made,
    /// It is with another access point now.
    Moved,
}

/// The associations of all interfaces.
#[derive(Debug, Default)]
pub struct Associations {
    known: BTreeMap<u32, Option<Association>>,
}

/// An interface's association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Association {
    /// `None` if the kernel did not report it.
    bssid: Option<Bssid>,
}

impl WifiEvent {
    /// The interface.
    pub const fn index(&self) -> u32 {
        match *self {
            Self::Connected { index, .. }
            | Self::Roamed { index, .. }
            | Self::Disconnected { index }
            | Self::Left { index, .. }
            | Self::Level { index, .. }
            | Self::BeaconsLost { index }
            | Self::PacketsLost { index } => index,
        }
    }
}

impl Associations {
    /// Without any interface.
    pub fn new() -> Self {
        Self::default()
    }

    /// Handles an event. `None` if it changes nothing.
    pub fn handle(&mut self, event: &WifiEvent) -> Option<AssociationChange> {
        match *event {
            WifiEvent::Connected { index, bssid } => self.note(index, Some(Association { bssid })),
            WifiEvent::Roamed { index, bssid } => {
                self.known.insert(index, Some(Association { bssid }));
                Some(AssociationChange::Moved)
            }
            WifiEvent::Disconnected { index } => self.note(index, None),
            WifiEvent::Left { index, bssid } => {
                let is_present = |association: &Association| association.bssid.is_none_or(|present| present == bssid);
                let present = self.known.get(&index).copied().flatten();
                if present.as_ref().is_some_and(is_present) { self.note(index, None) } else { None }
            }
            WifiEvent::Level { .. } | WifiEvent::BeaconsLost { .. } | WifiEvent::PacketsLost { .. } => None,
        }
    }

    /// Handles the result of a query: an interface is associated with this access point, or with none.
    pub fn handle_snapshot(&mut self, index: u32, bssid: Option<Bssid>) -> Option<AssociationChange> {
        self.note(index, bssid.map(|bssid| Association { bssid: Some(bssid) }))
    }

    /// Removes interfaces that are gone.
    pub fn retain(&mut self, mut is_there: impl FnMut(u32) -> bool) {
        self.known.retain(|&index, _| is_there(index));
    }

    fn note(&mut self, index: u32, now: Option<Association>) -> Option<AssociationChange> {
        let before = self.known.insert(index, now);
        match (before, now) {
            (Some(None), None) => None,
            // An interface without earlier events may have been associated.
            (_, None) => Some(AssociationChange::Lost),
            (None | Some(None), Some(_)) => Some(AssociationChange::Made),
            (Some(Some(before)), Some(now)) => (before != now).then_some(AssociationChange::Moved),
        }
    }
}

#[cfg(test)]
mod tests {
    use AssociationChange::{Lost, Made, Moved};

    use super::*;

    const HERE: Bssid = Bssid([2, 0, 0, 0, 1, 0]);
    const THERE: Bssid = Bssid([2, 0, 0, 0, 2, 0]);

    const fn connected(bssid: Bssid) -> WifiEvent {
        WifiEvent::Connected { index: 3, bssid: Some(bssid) }
    }

    const fn left(bssid: Bssid) -> WifiEvent {
        WifiEvent::Left { index: 3, bssid }
    }

    const GONE: WifiEvent = WifiEvent::Disconnected { index: 3 };

    fn changes(events: &[WifiEvent]) -> Vec<Option<AssociationChange>> {
        let mut associations = Associations::new();
        events.iter().map(|event| associations.handle(event)).collect()
    }

    #[test]
    fn repeated_ends_of_an_association_count_once() {
        let reported = changes(&[connected(HERE), connected(HERE), left(HERE), GONE, GONE, connected(HERE)]);
        assert_eq!(reported, [Some(Made), None, Some(Lost), None, None, Some(Made)]);
    }

    #[test]
    fn another_access_point_is_a_move() {
        let roamed = WifiEvent::Roamed { index: 3, bssid: Some(THERE) };
        // The deauthentication from the former access point arrives late.
        let reported = changes(&[connected(HERE), connected(THERE), left(HERE), roamed]);
        assert_eq!(reported, [Some(Made), Some(Moved), None, Some(Moved)]);
    }

    #[test]
    fn driver_measurements_are_no_change() {
        let measured = [
            WifiEvent::Level { index: 3, level: Dbm(-90) },
            WifiEvent::BeaconsLost { index: 3 },
            WifiEvent::PacketsLost { index: 3 },
        ];
        assert_eq!(changes(&measured), [None; 3]);
    }

    #[test]
    fn a_snapshot_makes_up_for_lost_events() {
        let mut associations = Associations::new();
        assert_eq!(associations.handle_snapshot(3, Some(HERE)), Some(Made));
        assert_eq!(associations.handle(&left(THERE)), None);
        assert_eq!(associations.handle_snapshot(3, Some(THERE)), Some(Moved));
        assert_eq!(associations.handle_snapshot(3, None), Some(Lost));
        assert_eq!(associations.handle(&GONE), None);
        associations.retain(|index| index != 3);
        assert_eq!(associations.handle(&GONE), Some(Lost), "forgotten");
    }
}
