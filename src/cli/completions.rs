//! `toastctl completions`: the scripts by which shells complete command lines, and what they ask this program: the
//! words that can stand at the cursor, with the tables and columns of the server that the command line names.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Command, CommandFactory, FromArgMatches, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate, complete};

use super::Cli;
use super::connect::{ConnectionArgs, PlainHelpFlag};
use super::exit::{Exit, Failure};
use super::help;
use super::terminal::{self, Ui};
use super::{fail_on, settings};
use crate::server::connect::{Connection, SessionOptions};
use crate::server::names;
use toast_format::judge::toaster::Toaster;

/// How long a server may take, from the connection to the answer. Nobody waits longer for a name.
const PATIENCE: Duration = Duration::from_secs(1);

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: ShellArg,

    /// A command line up to the cursor, as the shell's script passes it
    #[arg(last = true, hide = true)]
    typed: Vec<String>,

    #[command(flatten)]
    pub help: PlainHelpFlag,
}

/// The shells there are completions for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShellArg {
    /// Save as ~/.local/share/bash-completion/completions/toastctl
    Bash,
    /// Save as _toastctl in a directory of $fpath
    Zsh,
    /// Save as ~/.config/fish/completions/toastctl.fish
    Fish,
}

/// Passes the line, and the part of it that readline will replace: what follows the last quote, `=` or the like.
const BASH: &str = r#"_toastctl() {
    local word
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <(command -- "${1/#\~\//$HOME/}" completions bash -- \
        "$2" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]]; then
        compopt -o nospace
    fi
}
complete -o nosort -F _toastctl toastctl 2>/dev/null || complete -F _toastctl toastctl
"#;

