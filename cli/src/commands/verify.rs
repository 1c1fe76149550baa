//! `snap verify`: is everything there, and is it what it should be? Here, or in a
//! store elsewhere.

use std::{error::Error, io, io::Write};

use serde_json::json;
use snap_core::{
    base::id::CommitId,
    ops::{
        repair,
        verify::{self, Data, Outcome, Problem, Shadowed, Touched, TouchedPath},
    },
    repo::{RefName, ref_name::RefKind},
};
use snap_remote::store::{REFS, RemoteError};

use crate::{
    commands::against_files,
    context::Context,
    remote::{LimitArgs, Place, rate, tracking},
    report::{CliError, Done},
    ui::{Out, size, size::Size, text},
};

const EXAMPLES: &str = "\
Examples:
  snap verify               structure: quick, reads no file contents
  snap verify --sample 5%   and a random part of the data, say every night
  snap verify --data        and all of the data, say every month
  snap verify --against-files
                            files that changed although their times did not
  snap verify origin        a store elsewhere: are all of its packs there?
  snap verify origin --sample 5% --limit-download 2M

Exits with 4 if there is damage, and lists the snapshots and paths it touches;
with --against-files if a file has other content than in the last commit under
the same modification time. Other changes are listed and exit with 0.
Later commits do not rely on damaged objects: they store them again from the
files that still have the content, and the next push to a remote sends again
what that remote has lost. `snap repair` puts back what is lost now. Nothing else
is changed.";

/// Check that the store is whole
///
/// Every branch and tag must reach all of its commits, folders and contents,
/// and every pack must be as it was written. Of a remote, the packs are listed and
/// the structure is read; --data fetches all of its packs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// Remote or location to check; the store here if not given
    #[arg(value_name = "REMOTE|URL", conflicts_with = "against_files")]
    remote: Option<String>,

    /// Read and hash all data, too
    #[arg(long)]
    data: bool,

    /// Read and hash a random part of the data, such as 5%
    #[arg(long, value_name = "PART", value_parser = part, conflicts_with = "data")]
    sample: Option<f64>,

    /// Read the files of the project and compare them with the last commit;
    /// the store is not checked
    #[arg(long, conflicts_with_all = ["data", "sample"])]
    against_files: bool,

    /// Bytes a second to fetch of a remote at most, such as 2M; else the setting
    /// `transfer.limit_download`
    #[arg(long, value_name = "RATE", value_parser = rate::parse, requires = "remote")]
    limit_download: Option<u64>,
}

/// What was checked, and what was found.
struct Checked {
    /// The store elsewhere, if it is one.
    place: Option<Place>,
    data: Data,
    /// Refs and files of its index that are damaged or missing.
    remote_problems: Vec<RemoteError>,
    outcome: Outcome,
}

impl Checked {
    /// All problems in words, each with its causes.
    fn problems(&self) -> Vec<String> {
        let remote = self.remote_problems.iter().map(|problem| chain(problem));
        remote.chain(self.outcome.problems.iter().map(|problem| chain(problem))).collect()
    }

    fn is_whole(&self) -> bool {
        self.remote_problems.is_empty() && self.outcome.problems.is_empty()
    }
}

pub(crate) fn run(args: &VerifyArgs, cx: &Context) -> Result<Done, CliError> {
    let data = match (args.data, args.sample) {
        (true, _) => Data::All,
        (false, Some(part)) => Data::Sample(part),
        (false, None) => Data::None,
    };
    let checked = match &args.remote {
        Some(remote) => check_remote((remote, args.limit_download), data, cx)?,
        None if args.against_files => return against_files::run(&cx.open_repo()?, cx),
        None => check_here(data, cx)?,
    };
    let mut out = cx.ui().out();
    match cx.ui().is_json() {
        true => write_json(&mut out, &checked)?,
        false => write_text(&mut out, cx, &checked)?,
    }
    out.finish()?;
    summarize(&checked, cx);
    Ok(if checked.is_whole() { Done::Well } else { Done::Damaged })
}

