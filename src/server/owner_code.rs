//! Which code of a table's owner a session of another role may run (pure): the rule, and what it needs to know.
//!
//! Whoever uses a table runs code that its owner chose: expressions and predicates of indexes, checks, generated columns,
//! statistics, partition keys, policies, triggers, and the functions of operator classes. Planning a SELECT, even without
//! running it, evaluates the constant parts of most of them. The code has all rights of the session's user: it can undo
//! `SET ROLE`, and the server's restricted context (CVE-2020-25695) is not available to clients.
//!
//! So a table is used only if all of this code is harmless, whatever arguments the owner chose:
//!
//! * Every node of an expression is of a kind in [`NODES`]. Subqueries, XML and SQL/JSON expressions, `nextval` of identity
//!   columns, coercions to domains and conversions of rows are not.
//! * Every function is written in C or internal, or one of the server's own in SQL whose body initdb parsed, such as
//!   `round(numeric)`; its owner is a superuser, and the table's owner may execute it.
//! * A function that an expression calls is immutable, or one of the server's own about dates and times, which depend on
//!   the clock and the time zone ([`Function::is_about_time`]), or, in a policy, `current_setting`: the outcome of a check is
//!   seen by who owns the table, and would tell what only superusers may read. What superusers own is not harmless for that
//!   reason alone: `dblink_exec` and `nextval` are volatile, `table_to_xml` is stable.
//! * Its arguments and its result are of base types that superusers own, or arrays or ranges of these. Polymorphic functions
//!   call functions of the type that they are given; the server's own are harmless for built-in base types, enums, and
//!   arrays and built-in ranges of these, whose functions are the server's. Those of operator classes, such as btree_gin's, are
//!   harmless for all base types that superusers own. `"any"` is allowed only for functions
//!   that look at no value ([`BLIND`]): `satisfies_hash_partition` evaluates constants in the partition key of any table.
//!
//! Only superusers can make operator classes, and the server passes their functions nothing but values of the column, so that
//! their volatility does not matter. Operators are judged by their functions and by who owns them: the planner replaces
//! `NOT (a op b)` by the operator's negator, which its owner chooses at any time, whatever lock is held. Casts are judged by
//! their functions or as nodes. Collations call no functions. A foreign key compares the old and the new value of each column
//! by an operator to whose type the column's may have to be cast; who owns the column's type can choose that cast at any time.
//!
//! Defaults are left out, because no statement of ours evaluates one: there is no INSERT, and an UPDATE names each column
//! that it sets. The checks of domains and the functions of range types run only where a value is coerced or constructed:
//! that is, in expressions, and for the columns that [`Object::coerced`] names. The owner of a domain can add a check at any
//! time, whatever lock is held, so that it is the domain's owner who counts there. NOT NULL calls no function.

use std::collections::HashMap;
use std::fmt::Write;

/// Something of a table that can run code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Object {
    /// As messages name it, such as `index i`.
    pub(crate) name: String,
    /// Its expressions, as `pg_node_tree` is printed.
    pub(crate) expressions: Vec<String>,
    /// The types of the columns whose values the functions of `classes` receive.
    pub(crate) key_types: Vec<u32>,
    /// The functions of its operator classes, and of operators that belong to operator classes.
    pub(crate) classes: Vec<u32>,
    /// Functions that are called by themselves, such as those of triggers.
    pub(crate) called: Vec<u32>,
    /// Domains to which values are coerced.
    pub(crate) coerced: Vec<u32>,
    /// Types whose values are cast to those of an operator.
    pub(crate) cast: Vec<u32>,
    /// Whether it is a policy, which decides which rows a user sees.
    pub(crate) is_policy: bool,
}

/// What the catalog says about functions, operators and types.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    pub(crate) functions: HashMap<u32, Function>,
    pub(crate) operators: HashMap<u32, CalledOperator>,
    pub(crate) types: HashMap<u32, DataType>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    /// With its argument types.
    pub(crate) name: String,
    pub(crate) owner: Owner,
    pub(crate) language: Language,
    pub(crate) volatility: Volatility,
    /// Whether the table's owner may execute it.
    pub(crate) executable: bool,
    /// Whether initdb created it.
    pub(crate) built_in: bool,
    /// The types of its arguments and of its result.
    pub(crate) types: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CalledOperator {
    /// With its argument types.
    pub(crate) name: String,
    pub(crate) owner: Owner,
    pub(crate) function: u32,
}

