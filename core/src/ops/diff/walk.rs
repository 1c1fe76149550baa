//! Compares many folders in parallel and returns the results in order.
//!
//! Folders wait on a stack, with the folder that is needed next on top. Worker threads pop folders,
//! compare them and store the results. The calling thread goes through the folders in order. It
//! takes results that are ready, and compares a folder itself if no worker has started on it. While
//! a worker is busy with the next folder, the calling thread compares another one. It therefore
//! never waits for a thread that waits for it. Workers pause when [`limits::DIFF_AHEAD`] results
//! are ready ahead of the output.

use std::{
    collections::VecDeque,
    sync::Arc,
    thread::{self, Builder},
};

use parking_lot::{Condvar, Mutex};

use crate::{
    base::{blocked::Blocked, id::TreeId, limits},
    ops::diff::{
        Change, DiffError,
        folder::{Events, FolderEvent, FolderSide, FolderTask, QueuedFolder},
        trees::Trees,
    },
};

/// A folder with at most this many entries is compared in one step by a worker. A larger
/// folder is compared while its results are output.
const WORKER_MAX_ENTRIES: usize = 4096;

#[derive(Default)]
struct Queue<'a> {
    stack: Vec<Arc<FolderTask<'a>>>,
    /// Number of results that were not output yet.
    ahead: usize,
    closed: bool,
}

struct FolderWalk<'a> {
    side: &'a FolderSide<'a>,
    queue: Mutex<Queue<'a>>,
    work: Condvar,
}

/// Compares the folder with the tree `old` and passes each difference to `each`.
pub(super) fn run(
    side: &FolderSide<'_>,
    old: Option<TreeId>,
    jobs: Option<usize>,
    each: &mut dyn FnMut(Change) -> Result<(), DiffError>,
) -> Result<(), DiffError> {
    let walk = FolderWalk { side, queue: Mutex::default(), work: Condvar::new() };
    let cores = || thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = jobs.unwrap_or_else(|| cores().min(8));
    thread::scope(|scope| {
        let closed = CloseAtEnd(&walk);
        for _ in 1..threads {
            // If a worker cannot be started, this thread does its work.
            let _ = Builder::new().spawn_scoped(scope, || walk.help());
        }
        let result = walk.emit_in_order(old, each);
        drop(closed);
        result
    })
}

/// Stops the workers, even if the calling thread panics.
struct CloseAtEnd<'w, 'a>(&'w FolderWalk<'a>);

impl Drop for CloseAtEnd<'_, '_> {
    fn drop(&mut self) {
        self.0.queue.lock().closed = true;
        self.0.work.notify_all();
    }
}

/// Marks a task as failed if its thread panics, so that no thread waits for it forever.
struct FailOnPanic<'t, 'a>(&'t FolderTask<'a>);

impl Drop for FailOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.finish(Err(DiffError::Blocked(Blocked::Interrupted)));
        }
    }
}

impl<'a> FolderWalk<'a> {
    /// Runs a worker thread until the walk is closed.
    fn help(&self) {
        let mut queue = self.queue.lock();
        while !queue.closed {
            let may_go_on = queue.ahead < limits::DIFF_AHEAD;
            match queue.stack.pop_if(|_| may_go_on) {
                Some(task) => {
                    drop(queue);
                    self.work_on(&task);
                    queue = self.queue.lock();
                }
                None => self.work.wait(&mut queue),
            }
        }
    }

    /// Compares a folder, unless another thread has started on it.
    fn work_on(&self, task: &FolderTask<'a>) {
        let Some(queued) = task.begin() else { return };
        let unfinished = FailOnPanic(task);
        task.finish(self.compare(queued));
        drop(unfinished);
    }

    fn compare(&self, queued: QueuedFolder<'a>) -> Result<Events<'a>, DiffError> {
        let mut ready = VecDeque::new();
        let Some(mut compare) = self.side.visit(queued)? else {
            return Ok(Events { ready, rest: None });
        };
        if compare.entries() > WORKER_MAX_ENTRIES {
            return Ok(Events { ready, rest: Some(Box::new(compare)) });
        }
        let mut folders = Vec::new();
        while let Some(event) = compare.next()? {
            if let FolderEvent::Enter(task) = &event {
                folders.push(Arc::clone(task));
            }
            ready.push_back(event);
        }
        let mut queue = self.queue.lock();
        queue.ahead += ready.len();
        if !folders.is_empty() {
            queue.stack.extend(folders.into_iter().rev());
            self.work.notify_all();
        }
        Ok(Events { ready, rest: None })
    }

    /// Returns the results for a folder and waits for them if needed.
    fn wait_for(&self, task: &Arc<FolderTask<'a>>) -> Result<Events<'a>, DiffError> {
        {
            // The task is on top of the stack, unless a worker has taken it.
            let mut queue = self.queue.lock();
            queue.stack.pop_if(|top| Arc::ptr_eq(top, task));
        }
        self.work_on(task);
        loop {
            if let Some(result) = task.result() {
                return result;
            }
            // A worker is busy with this folder, so compare another one meanwhile.
            let other = {
                let mut queue = self.queue.lock();
                let may_go_on = queue.ahead < limits::DIFF_AHEAD;
                queue.stack.pop_if(|_| may_go_on)
            };
            if let Some(other) = other { self.work_on(&other) } else { task.wait() }
        }
    }

    fn emit_in_order(
        &self,
        old: Option<TreeId>,
        each: &mut dyn FnMut(Change) -> Result<(), DiffError>,
    ) -> Result<(), DiffError> {
        enum ChangeIter<'a> {
            Folder(Events<'a>),
            Trees(Trees<'a>),
        }
        let job = self.side.job;
        let mut stack = vec![ChangeIter::Folder(self.compare(self.side.root(old))?)];
        while let Some(level) = stack.last_mut() {
            job.observer.check()?;
            let next = match level {
                ChangeIter::Folder(events) => self.next(events)?,
                ChangeIter::Trees(trees) => {
                    trees.next()?.map(|change| FolderEvent::Change(Box::new(change)))
                }
            };
            match next {
                Some(FolderEvent::Change(change)) => each(*change)?,
                Some(FolderEvent::Enter(task)) => {
                    stack.push(ChangeIter::Folder(self.wait_for(&task)?))
                }
                Some(FolderEvent::Gone { path, tree, is_ignored }) => {
                    let trees = Trees::of_removed(job, path, tree, is_ignored)?;
                    stack.push(ChangeIter::Trees(trees));
                }
                None => drop(stack.pop()),
            }
        }
        Ok(())
    }

    fn next(&self, events: &mut Events<'a>) -> Result<Option<FolderEvent<'a>>, DiffError> {
        if let Some(step) = events.ready.pop_front() {
            let mut queue = self.queue.lock();
            queue.ahead -= 1;
            // Wake the workers once half of the results are consumed, not after each one.
            if queue.ahead == limits::DIFF_AHEAD / 2 {
                self.work.notify_all();
            }
            return Ok(Some(step));
        }
        events.rest.as_mut().map_or(Ok(None), |rest| rest.next())
    }
}
