//! What to do about a store, or settings in its file, that are not trusted.

use std::{io, path::PathBuf, sync::Arc};

use snap_core::repo::ownership::{Distrust, OVERFLOW_UID};

use crate::{report::CliError, ui::text};

/// A store that is only read: another user may have put it there.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the store at {} is only read: {why}", store.display())]
pub(crate) struct UntrustedStore {
    pub(crate) store: PathBuf,
    pub(crate) why: Arc<Distrust>,
    pub(crate) role: Role,
}

/// What a command does with a store that is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It works in that store.
    Here,
    /// It pushes into that store.
    Target,
}

/// Advice for an error about trust.
pub(super) fn hint(error: &CliError) -> Option<String> {
    let hint = match error {
        CliError::Untrusted { store, what, .. } => {
            let without = match what.starts_with('`') && !what.contains("remote") {
                true => "; --no-hooks commits without hooks",
                false => "",
            };
            let store = text::word(store.as_os_str().as_encoded_bytes());
            return Some(format!(
                "`snap config trust {store}` shows them and trusts them as they are{without}"
            ));
        }
        CliError::UntrustedStore(store) => return Some(of_store(store)),
        CliError::ForeignSettings { .. } => {
            "`snap config set --user KEY VALUE` changes your own settings"
        }
        CliError::SystemFile { .. } => {
            "`chown root` and `chmod 644` let it count; SNAP_CONFIG_SYSTEM= leaves it out"
        }
        CliError::RelativeTrust { .. } => "write it from `/` on",
        CliError::NoStateFolder => {
            "HOME or XDG_STATE_HOME names one; SNAP_TRUST=PATH trusts a store without it"
        }
        CliError::KeysWithheld { .. } => {
            "`snap config trust` shows the settings and trusts them; a location in place of the \
             name of the remote gets the keys, too"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Advice for a write that an untrusted store refused.
pub(super) fn of_io(error: &io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref().map(of_store)
}

fn of_store(UntrustedStore { store, why, role }: &UntrustedStore) -> String {
    let shown = text::word(store.as_os_str().as_encoded_bytes());
    let once = match role {
        Role::Here => format!("`--store {shown}` uses it once, and so does SNAP_TRUST={shown}"),
        Role::Target => format!("SNAP_TRUST={shown} does so once"),
    };
    let anyway =
        format!("`snap config trust {shown}` trusts it, {once} in a container or a pipeline");
    match &**why {
        Distrust::Owner { uid, .. } if *uid == OVERFLOW_UID => {
            format!("in a container, files of users that it does not know look like this; {anyway}")
        }
        Distrust::World { path, .. } => {
            format!(
                "`chmod o-w {}` closes it; {anyway}",
                text::word(path.as_os_str().as_encoded_bytes())
            )
        }
        Distrust::Group { .. } => format!(
            "`chmod -R g-w {shown}` closes it, `snap --store {shown} config set shared true` says \
             that its group may write to it"
        ),
        _ => anyway,
    }
}
