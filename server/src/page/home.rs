//! `/`: the list of repositories.

use std::collections::BTreeMap;

use maud::{Markup, html};
use snap_core::{
    base::{
        number::{ByteCount, count},
        observe::Observer,
        time::Time,
    },
    format::commit::Commit,
};

use super::{
    deadline::no_page,
    icon,
    layout::{PageLayout, paging},
    link::Links,
    moment,
    overview::{BranchOverview, Concern, ConcernKind, Overview},
    page_request::PageRequest,
    refs::damage,
    show,
    stats::percent,
};
use crate::{
    access::{no_rights, principal::Right},
    body::blocking_until_disconnect,
    problem::{Code, HttpProblem},
};

/// Number of repositories on a page.
const ROWS: usize = 100;

/// Maximum number of repositories that are named for each concern.
const NAMED: usize = 10;

/// A repository in the list.
struct RepositoryRow {
    name: String,
    /// `Ok(None)` if the deadline passed before the repository was read; an error code if the
    /// repository cannot be read.
    summary: Result<Option<Overview>, Code>,
}

/// A concern about one of the repositories.
struct NamedConcern<'a> {
    repository: &'a str,
    detail: Option<String>,
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
                    let quotas = ask.pages.server().quotas();
                    hub.get_for_scan(&name)
                        .and_then(|repository| Overview::of(&repository, quotas, &deadline))
                }
            };
            let is_damaged = match &summary {
                Ok(overview) => overview.as_ref().is_some_and(|it| !it.damaged_refs.is_empty()),
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
        Ok(page(&ask, &rows, all, number))
    })
    .await
}

fn page(ask: &PageRequest, rows: &[RepositoryRow], all: usize, number: usize) -> Markup {
    let to = |number: usize| format!("/?page={number}");
    PageLayout::plain("Repositories").page(
        ask.around(),
        html! {
            div.head {
                h1 { "Repositories" }
                @if !rows.is_empty() { p.quiet { (count(all as u64, "repository")) } }
            }
            (attention(rows, all > ROWS))
            @if rows.is_empty() { (nothing(ask)) } @else {
                ul.cards data-list="" {
                    @for row in rows { li.card { (card(row)) } }
                }
            }
            (paging(
                (number > 1).then(|| to(number - 1)),
                (number * ROWS < all).then(|| to(number + 1)),
                "Earlier names", "Further names",
            ))
        },
    )
}

/// Renders the concerns about the repositories in `rows`; nothing if there are none. `is_part` says
/// that `rows` is one of several pages.
fn attention(rows: &[RepositoryRow], is_part: bool) -> Markup {
    let now = Time::now();
    let mut by_kind: BTreeMap<ConcernKind, Vec<NamedConcern<'_>>> = BTreeMap::new();
    for row in rows {
        for Concern { kind, detail } in Concern::about(&row.summary, now) {
            by_kind.entry(kind).or_default().push(NamedConcern { repository: &row.name, detail });
        }
    }
    html! {
        @if !by_kind.is_empty() {
            section.sheet.attention aria-labelledby="attention" {
                div.toolbar {
                    h2 #attention { "Needs attention" @if is_part { " on this page of the list" } }
                }
                ul { @for (kind, named) in &by_kind { li { (concern_line(*kind, named)) } } }
            }
        }
    }
}

