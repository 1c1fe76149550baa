//! A remote of some kind, behind faulty proxies.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use snap_nettest::{
    Conditions, CutProxy, DavOptions, DavServer, Fault, Kind as Request, Proxy, Rule, S3Options,
    S3Server, SshServer,
};
use snap_testkit::{
    mounts::{self, mount_memory},
    rng::{Rng, mix},
};

use crate::{
    network::{Pace, Plan, client::Journal},
    serving::serve,
};

/// Share of the requests to which each rule applies.
const CHANCE: f64 = 0.02;

/// Share of the SFTP connections that are cut.
const CUT: f64 = 0.2;

/// Share of the reads of refs and listings that are stale while stale reads are on.
const STALE_CHANCE: f64 = 0.5;

/// Size in KiB of the disk that may become full: more than a run fills.
const DISK: u64 = 64 << 10;

/// Most space that is left on a full disk, in KiB.
const SPARE: u64 = 64;

/// Folder of the disk that may become full. It has the stores and folders that are pushed to, the
/// folder of a server, and the caches of servers.
const DISK_NAME: &str = "disk";

/// The kinds of remotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A bucket that honours conditional writes.
    Bucket,
    /// A bucket that ignores conditions.
    LaxBucket,
    /// `snap serve` over a folder.
    Server,
    /// `snap serve` in front of a bucket.
    Gateway,
    /// Two `snap serve` in front of one bucket.
    Replicas,
    /// `snap serve` in front of another `snap serve`.
    Relay,
    /// A WebDAV server.
    Dav,
    /// An SFTP server.
    Sftp,
    /// A folder.
    Folder,
    /// A local store that commits go to.
    Store,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Bucket,
        Self::LaxBucket,
        Self::Server,
        Self::Gateway,
        Self::Replicas,
        Self::Relay,
        Self::Dav,
        Self::Sftp,
        Self::Folder,
        Self::Store,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::LaxBucket => "lax-bucket",
            Self::Server => "server",
            Self::Gateway => "gateway",
            Self::Replicas => "replicas",
            Self::Relay => "relay",
            Self::Dav => "dav",
            Self::Sftp => "sftp",
            Self::Folder => "folder",
            Self::Store => "store",
        }
    }

    /// Returns true if the programs that it needs are installed.
    pub fn is_possible(self) -> bool {
        self != Self::Sftp || SshServer::is_installed()
    }

    /// Returns true if refs move by a compare-and-swap of the service, not under claims. Claims
    /// cannot protect against faked answers.
    fn swaps(self) -> bool {
        !matches!(self, Self::LaxBucket | Self::Dav | Self::Sftp)
    }

    /// Returns true if refs and listings may be read stale. Claims cannot protect against that
    /// either.
    fn reads_may_be_stale(self) -> bool {
        matches!(self, Self::Bucket | Self::Server | Self::Gateway | Self::Replicas | Self::Relay)
    }
}

/// How often the faults occurred that are not drawn for each request. Each is a pair: runs in
/// which the fault was possible, and its occurrences.
#[derive(Debug, Default)]
pub struct Struck {
    /// Commands of clients that failed because the disk was full.
    pub full: (u64, u64),
    /// Stale reads.
    pub stale: (u64, u64),
}

impl Struck {
    /// Adds the faults of other runs.
    pub fn join(&mut self, other: &Self) {
        for (own, more) in [(&mut self.full, other.full), (&mut self.stale, other.stale)] {
            own.0 += more.0;
            own.1 += more.1;
        }
    }

    /// Adds the faults of a run.
    pub(crate) fn add(&mut self, service: &Service, journal: &Journal) {
        let proxies = service.front.iter().chain(&service.back);
        let stale: u64 = proxies.map(|proxy| proxy.counts().stale).sum();
        self.full.0 += u64::from(service.can_be_full());
        self.full.1 += journal.full();
        self.stale.0 += u64::from(service.kind.reads_may_be_stale());
        self.stale.1 += stale;
    }
}

/// A temporary fault of a service.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// A server is killed and restarted.
    Restart,
    /// The disk or the bucket is full.
    Full,
    /// Reads of refs and listings are stale.
    Stale,
    /// A connection of a client is cut.
    Cut,
}

