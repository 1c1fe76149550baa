//! Revisions: text that names one commit.
//!
//! | text               | meaning                                            |
//! |--------------------|----------------------------------------------------|
//! | `HEAD`, `latest`   | the commit that `HEAD` leads to                    |
//! | `NAME`             | a branch, else `REMOTE/BRANCH`, else a tag         |
//! | `heads/N`, `tags/N`, `remotes/N` | a ref of that kind; `refs/` may come before |
//! | 4 to 64 hex digits | the commit whose id has this prefix                |
//! | `REV~N`, `REV~`    | N first parents back                               |
//! | `REV^N`, `REV^`    | the N-th parent; `REV^0` is `REV`                  |
//! | `REV@DATE`         | the newest commit of that history up to DATE       |
//! | `REV:PATH`         | an entry of that snapshot                          |
//!
//! Other users can push tags of any name into every clone. So a tag comes after all branches, a ref
//! called `REV@DATE` comes after the date, and snap reports a name that is also an id prefix. The
//! caller parses dates, because it knows the time zone. A date may contain `:`; if there are
//! several ways to split a text, the longest date wins.

use crate::{
    base::{
        id::{CommitId, ContentId, Id, IdPrefix, ObjectId},
        kind::Kind,
        suggestions::similar_names,
        time::Time,
    },
    format::{commit::Commit, pack::ObjectKind},
    repo::{
        history::{History, HistoryStep, Parents},
        open::Repo,
        path::PathInTreeError,
        ref_name::{RefKind, RefName},
        refs::RefError,
    },
    store::StoreError,
};

/// Maximum number of objects that one prefix may match. Even in a store that fills a disk, fewer
/// ids share four digits.
const PREFIX_HITS: usize = 1 << 16;

/// Maximum number of candidates in an error.
const CANDIDATES: usize = 10;

/// Parses the text of a date. A date without a time means the end of that day.
pub type ParseDate<'a> = &'a dyn Fn(&str) -> Option<Time>;

/// A commit, and possibly a path in it.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub id: CommitId,
    /// The decoded commit.
    pub commit: Commit,
    /// The text of the revision, without the path.
    pub rev: String,
    /// The path after the `:`.
    pub path: Option<Vec<u8>>,
}

/// A commit that matches an ambiguous prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixMatch {
    pub id: CommitId,
    /// The time of the commit.
    pub time: Time,
    /// The first line of its message.
    pub message: String,
}

/// Why a text does not name one commit.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(NotFound)]
#[non_exhaustive]
pub enum SpecError {
    /// A part of the revision names no commit; `close` are similar names.
    #[error("`{text}` is not a commit, branch or tag")]
    Unknown { text: String, close: Vec<String> },
    /// The branch has no commit yet.
    #[error("branch `{}` has no commit yet", branch.short())]
    Unborn { branch: RefName },
    /// Several commits have this prefix. The candidates are some of them, newest first.
    #[error("id prefix `{prefix}` is ambiguous")]
    Ambiguous { prefix: String, candidates: Vec<PrefixMatch> },
    /// The commit does not have this parent. Parents count from 1.
    #[error("commit {id:.12} has no parent {number}")]
    NoParent { id: CommitId, number: usize },
    /// No commit of the history is this old.
    #[error("`{text}` has no commit on or before that date")]
    NoneBefore { text: String },
    /// All commits of the history that are this old were forgotten.
    #[error(
        "all commits of `{text}` on or before that date were forgotten; the newest of them is \
         {newest:.12} of {}",
        time.rfc3339()
    )]
    ForgottenBefore { text: String, newest: CommitId, time: Time },
    /// A date cannot be parsed.
    #[error("`{date}` is not a date")]
    #[kind(Invalid)]
    Date { date: String },
    /// The date after an `@` is missing.
    #[error("`{text}` has no date after the `@`")]
    #[kind(Invalid)]
    NoDate { text: String },
    /// The revision is not valid UTF-8; the text contains replacement characters.
    #[error("`{text}` is not a revision")]
    #[kind(Invalid)]
    Syntax { text: String },
    /// The path cannot be resolved.
    #[error(transparent)]
    Path(#[from] PathInTreeError),
    /// A ref cannot be read.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// A commit cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A suffix of a revision.
enum Suffix<'t> {
    Back(usize),
    Parent(usize),
    Date(&'t str),
}

/// Another ref or commit that a text could name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherMeaning {
    Ref(RefName),
    Commit(CommitId),
}

/// A callback with the ref that a text names, and another meaning of the text.
pub type OnAmbiguous<'a> = &'a dyn Fn(&RefName, &OtherMeaning);

