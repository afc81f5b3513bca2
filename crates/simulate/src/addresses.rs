//! The addresses that a kernel touches, in order, without its arithmetic.
//!
//! Flat code is compiled to loops, conditions and accesses whose offsets are sums of multiples of loop
//! variables wherever that is so. Which accesses are made at all, and how often, is told by the machine code
//! (see [`crate::own`]): a load that the code generator moved out of a loop is made once a run of that loop.

mod sampling;

pub use sampling::EVENTS;

use crate::cache::{Access, Caches, LINE};
use ir::affine::Affine;
use ir::{BinaryOp, Expr, ExprKind, UnaryOp, VarId};
use lower::flat::{AccessId, BufferPlace, Code, FlatLoopId, Lane, LaneOffsets, Stmt, Store};
use std::collections::{BTreeSet, HashMap};
use std::fmt;

/// Bytes of a page: buffers begin on pages.
const PAGE: u64 = 4096;

/// Why the addresses of a kernel are not known without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DependsOnData {
    /// The buffer whose elements decide addresses or conditions.
    pub buffer: String,
}

impl fmt::Display for DependsOnData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "which addresses are accessed depends on what is in `{}`",
            self.buffer
        )
    }
}

impl std::error::Error for DependsOnData {}

/// How the machine code makes an access of flat code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Instructions that access memory, each time that the access is made.
    pub instructions: u32,
    /// Loops around it, from the innermost, in whose first iteration alone it is made.
    pub hoisted: u32,
}

/// A kernel's addresses as a program.
#[derive(Debug)]
pub struct Addresses {
    variables: usize,
    /// Lines of the buffers that are accessed.
    lines: u64,
    nodes: Vec<Node>,
}

#[derive(Debug)]
enum Node {
    Loop {
        var: usize,
        extent: i64,
        body: Vec<Node>,
        /// Whether the body has accesses at linear offsets only, at every iteration.
        straight: bool,
    },
    If {
        cond: Value,
        then: Vec<Node>,
        otherwise: Vec<Node>,
    },
    Touch(Touch),
}

#[derive(Debug)]
struct Touch {
    at: Offset,
    lanes: Lanes,
    access: Access,
    /// Variables that are 0 whenever the access is made.
    only_at_first: Vec<usize>,
}

/// A byte address.
#[derive(Debug)]
enum Offset {
    Linear {
        constant: i64,
        terms: Vec<(usize, i64)>,
    },
    /// A base and a number of elements of so many bytes.
    Computed {
        base: i64,
        elements: Value,
        bytes: i64,
    },
}

#[derive(Debug)]
enum Lanes {
    /// Bytes next to each other, by so many instructions.
    Together { bytes: u64, instructions: u64 },
    /// Elements of so many bytes at these distances in bytes, an instruction each.
    Apart { distances: Vec<i64>, bytes: u64 },
    /// Elements of so many bytes whose offsets, and whether they are accessed, depend on the lane.
    Each {
        var: usize,
        lanes: i64,
        mask: Option<Value>,
        bytes: u64,
    },
}

/// An integer or a truth value (0 or 1) that variables decide.
#[derive(Debug)]
enum Value {
    Constant(i64),
    Variable(usize),
    Unary(UnaryOp, Box<Value>),
    Binary(BinaryOp, Box<[Value; 2]>),
    Select(Box<[Value; 3]>),
}

impl Value {
    fn of(e: &Expr, code: &Code) -> Result<Value, DependsOnData> {
        let sub = |e: &Expr| Value::of(e, code);
        Ok(match e.kind() {
            ExprKind::Int(v, _) => Value::Constant(*v),
            ExprKind::Float(bits, _) => Value::Constant(f64::from_bits(*bits) as i64),
            ExprKind::Var(v) => Value::Variable(v.index()),
            ExprKind::Unary(op, a) => Value::Unary(*op, Box::new(sub(a)?)),
            ExprKind::Binary(op, a, b) => Value::Binary(*op, Box::new([sub(a)?, sub(b)?])),
            ExprKind::Select(c, a, b) => Value::Select(Box::new([sub(c)?, sub(a)?, sub(b)?])),
            ExprKind::Cast(_, a) => sub(a)?,
            ExprKind::Load(b, _) => {
                return Err(DependsOnData {
                    buffer: code.buffers[b.index()].name.clone(),
                });
            }
            ExprKind::Arg(..) => Value::Constant(0),
        })
    }

    fn at(&self, vars: &[i64]) -> i64 {
        match self {
            Value::Constant(v) => *v,
            Value::Variable(v) => vars[*v],
            Value::Unary(UnaryOp::Not, a) => i64::from(a.at(vars) == 0),
            Value::Unary(UnaryOp::Abs, a) => a.at(vars).wrapping_abs(),
            Value::Unary(_, a) => a.at(vars).wrapping_neg(),
            Value::Select(parts) => match parts[0].at(vars) {
                0 => parts[2].at(vars),
                _ => parts[1].at(vars),
            },
            Value::Binary(op, sides) => binary(*op, sides[0].at(vars), sides[1].at(vars)),
        }
    }
}

