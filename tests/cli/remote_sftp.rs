//! A remote over SFTP: `ssh` processes after a killed command or a lost connection.

use std::{
    path::PathBuf,
    process::{Child, Stdio},
    time::{Duration, SystemTime},
};

use rustix::process::{Pid, Signal, getpgid, kill_process};
use snap_nettest::SshServer;
use snap_testkit::{rng::Rng, skip::skip_without_program, wait::until};

use crate::{
    env::TestEnv,
    remote::{env, says},
};

/// Number of bytes that a push sends.
const BYTES: usize = 12 << 20;

struct Scene {
    server: SshServer,
    env: TestEnv,
}

impl Scene {
    /// Makes a store whose remote is a folder behind an `sshd`; `None` if OpenSSH is not installed.
    fn new() -> Option<Self> {
        let Some(server) = SshServer::start() else {
            skip_without_program("a test of SFTP", "sshd");
            return None;
        };
        let mut env = env();
        env.set("PATH", &server.path());
        let mut bytes = vec![0; BYTES];
        Rng::new(1).fill(&mut bytes);
        env.write("work/large", bytes);
        env.snap_in("work", ["commit", "-qm", "two"]).succeeds();
        let scene = Self { server, env };
        scene.add("origin", &scene.server.authority(), &scene.server.key());
        Some(scene)
    }

    fn add(&self, name: &str, authority: &str, key: &std::path::Path) {
        let location = format!("sftp://{authority}{}", self.there("").display());
        let key = format!("key={}", key.display());
        let add = ["remote", "add", name, &location, "--option", &key];
        self.env.snap_in("work", add).succeeds();
    }

    fn there(&self, key: &str) -> PathBuf {
        self.env.path("there").join(key)
    }

    /// Lists the temporary files of the remote.
    fn aside(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs_err::read_dir(self.there("tmp")) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Starts a push, and returns when it has sent a part of a pack; it then continues for some
    /// seconds.
    fn pushing(&self) -> Child {
        let mut command = self.env.command("work");
        command.args(["--json", "push", "--limit-upload", "4M"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let large = |path: &PathBuf| fs_err::metadata(path).is_ok_and(|meta| meta.len() > 1 << 20);
        until("a part of a pack has arrived", || self.aside().iter().any(large));
        child
    }

    fn is_whole(&self) {
        let location = format!("sftp://{}{}", self.server.authority(), self.there("").display());
        let key = format!("key={}", self.server.key().display());
        let clone = ["clone", "-q", &location, "copy", "--option", &key];
        self.env.snap(clone).succeeds();
        self.env.snap_in("copy", ["verify", "--data"]).succeeds();
        assert_eq!(self.env.read("copy/notes.txt"), "first\n");
    }
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.try_into().unwrap()).unwrap()
}

#[test]
fn a_push_that_is_killed_leaves_no_ssh_and_the_next_one_clears_up() {
    let Some(scene) = Scene::new() else { return };
    let mut push = scene.pushing();
    let clients = scene.server.clients();
    assert!(!clients.is_empty());
    let group = |process: Pid| getpgid(Some(process)).unwrap();
    let groups: Vec<Pid> = clients.into_iter().map(|client| group(pid(client))).collect();
    let own = group(Pid::from_child(&push));
    push.kill().unwrap();
    push.wait().unwrap();
    until("every ssh has ended", || scene.server.clients().is_empty());
    // Ctrl-C signals the whole process group of the command, which still needs its connections to
    // clean up.
    assert!(!groups.contains(&own));
    let left = scene.aside();
    assert!(!left.is_empty());
    let before = SystemTime::now() - Duration::from_secs(3600);
    for path in &left {
        let file = fs_err::OpenOptions::new().write(true).open(path).unwrap();
        file.file().set_modified(before).unwrap();
    }
    // One file belongs to another program; the other one may still be in use.
    fs_err::write(scene.there("tmp/other"), "x").unwrap();
    fs_err::write(scene.there("tmp/put-young"), "x").unwrap();
    scene.env.snap_in("work", ["push"]).succeeds();
    let mut kept = scene.aside();
    kept.sort();
    assert_eq!(kept, [scene.there("tmp/other"), scene.there("tmp/put-young")]);
    scene.is_whole();
    until("every ssh has ended", || scene.server.clients().is_empty());
}

#[test]
fn a_push_goes_on_over_a_new_connection() {
    let Some(scene) = Scene::new() else { return };
    let push = scene.pushing();
    for client in scene.server.clients() {
        kill_process(pid(client), Signal::KILL).unwrap();
    }
    let output = push.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(record["stats"]["retries"].as_u64().unwrap() > 0, "{record}");
    assert!(scene.aside().is_empty(), "{:?}", scene.aside());
    scene.is_whole();
}

#[test]
fn what_ssh_says_is_told_and_not_tried_again_in_vain() {
    let Some(scene) = Scene::new() else { return };
    let unknown = scene.server.authority().replace("127.0.0.1", "localhost");
    scene.add("unknown", &unknown, &scene.server.key());
    scene.add("refused", &scene.server.authority(), &scene.server.other_key());
    // A port that was free a moment ago, so nothing listens there.
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = socket.local_addr().unwrap();
    drop(socket);
    scene.add("nobody", &nobody.to_string(), &scene.server.key());
    for (name, said, hint, is_tried_again) in [
        ("unknown", "Host key verification failed", "known-hosts", false),
        ("refused", "Permission denied (publickey", "hint: test with `ssh", false),
        ("nobody", "Connection refused", "check the host name and the network", true),
    ] {
        let before = scene.server.started();
        let ran = scene.env.snap_in("work", ["push", name]);
        says(&ran, 1, &[said, hint]);
        let attempts = scene.server.started() - before;
        assert_eq!(attempts > 1, is_tried_again, "{name}: {attempts} attempts");
    }
    assert!(!scene.there("").exists(), "the remote folder was created");
}
