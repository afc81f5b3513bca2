//! A study as tables, for terminals and as Markdown.
//!
//! Owns what is averaged over what, and how figures are written.

use super::measured::Findings;
use super::row::{Row, mean};
use std::collections::BTreeSet;

/// A table of text.
pub struct Grid {
    pub title: String,
    pub header: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let escaped = |cells: &Vec<String>| cells.iter().map(|c| c.replace('|', "\\|")).collect();
        let header = self.header.iter().map(ToString::to_string).collect();
        let rule = format!("|{}\n", "---|".repeat(self.header.len()));
        let rows: String = self.rows.iter().map(|r| line(escaped(r))).collect();
        format!("## {}\n\n{}{rule}{rows}", self.title, line(header))
    }
}

/// Rows of one program, overlap and variant: its repetitions.
pub struct Group<'a> {
    pub rows: Vec<&'a Row>,
}

impl Group<'_> {
    pub fn first(&self) -> &Row {
        self.rows[0]
    }

    /// The mean over repetitions that have the figure.
    pub fn mean(&self, of: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        mean(self.rows.iter().filter_map(|r| of(r)))
    }
}

/// Programs, that is operators and models, by overlap and variant, in the order of
/// the study. Tasks of models are left to their sum.
fn groups(o: &Findings) -> Vec<Group<'_>> {
    let summed: BTreeSet<&str> = o.models.iter().map(|r| r.program.as_str()).collect();
    let single = o
        .rows
        .iter()
        .filter(|r| !summed.contains(r.program.as_str()));
    let mut groups: Vec<Group<'_>> = Vec::new();
    for r in single.chain(&o.models) {
        let same = |g: &&mut Group<'_>| {
            let f = g.first();
            (f.overlap, &f.program, f.policy) == (r.overlap, &r.program, r.policy)
                && f.swept == r.swept
        };
        match groups.iter_mut().find(same) {
            Some(g) => g.rows.push(r),
            None => groups.push(Group { rows: vec![r] }),
        }
    }
    groups
}

pub fn percent(v: Option<f64>) -> String {
    v.map_or("-".into(), |v| format!("{v:+.1}%"))
}

pub fn share(v: Option<f64>) -> String {
    v.map_or("-".into(), |v| format!("{:.2}%", 100.0 * v))
}

fn seconds(v: Option<f64>) -> String {
    v.map_or("-".into(), |v| format!("{v:.2}"))
}

fn overlap(on: bool) -> String {
    if on { "on" } else { "off" }.into()
}

/// What a time saved of serial's, and what its bound allows to save, as shares of
/// serial's time; means over repetitions.
type Saving = (f64, f64);

fn saving(
    g: &Group<'_>,
    time: fn(&Row) -> f64,
    change: fn(&Row) -> Option<f64>,
    bound: fn(&Row) -> Option<f64>,
) -> Option<Saving> {
    let serial = |r: &Row| Some(time(r) / (1.0 + change(r)? / 100.0));
    let saved = g.mean(|r| Some(-change(r)? / 100.0))?;
    Some((saved, g.mean(|r| Some(1.0 - bound(r)? / serial(r)?))?))
}

fn all_saving(g: &Group<'_>) -> Option<Saving> {
    let (change, bound) = (
        |r: &Row| r.related.against_serial,
        |r: &Row| r.related.bound_s,
    );
    saving(g, |r| r.times.total_s, change, bound)
}

fn measuring_saving(g: &Group<'_>) -> Option<Saving> {
    let change = |r: &Row| r.related.measuring_against_serial;
    saving(
        g,
        |r| r.times.measure_s,
        change,
        |r| r.related.measuring_bound_s,
    )
}

/// Below this next to nothing is to be saved, and no share of it says anything.
const LEAST_SAVING: f64 = 0.05;

