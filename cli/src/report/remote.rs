//! What to do about an error of a store elsewhere.

use std::error::Error;

use snap_core::{
    base::{close::close_names, kind::ErrorKind},
    repo::ref_name::RefKind,
};
use snap_remote::{
    location::{LocationError, Scheme},
    service::{ServiceError, What, local_store::CURRENT, open::OpenError},
    store::{INDEX, REFS, RemoteError},
};

use crate::{report::CliError, ui::text};

/// Words in the names of settings that would be secrets.
const SECRETS: [&str; 5] = ["secret", "password", "token", "access", "account-key"];

/// Advice for one link of the chain of causes.
pub(super) fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    let of = |found: Option<String>| found;
    of(error.downcast_ref().and_then(of_remote))
        .or_else(|| error.downcast_ref().and_then(of_service))
        .or_else(|| error.downcast_ref().and_then(of_open))
        .or_else(|| error.downcast_ref().and_then(of_location))
}

/// Advice for a remote that is not known.
pub(super) fn which(error: &CliError) -> Option<String> {
    match error {
        CliError::NoRemote { name, known } => {
            let close = close_names(name, known.iter().map(String::as_str));
            Some(match (close.as_slice(), known.as_slice()) {
                ([], []) => format!("`snap remote add {name} URL` makes one"),
                ([], _) => {
                    let known: Vec<_> =
                        known.iter().map(|name| text::line(name.as_bytes())).collect();
                    format!("there is `{}`", known.join("`, `"))
                }
                (close, _) => format!("did you mean `{}`?", close.join("`, `")),
            })
        }
        CliError::NoRemotes => Some(
            "`snap remote add origin URL` makes one, such as s3://bucket/project or file:///mnt/x"
                .to_owned(),
        ),
        CliError::WhichRemote { .. } => Some("name one, or call one of them `origin`".to_owned()),
        _ => None,
    }
}

/// Whether a setting would be a secret, by its name.
pub(super) fn is_secret(key: &str) -> bool {
    let name = key.to_ascii_lowercase().replace('_', "-");
    name.starts_with("remote.") && SECRETS.iter().any(|word| name.contains(word))
}

