//! A run over many sites: databases, servers, or nodes of Citus. Sites are visited at the same time, at most `per_server`
//! at a time on one server. A site that fails does not affect the others.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::thread::{Builder, Scope};

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;

/// Bytes of a thread's stack, which are those that a main thread has: a verb that runs in one needs no more in another.
const STACK: usize = 8 << 20;

/// How many sites are visited at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) in_all: usize,
    pub(crate) per_server: usize,
}

/// A site whose turn has not come.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    pub(crate) server_key: String,
    pub(crate) target: T,
}

/// The result of a visit.
pub(crate) enum Step<T, R> {
    /// The site stands for these, which are visited next.
    Expand(Vec<Pending<T>>),
    Done(R),
}

/// Visits every site, and passes each result to `done` as it comes, until all are visited, `interrupt` ends or `done`
/// returns false. Visits that have begun are waited for: they must end on `interrupt` by themselves. Returns the sites
/// that were not visited.
pub(crate) async fn each_site<T, R>(
    sites: Vec<Pending<T>>,
    limits: Limits,
    visit: impl AsyncFn(T) -> Step<T, R>,
    interrupt: impl Future<Output = ()>,
    mut done: impl FnMut(R) -> bool,
) -> Vec<T> {
    let mut waiting: VecDeque<Pending<T>> = sites.into();
    let mut visited: HashMap<String, usize> = HashMap::new();
    let mut visits = FuturesUnordered::new();
    let mut interrupt = std::pin::pin!(interrupt);
    // signals are listened for before the first visit begins
    let mut interrupted = interrupt.as_mut().now_or_never().is_some();
    let mut stopped = interrupted;
    let visit = &visit;
    loop {
        while !stopped && visits.len() < limits.in_all {
            let next = waiting.iter().position(|site| {
                visited.get(&site.server_key).is_none_or(|&visits| visits < limits.per_server)
            });
            let Some(site) = next.and_then(|at| waiting.remove(at)) else { break };
            *visited.entry(site.server_key.clone()).or_default() += 1;
            visits.push(async move { (site.server_key, visit(site.target).await) });
        }
        tokio::select! {
            () = interrupt.as_mut(), if !interrupted => {
                interrupted = true;
                stopped = true;
            }
            visited_site = visits.next() => {
                let Some((server, step)) = visited_site else { break };
                if let Some(visits) = visited.get_mut(&server) {
                    *visits -= 1;
                }
                match step {
                    // before the others, so that the databases of a server are visited together
                    Step::Expand(found) => {
                        found.into_iter().rev().for_each(|site| waiting.push_front(site));
                    }
                    Step::Done(result) => stopped |= !done(result),
                }
            }
        }
    }
    waiting.into_iter().map(|site| site.target).collect()
}

/// Does the work in a thread of its own, which may block.
///
/// # Errors
/// The thread could not be started.
pub(crate) async fn in_thread<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    Builder::new().stack_size(STACK).spawn_scoped(scope, move || {
        // fails if nobody waits for the result any more
        let _ = sender.send(work());
    })?;
    done.await.map_err(|_| io::Error::other("the thread has ended"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn on(server: &str, targets: std::ops::Range<usize>) -> Vec<Pending<usize>> {
        targets.map(|target| Pending { server_key: server.to_owned(), target }).collect()
    }

    #[tokio::test]
    async fn no_server_has_more_visits_at_a_time_than_it_may_have() {
        let mut targets = on("a", 0..20);
        targets.extend(on("b", 20..40));
        let here = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let most = AtomicUsize::new(0);
        let visit = async |target: usize| {
            let server = &here[target / 20];
            most.fetch_max(server.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            server.fetch_sub(1, Ordering::SeqCst);
            Step::Done(target)
        };
        let mut seen = Vec::new();
        let limits = Limits { in_all: 8, per_server: 1 };
        let rest = each_site(targets, limits, visit, pending(), |target| {
            seen.push(target);
            true
        });
        assert!(rest.await.is_empty());
        assert_eq!(most.load(Ordering::SeqCst), 1);
        seen.sort_unstable();
        assert_eq!(seen, (0..40).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn what_a_target_stands_for_is_visited_and_what_comes_after_a_stop_is_returned() {
        let visit = async |target: usize| match target {
            0 => Step::Expand(on("a", 10..13)),
            other => Step::Done(other),
        };
        let mut seen = Vec::new();
        let limits = Limits { in_all: 1, per_server: 1 };
        let done = |target| {
            seen.push(target);
            true
        };
        each_site(on("a", 0..3), limits, visit, pending(), done).await;
        assert_eq!(seen, [10, 11, 12, 1, 2]);
        let slow = async |target: usize| {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Step::Done(target)
        };
        let rest = each_site(on("a", 1..1000), limits, slow, pending(), |_| false).await;
        assert_eq!((rest.len(), rest.last()), (998, Some(&999)));
        let rest = each_site(on("a", 1..1000), limits, slow, ready(()), |_: usize| true).await;
        assert_eq!(rest.len(), 999);
    }

    #[test]
    fn threads_are_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let text = "borrowed".to_owned();
        let length = std::thread::scope(|scope| runtime.block_on(in_thread(scope, || text.len())));
        assert_eq!(length.unwrap(), 8);
    }
}
