use super::*;

const BOOL: u32 = 16;
const INT: u32 = 23;
const TEXT: u32 = 25;
const TEXT_ARRAY: u32 = 1009;
const TIMESTAMPTZ: u32 = 1184;
const INT_RANGE: u32 = 3904;
const INTERNAL: u32 = 2281;
const ANY: u32 = 2276;
const ANY_ARRAY: u32 = 2277;
const ANY_ENUM: u32 = 3500;
const CSTRING: u32 = 2275;
/// Types that were created later.
const GEOMETRY: u32 = 20_000;
const GEOMETRIES: u32 = 20_001;
const MOOD: u32 = 20_002;
const MOODS: u32 = 20_003;
const EMAIL: u32 = 20_004;
const EMAILS: u32 = 20_005;
const ADDRESS: u32 = 20_006;
const SPAN: u32 = 20_007;
const SPANS: u32 = 20_008;
const GIVEN_AWAY: u32 = 20_009;
const OF_SUPERUSER: u32 = 20_010;

fn superuser() -> Owner {
    Owner { name: "postgres".into(), is_superuser: true }
}

fn mallory() -> Owner {
    Owner { name: "mallory".into(), is_superuser: false }
}

fn types() -> HashMap<u32, DataType> {
    let of_server = [
        (BOOL, TypeKind::Base),
        (INT, TypeKind::Base),
        (TEXT, TypeKind::Base),
        (TEXT_ARRAY, TypeKind::Array(TEXT)),
        (TIMESTAMPTZ, TypeKind::Base),
        (INT_RANGE, TypeKind::Range(INT)),
        (INTERNAL, TypeKind::Internal),
        (ANY, TypeKind::Other),
        (ANY_ARRAY, TypeKind::Polymorphic),
        (ANY_ENUM, TypeKind::AnyEnum),
        (CSTRING, TypeKind::Other),
    ];
    let later = [
        (GEOMETRY, superuser(), TypeKind::Base),
        (GEOMETRIES, superuser(), TypeKind::Array(GEOMETRY)),
        (MOOD, mallory(), TypeKind::Enum),
        (MOODS, mallory(), TypeKind::Array(MOOD)),
        (EMAIL, mallory(), TypeKind::Domain(TEXT)),
        (EMAILS, mallory(), TypeKind::Array(EMAIL)),
        (ADDRESS, mallory(), TypeKind::Other),
        (SPAN, mallory(), TypeKind::Range(INT)),
        (SPANS, mallory(), TypeKind::Multirange(SPAN)),
        (GIVEN_AWAY, mallory(), TypeKind::Base),
        (OF_SUPERUSER, superuser(), TypeKind::Domain(TEXT)),
    ];
    let data_type = |oid: u32, owner, kind| {
        (oid, DataType { name: format!("t{oid}"), owner, built_in: oid < 16_384, kind })
    };
    let of_server = of_server.into_iter().map(|(oid, kind)| data_type(oid, superuser(), kind));
    of_server
        .chain(later.into_iter().map(|(oid, owner, kind)| data_type(oid, owner, kind)))
        .collect()
}

fn lower() -> Function {
    Function {
        name: "lower(text)".into(),
        owner: superuser(),
        language: Language::Internal,
        volatility: Volatility::Immutable,
        executable: true,
        built_in: true,
        types: vec![TEXT, TEXT],
    }
}

fn of_types(types: &[u32]) -> Function {
    Function { types: types.to_vec(), ..lower() }
}

