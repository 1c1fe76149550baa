//! `snap serve`: a server for stores.

mod log;
mod token;

use std::{
    fs::{File, TryLockError},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Subcommand;
use snap_core::disk::Disk;
use snap_server::{
    access,
    hub::Hub,
    observe::audit::Audit,
    routes::Server,
    run::{Listening, Stop, runtime},
    settings::{Format, Settings},
    tls::Tls,
    upstream::{Upstream, cache::Cache},
};

use crate::{
    context::Context,
    remote::LAST_MOMENT,
    report::{CliError, Done, ServeError},
    ui::text,
};

/// How often it is looked whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  snap serve                                 the store you stand in, on this machine
  mkdir -p /srv/snap; snap serve /srv/snap   a folder of stores; pushes make them
  snap serve s3://bucket/prefix              a store in a bucket, or all that are below
  snap serve --upstream http://host:7627     a relay: what was read once is kept here
  snap serve --listen 127.0.0.1:8080
  snap serve token add ada                   from then on, nobody without a token
  snap clone http://127.0.0.1:7627 copy      in another terminal
  snap push http://127.0.0.1:7627/team/project main";

/// Serve a store, or a folder of stores, over HTTP
///
/// Without STORE it is the store you stand in. Of a folder, each store in it is a
/// repository, named by its path; a push to a name that is not there yet makes
/// one. Of a bucket, or of another server, the same is served: what is read is
/// kept here, and served when the upstream is away; what is pushed goes there
/// before it is acknowledged, so any number of servers can stand before one bucket.
/// Everything that is pushed is checked before anybody sees it. Ctrl-C stops
/// it once what is under way has ended. Until `snap serve token` has made a
/// token it listens on this machine only. Settings, tokens, TLS: docs/server.md.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct ServeArgs {
    /// What to do; serve if not given
    #[command(subcommand)]
    action: Option<Action>,

    /// Store, folder of stores, or a location such as s3://bucket/prefix; the
    /// store you stand in if not given
    #[arg(value_name = "STORE")]
    place: Option<PathBuf>,

    /// Location or remote to stand before, in place of a folder
    #[arg(long, value_name = "REMOTE|URL")]
    upstream: Option<String>,

    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// File of settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// File with the certificate to show, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// File with its private key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Listen on any address without a single token: whoever reaches it reads
    /// everything and pushes what they like
    #[arg(long)]
    without_tokens_anyone_may_read_and_write: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    Token(token::TokenArgs),
}

/// What a file and the environment say, or what holds without them.
fn settings(file: Option<&Path>, cx: &Context) -> Result<Settings, ServeError> {
    Ok(Settings::read(file, &cx.variables())?)
}

impl ServeArgs {
    /// What the file and the environment say, and the flags in their place.
    fn settings(&self, cx: &Context) -> Result<Settings, ServeError> {
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

pub(crate) fn run(args: &ServeArgs, cx: &Context) -> Result<Done, CliError> {
    if let Some(Action::Token(args)) = &args.action {
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
        Format::Text => cx.ui().status(format_args!("Serving {shown} at {scheme}://{address}")),
        Format::Json => {
            tracing::info!(place = shown, url = %format_args!("{scheme}://{address}"), "serving")
        }
    }
    serve(listening, cx)?.map_err(failed)?;
    Ok(Done::Well)
}

/// Answers until it is asked to stop, and what is under way has ended or had the
/// time for that.
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
    // Threads may wait for what never comes, such as an answer of the upstream.
    runtime.shutdown_timeout(LAST_MOMENT);
    Ok(done)
}

/// What is served, and what it is called.
fn hub(args: &ServeArgs, settings: &Settings, cx: &Context) -> Result<(Hub, String), CliError> {
    let upstream = args.upstream.as_deref().or(settings.upstream.as_deref());
    let url = args.place.as_deref().and_then(url);
    match (upstream, &args.place) {
        (Some(upstream), Some(place)) => {
            Err(ServeError::Twice { place: shown(place), upstream: upstream.to_owned() }.into())
        }
        (Some(named), None) => behind(named, settings, cx),
        (None, Some(_)) if let Some(url) = url => behind(url, settings, cx),
        (None, Some(place)) => Ok((Hub::open(there(place)?)?, shown(place))),
        (None, None) => {
            let place = cx.store_dir()?;
            cx.check_found(&place)?;
            Ok((Hub::open(&place)?, shown(&place)))
        }
    }
}

/// Name of the file that a server locks in the folder that it serves.
const LOCK: &str = "serve.lock";

/// Keeps other servers from what is served: a server takes what it has listed for
/// all there is. It holds the lock of `serve.lock` in the folder as long as it runs, and
/// there must be no server of a folder in which this one lies, or of a store in it. Where
/// the file cannot be made or locked, such as on a read-only disk, nobody is refused.
fn alone(hub: &Hub, shown: &str) -> Result<Option<File>, ServeError> {
    let Some(home) = hub.home() else { return Ok(None) };
    let disk = Disk::default().in_store(home);
    let lock = disk.lock_file(&home.join(LOCK)).ok();
    if let Some(Err(TryLockError::WouldBlock)) = lock.as_ref().map(File::try_lock) {
        return Err(ServeError::Served { place: shown.to_owned() });
    }
    // Of two that start at once, each has its own lock by now.
    let is_served = |folder: &PathBuf| {
        let file = fs_err::File::open(folder.join(LOCK));
        file.is_ok_and(|file| matches!(file.file().try_lock(), Err(TryLockError::WouldBlock)))
    };
    match hub.others().into_iter().find(is_served) {
        Some(place) => Err(ServeError::Served { place: self::shown(&place) }),
        None => Ok(lock),
    }
}

/// What was named as a location, not as a folder.
fn url(place: &Path) -> Option<&str> {
    place.to_str().filter(|text| text.contains("://"))
}

fn shown(place: &Path) -> String {
    text::line(place.as_os_str().as_encoded_bytes()).to_string()
}

/// The place of a store or a folder of stores, if anything is there.
fn there(place: &Path) -> Result<&Path, ServeError> {
    match fs_err::symlink_metadata(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(ServeError::Nothing { place: shown(place) })
        }
        _ => Ok(place),
    }
}

fn behind(named: &str, settings: &Settings, cx: &Context) -> Result<(Hub, String), CliError> {
    let place = cx.remote(Some(named).into())?;
    let shown = place.shown();
    let of_user = || cx.cache_home().map(|home| home.join("snap").join("serve"));
    let above = settings.cache.clone().or_else(of_user).ok_or(ServeError::NoCacheFolder)?;
    let origin = cx.origin(&place)?;
    let cache = Cache::open(&above, &origin.key(), settings.cache_bytes);
    let cache = cache.map_err(snap_remote::store::RemoteError::from)?;
    let runtime = cx.runtime()?.handle().clone();
    let upstream = Upstream::new(origin, cache, &settings.limits, runtime)?;
    Ok((Hub::behind(upstream), shown))
}

/// Waits for Ctrl-C, and says so to the server.
async fn asked_to_stop(cx: &Context, stop: &Stop) {
    while !cx.cancelled() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    stop.stop();
}
