//! Which outputs may have the memory of an input.

use ir::Program;
use schedule::in_place;

/// out[i, j] = body, for 10 by 6 elements; `sum` is x summed over the rows.
fn program(body: &str) -> Program {
    let text = format!(
        "program p {{
  input x: f32[10, 6]
  input y: f32[10, 6]
  input z: f32[6]
  output out: f32[10, 6]
  intermediate sum: f32[6]
  for sum.j in 0..6 {{
    for sum.i in 0..10 {{
      block sum [j: spatial 6 = sum.j, i: reduce 10 = sum.i] {{
        sum[j] sum init = x[i, j]
      }}
    }}
  }}
  for out.i in 0..10 {{
    for out.j in 0..6 {{
      block out [i: spatial 10 = out.i, j: spatial 6 = out.j] {{
        out[i, j] = {body}
      }}
    }}
  }}
}}"
    );
    ir::text::parse(&text).expect("a program")
}

fn pairs(p: &Program) -> Vec<String> {
    let name = |b| p.buffer(b).name.clone();
    let pairs = in_place(p).into_iter();
    pairs
        .map(|(o, i)| format!("{} over {}", name(o), name(i)))
        .collect()
}

fn scheduled(body: &str, steps: &str) -> Vec<String> {
    let trace = schedule::parse(steps).expect("a trace");
    let p = schedule::replay(&program(body), &trace).expect("legal steps");
    pairs(&p)
}

#[test]
fn what_is_read_where_it_is_written_may_be_overwritten() {
    assert_eq!(
        pairs(&program("y[i, j] * 2.0 + z[j] + sum[j]")),
        ["out over y"]
    );
    // Twice at the same place is still there.
    assert_eq!(pairs(&program("y[i, j] * y[i, j]")), ["out over y"]);
}

#[test]
fn what_is_read_elsewhere_or_by_others_may_not() {
    assert!(pairs(&program("y[i, 5 - j]")).is_empty());
    assert!(pairs(&program("y[i, j] + y[i, 0]")).is_empty());
    // `sum` reads all of it.
    assert!(pairs(&program("x[i, j] + sum[j]")).is_empty());
    // Another shape.
    assert!(pairs(&program("z[j]")).is_empty());
}

#[test]
fn steps_that_keep_one_instance_an_element_keep_it() {
    let body = "y[i, j] + sum[j]";
    let steps = [
        "split out.i [_, 4]\nsplit out.j [_, 4]\nreorder out.j.0 out.i.1\nvectorize out.j.1",
        "fuse out.i out.j\nsplit out.i&out.j [_, 8]\nparallel out.i&out.j.0",
        "split out.i [_, 4]\npartition out.i.0",
    ];
    for s in steps {
        assert_eq!(scheduled(body, s), ["out over y"], "{s}");
    }
}

#[test]
fn a_copy_of_the_input_is_read_by_another_block() {
    let steps = "cache_read out y local\ncompute_at y.read out.i";
    assert!(scheduled("y[i, j] + sum[j]", steps).is_empty());
}

#[test]
fn an_element_computed_twice_is_not_in_place() {
    // By hand: no step gives an output two instances.
    let text = ir::text::print(&program("y[i, j] + sum[j]"));
    let text = text.replace(
        "for out.j in 0..6 {",
        "for out.j in 0..6 {\n    for again in 0..2 {",
    );
    let text = text.replace("+ sum[j]\n", "+ sum[j]\n }\n");
    let p = ir::text::parse(&text).expect("a program");
    assert!(pairs(&p).is_empty());
}
