//! The exclude options of a commit, and of a comparison with one.

use std::{io, path::PathBuf};

use snap_core::{
    base::{io::PathError, name::EntryName},
    local::ignore::{self, FolderMarker},
    repo::Config,
};

use crate::{config::Profile, context::Context, report::CliError, ui::measure};

/// The files that a commit or a comparison leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Exclude options")]
pub(crate) struct LeaveOut {
    /// Pattern of paths to exclude, as in .gitignore; may be repeated
    #[arg(short, long, value_name = "PATTERN")]
    exclude: Vec<String>,

    /// As --exclude, ignoring the case of ASCII letters; may be repeated
    #[arg(long, value_name = "PATTERN")]
    iexclude: Vec<String>,

    /// File with patterns to exclude, one per line
    #[arg(long, alias = "exclude-file", value_name = "FILE")]
    exclude_from: Vec<PathBuf>,

    /// Exclude the contents of folders with this file, which must start with HEADER; may be
    /// repeated
    #[arg(long, value_name = "FILE[:HEADER]", value_parser = marker)]
    exclude_if_present: Vec<FolderMarker>,

    /// Exclude the contents of folders with a CACHEDIR.TAG file
    #[arg(long)]
    exclude_caches: bool,

    /// Exclude files larger than this, such as 100MiB
    #[arg(long, value_name = "SIZE", value_parser = measure::size)]
    exclude_larger_than: Option<u64>,

    /// Do not cross into other file systems and bind mounts
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
        let join = |setting: &[String], profile: &[String]| [setting, profile].concat();
        let mut ignore_case_patterns = join(&config.commit.iexclude, &profile.iexclude);
        ignore_case_patterns.extend(self.iexclude.iter().cloned());
        let bad = |text: &String| CliError::Marker { text: text.clone() };
        let configured = join(&config.commit.exclude_if_present, &profile.exclude_if_present);
        let configured = configured.iter().map(|text| marker(text).map_err(|_| bad(text)));
        let mut markers = configured.collect::<Result<Vec<_>, _>>()?;
        markers.extend(self.exclude_if_present.iter().cloned());
        Ok(ignore::Options {
            patterns,
            ignore_case_patterns,
            markers,
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

/// Parses `FILE` or `FILE:HEADER`.
fn marker(text: &str) -> Result<FolderMarker, &'static str> {
    let (name, header) = text.split_once(':').unwrap_or((text, ""));
    let name = EntryName::new(name.as_bytes()).map_err(|_| "expected the name of a file")?;
    Ok(FolderMarker { name, header: header.as_bytes().into() })
}
