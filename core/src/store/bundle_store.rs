//! A read-only store on a bundle file.
//!
//! Opening a bundle builds the index of its objects: in memory for a small bundle, in a temporary
//! scratch folder for a large bundle.

use std::path::Path;

use crate::{
    base::{
        id::PackId,
        limits,
        observe::{Observer, Phase},
    },
    disk::{Disk, scratch::Scratch},
    format::bundle::BundleHead,
    store::{
        Store, StoreError,
        bundle::{BundleError, PackSpan, read_outline},
        catalog::{Catalog, StorePaths},
        pack_reader::{Completeness, PackFile},
        segment,
    },
};

/// An open bundle: its head, and a store with its objects.
#[derive(Debug)]
pub struct BundleStore {
    head: BundleHead,
    store: Store,
    // Fields drop in this order: first the store, then the folder with its index.
    _scratch: Option<Scratch>,
}

impl BundleStore {
    /// Opens the bundle at `path`. Writes the index of a large bundle to a new folder in `scratch`.
    ///
    /// Checked: lengths and footers of all packs, and the totals in the head. **Not** checked: the
    /// objects, which the store checks on each read.
    ///
    /// # Errors
    /// [`BundleError`], and [`BundleError::Incomplete`] for a bundle with
    /// prerequisites.
    pub fn open(path: &Path, scratch: &Path, observer: &dyn Observer) -> Result<Self, BundleError> {
        let (head, _) = read_outline(path)?;
        match head.prerequisites.is_empty() {
            true => Self::open_incomplete(path, scratch, observer),
            false => Err(BundleError::Incomplete { missing: head.prerequisites }),
        }
    }

    /// Like [`BundleStore::open`], but also accepts a bundle with prerequisites, which may lack
    /// objects of its prerequisites.
    ///
    /// # Errors
    /// As [`BundleStore::open`].
    pub fn open_incomplete(
        path: &Path,
        scratch: &Path,
        observer: &dyn Observer,
    ) -> Result<Self, BundleError> {
        let (head, spans) = read_outline(path)?;
        let disk = Disk::scratch();
        let scratch = match head.objects > limits::BUNDLE_INDEX_OBJECTS {
            true => Some(Scratch::create(scratch)?),
            false => None,
        };
        let mut layout = StorePaths::of(scratch.as_ref().map_or(path, Scratch::path));
        match scratch {
            Some(_) => Store::create(&layout.dir, &disk)?,
            None => layout.is_read_only = true,
        }
        observer.phase(Phase::Index, Some(spans.len() as u64));
        let store = Store::new(layout, disk, Catalog::default(), true);
        let (mut objects, mut bytes) = (0, 0);
        for (number, span) in spans.into_iter().enumerate() {
            let (more, raw_bytes) = add_pack(&store, path, number, span)
                .map_err(|source| BundleError::Pack { at: span.start, source })?;
            objects += more;
            bytes += raw_bytes;
            if objects > head.objects {
                break;
            }
            if scratch.is_some() {
                store.merge_segments();
            }
            observer.advance(1, 0);
        }
        head.check_totals(objects, bytes)?;
        Ok(Self { head, store, _scratch: scratch })
    }

    /// Returns the head of the bundle: its commit, prerequisites and totals.
    pub fn head(&self) -> &BundleHead {
        &self.head
    }

    /// Returns the store with the bundle's objects.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// Indexes a pack of the bundle. Returns the number of its objects and the sum of their raw bytes.
fn add_pack(
    store: &Store,
    path: &Path,
    number: usize,
    span: PackSpan,
) -> Result<(u64, u64), StoreError> {
    // Use the position of the pack as its id. The real id is the hash of all bytes of the pack,
    // which would take a read of the whole bundle.
    let mut name = [0; 32];
    name[..8].copy_from_slice(&(number as u64).to_be_bytes());
    let id = PackId::from_bytes(name);
    let pack = PackFile::open_at(path, id, Some(span))?;
    let objects = pack.objects()?;
    let raw_bytes = objects.iter().map(|object| u64::from(object.bytes)).sum();
    let records = segment::records(0, pack.frames(), &objects);
    let (layout, disk) = (store.layout(), store.disk());
    store.change_catalog(|catalog| {
        catalog.add_pack(id, path.to_owned(), Some(span), Completeness::Whole);
        catalog.add_records(layout, disk, vec![id], records);
        if !layout.is_read_only {
            catalog.sort_segments(layout, disk);
        }
    });
    Ok((objects.len() as u64, raw_bytes))
}
