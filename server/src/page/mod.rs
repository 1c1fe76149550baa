//! The page: repositories, commits, files, differences and growth for people
//! with a browser, at `/`. Made here, from the binary alone: no build step and
//! nothing from other hosts. It works without a script, and better with it.
//!
//! Nothing that comes from a snapshot can run: all of it goes through
//! `show`, and what the browser may do is said in `guard`. Contents of
//! files other than text are linked to where the protocol has them.
//!
//! | module | what |
//! |---|---|
//! | `link`, `ask`, `names` | addresses, there and back |
//! | `show`, `moment`, `icon` | how single things look |
//! | `assets`, `shell`, `guard` | what is around each page |
//! | the others | a page each, or a part of one |

mod ask;
mod assets;
mod chart;
mod deadline;
mod diff;
mod file;
mod folder;
mod growth;
pub(crate) mod guard;
mod hex;
mod highlight;
mod history;
mod home;
mod hunks;
mod icon;
mod link;
mod log;
mod login;
mod moment;
mod names;
mod refs;
mod search;
mod shell;
mod show;
mod snapshot;
mod stats;
#[cfg(test)]
mod two_commits;

use std::sync::Arc;

use axum::{
    Router,
    middleware::from_fn,
    routing::{get, post},
};

use self::{ask::Ask, growth::Growth};
use crate::{body::hold_answer, routes::Server};

/// What all pages share.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: Server,
    growth: Growth,
}

impl Pages {
    fn server(&self) -> &Server {
        &self.shared.server
    }

    fn growth(&self) -> &Growth {
        &self.shared.growth
    }
}

/// The pages. They are to be guarded: [`around`](crate::around).
pub fn pages(server: Server) -> Router {
    let shared = Shared { server, growth: Growth::default() };
    let pages = Pages { shared: Arc::new(shared) };
    let repositories = Router::new()
        .route("/r/{repo}", get(async |ask: Ask| ask.show(log::view).await))
        .route("/r/{repo}/c/{rev}", get(async |ask: Ask| ask.show(snapshot::view).await))
        .route("/r/{repo}/c/{rev}/{*path}", get(async |ask: Ask| ask.show(snapshot::view).await))
        .route("/r/{repo}/history/{rev}", get(async |ask: Ask| ask.show(history::view).await))
        .route(
            "/r/{repo}/history/{rev}/{*path}",
            get(async |ask: Ask| ask.show(history::view).await),
        )
        .route("/r/{repo}/diff", get(async |ask: Ask| ask.show(diff::view).await))
        .route("/r/{repo}/search", get(async |ask: Ask| ask.show(search::view).await))
        .route("/r/{repo}/refs", get(async |ask: Ask| ask.show(refs::view).await))
        .route("/r/{repo}/stats", get(async |ask: Ask| ask.show(stats::view).await))
        .route_layer(from_fn(hold_answer));
    Router::new()
        .route("/", get(home::view))
        .route("/assets/{name}", get(assets::read))
        .route("/login", get(login::show).post(login::enter))
        .route("/logout", post(login::leave))
        .merge(repositories)
        .with_state(pages)
}
