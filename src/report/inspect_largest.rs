//! The largest columns of all tables that `inspect` has read.

use super::table::{Grid, Head};
use super::units::{percent, size};
use crate::inspect::result::{ColumnReport, RelationReport};

/// Columns that are named.
const NAMED: usize = 15;

/// Gathers them.
#[derive(Debug, Default)]
pub(super) struct Largest {
    columns: Vec<(u64, Vec<String>)>,
    /// Bytes of all columns.
    held: u64,
    /// Bytes of heaps, TOAST relations and their indexes.
    files: u64,
    relations: u64,
}

impl Largest {
    /// Adds a relation.
    pub(super) fn add(&mut self, relation: &RelationReport) {
        self.relations += 1;
        let toast = relation.toast.as_ref();
        for bytes in [
            relation.heap.bytes,
            toast.and_then(|toast| toast.bytes),
            toast.and_then(|toast| toast.index_bytes),
        ] {
            self.files = self.files.saturating_add(bytes.unwrap_or(0));
        }
        for column in &relation.columns {
            let bytes = bytes_of(relation, column);
            let cells = vec![
                // narrow terminals have no room for what says nothing
                relation.relation.trim_start_matches("public.").to_owned(),
                column.column.clone(),
                column.type_name.clone(),
                column.storage.into(),
                size(bytes),
            ];
            self.held = self.held.saturating_add(bytes);
            self.columns.push((bytes, cells));
        }
        self.columns.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        self.columns.truncate(NAMED);
    }

    /// Whether there is anything to compare.
    pub(super) fn are_several(&self) -> bool {
        self.relations > 1
    }

    /// What the grid shows, in a line.
    pub(super) fn title(&self) -> String {
        let of = if self.relations == 1 {
            "1 table".to_owned()
        } else {
            format!("{} tables", self.relations)
        };
        format!("largest columns of {of}, {} without other indexes:", size(self.files))
    }

    /// What is no column's.
    pub(super) fn rest(&self) -> Option<String> {
        let rest = self.files.saturating_sub(self.held);
        (rest > 0)
            .then(|| format!("The rest, {}, is headers, free space and dead rows.", size(rest)))
    }

    /// A row for each column.
    pub(super) fn grid(&self) -> Grid {
        let mut grid = Grid::new(&[
            Head::text("Table", 0),
            Head::text("Column", 0),
            Head::text("Type", 2),
            Head::text("Storage", 1),
            Head::number("Disk", 0),
            Head::number("Share", 0),
        ]);
        for (bytes, cells) in &self.columns {
            let share = if self.files > 0 { *bytes as f64 / self.files as f64 } else { 0.0 };
            grid.row([&cells[..], &[percent(share.min(1.0))]].concat());
        }
        grid
    }
}

/// What a column takes of its relation's files, as far as known: its share where that was computed, for it has
/// headers and free space in it.
fn bytes_of(relation: &RelationReport, column: &ColumnReport) -> u64 {
    let toast = relation.toast.as_ref();
    let files = relation.heap.bytes.map(|heap| {
        let toast = toast.map_or(0, |t| t.bytes.unwrap_or(0) + t.index_bytes.unwrap_or(0));
        heap.saturating_add(toast)
    });
    match (files, column.share) {
        (Some(files), Some(share)) => (files as f64 * share) as u64,
        _ => column.stored_bytes.unwrap_or(0).saturating_add(column.pointer_bytes),
    }
}
