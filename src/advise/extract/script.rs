//! The migration to columns for keys, as a script for psql.
//!
//! Whatever a document held can be put together again: a value leaves it only if the column gives the same value
//! back, and a key that is missing, or is `null` where the column has another type than `jsonb`, is told apart.

use super::batches::{Batches, block, dollar_quoted, verification};
use super::kind::KeyType;
use crate::disk::Oid;
use crate::server::sql::{quote_identifier, quote_literal, quote_qualified};

/// Rows that one transaction changes, about.
const BATCH_ROWS: f64 = 1000.0;
/// Bytes of the longest name.
const LONGEST_NAME: usize = 63;

/// A key that moves.
#[derive(Debug, Clone)]
pub struct Moving<'a> {
    pub key: &'a str,
    /// Its column's name.
    pub name: &'a str,
    pub kind: KeyType,
}

/// What tells the function that moves keys from the one that only copies them.
const MOVES: &str = "keys leave the document";

/// What the script is for.
#[derive(Debug, Clone)]
pub struct Migration<'a> {
    pub schema: &'a str,
    pub table: &'a str,
    pub oid: Oid,
    /// The document's column.
    pub column: &'a str,
    pub keys: &'a [Moving<'a>],
    /// Live rows of a page.
    pub rows_per_page: f64,
    /// The command that re-toasts the column and gives back what is free.
    pub command: &'a str,
}

/// A key with its SQL.
struct Key {
    /// As a literal.
    literal: String,
    /// The column, quoted.
    name: String,
    /// Its name as a literal.
    name_literal: String,
    kind: KeyType,
}

impl Key {
    /// The key of a document, as `jsonb`.
    fn held(&self, document: &str) -> String {
        format!("{document} -> {}", self.literal)
    }

    /// The condition that the document has the key.
    fn is_held(&self, document: &str) -> String {
        format!("({}) IS NOT NULL", self.held(document))
    }

    /// The condition that the document has the key, with a value that the column can hold.
    fn fits(&self, document: &str) -> String {
        let held = self.held(document);
        let is = |kind: &str| format!("jsonb_typeof({held}) = '{kind}'");
        let digits = |more: u32| {
            let text = format!("{document} ->> {}", self.literal);
            format!("{} AND ({text}) ~ '^(0|-?[1-9][0-9]{{0,{more}}})$'", is("number"))
        };
        match self.kind {
            KeyType::Jsonb => self.is_held(document),
            KeyType::Text => is("string"),
            KeyType::Boolean => is("boolean"),
            KeyType::Integer => digits(8),
            KeyType::Bigint => digits(17),
            KeyType::Numeric => is("number"),
        }
    }

    /// What of it the column can hold, else NULL.
    fn value(&self, document: &str) -> String {
        let text = format!("({document} ->> {})", self.literal);
        let value = match self.kind {
            KeyType::Jsonb => return self.held(document),
            KeyType::Text => text,
            kind => format!("{text}::{}", kind.name()),
        };
        format!("CASE WHEN {} THEN {value} END", self.fits(document))
    }
}

