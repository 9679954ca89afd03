//! A check of saved pages: what psql printed for `get_raw_page`.

use std::io::{self, Read};

use super::collector::Collector;
use super::files::{Tell, UNKNOWN};
use super::judged::Checked;
use super::subject::{Depth, Subject};
use super::value::Toast;
use crate::disk::custom::CustomFlavor;
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::model::visibility::HintBits;
use crate::offline::saved::{
    self, Form, Kind, LineNumber, SavedAttributes, SavedError, SavedItem, SavedPage, SavedSink,
};

/// Why saved pages could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum SavedCheckError {
    /// The text cannot be read.
    #[error("{0}")]
    Unreadable(io::Error),
    /// A finding could not be told.
    #[error("{0}")]
    Untold(io::Error),
}

/// Checks the pages in `text`, which stands for `name`. Chunks are not at hand.
///
/// # Errors
/// Where the text cannot be read at all, or `tell` fails.
pub fn saved_pages(
    name: &str,
    text: impl Read,
    desc: &TupleDesc,
    depth: Depth,
    tell: &mut Tell<'_>,
) -> Result<Checked, SavedCheckError> {
    let checked = Checked::of(name);
    let mut pages = Pages { name, desc, depth, tell, checked, untold: None };
    saved::read(text, &mut pages).map_err(SavedCheckError::Unreadable)?;
    let Pages { mut checked, untold, .. } = pages;
    if let Some(error) = untold {
        return Err(SavedCheckError::Untold(error));
    }
    if checked.looked.values > 0 {
        checked.note("values out of line were not looked at: their chunks are not at hand");
        checked.is_incomplete = true;
    }
    if checked.looked.blocks == 0 && !checked.is_incomplete {
        checked.note("there are no pages");
        checked.is_incomplete = true;
    }
    Ok(checked)
}

/// What is found in the pages as they come.
struct Pages<'a, 't> {
    name: &'a str,
    desc: &'a TupleDesc,
    depth: Depth,
    tell: &'a mut Tell<'t>,
    checked: Checked,
    /// Why a finding could not be told.
    untold: Option<io::Error>,
}

impl SavedSink for Pages<'_, '_> {
    fn begin(&mut self, _line: LineNumber, _form: Form, kind: Kind) {
        if kind != Kind::Pages {
            self.checked.note("only whole pages are checked, as get_raw_page gives them");
            self.checked.is_incomplete = true;
        }
    }

    fn item(&mut self, _item: SavedItem) {}

    fn attributes(&mut self, _row: SavedAttributes) {}

    fn page(&mut self, page: SavedPage) {
        if self.has_enough() {
            return;
        }
        let checked = &mut self.checked;
        let subject = Subject {
            source: self.name,
            desc: self.desc,
            page_size: PageSize::new(page.bytes.len()).unwrap_or_default(),
            flavor: CustomFlavor::Auto,
            toast: Toast::Unknown,
            xids: None,
            commit_status: None,
            // the server's buffers are ahead of their checksums
            checksums: false,
            depth: self.depth,
        };
        let mut collector = Collector::new(&subject, None);
        let block = page.block.unwrap_or_default();
        subject.check_page(block, &page.bytes, &HintBits, &mut collector);
        checked.looked.blocks += 1;
        checked.looked.add(&collector.looked);
        checked.looked.values += collector.externals.len() as u64;
        if collector.unknown > 0 {
            checked.note(UNKNOWN);
            checked.is_incomplete = true;
        }
        for finding in collector.findings {
            checked.count(&finding);
            if let Err(error) = (self.tell)(finding) {
                self.untold = Some(error);
                break;
            }
        }
    }

    fn error(&mut self, error: SavedError) {
        self.checked.note(format!("line {}: {}", error.line.0, error.problem));
        self.checked.is_incomplete = true;
    }

    fn has_enough(&self) -> bool {
        self.untold.is_some()
    }
}
