//! Tests of relays with a damaged cache: the relay fetches damaged parts from its
//! upstream again.

use std::path::{Path, PathBuf};

use reqwest::StatusCode;
use snap_core::base::id::{CommitId, PackId};
use snap_nettest::{Fault, Rule};

use crate::{
    place::{Place, Serving, random},
    upstream::{Bucket, create, pack, push, relay, set},
    upstream_away::Relayed,
};

/// Pseudo-random numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % most.max(1)
    }
}

/// The damage that is done to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip,
    Cut,
    Remove,
}

/// Returns all non-empty files below a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.append(&mut files(&path)),
            Ok(kind) if kind.is_file() => found.push(path),
            _ => {}
        }
    }
    found.sort();
    found
}

/// Damages a file in place, unless it has vanished.
fn damage(path: &Path, how: Damage, numbers: &mut Numbers) {
    let Ok(mut bytes) = fs_err::read(path) else { return };
    // Cutting a memory-mapped file would crash the running process.
    let is_mapped = path.extension().is_some_and(|ending| ending == "idx");
    match how {
        Damage::Remove => drop(fs_err::remove_file(path)),
        Damage::Cut if !is_mapped => {
            let length = numbers.below(bytes.len() as u64);
            let file = fs_err::File::options().write(true).open(path);
            let _ = file.map(|file| file.set_len(length));
        }
        _ if bytes.is_empty() => {}
        _ => {
            use std::os::unix::fs::FileExt;
            let at = numbers.below(bytes.len() as u64);
            let end = bytes.len().min(at as usize + 4);
            bytes[at as usize..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
            let file = fs_err::File::options().write(true).open(path);
            let _ = file.map(|file| file.file().write_at(&bytes[at as usize..end], at));
        }
    }
}

/// Makes the read-only files of a store writable.
fn make_writable(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for path in files(folder) {
        let _ = fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o600));
    }
}

/// The reason why a request failed. A successful but wrong response panics instead.
type Failed = String;

async fn bytes(serving: &Serving, path: &str) -> Result<Vec<u8>, Failed> {
    let failed = |error: reqwest::Error| format!("{path}: {error}");
    let response = serving.get(path).send().await.map_err(failed)?;
    let status = response.status();
    let bytes = response.bytes().await.map_err(failed)?;
    match status {
        StatusCode::OK => Ok(bytes.to_vec()),
        _ => Err(format!("{path}: {status} {}", String::from_utf8_lossy(&bytes))),
    }
}

/// A commit that was pushed, and its content, which the relay must return.
struct Pushed {
    from: Place,
    tip: CommitId,
    name: String,
    content: Vec<u8>,
}

impl Pushed {
    /// Reads one thing and checks it.
    async fn read(&self, relay: &Serving, what: u64) -> Result<(), Failed> {
        let packs = self.from.repo.store().packs();
        match what {
            0 => {
                let refs = bytes(relay, "refs").await?;
                let refs: serde_json::Value = serde_json::from_slice(&refs).unwrap();
                assert_eq!(refs["refs"][0]["commit"], self.tip.to_string());
            }
            1 => {
                let path = format!("commits/main/files/{}", self.name);
                assert!(bytes(relay, &path).await? == self.content, "{path}");
            }
            2 => {
                let index = bytes(relay, "index").await?;
                let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
                let mut told = Vec::new();
                for file in index["files"].as_array().unwrap() {
                    let name = file["name"].as_str().unwrap();
                    let file = bytes(relay, &format!("index/{name}")).await?;
                    assert_eq!(blake3::hash(&file).to_hex().as_str(), name);
                    let outlines = snap_core::format::outline::decode(&file).unwrap().outlines;
                    told.extend(outlines.iter().map(|outline| outline.id));
                }
                told.sort_unstable();
                assert_eq!(told, packs);
            }
            3 => {
                let path = format!("commits/{}/bundle", self.tip);
                let bundle = bytes(relay, &path).await?;
                for id in &packs {
                    let pack = self.from.pack_bytes(id);
                    assert!(bundle.windows(pack.len()).any(|part| part == pack));
                }
            }
            number => {
                let id = packs[number as usize % packs.len()];
                let found = bytes(relay, &format!("packs/{id}")).await?;
                assert!(found == self.from.pack_bytes(&id), "{id}");
            }
        }
        Ok(())
    }

    async fn push(&mut self, relay: &Serving, content: Vec<u8>) -> (usize, Vec<Failed>) {
        let before = self.from.repo.store().packs();
        let old = self.tip;
        self.name = format!("f{}", before.len());
        self.tip = self.from.change(&self.name, &content);
        self.content = content;
        let packs = self.from.repo.store().packs().into_iter();
        let new: Vec<PackId> = packs.filter(|id| !before.contains(id)).collect();
        let mut failed = Vec::new();
        for tries in 1..=5 {
            match self.send(relay, &new, old).await {
                Ok(()) => return (tries, failed),
                Err(error) => failed.push(error),
            }
        }
        panic!("a push failed again and again: {failed:?}");
    }

