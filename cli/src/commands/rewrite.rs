//! `snap rewrite`: removes paths from history.

use std::{collections::BTreeMap, ffi::OsStr, io::Write, os::unix::ffi::OsStrExt};

use serde::Serialize;
use snap_core::{
    ops::rewrite::{self, MovedRef, RewriteOptions, RewriteOutcome},
    repo::{Pointer, RefName, Repo},
};

use crate::{
    commands::{
        remaining::{RemainingPathJson, warn_of_paths},
        undo,
    },
    context::Context,
    report::{CliError, CommandOutcome},
    ui::{VERSION, size::count, text},
};

const EXAMPLES: &str = "\
Examples:
  snap rewrite --exclude config/secret.env -n
                            show which branches and tags would move
  snap rewrite --exclude config/secret.env
                            remove the file from all branches and tags
  snap rewrite --exclude '*.pem' main
                            only from the history of main
  snap gc                   delete the removed contents

Each commit that has an excluded path, and each later one, is replaced by a commit
without the path, with the same time, author, message and labels. The same command
makes the same commits in every clone. A pattern has the syntax of .snapignore; one
with a slash in it, such as config/secret.env, starts at the root of the snapshot.

Until the next `snap gc`, `snap undo` takes the rewrite back. That gc deletes the
contents which only old commits had, however young they are, and rewrites each pack
that has any of them. Afterwards no pack has them. `snap commit` refuses to store
them again: see --allow there.

A remote keeps its commits until you replace them with `snap push --force`, and their
contents until `snap gc REMOTE --now`. Others may have copied a password: change it.

Exits with 1 if other branches or tags still have the paths, or if a pattern matched
nothing.";

/// Remove paths from history, such as a password committed by mistake
///
/// Replaces the commits of branches and tags. The files of the project stay as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RewriteArgs {
    /// Branches and tags to rewrite; default: all
    #[arg(value_name = "BRANCH|TAG")]
    names: Vec<String>,

    /// Remove what matches this pattern; may be repeated
    #[arg(long, value_name = "PATTERN", required = true)]
    exclude: Vec<String>,

    /// Show what would be rewritten; change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(crate) fn run(args: &RewriteArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let repo = cx.open_repo()?;
    let mut names = Vec::new();
    for text in &args.names {
        match undo::pointer(&repo, text)? {
            Pointer::Ref(name) => names.push(name),
            Pointer::Head => return Err(CliError::NoRef { name: text.clone() }),
        }
    }
    let patterns: Vec<String> = args
        .exclude
        .iter()
        .map(|text| text.strip_prefix("./").unwrap_or(text).to_owned())
        .collect();
    let reason = format!("{}without {}", rewrite::REASON, patterns.join(" "));
    let options = RewriteOptions { patterns, names, dry_run: args.dry_run };
    let progress = cx.progress();
    let outcome = cx.with_change(repo.config(), &reason, |change| {
        rewrite::run(&repo, &options, change, &progress)
    })?;
    drop(progress);
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&RewrittenJson::new(&outcome, args.dry_run))?;
        out.finish()?;
    } else {
        print(&outcome, cx)?;
    }
    summarize(&outcome, args, &repo, cx);
    let is_gone = outcome.remaining.is_empty() && outcome.elsewhere.is_empty();
    Ok(match is_gone && outcome.unmatched.is_empty() {
        true => CommandOutcome::Success,
        false => CommandOutcome::Different,
    })
}

/// Prints the refs that move.
fn print(outcome: &RewriteOutcome, cx: &Context) -> Result<(), CliError> {
    let mut out = cx.ui().out();
    for moved in &outcome.refs {
        let (name, _) = name_of(moved);
        writeln!(out, "{name}  {} -> {}", cx.ui().id(&moved.old), cx.ui().id(&moved.new))?;
    }
    out.finish()?;
    Ok(())
}

