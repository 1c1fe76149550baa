//! `/r/{repo}/c/{rev}/{path}`: a commit with its root folder, or the entry at a path in
//! it.

use std::sync::Arc;

use maud::{Markup, html};
use snap_core::base::number::{ByteCount, count};
use snap_core::{
    base::{id::CommitId, observe::Observer},
    format::tree::EntryKind,
    repo::path::{ResolvedPath, resolve_path},
};

use super::{
    file, folder,
    layout::{PageLayout, Tab, trail},
    link::Links,
    log, moment,
    page_request::{NamedCommit, PageRequest},
    ref_index::RefIndex,
    show,
};
use crate::{problem::HttpProblem, repository::Repository};

pub(super) fn view(
    ask: &PageRequest,
    repository: &Arc<Repository>,
    observer: &dyn Observer,
) -> Result<Markup, HttpProblem> {
    let named = match ask.rev().as_str() {
        // `HEAD` may name a branch that does not exist. `first` then takes another ref.
        "HEAD" => ask.first(repository, &RefIndex::of(repository)?)?,
        rev => Some(ask.named(repository, rev)?),
    };
    let repo = ask.repo();
    let Some(named) = named else {
        let shell = PageLayout::of(&repo, Tab::Files, None, repo.clone());
        return Ok(shell.page(ask.around(), log::nothing(ask)));
    };
    let path = ask.path();
    let store = repository.repo().store();
    let found = resolve_path(store, named.commit.tree, &path)?;
    let body = match &found {
        ResolvedPath::Root(tree) => html! {
            (card(ask, repository, &named)?)
            (folder::view(ask, store, &named, &path, *tree, observer)?)
        },
        ResolvedPath::Entry(entry) => html! {
            (place(ask, &named, &path))
            @match &entry.kind {
                EntryKind::Folder { id } => { (folder::view(ask, store, &named, &path, *id, observer)?) }
                _ => { (file::view(ask, store, &named, &path, entry, observer)?) }
            }
        },
    };
    let last = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let what = if path.is_empty() { short(&named.id) } else { show::plain(last) };
    let title = format!("{what} · {repo}");
    Ok(PageLayout::of(&repo, Tab::Files, Some(&named.rev), title).page(ask.around(), body))
}

/// Returns the first digits of an id.
pub(super) fn short(id: &CommitId) -> String {
    format!("{id:.12}")
}

/// Renders the path and the commit that it is in.
fn place(ask: &PageRequest, named: &NamedCommit, path: &[u8]) -> Markup {
    let links = ask.links();
    html! {
        div.head {
            (trail(&links, &named.rev, &ask.repo(), path))
            p.quiet {
                "in " a href=(links.entry(&named.rev, b"")) { code { (named.shown()) } }
                ", " (moment::ago(named.commit.time))
            }
        }
    }
}

/// Renders the metadata of a commit.
fn card(
    ask: &PageRequest,
    repository: &Repository,
    named: &NamedCommit,
) -> Result<Markup, HttpProblem> {
    let (commit, links) = (&named.commit, ask.links());
    let names = RefIndex::of(repository)?;
    let (subject, rest) = commit.message.split_once('\n').unwrap_or((&commit.message, ""));
    let totals = &commit.totals;
    Ok(html! {
        article.commit {
            h1 {
                @if subject.trim().is_empty() { em.quiet { "no message" } }
                @else { (show::text(subject.as_bytes())) }
            }
            @if !rest.trim().is_empty() { div.prose { (show::lines(rest.trim())) } }
            p.chips { (log::chips(&links, &names, &named.id, commit)) }
            dl.facts {
                div { dt { "Author" } dd { (log::who(commit)) } }
                div { dt { "Date" } dd { (moment::ago(commit.time)) " " span.quiet { (moment::exactly(commit.time)) } } }
                div { dt { "Content" } dd { (ByteCount(totals.bytes)) " in " (count(totals.files, "file")) ", " (count(totals.folders, "folder")) } }
                div { dt { "Commit" } dd { code.id data-copy="" { (named.id) } } }
                @if !commit.parents.is_empty() {
                    div { dt { (if commit.parents.len() == 1 { "Parent" } else { "Parents" }) } dd { (parents(&links, commit.parents.as_slice())) } }
                }
            }
            div.actions {
                @if let Some(parent) = commit.parents.first() {
                    a.button.main href=(links.diff(&parent.to_string(), &named.id.to_string())) { "What changed" }
                }
                a.button href=(links.log_of(&named.rev, 1)) { "History" }
                (folder::downloads(&links, &named.id, b""))
            }
        }
    })
}

fn parents(links: &Links, parents: &[CommitId]) -> Markup {
    html! {
        @for parent in parents {
            a.id href=(links.entry(&parent.to_string(), b"")) { code { (short(parent)) } } " "
        }
    }
}
