//! How two contents differ, line by line.

use maud::{Markup, PreEscaped, html};
use snap_core::base::number::Size;
use snap_core::ops::diff::{
    Content,
    lines::{Hunk, Lines, Sign, Text},
};

use super::show;

/// Lines around each change.
const CONTEXT: usize = 3;

/// Longer lines are cut.
const LINE_BYTES: usize = 4000;

/// How much a page still takes.
#[derive(Debug)]
pub(super) struct Room {
    lines: usize,
    /// Of HTML.
    bytes: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { lines: 10_000, bytes: 4 << 20 }
    }
}

impl Room {
    /// Whether nothing more is taken.
    pub(super) fn is_full(&self) -> bool {
        self.lines == 0 || self.bytes == 0
    }

    fn take(&mut self, lines: usize, html: &Markup) {
        self.lines = self.lines.saturating_sub(lines);
        self.bytes = self.bytes.saturating_sub(html.0.len());
    }
}

/// What differs, as far as there is room.
#[derive(Debug)]
pub(super) struct View {
    pub(super) html: Markup,
    pub(super) is_whole: bool,
}

impl From<Markup> for View {
    fn from(html: Markup) -> Self {
        Self { html, is_whole: true }
    }
}

/// What differs, as far as there is room.
pub(super) fn view(old: &Content, new: &Content, room: &mut Room) -> View {
    let markup = match Lines::compare(old, new) {
        Lines::TooLarge => html! { p.none { "Too large to be compared line by line." } },
        Lines::Binary => html! {
            p.none { "No text: " (Size(bytes(old))) " before, " (Size(bytes(new))) " now." }
        },
        Lines::Text(text) => {
            let hunks = text.hunks(CONTEXT);
            if !hunks.is_empty() {
                return table(&text, &hunks, room);
            }
            html! { p.none { "An empty file." } }
        }
    };
    markup.into()
}

fn bytes(content: &Content) -> u64 {
    match content {
        Content::Bytes(bytes) => bytes.len() as u64,
        _ => 0,
    }
}

fn table(text: &Text<'_>, hunks: &[Hunk], room: &mut Room) -> View {
    let (mut shown, mut is_whole) = (Vec::new(), true);
    for hunk in hunks {
        if room.is_full() {
            is_whole = false;
            break;
        }
        let gap = html! { tr.gap { td colspan="4" { (place(hunk)) } } };
        room.take(1, &gap);
        let rows = rows(text, hunk, room);
        is_whole &= rows.is_whole;
        shown.push(html! { (gap) (rows.html) });
    }
    let html = html! {
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
                @for hunk in &shown { tbody { (hunk) } }
            }
        }
    };
    View { html, is_whole }
}

fn place(hunk: &Hunk) -> String {
    let of = |range: &std::ops::Range<usize>| match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        lines => format!("{},{lines}", range.start + 1),
    };
    format!("@@ −{} +{} @@", of(&hunk.old), of(&hunk.new))
}

fn rows(text: &Text<'_>, hunk: &Hunk, room: &mut Room) -> View {
    let (mut old, mut new) = (hunk.old.start, hunk.new.start);
    let mut html = String::new();
    for (sign, line) in text.lines(hunk) {
        if room.is_full() {
            return View { html: PreEscaped(html), is_whole: false };
        }
        let (class, mark) = match sign {
            Sign::Both => ("", " "),
            Sign::Old => ("old", "−"),
            Sign::New => ("new", "+"),
        };
        let row = html! {
            tr class=(class) {
                td.at { @if sign != Sign::New { (next(&mut old)) } }
                td.at { @if sign != Sign::Old { (next(&mut new)) } }
                td.sign { (mark) }
                td { (shown(line)) }
            }
        };
        room.take(1, &row);
        html.push_str(&row.0);
    }
    PreEscaped(html).into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_bounded_whatever_it_is_made_of() {
        let mut room = Room::default();
        let length = |text: String, room: &mut Room| {
            let View { html, is_whole } = view(&Content::None, &Content::Bytes(text.into()), room);
            assert!(!is_whole);
            html.0.len()
        };
        // A line that is nothing else than what has to be escaped.
        let odd = "\u{1}a".repeat(LINE_BYTES / 2) + "\n";
        let sum = length(odd.repeat(260), &mut room) + length(odd.repeat(260), &mut room);
        assert!(room.is_full() && sum < 5 << 20, "{sum}");
        let mut room = Room::default();
        let html = length("\n".repeat(1 << 20), &mut room);
        assert!(room.is_full() && html < 2 << 20, "{html}");
    }

    #[test]
    fn of_what_is_too_long_the_beginning_is_shown() {
        let text =
            |lines: usize| (0..lines).map(|line| format!("line {line}\n")).collect::<String>();
        let new = Content::Bytes(text(12_000).into());
        let View { html, is_whole } = view(&Content::None, &new, &mut Room::default());
        assert!(!is_whole && html.0.contains("line 9998") && !html.0.contains("line 9999"));
        let new = Content::Bytes(text(9_000).into());
        assert!(view(&Content::None, &new, &mut Room::default()).is_whole);
    }
}
