//! `snap repair`: put back what a store has lost.

use std::{
    cell::OnceCell,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use snap_core::{
    ops::{
        repair::{self, Lost, Options, Origin, Outcome, Repaired, Run, Source, SourceKind},
        verify::{Data, Problem},
    },
    store::{BundleStore, Store},
};

use crate::{
    commands::verify::{self, chain},
    context::Context,
    remote::{Elsewhere, LimitArgs, Memory, rate},
    report::{CliError, Done},
    snapshot::is_bundle,
    ui::{Out, size, text},
};

const EXAMPLES: &str = "\
Examples:
  snap repair                       from the remotes of the store, and live files
  snap repair --data                read all data first, to find all damage
  snap repair --from ../copy --from backup.snap
                                    from another project and a bundle
  snap repair -n                    what would come from where

Each object that is damaged or missing is looked for, in this order: in another
place here; in the same pack elsewhere, of which only damaged parts are fetched;
in any other pack there; in the file of the project that had it; in bundles.
What is found counts once its hash is right. Nothing is deleted, no id changes
and no branch moves. Damaged packs that are not needed any more move to
`quarantine/` in the store.

Exits with 4 if something stays lost, and lists it with the snapshots and paths
that it touches.";

/// Put back what the store has lost
///
/// Looks for damage as `snap verify` does, and gets what is damaged or missing from
/// wherever it still is.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RepairArgs {
    /// Where to look for what is lost: a remote, a location, a project or store, or a
    /// bundle; may be repeated, the first one counts first. All remotes of the store
    /// if not given
    #[arg(long, value_name = "REMOTE|URL|DIR|FILE")]
    from: Vec<PathBuf>,

    /// Read and hash all data first
    #[arg(long)]
    data: bool,

    /// Only tell what would come from where
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Bytes a second to fetch at most, such as 2M; else the setting
    /// `transfer.limit_download`
    #[arg(long, value_name = "RATE", value_parser = rate::parse)]
    limit_download: Option<u64>,
}

impl RepairArgs {
    fn run(&self) -> Run {
        if self.dry_run { Run::Dry } else { Run::Real }
    }

    fn data(&self) -> Data {
        if self.data { Data::All } else { Data::None }
    }

    fn limits(&self) -> LimitArgs {
        LimitArgs::of_download(self.limit_download)
    }

    /// What becomes of what is learnt of remotes.
    fn memory(&self) -> Memory {
        if self.dry_run { Memory::Forgotten } else { Memory::Kept }
    }
}

/// A source that is open.
#[derive(Debug)]
enum Opened {
    Elsewhere(Box<Elsewhere>),
    Bundle(Box<BundleStore>),
}

impl Opened {
    fn store(&self) -> &Store {
        match self {
            Self::Elsewhere(elsewhere) => elsewhere.repo().store(),
            Self::Bundle(bundle) => bundle.store(),
        }
    }

    fn kind(&self) -> SourceKind {
        match self {
            Self::Elsewhere(_) => SourceKind::Store,
            Self::Bundle(_) => SourceKind::Bundle,
        }
    }
}

/// Sources that are open, each with its name.
type Named = Vec<(String, Opened)>;

pub(crate) fn run(args: &RepairArgs, cx: &Context) -> Result<Done, CliError> {
    let dir = cx.store_dir()?;
    cx.check_found(&dir)?;
    let repo = match args.run() {
        Run::Real => cx.open_at(&dir)?,
        Run::Dry => cx.open_untouched(&dir)?,
    };
    let (opened, sources) = (OnceCell::new(), OnceCell::new());
    if !args.from.is_empty() {
        // Those that were named must be there, the others are asked when they are needed.
        let given = args.from.iter().map(|from| open(from, args, cx));
        let _ = opened.set(given.collect::<Result<Named, _>>()?);
    }
    let all = || {
        let sources: &Vec<Source<'_>> = sources.get_or_init(|| {
            let opened: &Named = opened.get_or_init(|| open_remotes(args, cx));
            opened.iter().map(of_opened).collect()
        });
        sources.as_slice()
    };
    let options = Options { data: args.data(), run: args.run(), scratch: cx.scratch() };
    let outcome = repair::run(&repo, &all, &options, &cx.progress())?;
    for source in sources.get().into_iter().flatten() {
        if let Some(error) = source.failed() {
            let name = source.name();
            cx.ui().warning(format_args!("{name} was not asked any more: {}", chain(error)));
        }
    }
    tell(args, &outcome, cx)
}