/// Passes the words before the cursor without quotes, and the word at the cursor unchanged.
const ZSH: &str = r#"#compdef toastctl
_toastctl() {
    local line
    local -a values shown described dirs
    for line in "${(@f)$(command -- "${words[1]/#\~\//$HOME/}" completions zsh -- \
        "${(@Q)words[1,CURRENT-1]}" "$QIPREFIX$PREFIX" 2>/dev/null)}"; do
        if [[ $line == */ ]]; then
            dirs+=("$line")
        elif [[ -n $line ]]; then
            values+=("${line%%$'\t'*}")
            shown+=("${line/$'\t'/  -- }")
            if [[ $line == *$'\t'* ]]; then described=(-l); fi
        fi
    done
    if (( $#dirs )); then compadd -U -S '' -V directories -a dirs; fi
    if (( $#values )); then compadd -U $described -V words -d shown -a values; fi
}
if [[ $funcstack[1] == _toastctl ]]; then
    _toastctl "$@"
else
    compdef _toastctl toastctl
fi
"#;

/// Passes what zsh passes.
const FISH: &str = r#"function __toastctl_complete
    set -l words (commandline -opc)
    command $words[1] completions fish -- $words (commandline -ct) 2>/dev/null
end
complete -c toastctl -f -k -a '(__toastctl_complete)'
"#;

/// Prints the shell's script, or what can stand at the cursor.
pub(super) fn run(args: &CompletionsArgs, ui: &Ui) -> Result<Exit, Failure> {
    let script = match args.shell {
        ShellArg::Bash => BASH,
        ShellArg::Zsh => ZSH,
        ShellArg::Fish => FISH,
    };
    let Some((last, before)) = args.typed.split_last() else {
        return ui.print(script.as_bytes());
    };
    let (mut split, open) = split(last);
    let word = split.pop().unwrap_or_default();
    let mut lines = String::new();
    if let (ShellArg::Bash, [replaced]) = (args.shell, before) {
        let kept = word.strip_suffix(&unquoted(replaced, open)).unwrap_or_default().to_owned();
        for (value, _) in candidates(split, &word) {
            if let Some(rest) = value.strip_prefix(&kept) {
                lines.push_str(&quoted(rest, open));
                lines.push('\n');
            }
        }
    } else {
        for (value, about) in candidates(before.to_vec(), &word) {
            lines.push_str(&value);
            if !about.is_empty() {
                lines.push('\t');
                lines.push_str(&about);
            }
            lines.push('\n');
        }
    }
    ui.print(lines.as_bytes())
}

/// What can stand in the place of `word` after these words, and what each means.
fn candidates(before: Vec<String>, word: &str) -> Vec<(String, String)> {
    let home = std::env::var("HOME").unwrap_or_default();
    // a shell would not expand the tilde in a quoted word
    let word = match word.strip_prefix("~/") {
        Some(rest) => format!("{home}/{rest}"),
        None => word.to_owned(),
    };
    let at = before.len();
    let words = Arc::new(before);
    let mut command = with_names(&words);
    let mut all: Vec<_> = words.iter().map(Into::into).collect();
    all.push(word.clone().into());
    let found = complete(&mut command, all, at, std::env::current_dir().ok().as_deref());
    let mut found: Vec<(String, String)> = found
        .unwrap_or_default()
        .iter()
        .filter_map(|candidate| {
            let about = candidate.get_help().map(ToString::to_string).unwrap_or_default();
            let about = about.lines().next().unwrap_or_default().to_owned();
            Some((candidate.get_value().to_str()?.to_owned(), about))
        })
        .collect();
    // options are offered to those who begin one; a name with a line break fits into no line
    found.retain(|(value, _)| !value.contains(char::is_control));
    found.retain(|(value, _)| !word.is_empty() || !value.starts_with('-'));
    found
}

/// The command line, whose tables and columns come from the server that these words name.
fn with_names(words: &Arc<Vec<String>>) -> Command {
    let completer = |ask: fn(&[String], &str) -> Vec<CompletionCandidate>| {
        let words = Arc::clone(words);
        ArgValueCompleter::new(move |typed: &std::ffi::OsStr| match typed.to_str() {
            Some(typed) if !typed.starts_with('-') => ask(&words, typed),
            _ => Vec::new(),
        })
    };
    Cli::command().mut_subcommands(|verb| {
        let name = verb.get_name().to_owned();
        verb.mut_args(|arg| match arg.get_id().as_str() {
            "tables" | "of" => arg.add(completer(tables)),
            "columns" => arg.add(completer(columns)),
            "dbname" => arg.add(completer(databases)),
            "about" => arg.add(ArgValueCandidates::new(topics)),
            "toaster" => arg.add(fixed(Toaster::ALL.map(Toaster::name))),
            "policy" => arg.add(fixed(POLICIES)),
            "method" => arg.add(fixed(["pglz", "lz4", "either"])),
            "set" => arg.add(fixed(settings::values(&name))),
            "fail_on" => arg.add(fixed(fail_on::examples(&name))),
            _ => arg,
        })
    })
}

/// Policies; those with a number have their defaults.
const POLICIES: [&str; 7] =
    ["always", "never", "chunk-saving", "ratio=0.95", "chunk-floor=100", "hybrid=0.90", "best"];

/// Values that do not depend on a server.
fn fixed(values: impl IntoIterator<Item = impl Into<OsString>>) -> ArgValueCandidates {
    let values: Vec<OsString> = values.into_iter().map(Into::into).collect();
    ArgValueCandidates::new(move || values.iter().map(CompletionCandidate::new).collect())
}

/// What `toastctl help` explains.
fn topics() -> Vec<CompletionCandidate> {
    let verbs = Cli::command();
    let verbs = verbs.get_subcommands().map(|verb| verb.get_name().to_owned());
    let topics = help::topics().map(|(name, _)| name.to_owned());
    verbs.chain(topics).map(CompletionCandidate::new).collect()
}

fn tables(words: &[String], typed: &str) -> Vec<CompletionCandidate> {
    let found = ask(words, async |connection, _| names::tables(&connection, typed).await.ok());
    found.into_iter().flatten().map(CompletionCandidate::new).collect()
}

fn databases(words: &[String], typed: &str) -> Vec<CompletionCandidate> {
    let found = ask(words, async |connection, _| names::databases(&connection, typed).await.ok());
    found.into_iter().flatten().map(CompletionCandidate::new).collect()
}

fn columns(words: &[String], typed: &str) -> Vec<CompletionCandidate> {
    let found = ask(words, async |connection, tables| {
        names::columns(&connection, &tables, typed).await.ok()
    });
    found
        .into_iter()
        .flatten()
        .map(|(name, type_name): (String, String)| {
            CompletionCandidate::new(name).help(Some(type_name.into()))
        })
        .collect()
}

/// Asks the server that these words name, with the tables among them; `None` where there is no answer in time. Nobody
/// is asked for a password, and nothing is reported: the shell is in the middle of a line.
fn ask<T>(
    words: &[String],
    question: impl AsyncFnOnce(Connection, Vec<String>) -> Option<T>,
) -> Option<T> {
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(words).ok()?;
    let (_, verb) = matches.subcommand()?;
    let tables = verb.try_get_many::<String>("tables").ok().flatten();
    let tables: Vec<String> = tables.into_iter().flatten().cloned().collect();
    let mut args = ConnectionArgs::from_arg_matches(verb).ok()?;
    (args.no_password, args.password) = (true, false);
    args.of_fleet.defaults.push(("dbname", "postgres"));
    let options =
        SessionOptions { statement_timeout: PATIENCE, ..SessionOptions::read_only("completions") };
    let runtime = terminal::runtime(1).ok()?;
    let answer = runtime.block_on(async {
        let asked =
            async { question(args.connect(&options, &mut |_| {}).await.ok()?, tables).await };
        tokio::time::timeout(PATIENCE, asked).await
    });
    // looking up a host's name cannot be interrupted
    runtime.shutdown_background();
    answer.ok().flatten()
}

/// Splits a line as a shell does: into words without their quotes, the last of which, perhaps empty, holds the cursor;
/// and the quote that is still open there.
fn split(line: &str) -> (Vec<String>, Option<char>) {
    let mut words = vec![String::new()];
    let mut open = None;
    let mut in_word = false;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        if open.is_none() && c.is_whitespace() {
            if in_word {
                words.push(String::new());
            }
            in_word = false;
            continue;
        }
        in_word = true;
        let Some(word) = words.last_mut() else { break };
        match (open, c) {
            (Some(quote), c) if c == quote => open = None,
            (None, '\'' | '"') => open = Some(c),
            (Some('"'), '\\') => match characters.next() {
                Some(escaped) if !"\"\\$`".contains(escaped) => word.extend(['\\', escaped]),
                escaped => word.extend(escaped),
            },
            (None, '\\') => word.extend(characters.next()),
            _ => word.push(c),
        }
    }
    (words, open)
}

/// The part of a word that readline replaces, without quotes and backslashes. `open` is the quote in which it begins.
fn unquoted(replaced: &str, open: Option<char>) -> String {
    let line = format!("{}{replaced}", open.map(String::from).unwrap_or_default());
    split(&line).0.pop().unwrap_or_default()
}

/// The end of a word as bash takes it, after the quote that is open there. The closing quote is part of it: readline
/// would leave it out where the word itself ends in one.
fn quoted(word: &str, open: Option<char>) -> String {
    match open {
        Some('"') => {
            let mut text = String::new();
            for c in word.chars() {
                if "\"\\$`".contains(c) {
                    text.push('\\');
                }
                text.push(c);
            }
            text + "\""
        }
        None if word.chars().all(|c| c.is_alphanumeric() || "_-./:=@%+,".contains(c)) => {
            word.to_owned()
        }
        _ => {
            let start = if open.is_none() { "'" } else { "" };
            format!("{start}{}'", word.replace('\'', "'\\''"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(before: &[&str], word: &str) -> Vec<String> {
        let before = before.iter().map(|word| (*word).to_owned()).collect();
        candidates(before, word).into_iter().map(|(value, _)| value).collect()
    }

    #[test]
    fn every_verb_and_option_is_offered() {
        let verbs = values(&["toastctl"], "");
        let mut root = Cli::command();
        root.build();
        for verb in root.get_subcommands() {
            let name = verb.get_name();
            assert!(verbs.iter().any(|offered| offered == name), "{name}: {verbs:?}");
            let options = values(&["toastctl", name], "--");
            let shown = verb.get_arguments().filter(|option| !option.is_hide_set());
            for option in shown.filter_map(clap::Arg::get_long) {
                let option = format!("--{option}");
                assert!(options.contains(&option), "{name} {option}: {options:?}");
            }
        }
        assert_eq!(values(&["toastctl", "inspect", "--format"], "j"), ["json", "jsonl"]);
        let retoast = ["toastctl", "retoast", "t"];
        let after = |option: &str, word: &str| values(&[&retoast[..], &[option]].concat(), word);
        assert_eq!(after("--toaster", "ma"), ["main", "main=pglz", "main=lz4"]);
        assert_eq!(after("--policy", "c"), ["chunk-saving", "chunk-floor=100"]);
        assert_eq!(after("--set", "al"), ["alter=on", "alter=off"]);
        assert_eq!(after("--set", "source=f"), ["source=functions"]);
        assert_eq!(after("--set", "disk"), ["disk-limit="]);
        assert_eq!(values(&["toastctl", "reindex", "--set"], "al"), [""; 0]);
        assert_eq!(values(&["toastctl", "inspect", "--fail-on"], "free_s"), ["free_space>"]);
        assert_eq!(values(&["toastctl", "check", "--fail-on"], "w"), ["warning", "warnings>"]);
        assert_eq!(values(&["toastctl", "help"], "thr"), ["throttle"]);
        assert_eq!(
            values(&["toastctl", "inspect"], "--format=j"),
            ["--format=json", "--format=jsonl"]
        );
    }

    #[test]
    fn lines_are_split_as_shells_split_them() {
        let words = |line: &str| {
            let (words, open) = split(line);
            (words.join("|"), open)
        };
        assert_eq!(words("toastctl  inspect "), ("toastctl|inspect|".into(), None));
        assert_eq!(words(r#"a '"My S".t"#), (r#"a|"My S".t"#.into(), Some('\'')));
        assert_eq!(words(r#"a "x\"y\z"#), (r#"a|x"y\z"#.into(), Some('"')));
        assert_eq!(words(r#"a b\ c"d e""#), ("a|b cd e".into(), None));
        assert_eq!(words("a '' "), ("a||".into(), None));
    }

    #[test]
    fn words_are_quoted_for_the_quote_that_is_open() {
        let name = r#""It's""#;
        assert_eq!(quoted(name, None), r#"'"It'\''s"'"#);
        assert_eq!(quoted(name, Some('\'')), r#""It'\''s"'"#);
        assert_eq!(quoted(name, Some('"')), r#"\"It's\"""#);
        assert_eq!(quoted("public.orders", None), "public.orders");
        assert_eq!(unquoted(r#""Mi"#, Some('\'')), r#""Mi"#);
        assert_eq!(unquoted(r#"public.\"Mi\ Ca"#, None), r#"public."Mi Ca"#);
    }
}
