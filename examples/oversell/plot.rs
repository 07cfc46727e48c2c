//! The picture: a panel for each measure, a bar for each way.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::shop::Shop;
use crate::{Outcome, Row};

const SIZE: (u32, u32) = (1000, 640);
const TITLE_HEIGHT: u32 = 80;
/// Where the names of the ways end, and the bars begin.
const NAMES: i32 = 240;
/// Room for the number behind the longest bar.
const NUMBERS: i32 = 76;
const BAR: i32 = 18;
const STEP: i32 = 27;
const INK: RGBColor = RGBColor(45, 45, 45);
const FAINT: RGBColor = RGBColor(225, 225, 225);
/// From what goes wrong, over what is dear, to the module.
const COLOURS: [RGBColor; 8] = [
    RGBColor(200, 30, 50),
    RGBColor(130, 80, 170),
    RGBColor(230, 150, 30),
    RGBColor(215, 110, 50),
    RGBColor(140, 180, 230),
    RGBColor(30, 100, 200),
    RGBColor(20, 60, 140),
    RGBColor(40, 150, 90),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One measure: what it is, and how it is read off a row and printed.
type Panel = (&'static str, fn(&Row) -> f64, fn(f64) -> String);

const PANELS: [Panel; 4] = [
    (
        "oversold when owners stall",
        |row| row.stalled.oversold as f64,
        |n| format!("{n:.0}"),
    ),
    (
        "commands of the server per sale",
        |row| row.calm.commands_per_sale,
        |n| format!("{n:.1}"),
    ),
    (
        "time until all is sold",
        |row| row.calm.seconds,
        |s| format!("{s:.2} s"),
    ),
    (
        "longest wait of a buyer",
        |row| row.calm.longest_wait.as_secs_f64() * 1e3,
        |ms| format!("{ms:.0} ms"),
    ),
];

pub fn draw(path: &Path, shop: &Shop, rows: &[Row]) -> Outcome<()> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (title, panels) = root.split_vertically(TITLE_HEIGHT);
    let text = format!(
        "{} processes buy a stock of {} on {}",
        shop.processes, shop.stock, shop.server
    );
    write(&title, &text, (SIZE.0 as i32 / 2, 30), 20, HPos::Center)?;
    let note = "in (h) 19 of 20 visits only look: their commands and their time are in it, too";
    write(&title, note, (SIZE.0 as i32 / 2, 58), 13, HPos::Center)?;
    for (area, panel) in panels.split_evenly((2, 2)).iter().zip(PANELS) {
        draw_panel(area, &panel, rows)?;
    }
    root.present()?;
    Ok(())
}

fn draw_panel(area: &Area, (title, measure, print): &Panel, rows: &[Row]) -> Outcome<()> {
    let (width, _) = area.dim_in_pixel();
    write(area, title, (NAMES, 22), 16, HPos::Left)?;
    let values: Vec<f64> = rows.iter().map(measure).collect();
    let highest = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let room = f64::from(width as i32 - NAMES - NUMBERS);
    for (n, (row, value)) in rows.iter().zip(values).enumerate() {
        let top = 44 + STEP * n as i32;
        let middle = top + BAR / 2;
        write(area, row.way.name(), (NAMES - 10, middle), 13, HPos::Right)?;
        let width = (value / highest * room).round() as i32;
        // What is printed as more than nothing is seen.
        let right = NAMES + width.max(if value >= 0.5 { 2 } else { 0 });
        let bar = [(NAMES, top), (right, top + BAR)];
        area.draw(&Rectangle::new(bar, COLOURS[n % COLOURS.len()].filled()))?;
        write(area, &print(value), (right + 7, middle), 13, HPos::Left)?;
    }
    let bottom = 44 + STEP * rows.len() as i32;
    let axis = [(NAMES - 1, 36), (NAMES - 1, bottom - 2)];
    area.draw(&PathElement::new(axis, FAINT.stroke_width(2)))?;
    Ok(())
}

fn write(area: &Area, text: &str, at: (i32, i32), size: i32, side: HPos) -> Outcome<()> {
    let style = ("sans-serif", size).into_text_style(area);
    let style = style.color(&INK).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_string(), at, style))?;
    Ok(())
}
