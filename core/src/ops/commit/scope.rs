//! A commit of a partial clone: which paths of its folder update the commit
//! before.

use std::path::Path;

use crate::{
    base::{limits, name::EntryName},
    local::{ignore::Scope, scan::FileKind, visible::join},
    ops::commit::{
        CommitError,
        job::Job,
        paths::{Item, Items, Named, Present, present},
    },
    repo::scope::ScopePath,
};

/// The items of a partial clone's folder: the paths of its scope, and what else
/// is there; and what the folder holds. Folders outside the scope may lack files
/// of the commit before.
pub(super) fn items_in_scope(
    job: &Job<'_>,
    root: &Path,
    scope: &[ScopePath],
) -> Result<(Items, Present), CommitError> {
    let (mut items, root_present) = found_items(job, (root, &Scope::default()), b"", scope)?;
    for names in scope {
        let mut at = &mut items;
        let mut path = root.to_owned();
        for (depth, name) in names.iter().enumerate() {
            path.push(name.as_os_str());
            let is_last = depth + 1 == names.len();
            let item = at.entry(name.clone()).or_insert_with(|| match is_last {
                true => Item::Real(path.clone(), Named::Found),
                false => Item::Way(path.clone(), Items::new(), None),
            });
            match item {
                Item::Way(_, below, _) if !is_last => at = below,
                // A path of the scope that lies in another one, or a file.
                _ => break,
            }
        }
    }
    Ok((items, root_present))
}

/// Lists a folder outside the scope, and the folders below it.
fn found_items(
    job: &Job<'_>,
    (path, above): (&Path, &Scope),
    inside: &[u8],
    scope: &[ScopePath],
) -> Result<(Items, Present), CommitError> {
    let mut items = Items::new();
    let here = present(job, path, above, inside)?;
    let Some(visible) = &here.visible else { return Ok((items, here)) };
    let depth = inside.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).count();
    for entry in &visible.listing.entries {
        let Ok(name) = EntryName::new(visible.listing.name(entry)) else { continue };
        let (path, inside) = (path.join(name.as_os_str()), join(inside, name.as_bytes()));
        let names: Vec<&[u8]> = inside.split(|byte| *byte == b'/').collect();
        let is_in_scope = scope.iter().any(|scope| {
            scope.len() <= names.len()
                && scope.iter().zip(&names).all(|(wanted, name)| wanted.as_bytes() == *name)
        });
        let is_folder = entry.stat.kind == FileKind::Folder;
        let item = match is_folder && !is_in_scope && depth < limits::DEPTH {
            true => {
                match found_items(job, (&path, &visible.scope), &inside, scope) {
                    Ok((below, present)) => Item::Way(path, below, Some(present)),
                    // What the commit before has there is kept.
                    Err(CommitError::Source { source, .. }) => {
                        job.skip(&inside, &path, &source);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            false => Item::Real(path, Named::Found),
        };
        items.insert(name, item);
    }
    Ok((items, here))
}
