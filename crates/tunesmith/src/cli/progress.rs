//! Live progress on standard error: several lines that change in place on a terminal, a line
//! every few seconds elsewhere.

use super::energy_text;
use super::screen::{self, Style, cut, styled};
use super::table::times;
use crate::titles::{fitted, short};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::stderr;
use std::time::{Duration, Instant};
use tune::{Observer, Status, TaskProgress};

/// Time between two lines where nothing can change in place.
const EVERY: Duration = Duration::from_secs(5);
/// Least time between two pictures of a terminal.
const REDRAW: Duration = Duration::from_millis(120);
/// Characters of a bar and of a curve.
const BAR: usize = 24;
const CURVE: usize = 24;
/// Letters of a model's name that a narrow screen shows.
const LEAST_NAME: usize = 8;

/// What a run tells, on a screen that changes.
pub struct Progress {
    view: View,
    /// What is tuned.
    name: String,
    curve: Curve,
    last: Option<Instant>,
}

/// The model's time at points of equal distance: over the joules of the command where they are counted, and else over seconds.
#[derive(Debug)]
struct Curve {
    apart: f64,
    ms: Vec<f64>,
}

impl Default for Curve {
    fn default() -> Curve {
        Curve {
            apart: 0.25,
            ms: vec![],
        }
    }
}

impl Curve {
    /// Keeps the model's time until now.
    fn note(&mut self, s: &Status<'_>) {
        // Nothing is known of the model's time while candidates are read.
        if s.reading {
            return;
        }
        let now = s.joules.map_or(s.elapsed.as_secs_f64(), |j| j.most);
        while now / self.apart > (40 * CURVE) as f64 {
            self.apart *= 2.0;
            self.ms = self.ms.iter().step_by(2).copied().collect();
        }
        let wanted = (now / self.apart) as usize;
        if self.ms.is_empty() {
            self.ms = vec![s.start_ms; wanted];
        }
        while self.ms.len() <= wanted {
            self.ms.push(s.model_ms);
        }
    }
}

enum View {
    Quiet,
    /// One line a few seconds.
    Lines,
    /// Several lines in place.
    Terminal(ProgressBar),
}

impl Progress {
    /// `quiet`: print nothing.
    pub fn new(name: &str, quiet: bool) -> Progress {
        let view = match (quiet, std::io::IsTerminal::is_terminal(&stderr())) {
            (true, _) => View::Quiet,
            (false, false) => View::Lines,
            (false, true) => {
                let target = ProgressDrawTarget::stderr_with_hz(8);
                let bar = ProgressBar::with_draw_target(None, target);
                let style = ProgressStyle::with_template("{msg}");
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
                View::Terminal(bar)
            }
        };
        Progress {
            view,
            name: name.into(),
            curve: Curve::default(),
            last: None,
        }
    }

    pub fn finish(&self) {
        if let View::Terminal(bar) = &self.view {
            bar.finish_and_clear();
        }
    }

    /// Says something beside the view, from any thread.
    pub fn speaker(&self) -> impl Fn(&str) + Send + 'static {
        let bar = match &self.view {
            View::Terminal(bar) => Some(bar.clone()),
            _ => None,
        };
        move |text: &str| match &bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Whether it is time for another picture or line.
    fn is_due(&mut self) -> bool {
        let every = match self.view {
            View::Quiet => return false,
            View::Lines => EVERY,
            View::Terminal(_) => REDRAW,
        };
        if self.last.is_some_and(|last| last.elapsed() < every) {
            return false;
        }
        self.last = Some(Instant::now());
        true
    }
}

impl Observer for Progress {
    fn stage(&mut self, what: &str) {
        let what = with_short_title(what);
        match &self.view {
            View::Quiet => {}
            View::Terminal(bar) => {
                let line = format!("{}: {what}", self.name);
                bar.set_message(cut(&line, screen::width(&stderr()) - 1));
                bar.tick();
                self.last = None;
            }
            View::Lines => {
                if self.is_due() {
                    eprintln!("{}: {what}", self.name);
                }
            }
        }
    }

    fn part(&mut self, done: f64, what: &str) {
        self.stage(&format!("{:.0}%, {what}", 100.0 * done.clamp(0.0, 1.0)));
    }

    fn note(&mut self, text: &str) {
        if !matches!(self.view, View::Quiet) {
            self.speaker()(text);
        }
    }

