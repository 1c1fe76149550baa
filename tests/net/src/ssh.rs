//! An SSH server of OpenSSH's, for SFTP, over the files of this machine.

use std::{
    fs::Permissions,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// Programs that are called, and where they may be besides the `PATH`.
const PROGRAMS: [&str; 3] = ["sshd", "ssh", "ssh-keygen"];
const PLACES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// An `sshd` on a port of its own that lets the user in who runs the test,
/// stopped when it is dropped.
#[derive(Debug)]
pub struct SshServer {
    child: Child,
    folder: TempDir,
    port: u16,
}

impl SshServer {
    /// Starts one; `None` where OpenSSH is not installed.
    ///
    /// # Panics
    /// When it is installed, and does not start.
    pub fn start() -> Option<Self> {
        let [sshd, ssh, keygen] = PROGRAMS.map(find);
        let (sshd, ssh, keygen) = (sshd?, ssh?, keygen?);
        let folder = tempfile::tempdir().expect("a folder can be made");
        for key in ["host", "user"] {
            let mut make = Command::new(&keygen);
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.path().join(key));
            assert!(make.status().expect("it is there").success(), "ssh-keygen makes a key");
        }
        let port = free_port();
        configure(folder.path(), port, &ssh);
        // As root it wants a folder that a package makes only where there is an init.
        let _not_root = fs_err::create_dir("/run/sshd");
        let mut command = Command::new(sshd);
        command.args(["-D", "-e", "-f"]).arg(folder.path().join("sshd_config"));
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("it is there");
        let mut lines = BufReader::new(child.stderr.take().expect("it was asked for")).lines();
        let mut said = String::new();
        loop {
            let line = lines.next().and_then(Result::ok);
            let line = line.unwrap_or_else(|| panic!("sshd does not start:{said}"));
            if line.contains("listening on") {
                break;
            }
            said = format!("{said}\n{line}");
        }
        // Read on, or it waits for somebody to do so.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { child, folder, port })
    }

    /// `HOST:PORT`.
    pub fn authority(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// Private key that is let in.
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("user")
    }

    /// A `PATH` whose `ssh` knows the server, and reads and changes nothing of
    /// the user's.
    pub fn path(&self) -> String {
        let rest = std::env::var("PATH").unwrap_or_default();
        format!("{}:{rest}", self.folder.path().join("bin").display())
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(PLACES.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
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
    fs_err::create_dir(folder.join("bin")).expect("a folder can be made");
    write(
        "bin/ssh",
        format!(
            "#!/bin/sh\nexec {} -F none -o UserKnownHostsFile={at}/known_hosts \"$@\"\n",
            ssh.display()
        ),
    );
    let mode = Permissions::from_mode(0o755);
    fs_err::set_permissions(folder.join("bin/ssh"), mode).expect("it was made");
}
