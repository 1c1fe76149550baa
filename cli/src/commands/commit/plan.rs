//! What is committed, where to, and what is left out: options and profile
//! together. Lists of the two are joined; of single values the option counts.

use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use snap_core::{
    base::{io::PathError, name::EntryName},
    ops::commit::{self, NamedPath, Run, Source, Unchanged},
    repo::{Config, RefName, Repo, open::STORE_FOLDER},
};

use crate::{
    commands::commit::CommitArgs,
    config::{Profile, Settings},
    context::{Context, Named},
    report::CliError,
    ui::text,
};

/// Where a commit goes.
pub(super) enum Place {
    /// To the store that was named, or that is there.
    There(PathBuf),
    /// There is none yet; it would be made here.
    ToBeMade(PathBuf),
}

/// What is asked for.
pub(super) struct Plan {
    pub(super) store: PathBuf,
    pub(super) branch: Option<String>,
    profile: Profile,
    /// Those of the profile, then those of the command line.
    paths: Vec<PathBuf>,
    /// Those that are not there.
    missing: Vec<PathBuf>,
    /// The folder that `.snap` is in.
    project: Option<PathBuf>,
}

/// Finds the store. A profile that the store's file alone has is not known
/// yet; it cannot say which store.
pub(super) fn place(args: &CommitArgs, cx: &Context) -> Result<Place, CliError> {
    let settings = cx.settings();
    let profile = match &args.profile {
        Some(name) => settings.find_profile(name)?,
        None => None,
    };
    let mut paths = Vec::new();
    if let Some(profile) = &profile {
        if let (Named::Nowhere, Some(store)) = (cx.named(), &profile.store) {
            return Ok(Place::There(settings.expand(store)?));
        }
        for path in &profile.paths {
            paths.push(settings.expand(path)?);
        }
    }
    let of_profile = paths.clone();
    paths.extend(args.paths.iter().cloned());
    let here = Path::new(".");
    let top = match paths.as_slice() {
        [one] if one.is_dir() => one,
        _ => here,
    };
    let found = cx.find_store(top)?;
    if let Some(store) = found.as_ref().filter(|store| !Repo::is_unfinished(store)) {
        return Ok(Place::There(store.clone()));
    }
    if let (Some(name), None) = (&args.profile, &profile) {
        settings.profile(name)?;
    }
    // Nothing is made for what cannot be committed anyway.
    if let Some(name) = &args.profile {
        check_some(name, &of_profile, args)?;
    }
    for path in &args.paths {
        path.symlink_metadata()
            .map_err(|error| CliError::Source(PathError::when("read", path)(error)))?;
    }
    let place = match top == here {
        true => PathBuf::from(STORE_FOLDER),
        false => top.join(STORE_FOLDER),
    };
    Ok(Place::ToBeMade(found.unwrap_or(place)))
}

