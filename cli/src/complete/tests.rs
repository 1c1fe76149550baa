//! Tests of the completions for various lines and places.

use super::*;
use crate::config::Settings;

/// Returns the completions of a line, without a store.
fn offered(line: &str) -> (Vec<String>, FileCompletion) {
    let line = shell::ParsedLine::split(line.as_bytes());
    let mut definition = crate::args::definition();
    definition.build();
    let now = snap_core::base::time::Time { secs: 0, nanos: 0 };
    let store = Some("/nowhere/at/all".into());
    let nothing = crate::args::Global::guess(std::iter::empty());
    let settings = Settings::load(&crate::env::Env::default(), &nothing).unwrap();
    let place = CompletionContext { store, ceilings: Vec::new(), home: None, now, settings };
    let answer = complete(&definition, &line.before[1..], &line.current, place);
    let text = |candidate: CompletionCandidate| String::from_utf8(candidate.value).unwrap();
    (answer.candidates.into_iter().map(text).collect(), answer.files)
}

#[test]
fn commands_and_options_come_from_the_definition() {
    assert_eq!(offered("snap re").0, ["restore", "remote", "repair", "rewrite"]);
    assert_eq!(offered("snap config s").0, ["set"]);
    assert_eq!(offered("snap log --one").0, ["--oneline"]);
    assert_eq!(offered("snap log --oneline --one").0, [""; 0]);
    assert_eq!(offered("snap log --json --color n").0, ["never"]);
    assert_eq!(offered("snap log --color=n").0, ["--color=never"]);
    assert_eq!(offered("snap --store x log --since").0, ["--since"]);
    assert_eq!(offered("snap commit -m log --label x=y --lab").0, ["--label"]);
    assert!(offered("snap ").0.contains(&"commit".to_owned()));
    // Hidden commands are not offered, and neither is anything after `--`.
    assert_eq!(offered("snap __").0, [""; 0]);
    assert_eq!(offered("snap ls -- --l").0, [""; 0]);
}

#[test]
fn files_are_left_to_the_shell() {
    assert_eq!(offered("snap commit a").1, FileCompletion::All);
    assert_eq!(offered("snap commit -qm x a").1, FileCompletion::All);
    assert_eq!(offered("snap commit -qm ").1, FileCompletion::None);
    assert_eq!(offered("snap --store ").1, FileCompletion::Folders);
    assert_eq!(offered("snap --store=").1, FileCompletion::Folders);
    assert_eq!(offered("snap restore latest ").1, FileCompletion::Folders);
    assert_eq!(offered("snap restore latest out ").1, FileCompletion::None);
    assert_eq!(offered("snap ls lat:").1, FileCompletion::None);
}

#[test]
fn every_argument_is_said_to_stand_for_something() {
    fn check(command: &Command, path: &[&str]) {
        for argument in command.get_arguments().filter(|argument| takes_value(argument)) {
            let known =
                !argument.get_possible_values().is_empty() || kind::of(path, argument).is_some();
            assert!(known, "complete/kind.rs does not know {argument} of {path:?}");
        }
        for below in command.get_subcommands() {
            if below.get_name() != "help" && !below.is_hide_set() {
                check(below, &[path, &[below.get_name()]].concat());
            }
        }
    }
    let mut definition = crate::args::definition();
    definition.build();
    check(&definition, &[]);
}
