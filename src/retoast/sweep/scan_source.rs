//! What a scan goes by.

use crate::server::about::Pageinspect;

/// What a scan goes by.
#[derive(Debug, Clone)]
pub enum ScanSource {
    /// Pages.
    Pages(Pageinspect),
    /// SQL functions.
    Functions,
}

impl ScanSource {
    /// What reads pages, where they are read.
    pub(crate) fn pageinspect(&self) -> Option<&Pageinspect> {
        match self {
            ScanSource::Pages(pageinspect) => Some(pageinspect),
            ScanSource::Functions => None,
        }
    }
}
