//! How two contents differ, line by line.

use maud::{Markup, html};
use snap_core::ops::diff::{
    Content,
    lines::{Hunk, Lines, Sign, Text},
};

use super::{number::Size, show};

/// Lines around each change.
const CONTEXT: usize = 3;

/// Longer lines are cut.
const LINE_BYTES: usize = 4000;

/// How many lines a page still takes.
#[derive(Debug)]
pub(super) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(10_000)
    }
}

/// What differs, as far as there is room.
pub(super) fn view(old: &Content, new: &Content, room: &mut Room) -> Markup {
    match Lines::compare(old, new) {
        Lines::TooLarge => html! { p.none { "Too large to be compared line by line." } },
        Lines::Binary => html! {
            p.none { "No text: " (Size(bytes(old))) " before, " (Size(bytes(new))) " now." }
        },
        Lines::Text(text) => {
            let hunks = text.hunks(CONTEXT);
            let lines: usize = hunks.iter().map(|hunk| text.lines(hunk).count()).sum();
            if lines > room.0 {
                return not_shown();
            }
            room.0 -= lines;
            if hunks.is_empty() {
                return html! { p.none { "An empty file." } };
            }
            table(&text, &hunks)
        }
    }
}

/// In place of what there is no room for.
pub(super) fn not_shown() -> Markup {
    html! { p.none { "Too much for this page; look at this path alone, or use snap diff." } }
}

fn bytes(content: &Content) -> u64 {
    match content {
        Content::Bytes(bytes) => bytes.len() as u64,
        _ => 0,
    }
}

fn table(text: &Text<'_>, hunks: &[Hunk]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Lines" {
            table.hunks {
                thead.unseen {
                    tr {
                        th scope="col" { "Line before" }
                        th scope="col" { "Line now" }
                        th scope="col" { "Sign" }
                        th scope="col" { "Text" }
                    }
                }
                @for hunk in hunks {
                    tbody {
                        tr.gap { td colspan="4" { (place(hunk)) } }
                        (rows(text, hunk))
                    }
                }
            }
        }
    }
}

fn place(hunk: &Hunk) -> String {
    let of = |range: &std::ops::Range<usize>| match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        lines => format!("{},{lines}", range.start + 1),
    };
    format!("@@ −{} +{} @@", of(&hunk.old), of(&hunk.new))
}

fn rows(text: &Text<'_>, hunk: &Hunk) -> Markup {
    let (mut old, mut new) = (hunk.old.start, hunk.new.start);
    html! {
        @for (sign, line) in text.lines(hunk) {
            @let (class, mark) = match sign {
                Sign::Both => ("", " "),
                Sign::Old => ("old", "−"),
                Sign::New => ("new", "+"),
            };
            tr class=(class) {
                td.at { @if sign != Sign::New { (next(&mut old)) } }
                td.at { @if sign != Sign::Old { (next(&mut new)) } }
                td.sign { (mark) }
                td { (shown(line)) }
            }
        }
    }
}

fn next(number: &mut usize) -> usize {
    *number += 1;
    *number
}

fn shown(line: &[u8]) -> Markup {
    let (line, ended) = match line.strip_suffix(b"\n") {
        Some(line) => (line, true),
        None => (line, false),
    };
    let cut = &line[..line.len().min(LINE_BYTES)];
    html! {
        (show::text(cut))
        @if cut.len() < line.len() { span.esc { "…" } }
        @if !ended { span.esc title="The last line has no end" { "no end of line" } }
    }
}
