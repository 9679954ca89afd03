//! `advise-threshold` by an ordinary owner, without pages: the figures that pages give, and what it says true.

use std::time::Duration;

use crate::support::command::{Run, run, toastctl};
use crate::support::reports::advise::{Candidate, Report};
use crate::support::reports::inspect::ColumnFigures;
use crate::support::reports::{Printed, Source};
use crate::support::retoast::done;
use crate::support::server::{self, Database, Server, each_server};

/// Tables of many types, storages and shapes, each with a column `v`. `noise(n, seed)` gives n characters that
/// nothing compresses.
const SHAPES: &str = r#"
    CREATE FUNCTION noise(n int, seed int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
        SELECT left(string_agg(translate(encode(sha256((seed * 1000 + k)::text::bytea), 'base64'),
            E'\n', ''), ''), n) FROM generate_series(1, n / 40 + 1) AS k $$;
    CREATE TABLE docs (id int, v jsonb);
    INSERT INTO docs SELECT i, jsonb_build_object('id', i, 'body', noise(i % 23 * 97, i),
        'more', repeat('ab', i % 700)) FROM generate_series(1, 1200) AS i;
    CREATE TABLE lines (v text, other text, n bigint);
    INSERT INTO lines SELECT repeat(noise(60, i), i % 90 + 1), noise(i % 300, i),
        CASE WHEN i % 2 = 0 THEN i END FROM generate_series(1, 1200) AS i;
    CREATE TABLE images (id int, v bytea);
    INSERT INTO images SELECT i, convert_to(noise(i % 47 * 100, i), 'UTF8')
    FROM generate_series(1, 800) AS i;
    CREATE TABLE digits (id int, v numeric);
    INSERT INTO digits SELECT i, repeat(left('31415926535897932384', i % 19 + 1), i % 500 + 1)::numeric
    FROM generate_series(1, 800) AS i;
    CREATE TABLE series (v int[], small int2);
    INSERT INTO series SELECT ARRAY(SELECT generate_series(i, i + i % 1500)), 7
    FROM generate_series(1, 600) AS i;
    CREATE TABLE doubles (pad char, v float8[]);
    INSERT INTO doubles SELECT 'x', ARRAY(SELECT sqrt(k + i) FROM generate_series(1, i % 400) AS k)
    FROM generate_series(1, 600) AS i;
    CREATE TABLE vectors (id int, v tsvector);
    INSERT INTO vectors SELECT i, to_tsvector('simple', (SELECT string_agg('w' || k * i % 997, ' ')
        FROM generate_series(1, i % 800) AS k)) FROM generate_series(1, 500) AS i;
    CREATE TABLE mains (v text, w text);
    ALTER TABLE mains ALTER v SET STORAGE main, ALTER w SET STORAGE main;
    INSERT INTO mains SELECT noise(i % 31 * 150, i), repeat('xyz', i % 900)
    FROM generate_series(1, 800) AS i;
    CREATE TABLE outside (id int, v jsonb);
    ALTER TABLE outside ALTER v SET STORAGE external;
    INSERT INTO outside SELECT i, jsonb_build_object('k', repeat('value ', i % 800))
    FROM generate_series(1, 800) AS i;
    CREATE TABLE nulls (a int, v text, b text, c numeric);
    INSERT INTO nulls SELECT i, CASE WHEN i % 3 = 0 THEN repeat(md5(i::text), i % 200) END,
        CASE WHEN i % 2 = 0 THEN noise(900, i) END, i FROM generate_series(1, 1000) AS i;
    CREATE TABLE dropped (id int, gone text, fixed timestamptz, v text);
    INSERT INTO dropped SELECT i, repeat('gone', 20), now(), repeat(md5(i::text), i % 120)
    FROM generate_series(1, 1500) AS i;
    ALTER TABLE dropped DROP gone, DROP fixed;
    INSERT INTO dropped SELECT i, repeat(md5(i::text), i % 120) FROM generate_series(1, 500) AS i;
    CREATE TABLE wide (a text, v text, b text, c text, d jsonb);
    INSERT INTO wide SELECT noise(400, i), noise(600 + i % 900, -i), repeat('b', 300), noise(500, i + 1),
        jsonb_build_array(repeat('c', 400)) FROM generate_series(1, 700) AS i;
    CREATE TABLE low (v text) WITH (toast_tuple_target = 256, fillfactor = 80);
    INSERT INTO low SELECT repeat(noise(50, i), i % 60) FROM generate_series(1, 1000) AS i;
    CREATE DOMAIN tag AS text CHECK (VALUE <> '');
    CREATE TABLE "Odd ""one" ("a b" int, v tag);
    INSERT INTO "Odd ""one" SELECT i, repeat(md5(i::text), 1 + i % 150) FROM generate_series(1, 800) AS i;
    DELETE FROM lines WHERE n % 10 = 0; UPDATE docs SET id = -id WHERE id % 7 = 0;
"#;

/// Columns that are computed when they are read, beside dropped ones.
const COMPUTED: &str = "
    CREATE TABLE computed (id int, gone text, twice int GENERATED ALWAYS AS (id * 2) VIRTUAL, v text);
    ALTER TABLE computed DROP gone;
    INSERT INTO computed (id, v) SELECT i, repeat(md5(i::text), i % 150) FROM generate_series(1, 800) AS i;";

const TABLES: [&str; 14] = [
    "docs",
    "lines",
    "images",
    "digits",
    "series",
    "doubles",
    "vectors",
    "mains",
    "outside",
    "nulls",
    "dropped",
    "wide",
    "low",
    "\"Odd \"\"one\"",
];

/// A database of its own with an ordinary owner of what `sql` makes.
struct Owned<'a> {
    database: Database<'a>,
    role: String,
}

