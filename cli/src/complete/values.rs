//! Candidates from a store: refs, commits, paths, settings, labels.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use snap_core::{
    base::{
        id::{CommitId, IdPrefix, TreeId},
        time::Time,
    },
    format::{
        commit::Commit,
        pack::ObjectKind,
        tree::{Entry, EntryKind},
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

use super::{CompletionCandidate, Completions, FileCompletion, kind::ValueKind};
use crate::{
    config::Settings,
    typed_path,
    ui::{size::ByteCount, text, time},
};

/// Number of newest commits that are offered.
const NEWEST: usize = 25;

/// Number of newest commits whose labels are offered.
const LABELLED: usize = 100;

/// Limit on objects examined for an id prefix.
const HITS: usize = 4096;

/// Limit on entries of a folder, or refs, that are offered. Users do not read longer lists.
const NAMES: usize = 1000;

/// Number of digits of an id that are offered.
const DIGITS: usize = 12;

/// The current place: store, settings and time.
#[derive(Debug)]
pub(crate) struct CompletionContext {
    /// The store that was named.
    pub(crate) store: Option<PathBuf>,
    /// Folders at which the search for a store stops.
    pub(crate) ceilings: Vec<PathBuf>,
    /// The user's home folder, because the shell has not yet expanded `~`.
    pub(crate) home: Option<PathBuf>,
    /// The present time.
    pub(crate) now: Time,
    /// The settings of the user.
    pub(crate) settings: Settings,
}

/// The candidates from the store of a place, if there is one.
pub(super) struct Values {
    place: CompletionContext,
}

impl Values {
    pub(super) fn new(place: CompletionContext) -> Self {
        Self { place }
    }

    /// Returns the candidates for an argument of this kind that start with `current`. `first` is
    /// the first argument of the command.
    pub(super) fn answer(
        &self,
        kind: ValueKind,
        current: &[u8],
        first: Option<&OsStr>,
    ) -> Completions {
        let files = match kind {
            // The part after a colon is not a local file.
            ValueKind::RevOrEntry if current.contains(&b':') => FileCompletion::None,
            // A bundle file may be given instead of a commit.
            ValueKind::File | ValueKind::RevOrEntry => FileCompletion::All,
            ValueKind::Folder => FileCompletion::Folders,
            _ => FileCompletion::None,
        };
        let candidates = match kind {
            ValueKind::File | ValueKind::Folder | ValueKind::Other => None,
            ValueKind::Setting => std::str::from_utf8(current).ok().map(settings),
            ValueKind::Remote => std::str::from_utf8(current).ok().map(|typed| self.remotes(typed)),
            _ => self.open().and_then(|repo| self.of_repo(&repo, kind, current)),
        };
        let mut candidates = candidates.unwrap_or_default();
        // Control characters cannot be typed and could control the terminal.
        candidates.retain(|found| !found.value.iter().any(u8::is_ascii_control));
        if kind == ValueKind::Branch {
            // A branch that was already given is not offered again.
            candidates.retain(|found| first.is_none_or(|it| it.as_encoded_bytes() != found.value));
        }
        Completions { candidates, files }
    }

    fn open(&self) -> Option<Repo> {
        Repo::open_read_only(&self.dir()?).ok()
    }

    /// Returns the store of this place.
    fn dir(&self) -> Option<PathBuf> {
        match &self.place.store {
            Some(dir) => Some(self.without_tilde(dir)),
            None => Repo::find(&std::path::absolute(".").ok()?, &self.place.ceilings).ok()?,
        }
    }

    /// Returns the names of remotes with their locations.
    fn remotes(&self, typed: &str) -> Vec<CompletionCandidate> {
        let settings = match self.dir().and_then(|dir| read_config_file(&dir).ok()) {
            Some(file) => self.place.settings.with_store(file),
            None => self.place.settings.clone(),
        };
        let names = settings.remotes().into_iter().filter(|name| name.starts_with(typed));
        let about = |name: &str| {
            let url = settings.remote_url(name)?.parse::<Location>().ok()?;
            Some(url.to_string())
        };
        names
            .map(|name| CompletionCandidate::new(&*name, about(&name).unwrap_or_default()))
            .collect()
    }

    /// Replaces `~/` by the home folder, as a shell would.
    fn without_tilde(&self, dir: &Path) -> PathBuf {
        match (dir.strip_prefix("~"), &self.place.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => dir.to_owned(),
        }
    }

    fn of_repo(
        &self,
        repo: &Repo,
        kind: ValueKind,
        current: &[u8],
    ) -> Option<Vec<CompletionCandidate>> {
        let Ok(typed) = std::str::from_utf8(current) else {
            // Only paths can contain bytes that are not UTF-8.
            return matches!(kind, ValueKind::RevOrEntry | ValueKind::Entry)
                .then(|| self.entries(repo, current))?;
        };
        Some(match kind {
            ValueKind::Rev => self.revs(repo, typed),
            ValueKind::RevOrEntry | ValueKind::Entry if typed.contains(':') => {
                self.entries(repo, current)?
            }
            ValueKind::RevOrEntry => {
                let revs = self.revs(repo, typed).into_iter();
                revs.map(|rev| CompletionCandidate { continues: true, ..rev }).collect()
            }
            ValueKind::Entry => {
                let with_colon = |mut rev: CompletionCandidate| {
                    rev.value.push(b':');
                    CompletionCandidate { continues: true, ..rev }
                };
                self.revs(repo, typed).into_iter().map(with_colon).collect()
            }
            ValueKind::Branch => names(repo, RefKind::Branch, typed),
            ValueKind::BranchOrHead => {
                let head = CompletionCandidate::new("HEAD", "where you are");
                let head = "HEAD".starts_with(typed).then_some(head);
                names(repo, RefKind::Branch, typed).into_iter().chain(head).collect()
            }
            ValueKind::Tag => names(repo, RefKind::Tag, typed),
            ValueKind::Ref => [RefKind::Branch, RefKind::Tag]
                .into_iter()
                .flat_map(|kind| names(repo, kind, typed))
                .collect(),
            ValueKind::Label => labels(repo, typed),
            ValueKind::Remote
            | ValueKind::Setting
            | ValueKind::File
            | ValueKind::Folder
            | ValueKind::Other => Vec::new(),
        })
    }

    /// Returns refs first, then the newest commits, then other commits whose ids have this prefix.
    fn revs(&self, repo: &Repo, typed: &str) -> Vec<CompletionCandidate> {
        let words = [("latest", "the newest snapshot"), ("HEAD", "the newest snapshot")];
        let words = words.into_iter().filter(|(word, _)| word.starts_with(typed));
        let mut found: Vec<_> =
            words.map(|(word, about)| CompletionCandidate::new(word, about)).collect();
        for kind in [RefKind::Branch, RefKind::Tag] {
            found.extend(names(repo, kind, typed));
        }
        let mut offered = BTreeSet::new();
        let mut offer = |id: CommitId, commit: &Commit| {
            let short = format!("{id:.DIGITS$}");
            let matches = id.to_string().starts_with(typed) && offered.insert(id);
            // For a longer prefix, the full id is offered.
            let shown = if typed.len() > DIGITS { id.to_string() } else { short };
            matches.then(|| CompletionCandidate::new(shown, about(commit)))
        };
        if typed.bytes().all(|b| b.is_ascii_hexdigit()) {
            found.extend(newest(repo, NEWEST).filter_map(|(id, commit)| offer(id, &commit)));
        }
        if let Some(prefix) = IdPrefix::parse(typed) {
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

    /// Returns the entries of the folder named after `REV:`.
    fn entries(&self, repo: &Repo, current: &[u8]) -> Option<Vec<CompletionCandidate>> {
        let (rev_end, tree) = self.rev_of(repo, current)?;
        let path = &current[rev_end + 1..];
        let name_start = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        let (folder, start) = path.split_at(name_start);
        let from_top = typed_path::in_revision(repo, folder).ok()?;
        let tree = resolve_path(repo.store(), tree, &from_top).ok()?.tree()?;
        let entries = Entries::from(repo.store(), tree, start).into_iter().flatten();
        let entries = entries.map_while(Result::ok);
        let entries = entries.take_while(|entry| entry.name.as_bytes().starts_with(start));
        let front = &current[..rev_end + 1 + name_start];
        Some(entries.take(NAMES).map(|entry| candidate(front, &entry)).collect())
    }

    /// Returns the tree of the revision at the start of `current`, and the offset of the `:` after
    /// it. A date in the revision may contain colons too.
    fn rev_of(&self, repo: &Repo, current: &[u8]) -> Option<(usize, TreeId)> {
        let date = |text: &str| time::parse(text, self.place.now);
        let revisions = Revisions::new(repo, &date);
        let colons = current.iter().enumerate().filter(|(_, b)| **b == b':').map(|(at, _)| at);
        // Dates rarely have more colons. The longest revision wins, as in `Revisions`.
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

fn candidate(front: &[u8], entry: &Entry) -> CompletionCandidate {
    let mut value = front.to_owned();
    value.extend_from_slice(entry.name.as_bytes());
    match &entry.kind {
        EntryKind::Folder { .. } => {
            value.push(b'/');
            CompletionCandidate::open(value, "")
        }
        EntryKind::File { size, .. } => {
            CompletionCandidate::new(value, ByteCount(*size).to_string())
        }
        kind => CompletionCandidate::new(value, kind.noun()),
    }
}

fn newest(repo: &Repo, count: usize) -> impl Iterator<Item = (CommitId, Commit)> {
    let head = repo.refs().head_commit().ok().flatten();
    let starts: Vec<_> = head.into_iter().collect();
    let history = History::new(repo.store(), &starts, Parents::All).ok();
    let kept =
        history.into_iter().flatten().map_while(Result::ok).filter(|step| !step.is_forgotten);
    kept.map(|step| (step.id, step.commit)).take(count)
}

fn names(repo: &Repo, kind: RefKind, typed: &str) -> Vec<CompletionCandidate> {
    let names = repo.refs().names(kind).unwrap_or_default();
    let names = names.into_iter().filter(|name| name.short().starts_with(typed));
    names.take(NAMES).map(|name| CompletionCandidate::new(name.short(), kind.noun())).collect()
}

/// Describes a commit by its time and message.
fn about(commit: &Commit) -> String {
    let when = time::local(commit.time);
    let when = when.get(..16).unwrap_or(&when);
    let message = commit.message.lines().next().unwrap_or_default();
    let message: String = text::line(message.as_bytes()).chars().take(50).collect();
    format!("{when} {message}").trim_end().to_owned()
}

/// Offers settings, except those of profiles, whose names only the user knows.
fn settings(typed: &str) -> Vec<CompletionCandidate> {
    let keys = KEYS.iter().filter(|key| key.is_plain() && key.name.starts_with(typed));
    keys.map(|key| CompletionCandidate::new(key.name, "")).collect()
}

/// Offers keys of labels, and after a key its values.
fn labels(repo: &Repo, typed: &str) -> Vec<CompletionCandidate> {
    let mut found = BTreeSet::new();
    for (_, commit) in newest(repo, LABELLED) {
        found.extend(commit.labels.iter().filter_map(|(key, value)| {
            let whole = format!("{key}={value}");
            let continues = !typed.contains('=');
            let offered = if continues { format!("{key}=") } else { whole };
            offered.starts_with(typed).then_some((offered, continues))
        }));
    }
    let found = found.into_iter().take(NAMES);
    found
        .map(|(value, continues)| CompletionCandidate {
            continues,
            ..CompletionCandidate::new(value, "")
        })
        .collect()
}
