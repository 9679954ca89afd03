//! Kinds of damage for `check`, each alone in a table of its own: those of the other tests, and more.

use crate::check_chains;
use crate::check_contents;
use crate::support::check_cases::{
    self, Files, apply, areas, change_half, change_word, item, set_word, word,
};

const SIZE: usize = 8192;

/// A table that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layout {
    /// Values in every form, in frozen rows.
    Values,
    /// The same rows as they were inserted, with hint bits.
    Inserted,
    /// Values of many types.
    Contents,
    /// Update chains, without a TOAST relation; or with redirected line pointers.
    Chains,
    Pruned,
}

pub(crate) const LAYOUTS: [Layout; 5] =
    [Layout::Values, Layout::Inserted, Layout::Contents, Layout::Chains, Layout::Pruned];

impl Layout {
    pub(crate) fn columns(self) -> &'static str {
        match self {
            Layout::Values | Layout::Inserted => check_cases::COLUMNS,
            Layout::Contents => check_contents::COLUMNS,
            Layout::Chains | Layout::Pruned => "id int4, k int4",
        }
    }

    pub(crate) fn create(self, table: &str) -> String {
        match self {
            Layout::Values => check_cases::create(table),
            Layout::Inserted => {
                let vacuum = format!("VACUUM (FREEZE) {table};");
                let read = format!("SELECT count(*) FROM {table};");
                check_cases::create(table).replace(&vacuum, &read)
            }
            Layout::Contents => check_contents::create(table),
            Layout::Chains => check_chains::create(table, false),
            Layout::Pruned => check_chains::create(table, true),
        }
    }
}

/// The bytes of a table's files and of its TOAST relation's index.
#[derive(Debug, Clone)]
pub(crate) struct All {
    pub(crate) files: Files,
    pub(crate) index: Vec<u8>,
}

/// A kind of damage.
pub(crate) struct Kind {
    pub(crate) area: &'static str,
    pub(crate) name: String,
    pub(crate) layout: Layout,
    pub(crate) change: Box<dyn Fn(&mut All)>,
}

/// All of them.
pub(crate) fn kinds() -> Vec<Kind> {
    let mut all = Vec::new();
    for (area, cases) in areas() {
        all.extend(cases.into_iter().map(|case| Kind {
            area,
            name: case.name.replace('_', " "),
            layout: Layout::Values,
            change: Box::new(move |all| all.files = apply(&case, &all.files).0),
        }));
    }
    all.extend(chains());
    all.extend(more());
    all.extend(check_contents::kinds().into_iter().map(|(column, name, change)| Kind {
        area: "contents",
        name: format!("{column}: {name}"),
        layout: Layout::Contents,
        change: Box::new(move |all| change(&mut all.files)),
    }));
    all.sort_by_key(|kind| AREAS.iter().position(|area| *area == kind.area));
    all
}

/// In the order in which they are shown.
const AREAS: [&str; 11] = [
    "pages",
    "line pointers",
    "update chains",
    "tuple headers",
    "attributes",
    "TOAST pointers",
    "chunks",
    "pages of the TOAST relation",
    "TOAST index",
    "compressed data",
    "contents",
];

fn chains() -> impl Iterator<Item = Kind> {
    let damaged = check_chains::CASES.into_iter().filter(|(.., expected)| !expected.is_empty());
    damaged.map(|(name, change, _)| Kind {
        area: "update chains",
        name: name.replace('_', " "),
        layout: if name.starts_with("pruned") { Layout::Pruned } else { Layout::Chains },
        change: Box::new(move |all| change(&mut all.files.heap)),
    })
}

type Change = fn(&mut All);
type FilesChange = fn(&mut Files);

fn more() -> Vec<Kind> {
    let mut all = Vec::new();
    let mut add = |area, layout, list: Vec<(&str, FilesChange)>| {
        all.extend(list.into_iter().map(|(name, change)| Kind {
            area,
            name: name.to_owned(),
            layout,
            change: Box::new(move |all: &mut All| change(&mut all.files)),
        }));
    };
    add("pages", Layout::Values, pages());
    add("line pointers", Layout::Values, line_pointers());
    add("tuple headers", Layout::Values, headers());
    add("tuple headers", Layout::Inserted, hint_bits());
    add("attributes", Layout::Values, attributes());
    add("TOAST pointers", Layout::Values, pointers());
    add("chunks", Layout::Values, chunks());
    add("chunks", Layout::Inserted, chunk_hint_bits());
    add("pages of the TOAST relation", Layout::Values, toast_pages());
    add("compressed data", Layout::Values, streams());
    all.extend(indexes().into_iter().map(|(name, change)| Kind {
        area: "TOAST index",
        name: name.to_owned(),
        layout: Layout::Values,
        change: Box::new(change),
    }));
    all
}

