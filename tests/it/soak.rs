//! An application at work, `retoast` doing everything it can next to it, and clients, sessions and the server
//! killed meanwhile: nothing is lost, the application meets no error, and nothing is left behind.

use std::collections::BTreeMap;
use std::fs::{File, read_to_string};
use std::path::Path;
use std::process::Child;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::command::{Signal, signal};
use crate::support::library::block_on;
use crate::support::reports::Printed;
use crate::support::reports::retoast::{IndexEnd, IndexReport, Outcome, Report, Table};
use crate::support::retoast::{command, retoast};
use crate::support::server::{Database, Options, Server};
use crate::support::soak_application::{SCHEMA, Worker, check_everything};

/// For how many seconds, instead of 60.
const SECONDS: &str = "TOASTCTL_SOAK_SECONDS";
/// How many kills of clients, crashes of the server and terminated sessions, instead of `4,2,6`.
const KILLS: &str = "TOASTCTL_SOAK_KILLS";
/// Keeps what a failed run leaves here: the server's data and its log, in which all statements stand, and output.
const KEEP: &str = "TOASTCTL_SOAK_KEEP";
/// The number that all random choices follow from.
const SEED: &str = "TOASTCTL_SOAK_SEED";

const WORKERS: i64 = 3;
const TABLES: [&str; 2] = ["doc", "part"];
/// The longest that anything may take that ends by itself.
const PATIENCE: Duration = Duration::from_secs(300);

/// What `retoast` may not change, and what it may change only as it says. Minor releases since November 2026 keep a
/// number of their own in `attoptions`.
const AROUND: &str = "
    CREATE EXTENSION pageinspect; CREATE EXTENSION amcheck;
    COMMENT ON COLUMN doc.v IS 'one'; COMMENT ON COLUMN doc.w IS 'two'; COMMENT ON COLUMN part.v IS 'three';
    CREATE FUNCTION settings() RETURNS text LANGUAGE sql AS $$SELECT string_agg(
            concat_ws(' ', relname || '.' || attname, attstorage, attcompression, col_description(attrelid, attnum),
                nullif(ARRAY(SELECT o FROM unnest(attoptions) AS o WHERE o NOT LIKE 'pg\\_attver=%'), '{}'), reloptions),
            ', ' ORDER BY attrelid, attnum)
        FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attlen = -1$$;
    CREATE FUNCTION around() RETURNS text LANGUAGE sql AS $$SELECT concat_ws(' ',
        (SELECT md5(string_agg(r::text, ',' ORDER BY oid)) FROM pg_roles r), (SELECT count(*) FROM pg_db_role_setting),
        (SELECT count(*) FROM pg_auth_members), (SELECT count(*) FROM pg_replication_slots),
        (SELECT count(*) FROM pg_replication_origin), (SELECT count(*) FROM pg_file_settings),
        (SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class WHERE relnamespace = 'public'::regnamespace))$$";

/// What must be gone: some of it goes by itself a moment after a killed session.
const LEFT: &str = "
    SELECT 'temporary table ' || relname FROM pg_class WHERE relpersistence = 't'
    UNION ALL SELECT 'advisory lock of ' || pid FROM pg_locks WHERE locktype = 'advisory'
    UNION ALL SELECT 'session ' || application_name FROM pg_stat_activity WHERE application_name LIKE 'toastctl%'
    UNION ALL SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts";

const INVALID: &str =
    "SELECT indexrelid::regclass FROM pg_index WHERE NOT (indisvalid AND indisready AND indislive)";

/// amcheck; the function for btrees raises an error.
const DAMAGE: &str = "
    SELECT c.oid::regclass, damage.* FROM pg_class c, verify_heapam(c.oid, check_toast => true) AS damage
    WHERE relkind IN ('r', 't') AND relpersistence = 'p';
    DO $$DECLARE index oid; BEGIN
        FOR index IN SELECT c.oid FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE amname = 'btree' AND relkind = 'i' LOOP
            PERFORM bt_index_check(index, true);
            PERFORM bt_index_parent_check(index, true, true);
        END LOOP;
    END$$";

