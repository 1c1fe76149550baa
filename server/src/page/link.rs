//! Builds the URLs of pages, and of files and archives in the HTTP API.
//!
//! | URL | page |
//! |---|---|
//! | `/` | the repositories |
//! | `/r/{repo}` | the commits of a repository; `?rev=` names a branch, `&page=` the page |
//! | `/r/{repo}/c/{rev}/{path}` | a commit, or a folder or file in it |
//! | `/r/{repo}/history/{rev}/{path}` | the commits in which a path changed |
//! | `/r/{repo}/diff?from=&to=` | the differences; `&path=` limits them to a path |
//! | `/r/{repo}/search?q=` | a search for paths by name in the whole history |
//! | `/r/{repo}/refs`, `/r/{repo}/stats` | branches and tags; growth of the store |
//!
//! In names of repositories and refs, `/` is written as `%2F`. All bytes except ASCII letters,
//! digits and `-._~` are percent-encoded, so a path may have any bytes.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use snap_core::base::id::CommitId;

/// The bytes that are percent-encoded.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes one segment of a URL.
pub(super) fn part(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED).to_string()
}

/// Encodes a path and keeps its slashes.
fn path(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.split(|b| *b == b'/').map(part).collect();
    parts.join("/")
}

/// Builds the URLs of one repository.
#[derive(Clone, Debug)]
pub(super) struct Links {
    repo: String,
}

impl Links {
    pub(super) fn new(repo: &str) -> Self {
        Self { repo: part(repo.as_bytes()) }
    }

    /// Returns the URL of the list of commits.
    pub(super) fn log(&self) -> String {
        format!("/r/{}", self.repo)
    }

    /// Returns the URL of the commits of a branch, or of the history of a commit.
    pub(super) fn log_of(&self, rev: &str, page: usize) -> String {
        let page = if page > 1 { format!("&page={page}") } else { String::new() };
        format!("/r/{}?rev={}{page}", self.repo, part(rev.as_bytes()))
    }

    /// Returns the URL of a commit, or of a folder or file in it.
    pub(super) fn entry(&self, rev: &str, at: &[u8]) -> String {
        self.below("c", rev, at)
    }

    /// Returns the URL of the history of a path.
    pub(super) fn history(&self, rev: &str, at: &[u8]) -> String {
        self.below("history", rev, at)
    }

    fn below(&self, page: &str, rev: &str, at: &[u8]) -> String {
        let slash = if at.is_empty() { "" } else { "/" };
        format!("/r/{}/{page}/{}{slash}{}", self.repo, part(rev.as_bytes()), path(at))
    }

    /// Returns the URL of the differences between two commits.
    pub(super) fn diff(&self, from: &str, to: &str) -> String {
        let (from, to) = (part(from.as_bytes()), part(to.as_bytes()));
        format!("/r/{}/diff?from={from}&to={to}", self.repo)
    }

    /// Returns the URL of the differences below a path.
    pub(super) fn diff_of(&self, from: &str, to: &str, at: &[u8]) -> String {
        format!("{}&path={}", self.diff(from, to), part(at))
    }

    /// Returns the URL of another page of the repository: `refs`, `search`, `stats`, `diff`.
    pub(super) fn page(&self, name: &str) -> String {
        format!("/r/{}/{name}", self.repo)
    }

    /// Returns the URL of a file's bytes.
    pub(super) fn raw(&self, commit: &CommitId, at: &[u8]) -> String {
        format!("/v1/repos/{}/commits/{commit}/files/{}", self.repo, path(at))
    }

    /// Returns the URL of a folder as an archive. `form` is `zip`, `tar` or `tar.zst`.
    pub(super) fn archive(&self, commit: &CommitId, at: &[u8], form: &str) -> String {
        let of = if at.is_empty() { String::new() } else { format!("?path={}", part(at)) };
        format!("/v1/repos/{}/commits/{commit}/archive.{form}{of}", self.repo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_encode_names_of_any_bytes() {
        let links = Links::new("team/app");
        assert_eq!(links.entry("main", b""), "/r/team%2Fapp/c/main");
        assert_eq!(
            links.entry("feat/x", b"a b/<\xff>?#%"),
            "/r/team%2Fapp/c/feat%2Fx/a%20b/%3C%FF%3E%3F%23%25"
        );
        assert_eq!(links.diff("a&b", "c"), "/r/team%2Fapp/diff?from=a%26b&to=c");
    }
}
