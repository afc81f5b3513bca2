//! Programs in text that between them use everything a program can hold, and
//! a comparison of programs that does not go through the text form.

// Each test binary uses a part of this module.
#![allow(dead_code)]

use ir::{BufferId, Expr, ExprKind, LoopId, Node, Program, Reducer, VarId};
use std::collections::HashMap;

pub const CONV: &str = "\
program conv {
  input X: f32[1, 64, 56, 56] strides [200704, 3136, 56, 1] offset 128
  constant W: f32[64, 64, 3, 3]
  constant B: f32[64]
  output relu: f32[1, 64, 54, 54]
  intermediate conv: f32[1, 64, 54, 54] local
  for relu.n&k in 0..64 parallel {
    for relu.y.0 in 0..14 unroll_by 2 prefetch X 4 {
      for conv.y in 0..4 {
        for conv.x in 0..54 {
          for conv.c in 0..64 {
            for conv.r in 0..3 unrolled {
              for conv.s in 0..3 {
                block conv [n: spatial 1 = 0, k: spatial 64 = relu.n&k, \
y: spatial 54 = relu.y.0 * 4 + conv.y, x: spatial 54 = conv.x, c: reduce 64 = conv.c, \
r: reduce 3 = conv.r, s: reduce 3 = conv.s] where (relu.y.0 * 4 + conv.y < 54) {
                  conv[n, k, y, x] sum init = X[n, c, y + r, x + s] * W[k, c, r, s]
                }
              }
            }
          }
        }
      }
      for relu.y.1 in 0..4 {
        for relu.x in 0..54 vectorized {
          block relu [n: spatial 1 = relu.n&k // 64, k: spatial 64 = relu.n&k % 64, \
y: spatial 54 = relu.y.0 * 4 + relu.y.1, x: spatial 54 = relu.x] \
where (relu.y.0 * 4 + relu.y.1 < 54) {
            relu[n, k, y, x] = max(conv[n, k, y, x] + B[k], 0.0)
          }
        }
      }
    }
  }
}
";

pub const ARGMAX: &str = "\
program \"argmax of/rows\" {
  input X: f32[5, 7]
  output best: f32[5]
  output best.1: i64[5]
  for best.i~lo in 0..5 {
    for best.k in 0..7 {
      block best [i: spatial 5 = best.i~lo, k: reduce 7 = best.k] {
        best[i] tuple init = X[i, k]
        best.1[i] tuple init = k
        combine select($0 < $2, $2, $0) from -inf
        combine select($0 < $2 or $0 == $2 and $3 < $1, $3, $1) from 9223372036854775807
      }
    }
  }
}
";

pub const DOT: &str = "\
program dot {
  input A: u8[16, 64]
  constant B: i8[16, 64]
  output C: i32[]
  output D: i32[16]
  intermediate C.init: i32[] register
  block C.init [] {
    C.init[] = -1_i32
  }
  block C [] {
    C[] = C.init[]
  }
  for D.init.i in 0..16 vectorized {
    block D.init [i: spatial 16 = D.init.i] {
      D[i] = 0_i32
    }
  }
  for D.k.0 in 0..16 {
    block D [k: reduce 16 = D.k.0] tensor dot4.u8i8i32 [i: spatial 16, j: reduce 4] {
      D[i] sum = i32(A[i, k * 4 + j]) * i32(B[i, k * 4 + j])
    }
  }
}
";

pub const GPU: &str = "\
program gpu {
  input X: f16[64, 32]
  input I: i64[64]
  output Y: f16[64, 32]
  output Z: bool[64, 32]
  intermediate S: f16[64, 32] shared
  intermediate R: f16[64, 32] warp
  for Y.i in 0..64 bound block.x {
    for S.j in 0..32 bound thread.x {
      block S [i: spatial 64 = Y.i, j: spatial 32 = S.j] {
        S[i, j] = X[I[i], j] * 0.1_f16
      }
    }
    for Y.j in 0..32 bound thread.y {
      block R [i: spatial 64 = Y.i, j: spatial 32 = Y.j] {
        R[i, j] = S[i, 31 - j]
      }
      block Y [i: spatial 64 = Y.i, j: spatial 32 = Y.j] {
        Y[i, j] = -R[i, j] - (S[i, j] - 2.0_f16) / -(1.0_f16)
        Z[i, j] = not(S[i, j] <= nan_f16) and (true or 1_i32 != 2_i32)
      }
    }
  }
}
";

