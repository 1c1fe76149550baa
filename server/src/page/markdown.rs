//! Markdown documents as HTML.
//!
//! Documents come from clients that push. Nothing in them becomes markup except what this module
//! writes: [`show`](super::show) escapes all text, and [`Destination`] decides where links lead.
//! HTML in a document is shown as text, except comments, which are left out.

use std::{borrow::Cow, collections::HashMap};

use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Alignment, Event, LinkType, Options, Parser, Tag, TagEnd};

use super::{
    destination::{Destination, anchor},
    highlight::HTML_BYTES,
    show,
};

/// Maximum number of parser events in a document.
const EVENTS: usize = 100_000;

/// Maximum nesting depth of elements, and maximum number of quote and list markers that begin a
/// line.
const DEPTH: usize = 50;

/// Level of the page's heading above a document.
const LEVEL_ABOVE: usize = 2;

/// End tags of headings, from the level below [`LEVEL_ABOVE`].
const HEADING_ENDS: [&str; 4] = ["</h3>", "</h4>", "</h5>", "</h6>"];

const LINK_END: &str = "</a>";

const CODE_START: &str = "<pre tabindex=\"0\"><code>";
const CODE_END: &str = "</code></pre>";

/// Resolves the links and images of a document in its commit.
pub(super) struct DocumentContext<'a> {
    /// Folder of the document, in which relative links begin.
    pub(super) folder: &'a [u8],
    /// Returns the URL of the page of a path.
    pub(super) page: &'a dyn Fn(&[u8]) -> String,
    /// Returns the URL of the image at a path, if a page may show it.
    pub(super) image: &'a dyn Fn(&[u8]) -> Option<String>,
}

/// Renders a document. Returns `None` if it is too long or nests too deeply.
pub(super) fn view(text: &str, context: &DocumentContext<'_>) -> Option<Markup> {
    if text.split(['\n', '\r']).any(|line| marker_count(line.as_bytes()) > DEPTH) {
        return None;
    }
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = DocumentWriter {
        context,
        html: String::new(),
        open: Vec::new(),
        image: None,
        html_block: None,
        heading: None,
        levels: Vec::new(),
        anchors: HashMap::new(),
        table: OpenTable::default(),
    };
    for (count, event) in Parser::new_ext(text, options).enumerate() {
        if count == EVENTS || writer.open.len() > DEPTH || writer.html.len() > HTML_BYTES {
            return None;
        }
        writer.write(event);
    }
    Some(html! { div.document { (PreEscaped(writer.html)) } })
}

/// Counts the quote and list markers at the beginning of a line. The parser needs quadratic time
/// for thousands of markers and a paragraph of many lines, so such a text must not reach it.
fn marker_count(line: &[u8]) -> usize {
    let is_marker = |byte: &u8| b" \t>-+*.)0123456789".contains(byte);
    let end = line.iter().position(|byte| !is_marker(byte)).unwrap_or(line.len());
    let pairs = line[..end].iter().zip(line[1.min(end)..end].iter().chain(b" "));
    let begins = |(byte, next): &(&u8, &u8)| match byte {
        b'>' => true,
        b'-' | b'+' | b'*' | b'.' | b')' => matches!(next, b' ' | b'\t'),
        _ => false,
    };
    pairs.filter(begins).count()
}

/// Returns true if a piece of HTML is one comment.
fn is_comment(html: &str) -> bool {
    let rest = html.trim().strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->"));
    rest.is_some_and(|text| !text.contains("-->"))
}

struct DocumentWriter<'a> {
    context: &'a DocumentContext<'a>,
    html: String,
    /// The end tags of the open elements, innermost last.
    open: Vec<&'static str>,
    /// The open image. Its content is the alternative text, without elements.
    image: Option<OpenImage>,
    /// The text of the open block of HTML.
    html_block: Option<String>,
    heading: Option<OpenHeading>,
    /// Levels, as in the document, of the last heading and of the headings above it.
    levels: Vec<usize>,
    /// Number of headings that have each id, before numbering.
    anchors: HashMap<String, usize>,
    table: OpenTable,
}

struct OpenImage {
    /// Number of elements around the image.
    depth: usize,
    destination: Option<Destination>,
    text: String,
}

struct OpenHeading {
    /// Position in the HTML at which the attributes of the heading end.
    at: usize,
    text: String,
}

#[derive(Default)]
struct OpenTable {
    alignments: Vec<Alignment>,
    column: usize,
    is_in_head: bool,
}

