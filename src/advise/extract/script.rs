//! The migration to columns for keys, as a script for psql: the comments before it, its steps, and the way back.
//!
//! Whatever a document held can be put together again: a value leaves it only if the column gives the same value
//! back, and a key that is missing, or is `null` where the column has another type than `jsonb`, is told apart.

use super::rows::KeyType;
use super::target::{Grant, OWN, Target, TargetKey, dependents};
use toast_format::model::sql::{LONGEST_NAME, quote_identifier, quote_literal, quote_qualified};

/// Rows that one transaction changes, about.
const BATCH_ROWS: f64 = 1000.0;

/// What tells the function that moves keys from the one that only copies them.
const MOVES: &str = "keys leave the document";

/// A key with its SQL.
struct Key<'a> {
    target: &'a TargetKey,
    /// As a literal.
    literal: String,
    /// The column, quoted.
    name: String,
    /// Its name as a literal.
    name_literal: String,
    kind: KeyType,
}

impl Key<'_> {
    /// The key of a document, as `jsonb`.
    fn held(&self, document: &str) -> String {
        format!("{document} -> {}", self.literal)
    }

    /// The condition that the document has the key.
    fn is_held(&self, document: &str) -> String {
        format!("({}) IS NOT NULL", self.held(document))
    }

    /// The condition, in a trigger, that the statement gives the column a value of its own.
    fn is_set(&self) -> String {
        format!(
            "(CASE TG_OP WHEN 'INSERT' THEN NEW.{0} IS NOT NULL ELSE NEW.{0} IS DISTINCT FROM OLD.{0} END)",
            self.name
        )
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

/// A migration to columns for keys, with the pieces of its statements.
pub(super) struct Migration<'a> {
    target: &'a Target,
    keys: Vec<Key<'a>>,
    /// The table and the documents' column, quoted.
    table: String,
    column: String,
    /// Of the trigger and its function.
    name: String,
    trigger: String,
    function: String,
    /// Pages of a batch.
    pages: u32,
}

