//! `snap remote check`: tests the operations that a location supports.
//!
//! All tests use one key that no other process uses. The key is removed at the end, whatever
//! happened before.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;
use snap_core::{
    base::{blocked::Blocked, kind::ErrorKind},
    repo::Config,
};
use snap_remote::{
    bucket::{FailureReason, ServiceError},
    location::Scheme,
    peer::{CONFIG, Mirror, Place, RemoteError, Trial, TrialResult},
};
use tokio::time::Instant;

use crate::{
    context::Context,
    remote::{CachePolicy, RemoteSpec, RemoteStatsJson},
    report::{CliError, CommandOutcome},
    ui::{Out, text},
};

/// Folder of the key.
const TEMPORARY: &str = "tmp";

/// Number of timed reads.
const ROUNDS: usize = 5;

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CheckResult {
    /// The operation works.
    Yes,
    /// The operation does not work, and snap needs it.
    No,
    /// The operation does not work, but snap does not need it.
    NotNeeded,
    /// The operation was not tested, because an earlier test failed.
    Untried,
}

#[derive(Serialize)]
struct TrialJson {
    name: &'static str,
    can: CheckResult,
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
    stats: RemoteStatsJson,
}

/// The tests so far; each is reported immediately.
struct CheckRun<'a> {
    cx: &'a Context,
    out: Out,
    done: Vec<TrialJson>,
    /// The first error of the service, which is the most useful one.
    first: Option<ServiceError>,
    /// True if an earlier command found a store there.
    was_seen: bool,
    /// The folder of the location, if it is a local one.
    folder: Option<PathBuf>,
}

/// Other findings of the tests.
#[derive(Default)]
struct CheckFindings {
    has_store: Option<bool>,
    times: Vec<Duration>,
    /// True if nothing exists at the location, so that writes were not tested.
    is_untried: bool,
}

pub(super) fn run(remote: Option<&str>, cx: &Context) -> Result<CommandOutcome, CliError> {
    let place = cx.remote(remote.into())?;
    let opened = cx.open_place(&place)?;
    let (cache, _scratch) = place.cache(CachePolicy::Kept, cx)?;
    let is_folder = place.location.scheme == Scheme::File;
    let mut trials = CheckRun {
        cx,
        out: cx.ui().plain_out(),
        done: Vec::new(),
        first: None,
        was_seen: Mirror::has_seen(&cache),
        folder: is_folder.then(|| PathBuf::from(&place.location.path)),
    };
    let found = cx.runtime()?.block_on(trials.run(&opened))?;
    if cx.cancelled() {
        return Err(RemoteError::Blocked(Blocked::Interrupted).into());
    }
    let CheckRun { mut out, done, first, was_seen, .. } = trials;
    let is_gone = was_seen && found.has_store == Some(false);
    let refused: Vec<_> = done.iter().filter(|trial| trial.can == CheckResult::No).collect();
    let mut times = found.times;
    times.sort_unstable();
    let millis = |time: &Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    if cx.ui().is_json() {
        out.json(&CheckJson {
            version: 1,
            r#type: "remote-check",
            remote: place.name.as_deref(),
            location: place.location.to_string(),
            possible: refused.is_empty() && !is_gone,
            has_store: found.has_store,
            trials: &done,
            round_trip_min_ms: times.first().map(millis),
            round_trip_median_ms: times.get(times.len() / 2).map(millis),
            stats: cx.stats(),
        })?;
    } else if let (Some(least), Some(median)) = (times.first(), times.get(times.len() / 2)) {
        let (least, median) = (millis(least), millis(median));
        writeln!(out, "round trip      {least} ms minimum, {median} ms median")?;
    }
    if let (Some(has_store), false) = (found.has_store, cx.ui().is_json()) {
        let text = match (has_store, is_gone) {
            (true, _) => "exists",
            (false, true) => "no longer exists",
            (false, false) => "does not exist; `snap push` creates one",
        };
        writeln!(out, "store           {text}")?;
    }
    out.finish()?;
    if is_gone && refused.is_empty() {
        let location = place.location.to_string();
        return Err(RemoteError::Emptied { location }.into());
    }
    if found.is_untried && refused.is_empty() {
        let shown = place.shown();
        cx.ui().status(format_args!("Nothing was written: the folder {shown} does not exist"));
        return Ok(CommandOutcome::Success);
    }
    ended(&place, &refused, first, cx)
}

/// Returns the result of the command. The first error is the most useful one.
fn ended(
    place: &RemoteSpec,
    refused: &[&TrialJson],
    first: Option<ServiceError>,
    cx: &Context,
) -> Result<CommandOutcome, CliError> {
    if refused.is_empty() {
        let shown = place.shown();
        cx.ui().status(format_args!("{shown} supports everything that snap needs"));
        return Ok(CommandOutcome::Success);
    }
    if let Some(error) = first {
        return Err(RemoteError::Service(error).into());
    }
    let names: Vec<_> = refused.iter().map(|trial| trial.name).collect();
    let what = format!("{} does not work", names.join(", "));
    Err(CliError::Unfit { location: place.location.to_string(), what })
}

