//! The text form: everything prints and parses back, canonical text forgets
//! names only, wrong text is refused with its place and never panics.

mod support;

use ir::text::{canonical, parse, print};
use ir::{
    BinaryOp, DType, Expr, ExprKind, Node, Program, ProgramBuilder, Reducer, Role, UnaryOp, View,
};
use proptest::prelude::*;
use support::{ARGMAX, CONV, DOT, TEXTS, same};

fn round_trip(p: &Program) {
    let text = print(p);
    let back = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    if let Err(difference) = same(p, &back) {
        panic!("{difference}\n{text}");
    }
    assert_eq!(print(&back), text);
}

#[test]
fn printed_layout_is_the_written_one() {
    for text in TEXTS {
        let p = parse(text).unwrap();
        assert_eq!(print(&p), text);
        round_trip(&p);
    }
}

#[test]
fn layout_and_comments_do_not_matter() {
    let squeezed = CONV.replace('\n', " ; a remark\n").replace(", ", ",");
    let joined = CONV.replace("\n", " ");
    assert_eq!(print(&parse(&squeezed).unwrap()), CONV);
    assert_eq!(print(&parse(&joined).unwrap()), CONV);
}

#[test]
fn built_programs_round_trip() {
    let mut b = ProgramBuilder::new("softmax rows");
    let x = b.input("x", DType::F32, &[3, 5]);
    let load = |t, s: &[Expr]| Expr::load(t, s.to_vec());
    let max = b.reduce("m", &[("i", 3)], &[("j", 5)], Reducer::Max, |s, r| {
        Expr::load(x, [s[0].clone(), r[0].clone()])
    });
    let e = b.compute("e", &[("i", 3), ("j", 5)], |s| {
        Expr::unary(UnaryOp::Exp, load(x, s) - load(max, &s[..1]))
    });
    let p = b.finish(&[e, max]);
    assert_eq!(p.buffer(max).role, Role::Output);
    round_trip(&p);
}

#[test]
fn unused_arena_entries_are_not_printed() {
    let mut p = parse(ARGMAX).unwrap();
    let printed = print(&p);
    p.add_var("gone");
    p.new_loop("gone", 3, vec![]);
    let mut dead = p.buffer(p.params[0]).clone();
    (dead.name, dead.role) = ("gone".into(), Role::Intermediate);
    p.add_buffer(dead);
    assert_eq!(print(&p), printed);
}

/// The conv text under other names; every name is a word of its own here.
fn renamed() -> String {
    let names = [
        ("relu.n&k", "q"),
        ("relu.y.0", "\"conv x\""),
        ("relu.y.1", "w"),
        ("relu.x", "conv.x"),
        ("conv.y", "conv"),
        ("conv.x", "a"),
        ("conv.c", "bb"),
        ("conv.r", "relu.r"),
        ("conv.s", "\"\""),
        ("conv", "T"),
        ("relu", "conv"),
        ("X", "W"),
        ("W", "X"),
        ("B", "_"),
        ("x", "horizontal"),
    ];
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.&~".contains(c);
    let mut out = String::new();
    let mut rest = CONV;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end.max(1));
        let new = names.iter().find(|(old, _)| *old == word);
        out.push_str(new.map_or(word, |(_, new)| new));
        rest = tail;
    }
    out
}

#[test]
fn canonical_text_forgets_names() {
    let (p, q) = (parse(CONV).unwrap(), parse(&renamed()).unwrap());
    assert!(same(&p, &q).is_err());
    assert_eq!(canonical(&p), canonical(&q));
    for text in TEXTS {
        let canonical_text = canonical(&parse(text).unwrap());
        let again = parse(&canonical_text).unwrap();
        assert_eq!(canonical(&again), canonical_text);
        assert_eq!(ir::verify::verify(&again), vec![]);
    }
}

