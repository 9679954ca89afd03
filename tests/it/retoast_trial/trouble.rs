//! What happens beside a run: DDL, writes, kills, stalls, snapshots.

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::table::Table;
use super::truth::Met;
use crate::support::command::{Signal, signal_process};
use crate::support::proxy::Proxy;
use crate::support::server::Database;

pub(crate) enum Trouble {
    None,
    /// A statement, and whether contents look the same afterwards.
    Ddl(String, bool),
    /// Updates and inserts of the application, by these assignments.
    Writes(Vec<String>),
    KillClient,
    KillBackend,
    Stall(Duration),
    Snapshot,
}

/// What is under way beside a run.
pub(crate) struct UnderWay {
    met: Met,
    /// When the DDL was committed.
    done: Option<Instant>,
    writer: Option<(Arc<AtomicBool>, JoinHandle<u64>)>,
    holder: Option<Child>,
}

impl Trouble {
    pub(crate) fn random(rng: &mut ChaCha8Rng, table: &Table) -> Trouble {
        match rng.random_range(0..10) {
            0 | 1 => Trouble::None,
            2 | 3 => ddl(rng, table),
            4 | 5 => {
                let set = |column: &super::table::Column| {
                    format!("{} = {}", column.name, column.value("$1 + n"))
                };
                Trouble::Writes(table.columns.iter().map(set).collect())
            }
            6 => Trouble::KillClient,
            7 => Trouble::KillBackend,
            8 => Trouble::Stall(Duration::from_millis(rng.random_range(200..3000))),
            _ => Trouble::Snapshot,
        }
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Trouble::None => "nothing".to_owned(),
            Trouble::Ddl(sql, _) => sql.clone(),
            Trouble::Writes(_) => "writes".to_owned(),
            Trouble::KillClient => "a killed client".to_owned(),
            Trouble::KillBackend => "a killed backend".to_owned(),
            Trouble::Stall(time) => format!("a stall of {} ms", time.as_millis()),
            Trouble::Snapshot => "an open snapshot".to_owned(),
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Trouble::None)
    }

    pub(crate) fn wants_time(&self) -> bool {
        !matches!(self, Trouble::None | Trouble::Snapshot)
    }

    /// Makes it, once the run has begun.
    pub(crate) fn make(
        &self,
        database: &Database<'_>,
        proxy: &Proxy,
        rng: &mut ChaCha8Rng,
        client: u32,
    ) -> UnderWay {
        let mut under_way = UnderWay { met: Met::none(), done: None, writer: None, holder: None };
        if !self.is_none() {
            // from the first session on
            let there =
                "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'toastctl%'";
            let began = Instant::now();
            while database.psql(there) == "0" && began.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(10));
            }
            std::thread::sleep(Duration::from_millis(rng.random_range(0..400)));
        }
        match self {
            Trouble::None => {}
            Trouble::Ddl(sql, contents_stay) => {
                let done = database.try_psql(sql).code == Some(0);
                under_way.met.changed_settings = done;
                under_way.met.contents_stay = !done || *contents_stay;
                under_way.done = done.then(Instant::now);
            }
            Trouble::Writes(assignments) => {
                under_way.met.wrote = true;
                under_way.writer = Some(writes(database, assignments));
            }
            Trouble::KillClient => {
                signal_process(client, Signal::KILL);
            }
            Trouble::KillBackend => {
                let order = ["pid", "-pid", "backend_start", "query_start"][rng.random_range(0..4)];
                database.try_psql(&format!(
                    "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity
                     WHERE application_name LIKE 'toastctl%' ORDER BY {order} LIMIT 1) AS one"
                ));
            }
            Trouble::Stall(time) => {
                proxy.stall(true);
                std::thread::sleep(*time);
                proxy.stall(false);
            }
            Trouble::Snapshot => {
                let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t; SELECT pg_sleep(2)";
                let mut psql = database.psql_command();
                psql.args(["-q", "-c", sql]).stdout(Stdio::null()).stderr(Stdio::null());
                under_way.holder = Some(psql.spawn().unwrap());
            }
        }
        under_way
    }
}

