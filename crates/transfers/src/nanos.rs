//! Times in files that are read again, in nanoseconds: for `#[serde(with = ...)]`.

use holdover_base::Duration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes a number of nanoseconds.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    time.as_nanos().serialize(to)
}

/// Reads a number of nanoseconds.
///
/// # Errors
/// The deserializer's.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_nanos)
}

/// As above, for `Option<Duration>`.
pub mod optional {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer};

    /// Writes a number of nanoseconds, or null.
    ///
    /// # Errors
    /// The serializer's.
    // Serde gives a reference to the field.
    #[allow(clippy::ref_option)]
    pub fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        time.map(Duration::as_nanos).serialize(to)
    }

    /// Reads a number of nanoseconds, or null.
    ///
    /// # Errors
    /// The deserializer's.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Option::<u64>::deserialize(from).map(|nanos| nanos.map(Duration::from_nanos))
    }
}
