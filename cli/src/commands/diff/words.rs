//! Describes differences other than the content in words.

use snap_core::{
    base::time::Time,
    format::tree::Metadata,
    ops::diff::{Change, ChangeSide, ComparedKind, Differences, Status},
};

use crate::ui::text;

/// Describes a change, unless its contents can be compared by lines.
pub(crate) fn words(change: &Change, differences: Differences) -> String {
    let noun = change.item().what.noun();
    let by_lines = |item: &ChangeSide| {
        matches!(item.what, ComparedKind::File { .. } | ComparedKind::Symlink { .. })
    };
    match (change.status(), &change.old, &change.new) {
        (_, Some(old), Some(new)) if differences.kind => {
            format!("{} => {}", old.what.noun(), new.what.noun())
        }
        (Status::Added | Status::Deleted | Status::Ignored, ..) if by_lines(change.item()) => {
            String::new()
        }
        (Status::Added, ..) => format!("added {noun}"),
        (Status::Deleted, ..) => format!("deleted {noun}"),
        (Status::Ignored, ..) => format!("ignored {noun}"),
        _ => metadata(change, differences),
    }
}

/// Describes differences in metadata, such as `mode 0644 => 0755`.
pub(crate) fn metadata(change: &Change, differences: Differences) -> String {
    let mut parts = Vec::new();
    if let (true, Some(old), Some(new)) = (differences.mode, &change.old, &change.new) {
        let (old, new) = (old.metadata.mode, new.metadata.mode);
        parts.push(format!("mode {old:04o} => {new:04o}"));
    }
    let is_device = |what: &ComparedKind| {
        matches!(what, ComparedKind::CharDevice { .. } | ComparedKind::BlockDevice { .. })
    };
    if differences.content && is_device(&change.item().what) {
        parts.push("another device".to_owned());
    }
    let described = described(change, differences);
    parts.extend(described.iter().map(|(name, old, new)| format!("{name} {old} => {new}")));
    parts.join(", ")
}

/// Returns the differences except mode and content: the name of the attribute, its old and its new
/// value.
pub(crate) fn described(
    change: &Change,
    differences: Differences,
) -> Vec<(&'static str, String, String)> {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return Vec::new() };
    let (old, new) = (&old.metadata, &new.metadata);
    let mut described = Vec::new();
    let mut add = |wanted: bool, name, shown: fn(&Metadata) -> String| {
        if wanted {
            described.push((name, shown(old), shown(new)));
        }
    };
    add(differences.owner, "owner", |metadata| {
        let named = |name: &[u8], number: u32| match name.is_empty() {
            true => number.to_string(),
            false => text::line(name),
        };
        let owner = metadata.owner.as_deref();
        owner.map_or_else(String::new, |owner| {
            format!("{}:{}", named(&owner.user, owner.uid), named(&owner.group, owner.gid))
        })
    });
    add(differences.xattrs, "xattrs", |metadata| {
        let shown = metadata.xattrs.iter().map(|xattr| {
            let (name, value) = (text::line(&xattr.name), text::line(&xattr.value));
            if value.chars().count() <= 40 { format!("{name}={value}") } else { name }
        });
        let shown: Vec<String> = shown.collect();
        if shown.is_empty() { "(none)".to_owned() } else { shown.join(" ") }
    });
    add(differences.mtime, "mtime", |metadata| {
        metadata.mtime.map_or_else(|| "(none)".to_owned(), Time::rfc3339)
    });
    add(differences.link, "link", |metadata| {
        metadata.link.map_or_else(|| "(none)".to_owned(), |link| format!("{link:016x}"))
    });
    add(differences.holes, "holes", |metadata| {
        if metadata.sparse { "yes".to_owned() } else { "no".to_owned() }
    });
    described
}
