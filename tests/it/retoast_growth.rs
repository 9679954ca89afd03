//! By how much files grow by re-toasting, all of them together.

use std::io::Write;
use std::process::Stdio;

use crate::support::command::{run, toastctl};
use crate::support::holder::Holder;
use crate::support::retoast::{contents, done, retoast};
use crate::support::server::{Database, Options, Server};

/// Rows of about 800 bytes with three values of about 3.5 kB each out of line, and with indexes of many kinds.
const WIDE: &str = "CREATE TABLE t (id int PRIMARY KEY, k bigint, n int, name text, tags int[], pad text,
        a text COMPRESSION pglz, b text COMPRESSION pglz, c text COMPRESSION pglz);
    ALTER TABLE t ALTER pad SET STORAGE plain;
    INSERT INTO t SELECT i, i * 7919 % 1000003, i % 1000, 'Name ' || md5(i::text), ARRAY[i % 100, i % 77 + 100, i % 53 + 200],
        repeat('x', 560), v, v || 'b', v || 'c' FROM generate_series(1, 12000) AS i,
        LATERAL (SELECT string_agg(md5(i || '/' || k) || ' and what many rows have', '')
            FROM generate_series(1, 100) AS k) AS made (v);
    CREATE UNIQUE INDEX one ON t (k);
    CREATE INDEX two ON t (n, id);
    CREATE INDEX expression ON t (lower(name));
    CREATE INDEX partial ON t (id) WHERE n < 500;
    CREATE INDEX gin ON t USING gin (tags);
    VACUUM (ANALYZE, FREEZE) t";

fn size(database: &Database<'_>) -> f64 {
    let size =
        "SELECT pg_relation_size(oid) + pg_relation_size(reltoastrelid) + pg_indexes_size(oid)
        + pg_indexes_size(reltoastrelid) FROM pg_class WHERE oid = 't'::regclass";
    database.psql(size).parse().unwrap()
}

/// Re-toasts as this user: by how much all files grow, with how many vacuums, and what is told of its statements.
fn growth(
    server: &Server,
    database: &Database<'_>,
    user: &str,
    more: &[&str],
) -> (f64, u64, String) {
    let (before, rows) = (size(database), contents(database, "t"));
    let mut command = toastctl();
    command.args(["retoast", "-h", server.socket_dir().to_str().unwrap(), "-U", user]);
    command.args(["-p", &server.port().to_string(), "-d", database.name()]);
    command.args(["t", "-c", "a", "-c", "b", "-c", "c", "--toaster", "lz4"]);
    command.args(["--format", "json", "-vv"]);
    let run = run(command.args(more));
    let table = done(&run);
    assert_eq!(contents(database, "t"), rows);
    let grown = size(database) / before;
    eprintln!("{user} {more:?}: {grown:.4} times as large, {} vacuums", table.vacuums);
    (grown, table.vacuums, run.stderr)
}

#[test]
fn wide_rows_with_many_large_values_grow_by_little() {
    // a server of its own: what vacuum may remove hangs on transactions of whatever database
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("growth");
    database.psql(WIDE);
    // How many vacuums come early is for the clock to say: on an idle machine it is 1.02 with 110 vacuums, and 1.043
    // with 27 where none is worth it but the first.
    let (grown, vacuums, told) = growth(&server, &database, "postgres", &[]);
    // 14 reports late what a vacuum has left: there it is 1.022 to 1.062 beside busy processes
    let most = if server.major() == 14 { 1.07 } else { 1.05 };
    assert!(grown <= most && vacuums >= 25, "{grown}, {vacuums} vacuums");
    assert!(
        told.contains("VACUUM (TRUNCATE false, INDEX_CLEANUP on) pg_toast.pg_toast_"),
        "{told}"
    );
}

#[test]
fn wide_rows_with_many_large_values_grow_by_as_little_as_asked() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("growth");
    database.psql(WIDE);
    let more = ["--set", "max-bloat=1.5", "--reindex=bloated"];
    let (grown, ..) = growth(&server, &database, "postgres", &more);
    // 1.015 to 1.023 beside other tests; 1.043 where only 5 % were asked for
    assert!(grown <= 1.03, "{grown}");
}