/// Conditions that these indexes answer, by a number from 0 to 99.
const BY_INDEX: [(&str, &str); 3] = [
    ("by_j", "j @> jsonb_build_object('tags', jsonb_build_array(k))"),
    ("by_tag", "tag = 'tag ' || k::text"),
    ("by_at", "at >= to_timestamp(k * 1000) AND at < to_timestamp(k * 1000 + 1000)"),
];

/// A run of `retoast` that has ended.
struct Ended {
    verb: &'static str,
    arguments: String,
    code: Option<i32>,
    killed: bool,
    /// Whether it was asked to stop.
    stopped: bool,
    times: [Instant; 2],
    stdout: String,
    stderr: String,
}

/// A way to disturb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Harm {
    /// kill -9 of a client.
    Kill,
    Crash,
    /// `pg_terminate_backend` for a session of `retoast` or of the application.
    Terminate,
}

struct Soak<'a> {
    database: &'a Database<'a>,
    /// Holds checkpoints and output.
    dir: &'a Path,
    seed: u64,
    stop: AtomicBool,
    /// What runs on each table, and whether it was killed.
    running: [Mutex<(Option<Child>, bool)>; 2],
    harms: Mutex<Vec<(Harm, [Instant; 2])>>,
}

/// Has the others stop when a thread panics.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Copies what a failed run leaves to the directory that [`KEEP`] names.
struct Keep<'a>(&'a Server, &'a Path);

impl Drop for Keep<'_> {
    fn drop(&mut self) {
        if let Some(to) = std::env::var_os(KEEP).filter(|_| std::thread::panicking()) {
            self.0.stop();
            let mut copy = std::process::Command::new("cp");
            let copied = copy.arg("-a").args([self.0.socket_dir(), self.1]).arg(&to).status();
            println!("kept in {}: {copied:?}", to.display());
        }
    }
}

