//! Which relations the names and patterns of a command line select, which of them are left out because their rows are
//! stored elsewhere, and suggestions for misspelt names.

use std::collections::HashSet;

use tokio_postgres::Row;
use tokio_postgres::types::{Oid as PgOid, ToSql, Type};

use super::LiveError;
use super::connect::{Client, Connection};
use super::pattern::NamePattern;
use crate::disk::Oid;
use crate::model::sql::quote_literal;

/// The maximum number of names in a notice; further ones are only counted.
const LISTED: usize = 10;

/// How a relation was selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// By a name without wildcards.
    Named,
    /// By a pattern, or as one of all tables.
    Matched,
    /// As a partition or an inheritance child of a selected table.
    Inherited,
}

/// A selected relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selected {
    /// `pg_class.oid`.
    pub oid: Oid,
    /// How it was selected.
    pub how: How,
}

/// Why the rows of a relation are not stored here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Elsewhere {
    Foreign,
    Distributed,
}

impl Elsewhere {
    /// The text of a notice about one relation or many.
    fn text(self, many: bool) -> &'static str {
        match (self, many) {
            (Elsewhere::Foreign, false) => {
                "is a foreign table, whose rows are stored on another server"
            }
            (Elsewhere::Foreign, true) => {
                "are foreign tables, whose rows are stored on other servers"
            }
            (Elsewhere::Distributed, false) => {
                "is a table of Citus, whose rows are stored in its shards"
            }
            (Elsewhere::Distributed, true) => {
                "are tables of Citus, whose rows are stored in their shards"
            }
        }
    }
}

/// The relations selected by a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The relations, each once.
    pub found: Vec<Selected>,
    left_out: Vec<(Elsewhere, String)>,
}

impl Selection {
    /// The relations' OIDs.
    pub fn oids(&self) -> Vec<Oid> {
        self.found.iter().map(|found| found.oid).collect()
    }

    /// The relations that are left out: a line for each reason.
    pub fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        for why in [Elsewhere::Foreign, Elsewhere::Distributed] {
            let mut names: Vec<&str> = self
                .left_out
                .iter()
                .filter(|(reason, _)| *reason == why)
                .map(|(_, name)| name.as_str())
                .collect();
            names.sort_unstable();
            names.dedup();
            let more = names.len().saturating_sub(LISTED);
            let text = match names.as_slice() {
                [] => continue,
                [one] => format!("left out: {one} {}", why.text(false)),
                all if more == 0 => format!("left out: {} {}", all.join(", "), why.text(true)),
                all => format!(
                    "left out: {} and {more} more {}",
                    all.get(..LISTED).unwrap_or(all).join(", "),
                    why.text(true)
                ),
            };
            notices.push(text);
        }
        notices
    }

    fn add(&mut self, oid: Oid, how: How) {
        if self.found.iter().all(|found| found.oid != oid) {
            self.found.push(Selected { oid, how });
        }
    }
}

/// A row of `pg_class`.
struct Class {
    oid: Oid,
    kind: String,
    name: String,
}

/// The columns of [`Class`].
const CLASS: &str = "c.oid, c.relkind::pg_catalog.text, \
    pg_catalog.concat(n.nspname, '.', c.relname)::pg_catalog.text";

impl Class {
    fn read(row: &Row) -> Result<Class, LiveError> {
        let oid = Oid(row.try_get::<_, PgOid>(0)?);
        Ok(Class { oid, kind: row.try_get(1)?, name: row.try_get(2)? })
    }
}

/// The relations that `wanted` selects, or all user tables if it is empty.
///
/// A partitioned table selects its partitions, and a table with inheritance children selects itself and the children.
/// It is an error if a name without wildcards is not found or its relation has no tuples here, and if a pattern matches
/// nothing. `database` is the current database, the only one that can be named.
pub async fn select(
    connection: &Connection,
    database: &str,
    wanted: &[String],
) -> Result<Selection, LiveError> {
    let client = connection.client();
    let distributed = distributed(client).await?;
    let mut selection = Selection::default();
    if wanted.is_empty() {
        let sql = format!(
            "SELECT {CLASS} FROM pg_catalog.pg_class AS c \
             JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
             WHERE c.relkind IN ('r', 'm', 'f') AND n.nspname !~ '^pg_' \
             AND n.nspname <> 'information_schema' \
             ORDER BY n.nspname, c.relname"
        );
        for row in client.query_typed(&sql, &[]).await? {
            let class = Class::read(&row)?;
            match elsewhere(&class, &distributed) {
                Some(why) => selection.left_out.push((why, class.name)),
                None => selection.add(class.oid, How::Matched),
            }
        }
        return Ok(selection);
    }
    for want in wanted {
        let before = selection.found.len();
        select_one(connection, database, want, &distributed, &mut selection).await?;
        tracing::debug!("{want}: {:?}", selection.found.get(before..).unwrap_or_default());
    }
    if selection.found.is_empty()
        && let Some(notice) = selection.notices().first()
    {
        return Err(LiveError::AllElsewhere(notice.clone()));
    }
    Ok(selection)
}

