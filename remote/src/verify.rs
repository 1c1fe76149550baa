//! Verifies a remote store.
//!
//! The verification lists refs, index and packs in this order, the reverse of the order in which a
//! push writes them. So the index has every commit of the refs that were read before.
//! [`verify::run_elsewhere`] of the engine does the rest on the mirror, which records the damage
//! ([`Mirror`]).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::Observer,
    },
    ops::verify::{self, Data, RemoteInventory, VerifyError, VerifyOptions, VerifyProblem},
    repo::ref_name::RefName,
    store::{RemoteFrames, Store, StoreError},
};

use crate::{
    bucket::PartialClone,
    peer::{ListedPacks, Mirror, RemoteError, RemoteStore, SettingsState},
    remote_packs::{BlockingContext, RemotePacks},
    transfer::is_before,
};

/// The result of a verification.
#[derive(Debug, Default)]
pub struct RemoteVerifyOutcome {
    /// Damaged or missing refs, settings and index files.
    pub problems: Vec<RemoteError>,
    /// The result for packs and structure.
    pub found: verify::VerifyOutcome,
    /// The objects that the store may lack, if it is a partial clone.
    pub partial: Option<PartialClone>,
    /// Branches that others have deleted or replaced, and whose last known commits garbage collection
    /// has deleted. They are not damaged.
    pub collected: Vec<CollectedRef>,
}

/// A branch whose last known commit garbage collection has deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedRef {
    pub name: RefName,
    /// The last known commit.
    pub seen: CommitId,
    /// The present commit; `None` if the branch was deleted.
    pub now: Option<CommitId>,
}

/// The last known commits of the branches of a remote store.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenRefs<'a> {
    pub refs: &'a [(RefName, CommitId)],
    /// The local store, which shows whether a branch moved back. Without it, a branch that moved away
    /// from a lost commit counts as damaged.
    pub history: Option<&'a Store>,
}

impl RemoteVerifyOutcome {
    /// Returns true if there are no problems.
    pub fn is_intact(&self) -> bool {
        self.problems.is_empty() && self.found.problems.is_empty()
    }
}

/// The responses to the first requests.
struct FirstReplies {
    tips: Vec<CommitId>,
    /// Last known commits of refs that the remote store still has.
    seen: Vec<CommitId>,
    lengths: HashMap<PackId, u64>,
    /// Where the packs were listed.
    place: String,
    problems: Vec<RemoteError>,
    /// Branches whose last known commits a collection has deleted, if they did not move back.
    gone: Vec<CollectedRef>,
}

/// Verifies the remote store, and records damage in its mirror, so that the next push uploads lost
/// objects again. Writes nothing to the remote store. Blocks; must not be called on a thread of the runtime.
///
/// # Errors
/// [`RemoteError::NoStore`]; other errors if a request fails. Damage is in the outcome.
pub fn run(
    remote: RemoteStore,
    options: &VerifyOptions,
    seen: SeenRefs<'_>,
    waiting: &BlockingContext,
    observer: &dyn Observer,
) -> Result<RemoteVerifyOutcome, RemoteError> {
    let mut remote = remote.keep_mirror();
    remote.remove_damaged_stubs()?;
    let history = seen.history;
    let asking = request_first(&mut remote, options.data, seen.refs, observer);
    let FirstReplies { tips, seen, lengths, place, mut problems, gone } =
        waiting.block_on(asking)?;
    // Not on a thread of the runtime: a partial clone fetches the commits that it reads.
    let (back, collected): (Vec<_>, Vec<_>) =
        gone.into_iter().partition(|gone| moved_back(history, gone.now, gone.seen));
    problems.extend(back.into_iter().map(|CollectedRef { name, seen, .. }| {
        RemoteError::RolledBack {
            name: Box::new(name),
            location: remote.place().location().to_owned(),
            seen,
        }
    }));
    let partial = waiting.block_on(remote.place().peer().partial_clone())?;
    let packs = RemotePacks::forgetful(&remote, waiting.clone());
    let dir = remote.mirror().store().dir().to_owned();
    let stubs = remote.into_store().with_remote_frames(Arc::new(packs.clone()));
    let source: &dyn RemoteFrames = &packs;
    let none = HashSet::new();
    let there = RemoteInventory {
        at_origin: partial.as_ref().map_or(&none, |partial| &partial.objects),
        tips: &tips,
        seen: &seen,
        lengths: &lengths,
        source,
        identity: &place,
    };
    let found = verify::run_elsewhere(&stubs, &there, options, observer);
    let mut found = found.map_err(|error| match error {
        VerifyError::Ref(error) => error.into(),
        VerifyError::Store(error) => error.into(),
        VerifyError::Blocked(blocked) => blocked.into(),
        error => RemoteError::Repair(Box::new(error)),
    })?;
    found.partial_packs = partial.as_ref().map_or(0, |partial| partial.packs);
    let outcome = RemoteVerifyOutcome { problems, found, partial, collected };
    let is_known = outcome.problems.is_empty() && outcome.found.problems.iter().all(is_shadowed);
    Mirror::record_completeness(&dir, stubs.disk(), is_known)?;
    Ok(outcome)
}

/// Returns true if the shadows record the problem, because it concerns objects in listed packs.
fn is_shadowed(problem: &VerifyProblem) -> bool {
    match problem {
        VerifyProblem::PackLost { .. }
        | VerifyProblem::PackLength { .. }
        | VerifyProblem::PackHash { .. }
        | VerifyProblem::Pack { .. }
        | VerifyProblem::Frame { .. } => true,
        VerifyProblem::Object { source, .. } => !matches!(source, StoreError::Missing { .. }),
        _ => false,
    }
}

