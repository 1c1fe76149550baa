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
//! remembers that there may be some. A snap server resumes the upload of a pack, even in a later
//! run. Other services get a partially uploaded pack again. Packs have about 64 MiB, and at most
//! two multipart uploads run at a time.
//!
//! Many small pushes leave many small packs. A push does not merge them; that is the task of
//! garbage collection.

mod first_requests;
mod outcome;
mod plan;
mod upload;

use std::{collections::HashMap, path::Path, thread};

use snap_core::{
    base::{
        blocked::Blocked,
        id::{CommitId, ObjectId, PackId},
        limits,
        observe::Observer,
    },
    ops::{
        reach::ReachError,
        select::{Gather, PeerHas, SelectedPacks},
    },
    repo::{
        Repo,
        ref_name::{RefKind, RefName},
        refs::Head,
    },
    store::{PackStream, Store, StoreError},
};
use tokio::runtime::Handle;

use self::{
    first_requests::{FirstAnswers, FirstRequests, UnpublishedPacks},
    upload::PackUploads,
};
use super::{fetch_frames::PackFetcher, is_before};
use crate::{
    remote_packs::{BlockingContext, RemotePacks},
    store::{
        CONFIG, HEAD, OBJECTS, RemoteError, RemoteStore, SettingsState, StoreLookup,
        name_conflicts::BlockingRef,
        refs::{self, RefSlot},
    },
    unlisted_packs::UnlistedPacks,
};

pub use outcome::{PushOutcome, PushedRef};
pub use plan::{PushPlan, plan};

/// Maximum number of attempts to move a ref that other clients move at the same time.
const RACES: usize = 8;

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
    runtime.block_on(remote.client().begin_push())?;
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
        match remote.client().maintains_index() {
            true => runtime.block_on(remote.refresh())?,
            false => drop(runtime.block_on(remote.read_gc())?),
        }
    }
    outcome.refs = results.into_iter().flatten().collect();
    Ok(outcome)
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

