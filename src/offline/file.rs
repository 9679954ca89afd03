//! Relation files and their segments (`md.c`), read block by block, and what has to be known for it.
//!
//! Whether a cluster has page checksums is said by its control file (`pg_control.h`), whose layout is that of
//! PostgreSQL 13 to 18:
//!
//! ```text
//! 208 floatFormat 8   1234567.0: the layout is the one that is known
//! 216 blcksz 4
//! 252 data_checksum_version 4, 0 without checksums
//! ```

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::xact::PgXact;
use crate::disk::custom::CustomFlavor;
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::disk::{BlockNumber, ByteOrder};
use crate::heap::sample::Sampling;

/// Why a relation file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system's answer.
    #[error("could not {action} file \"{}\": {error}", path.display())]
    Io {
        /// `open`, `read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
    /// It is a directory, a pipe or the like.
    #[error("\"{}\" is not a regular file", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// The file ends inside a block.
    #[error(
        "file \"{}\" ends inside block {block}: {got} of {expected} bytes are there",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The block that is cut, counted over all segments.
        block: BlockNumber,
        /// Bytes of it there are.
        got: usize,
        /// Bytes of a block.
        expected: usize,
    },
    /// A segment is not there, though a later one is.
    #[error("there is no file \"{}\", though there are later segments", path.display())]
    Missing {
        /// The segment.
        path: PathBuf,
    },
    /// A segment that is followed by another one is shorter than it was made.
    #[error("file \"{}\" is shorter than a segment, though another one follows it", path.display())]
    Short {
        /// The segment.
        path: PathBuf,
    },
    /// The file's pages have another size.
    #[error(
        "\"{path}\" has pages of {got} bytes, not of {expected}\nHINT:  Use --block-size {got}."
    )]
    PageSize {
        path: String,
        /// What the first page says.
        got: usize,
        /// What was expected.
        expected: usize,
    },
}

struct Segment {
    path: PathBuf,
    blocks: u64,
    /// Bytes behind the last whole block.
    rest: usize,
}

/// A relation's main fork: a file and its segments `.1`, `.2` and so on.
pub struct RelationFile {
    segments: Vec<Segment>,
    /// The segment that is not there although a later one is.
    missing: Option<PathBuf>,
    page_size: PageSize,
    /// The open segment, its index, and the block that is read next without seeking.
    open: Option<(usize, File, u64)>,
}

impl RelationFile {
    /// Finds the file and its segments. Nothing is read yet.
    pub fn open(path: &Path, page_size: PageSize) -> Result<RelationFile, FileError> {
        let mut segments = vec![segment(path.to_owned(), page_size)?];
        for number in 1u32.. {
            let next = numbered(path, number);
            if !next.exists() {
                let missing = has_later(path, number).then_some(next);
                return Ok(RelationFile { segments, missing, page_size, open: None });
            }
            segments.push(segment(next, page_size)?);
        }
        Ok(RelationFile { segments, missing: None, page_size, open: None })
    }

    /// The path of the first segment, which names the relation.
    pub fn path(&self) -> &Path {
        self.segments.first().map_or(Path::new(""), |segment| &segment.path)
    }

    /// Whole blocks in all segments.
    pub fn blocks(&self) -> u64 {
        self.segments.iter().map(|s| s.blocks).sum()
    }

    /// Segments that end too soon, as the errors to report.
    pub fn truncated(&self) -> Vec<FileError> {
        self.truncated_blocks().into_iter().map(|(_, error)| error).collect()
    }

    /// As [`RelationFile::truncated`], with the block that is cut or missing.
    pub fn truncated_blocks(&self) -> Vec<(BlockNumber, FileError)> {
        let mut first = 0;
        let mut errors = Vec::new();
        let full = self.segments.iter().map(|segment| segment.blocks).max().unwrap_or(0);
        let last = self.segments.iter().rposition(|segment| segment.blocks > 0);
        for (at, segment) in self.segments.iter().enumerate() {
            if segment.rest > 0 {
                let block = block_number(first + segment.blocks);
                let error = FileError::Truncated {
                    path: segment.path.clone(),
                    block,
                    got: segment.rest,
                    expected: self.page_size.bytes(),
                };
                errors.push((block, error));
            }
            // the server begins a segment when the one before is full, and leaves empty ones behind
            if segment.blocks < full && last.is_some_and(|last| at < last) {
                let block = block_number(first + segment.blocks);
                errors.push((block, FileError::Short { path: segment.path.clone() }));
            }
            first += segment.blocks;
        }
        if let Some(path) = &self.missing {
            errors.push((block_number(first), FileError::Missing { path: path.clone() }));
        }
        errors
    }

