//! Tests of the interpretation of the functions' results.

use super::*;
use toast_format::disk::Align;
use toast_format::disk::desc::MissingValue;

const TEXT: u32 = 25;
const JSONB: u32 = 3802;
const TSQUERY: u32 = 3615;

fn attribute(type_oid: u32, storage: Storage) -> Attribute {
    Attribute {
        name: "a\"b".into(),
        type_name: String::new(),
        type_oid: Oid(type_oid),
        length: if type_oid == 23 { Length::Fixed(4) } else { Length::Varlena },
        align: Align::Int,
        storage,
        compression: None,
        dropped: false,
        is_virtual: false,
        only_plain: false,
        missing: None,
    }
}

fn probe(attribute: &Attribute, major: u32) -> Probe<'_> {
    let bytes_like = types::is_bytes_like(attribute.type_oid);
    Probe {
        table: r#""s"."T""#.into(),
        columns: vec![None, Some(AskedColumn { attribute, bytes_like })],
        page: PageSize::DEFAULT,
        toast_relation: Some(Oid(1)),
        has_chunk_id: major >= 17,
        is_heap: true,
    }
}

/// A stored value, as pages show it.
#[derive(Debug, Clone, Copy)]
struct Case(u32, Form, Option<Method>, u64, u64);

impl Case {
    /// The results of the functions on a server of this version.
    fn answer(self, major: u32) -> Answer {
        let Case(type_oid, form, method, raw, stored) = self;
        Answer {
            stored: (form != Form::Null).then_some(stored),
            method,
            raw: (form != Form::Null && type_oid == TEXT).then_some(raw),
            external: (form != Form::Null && major >= 17 && type_oid != 23)
                .then_some(form.is_external()),
        }
    }
}

const P: Option<Method> = Some(Method::Pglz);

/// Stored values, and the form reported before PostgreSQL 17 and from 17.
const CASES: [(Case, Form, Form); 22] = {
    use Form::{
        Compressed as C, External as E, ExternalCompressed as EC, Null, Plain, Short, Unknown as U,
    };
    [
        (Case(TEXT, Null, None, 0, 0), Null, Null),
        (Case(23, Plain, None, 4, 4), Plain, Plain),
        (Case(TEXT, Short, None, 10, 11), Short, Short),
        (Case(TEXT, Short, None, 126, 127), Short, Short),
        // Values of a column that was set to plain, or of one added later than the row.
        (Case(TEXT, Plain, None, 10, 14), Plain, Plain),
        (Case(TEXT, Plain, None, 500, 504), Plain, Plain),
        (Case(TEXT, Plain, None, 8100, 8104), Plain, Plain),
        (Case(TEXT, E, None, 24, 24), E, E),
        (Case(TEXT, E, None, 5000, 5000), E, E),
        (Case(TEXT, E, None, 50_000, 50_000), E, E),
        (Case(TEXT, C, P, 200, 15), C, C),
        (Case(TEXT, C, P, 5000, 500), U, C),
        (Case(TEXT, EC, P, 5000, 500), U, EC),
        (Case(TEXT, EC, P, 50_000, 9000), EC, EC),
        (Case(JSONB, Short, None, 10, 11), U, U),
        (Case(JSONB, Plain, None, 500, 504), U, Plain),
        (Case(JSONB, C, P, 6000, 3000), U, C),
        (Case(JSONB, EC, P, 6000, 3000), U, EC),
        (Case(JSONB, E, None, 3000, 3000), U, E),
        (Case(JSONB, E, None, 8137, 8137), E, E),
        (Case(JSONB, EC, P, 50_000, 9000), EC, EC),
        (Case(TSQUERY, Plain, None, 12, 16), Plain, Plain),
    ]
};

#[test]
fn a_form_is_told_only_where_no_other_is_possible() {
    for (case, before_17, since_17) in CASES {
        let Case(type_oid, form, method, raw, stored) = case;
        let storage = if type_oid == TSQUERY { Storage::Plain } else { Storage::Extended };
        let attribute = attribute(type_oid, storage);
        for (major, expected) in [(16, before_17), (17, since_17)] {
            let read = probe(&attribute, major).interpret(1, case.answer(major));
            let value = read.value;
            assert_eq!(value.form, expected, "{case:?} on {major}");
            assert_eq!(value.method, method, "{case:?} on {major}");
            let is = if form.is_external() { Placement::OutOfLine } else { Placement::InRow };
            assert!([is, Placement::Unknown].contains(&read.placement), "{case:?} on {major}");
            assert!(value.raw_size.is_none_or(|size| size == raw), "{case:?} on {major}");
            assert!(value.stored_size.is_none_or(|size| size == stored), "{case:?}");
            assert_eq!(value.location.is_some(), value.form.is_external(), "{case:?}");
            // `likely` always returns a form, with the size of the content if there is any.
            let likely = read.likely(2032);
            assert_ne!(likely.form, Form::Unknown, "{case:?} on {major}");
            assert!(likely.raw_size.is_some() || form == Form::Null || method.is_some());
            if read.placement != Placement::Unknown {
                assert_eq!(likely.form.is_external(), form.is_external(), "{case:?}");
            }
        }
    }
    // Before PostgreSQL 17, the likeliest form is determined by the size.
    let jsonb = attribute(JSONB, Storage::Extended);
    let likely = |stored| {
        let answer = Answer { stored: Some(stored), method: P, raw: None, external: None };
        probe(&jsonb, 16).interpret(1, answer).likely(2032).form
    };
    assert_eq!([likely(2000), likely(3000)], [Form::Compressed, Form::ExternalCompressed]);
}

