//! Pull: what is missing here comes, is checked, and becomes part of the
//! store all at once.
//!
//! Packs come in ranges, many at a time, into stubs beside the store. A pack of
//! which little is missing here comes only in part: what is wanted of it is
//! copied into a pack of its own. Interrupted, what came is found again by the
//! checksums of frames, and is not fetched again.

use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        observe::{Observer, Phase},
    },
    disk::{Disk, scratch::Scratch},
    format::pack::{Frame, Object},
    ops::reach::{self, ReachError},
    repo::ref_name::RefName,
    store::{
        Added, BundleError, Incoming, Marks, Place, Store, StoreError, Writer,
        copy::{Frames, copy_pack},
    },
};
use tokio::runtime::Handle;

use super::{
    bring::{Origin, key},
    partly::{self, Part},
    receive::Receiving,
    wanted::{Fetch, Lacking, WantedPack},
};
use crate::store::{Found, RemoteError, RemoteStore};

/// Choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which ref there.
    pub name: RefName,
    /// zstd level for what has to be compressed again.
    pub level: i32,
    /// What of it. When that is not everything, the store must be able to fetch
    /// ([`Store::with_distant`]): the packs become stubs, and what is not
    /// wanted now is fetched when it is needed.
    pub part: Part,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Where the ref stands there.
    pub commit: CommitId,
    /// What was added to the store; nothing when only a part was wanted.
    pub added: Added,
    /// Bytes of packs that came.
    pub received_bytes: u64,
}

/// Brings a commit elsewhere into `store`, with all that it refers to. No ref
/// here is moved. Unless it is here already, or only a part is wanted, all packs
/// come that have anything that is not here: what lies in which of them is not
/// known before they are, so the other branches come, too, and are not fetched
/// again.
/// Waits; not to be called by a thread of the runtime.
///
/// # Errors
/// [`RemoteError`]; nothing has then been added, but stubs when only a part
/// was wanted.
pub fn run(
    store: &Store,
    remote: &mut RemoteStore,
    options: &Options,
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<Outcome, RemoteError> {
    let commit = runtime.block_on(find(remote, &options.name))?;
    let remote = &*remote;
    if !options.part.is_everything() {
        let wanted = options.part.of(commit);
        let received_bytes = partly::add(store, remote, &wanted, (runtime, observer))?;
        return Ok(Outcome { commit, added: Added::default(), received_bytes });
    }
    if is_here(store, commit, observer)? {
        return Ok(Outcome { commit, added: Added::default(), received_bytes: 0 });
    }
    let lacking = Lacking { here: store, there: remote.mirror().store() };
    let wanted = lacking.packs()?;
    let mut incoming = Incoming::new(store, observer)?;
    let ids: Vec<PackId> = wanted.iter().map(|pack| pack.id).collect();
    let receiving = Receiving::open(store, &ids)?;
    let run = Run { lacking, receiving: &receiving, origin: Origin::of(remote), observer };
    let received_bytes = run.receive(&mut incoming, &wanted, runtime)?;
    run.gather(&mut incoming, &wanted, options.level)?;
    check_complete(&incoming, commit, observer).map_err(|source| match source {
        ReachError::Interrupted => RemoteError::Interrupted,
        source => RemoteError::Incomplete {
            location: remote.location().to_owned(),
            source: Box::new(source),
        },
    })?;
    observer.phase(Phase::Data, None);
    incoming.check_lists(observer)?;
    if observer.cancelled() {
        return Err(RemoteError::Interrupted);
    }
    let added = incoming.adopt(options.level)?;
    receiving.finish();
    Ok(Outcome { commit, added, received_bytes })
}

/// Whether a commit is here with all it refers to, so that nothing need come.
fn is_here(store: &Store, commit: CommitId, observer: &dyn Observer) -> Result<bool, RemoteError> {
    if store.has_partial() || store.locate(&commit.object())?.is_none() {
        return Ok(false);
    }
    observer.phase(Phase::Structure, None);
    let marks = Marks::new(store);
    let mut is_shadowed = false;
    let mut enter = |id: &ObjectId, _: &Place| {
        is_shadowed |= store.locate_unshadowed(id)?.is_none();
        marks.mark(id)
    };
    match reach::visit(store, &[commit], &mut enter, observer) {
        Ok(()) => Ok(!is_shadowed),
        Err(ReachError::Interrupted) => Err(RemoteError::Interrupted),
        // What is missing or damaged here may come from there.
        Err(_) => Ok(false),
    }
}

/// Where the ref stands, with an index that knows it.
async fn find(remote: &mut RemoteStore, name: &RefName) -> Result<CommitId, RemoteError> {
    let place = remote.location().to_owned();
    let location = || place.clone();
    let (found, standing) = futures::join!(remote.look(), remote.standing(name));
    match found? {
        Found::Nothing => return Err(RemoteError::NoStore { location: location() }),
        Found::Store => remote.refresh().await?,
    }
    if let Some(standing) = standing? {
        return Ok(standing.commit);
    }
    remote.must_be_there().await?;
    Err(RemoteError::NoRef { name: Box::new(name.clone()), location: location() })
}

struct Run<'a> {
    lacking: Lacking<'a>,
    receiving: &'a Receiving,
    origin: Origin,
    observer: &'a dyn Observer,
}

