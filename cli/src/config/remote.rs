//! Settings of named remotes, of transfer limits and of prices.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use snap_core::{
    ops::forget::{KeepPolicy, Period},
    repo::config::{
        ConfigError,
        error::SettingOrigin,
        key::{KeyPath, Value},
    },
};
use snap_remote::service::client::TransferLimits;

use crate::{
    config::Settings,
    remote::rate,
    report::{CliError, SensitiveSetting},
    ui::{duration, size},
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
    pub(crate) fn limits(&self) -> Result<TransferLimits, CliError> {
        Ok(TransferLimits {
            upload: self.limit("limit_upload")?,
            download: self.limit("limit_download")?,
        })
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

    /// Returns a setting that is a time, such as `7d`; zero if it is not set.
    pub(crate) fn duration(&self, name: &'static str) -> Result<Duration, CliError> {
        Ok(self.age(name)?.unwrap_or_default())
    }

    fn age(&self, name: &'static str) -> Result<Option<Duration>, CliError> {
        self.parsed(name, "a time such as 36h, 7d or 2w", &|text| duration::parse(text).ok())
    }

    /// Parses a text setting; `None` if it is not set.
    fn parsed<T>(
        &self,
        name: &'static str,
        rule: &str,
        parse: &dyn Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, CliError> {
        let path = KeyPath::new(name.split('.'));
        let Some((Value::Text(text), origin)) = self.merged.get(&path) else { return Ok(None) };
        match parse(&text) {
            Some(value) => Ok(Some(value)),
            None => {
                let (origin, key) = (Box::new(origin), path.to_string());
                Err(ConfigError::Value { origin, key, found: text, rule: rule.to_owned() }.into())
            }
        }
    }

    /// Returns the retention policy of the settings `keep.*`.
    pub(crate) fn keep_policy(&self) -> Result<KeepPolicy, CliError> {
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
        let mut within_periods = BTreeMap::new();
        for (period, name) in ages {
            within_periods.extend(self.age(name)?.map(|age| (period, age)));
        }
        let labels = self.merged.list(&KeyPath::new(["keep", "label"]));
        let labels = labels.iter().map(|text| match text.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (text.clone(), None),
        });
        Ok(KeepPolicy {
            last: count("keep.last").unwrap_or_default(),
            periods: counts.into_iter().filter_map(|(p, name)| Some((p, count(name)?))).collect(),
            within: self.age("keep.within")?,
            within_periods,
            labels: labels.collect(),
            max_bytes: self
                .parsed("keep.under", "a size such as 500GB", &|text| size::parse(text).ok())?,
        })
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
