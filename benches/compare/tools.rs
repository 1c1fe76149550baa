//! The backup tools: snap, and the peers that it is compared with.
//!
//! All tools read the same data folder. Each writes only below its own folder, including caches and
//! settings. For every tool, the store is set up outside the timed part.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
};

use fs_err as fs;
use snap_testkit::compare::Options;

use crate::{
    Result,
    measure::Call,
    place::{copy, count, empty, remove},
};

/// A tool that can save a folder and restore it.
pub(crate) trait Tool {
    /// Returns its name in the table.
    fn name(&self) -> &'static str;
    /// Resets the store to an empty one.
    fn fresh(&self) -> Result<()>;
    /// Returns the call that saves the data folder into the store.
    fn save(&self) -> Call;
    /// Returns the call that restores the last saved data into `into`, an empty folder.
    fn restore(&self, into: &Path) -> Call;
    /// Returns the properties of a tree that this tool claims to preserve.
    fn keeps(&self) -> Options;
    /// Returns the size of the saved data and of the whole store, in bytes.
    fn stored_bytes(&self) -> Result<(u64, u64)>;
}

/// Names of the peers that [`peer`] knows, each with the programs that it needs.
pub(crate) const PEERS: [(&str, &[&str]); 5] = [
    ("tar+zstd", &["tar", "zstd"]),
    ("git", &["git"]),
    ("cp -a", &["cp"]),
    ("restic", &["restic"]),
    ("borg", &["borg"]),
];

/// Returns the peer called `name`, which saves `data` and keeps its own files in `home`.
pub(crate) fn peer(name: &str, data: &Path, home: PathBuf) -> Option<Box<dyn Tool>> {
    let data = data.to_owned();
    match name {
        "tar+zstd" => Some(Box::new(Tar { data, home })),
        "git" => Some(Box::new(Git { data, home })),
        "cp -a" => Some(Box::new(Cp { data })),
        "restic" => Some(Box::new(Restic { data, home })),
        "borg" => Some(Box::new(Borg { data, home, saved: Cell::new(0) })),
        _ => None,
    }
}

/// The options for a peer that preserves almost everything: the saved folder's own metadata is not
/// compared, and holes may be filled.
fn most() -> Options {
    Options { root: false, sparse: false, ..Options::default() }
}

/// snap, with its store outside the data.
#[derive(Debug)]
pub(crate) struct Snap {
    pub(crate) program: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) store: PathBuf,
}

impl Snap {
    pub(crate) fn call(&self) -> Call {
        Call::new(&self.program).args(["-q", "--store"]).arg(&self.store)
    }

    /// Returns the number of files in `objects/`, and their total size in bytes.
    pub(crate) fn objects(&self) -> Result<(u64, u64)> {
        count(&self.store.join("objects"))
    }

    /// Makes the store a copy of the store `from`. snap trusts neither the index nor the packs of a
    /// copied store, so this hashes them again.
    pub(crate) fn put_back(&self, from: &Path) -> Result<()> {
        copy(from, &self.store)?;
        self.call().args(["verify", "--data"]).run()
    }
}

impl Tool for Snap {
    fn name(&self) -> &'static str {
        "snap"
    }
    fn fresh(&self) -> Result<()> {
        remove(&self.store)?;
        self.call().arg("init").run()
    }
    fn save(&self) -> Call {
        self.call().arg("commit").arg(&self.data).args(["-m", "compare"])
    }
    fn restore(&self, into: &Path) -> Call {
        self.call().args(["restore", "latest"]).arg(into)
    }
    fn keeps(&self) -> Options {
        Options { root: false, ..Options::default() }
    }
    fn stored_bytes(&self) -> Result<(u64, u64)> {
        Ok((self.objects()?.1, count(&self.store)?.1))
    }
}

struct Tar {
    data: PathBuf,
    home: PathBuf,
}

impl Tar {
    fn archive(&self) -> PathBuf {
        self.home.join("data.tar.zst")
    }
}

