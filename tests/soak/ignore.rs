//! Random patterns of ignore files, against git.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use fs_err as fs;
use snap_explore::program::{Program, folder, well};
use snap_testkit::rng::Rng;

/// Parts of patterns. The first ones stand at the start of a pattern or after a `/`.
const STARTS: [&str; 4] = ["**/", "***/", "!", "#"];
const PARTS: [&str; 36] = [
    "foo",
    "bar",
    "a",
    "b",
    "[",
    "[",
    "[]",
    "[a",
    "[!a]",
    "[^b]",
    "[a-b]",
    "[b-a]",
    "[[:alpha:]]",
    "[[:x:]]",
    "[:",
    "[a\\]",
    "\\",
    "/",
    "/",
    "*",
    "**",
    "**/",
    "?",
    "!",
    " ",
    "\\ ",
    "-",
    "]",
    "{a,b}",
    "\\/",
    ".",
    "[/]",
    "[!/]",
    "[]a]",
    "[[]",
    "[[:]",
];

/// Names of files in each folder, and the folders.
const NAMES: [&str; 10] = ["[", "x]", "-", "!a", "#", "a b", "\\", "a.c", "*", "{a,b}"];
const FOLDERS: [&str; 6] = ["", "foo/bar/", "bar/", "a/b/", "b/", "ab/a/"];

/// Different patterns after which the run ends.
const FAULTS: usize = 5;

/// Compares what git and the program leave out. Returns the patterns that differ.
pub(crate) fn run(program: Program<'_>, until: Instant, seed: u64) -> Vec<String> {
    let place = folder();
    let tree = place.path().join("tree");
    for folder in FOLDERS {
        fs::create_dir_all(tree.join(folder)).unwrap();
        for name in NAMES {
            fs::write(tree.join(folder).join(name), "content").unwrap();
        }
    }
    let mut git = git(place.path());
    if !git.args(["init", "-q", "--bare"]).status().is_ok_and(|status| status.success()) {
        println!("ignore: skipped: git is not installed");
        return Vec::new();
    }
    let (mut rng, mut found, mut rounds) = (Rng::new(seed), Vec::new(), 0);
    while Instant::now() < until && found.len() < FAULTS {
        rounds += 1;
        let lines = patterns(&mut rng);
        fs::write(tree.join(".gitignore"), &lines).unwrap();
        let (theirs, ours) = (kept_by_git(place.path()), kept(program, place.path()));
        if theirs != ours {
            let only =
                |a: &BTreeSet<String>, b| a.difference(b).take(3).cloned().collect::<Vec<_>>();
            let (theirs, ours) = (only(&theirs, &ours), only(&ours, &theirs));
            found.push(format!("{lines:?}: only git keeps {theirs:?}, only snap {ours:?}"));
        }
    }
    println!("{rounds} ignore files");
    found
}

fn patterns(rng: &mut Rng) -> String {
    let mut pattern = String::new();
    for _ in 0..=rng.index(4) {
        if (pattern.is_empty() || pattern.ends_with('/')) && rng.below(5) == 0 {
            pattern.push_str(STARTS[rng.index(STARTS.len())]);
        } else {
            pattern.push_str(PARTS[rng.index(PARTS.len())]);
        }
    }
    match rng.below(5) {
        0 => format!("*\n!{pattern}\n"),
        1 => format!("foo/*\n!{pattern}\n"),
        _ => format!("{pattern}\n"),
    }
}

/// Returns git as a command with a repository beside the tree, and without settings.
fn git(place: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("--git-dir").arg(place.join("git")).env("HOME", place);
    command.env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null());
    command
}

fn kept_by_git(place: &Path) -> BTreeSet<String> {
    let mut git = git(place);
    git.args([
        "--work-tree",
        ".",
        "-c",
        "core.bare=false",
        "ls-files",
        "-oz",
        "--exclude-standard",
    ]);
    well(git.current_dir(place.join("tree"))).split_terminator('\0').map(str::to_owned).collect()
}

fn kept(program: Program<'_>, place: &Path) -> BTreeSet<String> {
    let store = place.join("store");
    let _ = fs::remove_dir_all(&store);
    well(program.snap(&store).arg("init"));
    let commit = ["commit", "--allow-empty", "--gitignore"];
    let id = well(program.snap(&store).args(commit).arg(place.join("tree")));
    let listed = well(program.snap(&store).args(["--json", "ls", "-R", id.trim()]));
    let entries = listed.lines().map(|line| serde_json::from_str(line).unwrap());
    entries
        .filter(|entry: &serde_json::Value| entry["kind"] != "folder")
        .map(|entry| entry["path"].as_str().unwrap().to_owned())
        .collect()
}
