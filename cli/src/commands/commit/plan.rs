//! Joins options and profile into what is committed, and where. Lists of the two are joined; for
//! single values the option wins.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

use snap_core::{
    base::{io::PathError, name::EntryName},
    local::{ignore::GITIGNORE, read::ReadMode},
    ops::commit::{
        self, BehindPolicy, CommitRun, CommitSource, EmptyStream, NamedPath, OtherPaths,
        OtherSources, Unchanged,
    },
    repo::{Config, RefName, Repo, open::STORE_FOLDER},
};

use crate::{
    command_stream::CommandStream,
    commands::commit::{
        CommitArgs, git,
        project::{self, PathLocation},
    },
    config::{Profile, Settings},
    context::{Context, StoreChoice, check_is_folder},
    report::CliError,
    ui::text,
};

/// The store of a commit.
pub(super) enum TargetStore {
    /// The named or existing store.
    There(PathBuf),
    /// There is no store yet; it would be created here.
    ToBeMade(PathBuf),
}

/// The paths and options of a commit.
pub(super) struct CommitPlan {
    pub(super) store: PathBuf,
    pub(super) branch: Option<String>,
    profile: Profile,
    /// The paths of the profile, then those of the command line.
    paths: Vec<PathBuf>,
    /// The paths that do not exist.
    missing: Vec<PathBuf>,
    /// The folder that contains `.snap`.
    project: Option<PathBuf>,
}

/// Finds the store. At this point a profile that is only in the store's file is not known; it
/// cannot choose the store.
pub(super) fn place(args: &CommitArgs, cx: &Context) -> Result<TargetStore, CliError> {
    let settings = cx.settings();
    let profile = match &args.profile {
        Some(name) => settings.find_profile(name)?,
        None => None,
    };
    let mut paths = Vec::new();
    if let Some(profile) = &profile {
        if let (StoreChoice::Nowhere, Some(store)) = (cx.named(), &profile.store) {
            check_is_folder(Path::new(store))?;
            return Ok(TargetStore::There(settings.expand(store)?));
        }
        for path in &profile.paths {
            paths.push(settings.expand(path)?);
        }
    }
    let of_profile = paths.clone();
    paths.extend(args.paths().iter().cloned());
    let here = Path::new(".");
    let top = match paths.as_slice() {
        [one] if one.is_dir() => one,
        _ => here,
    };
    let mut found = cx.find_store(top)?;
    if found.is_none() && top != here {
        found = cx.find_store(here)?;
    }
    if let Some(store) = found.as_ref().filter(|_| !args.dry_run) {
        cx.check_found(store)?;
    }
    if let Some(store) = found.as_ref().filter(|store| !Repo::is_unfinished(store)) {
        return Ok(TargetStore::There(store.clone()));
    }
    if let (Some(name), None) = (&args.profile, &profile) {
        settings.profile(name)?;
    }
    // No store is created for a commit that would fail.
    if let Some(name) = &args.profile {
        check_some(name, &of_profile, None, args)?;
    }
    for path in args.paths() {
        path.symlink_metadata()
            .map_err(|error| CliError::Source(PathError::when("read", path)(error)))?;
    }
    // A timer may have `/` as its current folder. On a terminal, snap asks the user.
    if paths.is_empty() && found.is_none() && is_root() && !cx.ui().is_interactive() {
        return Err(CliError::WholeMachine);
    }
    Ok(TargetStore::ToBeMade(found.unwrap_or_else(|| PathBuf::from(STORE_FOLDER))))
}

/// Returns true if the current folder is `/`.
fn is_root() -> bool {
    std::env::current_dir().is_ok_and(|folder| folder.parent().is_none())
}

