//! `snap pack` and `snap unpack`, and bundles that are read in place.

use std::process::Stdio;

use crate::env::TestEnv;

/// Makes two commits of a small project and three bundles: `first.snap`, `second.snap` (what the
/// first one lacks) and `both.snap`.
fn project() -> TestEnv {
    let env = TestEnv::new();
    env.write("project/notes.txt", "one\n");
    env.write("project/src/main.rs", "fn main() {}\n");
    env.snap_in("project", ["commit", "--reproducible", "-m", "first"]).succeeds();
    env.write("project/notes.txt", "two\n");
    env.snap_in("project", ["commit", "--reproducible", "-m", "second"]).succeeds();
    let pack = |args: &[&str]| env.snap_in("project", args).succeeds();
    pack(&["pack", "latest~1", "-o", "../first.snap"]);
    pack(&["pack", "--since", "latest~1", "-o", "../second.snap"]);
    pack(&["pack", "-o", "../both.snap"]);
    fs_err::create_dir(env.path("elsewhere")).unwrap();
    env
}

#[test]
fn a_history_goes_through_one_file() {
    let env = project();
    insta::assert_snapshot!(env.snap_in("project", ["pack", "-o", "again.snap"]), @r"
    exit: 0
    --- stderr ---
    Packed [SHORT ID] into again.snap: 8 objects, [SIZE], [SIZE] of contents
    ");
    insta::assert_snapshot!(env.snap_in("elsewhere", ["unpack", "../both.snap"]), @r"
    exit: 0
    --- stdout ---
    [ID]
    --- stderr ---
    Created a store at .snap
    Unpacked ../both.snap: 2 commits and 8 objects new, of 8 checked; [SIZE] of contents, stored in [SIZE]
    Branch main is at [SHORT ID]
    ");
    let quiet = env.snap_in("elsewhere", ["unpack", "-q", "../both.snap"]).succeeds();
    assert_eq!((&*quiet.stdout, &*quiet.stderr), ("", ""));
    insta::assert_snapshot!(env.snap_in("elsewhere", ["log", "--oneline"]), @r"
    exit: 0
    --- stdout ---
    [ID] 2026-11-21 08:00:00 +00:00 (HEAD -> main) second
    [ID] 2026-11-21 08:00:00 +00:00 first
    ");
    insta::assert_snapshot!(env.snap_in("elsewhere", ["unpack", "../both.snap"]), @r"
    exit: 0
    --- stdout ---
    [ID]
    --- stderr ---
    ../both.snap was checked; the store already has all of it
    No branch was moved; `snap branch NAME [SHORT ID]` or --branch creates one
    ");
    env.snap_in("elsewhere", ["verify", "--data"]).succeeds();
}

#[test]
fn an_update_needs_what_it_builds_on() {
    let env = project();
    insta::assert_snapshot!(env.snap_in("elsewhere", ["unpack", "../second.snap"]), @"
    exit: 1
    --- stderr ---
    error: cannot unpack ../second.snap
      caused by: the store lacks prerequisites of the bundle: commits [ID]
    hint: first unpack a bundle with these commits
    hint: or pack again without --since
    ");
    assert!(!env.path("elsewhere/.snap").exists());
    env.snap_in("elsewhere", ["unpack", "../first.snap"]).succeeds();
    insta::assert_snapshot!(env.snap_in("elsewhere", ["unpack", "../second.snap", "-b", "main"]), @r"
    exit: 0
    --- stdout ---
    [ID]
    --- stderr ---
    Unpacked ../second.snap: 1 commit and 3 objects new, of 3 checked; [SIZE] of contents, stored in [SIZE]
    Branch main is at [SHORT ID]
    ");
    env.snap_in("elsewhere", ["restore", "latest", "out"]).succeeds();
    assert_eq!(env.read("elsewhere/out/notes.txt"), "two\n");
}

#[test]
fn a_branch_goes_forward_only() {
    let env = project();
    env.write("elsewhere/own", "own");
    env.snap_in("elsewhere", ["commit", "-m", "own"]).succeeds();
    insta::assert_snapshot!(env.snap_in("elsewhere", ["unpack", "../both.snap", "-b", "main"]), @"
    exit: 1
    --- stderr ---
    error: branch `main` has commits that are not ancestors of [SHORT ID]
    hint: the commits of the bundle are in the store
    hint: --force moves the branch to them
    hint: `--branch NAME` with a new name keeps both
    ");
    env.snap_in("elsewhere", ["unpack", "../both.snap", "-b", "theirs"]).succeeds();
    env.snap_in("elsewhere", ["unpack", "../both.snap", "-b", "main", "--force"]).succeeds();
    insta::assert_snapshot!(env.snap_in("elsewhere", ["branch"]), @r"
    exit: 0
    --- stdout ---
    * main   [ID] 2026-11-21 08:00:00 +00:00 second
      theirs [ID] 2026-11-21 08:00:00 +00:00 second
    ");
}

#[test]
fn both_speak_json() {
    let env = project();
    let args = ["--json", "pack", "--since", "latest~1", "-o", "x.snap"];
    let packed = env.snap_in("project", args).succeeds().json();
    assert_eq!(packed[0]["type"], "packed");
    assert_eq!(packed[0]["objects"], 3);
    assert_eq!(packed[0]["prerequisites"].as_array().unwrap().len(), 1);
    let unpacked = env.snap_in("elsewhere", ["--json", "unpack", "../both.snap"]);
    let unpacked = unpacked.succeeds().json();
    assert_eq!(unpacked[0]["type"], "unpacked");
    assert_eq!(unpacked[0]["commits_new"], 2);
    assert_eq!(unpacked[0]["branch"], "main");
    assert_eq!(unpacked[0]["commit"], packed[0]["commit"]);
}

#[test]
fn a_pipe_will_do() {
    let env = project();
    let mut pack = env.command("project");
    let mut pack = pack.args(["pack", "-o", "-"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut unpack = env.command("elsewhere");
    let unpack = unpack.args(["unpack", "-"]).stdin(pack.stdout.take().unwrap()).output().unwrap();
    assert!(pack.wait().unwrap().success());
    assert!(unpack.status.success(), "{}", String::from_utf8_lossy(&unpack.stderr));
    env.snap_in("elsewhere", ["restore", "latest", "out"]).succeeds();
    assert_eq!(env.read("elsewhere/out/src/main.rs"), "fn main() {}\n");
}

#[test]
fn a_bundle_is_looked_into_without_a_store() {
    let env = project();
    insta::assert_snapshot!(env.snap(["ls", "-R", "both.snap"]), @r"
    exit: 0
    --- stdout ---
    notes.txt
    src/
    src/main.rs
    ");
    insta::assert_snapshot!(env.snap(["ls", "both.snap:src"]), @r"
    exit: 0
    --- stdout ---
    main.rs
    ");
    insta::assert_snapshot!(env.snap(["cat", "both.snap:notes.txt"]), @r"
    exit: 0
    --- stdout ---
    two
    ");
    env.snap(["show", "both.snap"]).succeeds();
    env.snap(["restore", "both.snap:src", "out"]).succeeds();
    assert_eq!(env.read("out/main.rs"), "fn main() {}\n");
    // One name has a colon; the other one lacks the usual suffix.
    for name in ["a:b.snap", "./bundle"] {
        fs_err::copy(env.path("both.snap"), env.path(name)).unwrap();
        env.snap(["restore", &format!("{name}:notes.txt"), "out", "--overwrite"]).succeeds();
        assert_eq!(env.read("out/notes.txt"), "two\n");
    }
    // Without the suffix and without a slash, it would be a revision.
    let refused = env.snap(["restore", "bundle:notes.txt", "out"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: ./bundle is a bundle: "), "{}", refused.stderr);
    insta::assert_snapshot!(env.snap(["restore", "both.snap"]), @r"
    exit: 2
    --- stderr ---
    error: a bundle or a remote has no project folder; pass the folder to restore into
    ");
}

#[test]
fn what_is_no_bundle_is_said_so() {
    let env = project();
    env.write("text.snap", "not a bundle, but long enough to be one");
    insta::assert_snapshot!(env.snap(["ls", "text.snap"]), @"
    exit: 4
    --- stderr ---
    error: cannot read the bundle text.snap
      caused by: the file is not a bundle
      caused by: not a bundle: wrong magic number
    hint: `snap pack` creates a bundle of commits
    hint: `snap archive` creates a bundle of a folder
    ");
    insta::assert_snapshot!(env.snap(["ls", "none.snap"]), @"
    exit: 1
    --- stderr ---
    error: `none.snap` is neither a file nor a commit
    hint: `snap log` lists the commits
    hint: `snap pack` creates a bundle
    ");
    insta::assert_snapshot!(env.snap(["ls", "second.snap"]), @"
    exit: 1
    --- stderr ---
    error: cannot read the bundle second.snap
      caused by: the bundle is incomplete: it requires commit [SHORT ID]
    hint: run `snap unpack` in a store that has the prerequisites
    ");
    insta::assert_snapshot!(env.snap_in("elsewhere", ["unpack", "../text.snap"]), @"
    exit: 4
    --- stderr ---
    error: cannot unpack ../text.snap
      caused by: the file is not a bundle
      caused by: not a bundle: wrong magic number
    hint: `snap pack` creates a bundle of commits
    hint: `snap archive` creates a bundle of a folder
    ");
    let whole = fs_err::read(env.path("both.snap")).unwrap();
    fs_err::write(env.path("cut.snap"), &whole[..500]).unwrap();
    insta::assert_snapshot!(env.snap_in("elsewhere", ["unpack", "../cut.snap"]), @r"
    exit: 4
    --- stderr ---
    error: cannot unpack ../cut.snap
      caused by: the bundle is truncated at byte 500
    hint: copy the file again
    hint: if a command sent the bundle, check its messages
    ");
    assert!(!env.path("elsewhere/.snap").exists());
}

#[test]
fn a_bundle_that_is_rejected_leaves_no_new_store() {
    let env = project();
    let unpack = |input: &str| env.snap_reading(("elsewhere", input), ["unpack", "-"]);
    env.write("empty.snap", "");
    insta::assert_snapshot!(unpack("empty.snap"), @"
    exit: 4
    --- stderr ---
    error: cannot unpack stdin
      caused by: the bundle is empty
    hint: check the command that created the bundle, then create or copy it again
    ");
    let from_file = env.snap_in("elsewhere", ["unpack", "../empty.snap"]);
    assert!(from_file.stderr.contains("the bundle is empty"), "{from_file}");
    env.write("text.snap", "not a bundle, but long enough to be one");
    assert_eq!(unpack("text.snap").code, Some(4));
    assert_eq!(unpack("second.snap").code, Some(1));
    // The damage is behind the head, so the store exists when it is found.
    let whole = fs_err::read(env.path("both.snap")).unwrap();
    env.write("cut.snap", &whole[..500]);
    insta::assert_snapshot!(unpack("cut.snap"), @"
    exit: 4
    --- stderr ---
    Created a store at .snap
    Removed the new store at .snap
    error: cannot unpack stdin
      caused by: the bundle is truncated at byte 500
    hint: copy the file again
    hint: if a command sent the bundle, check its messages
    ");
    let mut damaged = whole.clone();
    damaged[whole.len() * 3 / 4] ^= 1;
    env.write("damaged.snap", damaged);
    let damaged = env.snap_in("elsewhere", ["unpack", "../damaged.snap"]);
    assert_eq!(damaged.code, Some(4), "{damaged}");
    assert!(damaged.stderr.contains("\nRemoved the new store at .snap\n"), "{damaged}");
    assert_eq!(fs_err::read_dir(env.path("elsewhere")).unwrap().count(), 0);
}

#[test]
fn a_bundle_that_is_rejected_keeps_a_store_that_was_there() {
    let env = project();
    let whole = fs_err::read(env.path("both.snap")).unwrap();
    env.write("cut.snap", &whole[..500]);
    let unpack = || env.snap_reading(("elsewhere", "cut.snap"), ["unpack", "-"]);
    // An empty folder with the name of a store becomes one, and is not removed.
    fs_err::create_dir(env.path("elsewhere/.snap")).unwrap();
    assert_eq!(unpack().code, Some(4));
    env.snap_in("elsewhere", ["status"]).succeeds();
    let second = unpack();
    assert_eq!(second.code, Some(4));
    assert!(!second.stderr.contains("store"), "{second}");
    env.snap_in("elsewhere", ["status"]).succeeds();
}

#[test]
fn a_file_that_is_there_stays() {
    let env = project();
    env.write("project/mine.snap", "mine");
    insta::assert_snapshot!(env.snap_in("project", ["pack", "-o", "mine.snap"]), @r"
    exit: 1
    --- stderr ---
    error: `mine.snap` already exists
    hint: name another file with `-o FILE`
    hint: --force replaces it
    ");
    assert_eq!(env.read("project/mine.snap"), "mine");
    let archived = env.snap_in("project", ["archive", "src", "-o", "mine.snap"]);
    assert!(archived.stderr.starts_with("error: `mine.snap` already exists\n"), "{archived}");
    env.snap_in("project", ["pack", "-o", "mine.snap", "--force"]).succeeds();
    env.snap_in("project", ["ls", "mine.snap"]).succeeds();
    insta::assert_snapshot!(env.snap_in("project", ["pack", "-o", "none/x.snap"]), @r"
    exit: 1
    --- stderr ---
    error: cannot create a file beside none/x.snap
      caused by: No such file or directory (os error 2)
    ");
    insta::assert_snapshot!(env.snap_in("project", ["--json", "pack", "-o", "-"]), @r#"
    exit: 2
    --- stderr ---
    {"version":1,"type":"error","message":"--json and `-o -` both write to stdout","causes":[],"hints":[],"exit":2,"code":"usage","retry":false}
    "#);
}

#[test]
fn a_full_disk_leaves_no_half_of_a_bundle() {
    let env = project();
    let mut pack = env.command("project");
    let full = fs_err::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let pack = pack.args(["pack", "-o", "-"]).stdout(full.into_parts().0).output().unwrap();
    assert_eq!(pack.status.code(), Some(1));
    let said = String::from_utf8(pack.stderr).unwrap();
    assert!(said.contains("cannot pack into stdout") && said.contains("No space left"), "{said}");
}

#[test]
fn a_damaged_bundle_is_named_and_its_files_listed_once() {
    let env = TestEnv::new();
    for number in 10..40 {
        env.write(&format!("file{number}"), format!("content {number}\n"));
    }
    env.snap(["archive", ".", "-o", "x.snap", "-q"]).succeeds();
    let mut bytes = fs_err::read(env.path("x.snap")).unwrap();
    let at = bytes.windows(8).position(|part| part == b"content ").unwrap();
    bytes[at] ^= 1;
    fs_err::write(env.path("x.snap"), bytes).unwrap();
    let said = env.snap(["restore", "x.snap", "out"]);
    assert_eq!(said.code, Some(4), "{said}");
    assert!(said.stderr.lines().count() <= 4, "{said}");
    assert!(said.stderr.contains("could not be restored: `file"), "{said}");
    assert!(
        said.stderr
            .contains("hint: everything else was restored; x.snap is damaged, copy it again"),
        "{said}"
    );
    let said = env.snap(["export", "x.snap", "-o", "x.tar"]);
    assert_eq!(said.code, Some(4), "{said}");
    assert!(said.stderr.contains("hint: x.snap was changed after it was created"), "{said}");
}

#[test]
fn a_bundle_where_none_is_read_is_told_about() {
    let env = TestEnv::new();
    env.write("file", "text");
    env.snap(["archive", ".", "-o", "x.snap", "-q"]).succeeds();
    for command in
        [&["log", "x.snap"][..], &["diff", "x.snap"], &["cat", "x.snap"], &["stats", "x.snap"]]
    {
        let said = env.snap(command);
        assert!(said.stderr.contains("x.snap is a bundle"), "{said}");
    }
}

#[test]
fn a_bundle_has_the_mode_of_the_one_that_it_replaces() {
    let env = TestEnv::new();
    env.write("a", "one");
    env.snap(["commit"]).succeeds();
    env.snap(["pack", "main", "-o", "b.snap"]).succeeds();
    env.mode("b.snap", 0o600);
    env.snap(["pack", "main", "--force", "-o", "b.snap"]).succeeds();
    let mode = fs_err::metadata(env.path("b.snap")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
}

#[test]
fn an_output_inside_a_store_is_refused() {
    let env = TestEnv::new();
    env.write("home/a.txt", "one");
    env.snap_in("home", ["commit"]).succeeds();
    let head = env.read("home/.snap/HEAD");
    for (command, output) in [("pack", ".snap/HEAD"), ("export", ".snap/objects/new.tar")] {
        let refused = env.snap_in("home", [command, "latest", "-o", output, "-f"]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains("would be inside a store"), "{}", refused.stderr);
    }
    assert_eq!(env.read("home/.snap/HEAD"), head);
}

#[test]
fn a_bundle_is_verified_without_a_store() {
    let env = project();
    insta::assert_snapshot!(env.snap_in("elsewhere", ["verify", "../both.snap"]), @r"
    exit: 0
    --- stderr ---
    Checked ../both.snap with commit [SHORT ID]: 8 objects, 431 B of contents
    No errors found
    ");
    insta::assert_snapshot!(env.snap_in("elsewhere", ["verify", "../second.snap"]), @"
    exit: 1
    --- stderr ---
    error: cannot verify ../second.snap
      caused by: the store lacks prerequisites of the bundle: commits [ID]
    hint: first unpack a bundle with these commits
    hint: or pack again without --since
    ");
    assert!(!env.path("elsewhere/.snap").exists());
    let before = env.snap_in("project", ["--json", "stats"]).succeeds().stdout;
    insta::assert_snapshot!(env.snap_in("project", ["verify", "../second.snap"]), @r"
    exit: 0
    --- stderr ---
    Checked ../second.snap with commit [SHORT ID]: 3 objects, 199 B of contents
    It builds on 1 commit, which the store has
    No errors found
    ");
    assert_eq!(env.snap_in("project", ["--json", "stats"]).succeeds().stdout, before);
    let ran = env.snap(["verify", "both.snap", "--sample", "5%"]);
    assert_eq!(ran.code, Some(2), "{ran}");
}

#[test]
fn each_damaged_byte_of_a_bundle_is_found() {
    let env = project();
    let whole = fs_err::read(env.path("first.snap")).unwrap();
    for at in (0..whole.len()).step_by(whole.len() / 12) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        env.write("damaged.snap", &bytes);
        let ran = env.snap(["verify", "damaged.snap"]);
        assert!(matches!(ran.code, Some(1 | 4)), "byte {at}: {ran}");
    }
    env.write("damaged.snap", &whole[..whole.len() - 1]);
    let ran = env.snap(["verify", "damaged.snap"]);
    assert_eq!(ran.code, Some(4), "{ran}");
}
