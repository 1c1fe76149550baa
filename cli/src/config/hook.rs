//! Commands that run before and after a commit: which, and whether they may.

use snap_core::repo::config::{
    error::Origin,
    key::{KeyPath, Value},
};

use crate::{config::Settings, report::CliError};

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before anything is read.
    PreCommit,
    /// When the commit stands.
    PostCommit,
}

impl Moment {
    /// Its name among the settings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PreCommit => "pre_commit",
            Self::PostCommit => "post_commit",
        }
    }
}

/// What a hook that fails does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// The command ends with an error.
    Stop,
    /// It is told, and the command goes on.
    Report,
}

/// A command of the user's.
#[derive(Clone, Debug)]
pub(crate) struct Hook {
    /// A line for the shell.
    pub(crate) command: String,
    /// What happens when it fails.
    pub(crate) on_failure: OnFailure,
}

impl Settings {
    /// The hook for this moment, of the profile, else of everything.
    ///
    /// A hook of a store's file runs only if the user trusts that file. An
    /// untrusted file can neither turn off a hook of the user nor say that its
    /// failure does not matter.
    pub(crate) fn hook(
        &self,
        moment: Moment,
        profile: Option<&str>,
    ) -> Result<Option<Hook>, CliError> {
        let Some((Value::Text(command), origin)) = self.of_hooks(moment.name(), profile) else {
            return Ok(None);
        };
        self.check_trust(&origin, &format!("`{}`", moment.name()))?;
        if command.trim().is_empty() {
            return Ok(None);
        }
        let on_failure = self.of_hooks("on_failure", profile);
        if let Some((_, origin)) = &on_failure {
            self.check_trust(origin, "`on_failure`")?;
        }
        let on_failure = match (on_failure, moment) {
            (Some((Value::Text(text), _)), _) if text == "report" => OnFailure::Report,
            (None, Moment::PostCommit) => OnFailure::Report,
            _ => OnFailure::Stop,
        };
        Ok(Some(Hook { command, on_failure }))
    }

    fn of_hooks(&self, name: &'static str, profile: Option<&str>) -> Option<(Value, Origin)> {
        let of_profile =
            |profile| self.merged.get(&KeyPath::new(["profile", profile, "hooks", name]));
        let of_all = || self.merged.get(&KeyPath::new(["hooks", name]));
        profile.and_then(of_profile).or_else(of_all)
    }
}
