//! Reading the text form of traces.

use crate::decision::{Decision, DecisionKind, HERE};
use crate::step::{Arg, Factor, LoopArg, Step};
use crate::steps::STEPS;
use crate::trace::Trace;
use ir::{Axis, Scope};

/// Text that is not a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Quoted(String),
    Int(i64),
    /// `$3`, `$3.1`.
    Ref(usize, Option<usize>),
    Symbol(char),
}

pub(super) fn trace(text: &str) -> Result<Trace, ParseError> {
    let mut trace = Trace::default();
    for (i, text) in text.lines().enumerate() {
        let at = |message: String| ParseError {
            line: i + 1,
            message,
        };
        let mut line = Line::new(text).map_err(at)?;
        if line.tokens.is_empty() {
            continue;
        }
        let keyword = line.word().map_err(at)?;
        if keyword == "decision" {
            let d = decision(&mut line, trace.decisions.len()).map_err(at)?;
            trace.decisions.push(d);
        } else {
            let step = step_of(&keyword, &mut line, Some(&trace.decisions)).map_err(at)?;
            trace.steps.push(step);
        }
        line.end().map_err(at)?;
    }
    Ok(trace)
}

pub(super) fn step(text: &str) -> Result<Step, ParseError> {
    let at = |message: String| ParseError { line: 1, message };
    let mut line = Line::new(text).map_err(at)?;
    let keyword = line.word().map_err(at)?;
    let step = step_of(&keyword, &mut line, None).map_err(at)?;
    line.end().map_err(at)?;
    Ok(step)
}

fn decision(line: &mut Line, count: usize) -> Result<Decision, String> {
    let id = line.count()?;
    if id != count {
        return Err(format!("this is decision {count}, not {id}"));
    }
    let name = line.name()?;
    let kind = match line.word()?.as_str() {
        "perfect_tile" => {
            line.symbol('(')?;
            let extent = line.int()?;
            line.symbol(',')?;
            let parts = line.count()?;
            line.symbol(',')?;
            line.keyword("max")?;
            let max_innermost = line.int()?;
            line.symbol(')')?;
            DecisionKind::PerfectTile {
                extent,
                parts,
                max_innermost,
            }
        }
        "categorical" => DecisionKind::Categorical {
            options: line.list('(', ')', Line::int)?,
        },
        "compute_location" => DecisionKind::ComputeLocation {
            loops: line.list('(', ')', |l| {
                if l.takes('.') {
                    return Ok(HERE.to_string());
                }
                l.name()
            })?,
        },
        other => {
            return Err(format!(
                "`{other}` is no kind of decision: perfect_tile, categorical or compute_location"
            ));
        }
    };
    line.symbol('=')?;
    let value = match line.peek() {
        Some(Token::Symbol('[')) => line.list('[', ']', Line::int)?,
        _ => vec![line.int()?],
    };
    if kind.index_of(&value).is_none() {
        return Err(format!("{value:?} is not a value of decision {id}"));
    }
    Ok(Decision { name, kind, value })
}

/// The step after its keyword; without decisions their numbers are not checked.
fn step_of(keyword: &str, line: &mut Line, known: Option<&[Decision]>) -> Result<Step, String> {
    let Some(kind) = STEPS.iter().find(|k| k.name == keyword) else {
        return Err(format!("there is no step `{keyword}`"));
    };
    let step = arguments(keyword, line, known)
        .map_err(|why| format!("{why}, in `{keyword} {}`", kind.usage))?;
    let missing = |id: &usize| known.is_some_and(|d| d.get(*id).is_none());
    match line.refs.iter().find(|id| missing(id)) {
        Some(id) => Err(format!("there is no decision {id} above")),
        None => Ok(step),
    }
}

fn arguments(keyword: &str, line: &mut Line, known: Option<&[Decision]>) -> Result<Step, String> {
    Ok(match keyword {
        "split" => Step::Split {
            loop_: line.name()?,
            factors: factors(line, known)?,
        },
        "fuse" => Step::Fuse {
            outer: line.name()?,
            inner: line.name()?,
        },
        "reorder" => {
            let mut loops = Vec::new();
            while line.peek().is_some() {
                loops.push(line.name()?);
            }
            Step::Reorder { loops }
        }
        "partition" => Step::Partition {
            loop_: line.name()?,
        },
        "unroll" => Step::Unroll {
            loop_: line.name()?,
        },
        "vectorize" => Step::Vectorize {
            loop_: line.name()?,
        },
        "parallel" => Step::Parallel {
            loop_: line.name()?,
        },
        "rfactor" => Step::Rfactor {
            loop_: line.name()?,
        },
        "bind" => Step::Bind {
            loop_: line.name()?,
            axis: line.one_of(&Axis::WORDS)?,
        },
        "annotate" => {
            let loop_ = line.name()?;
            line.keyword("unroll_by")?;
            let unroll_by = line.arg()?;
            Step::Annotate { loop_, unroll_by }
        }
        _ => return block_step(keyword, line),
    })
}

