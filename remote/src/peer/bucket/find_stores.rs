//! Finds the stores in a bucket, a share or a folder.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};

use crate::{
    bucket::{ServiceError, client::Client},
    peer::CONFIG,
};

/// Maximum number of keys of one folder to read.
const FOLDER_KEYS: usize = 5000;

/// Number of folders to list concurrently.
const FOLDERS_AT_ONCE: usize = 16;

/// Returns the paths of the stores at most `levels` folders below the root. An empty path is the
/// root itself, which is then the only store.
///
/// # Errors
/// [`ServiceError`].
pub(super) async fn find_stores(
    client: &Client,
    levels: usize,
) -> Result<Vec<String>, ServiceError> {
    let (mut found, mut waiting) = (Vec::new(), vec![String::new()]);
    for level in 0..=levels {
        let prefixes = std::mem::take(&mut waiting);
        let look = async |prefix: String| {
            let keys = client.list_level(&prefix, FOLDER_KEYS).await?;
            Ok::<_, ServiceError>((prefix, keys))
        };
        let mut looks = stream::iter(prefixes).map(look).buffer_unordered(FOLDERS_AT_ONCE);
        while let Some(looked) = looks.next().await {
            let (prefix, keys) = looked?;
            let inside = keys.iter().filter_map(|key| key.strip_prefix(&prefix));
            if inside.clone().any(|name| name == CONFIG) {
                found.push(prefix.trim_end_matches('/').to_owned());
            } else if level < levels {
                let folders = inside.filter_map(|name| Some(name.split_once('/')?.0));
                let folders: BTreeSet<&str> = folders.collect();
                waiting.extend(folders.iter().map(|folder| format!("{prefix}{folder}/")));
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}
