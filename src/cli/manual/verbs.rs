//! Examples, files and permissions of the verbs.

use super::Manual;
use toast_format::disk::columns::QUERY;

/// The manual of a verb, if it has one.
pub fn manual(verb: &str) -> Option<&'static Manual> {
    MANUALS.iter().find(|manual| manual.verb == verb)
}

pub const MANUALS: &[Manual] = &[INSPECT, CHECK, VALUE, KEYS, ADVISE, RETOAST, COMPACT, REINDEX];

/// What a relation file's columns are, as FILE for `@FILE`.
const COLUMNS_FILE: (&str, &str) =
    ("@FILE of --columns; psql -XAt prints it with this query", QUERY);

const PAGES: &str =
    "A superuser, and CREATE EXTENSION pageinspect in the database; toastctl never creates it.";

const READ: (&str, &str) =
    ("SQL functions", "GRANT CONNECT ON DATABASE, USAGE ON SCHEMA and SELECT ON the tables.");

const INSPECT: Manual = Manual {
    verb: "inspect",
    examples: &[
        ("what takes the space", "toastctl inspect -d shop"),
        ("changes since a run", "toastctl inspect -d shop --compare monday.json"),
        ("one table in full", "toastctl inspect orders"),
        ("what reads and updates cost", "toastctl inspect orders --explain"),
        ("a table of a terabyte in seconds", "toastctl inspect big --sample 1%"),
        (
            "a very large database, with the free space and dead rows of each table",
            "toastctl inspect -d shop --sort unused --max-time 5min",
        ),
        (
            "each partition by itself, for a program",
            "toastctl inspect events --parts --format json",
        ),
        ("the full report of every table, the largest first", "toastctl inspect -d shop --details"),
        (
            "with connection options, as for psql",
            "toastctl inspect -h db1 -U dba -d shop public.orders",
        ),
        ("without superuser privileges", "toastctl inspect orders --source functions"),
        (
            "exit code 7 if more than 10 GB are free, or a table is nearly out of value IDs",
            "toastctl inspect -d shop --fail-on 'free_space>10GB' --fail-on 'value_id_ratio>50%'",
        ),
        (
            "a page for a browser, to show to others",
            "toastctl inspect -d shop --format html > shop.html",
        ),
        (
            "metrics for Prometheus's textfile collector, with series of the 20 largest tables",
            "toastctl inspect -d shop --format openmetrics --limit 20",
        ),
        (
            "a Nagios service: warning from 10 GB of free space, critical from 50 GB",
            "toastctl inspect -d shop --format nagios --fail-on 'free_space>10GB' --fail-on 'free_space>50GB'",
        ),
        (
            "one ranking of all databases of all servers in a file",
            "toastctl inspect --targets servers.txt --all",
        ),
        (
            "how many values comply with a policy",
            "toastctl inspect orders --policy chunk-saving --method lz4",
        ),
        (
            "a relation file of a stopped server",
            "toastctl inspect --relation-file base/5/16384 --toast-file base/5/16387 --columns @columns.json",
        ),
        (
            "saved output of pageinspect",
            "toastctl inspect --pageinspect items.txt --columns 'id int4, doc jsonb'",
        ),
        (
            "a file whose pluggable TOAST pointers are known to have one layout",
            "toastctl inspect --relation-file base/5/16384 --columns @columns.json --flavor 32-bit",
        ),
    ],
    files: &[COLUMNS_FILE],
    permissions: &[
        READ,
        (
            "pages",
            "A superuser, and CREATE EXTENSION pageinspect in the database; toastctl never creates it. With \
             pageinspect, figures are exact, and it is known how and where each value is stored.",
        ),
        ("--policy", "Also TEMPORARY on the database; PUBLIC has it unless it was revoked."),
    ],
};

const CHECK: Manual = Manual {
    verb: "check",
    examples: &[
        ("check the whole database", "toastctl check -d shop"),
        ("one table, contents too", "toastctl check orders --deep"),
        ("save the readable parts", "toastctl check orders --salvage damaged"),
        ("findings for a program, one per line", "toastctl check orders --deep --format jsonl"),
        ("all databases of a server", "toastctl check -h db1 --all"),
        (
            "a backup's relation, before it is trusted",
            "toastctl check --relation-file base/5/16384 --toast-file base/5/16387 --xact pg_xact --columns @columns.json",
        ),
    ],
    files: &[
        (
            "DIR of --salvage",
            "The bytes of damaged values, and of values without a row; manifest.jsonl with one line per value; rows.sql and repair.sql.",
        ),
        COLUMNS_FILE,
    ],
    permissions: &[("pages", PAGES)],
};

