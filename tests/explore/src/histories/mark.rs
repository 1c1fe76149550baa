//! The independent mark: reads the refs of a store as plain files and each commit with its content,
//! and compares them with the model. Also finds contents in the files of a store.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

use fs_err as fs;
use snap_core::{base::id::BlobId, format::forgotten::ForgottenTable};

use crate::{
    histories::{
        model::{Commit, Files, Model, Store, without},
        operation::{filling, is_partial},
    },
    search::Fault,
    sequences::{
        files::{Kind, Tree},
        model::Id,
        stored::{Part, Reader},
    },
};

/// Number of contents.
pub(crate) const CONTENTS: u64 = 10;

/// The contents by their ids.
pub(crate) struct Contents(HashMap<BlobId, u64>);

impl Contents {
    pub(crate) fn new() -> Self {
        Self((0..CONTENTS).map(|n| (BlobId::of(&filling(n).bytes()), n)).collect())
    }

    /// Returns the files of a tree; `None` if one of them has another content.
    pub(crate) fn files(&self, tree: &Tree) -> Option<Files> {
        let files = tree.iter().filter_map(|(path, node)| match &node.kind {
            Kind::File(_, id) => Some(self.0.get(id).map(|number| (path.clone(), *number))),
            _ => None,
        });
        files.collect()
    }

    /// Returns the contents that are in a file below a folder. Random bytes are stored as they are.
    pub(crate) fn inside(dir: &Path) -> BTreeSet<u64> {
        const AT: usize = 200;
        let words: HashMap<Vec<u8>, u64> =
            (0..CONTENTS).map(|n| (filling(n).bytes()[AT..AT + 8].to_vec(), n)).collect();
        let mut found = BTreeSet::new();
        for path in files_below(dir) {
            let bytes = fs::read(path).unwrap_or_default();
            found.extend(bytes.windows(8).filter_map(|word| words.get(word)));
        }
        found
    }
}

/// Lists the files below a folder.
fn files_below(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files_below(&path)),
            path => found.push(path),
        }
    }
    found
}

/// Reads the refs of a store: branches, tags, remote-tracking branches and a detached `HEAD`.
pub(crate) fn refs(dir: &Path) -> BTreeMap<String, Id> {
    let mut files = files_below(&dir.join("refs"));
    files.push(dir.join("HEAD"));
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        let id = text.lines().next()?;
        let is_hex = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
        // A deleted ref of a remote has zeros.
        let is_id = is_hex && id.bytes().any(|b| b != b'0');
        let name = path.strip_prefix(dir).ok()?.to_str()?.to_owned();
        is_id.then(|| (name, id.to_owned()))
    };
    files.into_iter().filter_map(read).collect()
}

/// Returns true if a folder has a store that is completely created. A command that is halted or was
/// killed may have left another one.
pub(crate) fn is_complete(dir: &Path) -> bool {
    ["config.toml", "HEAD", "objects"].iter().all(|name| dir.join(name).exists())
}

/// Reads the table of forgotten commits.
pub(crate) fn forgotten(dir: &Path) -> BTreeMap<Id, i64> {
    let Ok(bytes) = fs::read(dir.join("forgotten")) else { return BTreeMap::new() };
    let table = ForgottenTable::decode(&bytes).expect("a table that the program wrote");
    table.commits().map(|(id, time)| (id.to_string(), time.secs)).collect()
}

/// The contents that a commit with a message may have, apart from what rewrites removed.
pub(crate) type Pending = BTreeMap<String, Vec<Files>>;

/// Adds the unknown commits that the refs of a store reach to the model.
fn learn(
    reader: &mut Reader,
    model: &mut Model,
    refs: &BTreeMap<String, Id>,
    contents: &Contents,
    pending: &Pending,
) -> Result<(), Fault> {
    let mut open: Vec<Id> = refs.values().cloned().collect();
    while let Some(id) = open.pop() {
        if model.commits.contains_key(&id) {
            continue;
        }
        let (Some((parents, message)), Some(part)) =
            (reader.parents_and_message(&id), reader.commit(&id))
        else {
            continue;
        };
        let known = model.commits.values().filter(|commit| commit.message == message);
        let known =
            known.map(|commit| &commit.files).chain(pending.get(&message).into_iter().flatten());
        let mut candidates: Vec<Files> = known.cloned().collect();
        // The same message may have been rewritten several times.
        for pattern in &model.patterns {
            let more: Vec<Files> = candidates.iter().map(|files| without(files, pattern)).collect();
            candidates.extend(more);
        }
        let found = contents.files(&part.tree);
        let is_it = |files: &&Files| match &found {
            Some(found) if part.unreadable.is_empty() => found == *files,
            Some(found) => found.iter().all(|(path, number)| files.get(path) == Some(number)),
            None => false,
        };
        let Some(files) = candidates.iter().find(is_it).cloned() else {
            let detail = format!("{id:.12} ({message}) has {:?}", part.tree.keys());
            return Err(Fault::new("a commit has wrong files", detail));
        };
        open.extend(parents.iter().cloned());
        model.commits.insert(id, Commit { files, parents, message });
    }
    Ok(())
}