fn check_here(data: Data, cx: &Context) -> Result<Checked, CliError> {
    let repo = cx.open_repo()?;
    let progress = cx.progress();
    let outcome = verify::run(&repo, &verify::Options { data }, &progress)?;
    Ok(Checked { place: None, data, remote_problems: Vec::new(), outcome })
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
    let (store, _scratch) = connection.into_parts();
    let progress = cx.progress();
    let options = verify::Options { data };
    let found = snap_remote::verify::run(store, (&options, &seen), (&cx.waiting()?, &progress));
    let found = found.map_err(|error| cx.remote_error(error))?;
    Ok(Checked { place: Some(place), data, remote_problems: found.problems, outcome: found.found })
}

/// Where the branches of a remote stood when they were last seen from here.
pub(crate) fn seen(place: &Place, cx: &Context) -> Result<Vec<(RefName, CommitId)>, CliError> {
    let Some(remote) = &place.name else { return Ok(Vec::new()) };
    let repo = match cx.open_repo() {
        Err(CliError::NoStore) => return Ok(Vec::new()),
        repo => repo?,
    };
    let branches = tracking::branches(&repo, remote)?.into_iter();
    branches.map(|(name, at)| Ok((RefName::branch(&name)?, at))).collect()
}

fn write_text(out: &mut Out, cx: &Context, checked: &Checked) -> io::Result<()> {
    let outcome = &checked.outcome;
    for problem in checked.problems() {
        writeln!(out, "damaged: {}", text::line(problem.as_bytes()))?;
    }
    write_touched(out, &outcome.touched, cx)
}

/// Lists the snapshots and paths that damage touches.
pub(crate) fn write_touched(out: &mut Out, touched: &Touched, cx: &Context) -> io::Result<()> {
    for id in &touched.commits {
        writeln!(out, "touched: commit {}", cx.ui().id(id))?;
    }
    for TouchedPath { commit, commits, path, .. } in &touched.paths {
        let path = if path.is_empty() { "everything".to_owned() } else { text::line(path) };
        let more = match commits {
            0 | 1 => String::new(),
            _ => format!(" and {} before", size::count(commits - 1, "commit")),
        };
        writeln!(out, "touched: {path} in commit {}{more}", cx.ui().id(commit))?;
    }
    match touched.more_paths {
        0 => Ok(()),
        more => writeln!(out, "touched: {} more", size::count(more, "path")),
    }
}

fn write_json(out: &mut Out, checked: &Checked) -> io::Result<()> {
    let (outcome, problems) = (&checked.outcome, checked.problems());
    for problem in &problems {
        out.json(&json!({ "version": 1, "type": "problem", "message": problem }))?;
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
        "trees": outcome.trees,
        "contents": outcome.contents,
        "partial_packs": outcome.partial_packs,
        "absent_objects": outcome.absent_objects,
        "shadowed_packs": outcome.shadowed.packs,
        "withdrawn_packs": outcome.shadowed.withdrawn,
        "shadows_written": outcome.shadowed.failed.is_none(),
        "bytes_read": outcome.bytes_read,
        "problems": problems.len(),
        "more_paths": outcome.touched.more_paths,
    }))
}

/// Records of the snapshots and paths that damage touches.
pub(crate) fn write_touched_json(out: &mut Out, touched: &Touched) -> io::Result<()> {
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
    let Checked { place, data, outcome, .. } = checked;
    let at = place.as_ref().map(|place| format!(" at {}", place.shown())).unwrap_or_default();
    let (packs, objects) =
        (size::count(outcome.packs, "pack"), size::count(outcome.objects, "object"));
    let commits = size::count(outcome.commits, "commit");
    cx.ui().status(format_args!(
        "Checked {packs} with {objects}{at}, and {commits} that branches and tags reach"
    ));
    if outcome.absent_objects > 0 {
        let (absent, packs) = (
            size::count(outcome.absent_objects, "object"),
            size::count(outcome.partial_packs, "partial pack"),
        );
        cx.ui().status(format_args!("{absent} of {packs} lie elsewhere and were not looked at"));
    }
    let read = Size(outcome.bytes_read);
    match *data {
        Data::None => {}
        Data::Sample(part) => {
            cx.ui().status(format_args!("Read {read}, {:.1} % of the data", part * 100.0));
        }
        Data::All => cx.ui().status(format_args!("Read {read}, all of the data")),
    }
    tell_shadows(checked, cx);
    match checked.problems().len() as u64 {
        0 if *data == Data::All => cx.ui().status(format_args!("Everything is as it should be")),
        0 => cx.ui().status(format_args!("No damage found; --data reads all contents, too")),
        problems => {
            let rest = match data {
                Data::All => "what is not listed as touched is whole",
                _ => "--data reads all contents and may find more",
            };
            cx.ui().warning(format_args!("{} found; {rest}", size::count(problems, "problem")));
            hints(checked, cx);
        }
    }
}

