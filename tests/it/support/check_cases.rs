//! Damage for `check`: a table, one changed field for each case, and what must be found.

use crate::support::server::{self, Database, Server};
use crate::support::table_files::PAGE;
use toast_format::disk::columns;
use toast_format::disk::desc::TupleDesc;
use toast_format::disk::page::{LinePointerState, Page, PageState};
use toast_format::disk::tuple::HeapTuple;
use toast_format::disk::varlena::Varlena;
use toast_format::disk::walk::{Datum, Walk};

const SIZE: usize = 8192;

/// The columns of the table, as `--columns` takes them.
pub(crate) const COLUMNS: &str = "id int4, ext text, cmp text, lz text, inl text, sh text, \
     num numeric, js jsonb, arr int4[], nul int4";

/// Makes `table` with four rows on one page, each with values in every form.
pub(crate) fn create(table: &str) -> String {
    format!(
        "CREATE TABLE {table} (id int4, ext text, cmp text COMPRESSION pglz, \
             lz text COMPRESSION lz4, inl text COMPRESSION pglz, sh text, num numeric, js jsonb, \
             arr int4[], nul int4);
         ALTER TABLE {table} ALTER ext SET STORAGE external;
         INSERT INTO {table} SELECT i, e, c, c, repeat('in the row ', 240), 'short', 12345.678,
             '{{\"a\": [1, 2, \"x\"], \"b\": null}}', '{{1,2,3}}', NULL
         FROM generate_series(1, 4) AS i,
             LATERAL (SELECT string_agg(md5(i::text || g), '') AS e,
                             string_agg(md5(i::text || g) || repeat('abcdefgh', 4), '') AS c
                      FROM generate_series(1, 160) AS g) AS v;
         VACUUM (FREEZE) {table};"
    )
}

/// The bytes of the table's files, which a case changes.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) heap: Vec<u8>,
    pub(crate) toast: Vec<u8>,
}

/// A place where a value stands: in the file, and in its tuple.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) file: usize,
    pub(crate) tuple: usize,
}

/// Where a chunk stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkAt {
    /// Its tuple in the file.
    pub(crate) tuple: usize,
    pub(crate) block: usize,
    pub(crate) item: u16,
}

impl Files {
    /// Of the table `t` of [`create`] in a new database of the server that tests share.
    pub(crate) fn fresh(database: &str) -> (Database<'static>, Files) {
        Files::fresh_on(server::shared(), database)
    }

