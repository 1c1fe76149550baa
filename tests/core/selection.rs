//! What a commit records about the files that it could have contained.

use snap_core::{local::ignore, ops::commit};

use crate::scratch::{Scratch, commit, options};

#[test]
fn a_commit_records_the_rules_that_excluded_paths() {
    let scratch = Scratch::new();
    scratch.write("kept", "1");
    scratch.write("left.o", "2");
    let rules = ignore::Options {
        patterns: vec!["*.o".into(), "!x.o".into()],
        larger_than_bytes: Some(5),
        ..ignore::Options::default()
    };
    let with_rules = commit::CommitOptions { ignore: rules.clone(), ..options() };
    let made = commit(&scratch.repo(), &scratch.source(), &with_rules);
    let repo = scratch.repo();
    let read = repo.store().commit(&made.id.unwrap()).unwrap();
    assert_eq!(read.selection.rules, [rules]);
    assert!(read.selection.sources.is_empty() && read.selection.unread.iter().len() == 0);

    scratch.write("kept", "3");
    let plain = commit(&scratch.repo(), &scratch.source(), &options());
    let plain = scratch.repo().store().commit(&plain.id.unwrap()).unwrap();
    assert!(plain.selection.is_empty());
}

#[test]
fn a_commit_that_no_reader_would_accept_is_refused() {
    let scratch = Scratch::new();
    scratch.write("file", "1");
    let patterns = vec![String::from("x"); snap_core::base::limits::PATTERNS + 1];
    let ignore = ignore::Options { patterns, ..ignore::Options::default() };
    let options = commit::CommitOptions { ignore, ..options() };
    let source = commit::CommitSource::Folder(scratch.source());
    let observer = snap_core::base::observe::Silent;
    let error = commit::run(&scratch.repo(), source, &options, &observer).unwrap_err();
    assert_eq!(error.to_string(), "the commit cannot be stored");
    assert_eq!(scratch.repo().refs().head_commit().unwrap(), None);
}