impl CheckRun<'_> {
    fn record(
        &mut self,
        name: &'static str,
        can: CheckResult,
        why: Option<String>,
    ) -> Result<(), CliError> {
        if !self.cx.ui().is_json() {
            let answer = match can {
                CheckResult::Yes => "yes",
                CheckResult::No => "NO",
                CheckResult::NotNeeded => "no (not needed)",
                CheckResult::Untried => "not tested",
            };
            let why = why.as_deref().map(|why| format!(": {}", text::line(why.as_bytes())));
            let why = why.unwrap_or_default();
            writeln!(self.out, "{name:<15} {answer}{why}")?;
            self.out.flush()?;
        }
        self.done.push(TrialJson { name, can, why });
        Ok(())
    }

    /// Reports a test and its result.
    fn tried<T>(
        &mut self,
        name: &'static str,
        result: Result<T, ServiceError>,
    ) -> Result<Option<T>, CliError> {
        match result {
            Ok(value) => {
                self.record(name, CheckResult::Yes, None)?;
                Ok(Some(value))
            }
            Err(error) => {
                self.record(name, CheckResult::No, Some(error.to_string()))?;
                self.first.get_or_insert(error);
                Ok(None)
            }
        }
    }

    async fn run(&mut self, place: &Place) -> Result<CheckFindings, CliError> {
        let mut found = CheckFindings::default();
        let listed = place.list_index().await.map_err(service_error);
        let listed = listed.map(|listing| listing.files);
        // With wrong credentials, all other tests would only report the same error again.
        let is_shut = |error: &ServiceError| {
            matches!(
                error.reason,
                FailureReason::Unreachable
                    | FailureReason::Unauthenticated
                    | FailureReason::Expired
            )
        };
        let is_shut = listed.as_ref().is_err_and(is_shut);
        let has_index = listed.as_ref().is_ok_and(|listed| !listed.is_empty());
        self.tried("list", listed)?;
        if is_shut {
            for name in ["read", "write", "remove"] {
                self.record(name, CheckResult::Untried, None)?;
            }
            return Ok(found);
        }
        let mut settings = None;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let read = place.config().await.map_err(service_error);
            let Ok(object) = read else {
                self.tried("read", read)?;
                break;
            };
            found.times.push(start.elapsed());
            found.has_store = Some(object.is_some());
            settings = object;
        }
        let lost = "config.toml is missing; the rest of the store exists".to_owned();
        let harm = match settings {
            None if found.has_store.is_some() && has_index => Some(lost),
            None => None,
            Some(object) => {
                let text = std::str::from_utf8(&object).unwrap_or("");
                let config = Config::parse(text, Path::new(CONFIG));
                config.err().map(|error| format!("invalid: {error}"))
            }
        };
        if let Some(why) = harm {
            self.record("settings", CheckResult::No, Some(why))?;
        }
        if !found.times.is_empty() {
            self.record("read", CheckResult::Yes, None)?;
        }
        if has_index && found.has_store == Some(true) {
            self.check_head(place).await;
        }
        // If a disk is not mounted, a write would go into its mount point.
        let why = match &self.folder {
            _ if self.was_seen && found.has_store == Some(false) => {
                Some("the store no longer exists")
            }
            Some(folder) if !folder.exists() => {
                Some("the folder does not exist; a push creates it")
            }
            _ => None,
        };
        if let Some(why) = why {
            self.record("write", CheckResult::Untried, Some(why.to_owned()))?;
            self.record("remove", CheckResult::Untried, None)?;
            return Ok(CheckFindings { is_untried: true, ..found });
        }
        let temporary = self.folder.as_ref().map(|folder| folder.join(TEMPORARY));
        let made = temporary.filter(|temporary| !temporary.exists());
        let trials = place.try_writes().await?;
        if let Some(made) = made {
            // A concurrent push may use the folder.
            let _ = fs_err::remove_dir(made);
        }
        match trials {
            Some(trials) => trials.into_iter().try_for_each(|trial| self.report(trial))?,
            None => {
                let why = "a write there would be part of a push";
                self.record("write", CheckResult::Untried, Some(why.to_owned()))?;
                self.record("remove", CheckResult::Untried, None)?;
            }
        }
        Ok(found)
    }

    /// Warns about a lost or damaged `HEAD`. A push creates it before the first index file.
    async fn check_head(&self, place: &Place) {
        let why = match place.head().await {
            Ok(Some(_)) => return,
            Ok(None) => "is missing",
            Err(error) if error.kind() == ErrorKind::Damaged => "does not name a branch",
            // Another test reports the error.
            Err(_) => return,
        };
        self.cx.ui().warning(format_args!(
            "HEAD {why} there, so clones guess the default branch; `snap push --force` repairs it"
        ));
    }

    fn report(&mut self, Trial { name, result }: Trial) -> Result<(), CliError> {
        match result {
            TrialResult::Works => self.record(name, CheckResult::Yes, None),
            TrialResult::Fails(error) => self.tried(name, Err::<(), _>(error)).map(drop),
            TrialResult::Wrong(why) => self.record(name, CheckResult::No, Some(why)),
            TrialResult::Unneeded(why) => self.record(name, CheckResult::NotNeeded, Some(why)),
            TrialResult::Untried => self.record(name, CheckResult::Untried, None),
        }
    }
}

/// Returns the failed request of an error.
fn service_error(error: RemoteError) -> ServiceError {
    match error {
        RemoteError::Service(error) => error,
        error => ServiceError::new("read", CONFIG, FailureReason::DamagedThere, error.to_string()),
    }
}
