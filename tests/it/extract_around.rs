//! What is around a table that the script of `keys --extract` migrates: who runs it, what depends on the
//! documents, and what else fires and is replicated.

use crate::support::command::{Run, run};
use crate::support::extract::{Script, extraction};
use crate::support::server::{self, Database};

/// The script with these of its parts, as a role.
fn run_as(database: &Database<'_>, script: &Script, role: &str, parts: &[&str]) -> Run {
    let mut psql = database.psql_command();
    psql.arg("-q").env("PGOPTIONS", format!("-c role={role}"));
    for part in parts {
        psql.args(["-v", &format!("{part}=1")]);
    }
    run(psql.arg("-f").arg(&script.path))
}

#[test]
fn what_is_around_a_migrated_table_is_looked_at() {
    let database = server::shared().create_database("extract");
    let (owner, reader) = (format!("{}_o", database.name()), format!("{}_r", database.name()));
    database.psql(&format!(
        "CREATE EXTENSION pageinspect; CREATE ROLE {owner}; CREATE ROLE {reader};
         GRANT CREATE, USAGE ON SCHEMA public TO {owner};
         SET ROLE {owner};
         CREATE TABLE t (id int PRIMARY KEY, doc jsonb CHECK (doc ? 'state'));
         INSERT INTO t SELECT i, jsonb_build_object('state', 's' || i % 7, 'n', i, 'text', repeat(md5(i::text), 9))
         FROM generate_series(1, 300) AS i;
         GRANT SELECT (doc), UPDATE (doc) ON t TO {reader};
         CREATE UNIQUE INDEX t_n ON t ((doc ->> 'n'));
         CREATE INDEX t_doc ON t USING gin (doc);
         CREATE VIEW seen AS SELECT doc ->> 'state' AS state FROM t;
         CREATE POLICY p ON t USING (doc ->> 'state' <> 's1');
         CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TRIGGER touched BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION touch();
         ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
         RESET ROLE; CREATE PUBLICATION {owner}_p FOR TABLE t"
    ));
    let told = extraction(&database, &["keys", "t", "--extract", "state,n"]);
    let script = Script::told(&told);
    let (head, _) = script.text.split_once("\\set").unwrap();
    insta::assert_snapshot!("extract_around_head", head.replace(database.name(), "database"));
    let columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0";

    // rows that are hidden would be left as they are
    for parts in [&["remove"][..], &["undo"]] {
        let refused = run_as(&database, &script, &owner, parts);
        assert_eq!(refused.code, Some(3), "{}", refused.stderr);
        assert!(refused.stderr.contains("row-level security"), "{}", refused.stderr);
    }
    assert_eq!(database.psql(columns), "2");
    database.psql("ALTER TABLE t NO FORCE ROW LEVEL SECURITY");

    // nothing leaves the documents as long as something may read it there
    let refused = run_as(&database, &script, &owner, &["remove"]);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    for object in [
        "constraint t_doc_check",
        "index public.t_n",
        "index public.t_doc",
        "on view public.seen",
        "policy p",
    ] {
        assert!(refused.stderr.contains(object), "{object}: {}", refused.stderr);
    }
    assert!(!refused.stderr.contains("toastctl_extract"), "{}", refused.stderr);
    assert_eq!(database.psql("SELECT count(*) FROM t WHERE state = doc ->> 'state'"), "300");
    assert_eq!(database.psql("SELECT count(*) FROM t WHERE doc ? 'state'"), "300");
    // whoever may use the document may use what was in it
    let may = format!(
        "SELECT has_column_privilege('{reader}', 't', 'state', 'SELECT'),
                has_column_privilege('{reader}', 't', 'n', 'UPDATE'),
                has_column_privilege('{reader}', 't', 'n', 'INSERT')"
    );
    assert_eq!(database.psql(&may), "t|t|f");
    database.psql(
        "ALTER TABLE t DROP CONSTRAINT t_doc_check; DROP INDEX t_n; DROP VIEW seen; DROP POLICY p ON t",
    );
    let refused = run_as(&database, &script, &owner, &["remove"]);
    assert!(refused.stderr.contains("DETAIL:  index public.t_doc\n"), "{}", refused.stderr);
    run_as(&database, &script, &owner, &["remove", "seen"]).ok();
    assert_eq!(database.psql("SELECT count(*) FROM t WHERE doc ?| '{state,n}'"), "0");
    // once they have left there is nothing to look at any more
    run_as(&database, &script, &owner, &["remove"]).ok();

    // as the script says of statements that insert or update
    let upsert = |more: &str| {
        database.psql(&format!(
            "INSERT INTO t (id, doc) VALUES (1, '{{\"state\": \"new\", \"x\": 1}}')
             ON CONFLICT (id) DO UPDATE SET doc = excluded.doc{more};
             SELECT doc, state, n FROM t WHERE id = 1"
        ))
    };
    assert_eq!(upsert(""), "{\"x\": 1}|s1|1");
    assert_eq!(upsert(", state = excluded.state"), "{\"x\": 1}|new|1");
    run_as(&database, &script, &owner, &["undo"]).ok();
    assert_eq!(
        database.psql("SELECT doc FROM t WHERE id = 1"),
        "{\"n\": 1, \"x\": 1, \"state\": \"new\"}"
    );
    database.psql(&format!("DROP OWNED BY {owner}, {reader} CASCADE; DROP ROLE {owner}, {reader}"));
}

#[test]
fn keys_have_their_letters_in_a_database_of_another_encoding() {
    let server = server::shared();
    let first = server.create_database("extract");
    let name = format!("{}_latin1", first.name());
    first.psql(&format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"));
    {
        let database = server.database(&name);
        database.psql(
            "SET client_encoding = 'UTF8'; CREATE EXTENSION pageinspect; CREATE TABLE t (doc jsonb);
             INSERT INTO t SELECT jsonb_build_object('größe', i, 'x', 1) FROM generate_series(1, 100) AS i",
        );
        let told = extraction(&database, &["keys", "t", "--extract", "größe"]);
        Script::told(&told).run(&database, Some("remove"));
        let moved = "SET client_encoding = 'UTF8';
            SELECT count(*) FROM t WHERE \"größe\" > 0 AND doc = '{\"x\": 1}'";
        assert_eq!(database.psql(moved), "100");
    }
    first.psql(&format!("DROP DATABASE {name} WITH (FORCE)"));
}
