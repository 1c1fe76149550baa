//! A TCP proxy that cuts connections, for protocols other than HTTP.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::serve::Serving;

/// Most bytes that a connection transfers before it is cut.
const LONGEST: u64 = 300_000;

/// A proxy on its own port, stopped on drop.
#[derive(Debug)]
pub struct CutProxy {
    serving: Serving,
    harm: Arc<Mutex<Option<Harm>>>,
}

#[derive(Debug)]
struct Harm {
    state: u64,
    chance: f64,
}

impl CutProxy {
    /// Starts a proxy in front of a port of this machine. It cuts nothing yet.
    pub fn start(port: u16) -> Self {
        let harm: Arc<Mutex<Option<Harm>>> = Arc::default();
        let told = Arc::clone(&harm);
        let serving = Serving::start(move |stream| {
            let mut harm = told.lock();
            let most = harm.as_mut().map_or(u64::MAX, Harm::draw);
            drop(harm);
            async move {
                let there = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                if let Ok(server) = TcpStream::connect(there).await {
                    carry(stream, server, most).await;
                }
            }
        });
        Self { serving, harm }
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.serving.port()
    }

    /// Cuts the share `chance` of new connections, each after a number of bytes. Both are drawn
    /// from the seed.
    pub fn cut(&self, chance: f64, seed: u64) {
        *self.harm.lock() = Some(Harm { state: seed, chance });
    }

    /// Stops cutting new connections.
    pub fn become_sound(&self) {
        *self.harm.lock() = None;
    }
}

impl Harm {
    /// Returns how many bytes the next connection may transfer.
    fn draw(&mut self) -> u64 {
        let mut next = || {
            // SplitMix64.
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        let is_cut = (next() % 1000) as f64 / 1000.0 < self.chance;
        if is_cut { next() % LONGEST } else { u64::MAX }
    }
}

/// Copies bytes in both directions until one side ends, or `most` bytes were copied.
async fn carry(client: TcpStream, server: TcpStream, most: u64) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let left = AtomicU64::new(most);
    let up = pump(&mut from_client, &mut to_server, &left);
    let down = pump(&mut from_server, &mut to_client, &left);
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

async fn pump(
    from: &mut tokio::net::tcp::OwnedReadHalf,
    to: &mut tokio::net::tcp::OwnedWriteHalf,
    left: &AtomicU64,
) {
    let mut buffer = vec![0; 32 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let before = left.load(Relaxed);
        let taken = before.min(length as u64);
        left.store(before - taken, Relaxed);
        let is_whole = to.write_all(&buffer[..taken as usize]).await.is_ok();
        if !is_whole || taken < length as u64 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// Returns how many of `length` bytes an echo server returns.
    fn echoed(port: u16, length: usize) -> usize {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let mut sending = stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            let _cut = sending.write_all(&vec![7; length]);
        });
        let mut found = 0;
        let mut buffer = [0; 4096];
        while found < length {
            match stream.read(&mut buffer) {
                Ok(read @ 1..) => found += read,
                _ => break,
            }
        }
        drop(stream);
        sender.join().unwrap();
        found
    }

    #[test]
    fn connections_are_cut_until_the_fault_is_cleared() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = CutProxy::start(server.local_addr().unwrap().port());
        std::thread::spawn(move || {
            for stream in server.incoming() {
                let (mut from, mut to) = {
                    let stream = stream.unwrap();
                    (stream.try_clone().unwrap(), stream)
                };
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        });
        let length = 2 * LONGEST as usize;
        proxy.cut(1.0, 1);
        assert!(echoed(proxy.port(), length) < length);
        proxy.become_sound();
        assert_eq!(echoed(proxy.port(), length), length);
    }
}
