//! How a compaction ended, by its last looks (pure).

use super::result::{FileEnd, FileReport};
use crate::retoast::result::Outcome;

/// Of all files together.
pub(crate) fn outcome(files: &[FileReport], left_out: bool) -> Outcome {
    let any = |end| files.iter().any(|file| file.ended == end);
    if any(FileEnd::Failed) {
        Outcome::Failed
    } else if any(FileEnd::Stopped) {
        Outcome::Stopped
    } else if any(FileEnd::Planned) {
        Outcome::Planned
    } else if any(FileEnd::GainedTooLittle) || left_out {
        Outcome::Incomplete
    } else if any(FileEnd::Held) {
        Outcome::Held
    } else {
        Outcome::Complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(ends: &[FileEnd]) -> Vec<FileReport> {
        ends.iter().map(|&ended| FileReport { ended, ..FileReport::new("heap") }).collect()
    }

    #[test]
    fn the_worst_file_decides() {
        use FileEnd::{Compact, Failed, GainedTooLittle, Held, NoRoom, Planned, Stopped};
        assert_eq!(outcome(&files(&[Compact, Compact]), false), Outcome::Complete);
        assert_eq!(outcome(&files(&[Compact]), true), Outcome::Incomplete);
        assert_eq!(outcome(&files(&[GainedTooLittle, Compact]), false), Outcome::Incomplete);
        assert_eq!(outcome(&files(&[NoRoom, Compact]), false), Outcome::Complete);
        assert_eq!(outcome(&files(&[NoRoom, Held]), false), Outcome::Held);
        assert_eq!(outcome(&files(&[Held]), true), Outcome::Incomplete);
        assert_eq!(outcome(&files(&[GainedTooLittle, Held]), false), Outcome::Incomplete);
        assert_eq!(outcome(&files(&[Held, Stopped]), false), Outcome::Stopped);
        assert_eq!(outcome(&files(&[Compact, Stopped]), false), Outcome::Stopped);
        assert_eq!(outcome(&files(&[Planned, Planned]), false), Outcome::Planned);
        assert_eq!(outcome(&files(&[Compact, Failed]), false), Outcome::Failed);
        assert_eq!(outcome(&[], false), Outcome::Complete);
    }
}
