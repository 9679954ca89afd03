//! Directories that are given in place of a relation file.

use std::path::Path;

/// What a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryKind {
    /// That of a server.
    Data,
    /// That of a database, below `base` or a tablespace.
    Database,
    Other,
}

impl DirectoryKind {
    /// What the path is; `None` if it is no directory that can be seen.
    pub(crate) fn at(path: &Path) -> Option<DirectoryKind> {
        if !path.is_dir() {
            None
        } else if !path.join("PG_VERSION").is_file() {
            Some(DirectoryKind::Other)
        } else if path.join("base").is_dir() || path.join("global").is_dir() {
            Some(DirectoryKind::Data)
        } else {
            Some(DirectoryKind::Database)
        }
    }

    /// What messages call it, with its article.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DirectoryKind::Data => "a data directory",
            DirectoryKind::Database => "the directory of a database",
            DirectoryKind::Other => "a directory",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_and_that_of_a_database_are_known_by_what_they_contain() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(DirectoryKind::at(dir.path()), Some(DirectoryKind::Other));
        let version = dir.path().join("PG_VERSION");
        std::fs::write(&version, "15\n").unwrap();
        assert_eq!(DirectoryKind::at(dir.path()), Some(DirectoryKind::Database));
        std::fs::create_dir(dir.path().join("base")).unwrap();
        assert_eq!(DirectoryKind::at(dir.path()), Some(DirectoryKind::Data));
        assert_eq!(DirectoryKind::at(&version), None);
    }
}
