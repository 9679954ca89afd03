//! The topics of `toastctl help`.

use crate::cli::manual::{Item, Topic};
use crate::cli::settings;
use crate::findings::code::MEANINGS;
use crate::inspect::overview::figures::MEANINGS as MEANINGS_OF_FIGURES;
use crate::retoast::pace::metrics::THROTTLE_QUERIES;

pub const TOPICS: [Topic; 12] = [
    POLICIES,
    FORMS,
    FINDINGS,
    LOW_FINDINGS,
    ALARMS,
    DAMAGE,
    SETTINGS,
    THROTTLE,
    EXIT_CODES,
    PERMISSIONS,
    FILES,
    JSON,
];

pub const POLICIES: Topic = Topic {
    name: "policies",
    about: "rules that decide for each value whether it is compressed",
    intro: &[
        "A policy is a rule of toastctl, not of PostgreSQL: it compares the compressed size of each value \
              with its raw size, and decides which of the two is stored. inspect --policy counts the values that \
              comply, advise-threshold --policy predicts sizes, and retoast --policy rewrites values; new values \
              follow the column's setting until the next retoast.",
    ],
    items: &[
        ("always", "Values are compressed wherever PostgreSQL compresses them by itself."),
        ("never", "No value is compressed."),
        ("chunk-saving[=1]", "Compressed if that saves at least this many TOAST chunks."),
        ("ratio[=0.95]", "Compressed if the result is at most this fraction of the raw size."),
        ("chunk-floor[=100]", "Compressed below this many chunks, or if it saves a chunk."),
        (
            "hybrid[=0.90]",
            "As ratio; a compressed value of N chunks also stays compressed if it would take more \
             than log2(N) additional chunks uncompressed.",
        ),
        ("best", "Whichever the cost model of advise-threshold finds cheaper."),
        ("--method either", "Tries pglz and lz4 and keeps the smaller result."),
    ],
};

pub const FORMS: Topic = Topic {
    name: "forms",
    about: "how a value can be stored, and the terms of the reports",
    intro: &["A value is in the row or out of line: in chunks in the table's TOAST relation."],
    items: &[
        ("short, plain", "In the row, uncompressed, with a header of 1 or 4 bytes."),
        ("compressed", "In the row, compressed with pglz or lz4."),
        ("external", "In the TOAST relation, uncompressed; the row has a pointer."),
        ("external_compressed", "In the TOAST relation, compressed."),
        ("missing", "Not in the row: the column was added with a default."),
        ("custom", "Stored by a pluggable toaster; the row has its pointer."),
        (
            "unknown",
            "Without pages: in the row or out of line, uncompressed or (before 17) compressed.",
        ),
        ("Raw, Stored, Ratio", "Uncompressed size, stored size, and their quotient."),
        ("Chunks", "Pieces of up to 1996 bytes in the TOAST relation."),
        ("Share", "Percentage of the table (in overviews, of the database)."),
        ("Free", "Free space and dead rows of the table and TOAST relation."),
        ("CPU/read", "CPU time to decompress and copy one value."),
        ("Buffers", "Pages of the TOAST relation and index visited per read."),
        ("WAL/update", "Bytes of WAL for an UPDATE that changes the value."),
        ("Pareto front", "Settings that no other beats in one respect without losing in another."),
    ],
};

pub const FINDINGS: Topic = Topic {
    name: "findings",
    about: "high- and medium-severity findings of inspect",
    intro: &[
        "Each has a command. Tables under 1 MB are left out; some need 1000 rows or values. (N %) is the smallest share \
         reported. See also low-findings.",
    ],
    items: MEANINGS.0,
};

pub const LOW_FINDINGS: Topic = Topic {
    name: "low-findings",
    about: "low-severity findings of inspect",
    intro: &["See also findings. They change the exit code only with --fail-on. For files: \
              idle-compression, dead-rows, free-space, dropped-column, short-last-chunk."],
    items: MEANINGS.1,
};

pub const ALARMS: Topic = Topic {
    name: "alarms",
    about: "figures and conditions of inspect --fail-on and monitoring",
    intro: &[
        "A condition is high, medium or low (a finding at least as severe), or compares a figure of all selected \
         tables: >, >=, < or <=. The exit code is 7 if one is met, 1 if that is unknown. With nagios, the milder \
         of two thresholds is the warning; without conditions, medium findings are warnings, high ones critical. For cron: `toastctl inspect -d shop -q --fail-on medium >/dev/null`.",
    ],
    items: &MEANINGS_OF_FIGURES,
};

