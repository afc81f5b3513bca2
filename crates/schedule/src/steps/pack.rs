//! pack{buffer, tiles, order}: change the layout of a buffer.
//!
//! `tiles` splits dimensions by a factor, the inner part standing right after
//! its dimension; `order` then permutes what results. A parameter keeps its
//! layout: a block `{buffer}.pack` copies it at the root (once, in the prepare
//! entry, if the parameter is a constant) and all its consumers read the copy,
//! padded with 0 where a factor does not divide; a consumer that takes 0 outside
//! the parameter reads the padding instead. An intermediate is changed in place;
//! its padding is never written nor read. Outputs keep their layout.

use crate::illegal::Illegal;
use crate::nest::{
    at_most_zero, child_with, conjuncts, insert_before, like, live_name, map_block, numbered_axes,
    renest, whole_domain,
};
use crate::steps::buffer_named;
use ir::affine::Ranges;
use ir::region::program_ranges;
use ir::simplify::{prove, simplify};
use ir::{BlockId, BufferId, Expr, ExprKind, Node, Program, Role, Scope, VarId};

pub(crate) const STEP: &str = "pack";

/// A factor beyond its dimension pads it; further than this it is a mistake.
const MOST_PADDING: i64 = 256;

/// A layout: the split factor of each old dimension (1: not split), and the
/// permutation of what results.
struct Layout {
    shape: Vec<i64>,
    factors: Vec<Option<i64>>,
    order: Vec<usize>,
}

/// Gives the block that copies a parameter.
pub(crate) fn apply(
    program: &mut Program,
    buffer: &str,
    tiles: &[(usize, i64)],
    order: &[usize],
) -> Result<Option<BlockId>, Illegal> {
    let b = buffer_named(program, STEP, buffer)?;
    let refuse = |why: String| Illegal::new(STEP, buffer, why);
    let layout = Layout::new(&program.buffer(b).shape, tiles, order).map_err(refuse)?;
    match program.buffer(b).role {
        Role::Output => Err(refuse("the layout of an output belongs to the task".into())),
        Role::Input | Role::Constant => {
            check_consumers(program, b).map_err(refuse)?;
            Ok(Some(copy_packed(program, b, &layout)))
        }
        Role::Intermediate => {
            check_consumers(program, b).map_err(refuse)?;
            relayout(program, b, &layout);
            Ok(None)
        }
    }
}

fn check_consumers(p: &Program, b: BufferId) -> Result<(), String> {
    let users = [p.producers(b), p.consumers(b)].concat();
    if p.consumers(b).is_empty() {
        return Err("no block reads it".into());
    }
    match users.into_iter().find(|u| p.block(*u).tensor.is_some()) {
        Some(u) => Err(format!("`{}` is tensorized", p.block(u).name)),
        None => Ok(()),
    }
}

impl Layout {
    fn new(shape: &[i64], tiles: &[(usize, i64)], order: &[usize]) -> Result<Layout, String> {
        let mut factors = vec![None; shape.len()];
        for (dim, factor) in tiles {
            let Some(slot) = factors.get_mut(*dim) else {
                return Err(format!("it has no dimension {dim}"));
            };
            let size = shape[*dim];
            if *factor < 1 || *factor > size.max(MOST_PADDING) {
                return Err(format!("{factor} does not tile dimension {dim} of {size}"));
            }
            if slot.replace(*factor).is_some() {
                return Err(format!("dimension {dim} is tiled twice"));
            }
        }
        let count = shape.len() + tiles.len();
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if sorted != (0..count).collect::<Vec<_>>() {
            return Err(format!(
                "the order is not a permutation of {count} dimensions"
            ));
        }
        Ok(Layout {
            shape: shape.to_vec(),
            factors,
            order: order.to_vec(),
        })
    }

    fn permuted<T: Clone>(&self, split: &[T]) -> Vec<T> {
        self.order.iter().map(|i| split[*i].clone()).collect()
    }

    fn packed_shape(&self) -> Vec<i64> {
        let mut split = Vec::new();
        for (n, factor) in self.shape.iter().zip(&self.factors) {
            match factor {
                None => split.push(*n),
                Some(f) => split.extend([(n + f - 1) / f, *f]),
            }
        }
        self.permuted(&split)
    }

    /// Where the element of the old layout lies.
    fn packed(&self, indices: &[Expr], r: &Ranges) -> Vec<Expr> {
        let mut split = Vec::new();
        for (i, factor) in indices.iter().zip(&self.factors) {
            match factor {
                None => split.push(i.clone()),
                Some(f) => {
                    split.push(simplify(&i.clone().floor_div(*f), r));
                    split.push(simplify(&i.clone().floor_mod(*f), r));
                }
            }
        }
        self.permuted(&split)
    }