fn pages() -> Vec<(&'static str, FilesChange)> {
    vec![
        ("pd_special inside the tuples", |f| change_half(&mut f.heap, 16, |_| 4096)),
        ("pd_lower before the line pointers", |f| change_half(&mut f.heap, 12, |_| 8)),
        ("pd_lower one line pointer early", |f| change_half(&mut f.heap, 12, |at| at - 4)),
        ("pd_upper behind the first tuple", |f| change_half(&mut f.heap, 14, |at| at + 8)),
        ("zeros", |f| f.heap[..SIZE].fill(0)),
        ("0xFF", |f| f.heap[..SIZE].fill(0xFF)),
        ("text", |f| f.heap[..SIZE].fill(b'x')),
        ("first sector of zeros", |f| f.heap[..512].fill(0)),
        ("last sector of zeros", |f| f.heap[SIZE - 512..SIZE].fill(0)),
        ("half of zeros", |f| f.heap[SIZE / 2..SIZE].fill(0)),
        ("page of the TOAST relation", |f| {
            let page = f.toast[..SIZE].to_vec();
            f.heap[..SIZE].copy_from_slice(&page);
        }),
        ("file is empty", |f| f.heap.clear()),
    ]
}

fn line_pointers() -> Vec<(&'static str, FilesChange)> {
    fn set(f: &mut Files, change: impl FnOnce(u32) -> u32) {
        change_word(&mut f.heap, Files::pointer(0, 2), change);
    }
    vec![
        ("dead", |f| set(f, |_| item(0, 3, 0))),
        ("at byte 0", |f| set(f, |word| word & !0x7FFF)),
        ("at the line pointers", |f| set(f, |word| word & !0x7FFF | 24)),
        ("longer than the tuple", |f| set(f, |word| word + (16 << 17))),
        ("8 bytes shorter", |f| set(f, |word| word - (8 << 17))),
        ("of length 0", |f| set(f, |word| word & 0x1_FFFF)),
        ("of another row", |f| {
            let other = word(&f.heap, Files::pointer(0, 3));
            set(f, |_| other);
        }),
    ]
}

fn headers() -> Vec<(&'static str, FilesChange)> {
    fn mask(f: &mut Files, at: usize, change: impl FnOnce(u16) -> u16) {
        let at = f.row(2) + at;
        change_half(&mut f.heap, at, change);
    }
    fn hoff(f: &mut Files, to: u8) {
        let at = f.row(2) + 22;
        f.heap[at] = to;
    }
    vec![
        ("no attributes", |f| mask(f, 18, |mask| mask & !0x07FF)),
        ("three attributes fewer", |f| mask(f, 18, |mask| mask - 3)),
        ("2047 attributes", |f| mask(f, 18, |mask| mask | 0x07FF)),
        ("t_hoff 0", |f| hoff(f, 0)),
        ("t_hoff 24", |f| hoff(f, 24)),
        ("t_hoff 31", |f| hoff(f, 31)),
        ("t_hoff 255", |f| hoff(f, 255)),
        ("HEAP_HASNULL is missing", |f| mask(f, 20, |mask| mask & !1)),
        ("zeros", |f| {
            let at = f.row(2);
            f.heap[at..at + 23].fill(0);
        }),
        ("0xFF", |f| {
            let at = f.row(2);
            f.heap[at..at + 23].fill(0xFF);
        }),
        ("deleted on an all-visible page", |f| {
            let at = f.row(2);
            let xmin = word(&f.heap, at);
            set_word(&mut f.heap, at + 4, xmin);
            mask(f, 20, |mask| mask & !0x0800 | 0x0400);
        }),
        ("xmin 0", |f| {
            let at = f.row(2);
            set_word(&mut f.heap, at, 0);
            mask(f, 20, |mask| mask & !0x0300);
        }),
        ("xmax far ahead", |f| {
            let at = f.row(2);
            set_word(&mut f.heap, at + 4, 0x4000_0000);
            mask(f, 20, |mask| mask & !0x0800);
        }),
        ("NULL bit of the first column", |f| {
            let at = f.row(2) + 23;
            f.heap[at] &= !1;
        }),
        ("NULL bit of the last column", |f| {
            let at = f.row(2) + 24;
            f.heap[at] |= 2;
        }),
    ]
}

