//! A store elsewhere that a command has opened, and the runtime in which it is
//! waited for.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use snap_core::{disk::scratch::Scratch, store::Distant};
use snap_remote::{
    distant::{LazyDistant, RemotePacks, Waiting},
    location::Scheme,
    service::{
        ServiceError, Stop, What,
        client::{Client, Policy},
        open::{self, Secrets},
    },
    store::{RemoteError, RemoteStore},
};
use snap_server::upstream::Origin;
use tokio::runtime::{Builder, Handle, Runtime};

use super::{
    credentials,
    network::{Network, Watched},
    patience,
    place::{self, Memory, Place},
    rate,
};
use crate::{context::Context, env::RemoteEnv, report::CliError, ui::text};

/// Threads that wait for the network; what they do between is little.
const THREADS: usize = 2;

/// How long what is under way may take at the end of a command.
pub(crate) const LAST_MOMENT: Duration = Duration::from_secs(1);

/// How fast bytes may go.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LimitArgs {
    /// Bytes a second to send at most, such as 500K; else the setting
    /// `transfer.limit_upload`
    #[arg(long, value_name = "RATE", value_parser = rate::parse)]
    limit_upload: Option<u64>,

    /// Bytes a second to fetch at most, such as 2M; else the setting
    /// `transfer.limit_download`
    #[arg(long, value_name = "RATE", value_parser = rate::parse)]
    limit_download: Option<u64>,
}

impl LimitArgs {
    /// For a command that only fetches.
    pub(crate) fn of_download(limit_download: Option<u64>) -> Self {
        Self { limit_upload: None, limit_download }
    }

    /// With what the settings say where nothing was given.
    fn settled(&self, cx: &Context) -> Result<(Option<u64>, Option<u64>), CliError> {
        let (upload, download) = cx.settings_here()?.0.limits()?;
        Ok((self.limit_upload.or(upload), self.limit_download.or(download)))
    }
}

/// A store elsewhere, opened.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Where it is.
    pub(crate) place: Place,
    /// What it holds.
    pub(crate) store: RemoteStore,
    /// Where requests are waited for.
    pub(crate) runtime: Handle,
    /// Gone with this, if what is known of it is not kept.
    scratch: Option<Arc<Scratch>>,
}

impl Connection {
    /// The store, and what must not go before it.
    pub(crate) fn into_parts(self) -> (RemoteStore, Option<Arc<Scratch>>) {
        (self.store, self.scratch)
    }

    /// Its packs, for a store here that fetches what it lacks.
    pub(crate) fn packs(&self, cx: &Context) -> Result<RemotePacks, CliError> {
        Ok(RemotePacks::new(&self.store, cx.waiting()?))
    }
}

/// What it takes to open a store elsewhere, now or when it is needed.
#[derive(Debug)]
struct Opener {
    place: Place,
    options: BTreeMap<String, String>,
    env: RemoteEnv,
    policy: Policy,
    network: Arc<Network>,
    cache: PathBuf,
    scratch: Option<Arc<Scratch>>,
    /// Who moves refs, for the log of a store on this machine.
    who: Option<String>,
}

impl Opener {
    fn new(
        place: Place,
        memory: Memory,
        limits: &LimitArgs,
        cx: &Context,
    ) -> Result<Self, CliError> {
        let (cache, scratch) = place.cache(memory, cx)?;
        if let Some(voice) = cx.ui().voice() {
            patience::tell(cx.network(), voice);
        }
        let is_local = place.location.scheme == Scheme::File;
        let who = is_local.then(|| {
            let config = cx.settings_here()?.0.config()?;
            Ok::<_, CliError>(format!("{} on {}", cx.author(&config), cx.host(&config)))
        });
        Ok(Self {
            who: who.transpose()?,
            options: place.all_options(cx),
            env: cx.remote_env().clone(),
            policy: cx.policy(limits)?,
            network: Arc::clone(cx.network()),
            place,
            cache,
            scratch,
        })
    }

    /// How the service is asked. A runtime must have been entered.
    fn client(&self) -> Result<Client, CliError> {
        let location = &self.place.location;
        let named = (&*self.place.shown(), location.scheme);
        let known = (&self.env, &*self.network);
        let secrets = credentials::find(named, &self.place.credentials, known)?;
        let secrets = Secrets { name: secrets.name.or_else(|| self.who.clone()), ..secrets };
        let traffic = self.network.traffic();
        let service = open::open(location, &self.options, &secrets, traffic)?;
        let service = Arc::new(Watched::new(service, Arc::clone(&self.network)));
        let client = Client::new(service, self.policy.clone(), Arc::clone(traffic));
        let network = Arc::clone(&self.network);
        let stop = Stop::when(move || network.is_stopped());
        Ok(client.until(stop).at(&location.to_string()))
    }

