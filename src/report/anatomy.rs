//! Every detail of one value, as text.

use std::io::{self, Write};

use super::table::{Tone, printable, wrapped};
use super::units::{counted, size};
use crate::value::anatomy::{Anatomy, ChunkAnatomy, PartAnatomy};

/// Chunks of one part that are listed; the rest is counted.
const CHUNKS_SHOWN: usize = 8;
/// Bytes of a pointer that are shown.
const POINTER_SHOWN: usize = 256;

/// Writes the anatomy for people. `width`: that of the terminal; bytes in hexadecimal are not broken.
pub fn text(anatomy: &Anatomy, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let row = &anatomy.row;
    let head = format!(
        "{}, column \"{}\" ({}) at {}",
        printable(&row.relation),
        printable(row.column.as_deref().unwrap_or_default()),
        printable(&anatomy.type_name),
        row.ctid.as_deref().unwrap_or_default()
    );
    writeln!(out, "{}", Tone::Heading.styled(&head))?;
    let mut line = format!("  form: {}", row.form);
    if let Some(method) = row.method {
        line.push_str(&format!(", {method}"));
    }
    if let Some(raw) = row.raw_size {
        line.push_str(&format!("; {} raw", bytes(raw)));
    }
    if let Some(stored) = row.stored_size {
        line.push_str(&format!(", {} stored", bytes(stored)));
    }
    if anatomy.pointer_size > 0 {
        line.push_str(&format!(", pointer of {}", bytes(anatomy.pointer_size)));
    }
    writeln!(out, "{}", wrapped(&line, width, 4))?;
    if let (Some(oid), Some(kind)) = (row.toaster_oid, row.pointer_kind) {
        let name = row.toaster.as_deref().unwrap_or("unknown");
        writeln!(out, "  toaster: {} (OID {oid}), pointer: {kind}", printable(name))?;
    }
    if let Some(pointer) = &anatomy.pointer {
        let shown = pointer.get(..POINTER_SHOWN * 2).unwrap_or(pointer);
        let more = if shown.len() < pointer.len() { "..." } else { "" };
        writeln!(out, "  pointer: {shown}{more}")?;
    }
    for problem in &anatomy.problems {
        writeln!(out, "  problem: {}", printable(problem))?;
    }
    for part in &anatomy.parts {
        write_part(part, width, out)?;
    }
    let cost = anatomy.cost;
    if cost.chunks > 0 {
        let what = if anatomy.problems.is_empty() { "all of it" } else { "what is there of it" };
        writeln!(
            out,
            "  to read {what}: the row, {}, {}, on {}",
            counted(cost.chunks, "chunk"),
            bytes(cost.bytes),
            counted(cost.pages, "page")
        )?;
    }
    let part = match anatomy.type_name.as_str() {
        "text" | "bytea" | "character varying" | "xml" | "character" => "a part",
        _ => "a key",
    };
    writeln!(out, "  to read {part}: {}", anatomy.cost_to_read)?;
    writeln!(out, "  to append: {}", anatomy.cost_to_append)?;
    let of_text = row.text_md5.as_ref().filter(|md5| row.md5.as_ref() != Some(*md5));
    for (name, md5) in [("md5", row.md5.as_ref()), ("text md5", of_text)] {
        if let Some(md5) = md5 {
            writeln!(out, "  {name}: {md5}")?;
        }
    }
    if let Some(first) = &anatomy.first_bytes {
        let groups = first.as_bytes().chunks(8).map(String::from_utf8_lossy);
        let groups: Vec<_> = groups.collect();
        writeln!(out, "{}", wrapped(&format!("  first bytes: {}", groups.join(" ")), width, 4))?;
    }
    if let Some(first) = &anatomy.first_text {
        writeln!(out, "{}", wrapped(&format!("  first text: {}", printable(first)), width, 4))?;
    }
    out.flush()
}

fn write_part(part: &PartAnatomy, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let mut line = format!("  part: {}", part.kind);
    if let Some(id) = part.value_id {
        line.push_str(&format!(", value {id}"));
    }
    if let Some(relation) = part.toast_relation {
        line.push_str(&format!(" in TOAST relation {relation}"));
    }
    if let Some(raw) = part.raw_size {
        line.push_str(&format!(", {} raw", bytes(raw)));
    }
    line.push_str(&format!(", {}", counted(part.chunks.len() as u64, "chunk")));
    writeln!(out, "{}", wrapped(&line, width, 4))?;
    for chunk in part.chunks.iter().take(CHUNKS_SHOWN) {
        let ChunkAnatomy { seq, ctid, bytes: length, method, inserted, .. } = chunk;
        let mut line = format!("    chunk {seq} at {ctid}: {length} bytes");
        if let Some(method) = method {
            line.push_str(&format!(", {method}"));
        }
        if *inserted != "committed" {
            line.push_str(&format!(", inserting transaction: {inserted}"));
        }
        writeln!(out, "{line}")?;
    }
    match part.chunks.len().saturating_sub(CHUNKS_SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "    and {more} more: --format json"),
    }
}

/// The exact number of bytes, after a readable size if that differs.
fn bytes(count: u64) -> String {
    let human = size(count);
    if count < 10_000 { format!("{count} bytes") } else { format!("{human} ({count} bytes)") }
}
