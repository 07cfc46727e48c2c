//! Pictures of results, as SVG.

use std::path::Path;

use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;

pub struct Chart<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
}

pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

const SIZE: (u32, u32) = (860, 460);
const COLOURS: [RGBColor; 7] = [
    RGBColor(200, 30, 50),
    RGBColor(60, 60, 60),
    RGBColor(30, 100, 200),
    RGBColor(230, 150, 30),
    RGBColor(40, 150, 90),
    RGBColor(130, 80, 170),
    RGBColor(150, 150, 150),
];

/// Both axes are logarithmic: what is measured spans magnitudes.
pub fn lines(path: &Path, chart: &Chart, series: &[Series]) {
    let points = || series.iter().flat_map(|series| &series.points);
    let range = |values: Vec<f64>, room: f64| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        low.max(1e-3) / room..high * room
    };
    let x = range(points().map(|point| point.0).collect(), 1.05);
    let y = range(points().map(|point| point.1).collect(), 1.6);
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).unwrap();
    let mut drawn = ChartBuilder::on(&root)
        .caption(chart.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(80)
        .build_cartesian_2d(x.log_scale(), y.log_scale())
        .unwrap();
    let mut mesh = drawn.configure_mesh();
    mesh.x_desc(chart.x).y_desc(chart.y);
    mesh.x_label_formatter(&|x| label(*x))
        .y_label_formatter(&|y| label(*y));
    mesh.light_line_style(BLACK.mix(0.04))
        .bold_line_style(BLACK.mix(0.12))
        .draw()
        .unwrap();
    for (n, series) in series.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let style = colour.stroke_width(if n == 0 { 3 } else { 2 });
        drawn
            .draw_series(LineSeries::new(series.points.iter().copied(), style).point_size(4))
            .unwrap()
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    drawn
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()
        .unwrap();
    root.present().expect("to write a picture");
}

fn label(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", (value / 1e3 * 100.0).round() / 100.0),
        value => format!("{}", (value * 1000.0).round() / 1000.0),
    }
}

/// A group of bars for each name, a colour for each series.
pub fn bars(path: &Path, chart: &Chart, groups: &[String], series: &[(String, Vec<f64>)]) {
    let highest = series.iter().flat_map(|(_, values)| values).copied();
    let highest = highest.fold(0.0, f64::max) * 1.25;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).unwrap();
    let mut drawn = ChartBuilder::on(&root)
        .caption(chart.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..highest)
        .unwrap();
    drawn
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .x_desc(chart.x)
        .y_desc(chart.y)
        .light_line_style(BLACK.mix(0.04))
        .draw()
        .unwrap();
    let width = 0.84 / series.len() as f64;
    for (n, (name, values)) in series.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let left = |group: usize| group as f64 + 0.08 + n as f64 * width;
        let bars = values.iter().enumerate().map(|(group, value)| {
            let corners = [(left(group), 0.0), (left(group) + width * 0.94, *value)];
            Rectangle::new(corners, colour.filled())
        });
        let legend = move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled());
        drawn.draw_series(bars).unwrap().label(name).legend(legend);
        let font = ("sans-serif", 12).into_font();
        let numbers = values.iter().enumerate().map(|(group, value)| {
            let at = (left(group), value + highest * 0.035);
            Text::new(format!("{value:.1}"), at, font.clone())
        });
        drawn.draw_series(numbers).unwrap();
    }
    let font = ("sans-serif", 14).into_font();
    let names = groups.iter().enumerate().map(|(n, name)| {
        Text::new(
            name.clone(),
            (n as f64 + 0.3, -highest * 0.02),
            font.clone(),
        )
    });
    drawn.draw_series(names).unwrap();
    drawn
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()
        .unwrap();
    root.present().expect("to write a picture");
}