async fn request_first(
    remote: &mut RemoteStore,
    data: Data,
    seen: &[(RefName, CommitId)],
    observer: &dyn Observer,
) -> Result<FirstReplies, RemoteError> {
    let mut problems = Vec::new();
    // Read the settings themselves: the mirror may describe a store that is gone.
    match remote.settings().await? {
        SettingsState::Usable => {}
        SettingsState::Damaged(error) => problems.push(error),
        SettingsState::Missing => problems.push(lost_settings(remote).await?),
    }
    let (refs, damaged) = remote.place().stored_refs().await?;
    let is_read = |name: &RefName| damaged.iter().all(|(other, _)| other != name);
    let mut seen: Vec<_> = seen.iter().filter(|(name, _)| is_read(name)).collect();
    problems.extend(damaged.into_iter().map(|(_, error)| error));
    problems.extend(remote.place().blocked_refs(&refs).into_iter().map(|(_, error)| error));
    problems.extend(remote.place().peer().name_problems(observer).await?);
    problems.extend(remote.place().head_problem(&refs).await?);
    problems.extend(remote.place().peer().collection_problem().await?);
    problems.extend(remote.refresh_around_damage(data == Data::All).await?);
    // A deleted ref has a tombstone, and its last commit stays.
    seen.retain(|(name, at)| refs.iter().all(|other| other != &(name.clone(), *at)));
    let (mut seen_there, mut gone) = (Vec::new(), Vec::new());
    for (name, seen) in seen {
        let is_there = remote.mirror().has(&seen.object())?;
        if is_there {
            seen_there.push(*seen);
        }
        let (name, seen) = (name.clone(), *seen);
        let location = remote.place().location().to_owned();
        let slot = remote.place().any_slot(&name).await?;
        if slot.is_lost() {
            problems.push(RemoteError::RefLost { name: Box::new(name), location, seen });
        } else if !is_there && remote.was_collected() {
            gone.push(CollectedRef { name, seen, now: slot.commit });
        } else if !is_there {
            problems.push(RemoteError::RolledBack { name: Box::new(name), location, seen });
        }
    }
    let (mut lengths, place) = pack_lengths(remote).await?;
    let is_any_lost =
        remote.mirror().store().packs().iter().any(|id: &PackId| !lengths.contains_key(id));
    if is_any_lost && remote.place().peer().is_overtaken(remote.known()).await? {
        // A collection has deleted packs since the index was read.
        remote.place().peer().learn_epoch(remote.known()).await?;
        problems.extend(remote.refresh_around_damage(false).await?);
        lengths = pack_lengths(remote).await?.0;
    }
    let tips = refs.into_iter().map(|(_, id)| id).collect();
    Ok(FirstReplies { tips, seen: seen_there, lengths, place, problems, gone })
}

/// Returns those branches whose last known commits garbage collection has deleted, after others deleted
/// or moved them. Reads the refs and the index again.
///
/// # Errors
/// [`RemoteError`] if a request fails.
pub async fn collected_refs(
    remote: &mut RemoteStore,
    SeenRefs { refs, history }: SeenRefs<'_>,
) -> Result<Vec<CollectedRef>, RemoteError> {
    remote.refresh().await?;
    let mut collected = Vec::new();
    for (name, seen) in refs {
        let now = remote.place().any_slot(name).await?.commit;
        // A pack there may still have a commit that a collection has found dead.
        let is_dead = match history {
            Some(store) => {
                store.is_found_dead(&seen.object()) && !store.is_alive(&seen.object())?
            }
            None => false,
        };
        let is_there = now == Some(*seen) || !is_dead && remote.mirror().has(&seen.object())?;
        if !is_there && remote.was_collected() && !moved_back(history, now, *seen) {
            collected.push(CollectedRef { name: name.clone(), seen: *seen, now });
        }
    }
    Ok(collected)
}

/// Returns true if a branch moved from `seen` to an ancestor, or may have: someone may have put back an
/// older copy of the remote store. A deleted branch did not. A partial clone, which may not be able to
/// read the history any more, knows the ids of all ancestors.
fn moved_back(history: Option<&Store>, now: Option<CommitId>, seen: CommitId) -> bool {
    let Some(now) = now else { return false };
    let Some(store) = history else { return true };
    // The caller may run on the runtime, where it cannot fetch.
    let _pause = store.pause_fetching();
    match is_before(store, now, seen) {
        Ok(is_before) => is_before,
        // A partial clone lacks the history of `seen`, and after a collection no remote has it.
        Err(StoreError::Absent { .. }) => false,
        Err(_) if store.is_found_dead(&seen.object()) => false,
        Err(_) => store.knows(&now).unwrap_or(true),
    }
}

/// Lists the packs with their lengths. Also returns where they were listed.
async fn pack_lengths(remote: &RemoteStore) -> Result<(HashMap<PackId, u64>, String), RemoteError> {
    let ListedPacks { packs, place } = remote.place().peer().packs().await?;
    Ok((packs.into_iter().map(|pack| (pack.id, pack.bytes)).collect(), place))
}

/// Returns the problem of a store without settings, or the error that there is no store.
async fn lost_settings(remote: &RemoteStore) -> Result<RemoteError, RemoteError> {
    let location = remote.place().location().to_owned();
    let has_index = !remote.place().peer().list_index().await?.files.is_empty();
    if has_index || !remote.place().peer().refs().await?.is_empty() {
        return Ok(RemoteError::NoSettings { location });
    }
    Err(match remote.mirror().was_seen() {
        true => RemoteError::Emptied { location },
        false => RemoteError::NoStore { location },
    })
}
