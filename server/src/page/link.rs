//! Addresses of pages, and of what the protocol has for browsers.
//!
//! | address | page |
//! |---|---|
//! | `/` | the repositories |
//! | `/r/{repo}` | its commits; `?rev=` of which branch, `&page=` how far back |
//! | `/r/{repo}/c/{rev}/{path}` | a commit, a folder or a file in it |
//! | `/r/{repo}/history/{rev}/{path}` | the commits in which a path changed |
//! | `/r/{repo}/diff?from=&to=` | what differs; `&path=` below one path |
//! | `/r/{repo}/search?q=` | paths by name, over the whole history |
//! | `/r/{repo}/refs`, `/r/{repo}/stats` | branches and tags; how the store grew |
//!
//! A name of a repository or a ref has `%2F` for each `/`; each other byte that
//! is neither letter, digit nor one of `-._~` is `%XX`, so that paths need not
//! be UTF-8.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use snap_core::base::id::CommitId;

/// What is written as `%XX`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A part of an address.
pub(super) fn part(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED).to_string()
}

/// A path, with its slashes.
fn path(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.split(|b| *b == b'/').map(part).collect();
    parts.join("/")
}

/// Addresses of one repository.
#[derive(Clone, Debug)]
pub(super) struct Links {
    repo: String,
}

impl Links {
    pub(super) fn new(repo: &str) -> Self {
        Self { repo: part(repo.as_bytes()) }
    }

    /// Its commits.
    pub(super) fn log(&self) -> String {
        format!("/r/{}", self.repo)
    }

    /// The commits of a branch or before a commit.
    pub(super) fn log_of(&self, rev: &str, page: usize) -> String {
        let page = if page > 1 { format!("&page={page}") } else { String::new() };
        format!("/r/{}?rev={}{page}", self.repo, part(rev.as_bytes()))
    }

    /// A commit, or a folder or file in it.
    pub(super) fn entry(&self, rev: &str, at: &[u8]) -> String {
        self.below("c", rev, at)
    }

    /// The history of a path.
    pub(super) fn history(&self, rev: &str, at: &[u8]) -> String {
        self.below("history", rev, at)
    }

    fn below(&self, page: &str, rev: &str, at: &[u8]) -> String {
        let slash = if at.is_empty() { "" } else { "/" };
        format!("/r/{}/{page}/{}{slash}{}", self.repo, part(rev.as_bytes()), path(at))
    }

    /// What differs between two commits.
    pub(super) fn diff(&self, from: &str, to: &str) -> String {
        let (from, to) = (part(from.as_bytes()), part(to.as_bytes()));
        format!("/r/{}/diff?from={from}&to={to}", self.repo)
    }

    /// What differs below a path.
    pub(super) fn diff_of(&self, from: &str, to: &str, at: &[u8]) -> String {
        format!("{}&path={}", self.diff(from, to), part(at))
    }

    /// Another page of the repository: `refs`, `search`, `stats`, `diff`.
    pub(super) fn page(&self, name: &str) -> String {
        format!("/r/{}/{name}", self.repo)
    }

    /// The bytes of a file.
    pub(super) fn raw(&self, commit: &CommitId, at: &[u8]) -> String {
        format!("/v1/repos/{}/commits/{commit}/files/{}", self.repo, path(at))
    }

    /// A folder as one file; `form` is `zip`, `tar` or `tar.zst`.
    pub(super) fn archive(&self, commit: &CommitId, at: &[u8], form: &str) -> String {
        let of = if at.is_empty() { String::new() } else { format!("?path={}", part(at)) };
        format!("/v1/repos/{}/commits/{commit}/archive.{form}{of}", self.repo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_hold_any_name() {
        let links = Links::new("team/app");
        assert_eq!(links.entry("main", b""), "/r/team%2Fapp/c/main");
        assert_eq!(
            links.entry("feat/x", b"a b/<\xff>?#%"),
            "/r/team%2Fapp/c/feat%2Fx/a%20b/%3C%FF%3E%3F%23%25"
        );
        assert_eq!(links.diff("a&b", "c"), "/r/team%2Fapp/diff?from=a%26b&to=c");
    }
}
