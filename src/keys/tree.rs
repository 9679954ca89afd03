//! The paths of a column's documents, in bounded memory (pure). If there are too many, those with the fewest bytes
//! are dropped (lossy counting): their bytes are still counted, as those of other keys. Sums are integers, so that
//! they do not depend on the order of blocks.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::cost::{Cost, StoredDocument, TableTerms};
use super::language::DocumentLanguage;
use super::sketch::{DifferentValues, SizeCounts};
use toast_format::disk::ByteOrder;
use toast_format::disk::jsonb_parts::{JsonKind, PartStep, Validate, Visit, VisitedPart};
use toast_format::model::estimate::PowerSums;

/// What is counted. Buffers and stored bytes are counted in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Values,
    /// Documents that have it.
    Documents,
    /// Raw bytes, with key text, entries and padding.
    Bytes,
    /// Bytes of the values taken out.
    Extracted,
    /// Where values begin in the raw documents.
    Offset,
    /// Values in documents out of line, and the chunks in which they begin.
    OutOfLine,
    Chunk,
    /// Its part of the stored bytes.
    Stored,
    /// Of each document that has it: what a read and an UPDATE cost now, and would in a column of its own.
    BuffersNow,
    CpuNow,
    WalNow,
    BuffersExtracted,
    CpuExtracted,
    WalExtracted,
}

impl Of {
    /// What the average of an amount is the average of.
    pub(super) fn below(index: usize) -> Of {
        const OF_VALUES: [Of; 3] = [Of::Bytes, Of::Extracted, Of::Offset];
        if OF_VALUES.iter().any(|of| *of as usize == index) {
            return Of::Values;
        }
        if index == Of::Chunk as usize { Of::OutOfLine } else { Of::Documents }
    }
}

/// How many are counted.
const COUNTED: usize = 14;
pub(super) const THOUSAND: f64 = 1000.0;

/// Amounts of everything that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Amounts([u64; COUNTED]);

impl Amounts {
    pub(super) fn get(&self, of: Of) -> u64 {
        self.0[of as usize]
    }

    pub(super) fn add(&mut self, of: Of, amount: u64) {
        let sum = &mut self.0[of as usize];
        *sum = sum.saturating_add(amount);
    }

    fn merge(&mut self, other: &Amounts) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
    }

    fn add_cost(&mut self, cost: &Cost, [buffers, cpu, wal]: [Of; 3]) {
        self.add(buffers, whole(cost.buffers * THOUSAND));
        self.add(cpu, whole(cost.cpu_ns));
        self.add(wal, whole(cost.wal));
    }

    /// Adds the part of a path's amounts that is not of the paths below it, which have `below` bytes.
    pub(super) fn add_own(&mut self, all: &Amounts, below: u64) {
        let bytes = all.get(Of::Bytes);
        let own = bytes.saturating_sub(below);
        let stored = all.get(Of::Stored) as f64 * own as f64 / bytes.max(1) as f64;
        self.add(Of::Values, all.get(Of::Values));
        self.add(Of::Bytes, own);
        self.add(Of::Stored, stored as u64);
    }
}

fn whole(amount: f64) -> u64 {
    amount.round().max(0.0) as u64
}

/// Sums over blocks, with what ratios of them need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PathSums {
    of: [PowerSums; COUNTED],
    /// Of each amount times the documents of the block, of bytes times its raw bytes.
    by_all: [u128; COUNTED],
    /// Of each amount times what it is divided by ([`Of::below`]).
    by_own: [u128; COUNTED],
}

impl PathSums {
    /// Adds a block in which this path has `own` of the `all` of whole documents.
    fn block(&mut self, own: &Amounts, all: &Amounts) {
        for (index, &amount) in own.0.iter().enumerate() {
            self.of[index].add(amount);
            let of_all = if index == Of::Bytes as usize { Of::Bytes } else { Of::Documents };
            add_product(&mut self.by_all[index], amount, all.get(of_all));
            add_product(&mut self.by_own[index], amount, own.get(Of::below(index)));
        }
    }

    pub(super) fn get(&self, of: Of) -> PowerSums {
        self.of[of as usize]
    }

    pub(super) fn by_all(&self, of: Of) -> u128 {
        self.by_all[of as usize]
    }

    pub(super) fn by_own(&self, of: Of) -> u128 {
        self.by_own[of as usize]
    }
}

