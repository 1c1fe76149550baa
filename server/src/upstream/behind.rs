//! One store elsewhere, behind the store here that stands for it.
//!
//! Whoever reads refs sees them as they stood upstream after the request came,
//! or, when it is away, as they were last seen. What is sent goes there step by
//! step, as it comes: a pack once it was checked; what tells of it once all that
//! it refers to was found; a ref by compare-and-swap there, and only then here. So
//! it does not matter through which of several servers each step goes.
//!
//! A pack that is here and of which upstream was not told yet has a mark in
//! `cache/pending/`, or has just come; whoever comes next tells of it.

mod frames;
mod mend;
mod packs;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        io::PathError,
        observe::Silent,
        time::Time,
    },
    disk::{Disk, scratch::unique_name},
    repo::{
        Config, Repo, config,
        ref_name::{RefKind, RefName},
        refs::{Change, Head, RefError},
    },
    store::Store,
};
use snap_remote::{
    distant::{RemotePacks, Waiting},
    service::keys::CONFIG,
    store::{RemoteError, RemoteStore},
};

use self::frames::{Damaged, Frames, Watch};
use super::{
    Form, Upstream,
    cache::{Kept, PENDING},
    contact::{Away, away},
    flights::{Flights, Landing},
    fresh::Fresh,
};
use crate::problem::{Code, Problem};

/// Outlines that are held at a time.
const OUTLINES: usize = 64;

/// File in `cache/` of the store here: the fingerprint of its refs when they last
/// stood as those upstream. Refs that are others now were not all kept.
const FOLLOWED: &str = "followed";

