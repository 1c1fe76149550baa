//! `/r/{repo}/refs`: branches and tags, and the commits that they point at.

use std::sync::Arc;

use maud::{Markup, html};
use snap_core::base::number::count;
use snap_core::{
    base::{id::CommitId, observe::Observer},
    format::commit::Commit,
    repo::ref_name::{RefKind, RefName},
};

use super::{
    deadline::{Deadline, PageEnd, no_page, page_of},
    home::subject,
    icon,
    layout::{PageLayout, Tab, columns, paging},
    link::Links,
    log::who,
    moment,
    page_request::PageRequest,
    ref_index::RefIndex,
    show,
};
use crate::{pagination::until_cancelled, problem::HttpProblem, repository::Repository};

/// Number of branches and tags on a page.
const ROWS: usize = 200;

/// Maximum number of damaged refs that are named.
const DAMAGED: usize = 20;

type Row<'r> = (&'r RefName, &'r CommitId, Commit);

pub(super) fn view(
    ask: &PageRequest,
    repository: &Arc<Repository>,
    observer: &dyn Observer,
) -> Result<Markup, HttpProblem> {
    let (repo, links) = (ask.repo(), ask.links());
    let names = RefIndex::of(repository)?;
    let (all, page) = (names.all().len(), ask.page());
    let last = all.div_ceil(ROWS).max(1);
    if page > last {
        return Err(no_page(page, last));
    }
    let (rows, end) = read(repository, &names, page, &ask.deadline(observer))?;
    let default = names.default_branch();
    let to = |page: usize| format!("{}?page={page}", links.page("refs"));
    let body = html! {
        div.head {
            h1 { "Branches and tags" }
            p.quiet { (count(all as u64, "name")) }
        }
        (damage(names.damaged()))
        @if all == 0 && names.damaged().is_empty() {
            section.empty { p { "No branches or tags yet. The first push creates one." } }
        }
        @for (kind, title) in [(RefKind::Branch, "Branches"), (RefKind::Tag, "Tags")] {
            @if rows.iter().any(|(name, ..)| name.kind() == kind) {
                section.sheet {
                    div.toolbar { h2 { (title) } }
                    (table(&links, &names, rows.iter().filter(|(name, ..)| name.kind() == kind), default))
                }
            }
        }
        @if end == PageEnd::Late { section.sheet { p.none { "Loading more of them took too long. snap branch lists them all." } } }
        (paging((page > 1).then(|| to(page - 1)), (page * ROWS < all).then(|| to(page + 1)), "Before", "Further"))
    };
    Ok(PageLayout::of(&repo, Tab::Refs, None, format!("Branches and tags · {repo}"))
        .page(ask.around(), body))
}

/// Renders a warning about damaged branches and tags.
pub(super) fn damage(names: &[RefName]) -> Markup {
    html! {
        @for name in names.iter().take(DAMAGED) {
            p.wrong {
                "The " (name.kind().noun()) " " (show::name(name.short().as_bytes()))
                " is damaged. snap push --force writes it again."
            }
        }
        @if let Some(more) = names.len().checked_sub(DAMAGED).filter(|more| *more > 0) {
            p.wrong { (count(more as u64, "further name")) " damaged." }
        }
    }
}

/// Reads the commits of the refs on a page.
fn read<'n>(
    repository: &Repository,
    names: &'n RefIndex,
    page: usize,
    deadline: &Deadline<'_>,
) -> Result<(Vec<Row<'n>>, PageEnd), HttpProblem> {
    let store = repository.repo().store();
    // Read only the commits of this page.
    let all = names.all().iter().skip((page - 1) * ROWS).take(ROWS);
    let rows = all.map(|(name, id)| store.commit(id).map(|commit| (name, id, commit)));
    Ok(page_of(until_cancelled(rows, deadline), 1, ROWS)?)
}

fn table<'r>(
    links: &Links,
    names: &RefIndex,
    rows: impl Iterator<Item = &'r Row<'r>>,
    default: Option<&RefName>,
) -> Markup {
    html! {
        table.commits role="table" data-list="" {
            (columns("Name"))
            tbody role="rowgroup" {
                @for (name, id, commit) in rows {
                    @let rev = names.rev(name);
                    tr role="row" {
                        td.what role="cell" {
                            @if name.kind() == RefKind::Tag { (icon::tag()) } @else { (icon::branch()) } " "
                            a.subject data-go="" href=(links.log_of(&rev, 1)) { (show::name(name.short().as_bytes())) }
                            @if Some(*name) == default { span.chip { "default" } }
                            div.under {
                                a href=(links.entry(&rev, b"")) { "files" }
                                a.quiet href=(links.entry(&id.to_string(), b"")) { (subject(commit)) }
                            }
                        }
                        td.who role="cell" { div { (who(commit)) } }
                        td.number.quiet role="cell" { (moment::ago(commit.time)) }
                    }
                }
            }
        }
    }
}
