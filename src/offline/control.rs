//! The control file of a cluster (`pg_control.h`): whether its pages have checksums, and the range of its transaction IDs.
//!
//! The layout depends on `pg_control_version`:
//!
//! ```text
//! 1300..1800  1905
//!   8           8  pg_control_version 4
//!  16          16  state 4         1: shut down, 2: shut down in recovery
//!  32          32  checkPoint 8    where the last checkpoint begins in the WAL
//!  64          72  nextXid 8       of the last checkpoint
//!  76          84  nextMulti 4
//!  84          96  oldestXid 4
//!  92         104  oldestMulti 4
//! 208         216  floatFormat 8   1234567.0
//! 216         224  blcksz 4
//! 252         268  data_checksum_version 4
//! ```
//!
//! 1300 is the version of PostgreSQL 13 to 16, 1700 and 1800 those of 17 and 18, 1905 that of 19. For other versions
//! nothing is assumed: it is then unknown whether there are checksums, which differs from knowing that there are none.

use std::io::Read;
use std::path::Path;

use super::file::open_regular;
use toast_format::disk::{ByteOrder, PageSize, TransactionId};

/// `FLOATFORMAT_VALUE` in `pg_control.h`.
const FLOAT_FORMAT: f64 = 1_234_567.0;
const VERSION_AT: usize = 8;
const STATE_AT: usize = 16;
/// `checkPoint`, the place of the last checkpoint.
const CHECKPOINT_AT: usize = 32;
/// `DB_SHUTDOWNED`.
const SHUT_DOWN: u32 = 1;
/// `DB_SHUTDOWNED_IN_RECOVERY`.
const SHUT_DOWN_IN_RECOVERY: u32 = 2;
/// The newest version with a known layout.
const NEWEST: u32 = 1905;
/// The number of bytes to read.
const LENGTH: usize = 272;

/// `nextMulti` behind `nextXid`, and `oldestMulti` behind `oldestXid`.
const NEXT_MULTI: usize = 12;
const OLDEST_MULTI: usize = 8;

/// The offsets of the fields that differ between versions.
struct ControlLayout {
    next_xid: usize,
    oldest_xid: usize,
    float_format: usize,
    block_size: usize,
    checksums: usize,
}

impl ControlLayout {
    fn of_version(version: u32) -> Option<ControlLayout> {
        match version {
            1300 | 1700 | 1800 => Some(ControlLayout {
                next_xid: 64,
                oldest_xid: 84,
                float_format: 208,
                block_size: 216,
                checksums: 252,
            }),
            NEWEST => Some(ControlLayout {
                next_xid: 72,
                oldest_xid: 96,
                float_format: 216,
                block_size: 224,
                checksums: 268,
            }),
            _ => None,
        }
    }
}

/// Whether the pages of a cluster have checksums.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Checksums {
    /// There is no control file.
    #[default]
    NoControlFile,
    /// The pages have none, it says.
    Off,
    /// All of them have.
    On,
    /// There is a control file, but it does not show this, for the given reason.
    Unknown(String),
}

/// The transaction IDs and MultiXact IDs that tuples of a cluster can have, unless they are frozen: from the oldest to
/// before the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// `nextXid` and `oldestXid`.
    pub next_xid: TransactionId,
    pub oldest_xid: TransactionId,
    /// `nextMulti` and `oldestMulti`.
    pub next_multi: TransactionId,
    pub oldest_multi: TransactionId,
}

/// Facts about a cluster from its control file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControlFile {
    /// Whether pages have checksums.
    pub checksums: Checksums,
    /// Its transaction IDs, if the server was shut down cleanly.
    pub ids: Option<Ids>,
    /// The last checkpoint. If the server was shut down cleanly, no page is newer.
    pub checkpoint: Option<u64>,
    /// Whether the server runs, or ended without a shutdown: the files are then behind the WAL.
    pub needs_recovery: bool,
    /// Whether a `backup_label` is there: recovery, which renames it, has not begun.
    pub is_backup: bool,
    /// Whether its version is newer than the known ones.
    pub is_newer: bool,
}

