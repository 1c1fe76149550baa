//! A server that is started, killed and restarted at the same address.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

/// A server, killed on drop.
pub(crate) struct Serving {
    child: Child,
    /// `127.0.0.1:PORT`
    pub(crate) address: String,
}

impl Serving {
    /// Starts a server from `command`, with `rest` as further arguments. Without an address it
    /// takes a free port.
    pub(crate) fn start(mut command: Command, address: Option<&str>, rest: &[&str]) -> Self {
        let listen = address.unwrap_or("127.0.0.1:0");
        command.args(["--json", "serve", "--listen", listen]).args(rest);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let record: serde_json::Value = serde_json::from_str(&line).unwrap();
        let url = record["url"].as_str().unwrap();
        Self { child, address: url.trim_start_matches("http://").to_owned() }
    }

    /// Returns the location of a repository; an empty name means the only store.
    pub(crate) fn url(&self, name: &str) -> String {
        let separator = if name.is_empty() { "" } else { "/" };
        format!("http://{}{separator}{name}", self.address)
    }

    /// Kills the server, and returns its address, which is then free.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.address.clone()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
