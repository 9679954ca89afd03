//! Tables that several tests use, in SQL.

use crate::support::server::Database;

/// Values of many types, in rows short and long, compressible and not.
pub(crate) const TYPES: &str = "
    CREATE TYPE pair AS (n int, body text, tags text[]);
    CREATE TYPE nest AS (p pair, b bytea);
    CREATE DOMAIN note AS text CHECK (VALUE <> 'never');
    CREATE DOMAIN notes AS text[];
    CREATE DOMAIN pairs AS pair;
    CREATE FUNCTION noise(seed int, n int) RETURNS text LANGUAGE sql IMMUTABLE AS
        $$SELECT string_agg(md5(seed || '/' || i), '') FROM generate_series(1, n) AS i$$;
    CREATE FUNCTION body(i int) RETURNS text LANGUAGE sql IMMUTABLE AS
        $$SELECT CASE WHEN i % 7 = 0 THEN NULL WHEN i % 5 = 0 THEN 'short ' || i
                      WHEN i % 3 = 0 THEN noise(i, 20 + i * 3) ELSE repeat(md5(i::text), 90 + i * 4) END$$;
    CREATE TABLE t (id int PRIMARY KEY, v text, vc varchar, ch char(12000), b bytea, j jsonb, js json,
        a text[], d note, da notes, c pair, n nest, dp pairs, ts tsvector, x xml, nu numeric, r numrange);
    INSERT INTO t SELECT i, body(i), body(i + 1), body(i), decode(md5(i::text), 'hex') || convert_to(body(i), 'UTF8'),
        jsonb_build_object('k', body(i), 'n', i), json_build_object('k', body(i)),
        ARRAY[body(i), NULL, 'x'], body(i), ARRAY[body(i), 'y'],
        CASE WHEN i % 11 <> 0 THEN ROW(i, body(i), ARRAY[body(i)])::pair END,
        ROW(CASE WHEN i % 4 <> 0 THEN ROW(NULL, body(i), NULL)::pair END, convert_to(body(i + 2), 'UTF8'))::nest,
        CASE WHEN i % 13 = 0 THEN ROW(NULL, NULL, NULL)::pair ELSE ROW(i, body(i), NULL)::pair END,
        to_tsvector('simple', array_to_string(ARRAY(SELECT md5(i || '.' || k) FROM generate_series(1, i) k), ' ')),
        ('<a>' || coalesce(body(i), '') || '</a>')::xml, (repeat('7', 1 + i * 50))::numeric,
        numrange(0, repeat('8', 1 + i * 40)::numeric)
    FROM generate_series(1, 60) AS i;
    -- rows of a table as composite values keep its compressed fields
    CREATE TABLE whole (n int, body text COMPRESSION pglz, tags text[]);
    INSERT INTO whole SELECT i, repeat('in ' || i, 300), NULL FROM generate_series(1, 60) i;
    UPDATE t SET c = (SELECT w::whole::text::pair FROM whole w WHERE w.n = t.id) WHERE id % 6 = 1;";

pub(crate) const COLUMNS: [&str; 16] =
    ["v", "vc", "ch", "b", "j", "js", "a", "d", "da", "c", "n", "dp", "ts", "x", "nu", "r"];

/// 60,000 rows, 40,000 of them with a value out of line.
pub(crate) const LARGE: &str = "
    CREATE TABLE t (id int PRIMARY KEY, n int, v text COMPRESSION pglz);
    INSERT INTO t SELECT i, i % 100, CASE WHEN i % 3 > 0 THEN
        (SELECT string_agg(repeat(md5((i * 31 + k)::text), 3), '') FROM generate_series(1, 90) k) ELSE 's' || i END
    FROM generate_series(1, 60000) i;
    CREATE INDEX ON t (n); VACUUM ANALYZE t;";

pub(crate) const NOISE: &str =
    "CREATE FUNCTION noise(seed int, n int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
    $$SELECT left(string_agg(encode(sha512((seed || '/' || i)::bytea), 'hex'), ''), n * 32)
      FROM generate_series(1, (n + 3) / 4) AS i$$;";

/// A table of which half is out of line, by the expression for its value.
pub(crate) fn table(rows: u32, value: &str) -> String {
    format!(
        "CREATE TABLE t (id int PRIMARY KEY, v text, w text, n int);
         ALTER TABLE t ALTER v SET STORAGE external;
         INSERT INTO t SELECT i, {value}, 'x', 0 FROM generate_series(1, {rows}) i;"
    )
}

/// A table with a TOAST relation and indexes of which two thirds of the entries are gone.
pub(crate) const BLOATED: &str = "
    CREATE FUNCTION noise(seed int, n int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
        $$SELECT string_agg(md5(seed || '/' || i), '') FROM generate_series(1, n) AS i$$;
    CREATE TABLE t (id int PRIMARY KEY, k bigint NOT NULL UNIQUE, name text, v text, n int NOT NULL);
    ALTER TABLE t ALTER v SET STORAGE external;
    INSERT INTO t SELECT i, i::bigint * 7, 'name of ' || md5(i::text),
        CASE WHEN i % 3 = 0 THEN noise(i, 66) ELSE 'short' END, i % 5 FROM generate_series(1, 30000) i;
    CREATE INDEX by_name ON t (name);
    CREATE INDEX by_n ON t (n);
    CREATE INDEX by_words ON t USING gin ((ARRAY[n]));
    DELETE FROM t WHERE hashint4(id) % 3 <> 0; VACUUM t;";

pub(crate) const INVALID: &str = "SELECT count(*) FROM pg_index WHERE NOT indisvalid";

/// How a fresh copy is made, row by row. Where pages are filled badly, `INSERT` goes back to the room that it has left.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Copied {
    Inserted,
    Clustered,
}

/// Sizes of heap, TOAST relation and indexes of a copy made row by row in the order of `id`.
pub(crate) fn fresh(database: &Database<'_>, copied: Copied) -> [u64; 3] {
    database.psql(
        "CREATE TABLE fresh (LIKE t INCLUDING ALL); INSERT INTO fresh SELECT * FROM t ORDER BY id",
    );
    database.psql(match copied {
        Copied::Inserted => "REINDEX TABLE fresh",
        Copied::Clustered => "CLUSTER fresh USING fresh_pkey",
    });
    let sizes = database.psql(
        "SELECT pg_relation_size(c.oid), coalesce(pg_relation_size(toast), 0),
            pg_indexes_size(c.oid) + coalesce(pg_indexes_size(toast), 0)
         FROM pg_class AS c, nullif(c.reltoastrelid, 0) AS toast WHERE c.oid = 'fresh'::regclass; DROP TABLE fresh",
    );
    let sizes: Vec<u64> = sizes.split('|').map(|size| size.parse().unwrap()).collect();
    sizes.try_into().unwrap()
}
