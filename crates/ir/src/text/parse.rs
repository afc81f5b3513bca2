//! Parsing the text form: one function a rule of the grammar.

use super::lex::{Lexeme, ParseError, Token, lex};
use super::print::{ROLES, precedence};
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::program::{
    Annotation, Axis, Block, Buffer, BufferId, Iter, IterKind, LoopKind, Node, Program, Reducer,
    Reduction, Role, Scope, TensorOp, VarId, View, Write,
};
use std::collections::HashMap;
use tensor::DType;

/// Loops, calls and parentheses nested deeper are refused.
const MAX_NESTING: usize = 200;
/// Expression trees deeper than this are refused.
const MAX_DEPTH: usize = 1000;

/// What may stand after a node.
const BODY: &str = "`for`, `block` or `}`";

/// Reads one program. It may break promises that the verifier checks; names
/// that mean nothing where they stand are errors here.
pub fn parse(text: &str) -> Result<Program, ParseError> {
    let mut parser = Parser {
        tokens: lex(text)?,
        at: 0,
        program: Program::new(""),
        buffers: HashMap::new(),
        scope: vec![],
        args: vec![],
        nesting: 0,
    };
    parser.program()?;
    Ok(parser.program)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    program: Program,
    buffers: HashMap<String, BufferId>,
    /// Variables that an expression may use, inner ones last.
    scope: Vec<(String, VarId)>,
    /// Types of the accumulators of the tuple reducer being read.
    args: Vec<DType>,
    nesting: usize,
}

type Parsed<T> = Result<T, ParseError>;

/// An expression and the depth of its tree.
type Sized = (Expr, usize);

impl Parser {
    fn token(&self) -> &Token {
        &self.tokens[self.at]
    }

    fn advance(&mut self) {
        // The last token is `End`, which is never passed.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn is_symbol(&self, s: &str) -> bool {
        matches!(self.token().lexeme, Lexeme::Symbol(t) if t == s)
    }

    fn try_symbol(&mut self, s: &str) -> bool {
        let found = self.is_symbol(s);
        if found {
            self.advance();
        }
        found
    }

    fn symbol(&mut self, s: &str) -> Parsed<()> {
        match self.try_symbol(s) {
            true => Ok(()),
            false => Err(self.token().expected(format!("`{s}`"))),
        }
    }

    fn is_word(&self, w: &str) -> bool {
        matches!(&self.token().lexeme, Lexeme::Word(t) if t == w)
    }

    fn try_word(&mut self, w: &str) -> bool {
        let found = self.is_word(w);
        if found {
            self.advance();
        }
        found
    }

    fn word(&mut self, w: &str) -> Parsed<()> {
        match self.try_word(w) {
            true => Ok(()),
            false => Err(self.token().expected(format!("`{w}`"))),
        }
    }

    /// Takes a word of a table.
    fn try_table<T: Copy>(&mut self, table: &[(T, &str)]) -> Option<T> {
        let Lexeme::Word(word) = &self.token().lexeme else {
            return None;
        };
        let item = table.iter().find(|(_, w)| w == word)?.0;
        self.advance();
        Some(item)
    }

    fn name(&mut self, what: &str) -> Parsed<String> {
        let name = match &self.token().lexeme {
            Lexeme::Word(w) if super::is_bare_name(w) => w.clone(),
            Lexeme::Quoted(w) => w.clone(),
            _ => return Err(self.token().expected(what)),
        };
        self.advance();
        Ok(name)
    }

    fn int(&mut self, what: &str) -> Parsed<i64> {
        let start = self.token().clone();
        let sign = if self.try_symbol("-") { "-" } else { "" };
        if let Lexeme::Number(digits, false, None) = &self.token().lexeme
            && let Ok(v) = format!("{sign}{digits}").parse()
        {
            self.advance();
            return Ok(v);
        }
        Err(start.expected(what))
    }

    fn dtype(&mut self) -> Parsed<DType> {
        let dtypes = DType::ALL.map(|d| (d, d.name()));
        self.try_table(&dtypes).ok_or_else(|| {
            let names = dtypes.map(|d| d.1).join(", ");
            self.token().expected(format!("an element type ({names})"))
        })
    }

