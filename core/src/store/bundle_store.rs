//! A bundle file that is read in place, as a store.
//!
//! Its index is made when it is opened: in memory for a small bundle, in a
//! scratch folder, which goes again, for a large one.

use std::path::Path;

use crate::{
    base::{
        id::PackId,
        limits,
        observe::{Observer, Phase},
    },
    disk::{Disk, scratch::Scratch},
    format::bundle::Head,
    store::{
        Store, StoreError,
        bundle::{BundleError, Span, read_outline},
        catalog::{Catalog, Layout},
        objects::Origin,
        pack_reader::PackFile,
        segment,
    },
};

/// A bundle and what is in it.
#[derive(Debug)]
pub struct BundleStore {
    head: Head,
    store: Store,
    // Dropped after the store, whose index is in it.
    _scratch: Option<Scratch>,
}

impl BundleStore {
    /// Opens the bundle at `path`. The index of a large one is written to a
    /// folder of its own in `scratch`.
    ///
    /// Checked: lengths and footers of all packs, and what the head says of
    /// them. **Not** checked: objects, until they are read.
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

    /// The same for a bundle that may lack what its prerequisites have.
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
        let layout = Layout::of(scratch.as_ref().map_or(path, Scratch::path));
        if scratch.is_some() {
            Store::create(&layout.dir, &disk)?;
        }
        observer.phase(Phase::Index, Some(spans.len() as u64));
        let store = Store::new(layout, disk, Catalog::default(), Origin::Bundle);
        let (mut objects, mut bytes) = (0, 0);
        for (number, span) in spans.into_iter().enumerate() {
            let (more, raw_bytes) = add_pack(&store, path, (number, span), scratch.is_some())
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

    /// What the bundle says of itself.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Its objects.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// Indexes a pack of the bundle. Returns how many objects and bytes it has.
fn add_pack(
    store: &Store,
    path: &Path,
    (number, span): (usize, Span),
    on_disk: bool,
) -> Result<(u64, u64), StoreError> {
    // Its own name would have to be hashed from all its bytes; here it only
    // has to be another for each pack.
    let mut name = [0; 32];
    name[..8].copy_from_slice(&(number as u64).to_be_bytes());
    let id = PackId::from_bytes(name);
    let pack = PackFile::open_at(path, id, Some(span))?;
    let objects = pack.objects()?;
    let raw_bytes = objects.iter().map(|object| u64::from(object.bytes)).sum();
    let records = segment::records(0, pack.frames(), &objects);
    let place = (id, path.to_owned(), span);
    let (layout, disk) = (store.layout().clone(), store.disk().clone());
    store.change_catalog(|before| {
        let mut catalog = before.copy();
        catalog.add_inside(place, records, on_disk.then_some((&layout, &disk)));
        (catalog, ())
    });
    Ok((objects.len() as u64, raw_bytes))
}
