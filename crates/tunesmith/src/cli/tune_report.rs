//! What `tune` says at its end: how much faster the model is, where that came from, and whether
//! more time would help.

use super::energy_text;
use super::progress::duration;
use super::screen::{self, Style, styled, wrapped};
use super::table::{Table, counted, ms, times};
use crate::titles::short;
use std::time::Duration;
use store::InModelDecision;
use tune::{CoreSetUse, FunnelStage, Gain, ModelQuality, Report, Result, Surveyed, TaskSummary};

/// Rows of a table without `--wide`, and the share of the time that these need to have.
const ROWS: usize = 15;
const SHARE: f64 = 0.97;
/// Tasks that are said to have gained most, and the least part of the gain of one.
const MOST: usize = 3;
const LEAST: f64 = 0.1;
/// Gains of tasks that stand out.
const MUCH: f64 = 1.05;
/// Gains below this are shown as less than 1.00x.
const EVEN: f64 = 0.995;

/// How much faster than in the default model a task is; none if its code is the same.
pub fn task_gain(t: &TaskSummary) -> Option<f64> {
    let gain = t.before_ms? / t.after_ms?;
    (t.changed && gain.is_finite()).then_some(gain)
}

pub fn print(r: &Report) -> Result<()> {
    if !r.tasks.is_empty() {
        let rest = table(r)?;
        if let Some(rest) = rest {
            super::print_line(&rest)?;
        }
        super::print_text("\n")?;
    }
    let bound = screen::bound().unwrap_or(usize::MAX);
    let colours = screen::colours(&std::io::stdout());
    let style = match r.changed {
        true => Style::Good,
        false => Style::Bold,
    };
    super::print_text(&styled(&wrapped(&result(r), bound, 2), style, colours))?;
    super::print_text("\n")?;
    for line in notes(r) {
        super::print_line(&wrapped(&format!("  {line}"), bound, 4))?;
    }
    if let Some(a) = &r.artifact {
        super::print_line(&format!("written to {a}"))?;
    }
    Ok(())
}

/// Prints the tasks; what is said of those that are left out. Where the defaults are kept there
/// is one time of each, and no gain.
fn table(r: &Report) -> Result<Option<String>> {
    let plain = r.latency_plain_ms.is_some();
    let mut header = vec!["task", "uses", "share"];
    match r.changed {
        true => header.extend(["before ms", "after ms", "gain"]),
        false => header.push("ms"),
    }
    header.extend(plain.then_some("plain ms"));
    let trials = if r.scores.is_some() { "read" } else { "trials" };
    header.extend(["GFLOP/s", "% peak", trials, "algorithm", "in model"]);
    let mut t = Table::new(&header).dispensable(&[
        "in model",
        trials,
        "% peak",
        "GFLOP/s",
        "plain ms",
        "uses",
        "algorithm",
        "before ms",
    ]);
    let titles: Vec<&str> = r.tasks.iter().map(|s| s.task.as_str()).collect();
    let titles = short(&titles);
    let mut shown = 0.0;
    let mut rows = 0;
    for (s, title) in r.tasks.iter().zip(&titles) {
        if !screen::is_wide() && (rows >= ROWS || shown > SHARE) {
            break;
        }
        shown += s.share;
        rows += 1;
        let stands_out = task_gain(s).is_some_and(|g| r.changed && g >= MUCH);
        t.styled_row(row(r, s, title), stands_out.then_some(Style::Good));
    }
    t.print()?;
    let left = r.tasks.len() - rows;
    Ok((left > 0).then(|| {
        let share = 100.0 * (1.0 - shown).max(0.0);
        let tasks = match left {
            1 => "1 more task takes".to_string(),
            n => format!("{n} more tasks take"),
        };
        format!("{tasks} {share:.1}% of the time (--wide shows all)")
    }))
}