    /// `open item, item, … close`.
    fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Parser) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        self.symbol(open)?;
        let mut out = Vec::new();
        if self.try_symbol(close) {
            return Ok(out);
        }
        loop {
            out.push(item(self)?);
            if self.try_symbol(close) {
                return Ok(out);
            }
            if !self.try_symbol(",") {
                return Err(self.token().expected(format!("`,` or `{close}`")));
            }
        }
    }

    fn nested<T>(&mut self, f: impl FnOnce(&mut Parser) -> Parsed<T>) -> Parsed<T> {
        if self.nesting == MAX_NESTING {
            let limit = format!("at most {MAX_NESTING} levels of nesting");
            return Err(self.token().expected(limit));
        }
        self.nesting += 1;
        let result = f(self);
        self.nesting -= 1;
        result
    }

    fn program(&mut self) -> Parsed<()> {
        self.word("program")?;
        self.program.name = self.name("the name of the program")?;
        self.symbol("{")?;
        while let Some(role) = self.try_table(&ROLES) {
            self.buffer(role)?;
        }
        let nodes = self.nodes("a parameter, `intermediate`, `for`, `block` or `}`")?;
        self.program.body = nodes;
        match self.token().lexeme {
            Lexeme::End => Ok(()),
            _ => Err(self.token().expected("the end of the text")),
        }
    }

    fn buffer(&mut self, role: Role) -> Parsed<()> {
        let start = self.token().clone();
        let name = self.name("the name of a buffer")?;
        if self.buffers.contains_key(&name) {
            return Err(start.expected("the name of a new buffer"));
        }
        self.symbol(":")?;
        let dtype = self.dtype()?;
        let shape = self.list("[", "]", |p| p.int("the extent of a dimension"))?;
        let scope = self.try_table(&Scope::WORDS[1..]).unwrap_or(Scope::Global);
        let view = match self.try_word("strides") {
            false => None,
            true => {
                let strides = self.list("[", "]", |p| p.int("the stride of a dimension"))?;
                self.word("offset")?;
                let offset = self.int("the offset of the view")?;
                Some(View { strides, offset })
            }
        };
        let id = self.program.add_buffer(Buffer {
            name: name.clone(),
            dtype,
            shape,
            scope,
            role,
            view,
        });
        self.buffers.insert(name, id);
        Ok(())
    }

    fn buffer_named(&mut self) -> Parsed<BufferId> {
        let start = self.token().clone();
        let name = self.name("the name of a buffer")?;
        let id = self.buffers.get(&name).copied();
        id.ok_or_else(|| start.expected("the name of a declared buffer"))
    }

    /// Nodes up to and with the closing `}`; `expected` says what may stand at their start.
    fn nodes(&mut self, expected: &str) -> Parsed<Vec<Node>> {
        let mut out = Vec::new();
        loop {
            if self.try_word("for") {
                out.push(self.nested(|p| p.loop_())?);
            } else if self.try_word("block") {
                out.push(self.block()?);
            } else if self.try_symbol("}") {
                return Ok(out);
            } else {
                let first = out.is_empty();
                let expected = if first { expected } else { BODY };
                return Err(self.token().expected(expected));
            }
        }
    }

    fn loop_(&mut self) -> Parsed<Node> {
        let start = self.token().clone();
        let name = self.name("the name of a loop")?;
        if self.scope.iter().any(|(n, _)| *n == name) {
            return Err(start.expected("a name that no enclosing loop has"));
        }
        self.word("in")?;
        let zero = self.token().clone();
        if self.int("`0`")? != 0 {
            return Err(zero.expected("`0`"));
        }
        self.symbol("..")?;
        let extent = self.int("the extent of the loop")?;
        let kind = if self.try_word("parallel") {
            LoopKind::Parallel
        } else if self.try_word("vectorized") {
            LoopKind::Vectorized
        } else if self.try_word("unrolled") {
            LoopKind::Unrolled
        } else if self.try_word("bound") {
            let axis = self.try_table(&Axis::WORDS);
            LoopKind::Bound(axis.ok_or_else(|| self.token().expected("an axis, as `block.x`"))?)
        } else {
            LoopKind::Serial
        };
        let annotations = self.annotations()?;
        if !self.try_symbol("{") {
            let what = "a loop kind, `unroll_by`, `prefetch` or `{`";
            return Err(self.token().expected(what));
        }
        let id = self.program.new_loop(name.clone(), extent, vec![]);
        let var = self.program.loop_(id).var;
        self.scope.push((name, var));
        let body = self.nodes(BODY)?;
        self.scope.pop();
        let l = self.program.loop_mut(id);
        l.kind = kind;
        l.annotations = annotations;
        l.body = body;
        Ok(Node::Loop(id))
    }

    fn annotations(&mut self) -> Parsed<Vec<Annotation>> {
        let mut out = Vec::new();
        loop {
            if self.try_word("unroll_by") {
                out.push(Annotation::UnrollBy(self.int("a factor")?));
            } else if self.try_word("prefetch") {
                let buffer = self.buffer_named()?;
                let distance = self.int("a distance in iterations")?;
                out.push(Annotation::Prefetch { buffer, distance });
            } else {
                return Ok(out);
            }
        }
    }

    /// `name: kind extent`.
    fn point(&mut self) -> Parsed<(String, IterKind, i64)> {
        let name = self.name("the name of an iteration variable")?;
        self.symbol(":")?;
        let known = IterKind::WORDS.iter().find(|(_, w)| self.try_word(w));
        let Some((kind, _)) = known.copied() else {
            return Err(self.token().expected("`spatial`, `reduce` or `ordered`"));
        };
        Ok((name, kind, self.int("the extent of the variable")?))
    }

    fn block(&mut self) -> Parsed<Node> {
        let name = self.name("the name of a block")?;
        let mut own: Vec<(String, VarId)> = Vec::new();
        let mut declare = |p: &mut Parser| {
            let start = p.token().clone();
            let (name, kind, extent) = p.point()?;
            if own.iter().any(|(n, _)| *n == name) {
                return Err(start.expected("a name that no other variable of the block has"));
            }
            let var = p.program.add_var(name.clone());
            own.push((name, var));
            Ok((var, extent, kind))
        };
        let iters = self.list("[", "]", |p| {
            let (var, extent, kind) = declare(p)?;
            p.symbol("=")?;
            let binding = p.expr()?;
            Ok(Iter {
                var,
                extent,
                kind,
                binding,
            })
        })?;
        let predicate = match self.try_word("where") {
            false => None,
            true => {
                self.symbol("(")?;
                let e = self.expr()?;
                self.symbol(")")?;
                Some(e)
            }
        };
        let tensor = match self.try_word("tensor") {
            false => None,
            true => {
                let intrinsic = self.name("the name of an intrinsic")?;
                let iters = self.list("[", "]", declare)?;
                Some(TensorOp { intrinsic, iters })
            }
        };
        if !self.is_symbol("{") {
            let what = match (&predicate, &tensor) {
                (None, None) => "`where`, `tensor` or `{`",
                (Some(_), None) => "`tensor` or `{`",
                _ => "`{`",
            };
            return Err(self.token().expected(what));
        }
        let outer = std::mem::replace(&mut self.scope, own);
        let statement = self.statement();
        self.scope = outer;
        let (writes, reduction) = statement?;
        let block = Block {
            name,
            iters,
            predicate,
            writes,
            reduction,
            tensor,
        };
        Ok(Node::Block(self.program.add_block(block)))
    }

    fn statement(&mut self) -> Parsed<(Vec<Write>, Option<Reduction>)> {
        self.symbol("{")?;
        let mut writes = Vec::new();
        let mut reduction = None;
        while !self.is_symbol("}") && !self.is_word("combine") {
            let buffer = self.buffer_named()?;
            let indices = self.list("[", "]", Parser::expr)?;
            let start = self.token().clone();
            let found = self.reduction()?;
            if !writes.is_empty() && found != reduction {
                return Err(start.expected("the reducer of the block's first write"));
            }
            reduction = found;
            self.symbol("=")?;
            let value = self.expr()?;
            writes.push(Write {
                buffer,
                indices,
                value,
            });
        }
        if let Some(Reduction {
            reducer: Reducer::Tuple { combine, identity },
            ..
        }) = &mut reduction
        {
            let dtypes = writes.iter().map(|w| self.program.buffer(w.buffer).dtype);
            self.args = dtypes.collect();
            while self.try_word("combine") {
                combine.push(self.expr()?);
                self.word("from")?;
                identity.push(self.expr()?);
            }
            self.args.clear();
        }
        self.symbol("}")?;
        Ok((writes, reduction))
    }

    fn reduction(&mut self) -> Parsed<Option<Reduction>> {
        let tuple = Reducer::Tuple {
            combine: vec![],
            identity: vec![],
        };
        let reducers = [
            ("sum", Reducer::Sum),
            ("prod", Reducer::Prod),
            ("min", Reducer::Min),
            ("max", Reducer::Max),
            ("tuple", tuple),
        ];
        for (word, reducer) in reducers {
            if self.try_word(word) {
                let init = self.try_word("init");
                return Ok(Some(Reduction { reducer, init }));
            }
        }
        match self.is_symbol("=") {
            true => Ok(None),
            false => Err(self.token().expected("`=` or a reducer")),
        }
    }

    fn expr(&mut self) -> Parsed<Expr> {
        Ok(self.infix(1)?.0)
    }

    fn grow(&self, depths: impl IntoIterator<Item = usize>) -> Parsed<usize> {
        let depth = 1 + depths.into_iter().max().unwrap_or(0);
        match depth > MAX_DEPTH {
            true => Err(self
                .token()
                .expected(format!("an expression at most {MAX_DEPTH} operators deep"))),
            false => Ok(depth),
        }
    }

    fn infix_operator(&self) -> Option<(BinaryOp, u8)> {
        let text = match &self.token().lexeme {
            Lexeme::Symbol(s) => s,
            Lexeme::Word(w) => w.as_str(),
            _ => return None,
        };
        let op = BinaryOp::ALL.into_iter().find(|op| op.name() == text)?;
        Some((op, precedence(op)?))
    }

    /// Operators of at least the given strength, left-associative.
    fn infix(&mut self, weakest: u8) -> Parsed<Sized> {
        let (mut left, mut depth) = self.nested(Parser::prefix)?;
        while let Some((op, strength)) = self.infix_operator()
            && strength >= weakest
        {
            self.advance();
            let (right, right_depth) = self.infix(strength + 1)?;
            depth = self.grow([depth, right_depth])?;
            left = Expr::binary(op, left, right);
        }
        Ok((left, depth))
    }

    fn prefix(&mut self) -> Parsed<Sized> {
        if !self.try_symbol("-") {
            return self.primary();
        }
        if let Some(e) = self.constant(true)? {
            return Ok((e, 1));
        }
        let (e, depth) = self.nested(Parser::prefix)?;
        Ok((-e, self.grow([depth])?))
    }

    fn primary(&mut self) -> Parsed<Sized> {
        if let Some(e) = self.constant(false)? {
            return Ok((e, 1));
        }
        if self.try_symbol("(") {
            let inner = self.infix(1)?;
            self.symbol(")")?;
            return Ok(inner);
        }
        let start = self.token().clone();
        if let Lexeme::Arg(i, dtype) = start.lexeme {
            let n = self.args.len();
            let known = || (n > 0).then(|| self.args[i as usize % n]);
            let Some(dtype) = dtype.or_else(known) else {
                return Err(start.expected("`$` only in a tuple reducer, or with its type"));
            };
            self.advance();
            return Ok((Expr::arg(i, dtype), 1));
        }
        let bare = matches!(start.lexeme, Lexeme::Word(_));
        let word = match &start.lexeme {
            Lexeme::Word(w) if super::is_bare_name(w) => w.clone(),
            Lexeme::Quoted(w) => w.clone(),
            _ => return Err(start.expected("an expression")),
        };
        self.advance();
        if bare && self.is_symbol("(") {
            return self.call(&word, &start);
        }
        if self.is_symbol("[") {
            let Some(buffer) = self.buffers.get(&word).copied() else {
                return Err(start.expected("the name of a declared buffer"));
            };
            let indices = self.list("[", "]", |p| p.infix(1))?;
            let depth = self.grow(indices.iter().map(|i| i.1))?;
            let indices: Vec<Expr> = indices.into_iter().map(|i| i.0).collect();
            return Ok((Expr::load(buffer, indices), depth));
        }
        match self.scope.iter().find(|(n, _)| *n == word) {
            Some((_, var)) => Ok((Expr::var(*var), 1)),
            None => Err(start.expected("a variable in scope")),
        }
    }

    fn call(&mut self, function: &str, start: &Token) -> Parsed<Sized> {
        let operands = self.list("(", ")", |p| p.infix(1))?;
        let depth = self.grow(operands.iter().map(|o| o.1))?;
        let operands: Vec<Expr> = operands.into_iter().map(|o| o.0).collect();
        let e = match operands.as_slice() {
            [a] => {
                let op = UnaryOp::ALL.into_iter().find(|op| op.name() == function);
                let to = function.parse::<DType>().ok();
                op.map(|op| Expr::unary(op, a))
                    .or(to.map(|d| a.clone().cast(d)))
            }
            [a, b] => {
                let called = |op: &BinaryOp| op.name() == function && precedence(*op).is_none();
                let op = BinaryOp::ALL.into_iter().find(called);
                op.map(|op| Expr::binary(op, a, b))
            }
            [c, a, b] if function == "select" => Some(Expr::select(c, a, b)),
            _ => None,
        };
        let n = operands.len();
        let e = e.ok_or_else(|| start.expected(format!("a function of {n} operands")))?;
        Ok((e, depth))
    }

    /// A constant, after `-` if `negative`; `None` if none stands here.
    fn constant(&mut self, negative: bool) -> Parsed<Option<Expr>> {
        let start = self.token().clone();
        let sign = if negative { "-" } else { "" };
        let e = match &start.lexeme {
            Lexeme::Number(digits, fractional, suffix) => {
                let text = format!("{sign}{digits}");
                let dtype = match fractional {
                    true => suffix.unwrap_or(DType::F32),
                    false => suffix.unwrap_or(DType::I64),
                };
                number(&text, dtype)
                    .ok_or_else(|| start.expected(format!("a number that {dtype} holds")))?
            }
            Lexeme::Word(w) if w == "bits" && !negative => return self.bits().map(Some),
            Lexeme::Word(w) if (w == "true" || w == "false") && !negative => {
                Expr::bool(w == "true")
            }
            Lexeme::Word(w) => match super::named_float(w) {
                None => return Ok(None),
                Some((v, dtype)) => {
                    let v = if negative { -v } else { v };
                    ExprKind::Float(v.to_bits(), dtype).into()
                }
            },
            _ => return Ok(None),
        };
        self.advance();
        Ok(Some(e))
    }

    /// `bits(0x…, dtype)`.
    fn bits(&mut self) -> Parsed<Expr> {
        self.advance();
        self.symbol("(")?;
        let Lexeme::Bits(bits) = self.token().lexeme else {
            return Err(self
                .token()
                .expected("the bits of an f64, as `0x7ff8000000000001`"));
        };
        self.advance();
        self.symbol(",")?;
        let dtype = self.dtype()?;
        self.symbol(")")?;
        Ok(ExprKind::Float(bits, dtype).into())
    }
}

/// A constant of the type; `None` if it does not hold it.
fn number(text: &str, dtype: DType) -> Option<Expr> {
    if dtype.is_float() {
        let v = match dtype {
            DType::F32 => f64::from(text.parse::<f32>().ok()?),
            _ => text.parse().ok()?,
        };
        return Some(Expr::constant(v, dtype)).filter(|e| e.as_float().is_some_and(f64::is_finite));
    }
    let v: i64 = text.parse().ok()?;
    let held = match dtype {
        DType::I8 => i8::try_from(v).is_ok(),
        DType::U8 => u8::try_from(v).is_ok(),
        DType::I32 => i32::try_from(v).is_ok(),
        DType::I16 => i16::try_from(v).is_ok(),
        DType::U16 => u16::try_from(v).is_ok(),
        DType::U32 => u32::try_from(v).is_ok(),
        DType::Bool => false,
        _ => true,
    };
    held.then(|| ExprKind::Int(v, dtype).into())
}