/// A role that owns a function, an operator or a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) name: String,
    pub(crate) is_superuser: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Internal,
    /// SQL, of initdb, with a body that is stored parsed: it calls the server's functions.
    ServerSql,
    C,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Volatility {
    Immutable,
    Stable,
    Volatile,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataType {
    pub(crate) name: String,
    pub(crate) owner: Owner,
    /// Whether initdb created it.
    pub(crate) built_in: bool,
    pub(crate) kind: TypeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypeKind {
    Base,
    /// Of elements of this type.
    Array(u32),
    Enum,
    /// A range type over the subtype with this OID.
    Range(u32),
    /// Of this range type.
    Multirange(u32),
    /// A domain over the type with this OID.
    Domain(u32),
    AnyEnum,
    /// `anyelement` and its other relatives, apart from `"any"`.
    Polymorphic,
    /// `internal` and `void`, of which no expression has a value.
    Internal,
    /// Composite types, `"any"` and the other pseudo-types.
    Other,
}

/// Whose functions handle the values of a type, from the most to the least trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HandledBy {
    Server,
    Superusers,
    Users,
}

/// How an object uses a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Expression,
    Policy,
    OperatorClass,
}

/// The kinds of nodes that run no code but the functions and operators named in them. Before PostgreSQL 15, some have
/// shorter names (`ARRAY`, `CASE`, `COALESCE`, `COLLATE`, `MINMAX`, `ROWCOMPARE`, `WHEN`). Rows are compared by operators and
/// the functions of their families, which only superusers can make.
const NODES: [&str; 36] = [
    "ARRAY",
    "ARRAYCOERCEEXPR",
    "ARRAYEXPR",
    "BOOLEANTEST",
    "BOOLEXPR",
    "CASE",
    "CASEEXPR",
    "CASETESTEXPR",
    "CASEWHEN",
    "COALESCE",
    "COALESCEEXPR",
    "COERCETODOMAINVALUE",
    "COERCEVIAIO",
    "COLLATE",
    "COLLATEEXPR",
    "CONST",
    "DISTINCTEXPR",
    "FUNCEXPR",
    "JSONFORMAT",
    "JSONISPREDICATE",
    "MINMAX",
    "MINMAXEXPR",
    "NAMEDARGEXPR",
    "NULLIFEXPR",
    "NULLTEST",
    "OPEXPR",
    "RELABELTYPE",
    "ROW",
    "ROWCOMPARE",
    "ROWCOMPAREEXPR",
    "ROWEXPR",
    "SCALARARRAYOPEXPR",
    "SQLVALUEFUNCTION",
    "SUBSCRIPTINGREF",
    "VAR",
    "WHEN",
];

const FUNCTION_FIELDS: [&str; 4] = ["funcid", "opfuncid", "hashfuncid", "negfuncid"];
const TYPE_FIELDS: [&str; 17] = [
    "vartype",
    "consttype",
    "funcresulttype",
    "opresulttype",
    "resulttype",
    "casetype",
    "coalescetype",
    "minmaxtype",
    "typeId",
    "type",
    "array_typeid",
    "element_typeid",
    "refcontainertype",
    "refelemtype",
    "refrestype",
    "refassgntype",
    "row_typeid",
];

/// `record`, the type of a row without a name: those of its columns stand in its nodes.
const RECORD: u32 = 2249;

/// `current_setting(text)` and `current_setting(text, bool)`, as policies of tenants call them. They are stable because
/// settings change, and run no code, but return those that only superusers may read, too.
const SETTINGS: [u32; 2] = [2077, 3294];

/// `num_nulls`, `num_nonnulls` and `pg_column_size`, which take values of any type and look at none.
const BLIND: [u32; 3] = [438, 440, 1269];

/// How deep types may be nested; catalogs are not trusted to have no cycles.
const MOST_LEVELS: usize = 32;

/// `date`, `time`, `timestamp`, `timestamptz`, `interval` and `timetz`.
const TIMES: [u32; 6] = [1082, 1083, 1114, 1184, 1186, 1266];
/// `bool`, `int4`, `text`, `float8` and `numeric`.
const PLAIN: [u32; 5] = [16, 23, 25, 701, 1700];

