//! Runs flat code on tensors, statement by statement: the judge of the passes.
//!
//! Stricter than a machine. Every offset is checked; reading what was not
//! written is an error, by byte, so that buffers which share workspace wrongly
//! are found; the iterations of a parallel loop run last to first, each with
//! fresh worker memory, stack and registers. Lanes run one after the other, but
//! nothing is stored before all lanes are evaluated, unless they are combined. What
//! a lane pattern says of a load is compared with every element that it loads.

use super::{BufferPlace, Code, FlatBuffer, Lane, LaneOffsets, LanePattern, Stmt, Store};
use crate::flat::scalar::{self, Value};
use ir::{BinaryOp, BufferId, DType, Expr, ExprKind, VarId};
use std::collections::BTreeMap;
use tensor::Tensor;

/// Memory of every parameter, whole parent allocations from offset 0.
pub type Arguments = BTreeMap<BufferId, Tensor>;

/// Why flat code did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlatError {
    #[error("argument `{buffer}` is missing, too small or has another element type")]
    Argument { buffer: String },
    #[error("`{buffer}[{offset}]` is outside its {elements} elements")]
    OutOfBounds {
        buffer: String,
        offset: i64,
        elements: i64,
    },
    #[error("`{buffer}[{offset}]` is read before it is written")]
    Undefined { buffer: String, offset: i64 },
    #[error("integer division by zero")]
    DivisionByZero,
    #[error("a check failed with code {0}")]
    Check(i32),
    #[error("malformed code: {0}")]
    Malformed(String),
}

/// Runs prepare, then the kernel. `arguments` holds inputs and constants; the
/// outputs come back with it, one-dimensional, elements never written as zero.
pub fn interpret_flat(code: &Code, arguments: &mut Arguments) -> Result<(), FlatError> {
    let mut machine = Interpreter {
        code,
        vars: vec![0; code.vars.len()],
        memory: vec![None; code.buffers.len()],
        shared: Bytes::new(code.workspace_bytes),
        worker: Bytes::new(code.worker_workspace_bytes),
        patterns: vec![],
        lane: 0,
    };
    for (i, b) in code.buffers.iter().enumerate() {
        let id = BufferId(i as u32);
        let argument = match b.place {
            BufferPlace::Input | BufferPlace::Constant => arguments.get(&id),
            BufferPlace::Output | BufferPlace::Prepared => None,
            _ => continue,
        };
        let given = matches!(b.place, BufferPlace::Input | BufferPlace::Constant);
        let used = code.params.contains(&id) || code.prepare_params.contains(&id);
        if given && !used {
            continue;
        }
        machine.memory[i] = Some(match argument {
            Some(t) if t.dtype() == b.dtype && t.len() as i64 >= b.elements => {
                (0..t.len()).map(|i| Some(scalar::read(t, i))).collect()
            }
            _ if given => {
                return Err(FlatError::Argument {
                    buffer: b.name.clone(),
                });
            }
            _ => vec![None; b.elements.max(0) as usize],
        });
    }
    machine.stmts(&code.prepare)?;
    (machine.shared, machine.worker) = (
        Bytes::new(code.workspace_bytes),
        Bytes::new(code.worker_workspace_bytes),
    );
    machine.forget_local();
    machine.stmts(&code.kernel)?;
    for (i, b) in code.buffers.iter().enumerate() {
        if b.place != BufferPlace::Output {
            continue;
        }
        let mut t = Tensor::zeros(b.dtype, &[b.elements.max(0) as usize]);
        for (i, v) in machine.memory[i].iter().flatten().enumerate() {
            if let Some(v) = v {
                scalar::write(&mut t, i, *v);
            }
        }
        arguments.insert(BufferId(i as u32), t);
    }
    Ok(())
}

/// A stretch of workspace: values by the byte at which they start.
#[derive(Clone)]
struct Bytes {
    cells: Vec<Option<(BufferId, Value)>>,
    /// The largest element.
    width: usize,
}

impl Bytes {
    fn new(n: u64) -> Bytes {
        Bytes {
            cells: vec![None; n as usize],
            width: 8,
        }
    }

    fn store(&mut self, at: usize, size: usize, b: BufferId, v: Value) {
        // What starts in the bytes before may reach into these.
        let from = at.saturating_sub(self.width - 1);
        for cell in from..at + size {
            let reaches = |(_, v): &(BufferId, Value)| cell + v.dtype().size() > at;
            if cell >= at || self.cells[cell].as_ref().is_some_and(reaches) {
                self.cells[cell] = None;
            }
        }
        self.cells[at] = Some((b, v));
    }

