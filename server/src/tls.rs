//! TLS from a certificate and its key, read again when the files change. A new
//! pair that cannot be used changes nothing, and is told in the log.

use std::{
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum_server::tls_rustls::RustlsConfig;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde::{Deserialize, Serialize};
use snap_core::base::{io::PathError, kind::ErrorKind};

use crate::causes::causes;

/// How often it is looked whether the files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Longest file that is looked at.
const FILE_BYTES: u64 = 1 << 20;

/// Where the certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// File with the certificate and those that vouch for it, as PEM.
    pub cert: PathBuf,
    /// File with its private key, as PEM.
    pub key: PathBuf,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error(transparent)]
    Io(#[from] PathError),
    /// A file is not what it should be.
    #[error("{} has no {what} as PEM", path.display())]
    Invalid {
        /// Which.
        path: PathBuf,
        /// Certificate or private key.
        what: &'static str,
    },
    /// They do not belong together, or are of a kind that is not known.
    #[error("{} and {} cannot be used together", cert.display(), key.display())]
    Pair {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
}

impl TlsError {
    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io(error) => error.kind(),
            Self::Invalid { .. } | Self::Pair { .. } => ErrorKind::Invalid,
        }
    }
}

impl Tls {
    /// What is said to clients: HTTP/2 if they can.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn read(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let none = |path: &Path, what| TlsError::Invalid { path: path.to_owned(), what };
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&bytes(&self.cert)?).collect();
        let certificates = certificates.ok().filter(|all| !all.is_empty());
        let certificates = certificates.ok_or_else(|| none(&self.cert, "certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(&bytes(&self.key)?)
            .map_err(|_| none(&self.key, "private key"))?;
        let pair =
            |source| TlsError::Pair { cert: self.cert.clone(), key: self.key.clone(), source };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(certificates, key));
        let mut config = config.map_err(pair)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// The same, and whoever sees when the files change from then on.
    ///
    /// # Errors
    /// [`TlsError`].
    pub(crate) fn followed(self) -> Result<(Arc<ServerConfig>, Follower), TlsError> {
        // Before they are read: what changes while they are is seen the next time.
        let known = self.stamps();
        let config = self.read()?;
        Ok((config, Follower { tls: self, seen: Seen { known, told: None } }))
    }

    /// What changes when one of the files does.
    fn stamps(&self) -> Stamps {
        [&self.cert, &self.key].map(|path| {
            let meta = fs_err::metadata(path).ok()?;
            Some((meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
        })
    }
}

/// Looks whether the files have changed.
#[derive(Debug)]
pub(crate) struct Follower {
    tls: Tls,
    seen: Seen,
}

impl Follower {
    /// Has `config` follow the files. Ends never.
    pub(crate) async fn follow(mut self, config: RustlsConfig) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let looked = tokio::task::spawn_blocking(move || {
                let new = self.look();
                (self, new)
            });
            let Ok((after, new)) = looked.await else { return };
            self = after;
            if let Some(new) = new {
                config.reload_from_config(new);
                tracing::info!("the certificate was read again");
            }
        }
    }

    fn look(&mut self) -> Option<Arc<ServerConfig>> {
        self.seen.look(self.tls.stamps(), || self.tls.read())
    }
}

/// Inode, length and time of both files, if they are there.
type Stamps = [Option<(u64, u64, i64, i64)>; 2];

/// What was seen of the files.
#[derive(Debug)]
struct Seen {
    /// As they were when they were read, or found to be of no use.
    known: Stamps,
    /// As they were when it was last told that they cannot be used.
    told: Option<Stamps>,
}

impl Seen {
    /// What `read` makes of the files, if they have changed and can be used. What
    /// keeps one of them from being read may pass without a change of it, such as
    /// who may do that: then they are read again the next time.
    fn look<T>(&mut self, stamps: Stamps, read: impl FnOnce() -> Result<T, TlsError>) -> Option<T> {
        if stamps == self.known {
            return None;
        }
        let read = read();
        if !matches!(read, Err(TlsError::Io(_))) {
            self.known = stamps;
        }
        let told = self.told.replace(stamps);
        let tell = |error: TlsError| {
            if told != Some(stamps) {
                let error = causes(&error);
                tracing::error!(%error, "the certificate stays as it was");
            }
        };
        read.map_err(tell).ok()
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    let long = || io::Error::from(io::ErrorKind::FileTooLarge);
    let read = fs_err::metadata(path).and_then(|meta| match meta.len() > FILE_BYTES {
        true => Err(long()),
        false => fs_err::read(path),
    });
    Ok(read.map_err(PathError::when("read", path))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_once_is_read_again() {
        let mut seen = Seen { known: [None; 2], told: None };
        let [one, other] = [1, 2].map(|inode| [Some((inode, 100, 1, 0)); 2]);
        let failed = || {
            let source = io::ErrorKind::PermissionDenied.into();
            Err::<(), _>(PathError { action: "read", path: "key.pem".into(), source }.into())
        };
        let invalid = || Err::<(), _>(TlsError::Invalid { path: "x".into(), what: "certificate" });
        assert_eq!(seen.look(one, failed), None);
        assert_eq!(seen.look(one, failed), None);
        assert_eq!(seen.look(one, || Ok(())), Some(()), "who may read it is no part of its stamp");
        assert_eq!(seen.look(one, || Ok(())), None, "nothing has changed");
        // What makes no sense makes none a moment later.
        assert_eq!(seen.look(other, invalid), None);
        assert_eq!(seen.look(other, || Ok(())), None);
        assert_eq!(seen.look(one, || Ok(())), Some(()));
    }

    #[test]
    fn what_changes_before_anybody_follows_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        let tls = Tls { cert, key };
        let renew = || {
            let names = ["localhost".to_owned()];
            let made = rcgen::generate_simple_self_signed(names).unwrap();
            // Beside it and renamed, as who renews does.
            for (path, text) in
                [(&tls.cert, made.cert.pem()), (&tls.key, made.signing_key.serialize_pem())]
            {
                fs_err::write(folder.path().join("new"), text).unwrap();
                fs_err::rename(folder.path().join("new"), path).unwrap();
            }
        };
        renew();
        let (_, mut follower) = tls.clone().followed().unwrap();
        assert!(follower.look().is_none(), "nothing has changed");
        let (_, mut follower) = tls.clone().followed().unwrap();
        renew();
        assert!(follower.look().is_some());
        assert!(follower.look().is_none());
    }
}