pub const DAMAGE: Topic = Topic {
    name: "damage",
    about: "the codes of damage that check reports",
    intro: &[
        "Codes keep their meaning. All are errors but TC014, TC015 and TC025 (warnings), and TC006 and TC080 (notices, \
              with which the exit code is still 0).",
    ],
    items: &[
        (
            "TC001 to TC009",
            "Page: header, checksum, new but not empty, unreadable, of another block, of zeros; none in use.",
        ),
        (
            "TC010 to TC016",
            "Line pointer: no tuple, wrong redirect, shared bytes, broken update chain, wrong t_ctid. Page: LSN beyond the WAL, changed although all-visible in the map.",
        ),
        (
            "TC020 to TC029",
            "Tuple header: t_hoff, too many attributes, t_infomask, xmin, xmax, null bitmap, hint \
             bit against pg_xact (--xact), MultiXact, xvac, all-visible page.",
        ),
        ("TC030 to TC033", "Attribute: past the end, length, bytes left over."),
        (
            "TC040 to TC047",
            "TOAST pointer: tag, method, HEAP_HASEXTERNAL, relation, raw size, stored size, value ID, value ID of two rows.",
        ),
        (
            "TC050 to TC058",
            "Chunks: none, one missing, early end, duplicate number, wrong number, size, NULL, \
             compressed, unreadable.",
        ),
        (
            "TC060 to TC062",
            "Compressed data: bad in the row, bad out of line, or unlike the pointer.",
        ),
        ("TC070 to TC074", "Content (--deep): jsonb, encoding, numeric, array, others."),
        (
            "TC080 to TC083",
            "TOAST relation: chunks without a row (not damage); index entry missing or wrong; index unreadable.",
        ),
        ("TC090 to TC094", "Pluggable toaster: pointer, version, TID, patch, list of TIDs."),
    ],
};

pub const SETTINGS: Topic = Topic {
    name: "settings",
    about: "--set NAME=VALUE (repeatable) of retoast, compact and reindex",
    intro: &["on-end does not follow --dry-run; if it fails, exit codes 0 and 6 become 1."],
    items: &settings::SETTINGS,
};

pub const THROTTLE: Topic = Topic {
    name: "throttle",
    about: "sample queries for --throttle-query",
    intro: &[
        "The query runs once a second; toastctl waits while it returns true. Adapt the numbers. To \
              combine queries, use SELECT (query) OR (query). max-wait (--set) limits this wait too (exit code 4). \
              The WAL rate is the average since the last checkpoint. Signal SIGUSR1 pauses toastctl, SIGUSR2 resumes it.",
    ],
    items: &THROTTLE_QUERIES,
};

pub const EXIT_CODES: Topic = Topic {
    name: "exit-codes",
    about: "what each exit code means, and what to do",
    intro: &["The numbers never change their meaning. Messages go to standard error."],
    items: &[
        ("0", "Success. For retoast: the final scan found nothing left to do."),
        (
            "1",
            "Something could not be read or done; the messages name table, block and item, or the \
             server's error; a table or column does not exist. Fix the cause and run the command again. retoast also uses it for \"not verified\": \
             --target and main (before 17 also plain and policies) can be verified only with pageinspect.",
        ),
        ("2", "Bad arguments or bad input; nothing was done. The HINT says what is possible."),
        (
            "3",
            "The connection could not be made, or was lost. Run the command again when the server is back.",
        ),
        (
            "4",
            "Stopped by a signal, --max-time or the setting max-wait. Run the command again to continue.",
        ),
        ("5", "check found damage. Without damage: 0, or 1 if not all was checked."),
        (
            "6",
            "All rows are done, but compaction could not return all free space, because other sessions hold \
             a lock or snapshot, or wrote rows at the end of a file. The report says which. With several \
             tables or databases, the exit code is the worst, in the order 0, 6, 1, 7, 2, 3, 4, 5.",
        ),
        ("7", "A condition of inspect --fail-on is met: toastctl help alarms."),
    ],
};

