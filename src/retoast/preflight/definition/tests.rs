//! Tests of changed definitions.

use super::*;

const TABLE: &str = r#""s"."t""#;

fn column(name: &str, storage: Storage, method: Option<Method>) -> ColumnDefinition {
    ColumnDefinition {
        name: name.into(),
        of_type: (25, Some(-1)),
        dropped: false,
        storage,
        own_method: method,
        method: Some(method.unwrap_or(Method::Pglz)),
        toaster: None,
    }
}

fn definition(columns: Vec<ColumnDefinition>) -> Definition {
    let attributes = vec![731, 738];
    let columns_there = columns.len();
    let versions =
        Versions { class: 740, attributes, columns: columns_there, code: vec![733], rows: 2 };
    let settings = Settings { columns, target: None };
    Definition {
        settings,
        versions,
        has_triggers_or_rules: false,
        owner: 10,
        row_security: (false, false),
    }
}

fn said(then: &Definition, now: &Definition) -> String {
    then.differences(Some(now)).map_or_else(String::new, |found| found.to_string())
}

#[test]
fn what_was_changed_is_named() {
    let was = definition(vec![
        column("a", Storage::Extended, Some(Method::Lz4)),
        column("b", Storage::Extended, None),
    ]);
    assert_eq!(was.differences(Some(&was.clone())), None);
    let mut now = was.clone();
    now.settings.columns[0].storage = Storage::Plain;
    now.settings.columns[0].own_method = Some(Method::Pglz);
    now.settings.target = Some("4080".into());
    assert_eq!(
        said(&was, &now),
        "column \"a\" was set to storage plain, column \"a\" was set to compression pglz, \
         toast_tuple_target was set to 4080 by another session"
    );
    let mut now = was.clone();
    now.settings.columns[1].method = Some(Method::Lz4);
    assert_eq!(said(&was, &now), "default_toast_compression was set to lz4 by another session");
    assert!(!was.differences(Some(&now)).unwrap().are_settings());
    let mut now = was.clone();
    now.settings.columns[0].of_type = (1043, Some(-1));
    now.settings.columns[1].dropped = true;
    now.settings.columns.push(column("c", Storage::Plain, None));
    assert_eq!(
        said(&was, &now),
        "the type of column \"a\" was changed, column \"b\" was dropped, column \"c\" was added \
         by another session"
    );
    assert_eq!(
        was.differences(None).unwrap().to_string(),
        "the table was dropped by another session"
    );
}

