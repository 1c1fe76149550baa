//! What is committed, where to, and what is left out: options and profile
//! together. Lists of the two are joined; of single values the option counts.

use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use snap_core::{
    base::{io::PathError, name::EntryName},
    local::read::Reading,
    ops::commit::{self, NamedPath, OtherSources, Run, Source, Unchanged, Unnamed, Unseen},
    repo::{Config, RefName, Repo, open::STORE_FOLDER},
};

use crate::{
    commands::commit::{
        CommitArgs,
        project::{self, Within},
    },
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
    if let Some(store) = found.as_ref().filter(|_| !args.dry_run) {
        cx.check_found(store)?;
    }
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

    /// Fails when nothing says what to commit: the current folder may be any,
    /// such as `/` in a timer.
    pub(super) fn check_source(&self, args: &CommitArgs) -> Result<(), CliError> {
        let is_named = !self.paths.is_empty() || !args.paths.is_empty() || args.stdin.is_some();
        match is_named || self.project.is_some() {
            true => Ok(()),
            false => {
                Err(CliError::NoSource { store: text::line(self.store.as_os_str().as_bytes()) })
            }
        }
    }

    /// What is read. Options follow from where it lies.
    pub(super) fn source(
        &self,
        args: &CommitArgs,
        repo: &Repo,
        options: &mut commit::Options,
        cx: &Context,
    ) -> Result<Source<'static>, CliError> {
        if !args.replace {
            options.other_sources = OtherSources::Refuse;
        }
        let of_project = |options: &mut commit::Options| {
            options.unseen = if args.onto_tip { Unseen::Accept } else { Unseen::Refuse };
        };
        let keep = |options: &mut commit::Options, root: &Path| {
            if !args.replace {
                options.unnamed = Unnamed::Keep(root.to_owned());
            }
        };
        if let Some(name) = &args.stdin {
            let bad = |source| CliError::StdinName { source };
            let name = EntryName::new(name.as_bytes()).map_err(bad)?;
            match &self.project {
                Some(project) => {
                    of_project(options);
                    keep(options, project);
                }
                None => options.sources = [name.as_bytes().into()].into(),
            }
            return Ok(Source::Stream { name, reader: Box::new(cx.stdin()) });
        }
        let start = self.start();
        let of_profile = self.paths.iter().map(|path| (start.join(path), path));
        let said: Vec<(PathBuf, &PathBuf)> =
            of_profile.chain(args.paths.iter().map(|path| (path.clone(), path))).collect();
        if let Some(project) = &self.project {
            // What is there keeps its place, whatever is missing.
            let there = said.iter().filter(|(path, _)| !self.missing.contains(path));
            let paths: Vec<&Path> = there.map(|(path, _)| path.as_path()).collect();
            match project::within(project, &paths)? {
                Within::Whole => {
                    of_project(options);
                    let scope = if args.replace { None } else { repo.scope()? };
                    return Ok(match scope {
                        Some(scope) => Source::Partial(project.clone(), scope),
                        None => Source::Folder(project.clone()),
                    });
                }
                Within::Paths(named) => {
                    of_project(options);
                    keep(options, project);
                    return Ok(Source::Paths(named));
                }
                Within::Elsewhere => {}
            }
        }
        for (path, _) in &said {
            if !self.missing.contains(path)
                && let Err(error) = path.symlink_metadata()
            {
                return Err(CliError::Source(PathError::when("read", path)(error)));
            }
        }
        options.sources =
            said.iter().map(|(path, _)| source_name(path)).collect::<Result<_, _>>()?;
        match said.as_slice() {
            [(one, _)] if one.is_dir() => Ok(Source::Folder(one.clone())),
            several => {
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
            reading: if args.checksum { Reading::All } else { Reading::Changed },
            ..said
        })
    }
}

/// A source as it is recorded and compared: absolute, without `.` and `..`.
/// Symlinks are not resolved, so that one that leads to another place each day
/// stays one source.
fn source_name(path: &Path) -> Result<Box<[u8]>, CliError> {
    let path = std::path::absolute(path).map_err(|source| CliError::Folder { source })?;
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    Ok(plain.as_os_str().as_bytes().into())
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
pub(crate) fn whole_folder(repo: &Repo) -> PathBuf {
    repo.project().map_or_else(|| PathBuf::from("."), Path::to_owned)
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
