//! Makes stores with many packs or a long history, to measure how commands grow with them:
//!
//! ```text
//! cargo run --release --manifest-path benches/Cargo.toml --example large_stores -- packs DIR 10000
//! cargo run --release --manifest-path benches/Cargo.toml --example large_stores -- history DIR 100000
//! ```
//!
//! `packs`: each commit is a pack of its own. Nine tenths of the commits are on the branch `old`.
//! `history`: each commit has 1,110 folders in three levels, changes a file in one of them, and has
//! a file `secret` in each of the lowest folders. All commits are on `main`.

use std::{env, error::Error, path::Path};

use snap_core::{
    base::{
        id::{BlobId, CommitId, TreeId},
        name::EntryName,
        observe::Silent,
        time::Time,
    },
    disk::Disk,
    format::{
        commit::Commit,
        tree::{
            Entry, EntryKind, Metadata, Totals,
            split::{EncodedFolder, FolderEncoder},
        },
    },
    repo::{Config, RefLogMessage, RefName, Repo},
    store::{ObjectWriter, StoreError},
};

type Done<T> = Result<T, Box<dyn Error>>;

/// Folders in a folder.
const FOLDERS: usize = 10;

fn file(writer: &ObjectWriter<'_>, name: &str, text: &str) -> Done<(Entry, Totals)> {
    let id = BlobId::of(text.as_bytes());
    writer.add_blob(0, id, text.as_bytes())?;
    let kind = EntryKind::File { size: text.len() as u64, id: id.into() };
    Ok((entry(name, kind)?, Totals::default()))
}

fn entry(name: &str, kind: EntryKind) -> Done<Entry> {
    let mtime = Some(Time { secs: 1_700_000_000, nanos: 0 });
    let metadata = Metadata { mode: 0o644, mtime, ..Metadata::default() };
    Ok(Entry { name: EntryName::new(name.as_bytes())?, kind, metadata })
}

fn folder(writer: &ObjectWriter<'_>, entries: Vec<(Entry, Totals)>) -> Done<EncodedFolder> {
    let mut encoder = FolderEncoder::new();
    let mut put = |id: TreeId, bytes: Vec<u8>| writer.add_tree(id, &bytes);
    for (entry, below) in entries {
        encoder.push::<StoreError>(entry, &below, &mut put)?;
    }
    Ok(encoder.finish::<StoreError>(&mut put)?)
}

fn commit(
    writer: &ObjectWriter<'_>,
    tree: EncodedFolder,
    parent: Option<CommitId>,
    number: usize,
) -> Done<CommitId> {
    let commit = Commit {
        tree: tree.id,
        parents: parent.into_iter().collect(),
        time: Time { secs: 1_700_000_000 + 600 * number as i64, nanos: 0 },
        author: "Ann Example <ann@example.org>".into(),
        host: "laptop.example.org".into(),
        message: format!("Commit {number}\n\n{}", "It has a message of some lines.\n".repeat(8)),
        labels: [("env".to_owned(), format!("number {}", number % 7))].into(),
        root: None,
        totals: tree.totals,
        selection: Default::default(),
    };
    let bytes = commit.encode();
    let id = CommitId::of(&bytes);
    writer.add_commit(id, &bytes)?;
    Ok(id)
}

fn set(repo: &Repo, branch: &str, id: Option<CommitId>) -> Done<()> {
    let message =
        RefLogMessage { time: Time { secs: 1_700_000_000, nanos: 0 }, who: "Ann", reason: "made" };
    Ok(repo.refs().update(&RefName::branch(branch)?, None, id, &message)?)
}

fn make_packs(repo: &Repo, count: usize) -> Done<()> {
    for (branch, numbers) in [("main", 0..count / 10), ("old", count / 10..count)] {
        let mut tip = None;
        for number in numbers {
            let writer = ObjectWriter::new(repo.store(), 3, 1)?;
            let files = vec![file(&writer, "file", &format!("content {number}"))?];
            let tree = folder(&writer, files)?;
            tip = Some(commit(&writer, tree, tip, number)?);
            writer.finish()?;
        }
        set(repo, branch, tip)?;
    }
    Ok(())
}

fn make_history(repo: &Repo, count: usize) -> Done<()> {
    let name = |number: usize| format!("folder-{number}");
    let lowest = |writer: &ObjectWriter<'_>, at: usize, version: usize| -> Done<EncodedFolder> {
        let secret = file(writer, "secret", &format!("secret {at}"))?;
        folder(writer, vec![file(writer, "file", &format!("version {version} of {at}"))?, secret])
    };
    let above = |writer: &ObjectWriter<'_>, below: &[EncodedFolder]| -> Done<EncodedFolder> {
        let entries = below.iter().enumerate().map(|(number, below)| {
            let kind = EntryKind::Folder { id: below.id };
            Ok((entry(&name(number), kind)?, below.totals))
        });
        folder(writer, entries.collect::<Done<_>>()?)
    };
    let writer = ObjectWriter::new(repo.store(), 3, 1)?;
    let mut low = Vec::new();
    for at in 0..FOLDERS.pow(3) {
        low.push(lowest(&writer, at, 0)?);
    }
    let mut middle = Vec::new();
    for below in low.chunks(FOLDERS) {
        middle.push(above(&writer, below)?);
    }
    let mut high = Vec::new();
    for below in middle.chunks(FOLDERS) {
        high.push(above(&writer, below)?);
    }
    let mut tip = None;
    for number in 0..count {
        let at = number * 7919 % low.len();
        low[at] = lowest(&writer, at, number)?;
        let at = at / FOLDERS;
        middle[at] = above(&writer, &low[at * FOLDERS..][..FOLDERS])?;
        let at = at / FOLDERS;
        high[at] = above(&writer, &middle[at * FOLDERS..][..FOLDERS])?;
        let tree = above(&writer, &high)?;
        tip = Some(commit(&writer, tree, tip, number)?);
    }
    writer.finish()?;
    set(repo, "main", tip)
}

fn main() -> Done<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [kind, dir, count] = &args[..] else { return Err("KIND DIR COUNT".into()) };
    let (dir, disk) = (Path::new(dir), Disk::scratch());
    Repo::init(dir, &disk, &Config::default())?;
    let repo = Repo::open(dir, disk, &Silent)?;
    match kind.as_str() {
        "packs" => make_packs(&repo, count.parse()?),
        "history" => make_history(&repo, count.parse()?),
        _ => Err("KIND is `packs` or `history`".into()),
    }
}
