//! Text with line numbers and syntax highlighting.
//!
//! Colours are CSS classes, because the content security policy forbids inline styles:
//! `hc` comment, `hs` string, `hn` number or constant, `hk` keyword, `ht` type, `hf`
//! function, `hg` tag, `ha` attribute, `hp` operator.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use maud::{Markup, PreEscaped, html};
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

use super::show::push_text;
use crate::clock::Clock;

/// Time limit for highlighting. After it, the rest of the text stays plain.
const PATIENCE: Duration = Duration::from_millis(300);

/// Maximum length of a line that is highlighted, in bytes. Longer lines are machine-generated.
const LINE_BYTES: usize = 2000;

/// Maximum number of lines that are shown.
const LINES: usize = 20_000;

/// Approximate limit for the HTML of all lines, in bytes.
pub(super) const HTML_BYTES: usize = 6 << 20;

static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(SyntaxSet::load_defaults_newlines);

/// Prefixes of scopes and their CSS classes. The first match wins.
static CLASSES: LazyLock<Vec<(Scope, &'static str)>> = LazyLock::new(|| {
    let all = [
        ("comment", "hc"),
        ("string", "hs"),
        ("constant.character.escape", "hn"),
        ("constant", "hn"),
        ("entity.name.function", "hf"),
        ("support.function", "hf"),
        ("variable.function", "hf"),
        ("entity.name.tag", "hg"),
        ("entity.other.attribute-name", "ha"),
        ("entity.name", "ht"),
        ("support.type", "ht"),
        ("support.class", "ht"),
        ("storage.type", "hk"),
        ("storage", "hk"),
        ("keyword.operator", "hp"),
        ("keyword", "hk"),
        ("markup.heading", "hk"),
        ("markup.raw", "hs"),
        ("variable.language", "hn"),
        ("punctuation.definition.comment", "hc"),
        ("punctuation.definition.string", "hs"),
    ];
    all.into_iter().filter_map(|(scope, class)| Some((Scope::new(scope).ok()?, class))).collect()
});

/// A rendered text, which may be truncated.
pub(super) struct Sheet {
    pub(super) html: Markup,
    pub(super) is_whole: bool,
}

/// Renders a text with highlighting. Guesses the language from the file name or the
/// first line.
pub(super) fn view(text: &str, name: &[u8], clock: &Clock) -> Sheet {
    let Some(syntax) = syntax(text, name) else { return plain(text.as_bytes()) };
    let mut colours = Colours {
        state: ParseState::new(syntax),
        stack: ScopeStack::new(),
        ends: clock.after(PATIENCE),
        clock,
        given_up: false,
    };
    sheet(text.split_inclusive('\n'), |html, line| colours.push_line(html, line))
}

/// Renders a text without highlighting.
pub(super) fn plain(text: &[u8]) -> Sheet {
    sheet(text.split_inclusive(|b| *b == b'\n'), push_line)
}

fn sheet<L>(lines: impl Iterator<Item = L>, mut push: impl FnMut(&mut String, L) -> bool) -> Sheet {
    let (mut code, mut count, mut is_whole) = (String::new(), 0usize, true);
    for line in lines {
        if count == LINES || code.len() >= HTML_BYTES {
            is_whole = false;
            break;
        }
        count += 1;
        code.push_str("<span class=\"l\" id=\"L");
        code.push_str(&count.to_string());
        code.push_str("\">");
        is_whole &= push(&mut code, line);
        code.push_str("\n</span>");
    }
    let mut numbers = String::new();
    for number in 1..=count {
        numbers.push_str(&format!("<a href=\"#L{number}\" tabindex=\"-1\">{number}</a>\n"));
    }
    let html = html! {
        div.scroll.code tabindex="0" role="region" aria-label="Content" {
            pre.numbers aria-hidden="true" { (PreEscaped(numbers)) }
            pre.text { code { (PreEscaped(code)) } }
        }
    };
    Sheet { html, is_whole }
}

/// Appends a line without its line ending. Returns true if the whole line fitted.
fn push_line(html: &mut String, line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    push_text(html, line.strip_suffix(b"\r").unwrap_or(line), HTML_BYTES)
}

fn syntax(text: &str, name: &[u8]) -> Option<&'static SyntaxReference> {
    let name = String::from_utf8_lossy(name);
    let end = name.rsplit('.').next().unwrap_or_default();
    // Syntect lacks some languages. These syntaxes are close enough.
    let end = match end {
        "ts" | "tsx" | "jsx" | "mjs" | "cjs" => "js",
        "toml" | "cfg" | "conf" | "ini" | "lock" => "properties",
        "kt" | "kts" | "swift" => "scala",
        "zsh" | "fish" => "sh",
        end => end,
    };
    let set = &*SYNTAXES;
    let found = set.find_syntax_by_extension(&name).or_else(|| set.find_syntax_by_extension(end));
    let found = found.or_else(|| set.find_syntax_by_first_line(text.lines().next()?));
    found.filter(|syntax| syntax.name != "Plain Text")
}

