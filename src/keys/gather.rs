//! The documents of a sample, from any source: found on pages, reassembled from their chunks, and added up.

use std::borrow::Cow;

use super::cost::{StoredDocument, TableTerms};
use super::figures::{InBlocks, Table};
use super::language::DocumentLanguage;
use super::result::{KeysReport, Looked, Subject};
use super::tree::{Of, Tree};
use crate::advise::plan::{Done, SamplePlan};
use toast_format::disk::jsonb_of_text::jsonb;
use toast_format::disk::{
    BlockNumber, ByteOrder, CustomFlavor, Datum, ItemPointer, ToastPointer, TupleDesc, Varlena,
    Walk,
};
use toast_format::heap::problem::{Place, Problem, Problems};
use toast_format::heap::scan::{Visible, live_tuples};
use toast_format::model::toaster::chunks::{ChunkStore, CountedChunks};
use toast_format::model::toaster::reassemble::{Logical, Reassembler};
use toast_format::model::{Form, StoredValue, Toasters};

/// What is requested about keys.
#[derive(Debug, Clone, Copy)]
pub struct KeyRequest {
    /// Steps of the longest paths that are distinguished.
    pub depth: u8,
    /// Paths that are listed; all other paths are added up.
    pub limit: Option<usize>,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
}

/// A column with documents.
#[derive(Debug)]
struct DocumentColumn {
    /// Its index in the table.
    index: usize,
    name: String,
    type_name: String,
    tree: Tree,
    in_blocks: InBlocks,
}

/// The sums for one table.
pub(super) struct Gathering<'a> {
    relation: String,
    desc: &'a TupleDesc,
    columns: Vec<DocumentColumn>,
    pub(super) problems: Problems,
    pub(super) done: Done,
    request: KeyRequest,
    terms: TableTerms,
    /// Blocks of the relation.
    total: u32,
    documents_part: f64,
    seed: u64,
}

