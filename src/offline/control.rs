//! Whether a cluster has page checksums, by its control file (`pg_control.h`).
//!
//! ```text
//! 208 floatFormat 8   1234567.0: the layout is the one that is known
//! 216 blcksz 4
//! 252 data_checksum_version 4, 0 without checksums
//! ```
//!
//! The layout is that of PostgreSQL 13 to 18.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::disk::ByteOrder;
use crate::disk::layout::PageSize;

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

#[cfg(test)]
mod tests {
    use super::*;

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
