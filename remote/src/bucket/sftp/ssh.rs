//! Arguments of `ssh`, and the meaning of its errors.

use std::{ffi::OsString, process::Stdio, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    io::AsyncReadExt as _,
    process::{ChildStderr, Command},
};

use crate::bucket::FailureReason;

/// Seconds that `ssh` waits for a connection: fewer than the timeout of one attempt, so that the
/// user sees the error of `ssh`.
const CONNECT_SECS: u32 = 20;

/// Seconds of silence after which `ssh` probes the server, and unanswered probes after which it
/// gives up. Without probes, a request on a connection that a router has dropped would wait for
/// the TCP timeout of 15 minutes.
const ALIVE: (u32, u32) = (10, 3);

/// Number of bytes to keep from the end of stderr.
const SAID_BYTES: usize = 4096;

/// Number of lines of stderr that an error message shows.
const LINES: usize = 2;

/// What `ssh` does with the key of an unknown host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KnownHosts {
    /// Refuses the host.
    #[default]
    Strict,
    /// Accepts every key, even one that differs from the known key.
    Accept,
    /// Accepts and saves the key of an unknown host.
    Add,
}

impl KnownHosts {
    /// Returns the value for an option text.
    pub fn parse(text: &str) -> Option<Self> {
        match text.to_lowercase().as_str() {
            "strict" => Some(Self::Strict),
            "accept" => Some(Self::Accept),
            "add" => Some(Self::Add),
            _ => None,
        }
    }

    fn as_option(self) -> &'static str {
        match self {
            Self::Strict => "StrictHostKeyChecking=yes",
            Self::Accept => "StrictHostKeyChecking=no",
            Self::Add => "StrictHostKeyChecking=accept-new",
        }
    }
}

/// The host of an SFTP location, and the login on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshHost {
    /// Name or address. An IPv6 address has no brackets.
    pub name: String,
    /// Port; `None` uses the `ssh` configuration of the user.
    pub port: Option<u16>,
    /// User on the host; `None` uses the `ssh` configuration of the user.
    pub user: Option<String>,
    /// File of the private key. If given, `ssh` tries no other key.
    pub key: Option<String>,
    /// What to do with a host that `ssh` does not know.
    pub known_hosts: KnownHosts,
}

impl SshHost {
    /// Splits `[user@]host[:port]`, with an IPv6 address in brackets.
    pub fn parse(authority: &str) -> Self {
        let (user, host) = match authority.split_once('@') {
            Some((user, host)) => (Some(user.to_owned()), host),
            None => (None, authority),
        };
        let with_port = host.rsplit_once(':');
        let with_port = with_port.and_then(|(name, port)| Some((name, port.parse().ok()?)));
        let (name, port) = match with_port {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        };
        let name = name.trim_matches(['[', ']']).to_owned();
        Self { name, port, user, key: None, known_hosts: KnownHosts::default() }
    }

    /// Returns the arguments with which `ssh` speaks SFTP on stdin and stdout.
    fn arguments(&self) -> Vec<OsString> {
        let mut options = vec![
            // Never ask on the terminal.
            "BatchMode=yes".to_owned(),
            self.known_hosts.as_option().to_owned(),
            format!("ConnectTimeout={CONNECT_SECS}"),
            format!("ServerAliveInterval={}", ALIVE.0),
            format!("ServerAliveCountMax={}", ALIVE.1),
            // A control master outlives the command that started it. So do not start one, even if
            // the user's configuration has `ControlMaster auto`. But use an existing master of the
            // user, which saves a login.
            "ControlMaster=no".to_owned(),
            // Like sftp(1) and scp(1): these options of the user's configuration are for shells,
            // and a second connection would fail to bind a forwarded port again.
            "ClearAllForwardings=yes".to_owned(),
            "ForwardAgent=no".to_owned(),
            "PermitLocalCommand=no".to_owned(),
            "RemoteCommand=none".to_owned(),
            "RequestTTY=no".to_owned(),
        ];
        if self.key.is_some() {
            options.push("IdentitiesOnly=yes".to_owned());
            // A master may have logged in with another key, which may have other permissions.
            options.push("ControlPath=none".to_owned());
        }
        let mut arguments: Vec<OsString> = options
            .into_iter()
            .flat_map(|option| ["-o".to_owned(), option])
            .map(Into::into)
            .collect();
        let mut add = |flag: &str, value: &str| {
            arguments.extend([OsString::from(flag), OsString::from(value)]);
        };
        if let Some(key) = &self.key {
            add("-i", key);
        }
        if let Some(port) = self.port {
            add("-p", &port.to_string());
        }
        if let Some(user) = &self.user {
            add("-l", user);
        }
        arguments.extend(["-s", "--", &self.name, "sftp"].map(OsString::from));
        arguments
    }

    /// Returns the command. The process exits when its pipes close, even if this process is
    /// killed.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new("ssh");
        command.args(self.arguments());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C in a terminal goes to the whole foreground process group. `ssh` must live until
        // this process has removed its claims.
        command.process_group(0).kill_on_drop(true);
        command
    }
}

/// The end of the stderr of one `ssh` process.
#[derive(Clone, Debug, Default)]
pub(super) struct SshStderr(Arc<Mutex<Vec<u8>>>);

