//! Stores with contents that were cut with different settings. A content that is cut in one
//! commit may be a single chunk of another content.

use crate::{
    env::TestEnv,
    remote::{env, folder},
};

const MIB: usize = 1 << 20;

/// Makes a project whose chunks have at most `max` bytes.
fn project(env: &TestEnv, name: &str, max: usize) {
    env.write(&format!("{name}/notes.txt"), name);
    env.snap_in(name, ["init", "-q"]).succeeds();
    set_max(env, name, max);
}

fn set_max(env: &TestEnv, name: &str, max: usize) {
    let [min, average, max] = [("min", max / 4), ("average", max / 2), ("max", max)]
        .map(|(key, value)| [format!("chunk.{key}"), value.to_string()]);
    // The settings are checked together after each change.
    for [key, value] in
        if env.path(name).join("f").exists() { [max, average, min] } else { [min, average, max] }
    {
        env.snap_in(name, ["config", "set", &key, &value]).succeeds();
    }
}

#[track_caller]
fn assert_whole(env: &TestEnv, project: &str, file: &str, bytes: usize) {
    env.snap_in(project, ["verify", "--data"]).succeeds();
    let restored = format!("{project}-restored");
    env.snap_in(project, ["restore", "latest", &format!("../{restored}")]).succeeds();
    let read = fs_err::read(env.path(format!("{restored}/{file}"))).unwrap();
    assert!(read.len() == bytes && read.iter().all(|byte| *byte == 0), "{} bytes", read.len());
}

#[test]
fn a_chunk_with_the_bytes_of_a_cut_file_is_stored() {
    let env = env();
    project(&env, "project", MIB);
    // The file is cut, so its id names a chunk list.
    env.write("project/f", vec![0; 2 * MIB]);
    env.snap_in("project", ["commit", "-qm", "one"]).succeeds();
    set_max(&env, "project", 2 * MIB);
    env.write("project/g", vec![0; 20 * MIB]);
    env.snap_in("project", ["commit", "-qm", "two"]).succeeds();
    assert_whole(&env, "project", "g", 20 * MIB);
}

#[test]
fn stores_with_other_chunk_settings_share_a_remote() {
    let env = env();
    let shared = folder(&env, "shared");
    project(&env, "first", MIB);
    env.write("first/f", vec![0; 2 * MIB]);
    env.snap_in("first", ["commit", "-qm", "one"]).succeeds();
    env.snap_in("first", ["push", &shared, "main"]).succeeds();
    project(&env, "second", 2 * MIB);
    env.write("second/g", vec![0; 20 * MIB]);
    env.snap_in("second", ["commit", "-qm", "two", "-b", "other"]).succeeds();
    env.snap_in("second", ["push", &shared, "other"]).succeeds();
    for (branch, file, bytes) in [("main", "f", 2 * MIB), ("other", "g", 20 * MIB)] {
        let clone = format!("clone-{branch}");
        env.snap_in("work", ["clone", "-q", "--ref", branch, &shared, &format!("../{clone}")])
            .succeeds();
        assert_whole(&env, &clone, file, bytes);
    }
    // A store with the file of the first project takes the chunk from the remote.
    env.snap_in("first", ["pull", &shared, "other"]).succeeds();
    env.snap_in("first", ["restore", "other", "../pulled"]).succeeds();
    let read = fs_err::read(env.path("pulled/g")).unwrap();
    assert!(read.len() == 20 * MIB && read.iter().all(|byte| *byte == 0));
    env.snap_in("first", ["verify", "--data"]).succeeds();
}
