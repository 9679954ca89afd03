//! The settings that are compared for a column, and the tables under them; which columns; and why there is no advice.

use super::tally::{OtherValues, Variant};
use crate::message::Message;
use crate::offline::file::FileError;
use crate::server::LiveError;
use crate::server::about::Compression;
use crate::server::catalog::{Relation, VIRTUAL, is_toastable};
use crate::server::sink::{Failed, Kind};
use toast_format::codec::Method;
use toast_format::disk::{Length, PageSize, Storage};
use toast_format::model::policy::{Ratio, SettingsError};
use toast_format::model::settings::Settings;
use toast_format::model::toast::Table;
use toast_format::model::{MethodChoice, Policy, TupleTarget};

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdviseError {
    #[error("{relation}: {error}")]
    Live { relation: String, error: LiveError },
    #[error(transparent)]
    File(#[from] FileError),
    /// What was asked for does not fit this table: what, why, and perhaps a hint.
    #[error("{0}")]
    Unfit(String),
    /// The relation does not have a column that was named.
    #[error("{0}")]
    NoColumn(Message),
    /// Every combination of settings that was asked for contradicts itself; the first one's reason.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("this server was built without lz4, so method \"{0}\" cannot be used: pglz is allowed")]
    NoLz4(MethodChoice),
    /// The relation's values cannot be read at all.
    #[error("{relation}: {why}")]
    NoRows { relation: String, why: String, hint: String },
    /// A shard, or all of a table of Citus, was not read.
    #[error("{relation}: {why}")]
    NotRead { relation: String, why: String },
    /// It is a part of a table, and its columns or settings are not those of another part.
    #[error("{relation}: {why}")]
    Differs { relation: String, why: String },
    /// `--exact` where nothing can be written.
    #[error("--exact needs temporary tables, which a standby does not have")]
    ExactOnStandby,
    /// `--calibrate=always` where that is not possible.
    #[error("{relation}: CPU times cannot be calibrated: {why}")]
    NotCalibrated { relation: String, why: String },
}

impl AdviseError {
    /// Why a column that was named cannot be taken, and which columns can.
    pub(crate) fn column(column: &str, relation: &str, why: &str, allowed: &str) -> AdviseError {
        AdviseError::Unfit(format!(
            "column \"{column}\" of relation \"{relation}\" {why}\nHINT:  {allowed}"
        ))
    }
}

impl From<&AdviseError> for Failed {
    fn from(error: &AdviseError) -> Failed {
        match error {
            AdviseError::Live { relation, error } => Failed::incomplete(error).placed(relation),
            AdviseError::NoRows { relation, why, hint } => {
                Failed::new(Kind::Incomplete, why).placed(relation).hint(hint)
            }
            AdviseError::NotRead { relation, why } | AdviseError::Differs { relation, why } => {
                Failed::new(Kind::Incomplete, why).placed(relation)
            }
            AdviseError::NotCalibrated { relation, why } => {
                Failed::new(Kind::Incomplete, format!("CPU times cannot be calibrated: {why}"))
                    .placed(relation)
                    .hint("Leave --calibrate=always away.")
            }
            AdviseError::NoColumn(message) => {
                Failed { kind: Kind::Incomplete, message: message.clone() }
            }
            AdviseError::ExactOnStandby => Failed::new(Kind::Incomplete, error.to_string())
                .hint("Leave --exact away, or connect to the primary."),
            AdviseError::Unfit(_)
            | AdviseError::NoLz4(_)
            | AdviseError::Settings(_)
            | AdviseError::File(_) => Failed::new(Kind::Usage, error.to_string()),
        }
    }
}

/// What the user wants compared; an empty list leaves the choice to [`candidates`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Narrowing {
    pub storages: Vec<Storage>,
    pub methods: Vec<MethodChoice>,
    pub targets: Vec<TupleTarget>,
    pub policies: Vec<Policy>,
}

impl Narrowing {
    fn is_empty(&self) -> bool {
        self.storages.is_empty()
            && self.methods.is_empty()
            && self.targets.is_empty()
            && self.policies.is_empty()
    }