    async fn send(&self, relay: &Serving, new: &[PackId], old: CommitId) -> Result<(), Failed> {
        let sent = relay.send(&self.from, new).await;
        if !sent.status().is_success() {
            return Err(format!("send: {} {}", sent.status(), sent.text().await.unwrap()));
        }
        let moved = set(relay, "main", Some(old), self.tip).send().await.unwrap();
        match moved.status() {
            status if status.is_success() => Ok(()),
            // The ref was moved, but the response to the first attempt was lost.
            StatusCode::PRECONDITION_FAILED if self.reads(relay).await => Ok(()),
            status => Err(format!("set: {status} {}", moved.text().await.unwrap())),
        }
    }

    async fn reads(&self, relay: &Serving) -> bool {
        bytes(relay, "refs")
            .await
            .is_ok_and(|refs| String::from_utf8(refs).unwrap().contains(&self.tip.to_string()))
    }
}

/// Creates a place whose only commit is at a server, and a relay that has cached all of
/// it.
async fn pushed() -> (Pushed, Relayed) {
    let (from, place) = (Place::new(), Relayed::new());
    let content = random(1, 300_000);
    let tip = from.change("f0", &content);
    let sent = place.relay.send(&from, &from.repo.store().packs()).await;
    assert!(sent.status().is_success());
    let moved = set(&place.relay, "main", None, tip).send().await.unwrap();
    assert!(moved.status().is_success());
    (Pushed { from, tip, name: "f0".into(), content }, place)
}

