//! Documents of a sample added up, whatever their source (pure).

use super::cost::{Stored, Terms};
use super::figures::{Scope, Table};
use super::language::Language;
use super::result::{KeysReport, Looked, SCHEMA};
use super::tree::Tree;
use crate::advise::plan::Done;
use crate::disk::ByteOrder;
use crate::disk::ItemPointer;
use crate::disk::custom::CustomFlavor;
use crate::disk::desc::Attribute;
use crate::heap::problem::{Place, Problem, Problems};
use crate::model::estimate::PowerSums;

/// What is asked of keys.
#[derive(Debug, Clone, Copy)]
pub struct KeyRequest {
    /// Steps of the longest paths that are told apart.
    pub depth: u8,
    /// Paths that are named; the others are added up.
    pub limit: Option<usize>,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
}

/// A column with documents.
#[derive(Debug)]
struct Column {
    name: String,
    type_name: String,
    tree: Tree,
    in_blocks: PowerSums,
}

/// What is being added up for a table.
pub(super) struct Gathering {
    relation: String,
    columns: Vec<Column>,
    pub(super) problems: Problems,
    pub(super) done: Done,
    documents_part: f64,
    seed: u64,
}

/// What a report says besides its figures.
pub(super) struct About {
    pub(super) schema_name: Option<String>,
    pub(super) name: Option<String>,
    pub(super) oid: Option<u32>,
    pub(super) source: &'static str,
    pub(super) total_blocks: u32,
    pub(super) index_levels: u32,
}

impl Gathering {
    /// For a relation and its columns with documents.
    pub(super) fn new<'c>(
        relation: String,
        columns: impl Iterator<Item = (&'c Attribute, Language)>,
        depth: u8,
        terms: Terms,
        (documents_part, seed): (f64, u64),
    ) -> Gathering {
        let column = |(column, language): (&Attribute, Language)| {
            let tree = Tree::new(language, depth, terms);
            let (name, type_name) = (column.name.clone(), column.type_name.clone());
            Column { name, type_name, tree, in_blocks: PowerSums::default() }
        };
        Gathering {
            relation,
            columns: columns.map(column).collect(),
            problems: Problems::default(),
            done: Done::default(),
            documents_part,
            seed,
        }
    }

    /// Whether the documents of this row are of the sample.
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

    /// Adds a document of the present block, as far as it can be read.
    pub(super) fn document(
        &mut self,
        slot: usize,
        ctid: ItemPointer,
        (content, order): (&[u8], ByteOrder),
        stored: &Stored,
    ) {
        self.done.raw += content.len() as u64;
        let Some(column) = self.columns.get_mut(slot) else { return };
        if let Err(error) = column.tree.document(content, order, stored) {
            self.problem(slot, ctid, error);
        }
    }

    /// Says that a document could not be read.
    pub(super) fn problem(&mut self, slot: usize, ctid: ItemPointer, message: String) {
        let place = Place {
            block: Some(ctid.block),
            item: Some(ctid.item),
            column: self.columns.get(slot).map(|column| column.name.clone()),
            ..Place::of(self.relation.as_str())
        };
        self.problems.add(Problem { place, message });
    }

    /// Ends a block, which has so many documents of each column in all.
    pub(super) fn end_block(&mut self, documents: &[u64]) {
        for (column, &documents) in self.columns.iter_mut().zip(documents) {
            column.tree.end_block();
            column.in_blocks.add(documents);
        }
        self.done.blocks += 1;
    }

    /// The reports, one for each column.
    pub(super) fn reports(&self, about: &About, request: KeyRequest) -> Vec<KeysReport> {
        self.columns.iter().map(|column| self.report(column, about, request)).collect()
    }

    fn report(&self, column: &Column, about: &About, request: KeyRequest) -> KeysReport {
        let tree = &column.tree;
        let documents = tree.whole().map_or(0, super::node::Figures::documents);
        let looked = Looked {
            blocks: self.done.blocks,
            total_blocks: about.total_blocks,
            documents,
            documents_part: (self.documents_part * 1e4).round() / 1e4,
            seed: self.seed,
            complete: self.documents_part >= 1.0 && self.done.blocks >= about.total_blocks,
        };
        let scope = Scope { looked: looked.clone(), in_blocks: column.in_blocks };
        let table = Table::new(tree, &scope);
        let (raw_bytes, stored_bytes) = table.bytes();
        let (keys, others) = table.keys(request.limit);
        KeysReport {
            schema: SCHEMA,
            server: None,
            relation: self.relation.clone(),
            schema_name: about.schema_name.clone(),
            name: about.name.clone(),
            oid: about.oid,
            column: column.name.clone(),
            type_name: column.type_name.clone(),
            source: about.source,
            depth: request.depth,
            sample: looked,
            documents: table.documents(),
            raw_bytes,
            stored_bytes,
            index_levels: about.index_levels,
            map: table.is_map(),
            different_paths: table.different(),
            uncounted_bytes: table.missed(),
            keys,
            others,
            container: table.container(),
            usage: None,
            problems: self.problems.kept().iter().map(ToString::to_string).collect(),
            problem_count: self.problems.count(),
        }
    }
}
