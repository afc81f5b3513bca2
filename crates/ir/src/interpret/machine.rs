//! Execution of a compiled program.

use super::code::{Access, Code, Float, Int, Linear, Offset};
use super::memory::Memory;
use super::plan::{self, BlockPlan, LoopPlan, Plan, ReductionPlan, Step};
use super::{Action, InterpretError, Scalar, scalar};
use crate::program::{BufferId, LoopId, Program, VarId};

pub(super) fn execute(
    program: &Program,
    plan: &Plan,
    memory: Vec<Memory>,
) -> Result<Vec<Memory>, InterpretError> {
    let mut machine = Interpreter::new(program, memory);
    machine.steps(&plan.steps)?;
    Ok(machine.memory)
}

/// The value of an expression without loads and arguments.
pub(super) fn evaluate(
    program: &Program,
    code: &Code,
    vars: &[(VarId, i64)],
    place: &str,
) -> Result<Scalar, InterpretError> {
    let mut machine = Interpreter::new(program, vec![]);
    for (v, value) in vars {
        machine.vars[v.index()] = *value;
    }
    let value = match code {
        Code::Int(code) => machine.int(code).map(Scalar::I),
        Code::Float(code) => machine.float(code).map(Scalar::F),
    };
    value.map_err(|fault| machine.error(*fault, place.into()))
}

/// What stops a block instance.
enum Fault {
    DivisionByZero,
    Outside {
        buffer: BufferId,
        indices: Vec<i64>,
        store: bool,
    },
    Undefined {
        buffer: BufferId,
        at: usize,
    },
    Race {
        buffer: BufferId,
        at: usize,
        id: LoopId,
        access: Action,
        earlier: Action,
    },
    OutOfDomain {
        var: usize,
        value: i64,
        extent: i64,
    },
}

type Eval<T> = Result<T, Box<Fault>>;

/// A loop in execution whose iterations may run together. An access at time
/// `t` was made by another iteration of it if `start <= t < now`.
struct Together {
    id: LoopId,
    start: u64,
    now: u64,
}

struct Interpreter<'a> {
    program: &'a Program,
    vars: Vec<i64>,
    memory: Vec<Memory>,
    /// Accumulators and terms of a reducer.
    args: Vec<u64>,
    /// Grows whenever an iteration begins that is checked or allocates.
    clock: u64,
    together: Vec<Together>,
    /// Of the statement in execution, one a write.
    places: Vec<usize>,
    values: Vec<u64>,
}

