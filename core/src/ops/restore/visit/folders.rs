//! Folders of the target: made where they are missing, opened up where their
//! owner lacks rights.

use std::sync::Arc;

use rustix::fs::FileType;

use crate::{
    base::{io::PathError, name::EntryName},
    local::{
        attributes::{Attributes, Expected, Extra, Target, apply},
        contain::{Cursor, FolderPath},
        write::Inherited,
    },
    ops::restore::{job::Job, visit::Level},
};

/// Makes a folder. Nobody else may enter it until it is finished.
pub(super) fn make(
    job: &Job<'_>,
    cursor: &mut Cursor<'_>,
    parent: &Level,
    name: &EntryName,
    in_the_way: bool,
) -> Result<Option<Inherited>, PathError> {
    let failed = |action, error| job.error(action, &parent.folder, Some(name), error);
    let folder = cursor.folder(&parent.folder)?;
    if in_the_way {
        folder.remove(name).map_err(|e| failed("remove", e))?;
    }
    folder.make_folder(name, 0o700).map_err(|e| failed("create folder", e))?;
    if parent.inherited.is_some() {
        return Ok(parent.inherited);
    }
    // The folder above was there before and says nothing about new files.
    let made = folder.folder(name).and_then(|folder| Inherited::probe(&folder));
    made.map_err(|e| failed("open folder", e))
}

/// Gives the owner all rights on a folder that is there and lacks them, until
/// it gets its own mode at the end. Says whether it did.
pub(super) fn make_accessible(cursor: &mut Cursor<'_>, at: &Arc<FolderPath>) -> bool {
    let Some((parent, name)) = at.parent() else { return false };
    let Ok(parent) = cursor.folder(parent) else { return false };
    let Ok(Some(stat)) = parent.stat(name) else { return false };
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o700 == 0o700 {
        return false;
    }
    let mode = u16::try_from(stat.st_mode & 0o7777 | 0o700).ok();
    let attributes = Attributes { owner: None, mode, mtime: None, xattrs: &[], extra: Extra::Keep };
    let mut done = true;
    let expected = Expected { kind: FileType::Directory, inode: Some(stat.st_ino) };
    apply(Target::Entry(parent, name, expected), &attributes, &mut |_, _| done = false);
    done
}
