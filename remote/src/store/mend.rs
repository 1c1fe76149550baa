//! Writing again what was lost or damaged of a store elsewhere, besides packs: its settings,
//! its `HEAD`, and files of its index.
//!
//! A damaged file of the index whose packs are known here is written from what is known. One that
//! is not known goes once all that a push reaches is told of by other files: clones could not
//! read past it. A client that knows what it told of finds it gone and sends what is then
//! missing.

use std::path::Path;

use bytes::Bytes;
use snap_core::{
    base::{kind::ErrorKind, limits},
    format::outline,
    repo::{
        config::{edit::Edit, layer::Whose},
        ref_name::RefName,
    },
};

use super::{CONFIG, HEAD, INDEX, RemoteError, RemoteStore, heads};
use crate::service::{Object, When};

impl RemoteStore {
    /// Writes the settings again, which are lost or damaged.
    ///
    /// # Errors
    /// [`RemoteError::Service`], [`RemoteError::Config`].
    pub(crate) async fn mend_settings(&self, config: &str) -> Result<(), RemoteError> {
        let edit = Edit { text: config, path: Path::new(CONFIG), whose: Whose::Store };
        let upgraded = edit.upgrade().map_err(|error| self.unusable(error))?;
        let text = Bytes::from(upgraded.unwrap_or_else(|| config.to_owned()));
        self.client.write(CONFIG, text.clone(), When::Always).await?;
        self.check_config(Some(Object { bytes: text, version: None })).map(drop)
    }

    /// Writes `HEAD` again if it is lost or damaged. Says whether it was.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(crate) async fn mend_head(&self, head: &RefName) -> Result<bool, RemoteError> {
        let is_there = match self.client.find(HEAD, limits::REF_BYTES as u64).await {
            Ok(found) => found.is_some_and(|object| heads::branch_of(&object.bytes).is_some()),
            Err(error) if error.what.kind() == ErrorKind::Damaged => false,
            Err(error) => return Err(error.into()),
        };
        if !is_there {
            self.client.write(HEAD, heads::text(head), When::Always).await?;
        }
        Ok(!is_there)
    }

    /// Reads around damaged files of the index that are not known here, from now on.
    pub(crate) fn pass_over_damaged_index(&mut self) {
        let damaged = self.mirror.damaged_index().into_iter();
        self.passed_over = damaged.filter(|name| !self.mirror.knows(name)).collect();
    }

    /// Writes damaged files of the index again, or removes them: see above. Returns their keys.
    ///
    /// # Errors
    /// [`RemoteError`]
    pub(crate) async fn mend_index(&self) -> Result<Vec<String>, RemoteError> {
        let mut mended = Vec::new();
        let known = self.mirror.outlines();
        for name in self.mirror.damaged_index() {
            let key = format!("{INDEX}{name}");
            let is_written = match known.get(&name) {
                Some(packs) => {
                    let packs = packs.iter().map(|id| (self.mirror.store(), *id)).collect();
                    self.write_publication(self.publication_again(packs, &name)?).await?;
                    self.is_in_index(&name).await?
                }
                None => self.is_in_index(&name).await?,
            };
            if !is_written {
                self.client.remove(&key).await?;
                self.mirror.forget(&[name])?;
            }
            mended.push(key);
        }
        self.mirror.note_damaged_index(&[])?;
        Ok(mended)
    }

    /// Whether a file of the index is there and right.
    async fn is_in_index(&self, name: &str) -> Result<bool, RemoteError> {
        let key = format!("{INDEX}{name}");
        match self.client.find(&key, limits::REMOTE_INDEX_BYTES).await {
            Ok(None) => Ok(false),
            Ok(Some(object)) => Ok(match self.is_group(name) {
                // Which of its parts is damaged is not known.
                true => false,
                false => self.check(name, &object.bytes, outline::decode).is_ok(),
            }),
            Err(error) if error.what.kind() == ErrorKind::Damaged => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