/// What was saved on average as a share of what was allowed on average, and that.
fn of_bound(savings: impl Iterator<Item = Saving>) -> [String; 2] {
    let all: Vec<Saving> = savings.collect();
    let part = |of: fn(&Saving) -> f64| mean(all.iter().map(of));
    let (Some(saved), Some(allowed)) = (part(|s| s.0), part(|s| s.1)) else {
        return ["-".into(), "-".into()];
    };
    let share = match allowed > LEAST_SAVING {
        true => format!("{:.0}%", 100.0 * saved / allowed),
        false => "-".into(),
    };
    [percent(Some(-100.0 * allowed)), share]
}

/// How many of the repetitions are so.
fn count(g: &Group<'_>, of: impl Fn(&Row) -> Option<bool>) -> String {
    let known: Vec<bool> = g.rows.iter().filter_map(|r| of(r)).collect();
    let yes = known.iter().filter(|y| **y).count();
    match known.len() {
        0 => "-".into(),
        n if yes == n => "yes".into(),
        _ if yes == 0 => "no".into(),
        n => format!("{yes} of {n}"),
    }
}

/// The program and its variant, at the front of rows.
fn front(g: &Group<'_>) -> Vec<String> {
    let f = g.first();
    vec![f.program.clone(), overlap(f.overlap), f.variant()]
}

/// Where the time goes.
fn times(groups: &[Group<'_>]) -> Grid {
    let row = |g: &Group<'_>| {
        let t = |of: fn(&Row) -> f64| seconds(g.mean(|r| Some(of(r))));
        let mut cells = front(g);
        cells.extend([
            g.first().candidates.to_string(),
            t(|r| r.times.total_s),
            t(|r| r.times.built_before_s),
            t(|r| r.times.measure_s),
            t(|r| r.times.wall_s - r.times.measure_s),
            t(|r| r.times.rank_s),
            t(|r| r.times.build_s),
            t(|r| r.times.load_s),
            t(|r| r.times.check_s),
            t(|r| r.times.run_s),
            t(|r| r.times.alone_s),
            format!("{:.0}", g.mean(|r| Some(r.sampled as f64)).unwrap_or(0.0)),
            seconds(g.mean(|r| r.related.bound_s)),
            seconds(g.mean(|r| r.related.measuring_bound_s)),
        ]);
        cells
    };
    Grid {
        title: "Times in seconds, means over repetitions".into(),
        header: vec![
            "program",
            "overlap",
            "policy",
            "candidates",
            "total",
            "built before",
            "measuring",
            "waiting",
            "ranking",
            "sum: build",
            "load",
            "check",
            "kernel",
            "alone again",
            "again",
            "bound",
            "measuring bound",
        ],
        rows: groups.iter().map(row).collect(),
    }
}

/// What policies save, and what they find.
fn comparison(groups: &[Group<'_>]) -> Grid {
    let row = |g: &Group<'_>| {
        let change = |of: fn(&Row) -> Option<f64>| percent(g.mean(of));
        let [bound, of] = of_bound(all_saving(g).into_iter());
        let [measuring_bound, of_measuring] = of_bound(measuring_saving(g).into_iter());
        let mut cells = front(g);
        cells.extend([
            change(|r| r.related.against_serial),
            change(|r| r.related.against_serial_spawn),
            bound,
            of,
            change(|r| r.related.measuring_against_serial),
            change(|r| r.related.measuring_against_serial_spawn),
            measuring_bound,
            of_measuring,
            g.mean(|r| r.mean_dp)
                .map_or("-".into(), |dp| format!("{dp:.1}")),
            share(g.mean(|r| r.delta)),
            share(g.mean(|r| r.left_uniform)),
            share(g.mean(|r| r.left_signed)),
            share(g.mean(|r| r.left_per_candidate)),
            share(g.mean(|r| r.related.error)),
            format!(
                "{:.0}",
                g.mean(|r| Some(r.failures.values().sum::<usize>() as f64))
                    .unwrap_or(0.0)
            ),
            g.first().ranked.to_string(),
            count(g, |r| Some(r.changed)),
            g.mean(|r| r.best_ns)
                .map_or("-".into(), |ns| format!("{:.4}", ns / 1e6)),
            percent(g.mean(|r| r.related.best_difference).map(|d| 100.0 * d)),
            share(g.mean(|r| r.related.spread)),
            count(g, |r| r.related.within_spread),
        ]);
        cells
    };
    Grid {
        title: "Against serial, means over repetitions".into(),
        header: vec![
            "program",
            "overlap",
            "policy",
            "total",
            "against spawn",
            "bound",
            "of it",
            "measuring",
            "against spawn",
            "bound",
            "of it",
            "mean DP",
            "delta",
            "left uniform",
            "left signed",
            "left each",
            "error",
            "failed",
            "ranked",
            "changed",
            "best ms",
            "best",
            "spread",
            "within",
        ],
        rows: groups.iter().map(row).collect(),
    }
}