/// Of integers; divisions by 0 give 0, as no access is made there.
fn binary(op: BinaryOp, a: i64, b: i64) -> i64 {
    let bit = i64::from;
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => a.checked_div(b).unwrap_or(0),
        BinaryOp::FloorDiv => {
            let quotient = a.checked_div(b).unwrap_or(0);
            let rounds_up = b != 0 && a % b != 0 && (a < 0) != (b < 0);
            quotient - bit(rounds_up)
        }
        BinaryOp::FloorMod => match b {
            0 => 0,
            _ => a - b * binary(BinaryOp::FloorDiv, a, b),
        },
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::Pow => u32::try_from(b).map_or(0, |b| a.wrapping_pow(b)),
        BinaryOp::And => bit(a != 0 && b != 0),
        BinaryOp::Or => bit(a != 0 || b != 0),
        BinaryOp::Eq => bit(a == b),
        BinaryOp::Ne => bit(a != b),
        BinaryOp::Lt => bit(a < b),
        BinaryOp::Le => bit(a <= b),
        BinaryOp::BitAnd => a & b,
        BinaryOp::BitOr => a | b,
        BinaryOp::BitXor => a ^ b,
        BinaryOp::Shl => u32::try_from(b)
            .ok()
            .and_then(|b| a.checked_shl(b))
            .unwrap_or(0),
        BinaryOp::Shr => a >> b.clamp(0, 63),
    }
}

impl Addresses {
    /// Of a kernel with its parameters at page boundaries, one after the other. Accesses that `made` does
    /// not name are left out.
    pub fn of(code: &Code, made: &HashMap<AccessId, Made>) -> Result<Addresses, DependsOnData> {
        let mut compiler = Compiler {
            code,
            made,
            bases: bases(code),
            loops: vec![],
        };
        let nodes = compiler.stmts(&code.kernel)?;
        Ok(Addresses {
            variables: code.vars.len(),
            lines: lines(code, made),
            nodes,
        })
    }

    /// Makes all accesses.
    pub fn run(&self, caches: &mut Caches) {
        let mut vars = vec![0; self.variables];
        for node in &self.nodes {
            node.run(&mut vars, caches);
        }
    }
}

/// Lines of the buffers that have an access which is made.
fn lines(code: &Code, made: &HashMap<AccessId, Made>) -> u64 {
    let used = made.keys().map(|id| code.accesses[*id as usize].buffer);
    let used: BTreeSet<usize> = used.map(|b| b.index()).collect();
    let of = |at: &usize| {
        let b = &code.buffers[*at];
        let bytes = b.elements.max(0) as u64 * b.dtype.size() as u64;
        match b.place {
            BufferPlace::Register | BufferPlace::Unused => 0,
            _ => bytes.div_ceil(LINE),
        }
    };
    used.iter().map(of).sum()
}

/// The address of each buffer. Those of a worker's own follow the shared workspace.
fn bases(code: &Code) -> Vec<i64> {
    let mut next = PAGE;
    let mut take = |bytes: u64| {
        let at = next;
        next = (next + bytes).next_multiple_of(PAGE) + PAGE;
        at as i64
    };
    let shared = take(code.workspace_bytes);
    let worker = take(code.worker_workspace_bytes);
    let buffers = code.buffers.iter().map(|b| match b.place {
        BufferPlace::Workspace(at) => shared + at as i64,
        BufferPlace::WorkerWorkspace(at) => worker + at as i64,
        BufferPlace::Unused | BufferPlace::Register => 0,
        _ => take(b.elements.max(0) as u64 * b.dtype.size() as u64),
    });
    buffers.collect()
}

struct Compiler<'a> {
    code: &'a Code,
    made: &'a HashMap<AccessId, Made>,
    bases: Vec<i64>,
    /// Around the current statement, outermost first.
    loops: Vec<(FlatLoopId, VarId)>,
}

