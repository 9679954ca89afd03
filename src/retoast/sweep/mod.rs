//! Scans, batches and vacuums of one table.
//!
//! * [`machine`]: what to do next, without IO and without a clock; [`run`]: doing it; `begin_and_end`: what the
//!   report begins with, and what is measured at the end.
//! * [`table`]: what a sweep works with; [`options`]: how it goes about it; [`error`]: why it ended.
//! * `task`: the work of a job, which is a [`batch`] or a [`vacuum`]; [`verify`]: the proof that a batch
//!   changes no content; [`lock`]: locks in short tries; `insist`: rows that others
//!   hold nearly all the time; `keys`: how they are found again.
//! * [`scanner`], [`scan`]: the rows that are stored otherwise than chosen; `judges`: what only the
//!   server can say of them.
//! * [`policy_scan`], [`policy_batch`]: scans and batches by a policy; [`policy_state`]: what they
//!   remember; `policy_proof`: what they answer for; `policy_copies`: what the server compresses
//!   values to.
//! * `marking`: room in indexes for the new versions of rows; [`old_entries`]: which have left entries behind.
//! * `marks`: what columns were set to before, for the run after a kill.
//! * [`settings`]: what the table is set to meanwhile; [`fit`]: whether the choice can be stored at all.
//! * `damage`, `scan_apart`: what scans cannot read, how they find it and leave it out; `unvacuumed`: what vacuums
//!   cannot.
//! * `foresee`: what a plan is made of; `refused`: what the server said of a row.

pub mod batch;
mod begin_and_end;
mod damage;
pub mod error;
pub mod fit;
mod foresee;
mod insist;
mod judges;
mod keys;
pub mod lock;
pub mod machine;
mod marking;
mod marks;
pub(crate) mod old_entries;
pub mod options;
pub mod policy_batch;
mod policy_copies;
mod policy_proof;
pub mod policy_scan;
pub mod policy_state;
pub(crate) mod refused;
pub mod run;
pub mod scan;
mod scan_apart;
pub mod scan_source;
pub mod scanner;
pub mod settings;
pub mod table;
mod task;
pub mod unfit;
pub(crate) mod unvacuumed;
pub mod vacuum;
pub mod verify;
pub mod watched;
