//! `hip.toml`: settings that may be changed while the daemon runs. Without the file the defaults apply.

use std::path::Path;

use holdover_base::{Duration, UnitError};
use holdover_mobility::hold_open::HoldOpenConfig;
use serde::Deserialize;

use super::{FileError, read_toml};

const FILE: &str = "hip.toml";
/// The limits of a user timeout: that of the agent's rules, which the kernel can represent.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(24 * 24 * 3600);

/// The settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The user timeout of connections with peers; `None` for that of each TCP.
    pub hold: Option<HoldOpenConfig>,
    /// Whether the addresses of standby links are announced to peers.
    pub has_standbys: bool,
    /// Whether hosts whose HITs are not known are called, and answered when they do not know this host's.
    pub is_opportunistic: bool,
}

/// Why a setting is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingError {
    /// Not a time.
    #[error("user_timeout.{field} is not a time, such as \"12 h\"")]
    Time {
        /// The field.
        field: &'static str,
        /// The reason.
        source: UnitError,
    },
    /// Too short or too long.
    #[error("user_timeout.{field} = \"{time}\" is not between 1 s and 24 days (576 h)")]
    Range {
        /// The field.
        field: &'static str,
        /// Its value.
        time: Duration,
    },
}

/// Why the file is unusable.
pub type SettingsFileError = FileError<SettingError>;

/// As in the file.
#[derive(Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    user_timeout: WrittenUserTimeout,
    standby: WrittenStandby,
    opportunistic: WrittenOpportunistic,
}

#[derive(Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenOpportunistic {
    enabled: bool,
}

#[derive(Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenStandby {
    enabled: Option<bool>,
}

#[derive(Default, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenUserTimeout {
    enabled: Option<bool>,
    hold: Option<String>,
    accept: Option<String>,
    advertise: Option<bool>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { hold: Some(HoldOpenConfig::default()), has_standbys: true, is_opportunistic: false }
    }
}

impl Settings {
    /// Reads the file in the directory.
    ///
    /// # Errors
    /// [`SettingsFileError`] with the position.
    pub fn read(directory: &Path) -> Result<Self, SettingsFileError> {
        let path = directory.join(FILE);
        let written: Written = read_toml(&path)?.unwrap_or_default();
        written.check().map_err(|source| SettingsFileError::Invalid { path, source })
    }
}

impl Written {
    fn check(&self) -> Result<Settings, SettingError> {
        let WrittenUserTimeout { enabled, hold, accept, advertise } = &self.user_timeout;
        let default = HoldOpenConfig::default();
        let hold = HoldOpenConfig {
            timeout: time("hold", hold.as_deref(), default.timeout)?,
            accept: time("accept", accept.as_deref(), default.accept)?,
            advertise: advertise.unwrap_or(default.advertise),
        };
        let has_standbys = self.standby.enabled.unwrap_or(true);
        let is_opportunistic = self.opportunistic.enabled;
        Ok(Settings { hold: enabled.unwrap_or(true).then_some(hold), has_standbys, is_opportunistic })
    }
}

fn time(field: &'static str, text: Option<&str>, default: Duration) -> Result<Duration, SettingError> {
    let Some(text) = text else { return Ok(default) };
    let time: Duration = text.parse().map_err(|source| SettingError::Time { field, source })?;
    if (SHORTEST..=LONGEST).contains(&time) { Ok(time) } else { Err(SettingError::Range { field, time }) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::Place;
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        let written: Written = toml::from_str(text).map_err(|error| error.to_string())?;
        written.check().map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_file_connections_are_held_for_twelve_hours() {
        let place = Place::new("settings");
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let default = HoldOpenConfig { timeout: hours(12), accept: hours(24), advertise: true };
        assert_eq!(Settings::read(&place.0).unwrap(), Settings::default());
        assert_eq!(Settings::default(), Settings { hold: Some(default), has_standbys: true, is_opportunistic: false });
        fs::write(place.0.join(FILE), "[user_timeout]\nhold = \"40 h\"\nadvertise = false\n").unwrap();
        let changed = HoldOpenConfig { timeout: hours(40), advertise: false, ..default };
        assert_eq!(Settings::read(&place.0).unwrap(), Settings { hold: Some(changed), ..Settings::default() });
        let without = Settings { hold: None, has_standbys: false, is_opportunistic: false };
        assert_eq!(read("[user_timeout]\nenabled = false\n[standby]\nenabled = false\n"), Ok(without));
        let opportunistic = Settings { is_opportunistic: true, ..Settings::default() };
        assert_eq!(read("[opportunistic]\nenabled = true\n"), Ok(opportunistic));
    }

    #[test]
    fn invalid_settings_are_refused_with_the_reason() {
        for (text, reason) in [
            ("[user_timeout]\nhold = \"0 s\"\n", "is not between 1 s and 24 days"),
            ("[user_timeout]\naccept = \"600 h\"\n", "user_timeout.accept"),
            ("[user_timeout]\nhold = \"soon\"\n", "user_timeout.hold is not a time"),
            ("[user_timeout]\nholds = \"1 h\"\n", "unknown field `holds`"),
            ("hold = \"1 h\"\n", "unknown field `hold`"),
            ("[opportunistic]\nenabled = \"yes\"\n", "boolean"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
    }
}
