//! Garbage collection of a remote store without a server: deletes what no ref reaches.
//!
//! ```text
//! 1  the state, the refs, the index, the packs     mark what the refs reach
//! 2  the state: epoch + 1, dead objects shadowed   compare-and-swap
//! 3  each ref: the same commit, the new epoch      compare-and-swap
//! 4  the index again                               mark what moved meanwhile
//! 5  packs with copies of what is not dead in packs with much garbage
//! 6  index files with the copies and without the packs that go
//! 7  the state: the packs that go                  compare-and-swap
//! 8  the packs, then index files and tables        are deleted
//! ```
//!
//! Pushes, pulls and clones run beside it. A push that read its ref before step 3 loses its swap,
//! and then knows the shadows. What a push moved before, step 4 finds live. A collector that finds
//! step 2 done resumes with step 3. So a killed collection is finished by the next one, and two at
//! once do the same work. `tests/model` explores every interleaving of these steps; this module
//! follows it.
//!
//! Before step 2, the collector uploads the links of commits that were forgotten, as a push does. Then
//! the shadows of step 2 include what only these commits refer to, and the state lists them. A reader
//! takes the link of a listed parent, and a writer sends no parent of which there is a link. A ref
//! that points at a listed commit has everything, and the next collection removes it from the list.
//!
//! Young packs stay, with everything that they refer to. That spares pushes that run for long, but
//! what a ref reaches never depends on a clock.
//!
//! Step 6 writes an index file of the new epoch in each collection. So a client that lists the index
//! after a deletion sees that there is an epoch that it does not know.

mod plan;
mod repack;

use std::{
    collections::{BTreeMap, BTreeSet},
    future,
    sync::Arc,
    time::Duration,
};

use snap_core::{
    base::{
        again::until_settled,
        blocked::Blocked,
        id::{CommitId, ObjectId, PackId},
        kind::ErrorKind,
        limits,
        observe::{Observer, Phase},
        time::Time,
    },
    format::{
        gc_state,
        gc_table::{GcTable, IndexName},
        pack::ObjectKind,
    },
    ops::{
        gc::Live,
        reach::ReachError,
        remaining::{self, Remaining},
        removal_error::RemovalError,
    },
    repo::{RefName, refs::MisnamedFile},
    store::{ObjectWriter, Store, StoreError},
};

use self::{
    plan::{FencePlan, SweepPlan},
    repack::{Copies, Repack, write_with_free_names},
};
use crate::{
    peer::{
        ListedPack, OBJECTS, RemoteError, RemoteStore, SettingsState,
        bucket::{
            BucketStore,
            epoch::{BucketEpoch, ListedRefs, ReadGc, ReadRefs, RefsToTouch},
        },
        gc_view::{GcView, epoch_of, index_name},
    },
    remote_packs::{BlockingContext, RemotePacks},
    transfer::{push, reach_error},
};

/// Maximum number of attempts, if other collectors replace the state.
const ATTEMPTS: usize = 16;

/// The most bytes of metadata, of all packs together, that are fetched before the marking asks for
/// them. With more, the marking fetches the metadata of each pack when it gets there.
const PREFETCHED_BYTES: u64 = 32 << 20;

/// The promise of the user about other clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherClients {
    /// Other clients may push at the same time.
    #[default]
    MayPush,
    /// No other client pushes or collects. Services without conditional writes need this.
    DoNotPush,
}

/// What a collection may do.
#[derive(Clone, Debug, Default)]
pub struct RemoteGcOptions {
    /// Only reports what a collection would do.
    pub dry_run: bool,
    /// The promise of the user.
    pub others: OtherClients,
    /// Packs younger than this stay, with everything that they refer to. Ages are differences of
    /// times of the service. Zero also means that the last collection may be as young.
    pub grace: Duration,
    /// The most bytes of packs to rewrite; `None` for no limit.
    pub max_rewritten_bytes: Option<u64>,
    /// Objects that a rewrite has removed here. Packs in which one of them is dead are rewritten,
    /// whatever part of them is dead. The outcome names the refs that still reach one.
    pub purged: BTreeSet<ObjectId>,
    /// Commits that were forgotten here. Their links stay at the remote, and what only they refer to
    /// is deleted, unless a ref there points at them.
    pub forgotten: BTreeSet<CommitId>,
    /// The zstd level of the packs that are written.
    pub level: i32,
}

