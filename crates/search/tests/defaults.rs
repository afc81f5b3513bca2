//! What comes first without tuning, for kinds of operators whose defaults once lagged.

use graph::ops::{
    Binary, Combine, Concat, GridSample, Interpolation, Op, Outside, Reduce, ReduceKind,
    ScatterElements,
};
use graph::{Model, Narrowed, Requantised, products_of_bf16};
use ir::{CpuTarget, HalfDot, Isa, Target, TileDot};
use plan::{LayoutPolicy, plan};
use search::{Accuracy, Sketch, space};
use tensor::DType;

/// The first sketch of the task of an operator that is of kind `op`.
fn first(name: &str, op: &str) -> Sketch {
    let model = graph::builtin::builtin(name, 1).unwrap();
    let target = Target::generic(Isa::X86Avx512).with_threads(1);
    first_of(&model, &target, op)
}

/// The same in bf16 on a target with tiles.
fn first_in_tiles(name: &str, op: &str) -> Sketch {
    let model = graph::builtin::builtin(name, 1).unwrap();
    let model = products_of_bf16(&model, Requantised::Folded, Narrowed::All);
    let target = CpuTarget {
        half_dot: Some(HalfDot::Avx512Bf16),
        tile_dot: Some(TileDot::Amx),
        l2_bytes: 2 << 20,
        ..CpuTarget::generic(TileDot::Amx.isa())
    };
    first_of(&model, &Target::Cpu(target).with_threads(1), op)
}

fn first_of(model: &Model, target: &Target, op: &str) -> Sketch {
    let plan = plan(model, target, &LayoutPolicy::Blocked.into()).unwrap();
    let task = plan.tasks.iter().find(|t| t.op == op).unwrap();
    let mut all = space(&task.program, target, Accuracy::Strict).sketches;
    all.swap_remove(0)
}

/// The steps of a sketch, a line each.
fn steps(sketch: &Sketch) -> String {
    sketch.steps.iter().map(|s| format!("{s}\n")).collect()
}

/// What a decision of a sketch is by default: the innermost part of it.
fn decided(sketch: &Sketch, decision: &str) -> i64 {
    let mut decisions = sketch.decisions.iter();
    let found = decisions.find(|d| d.name == decision).unwrap();
    *found.value.last().unwrap()
}

#[test]
fn plain_images_become_blocks_by_transposes() {
    for name in [
        "op:conv2d(c=64,h=28,w=28,k=64)",
        "op:conv2d(c=320,h=7,w=7,k=32)",
        "op:conv2d(c=80,h=15,w=20,k=64)",
    ] {
        assert_eq!(
            first(name, "layout_transform").name,
            "transpose.write",
            "{name}"
        );
    }
}

#[test]
fn images_beyond_the_second_level_cache_are_read_once() {
    let first = |name: &str| first_in_tiles(name, "conv2d").name;
    let far = [
        "op:conv2d(c=1024,h=64,w=64,k=256,r=1,s=1,pad=0)",
        "op:conv2d(c=64,h=160,w=160,k=64)",
    ];
    assert_eq!(
        far.map(first),
        ["bf16.tiles.rows", "bf16.tiles.rows.copied"]
    );
    let near = "op:conv2d(c=256,h=14,w=14,k=1024,r=1,s=1,pad=0)";
    assert_eq!(first(near), "bf16.tiles.columns.copied");
}

#[test]
fn a_tile_has_several_rows_of_pixels_where_these_are_short() {
    let tile = |name: &str| {
        let sketch = first(name, "conv2d");
        ["y", "x", "k"].map(|d| decided(&sketch, d))
    };
    assert_eq!(tile("op:conv2d(c=320,h=7,w=7,k=1280,r=1,s=1)"), [2, 7, 2]);
    assert_eq!(tile("op:conv2d(c=64,h=7,w=7,k=64,pad=1)"), [2, 7, 2]);
    // One row is long enough for a tile.
    assert_eq!(tile("op:conv2d(c=64,h=14,w=14,k=64,pad=1)"), [1, 14, 2]);
}