impl DocumentWriter<'_> {
    fn write(&mut self, event: Event<'_>) {
        match event {
            Event::Start(Tag::HtmlBlock) => self.html_block = Some(String::new()),
            Event::End(TagEnd::HtmlBlock) => self.end_html_block(),
            Event::Start(tag) => self.start(tag),
            Event::End(end) => self.end(end),
            Event::Html(text) if let Some(block) = &mut self.html_block => block.push_str(&text),
            Event::InlineHtml(text) if is_comment(&text) => {}
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::Code(code) => {
                self.markup("<code>");
                self.text(&code);
                self.markup("</code>");
            }
            Event::SoftBreak => self.text("\n"),
            Event::HardBreak => self.markup("<br>"),
            Event::Rule => self.markup("<hr>"),
            Event::TaskListMarker(is_done) => {
                let (mark, word) = if is_done { ("☑", "done: ") } else { ("☐", "to do: ") };
                let shown = html! {
                    span.task aria-hidden="true" { (mark) " " } span.unseen { (word) }
                };
                self.markup(&shown.0);
            }
            // These events belong to options that are off.
            Event::FootnoteReference(_) | Event::InlineMath(_) | Event::DisplayMath(_) => {}
        }
    }

    fn markup(&mut self, markup: &str) {
        if self.image.is_none() {
            self.html.push_str(markup);
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(image) = &mut self.image {
            image.text.push_str(text);
            return;
        }
        if let Some(heading) = &mut self.heading {
            heading.text.push_str(text);
        }
        self.html.push_str(&show::lines(text).0);
    }

    fn start(&mut self, tag: Tag<'_>) {
        let (start, end): (Cow<'_, str>, _) = match tag {
            _ if self.image.is_some() => ("".into(), ""),
            Tag::Paragraph => ("<p>".into(), "</p>"),
            Tag::Heading { level, .. } => self.start_heading(level as usize),
            Tag::BlockQuote(_) => ("<blockquote>".into(), "</blockquote>"),
            Tag::CodeBlock(_) => (CODE_START.into(), CODE_END),
            Tag::List(None) => ("<ul>".into(), "</ul>"),
            Tag::List(Some(first)) => (format!("<ol start=\"{first}\">").into(), "</ol>"),
            Tag::Item => ("<li>".into(), "</li>"),
            Tag::Emphasis => ("<em>".into(), "</em>"),
            Tag::Strong => ("<strong>".into(), "</strong>"),
            Tag::Strikethrough => ("<del>".into(), "</del>"),
            Tag::Table(alignments) => {
                self.table.alignments = alignments;
                ("<div class=\"scroll\" tabindex=\"0\"><table>".into(), "</table></div>")
            }
            Tag::TableHead => {
                (self.table.column, self.table.is_in_head) = (0, true);
                ("<thead><tr>".into(), "</tr></thead>")
            }
            Tag::TableRow => {
                self.table.column = 0;
                ("<tr>".into(), "</tr>")
            }
            Tag::TableCell => self.start_cell(),
            Tag::Link { link_type: LinkType::Email, .. } => ("".into(), ""),
            Tag::Link { dest_url, .. } => match self.destination(&dest_url) {
                Some(destination) => {
                    let address = html! { (self.address(&destination)) };
                    (format!("<a href=\"{}\">", address.0).into(), LINK_END)
                }
                None => ("".into(), ""),
            },
            Tag::Image { dest_url, .. } => {
                let (depth, destination) = (self.open.len(), self.destination(&dest_url));
                self.image = Some(OpenImage { depth, destination, text: String::new() });
                ("".into(), "")
            }
            // These tags belong to options that are off.
            _ => ("".into(), ""),
        };
        self.html.push_str(&start);
        self.open.push(end);
    }

    fn end(&mut self, end: TagEnd) {
        if end == TagEnd::TableHead {
            self.table.is_in_head = false;
        }
        let tag = self.open.pop().unwrap_or_default();
        if let Some(image) = self.image.take_if(|image| image.depth == self.open.len()) {
            self.push_image(&image);
        }
        if let Some(heading) = self.heading.take_if(|_| matches!(end, TagEnd::Heading(_))) {
            let id = self.new_anchor(&heading.text);
            self.html.insert_str(heading.at, &format!(" id=\"{id}\""));
        }
        self.markup(tag);
    }

    fn end_html_block(&mut self) {
        let Some(text) = self.html_block.take().filter(|text| !is_comment(text)) else { return };
        self.markup(CODE_START);
        self.text(&text);
        self.markup(CODE_END);
    }

    /// Starts a heading below the heading of the page. Renumbers the levels so that none is
    /// skipped.
    fn start_heading(&mut self, level: usize) -> (Cow<'static, str>, &'static str) {
        self.levels.retain(|above| *above < level);
        self.levels.push(level);
        let below = self.levels.len().min(HEADING_ENDS.len());
        self.html.push_str(&format!("<h{}", LEVEL_ABOVE + below));
        self.heading = Some(OpenHeading { at: self.html.len(), text: String::new() });
        (">".into(), HEADING_ENDS[below - 1])
    }

    /// Returns the id of a heading. Repeated ids get a number.
    fn new_anchor(&mut self, text: &str) -> String {
        let id = anchor(text);
        let count = self.anchors.entry(id.clone()).or_default();
        *count += 1;
        if *count == 1 { id } else { format!("{id}-{}", *count - 1) }
    }

    fn start_cell(&mut self) -> (Cow<'static, str>, &'static str) {
        let class = match self.table.alignments.get(self.table.column) {
            Some(Alignment::Right) => " class=\"right\"",
            Some(Alignment::Center) => " class=\"center\"",
            Some(Alignment::Left | Alignment::None) | None => "",
        };
        self.table.column += 1;
        match self.table.is_in_head {
            true => (format!("<th scope=\"col\"{class}>").into(), "</th>"),
            false => (format!("<td{class}>").into(), "</td>"),
        }
    }

    fn destination(&self, text: &str) -> Option<Destination> {
        Destination::parse(text, self.context.folder)
    }

    fn address(&self, destination: &Destination) -> String {
        match destination {
            Destination::Web(address) => address.clone(),
            Destination::Heading(id) => format!("#{id}"),
            Destination::Path(path, id) if id.is_empty() => (self.context.page)(path),
            Destination::Path(path, id) => format!("{}#{id}", (self.context.page)(path)),
        }
    }

    /// Appends an image. If the page may not show the image, appends a link to it or its
    /// alternative text.
    fn push_image(&mut self, image: &OpenImage) {
        let text = if image.text.trim().is_empty() { "image" } else { &image.text };
        let source = match &image.destination {
            Some(Destination::Path(path, _)) => (self.context.image)(path),
            _ => None,
        };
        let is_in_link = self.open.contains(&LINK_END);
        let shown = match (source, &image.destination) {
            (Some(source), _) => html! { img src=(source) alt=(show::plain(text.as_bytes())); },
            (None, Some(destination)) if !is_in_link => html! {
                a href=(self.address(destination)) { (show::lines(text)) }
            },
            (None, _) => show::lines(text),
        };
        self.html.push_str(&shown.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> Option<String> {
        let page = |path: &[u8]| format!("/page/{}", String::from_utf8_lossy(path));
        let image = |path: &[u8]| path.ends_with(b".png").then(|| "/raw/a.png".to_owned());
        let context = DocumentContext { folder: b"docs", page: &page, image: &image };
        let html = view(text, &context)?.into_string();
        Some(html.strip_prefix("<div class=\"document\">")?.strip_suffix("</div>")?.to_owned())
    }

    fn of(text: &str) -> String {
        rendered(text).unwrap()
    }

    #[test]
    fn markdown_is_rendered_to_html_elements() {
        for (text, html) in [
            (
                "a *b* **c** ~~d~~ `e<f`",
                "<p>a <em>b</em> <strong>c</strong> <del>d</del> <code>e&lt;f</code></p>",
            ),
            ("a\nb  \nc", "<p>a\nb<br>c</p>"),
            ("> a\n\n---", "<blockquote><p>a</p></blockquote><hr>"),
            ("- a\n- b", "<ul><li>a</li><li>b</li></ul>"),
            ("3. a", "<ol start=\"3\"><li>a</li></ol>"),
            ("```rust\na\n\tb\n```", "<pre tabindex=\"0\"><code>a\n\tb\n</code></pre>"),
            (
                "<https://a.example/?b&c>",
                "<p><a href=\"https://a.example/?b&amp;c\">https://a.example/?b&amp;c</a></p>",
            ),
            ("[a](b.md#c \"title\")", "<p><a href=\"/page/docs/b.md#text-c\">a</a></p>"),
            ("![a *b*](c.png)", "<p><img src=\"/raw/a.png\" alt=\"a b\"></p>"),
        ] {
            assert_eq!(of(text), html, "{text}");
        }
        let table = of("|a|b|c|\n|-|-:|:-:|\n|1|2|3|");
        let cells = "<th scope=\"col\">a</th><th scope=\"col\" class=\"right\">b</th>\
                     <th scope=\"col\" class=\"center\">c</th></tr></thead><tr><td>1</td>\
                     <td class=\"right\">2</td><td class=\"center\">3</td></tr></table>";
        assert!(table.contains(cells), "{table}");
        let tasks = of("- [x] a\n- [ ] b");
        assert!(tasks.contains("done: </span>a") && tasks.contains("to do: </span>b"), "{tasks}");
    }

    #[test]
    fn headings_are_nested_below_the_page_headings() {
        let headings = of("# A\n## B\n### C\n#### D\n##### E\n# A\n### F `g`");
        let wanted = [
            "<h3 id=\"text-a\">A</h3>",
            "<h4 id=\"text-b\">B</h4>",
            "<h5 id=\"text-c\">C</h5>",
            "<h6 id=\"text-d\">D</h6>",
            "<h6 id=\"text-e\">E</h6>",
            "<h3 id=\"text-a-1\">A</h3>",
            "<h4 id=\"text-f-g\">F <code>g</code></h4>",
        ];
        assert_eq!(headings, wanted.concat());
    }

    #[test]
    fn html_and_unsafe_links_in_markdown_become_text() {
        for (text, html) in [
            ("a <b onclick=x> c", "<p>a &lt;b onclick=x&gt; c</p>"),
            ("&lt;script&gt; &#60;b&#62;", "<p>&lt;script&gt; &lt;b&gt;</p>"),
            ("[a](javascript:b)", "<p>a</p>"),
            ("[a](java&#115;cript:b)", "<p>a</p>"),
            ("<javascript:b>", "<p>javascript:b</p>"),
            ("<ada@a.example>", "<p>ada@a.example</p>"),
            ("[a](//b.example)", "<p>a</p>"),
            ("[a](../../b)", "<p>a</p>"),
            ("[a]\n\n[a]: data:b", "<p>a</p>"),
            ("![a](data:image/png;b)", "<p>a</p>"),
            (
                "![](https://b.example/c.png)",
                "<p><a href=\"https://b.example/c.png\">image</a></p>",
            ),
            ("[![a](https://b.example/c.png)](d)", "<p><a href=\"/page/docs/d\">a</a></p>"),
            (
                "![a ![b](c.png) <i>](d.txt)",
                "<p><a href=\"/page/docs/d.txt\">a b &lt;i&gt;</a></p>",
            ),
            ("a\u{202e}b", "<p>a<span class=\"esc\">\\u{202e}</span>b</p>"),
        ] {
            assert_eq!(of(text), html, "{text}");
        }
        for (text, html) in [
            ("a <!-- b --> c", "<p>a  c</p>"),
            ("<!-- a\n\nb -->\n\nc", "<p>c</p>"),
            ("<!-- a --> <b>", "<pre tabindex=\"0\"><code>&lt;!-- a --&gt; &lt;b&gt;</code></pre>"),
            ("<!-- a", "<pre tabindex=\"0\"><code>&lt;!-- a</code></pre>"),
        ] {
            assert_eq!(of(text), html, "{text}");
        }
        let block = of("<script>\nalert(1)\n</script>\n");
        assert_eq!(
            block,
            "<pre tabindex=\"0\"><code>&lt;script&gt;\nalert(1)\n&lt;/script&gt;\n</code></pre>"
        );
        let id = of("# \"><script>");
        assert!(id.starts_with("<h3 id=\"text-script\">&quot;&gt;&lt;script&gt;"), "{id}");
    }

    #[test]
    fn quote_and_list_markers_are_counted() {
        for (line, count) in [
            ("> a > b", 1),
            (">>- 1. + a", 5),
            (" * \t12) a", 2),
            ("----------", 1),
            ("1.2.3 a", 0),
            ("a > > >", 0),
            ("", 0),
        ] {
            assert_eq!(marker_count(line.as_bytes()), count, "{line}");
        }
    }

    #[test]
    fn the_document_size_is_bounded_for_any_content() {
        assert!(rendered(&">".repeat(DEPTH)).is_some());
        assert!(rendered(&"-".repeat(10 * DEPTH)).is_some());
        let deeper: String = (0..DEPTH).map(|depth| "  ".repeat(depth) + "- a\n").collect();
        for text in [
            deeper,
            format!("a\r{}b", ">".repeat(DEPTH + 1)),
            ">".repeat(DEPTH + 1),
            "- ".repeat(1 << 17) + "a",
            "*a **b ".repeat(1 << 16),
        ] {
            assert_eq!(rendered(&text), None, "{}", &text[..10]);
        }
        // Each link has a URL of 1 KiB.
        let context =
            DocumentContext { folder: b"", page: &|_| "a".repeat(1 << 10), image: &|_| None };
        assert!(view(&"[a](b) ".repeat(1000), &context).is_some());
        assert!(view(&"[a](b) ".repeat(10_000), &context).is_none());
    }
}
