//! Rule: the tile whose sums stay in registers.
//!
//! Each axis of the output that some operand does not use lets that operand be used
//! again. A tile takes a few iterations of the innermost such axes, and some vectors along
//! the lanes. The default is the tile with the fewest predicted cycles for each product
//! (`cost`).

use super::cost::{DecidedTile, TileCost, TileSizes};
use super::lanes::Lanes;
use super::surround::is_window;
use super::{Plan, TileLoops, window};
use crate::analysis::{Access, Axis, Class, Reduction, Stride};
use crate::draft::{Decided, DecidedPart, Draft, REST, Written, given};
use crate::templates::registers::{MOST_UNROLLED, Registers, spills};
use ir::LoopId;
use schedule::Arg;

const RULE: &str = "tile";
/// Axes of a tile beside the lanes, at most: two that an operand does not use, such as
/// rows and columns of pixels, and one that another does not, such as blocks of maps.
const MOST_AXES: usize = 3;
const MOST_OF_A_KIND: usize = 2;
/// Iterations of these axes, of all together, that are too few to fill the registers: one more axis is taken. Example: the
/// gradient of weights has 3 x 3 results for each pair of maps, so a tile has several maps.
const FEW: i64 = 32;
/// Vectors along the lanes in a tile of several rows; there are registers for no more
/// beside the sums of as many rows.
const MOST_VECTORS: i64 = 6;
/// Multiply-adds of the unrolled body by default: a few times what hides the latency.
const UNROLLED: i64 = 64;

/// The decisions of a tile.
pub struct Tile {
    rows: Vec<Row>,
    /// The width along the lanes: elements, or one vector where there is no more.
    vectors: Decided,
    /// Whether the lanes' axis has several vectors, and is cut into tiles.
    wide: bool,
    /// Whether these are panels of a packed operand.
    panel: bool,
    terms: Option<Terms>,
    /// Axes whose last tile may reach over the end.
    pub cuts: Vec<usize>,
    /// The position of the lanes' axis.
    pub lanes: usize,
    cost: TileCost,
    default: TileSizes,
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

    /// The width of a tile along the lanes, in elements, if the axis is longer than a vector.
    pub fn width(&self) -> Option<DecidedPart> {
        self.wide.then(|| self.vectors.value())
    }

