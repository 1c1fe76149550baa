//! Opens the peer at a location.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

#[cfg(any(feature = "azblob", feature = "gcs", feature = "s3", feature = "webdav"))]
use opendal::{Operator, services};
use snap_core::repo::RepoError;

use super::{
    CONDITIONS, ConditionProofs, Peer, Place, RemoteError, RemoteStore, bucket::BucketStore,
    local::LocalStore, server::ServerStore,
};
#[cfg(feature = "sftp")]
use crate::bucket::sftp::{KnownHosts, SftpBucket, SshHost};
#[cfg(any(feature = "azblob", feature = "gcs", feature = "s3", feature = "webdav"))]
use crate::bucket::{opendal::OpendalBucket, transport::Transport};
use crate::{
    bucket::{
        Bucket, CancellationToken, Requests,
        client::{Client, RequestPolicy},
        folder::FolderBucket,
        memory::MemoryBucket,
        traffic::Traffic,
    },
    location::{Location, LocationError, Scheme},
};

/// Credentials of one remote. They come from the user's environment or files, never from the
/// settings of a store.
#[derive(Clone, Default)]
pub struct RemoteCredentials {
    /// Access key, account or user. For a store on this machine, the name for the logs of refs.
    pub name: Option<String>,
    /// Secret key, account key, password or token.
    pub secret: Option<String>,
    /// Session token that goes with a temporary key.
    pub session: Option<String>,
}

impl std::fmt::Debug for RemoteCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |value: &Option<String>| if value.is_some() { "set" } else { "not set" };
        write!(f, "Secrets({}, {})", shown(&self.name), shown(&self.secret))
    }
}

/// Why a service could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An option does not fit the location.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The value of an option is invalid.
    #[error("option `{option}` of {location}: {why}")]
    Option {
        /// The option.
        option: &'static str,
        /// The location.
        location: String,
        /// The problem.
        why: String,
    },
    /// The credentials have a secret key but not the name of the key.
    #[error("the credentials for {location} contain a secret but no name")]
    Half {
        /// The location.
        location: String,
    },
    /// The region of a bucket is unknown.
    #[error("cannot use {location}: the region of the bucket is unknown")]
    NoRegion {
        /// The location.
        location: String,
    },
    /// This build does not support the kind of remote.
    #[error("cannot use {location}: this build of snap does not support {}", scheme.name())]
    LeftOut {
        /// The kind of remote.
        scheme: Scheme,
        /// The location.
        location: String,
    },
    /// Snap refuses the store in the folder.
    #[error(transparent)]
    Store(#[from] RepoError),
    /// The location is a snap server, which has no objects by key.
    #[error("cannot use {location}: it is a snap server, not a bucket")]
    NotABucket {
        /// The location.
        location: String,
    },
    /// The cache of the remote cannot be used.
    #[error(transparent)]
    Cache(#[from] RemoteError),
    /// The service cannot be set up.
    #[error("cannot use {location}: {why}")]
    Setup {
        /// The location.
        location: String,
        /// The problem.
        why: String,
    },
}

/// Returns the folder of the local store at `location`; `None` if the location has none.
///
/// # Errors
/// [`OpenError::Store`] if snap refuses the store in the folder.
pub fn local_store(location: &Location) -> Result<Option<PathBuf>, OpenError> {
    match location.scheme {
        Scheme::File => Ok(LocalStore::find(Path::new(&location.path))?),
        _ => Ok(None),
    }
}

/// How to open a place.
#[derive(Debug)]
pub struct Opening<'a> {
    pub location: &'a Location,
    /// Options of the location.
    pub options: &'a BTreeMap<String, String>,
    /// For S3 without keys in them, snap reads the usual environment variables and files.
    pub secrets: &'a RemoteCredentials,
    /// Limits and timeouts of requests.
    pub policy: RequestPolicy,
    /// Counts requests and bytes.
    pub traffic: &'a Arc<Traffic>,
    /// Interrupts requests.
    pub stop: CancellationToken,
    /// Proofs that buckets honour conditional writes, which stores share; `None` for proofs of this
    /// store alone.
    pub condition_proofs: Option<ConditionProofs>,
    /// False for a dry run: reads of a store on this machine create no lock file in it.
    pub may_write: bool,
}

impl<'a> Opening<'a> {
    /// Opens a location with the default policy, without a stop flag, and without proofs that other
    /// stores share.
    pub fn new(
        location: &'a Location,
        options: &'a BTreeMap<String, String>,
        secrets: &'a RemoteCredentials,
        traffic: &'a Arc<Traffic>,
    ) -> Self {
        Self {
            location,
            options,
            secrets,
            policy: RequestPolicy::default(),
            traffic,
            stop: CancellationToken::default(),
            condition_proofs: None,
            may_write: true,
        }
    }

