//! The protocol, resource by resource: `docs/protocol.md`.

mod bundles;
mod commits;
mod conditional;
mod disposition;
mod files;
mod history;
mod ids;
pub mod info;
mod objects;
mod packs;
mod path;
mod range;
mod refs;
mod status;
mod target;
mod uploads;

use std::{
    io::{self, Write},
    sync::Arc,
};

use axum::{
    Router,
    body::Body,
    middleware::from_fn,
    routing::{get, head, post, put},
};

use http::{HeaderMap, header};

use self::files::Files;
use crate::{
    access::Access,
    body::{Accept, Pieces, blocking, hold_answer, line::Lines, linger, receive, send, send_begun},
    hub::Hub,
    observe::{Observe, metrics::Metrics},
    problem::{Code, Problem},
    quota::{Quotas, Room},
    repository::Repository,
    settings::Settings,
};

/// Version of the protocol, the first part of each path.
pub const PROTOCOL: u32 = 1;

/// What all requests share.
#[derive(Clone, Debug)]
pub struct Server {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    hub: Hub,
    files: Files,
    settings: Settings,
    access: Arc<Access>,
    observe: Observe,
    quotas: Arc<Quotas>,
    ready: status::Ready,
}

impl Server {
    /// A server of these repositories.
    pub fn new(hub: Hub, settings: Settings) -> Self {
        let hub = hub.keeping_open(settings.limits.open_repositories);
        let files = Files::new(settings.limits.cache_bytes);
        let access = Arc::new(Access::new(hub.home(), &settings));
        let observe = Observe::new(Arc::clone(&access), &settings);
        let quotas = Arc::new(Quotas::new(settings.quota.clone()));
        let ready = status::Ready::default();
        Self { shared: Arc::new(Shared { hub, files, settings, access, observe, quotas, ready }) }
    }

    /// Its repositories.
    pub fn hub(&self) -> &Hub {
        &self.shared.hub
    }

    /// Files that were read lately.
    fn files(&self) -> &Files {
        &self.shared.files
    }

    /// Who may do what there.
    pub fn access(&self) -> &Arc<Access> {
        &self.shared.access
    }

    /// What sees each request.
    pub fn observe(&self) -> &Observe {
        &self.shared.observe
    }

