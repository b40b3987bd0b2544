//! Numbers and names of nl80211 (`linux/nl80211.h`), the kernel's interface to Wi-Fi over
//! [generic netlink](crate::generic_netlink), which the agent's stations and the gateway's access points share.

use std::path::Path;

/// The name of the family.
pub const FAMILY: &[u8] = b"nl80211\0";

/// `NL80211_MULTICAST_GROUP_MLME`: associations.
pub const ASSOCIATION_GROUP: &[u8] = b"mlme\0";

/// `NL80211_CMD_GET_INTERFACE`.
pub const GET_INTERFACE: u8 = 5;
/// `NL80211_CMD_GET_STATION`.
pub const GET_STATION: u8 = 17;

/// `NL80211_ATTR_IFINDEX`.
pub const INTERFACE: u16 = 3;
/// `NL80211_ATTR_IFTYPE`.
pub const KIND: u16 = 5;
/// `NL80211_ATTR_MAC`.
pub const MAC: u16 = 6;
/// `NL80211_ATTR_STA_INFO`.
pub const STATION_INFO: u16 = 21;

/// Whether this kernel has wireless devices: their directory exists if cfg80211 is loaded. A query of nl80211 without any would
/// load its module.
pub fn has_devices() -> bool {
    Path::new("/sys/class/ieee80211").exists()
}