/// A `snap serve` process. Clients reach it through a proxy, so it may move to another port.
struct Served {
    child: Child,
    url: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A running remote with its proxies.
pub(crate) struct Service {
    kind: Kind,
    plan: Plan,
    dir: tempfile::TempDir,
    bucket: Option<S3Server>,
    dav: Option<DavServer>,
    ssh: Option<(SshServer, CutProxy)>,
    served: Vec<Mutex<Option<Served>>>,
    /// In front of the service, one for each address.
    front: Vec<Proxy>,
    /// Between a server and the service behind it.
    back: Option<Proxy>,
    /// Set while reads are stale.
    is_stale: Arc<AtomicBool>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.served.clear();
        if mounts::are_own() {
            mounts::tool("umount", ["--lazy".as_ref(), self.disk().as_os_str()]);
        }
    }
}

impl Service {
    pub(crate) fn start(kind: Kind, plan: &Plan) -> Self {
        let seed = mix(plan.seed, kind as u64);
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let mut service = Self {
            kind,
            plan: Plan { seed, ..plan.clone() },
            dir: dir.unwrap(),
            bucket: None,
            dav: None,
            ssh: None,
            served: Vec::new(),
            front: Vec::new(),
            back: None,
            is_stale: Arc::default(),
        };
        fs_err::create_dir(service.disk()).unwrap();
        if mounts::are_own() {
            mount_memory(&service.disk(), DISK);
        }
        match kind {
            Kind::Bucket | Kind::LaxBucket | Kind::Gateway | Kind::Replicas => {
                let bucket = S3Server::start(S3Options::default());
                if kind == Kind::LaxBucket {
                    bucket.set_conditions(Conditions::Ignored);
                }
                let proxy = Proxy::start(&bucket.endpoint());
                match kind {
                    Kind::Gateway | Kind::Replicas => service.back = Some(proxy),
                    _ => service.front.push(proxy),
                }
                service.bucket = Some(bucket);
            }
            Kind::Dav => {
                let inside = Some(service.disk());
                let dav = DavServer::start(DavOptions { inside, ..DavOptions::default() });
                service.front.push(Proxy::start(&dav.endpoint()));
                service.dav = Some(dav);
            }
            Kind::Sftp => {
                let server = SshServer::start().unwrap();
                let proxy = CutProxy::start(server.port());
                server.is_known_at(proxy.port());
                proxy.cut(CUT, seed);
                service.ssh = Some((server, proxy));
            }
            Kind::Store => {
                let mut init = service.bare("disk/remote");
                assert!(init.args(["--store", "store", "init", "-q"]).status().unwrap().success());
            }
            Kind::Server | Kind::Relay | Kind::Folder => {}
        }
        let servers = match kind {
            Kind::Server | Kind::Gateway => 1,
            Kind::Replicas | Kind::Relay => 2,
            _ => 0,
        };
        for number in 0..servers {
            let served = service.serve(number);
            let proxy = Proxy::start(&served.url);
            service.served.push(Mutex::new(Some(served)));
            match (kind, number) {
                (Kind::Relay, 0) => service.back = Some(proxy),
                _ => service.front.push(proxy),
            }
        }
        for (number, proxy) in service.front.iter().chain(&service.back).enumerate() {
            service.harm(proxy, mix(seed, number as u64));
        }
        service
    }

    /// Returns the pace of the run.
    pub(crate) fn pace(&self) -> Pace {
        self.plan.pace
    }

