//! Compares the remote with the journal, over a network without faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::network::{
    CLIENTS,
    client::{Journal, run},
    service::Service,
};

/// Returns all faults that were found.
pub(crate) fn all(service: &Service, journal: &Journal) -> Vec<String> {
    let mut faults = journal.faults();
    let events = journal.events();
    let shared: BTreeSet<&String> = events
        .iter()
        .filter(|event| event.name == "heads/main" && event.is_acknowledged)
        .filter_map(|event| event.commit.as_ref())
        .collect();
    // Every address of the remote must show the same state.
    for client in 0..CLIENTS {
        let copy = service.folder("check").join(format!("copy{client}"));
        let location = service.location(client);
        let mut clone = service.command("check");
        // A clone must start from a branch or tag that exists.
        let begin = match shared.first() {
            Some(_) => "main".to_owned(),
            None => match standing(&events).into_iter().find(|(_, allowed)| allowed.is_certain()) {
                Some((name, _)) => name.split_once('/').unwrap().1.to_owned(),
                None => continue,
            },
        };
        clone.args(["clone", "--no-restore", "--ref", &begin, &location]).arg(&copy);
        clone.args(service.options());
        let cloned = run(&mut clone, None, journal);
        if !cloned.status.success() {
            faults.push(format!("the remote cannot be cloned: {}", cloned.stderr));
            continue;
        }
        let verified = snap(service, journal, &copy, &["verify", "--data"]);
        if let Err(told) = verified {
            faults.push(format!("a clone of the remote is damaged: {told}"));
        }
        if !shared.is_empty() {
            let listed = snap(service, journal, &copy, &["log", "origin/main", "--json"]);
            let history: BTreeSet<String> =
                listed.unwrap_or_default().lines().filter_map(id).collect();
            for lost in shared.iter().filter(|commit| !history.contains(**commit)) {
                faults.push(format!("the push of {lost} to main was acknowledged and is lost"));
            }
        }
        for (name, allowed) in standing(&events) {
            let (kind, short) = name.split_once('/').unwrap();
            let rev = if kind == "tags" { short.to_owned() } else { format!("origin/{short}") };
            let found = snap(service, journal, &copy, &["log", "-n", "1", "--json", &rev]);
            let found = found.ok().and_then(|text| text.lines().next().and_then(id));
            if !allowed.places.contains(&found) {
                let allowed: Vec<_> =
                    allowed.places.iter().map(|place| shown(place.as_ref())).collect();
                let found = shown(found.as_ref());
                faults.push(format!("{name} is at {found} instead of {}", allowed.join(" or ")));
            }
        }
    }
    faults
}

/// The states that a ref may have.
struct Allowed {
    places: BTreeSet<Option<String>>,
}

impl Allowed {
    /// Returns true if the ref must exist.
    fn is_certain(&self) -> bool {
        !self.places.contains(&None)
    }
}

/// Returns the allowed states of each ref that only one client moves: the state after its last
/// acknowledged push, or a state that a later push tried to reach.
fn standing(events: &[crate::network::client::Event]) -> BTreeMap<String, Allowed> {
    let mut found: BTreeMap<String, Allowed> = BTreeMap::new();
    for event in events.iter().filter(|event| event.name != "heads/main") {
        let nothing = || Allowed { places: BTreeSet::from([None]) };
        let allowed = found.entry(event.name.clone()).or_insert_with(nothing);
        if event.is_acknowledged {
            allowed.places.clear();
        }
        allowed.places.insert(event.commit.clone());
    }
    found
}

fn shown(place: Option<&String>) -> String {
    place.map_or("nothing".to_owned(), |id| format!("{id:.12}"))
}

fn id(line: &str) -> Option<String> {
    let record: serde_json::Value = serde_json::from_str(line).ok()?;
    record["id"].as_str().map(str::to_owned)
}

/// Returns the stdout of a successful command, or else its stderr.
fn snap(
    service: &Service,
    journal: &Journal,
    folder: &Path,
    args: &[&str],
) -> Result<String, String> {
    let ran = run(service.command("check").current_dir(folder).args(args), None, journal);
    if ran.status.success() { Ok(ran.stdout) } else { Err(ran.stderr) }
}
