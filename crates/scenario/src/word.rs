//! Words from a fixed list, and fields that take either a short text or a table.

use core::fmt;
use core::marker::PhantomData;
use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};

/// A type whose values have names.
pub(crate) trait Vocabulary: Copy + PartialEq + fmt::Debug + 'static {
    /// The name in the schema.
    const TITLE: &'static str;
    /// The values.
    const VALUES: &'static [Self];
    /// Their names, in the same order.
    const NAMES: &'static [&'static str];
}

/// Names the values of a type.
macro_rules! vocabulary {
    ($type:ty as $title:literal { $($value:expr => $name:literal),+ $(,)? }) => {
        impl $crate::word::Vocabulary for $type {
            const TITLE: &'static str = $title;
            const VALUES: &'static [Self] = &[$($value),+];
            const NAMES: &'static [&'static str] = &[$($name),+];
        }
    };
}

pub(crate) use vocabulary;

/// A value that is written as its name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Word<T>(pub(crate) T);

impl<T: Vocabulary> Word<T> {
    pub(crate) fn read<E: de::Error>(text: &str) -> Result<Self, E> {
        let at = T::NAMES.iter().position(|name| *name == text);
        at.map(|at| Self(T::VALUES[at])).ok_or_else(|| E::unknown_variant(text, T::NAMES))
    }

    pub(crate) fn name(self) -> &'static str {
        T::VALUES.iter().position(|value| *value == self.0).map_or("", |at| T::NAMES[at])
    }
}

struct WordVisitor<T>(PhantomData<T>);

impl<T: Vocabulary> Visitor<'_> for WordVisitor<T> {
    type Value = Word<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", crate::problem::list_words(T::NAMES))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Word<T>, E> {
        Word::read(text)
    }
}

impl<'de, T: Vocabulary> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(WordVisitor(PhantomData))
    }
}

impl<T: Vocabulary> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<T: Vocabulary> JsonSchema for Word<T> {
    fn schema_name() -> Cow<'static, str> {
        T::TITLE.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": T::NAMES })
    }
}

/// A table that can be written as a text if a single field suffices.
pub(crate) trait Shorthand: Sized {
    /// The text's type.
    type Text: JsonSchema;
    /// The accepted forms, as the continuation of "expected".
    const EXPECTED: &'static str;

    /// The table denoted by the text.
    fn of_text<E: de::Error>(text: &str) -> Result<Self, E>;
    /// The text, if it expresses the whole table.
    fn text(&self) -> Option<String>;
}

/// A [`Shorthand`] in either form.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Short<T>(pub(crate) T);

struct ShortVisitor<T>(PhantomData<T>);

impl<'de, T: Shorthand + Deserialize<'de>> Visitor<'de> for ShortVisitor<T> {
    type Value = Short<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Short<T>, E> {
        T::of_text(text).map(Short)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Short<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Short)
    }
}

impl<'de, T: Shorthand + Deserialize<'de>> Deserialize<'de> for Short<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShortVisitor(PhantomData))
    }
}

impl<T: Shorthand + Serialize> Serialize for Short<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.text() {
            Some(text) => serializer.serialize_str(&text),
            None => self.0.serialize(serializer),
        }
    }
}

impl<T: Shorthand + JsonSchema> JsonSchema for Short<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}OrText", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (text, table) = (generator.subschema_for::<T::Text>(), generator.subschema_for::<T>());
        json_schema!({ "anyOf": [text, table] })
    }
}

/// A value, or `"none"` (or `false`).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct OrNone<T>(pub(crate) Option<T>);

struct OrNoneVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OrNoneVisitor<T> {
    type Value = OrNone<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or \"none\"")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<OrNone<T>, E> {
        if !value {
            return Ok(OrNone(None));
        }
        T::deserialize(de::value::BoolDeserializer::new(value)).map(|value| OrNone(Some(value)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<OrNone<T>, E> {
        T::deserialize(de::value::I64Deserializer::new(value)).map(|value| OrNone(Some(value)))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<OrNone<T>, E> {
        T::deserialize(de::value::F64Deserializer::new(value)).map(|value| OrNone(Some(value)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<OrNone<T>, E> {
        if text == "none" {
            return Ok(OrNone(None));
        }
        T::deserialize(de::value::StrDeserializer::new(text)).map(|value| OrNone(Some(value)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OrNone<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|value| OrNone(Some(value)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrNone<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OrNoneVisitor(PhantomData))
    }
}

impl<T: Serialize> Serialize for OrNone<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str("none"),
        }
    }
}

impl<T: JsonSchema> JsonSchema for OrNone<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}OrNone", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [value, { "enum": ["none", false] }] })
    }
}
