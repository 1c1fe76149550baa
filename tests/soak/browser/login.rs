//! Logging in and out with a real browser.

use fantoccini::key::Key;
use snap_server::access::principal::Right;

use crate::{
    browser::{Browser, Scripts},
    place::{Place, Serving},
    tokens::{WRONG_TOKEN_DELAY, token},
};

#[ignore = "tests/soak/run runs it"]
#[tokio::test(flavor = "multi_thread")]
async fn one_logs_in_and_out_with_a_browser() {
    let Some(browser) = Browser::start(Scripts::Run).await else { return };
    let place = Place::new();
    place.change("a", "content");
    let secret = token(&place, "ada", Right::Read, None);
    let serving = Serving::of(&place);
    browser.open(&format!("{}/r/default/c/main/a", serving.origin())).await;
    browser.picture("login").await;
    let field = browser.wait("#token").await;
    let enter_wrong_token = async {
        // Returns once the next page has been loaded.
        field.send_keys(&format!("snap_wrong{}", Key::Enter)).await.unwrap();
        browser.text(".wrong").await
    };
    let wrong = serving.passing(WRONG_TOKEN_DELAY, enter_wrong_token).await;
    assert_eq!(wrong, "This token is invalid or has expired.");
    let field = browser.wait("#token").await;
    field.send_keys(&format!("{secret}{}", Key::Enter)).await.unwrap();
    assert!(browser.text("pre.text").await.contains("content"));
    assert_eq!(browser.path().await, "/r/default/c/main/a");
    assert_eq!(browser.value("document.cookie").await, "");
    browser.click(".leave button").await;
    browser.wait("#token").await;
    browser.open(&format!("{}/r/default", serving.origin())).await;
    browser.wait("#token").await;
    browser.close().await;
}
