//! Keeps extras that no commit could have contained.
//!
//! An entry that the exclude rules of commits leave out is missing in the snapshot on purpose, so
//! it does not count as an extra. The present rules and those that the commit records are applied one after the
//! other. Each set of rules is applied twice: with the ignore files of the target before the
//! restore, and with those of the snapshot, which the target has afterwards. Paths that the commit
//! could not read are kept, too.
//!
//! The target's ignore files are read when a folder is entered. The snapshot's ignore files are
//! read when the first extra in the folder is found. If an ignore file is unreadable, too large or
//! no regular file, or has lines that are not applied, everything below it is kept: it could
//! exclude everything. The same applies to an unreadable folder. Such a restore is incomplete: it
//! may keep extras that it should remove.

use std::{collections::BTreeSet, sync::Arc};

use rustix::{
    fs::{AtFlags, FileType, Stat, statat},
    io::Errno,
};

use crate::{
    base::{
        id::{ContentId, ObjectId, TreeId},
        limits,
        name::EntryName,
    },
    format::tree::EntryKind,
    local::{
        contain::{FolderNames, FolderPath, OpenFolder, TargetRoot},
        ignore::{
            FolderMarker, GITIGNORE, IgnoreRules, IgnoreScope, SNAPIGNORE, read_small, whole,
        },
        scan::{FileKind, FileStat},
        visible::join,
    },
    ops::restore::{ExtraProtection, RestoreError},
    repo::path::{components, entry_named, is_within},
    store::{ContentReader, Store, StoreError},
};

/// A folder that exists in the target.
#[derive(Clone, Copy)]
pub(super) struct ExistingFolder<'f> {
    pub(super) folder: &'f OpenFolder,
    /// The names in the folder.
    pub(super) names: &'f FolderNames,
}

/// Files with patterns for their folder, the one with the lowest precedence first.
const FILES: [&str; 2] = [GITIGNORE, SNAPIGNORE];

/// The text of an ignore file or of a marker, if it exists.
#[derive(Clone, Debug, Default)]
enum IgnoreFileText {
    #[default]
    None,
    Is(Arc<[u8]>),
    /// The marker exists, and is not a regular file.
    NoFile,
    /// The rules of the file are unknown: it cannot be read, or commits do not read it.
    Unreadable,
}

/// The files of a folder that decide what commits exclude.
#[derive(Clone, Debug, Default)]
struct Texts {
    /// The texts of [`FILES`].
    patterns: [IgnoreFileText; FILES.len()],
    /// The texts of [`Guard::markers`]. Empty if the folder does not exist.
    markers: Vec<IgnoreFileText>,
}

impl Texts {
    /// Reads each file by its name. The second argument is true for a marker.
    fn read(markers: &[EntryName], read: &mut dyn FnMut(&[u8], bool) -> IgnoreFileText) -> Self {
        let patterns = FILES.map(|name| read(name.as_bytes(), false));
        Self { patterns, markers: markers.iter().map(|name| read(name.as_bytes(), true)).collect() }
    }

    /// Returns the texts of an unreadable folder.
    fn unreadable(markers: &[EntryName]) -> Self {
        Self::read(markers, &mut |_, _| IgnoreFileText::Unreadable)
    }
}

/// The reason why an extra is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Protected {
    /// The extra is not kept.
    No,
    /// Commits exclude the extra.
    Excluded,
    /// The ignore file at this path applies to the extra, and its rules are unknown.
    RulesUnknown(Arc<[u8]>),
}

/// An ignore file of the snapshot whose content is damaged or missing.
pub(super) struct DamagedRules {
    /// Path in the snapshot.
    pub(super) path: Vec<u8>,
    pub(super) object: ObjectId,
    pub(super) source: StoreError,
}

/// The state of one set of rules, combined with one set of ignore files, for a folder.
#[derive(Clone, Debug, Default)]
struct RuleState {
    scope: IgnoreScope,
    /// True if everything in the folder is excluded.
    excludes_all: bool,
    /// The entries that mark the folder. If there are any, everything else in it is excluded.
    markers: Vec<EntryName>,
    /// The path of an ignore file whose rules are unknown, in the folder or above it.
    unknown: Option<Arc<[u8]>>,
}

