//! The shells' completions, in the shells that are there.

#![allow(clippy::unwrap_used)] // helpers of tests, not only tests

use std::path::Path;
use std::process::Command;

use clap::CommandFactory;
use toastctl::cli::Cli;

fn script(shell: &str) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_toastctl")).args(["completions", shell]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_shell_knows_every_verb_and_option() {
    for shell in ["bash", "zsh", "fish"] {
        let script = script(shell);
        for verb in Cli::command().get_subcommands() {
            assert!(script.contains(verb.get_name()), "{shell}: {}", verb.get_name());
            for option in verb.get_arguments().filter_map(clap::Arg::get_long) {
                let written =
                    if shell == "fish" { format!("-l {option}") } else { format!("--{option}") };
                assert!(script.contains(&written), "{shell}: {} {written}", verb.get_name());
            }
        }
    }
}

/// What bash offers for the last of `words`.
fn bash(words: &[&str]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("toastctl.bash");
    std::fs::write(&file, script("bash")).unwrap();
    let last = words.last().unwrap();
    let before = &words[words.len() - 2];
    let line = format!(
        "source '{}'; COMP_WORDS=({}); COMP_CWORD={}; _toastctl toastctl '{last}' '{before}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        file.display(),
        words.join(" "),
        words.len() - 1
    );
    let output = Command::new("bash").args(["--norc", "-c", &line]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_verbs_options_and_values() {
    assert_eq!(bash(&["toastctl", "ins"]), ["inspect"]);
    assert_eq!(bash(&["toastctl", "retoast", "--toas"]), ["--toaster"]);
    assert_eq!(bash(&["toastctl", "inspect", "--format", "j"]), ["json", "jsonl"]);
}

#[test]
fn zsh_and_fish_take_their_scripts() {
    for shell in ["zsh", "fish"] {
        if !["/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(shell).exists()) {
            eprintln!("not run: there is no {shell}");
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("script");
        std::fs::write(&file, script(shell)).unwrap();
        let output = Command::new(shell).arg("-n").arg(&file).output().unwrap();
        assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
