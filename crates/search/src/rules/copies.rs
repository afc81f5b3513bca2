//! Rule: operands that lie badly for the loops are copied in each call.
//!
//! An operand lies badly if a vector of it is no run of memory, or if what a tile reads of
//! it is on more pages than the processor keeps translations of, or in lines that share
//! one set of the first-level cache. The copy has the order in which the loops read
//! (`pack`). It is made where the loops that do not use it begin, if there are such loops,
//! so that it stays in a near cache; otherwise of the whole operand, before the loops.

use super::gather::Gather;
use super::lanes::{self, Lanes};
use super::threads::Shared;
use super::{Packed, Plan, TileLoops, pack, surround};
use crate::analysis::{Access, Axis, Class, Reduction, Stride};
use crate::draft::{Draft, REST, Written, given};
use crate::rates::{SHARE, ways};
use ir::{CpuTarget, LoopId, Role, Scope};

const RULE: &str = "copies";

/// Uses of each element from which copying pays: where vectors are read element by
/// element, and where they come from many pages.
pub(super) const STRIDED_USES: f64 = 12.0;
const FAR_USES: f64 = 96.0;
pub(super) const PAGE_BYTES: i64 = 4096;
/// Pages whose translations are at hand, about: 64 to 96 on the larger cores.
pub(super) const PAGES: i64 = 64;
/// Rows of a tile, about.
const ROWS: i64 = 16;

/// Which operands are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Those that lie badly.
    Bad,
    None,
    All,
    /// Those that lie badly, once the one that is read through windows is gathered.
    Gathered(Gather),
}

impl Copies {
    /// The choices that differ for a program, the likely best first.
    pub fn of(facts: &Reduction, target: &CpuTarget) -> Vec<Copies> {
        let mut found: Vec<(Copies, Chosen)> = Vec::new();
        for copies in [Copies::Bad, Copies::None, Copies::All] {
            let chosen = copies.choose(facts, target);
            if found.iter().all(|(_, c)| *c != chosen) {
                found.push((copies, chosen));
            }
        }
        found.into_iter().map(|(c, _)| c).collect()
    }

    /// What names of sketches end in.
    pub fn suffix(self) -> &'static str {
        match self {
            Copies::Bad => "",
            Copies::None => ".direct",
            Copies::All => ".copied",
            Copies::Gathered(_) => ".gathered",
        }
    }

    fn choose(self, facts: &Reduction, target: &CpuTarget) -> Chosen {
        let mut chosen = Chosen::default();
        let Ok((at, _)) = lanes::choose(facts, &[]) else {
            return chosen;
        };
        for (i, o) in facts.operands.iter().enumerate() {
            let wanted = match self {
                Copies::None => false,
                Copies::All => uses_of(facts, o) >= STRIDED_USES,
                Copies::Bad | Copies::Gathered(_) => lies_badly(facts, o, at, target),
            };
            if wanted && can_be_copied(facts, i) {
                chosen.packed.push(i);
            } else if wanted && facts.operands.len() > 1 && surround::fits(facts, i, at) {
                chosen.surrounded.push(i);
            }
        }
        chosen
    }
}

/// Positions of the operands to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// In the order of the loops.
    pub packed: Vec<usize>,
    /// With their border.
    pub surrounded: Vec<usize>,
}

pub fn choose(plan: &Plan) -> Chosen {
    plan.copies.choose(&plan.facts, plan.target)
}

/// Whether a copy can follow the loops.
fn can_be_copied(facts: &Reduction, i: usize) -> bool {
    let o = &facts.operands[i];
    let once = facts.operands.iter().filter(|p| p.buffer == o.buffer);
    let guarded = o.guards.iter().any(|g| *g);
    o.role == Role::Input && once.count() == 1 && pack::follows(facts, o) && !guarded
}

/// How often each element is used.
pub(super) fn uses_of(facts: &Reduction, o: &Access) -> f64 {
    let whole: Vec<i64> = facts.axes.iter().map(|a| a.extent).collect();
    facts.reuse(o, &whole)
}

fn lies_badly(facts: &Reduction, o: &Access, lanes: usize, target: &CpuTarget) -> bool {
    let uses = uses_of(facts, o);
    match o.strides[lanes] {
        Stride::Elements(0 | 1) => {}
        _ => return uses >= STRIDED_USES,
    }
    let far = |at: usize| bytes_apart(o, at);
    let pages = pages_of_terms(facts, o, target);
    // The innermost rows of the tile, where each row is a stream of its own.
    let row = facts.axes.iter().enumerate().rfind(|(at, a)| {
        a.class == Class::Reused && *at != lanes && a.extent > 1 && o.strides[*at].is_used()
    });
    let row = row.filter(|_| !o.strides[lanes].is_used());
    let rows = row.filter(|(at, _)| far(*at) >= PAGE_BYTES);
    let rows = rows.map_or(1, |(at, a)| match far(at) % PAGE_BYTES {
        0 => a.extent.min(ROWS) * PAGES / ways(target),
        _ => a.extent.min(ROWS),
    });
    let bytes = facts.footprint(o, &facts.axes.iter().map(|a| a.extent).collect::<Vec<_>>());
    let small = bytes * o.element_bytes <= target.l1_bytes as i64;
    !small && pages * rows > PAGES && uses >= FAR_USES
}

