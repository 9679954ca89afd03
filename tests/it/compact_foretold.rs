//! What `inspect`, `advise-threshold` and `--dry-run` say of `compact` before the work, beside what then
//! happens.

use crate::support::reports::inspect::Finding;
use crate::support::reports::retoast::{CompactedFile, IndexEnd, IndexReport, Table};
use crate::support::reports::{Printed, Range, advise as advise_report};
use crate::support::retoast::{done, retoast, said_by_inspect};
use crate::support::server::{Database, Options, Server};
use crate::support::tables::{NOISE, table};
use crate::support::verbs::{advise, advised, relation};

const PAGE: f64 = 8192.0;
/// What a checkpoint, autovacuum or the transactions' own records may add to the WAL.
const BESIDES: f64 = 262_144.0;

/// Sums over files of the least and the most WAL that is foretold.
fn wal(all: impl Iterator<Item = Range>) -> [f64; 2] {
    all.fold([0.0; 2], |[low, high], wal| [low + wal.low as f64, high + wal.high as f64])
}

/// What `advise-threshold` says of heap and TOAST relation.
fn said_by_advice(
    database: &Database<'_>,
    more: &[&str],
) -> [Option<Printed<advise_report::File>>; 2] {
    let told = advised(database, &[&["t"], more].concat());
    ["heap", "toast"].map(|part| {
        let said = told.compaction.as_ref()?;
        let file = said.files.iter().find(|file| file.file == part)?;
        assert_eq!(file.estimated, file.blocks != file.blocks_read, "{said}");
        let of_part = if part == "heap" { said.heap_bytes } else { said.toast_bytes };
        assert_eq!(file.gives_back, of_part, "{said}");
        Some(file.clone())
    })
}

/// Whether this is nearly that: by a part of it, or by so little.
#[track_caller]
fn near(this: f64, that: f64, part: f64, little: f64, of: &str) {
    assert!((this - that).abs() <= (that * part).max(little), "{of}: {this}, not {that}");
}

/// Makes the table, damages it, asks both, and compacts it, with all pages unchanged since the last checkpoint or not.
#[track_caller]
fn foretold(server: &Server, name: &str, make: &str, damage: &str, checkpoints: &[bool]) {
    for &checkpoint in checkpoints {
        let shape = format!("{name}_{checkpoint}");
        let database = server.with_pageinspect(&shape);
        for sql in [NOISE, make, damage, "VACUUM t"] {
            database.psql(sql);
        }
        if checkpoint {
            database.psql("CHECKPOINT");
        }
        let said = said_by_inspect(&database);
        // of a sample of blocks, and of all
        let [some, all] =
            [&[][..], &["--sample", "100%"]].map(|more| said_by_advice(&database, more));
        let planned = retoast(&database, &["compact", "t", "--dry-run"]).exits(0).table();
        let happened = done(&retoast(&database, &["compact", "t"]));
        for (then, now) in planned.compaction.iter().zip(&happened.compaction) {
            let of_heap = then.file == CompactedFile::Heap;
            let Some(said) = &said[usize::from(!of_heap)] else { continue };
            let gave = now.before as f64 - now.after as f64;
            let moved = now.rows_moved as f64;
            let says = if of_heap { said.rows } else { said.values }.unwrap() as f64;
            eprintln!(
                "{shape}: {:?}: gives back {} of {gave}, moves {says} of {moved} ({}), {} bytes ({})",
                then.file, said.gives_back, then.rows_found, said.moved_bytes, then.bytes_found
            );
            near(said.gives_back as f64, gave, 0.05, 8.0 * PAGE, &shape);
            near(says, then.rows_found as f64, 0.05, 50.0, &shape);
            // on a busy machine a row may go to another hole first that is behind the end
            assert!(says <= moved * 1.05 + 50.0 && moved <= says * 1.25, "{shape}: {happened}");
            near(said.moved_bytes as f64, then.bytes_found as f64, 0.05, PAGE, &shape);
            for (advised, part) in [(&some, 0.15), (&all, 0.05)] {
                let advised =
                    advised[usize::from(!of_heap)].as_ref().unwrap_or_else(|| panic!("{shape}"));
                eprintln!("{shape}: advise: {advised}");
                near(advised.gives_back as f64, gave, part, 8.0 * PAGE, &shape);
                let says = if of_heap { advised.rows } else { advised.values }.unwrap() as f64;
                near(says, then.rows_found as f64, part, 50.0, &shape);
                near(advised.moved_bytes as f64, then.bytes_found as f64, part, PAGE, &shape);
            }
        }
        let [low, high] = wal(planned.compaction.iter().map(|file| {
            let wal = file.wal_expected.unwrap();
            Range { low: wal.low, high: wal.high }
        }));
        let [least, most] = wal(said.iter().flatten().map(|said| said.wal_bytes));
        let of_all = wal(all.iter().flatten().map(|said| said.wal_bytes));
        near(of_all[0], least, 0.1, PAGE, &shape);
        near(of_all[1], most, 0.1, PAGE, &shape);
        let written = happened.wal_bytes.unwrap() as f64;
        eprintln!(
            "{shape}: WAL: {low} to {high}, {least} to {most} of inspect, {written}: {:.2} of the least, {:.2} of the most",
            written / low,
            written / high
        );
        assert!(low * 0.95 <= written && written <= high * 1.05 + BESIDES, "{shape}: {written}");
        if said[0].is_none() {
            // of values nearly all is known but whether pages have changed since the last checkpoint
            let near = if checkpoint { high } else { low };
            assert!((written - near).abs() <= near * 0.08, "{shape}: {written}, not {near}");
        }
    }
}

