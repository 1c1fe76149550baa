//! Commands of git, restic and similar tools that snap does not have, and what to use instead.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Hints by command; the second part names the snap command.
const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["backup", "save", "snapshot"],
        "`snap commit` creates a snapshot, `snap push` sends it to a remote",
    ),
    (
        &["add", "stage"],
        "there is no staging area: `snap commit` saves all files, `snap commit PATH` some",
    ),
    (&["snapshots", "history"], "`snap log` lists the snapshots"),
    (&["list"], "`snap log` lists the snapshots, `snap ls` the files of one"),
    (
        &["checkout"],
        "`snap restore REV:PATH` restores files, `snap branch --switch NAME` switches the branch",
    ),
    (&["switch"], "`snap branch --switch NAME` switches the branch"),
    (
        &["reset"],
        "`snap undo` undoes the last commit, `snap restore latest --overwrite` reverts the files",
    ),
    (
        &["revert"],
        "`snap restore REV --overwrite` restores an older state of the files, `snap undo` undoes the \
         last commit",
    ),
    (
        &["stash"],
        "`snap commit -b NAME` saves the files on another branch, `snap restore latest --overwrite` \
         reverts them",
    ),
    (&["rm", "mv"], "remove or move the file with `rm` or `mv`; the next `snap commit` records it"),
    (
        &["forget", "prune", "gc", "delete", "remove"],
        "snap keeps all snapshots; `snap branch -d NAME` and `snap tag -d NAME` delete names only",
    ),
    (
        &["merge", "rebase", "cherry-pick"],
        "snap does not merge: `snap diff A B` compares branches, `snap restore REV:PATH` takes \
         files of one",
    ),
    (&["blame", "annotate"], "`snap log -- PATH` lists the commits that changed a file"),
    (&["grep", "search"], "`snap find NAME` searches names, `snap cat REV:PATH` prints a file"),
    (&["dump", "cat-file"], "`snap cat REV:PATH` prints a file, `snap export` writes an archive"),
    (&["mount"], "`snap ls`, `snap cat` and `snap restore` read a snapshot without a mount"),
    (&["check", "fsck"], "`snap verify` checks a store for damage"),
    (&["recover", "rebuild-index"], "`snap repair` recovers lost or damaged data"),
    (
        &["copy", "sync", "upload"],
        "`snap push` sends commits to a remote, `snap pull` downloads them",
    ),
    (&["ls-files", "ls-tree"], "`snap ls -R REV` lists the files of a snapshot"),
    (
        &["ls-remote"],
        "`snap remote show` lists the branches of a remote, `snap log REMOTE#main` its commits",
    ),
    (&["reflog"], "`snap branch --log` lists the moves of a branch or of HEAD"),
    (&["bundle"], "`snap pack` creates a bundle, `snap unpack` imports one"),
    (&["unlock"], "locks end with their process; no command is needed"),
    (&["version"], "`snap --version` prints the version"),
];

/// Subcommands of git's commands with other names here.
const BELOW: &[(&str, &str, &str)] = &[
    ("remote", "rm", "`snap remote remove NAME` removes a remote"),
    ("remote", "delete", "`snap remote remove NAME` removes a remote"),
    ("remote", "rename", "`snap remote remove OLD`, then `snap remote add NEW URL`"),
    ("remote", "set-url", "`snap config set remote.NAME.url URL` changes the URL"),
    ("remote", "get-url", "`snap remote show NAME` shows the URL"),
    ("remote", "prune", "`snap pull` updates the branches of a remote"),
    ("config", "edit", "`snap config set KEY VALUE` changes a setting"),
];

/// Returns the message and the hint for a command that other tools have.
pub(crate) fn advice(
    error: &clap::Error,
    words: impl Iterator<Item = OsString>,
) -> Option<(String, &'static str)> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let above = parent(typed, words);
    let hint = match above.as_deref() {
        None | Some("help") => {
            COMMANDS.iter().find(|(names, _)| names.contains(&typed.as_str()))?.1
        }
        Some(above) => BELOW.iter().find(|(of, name, _)| (*of, *name) == (above, typed))?.2,
    };
    let shown = above.filter(|above| above != "help").map(|above| above + " ").unwrap_or_default();
    Some((format!("there is no command `snap {shown}{typed}`"), hint))
}

/// Returns the command before the one that is invalid.
fn parent(typed: &str, words: impl Iterator<Item = OsString>) -> Option<String> {
    let mut above = None;
    let mut words = words.skip(1);
    while let Some(word) = words.next() {
        match word.to_str()? {
            "--store" | "--color" => drop(words.next()),
            word if word == typed => return above,
            word if word.starts_with('-') => {}
            word => above = Some(word.to_owned()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hint_hides_a_command_of_snap() {
        let definition = crate::args::definition();
        for name in COMMANDS.iter().flat_map(|(names, _)| *names) {
            assert!(definition.find_subcommand(name).is_none(), "{name}");
        }
        for (above, name, _) in BELOW {
            let above = definition.find_subcommand(above).unwrap();
            assert!(above.find_subcommand(name).is_none(), "{name}");
        }
    }

    #[test]
    fn each_hint_names_commands_that_exist() {
        let definition = crate::args::definition();
        let hints = COMMANDS.iter().map(|(_, hint)| hint);
        for hint in hints.chain(BELOW.iter().map(|(_, _, hint)| hint)) {
            for part in hint.split("`snap ").skip(1) {
                let name = part.split([' ', '`']).next().unwrap();
                let known = name == "--version" || definition.find_subcommand(name).is_some();
                assert!(known, "{hint}");
            }
        }
    }
}
