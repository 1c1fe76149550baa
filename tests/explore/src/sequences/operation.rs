//! The operations of a sequence, and their form as lines of a script.
//!
//! An operation names everything that it needs, and does nothing if that is missing; for example,
//! if it renames a file that does not exist. Every subset of a sequence is therefore a valid
//! sequence, which the minimiser relies on. For the same reason a commit skips paths that do not
//! exist or lie inside each other.

use std::fmt;

use crate::sequences::files::Filling;

/// The beginning of 2026, at which the clock of a sequence starts.
pub(crate) const YEAR_2026_SECS: i64 = 1_767_225_600;

/// A working folder with its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// The project that exists from the start.
    Project,
    /// A full clone of the remote.
    Clone,
    /// A partial clone of the remote with the path `d`.
    Partial,
    /// The remote: a bare store in a folder, without working files.
    Hub,
}

impl Place {
    /// All working folders.
    pub(crate) const WORKING: [Self; 3] = [Self::Project, Self::Clone, Self::Partial];

    /// Returns the name of the folder.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Clone => "clone",
            Self::Partial => "partial",
            Self::Hub => "hub",
        }
    }

    /// Returns the path that the clone is limited to.
    pub(crate) fn scope(self) -> &'static str {
        if self == Self::Partial { "d" } else { "" }
    }
}

/// One step of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// Changes files, as a user would.
    File(Place, FileOp),
    /// Waits until the times of all files count as settled.
    Settle,
    /// Mounts a file system on the folder `m`, or unmounts it.
    Mount(Place, Option<MountKind>),
    /// Commits.
    Commit(Place, CommitArgs),
    /// Commits several times, each time with another content of `n`, so that packs are merged.
    Burst(Place, u64),
    /// Restores.
    Restore(Place, RestoreArgs),
    /// Switches to a branch, if it exists.
    Switch(Place, &'static str),
    /// Undoes the last change of a ref, or redoes it.
    Undo(Place, bool),
    /// Adds packs of another user to a store: under the id of a large file with this number they
    /// have a list of other chunks. For the remote, the other user pushes them.
    Forge(Place, u64),
    /// Damages or removes a pack: its number, and the kind of damage.
    Damage(Place, u64, DamageKind),
    /// Removes a derived folder of the store.
    Drop(Place, &'static str),
    /// Verifies the store: with `true` its data, otherwise only its structure.
    Verify(Place, bool),
    /// Repairs the store from the remote and the files, after reading its data (`true`) or only its
    /// structure.
    Repair(Place, bool),
    /// Removes a file of the store other than a pack, and restores it by the command in the hint.
    LoseFile(Place, OwnFile),
    /// Compares the working folder with the last commit.
    Status(Place),
    /// Clones the remote.
    Clone(Place),
    /// Pushes the local commits to the remote.
    Push(Place),
    /// Pulls the commits of the remote.
    Pull(Place),
    /// Starts a commit and kills it at this step.
    Kill(Place, u64),
}

/// A change to files of a working folder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FileOp {
    /// Writes a new file, or replaces the content of one.
    Write(String, Filling),
    /// Overwrites a file in place; `true` restores the mtime.
    Rewrite(String, Filling, bool),
    /// Renames a file or folder.
    Rename(String, String),
    /// Creates a hard link to a file.
    Link(String, String),
    /// Makes a symlink.
    Symlink(String, String),
    /// Removes a file or folder.
    Remove(String),
    /// Sets permission bits.
    Chmod(String, u32),
    /// Sets the modification time.
    Touch(String, u64),
    /// Sets the extended attribute.
    Attribute(String, u8),
    /// Writes `.snapignore` with these patterns, or removes it.
    Ignore(&'static [&'static str]),
    /// Creates a store with one commit in this folder.
    Nest(String),
    /// Creates a folder called `.snap` that is not a store, with one file.
    Lookalike(String),
    /// Creates a symlink called `.snap` in this folder. It leads to another project, which is there
    /// only while a commit runs with [`CommitArgs::within`].
    StoreLink(String),
    /// Makes a file or folder immutable, or ends that.
    Immutable(String, bool),
}

/// What is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountKind {
    /// An empty file system in memory, which then gets a file.
    Memory,
    /// A folder outside the project.
    Bind,
}

/// The kind of damage to a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DamageKind {
    /// The pack is removed.
    Lose,
    /// One bit at this thousandth of its length is flipped.
    Flip(u64),
    /// Its last third is cut off.
    Truncate,
}

/// A file of a store that is neither a pack nor derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnFile {
    /// The branch `main`.
    Branch,
    /// `HEAD`.
    Head,
    /// The settings.
    Settings,
}

impl OwnFile {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Branch, Self::Head, Self::Settings];

    /// Returns its path in the store.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Branch => "refs/heads/main",
            Self::Head => "HEAD",
            Self::Settings => "config.toml",
        }
    }
}