/// Means over all programs.
fn overall(groups: &[Group<'_>]) -> Grid {
    let mut kinds: Vec<(bool, String)> = Vec::new();
    for g in groups {
        let kind = (g.first().overlap, g.first().variant());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let row = |(on, variant): &(bool, String)| {
        let own = |g: &&Group<'_>| g.first().overlap == *on && g.first().variant() == *variant;
        let own: Vec<&Group<'_>> = groups.iter().filter(own).collect();
        let all = |of: fn(&Row) -> Option<f64>| {
            let mut v: Vec<f64> = own.iter().filter_map(|g| g.mean(of)).collect();
            v.sort_by(f64::total_cmp);
            v
        };
        let average = |of: fn(&Row) -> Option<f64>| mean(all(of).into_iter());
        let changes = all(|r| r.related.against_serial);
        let within: Vec<bool> = own
            .iter()
            .flat_map(|g| &g.rows)
            .filter_map(|r| r.related.within_spread)
            .collect();
        let hundred = |v: Option<f64>| v.map(|v| 100.0 * v);
        let [bound, of] = of_bound(own.iter().filter_map(|g| all_saving(g)));
        let measuring = own.iter().filter_map(|g| measuring_saving(g));
        let [measuring_bound, of_measuring] = of_bound(measuring);
        vec![
            overlap(*on),
            variant.clone(),
            own.len().to_string(),
            percent(average(|r| r.related.against_serial)),
            format!(
                "{} … {}",
                percent(changes.first().copied()),
                percent(changes.last().copied())
            ),
            percent(average(|r| r.related.against_serial_spawn)),
            bound,
            of,
            percent(average(|r| r.related.measuring_against_serial)),
            measuring_bound,
            of_measuring,
            percent(hundred(average(|r| r.related.best_difference))),
            share(average(|r| r.related.spread)),
            format!(
                "{} of {}",
                within.iter().filter(|w| **w).count(),
                within.len()
            ),
        ]
    };
    Grid {
        title: "All programs, each counted once".into(),
        header: vec![
            "overlap",
            "policy",
            "programs",
            "total",
            "from … to",
            "against spawn",
            "bound",
            "of it",
            "measuring",
            "bound",
            "of it",
            "best",
            "spread",
            "within",
        ],
        rows: kinds.iter().map(row).collect(),
    }
}

/// The names of swept settings, in the order of the study.
pub fn swept_names(o: &Findings) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for s in o.rows.iter().filter_map(|r| r.swept.as_ref()) {
        if !names.contains(&s.name) {
            names.push(s.name.clone());
        }
    }
    names
}

/// Groups with the named setting changed; without a name, those with none.
pub fn groups_with<'a>(o: &'a Findings, name: Option<&str>) -> Vec<Group<'a>> {
    let mut all = groups(o);
    all.retain(|g| g.first().swept.as_ref().map(|s| s.name.as_str()) == name);
    all
}

