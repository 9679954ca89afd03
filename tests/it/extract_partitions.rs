//! `keys --extract` of a partitioned table against its migrated partitions.

use crate::support::extract::{Script, near, sizes};
use crate::support::reports::keys::Extracted;
use crate::support::server;
use crate::support::verbs::advise;

/// Partitions with values of other types, without one of the keys, with columns in another order, and without rows.
const PARTS: &str = r#"
    CREATE EXTENSION pageinspect;
    CREATE TABLE parts (id int PRIMARY KEY, doc jsonb) PARTITION BY RANGE (id);
    CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
    CREATE TABLE "Parts 2" (gone text, doc jsonb, id int NOT NULL);
    ALTER TABLE "Parts 2" DROP gone;
    ALTER TABLE parts ATTACH PARTITION "Parts 2" FOR VALUES FROM (1000) TO (2000);
    CREATE TABLE deeper PARTITION OF parts FOR VALUES FROM (2000) TO (4000) PARTITION BY RANGE (id);
    CREATE TABLE parts3 PARTITION OF deeper FOR VALUES FROM (2000) TO (3000);
    CREATE TABLE parts4 PARTITION OF deeper FOR VALUES FROM (3000) TO (4000);
    INSERT INTO parts SELECT i, jsonb_build_object('n', CASE WHEN i / 1000 = 1 THEN i / 2.0 ELSE i END,
        'fill', repeat(md5(i::text), 20)) || CASE WHEN i < 1000 THEN '{"rare": true}' ELSE '{}' END::jsonb
    FROM generate_series(100, 2500) AS i;
    CREATE TABLE original AS TABLE parts"#;

#[test]
fn partitions_are_priced_one_by_one_and_migrated_by_one_script() {
    let database = server::shared().create_database("extract");
    database.psql(PARTS);
    let words = ["keys", "parts", "-c", "doc", "--extract", "n,rare", "--sample", "100%"];
    let told = advise(&database, &[&words[..], &["--format", "jsonl"]].concat());
    assert!(told.stderr.contains("public.parts: its partitions take"), "{}", told.stderr);
    let reports = told.exits(0).documents::<Extracted>();
    let reports: Vec<_> =
        reports.iter().filter_map(|one| Some((one, one.extraction.as_ref()?))).collect();
    assert_eq!(reports.len(), 3);
    for (_, extraction) in &reports {
        let types = [0, 1].map(|key| extraction.keys[key].type_name.as_str());
        assert_eq!(types, ["numeric", "boolean"]);
    }
    let emitted = advise(&database, &[&words[..], &["--emit", "sql"]].concat()).ok();
    assert_eq!(emitted.matches("ON_ERROR_STOP").count(), 1);
    let script = Script::told(reports[0].1);
    assert_eq!(script.text.trim_end(), emitted.trim_end());
    assert!(script.text.contains("toastctl retoast public.parts "), "{}", script.text);

    script.run(&database, None);
    script.run(&database, Some("remove"));
    script.run(&database, Some("remove"));
    assert_eq!(database.psql("SELECT count(*) FROM parts WHERE doc ?| '{n,rare}'"), "0");
    let differing = "SELECT count(*) FROM original AS o FULL JOIN parts AS p USING (id)
         WHERE to_jsonb(p.n)::text IS DISTINCT FROM (o.doc -> 'n')::text OR to_jsonb(p.rare) IS DISTINCT FROM o.doc -> 'rare'
            OR p.doc IS DISTINCT FROM o.doc - ARRAY['n', 'rare']";
    assert_eq!(database.psql(differing), "0");
    database.psql("VACUUM FULL parts");
    for (report, extraction) in &reports {
        let relation = &report.relation;
        let name = format!("\"{}\"", report.name);
        let [heap, toast] = sizes(&database, &name);
        near(relation, extraction.heap_bytes.estimate, heap, 0.01);
        near(relation, extraction.toast_bytes.estimate, toast, 0.01);
    }
    let auto = advise(
        &database,
        &["keys", "parts", "--extract", "auto", "--sample", "100%", "--emit", "sql"],
    );
    assert!(auto.stderr.contains("public.parts"), "{}", auto.stderr);
    let deeper = advise(&database, &["keys", "deeper", "--extract", "n"]);
    assert!(deeper.stderr.contains("\"public.deeper\" is a partition"), "{}", deeper.stderr);
    let missing = advise(&database, &["keys", "parts", "--extract", "fill,none"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("has the key \"none\""), "{}", missing.stderr);
}
