//! What is said and printed on servers with pluggable TOAST, on a stand-in: nothing counts values of pluggable toasters
//! as nothing, and no command is printed that is refused there or damages values.

use std::path::Path;

use crate::support::command::{Run, run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::explain::Explanation;
use crate::support::server::Database;
use crate::support::standin;
use crate::support::verbs::{advise, advised, inspect};

fn toastctl_on(database: &Database<'_>, arguments: &[&str]) -> Run {
    let (verb, rest) = arguments.split_first().unwrap();
    run(toastctl().args([verb, "-d", &database.conninfo()]).args(rest))
}

/// Bytes that the capture's server has stored in chunks for what rows refer to.
fn stored(dir: &Path, column: &str) -> f64 {
    let mut command = toastctl();
    command.current_dir(dir).args(["inspect", "--relation-file", "heap.bin", "--columns"]);
    command.args(["@meta.json", "--toast-file", "toast.bin", "--format", "json"]);
    let report = run(&mut command).exits(0).relation();
    report.column(column);
    let meta = standin::meta(dir);
    let all: u64 = meta.toast_relations[0].values.iter().map(|value| value.stored_bytes).sum();
    let orphans = report.toast().orphans.as_ref().map_or(0, |orphans| orphans.bytes);
    (all - orphans) as f64
}

fn no_command_that_harms(text: &str) {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for never in [
        "toastctl compact",
        "--compact",
        "VACUUM FULL \"",
        "VACUUM FULL or pg_repack",
        "(VACUUM FULL, pg_repack)",
    ] {
        assert!(!flat.contains(never), "{never}: {text}");
    }
}

#[test]
fn values_of_pluggable_toasters_are_counted_and_no_command_harms() {
    let server = standin::start();
    let database = server.create_database("advice");
    let captures = ["json_talk", "bytea_fresh", "json_array_small"]
        .map(|table| standin::capture("jsonb_toaster", table));
    standin::make_toasters(&database, &standin::meta(&captures[0]).pg_toaster);
    let tables = standin::transplant(&database, &captures);
    for (table, column) in tables.iter().zip(["js", "a", "js"]) {
        let words = [table.name.as_str(), "-c", column, "--sample", "100%"];
        let report = advised(&database, &words);
        let candidates = &report.candidates;
        assert_eq!(candidates.len(), 1, "{report}");
        assert!(!candidates[0].recommended, "{report}");
        assert!(candidates[0].forms.custom > 5, "{report}");
        let today = candidates[0].toast_bytes.estimate;
        let chunks = stored(table.dir.path(), column);
        assert!((0.9..1.25).contains(&(today / chunks)), "{}: {today}, {chunks}", table.name);
        let recommendation = &report.recommendation;
        assert!(recommendation.command.is_empty(), "{recommendation}");
        let reasons = &recommendation.reasons;
        assert!(reasons.starts_with("No recommendation: pluggable toasters store "), "{reasons}");
        assert_eq!(report.compaction, None, "{report}");
        let text = advise(&database, &[&words[..], &["--details"]].concat()).ok();
        assert!(!text.contains("Keep the present settings"), "{text}");
        no_command_that_harms(&text);

        let explained = inspect(&database, &[&table.name, "--explain", "--format", "json"]);
        let explained: Printed<Explanation> = explained.exits(0).report();
        let column = explained.column(column);
        assert!(column.external_values.estimate >= column.custom_values.estimate, "{column}");
        assert!(column.custom_values.estimate > 5.0, "{column}");
        let written = column.update.toast_bytes.estimate;
        assert!(written * column.values.estimate > chunks * 0.9, "{column}, {chunks}");
        assert!(column.read.as_ref().unwrap().chunks.estimate > 1.0, "{column}");
        let text = toastctl_on(&database, &["inspect", &table.name, "--explain"]).ok();
        assert!(text.contains("Values of pluggable toasters are counted as if"), "{text}");
        // other toasters write whole values
        assert_eq!(column.append.is_some(), table.name.starts_with("bytea"), "{column}");
        assert_eq!(text.contains("  append  "), column.append.is_some(), "{text}");
    }
    an_append_stores_the_last_chunk_again(&database);
    compaction_is_refused_before_anything_is_done(&database);
    a_sweep_ends_without_a_word_of_rewriting(&database);
}

/// With version and headers, unless it is full.
fn an_append_stores_the_last_chunk_again(database: &Database<'_>) {
    let toast =
        database.psql("SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'bytea_fresh'");
    let mean: f64 = database
        .psql(&format!(
            "SELECT avg(CASE WHEN bytes = 1996 THEN 0 ELSE (24 + 8 + 4 + bytes + 7) / 8 * 8 + 4 END)
             FROM (SELECT DISTINCT ON (chunk_id) octet_length(chunk_data) AS bytes FROM {toast}
                   ORDER BY chunk_id, chunk_seq DESC) AS last"
        ))
        .parse()
        .unwrap();
    let explained =
        inspect(database, &["bytea_fresh", "--explain", "--sample", "100%", "--format", "json"]);
    let explained: Printed<Explanation> = explained.exits(0).report();
    let column = explained.column("a");
    let append = column.append.as_ref().unwrap();
    let chunk = append.toast_bytes.estimate;
    assert!((chunk - mean).abs() < 1.0, "{chunk} {mean}");
    // lock and headers of the row, and of the chunk's record and its entry
    let records = append.wal_bytes.estimate - chunk - append.heap_bytes.estimate;
    assert!((0.0..300.0).contains(&records), "{column}");
    assert!(append.wal_bytes.estimate < 2500.0, "{column}");
}

/// Of a table that nothing pluggable has to do with, on such a server.
fn compaction_is_refused_before_anything_is_done(database: &Database<'_>) {
    database.psql(
        "CREATE TABLE plain (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO plain SELECT i, (SELECT string_agg(repeat(md5((i * 31 + k)::text), 3), '')
             FROM generate_series(1, 90) k) FROM generate_series(1, 3000) i;
         DELETE FROM plain WHERE id % 3 <> 0;
         VACUUM plain",
    );
    let before = database.psql(
        "SELECT attstorage FROM pg_attribute WHERE attname = 'v' AND attrelid = 'plain'::regclass",
    );
    for arguments in [
        &["retoast", "plain", "-c", "v", "--toaster", "external", "--compact"][..],
        &["retoast", "plain", "-c", "v", "--toaster", "external", "--compact", "--dry-run"],
        &["compact", "plain"],
        &["compact", "plain", "--dry-run"],
    ] {
        let refused = toastctl_on(database, arguments);
        assert_eq!(refused.code, Some(1), "{arguments:?}: {}{}", refused.stdout, refused.stderr);
        assert_eq!(refused.stdout, "");
        let why = "compaction is not supported on a server with pluggable toasters";
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
    let after =
        "SELECT attstorage FROM pg_attribute WHERE attname = 'v' AND attrelid = 'plain'::regclass";
    assert_eq!(database.psql(after), before);
    // two thirds of the files are free, and neither findings nor advice name what would be refused
    no_command_that_harms(&toastctl_on(database, &["inspect", "plain"]).ok());
    let advise =
        ["advise-threshold", "plain", "--sample", "100%", "--details", "--optimize", "read"];
    let text = toastctl_on(database, &advise).ok();
    // what moves into rows leaves a file that nothing cuts off here
    let why = "but leaves files ";
    assert!(text.contains(why) && text.contains("free space that this user"), "{text}");
    assert!(!text.contains("toastctl retoast public.plain"), "{text}");
    no_command_that_harms(&text);
}

fn a_sweep_ends_without_a_word_of_rewriting(database: &Database<'_>) {
    let sweep = ["retoast", "plain", "-c", "v", "--toaster", "external"];
    let text = toastctl_on(database, &sweep).ok();
    assert!(text.contains("how much of the files is free is not known"), "{text}");
    no_command_that_harms(&text);
    let sweep = ["retoast", "plain", "-c", "v", "--toaster", "pglz", "--format", "json"];
    let table = toastctl_on(database, &sweep).exits(0).table();
    assert_eq!(table.rewrite_gives_bytes, None, "{table}");
}
