//! The view of a folder: its entries, in pages.

use std::io;

use maud::{Markup, html};
use snap_core::base::number::ByteCount;
use snap_core::{
    base::{
        id::{CommitId, TreeId},
        observe::Observer,
    },
    format::tree::{Entry, EntryKind},
    ops::list::{self, ListDepth, ListError},
    store::Store,
};
use snap_remote::wire::routes::Route;

use super::{
    deadline::no_page,
    document, icon,
    layout::paging,
    link::Links,
    moment,
    page_request::{NamedCommit, PageRequest},
    show,
};
use crate::problem::HttpProblem;

/// Number of entries on a page.
const ROWS: usize = 1000;

/// Maximum number of folders on a page whose size is looked up.
const SIZED: usize = 250;

/// The entries on a page.
struct FolderPage {
    entries: Vec<Entry>,
    is_whole: bool,
    /// Number of entries of the folder that were listed, up to one beyond this page.
    seen: usize,
}

/// Renders the folder `tree` at a path of a commit.
pub(super) fn view(
    ask: &PageRequest,
    store: &Store,
    named: &NamedCommit,
    path: &[u8],
    tree: TreeId,
    observer: &dyn Observer,
) -> Result<Markup, HttpProblem> {
    let page = ask.page();
    let mut part = read(store, tree, (page - 1) * ROWS, observer)?;
    if page > 1 && part.entries.is_empty() {
        return Err(no_page(page, part.seen.div_ceil(ROWS).max(1)));
    }
    if page == 1 && part.is_whole {
        // A folder that fits on one page is easier to read with its subfolders first.
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
            @else { (table(store, &links, named, path, &part.entries)?) }
        }
        (paging(before, after, "Earlier names", "Further names"))
        (document::readme(ask, store, named, path, &part.entries, observer))
    })
}

/// Renders download links for a folder as an archive.
pub(super) fn downloads(links: &Links, commit: &CommitId, path: &[u8]) -> Markup {
    html! {
        span.group role="group" aria-label="Download" {
            a.button href=(links.archive(commit, path, Route::Zip)) download="" { "zip" }
            a.button href=(links.archive(commit, path, Route::Tar)) download="" { "tar" }
            a.button href=(links.archive(commit, path, Route::TarZst)) download="" { "tar.zst" }
        }
    }
}

fn read(
    store: &Store,
    tree: TreeId,
    skip: usize,
    observer: &dyn Observer,
) -> Result<FolderPage, HttpProblem> {
    let (mut entries, mut seen, mut is_whole) = (Vec::new(), 0, true);
    let listed = list::run(store, tree, b"", ListDepth::Folder, observer, &mut |_, entry| {
        seen += 1;
        if seen > skip + ROWS {
            is_whole = false;
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if seen > skip {
            entries.push(entry.clone());
        }
        Ok(())
    });
    // The callback returns `ListError::Output` to stop after the last row of the page.
    match listed {
        Err(ListError::Output(_)) => {}
        listed => {
            listed?;
        }
    }
    Ok(FolderPage { entries, is_whole, seen })
}

fn table(
    store: &Store,
    links: &Links,
    named: &NamedCommit,
    path: &[u8],
    entries: &[Entry],
) -> Result<Markup, HttpProblem> {
    let mut sized = 0;
    let mut rows = Vec::with_capacity(entries.len());
    for entry in entries {
        let bytes = match &entry.kind {
            EntryKind::File { size, .. } => Some(*size),
            EntryKind::Folder { id } if sized < SIZED => {
                sized += 1;
                Some(store.tree(id)?.totals().bytes)
            }
            _ => None,
        };
        rows.push(row(links, named, path, entry, bytes));
    }
    Ok(html! {
        table.entries data-list="" {
            caption.unseen { "Entries" }
            thead {
                tr {
                    th scope="col" { "Name" }
                    th.wide scope="col" { "Mode" }
                    th.number scope="col" { "Size" }
                    th.number.quiet scope="col" { "Modified" }
                }
            }
            tbody {
                @if !path.is_empty() { (up(links, named, path)) }
                @for row in &rows { (row) }
            }
        }
    })
}

fn up(links: &Links, named: &NamedCommit, path: &[u8]) -> Markup {
    let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
    html! {
        tr.up {
            td colspan="4" {
                a href=(links.entry(&named.rev, &path[..end])) aria-label="The folder above" { ".." }
            }
        }
    }
}

fn row(
    links: &Links,
    named: &NamedCommit,
    path: &[u8],
    entry: &Entry,
    bytes: Option<u64>,
) -> Markup {
    let name = entry.name.as_bytes();
    let at = if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() };
    html! {
        tr {
            td.name {
                (icon::of(&entry.kind))
                a data-go="" href=(links.entry(&named.rev, &at)) { (show::name(name)) }
                @match &entry.kind {
                    EntryKind::Folder { .. } => span.quiet aria-hidden="true" { "/" },
                    EntryKind::Symlink { target } => span.quiet { " → " (show::name(target)) },
                    EntryKind::File { .. } => {},
                    kind => span.quiet { " " (kind.noun()) },
                }
            }
            td.wide { code.quiet { (entry.mode_shown()) } }
            td.number { @if let Some(bytes) = bytes { (ByteCount(bytes)) } }
            td.number.quiet { @if let Some(time) = entry.metadata.mtime { (moment::ago(time)) } }
        }
    }
}
