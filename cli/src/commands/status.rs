//! `snap status`: what is new or changed since the last commit.

use std::{ffi::OsString, io, io::Write, path::PathBuf};

use serde::Serialize;
use snap_core::{
    base::{id::CommitId, name::EntryName},
    format::commit::Commit,
    ops::{
        diff::{self, Change, New, Options, Outcome, Status, What},
        record::{self, CommitRecord},
    },
    repo::{
        Head, Repo,
        openness::{self, Exposed, Users},
    },
};

use crate::{
    commands::{
        commit::LeaveOut,
        diff::{
            collect, done, is_below, letter,
            record::{ChangeJson, SummaryJson},
            shown,
            sides::{self, Wanted},
            word,
            words::words,
        },
    },
    context::Context,
    report::{CliError, Done},
    ui::{Out, Progress, Ui, VERSION, Versioned, size, size::Size, text, time},
};

const EXAMPLES: &str = "\
Examples:
  snap status              what changed since the last commit
  snap status -s           a letter and a path a line
  snap status --all        each file of new and removed folders, too
  snap --json status       for programs

`snap diff` shows the changes themselves. Files that nothing proves unchanged
are read and compared; nothing is written to the folder.";

/// Show what is new or changed since the last commit
///
/// Compares the folder that `snap commit` commits. A folder that came or went
/// is one line. Exits with 0 whether or not something changed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Files and folders to compare, relative to where you are
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,

    /// A line for each change: A new, D gone, M changed, T another kind, R renamed
    #[arg(short, long)]
    short: bool,

    /// List what is in folders that came or went
    #[arg(short, long)]
    all: bool,

    /// Folder to compare with; else the one that is committed without PATH
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,

    #[command(flatten)]
    leave_out: LeaveOut,
}

pub(crate) fn run(args: &StatusArgs, cx: &Context) -> Result<Done, CliError> {
    let repo = cx.open_repo()?;
    let last = repo.refs().head_commit()?;
    let last = last.map(|id| Ok::<_, CliError>((id, repo.store().commit(&id)?))).transpose()?;
    let commit = last.as_ref().map(|(_, commit)| commit);
    let wanted = Wanted {
        args: &[],
        paths: &args.paths,
        folder: args.folder.as_deref(),
        leave_out: &args.leave_out,
    };
    let (new, limit) = sides::since(&repo, &wanted, commit, cx)?;
    let options = Options { limit, ..Options::default() };
    let progress = cx.progress();
    let mut list = List::new(args, cx.ui(), &progress);
    list.head((args, &repo), last.as_ref(), cx)?;
    let old = commit.map(|commit| commit.tree);
    let mut each = |change| Ok(list.take(change)?);
    let outcome = collect(&mut each, |each| {
        diff::run(repo.store(), (old, &New::Folder(new)), &options, &progress, each)
    })?;
    list.finish(&outcome, commit)?;
    drop(progress);
    warn_if_exposed(&repo, cx);
    Ok(done(&outcome, outcome.skipped, None, cx))
}

/// Warns where other users can read the content of private files in the store.
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
        "{who} may read the store {store} (mode {store_mode:04o}), but not {path}: \
         `chmod -R go-rwx {store}` closes it"
    ));
}

/// What changes look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Long,
    Short,
    Json,
}

/// A folder that came or went, and how much of what came or went is in it.
struct Group {
    change: Change,
    /// Other changes in it that have lines of their own.
    others: u64,
    files: u64,
    bytes: u64,
}

struct List<'a> {
    ui: &'a Ui,
    progress: &'a Progress<'a>,
    form: Form,
    groups: bool,
    group: Option<Group>,
    out: Out,
    lines: u64,
}

/// Where one stands; the first record.
#[derive(Serialize)]
struct StatusJson<'a> {
    version: u32,
    r#type: &'static str,
    branch: Option<&'a str>,
    commit: Option<Versioned<CommitRecord>>,
    /// Commits of the branch that the files here do not contain.
    unseen: u64,
    /// Paths of a partial clone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scope: Vec<String>,
}

impl<'a> List<'a> {
    fn new(args: &StatusArgs, ui: &'a Ui, progress: &'a Progress<'a>) -> Self {
        let form = match (ui.is_json(), args.short) {
            (true, _) => Form::Json,
            (false, true) => Form::Short,
            (false, false) => Form::Long,
        };
        let groups = !args.all && form != Form::Json;
        Self { ui, progress, form, groups, group: None, out: ui.out(), lines: 0 }
    }