fn block_step(keyword: &str, line: &mut Line) -> Result<Step, String> {
    Ok(match keyword {
        "compute_at" => Step::ComputeAt {
            block: line.name()?,
            loop_: line.loop_arg()?,
        },
        "reverse_compute_at" => Step::ReverseComputeAt {
            block: line.name()?,
            loop_: line.loop_arg()?,
        },
        "compute_inline" => Step::ComputeInline {
            block: line.name()?,
        },
        "reverse_compute_inline" => Step::ReverseComputeInline {
            block: line.name()?,
        },
        "cache_read" => Step::CacheRead {
            block: line.name()?,
            buffer: line.name()?,
            scope: line.one_of(&Scope::WORDS)?,
        },
        "cache_write" => Step::CacheWrite {
            block: line.name()?,
            index: line.count()?,
            scope: line.one_of(&Scope::WORDS)?,
        },
        "set_scope" => Step::SetScope {
            buffer: line.name()?,
            scope: line.one_of(&Scope::WORDS)?,
        },
        "widen" => Step::Widen {
            buffer: line.name()?,
        },
        "decompose_reduction" => Step::DecomposeReduction {
            block: line.name()?,
            loop_: line.name()?,
        },
        "pack" => Step::Pack {
            buffer: line.name()?,
            tiles: line.list('[', ']', |l| {
                let dim = l.count()?;
                l.symbol(':')?;
                Ok((dim, l.arg()?))
            })?,
            order: line.list('[', ']', Line::count)?,
        },
        "tensorize" => Step::Tensorize {
            loop_: line.name()?,
            intrinsic: line.name()?,
        },
        "prefetch" => Step::Prefetch {
            buffer: line.name()?,
            loop_: line.name()?,
            distance: line.arg()?,
        },
        "pad" => Step::Pad {
            loop_: line.name()?,
            multiple: line.arg()?,
        },
        "reindex" => Step::Reindex {
            block: line.name()?,
            buffer: line.name()?,
        },
        "surround" => Step::Surround {
            block: line.name()?,
            buffer: line.name()?,
        },
        "winograd" => Step::Winograd {
            block: line.name()?,
            tile: line.arg()?,
        },
        other => return Err(format!("the step `{other}` cannot be read")),
    })
}

fn factors(line: &mut Line, known: Option<&[Decision]>) -> Result<Vec<Factor>, String> {
    if let Some(Token::Ref(id, None)) = line.peek() {
        let id = *id;
        line.next()?;
        let kind = known.and_then(|d| d.get(id)).map(|d| &d.kind);
        let Some(DecisionKind::PerfectTile { parts, .. }) = kind else {
            return Err(format!("there is no perfect_tile decision {id} above"));
        };
        let factor = |part| Factor::Arg(Arg::Decision { id, part });
        return Ok((0..*parts).map(factor).collect());
    }
    line.list('[', ']', |l| match l.peek() {
        Some(Token::Word(w)) if w == "_" => l.next().map(|_| Factor::Rest),
        _ => l.arg().map(Factor::Arg),
    })
}

/// The tokens of one line, and the place in them.
struct Line {
    tokens: Vec<Token>,
    at: usize,
    /// The decisions referred to so far.
    refs: Vec<usize>,
}

