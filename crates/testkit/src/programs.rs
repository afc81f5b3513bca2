//! Random tensor programs, as `ir::ProgramBuilder` makes them: nothing is
//! scheduled yet. They keep every promise of the verifier, and on
//! `random_args` all their arithmetic is exact in f32 (whole numbers up to
//! 2^22), so that any legal order of evaluation gives equal numbers; only
//! zeros may differ in their sign.

mod linear;
mod movement;
mod pointwise;
mod reductions;
mod windows;

use crate::args::SMALL;
use ir::{BufferId, DType, Expr, Program, ProgramBuilder, Reducer};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::ops::RangeInclusive;

/// What a block of a random program computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Arithmetic on tensors of one shape.
    Elementwise,
    /// A tensor with one of lower rank or with extents of 1.
    Broadcast,
    /// One map block with two outputs.
    TwoMaps,
    /// Element types to each other.
    Convert,
    /// Sum, product, min or max over some axes.
    Reduce,
    /// Position and value of an extreme: a tuple reducer.
    ArgReduce,
    /// Two sums at once: a tuple reducer.
    TwoSums,
    /// Prefix sums, by a guard on the reduce variable.
    Scan,
    MatMul,
    /// Matrix product of bytes whose right operand is packed for dot products.
    Bytes,
    /// Windows with padding, strides and dilation, over channels or for each.
    Conv,
    /// Max or sum over windows.
    Pool,
    Transpose,
    /// Two tensors in one, by a select.
    Concat,
    /// Axes joined, split or rolled: floor division and remainders in indices.
    Reshape,
    /// Part of a tensor, strided or backwards.
    Slice,
    /// Rows chosen by data.
    Gather,
}

type Builder = fn(&mut Generator, &str);

const BUILDERS: [(Kind, &str, Builder); 17] = [
    (Kind::Elementwise, "ew", pointwise::elementwise),
    (Kind::Broadcast, "bcast", pointwise::broadcast),
    (Kind::TwoMaps, "maps", pointwise::two_maps),
    (Kind::Convert, "cast", pointwise::convert),
    (Kind::Reduce, "red", reductions::reduce),
    (Kind::ArgReduce, "arg", reductions::arg_reduce),
    (Kind::TwoSums, "sums", reductions::two_sums),
    (Kind::Scan, "scan", reductions::scan),
    (Kind::MatMul, "mm", linear::matmul),
    (Kind::Bytes, "dot", linear::bytes),
    (Kind::Conv, "conv", windows::conv),
    (Kind::Pool, "pool", windows::pool),
    (Kind::Transpose, "perm", movement::transpose),
    (Kind::Concat, "cat", movement::concat),
    (Kind::Reshape, "shape", movement::reshape),
    (Kind::Slice, "slice", movement::slice),
    (Kind::Gather, "take", movement::gather),
];

impl Kind {
    pub const ALL: [Kind; 17] = {
        let mut kinds = [Kind::Elementwise; 17];
        let mut i = 0;
        while i < BUILDERS.len() {
            kinds[i] = BUILDERS[i].0;
            i += 1;
        }
        kinds
    };
}

/// What random programs are drawn from.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Number of blocks.
    pub blocks: RangeInclusive<usize>,
    /// Kinds of blocks, equally likely.
    pub kinds: Vec<Kind>,
    /// Whether parameters may be i32, i8 and u8 beside f32.
    pub integers: bool,
    /// Most points of a block's iteration domain; bounds the time of a run.
    pub max_points: i64,
}

impl Distribution {
    /// Everything, at sizes that the interpreter runs in milliseconds.
    pub fn all() -> Distribution {
        Distribution {
            blocks: 1..=4,
            kinds: Kind::ALL.to_vec(),
            integers: true,
            max_points: 20_000,
        }
    }

    /// As `all`, with blocks of these kinds only.
    pub fn only(kinds: &[Kind]) -> Distribution {
        Distribution {
            kinds: kinds.to_vec(),
            ..Distribution::all()
        }
    }
}

/// A random program, the same for the same seed and options.
///
/// # Panics
/// If `options` allow no block or no kind.
pub fn random_program(seed: u64, options: &Distribution) -> Program {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let blocks = rng.random_range(options.blocks.clone());
    let awkward = rng.random_bool(0.6);
    let mut g = Generator {
        rng,
        builder: ProgramBuilder::new(format!("random.{seed}")),
        tensors: vec![],
        options: options.clone(),
        awkward,
        params: 0,
    };
    for i in 0..blocks {
        let kind = *g
            .options
            .kinds
            .choose(&mut g.rng)
            .expect("some kinds are allowed");
        let (_, prefix, build) = BUILDERS
            .iter()
            .find(|b| b.0 == kind)
            .expect("every kind is built");
        build(&mut g, &format!("{prefix}{i}"));
    }
    g.finish()
}

