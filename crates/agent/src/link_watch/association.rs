//! A station's association with its access point.
//!
//! The carrier says less than nl80211 does. The kernel may delay a loss of carrier by up to a second (`net/core/link_watch.c`: only a
//! carrier that comes back is urgent), and if the station is associated again within that time it is never told. Drivers that roam by
//! themselves keep the carrier while the path changes below it. So an association that ends is a link that is down, and one with
//! another access point is a new path: down and up, after which neighbours and senders are told anew.
//!
//! Being associated does not make a link usable; [`Source::Carrier`](super::Source::Carrier) waits for the authentication, after
//! which the interface's operational state is up.

use std::collections::BTreeMap;

use crate::link_watch::Dbm;

/// The address of an access point's radio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bssid(pub [u8; 6]);

/// Something that nl80211 says of an interface, which goes by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WifiNews {
    /// It is associated.
    Connected {
        /// The interface.
        index: u32,
        /// With this access point.
        bssid: Option<Bssid>,
    },
    /// The driver has changed the access point by itself.
    Roamed {
        /// The interface.
        index: u32,
        /// The new one.
        bssid: Option<Bssid>,
    },
    /// It is not associated any more.
    Disconnected {
        /// The interface.
        index: u32,
    },
    /// A frame ended the association with an access point, which need not be the present one.
    Left {
        /// The interface.
        index: u32,
        /// The access point.
        bssid: Bssid,
    },
    /// The level crossed a threshold that somebody has set.
    Level {
        /// The interface.
        index: u32,
        /// How strongly the access point is heard.
        level: Dbm,
    },
    /// Beacons have not been heard for some time; the driver asks the access point whether it is there.
    BeaconsLost {
        /// The interface.
        index: u32,
    },
    /// Many packets in a row were not acknowledged by the access point.
    PacketsLost {
        /// The interface.
        index: u32,
    },
}

/// What has become of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AssociationChange {
    /// It is over.
    Lost,
    /// There is one.
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
    /// `None` if the kernel did not say.
    bssid: Option<Bssid>,
}

impl WifiNews {
    /// The interface that it is about.
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
    /// Nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// nl80211 says something. `None` if it changes nothing.
    pub fn handle(&mut self, news: &WifiNews) -> Option<AssociationChange> {
        match *news {
            WifiNews::Connected { index, bssid } => self.note(index, Some(Association { bssid })),
            WifiNews::Roamed { index, bssid } => {
                self.known.insert(index, Some(Association { bssid }));
                Some(AssociationChange::Moved)
            }
            WifiNews::Disconnected { index } => self.note(index, None),
            WifiNews::Left { index, bssid } => {
                let is_present = |association: &Association| association.bssid.is_none_or(|present| present == bssid);
                let present = self.known.get(&index).copied().flatten();
                if present.as_ref().is_some_and(is_present) { self.note(index, None) } else { None }
            }
            WifiNews::Level { .. } | WifiNews::BeaconsLost { .. } | WifiNews::PacketsLost { .. } => None,
        }
    }

    /// The kernel was asked: an interface is associated with this access point, or with none.
    pub fn handle_snapshot(&mut self, index: u32, bssid: Option<Bssid>) -> Option<AssociationChange> {
        self.note(index, bssid.map(|bssid| Association { bssid: Some(bssid) }))
    }

    /// Forgets the interfaces that are gone.
    pub fn retain(&mut self, mut is_there: impl FnMut(u32) -> bool) {
        self.known.retain(|&index, _| is_there(index));
    }

    fn note(&mut self, index: u32, now: Option<Association>) -> Option<AssociationChange> {
        let before = self.known.insert(index, now);
        match (before, now) {
            (Some(None), None) => None,
            // What has not been heard of before may have been associated.
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

    const fn connected(bssid: Bssid) -> WifiNews {
        WifiNews::Connected { index: 3, bssid: Some(bssid) }
    }

    const fn left(bssid: Bssid) -> WifiNews {
        WifiNews::Left { index: 3, bssid }
    }

    const GONE: WifiNews = WifiNews::Disconnected { index: 3 };

    fn changes(news: &[WifiNews]) -> Vec<Option<AssociationChange>> {
        let mut associations = Associations::new();
        news.iter().map(|news| associations.handle(news)).collect()
    }

    #[test]
    fn an_association_is_lost_once_however_often_it_is_said() {
        let told = changes(&[connected(HERE), connected(HERE), left(HERE), GONE, GONE, connected(HERE)]);
        assert_eq!(told, [Some(Made), None, Some(Lost), None, None, Some(Made)]);
    }

    #[test]
    fn another_access_point_is_a_move() {
        let roamed = WifiNews::Roamed { index: 3, bssid: Some(THERE) };
        // The farewell of the access point that was left comes late.
        let told = changes(&[connected(HERE), connected(THERE), left(HERE), roamed]);
        assert_eq!(told, [Some(Made), Some(Moved), None, Some(Moved)]);
    }

    #[test]
    fn what_the_driver_measures_is_no_change() {
        let measured = [
            WifiNews::Level { index: 3, level: Dbm(-90) },
            WifiNews::BeaconsLost { index: 3 },
            WifiNews::PacketsLost { index: 3 },
        ];
        assert_eq!(changes(&measured), [None; 3]);
    }

    #[test]
    fn a_snapshot_makes_good_what_was_not_heard() {
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
