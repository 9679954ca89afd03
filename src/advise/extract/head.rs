//! The comments before a migration: what it is, what it does not look at, and what is to be looked at.

use super::kind::KeyType;
use super::migration::Migration;

/// The comments. `together` is the expression that puts a document together again.
pub(super) fn head(migration: &Migration<'_>, together: &str) -> String {
    let Migration { table, column, keys, around, .. } = migration;
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
        comment(column),
        comment(&table.display_name()),
    );
    for key in *keys {
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
    for line in together.lines() {
        out.push_str(&format!("--   {}\n", comment(line)));
    }
    let mut list = |what: &str, names: &[String]| {
        if !names.is_empty() {
            out.push_str(&format!("-- {what}\n"));
            names.iter().for_each(|name| out.push_str(&format!("--   {}\n", comment(name))));
        }
    };
    list(
        "These depend on the column, and find no keys in it once they have left: change those that read them. Step 4\n\
         -- stops for what there is then, unless psql is given -v seen=1 too:",
        &around.dependents,
    );
    list(
        "These triggers fire for every row that is changed here. One that comes after the script's own by its name must\n\
         -- not change the document, nor one that is for updates of other columns:",
        &around.triggers,
    );
    list("Published by these: subscribers need the columns first:", &around.publications);
    out.push_str(
        "-- Functions and statements that read the keys in the document are not looked at here. SELECT * gives the new\n\
         -- columns too.\n",
    );
    out
}

/// Text that cannot end the comment that it stands in.
pub(super) fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
