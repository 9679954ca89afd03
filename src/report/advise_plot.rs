//! Size against read cost, one point a candidate: for the terminal and as SVG.

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

fn x_of(c: &CandidateReport) -> f64 {
    c.total_bytes.0.value.estimate
}

fn y_of(c: &CandidateReport) -> f64 {
    c.read_cpu_ns_per_value.0.value.estimate
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
        let mark = if candidate.recommended { ", recommended" } else { "" };
        let name = printable(&candidate.name);
        let _ = writeln!(out, "  {} {name}{mark}{hidden}", letter(index));
    }
    out
}

fn microseconds(ns: f64) -> String {
    format!("{:.1} µs", ns / 1e3)
}

/// Text for XML.
fn escaped(text: &str) -> String {
    printable(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// One picture with a chart for each report below the other.
pub fn svg(reports: &[Report]) -> String {
    const WIDTH: f64 = 860.0;
    const HEIGHT: f64 = 460.0;
    const LEFT: f64 = 80.0;
    const RIGHT: f64 = 250.0;
    const TOP: f64 = 50.0;
    const BOTTOM: f64 = 50.0;
    let whole = HEIGHT * reports.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {whole}\" \
         width=\"{WIDTH}\" height=\"{whole}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, report) in reports.iter().enumerate() {
        let base = HEIGHT * number as f64;
        let (xs, ys) = axes(report);
        let (x0, x1) = (LEFT, WIDTH - RIGHT);
        let (y0, y1) = (base + HEIGHT - BOTTOM, base + TOP);
        let px = |value: f64| x0 + xs.part(value) * (x1 - x0);
        let py = |value: f64| y0 + ys.part(value) * (y1 - y0);
        let _ = writeln!(
            out,
            "<text x=\"{x0}\" y=\"{}\" font-size=\"15\">{}, column {}</text>",
            base + 25.0,
            escaped(&report.relation),
            escaped(&report.column)
        );
        let _ = writeln!(
            out,
            "<path d=\"M{x0} {y1}V{y0}H{x1}\" fill=\"none\" stroke=\"#444\"/>\n\
             <text x=\"{x0}\" y=\"{}\">{}</text>\n\
             <text x=\"{x1}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">total size</text>\n\
             <text x=\"{}\" y=\"{y0}\" text-anchor=\"end\">{}</text>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
             <text x=\"{x0}\" y=\"{}\">read CPU per value</text>",
            y0 + 18.0,
            size(xs.low as u64),
            y0 + 18.0,
            size(xs.high as u64),
            f64::midpoint(x0, x1),
            y0 + 36.0,
            x0 - 6.0,
            microseconds(ys.low),
            x0 - 6.0,
            y1 + 10.0,
            microseconds(ys.high),
            y1 - 6.0,
        );
        let mut front: Vec<(f64, f64)> = report
            .candidates
            .iter()
            .filter(|c| c.pareto)
            .map(|c| (px(x_of(c)), py(y_of(c))))
            .collect();
        front.sort_by(|a, b| a.0.total_cmp(&b.0));
        if front.len() > 1 {
            let points: Vec<String> = front.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"#bbb\" stroke-dasharray=\"4 3\"/>",
                points.join(" ")
            );
        }
        for (index, c) in report.candidates.iter().enumerate() {
            let (x, y) = (px(x_of(c)), py(y_of(c)));
            let color = if c.today {
                "#c0392b"
            } else if c.recommended {
                "#1e8449"
            } else {
                "#2e6da4"
            };
            let radius = if c.today || c.recommended { 6 } else { 4 };
            let (legend_x, legend_y) = (x1 + 16.0, base + TOP + 18.0 * index as f64);
            let mark = if c.recommended { " (recommended)" } else { "" };
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{color}\"><title>{0}</title>\
                 </circle>\n<text x=\"{1:.1}\" y=\"{2:.1}\">{3}</text>\n\
                 <text x=\"{legend_x}\" y=\"{legend_y}\" fill=\"{color}\">{3} {0}{mark}</text>",
                escaped(&c.name),
                x + 7.0,
                y - 5.0,
                letter(index)
            );
        }
    }
    out.push_str("</svg>\n");
    out
}