/// Functions of each kind: what it is, and whether an expression and an operator class may use it, for a table whose values
/// are the server's own.
fn kinds() -> Vec<(&'static str, Function, bool, bool)> {
    let stable = |types: &[u32]| Function { volatility: Volatility::Stable, ..of_types(types) };
    let of_extension =
        |types: &[u32]| Function { language: Language::C, built_in: false, ..of_types(types) };
    let volatile = |types: &[u32]| Function { volatility: Volatility::Volatile, ..of_types(types) };
    let of_server = |function| Function { language: Language::ServerSql, ..function };
    vec![
        ("immutable, internal", lower(), true, true),
        ("immutable, C", of_extension(&[GEOMETRY, BOOL]), true, true),
        ("of arrays and ranges", of_types(&[TEXT_ARRAY, INT_RANGE, BOOL]), true, true),
        ("now()", stable(&[TIMESTAMPTZ]), true, true),
        ("date_trunc", stable(&[TEXT, TIMESTAMPTZ, TIMESTAMPTZ]), true, true),
        (
            "pg_stat_get_backend_start",
            Function {
                name: "pg_stat_get_backend_start(integer)".into(),
                ..stable(&[INT, TIMESTAMPTZ])
            },
            false,
            true,
        ),
        ("table_to_xml", stable(&[2205, BOOL, TEXT, 142]), false, false),
        ("pg_input_is_valid", stable(&[TEXT, TEXT, BOOL]), false, true),
        (
            "now() of an extension",
            Function { built_in: false, ..stable(&[TIMESTAMPTZ]) },
            false,
            true,
        ),
        ("nextval", volatile(&[TEXT]), false, true),
        (
            "dblink_exec",
            Function { volatility: Volatility::Volatile, ..of_extension(&[TEXT, TEXT]) },
            false,
            true,
        ),
        ("clock_timestamp", volatile(&[TIMESTAMPTZ]), true, true),
        ("random", volatile(&[701]), false, false),
        ("round(numeric)", of_server(lower()), true, true),
        ("age(timestamptz)", of_server(stable(&[TIMESTAMPTZ, TIMESTAMPTZ])), true, true),
        ("obj_description", of_server(stable(&[INT, TEXT])), false, true),
        ("of any type, in SQL", of_server(of_types(&[ANY_ARRAY, BOOL])), false, true),
        ("a SQL function", Function { language: Language::Other, ..lower() }, false, false),
        ("of the table's owner", Function { owner: mallory(), ..lower() }, false, false),
        ("revoked from the owner", Function { executable: false, ..lower() }, false, false),
        ("of arrays of any type", of_types(&[ANY_ARRAY, BOOL]), true, true),
        ("of any enum", of_types(&[ANY_ENUM, BOOL]), true, true),
        ("of any type whatsoever", of_types(&[ANY, BOOL]), false, false),
        ("of any array, of an extension", of_extension(&[ANY_ARRAY, BOOL]), false, true),
        ("of any enum, of an extension", of_extension(&[ANY_ENUM, BOOL]), false, true),
        ("support function", of_types(&[INTERNAL, INT]), false, true),
        ("input function", of_types(&[CSTRING, TEXT]), false, false),
        ("of an enum", of_extension(&[MOOD, TEXT]), false, false),
        ("of a domain", of_extension(&[EMAIL, TEXT]), false, false),
        ("of a composite type", of_extension(&[ADDRESS, TEXT]), false, false),
        ("of a range of a user's", of_extension(&[SPAN, TEXT]), false, false),
        ("of a multirange of a user's", of_extension(&[SPANS, TEXT]), false, false),
        ("of a type that was given away", of_extension(&[GIVEN_AWAY, TEXT]), false, false),
        ("with a type that is not known", of_types(&[99_999, TEXT]), false, false),
    ]
}

fn catalog(function: Function) -> Catalog {
    Catalog {
        functions: HashMap::from([(1, function)]),
        operators: HashMap::from([(2, of_superuser(1))]),
        types: types(),
    }
}

fn of_superuser(function: u32) -> CalledOperator {
    CalledOperator { name: "=(text,text)".into(), owner: superuser(), function }
}

fn with_tree(name: &str, tree: &str) -> Object {
    Object { name: name.into(), expressions: vec![tree.into()], ..Object::default() }
}

const VAR: &str = "{VAR :varno 1 :varattno 2 :vartype 25 :vartypmod -1 :location 7}";

fn call() -> String {
    format!("{{FUNCEXPR :funcid 1 :funcresulttype 25 :funcretset false :args ({VAR}) :location 1}}")
}

fn operator() -> String {
    format!("{{OPEXPR :opno 2 :opfuncid 0 :opresulttype 16 :args ({VAR} {VAR}) :location 1}}")
}

/// Every object that holds an expression, with every way in which an expression can call a function.
fn expressions() -> Vec<Object> {
    let mut objects = Vec::new();
    for name in [
        "index i",
        "constraint c",
        "generated column g",
        "statistics s",
        "partition key of t",
        "policy p",
        "trigger g",
        "domain d",
    ] {
        let trees = [
            call(),
            operator(),
            format!("{{BOOLEXPR :boolop not :args ({})}}", call()),
            operator().replace("OPEXPR", "DISTINCTEXPR"),
            operator().replace("OPEXPR", "NULLIFEXPR"),
            format!(
                "{{SCALARARRAYOPEXPR :opno 98 :opfuncid 98 :hashfuncid 1 :negfuncid 0 :args ({VAR})}}"
            ),
            format!("{{ARRAYCOERCEEXPR :arg {VAR} :elemexpr {} :resulttype 1009}}", call()),
            format!(
                "{{CASEEXPR :casetype 25 :args ({{CASEWHEN :expr {} :result {VAR}}})}}",
                call()
            ),
        ];
        objects.extend(trees.map(|tree| with_tree(name, &tree)));
    }
    objects.push(Object { called: vec![1], key_types: vec![TEXT], ..with_tree("trigger h", VAR) });
    objects
}

