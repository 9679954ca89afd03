//! What PostgreSQL stores for given values and settings.
//!
//! * [`stored`]: the form in which a value is stored, with its sizes.
//! * [`toaster`]: what stores long values, and how values are reassembled.
//! * [`visibility`]: which tuple versions are visible.
//! * [`settings`]: the settings of a column; [`policy`]: which compressed values are kept.
//! * [`toast`]: the TOAST algorithm, from values to stored forms.
//! * [`pages`]: how tuples and chunks fill relations.
//! * [`btree`]: the size of a fresh index; [`index_shape`], [`index_entry`]: whether a
//!   row's entry fits an index.
//! * [`cost`]: the cost of storing and reading a value; [`pluggable`]: the same for other toasters.
//! * [`fit`]: prices fitted to measurements; [`wal`]: the sizes of WAL records.
//! * [`estimate`]: from a sample of blocks to the relation; [`interval`]: estimates as shown in reports.
//! * [`sql`]: quoted identifiers and literals, and expressions that make a fresh datum.

pub mod btree;
pub mod cost;
pub mod estimate;
pub mod fit;
pub mod index_entry;
pub mod index_shape;
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
pub mod wal;

pub use estimate::BlocksRead;
pub use interval::{Interval, Range};
pub use policy::{MethodChoice, Policy};
pub use settings::TupleTarget;
pub use stored::{Form, StoredValue};
pub use toaster::catalog::Toasters;
pub use visibility::{HintBits, Snapshot, Visibility};
