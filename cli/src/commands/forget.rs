//! `snap forget`: lets old commits go.

use std::io::Write;

use serde::Serialize;
use snap_core::{
    base::duration::Age,
    ops::{
        forget::{
            self, CommitText, ForgetChoice, ForgetPlan, GroupBy, KeepPolicy, KeptLabel, Period,
            PlannedCommit,
        },
        gc::{self, WaitingCommits},
    },
    repo::{RefName, Repo},
};

use crate::{
    commands::log::label,
    context::Context,
    report::{CliError, CommandOutcome},
    ui::{
        VERSION, measure,
        size::{self, ByteCount, count},
        text, time,
    },
};

const EXAMPLES: &str = "\
Examples:
  snap forget --keep-last 10 --keep-daily 30 -n
                             show what would go
  snap forget --keep-daily 14 --keep-weekly 8 --keep-monthly 24
                             the last commit of each of 14 days, 8 weeks, 24 months
  snap forget main --keep-within 90d --keep-within-monthly 1y6m
                             from main: what is 90 days older than its last commit,
                             except the last one of each month of 18 months
  snap forget --keep-within 7d --keep-under 500GB
                             also the oldest of them, until the rest fits
  snap forget 3f2a9c1b       one commit
  snap gc                    free the space

Forgets the commits that no rule keeps. Tips of branches, tags and commits with the
label `keep` always stay. A policy also keeps commits dated in the future; name such a
commit to forget it. A forgotten commit stays in the history of its branch, and ids of
other commits do not change; but `snap gc` deletes its files after 7 days (`gc.undo`),
or at once with `snap gc --now`. Until then, `snap undo` brings it back.

Rules are those of restic: daily, weekly, … keep the newest commit of each of the last
N days, weeks, … that have one, in local time. --keep-within and --keep-within-daily, …
count back from the newest commit, not from today. An AGE has years (y), months (m),
weeks (w), days (d) and hours (h) of the calendar: 30d, 12m, 1y5m7d. A commit goes only
if no rule keeps it in any branch. Without --keep options, the settings `keep.*` are the
policy.";

/// Let old commits go, by a policy or one by one
///
/// Deletes nothing itself: `snap gc` frees the space.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ForgetArgs {
    /// Commits to forget; with --keep options: branches, default: all
    #[arg(value_name = "REV|BRANCH")]
    names: Vec<String>,

    #[command(flatten)]
    keep: KeepArgs,

    /// Apply the policy to each branch (default), host, or value of a label
    #[arg(long, value_name = "branch|host|label:KEY", value_parser = group_by)]
    group_by: Option<GroupBy>,

    /// Also compute what each commit takes in the store; reads all folders
    #[arg(long)]
    sizes: bool,

    /// Accept a policy that keeps only the last commit of each branch
    #[arg(long)]
    allow_none: bool,

    /// Show what would go; change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Time by which rules choose: `committed`, or `received` by a server
    #[arg(long, value_name = "TIME", default_value = "committed", hide = true)]
    #[arg(value_parser = ["committed", "received"])]
    by: String,
}

/// The rules of a policy.
#[derive(Debug, Default, clap::Args)]
struct KeepArgs {
    /// Keep the newest N commits
    #[arg(long, value_name = "N")]
    keep_last: Option<u64>,

    /// Keep the newest commit of each of the last N hours with commits
    #[arg(long, value_name = "N")]
    keep_hourly: Option<u64>,

    /// Keep the newest commit of each of the last N days with commits
    #[arg(long, value_name = "N")]
    keep_daily: Option<u64>,

    /// Keep the newest commit of each of the last N weeks with commits
    #[arg(long, value_name = "N")]
    keep_weekly: Option<u64>,

    /// Keep the newest commit of each of the last N months with commits
    #[arg(long, value_name = "N")]
    keep_monthly: Option<u64>,

    /// Keep the newest commit of each of the last N years with commits
    #[arg(long, value_name = "N")]
    keep_yearly: Option<u64>,

    /// Keep all commits up to this age, such as 30d or 12m (months)
    #[arg(long, value_name = "AGE", value_parser = measure::age)]
    keep_within: Option<Age>,

    /// Keep hourly commits up to this age
    #[arg(long, value_name = "AGE", value_parser = measure::age)]
    keep_within_hourly: Option<Age>,

    /// Keep daily commits up to this age
    #[arg(long, value_name = "AGE", value_parser = measure::age)]
    keep_within_daily: Option<Age>,

    /// Keep weekly commits up to this age
    #[arg(long, value_name = "AGE", value_parser = measure::age)]
    keep_within_weekly: Option<Age>,

