//! What an argument stands for, told by the name of its value.

use clap::Arg;

/// What an argument stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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
    /// `KEY=VALUE`, as earlier commits have it.
    Label,
    /// A file or folder here.
    File,
    /// A folder here.
    Folder,
    /// Something that only the user knows.
    Other,
}

/// What `argument` of the command at `path` stands for; `None` if nobody has
/// said so here, which a test does not let pass.
pub(super) fn of(path: &[&str], argument: &Arg) -> Option<Kind> {
    let named = argument.get_value_names().and_then(|names| names.first());
    let name = match named {
        Some(name) => name.to_string(),
        None => argument.get_id().as_str().to_uppercase(),
    };
    // A name stands for different things in different commands.
    let kind = match (path, argument.get_id().as_str(), &*name) {
        (["branch"], "log", _) => Kind::BranchOrHead,
        (["branch"], _, "NAME") | (_, "branch", _) => Kind::Branch,
        (["serve", ..], _, "NAME" | "REPOSITORY") => Kind::Other,
        (["tag"], _, "NAME") => Kind::Tag,
        (["commit" | "archive"], _, "NAME") | (["export"], "prefix", _) => Kind::Other,
        (["clone"], "name", _) | (["remote", "add"], _, _) => Kind::Other,
        (_, _, "REMOTE" | "REMOTE|URL" | "REMOTE|URL|DIR|FILE") => Kind::Remote,
        (_, _, "URL" | "RATE" | "OPTION=VALUE" | "ADDRESS") => Kind::Other,
        (_, _, "REV" | "COMMIT" | "FROM" | "TO") => Kind::Rev,
        (_, _, "REV[:PATH]" | "COMMIT[:PATH]" | "REV[:PATH]|FILE") => Kind::RevOrEntry,
        (_, _, "REV:PATH" | "REV:PATH|ID") => Kind::Entry,
        (_, _, "BRANCH") => Kind::Branch,
        (_, _, "TAG") => Kind::Tag,
        (_, _, "REF") => Kind::Ref,
        (_, _, "KEY") => Kind::Setting,
        (_, _, "KEY=VALUE") => Kind::Label,
        (_, _, "FILE" | "PATH") => Kind::File,
        (_, _, "DIR" | "FOLDER" | "STORE") => Kind::Folder,
        (_, _, "WHO" | "TEXT" | "PATTERN" | "VALUE" | "COMMAND") => Kind::Other,
        (_, _, "SIZE" | "NUMBER" | "N" | "LINES" | "PART" | "DATE" | "TIME") => Kind::Other,
        _ => return None,
    };
    Some(kind)
}
