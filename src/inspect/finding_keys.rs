//! Facts for findings about keys of documents: which are used, and how small they are.

use super::inspector::{Inspector, no_client};
use crate::advise::keys::{hot, used};
use crate::findings::facts::ColumnFacts;
use crate::server::LiveError;
use crate::server::catalog::Relation;

impl Inspector {
    /// Which keys of these columns' documents are used goes to them.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn used_keys(
        &self,
        relation: &Relation,
        columns: &mut [&mut ColumnFacts],
    ) -> Result<(), LiveError> {
        let leader = self.connections.first().ok_or_else(no_client)?;
        let known = used::ask(leader, relation).await?;
        for column in columns {
            column.keys =
                hot::used_keys(leader, &self.server, relation, column.index, &known).await?;
        }
        Ok(())
    }
}