    /// Of the table `t` of [`create`] in a new database of `server`.
    pub(crate) fn fresh_on<'s>(server: &'s Server, database: &str) -> (Database<'s>, Files) {
        let database = server.create_database(database);
        database.psql(&(create("t") + "CHECKPOINT;"));
        let files = Files::read(&database, "t");
        (database, files)
    }

    /// Of a table on a server that is not writing to it.
    pub(crate) fn read(database: &Database<'_>, table: &str) -> Files {
        let [heap, toast] = paths(database, table);
        Files { heap: std::fs::read(heap).unwrap(), toast: std::fs::read(toast).unwrap() }
    }

    /// Where the line pointer `item` of a block stands.
    pub(crate) fn pointer(block: usize, item: u16) -> usize {
        block * SIZE + 24 + 4 * (usize::from(item) - 1)
    }

    /// Where the tuple of row `item` stands.
    pub(crate) fn row(&self, item: u16) -> usize {
        let word = word(&self.heap, Files::pointer(0, item));
        (word & 0x7FFF) as usize
    }

    /// Where a value of row `item` begins.
    pub(crate) fn value(&self, item: u16, column: &str) -> At {
        self.value_of(COLUMNS, item, column)
    }

    /// The same in a table with other columns.
    pub(crate) fn value_of(&self, columns: &str, item: u16, column: &str) -> At {
        let Ok(PageState::Used(page)) = Page::parse(&self.heap[..SIZE]) else { panic!() };
        let (_, pointer) = page.line_pointers().nth(usize::from(item) - 1).unwrap();
        let bytes = page.tuple_bytes(pointer).unwrap();
        let tuple = HeapTuple::parse(bytes, page.byte_order()).unwrap();
        let desc: TupleDesc = columns::parse_list(columns).unwrap();
        let mut walk = Walk::new(&tuple, &desc);
        while let Some(Ok((attribute, datum))) = walk.next() {
            let length = match datum {
                Datum::Varlena(Varlena::External(_)) => 18,
                Datum::Varlena(Varlena::Compressed { stream, .. }) => stream.len() + 8,
                Datum::Varlena(Varlena::Short { content }) => content.len() + 1,
                Datum::Varlena(Varlena::Plain { content }) => content.len() + 4,
                Datum::Fixed(bytes) => bytes.len(),
                _ => 0,
            };
            if attribute.name == column {
                let tuple = walk.end() - length;
                return At { file: usize::from(pointer.offset) + tuple, tuple };
            }
        }
        panic!("there is no {column}")
    }

    /// `va_valueid` of an external value.
    pub(crate) fn value_id(&self, item: u16, column: &str) -> u32 {
        word(&self.heap, self.value(item, column).file + 10)
    }

    /// Where chunk `seq` of a value stands.
    pub(crate) fn chunk(&self, item: u16, column: &str, seq: u32) -> ChunkAt {
        self.chunk_of(COLUMNS, item, column, seq)
    }

    /// The same in a table with other columns.
    pub(crate) fn chunk_of(&self, columns: &str, item: u16, column: &str, seq: u32) -> ChunkAt {
        let id = word(&self.heap, self.value_of(columns, item, column).file + 10);
        for (block, bytes) in self.toast.chunks(SIZE).enumerate() {
            let Ok(PageState::Used(page)) = Page::parse(bytes) else { continue };
            for (number, pointer) in page.line_pointers() {
                let tuple = block * SIZE + usize::from(pointer.offset);
                if pointer.state == LinePointerState::Normal
                    && word(&self.toast, tuple + 24) == id
                    && word(&self.toast, tuple + 28) == seq
                {
                    return ChunkAt { tuple, block, item: number };
                }
            }
        }
        panic!("there is no chunk {seq} of {column}")
    }

    /// The finding of a value to which its row will not refer any more.
    fn without_row(&self, item: u16, column: &str) -> String {
        let ChunkAt { block, item, .. } = self.chunk(item, column, 0);
        format!("TC080 toast {block}/{item} - -")
    }

    fn remove_chunk(&mut self, item: u16, seq: u32) {
        let chunk = self.chunk(item, "ext", seq);
        set_word(&mut self.toast, Files::pointer(chunk.block, chunk.item), 0);
    }
}

/// The files of a table.
pub(crate) fn paths(database: &Database<'_>, table: &str) -> [std::path::PathBuf; 2] {
    let shown = database.psql(&format!(
        "SELECT pg_relation_filepath(oid), pg_relation_filepath(reltoastrelid)
         FROM pg_class WHERE oid = '{table}'::regclass"
    ));
    let (heap, toast) = shown.split_once('|').unwrap();
    [heap, toast].map(|path| database.server().data_dir().join(path))
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(crate) fn set_word(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

pub(crate) fn change_word(bytes: &mut [u8], at: usize, change: impl FnOnce(u32) -> u32) {
    let changed = change(word(bytes, at));
    set_word(bytes, at, changed);
}

pub(crate) fn change_half(bytes: &mut [u8], at: usize, change: impl FnOnce(u16) -> u16) {
    let half = u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
    bytes[at..at + 2].copy_from_slice(&change(half).to_le_bytes());
}

/// Where a case can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// In files and on a server.
    Both,
    /// Without a server: it would not start, or would not see it.
    Files,
    /// On a server, which knows more than the files tell.
    Server,
}

/// One changed field and its findings: `code heap|toast block/item column byte`, in order; `-` for
/// what a place has not.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) on: On,
    pub(crate) change: fn(&mut Files) -> Vec<String>,
}

fn case(name: &'static str, change: fn(&mut Files) -> Vec<String>) -> Case {
    Case { name, on: On::Both, change }
}

fn on(on: On, name: &'static str, change: fn(&mut Files) -> Vec<String>) -> Case {
    Case { name, on, change }
}

