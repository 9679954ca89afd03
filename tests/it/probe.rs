//! What is told of stored values without pages: never a wrong form.

use crate::support::command::{run, toastctl};
use crate::support::reports::Printed;
use crate::support::reports::inspect::Report;
use crate::support::server::{self};
use std::collections::BTreeMap;
use toast_format::codec::Method;
use toast_format::model::stored::Form;

/// Tables of one column with equal values, each stored in another way: name, type and settings, value;
/// `%` stands for a value that compression shrinks to a tenth, `!` for one that it cannot shrink.
const CASES: &[(&str, &str, &str)] = &[
    ("short", "text", "'x'"),
    ("plain", "text", "repeat('x', 500)"),
    ("compressed", "text", "%3000"),
    ("out", "text", "!3000"),
    (
        "out_compressed",
        "text",
        "(SELECT string_agg(md5(i::text), '') || %20000 FROM generate_series(1, 60) AS i)",
    ),
    (
        "out_compressed_long",
        "text",
        "(SELECT string_agg(md5(i::text), '') || %200000 FROM generate_series(1, 300) AS i)",
    ),
    ("out_long", "text", "!20000"),
    ("main", "text STORAGE main", "%50000"),
    ("main_out", "text STORAGE main", "!9000"),
    ("external", "text STORAGE external", "%3000"),
    ("external_long", "text STORAGE external", "%30000"),
    ("external_least", "text STORAGE external TARGET", "repeat('x', 130)"),
    ("plain_text", "text STORAGE plain", "'x'"),
    ("padded", "char(300)", "'x'"),
    ("bytes", "bytea", "convert_to(!6000, 'UTF8')"),
    ("short_j", "jsonb", "'{\"a\": 1}'"),
    ("plain_j", "jsonb", "jsonb_build_object('a', repeat('x', 500))"),
    ("compressed_j", "jsonb", "jsonb_build_object('a', %8000)"),
    ("out_j", "jsonb", "jsonb_build_object('a', !3000)"),
    ("out_compressed_j", "jsonb", "jsonb_build_object('a', !3000, 'b', %9000)"),
    ("out_long_j", "jsonb", "jsonb_build_object('a', !20000)"),
    ("external_j", "jsonb STORAGE external", "jsonb_build_object('a', %3000)"),
    ("plain_short_j", "jsonb STORAGE plain", "'{\"a\": 1}'"),
    ("numbers", "int[]", "ARRAY(SELECT generate_series(1, 2000))"),
    ("query", "tsquery", "'a & b'"),
    ("digits", "numeric", "repeat('7', 3000)::numeric"),
    ("number", "int", "7"),
    ("nothing", "text", "NULL"),
    ("uuid", "uuid", "'00000000-0000-0000-0000-000000000001'"),
    ("address", "inet", "'::1'"),
];

/// Statements for all cases of a server of this major version.
fn make(major: u32) -> String {
    let mut sql = String::new();
    for (name, type_name, value) in CASES {
        let target = type_name.contains(" TARGET");
        let type_name = type_name.replace(" TARGET", "");
        let (plain_type, storage) = type_name.split_once(" STORAGE ").unwrap_or((&type_name, ""));
        let value = expand(value);
        sql += &format!("CREATE TABLE c_{name} (v {plain_type});\n");
        if !storage.is_empty() {
            sql += &format!("ALTER TABLE c_{name} ALTER v SET STORAGE {storage};\n");
        }
        if target {
            sql += &format!("ALTER TABLE c_{name} SET (toast_tuple_target = 128), ADD pad text;\n");
            sql += &format!("ALTER TABLE c_{name} ALTER pad SET STORAGE plain;\n");
            sql += &format!("INSERT INTO c_{name} SELECT {value}, repeat('p', 2100);\n");
        } else {
            sql += &format!("INSERT INTO c_{name} SELECT {value} FROM generate_series(1, 3);\n");
        }
    }
    // written while the column could be short, and set to plain later
    sql += "CREATE TABLE c_altered (v jsonb); INSERT INTO c_altered VALUES ('{\"a\": 1}');
            ALTER TABLE c_altered ALTER v SET STORAGE plain;\n";
    // older than the column
    sql += "CREATE TABLE c_missing (k int); INSERT INTO c_missing VALUES (1), (2);
            ALTER TABLE c_missing ADD v text DEFAULT 'abc', ADD n int DEFAULT 4, ADD j jsonb DEFAULT '{}';
            INSERT INTO c_missing VALUES (3, 'abcd', 5, '[1, 2]');\n";
    if major >= 18 {
        sql += "CREATE TABLE c_virtual (k int, v text GENERATED ALWAYS AS (repeat(k::text, 9)) VIRTUAL);
                INSERT INTO c_virtual VALUES (1);\n";
    }
    sql
}

