//! `retoast --maintain`: a crontab entry that repeats the command (pure).
//!
//! cron runs an entry by `sh`, in the home directory, with hardly any environment. So the entry goes to
//! the directory that paths were meant from, and sets the variables that the connection is made by.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::exit::Failure;
use super::retoast::{RetoastArgs, ToasterArg};
use crate::server::connect::{Params, without_password};

/// Variables besides those of connection parameters.
const OTHERS: [&str; 3] = ["HOME", "PGSYSCONFDIR", "PGREQUIRESSL"];

/// What is around the command, which cron does not have.
#[derive(Debug)]
pub(super) struct Around {
    /// The program's file.
    pub(super) program: PathBuf,
    /// The directory that relative paths start from.
    pub(super) directory: PathBuf,
    /// The environment.
    pub(super) environment: BTreeMap<String, String>,
}

/// The entry, with what should be known of it. `words` is the command line without the program.
pub(super) fn entry(
    args: &RetoastArgs,
    words: &[String],
    around: &Around,
) -> Result<String, Failure> {
    let mut command = vec!["cd".to_owned(), word(path(&around.directory)?)?, "&&".to_owned()];
    for name in OTHERS.into_iter().chain(Params::variables()) {
        let value = around.environment.get(name).filter(|value| !value.is_empty());
        if let Some(value) = value.filter(|_| name != "PGPASSWORD") {
            command.push(format!("{name}={}", word(value)?));
        }
    }
    command.push(word(path(&around.program)?)?);
    let (words, mut secret) = repeated(args, words)?;
    for text in &words {
        command.push(word(text)?);
    }
    secret |= around.environment.contains_key("PGPASSWORD");
    if args.max_runtime.is_none() {
        command.push("--max-runtime 10800".into());
    }
    if args.policy.is_some() && args.since.is_none() {
        let home = around.environment.get("HOME").filter(|home| !home.is_empty());
        let file = home.map_or(&*around.directory, Path::new).join(".toastctl-since.json");
        command.push(format!("--since {}", word(path(&file)?)?));
    }
    let mut text = about(args);
    if secret {
        text.push_str("# The password is left out: put it into ~/.pgpass.\n");
    }
    // cron takes a bare percent sign for the end of the line
    text.push_str(&format!("17 3 * * * {}\n", command.join(" ").replace('%', "\\%")));
    Ok(text)
}

/// What the entry does.
fn about(args: &RetoastArgs) -> String {
    let what = match (&args.policy, &args.toaster) {
        (Some(policy), _) => format!(
            "# Brings values written since the last run to the policy {policy}, every night.\n\
             # With --since that is one scan of the heap; without the file, or if the table was rewritten\n\
             # meanwhile, everything is judged anew.\n"
        ),
        (None, Some(toaster)) => format!(
            "# Re-toasts values that are stored otherwise than by {}, every night: new values are stored\n\
             # by it anyway, unless they come compressed from another table. It is one scan of the heap.\n",
            match toaster {
                ToasterArg::Stock(stock) => stock.name(),
                ToasterArg::Named(name) => name,
            }
            .escape_default()
        ),
        (None, None) => String::new(),
    };
    format!(
        "{what}# Exit code 0: all comply; 4: the time was not enough, the next night goes on.\n"
    )
}

/// The arguments that the entry repeats, and whether a password was left out of them.
fn repeated(args: &RetoastArgs, words: &[String]) -> Result<(Vec<String>, bool), Failure> {
    let mut secret = false;
    let mut repeated = Vec::new();
    let not_repeated = ["--maintain", "--dry-run", "-W", "--password", "-v", "-vv", "--verbose"];
    for text in words.iter().filter(|text| !not_repeated.contains(&text.as_str())) {
        // the value may stand in the same word as the option
        let dbname = args.connection.dbname.as_deref().and_then(|dbname| {
            let option = text.strip_suffix(dbname)?;
            ["", "-d", "--dbname="].contains(&option).then_some((option, dbname))
        });
        match dbname.map(|(option, dbname)| (option, without_password(dbname))) {
            Some((option, Some(Ok(uri)))) => {
                secret = true;
                repeated.push(format!("{option}{uri}"));
            }
            Some((_, Some(Err(error)))) => return Err(Failure::from(&error)),
            _ => repeated.push(text.clone()),
        }
    }
    Ok((repeated, secret))
}

fn path(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| cannot_stand(&path.to_string_lossy()))
}

fn cannot_stand(text: &str) -> Failure {
    Failure::usage(format!(
        "--maintain: \"{}\" cannot stand in a crontab\n\
         HINT:  Put the command into a script, and the script into the crontab.",
        text.escape_default()
    ))
}

/// A word as `sh` takes it, without a backslash, which crons read in more than one way.
fn word(text: &str) -> Result<String, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=@+".contains(c);
    if text.contains(|c: char| c == '\\' || c.is_control()) {
        Err(cannot_stand(text))
    } else if !text.is_empty() && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Ok(format!("'{}'", text.replace('\'', "'\"'\"'")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::Parser;

    fn entry_of(words: &[&str]) -> Result<String, Failure> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let line = ["toastctl".to_owned()].into_iter().chain(words.iter().cloned());
        let cli = Cli::try_parse_from(line).unwrap();
        let super::super::Verb::Retoast(args) = cli.verb else { panic!("another verb") };
        let environment = [("HOME", "/home/u"), ("PGHOST", "db"), ("PGPASSWORD", "sesame")];
        let around = Around {
            program: "/opt/toast ctl".into(),
            directory: "/srv".into(),
            environment: environment.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        };
        entry(&args, &words, &around)
    }

    #[test]
    fn the_command_is_repeated_with_what_is_around_it() {
        let words = ["retoast", "t", "-c", "it's", "--policy", "ratio=0.9", "--max-bloat", "5%"];
        assert_eq!(
            entry_of(&[&words[..], &["--maintain"]].concat()).unwrap(),
            "# Brings values written since the last run to the policy ratio=0.90, every night.\n\
             # With --since that is one scan of the heap; without the file, or if the table was rewritten\n\
             # meanwhile, everything is judged anew.\n\
             # Exit code 0: all comply; 4: the time was not enough, the next night goes on.\n\
             # The password is left out: put it into ~/.pgpass.\n\
             17 3 * * * cd /srv && HOME=/home/u PGHOST=db '/opt/toast ctl' retoast t -c 'it'\"'\"'s' \
             --policy ratio=0.9 --max-bloat '5\\%' --max-runtime 10800 \
             --since /home/u/.toastctl-since.json\n"
        );
    }

    #[test]
    fn no_password_is_printed_wherever_it_stands() {
        for dbname in ["postgres://u:open%20sesame@h/d", "host=h user=u password=sesame dbname=d"] {
            for option in ["-d ", "-d", "--dbname ", "--dbname="] {
                let option = format!("{option}{dbname}");
                let words: Vec<&str> = match option.split_once(' ') {
                    Some((option, value)) if !option.contains('=') => vec![option, value],
                    _ => vec![&option],
                };
                let more = ["t", "-c", "v", "--policy", "best", "-W", "--maintain"];
                let text = entry_of(&[&["retoast"], &words[..], &more].concat()).unwrap();
                assert!(!text.contains("sesame") && !text.contains("-W"), "{text}");
                assert!(text.contains("postgresql://?dbname=d&host=h&user=u'"), "{text}");
            }
        }
    }
}
