//! One value of a relation file in every detail.

use super::anatomy::{self, Anatomy, Wanted};
use super::offline::{OfflineError, store};
use crate::disk::ItemPointer;
use crate::disk::page::wrong_checksum;
use crate::heap::problem::{Place, Problems};
use crate::model::toaster::catalog::Toasters;
use crate::offline::file::{FileTarget, RelationFile};

/// Takes one value of a relation file apart: that of `column` in the tuple at `ctid`, dead or alive.
pub fn value(
    target: &FileTarget<'_>,
    column: &str,
    ctid: ItemPointer,
) -> Result<Anatomy, OfflineError> {
    let relation = target.heap.display().to_string();
    let missing = |what: String| OfflineError::NoValue(format!("{relation}: {what}"));
    let mut problems = Problems::default();
    let mut store = store(target, &mut problems)?;
    let mut file = RelationFile::open(target.heap, target.page_size)?;
    let mut page = vec![0; target.page_size.bytes()];
    if !file.read(ctid.block, &mut page)? {
        return Err(missing(format!("there is no block {}", ctid.block)));
    }
    let FileTarget { desc, flavor, .. } = *target;
    let wanted = Wanted { relation: &relation, desc, flavor, column, ctid };
    let found =
        anatomy::on_page(&page, &wanted, &mut store, &Toasters::by_bytes(), target.page_size);
    let mut anatomy = found.map_err(missing)?;
    if target.verifies_checksums()
        && let Some(wrong) = wrong_checksum(ctid.block, &page)
    {
        let place = Place { block: Some(ctid.block), ..Place::of(relation.as_str()) };
        anatomy.problems.push(format!("{place}: {wrong}"));
    }
    // what is damaged elsewhere concerns a value that is whole as little as its neighbours
    if !anatomy.problems.is_empty() {
        if let Some(store) = &store {
            problems.merge(store.problems().clone());
        }
        anatomy.problems.extend(problems.kept().iter().map(ToString::to_string));
    }
    Ok(anatomy)
}
