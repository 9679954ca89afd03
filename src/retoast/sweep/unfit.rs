//! Rows that cannot be stored as chosen.

/// Rows that cannot be stored as chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfit {
    /// How many.
    pub rows: u64,
    /// The first one's address.
    pub first: Option<String>,
}

impl Unfit {
    /// Adds a row.
    pub fn add(&mut self, ctid: String) {
        self.rows += 1;
        self.first.get_or_insert(ctid);
    }
}
