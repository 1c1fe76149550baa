//! The programs that save a folder in a bucket: snap, and the peers that it is compared with.
//!
//! All of them read the same data folder and reach the bucket in the same way. Each writes only
//! below its own folder, including caches.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use fs_err as fs;
use serde_json::Value;
use snap_testkit::compare::Options;
use walkdir::WalkDir;

use crate::{
    Result,
    bucket::Bucket,
    measure::Call,
    place::{copy, empty, remove},
    tools::{self, Snap},
};

/// A program that saves a folder in a bucket.
pub(crate) trait Keeper {
    /// Returns its name in the table.
    fn name(&self) -> &'static str;
    /// Starts with an unused prefix and without local caches.
    fn fresh(&self) -> Result<()>;
    /// Prepares a save, outside the timed part.
    fn ready(&self) -> Result<()> {
        Ok(())
    }
    /// Returns the call that saves the folder for the first time, including the set-up.
    fn first(&self) -> Call;
    /// Returns the call that saves it again.
    fn again(&self) -> Call;
    /// Removes the local cache for reading from the bucket; the cache for saving stays.
    fn forget(&self) -> Result<()>;
    /// Returns the call that restores the last saved data into `into`, an empty folder.
    fn restore(&self, into: &Path) -> Call;
    /// Returns the call that writes one file, given by its path in the folder, to the file `into`.
    fn cat(&self, path: &Path, into: &Path) -> Call;
    /// Returns the properties of a tree that it claims to preserve.
    fn keeps(&self) -> Options;
    /// Returns the bucket and the prefix in which it saves.
    fn prefix(&self) -> String;
    /// Returns the number of requests that its last call reported, if it reports that.
    fn told(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}

/// Names of the peers that [`keeper`] knows; their programs have the same names.
pub(crate) const KEEPERS: [&str; 2] = ["restic", "rclone"];

/// Returns the peer called `name`, which saves `data` and keeps its own files in `home`.
pub(crate) fn keeper<'b>(
    name: &str,
    bucket: &'b Bucket,
    data: &Path,
    home: PathBuf,
) -> Option<Box<dyn Keeper + 'b>> {
    let at = At { bucket, data: data.to_owned(), home, prefix: RefCell::default() };
    match name {
        "restic" => Some(Box::new(Restic(at))),
        "rclone" => Some(Box::new(Rclone(at))),
        _ => None,
    }
}

/// The environment of a keeper.
#[derive(Debug)]
pub(crate) struct At<'b> {
    pub(crate) bucket: &'b Bucket,
    pub(crate) data: PathBuf,
    /// The folder for its own files.
    pub(crate) home: PathBuf,
    /// The bucket and the prefix.
    pub(crate) prefix: RefCell<String>,
}

impl At<'_> {
    fn fresh(&self) -> Result<()> {
        self.prefix.replace(self.bucket.fresh());
        empty(&self.home)
    }

    fn prefix(&self) -> String {
        self.prefix.borrow().clone()
    }
}

/// Selects whether snap's time includes the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    /// The commit is not timed: only the push is measured.
    Before,
    /// The commit is part of the timed call, as with the peers.
    Within,
}

/// snap, with its store outside the data.
#[derive(Debug)]
pub(crate) struct SnapKeeper<'b> {
    program: PathBuf,
    at: At<'b>,
    commit: Commit,
    /// The file to which the last call printed a file's content, followed by its record.
    printed: RefCell<Option<PathBuf>>,
}

impl<'b> SnapKeeper<'b> {
    pub(crate) fn new(program: &Path, at: At<'b>, commit: Commit) -> Self {
        Self { program: program.to_owned(), at, commit, printed: RefCell::default() }
    }

