//! What is told of commits and entries in JSON; the fields are those of the
//! command line's.

use serde::Serialize;
use snap_core::{
    base::{id::CommitId, time::Time},
    format::{
        commit::Commit,
        tree::{Device, Kind, Metadata},
    },
    ops::diff::{Change, Item, Status, What},
};

/// RFC 3339 in UTC, with as many decimals as there are; `@secs.nanos` for a year
/// that it has no room for.
pub(super) fn rfc3339(time: Time) -> String {
    let (days, secs) = (time.secs.div_euclid(86_400), time.secs.rem_euclid(86_400));
    if !(-719_528..2_932_897).contains(&days) {
        return format!("@{}.{:09}", time.secs, time.nanos);
    }
    // Howard Hinnant's days to civil: eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (secs / 3600, secs / 60 % 60, secs % 60);
    let nanos = match time.nanos {
        0 => String::new(),
        nanos => format!(".{}", format!("{nanos:09}").trim_end_matches('0')),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{nanos}Z")
}

/// Bytes as text; what is not UTF-8 there is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The exact bytes in hexadecimal, where they are not UTF-8.
pub(super) fn exact(bytes: &[u8]) -> Option<String> {
    let digits = || bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    std::str::from_utf8(bytes).is_err().then(digits)
}

/// A commit.
#[derive(Debug, Serialize)]
pub(super) struct CommitJson {
    id: String,
    tree: String,
    parents: Vec<String>,
    time: String,
    author: String,
    host: String,
    message: String,
    labels: std::collections::BTreeMap<String, String>,
    files: u64,
    folders: u64,
    others: u64,
    bytes: u64,
}

impl CommitJson {
    pub(super) fn new(id: CommitId, commit: &Commit) -> Self {
        let totals = commit.totals;
        Self {
            id: id.to_string(),
            tree: commit.tree.to_string(),
            parents: commit.parents.iter().map(ToString::to_string).collect(),
            time: rfc3339(commit.time),
            author: commit.author.clone(),
            host: commit.host.clone(),
            message: commit.message.clone(),
            labels: commit.labels.clone(),
            files: totals.files,
            folders: totals.folders,
            others: totals.others,
            bytes: totals.bytes,
        }
    }
}

/// What an entry is and what is kept about it, but for its path.
#[derive(Debug, Default, Serialize)]
pub(super) struct ItemJson {
    kind: &'static str,
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<[u32; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<String>,
}

impl ItemJson {
    /// Of an entry in a tree.
    pub(super) fn of_entry(kind: &Kind, metadata: &Metadata) -> Self {
        let item = Self { kind: kind.noun(), ..Self::of_metadata(metadata) };
        match kind {
            Kind::File { size, id } => Self { size: Some(*size), id: Some(id.to_string()), ..item },
            Kind::Folder { id } => Self { id: Some(id.to_string()), ..item },
            Kind::Symlink { target } => {
                Self { target: Some(text(target)), target_hex: exact(target), ..item }
            }
            Kind::CharDevice { device } | Kind::BlockDevice { device } => item.device(*device),
            Kind::Fifo | Kind::Socket => item,
        }
    }

    /// Of one side of a change.
    fn of_item(Item { what, metadata }: &Item) -> Self {
        let item = Self { kind: what.noun(), ..Self::of_metadata(metadata) };
        match what {
            What::File { size, id } => {
                Self { size: Some(*size), id: id.map(|id| id.to_string()), ..item }
            }
            What::Folder { id } => Self { id: id.map(|id| id.to_string()), ..item },
            What::Symlink { target } => {
                Self { target: Some(text(target)), target_hex: exact(target), ..item }
            }
            What::CharDevice { device } | What::BlockDevice { device } => item.device(*device),
            What::Fifo | What::Socket => item,
        }
    }

    fn of_metadata(metadata: &Metadata) -> Self {
        Self {
            mode: format!("{:04o}", metadata.mode),
            mtime: metadata.mtime.map(rfc3339),
            uid: metadata.owner.as_ref().map(|owner| owner.uid),
            gid: metadata.owner.as_ref().map(|owner| owner.gid),
            // More digits than JSON's numbers have in most programs.
            link: metadata.link.map(|link| format!("{link:016x}")),
            xattrs: metadata.xattrs.iter().map(|xattr| text(&xattr.name)).collect(),
            ..Self::default()
        }
    }

    fn device(self, Device { major, minor }: Device) -> Self {
        Self { device: Some([major, minor]), ..self }
    }
}

/// An entry and its path from the top.
#[derive(Debug, Serialize)]
pub(super) struct EntryJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(flatten)]
    item: ItemJson,
}

impl EntryJson {
    pub(super) fn new(path: &[u8], kind: &Kind, metadata: &Metadata) -> Self {
        let item = ItemJson::of_entry(kind, metadata);
        Self { path: text(path), path_hex: exact(path), item }
    }
}

/// A path that differs.
#[derive(Debug, Serialize)]
pub(super) struct ChangeJson {
    status: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_path_hex: Option<String>,
    differences: Vec<&'static str>,
    old: Option<ItemJson>,
    new: Option<ItemJson>,
}

impl ChangeJson {
    pub(super) fn new(change: &Change) -> Self {
        let status = match change.status() {
            Status::Added => "added",
            Status::Removed => "removed",
            Status::Modified => "modified",
            Status::Metadata => "metadata",
            Status::Kind => "kind",
            Status::Renamed => "renamed",
        };
        let old_path = change.old_path.as_deref();
        Self {
            status,
            path: text(&change.path),
            path_hex: exact(&change.path),
            old_path: old_path.map(text),
            old_path_hex: old_path.and_then(exact),
            differences: change.differences().names(),
            old: change.old.as_ref().map(ItemJson::of_item),
            new: change.new.as_ref().map(ItemJson::of_item),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_standard() {
        for (secs, nanos, told) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (-1, 500_000_000, "1969-12-31T23:59:59.5Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.000000001Z"),
            (1_795_305_600, 0, "2026-11-22T00:00:00Z"),
            (253_402_300_799, 0, "9999-12-31T23:59:59Z"),
            (253_402_300_800, 0, "@253402300800.000000000"),
            (i64::MIN, 0, "@-9223372036854775808.000000000"),
        ] {
            assert_eq!(rfc3339(Time { secs, nanos }), told);
        }
    }
}
