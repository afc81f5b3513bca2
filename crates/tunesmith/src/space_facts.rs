//! Facts about the space of a task: how large it is, how much of it is legal, how many
//! kernels it has, and what it takes to write, to draw from and to make a candidate of.
//!
//! Points are replayed and lowered; nothing is compiled or measured.

use ir::Target;
use lower::LowerOptions;
use plan::Task;
use search::{Allowed, Point, Space};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Instant;

/// Random points that tell how many are within the limits: none is replayed.
const DRAWS: usize = 10_000;

/// How points are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    /// Of each sketch.
    pub count: usize,
    pub seed: u64,
}

/// A sketch, as random points of it tell.
#[derive(Clone, Debug, Serialize)]
pub struct SketchFacts {
    pub name: String,
    pub decisions: usize,
    /// Within the limits or not.
    pub points: u64,
    /// The share of all points that are within the limits.
    pub within_limits: f64,
    /// Points that were drawn, within the limits, and how many of them differ.
    pub drawn: usize,
    pub distinct_points: usize,
    /// The share of the drawn points whose steps are legal and whose programs lower.
    pub legal: f64,
    /// Different flat programs of the legal points.
    pub kernels: usize,
    /// Drawing one point, and making one candidate: its trace, applied and lowered.
    pub draw_us: f64,
    pub make_ms: f64,
    /// Why points are illegal: the first few reasons that differ.
    pub illegal: Vec<String>,
}

/// The space of a task.
#[derive(Clone, Debug, Serialize)]
pub struct SpaceFacts {
    pub points: u64,
    /// Writing all sketches, with their defaults.
    pub write_ms: f64,
    pub sketches: Vec<SketchFacts>,
    /// Sketches that could not be written, and why.
    pub refused: Vec<String>,
}

/// Reasons that are told of a sketch.
const REASONS: usize = 3;

impl SpaceFacts {
    pub fn of(task: &Task, target: &Target, allowed: Allowed, samples: Samples) -> SpaceFacts {
        let began = Instant::now();
        let space = search::space(&task.program, target, allowed);
        let write_ms = began.elapsed().as_secs_f64() * 1e3;
        let sketches = 0..space.sketches.len();
        SpaceFacts {
            points: space.cardinality(),
            write_ms,
            sketches: sketches
                .map(|at| sketch_facts(task, target, &space, at, samples))
                .collect(),
            refused: space.refused.iter().map(ToString::to_string).collect(),
        }
    }
}

fn sketch_facts(
    task: &Task,
    target: &Target,
    space: &Space,
    at: usize,
    samples: Samples,
) -> SketchFacts {
    let Samples { count, seed } = samples;
    let sketch = &space.sketches[at];
    let began = Instant::now();
    let drawn = space.samples(at, count, seed);
    let draw_us = began.elapsed().as_secs_f64() * 1e6 / count.max(1) as f64;
    let (mut legal, mut kernels) = (0, BTreeSet::new());
    let mut illegal: Vec<String> = Vec::new();
    let mut make_s = 0.0;
    for point in &drawn {
        let began = Instant::now();
        let made = flat(task, target, space, point);
        make_s += began.elapsed().as_secs_f64();
        match made {
            Ok(code) => {
                legal += 1;
                kernels.insert(lower::flat::text::print(&code));
            }
            Err(why) if illegal.len() < REASONS && !illegal.contains(&why) => illegal.push(why),
            Err(_) => {}
        }
    }
    let share = |n: usize| n as f64 / drawn.len().max(1) as f64;
    SketchFacts {
        name: sketch.name.clone(),
        decisions: sketch.decisions.len(),
        points: sketch.cardinality(),
        within_limits: space.share_within_limits(at, DRAWS, seed),
        drawn: drawn.len(),
        distinct_points: drawn.iter().collect::<BTreeSet<&Point>>().len(),
        legal: share(legal),
        kernels: kernels.len(),
        draw_us,
        make_ms: make_s * 1e3 / drawn.len().max(1) as f64,
        illegal,
    }
}

/// The flat program of a point, or why it is illegal.
fn flat(
    task: &Task,
    target: &Target,
    space: &Space,
    point: &Point,
) -> Result<lower::flat::Code, String> {
    let made = space.candidate(&task.program, point);
    let candidate = made.map_err(|e| e.to_string())?;
    let scheduled = schedule::replay(&task.program, &candidate.trace).map_err(|e| e.to_string())?;
    lower::lower(&scheduled, target, &LowerOptions::standard()).map_err(|e| e.to_string())
}
