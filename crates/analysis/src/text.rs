//! An analysis as a table for people.

use crate::classes::Class;
use crate::cores::CacheLevel;
use crate::features::caches;
use crate::joint::{Analysis, BlockReport, Counts, Fate, FunctionReport};
use crate::movement::{Cache, movement};
use ir::CpuTarget;
use lower::flat::{Code, FlatLoopId, Stmt};
use std::fmt::Write as _;

/// One line for each loop, with what its own blocks (not those of inner loops) do in one
/// iteration; then what was guessed.
pub fn print(code: &Code, a: &Analysis) -> String {
    let mut out = model(a);
    for f in &a.functions {
        function(code, a, f, &mut out);
    }
    let total = a.counts();
    let cycles = a.cycles();
    let _ = writeln!(
        out,
        "total: {} instructions, {} loads, {} stores; {} cycles repeated, {} alone",
        number(total.instructions()),
        number(total.loads),
        number(total.stores),
        number(cycles.repeated),
        number(cycles.alone),
    );
    unmatched(code, a, &mut out);
    out
}

/// Cache lines that the statements of an entry move into each of these caches.
pub fn print_movement(
    code: &Code,
    stmts: &[Stmt],
    cpu: &CpuTarget,
    levels: [CacheLevel; 3],
) -> String {
    let names = ["L1", "L2", "last level"];
    let mut out = String::new();
    for (name, cache) in names.into_iter().zip(caches(cpu, levels)) {
        let shared = cache.shared || name == names[2];
        let cache = Cache { shared, ..cache };
        let (bytes, ways) = (cache.bytes, cache.ways.unwrap_or(0));
        let m = movement(code, stmts, cache, cpu.threads);
        let any = Cache {
            ways: None,
            ..cache
        };
        let papers = movement(code, stmts, any, cpu.threads).lines;
        let whose = if shared { "all threads" } else { "one thread" };
        let _ = writeln!(
            out,
            "{name} of {bytes} bytes in {ways} ways: {} lines moved ({} if any lines fitted together), {} touched by {whose}",
            number(m.lines),
            number(papers),
            number(m.footprint)
        );
    }
    out
}

fn model(a: &Analysis) -> String {
    let m = &a.model;
    let name = match &m.name {
        Some(name) => format!("model {name} (asked for {})", m.cpu),
        None => format!("no model of {} in LLVM: every latency is 1", m.cpu),
    };
    format!("{name}, {} micro-operations a cycle\n", m.issue_width)
}

/// As few digits as say it.
fn number(n: f64) -> String {
    match n {
        n if n == n.round() && n < 1e9 => format!("{n:.0}"),
        n if n < 1e6 => format!("{n:.2}"),
        n => format!("{n:.4e}"),
    }
}