    fn disk(&self) -> PathBuf {
        self.path(DISK_NAME)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a command with its own environment that reaches the service.
    pub(crate) fn command(&self, home: &str) -> Command {
        let mut command = self.bare(home);
        if let Some((server, _)) = &self.ssh {
            command.env("PATH", server.path());
        }
        if let (Some(bucket), Some(proxy)) = (&self.bucket, self.front.first()) {
            command.envs(bucket.environment(&proxy.endpoint()));
        }
        command
    }

    fn bare(&self, home: &str) -> Command {
        let home = self.path(home);
        fs_err::create_dir_all(&home).unwrap();
        let mut command = Command::new(&self.plan.program);
        let vars = [("SNAP_AUTHOR", "ann"), ("SNAP_HOST", "box"), ("TZ", "UTC"), ("TERM", "dumb")];
        command.env_clear().envs(vars).env("HOME", &home).current_dir(&home);
        if self.plan.pace == Pace::Counted {
            command.env("SNAP_JOBS", "1");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Creates and returns a folder of a client.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs_err::create_dir_all(&path).unwrap();
        path
    }

    /// Returns the location for the client with this number.
    pub(crate) fn location(&self, client: usize) -> String {
        let front = || self.front[client % self.front.len()].endpoint();
        match self.kind {
            Kind::Bucket | Kind::LaxBucket => "s3://bucket/first".to_owned(),
            Kind::Server | Kind::Gateway | Kind::Replicas | Kind::Relay => {
                format!("{}/one", front())
            }
            Kind::Dav => format!("{}/first", front().replacen("http", "webdav", 1)),
            Kind::Sftp => {
                let port = self.ssh.as_ref().unwrap().1.port();
                format!("sftp://127.0.0.1:{port}{}", self.path("disk/remote").display())
            }
            Kind::Folder => format!("file://{}", self.path("disk/remote").display()),
            Kind::Store => format!("file://{}", self.path("disk/remote/store").display()),
        }
    }

    /// Returns the options for the location.
    pub(crate) fn options(&self) -> Vec<String> {
        let key = self.ssh.as_ref().map(|(server, _)| format!("key={}", server.key().display()));
        key.into_iter().flat_map(|key| ["--option".to_owned(), key]).collect()
    }

    /// Starts the server with this number.
    fn serve(&self, number: usize) -> Served {
        let mut command = self.bare(&format!("disk/server{number}"));
        let (child, url) = match (self.kind, number) {
            (Kind::Relay, 1) => {
                serve(command, &["--upstream", &self.back.as_ref().unwrap().endpoint()])
            }
            (Kind::Server | Kind::Relay, _) => {
                serve(command, &[self.folder("disk/served").to_str().unwrap()])
            }
            _ => {
                let (bucket, back) = (self.bucket.as_ref().unwrap(), self.back.as_ref().unwrap());
                command.envs(bucket.environment(&back.endpoint()));
                serve(command, &["s3://bucket/all"])
            }
        };
        Served { child, url: url.unwrap() }
    }

    /// Returns the proxy in front of the server with this number.
    fn proxy(&self, number: usize) -> &Proxy {
        match (self.kind, number) {
            (Kind::Relay, 0) => self.back.as_ref().unwrap(),
            (Kind::Relay, _) => &self.front[0],
            _ => &self.front[number],
        }
    }

    fn can_be_full(&self) -> bool {
        self.bucket.is_some() || mounts::are_own()
    }

    /// Returns the temporary faults that this service can have.
    fn troubles(&self) -> Vec<Trouble> {
        let mut troubles = Vec::new();
        if !self.served.is_empty() {
            troubles.push(Trouble::Restart);
        }
        if self.can_be_full() {
            troubles.push(Trouble::Full);
        }
        if self.kind.reads_may_be_stale() {
            troubles.push(Trouble::Stale);
        }
        if self.ssh.is_some() && self.plan.pace == Pace::Timed {
            troubles.push(Trouble::Cut);
        }
        troubles
    }

    /// Does `work`, sometimes with a temporary fault.
    pub(crate) fn disturb(&self, rng: &mut Rng, work: impl FnOnce()) {
        let troubles = self.troubles();
        if troubles.is_empty() || rng.below(3) > 0 {
            return work();
        }
        match troubles[rng.index(troubles.len())] {
            Trouble::Restart => self.restart(rng),
            Trouble::Full => self.fill(rng.below(SPARE)),
            Trouble::Stale => self.is_stale.store(true, SeqCst),
            Trouble::Cut => {}
        }
        work();
        self.is_stale.store(false, SeqCst);
        self.empty();
    }

    /// Causes random temporary faults until `is_over`.
    pub(crate) fn disturb_until(&self, is_over: impl Fn() -> bool) {
        let mut rng = Rng::new(mix(self.plan.seed, 77));
        let troubles = self.troubles();
        let wait = |longest: Duration| {
            let began = Instant::now();
            while began.elapsed() < longest && !is_over() {
                thread::sleep(Duration::from_millis(20));
            }
        };
        while !is_over() {
            wait(Duration::from_millis(500 + rng.below(2500)));
            if troubles.is_empty() || is_over() {
                continue;
            }
            let trouble = troubles[rng.index(troubles.len())];
            let time = Duration::from_millis(500 + rng.below(3000));
            match trouble {
                Trouble::Restart => self.restart(&mut rng),
                Trouble::Full => {
                    self.fill(rng.below(SPARE));
                    wait(time);
                    self.empty();
                }
                Trouble::Cut => {
                    let (server, _) = self.ssh.as_ref().unwrap();
                    self.kill_client(server, &mut rng);
                }
                Trouble::Stale => {
                    self.is_stale.store(true, SeqCst);
                    wait(time);
                    self.is_stale.store(false, SeqCst);
                }
            }
        }
    }

    /// Kills one of the running `ssh` processes.
    fn kill_client(&self, server: &SshServer, rng: &mut Rng) {
        let clients = server.clients();
        if clients.is_empty() {
            return;
        }
        let client = i32::try_from(clients[rng.index(clients.len())]).unwrap();
        let client = rustix::process::Pid::from_raw(client).unwrap();
        let _ended = rustix::process::kill_process(client, rustix::process::Signal::KILL);
    }

    /// Kills and restarts a server, at random without its cache.
    fn restart(&self, rng: &mut Rng) {
        let number = rng.index(self.served.len());
        let loses_cache = rng.below(2) == 0;
        self.start_again(number, loses_cache);
    }

    /// Kills and restarts a server. It may lose its cache at any time.
    fn start_again(&self, number: usize, loses_cache: bool) {
        let mut served = self.served[number].lock();
        self.proxy(number).set_target(None);
        drop(served.take());
        if loses_cache {
            let _none = fs_err::remove_dir_all(self.path(&format!("disk/server{number}/.cache")));
        }
        let next = self.serve(number);
        self.proxy(number).set_target(Some(&next.url));
        *served = Some(next);
    }

    fn filler(&self) -> PathBuf {
        self.disk().join("filler")
    }

    /// Leaves `spare` KiB of free space on the disk and in the bucket.
    fn fill(&self, spare: u64) {
        if let Some(bucket) = &self.bucket {
            let stored: usize = bucket.dump().values().map(bytes::Bytes::len).sum();
            bucket.set_capacity(Some(stored as u64 + (spare << 10)));
        }
        if mounts::are_own() {
            let stat = rustix::fs::statvfs(self.disk()).unwrap();
            let free = (stat.f_bavail * stat.f_frsize).saturating_sub(spare << 10);
            // Other processes write at the same time, so the disk may be full earlier.
            let _full = fs_err::write(self.filler(), vec![0; free as usize]);
        }
    }

    fn empty(&self) {
        if let Some(bucket) = &self.bucket {
            bucket.set_capacity(None);
        }
        let _none = fs_err::remove_file(self.filler());
    }

    /// Ends all faults.
    pub(crate) fn become_sound(&self) {
        if let Some((_, proxy)) = &self.ssh {
            proxy.become_sound();
        }
        for proxy in self.front.iter().chain(&self.back) {
            proxy.clear_rules();
        }
        // For a second after a failure, a server answers with what it last saw of its upstream. A
        // new one asks.
        (0..self.served.len()).for_each(|number| self.start_again(number, false));
    }

    /// Adds random faults to a proxy, drawn from the seed.
    fn harm(&self, proxy: &Proxy, seed: u64) {
        if self.kind.reads_may_be_stale() {
            let is_changing = |path: &str| path.contains("/refs") || path.contains("/index");
            let rule = Rule::new(Fault::Stale).during(Arc::clone(&self.is_stale));
            let rule = rule.test(move |seen| {
                seen.kind == Request::List || seen.kind == Request::Get && is_changing(&seen.path)
            });
            proxy.add(rule.chance(STALE_CHANCE, mix(seed, 1000)));
        }
        let mut faults = vec![
            Fault::Reset,
            Fault::LoseReply,
            Fault::status(503),
            Fault::RefuseAfter(500),
            Fault::RefuseAfter(503),
            Fault::Truncate,
            Fault::FlipReply,
            Fault::CutRequest,
            Fault::Duplicate,
            Fault::IgnoreRange,
            Fault::status(403),
            Fault::Redirect,
            Fault::Pretend,
        ];
        if self.kind.swaps() {
            faults.push(Fault::status(404));
        }
        if self.plan.pace == Pace::Timed {
            faults.extend([Fault::Delay(Duration::from_millis(300)), Fault::retry_after(429, 1)]);
            if self.kind.swaps() {
                faults.push(Fault::Late(Duration::from_millis(700)));
            }
        }
        let mut rng = Rng::new(seed);
        for number in 0..5 {
            let fault = faults.swap_remove(rng.index(faults.len()));
            proxy.add(Rule::new(fault).chance(CHANCE, mix(seed, number)));
        }
    }
}
