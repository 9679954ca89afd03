//! A chart of size against read cost, with one point per candidate.

use std::fmt::Write as _;

use super::table::printable;
use super::units::size;
use crate::advise::result::{CandidateReport, Report};

/// Rows of the terminal chart.
const ROWS: usize = 16;

/// A range of an axis with some room at both ends.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>) -> Axis {
        let (mut low, mut high) = (f64::MAX, f64::MIN);
        for value in values {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let room = ((high - low) * 0.05).max(high.abs() * 0.01).max(1e-9);
        Axis { low: (low - room).max(0.0), high: high + room }
    }

    /// From 0 to 1.
    fn part(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

pub(super) fn x_of(c: &CandidateReport) -> f64 {
    c.after_vacuum_full.total_bytes.value.estimate
}

pub(super) fn y_of(c: &CandidateReport) -> f64 {
    c.read_cpu_ns_per_value.figure.value.estimate
}

fn axes(report: &Report) -> (Axis, Axis) {
    (Axis::of(report.candidates.iter().map(x_of)), Axis::of(report.candidates.iter().map(y_of)))
}

/// The letter of a candidate: `@` is today.
fn letter(index: usize) -> char {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    match index {
        0 => '@',
        _ => LETTERS.get(index - 1).map_or('?', |&b| char::from(b)),
    }
}

/// A chart of characters, `width` wide, with its legend. The first of candidates on the same spot
/// is drawn, and the legend says which are hidden behind it.
pub fn chart(report: &Report, width: usize) -> String {
    const MARGIN: usize = 11;
    let columns = width.clamp(40, 120) - MARGIN - 1;
    let (xs, ys) = axes(report);
    let mut cells = vec![vec![' '; columns]; ROWS];
    let mut behind = vec![None; report.candidates.len()];
    for (index, candidate) in report.candidates.iter().enumerate() {
        let column = (xs.part(x_of(candidate)) * (columns - 1) as f64).round() as usize;
        let row = ROWS - 1 - (ys.part(y_of(candidate)) * (ROWS - 1) as f64).round() as usize;
        if let Some(cell) = cells.get_mut(row).and_then(|row| row.get_mut(column)) {
            if *cell == ' ' {
                *cell = letter(index);
            } else if let Some(behind) = behind.get_mut(index) {
                *behind = Some(*cell);
            }
        }
    }
    let mut out = String::from("read CPU per value\n");
    for (number, row) in cells.iter().enumerate() {
        let label = match number {
            0 => microseconds(ys.high),
            n if n == ROWS - 1 => microseconds(ys.low),
            _ => String::new(),
        };
        let line: String = row.iter().collect();
        let _ = writeln!(out, "{label:>10} |{}", line.trim_end());
    }
    let _ = writeln!(out, "{:>10} +{}", "", "-".repeat(columns));
    let (left, right) = (size(xs.low as u64), size(xs.high as u64));
    let gap = columns.saturating_sub(left.len() + right.len());
    let _ = writeln!(out, "{:>11}{left}{:gap$}{right}  total size", "", "");
    for (index, candidate) in report.candidates.iter().enumerate() {
        let hidden = behind
            .get(index)
            .copied()
            .flatten()
            .map(|front| format!(" (at {front})"))
            .unwrap_or_default();
        let mark = if candidate.marks.recommended { ", recommended" } else { "" };
        let name = printable(&candidate.name);
        let _ = writeln!(out, "  {} {name}{mark}{hidden}", letter(index));
    }
    out
}

fn microseconds(ns: f64) -> String {
    format!("{:.1} µs", ns / 1e3)
}
