//! Checks the invariants after each step.

use std::collections::{BTreeMap, BTreeSet};

use fs_err as fs;

use crate::{
    search::Fault,
    sequences::{
        files::{Tree, differences, is_within, observe},
        model::{Damage, Id, Model, prefixes, without_folders_above},
        operation::Place,
        stored::{Index, Reader},
        world::World,
    },
};

/// The files of all working folders, and the files that bind mounts show.
pub(crate) struct Before {
    folders: BTreeMap<Place, Tree>,
    outside: Tree,
}

impl Before {
    /// Reads the present state.
    pub(crate) fn read(world: &World) -> Self {
        let read = |place| (place, observe(&world.folder(place)).unwrap());
        Self {
            folders: Place::WORKING.into_iter().map(read).collect(),
            outside: observe(&world.outside()).unwrap(),
        }
    }

    /// Returns the files of one folder.
    pub(crate) fn of(&self, place: Place) -> &Tree {
        &self.folders[&place]
    }

    /// Fails if a file changed, except in the folder of `except`.
    pub(crate) fn check_unchanged(
        &self,
        world: &World,
        except: Option<Place>,
    ) -> Result<(), Fault> {
        for (place, before) in &self.folders {
            if Some(*place) == except {
                continue;
            }
            let after = observe(&world.folder(*place)).unwrap();
            if *before != after {
                let detail = differences(before, &after).join("\n");
                return Err(Fault::new(
                    "a command changes files that it must not change",
                    format!("in {}:\n{detail}", place.folder()),
                ));
            }
        }
        let after = observe(&world.outside()).unwrap();
        if let Some(gone) = self.outside.keys().find(|path| !after.contains_key(*path)) {
            let detail = format!("outside/{gone} is gone");
            return Err(Fault::new("a file outside of the project is removed", detail));
        }
        Ok(())
    }
}

/// A commit that was just acknowledged.
pub(crate) struct Fresh<'a> {
    pub(crate) id: &'a Id,
    /// The paths that come from the disk; empty for all of them. The other paths come from the
    /// parent.
    pub(crate) paths: Vec<&'a str>,
}

/// Reads every acknowledged commit of a store, and compares it with the model. `fresh` must be
/// complete even if the store is damaged, unless the program could not know of the damage.
pub(crate) fn check_store(
    world: &World,
    model: &mut Model,
    place: Place,
    fresh: Option<&Fresh<'_>>,
) -> Result<(), Fault> {
    let dir = world.store(place);
    if !world.has_store(place) {
        return Ok(());
    }
    let told = |message: String| Fault::new("a store cannot be read", message);
    let mut reader = Reader::open(&dir).map_err(told)?;
    let store = model.stores.entry(place).or_default();
    let scope = place.scope();
    let mut without_index = match store.damage {
        Damage::None => None,
        _ => Reader::open_with(&dir, Index::MadeAgain).ok(),
    };
    for id in store.commits.clone() {
        let commit = &model.commits[&id];
        let fresh = fresh.filter(|fresh| *fresh.id == id);
        let mut lost = BTreeSet::new();
        if let Some(part) = reader.commit(&id) {
            // Objects outside the scope of a partial clone may be missing locally.
            let unreadable = part.unreadable.iter().filter(|path| is_within(path, scope));
            lost.extend(unreadable.map(|path| Some(path.clone())));
            let is_known =
                |path: &str| !prefixes(path).chain([""]).any(|p| part.unreadable.contains(p));
            let only = |tree: &Tree| -> Tree {
                let kept = tree.iter().filter(|(path, _)| is_known(path));
                kept.map(|(path, node)| (path.clone(), node.clone())).collect()
            };
            let mut expected = only(&commit.tree);
            let mut found = only(&part.tree);
            if let Some(fresh) = fresh.filter(|fresh| !fresh.paths.is_empty()) {
                expected = without_folders_above(&expected, &fresh.paths);
                found = without_folders_above(&found, &fresh.paths);
            }
            if expected != found {
                let detail = differences(&expected, &found).join("\n");
                let kind = match fresh {
                    Some(fresh) if fresh.paths.is_empty() => {
                        "a commit and its folder have different files"
                    }
                    Some(_) if place == Place::Partial => {
                        "a commit in a partial clone has wrong files"
                    }
                    Some(_) => "a commit of paths has wrong files",
                    None => "an acknowledged commit changed",
                };
                return Err(Fault::new(kind, format!("{id:.12} in {}:\n{detail}", place.folder())));
            }
            if fresh.is_some_and(|fresh| !fresh.paths.is_empty()) {
                // From here on this tree must stay the same, including the parent folders.
                let tree = part.tree.clone();
                let kept = commit.tree.iter().filter(|(path, _)| !tree.contains_key(*path));
                let whole =
                    kept.map(|(path, node)| (path.clone(), node.clone())).chain(tree.clone());
                let whole = std::rc::Rc::new(whole.collect());
                model.commits.get_mut(&id).unwrap().tree = whole;
            }
        } else {
            lost.insert(None);
        }
        let before = store.lost.get(&id).cloned().unwrap_or_default();
        let grew = lost.iter().find(|path| !covers(&before, path.as_deref()));
        let may_lose = |path: &Option<String>| match fresh {
            None => false,
            Some(_) if store.damage == Damage::Hidden => true,
            Some(fresh) => {
                let is_own = |path: &str| {
                    fresh.paths.is_empty() || fresh.paths.iter().any(|own| is_within(path, own))
                };
                path.as_deref().is_some_and(|path| !is_own(path)) && store.damage != Damage::None
            }
        };
        let must_be_whole = fresh.and_then(|_| lost.iter().find(|path| !may_lose(path)));
        if let Some(path) = must_be_whole.or(grew.filter(|path| !may_lose(path))) {
            let path = path.as_deref().unwrap_or("the commit itself");
            let kind = match (fresh, store.damage) {
                (Some(_), _) if place == Place::Partial => {
                    "a commit in a partial clone is acknowledged without its content"
                }
                (Some(_), _) => "a commit is acknowledged without its content",
                (None, _) if place == Place::Hub => "a push leaves a commit incomplete",
                (None, Damage::None) => "an acknowledged commit is lost",
                (None, _) => "damage affects a commit that was intact",
            };
            let detail = format!("{id:.12} in {}: `{path}` cannot be read", place.folder());
            return Err(Fault::new(kind, detail));
        }
        if let Some(without_index) = &mut without_index {
            lost.extend(without_index.unreadable(&id));
        }
        if lost.is_empty() {
            store.lost.remove(&id);
        } else {
            store.lost.insert(id, lost);
        }
    }
    Ok(())
}

