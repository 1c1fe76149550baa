//! The routes of the HTTP API, one resource a file. `docs/protocol.md` describes the
//! API.
//!
//! [`app_service`](crate::app_service) adds access control, logs and limits to all requests.

mod bundles;
mod commits;
mod conditional;
mod disposition;
mod files;
mod history;
pub mod info;
mod objects;
mod packs;
mod path;
mod range;
mod refs;
mod status;
mod target;

use std::{
    io::{self, Write},
    sync::Arc,
};

use axum::{
    body::Body,
    handler::Handler,
    middleware::from_fn,
    routing::{MethodRouter, on},
};
use http::{HeaderMap, header};
use snap_core::base::observe::Observer;
use snap_remote::wire::routes::Route;

use self::files::FileCache;
use crate::{
    access::AccessControl,
    body::{
        BodyLimits, BodyPieces, BodyResources, blocking, blocking_until_disconnect,
        connection_table::ConnectionTable, drain, hold_answer, receive, stream_after_first_piece,
        stream_from_thread,
    },
    clock::Clock,
    hub::Hub,
    observe::{Observe, metrics::Metrics},
    problem::{Code, HttpProblem},
    quota::{QuotaReservation, Quotas},
    repository::Repository,
    route_table::{Routes, filter},
    settings::ServerSettings,
};

/// The state that all requests share.
#[derive(Clone, Debug)]
pub struct Server {
    shared: Arc<RouterState>,
}

#[derive(Debug)]
struct RouterState {
    hub: Hub,
    files: FileCache,
    settings: ServerSettings,
    access: Arc<AccessControl>,
    observe: Observe,
    quotas: Arc<Quotas>,
    ready: status::ReadinessCheck,
    bodies: Arc<BodyResources>,
}

impl Server {
    /// Creates a server for the repositories of `hub`, with its clock.
    pub fn new(hub: Hub, settings: ServerSettings) -> Self {
        let hub = hub.with_open_limit(settings.limits.open_repositories);
        let files = FileCache::new(settings.limits.cache_bytes);
        let clock = hub.clock();
        let access = Arc::new(AccessControl::new(hub.home(), &settings, clock.clone()));
        let observe = Observe::new(Arc::clone(&access), &settings, clock.clone());
        let bodies = BodyResources::new(settings.limits.stall(), clock.clone());
        let quotas = Arc::new(Quotas::new(settings.quota.clone()));
        let ready = status::ReadinessCheck::default();
        Self {
            shared: Arc::new(RouterState {
                hub,
                files,
                settings,
                access,
                observe,
                quotas,
                ready,
                bodies,
            }),
        }
    }

    /// Returns the clock of the server.
    pub fn clock(&self) -> &Clock {
        self.hub().clock()
    }

    /// Returns the resources that request and response bodies share.
    pub(crate) fn bodies(&self) -> &Arc<BodyResources> {
        &self.shared.bodies
    }

    /// Returns the repositories that the server serves.
    pub fn hub(&self) -> &Hub {
        &self.shared.hub
    }

    /// Returns the cache of files that were read recently.
    fn files(&self) -> &FileCache {
        &self.shared.files
    }

    /// Returns the access control: tokens and their rights.
    pub fn access(&self) -> &Arc<AccessControl> {
        &self.shared.access
    }

    /// Returns the logs and metrics of requests.
    pub fn observe(&self) -> &Observe {
        &self.shared.observe
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.shared.observe.metrics()
    }

    /// Returns the open connections.
    pub fn lines(&self) -> &Arc<ConnectionTable> {
        self.shared.observe.lines()
    }

    /// Returns the storage quotas of repositories.
    pub(crate) fn quotas(&self) -> &Arc<Quotas> {
        &self.shared.quotas
    }

    fn ready(&self) -> &status::ReadinessCheck {
        &self.shared.ready
    }

    /// Returns the settings of the server.
    pub fn settings(&self) -> &ServerSettings {
        &self.shared.settings
    }