impl Tool for Tar {
    fn name(&self) -> &'static str {
        "tar+zstd"
    }
    fn fresh(&self) -> Result<()> {
        empty(&self.home)
    }
    fn save(&self) -> Call {
        Call::shell(r#"tar -cf - -C "$1" . | zstd -q -3 -T0 -f -o "$2""#)
            .arg(&self.data)
            .arg(self.archive())
    }
    fn restore(&self, into: &Path) -> Call {
        Call::shell(r#"zstd -q -dc "$1" | tar -xpf - -C "$2""#).arg(self.archive()).arg(into)
    }
    fn keeps(&self) -> Options {
        // The default format of tar has times in whole seconds.
        Options { times: false, attributes: false, ..most() }
    }
    fn stored_bytes(&self) -> Result<(u64, u64)> {
        let bytes = fs::metadata(self.archive())?.len();
        Ok((bytes, bytes))
    }
}

/// git, with its folder outside the data, so that the data need not be copied.
pub(crate) struct Git {
    pub(crate) data: PathBuf,
    pub(crate) home: PathBuf,
}

impl Git {
    /// Returns a call with the common settings; `$G` in `line` is git for the data folder.
    pub(crate) fn shell(&self, line: &str) -> Call {
        let line = format!(r#"set -e; G="git -c gc.auto=0 -c core.autocrlf=false"; {line}"#);
        let mut call = Call::shell(&line).dir(&self.data);
        let vars = [("NAME", "compare"), ("EMAIL", "compare@example.org")];
        for role in ["AUTHOR", "COMMITTER"] {
            for (what, value) in vars {
                call = call.var(&format!("GIT_{role}_{what}"), value);
            }
        }
        call.var("GIT_CONFIG_GLOBAL", "/dev/null")
            .var("GIT_CONFIG_NOSYSTEM", "1")
            .var("GIT_DIR", self.home.join("git"))
            .var("GIT_WORK_TREE", &self.data)
    }
}

impl Tool for Git {
    fn name(&self) -> &'static str {
        "git"
    }
    fn fresh(&self) -> Result<()> {
        empty(&self.home)?;
        self.shell("$G init -q").run()?;
        // A .gitattributes in the data must not change any bytes.
        let attributes = "* -text -filter -ident -working-tree-encoding\n";
        fs::create_dir_all(self.home.join("git/info"))?;
        Ok(fs::write(self.home.join("git/info/attributes"), attributes)?)
    }
    fn save(&self) -> Call {
        // An empty commit exits with code 1. `-f` also adds ignored files.
        self.shell("$G add -A -f; $G commit -q -m compare").or_code(1)
    }
    fn restore(&self, into: &Path) -> Call {
        // Uses a separate index, because the other one knows the times of the data.
        let index = self.home.join("restore-index");
        self.shell(r#"rm -f "$GIT_INDEX_FILE"; $G checkout -q -f HEAD -- ."#)
            .dir(into)
            .var("GIT_WORK_TREE", into)
            .var("GIT_INDEX_FILE", index)
    }
    fn keeps(&self) -> Options {
        Options::content_only()
    }
    fn stored_bytes(&self) -> Result<(u64, u64)> {
        let git = self.home.join("git");
        Ok((count(&git.join("objects"))?.1, count(&git)?.1))
    }
}

/// `cp -a`, which has no store: its restore copies the data itself.
struct Cp {
    data: PathBuf,
}

impl Tool for Cp {
    fn name(&self) -> &'static str {
        "cp -a"
    }
    fn fresh(&self) -> Result<()> {
        Ok(())
    }
    fn save(&self) -> Call {
        Call::new("true")
    }
    fn restore(&self, into: &Path) -> Call {
        Call::new("cp").arg("-a").arg(self.data.join(".")).arg(into)
    }
    fn keeps(&self) -> Options {
        Options::default()
    }
    fn stored_bytes(&self) -> Result<(u64, u64)> {
        count(&self.data)
    }
}

/// restic, with a repository in a folder.
pub(crate) struct Restic {
    pub(crate) data: PathBuf,
    pub(crate) home: PathBuf,
}

impl Restic {
    pub(crate) fn repository(&self) -> PathBuf {
        self.home.join("repository")
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.home.join("cache")
    }

    pub(crate) fn call(&self) -> Call {
        Call::new("restic")
            .arg("-q")
            .var("RESTIC_PASSWORD", "compare")
            .var("RESTIC_REPOSITORY", self.repository())
            .var("RESTIC_CACHE_DIR", self.cache())
    }
}

impl Tool for Restic {
    fn name(&self) -> &'static str {
        "restic"
    }
    fn fresh(&self) -> Result<()> {
        empty(&self.home)?;
        self.call().arg("init").run()
    }
    fn save(&self) -> Call {
        self.call().args(["backup", "."]).dir(&self.data)
    }
    fn restore(&self, into: &Path) -> Call {
        self.call().args(["restore", "latest", "--target"]).arg(into)
    }
    fn keeps(&self) -> Options {
        most()
    }
    fn stored_bytes(&self) -> Result<(u64, u64)> {
        let bytes = count(&self.repository())?.1;
        Ok((bytes, bytes))
    }
}

