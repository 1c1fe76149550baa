//! `/`: the repositories.

use maud::{Markup, html};
use snap_core::base::number::{Size, count};
use snap_core::{
    base::{id::CommitId, observe::Observer},
    format::commit::Commit,
    repo::ref_name::RefKind,
};

use super::{
    ask::Ask,
    deadline::{Deadline, no_page},
    icon,
    link::Links,
    moment,
    shell::{Shell, paging},
    show,
};
use crate::{
    access::{stranger, who::Right},
    body::watched,
    problem::{Code, Problem},
    repository::Repository,
};

/// Repositories on a page.
const ROWS: usize = 100;

/// A repository in the list.
struct Row {
    name: String,
    /// `None` where there was no time to look; else why it cannot be read.
    told: Result<Option<Told>, Code>,
}

struct Told {
    newest: Option<(CommitId, Commit)>,
    branches: usize,
    tags: usize,
}

pub(super) async fn view(ask: Ask) -> Result<Markup, Problem> {
    if !ask.who.is_known() {
        return Err(stranger(&ask.who));
    }
    watched(move |observer| {
        let deadline = Deadline::usual(observer);
        let hub = ask.pages.server().hub();
        let theirs = |name: &String| ask.who.may(Right::Read, name);
        let row = |name: String| {
            // One that cannot be read keeps nobody from the others.
            let told = match deadline.cancelled() {
                true => Ok(None),
                false => hub.glance(&name).and_then(|repository| told(&repository, &deadline)),
            };
            if told.as_ref().is_err_and(|problem| problem.code == Code::Damaged) {
                ask.pages.server().metrics().damaged(&name);
            }
            Row { name, told: told.map_err(|problem| problem.code) }
        };
        let names: Vec<String> = hub.names().into_iter().filter(theirs).collect();
        let (all, number) = (names.len(), ask.page());
        let last = all.div_ceil(ROWS).max(1);
        if number > last {
            return Err(no_page(number, last));
        }
        let rows: Vec<Row> =
            names.into_iter().skip((number - 1) * ROWS).take(ROWS).map(row).collect();
        Ok(page(&ask, &rows, (all, number)))
    })
    .await
}

/// What is new in a repository, as it is known; `None` where there was no time to
/// look.
fn told(repository: &Repository, deadline: &Deadline<'_>) -> Result<Option<Told>, Problem> {
    repository.refresh()?;
    // Not as they stand upstream this very moment: that is a question for each.
    let refs = repository.known_refs()?;
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
    Ok(Some(Told { newest, branches: of(RefKind::Branch), tags: of(RefKind::Tag) }))
}

fn page(ask: &Ask, rows: &[Row], (all, number): (usize, usize)) -> Markup {
    let to = |number: usize| format!("/?page={number}");
    Shell::plain("Repositories").page(
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

fn card(row: &Row) -> Markup {
    let links = Links::new(&row.name);
    html! {
        h2 { (icon::store()) a data-go="" href=(links.log()) { (row.name) } }
        @match &row.told {
            Ok(None) => p.quiet { "There was no time to look." },
            Err(Code::Damaged) => p.wrong { "This repository is damaged: snap verify tells where." },
            Err(_) => p.wrong { "This repository cannot be read just now." },
            Ok(Some(Told { newest: None, .. })) => p.quiet { "No commits yet." },
            Ok(Some(Told { newest: Some((_, commit)), branches, tags })) => {
                p.message { (subject(commit)) }
                p.quiet {
                    (show::brief(&commit.author)) ", " (moment::ago(commit.time))
                }
                p.facts {
                    span { (Size(commit.totals.bytes)) }
                    span { (count(commit.totals.files, "file")) }
                    span { (count(*branches as u64, "branch")) }
                    @if *tags > 0 { span { (count(*tags as u64, "tag")) } }
                }
            }
        }
    }
}

/// The first line of a commit's message.
pub(super) fn subject(commit: &Commit) -> Markup {
    let line = commit.message.lines().next().unwrap_or_default();
    html! {
        @if line.trim().is_empty() { em.quiet { "no message" } }
        @else { (show::brief(line)) }
    }
}

fn nothing(ask: &Ask) -> Markup {
    html! {
        section.empty {
            h2 { "Nothing here yet" }
            p { "The first push makes a repository. In a folder that you want to keep:" }
            pre.command { code { "snap init\nsnap commit -m \"first\"\nsnap push " (ask.origin) "/project main" } }
        }
    }
}
