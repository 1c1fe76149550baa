//! Refs whose names conflict, because one would be a folder of the other, on every kind of service.

use snap_nettest::{Conditions, DavOptions, DavServer, S3Options, S3Server};

use crate::{
    env::{Ran, TestEnv},
    remote::{env, env_of, folder, says},
    serve::Serving,
};

/// What a service leaves at the path of a deleted ref.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The path is free.
    Free,
    /// A file or folder stays, which cannot be removed safely.
    Kept,
}

fn push(env: &TestEnv, url: &str, name: &str) -> Ran {
    env.snap_in("work", ["push", url, name])
}

/// Makes only one of two branches that cannot exist together locally.
fn only(env: &TestEnv, name: &str, other: &str) {
    env.snap_in("work", ["branch", "-d", other]);
    env.snap_in("work", ["branch", "--force", name]).succeeds();
}

#[track_caller]
fn refused(env: &TestEnv, url: &str, (name, other): (&str, &str)) {
    only(env, name, other);
    let beside = format!("`heads/{name}` conflicts with `heads/{other}`");
    says(&push(env, url, name), 1, &[&beside, "hint: choose another name"]);
}

fn keeps_names_apart(env: &TestEnv, url: &str, place: Place) {
    env.snap_in("work", ["push", "-q", url, "main"]).succeeds();
    for (first, second) in [("x", "x/y"), ("a/b", "a")] {
        only(env, first, second);
        push(env, url, first).succeeds();
        refused(env, url, (second, first));
        let listed = env.snap(["ls", &format!("{url}#{second}")]);
        assert_eq!(listed.code, Some(1), "{url}: {}", listed.stderr);
        env.snap_in("work", ["push", url, "--delete", first]).succeeds();
        let ran = push(env, url, second);
        if place == Place::Kept {
            says(&ran, 1, &["which was deleted there", "hint: ", "of another name"]);
            // The name itself can be used again.
            only(env, first, second);
            push(env, url, first).succeeds();
            continue;
        }
        says(&ran, 0, &[&format!("{second} -> {second}  new branch")]);
        // The same in the other direction.
        refused(env, url, (first, second));
        env.snap_in("work", ["push", url, "--delete", second]).succeeds();
        only(env, first, second);
        push(env, url, first).succeeds();
    }
    env.snap(["clone", "-q", url, "copy"]).succeeds();
    env.snap_in("copy", ["verify", "--data"]).succeeds();
    for name in ["x", "a/b"] {
        env.snap_in("copy", ["log", "-n", "1", &format!("origin/{name}")]).succeeds();
    }
}

#[test]
fn a_folder_keeps_names_of_refs_apart() {
    let env = env();
    keeps_names_apart(&env, &folder(&env, "there"), Place::Free);
}

#[test]
fn a_local_store_keeps_names_of_refs_apart() {
    let env = env();
    env.snap(["--store", "there", "init", "-q"]).succeeds();
    keeps_names_apart(&env, &folder(&env, "there"), Place::Free);
}

#[test]
fn a_server_keeps_names_of_refs_apart() {
    let env = env();
    fs_err::create_dir(env.path("stores")).unwrap();
    let serving = Serving::start(&env, "stores");
    keeps_names_apart(&env, &format!("{}/one", serving.url), Place::Free);
}

#[test]
fn buckets_with_and_without_conditions_keep_names_of_refs_apart() {
    for conditions in [Conditions::Kept, Conditions::Ignored] {
        let server = S3Server::start(S3Options::default());
        server.set_conditions(conditions);
        let env = env_of(&server, &server.endpoint());
        keeps_names_apart(&env, "s3://bucket/one", Place::Free);
    }
}

#[test]
fn a_share_keeps_names_of_refs_apart() {
    let (env, server) = (env(), DavServer::start(DavOptions::default()));
    let url = format!("{}/one", server.endpoint().replacen("http", "webdav", 1));
    keeps_names_apart(&env, &url, Place::Kept);
}

/// Characters with a meaning in URLs, and encoded ones, in names that are different refs.
const RESERVED: [&str; 8] =
    ["fix", "fix#12", "p%41q", "pAq", "rel%2F1", "main#wip", "a&b=c+d", "x<y>`z"];

/// Pushes each name at its own commit, and deletes some. Only these refs may change.
fn names_reach_the_ref_of_that_name(env: &TestEnv, url: &str) {
    env.snap_in("work", ["push", "-q", url, "main"]).succeeds();
    let commit = |args: &[&str]| env.snap_in("work", args.iter().copied()).succeeds().stdout;
    let main = commit(&["show", "--json", "main"]);
    let mut commits = Vec::new();
    for name in RESERVED {
        commit(&["commit", "-q", "--allow-empty", "-m", name, "-b", name]);
        push(env, url, name).succeeds();
        commits.push((name, commit(&["show", "--json", name])));
    }
    let deleted = ["main#wip", "rel%2F1"];
    for name in deleted {
        env.snap_in("work", ["push", url, "--delete", name]).succeeds();
    }
    env.snap(["clone", "-q", url, "copy"]).succeeds();
    commits.push(("main", main));
    for (name, pushed) in commits {
        let cloned = env.snap_in("copy", ["show", "--json", &format!("origin/{name}")]);
        match deleted.contains(&name) {
            true => assert_eq!(cloned.code, Some(1), "{url}: {name}"),
            false => assert_eq!(cloned.succeeds().stdout, pushed, "{url}: {name}"),
        }
    }
}

