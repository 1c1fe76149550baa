//! Tests of the pages in a real browser, one of a person who browses and one of what was
//! pushed to do harm. `tests/soak/browser` has others.

use fantoccini::key::Key;
use serde_json::json;

use crate::{
    browser::{Browser, Scripts},
    hostile,
    place::{Place, Serving},
    showcase,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_can_open_files_compare_and_search() {
    let Some(browser) = Browser::start(Scripts::Run).await else { return };
    let show = showcase::make();
    let serving = Serving::over(show.path());
    let origin = serving.origin().to_owned();
    browser.open(&origin).await;
    browser.picture("repositories").await;
    browser.follow("team/website").await;
    assert_eq!(browser.text("h1").await, "team/website");
    browser.picture("commits").await;
    browser.follow("Serve pictures in their own size").await;
    assert!(browser.text("dl.facts").await.contains("ada on laptop"));
    browser.picture("commit").await;
    browser.follow("src").await;
    browser.follow("main.rs").await;
    assert!(browser.text("pre.text").await.contains("fn main() -> ExitCode {"));
    assert_eq!(browser.text(".trail [aria-current]").await, "main.rs");
    browser.picture("file").await;

    browser.open(&format!("{origin}/r/team%2Fwebsite")).await;
    browser.follow("changes").await;
    assert!(browser.text("h1").await.starts_with("What changed"));
    assert!(browser.text("table.hunks").await.contains('+'));
    browser.picture("changes").await;

    let search = browser.wait("#q").await;
    search.send_keys(&format!("main{}", Key::Enter)).await.unwrap();
    browser.wait("table.entries").await;
    assert!(browser.path().await.contains("/search?q=main"), "{}", browser.path().await);
    browser.follow("src/main.rs").await;
    browser.follow("History").await;
    assert!(browser.text("table.commits").await.contains("A page that says hello"));

    browser.open(&format!("{origin}/r/team%2Fwebsite/stats")).await;
    assert!(
        browser.value("document.querySelector('svg[role=img]').getBBox().width > 800").await
            == json!(true)
    );
    browser.picture("growth").await;
    assert_eq!(browser.told().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pushed_script_runs_in_a_browser() {
    let Some(browser) = Browser::start(Scripts::Run).await else { return };
    let place = Place::new();
    let before = place.change("a", "content");
    hostile::fill(&place);
    let after = place.change("a", "other");
    let serving = Serving::of(&place);
    let origin = serving.origin().to_owned();
    let folder = format!("{origin}/r/default/c/main/hostile");
    browser.open(&folder).await;
    let links = "[...document.querySelectorAll('td.name a')].map(a => a.href)";
    let links = browser.value(links).await;
    let links: Vec<String> = serde_json::from_value(links).unwrap();
    assert_eq!(links.len(), hostile::names().len() + 3);
    let raw =
        |link: &String| link.replace("/r/default/c/main/", "/v1/repos/default/commits/main/files/");
    let others = [
        folder.clone(),
        format!("{origin}/r/default/diff?from={before}&to={after}"),
        format!("{origin}/r/default/search?q=%22%3E%3Cscript%3Ewindow.pwned=1%3C/script%3E"),
        format!("{origin}/r/default/search?q=*"),
        format!("{origin}/r/default?rev=%22%3E%3Cscript%3Ewindow.pwned=1%3C/script%3E"),
        format!("{origin}/r/default/stats"),
    ];
    for page in links.iter().chain(&others) {
        browser.open(page).await;
        assert_eq!(browser.value("typeof window.pwned").await, json!("undefined"), "{page}");
        let of_policy =
            |line: &String| line.contains("Content Security Policy") || line.contains("Refused");
        let told: Vec<String> = browser.told().await.into_iter().filter(of_policy).collect();
        assert_eq!(told, Vec::<String>::new(), "{page}");
    }
    for page in links.iter().map(raw) {
        // The browser saves some of them instead of showing them.
        let _ = browser.client.goto(&page).await;
        assert_eq!(browser.value("typeof window.pwned").await, json!("undefined"), "{page}");
    }
    browser.open(&format!("{folder}/picture.svg")).await;
    let is_drawn = "document.querySelector('figure img').naturalWidth > 0";
    assert_eq!(browser.value(is_drawn).await, json!(true), "the picture is drawn");
    browser.open(&folder).await;
    browser.picture("hostile-names").await;
    browser.close().await;
}