/// A tensor that a block may read.
#[derive(Clone, Debug)]
struct Source {
    id: BufferId,
    dtype: DType,
    shape: Vec<i64>,
    /// No element is larger in magnitude.
    bound: i64,
    /// Elements are positions below this.
    index_below: Option<i64>,
    computed: bool,
}

/// An expression, and a bound of its magnitude.
type Bounded = (Expr, i64);

/// Extents that 2, 4 and 8 divide, or that are smaller; and others.
const EVEN: [i64; 7] = [1, 2, 4, 8, 12, 16, 24];
const AWKWARD: [i64; 10] = [3, 5, 7, 9, 10, 11, 13, 17, 19, 23];
const MAX_ELEMENTS: i64 = 1500;
/// Whole numbers up to here add and subtract exactly in f32, with room to spare.
const MAX_VALUE: i64 = 1 << 22;

const SPATIAL_NAMES: [&str; 6] = ["i", "j", "k", "l", "m", "n"];
const REDUCE_NAMES: [&str; 6] = ["u", "v", "w", "p", "q", "r"];

struct Generator {
    rng: Pcg64Mcg,
    builder: ProgramBuilder,
    tensors: Vec<Source>,
    options: Distribution,
    /// Some extents do not divide.
    awkward: bool,
    params: usize,
}

impl Generator {
    fn extent(&mut self) -> i64 {
        let list: &[i64] = if self.awkward && self.rng.random_bool(0.5) {
            &AWKWARD
        } else {
            &EVEN
        };
        *list.choose(&mut self.rng).expect("the list is not empty")
    }

    fn shape(&mut self, rank: usize) -> Vec<i64> {
        let mut shape: Vec<i64> = (0..rank).map(|_| self.extent()).collect();
        if self.awkward && self.tensors.is_empty() && rank > 0 {
            let d = self.rng.random_range(0..rank);
            shape[d] = *AWKWARD
                .choose(&mut self.rng)
                .expect("the list is not empty");
        }
        let most = MAX_ELEMENTS.min(self.options.max_points.max(1));
        while shape.iter().product::<i64>() > most {
            let d = (0..rank)
                .max_by_key(|d| shape[*d])
                .expect("the rank is not 0");
            shape[d] /= 2;
        }
        shape
    }

    /// A type of arithmetic.
    fn dtype(&mut self) -> DType {
        match self.options.integers && self.rng.random_bool(0.2) {
            true => DType::I32,
            false => DType::F32,
        }
    }

    /// A new parameter for arithmetic in `dtype`; narrower integers in memory are converted.
    fn param(&mut self, dtype: DType, shape: &[i64]) -> Source {
        let stored = match dtype {
            DType::I32 => *[DType::I32, DType::I8, DType::U8]
                .choose(&mut self.rng)
                .expect("a type"),
            d => d,
        };
        self.stored(stored, shape)
    }

    /// A new parameter of that type in memory.
    fn stored(&mut self, stored: DType, shape: &[i64]) -> Source {
        let i = self.params;
        self.params += 1;
        // The first is an input, so that not all is known when the model is compiled.
        let id = match i > 0 && self.rng.random_bool(0.5) {
            true => self.builder.constant(&format!("w{i}"), stored, shape),
            false => self.builder.input(&format!("x{i}"), stored, shape),
        };
        let source = Source {
            id,
            dtype: stored,
            shape: shape.to_vec(),
            bound: SMALL,
            index_below: None,
            computed: false,
        };
        self.tensors.push(source.clone());
        source
    }

    /// A tensor of one of these ranks: mostly the latest computed, else any, else a new parameter.
    fn operand(&mut self, ranks: RangeInclusive<usize>) -> Source {
        let fits = |s: &&Source| ranks.contains(&s.shape.len());
        let computed = self.tensors.iter().rev().find(|s| s.computed && fits(s));
        if let Some(s) = computed
            && self.rng.random_bool(0.75)
        {
            return s.clone();
        }
        let all: Vec<&Source> = self.tensors.iter().filter(fits).collect();
        if self.rng.random_bool(0.5)
            && let Some(s) = all.choose(&mut self.rng)
        {
            return (*s).clone();
        }
        let rank = self.rng.random_range(ranks);
        let (dtype, shape) = (self.dtype(), self.shape(rank));
        self.param(dtype, &shape)
    }

    fn fits(&self, points: i64) -> bool {
        points <= self.options.max_points
    }

