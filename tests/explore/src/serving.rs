//! A server that is killed and started again. Its address stays the same: clients reach it through
//! a proxy, which is bound once.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use snap_nettest::Proxy;

/// A server behind a proxy; killed on drop.
#[derive(Debug)]
pub struct Serving {
    proxy: Proxy,
    child: Option<Child>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Serving {
    /// Starts a server from `command`, a command without a subcommand, with `rest` as further
    /// arguments.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(command: Command, rest: &[&str]) -> Self {
        let (child, url) = serve(command, rest);
        Self { proxy: Proxy::start(&url.unwrap()), child: Some(child) }
    }

    /// Returns the proxy.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Returns the location of a repository; an empty name means the only store.
    pub fn url(&self, name: &str) -> String {
        let separator = if name.is_empty() { "" } else { "/" };
        format!("{}{separator}{name}", self.proxy.endpoint())
    }

    /// Kills the server. Requests are reset until it is [started again](Self::restart).
    pub fn kill(&mut self) {
        self.proxy.set_target(None);
        if let Some(mut child) = self.child.take() {
            let _ended = child.kill();
            let _status = child.wait();
        }
    }

    /// Returns true if the server has ended, because it stopped at a step.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    /// Starts a server again, at the same address for clients. It may stop at a step before it
    /// serves.
    pub fn restart(&mut self, command: Command, rest: &[&str]) {
        self.kill();
        let (child, url) = serve(command, rest);
        self.child = Some(child);
        self.proxy.set_target(url.as_deref());
    }
}

/// Starts a server at a free port. Returns its URL, unless it ends before it serves.
///
/// # Panics
/// If the program cannot be run.
pub fn serve(mut command: Command, rest: &[&str]) -> (Child, Option<String>) {
    command.args(["--json", "serve", "--listen", "127.0.0.1:0"]).args(rest);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        return (child, None);
    }
    let record: serde_json::Value = serde_json::from_str(&line).unwrap();
    (child, Some(record["url"].as_str().unwrap().to_owned()))
}
