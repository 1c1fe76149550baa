//! Typed ids: a BLAKE3-256 digest whose type says what it names.
//!
//! There is no conversion between two kinds of id, so passing a tree id where a commit id is
//! expected does not compile. The store finds objects by [`ObjectId`], which is the digest without
//! its kind. [`Id::object`] converts a typed id to an [`ObjectId`], and [`Id::from_object`]
//! converts back.
//!
//! Text form: 64 lower-case hex digits; `{id:.12}` prints the first twelve.
//! Stored form: the 32 digest bytes.
//!
//! | id          | digest                                              |
//! |-------------|-----------------------------------------------------|
//! | [`BlobId`]  | plain BLAKE3 of the content, what `b3sum` prints     |
//! | [`TreeId`]  | BLAKE3 in derive-key mode, context [`TREE_CONTEXT`]  |
//! | [`CommitId`]| BLAKE3 in derive-key mode, context [`COMMIT_CONTEXT`]|
//! | [`ChunkListId`] | BLAKE3 in derive-key mode, context [`CHUNK_LIST_CONTEXT`] |
//! | [`ListPartId`] | BLAKE3 in derive-key mode, context [`LIST_PART_CONTEXT`] |
//! | [`PackId`]  | plain BLAKE3 of the pack file                        |
//!
//! The [link](crate::format::pack::ObjectKind::Link) of a commit has the bytes of the commit. The id
//! of the link is the id of the commit with all bits inverted, so each id proves the other, and the
//! index has both.

use std::{fmt, marker::PhantomData, str::FromStr};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

/// Derive-key context of tree ids.
pub const TREE_CONTEXT: &str = "snap 2026-11-21 tree v1";

/// Derive-key context of commit ids.
pub const COMMIT_CONTEXT: &str = "snap 2026-11-21 commit v1";

/// Derive-key context of the ids of chunk lists.
pub const CHUNK_LIST_CONTEXT: &str = "snap 2026-11-29 chunk list v1";

/// Derive-key context of the ids of the parts of long chunk lists.
pub const LIST_PART_CONTEXT: &str = "snap 2026-11-29 chunk list part v1";

/// A kind of thing that an id can name. Only empty marker types implement it.
pub trait IdKind {
    /// Noun for messages, such as "tree".
    const NOUN: &'static str;
}

/// A digest that names one `K`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id<K> {
    digest: [u8; 32],
    names: PhantomData<K>,
}

macro_rules! named {
    ($marker:ident, $alias:ident, $noun:literal, $doc:literal) => {
        #[doc = concat!("Marker of [`", stringify!($alias), "`].")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $marker {}

        impl IdKind for $marker {
            const NOUN: &'static str = $noun;
        }

        #[doc = $doc]
        pub type $alias = Id<$marker>;
    };
}

named!(Object, ObjectId, "object", "Names an object of any kind: what the index is keyed by.");
named!(
    Blob,
    BlobId,
    "blob",
    "Names a small content or a chunk: plain BLAKE3, as `b3sum` prints it."
);
named!(ChunkList, ChunkListId, "chunk list", "Names the list of the chunks of a large content.");
named!(ListPart, ListPartId, "list part", "Names a part of a long chunk list.");
named!(Tree, TreeId, "tree", "Names one encoded directory.");
named!(Commit, CommitId, "commit", "Names one encoded commit.");
named!(Pack, PackId, "pack", "Names a pack file by the hash of its bytes.");

impl<K> Id<K> {
    /// Wraps a digest from a hasher or from storage.
    pub const fn from_bytes(digest: [u8; 32]) -> Self {
        Self { digest, names: PhantomData }
    }

    /// Returns the digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Returns the same digest without its kind, for a lookup.
    pub const fn object(self) -> ObjectId {
        Id::from_bytes(self.digest)
    }

    /// Converts an object's id to the id of a `K`. Does **not** check that the object is a `K`: the
    /// reader of its bytes does.
    pub const fn from_object(id: ObjectId) -> Self {
        Self::from_bytes(id.digest)
    }
}

impl BlobId {
    /// Hashes a content.
    pub fn of(content: &[u8]) -> Self {
        Self::from_bytes(*blake3::hash(content).as_bytes())
    }
}

impl ChunkListId {
    /// Hashes an encoded chunk list.
    pub fn of(encoded: &[u8]) -> Self {
        Self::from_bytes(blake3::derive_key(CHUNK_LIST_CONTEXT, encoded))
    }
}

impl ListPartId {
    /// Hashes an encoded part of a chunk list.
    pub fn of(encoded: &[u8]) -> Self {
        Self::from_bytes(blake3::derive_key(LIST_PART_CONTEXT, encoded))
    }
}

/// Names the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentId {
    /// The content is one blob.
    Blob(BlobId),
    /// The content was cut into chunks, which a list names.
    Chunked(ChunkListId),
}

