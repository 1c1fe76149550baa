//! `snap remote check`: what can be done at a location, tried for real.
//!
//! All is done under one key that nobody else uses, and removed in the end,
//! whatever happened before.

use std::{io::Write, path::Path, time::Duration};

use bytes::Bytes;
use serde::Serialize;
use snap_core::{base::limits, disk::scratch::unique_name, repo::Config};
use snap_remote::{
    service::{Conditions, ServiceError, Version, What, When, client::Client},
    store::{CONFIG, INDEX, Mirror, RemoteError},
};
use tokio::time::Instant;

use crate::{
    context::Context,
    remote::{Memory, Place, StatsJson},
    report::{CliError, Done},
    ui::Out,
};

/// The trial of a write where nothing is.
const IF_ABSENT: &str = "if absent";

/// The trial of a write where something is as it was.
const IF_UNCHANGED: &str = "if unchanged";

/// Reads that are timed.
const ROUNDS: usize = 5;

/// What is written.
const TEXT: &[u8] = b"written by `snap remote check`, which removes it\n";

/// What one trial came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Can {
    /// It works.
    Yes,
    /// It does not, and snap needs it.
    No,
    /// It does not, and snap does without.
    NotNeeded,
    /// It was not tried, because something before failed.
    Untried,
}

#[derive(Serialize)]
struct TrialJson {
    name: &'static str,
    can: Can,
    why: Option<String>,
}

#[derive(Serialize)]
struct CheckJson<'a> {
    version: u32,
    r#type: &'static str,
    remote: Option<&'a str>,
    location: String,
    possible: bool,
    has_store: Option<bool>,
    trials: &'a [TrialJson],
    round_trip_min_ms: Option<f64>,
    round_trip_median_ms: Option<f64>,
    stats: StatsJson,
}

/// Trials so far, each told as it is known.
struct Trials<'a> {
    cx: &'a Context,
    out: Out,
    done: Vec<TrialJson>,
    /// The first error of a service, which says most.
    first: Option<ServiceError>,
}

/// What was found besides.
#[derive(Default)]
struct Found {
    has_store: Option<bool>,
    times: Vec<Duration>,
}

pub(super) fn run(remote: Option<&str>, cx: &Context) -> Result<Done, CliError> {
    let place = cx.remote(remote.into())?;
    let client = cx.client(&place)?;
    let mut trials = Trials { cx, out: cx.ui().plain_out(), done: Vec::new(), first: None };
    let found = cx.runtime()?.block_on(trials.run(&client))?;
    if cx.cancelled() {
        return Err(RemoteError::Interrupted.into());
    }
    let Trials { mut out, done, first, .. } = trials;
    let refused: Vec<_> = done.iter().filter(|trial| trial.can == Can::No).collect();
    let mut times = found.times;
    times.sort_unstable();
    let millis = |time: &Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    if cx.ui().is_json() {
        out.json(&CheckJson {
            version: 1,
            r#type: "remote-check",
            remote: place.name.as_deref(),
            location: place.location.to_string(),
            possible: refused.is_empty(),
            has_store: found.has_store,
            trials: &done,
            round_trip_min_ms: times.first().map(millis),
            round_trip_median_ms: times.get(times.len() / 2).map(millis),
            stats: cx.stats(),
        })?;
    } else if let (Some(least), Some(median)) = (times.first(), times.get(times.len() / 2)) {
        let (least, median) = (millis(least), millis(median));
        writeln!(out, "round trip      {least} ms at least, {median} ms in the middle")?;
    }
    if let (Some(has_store), false) = (found.has_store, cx.ui().is_json()) {
        let text = if has_store { "there is one" } else { "none yet; `snap push` makes one" };
        writeln!(out, "store           {text}")?;
    }
    out.finish()?;
    if let Some(is_kept) = conditions_kept(&done) {
        let (cache, _scratch) = place.cache(Memory::Kept, cx)?;
        Mirror::correct_conditions(&cache, is_kept).map_err(RemoteError::from)?;
    }
    ended(&place, &refused, first, cx)
}

/// Whether the service keeps to all conditions that were tried; `None` unless that is certain.
fn conditions_kept(done: &[TrialJson]) -> Option<bool> {
    let tried = done.iter().filter(|trial| trial.name == IF_ABSENT || trial.name == IF_UNCHANGED);
    let kept = tried.map(|trial| match trial.can {
        Can::Yes => Some(true),
        Can::NotNeeded => Some(false),
        Can::No | Can::Untried => None,
    });
    let kept: Vec<bool> = kept.collect::<Option<_>>()?;
    (kept.len() == 2).then(|| kept.iter().all(|kept| *kept))
}

/// How the command ends: what failed first says most about what to do.
fn ended(
    place: &Place,
    refused: &[&TrialJson],
    first: Option<ServiceError>,
    cx: &Context,
) -> Result<Done, CliError> {
    if refused.is_empty() {
        let shown = place.shown();
        cx.ui().status(format_args!("All that snap needs is possible at {shown}"));
        return Ok(Done::Well);
    }
    if let Some(error) = first {
        return Err(RemoteError::Service(error).into());
    }
    let names: Vec<_> = refused.iter().map(|trial| trial.name).collect();
    let what = format!("{} does not work", names.join(", "));
    Err(CliError::Unfit { location: place.location.to_string(), what })
}