fn summarize(outcome: &RewriteOutcome, args: &RewriteArgs, repo: &Repo, cx: &Context) {
    let ui = cx.ui();
    let commits = count(outcome.commits, "commit");
    let removed = match outcome.removed.len() {
        1 => outcome.removed.iter().map(|path| text::line(path)).collect(),
        paths => count(paths as u64, "path"),
    };
    if args.dry_run {
        ui.status(format_args!("Would rewrite {commits} without {removed}"));
        ui.status(format_args!("Dry run: nothing was changed"));
    } else {
        ui.status(format_args!("Rewrote {commits} without {removed}"));
        let objects = count(outcome.purged_objects, "object");
        ui.status(format_args!(
            "`snap gc` deletes {objects}; until then, `snap undo` takes this back"
        ));
    }
    for pattern in &outcome.unmatched {
        ui.warning(format_args!("no commit contains {}", text::word(pattern.as_bytes())));
    }
    if !outcome.discarded.is_empty() {
        ui.warning(format_args!(
            "`snap gc` will also delete {} of undone changes and deleted branches",
            count(outcome.discarded.len() as u64, "commit")
        ));
        ui.hint("to keep one, run `snap undo` and `snap branch NAME ID`, and rewrite again");
    }
    if !outcome.remaining.is_empty() {
        let names: Vec<_> = outcome.remaining.iter().map(RefName::short).collect();
        ui.warning(format_args!("other branches or tags still have it: {}", names.join(", ")));
        ui.hint("without names, `snap rewrite` rewrites all branches and tags");
    }
    warn_of_paths(&outcome.elsewhere.affected, None, cx);
    let is_here = |path: &&Vec<u8>| {
        let path = OsStr::from_bytes(path);
        repo.project().is_some_and(|project| project.join(path).symlink_metadata().is_ok())
    };
    if let Some(path) = outcome.removed.iter().find(is_here) {
        let path = text::line(path);
        ui.hint(&format!("{path} is still in this folder; add it to .snapignore, or remove it"));
    }
    let mut remotes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (remote, branch) in outcome.tracking.iter().filter_map(|name| name.short().split_once('/'))
    {
        remotes.entry(remote).or_default().push(branch);
    }
    let is_tag = |moved: &&MovedRef| name_of(moved).1 == "tag";
    let tags: Vec<_> = outcome.refs.iter().filter(is_tag).map(|moved| name_of(moved).0).collect();
    for (remote, branches) in remotes {
        ui.status(format_args!("{remote} still has it. To replace and delete it there:"));
        ui.status(format_args!("  snap push --force {remote} {}", branches.join(" ")));
        ui.status(format_args!("  snap gc {remote} --now"));
        if !tags.is_empty() {
            let tags = tags.join(" ");
            ui.status(format_args!("Also push each of these tags that {remote} has: {tags}"));
        }
    }
}

/// Returns the name of a ref, and the noun of its kind.
fn name_of(moved: &MovedRef) -> (&str, &'static str) {
    match &moved.pointer {
        Pointer::Head => ("HEAD", "head"),
        Pointer::Ref(name) => (name.short(), name.kind().noun()),
    }
}

/// The record of a rewrite.
#[derive(Serialize)]
struct RewrittenJson<'a> {
    version: u32,
    r#type: &'static str,
    dry_run: bool,
    commits: u64,
    refs: Vec<MovedRefJson<'a>>,
    removed: Vec<String>,
    purged_objects: u64,
    purged_bytes: u64,
    remaining: Vec<&'a str>,
    remaining_paths: Vec<RemainingPathJson>,
    tracking: Vec<&'a str>,
    discarded: Vec<String>,
    unmatched: &'a [String],
}

#[derive(Serialize)]
struct MovedRefJson<'a> {
    name: &'a str,
    kind: &'static str,
    from: String,
    to: String,
}

impl<'a> RewrittenJson<'a> {
    fn new(outcome: &'a RewriteOutcome, dry_run: bool) -> Self {
        let moved = outcome.refs.iter().map(|moved| {
            let (name, kind) = name_of(moved);
            MovedRefJson { name, kind, from: moved.old.to_string(), to: moved.new.to_string() }
        });
        Self {
            version: VERSION,
            r#type: "rewritten",
            dry_run,
            commits: outcome.commits,
            refs: moved.collect(),
            removed: outcome
                .removed
                .iter()
                .map(|path| String::from_utf8_lossy(path).into_owned())
                .collect(),
            purged_objects: outcome.purged_objects,
            purged_bytes: outcome.purged_bytes,
            remaining: outcome.remaining.iter().map(RefName::short).collect(),
            remaining_paths: RemainingPathJson::of(&outcome.elsewhere.affected),
            tracking: outcome.tracking.iter().map(RefName::short).collect(),
            discarded: outcome.discarded.iter().map(ToString::to_string).collect(),
            unmatched: &outcome.unmatched,
        }
    }
}