fn of_opened((name, opened): &(String, Opened)) -> Source<'_> {
    Source::new(name.clone(), opened.store(), opened.kind())
}

/// Opens what `--from` names.
fn open(from: &Path, args: &RepairArgs, cx: &Context) -> Result<(String, Opened), CliError> {
    let shown = text::line(from.as_os_str().as_bytes());
    if is_bundle(from) {
        let bundle = BundleStore::open_incomplete(from, cx.scratch(), &cx.progress());
        let bundle = bundle
            .map_err(|source| CliError::Bundle { file: shown.clone(), source: Box::new(source) })?;
        return Ok((shown, Opened::Bundle(Box::new(bundle))));
    }
    let place = cx.source(from)?;
    let elsewhere = cx.open_objects(place, args.memory(), &args.limits())?;
    Ok((shown, Opened::Elsewhere(Box::new(elsewhere))))
}

/// Opens the remotes of the store. One that cannot be reached is passed over.
fn open_remotes(args: &RepairArgs, cx: &Context) -> Named {
    let names = cx.settings_here().map(|(settings, _)| settings.remotes()).unwrap_or_default();
    let mut opened = Named::new();
    for name in names {
        let place = cx.remote(Some(&*name).into());
        let there = place.and_then(|place| cx.open_objects(place, args.memory(), &args.limits()));
        match there {
            Ok(there) => opened.push((name, Opened::Elsewhere(Box::new(there)))),
            Err(error) => {
                cx.ui().warning(format_args!("{name} is passed over: {}", chain(&error)));
            }
        }
    }
    opened
}

/// Tells what was repaired and what stays lost.
fn tell(args: &RepairArgs, outcome: &Outcome, cx: &Context) -> Result<Done, CliError> {
    let is_whole = outcome.is_whole(args.run());
    let mut out = cx.ui().out();
    match cx.ui().is_json() {
        true => write_json(&mut out, args, outcome)?,
        false => write_text(&mut out, args, outcome, cx)?,
    }
    out.finish()?;
    summarize(args, outcome, cx);
    Ok(if is_whole { Done::Well } else { Done::Damaged })
}

/// Problems that stay and that no lost object stands for.
fn problems_left<'a>(args: &RepairArgs, outcome: &'a Outcome) -> impl Iterator<Item = &'a Problem> {
    let is_dry = args.dry_run;
    let is_told = |id| outcome.lost.iter().any(|lost| lost.id == id);
    outcome.left.problems.iter().filter(move |problem| match problem {
        Problem::Object { id, .. } | Problem::Size { id, .. } | Problem::Chunks { id, .. } => {
            !is_dry && !is_told(*id)
        }
        Problem::Ref { .. } | Problem::RefLost { .. } | Problem::Depth { .. } => true,
        _ => !is_dry,
    })
}

fn origin(from: &Origin) -> String {
    match from {
        Origin::Here => "its sound parts here".to_owned(),
        Origin::Source(name) => name.clone(),
        Origin::File(path) => format!("the file {}", text::line(path)),
    }
}

fn line(repaired: &Repaired) -> String {
    match repaired {
        Repaired::Pack { id, from } => {
            let from: Vec<String> = from.iter().map(origin).collect();
            format!("pack {id} from {}", from.join(" and "))
        }
        Repaired::Object { id, kind, from } => {
            format!("{} {id} from {}", kind.noun(), origin(from))
        }
        Repaired::Salvaged { pack, objects } => {
            let objects = size::count(*objects, "object");
            format!("{objects} from the sound parts of pack {pack}")
        }
    }
}

fn write_text(out: &mut Out, args: &RepairArgs, outcome: &Outcome, cx: &Context) -> io::Result<()> {
    let would = if args.dry_run { "would repair" } else { "repaired" };
    for repaired in &outcome.repaired {
        writeln!(out, "{would}: {}", line(repaired))?;
    }
    for problem in problems_left(args, outcome) {
        writeln!(out, "damaged: {}", text::line(chain(problem).as_bytes()))?;
    }
    for Lost { id, kind } in &outcome.lost {
        writeln!(out, "lost: {} {id}", kind.noun())?;
    }
    match outcome.lost.is_empty() {
        true => Ok(()),
        false => verify::write_touched(out, &outcome.left.touched, cx),
    }
}

