//! A client with random steps, and the journal of the results that it got.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use snap_testkit::rng::Rng;

use crate::{
    network::{Pace, service::Service},
    steps::{Stop, stop_at},
};

/// Time limit of a command, whatever the network does.
pub(crate) const LONGEST: Duration = Duration::from_secs(240);

/// The branch that all clients push to.
pub(crate) const SHARED: &str = "main";

/// The events of all clients, in the order of each client.
#[derive(Default)]
pub(crate) struct Journal {
    events: Mutex<Vec<Event>>,
    faults: Mutex<Vec<String>>,
    /// Number of commands that failed because the remote was full.
    full: AtomicU64,
}

/// What a client tried, and whether it got a success.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Full name of the branch or tag.
    pub(crate) name: String,
    /// The requested commit; `None` for a deletion.
    pub(crate) commit: Option<String>,
    pub(crate) is_acknowledged: bool,
}

impl Journal {
    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.lock().clone()
    }

    /// Returns the number of commands that failed because the remote was full.
    pub(crate) fn full(&self) -> u64 {
        self.full.load(SeqCst)
    }

    fn tried(&self, name: &str, commit: Option<&str>, is_acknowledged: bool) {
        let (name, commit) = (name.to_owned(), commit.map(str::to_owned));
        self.events.lock().push(Event { name, commit, is_acknowledged });
    }

    pub(crate) fn fault(&self, text: String) {
        self.faults.lock().push(text);
    }
}

/// The result of a command.
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The moment at which a command is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kill {
    /// At this step.
    At(u64),
    /// After this time.
    After(Duration),
}

/// Most steps of a command before it is killed.
const STEPS: u64 = 40;