/// Whether a copy of each row's part of an operand beyond the second-level cache is made and read there, while the copy of
/// the other operand, which all rows read, stays there too: a copy of the whole would go through memory.
/// `op:contract(spec=mk,kn->nm,m=128,k=768,n=3072)` takes 5.3 to 5.5 ms in panels and 4.5 ms in rows;
/// `op:contract(spec=abcd,cbe->aed,a=1,b=12,c=64,d=1024,e=768)` 6.4 ms in panels and 7.8 ms in rows (a Xeon with AMX).
pub fn stay_near_in_rows(facts: &Reduction, target: &CpuTarget) -> bool {
    let Ok((lanes, _)) = lanes::choose(facts, &[]) else {
        return false;
    };
    let whole: Vec<i64> = facts.axes.iter().map(|a| a.extent).collect();
    let copied = Copies::Bad.choose(facts, target).packed;
    let (mut of_panels, mut of_rows) = (0, 0);
    for o in copied.iter().map(|i| &facts.operands[*i]) {
        let bytes = facts.footprint(o, &whole) * o.element_bytes;
        match o.strides[lanes].is_used() {
            true => of_panels += bytes,
            false => of_rows += bytes,
        }
    }
    let fits = of_panels as f64 <= SHARE * target.l2_bytes as f64;
    of_panels > 0 && fits && of_rows > target.l2_bytes as i64
}

fn bytes_apart(o: &Access, at: usize) -> i64 {
    match o.strides[at] {
        Stride::Elements(n) => n.abs() * o.element_bytes,
        Stride::Unknown => PAGE_BYTES,
    }
}

/// Pages on which the terms of one result find an operand, except those that they go along line by
/// line. Terms that are less than a page apart share pages: 768 of them that are 3 KiB apart are on
/// 576.
fn pages_of_terms(facts: &Reduction, o: &Access, target: &CpuTarget) -> i64 {
    let axes = facts.axes.iter().enumerate();
    let terms = axes.filter(|(_, a)| a.class == Class::Reduction);
    let mut pages = 1;
    let mut run = 1;
    for (at, axis) in terms {
        match bytes_apart(o, at) {
            apart if apart >= PAGE_BYTES => pages *= axis.extent,
            apart if apart > target.cache_line_bytes as i64 => run += apart * (axis.extent - 1),
            _ => {}
        }
    }
    pages * ((run + PAGE_BYTES - 1) / PAGE_BYTES)
}

/// Places the copies, and gives them vectors and threads.
pub fn schedule(
    d: &mut Draft,
    plan: &mut Plan,
    lanes: &Lanes,
    loops: &TileLoops,
    (packed, shared): (&[Packed], &Shared),
) -> Written<()> {
    let mut done = Vec::new();
    for p in packed.iter().filter(|p| lanes.copied.contains(&p.operand)) {
        let operand = &plan.facts.operands[p.operand];
        let place = place(plan, operand, loops, shared);
        if let Some(l) = place {
            d.compute_at(p.copier, l)?;
            d.set_scope(d.output(p.copier), Scope::Local)?;
        }
        let own = schedule::own_loops(d.program(), p.copier);
        let (last, along) = (own[p.dims - 1], own[p.along]);
        if operand.strides[lanes.at].is_used() {
            let [vectors, lane] = d.split(last, [REST, given(lanes.width)])?;
            if along != last {
                // Lines of no more columns than a vector has are in use together.
                d.reorder_if_legal(&[vectors, along, lane]);
            }
            d.vectorize_if_legal(lane);
        } else {
            d.attempt_vectorize(last);
        }
        if place.is_none() && plan.target.threads > 1 {
            share(d, plan, &own, p)?;
        }
        let name = d.program().buffer(p.buffer).name.clone();
        done.push(match place {
            Some(l) => format!("{name} in {}", d.program().loop_(l).name),
            None => format!("{name} before the loops"),
        });
    }
    match done.is_empty() {
        true => plan.passed(RULE, "no operand lies so badly that a copy pays"),
        false => plan.applied(RULE, done.join(", ")),
    }
    Ok(())
}

/// The outermost loops of a whole copy that stayed in its place are shared out.
fn share(d: &mut Draft, plan: &Plan, own: &[LoopId], p: &Packed) -> Written<()> {
    let outside = match p.along {
        0 => own.get(1..p.dims - 1).unwrap_or_default(),
        along => &own[..along.min(p.dims - 1)],
    };
    d.share_copy(outside, plan.target.threads).map(drop)
}

/// The loop over tiles in which a copy is made: the innermost one of batches, if what a
/// batch reads fits the second-level cache; else the last one that moves the operand, if
/// others are inside.
fn place(plan: &Plan, operand: &Access, loops: &TileLoops, shared: &Shared) -> Option<LoopId> {
    let outer = &loops.outer;
    let moves = |(at, _): &(usize, LoopId)| operand.strides[*at].is_used();
    let last = outer.iter().rposition(moves)?;
    let part = |a: &Axis| match a.class {
        Class::Batch => 1,
        _ => a.extent,
    };
    let part: Vec<i64> = plan.facts.axes.iter().map(part).collect();
    let bytes = plan.facts.footprint(operand, &part) * operand.element_bytes;
    let batches = outer
        .iter()
        .take_while(|(at, _)| plan.facts.axes[*at].class == Class::Batch)
        .count();
    let near = batches > 0 && batches < outer.len() && bytes <= plan.target.l2_bytes as i64 / 3;
    let depth = match () {
        _ if near => batches,
        _ if last + 1 < outer.len() => last + 1,
        _ => return None,
    };
    match shared.fused {
        None => Some(outer[depth - 1].1),
        Some(f) if depth == shared.count => Some(f),
        Some(_) if depth > shared.count => Some(outer[depth - 1].1),
        Some(_) => None,
    }
}
