//! What keeps a server from being started, or its tokens from being changed; and
//! what to do about it.

use std::{error::Error, io, net::SocketAddr};

use snap_core::base::kind::ErrorKind;
use snap_server::{access::tokens::TokensError, settings::SettingsError, tls::TlsError};

/// Why there is no server, or no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// What is to be served was said twice.
    #[error("a folder and an upstream cannot be served at once: {place} and {upstream}")]
    Twice { place: String, upstream: String },
    /// There is nothing where something was to be served.
    #[error("there is no store and no folder of stores at {place}")]
    Nothing { place: String },
    /// Another server serves it.
    #[error("another server serves {place}")]
    Served { place: String },
    /// There is no folder for what is kept of an upstream.
    #[error("there is no folder for what is kept of the upstream")]
    NoCacheFolder,
    /// An upstream has no place for tokens, and no other was named.
    #[error("nothing says where the tokens of a server before {upstream} are")]
    NoTokenFile { upstream: String },
    /// Tokens cannot be read, made or revoked.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A time that is none, or over.
    #[error("`{text}` is no time to come")]
    Expires { text: String },
    /// It would be open to the network, and nobody has to say who they are.
    #[error("a server at {address} would be open to everybody who can reach it")]
    OpenToAll { address: SocketAddr, is_behind: bool },
    /// It cannot listen.
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
}

impl ServeError {
    /// What a caller can do about it.
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
            Self::Listen { source, .. } => ErrorKind::of_io(source),
        }
    }
}

/// Advice for one link of the chain of causes.
pub(super) fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    let hint = match error.downcast_ref()? {
        ServeError::OpenToAll { is_behind: true, .. } | ServeError::NoTokenFile { .. } => {
            "`tokens = \"FILE\"` in the settings, or SNAP_SERVE_TOKENS, says where they are; `snap serve \
             token add NAME --config SETTINGS` makes one there"
        }
        ServeError::OpenToAll { .. } => {
            "`snap serve token add NAME` makes a token; then nobody without one is let in"
        }
        ServeError::Tls(TlsError::Invalid { .. } | TlsError::Pair { .. }) => {
            "they are PEM: `-----BEGIN CERTIFICATE-----`, and the private key that it was made for"
        }
        ServeError::Settings(SettingsError::Variable { .. }) => {
            "docs/server.md has them all: `limits.stop_secs` is SNAP_SERVE_LIMITS_STOP_SECS"
        }
        ServeError::Settings(SettingsError::Oidc { .. }) => {
            "docs/server.md shows what `[oidc]` says, with an example"
        }
        ServeError::Expires { .. } => "a date is such as 2027-01-31 or 2027-01-31T10:00",
        ServeError::Tokens(TokensError::Taken { .. }) => {
            "`snap serve token revoke NAME` first, or take another name"
        }
        ServeError::Tokens(TokensError::NoToken { .. }) => {
            "`snap serve token list` tells which there are"
        }
        ServeError::Tokens(TokensError::Name { .. }) => {
            "a name has up to 64 letters, digits, `.`, `_`, `-` and `@`"
        }
        ServeError::Tokens(TokensError::Repository { .. }) => {
            "a repository is called such as `team/project`; --repo takes one at a time"
        }
        ServeError::Nothing { place } => {
            return Some(format!(
                "`mkdir -p {place}` makes a folder of stores; each push to a new name makes one there"
            ));
        }
        ServeError::Served { .. } => {
            "stop that one first; to reach it by another address as well, serve its address: \
             `snap serve --upstream URL`"
        }
        ServeError::Twice { .. } => "leave one of them out, or the `upstream` in the settings",
        ServeError::NoCacheFolder => "`cache = FOLDER` in the file of settings names one",
        ServeError::Listen { .. } => "--listen says where; port 0 takes one that is free",
        _ => return None,
    };
    Some(hint.to_owned())
}
