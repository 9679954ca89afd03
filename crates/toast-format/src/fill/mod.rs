//! How full files and indexes are, and what would be moved and written to make files shorter (pure).
//!
//! * [`room`]: how full blocks are, and where a file could end; [`packing`]: which tuples fit into the free space.
//! * [`meter`]: how full a file is, from a scan of all its blocks or of a sample, and what compaction would return.
//! * [`moves`]: what compaction moves and writes; [`lengths`]: the lengths of rows, as far as functions on their
//!   values show them, and how much longer rows become when they are moved.
//! * [`dead_values`]: the values in dead chunks; [`deaths`]: whether VACUUM may remove dead tuples now.
//! * [`file_model`]: the size of a file after updates, compaction, and the rebuilding of an index.
//! * [`rewritten`]: the size of the files that commands rewriting a table would produce.

pub mod dead_values;
pub mod deaths;
pub mod file_model;
pub mod lengths;
pub mod meter;
pub mod moves;
pub mod packing;
pub mod rewritten;
pub mod room;