impl ControlFile {
    /// Reads the control file of the cluster that contains `relation_file`: `global/pg_control` is looked up in the
    /// directories above. If there is none, nothing is known.
    pub fn above(relation_file: &Path, page: PageSize) -> ControlFile {
        let Ok(relation_file) = std::path::absolute(relation_file) else {
            return ControlFile::default();
        };
        // The paths are base/DATABASE/FILE, global/FILE, and pg_tblspc/OID/VERSION/DATABASE/FILE.
        let mut above = relation_file.ancestors().skip(1).take(6);
        let control = above.find_map(|dir| {
            let mut control = read(&dir.join("global").join("pg_control"), page)?;
            control.is_backup = dir.join("backup_label").exists();
            Some(control)
        });
        control.unwrap_or_default()
    }

    /// Parses the first bytes of a control file; `path` is used in explanations.
    fn parse(bytes: &[u8; LENGTH], page: PageSize, path: &str) -> ControlFile {
        let unknown = |why: &str| ControlFile {
            checksums: Checksums::Unknown(format!("{path}: {why}")),
            ..ControlFile::default()
        };
        let number = |order: ByteOrder, at| order.u32(bytes, at).unwrap_or_default();
        // Version numbers are small, so a large number means the other byte order.
        let order = match number(ByteOrder::Little, VERSION_AT) {
            0..=0xFFFF => ByteOrder::Little,
            _ => ByteOrder::Big,
        };
        let word = |at| number(order, at);
        let version = word(VERSION_AT);
        let Some(layout) = ControlLayout::of_version(version) else {
            let unknown = unknown(&format!("control file version {version} is not known"));
            return ControlFile { is_newer: version > NEWEST, ..unknown };
        };
        let first = word(layout.float_format);
        let second = word(layout.float_format + 4);
        // Depending on the byte order, the low half comes first or last.
        let (low, high, xid_at) = match order {
            ByteOrder::Little => (first, second, layout.next_xid),
            ByteOrder::Big => (second, first, layout.next_xid + 4),
        };
        if f64::from_bits(u64::from(high) << 32 | u64::from(low)) != FLOAT_FORMAT {
            return unknown("its fields are not where its version has them");
        }
        let block_size = word(layout.block_size);
        if usize::try_from(block_size) != Ok(page.bytes()) {
            return unknown(&format!("its cluster has blocks of {block_size} bytes"));
        }
        let checksums = match word(layout.checksums) {
            0 => Checksums::Off,
            1 => Checksums::On,
            // 2 and 3 mean that checksums are being enabled or disabled.
            state => Checksums::Unknown(format!(
                "{path}: data_checksum_version is {state}, so not every page has a checksum"
            )),
        };
        let state = word(STATE_AT);
        let ids = (state == SHUT_DOWN).then(|| Ids {
            next_xid: TransactionId(word(xid_at)),
            oldest_xid: TransactionId(word(layout.oldest_xid)),
            next_multi: TransactionId(word(layout.next_xid + NEXT_MULTI)),
            oldest_multi: TransactionId(word(layout.oldest_xid + OLDEST_MULTI)),
        });
        let halves = [word(CHECKPOINT_AT), word(CHECKPOINT_AT + 4)].map(u64::from);
        let checkpoint = match order {
            ByteOrder::Little => halves[1] << 32 | halves[0],
            ByteOrder::Big => halves[0] << 32 | halves[1],
        };
        let checkpoint = Some(checkpoint).filter(|lsn| *lsn != 0);
        let needs_recovery = ![SHUT_DOWN, SHUT_DOWN_IN_RECOVERY].contains(&state);
        ControlFile {
            checksums,
            ids,
            checkpoint,
            needs_recovery,
            is_backup: false,
            is_newer: false,
        }
    }
}