#[test]
fn canonical_text_keeps_all_else() {
    let edits = [
        ("input X", "constant X"),
        ("f32[64]", "f64[64]"),
        ("[1, 64, 56, 56]", "[1, 64, 56, 58]"),
        ("offset 128", "offset 129"),
        ("strides [200704, 3136, 56, 1] offset 128", ""),
        ("54] local", "54]"),
        ("64 parallel", "64"),
        ("unroll_by 2", "unroll_by 3"),
        ("prefetch X", "prefetch W"),
        ("conv.y in 0..4", "conv.y in 0..5"),
        ("unrolled", ""),
        ("sum init", "sum"),
        ("sum init", "max init"),
        ("y + r", "r + y"),
        ("B[k], 0.0", "B[k], 1.0"),
        ("reduce 3 = conv.r", "spatial 3 = conv.r"),
        (" where (relu.y.0 * 4 + conv.y < 54)", ""),
        (
            "constant W: f32[64, 64, 3, 3]\n  constant B: f32[64]",
            "constant B: f32[64]\n  constant W: f32[64, 64, 3, 3]",
        ),
    ];
    let base = canonical(&parse(CONV).unwrap());
    for (old, new) in edits {
        let edited = CONV.replacen(old, new, 1);
        assert_ne!(edited, CONV, "{old}");
        assert_ne!(canonical(&parse(&edited).unwrap()), base, "{old} -> {new}");
    }
    let dot = canonical(&parse(DOT).unwrap());
    let other = DOT.replace("dot4.u8i8i32", "dot4.i8i8i32");
    assert_ne!(canonical(&parse(&other).unwrap()), dot);
}

/// Old and new text, and the error then.
const ERRORS: &[(&str, &str, &str)] = &[
    (
        "program conv {",
        "module conv {",
        "1:1: expected `program`, found `module`",
    ),
    (
        "input X",
        "input 5",
        "2:9: expected the name of a buffer, found the number 5",
    ),
    (
        "constant B",
        "constant W",
        "4:12: expected the name of a new buffer, found `W`",
    ),
    (
        "B: f32",
        "B: float",
        "4:15: expected an element type (f32, f64, f16, bf16, i8, u8, i32, i64, bool, i16, u16, u32, u64), found `float`",
    ),
    (
        "f32[64]\n",
        "f32[64\n",
        "5:3: expected `,` or `]`, found `output`",
    ),
    (
        "in 0..64",
        "in 1..64",
        "7:19: expected `0`, found the number 1",
    ),
    (
        "0..64 parallel",
        "0..64 quickly",
        "7:25: expected a loop kind, `unroll_by`, `prefetch` or `{`, found `quickly`",
    ),
    (
        "0..14",
        "0..1.5",
        "8:24: expected the extent of the loop, found the number 1.5",
    ),
    (
        "prefetch X",
        "prefetch Q",
        "8:48: expected the name of a declared buffer, found `Q`",
    ),
    (
        "for conv.y in",
        "for relu.y.0 in",
        "9:11: expected a name that no enclosing loop has, found `relu.y.0`",
    ),
    (
        "y: spatial 54 = relu.y.0",
        "y: spatial 54 = relu.x",
        "14:89: expected a variable in scope, found `relu.x`",
    ),
    (
        "r: reduce",
        "c: reduce",
        "14:159: expected a name that no other variable of the block has, found `c`",
    ),
    (
        "W[k, c, r, s]",
        "W[k, c, r, s] +",
        "16:17: expected an expression, found `}`",
    ),
    (
        "max(conv",
        "most(conv",
        "25:32: expected a function of 2 operands, found `most`",
    ),
    (
        "0.0",
        "1e99",
        "25:61: expected a number that f32 holds, found the number 1e99",
    ),
    (
        "0.0",
        "300_i8",
        "25:61: expected a number that i8 holds, found the number 300",
    ),
    (
        "0.0",
        "$0",
        "25:61: expected `$` only in a tuple reducer, or with its type, found `$0`",
    ),
    (
        "0.0",
        "0.0_f31",
        "25:64: expected an element type after `_`, found `f31`",
    ),
    (
        "0.0",
        "0 > 1",
        "25:63: expected a name, a number or an operator, found '>'",
    ),
    (
        "0.0",
        "\"a",
        "25:64: expected `\"` at the end of the name, found '\\n'",
    ),
    (
        "0.0",
        "Ω",
        "25:61: expected a name, a number or an operator, found 'Ω'",
    ),
];

