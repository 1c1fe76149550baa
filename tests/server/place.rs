//! A store with commits, and a server of it.

use std::path::{Path, PathBuf};

use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::Silent,
    },
    disk::Disk,
    format::outline::{self, Outline},
    ops::commit::{self, Options as Commit, Source},
    repo::{Config, Repo},
};
use snap_server::{
    hub::Hub,
    routes::Server,
    run::{Listening, Stop},
    settings::Settings,
};

/// A store with a folder to commit.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) repo: Repo,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs_err::create_dir(folder.path().join("files")).unwrap();
        let store = folder.path().join("store");
        Repo::init(&store, &Disk::default(), &Config::default()).unwrap();
        let repo = Repo::open(&store, Disk::default(), &Silent).unwrap();
        Self { folder, repo }
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub(crate) fn change(&self, name: &str, bytes: impl AsRef<[u8]>) -> CommitId {
        let path = self.folder.path().join("files").join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, bytes).unwrap();
        let source = Source::Folder(self.folder.path().join("files"));
        // With one thread, each object has the same place in the pack in every run.
        let (author, host, jobs) = ("ada".into(), "laptop".into(), Some(1));
        let options = Commit { author, host, jobs, ..Commit::default() };
        commit::run(&self.repo, source, &options, &Silent).unwrap().id.unwrap()
    }

    pub(crate) fn pack_bytes(&self, id: &PackId) -> Vec<u8> {
        fs_err::read(self.repo.store().pack_path(id)).unwrap()
    }

    /// A pack of another place becomes one of this store by itself, as if a server
    /// was killed before it had the others.
    pub(crate) fn steal(&self, from: &Place, id: &PackId) {
        let to = self.repo.store().pack_path(id);
        fs_err::create_dir_all(to.parent().unwrap()).unwrap();
        fs_err::write(to, from.pack_bytes(id)).unwrap();
    }

    /// What waits to count there.
    pub(crate) fn staged(&self) -> PathBuf {
        self.store().join("tmp/staged")
    }

    /// A file of the index that tells of these packs, and its name.
    pub(crate) fn outlines(&self, packs: &[PackId]) -> (String, Vec<u8>) {
        let store = self.repo.store();
        let mut packs = packs.to_vec();
        packs.sort_unstable();
        let outlines: Vec<_> = packs.iter().map(|id| store.outline(id).unwrap()).collect();
        named(&outlines)
    }
}

/// A file of outlines as they are, and its name.
pub(crate) fn named(outlines: &[Outline]) -> (String, Vec<u8>) {
    let bytes = outline::encode(outlines);
    (blake3::hash(&bytes).to_hex().to_string(), bytes)
}

/// A server that is stopped when this is dropped.
pub(crate) struct Serving {
    pub(crate) base: String,
    pub(crate) client: Client,
    stop: Stop,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl Serving {
    /// Serves the store of a place.
    pub(crate) fn of(place: &Place) -> Self {
        Self::start(place, Settings::default())
    }

    pub(crate) fn start(place: &Place, settings: Settings) -> Self {
        Self::at(&place.store(), settings)
    }

    /// Serves a folder of stores.
    pub(crate) fn over(folder: &Path) -> Self {
        Self::at(folder, Settings::default())
    }

    /// Serves a store, or a folder of stores.
    pub(crate) fn at(path: &Path, settings: Settings) -> Self {
        Self::of_hub(Hub::open(path).unwrap(), settings)
    }

    pub(crate) fn of_hub(hub: Hub, settings: Settings) -> Self {
        let settings = Settings { listen: "127.0.0.1:0".parse().unwrap(), ..settings };
        Self::of_server(Server::new(hub, settings))
    }

    /// Of a server that listens where there is room.
    pub(crate) fn of_server(server: Server) -> Self {
        let listening = Listening::new(server).unwrap();
        let base = format!("http://{}/v1/repos/default", listening.address().unwrap());
        let stop = listening.stop();
        tokio::spawn(listening.answer());
        // The client needs to be told which TLS there is, though it uses none.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { base, client: Client::new(), stop }
    }

    /// The server, without a path.
    pub(crate) fn origin(&self) -> &str {
        self.base.trim_end_matches("/v1/repos/default")
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}/{path}", self.base))
    }

    pub(crate) fn put(&self, path: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
        self.client.put(format!("{}/{path}", self.base)).body(body)
    }

    /// Sends packs and has them count; the first refusal ends it.
    pub(crate) async fn send(&self, from: &Place, packs: &[PackId]) -> Response {
        for id in packs {
            let sent = self.put(&format!("packs/{id}"), from.pack_bytes(id)).send().await.unwrap();
            if !sent.status().is_success() {
                return sent;
            }
        }
        let (name, bytes) = from.outlines(packs);
        self.put(&format!("index/{name}"), bytes).send().await.unwrap()
    }
}

/// So many bytes that cannot be made shorter.
pub(crate) fn random(seed: u8, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new_keyed(&[seed; 32]).finalize_xof().fill(&mut content);
    content
}

/// What was answered, once the status is what it should be.
pub(crate) async fn json(request: RequestBuilder, status: StatusCode) -> Value {
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), status);
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

/// A refusal has a code.
pub(crate) async fn refused(request: RequestBuilder, status: u16, code: &str) -> Value {
    let response = request.send().await.unwrap();
    assert_eq!(response.status().as_u16(), status);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let problem: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!((&problem["code"], &problem["status"]), (&code.into(), &status.into()));
    problem
}
