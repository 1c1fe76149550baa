//! What was when: the log, the difference of two commits, search by name, and
//! what each commit added. Lists come in pages; where one ends `next` says how
//! the next is asked for. A cursor names commits by id, so pages fit together
//! though refs move.

use std::num::NonZeroU64;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use snap_core::{
    base::id::CommitId,
    ops::{
        diff::{self, DiffError, New},
        find::{self, Found},
        log,
        path_log::{self, Renames},
        record::{
            AddedRecord, ChangeRecord, CommitRecord, LargeFileRecord, StoreRecord, VersionRecord,
            exact, text,
        },
        stats,
    },
    repo::past::PastError,
};

use super::{Server, path::Path, target::Asked};
use crate::{
    body::watched,
    problem::{Code, Problem},
    repository::{Repository, Revision},
    skip::{skip_ok, while_awaited},
};

/// Most that one page has.
const PAGE: u64 = 1000;

/// How long the paths of a page are together. A page ends early before it has more.
const PATHS_BYTES: usize = 4 << 20;

/// Matches that one search holds, in bytes, about.
const FIND_BYTES: usize = 16 << 20;

/// What it has unless told otherwise.
const SHORT_PAGE: u64 = 100;

/// Where a page begins: commits by id, and how many come before it.
struct Cursor<const N: usize> {
    commits: [CommitId; N],
    skip: u64,
}

impl<const N: usize> Cursor<N> {
    fn parse(text: &str) -> Result<Self, Problem> {
        let parsed = || {
            let mut parts = text.split('.');
            let ids: Option<Vec<CommitId>> =
                parts.by_ref().take(N).map(|id| id.parse().ok()).collect();
            let skip = parts.next()?.parse().ok()?;
            parts.next().is_none().then_some(Self { commits: ids?.try_into().ok()?, skip })
        };
        parsed().ok_or_else(|| Problem::new(Code::Invalid, "this is no cursor of ours"))
    }

    fn after(&self, count: u64) -> String {
        let ids: Vec<String> = self.commits.iter().map(ToString::to_string).collect();
        format!("{}.{}", ids.join("."), self.skip.saturating_add(count))
    }
}

/// How long a page is.
fn page(limit: Option<u64>) -> Result<u64, Problem> {
    match limit.unwrap_or(SHORT_PAGE) {
        limit @ 1..=PAGE => Ok(limit),
        _ => Err(Problem::new(Code::Invalid, format!("`limit` is from 1 to {PAGE}"))),
    }
}

