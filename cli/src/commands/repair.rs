//! `snap repair`: restores lost or damaged data of a store.

use std::{
    cell::OnceCell,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use snap_core::{
    base::id::{ObjectId, PackId},
    disk::Disk,
    format::commit::Commit,
    ops::{
        record::exact,
        repair::{
            self, LostObject, RepairOptions, RepairOutcome, RepairRun, RepairSource, Repaired,
            RepairedFrom, SourceKind,
        },
        verify::{self, Data, VerifyProblem},
    },
    repo::{Config, Head, Repo, mend::Mended, open::refuse_remote},
    store::{BundleStore, Store},
};
use snap_remote::{
    peer::{RemoteError, open},
    verify::SeenRefs,
};

use crate::{
    commands::{
        diff::sides,
        push::report_repaired_files,
        verify::{seen, write_affected, write_touched_json},
    },
    context::Context,
    remote::{CachePolicy, LimitArgs, RemoteSource, RemoteSpec},
    report::{CliError, CommandOutcome},
    snapshot::is_named_bundle,
    ui::{Out, size, size::ByteCount, text},
};

const EXAMPLES: &str = "\
Examples:
  snap repair                       from the remotes and the files of the project
  snap repair --data                read all data first, to find all damage
  snap repair --from ../copy --from backup.snap
                                    from another project and a bundle
  snap repair -n                    what would be recovered from which source
  snap repair origin --data         a remote, from the local store
  snap repair origin --from ../copy and from another project

Searches for each damaged or missing object in this order: other packs of the store,
the sources, the files of the project, bundles. In a store without a project, the
files are those that the commits were made of. Recovered data is used only if its
hash is correct. Nothing is deleted, no id changes and no branch moves. Damaged
packs that are no longer needed move to `quarantine/` in the store.

With REMOTE, sends again what the remote has lost, from the local store and the
sources of --from.

Exits with 4 if something stays lost, and lists it with the affected snapshots and
paths.";

/// Recover lost or damaged data of a store
///
/// Checks for damage like `snap verify`. Recovers damaged or missing data from remotes, other
/// copies, the files of the project and bundles.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RepairArgs {
    /// Remote or URL to repair; default: the local store
    #[arg(value_name = "REMOTE|URL")]
    remote: Option<String>,

    /// Source of lost data: a remote, a URL, a project, a store or a bundle; may be repeated;
    /// default: all remotes
    #[arg(long, value_name = "REMOTE|URL|DIR|FILE")]
    from: Vec<PathBuf>,

    /// Read and hash all data first
    #[arg(long)]
    data: bool,

    /// Show what would be recovered from which source; change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    #[command(flatten)]
    limits: LimitArgs,
}

impl RepairArgs {
    fn run(&self) -> RepairRun {
        if self.dry_run { RepairRun::Dry } else { RepairRun::Real }
    }

    fn data(&self) -> Data {
        if self.data { Data::All } else { Data::None }
    }

    /// Returns the command that really does what this dry run reported.
    fn without_dry_run(&self) -> String {
        let mut command = "snap repair".to_owned();
        if let Some(remote) = &self.remote {
            command.push_str(&format!(" {}", text::word(remote.as_bytes())));
        }
        if self.data {
            command.push_str(" --data");
        }
        for from in &self.from {
            command.push_str(&format!(" --from {}", text::word(from.as_os_str().as_bytes())));
        }
        command
    }

    /// Returns whether the caches of remotes are kept.
    fn memory(&self) -> CachePolicy {
        if self.dry_run { CachePolicy::Forgotten } else { CachePolicy::Kept }
    }
}

/// An open source.
#[derive(Debug)]
enum OpenedSource {
    Remote(Box<RemoteSource>),
    Bundle(Box<BundleStore>),
}

impl OpenedSource {
    fn store(&self) -> &Store {
        match self {
            Self::Remote(elsewhere) => elsewhere.repo().store(),
            Self::Bundle(bundle) => bundle.store(),
        }
    }

