//! What is known of links, and from whom.
//!
//! Each source is a state machine of its own, without I/O, and turns what it hears into [`Signal`]s; an [`Arbiter`] for each
//! interface makes of them what the mechanisms are told. Thin shells carry the messages of netlink and the levels of nl80211.
//!
//! | source | machine | shell |
//! | --- | --- | --- |
//! | carrier, addresses, default routes, gateways | [`kernel::Interfaces`] | [`netlink::Monitor`] |
//! | links below it | [`kernel::Interfaces`] | [`netlink::Monitor`], [`endpoints::Endpoints`] |
//! | what comes in, or does not | [`silence::SilenceWatch`] | the engine, [`neighbour_probe::NeighbourProbe`] |
//! | a timetable | [`schedule::ScheduleWatch`] | the daemon's clock |
//! | sleep of the machine | [`suspend::SuspendWatch`] | the daemon's clock, [`logind::Logind`] |
//! | association of a Wi-Fi station | [`association::Associations`] | [`nl80211::events::WifiEvents`] |
//! | strength of a Wi-Fi signal | [`wifi::WifiWatch`] | [`nl80211::Station`] |
//! | commands | [`Arbiter`] itself | the control socket |

mod arbiter;
pub mod association;
mod dbm;
pub mod endpoints;
mod family;
pub mod kernel;
pub mod logind;
pub mod lost_addresses;
pub mod neighbour_probe;
pub mod netlink;
pub mod nl80211;
pub mod rules;
pub mod schedule;
pub mod silence;
pub mod suspend;
pub mod wifi;
mod wireguard;

use core::fmt;

use holdover_base::Instant;
use holdover_mobility::LinkEvent;
use serde::{Deserialize, Serialize};

pub use self::arbiter::{Arbiter, LinkState};
pub use self::dbm::Dbm;
pub use self::family::{Families, Family, LinkChange};

/// Something that a source says about an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signal {
    /// The interface's name.
    pub interface: Box<str>,
    /// What.
    pub event: LinkEvent,
    /// Whether it is about the packets of both IP versions, or of one.
    pub families: Families,
    /// Who.
    pub source: Source,
    /// When, on `CLOCK_MONOTONIC`.
    pub at: Instant,
}

impl Signal {
    /// A source says something of an interface as a whole now.
    pub fn new(now: Instant, interface: &str, event: LinkEvent, source: Source) -> Self {
        Self { interface: interface.into(), event, families: Families::BOTH, source, at: now }
    }
}

/// Who knows something of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The interface: set up, with a carrier.
    Carrier,
    /// The Wi-Fi interface is associated with an access point.
    Association,
    /// It has an address that can be used.
    Address,
    /// A default route leads over it.
    Route,
    /// The gateway of a default route answers.
    Neighbour,
    /// The links that it runs over (a VLAN, a bond, a tunnel) are up.
    Lower,
    /// TCP sends, and something comes in.
    Silence,
    /// The machine is awake.
    Suspend,
    /// A timetable.
    Schedule,
    /// The strength of a Wi-Fi signal. It warns, and says no more.
    Wifi,
    /// Someone who was there, by `holdover agent signal`.
    Command,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Carrier => "carrier",
            Self::Association => "association",
            Self::Address => "address",
            Self::Route => "route",
            Self::Neighbour => "neighbour",
            Self::Lower => "lower",
            Self::Silence => "silence",
            Self::Suspend => "suspend",
            Self::Schedule => "schedule",
            Self::Wifi => "wifi",
            Self::Command => "command",
        })
    }
}
