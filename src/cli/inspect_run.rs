//! Runs `toastctl inspect`: from arguments to output and exit code.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::exit::{Exit, Failure};
use super::inspect::{InspectArgs, SourceArg};
use super::inspect_policy;
use super::terminal::{self, ReadingProgress};
use super::value_spec::ValueSpec;
use crate::disk::ByteOrder;
use crate::disk::desc::TupleDesc;
use crate::disk::layout::PageSize;
use crate::inspect::anatomy::Anatomy;
use crate::inspect::live::{ContentOptions, InspectError, Inspector, Options};
use crate::inspect::offline::{self, Contents, FileTarget, OfflineError};
use crate::inspect::result::{RelationReport, Report, SCHEMA, ServerReport};
use crate::inspect::saved::saved_text;
use crate::inspect::values::{RowSink, RowWriter, ValueRow};
use crate::report::format::Format;
use crate::report::values::ValueWriter;
use crate::source::columns;
use crate::source::connect::{Connection, SessionOptions};
use crate::source::live::LiveError;
use crate::source::live::catalog::{self, Relation};
use crate::source::live::server::Server;
use crate::source::pattern::NamePattern;
use crate::source::xact::PgXact;

/// Bytes of saved text or of columns that are read at the most.
const MAX_TEXT: u64 = 1 << 30;
/// Problems told on standard error; all of them are in the report.
const PROBLEMS_TOLD: u64 = 10;

fn value_spec(text: &str) -> Result<ValueSpec, Failure> {
    ValueSpec::parse(text)
        .map_err(|error| Failure::usage(format!("invalid --value \"{text}\": {error}")))
}

/// Prints one value in every detail.
fn print_anatomy(args: &InspectArgs, anatomy: &Anatomy) -> Result<Exit, Failure> {
    let mut out = terminal::stdout();
    let written = match args.format {
        Format::Table => crate::report::anatomy::text(anatomy, &mut out),
        Format::Json | Format::Jsonl => {
            let pretty = args.format == Format::Json;
            let json = if pretty {
                serde_json::to_writer_pretty(&mut out, anatomy)
            } else {
                serde_json::to_writer(&mut out, anatomy)
            };
            json.map_err(io::Error::from).and_then(|()| writeln!(out)).and_then(|()| out.flush())
        }
        Format::Csv | Format::Markdown => {
            return Err(Failure::usage("--value is printed as a table, json or jsonl"));
        }
    };
    match written {
        Err(error) if !terminal::is_closed_pipe(&error) => Err(failure(&error.into())),
        _ if anatomy.problems.is_empty() => Ok(Exit::Ok),
        _ => Ok(Exit::Incomplete),
    }
}

/// Does what the arguments say.
pub(super) fn run(args: &InspectArgs) -> Result<Exit, Failure> {
    if let Some(hex) = &args.datum {
        return datum(args, hex);
    }
    if args.sample.is_some() {
        check_sample(args)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    if let Some(path) = &args.relation_file {
        return relation_file(args, path, &stop);
    }
    if let Some(path) = &args.pageinspect {
        return saved(args, path);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(usize::from(args.connections()))
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Incomplete, format!("could not start: {error}")))?;
    runtime.block_on(live(args, stop))
}

/// What `--sample` cannot be combined with, beyond what clap knows.
fn check_sample(args: &InspectArgs) -> Result<(), Failure> {
    if args.source == SourceArg::Functions {
        return Err(Failure::usage(
            "--sample needs pages: it cannot be used with --source functions",
        ));
    }
    if args.format == Format::Csv {
        return Err(Failure::usage(
            "--sample cannot be printed as csv, which has no place for confidence intervals\n\
             HINT:  Use --format json.",
        ));
    }
    Ok(())
}

