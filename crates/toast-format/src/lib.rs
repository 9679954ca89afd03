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

pub mod codec;
pub mod disk;
pub mod fill;
pub mod heap;
pub mod judge;
pub mod model;