    fn store(&self) -> Result<RemoteStore, CliError> {
        let location = self.place.location.to_string();
        Ok(RemoteStore::new(self.client()?, location, &self.cache)?)
    }
}

/// A runtime to wait for the network in.
pub(crate) fn runtime() -> Result<Runtime, CliError> {
    let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    runtime.map_err(|source| CliError::Runtime { source })
}

impl Context {
    /// How requests are made.
    fn policy(&self, limits: &LimitArgs) -> Result<Policy, CliError> {
        Ok(Policy { limits: limits.settled(self)?, ..Policy::default() })
    }

    /// Asks the service at `place`, whatever is there. Nothing is asked yet.
    pub(crate) fn client(&self, place: &Place) -> Result<Client, CliError> {
        let _entered = self.runtime()?.enter();
        Opener::new(place.clone(), Memory::Kept, &LimitArgs::default(), self)?.client()
    }

    /// What `place` is to a server that stands before it.
    pub(crate) fn origin(&self, place: &Place) -> Result<Origin, CliError> {
        let location = place.location.clone();
        let named = (&*place.shown(), location.scheme);
        let known = (self.remote_env(), &**self.network());
        let secrets = credentials::find(named, &place.credentials, known)?;
        Ok(Origin { location, options: place.all_options(self), secrets })
    }

    /// Opens the store at `place`. Nothing is asked yet.
    pub(crate) fn connect(&self, place: Place, limits: &LimitArgs) -> Result<Connection, CliError> {
        self.connect_with(place, Memory::Kept, limits)
    }

    /// The same, with a choice of what becomes of what is learnt of it.
    pub(crate) fn connect_with(
        &self,
        place: Place,
        memory: Memory,
        limits: &LimitArgs,
    ) -> Result<Connection, CliError> {
        let runtime = self.runtime()?.handle().clone();
        let opener = Opener::new(place, memory, limits, self)?;
        let store = {
            let _entered = runtime.enter();
            opener.store()?
        };
        Ok(Connection { place: opener.place, store, runtime, scratch: opener.scratch })
    }

    /// How the network is waited for: until Ctrl-C.
    pub(crate) fn waiting(&self) -> Result<Waiting, CliError> {
        let network = Arc::clone(self.network());
        let stop = Arc::new(move || network.is_stopped());
        Ok(Waiting { runtime: self.runtime()?.handle().clone(), stop })
    }

    /// Where the store at `dir` gets what is absent: the usual remote, asked
    /// when it is needed. `None` where there is none.
    pub(crate) fn usual_distant(&self, dir: &Path) -> Result<Option<Arc<dyn Distant>>, CliError> {
        let settings = self.settings_of(dir)?;
        let place = match place::usual(&settings, dir) {
            Ok(place) if place.is_trusted() => place,
            Ok(place) => {
                let dir = text::word(dir.as_os_str().as_encoded_bytes());
                self.ui().warning(format_args!(
                    "objects that are not here are not fetched from {}: the settings of this \
                     store are not trusted (`snap config trust {dir}`)",
                    place.shown(),
                ));
                return Ok(None);
            }
            // Much can be done without.
            Err(
                CliError::NoRemotes | CliError::WhichRemote { .. } | CliError::Untrusted { .. },
            ) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let opener = Opener::new(place, Memory::Kept, &LimitArgs::default(), self)?;
        let runtime = self.runtime()?.handle().clone();
        let connect = move || {
            let _entered = runtime.enter();
            opener.store().map_err(|error| {
                let why = error.to_string();
                let location = opener.place.location.to_string();
                match error {
                    CliError::Remote(error) => *error,
                    _ => {
                        ServiceError { location, ..ServiceError::new("open", "", What::Other, why) }
                            .into()
                    }
                }
            })
        };
        Ok(Some(Arc::new(LazyDistant::new(connect, self.waiting()?))))
    }

    /// An error of a store elsewhere. What Ctrl-C broke off is no failure of
    /// the service.
    pub(crate) fn remote_error(&self, error: RemoteError) -> CliError {
        match error {
            RemoteError::Service(_) if self.cancelled() => RemoteError::Interrupted.into(),
            error => error.into(),
        }
    }
}
