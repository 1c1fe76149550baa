//! The state of garbage collection with which a remote store is born, and its loss.

use std::sync::Arc;

use snap_core::{
    base::{kind::ErrorKind, observe::Silent},
    format::gc_state::GcState,
    ops::{
        repair::RepairRun,
        verify::{Data, VerifyOptions},
    },
};
use snap_remote::{
    bucket::Bucket,
    peer::{GC, GC_STATE, RemoteError},
    remote_packs::BlockingContext,
    repair::{self, RemoteRepairOptions, RemoteRepairOutcome},
    verify::{self, RemoteVerifyOutcome, SeenRefs},
};

use crate::{
    gc::{collect, delete, load, memory},
    place::{Place, Wrapped},
};

/// Returns a client and the bucket to which it has pushed two branches, and deleted one of them.
fn with_garbage(name: &str) -> (Place, Arc<dyn Bucket>) {
    let (place, other, service) = (Place::new(), Place::new(), load(name, &Default::default()));
    for (place, branch) in [(&place, "main"), (&other, "gone")] {
        let commit = place.change(branch, format!("only in {branch}"));
        let refs = vec![place.update(branch, commit)];
        let mut remote = place.remote(service.clone(), "remote");
        place.push_all(&mut remote, refs).unwrap().all_moved().unwrap();
    }
    delete(&place, service.clone(), "gone");
    (place, service)
}

fn state(place: &Place, service: &dyn Bucket) -> Option<GcState> {
    let read = place.runtime.block_on(service.get(GC_STATE, 1_000)).ok()?;
    Some(GcState::decode(&read.bytes).unwrap())
}

fn lose(place: &Place, service: &dyn Bucket) {
    place.runtime.block_on(service.delete(&[GC_STATE.to_owned()])).unwrap();
}

fn verified(service: Arc<dyn Bucket>) -> RemoteVerifyOutcome {
    let place = Place::new();
    let waiting = BlockingContext::without_stop(place.runtime.handle());
    let options = VerifyOptions { data: Data::All };
    let remote = place.remote(service, "verifying");
    verify::run(remote, &options, SeenRefs::default(), &waiting, &Silent).unwrap()
}

fn repaired(place: &Place, service: &Arc<dyn Bucket>) -> RemoteRepairOutcome {
    let waiting = BlockingContext::without_stop(place.runtime.handle());
    let options = RemoteRepairOptions {
        data: Data::None,
        run: RepairRun::Real,
        level: 3,
        scratch: place.folder.path(),
        seen: SeenRefs::default(),
    };
    let open = || Ok(place.remote(service.clone(), "repairing"));
    repair::run(&open, &|| &[], &options, &waiting, &Silent).unwrap()
}

#[track_caller]
fn assert_lost(error: &RemoteError) {
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert_eq!(error.to_string(), "gc/state at test://place is damaged: it is missing");
}

#[test]
fn the_first_collection_does_not_raise_the_version() {
    let (place, service) = with_garbage("first_collection");
    let first = state(&place, &*service).unwrap();
    assert_eq!((first.epoch, first.version, first.table), (0, 0, None));
    let counting = Wrapped::new(service.clone(), |_, _, _| Box::pin(async { false }));
    assert_eq!(collect(counting.clone()).unwrap().deleted_packs, 1);
    let seen = counting.seen.lock().clone();
    let of = |what: &str, key: &str| {
        seen.iter().filter(|(operation, at)| *operation == what && at == key).count()
    };
    assert_eq!((of("read", "config.toml"), of("write", "config.toml")), (1, 0), "{seen:?}");
    // A raised version would take two more: a write of the settings, and a read that confirms it.
    assert_eq!(counting.calls(), 28, "{seen:?}");
    let now = state(&place, &*service).unwrap();
    assert_eq!((now.epoch, now.version), (1, 2));
    assert_ne!(now.epoch_nonce, first.epoch_nonce);
}

