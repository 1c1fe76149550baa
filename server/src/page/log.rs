//! `/r/{repo}`: the commits of a branch, newest first.

use std::{sync::Arc, time::Duration};

use maud::{Markup, html};
use snap_core::base::number::ByteCount;
use snap_core::{
    base::{id::CommitId, observe::Observer},
    format::commit::Commit,
    ops::log,
    repo::ref_name::{RefKind, RefName},
};

use super::{
    deadline::{Deadline, PageEnd, TOO_LATE_TEXT, no_page, page_of},
    home::subject,
    icon,
    layout::{PageLayout, Tab, paging},
    link::Links,
    moment,
    page_request::{NamedCommit, PageRequest},
    ref_index::RefIndex,
    refs::damage,
    show,
    snapshot::short,
    stats_cache::GrowthStats,
};
use crate::{pagination::until_cancelled, problem::HttpProblem, repository::Repository};

/// Number of commits on a page.
const ROWS: usize = 50;

/// Longest wait for the bytes that each commit added. After it, the page leaves the column empty.
const PATIENCE: Duration = Duration::from_millis(250);

/// Maximum number of refs in the drop-down list.
const CHOICES: usize = 500;

/// Maximum number of refs, and of labels, that are shown with a commit.
const CHIPS: usize = 50;

pub(super) fn view(
    ask: &PageRequest,
    repository: &Arc<Repository>,
    observer: &dyn Observer,
) -> Result<Markup, HttpProblem> {
    let (repo, links) = (ask.repo(), ask.links());
    let names = RefIndex::of(repository)?;
    let Some(named) = ask.wanted(repository, &names)? else {
        let shell = PageLayout::of(&repo, Tab::Commits, None, repo.clone());
        let body = html! { (damage(names.damaged())) (nothing(ask)) };
        return Ok(shell.page(ask.around(), body));
    };
    let page = ask.page();
    let (commits, end) = read(repository, &named, page, &ask.deadline(observer))?;
    if let PageEnd::Beyond { last } = end {
        return Err(no_page(page, last));
    }
    // Counting reads all trees, which a server with an upstream would have to fetch. Such a server
    // counts only for the page of statistics.
    let patience = ask.pages.server().hub().upstream().is_none().then_some(PATIENCE);
    let grown = ask.pages.growth().of(repository, names.tips(), patience).and_then(Result::ok);
    let to = |page| links.log_of(&named.rev, page);
    let paging = paging(
        (page > 1).then(|| to(page - 1)),
        (end == PageEnd::More).then(|| to(page + 1)),
        "Newer",
        "Older",
    );
    let body = html! {
        div.head {
            h1 { (repo) }
            p.clone { code data-copy="" { "snap clone " (location(ask)) } }
        }
        (damage(names.damaged()))
        section.sheet {
            div.toolbar {
                (chooser(&links.log(), &names, &named))
                div.actions {
                    a.button href=(links.entry(&named.rev, b"")) { "Browse files" }
                }
            }
            (table(&links, &names, &commits, grown.as_deref()))
            @if end == PageEnd::Late { p.none { (TOO_LATE_TEXT) } }
        }
        (paging)
    };
    let title = format!("{repo} · {}", show::plain(named.rev.as_bytes()));
    Ok(PageLayout::of(&repo, Tab::Commits, Some(&named.rev), title).page(ask.around(), body))
}

fn read(
    repository: &Repository,
    named: &NamedCommit,
    page: usize,
    deadline: &Deadline<'_>,
) -> Result<(Vec<(CommitId, Commit)>, PageEnd), HttpProblem> {
    let all = log::run(repository.repo().store(), &[named.id], &log::LogOptions::default())?;
    let all = log::kept(all).map(|step| step.map(|step| (step.id, step.commit)));
    Ok(page_of(until_cancelled(all, deadline), page, ROWS)?)
}

/// Returns the URL of the repository for `snap clone` and `snap push`.
pub(super) fn location(ask: &PageRequest) -> String {
    match ask.repo().as_str() {
        snap_remote::wire::routes::ONLY => ask.origin.clone(),
        repo => format!("{}/{repo}", ask.origin),
    }
}