    fn load(&self, at: usize, b: BufferId) -> Option<Value> {
        self.cells[at]
            .filter(|(owner, _)| *owner == b)
            .map(|(_, v)| v)
    }
}

struct Interpreter<'a> {
    code: &'a Code,
    vars: Vec<i64>,
    /// Parameters, stack arrays and registers.
    memory: Vec<Option<Vec<Option<Value>>>>,
    shared: Bytes,
    worker: Bytes,
    /// The loads of the statement that have a lane pattern.
    patterns: Vec<(BufferId, &'a Expr, &'a LanePattern)>,
    /// The lane that is evaluated.
    lane: usize,
}

impl<'a> Interpreter<'a> {
    /// Stack arrays and registers lose their contents.
    fn forget_local(&mut self) {
        for (i, b) in self.code.buffers.iter().enumerate() {
            if matches!(b.place, BufferPlace::Stack | BufferPlace::Register) {
                self.memory[i] = Some(vec![None; b.elements.max(0) as usize]);
            }
        }
    }

    fn stmts(&mut self, stmts: &'a [Stmt]) -> Result<(), FlatError> {
        if self.memory.iter().zip(&self.code.buffers).any(|(m, b)| {
            m.is_none() && matches!(b.place, BufferPlace::Stack | BufferPlace::Register)
        }) {
            self.forget_local();
        }
        for s in stmts {
            match s {
                Stmt::Loop(l) if l.parallel => {
                    let outer = (self.memory.clone(), self.worker.clone());
                    for i in (0..l.extent).rev() {
                        self.vars[l.var.index()] = i;
                        self.worker = Bytes::new(self.code.worker_workspace_bytes);
                        self.forget_local();
                        self.stmts(&l.body)?;
                    }
                    self.worker = outer.1;
                    for (i, b) in self.code.buffers.iter().enumerate() {
                        if matches!(b.place, BufferPlace::Stack | BufferPlace::Register) {
                            self.memory[i] = outer.0[i].clone();
                        }
                    }
                }
                Stmt::Loop(l) => {
                    for i in 0..l.extent {
                        self.vars[l.var.index()] = i;
                        self.stmts(&l.body)?;
                    }
                }
                Stmt::If {
                    cond,
                    then,
                    otherwise,
                } => {
                    let taken = if self.condition(cond)? {
                        then
                    } else {
                        otherwise
                    };
                    self.stmts(taken)?;
                }
                Stmt::Check { cond, code } => {
                    if !self.condition(cond)? {
                        return Err(FlatError::Check(*code));
                    }
                }
                Stmt::Store(s) => self.run(s)?,
                // Has no effect, and its address need not be valid.
                Stmt::Prefetch { .. } => {}
            }
        }
        Ok(())
    }

    fn run(&mut self, s: &'a Store) -> Result<(), FlatError> {
        let lane = s.lane.unwrap_or(Lane {
            var: VarId(0),
            lanes: 1,
        });
        let in_turn = s.combined().is_some();
        self.patterns = patterns(self.code, s);
        let mut pending = Vec::new();
        for i in 0..i64::from(lane.lanes) {
            if s.lane.is_some() {
                self.vars[lane.var.index()] = i;
                self.lane = i as usize;
            }
            if let Some(m) = &s.mask
                && !self.condition(m)?
            {
                continue;
            }
            let value = self.eval(&s.value)?;
            let offset = self.index(&s.offset)?;
            if in_turn {
                self.store(s.buffer, offset, value)?;
            } else {
                pending.push((offset, value));
            }
        }
        for (offset, value) in pending {
            self.store(s.buffer, offset, value)?;
        }
        self.patterns.clear();
        Ok(())
    }

    /// Whether a load at `offset` is where the pattern of its lanes says, in readable memory.
    fn check_pattern(&self, b: BufferId, at: &Expr, offset: i64) -> Result<(), FlatError> {
        let same = |p: &&(BufferId, &Expr, &LanePattern)| p.0 == b && p.1 == at;
        let Some((_, _, pattern)) = self.patterns.iter().find(same) else {
            return Ok(());
        };
        let base = self.index(&pattern.base)?;
        let distance = pattern.distances.get(self.lane).copied();
        if distance != Some(offset - base) {
            let text = format!("lane {} of {at:?} is not in its pattern", self.lane);
            return Err(FlatError::Malformed(text));
        }
        for r in [&pattern.readable, &pattern.block].into_iter().flatten() {
            let inside = r.contains(&(offset - base));
            self.bounded(b, base + r.start)?;
            self.bounded(b, base + r.end - 1)?;
            if !inside {
                let text = format!("{at:?} reads outside of what is readable");
                return Err(FlatError::Malformed(text));
            }
        }
        Ok(())
    }