    /// Starts with a copy of the store `from`, which is pushed to an unused prefix, and without
    /// caches.
    pub(crate) fn fresh_with(&self, from: &Path) -> Result<()> {
        self.at.fresh()?;
        let (program, data) = (self.program.clone(), self.at.data.clone());
        Snap { program, data, store: self.store() }.put_back(from)?;
        self.shell(r#"snap remote add origin "$2"; snap push"#).run()
    }

    fn store(&self) -> PathBuf {
        self.at.home.join("store")
    }

    /// Adds the environment that snap needs to find the bucket, and nothing else.
    fn call(&self, program: Call) -> Call {
        let own = [("HOME", "home"), ("XDG_CONFIG_HOME", "config"), ("XDG_CACHE_HOME", CACHE)];
        let call = program.vars(self.at.bucket.environment());
        own.into_iter().fold(call, |call, (name, folder)| call.var(name, self.at.home.join(folder)))
    }

    /// Makes a call of a shell command, in which `snap` is snap with its store, `$1` the data and
    /// `$2` the location; arguments that are added are `$3`, `$4` …
    pub(crate) fn shell(&self, line: &str) -> Call {
        let snap = r#"set -e; snap() { "$SNAP" -q --store "$STORE" "$@"; };"#;
        self.call(Call::shell(&format!("{snap} {line}")))
            .arg(&self.at.data)
            .arg(self.location())
            .var("SNAP", &self.program)
            .var("STORE", self.store())
            .into_file(&self.report())
    }

    /// Makes a call of snap without a store.
    fn plain(&self) -> Call {
        self.call(Call::new(&self.program)).into_file(&self.report())
    }

    fn location(&self) -> String {
        format!("s3://{}", self.at.prefix())
    }

    /// Returns the path of the JSON record of the last call.
    fn report(&self) -> PathBuf {
        self.at.home.join("report.json")
    }
}

/// Folder for the cache of the bucket when there is no store.
const CACHE: &str = "cache";

/// Folder for restic's cache for saving.
const WRITER_CACHE: &str = "cache of the writer";

/// Commits without output.
const COMMIT: &str = r#"snap commit "$1" -m compare > /dev/null;"#;

/// Pushes, and prints the statistics as JSON.
const PUSH: &str = "snap --json push --stats";

impl Keeper for SnapKeeper<'_> {
    fn name(&self) -> &'static str {
        match self.commit {
            Commit::Before => "snap",
            Commit::Within => "snap with its commit",
        }
    }
    fn fresh(&self) -> Result<()> {
        self.at.fresh()?;
        match self.commit {
            Commit::Before => self.shell(&format!("snap init; {COMMIT}")).run(),
            Commit::Within => Ok(()),
        }
    }
    fn ready(&self) -> Result<()> {
        match self.commit {
            Commit::Before => self.shell(COMMIT).run(),
            Commit::Within => Ok(()),
        }
    }
    fn first(&self) -> Call {
        let before = match self.commit {
            Commit::Before => String::new(),
            Commit::Within => format!("snap init > /dev/null; {COMMIT}"),
        };
        self.shell(&format!(r#"{before} snap remote add origin "$2" > /dev/null; {PUSH}"#))
    }
    fn again(&self) -> Call {
        match self.commit {
            Commit::Before => self.shell(PUSH),
            Commit::Within => self.shell(&format!("{COMMIT} {PUSH}")),
        }
    }
    fn forget(&self) -> Result<()> {
        remove(&self.at.home.join(CACHE))
    }
    fn restore(&self, into: &Path) -> Call {
        self.plain().args(["-q", "--json", "clone", "--stats"]).arg(self.location()).arg(into)
    }
    fn cat(&self, path: &Path, into: &Path) -> Call {
        let place = format!("{}#main:{}", self.location(), path.display());
        self.printed.replace(Some(into.to_owned()));
        self.plain().args(["-q", "--json", "--stats", "cat"]).arg(place).into_file(into)
    }
    fn keeps(&self) -> Options {
        // A clone contains its store.
        Options { root: false, skip: vec![".snap".into()], ..Options::default() }
    }
    fn prefix(&self) -> String {
        self.at.prefix()
    }
    fn told(&self) -> Result<Option<u64>> {
        let path = self.printed.take().unwrap_or_else(|| self.report());
        let printed = fs::read(&path)?;
        let (content, requests) = record_of(&printed)
            .ok_or_else(|| format!("{} does not contain the number of requests", path.display()))?;
        fs::write(&path, content)?;
        Ok(Some(requests))
    }
}

/// Splits the output before its last record. Returns that part, and the number of requests in the
/// record.
fn record_of(printed: &[u8]) -> Option<(&[u8], u64)> {
    const START: &[u8] = br#"{"version""#;
    let start = printed.windows(START.len()).rposition(|bytes| bytes == START)?;
    let (content, record) = printed.split_at(start);
    let record: Value = serde_json::from_slice(record).ok()?;
    Some((content, record.get("stats")?.get("requests")?.as_u64()?))
}

/// restic, with a repository in a bucket.
pub(crate) struct Restic<'b>(pub(crate) At<'b>);

