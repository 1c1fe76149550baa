//! `snap status`: lists the changes since the last commit.

use std::{
    ffi::OsString,
    io,
    io::Write,
    path::{Path, PathBuf},
};

use serde::Serialize;
use snap_core::{
    base::{id::CommitId, name::EntryName},
    format::commit::Commit,
    ops::{
        diff::{self, Change, ComparedFiles, ComparedKind, DiffOptions, DiffOutcome, New, Status},
        record::{self, CommitRecord},
    },
    repo::{
        Head, RefError, Repo,
        base_state::Base,
        openness::{self, Exposed, Users},
    },
};

use crate::{
    commands::{
        commit::{LeaveOut, PathLists},
        diff::{
            collect, done, is_below, letter,
            record::{DiffChangeJson, SummaryJson},
            shown,
            sides::{self, SideArguments},
            word,
            words::words,
        },
    },
    context::Context,
    report::{CliError, CommandOutcome},
    ui::{Out, Progress, Ui, VERSION, Versioned, size, size::ByteCount, text, time},
};

const EXAMPLES: &str = "\
Examples:
  snap status              what changed since the last commit
  snap status -s           one letter and path per line
  snap status --all        also list each file of added and deleted folders
  snap --json status       for programs

`snap diff` shows the changes in the files. Files whose size and times do not prove
them unchanged are read and compared; nothing is written to the folder.";

/// Show added, modified and deleted files since the last commit
///
/// Compares the project with the last commit. In a store without a project, compares the sources of
/// that commit. An added or deleted folder is one line. Exits with 0, even if there are changes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Files and folders to compare, relative to the current folder
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,

    #[command(flatten)]
    lists: PathLists,

    /// One line for each change: A added, D deleted, I ignored, M modified, T changed type, R renamed
    #[arg(short, long)]
    short: bool,

    /// List the files in added or deleted folders
    #[arg(short, long)]
    all: bool,

    /// Folder to compare; default: the project, or the sources of the commit
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,

    /// Profile whose excludes are added to those given here
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    #[command(flatten)]
    leave_out: LeaveOut,

    /// Compare a `.git` at the top of the project, too
    #[arg(long, help_heading = "Exclude options")]
    include_git: bool,
}

pub(crate) fn run(args: &StatusArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let repo = cx.open_repo()?;
    let last = repo.refs().head_commit()?;
    if let (None, Head::Branch(branch)) = (last, repo.refs().head()?)
        && let Some(id) = repo.lost_ref(&branch)?
    {
        return Err(RefError::Lost { name: branch, at: id }.into());
    }
    let last = last.map(|id| Ok::<_, CliError>((id, repo.store().commit(&id)?))).transpose()?;
    let commit = last.as_ref().map(|(_, commit)| commit);
    let wanted = SideArguments {
        args: &[],
        paths: &args.lists.join(&args.paths, cx)?,
        folder: args.folder.as_deref(),
        leave_out: &args.leave_out,
        include_git: args.include_git,
        profile: args.profile.as_deref(),
    };
    let (new, limit) = sides::since(&repo, &wanted, commit, cx)?;
    let options = DiffOptions { limit, ..DiffOptions::default() };
    let progress = cx.progress();
    let mut list = List::new(args, cx.ui(), &progress);
    let sources = if args.folder.is_none() { sources(&repo, &new.files) } else { Vec::new() };
    let behind = list.head((args, &repo), (last.as_ref(), &sources), cx)?;
    let old = commit.map(|commit| commit.tree);
    let mut each = |change| Ok(list.take(change)?);
    let outcome = collect(&mut each, |each| {
        diff::run(repo.store(), old, &New::Folder(new), &options, &progress, each)
    })?;
    let form = list.form;
    list.finish(&outcome, commit)?;
    drop(progress);
    if let (Some(base), StatusFormat::Long) = (behind, form) {
        cx.ui().hint(&update_hint(&base));
    }
    warn_if_exposed(&repo, cx);
    Ok(done(&outcome, outcome.skipped, None, cx))
}