/// Returns true if a commit is complete in a store.
fn is_whole(
    name: &str,
    id: &Id,
    part: &Part,
    commit: &Commit,
    contents: &Contents,
) -> Result<bool, Fault> {
    let is_needed = |path: &str| name != "partial" || path.is_empty() || path.starts_with('d');
    if part.unreadable.iter().any(|path| is_needed(path)) {
        return Ok(false);
    }
    if contents.files(&part.tree).is_none_or(|found| found != commit.files) {
        let detail = format!("{id:.12} in {name} has {:?}, not {:?}", part.tree, commit.files);
        return Err(Fault::new("a commit has changed", detail));
    }
    Ok(true)
}

/// Compares a store after a step with the model: refs are at complete commits, and what was complete
/// and must stay is complete.
pub(crate) fn mark(
    model: &mut Model,
    (name, dir): (&'static str, &Path),
    contents: &Contents,
    pending: &Pending,
    (step, secs): (u64, i64),
) -> Result<(), Fault> {
    if !is_complete(dir) && !model.stores.contains_key(name) {
        return Ok(());
    }
    let told = |message: String| Fault::new("a store cannot be read", format!("{name}: {message}"));
    // The refs are read first: a halted command may have moved others by the time of the copy.
    let refs = refs(dir);
    let mut reader = Reader::open(dir).map_err(told)?;
    learn(&mut reader, model, &refs, contents, pending)?;
    let forgotten = forgotten(dir);
    model.ever_forgotten.extend(forgotten.keys().cloned());
    let mut store = std::mem::take(model.store(name));
    store.moved(&refs, step, secs);
    store.forgotten = forgotten;
    let mut whole = BTreeSet::new();
    for id in model.ever_reached(&store) {
        if let (Some(part), Some(commit)) = (reader.commit(&id), model.commits.get(&id))
            && is_whole(name, &id, &part, commit, contents)?
        {
            whole.insert(id);
        }
    }
    let checked = check(model, name, &store, &whole);
    store.whole = whole.difference(&store.going).cloned().collect();
    *model.store(name) = store;
    checked
}

fn check(
    model: &Model,
    name: &'static str,
    store: &Store,
    whole: &BTreeSet<Id>,
) -> Result<(), Fault> {
    if let Some(id) = store.whole.iter().find(|id| !whole.contains(*id)) {
        let message = model.commits.get(id).map(|commit| &commit.message);
        let values = store.values.iter().filter(|value| model.reach([&value.id]).contains(id));
        let values: Vec<_> = values.collect();
        let detail = format!("{id:.12} ({message:?}) in {name}, reached by {values:#?}");
        return Err(Fault::new("a commit is lost", detail));
    }
    if is_partial(name) {
        return Ok(());
    }
    for value in store.present() {
        // A rewrite makes a new link of a forgotten commit. Its id is unknown, because it cannot be
        // read.
        let may_lack = |id: &Id| match model.commits.contains_key(id) {
            true => model.ever_forgotten.contains(id),
            false => !model.ever_forgotten.is_empty() && !model.patterns.is_empty(),
        };
        let lacks = |id: &&Id| !whole.contains(*id) && !may_lack(id);
        let reached = model.reach([&value.id]);
        // A tracking branch may be at a commit that a rewrite replaced, until the collection.
        if value.is_own()
            && let Some(id) = reached.iter().find(lacks)
        {
            let detail = format!("{} of {name} reaches {id:.12}", value.name);
            return Err(Fault::new("a ref reaches an incomplete commit", detail));
        }
        if value.is_own() && !whole.contains(&value.id) {
            let detail = format!("{} of {name} is at {:.12}", value.name, value.id);
            return Err(Fault::new("a ref is at an incomplete commit", detail));
        }
    }
    Ok(())
}
