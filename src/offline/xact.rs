//! The commit status of transactions from files of `pg_xact` (`clog.c`): 2 bits each, in segments of 2^20 transactions
//! that are named by their hexadecimal numbers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::file::FileError;
use toast_format::disk::TransactionId;
use toast_format::model::visibility::Transactions;

/// The number of transactions in a segment file (`CLOG_XACTS_PER_PAGE * SLRU_PAGES_PER_SEGMENT`, 8 kB pages).
const XACTS_PER_SEGMENT: u32 = 1 << 20;
/// The number of segments that hold all transaction IDs; the IDs wrap around after the last one.
const SEGMENTS: u32 = 1 << 12;
/// The size of a whole segment file.
const SEGMENT_SIZE: u64 = XACTS_PER_SEGMENT as u64 / 4;
/// The first normal transaction ID; lower ones always count as committed.
const FIRST_NORMAL: u32 = 3;

/// The status bits of a segment.
#[derive(Debug)]
struct CommitSegment {
    bytes: Vec<u8>,
    /// How many of the bytes there are up to the last transaction that has ended.
    ended: usize,
}

impl CommitSegment {
    fn new(bytes: Vec<u8>) -> CommitSegment {
        let ended = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        CommitSegment { bytes, ended }
    }
}

/// `pg_xact`, or a part of it.
#[derive(Debug, Default)]
pub struct PgXact {
    /// By number; `None` if the file does not exist.
    segments: Mutex<HashMap<u32, Option<CommitSegment>>>,
    /// The directory of segments that were not read yet.
    directory: Option<PathBuf>,
}

impl PgXact {
    /// Opens a directory, whose files are read when needed, or a single file named by its segment number (`0000`),
    /// possibly with a prefix (`pg_xact_0000.bin`).
    pub fn open(path: &Path) -> Result<PgXact, FileError> {
        if path.is_dir() {
            return Ok(PgXact { directory: Some(path.to_owned()), ..PgXact::default() });
        }
        let number = path.file_stem().and_then(|stem| segment_number(&stem.to_string_lossy()));
        let number = number.ok_or_else(|| FileError::XactName(path.to_owned()))?;
        let segment = Some(CommitSegment::new(read(path)?));
        Ok(PgXact { segments: Mutex::new(HashMap::from([(number, segment)])), directory: None })
    }

    /// What this does with a segment; `None` if no file has it.
    fn of_segment<T>(&self, number: u32, what: impl FnOnce(&CommitSegment) -> T) -> Option<T> {
        let mut segments = self.segments.lock();
        let segment = segments.entry(number).or_insert_with(|| {
            let path = self.directory.as_ref()?.join(format!("{number:04X}"));
            read(&path).ok().map(CommitSegment::new)
        });
        segment.as_ref().map(what)
    }

    /// The two status bits of a transaction: 0 in progress or lost in a crash, 1 committed, 2 aborted, 3 committed if
    /// its parent is. `None` if no file contains them, or if they are 0 and no later transaction has ended: the files may be
    /// older than the transaction.
    fn status(&self, xid: TransactionId) -> Option<u8> {
        let number = xid.0 / XACTS_PER_SEGMENT;
        let within = xid.0 % XACTS_PER_SEGMENT;
        let place = (within / 4) as usize;
        let (status, is_last) = self.of_segment(number, |segment| {
            let byte = *segment.bytes.get(place)?;
            let later = byte.checked_shr(within % 4 * 2 + 2).unwrap_or(0);
            Some((byte >> (within % 4 * 2) & 3, later == 0 && segment.ended <= place + 1))
        })??;
        let is_newer = status == 0
            && is_last
            && self.of_segment((number + 1) % SEGMENTS, |next| next.ended > 0) != Some(true);
        (!is_newer).then_some(status)
    }
}

fn segment_number(stem: &str) -> Option<u32> {
    let start = stem.len().checked_sub(4)?;
    let digits = stem.get(start..)?;
    if !digits.chars().all(|c| c.is_ascii_digit() || ('A'..='F').contains(&c))
        || stem.get(..start)?.ends_with(|c: char| c.is_ascii_hexdigit())
    {
        return None;
    }
    u32::from_str_radix(digits, 16).ok().filter(|&number| number < 1 << 12)
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let io = |action, error| FileError::Io { action, path: path.to_owned(), error };
    let found = std::fs::metadata(path).map_err(|error| io("open", error))?;
    if !found.is_file() {
        return Err(FileError::NotRegular { path: path.to_owned() });
    }
    let size = found.len();
    if size > SEGMENT_SIZE {
        return Err(FileError::XactSize { path: path.to_owned(), size, most: SEGMENT_SIZE });
    }
    std::fs::read(path).map_err(|error| io("read", error))
}

impl Transactions for PgXact {
    fn sees_changes_of(&self, xid: TransactionId, hinted: bool) -> Option<bool> {
        if hinted || xid.0 < FIRST_NORMAL {
            return Some(true);
        }
        match self.status(xid)? {
            1 => Some(true),
            0 | 2 => Some(false),
            _ => None,
        }
    }

    fn was_aborted(&self, xid: TransactionId) -> bool {
        self.status(xid) == Some(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_of_one_file_and_of_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        // The status of transactions 0 to 7 is 0 1 2 3, 1 1 2 0.
        std::fs::write(dir.path().join("0000"), [0b1110_0100, 0b0010_0101]).unwrap();
        std::fs::write(dir.path().join("000A"), [0b0000_0010]).unwrap();
        let seen = |xact: &PgXact, xid| xact.sees_changes_of(TransactionId(xid), false);
        let one = PgXact::open(&dir.path().join("0000")).unwrap();
        let fates: Vec<_> = (3..9).map(|xid| seen(&one, xid)).collect();
        // no transaction after 7 has ended: it may be newer than the file
        assert_eq!(fates, [None, Some(true), Some(true), Some(false), None, None]);
        assert_eq!(seen(&one, 10 << 20), None);
        assert_eq!(one.sees_changes_of(TransactionId(100), true), Some(true));
        assert_eq!(seen(&one, 2), Some(true));
        let all = PgXact::open(dir.path()).unwrap();
        assert_eq!(seen(&all, 5), Some(true));
        assert_eq!(seen(&all, 10 << 20), Some(false));
        assert_eq!(seen(&all, (10 << 20) + 4), None);
    }

    #[test]
    fn what_is_no_segment_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            PgXact::open(&path).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(open("pg_xact_0001.bin", b""), Ok(()));
        assert!(open("00012", b"").unwrap_err().contains("expected a segment number"));
        assert!(open("1234", b"").unwrap_err().contains("expected a segment number"));
        assert!(open("0000", &vec![0; 262_145]).unwrap_err().ends_with("at most 262144"));
        assert!(
            PgXact::open(&dir.path().join("0002"))
                .unwrap_err()
                .to_string()
                .starts_with("could not open file")
        );
    }
}