const RANDOM: &str = "DELETE FROM t WHERE hashint4(id) % 2 = 0";

#[test]
fn what_compaction_gives_back_moves_and_writes_is_foretold() {
    let server = Server::start(&Options::default());
    let foretold = |name: &str, make: &str, damage: &str| {
        foretold(&server, name, make, damage, &[true]);
    };
    let both = |name: &str, make: &str, damage: &str| {
        self::foretold(&server, name, make, damage, &[true, false]);
    };
    both("random", &table(6000, "noise(i, 200)"), RANDOM);
    foretold("range", &table(5000, "noise(i, 150 + i % 90)"), "DELETE FROM t WHERE id <= 2500");
    foretold("rests", &table(4000, "noise(i, 250)"), RANDOM);
    let mixed = "CASE WHEN i % 4 = 0 THEN noise(i, 66 + i % 300) ELSE noise(i, 5 + i % 55) END";
    foretold("mixed", &table(8000, mixed), RANDOM);
    let rows = "CREATE TABLE t (id int PRIMARY KEY, a text, n int);
        INSERT INTO t SELECT i, noise(i, 1 + i % 6), i FROM generate_series(1, 60000) i;";
    both("heap_random", rows, RANDOM);
    foretold("heap_range", rows, "DELETE FROM t WHERE id <= 30000");
    both("heap_gin", GIN, RANDOM);
}

/// Rows of 30 keys each in a GIN index.
const GIN: &str = "CREATE TABLE t (id int PRIMARY KEY, tags int[], n int);
    INSERT INTO t SELECT i, ARRAY(SELECT abs(hashint4(i * 20 + k) % 3000) FROM generate_series(1, 30) AS k), i
        FROM generate_series(1, 60000) AS i;
    CREATE INDEX gin ON t USING gin (tags);";

#[test]
fn where_a_gin_index_would_grow_by_what_compaction_returns_it_is_rebuilt_too() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("gin");
    for sql in [GIN, RANDOM, "VACUUM ANALYZE t"] {
        database.psql(sql);
    }
    let told = relation(&database, &["t"]);
    let is_free = |finding: &&Printed<Finding>| finding.code.name() == "free-space";
    let found = told.findings().iter().find(is_free).unwrap_or_else(|| panic!("{told}"));
    let said = found.compaction.unwrap();
    assert!(found.command.ends_with(" --files heap --reindex=all"), "{}", found.command);
    let size = |what: &str| -> u64 { database.psql(&format!("SELECT {what}")).parse().unwrap() };
    let (all, gin) = (size("pg_total_relation_size('t')"), size("pg_relation_size('gin')"));
    done(&retoast(&database, &["compact", "t", "--files", "heap"]));
    let grown = size("pg_relation_size('gin')") - gin;
    assert!(grown > said.gives_back / 3 && grown < said.gin_growth, "{grown}: {found}");
    done(&retoast(&database, &["compact", "t", "--files", "heap", "--reindex=all"]));
    assert!(size("pg_total_relation_size('t')") + said.gives_back < all);
    let then = relation(&database, &["t"]);
    assert!(then.findings().iter().find(is_free).is_none(), "{then}");
}

