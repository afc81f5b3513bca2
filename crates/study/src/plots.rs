//! A study as pictures.
//!
//! Owns what is drawn and how; every picture is one SVG text. What is averaged
//! over what is `report`'s.

mod decisions;
mod predictors;
mod select;
mod strategies;
mod survey;

pub use predictors::predicted_orders;
pub use select::selections;
pub use strategies::{MEASURED, REPLAYED, convergence};
pub use survey::{Course, CoursePoint, courses, surveys};

use super::measured::Findings;
use super::report::{Group, groups_with, swept_names};
use super::row::{Row, mean};
use measure::{Policy, RoundReport};
use plotters::chart::{ChartContext, MeshStyle};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::Ranged;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::{
    ChartBuilder, Circle, Color, DrawingArea, DrawingBackend, EmptyElement, IntoDrawingArea,
    IntoFont, IntoLogRange, PathElement, RGBColor, Rectangle, SVGBackend, Text, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::BTreeMap;
use std::ops::Range;
use tune::{Error, Result};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type NamesChart<'b, 'a> =
    ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Fault = Box<dyn std::error::Error>;
type Drawn = std::result::Result<(), Fault>;
/// The text of a picture, if there is anything to draw.
type Page = std::result::Result<Option<String>, Fault>;

/// A file's name and its text.
pub struct Picture {
    pub file: String,
    pub svg: String,
}

/// Told apart with any eyes (Okabe and Ito).
const ORANGE: RGBColor = RGBColor(230, 159, 0);
const BLUE: RGBColor = RGBColor(0, 114, 178);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const GREY: RGBColor = RGBColor(120, 120, 120);
const INK: RGBColor = RGBColor(30, 30, 30);
const RULE: RGBColor = RGBColor(225, 225, 225);

/// Height of the line with title and legend.
const HEAD: u32 = 40;

/// The lines of every chart.
fn ruled<'m, 'a, 'b, X: Ranged, Y: Ranged, DB: DrawingBackend>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, DB>,
) -> &'m mut MeshStyle<'a, 'b, X, Y, DB> {
    mesh.light_line_style(WHITE)
        .bold_line_style(RULE)
        .axis_style(GREY)
}

fn font(size: u32, h: HPos, v: VPos) -> TextStyle<'static> {
    ("sans-serif", size)
        .into_font()
        .color(&INK)
        .pos(Pos::new(h, v))
}

/// The start of a text that fits so many letters.
fn cut(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.into();
    }
    text.chars().take(letters - 1).chain(['…']).collect()
}

/// What a letter takes at most at 12 pixels, on the mean of a name.
const WIDE: i32 = 7;

/// A text in lines of so many letters, broken behind a sign that is no letter where there is one.
fn lines(text: &str, letters: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest: Vec<char> = text.chars().collect();
    while rest.len() > letters.max(1) {
        let fits = &rest[..letters.max(1)];
        let sign = fits.iter().rposition(|c| !c.is_alphanumeric());
        let tail = rest.split_off(sign.map_or(fits.len(), |at| at + 1));
        found.push(rest.iter().collect::<String>().trim_end().to_string());
        rest = tail;
    }
    found.push(rest.into_iter().collect());
    found
}

/// All pictures of a study; `tau` is the error that DOPpler bears.
///
/// # Errors
/// If something cannot be drawn.
pub fn pictures(o: &Findings, tau: f64) -> Result<Vec<Picture>> {
    let mut all = Vec::new();
    let mut add = |file: String, svg: Page| -> Result<()> {
        let fail = |e: Fault| Error::new(format!("cannot draw {file}: {e}"));
        all.extend(svg.map_err(fail)?.map(|svg| Picture { file, svg }));
        Ok(())
    };
    for (overlap, name) in [(false, "off"), (true, "on")] {
        add(format!("time-overlap-{name}.svg"), time(o, overlap))?;
    }
    add("dp.svg".into(), degrees(o))?;
    add("delta.svg".into(), errors(o, tau))?;
    add("failures.svg".into(), failures(o))?;
    for name in swept_names(o) {
        add(format!("sweep-{name}.svg"), sweep(o, &name))?;
    }
    Ok(all)
}

