//! The version of a store elsewhere, as those see it who write a ref.
//!
//! The settings say version 2 before the first ref of three lines is written, so
//! that a program that knows version 1 alone says that it is too old. One that
//! does not read the settings again finds the third line, and goes no further.

use std::path::Path;

use snap_core::{
    base::limits,
    repo::config::{edit::Edit, layer::Whose},
};

use super::{CONFIG, RemoteError, RemoteStore};
use crate::service::{Conditions, What, When};

/// How often settings that others change meanwhile are read again.
const TRIES: usize = 8;

impl RemoteStore {
    /// Makes the store one of the newest version. Asks nothing where it was seen to
    /// be one, or where a server sees to its refs itself.
    ///
    /// # Errors
    /// [`RemoteError::Config`] when its settings are unusable, or those of a newer
    /// version.
    pub(super) async fn upgrade(&self, can: Conditions) -> Result<(), RemoteError> {
        if self.mirror.is_newest() || self.client.keeps_index() {
            return Ok(());
        }
        for _ in 0..TRIES {
            // Without settings there is no store, which is for others to say.
            let found = self.client.find(CONFIG, limits::CONFIG_BYTES).await?;
            let Some(found) = found else { return Ok(()) };
            let text = std::str::from_utf8(&found.bytes).unwrap_or("");
            let edit = Edit { text, path: Path::new(CONFIG), whose: Whose::Store };
            let upgraded = edit.upgrade().map_err(|error| self.unusable(error))?;
            let Some(upgraded) = upgraded else {
                self.mirror.remember_newest();
                return Ok(());
            };
            let when = match found.version {
                Some(version) if can.unchanged => When::Unchanged(version),
                _ => When::Always,
            };
            match self.client.write(CONFIG, upgraded.into(), when).await {
                // Read once more: whoever wrote it meanwhile may know more, and not
                // every answer comes from the service.
                Ok(_) => {}
                Err(error) if error.what == What::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RemoteError::Damaged {
            key: CONFIG.to_owned(),
            location: self.location.clone(),
            why: "it cannot be made one of version 2".to_owned(),
        })
    }
}