/// Says of a tuple that a MultiXact has locked it.
fn lock_by_multi(bytes: &mut [u8], tuple: usize) {
    change_half(bytes, tuple + 20, |mask| mask & !0x0800 | 0x1090);
}

/// Gives the heap's row 2 an inserting transaction whose fate no hint bit shows.
fn written_by(f: &mut Files, xmin: u32) -> Vec<String> {
    let at = f.row(2);
    set_word(&mut f.heap, at, xmin);
    change_half(&mut f.heap, at + 20, |mask| mask & !0x0200);
    row("TC023", "-", 0)
}

/// A finding in the heap's row 2.
fn row(code: &str, column: &str, byte: usize) -> Vec<String> {
    vec![format!("{code} heap 0/2 {column} {byte}")]
}

/// A finding of the chunks of `ext` in row 2.
fn chunks(files: &Files, code: &str) -> Vec<String> {
    row(code, "ext", files.value(2, "ext").tuple)
}

fn line_pointer(files: &mut Files, word: u32, code: &str) -> Vec<String> {
    set_word(&mut files.heap, Files::pointer(0, 2), word);
    vec![format!("{code} heap 0/2 - 28")]
}

pub(crate) fn item(offset: u32, flags: u32, length: u32) -> u32 {
    offset | flags << 15 | length << 17
}

/// Every case. The damaged row is always the second.
pub(crate) fn cases() -> Vec<Case> {
    areas().into_iter().flat_map(|(_, cases)| cases).collect()
}

