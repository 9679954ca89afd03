//! The manual pages are those of the code. `TOASTCTL_UPDATE_MAN=1 cargo test --test man` writes them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests, not only tests

use std::collections::BTreeMap;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use toastctl::cli::Cli;
use toastctl::cli::exit::Exit;

/// A section whose items are a term and a line about it.
fn section(title: &str, items: &[(String, String)]) -> Vec<u8> {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (term, text) in items {
        roff.control("TP", []);
        roff.text([bold(term)]);
        roff.text([roman(text)]);
    }
    let mut out = Vec::new();
    roff.to_writer(&mut out).unwrap();
    out
}

fn exit_status() -> Vec<u8> {
    let items: Vec<(String, String)> = Exit::ALL
        .iter()
        .map(|exit| (exit.code().to_string(), format!("{}.", exit.meaning())))
        .collect();
    section("EXIT STATUS", &items)
}

fn environment() -> Vec<u8> {
    let items = [
        (
            "PGHOST, PGHOSTADDR, PGPORT, PGDATABASE, PGUSER, PGPASSWORD, PGPASSFILE, PGSERVICE, \
             PGSERVICEFILE, PGSYSCONFDIR, PGSSLMODE, PGSSLROOTCERT, PGSSLCERT, PGSSLKEY, \
             PGCONNECT_TIMEOUT, PGOPTIONS, PGAPPNAME, PGTARGETSESSIONATTRS",
            "As for psql. Options of the command line win over a service, a service over the \
             environment.",
        ),
        ("COLUMNS", "The width that tables are fitted to, instead of the terminal's."),
    ];
    let items = items.map(|(term, text)| (term.to_owned(), text.to_owned()));
    section("ENVIRONMENT", &items)
}

fn pages() -> BTreeMap<String, Vec<u8>> {
    let root = Cli::command();
    let mut pages = BTreeMap::new();
    let mut render = |command: clap::Command| {
        let name = command.get_name().to_owned();
        let mut page = Vec::new();
        Man::new(command).render(&mut page).unwrap();
        page.extend(exit_status());
        page.extend(environment());
        pages.insert(format!("{name}.1"), page);
    };
    for verb in root.get_subcommands() {
        // clap keeps names for the life of the program
        let name: &'static str = format!("toastctl-{}", verb.get_name()).leak();
        let page = verb
            .clone()
            .name(name)
            .bin_name(format!("toastctl {}", verb.get_name()))
            .disable_help_flag(true)
            .version(env!("CARGO_PKG_VERSION"));
        render(page);
    }
    render(root);
    pages
}

#[test]
fn manual_pages_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    let pages = pages();
    assert!(pages.len() > 1);
    if std::env::var_os("TOASTCTL_UPDATE_MAN").is_some() {
        for (name, page) in &pages {
            std::fs::write(folder.join(name), page).unwrap();
        }
    }
    let mut found: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, pages.keys().cloned().collect::<Vec<_>>());
    for (name, page) in &pages {
        let text = std::fs::read(folder.join(name)).unwrap();
        assert!(
            &text == page,
            "man/{name} differs from the code: run TOASTCTL_UPDATE_MAN=1 cargo test --test man"
        );
    }
}
