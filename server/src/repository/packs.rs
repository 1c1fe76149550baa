//! The packs of a repository: those that clients read, and those that they send.
//!
//! A sent pack waits in the inbox until it is published. With an upstream, a pack is sent and
//! published there first.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Write},
    ops::Range,
    path::PathBuf,
    sync::Arc,
};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        io::PathError,
        observe::{Observer, Silent},
    },
    format::outline,
    ops::inbox::{self, IndexUpload, StagedError, accept},
    store::ContentError,
};
use snap_remote::wire::types::Listed;

use super::{PackContent, Received, Repository};
use crate::{
    body::{self, BodyPieces, DisconnectObserver},
    causes::causes,
    problem::HttpProblem,
    upstream::repository::UpstreamRepository,
};

/// The packs of a repository.
#[derive(Clone, Copy, Debug)]
pub struct RepositoryPacks<'r>(pub(super) &'r Repository);

impl Repository {
    /// Returns the packs.
    pub fn packs(&self) -> RepositoryPacks<'_> {
        RepositoryPacks(self)
    }
}

impl RepositoryPacks<'_> {
    /// Lists all packs with their lengths, published and staged.
    ///
    /// # Errors
    /// `Code::Unavailable`.
    pub fn list(&self) -> Result<Vec<Listed>, HttpProblem> {
        self.0.check_seen()?;
        self.0.refresh()?;
        let store = self.0.repo.store();
        let listed = |(name, bytes)| Listed { name, bytes };
        let mut packs: Vec<Listed> = self.0.staged.list()?.into_iter().map(listed).collect();
        for id in store.packs().into_iter().filter(|id| self.0.has(id)) {
            let path = store.pack_path(&id);
            // Another process has just merged this pack into a larger one.
            let Ok(meta) = fs_err::metadata(&path) else { continue };
            packs.push(Listed { name: id.to_string(), bytes: meta.len() });
        }
        packs.sort_unstable();
        packs.dedup();
        Ok(packs)
    }

    /// Opens a published pack for reading. Returns its source and its length in bytes.
    ///
    /// # Errors
    /// `Code::NotFound`, `Code::Unavailable`.
    pub fn open(&self, id: &PackId) -> Result<(PackContent, u64), HttpProblem> {
        if !self.0.repo.store().packs().contains(id) {
            self.0.catch_up_now()?;
            self.0.refresh()?;
        }
        let missing = || HttpProblem::not_found(format_args!("pack {id}"));
        if let Some(upstream) = &self.0.upstream {
            return Ok((PackContent::Frames, upstream.fetch_whole(id)?.ok_or_else(missing)?));
        }
        let file = self.open_file(id)?.ok_or_else(missing)?;
        let path = self.0.repo.store().pack_path(id);
        let length = file.metadata().map_err(PathError::when("stat", &path))?.len();
        Ok((PackContent::File(file), length))
    }

    /// Writes a range of a pack's bytes to `out`. Bytes from a cache are checked first.
    ///
    /// # Errors
    /// The errors of `out`, and an error when the pack cannot be read.
    pub fn copy(
        &self,
        id: &PackId,
        source: &PackContent,
        range: Range<u64>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match source {
            PackContent::File(file) => body::copy_range(file, range, out),
            PackContent::Frames => match self.0.repo.store().copy_pack(id, range, out) {
                Err(ContentError::Callback(error)) => Err(error),
                Err(ContentError::Store(error)) => Err(io::Error::other(error)),
                Ok(()) => Ok(()),
            },
        }
    }

    /// Opens the file of a whole pack of this store.
    fn open_file(&self, id: &PackId) -> Result<Option<File>, HttpProblem> {
        let store = self.0.repo.store();
        let open = || fs_err::File::open(store.pack_path(id));
        let file = match open() {
            Err(_) => {
                self.0.refresh()?;
                open()
            }
            file => file,
        };
        let file = file.ok().filter(|_| !store.is_partial(id));
        Ok(file.map(|file| file.into_parts().0))
    }

    /// Returns true if a pack that a client sends is already published here, on a relay upstream, and
    /// is sound.
    pub(super) fn is_whole_here(&self, id: &PackId) -> Result<bool, HttpProblem> {
        let store = self.0.repo.store();
        if !store.packs().contains(id) {
            return Ok(false);
        }
        if let Some(upstream) = &self.0.upstream {
            upstream.refresh_packs()?;
            return Ok(store.packs().contains(id));
        }
        Ok(!store.is_partial(id) && inbox::is_sound(store, id)?)
    }

    /// Receives a pack: hashes the bytes as they arrive, then checks every frame and
    /// object. The check stops when the client disconnects. The pack stays staged until
    /// it is [published](Self::publish).
    ///
    /// # Errors
    /// `Code::Rejected` when the pack does not match its name or is damaged. The
    /// server keeps nothing of a pack that failed.
    pub fn receive(&self, id: PackId, pieces: BodyPieces) -> Result<Received, HttpProblem> {
        self.0.check_epoch()?;
        if self.is_whole_here(&id)? {
            return Ok(Received::AlreadyPresent);
        }
        let watch = pieces.observer();
        let sent = self.0.staged.receive(id, pieces, &*watch)?;
        self.forward(&id)?;
        Ok(sent)
    }

    /// Returns the names and lengths of the index files that clients read. An
    /// unreadable pack is listed only in files that were written before it became
    /// unreadable.
    ///
    /// # Errors
    /// `Code::Unavailable`.
    pub fn index(&self) -> Result<Vec<Listed>, HttpProblem> {
        self.0.catch_up_now()?;
        self.0.refresh()?;
        self.0.read_kept(|| self.0.index.current(self.0.repo.store(), &|id| self.0.has(id)))
    }

    /// Reads one file of the index.
    ///
    /// # Errors
    /// `Code::NotFound`.
    pub fn index_file(&self, name: &str) -> Result<Vec<u8>, HttpProblem> {
        self.0.index.read(name)
    }

    /// Publishes the staged packs that an outline file, or a group of such files, lists. All
    /// objects that the packs refer to must be present. A part of a group is only stored until the
    /// whole group has arrived.
    ///
    /// # Errors
    /// `Code::Rejected` when something is missing, `Code::TooLarge` when chunk lists name too many
    /// chunks. In both cases no pack is published.
    pub fn publish(
        &self,
        name: &str,
        bytes: &[u8],
        client: &Arc<DisconnectObserver>,
    ) -> Result<Received, HttpProblem> {
        let ids = match self.0.staged.read_index_file(name, bytes)? {
            IndexUpload::Part => return Ok(Received::Added),
            IndexUpload::Packs(ids) => ids,
        };
        let sent = self.publish_staged(&ids, client)?;
        if name.ends_with(inbox::GROUP) {
            return Ok(sent);
        }
        let outlines = outline::decode(bytes).map_err(StagedError::from)?.outlines;
        // Keep the client's file, so that the client does not download it again.
        self.0.index.adopt(self.0.repo.store(), name, bytes, &outlines)?;
        Ok(sent)
    }

    /// Publishes staged packs if they and everything that they refer to are sound and complete.
    pub(super) fn publish_checked(
        &self,
        ids: &BTreeSet<PackId>,
        observer: &dyn Observer,
    ) -> Result<Received, HttpProblem> {
        let Some(upstream) = &self.0.upstream else {
            let new = self.0.staged.publish(&self.0.repo, ids, observer)?;
            return Ok(if new.is_empty() { Received::AlreadyPresent } else { Received::Added });
        };
        self.publish_upstream(upstream, ids, observer)
    }

    /// Sends a checked pack to the upstream, if there is one.
    pub(super) fn forward(&self, id: &PackId) -> Result<(), HttpProblem> {
        let Some(upstream) = &self.0.upstream else { return Ok(()) };
        self.0.staged.pack(id)?.map_or(Ok(()), |path| upstream.send(id, &path))
    }

    /// Publishes staged packs upstream, if they and everything that they refer to are sound and
    /// complete, and then adds them to the cache.
    fn publish_upstream(
        &self,
        upstream: &UpstreamRepository,
        ids: &BTreeSet<PackId>,
        observer: &dyn Observer,
    ) -> Result<Received, HttpProblem> {
        let store = self.0.repo.store();
        let lacking = || {
            let there: BTreeSet<PackId> = store.packs().into_iter().collect();
            ids.difference(&there).copied().collect::<BTreeSet<_>>()
        };
        loop {
            upstream.refresh_packs()?;
            let new = lacking();
            if new.is_empty() {
                return Ok(Received::AlreadyPresent);
            }
            let mut packs = Vec::new();
            for id in &new {
                let not_sent = || StagedError::NotSent { name: format!("pack {id}") };
                packs.push((*id, self.sent(upstream, id)?.ok_or_else(not_sent)?));
            }
            self.0.staged.touch(&new);
            let verified = match accept::prepare(store, &packs, &self.tips()?, observer) {
                Ok(verified) => verified,
                Err(error) => {
                    let may_be_damage = error.may_be_damage();
                    if may_be_damage {
                        self.0.staged.check_again(&new);
                    }
                    // The packs may refer to objects whose cached copy is damaged, or another request
                    // has published some of them meanwhile and removed the files.
                    if may_be_damage && upstream.mend() || lacking().len() < new.len() {
                        continue;
                    }
                    return Err(StagedError::from(error).into());
                }
            };
            let published = upstream.publish(verified.own());
            if published.is_err() {
                self.0.staged.check_again(&new);
            }
            // If the cache has stubs instead, the packs are published all the same.
            let _ = published?.followed(verified.adopt(observer));
            new.iter().for_each(|id| self.0.staged.forget(id));
            return Ok(Received::Added);
        }
    }

    /// Returns the commits that refs point at, as last read.
    pub(super) fn tips(&self) -> Result<Vec<CommitId>, HttpProblem> {
        Ok(self.0.refs().cached()?.iter().map(|(_, id)| *id).collect())
    }

    /// Returns a staged pack, from this store or from the upstream. A client may have sent it through
    /// another replica of the same bucket.
    fn sent(
        &self,
        upstream: &UpstreamRepository,
        id: &PackId,
    ) -> Result<Option<PathBuf>, HttpProblem> {
        let found = self.0.staged.pack(id)?;
        if found.is_some() {
            return Ok(found);
        }
        let Some(pieces) = upstream.unpublished_pack(id)? else { return Ok(None) };
        self.0.staged.receive(*id, pieces, &Silent)?;
        Ok(self.0.staged.pack(id)?)
    }

    /// Finishes a publication if a killed server has published only some of its packs.
    pub(super) fn finish_interrupted_publish(&self) {
        if self.0.upstream.is_some() {
            return;
        }
        if let Err(error) = self.0.staged.resume_publication(&self.0.repo) {
            tracing::error!(error = %causes(&error), "cannot publish staged packs");
        }
    }
}
