//! `/r/{repo}/history/{rev}/{path}`: the commits in which a path changed.

use std::sync::Arc;

use maud::{Markup, html};
use snap_core::{
    base::{id::CommitId, observe::Observer},
    ops::{
        log,
        path_log::{self, FollowRenames, PathChange},
    },
};

use super::{
    deadline::{Deadline, PageEnd, TOO_LATE_TEXT, no_page, page_of},
    home::subject,
    layout::{PageLayout, Tab, columns, paging, trail},
    link::Links,
    log::who,
    moment,
    page_request::{NamedCommit, PageRequest},
    show,
    snapshot::short,
};
use crate::{problem::HttpProblem, repository::Repository};

/// Number of commits on a page.
const ROWS: usize = 50;

pub(super) fn view(
    ask: &PageRequest,
    repository: &Arc<Repository>,
    observer: &dyn Observer,
) -> Result<Markup, HttpProblem> {
    let named = ask.named(repository, &ask.rev())?;
    let path = ask.path();
    let (steps, end) = read(repository, &named, &path, ask.page(), &ask.deadline(observer))?;
    if let PageEnd::Beyond { last } = end {
        return Err(no_page(ask.page(), last));
    }
    let (links, repo) = (ask.links(), ask.repo());
    let here = links.history(&named.rev, &path);
    let page = ask.page();
    let to = |page: usize| format!("{here}?page={page}");
    let body = html! {
        div.head {
            (trail(&links, &named.rev, &repo, &path))
            a.button href=(links.entry(&named.rev, &path)) { "Show" }
        }
        section.sheet {
            div.toolbar { h2 { "Commits that changed it" } }
            @if !steps.is_empty() { (table(&links, &path, &steps)) }
            @else if end != PageEnd::Late { p.none { "None on this page." } }
            @if end == PageEnd::Late { p.none { (TOO_LATE_TEXT) } }
        }
        (paging(
            (page > 1).then(|| to(page - 1)),
            (end == PageEnd::More).then(|| to(page + 1)),
            "Newer", "Older",
        ))
    };
    let title = format!("History of {} · {repo}", show::plain(&path));
    Ok(PageLayout::of(&repo, Tab::Files, Some(&named.rev), title).page(ask.around(), body))
}

fn read(
    repository: &Repository,
    named: &NamedCommit,
    path: &[u8],
    page: usize,
    deadline: &Deadline<'_>,
) -> Result<(Vec<PathChange>, PageEnd), HttpProblem> {
    let options = log::LogOptions::default();
    let store = repository.repo().store();
    let all =
        path_log::run(store, &[named.id], &[path], &options, FollowRenames::Follow, deadline)?;
    Ok(page_of(all, page, ROWS)?)
}

fn table(links: &Links, path: &[u8], steps: &[PathChange]) -> Markup {
    // Commits before a rename have the path under its former name.
    let names = steps.iter().scan(path.to_vec(), |name, step| {
        let now = name.clone();
        if let Some(moved) = step.moved.iter().find(|moved| moved.to == *name) {
            name.clone_from(&moved.from);
        }
        Some((now, name.clone()))
    });
    let names: Vec<(Vec<u8>, Vec<u8>)> = names.collect();
    html! {
        table.commits role="table" data-list="" {
            caption.unseen { "Commits" }
            (columns("Commit"))
            tbody role="rowgroup" {
                @for (step, (name, before)) in steps.iter().zip(&names) {
                    (row(links, step, name, before))
                }
            }
        }
    }
}

fn row(links: &Links, step: &PathChange, name: &[u8], before: &[u8]) -> Markup {
    let rev = step.id.to_string();
    html! {
        tr role="row" {
            td.what role="cell" {
                a.subject data-go="" href=(links.entry(&rev, name)) { (subject(&step.commit)) }
                div.under {
                    code.quiet { (short(&step.id)) }
                    @if let Some(parent) = step.commit.parents.first() {
                        a href=(changes(links, parent, &rev, name, before)) { "changes" }
                    }
                    @if name != before { span { "was " (show::name(before)) } }
                }
            }
            td.who role="cell" { div { (who(&step.commit)) } }
            td.number.quiet role="cell" { (moment::ago(step.commit.time)) }
        }
    }
}

fn changes(links: &Links, parent: &CommitId, rev: &str, name: &[u8], before: &[u8]) -> String {
    match name == before {
        true => links.diff_of(&parent.to_string(), rev, name),
        // A diff that is limited to one of the names would not show the rename.
        false => links.diff(&parent.to_string(), rev),
    }
}
