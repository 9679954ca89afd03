//! Relation files and their segments (`md.c`), read block by block, and what a directory in their place is.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::other_file::{BEGINNING, OtherFile};
use toast_format::disk::{BlockNumber, PageSize};

/// Why a relation file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// An error of the operating system.
    #[error("could not {action} file \"{}\": {error}", path.display())]
    Io {
        /// The operation, `open` or `read`.
        action: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    /// It is a file of another kind, or a directory.
    #[error("\"{}\" is {kind}, not a relation file", path.display())]
    Other { path: PathBuf, kind: &'static str },
    /// It is a pipe, another special file, or a directory in place of one of `pg_xact`.
    #[error("\"{}\" is not a regular file", path.display())]
    NotRegular { path: PathBuf },
    /// The file ends inside a block.
    #[error(
        "file \"{}\" ends inside block {block}: it has {got} of {expected} bytes",
        path.display()
    )]
    Truncated {
        path: PathBuf,
        /// The incomplete block, counted over all segments.
        block: BlockNumber,
        /// The size of its existing part.
        got: usize,
        /// The size of a whole block.
        expected: usize,
    },
    /// A segment does not exist, but a later one does.
    #[error("file \"{}\" does not exist, but later segments do", path.display())]
    Missing { path: PathBuf },
    /// A segment that is followed by another one is shorter than a whole segment.
    #[error("file \"{}\" is shorter than a segment, though another one follows it", path.display())]
    Short { path: PathBuf },
    /// The file's pages have another size.
    #[error("\"{path}\" has pages of {got} bytes, not of {expected}")]
    PageSize {
        path: String,
        /// The size according to the first page.
        got: usize,
        expected: usize,
    },
    /// The file name does not show which transactions the file is about.
    #[error(
        "\"{}\" does not have the name of a pg_xact file: expected a segment number such as 0000",
        .0.display()
    )]
    XactName(PathBuf),
    /// The file is longer than a segment of `pg_xact`.
    #[error("file \"{}\" has {size} bytes, a file of pg_xact at most {most}", path.display())]
    XactSize {
        path: PathBuf,
        size: u64,
        /// The size of a whole segment.
        most: u64,
    },
}

struct Segment {
    path: PathBuf,
    blocks: u64,
    /// The number of bytes after the last whole block.
    rest: usize,
}

/// The main fork of a relation: a file and its segments `.1`, `.2` and so on.
pub struct RelationFile {
    segments: Vec<Segment>,
    /// A segment that does not exist although a later one does.
    missing: Option<PathBuf>,
    page_size: PageSize,
    /// The open segment, its index, and the block that can be read next without seeking.
    open: Option<(usize, File, u64)>,
    /// The pages that were read last.
    pages: Vec<(BlockNumber, Vec<u8>)>,
}

/// Pages of a file that are kept.
const PAGES: usize = 8;

impl RelationFile {
    /// Finds the file and its segments, and reads the first bytes, because another kind of file may have been named.
    pub fn open(path: &Path, page_size: PageSize) -> Result<RelationFile, FileError> {
        let file = RelationFile::open_fork(path, page_size)?;
        match other_kind(path) {
            Some(kind) => Err(FileError::Other { path: path.to_owned(), kind: kind.name }),
            None => Ok(file),
        }
    }

    /// Finds the file and its segments, of whichever fork. Nothing is read yet.
    pub(crate) fn open_fork(path: &Path, page_size: PageSize) -> Result<RelationFile, FileError> {
        let mut segments = vec![segment(path.to_owned(), page_size)?];
        let mut number = 1;
        let mut next = numbered(path, number);
        while next.exists() {
            segments.push(segment(next, page_size)?);
            number += 1;
            next = numbered(path, number);
        }
        let missing = has_later(path, number).then_some(next);
        Ok(RelationFile { segments, missing, page_size, open: None, pages: Vec::new() })
    }

    /// The path of the first segment, by which the relation is named.
    pub fn path(&self) -> &Path {
        self.segments.first().map_or(Path::new(""), |segment| &segment.path)
    }

    /// The number of whole blocks in all segments.
    pub fn blocks(&self) -> u32 {
        block_number(self.segments.iter().map(|s| s.blocks).sum()).0
    }

