//! What becomes of each table where a toaster's values are to go back to the default (pure).

use crate::disk::Oid;
use crate::judge::pluggable::{default_name, leaves};
use crate::model::sql::quote_qualified;
use crate::model::toaster::catalog::ToasterColumn;
use crate::model::toaster::catalog::Toasters;
use crate::retoast::sql;

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TableAction {
    /// The table is swept; of these columns values are stored by the default toaster. Without any only
    /// dropped columns hold values, which every update of the row clears.
    Sweep(Vec<String>),
    /// There are no rows of its own: this statement sets its columns.
    Alter(String),
    /// Nothing can be done, for this reason.
    Unfit(String),
}

/// A table that has to do with a toaster that is to be left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Departure {
    /// The table.
    pub(crate) table: Oid,
    /// `schema.name`.
    pub(crate) name: String,
    /// What is done.
    pub(crate) action: TableAction,
}

/// The tables of `columns` that are set to `toaster`, or of whose columns `holds` says that they hold
/// its pointers. A dropped column that is only set to it gives no work.
pub(crate) fn departures(
    toasters: &Toasters,
    columns: &[ToasterColumn],
    toaster: Oid,
    holds: &dyn Fn(&ToasterColumn) -> bool,
) -> Vec<Departure> {
    let concerned =
        |column: &&ToasterColumn| holds(column) || (column.toaster == toaster && !column.dropped);
    let mut found = Vec::new();
    for table in columns.chunk_by(|a, b| a.table == b.table) {
        let concerned: Vec<&ToasterColumn> = table.iter().filter(concerned).collect();
        let Some(first) = concerned.first() else { continue };
        let living: Vec<&ToasterColumn> =
            concerned.iter().copied().filter(|column| !column.dropped).collect();
        let action = match first.relkind {
            _ if first.temporary => {
                TableAction::Unfit("it is a temporary table of another session".to_owned())
            }
            'm' => TableAction::Unfit(
                "the rows of a materialized view cannot be updated: REFRESH it".to_owned(),
            ),
            'p' => {
                let plan = leaves(toaster, &default_name(toasters), &living);
                let table = quote_qualified(&first.schema, &first.relation);
                match sql::alter(&table, &plan.changes) {
                    Some(alter) => TableAction::Alter(alter),
                    None => continue,
                }
            }
            _ => TableAction::Sweep(living.iter().map(|column| column.name.clone()).collect()),
        };
        found.push(Departure { table: first.table, name: first.table_name(), action });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::custom::DEFAULT_TOASTER;
    use crate::disk::desc::Storage;
    use crate::model::toaster::catalog::{Handler, PluggableToaster};

    const OURS: Oid = Oid(147_811);

    fn column(table: u32, index: usize, name: &str) -> ToasterColumn {
        ToasterColumn {
            table: Oid(table),
            schema: "s".into(),
            relation: format!("t{table}"),
            relkind: 'r',
            temporary: false,
            index,
            name: name.into(),
            type_name: "bytea".into(),
            base_type: Oid(17),
            storage: Storage::External,
            compression: None,
            toaster: DEFAULT_TOASTER,
            dropped: false,
        }
    }

    #[test]
    fn tables_of_a_toaster_that_is_left_each_have_their_way() {
        let default = PluggableToaster {
            oid: DEFAULT_TOASTER,
            name: "deftoaster".into(),
            handler: Handler::Default,
        };
        let ours = PluggableToaster { oid: OURS, name: "ours".into(), handler: Handler::Bytea };
        let toasters = Toasters::new(vec![default, ours]);
        let set = |column| ToasterColumn { toaster: OURS, ..column };
        let dropped = |column| ToasterColumn { dropped: true, ..set(column) };
        let columns = [
            set(column(1, 0, "a")),
            column(1, 1, "j"),
            column(2, 0, "nothing"),
            column(3, 0, "old"),
            set(column(3, 1, "new")),
            ToasterColumn { relkind: 'p', ..set(column(4, 0, "part")) },
            ToasterColumn { relkind: 'm', ..set(column(5, 0, "view")) },
            ToasterColumn { temporary: true, ..set(column(6, 0, "temp")) },
            ToasterColumn { relkind: 'p', ..column(7, 0, "other") },
            // one with values, one without
            dropped(column(8, 0, "........pg.dropped.1........")),
            column(8, 1, "b"),
            dropped(column(9, 0, "........pg.dropped.1........")),
        ];
        let holds = |column: &ToasterColumn| {
            column.name == "old" || column.table == Oid(8) && column.dropped
        };
        let found = departures(&toasters, &columns, OURS, &holds);
        let shown: Vec<String> = found
            .iter()
            .map(|departure| format!("{}: {:?}", departure.name, departure.action))
            .collect();
        insta::assert_snapshot!(shown.join("\n"), @r#"
        s.t1: Sweep(["a"])
        s.t3: Sweep(["old", "new"])
        s.t4: Alter("ALTER TABLE ONLY \"s\".\"t4\" ALTER COLUMN \"part\" SET TOASTER \"deftoaster\"")
        s.t5: Unfit("the rows of a materialized view cannot be updated: REFRESH it")
        s.t6: Unfit("it is a temporary table of another session")
        s.t8: Sweep([])
        "#);
        assert_eq!(departures(&toasters, &columns, Oid(1), &|_| false), []);
    }
}