/// A picture with a title and a legend above its body.
fn page(
    (width, height): (u32, u32),
    title: &str,
    legend: &[(&str, RGBColor)],
    body: impl FnOnce(&Area<'_>) -> Drawn,
) -> Page {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, rest) = root.split_vertically(HEAD);
        let middle = HEAD as i32 / 2;
        head.draw(&Text::new(
            title.to_string(),
            (12, middle),
            font(16, HPos::Left, VPos::Center),
        ))?;
        let mut x = width as i32 - 12;
        for (name, color) in legend.iter().rev() {
            x -= 7 * name.chars().count() as i32 + 8;
            let style = font(12, HPos::Left, VPos::Center);
            head.draw(&Text::new(name.to_string(), (x, middle), style))?;
            let square = [(x - 16, middle - 5), (x - 6, middle + 5)];
            head.draw(&Rectangle::new(square, color.filled()))?;
            x -= 28;
        }
        body(&rest)?;
        root.present()?;
    }
    Ok(Some(svg))
}

/// One bar: where it is, its mean, and the least and most of its repetitions.
struct Bar {
    at: f64,
    color: RGBColor,
    mean: f64,
    range: (f64, f64),
}

fn bar(g: &Group<'_>, of: fn(&Row) -> Option<f64>, at: f64, color: RGBColor) -> Option<Bar> {
    let all: Vec<f64> = g.rows.iter().filter_map(|r| of(r)).collect();
    Some(Bar {
        at,
        color,
        mean: mean(all.iter().copied())?,
        range: (
            all.iter().copied().reduce(f64::min)?,
            all.iter().copied().reduce(f64::max)?,
        ),
    })
}

/// Thickness of a bar, where programs are one apart.
const BAR: f64 = 0.36;

/// Bars from zero to the right or left, a line of labels for each.
fn bars(area: &Area<'_>, names: &[String], label_width: u32, axis: &str, bars: &[Bar]) -> Drawn {
    let ends = || bars.iter().flat_map(|b| [b.range.0, b.range.1]);
    let lo = ends().fold(-50.0, f64::min) - 3.0;
    let hi = ends().fold(5.0, f64::max) + 3.0;
    let n = names.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin_right(16)
        .x_label_area_size(44)
        .y_label_area_size(label_width)
        .build_cartesian_2d(lo..hi, n..0.0)?;
    ruled(&mut chart.configure_mesh())
        .disable_y_mesh()
        .y_labels(0)
        .x_labels(7)
        .x_desc(axis)
        .x_label_formatter(&|v| format!("{v:+.0}%"))
        .label_style(font(12, HPos::Center, VPos::Top))
        .draw()?;
    let rectangle = |b: &Bar| {
        let ends = [(0.0, b.at), (b.mean, b.at + BAR)];
        Rectangle::new(ends, b.color.filled())
    };
    chart.draw_series(bars.iter().map(rectangle))?;
    let whisker = |b: &Bar| {
        let y = b.at + BAR / 2.0;
        PathElement::new(vec![(b.range.0, y), (b.range.1, y)], INK.stroke_width(1))
    };
    chart.draw_series(bars.iter().map(whisker))?;
    chart.draw_series([PathElement::new(
        vec![(0.0, 0.0), (0.0, n)],
        INK.stroke_width(1),
    )])?;
    if label_width > 50 {
        let style = font(12, HPos::Right, VPos::Center);
        let label = |(i, name): (usize, &String)| {
            let text = cut(name, (label_width / 7) as usize);
            EmptyElement::at((lo, i as f64 + 0.5)) + Text::new(text, (-8, 0), style.clone())
        };
        chart.draw_series(names.iter().enumerate().map(label))?;
    }
    Ok(())
}