/// Names the commands for files that lack commits of the branch.
fn update_hint(base: &Base) -> String {
    let update = "`snap pull --update` updates the files and keeps local changes";
    match base.commits[..] {
        [id] => format!("{update}\n`snap diff {id:.12}` shows the local changes alone"),
        _ => update.to_owned(),
    }
}

/// Returns the paths that are compared, unless they are the project.
fn sources(repo: &Repo, files: &ComparedFiles) -> Vec<Vec<u8>> {
    let paths: Vec<&Path> = match files {
        ComparedFiles::Folder(path) if repo.project() == Some(path) => Vec::new(),
        ComparedFiles::Folder(path) => vec![path],
        ComparedFiles::Paths(named) => named.iter().map(|named| named.path.as_path()).collect(),
    };
    paths.iter().map(|path| path.as_os_str().as_encoded_bytes().to_vec()).collect()
}

/// Warns if other users can read the content of private files in the store.
fn warn_if_exposed(repo: &Repo, cx: &Context) {
    let project = repo.project().and_then(|project| openness::exposed(repo.dir(), project));
    let Some(Exposed { path, users, store_mode }) = project else { return };
    let who = match users {
        Users::Group => "members of its group",
        Users::Others => "all users",
    };
    let path = text::line(path.as_os_str().as_encoded_bytes());
    let store = text::line(repo.dir().as_os_str().as_encoded_bytes());
    cx.ui().warning(format_args!(
        "{who} may read the store {store} (mode {store_mode:04o}), but not {path}: `chmod -R \
         go-rwx {store}` restricts it"
    ));
}

/// The format of the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusFormat {
    Long,
    Short,
    Json,
}

/// An added or removed folder, with the totals of the added or removed files in it.
struct ChangeGroup {
    change: Change,
    /// Number of other changes in it that are printed on separate lines.
    others: u64,
    files: u64,
    bytes: u64,
}

struct List<'a> {
    ui: &'a Ui,
    progress: &'a Progress<'a>,
    form: StatusFormat,
    groups: bool,
    group: Option<ChangeGroup>,
    out: Out,
    lines: u64,
}

/// The current branch and commit; the first record.
#[derive(Serialize)]
struct StatusJson<'a> {
    version: u32,
    r#type: &'static str,
    branch: Option<&'a str>,
    commit: Option<Versioned<CommitRecord>>,
    /// Number of commits of the branch that the local files do not contain.
    unseen: u64,
    /// The paths of a partial clone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scope: Vec<String>,
    /// The compared paths, if they are not the project.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<String>,
}

impl<'a> List<'a> {
    fn new(args: &StatusArgs, ui: &'a Ui, progress: &'a Progress<'a>) -> Self {
        let form = match (ui.is_json(), args.short) {
            (true, _) => StatusFormat::Json,
            (false, true) => StatusFormat::Short,
            (false, false) => StatusFormat::Long,
        };
        let groups = !args.all && form != StatusFormat::Json;
        Self { ui, progress, form, groups, group: None, out: ui.out(), lines: 0 }
    }

