//! `retoast` by somebody with more rights than the table's owner lends those rights to nobody.

use crate::command::{Run, run, toastctl};
use crate::retoast::{done, refused};
use crate::server::{self, Database, Options, Server};

/// A role without any rights that takes all of them once its code is run with them.
fn make_mallory(database: &Database<'_>) -> String {
    let name = format!("mallory_{}", database.name());
    database.psql(&format!(
        "CREATE EXTENSION pageinspect; CREATE ROLE {name} LOGIN; GRANT ALL ON SCHEMA public TO {name};
         SET ROLE {name};
         CREATE FUNCTION public.evil() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$BEGIN
             IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
                 ALTER ROLE {name} SUPERUSER;
             END IF; END$$;
         CREATE FUNCTION public.calm(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$BEGIN
             PERFORM public.evil(); RETURN pg_catalog.left($1, 10); END$$;"
    ));
    name
}

/// A table of hers, with what else is said.
fn table(database: &Database<'_>, mallory: &str, more: &str) {
    database.psql(&format!(
        "SET ROLE {mallory}; DROP TABLE IF EXISTS t;
         CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 50) i; {more}"
    ));
}

fn is_super(database: &Database<'_>, role: &str) -> String {
    database.psql(&format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{role}'"))
}

fn sweep(database: &Database<'_>, user: &str, more: &[&str]) -> Run {
    let mut command = toastctl();
    let server = database.server();
    command.args(["retoast", "-h", server.socket_dir().to_str().unwrap(), "-U", user]);
    command.args(["-p", &server.port().to_string(), "-d", database.name()]);
    command.args(["t", "-c", "v", "--toaster", "external", "--format", "json"]);
    run(command.args(more))
}

const UNTOUCHED: &str = "SELECT attstorage, (SELECT count(*) FROM t WHERE
    pg_column_compression(v) = 'pglz') FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'v'";

#[test]
fn an_index_expression_makes_nobody_a_superuser() {
    for major in server::available_majors() {
        let server = Server::start(&Options::major(major));
        let database = server.create_database("owner");
        let mallory = make_mallory(&database);
        table(&database, &mallory, "CREATE INDEX i ON t (public.calm(v))");
        for more in [&["--dry-run"][..], &[]] {
            let run = sweep(&database, "postgres", more);
            let called = format!("\n  public.calm(text) of \"{mallory}\", called by index i\n");
            refused(&run, 1, &called);
            assert!(run.stderr.contains("--trust-owner-code"), "{}", run.stderr);
            assert_eq!(is_super(&database, &mallory), "f", "{major}");
            assert_eq!(database.psql(UNTOUCHED), "x|50", "{major}");
        }
        let table = done(&sweep(&database, &mallory, &[]));
        assert_eq!(table["rows_stored"], 50, "{major}");
        assert_eq!(is_super(&database, &mallory), "f", "{major}");
    }
}

#[test]
fn all_code_that_an_update_runs_is_found_and_what_others_answer_for_is_harmless() {
    let database = server::shared().create_database("found");
    let mallory = make_mallory(&database);
    database.psql("CREATE EXTENSION pg_trgm; CREATE EXTENSION unaccent");
    let always = "CREATE OR REPLACE FUNCTION public.fires() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN RETURN NEW; END';
        CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION public.fires();";
    for (code, place) in [
        ("CREATE INDEX i ON t (id) WHERE public.calm(v) <> ''", "calm(text) of \"M\", called by index i"),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (public.calm(v) <> '')", "called by constraint c"),
        (
            "ALTER TABLE t ADD g text GENERATED ALWAYS AS (public.calm(v)) STORED",
            "called by generated column g",
        ),
        ("CREATE STATISTICS s ON (public.calm(v)), id FROM t", "called by statistics s"),
        (
            "CREATE DOMAIN public.d AS text CHECK (public.calm(VALUE) <> ''); ALTER TABLE t ADD x public.d[]",
            "called by domain public.d",
        ),
        (
            "CREATE OPERATOR public.~~~ (LEFTARG = text, FUNCTION = public.calm_op, RIGHTARG = text);
             ALTER TABLE t ADD CONSTRAINT o CHECK (v OPERATOR(public.~~~) 'x')",
            "called by constraint o",
        ),
        (
            "CREATE TYPE public.r AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = public.diff);
             ALTER TABLE t ADD y public.r",
            "called by type public.r",
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT q
                 CHECK (query_to_xml('SELECT public.evil()', true, true, '') IS NOT NULL) NOT VALID",
            "called by constraint q",
        ),
        (&format!("{always} ALTER TABLE t ENABLE ALWAYS TRIGGER g"), "called by trigger g"),
    ] {
        let helpers = "CREATE OR REPLACE FUNCTION public.calm_op(text, text) RETURNS bool LANGUAGE sql
                IMMUTABLE AS 'SELECT true';
            CREATE OR REPLACE FUNCTION public.diff(float8, float8) RETURNS float8 LANGUAGE sql
                IMMUTABLE AS 'SELECT $1 - $2';";
        table(&database, &mallory, &format!("{helpers} {code}"));
        let run = sweep(&database, "postgres", &["--allow-triggers"]);
        refused(&run, 1, &place.replace('M', &mallory));
        assert_eq!(database.psql(UNTOUCHED), "x|50", "{code}");
        let policy = run_inspect_policy(&database);
        refused(&policy, 1, &place.replace('M', &mallory));
    }
    database.psql(
        "CREATE FUNCTION public.ours(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1';
         CREATE FUNCTION public.f_unaccent(text) RETURNS text LANGUAGE sql IMMUTABLE
             AS $$SELECT public.unaccent('public.unaccent', $1)$$;",
    );
    for code in [
        "CREATE INDEX ON t (lower(v)); CREATE INDEX ON t USING gin (v public.gin_trgm_ops)",
        "ALTER TABLE t ADD CHECK (public.ours(v) <> '' AND random() >= 0)",
        "CREATE INDEX ON t (left(public.f_unaccent(v), 20))",
        // silenced
        always,
    ] {
        table(&database, &mallory, code);
        done(&sweep(&database, "postgres", &[]));
        assert_ne!(database.psql(UNTOUCHED), "x|50", "{code}");
        let mut by_policy = toastctl();
        by_policy.args(["retoast", "-d", &database.url(), "t", "-c", "v", "--policy", "ratio=0.5"]);
        done(&run(by_policy.args(["--method", "pglz", "--format", "json"])));
    }
    database.psql(&format!("DROP OWNED BY {mallory} CASCADE; DROP ROLE {mallory}"));
}