    fn store(&mut self, b: BufferId, offset: i64, v: Value) -> Result<(), FlatError> {
        let buffer = self.bounded(b, offset)?;
        if v.dtype() != buffer.dtype {
            let text = format!("{} stored to `{}`", v.dtype(), buffer.name);
            return Err(FlatError::Malformed(text));
        }
        let size = buffer.dtype.size();
        match buffer.place {
            BufferPlace::Workspace(at) => {
                self.shared
                    .store(at as usize + offset as usize * size, size, b, v)
            }
            BufferPlace::WorkerWorkspace(at) => {
                self.worker
                    .store(at as usize + offset as usize * size, size, b, v);
            }
            _ => match &mut self.memory[b.index()] {
                Some(m) => m[offset as usize] = Some(v),
                None => {
                    return Err(FlatError::Malformed(format!(
                        "`{}` has no memory",
                        buffer.name
                    )));
                }
            },
        }
        Ok(())
    }

    fn load(&self, b: BufferId, offset: i64) -> Result<Value, FlatError> {
        let buffer = self.bounded(b, offset)?;
        let byte = |at: u64| at as usize + offset as usize * buffer.dtype.size();
        let value = match buffer.place {
            BufferPlace::Workspace(at) => self.shared.load(byte(at), b),
            BufferPlace::WorkerWorkspace(at) => self.worker.load(byte(at), b),
            _ => self.memory[b.index()]
                .as_ref()
                .and_then(|m| m[offset as usize]),
        };
        value.ok_or_else(|| FlatError::Undefined {
            buffer: buffer.name.clone(),
            offset,
        })
    }

    fn bounded(&self, b: BufferId, offset: i64) -> Result<&'a FlatBuffer, FlatError> {
        let buffer = &self.code.buffers[b.index()];
        if offset < 0 || offset >= buffer.elements {
            return Err(FlatError::OutOfBounds {
                buffer: buffer.name.clone(),
                offset,
                elements: buffer.elements,
            });
        }
        Ok(buffer)
    }

    fn condition(&self, e: &Expr) -> Result<bool, FlatError> {
        Ok(self.eval(e)?.is_true())
    }

    fn index(&self, e: &Expr) -> Result<i64, FlatError> {
        let v = self.eval(e)?;
        v.as_i64()
            .ok_or_else(|| FlatError::Malformed(format!("offset {e:?} is {}", v.dtype())))
    }

    fn eval(&self, e: &Expr) -> Result<Value, FlatError> {
        Ok(match e.kind() {
            ExprKind::Int(v, d) => Value::Int(*v, *d),
            ExprKind::Float(bits, d) => Value::Float(f64::from_bits(*bits), *d),
            ExprKind::Var(v) => Value::Int(self.vars[v.index()], DType::I64),
            ExprKind::Arg(..) => return Err(FlatError::Malformed("an argument is left".into())),
            ExprKind::Load(b, i) => {
                let offset = self.index(&i[0])?;
                self.check_pattern(*b, &i[0], offset)?;
                self.load(*b, offset)?
            }
            ExprKind::Unary(op, a) => scalar::unary(*op, self.eval(a)?)
                .ok_or_else(|| FlatError::Malformed(format!("{} of an integer", op.name())))?,
            ExprKind::Cast(d, a) => scalar::cast(*d, self.eval(a)?),
            ExprKind::Select(c, a, b) => {
                let chosen = if self.condition(c)? { a } else { b };
                self.eval(chosen)?
            }
            ExprKind::Binary(BinaryOp::And, a, b) => match self.condition(a)? {
                true => self.eval(b)?,
                false => Value::Int(0, DType::Bool),
            },
            ExprKind::Binary(BinaryOp::Or, a, b) => match self.condition(a)? {
                true => Value::Int(1, DType::Bool),
                false => self.eval(b)?,
            },
            ExprKind::Binary(op, a, b) => scalar::binary(*op, self.eval(a)?, self.eval(b)?)
                .ok_or(FlatError::DivisionByZero)?,
        })
    }
}

fn patterns<'a>(code: &'a Code, s: &'a Store) -> Vec<(BufferId, &'a Expr, &'a LanePattern)> {
    if s.lane.is_none() {
        return vec![];
    }
    let loads = s.loads_with_ids().into_iter();
    let found = loads.filter_map(
        |(id, b, at)| match &code.accesses.get(id as usize)?.offsets {
            LaneOffsets::Pattern(p) => Some((b, at, p)),
            _ => None,
        },
    );
    found.collect()
}
