//! `snap verify`: checks that a store or a remote is complete and undamaged.

use std::{ffi::OsString, io, io::Write, os::unix::ffi::OsStrExt, path::Path, time::Duration};

use serde::Serialize;
use serde_json::{Value, json};
use snap_core::{
    base::id::CommitId,
    ops::{
        affected::{Affected, AffectedPath},
        repair,
        verify::{self, Data, Rolling, Shadowed, VerifyOutcome, VerifyProblem},
    },
    repo::{
        Pointer, RefError, RefName, Repo,
        ref_name::RefKind,
        roots::{Root, RootOrigin},
    },
};
use snap_remote::{
    bucket::PartialClone,
    peer::{GC, GC_STATE, REFS, RemoteError},
    verify::{CollectedRef, RemoteVerifyOutcome, SeenRefs},
};

use crate::{
    commands::{against_files, verify_bundle},
    context::Context,
    remote::{LimitArgs, RemoteSpec, tracking},
    report::{CliError, CommandOutcome, ref_hint},
    snapshot::is_named_bundle,
    ui::{
        Out, measure, size,
        size::ByteCount,
        text::{self, chain},
    },
};

/// How many problems and how many commits are listed without --verbose.
const SHOWN_LINES: usize = 10;

const EXAMPLES: &str = "\
Examples:
  snap verify               check the structure; fast, reads no contents
  snap verify --sample 5%   also read a random part, for example nightly
  snap verify --data        also read all data, for example monthly
  snap verify --max-age 30d --budget 10m
                            ten minutes each night: packs not read for 30
                            days, the longest unread first
  snap verify --against-files
                            find files that changed without a new time
  snap verify origin        check that a remote has all of its packs
  snap verify origin --sample 5% --limit-download 2M
  snap verify project.snap  check all of a bundle; its prerequisites must be in
                            the store here

Exits with 4 if there is damage, and lists the affected snapshots; with --verbose,
also their paths. With --against-files, exits with 4 if the content of a file changed
but not its modification time. If there are only other changes, lists them and exits
with 0. Exits with 1 if a branch or tag is at a commit that a garbage collection at a
remote has deleted.

Later commits do not use damaged objects: they store them again if files still have
the content. The next push sends again what a remote has lost. `snap repair`
recovers lost data now. Nothing else is changed.";

/// Check a store for damage
///
/// Checks that every branch and tag reaches all of its commits, folders and contents, and that
/// every pack is complete. For a remote, lists the packs and reads the structure; --data downloads
/// all packs. A bundle is always read as a whole.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// Remote, URL or bundle to check; default: the local store
    #[arg(value_name = "REMOTE|URL|FILE", conflicts_with = "against_files")]
    place: Option<OsString>,

    /// Also read and hash all data
    #[arg(long)]
    data: bool,

    /// Also read and hash a random part of the data, such as 5%
    #[arg(long, value_name = "PART", value_parser = part, conflicts_with = "data")]
    sample: Option<f64>,

    /// Also read packs that were not read for this time, such as 30d
    #[arg(long, value_name = "TIME", value_parser = measure::time)]
    #[arg(conflicts_with_all = ["data", "sample"])]
    max_age: Option<Duration>,

    /// Time after which no further pack is read, such as 10m; the next run continues
    #[arg(long, value_name = "TIME", value_parser = measure::short_time, requires = "max_age")]
    budget: Option<Duration>,

    /// Compare the files of the project with the last commit, by content; the store is not checked
    #[arg(long, conflicts_with_all = ["data", "sample", "max_age"])]
    against_files: bool,

    /// Profile whose excludes apply to --against-files
    #[arg(long, value_name = "NAME", requires = "against_files")]
    profile: Option<String>,

    /// Download limit in bytes per second, such as 2M; default: the setting
    /// `transfer.limit_download`
    #[arg(long, value_name = "RATE", value_parser = measure::rate, requires = "place")]
    limit_download: Option<u64>,
}