fn relation_file(args: &InspectArgs, path: &Path, stop: &AtomicBool) -> Result<Exit, Failure> {
    let desc = given_columns(args)?;
    let page_size = PageSize::new(args.block_size).ok_or_else(|| {
        Failure::usage(format!(
            "invalid --block-size {}: it is 1024, 2048, 4096, 8192, 16384 or 32768",
            args.block_size
        ))
    })?;
    let xact = match &args.xact {
        Some(path) => {
            Some(PgXact::open(path).map_err(|error| Failure::usage(format!("--xact: {error}")))?)
        }
        None => None,
    };
    let target = FileTarget {
        heap: path,
        toast: args.toast_file.as_deref(),
        desc: &desc,
        page_size,
        flavor: args.flavor.into(),
        xact: xact.as_ref(),
        contents: args.reassemble.then_some(Contents { output_dir: args.output_dir.as_deref() }),
        sampling: args.sampling(),
    };
    if let Some(spec) = &args.value {
        let spec = value_spec(spec)?;
        if spec.table.is_some() {
            return Err(Failure::usage("--value: give only column@(block,item) for a file"));
        }
        let anatomy = offline::value(&target, &spec.column, spec.ctid)
            .map_err(|error| Failure::usage(error.to_string()))?;
        return print_anatomy(args, &anatomy);
    }
    let progress = ReadingProgress::default();
    let mut output = Output::new(args);
    let report = offline::relation_file(&target, output.rows(), &progress, stop);
    match report {
        Ok(report) => output.finish(vec![report], None),
        Err(OfflineError::Inspect(error)) => output.fail(failure(&error)),
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

fn saved(args: &InspectArgs, path: &Path) -> Result<Exit, Failure> {
    let desc = given_columns(args)?;
    let text = read_bytes(path)?;
    let order = byte_order(args);
    let name = if path == Path::new("-") { "stdin".into() } else { path.display().to_string() };
    let mut output = Output::new(args);
    let report = if output.values {
        let mut sink = RowSink {
            relation: name.clone(),
            with_block: true,
            writer: &mut output.writer,
            error: None,
        };
        let report = saved_text(&name, &text, &desc, order, &mut sink);
        if let Some(error) = sink.error {
            return output.fail(failure(&error.into()));
        }
        report
    } else {
        saved_text(&name, &text, &desc, order, &mut ())
    };
    output.finish(vec![report], None)
}

fn byte_order(args: &InspectArgs) -> ByteOrder {
    if args.big_endian { ByteOrder::Big } else { ByteOrder::Little }
}

fn datum(args: &InspectArgs, hex: &str) -> Result<Exit, Failure> {
    let bytes = crate::source::hex::parse_datum(hex)
        .map_err(|error| Failure::usage(format!("--datum: {error}")))?;
    let (row, used) = offline::datum(&bytes, byte_order(args))
        .map_err(|error| Failure::usage(format!("--datum: {error}")))?;
    let mut output = Output { values: true, ..Output::new(args) };
    output.row(&row)?;
    if used < bytes.len() {
        tell(&format!(
            "warning: {} bytes follow the datum's {used} bytes and were not looked at",
            bytes.len() - used
        ));
    }
    output.finish(Vec::new(), None)
}

/// The columns of `--columns`.
fn given_columns(args: &InspectArgs) -> Result<TupleDesc, Failure> {
    let given = args.columns.as_deref().unwrap_or_default();
    match given.strip_prefix('@') {
        None => columns::parse_list(given)
            .map_err(|error| Failure::usage(format!("--columns: {error}"))),
        Some(path) => {
            let text = read_text(Path::new(path))?;
            columns::parse_json(&text)
                .map_err(|error| Failure::usage(format!("--columns: \"{path}\": {error}")))
        }
    }
}

/// Reads a file, or standard input for `-`.
fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable = |error: io::Error| {
        Failure::usage(format!("could not read \"{}\": {error}", path.display()))
    };
    let mut bytes = Vec::new();
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(unreadable)?)
    };
    source.take(MAX_TEXT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_TEXT {
        return Err(Failure::usage(format!("\"{}\" is longer than 1 GB", path.display())));
    }
    Ok(bytes)
}

fn read_text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(read_bytes(path)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!("\"{}\": byte {at} is not UTF-8", path.display()))
    })
}

/// Where the results go: rows as they come, or one report at the end.
struct Output<'a> {
    args: &'a InspectArgs,
    values: bool,
    writer: ValueWriter<io::BufWriter<io::Stdout>>,
}

