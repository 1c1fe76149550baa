//! `snap remote show`: prints what is known locally about a remote.

use std::{collections::BTreeMap, io::Write};

use serde::Serialize;
use snap_core::{
    base::id::CommitId,
    repo::{
        RefName, Repo,
        history::{History, Parents},
    },
};

use crate::{
    context::Context,
    remote::{RemoteSpec, tracking},
    report::CliError,
    ui::{size, text},
};

/// Maximum number of commits counted on either side.
const COUNTED: usize = 10_000;

#[derive(Serialize)]
struct ShownJson<'a> {
    version: u32,
    r#type: &'static str,
    remote: Option<&'a str>,
    url: String,
    options: &'a BTreeMap<String, String>,
    branches: Vec<BranchJson>,
}

/// The last known state of a branch of the remote.
#[derive(Serialize)]
struct BranchJson {
    name: String,
    id: String,
    /// Number of commits of the local branch that the remote's branch lacks; null without a local
    /// branch.
    ahead: Option<u64>,
    /// Number of commits of the remote's branch that the local branch lacks.
    behind: Option<u64>,
}

pub(super) fn run(name: Option<&str>, cx: &Context) -> Result<(), CliError> {
    let place = cx.remote(name.into())?;
    let branches = match (&place.name, cx.open_repo()) {
        (Some(remote), Ok(repo)) => branches(&repo, remote)?,
        (_, Err(CliError::NoStore)) | (None, Ok(_)) => Vec::new(),
        (_, Err(error)) => return Err(error),
    };
    let mut out = cx.ui().out();
    if cx.ui().is_json() {
        out.json(&ShownJson {
            version: 1,
            r#type: "remote-known",
            remote: place.name.as_deref(),
            url: place.location.to_string(),
            options: &place.options,
            branches,
        })?;
        return Ok(out.finish()?);
    }
    writeln!(out, "Remote:   {}", text::line(place.shown().as_bytes()))?;
    writeln!(out, "Location: {}", text::line(place.location.to_string().as_bytes()))?;
    for (key, value) in &place.options {
        writeln!(out, "Option:   {}", text::line(format!("{key}={value}").as_bytes()))?;
    }
    writeln!(out, "Keys:     {}", keys(&place))?;
    let (settings, store) = cx.settings_here()?;
    if store.is_none() {
        Context::check_here()?;
    }
    if let Some(origin) = place.name.as_deref().and_then(|name| settings.origin_of_remote(name)) {
        writeln!(out, "Settings: {}", text::line(origin.to_string().as_bytes()))?;
    }
    for branch in &branches {
        let name = text::line(branch.name.as_bytes());
        writeln!(out, "Branch:   {name} at {:.12}, {}", branch.id, branch.comparison())?;
    }
    Ok(out.finish()?)
}

fn keys(place: &RemoteSpec) -> String {
    match (place.credentials_file(), place.credentials_command()) {
        (Some(file), _) => format!("in {}", text::line(file.as_os_str().as_encoded_bytes())),
        (None, Some(command)) => format!("from `{}`", text::line(command.as_bytes())),
        (None, None) => "from the environment, if any are needed".to_owned(),
    }
}

fn branches(repo: &Repo, remote: &str) -> Result<Vec<BranchJson>, CliError> {
    let mut found = Vec::new();
    for (name, theirs) in tracking::branches(repo, remote)? {
        let ours = RefName::branch(&name).ok();
        let ours = ours.map(|name| repo.refs().read(&name)).transpose()?.flatten();
        let (ahead, behind) = match ours {
            Some(ours) => (Some(lacks(repo, ours, theirs)?), Some(lacks(repo, theirs, ours)?)),
            None => (None, None),
        };
        found.push(BranchJson { name, id: theirs.to_string(), ahead, behind });
    }
    Ok(found)
}

/// Returns the number of commits of `one` that `other` lacks.
fn lacks(repo: &Repo, one: CommitId, other: CommitId) -> Result<u64, CliError> {
    let mut known = std::collections::HashSet::new();
    for step in History::new(repo.store(), &[other], Parents::All)?.take(COUNTED) {
        known.insert(step?.id);
    }
    let mut count = 0;
    for step in History::new(repo.store(), &[one], Parents::All)?.take(COUNTED) {
        count += u64::from(!known.contains(&step?.id));
    }
    Ok(count)
}

impl BranchJson {
    fn comparison(&self) -> String {
        let commits = |count| size::count(count, "commit");
        match (self.ahead, self.behind) {
            (None, _) | (_, None) => "without a branch here".to_owned(),
            (Some(0), Some(0)) => "as here".to_owned(),
            (Some(ahead), Some(0)) => format!("{} behind the one here", commits(ahead)),
            (Some(0), Some(behind)) => format!("{} before the one here", commits(behind)),
            (Some(ahead), Some(behind)) => {
                format!("lacks {} and has {} more", commits(ahead), commits(behind))
            }
        }
    }
}
