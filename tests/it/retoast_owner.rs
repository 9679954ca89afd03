//! `retoast` by somebody with more rights than the table's owner lends those rights to nobody.

use crate::support::command::{Run, run, toastctl};
use crate::support::retoast::{Running, command, done, refused};
use crate::support::server::{self, Database, Options, Server};

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
            assert!(run.stderr.contains("--allow owner-code"), "{}", run.stderr);
            assert_eq!(is_super(&database, &mallory), "f", "{major}");
            assert_eq!(database.psql(UNTOUCHED), "x|50", "{major}");
        }
        let table = done(&sweep(&database, &mallory, &[]));
        assert_eq!(table.rows_stored, 50, "{major}");
        assert_eq!(is_super(&database, &mallory), "f", "{major}");
    }
}

#[test]
fn all_code_that_an_update_runs_is_found_and_what_others_answer_for_is_harmless() {
    let database = server::shared().create_database("found");
    let mallory = make_mallory(&database);
    database.psql(
        "CREATE EXTENSION pg_trgm; CREATE EXTENSION unaccent;
         CREATE FUNCTION public.ours(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1';
         CREATE FUNCTION public.f_unaccent(text) RETURNS text LANGUAGE sql IMMUTABLE
             AS $$SELECT public.unaccent('public.unaccent', $1)$$;",
    );
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
            "CREATE DOMAIN public.d AS text CHECK (public.calm(VALUE) <> '');
             ALTER TABLE t ADD x public.d GENERATED ALWAYS AS (v) STORED",
            ", in generated column x",
        ),
        (
            "CREATE OPERATOR public.~~~ (LEFTARG = text, FUNCTION = public.calm_op, RIGHTARG = text);
             ALTER TABLE t ADD CONSTRAINT o CHECK (v OPERATOR(public.~~~) 'x')",
            "called by constraint o",
        ),
        (
            "CREATE TYPE public.r AS RANGE (SUBTYPE = float8, SUBTYPE_DIFF = public.diff);
             ALTER TABLE t ADD y public.r; CREATE INDEX y ON t USING gist (y)",
            "called by index y: it may call any function of its argument's type",
        ),
        // what superusers own is trusted with no arguments of the owner's
        (
            "ALTER TABLE t ADD CONSTRAINT u CHECK (public.ours(v) <> '')",
            "called by constraint u: its language is neither C nor internal",
        ),
        (
            "CREATE INDEX i ON t (left(public.f_unaccent(v), 20))",
            "called by index i: its language is neither C nor internal",
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT n CHECK (random() >= 0)",
            "random(), called by constraint n: it is not immutable",
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT q
                 CHECK (query_to_xml('SELECT public.evil()', true, true, '') IS NOT NULL) NOT VALID",
            "called by constraint q",
        ),
        (&format!("{always} ALTER TABLE t ENABLE ALWAYS TRIGGER g"), "called by trigger g"),
        // functions of the server's that run what a view, a type or a cast of others holds
        (
            "CREATE OR REPLACE VIEW public.w AS SELECT public.calm('x') AS x; ALTER TABLE t ADD CONSTRAINT x
                 CHECK (table_to_xml('public.w'::regclass, true, false, '') IS NOT NULL)",
            "called by constraint x",
        ),
        ("ALTER TABLE t ADD CONSTRAINT j CHECK (to_jsonb(id) IS NOT NULL)", "called by constraint j"),
        (
            "CREATE TYPE public.mood AS ENUM ('a'); CREATE OR REPLACE FUNCTION public.tells(public.mood)
                 RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT 'a'$$;
             CREATE CAST (public.mood AS text) WITH FUNCTION public.tells(public.mood);
             ALTER TABLE t ADD m public.mood DEFAULT 'a', ADD CONSTRAINT m CHECK (v || m <> '')",
            "called by constraint m",
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT i
                 CHECK (domain_in('x'::cstring, 'information_schema.sql_identifier'::regtype, -1) IS NOT NULL)",
            "called by constraint i",
        ),
    ] {
        let helpers = "CREATE OR REPLACE FUNCTION public.calm_op(text, text) RETURNS bool LANGUAGE sql
                IMMUTABLE AS 'SELECT true';
            CREATE OR REPLACE FUNCTION public.diff(float8, float8) RETURNS float8 LANGUAGE sql
                IMMUTABLE AS 'SELECT $1 - $2';";
        table(&database, &mallory, &format!("{helpers} {code}"));
        let run = sweep(&database, "postgres", &["--allow", "triggers"]);
        refused(&run, 1, &place.replace('M', &mallory));
        assert_eq!(database.psql(UNTOUCHED), "x|50", "{code}");
        let policy = run_inspect_policy(&database);
        refused(&policy, 1, &place.replace('M', &mallory));
    }
    for code in [
        "CREATE INDEX ON t (lower(v)); CREATE INDEX ON t USING gin (v public.gin_trgm_ops)",
        "ALTER TABLE t ADD CHECK (length(v) > 0 AND date_trunc('day', now()) < timestamptz 'infinity')",
        // no value of these columns is coerced or constructed
        "ALTER TABLE t ADD x public.d[], ADD y public.r",
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
    // sessions that end drop their temporary tables, on which the role had privileges
    database.rests();
    database.psql(&format!("DROP OWNED BY {mallory} CASCADE; DROP ROLE {mallory}"));
}

