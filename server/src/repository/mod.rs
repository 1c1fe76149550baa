//! One repository: a store here, what is on its way into it, and the index that
//! clients read of it. Where it has an upstream the store here stands for that.
//!
//! Everything here may block; it is called by threads that may.

mod bundle;
mod index;
mod landmarks;
mod passing;
mod reading;
mod single;
mod taking;
mod uploads;
mod whole;

use std::{
    fs::File,
    io::{self, Write},
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        io::PathError,
        observe::{Observer, Silent},
        time::Time,
    },
    disk::Disk,
    format::{
        outline,
        ref_text::{Nonce, RefText},
    },
    ops::staged::{self, Staged, StagedError, Told},
    repo::{
        Config, Repo, RepoError, config,
        history::{History, Parents},
        open::refuse_remote,
        past::PastError,
        ref_name::{RefKind, RefName},
        refs::{self, Change, Head, RefError},
    },
    store::CopyError,
};

pub use self::bundle::{CopyPack, Have, Layout};
pub(crate) use self::landmarks::Landmarks;
pub use self::reading::{FoundFile, InFrame, Revision, write_content};
pub use self::single::OBJECT_BYTES;
pub use self::taking::Asked;
pub use self::uploads::{Bounds, Coming, Resumed, Upload};
pub use snap_core::ops::staged::Sent;

use self::{index::Index, taking::Takings, uploads::Uploads};
use crate::{
    body::{self, Pieces},
    cache::Cache,
    problem::{Code, Problem},
    upstream::{Upstream, behind::Behind, contact::Away},
};

/// Memory for how bundles are laid out, in bytes.
const LAYOUTS_BYTES: usize = 1 << 20;

/// How many were opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// A repository that is served.
#[derive(Debug)]
pub struct Repository {
    name: String,
    number: u64,
    repo: Arc<Repo>,
    index: Index,
    staged: Staged,
    uploads: Uploads,
    takings: Takings,
    /// How bundles of commits are laid out that were asked for lately.
    bundles: Cache<CommitId, Arc<Layout>>,
    behind: Option<Arc<Behind>>,
    landmarks: Landmarks,
}

/// Something that is listed: its name and its length.
pub type Listed = (String, u64);

/// Where a ref must stand for it to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It is not there.
    Absent,
    /// It stands there, whichever write said so.
    At(CommitId),
    /// It stands there, and this write said so.
    Says(CommitId, Nonce),
}

impl Expected {
    /// Where it stands.
    pub fn commit(&self) -> Option<CommitId> {
        match self {
            Self::Absent => None,
            Self::At(commit) | Self::Says(commit, _) => Some(*commit),
        }
    }

    fn text(&self) -> Option<RefText> {
        match self {
            Self::Absent | Self::At(_) => None,
            Self::Says(commit, nonce) => {
                let text = RefText::without_nonce(Some(*commit));
                Some(RefText { nonce: Some(*nonce), ..text })
            }
        }
    }
}

/// Where the bytes of a pack are read.
#[derive(Debug)]
pub enum Source {
    /// In a file of a store that is served.
    File(File),
    /// In a cache and upstream, frame by frame.
    Frames,
}

impl Repository {
    /// Opens the store in `dir`, to be served under `name`.
    ///
    /// # Errors
    /// [`RepoError`] when it cannot be opened; [`RepoError::Remote`] for a folder that
    /// `push` made, into which nothing is written then.
    pub fn open(name: &str, dir: &Path) -> Result<Self, RepoError> {
        refuse_remote(dir)?;
        let repo = Repo::open(dir, Disk::default(), &Silent)?;
        Ok(Self::of(name, Arc::new(repo), None))
    }

    /// Opens the store of that name that lies upstream.
    ///
    /// # Errors
    /// [`Code::NoRepository`], and [`Code::Unavailable`] when upstream does not
    /// answer and nothing of it is here.
    pub fn open_behind(name: &str, upstream: &Arc<Upstream>) -> Result<Self, Problem> {
        let behind = Behind::open(upstream, name)?;
        Ok(Self::of(name, Arc::clone(behind.repo()), Some(Arc::new(behind))))
    }

