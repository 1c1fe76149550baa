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

    /// Has `config` follow the files. Ends never.
    pub(crate) async fn follow(self, config: RustlsConfig) {
        let mut known = self.stamps();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let stamps = self.stamps();
            if stamps == known {
                continue;
            }
            known = stamps;
            let again = self.clone();
            match tokio::task::spawn_blocking(move || again.read()).await {
                Ok(Ok(new)) => {
                    config.reload_from_config(new);
                    tracing::info!("the certificate was read again");
                }
                Ok(Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "the certificate stays as it was");
                }
                Err(_) => {}
            }
        }
    }

    /// What changes when one of the files does.
    fn stamps(&self) -> [Option<(u64, u64, i64, i64)>; 2] {
        [&self.cert, &self.key].map(|path| {
            let meta = fs_err::metadata(path).ok()?;
            Some((meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
        })
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
