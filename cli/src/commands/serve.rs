//! `snap serve`: a server for stores.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use snap_server::{
    hub::Hub,
    routes::Server,
    run::{Listening, Stop},
    settings::Settings,
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
  snap serve --listen 127.0.0.1:8080
  snap clone http://127.0.0.1:7627 copy      in another terminal
  snap push http://127.0.0.1:7627/team/project main";

/// Serve a store, or a folder of stores, over HTTP
///
/// Without STORE it is the store you stand in. Of a folder, each store in it is a
/// repository, named by its path; a push to a name that is not there yet makes
/// one. Everything that is pushed is checked before anybody sees it. Ctrl-C stops
/// it once what is under way has ended. There are no tokens yet: it listens on
/// this machine only.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Store, or folder of stores; the store you stand in if not given
    #[arg(value_name = "FOLDER")]
    place: Option<PathBuf>,

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
    let place = match &args.place {
        Some(place) => place.clone(),
        None => cx.store_dir()?,
    };
    let hub = Hub::open(&place)?;
    let listen = settings.listen;
    let failed = |source| CliError::Listen { address: listen, source };
    let listening = Listening::new(Server::new(hub, settings)).map_err(failed)?;
    let address = listening.address().map_err(failed)?;
    let shown = text::line(place.as_os_str().as_encoded_bytes());
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

/// Waits for Ctrl-C, and says so to the server.
async fn asked_to_stop(cx: &Context, stop: &Stop) {
    while !cx.cancelled() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    stop.stop();
}