    /// Opens the place, whether or not it has a store. Sends no request yet. The caller must have
    /// entered a runtime.
    ///
    /// # Errors
    /// [`OpenError`] if an option is wrong.
    pub fn place(&self) -> Result<Place, OpenError> {
        Ok(Place::new(self.peer(None)?, self.location.to_string()))
    }

    /// Opens the store there, with its mirror in `cache`. Sends no request yet. The caller must have
    /// entered a runtime.
    ///
    /// # Errors
    /// [`OpenError`] if an option is wrong or `cache` cannot be used.
    pub fn store(&self, cache: &Path) -> Result<RemoteStore, OpenError> {
        Ok(Place::new(self.peer(Some(cache))?, self.location.to_string()).into_store(cache)?)
    }

    fn peer(&self, cache: Option<&Path>) -> Result<Arc<dyn Peer>, OpenError> {
        self.location.check(self.options)?;
        let location = self.location.to_string();
        if let Some(dir) = local_store(self.location)? {
            let requests = self.requests(&location);
            let who = self.secrets.name.as_deref().unwrap_or("unknown");
            let who = self.may_write.then_some(who);
            return Ok(Arc::new(LocalStore::new(dir, location, who, requests)));
        }
        if matches!(self.location.scheme, Scheme::Http | Scheme::Https) {
            return Ok(Arc::new(self.server(location)?));
        }
        let client = Client::new(self.bucket()?, self.policy.clone(), Arc::clone(self.traffic));
        let client = client.with_cancellation(self.stop.clone()).with_location(&location);
        let client = match cache {
            Some(cache) => client.with_upload_notes(cache),
            None => client,
        };
        let proofs = || ConditionProofs::at(cache.unwrap_or(Path::new("")).join(CONDITIONS));
        let proofs = self.condition_proofs.clone().unwrap_or_else(proofs);
        Ok(Arc::new(BucketStore::new(client, location, proofs)))
    }

    fn requests(&self, location: &str) -> Requests {
        let requests = Requests::new(self.policy.clone(), usize::MAX, Arc::clone(self.traffic));
        requests.with_cancellation(self.stop.clone()).with_location(location)
    }

    fn server(&self, location: String) -> Result<ServerStore, OpenError> {
        let Location { scheme, authority, path } = self.location;
        let origin = format!("{}://{authority}", scheme.name());
        let (token, requests) = (self.secrets.secret.clone(), self.requests(&location));
        let server = ServerStore::new((&origin, path), token, location, requests);
        server.map_err(|why| self.setup_error(why))
    }

