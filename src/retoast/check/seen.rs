//! The table as the TOAST algorithm will see it.

use crate::codec::Method;
use crate::disk::layout::PageSize;
use crate::model::cost::Prices;
use crate::model::policy::MethodChoice;
use crate::model::settings::TupleTarget;
use crate::model::toast::{Column, Table as Model};
use crate::retoast::goal::toaster::Toaster;
use crate::retoast::sql::Target;
use crate::server::about::Server;
use crate::server::catalog::Relation;

/// The table's own `toast_tuple_target`.
pub(crate) fn table_target(relation: &Relation, page: PageSize) -> Option<TupleTarget> {
    let option = relation.options.iter().find_map(|o| o.strip_prefix("toast_tuple_target="))?;
    TupleTarget::new(option.parse().ok()?, page).ok()
}

pub(crate) fn model(
    relation: &Relation,
    server: &Server,
    toaster: Toaster,
    targets: &[Target],
    default_method: Method,
    target: Option<TupleTarget>,
) -> Model {
    let columns = relation.desc.attributes.iter().enumerate().map(|(index, attribute)| {
        let column = Column::of(attribute, default_method);
        match targets.iter().find(|target| target.index == index) {
            Some(target) => Column {
                storage: toaster.storage(),
                method: MethodChoice::One(target.method),
                ..column
            },
            None => column,
        }
    });
    Model {
        columns: columns.collect(),
        target: target.unwrap_or(TupleTarget::default_for(server.page_size)),
        // setting a storage that needs one makes one
        has_toast_relation: relation.toast.is_some() || toaster != Toaster::Plain,
        page: server.page_size,
        prices: Prices::default(),
    }
}
