//! `snap repair`: put back what a store has lost.

use std::{
    cell::OnceCell,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use snap_core::{
    base::id::{ObjectId, PackId},
    ops::{
        record::exact,
        repair::{self, Lost, Options, Origin, Outcome, Repaired, Run, Source, SourceKind},
        verify::{self, Data, Problem},
    },
    store::{BundleStore, Store},
};

use crate::{
    commands::verify::{chain, seen, write_touched, write_touched_json},
    context::Context,
    remote::{Elsewhere, LimitArgs, Memory, Place},
    report::{CliError, Done},
    snapshot::is_bundle,
    ui::{Out, size, size::Size, text},
};

const EXAMPLES: &str = "\
Examples:
  snap repair                       from the remotes of the store, and live files
  snap repair --data                read all data first, to find all damage
  snap repair --from ../copy --from backup.snap
                                    from another project and a bundle
  snap repair -n                    what would come from where
  snap repair origin --data         a store elsewhere, from the store here
  snap repair origin --from ../copy and from another project

Each object that is damaged or missing is looked for, in this order: in another
place here; in the same pack elsewhere, of which only damaged parts are fetched;
in any other pack there; in the file of the project that had it; in bundles.
What is found counts once its hash is right. Nothing is deleted, no id changes
and no branch moves. Damaged packs that are not needed any more move to
`quarantine/` in the store.

With REMOTE, what a store elsewhere has lost is sent there again, from the store
here and from what --from names.

Exits with 4 if something stays lost, and lists it with the snapshots and paths
that it touches.";

/// Put back what the store has lost
///
/// Looks for damage as `snap verify` does, and gets what is damaged or missing from
/// wherever it still is: other copies, the files of the project, bundles.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RepairArgs {
    /// Remote or location to repair; the store here if not given
    #[arg(value_name = "REMOTE|URL")]
    remote: Option<String>,

    /// Where to look for what is lost: a remote, a location, a project or store, or a
    /// bundle; may be repeated, the first one counts first. For the store here, all of
    /// its remotes if not given
    #[arg(long, value_name = "REMOTE|URL|DIR|FILE")]
    from: Vec<PathBuf>,

    /// Read and hash all data first
    #[arg(long)]
    data: bool,

    /// Only tell what would come from where
    #[arg(short = 'n', long)]
    dry_run: bool,

    #[command(flatten)]
    limits: LimitArgs,
}

impl RepairArgs {
    fn run(&self) -> Run {
        if self.dry_run { Run::Dry } else { Run::Real }
    }