    /// Keep monthly commits up to this age
    #[arg(long, value_name = "AGE", value_parser = measure::age)]
    keep_within_monthly: Option<Age>,

    /// Keep yearly commits up to this age
    #[arg(long, value_name = "AGE", value_parser = measure::age)]
    keep_within_yearly: Option<Age>,

    /// Keep commits with this label
    #[arg(long = "keep-label", value_name = "KEY[=VALUE]", value_parser = label)]
    keep_labels: Vec<KeptLabel>,

    /// Forget the oldest commits that rules keep, until the store takes at most SIZE
    #[arg(long, value_name = "SIZE", value_parser = measure::size)]
    keep_under: Option<u64>,
}

impl KeepArgs {
    fn policy(&self) -> KeepPolicy {
        let counts = [
            self.keep_hourly,
            self.keep_daily,
            self.keep_weekly,
            self.keep_monthly,
            self.keep_yearly,
        ];
        let ages = [
            self.keep_within_hourly,
            self.keep_within_daily,
            self.keep_within_weekly,
            self.keep_within_monthly,
            self.keep_within_yearly,
        ];
        KeepPolicy {
            last: self.keep_last.unwrap_or_default(),
            periods: Period::ALL.into_iter().zip(counts).filter_map(present).collect(),
            within: self.keep_within,
            within_periods: Period::ALL.into_iter().zip(ages).filter_map(present).collect(),
            labels: self.keep_labels.clone(),
            max_bytes: self.keep_under,
        }
    }

    /// Returns true if the user gave a rule, even one that keeps nothing.
    fn is_given(&self) -> bool {
        let zero = [
            self.keep_last,
            self.keep_hourly,
            self.keep_daily,
            self.keep_weekly,
            self.keep_monthly,
            self.keep_yearly,
        ];
        zero.iter().any(Option::is_some) || !self.policy().is_empty()
    }
}

fn present<T>((period, value): (Period, Option<T>)) -> Option<(Period, T)> {
    Some((period, value?))
}

fn group_by(text: &str) -> Result<GroupBy, &'static str> {
    match text.split_once(':') {
        None if text == "branch" => Ok(GroupBy::Branch),
        None if text == "host" => Ok(GroupBy::Host),
        Some(("label", key)) if !key.is_empty() => Ok(GroupBy::Label(key.to_owned())),
        _ => Err("expected branch, host or label:KEY"),
    }
}

pub(crate) fn run(args: &ForgetArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    if args.by == "received" {
        return Err(CliError::ReceivedUnknown);
    }
    for name in &args.names {
        if cx.split_remote(name.as_ref())?.is_some() {
            return Err(CliError::ForgetRemote { name: name.clone() });
        }
    }
    let repo = cx.open_repo()?;
    let choice = choice(args, &repo, cx)?;
    let progress = cx.progress();
    let plan = forget::plan(&repo, &choice, cx.now(), &time::offset_secs, args.sizes, &progress)?;
    let forgotten = plan.forgotten();
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        for commit in &plan.commits {
            out.json(&DecisionJson::new(commit, &commit.text(repo.store())?))?;
        }
        out.finish()?;
    } else if args.dry_run || cx.ui().is_terminal() && !cx.ui().is_quiet() {
        print(&plan, &repo, cx)?;
    }
    let mut count = forgotten.len() as u64;
    if !args.dry_run && count > 0 {
        let reason = format!("forget: {}", size::count(count, "commit"));
        count = cx.with_change(repo.config(), &reason, |change| {
            forget::run(&repo, &forgotten, change, &progress)
        })?;
    }
    drop(progress);
    if cx.ui().is_json() {
        let mut out = cx.ui().out();
        out.json(&ForgottenJson {
            version: VERSION,
            r#type: "forgotten",
            dry_run: args.dry_run,
            commits: plan.commits.len() as u64,
            forgotten: count,
            forgotten_before: plan.forgotten_before,
            forgotten_bytes: plan.forgotten_bytes(),
            kept_bytes: plan.kept_bytes,
        })?;
        out.finish()?;
    }
    let undo = cx.settings_of(repo.dir())?.duration("gc.undo");
    let waiting = gc::waiting(repo.store(), undo, cx.now())?;
    summarize(&plan, (count, waiting), args, cx);
    Ok(CommandOutcome::Success)
}

