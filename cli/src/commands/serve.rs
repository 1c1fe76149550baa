//! `snap serve`: a server for stores.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use snap_server::{
    hub::Hub,
    routes::Server,
    run::{Listening, Stop},
    settings::Settings,
    upstream::{Upstream, cache::Cache},
};

use crate::{
    context::Context,
    report::{CliError, Done},
    ui::text,
};

/// How often it is looked whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  snap serve                                 the store you stand in, on this machine
  snap serve /srv/snap                       a store, or a folder of stores
  snap serve s3://bucket/prefix              a store in a bucket, or all that are below
  snap serve --upstream http://host:7627     a relay: what was read once is kept here
  snap serve --listen 127.0.0.1:8080
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
/// it once what is under way has ended. There are no tokens yet: it listens on
/// this machine only.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Store, folder of stores, or a location such as s3://bucket/prefix; the
    /// store you stand in if not given
    #[arg(value_name = "FOLDER")]
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
}

pub(crate) fn run(args: &ServeArgs, cx: &Context) -> Result<Done, CliError> {
    let mut settings = match &args.config {
        Some(path) => Settings::read(path).map_err(|source| CliError::Serve { source })?,
        None => Settings::default(),
    };
    if let Some(listen) = args.listen {
        settings.listen = listen;
    }
    if !settings.listen.ip().is_loopback() {
        return Err(CliError::OpenToAll { address: settings.listen });
    }
    let (hub, shown) = hub(args, &settings, cx)?;
    let listen = settings.listen;
    let failed = |source| CliError::Listen { address: listen, source };
    let listening = Listening::new(Server::new(hub, settings)).map_err(failed)?;
    let address = listening.address().map_err(failed)?;
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        let url = format!("http://{address}");
        out.json(&serde_json::json!({ "version": 1, "type": "serving", "url": url }))?;
        out.finish()?;
    }
    cx.ui().status(format_args!("Serving {shown} at http://{address}"));
    // What goes wrong with a request is its sender's to know in short, and ours
    // in full.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_ansi(false)
        .init();
    let stop = listening.stop();
    cx.runtime()?
        .block_on(async {
            let answer = listening.answer();
            tokio::pin!(answer);
            tokio::select! {
                done = &mut answer => return done,
                () = asked_to_stop(cx, &stop) => {}
            }
            answer.await
        })
        .map_err(failed)?;
    Ok(Done::Well)
}

/// What is served, and what it is called.
fn hub(args: &ServeArgs, settings: &Settings, cx: &Context) -> Result<(Hub, String), CliError> {
    let upstream = args.upstream.as_deref().or(settings.upstream.as_deref());
    let url = args.place.as_deref().and_then(Path::to_str).filter(|text| text.contains("://"));
    let shown = |place: &Path| text::line(place.as_os_str().as_encoded_bytes()).to_string();
    match (upstream, &args.place) {
        (Some(upstream), Some(place)) => {
            Err(CliError::ServeTwice { place: shown(place), upstream: upstream.to_owned() })
        }
        (Some(named), None) => behind(named, settings, cx),
        (None, Some(_)) if let Some(url) = url => behind(url, settings, cx),
        (None, place) => {
            let place = place.clone().map_or_else(|| cx.store_dir(), Ok)?;
            Ok((Hub::open(&place)?, shown(&place)))
        }
    }
}

fn behind(named: &str, settings: &Settings, cx: &Context) -> Result<(Hub, String), CliError> {
    let place = cx.remote(Some(named).into())?;
    let shown = place.shown();
    let of_user = || cx.cache_home().map(|home| home.join("snap").join("serve"));
    let above = settings.cache.clone().or_else(of_user).ok_or(CliError::NoCacheFolder)?;
    let origin = cx.origin(&place)?;
    let cache = Cache::open(&above, &origin.key(), settings.cache_bytes);
    let cache = cache.map_err(snap_remote::store::RemoteError::from)?;
    let patience = Duration::from_secs(settings.limits.upstream_secs);
    let runtime = cx.runtime()?.handle().clone();
    let upstream = Upstream::new(origin, cache, patience, runtime)?;
    Ok((Hub::behind(upstream), shown))
}

/// Waits for Ctrl-C, and says so to the server.
async fn asked_to_stop(cx: &Context, stop: &Stop) {
    while !cx.cancelled() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    stop.stop();
}
