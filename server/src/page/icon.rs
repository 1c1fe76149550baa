//! SVG icons in the colour of the surrounding text. They are decoration: screen readers
//! skip them.

use maud::{Markup, html};
use snap_core::format::tree::EntryKind;

const FILE: &str =
    "M4.2 1.8h4.6l3.4 3.4v8c0 .6-.4 1-1 1h-7c-.6 0-1-.4-1-1v-10.4c0-.6.4-1 1-1zM8.7 1.9v3.5h3.4";

fn drawn(class: &str, path: &str) -> Markup {
    html! {
        svg class={ "icon " (class) } viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" {
            path d=(path) {}
        }
    }
}

/// Returns the icon for the kind of an entry.
pub(super) fn of(kind: &EntryKind) -> Markup {
    match kind {
        EntryKind::Folder { .. } => drawn(
            "folder",
            "M1.8 4.2c0-.8.6-1.4 1.4-1.4h2.9l1.6 1.7h5.1c.8 0 1.4.6 1.4 1.4v5.9c0 .8-.6 1.4-1.4 1.4H3.2c-.8 0-1.4-.6-1.4-1.4z",
        ),
        EntryKind::File { .. } => file(),
        EntryKind::Symlink { .. } => drawn(
            "file",
            "M6.8 9.2 9.2 6.8M7.3 4.6 8.9 3a2.9 2.9 0 0 1 4.1 4.1l-1.6 1.6M8.7 11.4 7.1 13A2.9 2.9 0 0 1 3 8.9l1.6-1.6",
        ),
        _ => drawn("file", "M3 3h10v10H3zM3 8h10"),
    }
}

pub(super) fn file() -> Markup {
    drawn("file", FILE)
}

pub(super) fn search() -> Markup {
    drawn("glass", "M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9zM10.4 10.4 14 14")
}

pub(super) fn store() -> Markup {
    drawn("store", "M8 1.8 14.2 5 8 8.2 1.8 5zM1.8 8 8 11.2 14.2 8M1.8 11 8 14.2 14.2 11")
}

pub(super) fn branch() -> Markup {
    drawn(
        "branch",
        "M4.5 5.5v5M4.5 5.5a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4zM4.5 13.9a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4zM11.5 6.2a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4zM11.5 6.2c0 2.6-2.6 3.3-7 3.3",
    )
}

pub(super) fn tag() -> Markup {
    drawn("tag", "M2.2 2.2h5.3l6.3 6.3-5.3 5.3-6.3-6.3zM5.2 5.2h.01")
}
