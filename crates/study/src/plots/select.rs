//! Pictures of choosing while inferences run: fixed choices as bars, the throughput of the run, and what each layer
//! decided.

use super::decisions::{decisions, height, width};
use super::{
    Area, BLUE, Drawn, Fault, GREEN, GREY, HEAD, INK, ORANGE, Page, font, over_names, page, ruled,
};
use crate::select::{ChoiceTimes, Selection};
use plotters::prelude::{ChartBuilder, Color, IntoFont, PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, VPos};
use tune::{Error, Result};

/// The upper part of a line of the picture, which is one model on one number of threads.
const LINE: u32 = 300;
pub(super) const WIDTH: u32 = 1120;
const BARS: u32 = 610;

/// One picture of all selections, a line for each.
///
/// # Errors
/// If it cannot be drawn.
pub fn selections(all: &[Selection]) -> Result<String> {
    let drawn = drawn(all).map_err(|e: Fault| Error::new(format!("cannot draw the study: {e}")))?;
    Ok(drawn.unwrap_or_default())
}

fn drawn(all: &[Selection]) -> Page {
    let legend = [
        ("fixed", GREY),
        ("best fixed", GREEN),
        ("exploring", ORANGE),
        ("decided", BLUE),
    ];
    let high: Vec<u32> = all.iter().map(height).collect();
    let wide = all.iter().map(width).fold(WIDTH, u32::max);
    let size = (
        wide,
        HEAD + LINE * all.len() as u32 + high.iter().sum::<u32>(),
    );
    let title = "Choosing while a model runs, against fixed choices";
    page(size, title, &legend, |area| {
        let mut rest = area.clone();
        for (s, high) in all.iter().zip(high) {
            let (line, below) = rest.split_vertically(LINE);
            let (left, right) = line.split_horizontally(BARS);
            bars(&left, s)?;
            over_time(&right, s)?;
            let (trees, below) = below.split_vertically(high);
            decisions(&trees, s, &what(s))?;
            rest = below;
        }
        Ok(())
    })
}

/// Which model ran, and how.
fn what(s: &Selection) -> String {
    let threads = match s.threads {
        1 => "1 thread".to_string(),
        n => format!("{n} threads"),
    };
    format!("{}, {threads}, batch {}, {}", s.model, s.batch, s.target)
}

fn bars(area: &Area<'_>, s: &Selection) -> Drawn {
    let choices: Vec<&ChoiceTimes> = s.fixed.iter().chain([&s.online]).collect();
    let names: Vec<String> = choices.iter().map(|c| c.choice.clone()).collect();
    let most = choices.iter().fold(0.0f64, |m, c| m.max(c.images_per_s));
    let number = |v: &f64| plain(*v);
    let mut chart = over_names(
        area,
        &names,
        0.0..most * 1.15,
        (&what(s), "images/s"),
        &number,
    )?;
    let bar = |(i, c): (usize, &&ChoiceTimes)| {
        let color = match i {
            i if i == s.fixed.len() => BLUE,
            i if i == s.best => GREEN,
            _ => GREY,
        };
        let x = i as f64;
        Rectangle::new(
            [(x + 0.16, 0.0), (x + 0.84, c.images_per_s)],
            color.filled(),
        )
    };
    chart.draw_series(choices.iter().enumerate().map(bar))?;
    let style = font(12, HPos::Center, VPos::Bottom);
    let value = |(i, c): (usize, &&ChoiceTimes)| {
        let at = (i as f64 + 0.5, c.images_per_s + most * 0.02);
        Text::new(plain(c.images_per_s), at, style.clone())
    };
    chart.draw_series(choices.iter().enumerate().map(value))?;
    Ok(())
}

/// The throughput of each inference, and that of the best fixed choice.
fn over_time(area: &Area<'_>, s: &Selection) -> Drawn {
    let points: Vec<(f64, f64)> = s
        .throughput()
        .enumerate()
        .map(|(i, v)| (i as f64 + 1.0, v))
        .collect();
    let (explored, n) = (s.exploring.inferences, points.len() as f64);
    let best = s.best().images_per_s;
    let most = points.iter().fold(best, |m, p| m.max(p.1)) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(16)
        .margin_top(4)
        .x_label_area_size(52)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..n + 1.0, 0.0..most)?;
    ruled(&mut chart.configure_mesh())
        .disable_x_mesh()
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_desc(format!("{} of the run with exploring", s.unit()))
        .y_desc("images/s")
        .x_label_formatter(&|v| format!("{v:.0}"))
        .y_label_formatter(&|v| plain(*v))
        .draw()?;
    let line = |points: &[(f64, f64)], color: plotters::style::RGBColor| {
        PathElement::new(points.to_vec(), color.stroke_width(2))
    };
    let level = [(0.0, best), (n + 1.0, best)];
    chart.draw_series([line(&level, GREEN)])?;
    // The two parts meet.
    chart.draw_series([line(&points[explored.saturating_sub(1)..], BLUE)])?;
    chart.draw_series([line(&points[..explored], ORANGE)])?;
    Ok(())
}

/// Three digits or so.
fn plain(v: f64) -> String {
    match v {
        0.0 => "0".to_string(),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}
