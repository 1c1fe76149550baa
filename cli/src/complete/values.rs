//! What a store has to offer: refs, commits, paths, settings, labels.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use snap_core::{
    base::{
        id::{CommitId, Prefix, TreeId},
        time::Time,
    },
    format::{
        commit::Commit,
        pack::ObjectKind,
        tree::{Entry, Kind as EntryKind},
    },
    repo::{
        Repo,
        config::key::KEYS,
        history::{History, Parents},
        open::read_config_file,
        path::resolve_path,
        ref_name::RefKind,
        spec::Revisions,
    },
    store::Entries,
};
use snap_remote::location::Location;

use super::{Answer, Candidate, Files, kind::Kind};
use crate::{
    config::Settings,
    ui::{size::Size, text, time},
};

/// Commits that are offered by themselves: the newest ones.
const NEWEST: usize = 25;

/// Commits whose labels are offered.
const LABELLED: usize = 100;

/// Objects looked at for the start of an id.
const HITS: usize = 4096;

/// Names of a folder, or refs, that are offered at most. Nobody reads more.
const NAMES: usize = 1000;

/// Digits of an id that are offered.
const DIGITS: usize = 12;

/// Where one is.
#[derive(Debug)]
pub(crate) struct Place {
    /// The store that was named.
    pub(crate) store: Option<PathBuf>,
    /// Folders in which, and above which, no store is looked for.
    pub(crate) ceilings: Vec<PathBuf>,
    /// The user's home folder, which a shell would put in place of `~`.
    pub(crate) home: Option<PathBuf>,
    /// The present.
    pub(crate) now: Time,
    /// The settings of the user.
    pub(crate) settings: Settings,
}

/// What there is in the store of this place, if there is one.
pub(super) struct Values {
    place: Place,
}

impl Values {
    pub(super) fn new(place: Place) -> Self {
        Self { place }
    }

    /// What an argument of this kind may be, from `current` on. `first` is the
    /// first argument of the command.
    pub(super) fn answer(&self, kind: Kind, current: &[u8], first: Option<&OsStr>) -> Answer {
        let files = match kind {
            // What follows a colon is no file here.
            Kind::RevOrEntry if current.contains(&b':') => Files::None,
            // A bundle stands in place of a commit.
            Kind::File | Kind::RevOrEntry => Files::All,
            Kind::Folder => Files::Folders,
            _ => Files::None,
        };
        let candidates = match kind {
            Kind::File | Kind::Folder | Kind::Other => None,
            Kind::Setting => std::str::from_utf8(current).ok().map(settings),
            Kind::Remote => std::str::from_utf8(current).ok().map(|typed| self.remotes(typed)),
            _ => self.open().and_then(|repo| self.of_repo(&repo, kind, current)),
        };
        let mut candidates = candidates.unwrap_or_default();
        // Control characters cannot be typed, and could steer the terminal.
        candidates.retain(|found| !found.value.iter().any(u8::is_ascii_control));
        if kind == Kind::Branch {
            // One that was named cannot be meant again.
            candidates.retain(|found| first.is_none_or(|it| it.as_encoded_bytes() != found.value));
        }
        Answer { candidates, files }
    }

    fn open(&self) -> Option<Repo> {
        Repo::open_as_it_is(&self.dir()?).ok()
    }

    /// The store of this place.
    fn dir(&self) -> Option<PathBuf> {
        match &self.place.store {
            Some(dir) => Some(self.without_tilde(dir)),
            None => Repo::find(&std::path::absolute(".").ok()?, &self.place.ceilings),
        }
    }

    /// Names of remotes, with where they are.
    fn remotes(&self, typed: &str) -> Vec<Candidate> {
        let settings = match self.dir().and_then(|dir| read_config_file(&dir).ok()) {
            Some(file) => self.place.settings.with_store(file),
            None => self.place.settings.clone(),
        };
        let names = settings.remotes().into_iter().filter(|name| name.starts_with(typed));
        let about = |name: &str| {
            let url = settings.remote_url(name)?.parse::<Location>().ok()?;
            Some(url.to_string())
        };
        names.map(|name| Candidate::new(&*name, about(&name).unwrap_or_default())).collect()
    }

