//! Feeds random mutations of the seeds to every target, for a number of seconds each. Usage:
//! `soak [SECONDS [TARGET]]`. It is not guided by coverage, but it needs only a stable compiler.
//! Inputs that make a target panic are written to `artifacts/TARGET/`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use snap_fuzz::{TARGETS, Target, seeds};

/// A xorshift generator.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let seconds = args.next().and_then(|text| text.parse().ok()).unwrap_or(10);
    let only = args.next();
    let mut failed = false;
    for target in
        TARGETS.into_iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name))
    {
        failed |= !soak(target, Duration::from_secs(seconds));
    }
    std::process::exit(i32::from(failed));
}

fn soak((name, check): Target, time: Duration) -> bool {
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let mut corpus = seeds::of(name);
    corpus.push(Vec::new());
    let start = Instant::now();
    let mut runs = 0u64;
    while start.elapsed() < time {
        for _ in 0..64 {
            let input = mutate(&corpus, &mut rng);
            runs += 1;
            if catch_unwind(AssertUnwindSafe(|| check(&input))).is_err() {
                let folder = format!("artifacts/{name}");
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(format!("{folder}/soak-{runs}"), &input).unwrap();
                println!("{name}: failed after {runs} runs, see {folder}/soak-{runs}");
                return false;
            }
        }
    }
    println!("{name}: {runs} runs");
    true
}

fn mutate(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut input = corpus[rng.below(corpus.len())].clone();
    for _ in 0..1 + rng.below(6) {
        let at = rng.below(input.len());
        let len = rng.below(input.len() - at.min(input.len())).min(64);
        match rng.below(7) {
            0 if !input.is_empty() => input[at] ^= 1 << rng.below(8),
            1 if !input.is_empty() => input[at] = rng.next() as u8,
            2 => input.insert(at, rng.next() as u8),
            3 => drop(input.drain(at..at + len)),
            4 => input.truncate(at),
            5 => {
                let copy = input[at..at + len].to_vec();
                let to = rng.below(input.len());
                input.splice(to..to, copy);
            }
            _ if !input.is_empty() => {
                // Boundary values of lengths and counts.
                let values = [0, 1, 0x7f, 0x80, 0xff];
                input[at] = values[rng.below(values.len())];
            }
            _ => {}
        }
    }
    input
}
