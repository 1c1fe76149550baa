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
    repo::ref_name::RefName,
};

use super::{
    CONFIG, HEAD, INDEX, OBJECTS, RemoteError, RemoteStore, default_branch, gc_view::IndexedFile,
};
use crate::service::{StoredObject, WriteCondition};

impl RemoteStore {
    /// Rewrites the lost or damaged settings.
    ///
    /// # Errors
    /// [`RemoteError::Service`], [`RemoteError::Config`].
    pub(crate) async fn repair_settings(&self, config: &str) -> Result<(), RemoteError> {
        let text = Bytes::from(config.to_owned());
        self.client.write(CONFIG, text.clone(), WriteCondition::Always).await?;
        self.check_config(Some(StoredObject { bytes: text, version: None })).map(drop)
    }

    /// Makes `HEAD` name `head` if it is lost or damaged. Also does so if the branch in `HEAD`
    /// neither exists nor is in `pushed`, but `head` is in `pushed`. Returns true if it has written
    /// `HEAD`.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(crate) async fn repair_head(
        &self,
        head: &RefName,
        pushed: &[&RefName],
    ) -> Result<bool, RemoteError> {
        let is_sound = match self.find_head().await {
            Ok(Some(named)) => {
                let is_right = self.client.maintains_index()
                    || pushed.contains(&&named)
                    || !pushed.contains(&head)
                    || self.any_slot(&named).await?.exists();
                if !is_right {
                    // The client that created the store may still be about to create this branch,
                    // and relies on a collector that reads `HEAD` (see `store::gc`).
                    self.reserve(&named).await?;
                }
                is_right
            }
            Ok(None) => false,
            Err(error) if error.kind() == ErrorKind::Damaged => false,
            Err(error) => return Err(error),
        };
        if !is_sound {
            self.client.write(HEAD, default_branch::text(head), WriteCondition::Always).await?;
        }
        Ok(!is_sound)
    }

    /// Makes later reads skip damaged index files with unknown packs.
    pub(crate) fn pass_over_damaged_index(&mut self) {
        let damaged = self.mirror.damaged_index().into_iter();
        self.passed_over = damaged.filter(|name| !self.mirror.knows(name)).collect();
    }

    /// Returns true if an index file with unknown packs is damaged.
    pub(crate) fn has_unknown_damaged_index(&self) -> bool {
        self.mirror.damaged_index().iter().any(|name| !self.mirror.knows(name))
    }

    /// Rewrites or removes damaged index files, as the module documentation describes. Returns
    /// their keys.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(crate) async fn repair_index(&self) -> Result<Vec<String>, RemoteError> {
        self.note_wrong_lengths().await?;
        let mut mended = Vec::new();
        let known = self.mirror.files();
        let gc = self.mirror.gc();
        let is_whole = |file: &&IndexedFile| {
            gc.as_ref().is_none_or(|gc| file.packs.is_disjoint(&gc.table.going))
        };
        for name in self.mirror.damaged_index() {
            let key = format!("{INDEX}{name}");
            // The mirror has no outlines of packs that are going.
            let is_right = match known.get(&name).filter(is_whole) {
                Some(IndexedFile { epoch, packs }) => {
                    let packs = packs.iter().map(|id| (self.mirror.store(), *id)).collect();
                    let again = self.index_update_again(packs, &name, *epoch)?;
                    // If other files list the packs now, the new name differs.
                    let is_rewritten =
                        self.write_index_update(again).await?.as_ref() == Some(&name);
                    // A service may keep the damaged file, maybe with the right length.
                    if is_rewritten && !self.is_in_index(&name).await? {
                        let location = self.location.clone();
                        let why = "the service kept the damaged file, although it reported that it \
                                   was replaced";
                        return Err(RemoteError::Damaged { key, location, why: why.into() });
                    }
                    is_rewritten
                }
                None => self.is_in_index(&name).await?,
            };
            if !is_right {
                self.client.remove(&key).await?;
                self.mirror.forget(&[name])?;
            }
            mended.push(key);
        }
        self.mirror.note_damaged_index(&[])?;
        Ok(mended)
    }

    /// Removes packs that do not exist from the index. Returns the removed packs.
    ///
    /// First writes each file that lists one of the packs again without them, so that the index
    /// lists all other packs at any time.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(crate) async fn unlist_lost_packs(
        &self,
        packs: &[PackId],
    ) -> Result<Vec<PackId>, RemoteError> {
        let mut lost = BTreeSet::new();
        for id in packs {
            // Another client may have uploaded the pack again.
            if self.client.length(&format!("{OBJECTS}{id}")).await?.is_none() {
                lost.insert(*id);
            }
        }
        let known = self.mirror.files();
        let gc = self.mirror.gc();
        let is_going = |id: &PackId| gc.as_ref().is_some_and(|gc| gc.table.going.contains(id));
        for name in self.listed.keys() {
            let is_affected = |file: &&IndexedFile| !file.packs.is_disjoint(&lost);
            let Some(file) = known.get(name).filter(is_affected) else { continue };
            let store = self.mirror.store();
            let others = file.packs.difference(&lost).filter(|id| !is_going(id));
            let others: Vec<_> = others.map(|id| (store, *id)).collect();
            if !others.is_empty() {
                // The new file counts if the old one did.
                let epoch = match self.mirror.counts(name) {
                    true => self.mirror.epoch(),
                    false => file.epoch,
                };
                self.write_index_update(self.index_update_again(others, name, epoch)?).await?;
            }
            self.client.remove(&format!("{INDEX}{name}")).await?;
            self.mirror.forget(std::slice::from_ref(name))?;
        }
        let lost: Vec<PackId> = lost.into_iter().collect();
        self.mirror.clear_damage(&lost)?;
        Ok(lost)
    }

    /// Returns true if an index file exists and is intact, including the parts of a group. Another
    /// client may have rewritten it.
    async fn is_in_index(&self, name: &str) -> Result<bool, RemoteError> {
        let read = async {
            let key = format!("{INDEX}{name}");
            let Some(object) = self.client.find(&key, limits::REMOTE_INDEX_BYTES).await? else {
                return Ok(false);
            };
            match self.is_group(name) {
                true => Ok(self.take_in_group(name, &object.bytes).await?.is_none()),
                false => self.check(name, &object.bytes, outline::decode).map(|_| true),
            }
        };
        match read.await {
            Err(error) if error.is_of_object() => Ok(false),
            other => other,
        }
    }
}