    /// The folder that a shell takes `~/DIR` for.
    fn without_tilde(&self, dir: &Path) -> PathBuf {
        match (dir.strip_prefix("~"), &self.place.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => dir.to_owned(),
        }
    }

    fn of_repo(&self, repo: &Repo, kind: Kind, current: &[u8]) -> Option<Vec<Candidate>> {
        let Ok(typed) = std::str::from_utf8(current) else {
            // Only names of files can be such bytes.
            return matches!(kind, Kind::RevOrEntry | Kind::Entry)
                .then(|| self.entries(repo, current))?;
        };
        Some(match kind {
            Kind::Rev => self.revs(repo, typed),
            Kind::RevOrEntry | Kind::Entry if typed.contains(':') => self.entries(repo, current)?,
            Kind::RevOrEntry => {
                let revs = self.revs(repo, typed).into_iter();
                revs.map(|rev| Candidate { goes_on: true, ..rev }).collect()
            }
            Kind::Entry => {
                let with_colon = |mut rev: Candidate| {
                    rev.value.push(b':');
                    Candidate { goes_on: true, ..rev }
                };
                self.revs(repo, typed).into_iter().map(with_colon).collect()
            }
            Kind::Branch => names(repo, RefKind::Branch, typed),
            Kind::BranchOrHead => {
                let head = Candidate::new("HEAD", "where you are");
                let head = "HEAD".starts_with(typed).then_some(head);
                names(repo, RefKind::Branch, typed).into_iter().chain(head).collect()
            }
            Kind::Tag => names(repo, RefKind::Tag, typed),
            Kind::Ref => [RefKind::Branch, RefKind::Tag]
                .into_iter()
                .flat_map(|kind| names(repo, kind, typed))
                .collect(),
            Kind::Label => labels(repo, typed),
            Kind::Remote | Kind::Setting | Kind::File | Kind::Folder | Kind::Other => Vec::new(),
        })
    }

    /// Refs first, then the newest commits, then those whose ids start so.
    fn revs(&self, repo: &Repo, typed: &str) -> Vec<Candidate> {
        let words = [("latest", "the newest snapshot"), ("HEAD", "the newest snapshot")];
        let words = words.into_iter().filter(|(word, _)| word.starts_with(typed));
        let mut found: Vec<_> = words.map(|(word, about)| Candidate::new(word, about)).collect();
        for kind in [RefKind::Branch, RefKind::Tag] {
            found.extend(names(repo, kind, typed));
        }
        let mut offered = BTreeSet::new();
        let mut offer = |id: CommitId, commit: &Commit| {
            let short = format!("{id:.DIGITS$}");
            let matches = id.to_string().starts_with(typed) && offered.insert(id);
            // Of a longer start the rest is offered, too.
            let shown = if typed.len() > DIGITS { id.to_string() } else { short };
            matches.then(|| Candidate::new(shown, about(commit)))
        };
        if typed.bytes().all(|b| b.is_ascii_hexdigit()) {
            found.extend(newest(repo, NEWEST).filter_map(|(id, commit)| offer(id, &commit)));
        }
        if let Some(prefix) = Prefix::parse(typed) {
            let (low, high) = prefix.bounds();
            let hits = repo.store().ids_between(low, high, HITS).unwrap_or_default();
            let commits = hits.into_iter().filter(|(_, kind)| *kind == ObjectKind::Commit);
            for id in commits.map(|(id, _)| CommitId::from_object(id)).take(NEWEST) {
                let commit = repo.store().commit(&id);
                found.extend(commit.ok().and_then(|commit| offer(id, &commit)));
            }
        }
        found
    }

