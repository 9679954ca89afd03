//! The table as the TOAST algorithm will see it.

use crate::codec::Method;
use crate::judge::toaster::Toaster;
use crate::model::policy::MethodChoice;
use crate::model::settings::TupleTarget;
use crate::model::toast::Table as Model;
use crate::retoast::sql::Target;
use crate::server::about::Server;
use crate::server::catalog::Relation;

pub(crate) fn model(
    relation: &Relation,
    server: &Server,
    toaster: Toaster,
    targets: &[Target],
    default_method: Method,
    target: Option<TupleTarget>,
) -> Model {
    let mut table = relation.table(default_method, server.page_size);
    for target in targets {
        if let Some(column) = table.columns.get_mut(target.index) {
            column.storage = toaster.storage();
            column.method = MethodChoice::One(target.method);
        }
    }
    Model {
        target: target.unwrap_or(TupleTarget::default_for(server.page_size)),
        // setting a storage that needs one makes one
        has_toast_relation: table.has_toast_relation || toaster != Toaster::Plain,
        ..table
    }
}