fn function(code: &Code, a: &Analysis, f: &FunctionReport, out: &mut String) {
    let _ = writeln!(
        out,
        "function {}: {} bytes, called {} times",
        f.name,
        f.bytes,
        number(f.calls)
    );
    let mut rows = vec![
        [
            "loop",
            "iterations",
            "bytes",
            "cycles",
            "share",
            "instructions",
        ]
        .map(String::from),
    ];
    let all = a.cycles().repeated;
    let outside = own(f, None);
    rows.push(row("(no loop)".into(), f.calls, &outside, all));
    for (machine, depth) in nested(f, None, 0) {
        let id = f.ids[machine];
        let name = format!("{}{}", "  ".repeat(depth), loop_name(code, id));
        let header = f.blocks[f.graph.loops[machine].header].runs;
        let iterations = id.map_or(header, |id| a.iterations(code, id));
        rows.push(row(name, iterations, &own(f, Some(machine)), all));
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|c| rows.iter().map(|r| r[c].len()).max().unwrap_or(0))
        .collect();
    for r in &rows {
        let cells = r.iter().zip(&widths).enumerate();
        let cells = cells.map(|(c, (text, width))| match c {
            0 | 5 => format!("{text:width$}"),
            _ => format!("{text:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(out, "  {}", line.trim_end());
    }
}

/// Loops, each before its inner ones, in the order of the code; with their depths.
fn nested(f: &FunctionReport, parent: Option<usize>, depth: usize) -> Vec<(usize, usize)> {
    let loops = f.graph.loops.iter().enumerate();
    let mut inner: Vec<usize> = loops
        .filter(|(_, l)| l.parent == parent)
        .map(|(i, _)| i)
        .collect();
    inner.sort_by_key(|l| f.graph.loops[*l].blocks.first().copied());
    let with_inner = |l: usize| [vec![(l, depth)], nested(f, Some(l), depth + 1)].concat();
    inner.into_iter().flat_map(with_inner).collect()
}

fn loop_name(code: &Code, id: Option<FlatLoopId>) -> String {
    match id {
        Some(id) => {
            let info = &code.loops[id as usize];
            format!("L{id}.{} of {}", info.name, info.extent)
        }
        None => "unknown".into(),
    }
}

/// The blocks of a loop that are in none of its inner loops.
fn own(f: &FunctionReport, machine: Option<usize>) -> Vec<&BlockReport> {
    let numbered = f.blocks.iter().enumerate();
    let own = numbered.filter(|(b, _)| f.graph.innermost(*b) == machine);
    own.map(|(_, b)| b).collect()
}

fn row(name: String, runs: f64, blocks: &[&BlockReport], all: f64) -> [String; 6] {
    let mut counts = Counts::default();
    let each = |n: f64| if runs > 0.0 { n / runs } else { 0.0 };
    let mut cycles = 0.0;
    for b in blocks {
        counts.add(&b.counts, each(b.runs));
        cycles += b.cycles.repeated * b.runs;
    }
    let classes = Class::ALL.iter().filter(|c| counts.of_class(**c) > 0.0);
    let classes = classes.map(|c| format!("{} {}", number(counts.of_class(*c)), c.name()));
    let mut classes: Vec<String> = classes.collect();
    if counts.spills > 0.0 {
        classes.push(format!("{} of these spill", number(counts.spills)));
    }
    let bytes: u32 = blocks.iter().map(|b| b.bytes).sum();
    let share = if all > 0.0 { 100.0 * cycles / all } else { 0.0 };
    [
        name,
        number(runs),
        bytes.to_string(),
        number(each(cycles)),
        format!("{share:.1}%"),
        classes.join(", "),
    ]
}

fn unmatched(code: &Code, a: &Analysis, out: &mut String) {
    let expected = |f: &&Fate| matches!(f, Fate::Matched(_) | Fate::Unmatched);
    let matched = a
        .fates
        .iter()
        .filter(|f| matches!(f, Fate::Matched(_)))
        .count();
    let all = a.fates.iter().filter(expected).count();
    let _ = writeln!(out, "loops matched: {matched} of {all}");
    for (fate, id) in a.fates.iter().zip(0..) {
        let name = loop_name(code, Some(id));
        match fate {
            Fate::Unmatched => {
                let _ = writeln!(out, "no machine loop for {name}");
            }
            Fate::Matched(m) if !m.nested_alike => {
                let _ = writeln!(out, "{name} is in another loop of the machine code");
            }
            Fate::Matched(m) if m.bound_agrees == Some(false) => {
                let _ = writeln!(out, "{name} has another bound in the machine code");
            }
            _ => {}
        }
    }
    for (function, at) in a.unknown_loops() {
        let _ = writeln!(
            out,
            "unknown loop at byte {at} of {function}, taken to run once"
        );
    }
    for f in &a.functions {
        for (what, blocks) in [("guessed", &f.guessed), ("inconsistent", &f.broken)] {
            let at: Vec<String> = blocks
                .iter()
                .map(|b| f.blocks[*b].offset.to_string())
                .collect();
            if !at.is_empty() {
                let at = at.join(", ");
                let _ = writeln!(out, "{what} counts in {}: blocks at bytes {at}", f.name);
            }
        }
    }
    for condition in &a.executions.taken {
        let _ = writeln!(out, "taken to hold: {condition}");
    }
}