/// Of rows that are not frozen.
fn hint_bits() -> Vec<(&'static str, FilesChange)> {
    fn mask(f: &mut Files, clear: u16, set: u16) {
        let at = f.row(2) + 20;
        change_half(&mut f.heap, at, |mask| mask & !clear | set);
    }
    vec![
        ("hint bit says that xmin was aborted", |f| mask(f, 0x0100, 0x0200)),
        ("hint bit says that the row was deleted", |f| {
            let at = f.row(2);
            let xmin = word(&f.heap, at);
            set_word(&mut f.heap, at + 4, xmin - 1);
            mask(f, 0x0800, 0x0400);
        }),
        ("xmin of nobody, hint bit says committed", |f| {
            let at = f.row(2);
            set_word(&mut f.heap, at, 0x4000_0000);
        }),
        ("xmin of nobody", |f| {
            let at = f.row(2);
            set_word(&mut f.heap, at, 100_000);
            mask(f, 0x0300, 0);
        }),
    ]
}

fn attributes() -> Vec<(&'static str, FilesChange)> {
    vec![
        ("compressed value is said to be plain", |f| {
            let at = f.value(2, "inl").file;
            f.heap[at] &= !2;
        }),
        ("varlena header of zeros", |f| {
            let at = f.value(2, "inl").file;
            set_word(&mut f.heap, at, 0);
        }),
        ("varlena header of 0xFF", |f| {
            let at = f.value(2, "inl").file;
            set_word(&mut f.heap, at, u32::MAX);
        }),
        ("short value one byte longer", |f| {
            let at = f.value(2, "sh").file;
            f.heap[at] += 2;
        }),
        ("short value one byte shorter", |f| {
            let at = f.value(2, "sh").file;
            f.heap[at] -= 2;
        }),
        ("short value of length 127", |f| {
            let at = f.value(2, "sh").file;
            f.heap[at] = 0xFF;
        }),
        ("short value is said to be a TOAST pointer", |f| {
            let at = f.value(2, "sh").file;
            f.heap[at] = 1;
        }),
        ("NUL byte in a text", |f| {
            let at = f.value(2, "sh").file;
            f.heap[at + 2] = 0;
        }),
        ("half of the row of zeros", |f| {
            let (at, end) = (f.value(2, "inl").file, f.value(2, "arr").file);
            f.heap[at..end].fill(0);
        }),
        ("half of the row of 0xFF", |f| {
            let (at, end) = (f.value(2, "inl").file, f.value(2, "arr").file);
            f.heap[at..end].fill(0xFF);
        }),
    ]
}