/// What an expression consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Expression {
    /// The kinds of nodes that [`NODES`] lacks.
    unknown_nodes: Vec<String>,
    pub(crate) functions: Vec<u32>,
    pub(crate) operators: Vec<u32>,
    pub(crate) types: Vec<u32>,
}

impl Expression {
    /// Reads a printed node tree. The server escapes braces and spaces inside names (`outToken`), and prints constants as
    /// numbers, so that each brace begins a node and each colon a field.
    pub(crate) fn parse(tree: &str) -> Expression {
        let mut found = Expression::default();
        let mut field = "";
        for word in tree.split([' ', '(', ')', '}']) {
            if let Some(node) = word.strip_prefix('{') {
                if !NODES.contains(&node) {
                    found.unknown_nodes.push(node.to_owned());
                }
                field = "";
            } else if let Some(name) = word.strip_prefix(':') {
                field = name;
            } else if let Some(oid) = word.parse().ok().filter(|&oid: &u32| oid != 0) {
                if field == "opnos" {
                    // a list
                    found.operators.push(oid);
                    continue;
                }
                if FUNCTION_FIELDS.contains(&field) {
                    found.functions.push(oid);
                } else if field == "opno" {
                    found.operators.push(oid);
                } else if TYPE_FIELDS.contains(&field) && (field != "row_typeid" || oid != RECORD) {
                    found.types.push(oid);
                }
                field = "";
            }
        }
        found
    }
}

impl Function {
    /// Whether it is one of the server's functions about dates and times: clocks, conversions, comparisons and `to_char`.
    /// They read the clock, the time zone and the locale, and nothing else; those whose names begin with `pg_` tell of the
    /// server and its sessions.
    fn is_about_time(&self) -> bool {
        self.built_in
            && !self.name.starts_with("pg_")
            && matches!(self.language, Language::Internal | Language::ServerSql)
            && self.types.iter().any(|of_type| TIMES.contains(of_type))
            && self.types.iter().all(|of_type| TIMES.contains(of_type) || PLAIN.contains(of_type))
    }
}

impl Catalog {
    /// What makes the code of these objects not harmless, one text for each function, type or node; empty if all of it is
    /// harmless.
    pub(crate) fn refusals(&self, objects: &[Object]) -> Vec<String> {
        let mut found = Vec::new();
        for object in objects {
            self.judge(object, &mut found);
        }
        found.sort();
        found.dedup();
        found
    }

    fn judge(&self, object: &Object, found: &mut Vec<String>) {
        let place = &object.name;
        let mut types = object.key_types.clone();
        let mut called = object.called.clone();
        for tree in &object.expressions {
            let expression = Expression::parse(tree);
            for node in expression.unknown_nodes {
                found.push(match node.as_str() {
                    "SUBLINK" => format!("a subquery, in {place}"),
                    "COERCETODOMAIN" => format!("a coercion to a domain, in {place}"),
                    _ => format!("a node {node}, in {place}"),
                });
            }
            for of_type in &expression.types {
                if self.handled_by(*of_type) == HandledBy::Users {
                    found.push(format!("{}, used in {place}", self.type_name(*of_type)));
                }
            }
            for operator in &expression.operators {
                let operator = self.operators.get(operator);
                called.push(operator.map_or(0, |operator| operator.function));
                if let Some(CalledOperator { name, owner, .. }) = operator
                    && !owner.is_superuser
                {
                    found.push(format!("operator {name} of \"{}\", used in {place}", owner.name));
                }
            }
            called.extend(expression.functions);
            types.extend(expression.types);
        }
        let used = if object.is_policy { Use::Policy } else { Use::Expression };
        let values = types.iter().map(|of_type| self.handled_by(*of_type)).max();
        let values = values.unwrap_or(HandledBy::Users);
        for function in called {
            self.judge_function(function, used, values, place, found);
        }
        for function in &object.classes {
            self.judge_function(*function, Use::OperatorClass, values, place, found);
        }
        for domain in &object.coerced {
            if !self.types.get(domain).is_some_and(|of_type| of_type.owner.is_superuser) {
                found.push(format!("{}, checked for {place}", self.type_name(*domain)));
            }
        }
        for of_type in &object.cast {
            let base = self.base_type(*of_type);
            if !self.types.get(&base).is_some_and(|of_type| of_type.owner.is_superuser) {
                found.push(format!("a cast of {}, in {place}", self.type_name(base)));
            }
        }
    }

