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
    intro: &["A policy sees how small compression made a value, and keeps or refuses the result. \
              inspect --policy counts what complies, advise-threshold --policy predicts, \
              retoast --policy rewrites."],
    items: &[
        ("always", "Everything that PostgreSQL keeps compressed: what servers do by themselves."),
        ("never", "Nothing."),
        ("chunk-saving[=1]", "What saves at least so many chunks of the TOAST relation."),
        ("ratio[=0.95]", "What takes at most this part of the uncompressed size."),
        ("chunk-floor[=100]", "Below so many chunks everything, from there on what saves a chunk."),
        (
            "hybrid[=0.90]",
            "As ratio, and also where leaving it uncompressed would cost more extra chunks than \
             the binary logarithm of the chunks it has.",
        ),
        ("best", "What the cost model of advise-threshold finds cheaper."),
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
        ("unknown", "Compressed; before 17 only pages tell where."),
        ("Raw, Stored, Ratio", "Bytes uncompressed, bytes on disk, and the first by the second."),
        ("Chunks", "Pieces of up to 1996 bytes in the TOAST relation."),
        ("Share", "Part of the table's files, of all tables part of the database's."),
        ("Unused", "Free space and dead rows in the files of a table and its TOAST relation."),
        ("CPU/read", "Time to decompress and copy one value."),
        ("Buffers/read", "Pages of TOAST relation and index that one read visits."),
        ("WAL/update", "Bytes of WAL for an UPDATE that changes the value."),
        ("Pareto front", "Settings that no other beats in size and in reading alike."),
    ],
};

/// `toastctl help advice`.
pub const ADVICE: Topic = Topic {
    name: "advice",
    about: "the findings of inspect, the worst first",
    intro: &[
        "Each has a command that acts on it, and none changes the exit code. Under 1 MB, or 1000 rows, \
              nothing is told, nor what a sample leaves in doubt. --format json says why each matters. Files \
              and whole pages have those that take no settings: idle-compression, dead-rows, free-space, \
              dropped-column, short-last-chunk.",
    ],
    items: &MEANINGS,
};

/// `toastctl help findings`.
pub const FINDINGS: Topic = Topic {
    name: "findings",
    about: "the codes of check, and what each means",
    intro: &[
        "The codes never change their meaning. All are errors but TC025, a warning, and TC080, a notice: \
              that is no damage, and leaves the exit code 0.",
    ],
    items: &[
        ("TC001 to TC004", "Page: header, checksum, new but not empty, unreadable."),
        (
            "TC010 to TC013",
            "Line pointer: no tuple, wrong redirect, shared bytes, broken update chain.",
        ),
        (
            "TC020 to TC027",
            "Tuple header: t_hoff, too many attributes, t_infomask, xmin, xmax, null bitmap, hint \
             bit against pg_xact (--xact), MultiXact.",
        ),
        ("TC030 to TC033", "Attribute: past the end, length, bytes left over."),
        (
            "TC040 to TC046",
            "TOAST pointer: tag, method, HEAP_HASEXTERNAL, relation, raw size, stored size, value ID.",
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
    about: "queries for --throttle-query, which waits while one is true",
    intro: &[
        "The query runs once a second. Change the numbers, and join several: SELECT (query) OR \
              (query). --max-wait ends such a wait too, with exit code 4. SIGUSR1 pauses, SIGUSR2 goes on.",
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
        ("0", "Everything was done. Of retoast: the last scan has found nothing left to do."),
        (
            "1",
            "Something could not be read or done; the messages name table, block and item, or the \
             server's error. Fix the cause and run the command again. Of retoast also \"not verified\": \
             without pages nobody sees which values are out of line, which --target, main, plain or a policy \
             (before 17) decide.",
        ),
        ("2", "Bad arguments or bad input; nothing was done. The HINT says what is possible."),
        (
            "3",
            "The connection could not be made, or was lost. Nothing needs cleaning up: run the command \
             again when the server is back.",
        ),
        ("4", "Stopped on request: signal, --max-runtime or --max-wait. The same command goes on."),
        (
            "5",
            "check has found damage; the findings say what and where. Else 0, or 1 if not all \
             was looked at.",
        ),
        (
            "6",
            "Of retoast: all rows are done, and others hold space that the compaction was to give back: by a \
             lock, a snapshot, or rows at the end of a file. The report says which. Of several tables the \
             worst code counts: 0, then 6, 1, 4.",
        ),
    ],
};

/// Managed services, for every verb.
pub const MANAGED: &[Item] = &[
    (
        "Amazon RDS, Aurora",
        "rds_superuser is no superuser, so pages are out of reach: the verbs use SQL functions. \
         It may GRANT pg_monitor to other roles.",
    ),
    (
        "Google Cloud SQL",
        "cloudsqlsuperuser has not the attribute SUPERUSER, and nobody can get it: as above.",
    ),
    (
        "Azure Database",
        "azure_pg_admin is NOSUPERUSER, the superuser is Microsoft's own: as above.",
    ),
];

/// `toastctl help permissions`.
pub const PERMISSIONS: Topic = Topic {
    name: "permissions",
    about: "what the role needs, verb by verb",
    intro: &[
        "dba is the role that connects, app the schema, shop the database, app_owner the tables' \
         owner. Files, saved output and --datum need nothing.",
        "Managed services (RDS, Aurora, Cloud SQL, Azure) give nobody a superuser: pages are out \
         of reach there, and the verbs use SQL functions; see toastctl-inspect(1).",
    ],
    items: &[
        (
            "inspect",
            "GRANT CONNECT ON DATABASE shop TO dba; GRANT USAGE ON SCHEMA app TO dba; GRANT SELECT \
             ON ALL TABLES IN SCHEMA app TO dba. Exact figures, and check: a superuser, CREATE EXTENSION \
             pageinspect.",
        ),
        (
            "advise-threshold",
            "As above, and GRANT TEMPORARY ON DATABASE shop TO dba; or pages, as above.",
        ),
        (
            "retoast",
            "GRANT app_owner TO dba; to see replicas and sessions GRANT pg_monitor TO dba; to \
             silence triggers GRANT SET ON PARAMETER session_replication_role TO dba (15 and \
             later). A superuser with pageinspect has everything.",
        ),
    ],
};

/// `toastctl help json`.
pub const JSON: Topic = Topic {
    name: "json",
    about: "output for programs",
    intro: &["--format json prints one document, --format jsonl one a line. Each has a field \
              \"schema\" with name and version; fields are only ever added. Bytes are integers, \
              what is not known is null or absent."],
    items: &[
        ("toastctl help json inspect", "The JSON Schema of inspect's report of one table."),
        ("toastctl help json overview", "That of inspect's overview of several."),
        ("toastctl help json advise-threshold", "That of advise-threshold."),
        ("toastctl help json check", "That of check."),
        ("toastctl help json retoast", "That of retoast."),
        ("toastctl inspect --format json | jq .columns", "All columns, the largest first."),
    ],
};
