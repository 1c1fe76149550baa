//! Real services inside a test or a benchmark, on 127.0.0.1.
//!
//! Each service runs on a port of its own, in threads and a runtime of its
//! own, from `start` until it is dropped. So it serves child processes as well
//! as the test itself, and a test with a paused clock or none at all:
//!
//! | service | what |
//! |---|---|
//! | [`S3Server`] | S3 with real signatures, in memory, its conditional writes atomic |
//! | [`DavServer`] | WebDAV over a folder |
//! | [`SshServer`] | SFTP over the files of this machine, where OpenSSH is installed |
//! | [`Proxy`] | in front of any of them: counts requests, adds latency, does harm |
//!
//! A client is given the proxy's endpoint instead of the server's. The proxy
//! leaves the `Host` header alone, which S3 clients sign, and the server takes
//! any host.
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
//! Faults strike by the count of requests or by a seed, never by the clock. A
//! test should judge by counts, and by the clock only that something took *at
//! least* as long as it had to.
//!
//! `versitygw.sh`, beside this crate's manifest, runs a command against
//! versitygw, an S3 gateway that others wrote.

mod dav;
mod proxy;
mod s3;
mod serve;
mod ssh;

pub use dav::{DavOptions, DavServer};
pub use proxy::{Counts, Fault, Kind, Proxy, Rule, Seen};
pub use s3::{Conditions, Denied, S3Options, S3Server};
pub use ssh::SshServer;
