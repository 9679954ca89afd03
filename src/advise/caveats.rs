//! What else a choice brings with it (pure).

use super::commands::table_words;
use super::estimate::{Figure, Figures};
use super::result::{CompactionReport, Files};
use crate::disk::desc::{Length, Storage};
use crate::disk::layout::PageSize;
use crate::model::pages::least_gain;
use crate::model::settings::Settings;
use crate::server::catalog::Relation;

/// Growth, as a part, from which on it is told.
const TOLD: f64 = 0.1;

/// Bytes of the files right after an in-place retoast: space in them is used again, but none gets shorter.
pub(super) fn retoasted_bytes(figures: &Figures, files: &Files) -> u64 {
    let left = |figure: &Figure, now: u64| (figure.value.estimate.round() as u64).max(now);
    left(&figures.heap_bytes, files.heap_bytes)
        + left(&figures.toast_bytes, files.toast_bytes)
        + left(&figures.toast_index_bytes, files.toast_index_bytes)
}

/// The option that has those of the heap's and the TOAST relation's files compacted of which that would give
/// back part of what they are right after an in-place retoast; `None` if there is none.
pub(super) fn compaction(figures: &Figures, files: &Files, page: PageSize) -> Option<&'static str> {
    let pays = |figure: &Figure, now: u64| {
        let pages = |bytes: f64| (bytes / page.bytes() as f64).ceil() as u32;
        let now = pages(now as f64);
        now.saturating_sub(pages(figure.value.high)) >= least_gain(now)
    };
    let heap = pays(&figures.heap_bytes, files.heap_bytes);
    match (heap, pays(&figures.toast_bytes, files.toast_bytes)) {
        (true, true) => Some("--compact"),
        (true, false) => Some("--compact=heap"),
        (false, true) => Some("--compact=toast"),
        (false, false) => None,
    }
}

/// What compaction alone would give back, whatever the settings, if that is worth it. `today`: what the rows
/// take as they are stored now.
pub(super) fn gain(
    today: &Figures,
    files: &Files,
    page: PageSize,
    relation: &Relation,
) -> Option<CompactionReport> {
    let option = compaction(today, files, page)?;
    let of = |figure: &Figure, now: u64, is_in: bool| {
        if is_in { now.saturating_sub(figure.value.estimate.round() as u64) } else { 0 }
    };
    let words = table_words(&relation.schema, &relation.name);
    Some(CompactionReport {
        heap_bytes: of(&today.heap_bytes, files.heap_bytes, !option.ends_with("toast")),
        toast_bytes: of(&today.toast_bytes, files.toast_bytes, !option.ends_with("heap")),
        index_bytes: 0,
        files: Vec::new(),
        indexes: Vec::new(),
        command: format!("toastctl retoast {words} {option}"),
    })
}

/// What to know before a column is brought from `present` to `wanted`.
pub(super) fn of(
    (wanted, present): (&Settings, &Settings),
    figures: &Figures,
    files: &Files,
    page: PageSize,
    has_toasters: bool,
) -> Vec<String> {
    let mut caveats = Vec::new();
    if figures.heap_bytes.change.is_some_and(|change| change.estimate > TOLD) {
        caveats.push(
            "the heap grows, and every scan of the table reads it, even one that does not need the \
             column"
                .to_owned(),
        );
    }
    let now = files.total_bytes as f64;
    if retoasted_bytes(figures, files) as f64
        > now.max(figures.total_bytes.value.estimate) * (1.0 + TOLD)
    {
        let when = if has_toasters { "after retoast" } else { "before compaction" };
        caveats.push(format!("{when} the files are larger than now and than needed"));
    }
    let threshold = page.toast_tuple_threshold();
    if wanted.target.bytes() < threshold {
        caveats.push(format!(
            "a toast_tuple_target below {threshold} changes nothing for rows of up to {threshold} \
             bytes: the toaster is not called for them"
        ));
    }
    if wanted.target != present.target {
        caveats
            .push("toast_tuple_target is the table's, and counts for its other columns too".into());
    }
    if !wanted.is_stock() {
        caveats.push(
            "no setting decides value by value: values written later are brought to the policy by \
             the next retoast"
                .to_owned(),
        );
    } else if wanted.storage == Storage::External && present.storage != Storage::External {
        caveats.push("values written later are not compressed, however well they could be".into());
    }
    caveats
}