fn row(r: &Report, s: &TaskSummary, title: &str) -> Vec<String> {
    let number = |v: Option<f64>, digits: usize| v.map_or("-".into(), |v| format!("{v:.digits$}"));
    let mut row = vec![
        title.to_string(),
        s.uses.to_string(),
        format!("{:.1}%", 100.0 * s.share),
    ];
    if r.changed {
        row.push(ms(s.before_ms));
    }
    row.push(ms(s.after_ms));
    if r.changed {
        row.push(task_gain(s).map_or("-".into(), times));
    }
    row.extend(r.latency_plain_ms.map(|_| ms(s.plain_ms)));
    row.extend([
        // Copies compute nothing.
        number(s.gflops_per_s.filter(|rate| *rate > 0.0), 1),
        number(s.of_peak.filter(|p| *p > 0.0).map(|p| 100.0 * p), 0),
        s.trials.to_string(),
        s.algorithm.clone().unwrap_or_else(|| "default".into()),
        in_model(s.in_model.as_ref()),
    ]);
    row
}

/// What the whole model said of a task: nothing, that the best alone is kept,
/// or how much faster than that the chosen one makes it.
fn in_model(decision: Option<&InModelDecision>) -> String {
    let Some(i) = decision else {
        return "-".into();
    };
    if !i.changed {
        return format!("kept, of {}", i.candidates);
    }
    let gains = i.tried.iter().map(|t| t.paired.latency_percent);
    format!("{:+.2}%", gains.fold(0.0, f64::min))
}

fn bounds(gain: &Gain) -> String {
    let rounds = match gain.rounds {
        1 => ", 1 round".into(),
        n if n < 6 => format!(", {n} rounds"),
        _ => String::new(),
    };
    let (low, high) = (times(gain.low), times(gain.high));
    match low == high {
        true => format!("{:.3}x to {:.3}x{rounds}", gain.low, gain.high),
        false => format!("{low} to {high}{rounds}"),
    }
}

/// The one line that matters.
pub fn result(r: &Report) -> String {
    let threads = counted(r.threads, "thread");
    let after = latency(r.latency_after_ms);
    match (&r.gain, r.changed) {
        (Some(gain), true) => format!(
            "{}: {} faster ({}): {} by default, {after} tuned, {threads}",
            r.model,
            times(gain.times),
            bounds(gain),
            latency(r.latency_default_ms),
        ),
        (Some(gain), false) => format!(
            "{}: the defaults are kept, as the tuned kernels are not surely faster ({}, {}): {after}, \
             {threads}",
            r.model,
            times(gain.times),
            bounds(gain),
        ),
        (None, _) => format!(
            "{}: the defaults are kept, as no kernel was found that is faster: {after}, {threads}",
            r.model
        ),
    }
}

/// Milliseconds with three digits at least.
fn latency(ms: f64) -> String {
    match ms {
        v if v >= 100.0 => format!("{v:.0} ms"),
        v if v >= 1.0 => format!("{v:.2} ms"),
        v => format!("{v:.4} ms"),
    }
}

/// The tasks that gained most, and what part of the whole gain each has.
fn most(r: &Report) -> Option<String> {
    if !r.changed {
        return None;
    }
    let titles: Vec<&str> = r.tasks.iter().map(|t| t.task.as_str()).collect();
    let saved = |t: &TaskSummary| {
        let each = t.before_ms.unwrap_or(0.0) - t.after_ms.unwrap_or(0.0);
        (each * t.uses as f64).max(0.0)
    };
    let all: f64 = r.tasks.iter().map(saved).sum();
    let mut tasks: Vec<(f64, String)> = r
        .tasks
        .iter()
        .map(|t| saved(t) / all)
        .zip(short(&titles))
        .filter(|(part, _)| *part >= LEAST)
        .collect();
    tasks.sort_by(|a, b| b.0.total_cmp(&a.0));
    tasks.truncate(MOST);
    let named = tasks
        .iter()
        .map(|(part, title)| format!("{title} ({:.0}%)", 100.0 * part));
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| format!("most of the gain came from {}", named.join(", ")))
}

