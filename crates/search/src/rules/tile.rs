//! Rule: the tile whose sums stay in registers.
//!
//! Each axis of the output that some operand does not use lets that operand be used
//! again. A tile takes a few iterations of the innermost such axes, and some vectors along
//! the lanes. The default is the tile with the fewest predicted cycles for each product
//! (`cost`).

use super::cost::{self, Sizes};
use super::lanes::Lanes;
use super::window;
use super::{Plan, TileLoops};
use crate::analysis::{Access, Axis, Class};
use crate::draft::{Decided, DecidedPart, Draft, REST, Written, given};
use crate::templates::registers::{MOST_UNROLLED, Registers};
use ir::LoopId;
use schedule::Arg;

const RULE: &str = "tile";
/// Axes of a tile beside the lanes, at most: two that an operand does not use, such as
/// rows and columns of pixels, and one that another does not, such as blocks of maps.
const MOST_AXES: usize = 3;
const MOST_OF_A_KIND: usize = 2;
/// Vectors along the lanes in a tile of several rows; there are registers for no more
/// beside the sums of as many rows.
const MOST_VECTORS: i64 = 6;
/// Multiply-adds of the unrolled body by default: a few times what hides the latency.
const UNROLLED: i64 = 64;

/// Tiles of which one may be slow.
const MANY: i64 = 16;

/// The decisions of a tile.
pub struct Tile {
    rows: Vec<Row>,
    /// How many vectors; of a panel, how many elements.
    vectors: Decided,
    panel: bool,
    terms: Option<Terms>,
    /// Axes whose last tile may reach over the end.
    pub cuts: Vec<usize>,
    /// The position of the lanes' axis.
    pub lanes: usize,
}

struct Row {
    at: usize,
    axis: LoopId,
    decided: Decided,
}

struct Terms {
    axis: LoopId,
    decided: Decided,
}

impl Tile {
    /// Whether the lanes' axis is cut into panels of a packed constant.
    pub fn is_panel(&self) -> bool {
        self.panel
    }

    /// The width of a panel, in elements.
    pub fn width(&self) -> DecidedPart {
        self.vectors.value()
    }

    /// The part of an axis that is inside the tile, and whether it has the lanes.
    pub fn inner_of(&self, at: usize, lanes: &Lanes) -> Option<(Arg, bool)> {
        if at == lanes.at {
            return self.panel.then(|| (self.vectors.value().into(), true));
        }
        let row = self.rows.iter().find(|r| r.at == at)?;
        Some((row.decided.value().into(), false))
    }
}

/// Sizes of a tile along its axes, the last one in vectors.
type Found = Vec<i64>;

pub fn decide(d: &mut Draft, plan: &mut Plan, lanes: &Lanes) -> Written<Tile> {
    let axes = match plan.facts.operands.len() {
        1 => window::axes(&plan.facts, lanes),
        _ => axes(plan, lanes),
    };
    let registers = Registers::of(plan.target);
    let mut options: Vec<Vec<i64>> = axes
        .iter()
        .map(|at| sizes_of(&plan.facts.axes[*at], registers))
        .collect();
    let vectors = (lanes.extent + lanes.width - 1) / lanes.width;
    // The last tile of many may be cut: then its sums are in memory.
    let fits = |v: &i64| vectors % v == 0 || vectors > MANY * v;
    options.push((1..=vectors.min(MOST_VECTORS)).filter(fits).collect());
    let best = best(plan, lanes, &axes, &options, registers);
    let panel = !lanes.packed.is_empty() && lanes.extent > lanes.width;
    let unit = if panel { lanes.width } else { 1 };
    let counts: Vec<i64> = options
        .last()
        .into_iter()
        .flatten()
        .map(|v| v * unit)
        .collect();
    let wanted = best.last().copied().unwrap_or(1) * unit;
    let vectors = d.choose("vectors", &counts, wanted);
    let mut rows = Vec::new();
    let mut cuts = Vec::new();
    if !panel && counts.iter().any(|v| lanes.extent % (v * lanes.width) != 0) {
        cuts.push(lanes.at);
    }
    for ((at, sizes), default) in axes.iter().zip(&options).zip(&best) {
        let axis = &plan.facts.axes[*at];
        let name = format!(
            "tile_{}",
            axis.name.rsplit('.').next().unwrap_or(&axis.name)
        );
        if sizes.iter().any(|t| axis.extent % t != 0) {
            cuts.push(*at);
        }
        rows.push(Row {
            at: *at,
            axis: axis.id,
            decided: d.choose(&name, sizes, *default),
        });
    }
    let terms = match window::whole_terms(&plan.facts) {
        Some(_) => None,
        None => terms(d, plan, &best),
    };
    limit(d, plan, lanes, (&rows, vectors, terms.as_ref()), unit);
    let names = axes
        .iter()
        .map(|at| plan.facts.axes[*at].name.as_str())
        .chain(["vectors"]);
    let tile = names.zip(&best).map(|(n, t)| format!("{n} {t}"));
    let tile: Vec<String> = tile.collect();
    plan.applied(RULE, format!("{}, by default", tile.join(" x ")));
    Ok(Tile {
        rows,
        vectors,
        panel,
        terms,
        cuts,
        lanes: lanes.at,
    })
}

