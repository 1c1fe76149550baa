//! Tests of the pages of a relay: the requests to its upstream, and what the pages say.

use snap_nettest::{Fault, Proxy, Rule};

use crate::{
    page::ask,
    place::{Place, Serving},
    showcase,
    upstream::relay,
};

/// A server, a proxy in front of it, and a relay that uses the proxy.
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

    /// Fetches a page and checks that it exists.
    async fn page(&self, path: &str) -> String {
        let answer = ask(&self.relay, path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.text
    }

    /// Returns how often the relay requests refs from its upstream while it serves
    /// these paths.
    async fn questions(&self, paths: &[&str]) -> usize {
        self.relay.asks_again();
        self.proxy.take_counts();
        for path in paths {
            ask(&self.relay, path).await;
        }
        let requests = self.proxy.requests();
        requests.iter().filter(|seen| seen.path.ends_with("/refs")).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_sends_few_requests_to_the_upstream() {
    let show = showcase::make();
    let place = Relayed::new(Serving::over(show.path()));
    let site = "/r/team%2Fwebsite";
    let home = place.page("/").await;
    let listed = home.matches("<li class=\"card\">").count();
    assert!(listed > 1 && home.contains("team/website"), "{home}");
    // Another request may be on its way when the page asks for current refs.
    for path in ["", "/refs", "/stats", "/diff", "/search?q=a"] {
        let asked = place.questions(&[&format!("{site}{path}")]).await;
        assert!(asked <= 2, "{path}: {asked}");
    }
    let asked = place.questions(&["/"]).await;
    assert!(asked <= listed, "more than one request for each repository: {asked} of {listed}");
    let asked = place.questions(&["/metrics"]).await;
    assert_eq!(asked, 0, "known sizes are reported without a request");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_marks_data_that_only_the_upstream_has() {
    let there = Place::new();
    there.change("a", "content");
    let place = Relayed::new(Serving::of(&there));
    place.page("/r/default").await;
    let home = place.page("/").await;
    assert!(home.contains("<dt>Verified</dt><dd>not here; run "), "{home}");
    assert!(!home.contains("Needs attention"), "{home}");
    assert!(home.contains("last commit <time ") && !home.contains("by upstream"), "{home}");
    place.proxy.add(Rule::new(Fault::status(503)));
    place.relay.asks_again();
    let home = place.page("/").await;
    assert!(home.contains("The upstream of this server does not answer."), "{home}");
    assert!(home.contains("last commit <time "), "the last known state is shown: {home}");
    place.proxy.clear_rules();
}

#[tokio::test(flavor = "multi_thread")]
async fn added_sizes_are_computed_only_for_the_statistics_page() {
    let there = Place::new();
    there.change("a", "content");
    let place = Relayed::new(Serving::of(&there));
    let gained = |page: &str| page.contains("<td class=\"number gain\" role=\"cell\">+");
    for _ in 0..3 {
        assert!(
            !gained(&place.page("/r/default").await),
            "the page started a computation that fetches all trees"
        );
    }
    let stats = place.page("/r/default/stats").await;
    assert!(stats.contains("How the store grew"), "{stats}");
    assert!(gained(&place.page("/r/default").await), "the sizes are known now");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_page_reports_an_upstream_outage() {
    let there = Place::new();
    there.change("a", "content");
    let place = Relayed::new(Serving::of(&there));
    place.page("/r/default").await;
    place.proxy.add(Rule::new(Fault::status(403)));
    place.relay.asks_again();
    let answer = ask(&place.relay, "/r/default/c/nothing").await;
    assert_eq!(answer.status, 404);
    assert!(answer.headers.contains_key("snap-upstream"), "{:?}", answer.headers);
    assert!(answer.text.contains("This page shows the last known state"), "{}", answer.text);
    place.proxy.clear_rules();
}
