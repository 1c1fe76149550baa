//! Reads ignore files that a partial clone did not fetch.
//!
//! Ignore files apply to everything below their folder. A partial clone has only the
//! paths of its scope, so ignore files above these paths are read from the last commit.
//! Without them, a commit would include files that the other users of the repository
//! exclude.

use crate::{
    base::{id::TreeId, limits},
    format::tree::EntryKind,
    local::{
        ignore::{GITIGNORE, IgnoreFiles, SNAPIGNORE},
        visible::join,
    },
    repo::{path::entry_named, scope::ScopePath},
    store::{ContentReader, Store, StoreError},
};

/// Returns the ignore files in `tree` of the folders above the paths of a scope. Fetches and keeps
/// contents that are missing locally.
///
/// # Errors
/// [`StoreError`] when an ignore file cannot be read, since its rules are then unknown.
pub fn ignore_files(
    store: &Store,
    tree: TreeId,
    scope: &[ScopePath],
    with_gitignore: bool,
) -> Result<IgnoreFiles, StoreError> {
    let mut files = IgnoreFiles::new();
    for path in scope {
        let (mut folder, mut inside) = (Some(tree), Vec::new());
        for name in path {
            let Some(tree) = folder else { break };
            if !files.contains_key(&inside) {
                files.insert(inside.clone(), texts(store, tree, with_gitignore)?);
            }
            let entry = entry_named(store, tree, name.as_bytes())?;
            folder = entry.and_then(|entry| entry.kind.tree());
            inside = join(&inside, name.as_bytes());
        }
    }
    Ok(files)
}

/// Returns the texts of a folder's ignore files, the one with the lowest precedence
/// first.
fn texts(
    store: &Store,
    tree: TreeId,
    with_gitignore: bool,
) -> Result<Vec<(&'static str, Vec<u8>)>, StoreError> {
    let mut texts = Vec::new();
    for name in [GITIGNORE, SNAPIGNORE] {
        if name == GITIGNORE && !with_gitignore {
            continue;
        }
        let entry = entry_named(store, tree, name.as_bytes())?;
        // A commit in a full clone skips ignore files above this size, too.
        if let Some(EntryKind::File { size, id }) = entry.map(|entry| entry.kind)
            && size <= limits::IGNORE_FILE_BYTES
        {
            let text = ContentReader::new(store).read_start(&id, Some(size), size)?;
            texts.push((name, text));
        }
    }
    Ok(texts)
}