    fn status(&mut self, s: &Status<'_>) {
        self.curve.note(s);
        if !self.is_due() {
            return;
        }
        match &self.view {
            View::Quiet => {}
            View::Lines => eprintln!("{}: {}", self.name, line(s)),
            View::Terminal(bar) => {
                let (width, colours) = (screen::width(&stderr()) - 1, screen::colours(&stderr()));
                bar.set_message(picture(&self.name, s, &self.curve, width, colours));
            }
        }
    }
}

/// What a run does, with the title of a task at its end in a few words.
fn with_short_title(what: &str) -> String {
    match what.rsplit_once(": ") {
        Some((doing, title)) => format!("{doing}: {}", short(&[title])[0]),
        None => what.into(),
    }
}

/// Seconds, or minutes and seconds.
pub fn duration(d: Duration) -> String {
    match d.as_secs() {
        s if s < 60 => format!("{s} s"),
        s if s < 3600 => format!("{} m {} s", s / 60, s % 60),
        s => format!("{} h {} m", s / 3600, s / 60 % 60),
    }
}

/// A status in one line.
fn line(s: &Status<'_>) -> String {
    let others = s.others.map_or(String::new(), |cpus| {
        format!("; other programs use {cpus:.1} CPUs")
    });
    if s.reading {
        let left = s.left.map_or(String::new(), |d| {
            format!(" ({} left to read)", duration(d))
        });
        return format!(
            "reading for {}{left}: {}{others}",
            duration(s.elapsed),
            counts(s)
        );
    }
    let left = s
        .left
        .map_or(String::new(), |d| format!(" ({} left)", duration(d)));
    let part = |text: Option<String>| text.map_or(String::new(), |text| text + "; ");
    format!(
        "{}{left}: {}{}{}{others}",
        duration(s.elapsed),
        part(latency(s)),
        part(joules(s)),
        counts(s)
    )
}

/// How many candidates and tasks have been measured, or read.
fn counts(s: &Status<'_>) -> String {
    let (trials, answered) = match s.reading {
        true => ("candidates read", "read"),
        false => ("trials", "measured"),
    };
    format!(
        "{} {trials}, {} failed; {} of {} tasks {answered}",
        s.trials, s.failures, s.tasks_measured, s.tasks
    )
}

/// The time of the kernels now, and how much better than at the start that is; none where
/// nothing is measured.
fn latency(s: &Status<'_>) -> Option<String> {
    (s.model_ms > 0.0).then(|| match s.start_ms > 0.0 {
        true => format!(
            "kernels {:.2} ms now, {:.2} ms at start ({})",
            s.model_ms,
            s.start_ms,
            times(s.start_ms / s.model_ms)
        ),
        false => format!("kernels {:.2} ms", s.model_ms),
    })
}

/// Joules of the command so far; none where nothing counts them.
fn joules(s: &Status<'_>) -> Option<String> {
    let j = s.joules?;
    let estimated = if j.estimated { " (estimated)" } else { "" };
    Some(energy_text::range(j.least, j.most) + estimated)
}

