//! Options of other tools, and what to write instead. Options that mean the same in snap are
//! aliases in clap's definition.

/// An option that a command does not have.
struct Row {
    /// The commands, such as `commit` or `config set`. Any command if there are none.
    commands: &'static [&'static str],
    /// The names of the option.
    options: &'static [&'static str],
    /// What to write instead, one choice a line.
    instead: &'static [&'static str],
}

const fn row(
    commands: &'static [&'static str],
    options: &'static [&'static str],
    instead: &'static [&'static str],
) -> Row {
    Row { commands, options, instead }
}

const CONFIG: &[&str] = &["config", "config get", "config set", "config unset", "config list"];
const NO_ENCRYPTION: &[&str] = &["snap does not encrypt stores; encrypt the disk or the bucket"];
const NO_STAGING: &[&str] = &["not needed: snap has no staging area"];

const ROWS: &[Row] = &[
    row(&[], &["--git-dir", "--work-tree"], &["use `--store STORE`"]),
    row(&[], &["-C"], &["use `cd DIR`, then snap"]),
    row(&[], &["--password-file", "--password-command", "--passphrase"], NO_ENCRYPTION),
    row(&[], &["--limit-upload-rate", "--upload-ratelimit"], &["use `--limit-upload RATE`"]),
    row(&["archive", "commit"], &["--tag"], &["use `--label KEY=VALUE`"]),
    row(&["archive", "commit"], &["-H"], &["use `--host NAME`"]),
    row(&["archive", "commit"], &["-x"], &["use `--one-file-system`"]),
    row(&["archive", "commit"], &["--with-atime"], &["snap does not save access times"]),
    row(&["archive", "commit"], &["--stdin-filename"], &["use `snap commit --stdin NAME`"]),
    row(&["commit"], &["-a", "--all"], &["not needed: `snap commit` commits all files"]),
    row(&["commit"], &["--amend"], &["use `snap undo`, then `snap commit`"]),
    row(&["commit"], &["-i", "-p", "--interactive", "--patch"], &["use `snap commit PATH`"]),
    row(&["commit"], &["-F", "--file"], &["use `-m \"$(cat FILE)\"`"]),
    row(&["commit"], &["--no-verify"], &["use `--no-hooks`"]),
    row(
        &["commit"],
        &["--allow-empty-message", "--no-edit"],
        &["not needed: a commit needs no message"],
    ),
    row(&["commit"], &["-s", "-S", "--signoff", "--gpg-sign"], &["snap does not sign commits"]),
    row(&["commit"], &["-f", "--force"], &["use `--checksum`"]),
    row(&["commit"], &["--parent"], &["not needed: snap finds the parent"]),
    row(&["commit"], &["--skip-if-unchanged"], &["not needed: snap commits only changes"]),
    row(
        &["status"],
        &["--porcelain"],
        &["`--json` prints records", "`-s` prints one line for each change"],
    ),
    row(
        &["status"],
        &["-u", "-b", "--untracked-files", "--branch", "--long"],
        &["not needed: this is the default"],
    ),
    row(&["diff"], &["--cached", "--staged"], NO_STAGING),
    row(&["diff"], &["-p", "-u", "--patch"], &["not needed: this is the default"]),
    row(&["diff"], &["-M", "--find-renames"], &["not needed: snap always detects renames"]),
    row(&["diff"], &["--word-diff", "--color-words"], &["snap compares whole lines"]),
    row(&["log"], &["--graph"], &["snap draws no graph; use `--oneline`"]),
    row(&["log", "show"], &["--pretty", "--format"], &["`--json` prints records"]),
    row(&["log"], &["--branches", "--tags", "--remotes"], &["use `--all`"]),
    row(&["log"], &["--latest"], &["use `-n NUMBER`"]),
    row(&["log"], &["--committer"], &["use `--author TEXT`"]),
    row(&["log"], &["--tag"], &["use `--label KEY=VALUE`"]),
    row(&["log"], &["--path"], &["use `snap log -- PATH`"]),
    row(&["log"], &["--decorate"], &["not needed: this is the default"]),
    row(
        &["log", "show"],
        &["--stat", "--name-only", "--name-status"],
        &["use `snap diff --stat REV~1 REV`"],
    ),
    row(&["ls"], &["-a", "--all", "--human-readable"], &["not needed: this is the default"]),
    row(&["find"], &["--name"], &["use `snap find NAME`"]),
    row(&["find"], &["--snapshot"], &["use `snap find NAME REV`"]),
    row(&["restore"], &["-t", "--target"], &["use `snap restore REV DIR`"]),
    row(&["restore"], &["-s", "--source"], &["use `snap restore REV:PATH`"]),
    row(&["restore"], &["-W", "-S", "--staged", "--worktree"], NO_STAGING),
    row(&["restore"], &["-f", "--force"], &["use `--overwrite`"]),
    row(&["restore"], &["--verify"], &["not needed: snap verifies what it restores"]),
    row(&["restore"], &["--host", "--path", "--tag"], &["use `snap log` to find the commit"]),
    row(
        &["tag"],
        &["-a", "-m", "-s", "--annotate", "--message"],
        &["tags have no message; use `snap tag NAME`"],
    ),
    row(&["tag", "branch"], &["-l", "--list"], &["not needed: without a name, all are listed"]),
    row(&["branch"], &["-D"], &["use `-d NAME`"]),
    row(
        &["branch"],
        &["-m", "-M", "--move"],
        &["use `snap branch NEW OLD`, then `snap branch -d OLD`"],
    ),
    row(&["branch"], &["-c", "--copy"], &["use `snap branch NEW OLD`"]),
    row(&["branch"], &["-a", "--all"], &["use `snap branch --remotes`"]),
    row(&["branch"], &["--show-current"], &["use `snap status`"]),
    row(
        &["branch", "push"],
        &["-u", "--set-upstream", "--set-upstream-to"],
        &["not needed: the default remote is `origin`, or the only one"],
    ),
    row(&["push"], &["--force-with-lease"], &["use `--force`"]),
    row(&["push"], &["--mirror"], &["use `--all --tags`"]),
    row(&["push"], &["--follow-tags"], &["use `--tags`"]),
    row(&["push"], &["--prune"], &["use `--delete REF`"]),
    row(&["pull"], &["--ff-only", "--no-rebase"], &["not needed: `snap pull` only fast-forwards"]),
    row(
        &["pull"],
        &["--rebase", "--merge"],
        &[
            "snap does not merge",
            "`snap branch NAME` keeps the local commits under another name",
            "`snap pull --force` then moves the branch to that of the remote",
        ],
    ),
    row(&["pull"], &["--tags"], &["use `snap pull REMOTE TAG`"]),
    row(&["fetch"], &["-p", "--all", "--tags", "--prune"], &["use `snap pull`"]),
    row(&["clone"], &["--bare", "--mirror"], &["use `--no-restore`"]),
    row(
        &["clone"],
        &["--filter", "--sparse"],
        &["`--depth N` downloads fewer commits", "`--path PATH` downloads fewer files"],
    ),
    row(
        &["clone"],
        &["--recursive", "--recurse-submodules"],
        &["not needed: snap has no submodules"],
    ),
    row(&["init"], &["--bare"], &["use `snap init --store DIR`"]),
    row(&["init"], &["-b", "--initial-branch"], &["use `snap commit --branch NAME`"]),
    row(&["verify"], &["--read-data"], &["use `--data`"]),
    row(&["verify"], &["--read-data-subset"], &["use `--sample PART`"]),
    row(&["stats"], &["--mode"], &["not needed: snap prints all sizes"]),
    row(&["export"], &["--target"], &["use `--output FILE`"]),
    row(CONFIG, &["--global", "--system"], &["use `snap config set --user KEY VALUE`"]),
    row(CONFIG, &["-l", "--list"], &["use `snap config list`"]),
    row(CONFIG, &["--get"], &["use `snap config get KEY`"]),
    row(CONFIG, &["--unset"], &["use `snap config unset KEY`"]),
    row(CONFIG, &["-e", "--edit"], &["use `snap config set KEY VALUE`"]),
];

