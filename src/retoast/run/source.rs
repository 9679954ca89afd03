//! What the scans of a run go by.

use crate::retoast::sink::Results;
use crate::retoast::sweep::scan_source::ScanSource;
use crate::server::about::Access;
use crate::server::about::{Pageinspect, Server};
use crate::server::sink::{Failed, Kind};

/// What scans can go by, of what is wanted.
///
/// # Errors
/// Pages are wanted and cannot be read.
pub(crate) fn source(
    server: &Server,
    wanted: Access,
    results: &Results<'_>,
) -> Result<ScanSource, Failed> {
    let why = if !server.superuser {
        "pageinspect needs a superuser"
    } else if server.pageinspect.is_none() {
        "the extension pageinspect is not installed in this database"
    } else {
        ""
    };
    tracing::debug!(
        "scans: {wanted:?} is wanted; pages: {}",
        if why.is_empty() { "yes" } else { why }
    );
    match (&server.pageinspect, wanted) {
        (_, Access::Functions) => Ok(ScanSource::Functions),
        (Some(pageinspect), _) if why.is_empty() => Ok(ScanSource::Pages(pageinspect.clone())),
        (_, Access::Pageinspect) => {
            Err(Failed::new(Kind::Incomplete, format!("pages cannot be read: {why}")))
        }
        (_, Access::Auto) => {
            results.notice(&format!("notice: using SQL functions: {why}"));
            Ok(ScanSource::Functions)
        }
    }
}

/// SQL functions do not tell which toaster wrote a value.
///
/// # Errors
/// Pages are not what scans go by.
pub(crate) fn need_pages(source: &ScanSource) -> Result<&Pageinspect, Failed> {
    match source {
        ScanSource::Pages(pageinspect) => Ok(pageinspect),
        ScanSource::Functions => Err(Failed::new(
            Kind::Incomplete,
            "pages must be read here: nothing else tells which toaster of pg_toaster stored a value\n\
             HINT:  Run as a superuser, with the extension pageinspect in this database.",
        )),
    }
}
