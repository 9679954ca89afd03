//! Every kind of damage alone: what the check finds on a server and in files, what `pg_amcheck` and SQL find, and what
//! the printed SQL leaves. `TOASTCTL_UPDATE_MAN=1 cargo test --test it check_zoo` writes the manual's table.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use toast_format::disk::columns::parse_list;
use toast_format::disk::custom::CustomFlavor;
use toastctl::check::code::Severity;
use toastctl::check::files::{FileOptions, relation_file};
use toastctl::offline::target::FileTarget;
use toastctl::offline::xact::PgXact;
use toastctl::value::contents::md5_hex;

use crate::check_contents;
use crate::support::check_cases::Files;
use crate::support::checked::DEEP;
use crate::support::command::{Run, run, toastctl};
use crate::support::reports::check::{Finding, SalvagedFile};
use crate::support::server::{Database, Options, Server};
use crate::support::table_files::PAGE;
use crate::support::zoo::{All, Kind, LAYOUTS, Layout, kinds};

/// What is asked of the server; each function does not fail whatever the table does.
const FUNCTIONS: &str = r#"
    -- a sum for each value that a row has: its id, column and sum, or ERROR
    CREATE FUNCTION sums(t text, only_item int DEFAULT NULL, only_column text DEFAULT NULL)
    RETURNS SETOF text LANGUAGE plpgsql AS $$
    DECLARE b int; i int; c text; s text; n text; blocks int; BEGIN
        blocks := pg_relation_size(t::regclass) / 8192;
        FOR b IN 0..blocks - 1 LOOP FOR i IN 1..12 LOOP
            CONTINUE WHEN i <> only_item;
            BEGIN
                EXECUTE format('SELECT id FROM %I WHERE ctid = %L', t, format('(%s,%s)', b, i)) INTO n;
            EXCEPTION WHEN OTHERS THEN n := NULL; END;
            CONTINUE WHEN n IS NULL;
            FOR c IN SELECT attname FROM pg_attribute WHERE attrelid = t::regclass AND attnum > 0
                     AND attname = coalesce(only_column, attname) ORDER BY 1 LOOP
                BEGIN
                    EXECUTE format('SELECT coalesce(md5(%I::text), ''NULL'') FROM %I WHERE ctid = %L',
                        c, t, format('(%s,%s)', b, i)) INTO s;
                EXCEPTION WHEN OTHERS THEN s := 'ERROR'; END;
                RETURN NEXT concat_ws(' ', n, c, s);
            END LOOP;
        END LOOP; END LOOP; END$$;
    -- where each row stands, and which transaction wrote it
    CREATE FUNCTION places(t text) RETURNS SETOF text LANGUAGE plpgsql AS $$
    DECLARE b int; i int; s text; BEGIN
        FOR b IN 0..pg_relation_size(t::regclass) / 8192 - 1 LOOP FOR i IN 1..12 LOOP
            BEGIN
                EXECUTE format('SELECT concat(ctid, xmin) FROM %I WHERE ctid = %L', t, format('(%s,%s)', b, i)) INTO s;
            EXCEPTION WHEN OTHERS THEN s := NULL; END;
            IF s IS NOT NULL THEN RETURN NEXT s; END IF;
        END LOOP; END LOOP; END$$;
    -- whether the table can be read as a whole
    CREATE FUNCTION reads(t text) RETURNS text LANGUAGE plpgsql AS $$
    DECLARE n int; BEGIN
        EXECUTE format('SELECT count(t::text) FROM %I AS t', t) INTO n; RETURN n;
    EXCEPTION WHEN OTHERS THEN RETURN 'ERROR'; END$$;
    -- as pg_amcheck does without options
    CREATE FUNCTION amcheck(t text) RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE toast oid; i oid; n int; BEGIN
        SELECT reltoastrelid INTO toast FROM pg_class WHERE oid = t::regclass;
        SELECT count(*) INTO n FROM verify_heapam(t::regclass, check_toast => true);
        IF n > 0 THEN RETURN true; END IF;
        IF toast <> 0 THEN
            SELECT count(*) INTO n FROM verify_heapam(toast::regclass);
            IF n > 0 THEN RETURN true; END IF;
            SELECT indexrelid INTO i FROM pg_index WHERE indrelid = toast;
            PERFORM bt_index_check(i::regclass);
        END IF;
        RETURN false;
    EXCEPTION WHEN OTHERS THEN RETURN true; END$$;
    CREATE FUNCTION rebuilt(t text) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN EXECUTE format('REINDEX TABLE %I', t); RETURN true;
    EXCEPTION WHEN OTHERS THEN RETURN false; END$$;"#;

/// Sums of a table's values by `id column`; of values that cannot be read, `ERROR`.
type Sums = BTreeMap<String, String>;

