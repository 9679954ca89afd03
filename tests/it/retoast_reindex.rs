//! `retoast --reindex`: bloated indexes get as small as fresh ones, as foretold, and nothing is left behind.

use crate::support::command::{run, toastctl};
use crate::support::holder::Holder;
use crate::support::reports::Printed;
use crate::support::reports::retoast::{IndexEnd, IndexReport, Outcome, Report};
use crate::support::retoast::{contents, done, refused, retoast, retoast_as};
use crate::support::server::{self, Database, Options, Server, with_pageinspect};
use crate::support::tables::{BLOATED, INVALID};
use toast_format::disk::btree::{self, Leaf};
use toast_format::disk::page::{Page, PageState};

/// Whether a size is what was foretold: within 3 %, or one page.
#[track_caller]
fn as_foretold(expected: u64, size: u64, what: &str) {
    let off = expected.abs_diff(size);
    assert!(off <= 8192 || off as f64 <= size as f64 * 0.03, "{what}: {expected}, is {size}");
}

fn rebuilds(database: &Database<'_>) {
    database.psql(BLOATED);
    let before = contents(database, "t");
    let sizes = "SELECT string_agg(indexrelid || ' ' || pg_relation_size(indexrelid), ',' ORDER BY 1) FROM pg_index
        WHERE indrelid IN (SELECT unnest(ARRAY[oid, reltoastrelid]) FROM pg_class WHERE relname = 't')";
    let as_was = database.psql(sizes);
    let planned = retoast(database, &["reindex", "t", "--dry-run"]).exits(0).table();
    assert_eq!(planned.outcome, Outcome::Planned);
    assert_eq!(database.psql(sizes), as_was);
    let rebuilt = done(&retoast(database, &["reindex", "t"]));
    for name in ["t_pkey", "t_k_key", "by_name", "pg_toast."] {
        let (then, now) = (planned.index(name), rebuilt.index(name));
        assert_eq!((then.ended, now.ended), (IndexEnd::Planned, IndexEnd::Rebuilt), "{now}");
        assert_eq!(then.expected, now.expected, "{name}");
        as_foretold(now.expected(), now.after(), name);
        assert!(now.after() * 2 < now.before, "{now}");
    }
    for name in ["by_n", "by_words"] {
        let kept = rebuilt.indexes.iter();
        let ends = kept.filter(|one| one.index == format!("public.{name}"));
        assert_eq!(
            ends.map(|one| one.ended).collect::<Vec<_>>(),
            [IndexEnd::NotKnown],
            "{rebuilt}"
        );
    }
    assert_eq!(contents(database, "t"), before);
    assert_eq!(database.psql(INVALID), "0");
    let again = done(&retoast(database, &["reindex", "t"]));
    let stays =
        |index: &Printed<IndexReport>| matches!(index.ended, IndexEnd::Kept | IndexEnd::NotKnown);
    assert!(again.indexes.iter().all(stays), "{again}");
    assert_eq!(again.after, again.before);
    let all = done(&retoast(database, &["reindex", "t", "--indexes=all"]));
    assert!(all.indexes.iter().all(|one| one.ended == IndexEnd::Rebuilt), "{all}");
}

#[test]
fn bloated_indexes_of_table_and_toast_relation_get_as_small_as_foretold() {
    rebuilds(&with_pageinspect("reindex"));
}

#[test]
fn on_every_major() {
    for major in server::other_majors() {
        let server = Server::start(&Options::major(major));
        let database = server.with_pageinspect("reindex");
        rebuilds(&database);
    }
}

#[test]
fn a_size_is_not_foretold_by_a_count_from_before_the_index_grew() {
    let database = server::shared().create_database("uncounted");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)
             WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
         ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 20) AS i; VACUUM ANALYZE t;
         INSERT INTO t SELECT i, repeat(md5(i::text), 200) FROM generate_series(21, 5000) AS i",
    );
    let expected = || {
        let plan =
            retoast(&database, &["reindex", "t", "--indexes=all", "--dry-run"]).exits(0).table();
        ["t_pkey", "pg_toast"].map(|name| plan.index(name).expected)
    };
    assert_eq!(expected(), [None, None]);
    database.psql("VACUUM ANALYZE t");
    let counted = expected();
    database.psql("REINDEX TABLE t");
    let sizes = database.psql(
        "SELECT pg_relation_size('t_pkey'), pg_relation_size(indexrelid) FROM pg_index
         WHERE indrelid = (SELECT reltoastrelid FROM pg_class WHERE relname = 't')",
    );
    let sizes: Vec<u64> = sizes.split('|').map(|size| size.parse().unwrap()).collect();
    for (counted, size) in counted.into_iter().zip(sizes) {
        as_foretold(counted.unwrap(), size, "t");
    }
}

