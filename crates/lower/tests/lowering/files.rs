//! The file tests of the passes, `files/PASS.txt`: a scheduled program, and the
//! text before and after the pass, or the error that the pass gives. What comes
//! out of the whole pipeline is judged by the interpreters too, for every
//! number of passes.

use crate::judge::judge;
use ir::Target;
use lower::{LowerOptions, PASSES, PassObserver, lower_observed};
use std::path::Path;
use testkit::file_test::{Case, Section, Suite, run};

#[test]
fn every_pass_does_what_its_file_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let suite = Suite {
        folder: &folder,
        kind: "pass",
        subjects: &PASSES,
        setting: Some("cpu isa=NAME ..."),
    };
    run(&suite, one_pass);
}

fn one_pass(case: &Case) -> Result<Vec<Section>, String> {
    let program = case.program()?;
    let target: Target = case.setting.parse()?;
    let mut texts: Vec<(String, String)> = Vec::new();
    let mut dump = |pass: &str, text: &str| texts.push((pass.into(), text.into()));
    let mut observer = PassObserver {
        dump: Some(&mut dump),
        timings: vec![],
    };
    let options = LowerOptions {
        verify: true,
        ..LowerOptions::standard()
    };
    let result = lower_observed(&program, &target, &options, &mut observer);
    let at = PASSES.iter().position(|p| *p == case.subject);
    let at = at.ok_or("the pipeline has no such pass")?;
    if let Err(e) = result {
        let failed = PASSES.get(texts.len()).copied().unwrap_or("no pass");
        return match failed == case.subject {
            true => Ok(vec![Section::new("error", e.to_string())]),
            false => Err(format!("{failed}: {e}")),
        };
    }
    println!("judging {}.txt:{}", case.subject, case.line);
    judge(&program, &program);
    let (_, after) = texts.swap_remove(at);
    let before = at.checked_sub(1).map(|i| texts.swap_remove(i).1);
    Ok(match before {
        None => vec![Section::new("after", after)],
        Some(before) if before == after => vec![Section::new("unchanged", after)],
        Some(before) => vec![Section::new("before", before), Section::new("after", after)],
    })
}
