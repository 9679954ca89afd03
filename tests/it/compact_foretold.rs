//! What `inspect` and `--dry-run` say of `retoast --compact` before the work, beside what then happens.

use serde_json::Value;

use crate::retoast::{done, retoast};
use crate::retoast_around::valid;
use crate::retoast_compact::{NOISE, table};
use crate::retoast_compact_sizes::said_by_inspect;
use crate::server::{Options, Server};

const PAGE: f64 = 8192.0;
/// What a checkpoint, autovacuum or the transactions' own records may add to the WAL.
const BESIDES: f64 = 262_144.0;

fn number(of: &Value, key: &str) -> f64 {
    of[key].as_f64().unwrap_or_else(|| panic!("{key}: {of}"))
}

/// Sums over files of the least and the most WAL that is foretold.
fn wal<'a>(all: impl Iterator<Item = &'a Value>) -> [f64; 2] {
    all.fold([0.0; 2], |[low, high], wal| [low + number(wal, "low"), high + number(wal, "high")])
}

/// Makes the table, damages it, asks both, and compacts it, with all pages unchanged since the last checkpoint or not.
#[track_caller]
fn foretold(server: &Server, name: &str, make: &str, damage: &str) {
    for checkpoint in [true, false] {
        let shape = format!("{name}_{checkpoint}");
        let database = server.with_pageinspect(&shape);
        for sql in [NOISE, make, damage, "VACUUM t"] {
            database.psql(sql);
        }
        if checkpoint {
            database.psql("CHECKPOINT");
        }
        let said = said_by_inspect(&database);
        let planned = retoast(&database, &["t", "--compact", "--dry-run"]).ok();
        let planned: Value = serde_json::from_str(&planned).unwrap();
        valid(&planned);
        let planned = &planned["tables"][0];
        let happened = done(&retoast(&database, &["t", "--compact"]));
        let files = |report: &Value| report["compaction"].as_array().unwrap().clone();
        for (then, now) in files(planned).iter().zip(&files(&happened)) {
            let of_heap = then["file"] == "heap";
            let Some(said) = &said[usize::from(!of_heap)] else { continue };
            let gave = number(now, "before") - number(now, "after");
            let moved = number(now, "rows_moved");
            let says = number(said, if of_heap { "rows" } else { "values" });
            eprintln!(
                "{shape}: {}: gives back {} of {gave}, moves {says} of {moved} ({}), {} bytes ({})",
                then["file"],
                said["gives_back"],
                then["rows_found"],
                said["moved_bytes"],
                then["bytes_found"]
            );
            let off = (gave * 0.05).max(8.0 * PAGE);
            assert!((number(said, "gives_back") - gave).abs() <= off, "{shape}: {happened}");
            for other in [number(then, "rows_found"), moved] {
                assert!((says - other).abs() <= (other * 0.05).max(50.0), "{shape}: {happened}");
            }
            let (says, then) = (number(said, "moved_bytes"), number(then, "bytes_found"));
            assert!((says - then).abs() <= then * 0.05, "{shape}: {says} of {then}");
        }
        let [low, high] = wal(files(planned).iter().map(|file| &file["wal_expected"]));
        let [least, most] = wal(said.iter().flatten().map(|said| &said["wal_bytes"]));
        let written = number(&happened, "wal_bytes");
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
    let foretold = |name: &str, make: &str, damage: &str| foretold(&server, name, make, damage);
    foretold("random", &table(6000, "noise(i, 200)"), RANDOM);
    foretold("range", &table(5000, "noise(i, 150 + i % 90)"), "DELETE FROM t WHERE id <= 2500");
    foretold("rests", &table(4000, "noise(i, 250)"), RANDOM);
    let mixed = "CASE WHEN i % 4 = 0 THEN noise(i, 66 + i % 300) ELSE noise(i, 5 + i % 55) END";
    foretold("mixed", &table(8000, mixed), RANDOM);
    let rows = "CREATE TABLE t (id int PRIMARY KEY, a text, n int);
        INSERT INTO t SELECT i, noise(i, 1 + i % 6), i FROM generate_series(1, 60000) i;";
    foretold("heap_random", rows, RANDOM);
    foretold("heap_range", rows, "DELETE FROM t WHERE id <= 30000");
}
