//! Checks of an entry before it is encoded.
//!
//! [`Node::decode`](super::Node::decode) enforces the same rules. An entry that breaks a rule would
//! make its whole folder unreadable, and thus every commit that contains the folder.

use crate::{
    base::limits,
    format::{
        tree::{Entry, EntryKind, Metadata, Owner, Xattr},
        wire::{FormatError, WireWriter},
    },
};

/// Bytes that the encoded number of attributes may take in addition to the attributes.
pub(super) const XATTR_COUNT_BYTES: usize = 8;

impl Entry {
    /// Checks that readers accept the entry, as
    /// [`FolderEncoder::push`](super::split::FolderEncoder::push) does.
    ///
    /// # Errors
    /// [`FormatError`] names the rule that the entry breaks.
    pub fn check(&self) -> Result<(), FormatError> {
        if let EntryKind::Symlink { target } = &self.kind {
            check_target(target)?;
        }
        self.metadata.check()
    }
}

impl Metadata {
    /// Checks that readers accept the metadata.
    ///
    /// # Errors
    /// [`FormatError`] names the rule that the metadata breaks.
    pub fn check(&self) -> Result<(), FormatError> {
        if self.mode > 0o7777 {
            return Err(FormatError::Invalid { what: "mode", at: 0 });
        }
        if self.mtime.is_some_and(|mtime| mtime.nanos > 999_999_999) {
            return Err(FormatError::Invalid { what: "nanoseconds", at: 0 });
        }
        if let Some(Owner { user, group, .. }) = self.owner.as_deref() {
            check_limit("user name", user.len(), limits::NAME_BYTES)?;
            check_limit("group name", group.len(), limits::NAME_BYTES)?;
        }
        check_xattrs(&self.xattrs)
    }
}

/// Checks the target of a symlink.
///
/// # Errors
/// [`FormatError`] names the rule that the target breaks.
pub fn check_target(target: &[u8]) -> Result<(), FormatError> {
    if target.is_empty() || target.contains(&0) {
        return Err(FormatError::Invalid { what: "symlink target", at: 0 });
    }
    check_limit("symlink target", target.len(), limits::SYMLINK_BYTES)
}

/// Checks extended attributes, which must be sorted by name.
///
/// # Errors
/// [`FormatError`] names the rule that the attributes break.
pub fn check_xattrs(xattrs: &[Xattr]) -> Result<(), FormatError> {
    check_limit("number of extended attributes", xattrs.len(), limits::XATTRS)?;
    let mut bytes = varint_bytes(xattrs.len());
    let mut last: Option<&Xattr> = None;
    for xattr in xattrs {
        if xattr.name.is_empty() || xattr.name.contains(&0) {
            return Err(FormatError::Invalid { what: "xattr name", at: 0 });
        }
        if last.is_some_and(|last| last.name >= xattr.name) {
            return Err(FormatError::Order { what: "xattrs", at: 0 });
        }
        check_limit("xattr name", xattr.name.len(), limits::NAME_BYTES)?;
        check_limit("xattr value", xattr.value.len(), limits::XATTR_TOTAL_BYTES)?;
        bytes += xattr_bytes(xattr);
        last = Some(xattr);
    }
    check_limit("size of extended attributes", bytes, limits::XATTR_TOTAL_BYTES + XATTR_COUNT_BYTES)
}

/// Returns the encoded length of an attribute in bytes.
pub fn xattr_bytes(Xattr { name, value }: &Xattr) -> usize {
    varint_bytes(name.len()) + name.len() + varint_bytes(value.len()) + value.len()
}

fn varint_bytes(number: usize) -> usize {
    let mut w = WireWriter::new();
    w.varint(number as u64);
    w.len()
}