/// The partitioned tables that `wanted` selects, including partitioned partitions; those of Citus are left out.
pub async fn partitioned(
    connection: &Connection,
    database: &str,
    wanted: &[String],
) -> Result<Vec<Oid>, LiveError> {
    let client = connection.client();
    let distributed = distributed(client).await?;
    let mut found = Vec::new();
    for want in wanted {
        for named in matching(connection, database, want).await?.1 {
            if named.kind != "p" {
                continue;
            }
            found.push(named.oid);
            let below = below(client, named.oid).await?;
            found.extend(below.iter().filter(|class| class.kind == "p").map(|class| class.oid));
        }
    }
    let mut seen = HashSet::new();
    found.retain(|oid| seen.insert(*oid) && !distributed.contains(oid));
    Ok(found)
}

/// The tables that Citus distributes, if it is installed in this database; they have no rows here.
async fn distributed(client: &Client) -> Result<HashSet<Oid>, LiveError> {
    let there = "SELECT FROM pg_catalog.pg_class AS c \
                 JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
                 WHERE n.nspname = 'pg_catalog' AND c.relname = 'pg_dist_partition'";
    if client.query_typed(there, &[]).await?.is_empty() {
        return Ok(HashSet::new());
    }
    let sql = "SELECT logicalrelid::pg_catalog.oid FROM pg_catalog.pg_dist_partition";
    let rows = client.query_typed(sql, &[]).await?;
    rows.iter().map(|row| Ok(Oid(row.try_get::<_, PgOid>(0)?))).collect()
}

fn elsewhere(class: &Class, distributed: &HashSet<Oid>) -> Option<Elsewhere> {
    match class.kind.as_str() {
        "f" => Some(Elsewhere::Foreign),
        _ if distributed.contains(&class.oid) => Some(Elsewhere::Distributed),
        _ => None,
    }
}

async fn select_one(
    connection: &Connection,
    database: &str,
    given: &str,
    distributed: &HashSet<Oid>,
    selection: &mut Selection,
) -> Result<(), LiveError> {
    let (literal, matches) = matching(connection, database, given).await?;
    let how = if literal { How::Named } else { How::Matched };
    let mut any = false;
    for class in matches {
        if let Some(why) = elsewhere(&class, distributed) {
            if literal {
                return Err(stored_elsewhere(why, &class.name));
            }
            selection.left_out.push((why, class.name));
            any = true;
            continue;
        }
        match class.kind.as_str() {
            "r" | "p" => {
                if class.kind == "r" {
                    selection.add(class.oid, how);
                }
                for child in below(connection.client(), class.oid).await? {
                    match elsewhere(&child, distributed) {
                        Some(why) => selection.left_out.push((why, child.name)),
                        None if child.kind == "r" => selection.add(child.oid, How::Inherited),
                        None => {}
                    }
                }
            }
            "m" => selection.add(class.oid, how),
            // TOAST relations can be named, but `*` does not match them.
            "t" if literal => selection.add(class.oid, how),
            _ if literal => return Err(wrong_kind(&class.kind, &format!("\"{}\"", class.name))),
            _ => continue,
        }
        any = true;
    }
    if any {
        Ok(())
    } else if literal {
        let hint = tables(connection, given).await?;
        Err(LiveError::NoSuchRelation { name: quoted(given), hint })
    } else {
        Err(LiveError::NoMatch(quoted(given)))
    }
}

/// A name in the quotes used in messages, unless it contains quotes.
fn quoted(given: &str) -> String {
    if given.contains('"') { given.to_owned() } else { format!("\"{given}\"") }
}