/// Runs a command to its end, or kills it. A command that panics or exceeds the time limit is a
/// fault.
pub(crate) fn run(command: &mut Command, kill: Option<Kill>, journal: &Journal) -> Ran {
    if let Some(Kill::At(step)) = kill {
        stop_at(command, step, Stop::Kill);
    }
    let mut child = command.spawn().unwrap();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |from: &mut dyn std::io::Read| {
        let mut bytes = Vec::new();
        let _closed = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let stdout = thread::spawn(move || read(&mut out.by_ref()));
    let stderr = thread::spawn(move || {
        let mut bytes = Vec::new();
        let _closed = err.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if matches!(kill, Some(Kill::After(time)) if began.elapsed() > time) {
            child.kill().unwrap();
        }
        if began.elapsed() > LONGEST {
            child.kill().unwrap();
            journal.fault(format!("{command:?} ran for more than {LONGEST:?}"));
            break child.wait().unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    };
    let ran = Ran { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() };
    // The words of remotes, servers and the system for a full disk.
    if ran.stderr.to_lowercase().contains("no space left") {
        journal.full.fetch_add(1, SeqCst);
    }
    if ran.stderr.contains("panicked") {
        journal.fault(format!("{command:?} panicked: {}", ran.stderr));
    }
    ran
}

/// One of several clients of a remote.
pub(crate) struct Client<'s> {
    number: usize,
    rng: Rng,
    service: &'s Service,
    journal: &'s Journal,
    count: u64,
}

impl<'s> Client<'s> {
    pub(crate) fn new(
        number: usize,
        seed: u64,
        service: &'s Service,
        journal: &'s Journal,
    ) -> Self {
        let mut client = Self { number, rng: Rng::new(seed), service, journal, count: 0 };
        for (folder, branch) in
            [(client.shared(), SHARED.to_owned()), (client.own(), client.branch())]
        {
            let made = client.snap(&folder, &["init"]);
            assert!(made.status.success(), "{}", made.stderr);
            client.write(&folder);
            let made = client.snap(&folder, &["commit", "-q", "-b", &branch]);
            assert!(made.status.success(), "{}", made.stderr);
            let location = service.location(number);
            let options = service.options();
            let mut add = vec!["remote", "add", "origin", &*location];
            add.extend(options.iter().map(String::as_str));
            let made = client.snap(&folder, &add);
            assert!(made.status.success(), "{}", made.stderr);
        }
        client
    }

    fn home(&self) -> String {
        format!("client{}", self.number)
    }

    /// The project whose branch all clients push to.
    fn shared(&self) -> PathBuf {
        self.service.folder(&format!("{}/shared", self.home()))
    }

    /// The project whose branch only this client pushes.
    fn own(&self) -> PathBuf {
        self.service.folder(&format!("{}/own", self.home()))
    }

    fn branch(&self) -> String {
        format!("own/{}", self.number)
    }

    fn snap(&self, folder: &Path, args: &[&str]) -> Ran {
        let mut command = self.service.command(&self.home());
        run(command.current_dir(folder).args(args), None, self.journal)
    }

    /// As [`Self::snap`], but kills one command in eight at a random moment.
    fn snap_or_kill(&mut self, folder: &Path, args: &[&str]) -> Ran {
        let kill = (self.rng.below(8) == 0).then(|| match self.service.pace() {
            Pace::Counted => Kill::At(1 + self.rng.below(STEPS)),
            Pace::Timed => Kill::After(Duration::from_millis(self.rng.below(600))),
        });
        let mut command = self.service.command(&self.home());
        run(command.current_dir(folder).args(args), kill, self.journal)
    }

    /// Writes a file whose name no other client uses.
    fn write(&mut self, folder: &Path) {
        self.count += 1;
        let mut bytes = vec![0; self.rng.below(60_000) as usize];
        self.rng.fill(&mut bytes);
        fs_err::write(folder.join(format!("file-{}-{}", self.number, self.count % 7)), bytes)
            .unwrap();
    }

    fn commit(&mut self, folder: &Path) -> Option<String> {
        self.write(folder);
        let made = self.snap(folder, &["commit"]);
        made.status.success().then(|| made.stdout.trim().to_owned())
    }

    /// Runs one random step.
    pub(crate) fn step(&mut self) {
        match self.rng.below(10) {
            0..=3 => self.push_shared(),
            4..=5 => self.push_own(&[]),
            6 => self.force_own(),
            7 => self.delete_own(),
            8 => self.push_tag(),
            _ => self.clone_all(),
        }
    }

    /// Pulls the shared branch, adds a commit and pushes it.
    fn push_shared(&mut self) {
        let folder = self.shared();
        // Drops commits that were not pushed. The pull fails if the branch does not exist yet.
        let pulled = self.snap_or_kill(&folder, &["pull", "--force", "origin", SHARED]);
        if pulled.status.success() {
            let args = ["restore", SHARED, "--overwrite", "--delete", "--yes"];
            let restored = self.snap(&folder, &args);
            if !restored.status.success() {
                self.journal.fault(format!("a restore after a pull: {}", restored.stderr));
                return;
            }
        }
        let Some(id) = self.commit(&folder) else {
            // A killed pull may have moved the branch, and then the commit is refused.
            if pulled.status.success() {
                self.journal.fault("a commit after a pull fails".to_owned());
            }
            return;
        };
        let pushed = self.snap_or_kill(&folder, &["push", "origin", SHARED]);
        self.journal.tried("heads/main", Some(&id), pushed.status.success());
    }

    fn push_own(&mut self, options: &[&str]) {
        let (folder, branch) = (self.own(), self.branch());
        let Some(id) = self.commit(&folder) else {
            self.journal.fault("a commit to the client's own branch fails".to_owned());
            return;
        };
        let args: Vec<&str> =
            ["push"].iter().chain(options).copied().chain(["origin", &*branch]).collect();
        let pushed = self.snap_or_kill(&folder, &args);
        self.journal.tried(&format!("heads/{branch}"), Some(&id), pushed.status.success());
    }

    /// Moves the branch back by one commit, adds another commit and force-pushes it.
    fn force_own(&mut self) {
        let (folder, branch) = (self.own(), self.branch());
        let moved = self.snap(&folder, &["branch", "--force", &branch, &format!("{branch}~1")]);
        if moved.status.success() {
            self.snap(&folder, &["restore", &branch, "--overwrite", "--yes"]);
        }
        self.push_own(&["--force"]);
    }

    fn delete_own(&mut self) {
        let (folder, branch) = (self.own(), self.branch());
        let pushed = self.snap_or_kill(&folder, &["push", "origin", "--delete", &branch]);
        self.journal.tried(&format!("heads/{branch}"), None, pushed.status.success());
    }

    fn push_tag(&mut self) {
        let folder = self.own();
        let name = format!("tag-{}-{}", self.number, self.count);
        let told = self.snap(&folder, &["log", "-n", "1", "--json"]);
        let id = told.stdout.lines().next().and_then(|line| {
            let record: serde_json::Value = serde_json::from_str(line).ok()?;
            record["id"].as_str().map(str::to_owned)
        });
        let made = self.snap(&folder, &["tag", &name]);
        if let (Some(id), true) = (id, made.status.success()) {
            let pushed = self.snap_or_kill(&folder, &["push", "origin", &name]);
            self.journal.tried(&format!("tags/{name}"), Some(&id), pushed.status.success());
        }
    }

    /// Clones in one of three ways. A successful full clone must verify.
    fn clone_all(&mut self) {
        self.count += 1;
        let into = self.service.folder(&self.home()).join(format!("clone{}", self.count));
        let (location, dir) = (self.service.location(self.number), into.display().to_string());
        let mut args = vec!["clone", &*location, &*dir];
        let options = self.service.options();
        args.extend(options.iter().map(String::as_str));
        args.extend(match self.rng.below(3) {
            0 => &["--depth", "1"][..],
            1 => &["--no-restore"][..],
            _ => &[],
        });
        let folder = self.service.folder(&self.home());
        let cloned = self.snap_or_kill(&folder, &args);
        if cloned.status.success() && !args.contains(&"--depth") {
            let verified = self.snap(&into, &["verify", "--data"]);
            if !verified.status.success() {
                self.journal.fault(format!("a successful clone is damaged: {}", verified.stderr));
            }
        }
        let _gone = fs_err::remove_dir_all(&into);
    }
}
