//! Tests of plans, with made-up rows of the catalog.

use super::*;
use crate::codec::Method;
use crate::judge::tests::{self as samples, value};
use crate::judge::toaster::Toaster;
use crate::model::stored::CustomStored;
use crate::model::toaster::describe::PointerKind;

const BYTEA_TOASTER: Oid = Oid(147_811);
const JSONB_TOASTER: Oid = Oid(147_817);
const STRANGE: Oid = Oid(150_000);

fn toasters() -> Toasters {
    let row = |oid, name: &str, handler| PluggableToaster { oid, name: name.into(), handler };
    Toasters::new(vec![
        row(DEFAULT_TOASTER, "deftoaster", Handler::Default),
        row(BYTEA_TOASTER, "bytea_toaster", Handler::Bytea),
        row(Oid(147_814), "dummy_toaster", Handler::Dummy),
        row(JSONB_TOASTER, "jsonb_toaster", Handler::Jsonb),
        row(STRANGE, "My \"Toaster\"", Handler::Unknown),
    ])
}

/// A column of type `bytea` whose values are stored as by a stock server.
fn column(table: u32, name: &str) -> ToasterColumn {
    ToasterColumn {
        table: Oid(table),
        schema: "s".into(),
        relation: format!("t{table}"),
        relkind: 'r',
        temporary: false,
        index: 1,
        name: name.into(),
        type_name: "bytea".into(),
        base_type: BYTEA,
        storage: Storage::Extended,
        compression: None,
        toaster: DEFAULT_TOASTER,
        dropped: false,
    }
}

fn jsonb(table: u32, name: &str) -> ToasterColumn {
    ToasterColumn { type_name: "jsonb".into(), base_type: JSONB, index: 2, ..column(table, name) }
}

fn becomes_plan(name: &str, columns: &[ToasterColumn]) -> ToasterPlan {
    let columns: Vec<&ToasterColumn> = columns.iter().collect();
    plan(Some(&toasters()), &columns, &Goal::Pluggable(Pluggable::Becomes(name.into())))
        .unwrap()
        .unwrap()
}

fn leaves_goal(name: &str) -> Goal {
    Goal::Pluggable(Pluggable::Leaves(name.into()))
}

