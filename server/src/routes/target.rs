//! Extractors for paths below a commit (repository, revision, and a path of raw bytes)
//! and for query parameters.

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use crate::problem::{Code, HttpProblem};

/// Number of parts of `/v1/repos/{repo}/commits/{commit}/{what}/{*path}` when it is split at `/`.
/// The path is the last part.
const PARTS: usize = 8;

/// `…/repos/{repo}/commits/{commit}/{what}[/{*path}]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommitPath {
    /// The name of the repository.
    pub(super) repo: String,
    /// The revision, such as a commit id or a ref.
    pub(super) rev: String,
    /// The path in the commit. Empty for the root.
    pub(super) path: Vec<u8>,
}

impl CommitPath {
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.splitn(PARTS, '/').skip(3);
        let repo = text(parts.next()?)?;
        let rev = text(parts.nth(1)?)?;
        let path = parts.nth(1).map(|path| percent_decode_str(path).collect());
        Some(Self { repo, rev, path: path.unwrap_or_default() })
    }
}

fn text(part: &str) -> Option<String> {
    Some(percent_decode_str(part).decode_utf8().ok()?.into_owned())
}

impl<S: Sync> FromRequestParts<S> for CommitPath {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, HttpProblem> {
        Self::of(parts.uri.path())
            .ok_or_else(|| HttpProblem::new(Code::Invalid, "the path is not UTF-8"))
    }
}

/// The query parameters. An unknown parameter is refused if `T` denies unknown fields.
#[derive(Clone, Debug)]
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, HttpProblem> {
        let query = Query::try_from_uri(&parts.uri);
        let query = query.map_err(|error| HttpProblem::new(Code::Invalid, error.body_text()))?;
        Ok(Self(query.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_paths_are_split_before_they_are_decoded() {
        let of = |path: &str| {
            let CommitPath { repo, rev, path } = CommitPath::of(path)?;
            Some((repo, rev, path))
        };
        let found = |repo: &str, rev: &str, path: &[u8]| {
            Some((repo.to_owned(), rev.to_owned(), path.to_vec()))
        };
        assert_eq!(of("/v1/repos/a/commits/b/tree"), found("a", "b", b""));
        assert_eq!(of("/v1/repos/a%2Fb/commits/x%2Fy/files/c/d"), found("a/b", "x/y", b"c/d"));
        assert_eq!(of("/v1/repos/a/commits/b/files/%ff%20"), found("a", "b", b"\xff "));
        assert_eq!(of("/v1/repos/%ff/commits/b/files/c"), None);
        assert_eq!(of("/v1/repos/a"), None);
    }
}
