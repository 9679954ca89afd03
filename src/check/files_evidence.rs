//! What files have of damaged values: the pages of a table and of its TOAST relation.

use std::collections::HashSet;
use std::io;

use futures_util::FutureExt as _;

use super::chunk_index::ChunkIndex;
use super::damaged_row::{RewriteTarget, shared_values};
use super::evidence::Evidence;
use super::finding::{CheckError, Finding};
use super::relation_run::RelationRun;
use super::repair_comments::commented;
use super::repair_script::RepairScript;
use super::salvage_dir::SavedRelation;
use super::salvage_rows::Salvage;
use super::subject::{SeenPage, Subject, Which};
use crate::offline::file::RelationFile;
use crate::offline::target::FileTarget;
use crate::offline::xact::PgXact;
use toast_format::disk::{BlockNumber, TupleDesc};
use toast_format::model::HintBits;

/// The table's name in statements, which a file does not tell.
const TABLE: &str = "mytable";
/// The name of the table that takes saved rows.
const SAVED_ROWS: &str = "mytable_salvaged";
/// The comment that stands in place of statements.
const IN_FILES: &str = "No statements: these are files, and whether SQL can still read a value is known by the server alone. If \
     it starts, check its table.";

/// The files of a table.
pub(super) struct FileEvidence<'a> {
    subject: &'a Subject<'a>,
    chunks: &'a ChunkIndex,
    xact: Option<&'a PgXact>,
    toast_desc: TupleDesc,
    heap: RelationFile,
    toast: Option<RelationFile>,
}

impl<'a> FileEvidence<'a> {
    pub(super) fn open(
        target: &FileTarget<'a>,
        subject: &'a Subject<'a>,
        chunks: &'a ChunkIndex,
    ) -> Result<FileEvidence<'a>, CheckError> {
        let size = target.page_size;
        Ok(FileEvidence {
            subject,
            chunks,
            xact: target.xact,
            toast_desc: TupleDesc::toast_relation(target.desc.id_type),
            heap: RelationFile::open(target.heap, size)?,
            toast: target.toast.map(|path| RelationFile::open(path, size)).transpose()?,
        })
    }

    /// A finding for each live row that has one of these values, whose IDs are in order, and is not the only one.
    pub(super) fn shared_values(mut self, value_ids: &[u64]) -> Result<Vec<Finding>, CheckError> {
        let mut all = Vec::new();
        let generated = HashSet::new();
        let written = RewriteTarget { table: TABLE, generated: &generated };
        at_once(self.each_page(Which::Heap, None, |page| {
            page.references(written, value_ids, &mut all);
        }))?;
        Ok(shared_values(self.subject.source, all))
    }

    fn toast_name(&self) -> Option<String> {
        Some(self.toast.as_ref()?.path().display().to_string())
    }

    /// Calls `take` with pages of a file, as far as they can be read.
    fn read<V>(
        &mut self,
        which: Which,
        blocks: impl IntoIterator<Item = BlockNumber>,
        visible: &V,
        mut take: impl FnMut(&SeenPage<'_, V>),
    ) {
        let toast = self.toast_name().unwrap_or_default();
        let (file, subject) = match which {
            Which::Heap => (&mut self.heap, *self.subject),
            Which::Toast => {
                let Some(file) = &mut self.toast else { return };
                // what hint bits say of chunks counts, whatever their transactions are
                let desc = &self.toast_desc;
                (file, Subject { source: &toast, desc, xids: None, map: None, ..*self.subject })
            }
        };
        for block in blocks {
            if let Ok(Some(bytes)) = file.read(block) {
                take(&SeenPage { subject: &subject, block, bytes, visible });
            }
        }
    }
}

impl<'a> Evidence for FileEvidence<'a> {
    type Visible = Option<&'a PgXact>;

    async fn each_page(
        &mut self,
        which: Which,
        blocks: Option<Vec<BlockNumber>>,
        take: impl FnMut(&SeenPage<'_, Option<&'a PgXact>>),
    ) -> Result<Vec<BlockNumber>, CheckError> {
        let file = if which == Which::Heap { Some(&self.heap) } else { self.toast.as_ref() };
        let end = file.map_or(0, RelationFile::blocks);
        let blocks = blocks.unwrap_or_else(|| (0..end).map(BlockNumber).collect());
        let lost = if which == Which::Heap { &[] } else { self.chunks.lost() };
        let (refused, blocks): (Vec<BlockNumber>, Vec<BlockNumber>) =
            blocks.into_iter().partition(|block| lost.binary_search(block).is_ok());
        let xact = self.xact;
        self.read(which, blocks, &xact, take);
        Ok(refused)
    }

    async fn each_refused(
        &mut self,
        which: Which,
        blocks: Vec<BlockNumber>,
        take: impl FnMut(&SeenPage<'_, HintBits>),
    ) -> Result<(), CheckError> {
        self.read(which, blocks, &HintBits, take);
        Ok(())
    }
}

/// The result of reading files, which never waits.
fn at_once<T>(reading: impl Future<Output = Result<T, CheckError>>) -> Result<T, CheckError> {
    match reading.now_or_never() {
        Some(read) => read,
        None => Err(io::Error::other("reading a file was suspended").into()),
    }
}

/// Writes what is left of the values that findings name, and their rows, and comments in place of SQL. Where anything was found,
/// values without a row are saved too: those of lost rows may be among them.
pub(super) fn save(
    evidence: FileEvidence<'_>,
    run: &mut RelationRun<'_>,
) -> Result<(), CheckError> {
    let damaged = run.salvage.take_damaged(&mut run.checked);
    let Some(dir) = &mut run.salvage.dir else { return Ok(()) };
    let Subject { source, desc, types, page_size, depth, .. } = *evidence.subject;
    let toast = evidence.toast_name();
    let relation = SavedRelation {
        name: source,
        quoted: TABLE,
        copy: SAVED_ROWS,
        desc,
        types,
        encoding: depth.utf8.then_some("UTF8"),
    };
    let mut salvage = Salvage { evidence, relation, page_size, known: &run.rows.known };
    at_once(salvage.save_rows(&damaged, dir))?;
    if let Some(toast) = toast
        && run.rows.tells_all()
        && run.checked.has_findings()
        && let Some(left_out) = at_once(salvage.save_without_row(&toast, |_| true, dir))?
    {
        run.checked.leave_out(left_out);
    }
    // what SQL reads, and what an UPDATE would delete, is not known without a server
    let comments = run.damage.left_over(|_, _| false);
    if !comments.is_empty() {
        let rows = if dir.has_values() { " rows.sql has the rows." } else { "" };
        let text = format!("{IN_FILES}{rows}");
        dir.repair(RepairScript::only(vec![commented(&text)]))?;
    }
    Ok(dir.repair(RepairScript::only(comments))?)
}
