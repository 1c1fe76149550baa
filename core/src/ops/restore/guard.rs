//! Keeps what no commit could have contained.
//!
//! An entry that the rules of commits leave out is not in the snapshot because
//! it was never meant to be, so it does not count as extra. Each set of rules
//! excludes: those in force and those that the commit records. Each is applied
//! twice, with the ignore files that the target has before the restore and with
//! those of the snapshot, which it has afterwards. What the commit could not
//! read is kept, too.
//!
//! The target's ignore files are read when a folder is entered, those of the
//! snapshot when the first extra in it is met. An ignore file that cannot be
//! read, or is too large, could exclude everything, so everything below it
//! stays. The same holds for a folder that cannot be read.

use std::sync::Arc;

use rustix::{fs::Stat, io::Errno};

use crate::{
    base::{
        id::{BlobId, TreeId},
        limits,
        name::EntryName,
    },
    format::tree::Kind,
    local::{
        contain::{Folder, FolderPath, Listing, Root},
        ignore::{CACHEDIR_TAG, GITIGNORE, Rules, SNAPIGNORE, Scope, read_small, whole},
        scan::{FileKind, FileStat},
        visible::join,
    },
    ops::{
        content,
        restore::{Protection, RestoreError},
    },
    repo::path::{components, entry_named, is_within},
    store::Store,
};

/// Files that decide over what is in their folder, weakest first.
const FILES: [&str; 3] = [GITIGNORE, SNAPIGNORE, CACHEDIR_TAG];

/// A file of [`FILES`], if there is one.
#[derive(Clone, Debug, Default)]
enum Text {
    #[default]
    None,
    Is(Arc<[u8]>),
    Unreadable,
}

type Texts = [Text; FILES.len()];

/// The texts of a folder that cannot be read.
const UNREADABLE: Texts = [const { Text::Unreadable }; FILES.len()];

/// The verdict of one set of rules with one set of ignore files on a folder.
#[derive(Clone, Debug, Default)]
struct View {
    scope: Scope,
    /// True if everything in the folder is left out.
    excludes_all: bool,
    /// True if everything in the folder but the cache tag is left out.
    is_cache: bool,
}

struct Level {
    /// In the snapshot.
    path: Vec<u8>,
    tree: Option<TreeId>,
    /// True if the snapshot's tree above could not be read, so that `tree` is
    /// not known.
    is_tree_lost: bool,
    before: Texts,
    /// Two for each set of rules: with the ignore files before and after.
    views: Option<Vec<View>>,
}

/// Decides which entries of the target stay.
pub(super) struct Guard<'j> {
    store: &'j Store,
    protection: &'j Protection,
    rules: Vec<Rules>,
    levels: Vec<Level>,
}

impl<'j> Guard<'j> {
    /// Creates a guard; [`Guard::enter_top`] comes before any other method.
    pub(super) fn new(store: &'j Store, protection: &'j Protection) -> Result<Self, RestoreError> {
        let rules = protection.rules.iter().map(|options| Rules::new(options.clone(), None));
        let rules = rules.collect::<Result<_, _>>().map_err(RestoreError::Rules)?;
        Ok(Self { store, protection, rules, levels: Vec::new() })
    }

