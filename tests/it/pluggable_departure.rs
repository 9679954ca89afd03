//! `--from-toaster`, and what surrounds a choice of `pg_toaster`, on a stand-in: what dropped columns
//! hold, values that the server reads in two ways, partitioned parents.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::support::command::{Run, run, toastctl};
use crate::support::holder::Holder;
use crate::support::reports::Printed;
use crate::support::reports::retoast::Report;
use crate::support::server::{Database, Server};
use crate::support::standin;

fn retoast(database: &Database<'_>, arguments: &[&str]) -> Run {
    run(toastctl().args(["retoast", "-d", &database.conninfo()]).args(arguments))
}

fn json(database: &Database<'_>, arguments: &[&str]) -> (Option<i32>, Printed<Report>) {
    let run = retoast(database, &[arguments, &["--format", "json"]].concat());
    (run.code, run.report())
}

/// Live tuples of a table with a custom pointer of a toaster, found by its bytes: tag, and behind two
/// lengths the OID, its high half first.
fn pointers(database: &Database<'_>, table: &str, toaster: u32) -> u64 {
    let halves = [(toaster >> 16) as u16, toaster as u16];
    let oid: String = halves
        .iter()
        .flat_map(|half| half.to_le_bytes())
        .map(|byte| format!("{byte:02x}"))
        .collect();
    database
        .psql(&format!(
            "SELECT count(*) FROM generate_series(0, pg_relation_size('{table}') / 8192 - 1) AS b,
                 LATERAL heap_page_items(get_raw_page('{table}', b::int))
             WHERE lp_flags = 1 AND t_xmax = '0' AND encode(t_data, 'hex') ~ '0104.{{16}}{oid}'"
        ))
        .parse()
        .unwrap()
}

#[test]
fn values_of_dropped_columns_count_and_are_cleared() {
    let server = standin::start();
    let database = server.create_database("dropped");
    let captures = ["bytea_fresh", "json_diff_plain"].map(|t| standin::capture("jsonb_toaster", t));
    let toasters = standin::meta(&captures[0]).pg_toaster;
    standin::make_toasters(&database, &toasters);
    standin::transplant(&database, &captures);
    let toaster = toasters.iter().find(|row| row.name == "bytea_toaster").unwrap().oid;
    let held = pointers(&database, "bytea_fresh", toaster);
    assert!(held > 10, "{held}");
    database.psql("ALTER TABLE bytea_fresh DROP COLUMN a");

    let (code, planned) = json(&database, &["--from-toaster", "bytea_toaster", "--dry-run"]);
    assert_eq!(code, Some(0), "{planned}");
    assert_eq!(planned.departure().values_before, held, "{planned}");
    assert_eq!(planned.tables[0].rows_found, held, "{planned}");
    assert_eq!(pointers(&database, "bytea_fresh", toaster), held);

    let (code, left) = json(&database, &["--from-toaster", "bytea_toaster"]);
    assert_eq!(code, Some(0), "{left}");
    assert_eq!(left.tables[0].rows_stored, held, "{left}");
    assert!(left.departure().gone, "{left}");
    assert_eq!(left.departure().values_left, 0, "{left}");
    assert_eq!(pointers(&database, "bytea_fresh", toaster), 0);
    assert_eq!(database.psql("SELECT count(*) > 10 FROM bytea_fresh"), "t");

    values_read_in_two_ways_are_left_without_sql_for_them(&database);
    parents_get_the_choice_of_their_partitions(&database);
    a_toaster_that_would_refuse_values_is_not_set(&database);
}

fn values_read_in_two_ways_are_left_without_sql_for_them(database: &Database<'_>) {
    let arguments = ["json_diff_plain", "--from-toaster", "jsonb_toaster", "--dry-run"];
    let (_, report) = json(database, &arguments);
    let table = &report.tables[0];
    let skipped = &table.skipped;
    assert!(!skipped.is_empty(), "{report}");
    for row in skipped {
        let reason = &row.reason;
        assert!(reason.contains("the server reads it in two ways"), "{reason}");
    }
    let notes = table.notes();
    assert!(notes.contains("toastctl value public.json_diff_plain --reassemble=DIR"), "{notes}");
    assert!(notes.contains("No SQL is printed for them"), "{notes}");
    for sql in ["jsonb_each", "jsonb_set", "SET "] {
        assert!(!notes.contains(sql), "{notes}");
    }
    assert!(!notes.contains("VACUUM FULL gets rid of them"), "{notes}");
    assert!(notes.contains("Do not run VACUUM FULL"), "{notes}");
}