    /// Incomplete segments, as errors to report, each with the block that is incomplete or missing.
    pub fn truncated(&self) -> Vec<(BlockNumber, FileError)> {
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
            // The server begins a segment when the previous one is full, and does not remove empty ones.
            let is_full = segment.blocks == full && segment.blocks.is_power_of_two();
            if !is_full && last.is_some_and(|last| at < last) {
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

    /// A block; `None` after the last one.
    pub fn read(&mut self, block: BlockNumber) -> Result<Option<&[u8]>, FileError> {
        let kept = self.pages.iter().rposition(|(own, _)| *own == block);
        let at = match kept {
            Some(at) => at,
            None => {
                let mut page = if self.pages.len() < PAGES {
                    vec![0; self.page_size.bytes()]
                } else {
                    self.pages.remove(0).1
                };
                if !self.read_into(block, &mut page)? {
                    return Ok(None);
                }
                self.pages.push((block, page));
                self.pages.len() - 1
            }
        };
        Ok(self.pages.get(at).map(|(_, page)| page.as_slice()))
    }

    fn read_into(&mut self, block: BlockNumber, page: &mut [u8]) -> Result<bool, FileError> {
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
        let (mut file, next) = match self.open.take() {
            Some((open, file, next)) if open == index => (file, next),
            _ => (File::open(&segment.path).map_err(io("open"))?, 0),
        };
        if next != within {
            let at = within * self.page_size.bytes() as u64;
            file.seek(SeekFrom::Start(at)).map_err(io("read"))?;
        }
        file.read_exact(page).map_err(io("read"))?;
        self.open = Some((index, file, within + 1));
        Ok(true)
    }
}

/// Opens a regular file. To open a pipe would wait for somebody who writes to it.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    File::open(path)
}

/// What the file is if it is no relation file; `None` if that is not known, because it cannot be read or has no pages.
fn other_kind(path: &Path) -> Option<OtherFile> {
    if let Some(kind) = OtherFile::of_name(path) {
        return Some(kind);
    }
    let mut beginning = Vec::with_capacity(BEGINNING);
    let file = open_regular(path).ok()?;
    let has_whole_pages =
        file.metadata().ok()?.len().is_multiple_of(PageSize::DEFAULT.bytes() as u64);
    file.take(BEGINNING as u64).read_to_end(&mut beginning).ok()?;
    let kind = OtherFile::recognize(&beginning)?;
    // a damaged page may begin like anything, but its file still has the length of a relation file
    (kind.has_pages || !has_whole_pages).then_some(kind)
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Whether the directory contains a later segment that is not empty.
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

/// A relation has fewer than 2^32 blocks, so a longer file is not valid.
fn block_number(block: u64) -> BlockNumber {
    BlockNumber(u32::try_from(block).unwrap_or(u32::MAX))
}

fn segment(path: PathBuf, page_size: PageSize) -> Result<Segment, FileError> {
    let io = |error| FileError::Io { action: "open", path: path.clone(), error };
    let metadata = std::fs::metadata(&path).map_err(io)?;
    if let Some(directory) = DirectoryKind::at(&path) {
        return Err(FileError::Other { path, kind: directory.name() });
    }
    if !metadata.is_file() {
        return Err(FileError::NotRegular { path });
    }
    let size = page_size.bytes() as u64;
    Ok(Segment { path, blocks: metadata.len() / size, rest: (metadata.len() % size) as usize })
}

/// What a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryKind {
    /// That of a server.
    Data,
    /// That of a database, below `base` or a tablespace.
    Database,
    Other,
}

impl DirectoryKind {
    /// What the path is; `None` if it is no directory that can be seen.
    pub(crate) fn at(path: &Path) -> Option<DirectoryKind> {
        if !path.is_dir() {
            None
        } else if !path.join("PG_VERSION").is_file() {
            Some(DirectoryKind::Other)
        } else if path.join("base").is_dir() || path.join("global").is_dir() {
            Some(DirectoryKind::Data)
        } else {
            Some(DirectoryKind::Database)
        }
    }

    /// What messages call it, with its article.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DirectoryKind::Data => "a data directory",
            DirectoryKind::Database => "the directory of a database",
            DirectoryKind::Other => "a directory",
        }
    }
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
        for (block, first) in [(0, 1), (1, 2), (2, 3), (4, 5), (0, 1), (3, 4), (2, 3)] {
            assert_eq!(file.read(BlockNumber(block)).unwrap(), Some(&[first; 1024][..]));
            file.pages.clear();
        }
        assert!(file.read(BlockNumber(5)).unwrap().is_none());
        let errors: Vec<String> = file.truncated().iter().map(|(_, e)| e.to_string()).collect();
        let name = dir.path().join("123.2");
        assert_eq!(
            errors,
            [format!("file \"{}\" ends inside block 5: it has 5 of 1024 bytes", name.display())]
        );
    }

    #[test]
    fn segments_that_are_not_whole_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let errors = |path: &Path| -> Vec<String> {
            let file = RelationFile::open(path, PageSize::new(1024).unwrap()).unwrap();
            let place = |error: String| error.replace(&dir.path().display().to_string(), "");
            let errors = file.truncated().into_iter();
            errors
                .map(|(block, error)| format!("{}: {}", block.0, place(error.to_string())))
                .collect()
        };
        let path = write(dir.path(), "1", &[1, 2], 0);
        write(dir.path(), "1.1", &[3, 4], 0);
        write(dir.path(), "1.3", &[], 0);
        assert!(errors(&path).is_empty(), "{:?}", errors(&path));
        write(dir.path(), "1.4", &[9], 0);
        let missing = "4: file \"/1.2\" does not exist, but later segments do";
        assert_eq!(errors(&path), [missing]);
        let short = write(dir.path(), "2", &[1], 0);
        write(dir.path(), "2.1", &[3, 4], 0);
        let cut = write(dir.path(), "3", &[1, 2, 3], 0);
        write(dir.path(), "3.1", &[4], 0);
        assert_eq!(
            errors(&cut),
            ["3: file \"/3\" is shorter than a segment, though another one follows it"]
        );
        let message = "1: file \"/2\" is shorter than a segment, though another one follows it";
        assert_eq!(errors(&short), [message]);
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open =
            |path: &Path| RelationFile::open(path, PageSize::DEFAULT).err().unwrap().to_string();
        assert!(open(dir.path()).ends_with("is a directory, not a relation file"));
        assert!(open(&dir.path().join("none")).starts_with("could not open file"));
    }

    #[test]
    fn a_data_directory_and_that_of_a_database_are_known_by_what_they_contain() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(DirectoryKind::at(dir.path()), Some(DirectoryKind::Other));
        let version = dir.path().join("PG_VERSION");
        std::fs::write(&version, "15\n").unwrap();
        assert_eq!(DirectoryKind::at(dir.path()), Some(DirectoryKind::Database));
        std::fs::create_dir(dir.path().join("base")).unwrap();
        assert_eq!(DirectoryKind::at(dir.path()), Some(DirectoryKind::Data));
        assert_eq!(DirectoryKind::at(&version), None);
    }
}