impl<'a> Interpreter<'a> {
    fn new(program: &'a Program, memory: Vec<Memory>) -> Interpreter<'a> {
        Interpreter {
            program,
            vars: vec![0; program.var_count()],
            memory,
            args: vec![],
            clock: 1,
            together: vec![],
            places: vec![],
            values: vec![],
        }
    }

    fn steps(&mut self, steps: &[Step]) -> Result<(), InterpretError> {
        for step in steps {
            match step {
                Step::Loop(l) => self.loop_(l)?,
                Step::Block(b) => self
                    .block(b)
                    .map_err(|fault| self.error(*fault, plan::place(self.program, b.id)))?,
            }
        }
        Ok(())
    }

    fn loop_(&mut self, l: &LoopPlan) -> Result<(), InterpretError> {
        let timed = l.together || !l.allocates.is_empty();
        if l.together {
            let (start, now) = (self.clock + 1, self.clock + 1);
            self.together.push(Together {
                id: l.id,
                start,
                now,
            });
        }
        for i in 0..l.extent {
            self.vars[l.var] = i;
            if timed {
                self.clock += 1;
                for b in &l.allocates {
                    if let Some(stamps) = &mut self.memory[b.index()].stamps {
                        stamps.born = self.clock;
                    }
                }
                if l.together
                    && let Some(t) = self.together.last_mut()
                {
                    t.now = self.clock;
                }
            }
            self.steps(&l.body)?;
        }
        if l.together {
            self.together.pop();
        }
        Ok(())
    }

    fn block(&mut self, b: &BlockPlan) -> Eval<()> {
        if let Some(predicate) = &b.predicate
            && self.int(predicate)? == 0
        {
            return Ok(());
        }
        for i in &b.iters {
            let value = self.int(&i.binding)?;
            if value < 0 || value >= i.extent {
                return Err(Box::new(Fault::OutOfDomain {
                    var: i.var,
                    value,
                    extent: i.extent,
                }));
            }
            self.vars[i.var] = value;
        }
        self.points(b, &b.points)
    }

    /// The statement for every point of an intrinsic's remaining dimensions.
    fn points(&mut self, b: &BlockPlan, points: &[(usize, i64)]) -> Eval<()> {
        let Some(((var, extent), rest)) = points.split_first() else {
            return self.statement(b);
        };
        for i in 0..*extent {
            self.vars[*var] = i;
            self.points(b, rest)?;
        }
        Ok(())
    }

    fn statement(&mut self, b: &BlockPlan) -> Eval<()> {
        self.places.clear();
        self.values.clear();
        for (access, value) in &b.writes {
            let at = self.locate(access, true)?;
            let value = self.word(value)?;
            self.places.push(at);
            self.values.push(value);
        }
        if let Some(r) = &b.reduction {
            self.combine(b, r)?;
        }
        for (i, (access, _)) in b.writes.iter().enumerate() {
            self.store(access.buffer, self.places[i], self.values[i])?;
        }
        Ok(())
    }

    /// Replaces the statement's values by those combined with the accumulators.
    fn combine(&mut self, b: &BlockPlan, r: &ReductionPlan) -> Eval<()> {
        let first = r.init && r.vars.iter().all(|v| self.vars[*v] == 0);
        self.args.clear();
        for (i, (access, _)) in b.writes.iter().enumerate() {
            let accumulator = if first {
                self.word(&r.identity[i])?
            } else {
                self.check_read(access.buffer, self.places[i])?;
                self.memory[access.buffer.index()].words[self.places[i]]
            };
            self.args.push(accumulator);
        }
        self.args.extend_from_slice(&self.values);
        for (i, code) in r.combine.iter().enumerate() {
            self.values[i] = self.word(code)?;
        }
        Ok(())
    }

    fn word(&mut self, code: &Code) -> Eval<u64> {
        match code {
            Code::Int(code) => Ok(self.int(code)? as u64),
            Code::Float(code) => Ok(self.float(code)?.to_bits()),
        }
    }

    fn linear(&self, sum: &Linear) -> i64 {
        let mut v = sum.constant;
        for (var, coefficient) in &sum.terms {
            v = v.wrapping_add(self.vars[*var].wrapping_mul(*coefficient));
        }
        v
    }

    fn int(&mut self, code: &Int) -> Eval<i64> {
        match code {
            Int::Linear(sum) => Ok(self.linear(sum)),
            Int::Arg(i) => Ok(self.args[*i] as i64),
            Int::Load(access) => Ok(self.load(access)? as i64),
            Int::Unary(op, d, a) => Ok(scalar::int_unary(*op, self.int(a)?, *d)),
            Int::Binary(op, d, ab) => {
                let (a, b) = (self.int(&ab.0)?, self.int(&ab.1)?);
                match scalar::int_binary(*op, a, b, *d) {
                    Some(v) => Ok(v),
                    None => Err(Box::new(Fault::DivisionByZero)),
                }
            }
            Int::Compare(op, ab) => {
                let (a, b) = (self.int(&ab.0)?, self.int(&ab.1)?);
                Ok(i64::from(scalar::int_compare(*op, a, b)))
            }
            Int::CompareFloat(op, ab) => {
                let (a, b) = (self.float(&ab.0)?, self.float(&ab.1)?);
                Ok(i64::from(scalar::float_compare(*op, a, b)))
            }
            Int::And(ab) => match self.int(&ab.0)? {
                0 => Ok(0),
                _ => self.int(&ab.1),
            },
            Int::Or(ab) => match self.int(&ab.0)? {
                0 => self.int(&ab.1),
                _ => Ok(1),
            },
            Int::Select(cab) => match self.int(&cab.0)? {
                0 => self.int(&cab.2),
                _ => self.int(&cab.1),
            },
            Int::Convert(d, a) => Ok(scalar::int_to_int(self.int(a)?, *d)),
            Int::Bits(a) => Ok(i64::from((self.float(a)? as f32).to_bits() as i32)),
            Int::FromFloat(d, a) => Ok(scalar::float_to_int(self.float(a)?, *d)),
        }
    }

    fn float(&mut self, code: &Float) -> Eval<f64> {
        match code {
            Float::Constant(v) => Ok(*v),
            Float::Arg(i) => Ok(f64::from_bits(self.args[*i])),
            Float::Load(access) => Ok(f64::from_bits(self.load(access)?)),
            Float::Unary(op, d, a) => Ok(scalar::float_unary(*op, self.float(a)?, *d)),
            Float::Binary(op, d, ab) => {
                let (a, b) = (self.float(&ab.0)?, self.float(&ab.1)?);
                Ok(scalar::float_binary(*op, a, b, *d))
            }
            Float::Select(cab) => match self.int(&cab.0)? {
                0 => self.float(&cab.2),
                _ => self.float(&cab.1),
            },
            Float::Round(d, a) => Ok(scalar::round(self.float(a)?, *d)),
            Float::FromInt(d, a) => Ok(scalar::int_to_float(self.int(a)?, *d)),
        }
    }

    /// The row-major offset of an element.
    fn locate(&mut self, access: &Access, store: bool) -> Eval<usize> {
        let indices = match &access.offset {
            Offset::Inside(sum) => return Ok(self.linear(sum) as usize),
            Offset::Checked(indices) => indices,
        };
        let mut at = 0;
        for (index, extent) in indices {
            let i = self.int(index)?;
            if i < 0 || i >= *extent {
                let indices = indices.iter().map(|(e, _)| self.int(e));
                return Err(Box::new(Fault::Outside {
                    buffer: access.buffer,
                    indices: indices.collect::<Eval<_>>()?,
                    store,
                }));
            }
            at = at * extent + i;
        }
        Ok(at as usize)
    }

    fn load(&mut self, access: &Access) -> Eval<u64> {
        let at = self.locate(access, false)?;
        self.check_read(access.buffer, at)?;
        Ok(self.memory[access.buffer.index()].words[at])
    }

    /// Checks that the element may be read here, and notes that it was.
    fn check_read(&mut self, buffer: BufferId, at: usize) -> Eval<()> {
        let m = &mut self.memory[buffer.index()];
        let Some(stamps) = &mut m.stamps else {
            return Ok(());
        };
        let written = stamps.written[at];
        if written < stamps.born {
            return Err(Box::new(Fault::Undefined { buffer, at }));
        }
        let around = &self.together[m.depth.min(self.together.len())..];
        if around.is_empty() {
            return Ok(());
        }
        if let Some(id) = other_iteration(around, written) {
            return Err(Box::new(Fault::Race {
                buffer,
                at,
                id,
                access: Action::Read,
                earlier: Action::Write,
            }));
        }
        // What races with a read that may run beside the remembered one races
        // with that one too; a read that comes after it in order takes its place.
        let read = &mut stamps.read[at];
        if other_iteration(around, *read).is_none() {
            *read = self.clock;
        }
        Ok(())
    }

    fn store(&mut self, buffer: BufferId, at: usize, word: u64) -> Eval<()> {
        let m = &mut self.memory[buffer.index()];
        if let Some(stamps) = &mut m.stamps {
            let around = &self.together[m.depth.min(self.together.len())..];
            if !around.is_empty() {
                let earlier = [
                    (Action::Write, stamps.written[at]),
                    (Action::Read, stamps.read[at]),
                ];
                for (earlier, time) in earlier {
                    if let Some(id) = other_iteration(around, time) {
                        let access = Action::Write;
                        return Err(Box::new(Fault::Race {
                            buffer,
                            at,
                            id,
                            access,
                            earlier,
                        }));
                    }
                }
            }
            stamps.written[at] = self.clock;
        }
        m.words[at] = word;
        Ok(())
    }

    fn error(&self, fault: Fault, place: String) -> InterpretError {
        let name = |b: BufferId| self.program.buffer(b).name.clone();
        match fault {
            Fault::DivisionByZero => InterpretError::DivisionByZero { place },
            Fault::Outside {
                buffer,
                indices,
                store,
            } => {
                let shape = self.program.buffer(buffer).shape.clone();
                let buffer = name(buffer);
                match store {
                    true => InterpretError::StoreOutOfRange {
                        place,
                        buffer,
                        indices,
                        shape,
                    },
                    false => InterpretError::LoadOutOfRange {
                        place,
                        buffer,
                        indices,
                        shape,
                    },
                }
            }
            Fault::Undefined { buffer, at } => InterpretError::Undefined {
                place,
                buffer: name(buffer),
                indices: self.indices(buffer, at),
            },
            Fault::Race {
                buffer,
                at,
                id,
                access,
                earlier,
            } => InterpretError::Race {
                place,
                access,
                buffer: name(buffer),
                indices: self.indices(buffer, at),
                name: self.program.loop_(id).name.clone(),
                kind: self.program.loop_(id).kind,
                earlier,
            },
            Fault::OutOfDomain { var, value, extent } => InterpretError::OutOfDomain {
                place,
                var: self.program.var(VarId(var as u32)).name.clone(),
                value,
                extent,
            },
        }
    }

    /// The indices of the element at a row-major offset.
    fn indices(&self, buffer: BufferId, at: usize) -> Vec<i64> {
        let mut rest = at as i64;
        let mut indices = Vec::new();
        for extent in self.program.buffer(buffer).shape.iter().rev() {
            indices.push(rest % extent);
            rest /= extent;
        }
        indices.reverse();
        indices
    }
}

/// The outermost loop another iteration of which made an access at `time`.
fn other_iteration(around: &[Together], time: u64) -> Option<LoopId> {
    if around.last().is_none_or(|t| time >= t.now) {
        return None;
    }
    let t = around.iter().find(|t| t.start <= time && time < t.now)?;
    Some(t.id)
}
