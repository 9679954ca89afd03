//! Tests with one damaged input for each reason why a value cannot be reassembled.

use super::catalog::Toasters;
use super::chunks::{Chunk, ChunkData, ChunkStore, Fate, StoreError};
use super::error::{ToastError, ValueRef};
use super::reassemble::Reassembler;
use crate::disk::{BlockNumber, ByteOrder, ItemPointer, Oid, PageSize, ValueId, Varlena};

const RELATION: Oid = Oid(77);
const VALUE: ValueId = ValueId(55);
const SELF: ValueRef = ValueRef { value_id: VALUE, relation: RELATION };

#[derive(Default)]
struct Memory(Vec<Chunk>);

impl ChunkStore for Memory {
    fn chunks(&mut self, _: Oid, value_id: ValueId) -> Result<Vec<Chunk>, StoreError> {
        Ok(self.0.iter().filter(|chunk| chunk.value_id == value_id).cloned().collect())
    }

    fn chunk_at(&mut self, _: Oid, tid: ItemPointer) -> Result<Option<Chunk>, StoreError> {
        Ok(self.0.iter().find(|chunk| chunk.tid == tid).cloned())
    }
}

fn tid(item: u16) -> ItemPointer {
    ItemPointer { block: BlockNumber(0), item }
}

impl Memory {
    fn with(mut self, seq: i32, data: &[u8]) -> Memory {
        let tid = tid(self.0.len() as u16 + 1);
        let stored_size = data.len() as u64;
        let data = ChunkData::Plain(data.to_vec());
        let inserted = Fate::Committed;
        self.0.push(Chunk { tid, value_id: VALUE, seq, inserted, data, stored_size });
        self
    }

    fn fated(mut self, inserted: Fate) -> Memory {
        if let Some(last) = self.0.last_mut() {
            last.inserted = inserted;
        }
        self
    }

    fn compressed(mut self, tc_info: u32, stream: &[u8]) -> Memory {
        if let Some(last) = self.0.last_mut() {
            last.data = ChunkData::Compressed { tc_info, stream: stream.to_vec() };
        }
        self
    }
}

fn ordinary(raw: i32, ext: u32) -> Vec<u8> {
    let mut bytes = vec![1, 18];
    bytes.extend(raw.to_le_bytes());
    bytes.extend(ext.to_le_bytes());
    bytes.extend((VALUE.0 as u32).to_le_bytes());
    bytes.extend(RELATION.0.to_le_bytes());
    bytes
}

fn read(datum: &[u8], mut store: Memory) -> Result<Vec<u8>, ToastError> {
    let (value, _) = Varlena::parse(datum, ByteOrder::Little).unwrap();
    let toasters = Toasters::by_bytes();
    let mut reassembler = Reassembler {
        store: &mut store,
        toasters: &toasters,
        page: PageSize::DEFAULT,
        order: ByteOrder::Little,
    };
    reassembler.value(&value)?.content().map(<[u8]>::to_vec)
}

/// A value of 2000 bytes in two chunks.
fn two(first: &[u8], second: &[u8]) -> Memory {
    Memory::default().with(0, first).with(1, second)
}