    /// Reads one block into `page`, which must have the page size. `false` behind the last block.
    pub fn read(&mut self, block: BlockNumber, page: &mut [u8]) -> Result<bool, FileError> {
        let mut within = u64::from(block.0);
        let Some(index) = self.segments.iter().position(|segment| {
            let here = within < segment.blocks;
            if !here {
                within -= segment.blocks;
            }
            here
        }) else {
            return Ok(false);
        };
        let Some(segment) = self.segments.get(index) else { return Ok(false) };
        let io = |action| move |error| FileError::Io { action, path: segment.path.clone(), error };
        let mut file = match self.open.take() {
            Some((open, file, next)) if open == index && next == within => file,
            Some((open, mut file, _)) if open == index => {
                let at = within * self.page_size.bytes() as u64;
                file.seek(SeekFrom::Start(at)).map_err(io("read"))?;
                file
            }
            _ => {
                let mut file = File::open(&segment.path).map_err(io("open"))?;
                let at = within * self.page_size.bytes() as u64;
                file.seek(SeekFrom::Start(at)).map_err(io("read"))?;
                file
            }
        };
        file.read_exact(page).map_err(io("read"))?;
        self.open = Some((index, file, within + 1));
        Ok(true)
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Whether the directory has a segment after this one with anything in it.
fn has_later(path: &Path, number: u32) -> bool {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(entries) = std::fs::read_dir(directory.unwrap_or(Path::new("."))) else { return false };
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    entries.filter_map(Result::ok).any(|entry| {
        let other = entry.file_name();
        let after = other.to_str().and_then(|other| other.strip_prefix(name)?.strip_prefix('.'));
        let is_later = after.and_then(|after| after.parse().ok()).is_some_and(|n: u32| n > number);
        is_later && entry.metadata().is_ok_and(|found| found.is_file() && found.len() > 0)
    })
}

/// A relation has fewer than 2^32 blocks; a longer file cannot be one.
fn block_number(block: u64) -> BlockNumber {
    BlockNumber(u32::try_from(block).unwrap_or(u32::MAX))
}

fn segment(path: PathBuf, page_size: PageSize) -> Result<Segment, FileError> {
    let metadata = std::fs::metadata(&path).map_err(|error| FileError::Io {
        action: "open",
        path: path.clone(),
        error,
    })?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular { path });
    }
    let size = page_size.bytes() as u64;
    Ok(Segment { path, blocks: metadata.len() / size, rest: (metadata.len() % size) as usize })
}

/// `FLOATFORMAT_VALUE`.
const FLOAT_FORMAT: f64 = 1_234_567.0;
const FLOAT_FORMAT_AT: usize = 208;
const BLOCK_SIZE_AT: usize = 216;
const CHECKSUMS_AT: usize = 252;
/// Bytes that are read.
const LENGTH: usize = 256;

/// Whether the cluster that `relation_file` stands in has checksums: `global/pg_control` is looked
/// for in the directories above. `None` where it is not found or not understood.
pub fn has_checksums(relation_file: &Path, page: PageSize) -> Option<bool> {
    // base/DATABASE/FILE, global/FILE, pg_tblspc/OID/VERSION/DATABASE/FILE
    let above = relation_file.ancestors().skip(1).take(6);
    let files = above.map(|dir| dir.join("global").join("pg_control"));
    files.filter_map(|path| read(&path)).find_map(|bytes| checksums(&bytes, page))
}

fn read(path: &Path) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    let mut file = File::open(path).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn checksums(bytes: &[u8], page: PageSize) -> Option<bool> {
    [ByteOrder::Little, ByteOrder::Big].into_iter().find_map(|order| {
        let word = |at| order.u32(bytes, at);
        let (first, second) = (word(FLOAT_FORMAT_AT)?, word(FLOAT_FORMAT_AT + 4)?);
        let (low, high) = match order {
            ByteOrder::Little => (first, second),
            ByteOrder::Big => (second, first),
        };
        let float = f64::from_bits(u64::from(high) << 32 | u64::from(low));
        let known =
            float == FLOAT_FORMAT && word(BLOCK_SIZE_AT).map(|b| b as usize) == Some(page.bytes());
        known.then_some(word(CHECKSUMS_AT)? != 0)
    })
}

/// A relation file to read.
#[derive(Debug, Clone, Copy)]
pub struct FileTarget<'a> {
    /// The heap's main fork, first segment.
    pub heap: &'a Path,
    /// The TOAST relation's main fork.
    pub toast: Option<&'a Path>,
    /// The heap's columns.
    pub desc: &'a TupleDesc,
    /// Bytes of a page.
    pub page_size: PageSize,
    /// The layout of custom pointers.
    pub flavor: CustomFlavor,
    /// Commit status of transactions, where hint bits do not tell.
    pub xact: Option<&'a PgXact>,
    /// Whether page checksums are verified; `None`: if the cluster's control file says that there are any.
    pub checksums: Option<bool>,
    /// Which blocks of the heap are read; `None` for all. Without effect if the TOAST relation is
    /// read, for then all of it counts.
    pub sampling: Option<Sampling>,
}

