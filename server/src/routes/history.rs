//! History: the log, the difference of two commits, search by file name, and
//! statistics.
//!
//! Lists are paginated. `next` in a response is the cursor of the following page. A
//! cursor names commits by id, so pages stay consistent when a ref moves in between.

use std::num::NonZeroU64;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use snap_core::{
    base::{blocked::Blocked, id::CommitId},
    ops::{
        diff::{self, DiffError, New},
        find::{self, FoundPath},
        log,
        path_log::{self, FollowRenames},
        record::{
            AddedRecord, ChangeRecord, CommitRecord, LargeFileRecord, StoreRecord, VersionRecord,
            exact, text,
        },
        stats,
    },
    repo::past::PastError,
};

use super::{Server, path::Path, target::QueryParams};
use crate::{
    pagination::{skip_ok, until_cancelled},
    problem::{Code, HttpProblem},
    repository::{Repository, Revision},
};

/// Maximum number of entries on a page.
const PAGE: u64 = 1000;

/// Maximum length of all paths on a page together, in bytes. A page that reaches it ends early.
const PATHS_BYTES: usize = 4 << 20;

/// Approximate limit for the matches that one search holds in memory, in bytes.
const FIND_BYTES: usize = 16 << 20;

/// Default number of entries on a page.
const SHORT_PAGE: u64 = 100;

/// The position of a page: the start commits, and the number of entries to skip.
struct PageCursor<const N: usize> {
    commits: [CommitId; N],
    skip: u64,
}

impl<const N: usize> PageCursor<N> {
    fn parse(text: &str) -> Result<Self, HttpProblem> {
        let parsed = || {
            let mut parts = text.split('.');
            let ids: Option<Vec<CommitId>> =
                parts.by_ref().take(N).map(|id| id.parse().ok()).collect();
            let skip = parts.next()?.parse().ok()?;
            parts.next().is_none().then_some(Self { commits: ids?.try_into().ok()?, skip })
        };
        parsed().ok_or_else(|| HttpProblem::new(Code::Invalid, "`cursor` is not valid"))
    }

    fn after(&self, count: u64) -> String {
        let ids: Vec<String> = self.commits.iter().map(ToString::to_string).collect();
        format!("{}.{}", ids.join("."), self.skip.saturating_add(count))
    }
}

/// Returns the number of entries on the page, or an error if `limit` is out of range.
fn page(limit: Option<u64>) -> Result<u64, HttpProblem> {
    match limit.unwrap_or(SHORT_PAGE) {
        limit @ 1..=PAGE => Ok(limit),
        _ => Err(HttpProblem::new(Code::Invalid, format!("`limit` must be from 1 to {PAGE}"))),
    }
}

