//! pglz against that of running servers, through real tables: each value stands on disk with the
//! same bytes, compressed or left as it is, as our compressor makes of it. lz4 of the server is read.
//!
//! This is the whole comparison where PostgreSQL's library is not installed, and a smaller one
//! beside that of the crate `toast-format` where it is.

use crate::inputs;
use crate::oracle::Pglz;
use crate::support::server::{self, Database, Options, Server};
use crate::support::table_files::TableFiles;
use futures_util::pin_mut;
use toast_format::codec::Method;
use toast_format::codec::datum::{self, Compressor};
use toast_format::disk::columns::parse_list;
use toast_format::disk::varlena::{Varlena, tc_method, tc_raw_size};
use toast_format::disk::walk::Datum;
use toast_format::model::toaster::chunks::{ChunkData, ChunkStore};
use tokio_postgres::NoTls;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

/// Inputs of a table: they are in memory while it is read.
const BATCH: u64 = 5_000;
/// A tuple with so many bytes that stay in it is always given to the toaster, whatever else is in it
/// (`TOAST_TUPLE_THRESHOLD`).
const PAD: usize = 2_100;
/// Beside so many large inputs as these the others are short.
const LARGE_INPUTS: u64 = 96;

/// How often each form was met: a test that does not meet one says nothing of it.
#[derive(Debug, Default)]
struct Seen {
    in_line: u64,
    in_line_compressed: u64,
    external: u64,
    external_compressed: u64,
    lz4: u64,
    /// Bytes.
    largest: usize,
}

/// A value as it is stored: the content, or the compressed stream that stands behind `va_tcinfo`.
struct Stored {
    method: Option<Method>,
    bytes: Vec<u8>,
    raw_size: usize,
}

impl Stored {
    fn read(value: &Varlena<'_>, store: &mut impl ChunkStore, seen: &mut Seen) -> Stored {
        match value {
            Varlena::Short { content } | Varlena::Plain { content } => {
                seen.in_line += 1;
                Stored { method: None, bytes: content.to_vec(), raw_size: content.len() }
            }
            Varlena::Compressed { tc_info, stream } => {
                seen.in_line_compressed += 1;
                Stored::compressed(*tc_info, stream.to_vec())
            }
            Varlena::External(pointer) => {
                let mut chunks = store.chunks(pointer.toast_relation, pointer.value_id).unwrap();
                chunks.sort_by_key(|chunk| chunk.seq);
                let mut bytes = Vec::new();
                for (seq, chunk) in chunks.iter().enumerate() {
                    assert_eq!(usize::try_from(chunk.seq), Ok(seq), "{pointer:?}");
                    let ChunkData::Plain(data) = &chunk.data else { panic!("{chunk:?}") };
                    bytes.extend_from_slice(data);
                }
                assert_eq!(bytes.len(), pointer.stored_size() as usize, "{pointer:?}");
                if !pointer.is_compressed() {
                    seen.external += 1;
                    return Stored { method: None, raw_size: bytes.len(), bytes };
                }
                seen.external_compressed += 1;
                let stream = bytes.split_off(4);
                let tc_info = u32::from_le_bytes(bytes.try_into().unwrap());
                assert_eq!(tc_method(tc_info), pointer.method());
                assert_eq!(tc_raw_size(tc_info), pointer.raw_size());
                Stored::compressed(tc_info, stream)
            }
            other => panic!("{other:?}"),
        }
    }

    fn compressed(tc_info: u32, bytes: Vec<u8>) -> Stored {
        let method = tc_method(tc_info);
        assert!(method.is_some(), "{tc_info:#x}");
        Stored { method, bytes, raw_size: tc_raw_size(tc_info) as usize }
    }

    /// Our decompression of it.
    fn value(&self) -> Vec<u8> {
        match self.method {
            Some(method) => datum::decompress(method, self.raw_size, &self.bytes).unwrap(),
            None => self.bytes.clone(),
        }
    }
}

