//! Commands of other tools, and what to use instead.

/// What to use instead of some commands, one choice a line.
type Row = (&'static [&'static str], &'static [&'static str]);

const COMMANDS: &[Row] = &[
    (
        &["backup", "save", "snapshot"],
        &["`snap commit` creates a snapshot", "`snap push` sends it to a remote"],
    ),
    (
        &["create"],
        &["`snap commit` creates a snapshot", "`snap archive` saves a folder in one file"],
    ),
    (&["add", "stage"], &["`snap commit` saves all files", "`snap commit PATH` saves some"]),
    (&["amend"], &["use `snap undo`, then `snap commit`"]),
    (&["snapshots", "history", "rev-list", "shortlog"], &["use `snap log`"]),
    (&["whatchanged"], &["use `snap log --patch`"]),
    (&["list"], &["`snap log` lists the snapshots", "`snap ls` lists the files of one"]),
    (&["info"], &["`snap show` prints a commit", "`snap stats` prints the sizes"]),
    (&["describe"], &["use `snap tag`"]),
    (&["rev-parse"], &["use `snap show --id REV`"]),
    (&["show-ref", "for-each-ref"], &["`snap branch` lists branches", "`snap tag` lists tags"]),
    (
        &["checkout"],
        &[
            "`snap restore REV:PATH` restores files",
            "`snap branch --switch NAME` switches the branch",
        ],
    ),
    (&["switch"], &["use `snap branch --switch NAME`"]),
    (&["extract", "worktree"], &["use `snap restore REV DIR`"]),
    (&["clean"], &["use `snap restore latest --overwrite --delete`"]),
    (
        &["reset"],
        &[
            "`snap undo` undoes the last commit",
            "`snap restore latest --overwrite` reverts the files",
        ],
    ),
    (
        &["revert"],
        &[
            "`snap undo` undoes the last commit",
            "`snap restore REV --overwrite` restores older files",
        ],
    ),
    (
        &["stash"],
        &[
            "`snap commit -b NAME` saves the files on another branch",
            "`snap restore latest --overwrite` reverts them",
        ],
    ),
    (&["rm"], &["use `rm`, then `snap commit`"]),
    (&["mv"], &["use `mv`, then `snap commit`"]),
    (
        &["delete", "remove"],
        &[
            "`snap forget REV` forgets a commit, and `snap gc` then deletes it",
            "`snap branch -d NAME` deletes a branch, `snap tag -d NAME` a tag",
        ],
    ),
    (&["expire"], &["use `snap forget --keep-daily 30`, or other rules"]),
    (
        &["prune"],
        &["`snap gc` frees space", "`snap forget --keep-daily 30` lets old commits go before"],
    ),
    (&["compact"], &["use `snap gc`"]),
    (
        &["merge", "rebase", "cherry-pick"],
        &[
            "`snap diff A B` compares two branches",
            "`snap restore REV:PATH --overwrite` takes files from one",
        ],
    ),
    (
        &["recreate", "filter-branch", "filter-repo"],
        &["`snap rewrite --exclude PATTERN` removes files from all commits"],
    ),
    (&["blame", "annotate"], &["use `snap log -- PATH`"]),
    (
        &["grep", "search"],
        &[
            "`snap find NAME` searches names",
            "`snap log --grep TEXT` searches messages",
            "`snap cat REV:PATH` prints a file",
        ],
    ),
    (
        &["dump", "cat-file"],
        &["`snap cat REV:PATH` prints a file", "`snap export` writes an archive"],
    ),
    (&["export-tar"], &["use `snap export REV -o FILE.tar`"]),
    (&["format-patch"], &["use `snap diff A B > FILE`"]),
    (&["apply", "am"], &["use `patch -p1 < FILE`, then `snap commit`"]),
    (
        &["mount", "umount"],
        &["`snap ls` and `snap cat` read a snapshot", "`snap restore REV DIR` writes its files"],
    ),
    (&["check", "fsck"], &["use `snap verify`"]),
    (&["recover", "rebuild-index"], &["use `snap repair`"]),
    (
        &["copy", "sync", "upload"],
        &["`snap push` sends commits to a remote", "`snap pull` downloads them"],
    ),
    (&["download"], &["use `snap pull`"]),
    (
        &["cp"],
        &[
            "`snap restore REV:PATH DIR` copies files from a snapshot",
            "`snap push` copies commits to a remote",
        ],
    ),
    (&["ls-files", "ls-tree"], &["use `snap ls -R REV`"]),
    (
        &["reflog"],
        &["`snap branch --log` lists the moves of HEAD", "`snap branch --log NAME` of a branch"],
    ),
    (&["bundle"], &["`snap pack` creates a bundle", "`snap unpack` imports one"]),
    (&["unlock", "break-lock"], &["not needed: a lock ends with its process"]),
    (
        &["key", "passwd", "change-passphrase"],
        &["snap does not encrypt stores; encrypt the disk or the bucket"],
    ),
    (&["generate"], &["`snap completions SHELL` prints a script", "`snap man` prints the manual"]),
    (&["daemon"], &["use `snap serve`"]),
    (&["version"], &["use `snap --version`"]),
];

/// The same for subcommands, with the command above them.
const SUBCOMMANDS: &[(&str, Row)] = &[
    ("remote", (&["rm", "delete"], &["use `snap remote remove NAME`"])),
    ("remote", (&["rename"], &["use `snap remote remove OLD`, then `snap remote add NEW URL`"])),
    ("remote", (&["set-url"], &["use `snap config set remote.NAME.url URL`"])),
    ("remote", (&["get-url"], &["use `snap remote show NAME`"])),
    ("remote", (&["prune", "update"], &["use `snap pull`"])),
    ("config", (&["edit"], &["use `snap config set KEY VALUE`"])),
];

/// Returns what to use instead of a subcommand of `path`.
pub(super) fn instead(path: &[&str], typed: &str) -> Option<&'static [&'static str]> {
    let has = |(names, instead): &Row| names.contains(&typed).then_some(*instead);
    match path {
        [] => COMMANDS.iter().find_map(has),
        [above] => SUBCOMMANDS.iter().filter(|(of, _)| of == above).find_map(|(_, row)| has(row)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::definition, foreign::check_hint};

    #[test]
    fn each_word_is_no_command_of_snap_and_in_one_row() {
        let definition = definition();
        let mut seen = std::collections::HashSet::new();
        for name in COMMANDS.iter().flat_map(|(names, _)| *names) {
            assert!(definition.find_subcommand(name).is_none() && seen.insert(name), "{name}");
        }
        for (above, (names, _)) in SUBCOMMANDS {
            let above = definition.find_subcommand(above).unwrap();
            for name in *names {
                assert!(above.find_subcommand(name).is_none(), "{name}");
            }
        }
    }

    #[test]
    fn each_hint_names_what_exists() {
        let definition = definition();
        let rows = COMMANDS.iter().chain(SUBCOMMANDS.iter().map(|(_, row)| row));
        rows.flat_map(|(_, instead)| *instead).for_each(|line| check_hint(&definition, line));
    }
}
