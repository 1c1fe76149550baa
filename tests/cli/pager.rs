//! The pager for output that is longer than the terminal.

use crate::{env::TestEnv, terminal::shown};

/// Makes one commit, whose log has seven lines.
fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("file", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n");
    env.snap(["commit", "-q", "-m", "one\ntwo"]).succeeds();
    // This pager marks each line that goes through it.
    env.write("mark", "#!/bin/sh\nsed 's/^/P> /'\n");
    env.mode("mark", 0o755);
    env
}

/// Returns the output of `line` on a terminal with this number of rows.
fn on(rows: u32, env: &TestEnv, line: &str) -> Option<String> {
    shown(env, &format!("stty rows {rows} cols 80; {line}"))
}

#[test]
fn what_is_longer_than_the_screen_goes_through_the_pager() {
    let env = env();
    let Some(long) = on(7, &env, "SNAP_PAGER=./mark PAGER=false snap log") else { return };
    assert_eq!(long.matches("P> ").count(), 7, "{long:?}");
    assert!(long.contains("(just now)\n"), "{long:?}");
    let fits = on(8, &env, "SNAP_PAGER=./mark snap log").unwrap();
    assert!(fits.contains("two") && !fits.contains("P> "), "{fits:?}");
    let usual = on(7, &env, "PAGER=./mark snap log").unwrap();
    assert_eq!(usual.matches("P> ").count(), 7, "{usual:?}");
    let by_shell = on(7, &env, "SNAP_PAGER='./mark | ./mark' snap log").unwrap();
    assert_eq!(by_shell.matches("P> P> ").count(), 7, "{by_shell:?}");
    let help = on(20, &env, "SNAP_PAGER=./mark snap log --help").unwrap();
    assert!(help.lines().all(|line| line.starts_with("P> ")), "{help:?}");
    let less = on(5, &env, "LESSSECURE=1 snap log --oneline; snap log | cat").unwrap();
    assert!(less.contains("two"), "{less:?}");
}

#[test]
fn there_are_many_ways_to_do_without() {
    let env = env();
    for line in [
        "snap --no-pager log",
        "snap --json log",
        "snap log | cat",
        "snap cat latest:file",
        "TERM=dumb snap log",
        "SNAP_PAGER=cat PAGER=./mark snap log",
        "snap --no-pager log --help",
        "stty rows 0; snap log",
    ] {
        let line = format!("PAGER=./mark; export PAGER; {line}");
        let Some(said) = on(3, &env, &line) else { return };
        assert!(!said.contains("P> ") && said.len() > 30, "{line}: {said:?}");
    }
}

#[test]
fn a_pager_that_is_left_early_is_no_failure() {
    let env = env();
    env.write("large", "line\n".repeat(200_000));
    for pager in ["head -n 1", "true", "sh -c 'exit 3'"] {
        let line = format!("SNAP_PAGER=\"{pager}\" snap log --help; echo code $?");
        let Some(said) = on(5, &env, &line) else { return };
        assert!(said.ends_with("code 0\n") && said.lines().count() <= 2, "{said:?}");
    }
}

#[test]
fn a_pager_that_cannot_be_started_is_done_without() {
    let env = env();
    let Some(said) = on(5, &env, "SNAP_PAGER=./nowhere snap log; echo code $?") else { return };
    assert!(said.starts_with("\u{1b}[33mcommit ") && said.ends_with("two\ncode 0\n"), "{said:?}");
    // A shell prints its own error message.
    let said = on(5, &env, "SNAP_PAGER='./nowhere \"$HOME\"' snap log; echo code $?").unwrap();
    assert!(said.contains("not found") && said.ends_with("two\ncode 0\n"), "{said:?}");
}

#[test]
fn less_is_told_to_leave_when_all_fits() {
    let env = env();
    let Some(said) = on(5, &env, "SNAP_PAGER='printenv LESS' snap log") else { return };
    assert_eq!(said, "FRX\n");
    let said = on(5, &env, "LESS=i SNAP_PAGER='printenv LESS' snap log").unwrap();
    assert_eq!(said, "i\n");
}

#[test]
fn keys_and_the_screen_are_the_pagers_while_it_runs() {
    let env = env();
    // Simulates two Ctrl-C while the pager runs.
    env.write("pager", "#!/bin/sh\nkill -INT $PPID; kill -INT $PPID; exec ./mark\n");
    env.mode("pager", 0o755);
    let Some(said) = on(7, &env, "SNAP_PAGER=./pager snap log; echo code $?") else { return };
    assert_eq!(said.matches("P> ").count(), 7, "{said:?}");
    assert!(said.ends_with("code 0\n"), "{said:?}");
    for name in ["a", "b", "c", "d", "e"] {
        env.write(&format!("many/{name}"), name);
    }
    env.snap(["commit", "-q"]).succeeds();
    // Messages are printed after the pager has ended.
    let line = "SNAP_PAGER=./mark snap restore latest out --dry-run";
    let said = on(4, &env, line).unwrap();
    let (listed, rest) = said.split_once("Would restore").unwrap();
    assert!(listed.lines().count() >= 5, "{said:?}");
    assert!(listed.lines().all(|line| line.starts_with("P> create")), "{said:?}");
    assert!(!rest.contains("P> "), "{said:?}");
}
