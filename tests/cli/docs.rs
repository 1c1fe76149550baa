//! Documents generated from the definition of the command line: `docs/cli.md` and the manual pages.

use std::path::Path;

use crate::{env::TestEnv, tools};

#[test]
fn the_page_of_all_commands_is_up_to_date() {
    let env = TestEnv::new();
    let made = env.snap(["__docs"]).succeeds().stdout;
    assert_page("cli", &made);
}

/// Checks that a generated page of `docs/`, written by the test module of the same name, is what
/// it should be. With `SNAP_UPDATE_DOCS`, writes it.
pub(crate) fn assert_page(name: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/{name}.md"));
    if std::env::var_os("SNAP_UPDATE_DOCS").is_some() {
        fs_err::write(&path, made).unwrap();
    }
    let there = fs_err::read_to_string(&path).unwrap_or_default();
    // Reports only the first difference, because a whole page would hide it.
    let differs = made.lines().zip(there.lines()).find(|(made, there)| made != there);
    assert!(
        made == there,
        "docs/{name}.md is out of date (first difference: {differs:?}); \
         SNAP_UPDATE_DOCS=1 cargo test -p snap-cli --test cli up_to_date"
    );
}

/// Returns the names of all pages, without their suffix.
fn pages(env: &TestEnv) -> Vec<String> {
    env.snap(["man", "-q", "--out", "man"]).succeeds();
    let files = fs_err::read_dir(env.path("man")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.map(|name| name.strip_suffix(".1").unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_command_has_a_manual_page() {
    let env = TestEnv::new();
    let pages = pages(&env);
    for name in ["snap", "snap-commit", "snap-config", "snap-config-set", "snap-restore"] {
        assert!(pages.contains(&name.to_owned()), "{name} is missing in {pages:?}");
    }
    assert!(!pages.iter().any(|name| name.contains("__") || name.contains("help")), "{pages:?}");
    for name in &pages {
        let page = env.read(&format!("man/{name}.1"));
        for section in
            ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES"]
        {
            assert!(page.contains(&format!("\n.SH {section}\n")), "{name} has no {section}");
        }
    }
    assert_eq!(
        env.snap(["man", "config", "set"]).succeeds().stdout,
        env.read("man/snap-config-set.1")
    );
    insta::assert_snapshot!(env.snap(["man", "comit"]), @r"
    exit: 1
    --- stderr ---
    error: snap has no command `comit`
    hint: `snap --help` lists the commands
    ");
    insta::assert_snapshot!(env.snap(["man", "--out", "man/snap.1"]), @r"
    exit: 1
    --- stderr ---
    error: cannot write man/snap.1/snap.1
      caused by: failed to create file `man/snap.1/snap.1`: Not a directory (os error 20)
    ");
}

#[test]
fn the_manual_is_rendered_without_warnings() {
    let env = TestEnv::new();
    let pages = pages(&env);
    let (Some(groff), Some(man)) = (tools::find("groff"), tools::find("man")) else { return };
    for name in pages {
        let page = format!("man/{name}.1");
        let (text, said) = groff.run(&env, ["-man", "-ww", "-Tutf8", "-rCHECKSTYLE=1", &page]);
        assert_eq!(said, "", "{name}");
        assert!(text.contains(&name.to_uppercase()), "{text}");
        let (text, said) = man.run(&env, ["--warnings=w", "-l", &page]);
        assert_eq!(said, "", "{name}");
        // Commands that a user copies from the page must be unchanged.
        if name == "snap-restore" {
            assert!(text.contains("snap restore latest --overwrite --delete --dry-run"), "{text}");
        }
        if name == "snap-commit" {
            assert!(text.contains("snap commit --exclude '*.o' --exclude-caches"), "{text}");
        }
    }
}
