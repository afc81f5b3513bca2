//! `tune --report`: a run as one page, with pictures.

use super::energy_text;
use super::html::{Bar, Dot, Mark, Page, Steps, bars, roofline, steps};
use super::progress::duration;
use super::table::{ms, times};
use super::tune_report::{notes, result, task_gain};
use crate::titles::short;
use std::time::Duration;
use store::SurveyEpoch;
use study::plots::{Course, CoursePoint, courses};
use tune::{Moment, Report, Surveyed};

/// Bars of a picture, at most.
const BARS: usize = 25;
/// Colours of lines.
const BLUE: &str = "#1f6feb";
const GREY: &str = "#a8b3c2";

pub fn page(reports: &[&Report]) -> String {
    let names: Vec<&str> = reports.iter().map(|r| r.model.as_str()).collect();
    let mut page = Page::new(&format!("Tuning {}", names.join(", ")));
    for r in reports {
        if reports.len() > 1 {
            page.heading(&r.model);
        }
        model(&mut page, r);
    }
    page.done()
}

/// The model, or each tuner's, by epoch; none without a survey.
fn course(surveys: &[Surveyed], scores: bool) -> Option<Course> {
    let last = surveys.iter().map(|s| s.epochs.len()).max()?;
    // The time before any batch alone is no course.
    if last < 2 {
        return None;
    }
    let unit = if scores { 1.0 } else { 1e6 };
    let point = |s: &Surveyed, epoch: usize| CoursePoint {
        value: s.epochs.get(epoch).map(|e| e.cost / unit),
        // It says whether the next epoch has a batch.
        ran: epoch < s.epochs.len() && (epoch == 0 || s.epochs[epoch - 1].runs),
    };
    let epochs = (0..last).map(|e| surveys.iter().map(|s| point(s, e)).collect());
    let epochs: Vec<Vec<CoursePoint>> = epochs.collect();
    let values = || epochs.iter().flatten().filter_map(|p| p.value);
    let (least, most) = (
        values().fold(f64::INFINITY, f64::min),
        values().fold(0.0, f64::max),
    );
    let room = ((most - least) * 0.08).max(most * 0.01);
    let ended = surveys.iter().find_map(|s| s.epochs.last()?.ended.clone());
    Some(Course {
        title: ended.map_or(String::new(), |e| format!("ended by {e}")),
        names: ["epoch", if scores { "score" } else { "ms" }],
        ends: [least - room, most + room],
        first: 0,
        tuners: surveys.iter().map(|s| s.strategy.clone()).collect(),
        epochs,
    })
}

fn model(page: &mut Page, r: &Report) {
    page.lead(&result(r));
    for note in notes(r) {
        page.note(&note);
    }
    for d in &r.disturbances {
        page.note(&format!("warning: {d}"));
    }
    let curve = Steps {
        colour: BLUE,
        at: r.curve.iter().map(|m| (m.s, m.ms)).collect(),
    };
    if curve.at.len() > 1 {
        page.heading("Time of the model's kernels in the course of the search");
        let names = ["seconds since the command began", "ms"];
        page.picture(&steps(&[curve], &[], names));
        page.note("The scale does not begin at 0.");
        over_joules(page, r);
    }
    if let Some(course) = course(&r.survey, r.scores.is_some()) {
        // What cannot be drawn is in the notes, too.
        if let Ok(picture) = courses("Survey: x is suspended", &[course]) {
            page.heading("The model by epoch of the survey");
            page.picture(&picture);
            page.note("Epoch 0 is before any batch. The scale does not begin at 0.");
        }
    }
    let titles: Vec<&str> = r.tasks.iter().map(|t| t.task.as_str()).collect();
    let titles = short(&titles);
    page.heading(match r.changed {
        true => "Tasks: share of the time, one call by default and now, and gain",
        false => "Tasks: share of the time, and one call",
    });
    let of_tasks = r.tasks.iter().zip(&titles).take(BARS).map(|(t, title)| {
        let gain = task_gain(t).unwrap_or(1.0);
        Bar {
            name: title.clone(),
            length: t.share,
            text: match r.changed {
                true => format!(
                    "{:.1}%, {} to {} ms, {}",
                    100.0 * t.share,
                    ms(t.before_ms),
                    ms(t.after_ms),
                    times(gain)
                ),
                false => format!("{:.1}%, {} ms", 100.0 * t.share, ms(t.after_ms)),
            },
            good: r.changed && gain >= 1.05,
        }
    });
    page.picture(&bars(&of_tasks.collect::<Vec<_>>()));
    if r.changed {
        page.note("Green: at least 1.05x faster than by default.");
    }
    let dots = r.tasks.iter().zip(&titles).map(|(t, title)| Dot {
        name: title.clone(),
        intensity: t.gflop * 1e3 / t.mbytes.max(1e-9),
        gflops_per_s: t.gflops_per_s.unwrap_or(0.0),
        share: t.share,
    });
    let picture = roofline(&dots.collect::<Vec<_>>(), r.peak_gflops, r.read_gb_per_s);
    if !picture.is_empty() {
        page.heading("Roofline: rates of the tasks under what the machine can do");
        page.picture(&picture);
        page.note(
            "The area of a dot is the task's share of the time. The roof is the f32 peak and the \
             bandwidth of memory; what stays in caches, and Winograd, which executes fewer \
             operations than are counted, may lie above it.",
        );
    }
    energy(page, r);
    failures_and_settings(page, r);
}

