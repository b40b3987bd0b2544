//! The two IP versions of a link, which may fail independently.

use core::fmt;
use std::net::IpAddr;

use holdover_mobility::{Connection, LinkEvent};
use serde::{Deserialize, Serialize};

/// A version of IP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// A set of IP versions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Families {
    ipv4: bool,
    ipv6: bool,
}

/// A change of a link, for the connections of some IP versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkChange {
    /// The IP versions.
    pub families: Families,
    /// The event.
    pub event: LinkEvent,
}

impl Family {
    /// Both, in the order of arrays with one element for each.
    pub const BOTH: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// The version of an address.
    pub const fn of(address: IpAddr) -> Self {
        if address.is_ipv6() { Self::Ipv6 } else { Self::Ipv4 }
    }

    /// The version of a connection's packets.
    pub const fn of_connection(connection: Connection) -> Self {
        Self::of(connection.local.ip())
    }

    /// The other version.
    pub const fn other(self) -> Self {
        match self {
            Self::Ipv4 => Self::Ipv6,
            Self::Ipv6 => Self::Ipv4,
        }
    }

    /// Its index in an array with one element for each.
    pub const fn index(self) -> usize {
        match self {
            Self::Ipv4 => 0,
            Self::Ipv6 => 1,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

impl Families {
    /// Both versions.
    pub const BOTH: Self = Self { ipv4: true, ipv6: true };
    /// None.
    pub const NONE: Self = Self { ipv4: false, ipv6: false };

    /// One version.
    pub const fn only(family: Family) -> Self {
        match family {
            Family::Ipv4 => Self { ipv4: true, ipv6: false },
            Family::Ipv6 => Self { ipv4: false, ipv6: true },
        }
    }

    /// Whether it contains a version.
    pub const fn contains(self, family: Family) -> bool {
        match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        }
    }

    /// Whether it is empty.
    pub const fn is_empty(self) -> bool {
        !self.ipv4 && !self.ipv6
    }

    /// Whether it contains both.
    pub const fn are_both(self) -> bool {
        self.ipv4 && self.ipv6
    }

    /// Its versions.
    pub fn iter(self) -> impl Iterator<Item = Family> {
        Family::BOTH.into_iter().filter(move |&family| self.contains(family))
    }

    /// The versions that it does not contain.
    #[must_use]
    pub const fn others(self) -> Self {
        Self { ipv4: !self.ipv4, ipv6: !self.ipv6 }
    }

    /// The union.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self { ipv4: self.ipv4 || other.ipv4, ipv6: self.ipv6 || other.ipv6 }
    }

    /// The intersection.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { ipv4: self.ipv4 && other.ipv4, ipv6: self.ipv6 && other.ipv6 }
    }
}

impl FromIterator<Family> for Families {
    fn from_iter<T: IntoIterator<Item = Family>>(families: T) -> Self {
        let mut set = Self::NONE;
        for family in families {
            match family {
                Family::Ipv4 => set.ipv4 = true,
                Family::Ipv6 => set.ipv6 = true,
            }
        }
        set
    }
}

impl LinkChange {
    /// An event for the connections of both versions.
    pub const fn of_both(event: LinkEvent) -> Self {
        Self { families: Families::BOTH, event }
    }

    /// The events of each version, in order; events common to both become one change.
    pub(super) fn join([ipv4, ipv6]: [Vec<LinkEvent>; 2]) -> Vec<Self> {
        if ipv4 == ipv6 {
            return ipv4.into_iter().map(Self::of_both).collect();
        }
        let of = |family| move |event| Self { families: Families::only(family), event };
        ipv4.into_iter().map(of(Family::Ipv4)).chain(ipv6.into_iter().map(of(Family::Ipv6))).collect()
    }
}

/// Prints the event, and the version if it is not both: `down (IPv4)`.
impl fmt::Display for LinkChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.event)?;
        match self.families.iter().next() {
            Some(family) if !self.families.are_both() => write!(f, " ({family})"),
            _ => Ok(()),
        }
    }
}