/// What is not known of a relation whose pages were not read.
pub(super) fn without_pages(relation: &Relation) -> String {
    let columns = &relation.desc.attributes;
    let mut unseen = vec!["dead rows", "free space"];
    if columns.iter().any(|column| !column.dropped && column.missing.is_some()) {
        unseen.push("whether a value that equals its column's default stands in the row");
    }
    if columns.iter().any(|column| column.dropped) && relation.computed.contains(&true) {
        unseen.push("what values of dropped columns take");
    } else if columns.iter().any(|column| column.dropped && column.length == Length::Varlena) {
        unseen.push("what values of dropped columns take in the TOAST relation");
    }
    let last = unseen.pop().unwrap_or_default();
    format!(
        "Pages were not read, but rows by SQL functions, and the server compressed them in a \
         temporary table. Sizes of today are those of the rows as their values are stored; not seen \
         are {} and {last}.",
        unseen.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Method;
    use crate::model::estimate::Estimate;
    use crate::model::policy::{MethodChoice, Policy};
    use crate::model::settings::TupleTarget;

    const FILES: Files =
        Files { heap_bytes: 100, toast_bytes: 900, toast_index_bytes: 20, total_bytes: 1020 };

    fn figures(heap: f64, toast: f64) -> Figures {
        let figure = |value: f64, now: f64| Figure {
            value: Estimate::exact(value),
            change: Some(Estimate::exact(value / now - 1.0)),
        };
        Figures {
            heap_bytes: figure(heap, 100.0),
            toast_bytes: figure(toast, 900.0),
            total_bytes: figure(heap + toast, 1000.0),
            ..Figures::default()
        }
    }

    #[test]
    fn files_that_retoast_leaves_are_as_long_as_before_or_longer() {
        assert_eq!(retoasted_bytes(&figures(1000.0, 0.0), &FILES), 1920);
        assert_eq!(retoasted_bytes(&figures(50.0, 1000.0), &FILES), 1120);
        assert_eq!(retoasted_bytes(&figures(50.0, 50.0), &FILES), 1020);
    }

    #[test]
    fn compaction_pays_from_what_vacuum_truncates_for() {
        let page = PageSize::DEFAULT;
        let blocks = |blocks: u32| f64::from(blocks) * 8192.0;
        let now =
            |blocks: u64| Files { heap_bytes: 8192 * 10, toast_bytes: 8192 * blocks, ..FILES };
        let wanted = figures(blocks(10), blocks(100));
        assert_eq!(compaction(&wanted, &now(100), page), None);
        assert_eq!(compaction(&wanted, &now(107), page), None);
        assert_eq!(compaction(&wanted, &now(108), page), Some("--compact=toast"));
        let both = figures(blocks(1), blocks(100));
        assert_eq!(compaction(&both, &now(108), page), Some("--compact"));
        assert_eq!(compaction(&both, &now(100), page), Some("--compact=heap"));
        // a file that grows has nothing to give
        assert_eq!(compaction(&figures(blocks(500), blocks(200)), &now(108), page), None);
    }

    #[test]
    fn every_choice_has_its_own() {
        let page = PageSize::DEFAULT;
        let present = Settings {
            storage: Storage::Extended,
            method: MethodChoice::One(Method::Pglz),
            target: TupleTarget::default_for(page),
            policy: Policy::Always,
        };
        let same = figures(100.0, 900.0);
        let number = |wanted: &Settings, figures: &Figures| {
            of((wanted, &present), figures, &FILES, page, false).len()
        };
        assert_eq!(number(&present, &same), 0);
        assert_eq!(number(&present, &figures(105.0, 900.0)), 0);
        assert_eq!(number(&present, &figures(1000.0, 0.0)), 2);
        let low = Settings { target: TupleTarget::new(256, page).unwrap(), ..present };
        assert_eq!(number(&low, &same), 2);
        assert_eq!(number(&Settings { policy: Policy::Best, ..present }, &same), 1);
        assert_eq!(number(&Settings { storage: Storage::External, ..present }, &same), 1);
    }
}