impl ContentId {
    /// Returns the id of the blob or of the list, without its kind.
    pub const fn object(self) -> ObjectId {
        match self {
            Self::Blob(id) => id.object(),
            Self::Chunked(id) => id.object(),
        }
    }

    /// Returns true if the id is that of a chunk list. Only the id of a blob is what `b3sum` prints.
    pub const fn is_chunked(self) -> bool {
        matches!(self, Self::Chunked(_))
    }
}

impl From<BlobId> for ContentId {
    fn from(id: BlobId) -> Self {
        Self::Blob(id)
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.object(), f)
    }
}

impl TreeId {
    /// Hashes an encoded tree.
    pub fn of(encoded: &[u8]) -> Self {
        Self::from_bytes(blake3::derive_key(TREE_CONTEXT, encoded))
    }
}

impl CommitId {
    /// Hashes an encoded commit.
    pub fn of(encoded: &[u8]) -> Self {
        Self::from_bytes(blake3::derive_key(COMMIT_CONTEXT, encoded))
    }

    /// Returns the id of the link of this commit.
    pub fn link(self) -> ObjectId {
        ObjectId::from_bytes(self.digest.map(|byte| !byte))
    }

    /// Returns the commit of a link.
    pub fn of_link(link: ObjectId) -> Self {
        Self::from_bytes(link.digest.map(|byte| !byte))
    }
}

impl<K> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 64];
        hex::encode_to_slice(self.digest, &mut text).map_err(|_| fmt::Error)?;
        f.pad(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl<K: IdKind> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {self:.12}", K::NOUN)
    }
}

impl<K: IdKind> FromStr for Id<K> {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let mut digest = [0; 32];
        match hex::decode_to_slice(text, &mut digest) {
            Ok(()) if !text.bytes().any(|b| b.is_ascii_uppercase()) => Ok(Self::from_bytes(digest)),
            _ => Err(ParseIdError { noun: K::NOUN, text: text.to_owned() }),
        }
    }
}

/// The text form.
impl<K> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The text form. Errors do not repeat it, since it may be long.
impl<'de, K: IdKind> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct IdVisitor<K>(PhantomData<K>);
        impl<K: IdKind> Visitor<'_> for IdVisitor<K> {
            type Value = Id<K>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a {} id of 64 lower-case hex digits", K::NOUN)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id<K>, E> {
                let wrong = || format!("not a {} id: expected 64 lower-case hex digits", K::NOUN);
                text.parse().map_err(|_| E::custom(wrong()))
            }
        }
        from.deserialize_str(IdVisitor(PhantomData))
    }
}

/// The error for text that is not an id.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not a {noun} id: expected 64 lower-case hex digits")]
pub struct ParseIdError {
    noun: &'static str,
    text: String,
}

/// The first hex digits of an id, as users type them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdPrefix {
    digits: String,
    low: [u8; 32],
    high: [u8; 32],
}

impl IdPrefix {
    /// Minimum number of digits. Shorter text is not treated as an id.
    pub const MIN_DIGITS: usize = 4;

    /// Parses 4 to 64 hex digits in either case. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.to_ascii_lowercase();
        let fits = (Self::MIN_DIGITS..=64).contains(&digits.len());
        if !fits || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let bound = |fill: &str| {
            let mut bytes = [0; 32];
            let padded = digits.clone() + &fill.repeat(64 - digits.len());
            hex::decode_to_slice(padded, &mut bytes).ok().map(|()| bytes)
        };
        Some(Self { low: bound("0")?, high: bound("f")?, digits })
    }

    /// Returns the smallest and the largest digest with this prefix.
    pub const fn bounds(&self) -> (&[u8; 32], &[u8; 32]) {
        (&self.low, &self.high)
    }

    /// Returns the digits in lower case.
    pub fn as_str(&self) -> &str {
        &self.digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_id_equals_the_b3sum_output() {
        let id = BlobId::of(b"");
        assert_eq!(
            id.to_string(),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
        assert_eq!(format!("{id:.12}"), "af1349b9f5f9");
        assert_eq!(id.to_string().parse::<BlobId>().unwrap(), id);
    }

    #[test]
    fn objects_of_equal_bytes_and_distinct_kinds_have_distinct_ids() {
        let ids = [
            BlobId::of(b"x").object(),
            ChunkListId::of(b"x").object(),
            ListPartId::of(b"x").object(),
            TreeId::of(b"x").object(),
            CommitId::of(b"x").object(),
        ];
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), ids.len());
    }

    #[test]
    fn malformed_ids_are_refused() {
        for bad in ["", "af13", &"AF".repeat(32), &"zz".repeat(32), &"a".repeat(65)] {
            assert!(bad.parse::<BlobId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_bounds_of_a_prefix_span_its_ids() {
        let prefix = IdPrefix::parse("AB12c").unwrap();
        let (low, high) = prefix.bounds();
        assert_eq!((low[2], high[2]), (0xc0, 0xcf));
        assert!(IdPrefix::parse("abc").is_none());
        assert!(IdPrefix::parse("main").is_none());
    }
}
