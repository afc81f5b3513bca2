//! The pictures of strategies: how their searches converge, and their scores over the budget.

use super::{BLUE, Drawn, Fault, GREEN, GREY, HEAD, INK, ORANGE, Page, font, page, ruled};
use crate::area::LAST;
use crate::curves::{Curve, CurvePoint, Curves};
use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::{
    Cartesian2d, ChartBuilder, Color, DrawingArea, EmptyElement, IntoFont, IntoLogRange,
    PathElement, Polygon, RGBColor, SVGBackend, Text,
};
use plotters::style::text_anchor::{HPos, VPos};
use std::collections::HashMap;
use tune::{Error, Result};

/// The rest of the colours that are told apart with any eyes (Okabe and Ito).
const PINK: RGBColor = RGBColor(204, 121, 167);
const RED: RGBColor = RGBColor(213, 94, 0);
const SKY: RGBColor = RGBColor(86, 180, 233);
pub(super) const COLORS: [RGBColor; 8] = [BLUE, ORANGE, GREEN, PINK, RED, SKY, INK, GREY];

/// Width, and the height of one chart, its heading in it.
const WIDE: u32 = 1000;
const HIGH: u32 = 480;
/// The least score that is drawn, and the greatest cost over the least.
const LEAST_SCORE: f64 = -1.0;
const MOST_COST: f64 = 10.0;
/// The distance of names, as a part of the chart's height.
const APART: f64 = 0.03;

/// What a picture of curves is called, and what its axes are.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    title: &'static str,
    answers: &'static str,
    seconds: &'static str,
    cost: &'static str,
}

/// Of searches of recorded tables.
pub const REPLAYED: Words = Words {
    title: "Replayed searches: means, and bands from the best seed to the worst",
    answers: "answers",
    seconds: "% of the seconds that the shortest search of a table took",
    cost: "least cost / optimum",
};
/// Of searches on this machine.
pub const MEASURED: Words = Words {
    title: "Searches on this machine: means, and bands from the best seed to the worst",
    answers: "trials",
    seconds: "% of the seconds after which the first strategy had its trials",
    cost: "latency / the best of all",
};

/// One chart each for equal answers, equal seconds and equal shares of the rows, as far as there are lines for it. Each
/// strategy and chain has a line with its name, and a band from its worst seed to its best.
///
/// # Errors
/// If no search is long enough for a line, or the picture cannot be drawn.
pub fn convergence(curves: &Curves, words: Words) -> Result<String> {
    if curves.are_empty() {
        let why = "there is no curve to draw: no search has two answers, one of them with a cost";
        return Err(Error::new(why).help("give more --trials, or leave --curves out"));
    }
    let drawn =
        drawn(curves, words).map_err(|e: Fault| Error::new(format!("cannot draw the study: {e}")));
    Ok(drawn?.unwrap_or_default())
}

type Chart<'a, 'b, X, Y> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<X, Y>>;

fn drawn(curves: &Curves, words: Words) -> Page {
    let costs = [
        (&curves.answers, words.answers),
        (&curves.seconds, words.seconds),
    ];
    let costs = costs
        .into_iter()
        .filter(|(c, _)| c.iter().any(Curve::is_line));
    let costs: Vec<_> = costs.collect();
    let scored = curves.scores.iter().any(Curve::is_line);
    let charts = costs.len() + usize::from(scored);
    let mut colors: HashMap<String, RGBColor> = HashMap::new();
    let all = [&curves.answers, &curves.seconds, &curves.scores];
    for curve in all.into_iter().flatten() {
        let color = COLORS[colors.len() % COLORS.len()];
        colors.entry(curve.name()).or_insert(color);
    }
    let size = (WIDE, HEAD + HIGH * charts as u32);
    page(size, words.title, &[], |area| {
        let areas = area.split_evenly((charts, 1));
        for ((curves, what), area) in costs.iter().zip(&areas) {
            of_costs(area, curves, (what, words.cost), &colors)?;
        }
        if let (true, Some(area)) = (scored, areas.last()) {
            of_scores(area, &curves.scores, &colors)?;
        }
        Ok(())
    })
}

fn of_costs(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    curves: &[Curve],
    (what, cost): (&str, &str),
    colors: &HashMap<String, RGBColor>,
) -> Drawn {
    let points = || curves.iter().flat_map(|c| &c.points);
    let last = points().map(|p| p.at).fold(0.0, f64::max);
    let most = points().map(|p| p.greatest).fold(1.01, f64::max);
    let most = most.min(MOST_COST);
    let mut builder = ChartBuilder::on(area);
    builder
        .margin_left(8)
        .margin_right(190)
        .margin_top(8)
        .x_label_area_size(48)
        .y_label_area_size(64);
    // A logarithmic axis has no labels within such a range.
    if most < 2.0 {
        let chart = builder.build_cartesian_2d(0.0..last, 1.0..most)?;
        let height = |v: f64| (v - 1.0) / (most - 1.0);
        let of_height = |h: f64| 1.0 + h * (most - 1.0);
        let ends = (last, most);
        return costs(
            chart,
            curves,
            (what, cost),
            colors,
            ends,
            (&height, &of_height),
        );
    }
    let chart = builder.build_cartesian_2d(0.0..last, (1.0..most).log_scale())?;
    let height = |v: f64| v.ln() / most.ln();
    let of_height = |h: f64| (h * most.ln()).exp();
    let ends = (last, most);
    costs(
        chart,
        curves,
        (what, cost),
        colors,
        ends,
        (&height, &of_height),
    )
}