impl Line {
    fn new(text: &str) -> Result<Line, String> {
        let mut tokens = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() && !rest.starts_with(';') {
            let (token, length) = token(rest)?;
            tokens.push(token);
            rest = rest[length..].trim_start();
        }
        Ok(Line {
            tokens,
            at: 0,
            refs: vec![],
        })
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Result<Token, String> {
        let token = self.peek().cloned();
        self.at += 1;
        token.ok_or_else(|| "something is missing at the end".to_string())
    }

    fn end(&self) -> Result<(), String> {
        match self.peek() {
            None => Ok(()),
            Some(t) => Err(format!("{} is too much", shown(t))),
        }
    }

    fn word(&mut self) -> Result<String, String> {
        match self.next()? {
            Token::Word(w) => Ok(w),
            other => Err(format!("{} is not a word", shown(&other))),
        }
    }

    fn keyword(&mut self, wanted: &str) -> Result<(), String> {
        match self.next()? {
            Token::Word(w) if w == wanted => Ok(()),
            other => Err(format!("{} stands for `{wanted}`", shown(&other))),
        }
    }

    fn name(&mut self) -> Result<String, String> {
        match self.next()? {
            Token::Word(w) | Token::Quoted(w) => Ok(w),
            other => Err(format!("{} is not a name", shown(&other))),
        }
    }

    fn int(&mut self) -> Result<i64, String> {
        match self.next()? {
            Token::Int(v) => Ok(v),
            other => Err(format!("{} is not an integer", shown(&other))),
        }
    }

    fn count(&mut self) -> Result<usize, String> {
        let v = self.int()?;
        usize::try_from(v).map_err(|_| format!("{v} is negative"))
    }

    fn takes(&mut self, symbol: char) -> bool {
        let found = self.peek() == Some(&Token::Symbol(symbol));
        self.at += usize::from(found);
        found
    }

    fn symbol(&mut self, wanted: char) -> Result<(), String> {
        if self.takes(wanted) {
            return Ok(());
        }
        let found = self.next()?;
        Err(format!("{} stands for `{wanted}`", shown(&found)))
    }

    fn reference(&mut self, id: usize) -> usize {
        self.refs.push(id);
        id
    }

    fn arg(&mut self) -> Result<Arg, String> {
        match self.next()? {
            Token::Int(v) => Ok(Arg::Lit(v)),
            Token::Ref(id, part) => Ok(Arg::Decision {
                id: self.reference(id),
                part: part.unwrap_or(0),
            }),
            other => Err(format!("{} is neither integer nor decision", shown(&other))),
        }
    }

    fn loop_arg(&mut self) -> Result<LoopArg, String> {
        match self.next()? {
            Token::Word(w) | Token::Quoted(w) => Ok(LoopArg::Name(w)),
            Token::Ref(id, None) => Ok(LoopArg::Decision(self.reference(id))),
            other => Err(format!("{} is neither loop nor decision", shown(&other))),
        }
    }

    fn one_of<T: Copy>(&mut self, table: &[(T, &'static str)]) -> Result<T, String> {
        let word = self.word()?;
        let found = table.iter().find(|(_, w)| *w == word);
        found.map(|(v, _)| *v).ok_or_else(|| {
            let words: Vec<&str> = table.iter().map(|(_, w)| *w).collect();
            format!("`{word}` is none of {}", words.join(", "))
        })
    }

    fn list<T>(
        &mut self,
        open: char,
        close: char,
        item: impl Fn(&mut Line) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        self.symbol(open)?;
        let mut out = Vec::new();
        while !self.takes(close) {
            if !out.is_empty() {
                self.symbol(',')?;
            }
            out.push(item(self)?);
        }
        Ok(out)
    }
}

fn shown(t: &Token) -> String {
    match t {
        Token::Word(w) => format!("`{w}`"),
        Token::Quoted(w) => format!("{w:?}"),
        Token::Int(v) => format!("`{v}`"),
        Token::Ref(id, None) => format!("`${id}`"),
        Token::Ref(id, Some(part)) => format!("`${id}.{part}`"),
        Token::Symbol(c) => format!("`{c}`"),
    }
}

/// The first token of a non-empty text and its length in bytes.
fn token(text: &str) -> Result<(Token, usize), String> {
    let take = |from: usize, f: fn(char) -> bool| {
        let end = text[from..].find(|c| !f(c));
        end.map_or(text.len(), |n| from + n)
    };
    let digit: fn(char) -> bool = |c| c.is_ascii_digit();
    let first = text.chars().next().unwrap_or(' ');
    if first.is_ascii_alphabetic() || first == '_' {
        let end = take(0, |c| {
            c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '&' | '~')
        });
        return Ok((Token::Word(text[..end].to_string()), end));
    }
    if first == '"' {
        return quoted(text);
    }
    if first.is_ascii_digit() || first == '-' {
        let end = take(1, digit);
        let value = text[..end].parse();
        let value = value.map_err(|_| format!("`{}` is not an integer", &text[..end]))?;
        return Ok((Token::Int(value), end));
    }
    if first == '$' {
        let end = take(1, |c| c.is_ascii_digit() || c == '.');
        let (id, part) = match text[1..end].split_once('.') {
            Some((id, part)) => (id, Some(part)),
            None => (&text[1..end], None),
        };
        let wrong = |_| format!("`{}` is not a decision", &text[..end]);
        let part = part.map(|p| p.parse().map_err(wrong)).transpose()?;
        return Ok((Token::Ref(id.parse().map_err(wrong)?, part), end));
    }
    if "[](),:=.".contains(first) {
        return Ok((Token::Symbol(first), 1));
    }
    Err(format!("`{first}` has no meaning here"))
}

fn quoted(text: &str) -> Result<(Token, usize), String> {
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Token::Quoted(out), at + 1)),
            '\\' => match chars.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, 'r')) => out.push('\r'),
                Some((_, c @ ('"' | '\\'))) => out.push(c),
                _ => return Err("a quoted name has a wrong escape".into()),
            },
            c => out.push(c),
        }
    }
    Err("a quoted name has no end".into())
}
