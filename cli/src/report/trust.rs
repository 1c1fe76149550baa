//! Errors and hints for untrusted stores and untrusted settings.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use snap_core::repo::ownership::{Distrust, OVERFLOW_UID};

use crate::{report::CliError, ui::text};

/// The error of writing to a store that another user may have put there; it can only be read. Or the
/// store cannot be examined.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", blocked(store, why))]
pub(crate) struct UntrustedStore {
    pub(crate) store: PathBuf,
    pub(crate) why: Arc<Distrust>,
    pub(crate) role: Role,
}

fn blocked(store: &Path, why: &Distrust) -> String {
    let store = store.display();
    match why {
        Distrust::Io(_) => format!("cannot use the store at {store}: {why}"),
        _ => format!("the store at {store} is read-only: {why}"),
    }
}

/// How a command uses an untrusted store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The command works in that store.
    Here,
    /// The command pushes into that store.
    Target,
}

/// The settings of a store that the user does not trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UntrustedSettings {
    pub(crate) store: PathBuf,
    /// True if there is a folder in which trust can be recorded.
    pub(crate) can_record: bool,
}

/// A setting that runs commands or sends data, and is therefore used from a trusted file only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SensitiveSetting {
    /// A profile, by its name.
    Profile(String),
    /// An option of a remote.
    Remote { name: String, option: String },
    /// A hook, or what happens if it fails.
    Hook(&'static str),
}

impl fmt::Display for SensitiveSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profile(name) => write!(f, "profile `{name}`"),
            Self::Remote { name, option } => write!(f, "`{option}` of remote `{name}`"),
            Self::Hook(key) => write!(f, "`{key}`"),
        }
    }
}

/// Returns the hint for an error about trust.
pub(super) fn hint(error: &CliError) -> Option<String> {
    let hint = match error {
        CliError::Untrusted { settings, what, .. } => {
            let without = match what {
                SensitiveSetting::Hook(_) => {
                    "\n\
                     --no-hooks commits without hooks"
                }
                SensitiveSetting::Profile(_) | SensitiveSetting::Remote { .. } => "",
            };
            return Some(format!("{}{without}", of_settings(settings)));
        }
        CliError::UntrustedStore(store) => return Some(of_store(store)),
        CliError::ForeignSettings { .. } => {
            "`snap config set --user KEY VALUE` changes your own settings"
        }
        CliError::SystemFile { .. } => {
            "`chown root` and `chmod 644` make it usable\n\
             SNAP_CONFIG_SYSTEM= ignores it"
        }
        CliError::RelativeTrust { .. } => "start the path with `/`",
        CliError::NoStateFolder => {
            "set HOME or XDG_STATE_HOME\n\
             SNAP_TRUST=PATH trusts a store without a record"
        }
        CliError::KeysWithheld { settings, .. } => {
            return Some(format!(
                "{}\n\
                 or pass the URL instead of the name of the remote",
                of_settings(settings)
            ));
        }
        CliError::UntrustedDefault { settings, .. } => {
            return Some(format!(
                "{}\n\
                 or name the remote in the command",
                of_settings(settings)
            ));
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns the ways to trust the settings of a store.
fn of_settings(UntrustedSettings { store, can_record }: &UntrustedSettings) -> String {
    let store = text::word(store.as_os_str().as_encoded_bytes());
    match can_record {
        true => format!("`snap config trust {store}` shows these settings and trusts them"),
        false => format!(
            "set HOME: snap records below it which settings you trust\n\
             SNAP_TRUST={store} trusts them without a record"
        ),
    }
}

/// Returns the hint for a write that was blocked because the store is untrusted.
pub(super) fn of_io(error: &io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref().map(of_store)
}

fn of_store(UntrustedStore { store, why, role }: &UntrustedStore) -> String {
    let shown = text::word(store.as_os_str().as_encoded_bytes());
    let once = match role {
        Role::Here => format!("`--store {shown}` or SNAP_TRUST={shown}"),
        Role::Target => format!("SNAP_TRUST={shown}"),
    };
    let anyway = format!(
        "`snap config trust {shown}` trusts it\n\
         {once} trusts it once, for a container or a pipeline"
    );
    match &**why {
        Distrust::Io(_) => "check its owner and mode (`ls -ld`)".to_owned(),
        Distrust::Owner { uid, .. } if *uid == OVERFLOW_UID => {
            format!(
                "in a container, files of unknown users look like this\n\
                 {anyway}"
            )
        }
        Distrust::World { path, .. } => {
            format!(
                "`chmod o-w {}` removes the write permission of others\n\
                 {anyway}",
                text::word(path.as_os_str().as_encoded_bytes())
            )
        }
        Distrust::Group { .. } => format!(
            "`chmod -R g-w {shown}` removes the write permission of the group\n\
             `snap --store {shown} config set shared true` permits it"
        ),
        _ => anyway,
    }
}

#[cfg(test)]
mod tests {
    use snap_core::base::io::PathError;

    use super::*;

    #[test]
    fn a_store_that_cannot_be_examined_is_neither_read_only_nor_untrusted() {
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        let why = Distrust::Io(PathError::when("look at", Path::new("p/.snap/refs"))(source));
        let store =
            UntrustedStore { store: "p/.snap".into(), why: Arc::new(why), role: Role::Here };
        let told = store.to_string();
        assert_eq!(told, "cannot use the store at p/.snap: cannot look at p/.snap/refs");
        assert_eq!(of_store(&store), "check its owner and mode (`ls -ld`)");
    }
}