struct GuardLevel {
    /// The path in the snapshot.
    path: Vec<u8>,
    tree: Option<TreeId>,
    /// True if the snapshot's tree above could not be read, so that `tree` is unknown.
    is_tree_lost: bool,
    before: Texts,
    /// Two views for each set of rules: with the ignore files before and after the
    /// restore. `None` until needed.
    views: Option<Vec<RuleState>>,
}

/// Decides which extras of the target are kept.
pub(super) struct Guard<'j> {
    store: &'j Store,
    protection: &'j ExtraProtection,
    rules: Vec<IgnoreRules>,
    /// The names of the markers of all rules, sorted.
    markers: Vec<EntryName>,
    levels: Vec<GuardLevel>,
    /// Damaged ignore files that were found and that the caller has not taken yet.
    pub(super) damaged: Vec<DamagedRules>,
}

impl<'j> Guard<'j> {
    /// Creates a guard. The caller must call [`Guard::enter_top`] before any other
    /// method.
    pub(super) fn new(
        store: &'j Store,
        protection: &'j ExtraProtection,
    ) -> Result<Self, RestoreError> {
        let rules = protection.rules.iter().map(|options| IgnoreRules::new(options.clone()));
        let rules: Vec<IgnoreRules> =
            rules.collect::<Result<_, _>>().map_err(RestoreError::Rules)?;
        let names: BTreeSet<EntryName> = rules
            .iter()
            .flat_map(IgnoreRules::markers)
            .map(|marker: &FolderMarker| marker.name.clone())
            .collect();
        let (markers, levels, damaged) = (names.into_iter().collect(), Vec::new(), Vec::new());
        Ok(Self { store, protection, rules, markers, levels, damaged })
    }

    /// Enters the target, whose tree is `tree`.
    pub(super) fn enter_top(&mut self, tree: Option<TreeId>, existing: Option<ExistingFolder<'_>>) {
        let protection = self.protection;
        let parts: Vec<&[u8]> = components(&protection.place).collect();
        let disk = protection.above.as_ref().map(|above| TargetRoot::open(above).ok());
        let mut at = FolderPath::top();
        let mut above = protection.root;
        let mut is_tree_lost = false;
        let mut path = Vec::new();
        for part in &parts {
            let before = match &disk {
                Some(root) => root
                    .as_ref()
                    .and_then(|root| {
                        let folder = root.folder(&at).ok()?;
                        let listing = folder.list().ok()?;
                        Some(texts_on_disk(&folder, &listing, &self.markers))
                    })
                    .unwrap_or_else(|| Texts::unreadable(&self.markers)),
                None => Texts::default(),
            };
            let (path_here, tree) = (path.clone(), above);
            let views = None;
            self.levels.push(GuardLevel { path: path_here, tree, is_tree_lost, before, views });
            let entry = above.map(|tree| entry_named(self.store, tree, part)).transpose();
            is_tree_lost |= entry.is_err();
            above = entry.ok().flatten().flatten().and_then(|entry| entry.kind.tree());
            path = join(&path, part);
            if let Ok(name) = EntryName::new(part) {
                at = at.child(name);
            }
        }
        self.push(path, tree, existing);
    }

    /// Enters the subfolder `name` of the current folder. `tree` is its tree in the snapshot, and
    /// `existing` the folder in the target; each is `None` if there is none.
    pub(super) fn enter(
        &mut self,
        name: &EntryName,
        tree: Option<TreeId>,
        existing: Option<ExistingFolder<'_>>,
    ) {
        let path = self.path_of(name);
        self.push(path, tree, existing);
    }

    fn push(&mut self, path: Vec<u8>, tree: Option<TreeId>, existing: Option<ExistingFolder<'_>>) {
        let before = existing.map(|there| texts_on_disk(there.folder, there.names, &self.markers));
        let before = before.unwrap_or_default();
        self.levels.push(GuardLevel { path, tree, is_tree_lost: false, before, views: None });
    }

