//! How long is waited: as long as a service asks for, unless nothing more is
//! wanted. In virtual time.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use snap_remote::service::{
    Conditions, Listed, Object, Progress, Service, ServiceError, Stop, Upload, Version, What, When,
    client::{Client, Policy, WHOLE_BYTES},
};
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// A service that wants to be left alone.
#[derive(Debug)]
struct Busy {
    /// As many requests are refused.
    refused: Mutex<u32>,
    wait: Duration,
    aborted: Arc<AtomicBool>,
}

/// An upload of which no part arrives.
struct Stuck(Arc<AtomicBool>);

impl Upload for Stuck {
    fn part(&mut self, _: Bytes) -> Reply<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn finish(&mut self) -> Reply<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn abort(&mut self) -> Reply<'_, ()> {
        self.0.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Busy {
    fn reply<T: Send + 'static>(&self, value: T) -> BoxFuture<'_, Result<T, ServiceError>> {
        Box::pin(async move {
            sleep(SECOND).await;
            let mut refused = self.refused.lock().unwrap();
            if *refused == 0 {
                return Ok(value);
            }
            *refused -= 1;
            let error = ServiceError::new("ask", "x", What::Busy, String::new());
            Err(ServiceError { retry_after: Some(self.wait), ..error })
        })
    }
}

type Reply<'a, T> = BoxFuture<'a, Result<T, ServiceError>>;

fn object(length: u64) -> Object {
    Object { bytes: vec![0; length as usize].into(), version: None }
}

/// Asked for after a while.
fn stop_after(pause: Duration) -> Stop {
    let end = Instant::now() + pause;
    Stop::when(move || Instant::now() >= end)
}

impl Service for Busy {
    fn read<'a>(&'a self, _: &'a str, range: Range<u64>) -> Reply<'a, Object> {
        self.reply(object(range.end - range.start))
    }

    fn read_whole<'a>(&'a self, _: &'a str, _: u64) -> Reply<'a, Object> {
        self.reply(object(0))
    }

    fn write<'a>(&'a self, _: &'a str, _: Bytes, _: When) -> Reply<'a, Option<Version>> {
        self.reply(None)
    }

    fn list<'a>(&'a self, _: &'a str) -> Reply<'a, Vec<Listed>> {
        self.reply(Vec::new())
    }

    fn length<'a>(&'a self, _: &'a str) -> Reply<'a, Option<u64>> {
        self.reply(None)
    }

    fn remove<'a>(&'a self, _: &'a str) -> Reply<'a, ()> {
        self.reply(())
    }

    fn upload(&self, _: &str) -> Option<Box<dyn Upload>> {
        Some(Box::new(Stuck(Arc::clone(&self.aborted))))
    }

    fn conditions(&self) -> Conditions {
        Conditions { absent: true, unchanged: true }
    }

    fn must_prove_conditions(&self) -> bool {
        false
    }
}

fn client(refused: u32, wait: Duration, stop: Duration, policy: Policy) -> Client {
    let busy = Busy { refused: Mutex::new(refused), wait, aborted: Arc::default() };
    Client::new(Arc::new(busy), policy, Arc::default()).until(stop_after(stop))
}

#[tokio::test(start_paused = true)]
async fn a_service_is_left_alone_for_as_long_as_it_asks_for() {
    let began = Instant::now();
    let client = client(2, SECOND * 40, SECOND * 1000, Policy::default());
    client.list("").await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 1 + 40 + 1 + 40 + 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_does_not_wait_to_the_end_of_a_pause() {
    let began = Instant::now();
    let client = client(9, SECOND * 40, SECOND * 50, Policy::default());
    let error = client.write("x", Bytes::new(), When::Always).await.unwrap_err();
    assert_eq!((error.what, began.elapsed().as_secs()), (What::Stopped, 50));
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_does_not_wait_until_bytes_are_paid_for() {
    let began = Instant::now();
    let limits = (Some(10), Some(10));
    let client = client(0, SECOND, SECOND * 50, Policy { limits, ..Policy::default() });
    let error = loop {
        if let Err(error) = client.read("x", 0..1000).await {
            break error;
        }
    };
    assert_eq!((error.what, began.elapsed().as_secs()), (What::Stopped, 50));
}

#[tokio::test]
async fn whoever_stops_does_not_wait_for_parts_and_has_them_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    let length = WHOLE_BYTES + 1;
    fs_err::File::create(&path).unwrap().set_len(length).unwrap();
    let aborted = Arc::<AtomicBool>::default();
    let busy = Busy { refused: Mutex::default(), wait: SECOND, aborted: aborted.clone() };
    let client = Client::new(Arc::new(busy), Policy::default(), Arc::default());
    let client = client.until(stop_after(SECOND / 2));
    let written = client.write_file("x", (&path, length), &Progress::default()).await;
    assert_eq!(written.unwrap_err().what, What::Stopped);
    assert!(aborted.load(Ordering::Relaxed));
}