/// The partitions or inheritance children of a relation, at any depth, by name.
async fn below(client: &Client, oid: Oid) -> Result<Vec<Class>, LiveError> {
    let sql = format!(
        "WITH RECURSIVE below (oid) AS (\
             SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = $1 \
           UNION \
             SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN below AS b ON i.inhparent = b.oid) \
         SELECT {CLASS} FROM below AS b JOIN pg_catalog.pg_class AS c ON c.oid = b.oid \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         ORDER BY c.relname, n.nspname"
    );
    let rows = client.query_typed(&sql, &[(&oid.0, Type::OID)]).await?;
    rows.iter().map(Class::read).collect()
}

/// All relations that match `given`, and whether it has no wildcards.
async fn matching(
    connection: &Connection,
    database: &str,
    given: &str,
) -> Result<(bool, Vec<Class>), LiveError> {
    let pattern = NamePattern::parse(given).map_err(LiveError::Pattern)?;
    if let Some(other) = pattern.database.as_deref().filter(|name| *name != database) {
        return Err(LiveError::OtherDatabase { given: given.to_owned(), other: other.to_owned() });
    }
    let literal = pattern.literal().is_some();
    let visible = visible(connection.schemas());
    let condition = pattern.condition("n.nspname", "c.relname", &visible, 1);
    let sql = format!(
        "SELECT {CLASS} FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE {} ORDER BY n.nspname, c.relname",
        condition.sql
    );
    let parameters: Vec<(&(dyn ToSql + Sync), Type)> =
        condition.parameters.iter().map(|text| (text as &(dyn ToSql + Sync), Type::TEXT)).collect();
    let rows = connection.client().query_typed(&sql, &parameters).await?;
    let classes: Result<Vec<Class>, LiveError> = rows.iter().map(Class::read).collect();
    Ok((literal, classes?))
}

fn stored_elsewhere(why: Elsewhere, name: &str) -> LiveError {
    let (kind, hint) = match why {
        Elsewhere::Foreign => {
            ("a foreign table", "its rows are stored on another server: connect to that one")
        }
        Elsewhere::Distributed => (
            "a table of Citus",
            "its rows are stored in shards, which its view citus_shards lists: nothing is stored here",
        ),
    };
    LiveError::WrongKind { name: format!("\"{name}\""), kind, hint }
}

fn wrong_kind(relkind: &str, name: &str) -> LiveError {
    let (kind, hint) = match relkind {
        "v" => ("a view", "name the tables that it reads"),
        "i" | "I" => ("an index", "name its table"),
        "S" => ("a sequence", "it has no columns that could be toasted"),
        "c" => ("a composite type", "name a table"),
        _ => ("no table", "name a table, a materialized view or a TOAST relation"),
    };
    LiveError::WrongKind { name: name.to_owned(), kind, hint }
}

/// The maximum number of suggestions.
const SHOWN: usize = 3;

/// The `names` that differ from `wanted` in few letters, the most similar first.
pub fn similar<'a>(wanted: &str, names: &'a [String]) -> Vec<&'a str> {
    let bare = |name: &str| name.rsplit('.').next().unwrap_or(name).to_lowercase();
    let wanted = bare(&wanted.replace('"', ""));
    let allowed = (wanted.chars().count() / 3).max(1);
    // An unquoted name that contains a blank ends at the blank.
    let is_begun =
        |name: &str| name.strip_prefix(&wanted).is_some_and(|rest| rest.starts_with(' '));
    let mut found: Vec<(usize, &str)> =
        names.iter().map(|name| (distance(&wanted, &bare(name)), name.as_str())).collect();
    let is_close = |(distance, _): &(usize, &str)| *distance <= allowed;
    if found.iter().any(is_close) {
        found.retain(is_close);
    } else {
        found.retain(|(_, name)| is_begun(&bare(name)));
    }
    found.sort_unstable();
    found.into_iter().take(SHOWN).map(|(_, name)| name).collect()
}

