//! Repairs the lost or damaged objects of a remote store other than packs: the settings, `HEAD`,
//! and files of the index.
//!
//! A repair removes a lost pack that no ref needs from the index. Otherwise a client would rely on
//! the objects of the pack, and not upload them when a commit needs them.
//!
//! A repair rewrites a damaged index file if the mirror knows its packs. Otherwise it removes the
//! file, because clones cannot read past it, once other files list everything that a push reaches.
//! Before that, it lists complete packs again from their own tables
//! ([`unlisted_packs`](crate::unlisted_packs)). A client that knows the packs of the file finds it
//! gone, and then uploads missing objects.

use std::collections::BTreeSet;

use bytes::Bytes;
use snap_core::{
    base::{id::PackId, kind::ErrorKind, limits},
    format::outline,
    ops::repair::RepairRun,
    repo::ref_name::RefName,
};

use super::{
    BucketStore,
    index::{BucketIndex, GROUP},
};
use crate::peer::{
    CONFIG, HEAD, INDEX, Mend, OBJECTS, RemoteError,
    all_refs::head_text,
    catch_up::{check_index_file, take_in_group},
    gc_view::IndexedFile,
    known::Known,
};

/// The repair of a bucket, and what this process knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mending<'a> {
    pub(super) store: &'a BucketStore,
    pub(super) known: &'a Known,
}

