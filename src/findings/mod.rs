//! Findings: avoidable costs of a table's large values, each with the command that acts on it.
//!
//! Rules are pure: [`facts`] in, [`finding`]s out. Facts that only pages show come from a bounded sample of
//! blocks, with intervals; a rule reports only what the less favorable end of the interval still supports.
//!
//! * [`code`]: the kinds of findings, with their texts; [`finding`]: one of them.
//! * [`facts`]: what is known about a table; [`rules`]: what follows from it.
//! * [`look`]: what rows on pages show, [`targets`]: what longer values of `toast_tuple_target` would do to them;
//!   [`content`]: the contents of values and of their last chunks.

pub mod code;
pub(crate) mod content;
pub(crate) mod facts;
pub mod finding;
pub(crate) mod look;
pub(crate) mod rules;
pub(crate) mod targets;
