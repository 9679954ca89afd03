//! What is wanted.
//!
//! * [`toaster`]: toasters, and the settings that make them a column's choice.

pub mod toaster;
