//! `retoast` run on tables of the tests: to its end, under way, next to sessions of others.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::command::{Run, Signal, run, toastctl, verb_of};
use crate::support::reports::inspect::{Compaction, Finding};
use crate::support::reports::retoast::{Outcome, Table};
use crate::support::reports::{Printed, Source};
use crate::support::server::{Database, with_pageinspect};
use crate::support::tables::LARGE;
use crate::support::verbs::relation;
use toast_format::codec::Method;

/// `toastctl retoast` on `database` as its superuser.
pub(crate) fn command(database: &Database<'_>, arguments: &[&str]) -> Command {
    let mut command = toastctl();
    let (verb, arguments) = verb_of("retoast", arguments);
    command.args([verb, "-d", &database.url(), "--format", "json"]).args(arguments);
    command
}

pub(crate) fn retoast(database: &Database<'_>, arguments: &[&str]) -> Run {
    run(&mut command(database, arguments))
}

/// As this user, who may be the table's owner and no superuser.
pub(crate) fn retoast_as(database: &Database<'_>, user: &str, arguments: &[&str]) -> Run {
    let url = database.url_of(user);
    let (verb, arguments) = verb_of("retoast", arguments);
    run(toastctl().args([verb, "-d", &url, "--format", "json"]).args(arguments))
}

