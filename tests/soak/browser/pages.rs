//! Tests of the pages in a real browser: keys, screens, downloads, and what works without
//! scripts. `tests/server/page_browser.rs` has the two that run in every `cargo test`.

use std::time::Duration;

use fantoccini::key::Key;
use serde_json::{Value, json};
use snap_core::{base::observe::Silent, ops::commit};

use crate::{
    browser::{Browser, Scripts},
    place::{Place, Serving},
    showcase,
};

#[ignore = "tests/soak/run runs it"]
#[tokio::test(flavor = "multi_thread")]
async fn keys_lead_through_lists() {
    let Some(browser) = Browser::start(Scripts::Run).await else { return };
    let show = showcase::make();
    let serving = Serving::over(show.path());
    browser.open(&format!("{}/r/team%2Fwebsite/c/main", serving.origin())).await;
    let press = async |keys: &str| browser.wait("body").await.send_keys(keys).await.unwrap();
    press("jjk").await;
    let focused = browser.value("document.activeElement.textContent").await;
    let first = browser.text("[data-list] [data-go]").await;
    assert_eq!(focused, Value::String(first.clone()));
    browser
        .client
        .active_element()
        .await
        .unwrap()
        .send_keys(&Key::Enter.to_string())
        .await
        .unwrap();
    browser.wait("tr.up a").await;
    press("u").await;
    browser.wait("article.commit").await;
    press("?").await;
    assert!(browser.text("dialog[open]").await.contains("search by name"));
    browser.click("dialog button").await;
    press("/").await;
    assert_eq!(browser.value("document.activeElement.id").await, json!("q"));
    // The key `u` also goes from a file to its folder.
    browser.open(&format!("{}/r/team%2Fwebsite/c/main/src/main.rs", serving.origin())).await;
    press("u").await;
    browser.wait("tr.up a").await;
    assert!(browser.path().await.ends_with("/c/main/src"), "{}", browser.path().await);
    // All keys but `?` can be turned off, and that setting persists.
    browser.click("button.keys").await;
    browser.click("dialog input").await;
    browser.open(&format!("{}/r/team%2Fwebsite", serving.origin())).await;
    press("j/").await;
    assert_eq!(browser.value("document.activeElement === document.body").await, json!(true));
    press("?").await;
    browser.wait("dialog[open]").await;
    browser.click("dialog button").await;
    // A narrow window may also have a keyboard.
    browser.size((700, 780)).await;
    browser.click("button.keys").await;
    browser.click("dialog input").await;
    browser.click("dialog button").await;
    press("/").await;
    assert_eq!(browser.value("document.activeElement.id").await, json!("q"));
    browser.close().await;
}

