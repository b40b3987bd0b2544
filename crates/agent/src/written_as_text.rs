//! Values that configuration files write as text.

/// Implements serde's traits and the JSON schema of types that are parsed from and printed as text: what is expected, and its pattern.
macro_rules! written_as_text {
    ($($name:ident: $expected:ident, $pattern:literal;)*) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(|_| serde::de::Error::invalid_value(serde::de::Unexpected::Str(&text), &$expected))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "description": $expected, "type": "string", "pattern": $pattern })
            }
        }
    )*};
}

pub(crate) use written_as_text;
