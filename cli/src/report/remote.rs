//! Hints for errors of remotes.

use std::error::Error;

use snap_core::{
    base::suggestions::similar_names,
    repo::{RepoError, ref_name::RefKind},
};
use snap_remote::{
    location::{LocationError, Scheme},
    service::{FailureDetail, FailureReason, ServiceError, open::OpenError},
    store::{INDEX, REFS, RemoteError},
};

use crate::{report::CliError, ui::text};

/// Words in the name of a setting that would hold a secret.
const SECRETS: [&str; 5] = ["secret", "password", "token", "access", "account-key"];

/// Returns the hint for one error of the chain of causes.
pub(super) fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    let of = |found: Option<String>| found;
    of(error.downcast_ref().and_then(of_remote))
        .or_else(|| error.downcast_ref().and_then(of_service))
        .or_else(|| error.downcast_ref().and_then(of_open))
        .or_else(|| error.downcast_ref().and_then(of_location))
}

/// Returns the hint for an unknown remote.
pub(super) fn which(error: &CliError) -> Option<String> {
    match error {
        CliError::NoRemote { name, known } => {
            let close = similar_names(name, known.iter().map(String::as_str));
            Some(match (close.as_slice(), known.as_slice()) {
                ([], []) => format!("`snap remote add {name} URL` adds it"),
                ([], _) => {
                    let known: Vec<_> =
                        known.iter().map(|name| text::line(name.as_bytes())).collect();
                    format!("known remotes: `{}`", known.join("`, `"))
                }
                (close, _) => format!("did you mean `{}`?", close.join("`, `")),
            })
        }
        CliError::NoRemotes => Some(
            "`snap remote add origin URL` adds one; a URL looks like s3://bucket/project or \
             file:///mnt/x"
                .to_owned(),
        ),
        CliError::WhichRemote { .. } => {
            Some("name a remote, or add one called `origin`".to_owned())
        }
        _ => None,
    }
}

/// Returns true if the name of a setting shows that it would hold a secret.
pub(super) fn is_secret(key: &str) -> bool {
    let name = key.to_ascii_lowercase().replace('_', "-");
    name.starts_with("remote.") && SECRETS.iter().any(|word| name.contains(word))
}