/// Managed services, for every verb.
pub const MANAGED: &[Item] = &[
    (
        "Amazon RDS, Aurora",
        "rds_superuser is not a superuser, so pageinspect cannot be used: verbs use SQL functions instead. check can \
         then read only files and saved output, and inspect --explain is not available. \
         rds_superuser may GRANT pg_monitor to other roles.",
    ),
    ("Google Cloud SQL", "cloudsqlsuperuser is not a superuser either: the same applies."),
    ("Azure Database", "azure_pg_admin is not a superuser either: the same applies."),
];

pub const PERMISSIONS: Topic = Topic {
    name: "permissions",
    about: "what the role needs, verb by verb",
    intro: &[
        "Every role sees how large tables are; readers have inspect, keys and advise-threshold, owners also \
         retoast, compact and reindex, superusers all. Files need no privileges. Examples: role dba, database \
         shop, schema app with tables of app_owner. Where these use functions in SQL or PL/pgSQL, run as \
         app_owner (toastctl help safety).",
    ],
    items: &[
        (
            "inspect",
            "GRANT CONNECT ON DATABASE shop TO dba; GRANT USAGE ON SCHEMA app TO dba; GRANT SELECT \
             ON ALL TABLES IN SCHEMA app TO dba.",
        ),
        ("keys", "As inspect; keys --extract as advise-threshold."),
        (
            "check, value",
            "A superuser, and CREATE EXTENSION pageinspect; other verbs then give exact figures.",
        ),
        ("advise-threshold", "As inspect, and GRANT TEMPORARY ON DATABASE shop TO dba."),
        (
            "retoast",
            "GRANT app_owner TO dba; GRANT TEMPORARY ON DATABASE shop TO dba; to see replicas and sessions \
             GRANT pg_monitor TO dba; to keep triggers from firing GRANT SET ON PARAMETER \
             session_replication_role TO dba (15 and later); to watch free space \
             GRANT pg_read_all_settings TO dba, and EXECUTE ON FUNCTION pg_stat_file(text). Or what check needs.",
        ),
        (
            "compact, reindex",
            "As retoast; for TOAST relations also pg_read_all_data (17 and later; before, as check).",
        ),
    ],
};

pub const FILES: Topic = Topic {
    name: "files",
    about: "relation files and saved output, without a server",
    intro: &[
        "inspect, check, value and keys read the files of a table from a server that was shut down, or from a restored \
         backup. While the server runs, this names the two files, below its data directory: SELECT \
         pg_relation_filepath(oid), pg_relation_filepath(reltoastrelid) FROM pg_class WHERE oid = 'orders'::regclass. \
         If it does not start: a restored backup has the same names, unless the table was rewritten since.",
    ],
    items: &[
        ("--relation-file FILE", "The table's own file: segments (.1, .2) are found."),
        (
            "--columns LIST",
            "Its columns as in \\d, in their order, as in 'id int4, doc jsonb'; dropped ones too, as in 'old dropped(-1,i)'.",
        ),
        (
            "--toast-file FILE",
            "That of its TOAST relation: without it, large values are not looked at.",
        ),
        ("--xact pg_xact", "Tells which rows are live where no hint bit does."),
        (
            "--pageinspect FILE",
            "In place of files: what pageinspect has printed, as in psql -c \"SELECT * FROM \
             heap_page_items(get_raw_page('orders', 0))\" > FILE.",
        ),
    ],
};

pub const JSON: Topic = Topic {
    name: "json",
    about: "output for programs",
    intro: &[
        "--format json prints one document, --format jsonl (and json about several databases) one per line. Each has a field \
              \"schema\" with name and version. Fields may be added, but are never removed. Sizes are \
              integers in bytes; unknown values are null or absent.",
    ],
    items: &[
        (
            "toastctl help json inspect",
            "The JSON Schema of inspect's document, for one table or many.",
        ),
        (
            "toastctl help json VERB",
            "The JSON Schema of advise-threshold, check, keys or retoast (also of compact and reindex); \
             retoast-progress has that of --set progress=json and log=FILE, and fleet that of the lines about \
             several databases (--all, --targets).",
        ),
        ("toastctl inspect --format json | jq .columns", "All columns, the largest first."),
    ],
};
