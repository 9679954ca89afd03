//! How full files and indexes are, and what making them shorter would move and write (pure).
//!
//! * [`room`]: how full blocks are, and where a file's end would be; [`packing`]: what finds room there.
//! * [`meter`]: how full a file is, by a scan of all of its blocks or by a sample, and what compaction would give back.
//! * [`moves`]: what compaction moves and writes;
//!   [`lengths`]: how long rows are, by what functions tell of their values, and how much longer once they are moved.
//! * [`rewritten`]: what commands that write a table anew would leave of its files.

pub(crate) mod lengths;
pub(crate) mod meter;
pub(crate) mod moves;
pub(crate) mod packing;
pub(crate) mod rewritten;
pub(crate) mod room;