/// The axes and the lines of a chart of costs.
fn costs<X, Y>(
    mut chart: Chart<'_, '_, X, Y>,
    curves: &[Curve],
    (what, cost): (&str, &str),
    colors: &HashMap<String, RGBColor>,
    (last, most): (f64, f64),
    heights: (&dyn Fn(f64) -> f64, &dyn Fn(f64) -> f64),
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let digits = if most < 1.1 { 3 } else { 2 };
    ruled(&mut chart.configure_mesh())
        .disable_x_mesh()
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_desc(what)
        .y_desc(cost)
        .x_label_formatter(&|v| match last <= 1.0 {
            true => format!("{:.0}", 100.0 * v),
            false => format!("{v:.0}"),
        })
        .y_label_formatter(&|v| format!("{v:.digits$}"))
        .draw()?;
    lines(&mut chart, curves, colors, (1.0, most), last, heights)
}

fn of_scores(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    curves: &[Curve],
    colors: &HashMap<String, RGBColor>,
) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(190)
        .margin_top(8)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..LAST, LEAST_SCORE..1.0)?;
    ruled(&mut chart.configure_mesh())
        .disable_x_mesh()
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_desc("answers, as a share of the rows")
        .y_desc("score: 0 is random search, 1 the optimum")
        .x_label_formatter(&|v| format!("{:.0}%", 100.0 * v))
        .y_label_formatter(&|v| format!("{v:.1}"))
        .draw()?;
    let span = 1.0 - LEAST_SCORE;
    let height = |v: f64| (v - LEAST_SCORE) / span;
    let of_height = |h: f64| LEAST_SCORE + h * span;
    let range = (LEAST_SCORE, 1.0);
    lines(
        &mut chart,
        curves,
        colors,
        range,
        LAST,
        (&height, &of_height),
    )
}

/// The lines of a chart, each with its band and with its name at its end; names do not cover each other. The last two say how
/// high a value is, from 0 to 1, and the value of a height.
fn lines<X, Y>(
    chart: &mut Chart<'_, '_, X, Y>,
    curves: &[Curve],
    colors: &HashMap<String, RGBColor>,
    (low, high): (f64, f64),
    last: f64,
    (height, of_height): (&dyn Fn(f64) -> f64, &dyn Fn(f64) -> f64),
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut drawn: Vec<&Curve> = curves.iter().filter(|c| c.is_line()).collect();
    let end = |c: &Curve| c.points.last().map_or(low, |p| p.mean.clamp(low, high));
    drawn.sort_by(|a, b| end(b).total_cmp(&end(a)));
    let line = |c: &Curve, of: fn(&CurvePoint) -> f64| -> Vec<(f64, f64)> {
        let seen = |p: &CurvePoint| (p.at, of(p).clamp(low, high));
        c.points.iter().map(seen).collect()
    };
    let color = |c: &Curve| colors.get(&c.name()).copied().unwrap_or(INK);
    for c in &drawn {
        let mut band = line(c, |p| p.greatest);
        band.extend(line(c, |p| p.least).into_iter().rev());
        chart.draw_series([Polygon::new(band, color(c).mix(0.15).filled())])?;
    }
    // Where all lines end at the bottom, the names begin so high that the last one is there.
    let (mut next, mut left) = (f64::INFINITY, drawn.len());
    for c in drawn {
        let color = color(c);
        let style = color.stroke_width(2);
        chart.draw_series([PathElement::new(line(c, |p| p.mean), style)])?;
        left -= 1;
        next = height(end(c)).max(APART * left as f64).min(next - APART);
        let style = font(12, HPos::Left, VPos::Center).color(&color);
        let label = Text::new(c.name(), (8, 0), style);
        chart.draw_series([EmptyElement::at((last, of_height(next))) + label])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_strategy_has_a_line_and_a_band_in_each_chart_that_it_has_points_for() {
        let point = |at: f64| CurvePoint {
            at,
            mean: 2.0 - at / 20.0,
            least: 1.0,
            greatest: 3.0,
        };
        let curve = |strategy: &str, points: i32| Curve {
            strategy: strategy.into(),
            filters: vec![],
            points: (1..=points).map(|at| point(f64::from(at))).collect(),
        };
        let both = vec![curve("grid", 9), curve("random", 9)];
        let count = |answers: &[Curve], seconds: &[Curve], scores: &[Curve]| {
            let curves = Curves {
                answers: answers.to_vec(),
                seconds: seconds.to_vec(),
                scores: scores.to_vec(),
            };
            let svg = convergence(&curves, MEASURED);
            let svg = svg.unwrap();
            let names = svg.matches(">\nrandom\n").count();
            (svg.matches("<polygon").count(), names)
        };
        assert_eq!(count(&both, &[], &[]), (2, 1));
        assert_eq!(count(&both, &both, &[curve("grid", 0)]), (4, 2));
        assert_eq!(count(&both, &both, &both), (6, 3));
        let nothing = Curves {
            answers: vec![curve("grid", 1)],
            seconds: vec![],
            scores: vec![],
        };
        assert!(convergence(&nothing, REPLAYED).is_err());
    }
}