impl Migration<'_> {
    /// The script.
    pub fn script(&self) -> String {
        let parts = Parts::of(self);
        format!(
            "{head}\n\\set ON_ERROR_STOP on\nSET search_path = pg_catalog, pg_temp;\nSET lock_timeout = '5s';\n\n\
             \\if :{{?undo}}\n\n{undo}\n\\elif :{{?stay}}\n\n{stay}\n\\else\n\n{add}\n\\if :{{?remove}}\n\n{remove}\n\\endif\n\\endif\n",
            head = self.head(&parts),
            undo = parts.undo(),
            stay = parts.stay(),
            add = parts.add(),
            remove = parts.remove(self.command),
        )
    }

    fn head(&self, parts: &Parts) -> String {
        let mut out = format!(
            "-- Moves keys of {} in table {} to columns of their own.\n\
             -- Read it first; toastctl runs none of it. It is for psql, which must not wrap it in a transaction:\n\
             --   psql -X -f FILE              adds the columns, keeps them in step, fills and verifies them;\n\
             --                                documents stay as they are. Then have the application read the columns.\n\
             --   psql -X -v remove=1 -f FILE  then also removes the keys from the documents, which cannot be read there\n\
             --                                any more. From here on the columns are to be written.\n\
             --   psql -X -v undo=1 -f FILE    the way back, at any time: the keys return, the columns go.\n\
             --   psql -X -v stay=1 -f FILE    instead of all that: generated columns; the keys stay in the documents.\n\
             -- After an interruption run the same again: what is done is not done twice.\n\
             -- Types are those that all values of a sample have. A value that does not fit its column stays in the\n\
             -- document, and the column is NULL:\n",
            comment(self.column),
            comment(&format!("{}.{}", self.schema, self.table)),
        );
        for key in self.keys {
            let null = match key.kind {
                KeyType::Jsonb => "null in the document is 'null', a missing key is NULL",
                _ => "null stays in the document, a missing key is NULL",
            };
            out.push_str(&format!(
                "--   {} -> {} {}: {null}\n",
                comment(key.key),
                comment(key.name),
                key.kind.name()
            ));
        }
        out.push_str("-- The document put together again, once the keys have left it:\n");
        for line in parts.together().lines() {
            out.push_str(&format!("--   {}\n", comment(line)));
        }
        out.push_str(
            "-- Indexes, views, constraints and functions that read the keys in the document are not looked at here.\n",
        );
        out
    }
}

/// The pieces of the statements.
struct Parts {
    table: String,
    function: String,
    /// Of the trigger and its function.
    name: String,
    trigger: String,
    column: String,
    keys: Vec<Key>,
    pages: u32,
}