/// A status in several lines.
fn picture(name: &str, s: &Status<'_>, curve: &Curve, width: usize, colours: bool) -> String {
    let done = (s.spent.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    let bar = "█".repeat(done) + &"░".repeat(BAR - done);
    let (doing, of_time, of_trials) = match s.reading {
        true => ("reading", "left to read", "of the candidates"),
        false => ("tuning", "left", "of the trials"),
    };
    let left = match s.left {
        Some(left) => format!("{} {of_time}", duration(left)),
        None => format!("{:.0}% {of_trials}", 100.0 * s.spent),
    };
    let with_curve = |text: String, unit: &str| match sparkline(&curve.ms) {
        line if line.is_empty() => text,
        line => format!("{text}  {line}{unit}"),
    };
    let latency = latency(s).unwrap_or_default();
    let (latency, joules) = match joules(s) {
        Some(joules) => (latency, Some(with_curve(joules, " ms over joules"))),
        None => (with_curve(latency, ""), None),
    };
    // What is behind the name counts more than a long name does.
    let behind = format!("  {bar}  {}, {left}", duration(s.elapsed));
    let room = width.saturating_sub(doing.len() + 1 + behind.chars().count());
    let name = fitted(name, room.max(LEAST_NAME));
    let mut lines = vec![
        (format!("{doing} {name}{behind}"), Some(Style::Bold)),
        (format!("  {latency}"), Some(Style::Good)),
    ];
    lines.extend(joules.map(|text| (format!("  {text}"), None)));
    lines.push((format!("  {}, {:.0}/s", counts(s), s.trials_per_s), None));
    let titles: Vec<&str> = s.costliest.iter().map(|t| t.title).collect();
    let whole = s.model_ms.max(f64::MIN_POSITIVE);
    for (t, title) in s.costliest.iter().zip(short(&titles)) {
        lines.push((costly(t, &title, whole, width), None));
    }
    if let Some(cpus) = s.others {
        let text = format!("  other programs use {cpus:.1} CPUs: times are less certain");
        lines.push((text, Some(Style::Warning)));
    }
    let shown = lines.into_iter().map(|(text, style)| {
        let text = cut(&text, width);
        style.map_or(text.clone(), |style| styled(&text, style, colours))
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// A costly task in so many columns: its share, its time, its gain and its title.
fn costly(t: &TaskProgress<'_>, title: &str, whole: f64, width: usize) -> String {
    let share = 100.0 * t.now_ms * t.uses as f64 / whole;
    let gain = times(t.before_ms / t.now_ms);
    let facts = format!("  {share:>4.0}%  {:>8.3} ms  {gain:>6}  ", t.now_ms);
    let room = width.saturating_sub(facts.chars().count());
    facts + &fitted(title, room)
}

/// A curve in a few characters, from its lowest to its highest point.
fn sparkline(curve: &[f64]) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let least = curve.iter().copied().fold(f64::INFINITY, f64::min);
    let most = curve.iter().copied().fold(0.0, f64::max);
    if curve.len() < 2 || most <= least {
        return String::new();
    }
    let n = curve.len().min(CURVE);
    let at = |i: usize| curve[(i + 1) * curve.len() / n - 1];
    let level = |v: f64| ((v - least) / (most - least) * 7.0).round() as usize;
    (0..n).map(|i| LEVELS[level(at(i)).min(7)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tune::energy::JoulesSoFar;

    fn status<'a>(costliest: &'a [TaskProgress<'a>]) -> Status<'a> {
        Status {
            elapsed: Duration::from_secs(75),
            spent: 0.5,
            left: Some(Duration::from_secs(75)),
            reading: false,
            trials: 120,
            trials_per_s: 10.4,
            failures: 3,
            start_ms: 12.0,
            model_ms: 8.0,
            tasks: 21,
            tasks_measured: 18,
            costliest,
            others: Some(1.25),
            joules: None,
            task: "dense(k=1,m=2,n=3)",
            task_best_ms: None,
        }
    }

    #[test]
    fn a_line_says_how_far_a_run_is() {
        assert_eq!(
            line(&status(&[])),
            "1 m 15 s (1 m 15 s left): kernels 8.00 ms now, 12.00 ms at start (1.50x); 120 trials, \
             3 failed; 18 of 21 tasks measured; other programs use 1.2 CPUs"
        );
    }

    #[test]
    fn while_candidates_are_read_nothing_counts_as_measured() {
        let reading = Status {
            reading: true,
            start_ms: 0.0,
            model_ms: 0.0,
            others: None,
            ..status(&[])
        };
        assert_eq!(
            line(&reading),
            "reading for 1 m 15 s (1 m 15 s left to read): 120 candidates read, 3 failed; 18 of 21 tasks read"
        );
        let text = picture("resnet18", &reading, &Curve::default(), 100, false);
        for part in ["reading resnet18", "left to read", "120 candidates read"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let trials = Status {
            left: None,
            ..reading
        };
        let text = picture("resnet18", &trials, &Curve::default(), 100, false);
        assert!(text.contains("50% of the candidates"), "{text}");
        assert!(
            !text.contains("trials") && !text.contains("measured"),
            "{text}"
        );
    }

    #[test]
    fn a_picture_fits_its_screen() {
        let tasks = ["conv2d(c=8,h=9,k=8,r=3,s=3,w=9)", "dense(k=1,m=2,n=3)"];
        let tasks = tasks.map(|title| TaskProgress {
            title,
            uses: 2,
            before_ms: 2.0,
            now_ms: 1.0,
            trials: 5,
        });
        let curve = Curve {
            ms: vec![3.0, 2.0, 1.0],
            ..Curve::default()
        };
        let of = |width| picture("resnet18", &status(&tasks), &curve, width, false);
        let text = of(100);
        for part in [
            "75 s left",
            "1.50x",
            "█▅▁",
            "18 of 21",
            "25%     1.000 ms   2.00x  conv2d 8>8",
        ] {
            let part = part.replace("75 s", "1 m 15 s");
            assert!(text.contains(&part), "{part}: {text}");
        }
        assert!(
            of(40).lines().all(|l| l.chars().count() <= 40),
            "{}",
            of(40)
        );
        assert_eq!(of(40).lines().count(), 6);
        // What is counted has a line of its own, which the curve goes over.
        let counted = Status {
            joules: Some(JoulesSoFar {
                least: 98_765.0,
                most: 123_456.0,
                estimated: true,
            }),
            ..status(&tasks)
        };
        let long = Curve {
            ms: (0..500).map(|i| f64::from(500 - i)).collect(),
            ..curve
        };
        let text = picture("resnet18", &counted, &long, 79, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with("(1.50x)"), "{text}");
        assert!(
            lines[2].starts_with("  98.8 kJ to 123.5 kJ (estimated)  █"),
            "{text}"
        );
        assert!(lines[2].ends_with("▁ ms over joules"), "{text}");
    }

    #[test]
    fn a_narrow_picture_shows_what_tells_tasks_and_models_apart() {
        let tasks = [96, 288].map(|c| {
            format!("depthwise_conv2d(c={c},groups={c},h=112,k={c},r=3,s=3,stride_h=2,w=112)")
        });
        let tasks = tasks.each_ref().map(|title| TaskProgress {
            title,
            uses: 2,
            before_ms: 2.0,
            now_ms: 1.0,
            trials: 5,
        });
        let name = "swin_tiny_patch4_window7_224.ms_in1k.batch1.f32";
        let text = picture(name, &status(&tasks), &Curve::default(), 60, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|l| l.chars().count() <= 60), "{text}");
        assert!(lines[0].starts_with("tuning sw"), "{text}");
        let text = picture(name, &status(&tasks), &Curve::default(), 79, false);
        assert!(
            text.lines()
                .next()
                .unwrap()
                .ends_with("1 m 15 s, 1 m 15 s left")
        );
        assert!(text.lines().next().unwrap().contains("1.f32  █"), "{text}");
        for part in ["96>96 112x112 3x3/2 g96", "288>288 112x112 3x3/2 g288"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(
            with_short_title("ranking the finalists alone: conv2d(c=96,h=7,k=576,r=1,s=1,w=7)"),
            "ranking the finalists alone: conv2d 96>576 7x7 1x1"
        );
        assert_eq!(
            with_short_title("comparing whole models"),
            "comparing whole models"
        );
    }

    #[test]
    fn a_curve_goes_over_joules_where_they_are_counted() {
        let at = |s: u64, most: f64, model_ms: f64| Status {
            elapsed: Duration::from_secs(s),
            joules: Some(JoulesSoFar {
                least: most / 2.0,
                most,
                estimated: false,
            }),
            start_ms: 8.0,
            model_ms,
            ..status(&[])
        };
        let mut curve = Curve::default();
        // Little time and many joules, then the other way round.
        curve.note(&at(1, 90.0, 8.0));
        curve.note(&at(1000, 100.0, 4.0));
        assert_eq!((curve.apart, curve.ms.len()), (0.25, 401));
        assert_eq!((curve.ms[360], curve.ms[361]), (8.0, 4.0));
        // However far it goes, it has not many points.
        curve.note(&at(1001, 100_000.0, 2.0));
        assert!(curve.ms.len() <= 40 * CURVE + 1 && curve.apart > 100.0);
        let seconds = Status {
            joules: None,
            ..at(10, 0.0, 4.0)
        };
        let mut curve = Curve::default();
        curve.note(&seconds);
        assert_eq!(curve.ms.len(), 41);
        let said = line(&at(10, 2000.0, 4.0));
        assert!(said.contains("; 1.00 kJ to 2.00 kJ; 120 trials"), "{said}");
    }

    #[test]
    fn a_curve_goes_from_its_highest_to_its_lowest_level() {
        assert_eq!(sparkline(&[8.0, 1.0]), "█▁");
        assert_eq!(
            (sparkline(&[1.0]), sparkline(&[2.0, 2.0])),
            (String::new(), String::new())
        );
        let long: Vec<f64> = (0..1000).map(|i| 1000.0 - f64::from(i)).collect();
        assert_eq!(sparkline(&long).chars().count(), CURVE);
    }
}