/// The scope and the result of a check.
struct Checked {
    /// The remote, if one was checked.
    place: Option<RemoteSpec>,
    data: Data,
    /// Refs and index files of the remote that are damaged or missing.
    remote_problems: Vec<RemoteError>,
    outcome: VerifyOutcome,
    /// What the remote may lack, if it is a partial clone.
    partial: Option<PartialClone>,
    /// Branches of the remote that others have deleted or replaced.
    collected: Vec<CollectedRef>,
    /// True if the local store has a branch that others have deleted at the remote, or whose commit a
    /// collection at a remote has deleted.
    lacks_branch: bool,
}

impl Checked {
    /// Formats all problems, each with its causes.
    fn problems(&self) -> Vec<String> {
        let remote = self.remote_problems.iter().map(|problem| chain(problem));
        remote.chain(self.outcome.problems.iter().map(|problem| chain(problem))).collect()
    }

    fn is_whole(&self) -> bool {
        self.remote_problems.is_empty() && self.outcome.problems.is_empty()
    }
}

pub(crate) fn run(args: &VerifyArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let data = match (args.data, args.sample, args.max_age) {
        (true, ..) => Data::All,
        (false, Some(part), _) => Data::Sample(part),
        (false, None, Some(max_age)) => Data::Due(Rolling { max_age, budget: args.budget }),
        (false, None, None) => Data::None,
    };
    let checked = match &args.place {
        Some(file) if is_named_bundle(Path::new(file)) => {
            return match (args.sample, args.max_age, args.limit_download) {
                (None, None, None) => verify_bundle::run(Path::new(file), cx),
                _ => Err(CliError::Usage("a bundle is always read as a whole; use no option")),
            };
        }
        Some(place) => {
            let remote = place.to_str().ok_or_else(|| {
                let file = text::line(place.as_bytes());
                CliError::NoBundle { file }
            })?;
            check_remote((remote, args.limit_download), data, cx)?
        }
        None if args.against_files => {
            return against_files::run(&cx.open_repo()?, args.profile.as_deref(), cx);
        }
        None => check_here(data, cx)?,
    };
    let mut out = cx.ui().out();
    match cx.ui().is_json() {
        true => write_json(&mut out, &checked)?,
        false => write_text(&mut out, cx, &checked)?,
    }
    out.finish()?;
    summarize(&checked, cx);
    Ok(match checked.is_whole() {
        false => CommandOutcome::Damaged,
        true if checked.lacks_branch => CommandOutcome::Different,
        true => CommandOutcome::Success,
    })
}

fn check_here(data: Data, cx: &Context) -> Result<Checked, CliError> {
    let repo = cx.open_repo()?;
    let progress = cx.progress();
    let outcome = verify::run(&repo, &verify::VerifyOptions { data }, &progress)?;
    let lacks_branch = !outcome.collected.is_empty();
    Ok(Checked {
        place: None,
        data,
        remote_problems: Vec::new(),
        outcome,
        partial: None,
        collected: Vec::new(),
        lacks_branch,
    })
}

fn check_remote(
    (remote, limit_download): (&str, Option<u64>),
    data: Data,
    cx: &Context,
) -> Result<Checked, CliError> {
    let limits = LimitArgs::of_download(limit_download);
    let connection = cx.connect(cx.remote(Some(remote).into())?, &limits)?;
    let place = connection.place.clone();
    let seen = seen(&place, cx)?;
    let local = match seen.is_empty() {
        true => None,
        false => Some(cx.open_repo()?),
    };
    let (store, _scratch) = connection.into_parts();
    let progress = cx.progress();
    let options = verify::VerifyOptions { data };
    let known = SeenRefs { refs: &seen, history: local.as_ref().map(Repo::store) };
    let found = snap_remote::verify::run(store, &options, known, &cx.waiting()?, &progress);
    let found = found.map_err(|error| cx.remote_error(error))?;
    let RemoteVerifyOutcome { problems, found: outcome, partial, collected } = found;
    let mut lacks_branch = false;
    if let Some(repo) = &local {
        for CollectedRef { name, .. } in collected.iter().filter(|found| found.now.is_none()) {
            lacks_branch |= repo.refs().read(name)?.is_some();
        }
    }
    let (place, remote_problems) = (Some(place), problems);
    Ok(Checked { place, data, remote_problems, outcome, partial, collected, lacks_branch })
}