fn add_product(sum: &mut u128, amount: u64, by: u64) {
    *sum = sum.saturating_add(u128::from(amount) * u128::from(by));
}

/// The least and the greatest of what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LeastAndMost {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl LeastAndMost {
    fn with(seen: Option<LeastAndMost>, value: u64) -> Option<LeastAndMost> {
        let LeastAndMost { least, most } =
            seen.unwrap_or(LeastAndMost { least: value, most: value });
        Some(LeastAndMost { least: least.min(value), most: most.max(value) })
    }
}

/// What the documents of a sample have at one path.
#[derive(Debug, Clone, Default)]
pub(super) struct PathFigures {
    /// Of the whole sample.
    pub(super) total: Amounts,
    /// Of the current block.
    block: Amounts,
    pub(super) sums: PathSums,
    /// How many values are of each type, in the order of [`JsonKind::ALL`].
    pub(super) kinds: [u64; JsonKind::ALL.len()],
    /// Bytes of the parts below that are paths of their own.
    pub(super) below: u64,
    pub(super) sizes: SizeCounts,
    pub(super) different: DifferentValues,
    pub(super) offsets: Option<LeastAndMost>,
    pub(super) chunks: Option<LeastAndMost>,
}

impl PathFigures {
    /// Ends a block, of which whole documents have `all`.
    fn end_block(&mut self, all: &Amounts) {
        let block = std::mem::take(&mut self.block);
        self.total.merge(&block);
        self.sums.block(&block, all);
    }
}

/// How many paths are kept; half of them are dropped at a time.
pub(super) const MOST_PATHS: usize = 10_000;
/// How many bytes of a longer key are kept, followed by an ellipsis.
const LONGEST_KEY: usize = 1024;

/// The node of the document itself.
pub(super) const DOCUMENT: usize = 0;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum OwnStep {
    Key(Box<[u8]>),
    Element,
    Scalar,
}

impl OwnStep {
    /// The key, as text.
    pub(super) fn key(&self) -> Option<String> {
        match self {
            OwnStep::Key(key) => Some(String::from_utf8_lossy(key).into_owned()),
            OwnStep::Element | OwnStep::Scalar => None,
        }
    }
}

#[derive(Debug, Default)]
struct PathNode {
    parent: usize,
    /// `None` for the document itself, and for a free slot.
    step: Option<OwnStep>,
    keys: HashMap<Box<[u8]>, usize>,
    /// Where elements are counted.
    element: Option<usize>,
    /// Where documents that are scalars are.
    scalar: Option<usize>,
    figures: PathFigures,
    /// The last document that has it.
    seen: u64,
    /// The last block that has it.
    touched: u64,
}

impl PathNode {
    fn new(parent: usize, step: Option<OwnStep>) -> PathNode {
        PathNode { parent, step, ..PathNode::default() }
    }

    fn is_leaf(&self) -> bool {
        self.keys.is_empty() && self.element.is_none() && self.scalar.is_none()
    }
}

/// What the documents of a sample add up to.
#[derive(Debug)]
pub(super) struct Tree {
    language: DocumentLanguage,
    depth: u8,
    terms: TableTerms,
    nodes: Vec<PathNode>,
    free: Vec<usize>,
    /// Nodes with something in the current block.
    touched: Vec<usize>,
    documents: u64,
    blocks: u64,
    /// What belongs to the documents' own containers.
    pub(super) container: PathFigures,
    /// What is not kept of any path.
    pub(super) lost: Amounts,
    /// The most bytes of a kept path that can be counted among the other paths.
    pub(super) missed: u64,
    /// All paths that were ever kept.
    pub(super) different: DifferentValues<1024>,
}

impl Tree {
    /// No documents yet; paths of up to `depth` steps.
    pub(super) fn new(language: DocumentLanguage, depth: u8, terms: TableTerms) -> Tree {
        Tree {
            language,
            depth,
            terms,
            nodes: vec![PathNode::new(DOCUMENT, None)],
            free: Vec::new(),
            touched: Vec::new(),
            documents: 0,
            blocks: 0,
            container: PathFigures::default(),
            lost: Amounts::default(),
            missed: 0,
            different: DifferentValues::default(),
        }
    }