#[test]
fn what_rebuilding_indexes_gives_back_and_writes_is_foretold() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("indexes");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, k text, n int);
         INSERT INTO t SELECT i, md5(i::text), i % 100 FROM generate_series(1, 200000) AS i;
         CREATE INDEX k ON t (k) WITH (fillfactor = 70); CREATE INDEX n ON t (n);
         VACUUM t; DELETE FROM t WHERE id % 3 <> 0; VACUUM (ANALYZE) t",
    );
    let told = advised(&database, &["t", "-c", "k"]);
    let advised = &told.compaction.as_ref().unwrap_or_else(|| panic!("{told}")).indexes;
    let of = |table: &Table, ended: IndexEnd| -> Vec<Printed<IndexReport>> {
        table.indexes.iter().filter(|index| index.ended == ended).cloned().collect()
    };
    let planned = retoast(&database, &["reindex", "t", "--dry-run"]).exits(0).table();
    let planned = of(&planned, IndexEnd::Planned);
    let happened = done(&retoast(&database, &["reindex", "t"]));
    let rebuilt = of(&happened, IndexEnd::Rebuilt);
    // what is stored of equal keys in a fresh one is not known
    assert_eq!((advised.len(), planned.len(), rebuilt.len()), (2, 2, 2), "{told}");
    let gave = rebuilt.iter().map(|index| index.before - index.after()).sum::<u64>() as f64;
    near(
        advised.iter().map(|index| index.gives_back).sum::<u64>() as f64,
        gave,
        0.03,
        PAGE,
        "gives back",
    );
    let written = happened.wal_bytes.unwrap() as f64;
    let foretold: u64 = planned.iter().map(|index| index.wal_expected.unwrap()).sum();
    eprintln!("{foretold} of WAL foretold, {written} written");
    near(foretold as f64, written, 0.05, BESIDES, "WAL");
    assert_eq!(advised.iter().map(|index| index.wal_bytes).sum::<u64>() as f64, foretold as f64);
}

/// Of a file of which a page cannot be read the estimate from rows stays, the other file's look is told, and so is the
/// page.
#[test]
fn a_damaged_page_leaves_the_estimate_from_rows() {
    let server = Server::start(&Options::default());
    let database = server.with_pageinspect("damaged");
    for sql in [NOISE, &table(2000, "noise(i, 200)"), RANDOM, "VACUUM t; CHECKPOINT"] {
        database.psql(sql);
    }
    let [heap, toast] = said_by_advice(&database, &[]);
    let before = toast.expect("half of the values are gone");
    let of = |what: &str| {
        database.psql(&format!("SELECT {what} FROM pg_class WHERE oid = 't'::regclass"))
    };
    let toast_name = of("reltoastrelid::regclass");
    let damage_last = |oid: &str| {
        let path = of(&format!("pg_relation_filepath({oid})"));
        let blocks: usize = of(&format!("pg_relation_size({oid}) / 8192")).parse().unwrap();
        server.damage(&path, [blocks - 1]);
        blocks - 1
    };
    let toast_block = damage_last("reltoastrelid");
    let advised = || {
        let run = advise(&database, &["t", "--format", "json"]);
        (run.code, run.report::<advise_report::Report>())
    };
    let (code, told) = advised();
    let said = told.compaction.as_ref().unwrap_or_else(|| panic!("{told}"));
    let files = &said.files;
    assert!(files.iter().all(|file| file.file == "heap"), "{said}");
    assert_eq!(files.len(), usize::from(heap.is_some()), "{said}");
    near(said.toast_bytes as f64, before.gives_back as f64, 0.15, 8.0 * PAGE, "from rows");
    // what was not looked at is told, once, and the code agrees
    let problems = |told: &advise_report::Report, place: &str| {
        let problems = &told.problems;
        assert_eq!(told.problem_count, problems.len() as u64, "{problems:?}");
        problems.iter().filter(|problem| problem.starts_with(place)).count()
    };
    let in_toast = format!("{toast_name}, block {toast_block}: invalid page");
    assert_eq!((code, problems(&told, &in_toast)), (Some(1), 1), "{:?}", told.problems);
    let block = damage_last("oid");
    let (code, told) = advised();
    let of_rows = problems(&told, &format!("public.t, block {block}: invalid page"));
    assert_eq!((code, of_rows, problems(&told, &in_toast)), (Some(1), 1, 1), "{:?}", told.problems);
}