fn check_limit(what: &'static str, found: usize, limit: usize) -> Result<(), FormatError> {
    FormatError::check_limit(what, found as u64, limit as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        base::{id::BlobId, name::EntryName, time::Time},
        format::tree::{Node, Totals, split::FolderEncoder},
    };

    fn entry(kind: EntryKind, metadata: Metadata) -> Entry {
        Entry { name: EntryName::new(b"entry").unwrap(), kind, metadata }
    }

    fn file(metadata: Metadata) -> Entry {
        entry(EntryKind::File { size: 1, id: BlobId::of(b"x").into() }, metadata)
    }

    fn symlink(bytes: usize) -> Entry {
        let target = vec![b't'; bytes].into();
        entry(EntryKind::Symlink { target }, Metadata::default())
    }

    fn xattrs(count: usize, name_bytes: usize, value_bytes: usize) -> Entry {
        let name = |number| format!("user.{number:0width$}", width = name_bytes - 5);
        let value = vec![b'v'; value_bytes];
        let all = (0..count)
            .map(|number| Xattr { name: name(number).into_bytes().into(), value: (*value).into() });
        file(Metadata { xattrs: all.collect(), ..Metadata::default() })
    }

    fn owned(user: usize, group: usize) -> Entry {
        let name = |bytes| vec![b'n'; bytes].into();
        let owner = Owner { uid: 1, gid: 2, user: name(user), group: name(group) };
        file(Metadata { owner: Some(Arc::new(owner)), ..Metadata::default() })
    }

    /// Returns two results: true if the encoder accepts the entry, and true if the decoder accepts
    /// the entry from an encoder that does not check it.
    fn taken(entry: &Entry) -> (bool, bool) {
        let mut put = |_, _| Ok::<_, FormatError>(());
        let pushed = FolderEncoder::new().push(entry.clone(), &Totals::default(), &mut put);
        let mut totals = Totals::default();
        totals.count(&entry.kind);
        let leaf = Node::Leaf { totals, entries: vec![entry.clone()] };
        let back = Node::decode(&leaf.encode());
        if let Ok(node) = &back {
            assert_eq!(*node, leaf);
        }
        (pushed.is_ok(), back.is_ok())
    }

    #[test]
    fn the_encoder_accepts_values_up_to_their_limits() {
        // One attribute with a name of ten bytes. The two length fields take 1 and 3 bytes.
        let most = limits::XATTR_TOTAL_BYTES + XATTR_COUNT_BYTES - 1 - (1 + 10) - 3;
        let at: [(Entry, Entry); 7] = [
            (symlink(limits::SYMLINK_BYTES), symlink(limits::SYMLINK_BYTES + 1)),
            (symlink(1), symlink(0)),
            (xattrs(limits::XATTRS, 10, 1), xattrs(limits::XATTRS + 1, 10, 1)),
            (xattrs(1, limits::NAME_BYTES, 1), xattrs(1, limits::NAME_BYTES + 1, 1)),
            (xattrs(1, 10, most), xattrs(1, 10, most + 1)),
            (owned(limits::NAME_BYTES, 0), owned(limits::NAME_BYTES + 1, 0)),
            (owned(0, limits::NAME_BYTES), owned(0, limits::NAME_BYTES + 1)),
        ];
        for (number, (within, past)) in at.iter().enumerate() {
            assert_eq!(taken(within), (true, true), "limit {number}");
            assert_eq!(taken(past), (false, false), "past limit {number}");
        }
        let time =
            |nanos| file(Metadata { mtime: Some(Time { secs: 0, nanos }), ..Metadata::default() });
        assert_eq!(taken(&time(999_999_999)), (true, true));
        assert_eq!(taken(&time(1_000_000_000)), (false, false));
        let mode = |mode| file(Metadata { mode, ..Metadata::default() });
        assert_eq!(taken(&mode(0o7777)), (true, true));
        assert_eq!(taken(&mode(0o10_000)), (false, false));
    }

    fn near(limit: usize) -> impl Strategy<Value = usize> {
        prop_oneof![Just(1), limit - 2..limit + 3]
    }

    proptest! {
        #![proptest_config(snap_testkit::property::cases(64))]

        #[test]
        fn the_encoder_and_the_decoder_accept_the_same_entries(
            target in near(limits::SYMLINK_BYTES),
            names in (near(limits::NAME_BYTES), near(limits::NAME_BYTES)),
            count in near(limits::XATTRS),
            value in prop_oneof![0..4_usize, 250..262_usize],
            total in near(limits::XATTR_TOTAL_BYTES - 16),
        ) {
            let entries = [
                symlink(target),
                owned(names.0, names.1),
                xattrs(count, 10, value),
                xattrs(1, 10, total),
                xattrs(1, names.0.max(6), 1),
            ];
            for entry in entries {
                let (encoder, decoder) = taken(&entry);
                prop_assert_eq!(encoder, decoder);
            }
        }
    }
}