#[test]
fn every_object_times_every_kind_of_function() {
    for (kind, function, in_expressions, in_classes) in kinds() {
        let mut catalog = catalog(function);
        catalog.functions.insert(98, lower());
        catalog.operators.insert(98, of_superuser(98));
        for object in expressions() {
            let found = catalog.refusals(std::slice::from_ref(&object));
            assert_eq!(found.is_empty(), in_expressions, "{kind}: {object:?}: {found:?}");
        }
        for name in ["index i", "constraint fk", "partition key of t"] {
            let object = Object {
                name: name.into(),
                classes: vec![1],
                key_types: vec![TEXT],
                ..Object::default()
            };
            let found = catalog.refusals(&[object]);
            assert_eq!(found.is_empty(), in_classes, "{kind}: {name}: {found:?}");
        }
    }
}

#[test]
fn polymorphic_functions_call_only_those_of_the_server_and_of_superusers() {
    for (of_type, in_classes, in_expressions) in [
        (TEXT_ARRAY, true, true),
        (INT_RANGE, true, true),
        (MOOD, true, true),
        (MOODS, true, true),
        (EMAIL, true, true),
        (GEOMETRY, true, false),
        (GEOMETRIES, true, false),
        (EMAILS, false, false),
        (ADDRESS, false, false),
        (SPAN, false, false),
        (SPANS, false, false),
        (GIVEN_AWAY, false, false),
        (99_999, false, false),
    ] {
        let catalog = catalog(of_types(&[ANY_ARRAY, INT]));
        let object = Object {
            name: "index i".into(),
            key_types: vec![of_type],
            classes: vec![1],
            ..Object::default()
        };
        assert_eq!(catalog.refusals(&[object]).is_empty(), in_classes, "{of_type}");
        let tree = call().replace("vartype 25", &format!("vartype {of_type}"));
        let found = catalog.refusals(&[with_tree("index i", &tree)]);
        assert_eq!(found.is_empty(), in_expressions, "{of_type}");
    }
}

#[test]
fn types_in_expressions_are_those_whose_functions_are_trusted() {
    for (of_type, is_harmless) in [
        (TEXT, true),
        (GEOMETRY, true),
        (GEOMETRIES, true),
        (MOOD, true),
        (EMAIL, true),
        (EMAILS, false),
        (ADDRESS, false),
        (SPAN, false),
        (GIVEN_AWAY, false),
        (ANY_ARRAY, false),
    ] {
        for tree in [
            VAR.replace("25", &of_type.to_string()),
            format!("{{COERCEVIAIO :arg {VAR} :resulttype {of_type} :resultcollid 0}}"),
            format!("{{MINMAXEXPR :minmaxtype {of_type} :args ({VAR})}}"),
            format!("{{ROWEXPR :args ({VAR}) :row_typeid {of_type} :row_format 2}}"),
            format!("{{ARRAYEXPR :array_typeid {of_type} :element_typeid 25 :elements ({VAR})}}"),
        ] {
            let found = catalog(lower()).refusals(&[with_tree("constraint c", &tree)]);
            assert_eq!(found.is_empty(), is_harmless, "{tree}: {found:?}");
        }
    }
}

#[test]
fn nodes_that_are_not_known_to_be_harmless_are_refused() {
    for node in [
        "SUBLINK",
        "QUERY",
        "PARAM",
        "AGGREF",
        "WINDOWFUNC",
        "NEXTVALUEEXPR",
        "XMLEXPR",
        "JSONEXPR",
        "JSONCONSTRUCTOREXPR",
        "JSONVALUEEXPR",
        "COERCETODOMAIN",
        "CONVERTROWTYPEEXPR",
        "FIELDSELECT",
        "FIELDSTORE",
        "SETTODEFAULT",
        "CURRENTOFEXPR",
        "SOMETHINGNEW",
    ] {
        let found = catalog(lower())
            .refusals(&[with_tree("policy p", &format!("{{{node} :arg {VAR} :location 3}}"))]);
        assert_eq!(found.len(), 1, "{node}: {found:?}");
    }
    for node in NODES {
        let tree = format!("{{{node} :arg {VAR} :location 3}}");
        assert_eq!(catalog(lower()).refusals(&[with_tree("policy p", &tree)]), [""; 0], "{node}");
    }
}

#[test]
fn a_row_without_a_name_is_of_the_types_of_its_columns() {
    for (of_type, is_harmless) in [(TEXT, true), (ADDRESS, false), (GIVEN_AWAY, false)] {
        let column = VAR.replace("25", &of_type.to_string());
        let row = format!("{{ROWEXPR :args ({column}) :row_typeid 2249 :row_format 2}}");
        let tree = format!("{{NULLTEST :arg {row} :nulltesttype 1 :argisrow true}}");
        let found = catalog(lower()).refusals(&[with_tree("constraint c", &tree)]);
        assert_eq!(found.is_empty(), is_harmless, "{found:?}");
    }
}

