//! Push: what the other side lacks goes there, then a ref moves.
//!
//! ```text
//! look, read the ref, list the index          at once
//! what is wanted and not there                from the mirror, no request
//! packs                                       many at a time
//! their outlines                              one object: now they count
//! the ref                                     compare-and-swap
//! ```
//!
//! Interrupted at any point, what arrived is found again by its name: packs
//! are named by their bytes, and a note here says that some may be there.

use std::{collections::HashMap, path::Path};

use bytes::Bytes;
use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        io::PathError,
        observe::{Observer, Phase},
    },
    ops::select::{Gather, Selection},
    repo::{
        Head, Repo,
        ref_name::{RefKind, RefName},
    },
};
use tokio::{runtime::Handle, task::JoinSet};

use super::is_before;
use crate::{
    service::{ServiceError, When},
    store::{Found, OBJECTS, RemoteError, RemoteStore, heads, refs::Standing},
};

/// Bytes of packs that are held while they go up.
const BYTES_AT_ONCE: u64 = 96 << 20;

/// What may be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Move {
    /// A ref goes forward only.
    #[default]
    Forward,
    /// A ref goes wherever it is told to.
    Force,
}

/// Choices.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Which ref there is to move.
    pub name: RefName,
    /// Where to.
    pub commit: CommitId,
    /// What may be moved.
    pub moves: Move,
    /// Where a scratch folder may be made.
    pub scratch: &'a Path,
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Where the ref stood before.
    pub before: Option<CommitId>,
    /// Objects that were sent.
    pub objects: u64,
    /// Their bytes, uncompressed.
    pub raw_bytes: u64,
    /// Bytes of packs that were sent.
    pub sent_bytes: u64,
    /// Packs that were sent.
    pub packs: u64,
    /// Packs that had arrived before.
    pub resumed: u64,
}

