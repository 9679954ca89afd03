//! Findings of `inspect` about keys that are used: found, not found, and gone after the printed command.

use crate::support::command::{run, toastctl};
use crate::support::findings::{codes, findings, prepared};
use crate::support::measured::buffers;
use toastctl::findings::finding::Unit;

const ROWS: f64 = 1200.0;

#[test]
fn small_keys_in_use_inside_documents_out_of_line() {
    let database = prepared("hot");
    database.psql(
        "CREATE TABLE docs (id int, doc jsonb);
         ALTER TABLE docs ALTER doc SET STORAGE external;
         INSERT INTO docs SELECT i, jsonb_build_object('a,\"b\"', i, 'state', (ARRAY['new', 'paid'])[i % 2 + 1],
             'body', noise(i, 6400)) FROM generate_series(1, 1200) AS i;
         CREATE TABLE apart (id int, doc jsonb, state text GENERATED ALWAYS AS (doc ->> 'state') STORED);
         ALTER TABLE apart ALTER doc SET STORAGE external;
         INSERT INTO apart SELECT id, doc FROM docs;
         CREATE INDEX ON apart ((doc ->> 'state'));
         CREATE TABLE short AS SELECT id, doc - 'body' AS doc FROM docs;
         CREATE INDEX ON short ((doc ->> 'state'));
         VACUUM ANALYZE docs; VACUUM ANALYZE apart; VACUUM ANALYZE short",
    );
    // nothing uses a key; a large one is used; a column has it; documents are in their rows
    for table in ["docs", "apart", "short"] {
        assert_eq!(codes(&findings(&database, table)), [""; 0], "{table}");
    }
    database.psql("CREATE INDEX by_body ON docs (length(doc ->> 'body'))");
    assert_eq!(codes(&findings(&database, "docs")), [""; 0]);

    database.psql(
        "CREATE INDEX by_state ON docs ((doc ->> 'state'));
         CREATE INDEX by_odd ON docs (((doc -> 'a,\"b\"')::int))",
    );
    let found = findings(&database, "docs");
    assert_eq!(codes(&found), ["hot-keys"], "{found:#?}");
    let finding = &found[0];
    assert_eq!(finding.value as f64, ROWS);
    assert_eq!(finding.unit, Unit::Values);
    let more = buffers(&database, "SELECT doc ->> 'state' FROM docs")
        - buffers(&database, "SELECT id FROM docs");
    let words = format!(
        "each read of keys \"a,\"b\"\" (index by_odd), \"state\" (index by_state), 0.6 % of their documents, \
         visits {:.0} more buffers than a read of a column would",
        more / ROWS
    );
    assert_eq!(finding.what, words);
    let command = &finding.command;
    let expected = "toastctl keys public.docs --column doc \
                    --extract='\"a,\"\"b\"\"\",state' --emit sql";
    assert_eq!(command, expected);

    let mut shell = std::process::Command::new("sh");
    let script = format!("set -- {command}; shift; printf '%s\\0' \"$@\"");
    let words = run(shell.args(["-c", &script])).ok();
    let words: Vec<&str> = words.split_terminator('\0').collect();
    let migration = run(toastctl().args(&words).args(["-d", &database.url()])).ok();
    database.psql(&migration);
    // the indexes that name the keys stay as they are here
    database.psql(&format!("\\set remove 1\n{migration}"));
    database.rests();
    let left = findings(&database, "docs");
    assert!(!codes(&left).contains(&"hot-keys"), "{left:#?}");
}