/// Change of tuning time by program: everything, and measuring alone.
fn time(o: &Findings, overlap: bool) -> Page {
    let drawn = [(Policy::Naive, ORANGE), (Policy::Doppler, BLUE)];
    let groups: Vec<Group<'_>> = groups_with(o, None)
        .into_iter()
        .filter(|g| g.first().overlap == overlap)
        .collect();
    let mut names: Vec<String> = Vec::new();
    let (mut all, mut measuring) = (Vec::new(), Vec::new());
    for g in &groups {
        let name = &g.first().program;
        let at = names.iter().position(|n| n == name).unwrap_or_else(|| {
            names.push(name.clone());
            names.len() - 1
        });
        let Some(i) = drawn.iter().position(|(p, _)| g.first().is(*p)) else {
            continue;
        };
        let (y, color) = (at as f64 + 0.12 + i as f64 * (BAR + 0.04), drawn[i].1);
        all.extend(bar(g, |r| r.related.against_serial, y, color));
        measuring.extend(bar(g, |r| r.related.measuring_against_serial, y, color));
    }
    if all.is_empty() {
        return Ok(None);
    }
    let title = if overlap {
        "Change against serial, building meanwhile"
    } else {
        "Change against serial, building before"
    };
    let height = HEAD + 60 + 32 * names.len() as u32;
    let legend = [("naive", ORANGE), ("doppler", BLUE)];
    page((980, height), title, &legend, |area| {
        let (left, right) = area.split_horizontally(560);
        bars(&left, &names, 210, "all of the tuning time", &all)?;
        bars(&right, &names, 24, "measuring alone", &measuring)
    })
}

/// Programs that are drawn one by one, at most.
const PANELS: usize = 24;
const COLUMNS: usize = 4;

/// Rounds of each repetition, with what DOPpler asked for.
fn degrees(o: &Findings) -> Page {
    let mut tasks: Vec<(String, Vec<&Row>)> = Vec::new();
    let own = |r: &&Row| r.is(Policy::Doppler) && !r.rounds.is_empty();
    for r in o.rows.iter().filter(own) {
        match tasks
            .iter_mut()
            .find(|(_, rows)| rows[0].key == r.key && rows[0].program == r.program)
        {
            Some((_, rows)) => rows.push(r),
            None => {
                let in_model = o.models.iter().any(|m| m.program == r.program);
                let name = if in_model { &r.task } else { &r.program };
                tasks.push((name.clone(), vec![r]));
            }
        }
    }
    if tasks.is_empty() {
        return Ok(None);
    }
    // Those that take longest, where there are too many.
    let mut longest: Vec<f64> = tasks
        .iter()
        .map(|(_, rows)| rows[0].times.measure_s)
        .collect();
    longest.sort_by(|a, b| b.total_cmp(a));
    let least = longest[longest.len().min(PANELS) - 1];
    tasks.retain(|(_, rows)| rows[0].times.measure_s >= least);
    let rounds = || {
        tasks
            .iter()
            .flat_map(|(_, rows)| rows)
            .flat_map(|r| &r.rounds)
    };
    let most = f64::from(rounds().map(|r| r.dp).max().unwrap_or(1).max(4));
    let lines = tasks.len().div_ceil(COLUMNS);
    let legend = [("building before", BLUE), ("building meanwhile", ORANGE)];
    let size = (1000, HEAD + 170 * lines as u32);
    let title = "doppler's degree of parallelism against candidates measured";
    page(size, title, &legend, |area| {
        for ((name, rows), panel) in tasks.iter().zip(area.split_evenly((lines, COLUMNS))) {
            let n = rows.iter().map(|r| r.candidates).max().unwrap_or(1) as f64;
            let mut chart = ChartBuilder::on(&panel)
                .caption(cut(name, 34), ("sans-serif", 12).into_font().color(&INK))
                .margin(6)
                .margin_right(14)
                .x_label_area_size(22)
                .y_label_area_size(32)
                .build_cartesian_2d(0.0..n, 0.0..most * 1.05)?;
            ruled(&mut chart.configure_mesh())
                .x_labels(4)
                .y_labels(4)
                .x_label_formatter(&|v| format!("{v:.0}"))
                .y_label_formatter(&|v| format!("{v:.0}"))
                .draw()?;
            for r in rows {
                let color = if r.overlap { ORANGE } else { BLUE };
                let style = color.mix(0.8).stroke_width(1);
                chart.draw_series([PathElement::new(steps(&r.rounds), style)])?;
            }
        }
        Ok(())
    })
}

