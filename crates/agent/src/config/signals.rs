//! The section `[signals]`: which signals about links the agent uses.

use std::path::PathBuf;

use holdover_base::Duration;
use holdover_host::time_text::{Time, between};
use holdover_mobility::silence::SilenceOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::link_watch::wifi::WifiOptions;
use crate::link_watch::{Dbm, Source};

/// The signals about links that the agent uses.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Signals {
    /// Carrier and operational state of an interface and of those below it, and the association of a Wi-Fi station.
    pub carrier: bool,
    /// An interface loses its last address, gets one, or has one replaced.
    pub address: bool,
    /// An interface loses its last default route, or gets one.
    pub route: bool,
    /// The router of a default route does not answer ARP or neighbour discovery, or answers again.
    pub neighbour: bool,
    /// The machine has slept, or is about to, as logind announces.
    pub suspend: bool,
    /// A file (TOML or CSV) with the times of outages; relative to the directory of this file, unless absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<PathBuf>,
    /// Signal strength of Wi-Fi, as a warning.
    pub wifi: Wifi,
    /// State and signal of mobile network modems, as ModemManager reports them.
    pub modem: ModemTable,
    /// TCP sends and nothing arrives, although the link has a carrier: a typical outage of mobile networks.
    pub silence: bool,
    /// How a silence is probed.
    pub next_hop: NextHopProbing,
}

/// How a silence is probed (`[signals] silence`).
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NextHopProbing {
    /// Whether the next hop (ARP, neighbour discovery) and a peer (a keep-alive probe) are probed. Idle links never
    /// are.
    pub ask: bool,
    /// Silence is suspected after data has been unanswered for this long, and for four round trips; not less than 250
    /// ms.
    #[serde(deserialize_with = "between::<250, 3_600_000, _>")]
    pub after: Time,
    /// A next hop that does not answer for three times this long is silent, and the link is down; not less than 100 ms.
    #[serde(deserialize_with = "between::<100, 60_000, _>")]
    pub every: Time,
}

/// Signal strength of Wi-Fi, as a warning.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Wifi {
    /// When to warn.
    pub warn: WifiWarning,
    /// Below this level the link is expected to break.
    pub floor: Dbm,
    /// With `warn = "adaptive"`: how far ahead the level is extrapolated.
    #[serde(deserialize_with = "between::<1, 60_000, _>")]
    pub lead: Time,
    /// The interval between measurements of the level.
    #[serde(deserialize_with = "between::<10, 60_000, _>")]
    pub every: Time,
}

/// State and signal of mobile network modems, as ModemManager reports them on the system bus.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Modem")]
pub struct ModemTable {
    /// Whether the link is down while the modem is not connected to its network.
    pub state: bool,
    /// Whether a weak signal is a warning.
    pub warn: bool,
    /// Below this power of the reference signal (RSRP of LTE or 5G) the link is expected to break.
    pub floor: Dbm,
    /// The same for the quality of the signal, where ModemManager does not measure its power.
    #[schemars(range(max = 100))]
    pub quality: Percent,
    /// The interval at which ModemManager is asked to measure the power, in whole seconds.
    #[serde(deserialize_with = "between::<1_000, 3_600_000, _>")]
    pub every: Time,
}

/// A number from 0 to 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "u64")]
pub struct Percent(pub u8);

impl TryFrom<u64> for Percent {
    type Error = &'static str;

    fn try_from(percent: u64) -> Result<Self, Self::Error> {
        let percent = u8::try_from(percent).ok().filter(|&percent| percent <= 100);
        percent.map(Self).ok_or("expected a number of percent from 0 to 100")
    }
}

/// When the strength of a Wi-Fi signal is a warning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WifiWarning {
    /// Never: the level is not measured.
    #[default]
    Off,
    /// When it is below the floor.
    Fixed,
    /// When it falls so fast that it will be below the floor within the lead.
    Adaptive,
}

impl Signals {
    /// How silence is detected; `None` if disabled.
    pub fn silence_options(&self) -> Option<SilenceOptions> {
        let NextHopProbing { ask, after: Time(after), every: Time(every) } = self.next_hop;
        let (least_after, least_every) = (Duration::from_millis(250), Duration::from_millis(100));
        let options = SilenceOptions { after: after.max(least_after), every: every.max(least_every), asks: ask };
        self.silence.then_some(options)
    }

    /// Whether a source is enabled. Timetables, Wi-Fi levels and commands always are.
    pub fn believes(&self, source: Source) -> bool {
        match source {
            Source::Carrier | Source::Association | Source::Lower => self.carrier,
            Source::Address => self.address,
            Source::Route => self.route,
            Source::Neighbour => self.neighbour,
            Source::Silence => self.silence,
            Source::Suspend => self.suspend,
            Source::Modem => self.modem.is_wanted(),
            Source::Schedule | Source::Wifi | Source::Command => true,
        }
    }
}

impl Wifi {
    /// When to warn; `None` if never.
    pub fn options(&self) -> Option<WifiOptions> {
        let is_adaptive = match self.warn {
            WifiWarning::Off => return None,
            WifiWarning::Fixed => false,
            WifiWarning::Adaptive => true,
        };
        Some(WifiOptions { is_adaptive, floor: self.floor, lead: self.lead.0, is_smoothed: true })
    }
}

impl ModemTable {
    /// Whether ModemManager is followed.
    pub const fn is_wanted(&self) -> bool {
        self.state || self.warn
    }
}

impl Default for ModemTable {
    /// The state, and no warnings. The limits are not measured ones.
    fn default() -> Self {
        Self { state: true, warn: false, floor: Dbm(-115), quality: Percent(10), every: Time(Duration::from_secs(1)) }
    }
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            carrier: true,
            address: true,
            route: true,
            neighbour: true,
            suspend: true,
            schedule: None,
            wifi: Wifi::default(),
            modem: ModemTable::default(),
            silence: true,
            next_hop: NextHopProbing::default(),
        }
    }
}

impl Default for NextHopProbing {
    /// A second is RFC 6298's initial RTO. A next hop answers within milliseconds, but a station in power save hears
    /// its access point only every 100 to 300 ms.
    fn default() -> Self {
        Self { ask: true, after: Time(Duration::from_secs(1)), every: Time(Duration::from_millis(250)) }
    }
}

impl Default for Wifi {
    /// Off. The floor is near the sensitivity of usual receivers at 802.11's lowest rates, with a margin.
    fn default() -> Self {
        Self {
            warn: WifiWarning::Off,
            floor: Dbm(-82),
            lead: Time(Duration::from_millis(500)),
            every: Time(Duration::from_millis(100)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wifi_warns_of_nothing_unless_asked_to() {
        let wifi = |warn| Wifi { warn, ..Wifi::default() };
        assert_eq!(Wifi::default().options(), None);
        let is_adaptive = |warn| wifi(warn).options().unwrap().is_adaptive;
        assert!(!is_adaptive(WifiWarning::Fixed) && is_adaptive(WifiWarning::Adaptive));
    }
}
