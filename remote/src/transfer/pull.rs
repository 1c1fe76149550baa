//! Pull: fetches missing objects, checks them, and adds them to the store all at once.
//!
//! Packs arrive as many concurrent ranges, which the pull writes into stubs beside the store. If it
//! needs little of a pack, it fetches only that part, and copies the wanted objects into a new
//! pack. After an interrupted pull, the next one finds the received frames by their checksums and
//! does not fetch them again.

use snap_core::{
    base::{
        again::until_settled,
        blocked::Blocked,
        id::{CommitId, ObjectId, PackId},
        limits,
        observe::{Note, Observer, Phase},
    },
    disk::{Disk, scratch::Scratch},
    format::pack::{Frame, PackedObject},
    ops::{
        reach::{self, ReachError},
        staging_area::StagingArea,
    },
    repo::ref_name::RefName,
    store::{
        BundleError, Marks, ObjectLocation, ObjectWriter, ReceivedPacks, Store, StoreError,
        WriteStats,
        copy::{FrameMode, copy_pack},
    },
};
use tokio::runtime::Handle;

use super::{
    beside::{self, PacksLeftOut},
    fetch_frames::{PackFetcher, key},
    fetch_planner::{FetchPlanner, PackPart, WantedPack},
    liveness::Liveness,
    partial::{self, PartialScope},
    receiving_folder::ReceivingFolder,
};
use crate::store::{RemoteError, RemoteStore, StoreLookup};

/// Options of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullOptions {
    /// The ref of the remote store.
    pub name: RefName,
    /// The zstd level of packs that the pull itself writes.
    pub level: i32,
    /// The part to fetch. For less than everything, the store must have a remote source
    /// ([`Store::with_remote_frames`]): the packs become stubs, and reads fetch the rest on demand.
    pub part: PartialScope,
}

/// The result of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullOutcome {
    /// The commit of the ref.
    pub commit: CommitId,
    /// The additions to the store; none after a fetch of only a part.
    pub added: WriteStats,
    /// Bytes of packs received.
    pub received_bytes: u64,
}

