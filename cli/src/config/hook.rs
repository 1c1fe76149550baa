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
    /// One that a store's file says runs only if nobody but the user can have
    /// written that file: a store may have come from somebody else.
    pub(crate) fn hook(
        &self,
        moment: Moment,
        profile: Option<&str>,
    ) -> Result<Option<Hook>, CliError> {
        let Some((Value::Text(command), origin)) = self.of_hooks(moment.name(), profile) else {
            return Ok(None);
        };
        if command.trim().is_empty() {
            return Ok(None);
        }
        if matches!(origin, Origin::Store { .. }) {
            self.check_trust(&origin, &format!("`{}`", moment.name()))?;
        }
        let on_failure = match (self.of_hooks("on_failure", profile), moment) {
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