fn pointers() -> Vec<(&'static str, FilesChange)> {
    vec![
        ("tag 0", |f| {
            let at = f.value(2, "ext").file;
            f.heap[at + 1] = 0;
        }),
        ("tag 2", |f| {
            let at = f.value(2, "ext").file;
            f.heap[at + 1] = 2;
        }),
        ("zeros", |f| {
            let at = f.value(2, "ext").file;
            f.heap[at + 2..at + 18].fill(0);
        }),
        ("0xFF", |f| {
            let at = f.value(2, "ext").file;
            f.heap[at + 2..at + 18].fill(0xFF);
        }),
        ("raw size 0", |f| {
            let at = f.value(2, "ext").file;
            set_word(&mut f.heap, at + 2, 0);
        }),
        ("raw size of 1 GB", |f| {
            let at = f.value(2, "cmp").file;
            set_word(&mut f.heap, at + 2, 0x3FFF_FFFF);
        }),
        ("stored size one byte more", |f| {
            let at = f.value(2, "cmp").file;
            change_word(&mut f.heap, at + 6, |size| size + 1);
        }),
        ("stored size one chunk less", |f| {
            let at = f.value(2, "cmp").file;
            change_word(&mut f.heap, at + 6, |size| size - 1996);
        }),
        ("both sizes one chunk less", |f| {
            let at = f.value(2, "ext").file;
            change_word(&mut f.heap, at + 2, |size| size - 1996);
            change_word(&mut f.heap, at + 6, |size| size - 1996);
        }),
        ("both sizes one byte less", |f| {
            let at = f.value(2, "ext").file;
            change_word(&mut f.heap, at + 2, |size| size - 1);
            change_word(&mut f.heap, at + 6, |size| size - 1);
        }),
        ("method of another stream", |f| {
            let at = f.value(2, "cmp").file;
            change_word(&mut f.heap, at + 6, |word| word ^ 1 << 30);
        }),
        ("value ID of the row before", |f| {
            let (at, id) = (f.value(2, "ext").file, f.value_id(1, "ext"));
            set_word(&mut f.heap, at + 10, id);
        }),
        ("value ID of another column", |f| {
            let (at, id) = (f.value(2, "cmp").file, f.value_id(2, "ext"));
            set_word(&mut f.heap, at + 10, id);
        }),
        ("value IDs of two columns exchanged", |f| {
            let at = ["cmp", "lz"].map(|column| f.value(2, column).file + 10);
            let [cmp, lz] = at.map(|at| word(&f.heap, at));
            set_word(&mut f.heap, at[0], lz);
            set_word(&mut f.heap, at[1], cmp);
        }),
    ]
}

/// Changes chunk 1 of row 2's `ext`.
fn chunk(f: &mut Files, change: impl FnOnce(&mut [u8])) {
    let at = f.chunk(2, "ext", 1).tuple;
    change(&mut f.toast[at..at + 2032]);
}

fn chunks() -> Vec<(&'static str, FilesChange)> {
    vec![
        ("chunk_id of nothing", |f| chunk(f, |c| set_word(c, 24, 4_000_000_000))),
        ("chunk_id 0", |f| chunk(f, |c| set_word(c, 24, 0))),
        ("chunk_id of another value", |f| {
            let id = f.value_id(3, "ext");
            chunk(f, |c| set_word(c, 24, id));
        }),
        ("chunk of another value behind the last", |f| {
            let id = f.value_id(3, "ext");
            chunk(f, |c| {
                set_word(c, 24, id);
                set_word(c, 28, 3);
            });
        }),
        ("chunk_id of two values exchanged", |f| {
            let (id, own) = (f.value_id(3, "ext"), f.value_id(2, "ext"));
            let other = f.chunk(3, "ext", 1).tuple;
            chunk(f, |c| set_word(c, 24, id));
            set_word(&mut f.toast, other + 24, own);
        }),
        ("chunk_seq far behind", |f| chunk(f, |c| set_word(c, 28, 900_000_000))),
        ("chunk_seq of two chunks exchanged", |f| {
            let other = f.chunk(2, "ext", 0).tuple;
            chunk(f, |c| set_word(c, 28, 0));
            set_word(&mut f.toast, other + 28, 1);
        }),
        ("chunk_data one byte shorter", |f| chunk(f, |c| change_word(c, 32, |word| word - 4))),
        ("chunk_data of length 0", |f| chunk(f, |c| set_word(c, 32, 4 << 2))),
        ("chunk_data with a header of zeros", |f| chunk(f, |c| set_word(c, 32, 0))),
        ("chunk_data is said to be short", |f| chunk(f, |c| c[32] = 0x81)),
        ("chunk_data is said to be a TOAST pointer", |f| {
            chunk(f, |c| c[32..34].copy_from_slice(&[1, 18]));
        }),
        ("chunk with two attributes", |f| chunk(f, |c| c[18] = 2)),
        ("chunk with four attributes", |f| chunk(f, |c| c[18] = 4)),
        ("chunk with t_hoff 0", |f| chunk(f, |c| c[22] = 0)),
        ("chunk with t_hoff 32", |f| chunk(f, |c| c[22] = 32)),
        ("chunk's tuple header of zeros", |f| chunk(f, |c| c[..23].fill(0))),
        ("chunk's tuple of zeros", |f| chunk(f, |c| c.fill(0))),
        ("chunk's tuple of 0xFF", |f| chunk(f, |c| c.fill(0xFF))),
        ("chunk's t_ctid elsewhere", |f| chunk(f, |c| c[16] += 1)),
        ("chunk's line pointer is dead", |f| {
            let chunk = f.chunk(2, "ext", 1);
            set_word(&mut f.toast, Files::pointer(chunk.block, chunk.item), item(0, 3, 0));
        }),
        ("chunk's line pointer leads to another", |f| {
            let (chunk, other) = (f.chunk(2, "ext", 1), f.chunk(2, "ext", 0));
            let word = word(&f.toast, Files::pointer(other.block, other.item));
            set_word(&mut f.toast, Files::pointer(chunk.block, chunk.item), word);
        }),
        ("chunk is deleted, page is all-visible", |f| {
            chunk(f, |c| {
                let xmin = word(c, 0);
                set_word(c, 4, xmin);
                change_half(c, 20, |mask| mask & !0x0800 | 0x0400);
            });
        }),
        ("two chunks exchanged", |f| {
            let (a, b) = (f.chunk(2, "ext", 0).tuple, f.chunk(2, "ext", 1).tuple);
            for at in 0..2032 {
                f.toast.swap(a + at, b + at);
            }
        }),
        ("chunk copied over another", |f| {
            let (a, b) = (f.chunk(2, "ext", 0).tuple, f.chunk(2, "ext", 1).tuple);
            f.toast.copy_within(a..a + 2032, b);
        }),
    ]
}

