//! The kind of an argument's value, derived from the name of the value.

use clap::Arg;

/// The kind of an argument's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// A commit.
    Rev,
    /// A commit, or an entry in it.
    RevOrEntry,
    /// An entry in a commit.
    Entry,
    /// A branch.
    Branch,
    /// A branch, or HEAD.
    BranchOrHead,
    /// A tag.
    Tag,
    /// A branch or a tag.
    Ref,
    /// A remote.
    Remote,
    /// A setting.
    Setting,
    /// `KEY=VALUE`, as in earlier commits.
    Label,
    /// A local file or folder.
    File,
    /// A local folder.
    Folder,
    /// A value that cannot be completed.
    Other,
}

/// Returns the kind of `argument` of the command at `path`. Returns `None` for an unknown argument;
/// a test makes sure that there is none.
pub(super) fn of(path: &[&str], argument: &Arg) -> Option<ValueKind> {
    let named = argument.get_value_names().and_then(|names| names.first());
    let name = match named {
        Some(name) => name.to_string(),
        None => argument.get_id().as_str().to_uppercase(),
    };
    // The same value name has different meanings in different commands.
    let kind = match (path, argument.get_id().as_str(), &*name) {
        (["branch"], "log", _) => ValueKind::BranchOrHead,
        (["branch"], _, "NAME") | (_, "branch", _) => ValueKind::Branch,
        (["serve", ..], _, "NAME" | "REPOSITORY") => ValueKind::Other,
        (["tag"], _, "NAME") => ValueKind::Tag,
        (_, "profile", _)
        | (["commit" | "archive" | "log"], _, "NAME")
        | (["export"], "prefix", _) => ValueKind::Other,
        (["clone"], "name", _) | (["remote", "add"], _, _) => ValueKind::Other,
        (_, _, "REMOTE" | "REMOTE|URL" | "REMOTE|URL|FILE" | "REMOTE|URL|DIR|FILE") => {
            ValueKind::Remote
        }
        (_, _, "URL" | "RATE" | "OPTION=VALUE" | "ADDRESS") => ValueKind::Other,
        (
            _,
            _,
            "REV" | "COMMIT" | "FROM" | "TO" | "REV|BRANCH" | "REV|URL[#REV]" | "BRANCH|TAG",
        ) => ValueKind::Rev,
        (_, _, "REV[:PATH]" | "COMMIT[:PATH]" | "REV[:PATH]|FILE") => ValueKind::RevOrEntry,
        (_, _, "REV:PATH" | "REV:PATH|ID") => ValueKind::Entry,
        (_, _, "BRANCH") => ValueKind::Branch,
        (_, _, "TAG") => ValueKind::Tag,
        (_, _, "REF") => ValueKind::Ref,
        (_, _, "KEY") => ValueKind::Setting,
        (_, _, "KEY=VALUE" | "KEY[=VALUE]") => ValueKind::Label,
        (_, _, "FILE" | "PATH") => ValueKind::File,
        (_, _, "DIR" | "FOLDER" | "STORE") => ValueKind::Folder,
        (_, _, "WHO" | "TEXT" | "PATTERN" | "VALUE" | "COMMAND") => ValueKind::Other,
        (_, _, "FILE[:HEADER]" | "SIZE" | "NUMBER" | "N" | "LINES" | "PART" | "DATE" | "TIME")
        | (_, _, "AGE" | "branch|host|label:KEY") => ValueKind::Other,
        _ => return None,
    };
    Some(kind)
}
