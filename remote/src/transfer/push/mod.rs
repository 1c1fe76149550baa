//! Push: uploads what the remote store lacks, then moves refs.
//!
//! ```text
//! 1  the refs, a listing of the index      meanwhile the packs are selected here
//! 2  packs                                 many concurrently; a new store gets
//!                                          its settings and first branch
//! 3  their outlines                        one object, which publishes the packs
//! 4  the refs                              compare-and-swap; superfluous files of
//!                                          the index are removed
//! ```
//!
//! Each step is one round trip if nothing unexpected happens. Nothing is sent before step 1 has shown
//! that a ref may move, and that this is the remote store that it was. On first contact with a location, the push looks for a store instead of listing the
//! index, and lists the index of an existing store in another round trip. If a snap server has
//! everything already, the push reads only the refs, and lists the index only if a ref moves.
//!
//! If the mirror knows of damage or loss in the remote store, or knows nothing yet, the push walks
//! everything that the commits reach. It uploads lost objects again under the names of their packs,
//! if the local store has these packs.
//!
//! The next push continues an interrupted one. The name of a pack is its hash, and gathering the
//! same objects gives the same bytes, so the push finds uploaded packs by name. The mirror
//! remembers that there may be some. Packs have about 64 MiB. Few of them are sent at a time: four to
//! a snap server, two in multipart uploads. After the connection to a snap server broke in the
//! middle of a pack, the push sends smaller packs, one at a time.
//!
//! Many small pushes leave many small packs. A push does not merge them; that is the task of
//! garbage collection.

mod choose;
mod moves;
mod outcome;
mod send;

use std::path::Path;

use snap_core::{
    base::{id::CommitId, limits, observe::Observer},
    ops::reach::ReachError,
    repo::{
        Repo,
        ref_name::{RefKind, RefName},
        refs::Head,
    },
    store::StoreError,
};
use tokio::runtime::Handle;

use self::{
    choose::PreparedPush,
    send::{relist, verify_replaced},
};
use crate::peer::{Mend, NewStore, RemoteError, RemoteStore, StoreLookup, slot};

pub use moves::delete;
pub use outcome::{PushOutcome, PushPlan, PushedRef};
pub use send::send_packs;
pub(crate) use send::upload;

/// The moves that a push may make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowedMove {
    /// The push may fast-forward a branch and create a tag.
    #[default]
    Forward,
    /// A ref may move to any commit.
    Force,
}

/// A requested move of a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefUpdate {
    /// The ref.
    pub name: RefName,
    /// The new commit.
    pub commit: CommitId,
    /// The allowed moves.
    pub moves: AllowedMove,
}

/// Options of a push.
#[derive(Clone, Debug)]
pub struct PushOptions<'a> {
    /// The refs to move.
    pub refs: Vec<RefUpdate>,
    /// Parent of the scratch folder of the push.
    pub scratch: &'a Path,
}

/// Uploads commits to the remote store, and moves refs there.
///
/// If a garbage collection begins meanwhile, looks everything up again that it relied on, and sends
/// what is to be deleted.
///
/// # Errors
/// [`RemoteError`] if the push failed as a whole, before any ref moved. An error of one ref is in
/// [`PushOutcome::refs`].
pub fn run(
    repo: &Repo,
    remote: &mut RemoteStore,
    options: &PushOptions<'_>,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<PushOutcome, RemoteError> {
    remote.must_be_another(repo.dir())?;
    runtime.block_on(remote.begin())?;
    let _hold = repo.store().pin_packs()?;
    let mut outcome = PushOutcome::default();
    // The positions of the refs that are still to be moved, in the order of the request.
    let mut left: Vec<usize> = (0..options.refs.len()).collect();
    let mut results: Vec<Option<PushedRef>> = left.iter().map(|_| None).collect();
    for round in 1..=limits::GC_ROUNDS {
        let refs = left.iter().map(|at| options.refs[*at].clone()).collect();
        let options = &PushOptions { refs, ..*options };
        let push = PushRun { repo, options, runtime, observer };
        let pushed = match push.run_once(remote, &mut outcome) {
            Err(error) if round < limits::GC_ROUNDS && is_passing(&error) => Vec::new(),
            pushed => pushed?,
        };
        let is_collected =
            |pushed: &PushedRef| matches!(pushed.result, Err(RemoteError::Collected { .. }));
        let positions = left.clone();
        for (at, pushed) in positions.into_iter().zip(pushed) {
            if round == limits::GC_ROUNDS || !is_collected(&pushed) {
                results[at] = Some(pushed);
                left.retain(|other| *other != at);
            }
        }
        if left.is_empty() {
            break;
        }
        runtime.block_on(remote.learn_collection())?;
    }
    outcome.refs = results.into_iter().flatten().collect();
    Ok(outcome)
}

