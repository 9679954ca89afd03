//! `keys --extract` by an ordinary owner, without pages, and with the server's own compression.

use crate::support::command::{run, toastctl};
use crate::support::extract::{Script, near, sizes};
use crate::support::reports::Printed;
use crate::support::reports::advise::Extraction;
use crate::support::reports::keys::Extracted;
use crate::support::server::{self, Database};

/// Documents of all widths, compressed and not, and a column beside them that the toaster moves too.
const DOCS: &str = r#"
    CREATE TABLE docs (id int, gone text, doc jsonb, note text);
    ALTER TABLE docs DROP gone;
    INSERT INTO docs SELECT i, jsonb_build_object('id', i, 'größe', i * 1.5, 'on', i % 2 = 0, 'list',
            jsonb_build_array(i, 'x', NULL, 1e30), 'text', (SELECT string_agg(md5((i * j)::text), ' ')
            FROM generate_series(1, i * 13 % 120) AS j), 'soft', repeat('soft ', i * 7 % 900)),
        repeat(md5(i::text), i * 3 % 70) FROM generate_series(1, 1500) AS i;
    INSERT INTO docs VALUES (0, NULL, 'x'), (0, '["id"]', 'x'), (0, '"id"', NULL);
"#;

fn told(database: &Database<'_>, user: &str, arguments: &[&str]) -> Printed<Extraction> {
    let server = database.server();
    let mut command = toastctl();
    command.env("PGHOST", server.socket_dir()).env("PGPORT", server.port().to_string());
    command.env("PGUSER", user).env("PGDATABASE", database.name());
    command.args(["keys", "docs", "-c", "doc", "--sample", "100%", "--format", "json"]);
    let report: Printed<Extracted> = run(command.args(arguments)).exits(0).report();
    report.extraction.clone().unwrap()
}

/// All of an extraction but how the sample was read, and which files the user may compact.
fn figures(told: &Printed<Extraction>) -> serde_json::Value {
    let mut figures = told.json().clone();
    figures.as_object_mut().unwrap().remove("sample");
    let script = figures["script"].as_str().unwrap().replace("--compact=heap", "--compact");
    figures["script"] = script.into();
    figures
}

#[test]
fn without_pages_an_extraction_has_the_same_figures_and_the_owner_migrates() {
    let server = server::shared();
    let database = server.create_database("extract");
    let owner = database.create_owner("owner_of");
    database.psql(&format!("CREATE EXTENSION pageinspect; SET ROLE {owner}; {DOCS}"));
    let keys = ["--extract", "id,größe,list,soft"];
    let by_pages = told(&database, server.superuser(), &keys);
    let by_owner = told(&database, &owner, &keys);
    assert_eq!(figures(&by_owner), figures(&by_pages));
    // liblz4 and pglz here are those of the server
    let exact = [&keys[..], &["--exact"]].concat();
    let exact = told(&database, server.superuser(), &exact);
    assert_eq!(figures(&exact), figures(&by_pages));
    let auto = ["--extract", "auto"];
    let by_user = |user: &str| figures(&told(&database, user, &auto));
    assert_eq!(by_user(&owner), by_user(server.superuser()));

    let script = Script::told(&by_owner);
    for part in [&["-q"][..], &["-q", "-v", "remove=1"]] {
        let mut psql = database.psql_command();
        psql.env("PGOPTIONS", format!("-c role={owner}")).args(part);
        run(psql.arg("-f").arg(&script.path)).ok();
    }
    database.psql("VACUUM FULL docs");
    let [heap, toast] = sizes(&database, "docs");
    // how full pages get hangs on the order in which the batches leave rows, which snapshots of other tests change
    near("heap", by_owner.heap_bytes.estimate, heap, 0.04);
    near("TOAST", by_owner.toast_bytes.estimate, toast, 0.02);
}
