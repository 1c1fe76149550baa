//! Progress bars and notes: the [`Observer`] of all commands.
//!
//! Silent for 250 ms, then at most ten redraws a second; nothing is drawn if stderr is not a
//! terminal. Notes are always printed.

use std::{
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use snap_core::base::{
    id::CommitId,
    observe::{Note, Observer, Phase},
};

use crate::{
    remote::Network,
    ui::{Ui, text},
};

const REDRAW: Duration = Duration::from_millis(100);

/// An observer that draws a progress bar, prints notes, and knows whether to stop.
#[derive(Debug)]
pub(crate) struct Progress<'a> {
    ui: &'a Ui,
    stop: Arc<AtomicBool>,
    start: Instant,
    /// Time of the next redraw, in milliseconds after `start`; `u64::MAX` for never.
    next_draw: AtomicU64,
    units: AtomicU64,
    files: AtomicU64,
    bar: Mutex<Option<(Phase, ProgressBar)>>,
    network: &'a Arc<Network>,
}

impl<'a> Progress<'a> {
    /// Starts without drawing; Ctrl-C sets `stop`.
    pub(crate) fn new(ui: &'a Ui, stop: Arc<AtomicBool>, network: &'a Arc<Network>) -> Self {
        let first = if ui.may_draw() { millis(ui.progress_delay) } else { u64::MAX };
        Self {
            ui,
            stop,
            start: Instant::now(),
            next_draw: AtomicU64::new(first),
            units: AtomicU64::new(0),
            files: AtomicU64::new(0),
            bar: Mutex::new(None),
            network,
        }
    }

    /// Returns the time until a bar may appear.
    fn silence_left(&self) -> Duration {
        self.ui.progress_delay.saturating_sub(self.start.elapsed())
    }

    /// Removes the bar, before other output is printed.
    pub(crate) fn clear(&self) {
        let bar = self.bar.lock().take();
        if let Some((_, bar)) = bar {
            bar.finish_and_clear();
        }
    }

    fn draw(&self) {
        let next = self.next_draw.load(Ordering::Relaxed);
        if next == u64::MAX {
            return;
        }
        let now = millis(self.start.elapsed());
        let later = now + millis(REDRAW);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        if now < next || self.next_draw.compare_exchange(next, later, set, get).is_err() {
            return;
        }
        if let Some((phase, bar)) = &*self.bar.lock() {
            let units = self.units.load(Ordering::Relaxed);
            // The total may be an estimate; no total is better than a wrong one.
            if bar.length().is_some_and(|length| length < units) {
                bar.unset_length();
                bar.set_style(style(*phase, false));
            }
            bar.set_position(units);
            // The second counter of `verify` does not count files.
            let has_files = matches!(phase, Phase::Commit | Phase::Restore | Phase::Export);
            let files = if has_files { self.files.load(Ordering::Relaxed) } else { 0 };
            if files > 0 {
                bar.set_message(super::size::count(files, "file"));
            }
            if is_network(*phase) {
                bar.set_message(in_flight(self.network));
            }
            if bar.is_hidden() {
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            }
            bar.tick();
        }
    }

    /// Prints a warning without breaking the bar.
    fn print_note(&self, message: std::fmt::Arguments<'_>) {
        match &*self.bar.lock() {
            Some((_, bar)) => bar.suspend(|| self.ui.warning(message)),
            None => self.ui.warning(message),
        }
    }
}

