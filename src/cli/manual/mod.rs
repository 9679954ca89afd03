//! What the manual pages and `toastctl help` say beside the options.

pub mod pages;
pub mod topics;
pub mod verbs;

/// A subject of its own: an introduction, then terms with what they mean.
#[derive(Debug, Clone, Copy)]
pub struct Topic {
    /// The word after `toastctl help`.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Paragraphs before the terms.
    pub intro: &'static [&'static str],
    /// Terms and what they mean.
    pub items: &'static [Item],
}

/// A term and what it means.
pub type Item = (&'static str, &'static str);

/// What belongs to a verb beside its options.
#[derive(Debug, Clone, Copy)]
pub struct Manual {
    pub verb: &'static str,
    /// What is wanted, and the command that does it.
    pub examples: &'static [Item],
    /// What the verb reads or writes besides the server.
    pub files: &'static [Item],
    /// What the role needs.
    pub permissions: &'static [Item],
}
