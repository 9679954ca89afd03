//! Examples, files and permissions of the verbs.

use super::Manual;

/// The manual of a verb, if it has one.
pub fn manual(verb: &str) -> Option<&'static Manual> {
    MANUALS.iter().find(|manual| manual.verb == verb)
}

/// All of them.
pub const MANUALS: &[Manual] = &[INSPECT, ADVISE, RETOAST];

const INSPECT: Manual = Manual {
    verb: "inspect",
    examples: &[
        ("Which columns eat the disk, in ten seconds", "toastctl inspect -d shop"),
        (
            "The same of a very large database, with the free space and dead rows of each table",
            "toastctl inspect -d shop --sort unused --max-time 5min --precision 1%",
        ),
        (
            "Each partition by itself, for a program",
            "toastctl inspect events --parts --format json",
        ),
        ("The full report of every table, the largest first", "toastctl inspect -d shop --details"),
        (
            "One table, with the connection as psql takes it",
            "toastctl inspect -h db1 -U dba -d shop public.orders",
        ),
        (
            "A table of a terabyte in seconds, with confidence intervals",
            "toastctl inspect big --sample 1%",
        ),
        (
            "What a read and an UPDATE of each column cost today, and why",
            "toastctl inspect orders --explain",
        ),
        (
            "Which keys make the documents large, and what a small one would cost in a column of its own",
            "toastctl inspect orders --jsonb-keys doc",
        ),
        (
            "The same two levels deeper, of a backup's files",
            "toastctl inspect --relation-file base/5/16384 --toast-file base/5/16387 --columns @columns.json --jsonb-keys --depth 3",
        ),
        ("For a program", "toastctl inspect orders --format json"),
        ("Without a superuser's rights", "toastctl inspect orders --source functions"),
        (
            "How much complies with a policy",
            "toastctl inspect orders --policy chunk-saving --method lz4",
        ),
        ("Is anything damaged, in the whole database", "toastctl inspect --check -d shop"),
        (
            "The same of one table, with what is in its values, for a program",
            "toastctl inspect orders --check --deep --format jsonl",
        ),
        (
            "Save what is left of damaged values, and see the SQL that makes their rows readable",
            "toastctl inspect orders --check --salvage left",
        ),
        (
            "Before a backup's relation is trusted",
            "toastctl inspect --check --relation-file base/5/16384 --toast-file base/5/16387 --xact pg_xact --columns @columns.json",
        ),
        ("Every value with its form and place", "toastctl inspect orders --values --format csv"),
        ("One value taken apart", "toastctl inspect --value 'orders.doc@(0,1)'"),
        (
            "Save what can be read of a damaged table",
            "toastctl inspect orders --values --reassemble --output-dir salvage",
        ),
        (
            "A relation file of a stopped server",
            "toastctl inspect --relation-file base/5/16384 --toast-file base/5/16387 --columns @columns.json",
        ),
        (
            "What somebody has sent of pageinspect's output",
            "toastctl inspect --pageinspect items.txt --columns 'id int4, doc jsonb'",
        ),
        (
            "The same, where pointers of pluggable TOAST are known to be of one layout",
            "toastctl inspect --relation-file base/5/16384 --columns @columns.json --flavor 32-bit",
        ),
        (
            "A datum out of a debugger",
            "toastctl inspect --datum '\\x0112ec030000100100400500000006000000'",
        ),
    ],
    files: &[("DIR of --output-dir", "A file for each value; its name is in the report.")],
    permissions: &[
        ("SQL functions", "GRANT CONNECT ON DATABASE, USAGE ON SCHEMA and SELECT ON the tables."),
        (
            "pages",
            "A superuser, and CREATE EXTENSION pageinspect in the database; it is never created \
             unasked. Then figures are exact, and forms and places of values are known. --check on a \
             server needs them.",
        ),
        ("--policy", "Also TEMPORARY on the database, which PUBLIC has unless it was revoked."),
    ],
};

