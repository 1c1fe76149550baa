//! `docs/messages.md`: all texts that the program can print, collected from the sources.
//!
//! The page serves reviews: it shows whether messages of one kind have one form, and whether the
//! texts use the words of the glossary. Help texts are in `docs/cli.md`.

use std::{
    collections::BTreeSet,
    fmt::Write,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, ExprMethodCall, ImplItemFn, Item, LitStr, Macro,
    visit::{self, Visit},
};

use crate::docs::assert_page;

const HEADER: &str = "\
# Messages

<!-- Generated from the sources. To change it, change the sources and run
     SNAP_UPDATE_DOCS=1 cargo test -p snap-cli --test cli messages:: -->

All texts that snap and its server can print, except the help texts in [cli.md](cli.md). `{…}` is a value.
";

/// Where a text is shown. Each kind has a section on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Error,
    Hint,
    Warning,
    Status,
    Text,
    Answer,
    Page,
    Log,
}

/// The kinds in the order of the page, with title and description.
const SECTIONS: [(Kind, &str, &str); 8] = [
    (
        Kind::Error,
        "Errors",
        "After `error:` or `caused by:`; the server sends some of them as `detail`.",
    ),
    (Kind::Hint, "Hints", "After `hint:`."),
    (Kind::Warning, "Warnings", "After `warning:`."),
    (Kind::Status, "Status and questions", "On stderr, unless `--quiet` is given."),
    (Kind::Text, "Parts of messages, and output", ""),
    (Kind::Answer, "Answers of the server", "In `title` and `detail` of a problem."),
    (Kind::Page, "Pages of the server", "In the browser."),
    (Kind::Log, "Log of the server", "With fields that name the object."),
];

/// Files whose texts have another kind than their package suggests.
const FILES: [(&str, Kind); 7] = [
    ("cli/src/foreign/", Kind::Hint),
    ("cli/src/report/hint.rs", Kind::Hint),
    ("cli/src/report/remote.rs", Kind::Hint),
    ("cli/src/report/serve.rs", Kind::Hint),
    ("cli/src/report/trust.rs", Kind::Hint),
    ("server/src/page/", Kind::Page),
    ("server/src/", Kind::Answer),
];

/// Files without messages: they have help texts, which `docs/cli.md` shows, or drawings.
const WITHOUT_MESSAGES: [&str; 4] =
    ["cli/src/args.rs", "cli/src/env.rs", "cli/src/reference/", "server/src/page/icon.rs"];

/// Macros whose texts only a programmer sees.
const INTERNAL: [&str; 9] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "cfg",
    "concat",
    "debug_assert",
    "debug_assert_eq",
    "panic",
    "unreachable",
];

/// Collects the texts of one file.
struct Collector {
    kind: Kind,
    found: Vec<(Kind, String)>,
}

impl Collector {
    fn add(&mut self, kind: Kind, text: &str) {
        if is_message(text) {
            self.found.push((kind, shown(text)));
        }
    }