/// Uploads packs of `store` unchanged, replaces objects of the same names, and publishes the packs.
/// Moves no ref. Returns the number of bytes sent. Blocks; must not be called on a thread of the
/// runtime.
///
/// # Errors
/// [`RemoteError`]; either all packs or none are visible then.
pub fn send_packs(
    remote: &mut RemoteStore,
    store: &Store,
    packs: &[PackId],
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<u64, RemoteError> {
    runtime.block_on(remote.client().begin_push())?;
    // Skip damaged index files. Their packs are unknown, so a new file cannot list them.
    runtime.block_on(remote.refresh_around_damage(false))?;
    let bytes = upload(remote, store, packs, runtime, observer)?;
    verify_replaced(remote, packs, runtime, observer)?;
    let publication = remote.index_update(packs.iter().map(|id| (store, *id)).collect())?;
    runtime.block_on(remote.write_index_update(publication))?;
    // A server may have kept its own copy, so leave the check to the next verification.
    if !remote.client().maintains_index() {
        remote.mirror().clear_damage(packs)?;
    }
    Ok(bytes)
}

/// Uploads packs of `store` unchanged. No index file lists them yet. Returns the number of bytes sent.
pub(crate) fn upload(
    remote: &RemoteStore,
    store: &Store,
    packs: &[PackId],
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<u64, RemoteError> {
    let (paths, nothing) = (packs.iter().map(|id| (*id, store.pack_path(id))), HashMap::new());
    let packs_to_send = upload::packs_at(paths)?;
    let sending = PackUploads::begin(remote, packs_to_send, &nothing, runtime);
    let (_, bytes) = runtime.block_on(sending.finish(observer))?;
    Ok(bytes)
}

/// Lists packs again that only a damaged index file lists, before the push removes that file.
/// Returns the key of the new file.
fn relist(
    remote: &RemoteStore,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<Option<String>, RemoteError> {
    if !remote.has_unknown_damaged_index() {
        return Ok(None);
    }
    let waiting = BlockingContext::without_stop(runtime);
    let unlisted = UnlistedPacks::find(remote, &[], &waiting, observer)?;
    match unlisted.len() {
        0 => Ok(None),
        _ => runtime.block_on(unlisted.list(remote)),
    }
}

/// Reads back packs that replace a damaged pack of the same name, and checks their hashes. A
/// service may keep the old pack and report success: an SFTP server without `posix-rename`, a share
/// that refuses to rename over a file, a proxy. The length of the old pack may be right.
///
/// # Errors
/// [`RemoteError::Damaged`] if the old pack still exists; it then stays shadowed.
fn verify_replaced(
    remote: &RemoteStore,
    packs: &[PackId],
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<(), RemoteError> {
    let mirror = remote.mirror().store();
    // A snap server verifies each pack that it receives.
    if remote.client().maintains_index() || !packs.iter().any(|id| mirror.is_shadowed(id)) {
        return Ok(());
    }
    let source = RemotePacks::new(remote, BlockingContext::without_stop(runtime));
    for id in packs.iter().filter(|id| mirror.is_shadowed(id)) {
        let pack = mirror.open_pack(id)?;
        let stream = PackStream::of_remote(&pack, &source, observer);
        let mut sink = |bytes: &[u8]| {
            observer.advance(bytes.len() as u64, 0);
            Ok(())
        };
        let read = stream.hash(&pack.objects()?, &|_, _| Ok(()), &mut sink);
        let actual = read.map_err(|error| PackFetcher::of(remote).damaged(error))?;
        if actual.ok_or(Blocked::Interrupted)? != *id {
            let (key, location) = (format!("{OBJECTS}{id}"), remote.location().to_owned());
            let why =
                "the service kept the damaged pack, although it reported that it was replaced";
            return Err(RemoteError::Damaged { key, location, why: why.into() });
        }
    }
    Ok(())
}

/// Deletes a ref of the remote store, at `expected` or at any commit. Returns its last commit, or
/// `None` if its content was damaged. Objects stay.
///
/// # Errors
/// [`RemoteError::NoRef`], [`RemoteError::Raced`].
pub fn delete(
    remote: &RemoteStore,
    name: &RefName,
    expected: Option<CommitId>,
    runtime: &Handle,
) -> Result<Option<CommitId>, RemoteError> {
    runtime.block_on(async {
        remote.client().begin_push().await?;
        let location = || remote.location().to_owned();
        let (found, slot) = futures::join!(remote.find_store(), remote.any_slot(name));
        if found? == StoreLookup::Missing {
            return Err(RemoteError::NoStore { location: location() });
        }
        let mut slot = slot?;
        for _ in 0..RACES {
            let name = Box::new(name.clone());
            let commit = slot.commit;
            if commit.is_none() && !slot.is_damaged() {
                return Err(RemoteError::NoRef { name, location: location() });
            }
            if expected.is_some_and(|expected| Some(expected) != commit) {
                return Err(RemoteError::Raced { name, location: location(), theirs: commit });
            }
            match remote.swap(&name, &slot, None).await {
                Err(RemoteError::Raced { .. }) => slot = remote.any_slot(&name).await?,
                result => return result.map(|()| commit),
            }
        }
        Err(RemoteError::Held { name: Box::new(name.clone()), location: location() })
    })
}

/// The planned or actual outcome for one ref.
enum RefDecision {
    /// The ref is at the requested commit already.
    UpToDate,
    /// The push will move the ref.
    Move,
    /// The push has moved the ref from this commit.
    Moved(Option<CommitId>),
    /// The ref must not move, or the move failed.
    Rejected(RemoteError),
}

impl RefDecision {
    fn has_moved(&self) -> bool {
        matches!(self, Self::Moved(_))
    }

    fn into_pushed_ref(self, update: &RefUpdate, slot: &RefSlot) -> PushedRef {
        let (before, result) = match self {
            Self::UpToDate | Self::Move => (slot.commit, Ok(())),
            Self::Moved(before) => (before, Ok(())),
            Self::Rejected(error) => (slot.commit, Err(error)),
        };
        PushedRef { name: update.name.clone(), before, after: update.commit, result }
    }
}

/// The evidence that the remote store is complete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CompletenessProof {
    /// The index: every object that it lists is complete.
    Index,
    /// No evidence, so the push walks everything that the commits reach.
    None,
}

/// The state of a push before its first write.
struct PreparedPush<'s> {
    slots: Vec<RefSlot>,
    found: StoreLookup,
    /// True if the settings are usable, or if the push will create the store.
    has_settings: bool,
    /// `None` if no ref moves and the remote store counts as complete.
    selection: Option<SelectedPacks<'s>>,
    /// Lengths of packs that the remote store already has, if the push has requested them.
    uploaded: HashMap<String, u64>,
    decisions: Vec<RefDecision>,
}

#[derive(Clone, Copy)]
struct PushRun<'a> {
    repo: &'a Repo,
    options: &'a PushOptions<'a>,
    runtime: &'a Handle,
    observer: &'a dyn Observer,
}

impl<'a> PushRun<'a> {
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
        let PreparedPush {
            slots,
            mut found,
            has_settings,
            selection,
            uploaded: arrived,
            decisions: mut fates,
        } = self.prepare(remote)?;
        if found == StoreLookup::Missing && remote.client().must_create_store_first() {
            runtime.block_on(remote.create(&repo.config().to_text(), &self.head()?))?;
            found = StoreLookup::Store;
        }
        if !has_settings {
            runtime.block_on(remote.repair_settings(&repo.config().to_text()))?;
            outcome.mended.push(CONFIG.to_owned());
        }
        if found == StoreLookup::Store && self.repairs(remote) {
            let head = self.head()?;
            let pushed: Vec<_> = options.refs.iter().map(|update| &update.name).collect();
            if runtime.block_on(remote.repair_head(&head, &pushed))? {
                outcome.mended.push(HEAD.to_owned());
            }
        }
        if let Some(selection) = selection.as_ref().filter(|selection| selection.objects > 0) {
            outcome.objects += selection.objects;
            outcome.raw_bytes += selection.raw_bytes;
            outcome.sent_again += selection.lost;
            let packs = upload::packs(selection)?;
            let sending = PackUploads::begin(remote, packs, &arrived, runtime);
            self.send(remote, found, sending, outcome)?;
            let sent: Vec<PackId> = selection.packs().into_iter().map(|(_, id)| id).collect();
            verify_replaced(remote, &sent, runtime, observer)?;
            let publication = remote.index_update(selection.packs())?;
            runtime.block_on(remote.write_index_update(publication))?;
            // A server may have kept its own copy, so leave the check to the next verification.
            if !remote.client().maintains_index() {
                remote.mirror().clear_damage(&sent)?;
            }
        } else if found == StoreLookup::Missing {
            runtime.block_on(remote.create(&repo.config().to_text(), &self.head()?))?;
        }
        observer.check()?;
        if !remote.client().maintains_index() {
            let relisted = relist(remote, runtime, observer)?;
            let mended = runtime.block_on(remote.repair_index())?;
            // The relisted file may have the name of the damaged one.
            outcome.mended.extend(relisted.filter(|key| !mended.contains(key)));
            outcome.mended.extend(mended);
        }
        runtime.block_on(self.move_refs(remote, &slots, &mut fates));
        let refs = options.refs.iter().zip(&slots).zip(&fates);
        let mended = refs.filter(|((_, slot), fate)| slot.is_damaged() && fate.has_moved());
        outcome.mended.extend(mended.map(|((update, _), _)| refs::key(&update.name)));
        let decided = options.refs.iter().zip(slots).zip(fates);
        Ok(decided.map(|((update, slot), fate)| fate.into_pushed_ref(update, &slot)).collect())
    }

    fn prepare(&self, remote: &mut RemoteStore) -> Result<PreparedPush<'a>, RemoteError> {
        let question = self.first_requests(remote)?;
        let was_damaged = remote.mirror().is_damaged();
        remote.pass_over_damaged_index();
        let known = remote.mirror().store().packs();
        let known_gc = remote.mirror().gc();
        let (answers, early) = self.ask(remote, question);
        let FirstAnswers { slots, found, listed, settings, uploaded: mut arrived } = answers?;
        let (mut found, mut has_settings) = match found {
            Err(error) if self.is_forced() && error.is_of_settings() => (StoreLookup::Store, false),
            found => (found?, true),
        };
        let is_anything = listed.as_ref().is_some_and(|listed| !listed.is_empty())
            || slots.iter().any(RefSlot::exists);
        if is_anything {
            has_settings &= self.settings(remote, settings)?;
        }
        let mut fates = self.decide_refs(remote, &slots)?;
        let is_any_moved = fates.iter().any(|fate| matches!(fate, RefDecision::Move));
        if is_any_moved && is_anything && question == FirstRequests::RefsAndIndex {
            let settings = self.runtime.block_on(remote.settings())?;
            has_settings &= self.settings(remote, Some(settings))?;
        }
        match (question, listed) {
            (_, Some(listed)) => self.runtime.block_on(remote.take_in_listed(listed))?,
            (FirstRequests::Refs, None) if is_any_moved => {
                self.runtime.block_on(remote.refresh())?
            }
            (FirstRequests::RefsAndStore, None) if found == StoreLookup::Store => {
                self.runtime.block_on(remote.refresh())?;
            }
            _ => {}
        }
        self.learn_epoch(remote, &slots, &fates)?;
        let is_same_epoch = known_gc == remote.mirror().gc();
        if !is_same_epoch {
            // A collector may be deleting what was there before.
            arrived.clear();
        }
        if is_any_moved && question != FirstRequests::RefsAndStore && remote.index_files() == 0 {
            found = self.runtime.block_on(remote.inspect_location())?;
            if found == StoreLookup::Missing && !self.is_forced() {
                // Otherwise the next push would create a store at the empty location.
                remote.mirror().remember_seen();
                return Err(RemoteError::Emptied { location: remote.location().to_owned() });
            }
        }
        let is_partial = self.runtime.block_on(remote.client().partial_clone())?.is_some();
        if found == StoreLookup::Missing {
            remote.forget()?;
        } else if question != FirstRequests::Refs && !is_partial {
            self.check_tips(remote, &slots)?;
        }
        let mut prepared = PreparedPush {
            slots,
            found,
            has_settings: has_settings || found == StoreLookup::Missing,
            selection: None,
            uploaded: arrived,
            decisions: Vec::new(),
        };
        // The push uploads known losses again, even if no ref moves. A store that is new to this
        // client is not known to be complete.
        let is_damaged = remote.mirror().is_damaged();
        let is_new_here = question == FirstRequests::RefsAndStore && found == StoreLookup::Store;
        let proof = match is_damaged || (is_new_here && !remote.client().maintains_index()) {
            true => CompletenessProof::None,
            false => CompletenessProof::Index,
        };
        if is_any_moved || proof == CompletenessProof::None {
            let commits = self.commits(&fates, proof);
            // The index of a partial clone proves nothing: objects that it needs lie elsewhere.
            let proof = if is_partial { CompletenessProof::None } else { proof };
            let all = commits.len() == fates.len() && !is_partial;
            let same = all
                && is_same_epoch
                && is_damaged == was_damaged
                && known == remote.mirror().store().packs();
            // The early selection may have failed because the mirror was read again meanwhile.
            prepared.selection = match early.ok().flatten().filter(|_| same) {
                None => Some(self.select(remote, &commits, proof)?),
                early => early,
            };
        }
        prepared.decisions.append(&mut fates);
        Ok(prepared)
    }

    /// Reads the garbage collection state, unless the refs to move and the index files have the epoch
    /// that this client knows.
    fn learn_epoch(
        &self,
        remote: &mut RemoteStore,
        slots: &[RefSlot],
        fates: &[RefDecision],
    ) -> Result<(), RemoteError> {
        if remote.client().maintains_index() {
            return Ok(());
        }
        let known = remote.mirror().epoch();
        let is_other = |(slot, fate): (&RefSlot, &RefDecision)| {
            matches!(fate, RefDecision::Move) && slot.exists() && slot.epoch() != known
        };
        if slots.iter().zip(fates).any(is_other) || remote.lists_newer_epoch() {
            self.runtime.block_on(remote.read_gc())?;
            if !remote.knows_named_files() {
                self.runtime.block_on(remote.refresh())?;
            }
        }
        remote.check_gc_is_known()
    }

    /// Returns true if the settings are usable, false if the push will replace them.
    fn settings(
        &self,
        remote: &RemoteStore,
        settings: Option<SettingsState>,
    ) -> Result<bool, RemoteError> {
        match settings {
            None | Some(SettingsState::Usable) => Ok(true),
            Some(_) if self.is_forced() => Ok(false),
            Some(SettingsState::Damaged(error)) => Err(error),
            Some(SettingsState::Missing) => {
                Err(RemoteError::NoSettings { location: remote.location().to_owned() })
            }
        }
    }

    /// Checks that the index lists the commits of the remote refs. If a commit is missing, an index
    /// file is lost, which the mirror remembers as damage.
    fn check_tips(&self, remote: &mut RemoteStore, slots: &[RefSlot]) -> Result<(), RemoteError> {
        let store = self.repo.store();
        let is_lacking = |remote: &RemoteStore| {
            for commit in slots.iter().filter_map(|slot| slot.commit) {
                // This push cannot upload a commit again that is missing locally as well.
                let id = commit.object();
                if !remote.mirror().has(&id)? && store.is_stored(&id)? {
                    return Ok::<_, RemoteError>(true);
                }
            }
            Ok(false)
        };
        if is_lacking(remote)? {
            // The listing may be older than the refs.
            self.runtime.block_on(remote.refresh())?;
            if is_lacking(remote)? {
                remote.mirror().remember_damage();
            }
        }
        Ok(())
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

    /// Returns the first requests that the push needs.
    fn first_requests(&self, remote: &RemoteStore) -> Result<FirstRequests, RemoteError> {
        if !remote.mirror().was_seen() {
            return Ok(FirstRequests::RefsAndStore);
        }
        if remote.mirror().is_damaged() {
            return Ok(FirstRequests::All);
        }
        let holdings = remote.mirror().holdings();
        for update in &self.options.refs {
            if holdings.of(&update.commit.object())? == PeerHas::Nothing {
                return Ok(FirstRequests::All);
            }
        }
        Ok(match remote.client().maintains_index() {
            _ if self.is_forced() => FirstRequests::All,
            true => FirstRequests::Refs,
            false => FirstRequests::RefsAndIndex,
        })
    }

    /// Sends the first requests. Meanwhile, selects the packs to upload if the remote store has not
    /// changed.
    fn ask(
        &self,
        remote: &RemoteStore,
        question: FirstRequests,
    ) -> (Result<FirstAnswers, RemoteError>, Result<Option<SelectedPacks<'a>>, RemoteError>) {
        let names: Vec<&RefName> = self.options.refs.iter().map(|update| &update.name).collect();
        let leftovers = UnpublishedPacks::of(remote.mirror());
        thread::scope(|scope| {
            let ask = || {
                self.runtime.block_on(first_requests::send_first_requests(
                    remote, &names, question, leftovers,
                ))
            };
            let asking = scope.spawn(ask);
            let early = match question {
                FirstRequests::Refs | FirstRequests::RefsAndIndex => Ok(None),
                FirstRequests::All | FirstRequests::RefsAndStore => {
                    self.select_early(remote).map(Some)
                }
            };
            (asking.join().expect("sending the requests does not panic"), early)
        })
    }

    /// Selects packs for all refs, as if all of them moved.
    fn select_early(&self, remote: &RemoteStore) -> Result<SelectedPacks<'a>, RemoteError> {
        let commits: Vec<CommitId> = self.options.refs.iter().map(|update| update.commit).collect();
        let proof = match remote.mirror().is_damaged() {
            true => CompletenessProof::None,
            false => CompletenessProof::Index,
        };
        self.select(remote, &commits, proof)
    }

    fn select(
        &self,
        remote: &RemoteStore,
        commits: &[CommitId],
        proof: CompletenessProof,
    ) -> Result<SelectedPacks<'a>, RemoteError> {
        let level = self.repo.config().compression_level;
        let lost = remote.mirror().damaged_packs();
        let gc = remote.mirror().gc();
        let collected = gc.as_deref().map(|gc| &gc.table);
        let gather = Gather { scratch: self.options.scratch, level, lost: &lost, collected };
        let store = self.repo.store();
        let holdings = match proof {
            CompletenessProof::Index => remote.mirror().holdings(),
            CompletenessProof::None => remote.mirror().unproven_holdings(),
        };
        let has = |id: &ObjectId| match holdings.of(id)? {
            // This push cannot upload an object again that is missing locally.
            PeerHas::Alone | PeerHas::Lost if !store.is_stored(id)? => Ok(PeerHas::All),
            holding => Ok(holding),
        };
        Ok(SelectedPacks::make(self.repo.store(), commits, &has, gather, self.observer)?)
    }

    /// Returns the commits of refs that will move. If the remote store may be incomplete, also
    /// returns the commits of refs that are up to date.
    fn commits(&self, fates: &[RefDecision], proof: CompletenessProof) -> Vec<CommitId> {
        let going = self.options.refs.iter().zip(fates);
        let going = going.filter(|(_, fate)| match fate {
            RefDecision::Move => true,
            RefDecision::UpToDate => proof == CompletenessProof::None,
            RefDecision::Moved(_) | RefDecision::Rejected(_) => false,
        });
        going.map(|(update, _)| update.commit).collect()
    }

    fn decide_refs(
        &self,
        remote: &RemoteStore,
        slots: &[RefSlot],
    ) -> Result<Vec<RefDecision>, RemoteError> {
        let updates = self.options.refs.iter().zip(slots);
        updates.map(|(update, slot)| self.decide_ref(remote, update, slot)).collect()
    }

    fn decide_ref(
        &self,
        remote: &RemoteStore,
        update: &RefUpdate,
        slot: &RefSlot,
    ) -> Result<RefDecision, RemoteError> {
        if let Some(damage) = remote.damage(&update.name, slot) {
            return Ok(match update.moves {
                AllowedMove::Force => RefDecision::Move,
                AllowedMove::Forward => RefDecision::Rejected(damage),
            });
        }
        let Some(theirs) = slot.commit else {
            return Ok(match slot.is_writable() {
                true => RefDecision::Move,
                false => RefDecision::Rejected(remote.newer(&update.name)),
            });
        };
        let (name, location) = (Box::new(update.name.clone()), remote.location().to_owned());
        if theirs == update.commit {
            return Ok(RefDecision::UpToDate);
        }
        if !slot.is_writable() {
            return Ok(RefDecision::Rejected(remote.newer(&update.name)));
        }
        if update.moves == AllowedMove::Force {
            return Ok(RefDecision::Move);
        }
        let store = self.repo.store();
        let is_branch = update.name.kind() == RefKind::Branch;
        if is_branch && !store.knows(&theirs)? {
            return Ok(RefDecision::Rejected(RemoteError::Behind { name, location, theirs }));
        }
        match is_branch && is_before(store, theirs, update.commit)? {
            true => Ok(RefDecision::Move),
            false => Ok(RefDecision::Rejected(RemoteError::Diverged { name, location, theirs })),
        }
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

    /// Waits for the uploads, and creates the store if there is none.
    fn send(
        &self,
        remote: &RemoteStore,
        found: StoreLookup,
        sending: PackUploads,
        outcome: &mut PushOutcome,
    ) -> Result<(), RemoteError> {
        outcome.resumed += sending.resumed;
        let head = self.head()?;
        let create = async {
            match found {
                StoreLookup::Missing => remote.create(&self.repo.config().to_text(), &head).await,
                StoreLookup::Store => Ok(()),
            }
        };
        let (created, sent) =
            self.runtime.block_on(async { futures::join!(create, sending.finish(self.observer)) });
        if let Err(RemoteError::Store(error)) = &sent {
            // The local pack does not hash to its name, so mark it as damaged.
            let _ = self.repo.store().shadow_damage(error);
        }
        let (packs, bytes) = sent?;
        outcome.packs += packs;
        outcome.sent_bytes += bytes;
        created?;
        Ok(())
    }

    async fn move_refs(&self, remote: &RemoteStore, slots: &[RefSlot], fates: &mut [RefDecision]) {
        let made = self.made(remote, slots, fates);
        self.reject_conflicting_refs(remote, &made, fates).await;
        self.move_all(remote, slots, fates).await;
        self.undo_conflicting_refs(remote, &made, fates).await;
    }

    /// Returns the positions of refs to create in an existing store, if the service does not refuse
    /// conflicting names itself.
    fn made(&self, remote: &RemoteStore, slots: &[RefSlot], fates: &[RefDecision]) -> Vec<usize> {
        if remote.client().refuses_conflicting_refs() || remote.is_new() {
            return Vec::new();
        }
        let goes =
            |at: &usize| matches!(fates[*at], RefDecision::Move) && slots[*at].commit.is_none();
        (0..fates.len()).filter(goes).collect()
    }

    /// Refuses to create a ref whose name an existing ref blocks.
    async fn reject_conflicting_refs(
        &self,
        remote: &RemoteStore,
        made: &[usize],
        fates: &mut [RefDecision],
    ) {
        for (at, way) in self.conflicting_refs(remote, made).await {
            if let Some(error) = remote.cannot_be_made(&self.options.refs[at].name, &way) {
                fates[at] = RefDecision::Rejected(error);
            }
        }
    }

    /// Deletes created refs if another client has created a conflicting ref at the same time.
    async fn undo_conflicting_refs(
        &self,
        remote: &RemoteStore,
        made: &[usize],
        fates: &mut [RefDecision],
    ) {
        let moved = |at: &usize| matches!(fates[*at], RefDecision::Moved(None));
        let made: Vec<usize> = made.iter().copied().filter(moved).collect();
        for (at, way) in self.conflicting_refs(remote, &made).await {
            let RefUpdate { name, commit, .. } = &self.options.refs[at];
            let Some(error) = remote.stands_beside(name, &way) else { continue };
            let error = match remote.slot(name).await {
                Ok(slot) if slot.commit == Some(*commit) => {
                    remote.swap(name, &slot, None).await.err().unwrap_or(error)
                }
                // Another client has moved the ref in the meantime.
                _ => error,
            };
            fates[at] = RefDecision::Rejected(error);
        }
    }

    /// Returns the refs that block the names of the refs at these positions.
    async fn conflicting_refs(
        &self,
        remote: &RemoteStore,
        made: &[usize],
    ) -> Vec<(usize, BlockingRef)> {
        if made.is_empty() {
            return Vec::new();
        }
        let name = |at: usize| &self.options.refs[at].name;
        let names: Vec<&RefName> = made.iter().map(|at| name(*at)).collect();
        // If the listing of the refs fails, their moves fail as well and report the error.
        let Ok(mut found) = remote.blocking_refs(&names).await else { return Vec::new() };
        made.iter().filter_map(|at| Some((*at, found.remove(name(*at))?))).collect()
    }

    async fn move_all(&self, remote: &RemoteStore, slots: &[RefSlot], fates: &mut [RefDecision]) {
        let updates = self.options.refs.iter().zip(slots).zip(fates);
        let going = updates.filter(|(_, fate)| matches!(fate, RefDecision::Move));
        let moves = going.map(|((update, slot), fate)| {
            let moved = async move {
                let moved = self.move_ref(remote, update, slot.clone()).await;
                *fate = moved.unwrap_or_else(RefDecision::Rejected);
            };
            (&update.name, moved)
        });
        let moves = async {
            let mut moves: Vec<_> = moves.collect();
            // A server makes the first created branch the default branch.
            let is_empty = slots.iter().all(|slot| slot.commit.is_none());
            if is_empty && remote.client().must_create_store_first() {
                let head = self.head().ok();
                let is_head = |(name, _): &(&RefName, _)| Some(*name) == head.as_ref();
                if let Some(at) = moves.iter().position(is_head) {
                    moves.remove(at).1.await;
                }
            }
            futures::future::join_all(moves.into_iter().map(|(_, moved)| moved)).await
        };
        // The next push removes the files that remain.
        let (_, _superfluous) = futures::join!(moves, remote.remove_superfluous());
    }

    async fn move_ref(
        &self,
        remote: &RemoteStore,
        update: &RefUpdate,
        mut slot: RefSlot,
    ) -> Result<RefDecision, RemoteError> {
        for _ in 0..RACES {
            let new = Some(update.commit);
            match remote.swap_observed(&update.name, &slot, new, self.observer).await {
                Ok(()) => return Ok(RefDecision::Moved(slot.commit)),
                Err(RemoteError::Raced { .. }) => {}
                Err(error) if slot.commit.is_none() => {
                    return Err(remote.explain_conflict(&update.name, error).await);
                }
                Err(error) => return Err(error),
            }
            slot = remote.any_slot(&update.name).await?;
            match self.decide_ref(remote, update, &slot)? {
                RefDecision::Move => {}
                fate => return Ok(fate),
            }
        }
        let (name, location) = (Box::new(update.name.clone()), remote.location().to_owned());
        Err(RemoteError::Held { name, location })
    }
}