fn parents_get_the_choice_of_their_partitions(database: &Database<'_>) {
    database.psql(
        "CREATE TABLE parent (id int, a bytea) PARTITION BY RANGE (id);
         ALTER TABLE parent ALTER a SET STORAGE external;
         CREATE TABLE leaf PARTITION OF parent FOR VALUES FROM (0) TO (10)",
    );
    let planned = |toaster: &str| {
        let arguments =
            ["parent", "-c", "a", "--toaster", toaster, "--dry-run", "--format", "json"];
        let planned = retoast(database, &arguments);
        assert_eq!(planned.code, Some(0), "{}{}", planned.stdout, planned.stderr);
        planned.report::<Report>().tables[0].notes()
    };
    let set = "would set for new partitions: ALTER TABLE ONLY \"public\".\"parent\" ALTER COLUMN \"a\" SET \
               TOASTER \"bytea_toaster\"";
    let to = planned("bytea_toaster");
    assert!(to.contains(set), "{to}");
    // it has the default one already, and its storage is its own
    let back = planned("deftoaster");
    assert!(!back.contains("would set"), "{back}");
}

fn a_toaster_that_would_refuse_values_is_not_set(database: &Database<'_>) {
    database.psql(
        "CREATE TABLE long (id int, a bytea);
         INSERT INTO long SELECT i, decode(repeat('ab', CASE i WHEN 7 THEN 1025 ELSE 1024 END), 'hex')
         FROM generate_series(1, 10) i",
    );
    let arguments = ["long", "-c", "a", "--toaster", "dummy_toaster", "--dry-run"];
    let refused = retoast(database, &arguments);
    assert_eq!(refused.code, Some(1), "{}{}", refused.stdout, refused.stderr);
    let message = "public.long: rows with values of more than 1024 bytes: 1, the first at (0,7); toaster \
                   \"dummy_toaster\" rejects such values";
    assert!(refused.stderr.contains(message), "{}", refused.stderr);
    database.psql("UPDATE long SET a = NULL WHERE id = 7");
    let planned = retoast(database, &arguments);
    assert_eq!(planned.code, Some(0), "{}{}", planned.stdout, planned.stderr);
}

/// A toaster of which nothing is stored, in a database with one table.
fn idle(server: &Server) -> Database<'_> {
    let database = server.create_database("idle");
    let capture = standin::capture("jsonb_toaster", "bytea_fresh");
    standin::make_toasters(&database, &standin::meta(&capture).pg_toaster);
    database.psql(
        "INSERT INTO pg_catalog.pg_toaster VALUES (150000, 'idle', 'bytea_toaster_handler');
         CREATE TABLE seen (id int, a bytea)",
    );
    database
}

const LEAVE_IDLE: [&str; 2] = ["--from-toaster", "idle"];

/// A table that is not committed yet is in nobody's catalog, and may hold the toaster's values all the same.
#[test]
fn a_proof_waits_for_transactions_that_are_older() {
    let server = standin::start();
    let database = idle(&server);
    let holder = Holder::of(&database, "CREATE TABLE unseen (id int, a bytea)");
    let (code, report) = json(&database, &[&LEAVE_IDLE[..], &["--set", "max-wait=1s"]].concat());
    assert_eq!(code, Some(4), "{report}");
    let departure = report.departure();
    assert_eq!((departure.gone, departure.steps.len()), (false, 0));
    let older = departure.older_transactions.join(
        "
",
    );
    assert!(older.contains(&format!("session {} (user ", holder.pid)), "{older}");

    // begun before the end of the other, it ends after it, and has seen what that has left
    let mut command = toastctl();
    command.args(["retoast", "-d", &database.conninfo(), "--format", "json"]).args(LEAVE_IDLE);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let waits = |line: &String| line.contains("waiting: older transactions must end first");
    let told = stderr.lines().map(Result::unwrap).find(waits).unwrap();
    assert!(told.contains(&format!("session {} (user ", holder.pid)), "{told}");
    holder.commit();
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{stdout}");
    let report = Printed::<Report>::read(&stdout);
    assert!(report.departure().gone, "{report}");
    assert_eq!(report.departure().tables_read, 2, "{report}");

    // those named are seen whoever creates others
    let _holder = Holder::of(&database, "CREATE TABLE other (id int, a bytea)");
    let (code, report) = json(&database, &["seen", "--from-toaster", "idle"]);
    assert_eq!(code, Some(0), "{report}");
}