#[test]
fn errors_say_where_and_what() {
    for (old, new, expected) in ERRORS {
        let text = CONV.replacen(old, new, 1);
        assert_ne!(text, CONV, "{old}");
        let e = parse(&text).expect_err(new);
        let found = format!(
            "{}:{}: expected {}, found {}",
            e.line, e.column, e.expected, e.found
        );
        assert_eq!(found, *expected, "{old} -> {new}");
    }
    let cut = &CONV[..CONV.len() - 2];
    let message = parse(cut).unwrap_err().to_string();
    assert_eq!(
        message,
        "line 31, column 1: expected `for`, `block` or `}`, found the end of the text"
    );
    let twice = format!("{CONV}{CONV}");
    assert!(
        parse(&twice)
            .unwrap_err()
            .to_string()
            .contains("the end of the text, found `program`")
    );
}

#[test]
fn writes_of_a_block_agree_on_their_reducer() {
    let text = ARGMAX.replace("best.1[i] tuple init", "best.1[i] tuple");
    assert_eq!(
        parse(&text).unwrap_err().expected,
        "the reducer of the block's first write"
    );
}

#[test]
fn deep_text_is_refused() {
    let n = 100_000;
    let values = [
        format!("{}1{}", "(".repeat(n), ")".repeat(n)),
        format!("{}x", "-".repeat(n)),
        format!("1{}", " + 1".repeat(n)),
        format!("{}1{}", "exp(".repeat(n), ")".repeat(n)),
        format!("{}1{}", "1 + (".repeat(n), ")".repeat(n)),
        format!("{}0{}", "Y[".repeat(n), "]".repeat(n)),
    ];
    for v in values {
        let text = format!("program p {{ output Y: f32[1] block b [] {{ Y[0] = {v} }} }}");
        assert!(parse(&text).is_err());
    }
    let loops: String = (0..n).map(|i| format!("for l{i} in 0..1 {{ ")).collect();
    assert!(parse(&format!("program p {{ {loops}")).is_err());
}

#[test]
fn deep_enough_text_is_accepted() {
    let sum = format!("1{}", " + 1".repeat(900));
    let nested = format!("{}1{}", "1 + (".repeat(90), ")".repeat(90));
    for v in [sum, nested] {
        let text = format!("program p {{ output Y: f32[1] block b [] {{ Y[0] = {v} }} }}");
        round_trip(&parse(&text).unwrap());
    }
}

const NAMES: [&str; 12] = [
    "a",
    "x.0",
    "a&b",
    "x~lo",
    "and",
    "inf",
    "nan_f64",
    "bits",
    "min",
    "",
    "a b\"\\\n\r",
    "0é",
];

/// One block over two loops and two buffers with awkward names; the value is for the caller.
fn host(names: &[usize], value: impl Fn(&[Expr], &[ir::BufferId]) -> Expr) -> Program {
    let name = |i: usize| NAMES[names[i] % NAMES.len()];
    let mut b = ProgramBuilder::new(name(0));
    let u = b.input(&format!("u{}", name(1)), DType::I64, &[4, 4]);
    let v = b.constant(name(2), DType::F64, &[]);
    let axes = [(name(3), 4), ("other", 4)];
    let out = b.compute("out", &axes, |s| value(s, &[u, v]));
    let mut p = b.finish(&[out]);
    p.buffer_mut(u).view = Some(View {
        strides: vec![-4, 0],
        offset: 16,
    });
    p
}

#[derive(Clone, Debug)]
enum Tree {
    Leaf(u8, u64, u8),
    Unary(usize, Box<Tree>),
    Cast(usize, Box<Tree>),
    Binary(usize, Box<Tree>, Box<Tree>),
    Select(Box<Tree>, Box<Tree>, Box<Tree>),
    Load(bool, Box<Tree>, Box<Tree>),
}

