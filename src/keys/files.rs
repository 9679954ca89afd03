//! The keys of the documents in a relation file.

use std::time::Instant;

use super::cost::TableTerms;
use super::gather::{Gathering, KeyRequest};
use super::language::{chosen, languages};
use super::result::KeysReport;
use crate::advise::candidate::AdviseError;
use crate::advise::plan::SamplePlan;
use crate::offline::file::RelationFile;
use crate::offline::target::{FileTarget, check_page_size};
use toast_format::disk::page::wrong_checksum;
use toast_format::heap::problem::{Place, Problem, Problems};
use toast_format::heap::progress::Progress;
use toast_format::heap::sample::SampleSize;
use toast_format::model::Toasters;
use toast_format::model::btree::ToastIndex;

/// What the keys of a file's documents cost, column by column. Out-of-line documents are reassembled from the file of
/// the TOAST relation.
///
/// # Errors
/// Where a file cannot be opened, or a named column has no keys.
pub fn relation_file(
    target: &FileTarget<'_>,
    columns: &[String],
    request: KeyRequest,
    sample: Option<SampleSize>,
    seed: u64,
    progress: &dyn Progress,
) -> Result<Vec<KeysReport>, AdviseError> {
    let name = target.heap.display().to_string();
    let columns = chosen(&name, target.desc, &languages(target.desc), columns)?;
    let page = target.page_size;
    let mut heap = RelationFile::open(target.heap, page)?;
    let mut problems = Problems::default();
    let mut store = target.chunks(&mut problems)?;
    let chunks = store.as_ref().map_or(0, |toast| toast.values().map(|value| value.live).sum());
    let levels = ToastIndex::new(page, chunks).levels;
    let plan = SamplePlan::new(sample, seed, heap.blocks(), page.bytes() as f64);
    let terms = TableTerms { page, levels };
    let mut gathering =
        Gathering::new(name.clone(), target.desc, &columns, request, terms, &plan, seed);
    gathering.problems = problems;
    let toasters = Toasters::by_bytes();
    let checksums = target.verifies_checksums();
    let unverified = target.checksums_unverified();
    gathering
        .problems
        .add_some(unverified.map(|message| Problem { place: Place::new(name.as_str()), message }));
    progress.begin(&name, u64::from(plan.sample.chosen()));
    let started = Instant::now();
    for block in plan.blocks() {
        if plan.limit(&gathering.done).is_some() {
            break;
        }
        let place = || Place { block: Some(block), ..Place::new(name.as_str()) };
        match heap.read(block) {
            Ok(Some(bytes)) => {
                if gathering.done.blocks == 0 {
                    check_page_size(bytes, &name)?;
                }
                let wrong = checksums.then(|| wrong_checksum(block, bytes)).flatten();
                let problem =
                    wrong.map(|wrong| Problem { place: place(), message: wrong.to_string() });
                gathering.problems.add_some(problem);
                let found = gathering.documents(block, bytes, &target.xact);
                for document in &found {
                    if gathering.takes(document.ctid) {
                        gathering.stored(document, &mut store, &toasters);
                    }
                }
                gathering.end_block(found.iter().map(|d| (d.slot, d.stored)));
            }
            Ok(None) => break,
            Err(error) => {
                gathering.problems.add(Problem { place: place(), message: error.to_string() });
                gathering.end_block([]);
            }
        }
        gathering.done.read += page.bytes() as u64;
        gathering.done.time = started.elapsed();
        progress.advance(1);
    }
    progress.end();
    for (_, error) in heap.truncated() {
        let place = Place::new(name.as_str());
        gathering.problems.add(Problem { place, message: error.to_string() });
    }
    Ok(gathering.reports("relation_file"))
}