impl CommitPlan {
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
            check_some(name, &from_start, plan.project.as_deref(), args)?;
            let project = plan.project.as_deref();
            plan.missing =
                from_start.into_iter().filter(|path| is_missing(path, project)).collect();
        }
        Ok(plan)
    }

    /// Returns the folder that relative paths of a profile start at, whatever the current folder
    /// is.
    fn start(&self) -> &Path {
        self.project.as_deref().unwrap_or(Path::new("."))
    }

    /// Warns about paths of the profile that do not exist, and counts them.
    pub(super) fn warn_missing(&self, args: &CommitArgs, cx: &Context) -> u64 {
        let name = args.profile.as_deref().unwrap_or_default();
        for path in &self.missing {
            let path = text::line(path.as_os_str().as_bytes());
            cx.ui().warning(format_args!("path of profile `{name}` does not exist: {path}"));
        }
        self.missing.len() as u64
    }

    /// Fails if neither the options nor the profile name anything to commit. The current folder may
    /// be any, such as `/` in a timer.
    pub(super) fn check_source(&self, args: &CommitArgs) -> Result<(), CliError> {
        let is_named = !self.paths.is_empty() || !args.paths().is_empty() || args.stdin.is_some();
        match is_named || self.project.is_some() {
            true => Ok(()),
            false => {
                Err(CliError::NoSource { store: text::line(self.store.as_os_str().as_bytes()) })
            }
        }
    }

    /// Returns true if the project is also a git work tree, and has no commit yet.
    pub(super) fn is_first_beside_git(&self, repo: &Repo) -> Result<bool, CliError> {
        let Some(project) = &self.project else { return Ok(false) };
        let is_git = git::is_at(project);
        Ok(is_git && (repo.is_absent() || repo.refs().head_commit()?.is_none()))
    }

    /// Returns true if there is a `.gitignore` at the top of the project.
    pub(super) fn has_gitignore(&self) -> bool {
        self.project
            .as_ref()
            .is_some_and(|project| project.join(GITIGNORE).symlink_metadata().is_ok())
    }

    /// Returns the source of the commit, and sets the options that depend on its place.
    pub(super) fn source(
        &self,
        args: &CommitArgs,
        repo: &Repo,
        options: &mut commit::CommitOptions,
        cx: &Context,
    ) -> Result<CommitSource<'static>, CliError> {
        if !args.replace {
            options.other_sources = OtherSources::Refuse;
        }
        let of_project = |options: &mut commit::CommitOptions| {
            options.unseen =
                if args.onto_tip { BehindPolicy::Accept } else { BehindPolicy::Refuse };
        };
        let keep = |options: &mut commit::CommitOptions, root: &Path| {
            if !args.replace {
                options.unnamed = OtherPaths::Keep(root.to_owned());
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
            let reader: Box<dyn Read + Send> = match args.operands.as_slice() {
                [program, arguments @ ..] if args.stdin_from_command => {
                    Box::new(CommandStream::new(program, arguments, cx.stop_flag()))
                }
                _ => Box::new(cx.stdin()),
            };
            return Ok(CommitSource::Stream { name, reader });
        }
        let start = self.start();
        let of_profile = self.paths.iter().map(|path| (start.join(path), path));
        let sources: Vec<(PathBuf, &PathBuf)> =
            of_profile.chain(args.paths().iter().map(|path| (path.clone(), path))).collect();
        if let Some(project) = &self.project {
            // Existing paths keep their places, even if others are missing.
            let existing = sources.iter().filter(|(path, _)| !self.missing.contains(path));
            let paths: Vec<&Path> = existing.map(|(path, _)| path.as_path()).collect();
            match project::within(project, &paths)? {
                PathLocation::Whole => {
                    of_project(options);
                    // Only a user who names the folder means that nothing outside it should stay.
                    let is_all = args.replace && !sources.is_empty();
                    let scope = if is_all { None } else { repo.scope()? };
                    return Ok(match scope {
                        Some(scope) => CommitSource::Partial(project.clone(), scope),
                        None => CommitSource::Folder(project.clone()),
                    });
                }
                PathLocation::Paths(named) => {
                    of_project(options);
                    keep(options, project);
                    return Ok(CommitSource::Paths(named));
                }
                PathLocation::Outside => {}
            }
        }
        let paths = once(sources.into_iter().map(|(path, _)| path));
        // A missing path of a profile is skipped, and a path that cannot be read as well.
        for path in &paths {
            if !self.missing.contains(path)
                && let Err(error) = path.metadata()
                && (error.kind() == io::ErrorKind::NotFound || paths.len() == 1)
            {
                return Err(CliError::Source(PathError::when("read", path)(error)));
            }
        }
        options.sources = paths.iter().map(|path| source_name(path)).collect::<Result<_, _>>()?;
        match paths.as_slice() {
            [one] if self.paths.is_empty() => of_one(one),
            several => {
                let existing = several.iter().filter(|path| !self.missing.contains(path));
                let named = existing.map(|path| source_at(path, &absolute(path)?));
                Ok(CommitSource::Paths(named.collect::<Result<_, _>>()?))
            }
        }
    }

    /// Returns the options of the commit.
    pub(super) fn options(
        &self,
        args: &CommitArgs,
        config: &Config,
        cx: &Context,
    ) -> Result<commit::CommitOptions, CliError> {
        let described = args.describe.options(config, cx)?;
        let mut labels = self.profile.labels.clone();
        labels.extend(described.labels);
        let of_profile = || self.profile.message.clone().unwrap_or_default();
        Ok(commit::CommitOptions {
            branch: self.branch.as_deref().map(RefName::branch).transpose()?,
            message: args.describe.message().unwrap_or_else(of_profile),
            labels,
            ignore: args.leave_out.join(&self.profile, config, cx)?,
            empty_stream: match args.allow_empty_stream {
                true => EmptyStream::Accept,
                false => EmptyStream::Refuse,
            },
            unchanged: if args.allow_empty { Unchanged::Commit } else { Unchanged::Keep },
            run: if args.dry_run { CommitRun::Dry } else { CommitRun::Real },
            allow: args.allow.iter().map(|path| snapshot_path(path)).collect(),
            reading: if args.checksum { ReadMode::All } else { ReadMode::Changed },
            ..described
        })
    }
}