/// The latency over the joules of the command: the sum of the kernels, and the whole model where a survey measured it.
fn over_joules(page: &mut Page, r: &Report) {
    let line = |colour: &'static str, joules: fn(&Moment) -> Option<f64>| Steps {
        colour,
        at: r
            .curve
            .iter()
            .filter_map(|m| Some((joules(m)?, m.ms)))
            .collect(),
    };
    let lines = [line(GREY, |m| m.least_joules), line(BLUE, |m| m.joules)];
    if lines[1].at.is_empty() {
        return;
    }
    // Tuners that took turns each have a line of their own, and the page has that of the best.
    let own = r.survey.iter().filter(|s| s.strategy == r.strategy);
    let measured = own.flat_map(|s| &s.epochs).filter(|_| r.scores.is_none());
    let mark = |e: &SurveyEpoch| {
        let [least, most] = e.joules?;
        let (ms, range) = (e.cost / 1e6, energy_text::range(least, most));
        let when = match e.epoch {
            0 => "before any batch".to_string(),
            n => format!("after epoch {n}"),
        };
        Some(Mark {
            at: (most, ms),
            title: format!("the whole model {when}: {ms:.3} ms, {range}"),
        })
    };
    let marks: Vec<Mark> = measured.filter_map(mark).collect();
    page.heading("Time of the model's kernels over the joules of the command");
    page.picture(&steps(
        &lines,
        &marks,
        ["joules since the command began", "ms"],
    ));
    let mut note = "The scale does not begin at 0.".to_string();
    if r.energy.as_ref().is_some_and(|e| e.estimated) {
        note += " Joules are estimated: blue is by the larger estimate, grey by the smaller one.";
    }
    if !marks.is_empty() {
        note += " Dots are the whole model, as the survey measured it before any batch and after each epoch.";
    }
    page.note(&note);
}

/// What the command used, by phase.
fn energy(page: &mut Page, r: &Report) {
    let Some(e) = &r.energy else { return };
    page.heading(match e.estimated {
        true => "Energy of the whole command by phase, estimated",
        false => "Energy of the whole command by phase",
    });
    let mut header = vec!["phase"];
    header.extend(e.by.iter().chain(&e.devices).map(|m| m.source.as_str()));
    page.table(&header, &energy_text::phases(e));
    page.note(&format!("Joules are {}.", energy_text::source(e)));
}

fn failures_and_settings(page: &mut Page, r: &Report) {
    if !r.failures.is_empty() {
        page.heading("Candidates without a time");
        let row = |(kind, n): (&String, &u64)| vec![kind.clone(), n.to_string()];
        let rows: Vec<Vec<String>> = r.failures.iter().map(row).collect();
        page.table(&["outcome", "candidates"], &rows);
    }
    page.heading("Settings");
    let took = duration(Duration::from_secs_f64(r.wall_s));
    let tried = if r.scores.is_some() { "read" } else { "tried" };
    let mut rows = vec![
        ("target", r.target.clone()),
        ("threads", r.threads.to_string()),
        ("strategy", r.strategy.clone()),
        ("measured", r.measure.clone()),
        (
            "accuracy",
            format!("{}, {:.0e} allowed", r.accuracy, r.tolerance),
        ),
        ("space", r.space.clone()),
        ("seed", r.seed.to_string()),
        ("took", took),
        (
            "candidates",
            format!("{} {tried}, {} known before", r.trials, r.cached),
        ),
        ("peak", format!("{:.0} GFLOP/s", r.peak_gflops)),
    ];
    rows.extend(r.scores.iter().map(|kind| ("scored by", kind.clone())));
    let rows = rows.into_iter();
    let rows = rows.map(|(name, value)| vec![name.to_string(), value]);
    page.table(&["setting", "value"], &rows.collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surveyed(strategy: &str, epochs: &[(f64, bool)]) -> Surveyed {
        let epoch = |(epoch, (ms, runs)): (usize, &(f64, bool))| SurveyEpoch {
            epoch,
            cost: ms * 1e6,
            spent: 0.0,
            unit: "s".into(),
            joules: None,
            rate: None,
            runs: *runs,
            queue: 1,
            core_sets: vec![],
            ended: None,
            extra: Default::default(),
        };
        Surveyed {
            strategy: strategy.into(),
            trials: 0,
            kernels_ms: 1.0,
            whole_s: 0.0,
            epochs: epochs.iter().enumerate().map(epoch).collect(),
        }
    }

    #[test]
    fn a_suspension_is_a_cross_at_the_last_epoch_with_a_batch() {
        let crosses = |runs: [bool; 3]| {
            let one = surveyed("one", &[(5.0, true), (4.0, true), (3.0, true), (2.0, true)]);
            let times = [5.0, 4.5, 4.5];
            let mut other: Vec<(f64, bool)> = times.into_iter().zip(runs).collect();
            other.push((4.5, false));
            let course = course(&[one, surveyed("other", &other)], false).unwrap();
            let ran: Vec<bool> = course.epochs.iter().map(|e| e[1].ran).collect();
            assert_eq!(course.epochs[3][0].value, Some(2.0));
            let svg = courses("title", &[course]).unwrap();
            let lines = svg.matches("<line").count();
            (ran, lines)
        };
        let (all, without) = crosses([true; 3]);
        assert_eq!(all, [true; 4]);
        let (some, with) = crosses([true, false, false]);
        assert_eq!(some, [true, true, false, false]);
        // A cross is two lines.
        assert_eq!(with, without + 2);
        assert!(course(&[surveyed("one", &[(5.0, true)])], false).is_none());
        assert!(course(&[], false).is_none());
    }
}