/// The number of letters to insert, remove, change or swap with their neighbor to turn one word into the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut last: Vec<usize> = Vec::new();
    let mut line: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let at = |line: &[usize], j: usize| line.get(j).copied().unwrap_or(usize::MAX / 2);
            let mut least = (at(&line, j) + usize::from(a != b))
                .min(at(&line, j + 1) + 1)
                .min(at(&next, j) + 1);
            if i > 0 && j > 0 && one.get(i - 1) == Some(b) && other.get(j - 1) == Some(a) {
                least = least.min(at(&last, j - 1) + 1);
            }
            next.push(least);
        }
        last = std::mem::replace(&mut line, next);
    }
    line.last().copied().unwrap_or(0)
}

/// A hint, on a separate line, for a table that does not exist; empty if there is no suggestion.
pub async fn tables(connection: &Connection, wanted: &str) -> Result<String, LiveError> {
    let sql = format!(
        "SELECT CASE WHEN {} THEN '' ELSE n.nspname::pg_catalog.text || '.' END \
                || c.relname::pg_catalog.text \
         FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'm', 'p') AND n.nspname <> 'information_schema' \
         AND n.nspname !~ '^pg_' ORDER BY 1 LIMIT 10000",
        visible(connection.schemas())
    );
    let rows = connection.client().query_typed(&sql, &[]).await?;
    let names: Vec<String> =
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, tokio_postgres::Error>>()?;
    if names.is_empty() {
        return Ok("\nHINT:  This database has no tables; -d names another one.".into());
    }
    let similar = similar(wanted, &names);
    let found: Vec<String> = similar.iter().map(|name| format!("\"{name}\"")).collect();
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.');
    let quotes = match similar.iter().find(|name| !name.chars().all(is_plain)) {
        Some(name) if name.contains(['.', '"', '\'']) => {
            " Such a name needs double quotes, inside single quotes for the shell.".to_owned()
        }
        Some(name) => format!(" Quote it: '\"{name}\"'."),
        None => String::new(),
    };
    Ok(match found.as_slice() {
        [] => String::new(),
        [one] => format!("\nHINT:  Perhaps you meant the table {one}.{quotes}"),
        several => {
            format!("\nHINT:  Perhaps you meant one of the tables {}.{quotes}", several.join(", "))
        }
    })
}

/// The condition that the user's own session finds a relation by its unqualified name. `pg_table_is_visible` would use
/// the search path of the current session.
pub(super) fn visible(schemas: &[String]) -> String {
    let list: Vec<String> = schemas.iter().map(|schema| quote_literal(schema)).collect();
    let path = format!("ARRAY[{}]::pg_catalog.name[]", list.join(", "));
    let place = |schema: &str| format!("pg_catalog.array_position({path}, {schema})");
    format!(
        "{place} IS NOT NULL AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c2 \
         JOIN pg_catalog.pg_namespace AS n2 ON n2.oid = c2.relnamespace \
         WHERE c2.relname = c.relname AND {place2} < {place})",
        place = place("n.nspname"),
        place2 = place("n2.nspname"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said_once_for_each_reason() {
        let foreign = |name: &str| (Elsewhere::Foreign, name.to_owned());
        let mut selection = Selection::default();
        assert!(selection.notices().is_empty());
        selection.left_out = vec![foreign("s.b"), foreign("s.a"), foreign("s.b")];
        selection.left_out.push((Elsewhere::Distributed, "s.d".into()));
        assert_eq!(
            selection.notices(),
            [
                "left out: s.a, s.b are foreign tables, whose rows are stored on other servers",
                "left out: s.d is a table of Citus, whose rows are stored in its shards",
            ]
        );
        selection.left_out = (0..13).map(|n| foreign(&format!("s.f{n:02}"))).collect();
        let notices = selection.notices();
        assert!(notices[0].contains("s.f09 and 3 more are foreign tables"), "{notices:?}");
    }

    #[test]
    fn slips_of_the_keyboard_are_understood() {
        let names = ["orders", "order_items", "app.customers", "log"].map(str::to_owned);
        assert_eq!(similar("ordres", &names), ["orders"]);
        assert_eq!(similar("public.Orders", &names), ["orders"]);
        assert_eq!(similar("custmers", &names), ["app.customers"]);
        assert_eq!(similar("logs", &names), ["log"]);
        assert_eq!(similar("images", &names), [""; 0]);
    }

    #[test]
    fn distances() {
        for (one, other, letters) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "", 3),
            ("ab", "ba", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(one, other), letters, "{one} {other}");
            assert_eq!(distance(other, one), letters, "{other} {one}");
        }
    }
}