const VALUE: Manual = Manual {
    verb: "value",
    examples: &[
        ("show one value in detail", "toastctl value orders.doc@id=42"),
        ("the largest values of a column", "toastctl value orders -c doc --limit 10"),
        ("all values", "toastctl value orders --format csv"),
        ("save all that can be read", "toastctl value orders --reassemble=intact"),
        ("save one value", "toastctl value orders.doc@id=42 --reassemble=saved"),
        (
            "a datum copied from a debugger",
            "toastctl value --datum '\\x0112ec030000100100400500000006000000'",
        ),
        (
            "a value of a relation file",
            "toastctl value --relation-file base/5/16384 --toast-file base/5/16387 --columns @columns.json 'doc@(0,1)'",
        ),
    ],
    files: &[
        (
            "DIR of --reassemble",
            "One file per value: TABLE.BLOCK.ITEM.NUMBER.COLUMN.EXTENSION, with the column's number.",
        ),
        COLUMNS_FILE,
    ],
    permissions: &[READ, ("pages", PAGES)],
};

const KEYS: Manual = Manual {
    verb: "keys",
    examples: &[
        ("which keys cost most", "toastctl keys orders -c doc"),
        ("two levels deeper", "toastctl keys orders -c doc --depth 3"),
        ("which keys are worth a column", "toastctl keys orders -c doc --extract auto"),
        (
            "what would change if two keys had columns of their own",
            "toastctl keys orders -c doc --extract status,customer",
        ),
        (
            "the script that moves them, to be read before it is run",
            "toastctl keys orders -c doc --extract status,customer --emit sql",
        ),
        (
            "the documents in a backup's files",
            "toastctl keys --relation-file base/5/16384 --toast-file base/5/16387 --columns @columns.json",
        ),
    ],
    files: &[COLUMNS_FILE],
    permissions: &[
        READ,
        ("--extract", "Also TEMPORARY on the database; PUBLIC has it unless it was revoked."),
    ],
};

const ADVISE: Manual = Manual {
    verb: "advise-threshold",
    examples: &[
        ("compare other settings", "toastctl advise-threshold orders"),
        ("the five largest tables", "toastctl advise-threshold -d shop"),
        ("lz4, for the five largest", "toastctl advise-threshold --method lz4"),
        (
            "one column, smallest size preferred",
            "toastctl advise-threshold orders -c doc --optimize size",
        ),
        (
            "which toast_tuple_target",
            "toastctl advise-threshold orders --target 2032 --target 4080 --target 8160",
        ),
        ("one storage with one method", "toastctl advise-threshold orders --toaster lz4"),
        (
            "whether a policy is worth it",
            "toastctl advise-threshold orders --policy best --method either",
        ),
        (
            "read every row, assuming 100 reads per write",
            "toastctl advise-threshold orders --reads-per-write 100 --sample 100%",
        ),
        (
            "what the terms mean, and the caveats of each candidate",
            "toastctl advise-threshold orders --details",
        ),
        ("the statements alone, for a migration", "toastctl advise-threshold orders --emit sql"),
        ("the command alone, for a script", "toastctl advise-threshold orders --emit command"),
        (
            "CPU times of this server, measured once and kept",
            "toastctl advise-threshold orders --calibration prices.json",
        ),
        (
            "without temporary tables, where pages can be read",
            "toastctl advise-threshold orders --calibrate never",
        ),
    ],
    files: &[(
        "FILE of --calibration",
        "CPU prices in nanoseconds, with the system identifier and the major version of their server, in JSON.",
    )],
    permissions: &[
        (
            "SQL functions",
            "The SELECT privilege on the table, and TEMPORARY on the database (PUBLIC has it unless it was revoked), because the server \
             compresses the sample in a temporary table. This does not work on a standby, or if row security hides \
             rows.",
        ),
        (
            "pages",
            "A superuser, and CREATE EXTENSION pageinspect in the database. With pageinspect, a temporary table is needed only \
             for calibration, standbys work too, damaged values are skipped, and pluggable toasters are estimated.",
        ),
        (
            "--calibrate",
            "TEMPORARY on the database. Copies of values are written to temporary tables, which no other session sees, and \
             are rolled back; nothing else is written. Standbys, and databases whose transactions are read-only by \
             default, are not calibrated.",
        ),
    ],
};