impl<'a> Gathering<'a> {
    /// For columns with documents of a relation, by their indexes.
    pub(super) fn new(
        relation: String,
        desc: &'a TupleDesc,
        columns: &[(usize, DocumentLanguage)],
        request: KeyRequest,
        terms: TableTerms,
        plan: &SamplePlan,
        seed: u64,
    ) -> Gathering<'a> {
        let mut chosen = Vec::new();
        for (index, language) in columns {
            let column = &desc.attributes[*index];
            chosen.push(DocumentColumn {
                index: *index,
                name: column.name.clone(),
                type_name: column.type_name.clone(),
                tree: Tree::new(language.clone(), request.depth, terms),
                in_blocks: InBlocks::default(),
            });
        }
        Gathering {
            relation,
            desc,
            columns: chosen,
            problems: Problems::default(),
            done: Done::default(),
            request,
            terms,
            total: plan.sample.total(),
            documents_part: plan.fraction,
            seed,
        }
    }

    /// The keys of all columns that are not in ASCII.
    pub(super) fn encoded_keys(&mut self) -> Vec<&mut Box<[u8]>> {
        self.columns.iter_mut().flat_map(|column| column.tree.encoded_keys()).collect()
    }

    /// Whether the documents of this row are in the sample.
    pub(super) fn takes(&self, ctid: ItemPointer) -> bool {
        if self.documents_part >= 1.0 {
            return true;
        }
        // splitmix64
        let place = u64::from(ctid.block.0) << 16 | u64::from(ctid.item);
        let mut x = self.seed ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64 <= self.documents_part
    }

    /// The documents in the rows of a page, except those that `visible` finds dead, up to what cannot be read. Defaults of
    /// columns that were added after a row was written are not stored in it.
    pub(super) fn documents<'p>(
        &mut self,
        block: BlockNumber,
        page: &'p [u8],
        visible: &impl Visible,
    ) -> Vec<SampledDocument<'p>> {
        let Gathering { relation, desc, columns, problems, request, terms, .. } = self;
        let mut found = Vec::new();
        live_tuples(relation, block, page, visible, problems, |ctid, row, length| {
            let mut walk = Walk::with_flavor(row, desc, request.flavor);
            loop {
                let index = walk.index();
                let Some(walked) = walk.next() else { return Ok(()) };
                let (column, datum) = walked.map_err(|error| {
                    let column = desc.attributes.get(error.index);
                    let column = column.map(|column| column.name.clone());
                    let place = Place { column, byte: Some(error.byte), ..Place::default() };
                    Problem { place, message: error.to_string() }
                })?;
                let slot = columns.iter().position(|column| column.index == index);
                if let (Some(slot), Datum::Varlena(varlena)) = (slot, datum) {
                    found.push(SampledDocument {
                        ctid,
                        slot,
                        datum: varlena,
                        stored: StoredValue::new(&datum, column, terms.page),
                        tuple: u32::from(length),
                        order: row.order,
                    });
                }
            }
        });
        found
    }

    /// Adds a document of the current block, if it can be read.
    pub(super) fn document(
        &mut self,
        slot: usize,
        ctid: ItemPointer,
        content: &[u8],
        order: ByteOrder,
        stored: &StoredDocument,
    ) {
        self.done.raw += content.len() as u64;
        let Some(column) = self.columns.get_mut(slot) else { return };
        if let Err(error) = column.tree.document(content, order, stored) {
            self.problem(slot, ctid, error);
        }
    }

    /// Adds a reassembled document of the current block.
    pub(super) fn stored<S: ChunkStore>(
        &mut self,
        document: &SampledDocument<'_>,
        store: &mut S,
        toasters: &Toasters,
    ) {
        let SampledDocument { ctid, slot, stored, tuple, mut order, .. } = *document;
        let mut store = CountedChunks::new(store);
        let page = self.terms.page;
        let mut reassembler = Reassembler { store: &mut store, toasters, page, order };
        let made = match reassembler.value(&document.datum) {
            Ok(made) => made,
            Err(error) => return self.problem(slot, ctid, error.to_string()),
        };
        let visits = reassembler.store.visits;
        let content = match made {
            Logical::Content(content) => Ok(content),
            Logical::Jsonb(_) => {
                // in parts, it has a text but no single content
                order = ByteOrder::Little;
                joined(&made, &mut reassembler)
            }
        };
        let value = match stored.custom {
            Some(_) => StoredValue {
                form: if store.bytes > 0 { Form::External } else { stored.form },
                stored_size: Some(stored.pointer_size + store.bytes),
                ..stored
            },
            None => stored,
        };
        match content {
            Ok(content) => {
                self.done.read += value.stored_size.unwrap_or(0);
                let stored = StoredDocument { value, raw: content.len() as u64, tuple, visits };
                self.document(slot, ctid, &content, order, &stored);
            }
            Err(message) => self.problem(slot, ctid, message),
        }
    }

    /// Records that a document could not be read.
    pub(super) fn problem(&mut self, slot: usize, ctid: ItemPointer, message: String) {
        let place = Place {
            block: Some(ctid.block),
            item: Some(ctid.item),
            column: self.columns.get(slot).map(|column| column.name.clone()),
            ..Place::new(self.relation.as_str())
        };
        self.problems.add(Problem { place, message });
    }

    /// Ends a block. `documents`: all that it has, each with the index of its column among the requested ones.
    pub(super) fn end_block(&mut self, documents: impl IntoIterator<Item = (usize, StoredValue)>) {
        for (slot, value) in documents {
            if let Some(column) = self.columns.get_mut(slot) {
                column.in_blocks.add(&value);
            }
        }
        for column in &mut self.columns {
            column.tree.end_block();
            column.in_blocks.end_block();
        }
        self.done.blocks += 1;
    }

    /// The reports, one for each column, of what was read from `source`.
    pub(super) fn reports(&self, source: &'static str) -> Vec<KeysReport> {
        self.columns.iter().map(|column| self.column_report(column, source)).collect()
    }

    fn column_report(&self, column: &DocumentColumn, source: &'static str) -> KeysReport {
        let tree = &column.tree;
        let documents = tree.documents().total.get(Of::Documents);
        let looked = Looked {
            blocks: self.done.blocks,
            total_blocks: self.total,
            documents,
            documents_part: (self.documents_part * 1e4).round() / 1e4,
            seed: self.seed,
            complete: self.documents_part >= 1.0 && self.done.blocks >= self.total,
        };
        let table = Table::new(tree, &looked, &column.in_blocks);
        KeysReport {
            subject: Subject {
                relation: self.relation.clone(),
                schema_name: None,
                name: None,
                oid: None,
                column: column.name.clone(),
                type_name: column.type_name.clone(),
                source,
                visible_rows_only: false,
            },
            depth: self.request.depth,
            sample: looked,
            totals: table.totals(),
            index_levels: self.terms.levels,
            contents: table.contents(self.request.limit),
            problems: self.problems.clone(),
        }
    }
}

/// The content, little-endian, that a `jsonb` value would have as a whole.
fn joined<'a, S: ChunkStore>(
    value: &Logical<'_>,
    reassembler: &mut Reassembler<'_, S>,
) -> Result<Cow<'a, [u8]>, String> {
    let mut text = Vec::new();
    reassembler.jsonb_text(value, &mut text).map_err(|error| error.to_string())?;
    jsonb(&text).map(Cow::Owned).map_err(|error| error.to_string())
}

/// A document in a live row.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampledDocument<'p> {
    pub(super) ctid: ItemPointer,
    /// The index of its column among the requested ones.
    pub(super) slot: usize,
    pub(super) datum: Varlena<'p>,
    pub(super) stored: StoredValue,
    /// Bytes of its row's tuple.
    pub(super) tuple: u32,
    pub(super) order: ByteOrder,
}

impl SampledDocument<'_> {
    /// Where it is, if it is out of line.
    pub(super) fn pointer(&self) -> Option<ToastPointer> {
        match self.datum {
            Varlena::External(pointer) => Some(pointer),
            _ => None,
        }
    }
}
