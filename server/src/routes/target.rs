//! What a path of the protocol names: a repository, a commit, and a path in it,
//! whose names need not be UTF-8; and what is asked of it behind the `?`.

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use crate::problem::{Code, Problem};

/// Parts of `/v1/repos/{repo}/commits/{commit}/{what}/{*path}` before the path.
const PARTS: usize = 8;

/// `…/repos/{repo}/commits/{commit}/{what}[/{*path}]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The repository.
    pub(super) repo: String,
    /// What names the commit.
    pub(super) rev: String,
    /// The path in it; empty for the top.
    pub(super) path: Vec<u8>,
}

impl Target {
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

impl<S: Sync> FromRequestParts<S> for Target {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::of(parts.uri.path())
            .ok_or_else(|| Problem::new(Code::Invalid, "the path is not UTF-8"))
    }
}

/// What stands behind the `?`; what is not known there is refused.
#[derive(Clone, Debug)]
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let asked = Query::try_from_uri(&parts.uri);
        let asked = asked.map_err(|error| Problem::new(Code::Invalid, error.body_text()))?;
        Ok(Self(asked.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_path_are_bytes() {
        let of = |path: &str| {
            let Target { repo, rev, path } = Target::of(path)?;
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
