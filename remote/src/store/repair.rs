//! Repairs the lost or damaged objects of a remote store other than packs: the settings, `HEAD`,
//! and files of the index.
//!
//! A pack that is lost and that no ref needs is removed from the index. Otherwise a client would
//! take the remote store to have its objects, and not upload them when a commit needs them.
//!
//! A damaged index file is rewritten if the mirror knows its packs. Otherwise it is removed, once
//! other files list everything that a push reaches: clones could not read past it. Before, its
//! packs are listed again from their own tables, as far as they are complete
//! ([`unlisted_packs`](crate::unlisted_packs)). A client that knows which packs it listed finds it
//! gone, and uploads what is missing then.

use std::{collections::BTreeSet, path::Path};

use bytes::Bytes;
use snap_core::{
    base::{id::PackId, kind::ErrorKind, limits},
    format::outline,
    repo::{
        config::{edit::Edit, layer::ConfigOwner},
        ref_name::RefName,
    },
};

use super::{CONFIG, HEAD, INDEX, OBJECTS, RemoteError, RemoteStore, default_branch};
use crate::service::{StoredObject, WriteCondition};

impl RemoteStore {
    /// Rewrites the lost or damaged settings.
    ///
    /// # Errors
    /// [`RemoteError::Service`], [`RemoteError::Config`].
    pub(crate) async fn repair_settings(&self, config: &str) -> Result<(), RemoteError> {
        let edit = Edit { text: config, path: Path::new(CONFIG), owner: ConfigOwner::Store };
        let upgraded = edit.upgrade().map_err(|error| self.config_error(error))?;
        let text = Bytes::from(upgraded.unwrap_or_else(|| config.to_owned()));
        self.client.write(CONFIG, text.clone(), WriteCondition::Always).await?;
        self.check_config(Some(StoredObject { bytes: text, version: None })).map(drop)
    }

    /// Rewrites `HEAD` if it is lost or damaged, or names a branch that does not exist and is not
    /// among the `pushed` refs, if `head` is. Returns true if it was rewritten.
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
                self.client.maintains_index()
                    || pushed.contains(&&named)
                    || !pushed.contains(&head)
                    || self.any_slot(&named).await?.exists()
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

    /// Makes later reads skip damaged index files whose packs are unknown.
    pub(crate) fn pass_over_damaged_index(&mut self) {
        let damaged = self.mirror.damaged_index().into_iter();
        self.passed_over = damaged.filter(|name| !self.mirror.knows(name)).collect();
    }

    /// Returns true if an index file is damaged whose packs are unknown.
    pub(crate) fn has_unknown_damaged_index(&self) -> bool {
        self.mirror.damaged_index().iter().any(|name| !self.mirror.knows(name))
    }

    /// Rewrites or removes damaged index files, as described above. Returns their keys.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub(crate) async fn repair_index(&self) -> Result<Vec<String>, RemoteError> {
        self.note_wrong_lengths().await?;
        let mut mended = Vec::new();
        let known = self.mirror.outlines();
        for name in self.mirror.damaged_index() {
            let key = format!("{INDEX}{name}");
            let is_right = match known.get(&name) {
                Some(packs) => {
                    let packs = packs.iter().map(|id| (self.mirror.store(), *id)).collect();
                    let again = self.index_update_again(packs, &name)?;
                    // Other files may list the packs now, and then the new name differs.
                    let is_rewritten =
                        self.write_index_update(again).await?.as_ref() == Some(&name);
                    // A service may keep the damaged file, whose length may be right.
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

    /// Removes packs that do not exist from the index. Returns the packs that were removed.
    ///
    /// Each file that lists one of them is first written again without them, so that the index
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
            // Another client may have uploaded it again.
            if self.client.length(&format!("{OBJECTS}{id}")).await?.is_none() {
                lost.insert(*id);
            }
        }
        let known = self.mirror.outlines();
        for name in self.listed.keys() {
            let Some(packs) = known.get(name).filter(|packs| !packs.is_disjoint(&lost)) else {
                continue;
            };
            let store = self.mirror.store();
            let others: Vec<_> = packs.difference(&lost).map(|id| (store, *id)).collect();
            if !others.is_empty() {
                self.write_index_update(self.index_update_again(others, name)?).await?;
            }
            self.client.remove(&format!("{INDEX}{name}")).await?;
            self.mirror.forget(std::slice::from_ref(name))?;
        }
        let lost: Vec<PackId> = lost.into_iter().collect();
        self.mirror.clear_damage(&lost)?;
        Ok(lost)
    }

    /// Returns true if an index file exists and is intact, including the parts of a group:
    /// another client may have rewritten it.
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
