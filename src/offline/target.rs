//! A relation file to read, with what is needed to read it.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::path::Path;

use super::control::{Checksums, ControlFile};
use super::file::{FileError, RelationFile, open_regular};
use super::other_file::own_size;
use super::toastfile::{ToastFile, read_chunk};
use super::xact::PgXact;
use toast_format::disk::page::wrong_checksum;
use toast_format::disk::walk::WalkErrorKind;
use toast_format::disk::{
    BlockNumber, CustomFlavor, Datum, HeapTuple, Page, PageSize, PageState, ToastPointer,
    TupleDesc, ValueId, ValueIdType, Varlena, Walk,
};
use toast_format::heap::problem::{Place, Problem, Problems};
use toast_format::heap::progress::Progress;
use toast_format::heap::sample::{Sample, Sampling};
use toast_format::heap::scan::{Visitor, each_tuple};
use toast_format::model::Visibility;

/// The most blocks in which rows are compared with the columns.
const ATTRIBUTE_BLOCKS: u32 = 64;
/// The most blocks of whose pointers the TOAST relation is recognized.
const POINTER_BLOCKS: u64 = 64;
/// A page that is newer than a checkpoint by more bytes of WAL is damaged.
const PLAUSIBLE_WAL: u64 = 1 << 40;
/// So many values, or rows, are not lost all at once.
const MANY_VALUES: usize = 16;

/// How the rows of a file differ from the columns that are said to be theirs.
#[derive(Debug, PartialEq, Eq)]
pub enum Misfit {
    /// Most rows have more attributes than there are columns: this many.
    Attributes(usize),
    /// So many of the rows that were read, nearly all, cannot be read, most often from this column on.
    Column { name: String, failed: usize, rows: usize },
    /// They are those of a TOAST relation.
    ToastRelation,
    /// So many of the rows that were read cannot be read with the layout of custom pointers that was given, and all of
    /// them with the one that is detected.
    Flavor { failed: usize, rows: usize },
}

/// How rows are read with columns that are said to be theirs.
#[derive(Debug, Default)]
struct ColumnFit {
    rows: usize,
    /// Rows that have the columns of chunks of a TOAST relation.
    chunks: usize,
    /// Those that follow the chunk before them of the same value.
    following: usize,
    /// Those that are the first of a value, or the first row that was read of a page.
    leading: usize,
    /// The last of them, with its page.
    last: Option<(BlockNumber, ValueId, i32)>,
    /// Rows with more attributes than there are columns, by their number.
    longer: BTreeMap<usize, usize>,
    /// Other rows that could not be read, by the column's index.
    failed: BTreeMap<usize, usize>,
    /// Rows with a pointer of an unknown kind before other columns, which say nothing about these.
    lost: usize,
}

impl ColumnFit {
    fn add(
        &mut self,
        block: BlockNumber,
        tuple: &HeapTuple<'_>,
        desc: &TupleDesc,
        flavor: CustomFlavor,
    ) {
        self.rows += 1;
        self.add_as_chunk(block, tuple, desc.id_type);
        if tuple.attribute_count() > desc.attributes.len() {
            *self.longer.entry(tuple.attribute_count()).or_default() += 1;
            return;
        }
        match Walk::with_flavor(tuple, desc, flavor).find_map(Result::err) {
            Some(error) if error.kind == WalkErrorKind::Unreachable => self.lost += 1,
            Some(error) => *self.failed.entry(error.index).or_default() += 1,
            None => {}
        }
    }

    /// Rows that could not be read, apart from those with more attributes.
    fn unread(&self) -> usize {
        self.failed.values().sum::<usize>() + self.lost
    }

    fn add_as_chunk(&mut self, block: BlockNumber, tuple: &HeapTuple<'_>, id_type: ValueIdType) {
        let before = self.last.take();
        let Ok((value_id, seq, data)) = read_chunk(tuple, id_type) else { return };
        if matches!(data, Varlena::External(_) | Varlena::Custom(_) | Varlena::Unknown { .. }) {
            return;
        }
        self.chunks += 1;
        self.last = Some((block, value_id, seq));
        match before {
            Some((page, id, last))
                if page == block && id == value_id && last.checked_add(1) == Some(seq) =>
            {
                self.following += 1;
            }
            Some((page, ..)) if page == block && seq != 0 => {}
            _ => self.leading += 1,
        }
    }