impl Repository {
    /// The commit that was asked for, or the one that the default branch stands at.
    fn start(&self, rev: Option<&str>) -> Result<CommitId, Problem> {
        match rev {
            Some(rev) => Ok(self.revision(rev)?.id),
            None => {
                let branch = self.default_branch()?;
                self.standing(&branch)?.ok_or_else(|| Problem::not_found("commit yet"))
            }
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedLog {
    r#ref: Option<String>,
    path: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct LogJson {
    commits: Vec<CommitRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// `GET /v1/repos/{repo}/log`.
pub(super) async fn log(
    State(server): State<Server>,
    Path(repo): Path<String>,
    Asked(asked): Asked<AskedLog>,
) -> Result<Json<LogJson>, Problem> {
    let limit = page(asked.limit)?;
    let page = watched(move |observer| {
        let repository = server.hub().get(&repo)?;
        let cursor = match &asked.cursor {
            Some(cursor) => Cursor::parse(cursor)?,
            None => Cursor { commits: [repository.start(asked.r#ref.as_deref())?], skip: 0 },
        };
        let store = repository.repo().store();
        // One more says whether there is a next page.
        let most = cursor.skip.saturating_add(limit).saturating_add(1);
        let options = log::Options { limit: NonZeroU64::new(most), ..log::Options::default() };
        let skip = usize::try_from(cursor.skip).unwrap_or(usize::MAX);
        let commits: Vec<(CommitId, _)> = match &asked.path {
            None => {
                let all = log::run(store, &cursor.commits, &options)?;
                let mut all = while_awaited(all, observer);
                skip_ok(&mut all, skip)?;
                all.collect::<Result<_, _>>()?
            }
            Some(path) => {
                let how = (&options, Renames::Ignore);
                let paths = [path.as_bytes()];
                let mut all = path_log::run(store, &cursor.commits, &paths, how, observer)?;
                skip_ok(&mut all, skip)?;
                all.map(|step| step.map(|step| (step.id, step.commit))).collect::<Result<_, _>>()?
            }
        };
        let next = (commits.len() as u64 > limit).then(|| cursor.after(limit));
        let told = commits.iter().take(limit as usize);
        Ok(LogJson {
            commits: told.map(|(id, commit)| CommitRecord::new(id, commit)).collect(),
            next,
        })
    });
    Ok(Json(page.await?))
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedDiff {
    from: Option<String>,
    to: String,
    limit: Option<u64>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct DiffJson {
    from: String,
    to: String,
    changes: Vec<ChangeRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// `GET /v1/repos/{repo}/diff`: without `from` it is the first parent.
pub(super) async fn diff(
    State(server): State<Server>,
    Path(repo): Path<String>,
    Asked(asked): Asked<AskedDiff>,
) -> Result<Json<DiffJson>, Problem> {
    let limit = page(asked.limit)?;
    let page = watched(move |observer| {
        let repository = server.hub().get(&repo)?;
        let cursor = match &asked.cursor {
            Some(cursor) => Cursor::parse(cursor)?,
            None => Cursor { commits: sides(&repository, &asked)?, skip: 0 },
        };
        let store = repository.repo().store();
        let [from, to] = cursor.commits;
        let old = store.commit(&from)?.tree;
        let new = New::Tree(Some(store.commit(&to)?.tree));
        let (mut changes, mut met, mut path_bytes) = (Vec::new(), 0_u64, 0);
        let mut is_full = false;
        let mut each = |change: diff::Change| {
            met += 1;
            if met <= cursor.skip {
                return Ok(());
            }
            path_bytes += change.path.len();
            is_full = changes.len() == limit as usize
                || (path_bytes > PATHS_BYTES && !changes.is_empty());
            if is_full {
                return Err(DiffError::Interrupted);
            }
            changes.push(ChangeRecord::new(&change, change.differences().usual()));
            Ok(())
        };
        let options = diff::Options::default();
        let done = diff::run(store, (Some(old), &new), &options, observer, &mut each);
        match done {
            Err(DiffError::Interrupted) if is_full => {}
            done => drop(done?),
        }
        let next = is_full.then(|| cursor.after(changes.len() as u64));
        Ok(DiffJson { from: from.to_string(), to: to.to_string(), changes, next })
    });
    Ok(Json(page.await?))
}

fn sides(repository: &Repository, asked: &AskedDiff) -> Result<[CommitId; 2], Problem> {
    let Revision { id: to, commit, .. } = repository.revision(&asked.to)?;
    let from = match &asked.from {
        Some(from) => repository.revision(from)?.id,
        None => {
            let parent = commit.parents.first().copied();
            parent.ok_or_else(|| Problem::new(Code::Invalid, "it has no parent: say `from`"))?
        }
    };
    Ok([from, to])
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedFind {
    pattern: String,
    commit: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct FindJson {
    commit: String,
    found: Vec<FoundJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct FoundJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    versions: Vec<VersionRecord>,
}

impl FoundJson {
    fn new(Found { path, versions }: &Found) -> Self {
        let versions = versions.iter().map(|version| VersionRecord::new(path, version)).collect();
        Self { path: text(path), path_hex: exact(path), versions }
    }
}

/// `GET /v1/repos/{repo}/find`: in a commit and all before it.
pub(super) async fn find(
    State(server): State<Server>,
    Path(repo): Path<String>,
    Asked(asked): Asked<AskedFind>,
) -> Result<Json<FindJson>, Problem> {
    let limit = page(asked.limit)?;
    let page = watched(move |observer| {
        let repository = server.hub().get(&repo)?;
        let cursor = match &asked.cursor {
            Some(cursor) => Cursor::parse(cursor)?,
            None => Cursor { commits: [repository.start(asked.commit.as_deref())?], skip: 0 },
        };
        let (mut found, mut met, mut path_bytes) = (Vec::new(), 0_u64, 0);
        let mut is_full = false;
        let mut each = |one: &Found| {
            met += 1;
            if met <= cursor.skip {
                return Ok(());
            }
            path_bytes += one.path.len();
            is_full =
                found.len() == limit as usize || (path_bytes > PATHS_BYTES && !found.is_empty());
            if is_full {
                return Err(PastError::Interrupted);
            }
            found.push(FoundJson::new(one));
            Ok(())
        };
        let options = find::Options {
            limit_bytes: FIND_BYTES,
            ..find::Options::new(asked.pattern.as_bytes())
        };
        let store = repository.repo().store();
        match find::run(store, &cursor.commits, &options, observer, &mut each) {
            Err(PastError::Interrupted) if is_full => {}
            done => drop(done?),
        }
        let next = is_full.then(|| cursor.after(found.len() as u64));
        Ok(FindJson { commit: cursor.commits[0].to_string(), found, next })
    });
    Ok(Json(page.await?))
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedStats {
    r#ref: Option<String>,
    limit: Option<u64>,
}

/// What each commit added, the largest files, and what the store holds.
#[derive(Debug, Serialize)]
pub(super) struct StatsJson {
    commits: Vec<AddedRecord>,
    files: Vec<LargeFileRecord>,
    store: StoreRecord,
}

impl From<&stats::Outcome> for StatsJson {
    fn from(outcome: &stats::Outcome) -> Self {
        Self {
            commits: outcome.commits.iter().map(AddedRecord::from).collect(),
            files: outcome.files.iter().map(LargeFileRecord::from).collect(),
            store: outcome.into(),
        }
    }
}

/// `GET /v1/repos/{repo}/stats`.
pub(super) async fn stats(
    State(server): State<Server>,
    Path(repo): Path<String>,
    Asked(asked): Asked<AskedStats>,
) -> Result<Json<StatsJson>, Problem> {
    let limit = page(asked.limit)? as usize;
    let counted = watched(move |observer| {
        let repository = server.hub().get(&repo)?;
        let start = repository.start(asked.r#ref.as_deref())?;
        let options = stats::Options { commits: limit, files: limit };
        Ok(stats::run(repository.repo().store(), &[start], &options, observer)?)
    });
    Ok(Json((&counted.await?).into()))
}