    fn kind(&self) -> SourceKind {
        match self {
            Self::Remote(_) => SourceKind::Store,
            Self::Bundle(_) => SourceKind::Bundle,
        }
    }
}

/// Open sources with their names.
type NamedSources = Vec<(String, OpenedSource)>;

/// The result of a repair or of its dry run.
struct Report<'a> {
    args: &'a RepairArgs,
    /// The remote, if one is repaired.
    place: Option<RemoteSpec>,
    is_whole: bool,
    /// Number of problems found before the repair.
    problems: usize,
    repaired: Vec<Repaired>,
    quarantined: Vec<PackId>,
    /// Packs of a remote that were in no readable index file and are listed again, or would be.
    relisted: usize,
    /// Number of lost packs that were removed from the index of a remote, or would be.
    unlisted: usize,
    /// Files other than packs that were repaired. An index file of a remote may have been removed.
    mended: Vec<String>,
    lost: Vec<LostObject>,
    left: verify::VerifyOutcome,
    /// Refs and index files of a remote that are damaged or missing.
    unread: Vec<String>,
}

pub(crate) fn run(args: &RepairArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    match &args.remote {
        Some(remote) => repair_remote(remote, args, cx),
        None => repair_here(args, cx),
    }
}

fn repair_here(args: &RepairArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let dir = cx.store_dir()?;
    cx.check_found(&dir)?;
    let mended = match args.run() {
        RepairRun::Real => mend_settings(&dir, cx)?,
        RepairRun::Dry => Vec::new(),
    };
    let repo = match args.run() {
        RepairRun::Real => cx.open_at(&dir)?,
        RepairRun::Dry => cx.open_for_dry_run(&dir)?,
    };
    let (opened, sources) = (OnceCell::new(), OnceCell::new());
    if !args.from.is_empty() {
        // Sources that the user named must open; remotes are opened only when needed.
        let _ = opened.set(open_given(Some(&dir), args, cx)?);
    }
    let all = || {
        let sources: &Vec<RepairSource<'_>> = sources.get_or_init(|| {
            let opened: &NamedSources = opened.get_or_init(|| open_remotes(&dir, args, cx));
            opened.iter().map(of_opened).collect()
        });
        sources.as_slice()
    };
    // Damage in a commit may also hide its sources; its files are then not used.
    let files = |commit: &Commit| sides::sources(&repo, commit).ok().flatten();
    let options = RepairOptions { data: args.data(), run: args.run(), scratch: cx.scratch() };
    let outcome = repair::run(&repo, &all, &files, &options, &cx.progress())?;
    warn_failed_sources(sources.get().into_iter().flatten(), cx);
    let RepairOutcome { problems, repaired, quarantined, lost, left } = outcome;
    let is_whole = is_whole(args.run(), &lost, &left.problems, true);
    Report {
        args,
        place: None,
        is_whole,
        problems,
        repaired,
        relisted: 0,
        unlisted: 0,
        quarantined,
        mended,
        lost,
        left,
        unread: Vec::new(),
    }
    .print_result(cx)
}

/// Rewrites lost files of the store other than objects and refs. Returns their names.
fn mend_settings(dir: &Path, cx: &Context) -> Result<Vec<String>, CliError> {
    refuse_remote(dir)?;
    let mended = Repo::mend(dir, &Disk::default(), &Config::default())?;
    let print_result = |mended: &Mended| {
        let (name, how) = match mended {
            Mended::Settings => ("config.toml", "with default settings".to_owned()),
            Mended::Head(Head::Branch(branch)) => ("HEAD", format!("on branch {}", branch.short())),
            Mended::Head(Head::Detached(id)) => ("HEAD", format!("detached at {id:.12}")),
            Mended::Epoch => ("gc", "with a new epoch of garbage collection".to_owned()),
            Mended::Scope => ("scope", "from its other copy".to_owned()),
        };
        cx.ui().status(format_args!("{name} was lost or damaged, and was recreated: {how}"));
        name.to_owned()
    };
    Ok(mended.iter().map(print_result).collect())
}