    /// Whether the rows are those of a TOAST relation: chunks are counted from 0 for each value, and some have several.
    fn are_chunks(&self) -> bool {
        self.following > 0 && self.are_nearly_all(self.following + self.leading)
    }

    /// Whether so many of the rows are nearly all, and too many for that to be damage.
    fn are_nearly_all(&self, rows: usize) -> bool {
        self.rows >= MANY_VALUES && rows * 10 >= self.rows * 9
    }
}

/// The chunks in the file of a TOAST relation, if there is one that can be read.
pub(crate) type FileChunks<'a> = Option<ToastFile<Option<&'a PgXact>>>;

/// A relation file to read.
#[derive(Debug, Clone, Copy)]
pub struct FileTarget<'a> {
    /// The first segment of the heap's main fork.
    pub heap: &'a Path,
    /// The main fork of the TOAST relation.
    pub toast: Option<&'a Path>,
    pub desc: &'a TupleDesc,
    pub page_size: PageSize,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
    /// The commit status of transactions without hint bits.
    pub xact: Option<&'a PgXact>,
    /// Whether to verify page checksums; `None`: if the cluster's control file shows that there are any.
    pub checksums: Option<bool>,
    /// Which blocks of the heap to read; `None` for all. It has no effect if the TOAST relation is read, because then
    /// the whole heap is needed.
    pub sampling: Option<Sampling>,
}