/// `%n` and `!n` in SQL.
fn expand(value: &str) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some(at) = rest.find(['%', '!']) {
        let (before, from) = rest.split_at(at);
        let digits: String = from[1..].chars().take_while(char::is_ascii_digit).collect();
        let n: usize = digits.parse().unwrap();
        out += before;
        out += &if from.starts_with('%') {
            format!("repeat('0123456789', {})", n / 10)
        } else {
            let parts = n / 32 + 1;
            format!(
                "(SELECT left(string_agg(translate(encode(sha256(i::text::bytea), 'base64'), E'\\n', ''), ''), {n}) \
                 FROM generate_series(1, {parts}) AS i)"
            )
        };
        rest = &from[1 + digits.len()..];
    }
    out + rest
}

type Forms = BTreeMap<(String, String), Vec<(Form, Option<Method>, u64)>>;

/// For each table and column its forms with method and count.
fn forms(output: &str) -> Forms {
    let report = Printed::<Report>::read(output);
    let mut forms = Forms::new();
    for relation in &report.relations {
        for column in &relation.columns {
            let list = column.forms.iter();
            let list = list.map(|form| (form.form, form.method, form.all.values.estimate));
            forms.insert((relation.name.relation.clone(), column.column.clone()), list.collect());
        }
    }
    forms
}

#[test]
fn without_pages_a_form_is_right_or_unknown() {
    server::each_server(|server, major| {
        let database = server.create_database("probe");
        let role = database.create_owner("owner_of");
        database.psql(&format!(
            "CREATE EXTENSION pageinspect; SET ROLE {role};
             {}",
            make(major)
        ));
        let inspect = |user: &str| {
            let url = database.url_of(user);
            let words = ["inspect", "--details", "--format", "json", "-d", &url, "c_*"];
            forms(&run(toastctl().args(words)).ok())
        };
        let (pages, told) = (inspect(server.superuser()), inspect(&role));
        assert_eq!(pages.len(), told.len());
        let mut known = Vec::new();
        for (at, told) in &told {
            let pages = &pages[at];
            let (unknown, sure): (Vec<_>, Vec<_>) =
                told.iter().partition(|(form, ..)| *form == Form::Unknown);
            // what is said is so, of at most as many values
            for (form, method, count) in &sure {
                let right = pages.iter().find(|(f, m, _)| (f, m) == (form, method));
                let right =
                    right.unwrap_or_else(|| panic!("{major} {at:?}: {told:?}, not {pages:?}"));
                assert!(*count <= right.2, "{major} {at:?}: {told:?}, {pages:?}");
            }
            let sum = |forms: &[(Form, Option<Method>, u64)]| -> u64 {
                forms.iter().map(|(_, _, count)| count).sum()
            };
            assert_eq!(sum(told), sum(pages), "{major} {at:?}");
            if unknown.is_empty() && at.1 == "v" {
                known.push(at.0.trim_start_matches("public.c_").to_owned());
            }
        }
        // and where it can be known, it is
        let mut expected = vec![
            "bytes",
            "external",
            "external_least",
            "external_long",
            "main_out",
            "nothing",
            "number",
            "out",
            "out_long",
            "out_long_j",
            "padded",
            "plain",
            "plain_text",
            "query",
            "short",
            "uuid",
        ];
        if major >= 17 {
            expected.extend([
                "compressed",
                "compressed_j",
                "external_j",
                "main",
                "numbers",
                "out_compressed",
                "out_compressed_j",
                "out_compressed_long",
                "out_j",
                "plain_j",
            ]);
        }
        let missed: Vec<_> =
            expected.iter().filter(|name| !known.contains(&(**name).to_owned())).collect();
        assert!(missed.is_empty(), "PostgreSQL {major}: {missed:?} of {known:?}");
    });
}