fn of_remote(error: &RemoteError) -> Option<String> {
    let hint = match error {
        RemoteError::Emptied { .. } => {
            "is its disk mounted, and the location right? `snap push --force` makes a new one there"
        }
        RemoteError::NoStore { .. } => "`snap push` makes one; is the path right?",
        RemoteError::NoRef { name, .. } if name.kind() == RefKind::Branch => {
            "`snap push` brings it there; is the name right?"
        }
        RemoteError::Behind { .. } => "`snap pull` first, or --force to give up what is there",
        RemoteError::Diverged { .. } => "`snap pull` shows what is there; --force gives it up",
        RemoteError::Raced { .. } | RemoteError::Held { .. } => "run it again",
        RemoteError::Itself { .. } => {
            "name another store; `snap branch NAME REV` makes or moves a branch of this one"
        }
        RemoteError::NotAStore { .. } => {
            "name an empty folder or prefix of its own, such as s3://bucket/project"
        }
        RemoteError::Vanished { .. } => {
            "run it again; if it stays so, push again from a store that is whole"
        }
        RemoteError::NoSettings { .. } => {
            "`snap push --force` from a store with the same settings writes them again"
        }
        RemoteError::Config { .. } if error.kind() == ErrorKind::Damaged => {
            "`snap push --force` from a store with the same settings writes them again"
        }
        RemoteError::Config { .. } | RemoteError::Newer { .. } => {
            "a newer snap may be able to use it"
        }
        RemoteError::Damaged { key, .. } if key.starts_with(REFS) => {
            "`snap push --force` puts the branch or tag here in its place, `snap push --delete` \
             removes it"
        }
        RemoteError::Damaged { key, .. } if key.starts_with(INDEX) => {
            "`snap verify` of the remote, then `snap push --all --tags` there from a store that is \
             whole"
        }
        RemoteError::Damaged { .. } | RemoteError::Pack { .. } | RemoteError::Incomplete { .. } => {
            "nothing here was changed; push it again from a store that is whole"
        }
        RemoteError::Interrupted => "run it again; what has arrived is not sent again",
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_service(error: &ServiceError) -> Option<String> {
    let hint = match error.what {
        What::Unauthenticated if is_server(error) => {
            "a token is needed: SNAP_REMOTE_SECRET says it, or `remote.NAME.credentials_file`; \
             whoever runs the server makes one with `snap serve token add`"
        }
        What::Denied if is_server(error) => {
            "this token may not do that: `snap serve token list` there tells what each is for"
        }
        What::Unauthenticated => {
            "check the keys (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, SNAP_REMOTE_SECRET, or \
             `remote.NAME.credentials_…`); `snap remote check` tries them"
        }
        What::Denied if error.location.starts_with("file://") => {
            "check whom that folder belongs to, its mode (`ls -ld`), and whether its disk can be \
             written"
        }
        What::Denied => {
            "these keys may not do that, or there are none; `snap remote check` tells what they may"
        }
        What::Expired => "get a new token, and run it again",
        What::Clock => "set the clock of this machine (`timedatectl`), and run it again",
        What::NoBucket => "make the bucket first; snap does not, and a typing error looks the same",
        What::Unreachable if error.message.contains("CaUsedAsEndEntity") => {
            "that certificate is an authority's, and no server's: docs/server.md tells how one is made"
        }
        What::Unreachable if error.message.contains("certificate") => {
            "this machine does not trust that certificate, or it is for another name; SSL_CERT_FILE \
             names a file of authorities to trust"
        }
        What::Unreachable => {
            "is the name of the host right, and is there a network? `snap remote check` tries again"
        }
        What::TooLong => {
            "nothing that snap writes is: is the location right? if so, look at what lies there"
        }
        What::Full => "make room there; what has arrived is not sent again",
        What::Refused if error.message == CURRENT => {
            "`snap branch --switch NAME` there has them go to another one"
        }
        What::Refused if error.message.ends_with("which was deleted there") => {
            "this service keeps the place of what was deleted: push it under another name, which \
             `snap branch NAME REV` makes"
        }
        What::Refused if error.message.contains("cannot be beside") => {
            "one name would be a folder of the other: use another one, or remove that one there \
             (`snap push --delete`)"
        }
        What::Busy | What::Temporary => "run it again later; what has arrived is not sent again",
        What::Unsupported => {
            "`snap remote check` tells what the service can do; where it does not write on a \
             condition, the option `conditional-writes` = false does without"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Whether it is one of ours.
fn is_server(error: &ServiceError) -> bool {
    ["http://", "https://"].iter().any(|scheme| error.location.starts_with(scheme))
}

fn of_open(error: &OpenError) -> Option<String> {
    match error {
        OpenError::Half { .. } => Some(
            "SNAP_REMOTE_USER says it, or `name = …` in the file or what the command prints"
                .to_owned(),
        ),
        OpenError::Setup { location, why } if location.starts_with("s3://") => {
            let region = why.to_ascii_lowercase().contains("region");
            region.then(|| "AWS_REGION says it, or `--option region=…`".to_owned())
        }
        _ => None,
    }
}

fn of_location(error: &LocationError) -> Option<String> {
    match error {
        LocationError::NoScheme { .. } | LocationError::Scheme { .. } => {
            let names: Vec<_> = Scheme::ALL.iter().map(|(_, name)| format!("{name}://")).collect();
            Some(format!("locations begin with {}", names.join(", ")))
        }
        LocationError::Option { scheme, .. } => {
            let scheme = Scheme::ALL.iter().find(|(_, name)| name == scheme)?.0;
            let names: Vec<_> = scheme.options().iter().map(|(name, _)| *name).collect();
            Some(match names.as_slice() {
                [] => "they have none".to_owned(),
                names => format!("they have {}", names.join(", ")),
            })
        }
        LocationError::Secret { .. }
        | LocationError::Revealing { .. }
        | LocationError::Form { .. } => {
            let is_secret = !matches!(error, LocationError::Form { .. })
                || error.to_string().contains("password");
            is_secret.then(|| {
                "SNAP_REMOTE_USER and SNAP_REMOTE_SECRET say them, or a file or command: \
                 `remote.NAME.credentials_file`, `remote.NAME.credentials_command`"
                    .to_owned()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_not_trusted_is_no_matter_of_names() {
        let hint = |message: &str| {
            of_service(&ServiceError::new("read", "HEAD", What::Unreachable, message.to_owned()))
        };
        let untrusted = hint("invalid peer certificate: UnknownIssuer").unwrap();
        assert!(untrusted.contains("SSL_CERT_FILE"), "{untrusted}");
        let authority = hint("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))");
        assert!(authority.unwrap().contains("no server's"));
        assert!(!hint("connection refused").unwrap().contains("SSL_CERT_FILE"));
    }
}
