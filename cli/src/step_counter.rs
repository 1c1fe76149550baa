//! Counts the steps of this process that change files, and stops it at one of them.
//!
//! Tests kill the program at each step, one after the other. Only builds with debug assertions have
//! this; see [`StepEnv`].

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use signal_hook::{
    consts::{SIGINT, SIGKILL, SIGSTOP},
    low_level::raise,
};
use snap_core::disk::{DiskStep, FaultDecision, FaultInjector, install_fault_injector};

use crate::env::StepEnv;

/// The counter.
#[derive(Debug)]
struct StepCounter {
    taken: AtomicU64,
    log: Option<File>,
    stop_at: Option<u64>,
    signal: i32,
}

/// Starts to count if the environment says so.
pub(crate) fn install(env: &StepEnv) {
    if env.log.is_none() && env.stop_at.is_none() {
        return;
    }
    let open = |path: &Path| {
        let file = fs_err::OpenOptions::new().create(true).append(true).open(path);
        file.expect("a test names a log that can be written").into_file()
    };
    let signal = match env.stop_by.as_deref() {
        Some("INT") => SIGINT,
        Some("STOP") => SIGSTOP,
        _ => SIGKILL,
    };
    let log = env.log.as_deref().map(open);
    let counter = StepCounter { taken: AtomicU64::new(0), log, stop_at: env.stop_at, signal };
    install_fault_injector(Arc::new(counter));
}

impl FaultInjector for StepCounter {
    fn decide(&self, step: DiskStep, path: &Path) -> FaultDecision {
        let number = self.taken.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(mut log) = self.log.as_ref() {
            // One write for each line, so that lines of several threads do not mix.
            let line = format!("{step:?} {}\n", path.display());
            log.write_all(line.as_bytes()).expect("the log of a test can be written");
        }
        if Some(number) == self.stop_at {
            // Comes to this thread, before it takes the step.
            raise(self.signal).expect("a process can signal itself");
        }
        FaultDecision::Go
    }
}
