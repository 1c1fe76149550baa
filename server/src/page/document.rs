//! Markdown files of a commit: a rendered file, and the README below a folder.

use std::cell::Cell;

use maud::{Markup, html};
use snap_core::{
    base::observe::Observer,
    format::tree::{Entry, EntryKind},
    repo::path::{ResolvedPath, resolve_path},
    store::Store,
};

use super::{
    file::{picture_type, short_text, start_of, text_or_bytes},
    icon,
    markdown::{self, DocumentContext},
    page_request::{NamedCommit, PageRequest},
    show,
};

/// Maximum number of images in a document that are looked up.
const DOCUMENT_PICTURES: usize = 100;

/// Names of READMEs in lower case, by priority. The page of a folder shows the first one that
/// exists.
const READMES: [&[u8]; 4] = [b"readme.md", b"readme.markdown", b"readme", b"readme.txt"];

/// Renders the README among these entries of a folder, if there is one. If the README cannot be
/// read, the page says so and still shows the folder.
pub(super) fn readme(
    ask: &PageRequest,
    store: &Store,
    named: &NamedCommit,
    folder: &[u8],
    entries: &[Entry],
    observer: &dyn Observer,
) -> Markup {
    let find = |name: &&[u8]| {
        entries.iter().find_map(|entry| match &entry.kind {
            EntryKind::File { id, size } if entry.name.as_bytes().eq_ignore_ascii_case(name) => {
                Some((entry.name.as_bytes(), id, *size))
            }
            _ => None,
        })
    };
    let Some((name, id, size)) = READMES.iter().find_map(find) else { return html! {} };
    let path = if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() };
    let content = match start_of(store, id, size, observer) {
        Err(problem) => html! { p.none { "This file cannot be read: " (problem.detail) } },
        Ok(start) if name.to_ascii_lowercase().ends_with(b".txt") => {
            text_or_bytes(&start, size, name, ask.pages.server().clock())
        }
        Ok(start) => view(ask, store, named, &path, &start, size),
    };
    html! {
        section.sheet {
            div.toolbar {
                h2 { (icon::file()) " " a href=(ask.links().entry(&named.rev, &path)) { (show::name(name)) } }
            }
            (content)
        }
    }
}

/// Renders a Markdown document, or shows its source if that is not possible.
pub(super) fn view(
    ask: &PageRequest,
    store: &Store,
    named: &NamedCommit,
    path: &[u8],
    start: &[u8],
    size: u64,
) -> Markup {
    let (links, looked_up) = (ask.links(), Cell::new(0));
    let image = |path: &[u8]| {
        looked_up.set(looked_up.get() + 1);
        if looked_up.get() > DOCUMENT_PICTURES {
            return None;
        }
        match resolve_path(store, named.commit.tree, path).ok()? {
            ResolvedPath::Entry(Entry { kind: EntryKind::File { size, .. }, name, .. }) => {
                picture_type(name.as_bytes(), size).map(|_| links.raw(&named.id, path))
            }
            _ => None,
        }
    };
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let context = DocumentContext {
        folder: &path[..end],
        page: &|path| links.entry(&named.rev, path),
        image: &image,
    };
    let text = short_text(start, size).filter(|text| !text.trim().is_empty());
    if let Some(document) = text.and_then(|text| markdown::view(text, &context)) {
        return document;
    }
    html! {
        @if text.is_some() { p.none { "This document is too complex to be rendered." } }
        (text_or_bytes(start, size, path, ask.pages.server().clock()))
    }
}
