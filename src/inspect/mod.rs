//! The verb `inspect`: what is stored, and what it costs.
//!
//! * [`live`], [`offline`], [`saved`]: the runs, on a server, on files, on saved text; [`inspector`]: over which
//!   connections; `scan`: what the scan of a relation counts and keeps.
//! * [`run`]: the relations of a server in turn, and the handling of errors.
//! * [`overview`]: what the columns of many relations take, in one ranking.
//! * [`result`]: what is reported about a relation; [`figures`]: made of what was counted, or estimated from a sample;
//!   [`document`]: the JSON document; [`compare`]: that of an earlier run, and what has changed since.
//! * `findings`: facts about a table for [`crate::findings`]; `finding_look`: the look at its pages, `kept`: those that
//!   were kept while they were scanned; `finding_values`: facts of what is in values; `file_findings`: findings
//!   about files.
//! * [`orphans`]: chunks that no row refers to.

pub(crate) mod compare;
pub mod document;
mod figures;
mod file_findings;
mod finding_look;
mod finding_values;
mod findings;
pub mod inspector;
mod kept;
pub mod live;
pub mod offline;
pub mod orphans;
pub mod overview;
pub mod result;
pub mod run;
pub mod saved;
mod scan;
