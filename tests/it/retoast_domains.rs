//! `retoast` on columns of domains that refuse NULL, and of composite values and arrays of them.

use crate::support::retoast::{contents, done, retoast};
use crate::support::server::with_pageinspect;

/// A column for each way in which a domain can stand between a column and its values.
const COLUMNS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

const TABLE: &str = "
    CREATE DOMAIN required AS text NOT NULL;
    CREATE DOMAIN checked AS bytea CHECK (VALUE IS NOT NULL AND length(VALUE) > 3);
    CREATE DOMAIN over_domain AS required CHECK (VALUE IS NOT NULL);
    CREATE TYPE pair AS (n int, body required);
    CREATE DOMAIN required_pair AS pair NOT NULL CHECK ((VALUE).body IS NOT NULL);
    CREATE DOMAIN required_list AS text[] NOT NULL CHECK (VALUE IS NOT NULL);
    CREATE TABLE t (id int PRIMARY KEY, a required, b checked, c over_domain, d pair, e required_pair,
                    f required_list, g required[], h required_pair[]);
    INSERT INTO t SELECT i, v, v::bytea, v, ROW(i, v)::pair, ROW(i, v)::pair, ARRAY[v, NULL],
                         ARRAY[v]::required[], ARRAY[ROW(i, v)::pair]::required_pair[]
    FROM (SELECT i, repeat(md5(i::text), i * 3) AS v FROM generate_series(1, 150) AS i) AS made";

#[test]
fn domains_that_refuse_null_are_stored_by_policies_and_toasters() {
    let database = with_pageinspect("domains");
    database.psql(TABLE);
    let before = contents(&database, "t");
    let columns: Vec<&str> = COLUMNS.iter().flat_map(|column| ["-c", column]).collect();
    for choice in [
        &["--policy", "never"][..],
        &["--policy", "always", "--method", "lz4"],
        &["--policy", "chunk-saving", "--method", "either"],
        &["--toaster", "pglz"],
        &["--policy", "best", "--method", "lz4"],
        &["--toaster", "external"],
    ] {
        for source in ["pageinspect", "functions"] {
            let arguments = [
                &["t", "--verify", "full", "--set", &format!("source={source}")],
                choice,
                &columns,
            ];
            let arguments = arguments.concat();
            let table = done(&retoast(&database, &arguments));
            assert_eq!(table.skipped.len(), 0, "{choice:?}: {table}");
            if source == "pageinspect" {
                assert_ne!(table.rows_stored, 0, "{choice:?}: {table}");
            }
            assert_eq!(contents(&database, "t"), before, "{choice:?}");
            let again = done(&retoast(&database, &arguments));
            assert_eq!(again.rows_found, 0, "{choice:?}: {again}");
        }
        let compressed = |column: &str| {
            let sql = format!("SELECT count(pg_column_compression({column})) FROM t");
            database.psql(&sql).parse::<u64>().unwrap()
        };
        for column in COLUMNS {
            let none = choice.contains(&"never") || choice.contains(&"external");
            assert_eq!(compressed(column) == 0, none, "{column} {choice:?}");
        }
    }
}

#[test]
fn the_code_of_a_domain_of_another_role_does_not_run_on_a_table_of_a_superuser() {
    let database = with_pageinspect("lent_domain");
    database.psql(
        "CREATE ROLE domain_owner; CREATE SCHEMA theirs AUTHORIZATION domain_owner;
         CREATE TABLE ran (by text); GRANT INSERT ON ran TO PUBLIC;
         SET ROLE domain_owner;
         CREATE FUNCTION theirs.noted(text) RETURNS bool LANGUAGE plpgsql
           AS 'BEGIN INSERT INTO public.ran VALUES (current_user); RETURN true; END';
         CREATE DOMAIN theirs.body AS text;
         RESET ROLE;
         CREATE TABLE t (id int PRIMARY KEY, v theirs.body, w theirs.body[]);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300), ARRAY[repeat(md5(i::text), 300)]
           FROM generate_series(1, 50) AS i;
         SET ROLE domain_owner;
         ALTER DOMAIN theirs.body ADD CHECK (theirs.noted(VALUE)) NOT VALID",
    );
    for column in ["v", "w"] {
        for choice in [&["--policy", "never"][..], &["--toaster", "external"]] {
            let run = retoast(&database, &[&["t", "-c", column], choice].concat());
            assert_eq!(
                database.psql("SELECT count(*) FROM ran"),
                "0",
                "{column} {choice:?}: {run:?}"
            );
        }
    }
    let refused = retoast(&database, &["t", "-c", "v", "--policy", "never"]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("domain"), "{refused:?}");
    database.psql("DROP TABLE t; DROP SCHEMA theirs CASCADE; DROP ROLE domain_owner");
}