/// Leaves out the paths that lead to the same place as an earlier one, however they are written.
fn once(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut places = BTreeSet::new();
    let place = |path: &PathBuf| project::real(path).unwrap_or_else(|_| path.clone());
    let is_first = |path: &PathBuf| places.insert(place(path));
    paths.filter(is_first).collect()
}

/// Returns the source for one path: the content of the folder, or a file at the top.
fn of_one(path: &Path) -> Result<CommitSource<'static>, CliError> {
    if path.is_dir() {
        return Ok(CommitSource::Folder(path.to_owned()));
    }
    let written = absolute(path)?;
    let name = written.file_name().unwrap_or(written.as_os_str());
    Ok(CommitSource::Paths(vec![source_at(path, Path::new(name))?]))
}

/// Returns a source with its place in the snapshot. A link that cannot be followed counts as a path
/// that cannot be read.
fn source_at(path: &Path, place: &Path) -> Result<NamedPath, CliError> {
    let on_disk = project::real(path).or_else(|_| absolute(path))?;
    followed(&on_disk, place).or_else(|_| named(on_disk.join("."), place))
}

/// Returns a path as a source of a commit records it.
fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    Ok(PathBuf::from(OsStr::from_bytes(&source_name(path)?)))
}

/// Returns a path in the snapshot as the snapshot has it.
fn snapshot_path(path: &OsStr) -> Vec<u8> {
    let path = path.as_bytes();
    path.strip_prefix(b"./").unwrap_or(path).to_vec()
}

/// Returns a source path as it is recorded and compared: absolute, without `.` and `..`. Symlinks
/// are not resolved, so a link that leads elsewhere each day stays the same source.
pub(crate) fn source_name(path: &Path) -> Result<Box<[u8]>, CliError> {
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

/// Fails if none of the paths of a profile exists and no other path is given.
fn check_some(
    name: &str,
    paths: &[PathBuf],
    project: Option<&Path>,
    args: &CommitArgs,
) -> Result<(), CliError> {
    let is_none = !paths.is_empty() && paths.iter().all(|path| is_missing(path, project));
    match paths.first().filter(|_| is_none && args.paths().is_empty()) {
        Some(first) => {
            let path = text::line(first.as_os_str().as_bytes());
            Err(CliError::NoPaths { profile: name.to_owned(), path, count: paths.len() })
        }
        None => Ok(()),
    }
}

/// Returns true if a path certainly does not exist, or is a link to such a path. A link in the
/// project is committed itself, so it exists. The code that reads the path reports other errors.
fn is_missing(path: &Path, project: Option<&Path>) -> bool {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    let is_absent = |found: io::Result<_>| found.is_err_and(|error| absent.contains(&error.kind()));
    let is_in_project = || project.is_some_and(|project| project::contains(project, path));
    is_absent(path.symlink_metadata())
        || path.is_symlink() && is_absent(path.metadata()) && !is_in_project()
}

/// Returns the folder that is committed if the user names no path.
pub(crate) fn whole_folder(repo: &Repo) -> PathBuf {
    repo.project().map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// Returns a path as [`named`] does, and follows it if it is a symbolic link: the user means what
/// it leads to. Its place in the snapshot is that of the link.
pub(crate) fn followed(path: &Path, written: &Path) -> Result<NamedPath, CliError> {
    let when = PathError::when("follow", path);
    let target = match path.is_symlink() {
        true => fs_err::canonicalize(path).map_err(|error| CliError::Source(when(error)))?,
        false => path.to_owned(),
    };
    named(target, written)
}

/// Returns a path with its place in the snapshot: the path as it was written, without a leading
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