/// The commit that a revision with a date names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatedCommit<'a> {
    /// The text of the revision, without a path.
    pub rev: &'a str,
    pub id: CommitId,
    /// The time of the commit.
    pub time: Time,
    /// The newest commit up to the date, if it was forgotten and is therefore not the one.
    pub forgotten: Option<(Time, CommitId)>,
}

/// A callback with the commit that a revision with a date names.
pub type OnDate<'a> = &'a dyn Fn(&DatedCommit<'_>);

/// Resolves revisions of one repository.
pub struct Revisions<'a> {
    repo: &'a Repo,
    date: ParseDate<'a>,
    on_ambiguous: Option<OnAmbiguous<'a>>,
    on_date: Option<OnDate<'a>>,
}

impl<'a> Revisions<'a> {
    /// Makes a resolver that parses the text after an `@` with `date`.
    pub fn new(repo: &'a Repo, date: ParseDate<'a>) -> Self {
        Self { repo, date, on_ambiguous: None, on_date: None }
    }

    /// Reports a text that names a remote branch and also a local branch or a tag, or that names a
    /// ref and also begins the id of a commit.
    #[must_use]
    pub fn on_ambiguous(self, receiver: OnAmbiguous<'a>) -> Self {
        Self { on_ambiguous: Some(receiver), ..self }
    }

    /// Reports the commit of each revision that has a date.
    #[must_use]
    pub fn on_date(self, receiver: OnDate<'a>) -> Self {
        Self { on_date: Some(receiver), ..self }
    }

