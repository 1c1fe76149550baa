//! Lists of ids in JSON. The parser checks each id while it reads the list, and stops at the first
//! invalid one. So a long list of invalid ids takes no more memory than its text.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};

/// A list of ids of one kind.
#[derive(Debug)]
pub(super) struct IdListBody<T>(pub(super) Vec<T>);

impl<T> Default for IdListBody<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

struct IdListVisitor<T>(PhantomData<T>);

/// One id of the list.
struct ParsedId<T>(T);

impl<'de, T: FromStr> Deserialize<'de> for ParsedId<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct IdTextVisitor<T>(PhantomData<T>);
        impl<T: FromStr> Visitor<'_> for IdTextVisitor<T> {
            type Value = ParsedId<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id of 64 hexadecimal digits")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ParsedId<T>, E> {
                text.parse().map(ParsedId).map_err(|_| E::custom("not all strings are ids"))
            }
        }
        from.deserialize_str(IdTextVisitor(PhantomData))
    }
}

impl<'de, T: FromStr> Visitor<'de> for IdListVisitor<T> {
    type Value = IdListBody<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<IdListBody<T>, A::Error> {
        let mut ids = Vec::new();
        while let Some(ParsedId(id)) = list.next_element()? {
            ids.push(id);
        }
        Ok(IdListBody(ids))
    }
}

impl<'de, T: FromStr> Deserialize<'de> for IdListBody<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(IdListVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use snap_core::base::id::ObjectId;

    use super::*;

    #[test]
    fn malformed_id_lists_are_refused() {
        let id = "5f".repeat(32);
        let read =
            |text: &str| serde_json::from_str::<IdListBody<ObjectId>>(text).map(|ids| ids.0.len());
        assert_eq!(read("[]").unwrap(), 0);
        assert_eq!(read(&format!("[\"{id}\",\"{id}\"]")).unwrap(), 2);
        for wrong in ["[\"\"]", "[1]", "{}", &format!("[\"{id}\",\"{}\"]", &id[1..])] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
