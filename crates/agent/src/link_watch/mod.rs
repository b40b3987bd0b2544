//! The state of links, and its sources.
//!
//! Each source is a separate state machine without I/O, which turns its input into [`Signal`]s; an [`Arbiter`] for each
//! interface turns them into events for the mechanisms. Thin shells transport the messages of netlink and the levels of
//! nl80211.
//!
//! | source | machine | shell |
//! | --- | --- | --- |
//! | carrier, addresses, default routes, default routers | [`kernel::Interfaces`] | [`netlink::Monitor`] |
//! | links below it | [`kernel::Interfaces`] | [`netlink::Monitor`], [`endpoints::Endpoints`] |
//! | incoming packets, or their absence | [`SilenceWatch`](holdover_mobility::silence::SilenceWatch) | the engine, [`neighbour_probe::NeighbourProbe`] |
//! | a timetable | [`schedule::ScheduleWatch`] | the daemon's clock |
//! | sleep of the machine | [`suspend::SuspendWatch`] | the daemon's clock, [`logind::Logind`] |
//! | association of a Wi-Fi station | [`association::Associations`] | [`nl80211::events::WifiEvents`] |
//! | strength of a Wi-Fi signal | [`wifi::WifiWatch`] | [`nl80211::Station`] |
//! | commands | [`Arbiter`] itself | the control socket |

mod arbiter;
pub mod association;
mod bus;
mod dbm;
pub mod endpoints;
mod family;
pub mod kernel;
pub mod logind;
pub mod lost_addresses;
pub mod modem;
pub mod neighbour_probe;
pub mod netlink;
pub mod nl80211;
pub mod rules;
pub mod schedule;
pub mod suspend;
pub mod wifi;
mod wireguard;

use core::fmt;

use holdover_base::Instant;
use holdover_mobility::LinkEvent;
use serde::{Deserialize, Serialize};

pub use self::arbiter::{Arbiter, LinkCondition};
pub use self::dbm::Dbm;
pub use self::family::{Families, Family, LinkChange};

/// A report of a source about an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signal {
    /// The interface's name.
    pub interface: Box<str>,
    /// The event.
    pub event: LinkEvent,
    /// The IP versions whose packets it is about.
    pub families: Families,
    /// The source.
    pub source: Source,
    /// Its time, on `CLOCK_MONOTONIC`.
    pub at: Instant,
}

impl Signal {
    /// A report about an interface as a whole, now.
    pub fn new(now: Instant, interface: &str, event: LinkEvent, source: Source) -> Self {
        Self { interface: interface.into(), event, families: Families::BOTH, source, at: now }
    }
}

/// The sources of signals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The interface is up, with a carrier.
    Carrier,
    /// The Wi-Fi interface is associated with an access point.
    Association,
    /// It has a usable address.
    Address,
    /// A default route leads over it.
    Route,
    /// The router of a default route answers.
    Neighbour,
    /// The links below it (of a VLAN, a bond, a tunnel) are up.
    Lower,
    /// TCP sends, and packets arrive.
    Silence,
    /// The machine is awake.
    Suspend,
    /// A timetable.
    Schedule,
    /// The strength of a Wi-Fi signal. It only warns.
    Wifi,
    /// ModemManager: the modem is connected to its network. The strength of its signal only warns.
    Modem,
    /// A user, by `holdover agent signal`.
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
            Self::Modem => "modem",
            Self::Command => "command",
        })
    }
}