#[test]
fn a_store_without_a_state_is_not_collected_until_it_is_repaired() {
    let (place, service) = with_garbage("lost_state");
    lose(&place, &*service);
    let before = crate::gc::dump(&*service);
    assert_lost(&collect(service.clone()).unwrap_err());
    assert_eq!(crate::gc::dump(&*service), before);
    let [problem] = &verified(service.clone()).problems[..] else { panic!("one problem") };
    assert_lost(problem);
    let outcome = repaired(&place, &service);
    assert_eq!((outcome.problems, &outcome.repaired_keys[..]), (1, &[GC_STATE.to_owned()][..]));
    assert!(outcome.left.is_intact());
    assert_eq!(state(&place, &*service).unwrap().epoch, 0);
    assert_eq!(repaired(&place, &service).problems, 0);
    assert_eq!(collect(service).unwrap().deleted_packs, 1);
}

#[test]
fn a_damaged_state_is_repaired_before_the_first_collection_only() {
    let (place, service) = with_garbage("damaged_state");
    let damage = || {
        let write = service.put(GC_STATE, "x".into());
        place.runtime.block_on(write).unwrap();
    };
    damage();
    assert_eq!(repaired(&place, &service).repaired_keys, [GC_STATE]);
    collect(service.clone()).unwrap();
    // The table of a collection cannot be made again.
    lose(&place, &*service);
    let outcome = repaired(&place, &service);
    assert_eq!(outcome.repaired_keys, Vec::<String>::new());
    assert_lost(&outcome.left.problems[0]);
    assert_lost(&collect(service.clone()).unwrap_err());
    let other = Place::new();
    let mut remote = other.remote(service, "new");
    assert_lost(&other.runtime.block_on(remote.refresh()).unwrap_err());
}

#[test]
fn a_lost_table_is_written_again_by_a_client_that_knows_it() {
    let (place, service) = with_garbage("lost_table");
    assert_eq!(collect(service.clone()).unwrap().deleted_packs, 1);
    assert_eq!(repaired(&place, &service).problems, 0);
    let key = format!("{GC}{}", state(&place, &*service).unwrap().table_name().unwrap());
    let before = crate::gc::dump(&*service);
    for table in [None, Some("x")] {
        match table {
            None => place.runtime.block_on(service.delete(&[key.to_owned()])).unwrap(),
            Some(text) => {
                let write = service.put(&key, text.into());
                place.runtime.block_on(write).map(drop).unwrap();
            }
        }
        // Another client knows neither the table nor what it says.
        let other = Place::new();
        let mut remote = other.remote(service.clone(), "new");
        match other.runtime.block_on(remote.refresh()).unwrap_err() {
            RemoteError::Damaged { key: damaged, .. } => assert_eq!(damaged, key),
            error => panic!("{error}"),
        }
        let outcome = repaired(&place, &service);
        assert_eq!((outcome.problems, &outcome.repaired_keys[..]), (1, &[key.clone()][..]));
        assert!(outcome.left.is_intact());
        assert_eq!(crate::gc::dump(&*service), before);
    }
    assert!(verified(service).is_intact());
}

#[test]
fn a_push_completes_a_store_whose_creation_was_killed() {
    let place = Place::new();
    for missing in ["config.toml", "HEAD", GC_STATE] {
        let name = format!("killed_creation_{missing}");
        let service = load(&name, &Default::default());
        let commit = place.change("a", missing);
        let cut = Wrapped::new(service.clone(), move |_, operation, key| {
            let is_cut = operation == "write" && (key == missing || key.starts_with("refs/"));
            Box::pin(async move { is_cut })
        });
        place.push(&mut place.remote(cut, &format!("cut_{missing}")), commit).unwrap_err();
        assert!(!crate::gc::dump(&*service).contains_key(missing));
        place.push(&mut place.remote(memory(&name), missing), commit).unwrap();
        assert_eq!(state(&place, &*service).unwrap().epoch, 0, "{missing}");
    }
}