fn trees() -> impl Strategy<Value = Tree> {
    let specials = prop_oneof![
        Just(0u64),
        Just(1 << 63),
        Just(f64::INFINITY.to_bits()),
        Just(f64::NEG_INFINITY.to_bits()),
        Just(f64::NAN.to_bits()),
        Just(f64::NAN.to_bits() | 1 << 63),
        Just(1.5f64.to_bits()),
        Just(f64::from(0.1f32).to_bits()),
        Just(f64::from(f32::MIN_POSITIVE).to_bits()),
        any::<f32>().prop_map(|v| f64::from(v).to_bits()),
        any::<u64>(),
        0u64..20,
    ];
    let leaf = (any::<u8>(), specials, any::<u8>()).prop_map(|(k, b, d)| Tree::Leaf(k, b, d));
    leaf.prop_recursive(6, 60, 3, |t| {
        let t = t.prop_map(Box::new);
        prop_oneof![
            (0..12usize, t.clone()).prop_map(|(o, a)| Tree::Unary(o, a)),
            (0..DType::ALL.len(), t.clone()).prop_map(|(d, a)| Tree::Cast(d, a)),
            (0..15usize, t.clone(), t.clone()).prop_map(|(o, a, b)| Tree::Binary(o, a, b)),
            (t.clone(), t.clone(), t.clone()).prop_map(|(c, a, b)| Tree::Select(c, a, b)),
            (any::<bool>(), t.clone(), t).prop_map(|(w, a, b)| Tree::Load(w, a, b)),
        ]
    })
}

fn build(t: &Tree, vars: &[Expr], buffers: &[ir::BufferId]) -> Expr {
    let go = |t: &Tree| build(t, vars, buffers);
    match t {
        Tree::Leaf(kind, bits, d) => {
            let d = DType::ALL[usize::from(*d) % DType::ALL.len()];
            match (kind % 4, d.is_float()) {
                (0, _) => vars[usize::from(*kind) / 4 % vars.len()].clone(),
                (1, _) => Expr::arg(*bits as u32 % 7, d),
                (_, true) => ExprKind::Float(*bits, d).into(),
                (_, false) => {
                    let v = match d {
                        DType::I8 => i64::from(*bits as i8),
                        DType::U8 => i64::from(*bits as u8),
                        DType::I32 => i64::from(*bits as i32),
                        DType::I16 => i64::from(*bits as i16),
                        DType::U16 => i64::from(*bits as u16),
                        DType::U32 => i64::from(*bits as u32),
                        DType::Bool => (*bits & 1) as i64,
                        _ => *bits as i64,
                    };
                    ExprKind::Int(v, d).into()
                }
            }
        }
        Tree::Unary(o, a) => Expr::unary(UnaryOp::ALL[*o], go(a)),
        Tree::Cast(d, a) => go(a).cast(DType::ALL[*d]),
        Tree::Binary(o, a, b) => Expr::binary(BinaryOp::ALL[*o], go(a), go(b)),
        Tree::Select(c, a, b) => Expr::select(go(c), go(a), go(b)),
        Tree::Load(true, a, b) => Expr::load(buffers[0], [go(a), go(b)]),
        Tree::Load(false, ..) => Expr::load(buffers[1], []),
    }
}

proptest! {
    #[test]
    fn any_expression_round_trips(t in trees(), names in prop::collection::vec(0usize..100, 4)) {
        round_trip(&host(&names, |vars, buffers| build(&t, vars, buffers)));
    }

    /// Whatever the text, the parser answers; what it accepts prints and parses back, and
    /// the verifier answers too.
    #[test]
    fn mutated_text_never_panics(
        which in 0..TEXTS.len(),
        edits in prop::collection::vec((any::<u32>(), 0..6u8, any::<u32>(), any::<char>()), 1..4),
    ) {
        let mut text: Vec<char> = TEXTS[which].chars().collect();
        for (at, how, other, c) in edits {
            let (at, other) = (at as usize % text.len(), other as usize % text.len());
            match how {
                0 => text[at] = c,
                1 if text.len() > 1 => { text.remove(at); }
                2 => text[at] = text[other],
                3 => text.insert(at, text[other]),
                4 => text.truncate(at.max(1)),
                _ => { let c = ['-', '9', '$', '0', '"', '(', '[', 'e', '~'][other % 9]; text.insert(at, c); }
            }
        }
        let text: String = text.into_iter().collect();
        if let Ok(p) = parse(&text) {
            let printed = print(&p);
            prop_assert_eq!(print(&parse(&printed).unwrap()), printed);
            ir::verify::verify(&p);
        }
    }
}

#[test]
fn blocks_at_the_root_print() {
    let p = parse(DOT).unwrap();
    assert!(matches!(p.body[0], Node::Block(_)));
}
