//! Whether sessions are this client's own, or a connection pooler lends them by the transaction.
//!
//! What a client sets in a lent session stays there for whoever gets it next. Nothing is set here to find
//! out: two connections tell which process of which server answers them, again and again. A pooler that is
//! idle answers both by the process that became free last; one that goes round gives one client another
//! process each time; and while one connection holds a transaction open, the other one takes the next free
//! process and, when both are free again, the first one's.

use tokio_postgres::error::SqlState;

use super::client::Client;
use super::session::Connection;

/// How often all of it is asked.
const ROUNDS: usize = 2;

/// A process of a server, by its number and the server's time of start.
type Process = (i32, f64);

/// Asks without operators, for none is safe before the search path is set.
async fn process(client: &Client) -> Result<Process, tokio_postgres::Error> {
    let sql = "SELECT pg_catalog.pg_backend_pid(), \
               pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())";
    let rows = client.query_typed(sql, &[]).await?;
    rows.first().map_or(Ok((0, 0.0)), |row| Ok((row.try_get(0)?, row.try_get(1)?)))
}

/// Whether some pooler lends these two connections their sessions by the transaction or statement.
///
/// # Errors
/// The server's.
pub async fn are_lent(one: &Connection, other: &Connection) -> Result<bool, tokio_postgres::Error> {
    let clients = [one.client(), other.client()];
    let mut known: [Option<Process>; 2] = [None; 2];
    for _ in 0..ROUNDS {
        for at in [0, 1, 0, 0, 1, 1] {
            if is_news(&mut known, at, process(clients[at]).await?) {
                return Ok(true);
            }
        }
        for (holder, asker) in [(0, 1), (1, 0)] {
            match clients[holder].batch_execute("BEGIN READ ONLY").await {
                // so pgbouncer says that it lends by the statement
                Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => {
                    return Ok(true);
                }
                begun => begun?,
            }
            let held = process(clients[holder]).await?;
            let asked = process(clients[asker]).await?;
            clients[holder].batch_execute("COMMIT").await?;
            let again = process(clients[asker]).await?;
            for (at, process) in [(holder, held), (asker, asked), (asker, again)] {
                if is_news(&mut known, at, process) {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// Whether this process is another than before, or the other connection's.
fn is_news(known: &mut [Option<Process>; 2], at: usize, process: Process) -> bool {
    let other = known.get(1 - at).copied().flatten();
    let Some(own) = known.get_mut(at) else { return false };
    let changed = own.replace(process).is_some_and(|before| before != process);
    changed || other == Some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_that_stay_are_no_news() {
        let mut known = [None; 2];
        assert!(!is_news(&mut known, 0, (7, 1.0)));
        assert!(!is_news(&mut known, 1, (8, 1.0)));
        assert!(!is_news(&mut known, 0, (7, 1.0)));
        assert!(is_news(&mut known, 1, (9, 1.0)), "another process");
        assert!(is_news(&mut [Some((7, 1.0)), None], 1, (7, 1.0)), "one process for both");
        assert!(!is_news(&mut [Some((7, 1.0)), None], 1, (7, 2.0)), "of another server");
    }
}