impl Observer for Progress<'_> {
    fn phase(&self, phase: Phase, total: Option<u64>) {
        self.units.store(0, Ordering::Relaxed);
        self.files.store(0, Ordering::Relaxed);
        if !self.ui.may_draw() {
            return;
        }
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        bar.set_style(style(phase, total.is_some()));
        bar.set_prefix(title(phase));
        if is_network(phase) {
            self.network.draws(&bar);
            keep_drawn(bar.clone(), Arc::clone(self.network), self.silence_left());
        }
        let old = self.bar.lock().replace((phase, bar));
        if let Some((_, old)) = old {
            old.finish_and_clear();
        }
    }

    fn shows_progress_after(&self) -> Option<Duration> {
        self.ui.may_draw().then(|| self.silence_left())
    }

    fn total(&self, total: u64) {
        if let Some((phase, bar)) = &*self.bar.lock() {
            bar.set_length(total);
            bar.set_style(style(*phase, true));
        }
    }

    fn advance(&self, units: u64, files: u64) {
        self.units.fetch_add(units, Ordering::Relaxed);
        self.files.fetch_add(files, Ordering::Relaxed);
        self.draw();
    }

    fn note(&self, note: Note<'_>) {
        match note {
            Note::Skipped { path, error } => {
                self.print_note(format_args!("skipped `{}`: {}", shown(path), chain(error)));
            }
            Note::Changing { path } => {
                self.print_note(format_args!("`{}` changed while it was read", shown(path)));
            }
            Note::AttributesUnread { path, error } => self.print_note(format_args!(
                "cannot read extended attributes of `{}`: {}",
                shown(path),
                chain(error)
            )),
            Note::Reindexed { packs, damaged } => {
                let packs = super::size::count(packs as u64, "pack");
                let why = if damaged { "was damaged" } else { "was missing" };
                self.print_note(format_args!("the index {why}; it was rebuilt from {packs}"));
            }
            Note::PackUnreadable { error } => self.print_note(format_args!("{}", chain(error))),
            Note::ConditionsIgnored { location } => self.print_note(format_args!(
                "{location} does not support conditional writes; pushes to it send more requests"
            )),
            Note::UnneededPackUnread { error } => self.print_note(format_args!(
                "skipped a pack that no branch or tag needs: {}",
                chain(error)
            )),
            Note::PackTruncated { error } => self.print_note(format_args!(
                "{}: reading all files again to store what they still contain; `snap verify` \
                 lists what earlier snapshots lack",
                chain(error)
            )),
            Note::PacksLost { packs, first } => self.print_note(format_args!(
                "the store has lost {}, such as {first}: reading all files again to store what \
                 they still contain; `snap verify` lists what earlier snapshots lack",
                super::size::count(packs as u64, "pack"),
            )),
            Note::ParentInFuture { ahead_secs } => self.print_note(format_args!(
                "the previous commit is dated {ahead_secs} s in the future; check the clock of \
                 this machine"
            )),
            Note::FilesBusy { project } => self.print_note(format_args!(
                "waiting for another snap process that is reading or writing the files in {}",
                super::text::line(project.as_os_str().as_bytes())
            )),
            Note::PacksHeld { store } => self.print_note(format_args!(
                "waiting for another snap process that is reading the packs in {}",
                super::text::line(store.as_os_str().as_bytes())
            )),
            Note::QuarantineDelayed { store } => self.print_note(format_args!(
                "damaged packs in {} were not moved, because another snap process is reading \
                 packs there; the next `snap repair` moves them",
                super::text::line(store.as_os_str().as_bytes())
            )),
            Note::BaseUnknown { tip } => self.print_note(format_args!(
                "the store does not know which commit the files come from; using {tip:.12}"
            )),
            Note::MisnamedRef { path, location, commit } => {
                self.print_note(format_args!("{}", misnamed(path, location, commit)));
            }
            Note::BranchRecreated { branch, at } => self.print_note(format_args!(
                "the file of branch `{branch}` was lost; recreated it at {at:.12} from its log"
            )),
            Note::SourcesDiffer { branch, sources } => self.print_note(format_args!(
                "branch `{branch}` consisted of {}, which this commit does not contain",
                super::text::line(sources.as_bytes())
            )),
            Note::NotCreated { noun, path, error } => {
                self.print_note(format_args!(
                    "could not restore {noun} `{}`: {}",
                    shown(path),
                    chain(error)
                ));
            }
            Note::NotApplied { what, path, error } => {
                self.print_note(format_args!(
                    "cannot set {what} of `{}`: {}",
                    shown(path),
                    chain(error)
                ));
            }
            Note::Kept { path, why } => {
                self.print_note(format_args!("kept `{}`: {why}", shown(path)))
            }
            Note::NotRemoved { path, error } => {
                self.print_note(format_args!(
                    "could not remove `{}`: {}",
                    shown(path),
                    chain(error)
                ));
            }
            Note::RenameDetectionSkipped { limit } => self.print_note(format_args!(
                "renames are not detected: more than {} files were added or deleted",
                super::size::grouped(limit as u64)
            )),
            Note::RefClaimedElsewhere { name, location, patience_secs } => self.print_note(format_args!(
                "another client is moving {name} at {location}, or was interrupted; waiting up to \
                 {} min",
                patience_secs / 60
            )),
            Note::TidyFailed { error } => {
                self.print_note(format_args!("cleanup failed; nothing is lost: {}", chain(error)));
            }
            other => self.print_note(format_args!("{other:?}")),
        }
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the warning about a file whose name no ref can have.
pub(crate) fn misnamed(path: &str, location: Option<&str>, commit: Option<&CommitId>) -> String {
    let place = location.map(|location| format!(" at {location}")).unwrap_or_default();
    let skipped = format!("skipped {path}{place}: no branch or tag can have this name");
    match commit {
        Some(id) => format!("{skipped}; it names commit {id:.12}"),
        None => skipped,
    }
}

/// Returns true if the phase waits for a network, which may not advance for a long time.
fn is_network(phase: Phase) -> bool {
    matches!(phase, Phase::Send | Phase::Receive)
}

fn in_flight(network: &Network) -> String {
    super::size::count(network.traffic().in_flight(), "request")
}

/// Redraws a bar until it is removed, even if nothing advances. If the thread cannot be started,
/// the bar is not animated.
fn keep_drawn(bar: ProgressBar, network: Arc<Network>, silent: Duration) {
    let draw = move || {
        thread::sleep(silent);
        while !bar.is_finished() {
            bar.set_message(in_flight(&network));
            if bar.is_hidden() {
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            }
            bar.tick();
            thread::sleep(REDRAW);
        }
    };
    let _ = thread::Builder::new().name("progress".to_owned()).spawn(draw);
}

fn title(phase: Phase) -> &'static str {
    match phase {
        Phase::Index => "Rebuilding the index",
        Phase::Commit => "Committing",
        Phase::Compact => "Merging packs",
        Phase::Bundle => "Copying packs",
        Phase::Compare => "Comparing",
        Phase::Restore => "Restoring",
        Phase::Export => "Exporting",
        Phase::Mark => "Marking what is in use",
        Phase::Structure => "Checking structure",
        Phase::Data => "Checking data",
        Phase::History => "Reading history",
        Phase::Send => "Sending",
        Phase::Receive => "Receiving",
        _ => "Working",
    }
}

fn style(phase: Phase, knows_total: bool) -> ProgressStyle {
    let counts = matches!(
        phase,
        Phase::Index | Phase::Compare | Phase::Mark | Phase::Structure | Phase::History
    );
    let template = match (counts, knows_total) {
        (false, true) => {
            "{prefix} {percent}% {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} left {msg}"
        }
        (false, false) => "{spinner} {prefix} {bytes} {bytes_per_sec} {msg}",
        (true, true) => "{prefix} {percent}% {wide_bar} {pos}/{len} {eta} left",
        (true, false) => "{spinner} {prefix} {pos}",
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Formats an error and its causes on one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    text::line(text::chain(error).as_bytes())
}

/// Formats a path for a message; the root folder is a dot.
fn shown(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    match bytes.strip_prefix(b"./").unwrap_or(bytes) {
        b"" => ".".to_owned(),
        bytes => text::line(bytes),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX - 1)
}
