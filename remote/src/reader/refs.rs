//! Fetches the needed refs, and writes them as files into a scratch folder.

use std::path::Path;

use snap_core::{
    base::{
        id::{CommitId, IdPrefix},
        io::PathError,
    },
    format::ref_text::RefText,
    repo::{
        ref_name::{RefKind, RefName},
        spec::names,
    },
};

use super::RefSelection;
use crate::peer::{
    RemoteError, RemoteStore, StoreLookup,
    all_refs::{first_branch, likely_branch},
};

/// Commits that the index should contain. `None` stands for a commit that only the index
/// can resolve, such as the prefix of an id.
type BaseCommits = Vec<Option<CommitId>>;

/// The result of looking up a revision in the remote.
enum RefLookup {
    /// The revision starts from this commit, which the index should contain.
    Ref(CommitId),
    /// The revision is this id, or with `None` may be the prefix of one.
    Id(Option<CommitId>),
    /// The revision names nothing.
    Nothing,
}

/// Fetches refs, and the index files for the commits that the refs point at.
pub(super) async fn fetch_refs(
    remote: &mut RemoteStore,
    which: RefSelection<'_>,
    folder: &Path,
) -> Result<(), RemoteError> {
    write(&folder.join("HEAD"), format!("ref: {}\n", first_branch()))?;
    if remote.mirror().was_seen() {
        // The mirror has most of the index, so list the index only if a commit is unknown.
        let bases = fetch_named_refs(remote, which, folder).await?;
        if bases.is_empty() {
            // The store may be gone, for example because its disk is not mounted.
            remote.place().must_exist().await?;
        }
        return refresh_for(remote, &bases).await;
    }
    let there = &*remote;
    let (found, bases, listed) =
        futures::try_join!(there.find_store(), fetch_named_refs(there, which, folder), async {
            // Ignore an error of the listing if the store does not exist.
            Ok(there.place().peer().list_index().await)
        })?;
    match found {
        StoreLookup::Missing => {
            Err(RemoteError::NoStore { location: remote.place().location().to_owned() })
        }
        StoreLookup::Store => {
            remote.take_in_listed(listed?).await?;
            // The listing may be older than the commits that the refs point at.
            let named: BaseCommits = bases.into_iter().filter(Option::is_some).collect();
            refresh_for(remote, &named).await
        }
    }
}

/// Reads the new files of the index unless the mirror has all these commits.
async fn refresh_for(remote: &mut RemoteStore, bases: &BaseCommits) -> Result<(), RemoteError> {
    for base in bases {
        let is_known = match base {
            Some(id) => remote.mirror().has(&id.object())?,
            None => false,
        };
        if !is_known {
            return remote.refresh().await;
        }
    }
    Ok(())
}

/// Fetches refs and returns the commits that they point at.
async fn fetch_named_refs(
    remote: &RemoteStore,
    which: RefSelection<'_>,
    folder: &Path,
) -> Result<BaseCommits, RemoteError> {
    let RefSelection::Revisions(revisions) = which else {
        return fetch_all_refs(remote, folder).await;
    };
    let mut bases = BaseCommits::new();
    for texts in revisions {
        match fetch_ref(remote, texts, folder).await? {
            RefLookup::Ref(id) => bases.push(Some(id)),
            RefLookup::Id(id) => bases.push(id),
            // Fetch all refs, so that the error can suggest similar names.
            RefLookup::Nothing => bases.extend(fetch_all_refs(remote, folder).await?),
        }
    }
    Ok(bases)
}

async fn fetch_all_refs(remote: &RemoteStore, folder: &Path) -> Result<BaseCommits, RemoteError> {
    let (branch, refs) =
        futures::try_join!(remote.place().default_branch(), remote.place().all_refs())?;
    write(&folder.join("HEAD"), format!("ref: {branch}\n"))?;
    let mut bases = BaseCommits::new();
    for (name, id) in refs {
        write_ref(folder, &name, id)?;
        bases.push(Some(id));
    }
    Ok(bases)
}

/// Fetches the ref of one revision: the first of `texts` that exists. The order is that of
/// resolving the revision.
async fn fetch_ref(
    remote: &RemoteStore,
    texts: &[&str],
    folder: &Path,
) -> Result<RefLookup, RemoteError> {
    let mut learnt = RefLookup::Nothing;
    for text in texts {
        if matches!(*text, "HEAD" | "latest") {
            return fetch_head(remote, folder).await;
        }
        if let Ok(id) = text.parse::<CommitId>() {
            return Ok(RefLookup::Id(Some(id)));
        }
        // Remote stores have only branches and tags, and the protocol of a snap server has
        // only these.
        let is_shared = |name: &RefName| matches!(name.kind(), RefKind::Branch | RefKind::Tag);
        for name in names(text).into_iter().filter(is_shared) {
            if let Some(standing) = remote.place().read_ref(&name).await? {
                write_ref(folder, &name, standing)?;
                return Ok(match learnt {
                    RefLookup::Nothing => RefLookup::Ref(standing),
                    // Only the index tells whether an earlier text names a commit.
                    is_id => is_id,
                });
            }
        }
        if IdPrefix::parse(text).is_some() {
            learnt = RefLookup::Id(None);
        }
    }
    Ok(learnt)
}

async fn fetch_head(remote: &RemoteStore, folder: &Path) -> Result<RefLookup, RemoteError> {
    // The default branch is most likely this one; then both responses take one round trip.
    let likely = first_branch();
    let (branch, standing) =
        futures::try_join!(remote.place().default_branch(), remote.place().read_ref(&likely))?;
    let standing =
        if branch == likely { standing } else { remote.place().read_ref(&branch).await? };
    let (branch, standing) = match standing {
        Some(standing) => (branch, Some(standing)),
        // The same choice of a branch as in a clone.
        None => match likely_branch(&remote.place().readable_refs().await?.0) {
            Some(likely) => (likely.clone(), remote.place().read_ref(&likely).await?),
            None => (branch, None),
        },
    };
    write(&folder.join("HEAD"), format!("ref: {branch}\n"))?;
    // Resolving the revision reports a branch without commits.
    let Some(standing) = standing else { return Ok(RefLookup::Nothing) };
    write_ref(folder, &branch, standing)?;
    Ok(RefLookup::Ref(standing))
}

fn write_ref(folder: &Path, name: &RefName, id: CommitId) -> Result<(), RemoteError> {
    let file = name.file(folder);
    if let Some(above) = file.parent() {
        fs_err::create_dir_all(above).map_err(PathError::when("create", above))?;
    }
    write(&file, RefText::new(Some(id)).encode())
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), RemoteError> {
    fs_err::write(path, text).map_err(PathError::when("write", path))?;
    Ok(())
}
