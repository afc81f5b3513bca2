//! Spaces made by rules: what can be done with a contraction is read off its program.
//!
//! [`sketches`] is the driver. Every rule looks at the facts about the loops as they
//! stand ([`Reduction`]), changes the draft or says why it does not apply, and leaves
//! what the next rules need in the [`Plan`]. A rule never asks which operator the program
//! came from.

mod borders;
mod copies;
mod cost;
mod dots;
mod gather;
mod lanes;
mod leave;
mod order;
mod pack;
mod parts;
mod quotients;
mod surround;
mod threads;
mod tile;
mod window;

use crate::analysis::{Access, Reduction};
use crate::cost::{ALIKE, BY_TILE, cheapest_first};
use crate::draft::{Draft, Written};
use crate::nests::{Nest, nests};
use crate::space::Sketch;
use crate::templates::{Templates, epilogue, main_sum, others};
use copies::Copies;
pub use cost::DecidedTile;
use dots::Dots;
use gather::Gather;
use ir::{BlockId, BufferId, CpuTarget, LoopId, Program, Role, Target};
use lanes::Lanes;
use order::Order;
use std::fmt::Write;
use surround::Surrounded;
use tile::Tile;

/// What the names of all sketches of rules begin with.
pub const PREFIX: &str = "rules.";

/// What the names of sketches end with whose threads share terms, or whose lanes do.
const PARTS: &str = ".parts";
const DOTS: &str = ".dots";

/// What one rule did, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub rule: &'static str,
    pub applied: bool,
    pub what: String,
}

/// A contraction while rules schedule it.
struct Plan<'a> {
    target: &'a CpuTarget,
    main: &'a Nest,
    /// The block behind it, one element for each of its own.
    out: Option<&'a Nest>,
    order: Order,
    copies: Copies,
    /// Operands that are copied with their border.
    surrounded: Vec<Surrounded>,
    /// Of the block as it stands.
    facts: Reduction,
    /// Multiply-adds of the body by default.
    body: i64,
    notes: Vec<Note>,
}

impl Plan<'_> {
    fn applied(&mut self, rule: &'static str, what: impl Into<String>) {
        self.note(rule, true, what.into());
    }

    fn passed(&mut self, rule: &'static str, why: impl Into<String>) {
        self.note(rule, false, why.into());
    }

    fn note(&mut self, rule: &'static str, applied: bool, what: String) {
        self.notes.push(Note {
            rule,
            applied,
            what,
        });
    }

    /// Reads the loops again, after a rule changed them.
    fn look_again(&mut self, d: &Draft) {
        if let Some(facts) = Reduction::of(d.program(), self.main.block) {
            self.facts = facts;
        }
    }
}

/// The loops of a tile, once it is cut.
struct TileLoops {
    /// Over tiles, one for each axis of the output, with its position; outermost first.
    outer: Vec<(usize, LoopId)>,
    /// Over terms, outermost first.
    terms: Vec<LoopId>,
    /// Inside the terms: unrolled terms, then rows of the tile, then vectors.
    inner: Vec<LoopId>,
    lane: LoopId,
}

impl TileLoops {
    fn outer(&self) -> Vec<LoopId> {
        self.outer.iter().map(|(_, l)| *l).collect()
    }
}

/// Sketches for a program about one reduction of products or of windows; none for others.
pub fn sketches(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let Ok(facts) = recognise(program, all) else {
        return;
    };
    // Of windows predictions rank the orders and the copies. Of 12 other contractions panels
    // first were faster in 9, also in all 4 for which rows were predicted to cost less. What an
    // operand costs that is passed over several times is no part of a prediction.
    let windows = |o: &Access| o.guards.contains(&true) || surround::is_window(&facts, o);
    let ranked = facts.operands.iter().any(windows) && !is_uneven(&facts);
    let orders = orders(&facts, target);
    let ways = ways(&facts, orders, target);
    if let (Some(terms), Some(copies)) = (parts::wanted(&facts, target), ways.first()) {
        for order in orders.iter().copied() {
            let name = format!("{}{PARTS}", name(order, *copies));
            found.write(Draft::new(name, program), |d| {
                write_parts(d, terms, target, (order, *copies)).map(drop)
            });
        }
    }
    if let Some(dots) = dots::wanted(&facts, target) {
        found.write(Draft::new(format!("{PREFIX}rows{DOTS}"), program), |d| {
            write_dots(d, dots, target).map(drop)
        });
    }
    let whole = Target::Cpu(target.clone());
    let mut all_copies = Templates::default();
    for copies in ways {
        let mut own = Templates::default();
        for order in orders.iter().copied() {
            own.write(Draft::new(name(order, copies), program), |d| {
                write(d, all, target, (order, copies)).map(drop)
            });
        }
        if ranked {
            own.sketches = cheapest_first(BY_TILE, program, &whole, own.sketches, ALIKE);
        }
        all_copies.extend(own);
    }
    if ranked {
        let sketches = std::mem::take(&mut all_copies.sketches);
        all_copies.sketches = cheapest_first(BY_TILE, program, &whole, sketches, COPIES);
    }
    found.extend(all_copies);
}

