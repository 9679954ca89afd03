//! What PostgreSQL stores for given values and settings.
//!
//! * [`stored`]: the form a value is stored in, with its sizes.
//! * [`toaster`]: what stores oversized values, and how they are put together.
//! * [`visibility`]: which tuple versions count.
//! * [`settings`]: what a user chooses for a column; [`policy`]: which compressed values are kept.
//! * [`toast`]: the toaster's algorithm, from values to stored forms.
//! * [`pages`]: how tuples and chunks fill relations.
//! * [`btree`]: how large a fresh index is.
//! * [`cost`]: what storing and reading a value costs; [`pluggable`]: the same for other toasters.
//! * [`estimate`]: from a sample of blocks to the relation; [`interval`]: the same as reports carry it.
//! * [`sql`]: how identifiers and literals are quoted, and expressions that make a new datum.

#![deny(missing_docs)]

pub(crate) mod btree;
pub mod cost;
pub mod estimate;
pub mod interval;
pub mod pages;
pub mod pluggable;
pub mod policy;
pub mod settings;
pub mod sql;
pub mod stored;
pub mod toast;
pub mod toaster;
pub mod visibility;
