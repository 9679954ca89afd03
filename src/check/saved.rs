//! A check of saved pages: what psql printed for `get_raw_page`.

use super::collector::Collector;
use super::files::{Tell, UNKNOWN};
use super::judged::Checked;
use super::subject::{Depth, Subject};
use super::value::Toast;
use crate::disk::custom::CustomFlavor;
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::model::visibility::HintBits;
use crate::offline::saved::{SavedRows, parse};

/// Checks the pages in `text`, which stands for `name`. Chunks are not at hand.
///
/// # Errors
/// Where `tell` fails.
pub fn saved_pages(
    name: &str,
    text: &[u8],
    desc: &TupleDesc,
    depth: Depth,
    fail_fast: bool,
    tell: &mut Tell<'_>,
) -> std::io::Result<Checked> {
    let outcome = parse(text);
    let mut checked = Checked::of(name);
    for error in &outcome.errors {
        checked.note(format!("line {}: {}", error.line.0, error.problem));
        checked.is_incomplete = true;
    }
    for result in &outcome.results {
        let SavedRows::Pages(pages) = &result.rows else {
            checked.note("only whole pages are checked, as get_raw_page gives them");
            checked.is_incomplete = true;
            continue;
        };
        for page in pages {
            let subject = Subject {
                source: name,
                desc,
                page_size: PageSize::new(page.bytes.len()).unwrap_or_default(),
                flavor: CustomFlavor::Auto,
                toast: Toast::Unknown,
                xids: None,
                commit_status: None,
                // the server's buffers are ahead of their checksums
                checksums: false,
                depth,
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
                if fail_fast && checked.findings() > 0 {
                    break;
                }
                checked.count(&finding);
                tell(finding)?;
            }
        }
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
