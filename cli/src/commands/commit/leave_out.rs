//! The exclude options of a commit, and of a comparison with one.

use std::{io, path::PathBuf};

use snap_core::{base::io::PathError, local::ignore, repo::Config};

use crate::{config::Profile, context::Context, report::CliError, ui::size};

/// The files that a commit or a comparison leaves out.
#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Exclude options")]
pub(crate) struct LeaveOut {
    /// Pattern of paths to exclude, as in .gitignore; may be repeated
    #[arg(short, long, value_name = "PATTERN")]
    exclude: Vec<String>,

    /// File with patterns to exclude, one per line
    #[arg(long, alias = "exclude-file", value_name = "FILE")]
    exclude_from: Vec<PathBuf>,

    /// Exclude the contents of folders with a CACHEDIR.TAG file
    #[arg(long)]
    exclude_caches: bool,

    /// Exclude files larger than this, such as 100MiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    exclude_larger_than: Option<u64>,

    /// Do not cross into other file systems
    #[arg(long)]
    one_file_system: bool,

    /// Also exclude what .gitignore files name
    #[arg(long)]
    gitignore: bool,
}

impl LeaveOut {
    /// Joins the exclude rules of the options, the profile and the settings.
    pub(crate) fn join(
        &self,
        profile: &Profile,
        config: &Config,
        cx: &Context,
    ) -> Result<ignore::Options, CliError> {
        let mut patterns = config.commit.exclude.clone();
        patterns.extend(profile.exclude.iter().cloned());
        for file in &self.exclude_from {
            let text = cx.open_input(file).and_then(io::read_to_string);
            let text =
                text.map_err(|error| CliError::Source(PathError::when("read", file)(error)))?;
            patterns.extend(ignore::lines(text.as_bytes()).map(str::to_owned));
        }
        patterns.extend(self.exclude.iter().cloned());
        let or = |option: bool, of_profile: Option<bool>, setting: bool| {
            option || of_profile.unwrap_or(setting)
        };
        Ok(ignore::Options {
            patterns,
            gitignore: or(self.gitignore, profile.gitignore, config.commit.gitignore),
            cache_folders: or(
                self.exclude_caches,
                profile.exclude_caches,
                config.commit.exclude_caches,
            ),
            larger_than_bytes: self.exclude_larger_than,
            one_file_system: self.one_file_system || profile.one_file_system,
        })
    }
}
