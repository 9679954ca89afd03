//! Name patterns on a real catalog, beside psql's `\dt`.

use crate::support::command::run;
use crate::support::server;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use toastctl::server::pattern::NamePattern;
use tokio_postgres::NoTls;

const TABLES: &str = r#"
CREATE SCHEMA "Odd.One"; CREATE SCHEMA shop;
CREATE TABLE orders (); CREATE TABLE order_items (); CREATE TABLE "Orders" (); CREATE TABLE "a.b" ();
CREATE TABLE "a$b" (); CREATE TABLE "a*b" (); CREATE TABLE "a""b" (); CREATE TABLE "t[]" (); CREATE TABLE "Ünder" ();
CREATE TABLE t1 (); CREATE TABLE t2 (); CREATE TABLE t11 (); CREATE TABLE "a b" (); CREATE TABLE "a\b" ();
CREATE TABLE shop.orders (); CREATE TABLE shop.carts (); CREATE TABLE "Odd.One"."T" (); CREATE TABLE shop.t1 ();
"#;

const PATTERNS: &[&str] = &[
    "orders",
    "Orders",
    "\"Orders\"",
    "order*",
    "ORDER*",
    "*.orders",
    "shop.*",
    "Shop.Orders",
    "s*.c?rts",
    "*",
    "*.*",
    "\"Odd.One\".*",
    "\"Odd.One\".\"T\"",
    "odd.one",
    "\"a.b\"",
    "a?b",
    "a*b",
    "\"a*b\"",
    "a$b",
    "\"a$b\"",
    "\"a\"\"b\"",
    "t[]",
    "t[0-9]",
    "t1|t2",
    "t1+",
    "(t1|orders)",
    "\"a b\"",
    "\"a\\b\"",
    "\"Ünder\"",
    "ünder",
    "?nder",
    "absent",
    "o\"RD\"ers",
    "orders.",
    ".orders",
    "pg_catalog.pg_class",
    "pg_toast.pg_toast_2619",
    "t^1",
];

/// What psql lists for a pattern, or `None` where it refuses it.
fn psqls(database: &server::Database<'_>, pattern: &str) -> Option<String> {
    let listed = run(database.psql_command().args([
        "-v",
        "ON_ERROR_STOP=1",
        "-c",
        &format!("\\dt {pattern}"),
    ]));
    if listed.stderr.contains("regular expression") {
        return None;
    }
    let mut lines: Vec<String> = listed
        .stdout
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split('|').collect();
            Some(format!("{}|{}", fields.first()?, fields.get(1)?))
        })
        .collect();
    lines.sort();
    Some(lines.join("\n"))
}

/// What our condition finds, or `None` where the pattern is refused or names another database.
fn ours(
    runtime: &tokio::runtime::Runtime,
    client: &tokio_postgres::Client,
    pattern: &str,
) -> Option<String> {
    let parsed = NamePattern::parse(pattern).ok().filter(|parsed| parsed.database.is_none())?;
    let visible = "pg_catalog.pg_table_is_visible(c.oid)";
    let condition = parsed.condition("n.nspname", "c.relname", visible, 1);
    let sql = format!(
        "SELECT n.nspname || '|' || c.relname FROM pg_catalog.pg_class c
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relkind IN ('r', 'p', 't', 's') AND {}",
        condition.sql
    );
    let parameters: Vec<_> = condition.parameters.iter().map(|p| p as _).collect();
    let rows = runtime.block_on(client.query(&sql, &parameters)).ok()?;
    let mut lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    lines.sort();
    let found = lines.join("\n");
    if let Some((_, name)) = parsed.literal() {
        assert!(lines.iter().all(|line| line.ends_with(&format!("|{name}"))), "{pattern}: {found}");
    }
    Some(found)
}

/// Where one side refuses a pattern, the other finds nothing by it.
#[track_caller]
fn same(pattern: &str, ours: Option<&str>, psqls: Option<&str>) {
    assert_eq!(ours.unwrap_or_default(), psqls.unwrap_or_default(), "{pattern}");
}

#[test]
fn patterns_find_what_psql_finds() {
    let database = server::shared().create_database("pattern");
    database.psql(TABLES);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (client, connection) =
        runtime.block_on(tokio_postgres::connect(&database.conninfo(), NoTls)).unwrap();
    runtime.spawn(connection);
    let mut found = 0;
    for pattern in PATTERNS {
        let ours = ours(&runtime, &client, pattern);
        same(pattern, ours.as_deref(), psqls(&database, pattern).as_deref());
        found += usize::from(ours.is_some_and(|lines| !lines.is_empty()));
    }
    assert!(found >= 25, "only {found} patterns found anything");

    // without blanks, backslashes and open quotes, to which psql's command line gives a meaning of its own
    let mut runner =
        TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() });
    runner
        .run(&"[aOt1b*?.\"$\\[\\]|+^()]{1,6}", |pattern| {
            prop_assume!(pattern.matches('"').count().is_multiple_of(2));
            let ours = ours(&runtime, &client, &pattern);
            same(&pattern, ours.as_deref(), psqls(&database, &pattern).as_deref());
            Ok(())
        })
        .unwrap();
}