    /// Runs `work` with a repository on a blocking thread.
    async fn with<T: Send + 'static>(
        &self,
        name: String,
        work: impl FnOnce(&Arc<Repository>) -> Result<T, HttpProblem> + Send + 'static,
    ) -> Result<T, HttpProblem> {
        let server = self.clone();
        blocking(move || server.run(&name, work)).await
    }

    /// Does the same as [`Server::with`]. The observer cancels `work` when the client disconnects.
    pub(crate) async fn with_observer<T: Send + 'static>(
        &self,
        name: String,
        work: impl FnOnce(&Arc<Repository>, &dyn Observer) -> Result<T, HttpProblem> + Send + 'static,
    ) -> Result<T, HttpProblem> {
        let server = self.clone();
        blocking_until_disconnect(move |observer| {
            server.run(&name, |repository| work(repository, observer))
        })
        .await
    }

    /// Runs `work` with a repository on this thread.
    fn run<T>(
        &self,
        name: &str,
        work: impl FnOnce(&Arc<Repository>) -> Result<T, HttpProblem>,
    ) -> Result<T, HttpProblem> {
        let repository =
            self.hub().get(name).map_err(|problem| self.hub().make_room_for(problem))?;
        work(&repository).map_err(|problem| self.for_client(&repository, problem))
    }

    /// Returns the problem to report to the client: a problem of this server's cache becomes one
    /// that the client may retry. May block.
    fn for_client(&self, repository: &Repository, problem: HttpProblem) -> HttpProblem {
        self.hub().make_room_for(repository.hide_cache_damage(problem))
    }

    /// Receives a body of at most `most_bytes` with `work`, within the quota of the repository. If the
    /// server refuses the request, it discards the body for a while, because a client that is still
    /// sending would not read the response.
    ///
    /// # Errors
    /// [`Code::TooLarge`], [`Code::Full`], and those of `work`.
    async fn take<T: Send + 'static>(
        &self,
        name: String,
        headers: &HeaderMap,
        body: Body,
        most_bytes: u64,
        work: impl FnOnce(&Arc<Repository>, BodyPieces) -> Result<T, HttpProblem> + Send + 'static,
    ) -> Result<T, HttpProblem> {
        let (server, length) = (self.clone(), declared_length(headers));
        let prepared = blocking(move || {
            let repository = server.hub().get(&name)?;
            if length.is_some_and(|length| length > most_bytes) {
                let why = format!("the body may have at most {most_bytes} bytes");
                return Err(HttpProblem::new(Code::TooLarge, why));
            }
            let room = server.quotas().reserve(&repository, length, most_bytes)?;
            Ok((repository, room))
        });
        let (repository, room) = match prepared.await {
            Ok(prepared) => prepared,
            Err(problem) => {
                drain(self.clock(), headers, body).await;
                return Err(problem);
            }
        };
        let within = room.as_ref().map_or(most_bytes, |room| room.bytes.min(most_bytes));
        let exceeded =
            room.as_ref().filter(|_| within < most_bytes).map(QuotaReservation::exceeded);
        let lingers = !headers.contains_key(header::EXPECT);
        let accept = BodyLimits { drain_on_refusal: lingers, ..self.accept(within) };
        let server = self.clone();
        let taken = receive(body, accept, move |pieces| {
            let done = work(&repository, pieces);
            // The quota counts the stored data now, so the reserved room must not count in
            // addition.
            drop(room);
            done.map_err(|problem| server.for_client(&repository, problem))
        });
        taken.await.map_err(|problem| match exceeded {
            Some(exceeded) if problem.code == Code::TooLarge => exceeded,
            _ => problem,
        })
    }

    /// Returns a body that `work` writes on a blocking thread, as [`stream_from_thread`] does.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when too many bodies are being written.
    async fn send(
        &self,
        work: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Result<Body, HttpProblem> {
        stream_from_thread(self.bodies(), work).await
    }

    /// Like [`send`](Self::send), but returns the body after its first bytes are written, as
    /// [`stream_after_first_piece`] does. An earlier error becomes a problem response.
    ///
    /// # Errors
    /// As [`send`](Self::send), and the error of `work` if it failed at the beginning.
    async fn send_begun(
        &self,
        work: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Result<Body, HttpProblem> {
        stream_after_first_piece(self.bodies(), work).await
    }

    /// Returns the limits for receiving a body of at most `most_bytes`.
    pub(crate) fn accept(&self, most_bytes: u64) -> BodyLimits {
        BodyLimits { most_bytes, resources: Arc::clone(self.bodies()), drain_on_refusal: true }
    }
}

/// Returns the length of the body according to `Content-Length`.
fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns the routes of the API. The handlers check no tokens: [`app_service`](crate::app_service)
/// does.
pub fn routes() -> Routes<Server> {
    let add = |routes: Routes<Server>, route: &Route| routes.add(route.spec(), handler(*route));
    Route::ALL.iter().fold(Routes::new(), add).map_router(|router| {
        router
            .fallback(async || HttpProblem::new(Code::NoRoute, ""))
            .method_not_allowed_fallback(async || HttpProblem::new(Code::NoMethod, ""))
    })
}

/// Returns the handler of an operation.
fn handler(route: Route) -> MethodRouter<Server> {
    match route {
        Route::Health => to(route, status::health),
        Route::Ready => to(route, status::ready),
        Route::Metrics => to(route, status::metrics),
        Route::Server => to(route, info::server),
        Route::Openapi => to(route, info::openapi),
        Route::Repositories => to(route, info::repositories),
        Route::CreateRepository => to(route, info::create),
        Route::Config => to(route, info::config),
        Route::MendConfig => to(route, info::mend_config),
        Route::Head => to(route, refs::head),
        Route::MendHead => to(route, refs::mend_head),
        Route::Refs => buffered(to(route, refs::list)),
        Route::Ref => to(route, refs::read),
        Route::MoveRef => to(route, refs::write),
        Route::DeleteRef => to(route, refs::delete),
        Route::Packs => to(route, packs::list),
        Route::Pack | Route::PackLength => to(route, packs::read),
        Route::SendPack => to(route, packs::write),
        Route::Index => to(route, packs::index),
        Route::IndexFile => to(route, packs::index_file),
        Route::Publish => to(route, packs::publish),
        Route::Object | Route::ObjectLength => to(route, objects::read),
        Route::SendObject => to(route, objects::write),
        Route::Missing => to(route, objects::missing),
        Route::TakeBundle => to(route, bundles::take),
        Route::Log => buffered(to(route, history::log)),
        Route::Diff => buffered(to(route, history::diff)),
        Route::Find => buffered(to(route, history::find)),
        Route::Stats => buffered(to(route, history::stats)),
        Route::Commit => to(route, commits::read),
        Route::Tree | Route::TreeAt => to(route, commits::tree),
        Route::Tar => to(route, commits::tar),
        Route::TarZst => to(route, commits::tar_zst),
        Route::Zip => to(route, commits::zip),
        Route::Bundle | Route::BundleLength => to(route, bundles::read),
        Route::BundleWithout => to(route, bundles::without),
        Route::File | Route::FileLength => to(route, files::read),
    }
}

/// Sends requests with the method of the route to `handler`.
fn to<T: 'static>(route: Route, handler: impl Handler<T, Server>) -> MethodRouter<Server> {
    on(filter(&route.spec().method), handler)
}

/// Prepares a handler whose responses are built whole in memory, and may be long.
fn buffered(handler: MethodRouter<Server>) -> MethodRouter<Server> {
    handler.route_layer(from_fn(hold_answer))
}