/// Folders of what is known of the store upstream, beside the store here.
const MIRRORS: [&str; 2] = ["mirror", "asking"];

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
    flights: Flights,
    fresh: Fresh,
    /// The fingerprint of the refs here when they last stood as those upstream, if
    /// they ever did.
    followed: Mutex<Option<String>>,
    /// Whether refs could not be taken over because the disk here is full.
    is_full: AtomicBool,
    /// Questions for packs.
    looks: Flights,
    /// Packs that were sent, whether or not they count.
    sent: Mutex<HashSet<PackId>>,
    fetching: Mutex<HashMap<PackId, Arc<Mutex<()>>>>,
    /// Packs that are none of those that upstream is to be told of: they are gone
    /// there, or what they came with failed.
    left_out: Mutex<HashSet<PackId>>,
    /// Those that add packs to the store just now.
    adopting: Arc<AtomicUsize>,
    /// Packs whose copy here is damaged.
    damaged: Arc<Damaged>,
    /// How many packs upstream has at least: there is a stub of each here.
    packs_there: AtomicUsize,
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
        let make_room = || upstream.cache.make_room(0);
        Self::open_here(upstream, name).or_else(|problem| match problem.is_own_disk_full() {
            true if make_room() => Self::open_here(upstream, name),
            _ => Err(problem),
        })
    }

    fn open_here(upstream: &Arc<Upstream>, name: &str) -> Result<Self, Problem> {
        upstream.cache.restore()?;
        upstream.form()?;
        let folder = upstream.cache.of(name);
        let store = folder.join("store");
        let is_kept = ["objects", "refs"].iter().all(|part| store.join(part).is_dir())
            && [config::FILE, "HEAD"].iter().all(|part| store.join(part).is_file());
        if !is_kept {
            return Self::open_anew(upstream, name);
        }
        let kept = Self::open_kept(upstream, name);
        let kept = kept.and_then(|kept| kept.check_settings(name).map(|()| kept));
        kept.or_else(|problem| match problem.code {
            // Nothing is removed for want of room, nor while nothing can take its place.
            Code::Full | Code::NoRepository => Err(problem),
            _ if upstream.config(name).is_err() => Err(problem),
            _ => {
                tracing::warn!(%problem, name, "the cache cannot be used: it is made anew");
                Self::open_anew(upstream, name)
            }
        })
    }

    /// Checks that the settings here are those upstream, as far as that answers: clients
    /// cut files as these say, and a damaged file may still be one of settings.
    fn check_settings(&self, name: &str) -> Result<(), Problem> {
        let Ok(Some(found)) = self.upstream.config(name) else { return Ok(()) };
        let text = String::from_utf8_lossy(&found.bytes);
        let ours = self.repo.config();
        match Config::parse(&text, Path::new(CONFIG)) {
            // The version is that of the refs, which each store has written itself.
            Ok(theirs) => match (Config { version: ours.version, ..theirs }) == *ours {
                true => Ok(()),
                false => Err(Problem::new(Code::Damaged, "the settings are not those upstream")),
            },
            Err(_) => Ok(()),
        }
    }

    /// Makes the store here anew. What may be left of one before goes: half of a
    /// cache may have been removed.
    fn open_anew(upstream: &Arc<Upstream>, name: &str) -> Result<Self, Problem> {
        let found = upstream.config(name)?;
        let none = || Problem::new(Code::NoRepository, format!("there is no `{name}` upstream"));
        let text = String::from_utf8(found.ok_or_else(none)?.bytes.to_vec());
        let config = Config::parse(&text.unwrap_or_default(), Path::new(CONFIG));
        let config = config.map_err(|why| Problem::new(Code::Damaged, why.to_string()))?;
        let folder = upstream.cache.of(name);
        match fs_err::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(PathError::when("remove", &folder)(error).into());
            }
            _ => {}
        }
        Repo::init(&folder.join("store"), &Disk::default(), &config)?;
        Self::open_kept(upstream, name)
    }

    /// Opens the store that is here.
    fn open_kept(upstream: &Arc<Upstream>, name: &str) -> Result<Self, Problem> {
        let store = upstream.cache.of(name).join("store");
        let [remote, asking] = MIRRORS.map(|mirror| upstream.remote(name, mirror));
        let (remote, asking) = (remote?, asking?);
        let watch = Arc::new(Watch::new(remote.client().clone(), upstream.patience));
        let waiting = Waiting { runtime: upstream.runtime.clone(), stop: watch.stop() };
        let packs = RemotePacks::sharing(&remote, waiting, &upstream.memory);
        let (cache, contact) = (Arc::clone(&upstream.cache), Arc::clone(&upstream.contact));
        let damaged = Arc::new(Damaged::new(store.join("cache").join(PENDING)));
        let packs = Frames { packs, watch, cache, contact, damaged: Arc::clone(&damaged) };
        let adopting = Arc::default();
        let opening = upstream.cache.opening(&store);
        let repo = Repo::open(&store, Disk::default(), &Silent)?.with_distant(Arc::new(packs));
        let repo = Arc::new(repo);
        opening.opened(Kept { repo: Arc::downgrade(&repo), adopting: Arc::clone(&adopting) });
        let behind = Self {
            upstream: Arc::clone(upstream),
            repo,
            asking,
            moving: Mutex::new(Moving { remote, known: None }),
            moves: AtomicU64::new(0),
            flights: Flights::default(),
            fresh: Fresh::default(),
            followed: Mutex::default(),
            is_full: AtomicBool::new(false),
            looks: Flights::default(),
            sent: Mutex::default(),
            fetching: Mutex::default(),
            left_out: Mutex::default(),
            adopting,
            damaged,
            packs_there: AtomicUsize::new(0),
        };
        let written = fs_err::read_to_string(behind.followed_path()).ok();
        let followed =
            written.filter(|written| behind.fingerprint().is_ok_and(|is| is == *written));
        *lock(&behind.followed) = followed;
        // Of what was there, and was removed to make room.
        behind
            .learn(&HashSet::new(), &lock(&behind.moving).remote)
            .map_err(|error| behind.told(error))?;
        behind.mend();
        Ok(behind)
    }

    /// Folders beside the store here that must stay where they are.
    pub fn mirrors(&self) -> impl Iterator<Item = PathBuf> {
        let beside = |mirror| self.repo.dir().with_file_name(mirror);
        MIRRORS.into_iter().map(beside)
    }

    /// Whether nobody else has it, such as somebody who asks upstream still.
    pub fn is_idle(this: &Arc<Self>) -> bool {
        Arc::strong_count(this) == 1
    }

    /// The store here that stands for it.
    pub fn repo(&self) -> &Arc<Repo> {
        &self.repo
    }

    fn store(&self) -> &Store {
        self.repo.store()
    }

    fn told(&self, error: RemoteError) -> Problem {
        if mend::is_of_cache(&error) {
            self.discard();
        }
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

    /// Learns how it is upstream. Where that fails, all stays as it is here, and
    /// is [said to be old](Self::away).
    pub fn catch_up(self: &Arc<Self>, freshness: Freshness) {
        self.mend();
        if freshness == Freshness::Lately && self.flights.is_younger(AGE) {
            return self.fresh.tell(true);
        }
        let fly = |behind: &Self| behind.fly().is_ok();
        let is_fresh = !self.upstream.contact.is_given_up()
            && self.flights.join(self.upstream.patience, |landing| self.send_off(landing, fly));
        self.fresh.tell(is_fresh);
    }

    /// Puts a question in a thread of its own: whoever loses patience does not keep
    /// others waiting, and those that serve requests may all be waiting for it.
    fn send_off(self: &Arc<Self>, landing: Landing, question: fn(&Self) -> bool) {
        let (behind, span) = (Arc::clone(self), tracing::Span::current());
        let fly = move || span.in_scope(|| landing.land(question(&behind)));
        if let Err(error) = thread::Builder::new().name("upstream".into()).spawn(fly) {
            tracing::error!(%error, "no thread to ask the upstream");
        }
    }

    /// Since when what is told here may not be as it is upstream, if so.
    pub fn away(&self) -> Option<Away> {
        self.fresh.away()
    }

    /// Checks that the refs here stood as those upstream at some time: else nothing
    /// can be told of them, not even that there are none.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn check_followed(&self) -> Result<(), Problem> {
        let Some(followed) = lock(&self.followed).clone() else {
            return Err(match self.is_full.load(Ordering::SeqCst) {
                true => Problem::new(Code::Unavailable, "the disk of this server is full"),
                false => away(),
            });
        };
        // When it answers, what is here was compared just now.
        match self.fresh.away().is_none() || self.fingerprint()? == followed {
            true => Ok(()),
            false => Err(away()),
        }
    }

    /// Stands for all refs here and where they stand.
    fn fingerprint(&self) -> Result<String, RefError> {
        let refs = self.repo.refs();
        let mut hash = blake3::Hasher::new();
        hash.update(format!("{:?}\n", refs.head()?).as_bytes());
        for kind in [RefKind::Branch, RefKind::Tag] {
            for (name, at) in refs.list(kind)? {
                hash.update(format!("{name} {at}\n").as_bytes());
            }
        }
        Ok(hash.finalize().to_hex().to_string())
    }

    fn followed_path(&self) -> PathBuf {
        self.repo.dir().join("cache").join(FOLLOWED)
    }

    /// Whether what is here is still all that was learnt of upstream: files of a
    /// cache may go one by one.
    fn is_intact(&self, moving: &Moving) -> Result<bool, Problem> {
        self.store().refresh()?;
        let here: HashSet<PackId> = self.store().packs().into_iter().collect();
        let has_packs = self.there(moving).is_subset(&here);
        let followed = lock(&self.followed).clone();
        let is_mirror_intact = moving.remote.mirror().is_intact();
        Ok(has_packs && is_mirror_intact && self.fingerprint().ok() == followed)
    }

    /// Gives up what is here: whoever asks next makes it anew.
    pub fn discard(&self) {
        tracing::warn!(store = %self.repo.dir().display(), "the cache is not whole: it is made anew");
        let _ = fs_err::remove_file(self.repo.dir().join(config::FILE));
    }

    /// Where refs stand there.
    fn standings(&self) -> Result<Known, Problem> {
        let asked =
            async { futures::try_join!(self.asking.all_refs(), self.asking.default_branch()) };
        self.upstream.ask(asked)
    }

    fn fly(&self) -> Result<(), Problem> {
        let flown = self.compare().or_else(|problem| match problem.is_own_disk_full() {
            true if self.upstream.cache.make_room(0) => self.compare(),
            _ => Err(problem),
        });
        let is_full = flown.as_ref().is_err_and(Problem::is_own_disk_full);
        self.is_full.store(is_full, Ordering::SeqCst);
        flown
    }

    /// Asks how it stands upstream and has it the same here.
    fn compare(&self) -> Result<(), Problem> {
        let moves = self.moves.load(Ordering::SeqCst);
        let mut found = self.standings()?;
        let mut moving = lock(&self.moving);
        if self.moves.load(Ordering::SeqCst) != moves {
            // Nobody moves any while this is held.
            found = self.standings()?;
        }
        let is_known = moving.known.as_ref() == Some(&found);
        if is_known && self.is_intact(&moving)? {
            return Ok(());
        }
        if !moving.remote.mirror().is_intact() {
            self.discard();
            return Err(away());
        }
        if found.0.is_empty() && !self.store().packs().is_empty() {
            self.wait(self.asking.must_be_there())?;
        }
        self.refresh(&mut moving)?;
        let learnt = match is_known {
            // Something of what was known went, so nothing new is to be expected.
            true => self.learn(&HashSet::new(), &moving.remote),
            false => Ok(()),
        };
        let followed = learnt.and_then(|()| self.follow(&found));
        if is_known && followed.is_err() {
            self.discard();
        }
        let is_all = followed.map_err(|error| self.told(error))?;
        moving.known = is_all.then_some(found);
        Ok(self.remember_followed()?)
    }

    /// Remembers that the refs here stand as those upstream.
    fn remember_followed(&self) -> Result<(), RefError> {
        let fingerprint = self.fingerprint()?;
        let mut followed = lock(&self.followed);
        if followed.as_ref() == Some(&fingerprint) {
            return Ok(());
        }
        // Where it cannot be written, the next server waits until it has seen them.
        let path = self.followed_path();
        let temporary = self.repo.dir().join("tmp").join(unique_name(FOLLOWED));
        let _ = self.repo.disk().write_whole(&temporary, &path, fingerprint.as_bytes());
        *followed = Some(fingerprint);
        Ok(())
    }

    /// Learns which packs there are.
    fn refresh(&self, moving: &mut Moving) -> Result<(), Problem> {
        let before = moving.remote.mirror().store().packs().into_iter().collect();
        self.wait(moving.remote.refresh())?;
        self.learn(&before, &moving.remote).map_err(|error| self.told(error))
    }

    /// Has stubs of all packs that are known to be there, and no others; `before`
    /// were known to be there until now.
    fn learn(&self, before: &HashSet<PackId>, remote: &RemoteStore) -> Result<(), RemoteError> {
        let there = remote.mirror().store();
        let here: HashSet<PackId> = self.store().packs().into_iter().collect();
        let theirs: HashSet<PackId> = there.packs().into_iter().collect();
        let new: Vec<&PackId> = theirs.difference(&here).collect();
        for some in new.chunks(OUTLINES) {
            let outlines =
                some.iter().map(|id| there.outline(id)).collect::<Result<Vec<_>, _>>()?;
            self.store().add_stubs(&outlines)?;
        }
        self.packs_there.store(theirs.len(), Ordering::SeqCst);
        lock(&self.left_out).extend(before.difference(&theirs));
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

    /// Moves the refs here to where they stand there; says whether all of them
    /// could be.
    fn follow(&self, (refs, head): &Known) -> Result<bool, RemoteError> {
        let mut is_all = true;
        let change = Change { time: Time::now(), who: "upstream", reason: "follow" };
        let ours = self.repo.refs();
        for (name, commit) in refs {
            if matches!(ours.read(name), Err(RefError::Damaged { .. })) {
                ours.repair(name, *commit, &change)?;
            }
        }
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
                is_all = false;
                continue;
            }
            ours.update(name, ours.read(name)?, Some(*commit), &change)?;
        }
        ours.set_head(&ours.head()?, &Head::Branch(head.clone()), &change)?;
        Ok(is_all)
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
        self.send_pending()?;
        let mut moving = lock(&self.moving);
        self.publish_with(&moving)?;
        if let Some(new) = new {
            // Not here: what is here may not have gone there yet.
            let is_there = |moving: &Moving| moving.remote.mirror().has(&new.object());
            if !is_there(&moving)? {
                self.refresh(&mut moving)?;
            }
            let none = || Problem::new(Code::Rejected, format!("there is no commit {new} here"));
            if !is_there(&moving)? || self.store().locate(&new.object())?.is_none() {
                return Err(none());
            }
            self.store().commit(&new)?;
        }
        let remote = &moving.remote;
        let slot = self.wait(remote.slot(name))?;
        if slot.commit != expected {
            return Err(stands(name, slot.commit));
        }
        let mut is_first = false;
        if new.is_some() && slot.commit.is_none() {
            // A bucket has no folders, and would take it; whoever clones has.
            let (refs, head) = self.standings()?;
            let has_branches = refs.iter().any(|(other, _)| other.kind() == RefKind::Branch);
            is_first = name.kind() == RefKind::Branch && !has_branches && head != *name;
            if let Some((other, _)) = refs.iter().find(|(other, _)| name.is_beside(other)) {
                return Err(Problem::beside(name, other.short()));
            }
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
        if is_first {
            // Whoever clones begins with it. A server sees to that itself.
            self.wait(moving.remote.begin_head(name))?;
        }
        match self.follow_swap((name, new), who) {
            // It has moved. What is kept here is made anew from that.
            Err(RefError::Damaged { .. }) => {
                self.discard();
                Ok(())
            }
            followed => Ok(followed?),
        }
    }

    /// Moves a ref here as it was moved upstream.
    fn follow_swap(
        &self,
        (name, new): (&RefName, Option<CommitId>),
        who: &str,
    ) -> Result<(), RefError> {
        let change = Change { time: Time::now(), who, reason: "push" };
        let refs = self.repo.refs();
        refs.update(name, refs.read(name)?, new, &change)?;
        let has_followed = lock(&self.followed).is_some();
        if has_followed { self.remember_followed() } else { Ok(()) }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.upstream.cache.closed(self.repo.dir(), &self.repo);
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