/// Why tasks show a gain below 1: their steps take longer with the kernels that were chosen.
fn slower(tasks: &[TaskSummary]) -> Option<String> {
    let titles: Vec<&str> = tasks.iter().map(|t| t.task.as_str()).collect();
    let of_task = |(t, title): (&TaskSummary, String)| {
        let gain = task_gain(t).filter(|g| *g < EVEN)?;
        let lost = (t.after_ms? - t.before_ms?) * t.uses as f64;
        Some((lost, format!("{title}, {}", times(gain))))
    };
    let mut all: Vec<_> = tasks
        .iter()
        .zip(short(&titles))
        .filter_map(of_task)
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let lost: f64 = all.iter().map(|(lost, _)| lost).sum();
    let count = match all.len() {
        0 => return None,
        1 => "1 task with a gain below 1x costs".into(),
        n => format!("{n} tasks with a gain below 1x cost"),
    };
    let named: Vec<String> = all.into_iter().take(MOST).map(|(_, name)| name).collect();
    Some(format!(
        "{count} {} ({}): kernels are chosen by their time alone and by the whole model's time; \
         times of single steps, as the table shows them, are less exact",
        latency(lost),
        named.join("; ")
    ))
}

/// What else a reader should know of a run, the more important first.
pub fn notes(r: &Report) -> Vec<String> {
    let answered = if r.scores.is_some() {
        "read"
    } else {
        "measured"
    };
    let mut notes = Vec::new();
    notes.extend(most(r));
    notes.extend(slower(&r.tasks).filter(|_| r.changed));
    if r.trials + r.cached > 0 && !r.tasks.is_empty() {
        notes.push(r.outlook.to_string());
    }
    if r.stopped {
        let after = duration(Duration::from_secs_f64(r.wall_s));
        notes.push(format!(
            "stopped after {after}: the same command goes on from here, as the store has all that was {answered}"
        ));
    }
    if let (Some(time), 0, false) = (r.time_s, r.trials + r.cached, r.stopped) {
        notes.push(format!(
            "no candidate was {answered}: of {time:.1} s, building and running the default model took \
             {:.1} s, and the rest is needed to finish the run; give more --time",
            r.default_s
        ));
    }
    if let Some(plain) = r.latency_plain_ms {
        notes.push(format!(
            "under plain schedules the model takes {}, {} as long as now",
            latency(plain),
            times(plain / r.latency_after_ms)
        ));
    }
    notes.extend(r.survey.iter().map(|s| surveyed(s, r.wall_s)));
    notes.extend((!r.core_sets.is_empty()).then(|| core_sets(&r.core_sets)));
    notes.extend(layouts(r));
    if r.in_model.changed > 0 && r.changed {
        notes.push(format!(
            "{} of {} tasks took another kernel than the best alone, as the whole model is faster so",
            r.in_model.changed, r.in_model.tasks
        ));
    }
    if let (Some(why), false) = (&r.in_model.skipped, r.stopped) {
        notes.push(format!(
            "finalists were not compared inside the model: {why}; give more --time or --in-model-time"
        ));
    }
    if r.outlook.unmeasured > 0 && r.trials + r.cached > 0 {
        notes.push(format!(
            "tasks that were not {answered} keep their best known schedule, or else the default one"
        ));
    }
    notes.extend(r.forecasts.as_ref().map(forecasts));
    notes.push(effort(r));
    notes.extend(r.energy.iter().flat_map(energy_text::notes));
    let all = r.failures.iter().filter(|(_, n)| **n > 0);
    let all: Vec<String> = all.map(|(k, n)| format!("{n} {k}")).collect();
    if !all.is_empty() {
        notes.push(format!("candidates without a time: {}", all.join(", ")));
    }
    for s in &r.funnel {
        notes.extend((s.dropped + s.audited > 0).then(|| dropped(s)));
        notes.push(filtering(s));
    }
    notes
}

