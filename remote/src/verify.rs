//! Verify: is a store elsewhere whole?
//!
//! Refs, index and packs are listed, in this order, since a push writes them in
//! the other one: whatever a ref that was read stands on is in the index that is
//! read after it. The rest is done by [`verify::run_elsewhere`] of the engine,
//! on the mirror, which then knows what is damaged or lost ([`Mirror`]).

use std::{collections::HashMap, sync::Arc};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        kind::ErrorKind,
        observe::Observer,
    },
    ops::verify::{self, Data, Elsewhere, Options, Problem, VerifyError},
    repo::ref_name::RefName,
    store::{Distant, StoreError},
};

use crate::{
    distant::{Contents, RemotePacks, Waiting},
    store::{INDEX, Mirror, OBJECTS, REFS, RemoteError, RemoteStore, Settings},
};

/// What was found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Refs and files of the index that are damaged or missing.
    pub problems: Vec<RemoteError>,
    /// The outcome for packs and structure.
    pub found: verify::Outcome,
}

impl Outcome {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty() && self.found.problems.is_empty()
    }
}

/// What is asked before anything is walked.
struct Asked {
    tips: Vec<CommitId>,
    lengths: HashMap<PackId, u64>,
    problems: Vec<RemoteError>,
}

/// Checks the store elsewhere. Damage is noted in its mirror: the next push sends
/// again what it can. Nothing is written there. `seen` says where refs stood when they were last
/// seen. Waits; not to be called by a thread of the runtime.
///
/// # Errors
/// [`RemoteError::NoStore`]; others when it cannot be asked. Damage is in the
/// outcome.
pub fn run(
    remote: RemoteStore,
    (options, seen): (&Options, &[(RefName, CommitId)]),
    (waiting, observer): (&Waiting, &dyn Observer),
) -> Result<Outcome, RemoteError> {
    let mut remote = remote.kept();
    let asking = waiting.unless_stopped(ask(&mut remote, options.data, seen));
    let Asked { tips, lengths, problems } = waiting.runtime.block_on(asking)?;
    let (client, location, mirror) = remote.into_parts();
    let packs = RemotePacks::of(client, location, waiting.clone());
    let packs = packs.with_contents(Contents::Forget);
    let dir = mirror.store().dir().to_owned();
    let stubs = mirror.into_store().with_distant(Arc::new(packs.clone()));
    let source: &dyn Distant = &packs;
    let there = Elsewhere { tips: &tips, lengths: &lengths, source };
    let found = verify::run_elsewhere(&stubs, &there, options, observer);
    let found = found.map_err(|error| match error {
        VerifyError::Ref(error) => error.into(),
        VerifyError::Store(error) => error.into(),
        // So is every error that is not known yet.
        _ => RemoteError::Interrupted,
    })?;
    let outcome = Outcome { problems, found };
    let is_known = outcome.problems.is_empty() && outcome.found.problems.iter().all(is_shadowed);
    Mirror::note_whole(&dir, stubs.disk(), is_known)?;
    Ok(outcome)
}

/// Whether the shadows say what a problem is about: the objects that it concerns
/// lie in packs that the index names.
fn is_shadowed(problem: &Problem) -> bool {
    match problem {
        Problem::PackLost { .. }
        | Problem::PackLength { .. }
        | Problem::PackHash { .. }
        | Problem::Pack { .. }
        | Problem::Frame { .. } => true,
        Problem::Object { source, .. } => !matches!(source, StoreError::Missing { .. }),
        _ => false,
    }
}

async fn ask(
    remote: &mut RemoteStore,
    data: Data,
    seen: &[(RefName, CommitId)],
) -> Result<Asked, RemoteError> {
    let mut problems = Vec::new();
    // What is known may be of a store that is gone.
    match remote.settings().await? {
        Settings::Usable => {}
        Settings::Unusable(error) => problems.push(error),
        Settings::Lost => problems.push(lost_settings(remote).await?),
    }
    let (refs, damaged) = remote.readable_refs().await?;
    let is_read = |name: &RefName| damaged.iter().all(|(other, _)| other != name);
    let mut seen: Vec<_> = seen.iter().filter(|(name, _)| is_read(name)).collect();
    problems.extend(damaged.into_iter().map(|(_, error)| error));
    match remote.default_branch().await {
        Err(error) if error.kind() == ErrorKind::Damaged => problems.push(error),
        other => drop(other?),
    }
    problems.extend(remote.refresh_around_damage(data == Data::All).await?);
    // One that is deleted says so, and what it stood at stays.
    seen.retain(|(name, at)| refs.iter().all(|other| other != &(name.clone(), *at)));
    for (name, seen) in seen {
        let (name, seen) = (Box::new(name.clone()), *seen);
        let location = remote.location().to_owned();
        if !remote.any_slot(&name).await?.is_there() && !remote.client().keeps_index() {
            problems.push(RemoteError::RefLost { name, location, seen });
        } else if !remote.mirror().has(&seen.object())? {
            problems.push(RemoteError::RolledBack { name, location, seen });
        }
    }
    let listed = remote.client().list(OBJECTS).await?;
    let lengths = listed.into_iter().filter_map(|object| {
        let id = object.key.strip_prefix(OBJECTS)?.parse().ok()?;
        Some((id, object.bytes))
    });
    let tips = refs.into_iter().map(|(_, id)| id).collect();
    Ok(Asked { tips, lengths: lengths.collect(), problems })
}

/// What is wrong with a store without settings, if there is one.
async fn lost_settings(remote: &RemoteStore) -> Result<RemoteError, RemoteError> {
    let location = remote.location().to_owned();
    for prefix in [INDEX, REFS] {
        if !remote.client().list(prefix).await?.is_empty() {
            return Ok(RemoteError::NoSettings { location });
        }
    }
    Err(match remote.mirror().was_seen() {
        true => RemoteError::Emptied { location },
        false => RemoteError::NoStore { location },
    })
}