/// The degree of parallelism of each round, over its candidates.
fn steps(rounds: &[RoundReport]) -> Vec<(f64, f64)> {
    let mut done = 0.0;
    let mut line = Vec::new();
    for r in rounds {
        let dp = f64::from(r.dp);
        line.push((done, dp));
        done += r.candidates as f64;
        line.push((done, dp));
    }
    line
}

/// All rounds in which candidates were measured side by side.
fn rounds(o: &Findings) -> impl Iterator<Item = (&Row, &RoundReport)> {
    let own = o.rows.iter().filter(|r| r.policy == Policy::Doppler);
    let all = own.flat_map(|r| r.rounds.iter().map(move |round| (r, round)));
    all.filter(|(_, round)| round.candidates > 1)
}

/// The first degree of parallelism of each class that rounds are put in.
const CLASSES: [u32; 6] = [2, 5, 9, 17, 33, 65];

fn class(dp: u32) -> usize {
    CLASSES.iter().rposition(|first| dp >= *first).unwrap_or(0)
}

fn class_name(i: usize) -> String {
    match CLASSES.get(i + 1) {
        Some(next) => format!("{} to {}", CLASSES[i], next - 1),
        None => format!("{} or more", CLASSES[i]),
    }
}

/// Errors of less are drawn as this.
const LEAST_ERROR: f64 = 0.01;

/// The error of each round against its width, and the median by class.
fn errors(o: &Findings, tau: f64) -> Page {
    let worst = |r: &RoundReport| r.delta.iter().flatten().copied().reduce(f64::max);
    let known: Vec<(f64, f64, bool)> = rounds(o)
        .filter_map(|(row, r)| {
            let delta = (100.0 * worst(r)?).max(LEAST_ERROR);
            Some((r.candidates as f64, delta, row.overlap))
        })
        .collect();
    let Some(most) = known.iter().map(|k| k.1).reduce(f64::max) else {
        return Ok(None);
    };
    let wide = known.iter().map(|k| k.0).fold(8.0, f64::max) + 2.0;
    let mut classes: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
    for (n, delta, _) in &known {
        classes
            .entry(class(*n as u32))
            .or_default()
            .push((*n, *delta));
    }
    let median = |own: &Vec<(f64, f64)>| {
        let mut errors: Vec<f64> = own.iter().map(|(_, d)| *d).collect();
        errors.sort_by(f64::total_cmp);
        let at = mean(own.iter().map(|(n, _)| *n)).unwrap_or(0.0);
        (at, errors[errors.len() / 2])
    };
    let medians: Vec<(f64, f64)> = classes.values().map(median).collect();
    let legend = [
        ("building before", BLUE),
        ("building meanwhile", ORANGE),
        ("median by width", INK),
        ("tau", GREEN),
    ];
    let title = "|delta| against the width of rounds";
    page((900, 460), title, &legend, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_left(8)
            .margin_right(16)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..wide, (LEAST_ERROR..most.max(100.0) * 1.2).log_scale())?;
        ruled(&mut chart.configure_mesh())
            .x_desc("candidates measured side by side in a round")
            .y_desc("|delta|")
            .x_label_formatter(&|v| format!("{v:.0}"))
            .y_label_formatter(&|v| format!("{v}%"))
            .draw()?;
        let point = |(n, delta, overlap): &(f64, f64, bool)| {
            let color = if *overlap { ORANGE } else { BLUE };
            Circle::new((*n, *delta), 2, color.mix(0.45).filled())
        };
        chart.draw_series(known.iter().map(point))?;
        let level = vec![(0.0, 100.0 * tau), (wide, 100.0 * tau)];
        chart.draw_series([PathElement::new(level, GREEN.stroke_width(1))])?;
        chart.draw_series([PathElement::new(medians.clone(), INK.stroke_width(2))])?;
        chart.draw_series(medians.iter().map(|p| Circle::new(*p, 4, INK.filled())))?;
        Ok(())
    })
}

