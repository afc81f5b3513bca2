//! The text form of programs: printing, canonical text, parsing.
//!
//! `parse(&print(p))` gives a program equal to `p` up to the numbering of the
//! arenas (whose dead entries are not printed), for every program that the
//! verifier accepts. The parser builds; it does not verify.
//!
//! ```text
//! program   = "program" name "{" buffer* node* "}"
//! buffer    = role name ":" dtype shape scope? ("strides" shape "offset" int)?
//! role      = "input" | "constant" | "output" | "intermediate"
//! scope     = "local" | "register" | "shared" | "warp"
//! shape     = "[" int,* "]"
//! node      = "for" name "in" "0" ".." int kind? annotation* "{" node* "}"
//!           | "block" name "[" iter,* "]" ("where" "(" expr ")")?
//!             ("tensor" name "[" point,* "]")? "{" write* combine* "}"
//! kind      = "parallel" | "vectorized" | "unrolled" | "bound" axis
//! annotation= "unroll_by" int | "prefetch" name int
//! iter      = name ":" ("spatial" | "reduce") int "=" expr
//! point     = name ":" ("spatial" | "reduce") int
//! write     = name "[" expr,* "]" (reducer "init"?)? "=" expr
//! reducer   = "sum" | "prod" | "min" | "max" | "tuple"
//! combine   = "combine" expr "from" expr      (one a write of a tuple reducer)
//! ```
//!
//! Parameters come first, in argument order; then the intermediates in order
//! of first appearance. The writes of a block agree on reducer and `init`.
//! Expressions use `or`, `and`, comparisons, `+ -`, `* / // %` and prefix `-`
//! from weak to strong, all left-associative; every other operator, `select`
//! and conversions (`f32(x)`) are calls. Constants without a suffix are `i64`
//! or `f32`; others carry their type, as in `3_i32`, `0.5_f64`, `inf_f16`.
//! `$0` is an argument of a tuple reducer; its type is that of the matching
//! write unless a suffix says otherwise. `bits(0x…, f32)` is a constant that
//! no decimal denotes.
//!
//! A bare name starts with a letter or `_` and goes on with letters, digits
//! and `_ . & ~`; any other name is quoted. `;` starts a comment.

mod lex;
mod parse;
mod print;

pub use lex::ParseError;
pub use parse::parse;
pub use print::{canonical, expr, literal, print};

use tensor::DType;

/// Words that are not bare names, because an expression or a block reads them otherwise.
const RESERVED: [&str; 8] = [
    "and", "or", "true", "false", "inf", "nan", "bits", "combine",
];

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '&' | '~')
}

/// The element type of `inf`, `nan_f64` and their like.
fn named_float(word: &str) -> Option<(f64, DType)> {
    let (value, rest) = if let Some(rest) = word.strip_prefix("inf") {
        (f64::INFINITY, rest)
    } else {
        (f64::NAN, word.strip_prefix("nan")?)
    };
    let dtype = match rest.strip_prefix('_') {
        Some(d) => d.parse().ok().filter(|d: &DType| d.is_float())?,
        None if rest.is_empty() => DType::F32,
        None => return None,
    };
    Some((value, dtype))
}

fn is_bare_name(name: &str) -> bool {
    name.starts_with(is_name_start)
        && name.chars().all(is_name_char)
        && !RESERVED.contains(&name)
        && named_float(name).is_none()
}
