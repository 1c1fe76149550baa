//! A remote of some kind, behind proxies that do harm.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};

use snap_nettest::{Conditions, DavOptions, DavServer, Fault, Proxy, Rule, S3Options, S3Server};
use snap_testkit::rng::{Rng, mix};

/// Share of the requests that each rule strikes.
const CHANCE: f64 = 0.02;

/// What clients push to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A bucket that keeps conditions of writes.
    Bucket,
    /// A bucket that takes no notice of conditions.
    LaxBucket,
    /// `snap serve` over a folder.
    Server,
    /// `snap serve` before a bucket.
    Gateway,
    /// Two `snap serve` before one bucket.
    Replicas,
    /// `snap serve` before another `snap serve`.
    Relay,
    /// A WebDAV server.
    Dav,
    /// A folder.
    Folder,
    /// A store that commits go to.
    Store,
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Bucket,
        Self::LaxBucket,
        Self::Server,
        Self::Gateway,
        Self::Replicas,
        Self::Relay,
        Self::Dav,
        Self::Folder,
        Self::Store,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::LaxBucket => "lax-bucket",
            Self::Server => "server",
            Self::Gateway => "gateway",
            Self::Replicas => "replicas",
            Self::Relay => "relay",
            Self::Dav => "dav",
            Self::Folder => "folder",
            Self::Store => "store",
        }
    }

    /// Whether refs move by a compare-and-swap of the service, and not under
    /// claims. A claim cannot protect from answers that are invented.
    fn swaps(self) -> bool {
        !matches!(self, Self::LaxBucket | Self::Dav)
    }
}

/// A process of `snap serve`, started again at the same address.
struct Served {
    child: Child,
    address: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A remote that runs, with its proxies.
pub(crate) struct Service {
    pub(crate) kind: Kind,
    seed: u64,
    dir: tempfile::TempDir,
    bucket: Option<S3Server>,
    dav: Option<DavServer>,
    served: Vec<Mutex<Option<Served>>>,
    /// Before the service, one for each way to it.
    front: Vec<Proxy>,
    /// Between a server and what is behind it.
    back: Option<Proxy>,
}

impl Service {
    pub(crate) fn start(kind: Kind, seed: u64) -> Self {
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let mut service = Self {
            kind,
            seed,
            dir: dir.unwrap(),
            bucket: None,
            dav: None,
            served: Vec::new(),
            front: Vec::new(),
            back: None,
        };
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
                let dav = DavServer::start(DavOptions::default());
                service.front.push(Proxy::start(&dav.endpoint()));
                service.dav = Some(dav);
            }
            Kind::Store => {
                let mut init = service.bare("remote");
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
            let served = service.serve(number, None);
            let proxy = Proxy::start(&format!("http://{}", served.address));
            service.served.push(Mutex::new(Some(served)));
            match (kind, number) {
                (Kind::Relay, 0) => service.back = Some(proxy),
                _ => service.front.push(proxy),
            }
        }
        for (number, proxy) in service.front.iter().chain(&service.back).enumerate() {
            harm(proxy, kind, mix(seed, number as u64));
        }
        service
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command with an environment of its own that reaches the service.
    pub(crate) fn command(&self, home: &str) -> Command {
        let mut command = self.bare(home);
        if let (Some(bucket), Some(proxy)) = (&self.bucket, self.front.first()) {
            command.envs(bucket.environment(&proxy.endpoint()));
        }
        command
    }

    fn bare(&self, home: &str) -> Command {
        let home = self.path(home);
        fs_err::create_dir_all(&home).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_snap"));
        let vars = [("SNAP_AUTHOR", "ann"), ("SNAP_HOST", "box"), ("TZ", "UTC"), ("TERM", "dumb")];
        command.env_clear().envs(vars).env("HOME", &home).current_dir(&home);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A folder of a client, which is there.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs_err::create_dir_all(&path).unwrap();
        path
    }

    /// The location that the client of this number is given.
    pub(crate) fn location(&self, client: usize) -> String {
        let front = || self.front[client % self.front.len()].endpoint();
        match self.kind {
            Kind::Bucket | Kind::LaxBucket => "s3://bucket/first".to_owned(),
            Kind::Server | Kind::Gateway | Kind::Replicas | Kind::Relay => {
                format!("{}/one", front())
            }
            Kind::Dav => format!("{}/first", front().replacen("http", "webdav", 1)),
            Kind::Folder => format!("file://{}", self.path("remote").display()),
            Kind::Store => format!("file://{}", self.path("remote/store").display()),
        }
    }

    /// Starts the server of this number.
    fn serve(&self, number: usize, address: Option<&str>) -> Served {
        let mut command = self.bare(&format!("server{number}"));
        command.args(["--json", "serve", "--listen", address.unwrap_or("127.0.0.1:0")]);
        match (self.kind, number) {
            (Kind::Relay, 1) => {
                let back = self.back.as_ref().unwrap().endpoint();
                command.args(["--upstream", &back]);
            }
            (Kind::Server | Kind::Relay, _) => {
                command.arg(self.folder("served"));
            }
            _ => {
                let (bucket, back) = (self.bucket.as_ref().unwrap(), self.back.as_ref().unwrap());
                command.envs(bucket.environment(&back.endpoint())).arg("s3://bucket/all");
            }
        }
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let record: serde_json::Value = serde_json::from_str(&line).unwrap();
        let url = record["url"].as_str().unwrap();
        Served { child, address: url.trim_start_matches("http://").to_owned() }
    }

    /// Kills servers, removes their caches and starts them again, until it is over.
    pub(crate) fn disturb_until(&self, is_over: impl Fn() -> bool) {
        let mut rng = Rng::new(mix(self.seed, 77));
        while !is_over() {
            let pause = Duration::from_millis(1000 + rng.below(4000));
            let began = std::time::Instant::now();
            while began.elapsed() < pause && !is_over() {
                thread::sleep(Duration::from_millis(20));
            }
            if self.served.is_empty() || is_over() {
                continue;
            }
            let number = rng.index(self.served.len());
            let mut served = self.served[number].lock().unwrap();
            let address = served.take().map(|served| served.address.clone()).unwrap();
            if rng.below(2) == 0 {
                // What a server keeps for itself may be lost at any time.
                let _none = fs_err::remove_dir_all(self.path(&format!("server{number}/.cache")));
            }
            *served = Some(self.serve(number, Some(&address)));
        }
    }

    /// Ends all harm.
    pub(crate) fn become_sound(&self) {
        for proxy in self.front.iter().chain(&self.back) {
            proxy.clear_rules();
        }
    }
}

/// Has a proxy do some kinds of harm, drawn from the seed.
fn harm(proxy: &Proxy, kind: Kind, seed: u64) {
    let mut faults = vec![
        Fault::Delay(Duration::from_millis(300)),
        Fault::Reset,
        Fault::LoseReply,
        Fault::status(503),
        Fault::retry_after(429, 1),
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
    if kind.swaps() {
        faults.extend([Fault::Late(Duration::from_millis(700)), Fault::status(404)]);
    }
    let mut rng = Rng::new(seed);
    for number in 0..5 {
        let fault = faults.swap_remove(rng.index(faults.len()));
        proxy.add(Rule::new(fault).chance(CHANCE, mix(seed, number)));
    }
}