fn repair_remote(
    remote: &str,
    args: &RepairArgs,
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    let place = cx.remote(Some(remote).into())?;
    // All rounds use one cache, also in a dry run.
    let first = cx.connect_with(place.clone(), args.memory(), &args.limits)?;
    let given = open_given(open::local_store(&place.location)?.as_deref(), args, cx)?;
    // A location can be repaired without a local store.
    let local = match cx.find_store(Path::new("."))? {
        Some(dir) => {
            first.store.must_be_another(&dir).map_err(|error| cx.remote_error(error))?;
            Some(cx.open_found(&dir)?)
        }
        None => None,
    };
    let here = local.as_ref().map(|repo| {
        RepairSource::new("the store here".to_owned(), repo.store(), SourceKind::Store)
    });
    let sources: Vec<RepairSource<'_>> =
        here.into_iter().chain(given.iter().map(of_opened)).collect();
    let seen = seen(&place, cx)?;
    let options = snap_remote::repair::RemoteRepairOptions {
        data: args.data(),
        run: args.run(),
        level: cx.settings_here()?.0.config()?.compression_level,
        scratch: cx.scratch(),
        seen: SeenRefs { refs: &seen, history: local.as_ref().map(Repo::store) },
    };
    let open = || first.store.reopen();
    let outcome =
        snap_remote::repair::run(&open, &|| &sources, &options, &cx.waiting()?, &cx.progress());
    let outcome = outcome.map_err(|error| cx.remote_error(error))?;
    warn_failed_sources(&sources, cx);
    let snap_remote::repair::RemoteRepairOutcome {
        problems,
        repaired,
        relisted,
        unlisted,
        sent_bytes,
        repaired_keys: mended,
        lost,
        left,
    } = outcome;
    let snap_remote::verify::RemoteVerifyOutcome { problems: unread, found: mut left, .. } = left;
    if lost.is_empty() && left.touched.commits.is_empty() && !args.dry_run {
        // Nothing is deleted on the remote, so its index still names damaged packs that no commit
        // needs.
        let before = left.problems.len();
        left.problems.retain(|problem| !is_of_pack(problem));
        match (before - left.problems.len()) as u64 {
            0 => {}
            spare => {
                let packs = size::count(spare, "problem");
                cx.ui()
                    .status(format_args!("{packs} in packs remain there; they affect no commit"));
            }
        }
    }
    let is_whole = is_whole(args.run(), &lost, &left.problems, unread.is_empty());
    if sent_bytes > 0 {
        cx.ui().status(format_args!("Sent {} to {}", ByteCount(sent_bytes), place.shown()));
    }
    let unread = unread.iter().map(|problem| text::chain(problem)).collect();
    let (place, quarantined) = (Some(place), Vec::new());
    Report {
        args,
        place,
        is_whole,
        problems,
        repaired,
        relisted,
        unlisted: unlisted.len(),
        quarantined,
        mended,
        lost,
        left,
        unread,
    }
    .print_result(cx)
}

/// Returns true if no problem remains, or none would remain after a real run.
fn is_whole(
    run: RepairRun,
    lost: &[LostObject],
    left: &[VerifyProblem],
    can_read_all: bool,
) -> bool {
    let stays = |problem: &VerifyProblem| match run {
        RepairRun::Real => true,
        RepairRun::Dry => !repair::is_repairable(problem),
    };
    lost.is_empty() && can_read_all && !left.iter().any(stays)
}

/// Returns true if the problem is about a pack.
fn is_of_pack(problem: &VerifyProblem) -> bool {
    matches!(
        problem,
        VerifyProblem::PackLost { .. }
            | VerifyProblem::PackLength { .. }
            | VerifyProblem::PackHash { .. }
            | VerifyProblem::Pack { .. }
            | VerifyProblem::Frame { .. }
    )
}

