//! Random tables: several columns of several types and widths, nulls, dropped columns, settings.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::support::server::Database;

/// Values short, long, very long, with and without what can be compressed.
pub(crate) const FUNCTIONS: &str = "
    CREATE EXTENSION pageinspect;
    CREATE FUNCTION noise(seed int, n int) RETURNS text LANGUAGE sql IMMUTABLE AS
        $$SELECT coalesce(string_agg(md5(seed || '/' || i), ''), '') FROM generate_series(1, n) AS i$$;
    CREATE FUNCTION body(s int, w int) RETURNS text LANGUAGE sql IMMUTABLE AS
        $$SELECT CASE abs(hashint4(s)) % 10
            WHEN 0 THEN NULL WHEN 1 THEN 'short ' || s WHEN 2 THEN ''
            WHEN 3 THEN noise(s, w / 32) WHEN 4 THEN noise(s, w / 8)
            WHEN 5 THEN repeat(md5(s::text), w / 32) WHEN 6 THEN repeat('x', w)
            WHEN 7 THEN repeat(noise(s, w / 320 + 1), 10) WHEN 8 THEN noise(s, w / 64) || repeat('y', w / 2)
            ELSE repeat(md5(s::text), w / 4) END$$;";

/// A type, a value of it made of the text `$`, and what `md5` takes of it.
pub(crate) struct Kind {
    name: &'static str,
    value: &'static str,
    array: bool,
}

const KINDS: [Kind; 6] = [
    Kind { name: "text", value: "$", array: false },
    Kind { name: "varchar", value: "$", array: false },
    Kind { name: "bytea", value: "convert_to($, 'UTF8')", array: false },
    Kind { name: "jsonb", value: "jsonb_build_object('k', $, 'n', 1)", array: false },
    Kind { name: "json", value: "json_build_object('k', $)", array: false },
    Kind { name: "text[]", value: "ARRAY[$, 'x']", array: true },
];

pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: &'static Kind,
    storage: &'static str,
    method: &'static str,
    width: u32,
}

impl Column {
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.kind.name, "text" | "varchar")
    }

    /// A new value made of the number `s`.
    pub(crate) fn value(&self, s: &str) -> String {
        let body = format!("body({s}, {})", self.width);
        self.kind.value.replace('$', &body)
    }

    /// A copy of the value of `t` that is not stored yet.
    pub(crate) fn copied(&self) -> String {
        let name = &self.name;
        if self.kind.array {
            format!("array_cat(t.{name}, '{{}}')")
        } else {
            format!("(ARRAY[t.{name}])[1]")
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        self.kind.name
    }
}

pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) chosen: Vec<String>,
    dropped: bool,
    rows: u32,
    options: String,
    seed: u32,
}

impl Table {
    pub(crate) fn random(rng: &mut ChaCha8Rng) -> Table {
        let count = rng.random_range(1..=4);
        // what a page cannot hold plain is rare in some tables
        let narrow = rng.random_bool(0.3);
        let columns: Vec<Column> = (0..count)
            .map(|at| Column {
                name: format!("c{at}"),
                kind: &KINDS[rng.random_range(0..KINDS.len())],
                storage: ["extended", "extended", "external", "main"][rng.random_range(0..4)],
                method: ["pglz", "pglz", "lz4"][rng.random_range(0..3)],
                width: if narrow { rng.random_range(20..300) } else { rng.random_range(100..6000) },
            })
            .collect();
        let mut chosen: Vec<String> =
            columns.iter().filter(|_| rng.random_bool(0.6)).map(|c| c.name.clone()).collect();
        if chosen.is_empty() {
            chosen.push(columns[0].name.clone());
        }
        let options = match rng.random_range(0..5) {
            0 => "WITH (toast_tuple_target = 512)".to_owned(),
            1 => format!("WITH (fillfactor = {})", rng.random_range(40..100)),
            _ => String::new(),
        };
        let rows = rng.random_range(30..500);
        Table {
            columns,
            chosen,
            dropped: rng.random_bool(0.4),
            rows,
            options,
            seed: rng.random_range(0..1 << 20),
        }
    }

    /// The columns in a line.
    pub(crate) fn ddl(&self) -> String {
        let column = |c: &Column| {
            format!("{} {} {}={} {}", c.name, c.kind.name, c.storage, c.method, c.width)
        };
        let columns: Vec<String> = self.columns.iter().map(column).collect();
        format!("({}) {} {} rows", columns.join(", "), self.options, self.rows)
    }

    pub(crate) fn is_chosen(&self, column: &Column) -> bool {
        self.chosen.contains(&column.name)
    }

    pub(crate) fn make(&self, database: &Database<'_>) {
        let mut definitions = vec!["id int".to_owned(), "n int DEFAULT 0".to_owned()];
        let (mut names, mut values) = (vec!["id".to_owned()], vec!["i".to_owned()]);
        if self.dropped {
            definitions.push("gone text".to_owned());
            names.push("gone".to_owned());
            values.push("body(i + 7, 3000)".to_owned());
        }
        let mut storage = Vec::new();
        for (at, column) in self.columns.iter().enumerate() {
            definitions.push(format!(
                "{} {} COMPRESSION {}",
                column.name, column.kind.name, column.method
            ));
            storage.push(format!("ALTER {} SET STORAGE {}", column.name, column.storage));
            names.push(column.name.clone());
            values.push(column.value(&format!("i * 31 + {}", self.seed as usize + at)));
        }
        let drop = if self.dropped { "ALTER TABLE t DROP COLUMN gone;" } else { "" };
        database.psql(&format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t ({}) {}; ALTER TABLE t {};
             INSERT INTO t ({}) SELECT {} FROM generate_series(1, {}) AS i; {drop}
             CREATE UNIQUE INDEX ON t (id);
             UPDATE t SET n = n WHERE id % 9 = 1; DELETE FROM t WHERE id % 13 = 2; VACUUM ANALYZE t",
            definitions.join(", "),
            self.options,
            storage.join(", "),
            names.join(", "),
            values.join(", "),
            self.rows
        ));
    }
}
