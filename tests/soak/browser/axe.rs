//! Accessibility of every page, by axe-core: https://github.com/dequelabs/axe-core. The file of
//! `SNAP_AXE` is its script; `tests/soak/run` installs it.

use snap_server::access::principal::Right;

use crate::{
    browser::{Browser, Scripts},
    place::Serving,
    showcase,
    tokens::token_in,
};

/// Every kind of page, with a name for its picture.
const PAGES: [(&str, &str); 18] = [
    ("repositories", "/"),
    ("commits", "/r/team%2Fwebsite"),
    ("commits-of-a-tag", "/r/team%2Fwebsite?rev=v1.0"),
    ("no-commits", "/r/notes"),
    ("commit", "/r/team%2Fwebsite/c/main"),
    ("folder", "/r/team%2Fwebsite/c/main/src"),
    ("file", "/r/team%2Fwebsite/c/main/src/main.rs"),
    ("markdown", "/r/team%2Fwebsite/c/main/README.md"),
    ("markdown-source", "/r/team%2Fwebsite/c/main/README.md?view=source"),
    ("image", "/r/team%2Fwebsite/c/main/pictures/logo.png"),
    ("bytes", "/r/team%2Fwebsite/c/main/dist/website"),
    ("history", "/r/team%2Fwebsite/history/main/src/main.rs"),
    ("compare", "/r/team%2Fwebsite/diff"),
    ("changes", "/r/team%2Fwebsite/diff?from=v1.0&to=main"),
    ("search", "/r/team%2Fwebsite/search?q=a"),
    ("refs", "/r/team%2Fwebsite/refs"),
    ("growth", "/r/team%2Fwebsite/stats"),
    ("not-found", "/r/nothing"),
];

/// The page of a server with tokens before one has logged in.
const LOGIN: [(&str, &str); 1] = [("login", "/login")];

/// Returns what axe finds in the open page, one line for each rule and node.
async fn findings(browser: &Browser, axe: &str) -> Vec<String> {
    browser.client.execute(axe, Vec::new()).await.unwrap();
    let run = "const done = arguments[0];
        axe.run({ resultTypes: ['violations'] }).then(found => done(found.violations.flatMap(rule =>
            rule.nodes.map(node => `${rule.id}: ${node.target.join(' ')}: ${node.failureSummary}`))),
            error => done([`axe failed: ${error}`]))";
    let found = browser.client.execute_async(run, Vec::new()).await.unwrap();
    serde_json::from_value(found).unwrap()
}

/// Opens pages in both widths and colour schemes. Returns what axe finds in them.
async fn examine(
    (browser, axe): (&Browser, &str),
    (origin, pages): (&str, &[(&str, &str)]),
    state: &str,
) -> Vec<String> {
    let mut all = Vec::new();
    for (width, pixels) in [("wide", 1280), ("narrow", 420)] {
        for scheme in ["light", "dark"] {
            browser.scheme(scheme).await;
            for (name, path) in pages {
                browser.size((pixels, 800)).await;
                browser.open(&format!("{origin}{path}")).await;
                let found = findings(browser, axe).await;
                let page = format!("{state}, {width}, {scheme}: {path}");
                all.extend(found.into_iter().map(|finding| format!("{page}: {finding}")));
                browser.show_all(pixels).await;
                browser.picture(&format!("{name}-{state}-{width}-{scheme}")).await;
            }
        }
    }
    all
}

#[ignore = "tests/soak/run runs it"]
#[tokio::test(flavor = "multi_thread")]
async fn axe_finds_nothing() {
    let script = std::env::var_os("SNAP_AXE").expect("SNAP_AXE is the script of axe-core");
    let axe = fs_err::read_to_string(script).unwrap();
    let Some(browser) = Browser::start(Scripts::Run).await else { return };
    let show = showcase::make();
    let serving = Serving::over(show.path());
    let tools = (&browser, &*axe);
    let mut found = examine(tools, (serving.origin(), &PAGES), "open").await;
    let secret = token_in(show.path(), "ada", Right::Read, None);
    let serving = Serving::over(show.path());
    found.extend(examine(tools, (serving.origin(), &LOGIN), "logged-out").await);
    browser.enter("#token", &secret).await;
    browser.wait(".leave").await;
    found.extend(examine(tools, (serving.origin(), &PAGES), "logged-in").await);
    assert_eq!(found, Vec::<String>::new(), "{}", found.join("\n"));
    browser.close().await;
}