/// The same by what is damaged.
pub(crate) fn areas() -> [(&'static str, Vec<Case>); 9] {
    [
        ("pages", page_cases()),
        ("line pointers", line_pointer_cases()),
        ("pages of the TOAST relation", toast_page_cases()),
        ("tuple headers", tuple_cases()),
        ("attributes", attribute_cases()),
        ("TOAST pointers", pointer_cases()),
        ("chunks", chunk_cases()),
        ("compressed data", stream_cases()),
        ("contents", content_cases()),
    ]
}

fn page_cases() -> Vec<Case> {
    vec![
        case("page_flags", |f| {
            f.heap[10] |= 0x80;
            vec!["TC001 heap 0/- - 10".into()]
        }),
        case("page_bounds", |f| {
            change_half(&mut f.heap, 12, |_| 8190);
            vec!["TC001 heap 0/- - 12".into()]
        }),
        case("page_size", |f| {
            f.heap[19] = 0x30;
            vec!["TC001 heap 0/- - 18".into()]
        }),
        case("page_new", |f| {
            change_half(&mut f.heap, 14, |_| 0);
            let byte = f.heap.iter().position(|&byte| byte != 0).unwrap();
            vec![format!("TC003 heap 0/- - {byte}")]
        }),
        on(On::Files, "page_cut", |f| {
            f.heap.truncate(8000);
            vec!["TC004 heap 0/- - -".into()]
        }),
    ]
}

fn line_pointer_cases() -> Vec<Case> {
    vec![
        case("pointer_unaligned", |f| {
            let old = word(&f.heap, Files::pointer(0, 2));
            line_pointer(f, old + 1, "TC010")
        }),
        case("pointer_outside", |f| line_pointer(f, item(8184, 1, 200), "TC010")),
        case("pointer_short", |f| {
            let offset = f.row(2) as u32;
            line_pointer(f, item(offset, 1, 10), "TC010")
        }),
        case("redirect_to_nowhere", |f| line_pointer(f, item(99, 2, 0), "TC011")),
        case("redirect_to_itself", |f| line_pointer(f, item(2, 2, 0), "TC011")),
        case("redirect_to_a_root", |f| line_pointer(f, item(1, 2, 0), "TC011")),
        case("overlap", |f| {
            let first = word(&f.heap, Files::pointer(0, 1));
            line_pointer(f, first, "TC012")
        }),
    ]
}

fn toast_page_cases() -> Vec<Case> {
    vec![
        on(On::Files, "toast_page", |f| {
            let lost = f.chunk(2, "ext", 1).block;
            let mut found = Vec::new();
            for (item, column) in
                [1, 2, 3, 4].iter().flat_map(|i| ["ext", "cmp", "lz"].map(|c| (*i, c)))
            {
                let size = word(&f.heap, f.value(item, column).file + 6) & 0x3FFF_FFFF;
                let count = size.div_ceil(1996);
                let is_left = |seq: &u32| f.chunk(item, column, *seq).block != lost;
                let left: Vec<u32> = (0..count).filter(is_left).collect();
                let code = match left.as_slice() {
                    [] => "TC050",
                    whole if whole.len() == count as usize => continue,
                    [.., last] if *last + 1 == left.len() as u32 => "TC052",
                    _ => "TC051",
                };
                let byte = f.value(item, column).tuple;
                found.push(format!("{code} heap 0/{item} {column} {byte}"));
            }
            f.toast[lost * SIZE + 10] |= 0x80;
            found.push(format!("TC001 toast {lost}/- - 10"));
            found
        }),
        on(On::Files, "toast_pointer", |f| {
            let chunk = f.chunk(2, "ext", 1);
            let at = Files::pointer(chunk.block, chunk.item);
            change_word(&mut f.toast, at, |word| word + 1);
            let mut found = chunks(f, "TC051");
            let place = format!("{}/{} - {}", chunk.block, chunk.item, at % SIZE);
            found.push(format!("TC010 toast {place}"));
            found
        }),
        on(On::Files, "toast_hoff", |f| {
            let chunk = f.chunk(2, "ext", 1);
            f.toast[chunk.tuple + 22] = 32;
            let mut found = chunks(f, "TC051");
            found.push(format!("TC020 toast {}/{} - 22", chunk.block, chunk.item));
            found
        }),
    ]
}

fn tuple_cases() -> Vec<Case> {
    vec![
        case("hoff", |f| {
            let at = f.row(2) + 22;
            f.heap[at] = 40;
            row("TC020", "-", 22)
        }),
        case("natts", |f| {
            let at = f.row(2) + 18;
            change_half(&mut f.heap, at, |mask| mask + 1);
            row("TC021", "-", 18)
        }),
        case("multi_committed", |f| {
            let at = f.row(2) + 20;
            change_half(&mut f.heap, at, |mask| mask | 0x1400);
            row("TC022", "-", 20)
        }),
        case("heap_only", |f| {
            let at = f.row(2) + 18;
            change_half(&mut f.heap, at, |mask| mask | 0x8000);
            row("TC022", "-", 20)
        }),
        // on a server xmin is before relfrozenxid
        on(On::Files, "aborted_and_all_visible", |f| {
            let at = f.row(2) + 20;
            change_half(&mut f.heap, at, |mask| mask & !0x0100);
            row("TC029", "-", 20)
        }),
        on(On::Server, "xmin_old", |f| written_by(f, 5)),
        on(On::Server, "xmin_future", |f| written_by(f, 0x4000_0000)),
        on(On::Server, "xmin_ahead", |f| written_by(f, 100_000)),
        on(On::Server, "xvac", |f| {
            let at = f.row(2);
            set_word(&mut f.heap, at + 8, 5);
            change_half(&mut f.heap, at + 20, |mask| mask | 0x4000);
            row("TC028", "-", 8)
        }),
        on(On::Server, "xmax_old", |f| {
            let at = f.row(2);
            set_word(&mut f.heap, at + 4, 5);
            change_half(&mut f.heap, at + 20, |mask| mask & !0x0800);
            row("TC024", "-", 4)
        }),
        on(On::Server, "multi_ahead", |f| {
            let at = f.row(2);
            set_word(&mut f.heap, at + 4, 7);
            lock_by_multi(&mut f.heap, at);
            row("TC027", "-", 4)
        }),
        on(On::Server, "multi_old", |f| {
            let at = f.row(2);
            set_word(&mut f.heap, at + 4, 4_000_000_000);
            lock_by_multi(&mut f.heap, at);
            row("TC027", "-", 4)
        }),
        on(On::Server, "toast_xmin_old", |f| {
            let chunk = f.chunk(2, "ext", 1);
            set_word(&mut f.toast, chunk.tuple, 5);
            change_half(&mut f.toast, chunk.tuple + 20, |mask| mask & !0x0200);
            vec![format!("TC023 toast {}/{} - 0", chunk.block, chunk.item)]
        }),
        on(On::Server, "toast_xmin_future", |f| {
            let chunk = f.chunk(2, "ext", 1);
            set_word(&mut f.toast, chunk.tuple, 0x4000_0000);
            change_half(&mut f.toast, chunk.tuple + 20, |mask| mask & !0x0200);
            // to the server it is not there yet
            let mut found = chunks(f, "TC051");
            found.push(format!("TC023 toast {}/{} - 0", chunk.block, chunk.item));
            found
        }),
        on(On::Server, "toast_xmax_old", |f| {
            let chunk = f.chunk(2, "ext", 1);
            set_word(&mut f.toast, chunk.tuple + 4, 5);
            // deleted, as the hint bits say, by nobody
            change_half(&mut f.toast, chunk.tuple + 20, |mask| mask & !0x0800 | 0x0400);
            let mut found = chunks(f, "TC051");
            found.push(format!("TC024 toast {}/{} - 4", chunk.block, chunk.item));
            found
        }),
        on(On::Server, "toast_multi_ahead", |f| {
            let chunk = f.chunk(2, "ext", 1);
            set_word(&mut f.toast, chunk.tuple + 4, 7);
            lock_by_multi(&mut f.toast, chunk.tuple);
            vec![format!("TC027 toast {}/{} - 4", chunk.block, chunk.item)]
        }),
        case("bitmap", |f| {
            let at = f.row(2) + 24;
            f.heap[at] |= 0x80;
            row("TC025", "-", 24)
        }),
    ]
}

fn attribute_cases() -> Vec<Case> {
    vec![
        case("attribute_past_the_end", |f| {
            let offset = f.row(2) as u32;
            set_word(&mut f.heap, Files::pointer(0, 2), item(offset, 1, 34));
            row("TC030", "id", 32)
        }),
        case("varlena_past_the_end", |f| {
            let at = f.value(2, "inl");
            set_word(&mut f.heap, at.file, 4000 << 2 | 2);
            row("TC030", "inl", at.tuple)
        }),
        case("varlena_short", |f| {
            let at = f.value(2, "inl");
            set_word(&mut f.heap, at.file, 5 << 2 | 2);
            row("TC031", "inl", at.tuple)
        }),
        case("left_over", |f| {
            let (at, end) = (f.row(2) + 24, f.value(2, "arr").tuple);
            f.heap[at] &= !1;
            row("TC033", "-", end)
        }),
    ]
}

fn pointer_cases() -> Vec<Case> {
    vec![
        case("tag", |f| {
            let at = f.value(2, "ext");
            f.heap[at.file + 1] = 99;
            row("TC040", "ext", at.tuple + 1)
        }),
        case("tag_of_memory", |f| {
            let at = f.value(2, "lz");
            f.heap[at.file + 1] = 1;
            row("TC040", "lz", at.tuple + 1)
        }),
        case("method", |f| {
            let at = f.value(2, "cmp");
            f.heap[at.file + 9] |= 0x80;
            row("TC041", "cmp", at.tuple)
        }),
        case("method_of_plain", |f| {
            let at = f.value(2, "ext");
            f.heap[at.file + 9] |= 0x40;
            row("TC041", "ext", at.tuple)
        }),
        case("method_in_the_row", |f| {
            let at = f.value(2, "inl");
            f.heap[at.file + 7] |= 0xC0;
            row("TC041", "inl", at.tuple)
        }),
        case("has_external", |f| {
            let at = f.row(2) + 20;
            change_half(&mut f.heap, at, |mask| mask & !4);
            row("TC042", "ext", 20)
        }),
        case("toast_relation_0", |f| {
            let at = f.value(2, "ext");
            set_word(&mut f.heap, at.file + 14, 0);
            row("TC043", "ext", at.tuple)
        }),
        case("shared_value", |f| {
            let (two, three) = (f.value(2, "ext").file, f.value(3, "ext").file);
            let pointer = f.heap[two..two + 18].to_vec();
            let lost = f.without_row(3, "ext");
            f.heap[three..three + 18].copy_from_slice(&pointer);
            vec!["TC047 heap 0/2 ext -".into(), "TC047 heap 0/3 ext -".into(), lost]
        }),
        case("toast_relation", |f| {
            let at = f.value(2, "ext");
            change_word(&mut f.heap, at.file + 14, |oid| oid + 1);
            row("TC043", "ext", at.tuple)
        }),
        case("raw_size_over_the_limit", |f| {
            let at = f.value(2, "cmp");
            f.heap[at.file + 5] |= 0x40;
            row("TC044", "cmp", at.tuple)
        }),
        case("raw_size_negative", |f| {
            let at = f.value(2, "ext");
            f.heap[at.file + 5] |= 0x80;
            row("TC044", "ext", at.tuple)
        }),
        case("raw_size_less_than_stored", |f| {
            let at = f.value(2, "ext");
            change_word(&mut f.heap, at.file + 2, |raw| raw - 100);
            row("TC045", "ext", at.tuple)
        }),
        case("stored_size_zero", |f| {
            let at = f.value(2, "ext");
            set_word(&mut f.heap, at.file + 6, 0);
            row("TC045", "ext", at.tuple)
        }),
        case("value_id_zero", |f| {
            let at = f.value(2, "ext");
            set_word(&mut f.heap, at.file + 10, 0);
            row("TC046", "ext", at.tuple)
        }),
        case("value_id_of_nothing", |f| {
            let at = f.value(2, "ext");
            let lost = f.without_row(2, "ext");
            change_word(&mut f.heap, at.file + 10, |id| id + 1000);
            [row("TC050", "ext", at.tuple), vec![lost]].concat()
        }),
        case("raw_size_more_than_stored", |f| {
            let at = f.value(2, "ext");
            change_word(&mut f.heap, at.file + 2, |raw| raw + 100);
            row("TC062", "ext", at.tuple)
        }),
        case("raw_size_of_compressed", |f| {
            let at = f.value(2, "lz");
            change_word(&mut f.heap, at.file + 2, |raw| raw + 1);
            row("TC062", "lz", at.tuple)
        }),
        case("stored_size_less", |f| {
            let at = f.value(2, "cmp");
            change_word(&mut f.heap, at.file + 6, |size| size - 1);
            row("TC055", "cmp", at.tuple)
        }),
    ]
}

fn chunk_cases() -> Vec<Case> {
    vec![
        case("no_chunks", |f| {
            (0..3).for_each(|seq| f.remove_chunk(2, seq));
            chunks(f, "TC050")
        }),
        case("first_chunk_gone", |f| {
            f.remove_chunk(2, 0);
            chunks(f, "TC051")
        }),
        case("middle_chunk_gone", |f| {
            f.remove_chunk(2, 1);
            chunks(f, "TC051")
        }),
        case("last_chunk_gone", |f| {
            f.remove_chunk(2, 2);
            chunks(f, "TC052")
        }),
        case("chunk_twice", |f| {
            let chunk = f.chunk(2, "ext", 1);
            set_word(&mut f.toast, chunk.tuple + 28, 0);
            chunks(f, "TC053")
        }),
        case("too_many_chunks", |f| {
            let at = f.value(2, "ext").file;
            set_word(&mut f.heap, at + 2, 3996);
            set_word(&mut f.heap, at + 6, 3992);
            chunks(f, "TC054")
        }),
        case("chunk_negative", |f| {
            let chunk = f.chunk(2, "ext", 1);
            set_word(&mut f.toast, chunk.tuple + 28, u32::MAX);
            chunks(f, "TC054")
        }),
        case("chunk_size", |f| {
            let chunk = f.chunk(2, "ext", 1);
            change_word(&mut f.toast, chunk.tuple + 32, |word| word - (4 << 2));
            chunks(f, "TC055")
        }),
        case("chunk_null", |f| {
            let chunk = f.chunk(2, "ext", 1);
            f.toast[chunk.tuple + 20] |= 1;
            f.toast[chunk.tuple + 23] = 0b011;
            chunks(f, "TC056")
        }),
        case("chunk_compressed", |f| {
            let chunk = f.chunk(2, "ext", 1);
            f.toast[chunk.tuple + 32] |= 2;
            chunks(f, "TC057")
        }),
        on(On::Files, "chunk_past_the_end", |f| {
            let chunk = f.chunk(2, "ext", 1);
            change_word(&mut f.toast, chunk.tuple + 32, |word| word + (4000 << 2));
            chunks(f, "TC058")
        }),
        case("orphan", |f| {
            set_word(&mut f.heap, Files::pointer(0, 2), 0);
            let mut found: Vec<(u32, String)> = ["ext", "cmp", "lz"]
                .iter()
                .map(|column| {
                    // looked up as the row was
                    let mut whole = f.clone();
                    whole.heap = ORIGINAL.with(|heap| heap.borrow().clone());
                    let first = whole.chunk(2, column, 0);
                    let place = format!("TC080 toast {}/{} - -", first.block, first.item);
                    (whole.value_id(2, column), place)
                })
                .collect();
            found.sort();
            found.into_iter().map(|(_, place)| place).collect()
        }),
    ]
}

thread_local! {
    /// The heap before the case changed it.
    static ORIGINAL: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Changes the files as the case says.
pub(crate) fn apply(case: &Case, files: &Files) -> (Files, Vec<String>) {
    assert_eq!(PAGE.bytes(), SIZE);
    ORIGINAL.with(|heap| heap.borrow_mut().clone_from(&files.heap));
    let mut changed = files.clone();
    let expected = (case.change)(&mut changed);
    (changed, expected)
}

fn stream_cases() -> Vec<Case> {
    vec![
        case("pglz_stream", |f| {
            let chunk = f.chunk(2, "cmp", 1);
            f.toast[chunk.tuple + 36..chunk.tuple + 136].fill(0);
            f.toast[chunk.tuple + 36..chunk.tuple + 60].fill(0xFF);
            row("TC061", "cmp", f.value(2, "cmp").tuple)
        }),
        case("lz4_stream", |f| {
            let chunk = f.chunk(2, "lz", 1);
            f.toast[chunk.tuple + 36..chunk.tuple + 136].fill(0);
            row("TC061", "lz", f.value(2, "lz").tuple)
        }),
        case("tcinfo_size", |f| {
            let chunk = f.chunk(2, "cmp", 0);
            change_word(&mut f.toast, chunk.tuple + 36, |word| word + 1);
            row("TC062", "cmp", f.value(2, "cmp").tuple)
        }),
        case("tcinfo_method", |f| {
            let chunk = f.chunk(2, "cmp", 0);
            change_word(&mut f.toast, chunk.tuple + 36, |word| word | 1 << 30);
            row("TC062", "cmp", f.value(2, "cmp").tuple)
        }),
        case("inline_stream", |f| {
            let at = f.value(2, "inl");
            f.heap[at.file + 8] = 0xFF;
            f.heap[at.file + 9..at.file + 12].fill(0);
            row("TC060", "inl", at.tuple)
        }),
        case("inline_size", |f| {
            let at = f.value(2, "inl");
            change_word(&mut f.heap, at.file + 4, |word| word + 1);
            row("TC060", "inl", at.tuple)
        }),
    ]
}

fn content_cases() -> Vec<Case> {
    vec![
        case("text_in_the_row", |f| {
            let at = f.value(2, "sh");
            f.heap[at.file + 2] = 0xFF;
            row("TC071", "sh", at.tuple + 1)
        }),
        case("text_out_of_line", |f| {
            let chunk = f.chunk(2, "ext", 1);
            f.toast[chunk.tuple + 100] = 0xFF;
            row("TC071", "ext", f.value(2, "ext").tuple)
        }),
        case("numeric", |f| {
            let at = f.value(2, "num");
            f.heap[at.file + 4] = 0xFF;
            row("TC072", "num", at.tuple + 1)
        }),
        case("jsonb", |f| {
            let at = f.value(2, "js");
            f.heap[at.file + 4] = 0x70;
            row("TC070", "js", at.tuple + 1)
        }),
        case("array", |f| {
            let at = f.value(2, "arr");
            f.heap[at.file + 1] = 9;
            row("TC073", "arr", at.tuple + 1)
        }),
    ]
}
