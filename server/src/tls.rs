//! TLS with a certificate and its private key. The server reads both again when the files change.
//! It logs a new pair that cannot be used, and keeps the old one.

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

use crate::{causes::causes, clock::Clock};

/// Interval between checks of the files for changes.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Maximum length of a certificate or key file, in bytes.
const FILE_BYTES: u64 = 1 << 20;

/// The files of the certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// PEM file with the certificate and its chain.
    pub cert: PathBuf,
    /// PEM file with the private key of the certificate.
    pub key: PathBuf,
}

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error(transparent)]
    Io(#[from] PathError),
    /// A file holds no certificate or no private key in PEM.
    #[error("{} contains no {what} in PEM format", path.display())]
    Invalid {
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
    },
    /// The certificate and the key do not match, or are of an unsupported kind.
    #[error("certificate {} and key {} do not match or are not supported", cert.display(), key.display())]
    Pair {
        cert: PathBuf,
        key: PathBuf,
        /// The reason that rustls gives.
        source: rustls::Error,
    },
}

impl TlsError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io(error) => error.kind(),
            Self::Invalid { .. } | Self::Pair { .. } => ErrorKind::Invalid,
        }
    }
}

impl Tls {
    /// Reads the files and returns the configuration, which offers HTTP/2 and HTTP/1.1.
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

    /// Like [`read`](Self::read), and also returns a watcher that notices later changes.
    ///
    /// # Errors
    /// [`TlsError`].
    pub(crate) fn followed(self) -> Result<(Arc<ServerConfig>, CertificateWatcher), TlsError> {
        // Take the stamps before the read, so that the watcher notices a change during the read.
        let known = self.stamps();
        let config = self.read()?;
        Ok((config, CertificateWatcher { tls: self, seen: WatchState { known, logged: None } }))
    }

    /// Returns values that change when one of the files changes.
    fn stamps(&self) -> Stamps {
        [&self.cert, &self.key].map(|path| {
            let meta = fs_err::metadata(path).ok()?;
            Some((meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
        })
    }
}

/// Checks whether the files have changed.
#[derive(Debug)]
pub(crate) struct CertificateWatcher {
    tls: Tls,
    seen: WatchState,
}

impl CertificateWatcher {
    /// Updates `config` whenever the files change. Runs until its task is aborted.
    pub(crate) async fn follow(mut self, config: RustlsConfig, clock: Clock) {
        loop {
            clock.sleep(LOOK_EVERY).await;
            let looked = tokio::task::spawn_blocking(move || {
                let new = self.look();
                (self, new)
            });
            let Ok((after, new)) = looked.await else { return };
            self = after;
            if let Some(new) = new {
                config.reload_from_config(new);
                tracing::info!("the certificate was reloaded");
            }
        }
    }

    fn look(&mut self) -> Option<Arc<ServerConfig>> {
        self.seen.look(self.tls.stamps(), || self.tls.read())
    }
}

/// Inode, length, and modification time (seconds, nanoseconds) of both files; `None` for a
/// file that is missing.
type Stamps = [Option<(u64, u64, i64, i64)>; 2];

/// The state of the files as the watcher last saw it.
#[derive(Debug)]
struct WatchState {
    /// The stamps of the files that were last read, or found to be invalid.
    known: Stamps,
    /// The stamps at the last attempt to read. A failure is logged once for the same
    /// stamps.
    logged: Option<Stamps>,
}

impl WatchState {
    /// Calls `read` if the files have changed, and returns its result if they can be used. An I/O
    /// error, such as a missing permission, may pass while the stamps stay the same, so the next
    /// call then reads the files again.
    fn look<T>(&mut self, stamps: Stamps, read: impl FnOnce() -> Result<T, TlsError>) -> Option<T> {
        if stamps == self.known {
            return None;
        }
        let read = read();
        if !matches!(read, Err(TlsError::Io(_))) {
            self.known = stamps;
        }
        let logged = self.logged.replace(stamps);
        let log_failure = |error: TlsError| {
            if logged != Some(stamps) {
                let error = causes(&error);
                tracing::error!(%error, "cannot reload the certificate, the old one stays in use");
            }
        };
        read.map_err(log_failure).ok()
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
    fn an_unreadable_certificate_is_read_again() {
        let mut seen = WatchState { known: [None; 2], logged: None };
        let [one, other] = [1, 2].map(|inode| [Some((inode, 100, 1, 0)); 2]);
        let failed = || {
            let source = io::ErrorKind::PermissionDenied.into();
            Err::<(), _>(PathError { action: "read", path: "key.pem".into(), source }.into())
        };
        let invalid = || Err::<(), _>(TlsError::Invalid { path: "x".into(), what: "certificate" });
        assert_eq!(seen.look(one, failed), None);
        assert_eq!(seen.look(one, failed), None);
        assert_eq!(
            seen.look(one, || Ok(())),
            Some(()),
            "a change of permissions does not change the stamp"
        );
        assert_eq!(seen.look(one, || Ok(())), None, "nothing has changed");
        // Invalid content is not read again before it changes.
        assert_eq!(seen.look(other, invalid), None);
        assert_eq!(seen.look(other, || Ok(())), None);
        assert_eq!(seen.look(one, || Ok(())), Some(()));
    }

    #[test]
    fn a_certificate_changed_before_following_is_reloaded() {
        let folder = tempfile::tempdir().unwrap();
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        let tls = Tls { cert, key };
        let renew = || {
            let names = ["localhost".to_owned()];
            let made = rcgen::generate_simple_self_signed(names).unwrap();
            // Written beside the file and renamed, as programs that renew certificates do.
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