#[test]
fn the_printed_steps_look_again() {
    let server = standin::start();
    let database = idle(&server);
    let steps = || {
        let (code, report) = json(&database, &LEAVE_IDLE);
        assert_eq!(code, Some(0), "{report}");
        report
            .departure()
            .steps
            .join("\n")
            .replace("interval '10 seconds'", "interval '0.3 seconds'")
    };
    let there = || database.psql("SELECT count(*) FROM pg_toaster WHERE tsrname = 'idle'");
    let first = steps();
    let fails = |why: &str| {
        let run = database.try_psql(&first);
        assert!(run.stderr.contains(why), "{}", run.stderr);
        assert_eq!(there(), "1");
    };
    let holder = Holder::of(&database, "CREATE TABLE unseen (id int, a bytea)");
    fails(&format!(
        "transactions that may have created tables have not ended: process {}",
        holder.pid
    ));
    drop(holder);
    // a transaction that has created nothing is in nobody's way
    let reader = Holder::of(&database, "DECLARE c CURSOR FOR SELECT 1");
    database.psql("ALTER TABLE seen ALTER a SET STORAGE external");
    fails("tables were created, altered or dropped after");
    drop(reader);
    let second = steps();
    let reader = Holder::of(&database, "DECLARE c CURSOR FOR SELECT 1");
    database.psql(&second);
    assert_eq!(there(), "0");
    drop(reader);
}

/// Damage in another toaster's value says nothing of the one that is left.
#[test]
fn damage_in_values_of_another_toaster_does_not_block_the_proof() {
    let server = standin::start();
    let database = server.create_database("other_damage");
    let capture = standin::capture("jsonb_toaster", "json_copy_broken");
    standin::make_toasters(&database, &standin::meta(&capture).pg_toaster);
    database
        .psql("INSERT INTO pg_catalog.pg_toaster VALUES (150000, 'idle', 'bytea_toaster_handler')");
    standin::transplant(&database, &[capture]);

    let (code, report) = json(&database, &LEAVE_IDLE);
    assert_eq!(code, Some(0), "{report}");
    assert!(report.departure().gone, "{report}");
    // its own values are not all readable
    let (code, report) = json(&database, &["--from-toaster", "jsonb_toaster", "--dry-run"]);
    assert_eq!(code, Some(1), "{report}");
}

/// `DROP EXTENSION` would fail while another toaster uses a function of the extension.
#[test]
fn an_extension_that_another_toaster_needs_is_not_dropped() {
    let server = standin::start();
    let database = idle(&server);
    database.psql(
        "INSERT INTO pg_depend VALUES ('pg_toaster'::regclass, 150000, 0, 'pg_extension'::regclass,
             (SELECT oid FROM pg_extension WHERE extname = 'pageinspect'), 0, 'e');
         ALTER EXTENSION pageinspect ADD FUNCTION bytea_toaster_handler()",
    );
    let steps = || {
        let (code, report) = json(&database, &LEAVE_IDLE);
        assert_eq!(code, Some(0), "{report}");
        report.departure().steps.clone()
    };
    let shared = steps();
    let needed = "-- extension \"pageinspect\" is needed by \"bytea_toaster\"".to_owned();
    assert!(shared.contains(&needed), "{shared:?}");
    assert!(!shared.iter().any(|step| step.starts_with("DROP EXTENSION")), "{shared:?}");
    database.psql("DELETE FROM pg_toaster WHERE tsrname = 'bytea_toaster'");
    let alone = steps();
    assert!(alone.contains(&"DROP EXTENSION \"pageinspect\";".to_owned()), "{alone:?}");
}
