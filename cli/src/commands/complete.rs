//! `snap __tab`: called by the completion scripts.

use std::{ffi::OsString, io::Write};

use crate::{
    args::definition,
    complete::{
        complete,
        shell::{self, Bash, ParsedLine},
    },
    context::Context,
    report::{CliError, CommandOutcome},
};

/// Say what may come next on a command line
///
/// Called by the scripts that `snap completions` prints.
#[derive(Debug, clap::Args)]
pub(crate) struct CompleteArgs {
    /// Which script asks
    shell: Asking,

    /// For bash the line up to the cursor, `COMP_WORDBREAKS` and `COMP_TYPE`;
    /// for others the words behind `snap`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Who asks.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Asking {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(args: &CompleteArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let mut definition = definition();
    definition.build();
    let candidates = match (args.shell, args.words.as_slice()) {
        (Asking::Bash, [line, breaks, kind]) => {
            let at = ParsedLine::split(line.as_encoded_bytes());
            let before = at.before.get(1..).unwrap_or_default();
            let answer = complete(&definition, before, &at.current, cx.place());
            // With types 37 and 42 bash inserts one word after another, without listing them.
            let lists = !matches!(kind.to_str(), Some("37" | "42"));
            Bash { line, breaks, lists }.lines(&at, &answer)
        }
        (Asking::Bash, _) | (_, []) => Vec::new(),
        (asking, [before @ .., current]) => {
            let current = match asking {
                // fish does not remove the quotes of an incomplete word.
                Asking::Fish => ParsedLine::split(current.as_encoded_bytes()).current,
                _ => current.clone(),
            };
            shell::lines(&complete(&definition, before, &current, cx.place()))
        }
    };
    let mut out = cx.ui().plain_out();
    out.write_all(&candidates)?;
    out.finish()?;
    Ok(CommandOutcome::Success)
}