/// Brings `options.commit` to the store elsewhere, and moves the ref there.
///
/// # Errors
/// [`RemoteError`]; the ref there has then not moved, unless the error is that
/// its answer was lost.
pub fn run(
    repo: &Repo,
    remote: &mut RemoteStore,
    options: &Options<'_>,
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<Outcome, RemoteError> {
    let standing = runtime.block_on(prepare(repo, remote, &options.name))?;
    let before = standing.as_ref().map(|standing| standing.commit);
    let mut outcome = Outcome { before, ..Outcome::default() };
    if before == Some(options.commit) {
        return Ok(outcome);
    }
    if options.moves == Move::Forward {
        check_forward(repo, remote, options, before)?;
    }
    let _hold = repo.store().hold_packs()?;
    let gather = Gather { scratch: options.scratch, level: repo.config().compression.level };
    let mirror = remote.mirror().store();
    let has = |id: &ObjectId| Ok(mirror.locate(id)?.is_some());
    let selection = Selection::make(repo.store(), &[options.commit], &has, gather, observer)?;
    outcome.objects = selection.objects;
    outcome.raw_bytes = selection.raw_bytes;
    if selection.objects > 0 {
        runtime.block_on(send(remote, &selection, &mut outcome, observer))?;
        let packs = selection.packs();
        let outlines: Result<Vec<_>, _> =
            packs.iter().map(|(store, id)| store.outline(id)).collect();
        runtime.block_on(remote.publish(&outlines?))?;
    }
    if observer.cancelled() {
        return Err(RemoteError::Interrupted);
    }
    runtime.block_on(remote.swap(&options.name, standing.as_ref(), options.commit))?;
    Ok(outcome)
}

/// Looks at the store elsewhere, and makes one where there is none.
async fn prepare(
    repo: &Repo,
    remote: &mut RemoteStore,
    name: &RefName,
) -> Result<Option<Standing>, RemoteError> {
    let (found, standing) = futures::join!(remote.look(), remote.standing(name));
    match found? {
        Found::Nothing => {
            let branch = match repo.refs().head()? {
                Head::Branch(branch) => branch,
                Head::Detached(_) if name.kind() == RefKind::Branch => name.clone(),
                Head::Detached(_) => heads::first_branch(),
            };
            remote.create(&repo.config().to_text(), &branch).await?;
        }
        // A ref that stands where it shall needs no look at the index.
        Found::Store => remote.refresh().await?,
    }
    standing
}

fn check_forward(
    repo: &Repo,
    remote: &RemoteStore,
    options: &Options<'_>,
    before: Option<CommitId>,
) -> Result<(), RemoteError> {
    let Some(theirs) = before else { return Ok(()) };
    let (name, location) = (Box::new(options.name.clone()), remote.location().to_owned());
    if repo.store().locate(&theirs.object())?.is_none() {
        return Err(RemoteError::Behind { name, location, theirs });
    }
    match is_before(repo.store(), theirs, options.commit)? {
        true => Ok(()),
        false => Err(RemoteError::Diverged { name, location, theirs }),
    }
}

/// Sends the packs of a selection, many at a time.
async fn send(
    remote: &RemoteStore,
    selection: &Selection<'_>,
    outcome: &mut Outcome,
    observer: &dyn Observer,
) -> Result<(), RemoteError> {
    let paths = selection.paths();
    let arrived = match remote.mirror().may_have_sent() {
        true => sizes(remote).await?,
        false => HashMap::new(),
    };
    remote.mirror().remember_sending();
    let mut total = 0;
    let mut waiting = Vec::new();
    for (id, path) in paths {
        let meta = fs_err::metadata(&path).map_err(PathError::when("stat", &path))?;
        if arrived.get(&id.to_string()) == Some(&meta.len()) {
            outcome.resumed += 1;
            continue;
        }
        total += meta.len();
        waiting.push((id, path, meta.len()));
    }
    observer.phase(Phase::Send, Some(total));
    let mut tasks: JoinSet<Result<u64, Sent>> = JoinSet::new();
    let (mut held, mut waiting) = (0, waiting.into_iter().peekable());
    loop {
        while let Some((id, path, bytes)) =
            waiting.next_if(|(_, _, bytes)| tasks.is_empty() || held + bytes <= BYTES_AT_ONCE)
        {
            held += bytes;
            let client = remote.client().clone();
            tasks.spawn(async move {
                let read = tokio::task::spawn_blocking(move || {
                    fs_err::read(&path).map_err(PathError::when("read", &path))
                });
                let body = Bytes::from(read.await.expect("reading does not panic")?);
                client.write(&format!("{OBJECTS}{id}"), body, When::Always).await?;
                Ok(bytes)
            });
        }
        let Some(done) = tasks.join_next().await else { return Ok(()) };
        let bytes = done.expect("sending does not panic").map_err(|error| match error {
            Sent::Disk(error) => RemoteError::from(error),
            Sent::Service(error) => error.into(),
        })?;
        held -= bytes;
        outcome.sent_bytes += bytes;
        outcome.packs += 1;
        observer.advance(bytes, 0);
        if observer.cancelled() {
            return Err(RemoteError::Interrupted);
        }
    }
}

/// Why a pack did not arrive.
enum Sent {
    Disk(PathError),
    Service(ServiceError),
}

impl From<PathError> for Sent {
    fn from(error: PathError) -> Self {
        Self::Disk(error)
    }
}

impl From<ServiceError> for Sent {
    fn from(error: ServiceError) -> Self {
        Self::Service(error)
    }
}

/// Lengths of the packs that are there, whether or not they count yet.
async fn sizes(remote: &RemoteStore) -> Result<HashMap<String, u64>, RemoteError> {
    let listed = remote.client().list(OBJECTS).await?;
    let named = listed.into_iter().filter_map(|object| {
        let name = object.key.strip_prefix(OBJECTS)?.to_owned();
        name.parse::<PackId>().is_ok().then_some((name, object.bytes))
    });
    Ok(named.collect())
}
