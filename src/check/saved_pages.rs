//! A check of saved pages, whose chunks are not at hand.

use std::io::{self, Read};

use super::collector::Collector;
use super::finding::{CheckError, Checked};
use super::relation_run::{RelationRun, Tell};
use super::subject::{Depth, PageOwner, Subject};
use super::value::Toast;
use crate::offline::saved::{self, RowKind, SavedError, SavedRow, SavedSink};
use toast_format::disk::type_kind::Types;
use toast_format::disk::{CustomFlavor, PageSize, TupleDesc};
use toast_format::model::HintBits;

/// Checks the pages in `text`, which stands for `name`.
///
/// # Errors
/// Where the text cannot be read at all, or `tell` fails.
pub(crate) fn check(
    name: &str,
    text: impl Read,
    desc: &TupleDesc,
    depth: Depth,
    tell: &mut Tell<'_>,
) -> Result<Checked, CheckError> {
    let run = RelationRun::new(name, depth, None, tell);
    let mut pages = SavedPagesCheck { name, desc, depth, run, untold: Ok(()) };
    saved::read(text, &mut pages).map_err(CheckError::Text)?;
    let SavedPagesCheck { mut run, untold, .. } = pages;
    untold?;
    run.end_rows();
    let mut checked = run.checked;
    if checked.looked.values > 0 {
        checked.leave_out("values out of line were not checked: their chunks are not available");
    }
    if checked.looked.blocks == 0 && !checked.is_incomplete {
        checked.leave_out("there are no pages");
    }
    Ok(checked)
}

/// Checks saved pages as they are read.
struct SavedPagesCheck<'a> {
    name: &'a str,
    desc: &'a TupleDesc,
    depth: Depth,
    run: RelationRun<'a>,
    /// Why a finding could not be told.
    untold: io::Result<()>,
}

impl SavedSink for SavedPagesCheck<'_> {
    fn begin(&mut self, kind: RowKind) {
        if kind != RowKind::Pages {
            self.run.checked.leave_out("only whole pages are checked, as get_raw_page gives them");
        }
    }

    fn row(&mut self, kind: RowKind, row: SavedRow) {
        let Some(page) = row.page else { return };
        if kind != RowKind::Pages || self.has_enough() {
            return;
        }
        let types = Types::default();
        let subject = Subject {
            source: self.name,
            pages: if row.block.is_some() { PageOwner::Table } else { PageOwner::Unplaced },
            desc: self.desc,
            page_size: PageSize::new(page.len()).unwrap_or_default(),
            flavor: CustomFlavor::Auto,
            toast: Toast::Unknown,
            xids: None,
            commit_status: None,
            wal_end: None,
            map: None,
            is_newer: false,
            ignores_hoff: false,
            // the server's buffers are ahead of their checksums
            checksums: false,
            depth: self.depth,
            types: &types,
        };
        let mut collector = Collector::new(&subject, None);
        let block = row.block.unwrap_or_default();
        subject.check_page(block, &page, &HintBits, &mut collector);
        let mut blocks = collector.blocks;
        blocks.looked.blocks = 1;
        blocks.looked.values += collector.externals.len() as u64;
        self.untold = self.run.add(&mut blocks);
    }

    fn error(&mut self, error: SavedError) {
        self.run.checked.leave_out(format!("line {}: {}", error.line, error.problem));
    }

    fn has_enough(&self) -> bool {
        self.untold.is_err()
    }
}