/// Reads a pack, and once more if the first response is a refusal or breaks off.
async fn pack_again(relay: &Serving, id: &PackId) -> Vec<u8> {
    for _ in 0..2 {
        if let Ok(read) = relay.get(&format!("packs/{id}")).send().await
            && read.status() == StatusCode::OK
            && let Ok(bytes) = read.bytes().await
        {
            return bytes.to_vec();
        }
    }
    panic!("pack {id} cannot be read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_damaged_in_the_cache_is_fetched_again() {
    let place = Relayed::new();
    let content = random(7, 300_000);
    place.there.change("a", &content);
    let id = place.there.repo.store().packs()[0];
    let whole = place.there.pack_bytes(&id);
    // In a frame, the header, the footer and the trailer.
    for at in [5000, 9, whole.len() - 60, whole.len() - 3] {
        for is_restarted in [false, true] {
            assert!(pack_again(&place.relay, &id).await == whole);
            let all = files(place.cache.path()).into_iter();
            // The cache holds the whole pack, or after a repair its frames.
            let kept = all.filter(|path| path.ends_with(id.to_string()));
            let kept = kept.collect::<Vec<_>>();
            assert!(!kept.is_empty());
            make_writable(place.cache.path());
            for path in kept {
                let mut bytes = fs_err::read(&path).unwrap();
                bytes[at] ^= 1;
                fs_err::write(&path, bytes).unwrap();
            }
            let relay = match is_restarted {
                false => None,
                true => {
                    let copy = place.cache.path().with_extension("copy");
                    let _ = fs_err::remove_dir_all(&copy);
                    let mut copying = std::process::Command::new("cp");
                    let copied = copying.arg("-a").arg(place.cache.path()).arg(&copy).status();
                    assert!(copied.unwrap().success());
                    Some(relay(&place.proxy.endpoint(), &copy))
                }
            };
            let relay = relay.as_ref().unwrap_or(&place.relay);
            let mut read = relay.get("commits/main/files/a").send().await.unwrap();
            if read.status() == StatusCode::SERVICE_UNAVAILABLE {
                // Clients retry after a `503`.
                read = relay.get("commits/main/files/a").send().await.unwrap();
            }
            assert_eq!(read.status(), StatusCode::OK, "{at} {is_restarted}");
            assert!(read.bytes().await.unwrap() == content, "{at} {is_restarted}");
            assert!(pack_again(relay, &id).await == whole, "{at} {is_restarted}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_cache_damage_fails_at_most_one_request() {
    let seed = std::env::var("SNAP_DAMAGE_SEED").ok().and_then(|seed| seed.parse().ok());
    let rounds = std::env::var("SNAP_DAMAGE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let mut numbers = Numbers(seed.unwrap_or(1));
    let (mut pushed, place) = pushed().await;
    for round in 0..rounds.unwrap_or(60) {
        make_writable(place.cache.path());
        let all = files(place.cache.path());
        let path = &all[numbers.below(all.len() as u64) as usize];
        let how = [Damage::Flip, Damage::Cut, Damage::Remove][numbers.below(3) as usize];
        damage(path, how, &mut numbers);
        let mut failed = Vec::new();
        let mut order: Vec<u64> = (0..8).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, numbers.below(at as u64 + 1) as usize);
        }
        for what in order {
            if what == 7 && round % 4 == 0 {
                let content = random(round as u8, 1 << (10 + numbers.below(10)));
                failed.extend(pushed.push(&place.relay, content).await.1);
            }
            let mut tries = 0;
            while let Err(error) = pushed.read(&place.relay, what).await {
                failed.push(error);
                tries += 1;
                assert!(tries < 5, "round {round}: {how:?} {}: {failed:#?}", path.display());
            }
        }
        assert!(failed.len() <= 1, "round {round}: {how:?} {}: {failed:#?}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_pack_in_the_cache_fails_at_most_one_push() {
    let (mut pushed, place) = pushed().await;
    let first = pushed.from.repo.store().packs()[0];
    pushed.push(&place.relay, random(2, 20_000)).await;
    // The next commit refers to the content of the first one.
    let lost =
        files(place.cache.path()).into_iter().filter(|path| path.ends_with(first.to_string()));
    assert_eq!(lost.map(fs_err::remove_file).map(Result::unwrap).count(), 2);
    let (tries, failed) = pushed.push(&place.relay, random(3, 20_000)).await;
    assert!(tries <= 2, "{failed:?}");
    pushed.read(&place.relay, 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn continuous_cache_damage_loses_no_acknowledged_push() {
    let (mut pushed, place) = pushed().await;
    let (mut numbers, folder) = (Numbers(2), place.cache.path().to_owned());
    let mut damage_one = || {
        make_writable(&folder);
        let all = files(&folder);
        let how = [Damage::Flip, Damage::Remove][numbers.below(2) as usize];
        let path = numbers.below(all.len() as u64);
        if let Some(path) = all.get(path as usize) {
            damage(path, how, &mut numbers);
        }
    };
    // Something is damaged before each step.
    for round in 0..8 {
        let mut pushes = 0;
        let before = (pushed.tip, pushed.name.clone());
        let packs = pushed.from.repo.store().packs();
        pushed.name = format!("f{}", packs.len());
        pushed.content = random(round, 20_000);
        pushed.tip = pushed.from.change(&pushed.name, &pushed.content);
        let all = pushed.from.repo.store().packs().into_iter();
        let new: Vec<PackId> = all.filter(|id| !packs.contains(id)).collect();
        damage_one();
        while let Err(error) = pushed.send(&place.relay, &new, before.0).await {
            pushes += 1;
            assert!(pushes < 20, "{error}");
        }
        for what in 0..12 {
            damage_one();
            let _ = pushed.read(&place.relay, what).await;
        }
    }
    let mut failed = Vec::new();
    for what in 0..12 {
        while let Err(error) = pushed.read(&place.relay, what).await {
            failed.push(error);
            assert!(failed.len() < 10, "{failed:#?}");
        }
    }
    // Everything that was acknowledged is in the upstream.
    for id in pushed.from.repo.store().packs() {
        assert!(pushed.from.pack_bytes(&id) == pack(&place.server, &id).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_upstream_response_is_retried_and_not_cached() {
    let bucket = Bucket::new();
    let writer = bucket.replica("writer");
    create(&writer).await;
    let from = Place::new();
    let content = random(9, 200_000);
    let tip = from.change("a", &content);
    push(&writer, &from, None, tip).await;
    let ids = from.repo.store().packs();
    let path = "commits/main/files/a";

    // Damage once: no request fails.
    for number in 0..2 {
        let relay = bucket.replica(&format!("once{number}"));
        assert!(bytes(&relay, "refs").await.is_ok());
        bucket.proxy.add(Rule::new(Fault::FlipReply).path("objects/").times(1));
        let read = match number {
            0 => bytes(&relay, path).await.unwrap() == content,
            _ => pack(&relay, &ids[0]).await == from.pack_bytes(&ids[0]),
        };
        assert!(read, "{number}");
        bucket.proxy.clear_rules();
    }

    // Permanent damage: the request fails, but the damaged bytes are not kept.
    let relay = bucket.replica("always");
    assert!(bytes(&relay, "refs").await.is_ok());
    bucket.proxy.add(Rule::new(Fault::FlipReply).path("objects/"));
    bytes(&relay, path).await.unwrap_err();
    bucket.proxy.clear_rules();
    assert!(bytes(&relay, path).await.unwrap() == content);
    for id in &ids {
        assert!(pack(&relay, id).await == from.pack_bytes(id));
    }
}