    fn add_literals(&mut self, kind: Kind, tokens: TokenStream) {
        let mut is_attribute = false;
        for token in tokens {
            let is_inside = std::mem::replace(&mut is_attribute, false);
            match token {
                TokenTree::Group(_) if is_inside => {}
                TokenTree::Punct(mark) if mark.as_char() == '#' => is_attribute = true,
                TokenTree::Group(group) => self.add_literals(kind, group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse_str::<LitStr>(&literal.to_string()) {
                        self.add(kind, &text.value());
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }

    fn within(&mut self, kind: Kind, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.kind, kind);
        visit(self);
        self.kind = outer;
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !attributes.iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    /// Collects the messages of errors, and skips all other attributes.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let (true, Ok(list)) =
            (attribute.path().is_ident("error"), attribute.meta.require_list())
        {
            self.add_literals(Kind::Error, list.tokens.clone());
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let kind = match call.method.to_string().as_str() {
            "expect" => return self.visit_expr(&call.receiver),
            "warning" | "warning_once" => Kind::Warning,
            "ask" | "detail" | "report" | "say" | "status" => Kind::Status,
            _ => self.kind,
        };
        self.visit_expr(&call.receiver);
        self.within(kind, |this| call.args.iter().for_each(|arg| this.visit_expr(arg)));
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        let names: Vec<String> =
            called.path.segments.iter().map(|part| part.ident.to_string()).collect();
        match names.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["tracing", ..] => self.add_literals(Kind::Log, called.tokens.clone()),
            [name] if INTERNAL.contains(name) => {}
            _ => self.add_literals(self.kind, called.tokens.clone()),
        }
    }

    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        self.add(self.kind, &text.value());
    }
}

fn is_for_tests(attribute: &Attribute) -> bool {
    let path = attribute.path();
    let is_cfg_test = || {
        let list = attribute.meta.require_list();
        list.is_ok_and(|list| list.tokens.to_string() == "test")
    };
    path.is_ident("test") || (path.is_ident("cfg") && is_cfg_test())
}

/// Returns true for a text of several words. A single word may be a name or a format, `Examples:`
/// begins a help text, and `snap 20` the name of a hash.
fn is_message(text: &str) -> bool {
    let is_word = |word: &&str| {
        let word = word.trim_matches(['.', ',', ':', ';', '(', ')']);
        word.len() > 1 && word.chars().all(|c| c.is_ascii_alphabetic())
    };
    let is_other =
        ["Examples:", "snap 20", "snap server 20", "<"].iter().any(|start| text.starts_with(start));
    text.split_whitespace().filter(is_word).count() > 1 && !is_other
}

/// Returns the text on one line, with each placeholder reduced to its name.
fn shown(text: &str) -> String {
    let mut line = String::new();
    let text = text.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, after) = after.split_once('}').unwrap_or((after, ""));
        let name = inside.split(':').next().unwrap();
        let is_name = !name.is_empty() && !name.chars().all(|c| c.is_ascii_digit());
        let _ = write!(line, "{before}{{{}}}", if is_name { name } else { "…" });
        rest = after;
    }
    line.push_str(rest);
    let line = line.replace('\u{1}', "{").replace('\u{2}', "}");
    line.split('\n').map(str::trim).collect::<Vec<_>>().join(" ⏎ ").trim().to_owned()
}

/// Returns the names and paths of all source files without tests.
fn sources() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let packages = ["cli/src", "core/src", "remote/src", "server/src"];
    let files = packages.iter().flat_map(|package| {
        walkdir::WalkDir::new(root.join(package)).sort_by_file_name().into_iter()
    });
    let named = files.map(|entry| {
        let path = entry.unwrap().into_path();
        (path.strip_prefix(root).unwrap().display().to_string(), path)
    });
    let is_source = |(name, _): &(String, PathBuf)| {
        let is_left_out = WITHOUT_MESSAGES.iter().any(|place| name.starts_with(place));
        name.ends_with(".rs")
            && !name.ends_with("tests.rs")
            && !name.contains("/tests/")
            && !is_left_out
    };
    named.filter(is_source).collect()
}

#[test]
fn the_page_of_all_messages_is_up_to_date() {
    let mut found: Vec<(Kind, String, String)> = Vec::new();
    for (name, path) in sources() {
        let file = syn::parse_file(&fs_err::read_to_string(path).unwrap()).unwrap();
        let kind = FILES.iter().find(|(place, _)| name.starts_with(place));
        let kind = kind.map_or(Kind::Text, |(_, kind)| *kind);
        let mut collector = Collector { kind, found: Vec::new() };
        collector.visit_file(&file);
        found.extend(collector.found.into_iter().map(|(kind, text)| (kind, name.clone(), text)));
    }
    let mut page = HEADER.to_owned();
    for (kind, title, about) in SECTIONS {
        let _ = write!(page, "\n## {title}\n\n{about}\n");
        let (mut file, mut seen) = ("", BTreeSet::new());
        for (_, name, text) in found.iter().filter(|(of, _, _)| *of == kind) {
            if name != file {
                let _ = write!(page, "\n### {name}\n\n");
                (file, seen) = (name, BTreeSet::new());
            }
            if seen.insert(text) {
                let _ = writeln!(page, "- {text}");
            }
        }
    }
    assert_page("messages", &page);
}