/// Returns what to write instead of an option of the command `path`.
pub(super) fn instead(path: &[&str], typed: &str) -> Option<&'static [&'static str]> {
    let path = path.join(" ");
    let of = |row: &&Row| row.commands.contains(&path.as_str()) || row.commands.is_empty();
    let rows = ROWS.iter().filter(|row| row.options.contains(&typed));
    // The row of a command comes before one for any command.
    rows.filter(of).max_by_key(|row| !row.commands.is_empty()).map(|row| row.instead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::definition, foreign::check_hint};

    #[test]
    fn no_row_is_about_an_option_of_snap() {
        let mut definition = definition();
        definition.build();
        for Row { commands, options, .. } in ROWS {
            for command in *commands {
                let parts = command.split(' ');
                let command = parts.fold(&definition, |command, name| {
                    command.find_subcommand(name).unwrap_or_else(|| panic!("{name}"))
                });
                let own: Vec<String> = command
                    .get_arguments()
                    .flat_map(|arg| {
                        let long = arg.get_long_and_visible_aliases().unwrap_or_default();
                        let long =
                            long.into_iter().chain(arg.get_all_aliases().unwrap_or_default());
                        let short = arg.get_short().map(|short| format!("-{short}"));
                        long.map(|name| format!("--{name}")).chain(short).collect::<Vec<_>>()
                    })
                    .collect();
                for option in *options {
                    assert!(
                        !own.contains(&(*option).to_owned()),
                        "{} {option}",
                        command.get_name()
                    );
                }
            }
        }
    }

    #[test]
    fn each_option_of_a_command_is_in_one_row() {
        let mut seen = std::collections::HashSet::new();
        for row in ROWS {
            for command in if row.commands.is_empty() { &[""] } else { row.commands } {
                for option in row.options {
                    assert!(seen.insert((command, option)), "{command} {option}");
                }
            }
        }
    }

    #[test]
    fn each_hint_names_what_exists() {
        let mut definition = definition();
        definition.build();
        for row in ROWS {
            row.instead.iter().for_each(|line| check_hint(&definition, line));
            // An option alone is one of the command itself.
            for line in row.instead.iter().filter(|line| line.contains("`--")) {
                for command in row.commands {
                    let whole = line.replace("`--", &format!("`snap {command} --"));
                    check_hint(&definition, &whole);
                }
            }
        }
    }
}