impl<'a> Migration<'a> {
    /// To columns of these types; `rows_per_page`: live rows of a page.
    pub(super) fn new(target: &'a Target, types: &[KeyType], rows_per_page: f64) -> Migration<'a> {
        let table = &target.table;
        // the new columns are this migration's alone, and so is a name with the first of them
        let first = target.keys.first().map_or("", |key| key.name.as_str());
        let mut name = format!("{OWN}{}.{first}", table.name);
        if name.len() > LONGEST_NAME {
            let digest = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
            });
            name = format!("{OWN}{}.{digest:x}", table.oid.0);
        }
        let key = |(target, &kind): (&'a TargetKey, &KeyType)| Key {
            target,
            literal: quote_literal(&target.key),
            name: quote_identifier(&target.name),
            name_literal: quote_literal(&target.name),
            kind,
        };
        Migration {
            target,
            keys: target.keys.iter().zip(types).map(key).collect(),
            table: table.quoted(),
            column: quote_identifier(&target.column_name),
            trigger: quote_identifier(&name),
            function: quote_qualified(&table.schema, &name),
            name,
            pages: (BATCH_ROWS / rows_per_page.max(1.0) / f64::from(table.partitions.max(1)))
                .ceil()
                .clamp(1.0, 1e6) as u32,
        }
    }

    /// The script. `command` re-toasts the column and gives back what is free; on a server with pluggable TOAST
    /// nothing may be written anew.
    pub(super) fn script(&self, command: &str, has_toasters: bool) -> String {
        format!(
            "{head}\n\\set ON_ERROR_STOP on\n\\encoding UTF8\nSET search_path = pg_catalog, pg_temp;\n\
             SET lock_timeout = '5s';\nSET statement_timeout = 0;\n\
             -- Fails if row security would hide rows here.\nSET row_security = off;\n\
             SELECT EXISTS (SELECT FROM {table}) AS has_rows \\gset\n\n\
             \\if :{{?undo}}\n\n{undo}\n\\elif :{{?stay}}\n\n{stay}\n\\else\n\n{add}\n\\if :{{?remove}}\n\n{remove}\n\\endif\n\\endif\n",
            head = self.head(),
            table = self.table,
            undo = self.undo(),
            stay = self.stay(),
            add = self.add(),
            remove = self.remove(command, has_toasters),
        )
    }
    /// The comments before it: how to run it, what it does not know, and what to look at first.
    fn head(&self) -> String {
        let Target { table, column_name: column, around, .. } = self.target;
        let mut out = format!(
            "-- Moves keys of {} in table {} to columns of their own.\n\
             -- Read this script before you run it; toastctl does not run it. Run it with psql, not inside a transaction:\n\
             --   psql -X -f FILE              Adds the columns, fills them, verifies them, and keeps them up to date. Documents\n\
             --                                do not change. Then change the application to read the columns.\n\
             --   psql -X -v remove=1 -f FILE  Also removes the keys from the documents. Before that, change the application\n\
             --                                to write the columns: it no longer finds the keys in the documents.\n\
             --   psql -X -v undo=1 -f FILE    Undoes both at any time: puts the keys back and drops the columns.\n\
             --   psql -X -v stay=1 -f FILE    Adds generated columns instead; the keys stay in the documents.\n\
             -- After an interruption, run the same command again: it continues.\n\
             -- The types fit all values of a sample. A value that does not fit its column stays in the document, and the\n\
             -- column is NULL:\n",
            comment(column),
            comment(&table.display_name()),
        );
        for key in &self.keys {
            let null = match key.kind {
                KeyType::Jsonb => "null in the document is 'null', a missing key is NULL",
                _ => "null stays in the document, a missing key is NULL",
            };
            out.push_str(&format!(
                "--   {} -> {} {}: {null}\n",
                comment(&key.target.key),
                comment(&key.target.name),
                key.kind.name()
            ));
        }
        out.push_str(
            "-- This expression returns the whole document after the keys were removed:\n",
        );
        for line in self.together().lines() {
            out.push_str(&format!("--   {}\n", comment(line)));
        }
        let mut list = |what: &str, names: &[String]| {
            if !names.is_empty() {
                out.push_str(&format!("-- {what}\n"));
                names.iter().for_each(|name| out.push_str(&format!("--   {}\n", comment(name))));
            }
        };
        list(
            "These objects depend on the column. Change those that read the keys before the keys are removed. Step 4 stops\n\
             -- if such objects exist, unless you add -v seen=1:",
            &around.dependents,
        );
        list(
            "These triggers fire for every row that this script changes. A trigger whose name sorts after the script's own\n\
             -- must not change the document; neither must a trigger for updates of other columns:",
            &around.triggers,
        );
        list(
            "These publications contain the table. Add the columns on the subscribers first:",
            &around.publications,
        );
        out.push_str(
            "-- toastctl has not looked for functions and statements that read the keys in the document. SELECT * returns the\n\
             -- new columns too.\n",
        );
        out
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

    /// Columns follow their documents. What is written to a column alone would be lost, and is refused.
    fn follow(&self) -> String {
        let (new, old) = (format!("NEW.{}", self.column), format!("OLD.{}", self.column));
        let body = self.each("", |key| {
            let refusal = format!("column {} cannot be written yet: the document has the key", key.name);
            format!(
                "  IF {held} THEN\n    \
                 IF {is_set} AND NEW.{name} IS DISTINCT FROM ({value}) THEN\n      \
                 RAISE EXCEPTION USING MESSAGE = {refusal},\n        \
                 HINT = 'Write the key in the document, until keys have left the documents.';\n    END IF;\n    \
                 NEW.{name} := {value};\n  ELSIF TG_OP = 'UPDATE' THEN\n    \
                 IF {held_before} THEN\n      NEW.{name} := NULL;\n    END IF;\n  END IF;\n",
                held = key.is_held(&new),
                is_set = key.is_set(),
                held_before = key.is_held(&old),
                name = key.name,
                refusal = quote_literal(&refusal),
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
                 IF {is_set} THEN\n      \
                 {new} := {new} - {literal};\n    ELSE\n      NEW.{name} := {value};\n      \
                 IF NEW.{name} IS NOT NULL THEN\n        {new} := {new} - {literal};\n      END IF;\n    END IF;\n  END IF;\n",
                held = key.is_held(&new),
                is_set = key.is_set(),
                name = key.name,
                literal = key.literal,
                value = key.value(&new)
            )
        });
        self.function(&format!("  -- {MOVES}\n{body}"))
    }
    /// Steps 1 to 3.
    fn add(&self) -> String {
        let Migration { table, function, trigger, column, .. } = self;
        let names = self.each(", ", |key| key.name.clone());
        let taken = self.each(", ", |key| key.name_literal.clone());
        let own = block(&format!(
            "BEGIN\n  IF to_regprocedure({function_name}) IS NULL AND EXISTS (\n    SELECT FROM pg_attribute\n    \
             WHERE attrelid = {relation}::regclass AND attname IN ({taken}) AND NOT attisdropped) THEN\n    \
             RAISE EXCEPTION 'a column of this name already exists, and this script did not add it';\n  END IF;\nEND",
            function_name = quote_literal(&format!("{function}()")),
            relation = quote_literal(table),
        ));
        let columns = self.each(",\n  ", |key| {
            format!("ADD COLUMN IF NOT EXISTS {} {}", key.name, key.kind.name())
        });
        let differing = self.differing();
        let fill = Batches {
            table,
            partitioned: self.target.table.partitions > 0,
            set: &self.filled(),
            undone: &differing,
            pages: self.pages,
            done: "rows filled",
        };
        format!(
            "-- 1. Add the columns, and a trigger that copies keys from every document that is written. As long as a document\n\
             --    has the key, a statement that writes another value to its column fails.\n\
             --    No row is rewritten; locks are held for a moment. The trigger reads the document at each update of it or\n\
             --    of a column, which takes 50 to 60 microseconds for a document of a few kB.\n\
             SELECT EXISTS (\n  SELECT FROM pg_trigger AS g JOIN pg_proc AS p ON p.oid = g.tgfoid\n  \
             WHERE g.tgrelid = {relation}::regclass AND g.tgname = {trigger_name}\n    \
             AND p.prosrc LIKE '%{MOVES}%') AS keys_leave \\gset\n\
             \\if :keys_leave\n\\else\n\
             BEGIN;\n{own}\
             ALTER TABLE {table}\n  {columns};\n{grants}{follow}\
             CREATE OR REPLACE TRIGGER {trigger} BEFORE INSERT OR UPDATE OF {column}, {names} ON {table}\n  \
             FOR EACH ROW EXECUTE FUNCTION {function}();\n{always}COMMIT;\n\\endif\n\n\
             -- 2. Fill the columns of existing rows, about {rows:.0} in each transaction.\n{fill}\n\
             VACUUM {table};\n\n\
             -- 3. Verify that every column has the value of its document.\n{verify}",
            relation = quote_literal(table),
            trigger_name = quote_literal(&self.name),
            grants = self.grants(),
            follow = self.follow(),
            always = self.always(),
            rows = BATCH_ROWS,
            fill = fill.sql(),
            verify = verification(
                table,
                &differing,
                "documents hold a key that their column does not have"
            ),
        )
    }

    /// The privileges on the document's column, for the new ones.
    fn grants(&self) -> String {
        let names = self.each(", ", |key| key.name.clone());
        let one = |grant: &Grant| {
            format!(
                "GRANT {} ({names}) ON TABLE {} TO {};\n",
                grant.privilege, self.table, grant.to
            )
        };
        self.target.around.grants.iter().map(one).collect()
    }

    /// What a subscription writes fires no ordinary trigger.
    fn always(&self) -> String {
        if !self.target.around.subscribed {
            return String::new();
        }
        format!("ALTER TABLE {} ENABLE ALWAYS TRIGGER {};\n", self.table, self.trigger)
    }

    /// Stops where something depends on the documents' column.
    fn look(&self) -> String {
        let relation = format!("{}::regclass", quote_literal(&self.table));
        let number = format!(
            "(SELECT attnum FROM pg_attribute WHERE attrelid = {relation} AND attname = {})",
            quote_literal(&self.target.column_name)
        );
        let stop = block(&format!(
            "DECLARE\n  objects text;\nBEGIN\n  SELECT string_agg(object, E'\\n' ORDER BY object) INTO objects FROM (\n  {}) AS d;\n  \
             IF objects IS NOT NULL THEN\n    RAISE EXCEPTION 'objects depend on the document column'\n      \
             USING DETAIL = objects, HINT = 'Change those that read the keys, then run this again with -v seen=1.';\n  \
             END IF;\nEND",
            dependents(&relation, &number)
        ));
        format!("\\if :{{?seen}}\n\\elif :keys_leave\n\\else\n{stop}\\endif\n")
    }

    /// Steps 4 to 7.
    fn remove(&self, command: &str, has_toasters: bool) -> String {
        let Migration { table, column, .. } = self;
        let document = self.document();
        let leaving = self.each(", ", |key| {
            format!("CASE WHEN {} THEN {} END", key.fits(&document), key.literal)
        });
        let set =
            format!("{},\n        {column} = {document} - ARRAY[{leaving}]::text[]", self.filled());
        let holding = self.holding();
        let remove = Batches {
            table,
            partitioned: self.target.table.partitions > 0,
            set: &set,
            undone: &holding,
            pages: self.pages,
            done: "documents no longer have their keys",
        };
        let (command, whole) = (comment(command), comment(table));
        let rewriting = match has_toasters {
            true => format!(", online:\n--   {command}"),
            false => format!(
                " and return free space, online:\n--   {command}\n--    Or in psql, with the table locked:\n--   VACUUM FULL {whole};"
            ),
        };
        format!(
            "-- 4. From now on, the columns hold the keys. A key that is written into a document moves to its column.\n\
             --    A document without the key does not change the column: set the column to NULL to remove the key.\n\
             --    INSERT ... ON CONFLICT DO UPDATE SET {bare} = excluded.{bare}: the keys are in the columns of excluded.\n\
             {look}BEGIN;\n{moving}COMMIT;\n\n\
             -- 5. Remove the keys from the documents.\n{remove}\n\
             VACUUM (ANALYZE) {table};\n\n\
             -- 6. Verify that no document has a key that fits its column.\n{verify}\n\
             -- 7. In the shell: rewrite the shortened rows{rewriting}\n\n\
             -- 8. While the trigger exists, every update of one of the columns reads the document. Drop the trigger once the\n\
             --    application no longer writes keys into documents:\n\
             --   DROP TRIGGER {gone} ON {whole};\n",
            bare = comment(&self.column),
            look = self.look(),
            moving = self.moving(),
            remove = remove.sql(),
            verify = verification(table, &holding, "documents hold a key that fits its column"),
            gone = comment(&self.trigger),
        )
    }

    /// The way back.
    fn undo(&self) -> String {
        let Migration { table, function, trigger, column, .. } = self;
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
            partitioned: self.target.table.partitions > 0,
            set: &format!("{column} = {document}\n          {parts}"),
            undone: &undone,
            pages: self.pages,
            done: "documents have their keys again",
        };
        let drops = self.each(",\n  ", |key| format!("DROP COLUMN IF EXISTS {}", key.name));
        format!(
            "-- Undo. First change the application to write the keys into the documents again.\n\
             DROP TRIGGER IF EXISTS {trigger} ON {table};\n{back}\n\
             BEGIN;\n-- Drop the columns only if every document has the values of its columns.\n\
             LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE;\n{verify}\
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
            "-- Generated columns: always up to date; the documents keep their size. This rewrites the table under an ACCESS\n\
             -- EXCLUSIVE lock.\nALTER TABLE {}\n  {columns};\n",
            self.table
        )
    }
}

