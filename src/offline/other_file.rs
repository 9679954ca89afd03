//! Files of other kinds that are given by mistake, recognized by their first bytes.

use std::path::Path;

use toast_format::disk::{ByteOrder, PageSize};

/// What a file is that is neither a relation file nor saved output of pageinspect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OtherFile {
    /// What messages call it, with its article.
    pub(crate) name: &'static str,
    /// Whether it consists of pages of the server, or of blocks of that size.
    pub(crate) has_pages: bool,
}

/// How much of a file is read to recognize it.
pub(crate) const BEGINNING: usize = 512;

/// First bytes that say what a file is.
const BEGINNINGS: [(&[u8], OtherFile); 9] = [
    // RELMAPPER_FILEMAGIC (relmapper.c)
    (b"\x17\x27\x59\0", with_pages("a relation map (pg_filenode.map)")),
    (b"\x1f\x8b\x08", without_pages("compressed by gzip")),
    (b"\x28\xb5\x2f\xfd", without_pages("compressed by zstd")),
    (b"\x04\x22\x4d\x18", without_pages("compressed by lz4")),
    (b"BZh", without_pages("compressed by bzip2")),
    (b"\xfd7zXZ\0", without_pages("compressed by xz")),
    (b"PK\x03\x04", without_pages("a zip archive")),
    (b"PGDMP", without_pages("an archive of pg_dump")),
    (b"\x7fELF", without_pages("a program")),
];

const fn with_pages(name: &'static str) -> OtherFile {
    OtherFile { name, has_pages: true }
}

const fn without_pages(name: &'static str) -> OtherFile {
    OtherFile { name, has_pages: false }
}

impl OtherFile {
    pub(crate) const TEXT: OtherFile = without_pages("text");

    /// Recognizes a file by its first 512 bytes, or all of it if it is shorter.
    pub(crate) fn recognize(beginning: &[u8]) -> Option<OtherFile> {
        if own_size(beginning).is_some() {
            return is_btree(beginning).then_some(with_pages("an index"));
        }
        if let Some((_, kind)) = BEGINNINGS.iter().find(|(bytes, _)| beginning.starts_with(bytes)) {
            return Some(*kind);
        }
        if beginning.get(257..262) == Some(b"ustar") {
            return Some(without_pages("a tar archive"));
        }
        if is_wal(beginning) {
            return Some(with_pages("a WAL file"));
        }
        if is_control_file(beginning) {
            return Some(with_pages("a control file (pg_control)"));
        }
        is_text(beginning).then_some(OtherFile::TEXT)
    }

    /// Recognizes a file of a relation or cluster that has no rows by its name and its directory's.
    pub(crate) fn of_name(path: &Path) -> Option<OtherFile> {
        let directory = path.parent().and_then(Path::file_name);
        let name = path.file_name()?.to_str()?;
        if name.ends_with("_fsm") {
            Some(with_pages("a free space map"))
        } else if name.ends_with("_vm") {
            Some(with_pages("a visibility map"))
        } else if directory.is_some_and(|directory| directory == "pg_xact") {
            Some(with_pages("a file of pg_xact (--xact)"))
        } else {
            None
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The size in a page's header (`pd_pagesize_version`, layout version 4), in either order of bytes.
pub(crate) fn own_size(page: &[u8]) -> Option<PageSize> {
    const SIZE_WORD: usize = 18;
    [ByteOrder::Little, ByteOrder::Big].into_iter().find_map(|order| {
        let word = order.u16(page, SIZE_WORD)?;
        if word & 0x00FF == 4 { PageSize::new(usize::from(word & 0xFF00)) } else { None }
    })
}

/// Whether the page is the metapage of a btree (`nbtree.h`).
fn is_btree(bytes: &[u8]) -> bool {
    const MAGIC: u32 = 0x0005_3162;
    u32_at(bytes, 24) == Some(MAGIC)
}

/// Whether it begins with a long WAL page header (`xlog_internal.h`).
fn is_wal(bytes: &[u8]) -> bool {
    const LONG_HEADER: u16 = 2;
    let magic = u16_at(bytes, 0).unwrap_or(0);
    let has_long_header = u16_at(bytes, 2).is_some_and(|flags| flags & LONG_HEADER != 0);
    let segment = u32_at(bytes, 32).unwrap_or(0);
    let page = u32_at(bytes, 36).unwrap_or(0);
    magic >> 8 == 0xD1 && has_long_header && segment.is_power_of_two() && page.is_power_of_two()
}

/// Whether it begins as `ControlFileData` does (`pg_control.h`).
fn is_control_file(bytes: &[u8]) -> bool {
    let version = u32_at(bytes, 8).unwrap_or(0);
    let catalog = u32_at(bytes, 12).unwrap_or(0);
    (900..3000).contains(&version) && (200_000_000..210_000_000).contains(&catalog)
}

/// Whether this is the beginning of a text in UTF-8, which may end within a character. A page has zeros in its header.
fn is_text(bytes: &[u8]) -> bool {
    let is_utf8 = match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    is_utf8
        && !bytes.is_empty()
        && bytes.iter().all(|byte| *byte >= b' ' || byte.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_kinds_are_recognized_and_pages_are_not() {
        let mut tar = vec![0; 512];
        tar[..6].copy_from_slice(b"README");
        tar[257..262].copy_from_slice(b"ustar");
        let mut wal = vec![0; 512];
        wal[..4].copy_from_slice(&[0x10, 0xD1, 2, 0]);
        wal[32..36].copy_from_slice(&(16u32 << 20).to_le_bytes());
        wal[36..40].copy_from_slice(&8192u32.to_le_bytes());
        for (bytes, kind) in [
            (&tar[..], Some("a tar archive")),
            (&wal, Some("a WAL file")),
            (b"root:x:0:0:root:/root:/bin/bash\n", Some("text")),
            ("caf\u{e9}".as_bytes(), Some("text")),
            (b"\x1f\x8b\x08\x00rest", Some("compressed by gzip")),
            (b"", None),
            (&[0; 512], None),
            (&[0xff; 512], None),
        ] {
            assert_eq!(OtherFile::recognize(bytes).map(|file| file.name), kind, "{bytes:?}");
        }
        // a page that holds a text like a tar archive's header
        tar[18..20].copy_from_slice(&[0x04, 0x20]);
        assert_eq!(OtherFile::recognize(&tar), None);
    }
}
