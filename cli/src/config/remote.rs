//! Remotes that have a name in the settings, and what transfers cost and may
//! take.

use std::collections::{BTreeMap, BTreeSet};

use snap_core::repo::config::{
    ConfigError,
    error::Origin,
    key::{KeyPath, Value},
};

use crate::{config::Settings, remote::rate, report::CliError};

/// Parts of a remote that are no options of its location.
#[cfg(test)]
const OWN: [&str; 3] = ["url", "credentials_file", "credentials_command"];

/// Options that name a file.
const FILES: [&str; 2] = ["credential-path", "key"];

/// What the settings say about one remote.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemoteSettings {
    /// Where it is, as it was written.
    pub(crate) url: String,
    /// Options of the location.
    pub(crate) options: BTreeMap<String, String>,
    /// File with its keys, as it was written.
    pub(crate) credentials_file: Option<String>,
    /// Command that prints its keys.
    pub(crate) credentials_command: Option<String>,
    /// Whether the user named the place or trusts the file that does.
    pub(crate) is_trusted: bool,
}

/// What requests and bytes cost, in millionths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prices {
    /// Such as `USD`.
    pub(crate) currency: String,
    /// Of a thousand requests that write or list.
    pub(crate) writes: u64,
    /// Of a thousand requests that read.
    pub(crate) reads: u64,
    /// Of a GB that goes there.
    pub(crate) sent: u64,
    /// Of a GB that comes from there.
    pub(crate) received: u64,
}

impl Settings {
    /// Names of all remotes that are somewhere, sorted.
    pub(crate) fn remotes(&self) -> Vec<String> {
        let names = self.merged.all().into_iter().filter_map(|(path, said)| {
            let (["remote", name, "url"], Some(_)) = (&*parts(&path), said) else { return None };
            Some((*name).to_owned())
        });
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The remote of this name, if there is one. An untrusted store's file may
    /// name a place and nothing else: not which files hold keys, what is run to
    /// get them, or how the place is verified.
    pub(crate) fn find_remote(&self, name: &str) -> Result<Option<RemoteSettings>, CliError> {
        let mut found = RemoteSettings { is_trusted: true, ..RemoteSettings::default() };
        for (path, said) in self.merged.all() {
            let (["remote", own, part], Some((value, origin))) = (&*parts(&path), said) else {
                continue;
            };
            if *own != name {
                continue;
            }
            if *part == "url" {
                found.is_trusted = self.is_trusted(&path, &origin);
            } else {
                self.check_trust(&origin, &format!("`{part}` of remote `{name}`"))?;
            }
            let text = match value {
                Value::Text(text) => text,
                value => value.to_string(),
            };
            match *part {
                "url" => found.url = text,
                "credentials_file" => found.credentials_file = Some(text),
                "credentials_command" => found.credentials_command = Some(text),
                option => {
                    let value = if FILES.contains(&option) { self.expanded(&text)? } else { text };
                    found.options.insert(option.to_owned(), value);
                }
            }
        }
        Ok(Some(found).filter(|found| !found.url.is_empty()))
    }

    /// Where the remote of this name is, as it was written.
    pub(crate) fn remote_url(&self, name: &str) -> Option<String> {
        self.merged.text(&KeyPath::new(["remote", name, "url"]))
    }

    /// Where settings about this remote come from, the first of them.
    pub(crate) fn origin_of_remote(&self, name: &str) -> Option<Origin> {
        self.merged.get(&KeyPath::new(["remote", name, "url"])).map(|(_, origin)| origin)
    }

    fn expanded(&self, text: &str) -> Result<String, CliError> {
        Ok(self.expand(text)?.to_string_lossy().into_owned())
    }

    /// Bytes a second at most, out and in, as the settings say.
    pub(crate) fn limits(&self) -> Result<(Option<u64>, Option<u64>), CliError> {
        Ok((self.limit("limit_upload")?, self.limit("limit_download")?))
    }

    fn limit(&self, name: &'static str) -> Result<Option<u64>, CliError> {
        let path = KeyPath::new(["transfer", name]);
        let Some((Value::Text(text), origin)) = self.merged.get(&path) else { return Ok(None) };
        let wrong = |rule| {
            let (origin, key) = (Box::new(origin), path.to_string());
            ConfigError::Value { origin, key, found: text.clone(), rule }
        };
        Ok(Some(rate::parse(&text).map_err(|_| wrong("a rate such as 500K or 2M".to_owned()))?))
    }

    /// What requests and bytes cost.
    pub(crate) fn prices(&self) -> Prices {
        let amount = |name: &str| match self.merged.get(&KeyPath::new(["price", name])) {
            Some((Value::Amount(millionths), _)) => millionths,
            _ => 0,
        };
        Prices {
            currency: self.merged.text(&KeyPath::new(["price", "currency"])).unwrap_or_default(),
            writes: amount("writes"),
            reads: amount("reads"),
            sent: amount("sent"),
            received: amount("received"),
        }
    }
}

fn parts(path: &KeyPath) -> Vec<&str> {
    path.parts().iter().map(String::as_str).collect()
}

/// Whether a part of a remote is an option of its location.
#[cfg(test)]
pub(super) fn is_option(part: &str) -> bool {
    !OWN.contains(&part)
}