    /// Adds a document of the current block. A damaged one adds nothing.
    ///
    /// # Errors
    /// Where it is damaged.
    pub(super) fn document(
        &mut self,
        content: &[u8],
        order: ByteOrder,
        stored: &StoredDocument,
    ) -> Result<(), String> {
        let language = self.language.clone();
        let depth = self.depth;
        let own = language.walk(content, order, depth, (), &mut Validate)?;
        self.documents += 1;
        let now = stored.now(&self.terms);
        let in_stored = stored.bytes() as f64 * THOUSAND / content.len().max(1) as f64;
        let mut adding = Adding { in_stored, stored, now: Amounts::default(), tree: self };
        adding.now.add_cost(&now, [Of::BuffersNow, Of::CpuNow, Of::WalNow]);
        let mut whole = adding.now;
        language.walk(content, order, depth, DOCUMENT, &mut adding)?;
        whole.add(Of::Documents, 1);
        whole.add(Of::Values, 1);
        whole.add(Of::Bytes, content.len() as u64);
        whole.add(Of::Stored, (in_stored * content.len() as f64) as u64);
        self.nodes[DOCUMENT].figures.block.merge(&whole);
        self.container.block.add(Of::Documents, 1);
        self.container.block.add(Of::Bytes, own);
        self.container.block.add(Of::Stored, (in_stored * own as f64) as u64);
        Ok(())
    }

    /// The keys that are not in ASCII and were kept whole.
    pub(super) fn encoded_keys(&mut self) -> impl Iterator<Item = &mut Box<[u8]>> {
        self.nodes.iter_mut().filter_map(|node| match &mut node.step {
            Some(OwnStep::Key(key)) if key.len() <= LONGEST_KEY && !key.is_ascii() => Some(key),
            _ => None,
        })
    }

    /// Ends a block, also one without documents.
    pub(super) fn end_block(&mut self) {
        self.blocks += 1;
        let all = self.nodes[DOCUMENT].figures.block;
        self.container.end_block(&all);
        for id in std::mem::take(&mut self.touched).into_iter().chain([DOCUMENT]) {
            self.nodes[id].figures.end_block(&all);
        }
    }

    /// The documents as a whole.
    pub(super) fn documents(&self) -> &PathFigures {
        &self.nodes[DOCUMENT].figures
    }

    /// The paths that are kept, by their steps.
    pub(super) fn paths(&self) -> impl Iterator<Item = (Vec<&OwnStep>, &PathFigures)> {
        let nodes = self.nodes.iter().enumerate().filter(|(_, node)| node.step.is_some());
        nodes.map(|(id, node)| (self.steps(id), &node.figures))
    }

    /// The steps that lead to a node.
    fn steps(&self, mut id: usize) -> Vec<&OwnStep> {
        let mut steps = Vec::new();
        while let Some((node, step)) = self.nodes.get(id).and_then(|n| Some((n, n.step.as_ref()?)))
        {
            steps.push(step);
            id = node.parent;
        }
        steps.reverse();
        steps
    }

