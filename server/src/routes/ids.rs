//! Lists of ids in JSON. Each is read as what it is, so a list of what are none
//! takes no more memory than the text of it.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};

/// Ids of one kind.
#[derive(Debug)]
pub(super) struct Ids<T>(pub(super) Vec<T>);

impl<T> Default for Ids<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

struct Read<T>(PhantomData<T>);

/// One of them, while it is read.
struct Id<T>(T);

impl<'de, T: FromStr> Deserialize<'de> for Id<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text<T>(PhantomData<T>);
        impl<T: FromStr> Visitor<'_> for Text<T> {
            type Value = Id<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id of 64 hexadecimal digits")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Id<T>, E> {
                text.parse().map(Id).map_err(|_| E::custom("not all are ids"))
            }
        }
        from.deserialize_str(Text(PhantomData))
    }
}

impl<'de, T: FromStr> Visitor<'de> for Read<T> {
    type Value = Ids<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Ids<T>, A::Error> {
        let mut ids = Vec::new();
        while let Some(Id(id)) = list.next_element()? {
            ids.push(id);
        }
        Ok(Ids(ids))
    }
}

impl<'de, T: FromStr> Deserialize<'de> for Ids<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Read(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use snap_core::base::id::ObjectId;

    use super::*;

    #[test]
    fn the_first_that_is_none_ends_it() {
        let id = "5f".repeat(32);
        let read = |text: &str| serde_json::from_str::<Ids<ObjectId>>(text).map(|ids| ids.0.len());
        assert_eq!(read("[]").unwrap(), 0);
        assert_eq!(read(&format!("[\"{id}\",\"{id}\"]")).unwrap(), 2);
        for wrong in ["[\"\"]", "[1]", "{}", &format!("[\"{id}\",\"{}\"]", &id[1..])] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
