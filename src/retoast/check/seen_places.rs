//! Whether scans see which values are out of line, and whether the choice is about that (pure).

use super::ready::Ready;
use crate::disk::desc::Storage;
use crate::judge::Judge;
use crate::server::about::Server;

/// What is said where they do not.
pub(crate) const NOTE: &str = "without pages the place of values, in the row or out of line, is not compared \
     with the choice, and nothing is moved for its place alone; a superuser with the extension \
     pageinspect sees it";

/// Whether scans see it: on pages always; `pg_column_toast_chunk_id`, from PostgreSQL 17 on, tells it to a policy
/// and to storage `plain`, whose verdicts need no more than that.
pub(crate) fn are_seen(ready: &Ready, pages: bool, server: &Server) -> bool {
    pages || server.has_toast_chunk_id() && answers(ready)
}

fn answers(ready: &Ready) -> bool {
    matches!(ready.judge, Judge::Policy(_)) || ready.toaster.storage() == Storage::Plain
}

/// Whether the place is part of the choice: with a `toast_tuple_target` of the table's own, a policy, or where a
/// column's storage is or was one that keeps values in the row. Else the server moves out of line what it always
/// has, and a choice is about compression alone.
pub(crate) fn are_chosen(ready: &Ready, server: &Server) -> bool {
    let in_row = |storage| matches!(storage, Storage::Main | Storage::Plain);
    let was = |index: usize| ready.relation.desc.attributes.get(index).map(|column| column.storage);
    matches!(ready.judge, Judge::Policy(_))
        || ready.changes.target.is_some()
        || ready.relation.tuple_target(server.page_size).is_some()
        || in_row(ready.toaster.storage())
        || ready.targets.iter().any(|target| was(target.index).is_some_and(in_row))
}
