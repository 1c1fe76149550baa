//! A bucket behind a proxy that counts requests and delays them.
//!
//! The server is either one in this process, which keeps all objects in memory and shares the
//! processors, or versitygw, which `tests/net/versitygw.sh` starts. All tools reach it in the same
//! way.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use snap_nettest::{Counts, Proxy, S3Options, S3Server};
use snap_remote::{
    bucket::client::{Client, RequestPolicy},
    peer::open::{Opening, RemoteCredentials},
};

use crate::Result;

/// The S3 server to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Server {
    /// A server in this process, in memory.
    #[default]
    Inside,
    /// versitygw on a folder.
    Versitygw,
}

/// How tools reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through the proxy.
    Counted,
    /// Directly, because the proxy would limit the rate.
    Direct,
}

/// The address and credentials of a bucket.
#[derive(Debug)]
struct Access {
    endpoint: String,
    key: String,
    secret: String,
    bucket: String,
}

/// A bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Name of the server, for the table.
    pub(crate) server: &'static str,
    access: Access,
    proxy: Option<Proxy>,
    /// The server in this process, kept running as long as the bucket is used.
    inside: Option<S3Server>,
}

impl Bucket {
    /// Opens a bucket at `server`; a bucket in this process is empty.
    pub(crate) fn open(server: Server, way: Way) -> Result<Self> {
        let (access, inside) = match server {
            Server::Inside => {
                let inside = S3Server::start(S3Options::default());
                (Access::of(&inside), Some(inside))
            }
            Server::Versitygw => (Access::from_environment()?, None),
        };
        let proxy = (way == Way::Counted).then(|| Proxy::start(&access.endpoint));
        let server = match server {
            Server::Inside => "s3s, in memory",
            Server::Versitygw => "versitygw",
        };
        Ok(Self { server, access, proxy, inside })
    }

    /// Returns the endpoint for clients.
    pub(crate) fn endpoint(&self) -> String {
        self.proxy.as_ref().map_or_else(|| self.access.endpoint.clone(), Proxy::endpoint)
    }

    /// Returns the name of the bucket with an unused prefix.
    pub(crate) fn fresh(&self) -> String {
        // Several works may use the same bucket.
        static PREFIXES: AtomicU32 = AtomicU32::new(0);
        let number = PREFIXES.fetch_add(1, Ordering::Relaxed);
        format!("{}/{}-{number}", self.access.bucket, std::process::id())
    }

    /// Delays each request by `latency` from now on.
    pub(crate) fn delay(&self, latency: Duration) {
        if let Some(proxy) = &self.proxy {
            proxy.set_latency(latency);
        }
    }

    /// Returns the requests since the last call; `None` without the proxy.
    pub(crate) fn counts(&self) -> Option<Counts> {
        self.proxy.as_ref().map(Proxy::take_counts)
    }

    /// Returns the number of requests since the last call of [`Self::counts`].
    pub(crate) fn requests(&self) -> Option<u64> {
        self.counts().map(|counts| counts.total)
    }

    /// Writes an object under a prefix.
    pub(crate) fn put(&self, prefix: &str, key: &str, bytes: Bytes) -> Result<()> {
        if let Some(inside) = &self.inside {
            let within = prefix.split_once('/').map_or("", |(_, within)| within);
            inside.put(&format!("{within}/{key}"), bytes);
            return Ok(());
        }
        let client = self.client(prefix)?;
        runtime()?.block_on(client.put(key, bytes))?;
        Ok(())
    }

    /// Returns the size of all objects under a prefix, in bytes.
    pub(crate) fn stored_bytes(&self, prefix: &str) -> Result<u64> {
        let client = self.client(prefix)?;
        let listed = runtime()?.block_on(client.list(""))?;
        Ok(listed.iter().map(|object| object.bytes).sum())
    }

    /// Returns the variables by which a child process finds the bucket, without any settings of the
    /// user.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", self.access.key.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.access.secret.clone()),
            ("AWS_REGION", S3Server::REGION.to_owned()),
            ("AWS_DEFAULT_REGION", S3Server::REGION.to_owned()),
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_CONFIG_FILE", "/dev/null".to_owned()),
            ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null".to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
            ("NO_PROXY", "127.0.0.1".to_owned()),
        ]
    }

    /// Makes a client for a name from [`Self::fresh`], with default limits.
    pub(crate) fn client(&self, prefix: &str) -> Result<Client> {
        let traffic = Arc::default();
        let options = BTreeMap::from([("endpoint".to_owned(), self.endpoint())]);
        let secrets = RemoteCredentials {
            name: Some(self.access.key.clone()),
            secret: Some(self.access.secret.clone()),
            session: None,
        };
        let location = format!("s3://{prefix}").parse()?;
        let service = Opening::new(&location, &options, &secrets, &traffic).bucket()?;
        Ok(Client::new(service, RequestPolicy::default(), traffic))
    }

    /// Removes all objects under a prefix; they may have a gibibyte.
    pub(crate) fn forget(&self, prefix: &str) -> Result<()> {
        let client = self.client(prefix)?;
        runtime()?.block_on(async {
            let listed = client.list("").await?;
            Ok(client
                .delete(&listed.into_iter().map(|object| object.key).collect::<Vec<_>>())
                .await?)
        })
    }
}

impl Access {
    fn of(server: &S3Server) -> Self {
        Self {
            endpoint: server.endpoint(),
            key: server.access_key().to_owned(),
            secret: server.secret_key().to_owned(),
            bucket: server.bucket().to_owned(),
        }
    }

    fn from_environment() -> Result<Self> {
        let var = |name: &str| {
            let name = format!("SNAP_TEST_S3_{name}");
            std::env::var(&name)
                .map_err(|_| format!("{name} is not set: run this under tests/net/versitygw.sh"))
        };
        Ok(Self {
            endpoint: var("ENDPOINT")?,
            key: var("KEY")?,
            secret: var("SECRET")?,
            bucket: var("BUCKET")?,
        })
    }
}

/// Starts a runtime for requests of this process.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_delayed_and_what_they_wrote_can_be_forgotten() {
        let bucket = Bucket::open(Server::Inside, Way::Counted).unwrap();
        let (one, other) = (bucket.fresh(), bucket.fresh());
        assert_ne!(one, other);
        let client = bucket.client(&one).unwrap();
        let runtime = runtime().unwrap();
        bucket.delay(Duration::from_millis(50));
        let begin = std::time::Instant::now();
        runtime.block_on(client.put("key", "bytes")).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(50));
        assert_eq!((bucket.requests(), bucket.requests()), (Some(1), Some(0)));
        bucket.delay(Duration::ZERO);
        bucket.put(&one, "other", "more".into()).unwrap();
        assert_eq!(bucket.stored_bytes(&one).unwrap(), 9);
        assert_eq!(runtime.block_on(client.list("")).unwrap().len(), 2);
        bucket.forget(&other).unwrap();
        assert_eq!(runtime.block_on(client.list("")).unwrap().len(), 2);
        bucket.forget(&one).unwrap();
        assert_eq!(runtime.block_on(client.list("")).unwrap().len(), 0);
    }
}