impl SshStderr {
    /// Starts a task that reads stderr until it is closed.
    pub(super) fn listen(&self, mut stderr: ChildStderr) -> tokio::task::JoinHandle<()> {
        let tail = self.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 1024];
            while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
                tail.add(&buffer[..length]);
            }
        })
    }

    fn add(&self, bytes: &[u8]) {
        let mut bytes_kept = self.0.lock();
        bytes_kept.extend_from_slice(bytes);
        let surplus = bytes_kept.len().saturating_sub(SAID_BYTES);
        bytes_kept.drain(..surplus);
    }

    /// Returns the last lines without control characters; empty without any output.
    pub(super) fn last_lines(&self) -> String {
        let bytes_kept = self.0.lock();
        let text = String::from_utf8_lossy(&bytes_kept);
        let clean = |line: &str| -> String {
            line.trim().chars().filter(|char| !char.is_control()).take(300).collect()
        };
        // Warnings about a saved host key or an old key exchange are not errors.
        let is_warning = |line: &str| line.starts_with("Warning: Perm") || line.starts_with("** ");
        let is_news = |line: &String| !line.is_empty() && !is_warning(line);
        let lines: Vec<String> = text.lines().map(clean).filter(is_news).collect();
        lines[lines.len().saturating_sub(LINES)..].join(" ")
    }
}

/// Parts of messages with which `ssh` exits before SFTP begins, and their meanings. The first match
/// counts. Without a match, the client does not retry.
const MESSAGES: [(&str, FailureReason); 17] = [
    ("Host key verification failed", FailureReason::HostKey),
    ("Permission denied", FailureReason::Unauthenticated),
    ("Too many authentication failures", FailureReason::Unauthenticated),
    ("No more authentication methods", FailureReason::Unauthenticated),
    ("subsystem request failed", FailureReason::Unsupported),
    ("Could not resolve hostname", FailureReason::Unreachable),
    ("Connection refused", FailureReason::Unreachable),
    ("No route to host", FailureReason::Unreachable),
    ("Network is unreachable", FailureReason::Unreachable),
    ("onnection timed out", FailureReason::Unreachable),
    ("Operation timed out", FailureReason::Unreachable),
    // A server with too many concurrent logins (`MaxStartups`) closes some of them.
    ("Connection closed", FailureReason::Temporary),
    ("onnection reset", FailureReason::Temporary),
    ("Broken pipe", FailureReason::Temporary),
    ("not responding", FailureReason::Temporary),
    ("kex_exchange_identification", FailureReason::Temporary),
    ("banner exchange", FailureReason::Temporary),
];

/// Returns the meaning of a message with which `ssh` exited before SFTP began.
pub(super) fn reason_of_message(message: &str) -> FailureReason {
    let found = MESSAGES.iter().find(|(part, _)| message.contains(part));
    found.map_or(FailureReason::Other, |(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(host: &SshHost) -> String {
        let arguments = host.arguments();
        arguments.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ssh_gets_a_port_and_a_user_only_if_specified() {
        for (authority, end) in [
            ("nas", " -s -- nas sftp"),
            ("nas:2222", " -p 2222 -s -- nas sftp"),
            ("ada@192.0.2.1:22", " -p 22 -l ada -s -- 192.0.2.1 sftp"),
            ("[::1]", " -s -- ::1 sftp"),
            ("[::1]:2222", " -p 2222 -s -- ::1 sftp"),
            ("ada@[fe80::1%eth0]:22", " -p 22 -l ada -s -- fe80::1%eth0 sftp"),
        ] {
            let words = words(&SshHost::parse(authority));
            assert!(words.ends_with(end), "{words}");
            assert!(words.contains("-o StrictHostKeyChecking=yes "), "{words}");
        }
    }

    #[test]
    fn ssh_starts_no_master_and_reuses_none_of_another_key() {
        let host = SshHost::parse("nas");
        let with_key = SshHost {
            key: Some("~/.ssh/backup".to_owned()),
            known_hosts: KnownHosts::parse("Add").unwrap(),
            ..host.clone()
        };
        assert!(words(&host).contains("ControlMaster=no") && !words(&host).contains("ControlPath"));
        let words = words(&with_key);
        for option in [
            "-i ~/.ssh/backup",
            "ControlMaster=no",
            "ControlPath=none",
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=accept-new",
        ] {
            assert!(words.contains(option), "{words}");
        }
    }

    #[test]
    fn ssh_messages_are_classified_by_failure_reason() {
        for (message, what) in [
            ("ada@nas: Permission denied (publickey).", FailureReason::Unauthenticated),
            ("Host key verification failed.", FailureReason::HostKey),
            ("ssh: connect to host nas port 22: Connection refused", FailureReason::Unreachable),
            (
                "ssh: Could not resolve hostname nas: Name or service not known",
                FailureReason::Unreachable,
            ),
            ("subsystem request failed on channel 0", FailureReason::Unsupported),
            (
                "kex_exchange_identification: Connection closed by remote host",
                FailureReason::Temporary,
            ),
            ("command-line: line 0: Bad configuration option: x", FailureReason::Other),
            ("", FailureReason::Other),
        ] {
            assert_eq!(reason_of_message(message), what, "{message}");
        }
    }

    #[test]
    fn the_last_lines_of_ssh_are_reported() {
        let said = SshStderr::default();
        said.add(&[b'x'; 2 * SAID_BYTES]);
        said.add(b"\r\nNo key is known for nas.\r\n\x1b[1mHost key verification failed.\r\n\r\n");
        said.add(b"Warning: Permanently added 'nas' to the list of known hosts.\r\n");
        said.add(b"** WARNING: connection is not using a post-quantum key exchange.\r\n");
        let told = "No key is known for nas. [1mHost key verification failed.";
        assert_eq!(said.last_lines(), told);
    }
}