    /// Leaves the current folder.
    pub(super) fn leave(&mut self) {
        self.levels.pop();
    }

    fn path_of(&self, name: &EntryName) -> Vec<u8> {
        join(self.levels.last().map_or(&[][..], |level| &level.path), name.as_bytes())
    }

    /// Returns true if an entry of the current folder lies outside the paths from which
    /// the snapshot was made.
    pub(super) fn is_outside(&self, name: &EntryName) -> bool {
        let made_of = self.protection.made_of.as_ref();
        made_of.is_some_and(|made_of| {
            let path = self.path_of(name);
            !made_of.iter().any(|folder| is_within(&path, folder))
        })
    }

    /// Returns the reason why the commit could not have contained an entry of the current
    /// folder.
    pub(super) fn protects(&mut self, name: &EntryName, stat: &Stat) -> Protected {
        let path = self.path_of(name);
        if self.protection.unread.covers(&path) {
            return Protected::Excluded;
        }
        let Some(stat) = FileStat::from_raw(stat) else { return Protected::Excluded };
        let is_folder = stat.kind == FileKind::Folder;
        self.complete();
        let views = self.levels.last().and_then(|level| level.views.as_deref());
        let views = views.unwrap_or_default();
        let is_excluded = views.iter().enumerate().any(|(at, view)| {
            let rules = &self.rules[at / 2];
            view.excludes_all
                || (!view.markers.is_empty() && !view.markers.contains(name))
                || rules.excludes_size(&stat)
                || rules.excludes_path(&view.scope, &path, is_folder)
        });
        match is_excluded {
            true => Protected::Excluded,
            false => match views.iter().find_map(|view| view.unknown.clone()) {
                Some(file) => Protected::RulesUnknown(file),
                None => Protected::No,
            },
        }
    }

    /// Computes the missing views of all levels down to the current one.
    fn complete(&mut self) {
        let first = self.levels.iter().position(|level| level.views.is_none());
        for at in first.unwrap_or(self.levels.len())..self.levels.len() {
            let (above, below) = self.levels.split_at(at);
            let after = match below[0].is_tree_lost {
                true => Some(Texts::unreadable(&self.markers)),
                false => {
                    let (place, markers) = (&below[0].path, &self.markers);
                    let damaged = &mut self.damaged;
                    below[0]
                        .tree
                        .map(|tree| texts_in_tree(self.store, tree, markers, place, damaged))
                }
            };
            let sides = [below[0].before.clone(), after.unwrap_or_default()];
            let mut views = Vec::with_capacity(2 * self.rules.len());
            for (number, rules) in self.rules.iter().enumerate() {
                for (side, texts) in sides.iter().enumerate() {
                    let above = above.last().and_then(|level| level.views.as_ref());
                    let above = above.map(|views| &views[2 * number + side]);
                    views.push(view(rules, &self.markers, above, &below[0].path, texts));
                }
            }
            self.levels[at].views = Some(views);
        }
    }
}

