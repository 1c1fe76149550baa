//! The entries of a folder.

use std::io;

use maud::{Markup, html};
use snap_core::base::number::Size;
use snap_core::{
    base::{
        id::{CommitId, TreeId},
        observe::Observer,
    },
    format::tree::{Entry, Kind},
    ops::list::{self, Depth, ListError},
    store::Store,
};

use super::{
    ask::{Ask, Named},
    deadline::no_page,
    icon,
    link::Links,
    moment,
    shell::paging,
    show,
};
use crate::problem::Problem;

/// Entries on a page.
const ROWS: usize = 1000;

/// Of so many folders on a page the size is told.
const SIZED: usize = 250;

/// Some entries of a folder, and whether there are more.
struct Part {
    entries: Vec<Entry>,
    is_whole: bool,
    /// Entries of the folder up to the end of the part.
    met: usize,
}

/// The folder `tree` at a path of a commit.
pub(super) fn view(
    ask: &Ask,
    store: &Store,
    (named, path, tree): (&Named, &[u8], TreeId),
    observer: &dyn Observer,
) -> Result<Markup, Problem> {
    let page = ask.page();
    let mut part = read(store, tree, (page - 1) * ROWS, observer)?;
    if page > 1 && part.entries.is_empty() {
        return Err(no_page(page, part.met.div_ceil(ROWS).max(1)));
    }
    if page == 1 && part.is_whole {
        // A short folder is easier to overlook with its folders on top.
        part.entries.sort_by_key(|entry| entry.folder().is_none());
    }
    let links = ask.links();
    let here = links.entry(&named.rev, path);
    let to = |page: usize| format!("{here}?page={page}");
    let before = (page > 1).then(|| to(page - 1));
    let after = (!part.is_whole).then(|| to(page + 1));
    Ok(html! {
        section.sheet {
            div.toolbar {
                h2 { (if path.is_empty() { "Files" } else { "In this folder" }) }
                @if !path.is_empty() {
                    div.actions {
                        a.button href=(links.history(&named.rev, path)) { "History" }
                        (downloads(&links, &named.id, path))
                    }
                }
            }
            @if part.entries.is_empty() { p.none { "This folder is empty." } }
            @else { (table(store, &links, (named, path), &part.entries)?) }
        }
        (paging(before, after, ("Earlier names", "Further names")))
    })
}

/// Links to a folder as one file.
pub(super) fn downloads(links: &Links, commit: &CommitId, path: &[u8]) -> Markup {
    html! {
        span.group role="group" aria-label="Download" {
            a.button href=(links.archive(commit, path, "zip")) download="" { "zip" }
            a.button href=(links.archive(commit, path, "tar")) download="" { "tar" }
            a.button href=(links.archive(commit, path, "tar.zst")) download="" { "tar.zst" }
        }
    }
}

fn read(
    store: &Store,
    tree: TreeId,
    skip: usize,
    observer: &dyn Observer,
) -> Result<Part, Problem> {
    let (mut entries, mut met, mut is_whole) = (Vec::new(), 0, true);
    let listed = list::run(store, (tree, b""), Depth::Folder, observer, &mut |_, entry| {
        met += 1;
        if met > skip + ROWS {
            is_whole = false;
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if met > skip {
            entries.push(entry.clone());
        }
        Ok(())
    });
    match listed {
        Err(ListError::Output(_)) => {}
        listed => {
            listed?;
        }
    }
    Ok(Part { entries, is_whole, met })
}

fn table(
    store: &Store,
    links: &Links,
    (named, path): (&Named, &[u8]),
    entries: &[Entry],
) -> Result<Markup, Problem> {
    let mut sized = 0;
    let mut rows = Vec::with_capacity(entries.len());
    for entry in entries {
        let bytes = match &entry.kind {
            Kind::File { size, .. } => Some(*size),
            Kind::Folder { id } if sized < SIZED => {
                sized += 1;
                Some(store.tree(id)?.totals().bytes)
            }
            _ => None,
        };
        rows.push(row(links, (named, path), entry, bytes));
    }
    Ok(html! {
        table.entries data-list="" {
            caption.unseen { "Entries" }
            thead {
                tr {
                    th scope="col" { "Name" }
                    th.wide scope="col" { "Mode" }
                    th.number scope="col" { "Size" }
                    th.number scope="col" { "Changed" }
                }
            }
            tbody {
                @if !path.is_empty() { (up(links, named, path)) }
                @for row in &rows { (row) }
            }
        }
    })
}

fn up(links: &Links, named: &Named, path: &[u8]) -> Markup {
    let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
    html! {
        tr.up {
            td colspan="4" {
                a href=(links.entry(&named.rev, &path[..end])) aria-label="The folder above" { ".." }
            }
        }
    }
}

fn row(links: &Links, (named, path): (&Named, &[u8]), entry: &Entry, bytes: Option<u64>) -> Markup {
    let name = entry.name.as_bytes();
    let at = if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() };
    html! {
        tr {
            td.name {
                (icon::of(&entry.kind))
                a data-go="" href=(links.entry(&named.rev, &at)) { (show::name(name)) }
                @match &entry.kind {
                    Kind::Folder { .. } => span.quiet aria-hidden="true" { "/" },
                    Kind::Symlink { target } => span.quiet { " → " (show::name(target)) },
                    Kind::File { .. } => {},
                    kind => span.quiet { " " (kind.noun()) },
                }
            }
            td.wide { code.quiet { (entry.mode_shown()) } }
            td.number { @if let Some(bytes) = bytes { (Size(bytes)) } }
            td.number.quiet { @if let Some(time) = entry.metadata.mtime { (moment::ago(time)) } }
        }
    }
}
