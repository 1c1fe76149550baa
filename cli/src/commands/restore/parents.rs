//! Creates the parent folders of an entry that is restored in place.

use std::{os::unix::ffi::OsStrExt, path::Path};

use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};
use snap_core::{
    base::{io::PathError, name::EntryName},
    format::tree::{EntryKind, Metadata},
    local::contain::{FolderPath, TargetRoot},
    ops::restore::Ownership,
    repo::path::entry_named,
};

use crate::{report::CliError, snapshot::Snapshot};

/// The mode bits that a folder gets: without setuid, setgid and sticky.
const PERMISSIONS: u16 = 0o777;

/// Creates the folders of `place` that the project lacks, with the mode of the snapshot and, for
/// root, its owner. These attributes may be what protects the file from other users.
pub(super) fn make(
    snapshot: &Snapshot,
    (project, place): (&Path, &Path),
    ownership: Ownership,
) -> Result<(), CliError> {
    let mut names = Vec::new();
    let mut tree = Some(snapshot.commit.tree);
    for name in place {
        // The restore itself reports an invalid name.
        let Ok(name) = EntryName::new(name.as_bytes()) else { return Ok(()) };
        let entry = match tree {
            Some(tree) => entry_named(snapshot.store(), tree, name.as_bytes()).ok().flatten(),
            None => None,
        };
        names.push(name);
        let folder = entry.filter(|entry| matches!(entry.kind, EntryKind::Folder { .. }));
        tree = folder.as_ref().and_then(|entry| match entry.kind {
            EntryKind::Folder { id } => Some(id),
            _ => None,
        });
        // The restore itself also refuses links and reports them.
        let Some(folder) = folder else { continue };
        let Ok((root, is_created)) = TargetRoot::below(project, &names, true) else {
            return Ok(());
        };
        if is_created {
            set_attributes(&root, &folder.metadata, ownership)
                .map_err(PathError::when("set the attributes of", root.path()))?;
        }
    }
    Ok(())
}

fn set_attributes(
    root: &TargetRoot,
    metadata: &Metadata,
    ownership: Ownership,
) -> std::io::Result<()> {
    let folder = root.folder(&FolderPath::top())?.readable()?;
    let applies = ownership == Ownership::Apply && rustix::process::geteuid().is_root();
    if let Some(owner) = metadata.owner.as_ref().filter(|_| applies) {
        let (user, group) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        fchown(&folder, Some(user), Some(group))?;
    }
    Ok(fchmod(&folder, Mode::from_raw_mode(u32::from(metadata.mode & PERMISSIONS)))?)
}
