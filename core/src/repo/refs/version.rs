//! Checks the format version of a store again before each change.
//!
//! A later program may raise the version of a store. A program that opened the store before reads
//! the settings again before each write, under the store's lock, and stops.

use crate::{
    base::{
        io::{PathError, if_exists},
        limits,
    },
    disk::regular::read_at_most,
    repo::{
        config::{self, Config, ConfigError},
        refs::{RefError, Refs},
    },
};

impl Refs {
    /// Checks that the store still has settings of the known version. The caller must hold the lock.
    pub(super) fn check_version(&self) -> Result<(), RefError> {
        let path = self.store.join(config::FILE);
        let bytes = if_exists(read_at_most(&path, limits::CONFIG_BYTES));
        // A scratch folder has refs but no settings.
        let Some(bytes) = bytes.map_err(PathError::when("read", &path))? else { return Ok(()) };
        let text = String::from_utf8_lossy(&bytes);
        match Config::parse(&text, &path) {
            Ok(_) => Ok(()),
            Err(ConfigError::Newer { .. }) => Err(RefError::Newer { path }),
            Err(_) => Err(RefError::Damaged { path, noun: "store's settings" }),
        }
    }
}