/// What failed in rounds, by their width.
fn failures(o: &Findings) -> Page {
    let mut classes: BTreeMap<usize, [f64; 4]> = BTreeMap::new();
    for (_, r) in rounds(o) {
        let c = classes.entry(class(r.candidates as u32)).or_default();
        c[0] += r.candidates as f64;
        c[1] += r.timed_out as f64;
        c[2] += r.failed.saturating_sub(r.timed_out) as f64;
        c[3] += r.recovered as f64;
    }
    if classes.is_empty() {
        return Ok(None);
    }
    let shares: Vec<(String, [f64; 3])> = classes
        .into_iter()
        .map(|(i, [all, rest @ ..])| (class_name(i), rest.map(|n| 100.0 * n / all)))
        .collect();
    let highest = shares
        .iter()
        .flat_map(|(_, s)| s)
        .fold(1.0f64, |m, s| m.max(*s));
    let legend = [
        ("out of time", ORANGE),
        ("failed otherwise", BLUE),
        ("good when alone", GREEN),
    ];
    let title = "Failures in doppler's rounds";
    page((800, 400), title, &legend, |area| {
        let n = shares.len() as f64;
        let names: Vec<String> = shares.iter().map(|(name, _)| name.clone()).collect();
        let axes = (
            "candidates measured side by side in a round",
            "share of candidates",
        );
        let percent = |v: &f64| format!("{v:.1}%");
        let mut chart = over_names(area, &names, 0.0..highest * 1.1, axes, &percent)?;
        for (k, (_, color)) in legend.iter().enumerate() {
            let bar = |(i, (_, s)): (usize, &(String, [f64; 3]))| {
                let x = i as f64 + 0.14 + 0.24 * k as f64;
                Rectangle::new([(x, 0.0), (x + 0.22, s[k])], color.filled())
            };
            chart.draw_series(shares.iter().enumerate().map(bar))?;
        }
        if shares.iter().all(|(_, s)| s.iter().all(|s| *s == 0.0)) {
            let style = font(14, HPos::Center, VPos::Center);
            let middle = (n / 2.0, highest / 2.0);
            chart.draw_series([Text::new("no candidate failed", middle, style)])?;
        }
        Ok(())
    })
}

/// What comes with each value: points of programs, and the mean of each policy.
fn sweep(o: &Findings, name: &str) -> Page {
    let groups = groups_with(o, Some(name));
    let mut values: Vec<String> = Vec::new();
    for s in groups.iter().filter_map(|g| g.first().swept.as_ref()) {
        if !values.contains(&s.value) {
            values.push(s.value.clone());
        }
    }
    let number = |v: &String| v.parse::<f64>().unwrap_or(0.0);
    values.sort_by(|a, b| number(a).total_cmp(&number(b)));
    let kinds = [
        ("doppler, building before", Policy::Doppler, false, BLUE),
        ("doppler, meanwhile", Policy::Doppler, true, GREEN),
        ("naive, building before", Policy::Naive, false, ORANGE),
        ("naive, meanwhile", Policy::Naive, true, GREY),
    ];
    let of_kind =
        |g: &Group<'_>, policy, overlap| (g.first().policy, g.first().overlap) == (policy, overlap);
    let there: Vec<_> = kinds
        .iter()
        .filter(|(_, p, on, _)| groups.iter().any(|g| of_kind(g, *p, *on)))
        .collect();
    let legend: Vec<(&str, RGBColor)> = there.iter().map(|k| (k.0, k.3)).collect();
    let lines = |of: fn(&Row) -> Option<f64>| -> Vec<(RGBColor, Vec<(f64, f64)>)> {
        let line = |(_, policy, overlap, color): &&(&str, Policy, bool, RGBColor)| {
            let own = groups.iter().filter(|g| of_kind(g, *policy, *overlap));
            let points = own.filter_map(|g| {
                let value = &g.first().swept.as_ref()?.value;
                let at = values.iter().position(|v| v == value)?;
                Some((at as f64 + 0.5, g.mean(of)?))
            });
            (*color, points.collect())
        };
        there.iter().map(line).collect()
    };
    let time = lines(|r| r.related.against_serial);
    let best = lines(|r| r.related.best_difference.map(|d| 100.0 * d));
    if time.iter().all(|(_, points)| points.is_empty()) {
        return Ok(None);
    }
    page((980, 400), &format!("{name} varied"), &legend, |area| {
        let (left, right) = area.split_horizontally(490);
        by_value(&left, &values, name, "tuning time against serial", &time)?;
        by_value(&right, &values, name, "best found against serial's", &best)
    })
}

