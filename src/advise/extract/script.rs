//! The migration to columns for keys, as a script for psql.
//!
//! Whatever a document held can be put together again: a value leaves it only if the column gives the same value
//! back, and a key that is missing, or is `null` where the column has another type than `jsonb`, is told apart.

use super::around::{Around, OWN};
use super::batches::dollar_quoted;
use super::head::head;
use super::kind::KeyType;
use super::migration::{Migration, Moving};
use crate::model::sql::{quote_identifier, quote_literal, quote_qualified};

/// Rows that one transaction changes, about.
pub(super) const BATCH_ROWS: f64 = 1000.0;
/// Bytes of the longest name.
const LONGEST_NAME: usize = 63;

/// What tells the function that moves keys from the one that only copies them.
pub(super) const MOVES: &str = "keys leave the document";

/// A key with its SQL.
pub(super) struct Key {
    /// As a literal.
    pub(super) literal: String,
    /// The column, quoted.
    pub(super) name: String,
    /// Its name as a literal.
    pub(super) name_literal: String,
    pub(super) kind: KeyType,
}

impl Key {
    /// The key of a document, as `jsonb`.
    pub(super) fn held(&self, document: &str) -> String {
        format!("{document} -> {}", self.literal)
    }

    /// The condition that the document has the key.
    pub(super) fn is_held(&self, document: &str) -> String {
        format!("({}) IS NOT NULL", self.held(document))
    }

    /// The condition that the document has the key, with a value that the column can hold.
    pub(super) fn fits(&self, document: &str) -> String {
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
    pub(super) fn value(&self, document: &str) -> String {
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
            "{head}\n\\set ON_ERROR_STOP on\n\\encoding UTF8\nSET search_path = pg_catalog, pg_temp;\n\
             SET lock_timeout = '5s';\nSET statement_timeout = 0;\n\
             -- Fails if row security would hide rows here.\nSET row_security = off;\n\
             SELECT EXISTS (SELECT FROM {table}) AS has_rows \\gset\n\n\
             \\if :{{?undo}}\n\n{undo}\n\\elif :{{?stay}}\n\n{stay}\n\\else\n\n{add}\n\\if :{{?remove}}\n\n{remove}\n\\endif\n\\endif\n",
            head = head(self, &parts.together()),
            table = parts.table,
            undo = parts.undo(),
            stay = parts.stay(),
            add = parts.add(),
            remove = parts.remove(self.command, self.has_toasters),
        )
    }
}

/// The pieces of the statements.
pub(super) struct Parts<'a> {
    pub(super) table: String,
    pub(super) partitioned: bool,
    pub(super) function: String,
    /// Of the trigger and its function.
    pub(super) name: String,
    pub(super) trigger: String,
    pub(super) column: String,
    pub(super) column_name: String,
    pub(super) keys: Vec<Key>,
    pub(super) pages: u32,
    pub(super) around: &'a Around,
}

impl<'a> Parts<'a> {
    fn of(migration: &Migration<'a>) -> Parts<'a> {
        let Migration { table, column, keys, rows_per_page, around, .. } = *migration;
        // the new columns are this migration's alone, and so is a name with the first of them
        let first = keys.first().map_or("", |key| key.name);
        let mut name = format!("{OWN}{}.{first}", table.name);
        if name.len() > LONGEST_NAME {
            let digest = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
            });
            name = format!("{OWN}{}.{digest:x}", table.oid.0);
        }
        let key = |key: &Moving<'_>| Key {
            literal: quote_literal(key.key),
            name: quote_identifier(key.name),
            name_literal: quote_literal(key.name),
            kind: key.kind,
        };
        Parts {
            table: table.quoted(),
            partitioned: table.partitions > 0,
            function: quote_qualified(&table.schema, &name),
            trigger: quote_identifier(&name),
            name,
            column: quote_identifier(column),
            column_name: column.to_owned(),
            keys: keys.iter().map(key).collect(),
            pages: (BATCH_ROWS / rows_per_page.max(1.0) / f64::from(table.partitions.max(1)))
                .ceil()
                .clamp(1.0, 1e6) as u32,
            around,
        }
    }

    /// The document of table `t`.
    pub(super) fn document(&self) -> String {
        format!("t.{}", self.column)
    }

    pub(super) fn each(&self, between: &str, one: impl Fn(&Key) -> String) -> String {
        self.keys.iter().map(one).collect::<Vec<_>>().join(between)
    }

    /// Documents of table `t` that hold a key which its column can take.
    pub(super) fn holding(&self) -> String {
        let document = self.document();
        self.each("\n       OR ", |key| key.fits(&document))
    }

    /// The columns of table `t` as its document has them; what it does not have stays.
    pub(super) fn filled(&self) -> String {
        let document = self.document();
        self.each(",\n        ", |key| {
            format!("{0} = coalesce({1}, t.{0})", key.name, key.value(&document))
        })
    }

    /// Columns of table `t` that do not give the value in the document back.
    pub(super) fn differing(&self) -> String {
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
    pub(super) fn together(&self) -> String {
        let parts = self.each("\n  || ", |key| {
            format!(
                "CASE WHEN {0} IS NULL THEN '{{}}' ELSE jsonb_build_object({1}, {0}) END",
                key.name, key.literal
            )
        });
        format!("coalesce({0} || nullif('{{}}'::jsonb\n  || {parts}, '{{}}'), {0})", self.column)
    }

    pub(super) fn function(&self, body: &str) -> String {
        format!(
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger\nLANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS {};\n",
            self.function,
            dollar_quoted(&format!("BEGIN\n{body}  RETURN NEW;\nEND"))
        )
    }

    /// Columns follow their documents.
    pub(super) fn follow(&self) -> String {
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
    pub(super) fn moving(&self) -> String {
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
}
