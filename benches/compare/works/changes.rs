//! Lists changes: between two commits, and between a commit and the folder.
//!
//! One line is added to every hundredth file. git compares the same files, with the index of its
//! last commit.

use std::path::{Path, PathBuf};

use fs_err::{self as fs, OpenOptions};
use walkdir::WalkDir;

use super::{Bench, Data, on_both};
use crate::{
    Result,
    contest::{Contestant, hold},
    measure::is_installed,
    table::{Row, Target},
    tools::{Git, Snap, Tool},
};

const MIB: f64 = 1_048_576.0;

/// One of this number of files is changed.
const CHANGED_EVERY: usize = 100;

pub(super) fn diff(bench: &Bench<'_>) -> Result<Vec<Row>> {
    on_both(bench, |data| {
        let (snap, git) = committed(bench, data)?;
        let changed = change(&data.dir)?;
        bench.place.settle();
        snap.save().run()?;
        git.iter().try_for_each(|git| git.save().run())?;
        let names = || snap.call().args(["diff", "--name-only", "HEAD~1", "HEAD"]);
        let ours = Contestant {
            check: Box::new(|| check(&names().output()?, &changed)),
            ..Contestant::plain("snap", || snap.call().args(["diff", "--stat", "HEAD~1", "HEAD"]))
        };
        let theirs = git.as_ref().map(|git| Contestant {
            check: Box::new(|| {
                let line = "$G -c core.quotePath=false diff --name-only HEAD~1 HEAD";
                check(&git.shell(line).output()?, &changed)
            }),
            ..Contestant::plain("git", || git.shell("$G diff --stat HEAD~1 HEAD"))
        });
        let work = format!("diff --stat, 1 % changed ({})", data.name);
        contest(bench, &work, ours, theirs)
    })
}

pub(super) fn status(bench: &Bench<'_>) -> Result<Vec<Row>> {
    on_both(bench, |data| {
        let (snap, git) = committed(bench, data)?;
        let changed = change(&data.dir)?;
        bench.place.settle();
        let status = || snap.call().args(["status", "--folder"]).arg(&data.dir);
        let ours = Contestant {
            check: Box::new(|| check(&status().arg("--short").output()?, &changed)),
            ..Contestant::plain("snap", status)
        };
        let theirs = git.as_ref().map(|git| Contestant {
            check: Box::new(|| {
                let line = "$G -c core.quotePath=false status --short";
                check(&git.shell(line).output()?, &changed)
            }),
            ..Contestant::plain("git", || git.shell("$G status"))
        });
        contest(bench, &format!("status, 1 % changed ({})", data.name), ours, theirs)
    })
}

/// Makes one commit of the data with snap and, if installed, with git.
fn committed(bench: &Bench<'_>, data: &Data) -> Result<(Snap, Option<Git>)> {
    bench.place.settle();
    let snap = bench.snap(&data.dir);
    snap.fresh()?;
    snap.save().run()?;
    if !is_installed("git") {
        return Ok((snap, None));
    }
    let git = Git { data: data.dir.clone(), home: bench.place.join("tool git") };
    git.fresh()?;
    git.save().run()?;
    Ok((snap, Some(git)))
}

fn contest(
    bench: &Bench<'_>,
    work: &str,
    ours: Contestant<'_>,
    theirs: Option<Contestant<'_>>,
) -> Result<Vec<Row>> {
    let contestants = std::iter::once(ours).chain(theirs).collect();
    let scores = hold(bench.place, bench.args.runs * 2, |_| Ok(()), contestants)?;
    let rows = bench.rows(work, &scores);
    Ok(vec![rows.time(Target::Times(1.0, "git")), rows.memory(Target::AtMost(64.0 * MIB))])
}

/// Adds a line to every hundredth file. Returns their paths, sorted.
fn change(data: &Path) -> Result<Vec<PathBuf>> {
    let mut changed = Vec::new();
    let mut number = 0;
    for entry in WalkDir::new(data).sort_by_file_name() {
        let entry = entry?;
        if !entry.file_type().is_file() {
            continue;
        }
        if number % CHANGED_EVERY == 0 {
            let mut content = fs::read(entry.path())?;
            content.extend_from_slice(b"one line more\n");
            // A file of the cargo registry may be read-only.
            let mut file = OpenOptions::new().write(true).open(entry.path())?;
            std::io::Write::write_all(&mut file, &content)?;
            changed.push(entry.path().strip_prefix(data)?.to_owned());
        }
        number += 1;
    }
    Ok(changed)
}

/// Checks that each line ends with the path of a changed file, and that none is missing.
pub(super) fn check(told: &str, changed: &[PathBuf]) -> Result<()> {
    let lines: Vec<&str> = told.lines().filter(|line| !line.is_empty()).collect();
    let is_told = |path: &PathBuf| {
        let path = path.to_string_lossy();
        lines.iter().any(|line| line.trim_matches('"').ends_with(&*path))
    };
    if let Some(path) = changed.iter().find(|path| !is_told(path)) {
        return Err(format!("{} has changed but is not listed", path.display()).into());
    }
    match lines.len() == changed.len() {
        true => Ok(()),
        false => Err(format!("{} files changed, {} listed", changed.len(), lines.len()).into()),
    }
}

#[cfg(test)]
mod tests {
    use snap_testkit::trees;

    use super::*;

    #[test]
    fn a_list_must_have_each_changed_file_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        trees::text_files(dir.path(), 250, 64).unwrap();
        let changed = change(dir.path()).unwrap();
        assert_eq!(changed.len(), 3);
        assert_eq!(fs::read(dir.path().join(&changed[0])).unwrap().len(), 64 + 14);
        let list = |paths: &[PathBuf]| {
            paths.iter().map(|path| format!(" M {}\n", path.display())).collect::<String>()
        };
        assert!(check(&list(&changed), &changed).is_ok());
        assert!(check(&list(&changed[1..]), &changed).is_err());
        assert!(check(&(list(&changed) + " M other\n"), &changed).is_err());
    }
}
