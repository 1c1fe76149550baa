//! Revisions: what people type to name one commit.
//!
//! | text               | meaning                                            |
//! |--------------------|----------------------------------------------------|
//! | `HEAD`, `latest`   | the commit that `HEAD` stands on                   |
//! | `NAME`             | a branch, else a tag, else `REMOTE/BRANCH`         |
//! | `heads/N`, `tags/N`, `remotes/N` | one of them; `refs/` may come before |
//! | 4 to 64 hex digits | the commit whose id starts so                      |
//! | `REV~N`, `REV~`    | N first parents back                               |
//! | `REV^N`, `REV^`    | the N-th parent; `REV^0` is `REV`                  |
//! | `REV@DATE`         | the newest of that history, not newer than DATE    |
//! | `REV:PATH`         | an entry of that snapshot                          |
//!
//! A name wins over a prefix of the same text. Dates are parsed by the caller,
//! who knows the time zone. They may contain `:`; of the ways to read a text
//! the one with the longest date wins.

use crate::{
    base::{
        close::close_names,
        id::{BlobId, CommitId, Prefix},
        kind::ErrorKind,
        time::Time,
    },
    format::{commit::Commit, pack::ObjectKind},
    repo::{
        history::{History, Parents},
        open::Repo,
        path::PathInTreeError,
        ref_name::{RefKind, RefName},
        refs::RefError,
    },
    store::StoreError,
};

/// Ids that a prefix is compared with at most: more share no four digits in
/// any store that fits on a disk.
const PREFIX_HITS: usize = 1 << 16;

/// Candidates that an error lists at most.
const CANDIDATES: usize = 10;

/// Parses the text of a date; one without a time means the end of that day.
pub type ParseDate<'a> = &'a dyn Fn(&str) -> Option<Time>;

/// A commit, and possibly a path in it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Which commit.
    pub id: CommitId,
    /// What it says.
    pub commit: Commit,
    /// What named it, as it was written.
    pub rev: String,
    /// What followed the `:`.
    pub path: Option<Vec<u8>>,
}

/// A commit that an ambiguous prefix may have meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub id: CommitId,
    /// When it was made.
    pub time: Time,
    /// The first line of its message.
    pub message: String,
}

/// Why a text does not name one commit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// It names nothing.
    #[error("there is no commit, branch or tag `{text}`")]
    Unknown {
        /// The part that names nothing.
        text: String,
        /// Names much like it.
        close: Vec<String>,
    },
    /// There is no commit yet.
    #[error("branch `{}` has no commit yet", branch.short())]
    Unborn {
        /// The branch of `HEAD`.
        branch: RefName,
    },
    /// Several commits start like this.
    #[error("`{prefix}` is the start of more than one id")]
    Ambiguous {
        /// The digits.
        prefix: String,
        /// Some of those commits, newest first.
        candidates: Vec<Candidate>,
    },
    /// There is no such parent.
    #[error("commit {id:.12} has no parent {number}")]
    NoParent {
        /// Which commit.
        id: CommitId,
        /// Which parent, from 1.
        number: usize,
    },
    /// That far back there is nothing.
    #[error("`{text}` has no commit as old as that")]
    NoneBefore {
        /// The revision with its date.
        text: String,
    },
    /// The date cannot be read.
    #[error("`{date}` is not a date")]
    Date {
        /// What should be one.
        date: String,
    },
    /// There is no date behind an `@`.
    #[error("`{text}` has no date behind the `@`")]
    NoDate {
        /// The revision.
        text: String,
    },
    /// Nothing of the form of a revision.
    #[error("`{text}` is not a revision")]
    Syntax {
        /// The text.
        text: String,
    },
    /// The path names nothing.
    #[error(transparent)]
    Path(#[from] PathInTreeError),
    /// A ref cannot be read.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// A commit cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SpecError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { .. }
            | Self::Unborn { .. }
            | Self::Ambiguous { .. }
            | Self::NoParent { .. }
            | Self::NoneBefore { .. } => ErrorKind::NotFound,
            Self::Date { .. } | Self::NoDate { .. } | Self::Syntax { .. } => ErrorKind::Invalid,
            Self::Path(error) => error.kind(),
            Self::Ref(error) => error.kind(),
            Self::Store(error) => error.kind(),
        }
    }
}

/// What stands behind a base, innermost last.
enum Suffix<'t> {
    Back(usize),
    Parent(usize),
    Date(&'t str),
}

/// Resolves revisions of one repository.
pub struct Revisions<'a> {
    repo: &'a Repo,
    date: ParseDate<'a>,
}

impl<'a> Revisions<'a> {
    /// With `date` for the text behind an `@`.
    pub fn new(repo: &'a Repo, date: ParseDate<'a>) -> Self {
        Self { repo, date }
    }

