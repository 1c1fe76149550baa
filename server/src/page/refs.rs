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
    deadline::{Deadline, End, no_page, page_of},
    home::subject,
    icon,
    link::Links,
    log::who,
    moment,
    names::Names,
    shell::{Shell, Tab, columns, paging},
    show,
};
use crate::{problem::Problem, repository::Repository, skip::while_awaited};

/// Branches and tags on a page.
const ROWS: usize = 200;

type Row<'r> = (&'r RefName, &'r CommitId, Commit);

pub(super) fn view(
    ask: &Ask,
    repository: &Arc<Repository>,
    observer: &dyn Observer,
) -> Result<Markup, Problem> {
    let (repo, links) = (ask.repo(), ask.links());
    let names = Names::of(repository)?;
    let (all, page) = (names.all().len(), ask.page());
    let last = all.div_ceil(ROWS).max(1);
    if page > last {
        return Err(no_page(page, last));
    }
    let (rows, end) = read(repository, &names, page, &Deadline::usual(observer))?;
    let default = names.default_branch();
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
                    (table((&links, &names), rows.iter().filter(|(name, ..)| name.kind() == kind), default))
                }
            }
        }
        @if end == End::Late { section.sheet { p.none { "There was no time to look at more of them. snap branch lists them all." } } }
        (paging((page > 1).then(|| to(page - 1)), (page * ROWS < all).then(|| to(page + 1)), ("Before", "Further")))
    };
    Ok(Shell::of(&repo, Tab::Refs, None, format!("Branches and tags · {repo}"))
        .page(ask.around(), body))
}

/// The names of a page, with the commits that they stand at.
fn read<'n>(
    repository: &Repository,
    names: &'n Names,
    page: usize,
    deadline: &Deadline<'_>,
) -> Result<(Vec<Row<'n>>, End), Problem> {
    let store = repository.repo().store();
    // Of others no commit is read.
    let all = names.all().iter().skip((page - 1) * ROWS).take(ROWS);
    let rows = all.map(|(name, id)| store.commit(id).map(|commit| (name, id, commit)));
    Ok(page_of(while_awaited(rows, deadline), 1, ROWS)?)
}

fn table<'r>(
    (links, names): (&Links, &Names),
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