pub(crate) fn spawn(database: &Database<'_>, arguments: &[&str]) -> Child {
    command(database, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The report of a run that must succeed, for one table. Without pages it may have left open whether values are
/// where the choice wants them.
#[track_caller]
pub(crate) fn done(run: &Run) -> Printed<Table> {
    let [table] = &run.tables()[..] else { panic!("not one table: {run:?}") };
    let unverified = table.source == Source::Functions && run.code == Some(1);
    let outcome = if unverified { Outcome::Unverified } else { Outcome::Complete };
    assert_eq!((table.outcome, run.code), (outcome, Some(i32::from(unverified))), "{run:?}");
    table.clone()
}

/// The run fails with this code and says so.
#[track_caller]
pub(crate) fn refused(run: &Run, code: i32, message: &str) {
    assert_eq!(run.code, Some(code), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains(message), "{}", run.stderr);
}

/// Contents of a table row by row, keyed by `id`, as one hash.
pub(crate) fn contents(database: &Database<'_>, table: &str) -> String {
    database.psql(&format!(
        "SELECT count(*), md5(string_agg(md5(t::text), ',' ORDER BY id)) FROM {table} AS t"
    ))
}

/// Form and method of the values of `column` with how many there are, as `inspect` sees them.
pub(crate) fn forms(database: &Database<'_>, table: &str, column: &str) -> Vec<String> {
    let forms = relation(database, &[table]).column(column).forms.clone();
    let stored = forms.iter().filter(|form| form.all.values.estimate != 0);
    let mut forms: Vec<String> = stored
        .map(|form| {
            let method = form.method.map_or("-", Method::name);
            format!("{} {method} {}", form.form.name(), form.all.values.estimate)
        })
        .collect();
    forms.sort();
    forms
}

/// Kills `retoast` with these arguments over a table under updates, again and again; in the end no
/// update is lost, no row is lost or doubled, and none is left to which the condition `left` applies.
pub(crate) fn survives_kills(prefix: &str, arguments: &[&str], left: &str) {
    let database = with_pageinspect(prefix);
    database.psql(LARGE);
    database.psql("ALTER TABLE t ADD COLUMN changes int NOT NULL DEFAULT 0");
    let content = "SELECT count(*), sum(changes), md5(string_agg(md5(id || coalesce(v, '')), '' ORDER BY id)) FROM t";
    let updates = |seed: u32| {
        let mut psql = database.psql_command();
        psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-c"]).arg(format!(
            "DO $$BEGIN FOR i IN 1..1500 LOOP
                UPDATE t SET changes = changes + 1, v = CASE WHEN i % 2 = 0 THEN v || '' ELSE v END
                WHERE id = 1 + (i * {seed}::bigint) % 60000; COMMIT; END LOOP; END$$"
        ));
        psql.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let before = database.psql(content);
    let clients: Vec<Child> = [7919, 104_729, 15_485_863].map(updates).into_iter().collect();
    for kill in 1..=8 {
        let mut child = spawn(&database, arguments);
        std::thread::sleep(Duration::from_millis(150 + 37 * kill));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // the session of a killed client may live on for a moment, with the lock of the table
    done(&retoast(&database, arguments));
    for client in clients {
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let table = done(&retoast(&database, arguments));
    assert!(table.skipped.is_empty(), "{table}");
    let (count, rest) = before.split_once('|').unwrap();
    let expected = format!("{count}|4500|{}", rest.split_once('|').unwrap().1);
    assert_eq!(database.psql(content), expected);
    let left = database.psql(&format!("SELECT count(*) FROM t WHERE {left}"));
    assert_eq!(left, "0");
    let objects = "SELECT count(*) FROM pg_class WHERE relname LIKE 'toastctl%'";
    assert_eq!(database.psql(objects), "0");
}

/// The values of `v` in table `t` to be compressed by lz4.
pub(crate) const LZ4: [&str; 5] = ["t", "-c", "v", "--toaster", "lz4"];

/// The longest that anything may take to be seen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// A `toastctl` under way, with what it has said so far.
pub(crate) struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (lines, heard) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                heard.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Running { child, said }
    }

    pub(crate) fn sweep(database: &Database<'_>, more: &[&str]) -> Running {
        let pace = ["--set", "batch-ms=2"];
        Running::start(&mut command(database, &[&LZ4[..], &pace[..], more].concat()))
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn says(&self, text: &str) {
        let began = Instant::now();
        while !self.said().contains(text) {
            assert!(began.elapsed() < PATIENCE, "not said: {text}\n{}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until this is said, or nothing more will be.
    pub(crate) fn says_or_ends(&mut self, text: &str) {
        while !self.said().contains(text) && self.runs() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        crate::support::command::signal(&self.child, signal);
    }

    pub(crate) fn end(self) -> Run {
        let output = self.child.wait_with_output().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let stderr = self.said.lock().unwrap().clone();
        let stdout = String::from_utf8(output.stdout).unwrap();
        Run { code: output.status.code(), stdout, stderr }
    }

    /// Ends well; the report.
    #[track_caller]
    pub(crate) fn ends(self) -> Printed<Table> {
        done(&self.end().exits(0))
    }

    /// Ends well, with this reason among its waits; the milliseconds waited for it.
    #[track_caller]
    pub(crate) fn done_after(self, reason: &str) -> u64 {
        self.ends_after(reason).pause(reason).unwrap().ms
    }

    /// Ends well, with this reason among its waits; the report.
    #[track_caller]
    pub(crate) fn ends_after(self, reason: &str) -> Printed<Table> {
        let table = done(&self.end());
        let pause = table.pause(reason).unwrap_or_else(|| panic!("no {reason} in {table}"));
        assert!(pause.times > 0, "{table}");
        table
    }
}

/// A session that does this, until it is ended.
pub(crate) struct Session<'a> {
    database: &'a Database<'a>,
    child: Child,
    name: String,
}

impl<'a> Session<'a> {
    /// Returns once the session sleeps, which the statements must end with.
    pub(crate) fn start(database: &'a Database<'a>, name: &str, sql: &str) -> Session<'a> {
        let mut psql = database.psql_command();
        psql.args(["-q", "-c", sql]).env("PGAPPNAME", name);
        psql.stdout(Stdio::null()).stderr(Stdio::null());
        let child = psql.spawn().unwrap();
        let sleeps = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'
             AND wait_event = 'PgSleep'"
        );
        database.until(&sleeps, |answer| answer != "0");
        Session { database, child, name: name.to_owned() }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.database.try_psql(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name = '{}'",
            self.name
        ));
        let _ = self.child.wait();
    }
}

/// Options by which a run waits until [`release`].
pub(crate) fn brake(database: &Database<'_>) -> [&'static str; 2] {
    database.psql("DROP TABLE IF EXISTS brake; CREATE TABLE brake AS SELECT true AS pulled");
    ["--throttle-query", "SELECT pulled FROM brake"]
}

/// Lets it go on.
pub(crate) fn release(database: &Database<'_>) {
    database.psql("UPDATE brake SET pulled = false");
}

/// How often runs are killed: 6 times, or as TOASTCTL_KILLS says.
pub(crate) fn kills() -> u32 {
    std::env::var("TOASTCTL_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

/// What `inspect` says that compaction would come to in heap and TOAST relation; `None` if it says nothing.
pub(crate) fn said_by_inspect(database: &Database<'_>) -> [Option<Compaction>; 2] {
    let told = relation(database, &["t"]);
    ["heap", "toast"].map(|part| {
        let of = |one: &&Printed<Finding>| {
            one.code.name() == "free-space" && one.object.as_deref() == Some(part)
        };
        let found = told.findings().iter().find(of)?;
        let compaction = found.compaction.unwrap_or_else(|| panic!("{found}"));
        assert_eq!([found.low, found.value, found.high], [compaction.gives_back; 3], "{found}");
        Some(compaction)
    })
}
