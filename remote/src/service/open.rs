//! From a location to the service that it names.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use opendal::{Operator, services};

use super::{
    Service, folder::Folder, local_store::LocalStore, memory::Memory, opendal::Bucket,
    snap_server::SnapServer, traffic::Traffic, transport::Transport,
};
use crate::location::{Location, LocationError, Scheme};

/// Secrets of one remote, from wherever the user keeps them: never from the
/// settings of a store.
#[derive(Clone, Default)]
pub struct Secrets {
    /// Access key, account or user; for a store on this machine, who moves refs
    /// there, for its log.
    pub name: Option<String>,
    /// Secret key, account key, password or token.
    pub secret: Option<String>,
    /// Token that goes with a key for some time.
    pub session: Option<String>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |value: &Option<String>| if value.is_some() { "set" } else { "not set" };
        write!(f, "Secrets({}, {})", shown(&self.name), shown(&self.secret))
    }
}

/// Why a service could not be reached for.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An option does not go with the location.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// An option's value makes no sense.
    #[error("option `{option}` of {location}: {why}")]
    Option {
        /// Which.
        option: &'static str,
        /// Of which location.
        location: String,
        /// What is wrong.
        why: String,
    },
    /// A secret key without the name that it belongs to.
    #[error("there is a secret for {location}, but not the name of its key")]
    Half {
        /// Which location.
        location: String,
    },
    /// The service cannot be set up.
    #[error("cannot use {location}: {why}")]
    Setup {
        /// Which location.
        location: String,
        /// Why.
        why: String,
    },
}

/// Opens the service at `location`. Nothing is asked yet.
///
/// S3 takes keys from the usual variables and files when `secrets` has none.
///
/// # Errors
/// [`OpenError`] when an option is wrong.
pub fn open(
    location: &Location,
    options: &BTreeMap<String, String>,
    secrets: &Secrets,
    traffic: &Arc<Traffic>,
) -> Result<Arc<dyn Service>, OpenError> {
    location.check(options)?;
    let option = |name: &str| options.get(name).map(String::as_str);
    let opener = Opener { location, secrets, traffic };
    match location.scheme {
        Scheme::File => Ok(match LocalStore::find(Path::new(&location.path)) {
            Some(dir) => {
                let who = secrets.name.as_deref().unwrap_or("unknown");
                Arc::new(LocalStore::new(dir, who, Arc::clone(traffic)))
            }
            None => Arc::new(Folder::new(PathBuf::from(&location.path), Arc::clone(traffic))),
        }),
        Scheme::Memory => Ok(Arc::new(Memory::named(&location.to_string(), Arc::clone(traffic)))),
        Scheme::S3 => opener.s3(&option),
        Scheme::Gcs => opener.gcs(&option),
        Scheme::Azblob => opener.azblob(&option),
        Scheme::Webdav | Scheme::Webdavs => opener.webdav(&option),
        Scheme::Sftp => opener.sftp(&option),
        Scheme::Http | Scheme::Https => opener.server(),
    }
}

type Get<'o> = dyn Fn(&str) -> Option<&'o str> + 'o;

struct Opener<'a> {
    location: &'a Location,
    secrets: &'a Secrets,
    traffic: &'a Arc<Traffic>,
}