impl<'a> Mending<'a> {
    /// Mends something. Returns the keys of what was written or removed.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(super) async fn mend(self, what: Mend<'_>) -> Result<Vec<String>, RemoteError> {
        match what {
            Mend::Settings(config) => {
                let text = Bytes::from(config.to_owned());
                let client = &self.store.client;
                client.put(CONFIG, text.clone()).await?;
                *self.store.config.lock() = Some(text);
                Ok(vec![CONFIG.to_owned()])
            }
            Mend::Head { head, pushed } => {
                let is_written = self.repair_head(head, pushed).await?;
                Ok(is_written.then(|| HEAD.to_owned()).into_iter().collect())
            }
            Mend::Index => self.repair_index().await,
            Mend::Collection => {
                let epoch = self.store.epoch(self.known);
                Ok(epoch.repair().await?.into_iter().collect())
            }
        }
    }

    fn index(self) -> BucketIndex<'a> {
        self.store.index(self.known)
    }

    /// Makes `HEAD` name `head` if it is lost or damaged. Also does so if the branch in `HEAD`
    /// neither exists nor is in `pushed`, but `head` is in `pushed`. Returns true if it has written
    /// `HEAD`.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    async fn repair_head(self, head: &RefName, pushed: &[&RefName]) -> Result<bool, RemoteError> {
        let is_sound = match self.store.find_head().await {
            Ok(Some(named)) => {
                let is_right = pushed.contains(&&named)
                    || !pushed.contains(&head)
                    || !self.store.any_slot(&named).await?.is_lost();
                if !is_right {
                    // The client that created the store may still be about to create this branch,
                    // and relies on a collector that reads `HEAD` (see `store::gc`).
                    self.store.epoch(self.known).reserve(&named).await?;
                }
                is_right
            }
            Ok(None) => false,
            Err(error) if error.kind() == ErrorKind::Damaged => false,
            Err(error) => return Err(error),
        };
        if !is_sound {
            self.store.client.put(HEAD, head_text(head)).await?;
        }
        Ok(!is_sound)
    }

    /// Rewrites or removes damaged index files, as the module documentation describes. Returns
    /// their keys.
    ///
    /// # Errors
    /// [`RemoteError`].
    async fn repair_index(self) -> Result<Vec<String>, RemoteError> {
        let mut mended = Vec::new();
        let known = self.known.mirror.files();
        let gc = self.known.mirror.gc();
        let is_whole = |file: &&IndexedFile| {
            gc.as_ref().is_none_or(|gc| file.packs.is_disjoint(&gc.table.going))
        };
        for name in self.known.mirror.damaged_index() {
            let key = format!("{INDEX}{name}");
            // The mirror has no outlines of packs that are going.
            let is_right = match known.get(&name).filter(is_whole) {
                Some(IndexedFile { epoch, packs }) => {
                    let packs = packs.iter().map(|id| (self.known.mirror.store(), *id)).collect();
                    let again = self.index().update_again(packs, &name, *epoch)?;
                    // If other files list the packs now, the new name differs.
                    let is_rewritten =
                        self.index().write_update(again).await?.as_ref() == Some(&name);
                    // A service may keep the damaged file, maybe with the right length.
                    if is_rewritten && !self.is_in_index(&name).await? {
                        let location = self.store.location.clone();
                        let why = "the service kept the damaged file, although it reported that it \
                                   was replaced";
                        return Err(RemoteError::Damaged { key, location, why: why.into() });
                    }
                    is_rewritten
                }
                None => self.is_in_index(&name).await?,
            };
            if !is_right {
                self.store.client.delete(std::slice::from_ref(&key)).await?;
                self.known.mirror.forget(&[name])?;
            }
            mended.push(key);
        }
        self.known.mirror.note_damaged_index(&[])?;
        Ok(mended)
    }

    /// Removes packs that do not exist from the index. Returns the removed packs, in a dry run all.
    ///
    /// First writes each file that lists one of the packs again without them, so that the index
    /// lists all other packs at any time.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(super) async fn unlist_lost_packs(
        self,
        packs: &[PackId],
        run: RepairRun,
    ) -> Result<Vec<PackId>, RemoteError> {
        if run == RepairRun::Dry {
            return Ok(packs.to_vec());
        }
        let mut lost = BTreeSet::new();
        for id in packs {
            // Another client may have uploaded the pack again.
            if self.store.client.head(&format!("{OBJECTS}{id}")).await?.is_none() {
                lost.insert(*id);
            }
        }
        let known = self.known.mirror.files();
        let gc = self.known.mirror.gc();
        let is_going = |id: &PackId| gc.as_ref().is_some_and(|gc| gc.table.going.contains(id));
        for name in self.known.listed.keys() {
            let is_affected = |file: &&IndexedFile| !file.packs.is_disjoint(&lost);
            let Some(file) = known.get(name).filter(is_affected) else { continue };
            let store = self.known.mirror.store();
            let others = file.packs.difference(&lost).filter(|id| !is_going(id));
            let others: Vec<_> = others.map(|id| (store, *id)).collect();
            if !others.is_empty() {
                // The new file counts if the old one did.
                let epoch = match self.known.mirror.counts(name) {
                    true => self.known.mirror.epoch(),
                    false => file.epoch,
                };
                self.index().write_update(self.index().update_again(others, name, epoch)?).await?;
            }
            self.store.client.delete(&[format!("{INDEX}{name}")]).await?;
            self.known.mirror.forget(std::slice::from_ref(name))?;
        }
        let lost: Vec<PackId> = lost.into_iter().collect();
        self.known.mirror.clear_damage(&lost)?;
        Ok(lost)
    }

    /// Returns true if an index file exists and is intact, including the parts of a group. Another
    /// client may have rewritten it.
    async fn is_in_index(self, name: &str) -> Result<bool, RemoteError> {
        let read = async {
            let key = format!("{INDEX}{name}");
            let Some(object) = self.store.client.find(&key, limits::REMOTE_INDEX_BYTES).await?
            else {
                return Ok(false);
            };
            match name.ends_with(GROUP) {
                true => Ok(take_in_group(
                    self.store,
                    &self.known.mirror,
                    name,
                    &object.bytes,
                    &self.store.location,
                )
                .await?
                .is_none()),
                false => {
                    check_index_file((name, &self.store.location), &object.bytes, outline::decode)
                        .map(|_| true)
                }
            }
        };
        match read.await {
            Err(error) if error.is_of_object() => Ok(false),
            other => other,
        }
    }
}