/// Fetches a commit and everything that it refers to into `store`. Moves no local ref.
///
/// If the commit is missing locally, fetches all packs with any missing object, including those of
/// other branches: which objects a commit needs is known only after the fetch. A store that has
/// deleted garbage first reads the structure of the commit, and fetches only what it needs.
///
/// Blocks; must not be called on a thread of the runtime.
///
/// # Errors
/// [`RemoteError`]; the store then gets no additions, except stubs in a fetch of only a part.
pub fn run(
    store: &Store,
    remote: &mut RemoteStore,
    options: &PullOptions,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<PullOutcome, RemoteError> {
    let pulled = until_settled(
        &mut (&mut *remote, None, PacksLeftOut::default()),
        limits::GC_ROUNDS + beside::FRAMES,
        |(remote, found, left_out)| {
            let commit = match *found {
                Some(commit) => commit,
                None => *found.insert(runtime.block_on(find(remote, &options.name))?),
            };
            let remote = &**remote;
            match attempt(store, remote, left_out, commit, options, runtime, observer) {
                Err(error @ RemoteError::Collected { .. }) => Err(error),
                Err(error) => match left_out.add(remote, error) {
                    Ok(()) => Ok(None),
                    Err(error) => Err(partial::explain_partial_clone(remote, error, runtime)),
                },
                Ok(outcome) => {
                    for error in left_out.errors() {
                        observer.note(Note::UnneededPackUnread { error });
                    }
                    Ok(Some(outcome))
                }
            }
        },
        |(remote, found, _), error| {
            *found = None;
            beside::look_again(remote, error, runtime)
        },
    );
    pulled?.ok_or_else(|| remote.collected())
}

/// Pulls a commit once, around damage.
fn attempt(
    store: &Store,
    remote: &RemoteStore,
    left_out: &PacksLeftOut,
    commit: CommitId,
    options: &PullOptions,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<PullOutcome, RemoteError> {
    beside::around_damage(store, remote, runtime, || {
        let is_everything = options.part.is_everything();
        if is_everything && is_here(store, commit, observer)? {
            let added = WriteStats::default();
            return Ok(PullOutcome { commit, added, received_bytes: 0 });
        }
        let live = match is_everything {
            true => Liveness::of_pull(store, remote, commit, runtime, observer)?,
            false => Liveness::of(remote, &[commit], runtime, observer)?,
        };
        run_once(store, (remote, &live), left_out, commit, options, runtime, observer)
    })
}

fn run_once(
    store: &Store,
    (remote, live): (&RemoteStore, &Liveness),
    left_out: &PacksLeftOut,
    commit: CommitId,
    options: &PullOptions,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<PullOutcome, RemoteError> {
    if !options.part.is_everything() {
        hash_own_packs(store, observer)?;
        let wanted = options.part.of(commit);
        let received_bytes = partial::fetch_part(store, remote, &wanted, runtime, observer)?;
        return Ok(PullOutcome { commit, added: WriteStats::default(), received_bytes });
    }
    hash_own_packs(store, observer)?;
    let lacking = FetchPlanner { local: store, mirror: remote.mirror().store(), live };
    let wanted = lacking.packs(&|pack| left_out.contains(pack))?;
    StagingArea::new(store).sweep_abandoned();
    let mut incoming = ReceivedPacks::new(store, observer)?;
    let ids: Vec<PackId> = wanted.iter().map(|pack| pack.id).collect();
    let receiving = ReceivingFolder::open(store, &ids)?;
    let run = PullRun { lacking, receiving: &receiving, origin: PackFetcher::of(remote), observer };
    let received_bytes = run.receive(&mut incoming, &wanted, runtime)?;
    run.gather(&mut incoming, &wanted, options.level)?;
    check_complete(&incoming, commit, observer).map_err(|source| match source {
        ReachError::Blocked(blocked) => blocked.into(),
        source => RemoteError::Incomplete {
            location: remote.location().to_owned(),
            source: Box::new(source),
        },
    })?;
    let added = incoming.adopt(options.level)?;
    receiving.finish();
    Ok(PullOutcome { commit, added, received_bytes })
}

/// Hashes local packs from elsewhere once, because the plan looks up every object that the remote
/// store lists.
fn hash_own_packs(store: &Store, observer: &dyn Observer) -> Result<(), RemoteError> {
    store.hash_unproven_packs(observer)?;
    Ok(observer.check()?)
}

/// Returns true if a commit is stored locally with everything that it refers to. The pull then
/// fetches nothing.
fn is_here(store: &Store, commit: CommitId, observer: &dyn Observer) -> Result<bool, RemoteError> {
    if store.has_partial() || store.locate(&commit.object())?.is_none() {
        return Ok(false);
    }
    observer.phase(Phase::Structure, None);
    let marks = Marks::new(store);
    let mut is_shadowed = false;
    let mut enter = |id: &ObjectId, _: &ObjectLocation| {
        is_shadowed |= store.locate_unshadowed(id)?.is_none();
        marks.mark(id)
    };
    match reach::visit(store, &[commit], &mut enter, observer) {
        Ok(()) => Ok(!is_shadowed),
        Err(ReachError::Blocked(blocked)) => Err(blocked.into()),
        // Objects that are missing or damaged locally may come from the remote store.
        Err(_) => Ok(false),
    }
}

/// Returns the commit of a ref, after reading the new files of the index.
async fn find(remote: &mut RemoteStore, name: &RefName) -> Result<CommitId, RemoteError> {
    let place = remote.location().to_owned();
    let location = || place.clone();
    let (found, standing) = futures::join!(remote.find_store(), remote.slot(name));
    match found? {
        StoreLookup::Missing => return Err(RemoteError::NoStore { location: location() }),
        StoreLookup::Store => remote.refresh().await?,
    }
    let slot = standing?;
    if let Some(commit) = slot.commit {
        if slot.epoch() > remote.mirror().epoch() && !remote.client().maintains_index() {
            remote.read_gc().await?;
            remote.refresh().await?;
        }
        return Ok(commit);
    }
    remote.must_exist().await?;
    Err(RemoteError::NoRef { name: Box::new(name.clone()), location: location() })
}

struct PullRun<'a> {
    lacking: FetchPlanner<'a>,
    receiving: &'a ReceivingFolder,
    origin: PackFetcher,
    observer: &'a dyn Observer,
}

impl PullRun<'_> {
    /// Fetches the wanted parts of packs, and checks each whole pack.
    fn receive(
        &self,
        incoming: &mut ReceivedPacks<'_>,
        wanted: &[WantedPack],
        runtime: &Handle,
    ) -> Result<u64, RemoteError> {
        let store = self.receiving.store();
        let mut frames = Vec::with_capacity(wanted.len());
        for WantedPack { id, fetch } in wanted {
            store.add_stub(&self.lacking.mirror.outline(id)?)?;
            frames.push((*id, self.absent(id, fetch)?));
        }
        let bytes = |(_, frames): &(PackId, Vec<Frame>)| {
            frames.iter().map(|frame| u64::from(frame.stored_bytes)).sum::<u64>()
        };
        self.observer.phase(Phase::Receive, Some(frames.iter().map(bytes).sum()));
        let is_whole =
            |id: &PackId| wanted.iter().any(|pack| pack.id == *id && pack.fetch == PackPart::Whole);
        let mut each = |id: PackId| match is_whole(&id) {
            true => self.take_in(incoming, id),
            false => Ok(()),
        };
        self.origin.fetch_frames(store, frames, &mut each, runtime, self.observer)
    }

    /// Returns the frames that no earlier run has received.
    fn absent(&self, id: &PackId, fetch: &PackPart) -> Result<Vec<Frame>, StoreError> {
        let mut absent = self.receiving.store().absent_frames(id)?;
        if let PackPart::Frames(frames) = fetch {
            let is_wanted = |frame: &Frame| {
                frames.binary_search_by_key(&frame.position(), Frame::position).is_ok()
            };
            absent.retain(is_wanted);
        }
        Ok(absent)
    }

    /// Checks a pack that has arrived completely.
    fn take_in(&self, incoming: &mut ReceivedPacks<'_>, id: PackId) -> Result<(), RemoteError> {
        let store = self.receiving.store();
        let is_whole = store.complete(&id, self.observer);
        if !is_whole.map_err(|error| self.blame(&id, error.into()))? {
            return Err(Blocked::Interrupted.into());
        }
        let linked = incoming.link(&store.pack_path(&id), id).map_err(BundleError::from);
        let taken = linked.and_then(|()| incoming.add_verified(id));
        taken.map_err(|error| self.blame(&id, error))
    }

    /// Converts the error of a damaged pack, and discards the pack so that the next pull fetches it
    /// again.
    fn blame(&self, id: &PackId, error: BundleError) -> RemoteError {
        match error {
            BundleError::Store(error) if error.damaged_pack().is_none() => error.into(),
            error => {
                self.receiving.forget(id);
                let location = self.origin.location.clone();
                RemoteError::Pack { key: key(*id), location, source: Box::new(error) }
            }
        }
    }

    /// Copies the wanted objects of packs fetched in part into new packs.
    fn gather(
        &self,
        incoming: &mut ReceivedPacks<'_>,
        wanted: &[WantedPack],
        level: i32,
    ) -> Result<(), RemoteError> {
        let store = self.receiving.store();
        let scratch = Scratch::create(&store.dir().join("tmp"))?;
        let disk = Disk::scratch();
        Store::create(scratch.path(), &disk)?;
        let gathered = Store::open(scratch.path(), disk, self.observer)?;
        let writer = ObjectWriter::new(&gathered, level, 1)?;
        for WantedPack { id, fetch } in wanted {
            let PackPart::Frames(frames) = fetch else { continue };
            self.check_frames(id, frames).map_err(|error| self.blame(id, error.into()))?;
            let pack = store.open_pack(id)?;
            let mut choose = |object: &PackedObject| {
                Ok(self.lacking.is_wanted(object, id)? && writer.claim_anew(object))
            };
            copy_pack(&writer, &pack, FrameMode::Keep, &mut choose)?;
        }
        writer.finish()?;
        for id in gathered.packs() {
            incoming.link(&gathered.pack_path(&id), id)?;
            let checked = incoming.check(id, self.observer);
            checked.map_err(|error| self.blame(&id, error))?;
        }
        Ok(())
    }

    fn check_frames(&self, id: &PackId, frames: &[Frame]) -> Result<(), StoreError> {
        let pack = self.receiving.store().open_pack(id)?;
        let objects = pack.objects()?;
        for contents in pack.by_frame(&objects) {
            let position = contents.frame.position();
            if frames.binary_search_by_key(&position, Frame::position).is_ok() {
                pack.check_frame(contents)?;
            }
        }
        Ok(())
    }
}

/// Walks everything that the commit refers to, in the store and in the received packs. Does not
/// fetch objects that the store lacks locally: they are complete in the remote store.
fn check_complete(
    incoming: &ReceivedPacks<'_>,
    commit: CommitId,
    observer: &dyn Observer,
) -> Result<(), ReachError> {
    observer.phase(Phase::Structure, None);
    let (ours, theirs) = (Marks::new(incoming.own()), Marks::new(incoming.target()));
    let mut enter =
        |id: &ObjectId, place: &ObjectLocation| match incoming.own().locate(id)?.is_some() {
            true => ours.mark(id),
            false => {
                incoming.target().check_alive(id, place.kind)?;
                Ok(theirs.mark(id)? && incoming.should_descend(place)?)
            }
        };
    reach::visit(incoming, &[commit], &mut enter, observer)
}