#[test]
fn a_statement_sets_back_what_another_set() {
    let was = definition(vec![
        column("a\"b", Storage::External, None),
        column("b", Storage::Extended, None),
    ]);
    let changes = Changes {
        storage: vec![("a\"b".into(), Storage::Extended)],
        compression: vec![("a\"b".into(), Method::Lz4)],
        target: toast_format::model::settings::TupleTarget::new(
            4080,
            toast_format::disk::layout::PageSize::DEFAULT,
        )
        .ok()
        .map(toast_format::judge::toaster::TargetChange::Set),
        ..Changes::default()
    };
    let now = was.with(&changes);
    let was = was.settings();
    insta::assert_snapshot!(was.restore(TABLE, &now).unwrap(), @r##"ALTER TABLE ONLY "s"."t" ALTER COLUMN "a""b" SET STORAGE external, ALTER COLUMN "a""b" SET COMPRESSION default, RESET (toast_tuple_target)"##);
    insta::assert_snapshot!(now.restore(TABLE, was).unwrap(), @r##"ALTER TABLE ONLY "s"."t" ALTER COLUMN "a""b" SET STORAGE extended, ALTER COLUMN "a""b" SET COMPRESSION lz4, SET (toast_tuple_target = 4080)"##);
    assert_eq!(was.restore(TABLE, was), None);
}

#[test]
fn whether_it_was_written_is_asked_for_by_versions() {
    let mut was = definition(vec![
        column("a", Storage::Extended, Some(Method::Lz4)),
        column("b", Storage::Extended, None),
    ]);
    insta::assert_snapshot!(check(TABLE, Oid(16_400), &[], Some(&was)), @r#"SELECT (CASE WHEN pg_catalog.to_regclass('"s"."t"')::pg_catalog.oid = 16400 AND (SELECT c.xmin FROM pg_catalog.pg_class AS c WHERE c.oid = 16400) = '740'::pg_catalog.xid AND (SELECT pg_catalog.count(*) = 2 AND pg_catalog.bool_and(a.xmin = ANY ('{731,738}'::pg_catalog.xid[])) FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = 16400 AND a.attnum > 0) AND (SELECT pg_catalog.count(*) = 2 AND coalesce(pg_catalog.bool_and(x.v = ANY ('{733}'::pg_catalog.xid[])), true) FROM (SELECT xmin FROM pg_catalog.pg_index WHERE indrelid = 16400::pg_catalog.oid UNION ALL SELECT xmin FROM pg_catalog.pg_constraint WHERE conrelid = 16400::pg_catalog.oid UNION ALL SELECT xmin FROM pg_catalog.pg_trigger WHERE tgrelid = 16400::pg_catalog.oid UNION ALL SELECT xmin FROM pg_catalog.pg_rewrite WHERE ev_class = 16400::pg_catalog.oid UNION ALL SELECT xmin FROM pg_catalog.pg_policy WHERE polrelid = 16400::pg_catalog.oid UNION ALL SELECT xmin FROM pg_catalog.pg_attrdef WHERE adrelid = 16400::pg_catalog.oid UNION ALL SELECT xmin FROM pg_catalog.pg_statistic_ext WHERE stxrelid = 16400::pg_catalog.oid UNION ALL SELECT xmin FROM pg_catalog.pg_inherits WHERE inhrelid = 16400::pg_catalog.oid UNION ALL SELECT p.xmin FROM pg_catalog.pg_partition_ancestors(16400::pg_catalog.oid) AS a JOIN pg_catalog.pg_partitioned_table AS p ON p.partrelid = a.relid UNION ALL SELECT i.xmin FROM pg_catalog.pg_partition_ancestors(16400::pg_catalog.oid) AS a JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = a.relid WHERE i.inhrelid <> 16400::pg_catalog.oid) AS x (v)) AND pg_catalog.current_setting('default_toast_compression') = 'pglz' THEN 'true' ELSE pg_catalog.concat('the definition of relation ', 16400::pg_catalog.oid, ' was changed') END)::pg_catalog.bool"#);
    // Values of a plain column are not compressed, and those of a dropped column are not stored.
    was.settings.columns[1].method = None;
    let plain = check(TABLE, Oid(16_400), &[], Some(&was));
    assert!(!plain.contains("default_toast_compression"), "{plain}");
    was.settings.columns[1] = column("b", Storage::Extended, None);
    was.settings.columns[1].dropped = true;
    assert_eq!(check(TABLE, Oid(16_400), &[], Some(&was)), plain);
}

#[test]
fn only_what_is_as_the_run_has_set_it_is_restored() {
    let then =
        definition(vec![column("a", Storage::External, None), column("b", Storage::Main, None)]);
    let changes = Changes {
        storage: vec![("a".into(), Storage::Extended)],
        compression: vec![("a".into(), Method::Lz4)],
        ..Changes::default()
    };
    let ours = then.with(&changes);
    let mut now = then.clone();
    now.settings = ours.clone();
    now.settings.columns[0].storage = Storage::Plain;
    now.settings.columns[1].own_method = Some(Method::Pglz);
    now.settings.target = Some("4080".into());
    let goal = then.settings().where_unchanged(&ours, now.settings());
    insta::assert_snapshot!(goal.restore(TABLE, now.settings()).unwrap(), @r##"ALTER TABLE ONLY "s"."t" ALTER COLUMN "a" SET COMPRESSION default"##);
    assert!(then.settings().was_changed(&ours, now.settings()));
    assert!(!then.settings().was_changed(&ours, then.settings()));
    now.settings = then.settings().clone();
    now.settings.columns[0].storage = Storage::Plain;
    assert!(!then.settings().was_changed(&ours, now.settings()));
}
