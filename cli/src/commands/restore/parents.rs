//! Folders above what is restored in its place.

use std::{
    fs::DirBuilder,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, PermissionsExt, lchown},
    },
    path::Path,
};

use snap_core::{
    base::io::PathError,
    format::tree::{Kind, Metadata},
    ops::restore::Ownership,
    repo::path::entry_named,
};

use crate::{report::CliError, snapshot::Snapshot};

/// Bits of a mode that a folder gets back: none that lend rights.
const PERMISSIONS: u16 = 0o777;

/// Makes those folders of `place` that the project lacks, with the mode and, for
/// root, the owner that the snapshot has: they may be what keeps others from
/// the file.
pub(super) fn make(
    snapshot: &Snapshot,
    (project, place): (&Path, &Path),
    ownership: Ownership,
) -> Result<(), CliError> {
    let mut at = project.to_owned();
    let mut tree = Some(snapshot.commit.tree);
    for name in place {
        at.push(name);
        let entry = match tree {
            Some(tree) => entry_named(snapshot.store(), tree, name.as_bytes()).ok().flatten(),
            None => None,
        };
        let folder = entry.filter(|entry| matches!(entry.kind, Kind::Folder { .. }));
        tree = folder.as_ref().and_then(|entry| match entry.kind {
            Kind::Folder { id } => Some(id),
            _ => None,
        });
        let Some(folder) = folder.filter(|_| at.symlink_metadata().is_err()) else { continue };
        make_one(&at, &folder.metadata, ownership)
            .map_err(PathError::when("create folder", &at))?;
    }
    Ok(())
}

fn make_one(path: &Path, metadata: &Metadata, ownership: Ownership) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    let applies = ownership == Ownership::Apply && rustix::process::geteuid().is_root();
    if let Some(owner) = metadata.owner.as_ref().filter(|_| applies) {
        lchown(path, Some(owner.uid), Some(owner.gid))?;
    }
    let mode = u32::from(metadata.mode & PERMISSIONS);
    fs_err::set_permissions(path, PermissionsExt::from_mode(mode))
}
