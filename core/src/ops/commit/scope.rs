//! Determines which paths of a partial clone's folder update the previous commit.

use std::path::Path;

use crate::{
    base::{limits, name::EntryName},
    local::{ignore::IgnoreScope, scan::FileKind, visible::join},
    ops::commit::{
        CommitError,
        job::CommitJob,
        paths::{Items, ListedFolder, PathOrigin, VirtualEntry, joined, present},
    },
    repo::{path::is_within, scope::ScopePath},
};

/// Returns true if a path, relative to the root of the snapshot, lies in the scope.
pub(super) fn is_in_scope(scope: &[ScopePath], inside: &[u8]) -> bool {
    scope.iter().any(|wanted| is_within(inside, &joined(wanted)))
}

/// Returns true if a path of the scope lies below this path.
pub(super) fn reaches_below(scope: &[ScopePath], inside: &[u8]) -> bool {
    scope.iter().any(|wanted| below(wanted, inside).is_some_and(|names| !names.is_empty()))
}

/// Returns the names of a scope path below the folder `inside`.
fn below<'s>(wanted: &'s ScopePath, inside: &[u8]) -> Option<&'s [EntryName]> {
    let names = inside.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let mut rest = wanted.as_slice();
    for name in names {
        let (first, others) = rest.split_first()?;
        rest = (first.as_bytes() == name).then_some(others)?;
    }
    Some(rest)
}

/// Returns the items of a folder outside the scope, and the folder's listing. The items are the
/// scope paths below the folder and all entries that exist on disk. Folders outside the scope may
/// lack files of the previous commit.
pub(super) fn items_in_scope(
    job: &CommitJob<'_>,
    root: &Path,
    above: &IgnoreScope,
    inside: &[u8],
    scope: &[ScopePath],
) -> Result<(Items, ListedFolder), CommitError> {
    let (mut items, present) = found_items(job, root, above, inside, scope)?;
    for names in scope.iter().filter_map(|wanted| below(wanted, inside)) {
        let mut at = &mut items;
        let mut path = root.to_owned();
        for (depth, name) in names.iter().enumerate() {
            path.push(name.as_os_str());
            let is_last = depth + 1 == names.len();
            let item = at.entry(name.clone()).or_insert_with(|| match is_last {
                true => VirtualEntry::OnDisk(path.clone(), PathOrigin::Found),
                false => VirtualEntry::Intermediate(path.clone(), Items::new(), None),
            });
            match item {
                VirtualEntry::Intermediate(_, below, _) if !is_last => at = below,
                // A scope path that lies in another one, or a file in the place of a
                // folder.
                _ => break,
            }
        }
    }
    Ok((items, present))
}

/// Lists a folder outside the scope and its subfolders.
fn found_items(
    job: &CommitJob<'_>,
    path: &Path,
    above: &IgnoreScope,
    inside: &[u8],
    scope: &[ScopePath],
) -> Result<(Items, ListedFolder), CommitError> {
    let mut items = Items::new();
    let here = present(job, path, above, inside)?;
    let Some(visible) = &here.visible else { return Ok((items, here)) };
    let depth = inside.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).count();
    for entry in &visible.listing.entries {
        let Ok(name) = EntryName::new(visible.listing.name(entry)) else { continue };
        let (path, inside) = (path.join(name.as_os_str()), join(inside, name.as_bytes()));
        let is_folder = entry.stat.kind == FileKind::Folder;
        let item = match is_folder && !is_in_scope(scope, &inside) && depth < limits::DEPTH {
            true => {
                match found_items(job, &path, &visible.scope, &inside, scope) {
                    Ok((below, present)) => VirtualEntry::Intermediate(path, below, Some(present)),
                    // The snapshot keeps this folder's entries of the previous commit.
                    Err(CommitError::Source { source, .. }) => {
                        job.skip(&inside, &path, &source);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            false => VirtualEntry::OnDisk(path, PathOrigin::Found),
        };
        items.insert(name, item);
    }
    Ok((items, here))
}