impl Repository {
    /// Returns the commit of a revision, or the tip of the default branch.
    fn start(&self, rev: Option<&str>) -> Result<CommitId, HttpProblem> {
        match rev {
            Some(rev) => Ok(self.revision(rev)?.id),
            None => {
                let branch = self.refs().default_branch()?;
                self.refs().target(&branch)?.ok_or_else(|| {
                    HttpProblem::new(Code::NotFound, "the repository has no commits")
                })
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
    QueryParams(query): QueryParams<AskedLog>,
) -> Result<Json<LogJson>, HttpProblem> {
    let limit = page(query.limit)?;
    let page = server.with_observer(repo, move |repository, observer| {
        let cursor = match &query.cursor {
            Some(cursor) => PageCursor::parse(cursor)?,
            None => PageCursor { commits: [repository.start(query.r#ref.as_deref())?], skip: 0 },
        };
        let store = repository.repo().store();
        // Ask for one more entry, which shows whether there is another page.
        let most = cursor.skip.saturating_add(limit).saturating_add(1);
        let options =
            log::LogOptions { limit: NonZeroU64::new(most), ..log::LogOptions::default() };
        let skip = usize::try_from(cursor.skip).unwrap_or(usize::MAX);
        let commits: Vec<(CommitId, _)> = match &query.path {
            None => {
                let all = log::run(store, &cursor.commits, &log::LogOptions::default())?;
                let all = log::kept(all).take(usize::try_from(most).unwrap_or(usize::MAX));
                let mut all = until_cancelled(all, observer);
                skip_ok(&mut all, skip)?;
                all.map(|step| step.map(|step| (step.id, step.commit))).collect::<Result<_, _>>()?
            }
            Some(path) => {
                let renames = FollowRenames::Ignore;
                let paths = [path.as_bytes()];
                let mut all =
                    path_log::run(store, &cursor.commits, &paths, &options, renames, observer)?;
                skip_ok(&mut all, skip)?;
                all.map(|step| step.map(|step| (step.id, step.commit))).collect::<Result<_, _>>()?
            }
        };
        let next = (commits.len() as u64 > limit).then(|| cursor.after(limit));
        let page_commits = commits.iter().take(limit as usize);
        Ok(LogJson {
            commits: page_commits.map(|(id, commit)| CommitRecord::new(id, commit)).collect(),
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

/// `GET /v1/repos/{repo}/diff`. Default for `from`: the first parent.
pub(super) async fn diff(
    State(server): State<Server>,
    Path(repo): Path<String>,
    QueryParams(query): QueryParams<AskedDiff>,
) -> Result<Json<DiffJson>, HttpProblem> {
    let limit = page(query.limit)?;
    let page = server.with_observer(repo, move |repository, observer| {
        let cursor = match &query.cursor {
            Some(cursor) => PageCursor::parse(cursor)?,
            None => PageCursor { commits: sides(repository, &query)?, skip: 0 },
        };
        let store = repository.repo().store();
        let [from, to] = cursor.commits;
        let old = store.commit(&from)?.tree;
        let new = New::Tree(Some(store.commit(&to)?.tree));
        let (mut changes, mut seen, mut path_bytes) = (Vec::new(), 0_u64, 0);
        let mut is_full = false;
        let mut each = |change: diff::Change| {
            seen += 1;
            if seen <= cursor.skip {
                return Ok(());
            }
            path_bytes += change.path.len();
            is_full = changes.len() == limit as usize
                || (path_bytes > PATHS_BYTES && !changes.is_empty());
            if is_full {
                return Err(Blocked::Interrupted.into());
            }
            changes.push(ChangeRecord::new(&change, change.differences().usual()));
            Ok(())
        };
        let options = diff::DiffOptions::default();
        let done = diff::run(store, Some(old), &new, &options, observer, &mut each);
        match done {
            Err(DiffError::Blocked(_)) if is_full => {}
            done => drop(done?),
        }
        let next = is_full.then(|| cursor.after(changes.len() as u64));
        Ok(DiffJson { from: from.to_string(), to: to.to_string(), changes, next })
    });
    Ok(Json(page.await?))
}

fn sides(repository: &Repository, query: &AskedDiff) -> Result<[CommitId; 2], HttpProblem> {
    let Revision { id: to, commit, .. } = repository.revision(&query.to)?;
    let from = match &query.from {
        Some(from) => repository.revision(from)?.id,
        None => {
            let parent = commit.parents.first().copied();
            parent.ok_or_else(|| {
                HttpProblem::new(Code::Invalid, "the commit has no parent: set `from`")
            })?
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
    fn new(FoundPath { path, versions }: &FoundPath) -> Self {
        let versions = versions.iter().map(|version| VersionRecord::new(path, version)).collect();
        Self { path: text(path), path_hex: exact(path), versions }
    }
}

/// `GET /v1/repos/{repo}/find`: searches a commit and its ancestors.
pub(super) async fn find(
    State(server): State<Server>,
    Path(repo): Path<String>,
    QueryParams(query): QueryParams<AskedFind>,
) -> Result<Json<FindJson>, HttpProblem> {
    let limit = page(query.limit)?;
    let page = server.with_observer(repo, move |repository, observer| {
        let cursor = match &query.cursor {
            Some(cursor) => PageCursor::parse(cursor)?,
            None => PageCursor { commits: [repository.start(query.commit.as_deref())?], skip: 0 },
        };
        let (mut found, mut seen, mut path_bytes) = (Vec::new(), 0_u64, 0);
        let mut is_full = false;
        let mut each = |one: &FoundPath| {
            seen += 1;
            if seen <= cursor.skip {
                return Ok(());
            }
            path_bytes += one.path.len();
            is_full =
                found.len() == limit as usize || (path_bytes > PATHS_BYTES && !found.is_empty());
            if is_full {
                return Err(Blocked::Interrupted.into());
            }
            found.push(FoundJson::new(one));
            Ok(())
        };
        let options = find::FindOptions {
            limit_bytes: FIND_BYTES,
            ..find::FindOptions::new(query.pattern.as_bytes())
        };
        let store = repository.repo().store();
        match find::run(store, &cursor.commits, &options, observer, &mut each) {
            Err(PastError::Blocked(_)) if is_full => {}
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

/// The bytes that each commit added, the largest files, and the size of the store.
#[derive(Debug, Serialize)]
pub(super) struct StatsResponse {
    commits: Vec<AddedRecord>,
    files: Vec<LargeFileRecord>,
    store: StoreRecord,
}

impl From<&stats::StatsOutcome> for StatsResponse {
    fn from(outcome: &stats::StatsOutcome) -> Self {
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
    QueryParams(query): QueryParams<AskedStats>,
) -> Result<Json<StatsResponse>, HttpProblem> {
    let limit = page(query.limit)? as usize;
    let counted = server.with_observer(repo, move |repository, observer| {
        let start = repository.start(query.r#ref.as_deref())?;
        let options = stats::StatsOptions { commits: limit, files: limit };
        Ok(stats::run(repository.repo().store(), &[start], &options, observer)?)
    });
    Ok(Json((&counted.await?).into()))
}
