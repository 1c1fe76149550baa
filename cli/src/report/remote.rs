//! Hints for errors of remotes.

use std::error::Error;

use snap_core::{
    base::suggestions::similar_names,
    repo::{RepoError, config::ConfigError, ref_name::RefKind},
};
use snap_remote::{
    bucket::{FailureDetail, FailureReason, ServiceError},
    location::{LocationError, Scheme},
    peer::{GC, GC_STATE, INDEX, REFS, RemoteError, open::OpenError},
};

use crate::{
    report::{CliError, hint::FROM_BEFORE_THE_RELEASE},
    ui::text,
};

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
            "`snap remote add origin URL` adds one\n\
             a URL looks like s3://bucket/project or file:///mnt/disk/project"
                .to_owned(),
        ),
        CliError::WhichRemote { .. } => Some(
            "name the remote in the command\n\
             or name one of them `origin`; it is then the default"
                .to_owned(),
        ),
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
            "check that the location is correct and its disk is mounted\n\
             `snap push --force` creates a new store there"
        }
        RemoteError::NoStore { .. } => "check the path; `snap push` creates a store",
        RemoteError::NoRef { name, .. } if name.kind() == RefKind::Branch => {
            "check the name; `snap push` sends the branch"
        }
        RemoteError::Behind { .. } => {
            "`snap pull` downloads them first\n\
             `snap push --force` overwrites them"
        }
        RemoteError::Diverged { .. } => {
            "`snap pull` downloads the commits of the remote\n\
             `snap push --force` overwrites them"
        }
        RemoteError::PartialClone { origin, .. } => {
            return Some(match origin {
                Some(url) => format!(
                    "clone from its origin: `snap clone {}`\n\
                     or first run `snap fetch` in the partial clone",
                    text::word(url.as_bytes())
                ),
                None => "first run `snap fetch` in the partial clone".to_owned(),
            });
        }
        RemoteError::Raced { .. } | RemoteError::Held { .. } | RemoteError::Collected { .. } => {
            "run the command again"
        }
        RemoteError::CollectServer { .. } => "a later version will collect it",
        RemoteError::CollectUnsafe { .. } => {
            "make sure that no other client pushes, and pass `--exclusive`"
        }
        RemoteError::CollectNoTimes { .. } => "`--now` deletes packs of any age",
        RemoteError::Itself { .. } => "pass another store",
        RemoteError::NotAStore { .. } => {
            "pass an empty folder or prefix, such as s3://bucket/project"
        }
        RemoteError::Vanished { .. } => {
            "run the command again\n\
             if the error remains, push again from an undamaged store"
        }
        error if error.is_of_settings() => {
            "`snap push --force` from a store with the same settings recreates them"
        }
        RemoteError::Older { .. } => FROM_BEFORE_THE_RELEASE,
        RemoteError::Config { source, .. } if matches!(**source, ConfigError::Older { .. }) => {
            FROM_BEFORE_THE_RELEASE
        }
        RemoteError::Config { .. } | RemoteError::Newer { .. } => {
            "a newer version of snap may be able to use it"
        }
        RemoteError::RefBlocked { .. } => "`snap push --delete NAME` deletes one of the two",
        RemoteError::Damaged { key, .. } if key.starts_with(REFS) => {
            "`snap push --force` replaces it by the local branch or tag\n\
             `snap push --delete NAME` deletes it"
        }
        RemoteError::Damaged { key, .. } if key == GC_STATE => {
            "`snap repair REMOTE` writes it again if no garbage was collected there"
        }
        RemoteError::Damaged { key, .. } if key.starts_with(GC) => {
            "`snap repair REMOTE` writes it again in a store that used it since the last `snap gc` there"
        }
        RemoteError::Damaged { key, .. } if key.starts_with(INDEX) => {
            "`snap repair REMOTE` repairs it from the local store\n\
             `snap push --all --tags` from an undamaged store sends lost data again"
        }
        RemoteError::Damaged { .. } | RemoteError::Pack { .. } | RemoteError::Incomplete { .. } => {
            "nothing was changed here; push again from an undamaged store"
        }
        RemoteError::Blocked(_) => "run the command again; it continues where it stopped",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_service(error: &ServiceError) -> Option<String> {
    if let Some(hint) = error.detail.map(of_detail) {
        return Some(hint.to_owned());
    }
    let hint = match error.reason {
        FailureReason::Unauthenticated if is_sftp(error) => {
            "test with `ssh USER@HOST`\n\
             the key must be in an agent or without a passphrase; the option `key` names its file"
        }
        FailureReason::Denied if is_sftp(error) => {
            "check the owner and mode of the folder there (`ls -ld`)"
        }
        FailureReason::Unsupported if is_sftp(error) => {
            "test with `sftp USER@HOST` whether the server supports SFTP"
        }
        FailureReason::HostKey => {
            "log in with `ssh USER@HOST` once, and verify the key of the host\n\
             `--option known-hosts=add` accepts and records the keys of new hosts"
        }
        FailureReason::Unauthenticated if is_server(error) => {
            "set a token in SNAP_REMOTE_SECRET or `remote.NAME.credentials_file`\n\
             `snap serve token add NAME` on the server creates one"
        }
        FailureReason::Denied if is_server(error) => {
            "`snap serve token list` on the server shows what the token permits"
        }
        FailureReason::Unauthenticated => {
            "set SNAP_REMOTE_USER and SNAP_REMOTE_SECRET, or `remote.NAME.credentials_file`\n\
             for s3, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY also work\n\
             `snap remote check` tests the credentials"
        }
        FailureReason::Denied if error.location.starts_with("file://") => {
            "check the owner and mode of the folder (`ls -ld`), and that its disk is writable"
        }
        FailureReason::Denied | FailureReason::Unsupported
            if is_share(error) && error.operation == "write" =>
        {
            "the share and its proxies must permit this user to create, replace and rename files \
             (PUT, MOVE)\n\
             `snap remote check` tests it"
        }
        FailureReason::Denied => {
            "the credentials are missing or lack permission\n\
             `snap remote check` tests them"
        }
        FailureReason::Expired => "get a new token and run the command again",
        FailureReason::Clock => {
            "set the clock of this machine (`timedatectl`) and run the command again"
        }
        FailureReason::NoBucket => "check the name of the bucket; snap does not create buckets",
        FailureReason::Unreachable => {
            "check the host name and the network\n\
             `snap remote check` tests the connection"
        }
        FailureReason::TooLong => "snap writes no object this large; check the location",
        FailureReason::RangeIgnored => {
            "configure the proxies and caches before the service to forward `Range` headers"
        }
        FailureReason::Full => {
            "free some space there, and run the command again; uploaded data is not sent again"
        }
        FailureReason::Busy | FailureReason::Temporary => {
            "run the command again later; uploaded data is not sent again"
        }
        FailureReason::Unsupported => {
            "`snap remote check` tests what the service supports\n\
             without conditional writes, set the option `conditional-writes=false`"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_detail(detail: FailureDetail) -> &'static str {
    match detail {
        FailureDetail::AppendOnly => {
            "`snap branch NAME`, then `snap push REMOTE NAME` pushes the commits as a new \
             branch\n\
             a token with the scope `write` may also move and delete branches and tags"
        }
        FailureDetail::CaCertificate => {
            "the server presents a CA certificate\n\
             docs/server.md shows how to create a server certificate"
        }
        FailureDetail::Certificate => {
            "the certificate is not trusted or is for another name\n\
             set SSL_CERT_FILE to a file of CA certificates to trust"
        }
        FailureDetail::CurrentBranch => {
            "run `snap branch --switch NAME` in that project to switch to another branch"
        }
        FailureDetail::NameReserved => {
            "this service reserves the names of deleted objects\n\
             `snap branch NAME REV` creates a branch of another name to push"
        }
        FailureDetail::PartialClone => {
            "push to the origin of the partial clone\n\
             or first run `snap fetch` in the partial clone"
        }
        FailureDetail::NameConflict => {
            "choose another name\n\
             `snap push --delete NAME` deletes the other branch or tag there"
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
            "set SNAP_REMOTE_USER\n\
             or add `name = …` to the credentials file or to the output of the credentials \
             command"
                .to_owned(),
        ),
        OpenError::NoRegion { .. } => Some(
            "set AWS_REGION\n\
             or pass `--option region=REGION`"
                .to_owned(),
        ),
        OpenError::LeftOut { .. } => {
            Some("install a snap that was built with all features".to_owned())
        }
        OpenError::Store(RepoError::FoundLink { dir }) => {
            let word = text::word(dir.as_os_str().as_encoded_bytes());
            Some(format!(
                "if you made the link, pass {word} as the remote\n\
                 if not, `rm {word}` removes the link"
            ))
        }
        _ => None,
    }
}

fn of_location(error: &LocationError) -> Option<String> {
    match error {
        LocationError::NoScheme { .. } | LocationError::Scheme { .. } => {
            // `memory://` is for tests.
            let public = Scheme::ALL.iter().filter(|(scheme, _)| *scheme != Scheme::Memory);
            let names: Vec<_> = public.map(|(_, name)| format!("{name}://")).collect();
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
            "set SNAP_REMOTE_USER and SNAP_REMOTE_SECRET\n\
             or set `remote.NAME.credentials_file` or `remote.NAME.credentials_command`"
                .to_owned(),
        ),
        LocationError::Form { .. } => None,
    }
}