    /// What the folder named after `REV:` holds.
    fn entries(&self, repo: &Repo, current: &[u8]) -> Option<Vec<Candidate>> {
        let (rev_end, tree) = self.rev_of(repo, current)?;
        let path = &current[rev_end + 1..];
        let name_start = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        let (folder, start) = path.split_at(name_start);
        let tree = resolve_path(repo.store(), tree, folder).ok()?.tree()?;
        let entries = Entries::from(repo.store(), tree, start.to_owned()).map_while(Result::ok);
        let entries = entries.take_while(|entry| entry.name.as_bytes().starts_with(start));
        let front = &current[..rev_end + 1 + name_start];
        Some(entries.take(NAMES).map(|entry| candidate(front, &entry)).collect())
    }

    /// The tree of the revision that `current` starts with, and where its `:`
    /// is. A date in it may have colons, too.
    fn rev_of(&self, repo: &Repo, current: &[u8]) -> Option<(usize, TreeId)> {
        let date = |text: &str| time::parse(text, self.place.now);
        let revisions = Revisions::new(repo, &date);
        let colons = current.iter().enumerate().filter(|(_, b)| **b == b':').map(|(at, _)| at);
        // Few dates have more. The longest wins, as where revisions are read.
        let colons: Vec<_> = colons.take(4).collect();
        for at in colons.into_iter().rev() {
            let rev = std::str::from_utf8(&current[..at]).ok()?;
            if let Ok(id) = revisions.commit(rev) {
                return Some((at, repo.store().commit(&id).ok()?.tree));
            }
        }
        None
    }
}

fn candidate(front: &[u8], entry: &Entry) -> Candidate {
    let mut value = front.to_owned();
    value.extend_from_slice(entry.name.as_bytes());
    match &entry.kind {
        EntryKind::Folder { .. } => {
            value.push(b'/');
            Candidate::open(value, "")
        }
        EntryKind::File { size, .. } => Candidate::new(value, Size(*size).to_string()),
        kind => Candidate::new(value, kind.noun()),
    }
}

fn newest(repo: &Repo, count: usize) -> impl Iterator<Item = (CommitId, Commit)> {
    let head = repo.refs().head_commit().ok().flatten();
    let starts: Vec<_> = head.into_iter().collect();
    let history = History::new(repo.store(), &starts, Parents::All).ok();
    history.into_iter().flatten().map_while(Result::ok).take(count)
}

fn names(repo: &Repo, kind: RefKind, typed: &str) -> Vec<Candidate> {
    let names = repo.refs().names(kind).unwrap_or_default();
    let names = names.into_iter().filter(|name| name.short().starts_with(typed));
    names.take(NAMES).map(|name| Candidate::new(name.short(), kind.noun())).collect()
}

/// When and what for.
fn about(commit: &Commit) -> String {
    let when = time::local(commit.time);
    let when = when.get(..16).unwrap_or(&when);
    let message = commit.message.lines().next().unwrap_or_default();
    let message: String = text::line(message.as_bytes()).chars().take(50).collect();
    format!("{when} {message}").trim_end().to_owned()
}

/// Those of profiles left aside, whose names only the user knows.
fn settings(typed: &str) -> Vec<Candidate> {
    let keys = KEYS.iter().filter(|key| key.is_plain() && key.name.starts_with(typed));
    keys.map(|key| Candidate::new(key.name, "")).collect()
}

/// Keys of labels, and behind a key its values.
fn labels(repo: &Repo, typed: &str) -> Vec<Candidate> {
    let mut found = BTreeSet::new();
    for (_, commit) in newest(repo, LABELLED) {
        found.extend(commit.labels.iter().filter_map(|(key, value)| {
            let whole = format!("{key}={value}");
            let goes_on = !typed.contains('=');
            let offered = if goes_on { format!("{key}=") } else { whole };
            offered.starts_with(typed).then_some((offered, goes_on))
        }));
    }
    let found = found.into_iter().take(NAMES);
    found.map(|(value, goes_on)| Candidate { goes_on, ..Candidate::new(value, "") }).collect()
}
