//! The parsed request for a page.
//!
//! The parts of its path and its query are bytes that are decoded from the URI itself, because
//! names in snapshots may not be UTF-8.

use std::{convert::Infallible, sync::Arc};

use axum::extract::FromRequestParts;
use http::{header, request::Parts};
use maud::Markup;
use percent_encoding::percent_decode;
use snap_core::{
    base::{id::CommitId, observe::Observer},
    format::commit::Commit,
};

use super::{
    Pages, deadline::Deadline, layout::FrameContext, link::Links, login::Viewer,
    ref_index::RefIndex, show, snapshot::short,
};
use crate::{
    access::{cookie::Cookie, csrf, principal::Principal},
    problem::{Code, HttpProblem},
    repository::{Repository, Revision},
    settings::is_host,
};

/// A request for a page, and who sent it.
#[derive(Clone, Debug)]
pub(super) struct PageRequest {
    pub(super) pages: Pages,
    /// The decoded segments of the path `/r/{repo}/…`.
    parts: Vec<Vec<u8>>,
    query: Vec<(Vec<u8>, Vec<u8>)>,
    /// The base URL of the server, such as `http://127.0.0.1:7627`.
    pub(super) origin: String,
    /// The client and its rights.
    pub(super) who: Principal,
    viewer: Option<Viewer>,
}

/// Renders a page of a repository. The observer cancels the work when the client
/// disconnects.
pub(super) type View =
    fn(&PageRequest, &Arc<Repository>, &dyn Observer) -> Result<Markup, HttpProblem>;

/// A commit that a URL names.
#[derive(Clone, Debug)]
pub(super) struct NamedCommit {
    /// The revision as written in the URL.
    pub(super) rev: String,
    pub(super) id: CommitId,
    pub(super) commit: Commit,
}

impl NamedCommit {
    /// Returns the revision as text; for a full commit id, only the first digits.
    pub(super) fn shown(&self) -> String {
        match self.rev == self.id.to_string() {
            true => short(&self.id),
            false => show::plain(self.rev.as_bytes()),
        }
    }
}

impl FromRequestParts<Pages> for PageRequest {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, pages: &Pages) -> Result<Self, Infallible> {
        let uri = &parts.uri;
        let decoded = |part: &str| percent_decode(part.as_bytes()).collect::<Vec<u8>>();
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or_else(|| uri.authority().map(|authority| authority.as_str()));
        let who = parts.extensions.get::<Principal>().cloned().unwrap_or_else(Principal::anonymous);
        let access = pages.server().access();
        let is_encrypted = access.is_encrypted(&parts.headers, &parts.extensions);
        let viewer = who.name().zip(Cookie::Token.of(&parts.headers, is_encrypted));
        let viewer = viewer.map(|(name, own)| Viewer { name: name.to_owned(), form: csrf(own) });
        let settings = pages.server().settings();
        // The client chooses the `Host` header, and pages show it in commands, so it
        // must be a plain host name.
        let host = host.filter(|host| is_host(host)).unwrap_or("localhost");
        let scheme = if is_encrypted { "https" } else { "http" };
        let from_host = || format!("{scheme}://{host}");
        let public = settings.public_url.as_deref().map(|url| url.trim_end_matches('/').to_owned());
        Ok(Self {
            pages: pages.clone(),
            parts: uri.path().split('/').skip(1).map(decoded).collect(),
            query: query(uri.query().unwrap_or_default()),
            origin: public.unwrap_or_else(from_host),
            who,
            viewer,
        })
    }
}

/// Parses a query string into decoded names and values.
pub(super) fn query(text: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let decoded = |text: &str| percent_decode(text.replace('+', " ").as_bytes()).collect();
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
        .collect()
}