#[test]
fn fresh_sizes_are_known_whatever_the_keys_are() {
    let database = with_pageinspect("fresh");
    database.psql(
        "CREATE TABLE t (id int, a bigint, b text, u uuid, d timestamptz, s smallint, x numeric, long text);
         INSERT INTO t SELECT i, hashint8(i)::bigint * 1000003 + i, repeat('x', i % 37) || i, md5(i::text)::uuid,
            now() + i * interval '1 s', i % 300, i / 7.0, repeat(md5(i::text), 1 + i % 7)
         FROM generate_series(1, 30000) i;
         CREATE INDEX i_int ON t (id); CREATE UNIQUE INDEX i_big ON t (a); CREATE INDEX i_text ON t (b);
         CREATE INDEX i_uuid ON t (u); CREATE INDEX i_two ON t (s, id); CREATE INDEX i_three ON t (b, d, s);
         CREATE INDEX i_num ON t (x); CREATE INDEX i_long ON t (long);
         CREATE INDEX i_part ON t (id) WHERE s < 100; CREATE INDEX i_expr ON t (lower(b));
         CREATE INDEX i_half ON t (id) WITH (fillfactor = 50); CREATE INDEX i_full ON t (b) WITH (fillfactor = 100);
         CREATE INDEX i_include ON t (id) INCLUDE (b);
         CREATE INDEX i_single ON t (s) WITH (deduplicate_items = off);
         DELETE FROM t WHERE hashint4(id) % 2 = 0; VACUUM t;
         INSERT INTO t SELECT i, hashint8(i)::bigint * 1000003 + i, repeat('x', i % 37) || i, md5(i::text)::uuid,
            now() + i * interval '1 s', i % 300, i / 7.0, repeat(md5(i::text), 1 + i % 7)
         FROM generate_series(30001, 34000) i; VACUUM t;",
    );
    let planned =
        retoast(&database, &["reindex", "t", "--indexes=all", "--dry-run"]).exits(0).table();
    // the index of a TOAST relation is not rebuilt concurrently, and a plan says so
    let of_lock = |table: &str| {
        let mut command = toastctl();
        command.args(["reindex", table, "--indexes=all", "--dry-run", "-d", &database.url()]);
        run(&mut command).ok().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = of_lock("t");
    assert!(text.contains("REINDEX CONCURRENTLY"), "{text}");
    assert!(text.contains("ACCESS EXCLUSIVE on the index of the TOAST relation"), "{text}");
    database.psql("CREATE TABLE unindexed (v text); INSERT INTO unindexed VALUES ('x')");
    let text = of_lock("unindexed");
    assert!(!text.contains("CONCURRENTLY"), "{text}");
    assert!(text.contains("ACCESS EXCLUSIVE on the index of the TOAST relation"), "{text}");
    database.psql("REINDEX TABLE t");
    for one in &planned.indexes {
        let name = &one.index;
        let size = database.psql(&format!("SELECT pg_relation_size('{name}')")).parse().unwrap();
        eprintln!("{name}: {} expected, is {size}", one.expected());
        as_foretold(one.expected(), size, name);
    }
    // around the number from which on there are two leaves and a root
    for rows in [1, 366, 367, 368, 733, 734, 100_000] {
        let name = format!("ints_{rows}");
        database.psql(&format!(
            "CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} SELECT generate_series(1, {rows}); \
             REINDEX TABLE {name}"
        ));
        let plan =
            retoast(&database, &["reindex", &name, "--indexes=all", "--dry-run"]).exits(0).table();
        let size = database.psql(&format!("SELECT pg_relation_size('{name}_pkey')"));
        assert_eq!(plan.index("pkey").expected().to_string(), size, "{rows}");
    }
    // an empty one is its metapage
    database.psql("TRUNCATE t");
    let empty = done(&retoast(&database, &["reindex", "t"]));
    assert!(empty.indexes.iter().all(|one| one.ended == IndexEnd::Kept));
}

/// Compares each page of an index with what the server makes of it: the leaves, their rows and different keys.
#[track_caller]
fn leaves_are_as_the_server_says(database: &Database<'_>, index: &str) -> Leaf {
    let path = database.psql(&format!("CHECKPOINT; SELECT pg_relation_filepath('{index}')"));
    let file = std::fs::read(database.server().data_dir().join(path)).unwrap();
    let pages = file.chunks(8192).skip(1);
    let said = database.psql(&format!(
        "SELECT b || ' ' || count(i.itemoffset) || ' ' || coalesce(sum(coalesce(cardinality(i.tids), 1)), 0) \
            || ' ' || count(DISTINCT (i.nulls, i.data)) \
         FROM generate_series(1, pg_relation_size('{index}') / 8192 - 1) AS b, LATERAL bt_page_stats('{index}', b) AS s \
         LEFT JOIN LATERAL bt_page_items('{index}', b) AS i ON s.type = 'l' AND NOT i.dead \
            AND NOT (i.itemoffset = 1 AND s.btpo_next <> 0) \
         GROUP BY b ORDER BY b"
    ));
    let mut all = Leaf::default();
    assert_eq!(pages.len(), said.lines().count());
    for (bytes, said) in pages.zip(said.lines()) {
        let said: Vec<u64> = said.split(' ').map(|number| number.parse().unwrap()).collect();
        let block = said[0];
        let Ok(PageState::Used(page)) = Page::parse(bytes) else { panic!("{index}, {block}") };
        let leaf = btree::leaf(&page).unwrap();
        let of_server = if said[1] > 0 { (said[2], said[3]) } else { (0, 0) };
        assert_eq!((leaf.rows, leaf.keys), of_server, "{index}, block {block}");
        all = Leaf { rows: all.rows + leaf.rows, keys: all.keys + leaf.keys };
    }
    all
}

#[test]
fn equal_keys_that_share_entries_make_the_size_unknown() {
    let database = with_pageinspect("shared");
    database.psql(
        "CREATE TABLE t (id int, few int, many int, part int, a text, b int);
         INSERT INTO t SELECT i, CASE WHEN i % 500 = 0 THEN i - 1 ELSE i END, i % 1000,
            CASE WHEN i % 20 = 0 THEN i - 1 ELSE i END, CASE WHEN i % 3 > 0 THEN 'text ' || i % 700 END,
            CASE WHEN i % 2 > 0 THEN i % 5 END
         FROM generate_series(1, 60000) AS i;
         CREATE INDEX by_id ON t (id); CREATE INDEX by_few ON t (few); CREATE INDEX by_many ON t (many);
         CREATE INDEX by_part ON t (part); CREATE INDEX by_two ON t (a, b);
         CREATE INDEX by_single ON t (many) WITH (deduplicate_items = off);
         DELETE FROM t WHERE id % 7 = 0; VACUUM t",
    );
    let plan = retoast(&database, &["reindex", "t", "--indexes=all", "--dry-run"]).exits(0).table();
    for (name, shared) in [
        ("by_id", Some(false)),
        ("by_few", Some(false)),
        ("by_many", Some(true)),
        ("by_part", Some(true)),
        ("by_two", Some(true)),
        // of equal keys none shares an entry
        ("by_single", None),
    ] {
        let all = leaves_are_as_the_server_says(&database, name);
        let told = plan.index(name);
        let is_shared = (all.rows - all.keys) as f64 > all.rows as f64 * 0.01;
        assert_eq!(is_shared, shared.unwrap_or(true), "{name}: {all:?}");
        let reason = (shared == Some(true)).then_some("equal keys share entries");
        assert_eq!(
            (told.reason.as_deref(), told.expected.is_none()),
            (reason, reason.is_some()),
            "{told}"
        );
    }
}

#[test]
fn an_owner_without_pages_has_what_was_counted() {
    let database = with_pageinspect("counted");
    let role = database.create_owner("keeper");
    database.psql(&format!("SET ROLE {role}; {}", BLOATED.replace("VACUUM t;", "")));
    database.psql("VACUUM t");
    let by_owner =
        |more: &[&str]| retoast_as(&database, &role, &[&["reindex", "t"], more].concat());
    let report = by_owner(&[]).exits(0).table();
    for name in ["t_pkey", "t_k_key"] {
        let now = report.index(name);
        assert_eq!(now.ended, IndexEnd::Rebuilt, "{now}");
        as_foretold(now.expected(), now.after(), name);
    }
    assert_eq!(report.index("by_name").ended, IndexEnd::NotKnown, "{report}");
    let toast = report.index("pg_toast.");
    assert_eq!(toast.ended, IndexEnd::Refused, "{toast}");
    assert!(toast.reason().contains("pg_read_all_data"), "{toast}");
    database.psql(&format!("GRANT pg_read_all_data TO {role}"));
    let report = by_owner(&[]).exits(0).table();
    let toast = report.index("pg_toast.");
    as_foretold(toast.expected(), toast.after(), "TOAST index");
    let other = database.create_role("other");
    database.psql(&format!("GRANT ALL ON t TO {other}"));
    let refusal = retoast_as(&database, &other, &["reindex", "t"]);
    refused(&refusal, 1, "this user is not its owner");
}

#[test]
fn without_the_option_bloated_indexes_are_named_with_the_command() {
    let database = with_pageinspect("named");
    database.psql(BLOATED);
    let report = done(&retoast(&database, &["compact", "t", "--files", "heap"]));
    let pkey = report.index("t_pkey");
    assert_eq!(pkey.ended, IndexEnd::Bloated, "{pkey}");
    assert_eq!(pkey.command(), "REINDEX INDEX CONCURRENTLY public.t_pkey");
    let mut people = toastctl();
    people.args(["compact", "-d", &database.url(), "t", "--files", "heap"]);
    let text = run(people.env("COLUMNS", "0")).ok();
    let line = "index: public.t_pkey: ";
    let line = text.lines().find(|one| one.starts_with(line)).unwrap_or_else(|| panic!("{text}"));
    assert!(line.ends_with(" if rebuilt"), "{line}");
    database.psql(pkey.command());
    let size = database.psql("SELECT pg_relation_size('t_pkey')").parse().unwrap();
    as_foretold(pkey.expected(), size, "t_pkey");
    let swept =
        done(&retoast(&database, &["t", "-c", "v", "--toaster", "lz4", "--compact", "--reindex"]));
    for one in &swept.indexes {
        assert!(
            matches!(one.ended, IndexEnd::Rebuilt | IndexEnd::Kept | IndexEnd::NotKnown),
            "{one}"
        );
    }
    let mut people = toastctl();
    let text = run(people.args(["reindex", "-d", &database.url(), "t"])).ok();
    assert!(text.starts_with("public.t, reindex: complete: 0 indexes rebuilt, "), "{text}");
    refused(&retoast(&database, &["compact", "t", "--reindex=some"]), 2, "--reindex");
}

/// An index whose size after a rebuild is not known is not rebuilt unless it is asked for, and grows when rows move.
#[test]
fn an_index_that_grows_because_rows_move_is_named() {
    let database = with_pageinspect("grows");
    database.psql(
        "CREATE TABLE g (id int PRIMARY KEY, words text[]);
         INSERT INTO g SELECT i, ARRAY(SELECT md5(i || '/' || k) FROM generate_series(1, 20) AS k)
             FROM generate_series(1, 4000) AS i;
         CREATE INDEX g_gin ON g USING gin (words);
         DELETE FROM g WHERE id % 3 > 0",
    );
    database.psql("VACUUM g");
    let size = || database.psql("SELECT pg_relation_size('g_gin')").parse::<u64>().unwrap();
    let before = size();
    let mut people = toastctl();
    people.args(["compact", "-d", &database.url(), "g", "--reindex"]);
    let text = run(people.env("COLUMNS", "0")).ok();
    assert!(size() > before, "{text}");
    assert!(text.contains("left: indexes take ") && text.contains("--reindex=all"), "{text}");
    let mut people = toastctl();
    people.args(["reindex", "-d", &database.url(), "g"]);
    let again = run(people.env("COLUMNS", "0")).ok();
    assert!(!again.contains("left: indexes take "), "{again}");
}

#[test]
fn a_deferrable_constraint_is_never_checked_early() {
    let database = with_pageinspect("deferred");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, place int UNIQUE DEFERRABLE INITIALLY IMMEDIATE, v text);
         INSERT INTO t SELECT i, i, 'v' FROM generate_series(1, 500) i",
    );
    let report = done(&retoast(&database, &["reindex", "t", "--indexes=all"]));
    let deferrable = report.index("t_place_key");
    assert_eq!(deferrable.ended, IndexEnd::Refused, "{deferrable}");
    assert_eq!(deferrable.command, None);
    assert!(deferrable.reason().contains("deferrable constraint"), "{deferrable}");
    assert_eq!(report.index("t_pkey").ended, IndexEnd::Rebuilt);
}