/// Plans the work of [`run`]. Reads from the remote store; writes nothing to it.
///
/// # Errors
/// [`RemoteError`], like [`run`].
pub fn plan(
    repo: &Repo,
    remote: &mut RemoteStore,
    options: &PushOptions<'_>,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<PushPlan, RemoteError> {
    remote.must_be_another(repo.dir())?;
    let _hold = repo.store().pin_packs()?;
    let prepared = PushRun { repo, options, runtime, observer }.prepare(remote)?;
    let mut plan = PushPlan::default();
    if let Some(selection) = prepared.selection.filter(|selection| selection.objects > 0) {
        plan.objects = selection.objects;
        plan.raw_bytes = selection.raw_bytes;
        let packs = send::packs(&selection)?;
        for pack in packs.iter().filter(|pack| !pack.is_in(&prepared.uploaded)) {
            plan.packs += 1;
            plan.bytes += pack.bytes;
        }
    }
    let decided = options.refs.iter().zip(prepared.slots).zip(prepared.decisions);
    let decided = decided.map(|((update, slot), moved)| moved.into_pushed_ref(update, &slot));
    plan.refs = decided.collect();
    Ok(plan)
}

/// Returns true if a push may succeed after another look at the remote store: a collection has begun
/// there, or has deleted packs that the mirror listed.
fn is_passing(error: &RemoteError) -> bool {
    match error {
        RemoteError::Collected { .. } => true,
        RemoteError::Store(error) => matches!(**error, StoreError::Gone { .. }),
        RemoteError::Reach(error) => {
            matches!(**error, ReachError::Store(StoreError::Gone { .. }))
        }
        _ => false,
    }
}

#[derive(Clone, Copy)]
struct PushRun<'a> {
    repo: &'a Repo,
    options: &'a PushOptions<'a>,
    runtime: &'a Handle,
    observer: &'a dyn Observer,
}

impl PushRun<'_> {
    /// Pushes once. Returns an entry for each ref.
    ///
    /// # Errors
    /// [`RemoteError`]; [`RemoteError::Collected`] if a garbage collection began meanwhile, also in
    /// the entry of a ref.
    fn run_once(
        &self,
        remote: &mut RemoteStore,
        outcome: &mut PushOutcome,
    ) -> Result<Vec<PushedRef>, RemoteError> {
        let Self { repo, options, runtime, observer } = *self;
        let prepared = self.prepare(remote)?;
        let PreparedPush { slots, found, has_settings, selection, uploaded, mut decisions } =
            prepared;
        let mut selection = selection.filter(|selection| selection.objects > 0);
        if !has_settings {
            let settings = repo.config().to_text();
            outcome.mended.extend(runtime.block_on(remote.mend(Mend::Settings(&settings)))?);
        }
        if found == StoreLookup::Store && self.repairs(remote) {
            let pushed: Vec<_> = options.refs.iter().map(|update| &update.name).collect();
            let mend = Mend::Head { head: &self.head()?, pushed: &pushed };
            outcome.mended.extend(runtime.block_on(remote.mend(mend))?);
        }
        let new = match found {
            StoreLookup::Missing => {
                Some(NewStore { config: repo.config().to_text(), head: self.head()? })
            }
            StoreLookup::Store => None,
        };
        if let Some(selection) = &mut selection {
            outcome.objects += selection.objects;
            outcome.raw_bytes += selection.raw_bytes;
            outcome.sent_again += selection.lost;
            let sent = self.send(remote, new.as_ref(), selection, &uploaded)?;
            outcome.resumed += sent.resumed;
            outcome.packs += sent.packs;
            outcome.sent_bytes += sent.bytes;
            verify_replaced(remote, &sent.unchecked, runtime, observer)?;
            runtime.block_on(remote.place().peer().publish(remote.known(), selection.packs()))?;
            remote.mirror().clear_damage(&sent.unchecked)?;
        } else if let Some(new) = &new {
            runtime.block_on(remote.create(new))?;
        }
        observer.check()?;
        let relisted = relist(remote, runtime, observer)?;
        let mended = runtime.block_on(remote.mend(Mend::Index))?;
        // The relisted file may have the name of the damaged one.
        outcome.mended.extend(relisted.filter(|key| !mended.contains(key)));
        outcome.mended.extend(mended);
        runtime.block_on(self.move_refs_of(remote, &slots, &mut decisions));
        let refs = options.refs.iter().zip(&slots).zip(&decisions);
        let mended = refs.filter(|((_, slot), moved)| slot.is_damaged() && moved.has_moved());
        outcome.mended.extend(mended.map(|((update, _), _)| slot::key(&update.name)));
        let decided = options.refs.iter().zip(slots).zip(decisions);
        Ok(decided.map(|((update, slot), moved)| moved.into_pushed_ref(update, &slot)).collect())
    }

    /// Returns true if the push checks and repairs `HEAD`.
    fn repairs(&self, remote: &RemoteStore) -> bool {
        self.is_forced() || remote.mirror().is_damaged()
    }

    /// Returns true if any ref has [`AllowedMove::Force`]: a new store may then replace one that is
    /// gone.
    fn is_forced(&self) -> bool {
        self.options.refs.iter().any(|update| update.moves == AllowedMove::Force)
    }

    /// Returns the branch that clones start with.
    fn head(&self) -> Result<RefName, RemoteError> {
        let refs = self.options.refs.iter().map(|update| &update.name);
        let pushed = |name: &RefName| self.options.refs.iter().any(|update| update.name == *name);
        match self.repo.refs().head()? {
            Head::Branch(name) if pushed(&name) => Ok(name),
            head => {
                let first = refs.clone().find(|name| name.kind() == RefKind::Branch).cloned();
                Ok(first.unwrap_or(match head {
                    Head::Branch(name) => name,
                    Head::Detached(_) => RefName::branch("main").expect("`main` is a valid name"),
                }))
            }
        }
    }
}
