//! Statistics of remotes: a small table for people, a record for programs.

use std::fmt::Write;

use serde::Serialize;
use snap_remote::bucket::traffic::{RequestKind, TrafficCounts};

use crate::{
    context::Context,
    ui::{self, size, size::ByteCount},
};

/// The statistics of remotes as a record.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RemoteStatsJson {
    requests: u64,
    requests_by_kind: serde_json::Map<String, serde_json::Value>,
    bytes_sent: u64,
    bytes_received: u64,
    bytes_needed: u64,
    retries: u64,
}

impl RemoteStatsJson {
    /// Converts the counters.
    pub(crate) fn new(counts: &TrafficCounts) -> Self {
        Self {
            requests: counts.requests(),
            requests_by_kind: by_kind(counts),
            bytes_sent: counts.bytes_sent,
            bytes_received: counts.bytes_received,
            bytes_needed: counts.bytes_needed,
            retries: counts.retries,
        }
    }
}

/// Returns the number of requests by kind, for a record.
fn by_kind(counts: &TrafficCounts) -> serde_json::Map<String, serde_json::Value> {
    let by_kind = RequestKind::ALL.iter().zip(counts.by_kind);
    by_kind.map(|(kind, count)| (kind.name().to_owned(), count.into())).collect()
}

/// A record with statistics only.
#[derive(Serialize)]
struct OnlyStats {
    version: u32,
    r#type: &'static str,
    stats: RemoteStatsJson,
}

/// Formats the table for `--stats`.
fn table(counts: &TrafficCounts) -> String {
    let kinds = RequestKind::ALL.iter().zip(counts.by_kind).filter(|(_, count)| *count > 0);
    let kinds: Vec<String> =
        kinds.map(|(kind, count)| format!("{} {}", size::grouped(count), kind.name())).collect();
    let mut table = format!("requests  {}", size::grouped(counts.requests()));
    if !kinds.is_empty() {
        // Writing to a string does not fail.
        let _ = write!(table, " ({})", kinds.join(", "));
    }
    let _ = write!(table, "\nsent      {}", ByteCount(counts.bytes_sent));
    let _ = write!(table, "\nreceived  {}", ByteCount(counts.bytes_received));
    if counts.bytes_needed > 0 {
        let _ = write!(table, ", {} of it used", ByteCount(counts.bytes_needed));
    }
    let _ = write!(table, "\nretries   {}", size::grouped(counts.retries));
    table
}

impl Context {
    /// Returns the statistics so far, for the record of a command.
    pub(crate) fn stats(&self) -> RemoteStatsJson {
        self.in_record();
        RemoteStatsJson::new(&self.network().traffic().counts())
    }

    /// Prints the statistics if the user requested them and no record contained them. Ignores a
    /// closed stdout at the very end.
    pub(crate) fn print_stats(&self) {
        if !self.wants_stats() {
            return;
        }
        let counts = self.network().traffic().counts();
        if !self.ui().is_json() {
            // The settings may be unreadable, which the command has reported.
            let cost = self.cost().ok().filter(|cost| !cost.is_free());
            let cost = cost.map(|cost| format!("\ncost      {cost}")).unwrap_or_default();
            return self.ui().report(format_args!("{}{cost}", table(&counts)));
        }
        if !self.is_in_record() {
            let stats = RemoteStatsJson::new(&counts);
            let mut out = self.ui().plain_out();
            let record = OnlyStats { version: ui::VERSION, r#type: "stats", stats };
            let _ = out.json(&record).and_then(|()| out.finish());
        }
    }
}