/// What is found of a kind of damage.
#[derive(Debug, Default, Clone)]
struct Outcome {
    live: BTreeSet<String>,
    /// Whether it is called damage, and not only noted.
    is_damage: bool,
    files: BTreeSet<String>,
    amcheck: bool,
    sql: &'static str,
}

/// Asks the server about every table, at some of which it may crash: these have no answer.
fn ask(
    database: &Database<'_>,
    tables: &[String],
    question: impl Fn(&str) -> String,
) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    let mut left: Vec<&String> = tables.iter().collect();
    while !left.is_empty() {
        let each = left
            .iter()
            .map(|table| format!("SELECT '> {table}'; SELECT {}; SELECT '<';\n", question(table)));
        let answer = psql(database, &each.collect::<String>());
        let mut seen = 0;
        for part in answer.stdout.split("> ").skip(1) {
            let mut lines = part.lines();
            let table = lines.next().unwrap_or_default().to_owned();
            seen += 1;
            let lines: Vec<String> = lines.map(str::to_owned).collect();
            if let Some((last, answers)) = lines.split_last()
                && last == "<"
            {
                all.insert(table, answers.to_vec());
            }
        }
        left.drain(..seen);
        if answer.code == Some(LOST) {
            is_up(database);
        }
    }
    all
}

/// psql's exit code where the server crashed.
const LOST: i32 = 2;

/// Runs statements whether or not one before fails.
fn psql(database: &Database<'_>, sql: &str) -> Run {
    psql_with(database, &[], sql)
}