#[test]
fn blocks_of_maps_share_the_lines_of_an_image_that_is_far() {
    let tile = |name: &str| {
        let sketch = first(name, "conv2d");
        ["y", "x", "k"].map(|d| decided(&sketch, d))
    };
    let apart = "op:conv2d(c=288,h=35,w=35,k=384,stride=2,pad=0)";
    assert_eq!(tile(apart), [1, 9, 3]);
    let apart = "op:conv2d(c=96,h=39,w=39,k=128,stride=2,pad=0)";
    assert_eq!(tile(apart), [1, 10, 2]);
    // A near image leaves the widest tile, and so do windows whose terms share lines.
    let near = "op:conv2d(c=16,h=17,w=17,k=64,pad=1)";
    assert_eq!(tile(near), [1, 17, 1]);
    let shared = "op:conv2d(c=128,h=17,w=17,k=128,pad=1)";
    assert_eq!(tile(shared), [1, 17, 1]);
}

#[test]
fn groups_of_more_channels_than_128_bits_begin_with_rules() {
    let starts = |name: &str, with: &str| {
        let sketch = first(name, "grouped_conv2d");
        assert!(sketch.name.starts_with(with), "{name}: {}", sketch.name);
    };
    starts("op:grouped_conv2d(c=256,h=28,w=28,k=256,pad=1)", "rules.");
    starts("op:grouped_conv2d(c=128,h=28,w=28,k=128,pad=1)", "direct.");
    // The tile of rules is too wide.
    let long = "op:grouped_conv2d(c=128,h=56,w=56,k=128,groups=16,pad=1)";
    starts(long, "direct.");
}

/// Of far operands a tile of windows reads as many lines as are on their way at a time.
#[test]
fn a_tile_of_windows_waits_for_few_lines() {
    let rows = |name: &str, op: &str| decided(&first(name, op), "tile_y");
    let far = rows(
        "op:max_pool3d(c=128,d=16,h=56,w=56,q=2,r=2,s=2)",
        "max_pool3d",
    );
    assert!(far <= 2, "{far} rows");
    let near = rows("op:max_pool3d(c=4,d=4,h=56,w=56,q=2,r=2,s=2)", "max_pool3d");
    assert!(near > far, "{near} rows");
}

/// A constant that comes from memory is fetched ahead for few rows; many rows hide it.
#[test]
fn products_of_few_rows_fetch_large_constants_ahead() {
    let ahead = |name: &str| decided(&first(name, "dense"), "prefetch");
    assert!(ahead("op:dense(m=49,n=768,k=768)") > 0);
    assert!(ahead("op:dense(m=16,n=768,k=3072)") > 0);
    assert_eq!(ahead("op:dense(m=1500,n=768,k=768)"), 0);
    // A small constant stays in the second-level cache, and has nothing to fetch.
    let small = first("op:dense(m=49,n=64,k=64)", "dense");
    assert!(small.decisions.iter().all(|d| d.name != "prefetch"));
}

/// Of a tile with several blocks of maps, each term's weights lie beside each other.
#[test]
fn the_weights_of_a_tile_are_one_stream() {
    let name = "op:conv2d(c=160,h=7,w=7,k=960,r=1,s=1)";
    let model = graph::builtin::builtin(name, 1).unwrap();
    let target = Target::generic(Isa::X86Avx512).with_threads(1);
    let plan = plan(&model, &target, &LayoutPolicy::Blocked.into()).unwrap();
    let task = plan.tasks.iter().find(|t| t.op == "conv2d").unwrap();
    let default = search::default_candidate(&task.program, &target, Accuracy::Strict).unwrap();
    let program = schedule::replay(&task.program, &default.candidate.trace).unwrap();
    let mut shapes = program.buffer_ids().map(|b| &program.buffer(b).shape);
    // Tiles, terms, blocks of maps, lanes.
    assert!(shapes.any(|shape| shape[..] == [30, 10, 1, 1, 16, 2, 16]));
}