/// Returns what the user wants to forget.
fn choice(args: &ForgetArgs, repo: &Repo, cx: &Context) -> Result<ForgetChoice, CliError> {
    let is_given = args.keep.is_given();
    if !is_given && !args.names.is_empty() {
        if args.group_by.is_some() || args.allow_none {
            return Err(CliError::Usage("--group-by and --allow-none need a --keep option"));
        }
        let commits = args.names.iter().map(|rev| cx.resolve_commit(repo, rev));
        return Ok(ForgetChoice::Commits(commits.collect::<Result<_, _>>()?));
    }
    let policy = match is_given {
        true => args.keep.policy(),
        false => cx.settings_of(repo.dir())?.keep_policy(),
    };
    if !is_given && policy.is_empty() {
        return Err(CliError::NoPolicy);
    }
    let mut branches = Vec::new();
    for text in &args.names {
        let name = RefName::branch(text)?;
        if repo.refs().read(&name)?.is_none() {
            return Err(CliError::ForgetBranch { name: text.clone() });
        }
        branches.push(name);
    }
    let group_by = args.group_by.clone().unwrap_or_default();
    Ok(ForgetChoice::Policy { policy, branches, group_by, allows_only_tips: args.allow_none })
}

/// Prints each commit, and why it stays or goes.
fn print(plan: &ForgetPlan, repo: &Repo, cx: &Context) -> Result<(), CliError> {
    let mut out = cx.ui().out();
    for commit in &plan.commits {
        let verb = if commit.reasons.is_empty() { "forget" } else { "keep  " };
        let id = cx.ui().paint().id(&cx.ui().id(&commit.id));
        let why = match commit.reasons.as_slice() {
            [] => commit.cause.to_string(),
            reasons => reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let bytes = commit.bytes.map(|bytes| format!(", {}", ByteCount(bytes))).unwrap_or_default();
        let CommitText { message, .. } = commit.text(repo.store())?;
        let message = text::line(message.as_bytes());
        let line = format!("{verb} {id} {} {message}", time::local(commit.time));
        writeln!(out, "{} ({}{bytes})", line.trim_end(), text::line(why.as_bytes()))?;
    }
    out.finish()?;
    Ok(())
}

fn summarize(
    plan: &ForgetPlan,
    (forgotten, waiting): (u64, Option<WaitingCommits>),
    args: &ForgetArgs,
    cx: &Context,
) {
    let all = count(plan.commits.len() as u64, "commit");
    let kept = plan.kept_bytes.map(|kept| format!(" with {}", ByteCount(kept))).unwrap_or_default();
    let bytes = match (plan.forgotten_bytes(), plan.kept_bytes) {
        (Some(gone), Some(kept)) => {
            format!(" with {}; {} stay", ByteCount(gone), ByteCount(kept))
        }
        _ => String::new(),
    };
    match (forgotten, args.dry_run) {
        (0, _) if plan.commits.is_empty() && plan.forgotten_before > 0 => {
            cx.ui().status(format_args!("Nothing to forget: already forgotten"));
        }
        (0, _) => {
            let stay = if plan.commits.len() == 1 { "stays" } else { "stay" };
            cx.ui().status(format_args!("Nothing to forget; {all} {stay}{kept}"));
        }
        (_, true) => {
            cx.ui().status(format_args!("Would forget {forgotten} of {all}{bytes}"));
            cx.ui().status(format_args!("Dry run: nothing was changed"));
        }
        (_, false) => {
            cx.ui().status(format_args!("Forgot {forgotten} of {all}{bytes}"));
            match waiting {
                Some(waiting) => {
                    let until = time::local(waiting.until);
                    cx.ui().status(format_args!(
                        "`snap gc` frees the space after {until}, `snap gc --now` at once"
                    ));
                    cx.ui().status(format_args!("Until then, `snap undo` takes this back"));
                }
                None => cx.ui().status(format_args!(
                    "`snap gc` frees the space; until then, `snap undo` takes this back"
                )),
            }
        }
    }
}

/// The record of one commit.
#[derive(Serialize)]
struct DecisionJson<'a> {
    version: u32,
    r#type: &'static str,
    id: String,
    time: String,
    host: &'a str,
    message: &'a str,
    keep: bool,
    reasons: Vec<String>,
    bytes: Option<u64>,
}

impl<'a> DecisionJson<'a> {
    fn new(commit: &'a PlannedCommit, text: &'a CommitText) -> Self {
        Self {
            version: VERSION,
            r#type: "forget-commit",
            id: commit.id.to_string(),
            time: commit.time.rfc3339(),
            host: &text.host,
            message: &text.message,
            keep: !commit.reasons.is_empty(),
            reasons: commit.reasons.iter().map(ToString::to_string).collect(),
            bytes: commit.bytes,
        }
    }
}

/// The record of the whole command.
#[derive(Serialize)]
struct ForgottenJson {
    version: u32,
    r#type: &'static str,
    dry_run: bool,
    commits: u64,
    forgotten: u64,
    forgotten_before: u64,
    forgotten_bytes: Option<u64>,
    kept_bytes: Option<u64>,
}
