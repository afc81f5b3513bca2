//! The picture of surveys, replayed or of a run: what each tuner reached by each epoch, and where it was suspended.

use super::strategies::COLORS;
use super::{Area, Drawn, Fault, GREY, HEAD, INK, Page, font, page, ruled};
use crate::survey::{Reached, Surveyed};
use plotters::prelude::{ChartBuilder, Color, Cross, IntoFont, PathElement, RGBColor, Text};
use plotters::style::text_anchor::{HPos, VPos};
use tune::{Error, Result};

const WIDE: u32 = 900;
const HIGH: u32 = 300;
/// The greatest cost over the least that is drawn.
const MOST_COST: f64 = 5.0;
const CROSS: i32 = 6;

/// One chart for each survey of one table with the first seed: lines of tuners while they run, and a cross where one is suspended.
///
/// # Errors
/// If there is no such survey, or the picture cannot be drawn.
pub fn surveys(all: &[Surveyed]) -> Result<String> {
    let first = all.iter().map(|s| s.seed).min();
    // A chart of all tables would have a line for each tuner of each.
    let tables = |s: &&Surveyed| s.tuners.len() <= COLORS.len() && s.tables != crate::survey::ALL;
    let drawn = all
        .iter()
        .filter(|s| !s.epochs.is_empty() && Some(s.seed) == first);
    let drawn: Vec<&Surveyed> = drawn.filter(tables).collect();
    if drawn.is_empty() {
        return Err(Error::new("there is no survey to draw")
            .help("leave the picture out, or name fewer tuners"));
    }
    let drawn: Vec<Course> = drawn.into_iter().map(Course::of).collect();
    courses("Replayed surveys: x is suspended", &drawn)
}

/// What tuners reached by epochs, as one chart.
pub struct Course {
    pub title: String,
    /// Of the axes.
    pub names: [&'static str; 2],
    /// Least and greatest value that is drawn.
    pub ends: [f64; 2],
    /// The number of the first epoch.
    pub first: usize,
    pub tuners: Vec<String>,
    /// Of each epoch each tuner.
    pub epochs: Vec<Vec<CoursePoint>>,
}

/// What a tuner reached by the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoursePoint {
    pub value: Option<f64>,
    /// Whether it had a batch in the epoch.
    pub ran: bool,
}

impl Course {
    fn of(s: &Surveyed) -> Course {
        let costs = s.epochs.iter().flatten().filter_map(|r| r.cost);
        let most = costs.fold(1.05, f64::max).min(MOST_COST);
        let filters = s.filters.iter().map(|f| format!(" + {f}"));
        let ended = s.ended.map_or(String::new(), |e| format!(": ended by {e}"));
        let point = |r: &Reached| CoursePoint {
            value: r.cost,
            ran: r.ran,
        };
        let epochs = s.epochs.iter().map(|e| e.iter().map(point).collect());
        Course {
            title: format!("{}{}{ended}", s.tables, filters.collect::<String>()),
            names: ["batch", "least cost / optimum"],
            ends: [1.0, most],
            first: 1,
            tuners: s.tuners.clone(),
            epochs: epochs.collect(),
        }
    }

    /// The epochs in a row in which a tuner ran: the first of each, and the one after the last.
    fn stretches(&self, tuner: usize) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        for (epoch, reached) in self.epochs.iter().enumerate() {
            match found.last_mut() {
                _ if !reached[tuner].ran => {}
                Some((_, to)) if *to == epoch => *to += 1,
                _ => found.push((epoch, epoch + 1)),
            }
        }
        found
    }
}

/// Charts below each other, of the same tuners: lines of tuners while they run, and a cross where one is suspended.
///
/// # Errors
/// If they cannot be drawn.
pub fn courses(title: &str, all: &[Course]) -> Result<String> {
    let fail = |e: Fault| Error::new(format!("cannot draw the surveys: {e}"));
    Ok(pages(title, all).map_err(fail)?.unwrap_or_default())
}

fn pages(title: &str, all: &[Course]) -> Page {
    let Some(first) = all.first() else {
        return Ok(None);
    };
    let names = first.tuners.iter().map(String::as_str);
    let legend: Vec<(&str, RGBColor)> = names.zip(COLORS.into_iter().cycle()).collect();
    let size = (WIDE, HEAD + HIGH * all.len() as u32);
    page(size, title, &legend, |area| {
        for (one, area) in all.iter().zip(area.split_evenly((all.len(), 1))) {
            chart(&area, one)?;
        }
        Ok(())
    })
}

fn chart(area: &Area<'_>, c: &Course) -> Drawn {
    let [least, most] = c.ends;
    let (first, last) = (c.first as f64, (c.first + c.epochs.len()) as f64);
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(24)
        .margin_top(20)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(first - 0.5..last - 0.5, least..most)?;
    ruled(&mut chart.configure_mesh())
        .disable_x_mesh()
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_desc(c.names[0])
        .y_desc(c.names[1])
        .y_label_formatter(&|v| format!("{v:.2}"))
        .draw()?;
    area.draw(&Text::new(
        c.title.clone(),
        (72, 12),
        font(12, HPos::Left, VPos::Center),
    ))?;
    let at = |epoch: usize, p: &CoursePoint| Some(((epoch + c.first) as f64, p.value?.min(most)));
    for (tuner, color) in (0..c.tuners.len()).zip(COLORS.into_iter().cycle()) {
        let of = |epoch: usize| &c.epochs[epoch][tuner];
        for (from, to) in c.stretches(tuner) {
            let line: Vec<(f64, f64)> = (from..to).filter_map(|e| at(e, of(e))).collect();
            if let (Some(end), true) = (line.last().copied(), to < c.epochs.len()) {
                chart.draw_series([Cross::new(end, CROSS, color.stroke_width(2))])?;
            }
            chart.draw_series([PathElement::new(line, color.stroke_width(2))])?;
        }
        let all = (0..c.epochs.len()).filter_map(|e| at(e, of(e)));
        let all: Vec<(f64, f64)> = all.collect();
        chart.draw_series([PathElement::new(all, GREY.mix(0.4).stroke_width(1))])?;
    }
    Ok(())
}
