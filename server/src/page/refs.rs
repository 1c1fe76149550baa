//! `/r/{repo}/refs`: branches and tags, and where they stand.

use std::sync::Arc;

use maud::{Markup, html};
use snap_core::base::number::count;
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
    names::Names,
    shell::{Shell, Tab, paging},
    show,
};
use crate::{problem::Problem, repository::Repository};

/// Branches and tags on a page.
const ROWS: usize = 200;

type Row<'r> = (&'r RefName, &'r CommitId, Commit);

pub(super) fn view(
    ask: &Ask,
    repository: &Arc<Repository>,
    _: &dyn Observer,
) -> Result<Markup, Problem> {
    let (repo, links) = (ask.repo(), ask.links());
    let names = Names::of(repository)?;
    let (all, page) = (names.all().len(), ask.page());
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (name, id) in names.all().iter().skip((page - 1) * ROWS).take(ROWS) {
        rows.push((name, id, repository.repo().store().commit(id)?));
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
                    (table((&links, &names), rows.iter().filter(|(name, ..)| name.kind() == kind), default.as_ref()))
                }
            }
        }
        (paging((page > 1).then(|| to(page - 1)), (page * ROWS < all).then(|| to(page + 1)), ("Before", "Further")))
    };
    Ok(Shell::of(&repo, Tab::Refs, None, format!("Branches and tags · {repo}"))
        .page(ask.around(), body))
}

fn table<'r>(
    (links, names): (&Links, &Names),
    rows: impl Iterator<Item = &'r Row<'r>>,
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
                    @let rev = names.rev(name);
                    tr {
                        td.what {
                            @if name.kind() == RefKind::Tag { (icon::tag()) } @else { (icon::branch()) } " "
                            a.subject data-go="" href=(links.log_of(&rev, 1)) { (show::name(name.short().as_bytes())) }
                            @if Some(*name) == default { span.chip { "default" } }
                            div.under {
                                a href=(links.entry(&rev, b"")) { "files" }
                                a.quiet href=(links.entry(&id.to_string(), b"")) { (subject(commit)) }
                            }
                        }
                        td.who { div { (who(commit)) } }
                        td.number.quiet { (moment::ago(commit.time)) }
                    }
                }
            }
        }
    }
}