fn statement(plan: &ToasterPlan) -> String {
    plan.changes.statement(r#""s"."t""#).unwrap_or_default()
}

#[test]
fn a_toasters_conditions_are_met_in_the_statement_that_sets_it() {
    let lz4 = ToasterColumn { compression: Some(Method::Lz4), ..column(1, "a\"b") };
    let plan = becomes_plan("bytea_toaster", &[lz4]);
    insta::assert_snapshot!(statement(&plan), @r#"ALTER TABLE ONLY "s"."t" ALTER COLUMN "a""b" SET STORAGE external, ALTER COLUMN "a""b" SET COMPRESSION default, ALTER COLUMN "a""b" SET TOASTER "bytea_toaster""#);
    assert_eq!(plan.columns[0].rule, ToasterRule::Becomes(BYTEA_TOASTER));
    assert_eq!(plan.columns[0].storage, Storage::External);
    assert_eq!(plan.columns[0].forcing, Some(Shape::Bytea));

    let plain = ToasterColumn { storage: Storage::Plain, ..jsonb(1, "p") };
    let main = ToasterColumn { storage: Storage::Main, index: 3, ..jsonb(1, "m") };
    let plan = becomes_plan("jsonb_toaster", &[plain, main]);
    insta::assert_snapshot!(statement(&plan), @r#"ALTER TABLE ONLY "s"."t" ALTER COLUMN "p" SET STORAGE extended, ALTER COLUMN "p" SET TOASTER "jsonb_toaster", ALTER COLUMN "m" SET TOASTER "jsonb_toaster""#);
    assert_eq!(plan.columns[1].forcing, Some(Shape::Jsonb));

    let plan = becomes_plan("My \"Toaster\"", &[column(1, "a")]);
    insta::assert_snapshot!(statement(&plan), @r#"ALTER TABLE ONLY "s"."t" ALTER COLUMN "a" SET TOASTER "My ""Toaster""""#);
    assert!(
        plan.notes.iter().any(|note| note.contains("conditions of this toaster are not known"))
    );
}

#[test]
fn the_way_back_leaves_storage_and_method_as_they_are() {
    let ours =
        ToasterColumn { toaster: BYTEA_TOASTER, storage: Storage::External, ..column(1, "a") };
    let back = becomes_plan("deftoaster", &[ours.clone(), jsonb(1, "j")]);
    insta::assert_snapshot!(statement(&back), @r#"ALTER TABLE ONLY "s"."t" ALTER COLUMN "a" SET TOASTER "deftoaster""#);
    assert_eq!(
        (back.columns[0].rule, back.columns[1].rule),
        (ToasterRule::Stock, ToasterRule::Stock)
    );
    assert!(!back.stock);

    let stock = plan(Some(&toasters()), &[&ours], &Goal::Stock(Toaster::Compressed(Method::Lz4)))
        .unwrap()
        .unwrap();
    assert!(stock.stock && stock.toaster == "lz4");
    insta::assert_snapshot!(statement(&stock), @r#"ALTER TABLE ONLY "s"."t" ALTER COLUMN "a" SET TOASTER "deftoaster""#);

    let former = stock.taken_from(&toasters(), &[&ours]);
    assert_eq!(former.len(), 1);
    assert_eq!((former[0].0.as_str(), former[0].1.handler), ("a", Handler::Bytea));
    let of_jsonb = ToasterColumn { toaster: JSONB_TOASTER, ..jsonb(1, "j") };
    let taken = becomes_plan("deftoaster", std::slice::from_ref(&of_jsonb));
    let former = taken.taken_from(&toasters(), &[&of_jsonb]);
    assert_eq!(former[0].1.handler, Handler::Jsonb);
    let kept = becomes_plan("jsonb_toaster", std::slice::from_ref(&of_jsonb));
    assert!(kept.taken_from(&toasters(), &[&of_jsonb]).is_empty());

    let left = plan(Some(&toasters()), &[&ours], &leaves_goal("bytea_toaster"));
    let left = left.unwrap().unwrap();
    insta::assert_snapshot!(statement(&left), @r#"ALTER TABLE ONLY "s"."t" ALTER COLUMN "a" SET TOASTER "deftoaster""#);
    assert_eq!(left.columns[0].rule, ToasterRule::Leaves(BYTEA_TOASTER));
    // A column that now has another toaster keeps it.
    let other = ToasterColumn { toaster: STRANGE, ..ours };
    let left = plan(Some(&toasters()), &[&other], &leaves_goal("bytea_toaster"));
    assert!(left.unwrap().unwrap().changes.is_empty());
}

#[test]
fn what_is_set_already_is_not_set_again() {
    let ours =
        ToasterColumn { toaster: BYTEA_TOASTER, storage: Storage::External, ..column(1, "a") };
    assert!(becomes_plan("bytea_toaster", &[ours]).changes.is_empty());
    assert!(becomes_plan("deftoaster", &[column(1, "a")]).changes.is_empty());
    // Only the default toaster exists, so stock rules are sufficient.
    let only = Toasters::new(toasters().rows()[..1].to_vec());
    let goal = Goal::Stock(Toaster::Compressed(Method::Lz4));
    assert_eq!(plan(Some(&only), &[&column(1, "a")], &goal), Ok(None));
    assert_eq!(plan(None, &[], &goal), Ok(None));
}

#[test]
fn refusals_say_what_there_is() {
    let text = ToasterColumn {
        type_name: "character varying(10)".into(),
        base_type: Oid(1043),
        ..column(1, "v")
    };
    let refused = |toasters: Option<&Toasters>, goal: Goal, column: &ToasterColumn| {
        plan(toasters, &[column], &goal).unwrap_err().to_string()
    };
    let all = toasters();
    let becomes = |name: &str| Goal::Pluggable(Pluggable::Becomes(name.into()));
    insta::assert_snapshot!(refused(None, becomes("bytea_toaster"), &text), @r#"
    there is no toaster "bytea_toaster" on this server
    HINT:  It does not have pluggable TOAST: --toaster accepts pglz, lz4, external, main, extended or plain here.
    "#);
    for (given, meant) in [("lz5", "lz4"), ("PGLZ ", "pglz"), ("externl", "external")] {
        let hint = format!("Perhaps you meant {meant}.");
        assert!(refused(None, becomes(given), &text).ends_with(&hint), "{given}");
    }
    assert!(!refused(None, becomes("zstd"), &text).contains("Perhaps"));
    insta::assert_snapshot!(refused(Some(&all), becomes("zstd"), &text), @r#"
    toaster "zstd" does not exist
    HINT:  This database has deftoaster, bytea_toaster, dummy_toaster, jsonb_toaster, My "Toaster"; every server accepts pglz, lz4, external, main, extended or plain.
    "#);
    insta::assert_snapshot!(refused(Some(&all), becomes("bytea_toaster"), &text), @r#"
    s.t1: toaster "bytea_toaster" stores values of type bytea, and column "v" is of type character varying(10)
    HINT:  The server would accept this setting, but the toaster would misread the values.
    "#);
    insta::assert_snapshot!(refused(Some(&all), becomes("jsonb_toaster"), &column(7, "a")), @r#"
    s.t7: toaster "jsonb_toaster" stores values of type jsonb, and column "a" is of type bytea
    HINT:  The server would accept this setting, but the toaster would misread the values.
    "#);
    insta::assert_snapshot!(refused(Some(&all), leaves_goal("deftoaster"), &text), @r#"
    toaster "deftoaster" is the default one
    HINT:  Name the toaster whose values should go back to the default.
    "#);
    assert!(matches!(plan(None, &[&text], &leaves_goal("x")), Err(PlanError::NotPluggable(_))));
}

#[test]
fn a_domain_over_a_toasters_type_is_taken() {
    let domain = ToasterColumn { type_name: "s.photo".into(), ..column(1, "a") };
    assert_eq!(becomes_plan("bytea_toaster", &[domain]).columns.len(), 1);
}

/// A table of an ID and a value, with a plan's settings.
fn table(storage: Storage) -> Model {
    samples::table(storage, Method::Pglz, 1)
}

fn custom(toaster: Oid) -> StoredValue {
    StoredValue {
        form: Form::Custom,
        raw_size: Some(9000),
        stored_size: Some(9000),
        pointer_size: 46,
        custom: Some(CustomStored {
            toaster,
            handler: Handler::Bytea,
            kind: PointerKind::Appendable,
            chunks: Some(5),
            failure: None,
        }),
        ..StoredValue::NULL
    }
}

#[test]
fn pointers_decide_whether_a_value_complies() {
    let external = value(Form::External, None, 9000, 9000);
    let inline = value(Form::Compressed, Some(Method::Pglz), 9000, 1000);
    let short = value(Form::Plain, None, 500, 504);
    let long = value(Form::Plain, None, 5000, 5004);
    let compliance = |plan: &ToasterPlan, storage, value| {
        plan.compliance(
            &table(storage),
            &[],
            &[samples::value(Form::Plain, None, 4, 4), value],
            &|_| None,
        )
    };
    let yes = Compliance::Complies;
    let no = Compliance::Differs;

    let appendable = becomes_plan("bytea_toaster", &[column(1, "a")]);
    let by = |value| compliance(&appendable, Storage::External, value);
    assert_eq!((by(custom(BYTEA_TOASTER)), by(custom(STRANGE))), (yes.clone(), no.clone()));
    assert_eq!((by(external), by(inline)), (no.clone(), no.clone()));
    assert_eq!((by(short), by(long)), (yes.clone(), no.clone()));
    assert_eq!(by(StoredValue::NULL), yes);

    let back = becomes_plan("deftoaster", &[column(1, "a")]);
    let by = |value| compliance(&back, Storage::External, value);
    assert_eq!((by(custom(BYTEA_TOASTER)), by(custom(DEFAULT_TOASTER))), (no.clone(), yes.clone()));
    assert_eq!((by(external), by(short)), (yes.clone(), yes.clone()));
    assert_eq!(by(inline), no);

    let left = leaves_goal("bytea_toaster");
    let left = plan(Some(&toasters()), &[&column(1, "a")], &left).unwrap().unwrap();
    let by = |value| compliance(&left, Storage::External, value);
    assert_eq!((by(custom(BYTEA_TOASTER)), by(custom(STRANGE))), (no, yes.clone()));
    // Values that the toaster has not stored are not its concern.
    assert_eq!((by(inline), by(long), by(external)), (yes.clone(), yes.clone(), yes));
}

#[test]
fn what_jsonb_toaster_itself_leaves_outside_is_asked_for() {
    let plan = becomes_plan("jsonb_toaster", &[ToasterColumn { index: 1, ..jsonb(1, "j") }]);
    let values = [StoredValue::NULL, value(Form::External, None, 9000, 9000)];
    let compliance = |known| plan.compliance(&table(Storage::Extended), &[], &values, &|_| known);
    assert_eq!(compliance(None), Compliance::Depends(vec![1]));
    assert_eq!(compliance(Some(None)), Compliance::Complies);
    assert_eq!(compliance(Some(Some(0))), Compliance::Differs);
}