/// What a filter dropped, what that saved, and what an audit says of it.
fn dropped(s: &FunnelStage) -> String {
    let (filter, n) = (&s.filter, s.dropped);
    let audit = match (s.audited, s.best_audited) {
        (0, _) => String::new(),
        (audited, best) => {
            let (hot, failed) = (s.hot, s.failed);
            let best = best.map_or(String::new(), |r| {
                format!("; the best of them took {r:.2} times the best found")
            });
            format!("; of {audited} audited ones {hot} were hot and {failed} failed{best}")
        }
    };
    format!(
        "dropped by {filter}: {n} candidates, which saved {:.1} s, {:.1} CPU s{}{audit}",
        s.saved_s,
        s.saved_cpu_s,
        and_joules(&s.saved_j)
    )
}

/// Joules by each meter after another figure; nothing where nothing counts them.
fn and_joules(of: &[f64]) -> String {
    match of.is_empty() {
        true => String::new(),
        false => format!(
            " and {}",
            energy_text::by_meter(of, |j| energy_text::joules(*j))
        ),
    }
}

/// What a filter itself took.
fn filtering(s: &FunnelStage) -> String {
    let (filter, t) = (&s.filter, &s.took);
    let percent = |share: &f64| format!("{:.1}%", 100.0 * share);
    let of_joules = match t.share_of_joules.is_empty() {
        true => String::new(),
        false => {
            let shares = energy_text::by_meter(&t.share_of_joules, percent);
            format!(" and {shares} of its joules")
        }
    };
    let parts = [
        ("loading", t.loading_cpu_s),
        ("training", t.training_cpu_s),
        ("judging", t.judging_cpu_s),
        ("asking for what it dropped", t.asking_cpu_s),
    ];
    let parts = parts.map(|(name, s)| format!("{name} {s:.3} s"));
    format!(
        "{filter} itself took {:.3} CPU s{}, which is {} of the command's CPU time{of_joules}: {}",
        t.cpu_s,
        and_joules(&t.joules),
        percent(&t.share_of_cpu),
        parts.join(", ")
    )
}

/// What the core sets did, and what was idle.
fn core_sets(sets: &[CoreSetUse]) -> String {
    let one = |s: &CoreSetUse| {
        let state = if s.works { "" } else { " until it stopped" };
        let (name, candidates, share) = (&s.name, s.candidates, 100.0 * s.share);
        format!("CPU {name} measured {candidates} for {share:.0}% of the search{state}")
    };
    let all: Vec<String> = sets.iter().map(one).collect();
    format!(
        "core sets: {}; candidates of different sets share memory, and finalists are ranked alone",
        all.join(", ")
    )
}

/// How a survey, or one of several tuners, went.
fn surveyed(s: &Surveyed, run_s: f64) -> String {
    let (name, trials) = (&s.strategy, s.trials);
    let (Some(first), Some(last)) = (s.epochs.first(), s.epochs.last()) else {
        let ms = latency(s.kernels_ms);
        return format!("{name}: kernels of {ms} after {trials} candidates");
    };
    let before_last = &s.epochs[..s.epochs.len() - 1];
    let ended = match last.ended.as_deref() {
        _ if before_last.last().is_some_and(|e| !e.runs) => "it was suspended",
        Some("goal") => "it is as fast as wanted",
        Some("rate") => "it gained too little for its cost",
        Some(_) => "no task had more to try",
        None if last.runs => "the budget was spent",
        None => "it was suspended in the end",
    };
    let epochs = match s.epochs.len() - 1 {
        1 => "1 epoch".into(),
        n => format!("{n} epochs"),
    };
    let [before, after] = [first, last].map(|e| latency(e.cost / 1e6));
    let (whole_s, share) = (s.whole_s, 100.0 * s.whole_s / run_s.max(1e-9));
    format!(
        "survey with {name}: {before} to {after} in {epochs} of {trials} candidates; {ended}; measuring the whole \
         model took {whole_s:.1} s, {share:.1}% of the run"
    )
}

