//! A run over many targets: each is visited by a thread of its own, at most `per_server` at a time on one server. A
//! target that fails does not affect the others.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use futures_util::FutureExt;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Bytes of a thread's stack, which are those that a main thread has: a verb that runs in one needs no more in another.
const STACK: usize = 8 << 20;

/// How many targets are visited at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) in_all: usize,
    pub(crate) per_server: usize,
}

/// A target whose turn has not come.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    pub(crate) server_key: String,
    pub(crate) target: T,
}

/// The result of a visit.
pub(crate) enum Step<T, R> {
    /// The target stands for these, which are visited next.
    Expand(Vec<Pending<T>>),
    Done(R),
}

struct State<T> {
    waiting: VecDeque<Pending<T>>,
    /// Visits under way, by server.
    visited: HashMap<String, usize>,
    stopped: bool,
}

struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    per_server: usize,
}

impl<T> Queue<T> {
    fn new(targets: Vec<Pending<T>>, per_server: usize) -> Queue<T> {
        let state = State { waiting: targets.into(), visited: HashMap::new(), stopped: false };
        Queue { state: Mutex::new(state), changed: Condvar::new(), per_server }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // it is whole between any two statements, so a poisoned lock is harmless
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first target whose server has room for another visit; waits until there is one. `None` if none will come.
    fn take(&self) -> Option<Pending<T>> {
        let mut state = self.state();
        loop {
            if state.stopped || (state.waiting.is_empty() && state.visited.is_empty()) {
                return None;
            }
            let next = state.waiting.iter().position(|one| {
                state.visited.get(&one.server_key).is_none_or(|&visits| visits < self.per_server)
            });
            if let Some(next) = next.and_then(|at| state.waiting.remove(at)) {
                *state.visited.entry(next.server_key.clone()).or_default() += 1;
                return Some(next);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends a visit to this server, and adds the targets that were found by it.
    fn end(&self, server: &str, found: Vec<Pending<T>>) {
        let mut state = self.state();
        if let Some(visits) = state.visited.get_mut(server) {
            *visits -= 1;
            if *visits == 0 {
                state.visited.remove(server);
            }
        }
        // before the others, so that the databases of a server are visited together
        found.into_iter().rev().for_each(|one| state.waiting.push_front(one));
        self.changed.notify_all();
    }

    /// Visits targets until none is left.
    fn work<R>(&self, visit: &impl Fn(&T) -> Step<T, R>, results: &UnboundedSender<R>) {
        while let Some(Pending { server_key, target }) = self.take() {
            let found = match visit(&target) {
                Step::Expand(found) => found,
                Step::Done(result) => {
                    // if nobody receives it any more, the queue is stopped
                    let _ = results.send(result);
                    Vec::new()
                }
            };
            self.end(&server_key, found);
        }
    }

    /// Lets no further visit begin.
    fn stop(&self) {
        self.state().stopped = true;
        self.changed.notify_all();
    }
}

/// Visits every target, and passes each result to `done` as it comes, until all are visited, `interrupt` ends or `done`
/// returns false. Visits that have begun are waited for: they must end on `interrupt` by themselves. Returns the targets
/// that were not visited.
///
/// # Errors
/// No runtime or thread could be started.
pub(crate) fn each_target<T: Send, R: Send>(
    targets: Vec<Pending<T>>,
    limits: Limits,
    visit: impl Fn(&T) -> Step<T, R> + Sync,
    interrupt: impl Future<Output = ()>,
    mut done: impl FnMut(R) -> bool,
) -> io::Result<Vec<T>> {
    let queue = Queue::new(targets, limits.per_server);
    let (sender, mut results) = unbounded_channel();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut interrupt = std::pin::pin!(interrupt);
    // signals are listened for before the first visit begins
    let mut interrupted = {
        let _entered = runtime.enter();
        interrupt.as_mut().now_or_never().is_some()
    };
    if interrupted {
        queue.stop();
    }
    thread::scope(|scope| {
        for number in 0..limits.in_all {
            let sender = sender.clone();
            let queue = &queue;
            let visit = &visit;
            let started = thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || queue.work(visit, &sender));
            match started {
                // a smaller number visits them too
                Err(error) if number == 0 => return Err(error),
                _ => {}
            }
        }
        drop(sender);
        runtime.block_on(async {
            loop {
                tokio::select! {
                    result = results.recv() => match result {
                        Some(result) => if !done(result) { queue.stop() },
                        None => return,
                    },
                    () = interrupt.as_mut(), if !interrupted => {
                        interrupted = true;
                        queue.stop();
                    }
                }
            }
        });
        Ok(())
    })?;
    let waiting = std::mem::take(&mut queue.state().waiting);
    Ok(waiting.into_iter().map(|waiting| waiting.target).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn on(server: &str, targets: std::ops::Range<usize>) -> Vec<Pending<usize>> {
        targets.map(|target| Pending { server_key: server.to_owned(), target }).collect()
    }

    #[test]
    fn no_server_has_more_visits_at_a_time_than_it_may_have() {
        let mut targets = on("a", 0..20);
        targets.extend(on("b", 20..40));
        let here = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let most = AtomicUsize::new(0);
        let visit = |&target: &usize| {
            let server = &here[target / 20];
            most.fetch_max(server.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::yield_now();
            server.fetch_sub(1, Ordering::SeqCst);
            Step::Done(target)
        };
        let mut seen = Vec::new();
        let limits = Limits { in_all: 8, per_server: 1 };
        let rest = each_target(targets, limits, visit, pending(), |target| {
            seen.push(target);
            true
        });
        assert!(rest.unwrap().is_empty());
        assert_eq!(most.load(Ordering::SeqCst), 1);
        seen.sort_unstable();
        assert_eq!(seen, (0..40).collect::<Vec<_>>());
    }

    #[test]
    fn what_a_target_stands_for_is_visited_and_what_comes_after_a_stop_is_returned() {
        let visit = |&target: &usize| match target {
            0 => Step::Expand(on("a", 10..13)),
            other => Step::Done(other),
        };
        let mut seen = Vec::new();
        let limits = Limits { in_all: 1, per_server: 1 };
        let done = |target| {
            seen.push(target);
            true
        };
        each_target(on("a", 0..3), limits, visit, pending(), done).unwrap();
        assert_eq!(seen, [10, 11, 12, 1, 2]);
        // a stop comes long before all of them are visited
        let slow = |&target: &usize| {
            thread::sleep(std::time::Duration::from_millis(20));
            Step::Done(target)
        };
        let rest = each_target(on("a", 1..1000), limits, slow, pending(), |_| false).unwrap();
        assert!(rest.len() < 999 && rest.last() == Some(&999), "{}", rest.len());
        let rest = each_target(on("a", 1..1000), limits, slow, ready(()), |_: usize| true).unwrap();
        assert_eq!(rest.last(), Some(&999));
    }
}
