//! One store elsewhere, behind the store here that stands for it.
//!
//! Whoever reads refs sees them as they stood upstream after the request came,
//! or, when it is away, as they were last seen. What is sent goes there step by
//! step, as it comes: a pack once it was checked; what tells of it once all that
//! it refers to was found; a ref by compare-and-swap there, and only then here. So
//! it does not matter through which of several servers each step goes.
//!
//! A pack that is here and of which upstream was not told yet has a mark in
//! `cache/pending/`; whoever comes next tells of it.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use snap_core::{
    base::{
        id::{CommitId, PackId},
        io::PathError,
        limits,
        observe::Silent,
        time::Time,
    },
    disk::Disk,
    repo::{
        Config, Repo, config,
        ref_name::{RefKind, RefName},
        refs::{Change, Head},
    },
    store::Store,
};
use snap_remote::{
    distant::{RemotePacks, Waiting},
    service::{Progress, keys::CONFIG},
    store::{OBJECTS, RemoteError, RemoteStore},
};

use super::{Form, Upstream, cache::PENDING, contact::away};
use crate::problem::{Code, Problem};

/// Outlines that are held at a time.
const OUTLINES: usize = 64;

/// Bytes of a pack that come at a time.
const PIECE_BYTES: u64 = 8 << 20;

/// How old what is known may be for those who ask for no ref.
const AGE: Duration = Duration::from_secs(1);

/// Refs there, and the branch that a clone begins with.
type Known = (Vec<(RefName, CommitId)>, RefName);

/// A store elsewhere.
#[derive(Debug)]
pub struct Behind {
    upstream: Arc<Upstream>,
    repo: Arc<Repo>,
    /// Where refs are asked for.
    asking: RemoteStore,
    moving: Mutex<Moving>,
    /// Refs that were moved from here, twice each: an answer from before is old.
    moves: AtomicU64,
    flights: super::flights::Flights,
    /// Packs that were sent, whether or not they count.
    sent: Mutex<HashSet<PackId>>,
    fetching: Mutex<HashMap<PackId, Arc<Mutex<()>>>>,
    /// Those that add packs to the store just now.
    adopting: AtomicUsize,
}

/// What changes.
#[derive(Debug)]
struct Moving {
    remote: RemoteStore,
    known: Option<Known>,
}

