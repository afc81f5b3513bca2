//! The picture of predicted orders: for each group and method, measured times in predicted order.

use super::{BLUE, Fault, HEAD, INK, ORANGE, Page, cut, page, ruled};
use crate::predictors::{Figures, MeansOf};
use plotters::prelude::{ChartBuilder, Circle, Color, IntoFont, PathElement};
use tune::{Error, Result};

/// Panels in a line, and the size of each.
const COLUMNS: usize = 4;
const SIZE: (u32, u32) = (280, 190);

/// One picture with a panel for each case of which all means are known.
///
/// # Errors
/// If it cannot be drawn.
pub fn predicted_orders(all: &[Figures]) -> Result<String> {
    let drawn = drawn(all).map_err(|e: Fault| Error::new(format!("cannot draw the study: {e}")))?;
    Ok(drawn.unwrap_or_default())
}

fn drawn(all: &[Figures]) -> Page {
    let all: Vec<&Figures> = all
        .iter()
        .filter(|f| f.case.means == MeansOf::Group)
        .collect();
    let legend = [("sorted by time", ORANGE), ("in predicted order", BLUE)];
    let lines = all.len().div_ceil(COLUMNS).max(1);
    let size = (SIZE.0 * COLUMNS as u32, HEAD + SIZE.1 * lines as u32);
    page(size, "Measured times in predicted order", &legend, |area| {
        for (f, panel) in all.iter().zip(area.split_evenly((lines, COLUMNS))) {
            let predicted: Vec<f64> = f.first_order_ns.iter().map(|t| t / 1e6).collect();
            let mut sorted = predicted.clone();
            sorted.sort_by(f64::total_cmp);
            let (n, most) = (sorted.len() as f64, sorted.last().copied().unwrap_or(1.0));
            let without = if f.case.included { "" } else { ", left out" };
            let title = format!("{}{without}: {}", f.case.method, f.case.group);
            let mut chart = ChartBuilder::on(&panel)
                .caption(cut(&title, 40), ("sans-serif", 12).into_font().color(&INK))
                .margin(6)
                .margin_right(14)
                .x_label_area_size(22)
                .y_label_area_size(44)
                .build_cartesian_2d(0.0..n, 0.0..most * 1.05)?;
            ruled(&mut chart.configure_mesh())
                .x_labels(4)
                .y_labels(4)
                .x_label_formatter(&|v| format!("{v:.0}"))
                .y_desc("ms")
                .draw()?;
            let points = |times: &[f64]| -> Vec<(f64, f64)> {
                (0..).map(f64::from).zip(times.iter().copied()).collect()
            };
            let dot = |p: (f64, f64)| Circle::new(p, 2, BLUE.mix(0.6).filled());
            chart.draw_series(points(&predicted).into_iter().map(dot))?;
            let line = PathElement::new(points(&sorted), ORANGE.stroke_width(2));
            chart.draw_series([line])?;
        }
        Ok(())
    })
}