/// Makes the table of a batch, one column a method, and copies the inputs into each of them.
async fn load(database: &Database<'_>, methods: &[Method], storage: &str, raws: &[Vec<u8>]) {
    let (client, connection) = tokio_postgres::connect(&database.conninfo(), NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let columns: String = methods
        .iter()
        .map(|method| format!(", {0} bytea COMPRESSION {0}", method.name()))
        .collect();
    let statements = format!(
        "DROP TABLE IF EXISTS t;
         CREATE TABLE t (number int4, pad bytea{columns}) WITH (toast_tuple_target = 128);
         ALTER TABLE t ALTER pad SET STORAGE plain, ALTER pglz SET STORAGE {storage}"
    );
    client.batch_execute(&statements).await.unwrap();
    let sink = client.copy_in("COPY t FROM STDIN (FORMAT binary)").await.unwrap();
    let mut types = vec![Type::INT4, Type::BYTEA];
    types.extend(methods.iter().map(|_| Type::BYTEA));
    let writer = BinaryCopyInWriter::new(sink, &types);
    pin_mut!(writer);
    let pad = vec![0u8; PAD];
    for (number, raw) in (0i32..).zip(raws) {
        let mut row: Vec<&(dyn ToSql + Sync)> = vec![&number, &pad];
        row.extend(methods.iter().map(|_| raw as &(dyn ToSql + Sync)));
        writer.as_mut().write(&row).await.unwrap();
    }
    assert_eq!(writer.finish().await.unwrap(), raws.len() as u64);
    drop(client);
    connection.await.unwrap().unwrap();
}

/// Compares what the server made of `inputs` numbered inputs and `large` large ones.
fn compare(database: &Database<'_>, methods: &[Method], inputs: u64, large: u64) -> Seen {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut compressor = Compressor::new();
    let mut seen = Seen::default();
    let mut columns = String::from("number int4, pad bytea");
    for method in methods {
        columns.push_str(&format!(", {} bytea", method.name()));
    }
    let desc = parse_list(&columns).unwrap();
    let size = BATCH.min(inputs / 2);
    let batches = (0..inputs).step_by(size as usize).map(|first| first..inputs.min(first + size));
    let batches = batches.map(|numbers| numbers.map(inputs::input).collect::<Vec<_>>());
    let batches = batches.chain([(0..large).map(inputs::large_input).collect()]);
    for (batch, raws) in batches.enumerate() {
        // out of line if there is any room to win, or in line if it fits into a page
        let storage = if batch % 2 == 0 { "extended" } else { "main" };
        runtime.block_on(load(database, methods, storage, &raws));
        let mut met = 0;
        TableFiles::of(database, "t").each_tuple(&desc, |datums, store, _| {
            let [Datum::Fixed(number), Datum::Varlena(_), values @ ..] = datums else {
                panic!("{datums:?}")
            };
            let number = i32::from_le_bytes((*number).try_into().unwrap());
            let raw = &raws[number as usize];
            let place =
                || format!("batch {batch} ({storage}), input {number}, {} bytes", raw.len());
            for (&method, value) in methods.iter().zip(values) {
                let Datum::Varlena(value) = value else { panic!("{}: {value:?}", place()) };
                let stored = Stored::read(value, store, &mut seen);
                assert!(stored.method.is_none_or(|stored| stored == method), "{}", place());
                assert!(stored.value() == *raw, "{}, {method:?}", place());
                if method == Method::Lz4 {
                    seen.lz4 += u64::from(stored.method.is_some());
                    continue;
                }
                let ours = compressor.compress(method, raw);
                assert_eq!(stored.method.is_some(), ours.is_some(), "{}", place());
                assert!(stored.bytes == ours.unwrap_or(raw), "{}", place());
            }
            seen.largest = seen.largest.max(raw.len());
            met += 1;
        });
        assert_eq!(met, raws.len(), "batch {batch}");
    }
    seen
}

#[test]
fn a_server_stores_what_our_codecs_say() {
    let (inputs, large) =
        if Pglz::load().is_some() { (10_000, 16) } else { (100_000, LARGE_INPUTS) };
    let database = server::shared().create_database("codec");
    let seen = compare(&database, &[Method::Pglz, Method::Lz4], inputs, large);
    for count in
        [seen.in_line, seen.in_line_compressed, seen.external, seen.external_compressed, seen.lz4]
    {
        assert!(count > inputs / 20, "{seen:?}");
    }
    assert!(seen.largest > 900_000, "{seen:?}");
}

#[test]
fn every_other_major_stores_the_same_pglz() {
    for major in server::other_majors() {
        let server = Server::start(&Options::major(major));
        let database = server.create_database("codec");
        let seen = compare(&database, &[Method::Pglz], 2_000, 8);
        assert!(seen.in_line_compressed > 0 && seen.external_compressed > 0, "{major}: {seen:?}");
    }
}
