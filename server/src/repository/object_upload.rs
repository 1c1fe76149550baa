//! Uploads of a single object. The object becomes a pack of its own. As with any pack,
//! everything that the object refers to must be stored already.

use snap_core::{
    base::{
        id::{BlobId, CommitId, ObjectId},
        limits,
        observe::Silent,
    },
    disk::{Disk, scratch::Scratch},
    format::pack::ObjectKind,
    ops::inbox::{self, accept},
    store::{ObjectLocation, ObjectWriter, Store, actual_id},
};

use super::{Received, Repository};
use crate::problem::{Code, HttpProblem};

/// Maximum length of an object that can be uploaded by itself, in bytes. Longer contents are cut
/// into chunks.
pub const OBJECT_BYTES: u64 = limits::CHUNK_BYTES as u64;

impl Repository {
    /// Looks up an object's place in the index. If the object is unknown, looks for packs that
    /// other processes or other relays of the same upstream have added, and tries again.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store cannot be listed.
    pub fn locate(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, HttpProblem> {
        let store = self.repo.store();
        if let Some(place) = store.locate(id)? {
            return Ok(Some(place));
        }
        self.look_shared()?;
        Ok(store.locate(id)?)
    }

    /// Looks for packs that others have added, to this store and upstream. Ignores an upstream
    /// that does not answer.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store cannot be listed.
    pub fn look_shared(&self) -> Result<(), HttpProblem> {
        if let Some(upstream) = &self.upstream {
            upstream.refresh_packs_shared();
        }
        self.refresh()
    }

    /// Stores one object durably.
    ///
    /// # Errors
    /// [`Code::Rejected`] when the bytes do not match the id, or the object refers to an object
    /// that the store lacks.
    pub fn take_object(
        &self,
        id: &ObjectId,
        kind: ObjectKind,
        bytes: &[u8],
    ) -> Result<Received, HttpProblem> {
        if actual_id(kind, bytes) != *id {
            let why = format!("the bytes are not a {} with this id", kind.noun());
            return Err(HttpProblem::new(Code::Rejected, why));
        }
        let store = self.repo.store();
        if self.locate(id)?.is_some() {
            return self.already_present();
        }
        let scratch = Scratch::create(&store.dir().join("tmp"))?;
        Store::create(scratch.path(), &Disk::scratch())?;
        let own = Store::open(scratch.path(), Disk::scratch(), &Silent)?;
        let writer = ObjectWriter::new(&own, self.repo.config().compression_level, 1)?;
        match kind {
            ObjectKind::Blob if bytes.len() > limits::SMALL_FRAME_BYTES => {
                drop(writer.add_chunks(bytes, &[bytes.len()])?);
            }
            ObjectKind::Blob => drop(writer.add_blob(0, BlobId::of(bytes), bytes)?),
            _ => writer.add_metadata(kind, *id, bytes)?,
        }
        writer.finish()?;
        let packs: Vec<_> = own.packs().into_iter().map(|id| (id, own.pack_path(&id))).collect();
        if let Some(upstream) = &self.upstream {
            // The object may refer to packs that were sent through another relay.
            upstream.refresh_packs()?;
        }
        self.refresh()?;
        let tips: Vec<CommitId> = match &self.upstream {
            Some(_) => self.refs()?.iter().map(|(_, id)| *id).collect(),
            None => inbox::tips(&self.repo)?,
        };
        let prepared = accept::prepare(store, &packs, &tips, &Silent)?;
        let _one_at_a_time = self.staged.publishing()?;
        self.refresh()?;
        self.announce(|| Ok(prepared.adopt(&Silent)?))?;
        self.staged.complete().extend(packs.iter().map(|(id, _)| *id));
        Ok(Received::Added)
    }
}