const ADVISE: Manual = Manual {
    verb: "advise-threshold",
    examples: &[
        ("What other settings would store and cost", "toastctl advise-threshold orders"),
        ("The same of the five largest tables", "toastctl advise-threshold -d shop"),
        (
            "One column, and size counts most",
            "toastctl advise-threshold orders --column doc --optimize size",
        ),
        ("What would lz4 give", "toastctl advise-threshold orders --method lz4 --storage extended"),
        (
            "Which toast_tuple_target",
            "toastctl advise-threshold orders --target 2032 --target 4080 --target 8160",
        ),
        ("Is a policy worth it", "toastctl advise-threshold orders --policy best --method either"),
        (
            "For a table that is read a hundred times for each write, from all of its rows",
            "toastctl advise-threshold orders --reads-per-write 100 --sample 100%",
        ),
        (
            "What the terms mean, and what each choice brings with it",
            "toastctl advise-threshold orders --details",
        ),
        ("The statements alone, for a migration", "toastctl advise-threshold orders --emit sql"),
        ("The command alone, for a script", "toastctl advise-threshold orders --emit command"),
        (
            "What would it give to move two keys of the documents to columns of their own",
            "toastctl advise-threshold orders --column doc --extract status,customer",
        ),
        (
            "Which keys would that pay most for",
            "toastctl advise-threshold orders --column doc --extract auto",
        ),
        (
            "The script that moves them, to be read before it is run",
            "toastctl advise-threshold orders --column doc --extract status,customer --emit sql",
        ),
        ("Size against cost as a picture", "toastctl advise-threshold orders --plot"),
    ],
    files: &[],
    permissions: &[
        (
            "SQL functions",
            "The right SELECT on the table, and TEMPORARY on the database, which PUBLIC has unless it was \
             revoked: the server compresses the sample in a temporary table, so that a standby \
             will not do. Row security must not hide rows.",
        ),
        (
            "pages",
            "A superuser, and CREATE EXTENSION pageinspect in the database: without a temporary \
             table, on standbys too, damaged values passed over, and pluggable toasters estimated; --extract \
             needs them.",
        ),
    ],
};

const RETOAST: Manual = Manual {
    verb: "retoast",
    examples: &[
        (
            "What it would do, how long it would take, what could be in its way",
            "toastctl retoast orders --column doc --toaster lz4 --dry-run",
        ),
        (
            "Convert from pglz to lz4 while the application runs",
            "toastctl retoast orders --column doc --toaster lz4",
        ),
        (
            "At night only, for three hours; the same command goes on the next night",
            "toastctl retoast orders --column doc --toaster lz4 --max-runtime 10800 --throttle-query \"SELECT localtime BETWEEN '05:00' AND '22:00'\"",
        ),
        (
            "In the row as long as it fits a page",
            "toastctl retoast orders --column doc --toaster main=lz4",
        ),
        (
            "With another toast_tuple_target",
            "toastctl retoast orders --column doc --toaster lz4 --target 4080",
        ),
        (
            "Value by value, what is worth compressing",
            "toastctl retoast orders --column doc --policy chunk-saving --method lz4",
        ),
        (
            "The same every night, of what is new (toastctl-runbooks(7) has the crontab entry)",
            "toastctl retoast orders --column doc --policy chunk-saving --method lz4 --since /var/lib/toastctl/orders.json --max-runtime 10800",
        ),
        (
            "In shorter transactions, and vacuumed more often",
            "toastctl retoast orders --column doc --toaster lz4 --batch-ms 20 --max-bloat 2",
        ),
        (
            "On a large table, several transactions at a time",
            "toastctl retoast orders --column doc --toaster lz4 --jobs 4",
        ),
        (
            "Out of the way of logical subscribers with origin = none",
            "toastctl retoast orders --column doc --toaster lz4 --replication-origin toastctl",
        ),
        (
            "Give the empty space inside the files back, as they are stored now",
            "toastctl retoast orders --compact",
        ),
        ("How short the files would get", "toastctl retoast orders --compact --dry-run"),
        (
            "Rebuild bloated indexes beside the application",
            "toastctl retoast orders --reindex --checkpoint orders.checkpoint",
        ),
        ("Everything away from a pluggable toaster", "toastctl retoast --from-toaster my_toaster"),
    ],
    files: &[
        (
            "FILE of --checkpoint",
            "How far scanning is, and which rebuilds of indexes were begun; removed when all is done.",
        ),
        ("FILE of --since", "What the last run that reached the policy has seen; written anew."),
    ],
    permissions: &[
        (
            "the table's owner",
            "or a member of it, for ALTER TABLE, UPDATE and VACUUM; TEMPORARY on the database.",
        ),
        (
            "pg_monitor",
            "or pg_read_all_stats, to see replicas and other sessions and wait for them.",
        ),
        (
            "GRANT SET ON PARAMETER session_replication_role",
            "(15 and later) to silence ordinary triggers; else --allow-triggers lets them fire.",
        ),
        (
            "pg_read_all_settings, GRANT EXECUTE ON FUNCTION pg_stat_file(text)",
            "to see the server's free space over a Unix socket; else --disk-limit.",
        ),
        (
            "pg_read_all_data",
            "(17 and later; before, a superuser and pageinspect) for --compact of the TOAST relation; \
             to rebuild its index.",
        ),
        (
            "a superuser and pageinspect",
            "to see pages: exact, and needed on servers with pluggable TOAST.",
        ),
    ],
};