fn source_json(from: &Origin) -> Value {
    match from {
        Origin::Here => json!({ "kind": "here" }),
        Origin::Source(name) => json!({ "kind": "source", "name": name }),
        Origin::File(path) => {
            json!({ "kind": "file", "path": String::from_utf8_lossy(path) })
        }
    }
}

fn write_json(out: &mut Out, args: &RepairArgs, outcome: &Outcome) -> io::Result<()> {
    let r#type = if args.dry_run { "would-repair" } else { "repaired" };
    for repaired in &outcome.repaired {
        let (what, id, objects, from) = match repaired {
            Repaired::Pack { id, from } => {
                ("pack", id.to_string(), None, from.iter().map(source_json).collect())
            }
            Repaired::Object { id, kind, from } => {
                (kind.noun(), id.to_string(), Some(1), vec![source_json(from)])
            }
            Repaired::Salvaged { pack, objects } => {
                let here = vec![source_json(&Origin::Here)];
                ("part of a pack", pack.to_string(), Some(*objects), here)
            }
        };
        out.json(&json!({
            "version": 1,
            "type": r#type,
            "what": what,
            "id": id,
            "objects": objects,
            "from": from,
        }))?;
    }
    for problem in problems_left(args, outcome) {
        out.json(&json!({ "version": 1, "type": "problem", "message": chain(problem) }))?;
    }
    for Lost { id, kind } in &outcome.lost {
        out.json(&json!({
            "version": 1,
            "type": "lost",
            "what": kind.noun(),
            "id": id.to_string(),
        }))?;
    }
    if !outcome.lost.is_empty() {
        verify::write_touched_json(out, &outcome.left.touched)?;
    }
    let quarantined: Vec<String> = outcome.quarantined.iter().map(ToString::to_string).collect();
    out.json(&json!({
        "version": 1,
        "type": "summary",
        "whole": outcome.is_whole(args.run()),
        "problems_found": outcome.problems,
        "repaired": outcome.repaired.len(),
        "lost": outcome.lost.len(),
        "problems_left": problems_left(args, outcome).count(),
        "quarantined": quarantined,
        "more_paths": outcome.left.touched.more_paths,
    }))
}

fn summarize(args: &RepairArgs, outcome: &Outcome, cx: &Context) {
    let ui = cx.ui();
    let is_whole = outcome.is_whole(args.run());
    if outcome.problems == 0 {
        let more = if args.data { "" } else { "; --data reads all contents, too" };
        return ui.status(format_args!("Nothing to repair: no damage found{more}"));
    }
    let things = size::count(outcome.repaired.len() as u64, "thing");
    match args.run() {
        Run::Dry => ui.status(format_args!("Would repair {things}; nothing was changed")),
        Run::Real => ui.status(format_args!("Repaired {things}")),
    }
    if !outcome.quarantined.is_empty() {
        let packs = size::count(outcome.quarantined.len() as u64, "damaged pack");
        ui.status(format_args!("Moved {packs} to quarantine/ in the store"));
    }
    match (is_whole, args.run()) {
        (true, Run::Dry) => ui.status(format_args!("`snap repair` does it")),
        (true, Run::Real) if args.data => {
            ui.status(format_args!("Everything is as it should be"));
        }
        (true, Run::Real) => ui.status(format_args!(
            "No damage is left that is known; `snap verify --data` reads all contents, too"
        )),
        (false, _) if outcome.lost.is_empty() => {
            ui.warning(format_args!("damage is left; `snap verify` says more about it"))
        }
        (false, _) => {
            let lost = size::count(outcome.lost.len() as u64, "object");
            ui.warning(format_args!("{lost} cannot be found anywhere that was asked"));
            ui.status(format_args!(
                "`snap repair --from PLACE` asks another copy; `snap commit` stores again what the \
                 files of the project still have"
            ));
        }
    }
}
