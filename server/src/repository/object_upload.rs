//! Uploads of a single object. The object becomes a pack of its own. As with any pack,
//! everything that the object refers to must be stored already.

use snap_core::{
    base::{
        id::{BlobId, ObjectId},
        limits,
        observe::Silent,
    },
    disk::{Disk, scratch::Scratch},
    format::pack::ObjectKind,
    ops::inbox::{self, accept},
    store::{ObjectLocation, ObjectWriter, Store, actual_id},
};

use super::{Received, Repository, RepositoryPacks};
use crate::problem::{Code, HttpProblem};

/// Maximum length of an object that can be uploaded by itself, in bytes. Longer contents are cut
/// into chunks.
pub const OBJECT_BYTES: u64 = limits::CHUNK_BYTES as u64;

impl Repository {
    /// Looks up an object's place in the index. If the object is unknown, looks for packs that
    /// others have added to this store or upstream, and tries again. Ignores an upstream that does not
    /// answer.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store cannot be listed.
    pub fn locate(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, HttpProblem> {
        let store = self.repo.store();
        if let Some(place) = store.locate(id)? {
            return Ok(Some(place));
        }
        if let Some(upstream) = &self.upstream {
            upstream.refresh_packs_shared();
        }
        self.refresh()?;
        Ok(store.locate(id)?)
    }

    /// Reads which packs the store has now; for a cache, those that upstream has.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store cannot be listed, or the upstream does not answer.
    pub fn refresh_for_writer(&self) -> Result<(), HttpProblem> {
        match &self.upstream {
            Some(upstream) => upstream.refresh_packs(),
            None => self.refresh(),
        }
    }
}

impl RepositoryPacks<'_> {
    /// Returns true if an object that a client sends is stored, on a relay upstream.
    fn has_now(&self, id: &ObjectId) -> Result<bool, HttpProblem> {
        self.0.refresh_for_writer()?;
        Ok(self.0.repo.store().locate(id)?.is_some())
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
        let store = self.0.repo.store();
        if self.has_now(id)? {
            return Ok(Received::AlreadyPresent);
        }
        let scratch = Scratch::create(&store.dir().join("tmp"))?;
        Store::create(scratch.path(), &Disk::scratch())?;
        let own = Store::open(scratch.path(), Disk::scratch(), &Silent)?;
        let writer = ObjectWriter::new(&own, self.0.repo.config().compression_level, 1)?;
        match kind {
            ObjectKind::Blob if bytes.len() > limits::SMALL_FRAME_BYTES => {
                drop(writer.add_chunks(bytes, &[bytes.len()])?);
            }
            ObjectKind::Blob => drop(writer.add_blob(0, BlobId::of(bytes), bytes)?),
            _ => writer.add_metadata(kind, *id, bytes)?,
        }
        writer.finish()?;
        let packs: Vec<_> = own.packs().into_iter().map(|id| (id, own.pack_path(&id))).collect();
        if let Some(upstream) = &self.0.upstream {
            let verified = accept::prepare(store, &packs, &self.tips()?, &Silent)?;
            // If the cache has a stub instead, the object is published all the same.
            let _ = upstream.publish(verified.own())?.followed(verified.adopt(&Silent));
            return Ok(Received::Added);
        }
        let verified = accept::prepare(store, &packs, &inbox::tips(&self.0.repo)?, &Silent)?;
        let _one_at_a_time = self.0.staged.publishing()?;
        self.0.refresh()?;
        verified.adopt(&Silent)?;
        self.0.staged.complete().extend(packs.iter().map(|(id, _)| *id));
        Ok(Received::Added)
    }
}