    /// What is counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.shared.observe.metrics()
    }

    /// The connections that requests come over.
    pub fn lines(&self) -> &Arc<Lines> {
        self.shared.observe.lines()
    }

    /// How much repositories may hold.
    fn quotas(&self) -> &Arc<Quotas> {
        &self.shared.quotas
    }

    fn ready(&self) -> &status::Ready {
        &self.shared.ready
    }

    /// What was chosen for it.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Does `work` with a repository, in a thread.
    async fn with<T: Send + 'static>(
        &self,
        name: String,
        work: impl FnOnce(&Arc<Repository>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let server = self.clone();
        let work = move || {
            let done = server.hub().get(&name).and_then(|repository| {
                work(&repository).map_err(|problem| repository.mended(problem))
            });
            done.map_err(|problem| server.hub().relieve(problem))
        };
        blocking(work).await
    }

    /// Has `work` take a body of at most `most_bytes`, for which there is room in
    /// the repository.
    ///
    /// # Errors
    /// [`Code::TooLarge`], [`Code::Full`], and those of `work`.
    async fn take<T: Send + 'static>(
        &self,
        name: String,
        (headers, body): (&HeaderMap, Body),
        most_bytes: u64,
        work: impl FnOnce(&Arc<Repository>, Pieces) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let length = said_length(headers);
        let prepare = move |quotas: &Quotas, repository: &Repository| {
            if length.is_some_and(|length| length > most_bytes) {
                let why = format!("at most {most_bytes} bytes");
                return Err(Problem::new(Code::TooLarge, why));
            }
            Ok((most_bytes, quotas.room(repository, length, most_bytes)?))
        };
        self.take_after(name, (headers, body), prepare, work).await
    }

    /// Has `work` take a body of as many bytes as `prepare` says, and as there was
    /// made room for. Whoever sends what is refused comes to read why.
    ///
    /// # Errors
    /// [`Code::TooLarge`], [`Code::Full`], and those of both.
    async fn take_after<T: Send + 'static>(
        &self,
        name: String,
        (headers, body): (&HeaderMap, Body),
        prepare: impl FnOnce(&Quotas, &Repository) -> Result<(u64, Option<Room>), Problem>
        + Send
        + 'static,
        work: impl FnOnce(&Arc<Repository>, Pieces) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let server = self.clone();
        let prepared = blocking(move || {
            let repository = server.hub().get(&name)?;
            let (most_bytes, room) = prepare(server.quotas(), &repository)?;
            Ok((repository, most_bytes, room))
        });
        let (repository, most_bytes, room) = match prepared.await {
            Ok(prepared) => prepared,
            Err(problem) => {
                linger(headers, body).await;
                return Err(problem);
            }
        };
        let within = room.as_ref().map_or(most_bytes, |room| room.bytes.min(most_bytes));
        let lingers = !headers.contains_key(header::EXPECT);
        let accept = Accept { lingers, ..self.accept(within) };
        let server = self.clone();
        let taken = receive(body, accept, move |pieces| {
            let done = work(&repository, pieces);
            done.map_err(|problem| server.hub().relieve(repository.mended(problem)))
        });
        taken.await.map_err(|problem| match &room {
            Some(room) if problem.code == Code::TooLarge && within < most_bytes => room.exceeded(),
            _ => problem,
        })
    }

    /// A body that a thread writes, as [`send`].
    ///
    /// # Errors
    /// [`Code::Unavailable`] when too many are written already.
    async fn send(
        &self,
        work: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Result<Body, Problem> {
        send(self.settings().limits.stall(), work).await
    }

    /// The same, of which the beginning is waited for, as [`send_begun`].
    ///
    /// # Errors
    /// As [`send`](Self::send), and why nothing of it came.
    async fn send_begun(
        &self,
        work: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Result<Body, Problem> {
        send_begun(self.settings().limits.stall(), work).await
    }

    /// A body of at most so many bytes is taken.
    fn accept(&self, most_bytes: u64) -> Accept {
        Accept { most_bytes, stall: self.settings().limits.stall(), lingers: true }
    }
}

/// How long a body is said to be.
fn said_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The protocol. It is to be guarded: [`around`](crate::around).
pub fn router(server: Server) -> Router {
    let repository = Router::new()
        .route("/", put(info::create))
        .route("/config", get(info::config))
        .route("/head", get(refs::head))
        .route("/refs/{*name}", get(refs::read).put(refs::write).delete(refs::delete))
        .route("/packs", get(packs::list))
        .route("/packs/{id}", get(packs::read).put(packs::write))
        .route(
            "/uploads/{id}",
            head(uploads::standing).patch(uploads::resume).delete(uploads::forget),
        )
        .route("/index", get(packs::index))
        .route("/index/{name}", get(packs::index_file).put(packs::publish))
        .route("/objects/{id}", get(objects::read).put(objects::write))
        .route("/missing", post(objects::missing))
        .route("/bundles", post(bundles::take))
        .route(
            "/bundles/{id}",
            head(uploads::standing).patch(uploads::resume_bundle).delete(uploads::forget),
        )
        .merge(made_whole());
    Router::new()
        .route("/v1", get(info::server))
        .route("/v1/openapi.json", get(info::openapi))
        .route("/v1/repos", get(info::repositories))
        .nest("/v1/repos/{repo}", repository)
        .merge(commits())
        .route("/health", get(status::health))
        .route("/ready", get(status::ready))
        .route("/metrics", get(status::metrics))
        .fallback(async || Problem::new(Code::NoRoute, ""))
        .method_not_allowed_fallback(async || Problem::new(Code::NoMethod, ""))
        .with_state(server)
}

/// Answers that are made as a whole, and may be long.
fn made_whole() -> Router<Server> {
    Router::new()
        .route("/refs", get(refs::list))
        .route("/log", get(history::log))
        .route("/diff", get(history::diff))
        .route("/find", get(history::find))
        .route("/stats", get(history::stats))
        .route_layer(from_fn(hold_answer))
}

/// What reads commits. Their paths are not nested, so that [`target::Target`]
/// sees all of them.
fn commits() -> Router<Server> {
    Router::new()
        .route("/v1/repos/{repo}/commits/{commit}", get(commits::read))
        .route("/v1/repos/{repo}/commits/{commit}/tree", get(commits::tree))
        .route("/v1/repos/{repo}/commits/{commit}/tree/{*path}", get(commits::tree))
        .route("/v1/repos/{repo}/commits/{commit}/archive.tar", get(commits::tar))
        .route("/v1/repos/{repo}/commits/{commit}/archive.tar.zst", get(commits::tar_zst))
        .route("/v1/repos/{repo}/commits/{commit}/archive.zip", get(commits::zip))
        .route(
            "/v1/repos/{repo}/commits/{commit}/bundle",
            get(bundles::read).post(bundles::without),
        )
        .route("/v1/repos/{repo}/commits/{commit}/files/{*path}", get(files::read))
}