fn read(path: &Path, page: PageSize) -> Option<ControlFile> {
    let mut bytes = [0; LENGTH];
    let mut file = open_regular(path).ok()?;
    file.read_exact(&mut bytes).ok()?;
    Some(ControlFile::parse(&bytes, page, &path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of the control files of PostgreSQL 15 and 19, shut down, with checksums; the offset of the
    /// checksum version, and the next and the oldest transaction ID.
    const CAPTURED: [(&[u8], usize, [u32; 2]); 2] = [
        (include_bytes!("../../fixtures/pg_control/15.bin"), 252, [724, 716]),
        (include_bytes!("../../fixtures/pg_control/19.bin"), 268, [662, 654]),
    ];

    fn ids([next_xid, oldest_xid, next_multi, oldest_multi]: [u32; 4]) -> Ids {
        Ids {
            next_xid: TransactionId(next_xid),
            oldest_xid: TransactionId(oldest_xid),
            next_multi: TransactionId(next_multi),
            oldest_multi: TransactionId(oldest_multi),
        }
    }

    fn parse(bytes: &[u8]) -> ControlFile {
        ControlFile::parse(bytes.first_chunk().unwrap(), PageSize::DEFAULT, "pg_control")
    }

    #[test]
    fn what_servers_wrote_is_understood() {
        for (bytes, at, [next, oldest]) in CAPTURED {
            let control = parse(bytes);
            assert_eq!(control.checksums, Checksums::On);
            assert_eq!(control.ids, Some(ids([next, oldest, 1, 1])));
            for (state, expected) in [(0, Some(Checksums::Off)), (2, None), (3, None)] {
                let mut bytes = bytes.to_vec();
                bytes[at] = state;
                let checksums = parse(&bytes).checksums;
                match expected {
                    Some(expected) => assert_eq!(checksums, expected),
                    None => assert!(matches!(checksums, Checksums::Unknown(_)), "{checksums:?}"),
                }
            }
            // While a server runs, the next transaction ID in the file is outdated.
            let mut running = bytes.to_vec();
            running[STATE_AT] = 6;
            assert_eq!(parse(&running).ids, None);
            assert!(parse(&running).needs_recovery && !control.needs_recovery);
        }
    }

    #[test]
    fn the_other_byte_order_is_understood() {
        let mut bytes = [0; LENGTH];
        bytes[VERSION_AT..][..4].copy_from_slice(&1905_u32.to_be_bytes());
        bytes[STATE_AT..][..4].copy_from_slice(&SHUT_DOWN.to_be_bytes());
        bytes[72..][..8].copy_from_slice(&(7_u64 << 32 | 900).to_be_bytes());
        for (at, id) in [(96, 700_u32), (84, 40), (104, 30)] {
            bytes[at..][..4].copy_from_slice(&id.to_be_bytes());
        }
        bytes[216..][..8].copy_from_slice(&FLOAT_FORMAT.to_be_bytes());
        bytes[224..][..4].copy_from_slice(&8192_u32.to_be_bytes());
        bytes[268..][..4].copy_from_slice(&1_u32.to_be_bytes());
        let expected = ControlFile {
            checksums: Checksums::On,
            ids: Some(ids([900, 700, 40, 30])),
            checkpoint: None,
            needs_recovery: false,
            is_backup: false,
            is_newer: false,
        };
        assert_eq!(parse(&bytes), expected);
    }

    #[test]
    fn what_is_not_understood_is_not_taken_for_no_checksums() {
        let (captured, _, _) = CAPTURED[1];
        let unknown = |change: &dyn Fn(&mut [u8])| {
            let mut bytes = captured.to_vec();
            change(&mut bytes);
            match parse(&bytes) {
                ControlFile { checksums: Checksums::Unknown(why), ids: None, .. } => why,
                other => panic!("{other:?}"),
            }
        };
        let version = |version: u32| {
            unknown(&|bytes| bytes[VERSION_AT..][..4].copy_from_slice(&version.to_le_bytes()))
        };
        assert_eq!(version(2001), "pg_control: control file version 2001 is not known");
        // The layout is that of another version.
        assert_eq!(version(1800), "pg_control: its fields are not where its version has them");
        let blocks = unknown(&|bytes| bytes[224..][..4].copy_from_slice(&4096_u32.to_le_bytes()));
        assert_eq!(blocks, "pg_control: its cluster has blocks of 4096 bytes");
    }

    #[test]
    fn it_is_found_above_the_relation() {
        let dir = tempfile::tempdir().unwrap();
        let relation = dir.path().join("base").join("5").join("16384");
        std::fs::create_dir_all(relation.parent().unwrap()).unwrap();
        std::fs::create_dir_all(dir.path().join("global")).unwrap();
        let control = || ControlFile::above(&relation, PageSize::DEFAULT);
        assert_eq!(control(), ControlFile::default());
        std::fs::write(dir.path().join("global").join("pg_control"), CAPTURED[0].0).unwrap();
        assert_eq!(control().checksums, Checksums::On);
    }
}