    /// The node of a step below another.
    fn below(&mut self, inside: usize, step: PartStep<'_>) -> usize {
        let node = &self.nodes[inside];
        let found = match step {
            PartStep::Key(key) => node.keys.get(key).copied(),
            PartStep::Element => node.element,
            PartStep::Scalar => node.scalar,
        };
        if let Some(found) = found {
            return found;
        }
        let own = match step {
            PartStep::Key(key) => OwnStep::Key(key.into()),
            PartStep::Element => OwnStep::Element,
            PartStep::Scalar => OwnStep::Scalar,
        };
        let mut hasher = DefaultHasher::new();
        self.steps(inside).hash(&mut hasher);
        own.hash(&mut hasher);
        self.different.add(hasher.finish());
        if self.free.is_empty() && self.nodes.len() > MOST_PATHS {
            self.make_room(inside);
        }
        let node = PathNode::new(inside, Some(own));
        let id = match self.free.pop() {
            Some(id) => {
                self.nodes[id] = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        let parent = &mut self.nodes[inside];
        match step {
            PartStep::Key(key) => {
                parent.keys.insert(key.into(), id);
            }
            PartStep::Element => parent.element = Some(id),
            PartStep::Scalar => parent.scalar = Some(id),
        }
        id
    }

    /// Drops half of the paths that have none below them, those with the fewest bytes, but not the one being walked.
    fn make_room(&mut self, walked: usize) {
        let mut leaves: Vec<(u64, usize)> = Vec::new();
        for (id, node) in self.nodes.iter().enumerate() {
            if id != DOCUMENT && id != walked && node.step.is_some() && node.is_leaf() {
                let in_block = node.figures.block.get(Of::Bytes);
                leaves.push((node.figures.total.get(Of::Bytes).saturating_add(in_block), id));
            }
        }
        leaves.sort_unstable();
        leaves.truncate(leaves.len().div_ceil(2));
        self.missed = self.missed.saturating_add(leaves.last().map_or(0, |&(bytes, _)| bytes));
        for (_, id) in leaves {
            let node = std::mem::replace(&mut self.nodes[id], PathNode::new(DOCUMENT, None));
            // the bytes of the paths below it were counted before
            let mut all = node.figures.total;
            all.merge(&node.figures.block);
            self.lost.add_own(&all, node.figures.below);
            let parent = &mut self.nodes[node.parent];
            match node.step {
                Some(OwnStep::Key(key)) => {
                    parent.keys.remove(&key);
                }
                Some(OwnStep::Scalar) => parent.scalar = None,
                _ => parent.element = None,
            }
            self.free.push(id);
        }
        let nodes = &self.nodes;
        self.touched.retain(|&id| nodes[id].step.is_some());
    }
}

/// What is kept of a long key: whole characters, and an ellipsis.
fn beginning(key: &[u8]) -> Vec<u8> {
    // in UTF-8, the first byte of a character is never a continuation byte
    let mut ends = (0..=LONGEST_KEY).rev();
    let end = ends.find(|&at| key.get(at).is_none_or(|byte| byte & 0xC0 != 0x80)).unwrap_or(0);
    let mut cut = key.get(..end).unwrap_or_default().to_vec();
    cut.extend_from_slice("…".as_bytes());
    cut
}

/// A document being added.
struct Adding<'t, 'd> {
    tree: &'t mut Tree,
    stored: &'d StoredDocument,
    /// What the whole document costs.
    now: Amounts,
    /// Thousandths of a stored byte for each raw one.
    in_stored: f64,
}

impl Visit for Adding<'_, '_> {
    type At = usize;

    fn part(&mut self, inside: usize, part: &VisitedPart<'_>) -> Option<usize> {
        let Adding { tree, stored, now, in_stored } = self;
        let document = tree.documents;
        let block = tree.blocks + 1;
        let terms = tree.terms;
        let in_stored = (*in_stored * part.bytes as f64) as u64;
        let cut;
        let step = match part.step {
            PartStep::Key(key) if key.len() > LONGEST_KEY => {
                cut = beginning(key);
                PartStep::Key(&cut)
            }
            step => step,
        };
        let id = tree.below(inside, step);
        if inside != DOCUMENT {
            tree.nodes[inside].figures.below += part.bytes;
        }
        let node = &mut tree.nodes[id];
        if node.touched != block {
            node.touched = block;
            tree.touched.push(id);
        }
        let in_array = matches!(part.step, PartStep::Element);
        let first = node.seen != document;
        node.seen = document;
        let figures = &mut node.figures;
        let amounts = &mut figures.block;
        amounts.add(Of::Values, 1);
        amounts.add(Of::Bytes, part.bytes);
        amounts.add(Of::Extracted, part.extracted.size());
        amounts.add(Of::Offset, part.byte as u64);
        amounts.add(Of::Stored, in_stored);
        if first {
            amounts.add(Of::Documents, 1);
            amounts.merge(now);
        }
        if first && !in_array {
            let cost = stored.extracted(part, &terms);
            amounts.add_cost(&cost, [Of::BuffersExtracted, Of::CpuExtracted, Of::WalExtracted]);
        }
        figures.kinds[part.kind as usize] += 1;
        figures.sizes.add(part.bytes);
        let mut hasher = DefaultHasher::new();
        (part.kind, part.value).hash(&mut hasher);
        figures.different.add(hasher.finish());
        let byte = part.byte as u64;
        figures.offsets = LeastAndMost::with(figures.offsets, byte);
        if let Some(chunk) = stored.chunk(byte, terms.page) {
            figures.chunks = LeastAndMost::with(figures.chunks, u64::from(chunk));
            figures.block.add(Of::OutOfLine, 1);
            figures.block.add(Of::Chunk, u64::from(chunk));
        }
        Some(id)
    }
}
