//! An OpenSSH server, for SFTP over the files of this machine.

use std::{
    fs::Permissions,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use snap_testkit::programs::find;
use tempfile::TempDir;

/// The programs that are run.
const PROGRAMS: [&str; 3] = ["sshd", "ssh", "ssh-keygen"];

/// Ports that are tried.
const PORTS: usize = 10;

/// An `sshd` on its own port that accepts the user who runs the test. Stopped on drop.
#[derive(Debug)]
pub struct SshServer {
    child: Child,
    folder: TempDir,
    port: u16,
}

impl SshServer {
    /// Returns true if OpenSSH is installed.
    pub fn is_installed() -> bool {
        PROGRAMS.iter().all(|name| find(name).is_some())
    }

    /// Starts a server; returns `None` if OpenSSH is not installed.
    ///
    /// # Panics
    /// If OpenSSH is installed but does not start.
    pub fn start() -> Option<Self> {
        let [sshd, ssh, keygen] = PROGRAMS.map(find);
        let (sshd, ssh, keygen) = (sshd?, ssh?, keygen?);
        let folder = tempfile::tempdir().expect("a folder can be made");
        for key in ["host", "user"] {
            let mut make = Command::new(&keygen);
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.path().join(key));
            assert!(
                make.status().expect("ssh-keygen was found").success(),
                "ssh-keygen makes a key"
            );
        }
        // As root, `sshd` needs a folder that its package creates only on machines with an init
        // system.
        let _not_root = fs_err::create_dir("/run/sshd");
        // Another process may take a port between the moment that it is found free and the start.
        let mut said = String::new();
        let started = (0..PORTS).find_map(|_| {
            let port = free_port();
            configure(folder.path(), port, &ssh);
            let mut command = Command::new(&sshd);
            command.args(["-D", "-e", "-f"]).arg(folder.path().join("sshd_config"));
            let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
            let mut child = child.expect("sshd was found");
            let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
            for line in lines.by_ref().map_while(Result::ok) {
                if line.contains("listening on") {
                    return Some((child, lines, port));
                }
                said = format!("{said}\n{line}");
            }
            let _status = child.wait();
            None
        });
        let (child, lines, port) = started.unwrap_or_else(|| panic!("sshd does not start:{said}"));
        // Drains the log; otherwise `sshd` blocks when the pipe is full.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { child, folder, port })
    }

    /// Returns how often a client has started `ssh` with [`Self::path`].
    pub fn started(&self) -> usize {
        let log = fs_err::read_to_string(self.folder.path().join("started"));
        log.unwrap_or_default().lines().count()
    }

    /// `HOST:PORT`.
    pub fn authority(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes the server known to clients at another port as well.
    ///
    /// # Panics
    /// If the list of known hosts cannot be written.
    pub fn is_known_at(&self, port: u16) {
        let path = self.folder.path().join("known_hosts");
        let known = fs_err::read_to_string(&path).expect("`start` wrote the file");
        let (from, to) =
            [self.port, port].map(|port| format!("[{}]:{port}", Ipv4Addr::LOCALHOST)).into();
        fs_err::write(path, format!("{known}{}", known.replace(&from, &to)))
            .expect("a file can be written");
    }

    /// Returns the private key that the server accepts.
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("user")
    }

    /// Returns a private key that the server does not accept.
    pub fn other_key(&self) -> PathBuf {
        self.folder.path().join("host")
    }

    /// Returns the `ssh` processes that were started with [`Self::path`] and still run.
    ///
    /// # Panics
    /// Without `/proc`.
    pub fn clients(&self) -> Vec<u32> {
        let folder = self.folder.path().as_os_str().as_encoded_bytes();
        let is_client = |pid: &u32| {
            let read = |name: &str| fs_err::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let environment = read("environ");
            read("comm") == b"ssh\n"
                && environment.windows(folder.len()).any(|window| window == folder)
        };
        let processes = fs_err::read_dir("/proc").expect("/proc is mounted");
        let names = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter_map(|name| name.parse().ok()).filter(is_client).collect()
    }

    /// Returns a `PATH` whose `ssh` knows the server, and neither reads nor changes files of the
    /// user.
    pub fn path(&self) -> String {
        let rest = std::env::var("PATH").unwrap_or_default();
        format!("{}:{rest}", self.folder.path().join("bin").display())
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        // The process may have exited by itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

fn free_port() -> u16 {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    socket.local_addr().expect("a bound socket has an address").port()
}

fn configure(folder: &Path, port: u16, ssh: &Path) {
    let at = folder.display();
    let write = |name: &str, text: String| {
        fs_err::write(folder.join(name), text).expect("a file can be written");
    };
    let read = |name: &str| fs_err::read_to_string(folder.join(name)).expect("it was made");
    write("authorized_keys", read("user.pub"));
    write("known_hosts", format!("[{}]:{port} {}", Ipv4Addr::LOCALHOST, read("host.pub")));
    write(
        "sshd_config",
        format!(
            "Port {port}\nListenAddress {}\nHostKey {at}/host\nPidFile none\nUsePAM no\n\
             AuthorizedKeysFile {at}/authorized_keys\nStrictModes no\nPermitRootLogin yes\n\
             PasswordAuthentication no\nSubsystem sftp internal-sftp\n",
            Ipv4Addr::LOCALHOST
        ),
    );
    fs_err::create_dir_all(folder.join("bin")).expect("a folder can be made");
    write(
        "bin/ssh",
        format!(
            "#!/bin/sh\necho >>{at}/started\nexec {} -F none -o UserKnownHostsFile={at}/known_hosts \"$@\"\n",
            ssh.display()
        ),
    );
    let mode = Permissions::from_mode(0o755);
    fs_err::set_permissions(folder.join("bin/ssh"), mode).expect("it was made");
}