/// The result of a collection. A dry run reports what would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteGcOutcome {
    /// Packs before the collection.
    pub packs: u64,
    /// Bytes of these packs.
    pub bytes: u64,
    /// Packs that were deleted, with those that were rewritten.
    pub deleted_packs: u64,
    /// Bytes of the deleted packs.
    pub deleted_bytes: u64,
    /// Packs that were rewritten without their dead objects.
    pub rewritten_packs: u64,
    /// Bytes of the packs that replace them; an estimate in a dry run.
    pub written_bytes: u64,
    /// Dead objects in packs that stay.
    pub left_objects: u64,
    /// Bytes of these objects, before compression.
    pub left_bytes: u64,
    /// Purged objects that were deleted.
    pub purged_objects: u64,
    /// Purged objects that no ref reaches, in packs that stay.
    pub left_purged_objects: u64,
    /// The branches and tags that still reach a content which a rewrite removed here, and its paths.
    pub remaining: Remaining<RefName>,
    /// Commits of which only the links stay, and that were complete before.
    pub forgotten_commits: u64,
    /// Packs that stay because they are young.
    pub young_packs: u64,
    /// True if nothing was deleted because the last collection began only minutes ago.
    pub is_early: bool,
}

impl RemoteGcOutcome {
    /// Returns the bytes by which the packs shrink.
    pub fn freed_bytes(&self) -> u64 {
        self.deleted_bytes.saturating_sub(self.written_bytes)
    }
}

/// Collects the garbage of a remote store. Blocks; must not be called on a thread of the runtime.
///
/// # Errors
/// [`RemoteError`]. Nothing is lost. After an error, the next collection goes on.
pub fn run(
    remote: &mut RemoteStore,
    options: &RemoteGcOptions,
    waiting: &BlockingContext,
    observer: &dyn Observer,
) -> Result<RemoteGcOutcome, RemoteError> {
    let bucket = Arc::clone(remote.place().peer()).collectable()?;
    let done = until_settled(
        remote,
        ATTEMPTS,
        |remote| {
            let (remaining, misnamed) = Default::default();
            let bucket = &*bucket;
            let mut collection =
                Collection { remote, bucket, options, waiting, observer, remaining, misnamed };
            let Some(outcome) = collection.attempt()? else { return Ok(None) };
            let location = Some(collection.remote.place().location());
            collection.misnamed.iter().for_each(|file| file.note(location, observer));
            Ok(Some(RemoteGcOutcome { remaining: collection.remaining, ..outcome }))
        },
        |remote, error| Ok(is_passing(error) || is_overtaken(remote, waiting, error)),
    );
    // Another collector has replaced the state.
    done?.ok_or_else(|| remote.place().collected())
}

/// Returns true if a new attempt may succeed: another collector has begun an epoch, or another
/// process has changed the mirror, which both use.
fn is_passing(error: &RemoteError) -> bool {
    match error {
        RemoteError::Collected { .. } => true,
        RemoteError::Store(error) => matches!(**error, StoreError::Gone { .. }),
        _ => false,
    }
}

/// Returns true if an object may be lost because another collector has deleted its pack, and has
/// listed it elsewhere.
fn is_overtaken(remote: &RemoteStore, waiting: &BlockingContext, error: &RemoteError) -> bool {
    let is_lost = matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound);
    is_lost && waiting.block_on(remote.place().peer().is_overtaken(remote.known())).unwrap_or(false)
}

/// Checks that the location has a store, and that its service can be collected.
async fn check_service(
    remote: &RemoteStore,
    bucket: &BucketStore,
    options: &RemoteGcOptions,
    observer: &dyn Observer,
) -> Result<(), RemoteError> {
    let location = || remote.place().location().to_owned();
    match remote.settings().await? {
        SettingsState::Usable => {}
        SettingsState::Damaged(error) => return Err(error),
        SettingsState::Missing => return Err(RemoteError::NoStore { location: location() }),
    }
    match options.others {
        OtherClients::DoNotPush => Ok(()),
        OtherClients::MayPush => bucket.epoch(remote.known()).must_swap_safely(observer).await,
    }
}

/// One attempt of a collection.
struct Collection<'a> {
    remote: &'a mut RemoteStore,
    bucket: &'a BucketStore,
    options: &'a RemoteGcOptions,
    waiting: &'a BlockingContext,
    observer: &'a dyn Observer,
    /// The refs that reach a content which a rewrite removed here.
    remaining: Remaining<RefName>,
    /// The files below `refs/` that cannot be refs.
    misnamed: Vec<MisnamedFile>,
}

/// A pack in a remote store.
#[derive(Clone, Copy, Debug)]
struct StoredPack {
    bytes: u64,
    is_young: bool,
}

