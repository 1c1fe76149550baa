//! A store elsewhere that a command has opened, and the runtime in which it is
//! waited for.

use std::sync::Arc;

use snap_core::disk::scratch::Scratch;
use snap_remote::{
    service::{
        Service,
        client::{Client, Policy},
        open,
    },
    store::{RemoteError, RemoteStore},
};
use tokio::runtime::{Builder, Handle, Runtime};

use super::{credentials, network::Watched, place::Place, rate};
use crate::{context::Context, report::CliError};

/// Threads that wait for the network; what they do between is little.
const THREADS: usize = 2;

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
    runtime: Runtime,
    _scratch: Option<Scratch>,
}

impl Connection {
    /// Where requests are waited for.
    pub(crate) fn runtime(&self) -> Handle {
        self.runtime.handle().clone()
    }

    /// The store, and where requests are waited for.
    pub(crate) fn parts(&mut self) -> (&mut RemoteStore, Handle) {
        let runtime = self.runtime.handle().clone();
        (&mut self.store, runtime)
    }
}

/// A runtime to wait for the network in.
pub(crate) fn runtime() -> Result<Runtime, CliError> {
    let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    runtime.map_err(|source| CliError::Runtime { source })
}

impl Context {
    /// The service at `place`. Nothing is asked yet.
    pub(crate) fn service(&self, place: &Place) -> Result<Arc<dyn Service>, CliError> {
        let scheme = place.location.scheme;
        let secrets = credentials::find((&place.shown(), scheme), &place.credentials, self)?;
        let (options, traffic) = (place.all_options(self), self.network().traffic());
        let service = open::open(&place.location, &options, &secrets, traffic)?;
        Ok(Arc::new(Watched::new(service, Arc::clone(self.network()))))
    }

    /// How requests are made.
    pub(crate) fn policy(&self, limits: &LimitArgs) -> Result<Policy, CliError> {
        Ok(Policy { limits: limits.settled(self)?, ..Policy::default() })
    }

    /// Opens the store at `place`. Nothing is asked yet.
    pub(crate) fn connect(
        &self,
        place: Place,
        limits: &LimitArgs,
    ) -> Result<Connection, CliError> {
        let runtime = runtime()?;
        let _entered = runtime.enter();
        let (policy, traffic) = (self.policy(limits)?, Arc::clone(self.network().traffic()));
        let client = Client::new(self.service(&place)?, policy, traffic);
        let client = client.at(&place.location.to_string());
        let (cache, scratch) = place.cache(self)?;
        let store = RemoteStore::new(client, place.location.to_string(), &cache);
        let store = store.map_err(|error| self.remote_error(error))?;
        drop(_entered);
        Ok(Connection { place, store, runtime, _scratch: scratch })
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
