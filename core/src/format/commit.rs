//! Commits: the encoding of snapshots.
//!
//! A commit's id is the BLAKE3 of these bytes in derive-key mode.
//!
//! | field    | form                   | meaning                                  |
//! |----------|------------------------|------------------------------------------|
//! | version  | u8                     | 3                                        |
//! | tree     | 32                     | root tree                                |
//! | parents  | varint count, 32 each  | in the order given, none twice           |
//! | time     | zigzag secs, varint ns | UTC                                      |
//! | author   | text                   | who                                      |
//! | host     | text                   | where                                    |
//! | message  | text                   | why; may be empty                        |
//! | labels   | varint count, text × 2 | key and value, keys strictly increasing  |
//! | root     | u8, then metadata      | 1 and the root folder's own, or 0        |
//! | files    | varint                 | regular files below the root             |
//! | folders  | varint                 | folders below the root                   |
//! | others   | varint                 | everything else below the root           |
//! | bytes    | varint                 | sum of the sizes of the files            |
//! | selection | see [`selection`](crate::format::selection) | which files it could have contained |
//!
//! A text is a varint length and UTF-8. The metadata of the root has the form of a tree entry's
//! metadata, see [`tree`](crate::format::tree).

use std::collections::BTreeMap;

use crate::{
    base::{
        id::{CommitId, TreeId},
        limits,
        time::Time,
    },
    format::{
        selection::Selection,
        tree::{Metadata, Totals},
        wire::{FormatError, WireReader, WireWriter},
    },
};

/// The version.
pub const VERSION: u8 = 3;

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Id of the root tree.
    pub tree: TreeId,
    /// The parents. The first parent is the previous commit of the branch.
    pub parents: Vec<CommitId>,
    /// Time of the commit, from the clock or from the user. May be earlier than the time of a
    /// parent: only the parent ids define the order.
    pub time: Time,
    pub author: String,
    /// Name of the machine.
    pub host: String,
    /// The message; may be empty.
    pub message: String,
    /// Labels: keys and values.
    pub labels: BTreeMap<String, String>,
    /// Metadata of the root folder, if a single folder was committed.
    pub root: Option<Metadata>,
    /// Totals of everything below the root.
    pub totals: Totals,
    /// The files that the commit could have contained.
    pub selection: Selection,
}

impl Commit {
    /// Encodes the commit.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = WireWriter::new();
        w.u8(VERSION);
        w.raw(self.tree.as_bytes());
        w.varint(self.parents.len() as u64);
        for parent in &self.parents {
            w.raw(parent.as_bytes());
        }
        w.zigzag(self.time.secs);
        w.varint(u64::from(self.time.nanos));
        w.bytes(self.author.as_bytes());
        w.bytes(self.host.as_bytes());
        w.bytes(self.message.as_bytes());
        w.varint(self.labels.len() as u64);
        for (key, value) in &self.labels {
            w.bytes(key.as_bytes());
            w.bytes(value.as_bytes());
        }
        w.u8(u8::from(self.root.is_some()));
        if let Some(root) = &self.root {
            root.encode(&mut w);
        }
        self.totals.encode(&mut w);
        self.selection.encode(&mut w);
        w.finish()
    }

    /// Decodes a commit.
    ///
    /// Does **not** compare the hash of `bytes` with the expected id.
    ///
    /// # Errors
    /// [`FormatError`] names the rule and the offset.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let limit = limits::COMMIT_BYTES as u64;
        FormatError::check_limit("commit bytes", bytes.len() as u64, limit)?;
        let mut r = WireReader::new(bytes);
        FormatError::check_version("commit", r.u8("commit version")?, VERSION)?;
        let tree = TreeId::from_bytes(r.digest("commit tree")?);
        let parents = decode_parents(&mut r)?;
        let time = decode_time(&mut r)?;
        let text =
            |r: &mut WireReader<'_>, what| r.text(what, limits::COMMIT_BYTES).map(str::to_owned);
        let author = text(&mut r, "commit author")?;
        let host = text(&mut r, "commit host")?;
        let message = text(&mut r, "commit message")?;
        let labels = decode_labels(&mut r)?;
        let at = r.at();
        let root = match r.u8("commit root")? {
            0 => None,
            1 => Some(Metadata::decode(&mut r)?),
            _ => return Err(FormatError::Invalid { what: "commit root", at }),
        };
        let totals = Totals::decode(&mut r)?;
        let selection = Selection::decode(&mut r)?;
        r.finish()?;
        Ok(Self { tree, parents, time, author, host, message, labels, root, totals, selection })
    }
}

fn decode_parents(r: &mut WireReader<'_>) -> Result<Vec<CommitId>, FormatError> {
    let count = r.count("commit parents", limits::PARENTS)?;
    let mut parents = Vec::with_capacity(count);
    for _ in 0..count {
        let at = r.at();
        let parent = CommitId::from_bytes(r.digest("commit parent")?);
        if parents.contains(&parent) {
            return Err(FormatError::Invalid { what: "commit parent (twice)", at });
        }
        parents.push(parent);
    }
    Ok(parents)
}

/// Reads seconds and nanoseconds.
pub(crate) fn decode_time(r: &mut WireReader<'_>) -> Result<Time, FormatError> {
    let secs = r.zigzag("time")?;
    let at = r.at();
    match r.varint_u32("nanoseconds")? {
        nanos @ 0..=999_999_999 => Ok(Time { secs, nanos }),
        _ => Err(FormatError::Invalid { what: "nanoseconds", at }),
    }
}

fn decode_labels(r: &mut WireReader<'_>) -> Result<BTreeMap<String, String>, FormatError> {
    let count = r.count("commit labels", limits::LABELS)?;
    let mut labels = BTreeMap::new();
    for _ in 0..count {
        let at = r.at();
        let key = r.text("label key", limits::COMMIT_BYTES)?;
        let value = r.text("label value", limits::COMMIT_BYTES)?;
        if labels.last_key_value().is_some_and(|(last, _): (&String, _)| last.as_str() >= key) {
            return Err(FormatError::Order { what: "labels", at });
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}
