//! Short traces towards vector code: an instruction for a sum of products, and
//! lanes that a loop's tail leaves idle. Both are rare among random traces,
//! because several steps must fit each other.
//!
//! Like those, a step that is refused ends its sequence; what was accepted
//! stays. Loops are taken by name, so the traces continue each other.

use ir::{BlockId, DType, Expr, LoopId, LoopKind, Node, Program};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use schedule::{Arg, Factor, Step, Trace};

/// Steps that bring a block to an instruction: at most 4.
pub fn instruction_trace(program: &Program, seed: u64) -> (Trace, Program) {
    let mut made = Made::of(program, seed);
    let _ended: Option<()> = made.instruction();
    (made.trace, made.p)
}

/// Steps that vectorize a loop with a tail: at most 3.
pub fn tail_trace(program: &Program, seed: u64) -> (Trace, Program) {
    let mut made = Made::of(program, seed);
    let _ended: Option<()> = made.tail();
    (made.trace, made.p)
}

struct Made {
    rng: Pcg64Mcg,
    p: Program,
    trace: Trace,
}

impl Made {
    fn of(program: &Program, seed: u64) -> Made {
        Made {
            rng: Pcg64Mcg::seed_from_u64(seed),
            p: program.clone(),
            trace: Trace::default(),
        }
    }

    /// `None` if the step was refused.
    fn step(&mut self, step: Step) -> Option<()> {
        step.apply(&mut self.p, &self.trace.decisions).ok()?;
        self.trace.steps.push(step);
        Some(())
    }

    /// Splits `lanes` iterations off and puts them innermost.
    fn lanes_inside(&mut self, l: LoopId, lanes: i64) -> Option<LoopId> {
        let mut name = self.p.loop_(l).name.clone();
        if self.p.loop_(l).extent != lanes {
            self.step(Step::Split {
                loop_: name.clone(),
                factors: vec![Factor::Rest, Factor::Arg(Arg::Lit(lanes))],
            })?;
            name.push_str(".1");
        }
        let l = self.p.loop_named(&name)?;
        let inside = inner_chain(&self.p, l);
        if !inside.is_empty() {
            let names = inside.iter().map(|l| self.p.loop_(*l).name.clone());
            let loops = names.chain([name]).collect();
            self.step(Step::Reorder { loops })?;
        }
        Some(l)
    }

    fn instruction(&mut self) -> Option<()> {
        let lanes: i64 = [4, 8, 16].choose(&mut self.rng).copied()?;
        let fits = |p: &Program, l: &LoopId| p.loop_(*l).extent % lanes == 0;
        let mut places: Vec<(BlockId, LoopId)> = Vec::new();
        for b in self.p.block_ids() {
            let block = self.p.block(b);
            let products = block.is_reduction()
                && block.loads().len() == 2
                && self.p.buffer(block.writes[0].buffer).dtype == DType::F32;
            let loops = contiguous(&self.p, b);
            let own = loops.into_iter().filter(|l| products && fits(&self.p, l));
            places.extend(own.map(|l| (b, l)));
        }
        let (b, l) = *places.choose(&mut self.rng)?;
        let l = self.lanes_inside(l, lanes)?;
        if self.rng.random_bool(0.5) {
            let path = self.p.path_to(Node::Block(b))?;
            let reduces = |l: &&LoopId| {
                let var = self.p.loop_(**l).var;
                let mut terms = self.p.block(b).reduce_iters();
                terms.any(|i| i.binding.uses_var(var))
            };
            if let Some(outermost) = path.iter().find(reduces) {
                let block = self.p.block(b).name.clone();
                let loop_ = self.p.loop_(*outermost).name.clone();
                let _either_way: Option<()> = self.step(Step::DecomposeReduction { block, loop_ });
            }
        }
        let loop_ = self.p.loop_(l).name.clone();
        let intrinsic = format!("fma.f32x{lanes}");
        self.step(Step::Tensorize { loop_, intrinsic })
    }

    fn tail(&mut self) -> Option<()> {
        let mut places: Vec<LoopId> = Vec::new();
        for b in self.p.block_ids() {
            let single = |l: &LoopId| self.p.blocks_under(&[Node::Loop(*l)]).len() == 1;
            places.extend(contiguous(&self.p, b).into_iter().filter(single));
        }
        let l = *places.choose(&mut self.rng)?;
        let extent = self.p.loop_(l).extent;
        let mut widths = vec![2, 4, 8, 16];
        widths.retain(|w| extent % w != 0 && extent > 1);
        let lanes = *widths.choose(&mut self.rng)?;
        let l = self.lanes_inside(l, lanes)?;
        let loop_ = self.p.loop_(l).name.clone();
        self.step(Step::Vectorize { loop_ })
    }
}

/// The loops inside `l` down to the innermost, if each is the only child.
fn inner_chain(p: &Program, l: LoopId) -> Vec<LoopId> {
    let mut loops = Vec::new();
    let mut at = l;
    while let [Node::Loop(next)] = p.children(Some(at)) {
        loops.push(*next);
        at = *next;
    }
    loops
}

/// The serial loops that the last index of a block's first write depends on.
fn contiguous(p: &Program, b: BlockId) -> Vec<LoopId> {
    let block = p.block(b);
    let last = block.writes[0].indices.last();
    let vars = last.map_or(vec![], Expr::vars);
    let mut loops = p.path_to(Node::Block(b)).unwrap_or_default();
    loops.retain(|l| {
        let var = p.loop_(*l).var;
        let mut fed = block.iters.iter().filter(|i| i.binding.uses_var(var));
        fed.any(|i| vars.contains(&i.var)) && p.loop_(*l).kind == LoopKind::Serial
    });
    loops
}
