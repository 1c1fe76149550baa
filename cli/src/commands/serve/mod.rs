//! `snap serve`: runs a server for stores.

mod log;
mod token;

use std::{
    fs::{File, TryLockError},
    io,
    net::SocketAddr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Subcommand;
use snap_core::{disk::Disk, repo::config, store::Epoch};
use snap_server::{
    access,
    hub::Hub,
    observe::audit::Audit,
    routes::Server,
    run::{Listening, ShutdownHandle, runtime},
    settings::{LogFormat, ServerSettings},
    tls::Tls,
    upstream::{Upstream, cache::CacheFolder},
};

use crate::{
    context::Context,
    remote::LAST_MOMENT,
    report::{CliError, CommandOutcome, ServeError},
    serve_lock::{LOCK, is_served},
    ui::text,
};

/// Interval of the checks whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  snap serve                                 the current store, on this machine
  mkdir -p /srv/snap; snap serve /srv/snap   a folder of stores; pushes create them
  snap serve s3://bucket/prefix              the stores in a bucket
  snap serve --upstream http://host:7627     a cache for another server
  snap serve --listen 127.0.0.1:8080
  snap serve token add ada                   from then on, clients need a token
  snap clone http://127.0.0.1:7627 copy      in another terminal
  snap push http://127.0.0.1:7627/team/project main";

/// Serve a store, or a folder of stores, over HTTP
///
///
/// STORE is a store or a folder of stores. Each store in a folder is a repository, named by its
/// path; a push to a new name creates one. The server verifies all pushed data before clients see
/// it. Without tokens (see `snap serve token`), it listens on this machine only. Ctrl-C stops it
/// after the requests in progress.
///
/// An upstream is a bucket or another server. The server caches data of the upstream, and serves it
/// even if the upstream is unreachable. Pushes are forwarded before they are acknowledged, so several servers can
/// share a bucket. docs/server.md describes settings, tokens and TLS.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct ServeArgs {
    /// What to do; default: serve
    #[command(subcommand)]
    action: Option<ServeAction>,

    /// Store, folder of stores, or a URL such as s3://bucket/prefix; default: the current store
    #[arg(value_name = "STORE")]
    place: Option<PathBuf>,

    /// Upstream: a remote or URL to serve instead of a folder
    #[arg(long, value_name = "REMOTE|URL")]
    upstream: Option<String>,

    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Settings file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// File with the server certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// File with the private key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Listen on any address without tokens: every client can read and push everything
    #[arg(long)]
    without_tokens_anyone_may_read_and_write: bool,
}

#[derive(Debug, Subcommand)]
enum ServeAction {
    Token(token::TokenArgs),
}

/// Returns the settings of the file and the environment, with defaults.
fn settings(file: Option<&Path>, cx: &Context) -> Result<ServerSettings, ServeError> {
    Ok(ServerSettings::read(file, &cx.variables())?)
}

impl ServeArgs {
    /// Returns the settings of the file and the environment, overridden by the flags.
    fn settings(&self, cx: &Context) -> Result<ServerSettings, ServeError> {
        let mut settings = settings(self.config.as_deref(), cx)?;
        if let Some(listen) = self.listen {
            settings.listen = listen;
        }
        settings.without_tokens_anyone_may_read_and_write |=
            self.without_tokens_anyone_may_read_and_write;
        if let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) {
            settings.tls = Some(Tls { cert: cert.clone(), key: key.clone() });
        }
        Ok(settings)
    }
}

pub(crate) fn run(args: &ServeArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    if let Some(ServeAction::Token(args)) = &args.action {
        return token::run(args, cx);
    }
    let settings = args.settings(cx)?;
    let (hub, shown) = hub(args, &settings, cx)?;
    let _alone = alone(&hub, &shown)?;
    let has_tokens = access::check(hub.home(), &settings).map_err(ServeError::from)?;
    let is_open = !has_tokens && !settings.without_tokens_anyone_may_read_and_write;
    if is_open && !settings.listen.ip().is_loopback() {
        let is_behind = hub.upstream().is_some();
        return Err(ServeError::OpenToAll { address: settings.listen, is_behind }.into());
    }
    let read_only = hub.home().map_or(Ok(Vec::new()), collected)?;
    let scheme = match &settings.tls {
        Some(tls) => tls.read().map(|_| "https").map_err(ServeError::from)?,
        None => "http",
    };
    if let Some(path) = &settings.log.audit {
        Audit::open(path)?;
    }
    let _lines = log::log(&settings.log);
    let (listen, format) = (settings.listen, settings.log.format);
    let failed = |source| ServeError::Listen { address: listen, source };
    let listening = Listening::new(Server::new(hub, settings)).map_err(failed)?;
    let address = listening.address().map_err(failed)?;
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        let url = format!("{scheme}://{address}");
        out.json(&serde_json::json!({ "version": 1, "type": "serving", "url": url }))?;
        out.finish()?;
    }
    match format {
        LogFormat::Text => cx.ui().status(format_args!("Serving {shown} at {scheme}://{address}")),
        LogFormat::Json => {
            tracing::info!(place = shown, url = %format_args!("{scheme}://{address}"), "serving")
        }
    }
    for (store, reason) in read_only {
        let store = text::line(store.as_os_str().as_bytes());
        match format {
            LogFormat::Text => {
                cx.ui().status(format_args!("{store} is served read-only, because {reason}"));
            }
            LogFormat::Json => tracing::warn!(store, reason, "served read-only"),
        }
    }
    serve(listening, cx)?.map_err(failed)?;
    Ok(CommandOutcome::Success)
}

