//! The chart of each language: hand-offs per second over the number of clients, both logarithmic,
//! with one of the holds.

use std::path::Path;

use plotters::coord::combinators::IntoLogRange;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::catalogue::Language;
use crate::document::languages;
use crate::holds::CLIENTS;
use crate::Measured;

const WIDTH: u32 = 1000;
const TITLE_HEIGHT: u32 = 40;
const ROW_HEIGHT: u32 = 350;
const LEGEND_LINE: i32 = 18;
/// This project's are red.
const OURS: [RGBColor; 2] = [RGBColor(200, 30, 50), RGBColor(240, 130, 140)];
const PEERS: [RGBColor; 2] = [RGBColor(30, 100, 200), RGBColor(60, 60, 60)];
/// Stands for zero hand-offs, because zero cannot be shown on a logarithmic axis.
const LEAST: f64 = 0.1;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A library's line: the median, the smallest and the largest for each number of clients.
struct Line {
    name: String,
    is_ours: bool,
    colour: RGBColor,
    points: Vec<(f64, [f64; 3])>,
}

/// Shows the measurements with this hold only.
pub fn draw(path: &Path, server: &str, hold_ms: u64, all: &[Measured], left_out: &[&Language]) {
    let charts: Vec<(&str, Vec<Line>)> = languages(all)
        .map(|language| (language.name, lines(all, language, hold_ms)))
        .collect();
    let values = || {
        let lines = charts.iter().flat_map(|(_, lines)| lines);
        let points = lines.flat_map(|line| &line.points);
        points.flat_map(|(_, values)| *values)
    };
    let decade = |value: f64| 10f64.powf(value);
    let low = decade(values().fold(1.0, f64::min).log10().floor());
    let high = decade(values().fold(10.0, f64::max).log10().ceil());

    let rows = charts.len().div_ceil(2) as u32;
    let size = (WIDTH, TITLE_HEIGHT + ROW_HEIGHT * rows);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE).unwrap();
    let mut title = format!("Hand-offs per second on {server}, the lock held for {hold_ms} ms");
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|language| language.name).collect();
        title += &format!(" (left out: {})", names.join(", "));
    }
    let (head, body) = root.split_vertically(TITLE_HEIGHT);
    head.draw(&Text::new(title, (20, 12), ("sans-serif", 19)))
        .unwrap();
    for (area, (name, lines)) in body.split_evenly((rows as usize, 2)).iter().zip(&charts) {
        chart(area, name, lines, (low, high));
    }
    root.present().expect("to write a picture");
}

fn lines(all: &[Measured], language: &Language, hold_ms: u64) -> Vec<Line> {
    let [mut ours, mut peers] = [OURS.iter().cycle(), PEERS.iter().cycle()];
    let libraries = language.libraries.iter().map(|library| {
        let colours = if library.is_ours {
            &mut ours
        } else {
            &mut peers
        };
        let of = |one: &&Measured| {
            let is_asked_for = std::ptr::eq(one.library, library) && one.hold_ms == hold_ms;
            is_asked_for && !one.rounds.is_empty()
        };
        let points = all.iter().filter(of).map(|one| {
            let spread = one.spread(|figures| figures.hand_offs);
            let values = [spread.median, spread.low, spread.high];
            (one.clients as f64, values.map(|value| value.max(LEAST)))
        });
        Line {
            name: language.title(library),
            is_ours: library.is_ours,
            colour: *colours.next().expect("a cycle"),
            points: points.collect(),
        }
    });
    libraries.collect()
}

fn chart(area: &Area, name: &str, lines: &[Line], (low, high): (f64, f64)) {
    let heading = ("sans-serif", 17).into_font().style(FontStyle::Bold);
    area.draw(&Text::new(name.to_string(), (66, 0), heading))
        .unwrap();
    for (n, line) in lines.iter().enumerate() {
        let y = 24 + LEGEND_LINE * n as i32;
        let corners = [(68, y + 2), (84, y + 11)];
        area.draw(&Rectangle::new(corners, line.colour.filled()))
            .unwrap();
        let text = Text::new(line.name.clone(), (92, y), ("sans-serif", 13));
        area.draw(&text).unwrap();
    }
    // The height does not depend on the number of libraries, so that adjacent charts can be
    // compared.
    let (_, below) = area.split_vertically(100);
    let x = (CLIENTS[0] as f64 / 1.2..CLIENTS[CLIENTS.len() - 1] as f64 * 1.2).log_scale();
    let mut drawn = ChartBuilder::on(&below)
        .margin(8)
        .x_label_area_size(40)
        .y_label_area_size(58)
        .build_cartesian_2d(x.base(2.0), (low..high).log_scale())
        .unwrap();
    drawn
        .configure_mesh()
        .x_desc("clients")
        .y_desc("hand-offs/s")
        .x_label_formatter(&|x| format!("{x}"))
        .y_label_formatter(&|y| format!("{}", (y * 10.0).round() / 10.0))
        .light_line_style(BLACK.mix(0.04))
        .bold_line_style(BLACK.mix(0.12))
        .draw()
        .unwrap();
    // The lines of this project come first. They are drawn on top and thinner, so that a line below
    // stays visible.
    for line in lines.iter().rev() {
        let style = line.colour.stroke_width(if line.is_ours { 2 } else { 4 });
        let medians = line.points.iter().map(|(x, [median, ..])| (*x, *median));
        drawn
            .draw_series(LineSeries::new(medians, style).point_size(4))
            .unwrap();
        let spreads = line.points.iter();
        let spreads = spreads
            .map(|(x, [_, low, high])| PathElement::new([(*x, *low), (*x, *high)], line.colour));
        drawn.draw_series(spreads).unwrap();
    }
}