#[test]
fn an_exclusion_constraint_is_refused_with_the_reason_and_partitions_are_done_one_by_one() {
    let database = with_pageinspect("excluded");
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, r int4range, EXCLUDE USING gist (r WITH &&));
         INSERT INTO t SELECT i, int4range(i, i + 1) FROM generate_series(1, 500) i;
         CREATE TABLE p (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (20000);
         CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (20000) TO (40001);
         INSERT INTO p SELECT i, i FROM generate_series(1, 40000) i;
         DELETE FROM p WHERE id % 3 <> 0; VACUUM p",
    );
    let report = done(&retoast(&database, &["reindex", "t", "--indexes=all"]));
    let excluded = report.index("t_r_excl");
    assert_eq!(excluded.ended, IndexEnd::Refused, "{excluded}");
    assert!(excluded.reason().contains("exclusion constraint"), "{excluded}");
    assert_eq!(report.index("t_pkey").ended, IndexEnd::Rebuilt);
    let run = retoast(&database, &["reindex", "p"]);
    let report = run.exits(0).report::<Report>();
    for (table, name) in report.tables.iter().zip(["p1_pkey", "p2_pkey"]) {
        assert_eq!(table.index(name).ended, IndexEnd::Rebuilt, "{table}");
    }
    let attached = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'p_pkey'::regclass";
    assert_eq!(database.psql(attached), "2");
    refused(&retoast(&database, &["reindex", "pg_catalog.pg_class"]), 1, "system catalog");
}