impl Opener<'_> {
    fn root(&self) -> String {
        format!("/{}", self.location.path)
    }

    fn http(
        &self,
        operator: Result<Operator, opendal::Error>,
        options: &Get<'_>,
    ) -> Result<Arc<dyn Service>, OpenError> {
        let bucket = self.bucket(operator)?;
        Ok(match self.flag("conditional-writes", options)? {
            Some(false) => Arc::new(bucket.without_conditions()),
            _ => Arc::new(bucket),
        })
    }

    fn bucket(&self, operator: Result<Operator, opendal::Error>) -> Result<Bucket, OpenError> {
        let transport = Transport::new(Arc::clone(self.traffic)).map_err(|why| self.setup(why))?;
        let operator = operator.map_err(|error| self.setup(error.message().to_owned()))?;
        Ok(Bucket::over_http(operator, transport))
    }

    fn setup(&self, why: String) -> OpenError {
        OpenError::Setup { location: self.location.to_string(), why }
    }

    fn flag(&self, name: &'static str, options: &Get<'_>) -> Result<Option<bool>, OpenError> {
        let Some(text) = options(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| OpenError::Option {
            option: name,
            location: self.location.to_string(),
            why: format!("`{text}` is neither true nor false"),
        })
    }

    fn s3(&self, options: &Get<'_>) -> Result<Arc<dyn Service>, OpenError> {
        let mut builder =
            services::S3::default().bucket(&self.location.authority).root(&self.root());
        // Another service than that of Amazon has its buckets in the path,
        // unless told otherwise, and does not mind the region.
        let endpoint = options("endpoint");
        if let Some(endpoint) = endpoint {
            builder = builder.endpoint(endpoint);
        }
        match options("region") {
            Some(region) => builder = builder.region(region),
            None if endpoint.is_some() => builder = builder.region("us-east-1"),
            None => {}
        }
        if let Some(profile) = options("profile") {
            builder = builder.profile(profile);
        }
        if let Some(class) = options("storage-class") {
            builder = builder.default_storage_class(class);
        }
        let in_path = self.flag("path-style", options)?.unwrap_or(endpoint.is_some());
        if !in_path {
            builder = builder.enable_virtual_host_style();
        }
        if self.flag("anonymous", options)?.unwrap_or(false) {
            builder = builder.skip_signature();
        }
        if self.flag("checksums", options)?.unwrap_or(true) {
            builder = builder.checksum_algorithm("crc32c");
        }
        builder = match (&self.secrets.name, &self.secrets.secret) {
            (Some(name), Some(secret)) => builder.access_key_id(name).secret_access_key(secret),
            // Whatever else is found would be another account's.
            (None, Some(_)) => {
                return Err(OpenError::Half { location: self.location.to_string() });
            }
            (_, None) => builder,
        };
        if let (Some(session), Some(_)) = (&self.secrets.session, &self.secrets.secret) {
            builder = builder.session_token(session);
        }
        self.http(Operator::new(builder), options)
    }

    fn gcs(&self, options: &Get<'_>) -> Result<Arc<dyn Service>, OpenError> {
        let mut builder =
            services::Gcs::default().bucket(&self.location.authority).root(&self.root());
        if let Some(endpoint) = options("endpoint") {
            builder = builder.endpoint(endpoint);
        }
        if let Some(path) = options("credential-path") {
            builder = builder.credential_path(path);
        }
        if let Some(token) = &self.secrets.secret {
            builder = builder.token(token.clone());
        }
        if self.flag("anonymous", options)?.unwrap_or(false) {
            builder = builder.skip_signature();
        }
        self.http(Operator::new(builder), options)
    }

    fn azblob(&self, options: &Get<'_>) -> Result<Arc<dyn Service>, OpenError> {
        let account = options("account").or(self.secrets.name.as_deref());
        let mut builder =
            services::Azblob::default().container(&self.location.authority).root(&self.root());
        let endpoint = match (options("endpoint"), account) {
            (Some(endpoint), _) => endpoint.to_owned(),
            (None, Some(account)) => format!("https://{account}.blob.core.windows.net"),
            (None, None) => return Err(self.setup("no `account` and no `endpoint`".to_owned())),
        };
        builder = builder.endpoint(&endpoint);
        if let Some(account) = account {
            builder = builder.account_name(account);
        }
        if let Some(key) = &self.secrets.secret {
            builder = builder.account_key(key);
        }
        self.http(Operator::new(builder), options)
    }

    fn webdav(&self, options: &Get<'_>) -> Result<Arc<dyn Service>, OpenError> {
        let scheme = if self.location.scheme == Scheme::Webdavs { "https" } else { "http" };
        let mut builder = services::Webdav::default()
            .endpoint(&format!("{scheme}://{}", self.location.authority))
            .root(&self.root());
        if let Some(name) = options("username").or(self.secrets.name.as_deref()) {
            builder = builder.username(name);
        }
        if let Some(secret) = &self.secrets.secret {
            builder = builder.password(secret);
        }
        Ok(Arc::new(self.bucket(Operator::new(builder))?.putting_aside()))
    }

    fn server(&self) -> Result<Arc<dyn Service>, OpenError> {
        let Location { scheme, authority, path } = self.location;
        let origin = format!("{}://{authority}", scheme.name());
        let (token, traffic) = (self.secrets.secret.clone(), Arc::clone(self.traffic));
        let server = SnapServer::new(&origin, path, token, traffic);
        Ok(Arc::new(server.map_err(|why| self.setup(why))?))
    }

    fn sftp(&self, options: &Get<'_>) -> Result<Arc<dyn Service>, OpenError> {
        let (user, host) = match self.location.authority.split_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, self.location.authority.as_str()),
        };
        let mut builder = services::Sftp::default().endpoint(&ssh_host(host)).root(&self.root());
        if let Some(user) = user {
            builder = builder.user(user);
        }
        if let Some(key) = options("key") {
            builder = builder.key(key);
        }
        if let Some(strategy) = options("known-hosts") {
            builder = builder.known_hosts_strategy(strategy);
        }
        let operator = Operator::new(builder);
        let operator = operator.map_err(|error| self.setup(error.message().to_owned()))?;
        Ok(Arc::new(Bucket::sftp(operator, Arc::clone(self.traffic))))
    }
}