/// Returns the last known commits of the branches of a remote.
pub(crate) fn seen(place: &RemoteSpec, cx: &Context) -> Result<Vec<(RefName, CommitId)>, CliError> {
    let Some(remote) = &place.name else { return Ok(Vec::new()) };
    let repo = match cx.open_repo() {
        Err(CliError::NoStore) => return Ok(Vec::new()),
        repo => repo?,
    };
    let branches = tracking::branches(&repo, remote)?.into_iter();
    branches.map(|(name, at)| Ok((RefName::branch(&name)?, at))).collect()
}

/// Names a branch whose last known commit was deleted at a remote; `at` names the remote, after a
/// word.
pub(crate) fn tell_collected(
    CollectedRef { name, seen, now }: &CollectedRef,
    at: &str,
    cx: &Context,
) {
    let name = name.short();
    match now {
        None => cx.ui().status(format_args!(
            "Branch {name} was deleted{at}, and `snap gc` has deleted its commit {seen:.12}"
        )),
        Some(now) => cx.ui().status(format_args!(
            "Branch {name} was moved{at} to {now:.12}, and `snap gc` has deleted its commit {seen:.12}"
        )),
    }
}

/// Returns the record of such a branch.
pub(crate) fn collected_json(CollectedRef { name, seen, now }: &CollectedRef) -> Value {
    json!({
        "version": 1,
        "type": "branch",
        "name": name.short(),
        "seen": seen.to_string(),
        "now": now.map(|id| id.to_string()),
    })
}

fn write_text(out: &mut Out, cx: &Context, checked: &Checked) -> io::Result<()> {
    let outcome = &checked.outcome;
    let problems = checked.problems();
    let shown = if cx.ui().is_verbose() { problems.len() } else { SHOWN_LINES };
    for problem in problems.iter().take(shown) {
        writeln!(out, "damaged: {}", text::line(problem.as_bytes()))?;
    }
    if let more @ 1.. = problems.len().saturating_sub(shown) {
        writeln!(out, "damaged: {}; -v lists them", size::count(more as u64, "further problem"))?;
    }
    write_affected(out, &outcome.touched, cx)
}

/// Lists the snapshots affected by damage, with the number of affected paths; with --verbose, also
/// each path.
pub(crate) fn write_affected(out: &mut Out, touched: &Affected, cx: &Context) -> io::Result<()> {
    if !cx.ui().is_verbose() {
        return write_affected_counts(out, touched);
    }
    for id in &touched.commits {
        writeln!(out, "affected: commit {}", cx.ui().id(id))?;
    }
    for AffectedPath { commit, commits, path, .. } in &touched.paths {
        let path = if path.is_empty() { "everything".to_owned() } else { text::line(path) };
        let more = match commits {
            0 | 1 => String::new(),
            _ => format!(" and {} before", size::count(commits - 1, "commit")),
        };
        writeln!(out, "affected: {path} in commit {}{more}", cx.ui().id(commit))?;
    }
    match touched.more_paths {
        0 => Ok(()),
        more => writeln!(out, "affected: {}, not listed", size::count(more, "further path")),
    }
}

/// Lists the affected snapshots, newest first. A path that several commits have counts for the
/// newest one.
fn write_affected_counts(out: &mut Out, touched: &Affected) -> io::Result<()> {
    for id in touched.commits.iter().take(SHOWN_LINES) {
        let mut paths = touched.paths.iter().filter(|path| path.commit == *id);
        let what = match (paths.next(), paths.count() as u64) {
            (None, _) => "the same paths as in newer commits".to_owned(),
            (Some(first), _) if first.path.is_empty() => "everything".to_owned(),
            (Some(first), 0) => text::line(&first.path),
            (Some(first), more) => {
                let paths = size::count(more + 1, "path");
                format!("{paths}, such as {}", text::line(&first.path))
            }
        };
        writeln!(out, "affected: commit {id:.12}: {what}")?;
    }
    let commits = touched.commits.len().saturating_sub(SHOWN_LINES) as u64;
    if commits > 0 {
        writeln!(out, "affected: {}; -v lists them", size::count(commits, "further commit"))?;
    }
    match touched.more_paths {
        0 => Ok(()),
        more => writeln!(out, "affected: {}, not listed", size::count(more, "further path")),
    }
}

