//! Refs elsewhere, as far as they are needed, as files of a scratch folder.

use std::path::Path;

use snap_core::{
    base::{
        id::{CommitId, Prefix},
        io::PathError,
    },
    format::ref_text::RefText,
    repo::{
        ref_name::{RefKind, RefName},
        spec::{bases, names},
    },
};

use super::Which;
use crate::store::{Found, INDEX, RemoteError, RemoteStore, heads::first_branch};

/// Commits that the index should know; `None` for what only it can tell.
type Bases = Vec<Option<CommitId>>;

/// What was learnt of a revision.
enum Learnt {
    /// It stands on commits that the index should know.
    Ref(CommitId),
    /// It is, or may be, (the start of) an id.
    Id(Option<CommitId>),
    /// It names nothing.
    Nothing,
}

/// Learns where refs stand, and what of the index is needed to read them.
pub(super) async fn learn(
    remote: &mut RemoteStore,
    which: Which<'_>,
    folder: &Path,
) -> Result<(), RemoteError> {
    write(folder, "HEAD", &format!("ref: {}\n", first_branch()))?;
    if remote.mirror().was_seen() {
        // Only what is not known yet has to be listed.
        let bases = learn_refs(remote, which, folder).await?;
        return refresh_for(remote, &bases).await;
    }
    let there = &*remote;
    let (found, bases, listed) =
        futures::try_join!(there.look(), learn_refs(there, which, folder), async {
            // Of a store that is not there nothing is listed.
            Ok(there.client().list(INDEX).await)
        })?;
    match found {
        Found::Nothing => Err(RemoteError::NoStore { location: remote.location().to_owned() }),
        Found::Store => {
            remote.take_in_listed(listed?).await?;
            // The listing may be older than what the refs stand on.
            let named: Bases = bases.into_iter().filter(Option::is_some).collect();
            refresh_for(remote, &named).await
        }
    }
}

/// Reads what is new in the index unless it knows all these.
async fn refresh_for(remote: &mut RemoteStore, bases: &Bases) -> Result<(), RemoteError> {
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

/// Learns where refs stand, and on what.
async fn learn_refs(
    remote: &RemoteStore,
    which: Which<'_>,
    folder: &Path,
) -> Result<Bases, RemoteError> {
    let Which::Of(specs) = which else { return learn_all(remote, folder).await };
    let mut bases = Bases::new();
    for spec in specs {
        match learn_one(remote, spec, folder).await? {
            Learnt::Ref(id) => bases.push(Some(id)),
            Learnt::Id(id) => bases.push(id),
            // For names that are much like it.
            Learnt::Nothing => bases.extend(learn_all(remote, folder).await?),
        }
    }
    Ok(bases)
}

async fn learn_all(remote: &RemoteStore, folder: &Path) -> Result<Bases, RemoteError> {
    let (branch, refs) = futures::try_join!(remote.default_branch(), remote.all_refs())?;
    write(folder, "HEAD", &format!("ref: {branch}\n"))?;
    let mut bases = Bases::new();
    for (name, id) in refs {
        write_ref(folder, &name, id)?;
        bases.push(Some(id));
    }
    Ok(bases)
}

/// In the order in which it will be resolved.
async fn learn_one(
    remote: &RemoteStore,
    spec: &[u8],
    folder: &Path,
) -> Result<Learnt, RemoteError> {
    let mut learnt = Learnt::Nothing;
    for base in bases(spec) {
        if matches!(base, "HEAD" | "latest") {
            return learn_head(remote, folder).await;
        }
        if let Ok(id) = base.parse::<CommitId>() {
            return Ok(Learnt::Id(Some(id)));
        }
        // Elsewhere there are no others, and a server has no words for those.
        let is_shared = |name: &RefName| matches!(name.kind(), RefKind::Branch | RefKind::Tag);
        for name in names(base).into_iter().filter(is_shared) {
            if let Some(standing) = remote.standing(&name).await? {
                write_ref(folder, &name, standing.commit)?;
                return Ok(Learnt::Ref(standing.commit));
            }
        }
        if Prefix::parse(base).is_some() {
            learnt = Learnt::Id(None);
        }
    }
    Ok(learnt)
}

async fn learn_head(remote: &RemoteStore, folder: &Path) -> Result<Learnt, RemoteError> {
    // Most likely it is the first, and then it is one wait instead of two.
    let likely = first_branch();
    let (branch, standing) = futures::try_join!(remote.default_branch(), remote.standing(&likely))?;
    write(folder, "HEAD", &format!("ref: {branch}\n"))?;
    let standing = if branch == likely { standing } else { remote.standing(&branch).await? };
    // A branch without commits is said so when it is resolved.
    let Some(standing) = standing else { return Ok(Learnt::Id(None)) };
    write_ref(folder, &branch, standing.commit)?;
    Ok(Learnt::Ref(standing.commit))
}

fn write_ref(folder: &Path, name: &RefName, id: CommitId) -> Result<(), RemoteError> {
    let file = name.file(folder);
    if let Some(above) = file.parent() {
        fs_err::create_dir_all(above).map_err(PathError::when("create", above))?;
    }
    let text = RefText::new(Some(id)).encode();
    fs_err::write(&file, text).map_err(PathError::when("write", &file))?;
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), RemoteError> {
    let path = folder.join(name);
    fs_err::write(&path, text).map_err(PathError::when("write", &path))?;
    Ok(())
}
