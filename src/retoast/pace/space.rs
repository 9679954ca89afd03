//! Free space: where a table and the WAL grow, and how much each file system needs.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::retoast::pace::rules::Free;
use crate::testing;

/// A directory in which files grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    pub path: PathBuf,
    /// Bytes of the table's relations and indexes stored there.
    pub parts: u64,
    /// Whether the heap or the TOAST relation is among them.
    pub values: bool,
    /// Whether the WAL is written there.
    pub wal: bool,
}

/// The free space of a file system, and what grows there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    pub free: Free,
    /// The first directory of the file system, with what grows in all of them.
    pub place: Directory,
}

impl Need {
    /// The fraction by which files may grow there if all `parts` bytes of the table grow by `growth`: most of that is of
    /// values, whatever their files have now.
    pub fn part(&self, growth: u64, parts: u64) -> f64 {
        let grows = if self.place.values { self.place.parts } else { parts };
        growth as f64 / grows.max(1) as f64
    }

    /// Bytes that may be written there: files grow by the fraction `part` of their sizes, and WAL by `wal` bytes.
    pub fn growth(&self, part: f64, wal: u64) -> u64 {
        let files = (self.place.parts as f64 * part) as u64;
        files.saturating_add(if self.place.wal { wal } else { 0 })
    }

    /// Names what grows there.
    pub fn what(&self) -> &'static str {
        if !self.place.wal {
            "the table"
        } else if self.place.parts > 0 {
            "the table and WAL"
        } else {
            "WAL"
        }
    }
}

/// The file systems of these directories. A directory that is not accessible, as `pg_wal` is to most users, counts as
/// part of the first directory's file system; the first directory is the server's data directory.
pub fn needs(places: &[Directory]) -> Vec<Need> {
    let seen = places.iter().map(|place| (device(&place.path), place));
    together(seen.map(|(seen, place)| (seen, place.clone())).collect())
}

/// The device and the free bytes of a directory.
fn device(path: &Path) -> Option<(u64, u64)> {
    let device = std::fs::metadata(path).ok()?.dev();
    Some((device, free_at(path)?))
}

fn together(places: Vec<(Option<(u64, u64)>, Directory)>) -> Vec<Need> {
    let mut needs: Vec<(u64, Need)> = Vec::new();
    let Some(first) = places.first().and_then(|(seen, _)| seen.map(|(device, _)| device)) else {
        return Vec::new();
    };
    for (seen, place) in places {
        let device = seen.map_or(first, |(device, _)| device);
        match needs.iter_mut().find(|(other, _)| *other == device) {
            Some((_, need)) => {
                need.place.parts = need.place.parts.saturating_add(place.parts);
                need.place.values |= place.values;
                need.place.wal |= place.wal;
            }
            None => {
                let bytes = seen.map_or(0, |(_, free)| free);
                let free = Free { bytes, place: format!("in \"{}\"", place.path.display()) };
                needs.push((device, Need { free, place }));
            }
        }
    }
    needs.into_iter().map(|(_, need)| need).collect()
}

/// The smallest free space of these directories' file systems, as available to users other than root. Directories
/// that are not accessible, as `pg_wal` is to most users, are left out.
pub fn free_in(places: &[Directory]) -> Option<Free> {
    let free = places.iter().filter_map(|place| Some((free_at(&place.path)?, &place.path)));
    let (bytes, path) = free.min()?;
    Some(Free { bytes, place: format!("in \"{}\"", path.display()) })
}

fn free_at(place: &Path) -> Option<u64> {
    // tests set the free space
    if let Some(file) = testing::setting::<String>("FREE_SPACE") {
        return std::fs::read_to_string(file).ok()?.trim().parse().ok();
    }
    let status = rustix::fs::statvfs(place).ok()?;
    Some(status.f_bavail.saturating_mul(status.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, parts: u64, wal: bool) -> Directory {
        Directory { path: path.into(), parts, values: path == "/fast", wal }
    }

    #[test]
    fn each_file_system_needs_what_grows_on_it() {
        let needs = together(vec![
            (Some((1, 700)), place("/data", 0, false)),
            (Some((2, 500)), place("/data/pg_wal", 0, true)),
            (Some((3, 90)), place("/fast", 1000, false)),
            (Some((1, 700)), place("/also", 200, false)),
        ]);
        let growth: Vec<u64> = needs.iter().map(|need| need.growth(0.1, 400)).collect();
        assert_eq!(growth, [20, 400, 100]);
        // where the values are, files may grow by all that is expected
        let growth: Vec<u64> =
            needs.iter().map(|need| need.growth(need.part(3000, 1200), 400)).collect();
        assert_eq!(growth, [500, 400, 3000]);
        let what: Vec<&str> = needs.iter().map(Need::what).collect();
        assert_eq!(what, ["the table", "WAL", "the table"]);
        assert_eq!(needs[2].free, Free { bytes: 90, place: "in \"/fast\"".into() });
    }

    #[test]
    fn what_cannot_be_reached_counts_with_the_data_directory() {
        let data = place("/data", 1000, false);
        let needs = together(vec![(Some((1, 9)), data), (None, place("/data/pg_wal", 0, true))]);
        assert_eq!(needs.len(), 1);
        assert_eq!((needs[0].growth(0.1, 400), needs[0].what()), (500, "the table and WAL"));
        assert!(together(vec![(None, place("/data", 1, true))]).is_empty());
    }
}