/// All tables.
pub fn tables(o: &Findings) -> Vec<Grid> {
    let base = groups_with(o, None);
    let mut tables = vec![overall(&base), comparison(&base), times(&base)];
    for name in swept_names(o) {
        let own = groups_with(o, Some(&name));
        for mut t in [overall(&own), comparison(&own)] {
            t.title = format!("{name} varied: {}", t.title.to_lowercase());
            tables.push(t);
        }
    }
    tables
}

/// What the columns mean.
const NOTES: &str = "\
**Times.** *Built before* is the wall time of building all candidates before the first is measured; with \
overlap on, candidates are built while others are measured. *Measuring* is the time in which the policy had \
candidates to measure, and *waiting* the time in which it had none. *Ranking* is the time of measuring the \
best candidates again alone at the end. *Total* is the whole time. The sums (build, load, check, kernel) add \
the times of all candidates, also of candidates that ran side by side. *Again* is the number of candidates \
measured again alone, because they failed or to correct the errors of parallel measurements; *alone again* \
is the time for that.\n\n\
**Bound.** The bound is the least time that measuring all candidates can take: `W (1/n + z)`. `W` is the time \
that serial took for measuring, `n` the number of candidates that the devices run at once, and `z` the share \
of candidates measured again alone. The times of building before and of ranking are added. With overlap on, \
the bound is the larger of `(B + M)/cpus + z M` and `B/builders`, and the time of ranking is added; `B` and \
`M` are the CPU times of builders and runners under serial. The bound assumes equally long candidates and \
undisturbed CPUs. In the table of times the bound is in seconds. In the other tables it is a change against \
serial, and *of it* is the share of that change which the policy reached. For several programs, *of it* is \
the mean saving divided by the mean saving that the bounds allow.\n\n\
**Errors.** *Delta* is the mean error of candidates measured side by side, against the same candidates \
measured alone. *Left* is the error that remains after a correction: by one factor for each round \
(*uniform*, as in the paper), by one such factor with a sign (*signed*), or by one factor for each candidate \
(*each*). *Error* is the mean difference of a policy's figures from serial's, and for serial \
from those of its repetition before.\n\n\
**Best.** *Best* is the difference of the best candidate's time from the median of serial's best times, all \
measured in turns. *Spread* is the difference between serial's own best times over the repetitions. \
*Within* says whether *best* is at most the larger of two numbers: *spread*, and the disagreement of the \
final measurements. *Changed* says whether ranking chose another candidate than the one with the best \
figure before.\n";

/// The whole report; `plots` are names of files beside it.
pub fn markdown(o: &Findings, about: &str, plots: &[String]) -> String {
    let tables: Vec<String> = tables(o).iter().map(Grid::markdown).collect();
    let pictures: String = plots.iter().map(|p| format!("![]({p})\n\n")).collect();
    format!(
        "# Policies of measuring\n\n{about}\n\n{}\n{pictures}{NOTES}",
        tables.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_of_savings_are_not_upset_by_small_ones() {
        let of = |all: &[Saving]| of_bound(all.iter().copied());
        assert_eq!(of(&[(0.1, 0.2), (0.3, 0.3)]), ["-25.0%", "80%"]);
        // Nothing to be saved in the second: no share of it, and little weight.
        assert_eq!(of(&[(0.2, 0.4), (-0.02, 0.0)]), ["-20.0%", "45%"]);
        assert_eq!(of(&[(-0.02, 0.001)]), ["-0.1%", "-"]);
        assert_eq!(of(&[]), ["-", "-"]);
    }

    #[test]
    fn tables_are_markdown_whatever_is_in_cells() {
        let grid = Grid {
            title: "t".into(),
            header: vec!["a", "b"],
            rows: vec![vec!["|delta|".into(), "1".into()]],
        };
        let text = "## t\n\n| a | b |\n|---|---|\n| \\|delta\\| | 1 |\n";
        assert_eq!(grid.markdown(), text);
    }
}