/// Records what the damage, which the test just caused, took from each commit.
pub(crate) fn note_damage(world: &World, model: &mut Model, place: Place) {
    let store = model.stores.entry(place).or_default();
    let reader = Reader::open_with(&world.store(place), Index::MadeAgain);
    let ids = store.commits.clone();
    let Ok(mut reader) = reader else {
        store.lost.extend(ids.into_iter().map(|id| (id, BTreeSet::from([None]))));
        return;
    };
    for id in ids {
        let lost = reader.unreadable(&id);
        if !lost.is_empty() {
            store.lost.entry(id).or_default().extend(lost);
        }
    }
}

/// Returns true if damage to `lost` explains that `path` cannot be read.
fn covers(lost: &BTreeSet<Option<String>>, path: Option<&str>) -> bool {
    let is_lost = |path: &str| lost.contains(&Some(path.to_owned()));
    lost.contains(&None) || path.is_some_and(|path| prefixes(path).chain([""]).any(is_lost))
}

/// Adopts the branches of a store into the model. Each tip must be a commit that the model knows.
pub(crate) fn adopt_tips(world: &World, model: &mut Model, place: Place) -> Result<(), Fault> {
    let told = |message: String| Fault::new("a store cannot be read", message);
    let reader = Reader::open(&world.store(place)).map_err(told)?;
    let tips = reader.tips().map_err(told)?;
    if let Some((branch, id)) = tips.iter().find(|(_, id)| !model.commits.contains_key(*id)) {
        let detail = format!("{branch} of {} is at {id:.12}", place.folder());
        return Err(Fault::new("a branch is at an unknown commit", detail));
    }
    let store = model.store(place);
    store.tips = tips;
    store.current = reader.branch();
    for tip in store.tips.values().cloned().collect::<Vec<_>>() {
        for id in model.ancestors(&tip) {
            let store = model.store(place);
            if !store.commits.contains(&id) {
                store.hold(&id);
            }
        }
    }
    Ok(())
}

/// Lists the packs of a store, sorted by name.
pub(crate) fn packs(world: &World, place: Place) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(world.store(place).join("objects")) else { return Vec::new() };
    let mut packs: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    packs.sort();
    packs
}