    /// Writes the current branch and commit. Returns the base of the files if they lack commits of
    /// the branch.
    fn head(
        &mut self,
        (args, repo): (&StatusArgs, &Repo),
        (last, sources): (Option<&(CommitId, Commit)>, &[Vec<u8>]),
        cx: &Context,
    ) -> Result<Option<Base>, CliError> {
        let head = repo.refs().head()?;
        let branch = match &head {
            Head::Branch(name) => Some(name.short()),
            Head::Detached(_) => None,
        };
        let base = if args.folder.is_none() { repo.base()? } else { None };
        let unseen = match (&base, last) {
            (Some(base), Some((tip, _))) => repo.unseen(base, head.branch(), *tip)?.commits,
            _ => Vec::new(),
        };
        let scope = if args.folder.is_none() { repo.scope()? } else { None };
        let scope: Vec<Vec<u8>> = scope
            .unwrap_or_default()
            .iter()
            .map(|names| names.iter().map(EntryName::as_bytes).collect::<Vec<_>>().join(&b'/'))
            .collect();
        match self.form {
            StatusFormat::Short => {}
            StatusFormat::Json => {
                let commit = last.map(|(id, commit)| {
                    Versioned::of_type("commit", CommitRecord::new(id, commit))
                });
                self.out.json(&StatusJson {
                    version: VERSION,
                    r#type: "status",
                    branch,
                    commit,
                    unseen: unseen.len() as u64,
                    scope: scope.iter().map(|path| record::text(path)).collect(),
                    sources: sources.iter().map(|path| record::text(path)).collect(),
                })?;
            }
            StatusFormat::Long => {
                match branch {
                    Some(branch) => {
                        writeln!(self.out, "On branch {}", self.ui.paint().name(branch))?;
                    }
                    None => writeln!(self.out, "HEAD is detached")?,
                }
                let Some((id, commit)) = last else {
                    writeln!(self.out, "No commit yet")?;
                    return Ok(None);
                };
                let id = self.ui.paint().id(&format!("{id:.12}"));
                write!(self.out, "Last commit {id}, {}", commit.time.ago(cx.now()))?;
                match commit.message.lines().next().unwrap_or_default() {
                    "" => writeln!(self.out)?,
                    message => writeln!(self.out, ": {}", text::line(message.as_bytes()))?,
                }
                if let Some((id, newest)) = unseen.first() {
                    writeln!(
                        self.out,
                        "The files are behind the branch by {}; the newest is {} by {}",
                        size::count(unseen.len() as u64, "commit"),
                        self.ui.paint().id(&format!("{id:.12}")),
                        text::line(newest.author.as_bytes()),
                    )?;
                    let whose = if unseen.len() == 1 { "that commit" } else { "these commits" };
                    writeln!(self.out, "The list shows the changes of {whose} in reverse")?;
                }
                if !scope.is_empty() {
                    let paths: Vec<_> = scope.iter().map(|path| text::line(path)).collect();
                    writeln!(self.out, "A partial clone of {}", paths.join(", "))?;
                }
                if !sources.is_empty() {
                    let paths: Vec<_> = sources.iter().map(|path| text::line(path)).collect();
                    writeln!(self.out, "Compared with {}", paths.join(", "))?;
                }
            }
        }
        Ok(base.filter(|_| !unseen.is_empty()))
    }

    fn take(&mut self, change: Change) -> io::Result<()> {
        if self.form == StatusFormat::Json {
            let differences = change.differences().usual();
            return self.out.json(&DiffChangeJson::new(&change, differences, None));
        }
        if let Some(group) = &mut self.group
            && is_below(&change.path, &group.change.path)
        {
            if change.status() == group.change.status() {
                group.files += u64::from(!change.item().what.is_folder());
                group.bytes += change.item().what.bytes();
                return Ok(());
            }
            group.others += 1;
            return self.line(&change);
        }
        self.end_group()?;
        let one_sided = change.old.is_none() || change.new.is_none();
        if self.groups && one_sided && change.item().what.is_folder() {
            self.group = Some(ChangeGroup { change, others: 0, files: 0, bytes: 0 });
            return Ok(());
        }
        self.line(&change)
    }

    /// Writes the line of a folder, unless the lines of its changes already say everything.
    fn end_group(&mut self) -> io::Result<()> {
        let Some(ChangeGroup { change, others, files, bytes }) = self.group.take() else {
            return Ok(());
        };
        let what = match (files, others) {
            (0, 0) => "empty folder".to_owned(),
            (0, _) => return Ok(()),
            _ => format!("{}, {}", size::count(files, "file"), ByteCount(bytes)),
        };
        self.row(&change, &what)
    }

