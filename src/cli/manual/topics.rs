//! The topics of `toastctl help`.

use crate::cli::manual::{Item, Topic};
use crate::cli::settings;
use crate::findings::code::MEANINGS;
use crate::retoast::pace::metrics::THROTTLE_QUERIES;

/// All topics.
pub const TOPICS: [Topic; 9] =
    [POLICIES, FORMS, ADVICE, FINDINGS, SETTINGS, THROTTLE, EXIT_CODES, PERMISSIONS, JSON];

/// `toastctl help policies`.
pub const POLICIES: Topic = Topic {
    name: "policies",
    about: "which values stay compressed, decided value by value",
    intro: &[
        "A policy compares the compressed size of each value with its raw size, and decides which \
              form is stored. inspect --policy counts the values that comply, advise-threshold --policy \
              predicts sizes, and retoast --policy rewrites values.",
    ],
    items: &[
        ("always", "Values are compressed wherever PostgreSQL compresses them by itself."),
        ("never", "No value is compressed."),
        ("chunk-saving[=1]", "Compressed if that saves at least this many TOAST chunks."),
        ("ratio[=0.95]", "Compressed if that takes at most this fraction of the raw size."),
        ("chunk-floor[=100]", "Compressed below this many chunks; above, if it saves a chunk."),
        (
            "hybrid[=0.90]",
            "As ratio; a compressed value of N chunks also stays compressed if it would take more \
             than log2(N) additional chunks uncompressed.",
        ),
        ("best", "Whichever the cost model of advise-threshold finds cheaper."),
        ("--method either", "Tries pglz and lz4 and keeps the smaller result."),
    ],
};

/// `toastctl help forms`.
pub const FORMS: Topic = Topic {
    name: "forms",
    about: "how a value can be stored, and the terms of the reports",
    intro: &[],
    items: &[
        ("short, plain", "In the row, uncompressed, with a header of 1 or 4 bytes."),
        ("compressed", "In the row, compressed with pglz or lz4."),
        ("external", "In the TOAST relation, uncompressed; the row has a pointer."),
        ("external_compressed", "In the TOAST relation, compressed."),
        ("missing", "Not in the row: the column was added with a default."),
        ("custom", "A pointer of a pluggable toaster."),
        ("unknown", "Compressed, but where is not known (before 17, without pageinspect)."),
        (
            "Raw, Stored, Ratio",
            "Uncompressed size, stored size, and raw size divided by stored size.",
        ),
        ("Chunks", "Pieces of up to 1996 bytes in the TOAST relation."),
        ("Share", "Percentage of the table's size; in the overview, of the database."),
        ("Unused", "Free space and dead rows in the files of a table and its TOAST relation."),
        ("CPU/read", "Time to decompress and copy one value."),
        ("Buffers/read", "Pages of TOAST relation and index that one read visits."),
        ("WAL/update", "Bytes of WAL for an UPDATE that changes the value."),
        ("Pareto front", "Settings for which no other is as good in everything and better in one."),
    ],
};

/// `toastctl help advice`.
pub const ADVICE: Topic = Topic {
    name: "advice",
    about: "suggestions of inspect, the most important first",
    intro: &[
        "Each comes with a command, and none changes the exit code. Smaller tables (1 MB or 1000 rows) \
              get none; nor is there one if the sample is too small to support it. --format json explains \
              each. From files, only idle-compression, dead-rows, free-space, dropped-column and \
              short-last-chunk can be given.",
    ],
    items: &MEANINGS,
};

/// `toastctl help findings`.
pub const FINDINGS: Topic = Topic {
    name: "findings",
    about: "the codes of check, and what each means",
    intro: &[
        "The codes never change their meaning. All are errors, except TC014 and TC025 (warnings), TC006 and TC080 \
              (notices). Notices are not damage, and leave the exit code at 0.",
    ],
    items: &[
        (
            "TC001 to TC007",
            "Page: header, checksum, new but not empty, unreadable, of another block, of zeros.",
        ),
        (
            "TC010 to TC014",
            "Line pointer: no tuple, wrong redirect, shared bytes, broken update chain, wrong t_ctid.",
        ),
        (
            "TC020 to TC028",
            "Tuple header: t_hoff, too many attributes, t_infomask, xmin, xmax, null bitmap, hint \
             bit against pg_xact (--xact), MultiXact, xvac.",
        ),
        ("TC030 to TC033", "Attribute: past the end, length, bytes left over."),
        (
            "TC040 to TC047",
            "TOAST pointer: tag, method, HEAP_HASEXTERNAL, relation, raw size, stored size, value ID, value ID of two rows.",
        ),
        (
            "TC050 to TC058",
            "Chunks: none, one missing, early end, a number twice, a wrong number, size, NULL, \
             compressed, unreadable.",
        ),
        ("TC060 to TC062", "Compressed data: in the row, out of line, against the pointer."),
        ("TC070 to TC073", "Content (--deep): jsonb, encoding, numeric, array."),
        (
            "TC080 to TC083",
            "TOAST relation: no row refers (no damage), index entry missing, or wrong, index unreadable.",
        ),
        ("TC090 to TC094", "Pluggable toaster: pointer, version, TID, patch, list of TIDs."),
    ],
};

