//! Charts of results, as SVG.

use std::path::Path;

use plotters::coord::combinators::IntoLogRange;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub struct Chart<'a> {
    pub title: &'a str,
    /// The x axis of lines is logarithmic. This is its base.
    pub base: f64,
    pub x: &'a str,
    pub y: &'a str,
}

pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Adds a point to the series of that name.
pub fn add(series: &mut Vec<Series>, name: String, point: (f64, f64)) {
    match series.iter_mut().find(|series| series.name == name) {
        Some(series) => series.points.push(point),
        None => series.push(Series {
            name,
            points: vec![point],
        }),
    }
}

const SIZE: (u32, u32) = (960, 458);
/// The chart's share of the height. The text below names the environment.
const CHART_HEIGHT: u32 = 440;
const LEGEND_WIDTH: u32 = 270;
/// Values within a smaller span are drawn from 0, others on a logarithmic axis.
const LINEAR_UP_TO: f64 = 20.0;
const COLOURS: [RGBColor; 7] = [
    RGBColor(200, 30, 50),
    RGBColor(60, 60, 60),
    RGBColor(30, 100, 200),
    RGBColor(230, 150, 30),
    RGBColor(40, 150, 90),
    RGBColor(130, 80, 170),
    RGBColor(150, 150, 150),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn colour(n: usize) -> RGBColor {
    COLOURS[n % COLOURS.len()]
}

/// An empty picture: the left part for the chart, the names of the series in the right part, and a
/// line of text below.
fn prepared<'a>(path: &'a Path, names: &[&str], below: &str) -> Area<'a> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).unwrap();
    let (root, foot) = root.split_vertically(CHART_HEIGHT);
    let style = ("sans-serif", 12).into_font().color(&BLACK.mix(0.6));
    foot.draw(&Text::new(below.trim_end().to_string(), (12, 2), style))
        .unwrap();
    let (left, right) = root.split_horizontally(SIZE.0 - LEGEND_WIDTH);
    for (n, name) in names.iter().enumerate() {
        let y = 60 + 24 * n as i32;
        let corners = [(8, y), (24, y + 10)];
        right
            .draw(&Rectangle::new(corners, colour(n).filled()))
            .unwrap();
        right
            .draw(&Text::new(
                name.to_string(),
                (32, y - 1),
                ("sans-serif", 13),
            ))
            .unwrap();
    }
    left
}

/// A macro, because the axes differ in type.
macro_rules! draw_lines {
    ($area:expr, $chart:expr, $series:expr, $x:expr, $y:expr) => {{
        let mut drawn = ChartBuilder::on(&$area)
            .caption($chart.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d($x, $y)
            .unwrap();
        let mut mesh = drawn.configure_mesh();
        mesh.x_desc($chart.x).y_desc($chart.y);
        mesh.x_label_formatter(&|x| label(*x))
            .y_label_formatter(&|y| label(*y));
        mesh.light_line_style(BLACK.mix(0.04))
            .bold_line_style(BLACK.mix(0.12))
            .draw()
            .unwrap();
        for (n, series) in $series.iter().enumerate() {
            let style = colour(n).stroke_width(if n == 0 { 3 } else { 2 });
            let points = series.points.iter().copied();
            drawn
                .draw_series(LineSeries::new(points, style).point_size(4))
                .unwrap();
        }
    }};
}

/// Lines with their points. `below` names the environment.
pub fn lines(path: &Path, chart: &Chart, series: &[Series], below: &str) {
    let points = || series.iter().flat_map(|series| &series.points);
    let low_and_high = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0.0f64), |(low, high), value| {
            (low.min(value), high.max(value))
        })
    };
    let (left, right) = low_and_high(&mut points().map(|point| point.0));
    let (low, high) = low_and_high(&mut points().map(|point| point.1));
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    let area = prepared(path, &names, below);
    let x = (left / 1.05..right * 1.05).log_scale().base(chart.base);
    if high / low < LINEAR_UP_TO {
        draw_lines!(area, chart, series, x, 0.0..high * 1.15);
    } else {
        draw_lines!(area, chart, series, x, (low / 1.5..high * 1.5).log_scale());
    }
    area.present().expect("to write a picture");
}

fn label(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", (value / 1e3 * 100.0).round() / 100.0),
        value => format!("{}", (value * 1000.0).round() / 1000.0),
    }
}

/// A group of bars per name, a colour per series.
pub fn bars(
    path: &Path,
    chart: &Chart,
    groups: &[String],
    series: &[(String, Vec<f64>)],
    below: &str,
) {
    let highest = series.iter().flat_map(|(_, values)| values).copied();
    let highest = highest.fold(0.0, f64::max) * 1.1;
    let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
    let area = prepared(path, &names, below);
    let mut drawn = ChartBuilder::on(&area)
        .caption(chart.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..highest)
        .unwrap();
    let mut mesh = drawn.configure_mesh();
    mesh.disable_x_mesh()
        .x_labels(0)
        .x_desc(chart.x)
        .y_desc(chart.y);
    mesh.light_line_style(BLACK.mix(0.04)).draw().unwrap();
    let centred = |size: u32, v| {
        let style = ("sans-serif", size).into_text_style(&area);
        style.pos(Pos::new(HPos::Center, v))
    };
    let width = 0.84 / series.len() as f64;
    for (n, (_, values)) in series.iter().enumerate() {
        for (group, value) in values.iter().enumerate() {
            let left = group as f64 + 0.08 + n as f64 * width;
            let right = left + width * 0.94;
            let bar = Rectangle::new([(left, 0.0), (right, *value)], colour(n).filled());
            let at = ((left + right) / 2.0, value + highest * 0.012);
            let number = Text::new(format!("{value:.1}"), at, centred(12, VPos::Bottom));
            drawn.draw_series([bar]).unwrap();
            drawn.draw_series([number]).unwrap();
        }
    }
    let names = groups.iter().enumerate().map(|(n, name)| {
        let at = (n as f64 + 0.5, -highest * 0.05);
        Text::new(name.clone(), at, centred(14, VPos::Top))
    });
    drawn.draw_series(names).unwrap();
    area.present().expect("to write a picture");
}
