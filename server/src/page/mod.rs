//! The web pages at `/`: repositories, commits, files, differences and growth, for
//! people with a browser. They come from the binary alone: there is no build step, and
//! nothing is loaded from other hosts. The pages work without JavaScript, which only
//! adds conveniences.
//!
//! Nothing from a snapshot can run as code: `show` escapes all names and contents, and
//! `security_headers` sets a content security policy. Contents other than text are not part of a
//! page: the browser loads them from the HTTP API.
//!
//! | module | content |
//! |---|---|
//! | `link`, `page_request`, `ref_index` | building and parsing the URLs of pages |
//! | `show`, `moment`, `icon` | how names, texts, times and kinds are shown |
//! | `assets`, `layout`, `security_headers` | stylesheet and script, page frame, response headers |
//! | the others | one page each, or a part of one |

mod assets;
mod chart;
mod deadline;
mod destination;
mod diff;
mod document;
mod file;
mod folder;
mod hex;
mod highlight;
mod history;
mod home;
mod hunks;
mod icon;
mod layout;
mod link;
mod log;
mod login;
mod markdown;
mod moment;
mod overview;
mod page_request;
mod ref_index;
mod refs;
mod search;
pub(crate) mod security_headers;
mod show;
mod snapshot;
mod stats;
mod stats_cache;
#[cfg(test)]
mod two_commits;

use std::sync::Arc;

use axum::middleware::from_fn;
use http::Method;
use snap_remote::wire::right::RouteAccess;

use self::{page_request::PageRequest, stats_cache::StatsCache};
use crate::{body::hold_answer, route_table::Routes, routes::Server};

/// The state that all pages share.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    shared: Arc<PageState>,
}

#[derive(Debug)]
struct PageState {
    server: Server,
    growth: StatsCache,
}

impl Pages {
    fn server(&self) -> &Server {
        &self.shared.server
    }

    fn growth(&self) -> &StatsCache {
        &self.shared.growth
    }
}

impl Pages {
    /// Creates the state of the pages.
    pub(crate) fn new(server: Server) -> Self {
        let growth = StatsCache::new(server.clock().clone());
        Self { shared: Arc::new(PageState { server, growth }) }
    }
}

/// Returns the routes of the pages. The handlers check no tokens:
/// [`app_service`](crate::app_service) does.
pub(crate) fn routes() -> Routes<Pages> {
    Routes::new()
        .route(Method::GET, "/", RouteAccess::Page, home::view)
        .route(Method::GET, "/assets/{name}", RouteAccess::Nothing, assets::read)
        // The form carries the token itself.
        .route(Method::GET, "/login", RouteAccess::Nothing, login::show)
        .route(Method::POST, "/login", RouteAccess::Nothing, login::enter)
        .route(Method::POST, "/logout", RouteAccess::Nothing, login::leave)
        .merge(repositories())
}

/// Returns the routes of the pages of a repository.
fn repositories() -> Routes<Pages> {
    let log = async |page: PageRequest| page.show(log::view).await;
    let snapshot = async |page: PageRequest| page.show(snapshot::view).await;
    let history = async |page: PageRequest| page.show(history::view).await;
    let diff = async |page: PageRequest| page.show(diff::view).await;
    let search = async |page: PageRequest| page.show(search::view).await;
    let refs = async |page: PageRequest| page.show(refs::view).await;
    let stats = async |page: PageRequest| page.show(stats::view).await;
    Routes::new()
        .route(Method::GET, "/r/{repo}", RouteAccess::READ, log)
        .route(Method::GET, "/r/{repo}/c/{rev}", RouteAccess::READ, snapshot)
        .route(Method::GET, "/r/{repo}/c/{rev}/{*path}", RouteAccess::READ, snapshot)
        .route(Method::GET, "/r/{repo}/history/{rev}", RouteAccess::READ, history)
        .route(Method::GET, "/r/{repo}/history/{rev}/{*path}", RouteAccess::READ, history)
        .route(Method::GET, "/r/{repo}/diff", RouteAccess::READ, diff)
        .route(Method::GET, "/r/{repo}/search", RouteAccess::READ, search)
        .route(Method::GET, "/r/{repo}/refs", RouteAccess::READ, refs)
        .route(Method::GET, "/r/{repo}/stats", RouteAccess::READ, stats)
        .map_router(|router| router.route_layer(from_fn(hold_answer)))
}