/// Terms that are less than a page apart are on as many pages together.
#[test]
fn operands_of_a_contraction_whose_terms_are_on_many_pages_are_copied() {
    let sketch = |spec: &str| first(&format!("op:contract(spec={spec})"), "contract");
    let copied = |spec: &str| {
        let text = steps(&sketch(spec));
        ["pack A ", "pack B "].map(|step| text.contains(step))
    };
    let large = "abcd,cbe->aed,a=4,b=12,c=64,d=197,e=768";
    assert_eq!(copied(large), [true, true]);
    // Few terms are on few pages, whatever the number of results.
    let few = "abcd,cbe->aed,a=64,b=1,c=4,d=196,e=768";
    assert_eq!(copied(few), [false, false]);
}

/// Columns of an update go inside the updates, so that rows are read as they lie, for any number of columns.
#[test]
fn updates_go_along_rows() {
    for columns in [61, 64, 300, 6007] {
        let name = format!("op:scatter_add(table=100,rows=1000,cols={columns})");
        let text = steps(&first(&name, "scatter_elements"));
        let order = text.lines().find(|l| l.contains("reorder updates.i1"));
        let order = order.unwrap_or_else(|| panic!("{text}"));
        let (outside, inside) = order.split_once("updates.u0").unwrap();
        assert!(outside.split_whitespace().count() < 3, "{order}");
        assert!(inside.contains("updates.i1"), "{order}");
    }
}

/// Updates along the last axis of a table go row by row, as updates and indices lie.
#[test]
fn updates_within_a_row_go_row_by_row() {
    for (combine, columns) in [
        (Combine::Replace, 512),
        (Combine::Add, 61),
        (Combine::Max, 7),
    ] {
        let mut model = Model::new("scatter", 0);
        let x = model.add_input("x", DType::F32, &[100, 64]);
        let indices = model.add_input("indices", DType::I64, &[100, columns]);
        let updates = model.add_input("updates", DType::F32, &[100, columns]);
        let scatter = Op::ScatterElements(ScatterElements { axis: 1, combine });
        let y = model.add("y", scatter, &[x, indices, updates]).unwrap();
        model.add_output(y);
        let target = Target::generic(Isa::X86Avx512).with_threads(1);
        let text = steps(&first_of(&model, &target, "scatter_elements"));
        let moves = |l: &&str| l.contains("updates.u0") && l.starts_with("reorder");
        assert_eq!(text.lines().filter(moves).count(), 0, "{text}");
        assert!(!text.contains("split updates"), "{text}");
    }
}

/// What a program turns to another order before or behind its sum goes in tiles, also where it scales that.
#[test]
fn images_are_turned_in_tiles_inside_a_program() {
    let mut model = Model::new("sample", 0);
    let x = model.add_input("x", DType::F32, &[1, 32, 20, 20]);
    let grid = model.add_input("grid", DType::F32, &[1, 16, 40, 2]);
    let mask = model.add_input("mask", DType::F32, &[1, 1, 16, 40]);
    let sample = GridSample {
        interpolation: Interpolation::Linear,
        outside: Outside::Zeros,
        align_corners: false,
    };
    let sampled = model
        .add("sampled", Op::GridSample(sample), &[x, grid])
        .unwrap();
    let masked = Op::Binary(Binary::Mul);
    let y = model.add("y", masked, &[sampled, mask]).unwrap();
    model.add_output(y);
    let target = Target::generic(Isa::X86Avx512).with_threads(1);
    let text = steps(&first_of(&model, &target, "grid_sample_linear"));
    for block in ["channels_last.i2", "out.i1"] {
        // The rows of a tile, which are unrolled.
        let rows = |l: &&str| l.starts_with(&format!("unroll {block}"));
        assert_eq!(text.lines().filter(rows).count(), 1, "{block} in {text}");
    }
}

/// Two operands of a type, and what an operator makes of them.
fn of_two(dtype: DType, shape: &[usize], op: Op) -> Model {
    let mut m = Model::new("two", 0);
    let [x, y] = ["x", "y"].map(|name| m.add_input(name, dtype, shape));
    let z = m.add("op", op, &[x, y]).unwrap();
    m.add_output(z);
    m
}

