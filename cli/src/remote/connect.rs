//! Opens remotes for commands, and holds the runtime in which their requests run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use snap_core::{base::blocked::Blocked, disk::scratch::Scratch, store::RemoteFrames};
use snap_remote::{
    bucket::{
        CancellationToken, FailureReason, ServiceError,
        client::{RequestPolicy, TransferLimits},
    },
    location::Scheme,
    peer::{
        ConditionProofs, Place, RemoteError, RemoteStore,
        open::{OpenError, Opening, RemoteCredentials},
    },
    remote_packs::{BlockingContext, LazyRemotePacks, RemotePacks},
};
#[cfg(feature = "serve")]
use snap_server::upstream::UpstreamAddress;
use tokio::runtime::{Builder, Handle, Runtime};

use super::{
    credentials,
    network::Network,
    spec::{self, CachePolicy, RemoteSpec},
    wait_messages,
};
use crate::{
    context::Context,
    env::RemoteEnv,
    report::CliError,
    ui::{measure, text},
};

/// Number of threads that wait for the network; they do little work themselves.
const THREADS: usize = 2;

/// Timeout for work that is still in progress at the end of a command.
pub(crate) const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Limits on the transfer rates.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LimitArgs {
    /// Upload limit in bytes per second, such as 500K; default: the setting `transfer.limit_upload`
    #[arg(long, value_name = "RATE", value_parser = measure::rate)]
    limit_upload: Option<u64>,

    /// Download limit in bytes per second, such as 2M; default: the setting
    /// `transfer.limit_download`
    #[arg(long, value_name = "RATE", value_parser = measure::rate)]
    limit_download: Option<u64>,
}

impl LimitArgs {
    /// Makes the limits of a command that only downloads.
    pub(crate) fn of_download(limit_download: Option<u64>) -> Self {
        Self { limit_upload: None, limit_download }
    }

    /// Fills in the limits of the settings where no option was given.
    fn settled(&self, cx: &Context) -> Result<TransferLimits, CliError> {
        let TransferLimits { upload, download } = cx.settings_here()?.0.limits();
        Ok(TransferLimits {
            upload: self.limit_upload.or(upload),
            download: self.limit_download.or(download),
        })
    }
}

/// An open remote.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) place: RemoteSpec,
    /// Its store.
    pub(crate) store: RemoteStore,
    /// The runtime for its requests.
    pub(crate) runtime: Handle,
    /// The temporary cache, removed on drop, if this command keeps no cache.
    scratch: Option<Arc<Scratch>>,
}

impl Connection {
    /// Returns the store, and the scratch folder, which must be dropped after it.
    pub(crate) fn into_parts(self) -> (RemoteStore, Option<Arc<Scratch>>) {
        (self.store, self.scratch)
    }

    /// Returns its packs, for a local store that fetches missing objects.
    pub(crate) fn packs(&self, cx: &Context) -> Result<RemotePacks, CliError> {
        Ok(RemotePacks::new(&self.store, cx.waiting()?))
    }
}

/// The parameters to open a remote, now or on first use.
#[derive(Debug)]
struct Opener {
    place: RemoteSpec,
    /// A dry run keeps no cache and writes nothing.
    memory: CachePolicy,
    options: BTreeMap<String, String>,
    env: RemoteEnv,
    policy: RequestPolicy,
    network: Arc<Network>,
    cache: PathBuf,
    condition_proofs: ConditionProofs,
    scratch: Option<Arc<Scratch>>,
    /// The user who moves refs, for the log of a store on this machine.
    who: Option<String>,
}

