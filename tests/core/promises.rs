//! `docs/safety.md` names a test in each row of its tables. These tests check that all of them
//! exist.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Returns the contents of all source files, by their paths in the repository.
fn sources() -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folders = ["cli/src", "core/src", "remote/src", "server/src", "tests"];
    let files = folders.iter().flat_map(|folder| walkdir::WalkDir::new(root.join(folder)));
    let files =
        files.map(Result::unwrap).filter(|file| file.path().extension() == Some("rs".as_ref()));
    let read = |file: walkdir::DirEntry| {
        let path = file.path().strip_prefix(root).unwrap().to_owned();
        (path, fs_err::read_to_string(file.path()).unwrap())
    };
    files.map(read).collect()
}

/// The place that a name has in the document: `crash/kill::NAME` is in `tests/crash/kill.rs`,
/// `local/ignore.rs: NAME` in `core/src/local/ignore.rs` or at that path.
fn candidates(place: &str) -> Vec<PathBuf> {
    let stem = place.replace("::", "/");
    let stem = stem.strip_suffix(".rs").unwrap_or(&stem);
    let folders = ["tests", "core/src", "remote/src", "server/src", "cli/src", ""];
    let endings = [".rs", "/mod.rs", "/tests.rs"];
    let all = folders.iter().flat_map(|folder| {
        endings.iter().map(move |ending| Path::new(folder).join(format!("{stem}{ending}")))
    });
    all.collect()
}

/// Returns the names of the tests in a file that `cargo test` runs.
fn tests(text: &str) -> Vec<&str> {
    let (mut found, mut is_test, mut is_ignored) = (Vec::new(), false, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_ignored = true;
        } else if let Some((before, rest)) = line.split_once("fn ")
            && ["", "async ", "pub(crate) ", "pub(crate) async "].contains(&before)
        {
            if is_test && !is_ignored {
                found.push(rest.split('(').next().unwrap_or(rest));
            }
            (is_test, is_ignored) = (false, false);
        }
    }
    found
}

/// Returns true if a file has a test of this name; `…` stands for any part of a name.
fn has_test(text: &str, wanted: &str) -> bool {
    let parts: Vec<&str> = wanted.split('…').collect();
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    tests(text).into_iter().any(|name| match parts.len() {
        1 => name == wanted,
        _ => {
            let has_middle = parts.iter().all(|part| name.contains(part));
            name.starts_with(first) && name.ends_with(last) && has_middle
        }
    })
}

/// Returns the part of the document that names tests.
fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/safety.md");
    let document = fs_err::read_to_string(path).unwrap();
    let (_, document) = document.split_once("\n## Crashes\n").unwrap();
    document.to_owned()
}

/// Returns the place and the name of each test that a text names.
fn named_tests(text: &str) -> Vec<(String, &str)> {
    let (mut place, mut found) = (String::new(), Vec::new());
    for quoted in text.split('`').skip(1).step_by(2) {
        let (is_placed, name) = match quoted.rsplit_once("::").or(quoted.split_once(": ")) {
            Some((before, name)) => {
                place = before.to_owned();
                (true, name)
            }
            None => (false, quoted),
        };
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_…".contains(c);
        // A lone `…` stands for all tests of a file.
        let is_name_of_test = name.contains('_') || name == "…";
        let is_test = (is_placed || name.starts_with('…')) && is_name_of_test;
        if is_test && name.chars().all(is_name) {
            found.push((place.clone(), name));
        }
    }
    found
}

#[test]
fn each_test_named_in_the_safety_document_exists() {
    let (sources, document) = (sources(), document());
    let named = named_tests(&document);
    let exists = |place: &str, name: &str| {
        let files = candidates(place);
        files.iter().filter_map(|file| sources.get(file)).any(|text| has_test(text, name))
    };
    let missing: Vec<_> = named.iter().filter(|(place, name)| !exists(place, name)).collect();
    assert!(named.len() > 190, "only {} names were found", named.len());
    assert!(missing.is_empty(), "docs/safety.md names tests that do not exist: {missing:#?}");
}

#[test]
fn each_promise_in_the_safety_document_names_a_test() {
    let document = document();
    let rows: Vec<&str> = document.lines().filter(|line| line.starts_with("| ")).collect();
    let rows: Vec<&str> = rows.into_iter().filter(|row| !row.starts_with("| loss |")).collect();
    let without: Vec<_> = rows.iter().filter(|row| named_tests(row).is_empty()).collect();
    assert!(rows.len() > 120, "only {} promises were found", rows.len());
    assert!(without.is_empty(), "promises in docs/safety.md without a test: {without:#?}");
}
