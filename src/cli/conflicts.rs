//! Options that cannot be used together: what to do instead.

/// Pairs of options, each of one and each of the other list. ONE and OTHER in a hint stand for the two that were given.
const CONFLICTS: [(&[&str], &[&str], &str); 14] = [
    (
        &["--dbname"],
        &["--dbname"],
        "--targets FILE runs on several databases, and --all on all of the server.",
    ),
    (&["--quiet"], &["--verbose..."], "-q says less and -v says more: leave out one of them."),
    (
        &["--emit"],
        &["--format"],
        "--emit prints nothing but the SQL or the command: leave out --format.",
    ),
    (
        &["--explain"],
        &["--policy", "--method"],
        "--explain is about what is stored now: toastctl advise-threshold TABLE OTHER ... compares policies.",
    ),
    (
        &["--explain"],
        &["--exclude", "--exclude-schema"],
        "--explain is about tables that are named: leave out OTHER.",
    ),
    (&["--explain"], &["--jobs"], "--explain reads by one connection: leave out --jobs."),
    (
        &["--explain"],
        &["--relation-file", "--pageinspect", "--flavor"],
        "--explain reads tables of a server: leave it out, or OTHER.",
    ),
    (
        &["--sort", "--limit", "--parts", "--max-time", "--compare", "--fail-on"],
        &["--details", "--policy", "--explain", "--relation-file", "--pageinspect"],
        "ONE is for the overview of several tables, in place of which OTHER prints a full report: leave out one of them.",
    ),
    (
        &["--compare"],
        &["--column", "--parts"],
        "--compare is about all columns and tables of a database: leave out OTHER.",
    ),
    (
        &["--relation-file", "--pageinspect", "--datum"],
        &[
            "--host",
            "--port",
            "--username",
            "--dbname",
            "--password",
            "--no-password",
            "--allow",
            "--source",
            "--jobs",
            "--scan-toast",
            "--node-address",
        ],
        "ONE is read without a server: leave out OTHER.",
    ),
    (
        &["--targets"],
        &["--host", "--port", "--dbname", "--password"],
        "The file of --targets names the servers and databases: leave out OTHER.",
    ),
    (
        &["--schema"],
        &["[TABLE]..."],
        "-n takes all tables of a schema: leave it out and name the table SCHEMA.TABLE, or leave out the table.",
    ),
    (
        &["--toaster"],
        &["--policy"],
        "--toaster converts all values and --policy only some of them, value by value: leave out one of them.",
    ),
    (
        &["--from-toaster"],
        &[
            "--toaster",
            "--policy",
            "--column",
            "--target",
            "--checkpoint",
            "--since",
            "--compact",
            "--reindex",
            "--undo",
        ],
        "--from-toaster converts everything back to the default toaster: leave out OTHER.",
    ),
];

/// What to do about two arguments, as clap names them, that cannot be used together.
pub(super) fn conflict(one: &str, other: &str) -> Option<String> {
    let first = name(one);
    let second = name(other);
    CONFLICTS.iter().find_map(|(ones, others, hint)| {
        let as_given = ones.contains(&first) && others.contains(&second);
        let reversed = ones.contains(&second) && others.contains(&first);
        if as_given {
            Some(hint.replace("ONE", first).replace("OTHER", second))
        } else if reversed {
            Some(hint.replace("ONE", second).replace("OTHER", first))
        } else {
            None
        }
    })
}

/// The name of an argument without its value.
fn name(argument: &str) -> &str {
    argument.split([' ', '=']).next().unwrap_or(argument).trim_end_matches('[')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_in_which_options_were_given_does_not_matter() {
        let hint = "--explain reads by one connection: leave out --jobs.";
        assert_eq!(conflict("--explain", "--jobs <N>").as_deref(), Some(hint));
        assert_eq!(conflict("--jobs <N>", "--explain").as_deref(), Some(hint));
        let hint = conflict("--dbname <DBNAME>", "--relation-file <FILE>").unwrap();
        assert_eq!(hint, "--relation-file is read without a server: leave out --dbname.");
        let hint = conflict("--details", "--max-time <TIME>").unwrap();
        assert!(hint.starts_with("--max-time is for the overview"), "{hint}");
        assert!(hint.contains("which --details prints"), "{hint}");
        assert_eq!(conflict("--quiet", "--port <PORT>"), None);
    }
}