/// The share by which other copies have to be predicted cheaper than those that come first
/// without a prediction: what they take from caches and memory is known roughly.
const COPIES: f64 = 0.1;

/// Sketches that gather the operand that is read through windows, and multiply: for convolutions
/// without constants.
pub fn gathered(program: &Program, all: &[Nest], target: &CpuTarget, found: &mut Templates) {
    let facts = recognise(program, all).ok();
    if facts.and_then(|f| gather::operand(&f)).is_none() {
        return;
    }
    for gather in Gather::ALL {
        let variant = (Order::Rows, Copies::Gathered(gather));
        found.write(Draft::new(gather.word(), program), |d| {
            write(d, all, target, variant).map(drop)
        });
    }
}

/// The name of an algorithm for people, who call a convolution direct that rules read from its definition:
/// `direct.rows` for `rules.rows`.
pub fn name_for_people(program: &Program, algorithm: &str) -> String {
    let windows = |rest: &str| {
        let facts = recognise(program, &nests(program)).ok()?;
        let mut operands = facts.operands.iter();
        let is_product = facts.operands.len() > 1;
        let found = is_product && operands.any(|o| surround::is_window(&facts, o));
        found.then(|| format!("direct.{rest}"))
    };
    let of_rules = algorithm.strip_prefix(PREFIX);
    of_rules
        .and_then(windows)
        .unwrap_or_else(|| algorithm.to_string())
}

/// Whether threads or lanes share terms: such sketches are before all others, which have too
/// few results for all threads, or read rows across.
pub fn share_terms(sketches: &[Sketch]) -> bool {
    let share = |s: &Sketch| s.name.ends_with(PARTS) || s.name.ends_with(DOTS);
    sketches.first().is_some_and(share)
}

/// Whether products have windows that are much longer than the results, so that a tile has all
/// results along an axis, and no template does.
pub fn have_long_windows(program: &Program, all: &[Nest]) -> bool {
    recognise(program, all).is_ok_and(|facts| !cost::all_long_windows(&facts).is_empty())
}

fn name(order: Order, copies: Copies) -> String {
    format!("{PREFIX}{}{}", order.word(), copies.suffix())
}

/// The share of the second-level cache that panels of all iterations may fill while rows pass
/// once: the rows, and the results, pass through the cache as well.
/// `conv2d_transpose` of 256 to 128 maps with 3 x 3 taps, whose weights are 59% of that cache,
/// takes 3.5 ms with panels first and 4.4 ms with rows first (images of 32 x 32), and 14.6 ms and
/// 17.5 ms (64 x 64). Of 128 to 64 maps, with weights of 14%, it takes 18.8 ms with panels first,
/// and 13.8 ms with rows first (128 x 128; a Xeon with AMX).
const ALL_PANELS: f64 = 0.5;

/// The orders of loops that differ, the likely better one first. Panels need an operand that
/// others do not move with. Where iterations of a batch axis have unequally many terms, panels
/// pass over the other operand once for each of these iterations, and rows pass once, while all
/// panels stay in a near cache. So they do where the lanes' operand is copied and stays near.
fn orders(facts: &Reduction, target: &CpuTarget) -> &'static [Order] {
    let near = |o: &&Access| {
        let whole: Vec<i64> = facts.axes.iter().map(|a| a.extent).collect();
        let bytes = facts.footprint(o, &whole) * o.element_bytes;
        bytes as f64 <= ALL_PANELS * target.l2_bytes as f64
    };
    let mut constants = facts.operands.iter().filter(|o| o.role == Role::Constant);
    match facts.operands.len() {
        1 => &[Order::Rows],
        _ if is_uneven(facts) && constants.all(|o| near(&o)) => &[Order::Rows, Order::Panels],
        _ if copies::stay_near_in_rows(facts, target) => &[Order::Rows, Order::Panels],
        _ => &Order::ALL,
    }
}