    /// Whether these settings are among those asked for; others are only compared with them.
    pub(super) fn allows(&self, settings: &Settings, present: &Settings) -> bool {
        fn is_in<T: PartialEq>(asked: &[T], own: &T) -> bool {
            asked.is_empty() || asked.contains(own)
        }
        let is_present = settings.storage == present.storage || self.compresses();
        let is_asked = self.storages.contains(&settings.storage);
        (is_asked || self.storages.is_empty() && (is_present || self.targets.is_empty()))
            && is_in(&self.methods, &settings.method)
            && is_in(&self.targets, &settings.target)
            && is_in(&self.policies, &settings.policy)
    }

    /// Whether a storage is needed that compresses.
    fn compresses(&self) -> bool {
        !self.methods.is_empty() || !self.policies.is_empty()
    }

    /// The method that was not asked for, if only one was: the two are compared.
    fn other_method(&self) -> Option<Method> {
        let is_plain = self.storages.iter().all(|&storage| storage == Storage::Extended)
            && self.policies.is_empty()
            && self.targets.is_empty();
        match self.methods[..] {
            [MethodChoice::One(Method::Pglz)] if is_plain => Some(Method::Lz4),
            [MethodChoice::One(Method::Lz4)] if is_plain => Some(Method::Pglz),
            _ => None,
        }
    }
}

/// What a server can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    pub compression: Compression,
    pub page: PageSize,
}

/// The settings to compare with `present`, without repetition and without `present` itself. `is_only_one`: whether no
/// other column of the table can be toasted.
fn candidates(
    present: Settings,
    narrowing: &Narrowing,
    abilities: Abilities,
    is_only_one: bool,
) -> Result<Vec<Settings>, AdviseError> {
    let mut methods = narrowing.methods.iter();
    if !abilities.compression.lz4
        && let Some(&method) = methods.find(|&&method| method != MethodChoice::One(Method::Pglz))
    {
        return Err(AdviseError::NoLz4(method));
    }
    let mut all = if narrowing.is_empty() {
        standard(present, abilities, is_only_one)
    } else {
        asked(present, narrowing)?
    };
    let other = narrowing.other_method();
    if let Some(other) = other.filter(|&other| abilities.compression.lz4 || other == Method::Pglz) {
        let storage = match present.storage {
            Storage::Main if narrowing.storages.is_empty() => Storage::Main,
            _ => Storage::Extended,
        };
        all.push(Settings { storage, method: MethodChoice::One(other), ..present });
    }
    let mut unique: Vec<Settings> = Vec::with_capacity(all.len());
    all.retain(|settings| {
        let known = unique.iter().chain([&present]).any(|other| same(other, settings));
        if !known {
            unique.push(*settings);
        }
        !known
    });
    Ok(all)
}

/// Whether two settings store every value alike.
fn same(a: &Settings, b: &Settings) -> bool {
    let compresses = matches!(a.storage, Storage::Extended | Storage::Main);
    a.storage == b.storage
        && (a.storage == Storage::Plain || a.target == b.target)
        && (!compresses || (a.method == b.method && a.policy == b.policy))
}