    fn judge_function(
        &self,
        oid: u32,
        used: Use,
        values: HandledBy,
        place: &str,
        found: &mut Vec<String>,
    ) {
        let Some(function) = self.functions.get(&oid) else {
            found.push(format!("a function that does not exist ({oid}), called by {place}"));
            return;
        };
        let Function { name, owner, .. } = function;
        if !owner.is_superuser {
            found.push(format!("{name} of \"{}\", called by {place}", owner.name));
        } else if let Some(why) = self.why_not(oid, function, used, values) {
            found.push(format!("{name}, called by {place}: {why}"));
        }
    }

    /// Why a superuser's function may do harm.
    fn why_not(
        &self,
        oid: u32,
        function: &Function,
        used: Use,
        values: HandledBy,
    ) -> Option<String> {
        if function.language == Language::Other {
            return Some("its language is neither C nor internal".into());
        }
        if !function.executable {
            return Some("the table's owner may not execute it".into());
        }
        if BLIND.contains(&oid) {
            return None;
        }
        if used != Use::OperatorClass
            && function.volatility != Volatility::Immutable
            && !function.is_about_time()
            && !(used == Use::Policy && SETTINGS.contains(&oid))
        {
            return Some("it is not immutable".into());
        }
        let of_server = function.built_in && function.language == Language::Internal;
        let of_class = used == Use::OperatorClass;
        for of_type in &function.types {
            let kind = self.types.get(of_type).map_or(TypeKind::Other, |of_type| of_type.kind);
            let is_harmless = match kind {
                TypeKind::Internal => of_class,
                TypeKind::AnyEnum => of_server || of_class,
                TypeKind::Polymorphic if of_class => values != HandledBy::Users,
                TypeKind::Polymorphic => of_server && values == HandledBy::Server,
                TypeKind::Domain(_) | TypeKind::Enum => false,
                _ => self.handled_by(*of_type) != HandledBy::Users,
            };
            if !is_harmless {
                return Some(match kind {
                    TypeKind::Polymorphic => {
                        "it may call any function of its argument's type".into()
                    }
                    _ => format!("it uses {}", self.type_name(*of_type)),
                });
            }
        }
        None
    }

    /// Whose functions handle values of a type. A value of a domain is handled as one of its base type, except inside of
    /// others, where input functions check it.
    fn handled_by(&self, oid: u32) -> HandledBy {
        self.element_handled_by(self.base_type(oid), MOST_LEVELS)
    }

    /// The innermost base type of a domain; other types are their own.
    fn base_type(&self, oid: u32) -> u32 {
        let mut of_type = oid;
        for _ in 0..MOST_LEVELS {
            match self.types.get(&of_type).map(|of_type| of_type.kind) {
                Some(TypeKind::Domain(base)) => of_type = base,
                _ => break,
            }
        }
        of_type
    }

    fn element_handled_by(&self, oid: u32, levels: usize) -> HandledBy {
        let of_type = if levels > 0 { self.types.get(&oid) } else { None };
        let Some(of_type) = of_type else { return HandledBy::Users };
        let own = if !of_type.owner.is_superuser {
            HandledBy::Users
        } else if of_type.built_in {
            HandledBy::Server
        } else {
            HandledBy::Superusers
        };
        match of_type.kind {
            TypeKind::Base => own,
            // All functions for enums are the server's, whoever owns the type; casts are functions of their own.
            TypeKind::Enum => HandledBy::Server,
            TypeKind::Array(element) => self.element_handled_by(element, levels - 1),
            TypeKind::Range(part) | TypeKind::Multirange(part) => {
                own.max(self.element_handled_by(part, levels - 1))
            }
            TypeKind::Domain(_)
            | TypeKind::AnyEnum
            | TypeKind::Polymorphic
            | TypeKind::Internal
            | TypeKind::Other => HandledBy::Users,
        }
    }

    fn type_name(&self, oid: u32) -> String {
        let Some(of_type) = self.types.get(&oid) else { return format!("type {oid}") };
        let what = if matches!(of_type.kind, TypeKind::Domain(_)) { "domain" } else { "type" };
        let mut text = format!("{what} {}", of_type.name);
        if !of_type.owner.is_superuser {
            // Writing to a string cannot fail.
            let _ = write!(text, " of \"{}\"", of_type.owner.name);
        }
        text
    }
}

#[cfg(test)]
mod tests;
