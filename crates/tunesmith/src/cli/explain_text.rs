//! What `explain` prints for people.

use super::explain::Explanation;
use super::screen::{self, cut, wrapped};
use super::table::{Table, counted, ms, or_unknown};
use crate::explain::{Bound, Layer, OTHER};
use crate::titles::{fitted, short};
use std::collections::BTreeSet;

/// Which layers are shown, and how.
pub struct Shown {
    pub merge: bool,
    pub by_time: bool,
    /// The costliest only.
    pub top: Option<usize>,
    pub details: bool,
}

/// Width of the operator and algorithm columns.
const OPERATOR: usize = 28;
const ALGORITHM: usize = 19;
/// Characters of a full bar.
const BAR: f64 = 5.0;

/// A number in at most `width` characters where that is possible.
fn number(v: f64, width: usize) -> String {
    let digits = [3, 2, 1, 0].into_iter().map(|d| format!("{v:.d$}"));
    let mut last = String::new();
    for text in digits {
        if text.len() <= width {
            return text;
        }
        last = text;
    }
    last
}

/// The time of a layer: short ones have a digit more.
fn layer_ms(v: f64) -> String {
    match v {
        v if v < 0.1 => ms(Some(v)),
        v => number(v, 7),
    }
}

fn percent(v: f64) -> String {
    format!("{:.0}%", 100.0 * v)
}

/// A bar of a share, in eighths of a character.
fn bar(share: f64, longest: f64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share / longest * BAR * 8.0).round() as usize;
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

/// The table of layers; the columns that matter less go first where it is narrow.
fn table(layers: &[Layer], scaling: bool, with_details: bool) -> Table {
    let mut header = vec![
        "#",
        "operator",
        "algorithm",
        "ms",
        "time",
        "",
        "GFLOP/s",
        "peak",
        "GB/s",
        "bw",
        "MB",
        "limit",
        "roof",
    ];
    header.extend(scaling.then_some("eff"));
    // Only a model tells how many operations a step has.
    let known = layers.iter().any(|l| l.task.is_some());
    let named = layers.iter().any(|l| l.algorithm != OTHER);
    let of_models = |name: &&str| match *name {
        "algorithm" => named,
        name => known || !matches!(name, "GFLOP/s" | "peak" | "limit" | "roof"),
    };
    let shown: Vec<bool> = header.iter().map(of_models).collect();
    let keep = |cells: Vec<String>| {
        let all = cells.into_iter().zip(&shown);
        all.filter(|(_, shown)| **shown).map(|(c, _)| c).collect()
    };
    let header: Vec<&str> = header.into_iter().filter(of_models).collect();
    let mut t = Table::new(&header)
        .dispensable(&["MB", "bw", "GB/s", "", "peak", "eff"])
        .cut_by("operator", OPERATOR, fitted);
    let longest = layers.iter().map(|l| l.share).fold(0.0, f64::max);
    for l in layers {
        t.row(keep(row(l, longest, scaling)));
        if with_details {
            t.note(details(l));
        }
    }
    t
}

fn row(l: &Layer, longest: f64, scaling: bool) -> Vec<String> {
    let mark = if l.counted_as_direct { "*" } else { "" };
    let of_model = |text: String| match l.task {
        Some(_) => text,
        None => "-".into(),
    };
    // Copies compute nothing.
    let computed = |text: String| match l.gflop > 0.0 {
        true => of_model(text),
        false => "-".into(),
    };
    let mut row = vec![
        l.index.to_string(),
        l.operator.clone(),
        cut(&l.algorithm, ALGORITHM),
        layer_ms(l.time.median_ms),
        percent(l.share),
        bar(l.share, longest),
        computed(number(l.gflops_per_s, 5) + mark),
        computed(percent(l.of_peak)),
        number(l.gb_per_s, 4),
        percent(l.of_bandwidth),
        number(l.mbytes, 4),
        limit_text(l),
        percent(l.of_roofline),
    ];
    row.extend(scaling.then(|| l.efficiency.map_or("-".into(), percent)));
    row
}