    /// Resolves `spec` to a commit and, after a `:`, a path.
    ///
    /// **Not** checked: that the path exists.
    ///
    /// # Errors
    /// [`SpecError`] names the part that cannot be resolved.
    pub fn resolve(&self, spec: &[u8]) -> Result<Resolved, SpecError> {
        let (rev, path) = split_path(spec, self.date);
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

    /// Resolves a revision without a path.
    ///
    /// # Errors
    /// [`SpecError`] names the part that cannot be resolved.
    pub fn commit(&self, rev: &str) -> Result<CommitId, SpecError> {
        let BaseTexts { texts, mut suffixes } = BaseTexts::of(rev, self.date);
        let mut found = None;
        for (text, suffix_count) in &texts {
            found = self.named(text)?;
            if found.is_some() {
                suffixes.truncate(*suffix_count);
                break;
            }
        }
        let shortest = texts.iter().map(|(text, _)| *text).min_by_key(|text| text.len());
        let mut id = found.ok_or_else(|| self.unknown(shortest.unwrap_or(rev)))?;
        let mut dated = None;
        // The suffix next to the base is the last one.
        while let Some(suffix) = suffixes.pop() {
            id = match suffix {
                Suffix::Back(count) => (0..count).try_fold(id, |id, _| self.parent(id, 1))?,
                Suffix::Parent(number) => self.parent(id, number)?,
                Suffix::Date(date) => {
                    let found = self.at_date(id, date, rev)?;
                    dated = Some(found.forgotten);
                    found.id
                }
            };
        }
        if let (Some(forgotten), Some(report)) = (dated, self.on_date) {
            let time = self.repo.store().ancestor(&id)?.commit.time;
            report(&DatedCommit { rev, id, time, forgotten });
        }
        Ok(id)
    }

    /// Returns the error for a branch of `HEAD` without a commit.
    fn absent(&self, branch: RefName) -> Result<SpecError, SpecError> {
        Ok(match self.repo.lost_ref(&branch)? {
            Some(at) => RefError::Lost { name: branch, at }.into(),
            None => SpecError::Unborn { branch },
        })
    }

    /// Resolves a text without suffixes; returns `None` if it names no commit.
    fn named(&self, text: &str) -> Result<Option<CommitId>, SpecError> {
        if matches!(text, "HEAD" | "latest") {
            let head = self.repo.refs().head()?;
            return match (self.repo.refs().head_commit()?, head) {
                (None, super::refs::Head::Branch(branch)) => Err(self.absent(branch)?),
                (found, _) => Ok(found),
            };
        }
        if let Ok(id) = text.parse::<CommitId>() {
            let store = self.repo.store();
            let is_known = match store.locate(&id.object())? {
                Some(place) => place.kind == ObjectKind::Commit,
                None => store.knows(&id)?,
            };
            return Ok(is_known.then_some(id));
        }
        let names = names(text);
        for (at, name) in names.iter().enumerate() {
            if let Some(id) = self.repo.refs().read(name)? {
                self.report_ambiguous(name, &names[at + 1..], text);
                return Ok(Some(id));
            }
        }
        if let Some(prefix) = IdPrefix::parse(text) { self.prefixed(&prefix) } else { Ok(None) }
    }

    /// Reports the first of `others` that exists, if it or `used` is a remote branch, or else the
    /// commit whose id begins with `text`.
    fn report_ambiguous(&self, used: &RefName, others: &[RefName], text: &str) {
        let Some(report) = self.on_ambiguous else { return };
        let is_remote = |name: &RefName| name.kind() == RefKind::Remote;
        let mut others = others.iter().filter(|other| is_remote(used) || is_remote(other));
        // A damaged ref counts, too.
        let other = others.find(|other| !matches!(self.repo.refs().read(other), Ok(None)));
        if let Some(other) = other {
            report(used, &OtherMeaning::Ref(other.clone()));
        } else if let Some(prefix) = IdPrefix::parse(text)
            && let Ok(Some(id)) = self.prefixed(&prefix)
        {
            report(used, &OtherMeaning::Commit(id));
        }
    }

    /// Returns the only commit whose id has this prefix.
    fn prefixed(&self, prefix: &IdPrefix) -> Result<Option<CommitId>, SpecError> {
        let (low, high) = prefix.bounds();
        let store = self.repo.store();
        let commits = store.ids_between(low, high, PREFIX_HITS)?;
        // The bounds of the inverted ids of links are the inverted bounds.
        let (low, high) = (high.map(|byte| !byte), low.map(|byte| !byte));
        let links = store.ids_between(&low, &high, PREFIX_HITS)?;
        let commit = |(id, kind): (ObjectId, ObjectKind)| {
            (kind == ObjectKind::Commit).then(|| CommitId::from_object(id))
        };
        let linked = |(id, kind): (ObjectId, ObjectKind)| {
            (kind == ObjectKind::Link).then(|| CommitId::of_link(id))
        };
        let mut ids: Vec<CommitId> = commits.into_iter().filter_map(commit).collect();
        ids.extend(links.into_iter().filter_map(linked));
        ids.sort_unstable();
        ids.dedup();
        if ids.len() < 2 {
            return Ok(ids.pop());
        }
        let mut candidates = Vec::new();
        for id in ids {
            let Commit { time, message, .. } = self.repo.store().ancestor(&id)?.commit;
            let message = message.lines().next().unwrap_or_default().to_owned();
            candidates.push(PrefixMatch { id, time, message });
        }
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.time));
        candidates.truncate(CANDIDATES);
        Err(SpecError::Ambiguous { prefix: prefix.as_str().to_owned(), candidates })
    }

    fn parent(&self, id: CommitId, number: usize) -> Result<CommitId, SpecError> {
        let Some(at) = number.checked_sub(1) else { return Ok(id) };
        let commit = self.repo.store().ancestor(&id)?.commit;
        commit.parents.get(at).copied().ok_or(SpecError::NoParent { id, number })
    }

    fn at_date<'r>(
        &self,
        start: CommitId,
        date: &str,
        rev: &'r str,
    ) -> Result<DatedCommit<'r>, SpecError> {
        if date.trim().is_empty() {
            return Err(SpecError::NoDate { text: rev.to_owned() });
        }
        let unreadable = || SpecError::Date { date: date.to_owned() };
        let latest = (self.date)(date).ok_or_else(unreadable)?;
        // A parent may be newer than its child, so search the whole history.
        let (mut newest, mut newest_forgotten) = (None::<(Time, CommitId)>, None);
        for step in History::new(self.repo.store(), &[start], Parents::All)? {
            let HistoryStep { id, commit, is_forgotten } = match (step, newest) {
                (Ok(step), _) => step,
                // Commits that cannot be read are older than those found, unless a clock was wrong.
                (Err(_), Some(_)) => break,
                (Err(error), None) => return Err(error.into()),
            };
            let best = if is_forgotten { &mut newest_forgotten } else { &mut newest };
            if commit.time <= latest && best.is_none_or(|(time, _)| time < commit.time) {
                *best = Some((commit.time, id));
            }
        }
        let text = || rev.to_owned();
        match (newest, newest_forgotten) {
            (Some((time, id)), forgotten) => {
                let forgotten = forgotten.filter(|(forgotten, _)| *forgotten > time);
                Ok(DatedCommit { rev, id, time, forgotten })
            }
            (None, Some((time, newest))) => {
                Err(SpecError::ForgottenBefore { text: text(), newest, time })
            }
            (None, None) => Err(SpecError::NoneBefore { text: text() }),
        }
    }

    /// Returns the error for a text that names nothing, with similar names.
    fn unknown(&self, text: &str) -> SpecError {
        let list = |kind| self.repo.refs().list(kind).unwrap_or_default();
        let refs = list(RefKind::Branch).into_iter().chain(list(RefKind::Tag));
        let names: Vec<RefName> = refs.map(|(name, _)| name).collect();
        let fixed = ["latest", "HEAD"];
        let close = similar_names(text, names.iter().map(RefName::short).chain(fixed));
        SpecError::Unknown { text: text.to_owned(), close }
    }

    /// Resolves 4 to 64 hex digits to a blob or a chunk list; returns `None` if none matches.
    ///
    /// # Errors
    /// [`SpecError::Ambiguous`] if several of them have this prefix.
    pub fn content(&self, text: &str) -> Result<Option<ContentId>, SpecError> {
        let Some(prefix) = IdPrefix::parse(text) else { return Ok(None) };
        let (low, high) = prefix.bounds();
        // A content may be stored both whole and as a chunk list.
        let found = self.repo.store().ids_between(low, high, PREFIX_HITS)?;
        let content = |(id, kind): (ObjectId, ObjectKind)| match kind {
            ObjectKind::Blob => Some(ContentId::Blob(Id::from_object(id))),
            ObjectKind::ChunkList => Some(ContentId::Chunked(Id::from_object(id))),
            _ => None,
        };
        let mut contents: Vec<ContentId> = found.into_iter().filter_map(content).collect();
        if contents.len() < 2 {
            return Ok(contents.pop());
        }
        Err(SpecError::Ambiguous { prefix: text.to_owned(), candidates: Vec::new() })
    }
}