/// Prints a warning for each source that failed.
fn warn_failed_sources<'a>(sources: impl IntoIterator<Item = &'a RepairSource<'a>>, cx: &Context) {
    for source in sources {
        if let Some(error) = source.failed() {
            let name = source.name();
            cx.ui().warning(format_args!(
                "{name} failed and is no longer used as a source: {}",
                text::chain(error)
            ));
        }
    }
}

/// Opens all sources given by `--from`, to repair the store in `dir`.
fn open_given(
    dir: Option<&Path>,
    args: &RepairArgs,
    cx: &Context,
) -> Result<NamedSources, CliError> {
    args.from.iter().map(|from| open((from, dir), args, cx)).collect()
}

fn of_opened((name, opened): &(String, OpenedSource)) -> RepairSource<'_> {
    RepairSource::new(name.clone(), opened.store(), opened.kind())
}

/// Opens a source given by `--from`, to repair the store in `dir`.
fn open(
    (from, dir): (&Path, Option<&Path>),
    args: &RepairArgs,
    cx: &Context,
) -> Result<(String, OpenedSource), CliError> {
    let shown = text::line(from.as_os_str().as_bytes());
    if is_named_bundle(from) {
        let bundle = BundleStore::open_incomplete(from, cx.scratch(), &cx.progress());
        let bundle = bundle
            .map_err(|source| CliError::Bundle { file: shown.clone(), source: Box::new(source) })?;
        return Ok((shown, OpenedSource::Bundle(Box::new(bundle))));
    }
    let place = cx.source(from)?;
    let is_folder = place.name.is_none() && from.is_dir();
    let elsewhere = cx.open_objects(place, dir, args.memory(), &args.limits);
    let elsewhere = elsewhere.map_err(|error| match error {
        CliError::Remote(error) if is_folder && matches!(*error, RemoteError::NoStore { .. }) => {
            CliError::PlainFolder { folder: shown.clone() }
        }
        error => error,
    })?;
    Ok((shown, OpenedSource::Remote(Box::new(elsewhere))))
}

/// Opens the remotes of the store in `dir`. Skips those that cannot be reached.
fn open_remotes(dir: &Path, args: &RepairArgs, cx: &Context) -> NamedSources {
    let names = cx.settings_here().map(|(settings, _)| settings.remotes()).unwrap_or_default();
    let mut opened = NamedSources::new();
    for name in names {
        let place = cx.remote(Some(&*name).into());
        if place.as_ref().is_ok_and(|place| !place.is_trusted()) {
            cx.ui().warning(format_args!(
                "{name} is skipped: the settings of this store are not trusted (`snap config \
                 trust`)"
            ));
            continue;
        }
        let remote =
            place.and_then(|place| cx.open_objects(place, Some(dir), args.memory(), &args.limits));
        match remote {
            Ok(remote) => opened.push((name, OpenedSource::Remote(Box::new(remote)))),
            Err(error) => {
                cx.ui().warning(format_args!("{name} is skipped: {}", text::chain(&error)));
            }
        }
    }
    opened
}

fn origin(from: &RepairedFrom) -> String {
    match from {
        RepairedFrom::Here => "its undamaged parts".to_owned(),
        RepairedFrom::Source(name) => text::line(name.as_bytes()),
        RepairedFrom::File(path) => format!("the file {}", text::line(path)),
    }
}

fn line(repaired: &Repaired) -> String {
    match repaired {
        Repaired::Pack { id, from } => {
            let from: Vec<String> = from.iter().map(origin).collect();
            format!("pack {id:.12} from {}", from.join(" and "))
        }
        Repaired::Object { id, kind, from } => {
            format!("{} {id:.12} from {}", kind.noun(), origin(from))
        }
        Repaired::Salvaged { pack, objects } => {
            let objects = size::count(*objects, "object");
            format!("{objects} from the undamaged parts of pack {pack:.12}")
        }
    }
}