impl Run<'_> {
    /// Fetches what is wanted of packs, and checks those that come whole.
    fn receive(
        &self,
        incoming: &mut Incoming<'_>,
        wanted: &[WantedPack],
        runtime: &Handle,
    ) -> Result<u64, RemoteError> {
        let store = self.receiving.store();
        let mut frames = Vec::with_capacity(wanted.len());
        for WantedPack { id, fetch } in wanted {
            store.add_stub(&self.lacking.there.outline(id)?)?;
            frames.push((*id, self.absent(id, fetch)?));
        }
        let bytes = |(_, frames): &(PackId, Vec<Frame>)| {
            frames.iter().map(|frame| u64::from(frame.stored_bytes)).sum::<u64>()
        };
        self.observer.phase(Phase::Receive, Some(frames.iter().map(bytes).sum()));
        let is_whole =
            |id: &PackId| wanted.iter().any(|pack| pack.id == *id && pack.fetch == Fetch::Whole);
        let mut each = |id: PackId| match is_whole(&id) {
            true => self.take_in(incoming, id),
            false => Ok(()),
        };
        self.origin.bring(store, frames, &mut each, (runtime, self.observer))
    }

    /// Frames that did not come with an earlier run.
    fn absent(&self, id: &PackId, fetch: &Fetch) -> Result<Vec<Frame>, StoreError> {
        let mut absent = self.receiving.store().absent_frames(id)?;
        if let Fetch::Frames(frames) = fetch {
            let is_wanted = |frame: &Frame| {
                frames.binary_search_by_key(&frame.offset, |frame| frame.offset).is_ok()
            };
            absent.retain(is_wanted);
        }
        Ok(absent)
    }

    /// Checks a pack that has come whole.
    fn take_in(&self, incoming: &mut Incoming<'_>, id: PackId) -> Result<(), RemoteError> {
        let store = self.receiving.store();
        let is_whole = store.complete(&id, self.observer);
        if !is_whole.map_err(|error| self.blame(&id, error.into()))? {
            return Err(RemoteError::Interrupted);
        }
        let linked = incoming.link(&store.pack_path(&id), id).map_err(BundleError::from);
        let taken = linked.and_then(|()| incoming.take_checked(id));
        taken.map_err(|error| self.blame(&id, error))
    }

    /// An error for a pack that is not what it should be, which must come anew.
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

    /// Copies what is wanted of packs that came in part.
    fn gather(
        &self,
        incoming: &mut Incoming<'_>,
        wanted: &[WantedPack],
        level: i32,
    ) -> Result<(), RemoteError> {
        let store = self.receiving.store();
        let scratch = Scratch::create(&store.dir().join("tmp"))?;
        let disk = Disk::scratch();
        Store::create(scratch.path(), &disk)?;
        let gathered = Store::open(scratch.path(), disk, self.observer)?;
        let writer = Writer::new(&gathered, level, 1)?;
        for WantedPack { id, fetch } in wanted {
            let Fetch::Frames(frames) = fetch else { continue };
            self.check_frames(id, frames).map_err(|error| self.blame(id, error.into()))?;
            let pack = store.open_pack(id)?;
            let mut choose = |object: &Object| {
                Ok(self.lacking.is_wanted(&object.id, id)? && writer.claim_anew(object))
            };
            copy_pack(&writer, &pack, Frames::Keep, &mut choose)?;
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
        let mut rest = objects.as_slice();
        for frame in pack.frames() {
            let (own, others) = rest.split_at(frame.objects as usize);
            rest = others;
            if frames.binary_search_by_key(&frame.offset, |frame| frame.offset).is_ok() {
                pack.check_frame(frame, own)?;
            }
        }
        Ok(())
    }
}

/// Walks all that the commit refers to, here and in what came. What the store
/// has of it and lies elsewhere is complete there, and is not fetched.
fn check_complete(
    incoming: &Incoming<'_>,
    commit: CommitId,
    observer: &dyn Observer,
) -> Result<(), ReachError> {
    observer.phase(Phase::Structure, None);
    let (ours, theirs) = (Marks::new(incoming.own()), Marks::new(incoming.target()));
    let mut enter = |id: &ObjectId, place: &Place| match incoming.own().locate(id)?.is_some() {
        true => ours.mark(id),
        false => Ok(theirs.mark(id)? && incoming.has_below(place)?),
    };
    reach::visit(incoming, &[commit], &mut enter, observer)
}