impl Restic<'_> {
    /// Starts with a copy of the local repository `from` at an unused prefix, with its cache for
    /// saving. restic uses the same paths in a folder and in a bucket.
    pub(crate) fn fresh_with(&self, from: &tools::Restic) -> Result<()> {
        self.0.fresh()?;
        copy(&from.cache(), &self.0.home.join(WRITER_CACHE))?;
        let (repository, prefix) = (from.repository(), self.0.prefix());
        for entry in WalkDir::new(&repository) {
            let entry = entry?;
            if entry.file_type().is_file() {
                let key = entry.path().strip_prefix(&repository)?.to_string_lossy();
                self.0.bucket.put(&prefix, &key, fs::read(entry.path())?.into())?;
            }
        }
        Ok(())
    }

    /// Makes a call with the cache for saving; reading uses another cache.
    pub(crate) fn shell(&self, line: &str) -> Call {
        let At { bucket, data, home, .. } = &self.0;
        Call::shell(line)
            .dir(data)
            .vars(bucket.environment())
            .var("RESTIC_PASSWORD", "compare")
            .var("RESTIC_REPOSITORY", format!("s3:{}/{}", bucket.endpoint(), self.0.prefix()))
            .var("RESTIC_CACHE_DIR", home.join(WRITER_CACHE))
    }

    fn read(&self, line: &str) -> Call {
        self.shell(line).var("RESTIC_CACHE_DIR", self.0.home.join(CACHE))
    }
}

impl Keeper for Restic<'_> {
    fn name(&self) -> &'static str {
        "restic"
    }
    fn fresh(&self) -> Result<()> {
        self.0.fresh()
    }
    fn first(&self) -> Call {
        self.shell("restic -q init && restic -q backup .")
    }
    fn again(&self) -> Call {
        self.shell("restic -q backup .")
    }
    fn forget(&self) -> Result<()> {
        remove(&self.0.home.join(CACHE))
    }
    fn restore(&self, into: &Path) -> Call {
        self.read(r#"restic -q restore latest --target "$1""#).arg(into)
    }
    fn cat(&self, path: &Path, into: &Path) -> Call {
        self.read(r#"restic -q dump latest "/$1""#).arg(path).into_file(into)
    }
    fn keeps(&self) -> Options {
        Options { root: false, sparse: false, ..Options::default() }
    }
    fn prefix(&self) -> String {
        self.0.prefix()
    }
}

/// rclone, which copies files unchanged and has no snapshots.
struct Rclone<'b>(At<'b>);

impl Rclone<'_> {
    fn call(&self) -> Call {
        let vars = [
            ("CONFIG", ""),
            ("CONFIG_B_TYPE", "s3"),
            ("CONFIG_B_PROVIDER", "Other"),
            ("CONFIG_B_ENV_AUTH", "true"),
            ("CONFIG_B_FORCE_PATH_STYLE", "true"),
            ("CONFIG_B_LIST_VERSION", "2"),
        ];
        let call = Call::new("rclone").vars(self.0.bucket.environment());
        let call = vars
            .into_iter()
            .fold(call, |call, (name, value)| call.var(&format!("RCLONE_{name}"), value));
        call.var("RCLONE_CONFIG_B_ENDPOINT", self.0.bucket.endpoint())
    }

    fn place(&self) -> String {
        format!("b:{}", self.0.prefix())
    }
}

impl Keeper for Rclone<'_> {
    fn name(&self) -> &'static str {
        "rclone"
    }
    fn fresh(&self) -> Result<()> {
        self.0.fresh()
    }
    fn first(&self) -> Call {
        // Without this option rclone copies an object onto itself to change its time, which some
        // servers do not support.
        let call = self.call().args(["copy", "--no-update-modtime"]);
        call.arg(&self.0.data).arg(self.place())
    }
    fn again(&self) -> Call {
        self.first()
    }
    fn forget(&self) -> Result<()> {
        Ok(())
    }
    fn restore(&self, into: &Path) -> Call {
        self.call().arg("copy").arg(self.place()).arg(into)
    }
    fn cat(&self, path: &Path, into: &Path) -> Call {
        let place = format!("{}/{}", self.place(), path.display());
        self.call().arg("cat").arg(place).into_file(into)
    }
    fn keeps(&self) -> Options {
        Options { times: false, ..Options::content_only() }
    }
    fn prefix(&self) -> String {
        self.0.prefix()
    }
}

