//! What a client knows about the garbage collection of a remote store: the epoch, the table, and
//! which copies of objects must not be relied on.
//!
//! A client decides from the state that it has read itself. Another process may know another epoch,
//! so only the [mirror](super::mirror) as a cache of index files is shared, never this view.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use snap_core::{
    base::id::{CommitId, ObjectId, PackId},
    format::{
        gc_state::{GcState, TableHash},
        gc_table::{GcTable, IndexName},
        ref_text::FIRST_EPOCH,
        wire::FormatError,
    },
};

use super::bucket::index::GROUP;

/// An index file, and the packs that it lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedFile {
    /// The epoch of its writer.
    pub epoch: u64,
    /// Its packs, also those that are going.
    pub packs: BTreeSet<PackId>,
}

/// Index files by name.
pub type IndexedFiles = BTreeMap<String, IndexedFile>;

/// The garbage collection state of a remote store, and its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GcView {
    /// The state.
    pub state: GcState,
    /// The table of the state.
    pub table: GcTable,
}

impl GcView {
    /// Encodes state and table for the mirror.
    pub(super) fn encode(&self) -> Result<Vec<u8>, FormatError> {
        Ok([self.state.encode().into_bytes(), self.table.encode()?].concat())
    }

    /// Decodes what the mirror remembers; `None` if it is damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let end = ends.map(|(at, _)| at + 1).nth(6)?;
        let (state, table) = bytes.split_at(end);
        let state = GcState::decode(state).ok()?;
        (Some(hash_of(table)) == state.table).then_some(())?;
        Some(Self { state, table: GcTable::decode(table).ok()? })
    }
}

/// Returns the name of a table.
pub(super) fn hash_of(table: &[u8]) -> TableHash {
    TableHash::from_bytes(*blake3::hash(table).as_bytes())
}

/// Returns the name of an index file in the table; `None` if it is not a name.
pub(crate) fn index_name(name: &str) -> Option<IndexName> {
    match name.strip_suffix(GROUP) {
        Some(hash) => hash.parse().ok().map(IndexName::Group),
        None => name.parse().ok().map(IndexName::File),
    }
}

/// Returns the epoch that a client knows.
pub(crate) fn epoch_of(view: Option<&GcView>) -> u64 {
    view.map_or(FIRST_EPOCH, |view| view.state.epoch)
}

/// Returns true if a client relies on the packs of an index file.
pub(crate) fn counts(view: Option<&GcView>, name: &str, file: &IndexedFile) -> bool {
    let is_named =
        |view: &GcView| index_name(name).is_some_and(|name| view.table.named.contains(&name));
    file.epoch == epoch_of(view) || view.is_some_and(is_named)
}

/// Copies of objects that must not be relied on.
#[derive(Debug)]
pub struct DeadCopies {
    view: Option<Arc<GcView>>,
    /// Packs that no index file lists that counts.
    uncounted: HashSet<PackId>,
}

impl DeadCopies {
    /// Returns the dead copies in the packs of index files, or `None` if there are none.
    pub(super) fn of(view: Option<Arc<GcView>>, files: &IndexedFiles) -> Option<Self> {
        if view.is_none() && files.values().all(|file| file.epoch == FIRST_EPOCH) {
            return None;
        }
        let (mut uncounted, mut counted) = (HashSet::<PackId>::new(), HashSet::<PackId>::new());
        for (name, file) in files {
            match counts(view.as_deref(), name, file) {
                true => counted.extend(&file.packs),
                false => uncounted.extend(&file.packs),
            }
        }
        uncounted.retain(|pack| !counted.contains(pack));
        Some(Self { view, uncounted })
    }

    /// Returns true if nothing may rely on this copy of an object.
    pub fn contains(&self, pack: &PackId, id: &ObjectId) -> bool {
        let is_dead = |view: &GcView| view.table.is_dead(pack, id);
        self.uncounted.contains(pack) || self.view.as_deref().is_some_and(is_dead)
    }

    /// Returns the commits that the garbage collection lists as forgotten.
    pub fn forgotten(&self) -> impl Iterator<Item = CommitId> {
        self.view.iter().flat_map(|view| view.table.forgotten.iter().copied())
    }

    /// Returns true if any object of a pack may be dead.
    pub fn touches(&self, pack: &PackId) -> bool {
        let is_touched = |view: &GcView| view.table.reserves_name(pack);
        self.uncounted.contains(pack) || self.view.as_deref().is_some_and(is_touched)
    }
}

#[cfg(test)]
mod tests {
    use snap_core::format::{
        gc_state::Phase,
        shadow::{Reason, ShadowedPart},
    };

    use super::*;

    fn pack(n: u8) -> PackId {
        PackId::from_bytes([n; 32])
    }

    fn view() -> GcView {
        let mut table = GcTable::default();
        let objects = ShadowedPart::Objects([ObjectId::from_bytes([7; 32])].into());
        table.shadows.add(pack(1), Reason::Dead, objects);
        table.going.insert(pack(2));
        table.named.insert(IndexName::File(pack(9)));
        let bytes = table.encode().unwrap();
        let nonce = "0123456789abcdef0123456789abcdef".parse().unwrap();
        let state = GcState::first().next(2, Phase::Swept, hash_of(&bytes));
        let state = GcState { epoch_nonce: nonce, nonce, ..state };
        GcView { state, table }
    }

    #[test]
    fn a_view_survives_a_round_trip_and_damage_is_noticed() {
        let bytes = view().encode().unwrap();
        assert_eq!(GcView::decode(&bytes), Some(view()));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert_ne!(GcView::decode(&flipped), Some(view()), "{at}");
            assert_eq!(GcView::decode(&bytes[..at]), None, "{at}");
        }
    }

    #[test]
    fn only_packs_of_counted_files_are_relied_on() {
        let file = |epoch, packs: &[u8]| IndexedFile {
            epoch,
            packs: packs.iter().map(|n| pack(*n)).collect(),
        };
        let files = IndexedFiles::from([
            (pack(9).to_string(), file(0, &[1, 2, 3])),
            (pack(8).to_string(), file(1, &[3, 4])),
            (pack(7).to_string(), file(2, &[5])),
        ]);
        let (view, id) = (view(), ObjectId::from_bytes([8; 32]));
        let dead = DeadCopies::of(Some(view.into()), &files).unwrap();
        let found: Vec<_> = (1..=5).map(|n| dead.contains(&pack(n), &id)).collect();
        assert_eq!(found, [false, true, false, true, false]);
        assert!(dead.contains(&pack(1), &ObjectId::from_bytes([7; 32])));
        assert!(dead.touches(&pack(1)) && !dead.touches(&pack(3)));
        // A client that knows no collection relies on files of the epoch 0 only.
        let dead = DeadCopies::of(None, &files).unwrap();
        let found: Vec<_> = (1..=5).map(|n| dead.contains(&pack(n), &id)).collect();
        assert_eq!(found, [false, false, false, true, true]);
        let first = IndexedFiles::from([(pack(9).to_string(), file(0, &[1]))]);
        assert!(DeadCopies::of(None, &first).is_none());
    }
}
