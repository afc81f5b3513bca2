//! The text form of traces: one decision or step a line.
//!
//! `parse(&print(t))` gives `t` back. Decisions come first, numbered from 0.
//!
//! ```text
//! trace    = (decision | step)*
//! decision = "decision" int name kind "=" (int | "[" int,* "]")
//! kind     = "perfect_tile" "(" extent "," parts "," "max" int ")"
//!          | "categorical" "(" int,* ")"
//!          | "compute_location" "(" (name | "."),* ")"
//! step     = "split" loop ("[" ("_" | arg),* "]" | "$" int)
//!          | "fuse" loop loop | "reorder" loop*
//!          | ("partition" | "unroll" | "vectorize" | "parallel" | "rfactor") loop
//!          | "bind" loop axis
//!          | ("compute_at" | "reverse_compute_at") block (loop | "$" int)
//!          | ("compute_inline" | "reverse_compute_inline") block
//!          | "cache_read" block buffer scope | "cache_write" block int scope
//!          | "set_scope" buffer scope | "decompose_reduction" block loop | "widen" buffer
//!          | "pack" buffer "[" (dim ":" arg),* "]" "[" dim,* "]"
//!          | "tensorize" loop name | "prefetch" buffer loop arg
//!          | "annotate" loop "unroll_by" arg | "reindex" block buffer
//!          | "pad" loop arg | "surround" block buffer
//!          | "winograd" block arg
//! arg      = int | "$" int ("." int)?
//! ```
//!
//! `$3.1` is part 1 of decision 3 and `$3` its part 0, except that `split x $3`
//! takes all its parts as factors. The value of a compute location counts its
//! loops; `.` leaves the block where it is. Names are those of the text form of
//! programs: bare, or quoted. `;` starts a comment.

use crate::decision::{Decision, DecisionKind, HERE};
use crate::step::{Arg, Factor, LoopArg, Step};
use crate::trace::Trace;
use std::fmt;
use std::str::FromStr;

mod read;

pub use read::ParseError;

/// The trace as text, one line each decision and step.
pub fn print(trace: &Trace) -> String {
    let mut out = String::new();
    for (id, d) in trace.decisions.iter().enumerate() {
        out += &format!("decision {id} {}\n", decision(d));
    }
    for step in &trace.steps {
        out += &line(step, &trace.decisions);
        out.push('\n');
    }
    out
}

/// Reads the text form back.
pub fn parse(text: &str) -> Result<Trace, ParseError> {
    read::trace(text)
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self))
    }
}

impl FromStr for Trace {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Trace, ParseError> {
        parse(text)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&line(self, &[]))
    }
}

impl FromStr for Step {
    type Err = ParseError;

    /// One line; decisions can be referred to, all parts at once excepted.
    fn from_str(text: &str) -> Result<Step, ParseError> {
        read::step(text)
    }
}

fn is_bare(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let other = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '&' | '~');
    name.starts_with(first) && name.chars().all(other)
}

fn name(name: &str) -> String {
    if is_bare(name) {
        return name.to_string();
    }
    let mut out = String::from("\"");
    for c in name.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|i| i.to_string()).collect();
    items.join(", ")
}

fn decision(d: &Decision) -> String {
    let kind = match &d.kind {
        DecisionKind::PerfectTile {
            extent,
            parts,
            max_innermost,
        } => format!("perfect_tile({extent}, {parts}, max {max_innermost})"),
        DecisionKind::Categorical { options } => format!("categorical({})", list(options)),
        DecisionKind::ComputeLocation { loops } => {
            let loops = loops.iter().map(|l| match l.as_str() {
                HERE => HERE.to_string(),
                l => name(l),
            });
            format!("compute_location({})", list(loops))
        }
    };
    let tile = matches!(d.kind, DecisionKind::PerfectTile { .. });
    let value = match &d.value[..] {
        [v] if !tile => v.to_string(),
        values => format!("[{}]", list(values)),
    };
    format!("{} {kind} = {value}", name(&d.name))
}

