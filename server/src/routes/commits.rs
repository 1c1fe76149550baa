//! Commits: the commit itself, its tree as JSON, and archives of it. Trees and archives
//! are streamed.

use std::{io, sync::Arc};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, header};
use serde::Deserialize;
use snap_core::{
    base::{id::TreeId, observe::Silent},
    format::{
        commit::Commit,
        tree::{Entry, EntryKind, Totals},
    },
    ops::{
        export::{self, ArchiveFormat, ExportError, MetadataLoss, PathPrefix},
        list::{self, ListDepth, ListError},
        record::{CommitRecord, EntryRecord},
        restore::RestoreSource,
    },
    repo::path::{ResolvedPath, components},
};

use super::{
    Server,
    conditional::{etag, is_not_modified, not_modified, set_commit_headers},
    disposition::{DispositionKind, disposition},
    target::{CommitPath, QueryParams},
};
use crate::{
    body::unsized_body,
    causes::causes,
    problem::{Code, HttpProblem},
    repository::{Repository, Revision},
};

/// The version of the JSON format. It is part of the ETags, so a new format changes
/// them.
const FORM: u32 = 2;

/// `GET …/commits/{commit}`.
pub(super) async fn read(
    State(server): State<Server>,
    target: CommitPath,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let CommitPath { repo, rev, .. } = target;
    let revision = server.with(repo, move |repository| repository.revision(&rev)).await?;
    let Revision { id, commit, is_id } = revision;
    let tag = etag(format_args!("{id}.{FORM}"))?;
    if is_not_modified(&headers, &tag) {
        return Ok(not_modified(id, is_id, &tag));
    }
    let mut response = Json(CommitRecord::new(&id, &commit)).into_response();
    set_commit_headers(response.headers_mut(), id, is_id, &tag);
    Ok(response)
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedTree {
    /// True for all entries below the folder, false for its direct entries. Default:
    /// true.
    recursive: Option<bool>,
}

/// `GET …/commits/{commit}/tree[/{*path}]`.
pub(super) async fn tree(
    State(server): State<Server>,
    target: CommitPath,
    QueryParams(query): QueryParams<AskedTree>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let CommitPath { repo, rev, path } = target;
    let path = components(&path).collect::<Vec<_>>().join(&b'/');
    let wanted = path.clone();
    let found = server.with(repo, move |repository| {
        let revision = repository.revision(&rev)?;
        let found = repository.at_path(&revision.commit, &wanted)?;
        Ok((Arc::clone(repository), revision, found))
    });
    let (repository, revision, found) = found.await?;
    let depth = if query.recursive == Some(false) { ListDepth::Folder } else { ListDepth::All };
    let depth_name = if depth == ListDepth::All { "all" } else { "folder" };
    let tag = etag(format_args!("{}.{FORM}.{depth_name}", revision.id))?;
    if is_not_modified(&headers, &tag) {
        return Ok(not_modified(revision.id, revision.is_id, &tag));
    }
    let mut response = Response::new(unsized_body());
    set_commit_headers(response.headers_mut(), revision.id, revision.is_id, &tag);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    if method != Method::HEAD {
        let sent = server.send_begun(move |out| {
            write!(out, "{{\"commit\":\"{}\",\"entries\":[", revision.id)?;
            match found {
                ResolvedPath::Entry(entry) if entry.folder().is_none() => {
                    serde_json::to_writer(&mut *out, &EntryRecord::new(&path, &entry))?;
                }
                found => {
                    let tree = found.tree().unwrap_or(revision.commit.tree);
                    write_entries(&repository, tree, &path, depth, out)?;
                }
            }
            out.write_all(b"]}\n")
        });
        *response.body_mut() = sent.await?;
    }
    Ok(response)
}

fn write_entries(
    repository: &Repository,
    tree: TreeId,
    prefix: &[u8],
    depth: ListDepth,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut line = Vec::new();
    let mut each = |path: &[u8], entry: &Entry| {
        // Write each entry together with the separator after the entry before it.
        let first = line.is_empty();
        line.clear();
        line.extend_from_slice(if first { b"\n" } else { b",\n" });
        serde_json::to_writer(&mut line, &EntryRecord::new(path, entry))?;
        out.write_all(&line)
    };
    match list::run(repository.repo().store(), tree, prefix, depth, &Silent, &mut each) {
        Ok(_) => Ok(()),
        Err(ListError::Output(error)) => Err(error),
        Err(error) => {
            tracing::error!(error = %causes(&error), "cannot read a tree");
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedArchive {
    /// A folder or a file of the commit. Default: the root.
    path: Option<String>,
}

/// `GET …/commits/{commit}/archive.tar`.
pub(super) async fn tar(
    server: State<Server>,
    target: CommitPath,
    query: QueryParams<AskedArchive>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    archive(ArchiveFormat::Tar, server, target, query, method, headers).await
}

/// `GET …/commits/{commit}/archive.tar.zst`.
pub(super) async fn tar_zst(
    server: State<Server>,
    target: CommitPath,
    query: QueryParams<AskedArchive>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    archive(ArchiveFormat::TarZst, server, target, query, method, headers).await
}

/// `GET …/commits/{commit}/archive.zip`.
pub(super) async fn zip(
    server: State<Server>,
    target: CommitPath,
    query: QueryParams<AskedArchive>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    archive(ArchiveFormat::Zip, server, target, query, method, headers).await
}

/// Returns the file extension and the content type of an archive.
fn named(format: ArchiveFormat) -> (&'static str, &'static str) {
    match format {
        ArchiveFormat::Tar => ("tar", "application/x-tar"),
        ArchiveFormat::TarZst => ("tar.zst", "application/zstd"),
        ArchiveFormat::Zip => ("zip", "application/zip"),
    }
}

/// The minimum size of an entry in the central directory of a zip archive, in bytes.
const ZIP_ENTRY_BYTES: u64 = 46;

/// Refuses a zip archive of a whole commit whose central directory would exceed the
/// spool limit, judging by the number of entries in the commit's totals.
///
/// # Errors
/// [`Code::Invalid`], with a hint at another request.
fn check_zip(commit: &Commit, what: &RestoreSource, most_bytes: u64) -> Result<(), HttpProblem> {
    let RestoreSource::Folder { tree, .. } = what else { return Ok(()) };
    let Totals { files, folders, others, .. } = commit.totals;
    let entries = files.saturating_add(folders).saturating_add(others);
    if *tree == commit.tree && entries.saturating_mul(ZIP_ENTRY_BYTES) > most_bytes {
        let why = format!(
            "the central directory of a zip archive with {entries} entries exceeds \
             `limits.archive_bytes`; request archive.tar, or one folder with `path`"
        );
        return Err(HttpProblem::new(Code::Invalid, why));
    }
    Ok(())
}

async fn archive(
    format: ArchiveFormat,
    State(server): State<Server>,
    target: CommitPath,
    QueryParams(query): QueryParams<AskedArchive>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let CommitPath { repo, rev, .. } = target;
    let path = query.path.unwrap_or_default();
    let found = server.with(repo, move |repository| {
        let revision = repository.revision(&rev)?;
        let (what, name) = repository.part(&revision, path.as_bytes())?;
        Ok((Arc::clone(repository), revision, what, name))
    });
    let (repository, revision, what, name) = found.await?;
    let Revision { id, commit, .. } = revision;
    let (ending, kind) = named(format);
    // The commit id is part of the ETag: the archive uses the time of the commit for entries
    // without a time, and the commit holds the metadata of the root.
    let part = match &what {
        RestoreSource::Folder { tree, .. } => tree.to_string(),
        RestoreSource::Entry(entry) => match &entry.kind {
            EntryKind::File { id, .. } => id.to_string(),
            _ => "entry".to_owned(),
        },
    };
    let version = env!("CARGO_PKG_VERSION");
    let tag = etag(format_args!("{id}.{part}.{ending}.{version}"))?;
    // Another version of snap may write other bytes for the same commit, so the
    // response is never `immutable`.
    if is_not_modified(&headers, &tag) {
        return Ok(not_modified(id, false, &tag));
    }
    let mut response = Response::new(unsized_body());
    let headers = response.headers_mut();
    set_commit_headers(headers, id, false, &tag);
    let file = [&name, b".".as_slice(), ending.as_bytes()].concat();
    headers.insert(header::CONTENT_DISPOSITION, disposition(DispositionKind::Attachment, &file));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if format == ArchiveFormat::Zip {
        check_zip(&commit, &what, server.settings().limits.archive_bytes)?;
    }
    if method != Method::HEAD {
        let archive_bytes = server.settings().limits.archive_bytes;
        let permits = if format == ArchiveFormat::TarZst { 2 } else { 1 };
        let turn = server.bodies().archive_permits(permits).await?;
        let sent = server.send_begun(move |out| {
            let _turn = turn;
            let store = repository.repo().store();
            let scratch = store.dir().join("tmp");
            let options = export::ExportOptions {
                format,
                prefix: PathPrefix::default(),
                mtime: commit.time,
                scratch: &scratch,
                scratch_bytes: archive_bytes,
                ..export::ExportOptions::default()
            };
            let done = export::run(store, &what, out, &options, &Silent);
            match done {
                Ok(outcome) => {
                    if let Some(count) = outcome.lost.get(&MetadataLoss::Store) {
                        let count = *count;
                        tracing::warn!(
                            count,
                            "stores or links called `.snap` are not in an archive"
                        );
                    }
                    Ok(())
                }
                // The client has disconnected.
                Err(ExportError::Output(error)) => Err(error),
                Err(error) => {
                    tracing::error!(error = %causes(&error), "cannot complete an archive");
                    Err(io::ErrorKind::InvalidData.into())
                }
            }
        });
        *response.body_mut() = sent.await?;
    }
    Ok(response)
}