impl<'a> FileTarget<'a> {
    /// The chunks in the TOAST relation's file, if there is one; why they cannot be read is added to `problems`.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn chunks(&self, problems: &mut Problems) -> Result<FileChunks<'a>, FileError> {
        let Some(path) = self.toast else { return Ok(None) };
        let file = RelationFile::open(path, self.page_size)?;
        match ToastFile::open(file, self.desc.id_type, self.xact) {
            Ok(chunks) => Ok(Some(chunks)),
            Err(error) => {
                let place = Place::new(path.display().to_string());
                problems.add(Problem { place, message: error.to_string() });
                Ok(None)
            }
        }
    }

    /// What the control file of its cluster says, if it is below one.
    pub(crate) fn control(&self) -> ControlFile {
        ControlFile::above(self.heap, self.page_size)
    }

    /// Whether page checksums are verified.
    pub fn verifies_checksums(&self) -> bool {
        self.checksums.unwrap_or_else(|| self.control().checksums == Checksums::On)
    }

    /// Why page checksums are not verified although the pages may have some; `None` if it is known.
    pub(crate) fn checksums_unverified(&self) -> Option<String> {
        match self.control().checksums {
            Checksums::Unknown(why) if self.checksums.is_none() => {
                Some(format!("page checksums were not verified: {why}"))
            }
            _ => None,
        }
    }

    /// Why WAL may replace any of its pages, if that is so.
    pub(crate) fn awaits_wal(&self) -> Option<&'static str> {
        let control = self.control();
        if control.is_backup {
            return Some("this is a base backup before recovery (backup_label)");
        }
        if !control.needs_recovery {
            return None;
        }
        let checkpoint = control.checkpoint?;
        for path in self.toast.into_iter().chain([self.heap]) {
            let Ok(mut file) = RelationFile::open(path, self.page_size) else { continue };
            for block in (0..file.blocks()).map(BlockNumber) {
                let Ok(Some(bytes)) = file.read(block) else { break };
                let Ok(PageState::Used(page)) = Page::parse(bytes) else { continue };
                let newer = page.header().lsn.saturating_sub(checkpoint);
                if (1..PLAUSIBLE_WAL).contains(&newer) {
                    return Some(
                        "the server runs, was not shut down, or was copied while it ran: pages are newer than its last \
                         checkpoint (pg_control)",
                    );
                }
            }
        }
        None
    }

    /// The pointers of rows that are not dead to values out of line, in blocks that are spread over the heap; `None` where
    /// pluggable toasters have some.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn some_pointers(&self) -> Result<Option<Vec<ToastPointer>>, FileError> {
        let mut file = RelationFile::open(self.heap, self.page_size)?;
        let mut pointers = Vec::new();
        // a server with pluggable TOAST has several TOAST relations
        let mut has_custom = false;
        let blocks = u64::from(file.blocks());
        for number in 0..POINTER_BLOCKS.min(blocks) {
            let block = BlockNumber((number * blocks / POINTER_BLOCKS.min(blocks)) as u32);
            let Ok(Some(page)) = file.read(block) else { continue };
            each_tuple(block, page, &self.xact, |_, tuple, _, seen| {
                if seen == Visibility::Dead {
                    return;
                }
                for walked in Walk::with_flavor(tuple, self.desc, self.flavor) {
                    match walked {
                        Ok((_, Datum::Varlena(Varlena::External(pointer)))) => {
                            pointers.push(pointer);
                        }
                        Ok((_, Datum::Varlena(Varlena::Custom(_)))) => has_custom = true,
                        _ => {}
                    }
                }
            });
        }
        Ok(if has_custom { None } else { Some(pointers) })
    }

    /// What to say if the TOAST file, which has values, has none of those that rows refer to: it is that of another table, or
    /// all are lost.
    pub(crate) fn foreign_toast(
        &self,
        has: impl Fn(ValueId) -> bool,
    ) -> Result<Option<String>, FileError> {
        let pointers = self.some_pointers()?.unwrap_or_default();
        let values: HashSet<u64> = pointers.iter().map(|pointer| pointer.value_id.0).collect();
        let is_foreign = values.len() >= MANY_VALUES && !values.iter().any(|&id| has(ValueId(id)));
        Ok(is_foreign.then(|| {
            format!(
                "none of {} values that rows refer to is in it, but others: is it the file of another table?",
                values.len()
            )
        }))
    }

    /// Why the columns cannot be those of the heap's rows: nearly all of these contradict them, which are too many to be
    /// damaged. Blocks that cannot be read are left to whoever reads all of them.
    pub fn misfit(&self) -> Option<Misfit> {
        let fit = self.fit(self.heap)?;
        if self.flavor != CustomFlavor::Auto && fit.unread() > 0 {
            let detected = FileTarget { flavor: CustomFlavor::Auto, ..*self }.fit(self.heap)?;
            if detected.unread() == 0 {
                return Some(Misfit::Flavor { failed: fit.unread(), rows: fit.rows });
            }
        }
        let failed: usize = fit.failed.values().sum();
        let longer: usize = fit.longer.values().sum();
        if fit.are_chunks() && (fit.unread() + longer) * 2 > fit.rows {
            return Some(Misfit::ToastRelation);
        }
        if let Some((&attributes, &most)) = fit.longer.iter().max_by_key(|(_, rows)| **rows)
            && most >= 2
            && most * 2 > fit.rows
        {
            return Some(Misfit::Attributes(attributes));
        }
        if !fit.are_nearly_all(failed) {
            return None;
        }
        let (&index, _) = fit.failed.iter().max_by_key(|(_, rows)| **rows)?;
        // bytes may be left over after the last one
        let columns = &self.desc.attributes;
        let column = columns.get(index).or(columns.last())?;
        Some(Misfit::Column { name: column.name.clone(), failed, rows: fit.rows })
    }

    /// Whether the rows of the TOAST file are none of a TOAST relation.
    pub fn is_no_toast(&self) -> bool {
        let fit = self.toast.and_then(|path| self.fit(path));
        fit.is_some_and(|fit| fit.are_nearly_all(fit.rows - fit.chunks))
    }

    /// Reads rows that are not dead as rows of the columns, and as chunks, in blocks that are spread over a file.
    fn fit(&self, path: &Path) -> Option<ColumnFit> {
        let mut file = RelationFile::open(path, self.page_size).ok()?;
        let mut fit = ColumnFit::default();
        let step = file.blocks().div_ceil(ATTRIBUTE_BLOCKS).max(1);
        for block in (0..file.blocks()).step_by(step as usize).map(BlockNumber) {
            let Ok(Some(page)) = file.read(block) else { continue };
            each_tuple(block, page, &self.xact, |_, tuple, _, seen| {
                // an aborted transaction may have added a column
                if seen != Visibility::Dead {
                    fit.add(block, tuple, self.desc, self.flavor);
                }
            });
        }
        Some(fit)
    }

    /// Passes the pages of these blocks of one of its files to a visitor, together with the problems of the pages and
    /// of the file.
    ///
    /// # Errors
    /// The file's pages have another size.
    pub(crate) fn visit<V: Visitor>(
        &self,
        file: &mut RelationFile,
        blocks: Sample,
        progress: &dyn Progress,
        visitor: &mut V,
    ) -> Result<(), FileError> {
        let name = file.path().display().to_string();
        let checksums = self.verifies_checksums();
        if let Some(message) = self.checksums_unverified() {
            visitor.problem(Problem { place: Place::new(name.as_str()), message });
        }
        progress.begin(&name, u64::from(blocks.chosen()));
        for (index, block) in blocks.enumerate() {
            let place = Place { block: Some(block), ..Place::new(name.as_str()) };
            match file.read(block) {
                Ok(Some(page)) => {
                    if index == 0 {
                        check_page_size(page, &name)?;
                    }
                    if let Some(wrong) = checksums.then(|| wrong_checksum(block, page)).flatten() {
                        visitor.problem(Problem { place, message: wrong.to_string() });
                    }
                    visitor.page(block, page, &self.xact);
                }
                Ok(None) => break,
                Err(error) => visitor.problem(Problem { place, message: error.to_string() }),
            }
            progress.advance(1);
        }
        progress.end();
        for (_, error) in file.truncated() {
            let place = Place::new(name.as_str());
            visitor.problem(Problem { place, message: error.to_string() });
        }
        Ok(())
    }
}

