//! Output on a terminal: colours, short ids, progress bars. `script` of util-linux provides the
//! terminal; without it these tests are skipped.

use std::{io::Write, process::Stdio};

use snap_testkit::skip::skip_without_program;

use crate::env::TestEnv;

const ESCAPE: char = '\u{1b}';

/// Returns the output on a terminal while the shell runs `line`, in which `snap` is the binary.
/// Returns `None` if `script` is not installed.
pub(crate) fn shown(env: &TestEnv, line: &str) -> Option<String> {
    let snap = env!("CARGO_BIN_EXE_snap");
    let script = format!("snap() {{ {snap} \"$@\"; }}; {line}");
    let mut command = env.command_of("", "script");
    command.env("TERM", "xterm").env("SHELL", "/bin/sh").env("PATH", "/usr/bin:/bin");
    command.args(["-qec", &script, "/dev/null"]).stdin(Stdio::null());
    let Ok(output) = command.output() else {
        skip_without_program("a test of the terminal", "script");
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n"))
}

/// Runs `line` as [`shown`] does, in a folder below the root, while the user types `typed`. Returns
/// the exit code and the output.
pub(crate) fn answered(
    env: &TestEnv,
    dir: &str,
    line: &str,
    typed: &str,
) -> Option<(Option<i32>, String)> {
    let mut command = env.command_of(dir, "script");
    command.env("TERM", "dumb").env("SHELL", "/bin/sh").env("PATH", "/usr/bin:/bin");
    let script = format!("snap() {{ {} \"$@\"; }}; {line}", env!("CARGO_BIN_EXE_snap"));
    command.args(["-qec", &script, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        skip_without_program("a test of a question", "script");
        return None;
    };
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some((output.status.code(), String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")))
}

fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("sub/file", "1");
    env.snap(["commit", "-q", "-m", "one"]).succeeds();
    env
}

#[test]
fn ids_are_short_and_coloured() {
    let env = env();
    let id = env.snap(["--json", "log"]).json()[0]["id"].as_str().unwrap().to_owned();
    let Some(log) = shown(&env, "snap log --oneline; snap ls; snap branch; snap show") else {
        return;
    };
    assert!(log.contains(&format!("{ESCAPE}[33m{}{ESCAPE}[0m ", &id[..12])), "{log:?}");
    assert!(!log.contains(&id[..13]), "{log:?}");
    assert!(log.contains(&format!("{ESCAPE}[34msub/{ESCAPE}[0m\n")), "{log:?}");
    // JSON has full ids and no colours.
    let json = shown(&env, "snap log --json").unwrap();
    assert!(json.contains(&id) && !json.contains(ESCAPE), "{json:?}");
}

#[test]
fn errors_are_coloured() {
    let env = env();
    let Some(said) = shown(&env, "snap show nope || true") else { return };
    assert!(said.contains(&format!("{ESCAPE}[31merror:{ESCAPE}[0m `nope` is not a")), "{said:?}");
    assert!(said.contains(&format!("{ESCAPE}[36mhint:{ESCAPE}[0m ")), "{said:?}");
}

#[test]
fn colours_can_be_turned_off() {
    let env = env();
    for line in [
        "NO_COLOR=1 snap log; NO_COLOR=1 snap ls",
        "snap --color never log; snap --color=never ls",
        "TERM=dumb snap log; TERM=dumb snap ls",
        "CLICOLOR=0 snap log; CLICOLOR=0 snap ls",
        "snap --color never log --help; snap log --color=never -h; NO_COLOR=1 snap help log",
        "snap --color never lgo || true; NO_COLOR=1 snap lgo || true",
        "snap --color never show nope || true",
    ] {
        let Some(said) = shown(&env, line) else { return };
        assert!(!said.contains(ESCAPE), "{line}: {said:?}");
    }
    // Colours can also be forced without a terminal.
    let log = env.snap(["--color", "always", "log"]).succeeds().stdout;
    assert!(log.contains(ESCAPE), "{log:?}");
    let help = env.snap(["log", "-h", "--color", "always"]).succeeds().stdout;
    assert!(help.contains(ESCAPE), "{help:?}");
    let said = env.snap(["--color=always", "show", "nope"]).stderr;
    assert!(said.contains(ESCAPE), "{said:?}");
    let said = env.snap(["--color=always", "lgo"]).stderr;
    assert!(said.contains(ESCAPE), "{said:?}");
    assert!(!env.snap(["log", "-h"]).stdout.contains(ESCAPE));
}

#[test]
fn variables_turn_colours_on_and_the_option_overrules_them() {
    let mut env = env();
    env.set("CLICOLOR_FORCE", "1");
    assert!(env.snap(["log"]).succeeds().stdout.contains(ESCAPE));
    assert!(!env.snap(["--color", "never", "log"]).succeeds().stdout.contains(ESCAPE));
    assert!(!env.snap(["--json", "log"]).succeeds().stdout.contains(ESCAPE));
    env.set("NO_COLOR", "1");
    assert!(env.snap(["--color", "always", "log"]).succeeds().stdout.contains(ESCAPE));
}

#[test]
fn a_commit_prints_its_whole_id_on_a_terminal_too() {
    let env = env();
    let Some(said) = shown(&env, "snap commit --allow-empty 2>/dev/null") else { return };
    let id = said.trim_end();
    assert!(id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{said:?}");
}

#[test]
fn a_bar_appears_after_a_moment_and_leaves_nothing_behind() {
    let mut env = env();
    env.set("SNAP_TEST_PROGRESS_MILLIS", "0");
    let zeros = "head -c 10000000 /dev/zero";
    let Some(said) = shown(&env, &format!("{zeros} | snap commit --stdin zeros")) else {
        return;
    };
    assert!(said.contains("Committing") && said.contains("B/s"), "{said:?}");
    let bar_end = said.rfind("\r\u{1b}[2K").unwrap() + "\r\u{1b}[2K".len();
    let rest = &said[bar_end..];
    let (id, summary) = rest.split_once('\n').unwrap();
    assert!(id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{rest:?}");
    assert!(summary.starts_with("Committed 2 files, 9.5 MiB: 1 added"), "{rest:?}");
    // The total is an estimate from the last commit; a full bar would be wrong.
    assert!(!said.contains("0s left"), "{said:?}");

    let quiet = shown(&env, &format!("{zeros} | snap -q commit --stdin zeros2")).unwrap();
    assert_eq!(quiet, "");
}

#[test]
fn what_is_quick_shows_no_bar() {
    let env = env();
    // A bar consists of escapes, and so do the colours of hints.
    let commands = "snap commit --allow-empty; snap --color never verify; snap restore HEAD out";
    let Some(said) = shown(&env, commands) else { return };
    assert!(!said.contains(ESCAPE) && !said.contains('\r'), "{said:?}");
}

#[test]
fn nothing_in_a_store_steers_the_terminal() {
    let mut env = TestEnv::new();
    // Escape, bell, a C1 control, a mark that changes the text direction, a line end.
    let hostile = |name: &str| format!("{name}\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\nforged");
    env.set("SNAP_AUTHOR", &hostile("author"));
    env.set("SNAP_HOST", &hostile("host"));
    env.write(&hostile("file"), "1\n");
    env.write(&format!("{}/inside", hostile("folder")), "1\n");
    std::os::unix::fs::symlink(hostile("target"), env.path(hostile("link"))).unwrap();
    let label = format!("label={}", hostile("value"));
    env.snap(["commit", "-q", "-m", &hostile("message"), "--label", &label]).succeeds();
    env.snap(["tag", "before"]).succeeds();
    env.write(&hostile("file"), "2\n");
    env.write(&hostile("more"), "1\n");
    env.snap(["commit", "-q", "-m", &hostile("second")]).succeeds();
    env.write(&hostile("file"), "3\n");
    env.write(&hostile("unknown"), "3\n");
    for line in [
        "snap log; snap log --oneline; snap log -- file*; snap show; snap show before",
        "snap ls; snap ls -l; snap ls -R; snap status; snap stats",
        "snap find 'f*'; snap find 'l*'; snap branch --log main; snap tag; snap branch",
        "snap diff; snap diff --stat; snap diff --name-status; snap diff --name-only before HEAD",
        "snap restore -n HEAD out; snap restore -n --overwrite --delete before .; true",
        "snap restore HEAD out; snap restore before out || true",
        "snap undo -n || snap undo; snap export HEAD -o x.zip -v; snap verify --data",
        "rm .snap/objects/*; snap verify || true; snap cat HEAD:file* || true; snap show nope* || true",
    ] {
        let line = line.replace("snap ", "snap --color never ") + "; true";
        let Some(said) = shown(&env, &line) else { return };
        let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || c == '\u{202e}';
        assert!(!said.contains(steers), "{line}: {said:?}");
        assert!(!said.lines().any(|line| line.starts_with("forged")), "{line}: {said}");
    }
}