/// Texts in the printer's own layout.
/// A sum up to each row, and updates at places that the data give.
pub const ORDERED: &str = "\
program ordered {
  input X: f32[5, 8]
  input I: i64[7]
  output S: f32[5, 8]
  output U: f32[5, 8]
  for S.first.j in 0..8 vectorized {
    block S.first [j: spatial 8 = S.first.j] {
      S[0, j] = X[0, j]
    }
  }
  for S.j in 0..8 parallel {
    for S.i in 0..4 {
      block S [j: spatial 8 = S.j, i: ordered 4 = S.i] {
        S[i + 1, j] = S[i, j] + X[i + 1, j]
      }
    }
  }
  for U.copy.i in 0..5 {
    for U.copy.j in 0..8 {
      block U.copy [i: spatial 5 = U.copy.i, j: spatial 8 = U.copy.j] {
        U[i, j] = X[i, j]
      }
    }
  }
  for U.k in 0..7 {
    for U.l in 0..1 {
      for U.j in 0..8 {
        block U [k: ordered 7 = U.k, l: ordered 1 = U.l, j: spatial 8 = U.j] {
          U[I[k] + l, j] = U[I[k] + l, j] + 1.0
        }
      }
    }
  }
}
";

pub const TEXTS: [&str; 5] = [CONV, ARGMAX, DOT, GPU, ORDERED];

/// Whether two programs are equal up to the numbering of the arenas; says
/// what differs first.
pub fn same(a: &Program, b: &Program) -> Result<(), String> {
    let mut pairs = Pairs {
        a,
        b,
        buffers: HashMap::new(),
        vars: HashMap::new(),
    };
    pairs.equal("name", &a.name, &b.name)?;
    pairs.equal("parameters", a.params.len(), b.params.len())?;
    for (x, y) in a.params.iter().zip(&b.params) {
        pairs.buffer(*x, *y)?;
    }
    pairs.nodes(&a.body, &b.body)
}

struct Pairs<'a> {
    a: &'a Program,
    b: &'a Program,
    buffers: HashMap<BufferId, BufferId>,
    vars: HashMap<VarId, VarId>,
}