#[test]
fn ordinary_values() {
    let pointer = ordinary(2004, 2000);
    let whole: Vec<u8> = (0..2000).map(|i| i as u8).collect();
    let (first, second) = whole.split_at(1996);
    assert_eq!(read(&pointer, two(first, second)).unwrap(), whole);
    // The order of the chunks and void copies do not matter.
    let shuffled = Memory::default().with(1, second).with(0, b"x").fated(Fate::NotCommitted);
    assert_eq!(read(&pointer, shuffled.with(0, first)).unwrap(), whole);
    let hinted = two(first, second).with(1, b"abcd").fated(Fate::Unknown);
    assert_eq!(read(&pointer, hinted).unwrap(), whole);

    let none = read(&pointer, Memory::default());
    assert_eq!(none, Err(ToastError::NoChunks { value: SELF, expected: 2 }));
    let gap = read(&pointer, Memory::default().with(1, second));
    assert_eq!(gap, Err(ToastError::MissingChunk { value: SELF, seq: 0, expected: 2 }));
    let cut = read(&pointer, Memory::default().with(0, first));
    assert_eq!(cut, Err(ToastError::MissingChunk { value: SELF, seq: 1, expected: 2 }));
    let more = read(&pointer, two(first, second).with(2, b"z"));
    let unexpected = |seq, item| {
        Err(ToastError::UnexpectedChunk { value: SELF, seq, tid: tid(item), expected: 2 })
    };
    assert_eq!(more, unexpected(2, 3));
    assert_eq!(read(&pointer, two(first, second).with(-1, b"z")), unexpected(-1, 3));
    for fate in [Fate::Committed, Fate::Unknown] {
        let mut store = two(first, second).with(1, second);
        for chunk in &mut store.0 {
            chunk.inserted = fate;
        }
        let undecided = fate == Fate::Unknown;
        let first = tid(2);
        let second = tid(3);
        let twice = ToastError::DuplicateChunk { value: SELF, seq: 1, first, second, undecided };
        assert_eq!(read(&pointer, store), Err(twice));
    }
    let size = |seq, item, expected, got| {
        Err(ToastError::ChunkSize { value: SELF, seq, tid: tid(item), expected, got })
    };
    assert_eq!(read(&pointer, two(&first[1..], second)), size(0, 1, 1996, 1995));
    assert_eq!(read(&pointer, two(first, b"12345")), size(1, 2, 4, 5));
    let compressed = read(&pointer, two(first, second).compressed(4, b"\0abcd"));
    assert_eq!(compressed, Err(ToastError::CompressedChunk { value: SELF, seq: 1, tid: tid(2) }));
    assert!(matches!(
        read(&ordinary(2004, 2001), two(first, second)),
        Err(ToastError::Pointer { .. })
    ));
    assert!(matches!(read(&ordinary(-5, 10), two(first, second)), Err(ToastError::Pointer { .. })));
}