/// Every combination of what was asked for, the present settings where nothing was. Targets are compared with compression
/// too, for what they do depends on it most.
fn asked(present: Settings, narrowing: &Narrowing) -> Result<Vec<Settings>, SettingsError> {
    let storages = match present.storage {
        _ if !narrowing.storages.is_empty() => &narrowing.storages[..],
        Storage::Plain | Storage::External if narrowing.compresses() => &[Storage::Extended],
        Storage::External => &[Storage::External, Storage::Extended],
        _ => std::slice::from_ref(&present.storage),
    };
    let methods =
        if narrowing.methods.is_empty() { &[present.method][..] } else { &narrowing.methods };
    let targets =
        if narrowing.targets.is_empty() { &[present.target][..] } else { &narrowing.targets };
    let policies =
        if narrowing.policies.is_empty() { &[Policy::Always][..] } else { &narrowing.policies };
    let mut all = Vec::new();
    let mut contradiction = None;
    for &storage in storages {
        for &method in methods {
            for &policy in policies {
                for &target in targets {
                    let settings = Settings { storage, method, target, policy };
                    match settings.check() {
                        Ok(()) => all.push(settings),
                        Err(error) => contradiction = contradiction.or(Some(error)),
                    }
                }
            }
        }
    }
    match contradiction {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

/// The table after `ALTER TABLE` has given these columns these settings.
fn with_settings(stored: &Table, columns: &[usize], settings: &Settings) -> Table {
    let mut table = Table { target: settings.target, ..stored.clone() };
    for &column in columns {
        if let Some(own) = table.columns.get_mut(column) {
            *own = own.with(settings);
        }
    }
    // ALTER TABLE makes one where a column may need it.
    table.has_toast_relation |= settings.storage != Storage::Plain;
    table
}

/// The columns that the command names. A target is the table's: columns whose other settings are the same are brought
/// there too.
fn columns_of_command(
    relation: &Relation,
    stored: &Table,
    column: usize,
    settings: &Settings,
) -> Vec<usize> {
    let mut named = vec![column];
    if settings.is_stock() && settings.target != stored.target {
        for other in relation.toastable().filter(|&other| other != column) {
            if stored
                .columns
                .get(other)
                .is_some_and(|own| own.storage == settings.storage && own.method == settings.method)
            {
                named.push(other);
            }
        }
    }
    named
}

/// What is worth a look for most tables. A target is the table's, and values of other columns follow it too, as rows are
/// updated: others are compared where there are none.
fn standard(present: Settings, abilities: Abilities, is_only_one: bool) -> Vec<Settings> {
    let pglz = MethodChoice::One(Method::Pglz);
    let best = if abilities.compression.lz4 { MethodChoice::One(Method::Lz4) } else { pglz };
    let default = TupleTarget::default_for(abilities.page);
    let target = if is_only_one { default } else { present.target };
    let plain =
        Settings { storage: Storage::Extended, method: best, target, policy: Policy::Always };
    let mut all = vec![
        Settings { target: present.target, ..plain },
        plain,
        Settings { method: pglz, ..plain },
        Settings { storage: Storage::External, ..plain },
        Settings { storage: Storage::Main, ..plain },
    ];
    let page = abilities.page;
    let wide = (page.bytes() / 2 - 16) as u32;
    let widest = page.toast_tuple_target_main() as u32;
    let targets = if is_only_one { &[wide, widest][..] } else { &[] };
    for &bytes in targets {
        if let Ok(target) = TupleTarget::new(bytes, page) {
            all.push(Settings { target, ..plain });
        }
    }
    for policy in [
        Policy::ChunkSaving { chunks: 1 },
        Policy::Ratio(Ratio::NINETY_FIVE),
        Policy::ChunkFloor { chunks: 100 },
        Policy::Hybrid(Ratio::NINETY),
        Policy::Best,
    ] {
        all.push(Settings { policy, ..plain });
    }
    if abilities.compression.lz4 {
        all.push(Settings { method: MethodChoice::Either, policy: Policy::Best, ..plain });
    }
    all
}

/// All columns whose storage can be chosen; at least one.
pub(crate) fn toastable_columns(relation: &Relation) -> Result<Vec<usize>, AdviseError> {
    let found: Vec<usize> = relation.toastable().collect();
    if found.is_empty() {
        let name = relation.display_name();
        let what = format!("relation \"{name}\" has no column that can be toasted");
        return Err(AdviseError::Unfit(what));
    }
    Ok(found)
}

/// The indexes of the named columns, each once.
pub(crate) fn named_columns(
    relation: &Relation,
    names: &[String],
) -> Result<Vec<usize>, AdviseError> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let mut columns = relation.desc.attributes.iter().enumerate();
        let why = match columns.find(|(_, column)| !column.dropped && column.name == *name) {
            None => return Err(AdviseError::NoColumn(relation.no_such_column(name))),
            Some((_, column)) if column.is_virtual => VIRTUAL.to_owned(),
            Some((_, column)) if column.length != Length::Varlena => format!(
                "has type {}, whose values have a fixed length and are never toasted",
                column.type_name
            ),
            Some((_, column)) if !is_toastable(column) => {
                format!("has type {}, which has no storage but plain", column.type_name)
            }
            Some((index, _)) => {
                if !found.contains(&index) {
                    found.push(index);
                }
                continue;
            }
        };
        let table = relation.display_name();
        let allowed = relation.toastable_hint(name);
        return Err(AdviseError::column(name, &table, &why, &allowed));
    }
    Ok(found)
}