    /// What decides its costs, and its sizes by default.
    pub fn by_default(&self) -> (&TileCost, &TileSizes) {
        (&self.cost, &self.default)
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

/// What a tile may be: sizes along its axes, and numbers of vectors.
struct Options {
    /// Positions of the axes, outermost first.
    axes: Vec<usize>,
    rows: Vec<Vec<i64>>,
    vectors: Vec<i64>,
}

pub fn decide(d: &mut Draft, plan: &mut Plan, lanes: &Lanes) -> Written<Tile> {
    let registers = Registers::of(plan.target);
    let options = options(plan, lanes, registers);
    let cost = TileCost::new(plan, lanes, &options.axes);
    let best = best(plan, lanes, &options, &cost, registers);
    let wide = lanes.extent > lanes.width;
    let panel = wide && !lanes.packed.is_empty();
    let unit = if wide { lanes.width } else { 1 };
    let counts: Vec<i64> = options.vectors.iter().map(|v| v * unit).collect();
    let vectors = d.choose("vectors", &counts, best.vectors * unit);
    let mut cuts = Vec::new();
    if wide && !panel && counts.iter().any(|v| lanes.extent % v != 0) {
        cuts.push(lanes.at);
    }
    let rows = rows(d, plan, &options, &best, &mut cuts);
    let products = best.rows.iter().product::<i64>() * best.vectors;
    let terms = match window::whole_terms(&plan.facts) {
        Some(_) => None,
        None => terms(d, plan, products * each(plan, lanes)),
    };
    let tile = Tile {
        rows,
        vectors,
        wide,
        panel,
        terms,
        cuts,
        lanes: lanes.at,
        cost: cost.clone(),
        default: best.clone(),
    };
    limit(d, plan, lanes, &tile, registers.most_vectors(0), unit);
    d.predict(DecidedTile {
        cost,
        rows: tile.rows.iter().map(|r| r.decided.value()).collect(),
        vectors: vectors.value(),
        unit,
    });
    let along = |(at, size): (&usize, &i64)| format!("{} {size}", plan.facts.axes[*at].name);
    let mut sizes: Vec<String> = options.axes.iter().zip(&best.rows).map(along).collect();
    sizes.push(format!("vectors {}", best.vectors));
    plan.applied(RULE, format!("{}, by default", sizes.join(" x ")));
    Ok(tile)
}

fn options(plan: &Plan, lanes: &Lanes, registers: Registers) -> Options {
    let axes = match plan.facts.operands.len() {
        1 => window::axes(&plan.facts, lanes),
        _ => axes(plan, lanes),
    };
    let sizes = |at: &usize| sizes_of(&plan.facts.axes[*at], registers);
    // The axis is padded to whole tiles.
    let vectors = (lanes.extent + lanes.width - 1) / lanes.width;
    Options {
        rows: axes.iter().map(sizes).collect(),
        vectors: (1..=vectors.min(MOST_VECTORS)).collect(),
        axes,
    }
}

/// A decision for each axis of the tile; `cuts` gets those whose last tile may be cut.
fn rows(
    d: &mut Draft,
    plan: &Plan,
    options: &Options,
    best: &TileSizes,
    cuts: &mut Vec<usize>,
) -> Vec<Row> {
    let all = options.axes.iter().zip(&options.rows).zip(&best.rows);
    let one = |((at, sizes), default): ((&usize, &Vec<i64>), &i64)| {
        let axis = &plan.facts.axes[*at];
        let short = axis.name.rsplit('.').next().unwrap_or(&axis.name);
        if sizes.iter().any(|t| axis.extent % t != 0) {
            cuts.push(*at);
        }
        Row {
            at: *at,
            axis: axis.id,
            decided: d.choose(&format!("tile_{short}"), sizes, *default),
        }
    };
    all.map(one).collect()
}

/// Keeps the sums and what is held beside them in `most` registers, and the unrolled body
/// short. A number of vectors is decided as `unit` times that many.
fn limit(d: &mut Draft, plan: &Plan, lanes: &Lanes, tile: &Tile, most: i64, unit: i64) {
    let with_vectors = |rows: &mut dyn Iterator<Item = &Row>| -> Vec<DecidedPart> {
        let rows = rows.map(|r| r.decided.value());
        rows.chain([tile.vectors.value()]).collect()
    };
    let sums = with_vectors(&mut tile.rows.iter());
    let held = with_vectors(&mut tile.rows.iter().filter(|r| held(plan, lanes, r.at)));
    d.limit("registers", &[(1, &sums), (1, &held)], most * unit);
    let mut body = sums;
    body.extend(tile.terms.iter().map(|t| t.decided.value()));
    d.limit(
        "unrolled code",
        &[(each(plan, lanes), &body)],
        MOST_UNROLLED * unit,
    );
}

/// Statements of the body for each vector of sums and unrolled term. A vector whose elements
/// lie anywhere is a load for each.
fn each(plan: &Plan, lanes: &Lanes) -> i64 {
    let gathers = plan.facts.operands.iter().any(|o| o.gathers[lanes.at]);
    let loads = if gathers { lanes.width } else { 1 };
    window::whole_terms(&plan.facts).unwrap_or(1) * loads
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
    let mut most = MOST_AXES;
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
        if is_outer_part(plan, at) {
            continue;
        }
        let same = chosen.iter().filter(|c| uses(**c) == uses(at));
        let extents = same.map(|c| facts.axes[*c].extent);
        let (count, iterations) = extents.fold((0, 1), |(n, all), e| (n + 1, all * e));
        if count == MOST_OF_A_KIND && iterations < FEW {
            chosen.push(at);
            most += 1;
        } else if count < MOST_OF_A_KIND && chosen.len() < most {
            chosen.push(at);
        }
    }
    chosen.sort_unstable();
    chosen
}

/// Whether another axis walks along the same dimension of the output in smaller steps: several
/// iterations with a part of that axis each would be no box of results. Example: the channels of
/// a weight gradient, which `quotients` splits into blocks and what is in a block.
fn is_outer_part(plan: &Plan, at: usize) -> bool {
    let step = |s: Stride| match s {
        Stride::Elements(n) if n != 0 => Some(n.abs()),
        _ => None,
    };
    let mut dims = plan.facts.output.dims.iter();
    dims.any(|d| {
        let own = step(d.steps[at]);
        let mut others = d.steps.iter().filter_map(|s| step(*s));
        own.is_some_and(|own| others.any(|other| other < own))
    })
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
    options: &Options,
    cost: &TileCost,
    registers: Registers,
) -> TileSizes {
    let all = [&options.rows[..], std::slice::from_ref(&options.vectors)].concat();
    let is_held = |at: &usize| held(plan, lanes, *at);
    // Vectors are held by all.
    let held: Vec<bool> = options.axes.iter().map(is_held).chain([true]).collect();
    let each = each(plan, lanes);
    let fits = |sizes: &[i64]| {
        let sums: i64 = sizes.iter().product();
        let of_held = sizes.iter().zip(&held).filter(|(_, held)| **held);
        let loaded: i64 = of_held.map(|(n, _)| *n).product();
        let kept = sums + loaded <= registers.most_vectors(0) && !spills(sums / loaded, loaded);
        kept && sums * each <= MOST_UNROLLED
    };
    let mut best = TileSizes {
        rows: vec![1; options.axes.len()],
        vectors: 1,
    };
    let mut least = f64::INFINITY;
    for mut rows in fitting(&all, &fits) {
        let vectors = rows.pop().unwrap_or(1);
        let sizes = TileSizes { rows, vectors };
        let cycles = cost.cycles(&sizes);
        if cycles < least * 0.999 {
            (best, least) = (sizes, cycles);
        }
    }
    best
}

/// Every combination of one of each of the options that fits, the last option fastest. Where
/// the first few do not fit by themselves, no combination with them does.
fn fitting(options: &[Vec<i64>], fits: &dyn Fn(&[i64]) -> bool) -> Vec<Vec<i64>> {
    let mut found: Vec<Vec<i64>> = vec![vec![]];
    for sizes in options {
        let longer = found.iter().flat_map(|some| {
            let with = |size: &i64| [&some[..], &[*size]].concat();
            sizes.iter().map(with)
        });
        found = longer.filter(|some| fits(some)).collect();
    }
    found
}

/// The innermost axis of terms, some of which are one body.
/// A tile has so many products of each.
fn terms(d: &mut Draft, plan: &mut Plan, products: i64) -> Option<Terms> {
    let axis = plan
        .facts
        .axes
        .iter()
        .rev()
        .find(|a| a.class == Class::Reduction)?;
    let options: Vec<i64> = (1..=8).filter(|u| axis.extent % u == 0).collect();
    let wanted = (UNROLLED / products).max(1);
    let unrolled = options.iter().filter(|u| **u <= wanted).max();
    let id = axis.id;
    plan.body = products * unrolled.unwrap_or(&1);
    let decided = d.choose("unroll", &options, wanted);
    Some(Terms { axis: id, decided })
}

/// Loops over terms that are as short as this are unrolled whole, or not at all.
const SHORT: i64 = 7;

/// The innermost short loop over terms outside the tile, such as the taps of a window, is
/// a body of its own. The loop, and by how much it is unrolled, also at borders.
pub fn unroll_taps(
    d: &mut Draft,
    plan: &mut Plan,
    loops: &TileLoops,
) -> Written<Option<(LoopId, Arg)>> {
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
    // The exit of so short a loop is guessed wrongly nearly every time, which costs more than a
    // long body does. Example: `conv2d_transpose` of 256 to 128 maps of 8 x 8 takes 0.36 ms with 16
    // channels as one body, and 0.40 ms with four times four (a Xeon with AMX). Taps of a window
    // share what they read, and so many of them need more registers than there are.
    let rest = loops.terms.last() == Some(&taps);
    let most = match rest && !ends_with_window(&plan.facts) {
        true => MOST_UNROLLED,
        false => 2 * UNROLLED,
    };
    let long = (rest || plan.body > UNROLLED) && plan.body * extent > most;
    let default = if long || shares_vectors(plan) {
        1
    } else {
        extent
    };
    let by = d.choose("unroll_taps", &[1, extent], default);
    d.unroll_by(taps, by.value())?;
    let name = d.program().loop_(taps).name.clone();
    plan.applied("unroll", format!("{name} by {default}, by default"));
    Ok(Some((taps, by.value().into())))
}

/// Whether the innermost axis of terms is one of a window.
fn ends_with_window(facts: &Reduction) -> bool {
    let mut axes = facts.axes.iter();
    let Some(last) = axes.rposition(|a| a.class == Class::Reduction) else {
        return false;
    };
    let mut dims = facts.operands.iter().flat_map(|o| &o.dims);
    dims.any(|d| d.steps[last].is_used() && facts.spatial().any(|at| d.steps[at].is_used()))
}

/// Whether neighbouring taps read the same vectors of terms: as one body they would hold these in
/// registers that the sums need.
fn shares_vectors(plan: &Plan) -> bool {
    let facts = &plan.facts;
    let lanes_are_added = plan.out.is_some_and(|n| n.is_reduction);
    lanes_are_added && facts.operands.iter().any(|o| is_window(facts, o))
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
    let [tiles, own, lane] = match tile.wide {
        true => {
            let [tiles, inside] = d.split(lanes.axis, [REST, vectors])?;
            let [own, lane] = d.split(inside, [REST, given(lanes.width)])?;
            [tiles, own, lane]
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
    if tile.cost.waits_for_lines(&tile.default) {
        terms.rotate_right(1);
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
