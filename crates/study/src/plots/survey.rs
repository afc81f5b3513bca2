//! The picture of replayed surveys: what each tuner reached by each epoch, and where it was suspended.

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
    let fail = |e: Fault| Error::new(format!("cannot draw the surveys: {e}"));
    Ok(pages(&drawn).map_err(fail)?.unwrap_or_default())
}

fn pages(all: &[&Surveyed]) -> Page {
    let tuners = &all[0].tuners;
    let legend: Vec<(&str, RGBColor)> = tuners
        .iter()
        .enumerate()
        .map(|(i, name)| (name.as_str(), COLORS[i]))
        .collect();
    let size = (WIDE, HEAD + HIGH * all.len() as u32);
    page(size, "Replayed surveys: x is suspended", &legend, |area| {
        for (one, area) in all.iter().zip(area.split_evenly((all.len(), 1))) {
            chart(&area, one)?;
        }
        Ok(())
    })
}

fn chart(area: &Area<'_>, s: &Surveyed) -> Drawn {
    let costs = s.epochs.iter().flatten().filter_map(|r| r.cost);
    let most = costs.fold(1.05, f64::max).min(MOST_COST);
    let last = s.epochs.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(24)
        .margin_top(20)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(0.5..last + 0.5, 1.0..most)?;
    ruled(&mut chart.configure_mesh())
        .disable_x_mesh()
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_desc("batch")
        .y_desc("least cost / optimum")
        .y_label_formatter(&|v| format!("{v:.2}"))
        .draw()?;
    let chain = s
        .filters
        .iter()
        .map(|f| format!(" + {f}"))
        .collect::<String>();
    let ended = s.ended.map_or(String::new(), |e| format!(": ended by {e}"));
    let title = format!("{}{chain}{ended}", s.tables);
    area.draw(&Text::new(
        title,
        (72, 12),
        font(12, HPos::Left, VPos::Center),
    ))?;
    let at = |epoch: usize, r: &Reached| Some(((epoch + 1) as f64, r.cost?.min(most)));
    for (tuner, color) in (0..s.tuners.len()).zip(COLORS) {
        let of = |epoch: usize| &s.epochs[epoch][tuner];
        for (from, to) in stretches(s, tuner) {
            let line: Vec<(f64, f64)> = (from..to).filter_map(|e| at(e, of(e))).collect();
            if let (Some(end), true) = (line.last().copied(), to < s.epochs.len()) {
                chart.draw_series([Cross::new(end, CROSS, color.stroke_width(2))])?;
            }
            chart.draw_series([PathElement::new(line, color.stroke_width(2))])?;
        }
        let all = (0..s.epochs.len()).filter_map(|e| at(e, of(e)));
        let all: Vec<(f64, f64)> = all.collect();
        chart.draw_series([PathElement::new(all, GREY.mix(0.4).stroke_width(1))])?;
    }
    Ok(())
}

/// The epochs in a row in which a tuner ran: the first of each, and the one after the last.
pub(super) fn stretches(s: &Surveyed, tuner: usize) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (epoch, reached) in s.epochs.iter().enumerate() {
        match found.last_mut() {
            _ if !reached[tuner].ran => {}
            Some((_, to)) if *to == epoch => *to += 1,
            _ => found.push((epoch, epoch + 1)),
        }
    }
    found
}
