//! Tries the writes that a push makes, on one object that no other process uses.

use bytes::Bytes;
use snap_core::{base::limits, disk::scratch::unique_name};

use super::BucketStore;
use crate::{
    bucket::{
        ConditionalWrites, FailureReason, ObjectVersion, ServiceError, WriteCondition,
        client::Client,
    },
    peer::{RemoteError, Trial, TrialResult},
};

/// Folder of the object.
const TEMPORARY: &str = "tmp";

/// Content of the object.
const TEXT: &[u8] = b"written by `snap remote check`, which removes it\n";

/// Name of the trial of writes that only create an object.
const IF_ABSENT: &str = "if absent";

/// Name of the trial of a write that replaces an unchanged object.
const IF_UNCHANGED: &str = "if unchanged";

/// The claims in place of conditions.
const CLAIMS: &str = "pushes use claims instead";

fn trial(name: &'static str, result: Result<(), ServiceError>) -> Trial {
    let result = result.map_or_else(TrialResult::Fails, |()| TrialResult::Works);
    Trial { name, result }
}

fn unneeded(name: &'static str, why: &str) -> Trial {
    Trial { name, result: TrialResult::Unneeded(why.to_owned()) }
}

/// Returns the result of a write whose condition was not met.
fn refused(name: &'static str, result: Result<(), ServiceError>) -> Trial {
    match result {
        Err(error) if error.reason == FailureReason::Conflict => trial(name, Ok(())),
        Err(error) if error.reason == FailureReason::Unsupported => unneeded(name, CLAIMS),
        Err(error) => trial(name, Err(error)),
        Ok(()) => {
            let why = "it ignores conditions; each push first writes a file that claims the branch";
            unneeded(name, why)
        }
    }
}

/// Returns whether the service honours conditions; `None` unless both trials gave a certain answer.
fn conditions_kept(trials: &[Trial]) -> Option<bool> {
    let tried = trials.iter().filter(|one| one.name == IF_ABSENT || one.name == IF_UNCHANGED);
    let kept = tried.map(|trial| match trial.result {
        TrialResult::Works => Some(true),
        TrialResult::Unneeded(_) => Some(false),
        TrialResult::Fails(_) | TrialResult::Wrong(_) | TrialResult::Untried => None,
    });
    let kept: Vec<bool> = kept.collect::<Option<_>>()?;
    (kept.len() == 2).then(|| kept.iter().all(|kept| *kept))
}

/// Tries to write, read back, replace and remove an object. The object is removed at the end,
/// whatever happened before.
pub(super) async fn write_trials(store: &BucketStore) -> Result<Vec<Trial>, RemoteError> {
    let key = format!("{TEMPORARY}/{}", unique_name("check"));
    let client = &store.client;
    let written = client.put(&key, Bytes::from_static(TEXT)).await;
    if matches!(&written, Err(error) if error.reason == FailureReason::Stopped) {
        // The object may have been written although the request was stopped.
        let _ = client.delete_leftover(&key).await;
    }
    let (version, written) = match written {
        Ok(version) => (Some(version), Ok(())),
        Err(error) => (None, Err(error)),
    };
    let mut trials = vec![trial("write", written)];
    let Some(version) = version else {
        trials.push(Trial { name: "remove", result: TrialResult::Untried });
        return Ok(trials);
    };
    trials.extend(try_written(client, &key, version).await);
    if let (Some(bucket), Some(is_kept)) =
        (&client.facts().unproven_bucket, conditions_kept(&trials))
    {
        store.condition_proofs.correct(bucket, is_kept)?;
    }
    trials.push(trial("remove", client.delete_leftover(&key).await));
    Ok(trials)
}

/// Tries what needs an object.
async fn try_written(client: &Client, key: &str, version: Option<ObjectVersion>) -> Vec<Trial> {
    let back = client.get(key, limits::CONFIG_BYTES).await;
    let is_wrong = back.as_ref().is_ok_and(|object| object.bytes != TEXT);
    let mut trials = vec![trial("read back", back.map(drop))];
    if is_wrong {
        let why = "the content read differs from the content written".to_owned();
        trials.push(Trial { name: "content", result: TrialResult::Wrong(why) });
    }
    let ConditionalWrites { absent, unchanged } = client.facts().conditions;
    trials.push(match absent {
        true => {
            let text = Bytes::from_static(TEXT);
            let taken = client.put_if(key, text, WriteCondition::Absent).await;
            refused(IF_ABSENT, taken.map(drop))
        }
        false => unneeded(IF_ABSENT, CLAIMS),
    });
    trials.push(match version.filter(|_| unchanged) {
        Some(version) => try_unchanged(client, key, version).await,
        None => unneeded(IF_UNCHANGED, CLAIMS),
    });
    trials
}

async fn try_unchanged(client: &Client, key: &str, version: ObjectVersion) -> Trial {
    let new = Bytes::from_static(b"changed\n");
    let when = WriteCondition::Unchanged(version);
    match client.put_if(key, new.clone(), when.clone()).await {
        Err(error) if error.reason == FailureReason::Conflict => {
            let why = format!("it rejects a condition that is met; {CLAIMS}");
            unneeded(IF_UNCHANGED, &why)
        }
        Err(error) => refused(IF_UNCHANGED, Err(error)),
        Ok(_) => refused(IF_UNCHANGED, client.put_if(key, new, when).await.map(drop)),
    }
}
