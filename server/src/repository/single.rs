//! One object that somebody sends: it becomes a pack of its own, and part of the
//! store by the same rule as any: what it refers to is there.

use snap_core::{
    base::{
        id::{BlobId, CommitId, ObjectId, TreeId},
        limits,
        observe::Silent,
    },
    disk::{Disk, scratch::Scratch},
    format::pack::ObjectKind,
    ops::accept,
    store::{Place, Store, Writer, actual_id},
};

use super::{Repository, Sent};
use crate::problem::{Code, Problem};

/// Longest object that is taken by itself; longer contents are cut.
pub const OBJECT_BYTES: u64 = limits::CHUNK_BYTES as u64;

impl Repository {
    /// Where an object lies, if it is there: what came lately counts, here and
    /// through other servers of what lies upstream.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store cannot be listed.
    pub fn locate(&self, id: &ObjectId) -> Result<Option<Place>, Problem> {
        let store = self.repo.store();
        if let Some(place) = store.locate(id)? {
            return Ok(Some(place));
        }
        self.look_shared()?;
        Ok(store.locate(id)?)
    }

    /// Learns of packs that others brought meanwhile, here and upstream, as far
    /// as it answers.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store cannot be listed.
    pub fn look_shared(&self) -> Result<(), Problem> {
        if let Some(behind) = &self.behind {
            behind.look_shared();
        }
        self.refresh()
    }

    /// Takes one object. When it returns, it is durable.
    ///
    /// # Errors
    /// [`Code::Rejected`] when it is not what its id says, or refers to what is
    /// not here.
    pub fn take_object(
        &self,
        id: &ObjectId,
        kind: ObjectKind,
        bytes: &[u8],
    ) -> Result<Sent, Problem> {
        if actual_id(kind, bytes) != Some(*id) {
            let why = format!("the bytes are no {} with that id", kind.noun());
            return Err(Problem::new(Code::Rejected, why));
        }
        let store = self.repo.store();
        if self.locate(id)?.is_some() {
            return self.known();
        }
        let scratch = Scratch::create(&store.dir().join("tmp"))?;
        Store::create(scratch.path(), &Disk::scratch())?;
        let own = Store::open(scratch.path(), Disk::scratch(), &Silent)?;
        let writer = Writer::new(&own, self.repo.config().compression.level, 1)?;
        match kind {
            ObjectKind::Tree => writer.add_tree(TreeId::of(bytes), bytes)?,
            ObjectKind::Commit => writer.add_commit(CommitId::of(bytes), bytes)?,
            _ if bytes.len() > limits::SMALL_FRAME_BYTES => {
                drop(writer.add_chunks(bytes, &[bytes.len()])?);
            }
            _ => drop(writer.add_blob(0, BlobId::of(bytes), bytes)?),
        }
        writer.finish()?;
        let packs: Vec<_> = own.packs().into_iter().map(|id| (id, own.pack_path(&id))).collect();
        if let Some(behind) = &self.behind {
            // It may refer to what came through another server.
            behind.look()?;
        }
        self.refresh()?;
        let tips: Vec<CommitId> = self.refs()?.into_iter().map(|(_, id)| id).collect();
        let prepared = accept::prepare(store, &packs, (&tips, u64::MAX), &Silent)?;
        let _one_at_a_time = self.staged.publishing()?;
        self.refresh()?;
        self.pass_on(|| Ok(prepared.adopt(&Silent)?))?;
        self.staged.complete().extend(packs.iter().map(|(id, _)| *id));
        Ok(Sent::New)
    }
}