impl<'a> Owned<'a> {
    fn new(server: &'a Server, sql: &str) -> Owned<'a> {
        let database = server.create_database("owned");
        let role = format!("owner_of_{}", database.name());
        database.psql(&format!(
            "CREATE EXTENSION pageinspect; CREATE ROLE {role} LOGIN;
             GRANT CREATE, USAGE ON SCHEMA public TO {role}; SET ROLE {role}; {sql}"
        ));
        Owned { database, role }
    }

    /// `toastctl` with these words, as the owner.
    fn owner(&self, words: &[&str]) -> Run {
        self.as_user(&self.role, words)
    }

    fn superuser(&self, words: &[&str]) -> Run {
        self.as_user(self.database.server().superuser(), words)
    }

    fn as_user(&self, user: &str, words: &[&str]) -> Run {
        let server = self.database.server();
        let mut command = toastctl();
        command.env("PGHOST", server.socket_dir()).env("PGPORT", server.port().to_string());
        command.env("PGUSER", user).env("PGDATABASE", self.database.name());
        run(command.args(words))
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        let role = &self.role;
        self.database.psql(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}"));
    }
}

/// The report of `advise-threshold`.
#[track_caller]
fn json(run: Run) -> Printed<Report> {
    run.exits(0).report()
}

fn figures(candidate: &Candidate) -> [(&'static str, f64); 6] {
    [
        ("heap", candidate.heap_bytes.estimate),
        ("TOAST", candidate.toast_bytes.estimate),
        ("TOAST index", candidate.toast_index_bytes.estimate),
        ("total", candidate.total_bytes.estimate),
        ("update", candidate.update_bytes_per_value.estimate),
        ("read", candidate.read_buffers_per_value.estimate),
    ]
}

/// Within 2 %, or two pages of what is that small.
#[track_caller]
fn close(told: f64, pages: f64, place: &str) {
    let least = if pages < 10_000.0 { pages * 0.02 } else { 2.0 * 8192.0 };
    assert!((told - pages).abs() <= (pages * 0.02).max(least), "{place}: {told}, by pages {pages}");
}

fn compare(owned: &Owned<'_>, major: u32, words: &[&str]) {
    let words = [&["advise-threshold", "--format", "json", "-c", "v"], words].concat();
    let (told, pages) = (json(owned.owner(&words)), json(owned.superuser(&words)));
    let place = format!("PostgreSQL {major}, {words:?}");
    assert_eq!(told.sample.source, Source::Functions, "{place}");
    assert_eq!(pages.sample.source, Source::Pageinspect, "{place}");
    assert!(told.sample.exact, "{place}");
    let counts = |report: &Report| {
        let sample = &report.sample;
        [sample.blocks, sample.total_blocks, sample.rows, sample.rows_examined]
    };
    assert_eq!(counts(&told), counts(&pages), "{place}");
    assert_eq!(told.files, pages.files, "{place}");
    let names = |report: &Report| -> Vec<String> {
        report.candidates.iter().map(|candidate| candidate.name.clone()).collect()
    };
    assert_eq!(names(&told), names(&pages));
    for (told, pages) in told.candidates.iter().zip(&pages.candidates) {
        let place = format!("{place}, {}", told.name);
        for ((figure, told), (_, pages)) in figures(told).into_iter().zip(figures(pages)) {
            close(told, pages, &format!("{place}, {figure}"));
        }
        assert_eq!(told.forms, pages.forms, "{place}");
    }
}

#[test]
fn an_owner_without_pages_gets_the_sizes_that_pages_give() {
    each_server(|server, major| {
        let owned = Owned::new(server, SHAPES);
        // all of them on the main version, and each on one or two of the others
        let is_main = major == server::shared().major();
        for (number, table) in (0..).zip(TABLES) {
            if is_main || (number + major) % 3 == 0 {
                compare(&owned, major, &[table, "--sample", "100%"]);
            }
        }
        if major >= 18 {
            owned.database.psql(&format!("SET ROLE {}; {COMPUTED}", owned.role));
            compare(&owned, major, &["computed", "--sample", "100%"]);
        }
        for table in ["docs", "lines", "dropped"] {
            compare(&owned, major, &[table, "--sample", "30 blocks,seed=5"]);
        }
    });
}

#[test]
fn an_owner_goes_the_whole_way_and_what_is_said_is_true() {
    each_server(|server, major| {
        let method = if major == server::shared().major() { "lz4" } else { "pglz" };
        let owned = Owned::new(
            server,
            "CREATE TABLE t (id int PRIMARY KEY, v jsonb); ALTER TABLE t ALTER v SET STORAGE external;
             INSERT INTO t SELECT i, jsonb_build_object('n', i, 'text', repeat(md5(i::text), 150))
             FROM generate_series(1, 1500) AS i",
        );
        let sizes = || -> Vec<f64> {
            let text = owned.database.psql(
                "SELECT pg_relation_size(oid), pg_relation_size(reltoastrelid),
                        pg_indexes_size(reltoastrelid) FROM pg_class WHERE oid = 't'::regclass",
            );
            text.split('|').map(|bytes| bytes.parse().unwrap()).collect()
        };
        let inspect = |user: &str| {
            owned.as_user(user, &["inspect", "t", "--format", "json"]).exits(0).relation()
        };
        let agree = || {
            let (told, pages) = (inspect(&owned.role), inspect(server.superuser()));
            assert_eq!((told.source, pages.source), (Source::Functions, Source::Pageinspect));
            for (told, pages) in told.columns.iter().zip(&pages.columns) {
                let counts = |of: &ColumnFigures| (of.all.values, of.nulls, of.all.stored_bytes);
                assert_eq!(counts(told), counts(pages), "PostgreSQL {major}: {told}");
            }
            let unplaced = told.toast().unplaced_values.unwrap_or(0);
            let known = told.toast().values.estimate;
            let there = pages.toast().values.estimate;
            assert!(
                known <= there && there <= known + unplaced,
                "PostgreSQL {major}: {}",
                told.toast()
            );
            assert!(major < 17 || unplaced == 0, "{}", told.toast());
        };
        agree();
        let words =
            ["advise-threshold", "t", "--method", method, "--optimize", "size", "--format", "json"];
        let report = json(owned.owner(&words));
        let chosen = report.chosen();
        assert!(!chosen.today, "PostgreSQL {major}: {}", report.recommendation);
        let afterwards =
            |word: &&str| !word.starts_with("--compact") && !word.starts_with("--reindex");
        let command = report.recommendation.command.iter().skip(1).map(String::as_str);
        let words: Vec<&str> = command.filter(afterwards).collect();
        let swept = owned.owner(&words);
        // before 17 nothing tells an owner where compressed values stand
        assert!(swept.code == Some(0) || major < 17 && swept.code == Some(1), "{}", swept.stderr);
        agree();
        owned.database.rests();
        owned.database.psql("VACUUM FULL t");
        let written: f64 = sizes().iter().sum();
        let foretold = chosen.total_bytes.estimate;
        assert!(
            (foretold / written - 1.0).abs() < 0.02,
            "PostgreSQL {major}: {foretold}, {written}"
        );
        agree();
        // and there is nothing more to do
        let again = json(owned.owner(&[
            "advise-threshold",
            "t",
            "--method",
            method,
            "--optimize",
            "size",
            "--format",
            "json",
        ]));
        let today = again.today().total_bytes.estimate;
        assert!((today / written - 1.0).abs() < 0.02, "{today}, {written}");
        assert!(again.chosen().today, "PostgreSQL {major}: {}", again.recommendation);
        let text = owned.owner(&["advise-threshold", "t", "--details"]);
        assert!(
            text.stderr
                .contains("notice: using SQL functions and a temporary table: pageinspect needs")
        );
        assert!(
            text.stdout.contains("read by SQL functions, compressed by the server\n"),
            "{}",
            text.stdout
        );
        assert!(
            text.stdout.contains("Not known without pages: dead rows and free space"),
            "{}",
            text.stdout
        );
    });
}

/// What the server has counted of the table's use, once the sessions that used it have ended.
fn counted(database: &Database<'_>) -> String {
    database.rests();
    if database.server().major() < 15 {
        // a process of its own counts there, some time later
        std::thread::sleep(Duration::from_millis(1500));
    }
    database.psql(
        "SELECT seq_scan, seq_tup_read, idx_scan, idx_tup_fetch, n_tup_ins, n_tup_upd, n_tup_del
         FROM pg_stat_all_tables WHERE relid = 't'::regclass",
    )
}

const PLAIN: &str = "CREATE TABLE t (id int PRIMARY KEY, v text);
    INSERT INTO t SELECT i, repeat(md5(i::text), i % 200) FROM generate_series(1, 2000) AS i;";

/// Values that are out of line, and fit into their rows once they are compressed.
const MOVING: &str = "CREATE TABLE t (id int PRIMARY KEY, v text);
    ALTER TABLE t ALTER v SET STORAGE external;
    INSERT INTO t SELECT i, repeat(md5(i::text), 150) || (SELECT string_agg(md5((i * k)::text), '')
        FROM generate_series(1, 40) AS k) FROM generate_series(1, 3000) AS i; VACUUM ANALYZE t";

#[test]
fn a_toast_relation_that_an_owner_empties_is_returned_and_rows_grow_by_what_was_said() {
    emptied(&Owned::new(server::shared(), MOVING));
}

/// Since 17 the owner knows where values stand, so that the heap need not be read to compact it.
#[test]
fn so_it_is_on_the_newest_major() {
    let Some(major) = server::other_majors().into_iter().max() else { return };
    let server = Server::start(&server::Options::major(major));
    emptied(&Owned::new(&server, MOVING));
}

fn emptied(owned: &Owned<'_>) {
    let report = json(owned.owner(&["advise-threshold", "t", "--format", "json"]));
    let moving = report.candidates.iter().find(|one| one.name == "extended pglz").unwrap();
    // not that of TOAST: owners who may read it can compact it since 17, this one may not
    let convert = ["retoast", "t", "-c", "v", "--toaster", "pglz", "--compact=heap"];
    let run = owned.owner(&[&convert[..], &["--format", "json"]].concat());
    let converted = done(&run);
    let files = "SELECT pg_relation_size(oid) + pg_relation_size(reltoastrelid)
        + pg_indexes_size(reltoastrelid) FROM pg_class WHERE relname = 't'";
    let found: u64 = owned.database.psql(files).parse().unwrap();
    let foretold = moving.after_command_bytes;
    assert!(foretold.contains(found as f64), "{found}: {foretold}");
    let predicted = converted.predicted.as_ref().unwrap();
    let grown = predicted.growth_bytes_actual;
    assert!(grown > 4 << 20, "{grown}");
    assert!(
        grown <= predicted.growth_bytes.high,
        "{grown}, at most {}",
        predicted.growth_bytes.high
    );
}

/// Values of `v` are out of line and not compressed, since pglz would save less than a fourth of them; lz4 compresses them.
const DOUBTFUL: &str = "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz, other text COMPRESSION lz4);
    INSERT INTO t SELECT i, left(one, 1500) || left(one, 350), left(two, 1150) || left(two, 300)
        FROM generate_series(1, 200) AS i, LATERAL (SELECT noise(1600, i), noise(1600, -i)) AS made (one, two);
    VACUUM ANALYZE t";

#[test]
fn what_an_owner_cannot_see_of_compression_is_not_called_done() {
    let noise = SHAPES.split("CREATE TABLE docs").next().unwrap();
    let owned = Owned::new(server::shared(), &format!("{noise}; {DOUBTFUL}"));
    let stored = "SELECT count(*) FILTER (WHERE pg_column_compression(v) IS NULL) FROM t";
    assert_eq!(owned.database.psql(stored), "200");
    let convert = ["retoast", "t", "-c", "v", "--toaster", "lz4", "--format", "json"];
    let run = owned.owner(&convert);
    let table = &run.tables()[0];
    let left: u64 = owned.database.psql(stored).parse().unwrap();
    assert_eq!((run.code, table.rows_undecided), (Some(i32::from(left > 0)), left), "{run:?}");
    // who reads pages knows them
    let run = owned.superuser(&convert).ok();
    assert_eq!(owned.database.psql(stored), "0", "{run}");
}

/// Values that take half as much once they are compressed, out of line all the same.
const STAYING: &str = "CREATE TABLE t (id int PRIMARY KEY, v text);
    ALTER TABLE t ALTER v SET STORAGE external;
    INSERT INTO t SELECT i, string_agg(md5((i * k)::text) || repeat('x', 32), '')
        FROM generate_series(1, 1000) AS i, generate_series(1, 150) AS k GROUP BY i; VACUUM ANALYZE t";

#[test]
fn files_that_an_owner_cannot_compact_do_not_grow_by_more_than_is_allowed() {
    let owned = Owned::new(server::shared(), STAYING);
    let advise = ["advise-threshold", "t", "--format", "json"];
    let report = json(owned.owner(&advise));
    assert!(report.recommendation.command.is_empty(), "{report:#}");
    let reasons = &report.recommendation.reasons;
    let why = " with free space that this user cannot return";
    assert!(reasons.contains(why), "{reasons}");
    // a superuser returns it
    let report = json(owned.superuser(&advise));
    assert!(!report.recommendation.command.is_empty(), "{report:#}");
    // values that all move into their rows leave an empty file, which VACUUM returns
    let report = json(owned.owner(&[&advise[..], &["--optimize", "size"]].concat()));
    let chosen = report.chosen();
    assert!(chosen.after_command_bytes.high < report.files.total_bytes as f64, "{report:#}");
}

#[test]
fn advice_is_no_workload_and_neither_are_scans_of_inspect() {
    each_server(|server, major| {
        let owned = Owned::new(server, PLAIN);
        let advise = ["advise-threshold", "t", "-c", "v", "--format", "json"];
        let before = counted(&owned.database);
        let report = json(owned.owner(&advise));
        assert_eq!(counted(&owned.database), before, "PostgreSQL {major}");
        assert_eq!(report.workload.source, "assumed");
        // whole scans are counted, but make no ratio
        for _ in 0..3 {
            owned.owner(&["inspect", "t"]).ok();
        }
        let now = counted(&owned.database);
        assert_ne!(now, before, "PostgreSQL {major}");
        for report in [json(owned.owner(&advise)), json(owned.superuser(&advise))] {
            let workload = &report.workload;
            // ten reads of each value a day
            assert_eq!(workload.source, "assumed", "{workload}");
            assert_eq!((workload.reads_per_day, workload.writes_per_day), (20_000.0, 0.0));
            assert_eq!(workload.scans_per_day, 1.0);
        }
        // what others read by index is
        owned.database.psql(
            "SET enable_seqscan = off; SET enable_bitmapscan = off;
             SELECT count(v) FROM t WHERE id > 0; UPDATE t SET v = v || 'x' WHERE id = 1;",
        );
        counted(&owned.database);
        let report = json(owned.owner(&advise));
        assert_eq!(report.workload.source, "pg_stat_user_tables", "PostgreSQL {major}");
        assert!(report.workload.reads_per_day >= 1900.0, "{}", report.workload);
        let weighting = &report.recommendation.weighting;
        assert!(weighting.contains("from rows read through indexes"), "{weighting}");
    });
}

#[test]
fn statements_of_toastctl_are_nobodys_use() {
    for major in server::available_majors() {
        let options =
            server::Options::major(major).set("shared_preload_libraries", "pg_stat_statements");
        let server = Server::start(&options);
        let owned = Owned::new(&server, PLAIN);
        let grant = format!(
            "CREATE EXTENSION pg_stat_statements; GRANT pg_read_all_stats TO {}",
            owned.role
        );
        owned.database.psql(&grant);
        owned.database.psql("SELECT pg_stat_statements_reset()");
        let advise = ["advise-threshold", "t", "-c", "v", "--format", "json"];
        owned.owner(&advise).ok();
        owned.owner(&["inspect", "t"]).ok();
        owned.owner(&["retoast", "t", "-c", "v", "--policy", "always", "--method", "pglz"]);
        let own = "SELECT count(*) > 0 FROM pg_stat_statements WHERE query LIKE '%pg_column_size(t.\"v\")%'";
        assert_eq!(owned.database.psql(own), "t", "PostgreSQL {major}");
        let report = json(owned.owner(&advise));
        assert_eq!(report.workload.source, "assumed", "PostgreSQL {major}: {report:#}");
        let notes = report.notes();
        assert!(
            notes.contains("pg_stat_statements was not used to estimate the workload"),
            "{notes}"
        );
    }
}

#[test]
fn what_cannot_be_done_is_said_with_a_hint() {
    let owned = Owned::new(server::shared(), PLAIN);
    let (database, role) = (owned.database.name().to_owned(), owned.role.clone());
    let refused = |run: Run| {
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{}", run.stderr);
        let lines = run.stderr.lines().filter(|line| !line.contains("notice: "));
        let said = lines.take(2).collect::<Vec<_>>().join("\n");
        said.replace(&role, "app").replace(&database, "shop")
    };
    let advise = ["advise-threshold", "t"];
    owned.database.psql(&format!("REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC"));
    let temporary = refused(owned.owner(&advise));
    owned.database.psql(&format!("GRANT TEMPORARY ON DATABASE {database} TO {role}"));
    owned.owner(&advise).ok();
    owned.database.psql("ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY");
    let hidden = refused(owned.owner(&advise));
    owned.superuser(&advise).ok();
    insta::assert_snapshot!([temporary, hidden].join("
"), @r#"
    toastctl: error: public.t: pages cannot be read: pageinspect needs a superuser; and user "app" may not make temporary tables, in which values are compressed for the advice otherwise
    HINT:  GRANT TEMPORARY ON DATABASE "shop" TO "app";
    toastctl: error: public.t: row security hides rows from this user, so that no sample stands for all
    HINT:  Run as a role with BYPASSRLS, or as the owner if row security is not forced.
    "#);
}

#[test]
fn a_standby_has_no_room_for_copies() {
    let primary = Server::start(&server::Options::default());
    let owned = Owned::new(&primary, PLAIN);
    let standby = primary.start_standby();
    let there = standby.database(owned.database.name());
    let mut command = toastctl();
    command.env("PGHOST", standby.socket_dir()).env("PGPORT", standby.port().to_string());
    command.env("PGUSER", &owned.role).env("PGDATABASE", there.name());
    let found = run(command.args(["advise-threshold", "t"]));
    assert_eq!(found.code, Some(1), "{}", found.stderr);
    assert!(found.stderr.contains("a standby has no temporary tables"), "{}", found.stderr);
    assert!(found.stderr.contains("HINT:  Connect to the primary"), "{}", found.stderr);
}

#[test]
fn values_of_a_table_without_chunks_are_in_their_rows() {
    each_server(|server, major| {
        let owned = Owned::new(
            server,
            "CREATE TABLE t (id int, v jsonb); INSERT INTO t SELECT i,
                 jsonb_build_object('n', repeat(i::text, 20 * (i % 50))) FROM generate_series(1, 500) AS i",
        );
        let forms = |user: &str| {
            let run = owned.as_user(user, &["inspect", "t", "--format", "json"]);
            let relation = run.exits(0).relation();
            assert_eq!(relation.toast().bytes, Some(0));
            assert_eq!(relation.toast().unplaced_values, None, "PostgreSQL {major}");
            let forms = relation.columns[1].forms.iter();
            let known = forms.filter(|form| ["compressed", "plain"].contains(&form.form.name()));
            known.map(|form| (form.form, form.all.values)).collect::<Vec<_>>()
        };
        assert_eq!(forms(&owned.role), forms(server.superuser()), "PostgreSQL {major}");
        let said = owned.owner(&["inspect", "t"]).ok();
        assert!(said.contains(", empty\n"), "PostgreSQL {major}: {said}");
    });
}

#[test]
fn a_superuser_is_told_what_brings_pages() {
    let owned = Owned::new(server::shared(), PLAIN);
    owned.database.psql("DROP EXTENSION pageinspect");
    let run = owned.superuser(&["advise-threshold", "t", "--format", "json"]);
    assert!(
        run.stderr.contains("notice: using SQL functions and a temporary table: the extension")
    );
    assert!(run.stderr.contains("HINT:  CREATE EXTENSION pageinspect;"), "{}", run.stderr);
    assert_eq!(json(run).sample.source, Source::Functions);
}

#[test]
fn nothing_is_left_behind() {
    let owned = Owned::new(server::shared(), PLAIN);
    let objects = "SELECT count(*) FROM pg_class WHERE relname LIKE 'toastctl%'";
    owned.owner(&["advise-threshold", "t"]).ok();
    owned.database.psql("ALTER TABLE t RENAME v TO gone");
    let run = owned.owner(&["advise-threshold", "t", "-c", "v"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert_eq!(owned.database.psql(objects), "0");
}

/// The words of a printed command, run as the owner.
fn follow(owned: &Owned<'_>, words: &[String]) -> Run {
    let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    owned.owner(&words)
}

#[test]
fn owners_of_partitions_are_named_with_the_command() {
    let owned = Owned::new(
        server::shared(),
        "CREATE TABLE t (id int, v bytea) PARTITION BY RANGE (id);
         ALTER TABLE t ALTER v SET STORAGE external;
         CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (1500);
         CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (1500) TO (9000);
         INSERT INTO t SELECT i, decode(repeat(md5(i::text), 300), 'hex') FROM generate_series(1, 3000) i;",
    );
    let other = format!("{}_other", owned.database.name());
    owned.database.psql(&format!(
        "CREATE ROLE {other}; ALTER TABLE t2 OWNER TO {other};
         GRANT SELECT ON t2 TO PUBLIC; GRANT USAGE ON SCHEMA public TO {other}"
    ));
    let text = owned.owner(&["advise-threshold", "t", "-c", "v", "--optimize", "size"]).ok();
    let said = format!("To be run by a superuser or with the rights of {other}.");
    assert!(text.contains(&said), "{text}");
    owned.database.psql(&format!("DROP TABLE t; DROP OWNED BY {other}; DROP ROLE {other}"));
}

#[test]
fn an_owner_is_given_commands_that_this_owner_can_run() {
    for major in [15, 17] {
        if !server::has_major(major) {
            continue;
        }
        let owned = Owned::new(
            server::shared_of(major),
            "CREATE TABLE t (id int PRIMARY KEY, v bytea); ALTER TABLE t ALTER v SET STORAGE external;
             INSERT INTO t SELECT i, decode(repeat(md5(i::text), 300), 'hex') FROM generate_series(1, 2000) i;",
        );
        let run = owned.owner(&[
            "advise-threshold",
            "t",
            "-c",
            "v",
            "--optimize",
            "size",
            "--format",
            "json",
        ]);
        let report = json(run);
        let command = &report.recommendation.command;
        assert!(command.iter().any(|word| word == "retoast"), "{major}: {report}");
        let done = follow(&owned, command);
        assert_eq!(done.code, Some(0), "{major}: {command:?}: {}{}", done.stdout, done.stderr);
        let found = owned.owner(&["inspect", "t"]).ok();
        for line in found.lines().filter(|line| line.trim_start().starts_with("toastctl ")) {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let done = follow(&owned, &words);
            assert!(
                matches!(done.code, Some(0 | 1)) && !done.stderr.contains("only pageinspect"),
                "{line}: {done:?}"
            );
        }
    }
}

#[test]
fn a_trigger_that_keeps_retoast_from_the_table_is_named_with_the_command() {
    let database = server::shared().with_pageinspect("advise_trigger");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 2000) AS i;
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
         CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f(); VACUUM ANALYZE t",
    );
    let refusal =
        "retoast refuses the table until this is disabled: trigger g, which is enabled ALWAYS";
    for (enabled, is_told) in [("ALWAYS TRIGGER", true), ("TRIGGER", false)] {
        database.psql(&format!("ALTER TABLE t ENABLE {enabled} g"));
        for verb in ["inspect", "advise-threshold"] {
            let shown = run(toastctl().args([verb, "t", "-d", &database.url()])).ok();
            let words: Vec<&str> = shown.split_whitespace().collect();
            let shown = words.join(" ");
            assert!(shown.contains("toastctl retoast public.t "), "{verb}: {shown}");
            assert_eq!(shown.contains(refusal), is_told, "{verb}: {shown}");
        }
    }
}