    fn data(&self) -> Data {
        if self.data { Data::All } else { Data::None }
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

/// What was repaired, or would be, and what is left.
struct Report<'a> {
    args: &'a RepairArgs,
    /// The store elsewhere, if it is one.
    place: Option<Place>,
    is_whole: bool,
    /// Problems that were found at first.
    problems: usize,
    repaired: Vec<Repaired>,
    quarantined: Vec<PackId>,
    lost: Vec<Lost>,
    left: verify::Outcome,
    /// Refs and files of the index elsewhere that are damaged or missing.
    unread: Vec<String>,
}

pub(crate) fn run(args: &RepairArgs, cx: &Context) -> Result<Done, CliError> {
    match &args.remote {
        Some(remote) => repair_remote(remote, args, cx),
        None => repair_here(args, cx),
    }
}

fn repair_here(args: &RepairArgs, cx: &Context) -> Result<Done, CliError> {
    let dir = cx.store_dir()?;
    cx.check_found(&dir)?;
    let repo = match args.run() {
        Run::Real => cx.open_at(&dir)?,
        Run::Dry => cx.open_untouched(&dir)?,
    };
    let (opened, sources) = (OnceCell::new(), OnceCell::new());
    if !args.from.is_empty() {
        // Those that were named must be there, the others are asked when they are needed.
        let _ = opened.set(open_given(args, cx)?);
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
    tell_failed(sources.get().into_iter().flatten(), cx);
    let Outcome { problems, repaired, quarantined, lost, left } = outcome;
    let is_whole = is_whole(args.run(), &lost, &left.problems, true);
    Report {
        args,
        place: None,
        is_whole,
        problems,
        repaired,
        quarantined,
        lost,
        left,
        unread: Vec::new(),
    }
    .tell(cx)
}

fn repair_remote(remote: &str, args: &RepairArgs, cx: &Context) -> Result<Done, CliError> {
    let place = cx.remote(Some(remote).into())?;
    // What is learnt in one round is known in the next, also in a dry run.
    let first = cx.connect_with(place.clone(), args.memory(), &args.limits)?;
    let given = open_given(args, cx)?;
    // A location can be repaired where there is no store.
    let here = match cx.find_store(Path::new("."))? {
        Some(dir) => Some(cx.open_found(&dir)?),
        None => None,
    };
    let here = here
        .as_ref()
        .map(|repo| Source::new("the store here".to_owned(), repo.store(), SourceKind::Store));
    let sources: Vec<Source<'_>> = here.into_iter().chain(given.iter().map(of_opened)).collect();
    let options = snap_remote::repair::Options {
        data: args.data(),
        run: args.run(),
        level: cx.settings_here()?.0.config()?.compression.level,
        scratch: cx.scratch(),
        seen: &seen(&place, cx)?,
    };
    let open = || first.store.reopen();
    let outcome =
        snap_remote::repair::run(&open, &|| &sources, &options, (&cx.waiting()?, &cx.progress()));
    let outcome = outcome.map_err(|error| cx.remote_error(error))?;
    tell_failed(&sources, cx);
    let snap_remote::repair::Outcome { problems, repaired, sent_bytes, lost, left } = outcome;
    let snap_remote::verify::Outcome { problems: unread, found: mut left } = left;
    if lost.is_empty() && left.touched.commits.is_empty() && !args.dry_run {
        // Nothing is deleted there: the index goes on naming a pack that nothing needs.
        let before = left.problems.len();
        left.problems.retain(|problem| !is_of_pack(problem));
        match (before - left.problems.len()) as u64 {
            0 => {}
            spare => {
                let packs = size::count(spare, "problem");
                cx.ui()
                    .status(format_args!("{packs} of packs there are left that touch no commit"));
            }
        }
    }
    let is_whole = is_whole(args.run(), &lost, &left.problems, unread.is_empty());
    if sent_bytes > 0 {
        cx.ui().status(format_args!("Sent {} to {}", Size(sent_bytes), place.shown()));
    }
    let unread = unread.iter().map(|problem| chain(problem)).collect();
    let (place, quarantined) = (Some(place), Vec::new());
    Report { args, place, is_whole, problems, repaired, quarantined, lost, left, unread }.tell(cx)
}

/// Whether nothing is wrong any more, or nothing would be.
fn is_whole(run: Run, lost: &[Lost], left: &[Problem], can_read_all: bool) -> bool {
    let stays = |problem: &Problem| match run {
        Run::Real => true,
        Run::Dry => !repair::is_repairable(problem),
    };
    lost.is_empty() && can_read_all && !left.iter().any(stays)
}

/// Whether a problem is one of a pack.
fn is_of_pack(problem: &Problem) -> bool {
    matches!(
        problem,
        Problem::PackLost { .. }
            | Problem::PackLength { .. }
            | Problem::PackHash { .. }
            | Problem::Pack { .. }
            | Problem::Frame { .. }
    )
}

/// Says which sources failed.
fn tell_failed<'a>(sources: impl IntoIterator<Item = &'a Source<'a>>, cx: &Context) {
    for source in sources {
        if let Some(error) = source.failed() {
            let name = source.name();
            cx.ui().warning(format_args!("{name} was not asked any more: {}", chain(error)));
        }
    }
}

fn open_given(args: &RepairArgs, cx: &Context) -> Result<Named, CliError> {
    args.from.iter().map(|from| open(from, args, cx)).collect()
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
    let elsewhere = cx.open_objects(place, args.memory(), &args.limits)?;
    Ok((shown, Opened::Elsewhere(Box::new(elsewhere))))
}

/// Opens the remotes of the store. One that cannot be reached is passed over.
fn open_remotes(args: &RepairArgs, cx: &Context) -> Named {
    let names = cx.settings_here().map(|(settings, _)| settings.remotes()).unwrap_or_default();
    let mut opened = Named::new();
    for name in names {
        let place = cx.remote(Some(&*name).into());
        if place.as_ref().is_ok_and(|place| !place.is_trusted()) {
            cx.ui().warning(format_args!(
                "{name} is passed over: the settings of this store are not trusted (`snap config \
                 trust`)"
            ));
            continue;
        }
        let there = place.and_then(|place| cx.open_objects(place, args.memory(), &args.limits));
        match there {
            Ok(there) => opened.push((name, Opened::Elsewhere(Box::new(there)))),
            Err(error) => {
                cx.ui().warning(format_args!("{name} is passed over: {}", chain(&error)));
            }
        }
    }
    opened
}

fn origin(from: &Origin) -> String {
    match from {
        Origin::Here => "its sound parts".to_owned(),
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

/// How much that is, such as `1 pack and 3 objects`.
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

fn source_json(from: &Origin) -> Value {
    match from {
        Origin::Here => json!({ "kind": "here" }),
        Origin::Source(name) => json!({ "kind": "source", "name": name }),
        Origin::File(path) => {
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
        Repaired::Salvaged { pack, objects } => {
            ("part of a pack", pack.to_string(), Some(*objects), vec![source_json(&Origin::Here)])
        }
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
    /// Tells what was repaired and what stays lost.
    fn tell(&self, cx: &Context) -> Result<Done, CliError> {
        let mut out = cx.ui().out();
        match cx.ui().is_json() {
            true => self.write_json(&mut out)?,
            false => self.write_text(&mut out, cx)?,
        }
        out.finish()?;
        self.summarize(cx);
        Ok(if self.is_whole { Done::Well } else { Done::Damaged })
    }

    /// Problems that stay and that no lost object stands for.
    fn problems_left(&self) -> Vec<String> {
        let is_told = |id: &ObjectId| self.lost.iter().any(|lost| lost.id == *id);
        let stays = |problem: &&Problem| match problem {
            problem if !repair::is_repairable(problem) => true,
            _ if self.args.dry_run => false,
            Problem::Object { id, .. } | Problem::Size { id, .. } | Problem::Chunks { id, .. } => {
                !is_told(id)
            }
            // The pack is damaged because of what is lost.
            problem => self.lost.is_empty() || !is_of_pack(problem),
        };
        let problems = self.left.problems.iter().filter(stays);
        self.unread.iter().cloned().chain(problems.map(|problem| chain(problem))).collect()
    }

    fn write_text(&self, out: &mut Out, cx: &Context) -> io::Result<()> {
        let would = if self.args.dry_run { "would repair" } else { "repaired" };
        for repaired in &self.repaired {
            writeln!(out, "{would}: {}", line(repaired))?;
        }
        for problem in self.problems_left() {
            writeln!(out, "damaged: {}", text::line(problem.as_bytes()))?;
        }
        for Lost { id, kind } in &self.lost {
            writeln!(out, "lost: {} {id}", kind.noun())?;
        }
        match self.lost.is_empty() {
            true => Ok(()),
            false => write_touched(out, &self.left.touched, cx),
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
        for Lost { id, kind } in &self.lost {
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
            "more_paths": self.left.touched.more_paths,
        }))
    }

    fn summarize(&self, cx: &Context) {
        let (ui, is_dry) = (cx.ui(), self.args.dry_run);
        let place = self.place.as_ref().map(|place| text::word(place.shown().as_bytes()));
        let at = place.as_ref().map(|place| format!(" {place}")).unwrap_or_default();
        if self.problems == 0 {
            let more = if self.args.data { "" } else { "; --data reads all contents, too" };
            return ui.status(format_args!("Nothing to repair: no damage found{more}"));
        }
        let things = things(&self.repaired);
        match is_dry {
            true => ui.status(format_args!("Would repair {things}; nothing was changed")),
            false => ui.status(format_args!("Repaired {things}")),
        }
        if !self.quarantined.is_empty() {
            let packs = size::count(self.quarantined.len() as u64, "damaged pack");
            ui.status(format_args!("Moved {packs} to quarantine/ in the store"));
        }
        match (self.is_whole, is_dry) {
            (true, true) => ui.status(format_args!("`snap repair{at}` does it")),
            (true, false) if self.args.data => {
                ui.status(format_args!("Everything is as it should be"));
            }
            (true, false) => ui.status(format_args!(
                "No known damage is left; `snap verify{at} --data` reads all contents, too"
            )),
            (false, _) if self.lost.is_empty() => ui.warning(format_args!(
                "damage is left that is not of objects; `snap verify{at}` says what to do"
            )),
            (false, _) => {
                let lost = size::count(self.lost.len() as u64, "object");
                ui.warning(format_args!("{lost} cannot be found anywhere that was asked"));
                let commit = match place {
                    Some(_) => "",
                    None => "; `snap commit` stores again what the files still have",
                };
                ui.status(format_args!("`snap repair{at} --from PLACE` asks another copy{commit}"));
            }
        }
    }
}
