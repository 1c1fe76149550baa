//! Upgrades the version of a remote store before the first write of a ref.
//!
//! The client sets version 2 before it writes the first ref of three lines. A program that knows
//! only version 1 then reports that it is too old. A program that does not read the settings again
//! finds the third line in the ref, and stops.

use std::path::Path;

use snap_core::{
    base::limits,
    repo::config::{REFS_VERSION, edit::Edit, layer::ConfigOwner},
};

use super::{CONFIG, RemoteError, RemoteStore};
use crate::service::{ConditionalWrites, FailureReason, WriteCondition};

/// Maximum number of attempts, if other clients change the settings.
const TRIES: usize = 8;

impl RemoteStore {
    /// Upgrades the store to the newest version. Sends no request if the mirror knows that the
    /// store has that version, or if a server maintains the store.
    ///
    /// # Errors
    /// [`RemoteError::Config`] if the settings are unusable, or of a newer version.
    pub(super) async fn upgrade(&self, can: ConditionalWrites) -> Result<(), RemoteError> {
        if self.mirror.is_newest() || self.client.maintains_index() {
            return Ok(());
        }
        self.upgrade_to(REFS_VERSION, can).await
    }

    /// Upgrades the store to a version, unless it has that or a newer one. First tries the settings
    /// that this process has read.
    ///
    /// # Errors
    /// As [`Self::upgrade`].
    pub(super) async fn upgrade_to(
        &self,
        version: u32,
        can: ConditionalWrites,
    ) -> Result<(), RemoteError> {
        // The write fails if they are not the present ones.
        let mut known = self.config().filter(|known| known.version.is_some() && can.unchanged);
        for _ in 0..TRIES {
            let found = match known.take() {
                Some(known) => Some(known),
                None => self.client.find(CONFIG, limits::CONFIG_BYTES).await?,
            };
            // Without settings there is no store; another step reports that.
            let Some(found) = found else { return Ok(()) };
            let text = std::str::from_utf8(&found.bytes).unwrap_or("");
            let edit = Edit { text, path: Path::new(CONFIG), owner: ConfigOwner::Store };
            let upgraded = edit.upgrade(version).map_err(|error| self.config_error(error))?;
            let Some(upgraded) = upgraded else {
                self.mirror.remember_newest();
                return Ok(());
            };
            let when = match found.version {
                Some(version) if can.unchanged => WriteCondition::Unchanged(version),
                _ => WriteCondition::Always,
            };
            match self.client.write(CONFIG, upgraded.into(), when).await {
                // Read once more: another client may have written settings of a newer version,
                // and a proxy may have answered in place of the service.
                Ok(_) => {}
                Err(error) if error.reason == FailureReason::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RemoteError::Damaged {
            key: CONFIG.to_owned(),
            location: self.location.clone(),
            why: format!("it cannot be upgraded to version {version}"),
        })
    }
}