/// Text that cannot end the comment that it stands in.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// What is done to the rows of a batch.
struct Batches<'a> {
    /// Schema and name, quoted.
    table: &'a str,
    /// `SET` list.
    set: &'a str,
    /// Which rows of the table `t` are not done.
    undone: &'a str,
    /// Whether its rows are in partitions: pages of the same number are one batch.
    partitioned: bool,
    /// Pages of a batch.
    pages: u32,
    /// What is told of it.
    done: &'a str,
}

impl Batches<'_> {
    /// A `DO` statement that commits after each batch. What was done before an interruption is not done again.
    fn sql(&self) -> String {
        let Batches { table, set, undone, pages, done, .. } = self;
        let relation = quote_literal(table);
        let size = if self.partitioned {
            format!(
                "(SELECT max(pg_relation_size(relid)) FROM pg_partition_tree({relation}::regclass) WHERE isleaf)"
            )
        } else {
            format!("pg_relation_size({relation}::regclass)")
        };
        block(&format!(
            "DECLARE
  first bigint := 0;
  pages constant bigint := {size} / current_setting('block_size')::bigint;
  rows bigint;
  total bigint := 0;
BEGIN
  WHILE first < pages LOOP
    UPDATE {table} AS t
    SET {set}
    WHERE t.ctid >= format('(%s,0)', first)::tid AND t.ctid < format('(%s,0)', first + {pages})::tid
      AND ({undone});
    GET DIAGNOSTICS rows = ROW_COUNT;
    total := total + rows;
    first := first + {pages};
    COMMIT;
  END LOOP;
  RAISE NOTICE '% {done}', total;
END"
        ))
    }
}

/// A `DO` statement that fails if there are such rows in the table.
fn verification(table: &str, wrong: &str, message: &str) -> String {
    block(&format!(
        "DECLARE
  wrong bigint;
BEGIN
  SELECT count(*) INTO wrong FROM {table} AS t
  WHERE {wrong};
  IF wrong > 0 THEN
    RAISE EXCEPTION '% {message}', wrong;
  END IF;
END"
    ))
}

/// A `DO` statement.
fn block(body: &str) -> String {
    format!("DO {};\n", dollar_quoted(body))
}

/// Text between dollar signs, with a tag that is not in it.
fn dollar_quoted(body: &str) -> String {
    let mut tag = "$toastctl$".to_owned();
    let mut number = 0;
    while body.contains(&tag) {
        number += 1;
        tag = format!("$toastctl{number}$");
    }
    format!("{tag}\n{body}\n{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_cannot_end_its_quotes() {
        assert_eq!(dollar_quoted("x"), "$toastctl$\nx\n$toastctl$");
        let quoted = dollar_quoted("$toastctl$ $toastctl1$");
        assert!(quoted.starts_with("$toastctl2$\n") && quoted.ends_with("\n$toastctl2$"));
    }
}
