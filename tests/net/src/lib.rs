//! Real services for tests and benchmarks, on 127.0.0.1.
//!
//! Each service runs on its own port, with its own threads and runtime, from `start` until it is
//! dropped. So it serves child processes as well as the test itself, and tests with a paused
//! clock or without a runtime:
//!
//! | service | what |
//! |---|---|
//! | [`S3Server`] | S3 in memory, with real signatures and atomic conditional writes |
//! | [`DavServer`] | WebDAV over a folder |
//! | [`SshServer`] | SFTP over the files of this machine, if OpenSSH is installed |
//! | [`CutProxy`] | in front of `SshServer`: cuts connections |
//! | [`Proxy`] | in front of the other servers: counts requests, adds latency, injects faults |
//!
//! A client gets the endpoint of the proxy instead of that of the server. The proxy does not
//! change the `Host` header, which S3 clients sign, and the server accepts any host.
//!
//! ```
//! use snap_nettest::{Fault, Kind, Proxy, Rule, S3Options, S3Server};
//!
//! let server = S3Server::start(S3Options::default());
//! let proxy = Proxy::start(&server.endpoint());
//! proxy.add(Rule::new(Fault::LoseReply).kind(Kind::Put).path("refs/").times(1));
//! // … `snap push` with `server.environment(&proxy.endpoint())` …
//! assert_eq!(proxy.counts().total, 0);
//! ```
//!
//! Faults depend on the count of requests or on a seed, never on the clock. A test should judge
//! by counts. By the clock it should judge only that something took *at least* as long as it had
//! to.
//!
//! `versitygw.sh`, beside the manifest of this crate, runs a command against versitygw, an
//! independent S3 gateway.

mod cut;
mod dav;
mod proxy;
mod s3;
mod serve;
mod ssh;

pub use cut::CutProxy;
pub use dav::{DavOptions, DavServer};
pub use proxy::{Counts, Fault, Gate, Kind, Proxy, Rule, Seen};
pub use s3::{Conditions, Denied, S3Options, S3Server};
pub use ssh::SshServer;