/// Distinguishes a file with another page size from a damaged one, by its first page.
pub(crate) fn check_page_size(page: &[u8], path: &str) -> Result<(), FileError> {
    match own_size(page).map(PageSize::bytes).filter(|&got| got != page.len()) {
        Some(got) => Err(FileError::PageSize { path: path.to_owned(), got, expected: page.len() }),
        None => Ok(()),
    }
}

/// The number of bytes of a file by which its page size is determined.
const BEGINNING: u64 = 256 << 10;

/// The page size of a relation file: the size for which pages that state this size cover most of the file's beginning.
/// 8192 bytes if there are no such pages or the file cannot be read; the error is then reported by the next reader.
pub fn page_size(relation_file: &Path) -> PageSize {
    let mut bytes = Vec::new();
    let read = open_regular(relation_file)
        .and_then(|file| file.take(BEGINNING).read_to_end(&mut bytes).map(drop));
    // What was read before an error is used too.
    drop(read);
    let sizes = [1024, 2048, 4096, 16384, 32768, 8192].into_iter().filter_map(PageSize::new);
    let most_agreeing = sizes.max_by_key(|size| {
        let pages = bytes.chunks_exact(size.bytes());
        pages.filter(|page| own_size(page) == Some(*size)).count() * size.bytes()
    });
    most_agreeing.unwrap_or(PageSize::DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_size_is_what_most_pages_say() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1");
        assert_eq!(page_size(&path), PageSize::DEFAULT);
        for size in [1024_u16, 8192, 16384, 32768] {
            let page = |size: u16| {
                let mut page = vec![0; size.into()];
                page[18..20].copy_from_slice(&(size | 4).to_le_bytes());
                page
            };
            // The first page is empty, the second is damaged.
            let zeroes = vec![0; size.into()];
            let mut wrong = page(size);
            wrong[18..20].copy_from_slice(&(2048_u16 | 4).to_le_bytes());
            let file = [zeroes.clone(), wrong, page(size), page(size)].concat();
            std::fs::write(&path, file).unwrap();
            assert_eq!(page_size(&path).bytes(), usize::from(size));
            std::fs::write(&path, zeroes).unwrap();
            assert_eq!(page_size(&path), PageSize::DEFAULT);
        }
    }
}
