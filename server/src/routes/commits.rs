//! A commit: what it says, its whole tree as JSON, and archives of it. What is
//! long is streamed.

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
        tree::{Entry, Kind, Totals},
    },
    ops::{
        export::{self, ExportError, Format, Prefix},
        list::{self, Depth, ListError},
        record::{CommitRecord, EntryRecord},
        restore::What,
    },
    repo::path::{Found, components},
};

use super::{
    Server,
    conditional::{about, etag, is_known, not_modified},
    disposition::{Manner, disposition},
    target::{Asked, Target},
};
use crate::{
    body::{MAKING_ARCHIVES, unsaid},
    causes::causes,
    problem::{Code, Problem},
    repository::{Repository, Revision},
};

/// Form of what is said here; part of the ETags.
const FORM: u32 = 2;

/// `GET …/commits/{commit}`.
pub(super) async fn read(
    State(server): State<Server>,
    target: Target,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Target { repo, rev, .. } = target;
    let revision = server.with(repo, move |repository| repository.revision(&rev)).await?;
    let Revision { id, commit, is_id } = revision;
    let tag = etag(format_args!("{id}.{FORM}"))?;
    if is_known(&headers, &tag) {
        return Ok(not_modified(id, is_id, &tag));
    }
    let mut response = Json(CommitRecord::new(&id, &commit)).into_response();
    about(response.headers_mut(), id, is_id, &tag);
    Ok(response)
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedTree {
    /// Whether all below is told, or the folder's own entries; all by default.
    recursive: Option<bool>,
}

/// `GET …/commits/{commit}/tree[/{*path}]`.
pub(super) async fn tree(
    State(server): State<Server>,
    target: Target,
    Asked(asked): Asked<AskedTree>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Target { repo, rev, path } = target;
    let path = components(&path).collect::<Vec<_>>().join(&b'/');
    let wanted = path.clone();
    let found = server.with(repo, move |repository| {
        let revision = repository.revision(&rev)?;
        let found = repository.at_path(&revision.commit, &wanted)?;
        Ok((Arc::clone(repository), revision, found))
    });
    let (repository, revision, found) = found.await?;
    let depth = if asked.recursive == Some(false) { Depth::Folder } else { Depth::All };
    let depth_name = if depth == Depth::All { "all" } else { "folder" };
    let tag = etag(format_args!("{}.{FORM}.{depth_name}", revision.id))?;
    if is_known(&headers, &tag) {
        return Ok(not_modified(revision.id, revision.is_id, &tag));
    }
    let mut response = Response::new(unsaid());
    about(response.headers_mut(), revision.id, revision.is_id, &tag);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    if method != Method::HEAD {
        let sent = server.send_begun(move |out| {
            write!(out, "{{\"commit\":\"{}\",\"entries\":[", revision.id)?;
            match found {
                Found::Entry(entry) if entry.folder().is_none() => {
                    serde_json::to_writer(&mut *out, &EntryRecord::new(&path, &entry))?;
                }
                found => {
                    let tree = found.tree().unwrap_or(revision.commit.tree);
                    write_entries(&repository, (tree, &path), depth, out)?;
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
    folder: (TreeId, &[u8]),
    depth: Depth,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut line = Vec::new();
    let mut each = |path: &[u8], entry: &Entry| {
        // The end of the one before.
        let first = line.is_empty();
        line.clear();
        line.extend_from_slice(if first { b"\n" } else { b",\n" });
        serde_json::to_writer(&mut line, &EntryRecord::new(path, entry))?;
        out.write_all(&line)
    };
    match list::run(repository.repo().store(), folder, depth, &Silent, &mut each) {
        Ok(_) => Ok(()),
        Err(ListError::Output(error)) => Err(error),
        Err(error) => {
            tracing::error!(error = %causes(&error), "a tree cannot be read");
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedArchive {
    /// A folder or a file of the commit; all of it by default.
    path: Option<String>,
}

/// `GET …/commits/{commit}/archive.tar`.
pub(super) async fn tar(
    server: State<Server>,
    target: Target,
    asked: Asked<AskedArchive>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    archive(Format::Tar, (server, target, asked), method, headers).await
}

/// `GET …/commits/{commit}/archive.tar.zst`.
pub(super) async fn tar_zst(
    server: State<Server>,
    target: Target,
    asked: Asked<AskedArchive>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    archive(Format::TarZst, (server, target, asked), method, headers).await
}

/// `GET …/commits/{commit}/archive.zip`.
pub(super) async fn zip(
    server: State<Server>,
    target: Target,
    asked: Asked<AskedArchive>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    archive(Format::Zip, (server, target, asked), method, headers).await
}

/// How an archive's name ends, and what it is.
fn named(format: Format) -> (&'static str, &'static str) {
    match format {
        Format::Tar => ("tar", "application/x-tar"),
        Format::TarZst => ("tar.zst", "application/zstd"),
        Format::Zip => ("zip", "application/zip"),
    }
}

/// Bytes that the directory of a zip archive has for an entry at least.
const ZIP_ENTRY_BYTES: u64 = 46;

/// Refuses a zip archive of a whole commit whose directory is longer than may be
/// spooled, as far as the commit itself says how many entries it has.
///
/// # Errors
/// [`Code::Invalid`], with what to ask for in its place.
fn check_zip(commit: &Commit, what: &What, most_bytes: u64) -> Result<(), Problem> {
    let What::Folder { tree, .. } = what else { return Ok(()) };
    let Totals { files, folders, others, .. } = commit.totals;
    let entries = files.saturating_add(folders).saturating_add(others);
    if *tree == commit.tree && entries.saturating_mul(ZIP_ENTRY_BYTES) > most_bytes {
        let why = format!(
            "a zip archive of {entries} entries has too long a directory \
             (`limits.archive_bytes`): ask for archive.tar, or for a folder with `path`"
        );
        return Err(Problem::new(Code::Invalid, why));
    }
    Ok(())
}

async fn archive(
    format: Format,
    (State(server), target, Asked(asked)): (State<Server>, Target, Asked<AskedArchive>),
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Target { repo, rev, .. } = target;
    let path = asked.path.unwrap_or_default();
    let found = server.with(repo, move |repository| {
        let revision = repository.revision(&rev)?;
        let (what, name) = repository.part(&revision, path.as_bytes())?;
        Ok((Arc::clone(repository), revision, what, name))
    });
    let (repository, revision, what, name) = found.await?;
    let Revision { id, commit, .. } = revision;
    let (ending, kind) = named(format);
    // The commit has the time of entries without one, and the root's metadata.
    let part = match &what {
        What::Folder { tree, .. } => tree.to_string(),
        What::Entry(entry) => match &entry.kind {
            Kind::File { id, .. } => id.to_string(),
            _ => "entry".to_owned(),
        },
    };
    let version = env!("CARGO_PKG_VERSION");
    let tag = etag(format_args!("{id}.{part}.{ending}.{version}"))?;
    // The same commit makes other bytes of it in another version.
    if is_known(&headers, &tag) {
        return Ok(not_modified(id, false, &tag));
    }
    let mut response = Response::new(unsaid());
    let headers = response.headers_mut();
    about(headers, id, false, &tag);
    let file = [&name, b".".as_slice(), ending.as_bytes()].concat();
    headers.insert(header::CONTENT_DISPOSITION, disposition(Manner::Attachment, &file));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if format == Format::Zip {
        check_zip(&commit, &what, server.settings().limits.archive_bytes)?;
    }
    if method != Method::HEAD {
        let archive_bytes = server.settings().limits.archive_bytes;
        let turn = MAKING_ARCHIVES.take(if format == Format::TarZst { 2 } else { 1 }).await?;
        let sent = server.send_begun(move |out| {
            let _turn = turn;
            let store = repository.repo().store();
            let scratch = store.dir().join("tmp");
            let options = export::Options {
                format,
                prefix: Prefix::default(),
                mtime: commit.time,
                scratch: &scratch,
                scratch_bytes: archive_bytes,
                ..export::Options::default()
            };
            let done = export::run(store, &what, out, &options, &Silent);
            match done {
                Ok(_) => Ok(()),
                // Whoever wanted it has gone.
                Err(ExportError::Output(error)) => Err(error),
                Err(error) => {
                    tracing::error!(error = %causes(&error), "an archive broke off");
                    Err(io::ErrorKind::InvalidData.into())
                }
            }
        });
        *response.body_mut() = sent.await?;
    }
    Ok(response)
}
