//! The file tests of the steps, `files/STEP.txt`: a program and a trace whose
//! last step is tested, and the program that it leaves or why it is refused.
//! A legal step is judged by the interpreter too, whatever the file says.

use ir::{Program, Role};
use schedule::steps::STEPS;
use schedule::{parse, replay};
use std::collections::BTreeSet;
use std::path::Path;
use tensor::{Tensor, compare};
use testkit::file_test::{Case, Section, Suite, run};
use testkit::random_args;

/// Of steps that round, on arguments of small whole numbers.
const ROUNDING: f64 = 1e-6;

#[test]
fn every_step_does_or_refuses_what_its_file_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let steps: Vec<&str> = STEPS.iter().map(|s| s.name).collect();
    let suite = Suite {
        folder: &folder,
        kind: "step",
        subjects: &steps,
        setting: None,
    };
    let (mut legal, mut refused) = (BTreeSet::new(), BTreeSet::new());
    run(&suite, |case| {
        let result = last_step(case)?;
        let seen = match result.name.as_str() {
            "program" => &mut legal,
            _ => &mut refused,
        };
        seen.insert(case.subject.clone());
        Ok(vec![result])
    });
    for step in steps {
        assert!(legal.contains(step), "{step}.txt has no legal case");
        assert!(refused.contains(step), "{step}.txt has no refusal");
    }
}

/// What the last step of a trace makes of the program that the others leave.
fn last_step(case: &Case) -> Result<Section, String> {
    let mut trace = parse(case.input("trace")?).map_err(|e| e.to_string())?;
    let Some(step) = trace.steps.pop().filter(|s| s.name() == case.subject) else {
        return Err(format!("the last step of the trace is no {}", case.subject));
    };
    let given = replay(&case.program()?, &trace).map_err(|e| e.to_string())?;
    let mut made = given.clone();
    let Err(illegal) = step.apply(&mut made, &trace.decisions) else {
        check(&given, &made, step.is_exact())?;
        return Ok(Section::new("program", ir::text::print(&made)));
    };
    if illegal.step != case.subject {
        return Err(format!("`{}` refuses in its place", illegal.step));
    }
    if made != given {
        return Err(format!("a refused step changed the program: {illegal}"));
    }
    Ok(Section::new("illegal", illegal.to_string()))
}

/// Whether a step left a program that is whole and computes the same.
fn check(given: &Program, made: &Program, exact: bool) -> Result<(), String> {
    let place = |why: String| format!("{why}\n{}", ir::text::print(made));
    if let Some(broken) = ir::verify::verify(made).first() {
        return Err(place(format!("the step breaks the program: {broken}")));
    }
    let (wanted, found) = (outputs(given)?, outputs(made).map_err(place)?);
    let tolerance = if exact { 0.0 } else { ROUNDING };
    let same = wanted
        .iter()
        .zip(&found)
        .all(|(w, f)| compare(f, w).within(tolerance));
    match same {
        true => Ok(()),
        false => Err(place("the step changes what is computed".into())),
    }
}

fn outputs(p: &Program) -> Result<Vec<Tensor>, String> {
    let mut args = random_args(p, 11);
    ir::interpret::run(p, &mut args).map_err(|e| e.to_string())?;
    let is_output = |i: &usize| p.buffer(p.params[*i]).role == Role::Output;
    let all = args.into_iter().enumerate();
    Ok(all.filter(|(i, _)| is_output(i)).map(|(_, t)| t).collect())
}