#[cfg(test)]
mod tests {
    use snap_testkit::{compare::compare, trees};

    use super::*;
    use crate::{
        bucket::{Server, Way},
        measure::is_installed,
        place::Place,
        tools::Tool as _,
    };

    #[test]
    fn every_peer_that_is_installed_gives_back_what_it_saved_last() {
        let place = Place::new(&std::env::temp_dir()).unwrap();
        let bucket = Bucket::open(Server::Inside, Way::Counted).unwrap();
        let data = place.join("data");
        trees::text_files(&data, 12, 100).unwrap();
        for name in KEEPERS.into_iter().filter(|name| is_installed(name)) {
            let keeper = keeper(name, &bucket, &data, place.join(name)).unwrap();
            keeper.fresh().unwrap();
            keeper.first().run().unwrap();
            trees::change_text_files(&data, 12, 7, 1).unwrap();
            keeper.again().run().unwrap();
            keeper.forget().unwrap();
            let (into, file) = (place.join("into"), place.join("file"));
            empty(&into).unwrap();
            keeper.restore(&into).run().unwrap();
            assert_eq!(compare(&data, &into, &keeper.keeps()), Vec::<String>::new(), "{name}");
            let path = trees::text_file_path(Path::new(""), 7);
            keeper.cat(&path, &file).run().unwrap();
            assert_eq!(fs::read(&file).unwrap(), fs::read(data.join(&path)).unwrap(), "{name}");
            assert!(bucket.requests().unwrap() > 0, "{name}");
            bucket.forget(&keeper.prefix()).unwrap();
            keeper.forget().unwrap();
            // For rclone, a missing prefix is an empty folder.
            let is_gone = keeper.cat(&path, &file).run().is_err();
            assert!(is_gone || fs::read(&file).unwrap().is_empty(), "{name}");
        }
    }

    #[test]
    fn a_local_repository_of_restic_can_be_read_in_a_bucket() {
        if !is_installed("restic") {
            return;
        }
        let place = Place::new(&std::env::temp_dir()).unwrap();
        let bucket = Bucket::open(Server::Inside, Way::Counted).unwrap();
        let data = place.join("data");
        trees::text_files(&data, 12, 100).unwrap();
        let local = tools::Restic { data: data.clone(), home: place.join("local") };
        local.fresh().unwrap();
        local.save().run().unwrap();
        let (home, prefix) = (place.join("remote"), RefCell::default());
        let remote = Restic(At { bucket: &bucket, data: data.clone(), home, prefix });
        remote.fresh_with(&local).unwrap();
        let into = place.join("into");
        empty(&into).unwrap();
        remote.restore(&into).run().unwrap();
        assert_eq!(compare(&data, &into, &remote.keeps()), Vec::<String>::new());
    }

    #[test]
    fn every_listed_peer_is_known() {
        let bucket = Bucket::open(Server::Inside, Way::Direct).unwrap();
        for name in KEEPERS {
            let keeper = keeper(name, &bucket, Path::new("data"), "home".into()).unwrap();
            assert_eq!(keeper.name(), name);
        }
        assert!(keeper("abacus", &bucket, Path::new("data"), "home".into()).is_none());
    }

    #[test]
    fn a_record_is_told_from_what_was_printed_before() {
        let record = r#"{"version":1,"stats":{"requests":7}}"#;
        let printed = format!("some text {{}}{record}\n");
        assert_eq!(record_of(printed.as_bytes()), Some((&b"some text {}"[..], 7)));
        assert_eq!(record_of(format!("{record}\n{record}").as_bytes()).unwrap().1, 7);
        for none in ["", "text", r#"{"version":1}"#, r#"{"version":1,"stats":{"requests":7}"#] {
            assert_eq!(record_of(none.as_bytes()), None, "{none}");
        }
    }
}