    fn of(name: &str, repo: Arc<Repo>, behind: Option<Arc<Behind>>) -> Self {
        repo.store().sweep();
        let index = Index::open(repo.store());
        let staged = Staged::new(repo.store());
        staged.sweep();
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let bundles = Cache::new(LAYOUTS_BYTES);
        let name = name.to_owned();
        let (uploads, takings) = (Uploads::default(), Takings::default());
        let folders = ["", "objects", "refs"].map(|folder| repo.dir().join(folder));
        let mirrors = behind.iter().flat_map(|behind| behind.mirrors());
        let files = [config::FILE, "HEAD"].map(|file| repo.dir().join(file));
        let landmarks = Landmarks::of(folders.into_iter().chain(mirrors), files);
        let repository = Self {
            name,
            number,
            repo,
            index,
            staged,
            uploads,
            takings,
            bundles,
            behind,
            landmarks,
        };
        repository.go_on();
        repository
    }

    /// Since when what is told of it may not be as it is upstream, if so.
    pub fn away(&self) -> Option<Away> {
        self.behind.as_ref().and_then(|behind| behind.away())
    }

    /// Whether nothing is done with it: nobody has it but whoever asks this, and
    /// nobody asks upstream for it any more.
    pub fn is_idle(this: &Arc<Self>) -> bool {
        Arc::strong_count(this) == 1 && this.behind.as_ref().is_none_or(Behind::is_idle)
    }

    /// Whether its folders are still those that it was opened in. Of one whose
    /// folders are gone nothing must be told, least of all that it is empty.
    pub fn is_there(&self) -> bool {
        self.landmarks.are_there()
    }

    /// Whether a pack can be had here: it is whole, or can be completed.
    fn has(&self, id: &PackId) -> bool {
        self.behind.is_some() || !self.repo.store().is_partial(id)
    }

    /// Makes a store in `dir` with the settings that a client sent.
    ///
    /// # Errors
    /// [`Code::Conflict`] when there is one, [`Code::Rejected`] when the
    /// settings are none.
    pub fn create(dir: &Path, config: &str) -> Result<(), Problem> {
        let config = Config::parse(config, Path::new("config.toml"));
        let config = config.map_err(|why| Problem::new(Code::Rejected, why.to_string()))?;
        Ok(Repo::init(dir, &Disk::default(), &config)?)
    }

    /// How it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A number that no other one has that was opened by this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its store, to be read.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Learns of packs that others brought meanwhile.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store cannot be listed.
    pub fn refresh(&self) -> Result<(), Problem> {
        Ok(self.repo.store().refresh()?)
    }

    /// The branch that whoever clones begins with.
    ///
    /// # Errors
    /// [`Code::Damaged`] when `HEAD` is, [`Code::Unavailable`].
    pub fn default_branch(&self) -> Result<RefName, Problem> {
        self.catch_up_now()?;
        self.known_branch()
    }

    /// The same, as it was when refs were last asked for.
    ///
    /// # Errors
    /// [`Code::Damaged`] when `HEAD` is.
    pub fn known_branch(&self) -> Result<RefName, Problem> {
        let refs = self.repo.refs();
        self.read_kept(|| match refs.head()? {
            Head::Branch(name) => Ok(name),
            Head::Detached(_) => {
                let first = refs.names(RefKind::Branch)?.into_iter().next();
                first.ok_or_else(|| Problem::not_found("branch"))
            }
        })
    }

    /// All branches and tags.
    ///
    /// # Errors
    /// [`Code::Damaged`] when one is, [`Code::Unavailable`].
    pub fn refs(&self) -> Result<Vec<(RefName, CommitId)>, Problem> {
        self.catch_up_now()?;
        self.known_refs()
    }

    /// The same, as they were when they were last asked for.
    ///
    /// # Errors
    /// [`Code::Damaged`] when one is.
    pub fn known_refs(&self) -> Result<Vec<(RefName, CommitId)>, Problem> {
        self.read_kept(|| {
            let mut all = self.repo.refs().list(RefKind::Branch)?;
            all.extend(self.repo.refs().list(RefKind::Tag)?);
            Ok(all)
        })
    }

