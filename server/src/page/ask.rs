//! What a page is asked for: the parts of its address, as bytes.
//!
//! They are taken from the address itself, because names in snapshots need not
//! be UTF-8.

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
    Pages, link::Links, login::Viewer, names::Names, shell::Around, show, snapshot::short,
};
use crate::{
    access::{cookie::Cookie, csrf, who::Who},
    body::watched,
    problem::{Code, Problem},
    repository::{Repository, Revision},
    settings::is_host,
};

/// What is asked for, and by whom.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) pages: Pages,
    /// `/r/{repo}/…`, decoded.
    parts: Vec<Vec<u8>>,
    query: Vec<(Vec<u8>, Vec<u8>)>,
    /// How the server is reached, such as `http://127.0.0.1:7627`.
    pub(super) origin: String,
    /// Whoever asks.
    pub(super) who: Who,
    viewer: Option<Viewer>,
}

/// Makes a page of a repository for whoever asks; the observer tells when nobody
/// waits for it any more.
pub(super) type View = fn(&Ask, &Arc<Repository>, &dyn Observer) -> Result<Markup, Problem>;

/// A commit that an address names.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// What names it there.
    pub(super) rev: String,
    pub(super) id: CommitId,
    pub(super) commit: Commit,
}

impl Named {
    /// A branch or a tag by its name, a commit by its first digits.
    pub(super) fn shown(&self) -> String {
        match self.rev == self.id.to_string() {
            true => short(&self.id),
            false => show::plain(self.rev.as_bytes()),
        }
    }
}

impl FromRequestParts<Pages> for Ask {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, pages: &Pages) -> Result<Self, Infallible> {
        let uri = &parts.uri;
        let decoded = |part: &str| percent_decode(part.as_bytes()).collect::<Vec<u8>>();
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or_else(|| uri.authority().map(|authority| authority.as_str()));
        let who = parts.extensions.get::<Who>().cloned().unwrap_or_else(Who::nobody);
        let access = pages.server().access();
        let is_secret = access.is_secret(&parts.headers, &parts.extensions);
        let viewer = who.name().zip(Cookie::Token.of(&parts.headers, is_secret));
        let viewer = viewer.map(|(name, own)| Viewer { name: name.to_owned(), form: csrf(own) });
        let settings = pages.server().settings();
        // Whoever asks says it: it is shown in commands, so it must be harmless.
        let host = host.filter(|host| is_host(host)).unwrap_or("localhost");
        let scheme = if is_secret { "https" } else { "http" };
        let said = || format!("{scheme}://{host}");
        let public = settings.public_url.as_deref().map(|url| url.trim_end_matches('/').to_owned());
        Ok(Self {
            pages: pages.clone(),
            parts: uri.path().split('/').skip(1).map(decoded).collect(),
            query: query(uri.query().unwrap_or_default()),
            origin: public.unwrap_or_else(said),
            who,
            viewer,
        })
    }
}

/// Pairs of names and values, decoded.
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

impl Ask {
    /// What is shown around the page, once it was made: whoever is logged in, and
    /// whether it may be old.
    pub(super) fn around(&self) -> Around<'_> {
        let repo = self.repo();
        let repo = Some(repo.as_str()).filter(|repo| !repo.is_empty());
        Around { viewer: self.viewer.as_ref(), away: self.pages.server().hub().away(repo) }
    }

    /// The name of the repository.
    pub(super) fn repo(&self) -> String {
        self.text(1)
    }

    /// Addresses in it.
    pub(super) fn links(&self) -> Links {
        Links::new(&self.repo())
    }

    /// The revision of `/r/{repo}/{page}/{rev}/…`.
    pub(super) fn rev(&self) -> String {
        self.text(3)
    }

    fn text(&self, at: usize) -> String {
        let part = self.parts.get(at).map(Vec::as_slice).unwrap_or_default();
        String::from_utf8_lossy(part).into_owned()
    }

    /// The path behind the revision, without empty parts.
    pub(super) fn path(&self) -> Vec<u8> {
        let parts: Vec<&[u8]> =
            self.parts.iter().skip(4).map(Vec::as_slice).filter(|part| !part.is_empty()).collect();
        parts.join(&b'/')
    }

    /// A parameter as bytes; an empty one is none.
    pub(super) fn bytes(&self, name: &str) -> Option<&[u8]> {
        let found = self.query.iter().find(|(key, _)| key == name.as_bytes());
        found.map(|(_, value)| value.as_slice()).filter(|value| !value.is_empty())
    }

    /// A parameter as text.
    pub(super) fn param(&self, name: &str) -> Option<String> {
        self.bytes(name).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    /// Which page of several, from 1.
    pub(super) fn page(&self) -> usize {
        let page = self.param("page").and_then(|page| page.parse().ok());
        page.unwrap_or(1).clamp(1, MOST_PAGES)
    }

    /// Makes the page of a repository, in a thread; that ends when nobody waits
    /// for the page any more.
    pub(super) async fn show(self, view: View) -> Result<Markup, Problem> {
        if self.path().len() > PATH_BYTES {
            return Err(Problem::new(Code::Invalid, "so long a path is not shown"));
        }
        watched(move |observer| {
            let repository = self.pages.server().hub().get(&self.repo())?;
            // Others may have committed to the store meanwhile.
            repository.refresh()?;
            view(&self, &repository, observer)
        })
        .await
    }

    /// The commit that `rev` names.
    pub(super) fn named(&self, repository: &Repository, rev: &str) -> Result<Named, Problem> {
        let Revision { id, commit, .. } = repository.revision(rev)?;
        Ok(Named { rev: rev.to_owned(), id, commit })
    }

    /// The commit that is asked for, or the one that people begin with; `None`
    /// while there is no commit.
    pub(super) fn wanted(
        &self,
        repository: &Repository,
        names: &Names,
    ) -> Result<Option<Named>, Problem> {
        match self.param("rev") {
            Some(rev) => self.named(repository, &rev).map(Some),
            None => self.first(repository, names),
        }
    }

    /// The commit that people begin with: where the [first](Names::first) of the
    /// branches and tags stands.
    pub(super) fn first(
        &self,
        repository: &Repository,
        names: &Names,
    ) -> Result<Option<Named>, Problem> {
        let Some((name, id)) = names.first() else { return Ok(None) };
        let commit = repository.repo().store().commit(id)?;
        Ok(Some(Named { rev: name.short().to_owned(), id: *id, commit }))
    }
}

/// Longer paths are not shown: each link of a page has its path.
const PATH_BYTES: usize = 4096;

/// No list is paged further than this.
const MOST_PAGES: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_bytes() {
        let pairs = query("q=a+b%20c&path=%ff%2F&x&=y&&");
        let pair = |a: &[u8], b: &[u8]| (a.to_vec(), b.to_vec());
        assert_eq!(
            pairs,
            [pair(b"q", b"a b c"), pair(b"path", b"\xff/"), pair(b"x", b""), pair(b"", b"y")]
        );
    }
}