#[test]
fn vectors_are_as_wide_as_the_widest_value_lets_them() {
    let concat = || Op::Concat(Concat { axis: 0 });
    let lanes = |model: &Model, isa: Isa, op: &str| {
        let sketch = first_of(model, &Target::generic(isa).with_threads(1), op);
        let steps = steps(&sketch);
        let split = steps.lines().find(|l| l.starts_with("split")).unwrap();
        let (_, width) = split.rsplit_once(", ").unwrap();
        width.trim_end_matches(']').parse::<i64>().unwrap()
    };
    for (isa, bytes, words, floats) in [
        (Isa::X86Avx512, 64, 32, 16),
        (Isa::X86Avx2, 32, 16, 8),
        (Isa::AArch64Neon, 16, 8, 4),
        (Isa::RiscV64Rvv, 32, 16, 8),
    ] {
        let shape = [2, 1 << 12];
        for (dtype, width) in [
            (DType::U8, bytes),
            (DType::Bool, bytes),
            (DType::I16, words),
            (DType::F32, floats),
            (DType::I64, floats),
        ] {
            let found = lanes(&of_two(dtype, &shape, concat()), isa, "concat");
            assert_eq!(found, width, "{isa:?} {dtype:?}");
        }
        // Comparisons give bytes, and are as wide as what they compare.
        for (dtype, width) in [(DType::I8, bytes), (DType::F32, floats)] {
            let less = of_two(dtype, &shape, Op::Binary(Binary::Less));
            assert_eq!(lanes(&less, isa, "elementwise"), width, "{isa:?} {dtype:?}");
        }
    }
}

/// Without masks of bytes, what is no whole vector is written one by one: a wide vector would leave more of it.
#[test]
fn rows_that_no_wide_vector_divides_have_narrow_ones() {
    let model = |row| of_two(DType::U8, &[3, row], Op::Concat(Concat { axis: 0 }));
    let last = |row, isa| {
        let sketch = first_of(&model(row), &Target::generic(isa).with_threads(1), "concat");
        steps(&sketch)
    };
    assert!(last(56, Isa::X86Avx2).contains(", 8]"));
    assert!(last(48, Isa::X86Avx2).contains(", 16]"));
    assert!(last(96, Isa::X86Avx2).contains(", 32]"));
    assert!(last(56, Isa::X86Avx512).contains(", 64]"));
}

/// Vectors of a short row of two operands have code of their own: each knows which operand it reads.
#[test]
fn rows_of_two_operands_are_written_out() {
    let is_written_out = |row| {
        let joined = of_two(DType::F32, &[3, row], Op::Concat(Concat { axis: 1 }));
        let target = Target::generic(Isa::X86Avx512).with_threads(1);
        steps(&first_of(&joined, &target, "concat")).contains("unroll")
    };
    assert!(is_written_out(40));
    assert!(!is_written_out(4000));
}

/// The pass over an only row fetches what comes next of the row, as behind it lies nothing of its operand.
#[test]
fn an_only_row_is_fetched_ahead_of_itself() {
    let ahead = |rows: usize| {
        let mut m = Model::new("greatest", 0);
        let x = m.add_input("x", DType::F32, &[rows, 1 << 20]);
        let reduce = Op::Reduce(Reduce {
            kind: ReduceKind::Max,
            axes: vec![1],
            keepdims: false,
        });
        let y = m.add("max", reduce, &[x]).unwrap();
        m.add_output(y);
        let target = Target::generic(Isa::X86Avx512).with_threads(1);
        let plan = plan(&m, &target, &LayoutPolicy::Blocked.into()).unwrap();
        let all = space(&plan.tasks[0].program, &target, Accuracy::Strict).sketches;
        decided(all.iter().find(|s| s.name == "rows").unwrap(), "ahead")
    };
    assert!((1..=32).contains(&ahead(1)));
    assert!(ahead(8) > 32);
}