/// The options of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitArgs {
    /// Paths to update; empty for all.
    pub(crate) paths: Vec<String>,
    /// Reads all files.
    pub(crate) checksum: bool,
    /// Commits to the branch `side`.
    pub(crate) side: bool,
    /// Accepts commits that the working folder does not contain.
    pub(crate) onto_tip: bool,
    /// Excludes `*.tmp`.
    pub(crate) exclude: bool,
    /// Does not follow mounts.
    pub(crate) one_file_system: bool,
    /// The folder of the project in which the command runs, beside another project.
    pub(crate) within: Option<&'static str>,
    /// Makes a commit even if nothing changed.
    pub(crate) allow_empty: bool,
    /// Writes nothing.
    pub(crate) dry_run: bool,
    /// The year of the clock.
    pub(crate) year: Option<u32>,
}

/// The options of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestoreArgs {
    /// The number of the acknowledged commit, counted from the latest.
    pub(crate) back: u64,
    /// A path in the commit.
    pub(crate) path: Option<String>,
    /// Restores into another folder instead of the working folder.
    pub(crate) elsewhere: bool,
    /// Replaces files that differ.
    pub(crate) overwrite: bool,
    /// Removes entries that the commit lacks.
    pub(crate) delete: bool,
    /// Also removes entries that were excluded from the commit.
    pub(crate) delete_excluded: bool,
    /// Writes nothing.
    pub(crate) dry_run: bool,
    /// Confirms that files in no commit are lost.
    pub(crate) yes: bool,
    /// Ignores the stat cache.
    pub(crate) checksum: bool,
    /// Leaves `*.tmp` unchanged.
    pub(crate) exclude: bool,
}

impl CommitArgs {
    /// Returns the time of the clock, in seconds since 1970, up to a day.
    pub(crate) fn clock_secs(&self) -> i64 {
        match self.year {
            None => YEAR_2026_SECS,
            Some(2001) => 978_307_200,
            Some(2099) => 4_070_908_800,
            Some(year) => panic!("no sequence is about {year}"),
        }
    }

    /// Returns the arguments of the program, without the paths.
    pub(crate) fn options(&self) -> Vec<&'static str> {
        let mut options = vec!["commit"];
        let mut add = |is_given: bool, words: &[&'static str]| {
            options.extend(words.iter().copied().filter(|_| is_given));
        };
        add(self.checksum, &["--checksum"]);
        add(self.side, &["-b", "side"]);
        add(self.onto_tip, &["--onto-tip"]);
        add(self.exclude, &["--exclude", "*.tmp"]);
        add(self.one_file_system, &["--one-file-system"]);
        add(self.allow_empty, &["--allow-empty"]);
        add(self.dry_run, &["--dry-run"]);
        options
    }
}

impl RestoreArgs {
    /// Returns the options of the program, without revision and folder.
    pub(crate) fn options(&self) -> Vec<&'static str> {
        let mut options = vec!["restore"];
        let mut add = |is_given: bool, words: &[&'static str]| {
            options.extend(words.iter().copied().filter(|_| is_given));
        };
        add(self.overwrite, &["--overwrite"]);
        add(self.delete, &["--delete"]);
        add(self.delete_excluded, &["--delete-excluded"]);
        add(self.dry_run, &["-n"]);
        add(self.yes, &["--yes"]);
        add(self.checksum, &["--checksum"]);
        add(self.exclude, &["--exclude", "*.tmp"]);
        options
    }
}

impl Op {
    /// Returns the kind of operation.
    pub(crate) fn label(&self) -> String {
        let text = match self {
            Self::File(_, op) => format!("{op:?}"),
            Self::Damage(_, _, kind) => format!("{kind:?}"),
            other => format!("{other:?}"),
        };
        text.split(['(', ' ']).next().unwrap_or_default().to_owned()
    }

    /// Returns the working folder of the operation, if it has one.
    pub(crate) fn place(&self) -> Option<Place> {
        match self {
            Self::Settle => None,
            Self::File(place, _)
            | Self::Mount(place, _)
            | Self::Commit(place, _)
            | Self::Burst(place, _)
            | Self::Restore(place, _)
            | Self::Switch(place, _)
            | Self::Undo(place, _)
            | Self::Forge(place, _)
            | Self::Damage(place, ..)
            | Self::Drop(place, _)
            | Self::Verify(place, _)
            | Self::Repair(place, _)
            | Self::LoseFile(place, _)
            | Self::Status(place)
            | Self::Clone(place)
            | Self::Push(place)
            | Self::Pull(place)
            | Self::Kill(place, _) => Some(*place),
        }
    }
}