impl Soak<'_> {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn checkpoint(&self, table: &str) -> String {
        self.dir.join(table).display().to_string()
    }

    /// Some work on a table.
    fn work(&self, table: &str, random: &mut ChaCha8Rng) -> (&'static str, Vec<String>) {
        let mut some = |from: &[&'static str]| *from.choose(random).unwrap();
        let column = some(if table == "doc" { &["v", "w", "j"] } else { &["v"] });
        let toaster = some(&["lz4", "pglz", "external", "extended", "main=lz4"]);
        let policy = some(&["chunk-saving", "always", "never", "ratio=0.5", "hybrid", "best"]);
        let (method, jobs) = (some(&["lz4", "pglz", "either"]), some(&["1", "2"]));
        let (verify, compact) = (some(&["sample", "full"]), some(&["all", "toast", "heap"]));
        let verb =
            some(&["sweep", "sweep", "policy", "policy", "compact", "sweep+compact", "rebuild"]);
        let pace = format!("-c {column} --set batch-ms=20 --verify {verify}");
        let arguments = match verb {
            "sweep" => format!("{pace} --toaster {toaster} --jobs {jobs}"),
            "policy" => format!("{pace} --policy {policy} --method {method}"),
            "compact" => format!("compact --files {compact}"),
            "rebuild" => format!("reindex --indexes all --checkpoint {}", self.checkpoint(table)),
            _ => format!("{pace} --toaster {toaster} --compact={compact}"),
        };
        (verb, format!("{arguments} {table}").split(' ').map(str::to_owned).collect())
    }

    /// Runs `retoast` on a table again and again.
    fn drive(&self, number: usize) -> Vec<Ended> {
        let _stop = StopOnPanic(&self.stop);
        let (table, running) = (TABLES[number], &self.running[number]);
        let mut random = ChaCha8Rng::seed_from_u64(self.seed ^ (1000 + number as u64));
        let [out, err] = ["out", "err"].map(|kind| self.dir.join(format!("{table}.{kind}")));
        let mut all = Vec::new();
        while !self.stops() {
            let (verb, arguments) = self.work(table, &mut random);
            let slices: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let mut command = command(self.database, &slices);
            command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
            let began = Instant::now();
            *running.lock().unwrap() = (Some(command.spawn().unwrap()), false);
            let mut stopped: Option<Instant> = None;
            let (code, killed) = loop {
                std::thread::sleep(Duration::from_millis(20));
                let (child, killed) = &mut *running.lock().unwrap();
                let process = child.as_mut().unwrap();
                if let Some(status) = process.try_wait().unwrap() {
                    *child = None;
                    break (status.code(), *killed);
                }
                if self.stops() && stopped.is_none() {
                    signal(process, Signal::TERM);
                    stopped = Some(Instant::now());
                }
                assert!(
                    stopped.is_none_or(|at| at.elapsed() < PATIENCE),
                    "{slices:?} does not stop"
                );
            };
            all.push(Ended {
                verb,
                arguments: slices.join(" "),
                code,
                killed,
                stopped: stopped.is_some(),
                times: [began, Instant::now()],
                stdout: read_to_string(&out).unwrap(),
                stderr: read_to_string(&err).unwrap(),
            });
        }
        all
    }

    /// Disturbs so often, in random order, at random times within this one.
    fn disturb(&self, counts: [usize; 3], within: Duration) {
        let _stop = StopOnPanic(&self.stop);
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let kinds = [Harm::Kill, Harm::Crash, Harm::Terminate].into_iter().zip(counts);
        let mut all: Vec<Harm> =
            kinds.flat_map(|(harm, count)| std::iter::repeat_n(harm, count)).collect();
        all.shuffle(&mut random);
        let (began, every) = (Instant::now(), within / all.len().max(1) as u32);
        for (number, harm) in (0..).zip(all) {
            let at = every * number + every.mul_f64(random.random());
            while began.elapsed() < at && !self.stops() {
                std::thread::sleep(Duration::from_millis(20));
            }
            let due = Instant::now();
            // the one to be hit may not run just now
            while !self.stops() {
                assert!(due.elapsed() < PATIENCE, "{harm:?}: nobody to hit");
                let asked = Instant::now();
                let whose = ["toastctl%", "toastctl%", "soak"].choose(&mut random).unwrap();
                if self.hit(harm, random.random_range(0..2), whose) {
                    self.harms.lock().unwrap().push((harm, [asked, Instant::now()]));
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn hit(&self, harm: Harm, number: usize, whose: &str) -> bool {
        match harm {
            Harm::Kill => {
                let (child, killed) = &mut *self.running[number].lock().unwrap();
                let Some(child) = child else { return false };
                child.kill().unwrap();
                *killed = true;
                true
            }
            Harm::Crash => {
                self.database.server().restart_immediate();
                true
            }
            Harm::Terminate => {
                let sql = format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '{whose}'
                     AND backend_type = 'client backend' ORDER BY random() LIMIT 1"
                );
                self.database.psql(&sql) == "t"
            }
        }
    }

    /// Why a run's exit code is not to be explained, if so. `after_kill`: the one before was killed, and its sessions
    /// may have been at work still.
    fn unexplained(&self, run: &Ended, after_kill: bool) -> Option<String> {
        let harms = self.harms.lock().unwrap();
        let disturbed = harms.iter().any(|(harm, [from, to])| {
            *harm != Harm::Kill && *from <= run.times[1] && *to >= run.times[0]
        });
        let is_explained = match run.code {
            None => run.killed,
            Some(0) => outcomes(&run.stdout).iter().all(|&outcome| outcome == Outcome::Complete),
            Some(3) => disturbed,
            Some(4) => run.stopped,
            Some(2 | 5) => false,
            Some(_) => disturbed || after_kill || others_are_named(&run.stdout),
        };
        let lost = run.stderr.contains("terminating connection") && run.code == Some(1);
        (!is_explained || lost || run.stderr.contains("panicked"))
            .then(|| format!("{:?}: {}\n{}{}", run.code, run.arguments, run.stderr, run.stdout))
    }
}

/// The tables of a report, if there is one.
fn tables(stdout: &str) -> Vec<Printed<Table>> {
    serde_json::from_str(stdout).map_or(Vec::new(), |report: Printed<Report>| report.tables.clone())
}

fn outcomes(stdout: &str) -> Vec<Outcome> {
    tables(stdout).iter().map(|table| table.outcome).collect()
}

/// Whether a report says what others were in the way of.
fn others_are_named(stdout: &str) -> bool {
    tables(stdout).first().is_some_and(|table| {
        let files = &table.compaction;
        let is_left =
            |index: &Printed<IndexReport>| index.ended == IndexEnd::Left && index.reason.is_some();
        !table.skipped.is_empty()
            || files.iter().any(|file| file.rows_left > 0 || file.untruncated > 0)
            || table.indexes.iter().any(is_left)
    })
}

fn setting<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Asks until the answer is empty.
#[track_caller]
fn goes(database: &Database<'_>, sql: &str) {
    let asked = Instant::now();
    loop {
        let left = database.psql(sql);
        if left.is_empty() {
            return;
        }
        assert!(asked.elapsed() < PATIENCE, "left: {left}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Each kind of work once more, which nobody disturbs.
fn last_runs(soak: &Soak<'_>) {
    let database = soak.database;
    database.psql("ALTER SYSTEM SET autovacuum = off; SELECT pg_reload_conf()");
    goes(database, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'");
    for (table, columns) in [("doc", "-c v -c w -c j"), ("part", "-c v")] {
        for arguments in [
            format!("{columns} --policy chunk-saving --method lz4"),
            format!("{columns} --toaster lz4"),
            "compact".to_owned(),
            format!("reindex --indexes all --checkpoint {}", soak.checkpoint(table)),
        ] {
            let arguments = format!("{arguments} {table}");
            let run = retoast(database, &arguments.split(' ').collect::<Vec<_>>());
            let told = format!("{arguments}\n{}{}", run.stderr, run.stdout);
            assert_eq!(
                (run.code, outcomes(&run.stdout)),
                (Some(0), vec![Outcome::Complete]),
                "{told}"
            );
        }
    }
    let set = "doc.v x l one, doc.w x l two, doc.j x l, doc.tag x , part.v x l three";
    assert_eq!(database.psql("SELECT settings()"), set);
    let others = "pg_column_compression(v) <> 'lz4' OR pg_column_compression(w) <> 'lz4'";
    assert_eq!(database.psql(&format!("SELECT count(*) FROM doc WHERE {others}")), "0");
    database.psql("ALTER SYSTEM RESET autovacuum; SELECT pg_reload_conf()");
}

/// Each index finds the rows that a scan of the table finds.
fn indexes_agree(database: &Database<'_>) {
    for (index, condition) in BY_INDEX {
        let from = format!("FROM generate_series(0, 99) k JOIN doc ON {condition}");
        let by_index =
            "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";
        let plan = database.psql(&format!("{by_index}; EXPLAIN SELECT * {from}"));
        assert!(plan.contains(index), "{plan}");
        let rows =
            format!("SELECT count(*), md5(string_agg(k || '/' || id, ',' ORDER BY k, id)) {from}");
        let by_table = "SET enable_indexscan = off; SET enable_bitmapscan = off";
        let [found, all] = [by_index, by_table].map(|set| database.psql(&format!("{set}; {rows}")));
        assert_eq!(found, all, "{index}");
    }
}

#[test]
fn next_to_an_application_and_killed_in_every_way_nothing_is_lost_or_left() {
    let seed: u64 = setting(SEED).unwrap_or_else(|| rand::rng().random());
    let seconds = setting(SECONDS).unwrap_or(60);
    let kills = setting(KILLS).unwrap_or_else(|| "4,2,6".to_owned());
    println!("{SEED}={seed} {SECONDS}={seconds} {KILLS}={kills}");
    let kills: Vec<usize> = kills.split(',').map(|count| count.parse().unwrap()).collect();
    let options = Options::default().set("autovacuum", "on").set("autovacuum_naptime", "1s");
    let options = options.set("max_wal_size", "512MB").set("log_line_prefix", "%m %p %a ");
    let kept = if std::env::var_os(KEEP).is_some() { "all" } else { "none" };
    let server = Server::start(&options.set("log_statement", kept));
    let database = server.create_database("soak");
    database.psql(&format!("{SCHEMA}{AROUND}"));
    let (around, conninfo) =
        (database.psql("SELECT around()"), database.conninfo() + " application_name=soak");
    let mut shared = Worker::new(0, seed, &[]);
    let ids = block_on(shared.insert_shared(&conninfo)).unwrap();
    let mut workers: Vec<Worker> =
        (1..=WORKERS).map(|owner| Worker::new(owner, seed, &ids)).collect();
    let dir = tempfile::tempdir().unwrap();
    let _keep = Keep(&server, dir.path());
    let soak = Soak {
        database: &database,
        dir: dir.path(),
        seed,
        stop: AtomicBool::new(false),
        running: Default::default(),
        harms: Mutex::default(),
    };
    let began = Instant::now();
    let (ended, wrong) = std::thread::scope(|scope| {
        let (soak, conninfo, time) = (&soak, &conninfo, Duration::from_secs(seconds));
        let application: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                scope.spawn(move || {
                    let _stop = StopOnPanic(&soak.stop);
                    let worked = block_on(worker.work(conninfo, &soak.stop));
                    soak.stop.store(true, Ordering::Relaxed);
                    worked
                })
            })
            .collect();
        let drivers = [0, 1].map(|number| scope.spawn(move || soak.drive(number)));
        let counts = [kills[0], kills[1], kills[2]];
        let disturbing = scope.spawn(move || soak.disturb(counts, time.mul_f64(0.8)));
        while !soak.stops() && (began.elapsed() < time || !disturbing.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
        }
        soak.stop.store(true, Ordering::Relaxed);
        let wrong: Vec<String> =
            application.into_iter().filter_map(|worker| worker.join().unwrap().err()).collect();
        (drivers.map(|driver| driver.join().unwrap()), wrong)
    });
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut unexplained = Vec::new();
    for ended in &ended {
        let mut after_kill = false;
        for run in ended {
            let [from, to] = run.times.map(|time| (time - began).as_secs_f32());
            println!("{from:.1} to {to:.1}: {}: {:?}", run.arguments, run.code);
            if !matches!(run.code, None | Some(0 | 4)) {
                println!("{}", run.stderr);
            }
            *counts.entry(format!("{}: {:?}", run.verb, run.code)).or_default() += 1;
            unexplained.extend(soak.unexplained(run, after_kill));
            after_kill = run.killed || after_kill && run.code != Some(0);
        }
    }
    for (harm, [at, _]) in soak.harms.lock().unwrap().iter() {
        println!("{:.1}: {harm:?}", (*at - began).as_secs_f32());
        *counts.entry(format!("{harm:?}")).or_default() += 1;
    }
    let sum = |of: fn(&Worker) -> u64| workers.iter().map(of).sum::<u64>();
    let (committed, lost) = (sum(|worker| worker.committed), sum(|worker| worker.lost));
    println!(
        "{committed} transactions and {} reads in {:?}, {lost} sessions lost, longest transaction {:?}; {counts:?}",
        sum(|worker| worker.reads),
        began.elapsed(),
        workers.iter().map(|worker| worker.longest).max()
    );
    assert_eq!(wrong, [""; 0], "{SEED}={seed}");
    assert_eq!(unexplained, [""; 0], "{SEED}={seed}");
    let count = |of: &str| counts.get(of).copied().unwrap_or(0);
    let [crashes, terminated] = ["Crash", "Terminate"].map(count);
    assert!(committed > 0 && count("Kill") > 0 && crashes > 0 && terminated > 0);
    // while a session is opened again another crash may come
    assert!(lost <= 2 * crashes * WORKERS as u64 + terminated, "{lost} sessions lost");
    goes(&database, LEFT);
    last_runs(&soak);
    block_on(check_everything(&conninfo, shared, workers)).unwrap();
    goes(&database, LEFT);
    assert_eq!(database.psql(INVALID), "");
    assert_eq!(database.psql(DAMAGE), "");
    indexes_agree(&database);
    assert_eq!(database.psql("SELECT around()"), around);
    let crashed = ["was terminated by signal", "PANIC", "TRAP:"];
    assert_eq!(server.logged(|line| crashed.iter().any(|one| line.contains(one))), [""; 0]);
}
