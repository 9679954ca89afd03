//! What could not be read, and where.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::disk::{Attribute, BlockNumber, ItemPointer};

/// The location of a problem in a relation; fields that are `None` do not apply or are not known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Place {
    /// The name of the relation, file or input.
    pub source: String,
    /// The line of a text, from 1.
    pub line: Option<usize>,
    /// The number of the block in the relation.
    #[schemars(with = "Option<u32>")]
    pub block: Option<BlockNumber>,
    /// The line pointer's number.
    pub item: Option<u16>,
    /// The name of the column.
    pub column: Option<String>,
    /// The offset in bytes: within the tuple if `item` is known, otherwise within the page.
    pub byte: Option<usize>,
}

impl Place {
    /// A whole relation, file or input.
    pub fn new(source: impl Into<String>) -> Place {
        Place { source: source.into(), ..Place::default() }
    }

    /// A value of the row at an address, whose item may not be known.
    pub fn of_value(
        source: impl Into<String>,
        ctid: ItemPointer,
        column: Option<&Attribute>,
    ) -> Place {
        Place {
            block: Some(ctid.block),
            item: Some(ctid.item).filter(|&item| item > 0),
            column: column.map(|column| column.name.clone()),
            ..Place::new(source)
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        if let Some(block) = self.block {
            write!(f, ", block {block}")?;
        }
        if let Some(item) = self.item {
            write!(f, ", item {item}")?;
        }
        if let Some(column) = &self.column {
            write!(f, ", column \"{column}\"")?;
        }
        if let Some(byte) = self.byte {
            write!(f, ", byte {byte}")?;
        }
        Ok(())
    }
}

/// Something that could not be read. Everything else was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where the problem was found.
    pub place: Place,
    /// The problem, as a sentence without a full stop.
    pub message: String,
}

impl Problem {
    /// A problem whose place is added by the caller.
    pub fn without_place(message: String) -> Problem {
        Problem { place: Place::default(), message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The maximum number of problems that are kept; further ones are only counted.
const KEPT: usize = 1000;

/// Problems in the order found, in bounded memory regardless of their number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Problems {
    /// What could not be read: the first 1000 problems.
    #[serde(rename = "problems")]
    #[schemars(with = "Vec<String>")]
    kept: Vec<Problem>,
    /// How many problems there are in all.
    #[serde(rename = "problem_count")]
    count: u64,
}

impl Problems {
    /// Adds a problem; of more than 1000, only the number is kept.
    pub fn add(&mut self, problem: Problem) {
        self.count += 1;
        if self.kept.len() < KEPT {
            self.kept.push(problem);
        }
    }

    /// Adds several problems, in their order.
    pub fn extend(&mut self, problems: impl IntoIterator<Item = Problem>) {
        problems.into_iter().for_each(|problem| self.add(problem));
    }

    /// Adds a problem, if there is one.
    pub fn add_some(&mut self, problem: Option<Problem>) {
        if let Some(problem) = problem {
            self.add(problem);
        }
    }

    /// Adds the problems of another part.
    pub fn merge(&mut self, other: Problems) {
        self.count += other.count;
        let room = KEPT.saturating_sub(self.kept.len());
        self.kept.extend(other.kept.into_iter().take(room));
    }

    /// Adds those problems of another examination of the same relation that are not among these.
    pub fn merge_new(&mut self, other: Problems) {
        let known = other.kept.iter().filter(|problem| self.kept.contains(problem)).count();
        self.count += other.count - known as u64;
        let new = other.kept.into_iter().filter(|problem| !self.kept.contains(problem));
        let new: Vec<Problem> = new.collect();
        self.kept.extend(new);
    }

    /// Adds the problems of a part of the same relation that was read concurrently. The result is in the order of
    /// blocks, regardless of who read which.
    pub(crate) fn merge_beside(&mut self, other: Problems) {
        self.count += other.count;
        self.kept.extend(other.kept);
        self.kept.sort_by_key(|problem| (problem.place.block, problem.place.item));
        self.kept.truncate(KEPT);
    }

    /// The problems that were kept, in order.
    pub fn kept(&self) -> &[Problem] {
        &self.kept
    }

    /// The total number of problems.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Problems in these blocks.
    fn of(blocks: impl IntoIterator<Item = u32>) -> Problems {
        let mut problems = Problems::default();
        problems.extend(blocks.into_iter().map(|block| Problem {
            place: Place { block: Some(BlockNumber(block)), ..Place::new("t") },
            message: format!("block {block}"),
        }));
        problems
    }

    fn blocks(problems: &Problems) -> Vec<u32> {
        problems.kept().iter().filter_map(|problem| Some(problem.place.block?.0)).collect()
    }

    #[test]
    fn parts_read_beside_each_other_are_told_in_the_order_of_blocks() {
        for parts in [
            [vec![20, 23], vec![3, 21]],
            [vec![3, 21], vec![20, 23]],
            [vec![3, 20, 21, 23], vec![]],
        ] {
            let mut problems = Problems::default();
            parts.map(of).into_iter().for_each(|part| problems.merge_beside(part));
            assert_eq!((blocks(&problems), problems.count()), (vec![3, 20, 21, 23], 4));
        }
    }

    #[test]
    fn of_too_many_the_first_blocks_are_kept() {
        let mut problems = of((0..1000).map(|n| 2 * n + 1));
        problems.merge_beside(of((0..1000).map(|n| 2 * n)));
        assert_eq!(blocks(&problems), (0..1000).collect::<Vec<_>>());
        assert_eq!(problems.count(), 2000);
    }
}
