//! The conversion of one table: scans, batches and vacuums until all values are stored as requested.
//!
//! * [`conversion`]: does what the [`machine`] says, which has no IO and no clock.
//! * [`batch`]: one transaction; `keys`: how rows are found again that others hold nearly all the time; `dead_entries`:
//!   room in indexes for the new versions of rows; `vacuum`: VACUUM on the way.
//! * [`scanner`], [`scan`]: the rows that are stored otherwise than chosen, and whether the choice can be stored at all;
//!   `judges`: what only the server can say of rows; [`policy_scan`]: scans by a policy.

pub mod batch;
pub(crate) mod conversion;
pub(crate) mod dead_entries;
mod judges;
mod keys;
pub mod machine;
pub mod policy_scan;
pub mod scan;
pub mod scanner;
mod vacuum;
