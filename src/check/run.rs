//! `inspect --check` over the relations of a server.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::finding::Finding;
use super::judged::Checked;
use super::live::{CheckError, LiveOptions, Table};
use super::look::About;
use super::salvage_dir::SalvageDir;
use super::subject::Depth;
use crate::disk::Oid;
use crate::inspect::inspector::Inspector;
use crate::server::LiveError;
use crate::server::catalog::{self, Relation};
use crate::server::checking::Storage;
use crate::server::locks;
use crate::server::select::select;
use crate::server::sink::{Failed, Kind, RunError, Sink, until};
use crate::server::toasters;

/// What is asked of a server.
pub(crate) struct CheckRequest {
    /// Names and patterns, as psql takes them; none: all tables.
    pub(crate) tables: Vec<String>,
    /// Whether compressed values are decompressed.
    pub(crate) decompress: bool,
    /// Whether contents are looked at by their types.
    pub(crate) content: bool,
    /// The largest TOAST relation whose pages are looked at by themselves, in bytes.
    pub(crate) toast_limit: u64,
}

/// Where findings go, and then what was looked at.
pub(crate) trait CheckSink: Sink<Checked> {
    /// One finding.
    fn finding(&mut self, finding: Finding) -> std::io::Result<()>;
}

/// Checks what is asked for until all is checked, or `interrupt` comes.
///
/// # Errors
/// What keeps everything else from being checked too. What `output` was given stays.
pub(crate) async fn check(
    inspector: &Inspector,
    request: &CheckRequest,
    salvage: Option<&mut SalvageDir>,
    output: &mut dyn CheckSink,
    interrupt: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let work = all(inspector, request, salvage, output);
    let ended = until(interrupt, &inspector.connections, work).await;
    // tasks of their own read on otherwise
    inspector.stop.store(true, Ordering::Relaxed);
    ended
}

async fn all(
    inspector: &Inspector,
    request: &CheckRequest,
    mut salvage: Option<&mut SalvageDir>,
    output: &mut dyn CheckSink,
) -> Result<(), RunError> {
    let leader = inspector.leader()?;
    let incomplete = |error: LiveError| Failed::new(Kind::Incomplete, error.to_string());
    let ask = async || {
        let found = select(leader, &inspector.server.database, &request.tables).await?;
        let names = locks::names(leader.client(), &found.oids()).await?;
        let storage = Storage::ask(leader.client()).await?;
        let toasters = toasters::toasters(leader.client(), &inspector.server).await?;
        Ok::<_, LiveError>((found, names, storage, toasters))
    };
    let (found, names, storage, toasters) = leader.reading(ask).await.map_err(incomplete)?;
    for left_out in found.notices() {
        output.notice(&format!("notice: {left_out}"));
    }
    let depth = Depth {
        decompress: request.decompress,
        content: request.content,
        utf8: storage.encoding == "UTF8",
    };
    let about = Arc::new(About {
        server: inspector.server.clone(),
        storage,
        toasters,
        flavor: inspector.options.flavor,
        depth,
    });
    for oid in found.oids() {
        let describe = async || catalog::describe(leader.client(), oid).await;
        let checked = match leader.reading(describe).await {
            Ok(None) => continue,
            Ok(Some(relation)) => {
                let name = relation.display_name();
                if let Some(why) = inspector.why_no_pages(&relation) {
                    let message = format!("{name}: --check needs pages: {why}");
                    let failed = Failed::new(Kind::Incomplete, message);
                    if relation.is_heap {
                        return Err(failed.into());
                    }
                    output.failed(failed);
                    continue;
                }
                let salvage = salvage.as_deref_mut();
                one(inspector, request, &about, relation, salvage, output).await
            }
            Err(error) => Err(CheckError::Live(error)),
        };
        match checked {
            Ok(None) => {}
            Ok(Some(checked)) => {
                output.found(checked).map_err(RunError::Output)?;
            }
            Err(CheckError::Output(error)) => return Err(RunError::Output(error)),
            Err(CheckError::Live(error)) => {
                failed(inspector, &names.of(oid), oid, &error, output).await?;
            }
        }
    }
    Ok(())
}

async fn one(
    inspector: &Inspector,
    request: &CheckRequest,
    about: &Arc<About>,
    relation: Relation,
    salvage: Option<&mut SalvageDir>,
    output: &mut dyn CheckSink,
) -> Result<Option<Checked>, CheckError> {
    let toast = relation.toast.as_ref().map_or(0, |toast| toast.bytes);
    let options = LiveOptions { toast_pages: toast <= request.toast_limit };
    let connections = inspector.connections.clone();
    let table = Table::new(connections, Arc::clone(about), Arc::new(relation), options);
    let tell = &mut |finding| output.finding(finding);
    table.check(&*inspector.progress, &inspector.stop, salvage, tell).await
}

/// One relation that cannot be checked keeps nobody from checking the others.
async fn failed(
    inspector: &Inspector,
    name: &str,
    oid: Oid,
    error: &LiveError,
    output: &mut dyn CheckSink,
) -> Result<(), RunError> {
    let failed = Failed::at(name, oid, error, &inspector.connections).await;
    match failed.kind {
        Kind::Incomplete => {
            output.failed(failed);
            Ok(())
        }
        Kind::Usage | Kind::Lost | Kind::Stopped => Err(failed.into()),
    }
}
