//! Charts of a page, as SVG whose colours are those of the page's style, in light and in dark. What they show is also
//! in a table next to them. Names from servers are only in the treemap, where they are escaped; the other charts have
//! texts of this program.

use std::io;
use std::ops::Range;

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::html::figure;
use super::table::{printable, scrolled};
use super::units::size;

/// The colours, which the style replaces.
const INK: RGBColor = RGBColor(1, 1, 1);
const RAW: RGBColor = RGBColor(2, 2, 2);
const SERIES: RGBColor = RGBColor(3, 3, 3);
const MARK: RGBColor = RGBColor(4, 4, 4);
const PAUSE: RGBColor = RGBColor(5, 5, 5);

/// Width and height of a chart. A treemap takes the width of the page instead.
const WIDTH: u32 = 680;
const HEIGHT: u32 = 320;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

/// A chart with its name, and in words what it shows.
fn plotted(title: &str, shows: &str, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Markup {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
    // a string can always be written
    let drawn = draw(&area).and_then(|()| area.present());
    drop(area);
    let inner = text.split_once('>').map_or("", |(_, rest)| rest);
    let inner = inner.trim_end().trim_end_matches("</svg>");
    let svg = html! {
        svg.chart role="img" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) {
            title { (title) }
            desc { (shows) }
            (PreEscaped(inner))
        }
    };
    if drawn.is_err() {
        html! {}
    } else {
        figure(title, shows, &scrolled(title, &svg))
    }
}

/// A chart with room for the labels of its axes, of which those at the left are this wide.
fn framed<'a, 'b>(area: &'a Area<'b>, left: u32) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(area);
    chart.margin(8).margin_right(28).x_label_area_size(44).y_label_area_size(left);
    chart
}