/// What may be copied, the likely best first. Where no prediction ranks copies, and panels pass
/// over an operand many times, a copy with its border, made once, pays: each pass goes without tests.
/// `op:conv2d_transpose(c=256,h=32,w=32,k=128,r=3,s=3,stride=2,output_pad=1)` takes 3.5 ms with a copy, and 3.7 ms
/// without (a Xeon with AMX).
fn ways(facts: &Reduction, orders: &[Order], target: &CpuTarget) -> Vec<Copies> {
    let mut ways = Copies::of(facts, target);
    if is_uneven(facts) && orders.first() == Some(&Order::Panels) {
        ways.sort_by_key(|copies| *copies != Copies::All);
    }
    ways
}

/// Whether iterations of a batch axis have unequally many terms.
fn is_uneven(facts: &Reduction) -> bool {
    (0..facts.axes.len()).any(|at| facts.is_uneven(at))
}

/// The facts about a program for which rules have a sketch.
pub fn recognise(program: &Program, all: &[Nest]) -> Result<Reduction, String> {
    let Some(main) = main_sum(all) else {
        return Err("no block `main` reduces into one buffer".into());
    };
    let Some(facts) = Reduction::of(program, main.block) else {
        return Err("`main` is no reduction into one buffer".into());
    };
    let (lanes, _) = lanes::choose(&facts, &[])?;
    if facts.operands.is_empty() {
        return Err("`main` has no operand".into());
    }
    window::is_readable(&facts, lanes)?;
    Ok(facts)
}

/// The main reduction with what takes its results, in the turn of all rules.
fn write(
    d: &mut Draft,
    all: &[Nest],
    target: &CpuTarget,
    variant: (Order, Copies),
) -> Written<Vec<Note>> {
    let main = main_sum(all).ok_or_else(|| d.missing("no block `main`".into()))?;
    let out = epilogue(all, main);
    let (notes, _) = contraction(d, (main, out), target, variant)?;
    let handled = [Some(main), out];
    let handled: Vec<BlockId> = handled.iter().flatten().map(|n| n.block).collect();
    others(d, all, &handled, target)?;
    Ok(notes)
}

/// Partial results, whose parts of the terms threads share, and then what adds them up.
fn write_parts(
    d: &mut Draft,
    terms: LoopId,
    target: &CpuTarget,
    variant: (Order, Copies),
) -> Written<Vec<Note>> {
    let (partial, all) = parts::cut(d, terms, target)?;
    let main = all.iter().find(|n| n.block == partial);
    let main = main.ok_or_else(|| d.missing("no partial results".into()))?;
    let (notes, terms) = contraction(d, (main, None), target, variant)?;
    // The last part has fewer terms.
    for l in terms {
        d.attempt_partition(l);
    }
    let alone = CpuTarget {
        threads: 1,
        ..target.clone()
    };
    others(d, &all, &[partial], &alone)?;
    Ok(notes)
}

/// Sums of lanes, added up where they leave the registers.
fn write_dots(d: &mut Draft, dots: Dots, target: &CpuTarget) -> Written<Vec<Note>> {
    let (partial, all) = dots::cut(d, dots)?;
    let main = all.iter().find(|n| n.block == partial);
    let main = main.ok_or_else(|| d.missing("no sums of lanes".into()))?;
    let sum = main_sum(&all);
    let sum = sum.ok_or_else(|| d.missing("nothing adds lanes up".into()))?;
    let variant = (Order::Rows, Copies::Bad);
    let (notes, terms) = contraction(d, (main, Some(sum)), target, variant)?;
    for l in terms {
        d.attempt_partition(l);
    }
    others(d, &all, &[partial, sum.block], target)?;
    Ok(notes)
}

