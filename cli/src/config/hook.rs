//! Hooks: the commands that run before and after a commit, and whether they may run.

use snap_core::repo::config::{
    error::SettingOrigin,
    key::{KeyPath, Value},
};

use crate::{
    config::Settings,
    report::{CliError, SensitiveSetting},
};

/// The moment when a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookMoment {
    /// Before any file is read.
    PreCommit,
    /// After the commit.
    PostCommit,
}

impl HookMoment {
    /// Returns its name in the settings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PreCommit => "pre_commit",
            Self::PostCommit => "post_commit",
        }
    }
}

/// The effect of a failing hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// The command ends with an error.
    Stop,
    /// The failure is reported, and the command continues.
    Report,
}

/// A command of the user that runs at a commit.
#[derive(Clone, Debug)]
pub(crate) struct Hook {
    /// The command line for the shell.
    pub(crate) command: String,
    /// The effect of a failure.
    pub(crate) on_failure: OnFailure,
}

impl Settings {
    /// Returns the hook for this moment: from the profile if it has one, otherwise from the general
    /// settings.
    ///
    /// A hook in a store's file runs only if the user trusts that file. An untrusted file can
    /// neither turn off a hook of the user nor make its failure harmless.
    pub(crate) fn hook(
        &self,
        moment: HookMoment,
        profile: Option<&str>,
    ) -> Result<Option<Hook>, CliError> {
        let Some((Value::Text(command), origin)) = self.of_hooks(moment.name(), profile) else {
            return Ok(None);
        };
        self.check_trust(&origin, || SensitiveSetting::Hook(moment.name()))?;
        if command.trim().is_empty() {
            return Ok(None);
        }
        let on_failure = self.of_hooks("on_failure", profile);
        if let Some((_, origin)) = &on_failure {
            self.check_trust(origin, || SensitiveSetting::Hook("on_failure"))?;
        }
        let on_failure = match (on_failure, moment) {
            (Some((Value::Text(text), _)), _) if text == "report" => OnFailure::Report,
            (None, HookMoment::PostCommit) => OnFailure::Report,
            _ => OnFailure::Stop,
        };
        Ok(Some(Hook { command, on_failure }))
    }

    fn of_hooks(
        &self,
        name: &'static str,
        profile: Option<&str>,
    ) -> Option<(Value, SettingOrigin)> {
        let of_profile =
            |profile| self.merged.get(&KeyPath::new(["profile", profile, "hooks", name]));
        let of_all = || self.merged.get(&KeyPath::new(["hooks", name]));
        profile.and_then(of_profile).or_else(of_all)
    }
}