/// Of these columns (none: of all) those of a relation that can be advised on; why there are none. For
/// relations that only a pattern or a parent means.
pub(super) fn fitting_columns(
    relation: &Relation,
    names: &[String],
) -> Result<Vec<String>, String> {
    if names.is_empty() {
        let found = toastable_columns(relation);
        return found.map(|_| Vec::new()).map_err(|error| error.to_string());
    }
    let mut why = None;
    let mut fitting = Vec::new();
    for name in names {
        match named_columns(relation, std::slice::from_ref(name)) {
            Ok(_) => fitting.push(name.clone()),
            Err(error) => why = why.or(Some(error)),
        }
    }
    match why {
        Some(error) if fitting.is_empty() => {
            Err(error.to_string().lines().next().unwrap_or_default().to_owned())
        }
        _ => Ok(fitting),
    }
}

/// A column and everything that is compared for it.
#[derive(Debug, Clone)]
pub struct Variants {
    /// Its index from 0.
    pub column: usize,
    pub name: String,

    pub type_name: String,
    /// The settings that apply to new values now.
    pub present: Settings,
    /// As stored now, then what the present settings would store, then the candidates.
    pub all: Vec<Variant>,
    /// The methods with which the column's values must be compressed for that.
    pub methods: Vec<Method>,
}

impl Variants {
    /// Where in `all` the present settings are.
    pub(super) const AS_SET: usize = 1;

    /// For one column of a relation, of those that are `advised` on.
    pub fn new(
        relation: &Relation,
        column: usize,
        advised: &[usize],
        narrowing: &Narrowing,
        abilities: Abilities,
    ) -> Result<Variants, AdviseError> {
        let Abilities { page, compression: Compression { default, .. } } = abilities;
        let stored = relation.table(default, page);
        let own = relation.desc.attributes.get(column);
        let storage = own.map_or(Storage::Extended, |a| a.storage);
        let method = own.and_then(|a| a.compression).unwrap_or(default);
        let present = Settings {
            storage,
            method: MethodChoice::One(method),
            target: stored.target,
            policy: Policy::Always,
        };
        let variant = |settings: &Settings, stored_by: Option<Settings>| Variant {
            column,
            reads: vec![column],
            settings: stored_by,
            table: with_settings(&stored, &[column], settings),
            named: columns_of_command(relation, &stored, column, settings),
            others: OtherValues::Stay,
        };
        let mut all = vec![variant(&present, None), variant(&present, Some(present))];
        let is_only_one = relation.toastable().count() == 1;
        let wanted = candidates(present, narrowing, abilities, is_only_one)?;
        all.extend(wanted.iter().map(|settings| variant(settings, Some(*settings))));
        if !is_only_one {
            let alone = all.iter().skip(1);
            let arriving = alone.map(|one| Variant { others: OtherValues::Arrive, ..one.clone() });
            all.extend(arriving.collect::<Vec<Variant>>());
        }
        // those of the first column are those of all
        if advised.len() > 1 && advised.first() == Some(&column) {
            let mut named = advised.to_vec();
            named.sort_unstable();
            all.extend(wanted.iter().map(|settings| Variant {
                table: with_settings(&stored, advised, settings),
                named: named.clone(),
                others: OtherValues::Follow,
                ..variant(settings, Some(*settings))
            }));
        }
        let methods = unique(
            all.iter()
                .filter_map(|v| v.settings)
                .filter(|s| matches!(s.storage, Storage::Extended | Storage::Main))
                .filter(|s| s.policy != Policy::Never)
                .flat_map(|s| s.method.methods())
                .copied(),
        );
        Ok(Variants {
            column,
            name: own.map(|a| a.name.clone()).unwrap_or_default(),
            type_name: own.map(|a| a.type_name.clone()).unwrap_or_default(),
            present,
            all,
            methods,
        })
    }

    /// The table with the present settings.
    pub(super) fn table(&self) -> Option<&Table> {
        Some(&self.all.first()?.table)
    }
}

