//! The refs of a repository. With an upstream, they are those upstream, and the cached ones follow.

use std::{path::PathBuf, sync::Arc};

use snap_core::{
    base::{
        blocked::Blocked,
        id::CommitId,
        observe::{Observer, Silent},
        time::Time,
    },
    format::ref_text::RefText,
    ops::inbox::{StagedError, accept::AcceptError},
    repo::{
        history::{History, Parents},
        past::PastError,
        ref_name::{RefKind, RefName},
        refs::{self, Damage, Head, RefError, RefListing, RefLogMessage},
    },
};

use super::{RefCondition, Repository};
use crate::{
    problem::{Code, HttpProblem},
    ref_log::{self, LastMove},
};

/// The refs of a repository.
#[derive(Clone, Copy, Debug)]
pub struct RepositoryRefs<'r>(&'r Repository);

impl Repository {
    /// Returns the refs.
    pub fn refs(&self) -> RepositoryRefs<'_> {
        RepositoryRefs(self)
    }
}

impl RepositoryRefs<'_> {
    /// Returns the branch that a clone checks out, after a check for changes upstream.
    ///
    /// # Errors
    /// [`Code::Damaged`] when `HEAD` is damaged, [`Code::NotFound`] when `HEAD` is detached and
    /// there is no branch, [`Code::Unavailable`] when the upstream has never answered.
    pub fn default_branch(&self) -> Result<RefName, HttpProblem> {
        self.0.catch_up_now()?;
        self.cached_branch()
    }

    /// Returns the default branch as last read, without a request to the upstream.
    ///
    /// # Errors
    /// [`Code::Damaged`] when `HEAD` is damaged, [`Code::NotFound`] when `HEAD` is
    /// detached and there is no branch.
    pub fn cached_branch(&self) -> Result<RefName, HttpProblem> {
        let refs = self.0.repo.refs();
        self.0.read_kept(|| match refs.head()? {
            Head::Branch(name) => Ok(name),
            Head::Detached(_) => {
                let first = refs.names(RefKind::Branch)?.into_iter().next();
                first.ok_or_else(|| {
                    HttpProblem::new(Code::NotFound, "the repository has no branches")
                })
            }
        })
    }

    /// Rewrites `HEAD` from its log if the file is lost or damaged. Returns the default
    /// branch. A relay leaves the repair to its upstream.
    ///
    /// # Errors
    /// [`Code::Unavailable`], and those of [`Self::default_branch`].
    pub fn mend_head(&self) -> Result<RefName, HttpProblem> {
        if self.0.upstream.is_none() {
            self.0.repo.mend_head()?;
        }
        self.default_branch()
    }

    /// Returns all readable branches and tags, after a check for changes upstream.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn all(&self) -> Result<Arc<Vec<(RefName, CommitId)>>, HttpProblem> {
        Ok(self.listing()?.refs)
    }

    /// Returns all readable branches and tags as last read, without a request to the
    /// upstream.
    ///
    /// # Errors
    /// As [`Self::all`].
    pub fn cached(&self) -> Result<Arc<Vec<(RefName, CommitId)>>, HttpProblem> {
        Ok(self.cached_listing()?.refs)
    }

    /// Returns all readable branches and tags and the names of damaged ones, after a
    /// check for changes upstream.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn listing(&self) -> Result<RefListing, HttpProblem> {
        self.0.catch_up_now()?;
        self.cached_listing()
    }

    /// Returns the [`listing`](Self::listing) as last read, without a request to the upstream.
    ///
    /// # Errors
    /// As [`Self::listing`].
    pub fn cached_listing(&self) -> Result<RefListing, HttpProblem> {
        self.0.read_kept(|| {
            // Hold the lock while the refs are read, so that simultaneous requests read them once.
            let mut kept = self.0.listing.lock();
            let before = kept.take();
            let misnamed = before.as_ref().map(|listing| Arc::clone(&listing.misnamed));
            let listing = match before.filter(RefListing::is_current) {
                Some(listing) => listing,
                None => self.0.repo.refs().list_all()?,
            };
            // Log each misnamed file once, not for every listing.
            let is_new = |path: &&PathBuf| misnamed.as_ref().is_none_or(|old| !old.contains(path));
            for path in listing.misnamed.iter().filter(is_new) {
                tracing::warn!(
                    repository = self.0.name,
                    ?path,
                    "a file among the refs has a name that no ref may have"
                );
            }
            // A relay repairs damaged refs from the upstream. Only a ref that is damaged upstream
            // stays damaged locally. Any other damage is an error, which makes `read_kept` repair
            // it.
            if self.0.upstream.is_some() {
                for name in listing.damaged.iter() {
                    if self.0.repo.refs().damage(name)? != Some(Damage::elsewhere()) {
                        return Err(HttpProblem::new(Code::Damaged, format!("{name} is damaged")));
                    }
                }
            }
            Ok(kept.insert(listing).clone())
        })
    }

    /// Returns the last move of a ref that is at this commit, if the log records it. Sends no
    /// request to the upstream.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn last_move(&self, name: &RefName, at: CommitId) -> Result<Option<LastMove>, HttpProblem> {
        Ok(self.0.repo.refs().last_change_of(name, at)?.and_then(LastMove::of))
    }

    /// Returns the commit that a ref points at, after a check for changes upstream.
    ///
    /// # Errors
    /// [`Code::Damaged`] when the ref is damaged, [`Code::Unavailable`].
    pub fn target(&self, name: &RefName) -> Result<Option<CommitId>, HttpProblem> {
        self.0.catch_up_now()?;
        Ok(self.0.repo.refs().read(name)?)
    }

    /// Returns the damage of a ref, or `None` if the ref is sound. On a relay the
    /// damage is that of the upstream's ref.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn damage(&self, name: &RefName) -> Result<Option<Damage>, HttpProblem> {
        let damage = self.0.repo.refs().damage(name)?;
        match &self.0.upstream {
            Some(upstream) if damage == Some(Damage::elsewhere()) => upstream.damage(name),
            Some(_) => Ok(None),
            None => Ok(damage),
        }
    }

    /// Returns the state of a ref that exists. A relay omits the nonce: several
    /// relays may serve one upstream, and all of them must give the same answer.
    ///
    /// # Errors
    /// As [`Self::target`].
    pub fn state(&self, name: &RefName) -> Result<Option<RefCondition>, HttpProblem> {
        self.0.catch_up_now()?;
        Ok(self.0.repo.refs().text(name)?.map(|text| self.state_of(text)))
    }

    fn state_of(&self, text: RefText) -> RefCondition {
        match text.commit {
            None => RefCondition::Absent,
            Some(commit) if self.0.upstream.is_some() => RefCondition::At(commit),
            Some(_) => RefCondition::AtWrite(text),
        }
    }

    /// Returns true if `new` is `old` or a descendant of `old`, through any parent.
    ///
    /// # Errors
    /// [`Code::Rejected`] when the history of `new` is incomplete in this store,
    /// [`Code::Unavailable`] when `observer` cancels because the client has disconnected.
    pub fn is_after(
        &self,
        new: &CommitId,
        old: &CommitId,
        observer: &dyn Observer,
    ) -> Result<bool, HttpProblem> {
        if self.0.upstream.is_none() {
            self.check_commit_complete(new)?;
        }
        for step in History::new(self.0.repo.store(), &[*new], Parents::All)? {
            if observer.cancelled() {
                return Err(PastError::Blocked(Blocked::Interrupted).into());
            }
            if step?.id == *old {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves a ref by compare-and-swap; `None` deletes it. This store must have the new commit,
    /// with everything that it refers to. Returns the new state of the ref.
    ///
    /// # Errors
    /// [`Code::Conflict`] when the ref is not as expected; [`Code::Rejected`] when the commit is
    /// incomplete, the ref is lost, a newer version wrote it, or a garbage collection has run here;
    /// [`Code::NameConflict`] when one ref name would be a folder of another; [`Code::Invalid`] when
    /// a new ref may not have that name; [`Code::Damaged`] when the settings are damaged.
    pub fn swap(
        &self,
        name: &RefName,
        expected: RefCondition,
        new: Option<CommitId>,
        who: &str,
    ) -> Result<RefCondition, HttpProblem> {
        if expected == RefCondition::Absent && new.is_some() && name.check_new().is_err() {
            let why = "the name contains an invisible or bidirectional control character";
            return Err(HttpProblem::new(Code::Invalid, why));
        }
        if let Some(upstream) = &self.0.upstream {
            let there = match expected {
                RefCondition::Damaged(damage) => refs::ExpectedRef::Damaged(damage),
                expected => refs::ExpectedRef::At(expected.commit()),
            };
            upstream.swap(name, there, new, who)?;
            return Ok(new.map_or(RefCondition::Absent, RefCondition::At));
        }
        self.0.check_epoch()?;
        // Damaged settings may be those of a newer version of snap, so no ref is moved.
        match self.0.settings() {
            Err(problem) if problem.code == Code::Damaged => return Err(problem),
            _ => {}
        }
        if let Some(new) = &new {
            self.check_commit_complete(new)?;
        }
        let change = RefLogMessage { time: Time::now(), who, reason: ref_log::PUSH };
        let must = match &expected {
            RefCondition::Damaged(damage) => refs::ExpectedRef::Damaged(*damage),
            RefCondition::AtWrite(text) => refs::ExpectedRef::Text(text),
            expected => refs::ExpectedRef::At(expected.commit()),
        };
        let refs = self.0.repo.refs();
        let moved = match refs.swap(name, must, new, &change) {
            // The log still names the lost commit. A descendant of it keeps all its
            // history.
            Err(RefError::Lost { at, .. })
                if new.is_some_and(|new| self.is_after(&new, &at, &Silent).unwrap_or(false)) =>
            {
                refs.swap(name, refs::ExpectedRef::Lost(at), new, &change)
            }
            moved => moved,
        };
        let moved = match moved {
            Err(
                RefError::Exists { at: found, .. } | RefError::Moved { found: Some(found), .. },
            ) => return Err(HttpProblem::new(Code::Conflict, format!("{name} is at {found}"))),
            Err(RefError::Moved { found: None, .. }) => {
                return Err(HttpProblem::new(Code::Conflict, format!("{name} does not exist")));
            }
            Err(RefError::Newer { .. }) => {
                let why = format!(
                    "{name} was written by a newer version of snap, so this server cannot move it"
                );
                return Err(HttpProblem::new(Code::Rejected, why));
            }
            Err(RefError::NameConflict { name, other }) => {
                return Err(HttpProblem::name_clash(&name, &other));
            }
            Err(RefError::Lost { name, at }) => {
                let why = format!(
                    "the file of {name} was lost on this server; it was at {at}, and {} is not a \
                     descendant of that commit",
                    new.map(|id| id.to_string()).unwrap_or_default()
                );
                return Err(HttpProblem::new(Code::Rejected, why));
            }
            moved => moved?,
        };
        if expected.commit().is_none() && new.is_some() {
            self.0.repo.refs().begin_head(name, &change)?;
        }
        Ok(self.state_of(moved))
    }

    /// Checks that the store has a commit and everything that it refers to.
    fn check_commit_complete(&self, id: &CommitId) -> Result<(), HttpProblem> {
        self.0.staged.check_commit_complete(&self.0.repo, id).map_err(|error| match error {
            StagedError::Accept(AcceptError::Incomplete(source))
                if self.0.repo.store().has_partial() =>
            {
                let why = format!(
                    "the repository is a partial clone and lacks objects of commit {id}: {source}; \
                     push to its origin, or run `snap fetch` in it first"
                );
                HttpProblem::new(Code::Rejected, why)
            }
            error => error.into(),
        })
    }
}