impl Pairs<'_> {
    fn equal<T: PartialEq + std::fmt::Debug>(&self, what: &str, x: T, y: T) -> Result<(), String> {
        match x == y {
            true => Ok(()),
            false => Err(format!("{what}: {x:?} against {y:?}")),
        }
    }

    fn buffer(&mut self, x: BufferId, y: BufferId) -> Result<(), String> {
        self.equal("buffer", self.a.buffer(x), self.b.buffer(y))?;
        let known = *self.buffers.entry(x).or_insert(y);
        self.equal("buffer id", known, y)
    }

    fn var(&mut self, x: VarId, y: VarId) -> Result<(), String> {
        self.equal("variable", self.a.var(x), self.b.var(y))?;
        self.vars.insert(x, y);
        Ok(())
    }

    fn nodes(&mut self, x: &[Node], y: &[Node]) -> Result<(), String> {
        self.equal("number of nodes", x.len(), y.len())?;
        for pair in x.iter().zip(y) {
            match pair {
                (Node::Loop(x), Node::Loop(y)) => self.loops(*x, *y)?,
                (Node::Block(x), Node::Block(y)) => self.blocks(*x, *y)?,
                (x, y) => return Err(format!("node {x:?} against {y:?}")),
            }
        }
        Ok(())
    }

    fn loops(&mut self, x: LoopId, y: LoopId) -> Result<(), String> {
        let (x, y) = (self.a.loop_(x), self.b.loop_(y));
        self.equal("loop name", &x.name, &y.name)?;
        self.equal("loop", (x.extent, x.kind), (y.extent, y.kind))?;
        self.equal("annotations", x.annotations.len(), y.annotations.len())?;
        for pair in x.annotations.iter().zip(&y.annotations) {
            use ir::Annotation::Prefetch;
            match pair {
                (
                    Prefetch {
                        buffer: b,
                        distance: d,
                    },
                    Prefetch { buffer, distance },
                ) => {
                    self.buffer(*b, *buffer)?;
                    self.equal("prefetch", d, distance)?;
                }
                (x, y) => self.equal("annotation", x, y)?,
            }
        }
        self.var(x.var, y.var)?;
        self.nodes(&x.body, &y.body)
    }

    fn blocks(&mut self, x: ir::BlockId, y: ir::BlockId) -> Result<(), String> {
        let (x, y) = (self.a.block(x), self.b.block(y));
        self.equal("block", &x.name, &y.name)?;
        self.equal("iters", x.iters.len(), y.iters.len())?;
        for (i, j) in x.iters.iter().zip(&y.iters) {
            self.equal("iter", (i.kind, i.extent), (j.kind, j.extent))?;
            self.expr(&i.binding, &j.binding)?;
            self.var(i.var, j.var)?;
        }
        self.optional(x.predicate.as_ref(), y.predicate.as_ref())?;
        let points = |t: &ir::TensorOp| (t.intrinsic.clone(), t.iters.len());
        self.equal(
            "tensor",
            x.tensor.as_ref().map(points),
            y.tensor.as_ref().map(points),
        )?;
        let pairs = x.tensor.iter().flat_map(|t| &t.iters);
        for (i, j) in pairs.zip(y.tensor.iter().flat_map(|t| &t.iters)) {
            self.equal("tensor iter", (i.1, i.2), (j.1, j.2))?;
            self.var(i.0, j.0)?;
        }
        self.equal("writes", x.writes.len(), y.writes.len())?;
        for (v, w) in x.writes.iter().zip(&y.writes) {
            self.buffer(v.buffer, w.buffer)?;
            self.exprs(&v.indices, &w.indices)?;
            self.expr(&v.value, &w.value)?;
        }
        match (&x.reduction, &y.reduction) {
            (Some(r), Some(s)) => {
                self.equal("init", r.init, s.init)?;
                match (&r.reducer, &s.reducer) {
                    (
                        Reducer::Tuple {
                            combine: c,
                            identity: i,
                        },
                        Reducer::Tuple { combine, identity },
                    ) => {
                        self.exprs(c, combine)?;
                        self.exprs(i, identity)
                    }
                    (r, s) => self.equal("reducer", r, s),
                }
            }
            (r, s) => self.equal("reduction", r.is_none(), s.is_none()),
        }
    }

    fn optional(&mut self, x: Option<&Expr>, y: Option<&Expr>) -> Result<(), String> {
        match (x, y) {
            (Some(x), Some(y)) => self.expr(x, y),
            (x, y) => self.equal("predicate", x, y),
        }
    }

    fn exprs(&mut self, x: &[Expr], y: &[Expr]) -> Result<(), String> {
        self.equal("expressions", x.len(), y.len())?;
        x.iter().zip(y).try_for_each(|(x, y)| self.expr(x, y))
    }

    fn expr(&mut self, x: &Expr, y: &Expr) -> Result<(), String> {
        let of = |e: &'_ Expr| -> Vec<Expr> { e.children().cloned().collect() };
        let (children, others) = (of(x), of(y));
        match (x.kind(), y.kind()) {
            (ExprKind::Var(v), ExprKind::Var(w)) => self.equal("var", self.vars.get(v), Some(w))?,
            (ExprKind::Load(b, _), ExprKind::Load(c, _)) => self.buffer(*b, *c)?,
            (ExprKind::Unary(o, _), ExprKind::Unary(p, _)) => self.equal("operator", o, p)?,
            (ExprKind::Binary(o, ..), ExprKind::Binary(p, ..)) => self.equal("operator", o, p)?,
            (ExprKind::Cast(d, _), ExprKind::Cast(e, _)) => self.equal("cast", d, e)?,
            (ExprKind::Select(..), ExprKind::Select(..)) => {}
            (x, y) => {
                let leaf = children.is_empty() && others.is_empty();
                if !leaf || x != y {
                    return Err(format!("expressions {} differ", describe(x, y)));
                }
            }
        }
        self.equal("operands", children.len(), others.len())?;
        for (x, y) in children.iter().zip(&others) {
            self.expr(x, y)?;
        }
        Ok(())
    }
}

fn describe(x: &ExprKind, y: &ExprKind) -> String {
    format!(
        "{:?} and {:?}",
        Expr::from(x.clone()),
        Expr::from(y.clone())
    )
}
