//! Compares files with a folder of the previous commit, and counts the differences.

use std::{collections::HashMap, ops::AddAssign};

use crate::{
    base::{
        id::{ContentId, TreeId},
        observe::Observer,
    },
    format::tree::{Entry, EntryKind, split::EncodedFolder},
    local::scan::FileKind,
    ops::diff::{self, Change, ComparedKind, DiffOptions, New},
    store::{Entries, ObjectWriter, Store, StoreError},
};

/// Counts how the files of a commit differ from the previous commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileChanges {
    /// Files that the previous commit does not have.
    pub added: u64,
    /// Files whose content differs from the previous commit.
    pub modified: u64,
    /// Files with the same content as in the previous commit.
    pub unmodified: u64,
    /// Files of the previous commit that do not exist any more.
    pub deleted: u64,
    /// Files of the previous commit that the ignore rules exclude now.
    pub ignored: u64,
}

impl AddAssign for FileChanges {
    fn add_assign(&mut self, more: Self) {
        self.added += more.added;
        self.modified += more.modified;
        self.unmodified += more.unmodified;
        self.deleted += more.deleted;
        self.ignored += more.ignored;
    }
}

impl FileChanges {
    /// Compares a stored folder with the folder `previous`. A damaged folder counts as empty.
    pub(super) fn between(
        store: &Store,
        previous: Option<TreeId>,
        now: &EncodedFolder,
        observer: &dyn Observer,
    ) -> Self {
        let files = now.totals.files;
        let all_added = Self { added: files, ..Self::default() };
        match previous {
            None => all_added,
            Some(previous) if previous == now.id => Self { unmodified: files, ..Self::default() },
            Some(previous) => {
                let options = DiffOptions::without_renames();
                let mut changes = Self::default();
                let mut count = |change: Change| {
                    changes.count(&change);
                    Ok(())
                };
                let new = New::Tree(Some(now.id));
                if diff::run(store, Some(previous), &new, &options, observer, &mut count).is_err() {
                    return all_added;
                }
                changes.unmodified = files.saturating_sub(changes.added + changes.modified);
                changes
            }
        }
    }

    fn count(&mut self, change: &Change) {
        let is_file = |side: &Option<diff::ChangeSide>| {
            side.as_ref().is_some_and(|side| matches!(side.what, ComparedKind::File { .. }))
        };
        match (is_file(&change.old), is_file(&change.new)) {
            (false, true) => self.added += 1,
            (true, false) => self.deleted += 1,
            (true, true) => self.modified += u64::from(change.differences().content),
            (false, false) => {}
        }
    }
}

/// Files and folders of a folder in the previous commit.
#[derive(Debug, Default)]
pub(super) struct Previous(HashMap<Box<[u8]>, EntryKind>);

impl Previous {
    /// Reads a folder's entries. A damaged tree is shadowed, so that this commit stores
    /// it again.
    pub(super) fn read(writer: &ObjectWriter<'_>, tree: TreeId) -> Option<Self> {
        match Self::entries(writer.store(), tree) {
            Ok(previous) => Some(previous),
            Err(error) => {
                let _ = writer.shadow_damage(&error);
                None
            }
        }
    }

    fn entries(store: &Store, tree: TreeId) -> Result<Self, StoreError> {
        let mut previous = Self::default();
        for entry in Entries::of(store, tree) {
            let Entry { name, kind, .. } = entry?;
            if matches!(kind, EntryKind::File { .. } | EntryKind::Folder { .. }) {
                previous.0.insert(name.as_bytes().into(), kind);
            }
        }
        Ok(previous)
    }

    /// Returns the tree of the folder with this name.
    pub(super) fn folder(&self, name: &[u8]) -> Option<TreeId> {
        self.0.get(name)?.tree()
    }

    /// Compares a file with the previous commit.
    pub(super) fn compare(&self, name: &[u8], id: &ContentId) -> FileChanges {
        let (added, modified, unmodified) = match self.0.get(name) {
            Some(EntryKind::File { id: before, .. }) if before == id => (0, 0, 1),
            Some(EntryKind::File { .. }) => (0, 1, 0),
            _ => (1, 0, 0),
        };
        FileChanges { added, modified, unmodified, ..FileChanges::default() }
    }

    /// Returns the number of files and folders.
    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Returns the name of each file and folder that `has` declines, and how many files the commit
    /// loses with it. A damaged folder counts as empty.
    pub(super) fn missing<'p>(
        &'p self,
        store: &'p Store,
        has: impl Fn(&[u8], FileKind) -> bool + 'p,
    ) -> impl Iterator<Item = (&'p [u8], u64)> {
        let kind_of = |kind: &EntryKind| match kind.tree() {
            Some(_) => FileKind::Folder,
            None => FileKind::File,
        };
        let missing = self.0.iter().filter(move |(name, kind)| !has(name, kind_of(kind)));
        missing.map(|(name, kind)| (&**name, kind.tree().map_or(1, |tree| files_in(store, tree))))
    }
}

/// Returns the number of files in a stored folder, or 0 if it is damaged.
pub(super) fn files_in(store: &Store, tree: TreeId) -> u64 {
    store.tree(&tree).map_or(0, |tree| tree.totals().files)
}