fn psql_with(database: &Database<'_>, options: &[&str], sql: &str) -> Run {
    let mut command = database.psql_command();
    command
        .args(options)
        .args(["-q", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || drop(input.write_all(sql.as_bytes())));
        child.wait_with_output().unwrap()
    });
    Run {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Waits until the server has recovered.
fn is_up(database: &Database<'_>) {
    for _ in 0..600 {
        // the postmaster learns of a crash a moment later than the client
        std::thread::sleep(Duration::from_millis(100));
        if psql(database, "SELECT 1").code == Some(0) {
            return;
        }
    }
    panic!("{}", database.server().log());
}

fn sums_of(lines: &[String]) -> Sums {
    let mut sums = Sums::new();
    for line in lines {
        let (value, sum) = line.rsplit_once(' ').unwrap();
        sums.insert(value.to_owned(), sum.to_owned());
    }
    sums
}

/// The files of tables: of the table, of its TOAST relation and of its index, where it has these.
fn places(database: &Database<'_>, tables: &[String]) -> Vec<Vec<PathBuf>> {
    let shown = database.psql(
        "SELECT t.relname, pg_relation_filepath(t.oid), pg_relation_filepath(nullif(t.reltoastrelid, 0)),
             pg_relation_filepath(i.indexrelid)
         FROM pg_class AS t LEFT JOIN pg_index AS i ON i.indrelid = t.reltoastrelid
         WHERE t.relnamespace = 'public'::regnamespace AND t.relkind = 'r'",
    );
    let by_name: BTreeMap<&str, Vec<PathBuf>> = shown
        .lines()
        .map(|line| {
            let mut parts = line.split('|');
            let name = parts.next().unwrap();
            let paths = parts.filter(|path| !path.is_empty());
            (name, paths.map(|path| database.server().data_dir().join(path)).collect())
        })
        .collect();
    tables.iter().map(|table| by_name[table.as_str()].clone()).collect()
}

/// Damages a table's files while the server is stopped.
fn damage(kind: &Kind, paths: &[PathBuf]) {
    let read = |at: usize| paths.get(at).map_or_else(Vec::new, |path| std::fs::read(path).unwrap());
    let before = All { files: Files { heap: read(0), toast: read(1) }, index: read(2) };
    let mut all = before.clone();
    (kind.change)(&mut all);
    assert!(
        all.files.heap != before.files.heap
            || all.files.toast != before.files.toast
            || all.index != before.index,
        "{}: {}",
        kind.area,
        kind.name
    );
    for (path, bytes) in paths.iter().zip([&all.files.heap, &all.files.toast, &all.index]) {
        std::fs::write(path, bytes).unwrap();
    }
}

/// The codes of what is found in files of a server that is stopped.
fn in_files(kind: &Kind, paths: &[PathBuf], xact: &PgXact) -> BTreeSet<String> {
    let desc = parse_list(kind.layout.columns()).unwrap();
    let target = FileTarget {
        heap: &paths[0],
        toast: paths.get(1).map(PathBuf::as_path),
        desc: &desc,
        page_size: PAGE,
        flavor: CustomFlavor::Auto,
        xact: Some(xact),
        checksums: None,
        sampling: None,
    };
    let mut codes = BTreeSet::new();
    let tell = &mut |finding: toastctl::check::finding::Finding| {
        codes.insert(match finding.code.severity() != Severity::Notice {
            true => finding.code.name().to_owned(),
            false => format!("({})", finding.code.name()),
        });
        Ok(())
    };
    relation_file(&target, &FileOptions { depth: DEEP, threads: 1 }, &(), None, tell).unwrap();
    codes
}

/// A table of each kind of damage is there twice: with one of them all is tried, in the other indexes are only rebuilt.
const PREFIXES: [&str; 2] = ["zoo", "copy"];

/// A server with a table of each kind of damage for each prefix.
struct Zoo {
    server: Server,
    base: String,
    kinds: Vec<Kind>,
    /// The sums of sound tables.
    originals: BTreeMap<Layout, Sums>,
    /// What is found in the files of the tables of the first prefix.
    in_files: Vec<BTreeSet<String>>,
}

impl Zoo {
    fn new() -> Zoo {
        // what reading marks in an index is to be lost in a crash, and not to be written before
        let options = Options::default().set("checkpoint_timeout", "1h");
        let server = Server::start(&options);
        let database = server.create_database("check_zoo");
        let kinds = kinds();
        let mut sql = format!(
            "CREATE EXTENSION pageinspect; CREATE EXTENSION amcheck; CREATE EXTENSION pg_surgery; {} {FUNCTIONS}",
            check_contents::BEFORE
        );
        LAYOUTS.into_iter().for_each(|layout| sql += &layout.create(&sound(layout)));
        for prefix in PREFIXES {
            for (kind, table) in kinds.iter().zip(tables(prefix, &kinds)) {
                sql += &kind.layout.create(&table);
            }
        }
        database.psql(&(sql + "CHECKPOINT;"));
        let sounds = LAYOUTS.map(sound);
        let original = ask(&database, &sounds, |table| format!("sums('{table}')"));
        let of = |layout| (layout, sums_of(&original[&sound(layout)]));
        let originals = LAYOUTS.into_iter().map(of).collect();
        let places = PREFIXES.map(|prefix| places(&database, &tables(prefix, &kinds)));
        let base = database.name().to_owned();
        std::mem::forget(database);
        server.shut_down();
        for places in &places {
            kinds.iter().zip(places).for_each(|(kind, paths)| damage(kind, paths));
        }
        let xact = PgXact::open(&server.data_dir().join("pg_xact")).unwrap();
        let first = kinds.iter().zip(&places[0]);
        let in_files = first.map(|(kind, paths)| in_files(kind, paths, &xact)).collect();
        server.start_again();
        Zoo { server, base, kinds, originals, in_files }
    }
}

/// The chunks of a table's TOAST relation, each fetched by its address, joined by value: a sum for each.
const CHUNK_SUMS: &str = r#"
    CREATE FUNCTION chunk_sums(t text) RETURNS SETOF text LANGUAGE plpgsql AS $$
    DECLARE toast regclass; b int; i int; blocks int; BEGIN
        SELECT nullif(reltoastrelid, 0) INTO toast FROM pg_class WHERE oid = t::regclass;
        CREATE TEMP TABLE chunks (chunk_id oid, chunk_seq int, chunk_data bytea);
        blocks := pg_relation_size(toast) / 8192;
        FOR b IN 0..coalesce(blocks, 0) - 1 LOOP FOR i IN 1..8 LOOP
            BEGIN
                EXECUTE format('INSERT INTO chunks SELECT * FROM %s WHERE ctid = %L', toast, format('(%s,%s)', b, i));
            EXCEPTION WHEN OTHERS THEN NULL; END;
        END LOOP; END LOOP;
        RETURN QUERY SELECT md5(string_agg(chunk_data, '' ORDER BY chunk_seq)) FROM chunks GROUP BY chunk_id;
        DROP TABLE chunks; END$$;"#;

/// Nothing tells such a row from one that was deleted, of which a loop finds the chunks until VACUUM removes them.
const DELETED: &str = "tuple headers: hint bit says that the row was deleted";

/// A line of the manifest: of which table a file is. Values without a row are of its TOAST relation.
#[derive(serde::Deserialize)]
struct Line {
    relation: String,
    column: String,
    whole: bool,
    guesses: Vec<String>,
    files: Vec<SalvagedFile>,
}

/// A text that is said to be whole, without a guess.
struct WholeText {
    table: String,
    column: String,
    sum: String,
    /// In the manifest.
    line: String,
}

/// Columns of text of [`Layout::Values`].
const TEXTS: [&str; 5] = ["ext", "cmp", "lz", "inl", "sh"];

/// The sums of all files of contents in a directory, by table; and those that are said to be whole, of columns of text.
fn saved_in(
    dir: &std::path::Path,
    owners: &BTreeMap<String, String>,
    texts: &mut Vec<WholeText>,
) -> BTreeMap<String, BTreeSet<String>> {
    let manifest = std::fs::read_to_string(dir.join("manifest.jsonl")).unwrap_or_default();
    let mut saved: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in manifest.lines() {
        let Line { relation, column, whole, guesses, files } = serde_json::from_str(line).unwrap();
        let table = &owners[&relation];
        let sums = saved.entry(table.clone()).or_default();
        let has_value = |kind: &str| ["content", "text", "stored"].contains(&kind);
        for file in files.iter().filter(|file| has_value(&file.kind)) {
            let sum = md5_hex(&std::fs::read(dir.join(&file.file)).unwrap());
            if whole
                && guesses.is_empty()
                && file.kind != "stored"
                && TEXTS.contains(&column.as_str())
            {
                let table = table.clone();
                let line = line.to_owned();
                texts.push(WholeText { table, column: column.clone(), sum: sum.clone(), line });
            }
            sums.insert(sum);
        }
    }
    saved
}

/// One server for all of it: a check takes long, and so does reading what the server crashes at.
#[test]
fn each_kind_of_damage_is_found_saved_and_repaired_without_loss() {
    let zoo = Zoo::new();
    let tables = tables(PREFIXES[0], &zoo.kinds);
    let database = zoo.server.database(&zoo.base);
    let mut outcomes = found(&zoo, &database, &tables);
    let printed = Printed::new(&database, &["zoo_*".to_owned()]);
    printed.has_reasons();
    let salvaged = Salvaged::new(&database, &tables, &printed);
    let reads = reads(&database, &tables);
    let sums = sums(&database, &tables);
    for (at, kind) in zoo.kinds.iter().enumerate() {
        outcomes[at].sql = match (reads[at].as_deref(), &sums[at]) {
            (None, _) | (_, None) => "crash",
            (Some("ERROR"), _) => "error",
            (_, Some(sums)) if *sums != zoo.originals[&kind.layout] => "wrong",
            _ => "-",
        };
    }
    the_manual_says_this(&zoo, &outcomes);
    salvaged.whole_is_what_was_stored(&zoo, &tables);
    salvage_saves_what_loops_save(&zoo, &tables, &salvaged, &sums);
    what_is_printed_loses_nothing(&zoo, &database, printed, &reads, sums);
}

/// What `check --salvage` saves and COPY loads, beside the chunks that a loop finds.
struct Salvaged {
    files: BTreeMap<String, BTreeSet<String>>,
    /// By the name of the table that rows are loaded into.
    in_copies: BTreeMap<String, Sums>,
    chunks: BTreeMap<String, Vec<String>>,
    whole: Vec<WholeText>,
}

impl Salvaged {
    fn new(database: &Database<'_>, tables: &[String], printed: &Printed) -> Salvaged {
        database.psql(CHUNK_SUMS);
        let dir = printed.dir();
        let mut load = database.psql_command();
        let loaded = run(load.args(["-q", "-f"]).arg(dir.join("rows.sql")));
        assert!(loaded.stderr.is_empty(), "{}", loaded.stderr);
        let mut whole = Vec::new();
        let files = saved_in(&dir, &printed.owners, &mut whole);
        let copies = database
            .psql("SELECT relname FROM pg_class WHERE relname LIKE 'zoo%salvaged' ORDER BY 1");
        let copies: Vec<String> = copies.lines().map(str::to_owned).collect();
        let sums = sums(database, &copies).into_iter();
        let sums = sums.map(|sums| sums.expect("what was loaded can be read"));
        let in_copies = copies.iter().cloned().zip(sums).collect();
        let chunks = ask(database, tables, |table| format!("chunk_sums('{table}')"));
        Salvaged { files, in_copies, chunks, whole }
    }

    /// What is said to be whole is what was stored in a row of the table.
    fn whole_is_what_was_stored(&self, zoo: &Zoo, tables: &[String]) {
        let mut wrong = Vec::new();
        for WholeText { table, column, sum, line } in &self.whole {
            let kind = &zoo.kinds[tables.iter().position(|one| one == table).unwrap()];
            let mut originals = zoo.originals[&kind.layout].iter();
            if !originals.any(|(value, own)| own == sum && value.ends_with(&format!(" {column}"))) {
                wrong.push(format!("{}: {}: {line}", kind.area, kind.name));
            }
        }
        println!("texts said to be whole: {}", self.whole.len());
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(self.whole.len() > 20, "{}", self.whole.len());
    }
}

fn salvage_saves_what_loops_save(
    zoo: &Zoo,
    tables: &[String],
    salvaged: &Salvaged,
    by_ctid: &[Option<Sums>],
) {
    let (mut worse, mut by_loop, mut by_salvage) = (Vec::new(), 0, 0);
    for (at, (kind, table)) in zoo.kinds.iter().zip(tables).enumerate() {
        let none = (BTreeSet::new(), Vec::new(), Sums::new());
        let files = salvaged.files.get(table).unwrap_or(&none.0);
        let chunks = salvaged.chunks.get(table).unwrap_or(&none.1);
        let copy = salvaged.in_copies.get(&format!("{table}_salvaged")).unwrap_or(&none.2);
        // where the server crashes, a loop leaves row 2 out
        let originals = &zoo.originals[&kind.layout];
        let mut others = originals.clone();
        others.retain(|value, _| !value.starts_with("2 "));
        let read = by_ctid[at].as_ref().unwrap_or(&others);
        for (value, sum) in originals {
            let is_long = sum != "NULL" && value.ends_with(" ext");
            let is_read = read.get(value) == Some(sum);
            let has_loop = is_read || is_long && chunks.contains(sum);
            let (row, _) = value.split_once(' ').unwrap();
            let is_copied = copy.keys().any(|own| own.split(' ').next() == Some(row));
            // of an update chain, another version of the row may be copied
            let is_other = kind.area == "update chains";
            let is_same = copy.get(value) == Some(sum);
            let in_row = if is_copied && !is_other { is_same } else { is_read };
            let has_salvage = in_row || files.contains(sum);
            by_loop += u32::from(has_loop);
            by_salvage += u32::from(has_salvage);
            let place = format!("{}: {}", kind.area, kind.name);
            let is_given_up = GIVEN_UP.contains(&place.as_str()) || place == DELETED;
            if has_loop && !has_salvage && !is_given_up {
                worse.push(format!("{place}: {value}"));
            }
        }
    }
    println!("values saved by a loop: {by_loop}, by --salvage: {by_salvage}");
    assert!(worse.is_empty(), "{worse:#?}");
    assert!(by_salvage > by_loop, "{by_salvage} {by_loop}");
}

/// The names of the tables of all kinds.
fn tables(prefix: &str, kinds: &[Kind]) -> Vec<String> {
    (0..kinds.len()).map(|at| format!("{prefix}_{at:03}")).collect()
}

/// What the check finds on the server and in files, and what amcheck finds.
fn found(zoo: &Zoo, database: &Database<'_>, tables: &[String]) -> Vec<Outcome> {
    let of = |files: &BTreeSet<String>| Outcome { files: files.clone(), ..Outcome::default() };
    let mut outcomes: Vec<Outcome> = zoo.in_files.iter().map(of).collect();
    let checked = check(database, &["--deep", "-q", "--format", "jsonl", "zoo_*"]);
    assert!(checked.stderr.is_empty(), "{}", checked.stderr);
    let owners = owners(database);
    for line in checked.lines::<Finding>() {
        let table = &owners[&line.relation];
        let outcome = &mut outcomes[tables.iter().position(|one| one == table).unwrap()];
        let is_notice = line.severity == "notice";
        outcome.is_damage |= !is_notice;
        outcome.live.insert(match is_notice {
            true => format!("({})", line.code),
            false => line.code.clone(),
        });
    }
    let amcheck = ask(database, tables, |table| format!("amcheck('{table}')"));
    for (outcome, table) in outcomes.iter_mut().zip(tables) {
        outcome.amcheck = amcheck.get(table).is_none_or(|lines| lines.concat() == "t");
    }
    outcomes
}

fn the_manual_says_this(zoo: &Zoo, outcomes: &[Outcome]) {
    let kinds = &zoo.kinds;
    let missed = kinds.iter().zip(outcomes).filter(|(_, of)| of.amcheck && !of.is_damage);
    let missed: Vec<&str> = missed.map(|(kind, _)| kind.name.as_str()).collect();
    assert_eq!(missed, [""; 0], "amcheck finds these");
    let page = page(kinds, outcomes);
    if std::env::var_os("TOASTCTL_UPDATE_MAN").is_some() {
        std::fs::write(PAGE_FILE, &page).unwrap();
    }
    assert!(kinds.len() >= 150, "{}", kinds.len());
    // those of other versions find more or less
    if zoo.server.major() == 15 {
        assert!(
            without_harm(&std::fs::read_to_string(PAGE_FILE).unwrap()) == without_harm(&page),
            "{PAGE_FILE} differs: run TOASTCTL_UPDATE_MAN=1 cargo test --test it check_zoo\n{page}"
        );
    }
}

/// Kinds whose values SQL can read until the printed SQL is run: the server crashes at others like them.
const GIVEN_UP: [&str; 3] = [
    "contents: kv: no new format",
    "contents: pair: attributes",
    "contents: bits: bits behind the end",
];

/// Runs the SQL that is printed, first that of `printed`.
fn what_is_printed_loses_nothing(
    zoo: &Zoo,
    database: &Database<'_>,
    printed: Printed,
    reads_before: &[Option<String>],
    sums_before: Vec<Option<Sums>>,
) {
    let Zoo { kinds, originals, .. } = zoo;
    let [tables, copies] = PREFIXES.map(|prefix| tables(prefix, kinds));
    let before = with_parts(database, &tables, reads_before, sums_before);
    let places = |tables: &[String]| ask(database, tables, |table| format!("places('{table}')"));
    let stood = places(&tables);
    ask(database, &copies, |table| format!("rebuilt('{table}')"));
    let rebuilt = whole_sums(database, &copies, reads_before);
    let rebuilt = with_parts(database, &copies, reads_before, rebuilt);
    let mut repair = Repair { database, give_up: false, errors: String::new() };
    let left = repair.run(printed);
    let reads_after = reads(database, &tables);
    let after = whole_sums(database, &tables, &reads_after);
    let after = with_parts(database, &tables, &reads_after, after);
    let stand = places(&tables);
    // what SQL copies, and what is not of its type, goes only where it is asked for
    repair.give_up = true;
    repair.run(Printed::new(database, &left));
    let errors = repair.errors;
    let last = reads(database, &tables);
    let (mut wrong, mut unread) = (Vec::new(), Vec::new());
    for (at, kind) in kinds.iter().enumerate() {
        // What lies in memory behind a damaged value in the row is read once as this, once as that, or the server crashes at
        // it. Where the rows stand as they did, no statement has changed their values.
        let is_in_row =
            ["attributes", "contents"].contains(&kind.area) && !kind.name.starts_with("big");
        if is_in_row && stood.get(&tables[at]) == stand.get(&tables[at]) {
            if last[at].as_deref().is_none_or(|read| read == "ERROR") {
                unread.push(format!("{}: {}", kind.area, kind.name));
            }
            continue;
        }
        let original = &originals[&kind.layout];
        let is_as_it_was = |sums: &Sums, value: &String| sums.get(value) == original.get(value);
        let lost: Vec<&String> = original
            .keys()
            .filter(|value| {
                [&before[at], &rebuilt[at]].iter().any(|sums| is_as_it_was(sums, value))
            })
            .filter(|value| !is_as_it_was(&after[at], value))
            .collect();
        let place = format!("{}: {}", kind.area, kind.name);
        if !lost.is_empty() {
            wrong.push(format!("{place}: loses {lost:?}"));
        }
        // what stands behind a value in memory is read once as this, once as that: the copy tells
        let is_read = |(value, sum): &(&String, &String)| {
            *sum != "ERROR"
                && original.contains_key(*value)
                && rebuilt[at].get(*value) == Some(*sum)
        };
        let changed = before[at].iter().filter(is_read);
        let changed: Vec<&String> = changed
            .filter(|(value, sum)| {
                after[at].get(*value) != Some(*sum) && !is_as_it_was(&after[at], value)
            })
            .map(|(value, _)| value)
            .collect();
        let is_read_wrong = READ_WRONG.contains(&place.as_str())
            || zoo.server.major() >= 19 && place == READ_WRONG_SINCE_19;
        if !changed.is_empty() && !is_read_wrong {
            wrong.push(format!("{place}: changes {changed:?}"));
        }
        if last[at].as_deref().is_none_or(|read| read == "ERROR") {
            unread.push(place);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}\n{errors}");
    assert_eq!(unread, [""; 0], "{errors}");
}

/// Kinds where SQL reads a row that is broken behind its column; the value that was stored is none of these.
const READ_WRONG: [&str; 2] =
    ["attributes: varlena short", "attributes: short value one byte longer"];

/// The same where columns are found without a look at `t_hoff`.
const READ_WRONG_SINCE_19: &str = "attributes: short value one byte shorter";

/// A check with `--salvage`: what it found and saved, and the SQL that it printed.
struct Printed {
    checked: Run,
    dir: TempDir,
    sql: String,
    owners: BTreeMap<String, String>,
}

impl Printed {
    fn new(database: &Database<'_>, tables: &[String]) -> Printed {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("left");
        let mut args = vec!["--deep", "--format", "jsonl", "--salvage", dir.to_str().unwrap()];
        args.extend(tables.iter().map(String::as_str));
        let checked = check(database, &args);
        is_up(database);
        let sql = std::fs::read_to_string(dir.join("repair.sql")).unwrap_or_default();
        Printed { checked, dir: temp, sql, owners: owners(database) }
    }

    fn dir(&self) -> PathBuf {
        self.dir.path().join("left")
    }

    /// Each table with a finding has a statement, or a comment that says why not.
    fn has_reasons(&self) {
        let named = named_in(&self.sql, &self.owners);
        let found = self.checked.lines::<Finding>();
        let found: BTreeSet<String> =
            found.iter().map(|line| self.owners[&line.relation].clone()).collect();
        let quiet: Vec<&String> = found.difference(&named).collect();
        assert!(found.len() > 100 && quiet.is_empty(), "{quiet:?}");
    }

    /// The tables for which psql runs a statement where these variables are set.
    fn run_with(&self, variables: &[&str]) -> BTreeSet<String> {
        let mut is_run = true;
        let mut statements = String::new();
        for line in self.sql.lines().filter(|line| !line.starts_with("--")) {
            if let Some(condition) = line.strip_prefix("\\if :{?") {
                is_run = condition.strip_suffix('}').is_some_and(|name| variables.contains(&name));
            } else if line == "\\endif" {
                is_run = true;
            } else if is_run {
                statements += &format!("{line}\n");
            }
        }
        named_in(&statements, &self.owners)
    }
}

/// Rounds of checks and of the SQL that they print; in the later ones pages are given up that cannot be read.
const ROUNDS: usize = 7;
const ZEROING: usize = 3;

/// Repairs by the SQL that is printed.
struct Repair<'d> {
    database: &'d Database<'d>,
    /// Whether values are given up where psql must be told to.
    give_up: bool,
    /// What psql said.
    errors: String,
}

impl Repair<'_> {
    /// Runs the SQL that was printed, and what is printed after it, until psql runs no more of it; the tables for which
    /// some is still printed. No table's statements change another table, so that those are not checked again for which
    /// psql skips all.
    fn run(&mut self, mut printed: Printed) -> Vec<String> {
        let (mut zeroes, mut left, mut refused) = (false, BTreeSet::new(), BTreeSet::new());
        for round in 0..ROUNDS {
            zeroes |= round >= ZEROING;
            let mut variables = vec![];
            variables.extend(self.give_up.then_some("give_up"));
            variables.extend(zeroes.then_some("zero_pages"));
            self.psql(round, &printed.sql, &variables);
            let mut tables = printed.run_with(&variables);
            left.extend(printed.run_with(&["give_up"]));
            refused.extend(&printed.run_with(&["zero_pages"]) - &tables);
            zeroes |= tables.is_empty() || round + 1 >= ZEROING;
            if zeroes {
                tables.append(&mut refused);
            }
            left = &left - &tables;
            if tables.is_empty() {
                break;
            }
            let before = printed.sql;
            let tables: Vec<String> = tables.into_iter().collect();
            printed = Printed::new(self.database, &tables);
            if round + 1 > ZEROING && printed.sql == before || round + 1 == ROUNDS {
                left.extend(printed.run_with(&["give_up", "zero_pages"]));
                break;
            }
        }
        left.into_iter().collect()
    }

    fn psql(&mut self, round: usize, sql: &str, variables: &[&str]) {
        let options: Vec<String> = variables.iter().map(|name| format!("--set={name}=1")).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let run = psql_with(self.database, &options, sql);
        self.errors += &format!("round {round}\n{}", run.stderr);
        if run.code == Some(LOST) {
            is_up(self.database);
        }
    }
}

