//! A cached listing of all refs, so that a server does not read every ref file for each request. A
//! listing is valid while the folders of refs are unchanged.
//!
//! Snap replaces the file of a ref by a rename, which changes the modification time of its folder.
//! A listing misses a write in place by another program until it is [too old](KEPT).

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    base::id::CommitId,
    disk::folder_times::FolderTimes,
    repo::{
        ref_name::{RefKind, RefName},
        refs::{RefError, Refs},
    },
};

/// Maximum age of a listing, even if no folder has changed.
const KEPT: Duration = Duration::from_secs(5);

/// All branches and tags at one moment. A clone is cheap.
#[derive(Clone, Debug)]
pub struct RefListing {
    /// The refs: branches first, each kind sorted by name.
    pub refs: Arc<Vec<(RefName, CommitId)>>,
    /// The refs whose files do not hold a ref, in the same order.
    pub damaged: Arc<Vec<RefName>>,
    /// The files whose names no ref can have.
    pub misnamed: Arc<Vec<PathBuf>>,
    folders: FolderTimes,
    read_at: Instant,
}

impl RefListing {
    /// Returns true if the listing is still valid.
    pub fn is_current(&self) -> bool {
        self.read_at.elapsed() < KEPT && self.folders.are_unchanged()
    }
}

impl Refs {
    /// Lists all branches and tags, including damaged ones.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn list_all(&self) -> Result<RefListing, RefError> {
        let (mut refs, mut damaged, mut misnamed) = (Vec::new(), Vec::new(), Vec::new());
        let mut folders = FolderTimes::default();
        let read_at = Instant::now();
        for kind in [RefKind::Branch, RefKind::Tag] {
            let (names, mut others) = self.names_with_times(kind, &mut folders)?;
            misnamed.append(&mut others);
            for name in names {
                match self.read(&name) {
                    Err(RefError::Damaged { .. }) => damaged.push(name),
                    read => refs.extend(read?.map(|id| (name, id))),
                }
            }
        }
        let (refs, damaged, misnamed) = (Arc::new(refs), Arc::new(damaged), Arc::new(misnamed));
        Ok(RefListing { refs, damaged, misnamed, folders, read_at })
    }
}