#[test]
fn reserved_characters_in_names_reach_the_ref_of_that_name_on_servers_and_relays() {
    let (env, relayed) = (env(), self::env());
    fs_err::create_dir(env.path("stores")).unwrap();
    let serving = Serving::start(&env, "stores");
    names_reach_the_ref_of_that_name(&env, &format!("{}/one", serving.url));
    let relay = Serving::with(&relayed, &["--upstream", &serving.url]);
    names_reach_the_ref_of_that_name(&relayed, &format!("{}/two", relay.url));
}

#[test]
fn reserved_characters_in_names_reach_the_ref_of_that_name_on_other_services() {
    let server = S3Server::start(S3Options::default());
    let env = env_of(&server, &server.endpoint());
    names_reach_the_ref_of_that_name(&env, "s3://bucket/one");
    let (env, server) = (self::env(), DavServer::start(DavOptions::default()));
    let url = format!("{}/one", server.endpoint().replacen("http", "webdav", 1));
    names_reach_the_ref_of_that_name(&env, &url);
    let env = self::env();
    names_reach_the_ref_of_that_name(&env, &folder(&env, "there"));
}

/// Two pushes that are killed after they have written their refs leave both.
#[test]
fn two_refs_of_which_one_is_a_folder_of_the_other_block_nothing_else() {
    let server = S3Server::start(S3Options::default());
    let env = env_of(&server, &server.endpoint());
    let url = "s3://bucket/one";
    env.snap_in("work", ["push", "-q", url, "main"]).succeeds();
    only(&env, "x", "x/y");
    push(&env, url, "x").succeeds();
    let text = server.get("one/refs/heads/x").unwrap();
    server.put("one/refs/heads/x/y", text.clone());
    server.put("one/refs/heads/main/junk", "junk");
    let named = ["refs/heads/x/y at ", "conflicts with refs/heads/x", "refs/heads/main/junk"];
    let ran = env.snap(["verify", url]);
    says(&ran, 4, &["snap push s3://bucket/one --delete refs/heads/x/y"]);
    for named in named {
        assert!(ran.stdout.contains(named), "{}", ran.stdout);
    }
    for dir in ["whole", "shallow"] {
        let depth: &[&str] = if dir == "shallow" { &["--depth", "1"] } else { &[] };
        let ran = env.snap([&["clone", url, dir], depth].concat());
        let hint = "`snap push origin --delete refs/heads/x/y` removes it there";
        says(&ran, 4, &["refs/heads/x/y at ", "it was skipped", hint]);
        env.snap_in(dir, ["log", "-n", "1", "origin/x"]).succeeds();
        assert_eq!(env.read(&format!("{dir}/notes.txt")), env.read("work/notes.txt"));
    }
    env.snap_in("whole", ["fetch"]).succeeds();
    env.snap_in("whole", ["pull", "-q"]).succeeds();
    // A server before the bucket serves everything else, and new commits.
    let serving = Serving::start(&env, url);
    env.snap(["clone", "-q", &serving.url, "served"]).succeeds();
    env.write("whole/more.txt", "more");
    env.snap_in("whole", ["commit", "-qm", "more"]).succeeds();
    env.snap_in("whole", ["push", "-q"]).succeeds();
    env.snap_in("served", ["pull", "-q"]).succeeds();
    env.snap_in("served", ["log", "-n", "1", "origin/x"]).succeeds();
    assert_eq!(env.snap_in("served", ["cat", "main:more.txt"]).succeeds().stdout, "more");
    // The shorter name is deleted, and then the other one is served.
    says(&env.snap_in("whole", ["push", "--delete", "x"]), 0, &["x  deleted"]);
    assert!(server.remove("one/refs/heads/main/junk"));
    env.snap(["verify", url]).succeeds();
    env.snap(["clone", "-q", &serving.url, "again"]).succeeds();
    env.snap_in("again", ["log", "-n", "1", "origin/x/y"]).succeeds();
    // And the longer one.
    server.put("one/refs/heads/x", text);
    env.snap_in("whole", ["push", "-q", "--delete", "refs/heads/x/y"]).succeeds();
    env.snap(["verify", url]).succeeds();
    env.snap(["clone", "-q", &serving.url, "last"]).succeeds();
    env.snap_in("last", ["log", "-n", "1", "origin/x"]).succeeds();
}

#[test]
fn a_branch_that_became_a_folder_of_branches_at_the_remote_is_pulled() {
    let env = TestEnv::new();
    let url = format!("file://{}", env.path("there").display());
    env.write("ann/a.txt", "one");
    env.snap_in("ann", ["commit", "-b", "x"]).succeeds();
    env.snap_in("ann", ["push", &url, "x"]).succeeds();
    env.snap(["clone", &url, "bob", "--ref", "x"]).succeeds();
    env.snap_in("ann", ["push", &url, "--delete", "x"]).succeeds();
    env.snap_in("ann", ["branch", "main", "x"]).succeeds();
    env.snap_in("ann", ["branch", "--switch", "main"]).succeeds();
    env.snap_in("ann", ["branch", "-d", "x"]).succeeds();
    env.snap_in("ann", ["branch", "x/y"]).succeeds();
    env.snap_in("ann", ["push", &url, "x/y"]).succeeds();
    env.snap_in("bob", ["branch", "main"]).succeeds();
    env.snap_in("bob", ["branch", "--switch", "main"]).succeeds();
    env.snap_in("bob", ["branch", "-d", "x"]).succeeds();
    env.snap_in("bob", ["pull", "origin", "x/y"]).succeeds();
    env.snap_in("bob", ["show", "origin/x/y"]).succeeds();
}