/// Every method of a list once.
fn unique(methods: impl IntoIterator<Item = Method>) -> Vec<Method> {
    let mut out = Vec::new();
    for method in methods {
        if !out.contains(&method) {
            out.push(method);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abilities(lz4: bool) -> Abilities {
        let compression = Compression { lz4, default: Method::Pglz };
        Abilities { compression, page: PageSize::DEFAULT }
    }

    fn present() -> Settings {
        Settings {
            storage: Storage::Extended,
            method: MethodChoice::One(Method::Pglz),
            target: TupleTarget::default_for(PageSize::DEFAULT),
            policy: Policy::Always,
        }
    }

    fn names(narrowing: &Narrowing, lz4: bool) -> Vec<String> {
        let all = candidates(present(), narrowing, abilities(lz4), true).unwrap();
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_standard_set() {
        assert_eq!(
            names(&Narrowing::default(), true),
            [
                "extended lz4",
                "external",
                "main lz4",
                "extended lz4 target 4080",
                "extended lz4 target 8160",
                "extended lz4 chunk-saving",
                "extended lz4 ratio=0.95",
                "extended lz4 chunk-floor=100",
                "extended lz4 hybrid=0.90",
                "extended lz4 best",
                "extended either best",
            ]
        );
        assert!(names(&Narrowing::default(), false).iter().all(|name| !name.contains("lz4")));
    }

    #[test]
    fn a_higher_target_is_compared_where_it_concerns_one_column() {
        let all = candidates(present(), &Narrowing::default(), abilities(true), false).unwrap();
        let default = TupleTarget::default_for(PageSize::DEFAULT);
        assert!(all.iter().all(|settings| settings.target == default), "{all:?}");
        // nor is a lower one
        let high = TupleTarget::new(4080, PageSize::DEFAULT).unwrap();
        let present = Settings { target: high, ..present() };
        let all = candidates(present, &Narrowing::default(), abilities(true), false).unwrap();
        assert!(all.iter().all(|settings| settings.target == high), "{all:?}");
    }

    #[test]
    fn what_is_asked_for_is_combined_and_checked() {
        let narrowing = Narrowing {
            policies: vec![Policy::ChunkSaving { chunks: 1 }, Policy::Always],
            targets: vec![TupleTarget::new(4080, PageSize::DEFAULT).unwrap()],
            ..Narrowing::default()
        };
        assert_eq!(
            names(&narrowing, true),
            ["extended pglz chunk-saving target 4080", "extended pglz target 4080"]
        );
        let targets = Narrowing { policies: Vec::new(), ..narrowing };
        let external = Settings { storage: Storage::External, ..present() };
        let all = candidates(external, &targets, abilities(true), true).unwrap();
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(all, ["external target 4080", "extended pglz target 4080"]);
        let lz4 = Narrowing { methods: vec![MethodChoice::Either], ..Narrowing::default() };
        let error = candidates(present(), &lz4, abilities(false), true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this server was built without lz4, so method \"either\" cannot be used: pglz is allowed"
        );
        let wrong = Narrowing {
            storages: vec![Storage::External],
            policies: vec![Policy::Best],
            ..Narrowing::default()
        };
        let error = candidates(present(), &wrong, abilities(true), true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "policy \"best\" needs storage extended or main, not external"
        );
    }

    #[test]
    fn one_method_is_compared_with_the_other_which_is_not_asked_for() {
        let external = Settings { storage: Storage::External, ..present() };
        for (method, policies, lz4, expected) in [
            (Method::Lz4, vec![], true, &[("extended lz4", true), ("extended pglz", false)][..]),
            (Method::Pglz, vec![], false, &[("extended pglz", true)]),
            (Method::Lz4, vec![Policy::Best], true, &[("extended lz4 best", true)]),
        ] {
            let methods = vec![MethodChoice::One(method)];
            let narrowing = Narrowing { methods, policies, ..Narrowing::default() };
            let all = candidates(external, &narrowing, abilities(lz4), true).unwrap();
            let all: Vec<(String, bool)> =
                all.iter().map(|one| (one.to_string(), narrowing.allows(one, &external))).collect();
            let expected: Vec<(String, bool)> =
                expected.iter().map(|&(name, is_asked)| (name.to_owned(), is_asked)).collect();
            assert_eq!(all, expected);
        }
    }
}
