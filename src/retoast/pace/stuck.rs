//! Statements of ours that wait for something on the server, which nobody would see from here: said after
//! a while, and bounded where what waits can be left out.

use std::time::Duration;

use tokio_postgres::types::Type;

use crate::server::LiveError;
use crate::server::connect::Client;

/// What a server process waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    /// `wait_event_type` and `wait_event`.
    event: String,
    /// The process that waits.
    pid: i32,
    /// Those that hold the lock; of a buffer pin the server does not say.
    holders: Vec<i32>,
}

impl Wait {
    /// Whether it is for a lock on a whole relation, which others queue for behind us.
    pub(crate) fn is_for_relation(&self) -> bool {
        self.event == "Lock relation"
    }

    /// In words.
    pub(crate) fn text(&self) -> String {
        let holders: Vec<String> = self.holders.iter().map(ToString::to_string).collect();
        match holders.is_empty() {
            true => format!("process {} waits for {}", self.pid, self.event),
            false => format!(
                "process {} waits for {}, held by process {}",
                self.pid,
                self.event,
                holders.join(", ")
            ),
        }
    }
}

/// What the server process `pid` waits for that only another session can end: a lock or a pinned buffer (from 19 on
/// an event of type Buffer, as others are that end by themselves).
pub(crate) async fn wait_of(client: &Client, pid: i32) -> Result<Option<Wait>, LiveError> {
    let rows = client
        .query_typed(
            "SELECT a.wait_event_type || ' ' || a.wait_event, pg_catalog.pg_blocking_pids(a.pid) \
             FROM pg_catalog.pg_stat_get_activity($1) AS a \
             WHERE a.state = 'active' AND (a.wait_event_type IN ('BufferPin', 'Lock') \
               OR a.wait_event = 'BufferCleanup')",
            &[(&pid, Type::INT4)],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Wait { event: row.try_get(0)?, pid, holders: row.try_get(1)? }))
}

/// A server process that waits for a lock which `pid` holds, or for its transaction.
pub(crate) async fn kept_waiting(client: &Client, pid: i32) -> Result<Option<i32>, LiveError> {
    let rows = client
        .query_typed(
            "SELECT w.pid FROM (SELECT DISTINCT l.pid FROM pg_catalog.pg_locks AS l \
               WHERE NOT l.granted AND l.pid <> $1) AS w \
             WHERE $1 = ANY (pg_catalog.pg_blocking_pids(w.pid)) ORDER BY w.pid LIMIT 1",
            &[(&pid, Type::INT4)],
        )
        .await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}

/// Whether a process waits for the transaction of `pid` to end, as a concurrent build does for older snapshots.
pub(crate) async fn is_waited_for(client: &Client, pid: i32) -> Result<bool, LiveError> {
    let rows = client
        .query_typed(
            "SELECT count(*) > 0 FROM pg_catalog.pg_locks AS w JOIN pg_catalog.pg_locks AS h \
               ON h.virtualxid = w.virtualxid AND h.granted \
             WHERE w.locktype = 'virtualxid' AND NOT w.granted AND h.locktype = 'virtualxid' AND h.pid = $1",
            &[(&pid, Type::INT4)],
        )
        .await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
}

/// What to do about a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Nothing yet, or it was said.
    Wait,
    /// Say it.
    Tell,
    /// Leave out what waits: it has for so long.
    GiveUp(Duration),
}

/// How long a statement has waited without a pause, as far as was seen (pure).
#[derive(Debug, Default)]
pub(crate) struct Stuck {
    /// When the wait was first seen, by the time since the statement began.
    since: Option<Duration>,
    told: bool,
}

impl Stuck {
    /// After a look `now` since the statement began. A wait as long as `tell` is said, and none is longer than `limit`.
    pub(crate) fn seen(
        &mut self,
        waits: bool,
        now: Duration,
        tell: Duration,
        limit: Duration,
    ) -> Advice {
        if !waits {
            *self = Stuck::default();
            return Advice::Wait;
        }
        let waited = now.saturating_sub(*self.since.get_or_insert(now));
        if waited >= limit {
            Advice::GiveUp(waited)
        } else if waited >= tell && !self.told {
            self.told = true;
            Advice::Tell
        } else {
            Advice::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_said_once_and_then_given_up() {
        let mut stuck = Stuck::default();
        let seconds = Duration::from_secs;
        let mut look = |waits, at| stuck.seen(waits, seconds(at), seconds(10), seconds(20));
        assert_eq!(look(true, 5), Advice::Wait);
        // it went on meanwhile
        assert_eq!(look(false, 9), Advice::Wait);
        assert_eq!(look(true, 10), Advice::Wait);
        assert_eq!(look(true, 19), Advice::Wait);
        assert_eq!(look(true, 20), Advice::Tell);
        assert_eq!(look(true, 25), Advice::Wait);
        assert_eq!(look(true, 30), Advice::GiveUp(seconds(20)));
        let mut stuck = Stuck::default();
        let mut look = |at| stuck.seen(true, seconds(at), seconds(10), seconds(5));
        assert_eq!(look(1), Advice::Wait);
        assert_eq!(look(6), Advice::GiveUp(seconds(5)));
    }

    #[test]
    fn who_holds_a_lock_is_named() {
        let mut wait = Wait { event: "BufferPin BufferPin".into(), pid: 7, holders: Vec::new() };
        assert_eq!(wait.text(), "process 7 waits for BufferPin BufferPin");
        wait.holders = vec![8, 9];
        assert_eq!(wait.text(), "process 7 waits for BufferPin BufferPin, held by process 8, 9");
    }
}
