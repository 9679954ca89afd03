//! Directories that are given in place of a relation file.

use std::path::Path;

/// What a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directory {
    /// That of a server.
    Data,
    /// That of a database, below `base` or a tablespace.
    Database,
    Other,
}

impl Directory {
    /// What the path is; `None` if it is no directory that can be seen.
    pub(crate) fn at(path: &Path) -> Option<Directory> {
        if !path.is_dir() {
            None
        } else if !path.join("PG_VERSION").is_file() {
            Some(Directory::Other)
        } else if path.join("base").is_dir() || path.join("global").is_dir() {
            Some(Directory::Data)
        } else {
            Some(Directory::Database)
        }
    }

    /// What messages call it, with its article.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Directory::Data => "a data directory",
            Directory::Database => "the directory of a database",
            Directory::Other => "a directory",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_and_that_of_a_database_are_known_by_what_they_contain() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Directory::at(dir.path()), Some(Directory::Other));
        let version = dir.path().join("PG_VERSION");
        std::fs::write(&version, "15\n").unwrap();
        assert_eq!(Directory::at(dir.path()), Some(Directory::Database));
        std::fs::create_dir(dir.path().join("base")).unwrap();
        assert_eq!(Directory::at(dir.path()), Some(Directory::Data));
        assert_eq!(Directory::at(&version), None);
    }
}