/// What to do about problems that touch no commit.
fn hints(checked: &Checked, cx: &Context) {
    let Checked { place, data, outcome, .. } = checked;
    if let Some(place) = place {
        let name = text::word(place.shown().as_bytes());
        let is_forced = |problem: &RemoteError| match problem {
            RemoteError::NoSettings { .. } | RemoteError::Config { .. } => true,
            RemoteError::Damaged { key, .. } => key.starts_with(REFS),
            _ => false,
        };
        let force = match checked.remote_problems.iter().any(is_forced) {
            true => " --force",
            false => "",
        };
        if !checked.remote_problems.is_empty() {
            cx.ui().status(format_args!(
                "`snap push {name} --all --tags{force}` from a store that has what is lost writes \
                 it again"
            ));
        }
        if !outcome.problems.is_empty() {
            cx.ui().status(format_args!(
                "`snap repair {name}` sends again what the store here has; --from names other \
                 copies"
            ));
        }
        return;
    }
    let lost = outcome.problems.iter().filter_map(|problem| match problem {
        Problem::RefLost { name, id } => {
            let noun = if name.kind() == RefKind::Tag { "tag" } else { "branch" };
            Some(format!(
                "`snap {noun} {} {id:.12}` makes it again",
                text::word(name.short().as_bytes())
            ))
        }
        _ => None,
    });
    lost.for_each(|hint| cx.ui().status(format_args!("{hint}")));
    let is_pack = |problem: &Problem| {
        matches!(problem, Problem::Pack { .. } | Problem::PackHash { .. } | Problem::Frame { .. })
    };
    let touched = &outcome.touched;
    let needs_none = touched.commits.is_empty() && touched.paths.is_empty();
    if *data == Data::All && needs_none && outcome.problems.iter().all(is_pack) {
        cx.ui().status(format_args!(
            "No commit needs what is damaged; `snap repair` moves the damaged packs to quarantine/"
        ));
    } else if outcome.problems.iter().any(repair::is_repairable) {
        cx.ui().status(format_args!(
            "`snap repair` puts back what is lost, from remotes and the files of the project; \
             --from names other copies"
        ));
    }
}

fn tell_shadows(checked: &Checked, cx: &Context) {
    let Shadowed { packs, withdrawn, failed } = &checked.outcome.shadowed;
    let later = match checked.place {
        None => "the next commit stores them again from files that still have the content",
        Some(_) => "the next push sends them again from the store here",
    };
    if let Some(error) = failed {
        cx.ui().warning(format_args!(
            "the damage cannot be recorded, so damaged objects are still relied on: {error}"
        ));
    } else if *packs > 0 {
        let packs = size::count(*packs, "pack");
        cx.ui()
            .status(format_args!("Damaged objects in {packs} are not relied on any more: {later}"));
    }
    if *withdrawn > 0 {
        let packs = size::count(*withdrawn, "pack");
        cx.ui().status(format_args!("{packs} that had been damaged: whole again"));
    }
}

/// A problem and what is behind it.
pub(crate) fn chain(problem: &dyn Error) -> String {
    let mut shown = problem.to_string();
    let mut cause = problem.source();
    while let Some(error) = cause {
        shown.push_str(": ");
        shown.push_str(&error.to_string());
        cause = error.source();
    }
    shown
}

/// Parses `5%` or `0.05`.
fn part(text: &str) -> Result<f64, &'static str> {
    let (number, whole) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>().map(|number| number / whole) {
        Ok(part) if part > 0.0 && part <= 1.0 => Ok(part),
        _ => Err("expected a part such as 5% or 0.05"),
    }
}
