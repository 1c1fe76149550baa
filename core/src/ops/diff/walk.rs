//! Comparing many folders at once, and handing out what comes of it in order.
//!
//! Folders wait on a stack with the one that comes next on top. Threads take
//! them from there, compare them and keep what comes of it. The thread that
//! hands it out goes through the folders in order: it takes what is ready,
//! compares what nobody has begun with itself, and works on another folder
//! while a thread is at the one it wants. So it never waits for somebody who
//! waits for it, and the threads can be stopped when they are
//! [`limits::DIFF_AHEAD`] results ahead.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::{
    base::{id::TreeId, limits},
    ops::diff::{
        Change, DiffError,
        folder::{Compare, Event, Side, Spot},
        slot::Slot,
        trees::Trees,
    },
};

/// Entries of a folder that is compared at once; larger ones are compared as
/// they are handed out.
const AT_ONCE: usize = 4096;

/// A folder on its way.
type Task<'a> = Slot<Spot, Result<Events<'a>, DiffError>>;

/// What comes of a folder.
struct Events<'a> {
    ready: VecDeque<Step<'a>>,
    /// The rest, which is still to be compared.
    rest: Option<Box<Compare<'a>>>,
}

enum Step<'a> {
    Change(Box<Change>),
    Enter(Arc<Task<'a>>),
    Gone(Vec<u8>, TreeId),
}

#[derive(Default)]
struct Queue<'a> {
    stack: Vec<Arc<Task<'a>>>,
    /// Results that have not been handed out.
    ahead: usize,
    closed: bool,
}

struct Walk<'a> {
    side: &'a Side<'a>,
    queue: Mutex<Queue<'a>>,
    work: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compares the folder with the tree `old` and hands out what differs.
pub(super) fn run(
    side: &Side<'_>,
    old: Option<TreeId>,
    jobs: Option<usize>,
    each: &mut dyn FnMut(Change) -> Result<(), DiffError>,
) -> Result<(), DiffError> {
    let walk = Walk { side, queue: Mutex::default(), work: Condvar::new() };
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = jobs.unwrap_or_else(|| cores().min(8));
    std::thread::scope(|scope| {
        let closed = CloseAtEnd(&walk);
        for _ in 1..threads {
            scope.spawn(|| walk.help());
        }
        let result = walk.hand_out(old, each);
        drop(closed);
        result
    })
}

/// Lets the helpers go, also when handing out has panicked.
struct CloseAtEnd<'w, 'a>(&'w Walk<'a>);

impl Drop for CloseAtEnd<'_, '_> {
    fn drop(&mut self) {
        lock(&self.0.queue).closed = true;
        self.0.work.notify_all();
    }
}

/// Says that a task has failed when its thread panics, so that nobody waits
/// for it.
struct Unfinished<'t, 'a>(&'t Task<'a>);

impl Drop for Unfinished<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.finish(Err(DiffError::Interrupted));
        }
    }
}

impl<'a> Walk<'a> {
    /// What a helper does until there is nothing left.
    fn help(&self) {
        let mut queue = lock(&self.queue);
        while !queue.closed {
            let may_go_on = queue.ahead < limits::DIFF_AHEAD;
            match queue.stack.pop_if(|_| may_go_on) {
                Some(task) => {
                    drop(queue);
                    self.work_on(&task);
                    queue = lock(&self.queue);
                }
                None => queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Compares a folder that nobody has begun with.
    fn work_on(&self, task: &Task<'a>) {
        let Some(spot) = task.begin() else { return };
        let unfinished = Unfinished(task);
        task.finish(self.compare(spot));
        drop(unfinished);
    }

    fn compare(&self, spot: Spot) -> Result<Events<'a>, DiffError> {
        let mut ready = VecDeque::new();
        let Some(mut compare) = self.side.visit(spot)? else {
            return Ok(Events { ready, rest: None });
        };
        if compare.entries() > AT_ONCE {
            return Ok(Events { ready, rest: Some(Box::new(compare)) });
        }
        let mut folders = Vec::new();
        while let Some(event) = compare.next()? {
            ready.push_back(step(event, &mut folders));
        }
        let mut queue = lock(&self.queue);
        queue.ahead += ready.len();
        if !folders.is_empty() {
            queue.stack.extend(folders.into_iter().rev());
            self.work.notify_all();
        }
        Ok(Events { ready, rest: None })
    }

    /// What came of a folder, as soon as it is known.
    fn obtain(&self, task: &Arc<Task<'a>>) -> Result<Events<'a>, DiffError> {
        {
            // It is on top, unless somebody has it.
            let mut queue = lock(&self.queue);
            queue.stack.pop_if(|top| Arc::ptr_eq(top, task));
        }
        self.work_on(task);
        loop {
            if let Some(result) = task.result() {
                return result;
            }
            // Somebody is at it: another one can be done meanwhile.
            let other = {
                let mut queue = lock(&self.queue);
                let may_go_on = queue.ahead < limits::DIFF_AHEAD;
                queue.stack.pop_if(|_| may_go_on)
            };
            match other {
                Some(other) => self.work_on(&other),
                None => task.wait(),
            }
        }
    }

    fn hand_out(
        &self,
        old: Option<TreeId>,
        each: &mut dyn FnMut(Change) -> Result<(), DiffError>,
    ) -> Result<(), DiffError> {
        enum Level<'a> {
            Folder(Events<'a>),
            Trees(Trees<'a>),
        }
        let job = self.side.job;
        let mut stack = vec![Level::Folder(self.compare(self.side.root(old))?)];
        while let Some(level) = stack.last_mut() {
            if job.observer.cancelled() {
                return Err(DiffError::Interrupted);
            }
            let next = match level {
                Level::Folder(events) => self.next(events)?,
                Level::Trees(trees) => trees.next()?.map(|change| Step::Change(Box::new(change))),
            };
            match next {
                Some(Step::Change(change)) => each(*change)?,
                Some(Step::Enter(task)) => stack.push(Level::Folder(self.obtain(&task)?)),
                Some(Step::Gone(path, id)) => {
                    stack.push(Level::Trees(Trees::new(job, path, Some(id), None)?));
                }
                None => drop(stack.pop()),
            }
        }
        Ok(())
    }

    fn next(&self, events: &mut Events<'a>) -> Result<Option<Step<'a>>, DiffError> {
        if let Some(step) = events.ready.pop_front() {
            let mut queue = lock(&self.queue);
            queue.ahead -= 1;
            // Not for each one: those who wait can go on for a while.
            if queue.ahead == limits::DIFF_AHEAD / 2 {
                self.work.notify_all();
            }
            return Ok(Some(step));
        }
        let Some(rest) = &mut events.rest else { return Ok(None) };
        Ok(rest.next()?.map(|event| step(event, &mut Vec::new())))
    }
}

/// Makes tasks of folders, and adds them to `folders`.
fn step<'a>(event: Event, folders: &mut Vec<Arc<Task<'a>>>) -> Step<'a> {
    match event {
        Event::Change(change) => Step::Change(Box::new(change)),
        Event::Gone(path, id) => Step::Gone(path, id),
        Event::Enter(spot) => {
            let task = Arc::new(Task::new(spot));
            folders.push(Arc::clone(&task));
            Step::Enter(task)
        }
    }
}
