//! Pull: fetches missing objects, checks them, and adds them to the store all at once.
//!
//! Packs arrive as many concurrent ranges, which the pull writes into stubs beside the store. If it
//! needs little of a pack, it fetches only that part, and copies the wanted objects into a new
//! pack. After an interrupted pull, the next one finds the received frames by their checksums and
//! does not fetch them again.

use std::{sync::mpsc, thread};

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
        inbox::{Adoption, CompleteCommits, Inbox, SharedInbox, WalkStart},
        reach::{self, ReachError},
    },
    repo::ref_name::RefName,
    store::{
        Marks, ObjectLocation, ObjectWriter, PackFile, PackStream, Store, StoreError, WriteStats,
        copy::{FrameMode, copy_pack},
        pack_stream::refuse_wrong,
    },
};
use tokio::runtime::Handle;

use super::{
    beside::{self, PacksLeftOut},
    fetch_frames::PackFetcher,
    fetch_planner::{FetchPlanner, PackPart, WantedPack},
    liveness::Liveness,
    partial::{self, PartialScope},
    receiving_folder::ReceivingFolder,
};
use crate::peer::{RemoteError, RemoteStore, StoreLookup, pack_key};

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
    pulled?.ok_or_else(|| remote.place().collected())
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
    let ids: Vec<PackId> = wanted.iter().map(|pack| pack.id).collect();
    SharedInbox::new(store).sweep_abandoned();
    let (folder, received) = ReceivingFolder::open(store, &ids)?;
    let mut inbox = Inbox::of(store, received);
    let run = PullRun { lacking, origin: PackFetcher::of(remote), observer };
    let received_bytes = run.receive(inbox.own(), &wanted, runtime)?;
    run.gather(&mut inbox, &wanted, options.level)?;
    observer.phase(Phase::Structure, None);
    let mut complete = CompleteCommits::of(store, &[]);
    let checked = inbox.check_complete(WalkStart::Commits(&[commit]), &mut complete, observer);
    checked.map_err(|source| match source {
        ReachError::Blocked(blocked) => blocked.into(),
        source => RemoteError::Incomplete {
            location: remote.place().location().to_owned(),
            source: Box::new(source),
        },
    })?;
    let added = inbox.adopt(Adoption::NewObjects(options.level))?;
    folder.finish();
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
    let place = remote.place().location().to_owned();
    let location = || place.clone();
    let (found, standing) = futures::join!(remote.find_store(), remote.place().slot(name));
    match found? {
        StoreLookup::Missing => return Err(RemoteError::NoStore { location: location() }),
        StoreLookup::Store => remote.refresh().await?,
    }
    let slot = standing?;
    if let Some(commit) = slot.commit {
        if slot.epoch() > remote.mirror().epoch()
            && remote.place().peer().learn_epoch(remote.known()).await?
        {
            remote.refresh().await?;
        }
        return Ok(commit);
    }
    remote.place().must_exist().await?;
    Err(RemoteError::NoRef { name: Box::new(name.clone()), location: location() })
}

struct PullRun<'a> {
    lacking: FetchPlanner<'a>,
    origin: PackFetcher,
    observer: &'a dyn Observer,
}

impl PullRun<'_> {
    /// Fetches the wanted parts of packs into `received`, and checks each whole pack.
    fn receive(
        &self,
        received: &Store,
        wanted: &[WantedPack],
        runtime: &Handle,
    ) -> Result<u64, RemoteError> {
        let mut frames = Vec::with_capacity(wanted.len());
        for WantedPack { id, fetch } in wanted {
            received.add_stubs([&self.lacking.mirror.outline(id)?])?;
            // An earlier run may have received some frames.
            let mut absent = received.absent_frames(id)?;
            if let PackPart::Frames(frames) = fetch {
                absent.retain(|frame| is_among(frame, frames));
            }
            frames.push((*id, absent));
        }
        let bytes = |(_, frames): &(PackId, Vec<Frame>)| {
            frames.iter().map(|frame| u64::from(frame.stored_bytes)).sum::<u64>()
        };
        self.observer.phase(Phase::Receive, Some(frames.iter().map(bytes).sum()));
        let is_whole =
            |id: &PackId| wanted.iter().any(|pack| pack.id == *id && pack.fetch == PackPart::Whole);
        let (origin, observer) = (&self.origin, self.observer);
        let complete = |id: PackId| match received.complete(&id, observer) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Blocked::Interrupted.into()),
            Err(error) => Err(blame(origin, received, &id, error)),
        };
        thread::scope(|scope| {
            let (arrived, whole) = mpsc::channel();
            // While a pack is checked, frames of the next ones arrive.
            let checks = scope.spawn(move || whole.into_iter().try_for_each(complete));
            let mut each = |id: PackId| match is_whole(&id) && arrived.send(id).is_err() {
                // The check of a pack has failed: its error is returned below.
                true => Err(Blocked::Interrupted.into()),
                false => Ok(()),
            };
            let fetched = origin.fetch_frames(received, frames, &mut each, runtime, observer);
            drop(arrived);
            checks.join().expect("the thread does not panic")?;
            fetched
        })
    }

    /// Copies the wanted objects of packs fetched in part into new packs.
    fn gather(
        &self,
        inbox: &mut Inbox<'_>,
        wanted: &[WantedPack],
        level: i32,
    ) -> Result<(), RemoteError> {
        let received = inbox.own();
        let scratch = Scratch::create(&received.dir().join("tmp"))?;
        let disk = Disk::scratch();
        Store::create(scratch.path(), &disk)?;
        let gathered = Store::open(scratch.path(), disk, self.observer)?;
        let writer = ObjectWriter::new(&gathered, level, 1)?;
        for WantedPack { id, fetch } in wanted {
            let PackPart::Frames(frames) = fetch else { continue };
            let pack = received.open_pack(id)?;
            let checked = self.check_frames(&pack, frames);
            checked.map_err(|error| blame(&self.origin, received, id, error))?;
            let mut choose = |object: &PackedObject| {
                Ok(self.lacking.is_wanted(object, id)? && writer.claim_anew(object))
            };
            copy_pack(&writer, &pack, FrameMode::Keep, &mut choose)?;
        }
        writer.finish()?;
        // Other objects of these packs must not become part of the store.
        for WantedPack { id, fetch } in wanted {
            if matches!(fetch, PackPart::Frames(_)) {
                received.disk().remove(&received.pack_path(id)).map_err(StoreError::from)?;
            }
        }
        received.refresh()?;
        for id in gathered.packs() {
            inbox.link(&gathered.pack_path(&id), id)?;
        }
        Ok(())
    }

    fn check_frames(&self, pack: &PackFile, frames: &[Frame]) -> Result<(), StoreError> {
        let objects = pack.objects()?;
        let fetched = pack.by_frame(&objects).filter(|contents| is_among(contents.frame, frames));
        PackStream::of(pack, self.observer).check_frames(fetched, &refuse_wrong(pack.id()))
    }
}

/// Converts the error of a damaged pack, and discards the pack so that the next pull fetches it again.
fn blame(origin: &PackFetcher, received: &Store, id: &PackId, error: StoreError) -> RemoteError {
    if error.damaged_pack().is_none() {
        return error.into();
    }
    let _ = received.disk().remove(&received.pack_path(id));
    let location = origin.location.clone();
    RemoteError::Pack { key: pack_key(id), location, source: Box::new(error.into()) }
}

fn is_among(frame: &Frame, frames: &[Frame]) -> bool {
    frames.binary_search_by_key(&frame.position(), Frame::position).is_ok()
}