/// Computes the view of the folder at `path` with these files in it. `names` are the names of all
/// markers.
fn view(
    rules: &IgnoreRules,
    names: &[EntryName],
    above: Option<&RuleState>,
    path: &[u8],
    texts: &Texts,
) -> RuleState {
    let mut view = above.cloned().unwrap_or_default();
    view.excludes_all |= !view.markers.is_empty()
        || (above.is_some() && rules.excludes_path(&view.scope, path, true));
    view.markers.clear();
    let mut unknown = |name: &[u8]| {
        view.unknown.get_or_insert_with(|| join(path, name).into());
    };
    for (name, text) in FILES.into_iter().zip(&texts.patterns) {
        match (name, text) {
            (GITIGNORE, _) if !rules.options().gitignore => {}
            (_, IgnoreFileText::None | IgnoreFileText::NoFile) => {}
            (_, IgnoreFileText::Unreadable) => unknown(name.as_bytes()),
            (_, IgnoreFileText::Is(text)) => {
                let error;
                (view.scope, error) = std::mem::take(&mut view.scope).with_file(text, path);
                // A line that is not applied could exclude anything.
                if error.is_some() {
                    unknown(name.as_bytes());
                }
            }
        }
    }
    for (name, text) in names.iter().zip(&texts.markers) {
        for marker in rules.markers().iter().filter(|marker| marker.name == *name) {
            let marks = match text {
                IgnoreFileText::None => false,
                IgnoreFileText::Is(text) => marker.is_start_of(text),
                IgnoreFileText::NoFile => marker.header.is_empty(),
                IgnoreFileText::Unreadable => {
                    unknown(name.as_bytes());
                    false
                }
            };
            if marks {
                view.markers.push(name.clone());
            }
        }
    }
    view
}

fn texts_on_disk(folder: &OpenFolder, listing: &FolderNames, markers: &[EntryName]) -> Texts {
    let mut read = |name: &[u8], is_marker: bool| {
        if !listing.has(name) {
            return IgnoreFileText::None;
        }
        match kind_on_disk(folder, name) {
            Ok(FileType::RegularFile) => {}
            Ok(_) if is_marker => return IgnoreFileText::NoFile,
            Ok(FileType::Directory) => return IgnoreFileText::None,
            // A commit reads no link or pipe, so the rules are unknown.
            Ok(_) => return IgnoreFileText::Unreadable,
            // The file has vanished since it was listed.
            Err(Errno::NOENT) => return IgnoreFileText::None,
            Err(_) => return IgnoreFileText::Unreadable,
        }
        let text = read_small(folder, name);
        let text = if is_marker { text } else { text.and_then(whole) };
        match text {
            Ok(text) => IgnoreFileText::Is(text.into()),
            Err(_) => IgnoreFileText::Unreadable,
        }
    };
    Texts::read(markers, &mut read)
}

fn kind_on_disk(folder: &OpenFolder, name: &[u8]) -> Result<FileType, Errno> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// Reads the ignore files and markers of a folder of the snapshot at `place`. Adds the damaged ones
/// to `damaged`.
fn texts_in_tree(
    store: &Store,
    tree: TreeId,
    markers: &[EntryName],
    place: &[u8],
    damaged: &mut Vec<DamagedRules>,
) -> Texts {
    let mut read = |name: &[u8], is_marker: bool| {
        let mut unreadable = |object, source| {
            damaged.push(DamagedRules { path: join(place, name), object, source });
            IgnoreFileText::Unreadable
        };
        let entry = match entry_named(store, tree, name) {
            Ok(entry) => entry,
            Err(source) => return unreadable(tree.object(), source),
        };
        match entry.map(|entry| entry.kind) {
            None => IgnoreFileText::None,
            Some(EntryKind::File { size, .. })
                if !is_marker && size > limits::IGNORE_FILE_BYTES =>
            {
                IgnoreFileText::Unreadable
            }
            Some(EntryKind::File { size, id }) => read_stored(store, &id, size)
                .unwrap_or_else(|source| unreadable(id.object(), source)),
            Some(_) if is_marker => IgnoreFileText::NoFile,
            Some(EntryKind::Folder { .. }) => IgnoreFileText::None,
            // A commit reads no link or pipe, so the rules are unknown.
            Some(_) => IgnoreFileText::Unreadable,
        }
    };
    Texts::read(markers, &mut read)
}

/// Returns the beginning of a stored content, up to the size limit of ignore files.
fn read_stored(store: &Store, id: &ContentId, size: u64) -> Result<IgnoreFileText, StoreError> {
    if size == 0 {
        return Ok(IgnoreFileText::Is(Arc::new([])));
    }
    let reader = ContentReader::new(store);
    let text = reader.read_start(id, Some(size), limits::IGNORE_FILE_BYTES)?;
    Ok(IgnoreFileText::Is(text.into()))
}