impl PageRequest {
    /// Returns the logged-in viewer, and whether the page may be out of date. Callers must render
    /// the page first, since rendering may contact the upstream.
    pub(super) fn around(&self) -> FrameContext<'_> {
        let repo = self.repo();
        let repo = Some(repo.as_str()).filter(|repo| !repo.is_empty());
        FrameContext { viewer: self.viewer.as_ref(), away: self.pages.server().hub().outage(repo) }
    }

    /// Returns the name of the repository.
    pub(super) fn repo(&self) -> String {
        self.text(1)
    }

    /// Returns the builder of URLs in this repository.
    pub(super) fn links(&self) -> Links {
        Links::new(&self.repo())
    }

    /// Returns the revision of `/r/{repo}/{page}/{rev}/…`.
    pub(super) fn rev(&self) -> String {
        self.text(3)
    }

    fn text(&self, at: usize) -> String {
        let part = self.parts.get(at).map(Vec::as_slice).unwrap_or_default();
        String::from_utf8_lossy(part).into_owned()
    }

    /// Returns the path after the revision, without empty segments.
    pub(super) fn path(&self) -> Vec<u8> {
        let parts: Vec<&[u8]> =
            self.parts.iter().skip(4).map(Vec::as_slice).filter(|part| !part.is_empty()).collect();
        parts.join(&b'/')
    }

    /// Returns a query parameter as bytes. An empty value counts as absent.
    pub(super) fn bytes(&self, name: &str) -> Option<&[u8]> {
        let found = self.query.iter().find(|(key, _)| key == name.as_bytes());
        found.map(|(_, value)| value.as_slice()).filter(|value| !value.is_empty())
    }

    /// Returns a query parameter as text.
    pub(super) fn param(&self, name: &str) -> Option<String> {
        self.bytes(name).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    /// Returns the number of the page in a paginated list, from 1.
    pub(super) fn page(&self) -> usize {
        let page = self.param("page").and_then(|page| page.parse().ok());
        page.unwrap_or(1).clamp(1, MOST_PAGES)
    }

    /// Renders the page of a repository on a blocking thread, until the client
    /// disconnects.
    pub(super) async fn show(self, view: View) -> Result<Markup, HttpProblem> {
        if self.path().len() > PATH_BYTES {
            return Err(HttpProblem::new(Code::Invalid, "the path is too long for a page"));
        }
        let (server, repo) = (self.pages.server().clone(), self.repo());
        let show = move |repository: &Arc<Repository>, observer: &dyn Observer| {
            // Other processes may have committed to the store.
            repository.refresh()?;
            view(&self, repository, observer)
        };
        server.with_observer(repo, show).await
    }

    /// Returns the usual deadline of a page.
    pub(super) fn deadline<'a>(&'a self, observer: &'a dyn Observer) -> Deadline<'a> {
        Deadline::usual(self.pages.server().clock(), observer)
    }

    /// Resolves a revision.
    pub(super) fn named(
        &self,
        repository: &Repository,
        rev: &str,
    ) -> Result<NamedCommit, HttpProblem> {
        let Revision { id, commit, .. } = repository.revision(rev)?;
        Ok(NamedCommit { rev: rev.to_owned(), id, commit })
    }

    /// Returns the commit that `?rev=` names, or else the start commit; `None` if there is no
    /// commit yet.
    pub(super) fn wanted(
        &self,
        repository: &Repository,
        names: &RefIndex,
    ) -> Result<Option<NamedCommit>, HttpProblem> {
        match self.param("rev") {
            Some(rev) => self.named(repository, &rev).map(Some),
            None => self.first(repository, names),
        }
    }

    /// Returns the start commit: the target of the [first](RefIndex::first) branch or tag.
    pub(super) fn first(
        &self,
        repository: &Repository,
        names: &RefIndex,
    ) -> Result<Option<NamedCommit>, HttpProblem> {
        let Some((name, id)) = names.first() else { return Ok(None) };
        let commit = repository.repo().store().commit(id)?;
        Ok(Some(NamedCommit { rev: name.short().to_owned(), id: *id, commit }))
    }
}

/// Maximum length of a path that pages show, in bytes: each link of a page contains the path.
const PATH_BYTES: usize = 4096;

/// Maximum page number of a list.
const MOST_PAGES: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_are_decoded_to_bytes() {
        let pairs = query("q=a+b%20c&path=%ff%2F&x&=y&&");
        let pair = |a: &[u8], b: &[u8]| (a.to_vec(), b.to_vec());
        assert_eq!(
            pairs,
            [pair(b"q", b"a b c"), pair(b"path", b"\xff/"), pair(b"x", b""), pair(b"", b"y")]
        );
    }
}