#[test]
fn functions_in_indexes_run_as_the_owner_and_what_the_copy_takes_is_bounded() {
    let database = with_pageinspect("as_owner");
    let role = database.create_owner("keeper");
    database.psql(&format!(
        "SET ROLE {role};
         CREATE FUNCTION own(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
            $$BEGIN IF current_user <> '{role}' THEN RAISE 'run by %', current_user; END IF; RETURN i; END$$;
         CREATE TABLE t (id int, x int GENERATED ALWAYS AS IDENTITY);
         INSERT INTO t SELECT generate_series(1, 20000); CREATE UNIQUE INDEX by_own ON t (own(id));
         DELETE FROM t WHERE id % 3 <> 0"
    ));
    // a busy machine counts dead rows some time after the session has ended
    let dead = "SELECT pg_stat_get_dead_tuples('t'::regclass)";
    database.until(dead, |answer| answer != "0");
    let report =
        retoast(&database, &["reindex", "t", "--set", "disk-limit=1000bytes"]).exits(1).table();
    let told = report.index("by_own");
    assert_eq!(told.ended, IndexEnd::Left, "{told}");
    assert!(told.reason().contains("disk-limit is 1000"), "{told}");
    let report = done(&retoast(&database, &["reindex", "t"]));
    let told = report.index("by_own");
    assert_eq!(told.ended, IndexEnd::Rebuilt, "{report}");
    as_foretold(told.expected(), told.after(), "by_own");
}

#[test]
fn a_toast_index_is_never_rebuilt_concurrently() {
    let database = with_pageinspect("locked");
    database.psql(BLOATED);
    let run = retoast(&database, &["reindex", "t", "--indexes=all", "-vv"]);
    let report = done(&run);
    let of_toast = report.index("pg_toast");
    assert_eq!(of_toast.ended, IndexEnd::Rebuilt, "{report}");
    assert!(of_toast.after() < of_toast.before, "{report}");
    assert!(run.stderr.contains("; REINDEX INDEX pg_toast."), "{}", run.stderr);
    assert!(run.stderr.contains("REINDEX INDEX CONCURRENTLY public.t_pkey"), "{}", run.stderr);
    assert!(!run.stderr.contains("CONCURRENTLY pg_toast."), "{}", run.stderr);
    // nobody is kept waiting while it waits for who has written values
    let writer = Holder::of(&database, "INSERT INTO t SELECT 200000, 1, 'x', noise(1, 66), 1");
    let run = retoast(&database, &["reindex", "t", "--indexes=all", "--set", "max-wait=1s"]);
    let report = run.exits(1).table();
    let of_toast = report.index("pg_toast");
    assert_eq!(of_toast.ended, IndexEnd::Left, "{report}");
    let command = of_toast.command();
    assert!(command.starts_with("REINDEX INDEX pg_toast."), "{report}");
    drop(writer);
}