    /// Opens the bucket, share or folder at the location, for objects by key.
    ///
    /// # Errors
    /// [`OpenError`] if an option is wrong.
    pub fn bucket(&self) -> Result<Arc<dyn Bucket>, OpenError> {
        let location = self.location;
        match location.scheme {
            Scheme::File => Ok(Arc::new(FolderBucket::new(PathBuf::from(&location.path)))),
            Scheme::Memory => Ok(Arc::new(MemoryBucket::named(&location.to_string()))),
            #[cfg(feature = "s3")]
            Scheme::S3 => self.s3(),
            #[cfg(feature = "gcs")]
            Scheme::Gcs => self.gcs(),
            #[cfg(feature = "azblob")]
            Scheme::Azblob => self.azblob(),
            #[cfg(feature = "webdav")]
            Scheme::Webdav | Scheme::Webdavs => self.webdav(),
            #[cfg(feature = "sftp")]
            Scheme::Sftp => self.sftp(),
            Scheme::Http | Scheme::Https => {
                Err(OpenError::NotABucket { location: location.to_string() })
            }
            #[cfg(not(all(
                feature = "azblob",
                feature = "gcs",
                feature = "s3",
                feature = "sftp",
                feature = "webdav"
            )))]
            scheme => Err(OpenError::LeftOut { scheme, location: location.to_string() }),
        }
    }

    /// Returns the value of an option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// Returns the value of an option that is true or false.
    ///
    /// # Errors
    /// [`OpenError::Option`] for any other value.
    pub fn flag(&self, name: &'static str) -> Result<Option<bool>, OpenError> {
        let Some(text) = self.option(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| OpenError::Option {
            option: name,
            location: self.location.to_string(),
            why: format!("`{text}` is neither true nor false"),
        })
    }

    fn setup_error(&self, why: String) -> OpenError {
        OpenError::Setup { location: self.location.to_string(), why }
    }

    #[cfg(any(feature = "azblob", feature = "gcs", feature = "s3", feature = "webdav"))]
    fn over_http(
        &self,
        operator: Result<Operator, opendal::Error>,
        endpoint: &str,
    ) -> Result<OpendalBucket, OpenError> {
        let transport =
            Transport::new(Arc::clone(self.traffic)).map_err(|why| self.setup_error(why))?;
        let operator = operator.map_err(|error| match error.message() {
            // OpenDAL has no code for this, and advises a call of its own library.
            text if text.contains("region is missing") => {
                OpenError::NoRegion { location: self.location.to_string() }
            }
            text => self.setup_error(text.to_owned()),
        })?;
        let bucket = OpendalBucket::over_http(operator, transport, endpoint);
        let bucket = bucket.below(&self.location.path);
        Ok(match self.flag("conditional-writes")? {
            Some(false) => bucket.without_conditions(),
            _ => bucket,
        })
    }

    #[cfg(feature = "s3")]
    fn s3(&self) -> Result<Arc<dyn Bucket>, OpenError> {
        let mut builder = services::S3::default().bucket(&self.location.authority);
        // A service other than Amazon's has its buckets in the path by default, and accepts any
        // region.
        let endpoint = self.option("endpoint");
        if let Some(endpoint) = endpoint {
            builder = builder.endpoint(endpoint);
        }
        match self.option("region") {
            Some(region) => builder = builder.region(region),
            None if endpoint.is_some() => builder = builder.region("us-east-1"),
            None => {}
        }
        if let Some(profile) = self.option("profile") {
            builder = builder.profile(profile);
        }
        if let Some(class) = self.option("storage-class") {
            builder = builder.default_storage_class(class);
        }
        let in_path = self.flag("path-style")?.unwrap_or(endpoint.is_some());
        if !in_path {
            builder = builder.enable_virtual_host_style();
        }
        if self.flag("anonymous")?.unwrap_or(false) {
            builder = builder.skip_signature();
        }
        if self.flag("checksums")?.unwrap_or(true) {
            builder = builder.checksum_algorithm("crc32c");
        }
        builder = match (&self.secrets.name, &self.secrets.secret) {
            (Some(name), Some(secret)) => builder.access_key_id(name).secret_access_key(secret),
            // Without a name, OpenDAL would look elsewhere and find the key of another account.
            (None, Some(_)) => {
                return Err(OpenError::Half { location: self.location.to_string() });
            }
            (_, None) => builder,
        };
        if let (Some(session), Some(_)) = (&self.secrets.session, &self.secrets.secret) {
            builder = builder.session_token(session);
        }
        Ok(Arc::new(self.over_http(Operator::new(builder), endpoint.unwrap_or_default())?))
    }

    #[cfg(feature = "gcs")]
    fn gcs(&self) -> Result<Arc<dyn Bucket>, OpenError> {
        let mut builder = services::Gcs::default().bucket(&self.location.authority);
        let endpoint = self.option("endpoint");
        if let Some(endpoint) = endpoint {
            builder = builder.endpoint(endpoint);
        }
        if let Some(path) = self.option("credential-path") {
            builder = builder.credential_path(path);
        }
        if let Some(token) = &self.secrets.secret {
            builder = builder.token(token.clone());
        }
        if self.flag("anonymous")?.unwrap_or(false) {
            builder = builder.skip_signature();
        }
        Ok(Arc::new(self.over_http(Operator::new(builder), endpoint.unwrap_or_default())?))
    }

    #[cfg(feature = "azblob")]
    fn azblob(&self) -> Result<Arc<dyn Bucket>, OpenError> {
        let account = self.option("account").or(self.secrets.name.as_deref());
        let mut builder = services::Azblob::default().container(&self.location.authority);
        let endpoint = match (self.option("endpoint"), account) {
            (Some(endpoint), _) => endpoint.to_owned(),
            (None, Some(account)) => format!("https://{account}.blob.core.windows.net"),
            (None, None) => {
                return Err(self.setup_error("neither `account` nor `endpoint` is set".to_owned()));
            }
        };
        builder = builder.endpoint(&endpoint);
        if let Some(account) = account {
            builder = builder.account_name(account);
        }
        if let Some(key) = &self.secrets.secret {
            builder = builder.account_key(key);
        }
        Ok(Arc::new(self.over_http(Operator::new(builder), &endpoint)?))
    }

    #[cfg(feature = "webdav")]
    fn webdav(&self) -> Result<Arc<dyn Bucket>, OpenError> {
        let scheme = if self.location.scheme == Scheme::Webdavs { "https" } else { "http" };
        let endpoint = format!("{scheme}://{}", self.location.authority);
        let mut builder = services::Webdav::default().endpoint(&endpoint);
        if let Some(name) = self.option("username").or(self.secrets.name.as_deref()) {
            builder = builder.username(name);
        }
        if let Some(secret) = &self.secrets.secret {
            builder = builder.password(secret);
        }
        Ok(Arc::new(self.over_http(Operator::new(builder), &endpoint)?.with_renamed_writes()))
    }

    #[cfg(feature = "sftp")]
    fn sftp(&self) -> Result<Arc<dyn Bucket>, OpenError> {
        let mut host = SshHost::parse(&self.location.authority);
        host.key = self.option("key").map(str::to_owned);
        if let Some(text) = self.option("known-hosts") {
            host.known_hosts = KnownHosts::parse(text).ok_or_else(|| OpenError::Option {
                option: "known-hosts",
                location: self.location.to_string(),
                why: format!("`{text}` is not one of strict, accept and add"),
            })?;
        }
        let root = format!("/{}", self.location.path);
        Ok(Arc::new(SftpBucket::new(host, &root, Arc::clone(self.traffic))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(location: &str, options: &[(&str, &str)]) -> Result<Arc<dyn Bucket>, OpenError> {
        let location = location.parse()?;
        let options =
            options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let secrets = RemoteCredentials {
            name: Some("name".into()),
            secret: Some("c2VjcmV0".into()),
            session: None,
        };
        service(&location, &options, &secrets)
    }

    fn service(
        location: &Location,
        options: &BTreeMap<String, String>,
        secrets: &RemoteCredentials,
    ) -> Result<Arc<dyn Bucket>, OpenError> {
        let traffic = Arc::default();
        let opening = Opening::new(location, options, secrets, &traffic);
        opening.place()?;
        opening.bucket()
    }

    #[tokio::test]
    async fn every_service_can_be_set_up() {
        for (location, options) in [
            ("s3://bucket/x", &[("endpoint", "http://127.0.0.1:1"), ("path-style", "true")][..]),
            ("s3://bucket", &[("region", "eu-central-1"), ("anonymous", "true")]),
            ("gs://bucket/x", &[("anonymous", "true")]),
            ("azblob://container/x", &[("account", "name")]),
            ("webdav://127.0.0.1:1/x", &[("username", "ada")]),
            ("webdavs://host/x", &[]),
            ("sftp://ada@host:2222/srv/x", &[("known-hosts", "add")]),
            ("s3://b", &[("conditional-writes", "false"), ("region", "x"), ("checksums", "false")]),
            ("gs://b", &[("conditional-writes", "false"), ("anonymous", "true")]),
            ("azblob://b", &[("conditional-writes", "false"), ("account", "name")]),
            ("file:///tmp/x", &[]),
            ("memory://x", &[]),
        ] {
            let service = opened(location, options).unwrap_or_else(|e| panic!("{location}: {e}"));
            let can = service.facts().conditions;
            let has_none = location.starts_with("webdav")
                || location.starts_with("sftp")
                || options.contains(&("conditional-writes", "false"));
            assert_eq!((can.absent, can.unchanged), (!has_none, !has_none), "{location}");
        }
    }

    #[tokio::test]
    async fn errors_of_invalid_options_name_the_problem() {
        let error = opened("s3://b", &[("path-style", "maybe")]).unwrap_err();
        assert!(error.to_string().contains("`maybe` is neither true nor false"), "{error}");
        let error = opened("sftp://nas/x", &[("known-hosts", "maybe")]).unwrap_err();
        assert!(
            error.to_string().contains("`maybe` is not one of strict, accept and add"),
            "{error}"
        );
        let error = opened("s3://b", &[("secret", "x")]).unwrap_err();
        assert!(matches!(error, OpenError::Location(LocationError::Secret { .. })));
        let half =
            RemoteCredentials { secret: Some("geheim".into()), ..RemoteCredentials::default() };
        let region = [("region".to_owned(), "x".to_owned())].into();
        let error = service(&"s3://b".parse().unwrap(), &region, &half).unwrap_err();
        assert!(matches!(error, OpenError::Half { .. }), "{error}");
        let secrets =
            RemoteCredentials { secret: Some("geheim".into()), ..RemoteCredentials::default() };
        assert!(!format!("{secrets:?}").contains("geheim"));
    }
}