/// The limit, with the level of memory where that binds.
fn limit_text(l: &Layer) -> String {
    match (l.limit, l.level) {
        (Bound::Memory, "memory") => "DRAM".into(),
        (Bound::Memory, level) => level.into(),
        (limit, _) => limit.name().into(),
    }
}

fn details(l: &Layer) -> String {
    let alone = l
        .alone_ms
        .map_or(String::new(), |ms| format!("; alone {ms:.3} ms"));
    format!(
        "    {}: {}{alone}; min {:.3} ms; {} FLOP/B",
        l.name,
        if l.schedule.is_empty() {
            "no decisions"
        } else {
            &l.schedule
        },
        l.time.min_ms,
        number(l.intensity, 4)
    )
}

/// One layer for all with the same task and schedule: sums, and rates that follow.
fn merged(layers: &[Layer], threads: f64) -> Vec<Layer> {
    let mut out: Vec<(usize, Layer)> = Vec::new();
    for l in layers {
        let same = |o: &&mut (usize, Layer)| {
            l.task.is_some() && o.1.task == l.task && o.1.schedule == l.schedule
        };
        let Some((uses, sum)) = out.iter_mut().find(same) else {
            out.push((1, l.clone()));
            continue;
        };
        *uses += 1;
        sum.time.median_ms += l.time.median_ms;
        sum.time.min_ms += l.time.min_ms;
        sum.share += l.share;
        sum.gflop += l.gflop;
        sum.mbytes += l.mbytes;
        sum.roofline_ms += l.roofline_ms;
        sum.roofline.memory_ms += l.roofline.memory_ms;
        sum.one_thread_ms = sum.one_thread_ms.zip(l.one_thread_ms).map(|(a, b)| a + b);
    }
    let finish = |(uses, mut sum): (usize, Layer)| {
        if uses == 1 {
            return sum;
        }
        let ms = sum.time.median_ms;
        let before = sum.gflops_per_s;
        sum.gflops_per_s = sum.gflop / ms * 1e3;
        sum.gb_per_s = sum.mbytes / ms;
        sum.of_peak *= sum.gflops_per_s / before.max(f64::MIN_POSITIVE);
        sum.of_bandwidth = sum.roofline.memory_ms / ms;
        sum.of_roofline = sum.roofline_ms / ms;
        sum.efficiency = sum.one_thread_ms.map(|one| one / ms / threads);
        sum.operator = format!("{uses}x {}", sum.operator);
        sum.name = format!("{} and {} more", sum.name, uses - 1);
        sum
    };
    out.into_iter().map(finish).collect()
}

/// The table of layers, what it says of the whole model, and the costliest layers.
pub fn text(shown: &Shown, r: &mut Explanation) -> String {
    tell_apart(&mut r.layers);
    if shown.merge {
        r.layers = merged(&r.layers, f64::from(r.threads));
    }
    if shown.by_time {
        r.layers
            .sort_by(|a, b| b.time.median_ms.total_cmp(&a.time.median_ms));
    }
    let scaling = r.scaling.is_some();
    let top = shown.top.unwrap_or(r.layers.len());
    let chosen: Vec<usize> = by_time(&r.layers)
        .iter()
        .map(|l| l.index)
        .take(top)
        .collect();
    let (rows, rest): (Vec<Layer>, Vec<Layer>) = r
        .layers
        .iter()
        .cloned()
        .partition(|l| chosen.contains(&l.index));
    let mut out = table(&rows, scaling, shown.details).text();
    out += &others(&rest);
    out += &schedules(&rows);
    out += "\n";
    let width = screen::bound().unwrap_or(usize::MAX);
    for line in summary(r).lines() {
        out += &wrapped(line, width, 4);
        out += "\n";
    }
    out + &costliest(&r.layers)
}

/// Gives layers of different tasks different titles.
fn tell_apart(layers: &mut [Layer]) {
    // A step of several kernels has several titles in one.
    let single = |l: &Layer| l.task.clone().filter(|t| !t.contains(" + "));
    let tasks: BTreeSet<String> = layers.iter().filter_map(single).collect();
    let tasks: Vec<&str> = tasks.iter().map(String::as_str).collect();
    let titles = short(&tasks);
    for l in layers {
        if let Some(at) = single(l).and_then(|t| tasks.binary_search(&&*t).ok()) {
            l.operator.clone_from(&titles[at]);
        }
    }
}