/// The tables that are named in these lines, or whose TOAST relations are.
fn named_in(sql: &str, owners: &BTreeMap<String, String>) -> BTreeSet<String> {
    let words: BTreeSet<&str> =
        sql.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    owners
        .iter()
        .filter(|(relation, _)| words.contains(relation.rsplit('.').next().unwrap()))
        .map(|(_, table)| table.clone())
        .filter(|table| table.starts_with("zoo_"))
        .collect()
}

const PAGE_BEGIN: &str = r#"'\" t
.TH toastctl-damage-kinds 7 "" "toastctl" "toastctl"
.SH NAME
toastctl-damage-kinds \- kinds of damage, and what finds them
.SH DESCRIPTION
One of toastctl's tests damages tables of PostgreSQL 15, each in one way, and writes this page from what it sees.
.TP
check
Codes of the findings of \fBtoastctl check \-\-deep\fR on the server. A code in parentheses is a notice, which leaves the exit code at 0.
.TP
files
The same of the table's files in the directory of a server that was shut down (\fB\-\-relation\-file\fR, \fB\-\-toast\-file\fR, \fB\-\-xact\fR), without the index.
.TP
amcheck
Whether \fBpg_amcheck\fR without options finds anything (verify_heapam, bt_index_check).
.TP
SQL
What reading the table did: an error, a crash of the server, or wrong values or rows without an error. Which of them it is may depend on what lies in memory behind a value that ends too late.
.SH KINDS
"#;
const TABLE_BEGIN: &str = ".TS\nl l l l l.\nkind\tcheck\tfiles\tamcheck\tSQL\n";
const PAGE_END: &str = r#".SH SEE ALSO
.BR toastctl-damage (7),
.BR toastctl-check (1),
.BR pg_amcheck (1)
"#;
const PAGE_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/man/toastctl-damage-kinds.7");

