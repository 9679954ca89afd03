//! Findings: what a table's large values cost without need, each with the command that acts on it.
//!
//! Rules are pure: [`facts`] in, [`finding`]s out. Facts that only pages tell come from a look at a bounded
//! sample of blocks, with intervals; a rule tells only what the interval's worse end still says.
//!
//! * [`code`]: the kinds of findings, with what is said of each; [`finding`]: one of them.
//! * [`facts`]: what is known of a table; [`rules`]: what follows from that.
//! * [`look`]: what rows on pages show, [`targets`]: what longer values of `toast_tuple_target` would make of them;
//!   [`content`]: what is in values, and in their last chunks.

pub mod code;
pub(crate) mod content;
pub(crate) mod facts;
pub mod finding;
pub(crate) mod look;
pub(crate) mod rules;
pub(crate) mod targets;
