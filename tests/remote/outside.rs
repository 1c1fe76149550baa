//! The same tests with independent services, if the environment names some:
//! `tests/net/versitygw.sh` and `tests/net/emulators.sh` do.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering},
};

use snap_remote::peer::open::RemoteCredentials;
use snap_testkit::skip::skip;

use crate::{place::opening, transfer::there_and_back};

/// The variables of one service: a location without a prefix, an endpoint, a name and a secret.
struct Outside {
    name: &'static str,
    location: String,
    options: BTreeMap<String, String>,
    secrets: RemoteCredentials,
}

impl Outside {
    /// Reads the variables of the service `name`; returns `None` if they are not set.
    fn of(name: &'static str, scheme: &str, more: &[(&str, &str)]) -> Option<Self> {
        let var = |what: &str| std::env::var(format!("SNAP_TEST_{name}_{what}")).ok();
        let Some(endpoint) = var("ENDPOINT") else {
            let reason = format!("SNAP_TEST_{name}_ENDPOINT is not set");
            skip("a test against a service of others", &reason);
            return None;
        };
        let mut options = BTreeMap::from([("endpoint".to_owned(), endpoint)]);
        options.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let secrets = RemoteCredentials { name: var("KEY"), secret: var("SECRET"), session: None };
        let location = format!("{scheme}://{}", var("BUCKET").unwrap());
        Some(Self { name, location, options, secrets })
    }

    fn there_and_back(&self) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{}-{}-{number}", self.name, std::process::id());
        let location = format!("{}/{prefix}", self.location);
        let options: Vec<_> =
            self.options.iter().map(|(name, value)| (&**name, &**value)).collect();
        there_and_back(&|_| {
            opening(&location, &options, &self.secrets, |opening| opening.bucket().unwrap())
        });
    }
}

#[test]
fn a_gateway_holds_a_store() {
    if let Some(service) = Outside::of("S3", "s3", &[]) {
        service.there_and_back();
    }
}

#[test]
fn an_emulator_of_google_storage_holds_a_store() {
    if let Some(service) = Outside::of("GCS", "gs", &[("anonymous", "true")]) {
        service.there_and_back();
    }
}

#[test]
fn an_emulator_of_azure_holds_a_store() {
    let account = [("account", "devstoreaccount1")];
    if let Some(service) = Outside::of("AZURE", "azblob", &account) {
        service.there_and_back();
    }
}