#[test]
fn compressed_ordinary_values() {
    // The pglz stream is "abc", then a match of 9 bytes at offset 3.
    let stream = [&12u32.to_le_bytes()[..], b"\x08abc\x06\x03"].concat();
    let pointer = ordinary(16, stream.len() as u32);
    assert_eq!(read(&pointer, Memory::default().with(0, &stream)).unwrap(), b"abcabcabcabc");
    let problem = |datum: &[u8], bytes: &[u8]| match read(datum, Memory::default().with(0, bytes)) {
        Err(ToastError::Decompress { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    let longer = [&13u32.to_le_bytes()[..], &stream[4..]].concat();
    assert_eq!(problem(&pointer, &longer), "compressed data says 13 bytes, its pointer 12");
    let method = [&(12u32 | 3 << 30).to_le_bytes()[..], &stream[4..]].concat();
    assert_eq!(problem(&pointer, &method), "unknown compression method 3");
    assert_eq!(problem(&ordinary(16, 3), b"abc"), "3 bytes are not a compressed value");
    let vast = [&0x3000_0000u32.to_le_bytes()[..], &stream[4..]].concat();
    assert_eq!(
        problem(&ordinary(0x3000_0004, vast.len() as u32), &vast),
        "raw size 805306368 is more than 6 compressed bytes can hold (at most 546)"
    );
    let back = [&12u32.to_le_bytes()[..], b"\x08abc\x06\x04"].concat();
    assert!(!problem(&pointer, &back).is_empty());
}

fn appendable(stored: u32, version: u64) -> Vec<u8> {
    let mut bytes = vec![1, 4, 0, 0, 32, 0, 0, 0, 104, 0, 0, 0, 99, 0];
    bytes.extend(&ordinary(104, stored)[2..]);
    bytes.extend(version.to_le_bytes());
    bytes.extend([0; 8]);
    bytes
}

fn versioned(version: u64, slice: &[u8]) -> Vec<u8> {
    [&version.to_le_bytes()[..], slice].concat()
}

#[test]
fn appendable_values() {
    let pointer = appendable(4, 2);
    let of = |version, slice: &[u8]| Memory::default().with(0, &versioned(version, slice));
    let later = of(1, b"ab").with(0, &versioned(3, b"abcdef")).with(0, &versioned(2, b"abcd"));
    assert_eq!(read(&pointer, later).unwrap(), b"abcd");
    assert_eq!(read(&appendable(0, 1), Memory::default()).unwrap(), b"");
    // An unhinted chunk with the pointer's version but another length is void.
    let unknown = of(2, b"abc").fated(Fate::Unknown).with(0, &versioned(2, b"abcd"));
    assert_eq!(read(&pointer, unknown.fated(Fate::Unknown)).unwrap(), b"abcd");

    let version = ToastError::ChunkVersion { value: SELF, seq: 0, version: 2 };
    assert_eq!(read(&pointer, of(3, b"abcd")), Err(version));
    assert_eq!(
        read(&pointer, of(2, b"abcd").fated(Fate::NotCommitted)),
        Err(ToastError::MissingChunk { value: SELF, seq: 0, expected: 1 })
    );
    let size =
        |expected, got| ToastError::ChunkSize { value: SELF, seq: 0, tid: tid(1), expected, got };
    assert_eq!(read(&pointer, of(2, b"abc")), Err(size(4, 3)));
    assert_eq!(read(&pointer, Memory::default().with(0, b"1234567")), Err(size(9, 7)));
    let twice = of(2, b"abcd").fated(Fate::Unknown).with(0, &versioned(2, b"abcX"));
    assert_eq!(
        read(&pointer, twice.fated(Fate::Unknown)),
        Err(ToastError::DuplicateChunk {
            value: SELF,
            seq: 0,
            first: tid(1),
            second: tid(2),
            undecided: true
        })
    );
    assert_eq!(
        read(&pointer, Memory::default()),
        Err(ToastError::NoChunks { value: SELF, expected: 1 })
    );
}

fn message(datum: &[u8], store: Memory) -> String {
    read(datum, store).unwrap_err().to_string()
}

/// A pointer of `jsonb_toaster` with this word and data; it belongs to an unknown toaster if it cannot be parsed.
fn jsonx(word: u32, data: &[u8]) -> Vec<u8> {
    let length = 6 + data.len() as u16;
    let mut bytes = vec![1, 4, 0, 0];
    bytes.extend(length.to_le_bytes());
    bytes.extend([0, 0, 104, 0, 0, 0, 98, 0, 0, 0]);
    bytes.extend(word.to_le_bytes());
    bytes.extend(data);
    bytes
}

fn jsonx_message(word: u32, data: &[u8]) -> String {
    let datum = jsonx(word, data);
    let Ok((Varlena::Custom(pointer), _)) = Varlena::parse(&datum, ByteOrder::Little) else {
        panic!("no custom pointer");
    };
    super::jsonx::Jsonx::parse(&pointer).unwrap_err().to_string()
}

#[test]
fn pointers_of_jsonb_toaster() {
    let prefix = "invalid jsonb_toaster pointer at byte ";
    let check = |word, data: &[u8], expected: &str| {
        assert_eq!(jsonx_message(word, data), format!("{prefix}{expected}"));
    };
    let base = ordinary(104, 100);
    check(8 << 28, b"", "16: unknown kind 8");
    check(4 << 28 | 1, b"", "16: kind 4 with count 1");
    check(4 << 28, b"\x07ab", "20: not an ordinary TOAST pointer");
    check(4 << 28, &[&base[..], b"x"].concat(), "38: 1 bytes after the pointer");
    check(2 << 28 | 2, &[&base[..], &[0; 6]].concat(), "38: list of 2 TIDs ends after 1");
    check(2 << 28 | 1, &[&base[..], &[0; 6]].concat(), "38: TID (0,0) cannot be");
    check(5 << 28, &[&base[..], &[0; 3]].concat(), "38: no offset of the patch");
    check(5 << 28, &[&base[..], &[3, 0, 0, 0, 9]].concat(), "38: patch of 1 bytes at 3");
    check(
        5 << 28,
        &[&base[..], &[103, 0, 0, 0, 9, 9]].concat(),
        "38: patch of 2 bytes at 99, outside the 100 bytes of its base",
    );
    check(0, b"\x18\0\0\0abXY", "26: 2 bytes after the container");
    check(0, b"\x05ab", "20: no uncompressed container");
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    check(7 << 28, &words(&[3, 1]), "28: array directory ends with the datum of 28 bytes");
    check(7 << 28, &words(&[3, 900, 77]), "24: 900 chunks need 9032 bytes, datum has 32");
    check(7 << 28, &words(&[3, 1, 77, 1, 0, 0]), "32: first element 1 of chunk 0, array of 3");
    check(7 << 28, &words(&[3, 0, 77]), "20: 3 elements in no chunks");
    check(7 << 28, &words(&[3, 1, 77, 0, 0x7fff, 0]), "36: inline chunk at byte 2147418156 of 44");
}

#[test]
fn chunks_compressed_one_by_one() {
    let pointer = jsonx(4 << 28, &ordinary(10, 6));
    let of = |seq, data: &[u8]| Memory::default().with(seq, data);
    let stream = b"\0cdef";
    assert_eq!(read(&pointer, of(5, b"").compressed(4, stream).with(1, b"ab")).unwrap(), b"abcdef");
    assert_eq!(
        message(&pointer, of(5, b"cdef")),
        "chunk 5 at (0,1) for toast value 55 in relation 77 covers bytes from 2, 0 expected"
    );
    assert_eq!(
        message(&pointer, of(1, b"ab")),
        "toast value 55 in relation 77 has 2 bytes, its pointer says 6"
    );
    assert_eq!(
        message(&pointer, of(6, b"abcdefg")),
        "toast value 55 in relation 77 has 7 bytes, its pointer says 6"
    );
    assert!(message(&pointer, of(5, b"").compressed(6, b"\0ab")).starts_with("chunk 5 at (0,1)"));
}

#[test]
fn lists_of_tids() {
    let tids = |tids: &[u8]| jsonx(2 << 28 | 1, &[&ordinary(10, 6)[..], tids].concat());
    let store = || Memory::default().with(1, b"xx").with(0, b"abcdef");
    assert_eq!(read(&tids(&[0, 0, 0, 0, 2, 0]), store()).unwrap(), b"abcdef");
    assert_eq!(
        message(&tids(&[0, 0, 0, 0, 3, 0]), store()),
        "no chunk at (0,3) in relation 77, where chunk 0 must be"
    );
    assert_eq!(
        message(&tids(&[0, 0, 0, 0, 1, 0]), store()),
        "chunk at (0,1) in relation 77 is number 1 of value 55, expected number 0 of value 55"
    );
    let long = jsonx(2 << 28 | 1, &[&ordinary(5000, 4996)[..], &[0, 0, 0, 0, 2, 0]].concat());
    assert_eq!(
        message(&long, store()),
        "invalid jsonb_toaster pointer at byte 16: 1 TIDs, 3 chunks expected"
    );
}

#[test]
fn patches_go_over_their_base() {
    let patched = jsonx(5 << 28, &[&ordinary(10, 6)[..], b"\x06\0\0\0XY"].concat());
    assert_eq!(read(&patched, Memory::default().with(0, b"abcdef")).unwrap(), b"abXYef");
}

#[test]
fn pointers_that_cannot_be_read_say_why() {
    assert_eq!(
        message(b"\x01\x04\x0c\0\0\0\x50\x04\0\0\x88\x26", Memory::default()),
        "payload missing: the server stored only the first 12 bytes of the custom pointer, \
         without chunk_id and toast relation"
    );
    let strange = b"\x01\x04\x03\0\0\0\x07\0\0\0\x09\0abc";
    assert_eq!(
        message(strange, Memory::default()),
        "custom pointer of toaster 9, which is not known"
    );
    assert_eq!(message(b"\x01\x63", Memory::default()), "pointer with unknown tag 99");
}
