//! `snap config`.

use crate::env::TestEnv;

fn env() -> TestEnv {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    env
}

#[test]
fn settings_are_listed_set_and_read() {
    let env = env();
    // The defaults are a matter of measurements, not of this test.
    for (key, value) in [("min", "65536"), ("average", "1048576"), ("max", "4194304")] {
        env.snap(["config", "set", &format!("chunk.{key}"), value]).succeeds();
    }
    insta::assert_snapshot!(env.snap(["config", "list"]), @r"
    exit: 0
    --- stdout ---
    version = 1
    chunk.min = 65536
    chunk.average = 1048576
    chunk.max = 4194304
    compression.level = 3
    commit.exclude = []
    commit.exclude_caches = false
    commit.gitignore = false
    ");
    env.snap(["config", "set", "commit.author", "Ann O'Neil"]).succeeds();
    env.snap(["config", "set", "commit.exclude", r#"["*.o"]"#]).succeeds();
    insta::assert_snapshot!(env.snap(["config", "get", "commit.author"]), @r"
    exit: 0
    --- stdout ---
    Ann O'Neil
    ");
    insta::assert_snapshot!(env.snap(["config", "get", "commit.exclude", "--json"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"key":"commit.exclude","value":["*.o"]}
    "#);
    assert!(env.read(".snap/config.toml").contains("# zstd level"));
}

#[test]
fn a_value_that_does_not_fit_changes_nothing() {
    let env = env();
    let before = env.read(".snap/config.toml");
    insta::assert_snapshot!(env.snap(["config", "set", "compression.level", "99"]), @r"
    exit: 2
    --- stderr ---
    error: [ROOT]/.snap/config.toml: `compression.level` is 99, but must be from 1 to 19
    ");
    insta::assert_snapshot!(env.snap(["config", "set", "compression.level", "high"]), @r#"
    exit: 2
    --- stderr ---
    error: `compression.level`: invalid type: string "high", expected i32
    "#);
    insta::assert_snapshot!(env.snap(["config", "set", "colour", "red"]), @r"
    exit: 2
    --- stderr ---
    error: `colour` is not a setting
    hint: `snap config list` names all settings
    ");
    insta::assert_snapshot!(env.snap(["config", "get", "colour"]), @r"
    exit: 2
    --- stderr ---
    error: `colour` is not a setting
    hint: `snap config list` names all settings
    ");
    assert_eq!(env.read(".snap/config.toml"), before);
}

#[test]
fn an_unknown_key_in_the_file_is_named() {
    let env = env();
    env.write(".snap/config.toml", "version = 1\n[commit]\nauthr = 'ann'\n");
    insta::assert_snapshot!(env.snap(["log"]), @r"
    exit: 1
    --- stderr ---
    error: [ROOT]/.snap/config.toml:3: unknown field `authr`, expected one of `author`, `host`, `exclude`, `exclude_caches`, `gitignore`
    hint: correct that line of the file
    ");
}
