//! What is looked at before the first row is touched, and why a table is refused.
//!
//! * [`preflight`]: one table; [`policy_preflight`]: what a policy needs besides.
//! * `kind`: what is swept at all; `columns`: those that it is about; `triggers`: what an UPDATE sets off.
//! * [`shapes`], [`generated`]: what the catalog says of types and generated columns.
//! * `longest`: values that a pluggable toaster would refuse.
//! * [`touch`]: where only dropped columns are to be cleared.
//! * [`definition`]: settings and definition, read again while the sweep runs; [`difference`]: what is no longer
//!   what it was.
//! * [`privileges`]: what this user may do; `toast`: whether the TOAST relation can be looked at;
//!   `reindex`: whether indexes can be rebuilt.
//! * [`seen_places`]: whether scans see which values are out of line, and whether that matters.
//! * `owner`: whose code a sweep runs, and as whom.
//! * [`parents`]: partitioned parents; [`origin`]: keeping subscribers out of it.

pub(crate) mod columns;
pub mod definition;
pub mod difference;
pub mod generated;
pub(crate) mod kind;
pub(crate) mod longest;
pub mod origin;
pub mod owner;
pub mod parents;
pub mod policy_preflight;
pub mod preflight;
pub mod privileges;
pub mod ready;
pub mod refusal;
pub(crate) mod reindex;
pub(crate) mod seen;
pub(crate) mod seen_places;
pub mod shapes;
pub(crate) mod toast;
pub(crate) mod touch;
pub(crate) mod triggers;