    /// Which element of the old layout lies there.
    fn unpacked(&self, at: &[Expr]) -> Vec<Expr> {
        let mut split = vec![Expr::int(0); at.len()];
        for (to, from) in self.order.iter().zip(at) {
            split[*to] = from.clone();
        }
        let mut split = split.into_iter();
        let mut next = || split.next().expect("one per dimension");
        self.factors
            .iter()
            .map(|factor| match factor {
                None => next(),
                Some(f) => next() * *f + next(),
            })
            .collect()
    }
}

fn copy_packed(p: &mut Program, b: BufferId, layout: &Layout) -> BlockId {
    let consumers = p.consumers(b);
    let name = live_name(p, &format!("{}.pack", p.buffer(b).name));
    let copy = like(p, b, name.clone(), Scope::Global);
    p.buffer_mut(copy).shape = layout.packed_shape();
    let axes = numbered_axes(&layout.packed_shape());
    let dtype = p.buffer(b).dtype;
    let copier = map_block(p, &name, &axes, copy, |at| {
        let indices = layout.unpacked(at);
        (at.to_vec(), Expr::load(b, indices))
    });
    let mut r = program_ranges(p);
    for i in &p.block(copier).iters {
        r.set(i.var, 0, i.extent - 1);
    }
    let write = &mut p.block_mut(copier).writes[0];
    let padded = match write.value.kind() {
        ExprKind::Load(_, indices) => indices
            .iter()
            .zip(&layout.shape)
            .map(|(i, n)| i.clone().lt(*n))
            .filter(|test| !prove(test, &r))
            .reduce(Expr::and),
        _ => None,
    };
    if let Some(inside) = padded {
        write.value = Expr::select(inside, &write.value, Expr::constant(0.0, dtype));
    }
    let (_, first) = child_with(p, None, Node::Block(consumers[0])).expect("in the body");
    for c in consumers {
        read_padding(p, c, b, layout);
        rewrite(p, c, b, copy, layout);
    }
    let spans = whole_domain(p.block(copier));
    let nest = renest(p, copier, &spans, &[]);
    insert_before(p, None, first, nest);
    copier
}

/// Drops from guards with the alternative 0 the tests that an index is below its
/// dimension, where the copy has elements, which are 0, as far as it goes. A test
/// of reduction variables alone stays: what it leaves out need not be computed.
fn read_padding(p: &mut Program, user: BlockId, b: BufferId, layout: &Layout) {
    let mut r = program_ranges(p);
    for i in &p.block(user).iters {
        r.set(i.var, 0, i.extent - 1);
    }
    let spatial: Vec<VarId> = p.block(user).spatial_iters().map(|i| i.var).collect();
    let sizes: Vec<(i64, i64)> = layout
        .shape
        .iter()
        .zip(&layout.factors)
        .map(|(n, f)| (*n, f.map_or(*n, |f| (n + f - 1) / f * f)))
        .collect();
    p.block_mut(user).map_statement(|e| {
        e.rewrite(&mut |e| {
            let ExprKind::Select(test, value, other) = e.kind() else {
                return None;
            };
            let ExprKind::Load(loaded, indices) = value.kind() else {
                return None;
            };
            let zero = other.as_float().map(f64::to_bits) == Some(0) || other.as_int() == Some(0);
            if *loaded != b || !zero {
                return None;
            }
            let padded: Vec<Expr> = indices
                .iter()
                .zip(&sizes)
                .filter(|(i, (_, held))| prove(&(*i).clone().lt(*held), &r))
                .filter_map(|(i, (n, _))| at_most_zero(&fixed(&i.clone().lt(*n), &r), &r))
                .collect();
            let needed = |t: &&Expr| {
                !spatial.iter().any(|v| t.uses_var(*v))
                    || at_most_zero(&fixed(t, &r), &r).is_none_or(|t| !padded.contains(&t))
            };
            let left = conjuncts(Some(test)).into_iter().filter(needed).cloned();
            Some(match left.reduce(Expr::and) {
                Some(test) => Expr::select(test, value, other),
                None => value.clone(),
            })
        })
    });
}

/// With numbers for variables that have one value, such as the tap of a 1x1 convolution.
fn fixed(e: &Expr, r: &Ranges) -> Expr {
    e.rewrite(&mut |e| {
        let value = r.get(e.as_var()?)?;
        (value.lo == value.hi).then(|| Expr::int(value.lo))
    })
}

fn relayout(p: &mut Program, b: BufferId, layout: &Layout) {
    for user in p.block_ids() {
        rewrite(p, user, b, b, layout);
    }
    p.buffer_mut(b).shape = layout.packed_shape();
}

/// Puts packed accesses to `to` for a block's accesses to `from`.
fn rewrite(p: &mut Program, user: BlockId, from: BufferId, to: BufferId, layout: &Layout) {
    let r = program_ranges(p);
    crate::nest::rewrite_loads(p, user, from, &mut |indices| {
        Expr::load(to, layout.packed(indices, &r))
    });
    for w in &mut p.block_mut(user).writes {
        if w.buffer == from {
            w.buffer = to;
            w.indices = layout.packed(&w.indices, &r);
        }
    }
}