fn ddl(rng: &mut ChaCha8Rng, table: &Table) -> Trouble {
    let column = table.columns.iter().find(|column| table.is_chosen(column)).unwrap();
    let alter = |what: &str| format!("ALTER TABLE t ALTER {} {what}", column.name);
    let (sql, contents_stay) = match rng.random_range(0..11) {
        0 => (alter("SET COMPRESSION pglz"), true),
        1 => (alter("SET COMPRESSION lz4"), true),
        2 => (alter("SET STORAGE external"), true),
        3 => (alter("SET STORAGE plain"), true),
        4 => (alter("SET STORAGE main"), true),
        5 => ("ALTER TABLE t SET (toast_tuple_target = 4080)".to_owned(), true),
        6 => ("ALTER TABLE t SET (toast_tuple_target = 128)".to_owned(), true),
        7 if column.is_text() => (
            alter("TYPE bytea USING convert_to(c0::text, 'UTF8')").replace("c0", &column.name),
            false,
        ),
        8 if column.is_text() => {
            (alter(&format!("TYPE varchar(100000) USING {} || ''", column.name)), true)
        }
        9 => ("VACUUM FULL t".to_owned(), true),
        _ => ("ALTER TABLE t ADD COLUMN extra text DEFAULT 'an extra'".to_owned(), true),
    };
    Trouble::Ddl(sql, contents_stay)
}

/// An application that changes every fifth row and inserts others, until it is told to end; it counts the
/// changes that it was told were done.
fn writes(database: &Database<'_>, assignments: &[String]) -> (Arc<AtomicBool>, JoinHandle<u64>) {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let mut psql = database.psql_command();
    psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = psql.spawn().unwrap();
    let assignments = assignments.join(", ");
    let writer = std::thread::spawn(move || {
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).map(|_| text).unwrap_or_default()
        });
        let mut turn = 0u32;
        while !flag.load(Ordering::Relaxed) {
            turn += 1;
            let id = turn * 35 % 500;
            let set = assignments.replace("$1", &turn.to_string());
            let statement = match turn % 4 {
                0 => format!(
                    "INSERT INTO t (id) VALUES ({}); UPDATE t SET {set} WHERE id = {};\n",
                    100_000 + turn,
                    100_000 + turn
                ),
                1 => format!("BEGIN; UPDATE t SET n = n + 100000 WHERE id = {id}; ROLLBACK;\n"),
                2 => format!("UPDATE t SET n = n + 1 WHERE id = {id};\n"),
                _ => format!("UPDATE t SET n = n + 1, {set} WHERE id = {id};\n"),
            };
            if stdin.write_all(statement.as_bytes()).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(8));
        }
        drop(stdin);
        let _ = child.wait();
        increments(&reader.join().unwrap())
    });
    (stop, writer)
}

/// How many committed updates of rows that were there before psql has reported.
fn increments(tags: &str) -> u64 {
    let (mut count, mut before) = (0, "");
    for tag in tags.lines() {
        if tag == "UPDATE 1" && before != "BEGIN" && !before.starts_with("INSERT") {
            count += 1;
        }
        before = tag;
    }
    count
}

impl UnderWay {
    /// Ends it after the run has ended; what the run has met.
    pub(crate) fn end(mut self, database: &Database<'_>) -> Met {
        // what is changed after the last scan no report can know
        self.met.too_late =
            self.done.is_some_and(|done| done.elapsed() < Duration::from_millis(700));
        if let Some((stop, writer)) = self.writer.take() {
            stop.store(true, Ordering::Relaxed);
            self.met.increments = writer.join().unwrap();
        }
        if let Some(mut holder) = self.holder.take() {
            holder.wait().unwrap();
        }
        // sessions of a killed client end by themselves
        let began = Instant::now();
        let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'toastctl%'";
        while database.psql(left) != "0" && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.met.sessions_left = began.elapsed() >= Duration::from_secs(20);
        self.met
    }
}
