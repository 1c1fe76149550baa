//! One object: its bytes, its ETag and its time.

use std::{ops::Range, time::SystemTime};

use bytes::{Bytes, BytesMut};
use s3s::{
    crypto::{Checksum, Md5},
    dto::ETag,
};

/// Length of the pieces in which an object is sent.
const PIECE_BYTES: usize = 1 << 20;

/// An object. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Object {
    /// The bytes, in the parts in which they were uploaded, so that completing an upload copies
    /// nothing.
    parts: Vec<Bytes>,
    /// The ETag, without quotes. It does not change when the bytes are damaged.
    tag: String,
    /// The time of the write.
    pub(super) modified: SystemTime,
}

impl Object {
    /// Creates an object from one piece. Its ETag is the MD5 of the bytes.
    pub(super) fn new(bytes: Bytes) -> Self {
        let tag = md5_hex(&bytes);
        Self { parts: vec![bytes], tag, modified: SystemTime::now() }
    }

    /// Creates an object from parts. Its ETag is the MD5 of their MD5s.
    pub(super) fn from_parts(parts: &[Self]) -> Self {
        let digests: Vec<u8> =
            parts.iter().filter_map(|part| hex::decode(&part.tag).ok()).flatten().collect();
        Self {
            parts: parts.iter().flat_map(|part| part.parts.iter().cloned()).collect(),
            tag: format!("{}-{}", md5_hex(&digests), parts.len()),
            modified: SystemTime::now(),
        }
    }

    /// Returns the same object with other bytes, as if its disk had failed.
    pub(super) fn damaged(&self, bytes: Bytes) -> Self {
        Self { parts: vec![bytes], tag: self.tag.clone(), modified: self.modified }
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }

    /// Returns the ETag.
    pub(super) fn tag(&self) -> ETag {
        ETag::Strong(self.tag.clone())
    }

    /// Returns all bytes.
    pub(super) fn bytes(&self) -> Bytes {
        if let [only] = self.parts.as_slice() {
            return only.clone();
        }
        let mut all = BytesMut::with_capacity(self.len() as usize);
        for part in &self.parts {
            all.extend_from_slice(part);
        }
        all.freeze()
    }

    /// Returns the bytes of a range within the object, in pieces.
    pub(super) fn pieces(&self, range: Range<u64>) -> Vec<Bytes> {
        let (mut at, mut pieces) = (0, Vec::new());
        for part in &self.parts {
            let end = at + part.len() as u64;
            let (from, to) = (range.start.clamp(at, end), range.end.clamp(at, end));
            let mut wanted = part.slice((from - at) as usize..(to - at) as usize);
            while !wanted.is_empty() {
                pieces.push(wanted.split_to(wanted.len().min(PIECE_BYTES)));
            }
            at = end;
        }
        pieces
    }
}

/// Returns the MD5 in hex.
fn md5_hex(bytes: &[u8]) -> String {
    hex::encode(md5(bytes))
}

/// Returns the MD5, which ETags and `Content-MD5` of S3 use.
pub(super) fn md5(bytes: &[u8]) -> Vec<u8> {
    let mut hasher = Md5::new();
    hasher.update(bytes);
    hasher.finalize().to_vec()
}
