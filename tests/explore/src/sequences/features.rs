//! The features of the program under test that the generator must know.

use std::{collections::BTreeSet, path::Path, process::Command};

use crate::search::say;

/// Options that an older program may lack. The model is run against older programs to check that it
/// finds their faults.
const OPTIONS: [(&str, &str); 4] = [
    ("commit", "--checksum"),
    ("commit", "--onto-tip"),
    ("restore", "--delete-excluded"),
    ("restore", "--yes"),
];

/// The features of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Features {
    names: BTreeSet<String>,
}

impl Features {
    /// Detects the features from the help texts, and reports missing ones.
    pub(crate) fn detect(program: &Path) -> Self {
        let mut names = BTreeSet::new();
        for (command, option) in OPTIONS {
            let help = Command::new(program).args([command, "--help"]).output().unwrap();
            let name = format!("{command} {option}");
            if String::from_utf8_lossy(&help.stdout).contains(option) {
                names.insert(name);
            } else {
                say(&format!("model: `snap {name}` does not exist; no sequence uses it"));
            }
        }
        // This is not an option. It is newer than `--yes`, so `--yes` indicates it.
        if names.contains("restore --yes") {
            names.insert("lookalike folders".to_owned());
        }
        Self { names }
    }

    /// Returns true if the program has this feature.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}
