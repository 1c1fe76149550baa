//! `/`: the repositories.

use maud::{Markup, html};
use snap_core::base::number::{Size, count};
use snap_core::{
    base::{id::CommitId, observe::Observer},
    format::commit::Commit,
    repo::ref_name::RefKind,
};

use super::{ask::Ask, deadline::Deadline, icon, link::Links, moment, shell::Shell, show};
use crate::{
    access::{stranger, who::Right},
    body::watched,
    problem::Problem,
    repository::Repository,
};

/// Of so many repositories it is told what is new in them.
const TOLD: usize = 100;

/// A repository in the list.
struct Row {
    name: String,
    told: Option<Told>,
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
        let row = |(at, name): (usize, String)| {
            // One that cannot be read keeps nobody from the others.
            let is_looked_at = at < TOLD && !deadline.cancelled();
            let repository = is_looked_at.then(|| hub.glance(&name).ok()).flatten();
            let told = repository.and_then(|repository| told(&repository, &deadline).ok()?);
            Row { name, told }
        };
        let rows: Vec<Row> = hub.names().into_iter().filter(theirs).enumerate().map(row).collect();
        Ok(page(&ask, &rows))
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

fn page(ask: &Ask, rows: &[Row]) -> Markup {
    Shell::plain("Repositories").page(
        ask.around(),
        html! {
            div.head {
                h1 { "Repositories" }
                @if !rows.is_empty() { p.quiet { (count(rows.len() as u64, "repository")) } }
            }
            @if rows.is_empty() { (nothing(ask)) } @else {
                ul.cards data-list="" {
                    @for row in rows { li.card { (card(row)) } }
                }
            }
        },
    )
}

fn card(row: &Row) -> Markup {
    let links = Links::new(&row.name);
    html! {
        h2 { (icon::store()) a data-go="" href=(links.log()) { (row.name) } }
        @match &row.told {
            None => p.quiet { "Not looked at." },
            Some(Told { newest: None, .. }) => p.quiet { "No commits yet." },
            Some(Told { newest: Some((_, commit)), branches, tags }) => {
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