impl Opener {
    fn new(
        place: RemoteSpec,
        memory: CachePolicy,
        limits: &LimitArgs,
        cx: &Context,
    ) -> Result<Self, CliError> {
        let (cache, scratch) = place.cache(memory, cx)?;
        if let Some(status_printer) = cx.ui().status_printer() {
            wait_messages::spawn(cx.network(), status_printer);
        }
        let is_local = place.location.scheme == Scheme::File;
        let who = is_local.then(|| {
            let config = cx.settings_here()?.0.config()?;
            Ok::<_, CliError>(format!("{} on {}", cx.author(&config), cx.host(&config)))
        });
        Ok(Self {
            memory,
            condition_proofs: place.condition_proofs(memory, &cache, cx),
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

    /// Runs `open` with everything that opening the place needs. The caller must have entered a
    /// runtime.
    fn open<T>(
        &self,
        open: impl FnOnce(&Opening<'_>) -> Result<T, OpenError>,
    ) -> Result<T, CliError> {
        let location = &self.place.location;
        let named = (&*self.place.shown(), location.scheme);
        let known = (&self.env, &*self.network);
        let secrets = credentials::find(named, &self.place.credentials, known)?;
        let secrets =
            RemoteCredentials { name: secrets.name.or_else(|| self.who.clone()), ..secrets };
        if location.scheme.is_bucket() {
            self.network.note_bucket();
        }
        let network = Arc::clone(&self.network);
        Ok(open(&Opening {
            location,
            options: &self.options,
            secrets: &secrets,
            policy: self.policy.clone(),
            traffic: self.network.traffic(),
            stop: CancellationToken::from_fn(move || network.is_stopped()),
            condition_proofs: Some(self.condition_proofs.clone()),
            may_write: self.memory == CachePolicy::Kept,
        })?)
    }

    fn store(&self) -> Result<RemoteStore, CliError> {
        self.open(|opening| opening.store(&self.cache))
    }
}

/// Starts a runtime for the network.
pub(crate) fn runtime() -> Result<Runtime, CliError> {
    let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    runtime.map_err(|source| CliError::Runtime { source })
}

impl Context {
    /// Returns the policy for requests.
    fn policy(&self, limits: &LimitArgs) -> Result<RequestPolicy, CliError> {
        Ok(RequestPolicy { limits: limits.settled(self)?, ..RequestPolicy::default() })
    }

    /// Opens a place, whether or not it has a store. Sends no request yet.
    pub(crate) fn open_place(&self, place: &RemoteSpec) -> Result<Place, CliError> {
        let _entered = self.runtime()?.enter();
        let opener = Opener::new(place.clone(), CachePolicy::Kept, &LimitArgs::default(), self)?;
        opener.open(|opening| opening.place())
    }

    /// Returns the upstream of a server, for a server that has `place` as its upstream.
    #[cfg(feature = "serve")]
    pub(crate) fn origin(&self, place: &RemoteSpec) -> Result<UpstreamAddress, CliError> {
        let location = place.location.clone();
        let named = (&*place.shown(), location.scheme);
        let known = (self.remote_env(), &**self.network());
        let secrets = credentials::find(named, &place.credentials, known)?;
        Ok(UpstreamAddress { location, options: place.all_options(self), secrets })
    }

    /// Opens the store at `place`. Sends no request yet.
    pub(crate) fn connect(
        &self,
        place: RemoteSpec,
        limits: &LimitArgs,
    ) -> Result<Connection, CliError> {
        self.connect_with(place, CachePolicy::Kept, limits)
    }

    /// Opens the store at `place`, and chooses whether the cache is kept. Sends no request yet.
    pub(crate) fn connect_with(
        &self,
        place: RemoteSpec,
        memory: CachePolicy,
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

    /// Returns how to wait for the network: until Ctrl-C.
    pub(crate) fn waiting(&self) -> Result<BlockingContext, CliError> {
        let network = Arc::clone(self.network());
        let stop = Arc::new(move || network.is_stopped());
        Ok(BlockingContext { runtime: self.runtime()?.handle().clone(), stop })
    }

    /// Returns the source of objects that the store at `dir` lacks: its default remote, which is
    /// contacted on first use. Returns `None` if there is no such remote.
    pub(crate) fn default_remote_source(
        &self,
        dir: &Path,
    ) -> Result<Option<Arc<dyn RemoteFrames>>, CliError> {
        let settings = self.settings_of(dir)?;
        let place = match spec::usual(&settings, dir) {
            Ok(place) if place.is_trusted() => place,
            Ok(place) => {
                let dir = text::word(dir.as_os_str().as_encoded_bytes());
                self.ui().warning(format_args!(
                    "missing objects are not downloaded from {}: the settings of this store are \
                     not trusted (`snap config trust {dir}`)",
                    place.shown(),
                ));
                return Ok(None);
            }
            // Without a default remote, most commands still work.
            Err(
                CliError::NoRemotes | CliError::WhichRemote { .. } | CliError::Untrusted { .. },
            ) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let opener = Opener::new(place, CachePolicy::Kept, &LimitArgs::default(), self)?;
        let runtime = self.runtime()?.handle().clone();
        let connect = move || {
            let _entered = runtime.enter();
            opener.store().map_err(|error| {
                let why = error.to_string();
                let location = opener.place.location.to_string();
                match error {
                    CliError::Remote(error) => *error,
                    _ => ServiceError {
                        location,
                        ..ServiceError::new("open", "", FailureReason::Other, why)
                    }
                    .into(),
                }
            })
        };
        Ok(Some(Arc::new(LazyRemotePacks::new(connect, self.waiting()?))))
    }

    /// Converts an error of a remote. If Ctrl-C cancelled the request, the error is not reported as
    /// a failure of the service.
    pub(crate) fn remote_error(&self, error: RemoteError) -> CliError {
        match error {
            RemoteError::Service(_) if self.cancelled() => {
                RemoteError::Blocked(Blocked::Interrupted).into()
            }
            error => error.into(),
        }
    }
}