    /// Another tensor of that shape, or a new parameter.
    fn operand_shaped(&mut self, shape: &[i64], dtype: DType) -> Source {
        let known = self
            .tensors
            .iter()
            .rev()
            .find(|s| s.shape == shape)
            .cloned();
        match known {
            Some(s) if self.rng.random_bool(0.5) => s,
            _ => self.param(dtype, shape),
        }
    }

    /// Adds a block; `f` gives the values and their bounds over the spatial
    /// and the reduce variables. Sums may not leave the exact range.
    fn block(
        &mut self,
        name: &str,
        axes: &[i64],
        reduce: &[i64],
        reducer: Option<Reducer>,
        f: impl FnOnce(&mut Pcg64Mcg, &[Expr], &[Expr]) -> Vec<Bounded>,
    ) -> Vec<BufferId> {
        let points: i64 = reduce.iter().product();
        let sums = match &reducer {
            Some(Reducer::Sum) => true,
            Some(Reducer::Tuple { combine, .. }) => !combine
                .iter()
                .any(|e| matches!(e.kind(), ir::ExprKind::Select(..))),
            _ => false,
        };
        let named = |names: [&'static str; 6], extents: &[i64]| -> Vec<(&'static str, i64)> {
            names.into_iter().zip(extents.iter().copied()).collect()
        };
        let mut bounds = Vec::new();
        let rng = &mut self.rng;
        let outputs = self.builder.block(
            name,
            &named(SPATIAL_NAMES, axes),
            &named(REDUCE_NAMES, reduce),
            reducer,
            |s, r| {
                let values = f(rng, s, r);
                let (values, found): (Vec<Expr>, Vec<i64>) = values.into_iter().unzip();
                bounds = found;
                values
            },
        );
        for (id, bound) in outputs.iter().zip(bounds) {
            let bound = if sums { bound * points } else { bound };
            assert!(bound <= MAX_VALUE, "{name}: {bound} is not exact");
            self.tensors.push(Source {
                id: *id,
                dtype: self.builder.program().buffer(*id).dtype,
                shape: axes.to_vec(),
                bound,
                index_below: None,
                computed: true,
            });
        }
        outputs
    }

    /// A map block with one output.
    fn map(&mut self, name: &str, axes: &[i64], f: impl FnOnce(&mut Pcg64Mcg, &[Expr]) -> Bounded) {
        self.block(name, axes, &[], None, |rng, s, _| vec![f(rng, s)]);
    }

    /// Makes what nothing reads an output, and some of what is read.
    fn finish(mut self) -> Program {
        let program = self.builder.program();
        let read = |id: BufferId| !program.consumers(id).is_empty();
        let computed = self.tensors.iter().filter(|s| s.computed);
        let mut outputs = Vec::new();
        for s in computed {
            if !read(s.id) || self.rng.random_bool(0.15) {
                outputs.push(s.id);
            }
        }
        outputs.shuffle(&mut self.rng);
        self.builder.finish(&outputs)
    }
}

impl Source {
    /// The type in which blocks compute with the elements.
    fn arithmetic(&self) -> DType {
        match self.dtype {
            DType::I8 | DType::U8 | DType::I32 => DType::I32,
            _ => DType::F32,
        }
    }

    /// One element, as a value of `dtype`.
    fn load_as(&self, dtype: DType, indices: impl Into<Vec<Expr>>) -> Bounded {
        let e = Expr::load(self.id, indices);
        let e = if self.dtype == dtype {
            e
        } else {
            e.cast(dtype)
        };
        (e, self.bound)
    }

    fn load(&self, indices: impl Into<Vec<Expr>>) -> Bounded {
        self.load_as(self.arithmetic(), indices)
    }
}

/// The value, clamped if it may be larger than `limit`.
fn tame((e, bound): Bounded, limit: i64, dtype: DType) -> Bounded {
    if bound <= limit {
        return (e, bound);
    }
    let c = |v: i64| Expr::constant(v as f64, dtype);
    (e.min(c(limit)).max(c(-limit)), limit)
}

/// The product, of factors tame enough for a sum of `terms` of them.
fn product(a: Bounded, b: Bounded, terms: i64, dtype: DType) -> Bounded {
    let limit = ((MAX_VALUE / terms.max(1)) as f64).sqrt() as i64;
    let (a, b) = (tame(a, limit, dtype), tame(b, limit, dtype));
    (a.0 * b.0, a.1 * b.1)
}

/// `0 <= e < extent`.
fn inside(e: &Expr, extent: i64) -> Expr {
    Expr::int(0).le(e.clone()).and(e.clone().lt(extent))
}
