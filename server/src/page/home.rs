//! `/`: the list of repositories.

use std::sync::Arc;

use maud::{Markup, html};
use snap_core::base::number::{ByteCount, count};
use snap_core::{
    base::{id::CommitId, observe::Observer},
    format::commit::Commit,
    repo::ref_name::{RefKind, RefName},
};

use super::{
    deadline::{Deadline, no_page},
    icon,
    layout::{PageLayout, paging},
    link::Links,
    moment,
    page_request::PageRequest,
    refs::damage,
    show,
};
use crate::{
    access::{no_rights, principal::Right},
    body::blocking_until_disconnect,
    problem::{Code, HttpProblem},
    repository::Repository,
};

/// The number of repositories on a page.
const ROWS: usize = 100;

/// A repository in the list.
struct RepositoryRow {
    name: String,
    /// `Ok(None)` if there was no time to look, an error code if it cannot be read.
    summary: Result<Option<RepositorySummary>, Code>,
}

struct RepositorySummary {
    newest: Option<(CommitId, Commit)>,
    branches: usize,
    tags: usize,
    damaged: Arc<Vec<RefName>>,
}

pub(super) async fn view(ask: PageRequest) -> Result<Markup, HttpProblem> {
    if !ask.who.has_grants() {
        return Err(no_rights(&ask.who));
    }
    blocking_until_disconnect(move |observer| {
        let deadline = ask.deadline(observer);
        let hub = ask.pages.server().hub();
        let theirs = |name: &String| ask.who.can(Right::Read, name);
        let row = |name: String| {
            // An unreadable repository must not hide the others.
            let summary = match deadline.cancelled() {
                true => Ok(None),
                false => {
                    hub.get_for_scan(&name).and_then(|repository| summarize(&repository, &deadline))
                }
            };
            let is_damaged = match &summary {
                Ok(summary) => summary.as_ref().is_some_and(|summary| !summary.damaged.is_empty()),
                Err(problem) => problem.code == Code::Damaged,
            };
            if is_damaged {
                ask.pages.server().metrics().damaged(&name);
            }
            RepositoryRow { name, summary: summary.map_err(|problem| problem.code) }
        };
        let names: Vec<String> = hub.names().into_iter().filter(theirs).collect();
        let (all, number) = (names.len(), ask.page());
        let last = all.div_ceil(ROWS).max(1);
        if number > last {
            return Err(no_page(number, last));
        }
        let rows: Vec<RepositoryRow> =
            names.into_iter().skip((number - 1) * ROWS).take(ROWS).map(row).collect();
        Ok(page(&ask, &rows, (all, number)))
    })
    .await
}

/// Returns the summary of a repository without a request to its upstream, or `None`
/// after the deadline.
fn summarize(
    repository: &Repository,
    deadline: &Deadline<'_>,
) -> Result<Option<RepositorySummary>, HttpProblem> {
    repository.refresh()?;
    // A current listing would need a request to the upstream for each repository.
    let listing = repository.cached_listing()?;
    let refs = listing.refs();
    let store = repository.repo().store();
    let mut newest: Option<(CommitId, Commit)> = None;
    for (_, id) in refs.iter().filter(|(name, _)| name.kind() == RefKind::Branch) {
        if deadline.cancelled() {
            return Ok(None);
        }
        let commit = store.commit(id)?;
        if newest.as_ref().is_none_or(|(_, newest)| newest.time < commit.time) {
            newest = Some((*id, commit));
        }
    }
    let of = |kind| refs.iter().filter(|(name, _)| name.kind() == kind).count();
    let (branches, tags) = (of(RefKind::Branch), of(RefKind::Tag));
    Ok(Some(RepositorySummary { newest, branches, tags, damaged: listing.damaged() }))
}

fn page(ask: &PageRequest, rows: &[RepositoryRow], (all, number): (usize, usize)) -> Markup {
    let to = |number: usize| format!("/?page={number}");
    PageLayout::plain("Repositories").page(
        ask.around(),
        html! {
            div.head {
                h1 { "Repositories" }
                @if !rows.is_empty() { p.quiet { (count(all as u64, "repository")) } }
            }
            @if rows.is_empty() { (nothing(ask)) } @else {
                ul.cards data-list="" {
                    @for row in rows { li.card { (card(row)) } }
                }
            }
            (paging(
                (number > 1).then(|| to(number - 1)),
                (number * ROWS < all).then(|| to(number + 1)),
                ("Earlier names", "Further names"),
            ))
        },
    )
}

fn card(row: &RepositoryRow) -> Markup {
    let links = Links::new(&row.name);
    html! {
        h2 { (icon::store()) a data-go="" href=(links.log()) { (row.name) } }
        @if let Ok(Some(summary)) = &row.summary { (damage(&summary.damaged)) }
        @match &row.summary {
            Ok(None) => p.quiet { "Not loaded: the page took too long." },
            Err(Code::Damaged) => p.wrong { "This repository is damaged. snap verify locates the damage." },
            Err(_) => p.wrong { "This repository cannot be read now." },
            Ok(Some(RepositorySummary { newest: None, .. })) => p.quiet { "No commits yet." },
            Ok(Some(RepositorySummary { newest: Some((_, commit)), branches, tags, .. })) => {
                p.message { (subject(commit)) }
                p.quiet {
                    (show::brief(&commit.author)) ", " (moment::ago(commit.time))
                }
                p.facts {
                    span { (ByteCount(commit.totals.bytes)) }
                    span { (count(commit.totals.files, "file")) }
                    span { (count(*branches as u64, "branch")) }
                    @if *tags > 0 { span { (count(*tags as u64, "tag")) } }
                }
            }
        }
    }
}

/// Renders the first line of a commit message.
pub(super) fn subject(commit: &Commit) -> Markup {
    let line = commit.message.lines().next().unwrap_or_default();
    html! {
        @if line.trim().is_empty() { em.quiet { "no message" } }
        @else { (show::brief(line)) }
    }
}

fn nothing(ask: &PageRequest) -> Markup {
    html! {
        section.empty {
            h2 { "Nothing here yet" }
            p { "The first push creates a repository. In a folder that you want to back up:" }
            pre.command { code { "snap init\nsnap commit -m \"first\"\nsnap push " (ask.origin) "/project main" } }
        }
    }
}
