//! Clones, pushes and pulls.

use std::collections::BTreeSet;

use crate::{
    search::Fault,
    sequences::{
        check::{Before, adopt_tips, check_store, note_damage},
        execute::Execution,
        files::{Kind, Node, Tree, differences, is_within, observe},
        model::{Damage, is_store_link},
        operation::Place,
    },
};

impl Execution {
    /// Clones the remote, in full or in part.
    pub(crate) fn clone_remote(&mut self, place: Place) -> Result<(), Fault> {
        let Some(tip) = self.model.store(Place::Hub).tip().cloned() else { return Ok(()) };
        let tree = self.model.commits[&tip].tree.clone();
        let scope = place.scope();
        if self.world.folder(place).exists()
            || !(scope.is_empty() || tree.get(scope).is_some_and(|node| node.kind == Kind::Folder))
        {
            return Ok(());
        }
        let before = Before::read(&self.world);
        let mut args = vec!["clone"];
        if !scope.is_empty() {
            args.extend(["--path", scope]);
        }
        let (location, folder) = (self.world.location(), self.world.folder(place));
        args.extend([location.as_str(), folder.to_str().expect("a plain path")]);
        let ran = self.world.run(&self.world.outside(), args);
        before.check_unchanged(&self.world, Some(place))?;
        let has_link =
            tree.iter().any(|(path, node)| is_within(path, scope) && is_store_link(path, node));
        if ran.code != Some(if has_link { 3 } else { 0 }) {
            return Err(Fault::new("a clone fails without a reason", ran.told()));
        }
        let within = |tree: &Tree| -> Tree {
            let is_kept =
                |path: &str, node: &Node| is_within(path, scope) && !is_store_link(path, node);
            let kept = tree.iter().filter(|(path, node)| is_kept(path, node));
            kept.map(|(path, node)| (path.clone(), node.clone())).collect()
        };
        let (expected, found) = (within(&tree), observe(&folder).unwrap());
        if expected != found {
            let detail = differences(&expected, &found).join("\n");
            return Err(Fault::new("a clone writes files that differ from the commit", detail));
        }
        let seen = self.model.ancestors(&tip);
        let forged = self.model.store(Place::Hub).forged.clone();
        let store = self.model.store(place);
        store.has_remote = true;
        store.forged = forged;
        // Files without the link are not those of the commit.
        store.contained = Some(if has_link { BTreeSet::new() } else { seen.clone() });
        store.seen = seen;
        adopt_tips(&self.world, &mut self.model, place)?;
        check_store(&self.world, &mut self.model, place, None)
    }

    /// Pushes the current branch to the remote.
    pub(crate) fn push(&mut self, place: Place) -> Result<(), Fault> {
        let Some(tip) = self.model.store(place).tip().cloned() else { return Ok(()) };
        let branch = self.model.store(place).branch();
        // The first push decides the default branch of the remote.
        if branch != "main" && self.model.store(Place::Hub).tip().is_none() {
            return Ok(());
        }
        // A push relies on the index of the remote, so it would not send the content.
        let ancestors = self.model.ancestors(&tip);
        let hub = self.model.store(Place::Hub).clone();
        let is_forged =
            |node: &Node| matches!(node.kind, Kind::File(_, id) if hub.forged.contains(&id));
        let mut new = ancestors.iter().filter(|id| !hub.commits.contains(id));
        if new.any(|id| self.model.commits[id].tree.values().any(is_forged)) {
            return Ok(());
        }
        let (folder, location) = (self.world.folder(place), self.world.location());
        if !self.model.store(place).has_remote {
            let ran = self.world.run(&folder, ["remote", "add", "origin", &location]);
            if ran.code != Some(0) {
                return Err(Fault::new("a remote cannot be added", ran.told()));
            }
            self.model.store(place).has_remote = true;
        }
        let before = Before::read(&self.world);
        let hub_tip = self.model.store(Place::Hub).tips.get(&branch).cloned();
        let ran = self.world.run(&folder, ["push"]);
        before.check_unchanged(&self.world, None)?;
        let is_forward = hub_tip.is_none_or(|hub_tip| ancestors.contains(&hub_tip));
        match ran.code {
            Some(0) => {
                for id in &ancestors {
                    self.model.store(Place::Hub).hold(id);
                }
                self.model.store(Place::Hub).tips.insert(branch, tip);
            }
            _ if !is_forward || self.model.store(place).damage != Damage::None => {}
            _ => return Err(Fault::new("a push fails without a reason", ran.told())),
        }
        check_store(&self.world, &mut self.model, Place::Hub, None)?;
        check_store(&self.world, &mut self.model, place, None)
    }

    /// Pulls the current branch of the remote.
    pub(crate) fn pull(&mut self, place: Place) -> Result<(), Fault> {
        let branch = self.model.store(place).branch();
        let hub = self.model.store(Place::Hub);
        let forged = hub.forged.clone();
        let Some(hub_tip) = hub.tips.get(&branch).cloned() else { return Ok(()) };
        if !self.model.store(place).has_remote {
            return Ok(());
        }
        let before = Before::read(&self.world);
        let tip = self.model.store(place).tip().cloned();
        let ran = self.world.run(&self.world.folder(place), ["pull"]);
        before.check_unchanged(&self.world, None)?;
        adopt_tips(&self.world, &mut self.model, place)?;
        self.model.store(place).forged.extend(forged);
        let ancestors = self.model.ancestors(&hub_tip);
        let is_forward = tip.as_ref().is_none_or(|tip| ancestors.contains(tip));
        let after = self.model.store(place).tip().cloned();
        let damage = self.model.store(place).damage;
        match ran.code {
            Some(0) if is_forward && after.as_ref() != Some(&hub_tip) => {
                let detail = format!("{after:?} instead of {hub_tip:.12}");
                return Err(Fault::new("a pull succeeds without the commits", detail));
            }
            Some(0) => {}
            _ if after != tip => {
                return Err(Fault::new("a failed pull moves a branch", ran.told()));
            }
            _ if is_forward && damage == Damage::None => {
                return Err(Fault::new("a pull fails without a reason", ran.told()));
            }
            _ => {}
        }
        if damage != Damage::None {
            // Objects that the damaged store was assumed to have may be missing.
            note_damage(&self.world, &mut self.model, place);
        }
        check_store(&self.world, &mut self.model, place, None)
    }
}
