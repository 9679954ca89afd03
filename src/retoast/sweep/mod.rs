//! The conversion of one table: scans, batches and vacuums until all values are stored as requested.
//!
//! * [`conversion`]: carries out the actions of the [`machine`], which has no IO and no clock.
//! * [`batch`]: one transaction; `keys`: how to find rows again that other sessions lock nearly all the time;
//!   `dead_entries`: room in indexes for new row versions; `vacuum`: VACUUM during a conversion.
//! * `sample`: the sample of rows and indexes on which a forecast is based.
//! * [`scanner`], [`scan`]: the rows that do not comply, and whether the goal can be stored at all; `judges`: what
//!   only the server can determine about rows; `index_entries`: whether rows fit indexes; `readings` and `compared`:
//!   whether the server reads values of pluggable toasters as their chunks hold them; [`policy_scan`]: scans with a
//!   policy.

pub mod batch;
mod compared;
pub(crate) mod conversion;
pub(crate) mod dead_entries;
mod index_entries;
mod judges;
mod keys;
pub mod machine;
pub mod policy_scan;
mod readings;
mod sample;
pub mod scan;
pub mod scanner;
mod vacuum;
