//! Reads all blocks of a relation or a sample of them, over one connection or concurrently over several, and passes
//! their contents to a scan.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::LiveError;
use super::pages::{PageReader, ReadOrder};
use toast_format::disk::BlockNumber;
use toast_format::heap::progress::Progress;
use toast_format::heap::sample::Sample;
use toast_format::heap::scan::{Merge, Scan, Visitor};

/// Blocks read with one statement: 8 MB of 8 kB pages.
pub(crate) const BATCH: usize = 1024;

/// The maximum for concurrent reading, where pages are decoded as they arrive: 16 MB of 8 kB pages.
const LARGEST_BATCH: u32 = 2048;

/// The minimum for small relations, if each connection can have a statement of that size.
const SMALL_BATCH: u32 = 256;

/// The number of statements for each connection, so that all end at about the same time.
const ROUNDS: u32 = 8;

/// The number of blocks to read with one statement.
fn batch(blocks: u32, connections: usize) -> usize {
    let connections = u32::try_from(connections).unwrap_or(u32::MAX).max(1);
    let each = blocks.div_ceil(connections);
    each.div_ceil(ROUNDS).max(each.min(SMALL_BATCH)).clamp(1, LARGEST_BATCH) as usize
}

/// Why a scan ended early.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// Blocks could not be read, beginning with this one if it is known.
    Failed {
        from: Option<BlockNumber>,
        error: LiveError,
    },
    Stopped,
}

/// Receives the progress of a scan, and can stop it.
#[derive(Clone)]
pub(crate) struct ScanControl {
    pub(crate) progress: Arc<dyn Progress>,
    pub(crate) stop: Arc<AtomicBool>,
}

/// Reads the blocks with all readers concurrently. Each has a task of its own, which its connection's task wakes on the
/// same thread. `scan` must not have counted anything yet.
pub(crate) async fn side_by_side<V: Visitor + Merge + Clone + Send + 'static>(
    readers: Vec<PageReader>,
    sample: Sample,
    control: &ScanControl,
    mut scan: Scan<V>,
) -> Result<Scan<V>, ScanError> {
    let batch = batch(sample.chosen(), readers.len());
    let queue = Arc::new(Mutex::new(sample));
    let tasks: Vec<_> = readers
        .into_iter()
        .map(|mut reader| {
            let mut part = scan.clone();
            let queue = Arc::clone(&queue);
            let control = control.clone();
            tokio::spawn(async move {
                let read = run(&mut reader, &queue, batch, &control, &mut part).await;
                read.map(|()| part)
            })
        })
        .collect();
    for task in tasks {
        let part = task.await.map_err(|error| {
            let error = LiveError::Unexpected(error.to_string());
            ScanError::Failed { from: None, error }
        });
        scan.merge(part??);
    }
    Ok(scan)
}

/// Reads the blocks one after another.
pub(crate) async fn in_order<V: Visitor>(
    reader: &mut PageReader,
    sample: Sample,
    control: &ScanControl,
    scan: &mut Scan<V>,
) -> Result<(), ScanError> {
    run(reader, &Mutex::new(sample), BATCH, control, scan).await
}

/// Reads and decodes blocks until the queue is empty.
async fn run<V: Visitor>(
    reader: &mut PageReader,
    queue: &Mutex<Sample>,
    batch: usize,
    control: &ScanControl,
    scan: &mut Scan<V>,
) -> Result<(), ScanError> {
    let name = Arc::clone(&scan.relation.source);
    let order = if V::WANTS_VALUES { ReadOrder::OfBlocks } else { ReadOrder::AsTheyCome };
    while let Some(blocks) = take(queue, batch) {
        let read = reader.visit(&blocks, order, &name, scan).await;
        read.map_err(|error| ScanError::Failed { from: blocks.first().copied(), error })?;
        if control.stop.load(Ordering::Relaxed) {
            return Err(ScanError::Stopped);
        }
        control.progress.advance(blocks.len() as u64);
    }
    Ok(())
}

/// Takes the next blocks, at most `batch`; `None` if none are left.
fn take(queue: &Mutex<Sample>, batch: usize) -> Option<Vec<BlockNumber>> {
    let mut left = queue.lock();
    let blocks: Vec<BlockNumber> = left.by_ref().take(batch).collect();
    (!blocks.is_empty()).then_some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_relations_are_shared_and_large_ones_end_together() {
        assert_eq!((batch(0, 2), batch(1, 2), batch(383, 2)), (1, 1, 192));
        assert_eq!((batch(30_000, 2), batch(1_000_000, 4)), (1875, 2048));
    }
}
