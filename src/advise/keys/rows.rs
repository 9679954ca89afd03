//! The documents on a page (pure).

use crate::disk::custom::CustomFlavor;
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::disk::page::{Page, PageState};
use crate::disk::pointer::ToastPointer;
use crate::disk::tuple::HeapTuple;
use crate::disk::varlena::Varlena;
use crate::disk::walk::{Datum, Walk};
use crate::disk::{BlockNumber, ByteOrder, ItemPointer};
use crate::heap::problem::{Place, Problem, Problems};
use crate::heap::scan::{Item, items};
use crate::model::stored::StoredValue;
use crate::model::visibility::Visibility;

/// A document in a live row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Document<'p> {
    pub(super) ctid: ItemPointer,
    /// Which of the columns that were asked for it is of.
    pub(super) slot: usize,
    pub(super) datum: Varlena<'p>,
    pub(super) stored: StoredValue,
    /// Bytes of its row's tuple.
    pub(super) tuple: u32,
    pub(super) order: ByteOrder,
}

impl Document<'_> {
    /// Where it is, if it is out of line.
    pub(super) fn pointer(&self) -> Option<ToastPointer> {
        match self.datum {
            Varlena::External(pointer) => Some(pointer),
            _ => None,
        }
    }
}

/// How a relation's pages are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout<'a> {
    pub(super) name: &'a str,
    pub(super) desc: &'a TupleDesc,
    /// Indexes of the columns with documents.
    pub(super) columns: &'a [usize],
    pub(super) page: PageSize,
    pub(super) flavor: CustomFlavor,
}

impl Layout<'_> {
    /// The documents in the rows of a page that `judge` finds not dead. Defaults of columns that are younger than
    /// their rows stand in no row.
    pub(super) fn documents<'p>(
        &self,
        (block, bytes): (BlockNumber, &'p [u8]),
        mut judge: impl FnMut(ItemPointer, &HeapTuple<'_>) -> Visibility,
        problems: &mut Problems,
    ) -> Vec<Document<'p>> {
        let place = |item| Place { block: Some(block), item, ..Place::of(self.name) };
        let page = match Page::parse(bytes) {
            Ok(PageState::Used(page)) => page,
            Ok(PageState::New) => return Vec::new(),
            Err(error) => {
                problems.add(Problem { place: place(None), message: error.to_string() });
                return Vec::new();
            }
        };
        let mut found = Vec::new();
        for (ctid, item) in items(block, &page) {
            match item {
                Item::Unused | Item::Redirect | Item::Dead => {}
                Item::Damaged(message) => {
                    problems.add(Problem { place: place(Some(ctid.item)), message });
                }
                Item::Tuple(tuple, length) => {
                    if judge(ctid, &tuple) == Visibility::Dead {
                        continue;
                    }
                    let row = (ctid, &tuple, u32::from(length));
                    if let Err((column, byte, message)) = self.row(row, &mut found) {
                        let at = Place { column, byte: Some(byte), ..place(Some(ctid.item)) };
                        problems.add(Problem { place: at, message });
                    }
                }
            }
        }
        found
    }

    /// Adds the documents of a row. What cannot be read: the column, the byte, and why.
    fn row<'p>(
        &self,
        (ctid, tuple, length): (ItemPointer, &HeapTuple<'p>, u32),
        found: &mut Vec<Document<'p>>,
    ) -> Result<(), (Option<String>, usize, String)> {
        let mut walk = Walk::with_flavor(tuple, self.desc, self.flavor);
        loop {
            let index = walk.index();
            let Some(walked) = walk.next() else { return Ok(()) };
            let (column, datum) = walked.map_err(|error| {
                let column = self.desc.attributes.get(error.index);
                (column.map(|column| column.name.clone()), error.byte, error.to_string())
            })?;
            let Some(slot) = self.columns.iter().position(|&wanted| wanted == index) else {
                continue;
            };
            if let Datum::Varlena(varlena) = datum {
                let stored = StoredValue::of(&datum, column, self.page);
                let order = tuple.order;
                found.push(Document { ctid, slot, datum: varlena, stored, tuple: length, order });
            }
        }
    }
}