impl Compiler<'_> {
    fn stmts(&mut self, stmts: &[Stmt]) -> Result<Vec<Node>, DependsOnData> {
        let mut nodes = Vec::new();
        for s in stmts {
            match s {
                Stmt::Loop(l) => {
                    self.loops.push((l.id, l.var));
                    let body = self.stmts(&l.body)?;
                    self.loops.pop();
                    if body.is_empty() {
                        continue;
                    }
                    let straight = body.iter().all(Node::is_straight);
                    let (var, extent) = (l.var.index(), l.extent);
                    nodes.push(Node::Loop {
                        var,
                        extent,
                        body,
                        straight,
                    });
                }
                Stmt::If {
                    cond,
                    then,
                    otherwise,
                } => {
                    let (then, otherwise) = (self.stmts(then)?, self.stmts(otherwise)?);
                    if !then.is_empty() || !otherwise.is_empty() {
                        let cond = Value::of(cond, self.code)?;
                        nodes.push(Node::If {
                            cond,
                            then,
                            otherwise,
                        });
                    }
                }
                Stmt::Store(s) => self.store(s, &mut nodes)?,
                // Hints move lines earlier than they are needed; the lines are the same.
                Stmt::Check { .. } | Stmt::Prefetch { .. } => {}
            }
        }
        Ok(nodes)
    }

    fn store(&self, s: &Store, nodes: &mut Vec<Node>) -> Result<(), DependsOnData> {
        let mut ids = s.loads.iter();
        for e in [Some(&s.value), Some(&s.offset), s.mask.as_ref()]
            .into_iter()
            .flatten()
        {
            self.loads(e, s, &mut ids, nodes)?;
        }
        nodes.extend(self.touch(s.id, s, &s.offset, None)?);
        Ok(())
    }

    /// The loads of an expression in the order of `Expr::visit`; those of a side that is chosen run
    /// only if it is.
    fn loads<'i>(
        &self,
        e: &Expr,
        s: &Store,
        ids: &mut impl Iterator<Item = &'i AccessId>,
        nodes: &mut Vec<Node>,
    ) -> Result<(), DependsOnData> {
        if !e.loads() {
            return Ok(());
        }
        match e.kind() {
            ExprKind::Load(_, index) => {
                if let Some(id) = ids.next() {
                    nodes.extend(self.touch(*id, s, &index[0], Some(e))?);
                }
                self.loads(&index[0], s, ids, nodes)
            }
            ExprKind::Select(c, a, b)
                if !c.loads() && !s.lane.is_some_and(|l| c.uses_var(l.var)) =>
            {
                let (mut then, mut otherwise) = (vec![], vec![]);
                self.loads(a, s, ids, &mut then)?;
                self.loads(b, s, ids, &mut otherwise)?;
                if !then.is_empty() || !otherwise.is_empty() {
                    nodes.push(Node::If {
                        cond: Value::of(c, self.code)?,
                        then,
                        otherwise,
                    });
                }
                Ok(())
            }
            _ => {
                for child in e.children() {
                    self.loads(child, s, ids, nodes)?;
                }
                Ok(())
            }
        }
    }

    /// An access of a statement: of the load `e`, or of the store.
    fn touch(
        &self,
        id: AccessId,
        s: &Store,
        offset: &Expr,
        load: Option<&Expr>,
    ) -> Result<Option<Node>, DependsOnData> {
        let Some(made) = self.made.get(&id) else {
            return Ok(None);
        };
        let info = &self.code.accesses[id as usize];
        let buffer = &self.code.buffers[info.buffer.index()];
        if matches!(buffer.place, BufferPlace::Register | BufferPlace::Unused) {
            return Ok(None);
        }
        let bytes = buffer.dtype.size() as i64;
        let lane = s.lane.filter(|l| info.lanes > 1 || offset.uses_var(l.var));
        let mask = s.mask.as_ref().filter(|m| lane.is_some() && !m.loads());
        let (offset, lanes) = match (lane, &info.offsets) {
            (None, _) => (offset.clone(), together(1, bytes, made)),
            (Some(lane), _) if mask.is_some() => self.each(offset, lane, mask, bytes)?,
            (Some(lane), LaneOffsets::Consecutive) => {
                // The lane's variable is 0 when no lane is looked at alone.
                (offset.clone(), together(i64::from(lane.lanes), bytes, made))
            }
            (Some(_), LaneOffsets::Pattern(p)) => {
                let span = p.span();
                let lanes = match made.instructions < p.distances.len() as u32 {
                    // One wide load, whose lanes are then put in order.
                    true => together(span.end - span.start, bytes, made),
                    false => Lanes::Apart {
                        distances: p
                            .distances
                            .iter()
                            .map(|d| (d - span.start) * bytes)
                            .collect(),
                        bytes: bytes as u64,
                    },
                };
                (p.base.clone() + span.start, lanes)
            }
            (Some(lane), _) => self.each(offset, lane, None, bytes)?,
        };
        let base = self.bases[info.buffer.index()];
        let at = match Affine::of(&offset) {
            Some(sum) => Offset::Linear {
                constant: base + sum.constant * bytes,
                terms: sum
                    .terms
                    .iter()
                    .map(|(v, c)| (v.index(), c * bytes))
                    .collect(),
            },
            None => Offset::Computed {
                base,
                elements: Value::of(&offset, self.code)?,
                bytes,
            },
        };
        let around = self.loops.iter().rev().take(made.hoisted as usize);
        Ok(Some(Node::Touch(Touch {
            at,
            lanes,
            access: if load.is_some() {
                Access::Read
            } else {
                Access::Write
            },
            only_at_first: around.map(|(_, v)| v.index()).collect(),
        })))
    }

    /// Lanes that are looked at one by one.
    fn each(
        &self,
        offset: &Expr,
        lane: Lane,
        mask: Option<&Expr>,
        bytes: i64,
    ) -> Result<(Expr, Lanes), DependsOnData> {
        let mask = mask.map(|m| Value::of(m, self.code)).transpose()?;
        let (var, lanes) = (lane.var.index(), i64::from(lane.lanes));
        Ok((
            offset.clone(),
            Lanes::Each {
                var,
                lanes,
                mask,
                bytes: bytes as u64,
            },
        ))
    }
}