fn run_inspect_policy(database: &Database<'_>) -> Run {
    run(toastctl().args(["inspect", "-d", &database.url(), "t", "--policy", "best"]))
}

#[test]
fn batches_run_as_the_owner_and_a_member_lends_the_owner_no_rights() {
    let database = server::shared().create_database("member");
    let mallory = make_mallory(&database);
    let seen = "CREATE TABLE public.seen (who name);
        CREATE FUNCTION public.fires() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN INSERT INTO public.seen VALUES (current_user); RETURN NEW; END';
        CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION public.fires();
        ALTER TABLE t ENABLE ALWAYS TRIGGER g";
    table(&database, &mallory, seen);
    done(&sweep(&database, "postgres", &["--allow", "triggers", "--allow", "owner-code"]));
    assert_eq!(database.psql("SELECT DISTINCT who FROM seen"), mallory);
    let member = format!("member_{}", database.name());
    database.psql(&format!(
        "CREATE ROLE {member} LOGIN IN ROLE {mallory}; GRANT pg_monitor TO {member}"
    ));
    table(&database, &mallory, "CREATE INDEX i ON t (public.calm(v))");
    refused(&sweep(&database, &member, &[]), 1, "called by index i");
    assert_eq!(database.psql(UNTOUCHED), "x|50");
    done(&sweep(&database, &member, &["--allow", "owner-code"]));
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

/// A role like that of [`make_mallory`], whose code takes the session's rights back first, and a table of hers that is
/// swept with nothing against it.
fn attacker(database: &Database<'_>, number: usize) -> String {
    let mallory = format!("m{number}_{}", database.name());
    database.psql(&format!(
        "CREATE ROLE {mallory} LOGIN; CREATE SCHEMA {mallory} AUTHORIZATION {mallory}; SET ROLE {mallory};
         SET search_path = {mallory};
         CREATE FUNCTION wicked() RETURNS void LANGUAGE plpgsql AS $$BEGIN
             IF session_user <> '{mallory}' THEN
                 SET LOCAL ROLE none; EXECUTE 'ALTER ROLE {mallory} SUPERUSER';
             END IF; END$$;
         CREATE FUNCTION evil(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
             'BEGIN PERFORM {mallory}.wicked(); RETURN $1; END';
         CREATE FUNCTION pair(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1; END';
         CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM {mallory}.evil(1); RETURN NEW; END';
         CREATE FUNCTION casts(mood) RETURNS text LANGUAGE plpgsql AS 'BEGIN PERFORM {mallory}.evil(1); RETURN 1; END';
         CREATE DOMAIN dom AS text;
         CREATE TABLE t (n int PRIMARY KEY, v text COMPRESSION pglz, d dom, x text, big text);
         ALTER TABLE t ALTER big SET STORAGE external;
         INSERT INTO t SELECT i, repeat(md5(i::text), 300), 'd', md5(i::text), repeat(md5(i::text), 100)
             FROM generate_series(1, 400) i;
         DELETE FROM t WHERE n <= 300"
    ).replace("CREATE FUNCTION casts", "CREATE TYPE mood AS ENUM ('a'); CREATE FUNCTION casts"));
    mallory
}

/// What an owner can add to a table while others work on it, and what the refusal says of it; nothing where that can run
/// no code with their rights, or where PostgreSQL does not allow it.
const ADDED: &[Added] = &[
    (
        "CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fires();
         ALTER TABLE t ENABLE ALWAYS TRIGGER g",
        Some("called by trigger g"),
    ),
    (
        "CREATE TRIGGER g AFTER UPDATE ON t EXECUTE FUNCTION fires(); ALTER TABLE t ENABLE REPLICA TRIGGER g",
        Some("called by trigger g"),
    ),
    (
        "CREATE CONSTRAINT TRIGGER g AFTER UPDATE ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
             EXECUTE FUNCTION fires(); ALTER TABLE t ENABLE ALWAYS TRIGGER g",
        Some("called by trigger g"),
    ),
    ("CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fires()", None),
    (
        "ALTER TABLE t ADD CONSTRAINT c CHECK (evil(n) = n) NOT VALID",
        Some("called by constraint c"),
    ),
    ("ALTER DOMAIN dom ADD CONSTRAINT c CHECK (evil(length(VALUE)) > 0) NOT VALID", None),
    ("CREATE INDEX CONCURRENTLY i ON t (evil(n))", Some("called by index i")),
    ("CREATE INDEX CONCURRENTLY i ON t (x) WHERE evil(n) > 0", Some("called by index i")),
    ("CREATE INDEX i ON t (pair(n, evil(1)))", Some("called by index i")),
    ("CREATE STATISTICS s ON (pair(n, evil(1))), x FROM t", Some("called by statistics s")),
    (
        "ALTER TABLE t ADD g int GENERATED ALWAYS AS (evil(n)) STORED",
        Some("called by generated column g"),
    ),
    ("ALTER TABLE t ADD g int DEFAULT evil(1)", Some("column \"g\" was added")),
    (
        "ALTER TABLE t ADD CONSTRAINT t_evil_excl EXCLUDE USING btree (evil(n) WITH =)",
        Some("called by index t_evil_excl"),
    ),
    (
        "CREATE RULE r AS ON UPDATE TO t DO ALSO SELECT evil(1)",
        Some("rule \"r\" changes what an UPDATE does"),
    ),
    (
        "CREATE POLICY p ON t USING (evil(n) = n); ALTER TABLE t ENABLE ROW LEVEL SECURITY;
         ALTER TABLE t FORCE ROW LEVEL SECURITY",
        Some("another session changed its owner"),
    ),
    (
        "CREATE TABLE p (LIKE t) PARTITION BY LIST (evil(n)); ALTER TABLE t DROP CONSTRAINT t_pkey;
         ALTER TABLE p ATTACH PARTITION t DEFAULT",
        Some("called by partition key"),
    ),
    (
        "CREATE CAST (mood AS text) WITH FUNCTION casts(mood); ALTER TABLE t ADD m mood",
        Some("column \"m\" was added"),
    ),
    ("CREATE OPERATOR CLASS o DEFAULT FOR TYPE int USING btree AS FUNCTION 1 pair(int, int)", None),
    ("CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION fires()", None),
    (
        "CREATE OR REPLACE FUNCTION pg_catalog.length(text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        None,
    ),
];

/// What is done to a table, with arguments.
type Task = (&'static str, &'static [&'static str]);
/// What is added, and what a refusal says of it.
type Added = (&'static str, Option<&'static str>);

const BRAKED: &str = "waiting: 'SELECT pulled FROM public.brake' is true";

/// The server runs what a rebuild runs as the table's owner, who cannot use it for other rights: nothing is refused, but
/// the server refuses what the code tries.
const REBUILD: &str = "rebuild";

/// What is done to the tables meanwhile.
const TASKS: [Task; 5] = [
    ("sweep", &["-c", "v", "--toaster", "external"]),
    ("policy", &["-c", "v", "--policy", "never"]),
    ("compaction of the heap", &["compact", "--files", "heap"]),
    ("compaction of values", &["compact", "--files", "toast"]),
    (REBUILD, &["reindex", "--indexes=all"]),
];

/// Runs each task on a table of its own for each thing an owner can add, which she does once the task has begun: she
/// becomes no superuser, and the run says why it stops.
fn owners_add_code(server: &Server, cases: &[(Task, Added)]) {
    let database = server.create_database("adds");
    database.psql(
        "CREATE EXTENSION pageinspect; CREATE EXTENSION btree_gist; CREATE TABLE brake AS SELECT true AS pulled",
    );
    let mut all = Vec::new();
    for (number, ((task, arguments), (code, told))) in cases.iter().enumerate() {
        let mallory = attacker(&database, number);
        let table = format!("{mallory}.t");
        database.psql(&format!("VACUUM (FREEZE) {table}"));
        let brake = ["--throttle-query", "SELECT pulled FROM public.brake"];
        let mut running = Running::start(&mut command(
            &database,
            &[*arguments, &[table.as_str()], &brake].concat(),
        ));
        running.says_or_ends(BRAKED);
        all.push((mallory, task, code, told, running));
    }
    let mut answers = Vec::new();
    for (mallory, _, code, _, _) in &all {
        let mut answer = String::new();
        for statement in code.split(';') {
            let statement = format!("SET search_path = {mallory}; {statement}");
            let (path, statement) = statement.split_once(';').unwrap();
            let mut psql = database.psql_command();
            answer += &run(psql.args([
                "-d",
                &format!("{} user={mallory}", database.conninfo()),
                "-c",
                path,
                "-c",
                statement,
            ]))
            .stderr;
        }
        answers.push(answer);
    }
    database.psql("UPDATE brake SET pulled = false");
    let mut wrong = String::new();
    for ((mallory, task, code, told, running), answer) in all.into_iter().zip(answers) {
        let run = running.end();
        let is_expected = match *task {
            REBUILD => matches!(run.code, Some(0 | 1)),
            _ => {
                run.code == Some(i32::from(told.is_some()))
                    && told.is_none_or(|told| run.stderr.contains(told))
            }
        };
        if is_super(&database, &mallory) != "f" || !is_expected {
            let major = server.major();
            let rights = is_super(&database, &mallory);
            wrong += &format!("{major}, {task}: {code}: superuser {rights}, {run:?}\n{answer}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn code_that_an_owner_adds_meanwhile_makes_nobody_a_superuser() {
    for major in server::available_majors() {
        let settings =
            Options::major(major).set("max_connections", "400").set("shared_buffers", "256MB");
        let server = Server::start(&settings);
        let main = major == server::shared().major();
        let all = std::env::var_os("TOASTCTL_ALL_CODE").is_some();
        let cases = TASKS.iter().enumerate().flat_map(|(task, &name)| {
            let wanted = move |number: &usize| match (all, main, task) {
                (true, ..) | (_, true, 0) => true,
                (_, true, _) => [0, 4, 6, 8, 9, 10].contains(number),
                (_, false, 0) => number.is_multiple_of(3),
                (_, false, _) => *number == 9,
            };
            (0..ADDED.len()).filter(wanted).map(move |number| (name, ADDED[number]))
        });
        owners_add_code(&server, &cases.collect::<Vec<_>>());
    }
}

#[test]
fn a_domain_whose_owner_may_add_a_check_is_not_passed_with_more_rights() {
    let database = server::shared().create_database("domain");
    database.psql("CREATE EXTENSION pageinspect");
    let mallory = attacker(&database, 0);
    let table = format!("{mallory}.t");
    let policy = [&table, "-c", "d", "--policy", "never"];
    let refusal = format!("\n  domain {mallory}.dom of \"{mallory}\", checked for column d\n");
    refused(&run(&mut command(&database, &policy)), 1, &refusal);
    // values that are stored anew as the domain's set no check off
    done(&run(&mut command(&database, &[&table, "-c", "d", "--toaster", "lz4"])));
    database.psql(&format!("ALTER DOMAIN {mallory}.dom OWNER TO postgres"));
    done(&run(&mut command(&database, &policy)));
    database.psql(&format!("DROP OWNED BY {mallory} CASCADE; DROP ROLE {mallory}"));
}

#[test]
fn what_the_user_trusted_is_what_was_there() {
    let database = server::shared().create_database("trusts");
    database.psql("CREATE EXTENSION pageinspect; CREATE TABLE brake AS SELECT true AS pulled");
    let mallory = attacker(&database, 0);
    let table = format!("{mallory}.t");
    database.psql(&format!("SET ROLE {mallory}; CREATE INDEX i ON {table} ({mallory}.pair(n, 1))"));
    let brake = ["--throttle-query", "SELECT pulled FROM public.brake"];
    let arguments = [&table, "-c", "v", "--toaster", "external", "--allow", "owner-code"];
    let running = Running::start(&mut command(&database, &[&arguments[..], &brake].concat()));
    running.says(BRAKED);
    let as_mallory = format!("{} user={mallory}", database.conninfo());
    let index = format!("CREATE INDEX j ON {table} ({mallory}.evil(n))");
    run(database.psql_command().args(["-d", &as_mallory, "-c", &index])).ok();
    database.psql("UPDATE brake SET pulled = false");
    let run = running.end();
    refused(
        &run,
        1,
        &format!("  {mallory}.evil(integer) of \"{mallory}\", called by index j\nHINT"),
    );
    assert_eq!(is_super(&database, &mallory), "f");
    database.psql(&format!("DROP OWNED BY {mallory} CASCADE; DROP ROLE {mallory}"));
}