/// Rows of 0.2 to 9 kB, half of whose values stay in the row: windows of 8 pages would have a transaction for each page.
#[test]
fn rows_that_fill_their_pages_take_few_transactions_and_grow_by_little() {
    let server = Server::start(&Options::default());
    for jobs in ["1", "2"] {
        let database = server.with_pageinspect(&format!("in_row_{jobs}"));
        database.psql(
            "CREATE TABLE t (id int PRIMARY KEY, k bigint, a text COMPRESSION pglz);
             INSERT INTO t SELECT i, i * 7919 % 1000003, (SELECT string_agg(md5(i || '/' || k) || ' and what many rows have', '')
                FROM generate_series(1, 3 + (158 * power(i * 7919 % 1000 / 1000.0, 1.7))::int) AS k)
                FROM generate_series(1, 30000) AS i;
             CREATE UNIQUE INDEX ON t (k);
             VACUUM (ANALYZE, FREEZE) t",
        );
        let (before, rows) = (size(&database), contents(&database, "t"));
        let pages: u64 = database.psql("SELECT pg_relation_size('t') / 8192").parse().unwrap();
        let indexes = "SELECT pg_indexes_size('t')";
        let indexes_before: f64 = database.psql(indexes).parse().unwrap();
        let run = retoast(&database, &["t", "-c", "a", "--toaster", "lz4", "--jobs", jobs]);
        let table = done(&run);
        assert_eq!(contents(&database, "t"), rows);
        let grown = size(&database) / before;
        let indexes: f64 = database.psql(indexes).parse().unwrap();
        let indexes_grown = indexes / indexes_before;
        let batches = table.batches;
        let what = format!(
            "{jobs} jobs: {grown:.4} times as large, indexes {indexes_grown:.3}; {batches} batches, {pages} pages"
        );
        eprintln!("{what}");
        // one for each page; with several jobs, windows are somewhat smaller, so that all jobs have one at any time
        assert!(batches * 5 < pages * 2, "{what}");
        // a twentieth may be dead; on a busy machine, vacuums take longer and come later
        assert!(grown <= 1.06 && indexes_grown <= 1.05, "{what}");
    }
}

#[test]
fn an_owner_who_may_not_name_the_toast_relation_has_the_whole_table_vacuumed_early() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("growth");
    database.psql(WIDE);
    database.psql("CREATE ROLE owner LOGIN; ALTER TABLE t OWNER TO owner");
    let plan = run(toastctl()
        .args(["retoast", "-h", server.socket_dir().to_str().unwrap(), "-U", "owner"])
        .args(["-p", &server.port().to_string(), "-d", database.name()])
        .args(["t", "-c", "a", "--toaster", "lz4", "--dry-run", "--format", "json"]))
    .stdout;
    let named = plan.contains("VACUUM (PROCESS_MAIN false, TRUNCATE false, INDEX_CLEANUP on)");
    assert_eq!(named, server.major() >= 16, "{plan}");
    assert!(
        plan.contains("VACUUM (TRUNCATE false, INDEX_CLEANUP on) \\\"public\\\".\\\"t\\\""),
        "{plan}"
    );
    // 1.062 with 18 vacuums where none is worth it before 5 % of the table's bytes are dead: pages are not full of
    // values, and the heap grows besides
    let (grown, vacuums, told) = growth(&server, &database, "owner", &[]);
    assert!(grown <= 1.07 && vacuums >= 16, "{grown}, {vacuums} vacuums");
    let early = if named {
        "VACUUM (PROCESS_MAIN false, TRUNCATE false, INDEX_CLEANUP on) "
    } else {
        "VACUUM (TRUNCATE false, INDEX_CLEANUP on) "
    };
    assert!(told.contains(&format!("{early}\"public\".\"t\"")), "{told}");
}

/// While a transaction that writes is open anywhere, each query's snapshot is so old that a vacuum beside it removes
/// nothing.
#[test]
fn vacuums_beside_short_queries_and_an_old_transaction_of_another_database_are_repeated() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("short");
    let other = server.create_database("other");
    let _holder = Holder::of(&other, "CREATE TABLE written ()");
    let mut queries = tempfile::NamedTempFile::new().unwrap();
    let query = "SELECT pg_sleep(0.004);\n\\! sleep 0.01\n";
    queries.write_all(query.repeat(20_000).as_bytes()).unwrap();
    let session = |_| {
        let mut psql = database.psql_command();
        psql.arg("-f").arg(queries.path()).stdout(Stdio::null()).stderr(Stdio::null());
        psql.spawn().unwrap()
    };
    database.psql(&WIDE.replace("generate_series(1, 12000)", "generate_series(1, 6000)"));
    let mut sessions = [(); 2].map(session);
    let (grown, _, told) = growth(&server, &database, "postgres", &[]);
    for session in &mut sessions {
        session.kill().unwrap();
        session.wait().unwrap();
    }
    // before PostgreSQL 15 the statistics of a vacuum come too late to be asked
    let is_asked = server.major() >= 15;
    assert_eq!(told.contains("VACUUM has left most dead rows in place"), is_asked, "{told}");
    // Without snapshots it is 1.02. With them the clock says how many vacuums are in vain: 1.05 to 1.10 beside other tests.
    assert!(grown <= 1.2, "{grown}");
}