fn together(lanes: i64, bytes: i64, made: &Made) -> Lanes {
    Lanes::Together {
        bytes: (lanes * bytes) as u64,
        instructions: u64::from(made.instructions.max(1)),
    }
}

impl Node {
    fn is_straight(&self) -> bool {
        let Node::Touch(t) = self else {
            return false;
        };
        let together = matches!(
            t.lanes,
            Lanes::Together {
                instructions: 1,
                ..
            }
        );
        together && t.only_at_first.is_empty() && matches!(t.at, Offset::Linear { .. })
    }

    fn run(&self, vars: &mut [i64], caches: &mut Caches) {
        match self {
            Node::Touch(t) => t.run(vars, caches),
            Node::If {
                cond,
                then,
                otherwise,
            } => {
                let side = if cond.at(vars) != 0 { then } else { otherwise };
                side.iter().for_each(|n| n.run(vars, caches));
            }
            Node::Loop {
                var,
                extent,
                body,
                straight: true,
            } => {
                vars[*var] = 0;
                straight(*var, *extent, body, vars, caches);
            }
            Node::Loop {
                var, extent, body, ..
            } => {
                for i in 0..*extent {
                    vars[*var] = i;
                    body.iter().for_each(|n| n.run(vars, caches));
                }
                vars[*var] = 0;
            }
        }
    }
}

/// A loop whose accesses all step by constants.
fn straight(var: usize, extent: i64, body: &[Node], vars: &[i64], caches: &mut Caches) {
    let touches = body.iter().filter_map(|n| match n {
        Node::Touch(t) => Some(t),
        _ => None,
    });
    let mut steps: Vec<(i64, i64, u64, Access)> = touches
        .map(|t| {
            let step = match &t.at {
                Offset::Linear { terms, .. } => {
                    terms.iter().find(|(v, _)| *v == var).map_or(0, |t| t.1)
                }
                Offset::Computed { .. } => 0,
            };
            let bytes = match t.lanes {
                Lanes::Together { bytes, .. } => bytes,
                _ => 0,
            };
            (t.at.at(vars), step, bytes, t.access)
        })
        .collect();
    for _ in 0..extent {
        for (at, step, bytes, access) in &mut steps {
            caches.access(*at as u64, *bytes, *access);
            *at += *step;
        }
    }
}

impl Offset {
    fn at(&self, vars: &[i64]) -> i64 {
        match self {
            Offset::Linear { constant, terms } => terms
                .iter()
                .fold(*constant, |sum, (v, c)| sum + vars[*v] * c),
            Offset::Computed {
                base,
                elements,
                bytes,
            } => base + elements.at(vars) * bytes,
        }
    }
}

impl Touch {
    fn run(&self, vars: &mut [i64], caches: &mut Caches) {
        if self.only_at_first.iter().any(|v| vars[*v] != 0) {
            return;
        }
        match &self.lanes {
            Lanes::Together {
                bytes,
                instructions,
            } => {
                let (at, each) = (self.at.at(vars) as u64, bytes.div_ceil(*instructions));
                for i in 0..*instructions {
                    caches.access(at + (i * each).min(bytes - 1), each, self.access);
                }
            }
            Lanes::Apart { distances, bytes } => {
                let at = self.at.at(vars);
                for d in distances {
                    caches.access((at + d) as u64, *bytes, self.access);
                }
            }
            Lanes::Each {
                var,
                lanes,
                mask,
                bytes,
            } => {
                let mut line = u64::MAX;
                for lane in 0..*lanes {
                    vars[*var] = lane;
                    if mask.as_ref().is_some_and(|m| m.at(vars) == 0) {
                        continue;
                    }
                    // Lanes of one line are one access.
                    let at = self.at.at(vars) as u64;
                    if at / LINE != line {
                        line = at / LINE;
                        caches.access(at, *bytes, self.access);
                    }
                }
                vars[*var] = 0;
            }
        }
    }
}