/// A branch or tag that is missing, and the command that creates it again.
#[derive(Serialize)]
struct LostRef {
    r#ref: String,
    commit: String,
    command: String,
}

impl LostRef {
    fn of(problem: &VerifyProblem) -> Option<Self> {
        let VerifyProblem::RefLost { name, id } = problem else { return None };
        let noun = if name.kind() == RefKind::Tag { "tag" } else { "branch" };
        let command = format!("snap {noun} {} {id:.12}", text::word(name.short().as_bytes()));
        Some(Self { r#ref: name.to_string(), commit: id.to_string(), command })
    }
}

#[derive(Serialize)]
struct ProblemJson {
    #[serde(flatten)]
    record: Value,
    #[serde(flatten)]
    lost: Option<LostRef>,
}

fn write_json(out: &mut Out, checked: &Checked) -> io::Result<()> {
    let (outcome, problems) = (&checked.outcome, checked.problems());
    let remote = checked.remote_problems.iter().map(|_| None);
    let lost = remote.chain(outcome.problems.iter().map(LostRef::of));
    for (problem, lost) in problems.iter().zip(lost) {
        let record = json!({ "version": 1, "type": "problem", "message": problem });
        out.json(&ProblemJson { record, lost })?;
    }
    for found in &checked.collected {
        out.json(&collected_json(found))?;
    }
    for Root { id, origin } in &outcome.collected {
        let pointer = match origin {
            RootOrigin::Pointer(pointer) => Some(pointer.to_string()),
            _ => None,
        };
        let commit = id.to_string();
        out.json(&json!({ "version": 1, "type": "deleted", "ref": pointer, "commit": commit }))?;
    }
    write_touched_json(out, &outcome.touched)?;
    out.json(&json!({
        "version": 1,
        "type": "summary",
        "remote": checked.place.as_ref().and_then(|place| place.name.as_deref()),
        "location": checked.place.as_ref().map(|place| place.location.to_string()),
        "whole": problems.is_empty(),
        "packs": outcome.packs,
        "objects": outcome.objects,
        "commits": outcome.commits,
        "forgotten_commits": outcome.forgotten_commits,
        "trees": outcome.trees,
        "contents": outcome.contents,
        "partial_packs": outcome.partial_packs,
        "absent_objects": outcome.absent_objects,
        "unneeded_packs": outcome.unneeded_packs.len(),
        "shadowed_packs": outcome.shadowed.packs,
        "withdrawn_packs": outcome.shadowed.withdrawn,
        "shadows_written": outcome.shadowed.failed.is_none(),
        "bytes_read": outcome.bytes_read,
        "due_packs": outcome.due_packs,
        "left_packs": outcome.left_packs,
        "problems": problems.len(),
        "more_paths": outcome.touched.more_paths,
    }))
}

/// Writes records of the snapshots and paths affected by damage.
pub(crate) fn write_touched_json(out: &mut Out, touched: &Affected) -> io::Result<()> {
    for id in &touched.commits {
        out.json(&json!({ "version": 1, "type": "commit", "id": id.to_string() }))?;
    }
    for touched in &touched.paths {
        out.json(&json!({
            "version": 1,
            "type": "path",
            "path": String::from_utf8_lossy(&touched.path),
            "commit": touched.commit.to_string(),
            "commits": touched.commits,
            "object": touched.object.to_string(),
        }))?;
    }
    Ok(())
}

fn summarize(checked: &Checked, cx: &Context) {
    let Checked { place, data, outcome, partial, .. } = checked;
    let at = place.as_ref().map(|place| format!(" at {}", place.shown())).unwrap_or_default();
    let (packs, objects) =
        (size::count(outcome.packs, "pack"), size::count(outcome.objects, "object"));
    let commits = size::count(outcome.commits, "commit");
    let forgotten = match outcome.forgotten_commits {
        0 => String::new(),
        count => format!("; {} forgotten, not checked", size::grouped(count)),
    };
    cx.ui().status(format_args!(
        "Checked {packs} with {objects}{at}, and {commits} reachable from branches and tags{forgotten}"
    ));
    if outcome.absent_objects > 0 {
        let (absent, packs) = (
            size::count(outcome.absent_objects, "object"),
            size::count(outcome.partial_packs, "partial pack"),
        );
        match partial {
            Some(PartialClone { origin, .. }) => {
                let origin = origin.as_ref().map(|url| format!(", {url},")).unwrap_or_default();
                cx.ui().status(format_args!(
                    "Partial clone: {absent} of {packs} were not checked, because only the \
                     origin{origin} has them"
                ));
            }
            None => cx.ui().status(format_args!(
                "{absent} of {packs} were not checked, because only a remote has them"
            )),
        }
    }
    if !outcome.unneeded_packs.is_empty() {
        cx.ui().status(format_args!(
            "Its index lists {} that does not exist; no branch or tag needs it",
            size::count(outcome.unneeded_packs.len() as u64, "pack")
        ));
    }
    let read = ByteCount(outcome.bytes_read);
    match *data {
        Data::None => {}
        Data::Sample(part) => {
            cx.ui().status(format_args!("Data read: {read}, {:.1} % of the data", part * 100.0));
        }
        Data::Due(_) => report_due(outcome, cx),
        Data::All => cx.ui().status(format_args!("Data read: {read}, all of the data")),
    }
    report_recorded_damage(checked, cx);
    checked.collected.iter().for_each(|found| tell_collected(found, &at, cx));
    outcome.collected.iter().for_each(|root| tell_deleted(root, cx));
    match checked.problems().len() as u64 {
        0 if place.is_some() && outcome.commits == 0 && partial.is_none() => {
            cx.ui().status(format_args!("No damage found, but the store has no branch or tag"));
            if outcome.packs > 0 {
                cx.ui().status(format_args!(
                    "The first push may have been interrupted, or all branches were lost"
                ));
            }
        }
        0 => {
            cx.ui().status(format_args!("No errors found"));
            if *data != Data::All {
                cx.ui().hint("--data also reads all contents");
            }
        }
        problems => {
            let rest = if *data == Data::All { "; everything else is intact" } else { "" };
            cx.ui().warning(format_args!("{} found{rest}", size::count(problems, "problem")));
            hints(checked, cx);
            if *data != Data::All {
                cx.ui().hint("--data reads all contents and may find more damage");
            }
        }
    }
}

/// Names a ref or the files of this store whose commit a collection at a remote has deleted.
fn tell_deleted(Root { id, origin }: &Root, cx: &Context) {
    match origin {
        RootOrigin::Pointer(pointer) => tell_at_collected(pointer.clone(), *id, cx),
        _ => cx.ui().status(format_args!(
            "The files here are of commit {id:.12}, which a garbage collection at a remote has deleted"
        )),
    }
}

/// Names a ref of this store whose commit a collection at a remote has deleted.
pub(crate) fn tell_at_collected(pointer: Pointer, id: CommitId, cx: &Context) {
    let error = RefError::AtCollected { pointer, id };
    cx.ui().status(format_args!("{error}"));
    if let Some(hint) = ref_hint(&error) {
        cx.ui().hint(&hint);
    }
}

/// Prints hints for problems that affect no commit.
fn hints(checked: &Checked, cx: &Context) {
    let Checked { place, data, outcome, .. } = checked;
    if let Some(place) = place {
        let name = text::word(place.shown().as_bytes());
        let is_forced = |problem: &RemoteError| match problem {
            RemoteError::Damaged { key, .. } if key.starts_with(REFS) => true,
            problem => problem.is_of_settings(),
        };
        let force = match checked.remote_problems.iter().any(is_forced) {
            true => " --force",
            false => "",
        };
        let mut has_lost_data = false;
        for problem in &checked.remote_problems {
            match problem {
                RemoteError::RefBlocked { name: blocked, other, .. } => {
                    let word = |name: &RefName| text::word(name.to_string().as_bytes()).to_string();
                    let (blocked, other) = (word(blocked), word(other));
                    cx.ui().hint(&format!(
                        "`snap push {name} --delete {blocked}`, or {other}, leaves one of the two"
                    ));
                }
                RemoteError::Damaged { key, .. } if key == GC_STATE => cx.ui().hint(&format!(
                    "`snap repair {name}` writes it again if no garbage was collected there"
                )),
                RemoteError::Damaged { key, .. } if key.starts_with(GC) => cx.ui().hint(&format!(
                    "`snap repair {name}` writes it again in a store that used it since the \
                     last `snap gc` there"
                )),
                _ => has_lost_data = true,
            }
        }
        if has_lost_data {
            cx.ui().hint(&format!(
                "`snap push {name} --all --tags{force}` sends lost data again, from a store that \
                 has it"
            ));
        }
        if !outcome.problems.is_empty() {
            let hint = match has_store(cx) {
                true => format!(
                    "`snap repair {name}` sends lost data from the local store\n\
                     --from PLACE adds another source"
                ),
                false => {
                    format!("`snap repair {name} --from PLACE` sends lost data from another copy")
                }
            };
            cx.ui().hint(&hint);
        }
        return;
    }
    let hints = outcome.problems.iter().filter_map(|problem| match problem {
        VerifyProblem::Ref { source, .. } | VerifyProblem::Scope { source } => ref_hint(source),
        VerifyProblem::Epoch => Some("`snap repair` writes it again".to_owned()),
        problem => {
            LostRef::of(problem).map(|LostRef { command, .. }| format!("`{command}` recreates it"))
        }
    });
    hints.for_each(|hint| cx.ui().hint(&hint));
    let is_pack = |problem: &VerifyProblem| {
        matches!(
            problem,
            VerifyProblem::Pack { .. }
                | VerifyProblem::PackHash { .. }
                | VerifyProblem::Frame { .. }
        )
    };
    let recovers_data = |problem: &VerifyProblem| {
        repair::is_repairable(problem) && !matches!(problem, VerifyProblem::Epoch)
    };
    let touched = &outcome.touched;
    let needs_none = touched.commits.is_empty() && touched.paths.is_empty();
    if *data == Data::All && needs_none && outcome.problems.iter().all(is_pack) {
        cx.ui().status(format_args!("No commit needs the damaged data"));
        cx.ui().hint("`snap repair` moves the damaged packs to quarantine/");
    } else if outcome.problems.iter().any(recovers_data) {
        cx.ui().hint(
            "`snap repair` recovers lost data from remotes and local files\n\
             `snap repair --from PLACE` recovers it from another copy",
        );
    }
}

/// Reports the progress of a rolling check.
fn report_due(outcome: &VerifyOutcome, cx: &Context) {
    let read = ByteCount(outcome.bytes_read);
    match outcome.left_packs {
        0 => cx.ui().status(format_args!("Read {read} of the packs that were due; none are left")),
        left => cx.ui().status(format_args!(
            "Read {read} of the packs that were due; {} are left for the next run",
            size::count(left, "pack")
        )),
    }
    if let Some(error) = &outcome.unsaved_times {
        cx.ui().warning(format_args!(
            "the times of these checks cannot be recorded, so the next run reads the same packs \
             again: {}",
            chain(error)
        ));
    }
}

/// Returns true if the current folder belongs to a store, which may have the lost objects.
fn has_store(cx: &Context) -> bool {
    matches!(cx.find_store(Path::new(".")), Ok(Some(_)))
}

fn report_recorded_damage(checked: &Checked, cx: &Context) {
    let Shadowed { packs, withdrawn, failed } = &checked.outcome.shadowed;
    let later = match checked.place {
        None => "the next commit stores them again from files that still have the content",
        Some(_) if has_store(cx) => "the next push sends them again from the local store",
        Some(_) => "the next push from a store that has them sends them again",
    };
    if let Some(error) = failed {
        cx.ui().warning(format_args!(
            "the damage cannot be recorded, so damaged objects are still used: {error}"
        ));
    } else if *packs > 0 {
        let packs = size::count(*packs, "pack");
        cx.ui().status(format_args!("Damaged objects in {packs} are no longer used: {later}"));
    }
    if *withdrawn > 0 {
        let packs = size::count(*withdrawn, "pack");
        cx.ui().status(format_args!("Intact again: {packs} that were damaged"));
    }
}

/// Parses `5%` or `0.05`.
fn part(text: &str) -> Result<f64, &'static str> {
    let (number, whole) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>().map(|number| number / whole) {
        Ok(part) if part > 0.0 && part <= 1.0 => Ok(part),
        _ => Err("expected a fraction such as 5% or 0.05"),
    }
}