impl<'a> Output<'a> {
    fn new(args: &'a InspectArgs) -> Output<'a> {
        let width = terminal::output_width();
        let mut writer = ValueWriter::new(terminal::stdout(), args.format, width);
        if args.reassemble {
            writer = writer.with_contents();
        }
        Output { args, values: args.values, writer }
    }

    fn rows(&mut self) -> Option<&mut (dyn RowWriter + Send)> {
        if self.values { Some(&mut self.writer) } else { None }
    }

    fn row(&mut self, row: &ValueRow) -> Result<(), Failure> {
        self.writer.write(row).map_err(|error| failure(&error.into()))
    }

    /// Writes what is not yet written and tells problems.
    fn finish(
        self,
        mut relations: Vec<RelationReport>,
        server: Option<ServerReport>,
    ) -> Result<Exit, Failure> {
        relations.sort_by_key(|relation| std::cmp::Reverse(bytes_of(relation)));
        let problems: u64 = relations.iter().map(|relation| relation.problem_count).sum();
        for relation in &relations {
            tell_problems(relation);
        }
        let written = if self.values {
            self.writer.finish().map(drop)
        } else {
            let report = Report { schema: SCHEMA, server, relations };
            let width = terminal::output_width();
            crate::report::inspect::write(&report, self.args.format, width, &mut terminal::stdout())
        };
        match written {
            Err(error) if !terminal::is_closed_pipe(&error) => Err(failure(&error.into())),
            _ if problems > 0 => Ok(Exit::Incomplete),
            _ => Ok(Exit::Ok),
        }
    }

    /// Ends after an error: rows already met are written out.
    fn fail(self, failure: Failure) -> Result<Exit, Failure> {
        if self.values {
            // The failure itself is what is to be told.
            let _ = self.writer.finish();
        }
        if failure.exit == Exit::Ok { Ok(Exit::Ok) } else { Err(failure) }
    }
}

fn bytes_of(relation: &RelationReport) -> u64 {
    let toast = relation
        .toast
        .as_ref()
        .map_or(0, |toast| toast.bytes.unwrap_or(0).saturating_add(toast.index_bytes.unwrap_or(0)));
    relation.heap.bytes.unwrap_or(0).saturating_add(toast)
}

/// One line on standard error.
fn tell(text: &str) {
    // Nobody to tell is no reason to stop.
    let _ = writeln!(io::stderr(), "toastctl: {text}");
}

fn tell_problems(relation: &RelationReport) {
    for problem in relation.problems.iter().take(PROBLEMS_TOLD as usize) {
        tell(&format!("error: {}", crate::report::table::printable(&problem.text)));
    }
    let more = relation.problem_count.saturating_sub(PROBLEMS_TOLD);
    if more > 0 {
        tell(&format!("error: {}: and {more} more", relation.relation));
    }
}

/// The exit code and message of an error that ends the run.
fn failure(error: &InspectError) -> Failure {
    let exit = match error {
        InspectError::Output(io) if terminal::is_closed_pipe(io) => Exit::Ok,
        InspectError::NoValue(_) => Exit::Usage,
        InspectError::Stopped => Exit::Stopped,
        _ => Exit::Incomplete,
    };
    Failure::new(exit, error.to_string())
}

/// As [`failure`], unless the server is gone: then what it said last.
async fn live_failure(error: &InspectError, connections: &[Arc<Connection>]) -> Failure {
    if let InspectError::Live { relation, error: LiveError::Server(statement) } = error {
        for connection in connections {
            if statement.as_db_error().is_none() || connection.is_lost() {
                let explained = connection.explain(statement).await;
                if connection.is_lost() {
                    return Failure::new(Exit::Connection, format!("{relation}: {explained}"));
                }
            }
        }
    }
    failure(error)
}

async fn live(args: &InspectArgs, stop: Arc<AtomicBool>) -> Result<Exit, Failure> {
    if args.values && args.connections() > 1 {
        return Err(Failure::usage("--values prints in order: it cannot be used with --jobs"));
    }
    for name in &args.tables {
        NamePattern::parse(name).map_err(|error| Failure::usage(error.to_string()))?;
    }
    let connections = connect(args).await?;
    let Some(leader) = connections.first().cloned() else {
        return Err(Failure::new(Exit::Connection, "no connection"));
    };
    let refused = |error: LiveError| Failure::new(Exit::Incomplete, error.to_string());
    let server = Server::ask(leader.client()).await.map_err(refused)?;
    let spec = args.value.as_deref().map(value_spec).transpose()?;
    let tables = match &spec {
        None => args.tables.clone(),
        Some(ValueSpec { table: Some(table), .. }) => vec![table.clone()],
        Some(_) => return Err(Failure::usage("--value: give table.column@(block,item)")),
    };
    let oids = catalog::find(leader.client(), &server.database, &tables).await.map_err(refused)?;
    let inspector = Inspector {
        connections: connections.clone(),
        server,
        options: Options {
            access: args.source.into(),
            scan_toast: args.scan_toast.into(),
            flavor: args.flavor.into(),
            contents: args
                .reassemble
                .then(|| ContentOptions { output_dir: args.output_dir.clone() }),
            sampling: args.sampling(),
        },
        progress: Arc::new(ReadingProgress::default()),
        stop: Arc::clone(&stop),
    };
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    if let Some(spec) = spec {
        let [oid] = oids[..] else {
            let table = spec.table.unwrap_or_default();
            return Err(Failure::usage(format!("--value: \"{table}\" is not one table")));
        };
        let relation = catalog::describe(leader.client(), oid).await.map_err(refused)?;
        let relation =
            relation.ok_or_else(|| Failure::new(Exit::Incomplete, "the table is gone"))?;
        return match inspector.value(&relation, &spec.column, spec.ctid).await {
            Ok(anatomy) => print_anatomy(args, &anatomy),
            Err(error) => Err(live_failure(&error, &connections).await),
        };
    }
    let mut output = Output::new(args);
    let mut reports = Vec::new();
    let mut refusals = Vec::new();
    let mut told_why = false;
    for oid in oids {
        let relation = match catalog::describe(leader.client(), oid).await {
            Ok(Some(relation)) => Arc::new(relation),
            // Dropped since it was listed.
            Ok(None) => continue,
            Err(error) => return output.fail(refused(error)),
        };
        let needs_pages = match args {
            InspectArgs { values: true, .. } => Some("--values"),
            InspectArgs { sample: Some(_), .. } => Some("--sample"),
            _ => None,
        };
        if let (Some(option), Some(why)) = (needs_pages, inspector.why_no_pages(&relation)) {
            let name = relation.display_name();
            let message = format!("{name}: {option} needs pages: {why}");
            return output.fail(Failure::new(Exit::Incomplete, message));
        }
        if args.source == Default::default() && !told_why {
            told_why = tell_why_functions(&inspector, &relation);
        }
        match inspector.relation(Arc::clone(&relation), output.rows()).await {
            Ok(mut report) => {
                let server = &inspector.server;
                inspect_policy::add(args, &leader, server, &relation, &mut report).await?;
                reports.push(report);
            }
            Err(error) => {
                let failure = live_failure(&error, &connections).await;
                // One relation that may not be read keeps nobody from reading the others.
                if failure.exit != Exit::Incomplete || matches!(error, InspectError::NoPages(_)) {
                    return output.fail(failure);
                }
                refusals.push(failure);
            }
        }
    }
    for refusal in &refusals {
        tell(&format!("error: {}", refusal.message));
    }
    if reports.is_empty() && !refusals.is_empty() {
        return Ok(Exit::Incomplete);
    }
    let exit = output.finish(reports, Some(inspector.server_report()))?;
    Ok(if refusals.is_empty() { exit } else { Exit::Incomplete })
}

/// Says once why figures will be missing, and what would bring them.
fn tell_why_functions(inspector: &Inspector, relation: &Relation) -> bool {
    let Some(why) = inspector.why_no_pages(relation) else { return false };
    tell(&format!("notice: using SQL functions: {why}"));
    if inspector.server.superuser && inspector.server.pageinspect.is_none() {
        tell(
            "HINT:  CREATE EXTENSION pageinspect; lets toastctl read pages and report everything.",
        );
    }
    true
}

/// Opens the connections that read side by side. The first tells what the user should know.
async fn connect(args: &InspectArgs) -> Result<Vec<Arc<Connection>>, Failure> {
    let session = SessionOptions::read_only("inspect");
    let mut warn = |warning: &str| tell(&format!("warning: {warning}"));
    let first = args
        .connection
        .connect(&session, &mut warn)
        .await
        .map_err(|error| Failure::from(&error))?;
    let mut connections = vec![Arc::new(first)];
    while connections.len() < usize::from(args.connections()) {
        let Some(first) = connections.first() else { break };
        let next = first.open_another().await.map_err(|error| Failure::from(&error))?;
        connections.push(Arc::new(next));
    }
    Ok(connections)
}