impl FileTarget<'_> {
    /// Whether page checksums are verified.
    pub fn verifies_checksums(&self) -> bool {
        let detected = || has_checksums(self.heap, self.page_size).unwrap_or(false);
        self.checksums.unwrap_or_else(detected)
    }
}

/// Tells a file of other pages from a damaged one: the first page's own word on its size.
pub(crate) fn check_page_size(page: &[u8], path: &str) -> Result<(), FileError> {
    const SIZE_WORD: usize = 18;
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let word = order.u16(page, SIZE_WORD).unwrap_or(0);
        let got = usize::from(word & 0xFF00);
        if word & 0x00FF == 4 && got != page.len() && PageSize::new(got).is_some() {
            return Err(FileError::PageSize { path: path.to_owned(), got, expected: page.len() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str, blocks: &[u8], rest: usize) -> PathBuf {
        let mut bytes: Vec<u8> = blocks.iter().flat_map(|&b| vec![b; 1024]).collect();
        bytes.extend(vec![0xEE; rest]);
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn segments_are_one_relation() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), "123", &[1, 2], 0);
        write(dir.path(), "123.1", &[3, 4], 0);
        write(dir.path(), "123.2", &[5], 5);
        write(dir.path(), "123.4.1", &[9], 0);
        let mut file = RelationFile::open(&path, PageSize::new(1024).unwrap()).unwrap();
        assert_eq!(file.blocks(), 5);
        let mut page = [0; 1024];
        for (block, first) in [(0, 1), (1, 2), (2, 3), (4, 5), (0, 1), (3, 4), (2, 3)] {
            assert!(file.read(BlockNumber(block), &mut page).unwrap());
            assert_eq!(page, [first; 1024]);
        }
        assert!(!file.read(BlockNumber(5), &mut page).unwrap());
        let errors: Vec<String> = file.truncated().iter().map(ToString::to_string).collect();
        let name = dir.path().join("123.2");
        assert_eq!(
            errors,
            [format!("file \"{}\" ends inside block 5: 5 of 1024 bytes are there", name.display())]
        );
    }

    #[test]
    fn segments_that_are_not_whole_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let errors = |path: &Path| -> Vec<String> {
            let file = RelationFile::open(path, PageSize::new(1024).unwrap()).unwrap();
            let place = |error: String| error.replace(&dir.path().display().to_string(), "");
            let errors = file.truncated_blocks().into_iter();
            errors
                .map(|(block, error)| format!("{}: {}", block.0, place(error.to_string())))
                .collect()
        };
        let path = write(dir.path(), "1", &[1, 2], 0);
        write(dir.path(), "1.1", &[3, 4], 0);
        write(dir.path(), "1.3", &[], 0);
        assert!(errors(&path).is_empty(), "{:?}", errors(&path));
        write(dir.path(), "1.4", &[9], 0);
        let missing = "4: there is no file \"/1.2\", though there are later segments";
        assert_eq!(errors(&path), [missing]);
        let short = write(dir.path(), "2", &[1], 0);
        write(dir.path(), "2.1", &[3, 4], 0);
        let told = "1: file \"/2\" is shorter than a segment, though another one follows it";
        assert_eq!(errors(&short), [told]);
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open =
            |path: &Path| RelationFile::open(path, PageSize::DEFAULT).err().unwrap().to_string();
        assert!(open(dir.path()).ends_with("is not a regular file"));
        assert!(open(&dir.path().join("none")).starts_with("could not open file"));
    }

    #[test]
    fn the_control_file_is_found_above_the_relation() {
        let dir = tempfile::tempdir().unwrap();
        let relation = dir.path().join("base").join("5").join("16384");
        std::fs::create_dir_all(relation.parent().unwrap()).unwrap();
        std::fs::create_dir_all(dir.path().join("global")).unwrap();
        assert_eq!(has_checksums(&relation, PageSize::DEFAULT), None);
        let mut control = vec![0; 8192];
        control[208..216].copy_from_slice(&FLOAT_FORMAT.to_le_bytes());
        control[216..220].copy_from_slice(&8192u32.to_le_bytes());
        let path = dir.path().join("global").join("pg_control");
        std::fs::write(&path, &control).unwrap();
        assert_eq!(has_checksums(&relation, PageSize::DEFAULT), Some(false));
        control[252] = 1;
        std::fs::write(&path, &control).unwrap();
        assert_eq!(has_checksums(&relation, PageSize::DEFAULT), Some(true));
        // the cluster is another one
        assert_eq!(has_checksums(&relation, PageSize::new(4096).unwrap()), None);
    }
}