fn run_inspect_policy(database: &Database<'_>) -> Run {
    run(toastctl().args(["inspect", "-d", &database.url(), "t", "--policy", "best"]))
}

#[test]
fn batches_run_as_the_owner_and_a_member_without_further_rights_may_go_on() {
    let database = server::shared().create_database("member");
    let mallory = make_mallory(&database);
    let seen = "CREATE TABLE public.seen (who name);
        CREATE FUNCTION public.fires() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN INSERT INTO public.seen VALUES (current_user); RETURN NEW; END';
        CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION public.fires();
        ALTER TABLE t ENABLE ALWAYS TRIGGER g";
    table(&database, &mallory, seen);
    done(&sweep(&database, "postgres", &["--allow-triggers", "--trust-owner-code"]));
    assert_eq!(database.psql("SELECT DISTINCT who FROM seen"), mallory);
    let member = format!("member_{}", database.name());
    database.psql(&format!(
        "CREATE ROLE {member} LOGIN IN ROLE {mallory}; GRANT pg_monitor TO {member}"
    ));
    let index = "CREATE INDEX i ON t (public.calm(v))";
    table(&database, &mallory, index);
    done(&sweep(&database, &member, &[]));
    database.psql(&format!("ALTER ROLE {member} CREATEDB"));
    table(&database, &mallory, index);
    refused(&sweep(&database, &member, &[]), 1, "called by index i");
    assert_eq!(database.psql(UNTOUCHED), "x|50");
    database.psql(&format!(
        "DROP OWNED BY {mallory} CASCADE; DROP OWNED BY {member}; DROP ROLE {member}, {mallory}"
    ));
}

#[test]
fn names_of_others_stand_in_no_statement() {
    let database = server::shared().create_database("path");
    let (mallory, name) = (make_mallory(&database), database.name());
    database.psql(&format!(
        "ALTER DATABASE {name} SET search_path = public, pg_catalog; SET ROLE {mallory};
         CREATE FUNCTION public.trap(tid, tid) RETURNS bool LANGUAGE plpgsql AS
             'BEGIN PERFORM public.evil(); RETURN true; END';
         CREATE FUNCTION public.trap(text, text) RETURNS bool LANGUAGE plpgsql AS
             'BEGIN PERFORM public.evil(); RETURN true; END';
         CREATE FUNCTION public.trap(name, name) RETURNS bool LANGUAGE plpgsql AS
             'BEGIN PERFORM public.evil(); RETURN true; END';
         CREATE FUNCTION public.trap(oid, oid) RETURNS bool LANGUAGE plpgsql AS
             'BEGIN PERFORM public.evil(); RETURN true; END';"
    ));
    for operator in ["=", "<>", ">=", "<"] {
        for of in ["tid", "text", "name", "oid"] {
            database.psql(&format!(
                "SET ROLE {mallory}; CREATE OPERATOR public.{operator}
                     (FUNCTION = public.trap, LEFTARG = {of}, RIGHTARG = {of})"
            ));
        }
    }
    let lies = format!("SET search_path = pg_catalog, public; SET ROLE {mallory};");
    database.psql(&format!(
        "{lies} CREATE TABLE public.t (id int PRIMARY KEY, v text COMPRESSION pglz);
         INSERT INTO t SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 50) i"
    ));
    for (verb, arguments) in [
        ("retoast", &["t", "-c", "v", "--toaster", "lz4"][..]),
        ("retoast", &["t", "-c", "v", "--policy", "best", "--verify", "full"]),
        ("inspect", &["t"]),
        ("inspect", &["t", "--source", "functions"]),
        ("advise-threshold", &["t", "--exact"]),
    ] {
        let run = run(toastctl().args([verb, "-d", &database.url()]).args(arguments));
        assert_eq!(run.code, Some(0), "{verb}: {}", run.stderr);
        let asked = format!(
            "SET search_path = pg_catalog; SELECT rolsuper FROM pg_roles WHERE rolname = '{mallory}'"
        );
        assert_eq!(database.psql(&asked), "f", "{verb} {arguments:?}");
    }
    database.psql(&format!(
        "SET search_path = pg_catalog; DROP OWNED BY {mallory} CASCADE; DROP ROLE {mallory}"
    ));
}
