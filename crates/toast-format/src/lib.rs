//! PostgreSQL's TOAST, read and computed without a server: from the bytes of a page to the values in it, and from values
//! and settings to what the server would store.
//!
//! The layers, from the bottom up; a module uses only those above it in this list:
//!
//! * [`codec`]: pglz and lz4, exactly as in the server.
//! * [`disk`]: pages, tuples, varlenas and TOAST pointers, borrowed from their bytes.
//! * [`model`]: what a column stores, and what another setting would store.
//! * [`heap`]: the walk from pages to tuples and values; samples of blocks.
//! * [`fill`]: how full files and indexes are, and what compaction would move.
//! * [`judge`]: whether a row is stored as a choice would store it.
//!
//! Nothing here uses a clock, a file, a socket or a terminal.
//!
//! # A tuple with a TOAST pointer
//!
//! A [`HeapTuple`](disk::tuple::HeapTuple) borrows the bytes that a line pointer of a [`Page`](disk::page::Page)
//! addresses; a [`Walk`](disk::walk::Walk) yields its attributes.
//!
//! ```
//! use toast_format::disk::ByteOrder;
//! use toast_format::disk::columns::parse_list;
//! use toast_format::disk::tuple::HeapTuple;
//! use toast_format::disk::varlena::Varlena;
//! use toast_format::disk::walk::{Datum, Walk};
//!
//! // A row of CREATE TABLE docs (id int4, body text), as x86-64 and arm64 store it.
//! let bytes = [
//!     &730u32.to_le_bytes()[..],             // t_xmin
//!     &[0; 8],                               // t_xmax, t_cid
//!     &[0, 0, 0, 0, 1, 0],                   // t_ctid (0,1)
//!     &[2, 0, 0x06, 0x09, 24, 0],            // 2 attributes, t_infomask, t_hoff, padding
//!     &7i32.to_le_bytes(),                   // id
//!     &[0x01, 18],                           // a pointer, VARTAG_ONDISK
//!     &3004i32.to_le_bytes(),                // va_rawsize: 3000 bytes and a header of 4
//!     &(1u32 << 30 | 2100).to_le_bytes(),    // va_extinfo: lz4, 2100 bytes in chunks
//!     &16400u32.to_le_bytes(),               // va_valueid
//!     &16390u32.to_le_bytes(),               // va_toastrelid
//! ]
//! .concat();
//!
//! let columns = parse_list("id int4, body text")?;
//! let tuple = HeapTuple::parse(&bytes, ByteOrder::Little)?;
//! let mut walk = Walk::new(&tuple, &columns);
//!
//! let (id, datum) = walk.next().ok_or("no attribute")??;
//! assert_eq!(id.name, "id");
//! assert_eq!(datum, Datum::Fixed(&[7, 0, 0, 0]));
//!
//! let (_, datum) = walk.next().ok_or("no attribute")??;
//! let Datum::Varlena(Varlena::External(pointer)) = datum else { return Err("not external".into()) };
//! assert_eq!(pointer.raw_size(), 3000);
//! assert_eq!(pointer.stored_size(), 2100);
//! assert_eq!(pointer.method().map(|method| method.name()), Some("lz4"));
//! assert_eq!(pointer.value_id.0, 16400);
//! assert!(walk.next().is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A value from its chunks
//!
//! A [`ChunkStore`](model::toaster::chunks::ChunkStore) finds the chunks: in the file of a TOAST relation, on a server, or
//! in memory, as here. Missing, duplicate and damaged chunks are errors that name the value, the chunk and its TID.
//!
//! ```
//! use toast_format::codec::Method;
//! use toast_format::codec::datum::Compressor;
//! use toast_format::disk::layout::PageSize;
//! use toast_format::disk::pointer::ToastPointer;
//! use toast_format::disk::{BlockNumber, ByteOrder, ItemPointer, Oid, ValueId, ValueIdType};
//! use toast_format::model::toaster::chunks::{Chunk, ChunkData, Fate, FetchedChunks};
//! use toast_format::model::toaster::stock;
//!
//! let page = PageSize::DEFAULT;
//! let raw: String = (0..2000).map(|n| format!("{}, ", n * n)).collect();
//!
//! // What the server stores: va_tcinfo and the stream of pglz, in chunks of 1996 bytes.
//! let mut compressor = Compressor::new();
//! let stream = compressor.compress(Method::Pglz, raw.as_bytes()).ok_or("not compressible")?;
//! let stored = [&(raw.len() as u32).to_le_bytes(), stream].concat();
//! let chunk = |(seq, data): (usize, &[u8])| Chunk {
//!     tid: ItemPointer { block: BlockNumber(0), item: seq as u16 + 1 },
//!     value_id: ValueId(16400),
//!     seq: seq as i32,
//!     inserted: Fate::Committed,
//!     data: ChunkData::Plain(data.to_vec()),
//!     stored_size: data.len() as u64,
//! };
//! let chunk_size = page.toast_max_chunk_size() as usize;
//! let chunks: Vec<Chunk> = stored.chunks(chunk_size).enumerate().map(chunk).collect();
//! assert!(chunks.len() > 1);
//!
//! let pointer = ToastPointer {
//!     raw_size_with_header: raw.len() as i32 + 4,
//!     ext_info: stored.len() as u32, // pglz is method 0
//!     value_id: ValueId(16400),
//!     toast_relation: Oid(16390),
//!     id_type: ValueIdType::Oid,
//! };
//! assert_eq!(pointer.chunks(page) as usize, chunks.len());
//!
//! let mut store = FetchedChunks::default();
//! store.add_value(pointer.toast_relation, pointer.value_id, chunks[..1].to_vec());
//! let error = stock::content(&pointer, &mut store, page, ByteOrder::Little).unwrap_err();
//! assert!(error.to_string().starts_with("missing chunk number 1 of"), "{error}");
//!
//! store.add_value(pointer.toast_relation, pointer.value_id, chunks);
//! let content = stock::content(&pointer, &mut store, page, ByteOrder::Little)?;
//! assert_eq!(content, raw.as_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]

pub mod codec;
pub mod disk;
pub mod fill;
pub mod heap;
pub mod judge;
pub mod model;