impl Plan {
    /// Joins options and profile.
    pub(super) fn new(
        args: &CommitArgs,
        settings: &Settings,
        store: PathBuf,
    ) -> Result<Self, CliError> {
        let name = args.profile.as_deref();
        let profile = name.map(|name| settings.profile(name)).transpose()?.unwrap_or_default();
        let project = store.parent().filter(|_| store.ends_with(STORE_FOLDER));
        let project = project.map(|parent| match parent.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => parent.to_owned(),
        });
        let mut plan = Self {
            branch: args.branch.clone().or_else(|| profile.branch.clone()),
            store,
            profile,
            paths: Vec::new(),
            missing: Vec::new(),
            project,
        };
        for text in &plan.profile.paths {
            let path = settings.expand(text)?;
            if path.is_relative() && plan.project.is_none() {
                let profile = name.unwrap_or_default().to_owned();
                return Err(CliError::NoStart { profile, path: text.clone() });
            }
            plan.paths.push(path);
        }
        if let Some(name) = name {
            let start = plan.start();
            let from_start: Vec<PathBuf> = plan.paths.iter().map(|path| start.join(path)).collect();
            check_some(name, &from_start, args)?;
            plan.missing = from_start.into_iter().filter(|path| is_missing(path)).collect();
        }
        Ok(plan)
    }

    /// Where relative paths of a profile start, wherever one is.
    fn start(&self) -> &Path {
        self.project.as_deref().unwrap_or(Path::new("."))
    }

    /// Tells of what the profile says that is not there, and counts it.
    pub(super) fn tell_missing(&self, args: &CommitArgs, cx: &Context) -> u64 {
        let name = args.profile.as_deref().unwrap_or_default();
        for path in &self.missing {
            let path = text::line(path.as_os_str().as_bytes());
            cx.ui().warning(format_args!("path of profile `{name}` does not exist: {path}"));
        }
        self.missing.len() as u64
    }

    /// What is read.
    pub(super) fn source(
        &self,
        args: &CommitArgs,
        cx: &Context,
    ) -> Result<Source<'static>, CliError> {
        if let Some(name) = &args.stdin {
            let bad = |source| CliError::StdinName { source };
            let name = EntryName::new(name.as_bytes()).map_err(bad)?;
            return Ok(Source::Stream { name, reader: Box::new(cx.stdin()) });
        }
        let project = self.start();
        let of_profile = self.paths.iter().map(|path| (project.join(path), path));
        let said: Vec<(PathBuf, &PathBuf)> =
            of_profile.chain(args.paths.iter().map(|path| (path.clone(), path))).collect();
        match said.as_slice() {
            [] => Ok(Source::Folder(match (cx.named(), &self.profile.store) {
                (Named::Nowhere, None) => project.to_owned(),
                _ => PathBuf::from("."),
            })),
            [(one, _)] if one.is_dir() => Ok(Source::Folder(one.clone())),
            several => {
                // What is there keeps its place, whatever is missing.
                let there = several.iter().filter(|(path, _)| !self.missing.contains(path));
                let named = there.map(|(path, shown)| named(path.clone(), shown));
                Ok(Source::Paths(named.collect::<Result<_, _>>()?))
            }
        }
    }

    /// How it is committed.
    pub(super) fn options(
        &self,
        args: &CommitArgs,
        config: &Config,
        cx: &Context,
    ) -> Result<commit::Options, CliError> {
        let said = args.describe.options(config, cx)?;
        let mut labels = self.profile.labels.clone();
        labels.extend(said.labels);
        let of_profile = || self.profile.message.clone().unwrap_or_default();
        Ok(commit::Options {
            branch: self.branch.as_deref().map(RefName::branch).transpose()?,
            message: args.describe.message().unwrap_or_else(of_profile),
            labels,
            ignore: args.leave_out.join(&self.profile, config, cx)?,
            unchanged: if args.allow_empty { Unchanged::Commit } else { Unchanged::Keep },
            run: if args.dry_run { Run::Dry } else { Run::Real },
            ..said
        })
    }
}

/// Fails when a profile names paths, none of them is there, and no other is
/// given.
fn check_some(name: &str, paths: &[PathBuf], args: &CommitArgs) -> Result<(), CliError> {
    let is_none = !paths.is_empty() && paths.iter().all(|path| is_missing(path));
    match paths.first().filter(|_| is_none && args.paths.is_empty()) {
        Some(first) => {
            let path = text::line(first.as_os_str().as_bytes());
            Err(CliError::NoPaths { profile: name.to_owned(), path, count: paths.len() })
        }
        None => Ok(()),
    }
}

/// Whether a path is certainly not there; one that cannot be looked at is told
/// by whoever reads it.
fn is_missing(path: &Path) -> bool {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    path.symlink_metadata().is_err_and(|error| absent.contains(&error.kind()))
}

/// The folder that is committed to a store when none is named.
pub(crate) fn whole_folder(repo: &Repo, cx: &Context) -> PathBuf {
    match (cx.named(), repo.project()) {
        (Named::Nowhere, Some(project)) => project.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A path with its place in the snapshot: as it was written, without a leading
/// `/`.
pub(crate) fn named(path: PathBuf, written: &Path) -> Result<NamedPath, CliError> {
    let no_place = || CliError::NoPlace { path: written.display().to_string() };
    let bytes = written.as_os_str().as_bytes();
    let parts = bytes.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".");
    let inside =
        parts.map(EntryName::new).collect::<Result<Vec<_>, _>>().map_err(|_| no_place())?;
    if inside.is_empty() {
        return Err(no_place());
    }
    Ok(NamedPath { path, inside })
}
