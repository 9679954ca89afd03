//! What outlives a run: in files, and in comments.
//!
//! * [`checkpoint`]: where scanning is; [`since`]: what earlier runs have proven, [`remembered`] its
//!   file, and what a table is known by; `file`: how files are written.
//! * [`settings`]: what columns were set to before.

pub mod checkpoint;
pub(crate) mod file;
pub mod remembered;
pub mod settings;
pub mod since;
