//! Tests of several requests that add the same packs.

use std::sync::Arc;

use snap_core::{base::id::BlobId, repo::Config, store::ObjectWriter};
use tokio::runtime::Runtime;

use super::UpstreamRepository;
use crate::upstream::tests::in_folder;

#[test]
fn a_pack_published_by_another_request_is_listed() {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let upstream = Arc::new(in_folder(folder.path(), runtime.handle()));
    upstream.create("a", &Config::default().to_text()).unwrap();
    let repository = UpstreamRepository::open(&upstream, "a").unwrap();
    let bring = |bytes: &[u8]| {
        let writer = ObjectWriter::new(repository.store(), 1, 1).unwrap();
        writer.add_blob(0, BlobId::of(bytes), bytes).unwrap();
        writer.finish().unwrap();
    };
    bring(b"brought");
    let id = repository.store().packs()[0];
    repository.remember_pending(&[id]).unwrap();
    // Another request that tried to add the pack has failed.
    repository.forget_pending(&[id]);
    repository.publish().unwrap();
    repository.refresh_packs().unwrap();
    assert!(repository.there(&repository.push_state.lock()).contains(&id));
    assert!(repository.store().packs().contains(&id));
}