/// Lists the texts that may name the base commit of `REV` or `REV:PATH`, in the order in which
/// [`Revisions`] looks them up. A caller that must fetch refs first looks for them in the same
/// order.
pub fn base_texts<'s>(spec: &'s [u8], date: ParseDate<'_>) -> Vec<&'s str> {
    let rev = std::str::from_utf8(split_path(spec, date).0).ok();
    let texts = rev.map(|rev| BaseTexts::of(rev, date).texts).unwrap_or_default();
    texts.into_iter().map(|(text, _)| text).collect()
}

/// Splits `REV:PATH`.
fn split_path<'s>(spec: &'s [u8], date: ParseDate<'_>) -> (&'s [u8], Option<&'s [u8]>) {
    let cut = |at: usize| (&spec[..at], Some(&spec[at + 1..]));
    let is = |wanted: u8| move |b: &u8| *b == wanted;
    let Some(first) = spec.iter().position(is(b':')) else { return (spec, None) };
    let Some(at) = spec[..first].iter().rposition(is(b'@')) else { return cut(first) };
    let parses = |end: usize| {
        let text = std::str::from_utf8(&spec[at + 1..end]).unwrap_or_default();
        date(text.split(['~', '^']).next().unwrap_or_default()).is_some()
    };
    if parses(spec.len()) {
        return (spec, None);
    }
    let ends = (first..spec.len()).rev().filter(|at| spec[*at] == b':');
    cut(ends.into_iter().find(|at| parses(*at)).unwrap_or(first))
}

/// The possible bases of a revision.
struct BaseTexts<'t> {
    /// The texts in order of lookup, each with the number of suffixes after it in the revision.
    texts: Vec<(&'t str, usize)>,
    /// All suffixes of the revision, the outermost first.
    suffixes: Vec<Suffix<'t>>,
}

impl<'t> BaseTexts<'t> {
    fn of(rev: &'t str, date: ParseDate<'_>) -> Self {
        let (mut texts, mut suffixes) = (Vec::new(), Vec::new());
        let mut rest = Some(rev);
        while let Some(mut text) = rest {
            let longest = texts.len();
            texts.push((text, suffixes.len()));
            while let Some((before, end)) = text.rsplit_once('@')
                && date(end).is_some()
            {
                suffixes.push(Suffix::Date(end));
                texts.push((before, suffixes.len()));
                text = before;
            }
            // A date comes before a ref of the same text, so the shortest text comes first.
            texts[longest..].reverse();
            rest = peel(text, &mut suffixes);
        }
        Self { texts, suffixes }
    }
}

/// Lists the refs that a text may name, in order of precedence.
pub fn names(text: &str) -> Vec<RefName> {
    let text = text.strip_prefix("refs/").unwrap_or(text);
    if let Some((folder, name)) = text.split_once('/')
        && let Some(kind) = RefKind::of_folder(folder)
    {
        return RefName::new(kind, name).into_iter().collect();
    }
    let kinds = [RefKind::Branch, RefKind::Remote, RefKind::Tag];
    kinds.into_iter().filter_map(|kind| RefName::new(kind, text).ok()).collect()
}

/// Removes the last suffix of a revision and returns the rest; `None` if there is no suffix.
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