impl Parts {
    fn of(migration: &Migration<'_>) -> Parts {
        let Migration { schema, table, oid, column, keys, rows_per_page, .. } = migration;
        // the new columns are this migration's alone, and so is a name with the first of them
        let first = keys.first().map_or("", |key| key.name);
        let mut name = format!("toastctl_extract.{table}.{first}");
        if name.len() > LONGEST_NAME {
            let digest = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
            });
            name = format!("toastctl_extract.{}.{digest:x}", oid.0);
        }
        let key = |key: &Moving<'_>| Key {
            literal: quote_literal(key.key),
            name: quote_identifier(key.name),
            name_literal: quote_literal(key.name),
            kind: key.kind,
        };
        Parts {
            table: quote_qualified(schema, table),
            function: quote_qualified(schema, &name),
            trigger: quote_identifier(&name),
            name,
            column: quote_identifier(column),
            keys: keys.iter().map(key).collect(),
            pages: (BATCH_ROWS / rows_per_page.max(1.0)).ceil().clamp(1.0, 1e6) as u32,
        }
    }

    /// The document of table `t`.
    fn document(&self) -> String {
        format!("t.{}", self.column)
    }

    fn each(&self, between: &str, one: impl Fn(&Key) -> String) -> String {
        self.keys.iter().map(one).collect::<Vec<_>>().join(between)
    }

    /// Documents of table `t` that hold a key which its column can take.
    fn holding(&self) -> String {
        let document = self.document();
        self.each("\n       OR ", |key| key.fits(&document))
    }

    /// The columns of table `t` as its document has them; what it does not have stays.
    fn filled(&self) -> String {
        let document = self.document();
        self.each(",\n        ", |key| {
            format!("{0} = coalesce({1}, t.{0})", key.name, key.value(&document))
        })
    }

    /// Columns of table `t` that do not give the value in the document back.
    fn differing(&self) -> String {
        let document = self.document();
        self.each("\n       OR ", |key| {
            format!(
                "({} AND to_jsonb(t.{})::text IS DISTINCT FROM ({})::text)",
                key.fits(&document),
                key.name,
                key.held(&document)
            )
        })
    }

    /// The document of a row with its columns' values; it is fetched once.
    fn together(&self) -> String {
        let parts = self.each("\n  || ", |key| {
            format!(
                "CASE WHEN {0} IS NULL THEN '{{}}' ELSE jsonb_build_object({1}, {0}) END",
                key.name, key.literal
            )
        });
        format!("coalesce({0} || nullif('{{}}'::jsonb\n  || {parts}, '{{}}'), {0})", self.column)
    }

    fn function(&self, body: &str) -> String {
        format!(
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger\nLANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS {};\n",
            self.function,
            dollar_quoted(&format!("BEGIN\n{body}  RETURN NEW;\nEND"))
        )
    }

    /// Columns follow their documents.
    fn follow(&self) -> String {
        let (new, old) = (format!("NEW.{}", self.column), format!("OLD.{}", self.column));
        let body = self.each("", |key| {
            format!(
                "  IF {held} THEN\n    NEW.{name} := {value};\n  ELSIF TG_OP = 'UPDATE' THEN\n    \
                 IF {held_before} THEN\n      NEW.{name} := NULL;\n    END IF;\n  END IF;\n",
                held = key.is_held(&new),
                held_before = key.is_held(&old),
                name = key.name,
                value = key.value(&new)
            )
        });
        self.function(&body)
    }

    /// Keys that arrive in a document move to their columns; a column that is set counts more.
    fn moving(&self) -> String {
        let new = format!("NEW.{}", self.column);
        let body = self.each("", |key| {
            format!(
                "  IF {held} THEN\n    \
                 IF (CASE TG_OP WHEN 'INSERT' THEN NEW.{name} IS NOT NULL\n            \
                 ELSE NEW.{name} IS DISTINCT FROM OLD.{name} END) THEN\n      \
                 {new} := {new} - {literal};\n    ELSE\n      NEW.{name} := {value};\n      \
                 IF NEW.{name} IS NOT NULL THEN\n        {new} := {new} - {literal};\n      END IF;\n    END IF;\n  END IF;\n",
                held = key.is_held(&new),
                name = key.name,
                literal = key.literal,
                value = key.value(&new)
            )
        });
        self.function(&format!("  -- {MOVES}\n{body}"))
    }

    /// Steps 1 to 3.
    fn add(&self) -> String {
        let Parts { table, function, trigger, column, .. } = self;
        let names = self.each(", ", |key| key.name.clone());
        let taken = self.each(", ", |key| key.name_literal.clone());
        let own = block(&format!(
            "BEGIN\n  IF to_regprocedure({function_name}) IS NULL AND EXISTS (\n    SELECT FROM pg_attribute\n    \
             WHERE attrelid = {relation}::regclass AND attname IN ({taken}) AND NOT attisdropped) THEN\n    \
             RAISE EXCEPTION 'a column of this name was added by somebody else';\n  END IF;\nEND",
            function_name = quote_literal(&format!("{function}()")),
            relation = quote_literal(table),
        ));
        let columns = self.each(",\n  ", |key| {
            format!("ADD COLUMN IF NOT EXISTS {} {}", key.name, key.kind.name())
        });
        let differing = self.differing();
        let fill = Batches {
            table,
            set: &self.filled(),
            undone: &differing,
            pages: self.pages,
            done: "rows filled",
        };
        format!(
            "-- 1. Columns, and a trigger that keeps them in step with what the application writes into documents:\n\
             --    as long as a document has a key, what is written to the column alone is overwritten.\n\
             --    No row is rewritten; the locks are held for a moment.\n\
             SELECT EXISTS (\n  SELECT FROM pg_trigger AS g JOIN pg_proc AS p ON p.oid = g.tgfoid\n  \
             WHERE g.tgrelid = {relation}::regclass AND g.tgname = {trigger_name}\n    \
             AND p.prosrc LIKE '%{MOVES}%') AS keys_leave \\gset\n\
             \\if :keys_leave\n\\else\n\
             BEGIN;\n{own}\
             ALTER TABLE {table}\n  {columns};\n{follow}\
             CREATE OR REPLACE TRIGGER {trigger} BEFORE INSERT OR UPDATE OF {column}, {names} ON {table}\n  \
             FOR EACH ROW EXECUTE FUNCTION {function}();\nCOMMIT;\n\\endif\n\n\
             -- 2. Rows that were there before, about {rows:.0} in a transaction.\n{fill}\n\
             VACUUM {table};\n\n\
             -- 3. Every column gives back what its document holds.\n{verify}",
            relation = quote_literal(table),
            trigger_name = quote_literal(&self.name),
            follow = self.follow(),
            rows = BATCH_ROWS,
            fill = fill.sql(),
            verify = verification(
                table,
                &differing,
                "documents hold a key that their column does not give back"
            ),
        )
    }

    /// Steps 4 to 7.
    fn remove(&self, command: &str) -> String {
        let Parts { table, column, .. } = self;
        let document = self.document();
        let leaving = self.each(", ", |key| {
            format!("CASE WHEN {} THEN {} END", key.fits(&document), key.literal)
        });
        let set =
            format!("{},\n        {column} = {document} - ARRAY[{leaving}]::text[]", self.filled());
        let holding = self.holding();
        let remove = Batches {
            table,
            set: &set,
            undone: &holding,
            pages: self.pages,
            done: "documents freed of their keys",
        };
        format!(
            "-- 4. From now on the columns count; keys that still arrive in a document are moved to them.\n\
             --    A document without a key leaves the column as it is: set it to NULL to remove the key.\n\
             BEGIN;\n{moving}COMMIT;\n\n\
             -- 5. The keys leave the documents that have them.\n{remove}\n\
             VACUUM (ANALYZE) {table};\n\n\
             -- 6. None is left that its column could hold.\n{verify}\n\
             -- 7. In the shell: what is stored as if it were written anew, and free space given back, online\n\
             --    (or VACUUM FULL, which locks the table):\n--   {command}\n",
            moving = self.moving(),
            remove = remove.sql(),
            verify =
                verification(table, &holding, "documents hold a key that its column could hold"),
            command = comment(command),
        )
    }

    /// The way back.
    fn undo(&self) -> String {
        let Parts { table, function, trigger, column, .. } = self;
        let document = self.document();
        let missing = self.each("\n       OR ", |key| {
            format!("(t.{} IS NOT NULL AND ({}) IS NULL)", key.name, key.held(&document))
        });
        let parts = self.each("\n          ", |key| {
            format!(
                "|| CASE WHEN t.{0} IS NOT NULL AND ({2}) IS NULL THEN jsonb_build_object({1}, t.{0}) ELSE '{{}}' END",
                key.name,
                key.literal,
                key.held(&document)
            )
        });
        let undone = format!("jsonb_typeof({document}) = 'object' AND ({missing})");
        let back = Batches {
            table,
            set: &format!("{column} = {document}\n          {parts}"),
            undone: &undone,
            pages: self.pages,
            done: "documents with their keys again",
        };
        let drops = self.each(",\n  ", |key| format!("DROP COLUMN IF EXISTS {}", key.name));
        format!(
            "-- The way back. First have the application write the keys into the documents again.\n\
             DROP TRIGGER IF EXISTS {trigger} ON {table};\n{back}\n\
             BEGIN;\n-- No column holds what its document does not: else nothing is dropped.\n\
             LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE;\n{verify}\
             ALTER TABLE {table}\n  {drops};\nDROP FUNCTION IF EXISTS {function}();\nCOMMIT;\n\
             VACUUM (ANALYZE) {table};\n",
            back = back.sql(),
            verify = verification(
                table,
                &missing,
                "rows hold a value in a column that their document does not have"
            ),
        )
    }

    /// Generated columns instead.
    fn stay(&self) -> String {
        let columns = self.each(",\n  ", |key| {
            format!(
                "ADD COLUMN {} {} GENERATED ALWAYS AS ({}) STORED",
                key.name,
                key.kind.name(),
                key.value(&self.column)
            )
        });
        format!(
            "-- Generated columns: always in step, and the documents keep their size. The table is rewritten under an\n\
             -- ACCESS EXCLUSIVE lock.\nALTER TABLE {}\n  {columns};\n",
            self.table
        )
    }
}

/// Text that cannot end the comment that it stands in.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
