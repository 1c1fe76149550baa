//! The line-by-line differences of two contents.

use maud::{Markup, PreEscaped, html};
use snap_core::base::number::ByteCount;
use snap_core::ops::diff::{
    SideContent,
    lines::{Hunk, LineDiff, Sign, TextDiff},
};

use super::show;

/// Number of unchanged lines around each change.
const CONTEXT: usize = 3;

/// Maximum length of a line that is shown whole, in bytes.
const LINE_BYTES: usize = 4000;

/// The lines and bytes that still fit on a page.
#[derive(Debug)]
pub(super) struct DiffBudget {
    lines: usize,
    /// Bytes of HTML.
    bytes: usize,
}

impl Default for DiffBudget {
    fn default() -> Self {
        Self { lines: 10_000, bytes: 4 << 20 }
    }
}

impl DiffBudget {
    /// Returns true if nothing more fits.
    pub(super) fn is_full(&self) -> bool {
        self.lines == 0 || self.bytes == 0
    }

    fn take(&mut self, lines: usize, html: &Markup) {
        self.lines = self.lines.saturating_sub(lines);
        self.bytes = self.bytes.saturating_sub(html.0.len());
    }
}

/// Rendered differences, which may be truncated.
#[derive(Debug)]
pub(super) struct RenderedDiff {
    pub(super) html: Markup,
    pub(super) is_whole: bool,
}

impl From<Markup> for RenderedDiff {
    fn from(html: Markup) -> Self {
        Self { html, is_whole: true }
    }
}

/// Renders the differences of two contents until `room` is full. The element with the id `heading`
/// labels them.
pub(super) fn view(
    old: &SideContent,
    new: &SideContent,
    heading: &str,
    room: &mut DiffBudget,
) -> RenderedDiff {
    let markup = match LineDiff::compare(old, new) {
        LineDiff::TooLarge => html! { p.none { "Too large to be compared line by line." } },
        LineDiff::Binary => html! {
            p.none { "Binary file: " (ByteCount(bytes(old))) " before, " (ByteCount(bytes(new))) " now." }
        },
        LineDiff::Text(text) => {
            let hunks = text.hunks(CONTEXT);
            if !hunks.is_empty() {
                return table(&text, &hunks, heading, room);
            }
            html! { p.none { "An empty file." } }
        }
    };
    markup.into()
}

fn bytes(content: &SideContent) -> u64 {
    match content {
        SideContent::Bytes(bytes) => bytes.len() as u64,
        _ => 0,
    }
}

fn table(
    text: &TextDiff<'_>,
    hunks: &[Hunk],
    heading: &str,
    room: &mut DiffBudget,
) -> RenderedDiff {
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
        div.scroll tabindex="0" role="region" aria-labelledby=(heading) {
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
    RenderedDiff { html, is_whole }
}

fn place(hunk: &Hunk) -> String {
    let of = |range: &std::ops::Range<usize>| match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        lines => format!("{},{lines}", range.start + 1),
    };
    format!("@@ −{} +{} @@", of(&hunk.old), of(&hunk.new))
}

fn rows(text: &TextDiff<'_>, hunk: &Hunk, room: &mut DiffBudget) -> RenderedDiff {
    let (mut old, mut new) = (hunk.old.start, hunk.new.start);
    let mut html = String::new();
    for (sign, line) in text.lines(hunk) {
        if room.is_full() {
            return RenderedDiff { html: PreEscaped(html), is_whole: false };
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
        @if !ended { span.esc title="No newline at end of file" { "no newline at end" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_size_is_bounded_for_any_content() {
        let mut room = DiffBudget::default();
        let length = |text: String, room: &mut DiffBudget| {
            let RenderedDiff { html, is_whole } =
                view(&SideContent::None, &SideContent::Bytes(text.into()), "name", room);
            assert!(!is_whole);
            html.0.len()
        };
        // A line in which every other character needs escaping.
        let odd = "\u{1}a".repeat(LINE_BYTES / 2) + "\n";
        let sum = length(odd.repeat(260), &mut room) + length(odd.repeat(260), &mut room);
        assert!(room.is_full() && sum < 5 << 20, "{sum}");
        let mut room = DiffBudget::default();
        let html = length("\n".repeat(1 << 20), &mut room);
        assert!(room.is_full() && html < 2 << 20, "{html}");
    }

    #[test]
    fn a_diff_above_the_limit_is_truncated() {
        let text =
            |lines: usize| (0..lines).map(|line| format!("line {line}\n")).collect::<String>();
        let new = SideContent::Bytes(text(12_000).into());
        let RenderedDiff { html, is_whole } =
            view(&SideContent::None, &new, "name", &mut DiffBudget::default());
        assert!(!is_whole && html.0.contains("line 9998") && !html.0.contains("line 9999"));
        let new = SideContent::Bytes(text(9_000).into());
        assert!(view(&SideContent::None, &new, "name", &mut DiffBudget::default()).is_whole);
    }
}