/// Lets the sketch propose only tiles that fit the registers, with bodies that are not
/// too long; vectors are counted in units of `unit`.
fn limit(
    d: &mut Draft,
    plan: &Plan,
    lanes: &Lanes,
    (rows, vectors, terms): (&[Row], Decided, Option<&Terms>),
    unit: i64,
) {
    let registers = Registers::of(plan.target);
    let parts: Vec<_> = rows.iter().map(|r| r.decided.value()).collect();
    let held = rows.iter().filter(|r| held(plan, lanes, r.at));
    let held: Vec<_> = held
        .map(|r| r.decided.value())
        .chain([vectors.value()])
        .collect();
    let sums: Vec<_> = parts.iter().copied().chain([vectors.value()]).collect();
    d.limit(
        "registers",
        &[(1, &sums), (1, &held)],
        registers.most_vectors(0) * unit,
    );
    let body: Vec<_> = parts
        .iter()
        .copied()
        .chain([vectors.value()])
        .chain(terms.iter().map(|t| t.decided.value()))
        .collect();
    let whole = window::whole_terms(&plan.facts).unwrap_or(1);
    d.limit("unrolled code", &[(whole, &body)], MOST_UNROLLED * unit);
}

/// Axes for a tile, outermost first: of those that leave out the same operands the
/// innermost ones.
fn axes(plan: &Plan, lanes: &Lanes) -> Vec<usize> {
    let facts = &plan.facts;
    let uses = |at: usize| -> Vec<bool> {
        facts
            .operands
            .iter()
            .map(|o| o.strides[at].is_used())
            .collect()
    };
    let mut chosen: Vec<usize> = Vec::new();
    let innermost_first: Vec<usize> = facts
        .spatial()
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect();
    for at in innermost_first {
        let axis = &facts.axes[at];
        if at == lanes.at || axis.extent == 1 || axis.class != Class::Reused {
            continue;
        }
        let same = chosen.iter().filter(|c| uses(**c) == uses(at)).count();
        if chosen.len() < MOST_AXES && same < MOST_OF_A_KIND {
            chosen.push(at);
        }
    }
    chosen.sort_unstable();
    chosen
}

/// Whether an axis moves the operand whose vectors of one term are in registers together:
/// of those read along the lanes, the one that moves with the fewest axes.
fn held(plan: &Plan, lanes: &Lanes, at: usize) -> bool {
    let facts = &plan.facts;
    if facts.operands.len() == 1 {
        return false;
    }
    let moves = |o: &&Access| facts.spatial().filter(|a| o.strides[*a].is_used()).count();
    let along = facts
        .operands
        .iter()
        .filter(|o| o.strides[lanes.at].is_used());
    along
        .min_by_key(moves)
        .is_some_and(|o| o.strides[at].is_used())
}

/// Sizes along an axis: those that divide it, and those whose last tile has at least half
/// of its iterations. Of a part of an axis only the former: a tile may not reach into the
/// next part.
fn sizes_of(axis: &Axis, registers: Registers) -> Vec<i64> {
    let extent = axis.extent;
    let fits = |t: &i64| extent % t == 0 || axis.whole && extent % t * 2 >= *t;
    (1..=extent.min(registers.most_rows()))
        .filter(fits)
        .collect()
}

/// The sizes with the fewest predicted cycles for a product; of about equal ones the first.
fn best(
    plan: &Plan,
    lanes: &Lanes,
    axes: &[usize],
    options: &[Vec<i64>],
    registers: Registers,
) -> Found {
    let mut best: Found = vec![1; options.len()];
    let mut least = f64::INFINITY;
    let mut at = vec![0; options.len()];
    loop {
        let sizes: Found = at.iter().zip(options).map(|(i, o)| o[*i]).collect();
        let (rows, vectors) = sizes.split_at(axes.len());
        let of_held = axes
            .iter()
            .zip(rows)
            .filter(|(at, _)| held(plan, lanes, **at));
        let loaded: i64 = of_held.map(|(_, n)| *n).product();
        let sums: i64 = rows.iter().product();
        let body = sums * vectors[0] * window::whole_terms(&plan.facts).unwrap_or(1);
        if (sums + loaded) * vectors[0] <= registers.most_vectors(0) && body <= MOST_UNROLLED {
            let cost = cost::cycles(
                plan,
                lanes,
                &Sizes {
                    axes,
                    rows,
                    vectors: vectors[0],
                },
            );
            if cost < least * 0.999 {
                (best, least) = (sizes, cost);
            }
        }
        // The next combination, the last axis fastest.
        let Some(turn) = (0..at.len()).rev().find(|i| at[*i] + 1 < options[*i].len()) else {
            return best;
        };
        at[turn] += 1;
        at[turn + 1..].fill(0);
    }
}

