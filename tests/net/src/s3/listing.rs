//! One page of a listing: objects under a prefix, with deeper keys grouped.

use std::{collections::BTreeMap, ops::Bound};

use super::object::Object;

/// The parameters of a listing.
#[derive(Debug)]
pub(super) struct Query<'a> {
    /// Only keys with this prefix.
    pub(super) prefix: &'a str,
    /// Keys with this text after the prefix are grouped into one common prefix.
    pub(super) delimiter: Option<&'a str>,
    /// Only keys and common prefixes after this one.
    pub(super) after: &'a str,
    /// Most keys and common prefixes in the page.
    pub(super) max: usize,
}

/// The result of a listing.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// Objects, by key.
    pub(super) objects: Vec<(String, Object)>,
    /// Common prefixes of grouped keys.
    pub(super) prefixes: Vec<String>,
    /// The last entry of the page, if more entries follow.
    pub(super) next: Option<String>,
}

/// Lists one page.
pub(super) fn page(objects: &BTreeMap<String, Object>, query: &Query<'_>) -> Page {
    let mut page = Page::default();
    let mut last = query.after;
    if query.max == 0 {
        return page;
    }
    let from: Bound<&str> = Bound::Included(query.prefix.max(query.after));
    for (key, object) in objects.range::<str, _>((from, Bound::Unbounded)) {
        if !key.starts_with(query.prefix) {
            break;
        }
        let rolled_up = query.delimiter.and_then(|delimiter| {
            let rest = &key[query.prefix.len()..];
            let end = query.prefix.len() + rest.find(delimiter)? + delimiter.len();
            Some(&key[..end])
        });
        let entry = rolled_up.unwrap_or(key);
        if entry <= last {
            continue;
        }
        if page.objects.len() + page.prefixes.len() == query.max {
            page.next = Some(last.to_owned());
            break;
        }
        match rolled_up {
            Some(prefix) => page.prefixes.push(prefix.to_owned()),
            None => page.objects.push((key.clone(), object.clone())),
        }
        last = entry;
    }
    page
}