#[test]
fn a_domain_to_which_values_are_coerced_is_a_superusers() {
    for (domain, is_harmless) in [(OF_SUPERUSER, true), (EMAIL, false), (99_999, false)] {
        let object = Object { name: "column c".into(), coerced: vec![domain], ..Object::default() };
        assert_eq!(catalog(lower()).refusals(&[object]).is_empty(), is_harmless, "{domain}");
    }
}

#[test]
fn a_refusal_names_the_object_and_the_function() {
    let refused = |function: Function| {
        catalog(function).refusals(&[with_tree("index i", &call())]).join("; ")
    };
    let evil = Function { name: "public.evil(text)".into(), owner: mallory(), ..lower() };
    assert_eq!(refused(evil), "public.evil(text) of \"mallory\", called by index i");
    let volatile =
        Function { name: "nextval(regclass)".into(), volatility: Volatility::Volatile, ..lower() };
    assert_eq!(refused(volatile), "nextval(regclass), called by index i: it is not immutable");
    let subquery = with_tree("policy p", "{SUBLINK :subLinkType 4}");
    assert_eq!(catalog(lower()).refusals(&[subquery]), ["a subquery, in policy p"]);
    let other = with_tree("constraint c", &call().replace("funcid 1", "funcid 77"));
    assert_eq!(
        catalog(lower()).refusals(&[other]),
        ["a function that does not exist (77), called by constraint c"]
    );
}

#[test]
fn an_operator_whose_owner_may_choose_its_negator_is_refused() {
    let mut catalog = catalog(lower());
    let own =
        CalledOperator { name: "m.~~~(text,text)".into(), owner: mallory(), ..of_superuser(1) };
    catalog.operators.insert(2, own);
    let refused = ["operator m.~~~(text,text) of \"mallory\", used in constraint c"];
    for tree in [operator(), format!("{{BOOLEXPR :boolop not :args ({})}}", operator())] {
        assert_eq!(catalog.refusals(&[with_tree("constraint c", &tree)]), refused);
    }
}

#[test]
fn only_policies_may_read_settings() {
    let setting = Function { volatility: Volatility::Stable, ..of_types(&[TEXT, BOOL, TEXT]) };
    for (oid, is_harmless) in [(3294, true), (3295, false)] {
        let mut catalog = catalog(lower());
        catalog.functions.insert(oid, setting.clone());
        let check = with_tree("check c", &call().replace("funcid 1", &format!("funcid {oid}")));
        let policy = Object { is_policy: true, ..check.clone() };
        assert_eq!(catalog.refusals(&[policy]).is_empty(), is_harmless, "{oid}");
        assert!(!catalog.refusals(&[check]).is_empty(), "{oid}");
    }
}

#[test]
fn a_type_whose_values_are_cast_is_a_superusers() {
    for (of_type, is_harmless) in [
        (INT, true),
        (GEOMETRY, true),
        (EMAIL, true),
        (MOOD, false),
        (MOODS, false),
        (SPAN, false),
        (99_999, false),
    ] {
        let object =
            Object { name: "constraint c".into(), cast: vec![of_type], ..Object::default() };
        assert_eq!(catalog(lower()).refusals(&[object]).is_empty(), is_harmless, "{of_type}");
    }
}

#[test]
fn text_in_a_tree_hides_nothing() {
    let tree = format!(
        "{{NAMEDARGEXPR :name a\\{{VAR\\ :funcid\\ 0 :arg {} :argnumber 0 :location 1}}",
        call()
    );
    let parsed = Expression::parse(&tree);
    assert_eq!((parsed.functions, parsed.types), (vec![1], vec![25, 25]));
    let constant = "{CONST :consttype 25 :constlen -1 :constvalue 9 [ 36 0 0 0 1 2 3 4 5 ]}";
    assert_eq!(Expression::parse(constant).types, [25]);
}

#[test]
fn a_catalog_with_cycles_is_refused() {
    let mut catalog = catalog(lower());
    for (oid, kind) in [(30_000, TypeKind::Domain(30_000)), (30_001, TypeKind::Array(30_001))] {
        let cyclic = DataType { name: "x".into(), owner: superuser(), built_in: false, kind };
        catalog.types.insert(oid, cyclic);
        let tree = VAR.replace("25", &oid.to_string());
        assert_eq!(catalog.refusals(&[with_tree("index i", &tree)]).len(), 1);
    }
}