struct Borg {
    data: PathBuf,
    home: PathBuf,
    /// Number of saves so far; every archive needs a unique name.
    saved: Cell<u32>,
}

impl Borg {
    fn call(&self) -> Call {
        Call::new("borg")
            .var("BORG_BASE_DIR", self.home.join("base"))
            .var("BORG_REPO", self.home.join("repository"))
            .var("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes")
            .var("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes")
    }
}

impl Tool for Borg {
    fn name(&self) -> &'static str {
        "borg"
    }
    fn fresh(&self) -> Result<()> {
        empty(&self.home)?;
        self.call().args(["init", "--encryption", "none"]).run()
    }
    fn save(&self) -> Call {
        self.saved.set(self.saved.get() + 1);
        let name = format!("::{}", self.saved.get());
        self.call().args(["create", "--compression", "zstd,3", &name, "."]).dir(&self.data)
    }
    fn restore(&self, into: &Path) -> Call {
        self.call().args(["extract", &format!("::{}", self.saved.get())]).dir(into)
    }
    fn keeps(&self) -> Options {
        most()
    }
    fn stored_bytes(&self) -> Result<(u64, u64)> {
        let bytes = count(&self.home.join("repository"))?.1;
        Ok((bytes, bytes))
    }
}

#[cfg(test)]
mod tests {
    use snap_testkit::{compare::compare, trees};

    use super::*;
    use crate::{measure::is_installed, place::Place};

    #[test]
    fn every_peer_that_is_installed_gives_back_what_it_saved_last() {
        let place = Place::new(&std::env::temp_dir()).unwrap();
        let data = place.join("data");
        trees::text_files(&data, 120, 100).unwrap();
        for (name, programs) in PEERS {
            if !programs.iter().all(|program| is_installed(program)) {
                continue;
            }
            let tool = peer(name, &data, place.join(name)).unwrap();
            tool.fresh().unwrap();
            for version in 0..2 {
                trees::change_text_files(&data, 120, 7, version).unwrap();
                tool.save().run().unwrap();
            }
            tool.save().run().unwrap();
            let into = place.join("into");
            empty(&into).unwrap();
            tool.restore(&into).run().unwrap();
            assert_eq!(compare(&data, &into, &tool.keeps()), Vec::<String>::new(), "{name}");
            assert!(tool.stored_bytes().unwrap().0 > 0, "{name}");
        }
    }

    #[test]
    fn every_listed_peer_is_known() {
        for (name, _) in PEERS {
            let tool = peer(name, Path::new("data"), PathBuf::from("home")).unwrap();
            assert_eq!(tool.name(), name);
        }
        assert!(peer("abacus", Path::new("data"), PathBuf::from("home")).is_none());
    }
}