const RETOAST: Manual = Manual {
    verb: "retoast",
    examples: &[
        ("the plan", "toastctl retoast t -c doc --toaster lz4 --dry-run"),
        ("convert, online", "toastctl retoast t -c doc --toaster lz4"),
        ("and return freed space", "toastctl retoast t -c doc --toaster lz4 --compact"),
        (
            "undo: the settings that the run has printed as \"to restore\", then the values, by the former setting",
            "toastctl retoast t -c doc --toaster pglz",
        ),
        (
            "at night only, for three hours; run the same command every night until it is done",
            "toastctl retoast orders -c doc --toaster lz4 --max-time 3h --throttle-query \"SELECT localtime BETWEEN '05:00' AND '22:00'\"",
        ),
        (
            "keep values in the row if the row fits on a page",
            "toastctl retoast orders -c doc --toaster main=lz4",
        ),
        (
            "with another toast_tuple_target",
            "toastctl retoast orders -c doc --toaster lz4 --target 4080",
        ),
        (
            "compress only the values that are worth it",
            "toastctl retoast orders -c doc --policy chunk-saving --method lz4",
        ),
        (
            "the same every night for new values (toastctl help runbooks has the crontab entry)",
            "toastctl retoast orders -c doc --policy chunk-saving --method lz4 --since /var/lib/toastctl/orders.json --max-time 3h",
        ),
        (
            "in shorter transactions, and vacuumed more often",
            "toastctl retoast orders -c doc --toaster lz4 --set batch-ms=20 --set max-bloat=2%",
        ),
        (
            "a large table, with several transactions at the same time",
            "toastctl retoast orders -c doc --toaster lz4 --jobs 4",
        ),
        (
            "hidden from logical subscribers with origin = none",
            "toastctl retoast orders -c doc --toaster lz4 --set replication-origin=toastctl",
        ),
        (
            "with a log of its progress, and a command that receives the result as JSON",
            "toastctl retoast orders -c doc --toaster lz4 --set log=toastctl.jsonl --set on-end='cat >result.json'",
        ),
        (
            "in many databases, one of each server at a time; the next run skips those that are done",
            "toastctl retoast orders -c doc --toaster lz4 --targets shops.txt --checkpoint shops.checkpoint",
        ),
        (
            "convert everything back from a pluggable toaster",
            "toastctl retoast --from-toaster my_toaster",
        ),
    ],
    files: &[
        CHECKPOINT_FILE,
        (
            "FILE of --since",
            "State of the last run after which all values complied; each such run overwrites it.",
        ),
    ],
    permissions: WRITE,
};

const COMPACT: Manual = Manual {
    verb: "compact",
    examples: &[
        ("how small files would be", "toastctl compact orders --dry-run"),
        ("return free space, online", "toastctl compact orders"),
        ("indexes too", "toastctl compact orders --reindex"),
        ("only the TOAST relation", "toastctl compact orders --files toast"),
    ],
    files: &[CHECKPOINT_FILE],
    permissions: WRITE,
};

const REINDEX: Manual = Manual {
    verb: "reindex",
    examples: &[
        ("which indexes are bloated", "toastctl reindex orders --dry-run"),
        ("rebuild those, online", "toastctl reindex orders"),
        ("rebuild every index", "toastctl reindex orders --indexes all"),
        (
            "record progress, so that the next run cleans up after a kill",
            "toastctl reindex orders --checkpoint orders.checkpoint",
        ),
    ],
    files: &[CHECKPOINT_FILE],
    permissions: REBUILD,
};

const CHECKPOINT_FILE: (&str, &str) = (
    "FILE of --checkpoint",
    "How far the scan has got, which index rebuilds were started, and what the columns were set to before; removed when \
     everything is done.",
);

const MONITOR: (&str, &str) =
    ("pg_monitor", "Or pg_read_all_stats, to see replicas and other sessions and wait for them.");

const FREE_SPACE: (&str, &str) = (
    "pg_read_all_settings, GRANT EXECUTE ON FUNCTION pg_stat_file(text)",
    "To watch the server's free space over a Unix socket; otherwise use --set disk-limit=SIZE.",
);

/// For verbs that update no row.
const REBUILD: &[(&str, &str)] = &[
    ("owner of the table", "Or a member of the owning role, for REINDEX and DROP INDEX."),
    MONITOR,
    FREE_SPACE,
    ("pg_read_all_data", "To rebuild the index of a TOAST relation (or a superuser)."),
    ("a superuser and pageinspect", "To compute the size of a rebuilt index from its pages."),
];

const WRITE: &[(&str, &str)] = &[
    (
        "owner of the table",
        "Or a member of the owning role, for ALTER TABLE, UPDATE and VACUUM; also TEMPORARY on the database.",
    ),
    MONITOR,
    (
        "GRANT SET ON PARAMETER session_replication_role",
        "(15 and later) To keep ordinary triggers from firing; otherwise use --allow triggers.",
    ),
    FREE_SPACE,
    (
        "pg_read_all_data",
        "To compact a TOAST relation and rebuild its index (17 and later; earlier versions need a superuser and pageinspect).",
    ),
    (
        "a superuser and pageinspect",
        "To read pages: makes figures exact; required on servers with pluggable TOAST.",
    ),
];