fn chunk_hint_bits() -> Vec<(&'static str, FilesChange)> {
    vec![
        ("hint bit says that the chunk was aborted", |f| {
            chunk(f, |c| change_half(c, 20, |mask| mask & !0x0100 | 0x0200));
        }),
        ("hint bit says that the chunk was deleted", |f| {
            chunk(f, |c| {
                let xmin = word(c, 0);
                set_word(c, 4, xmin - 1);
                change_half(c, 20, |mask| mask & !0x0800 | 0x0400);
            });
        }),
    ]
}

fn toast_pages() -> Vec<(&'static str, FilesChange)> {
    vec![
        ("first page of zeros", |f| f.toast[..SIZE].fill(0)),
        ("last page of zeros", |f| {
            let at = f.toast.len() - SIZE;
            f.toast[at..].fill(0);
        }),
        ("page header", |f| f.toast[SIZE + 19] = 0x30),
        ("first sector of zeros", |f| f.toast[SIZE..SIZE + 512].fill(0)),
        ("last sector of zeros", |f| f.toast[2 * SIZE - 512..2 * SIZE].fill(0)),
        ("pages exchanged", |f| {
            let (first, second) = f.toast.split_at_mut(SIZE);
            first.swap_with_slice(&mut second[..SIZE]);
        }),
        ("page copied over another", |f| f.toast.copy_within(..SIZE, SIZE)),
        ("page of the table", |f| {
            let page = f.heap[..SIZE].to_vec();
            f.toast[SIZE..2 * SIZE].copy_from_slice(&page);
        }),
        ("last page is cut off", |f| f.toast.truncate(f.toast.len() - SIZE)),
        ("half of the last page is cut off", |f| f.toast.truncate(f.toast.len() - SIZE / 2)),
        ("file is empty", |f| f.toast.clear()),
    ]
}

