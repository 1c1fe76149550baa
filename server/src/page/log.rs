//! `/r/{repo}`: the commits of a branch, newest first.

use std::{sync::Arc, time::Duration};

use maud::{Markup, html};
use snap_core::base::number::Size;
use snap_core::{
    base::{id::CommitId, observe::Observer},
    format::commit::Commit,
    ops::log,
    repo::ref_name::{RefKind, RefName},
};

use super::{
    ask::{Ask, Named},
    deadline::{Deadline, End, LATE, no_page, page_of},
    growth::Grown,
    home::subject,
    icon,
    link::Links,
    moment,
    names::Names,
    shell::{Shell, Tab, paging},
    show,
    snapshot::short,
};
use crate::{problem::Problem, repository::Repository, skip::while_awaited};

/// Commits on a page.
const ROWS: usize = 50;

/// So long it is waited for what each commit added; then it is left out.
const PATIENCE: Duration = Duration::from_millis(250);

/// Refs that are offered to choose from.
const CHOICES: usize = 500;

/// So many names and so many labels of a commit are shown.
const CHIPS: usize = 50;

pub(super) fn view(
    ask: &Ask,
    repository: &Arc<Repository>,
    observer: &dyn Observer,
) -> Result<Markup, Problem> {
    let (repo, links) = (ask.repo(), ask.links());
    let names = Names::of(repository)?;
    let Some(named) = ask.wanted(repository, &names)? else {
        let shell = Shell::of(&repo, Tab::Commits, None, repo.clone());
        return Ok(shell.page(ask.around(), nothing(ask)));
    };
    let page = ask.page();
    let (commits, end) = read(repository, &named, page, &Deadline::usual(observer))?;
    if let End::Beyond { last } = end {
        return Err(no_page(page, last));
    }
    // To count is to read all that tells of the structure, which may lie elsewhere:
    // then it is counted for those who ask for that.
    let patience = ask.pages.server().hub().upstream().is_none().then_some(PATIENCE);
    let grown = ask.pages.growth().of(repository, names.tips(), patience).and_then(Result::ok);
    let to = |page| links.log_of(&named.rev, page);
    let paging = paging(
        (page > 1).then(|| to(page - 1)),
        (end == End::More).then(|| to(page + 1)),
        ("Newer", "Older"),
    );
    let body = html! {
        div.head {
            h1 { (repo) }
            p.clone { code data-copy="" { "snap clone " (location(ask)) } }
        }
        section.sheet {
            div.toolbar {
                (chooser(&links.log(), &names, &named))
                div.actions {
                    a.button href=(links.entry(&named.rev, b"")) { "Browse files" }
                }
            }
            (table((&links, &names), &commits, grown.as_deref()))
            @if end == End::Late { p.none { (LATE) } }
        }
        (paging)
    };
    let title = format!("{repo} · {}", show::plain(named.rev.as_bytes()));
    Ok(Shell::of(&repo, Tab::Commits, Some(&named.rev), title).page(ask.around(), body))
}

fn read(
    repository: &Repository,
    named: &Named,
    page: usize,
    deadline: &Deadline<'_>,
) -> Result<(Vec<(CommitId, Commit)>, End), Problem> {
    let all = log::run(repository.repo().store(), &[named.id], &log::Options::default())?;
    Ok(page_of(while_awaited(all, deadline), page, ROWS)?)
}

/// What `snap clone` and `snap push` take.
pub(super) fn location(ask: &Ask) -> String {
    match ask.repo().as_str() {
        snap_remote::service::snap_server::ONLY => ask.origin.clone(),
        repo => format!("{}/{repo}", ask.origin),
    }
}

/// Chooses a branch or a tag; without a script there is a button.
fn chooser(action: &str, names: &Names, named: &Named) -> Markup {
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

fn table(known: (&Links, &Names), commits: &[(CommitId, Commit)], grown: Option<&Grown>) -> Markup {
    html! {
        table.commits role="table" data-list="" {
            caption.unseen { "Commits" }
            thead role="rowgroup" {
                tr role="row" {
                    th role="columnheader" scope="col" { "Commit" }
                    th role="columnheader" scope="col" { "Author" }
                    th.number role="columnheader" scope="col" { "Size" }
                    th.number role="columnheader" scope="col" title="What it takes in the store, after deduplication and compression" { "Added" }
                    th.number role="columnheader" scope="col" { "Made" }
                }
            }
            tbody role="rowgroup" {
                @for (id, commit) in commits { (row(known, (id, commit), grown.and_then(|grown| grown.stored(id)))) }
            }
        }
    }
}

fn row(
    (links, names): (&Links, &Names),
    (id, commit): (&CommitId, &Commit),
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
            td.number role="cell" { (Size(commit.totals.bytes)) }
            td.number.gain role="cell" {
                @if let Some(stored) = stored { "+" (Size(stored)) }
            }
            td.number.quiet role="cell" { (moment::ago(commit.time)) }
        }
    }
}

/// Who made a commit, and where.
pub(super) fn who(commit: &Commit) -> Markup {
    html! {
        (show::brief(&commit.author))
        @if !commit.host.is_empty() { span.quiet { " on " (show::brief(&commit.host)) } }
    }
}

/// Branches, tags and labels of a commit.
pub(super) fn chips(links: &Links, names: &Names, id: &CommitId, commit: &Commit) -> Markup {
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

/// While there is no commit.
pub(super) fn nothing(ask: &Ask) -> Markup {
    html! {
        section.empty {
            h1 { "No commits yet" }
            p { "In the folder that you want to keep:" }
            pre.command { code { "snap commit -m \"first\"\nsnap push " (location(ask)) " main" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use snap_core::base::observe::Silent;

    use super::{super::two_commits::two_commits, *};

    #[test]
    fn what_takes_too_long_ends_and_says_so() {
        let (_folder, repository, [_, named]) = two_commits();
        let of = |time| {
            let deadline = Deadline::after(time, &Silent);
            let (commits, end) = read(&repository, &named, 1, &deadline).unwrap();
            (commits.len(), end)
        };
        assert_eq!(of(Duration::from_secs(60)), (2, End::All));
        assert_eq!(of(Duration::ZERO), (0, End::Late));
    }
}