/// Returns the store of the other project as seen from a folder of a project.
pub(crate) fn victim_from(folder: &str) -> String {
    format!("{}../victim/.snap", "../".repeat(folder.split('/').count()))
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(place, op) => write!(f, "(cd {} && {op})", place.folder()),
            Self::Settle => f.write_str("sleep 0.03"),
            Self::Mount(place, Some(MountKind::Memory)) => {
                write!(f, "mount -t tmpfs none {0}/m && echo mounted > {0}/m/f", place.folder())
            }
            Self::Mount(place, Some(MountKind::Bind)) => {
                write!(f, "mount --bind outside {}/m", place.folder())
            }
            Self::Mount(place, None) => write!(f, "umount {}/m", place.folder()),
            Self::Commit(place, args) => {
                let year = args.year.map(|year| format!("SNAP_TIME={year}-01-01T00:00:00Z "));
                let words = [args.options().join(" "), args.paths.join(" ")].join(" ");
                let words = words.trim_end();
                let within = args.within.map(|within| format!("/{within}")).unwrap_or_default();
                let (folder, year) = (place.folder(), year.unwrap_or_default());
                write!(f, "(cd {folder}{within} && {year}snap {words})")
            }
            Self::Burst(place, number) => write!(
                f,
                "(cd {} && for i in 1 2 3 4 5 6; do content {number}+$i > n; snap commit; done)",
                place.folder()
            ),
            Self::Restore(place, args) => {
                let path = args.path.as_ref().map(|path| format!(":{path}")).unwrap_or_default();
                let folder = if args.elsewhere { " ../elsewhere" } else { "" };
                write!(
                    f,
                    "(cd {} && snap {} ACKNOWLEDGED~{}{path}{folder})",
                    place.folder(),
                    args.options().join(" "),
                    args.back,
                )
            }
            Self::Switch(place, branch) => {
                write!(f, "(cd {} && snap branch --switch {branch})", place.folder())
            }
            Self::Forge(place, number) => {
                write!(f, "forge-chunk-list --of 'content {number} --large' {}", place.folder())
            }
            Self::Undo(place, redo) => {
                write!(
                    f,
                    "(cd {} && snap undo{})",
                    place.folder(),
                    if *redo { " --redo" } else { "" }
                )
            }
            Self::Damage(place, which, kind) => {
                let pack = format!("{}/.snap/objects/PACK[{which}]", place.folder());
                match kind {
                    DamageKind::Lose => write!(f, "rm {pack}"),
                    DamageKind::Flip(at) => write!(f, "flip-a-bit --at 0.{at:03} {pack}"),
                    DamageKind::Truncate => write!(f, "truncate --size 66% {pack}"),
                }
            }
            Self::Drop(place, name) => write!(f, "rm -r {}/.snap/{name}", place.folder()),
            Self::Verify(place, data) => {
                let data = if *data { " --data" } else { "" };
                write!(f, "(cd {} && snap verify{data})", place.folder())
            }
            Self::Repair(place, data) => {
                let data = if *data { " --data" } else { "" };
                write!(f, "(cd {} && snap repair{data})", place.folder())
            }
            Self::LoseFile(place, file) => {
                write!(
                    f,
                    "rm {}/.snap/{}  # and restored by the command in the hint",
                    place.folder(),
                    file.path()
                )
            }
            Self::Status(place) => write!(f, "(cd {} && snap status)", place.folder()),
            Self::Clone(place) => {
                let path = if place.scope().is_empty() { "" } else { " --path d" };
                write!(f, "snap clone{path} file://$PWD/hub {}", place.folder())
            }
            Self::Push(place) => write!(f, "(cd {} && snap push)", place.folder()),
            Self::Pull(place) => write!(f, "(cd {} && snap pull)", place.folder()),
            Self::Kill(place, step) => {
                write!(f, "(cd {} && SNAP_TEST_STOP_AT={step} snap commit)", place.folder())
            }
        }
    }
}

impl fmt::Display for FileOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(path, filling) => write!(f, "{filling} > {path}"),
            Self::Rewrite(path, filling, false) => write!(f, "{filling} 1<> {path}"),
            Self::Rewrite(path, filling, true) => {
                write!(f, "touch -r {path} /tmp/t; {filling} 1<> {path}; touch -r /tmp/t {path}")
            }
            Self::Rename(from, to) => write!(f, "mv -T {from} {to}"),
            Self::Link(from, to) => write!(f, "ln {from} {to}"),
            Self::Symlink(target, path) => write!(f, "ln -s {target} {path}"),
            Self::Remove(path) => write!(f, "rm -r {path}"),
            Self::Chmod(path, mode) => write!(f, "chmod {mode:o} {path}"),
            Self::Touch(path, secs) => write!(f, "touch -d '2020-01-01Z + {secs} seconds' {path}"),
            Self::Attribute(path, value) => {
                write!(f, "setfattr -n user.model -v 0x{value:02x} {path}")
            }
            Self::Ignore([]) => f.write_str("rm .snapignore"),
            Self::Ignore(patterns) => {
                write!(f, "printf '{}\\n' > .snapignore", patterns.join("\\n"))
            }
            Self::Nest(path) => {
                write!(f, "mkdir -p {path} && cd {path} && echo nested > g && snap commit")
            }
            Self::Lookalike(path) => {
                write!(f, "mkdir -p {path}/.snap && echo mine > {path}/.snap/notes")
            }
            Self::StoreLink(path) => {
                write!(f, "mkdir -p {path} && ln -s {} {path}/.snap", victim_from(path))
            }
            Self::Immutable(path, true) => write!(f, "chattr +i {path}"),
            Self::Immutable(path, false) => write!(f, "chattr -i {path}"),
        }
    }
}

impl fmt::Display for Filling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "content {}{}", self.number, if self.large { " --large" } else { "" })
    }
}
