//! `retoast --maintain`: a crontab entry that repeats the command (pure).

use super::retoast::RetoastArgs;
use super::retoast_run::shell_word;

/// The entry, with what should be known of it. `words` is the command line.
pub(super) fn entry(args: &RetoastArgs, words: &[String]) -> String {
    let mut command: Vec<String> = words
        .iter()
        .filter(|word| !matches!(word.as_str(), "--maintain" | "--dry-run"))
        .map(|word| shell_word(word))
        .collect();
    if args.max_runtime.is_none() {
        command.push("--max-runtime 10800".into());
    }
    if args.since.is_none() {
        command.push("--since \"$HOME/.toastctl-since.json\"".into());
    }
    let secret = command.iter().any(|word| word.contains('…'));
    let policy = args.policy.map(|policy| policy.to_string()).unwrap_or_default();
    let mut text = format!(
        "# Brings values written since the last run to the policy {policy}, every night.\n\
         # With --since that is one scan of the heap; without the file everything is judged anew.\n\
         # Exit code 0: all comply; 4: the time was not enough, the next night goes on.\n"
    );
    if secret {
        text.push_str(
            "# Put the connection, which may hold a password, into ~/.pg_service.conf and ~/.pgpass, \
             and give\n# its name: -d service=NAME.\n",
        );
    }
    // cron takes a bare percent sign for the end of the line
    text.push_str(&format!("17 3 * * * {}\n", command.join(" ").replace('%', "\\%")));
    text
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::Parser;

    fn entry_of(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        let cli = Cli::try_parse_from(&words).unwrap();
        let super::super::Verb::Retoast(args) = cli.verb else { panic!("another verb") };
        entry(&args, &words)
    }

    #[test]
    fn the_command_is_repeated_without_secrets() {
        assert_eq!(
            entry_of("toastctl retoast t -c v --policy ratio=0.9 --max-bloat 5% --maintain"),
            "# Brings values written since the last run to the policy ratio=0.90, every night.\n\
             # With --since that is one scan of the heap; without the file everything is judged anew.\n\
             # Exit code 0: all comply; 4: the time was not enough, the next night goes on.\n\
             17 3 * * * toastctl retoast t -c v --policy ratio=0.9 --max-bloat 5\\% \
             --max-runtime 10800 --since \"$HOME/.toastctl-since.json\"\n"
        );
        let secret = entry_of(
            "toastctl retoast -d postgres://u:secret@h/d t -c v --policy best --max-runtime 60 \
             --since f --maintain",
        );
        assert!(!secret.contains("secret") && secret.contains("-d service=NAME"), "{secret}");
        let last =
            "17 3 * * * toastctl retoast -d '…' t -c v --policy best --max-runtime 60 --since f\n";
        assert!(secret.ends_with(last), "{secret}");
    }
}