/// Returns the stores that are served read-only, each with the reason: `home`, or stores in it.
fn collected(home: &Path) -> Result<Vec<(PathBuf, &'static str)>, CliError> {
    let below = fs_err::read_dir(home).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut stores: Vec<PathBuf> = std::iter::once(home.to_owned()).chain(below).collect();
    stores.sort_unstable();
    let mut found = Vec::new();
    for store in stores.into_iter().filter(|store| store.join(config::FILE).is_file()) {
        if Epoch::is_lost(&store).map_err(CliError::File)? {
            found.push((store, "its file `gc` is lost or damaged"));
        } else if !Epoch::read(&store).map_err(CliError::File)?.is_first() {
            found.push((store, "`snap gc` has run there"));
        }
    }
    Ok(found)
}

/// Serves requests until it is stopped, and until the requests in progress have ended or timed out.
fn serve(listening: Listening, cx: &Context) -> Result<io::Result<()>, CliError> {
    let runtime = runtime().map_err(|source| CliError::Runtime { source })?;
    let stop = listening.stop();
    let done = runtime.block_on(async {
        let answer = listening.answer();
        tokio::pin!(answer);
        tokio::select! {
            done = &mut answer => return done,
            () = asked_to_stop(cx, &stop) => {}
        }
        answer.await
    });
    // Threads may be blocked, for example on a response of the upstream.
    runtime.shutdown_timeout(LAST_MOMENT);
    Ok(done)
}

/// Opens what is served. Returns its name too.
fn hub(
    args: &ServeArgs,
    settings: &ServerSettings,
    cx: &Context,
) -> Result<(Hub, String), CliError> {
    let upstream = args.upstream.as_deref().or(settings.upstream.as_deref());
    let url = args.place.as_deref().and_then(url);
    match (upstream, &args.place) {
        (Some(upstream), Some(place)) => {
            Err(ServeError::Twice { place: shown(place), upstream: upstream.to_owned() }.into())
        }
        (Some(named), None) => behind(named, settings, cx),
        (None, Some(place)) => match url {
            Some(url) => behind(url, settings, cx),
            None => Ok((Hub::open(existing_path(place)?)?, shown(place))),
        },
        (None, None) => {
            let place = cx.store_dir()?;
            cx.check_found(&place)?;
            Ok((Hub::open(&place)?, shown(&place)))
        }
    }
}

/// Prevents two servers from serving the same stores, because a server relies on its cached
/// listing. The server holds the lock on `serve.lock` in its folder as long as it runs. There must
/// be no other server of a folder that contains this one, or of a store in it. If the file cannot
/// be created or locked, for example on a read-only disk, the check is skipped.
fn alone(hub: &Hub, shown: &str) -> Result<Option<File>, ServeError> {
    let Some(home) = hub.home() else { return Ok(None) };
    let disk = Disk::default().in_store(home);
    let lock = disk.lock_file(&home.join(LOCK)).ok();
    if let Some(Err(TryLockError::WouldBlock)) = lock.as_ref().map(File::try_lock) {
        return Err(ServeError::Served { place: shown.to_owned() });
    }
    // If two servers start at the same time, each holds its own lock by now, so at least one of
    // them sees the other.
    match hub.lock_candidates().into_iter().find(|folder| is_served(folder)) {
        Some(place) => Err(ServeError::Served { place: self::shown(&place) }),
        None => Ok(lock),
    }
}

/// Returns the argument if it is a location instead of a folder.
fn url(place: &Path) -> Option<&str> {
    place.to_str().filter(|text| text.contains("://"))
}

fn shown(place: &Path) -> String {
    text::line(place.as_os_str().as_encoded_bytes()).to_string()
}

/// Returns the path if anything exists there.
fn existing_path(place: &Path) -> Result<&Path, ServeError> {
    match fs_err::symlink_metadata(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(ServeError::Nothing { place: shown(place) })
        }
        _ => Ok(place),
    }
}

fn behind(named: &str, settings: &ServerSettings, cx: &Context) -> Result<(Hub, String), CliError> {
    let place = cx.remote(Some(named).into())?;
    let shown = place.shown();
    let of_user = || cx.cache_home().map(|home| home.join("snap").join("serve"));
    let above = settings.cache.clone().or_else(of_user).ok_or(ServeError::NoCacheFolder)?;
    let origin = cx.origin(&place)?;
    let cache = CacheFolder::open(&above, &origin.key(), settings.cache_bytes);
    let cache = cache.map_err(snap_remote::peer::RemoteError::from)?;
    let runtime = cx.runtime()?.handle().clone();
    let upstream = Upstream::new(origin, cache, &settings.limits, runtime)?;
    Ok((Hub::for_upstream(upstream), shown))
}

/// Waits for Ctrl-C, then stops the server.
async fn asked_to_stop(cx: &Context, stop: &ShutdownHandle) {
    while !cx.cancelled() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    stop.stop();
}
