//! Tests of Markdown on pages: documents, and the README below a folder.

use crate::{
    hostile::PNG,
    page::{damage, page},
    place::{Place, Serving},
};

/// Returns the rendered document on a page, if there is one.
fn document(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once("<div class=\"document\">")?;
    rest.split_once("</section>").map(|(document, _)| document)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_rendered_or_shown_as_source() {
    let place = Place::new();
    place.change("notes.MARKDOWN", "# Notes & <more>\n\n- [x] *one*\n");
    place.change("plain.txt", "# Notes\n");
    let serving = Serving::of(&place);
    let path = "/r/default/c/main/notes.MARKDOWN";
    let shown = page(&serving, path).await;
    let heading = "<h3 id=\"text-notes--more\">Notes &amp; &lt;more&gt;</h3>";
    assert!(document(&shown).unwrap().contains(heading), "{shown}");
    let source = page(&serving, &format!("{path}?view=source")).await;
    assert!(document(&source).is_none() && source.contains("- [x] *one*"), "{source}");
    for shown in [&shown, &source] {
        let link = format!("href=\"{path}?view=source\">Source</a>");
        assert!(shown.contains(&link) && shown.contains(&format!("href=\"{path}\">Rendered</a>")));
    }
    let plain = page(&serving, "/r/default/c/main/plain.txt").await;
    assert!(document(&plain).is_none() && !plain.contains("Rendered"), "{plain}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_shows_its_readme() {
    let place = Place::new();
    place.change("a", "content");
    place.change("plain/README", "*plain*");
    place.change("text/ReadMe.txt", "*text*");
    place.change("sub/readme.MD", "[a](x.rs) [b](../a) [c](/sub)");
    place.change("sub/README.txt", "not this one");
    place.change("README.md/file", "a folder");
    place.change("long/README.md", "word ".repeat(200_000));
    let serving = Serving::of(&place);
    let of = async |path: &str| page(&serving, &format!("/r/default/c/main{path}")).await;
    assert_eq!(document(&of("").await), None, "there is none");
    let sub = of("/sub").await;
    let links = [("sub/x.rs", "a"), ("a", "b"), ("sub", "c")]
        .map(|(path, text)| format!("<a href=\"/r/default/c/main/{path}\">{text}</a>"));
    assert!(document(&sub).unwrap().contains(&links.join(" ")), "{sub}");
    assert!(!sub.contains("not this one"), "{sub}");
    assert!(document(&of("/plain").await).unwrap().contains("<em>plain</em>"));
    let text = of("/text").await;
    assert!(document(&text).is_none() && text.contains("*text*"), "{text}");
    let long = of("/long").await;
    assert!(document(&long).is_none() && long.contains("word word"), "it is shown as text");
    place.change("README", "the commit");
    assert!(document(&of("").await).unwrap().contains("the commit"));
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_the_commit_are_embedded_and_others_linked() {
    let place = Place::new();
    place.change("pictures/dot.png", PNG);
    place.change("pictures/notes.txt", "text");
    let text = "![dot](../pictures/dot.png?raw=true) ![no](none.png) ![text](../pictures/notes.txt) \
                ![web](https://example.org/a.png) ![out](../../dot.png) ![data](data:image/png;x)";
    let id = place.change("docs/a.md", text);
    let serving = Serving::of(&place);
    let shown = page(&serving, "/r/default/c/main/docs/a.md").await;
    let wanted = [
        &*format!(
            "<img src=\"/v1/repos/default/commits/{id}/files/pictures/dot.png\" alt=\"dot\">"
        ),
        "<a href=\"/r/default/c/main/docs/none.png\">no</a>",
        "<a href=\"/r/default/c/main/pictures/notes.txt\">text</a>",
        "<a href=\"https://example.org/a.png\">web</a>",
        "out",
        "data",
    ];
    let shown = document(&shown).unwrap();
    assert!(shown.contains(&format!("<p>{}</p>", wanted.join(" "))), "{shown}");
    let many = "![a](pictures/dot.png)".repeat(150);
    place.change("many.md", many);
    let shown = page(&serving, "/r/default/c/main/many.md").await;
    assert_eq!(document(&shown).unwrap().matches("<img ").count(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_would_cost_too_much_is_shown_as_source() {
    let place = Place::new();
    let blank = "\n".repeat(10_000);
    let texts = [
        ">".repeat(10_000),
        format!("{}a{blank}", "- ".repeat(10_000)),
        format!("{}a{blank}", "1. > ".repeat(10_000)),
        "*a **b ".repeat(50_000),
        "- [ ] `a`\n".repeat(50_000),
    ];
    for (number, text) in texts.iter().enumerate() {
        place.change(&format!("{number}.md"), text);
    }
    let serving = Serving::of(&place);
    for number in 0..texts.len() {
        let shown = page(&serving, &format!("/r/default/c/main/{number}.md")).await;
        assert!(shown.contains("This document is too complex to be rendered."), "{number}");
        assert!(document(&shown).is_none() && shown.contains("id=\"L1\""), "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_readme_that_cannot_be_read_does_not_hide_its_folder() {
    let place = Place::new();
    let text = "text ".repeat(100);
    place.change("copy", &text);
    // The next pack has the commit and the folder, but not the content.
    let [first] = place.repo.store().packs()[..] else { panic!("one pack") };
    place.change("README.md", &text);
    damage(&place, &first);
    let folder = page(&Serving::of(&place), "/r/default/c/main").await;
    assert!(
        folder.contains("This file cannot be read: ") && folder.contains("main/copy"),
        "{folder}"
    );
}
