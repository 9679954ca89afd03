//! Comments in printed SQL: why there is no statement (pure).

use super::code::Code;
use toast_format::disk::BlockNumber;
use toast_format::heap::problem::Place;

/// A list of blocks names so many at most.
const NAMED: usize = 8;

/// The first of these blocks.
pub(super) fn listed(blocks: &[BlockNumber]) -> String {
    let named: Vec<String> = blocks.iter().take(NAMED).map(ToString::to_string).collect();
    let more = if blocks.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", named.join(", "))
}

/// Why a value that SQL reads is neither rewritten nor removed.
pub(super) fn in_part() -> String {
    "SQL reads it, but not all of its bytes are accounted for, so that it may be shorter than it was: it is neither removed \
     nor stored for good as it reads now. Restore it from a backup, or compare what is saved with what SQL reads."
        .to_owned()
}

/// Whether something is wrong with a value's chunks, so that nothing is known of what they hold.
pub(super) fn is_of_chunks(code: Code) -> bool {
    (Code::NoChunks..=Code::ChunkUnreadable).contains(&code)
}

/// Whether what is in a value is not of its type.
pub(super) fn is_of_content(code: Code) -> bool {
    (Code::Jsonb..=Code::Content).contains(&code)
}

/// Findings of one kind for which no statement was printed: how many there are, and the first place.
pub(super) fn left_over(code: Code, count: u64, first: &Place) -> String {
    let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
    commented(&format!(
        "No repair statement for {} ({}) at {first}{more}: {}",
        code.name(),
        code.title(),
        why_none(code)
    ))
}

/// Why there is no statement for a kind of damage, or none for this case of it.
fn why_none(code: Code) -> &'static str {
    match code {
        Code::PageHeader | Code::Checksum | Code::NewPage | Code::Unreadable => {
            "the server reads the page all the same, or none is known that keeps what is on it. Restore the block from a \
             backup."
        }
        Code::Misplaced => "which block was there before is not known. Restore it from a backup.",
        Code::ZeroPage | Code::LostRows | Code::Emptied => {
            "what is not in the file any more can only be restored from a backup."
        }
        Code::ToastCatalog => {
            "the catalog is damaged, not the rows: a statement for rows would lose every value out of line. Restore \
             pg_class; until then change no row of the table."
        }
        Code::PageLsn => {
            "the WAL is damaged, not the rows. Dump the database, and restore the dump into a new cluster."
        }
        Code::MapBit => "VACUUM (DISABLE_PAGE_SKIPPING) corrects the map, and changes no row.",
        Code::Redirect | Code::Overlap | Code::Chain | Code::Ctid => {
            "which of the tuples is right is not known, and a statement would follow what is wrong."
        }
        Code::Infomask
        | Code::XminRange
        | Code::XmaxRange
        | Code::CommitStatus
        | Code::MultiRange
        | Code::Xvac
        | Code::AllVisible => {
            "whether SQL should see the row or chunk is not known: a statement would bring back what was deleted, or hide \
             what was not."
        }
        Code::SharedValue => {
            "which of the rows is right is not known, and UPDATE and DELETE of one delete the other's chunks."
        }
        Code::HasExternal => "SQL reads the value, and an UPDATE would leave its chunks behind.",
        Code::Orphan => "nothing is damaged; a row that was lost may have had these chunks.",
        code if is_of_chunks(code) => {
            "it is not established that SQL fails at the value, and that the chunk is still the value's."
        }
        _ => "none is known that changes only what is broken; SQL may still read the row.",
    }
}

/// Lines of a comment.
pub(super) fn commented(text: &str) -> String {
    const WIDTH: usize = 100;
    let mut out = String::new();
    let mut line = String::from("--");
    for word in text.split_whitespace() {
        if line.len() > 2 && line.len() + 1 + word.len() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line.replace_range(.., "--");
        }
        line.push(' ');
        line.push_str(word);
    }
    out + &line + "\n"
}