/// The innermost axis of terms, some of which are one body.
fn terms(d: &mut Draft, plan: &Plan, tile: &[i64]) -> Option<Terms> {
    let axis = plan
        .facts
        .axes
        .iter()
        .rev()
        .find(|a| a.class == Class::Reduction)?;
    let options: Vec<i64> = (1..=8).filter(|u| axis.extent % u == 0).collect();
    let products: i64 = tile.iter().product();
    let decided = d.choose("unroll", &options, (UNROLLED / products).max(1));
    Some(Terms {
        axis: axis.id,
        decided,
    })
}

/// Loops over terms that are as short as this are unrolled whole, or not at all.
const SHORT: i64 = 7;

/// The innermost short loop over terms outside the tile, such as the taps of a window, is
/// a body of its own.
pub fn unroll_taps(d: &mut Draft, plan: &mut Plan, loops: &TileLoops) -> Written<Option<LoopId>> {
    let extent = |l: &LoopId| d.program().loop_(*l).extent;
    let short = loops
        .terms
        .iter()
        .rev()
        .find(|l| (2..=SHORT).contains(&extent(l)));
    if window::whole_terms(&plan.facts).is_some() {
        plan.passed("unroll", "all terms are one body");
        return Ok(None);
    }
    let Some(taps) = short.copied() else {
        plan.passed("unroll", "no short loop over terms is outside the tile");
        return Ok(None);
    };
    let extent = extent(&taps);
    let by = d.choose("unroll_taps", &[1, extent], extent);
    d.unroll_by(taps, by.value())?;
    let name = d.program().loop_(taps).name.clone();
    plan.applied("unroll", format!("{name} by {extent}, by default"));
    Ok(Some(taps))
}

/// Cuts the loops.
pub fn cut(d: &mut Draft, plan: &mut Plan, lanes: &Lanes, tile: &Tile) -> Written<TileLoops> {
    let (mut outer, mut inner) = (Vec::new(), Vec::new());
    let mut parts: Vec<(usize, LoopId)> = Vec::new();
    for at in plan.facts.spatial() {
        let axis = &plan.facts.axes[at];
        if at == lanes.at {
            continue;
        }
        match tile.rows.iter().find(|r| r.at == at) {
            Some(row) => {
                let [tiles, own] = d.split(row.axis, [REST, row.decided.value().into()])?;
                parts.push((at, tiles));
                inner.push((held(plan, lanes, at), own));
            }
            None => parts.push((at, axis.id)),
        }
    }
    let vectors = tile.vectors.value().into();
    let [tiles, own, lane] = match tile.panel {
        true => {
            let [panels, panel] = d.split(lanes.axis, [REST, vectors])?;
            let [own, lane] = d.split(panel, [REST, given(lanes.width)])?;
            [panels, own, lane]
        }
        false => d.split(lanes.axis, [REST, vectors, given(lanes.width)])?,
    };
    parts.push((lanes.at, tiles));
    // Vectors that stay in registers are inside what is broadcast: each broadcast is then
    // used at once by all of them.
    inner.sort_by_key(|(held, _)| *held);
    let mut inner: Vec<LoopId> = inner.into_iter().map(|(_, l)| l).collect();
    inner.push(own);
    let mut terms: Vec<LoopId> = Vec::new();
    for axis in plan
        .facts
        .axes
        .iter()
        .filter(|a| a.class == Class::Reduction)
    {
        match tile.terms.as_ref().filter(|t| t.axis == axis.id) {
            Some(t) => {
                let [rest, own] = d.split(axis.id, [REST, t.decided.value().into()])?;
                terms.push(rest);
                inner.insert(0, own);
            }
            None => terms.push(axis.id),
        }
    }
    // Batch axes first, then what the order says.
    parts.sort_by_key(|(at, _)| (plan.order.rank(&plan.facts, lanes, *at), *at));
    outer.extend(parts);
    Ok(TileLoops {
        outer,
        terms,
        inner,
        lane,
    })
}
