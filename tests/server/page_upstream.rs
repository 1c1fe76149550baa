//! Pages of servers before others: what they ask there, and what they say.

use std::time::{Duration, Instant};

use snap_nettest::{Fault, Proxy, Rule};

use crate::{
    page::ask,
    place::{Place, Serving},
    showcase,
    upstream::relay,
};

/// A server, a proxy before it, and a relay before that.
struct Relayed {
    _server: Serving,
    proxy: Proxy,
    relay: Serving,
    _cache: tempfile::TempDir,
}

impl Relayed {
    fn new(server: Serving) -> Self {
        let proxy = Proxy::start(server.origin());
        let cache = tempfile::tempdir().unwrap();
        let relay = relay(&proxy.endpoint(), cache.path());
        Self { _server: server, proxy, relay, _cache: cache }
    }

    /// A page that is there.
    async fn page(&self, path: &str) -> String {
        let answer = ask(&self.relay, path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.text
    }

    /// How often it is asked where refs stand, for what is done meanwhile.
    async fn questions(&self, paths: &[&str]) -> usize {
        // What is known is too old then.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        self.proxy.take_counts();
        for path in paths {
            ask(&self.relay, path).await;
        }
        let requests = self.proxy.requests();
        requests.iter().filter(|seen| seen.path.ends_with("/refs")).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_asks_once_how_it_stands() {
    let show = showcase::make();
    let place = Relayed::new(Serving::over(show.path()));
    let site = "/r/team%2Fwebsite";
    let mut home = place.page("/").await;
    // To open all of them may take longer than a page has time.
    while home.contains("Not looked at") {
        home = place.page("/").await;
    }
    let listed = home.matches("<li class=\"card\">").count();
    assert!(listed > 1 && home.contains("team/website"), "{home}");
    // One question may be on its way when the page asks for what is true now.
    for path in ["", "/refs", "/stats", "/diff", "/search?q=a"] {
        let asked = place.questions(&[&format!("{site}{path}")]).await;
        assert!(asked <= 2, "{path}: {asked}");
    }
    let asked = place.questions(&["/"]).await;
    assert!(asked <= listed, "one for each repository: {asked} of {listed}");
    let asked = place.questions(&["/metrics"]).await;
    assert_eq!(asked, 0, "what is known will do");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_commits_added_is_counted_for_those_who_ask_for_it() {
    let there = Place::new();
    there.change("a", "content");
    let place = Relayed::new(Serving::of(&there));
    let gained = |page: &str| page.contains("<td class=\"number gain\" role=\"cell\">+");
    for _ in 0..3 {
        assert!(!gained(&place.page("/r/default").await), "all of it would have to be fetched");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let since = Instant::now();
    while !place.page("/r/default/stats").await.contains("How the store grew") {
        assert!(since.elapsed() < Duration::from_secs(20), "it never was counted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(gained(&place.page("/r/default").await), "now it is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_that_what_lies_behind_is_away() {
    let there = Place::new();
    there.change("a", "content");
    let place = Relayed::new(Serving::of(&there));
    place.page("/r/default").await;
    place.proxy.add(Rule::new(Fault::status(403)));
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let answer = ask(&place.relay, "/r/default/c/nothing").await;
    assert_eq!(answer.status, 404);
    assert!(answer.headers.contains_key("snap-upstream"), "{:?}", answer.headers);
    assert!(answer.text.contains("what was last seen of it"), "{}", answer.text);
    place.proxy.clear_rules();
}