impl Trials<'_> {
    fn tell(&mut self, name: &'static str, can: Can, why: Option<String>) -> Result<(), CliError> {
        if !self.cx.ui().is_json() {
            let said = match can {
                Can::Yes => "yes",
                Can::No => "NO",
                Can::NotNeeded => "no, and not needed",
                Can::Untried => "not tried",
            };
            let why = why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            writeln!(self.out, "{name:<15} {said}{why}")?;
            self.out.flush()?;
        }
        self.done.push(TrialJson { name, can, why });
        Ok(())
    }

    /// Tells a trial, and whether it went well.
    fn tried<T>(
        &mut self,
        name: &'static str,
        result: Result<T, ServiceError>,
    ) -> Result<Option<T>, CliError> {
        match result {
            Ok(value) => {
                self.tell(name, Can::Yes, None)?;
                Ok(Some(value))
            }
            Err(error) => {
                self.tell(name, Can::No, Some(error.to_string()))?;
                self.first.get_or_insert(error);
                Ok(None)
            }
        }
    }

    async fn run(&mut self, client: &Client) -> Result<Found, CliError> {
        let mut found = Found::default();
        let listed = client.list(INDEX).await;
        // With keys that are wrong all others would only say the same in other words.
        let is_shut = |error: &ServiceError| {
            matches!(error.what, What::Unreachable | What::Unauthenticated | What::Expired)
        };
        let is_shut = listed.as_ref().is_err_and(is_shut);
        let has_index = listed.as_ref().is_ok_and(|listed| !listed.is_empty());
        self.tried("list", listed)?;
        if is_shut {
            for name in ["read", "write", "remove"] {
                self.tell(name, Can::Untried, None)?;
            }
            return Ok(found);
        }
        let mut settings = None;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let read = client.find(CONFIG, limits::CONFIG_BYTES).await;
            let Ok(object) = read else {
                self.tried("read", read)?;
                break;
            };
            found.times.push(start.elapsed());
            found.has_store = Some(object.is_some());
            settings = object;
        }
        let lost = "config.toml is lost, and all else is there".to_owned();
        let harm = match settings {
            None if found.has_store.is_some() && has_index => Some(lost),
            None => None,
            Some(object) => {
                let text = std::str::from_utf8(&object.bytes).unwrap_or("");
                let config = Config::parse(text, Path::new(CONFIG));
                config.err().map(|error| format!("they cannot be used: {error}"))
            }
        };
        if let Some(why) = harm {
            self.tell("settings", Can::No, Some(why))?;
        }
        if !found.times.is_empty() {
            self.tell("read", Can::Yes, None)?;
        }
        if client.is_made_first() {
            let why = "what is written there is part of a push";
            self.tell("write", Can::Untried, Some(why.to_owned()))?;
            self.tell("remove", Can::Untried, None)?;
            return Ok(found);
        }
        let key = format!("tmp/{}", unique_name("check"));
        let bytes = Bytes::from_static(TEXT);
        let written = client.write(&key, bytes, When::Always).await;
        if matches!(&written, Err(error) if error.what == What::Stopped) {
            // It may be there all the same.
            let _ = client.clear_away(&key).await;
        }
        let Some(version) = self.tried("write", written)? else {
            self.tell("remove", Can::Untried, None)?;
            return Ok(found);
        };
        let rest = self.written(client, (&key, version)).await;
        let removed = client.clear_away(&key).await;
        rest?;
        self.tried("remove", removed)?;
        Ok(found)
    }

    /// What can be tried once something is there.
    async fn written(
        &mut self,
        client: &Client,
        (key, version): (&str, Option<Version>),
    ) -> Result<(), CliError> {
        let back = client.read_whole(key, limits::CONFIG_BYTES).await;
        match self.tried("read back", back)? {
            Some(object) if object.bytes != TEXT => {
                self.tell("content", Can::No, Some("what comes back is not what went".to_owned()))?;
            }
            _ => {}
        }
        let Conditions { absent, unchanged } = client.conditions();
        let without = || Some("refs are claimed before they move".to_owned());
        match absent {
            true => {
                let taken = client.write(key, Bytes::from_static(TEXT), When::Absent).await;
                self.kept(IF_ABSENT, taken.map(drop))?;
            }
            false => self.tell(IF_ABSENT, Can::NotNeeded, without())?,
        }
        let Some(version) = version.filter(|_| unchanged) else {
            return self.tell(IF_UNCHANGED, Can::NotNeeded, without());
        };
        let new = Bytes::from_static(b"changed\n");
        let changed = client.write(key, new.clone(), When::Unchanged(version.clone())).await;
        if changed.as_ref().is_err_and(|error| error.what == What::Conflict) {
            let why = "it refuses a condition that holds, so refs are claimed before they move";
            return self.tell(IF_UNCHANGED, Can::NotNeeded, Some(why.to_owned()));
        }
        if let Err(error) = changed {
            return self.kept(IF_UNCHANGED, Err(error));
        }
        let stale = client.write(key, new, When::Unchanged(version)).await;
        self.kept(IF_UNCHANGED, stale.map(drop))
    }

    /// A write on a condition that did not hold.
    fn kept(
        &mut self,
        name: &'static str,
        result: Result<(), ServiceError>,
    ) -> Result<(), CliError> {
        match result {
            Err(error) if error.what == What::Conflict => self.tell(name, Can::Yes, None),
            Err(error) if error.what == What::Unsupported => {
                let why = "refs are claimed before they move";
                self.tell(name, Can::NotNeeded, Some(why.to_owned()))
            }
            Err(error) => self.tried(name, Err::<(), _>(error)).map(drop),
            Ok(()) => {
                let why = "it writes all the same, so refs are claimed before they move";
                self.tell(name, Can::NotNeeded, Some(why.to_owned()))
            }
        }
    }
}