/// Renders the choice of a branch or tag. The button is for browsers without JavaScript.
fn chooser(action: &str, names: &RefIndex, named: &NamedCommit) -> Markup {
    let all = names.all().iter().take(CHOICES).map(|(name, _)| (name, names.rev(name)));
    let all: Vec<(&RefName, String)> = all.collect();
    let is_listed = all.iter().any(|(_, rev)| *rev == named.rev);
    html! {
        form.choose method="get" action=(action) {
            label { span.unseen { "Branch or tag" } (icon::branch())
                select name="rev" {
                    @if !is_listed { option value=(named.rev) selected { (show::plain(named.rev.as_bytes())) } }
                    @for (kind, label) in [(RefKind::Branch, "Branches"), (RefKind::Tag, "Tags")] {
                        @if all.iter().any(|(name, _)| name.kind() == kind) {
                            optgroup label=(label) {
                                @for (name, rev) in all.iter().filter(|(name, _)| name.kind() == kind) {
                                    option value=(rev) selected[*rev == named.rev] { (show::plain(name.short().as_bytes())) }
                                }
                            }
                        }
                    }
                }
            }
            button.button type="submit" { "Show" }
        }
    }
}

fn table(
    links: &Links,
    names: &RefIndex,
    commits: &[(CommitId, Commit)],
    grown: Option<&GrowthStats>,
) -> Markup {
    html! {
        table.commits role="table" data-list="" {
            caption.unseen { "Commits" }
            thead role="rowgroup" {
                tr role="row" {
                    th role="columnheader" scope="col" { "Commit" }
                    th role="columnheader" scope="col" { "Author" }
                    th.number role="columnheader" scope="col" { "Size" }
                    th.number role="columnheader" scope="col" title="Space used in the store, \
                                                                     after deduplication and \
                                                                     compression" { "Added" }
                    th.number role="columnheader" scope="col" { "Date" }
                }
            }
            tbody role="rowgroup" {
                @for (id, commit) in commits { (row(links, names, id, commit, grown.and_then(|grown| grown.stored(id)))) }
            }
        }
    }
}

fn row(
    links: &Links,
    names: &RefIndex,
    id: &CommitId,
    commit: &Commit,
    stored: Option<u64>,
) -> Markup {
    let rev = id.to_string();
    html! {
        tr role="row" {
            td.what role="cell" {
                a.subject data-go="" href=(links.entry(&rev, b"")) { (subject(commit)) }
                (chips(links, names, id, commit))
                div.under {
                    code.quiet { (short(id)) }
                    @if let Some(parent) = commit.parents.first() {
                        a href=(links.diff(&parent.to_string(), &rev)) { "changes" }
                    }
                }
            }
            td.who role="cell" { div { (who(commit)) } }
            td.number role="cell" { (ByteCount(commit.totals.bytes)) }
            td.number.gain role="cell" {
                @if let Some(stored) = stored { "+" (ByteCount(stored)) }
            }
            td.number.quiet role="cell" { (moment::ago(commit.time)) }
        }
    }
}

/// Renders the author of a commit, and the host.
pub(super) fn who(commit: &Commit) -> Markup {
    html! {
        (show::brief(&commit.author))
        @if !commit.host.is_empty() { span.quiet { " on " (show::brief(&commit.host)) } }
    }
}

/// Renders the branches, tags and labels of a commit.
pub(super) fn chips(links: &Links, names: &RefIndex, id: &CommitId, commit: &Commit) -> Markup {
    let at = names.at(id);
    let has_more = at.len() > CHIPS;
    html! {
        @for name in at.take(CHIPS) {
            a class={ "chip " (name.kind().noun()) } href=(links.log_of(&names.rev(name), 1)) {
                @if name.kind() == RefKind::Tag { (icon::tag()) } @else { (icon::branch()) }
                (show::name(name.short().as_bytes()))
            }
        }
        @if has_more { a.chip href=(links.page("refs")) { "…" } }
        @for (key, value) in commit.labels.iter().take(CHIPS) {
            span.chip.label {
                (show::brief(key))
                @if !value.is_empty() { "=" (show::brief(value)) }
            }
        }
        @if commit.labels.len() > CHIPS { span.chip.label { "…" } }
    }
}

/// Renders the page of a repository without commits.
pub(super) fn nothing(ask: &PageRequest) -> Markup {
    html! {
        section.empty {
            h1 { "No commits yet" }
            p { "In the folder that you want to back up:" }
            pre.command { code { "snap commit -m \"first\"\nsnap push " (location(ask)) " main" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use snap_core::base::observe::Silent;

    use super::{super::two_commits::two_commits, *};
    use crate::clock::Clock;

    #[test]
    fn work_beyond_the_deadline_ends_and_is_reported() {
        let (_folder, repository, [_, named]) = two_commits();
        let clock = Clock::manual();
        let of = |time| {
            let deadline = Deadline::after(time, &clock, &Silent);
            let (commits, end) = read(&repository, &named, 1, &deadline).unwrap();
            (commits.len(), end)
        };
        assert_eq!(of(Duration::from_secs(60)), (2, PageEnd::All));
        assert_eq!(of(Duration::ZERO), (0, PageEnd::Late));
    }
}
