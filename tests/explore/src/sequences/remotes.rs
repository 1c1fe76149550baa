//! Clones, pushes and pulls.

use crate::sequences::{
    check::{Before, adopt_tips, check_store, note_damage},
    execute::Execution,
    files::{Kind, Tree, differences, is_within, observe},
    model::{Damage, Fault},
    operation::Place,
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
        if ran.code != Some(0) {
            return Err(Fault::new("a clone fails without a reason", ran.told()));
        }
        let within = |tree: &Tree| -> Tree {
            let kept = tree.iter().filter(|(path, _)| is_within(path, scope));
            kept.map(|(path, node)| (path.clone(), node.clone())).collect()
        };
        let (expected, found) = (within(&tree), observe(&folder).unwrap());
        if expected != found {
            let detail = differences(&expected, &found).join("\n");
            return Err(Fault::new("a clone writes files that differ from the commit", detail));
        }
        let seen = self.model.ancestors(&tip);
        let store = self.model.store(place);
        store.has_remote = true;
        store.contained = Some(seen.clone());
        store.seen = seen;
        adopt_tips(&self.world, &mut self.model, place)?;
        check_store(&self.world, &mut self.model, place, None)
    }

    /// Pushes the current branch to the remote.
    pub(crate) fn push(&mut self, place: Place) -> Result<(), Fault> {
        let Some(tip) = self.model.store(place).tip().cloned() else { return Ok(()) };
        let (folder, location) = (self.world.folder(place), self.world.location());
        if !self.model.store(place).has_remote {
            let ran = self.world.run(&folder, ["remote", "add", "origin", &location]);
            if ran.code != Some(0) {
                return Err(Fault::new("a remote cannot be added", ran.told()));
            }
            self.model.store(place).has_remote = true;
        }
        let before = Before::read(&self.world);
        let hub_tip = self.model.store(Place::Hub).tip().cloned();
        let ran = self.world.run(&folder, ["push"]);
        before.check_unchanged(&self.world, None)?;
        let ancestors = self.model.ancestors(&tip);
        let is_forward = hub_tip.is_none_or(|hub_tip| ancestors.contains(&hub_tip));
        match ran.code {
            Some(0) => {
                for id in &ancestors {
                    self.model.store(Place::Hub).hold(id);
                }
                self.model.store(Place::Hub).tips.insert("main".to_owned(), tip);
            }
            _ if !is_forward || self.model.store(place).damage != Damage::None => {}
            _ => return Err(Fault::new("a push fails without a reason", ran.told())),
        }
        check_store(&self.world, &mut self.model, Place::Hub, None)?;
        check_store(&self.world, &mut self.model, place, None)
    }

    /// Pulls the current branch of the remote.
    pub(crate) fn pull(&mut self, place: Place) -> Result<(), Fault> {
        let Some(hub_tip) = self.model.store(Place::Hub).tip().cloned() else { return Ok(()) };
        if !self.model.store(place).has_remote {
            return Ok(());
        }
        let before = Before::read(&self.world);
        let tip = self.model.store(place).tip().cloned();
        let ran = self.world.run(&self.world.folder(place), ["pull"]);
        before.check_unchanged(&self.world, None)?;
        adopt_tips(&self.world, &mut self.model, place)?;
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