fn concern_line(kind: ConcernKind, named: &[NamedConcern<'_>]) -> Markup {
    let title = match kind {
        ConcernKind::Damaged => "Damaged",
        ConcernKind::DamagedRefs => "Damaged branches or tags",
        ConcernKind::Unreadable => "Cannot be read now",
        ConcernKind::NearQuota => "Quota almost used up",
        ConcernKind::Unverified => "Not verified for 30 days",
    };
    let advice = match kind {
        ConcernKind::Damaged => html! {
            "Run " code { "snap verify" } " to list what is affected, and " code { "snap repair" }
            " to recover it."
        },
        ConcernKind::DamagedRefs => html! { code { "snap push --force" } " writes them again." },
        ConcernKind::Unreadable => html! { "The log of this server says why." },
        ConcernKind::NearQuota => html! { "A full repository accepts no pushes." },
        ConcernKind::Unverified => html! {
            "Run " code { "snap verify --max-age 30d" } " in the repository on this server."
        },
    };
    html! {
        strong { (title) }
        ": "
        @for (at, NamedConcern { repository, detail }) in named.iter().take(NAMED).enumerate() {
            @if at > 0 { ", " }
            a href=(Links::new(repository).log()) { (repository) }
            @if let Some(detail) = detail { " (" (detail) ")" }
        }
        @if let Some(more) = named.len().checked_sub(NAMED).filter(|more| *more > 0) {
            " and " (more) " more"
        }
        p.quiet { (advice) }
    }
}

fn card(row: &RepositoryRow) -> Markup {
    let links = Links::new(&row.name);
    html! {
        h2 { (icon::store()) a data-go="" href=(links.log()) { (row.name) } }
        @match &row.summary {
            Ok(None) => p.quiet { "Not loaded: the page took too long." },
            Err(Code::Damaged) => p.wrong { "This repository is damaged. snap verify locates the damage." },
            Err(_) => p.wrong { "This repository cannot be read now." },
            Ok(Some(overview)) => {
                (damage(&overview.damaged_refs))
                @if overview.damaged_packs > 0 {
                    p.wrong { "Damaged packs: " (overview.damaged_packs) ". snap verify lists what is affected." }
                }
                @match &overview.newest {
                    None => p.quiet { "No commits yet." },
                    Some(commit) => {
                        p.message { (subject(commit)) }
                        (branches(&links, overview))
                    }
                }
                @if overview.packs > 0 { (figures(overview)) }
            }
        }
    }
}

/// Renders the branches that moved last.
fn branches(links: &Links, overview: &Overview) -> Markup {
    let more = overview.branch_count - overview.branches.len();
    html! {
        ul.branches {
            @for branch in &overview.branches {
                li {
                    (icon::branch())
                    a href=(links.log_of(branch.name.short(), 1)) { (show::name(branch.name.short().as_bytes())) }
                    " " span.quiet { (last_move(branch)) }
                }
            }
            @if more > 0 { li { a href=(links.page("refs")) { (count(more as u64, "more branch")) } } }
        }
    }
}

fn last_move(branch: &BranchOverview) -> Markup {
    let verb = match &branch.last_move {
        Some(last) if last.is_push => "pushed",
        Some(_) => "moved",
        None => "last commit",
    };
    let who = branch.last_move.as_ref().and_then(|last| last.who.as_deref());
    html! {
        (verb) " " (moment::ago(branch.time()))
        @if let Some(who) = who { " by " (show::brief(who)) }
    }
}

/// Renders the space that a repository takes, and when it was verified.
fn figures(overview: &Overview) -> Markup {
    html! {
        dl.facts {
            div {
                dt { "Stored" }
                dd {
                    (ByteCount(overview.stored_bytes)) " in " (count(overview.packs as u64, "pack"))
                    @if let Some(quota) = overview.quota {
                        ", " (percent(quota.used_bytes, quota.quota_bytes)) " of the quota of "
                        (ByteCount(quota.quota_bytes))
                    }
                }
            }
            div { dt { "Verified" } dd { (verified(overview)) } }
            @if let Some(commit) = &overview.newest {
                div {
                    dt { "Snapshot" }
                    dd { (ByteCount(commit.totals.bytes)) " in " (count(commit.totals.files, "file")) }
                }
            }
            @if overview.tag_count > 0 {
                div { dt { "Tags" } dd { (overview.tag_count) } }
            }
        }
    }
}

fn verified(overview: &Overview) -> Markup {
    let Some(checks) = overview.checks else {
        return html! { "not here; run " code { "snap verify --data" } " on the upstream" };
    };
    match checks.oldest_secs {
        None => html! { "never" },
        Some(secs) => html! {
            (moment::ago(Time { secs, nanos: 0 }))
            @if checks.unchecked_packs > 0 {
                ", except " (checks.unchecked_packs) " of " (count(overview.packs as u64, "pack"))
            }
        },
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
