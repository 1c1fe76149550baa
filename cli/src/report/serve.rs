//! Errors of starting a server and of managing its tokens, with their hints.

use std::{error::Error, io, net::SocketAddr};

use snap_core::base::kind::ErrorKind;
use snap_server::{access::tokens::TokensError, settings::SettingsError, tls::TlsError};

/// Why a server cannot be started, or tokens cannot be managed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The settings are invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Both a folder and an upstream were given.
    #[error("a folder and an upstream cannot be served at once: {place} and {upstream}")]
    Twice { place: String, upstream: String },
    /// The folder has no store and no folder of stores.
    #[error("{place} is neither a store nor a folder of stores")]
    Nothing { place: String },
    /// Another server already serves the folder.
    #[error("another server serves {place}")]
    Served { place: String },
    /// There is no folder for the cache of an upstream.
    #[error("no cache folder is configured for the upstream")]
    NoCacheFolder,
    /// A server with an upstream has no default file for tokens, and none was given.
    #[error("no token file is configured for a server with the upstream {upstream}")]
    NoTokenFile { upstream: String },
    /// Tokens cannot be read, created or revoked.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An expiry time is invalid or in the past.
    #[error("`{text}` is not a future date")]
    Expires { text: String },
    /// The server would be reachable from the network without authentication.
    #[error("a server at {address} would accept requests without authentication")]
    OpenToAll { address: SocketAddr, is_behind: bool },
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
}

impl ServeError {
    /// Returns the kind of the error, from which a caller decides what to do.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Settings(_)
            | Self::Twice { .. }
            | Self::NoTokenFile { .. }
            | Self::Expires { .. }
            | Self::OpenToAll { .. } => ErrorKind::Invalid,
            Self::Served { .. } => ErrorKind::Locked,
            Self::Nothing { .. } | Self::NoCacheFolder => ErrorKind::NotFound,
            Self::Tokens(error) => error.kind(),
            Self::Tls(error) => error.kind(),
            Self::Listen { source, .. } => source.kind().into(),
        }
    }
}

/// Returns the hint for one error of the chain of causes.
pub(super) fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    let hint = match error.downcast_ref()? {
        ServeError::OpenToAll { is_behind: true, .. } | ServeError::NoTokenFile { .. } => {
            "set `tokens = \"FILE\"` in the settings, or SNAP_SERVE_TOKENS\n\
             then create a token: `snap serve token add NAME --config SETTINGS`"
        }
        ServeError::OpenToAll { .. } => {
            "`snap serve token add NAME` creates a token; the server then rejects requests \
             without one"
        }
        ServeError::Tls(TlsError::Invalid { .. } | TlsError::Pair { .. }) => {
            "use PEM files: the certificate, and the private key of that certificate"
        }
        ServeError::Settings(SettingsError::Variable { .. }) => {
            "docs/server.md lists the variables, such as SNAP_SERVE_LIMITS_STOP_SECS"
        }
        ServeError::Settings(SettingsError::Oidc { .. }) => {
            "docs/server.md describes `[oidc]`, with an example"
        }
        ServeError::Expires { .. } => "a date looks like 2027-01-31 or 2027-01-31T10:00",
        ServeError::Tokens(TokensError::Taken { .. }) => {
            "choose another name\n\
             `snap serve token revoke NAME` frees the name"
        }
        ServeError::Tokens(TokensError::NoToken { .. }) => {
            "`snap serve token list` lists the tokens"
        }
        ServeError::Tokens(TokensError::Name { .. }) => {
            "a name has up to 64 letters, digits, `.`, `_`, `-` and `@`"
        }
        ServeError::Tokens(TokensError::Repository { .. }) => {
            "a repository name looks like `team/project`\n\
             --repository takes one name and may be repeated"
        }
        ServeError::Nothing { place } => {
            return Some(format!(
                "create the folder: `mkdir -p {place}`\n\
                 each push to a new name then creates a store in it"
            ));
        }
        ServeError::Served { .. } => {
            "stop the other server first\n\
             for a second address, run `snap serve --upstream URL` with the URL of that server"
        }
        ServeError::Twice { .. } => {
            "pass only one of them\n\
             or remove `upstream` from the settings"
        }
        ServeError::NoCacheFolder => "set `cache = FOLDER` in the settings file",
        ServeError::Listen { .. } => {
            "pass another address with `--listen ADDRESS`\n\
             port 0 chooses a free port"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}