/// A host as `openssh` takes it: a port is seen only behind `ssh://`, and an
/// address that has colons stands without its brackets.
fn ssh_host(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => {
            format!("ssh://{}:{port}", host.trim_matches(['[', ']']))
        }
        _ => host.trim_matches(['[', ']']).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(location: &str, options: &[(&str, &str)]) -> Result<Arc<dyn Service>, OpenError> {
        let options =
            options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let secrets =
            Secrets { name: Some("name".into()), secret: Some("c2VjcmV0".into()), session: None };
        open(&location.parse()?, &options, &secrets, &Arc::default())
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
            ("http://127.0.0.1:1", &[]),
            ("https://host/team/project", &[]),
            ("file:///tmp/x", &[]),
            ("memory://x", &[]),
        ] {
            let service = opened(location, options).unwrap_or_else(|e| panic!("{location}: {e}"));
            let can = service.conditions();
            let has_none = location.starts_with("webdav")
                || location.starts_with("sftp")
                || options.contains(&("conditional-writes", "false"));
            assert_eq!((can.absent, can.unchanged), (!has_none, !has_none), "{location}");
        }
    }

    #[test]
    fn ssh_is_given_a_port_only_where_there_is_one() {
        for (host, given) in [
            ("nas", "nas"),
            ("nas:2222", "ssh://nas:2222"),
            ("192.0.2.1:22", "ssh://192.0.2.1:22"),
            ("[::1]", "::1"),
            ("[::1]:2222", "ssh://::1:2222"),
        ] {
            assert_eq!(ssh_host(host), given);
        }
    }

    #[tokio::test]
    async fn what_is_wrong_with_an_option_is_said() {
        let error = opened("s3://b", &[("path-style", "maybe")]).unwrap_err();
        assert!(error.to_string().contains("`maybe` is neither true nor false"), "{error}");
        let error = opened("s3://b", &[("secret", "x")]).unwrap_err();
        assert!(matches!(error, OpenError::Location(LocationError::Secret { .. })));
        let half = Secrets { secret: Some("geheim".into()), ..Secrets::default() };
        let region = [("region".to_owned(), "x".to_owned())].into();
        let error = open(&"s3://b".parse().unwrap(), &region, &half, &Arc::default()).unwrap_err();
        assert!(matches!(error, OpenError::Half { .. }), "{error}");
        let secrets = Secrets { secret: Some("geheim".into()), ..Secrets::default() };
        assert!(!format!("{secrets:?}").contains("geheim"));
    }
}