struct Colours<'c> {
    state: ParseState,
    stack: ScopeStack,
    ends: Instant,
    clock: &'c Clock,
    given_up: bool,
}

impl Colours<'_> {
    /// Appends a line. Returns true if the whole line fitted.
    fn push_line(&mut self, html: &mut String, line: &str) -> bool {
        self.given_up |= line.len() > LINE_BYTES || self.clock.now() > self.ends;
        let parsed = match self.given_up {
            true => None,
            false => self.state.parse_line(line, &SYNTAXES).ok(),
        };
        let Some(steps) = parsed else {
            // Without the state after this line, later lines cannot be parsed either.
            self.given_up = true;
            return push_line(html, line.as_bytes());
        };
        let mut from = 0;
        for (at, step) in steps {
            self.push(html, &line[from..at]);
            from = at;
            if self.stack.apply(&step).is_err() {
                self.given_up = true;
                break;
            }
        }
        self.push(html, &line[from..]);
        true
    }

    /// Appends a part of a line of at most [`LINE_BYTES`].
    fn push(&self, html: &mut String, piece: &str) {
        let piece = piece.trim_end_matches(['\n', '\r']);
        match self.class().filter(|_| !piece.trim().is_empty()) {
            None => {
                push_text(html, piece.as_bytes(), usize::MAX);
            }
            Some(class) => {
                html.push_str("<span class=\"");
                html.push_str(class);
                html.push_str("\">");
                push_text(html, piece.as_bytes(), usize::MAX);
                html.push_str("</span>");
            }
        }
    }

    fn class(&self) -> Option<&'static str> {
        let of = |scope: &Scope| {
            CLASSES.iter().find(|(start, _)| start.is_prefix_of(*scope)).map(|(_, class)| *class)
        };
        self.stack.as_slice().iter().rev().find_map(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renders a text without a time limit.
    fn view(text: &str, name: &[u8]) -> Sheet {
        super::view(text, name, &Clock::manual())
    }

    #[test]
    fn highlighting_stops_at_its_deadline() {
        let clock = Clock::manual();
        let syntax = syntax("", b"main.rs").unwrap();
        let (state, stack) = (ParseState::new(syntax), ScopeStack::new());
        let ends = clock.after(PATIENCE);
        let mut colours = Colours { state, stack, ends, clock: &clock, given_up: false };
        let mut line = |html: &mut String| colours.push_line(html, "fn main() {}\n");
        let (mut in_time, mut late) = (String::new(), String::new());
        assert!(line(&mut in_time) && in_time.contains("class=\"hk\""), "{in_time}");
        clock.advance(2 * PATIENCE);
        assert!(line(&mut late) && late == "fn main() {}", "{late}");
    }

    #[test]
    fn highlighted_code_is_escaped_and_unchanged() {
        let html = view("/* a\n<script> */\nfn main() { \"x\" }\n", b"main.rs").html.into_string();
        assert!(html.contains("<span class=\"hc\">&lt;script&gt; </span>"), "{html}");
        assert!(html.contains("<span class=\"hk\">fn</span>"), "{html}");
        assert!(html.contains("id=\"L3\"") && !html.contains("id=\"L4\""), "{html}");
        assert!(!html.contains("<script>") && !html.contains("style="), "{html}");
    }

    #[test]
    fn very_long_lines_and_binary_text_are_not_highlighted() {
        let long = format!("var a = \"{}\";\n", "x".repeat(5000));
        assert!(!view(&long, b"a.js").html.into_string().contains("class=\"hs\""));
        let odd = plain(b"a\xff\xe2\x80\xae\n\n").html.into_string();
        assert!(odd.contains("\\xff") && odd.contains("\\u{202e}"), "{odd}");
    }

    #[test]
    fn the_page_size_is_bounded_for_any_content() {
        for text in ["\n".repeat(2 << 20), "\u{1}a".repeat(1 << 20), "\u{1}a\"\n".repeat(1 << 19)] {
            for name in [b"a.txt", b"main.c".as_slice()] {
                let Sheet { html, is_whole } = view(&text, name);
                let length = html.into_string().len();
                assert!(!is_whole && length < HTML_BYTES + (2 << 20), "{length}");
            }
        }
        assert!(plain(b"a\nb").is_whole);
    }
}