fn layouts(r: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if !r.layouts.plain.is_empty() {
        let gain = match &r.layouts.total {
            Some(total) => format!(
                "{:+.1}% latency, before and after alike",
                total.latency_percent
            ),
            None => "as an earlier run decided".into(),
        };
        notes.push(format!(
            "layouts: {} steps in blocked layouts, {} kept in plain ones ({gain})",
            r.layouts.blocked,
            r.layouts.plain.len()
        ));
    }
    if let (Some(why), false) = (&r.layouts.skipped, r.stopped) {
        notes.push(format!(
            "other layouts were not tried: {why}; give more --time"
        ));
    }
    notes
}

/// How well the models of the strategy ranked candidates before these were measured.
fn forecasts(q: &ModelQuality) -> String {
    format!(
        "the strategy's model ranked {} candidates before they were measured: rank correlation {:.2}; among its first 10 \
         were {:.0}% of the 10 fastest, where chance gives {:.0}%; its first choice takes {} the least time",
        q.forecasts,
        q.spearman,
        100.0 * q.recall_10,
        100.0 * q.recall_10_by_chance,
        times(q.regret)
    )
}

/// What the run took, and how exact its kernels are.
fn effort(r: &Report) -> String {
    let known = match r.cached {
        0 => String::new(),
        n => format!(", {n} known already"),
    };
    let errors = r.tasks.iter().filter_map(|t| t.rel_l2).reduce(f64::max);
    let error = match errors {
        None => String::new(),
        Some(0.0) => "the best ones compute exactly what plain schedules do, ".into(),
        Some(e) => format!("the best ones differ from plain schedules by {e:.0e} at most, "),
    };
    let tried = match r.trials {
        1 => "1 candidate".into(),
        n => format!("{n} candidates"),
    };
    let took = format!("in {:.0} s", r.wall_s);
    let took = match &r.scores {
        None => format!("tried {took}"),
        Some(kind) => format!("read {took}, scored by {kind}"),
    };
    format!(
        "{tried} {took}{known}; accuracy {}: {error}{:.0e} is allowed",
        r.accuracy, r.tolerance
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn task(name: &str, [before, after]: [f64; 2]) -> TaskSummary {
        TaskSummary {
            task: name.into(),
            key: name.into(),
            uses: 2,
            share: 0.1,
            before_ms: Some(before),
            after_ms: Some(after),
            plain_ms: None,
            alone_ms: None,
            gflops_per_s: None,
            of_peak: None,
            gflop: 1.0,
            mbytes: 1.0,
            peak_gflops: 1.0,
            trials: 1,
            spent_s: 1.0,
            changed: true,
            algorithm: None,
            rel_l2: None,
            in_model: None,
            forecasts: None,
            failures: BTreeMap::new(),
            skipped: BTreeMap::new(),
        }
    }

    #[test]
    fn tasks_whose_steps_take_longer_are_explained() {
        let same = TaskSummary {
            changed: false,
            ..task("relu", [1.0, 2.0])
        };
        assert_eq!(
            slower(&[task("conv2d", [2.0, 1.0]), task("pool", [1.0, 1.001]), same]),
            None
        );
        let tasks = [
            task("conv2d", [1.0, 0.5]),
            task("matmul", [2.143, 2.215]),
            task("softmax", [1.0, 2.0]),
        ];
        let note = slower(&tasks).unwrap();
        let begin = "2 tasks with a gain below 1x cost 2.14 ms (softmax, 0.50x; matmul, 0.97x): ";
        assert!(note.starts_with(begin), "{note}");
    }
}
