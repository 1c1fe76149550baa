//! Remembers for each bucket whether its service honours the conditions of writes.
//!
//! All stores of a user share one small file, so the first push of a second store to a bucket needs
//! no [test](super::conditions). The key is the kind of the service, its endpoint and the name of
//! the bucket: a result says nothing about another endpoint. If another service takes over the same
//! endpoint and bucket, the remembered result is wrong, until `snap remote check` corrects it.
//!
//! A service that honours conditions goes on to do so, hence no limit of time. A failure may come
//! from a proxy in place of the service, hence it counts for a day. A lost or damaged file means
//! that nothing is known, and the next push tests the service again.

use std::path::{Path, PathBuf};

use snap_core::{
    base::{io::PathError, time::Time},
    disk::Disk,
};

use crate::peer::checked_file::{self, CheckedText};

/// The name of the file.
pub const CONDITIONS: &str = "conditions";

/// Marks a service that honours conditions.
const KEPT: &str = "kept";

/// Seconds for which a failed test counts.
const IGNORED_SECS: i64 = 24 * 60 * 60;

/// Maximum number of buckets. The file forgets the one with the oldest test.
const BUCKETS: usize = 256;

/// The results of tests. Each line of the file is the hash of a bucket, then `kept` or the time
/// of a failed test in seconds since 1970. The line of the newest test is the last one.
#[derive(Clone, Debug)]
pub struct ConditionProofs {
    path: PathBuf,
}

impl ConditionProofs {
    /// Returns the results in the file at `path`, which need not exist.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns true if the service honours conditions in `bucket`, false if it does not; `None` if
    /// this is unknown.
    pub fn get(&self, bucket: &str) -> Option<bool> {
        self.at_time(bucket, Time::now().secs)
    }

    fn at_time(&self, bucket: &str, now_secs: i64) -> Option<bool> {
        let key = key_of(bucket);
        let lines = self.lines();
        let (_, result) =
            lines.iter().filter_map(|line| line.split_once(' ')).find(|(of, _)| *of == key)?;
        if result == KEPT {
            return Some(true);
        }
        let age_secs = now_secs.checked_sub(result.parse().ok()?)?;
        (0..IGNORED_SECS).contains(&age_secs).then_some(false)
    }

    /// Remembers the result of a test. After a failure, the next command tests the service again.
    pub fn remember(&self, bucket: &str, is_kept: bool) {
        let _ = self.replace(bucket, is_kept, |_| true);
    }

    /// Replaces the result for a bucket, if there is one.
    ///
    /// # Errors
    /// [`PathError`] if the file cannot be written.
    pub fn correct(&self, bucket: &str, is_kept: bool) -> Result<(), PathError> {
        self.replace(bucket, is_kept, |is_known| is_known)
    }

    fn replace(
        &self,
        bucket: &str,
        is_kept: bool,
        is_wanted: fn(bool) -> bool,
    ) -> Result<(), PathError> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let disk = Disk::cache(dir);
        // Two processes may add a result at the same time.
        let lock_path = self.path.with_extension("lock");
        let lock = disk.append(&lock_path)?;
        lock.file().lock().map_err(PathError::when("lock", &lock_path))?;
        let key = key_of(bucket);
        let (known, mut lines): (Vec<_>, Vec<_>) =
            self.lines().into_iter().partition(|line| line.starts_with(&key));
        if !is_wanted(!known.is_empty()) {
            return Ok(());
        }
        lines.push(match is_kept {
            true => format!("{key} {KEPT}"),
            false => format!("{key} {}", Time::now().secs),
        });
        let newest = &lines[lines.len().saturating_sub(BUCKETS)..];
        let text = newest.iter().map(|line| format!("{line}\n")).collect();
        checked_file::write(&disk, dir, &self.path, text)
    }

    fn lines(&self) -> Vec<String> {
        match checked_file::read(&self.path) {
            CheckedText::Missing | CheckedText::Damaged => Vec::new(),
            CheckedText::Lines(text) => text.lines().map(str::to_owned).collect(),
        }
    }
}

/// Returns the text for a bucket in the file. Names of private buckets stay out of the file.
fn key_of(bucket: &str) -> String {
    blake3::hash(bucket.as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_remembered_for_each_bucket() {
        let folder = tempfile::tempdir().unwrap();
        let proofs = ConditionProofs::at(folder.path().join(CONDITIONS));
        proofs.correct("one", true).unwrap();
        assert_eq!(proofs.get("one"), None, "a correction adds nothing");
        proofs.remember("one", true);
        proofs.remember("other", false);
        assert_eq!((proofs.get("one"), proofs.get("other")), (Some(true), Some(false)));
        assert_eq!(proofs.get("onE"), None);
        proofs.correct("one", false).unwrap();
        proofs.remember("other", true);
        assert_eq!((proofs.get("one"), proofs.get("other")), (Some(false), Some(true)));
        for number in 0..BUCKETS - 1 {
            proofs.remember(&number.to_string(), true);
        }
        assert_eq!((proofs.get("one"), proofs.get("other")), (None, Some(true)));
        assert_eq!((proofs.get("0"), proofs.lines().len()), (Some(true), BUCKETS));
    }

    #[test]
    fn a_failed_test_counts_for_a_day_and_a_proof_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let proofs = ConditionProofs::at(folder.path().join(CONDITIONS));
        proofs.remember("ignores", false);
        proofs.remember("honours", true);
        let now = Time::now().secs;
        for (secs, ignores) in [(86_000, Some(false)), (86_500, None), (-500, None)] {
            assert_eq!(proofs.at_time("ignores", now + secs), ignores, "{secs}");
            assert_eq!(proofs.at_time("honours", now + secs), Some(true));
        }
    }

    #[test]
    fn a_damaged_file_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let proofs = ConditionProofs::at(folder.path().join(CONDITIONS));
        proofs.remember("one", true);
        proofs.remember("other", true);
        let bytes = fs_err::read(&proofs.path).unwrap();
        for cut in 0..bytes.len() {
            fs_err::write(&proofs.path, &bytes[..cut]).unwrap();
            assert_eq!((proofs.get("one"), proofs.get("other")), (None, None), "{cut}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs_err::write(&proofs.path, changed).unwrap();
            assert_eq!(proofs.get("one"), None, "{at}");
        }
        proofs.remember("one", false);
        assert_eq!((proofs.get("one"), proofs.get("other")), (Some(false), None));
    }
}
