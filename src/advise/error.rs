//! Why there is no advice.

use crate::model::policy::MethodChoice;
use crate::model::settings::SettingsError;
use crate::server::LiveError;

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdviseError {
    #[error("{relation}: {error}")]
    Live { relation: String, error: LiveError },
    /// What was asked for does not fit this table: what, why, and perhaps a hint.
    #[error("{0}")]
    Unfit(String),
    /// Every combination of settings that was asked for contradicts itself; the first one's reason.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("this server was built without lz4, so method \"{0}\" cannot be used: pglz is allowed")]
    NoLz4(MethodChoice),
    /// The relation's values cannot be read at all.
    #[error("{relation}: {why}\nHINT:  {hint}")]
    NoRows { relation: String, why: String, hint: String },
    /// `--exact` where nothing can be written.
    #[error(
        "--exact needs temporary tables, which a standby does not have\n\
         HINT:  Leave --exact away, or connect to the primary."
    )]
    ExactOnStandby,
}

impl AdviseError {
    /// Why a column that was named cannot be taken, and which columns can.
    pub(crate) fn column(column: &str, relation: &str, why: &str, allowed: &str) -> AdviseError {
        AdviseError::Unfit(format!(
            "column \"{column}\" of relation \"{relation}\" {why}\nHINT:  {allowed}"
        ))
    }
}