#[ignore = "tests/soak/run runs it"]
#[tokio::test(flavor = "multi_thread")]
async fn what_a_mouse_does_other_means_do_too() {
    let Some(browser) = Browser::start(Scripts::Run).await else { return };
    let show = showcase::make();
    let serving = Serving::over(show.path());
    browser.open(&format!("{}/r/team%2Fwebsite", serving.origin())).await;
    // Choosing with the arrow keys must not load another page by itself.
    let choice = browser.wait("select[name=rev]").await;
    choice.select_by_value("v1.0").await.unwrap();
    browser.click("form.choose button").await;
    browser.wait("option[value='v1.0'][selected]").await;
    assert!(browser.path().await.ends_with("?rev=v1.0"));
    let copy = browser.wait(".clone button").await;
    assert!(copy.attr("aria-label").await.unwrap().unwrap().starts_with("Copy snap clone "));
    copy.send_keys(&Key::Enter.to_string()).await.unwrap();
    let said = "/^(Copied|Not copied)$/.test(document.querySelector('[aria-live]').textContent)";
    let mut is_said = false;
    for _ in 0..40 {
        is_said |= browser.value(said).await == json!(true);
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert!(is_said, "the page confirms the copy");
    browser.open(&format!("{}/r/team%2Fwebsite/c/main/src/main.rs", serving.origin())).await;
    assert_eq!(browser.text("h1").await, "main.rs");
    for unwanted in ["h1 nav", "[aria-hidden=true] a:not([tabindex='-1'])"] {
        let found = format!("document.querySelectorAll(\"{unwanted}\").length");
        assert_eq!(browser.value(&found).await, json!(0), "{unwanted}");
    }
    browser.close().await;
}

#[ignore = "tests/soak/run runs it"]
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_saved_as_zip() {
    let Some(browser) = Browser::start(Scripts::Run).await else { return };
    let show = showcase::make();
    let serving = Serving::over(show.path());
    let folder = tempfile::tempdir().unwrap();
    browser.save_to(folder.path()).await;
    browser.open(&format!("{}/r/team%2Fwebsite/c/main/src", serving.origin())).await;
    browser.follow("zip").await;
    let saved = || {
        let mut entries = fs_err::read_dir(folder.path()).unwrap().flatten();
        entries.find(|entry| entry.path().extension().is_some_and(|end| end == "zip"))
    };
    for _ in 0..200 {
        if saved().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let bytes = fs_err::read(saved().expect("the browser saved the archive").path()).unwrap();
    assert!(bytes.starts_with(b"PK") && bytes.windows(7).any(|name| name == b"main.rs"));
    browser.close().await;
}

#[ignore = "tests/soak/run runs it"]
#[tokio::test(flavor = "multi_thread")]
async fn without_a_script_there_are_buttons() {
    let Some(browser) = Browser::start(Scripts::Off).await else { return };
    let show = showcase::make();
    let serving = Serving::over(show.path());
    browser.open(&format!("{}/r/team%2Fwebsite", serving.origin())).await;
    let choice = browser.wait("select[name=rev]").await;
    choice.select_by_value("v1.0").await.unwrap();
    browser.click("form.choose button").await;
    browser.wait("option[value='v1.0'][selected]").await;
    browser.follow("Browse files").await;
    browser.follow("README.md").await;
    browser.follow("Source").await;
    assert!(browser.text("pre.text").await.contains("# Website"));
    let search = browser.wait("#q").await;
    search.send_keys(&format!("logo{}", Key::Enter)).await.unwrap();
    browser.wait("table.entries").await;
    browser.close().await;
}

/// Checks that nothing is cut off at the right.
async fn fits(browser: &Browser, page: &str) {
    let width = browser.value("document.documentElement.scrollWidth <= innerWidth").await;
    assert_eq!(width, json!(true), "{page} is too wide");
    let tables = "[...document.querySelectorAll('table')].filter(t => !t.closest('.scroll') && \
                  t.getBoundingClientRect().right > innerWidth).length";
    assert_eq!(browser.value(tables).await, json!(0), "{page} has a table that is too wide");
    let menu = "[...document.querySelectorAll('.menu a')].every(a => \
                a.getBoundingClientRect().right <= innerWidth)";
    assert_eq!(browser.value(menu).await, json!(true), "{page} hides a part of the menu");
}

#[ignore = "tests/soak/run runs it"]
#[tokio::test(flavor = "multi_thread")]
async fn long_names_push_nothing_out() {
    let Some(browser) = Browser::start(Scripts::Run).await else { return };
    let place = Place::new();
    place.change(&"n".repeat(200), "content");
    fs_err::write(place.folder.path().join("files/a"), "content").unwrap();
    let (author, host, message) = ("a".repeat(150), "h".repeat(150), "m".repeat(150));
    let labels = [("l".repeat(150), "v".repeat(150))].into();
    let options = commit::CommitOptions { author, host, message, labels, ..Default::default() };
    let source = commit::CommitSource::Folder(place.folder.path().join("files"));
    commit::run(&place.repo, source, &options, &Silent).unwrap();
    let serving = Serving::of(&place);
    for size in [(1200, 800), (390, 780)] {
        browser.size(size).await;
        for path in
            ["", "/r/default", "/r/default/c/main", "/r/default/history/main/a", "/r/default/refs"]
        {
            browser.open(&format!("{}{path}", serving.origin())).await;
            fits(&browser, path).await;
        }
    }
    browser.close().await;
}

#[ignore = "tests/soak/run runs it"]
#[tokio::test(flavor = "multi_thread")]
async fn dark_and_narrow_screens_are_thought_of() {
    let Some(browser) = Browser::start(Scripts::Run).await else { return };
    let show = showcase::make();
    let serving = Serving::over(show.path());
    let origin = serving.origin();
    let ground = "getComputedStyle(document.body).backgroundColor";
    browser.open(&format!("{origin}/r/team%2Fwebsite")).await;
    let light = browser.value(ground).await;
    browser.scheme("dark").await;
    assert_ne!(browser.value(ground).await, light);
    browser.picture("commits-dark").await;
    browser.open(&format!("{origin}/r/team%2Fwebsite/c/main/src/main.rs")).await;
    browser.picture("file-dark").await;
    browser.scheme("light").await;
    browser.size((390, 780)).await;
    let pages = [
        "",
        "/r/team%2Fwebsite",
        "/r/team%2Fwebsite/c/main",
        "/r/team%2Fwebsite/c/main/src/main.rs",
        "/r/team%2Fwebsite/c/main/README.md",
        "/r/team%2Fwebsite/history/main/src/main.rs",
        "/r/team%2Fwebsite/diff?from=v1.0&to=main",
        "/r/team%2Fwebsite/search?q=a",
        "/r/team%2Fwebsite/stats",
        "/r/team%2Fwebsite/refs",
    ];
    for path in pages {
        browser.open(&format!("{origin}{path}")).await;
        fits(&browser, path).await;
    }
    browser.open(&format!("{origin}/r/team%2Fwebsite/stats")).await;
    let lowest =
        "Math.min(...[...document.querySelectorAll('.chart :is(li, span, text)')].map(label =>
        { const range = document.createRange(); range.selectNodeContents(label);
          return range.getBoundingClientRect().height }))";
    let lowest = browser.value(lowest).await.as_f64().expect("the chart has labels");
    assert!(lowest > 12.0, "a label of the chart is {lowest} pixels high");
    for path in ["", "/history/main/src/main.rs", "/refs"] {
        browser.open(&format!("{origin}/r/team%2Fwebsite{path}")).await;
        let made = "[...document.querySelectorAll('tbody time')].every(t => t.offsetWidth > 0)";
        assert_eq!(browser.value(made).await, json!(true), "{path} says when");
    }
    browser.open(&format!("{origin}/r/team%2Fwebsite")).await;
    browser.picture("commits-narrow").await;
    browser.open(&format!("{origin}/r/team%2Fwebsite/c/main")).await;
    browser.picture("commit-narrow").await;
    browser.close().await;
}
