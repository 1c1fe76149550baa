//! What the program under test can do, as far as the generator must know.

use std::{collections::BTreeSet, io::Write as _, path::Path, process::Command};

/// Options that a program may lack: an older one, which the model is run
/// against to see that it finds its faults.
const OPTIONS: [(&str, &str); 4] = [
    ("commit", "--checksum"),
    ("commit", "--onto-tip"),
    ("restore", "--delete-excluded"),
    ("restore", "--yes"),
];

/// What there is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Features {
    names: BTreeSet<String>,
}

impl Features {
    /// Asks the program, and says what is missing.
    pub(crate) fn detect(program: &Path) -> Self {
        let mut names = BTreeSet::new();
        for (command, option) in OPTIONS {
            let help = Command::new(program).args([command, "--help"]).output().unwrap();
            let name = format!("{command} {option}");
            if String::from_utf8_lossy(&help.stdout).contains(option) {
                names.insert(name);
            } else {
                say(&format!("model: `snap {name}` does not exist; sequences do without it"));
            }
        }
        // Not an option, but newer than `--yes`, so they come together.
        if names.contains("restore --yes") {
            names.insert("lookalike folders".to_owned());
        }
        Self { names }
    }

    /// Whether the program has this.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

/// Writes a line to stderr, past the harness that would keep it to itself.
pub(crate) fn say(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}