fn font(area: &Area<'_>) -> TextStyle<'static> {
    ("sans-serif", 14).with_color(INK).into_text_style(area)
}

/// `1`, `512`, `4 kB`, `1 MB`: a power of two as the label of an axis.
fn power(bits: u32) -> String {
    match bits {
        0..10 => format!("{}", 1u64 << bits),
        10..20 => format!("{} kB", 1u64 << (bits - 10)),
        20..30 => format!("{} MB", 1u64 << (bits - 20)),
        30..64 => format!("{} GB", 1u64 << (bits - 30)),
        _ => String::new(),
    }
}

/// Where a size is on an axis of powers of two: 0 is at 0, and 1 at 1.
fn logarithm(size: u64) -> f64 {
    if size == 0 { 0.0 } else { 1.0 + (size as f64).log2() }
}

/// The unit in which bytes of an axis up to `most` are whole numbers, and its name.
fn unit(most: f64) -> (f64, &'static str) {
    const UNITS: [(f64, &str); 4] =
        [(1024.0, "kB"), (1048576.0, "MB"), (1073741824.0, "GB"), (1099511627776.0, "TB")];
    let fitting = UNITS.iter().rev().find(|(unit, _)| most >= 3.0 * unit);
    fitting.copied().unwrap_or((1.0, "bytes"))
}

/// A number with as many digits as its axis needs.
fn digits(number: f64, end: f64) -> String {
    if end < 10.0 { format!("{number:.1}") } else { format!("{number:.0}") }
}

/// Values of a range from one power of two to below the next: its first size, and how many values there are before and
/// after compression.
pub(super) type Bar = (u64, u64, u64);

/// Raw and stored sizes, with lines at `marks`: sizes and what they mean.
pub(super) fn distribution(title: &str, bars: &[Bar], marks: &[(u64, &str)]) -> Markup {
    let marked: Vec<String> =
        marks.iter().map(|(at, what)| format!("{what} at {at} bytes")).collect();
    let shows = format!(
        "Values by size in bytes, on a scale of powers of two: left bars raw, right bars as stored. Vertical lines: {}.",
        marked.join(", ")
    );
    let most = bars.iter().map(|(_, raw, stored)| raw.max(stored)).max().copied().unwrap_or(1);
    let mut places: Vec<f64> = bars.iter().map(|(first, ..)| logarithm(*first)).collect();
    places.extend(marks.iter().map(|(at, _)| logarithm(*at).floor()));
    let low = places.iter().copied().fold(f64::MAX, f64::min).max(0.0);
    let high = places.iter().copied().fold(0.0, f64::max) + 1.0;
    plotted(title, &shows, |area| {
        let top = most as f64 * 1.15;
        let mut chart = framed(area, 72).build_cartesian_2d(low..high, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(0)
            .x_labels((high - low) as usize + 1)
            .y_labels(5)
            .x_label_formatter(&|x| match x.round() as u32 {
                0 => "0".to_owned(),
                bits => power(bits - 1),
            })
            .y_label_formatter(&|y| format!("{y:.0}"))
            .x_desc("size")
            .y_desc("values")
            .axis_style(INK)
            .bold_line_style(INK)
            .label_style(font(area))
            .draw()?;
        for &(first, raw, stored) in bars {
            let at = logarithm(first);
            for (from, values, color) in [(0.08, raw, RAW), (0.52, stored, SERIES)] {
                let corners = [(at + from, 0.0), (at + from + 0.4, values as f64)];
                chart.draw_series([Rectangle::new(corners, color.filled())])?;
            }
        }
        for (at, _) in marks {
            let x = logarithm(*at);
            let line = PathElement::new([(x, 0.0), (x, top)], MARK.stroke_width(2));
            chart.draw_series([line])?;
            let label = format!("{at} bytes");
            let style = font(area);
            chart.draw_series([Text::new(label, (x + 0.06, top * 0.99), style)])?;
        }
        Ok(())
    })
}

/// A setting: what it stores, what a read costs, whether it is on the Pareto front, and whether it is recommended.
pub(super) type Spot = (f64, f64, bool, bool);

/// The range of an axis for these values, with some room around them.
fn axis(values: &[f64]) -> Range<f64> {
    let low = values.iter().copied().fold(f64::MAX, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    let room = ((high - low) * 0.1).max(high * 0.05).max(1.0);
    (low - room).max(0.0)..high + room
}

/// Size against the cost of reads, with numbers.
pub(super) fn front(title: &str, spots: &[Spot]) -> Markup {
    let shows = "Total size after VACUUM FULL, to the right, against the CPU time of a read, upwards. Numbers are those of \
                 the table below. Filled circles are on the Pareto front of size, reads, writes and scans; a ring marks \
                 the recommended settings.";
    let bytes = axis(&spots.iter().map(|spot| spot.0).collect::<Vec<_>>());
    let ns = axis(&spots.iter().map(|spot| spot.1).collect::<Vec<_>>());
    let (unit, name) = unit(bytes.end - bytes.start);
    let xs = bytes.start / unit..bytes.end / unit;
    let across = xs.end - xs.start;
    plotted(title, shows, |area| {
        let mut chart = framed(area, 84).build_cartesian_2d(xs, ns)?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .x_labels(5)
            .y_labels(5)
            .x_label_formatter(&|x| format!("{} {name}", digits(*x, across)))
            .y_label_formatter(&|ns| format!("{:.1} µs", ns / 1e3))
            .x_desc("total size")
            .y_desc("CPU time per read")
            .axis_style(INK)
            .bold_line_style(INK)
            .label_style(font(area))
            .draw()?;
        for (number, &(x, y, is_front, is_recommended)) in (1..).zip(spots) {
            let style = if is_front { SERIES.filled() } else { SERIES.stroke_width(2) };
            let x = x / unit;
            chart.draw_series([Circle::new((x, y), 6, style)])?;
            if is_recommended {
                chart.draw_series([Circle::new((x, y), 11, MARK.stroke_width(2))])?;
            }
            let label = Text::new(format!("{number}"), (12, -16), font(area));
            chart.draw_series([EmptyElement::at((x, y)) + label])?;
        }
        Ok(())
    })
}

/// A figure in the course of a run: seconds, and the figure then. `pauses`: from when to when it waited.
pub(super) fn course(
    title: &str,
    shows: &str,
    points: &[(f64, f64)],
    pauses: &[(f64, f64)],
) -> Markup {
    let end = points.last().map_or(1.0, |(seconds, _)| seconds.max(0.001));
    let top = points.iter().map(|(_, figure)| *figure).fold(1.0, f64::max) * 1.1;
    let (unit, name) = unit(top);
    let top = top / unit;
    plotted(title, shows, |area| {
        let mut chart = framed(area, 84).build_cartesian_2d(0.0..end, 0.0..top)?;
        let spans = pauses
            .iter()
            .map(|&(from, to)| Rectangle::new([(from, 0.0), (to, top)], PAUSE.filled()));
        chart.draw_series(spans)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(0)
            .x_labels(8)
            .y_labels(5)
            .x_label_formatter(&|seconds| match end {
                ..2.0 => format!("{seconds:.2} s"),
                _ => format!("{} s", digits(*seconds, end)),
            })
            .y_label_formatter(&|y| format!("{} {name}", digits(*y, top)))
            .x_desc("time")
            .axis_style(INK)
            .bold_line_style(INK)
            .label_style(font(area))
            .draw()?;
        let line = points.iter().map(|(seconds, bytes)| (*seconds, bytes / unit));
        chart.draw_series(LineSeries::new(line, SERIES.stroke_width(2)))?;
        Ok(())
    })
}

/// A rectangle of a treemap, with the smaller ones in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Tile {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// The class of a tile without parts, which has a colour.
    pub(super) class: &'static str,
    pub(super) parts: Vec<Tile>,
}

/// Where a tile is, in units of [`MAP`].
#[derive(Debug, Clone, Copy, PartialEq)]
struct TilePlace {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// The whole treemap. Widths are printed as percentages, heights in pixels.
const MAP: TilePlace = TilePlace { x: 0.0, y: 0.0, width: 720.0, height: 440.0 };
/// The height of a name above the parts of a tile.
const NAME: f64 = 17.0;
/// The width of a character, about, and what a phone shows of the width.
const CHARACTER: f64 = 6.8;
const ON_PHONE: f64 = 0.45;
/// Smaller tiles are not drawn, and not the parts of tiles whose sides are shorter.
const LEAST: f64 = 1.5;
const WITH_PARTS: f64 = 30.0;

/// Tiles whose areas are in proportion to their sizes.
pub(super) fn treemap(title: &str, shows: &str, tiles: &[Tile]) -> Markup {
    let svg = html! {
        svg.treemap role="img" {
            title { (title) }
            desc { (shows) }
            (drawn(tiles, MAP, ""))
        }
    };
    figure(title, shows, &svg)
}

fn drawn(tiles: &[Tile], place: TilePlace, within: &str) -> Markup {
    let mut tiles: Vec<&Tile> = tiles.iter().filter(|tile| tile.bytes > 0).collect();
    tiles.sort_by_key(|tile| std::cmp::Reverse(tile.bytes));
    let weights: Vec<f64> = tiles.iter().map(|tile| tile.bytes as f64).collect();
    let places = squarified(&weights, place);
    let seen = tiles.into_iter().zip(places);
    let seen = seen.filter(|(_, place)| place.width >= LEAST && place.height >= LEAST);
    html! { @for (tile, place) in seen { (tile_markup(tile, place, within)) } }
}

fn tile_markup(tile: &Tile, place: TilePlace, within: &str) -> Markup {
    let name = printable(&tile.name);
    let path = if within.is_empty() { name.clone() } else { format!("{within}, {name}") };
    let TilePlace { x, y, width, height } = place;
    let left = format!("{:.2}%", x / MAP.width * 100.0);
    let across = format!("{:.2}%", width / MAP.width * 100.0);
    let above = format!("{y:.1}");
    let down = format!("{height:.1}");
    let is_named = height >= NAME && named_width(&name) <= width;
    let wide = (named_width(&name) > width * ON_PHONE).then_some("wide");
    let has_parts = !tile.parts.is_empty() && width.min(height) >= WITH_PARTS;
    let inner =
        TilePlace { x: x + 2.0, y: y + NAME, width: width - 4.0, height: height - NAME - 2.0 };
    html! {
        g {
            title { (path) ": " (size(tile.bytes)) }
            rect class=[(!has_parts).then(|| class_of(tile))]
                x=(left) y=(above) width=(across) height=(down) {}
            @if has_parts { (drawn(&tile.parts, inner, &path)) }
            @if is_named {
                svg x=(left) y=(above) width=(across) height=(down) {
                    text class=[wide] x="4" y="13" { (name) }
                }
            }
        }
    }
}

/// The class of a tile whose parts are not drawn: that of the largest one.
fn class_of(tile: &Tile) -> &'static str {
    tile.parts.iter().max_by_key(|part| part.bytes).map_or(tile.class, class_of)
}

fn named_width(name: &str) -> f64 {
    name.chars().count() as f64 * CHARACTER + 8.0
}

/// Divides a rectangle among weights, the largest first, so that the parts are as square as possible (Bruls, Huizing and
/// van Wijk, "Squarified Treemaps").
fn squarified(weights: &[f64], whole: TilePlace) -> Vec<TilePlace> {
    let total: f64 = weights.iter().sum();
    let scale = whole.width.max(0.0) * whole.height.max(0.0) / total.max(f64::MIN_POSITIVE);
    let mut places = Vec::with_capacity(weights.len());
    let mut rest = whole;
    let mut left = weights;
    while let Some((&first, _)) = left.split_first() {
        let side = rest.width.min(rest.height).max(f64::MIN_POSITIVE);
        // the worst ratio of the sides in a row with this sum and this smallest part
        let worst = |sum: f64, least: f64| {
            let sum = sum * scale;
            let side = side * side;
            (side * first * scale / (sum * sum)).max(sum * sum / (side * least * scale))
        };
        let mut count = 1;
        let mut sum = first;
        for &next in left.iter().skip(1) {
            if worst(sum + next, next) > worst(sum, left.get(count - 1).copied().unwrap_or(next)) {
                break;
            }
            (count, sum) = (count + 1, sum + next);
        }
        let thick = sum * scale / side;
        let is_tall = rest.height <= rest.width;
        let (row, others) = left.split_at(count);
        let mut along = 0.0;
        for &weight in row {
            let length = side * weight / sum;
            places.push(if is_tall {
                TilePlace { x: rest.x, y: rest.y + along, width: thick, height: length }
            } else {
                TilePlace { x: rest.x + along, y: rest.y, width: length, height: thick }
            });
            along += length;
        }
        rest = if is_tall {
            TilePlace { x: rest.x + thick, width: rest.width - thick, ..rest }
        } else {
            TilePlace { y: rest.y + thick, height: rest.height - thick, ..rest }
        };
        left = others;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn areas_are_in_proportion_and_inside(
            mut weights in prop::collection::vec(1u32..1_000_000, 1..60)
        ) {
            weights.sort_unstable_by(|one, other| other.cmp(one));
            let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
            let total: f64 = weights.iter().sum();
            let places = squarified(&weights, MAP);
            prop_assert_eq!(places.len(), weights.len());
            for (place, weight) in places.iter().zip(&weights) {
                let expected = weight / total * MAP.width * MAP.height;
                let area = place.width * place.height;
                prop_assert!((area - expected).abs() < 1e-3 * expected, "{} {}", area, expected);
                prop_assert!(place.x >= -1e-6 && place.x + place.width <= MAP.width + 1e-3);
                prop_assert!(place.y >= -1e-6 && place.y + place.height <= MAP.height + 1e-3);
            }
        }
    }

    #[test]
    fn the_published_example_is_divided_as_published() {
        let whole = TilePlace { x: 0.0, y: 0.0, width: 6.0, height: 4.0 };
        let places = squarified(&[6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0], whole);
        let sides: Vec<(f64, f64)> = places
            .iter()
            .map(|place| ((place.width * 100.0).round(), (place.height * 100.0).round()))
            .collect();
        let expected =
            [(300., 200.), (300., 200.), (171., 233.), (129., 233.), (120., 167.), (120., 167.)];
        assert_eq!(sides[..6], expected);
    }

    #[test]
    fn names_are_escaped_and_charts_refer_to_nothing() {
        let tile = Tile { name: "<script>\u{7}\"".into(), bytes: 5, ..Tile::default() };
        let map = treemap("Sizes", "all", &[tile]).into_string();
        assert!(map.contains(r"&lt;script&gt;\u{7}&quot;: 5 bytes"), "{map}");
        let bars = [(0, 1, 0), (1024, 5, 7)];
        let charts = [
            distribution("Sizes", &bars, &[(2032, "the threshold")]),
            front("Front", &[(1e6, 2e3, true, true), (2e6, 1e3, false, false)]),
            course("Rate", "rate", &[(0.0, 0.0), (2.0, 1e6)], &[(0.5, 1.0)]),
        ];
        for chart in charts.map(Markup::into_string) {
            assert!(chart.contains("</svg>") && chart.contains("<text"), "{chart}");
            assert!(!chart.contains("http") && !chart.contains("xmlns"), "{chart}");
        }
    }
}
