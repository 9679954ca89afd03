//! Facts for findings about use: a table's counters, what statements say of its columns, and which keys of their
//! documents are used.

use super::inspector::{Inspector, no_client};
use crate::findings::facts::ColumnFacts;
use crate::server::LiveError;
use crate::server::catalog::Relation;
use crate::usage::hot;
use crate::usage::keys::KnownUses;
use crate::usage::statements::{Statements, Verdict};
use crate::usage::workload::{Counters, StatementCounts};

impl Inspector {
    /// How a relation is used, on a server with lz4; what statements say of these columns goes to them.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn used(
        &self,
        relation: &Relation,
        columns: &mut [&mut ColumnFacts],
    ) -> Result<Counters, LiveError> {
        let leader = self.connections.first().ok_or_else(no_client)?;
        let ask = async || {
            let client = leader.client();
            let counters = Counters::ask(client, relation).await?;
            // nobody's texts are read for a table that nobody uses
            let statements = match counters.is_busy() {
                true => Statements::ask(client, relation, &[]).await?,
                false => Statements::NotInstalled,
            };
            Ok::<_, LiveError>((counters, statements))
        };
        let (counters, statements) = leader.reading(ask).await?;
        for column in columns {
            if let Verdict::Told { reads, writes, .. } =
                statements.verdict(relation, &column.name, counters.live)
            {
                column.statements = Some(StatementCounts { reads, writes });
            }
        }
        Ok(counters)
    }

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
        let known = KnownUses::ask(leader, relation).await?;
        for column in columns {
            column.keys =
                hot::used_keys(leader, &self.server, relation, column.index, &known).await?;
        }
        Ok(())
    }
}
