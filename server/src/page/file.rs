//! The view of a file: its metadata and its content.

use maud::{Markup, html};
use snap_core::base::number::{ByteCount, grouped};
use snap_core::{
    base::{blocked::Blocked, id::ContentId, observe::Observer},
    format::tree::{Entry, EntryKind},
    ops::{cat::CatError, diff::lines::is_binary},
    store::{ContentReader, Store},
};

use super::{
    destination::is_markdown,
    document, hex, highlight, moment,
    page_request::{NamedCommit, PageRequest},
    show,
};
use crate::{clock::Clock, problem::HttpProblem};

/// Maximum length of the part of a text that is shown, in bytes.
const SHOWN_BYTES: u64 = 2 << 20;

/// Maximum length of a text that is highlighted or rendered, in bytes.
const HIGHLIGHTED_BYTES: usize = 512 << 10;

/// Maximum size of an image that is shown, in bytes.
const PICTURE_BYTES: u64 = 32 << 20;

/// Image types that browsers can show.
const PICTURES: [&str; 8] = [
    "image/avif",
    "image/bmp",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/svg+xml",
    "image/webp",
    "image/x-icon",
];

/// Renders an entry that is not a folder.
pub(super) fn view(
    ask: &PageRequest,
    store: &Store,
    named: &NamedCommit,
    path: &[u8],
    entry: &Entry,
    observer: &dyn Observer,
) -> Result<Markup, HttpProblem> {
    let links = ask.links();
    let raw = links.raw(&named.id, path);
    let name = entry.name.as_bytes();
    let is_document = matches!(entry.kind, EntryKind::File { .. }) && is_markdown(name);
    let is_rendered = is_document && ask.param("view").as_deref() != Some("source");
    let look = match &entry.kind {
        EntryKind::File { size, id } if is_rendered => {
            let start = start_of(store, id, *size, observer)?;
            document::view(ask, store, named, path, &start, *size)
        }
        EntryKind::File { size, id } => look(ask, store, observer, id, *size, name, &raw)?,
        EntryKind::Symlink { target } => html! {
            p.none { "A symbolic link to " code { (show::name(target)) } }
        },
        kind => html! { p.none { "A " (kind.noun()) " has no content to show." } },
    };
    Ok(html! {
        section.sheet {
            div.toolbar {
                h2 { (what(&entry.kind)) }
                div.actions {
                    @if is_document {
                        @let page = links.entry(&named.rev, path);
                        span.group role="group" aria-label="View" {
                            a.button aria-current=[is_rendered.then_some("true")] href=(page) { "Rendered" }
                            a.button aria-current=[(!is_rendered).then_some("true")] href={ (page) "?view=source" } { "Source" }
                        }
                    }
                    a.button href=(links.history(&named.rev, path)) { "History" }
                    @if matches!(entry.kind, EntryKind::File { .. }) {
                        a.button href=(raw) { "Raw" }
                        a.button.main href=(raw) download=(show::plain(name)) { "Download" }
                    }
                }
            }
            (look)
        }
        (about(entry))
    })
}

fn what(kind: &EntryKind) -> String {
    match kind {
        EntryKind::File { size, .. } => ByteCount(*size).to_string(),
        kind => kind.noun().to_owned(),
    }
}

/// Renders the metadata of a file.
fn about(entry: &Entry) -> Markup {
    let metadata = &entry.metadata;
    html! {
        dl.facts.about {
            @if let EntryKind::File { size, id } = &entry.kind {
                div { dt { "Content" } dd { code.id data-copy="" { (id) } } }
                div { dt { "Length" } dd { (grouped(*size)) " bytes" } }
            }
            div { dt { "Mode" } dd { code { (entry.mode_shown()) } } }
            @if let Some(owner) = metadata.owner.as_deref() {
                div { dt { "Owner" } dd { (named_or(&owner.user, owner.uid)) ":" (named_or(&owner.group, owner.gid)) } }
            }
            @if let Some(time) = metadata.mtime {
                div { dt { "Modified" } dd { (moment::ago(time)) " " span.quiet { (moment::exactly(time)) } } }
            }
            @for xattr in &metadata.xattrs {
                div { dt { (show::name(&xattr.name)) } dd { (ByteCount(xattr.value.len() as u64)) } }
            }
        }
    }
}

fn named_or(name: &[u8], number: u32) -> Markup {
    html! { @if name.is_empty() { (number) } @else { (show::name(name)) } }
}

fn look(
    ask: &PageRequest,
    store: &Store,
    observer: &dyn Observer,
    id: &ContentId,
    size: u64,
    name: &[u8],
    raw: &str,
) -> Result<Markup, HttpProblem> {
    let picture = picture_type(name, size);
    let shown = match picture {
        Some(_) => html! { figure.picture { img src=(raw) alt=(show::plain(name)); } },
        None => html! {},
    };
    if picture.is_some_and(|kind| kind != "image/svg+xml") {
        return Ok(shown);
    }
    let start = start_of(store, id, size, observer)?;
    Ok(html! { (shown) (text_or_bytes(&start, size, name, ask.pages.server().clock())) })
}

/// Returns the MIME type of an image that pages show; `None` for other files.
pub(super) fn picture_type(name: &[u8], size: u64) -> Option<&'static str> {
    let guessed = mime_guess::from_path(String::from_utf8_lossy(name).as_ref()).first_raw();
    guessed.filter(|kind| PICTURES.contains(kind) && size <= PICTURE_BYTES)
}

/// Returns the whole text if it is short enough to be highlighted or rendered.
pub(super) fn short_text(start: &[u8], size: u64) -> Option<&str> {
    let is_short = start.len() as u64 == size && start.len() <= HIGHLIGHTED_BYTES;
    std::str::from_utf8(start).ok().filter(|_| is_short && !is_binary(start))
}

/// Renders the start of a content of `size` bytes: as text, or in hexadecimal.
pub(super) fn text_or_bytes(start: &[u8], size: u64, name: &[u8], clock: &Clock) -> Markup {
    if size == 0 {
        return html! { p.none { "This file is empty." } };
    }
    if is_binary(start) {
        return hex::view(start, size);
    }
    let is_whole = start.len() as u64 == size;
    let sheet = match short_text(start, size) {
        Some(text) => highlight::view(text, name, clock),
        None => highlight::plain(start),
    };
    html! {
        (sheet.html)
        @if !is_whole || !sheet.is_whole { p.none { "The rest is not shown. The file has " (ByteCount(size)) "." } }
    }
}

/// Reads the first [`SHOWN_BYTES`] of a content.
pub(super) fn start_of(
    store: &Store,
    id: &ContentId,
    size: u64,
    observer: &dyn Observer,
) -> Result<Vec<u8>, HttpProblem> {
    if observer.cancelled() {
        return Err(CatError::Blocked(Blocked::Interrupted).into());
    }
    Ok(ContentReader::new(store).read_start(id, Some(size), SHOWN_BYTES)?)
}
