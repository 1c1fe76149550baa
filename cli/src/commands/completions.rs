//! `snap completions`: prints completion scripts for shells.

use std::io::Write;

use clap_complete::{Shell as Static, generate};

use crate::{
    args::definition,
    context::Context,
    report::{CliError, CommandOutcome},
};

const EXAMPLES: &str = "\
Examples:
  source <(snap completions bash)      in ~/.bashrc
  snap completions zsh > ~/.zfunc/_snap
                                       in a folder of $fpath
  snap completions fish > ~/.config/fish/completions/snap.fish
  snap completions powershell | Out-String | Invoke-Expression
                                       in $PROFILE
  eval (snap completions elvish | slurp)
                                       in ~/.config/elvish/rc.elv

In bash, zsh and fish, Tab then completes commands, options, refs, ids and, after
`REV:`, paths in a snapshot. In PowerShell and Elvish, it completes commands and
options.";

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// Shell of the script
    shell: Shell,
}

/// A shell.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
    Elvish,
}

pub(crate) fn run(args: &CompletionsArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let script = match args.shell {
        Shell::Bash => include_bytes!("../complete/scripts/snap.bash").to_vec(),
        Shell::Zsh => include_bytes!("../complete/scripts/snap.zsh").to_vec(),
        Shell::Fish => include_bytes!("../complete/scripts/snap.fish").to_vec(),
        Shell::Powershell => generated(Static::PowerShell),
        Shell::Elvish => generated(Static::Elvish),
    };
    let mut out = cx.ui().out();
    out.write_all(&script)?;
    out.finish()?;
    Ok(CommandOutcome::Success)
}

/// Generates a script with today's commands and options, which does not call snap.
fn generated(shell: Static) -> Vec<u8> {
    let mut script = Vec::new();
    let whole = definition();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    let arguments = whole.get_arguments().cloned();
    let mut definition = clap::Command::new("snap").args(arguments).subcommands(shown.cloned());
    generate(shell, &mut definition, "snap", &mut script);
    script
}