fn arg(a: &Arg) -> String {
    match a {
        Arg::Lit(v) => v.to_string(),
        Arg::Decision { id, part } => format!("${id}.{part}"),
    }
}

/// The decision whose parts in order are the factors.
fn whole_decision(factors: &[Factor], decisions: &[Decision]) -> Option<usize> {
    let Some(Factor::Arg(Arg::Decision { id, .. })) = factors.first() else {
        return None;
    };
    let kind = decisions.get(*id).map(|d| &d.kind);
    let all =
        matches!(kind, Some(DecisionKind::PerfectTile { parts, .. }) if *parts == factors.len());
    let in_order = factors.iter().enumerate().all(|(part, f)| {
        let id = *id;
        *f == Factor::Arg(Arg::Decision { id, part })
    });
    (all && in_order).then_some(*id)
}

fn factors(factors: &[Factor], decisions: &[Decision]) -> String {
    if let Some(id) = whole_decision(factors, decisions) {
        return format!("${id}");
    }
    let factors = factors.iter().map(|f| match f {
        Factor::Rest => "_".to_string(),
        Factor::Arg(a) => arg(a),
    });
    format!("[{}]", list(factors))
}

fn loop_arg(l: &LoopArg) -> String {
    match l {
        LoopArg::Name(n) => name(n),
        LoopArg::Decision(id) => format!("${id}"),
    }
}

fn line(step: &Step, decisions: &[Decision]) -> String {
    let arguments = match step {
        Step::Split { loop_, factors: f } => format!("{} {}", name(loop_), factors(f, decisions)),
        Step::Fuse { outer, inner } => format!("{} {}", name(outer), name(inner)),
        Step::Reorder { loops } => {
            let loops: Vec<String> = loops.iter().map(|l| name(l)).collect();
            loops.join(" ")
        }
        Step::Partition { loop_ }
        | Step::Unroll { loop_ }
        | Step::Vectorize { loop_ }
        | Step::Parallel { loop_ }
        | Step::Rfactor { loop_ } => name(loop_),
        Step::Bind { loop_, axis } => format!("{} {}", name(loop_), axis.word()),
        Step::ComputeAt { block, loop_ } | Step::ReverseComputeAt { block, loop_ } => {
            format!("{} {}", name(block), loop_arg(loop_))
        }
        Step::ComputeInline { block } | Step::ReverseComputeInline { block } => name(block),
        Step::CacheRead {
            block,
            buffer,
            scope,
        } => format!("{} {} {}", name(block), name(buffer), scope.word()),
        Step::CacheWrite {
            block,
            index,
            scope,
        } => format!("{} {index} {}", name(block), scope.word()),
        Step::SetScope { buffer, scope } => format!("{} {}", name(buffer), scope.word()),
        Step::Widen { buffer } => name(buffer),
        Step::DecomposeReduction { block, loop_ } => format!("{} {}", name(block), name(loop_)),
        Step::Pack {
            buffer,
            tiles,
            order,
        } => {
            let tiles = tiles.iter().map(|(dim, f)| format!("{dim}:{}", arg(f)));
            format!("{} [{}] [{}]", name(buffer), list(tiles), list(order))
        }
        Step::Tensorize { loop_, intrinsic } => format!("{} {}", name(loop_), name(intrinsic)),
        Step::Prefetch {
            buffer,
            loop_,
            distance,
        } => format!("{} {} {}", name(buffer), name(loop_), arg(distance)),
        Step::Annotate { loop_, unroll_by } => {
            format!("{} unroll_by {}", name(loop_), arg(unroll_by))
        }
        Step::Pad { loop_, multiple } => format!("{} {}", name(loop_), arg(multiple)),
        Step::Reindex { block, buffer } | Step::Surround { block, buffer } => {
            format!("{} {}", name(block), name(buffer))
        }
        Step::Winograd { block, tile } => format!("{} {}", name(block), arg(tile)),
    };
    format!("{} {arguments}", step.name())
        .trim_end()
        .to_string()
}