/// Formats the amount, such as `1 pack and 3 objects`.
fn things(repaired: &[Repaired]) -> String {
    let (mut packs, mut objects) = (0, 0);
    for repaired in repaired {
        match repaired {
            Repaired::Pack { .. } => packs += 1,
            Repaired::Object { .. } => objects += 1,
            Repaired::Salvaged { objects: some, .. } => objects += some,
        }
    }
    match (packs, objects) {
        (0, 0) => "nothing".to_owned(),
        (0, objects) => size::count(objects, "object"),
        (packs, 0) => size::count(packs, "pack"),
        _ => format!("{} and {}", size::count(packs, "pack"), size::count(objects, "object")),
    }
}

fn source_json(from: &RepairedFrom) -> Value {
    match from {
        RepairedFrom::Here => json!({ "kind": "here" }),
        RepairedFrom::Source(name) => json!({ "kind": "source", "name": name }),
        RepairedFrom::File(path) => {
            let mut file = json!({ "kind": "file", "path": String::from_utf8_lossy(path) });
            if let Some(exact) = exact(path) {
                file["path_hex"] = exact.into();
            }
            file
        }
    }
}

fn repaired_json(r#type: &str, repaired: &Repaired) -> Value {
    let (what, id, objects, from) = match repaired {
        Repaired::Pack { id, from } => {
            ("pack", id.to_string(), None, from.iter().map(source_json).collect())
        }
        Repaired::Object { id, kind, from } => {
            (kind.noun(), id.to_string(), Some(1), vec![source_json(from)])
        }
        Repaired::Salvaged { pack, objects } => (
            "part of a pack",
            pack.to_string(),
            Some(*objects),
            vec![source_json(&RepairedFrom::Here)],
        ),
    };
    json!({
        "version": 1,
        "type": r#type,
        "what": what,
        "id": id,
        "objects": objects,
        "from": from,
    })
}

