//! A serde deserializer for [`Node`] whose errors carry the path of the field.

use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::problem::{Problem, Under};
use crate::tree::{Entry, Node, Value};

impl<'de> de::Deserializer<'de> for &'de Node {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match &self.value {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(value) => visitor.visit_bool(*value),
            Value::Datetime(text) => {
                Err(de::Error::invalid_type(de::Unexpected::Other(&format!("the date {text}")), &visitor))
            }
            Value::Array(list) => visitor.visit_seq(Elements { rest: list.iter().enumerate(), len: list.len() }),
            Value::Table(entries) => visitor.visit_map(Fields { rest: entries.iter(), value: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

struct Elements<'de> {
    rest: core::iter::Enumerate<core::slice::Iter<'de, Node>>,
    len: usize,
}

impl<'de> de::SeqAccess<'de> for Elements<'de> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        let Some((index, node)) = self.rest.next() else { return Ok(None) };
        seed.deserialize(node).map(Some).under_index(index)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.len)
    }
}

struct Fields<'de> {
    rest: core::slice::Iter<'de, Entry>,
    value: Option<&'de Entry>,
}

impl<'de> de::MapAccess<'de> for Fields<'de> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        let Some(entry) = self.rest.next() else { return Ok(None) };
        self.value = Some(entry);
        let key: de::value::StrDeserializer<'_, Problem> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|problem| problem.under(&entry.key).at_key())
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Problem> {
        match self.value.take() {
            Some(entry) => seed.deserialize(&entry.node).under(&entry.key),
            None => Err(de::Error::custom("a value was asked for before its key")),
        }
    }
}