/// How new an answer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Asked for after the question.
    Now,
    /// Not older than a moment.
    Lately,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Behind {
    /// The repository called `name`: that which is kept of it here, else as
    /// upstream has it.
    ///
    /// # Errors
    /// [`Code::NoRepository`] when there is none, [`Code::Unavailable`].
    pub fn open(upstream: &Arc<Upstream>, name: &str) -> Result<Self, Problem> {
        let store = upstream.cache.of(name).join("store");
        upstream.form()?;
        let remote = upstream.remote(name, "mirror")?;
        let asking = upstream.remote(name, "asking")?;
        if !store.join(config::FILE).is_file() {
            let found = upstream.ask(remote.client().find(CONFIG, limits::CONFIG_BYTES))?;
            let none =
                || Problem::new(Code::NoRepository, format!("there is no `{name}` upstream"));
            let text = String::from_utf8(found.ok_or_else(none)?.bytes.to_vec());
            let config = Config::parse(&text.unwrap_or_default(), Path::new(CONFIG));
            let config = config.map_err(|why| Problem::new(Code::Damaged, why.to_string()))?;
            Repo::init(&store, &Disk::default(), &config)?;
        }
        let packs = RemotePacks::new(&remote, Waiting::patiently(&upstream.runtime));
        let repo = Repo::open(&store, Disk::default(), &Silent)?.with_distant(Arc::new(packs));
        let repo = Arc::new(repo);
        upstream.cache.opened(Arc::downgrade(&repo), store);
        let behind = Self {
            upstream: Arc::clone(upstream),
            repo,
            asking,
            moving: Mutex::new(Moving { remote, known: None }),
            moves: AtomicU64::new(0),
            flights: super::flights::Flights::default(),
            sent: Mutex::default(),
            fetching: Mutex::default(),
            adopting: AtomicUsize::new(0),
        };
        // Of what was there, and was removed to make room.
        behind.learn(&lock(&behind.moving).remote).map_err(|error| behind.told(error))?;
        Ok(behind)
    }

    /// The store here that stands for it.
    pub fn repo(&self) -> &Arc<Repo> {
        &self.repo
    }

    fn store(&self) -> &Store {
        self.repo.store()
    }

    fn told(&self, error: RemoteError) -> Problem {
        self.upstream.contact.failed(error)
    }

    /// Waits for a request that moves something.
    fn wait<T, E: Into<RemoteError>>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Problem> {
        let done = self.upstream.runtime.block_on(request);
        let done = done.map_err(|error| self.told(error.into()))?;
        self.upstream.contact.reached();
        Ok(done)
    }

    /// Learns how it is upstream. Where that fails, all stays as it is here.
    pub fn catch_up(&self, freshness: Freshness) {
        let is_known = freshness == Freshness::Lately && self.flights.is_younger(AGE);
        if is_known || self.upstream.contact.is_given_up() {
            return;
        }
        self.flights.join(self.upstream.patience, || self.fly().is_ok());
    }

    fn fly(&self) -> Result<(), Problem> {
        loop {
            let moves = self.moves.load(Ordering::SeqCst);
            let asked =
                async { futures::try_join!(self.asking.all_refs(), self.asking.default_branch()) };
            let found = self.upstream.ask(asked)?;
            let mut moving = lock(&self.moving);
            if self.moves.load(Ordering::SeqCst) != moves {
                continue;
            }
            if moving.known.as_ref() != Some(&found) {
                if found.0.is_empty() && !self.store().packs().is_empty() {
                    self.wait(self.asking.must_be_there())?;
                }
                self.refresh(&mut moving)?;
                self.follow(&found).map_err(|error| self.told(error))?;
                moving.known = Some(found);
            }
            return Ok(());
        }
    }

    /// Learns which packs there are.
    fn refresh(&self, moving: &mut Moving) -> Result<(), Problem> {
        self.wait(moving.remote.refresh())?;
        self.learn(&moving.remote).map_err(|error| self.told(error))
    }

    /// Has stubs of all packs that are known to be there, and no others.
    fn learn(&self, remote: &RemoteStore) -> Result<(), RemoteError> {
        let there = remote.mirror().store();
        let here: HashSet<PackId> = self.store().packs().into_iter().collect();
        let theirs: HashSet<PackId> = there.packs().into_iter().collect();
        let new: Vec<&PackId> = theirs.difference(&here).collect();
        for some in new.chunks(OUTLINES) {
            let outlines =
                some.iter().map(|id| there.outline(id)).collect::<Result<Vec<_>, _>>()?;
            self.store().add_stubs(&outlines)?;
        }
        // Until a pack that has just come has its mark, it looks like one that
        // is gone upstream.
        let is_quiet = self.adopting.load(Ordering::SeqCst) == 0;
        let is_gone = |id: &&PackId| is_quiet && !self.mark(id).exists();
        let gone: Vec<&PackId> = here.difference(&theirs).filter(is_gone).collect();
        for id in &gone {
            self.repo.disk().remove(&self.store().pack_path(id))?;
        }
        if gone.is_empty() { Ok(()) } else { Ok(self.store().refresh()?) }
    }

    /// Moves the refs here to where they stand there.
    fn follow(&self, (refs, head): &Known) -> Result<(), RemoteError> {
        let change = Change { time: Time::now(), who: "upstream", reason: "follow" };
        let ours = self.repo.refs();
        for kind in [RefKind::Branch, RefKind::Tag] {
            for (name, at) in ours.list(kind)? {
                if !refs.iter().any(|(other, _)| *other == name) {
                    ours.update(&name, Some(at), None, &change)?;
                }
            }
        }
        for (name, commit) in refs {
            if self.store().locate(&commit.object())?.is_none() {
                tracing::error!(%name, %commit, "upstream has a ref to what it does not have");
                continue;
            }
            ours.update(name, ours.read(name)?, Some(*commit), &change)?;
        }
        Ok(ours.set_head(&ours.head()?, &Head::Branch(head.clone()), &change)?)
    }

    fn mark(&self, id: &PackId) -> PathBuf {
        self.marks().join(id.to_string())
    }

    fn marks(&self) -> PathBuf {
        self.repo.dir().join("cache").join(PENDING)
    }

    /// Learns of packs of which upstream was told through another server.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn look(&self) -> Result<(), Problem> {
        self.refresh(&mut lock(&self.moving))
    }

    /// Sends a pack that was checked. It does not count before it is
    /// [told of](Self::publish).
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn send(&self, id: &PackId, path: &Path) -> Result<(), Problem> {
        if lock(&self.sent).contains(id) {
            return Ok(());
        }
        if self.upstream.contact.is_given_up() {
            return Err(away());
        }
        let length = fs_err::metadata(path).map_err(PathError::when("stat", path))?.len();
        let (key, progress) = (format!("{OBJECTS}{id}"), Progress::default());
        self.wait(self.asking.client().write_file(&key, (path, length), &progress))?;
        lock(&self.sent).insert(*id);
        Ok(())
    }

    /// A pack that another server sent and of which nobody has told yet, piece
    /// by piece; `None` when there is none.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn sent_by_others(
        &self,
        id: &PackId,
    ) -> Result<Option<impl Iterator<Item = Result<Bytes, Problem>>>, Problem> {
        let (key, client) = (format!("{OBJECTS}{id}"), self.asking.client());
        let Some(length) = self.wait(client.length(&key))? else { return Ok(None) };
        let most = limits::PACK_BYTES;
        if length > most {
            return Ok(None);
        }
        let starts = (0..length).step_by(PIECE_BYTES as usize);
        Ok(Some(starts.map(move |start| {
            let range = start..length.min(start + PIECE_BYTES);
            self.wait(client.read(&key, range)).map(|object| object.bytes)
        })))
    }

    /// Marks packs that become part of the store here before upstream is told.
    ///
    /// # Errors
    /// [`Code::Full`], [`Code::Unavailable`].
    pub fn remember_pending(&self, packs: &[PackId]) -> Result<(), Problem> {
        let (disk, marks) = (self.repo.disk(), self.marks());
        disk.create_folders(&marks)?;
        for id in packs {
            let path = marks.join(id.to_string());
            // It may be there of an earlier try.
            fs_err::write(&path, "").map_err(PathError::when("write", &path))?;
        }
        Ok(disk.sync_folder(&marks)?)
    }

    /// Does `work`, which adds packs to the store here that nobody has marked, and
    /// tells upstream of them.
    ///
    /// # Errors
    /// Those of `work`; as [`Self::publish`].
    pub fn adopt<T>(&self, work: impl FnOnce() -> Result<T, Problem>) -> Result<T, Problem> {
        if self.upstream.contact.is_given_up() {
            return Err(away());
        }
        self.adopting.fetch_add(1, Ordering::SeqCst);
        let adopting = Adopting(&self.adopting);
        let before: HashSet<PackId> = self.store().packs().into_iter().collect();
        let done = work()?;
        let mut new = self.store().packs();
        new.retain(|id| !before.contains(id) && !self.store().is_partial(id));
        self.remember_pending(&new)?;
        drop(adopting);
        self.look()?;
        self.publish()?;
        self.grew(&new);
        Ok(done)
    }

    /// They did not become part of it.
    pub fn forget_pending(&self, packs: &[PackId]) {
        packs.iter().for_each(|id| drop(fs_err::remove_file(self.mark(id))));
    }

    /// Tells upstream of all packs that are here and of which it does not know:
    /// they count there when this returns.
    ///
    /// # Errors
    /// [`Code::Unavailable`]; it is done with the next one that comes.
    pub fn publish(&self) -> Result<(), Problem> {
        self.publish_with(&lock(&self.moving))
    }

    fn publish_with(&self, moving: &Moving) -> Result<(), Problem> {
        let names = fs_err::read_dir(self.marks()).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let pending: Vec<PackId> = names.collect();
        if pending.is_empty() {
            return Ok(());
        }
        let there: HashSet<PackId> = moving.remote.mirror().store().packs().into_iter().collect();
        let here: HashSet<PackId> = self.store().packs().into_iter().collect();
        let is_new = |id: &PackId| !there.contains(id) && here.contains(id);
        let new: Vec<PackId> = pending.iter().copied().filter(is_new).collect();
        if !new.is_empty() {
            for id in &new {
                self.send(id, &self.store().pack_path(id))?;
            }
            let published = self.wait(moving.remote.publish(self.store(), &new));
            if published.is_err() {
                // Another server does not keep for ever what nobody tells of.
                lock(&self.sent).retain(|id| !new.contains(id));
            }
            published?;
        }
        // Some are on their way into the store.
        for id in pending.iter().filter(|id| here.contains(id)) {
            lock(&self.sent).remove(id);
            let _ = fs_err::remove_file(self.mark(id));
        }
        Ok(())
    }

    /// Packs came that take room.
    pub fn grew(&self, packs: &[PackId]) {
        let length = |id| fs_err::metadata(self.store().pack_path(id)).map_or(0, |meta| meta.len());
        self.upstream.cache.grew(packs.iter().map(length).sum());
    }

    /// Has all of a pack here.
    ///
    /// # Errors
    /// [`Code::Unavailable`], [`Code::Damaged`].
    pub fn fetch(&self, id: &PackId) -> Result<(), Problem> {
        let turn = Arc::clone(lock(&self.fetching).entry(*id).or_default());
        let one_at_a_time = lock(&turn);
        let is_partial = self.store().is_partial(id);
        let fetched = if is_partial { self.store().fetch_pack(id) } else { Ok(()) };
        drop(one_at_a_time);
        lock(&self.fetching).remove(id);
        fetched?;
        if is_partial {
            self.grew(&[*id]);
        }
        Ok(())
    }

    /// Moves a ref from where it is expected to stand, there and then here;
    /// `None` deletes it, and expects that it is not there.
    ///
    /// # Errors
    /// [`Code::Conflict`] when it does not stand there, [`Code::Rejected`] when
    /// there is no such commit, [`Code::Unavailable`]: then nothing has moved.
    pub fn swap(
        &self,
        name: &RefName,
        (expected, new): (Option<CommitId>, Option<CommitId>),
        who: &str,
    ) -> Result<(), Problem> {
        if self.upstream.contact.is_given_up() {
            return Err(away());
        }
        let mut moving = lock(&self.moving);
        self.publish_with(&moving)?;
        if let Some(new) = new {
            if self.store().locate(&new.object())?.is_none() {
                self.refresh(&mut moving)?;
            }
            let none = || Problem::new(Code::Rejected, format!("there is no commit {new} here"));
            self.store().locate(&new.object())?.ok_or_else(none)?;
            self.store().commit(&new)?;
        }
        let remote = &moving.remote;
        let slot = self.wait(remote.slot(name))?;
        if slot.commit != expected {
            return Err(stands(name, slot.commit));
        }
        self.moves.fetch_add(1, Ordering::SeqCst);
        let swapped = self.upstream.runtime.block_on(remote.swap(name, &slot, new));
        self.moves.fetch_add(1, Ordering::SeqCst);
        moving.known = None;
        match swapped {
            Ok(()) => {}
            Err(RemoteError::Raced { theirs, .. }) => return Err(stands(name, theirs)),
            Err(error) => return Err(self.told(error)),
        }
        let change = Change { time: Time::now(), who, reason: "push" };
        let refs = self.repo.refs();
        Ok(refs.update(name, refs.read(name)?, new, &change)?)
    }
}

/// Somebody adds packs to the store.
struct Adopting<'b>(&'b AtomicUsize);

impl Drop for Adopting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn stands(name: &RefName, at: Option<CommitId>) -> Problem {
    let why = match at {
        Some(at) => format!("{name} stands at {at}"),
        None => format!("{name} is not there"),
    };
    Problem::new(Code::Conflict, why)
}

impl Upstream {
    /// Whether there can be a repository of that name.
    ///
    /// # Errors
    /// As [`Upstream::form`].
    pub fn may_have(&self, name: &str) -> Result<bool, Problem> {
        let is_only = name == snap_remote::service::snap_server::ONLY;
        Ok(self.form()? == Form::Folder || is_only)
    }
}
