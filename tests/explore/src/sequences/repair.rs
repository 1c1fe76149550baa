//! Repairs of a damaged store.

use std::collections::BTreeSet;

use crate::{
    search::Fault,
    sequences::{
        check::{Before, check_store},
        execute::Execution,
        model::{Damage, Id},
        operation::{OwnFile, Place},
        stored::Reader,
    },
};

impl Execution {
    /// Repairs the store of a place from its remote, if it has one, and from its files.
    pub(crate) fn repair(&mut self, place: Place, data: bool) -> Result<(), Fault> {
        if !self.has_store(place) {
            return Ok(());
        }
        let before = Before::read(&self.world);
        let args: &[&str] = if data { &["repair", "--data"] } else { &["repair"] };
        let ran = self.world.run(&self.world.folder(place), args);
        before.check_unchanged(&self.world, None)?;
        let reachable = self.model.reachable(place);
        let at_remote: BTreeSet<Id> = match self.model.store(place).has_remote {
            true => self.model.store(Place::Hub).commits.iter().cloned().collect(),
            false => BTreeSet::new(),
        };
        let store = self.model.store(place);
        let whole: BTreeSet<Id> = match ran.code {
            Some(0) => reachable,
            Some(4) if store.damage == Damage::None && !store.forged.is_empty() => reachable,
            Some(4) if store.damage != Damage::None => {
                reachable.intersection(&at_remote).cloned().collect()
            }
            _ => return Err(Fault::new("a repair fails without a reason", ran.told())),
        };
        // A repair of the structure may miss damage that only reading the data detects. Objects
        // outside the scope of a partial clone may stay missing locally.
        let finds_all = data || store.damage != Damage::Hidden;
        if finds_all && place != Place::Partial {
            self.check_repaired(place, &whole)?;
            if data && ran.code == Some(0) {
                self.check_verified(place)?;
            }
        }
        let store = self.model.store(place);
        if store.damage != Damage::None && finds_all {
            store.damage = Damage::Known;
        }
        check_store(&self.world, &mut self.model, place, None)
    }

    /// Removes a file of the store other than a pack. The program must detect that, and its hint
    /// must restore the file unchanged.
    pub(crate) fn lose_file(&mut self, place: Place, file: OwnFile) -> Result<(), Fault> {
        let lost = self.world.store(place).join(file.path());
        let store = self.model.store(place);
        let (has_remote, is_main) = (store.has_remote, store.branch() == "main");
        // After a crash the log may be ahead of the branch.
        let is_told = file != OwnFile::Branch || self.is_logged(place);
        // The settings contain the remote, which a repair cannot restore.
        if !self.has_store(place) || !lost.is_file() || !is_told || has_remote || !is_main {
            return Ok(());
        }
        let before = fs_err::read(&lost).unwrap();
        fs_err::remove_file(&lost).unwrap();
        let folder = self.world.folder(place);
        let ran = self.world.run(&folder, ["verify"]);
        if ran.code != Some(4) {
            return Err(Fault::new("verify does not find a lost file", ran.told()));
        }
        let ran = match file {
            OwnFile::Branch => {
                let command =
                    ran.stderr.split('`').find(|text| text.starts_with("snap branch main"));
                let command = command.ok_or(Fault::new("verify gives no hint", ran.told()))?;
                self.world.run(&folder, command.split(' ').skip(1))
            }
            OwnFile::Head | OwnFile::Settings => self.world.run(&folder, ["repair"]),
        };
        let may_fail = self.model.store(place).damage != Damage::None;
        let is_back = match (file, fs_err::read(&lost)) {
            // Each write of a ref has a new nonce, so only the commit id is compared.
            (OwnFile::Branch, Ok(now)) => now.get(..64) == before.get(..64),
            (OwnFile::Head, Ok(now)) => now == before,
            (OwnFile::Settings, now) => now.is_ok(),
            (_, Err(_)) => false,
        };
        if !(is_back || file == OwnFile::Branch && may_fail) {
            return Err(Fault::new("the hint does not restore a lost file", ran.told()));
        }
        if !is_back {
            fs_err::write(&lost, before).unwrap();
        }
        check_store(&self.world, &mut self.model, place, None)
    }

    /// Returns true if the log of `main` ends at the tip of the branch.
    fn is_logged(&self, place: Place) -> bool {
        let store = self.world.store(place);
        let branch = fs_err::read_to_string(store.join("refs/heads/main")).unwrap_or_default();
        let log =
            fs_err::read_to_string(store.join("logs/refs/heads/main.log")).unwrap_or_default();
        let last = log.lines().last().and_then(|line| line.split('\t').nth(2));
        last.is_some() && last == branch.lines().next()
    }

    /// Fails if one of the commits cannot be read completely.
    fn check_repaired(&mut self, place: Place, whole: &BTreeSet<Id>) -> Result<(), Fault> {
        let told = |message| Fault::new("a store cannot be read", message);
        let mut reader = Reader::open(&self.world.store(place)).map_err(told)?;
        for id in whole {
            if let Some(path) = reader.unreadable(id).first() {
                let path = path.as_deref().unwrap_or("the commit itself");
                let detail = format!("{id:.12} in {}: `{path}` cannot be read", place.folder());
                return Err(Fault::new("a repair leaves out available data", detail));
            }
            self.model.store(place).lost.remove(id);
        }
        Ok(())
    }

    /// Fails if a verification right after a repair finds damage.
    fn check_verified(&mut self, place: Place) -> Result<(), Fault> {
        let ran = self.world.run(&self.world.folder(place), ["verify", "--data"]);
        match ran.code {
            Some(0) => Ok(()),
            _ => Err(Fault::new("a repair succeeds and leaves damage", ran.told())),
        }
    }
}
