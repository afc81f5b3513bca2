//! The picture of scores of strategies over their budget.

use super::{BLUE, Fault, GREEN, GREY, HEAD, INK, ORANGE, Page, RULE, font, page};
use crate::area::LAST;
use crate::strategies::Summary;
use plotters::prelude::{
    ChartBuilder, Color, EmptyElement, IntoFont, PathElement, RGBColor, Text, WHITE,
};
use plotters::style::text_anchor::{HPos, VPos};
use tune::{Error, Result};

/// The rest of the colours that are told apart with any eyes (Okabe and Ito).
const PINK: RGBColor = RGBColor(204, 121, 167);
const RED: RGBColor = RGBColor(213, 94, 0);
const SKY: RGBColor = RGBColor(86, 180, 233);
const COLORS: [RGBColor; 8] = [BLUE, ORANGE, GREEN, PINK, RED, SKY, INK, GREY];

const SIZE: (u32, u32) = (1000, HEAD + 560);
/// The least score that is drawn, and the distance of names.
const LEAST: f64 = -1.0;
const APART: f64 = 0.045;

/// One line for each strategy and chain that has scores, with its name at its end.
///
/// # Errors
/// If it cannot be drawn.
pub fn score_curves(all: &[Summary]) -> Result<String> {
    let drawn = drawn(all).map_err(|e: Fault| Error::new(format!("cannot draw the study: {e}")))?;
    Ok(drawn.unwrap_or_default())
}

fn name(s: &Summary) -> String {
    let parts = std::iter::once(&s.strategy).chain(&s.filters);
    parts.map(String::as_str).collect::<Vec<_>>().join("+")
}

fn drawn(all: &[Summary]) -> Page {
    let title = "Score over the budget: 0 is random search, 1 is the optimum (replayed)";
    page(SIZE, title, &[], |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_left(8)
            .margin_right(190)
            .margin_top(4)
            .x_label_area_size(52)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..LAST, LEAST..1.0)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(RULE)
            .axis_style(GREY)
            .label_style(("sans-serif", 12).into_font().color(&INK))
            .x_desc("answers, as a share of the rows")
            .y_desc("score")
            .x_label_formatter(&|v| format!("{:.0}%", 100.0 * v))
            .y_label_formatter(&|v| format!("{v:.1}"))
            .draw()?;
        let mut lines: Vec<&Summary> = all.iter().filter(|s| !s.scores.is_empty()).collect();
        let end = |s: &Summary| s.scores.last().map_or(0.0, |(_, score)| *score);
        lines.sort_by(|a, b| end(b).total_cmp(&end(a)));
        let mut lowest = f64::INFINITY;
        for (s, color) in lines.iter().zip(COLORS.iter().cycle()) {
            let seen = |(share, score): &(f64, f64)| (*share, score.max(LEAST));
            let points: Vec<(f64, f64)> = s.scores.iter().map(seen).collect();
            chart.draw_series([PathElement::new(points, color.stroke_width(2))])?;
            lowest = end(s).clamp(LEAST, 1.0).min(lowest - APART);
            let style = font(12, HPos::Left, VPos::Center).color(color);
            let label = Text::new(name(s), (8, 0), style);
            chart.draw_series([EmptyElement::at((LAST, lowest)) + label])?;
        }
        Ok(())
    })
}