/// The packs of a remote store.
type StoredPacks = BTreeMap<PackId, StoredPack>;

impl Collection<'_> {
    /// Collects once. Returns `None` if another client has replaced the state meanwhile.
    fn attempt(&mut self) -> Result<Option<RemoteGcOutcome>, RemoteError> {
        let (remote, bucket) = (&*self.remote, self.bucket);
        let (read, mut listed) = self.waiting.block_on(async {
            let check = check_service(remote, bucket, self.options, self.observer);
            let (checked, read, listed) =
                futures::join!(check, bucket.epoch(remote.known()).read(), bucket.list_refs());
            checked?;
            Ok((read?, listed?))
        })?;
        read.check_found(bucket)?;
        remote.known().check_gc(remote.place().location())?;
        let is_fenced = |view: &Arc<GcView>| view.state.phase == gc_state::Phase::Fenced;
        let is_resumed = read.view.as_ref().is_some_and(is_fenced);
        if is_resumed && !self.options.dry_run {
            // All refs are read later.
            listed.names.clear();
        }
        // Read the refs after the state. If a commit is missing then, another collector has replaced
        // the state. Read them before the index: a push writes them in the reverse order.
        let refs = self.waiting.block_on(bucket.read_refs(&listed.names))?;
        self.waiting.block_on(self.remote.refresh())?;
        let time = self.present_time()?;
        let stubs = self.open_stubs()?;
        stubs.prefetch_metadata(&stubs.packs(), PREFETCHED_BYTES);
        // List the packs after the index, so that each pack of the index is shadowed or has nothing
        // that is dead: a later push may rely on it.
        let present = self.list_packs(time)?;
        let live = Live::new(&stubs, self.observer);
        let known = self.known_forgotten();
        let mut forgotten = known.clone();
        if !is_resumed || self.options.dry_run {
            forgotten.extend(&self.options.forgotten);
        }
        live.forget(forgotten);
        self.observer.phase(Phase::Mark, None);
        let mut tips: BTreeSet<_> = refs.values().filter_map(|slot| slot.commit).collect();
        tips.extend(self.misnamed_tips(&listed, &stubs)?);
        self.misnamed = listed.misnamed;
        self.mark(&live, tips)?;
        self.remaining = self.find_remaining(&live, &stubs, &refs)?;
        if !is_resumed {
            self.mark_young(&live, &stubs, &present)?;
        }
        let (fenced, to_touch) = match is_resumed && !self.options.dry_run {
            true => (read, self.waiting.block_on(self.epoch().refs_to_touch())?),
            false => {
                let mut plan =
                    FencePlan::make(self.remote, &live, &present, self.options, self.observer)?;
                let outcome = plan.outcome(&present);
                if self.options.dry_run {
                    return Ok(Some(outcome));
                }
                if !is_resumed && plan.frees_nothing() {
                    self.delete_packs(&plan.leftovers)?;
                    return Ok(Some(outcome));
                }
                if !is_resumed && self.is_early(time)? {
                    self.delete_packs(&plan.leftovers)?;
                    return Ok(Some(plan.leftovers_outcome(&present)));
                }
                let links = live.missing_links()?;
                if !links.is_empty() {
                    plan.table.named.extend(self.write_links(&links, &stubs, &plan.table)?);
                }
                let next = (epoch_of(read.view.as_deref()) + 1, gc_state::Phase::Fenced);
                let list = self.epoch().refs_to_touch();
                let swap = self.epoch().swap(&read, next, plan.table, list);
                match self.waiting.block_on(swap)? {
                    Some((fenced, to_touch)) => (fenced, to_touch?),
                    None => return Ok(None),
                }
            }
        };
        let outcome = self.sweep(&fenced, (&to_touch, &refs), &present, (&stubs, &live))?;
        if is_resumed {
            // Its first collector chose the commits that it has forgotten, and this one has not read
            // all refs.
            let is_all = self.options.forgotten.is_empty() && self.options.purged.is_empty();
            return Ok(outcome.filter(|_| is_all));
        }
        let forgotten_commits = self.known_forgotten().difference(&known).count() as u64;
        Ok(outcome.map(|outcome| RemoteGcOutcome { forgotten_commits, ..outcome }))
    }

    /// Finds the refs that reach a content which a rewrite removed here.
    fn find_remaining(
        &self,
        live: &Live<'_>,
        stubs: &Store,
        refs: &ReadRefs,
    ) -> Result<Remaining<RefName>, RemoteError> {
        let mut contents = BTreeSet::new();
        for id in &self.options.purged {
            if live.contains(id)? {
                contents.insert(*id);
            }
        }
        let refs = refs.iter().filter_map(|(name, slot)| Some((name.clone(), slot.commit?)));
        remaining::find(stubs, refs.collect(), &contents, self.observer)
    }

    /// Returns the commits that files with wrong names name and that the store has. Any program may
    /// have written such a file, so a missing commit is not damage, and a commit that reaches a
    /// content which a rewrite removed here is not kept.
    fn misnamed_tips(
        &self,
        listed: &ListedRefs,
        stubs: &Store,
    ) -> Result<Vec<CommitId>, RemoteError> {
        let mut tips = Vec::new();
        for id in listed.misnamed.iter().filter_map(|file| file.commit) {
            if stubs.is_alive(&id.object())? {
                tips.push(id);
            }
        }
        let named = tips.iter().map(|id| (*id, *id)).collect();
        let removed =
            remaining::find::<_, RemoteError>(stubs, named, &self.options.purged, self.observer)?
                .refs;
        tips.retain(|id| !removed.contains(id));
        Ok(tips)
    }

    /// Touches the refs, and deletes what is dead still.
    fn sweep(
        &mut self,
        fenced: &ReadGc,
        (to_touch, refs): (&RefsToTouch, &ReadRefs),
        present: &StoredPacks,
        (stubs, live): (&Store, &Live<'_>),
    ) -> Result<Option<RemoteGcOutcome>, RemoteError> {
        let Some(view) = &fenced.view else { return Ok(None) };
        let epoch = view.state.epoch;
        let mut tips = self.waiting.block_on(self.epoch().touch_refs(to_touch, epoch, refs))?;
        // The index has everything that the refs reach, since a push writes it before the ref.
        self.waiting.block_on(self.remote.refresh())?;
        if self.remote.mirror().gc().is_none_or(|now| now.state != view.state) {
            return Ok(None);
        }
        stubs.refresh()?;
        // The others have no links. A push may have brought one of them meanwhile.
        live.forget(view.table.forgotten.iter().copied());
        tips.extend(self.misnamed_tips(&to_touch.listed, stubs)?);
        self.mark(live, tips)?;
        let plan = SweepPlan::make(self.remote, view, live, present, self.options, self.observer)?;
        let may_have_sent = self.remote.mirror().may_have_sent();
        let copies = self.repack(&plan, view, stubs)?;
        let named = self.waiting.block_on(plan.write_index(
            self.bucket,
            self.remote.known(),
            copies.as_ref(),
        ))?;
        if !may_have_sent {
            self.remote.mirror().forget_sending();
        }
        let written_bytes = copies.map_or(0, |copies| copies.bytes);
        let outcome = RemoteGcOutcome { written_bytes, ..plan.outcome(present) };
        let (doomed, table) = plan.into_table(named);
        let next = (epoch, gc_state::Phase::Swept);
        let swap = self.epoch().swap(fenced, next, table, future::ready(()));
        let Some((swept, ())) = self.waiting.block_on(swap)? else { return Ok(None) };
        let Some(view) = &swept.view else { return Ok(None) };
        self.waiting.block_on(async {
            let remove = async {
                self.bucket.remove_all(&keys_of(&doomed)).await?;
                self.bucket.index(self.remote.known()).remove_old().await
            };
            futures::join!(remove, self.epoch().remove_old_tables(view)).0
        })?;
        Ok(Some(outcome))
    }

    /// Writes the packs of the plan that have much garbage again.
    fn repack(
        &self,
        plan: &SweepPlan,
        view: &GcView,
        stubs: &Store,
    ) -> Result<Option<Copies>, RemoteError> {
        let packs = &plan.repacked[..];
        let repack = Repack {
            remote: self.remote,
            stubs,
            packs,
            fenced: &view.table,
            swept: plan.table(),
            kept: &plan.staying,
            level: self.options.level,
            runtime: &self.waiting.runtime,
            observer: self.observer,
        };
        (!packs.is_empty()).then(|| repack.run()).transpose()
    }

    /// Returns the commits that the state lists as forgotten.
    fn known_forgotten(&self) -> BTreeSet<CommitId> {
        let view = self.remote.mirror().gc();
        view.map(|view| view.table.forgotten.clone()).unwrap_or_default()
    }

    /// Uploads the links of forgotten commits. Returns the index files that list them.
    fn write_links(
        &self,
        commits: &[CommitId],
        stubs: &Store,
        table: &GcTable,
    ) -> Result<BTreeSet<IndexName>, RemoteError> {
        let write = |links: &Store, variation| {
            let writer = ObjectWriter::new(links, self.options.level, 1)?.with_variation(variation);
            for id in commits {
                writer.add_link(*id, &stubs.object(&id.object(), ObjectKind::Commit)?)?;
            }
            writer.finish()?;
            Ok(())
        };
        let (links, _scratch) = write_with_free_names(self.remote, &[table], write)?;
        let packs = links.packs();
        push::upload(self.remote, &links, &packs, &self.waiting.runtime, self.observer)?;
        let packs = packs.into_iter().map(|id| (&links, id)).collect();
        let written =
            self.waiting.block_on(self.bucket.index(self.remote.known()).write_merged(packs))?;
        stubs.refresh()?;
        Ok(written.iter().filter_map(|name| index_name(name)).collect())
    }

    /// Lists all packs, also those that no index file lists.
    fn list_packs(&self, time: Option<i64>) -> Result<StoredPacks, RemoteError> {
        let listed = self.waiting.block_on(self.remote.place().peer().packs())?;
        let packs = listed.packs.into_iter().map(|ListedPack { id, bytes, modified_secs }| {
            let is_young = self.is_younger(modified_secs, time, self.options.grace);
            (id, StoredPack { bytes, is_young })
        });
        Ok(packs.collect())
    }

    /// Returns the present time of the service; `None` if no age matters. A dry run, which writes
    /// nothing, uses the clock of this machine.
    fn present_time(&self) -> Result<Option<i64>, RemoteError> {
        if self.options.grace.is_zero() {
            return Ok(None);
        }
        if self.options.dry_run {
            return Ok(Some(Time::now().secs));
        }
        match self.waiting.block_on(self.bucket.clock_secs())? {
            Some(time) => Ok(Some(time)),
            None => Err(RemoteError::CollectNoTimes {
                location: self.remote.place().location().to_owned(),
            }),
        }
    }

    /// Returns true if something is younger than `age`, or if its age is unknown.
    fn is_younger(&self, modified: Option<i64>, time: Option<i64>, age: Duration) -> bool {
        let Some(time) = time else { return false };
        let age_secs = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        modified.is_none_or(|modified| modified.saturating_add(age_secs) > time)
    }

    /// Returns true if the last collection began an epoch only minutes ago.
    fn is_early(&self, time: Option<i64>) -> Result<bool, RemoteError> {
        if time.is_none() || self.remote.mirror().gc().is_none() {
            return Ok(false);
        }
        let interval = Duration::from_secs(limits::GC_INTERVAL_SECS as u64);
        let begun = self.waiting.block_on(self.bucket.gc_state_secs())?;
        Ok(begun.is_some_and(|begun| self.is_younger(Some(begun), time, interval)))
    }

    /// Marks young packs, with everything that they refer to.
    fn mark_young(
        &self,
        live: &Live<'_>,
        stubs: &Store,
        present: &StoredPacks,
    ) -> Result<(), RemoteError> {
        let here: BTreeSet<PackId> = stubs.packs().into_iter().collect();
        let young = present.iter().filter(|(id, pack)| pack.is_young && here.contains(id));
        for (id, _) in young {
            for object in stubs.open_pack(id)?.objects()? {
                match live.attempt(&object.id, object.kind) {
                    Ok(_) => {}
                    Err(RemovalError::Store(error)) => return Err(error.into()),
                    Err(_) => return Err(Blocked::Interrupted.into()),
                }
            }
        }
        Ok(())
    }

    /// Opens the mirror as a store that fetches what it reads.
    fn open_stubs(&self) -> Result<Store, RemoteError> {
        Ok(RemotePacks::stubs(self.remote.reopen()?, self.waiting.clone()))
    }

    fn epoch(&self) -> BucketEpoch<'_> {
        self.bucket.epoch(self.remote.known())
    }

    fn mark(&self, live: &Live<'_>, commits: BTreeSet<CommitId>) -> Result<(), RemoteError> {
        live.add_refs(commits).map_err(|error| match error {
            RemovalError::Store(error) => reach_error(self.remote, ReachError::Store(error)),
            // The marking reads objects only, so any other error is an interruption.
            _ => RemoteError::Blocked(Blocked::Interrupted),
        })
    }

    /// Deletes packs that the published state lists as going.
    fn delete_packs(&self, packs: &[PackId]) -> Result<(), RemoteError> {
        self.waiting.block_on(self.bucket.remove_all(&keys_of(packs)))
    }
}

fn keys_of(packs: &[PackId]) -> Vec<String> {
    packs.iter().map(|id| format!("{OBJECTS}{id}")).collect()
}
