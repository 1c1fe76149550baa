//! What was asked of remotes: for people a small table, for programs a record.

use std::fmt::Write;

use serde::Serialize;
use snap_remote::service::traffic::{Counts, Kind};

use crate::{
    context::Context,
    ui::{self, size, size::Size},
};

/// What was asked of remotes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StatsJson {
    requests: u64,
    requests_by_kind: serde_json::Map<String, serde_json::Value>,
    bytes_sent: u64,
    bytes_received: u64,
    bytes_needed: u64,
    retries: u64,
}

impl StatsJson {
    /// Takes what was counted.
    pub(crate) fn new(counts: &Counts) -> Self {
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

/// Requests by kind, for a record.
pub(crate) fn by_kind(counts: &Counts) -> serde_json::Map<String, serde_json::Value> {
    let by_kind = Kind::ALL.iter().zip(counts.by_kind);
    by_kind.map(|(kind, count)| (kind.name().to_owned(), count.into())).collect()
}

/// A record of nothing else.
#[derive(Serialize)]
struct OnlyStats {
    version: u32,
    r#type: &'static str,
    stats: StatsJson,
}

/// The table that `--stats` asks for.
fn table(counts: &Counts) -> String {
    let kinds = Kind::ALL.iter().zip(counts.by_kind).filter(|(_, count)| *count > 0);
    let kinds: Vec<String> =
        kinds.map(|(kind, count)| format!("{} {}", size::grouped(count), kind.name())).collect();
    let mut table = format!("requests  {}", size::grouped(counts.requests()));
    if !kinds.is_empty() {
        // Writing to a string does not fail.
        let _ = write!(table, " ({})", kinds.join(", "));
    }
    let _ = write!(table, "\nsent      {}", Size(counts.bytes_sent));
    let _ = write!(table, "\nreceived  {}", Size(counts.bytes_received));
    if counts.bytes_needed > 0 {
        let _ = write!(table, ", {} of it needed", Size(counts.bytes_needed));
    }
    let _ = write!(table, "\nretries   {}", size::grouped(counts.retries));
    table
}

impl Context {
    /// What was asked so far, for the record of a command.
    pub(crate) fn stats(&self) -> StatsJson {
        self.in_record();
        StatsJson::new(&self.network().traffic().counts())
    }

    /// Tells what was asked, if the user wants to know and no record has said
    /// so. A stdout that is gone is no reason to fail at the very end.
    pub(crate) fn tell_stats(&self) {
        if !self.wants_stats() {
            return;
        }
        let counts = self.network().traffic().counts();
        if !self.ui().is_json() {
            return self.ui().report(format_args!("{}", table(&counts)));
        }
        if !self.is_in_record() {
            let stats = StatsJson::new(&counts);
            let mut out = self.ui().plain_out();
            let record = OnlyStats { version: ui::VERSION, r#type: "stats", stats };
            let _ = out.json(&record).and_then(|()| out.finish());
        }
    }
}