/// A kind whose chunk lies in another page's memory, so that what is found depends on that.
const ELSEWHERE: &str = "toast pointer\t";

/// The page without what depends on memory: which harm it does to read past a value's end, and what is found elsewhere.
fn without_harm(page: &str) -> String {
    let lines = page.lines().map(|line| match line.rsplit_once('\t') {
        _ if line.starts_with(ELSEWHERE) => format!("{ELSEWHERE}\n"),
        Some((cells, "crash" | "error" | "wrong")) => format!("{cells}\tharm\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

/// The manual's table.
fn page(kinds: &[Kind], outcomes: &[Outcome]) -> String {
    let mut page = PAGE_BEGIN.to_owned();
    let mut area = "";
    for (kind, outcome) in kinds.iter().zip(outcomes) {
        if kind.area != area {
            page += if area.is_empty() { "" } else { ".TE\n" };
            area = kind.area;
            page += &format!(".SS {area}\n{TABLE_BEGIN}");
        }
        let list = |codes: &BTreeSet<String>| match codes.is_empty() {
            true => "-".to_owned(),
            false => codes.iter().cloned().collect::<Vec<_>>().join(" "),
        };
        let amcheck = if outcome.amcheck { "yes" } else { "-" };
        let cells = [&kind.name, &list(&outcome.live), &list(&outcome.files), amcheck, outcome.sql];
        page += &(cells.join("\t").replace('-', "\\-") + "\n");
    }
    page += ".TE\n.SH NOT FOUND\nWhat pg_amcheck or SQL notices, and the check on the server does not call damage:\n";
    let missed = kinds
        .iter()
        .zip(outcomes)
        .filter(|(_, outcome)| !outcome.is_damage && (outcome.amcheck || outcome.sql != "-"));
    for (Kind { area, name, .. }, outcome) in missed {
        let seen = if outcome.live.is_empty() { "nothing" } else { "a notice" };
        page += &format!(".IP \\(bu 2\n{area}: {name} ({seen})\n");
    }
    page + PAGE_END
}

/// The sums of each table's values; `None` where the server crashes.
fn sums(database: &Database<'_>, tables: &[String]) -> Vec<Option<Sums>> {
    let read = ask(database, tables, |table| format!("sums('{table}')"));
    tables.iter().map(|table| read.get(table).map(|lines| sums_of(lines))).collect()
}

/// The same of the tables that are read without a crash.
fn whole_sums(
    database: &Database<'_>,
    tables: &[String],
    reads: &[Option<String>],
) -> Vec<Option<Sums>> {
    let whole: Vec<String> = tables
        .iter()
        .zip(reads)
        .filter(|(_, read)| read.is_some())
        .map(|(table, _)| table.clone())
        .collect();
    let mut found = sums(database, &whole).into_iter();
    reads.iter().map(|read| read.as_ref().and_then(|_| found.next().flatten())).collect()
}

/// Adds the sums of tables where the server crashes at a row: rows are asked for one by one, and of the second one what
/// stands first.
fn with_parts(
    database: &Database<'_>,
    tables: &[String],
    reads: &[Option<String>],
    whole: Vec<Option<Sums>>,
) -> Vec<Sums> {
    let crashing = tables.iter().zip(reads).filter(|(_, read)| read.is_none());
    let parts: Vec<String> = crashing
        .flat_map(|(table, _)| {
            ["1", "2, \"id\"", "2, \"ext\"", "3", "4"].map(|part| format!("{table}, {part}"))
        })
        .collect();
    let question = |part: &str| {
        let (table, arguments) = part.split_once(", ").unwrap();
        format!("sums('{table}', {})", arguments.replace('"', "'"))
    };
    let mut by_table: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (part, lines) in ask(database, &parts, question) {
        let (table, _) = part.split_once(", ").unwrap();
        by_table.entry(table.to_owned()).or_default().extend(lines);
    }
    let known = whole.into_iter().map(Option::unwrap_or_default);
    let all = tables.iter().zip(reads).zip(known);
    let all = all.map(|((table, read), whole)| match read {
        Some(_) => whole,
        None => sums_of(by_table.get(table).map_or(&[], Vec::as_slice)),
    });
    all.collect()
}

/// What tables are read as, by their places; `None` where the server crashes.
fn reads(database: &Database<'_>, tables: &[String]) -> Vec<Option<String>> {
    let mut read = ask(database, tables, |table| format!("reads('{table}')"));
    tables.iter().map(|table| read.remove(table).map(|lines| lines.concat())).collect()
}

fn sound(layout: Layout) -> String {
    format!("sound_{layout:?}").to_lowercase()
}

fn check(database: &Database<'_>, args: &[&str]) -> Run {
    run(toastctl().args(["check", "-d", &database.url()]).args(args))
}

/// The tables by their names and those of their TOAST relations, as findings have them.
fn owners(database: &Database<'_>) -> BTreeMap<String, String> {
    let shown = database.psql(
        "SELECT relname, 'public.' || relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
         UNION ALL SELECT relname, 'pg_toast.pg_toast_' || oid || i FROM pg_class, unnest('{\"\",_index}'::text[]) AS i
           WHERE relnamespace = 'public'::regnamespace",
    );
    let pairs = shown.lines().filter_map(|line| line.split_once('|'));
    pairs.map(|(table, relation)| (relation.to_owned(), table.to_owned())).collect()
}
