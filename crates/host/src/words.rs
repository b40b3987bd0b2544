//! Words of configuration files, and lists of them.

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;
use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

/// Alternatives; a text matches if one of them matches. An empty list matches any text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List<T>(pub Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> List<T> {
    /// Whether the list is empty.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A value that is written as text, or as a bare number.
pub trait Word: FromStr<Err: fmt::Display> + fmt::Display {
    /// The name in the schema.
    const NAME: &'static str;
    /// The accepted values.
    const EXPECTED: &'static str;
    /// Whether a bare number is accepted.
    const MAY_BE_NUMBER: bool;
}

impl<'de, T: Word> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Word> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, or a list of such", T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        read(text).map(|word| List(vec![word]))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        one_number(number).map(|word| List(vec![word]))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        one_number(number).map(|word| List(vec![word]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut words = Vec::new();
        while let Some(Single(word)) = sequence.next_element()? {
            words.push(word);
        }
        if words.is_empty() {
            return Err(de::Error::custom(format!("an empty list matches nothing; expected {}", T::EXPECTED)));
        }
        Ok(List(words))
    }
}

/// An element of a list.
struct Single<T>(T);

impl<'de, T: Word> Deserialize<'de> for Single<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SingleVisitor<T>(PhantomData<T>);

        impl<T: Word> Visitor<'_> for SingleVisitor<T> {
            type Value = Single<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                read(text).map(Single)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                one_number(number).map(Single)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                one_number(number).map(Single)
            }
        }

        deserializer.deserialize_any(SingleVisitor(PhantomData))
    }
}

fn one_number<T: Word, E: de::Error>(number: impl fmt::Display) -> Result<T, E> {
    if T::MAY_BE_NUMBER { read(&number.to_string()) } else { Err(E::custom(format!("expected {}", T::EXPECTED))) }
}

fn read<T: Word, E: de::Error>(text: &str) -> Result<T, E> {
    text.parse().map_err(E::custom)
}

impl<T: Word> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [only] => serializer.collect_str(only),
            all => serializer.collect_seq(all.iter().map(T::to_string)),
        }
    }
}

impl<T: Word> JsonSchema for List<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let kinds: &[&str] = if T::MAY_BE_NUMBER { &["string", "integer"] } else { &["string"] };
        json_schema!({
            "description": format!("{}, or a list of such.", T::EXPECTED),
            "anyOf": [{ "type": kinds }, { "type": "array", "items": { "type": kinds }, "minItems": 1 }]
        })
    }
}