    fn line(&mut self, change: &Change) -> io::Result<()> {
        let (old, new) = (change.old.as_ref(), change.new.as_ref());
        let bytes = |item: Option<&diff::ChangeSide>| item.map_or(0, |item| item.what.bytes());
        let words = words(change, change.differences().usual());
        if let ComparedKind::Symlink { target } = &change.item().what
            && matches!(
                change.status(),
                Status::Added | Status::Deleted | Status::Ignored | Status::Modified
            )
        {
            return self.row(change, &format!("-> {}", text::line(target)));
        }
        let (old, new) = (bytes(old), bytes(new));
        let what = match change.status() {
            Status::Modified if new > old => {
                format!("{}, +{}", ByteCount(new), ByteCount(new - old))
            }
            Status::Modified if new < old => {
                format!("{}, -{}", ByteCount(new), ByteCount(old - new))
            }
            Status::Modified if words.is_empty() => ByteCount(new).to_string(),
            Status::Added | Status::Deleted | Status::Ignored if words.is_empty() => {
                ByteCount(old.max(new)).to_string()
            }
            _ => words,
        };
        self.row(change, &what)
    }

    fn row(&mut self, change: &Change, what: &str) -> io::Result<()> {
        if self.ui.is_terminal() {
            self.progress.clear();
        }
        if self.lines == 0 && self.form == StatusFormat::Long {
            self.out.write_all(b"\n")?;
        }
        self.lines += 1;
        let status = change.status();
        if self.form == StatusFormat::Short {
            let letter = self.ui.paint().change(status, &letter(status).to_string());
            write!(self.out, "{letter} ")?;
        } else {
            write!(
                self.out,
                "  {} ",
                self.ui.paint().change(status, &format!("{:<11}", word(status)))
            )?;
        }
        if let Some(old) = &change.old_path {
            self.out.write_all(&shown(self.ui, old))?;
            self.out.write_all(b" => ")?;
        }
        self.out.write_all(&shown(self.ui, &change.path))?;
        self.out.write_all(if change.item().what.is_folder() { b"/" } else { b"" })?;
        match (self.form, what) {
            (StatusFormat::Short, _) | (_, "") => self.out.write_all(b"\n"),
            (_, what) => writeln!(self.out, " ({what})"),
        }
    }

    /// Writes the remaining lines and the totals.
    fn finish(mut self, outcome: &DiffOutcome, commit: Option<&Commit>) -> Result<(), CliError> {
        self.end_group()?;
        self.progress.clear();
        match self.form {
            StatusFormat::Short => {}
            StatusFormat::Json => self.out.json(&SummaryJson::new(outcome, None))?,
            StatusFormat::Long => writeln!(self.out, "\n{}", sums(outcome, commit))?,
        }
        Ok(self.out.finish()?)
    }
}

fn sums(outcome: &DiffOutcome, commit: Option<&Commit>) -> String {
    if outcome.changes() == 0 {
        return match commit {
            Some(commit) => format!("Nothing changed since {}", time::local(commit.time)),
            None => "Nothing to commit".to_owned(),
        };
    }
    let counts = [
        (outcome.added + outcome.folders_added * u64::from(outcome.added == 0), "added"),
        (outcome.modified, "modified"),
        (outcome.deleted + outcome.folders_deleted * u64::from(outcome.deleted == 0), "deleted"),
        (
            outcome.ignored + outcome.folders_ignored * u64::from(outcome.ignored == 0),
            "now ignored",
        ),
        (outcome.renamed, "renamed"),
        (outcome.kind, "with another type"),
        (outcome.metadata, "with other metadata"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let shown: Vec<_> =
        counts.map(|(count, what)| format!("{} {what}", size::grouped(*count))).collect();
    let mut sums = shown.join(", ");
    let bytes = [(outcome.bytes_added, "added"), (outcome.bytes_deleted, "deleted")];
    let bytes = bytes.iter().filter(|(bytes, _)| *bytes > 0);
    let bytes: Vec<_> =
        bytes.map(|(bytes, what)| format!("{} {what}", ByteCount(*bytes))).collect();
    if !bytes.is_empty() {
        sums.push_str(&format!("; {}", bytes.join(", ")));
    }
    sums
}
