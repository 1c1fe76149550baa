//! Settings of named remotes, of transfer limits and of prices.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use snap_core::{
    base::{
        duration::parse_duration,
        number::{parse_rate, parse_size},
    },
    ops::forget::{KeepPolicy, Period},
    repo::config::{
        error::SettingOrigin,
        key::{KeyPath, Value},
    },
};
use snap_remote::bucket::client::TransferLimits;

use crate::{
    config::Settings,
    report::{CliError, SensitiveSetting},
};

/// Settings of a remote that are not options of its location.
#[cfg(test)]
const OWN: [&str; 3] = ["url", "credentials_file", "credentials_command"];

/// Options whose value is a file.
const FILES: [&str; 2] = ["credential-path", "key"];

/// The settings of one remote.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemoteSettings {
    /// The location, as it was written.
    pub(crate) url: String,
    /// Options of the location.
    pub(crate) options: BTreeMap<String, String>,
    /// File with its credentials, as it was written.
    pub(crate) credentials_file: Option<String>,
    /// Command that prints its credentials.
    pub(crate) credentials_command: Option<String>,
    /// True if the user named the location, or trusts the file that does.
    pub(crate) is_trusted: bool,
}

/// Prices of requests and bytes, in millionths of the currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prices {
    /// The currency, such as `USD`.
    pub(crate) currency: String,
    /// Price of 1,000 requests that write or list.
    pub(crate) writes: u64,
    /// Price of 1,000 requests that read.
    pub(crate) reads: u64,
    /// Price of one GB of upload.
    pub(crate) sent: u64,
    /// Price of one GB of download.
    pub(crate) received: u64,
}

impl Settings {
    /// Returns the names of all remotes with a URL, sorted.
    pub(crate) fn remotes(&self) -> Vec<String> {
        let names = self.merged.all().into_iter().filter_map(|(path, value)| {
            let (["remote", name, "url"], Some(_)) = (&*parts(&path), value) else { return None };
            Some((*name).to_owned())
        });
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the remote of this name, if it exists. An untrusted store's file may only set the
    /// location. It must not set which files hold credentials, which command prints them, or how
    /// the host is verified.
    pub(crate) fn find_remote(&self, name: &str) -> Result<Option<RemoteSettings>, CliError> {
        let mut found = RemoteSettings { is_trusted: true, ..RemoteSettings::default() };
        for (path, value) in self.merged.all() {
            let (["remote", own, part], Some((value, origin))) = (&*parts(&path), value) else {
                continue;
            };
            if *own != name {
                continue;
            }
            if *part == "url" {
                found.is_trusted = self.is_trusted(&path, &origin);
            } else {
                self.check_trust(&origin, || SensitiveSetting::Remote {
                    name: name.to_owned(),
                    option: (*part).to_owned(),
                })?;
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

    /// Returns the location of the remote, as it was written.
    pub(crate) fn remote_url(&self, name: &str) -> Option<String> {
        self.merged.text(&KeyPath::new(["remote", name, "url"]))
    }

    /// Returns the origin of the remote's URL.
    pub(crate) fn origin_of_remote(&self, name: &str) -> Option<SettingOrigin> {
        self.merged.get(&KeyPath::new(["remote", name, "url"])).map(|(_, origin)| origin)
    }

    fn expanded(&self, text: &str) -> Result<String, CliError> {
        Ok(self.expand(text)?.to_string_lossy().into_owned())
    }

    /// Returns the rate limits of transfers.
    pub(crate) fn limits(&self) -> TransferLimits {
        let limit = |name| self.parsed(name, |text| parse_rate(text).ok());
        TransferLimits {
            upload: limit("transfer.limit_upload"),
            download: limit("transfer.limit_download"),
        }
    }

    /// Returns a setting that is a time, such as `7d`; zero if it is not set.
    pub(crate) fn duration(&self, name: &'static str) -> Duration {
        self.parsed(name, |text| parse_duration(text).ok()).unwrap_or_default()
    }

    /// Parses a setting with a unit; `None` if it is not set. The parser of its layer has checked
    /// the value.
    fn parsed<T>(&self, name: &'static str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        parse(&self.merged.text(&KeyPath::new(name.split('.')))?)
    }

    /// Returns the retention policy of the settings `keep.*`.
    pub(crate) fn keep_policy(&self) -> KeepPolicy {
        let count = |name| match self.merged.plain(name) {
            Some((Value::Number(count), _)) => u64::try_from(count).ok(),
            _ => None,
        };
        let counts = [
            (Period::Hour, "keep.hourly"),
            (Period::Day, "keep.daily"),
            (Period::Week, "keep.weekly"),
            (Period::Month, "keep.monthly"),
            (Period::Year, "keep.yearly"),
        ];
        let ages = [
            (Period::Hour, "keep.within_hourly"),
            (Period::Day, "keep.within_daily"),
            (Period::Week, "keep.within_weekly"),
            (Period::Month, "keep.within_monthly"),
            (Period::Year, "keep.within_yearly"),
        ];
        let age = |name| self.parsed(name, |text| text.parse().ok());
        let labels = self.merged.list(&KeyPath::new(["keep", "label"]));
        let labels = labels.iter().map(|text| match text.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (text.clone(), None),
        });
        KeepPolicy {
            last: count("keep.last").unwrap_or_default(),
            periods: counts.into_iter().filter_map(|(p, name)| Some((p, count(name)?))).collect(),
            within: age("keep.within"),
            within_periods: ages
                .into_iter()
                .filter_map(|(p, name)| Some((p, age(name)?)))
                .collect(),
            labels: labels.collect(),
            max_bytes: self.parsed("keep.under", |text| parse_size(text).ok()),
        }
    }

    /// Returns the prices of requests and bytes.
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

/// Returns true if a setting of a remote is an option of its location.
#[cfg(test)]
pub(super) fn is_option(part: &str) -> bool {
    !OWN.contains(&part)
}