/// A chart over names, each in the middle of a part of length 1 of the horizontal
/// axis; `axes` are what the two axes are called.
fn over_names<'a, 'b>(
    area: &'b Area<'a>,
    names: &[String],
    range: Range<f64>,
    axes: (&str, &str),
    label: &dyn Fn(&f64) -> String,
) -> std::result::Result<NamesChart<'b, 'a>, Fault> {
    let least = range.start;
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(16)
        .x_label_area_size(52)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..names.len() as f64, range)?;
    ruled(&mut chart.configure_mesh())
        .disable_x_mesh()
        .x_labels(0)
        .x_desc(axes.0)
        .y_desc(axes.1)
        .y_label_formatter(label)
        .draw()?;
    let style = font(12, HPos::Center, VPos::Top);
    let room = chart.plotting_area().dim_in_pixel().0 / names.len().max(1) as u32;
    for (i, name) in names.iter().enumerate() {
        for (line, text) in lines(name, room as usize / WIDE as usize)
            .into_iter()
            .enumerate()
        {
            let at = EmptyElement::at((i as f64 + 0.5, least));
            let text = Text::new(text, (0, 8 + 13 * line as i32), style.clone());
            chart.draw_series([at + text])?;
        }
    }
    Ok(chart)
}

/// Points above names on the axis, and a line through their means.
fn by_value(
    area: &Area<'_>,
    values: &[String],
    x: &str,
    y: &str,
    lines: &[(RGBColor, Vec<(f64, f64)>)],
) -> Drawn {
    let all = || lines.iter().flat_map(|(_, points)| points).map(|p| p.1);
    let lo = all().fold(0.0, f64::min);
    let hi = all().fold(0.0, f64::max);
    let pad = (0.08 * (hi - lo)).max(0.5);
    let (lo, hi, n) = (lo - pad, hi + pad, values.len() as f64);
    let percent = |v: &f64| format!("{v:+.1}%");
    let mut chart = over_names(area, values, lo..hi, (x, y), &percent)?;
    chart.draw_series([PathElement::new(
        vec![(0.0, 0.0), (n, 0.0)],
        GREY.stroke_width(1),
    )])?;
    for (color, points) in lines {
        let faint = color.mix(0.35);
        chart.draw_series(points.iter().map(|p| Circle::new(*p, 3, faint.filled())))?;
        let mut means: Vec<(f64, f64)> = Vec::new();
        for i in 0..values.len() {
            let at = i as f64 + 0.5;
            let here = points.iter().filter(|p| p.0 == at).map(|p| p.1);
            means.extend(mean(here).map(|m| (at, m)));
        }
        chart.draw_series([PathElement::new(means.clone(), color.stroke_width(2))])?;
        chart.draw_series(means.iter().map(|p| Circle::new(*p, 4, color.filled())))?;
    }
    Ok(())
}