    /// Where one stands.
    fn head(
        &mut self,
        (args, repo): (&StatusArgs, &Repo),
        last: Option<&(CommitId, Commit)>,
        cx: &Context,
    ) -> Result<(), CliError> {
        let head = repo.refs().head()?;
        let branch = match &head {
            Head::Branch(name) => Some(name.short()),
            Head::Detached(_) => None,
        };
        let base = if args.folder.is_none() { repo.base()? } else { None };
        let unseen = match (base, last) {
            (Some(base), Some((tip, _))) => repo.unseen(&base, *tip)?,
            _ => Vec::new(),
        };
        let scope = if args.folder.is_none() { repo.scope()? } else { None };
        let scope: Vec<Vec<u8>> = scope
            .unwrap_or_default()
            .iter()
            .map(|names| names.iter().map(EntryName::as_bytes).collect::<Vec<_>>().join(&b'/'))
            .collect();
        match self.form {
            Form::Short => {}
            Form::Json => {
                let commit = last.map(|(id, commit)| Versioned::new(CommitRecord::new(id, commit)));
                self.out.json(&StatusJson {
                    version: VERSION,
                    r#type: "status",
                    branch,
                    commit,
                    unseen: unseen.len() as u64,
                    scope: scope.iter().map(|path| record::text(path)).collect(),
                })?;
            }
            Form::Long => {
                match branch {
                    Some(branch) => {
                        writeln!(self.out, "On branch {}", self.ui.paint().name(branch))?;
                    }
                    None => writeln!(self.out, "On no branch")?,
                }
                let Some((id, commit)) = last else {
                    writeln!(self.out, "No commit yet")?;
                    return Ok(());
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
                        "The branch has {} that the files here do not contain, the newest {} by {}",
                        size::count(unseen.len() as u64, "commit"),
                        self.ui.paint().id(&format!("{id:.12}")),
                        text::line(newest.author.as_bytes()),
                    )?;
                }
                if !scope.is_empty() {
                    let paths: Vec<_> = scope.iter().map(|path| text::line(path)).collect();
                    writeln!(self.out, "A partial clone of {}", paths.join(", "))?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, change: Change) -> io::Result<()> {
        if self.form == Form::Json {
            let differences = change.differences().usual();
            return self.out.json(&ChangeJson::new(&change, differences, None));
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
            self.group = Some(Group { change, others: 0, files: 0, bytes: 0 });
            return Ok(());
        }
        self.line(&change)
    }

    /// Writes the line of a folder, unless others have said it all.
    fn end_group(&mut self) -> io::Result<()> {
        let Some(Group { change, others, files, bytes }) = self.group.take() else { return Ok(()) };
        let what = match (files, others) {
            (0, 0) => "empty folder".to_owned(),
            (0, _) => return Ok(()),
            _ => format!("{}, {}", size::count(files, "file"), Size(bytes)),
        };
        self.row(&change, &what)
    }

    fn line(&mut self, change: &Change) -> io::Result<()> {
        let (old, new) = (change.old.as_ref(), change.new.as_ref());
        let bytes = |item: Option<&diff::Item>| item.map_or(0, |item| item.what.bytes());
        let words = words(change, change.differences().usual());
        if let What::Symlink { target } = &change.item().what
            && matches!(change.status(), Status::Added | Status::Removed | Status::Modified)
        {
            return self.row(change, &format!("-> {}", text::line(target)));
        }
        let (old, new) = (bytes(old), bytes(new));
        let what = match change.status() {
            Status::Modified if new > old => format!("{}, +{}", Size(new), Size(new - old)),
            Status::Modified if new < old => format!("{}, -{}", Size(new), Size(old - new)),
            Status::Modified if words.is_empty() => Size(new).to_string(),
            Status::Added | Status::Removed if words.is_empty() => Size(old.max(new)).to_string(),
            _ => words,
        };
        self.row(change, &what)
    }

    fn row(&mut self, change: &Change, what: &str) -> io::Result<()> {
        if self.ui.is_terminal() {
            self.progress.clear();
        }
        if self.lines == 0 && self.form == Form::Long {
            self.out.write_all(b"\n")?;
        }
        self.lines += 1;
        let status = change.status();
        if self.form == Form::Short {
            let letter = self.ui.paint().change(status, &letter(status).to_string());
            write!(self.out, "{letter} ")?;
        } else {
            write!(
                self.out,
                "  {} ",
                self.ui.paint().change(status, &format!("{:<8}", word(status)))
            )?;
        }
        if let Some(old) = &change.old_path {
            self.out.write_all(&shown(self.ui, old))?;
            self.out.write_all(b" => ")?;
        }
        self.out.write_all(&shown(self.ui, &change.path))?;
        self.out.write_all(if change.item().what.is_folder() { b"/" } else { b"" })?;
        match (self.form, what) {
            (Form::Short, _) | (_, "") => self.out.write_all(b"\n"),
            (_, what) => writeln!(self.out, " ({what})"),
        }
    }

    /// Writes the rest and the sums.
    fn finish(mut self, outcome: &Outcome, commit: Option<&Commit>) -> Result<(), CliError> {
        self.end_group()?;
        self.progress.clear();
        match self.form {
            Form::Short => {}
            Form::Json => self.out.json(&SummaryJson::new(outcome, None))?,
            Form::Long => writeln!(self.out, "\n{}", sums(outcome, commit))?,
        }
        Ok(self.out.finish()?)
    }
}

fn sums(outcome: &Outcome, commit: Option<&Commit>) -> String {
    if outcome.changes() == 0 {
        return match commit {
            Some(commit) => format!("Nothing changed since {}", time::local(commit.time)),
            None => "Nothing to commit".to_owned(),
        };
    }
    let counts = [
        (outcome.added + outcome.folders_added * u64::from(outcome.added == 0), "new"),
        (outcome.modified, "changed"),
        (outcome.removed + outcome.folders_removed * u64::from(outcome.removed == 0), "removed"),
        (outcome.renamed, "renamed"),
        (outcome.kind, "of another kind"),
        (outcome.metadata, "with other metadata"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let shown: Vec<_> =
        counts.map(|(count, what)| format!("{} {what}", size::grouped(*count))).collect();
    let mut sums = shown.join(", ");
    let bytes = [(outcome.bytes_added, "added"), (outcome.bytes_removed, "removed")];
    let bytes = bytes.iter().filter(|(bytes, _)| *bytes > 0);
    let bytes: Vec<_> = bytes.map(|(bytes, what)| format!("{} {what}", Size(*bytes))).collect();
    if !bytes.is_empty() {
        sums.push_str(&format!("; {}", bytes.join(", ")));
    }
    sums
}