    /// The commit, and the path if there is one, that `spec` names.
    ///
    /// **Not** checked: that the path exists.
    ///
    /// # Errors
    /// [`SpecError`] names the part that is wrong.
    pub fn resolve(&self, spec: &[u8]) -> Result<Resolved, SpecError> {
        let (rev, path) = self.split(spec);
        let syntax = |_| SpecError::Syntax { text: String::from_utf8_lossy(rev).into_owned() };
        let id = self.commit(std::str::from_utf8(rev).map_err(syntax)?)?;
        let commit = self.repo.store().commit(&id)?;
        Ok(Resolved {
            id,
            commit,
            rev: String::from_utf8_lossy(rev).into_owned(),
            path: path.map(<[u8]>::to_vec),
        })
    }

    /// Divides `REV:PATH`.
    fn split<'s>(&self, spec: &'s [u8]) -> (&'s [u8], Option<&'s [u8]>) {
        let cut = |at: usize| (&spec[..at], Some(&spec[at + 1..]));
        let is = |wanted: u8| move |b: &u8| *b == wanted;
        let Some(first) = spec.iter().position(is(b':')) else { return (spec, None) };
        let Some(date) = spec[..first].iter().rposition(is(b'@')) else { return cut(first) };
        let parses = |end: usize| {
            let text = std::str::from_utf8(&spec[date + 1..end]).unwrap_or_default();
            (self.date)(text.split(['~', '^']).next().unwrap_or_default()).is_some()
        };
        if parses(spec.len()) {
            return (spec, None);
        }
        let ends = (first..spec.len()).rev().filter(|at| spec[*at] == b':');
        cut(ends.into_iter().find(|at| parses(*at)).unwrap_or(first))
    }

    /// The commit that a revision without a path names.
    ///
    /// # Errors
    /// [`SpecError`] names the part that is wrong.
    pub fn commit(&self, rev: &str) -> Result<CommitId, SpecError> {
        let mut suffixes = Vec::new();
        let mut rest = rev;
        let mut id = loop {
            match self.base(rest)? {
                Some(id) => break id,
                None => rest = peel(rest, &mut suffixes).ok_or_else(|| self.unknown(rest))?,
            }
        };
        while let Some(suffix) = suffixes.pop() {
            id = match suffix {
                Suffix::Back(count) => self.back(id, count)?,
                Suffix::Parent(number) => self.parent(id, number)?,
                Suffix::Date(date) => self.at_date(id, date, rev)?,
            };
        }
        Ok(id)
    }

    /// The commit that a text without suffixes names; `None` if it names none.
    fn base(&self, text: &str) -> Result<Option<CommitId>, SpecError> {
        if matches!(text, "HEAD" | "latest") {
            let head = self.repo.refs().head()?;
            return match (self.repo.refs().head_commit()?, head) {
                (None, super::refs::Head::Branch(branch)) => Err(SpecError::Unborn { branch }),
                (found, _) => Ok(found),
            };
        }
        if let Ok(id) = text.parse::<CommitId>() {
            let is_commit = self.repo.store().locate(&id.object())?;
            return Ok(is_commit.filter(|place| place.kind == ObjectKind::Commit).map(|_| id));
        }
        for name in names(text) {
            if let Some(id) = self.repo.refs().read(&name)? {
                return Ok(Some(id));
            }
        }
        match Prefix::parse(text) {
            Some(prefix) => self.prefixed(&prefix),
            None => Ok(None),
        }
    }

    fn prefixed(&self, prefix: &Prefix) -> Result<Option<CommitId>, SpecError> {
        let (low, high) = prefix.bounds();
        let hits = self.repo.store().ids_between(low, high, PREFIX_HITS)?;
        let commits = hits.into_iter().filter(|(_, kind)| *kind == ObjectKind::Commit);
        let mut ids: Vec<_> = commits.map(|(id, _)| CommitId::from_object(id)).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() < 2 {
            return Ok(ids.pop());
        }
        let mut candidates = Vec::new();
        for id in ids {
            let Commit { time, message, .. } = self.repo.store().commit(&id)?;
            let message = message.lines().next().unwrap_or_default().to_owned();
            candidates.push(Candidate { id, time, message });
        }
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.time));
        candidates.truncate(CANDIDATES);
        Err(SpecError::Ambiguous { prefix: prefix.as_str().to_owned(), candidates })
    }

    fn back(&self, start: CommitId, count: usize) -> Result<CommitId, SpecError> {
        let mut id = start;
        for _ in 0..count {
            id = self.parent(id, 1)?;
        }
        Ok(id)
    }

    fn parent(&self, id: CommitId, number: usize) -> Result<CommitId, SpecError> {
        let Some(at) = number.checked_sub(1) else { return Ok(id) };
        let commit = self.repo.store().commit(&id)?;
        commit.parents.get(at).copied().ok_or(SpecError::NoParent { id, number })
    }

    fn at_date(&self, start: CommitId, date: &str, rev: &str) -> Result<CommitId, SpecError> {
        if date.trim().is_empty() {
            return Err(SpecError::NoDate { text: rev.to_owned() });
        }
        let unreadable = || SpecError::Date { date: date.to_owned() };
        let latest = (self.date)(date).ok_or_else(unreadable)?;
        // A parent may be newer than its child, so all of history is looked at.
        let mut newest: Option<(Time, CommitId)> = None;
        for step in History::new(self.repo.store(), &[start], Parents::All)? {
            let (id, commit) = match (step, newest) {
                (Ok(step), _) => step,
                // What cannot be read is older, unless a clock was wrong.
                (Err(_), Some((_, found))) => return Ok(found),
                (Err(error), None) => return Err(error.into()),
            };
            if commit.time <= latest && newest.is_none_or(|(time, _)| time < commit.time) {
                newest = Some((commit.time, id));
            }
        }
        match newest {
            Some((_, id)) => Ok(id),
            None => Err(SpecError::NoneBefore { text: rev.to_owned() }),
        }
    }

    /// The error for a text that names nothing, with names close to it.
    fn unknown(&self, text: &str) -> SpecError {
        let list = |kind| self.repo.refs().list(kind).unwrap_or_default();
        let refs = list(RefKind::Branch).into_iter().chain(list(RefKind::Tag));
        let names: Vec<RefName> = refs.map(|(name, _)| name).collect();
        let close = close_names(text, names.iter().map(RefName::short));
        SpecError::Unknown { text: text.to_owned(), close }
    }

    /// The blob that 4 to 64 hex digits name; `None` when there is none.
    ///
    /// # Errors
    /// [`SpecError::Ambiguous`] when several start like that.
    pub fn blob(&self, text: &str) -> Result<Option<BlobId>, SpecError> {
        let Some(prefix) = Prefix::parse(text) else { return Ok(None) };
        let (low, high) = prefix.bounds();
        let hits = self.repo.store().ids_between(low, high, PREFIX_HITS)?;
        let blob = |kind| matches!(kind, ObjectKind::Blob | ObjectKind::ChunkList);
        let mut ids: Vec<_> = hits.into_iter().filter(|hit| blob(hit.1)).map(|hit| hit.0).collect();
        ids.sort_unstable();
        ids.dedup();
        match ids.as_slice() {
            [] => Ok(None),
            [id] => Ok(Some(BlobId::from_object(*id))),
            _ => {
                let prefix = text.to_owned();
                Err(SpecError::Ambiguous { prefix, candidates: Vec::new() })
            }
        }
    }
}