/// The layers, the costliest first.
fn by_time(layers: &[Layer]) -> Vec<&Layer> {
    let mut all: Vec<&Layer> = layers.iter().collect();
    all.sort_by(|a, b| b.time.median_ms.total_cmp(&a.time.median_ms));
    all
}

/// The sums of layers that have no row.
fn others(rest: &[Layer]) -> String {
    if rest.is_empty() {
        return String::new();
    }
    let sum = |f: fn(&Layer) -> f64| rest.iter().map(f).fold(0.0, |a, b| a + b);
    format!(
        "{} others: {} ms, {:.1}% of the time\n",
        rest.len(),
        ms(Some(sum(|l| l.time.median_ms))),
        100.0 * sum(|l| l.share)
    )
}

/// Layers that are named as the costliest.
const COSTLIEST: usize = 5;

/// The costliest layers, the first one last: that is where a reader of a long table looks.
fn costliest(layers: &[Layer]) -> String {
    let mut all = by_time(layers);
    all.truncate(COSTLIEST);
    let share = all.iter().fold(0.0, |sum, l| sum + l.share);
    let mut out = format!(
        "the costliest layers have {:.1}% of the time:\n",
        100.0 * share
    );
    for l in all.into_iter().rev() {
        out += &layer_line(l);
    }
    out
}

/// A layer with its share of the time.
fn layer_line(l: &Layer) -> String {
    let line = format!(
        "  {:>5.1}% #{} {}: {}",
        100.0 * l.share,
        l.index,
        l.operator,
        l.name
    );
    cut(&line, screen::bound().unwrap_or(WIDTH)) + "\n"
}

/// The longest line where the screen has no bound.
const WIDTH: usize = 200;
/// Numbers of layers that are named before they are counted.
const NAMED: usize = 6;

/// The decisions of every schedule, once each, with the layers it runs in.
fn schedules(layers: &[Layer]) -> String {
    let mut all: Vec<(&Layer, Vec<usize>)> = Vec::new();
    for l in layers.iter().filter(|l| !l.schedule.is_empty()) {
        let same = |o: &&mut (&Layer, Vec<usize>)| {
            o.0.algorithm == l.algorithm && o.0.schedule == l.schedule
        };
        match all.iter_mut().find(same) {
            Some((_, of)) => of.push(l.index),
            None => all.push((l, vec![l.index])),
        }
    }
    let mut out = String::new();
    for (l, of) in all {
        let algorithm = cut(&l.algorithm, ALGORITHM);
        let line = format!("{algorithm:<ALGORITHM$} {}: {}", numbers(&of), l.schedule);
        out += &cut(&line, screen::bound().unwrap_or(WIDTH));
        out += "\n";
    }
    match out.is_empty() {
        true => out,
        false => format!("\nschedule            layers: decisions\n{out}"),
    }
}

/// `2-5 8`, or the first few and how many more.
fn numbers(layers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &n in layers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => ranges.push((n, n)),
        }
    }
    let text = |&(from, to): &(usize, usize)| match to - from {
        0 => from.to_string(),
        _ => format!("{from}-{to}"),
    };
    let mut all: Vec<String> = ranges.iter().take(NAMED).map(text).collect();
    let more: usize = ranges.iter().skip(NAMED).map(|(a, b)| b - a + 1).sum();
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all.join(" ")
}

