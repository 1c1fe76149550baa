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

use snap_core::base::id::CommitId;
use snap_remote::wire::routes::{Route, encode_path, encode_segment};

/// Builds the URLs of one repository.
#[derive(Clone, Debug)]
pub(super) struct Links {
    name: String,
    /// The encoded name.
    repo: String,
}

impl Links {
    pub(super) fn new(repo: &str) -> Self {
        Self { name: repo.to_owned(), repo: encode_segment(repo.as_bytes()) }
    }

    /// Returns the URL of the list of commits.
    pub(super) fn log(&self) -> String {
        format!("/r/{}", self.repo)
    }

    /// Returns the URL of the commits of a branch, or of the history of a commit.
    pub(super) fn log_of(&self, rev: &str, page: usize) -> String {
        let page = if page > 1 { format!("&page={page}") } else { String::new() };
        format!("/r/{}?rev={}{page}", self.repo, encode_segment(rev.as_bytes()))
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
        format!(
            "/r/{}/{page}/{}{slash}{}",
            self.repo,
            encode_segment(rev.as_bytes()),
            encode_path(at)
        )
    }

    /// Returns the URL of the differences between two commits.
    pub(super) fn diff(&self, from: &str, to: &str) -> String {
        let (from, to) = (encode_segment(from.as_bytes()), encode_segment(to.as_bytes()));
        format!("/r/{}/diff?from={from}&to={to}", self.repo)
    }

    /// Returns the URL of the differences below a path.
    pub(super) fn diff_of(&self, from: &str, to: &str, at: &[u8]) -> String {
        format!("{}&path={}", self.diff(from, to), encode_segment(at))
    }

    /// Returns the URL of another page of the repository: `refs`, `search`, `stats`, `diff`.
    pub(super) fn page(&self, name: &str) -> String {
        format!("/r/{}/{name}", self.repo)
    }

    /// Returns the URL of a file's bytes.
    pub(super) fn raw(&self, commit: &CommitId, at: &[u8]) -> String {
        self.below_commit(Route::File, commit, at)
    }

    /// Returns the URL of a folder as an archive.
    pub(super) fn archive(&self, commit: &CommitId, at: &[u8], format: Route) -> String {
        let of =
            if at.is_empty() { String::new() } else { format!("?path={}", encode_segment(at)) };
        format!("{}{of}", self.below_commit(format, commit, at))
    }

    fn below_commit(&self, route: Route, commit: &CommitId, at: &[u8]) -> String {
        route.url(&[self.name.as_bytes(), commit.to_string().as_bytes(), at])
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