/// The pipeline: every rule in its turn. Gives the loops over terms outside the tile.
fn contraction(
    d: &mut Draft,
    (main, out): (&Nest, Option<&Nest>),
    target: &CpuTarget,
    (order, copies): (Order, Copies),
) -> Written<(Vec<Note>, Vec<LoopId>)> {
    let facts = Reduction::of(d.program(), main.block);
    let facts = facts.ok_or_else(|| d.missing("`main` is no reduction".into()))?;
    let mut plan = Plan {
        target,
        main,
        out,
        order,
        copies,
        surrounded: Vec::new(),
        facts,
        body: 1,
        notes: Vec::new(),
    };
    let gathered = match copies {
        Copies::Gathered(gather) => Some((gather, gather::gather(d, &mut plan)?)),
        _ => None,
    };
    quotients::split(d, &mut plan)?;
    let result = leave::hold(d, &plan)?;
    let lanes: Lanes = lanes::rule(d, &mut plan)?;
    surround::copy(d, &mut plan, &lanes)?;
    let tile: Tile = tile::decide(d, &mut plan, &lanes)?;
    if let Some(width) = tile.width() {
        lanes::whole_tiles(d, &mut plan, &lanes, &tile, width)?;
    }
    let packed = pack::operands(d, &mut plan, &lanes, &tile)?;
    let loops = tile::cut(d, &mut plan, &lanes, &tile)?;
    order::reorder(d, &mut plan, &loops)?;
    let (place, shared) = threads::share(d, &mut plan, &loops)?;
    leave::registers(d, &mut plan, &lanes, &loops, (result, place))?;
    order::prefetch(d, &mut plan, &packed, &loops)?;
    copies::schedule(d, &mut plan, &lanes, &loops, (&packed, &shared))?;
    let rows = surround::schedule(d, &mut plan, &lanes, &loops, (tile.by_default(), &shared))?;
    if let Some(gathered) = gathered {
        gather::schedule(d, &plan, &loops, &shared, gathered)?;
    }
    let taps = tile::unroll_taps(d, &mut plan, &loops)?;
    d.run_parallel()?;
    for row in rows {
        d.attempt_partition(row);
    }
    borders::separate(d, &mut plan, &tile, (&loops, &shared));
    if let Some((taps, by)) = taps {
        d.attempt_unroll_copies_by(taps, by);
    }
    Ok((plan.notes, loops.terms))
}

/// What every rule did for a program, for people: `+` where it applied, `-` where it did
/// not, and why.
pub fn text(program: &Program, target: &Target) -> String {
    let Target::Cpu(target) = target;
    let all = &nests(program)[..];
    let mut out = String::new();
    let facts = match recognise(program, all) {
        Ok(facts) => facts,
        Err(why) => return format!("no rule applies: {why}\n"),
    };
    let orders = orders(&facts, target);
    let all_copies = ways(&facts, orders, target);
    if let (Some(terms), Some(copies)) = (parts::wanted(&facts, target), all_copies.first()) {
        for order in orders.iter().copied() {
            let name = format!("{}{PARTS}", name(order, *copies));
            let variant = (order, *copies);
            tell(&mut out, &name, program, |d| {
                write_parts(d, terms, target, variant)
            });
        }
    }
    if let Some(dots) = dots::wanted(&facts, target) {
        tell(&mut out, &format!("{PREFIX}rows{DOTS}"), program, |d| {
            write_dots(d, dots, target)
        });
    }
    let of = |copies: Copies| orders.iter().map(move |order| (*order, copies));
    for variant in all_copies.into_iter().flat_map(of) {
        let name = name(variant.0, variant.1);
        tell(&mut out, &name, program, |d| write(d, all, target, variant));
    }
    out
}

/// What the rules did that write one sketch.
fn tell(
    out: &mut String,
    name: &str,
    program: &Program,
    write: impl FnOnce(&mut Draft) -> Written<Vec<Note>>,
) {
    let mut d = Draft::new(name, program);
    let _ = writeln!(out, "{name}");
    match write(&mut d) {
        Ok(notes) => {
            for n in notes {
                let mark = if n.applied { "+" } else { "-" };
                let _ = writeln!(out, "  {mark} {:<10} {}", n.rule, n.what);
            }
        }
        Err(refused) => {
            let _ = writeln!(out, "  ! refused: {}", refused.why);
        }
    }
}

/// An operand that a rule laid out anew.
struct Packed {
    buffer: BufferId,
    /// The block that lays it out.
    copier: BlockId,
    /// Its position among the operands.
    operand: usize,
    /// Dimensions of the copy, and the one along which the operand is contiguous.
    dims: usize,
    along: usize,
}