fn summary(r: &Explanation) -> String {
    let rate = match r.gflop > 0.0 {
        true => format!(
            ", {:.1} GFLOP/s, and the f32 peak is {:.0}",
            r.gflops_per_s, r.ceiling.peak_gflops
        ),
        false => String::new(),
    };
    let mut out = format!(
        "{}, {}, accuracy {}: {} ms (min {}){rate}\n",
        r.model,
        counted(r.threads, "thread"),
        or_unknown(&r.accuracy),
        ms(Some(r.latency.median_ms)),
        ms(Some(r.latency.min_ms)),
    );
    if r.layers.iter().any(|l| l.task.is_some()) {
        out += &limits(r);
    } else {
        out += "operations and limits are not known: a compiled model does not tell them; \
                `explain MODEL --artifact FILE` does\n";
    }
    out += &copies(&r.layers);
    let levels: Vec<String> = r
        .ceiling
        .levels
        .iter()
        .map(|l| format!("{} {:.0}", l.name, l.gb_per_s))
        .collect();
    out += &format!(
        "reads in GB/s: {}; an inference touches {:.1} MB; a parallel loop costs {:.1} us\n",
        levels.join(", "),
        r.footprint_mbytes,
        r.ceiling.fork_join.awake_us
    );
    if let Some([before, after]) = r.moved_ns {
        out += &format!(
            "CPUs moved meanwhile: a cache line took {before:.0} ns there and back, then {after:.0}; the rooflines use the better limits\n"
        );
    }
    if let Some(s) = &r.scaling {
        out += &format!(
            "one thread {:.3} ms: {:.2}x on {} threads ({} efficiency; the rooflines allow {:.2}x)\n",
            s.one_thread.median_ms,
            s.speedup,
            r.threads,
            percent(s.efficiency),
            s.roofline_speedup
        );
    }
    if r.layers.iter().any(|l| l.counted_as_direct) {
        out += "* counts the operations of a direct convolution; the algorithm executes fewer, and its roofline counts only those\n";
    }
    out
}

/// What the rooflines say of the whole model.
fn limits(r: &Explanation) -> String {
    let mut out = format!(
        "roofline {} ms, {} of the time; sum of the steps, with reading the clock between them, {} ms; {} rounds\n",
        ms(Some(r.roofline_ms)),
        percent(r.of_roofline),
        ms(Some(r.steps_ms)),
        r.rounds
    );
    for limit in ["compute", "memory", "overhead"] {
        let bound: Vec<&Layer> = r
            .layers
            .iter()
            .filter(|l| l.limit.name() == limit)
            .collect();
        let sum = |f: fn(&Layer) -> f64| bound.iter().fold(0.0, |sum, l| sum + f(l));
        if !bound.is_empty() {
            out += &format!(
                "  bound by {limit:<8} {:>3} layers, {:>9} ms, roofline {:>9} ms\n",
                bound.len(),
                ms(Some(sum(|l| l.time.median_ms))),
                ms(Some(sum(|l| l.roofline_ms)))
            );
        }
    }
    out
}

/// The layers that only move elements, and the costliest of them with their shares of the time.
fn copies(layers: &[Layer]) -> String {
    let mut all = by_time(layers);
    all.retain(|l| l.copies);
    let share = all.iter().fold(0.0, |sum, l| sum + l.share);
    let mut out = String::new();
    if !all.is_empty() {
        out += &format!(
            "copies: {} layers, {:.1}% of the time\n",
            all.len(),
            100.0 * share
        );
    }
    for l in all.iter().take(COSTLIEST) {
        out += &layer_line(l);
    }
    if all.len() > COSTLIEST {
        out += &format!("  and {} more\n", all.len() - COSTLIEST);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_to_their_width() {
        let of = |v, w| number(v, w);
        assert_eq!(of(0.1234, 5), "0.123");
        assert_eq!(of(12.345, 5), "12.35");
        assert_eq!(of(604.94, 5), "604.9");
        assert_eq!(of(123_456.7, 5), "123457");
    }

    #[test]
    fn layers_of_a_schedule_are_ranges() {
        assert_eq!(numbers(&[7]), "7");
        assert_eq!(numbers(&[2, 3, 4, 8, 10, 11]), "2-4 8 10-11");
        assert_eq!(
            numbers(&[0, 2, 4, 6, 8, 10, 12, 13, 15]),
            "0 2 4 6 8 10 and 3 more"
        );
    }

    #[test]
    fn bars_are_shares_of_the_longest() {
        assert_eq!(bar(0.5, 0.5), "█████");
        assert_eq!(bar(0.1, 0.5), "█");
        assert_eq!(bar(0.05, 0.5), "▌");
        assert_eq!(bar(0.0, 0.5), "");
    }
}
