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