impl Report<'_> {
    /// Prints what was repaired and what remains lost.
    fn print_result(&self, cx: &Context) -> Result<CommandOutcome, CliError> {
        let mut out = cx.ui().out();
        match cx.ui().is_json() {
            true => self.write_json(&mut out)?,
            false => self.write_text(&mut out, cx)?,
        }
        out.finish()?;
        self.summarize(cx);
        Ok(if self.is_whole { CommandOutcome::Success } else { CommandOutcome::Damaged })
    }

    /// Describes the remaining problems, except those of objects that are listed as lost.
    fn problems_left(&self) -> Vec<String> {
        let is_listed_lost = |id: &ObjectId| self.lost.iter().any(|lost| lost.id == *id);
        let stays = |problem: &&VerifyProblem| match problem {
            problem if !repair::is_repairable(problem) => true,
            _ if self.args.dry_run => false,
            VerifyProblem::Object { id, .. } | VerifyProblem::Size { id, .. } => {
                !is_listed_lost(id)
            }
            // The pack is damaged because of the lost objects.
            problem => self.lost.is_empty() || !is_of_pack(problem),
        };
        let problems = self.left.problems.iter().filter(stays);
        self.unread.iter().cloned().chain(problems.map(|problem| text::chain(problem))).collect()
    }

    fn write_text(&self, out: &mut Out, cx: &Context) -> io::Result<()> {
        let would = if self.args.dry_run { "would repair" } else { "repaired" };
        for repaired in &self.repaired {
            writeln!(out, "{would}: {}", line(repaired))?;
        }
        for problem in self.problems_left() {
            writeln!(out, "damaged: {}", text::line(problem.as_bytes()))?;
        }
        for LostObject { id, kind } in &self.lost {
            writeln!(out, "lost: {} {id:.12}", kind.noun())?;
        }
        match self.lost.is_empty() {
            true => Ok(()),
            false => write_affected(out, &self.left.touched, cx),
        }
    }

    fn write_json(&self, out: &mut Out) -> io::Result<()> {
        let r#type = if self.args.dry_run { "would-repair" } else { "repaired" };
        for repaired in &self.repaired {
            out.json(&repaired_json(r#type, repaired))?;
        }
        let problems = self.problems_left();
        for problem in &problems {
            out.json(&json!({ "version": 1, "type": "problem", "message": problem }))?;
        }
        for LostObject { id, kind } in &self.lost {
            let (what, id) = (kind.noun(), id.to_string());
            out.json(&json!({ "version": 1, "type": "lost", "what": what, "id": id }))?;
        }
        if !self.lost.is_empty() {
            write_touched_json(out, &self.left.touched)?;
        }
        let quarantined: Vec<String> = self.quarantined.iter().map(ToString::to_string).collect();
        out.json(&json!({
            "version": 1,
            "type": "summary",
            "remote": self.place.as_ref().and_then(|place| place.name.as_deref()),
            "location": self.place.as_ref().map(|place| place.location.to_string()),
            "whole": self.is_whole,
            "problems_found": self.problems,
            "problems_left": problems.len(),
            "repaired": self.repaired.len(),
            "lost": self.lost.len(),
            "quarantined": quarantined,
            "mended": self.mended,
            "more_paths": self.left.touched.more_paths,
        }))
    }

    fn summarize(&self, cx: &Context) {
        let (ui, is_dry) = (cx.ui(), self.args.dry_run);
        let place = self.place.as_ref().map(|place| text::word(place.shown().as_bytes()));
        let at = place.as_ref().map(|place| format!(" {place}")).unwrap_or_default();
        if self.problems == 0 && self.mended.is_empty() && self.unlisted == 0 {
            ui.status(format_args!("Nothing to repair: no errors found"));
            if !self.args.data {
                ui.hint(&format!("`snap repair{at} --data` also reads all contents"));
            }
            return;
        }
        if self.place.is_some() {
            report_repaired_files(&self.mended, cx);
        }
        let packs = size::count(self.relisted as u64, "pack");
        match is_dry {
            _ if self.relisted == 0 => {}
            true => ui.status(format_args!("Would list {packs} again that no index file lists")),
            false => ui.status(format_args!("Listed {packs} again that no index file listed")),
        }
        let packs = size::count(self.unlisted as u64, "lost pack");
        match is_dry {
            _ if self.unlisted == 0 => {}
            true => ui.status(format_args!("Would remove {packs} from the index")),
            false => ui.status(format_args!("Removed {packs} from the index")),
        }
        let things = things(&self.repaired);
        let has_others = !self.mended.is_empty() || self.relisted + self.unlisted > 0;
        match is_dry {
            false if self.repaired.is_empty() && has_others => {}
            true => ui.status(format_args!("Would repair {things} (dry run: nothing was changed)")),
            false => ui.status(format_args!("Repaired {things}")),
        }
        if !self.quarantined.is_empty() {
            let packs = size::count(self.quarantined.len() as u64, "damaged pack");
            ui.status(format_args!("Moved {packs} to quarantine/ in the store"));
        }
        match (self.is_whole, is_dry) {
            (true, true) => ui.hint(&format!("`{}` repairs it", self.args.without_dry_run())),
            (true, false) if self.args.data => {
                ui.status(format_args!("No errors found"));
            }
            (true, false) => {
                ui.status(format_args!("No known damage is left"));
                ui.hint(&format!("`snap verify{at} --data` also reads all contents"));
            }
            (false, _) if self.lost.is_empty() => {
                ui.warning(format_args!("other damage is left"));
                ui.hint(&format!("`snap verify{at}` shows what to do"));
            }
            (false, _) => {
                let lost = size::count(self.lost.len() as u64, "object");
                ui.warning(format_args!("{lost} could not be found in any source"));
                let commit = match place {
                    Some(_) => "",
                    None => "\n`snap commit` stores again what the files still contain",
                };
                ui.hint(&format!("`snap repair{at} --from PLACE` tries another source{commit}"));
            }
        }
    }
}