fn streams() -> Vec<(&'static str, FilesChange)> {
    vec![
        ("value in the row: raw size one byte less", |f| {
            let at = f.value(2, "inl").file;
            change_word(&mut f.heap, at + 4, |word| word - 1);
        }),
        ("value in the row: raw size of 1 GB", |f| {
            let at = f.value(2, "inl").file;
            set_word(&mut f.heap, at + 4, 0x3FFF_FFFF);
        }),
        ("value in the row: raw size 0", |f| {
            let at = f.value(2, "inl").file;
            set_word(&mut f.heap, at + 4, 0);
        }),
        ("value in the row: the other method", |f| {
            let at = f.value(2, "inl").file;
            change_word(&mut f.heap, at + 4, |word| word ^ 1 << 30);
        }),
        ("value in the row: zeros", |f| {
            let at = f.value(2, "inl").file;
            f.heap[at + 8..at + 24].fill(0);
        }),
        ("pglz: zeros in the first chunk", |f| {
            let at = f.chunk(2, "cmp", 0).tuple;
            f.toast[at + 36..at + 136].fill(0);
        }),
        ("lz4: zeros in the first chunk", |f| {
            let at = f.chunk(2, "lz", 0).tuple;
            f.toast[at + 36..at + 136].fill(0);
        }),
        ("lz4: the other method in the data", |f| {
            let at = f.chunk(2, "lz", 0).tuple;
            change_word(&mut f.toast, at + 36, |word| word ^ 1 << 30);
        }),
        ("lz4: raw size in the data one byte less", |f| {
            let at = f.chunk(2, "lz", 0).tuple;
            change_word(&mut f.toast, at + 36, |word| word - 1);
        }),
    ]
}

/// Where the index has the entry of chunk 1 of row 2's `ext`: its TID, then 2 bytes, `chunk_id` and `chunk_seq`.
fn entry(all: &All) -> usize {
    let (index, id) = (&all.index, all.files.value_id(2, "ext"));
    let at = (0..index.len() - 8).find(|&at| word(index, at) == id && word(index, at + 4) == 1);
    at.unwrap() - 8
}

/// Where the line pointer stands that leads there.
fn entry_pointer(all: &All) -> usize {
    let at = entry(all);
    let (page, offset) = (at / SIZE * SIZE, (at % SIZE) as u32);
    let mut pointers = (page + 24..page + SIZE).step_by(4);
    pointers.find(|&at| word(&all.index, at) & 0x7FFF == offset).unwrap()
}

fn lead(all: &mut All, block: usize, item: u16) {
    let at = entry(all);
    let [a, b] = item.to_le_bytes();
    all.index[at..at + 6].copy_from_slice(&[0, 0, block as u8, 0, a, b]);
}

fn indexes() -> Vec<(&'static str, Change)> {
    vec![
        ("metapage of zeros", |all| all.index[..SIZE].fill(0)),
        ("magic number", |all| set_word(&mut all.index, 24, 7)),
        ("root of nowhere", |all| set_word(&mut all.index, 32, 9000)),
        ("version", |all| set_word(&mut all.index, 28, 9)),
        ("leaf of zeros", |all| all.index[SIZE..2 * SIZE].fill(0)),
        ("leaf's page header", |all| all.index[SIZE + 19] = 0x30),
        ("leaf is said to be deleted", |all| {
            let at = 2 * SIZE - 4;
            all.index[at] |= 4;
        }),
        ("leaf is said to have another level", |all| set_word(&mut all.index, 2 * SIZE - 8, 3)),
        ("entries of zeros", |all| all.index[2 * SIZE - 176..2 * SIZE - 16].fill(0)),
        ("entry leads to no tuple", |all| lead(all, 0, 200)),
        ("entry leads to no block", |all| lead(all, 200, 1)),
        ("entry leads to another value", |all| {
            let chunk = all.files.chunk(3, "cmp", 0);
            lead(all, chunk.block, chunk.item);
        }),
        ("entry leads to the same value's other chunk", |all| {
            let chunk = all.files.chunk(2, "ext", 0);
            lead(all, chunk.block, chunk.item);
        }),
        ("entry has another value ID", |all| {
            let at = entry(all) + 8;
            change_word(&mut all.index, at, |id| id - 1);
        }),
        ("entry has another chunk number", |all| {
            let at = entry(all) + 12;
            set_word(&mut all.index, at, 77);
        }),
        ("entry is dead", |all| {
            let at = entry_pointer(all);
            change_word(&mut all.index, at, |word| word | 3 << 15);
        }),
        ("entry is unused", |all| {
            let at = entry_pointer(all);
            set_word(&mut all.index, at, 0);
        }),
        ("two entries exchanged", |all| {
            let at = entry_pointer(all);
            let (own, next) = (word(&all.index, at), word(&all.index, at + 4));
            set_word(&mut all.index, at, next);
            set_word(&mut all.index, at + 4, own);
        }),
        ("file is empty", |all| all.index.clear()),
        ("leaf is cut off", |all| all.index.truncate(SIZE)),
    ]
}
