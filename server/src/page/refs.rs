//! `/r/{repo}/refs`: branches and tags, and where they stand.

use std::sync::Arc;

use maud::{Markup, html};
use snap_core::{
    base::{id::CommitId, observe::Observer},
    format::commit::Commit,
    repo::ref_name::{RefKind, RefName},
};

use super::{
    ask::Ask,
    home::subject,
    icon,
    link::Links,
    log::who,
    moment,
    number::count,
    shell::{Shell, Tab, paging},
};
use crate::{problem::Problem, repository::Repository};

/// Branches and tags on a page.
const ROWS: usize = 200;

type Row = (RefName, CommitId, Commit);

pub(super) fn view(
    ask: &Ask,
    repository: &Arc<Repository>,
    _: &dyn Observer,
) -> Result<Markup, Problem> {
    let (repo, links) = (ask.repo(), ask.links());
    let refs = repository.refs()?;
    let (all, page) = (refs.len(), ask.page());
    let mut rows: Vec<Row> = Vec::new();
    for (name, id) in refs.into_iter().skip((page - 1) * ROWS).take(ROWS) {
        rows.push((name, id, repository.repo().store().commit(&id)?));
    }
    let default = repository.default_branch().ok();
    let to = |page: usize| format!("{}?page={page}", links.page("refs"));
    let body = html! {
        div.head {
            h1 { "Branches and tags" }
            p.quiet { (count(all as u64, "name")) }
        }
        @if all == 0 {
            section.empty { p { "None yet: a push makes the first." } }
        }
        @for (kind, title) in [(RefKind::Branch, "Branches"), (RefKind::Tag, "Tags")] {
            @if rows.iter().any(|(name, ..)| name.kind() == kind) {
                section.sheet {
                    div.toolbar { h2 { (title) } }
                    (table(&links, rows.iter().filter(|(name, ..)| name.kind() == kind), default.as_ref()))
                }
            }
        }
        (paging((page > 1).then(|| to(page - 1)), (page * ROWS < all).then(|| to(page + 1)), ("Before", "Further")))
    };
    Ok(Shell::of(&repo, Tab::Refs, None, format!("Branches and tags · {repo}"))
        .page(ask.around(), body))
}

fn table<'r>(
    links: &Links,
    rows: impl Iterator<Item = &'r Row>,
    default: Option<&RefName>,
) -> Markup {
    html! {
        table.commits data-list="" {
            thead {
                tr {
                    th scope="col" { "Name" }
                    th scope="col" { "Author" }
                    th.number scope="col" { "Made" }
                }
            }
            tbody {
                @for (name, id, commit) in rows {
                    tr {
                        td.what {
                            @if name.kind() == RefKind::Tag { (icon::tag()) } @else { (icon::branch()) } " "
                            a.subject data-go="" href=(links.log_of(name.short(), 1)) { (name.short()) }
                            @if Some(name) == default { span.chip { "default" } }
                            div.under {
                                a href=(links.entry(name.short(), b"")) { "files" }
                                a.quiet href=(links.entry(&id.to_string(), b"")) { (subject(commit)) }
                            }
                        }
                        td.who { (who(commit)) }
                        td.number.quiet { (moment::ago(commit.time)) }
                    }
                }
            }
        }
    }
}
