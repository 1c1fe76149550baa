//! A store elsewhere, read without a copy of it.
//!
//! Its structure is known from its index and kept in the mirror, once it was
//! read; contents come when they are needed. Refs move, so none is kept: those
//! that the revisions to be read stand on are asked for each time.
//!
//! With nothing known, a file is read by six requests: settings, ref, list of
//! the index, index, structure, content. With index and structure known it is
//! two: the ref and the content.

mod file;
mod refs;

use std::{collections::HashMap, sync::Arc};

use snap_core::{
    base::id::{BlobId, PackId},
    disk::scratch::Scratch,
    format::pack::{Class, Frame},
    repo::{Config, Refs, Repo},
    store::Store,
};

use crate::{
    distant::{Contents, RemotePacks, Waiting},
    ranges::{Content, ContentOptions, Fetch},
    service::client::Client,
    store::{Found, OBJECTS, RemoteError, RemoteStore},
};

/// Which refs are to be known.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    /// Those that these revisions (`REV` or `REV:PATH`) stand on.
    Of(&'a [&'a [u8]]),
    /// All of them.
    All,
}

/// A store elsewhere that is open for reading.
#[derive(Debug)]
pub struct Reading {
    repo: Repo,
    packs: RemotePacks,
    client: Client,
    location: String,
    _refs: Scratch,
}

impl Reading {
    /// Opens `remote`, and learns where the refs stand that `which` says and
    /// what lies where. Waits; not to be called by a thread of the runtime.
    ///
    /// A revision that names nothing is **not** an error here, but when it is
    /// resolved.
    ///
    /// # Errors
    /// [`RemoteError::NoStore`], and others of [`RemoteError`].
    pub fn open(
        mut remote: RemoteStore,
        which: Which<'_>,
        waiting: &Waiting,
    ) -> Result<Self, RemoteError> {
        let scratch = Scratch::create(&remote.mirror().store().dir().join("tmp"))?;
        waiting.runtime.block_on(waiting.unless_stopped(refs::learn(
            &mut remote,
            which,
            scratch.path(),
        )))?;
        Ok(Self::of_parts(remote, scratch, waiting))
    }

    fn of_parts(remote: RemoteStore, scratch: Scratch, waiting: &Waiting) -> Self {
        let (client, location, mirror) = remote.into_parts();
        let packs = RemotePacks::of(client.clone(), location.clone(), waiting.clone());
        let packs = packs.with_contents(Contents::Forget);
        let store = mirror.into_store();
        let refs = Refs::new(scratch.path(), store.disk().clone());
        let store = store.with_distant(Arc::new(packs.clone()));
        let repo = Repo::of_parts(store, Config::default(), refs);
        Self { repo, packs, client, location, _refs: scratch }
    }

    /// Opens `remote` for its objects, whatever refs it has. Files of its index that
    /// are damaged or lost are passed over. Waits; not to be called by a thread of the
    /// runtime.
    ///
    /// # Errors
    /// [`RemoteError::NoStore`], [`RemoteError::Emptied`], and others of [`RemoteError`]
    /// when it cannot be asked.
    pub fn open_objects(mut remote: RemoteStore, waiting: &Waiting) -> Result<Self, RemoteError> {
        let scratch = Scratch::create(&remote.mirror().store().dir().join("tmp"))?;
        let asking = async {
            if remote.look().await? == Found::Nothing {
                return Err(RemoteError::NoStore { location: remote.location().to_owned() });
            }
            // What is known of it may be of a disk that is not mounted. A store that lost
            // its settings still has packs.
            if let Err(error) = remote.must_be_there().await
                && remote.client().peek(OBJECTS, 1).await?.is_empty()
            {
                return Err(error);
            }
            remote.refresh_around_damage(false).await
        };
        waiting.runtime.block_on(waiting.unless_stopped(asking))?;
        Ok(Self::of_parts(remote, scratch, waiting))
    }

    /// The store, to be read as if it were here. Its refs are those that were
    /// asked for; nothing is to be written to it.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Where it is.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// How it is asked.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A file's content, to be read in any place. What is needed to know where
    /// its parts lie is read now, the content itself is not.
    ///
    /// Checked, of what is read: that each part (a chunk, or all of a content
    /// that was not cut) hashes to its id. **Not** checked: that the chunks
    /// together hash to `id`.
    ///
    /// # Errors
    /// [`RemoteError::Store`] when there is no such content, or the list of its
    /// chunks is damaged.
    pub fn open_file(&self, id: &BlobId, options: ContentOptions) -> Result<Content, RemoteError> {
        let fetch: Arc<dyn Fetch> = Arc::new(self.client.clone());
        let link = Arc::clone(self.packs.link());
        let way = (fetch, Arc::clone(&link));
        let blocks = file::FileBlocks::find(self.repo.store(), id, &self.location, way)?;
        Ok(Content::new(Arc::new(blocks), link, options))
    }
}

impl Drop for Reading {
    /// Keeps what came of the structure together with what was read.
    fn drop(&mut self) {
        keep_structure(self.repo.store(), &self.packs);
    }
}

fn keep_structure(store: &Store, packs: &RemotePacks) {
    let mut frames: HashMap<PackId, Vec<Frame>> = HashMap::new();
    for (pack, range, bytes) in packs.leftovers() {
        let of_pack = frames
            .entry(pack)
            .or_insert_with(|| store.open_pack(&pack).map_or(Vec::new(), |p| p.frames().to_vec()));
        let at = of_pack.binary_search_by_key(&range.start, |frame| frame.offset);
        if at.is_ok_and(|at| of_pack[at].class == Class::Metadata) {
            // Where that fails it comes again the next time.
            let _ = store.fill(&pack, range.start, &bytes);
        }
    }
}
