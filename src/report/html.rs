//! A page for a browser: one file that refers to no other. It is readable without its script, which only adds buttons
//! that copy commands. The page forbids its reader's browser to load anything or to run other scripts.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use super::table::printable;
use super::units::{counted, utc};

const STYLE: &str = include_str!("html.css");

/// Adds a button to each command.
const SCRIPT: &str = "\
if (navigator.clipboard) for (const command of document.querySelectorAll('.command')) {
  const text = command.querySelector('code').textContent, button = document.createElement('button');
  const say = word => { button.textContent = word; button.setAttribute('aria-label', word + ': ' + text); };
  button.type = 'button';
  button.onclick = () => navigator.clipboard.writeText(text).then(() => say('Copied'), () => say('Failed'));
  say('Copy');
  command.append(button);
}
";

/// What a browser may do: use the style, and run the script, which is named by its SHA-256.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
    script-src 'sha256-2jmtYYUWM5VALTXyJQt4PhBduMWj1iYsa60mHHryryw='; base-uri 'none'; form-action 'none'";

/// A page with so many headings has a table of contents.
const LONG: usize = 4;

/// Bytes of sections that a page may have; later ones are counted.
const MOST: usize = 1 << 20;

/// What the page consists of.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The command, as in `toastctl inspect`.
    title: String,
    /// What the report is about.
    pub(super) subject: String,
    sections: String,
    /// The headings of the sections, which are the parts of the page.
    headings: Vec<String>,
    /// Sections for which there was no room.
    more: u64,
    /// Whether something could not be read, as messages on standard error say.
    pub(super) incomplete: bool,
}

impl Page {
    pub(super) fn for_verb(verb: &str) -> Page {
        Page { title: format!("toastctl {verb}"), ..Page::default() }
    }

    /// The same for a report whose schema names the verb; `server` is the report's field.
    pub(super) fn new(schema: &str, server: Option<&Value>) -> Page {
        let verb = schema.trim_start_matches("toastctl.").split('/').next().unwrap_or_default();
        let mut page = Page::for_verb(if verb == "advise" { "advise-threshold" } else { verb });
        page.about(server);
        page
    }

    /// States which server the report is about.
    pub(super) fn about(&mut self, server: Option<&Value>) {
        let Some(server) = server else { return };
        let names = [server.get("database"), server.get("address"), server.get("version")]
            .map(|name| name.and_then(Value::as_str).map(printable));
        if let [Some(database), Some(address), Some(version)] = names {
            self.subject = format!("Database {database} on {address}, PostgreSQL {version}");
        }
    }

    /// How many headings the sections have.
    pub(super) fn number_of_headings(&self) -> usize {
        self.headings.len()
    }

    /// Adds a section with its headings. The first one is always shown.
    pub(super) fn add(&mut self, section: &str, headings: Vec<String>) {
        if self.sections.is_empty() || self.sections.len() + section.len() <= MOST {
            self.sections.push_str(section);
            self.headings.extend(headings);
        } else {
            self.more += 1;
        }
    }

    /// The whole page, with the summary, which has these headings, before the sections.
    pub(super) fn text(&self, summary: &str, of_summary: &[String]) -> String {
        let Page { title, subject, sections, headings, more, incomplete } = self;
        let first = headings.len();
        let mut contents: Vec<(usize, &String)> =
            of_summary.iter().enumerate().map(|(at, words)| (first + at, words)).collect();
        contents.extend(headings.iter().enumerate());
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) @if !subject.is_empty() { ": " (subject) } }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    a.skip href="#main" { "Skip to the report" }
                    header {
                        h1 { (title) }
                        @if !subject.is_empty() { p { (subject) } }
                        p { time { (utc()) } }
                        @if contents.len() >= LONG {
                            nav aria-label="Contents" {
                                ul {
                                    @for (part, words) in &contents {
                                        li { a href=(format!("#part-{part}")) { (words) } }
                                    }
                                }
                            }
                        }
                    }
                    main id="main" {
                        @if *incomplete {
                            p.verdict {
                                strong.warning { "Incomplete: not everything could be read." }
                                " The messages of toastctl say what and why."
                            }
                        }
                        (PreEscaped(summary))
                        (PreEscaped(sections))
                        @if *more > 0 {
                            p.note {
                                (counted(*more, "section")) " left out, because a page has room for 1 MB. The other "
                                "formats contain everything."
                            }
                        }
                    }
                    footer {
                        p { "Written by toastctl " (env!("CARGO_PKG_VERSION")) "." }
                    }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        };
        page.into_string()
    }
}

/// A command, to be copied as a whole. Lines do not end at the hyphens of its words.
pub(super) fn command(text: &str) -> Markup {
    let parts = text.split_inclusive([' ', '\n']).map(|part| {
        let word = part.trim_end_matches([' ', '\n']);
        (word, part.get(word.len()..).unwrap_or_default())
    });
    html! {
        div.command { pre { code {
            @for (word, end) in parts {
                @if word.contains('-') { span { (word) } } @else { (word) }
                (end)
            }
        } } }
    }
}

/// What the colours of a figure mean: classes and words.
pub(super) fn legend(colours: &[(&str, &str)]) -> Markup {
    html! {
        ul.legend {
            @for (class, words) in colours { li { span class=(class) {} (words) } }
        }
    }
}

/// A figure with its name and what it shows, in words.
pub(super) fn figure(title: &str, shows: &str, drawn: &Markup) -> Markup {
    html! { figure { (drawn) figcaption { strong { (title) } ". " (shows) } } }
}