    /// Enters the target, whose tree is `tree`.
    pub(super) fn enter_top(&mut self, tree: Option<TreeId>, there: Option<(&Folder, &Listing)>) {
        let protection = self.protection;
        let parts: Vec<&[u8]> = components(&protection.place).collect();
        let disk = protection.above.as_ref().map(|above| Root::open(above).ok());
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
                        Some(texts_on_disk(&folder, &listing))
                    })
                    .unwrap_or(UNREADABLE),
                None => Texts::default(),
            };
            let (path_here, tree) = (path.clone(), above);
            self.levels.push(Level { path: path_here, tree, is_tree_lost, before, views: None });
            let entry = above.map(|tree| entry_named(self.store, tree, part)).transpose();
            is_tree_lost |= entry.is_err();
            above = match entry.ok().flatten().flatten().map(|entry| entry.kind) {
                Some(Kind::Folder { id }) => Some(id),
                _ => None,
            };
            path = join(&path, part);
            if let Ok(name) = EntryName::new(part) {
                at = at.child(name);
            }
        }
        self.push(path, tree, there);
    }

    /// Enters a folder of the present one; `tree` is what the snapshot has
    /// there, and `there` what the target has.
    pub(super) fn enter(
        &mut self,
        name: &EntryName,
        tree: Option<TreeId>,
        there: Option<(&Folder, &Listing)>,
    ) {
        let path = self.path_of(name);
        self.push(path, tree, there);
    }

    fn push(&mut self, path: Vec<u8>, tree: Option<TreeId>, there: Option<(&Folder, &Listing)>) {
        let before = there.map(|(folder, listing)| texts_on_disk(folder, listing));
        let before = before.unwrap_or_default();
        self.levels.push(Level { path, tree, is_tree_lost: false, before, views: None });
    }

    /// Leaves the present folder.
    pub(super) fn leave(&mut self) {
        self.levels.pop();
    }

    fn path_of(&self, name: &EntryName) -> Vec<u8> {
        join(self.levels.last().map_or(&[][..], |level| &level.path), name.as_bytes())
    }

    /// Returns whether an entry of the present folder is outside what the snapshot
    /// was made of.
    pub(super) fn is_outside(&self, name: &EntryName) -> bool {
        let made_of = self.protection.made_of.as_ref();
        made_of.is_some_and(|made_of| {
            let path = self.path_of(name);
            !made_of.iter().any(|folder| is_within(&path, folder))
        })
    }

    /// Returns whether an entry of the present folder is one that the commit could not
    /// have contained.
    pub(super) fn protects(&mut self, name: &EntryName, stat: &Stat) -> bool {
        let path = self.path_of(name);
        if self.protection.unread.covers(&path) {
            return true;
        }
        let Some(stat) = FileStat::from_raw(stat) else { return true };
        let is_folder = stat.kind == FileKind::Folder;
        self.complete();
        let views = self.levels.last().and_then(|level| level.views.as_deref());
        views.unwrap_or_default().iter().enumerate().any(|(at, view)| {
            let rules = &self.rules[at / 2];
            view.excludes_all
                || (view.is_cache && !Rules::is_cache_tag(name.as_bytes()))
                || rules.excludes_size(&stat)
                || rules.excludes_path(&view.scope, &path, is_folder)
        })
    }

    /// Works out the views of all levels down to the present one.
    fn complete(&mut self) {
        let first = self.levels.iter().position(|level| level.views.is_none());
        for at in first.unwrap_or(self.levels.len())..self.levels.len() {
            let (above, below) = self.levels.split_at(at);
            let after = match below[0].is_tree_lost {
                true => Some(UNREADABLE),
                false => below[0].tree.map(|tree| texts_in_tree(self.store, tree)),
            };
            let sides = [below[0].before.clone(), after.unwrap_or_default()];
            let mut views = Vec::with_capacity(2 * self.rules.len());
            for (number, rules) in self.rules.iter().enumerate() {
                for (side, texts) in sides.iter().enumerate() {
                    let above = above.last().and_then(|level| level.views.as_ref());
                    let above = above.map(|views| &views[2 * number + side]);
                    views.push(view(rules, above, &below[0].path, texts));
                }
            }
            self.levels[at].views = Some(views);
        }
    }
}

/// What `rules` say about the folder at `path` with these files in it.
fn view(rules: &Rules, above: Option<&View>, path: &[u8], texts: &Texts) -> View {
    let mut view = above.cloned().unwrap_or_default();
    view.excludes_all |= view.is_cache
        || (above.is_some() && rules.excludes_path(&view.scope, path, true))
        || texts.iter().any(|text| matches!(text, Text::Unreadable));
    view.is_cache = false;
    for (name, text) in FILES.into_iter().zip(texts) {
        let Text::Is(text) = text else { continue };
        match name {
            CACHEDIR_TAG => view.is_cache = rules.honours_cache_tag(text),
            GITIGNORE if !rules.options().gitignore => {}
            _ => view.scope = std::mem::take(&mut view.scope).with_file(text, path),
        }
    }
    view
}

fn texts_on_disk(folder: &Folder, listing: &Listing) -> Texts {
    FILES.map(|name| {
        if !listing.has(name.as_bytes()) {
            return Text::None;
        }
        let text = read_small(folder, name);
        let text = if name == CACHEDIR_TAG { text } else { text.and_then(whole) };
        match text {
            Ok(text) => Text::Is(text.into()),
            // A link, a folder or nothing: no ignore file for a commit either.
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::LOOP | Errno::ISDIR | Errno::NOENT | Errno::NXIO) => Text::None,
                _ => Text::Unreadable,
            },
        }
    })
}

fn texts_in_tree(store: &Store, tree: TreeId) -> Texts {
    FILES.map(|name| match entry_named(store, tree, name.as_bytes()) {
        Ok(Some(entry)) => match entry.kind {
            Kind::File { size, .. } if name != CACHEDIR_TAG && size > limits::IGNORE_FILE_BYTES => {
                Text::Unreadable
            }
            Kind::File { size, id } => read_stored(store, &id, size),
            _ => Text::None,
        },
        Ok(None) => Text::None,
        Err(_) => Text::Unreadable,
    })
}

/// The beginning of a stored content, as much as is read of an ignore file.
fn read_stored(store: &Store, id: &BlobId, size: u64) -> Text {
    if size == 0 {
        return Text::None;
    }
    let mut text = Vec::new();
    let done = content::stream(store, id, size, &mut |run| {
        run.pieces().for_each(|piece| text.extend_from_slice(piece));
        if text.len() as u64 >= limits::IGNORE_FILE_BYTES { Err(()) } else { Ok(()) }
    });
    if matches!(done, Err(content::Stop::Damage(_))) {
        return Text::Unreadable;
    }
    text.truncate(limits::IGNORE_FILE_BYTES as usize);
    Text::Is(text.into())
}