/// What the revision at the start of `spec` may stand on, in the order in which
/// that is tried: for those who have to fetch refs before they can resolve it.
pub fn bases(spec: &[u8]) -> Vec<&str> {
    let rev = spec.split(|byte| *byte == b':').next().unwrap_or_default();
    let mut suffixes = Vec::new();
    let first = std::str::from_utf8(rev).ok();
    std::iter::successors(first, |rest| peel(rest, &mut suffixes)).collect()
}

/// The refs that a text may name, in order of preference.
pub fn names(text: &str) -> Vec<RefName> {
    let text = text.strip_prefix("refs/").unwrap_or(text);
    match text.split_once('/') {
        Some(("heads", name)) => RefName::branch(name).into_iter().collect(),
        Some(("tags", name)) => RefName::tag(name).into_iter().collect(),
        Some(("remotes", name)) => RefName::new(RefKind::Remote, name).into_iter().collect(),
        _ => [RefKind::Branch, RefKind::Tag, RefKind::Remote]
            .into_iter()
            .filter_map(|kind| RefName::new(kind, text).ok())
            .collect(),
    }
}

/// Takes the last suffix off a revision; `None` when there is none.
fn peel<'t>(text: &'t str, suffixes: &mut Vec<Suffix<'t>>) -> Option<&'t str> {
    let digits = text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (front, number) = text.split_at(text.len() - digits);
    let number = if number.is_empty() { Some(1) } else { number.parse().ok() };
    let (rest, suffix) = match (front.strip_suffix('~'), front.strip_suffix('^')) {
        (Some(rest), _) => (rest, Suffix::Back(number?)),
        (_, Some(rest)) => (rest, Suffix::Parent(number?)),
        _ => {
            let (rest, date) = text.rsplit_once('@')?;
            (rest, Suffix::Date(date))
        }
    };
    suffixes.push(suffix);
    Some(rest)
}

#[cfg(test)]
mod tests;
