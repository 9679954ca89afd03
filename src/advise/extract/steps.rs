//! What a migration does, step by step.

use super::around::{Grant, dependents};
use super::batches::{Batches, block, verification};
use super::head::comment;
use super::script::{BATCH_ROWS, MOVES, Parts};
use crate::model::sql::quote_literal;

impl Parts<'_> {
    /// Steps 1 to 3.
    pub(super) fn add(&self) -> String {
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
            partitioned: self.partitioned,
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
             ALTER TABLE {table}\n  {columns};\n{grants}{follow}\
             CREATE OR REPLACE TRIGGER {trigger} BEFORE INSERT OR UPDATE OF {column}, {names} ON {table}\n  \
             FOR EACH ROW EXECUTE FUNCTION {function}();\n{always}COMMIT;\n\\endif\n\n\
             -- 2. Rows that were there before, about {rows:.0} in a transaction.\n{fill}\n\
             VACUUM {table};\n\n\
             -- 3. Every column gives back what its document holds.\n{verify}",
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
                "documents hold a key that their column does not give back"
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
        self.around.grants.iter().map(one).collect()
    }

    /// What a subscription writes fires no ordinary trigger.
    fn always(&self) -> String {
        if !self.around.subscribed {
            return String::new();
        }
        format!("ALTER TABLE {} ENABLE ALWAYS TRIGGER {};\n", self.table, self.trigger)
    }

    /// Stops where something depends on the documents' column.
    fn look(&self) -> String {
        let relation = format!("{}::regclass", quote_literal(&self.table));
        let number = format!(
            "(SELECT attnum FROM pg_attribute WHERE attrelid = {relation} AND attname = {})",
            quote_literal(&self.column_name)
        );
        let stop = block(&format!(
            "DECLARE\n  objects text;\nBEGIN\n  SELECT string_agg(object, E'\\n' ORDER BY object) INTO objects FROM (\n  {}) AS d;\n  \
             IF objects IS NOT NULL THEN\n    RAISE EXCEPTION 'there are objects that depend on the documents'\n      \
             USING DETAIL = objects, HINT = 'Change those that read the keys, then run this with -v seen=1 too.';\n  \
             END IF;\nEND",
            dependents(&relation, &number)
        ));
        format!("\\if :{{?seen}}\n\\elif :keys_leave\n\\else\n{stop}\\endif\n")
    }

    /// Steps 4 to 7.
    pub(super) fn remove(&self, command: &str, has_toasters: bool) -> String {
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
            partitioned: self.partitioned,
            set: &set,
            undone: &holding,
            pages: self.pages,
            done: "documents freed of their keys",
        };
        let (command, whole) = (comment(command), comment(table));
        let rewriting = match has_toasters {
            true => format!(", online:\n--   {command}"),
            false => format!(
                ", and free space given back, online:\n--   {command}\n--    Or in psql, which locks the table \
                 meanwhile:\n--   VACUUM FULL {whole};"
            ),
        };
        format!(
            "-- 4. From now on the columns count; keys that still arrive in a document are moved to them.\n\
             --    A document without a key leaves the column as it is: set it to NULL to remove the key.\n\
             --    INSERT ... ON CONFLICT DO UPDATE SET {bare} = excluded.{bare} finds the keys in the columns of excluded.\n\
             {look}BEGIN;\n{moving}COMMIT;\n\n\
             -- 5. The keys leave the documents that have them.\n{remove}\n\
             VACUUM (ANALYZE) {table};\n\n\
             -- 6. None is left that its column could hold.\n{verify}\n\
             -- 7. In the shell: what is stored as if it were written anew{rewriting}\n\n\
             -- 8. As long as there is the trigger every update of one of the columns reads its document. Once no key is\n\
             --    written into documents any more it can go:\n\
             --   DROP TRIGGER {gone} ON {whole};\n",
            bare = comment(&self.column),
            look = self.look(),
            moving = self.moving(),
            remove = remove.sql(),
            verify =
                verification(table, &holding, "documents hold a key that its column could hold"),
            gone = comment(&self.trigger),
        )
    }

    /// The way back.
    pub(super) fn undo(&self) -> String {
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
            partitioned: self.partitioned,
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
    pub(super) fn stay(&self) -> String {
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
