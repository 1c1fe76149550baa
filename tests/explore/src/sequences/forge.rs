//! Another user, who gives a store a chunk list under the id of another list.

use std::io::Read as _;

use fs_err as fs;
use snap_core::{
    base::observe::Silent,
    disk::Disk,
    format::{
        chunk_list::{ListBuilder, ListObject},
        pack::ObjectKind,
    },
    local::cut::identify_source,
    repo::{Config, Repo},
    store::ObjectWriter,
};

use crate::{
    search::Fault,
    sequences::{
        check::{Before, check_store},
        execute::Execution,
        files::{Filling, hash},
        operation::Place,
    },
};

impl Execution {
    /// Gives the store of a place a wrong chunk list for the large file with this number. A store
    /// in a project gets the packs, as if it had been copied from elsewhere. The remote gets them
    /// by a push of a branch that is deleted afterwards.
    pub(crate) fn forge(&mut self, place: Place, number: u64) -> Result<(), Fault> {
        if !self.has_store(place) {
            return Ok(());
        }
        let content = Filling { number, large: true }.bytes();
        let attacker = self.world.attacker();
        if attacker.exists() {
            fs::remove_dir_all(&attacker).unwrap();
        }
        fs::create_dir(&attacker).unwrap();
        let store = attacker.join(".snap");
        write_wrong_list(&store, &content);
        let before = Before::read(&self.world);
        if place == Place::Hub {
            // The program counts the content as stored in the store of the attacker, who wrote it.
            fs::write(attacker.join("iso"), &content).unwrap();
            let location = self.world.location();
            for args in [
                &["commit", "-b", "evil"][..],
                &["push", &location, "evil"],
                &["push", &location, "--delete", "evil"],
            ] {
                self.world.run(&attacker, args);
            }
        } else {
            for pack in fs::read_dir(store.join("objects")).unwrap() {
                let pack = pack.unwrap();
                let to = self.world.store(place).join("objects").join(pack.file_name());
                fs::copy(pack.path(), to).unwrap();
            }
        }
        before.check_unchanged(&self.world, None)?;
        self.model.store(place).forged.insert(hash(&content));
        check_store(&self.world, &mut self.model, place, None)
    }
}

/// Makes a store with the list of other chunks under the id of the list of `content`.
fn write_wrong_list(store: &std::path::Path, content: &[u8]) {
    Repo::init(store, &Disk::default(), &Config::default()).unwrap();
    let repo = Repo::open(store, Disk::default(), &Silent).unwrap();
    let writer = ObjectWriter::new(repo.store(), 3, 1).unwrap();
    let mut other = content.to_vec();
    other.reverse();
    let cuts = [other.len() / 2, other.len()];
    let mut list = ListBuilder::default();
    for chunk in writer.add_chunks(&other, &cuts).unwrap() {
        list.push(chunk).unwrap();
    }
    let (_, objects) = list.finish().unwrap();
    let [ListObject { bytes, .. }] = &objects[..] else { panic!("{objects:?}") };
    let (id, _) = identify_source(&mut content.take(u64::MAX), &|| false).unwrap();
    writer.add_metadata(ObjectKind::ChunkList, id.object(), bytes).unwrap();
    writer.finish().unwrap();
}