fn of_remote(error: &RemoteError) -> Option<String> {
    let hint = match error {
        RemoteError::Emptied { .. } => {
            "check that the disk is mounted and the location is correct; `snap push --force` \
             creates a new store there"
        }
        RemoteError::NoStore { .. } => "check the path; `snap push` creates a store",
        RemoteError::NoRef { name, .. } if name.kind() == RefKind::Branch => {
            "check the name; `snap push` sends the branch"
        }
        RemoteError::Behind { .. } => {
            "`snap pull` first, or --force to overwrite the commits of the remote"
        }
        RemoteError::Diverged { .. } => {
            "`snap pull` downloads the commits of the remote; --force overwrites them"
        }
        RemoteError::PartialClone { origin, .. } => {
            return Some(match origin {
                Some(url) => format!(
                    "clone from its origin, `snap clone {}`, or run `snap fetch` in the partial \
                     clone first",
                    text::word(url.as_bytes())
                ),
                None => "run `snap fetch` in the partial clone first".to_owned(),
            });
        }
        RemoteError::Raced { .. } | RemoteError::Held { .. } => "run it again",
        RemoteError::Itself { .. } => {
            "pass another store; `snap repair` and `snap branch NAME REV` change this one"
        }
        RemoteError::NotAStore { .. } => {
            "pass an empty folder or prefix, such as s3://bucket/project"
        }
        RemoteError::Vanished { .. } => {
            "run the command again; if the error remains, push again from an undamaged store"
        }
        error if error.is_of_settings() => {
            "`snap push --force` from a store with the same settings recreates them"
        }
        RemoteError::Config { .. } | RemoteError::Newer { .. } => {
            "a newer version of snap may be able to use it"
        }
        RemoteError::RefBlocked { .. } => "`snap push --delete` removes one of the two",
        RemoteError::Damaged { key, .. } if key.starts_with(REFS) => {
            "`snap push --force` replaces it by the local branch or tag, `snap push --delete` \
             removes it"
        }
        RemoteError::Damaged { key, .. } if key.starts_with(INDEX) => {
            "`snap repair` the remote, or `snap verify` it, then `snap push --all --tags` from an \
             undamaged store"
        }
        RemoteError::Damaged { .. } | RemoteError::Pack { .. } | RemoteError::Incomplete { .. } => {
            "nothing was changed here; push again from an undamaged store"
        }
        RemoteError::Interrupted => {
            "run the command again; a push or pull continues where it stopped"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Part of the messages of a snap server that refuses a move which an `append` token may not make.
const NEEDS_WRITE: &str = "token with write";

fn of_service(error: &ServiceError) -> Option<String> {
    if let Some(hint) = error.detail.map(of_detail) {
        return Some(hint.to_owned());
    }
    let hint = match error.reason {
        FailureReason::Unauthenticated if is_sftp(error) => {
            "test with `ssh`, the same user and host; the key must be in an agent or without a \
             passphrase; the option `key` names its file"
        }
        FailureReason::Denied if is_sftp(error) => {
            "check the owner and mode of the folder there (`ls -ld`)"
        }
        FailureReason::Unsupported if is_sftp(error) => {
            "test with `sftp`, the same user and host, whether the server supports SFTP"
        }
        FailureReason::HostKey => {
            "verify the key of the host and log in with `ssh` once; the option `known-hosts` = \
             add records a new key automatically"
        }
        FailureReason::Unauthenticated if is_server(error) => {
            "set a token in SNAP_REMOTE_SECRET or `remote.NAME.credentials_file`; the \
             administrator of the server creates one with `snap serve token add`"
        }
        FailureReason::Denied if is_server(error) && error.why().contains(NEEDS_WRITE) => {
            "the token may only append: the branch or tag stays as it is there; push the commits as \
             a new branch (`snap branch NAME`), or use a token with the scope `write`"
        }
        FailureReason::Denied if is_server(error) => {
            "the token lacks permission; `snap serve token list` on the server shows its rights"
        }
        FailureReason::Unauthenticated => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, SNAP_REMOTE_SECRET, or \
             `remote.NAME.credentials_file`; `snap remote check` tests them"
        }
        FailureReason::Denied if error.location.starts_with("file://") => {
            "check the owner and mode of the folder (`ls -ld`), and whether its disk is writable"
        }
        FailureReason::Denied | FailureReason::Unsupported
            if is_share(error) && error.operation == "write" =>
        {
            "the share must let this user create, replace and rename files (PUT, MOVE), also \
             through each proxy before it; `snap remote check` tests it"
        }
        FailureReason::Denied => {
            "the credentials are missing or lack permission; `snap remote check` tests them"
        }
        FailureReason::Expired => "get a new token and run the command again",
        FailureReason::Clock => {
            "set the clock of this machine (`timedatectl`) and run the command again"
        }
        FailureReason::NoBucket => {
            "check the name, or create the bucket first; snap does not create buckets"
        }
        FailureReason::Unreachable => {
            "check the host name and the network; `snap remote check` tests the connection"
        }
        FailureReason::TooLong => {
            "snap does not write such objects; check the location and the objects there"
        }
        FailureReason::RangeIgnored => {
            "snap reads parts of packs; let each proxy and cache before the service pass on `Range`"
        }
        FailureReason::Full => "free some space there; what was uploaded is not sent again",
        FailureReason::Busy | FailureReason::Temporary => {
            "run the command again later; what was uploaded is not sent again"
        }
        FailureReason::Unsupported => {
            "`snap remote check` tests what the service supports; without conditional writes, set \
             the option `conditional-writes` = false"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_detail(detail: FailureDetail) -> &'static str {
    match detail {
        FailureDetail::CaCertificate => {
            "the server presented a CA certificate instead of a server certificate; \
             docs/server.md shows how to create one"
        }
        FailureDetail::Certificate => {
            "the certificate is not trusted or is for another name; set SSL_CERT_FILE to a file \
             of CA certificates to trust"
        }
        FailureDetail::CurrentBranch => {
            "`snap branch --switch NAME` there selects another branch for its commits"
        }
        FailureDetail::NameReserved => {
            "this service reserves the names of deleted objects; push under another name: `snap \
             branch NAME REV`"
        }
        FailureDetail::PartialClone => {
            "push to the origin of the partial clone, or run `snap fetch` in the partial clone \
             first; a push from a store that has everything also works"
        }
        FailureDetail::NameConflict => {
            "one name would be a folder of the other; use another name, or remove the other ref \
             there with `snap push --delete`"
        }
    }
}

/// Returns true if the remote is a snap server.
fn is_server(error: &ServiceError) -> bool {
    ["http://", "https://"].iter().any(|scheme| error.location.starts_with(scheme))
}

/// Returns true if the remote is a WebDAV share.
fn is_share(error: &ServiceError) -> bool {
    ["webdav://", "webdavs://"].iter().any(|scheme| error.location.starts_with(scheme))
}

/// Returns true if the error comes from `ssh` or an SFTP server.
fn is_sftp(error: &ServiceError) -> bool {
    error.location.starts_with("sftp://")
}

fn of_open(error: &OpenError) -> Option<String> {
    match error {
        OpenError::Half { .. } => Some(
            "set SNAP_REMOTE_USER, or `name = …` in the credentials file or the output of the \
             command"
                .to_owned(),
        ),
        OpenError::NoRegion { .. } => {
            Some("set AWS_REGION, or pass `--option region=…`".to_owned())
        }
        OpenError::LeftOut { .. } => {
            Some("install a snap that was built with all features".to_owned())
        }
        OpenError::Store(RepoError::FoundLink { dir }) => {
            let word = text::word(dir.as_os_str().as_encoded_bytes());
            Some(format!(
                "if the link is not yours, `rm {word}` removes it; if it is, pass {word} as the \
                 remote"
            ))
        }
        _ => None,
    }
}

fn of_location(error: &LocationError) -> Option<String> {
    match error {
        LocationError::NoScheme { .. } | LocationError::Scheme { .. } => {
            let names: Vec<_> = Scheme::ALL.iter().map(|(_, name)| format!("{name}://")).collect();
            Some(format!("URLs begin with {}", names.join(", ")))
        }
        LocationError::Option { scheme, .. } => {
            let scheme = Scheme::ALL.iter().find(|(_, name)| name == scheme)?.0;
            let names: Vec<_> = scheme.options().iter().map(|(name, _)| *name).collect();
            Some(match names.as_slice() {
                [] => "this kind of URL has no options".to_owned(),
                names => format!("the options are {}", names.join(", ")),
            })
        }
        LocationError::Secret { .. }
        | LocationError::Revealing { .. }
        | LocationError::ContainsSecret { .. } => Some(
            "set SNAP_REMOTE_USER and SNAP_REMOTE_SECRET, or `remote.NAME.credentials_file`, or \
             `remote.NAME.credentials_command`"
                .to_owned(),
        ),
        LocationError::Form { .. } => None,
    }
}