/// `toastctl help settings`.
pub const SETTINGS: Topic = Topic {
    name: "settings",
    about: "what --set NAME=VALUE changes, with the defaults",
    intro: &["For retoast, compact and reindex. --set can be repeated."],
    items: &settings::SETTINGS,
};

/// `toastctl help throttle`.
pub const THROTTLE: Topic = Topic {
    name: "throttle",
    about: "sample queries for --throttle-query",
    intro: &[
        "The query runs once a second; toastctl waits while it returns true. Adapt the numbers. To \
              combine queries, use SELECT (query) OR (query). --max-wait ends such a wait too, with exit \
              code 4. Signal SIGUSR1 pauses toastctl, SIGUSR2 resumes it.",
    ],
    items: &THROTTLE_QUERIES,
};

/// `toastctl help exit-codes`.
pub const EXIT_CODES: Topic = Topic {
    name: "exit-codes",
    about: "what each exit code says, and what to do then",
    intro: &["The numbers never change their meaning. Data goes to standard output, everything \
              else to standard error."],
    items: &[
        ("0", "Success. For retoast: the final scan found nothing left to do."),
        (
            "1",
            "Something could not be read or done; the messages name table, block and item, or the \
             server's error. Fix the cause and run the command again. For retoast also \"not verified\": \
             --target, main, plain and (before 17) policies depend on which values are out of line, and that \
             cannot be seen without pageinspect.",
        ),
        ("2", "Bad arguments or bad input; nothing was done. The HINT says what is possible."),
        (
            "3",
            "The connection could not be made, or was lost. Nothing needs cleaning up: run the command \
             again when the server is back.",
        ),
        (
            "4",
            "Stopped by a signal, --max-runtime or --max-wait. Run the command again to continue.",
        ),
        (
            "5",
            "check found damage; the findings say what and where. (Without damage it exits with 0, or \
             with 1 if something could not be checked.)",
        ),
        (
            "6",
            "All rows are done, but compaction could not return all free space, because other sessions hold \
             a lock or snapshot, or wrote rows at the end of a file. The report says which. With several \
             tables, the exit code is the worst of them: 0, 6, 1, 4.",
        ),
    ],
};

/// Managed services, for every verb.
pub const MANAGED: &[Item] = &[
    (
        "Amazon RDS, Aurora",
        "rds_superuser is no superuser, so pageinspect cannot be used: the verbs use SQL functions. \
         It may GRANT pg_monitor to other roles.",
    ),
    ("Google Cloud SQL", "cloudsqlsuperuser does not have the attribute SUPERUSER: as above."),
    ("Azure Database", "azure_pg_admin is NOSUPERUSER: as above."),
];

/// `toastctl help permissions`.
pub const PERMISSIONS: Topic = Topic {
    name: "permissions",
    about: "what the role needs, verb by verb",
    intro: &[
        "dba is the role that connects, app the schema, shop the database, app_owner the tables' \
         owner. Files, saved output and --datum need nothing.",
        "Managed services (RDS, Aurora, Cloud SQL, Azure) do not grant superuser, so pageinspect cannot \
         be used there, and the verbs use SQL functions; see toastctl-inspect(1).",
    ],
    items: &[
        (
            "inspect",
            "GRANT CONNECT ON DATABASE shop TO dba; GRANT USAGE ON SCHEMA app TO dba; GRANT SELECT \
             ON ALL TABLES IN SCHEMA app TO dba. Exact figures, and the verb check, need a superuser and CREATE \
             EXTENSION pageinspect.",
        ),
        (
            "advise-threshold",
            "As above, and GRANT TEMPORARY ON DATABASE shop TO dba; or a superuser with pageinspect.",
        ),
        (
            "retoast",
            "GRANT app_owner TO dba; to see replicas and sessions GRANT pg_monitor TO dba; to \
             disable triggers GRANT SET ON PARAMETER session_replication_role TO dba (15 and \
             later). A superuser with pageinspect has everything.",
        ),
    ],
};

/// `toastctl help json`.
pub const JSON: Topic = Topic {
    name: "json",
    about: "output for programs",
    intro: &[
        "--format json prints one document, --format jsonl one document per line. Each has a field \
              \"schema\" with name and version. Fields may be added, but are never removed. Sizes are \
              integers in bytes; unknown values are null or absent.",
    ],
    items: &[
        (
            "toastctl help json inspect",
            "The JSON Schema of inspect's document, for one table or many.",
        ),
        ("toastctl help json advise-threshold", "That of advise-threshold."),
        ("toastctl help json check", "That of check."),
        ("toastctl help json keys", "That of keys, also with --extract."),
        ("toastctl help json retoast", "That of retoast, compact and reindex."),
        ("toastctl inspect --format json | jq .columns", "All columns, the largest first."),
    ],
};