    /// Where a ref stands.
    ///
    /// # Errors
    /// [`Code::Damaged`] when it is, [`Code::Unavailable`].
    pub fn standing(&self, name: &RefName) -> Result<Option<CommitId>, Problem> {
        self.catch_up_now()?;
        Ok(self.repo.refs().read(name)?)
    }

    /// What a ref that is there says. One that stands for an upstream's says only
    /// where it stands: other servers may stand for the same, and all of them must
    /// say the same.
    ///
    /// # Errors
    /// As [`Repository::standing`].
    pub fn text(&self, name: &RefName) -> Result<Option<RefText>, Problem> {
        self.catch_up_now()?;
        let text = self.repo.refs().text(name)?.filter(|text| text.commit.is_some());
        Ok(match self.behind {
            Some(_) => text.map(|text| RefText::without_nonce(text.commit)),
            None => text,
        })
    }

    /// Whether `new` is `old` or comes after it, on whatever line of history.
    ///
    /// # Errors
    /// [`Code::Rejected`] when `new` is not there with all before it,
    /// [`Code::Unavailable`] when nobody waits for the answer any more.
    pub fn is_after(
        &self,
        new: &CommitId,
        old: &CommitId,
        observer: &dyn Observer,
    ) -> Result<bool, Problem> {
        if self.behind.is_none() {
            self.check_whole(new)?;
        }
        for step in History::new(self.repo.store(), &[*new], Parents::All)? {
            if observer.cancelled() {
                return Err(PastError::Interrupted.into());
            }
            if step?.0 == *old {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves a ref from where it is expected to stand; `None` deletes it. The
    /// commit must be there, which it is only with all that it refers to. Returns
    /// what the ref says then.
    ///
    /// # Errors
    /// [`Code::Conflict`] when it does not stand there, [`Code::Rejected`] when
    /// there is no such commit, or one name would be a folder of the other,
    /// [`Code::Invalid`] when no new ref may have that name.
    pub fn swap(
        &self,
        name: &RefName,
        expected: Expected,
        new: Option<CommitId>,
        who: &str,
    ) -> Result<RefText, Problem> {
        if expected.commit().is_none() && new.is_some() && name.check_new().is_err() {
            let why =
                "the name contains a character that is not seen or turns the direction of others";
            return Err(Problem::new(Code::Invalid, why));
        }
        if let Some(behind) = &self.behind {
            behind.swap(name, (expected.commit(), new), who)?;
            return Ok(RefText::without_nonce(new));
        }
        if let Some(new) = &new {
            self.check_whole(new)?;
        }
        let change = Change { time: Time::now(), who, reason: "push" };
        let text = expected.text();
        let must =
            text.as_ref().map_or(refs::Expected::At(expected.commit()), refs::Expected::Says);
        let moved = match self.repo.refs().swap(name, must, new, &change) {
            Err(
                RefError::Exists { at: found, .. } | RefError::Moved { found: Some(found), .. },
            ) => return Err(Problem::new(Code::Conflict, format!("{name} stands at {found}"))),
            Err(RefError::Moved { found: None, .. }) => {
                return Err(Problem::new(Code::Conflict, format!("{name} is not there")));
            }
            Err(RefError::Newer { .. }) => {
                let why =
                    format!("a newer version of snap wrote {name}: this server may not move it");
                return Err(Problem::new(Code::Rejected, why));
            }
            Err(RefError::Beside { name, other }) => {
                return Err(Problem::beside(&name, &other));
            }
            moved => moved?,
        };
        if expected.commit().is_none() && new.is_some() {
            self.repo.refs().begin_head(name, &change)?;
        }
        Ok(moved)
    }

    /// Packs that are there, those included that do not count yet.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn packs(&self) -> Result<Vec<Listed>, Problem> {
        self.check_seen()?;
        self.refresh()?;
        let store = self.repo.store();
        let mut packs = self.staged.list()?;
        for id in store.packs().into_iter().filter(|id| self.has(id)) {
            let path = store.pack_path(&id);
            // Merged into another one just now.
            let Ok(meta) = fs_err::metadata(&path) else { continue };
            packs.push((id.to_string(), meta.len()));
        }
        packs.sort_unstable();
        packs.dedup();
        Ok(packs)
    }

    /// A pack that counts, open for reading, and its length.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::Unavailable`].
    pub fn pack(&self, id: &PackId) -> Result<(Source, u64), Problem> {
        if !self.repo.store().packs().contains(id) {
            self.catch_up_now()?;
            self.refresh()?;
        }
        let missing = || Problem::not_found(format_args!("pack {id}"));
        if let Some(behind) = &self.behind {
            return Ok((Source::Frames, behind.whole(id)?.ok_or_else(missing)?));
        }
        let file = self.open_pack(id)?.ok_or_else(missing)?;
        let path = self.repo.store().pack_path(id);
        let length = file.metadata().map_err(PathError::when("stat", &path))?.len();
        Ok((Source::File(file), length))
    }

    /// Writes a range of a pack's bytes. Those of a cache are checked.
    ///
    /// # Errors
    /// Those of `out`, and when the pack cannot be read.
    pub fn copy_pack(
        &self,
        (id, source): (&PackId, &Source),
        range: Range<u64>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match source {
            Source::File(file) => body::copy(file, range, out),
            Source::Frames => match self.repo.store().copy_pack(id, range, out) {
                Err(CopyError::Out(error)) => Err(error),
                Err(CopyError::Store(error)) => Err(io::Error::other(error)),
                Ok(()) => Ok(()),
            },
        }
    }

    /// A pack that is here whole.
    fn open_pack(&self, id: &PackId) -> Result<Option<File>, Problem> {
        let store = self.repo.store();
        let open = || fs_err::File::open(store.pack_path(id));
        let file = match open() {
            Err(_) => {
                self.refresh()?;
                open()
            }
            file => file,
        };
        let file = file.ok().filter(|_| !store.is_partial(id));
        Ok(file.map(|file| file.into_parts().0))
    }

    /// Whether a pack counts that somebody sends, and is what its name says.
    fn is_whole_here(&self, id: &PackId) -> Result<bool, Problem> {
        let store = self.repo.store();
        if !store.packs().contains(id) {
            return Ok(false);
        }
        if self.behind.is_some() {
            return Ok(true);
        }
        Ok(!store.is_partial(id) && staged::is_sound(store, id)?)
    }

    /// Takes a pack: hashes it as it comes, then checks every frame and every
    /// object in it, as long as whoever sends it waits for that. It does not count
    /// before it is [published](Self::publish).
    ///
    /// # Errors
    /// [`Code::Rejected`] when it is not what its name says or is damaged;
    /// nothing is left of it then.
    pub fn receive(&self, id: PackId, pieces: Pieces) -> Result<Sent, Problem> {
        if self.is_whole_here(&id)? {
            return self.known();
        }
        let watch = pieces.observer();
        let sent = self.staged.receive(id, pieces, &*watch)?;
        self.pass_on_pack(&id)?;
        Ok(sent)
    }

    /// The index that clients read: names and lengths of its files. Packs that
    /// cannot be read are told of only by files that are older than their fault.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn index(&self) -> Result<Vec<Listed>, Problem> {
        self.catch_up_now()?;
        self.refresh()?;
        self.read_kept(|| self.index.current(self.repo.store(), &|id| self.has(id)))
    }

    /// A file of the index.
    ///
    /// # Errors
    /// [`Code::NotFound`].
    pub fn index_file(&self, name: &str) -> Result<Vec<u8>, Problem> {
        self.index.read(name)
    }

    /// Makes packs count that were sent before, all that a file of outlines or a
    /// group of them tells of, if all is there that they refer to. A part of a
    /// group is only kept for it.
    ///
    /// # Errors
    /// [`Code::Rejected`] when something is missing, [`Code::TooLarge`] when it is too
    /// much to check: nothing counts then.
    pub fn publish(&self, name: &str, bytes: &[u8], asked: &Asked) -> Result<Sent, Problem> {
        let ids = match self.staged.told(name, bytes)? {
            Told::Part(sent) => return Ok(sent),
            Told::Packs(ids) => ids,
        };
        let sent = self.take_in(&ids, asked)?;
        if name.ends_with(staged::GROUP) {
            return Ok(sent);
        }
        let outlines = outline::decode(bytes).map_err(StagedError::from)?;
        // Whoever wrote it need not read it again.
        self.index.adopt(self.repo.store(), name, bytes, &outlines)?;
        Ok(sent)
    }
}
