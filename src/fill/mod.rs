//! How full files and indexes are, and what making them shorter would move and write (pure).
//!
//! * [`room`]: how full blocks are, and where a file's end would be; [`packing`]: what finds room there.
//! * [`survey`]: what stands in each block that a scan goes over; [`look`]: the same of a sample of blocks, and what
//!   follows from either.
//! * [`moves`]: what compaction moves and writes;
//!   [`lengths`]: how long rows are, by what functions tell of their values, and how much longer once they are moved.
//! * [`rewritten`]: what commands that write a table anew would leave of its files.

pub(crate) mod lengths;
pub(crate) mod look;
pub(crate) mod moves;
pub(crate) mod packing;
pub(crate) mod rewritten;
pub(crate) mod room;
pub(crate) mod survey;