#[test]
fn a_value_that_may_be_the_columns_default_has_no_form() {
    for (type_oid, default) in [(TEXT, 5), (23, 4)] {
        let missing =
            MissingValue { raw_size: Some(1), stored_size: Some(default), text: None, sent: None };
        let column = Attribute { missing: Some(missing), ..attribute(type_oid, Storage::Extended) };
        let read = |stored: u64, raw| {
            let raw = (type_oid == TEXT).then_some(raw);
            let answer = Answer { stored: Some(stored), method: None, raw, external: None };
            probe(&column, 16).interpret(1, answer)
        };
        let same = read(u64::from(default), 1);
        assert_eq!((same.value.form, same.placement), (Form::Unknown, Placement::InRow));
        assert!(!same.likely(2032).form.is_external());
        if type_oid == TEXT {
            assert_eq!(read(2, 1).value.form, Form::Short);
        } else {
            // The value stays what it is: of fixed length.
            assert_eq!(
                (same.likely(2032).form, same.likely(2032).raw_size),
                (Form::Plain, Some(4))
            );
        }
    }
}

#[test]
fn columns_set_to_plain_may_hold_short_values() {
    let jsonb = attribute(JSONB, Storage::Plain);
    let answer = Answer { stored: Some(20), method: None, raw: None, external: Some(false) };
    let read = probe(&jsonb, 17).interpret(1, answer);
    assert_eq!((read.value.form, read.value.raw_size), (Form::Unknown, None));
}

#[test]
fn without_a_toast_relation_everything_is_in_the_row() {
    let text = attribute(TEXT, Storage::Main);
    let probe = Probe { toast_relation: None, ..probe(&text, 14) };
    let answer = Answer { stored: Some(500), method: P, raw: Some(5000), external: None };
    assert_eq!(probe.interpret(1, answer).value.form, Form::Compressed);
}

#[test]
fn of_another_access_method_only_what_it_returns_is_known() {
    let text = attribute(TEXT, Storage::Extended);
    let probe = Probe { is_heap: false, ..probe(&text, 17) };
    let answer =
        Answer { stored: Some(9604), method: None, raw: Some(9600), external: Some(false) };
    let FunctionAnswer { value, placement } = probe.interpret(1, answer);
    assert_eq!((value.form, value.raw_size, value.stored_size), (Form::Unknown, Some(9600), None));
    assert_eq!((value.pointer_size, placement), (0, Placement::Unknown));
    let null = Answer { stored: None, ..answer };
    assert_eq!(probe.interpret(1, null).value.form, Form::Null);
}

#[test]
fn the_statements_ask_what_the_version_has() {
    let jsonb = attribute(JSONB, Storage::Extended);
    let text = attribute(TEXT, Storage::Extended);
    insta::assert_snapshot!(probe(&text, 16).groups().unwrap(), @r##"SELECT v.i, v.stored, v.method, v.raw, v.external, pg_catalog.count(*) FROM ONLY "s"."T" AS t CROSS JOIN LATERAL (VALUES (1, pg_catalog.pg_column_size(t."a""b"), pg_catalog.pg_column_compression(t."a""b"), pg_catalog.octet_length(t."a""b"), NULL::pg_catalog.bool)) AS v (i, stored, method, raw, external) GROUP BY 1, 2, 3, 4, 5"##);
    insta::assert_snapshot!(probe(&jsonb, 17).rows(&[1], &(8..16)), @r##"SELECT t.ctid::pg_catalog.text, t.xmin::pg_catalog.text, ARRAY[pg_catalog.pg_column_size(t."a""b")]::pg_catalog.int4[], ARRAY[pg_catalog.pg_column_compression(t."a""b")]::pg_catalog.text[], ARRAY[NULL::pg_catalog.int4]::pg_catalog.int4[], ARRAY[pg_catalog.pg_column_toast_chunk_id(t."a""b") IS NOT NULL]::pg_catalog.bool[] FROM ONLY "s"."T" AS t WHERE t.ctid >= '(8,0)' AND t.ctid < '(16,0)'"##);
    let none = Probe { columns: vec![None], ..probe(&text, 18) };
    assert_eq!(none.groups(), None);
}
