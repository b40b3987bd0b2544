//! Times in files that this program reads again, in nanoseconds.

use holdover_base::Duration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    time.as_nanos().serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_nanos)
}

/// As above, for `Option<Duration>`.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer};

    // Serde gives a reference to the field.
    #[allow(clippy::ref_option)]
    pub(crate) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        time.map(Duration::as_nanos).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Option::<u64>::deserialize(from).map(|nanos| nanos.map(Duration::from_nanos))
    }
}
